//! A change is true once no device has a command that it forbids. Until then no namespace gets a
//! device that the change has taken from another one.

use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Weak};
use std::time::Duration;

use weft_backend::{DeviceFactory, duration};
use weft_reactor::monotonic_time;

use crate::shared::error::TargetError;
use crate::shared::round::Round;
use crate::shared::snapshot::{ServedDevice, Snapshot};

/// A change that every poll group has made. Devices may still have commands that it forbids and
/// that had begun before it.
#[derive(Debug)]
#[must_use = "a change is true once these commands have ended"]
pub struct Settlement {
    done: Option<Receiver<()>>,
    patience: Duration,
    until: Duration,
}

impl Settlement {
    /// Nothing has changed.
    pub(crate) const fn at_once() -> Self {
        Self { done: None, patience: Duration::ZERO, until: Duration::ZERO }
    }

    pub(crate) fn when(done: Receiver<()>, patience: Duration) -> Self {
        Self { done: Some(done), patience, until: monotonic_time().saturating_add(patience) }
    }

    /// Waits until no device has such a command, for `limits.drain-timeout` at most.
    ///
    /// # Errors
    /// A device takes longer. The change is made nevertheless.
    pub fn wait(self) -> Result<(), TargetError> {
        let Some(done) = &self.done else { return Ok(()) };
        let patience = self.until.saturating_sub(monotonic_time());
        done.recv_timeout(patience).map_err(|error| self.late(error))
    }

    /// The outcome of [`Self::wait`], if it would not wait any more.
    pub fn poll(&self) -> Option<Result<(), TargetError>> {
        let Some(done) = &self.done else { return Some(Ok(())) };
        match done.try_recv() {
            Ok(()) => Some(Ok(())),
            Err(TryRecvError::Empty) if monotonic_time() < self.until => None,
            Err(TryRecvError::Empty) => Some(Err(self.late(RecvTimeoutError::Timeout))),
            Err(TryRecvError::Disconnected) => Some(Err(self.late(RecvTimeoutError::Disconnected))),
        }
    }

    fn late(&self, error: RecvTimeoutError) -> TargetError {
        TargetError::new(match error {
            RecvTimeoutError::Disconnected => "the change is made, but the target stops".to_owned(),
            RecvTimeoutError::Timeout => format!(
                "the change is made, but a device still has commands that it forbids, after {} \
                 (limits.drain-timeout); no other namespace gets the device before they have ended",
                duration::exact(self.patience)
            ),
        })
    }
}

/// Devices that changes have taken from namespaces, and that may still have their commands.
#[derive(Debug, Default)]
pub(crate) struct RetiredDevices(Vec<(Weak<Round>, Vec<Weak<ServedDevice>>)>);

impl RetiredDevices {
    /// Notes what a snapshot no longer has of the one before, until this round is over.
    pub(crate) fn note(&mut self, before: &Snapshot, after: &Snapshot, settled: &Arc<Round>) {
        self.0.retain(|(round, _)| round.strong_count() > 0);
        let left = before.devices_without(after);
        if !left.is_empty() {
            self.0.push((Arc::downgrade(settled), left));
        }
    }

    /// Whether one of them is what this device stands on.
    pub(crate) fn has(&self, device: &Arc<dyn DeviceFactory>) -> bool {
        let waiting = self.0.iter().filter(|(round, _)| round.strong_count() > 0);
        let mut left = waiting.flat_map(|(_, left)| left).filter_map(Weak::upgrade);
        left.any(|left| is_same_storage(&left.factory, device))
    }
}

/// Whether two devices are the same one, or stand on the same file, block device or image.
pub(crate) fn is_same_storage(
    one: &Arc<dyn DeviceFactory>,
    other: &Arc<dyn DeviceFactory>,
) -> bool {
    let storages = one.storage().zip(other.storage());
    Arc::ptr_eq(one, other) || storages.is_some_and(|(one, other)| one.id() == other.id())
}
