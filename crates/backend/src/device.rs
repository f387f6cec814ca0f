//! The interface of a device: a handle on one reactor, and the factory that opens it on each.

use crate::{
    Geometry, OpenError, Request, RequestCompletion, ResizeCallback, ResizeError, Storage,
};
use core::fmt;
use std::io;
use std::sync::Arc;
use weft_reactor::{Owner, Reactor};

/// How many tags of its owner's tokens the innermost device may use; its wrappers use others.
pub const DEVICE_TAGS: u32 = 1 << 27;

/// After so many bytes of others' requests a device that executes them itself looks whether
/// something express has come, which then comes first.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// The handle of a block device on one reactor.
///
/// It belongs to that reactor's thread and to the owner it was opened for: the event loop passes it
/// every reactor completion of that owner. In each turn the loop calls:
///
/// 1. `handle` for each of these completions, `submit` for each new request, in any order;
/// 2. `flush` once;
/// 3. `poll_completion` until it returns `None` (allowed at any other time, too).
///
/// `flush` may be left out in a turn without calls of `handle` and `submit`.
///
/// Every request gets exactly one [`RequestCompletion`]. Completions are in no particular order,
/// nor is the execution of requests that overlap while both are in flight.
///
/// A flush that failed stays failed, because the operating system reports a lost write only once to
/// each open file: all later flushes and durable writes fail on every handle, until the device is
/// opened by another factory. Reads and other writes continue. A durable write that is refused is
/// its own failure only, unless the operating system may have reported an earlier loss with it: it
/// does so where writes go through its cache.
pub trait BlockDevice: fmt::Debug {
    /// The geometry. Changes after a resize with the next `submit` or `flush`.
    fn geometry(&self) -> &Geometry;

    /// Submits a request. An error is reported in its completion.
    fn submit(&mut self, reactor: &mut Reactor, request: Request);

    /// A read or write of these blocks is likely to be submitted next. They need not exist.
    fn prefetch_hint(&mut self, block: u64, blocks: u32) {
        let _ = (block, blocks);
    }

    /// Handles a completion of the reactor whose token has this device's owner.
    fn handle(&mut self, reactor: &mut Reactor, completion: weft_reactor::ReactorCompletion);

    /// Ends a turn: submits what was queued and retries requests that wait.
    fn flush(&mut self, reactor: &mut Reactor);

    /// Has the reactor hand out what comes for this device between the work for others
    /// ([`Reactor::has_express`]), or no longer. Devices that wait for no connection have no use
    /// for it.
    fn set_express(&mut self, reactor: &mut Reactor, is_express: bool) {
        let _ = (reactor, is_express);
    }

    /// The next completion.
    fn poll_completion(&mut self) -> Option<RequestCompletion>;

    /// Requests submitted whose completion has not been polled.
    fn in_flight(&self) -> usize;

    /// Closes the device for new requests. Those that are being executed complete; those that wait
    /// complete with [`Failure::Gone`](crate::Failure::Gone). Call `handle` and `poll_completion`
    /// until `in_flight` is 0. May be called again.
    fn close(&mut self, reactor: &mut Reactor);
}

/// A device, shared by all reactors, that opens handles.
pub trait DeviceFactory: Send + Sync + fmt::Debug {
    /// Opens the device on a reactor, for an owner that nothing else on that reactor uses.
    fn open(&self, reactor: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError>;

    /// The current geometry.
    fn geometry(&self) -> Geometry;

    /// Whether written data is still there after this process has ended.
    fn survives_restart(&self) -> bool;

    /// A text that names this device, and no other, in each run: a canonical path, or kind and
    /// size. Identifiers are derived from it.
    fn identity(&self) -> String;

    /// Resizes the device. Open handles follow.
    fn resize(&self, bytes: u64) -> Result<(), ResizeError>;

    /// Reads the size again, in case that another program changed it.
    fn refresh(&self) -> io::Result<Geometry> {
        Ok(self.geometry())
    }

    /// Calls this, from any thread, after the size has changed by itself, or a file may no longer
    /// be where it was opened. Devices that do not notice have no use for it.
    fn when_resized(&self, resized: ResizeCallback) {
        if let Some(storage) = self.storage() {
            storage.when_changed(resized);
        }
    }

    /// Makes all completed writes durable and blocks until then: for the end of the process, or of
    /// its turn with the device. A failure is one of a flush: all later ones fail, too.
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    /// Whether writes were lost before they were durable, so that all flushes and durable writes
    /// fail.
    fn has_lost_writes(&self) -> bool {
        self.storage().is_some_and(|storage| storage.lost_writes.any())
    }

    /// What it stands on, which other devices of this process may stand on as well. None: nothing
    /// but itself, as memory.
    fn storage(&self) -> Option<&Arc<Storage>> {
        None
    }

    /// What is said of a device whose file is no longer where it was opened: what is written goes
    /// with this process, or is not found at the next start.
    fn detached(&self) -> Option<String> {
        None
    }

    /// How many wrappers are around the innermost device.
    ///
    /// A device and its wrappers share an owner, and so the tags of its tokens: the innermost
    /// device uses tags below [`DEVICE_TAGS`], and the wrapper on layer n those from n times that
    /// number on.
    fn layers(&self) -> u8 {
        0
    }
}
