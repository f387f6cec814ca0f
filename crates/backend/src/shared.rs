//! What all handles of a device share.

use crate::Failure;
use core::fmt;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Release};
use std::io;
use std::sync::Arc;

/// What is called when a device has changed its size by itself.
#[derive(Clone)]
pub struct ResizeCallback(Arc<dyn Fn() + Send + Sync>);

impl ResizeCallback {
    /// Calls this.
    pub fn new(action: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(action))
    }

    pub(crate) fn tell(&self) {
        (self.0)();
    }
}

impl fmt::Debug for ResizeCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resized")
    }
}

/// Whether writes were lost before they were durable. All handles of a device share it.
#[derive(Debug, Default)]
pub(crate) struct LostWrites(AtomicBool);

impl LostWrites {
    pub(crate) fn any(&self) -> bool {
        self.0.load(Acquire)
    }

    /// Records a loss.
    pub(crate) fn record(&self) {
        self.0.store(true, Release);
    }

    /// Begins anew: nobody who knows of the loss has the device any more.
    pub(crate) fn forget(&self) {
        self.0.store(false, Release);
    }

    /// Records the failure of a flush: whoever has the operating system flush, and gets an error,
    /// is the only one who is told of the writes that are lost.
    pub(crate) fn flush_failed(&self, failure: Failure) {
        if !matches!(failure, Failure::Aborted | Failure::Unsupported) {
            self.record();
        }
    }

    /// The result of a flush that blocks.
    pub(crate) fn synced(&self, result: io::Result<()>) -> io::Result<()> {
        result.inspect_err(|_| self.record())?;
        if self.any() { Err(rustix::io::Errno::IO.into()) } else { Ok(()) }
    }
}
