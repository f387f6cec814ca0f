//! Several devices that are driven as one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_backend::{BlockDevice, DeviceFactory, Geometry, OpenError, ResizeError};
use weft_reactor::{Owner, Reactor};

/// Devices of one size at several controllers: each one that is opened is the next of them, so that
/// the copies of a job are spread evenly.
#[derive(Debug)]
pub(super) struct Alike {
    all: Vec<Arc<dyn DeviceFactory>>,
    next: AtomicUsize,
}

impl Alike {
    /// Of at least one device.
    pub(super) fn new(all: Vec<Arc<dyn DeviceFactory>>) -> Self {
        Self { all, next: AtomicUsize::new(0) }
    }
}

impl DeviceFactory for Alike {
    fn open(&self, reactor: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.all.len();
        self.all[next].open(reactor, owner)
    }

    fn geometry(&self) -> Geometry {
        self.all[0].geometry()
    }

    fn survives_restart(&self) -> bool {
        self.all.iter().all(|one| one.survives_restart())
    }

    fn identity(&self) -> String {
        let all: Vec<String> = self.all.iter().map(|one| one.identity()).collect();
        all.join(" ")
    }

    fn resize(&self, bytes: u64) -> Result<(), ResizeError> {
        self.all.iter().try_for_each(|one| one.resize(bytes))
    }

    fn sync(&self) -> io::Result<()> {
        self.all.iter().try_for_each(|one| one.sync())
    }
}
