//! Asynchronous events of devices.
//!
//! A device has one event queue for the whole process, whichever thread created the objects
//! concerned, and any thread may read it. So the reader copies each event for all `Device`s of that
//! adapter. One edge wakes all threads that watch the descriptor; reading is done under a lock, so
//! a later thread finds its copies.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::super::{DeviceEvent, DeviceFault};
use super::abi::{self, Functions, device_event};

/// The copies of all open devices, with their contexts.
static HOLDERS: Mutex<Vec<(usize, Weak<Copies>)>> = Mutex::new(Vec::new());

/// The events copied for one open device.
type Copies = Mutex<VecDeque<DeviceEvent>>;

/// The asynchronous events of a device, for one reactor.
#[derive(Debug)]
pub(super) struct EventReader {
    functions: &'static Functions,
    context: NonNull<abi::Context>,
    copies: Arc<Copies>,
}

impl EventReader {
    pub(super) fn open(
        functions: &'static Functions,
        context: NonNull<abi::Context>,
    ) -> io::Result<Self> {
        let reader = Self { functions, context, copies: Arc::default() };
        let flags = fcntl_getfl(reader.descriptor())?;
        fcntl_setfl(reader.descriptor(), flags | OFlags::NONBLOCK)?;
        let mut holders = lock(&HOLDERS);
        holders.retain(|(_, copies)| copies.strong_count() > 0);
        holders.push((reader.key(), Arc::downgrade(&reader.copies)));
        drop(holders);
        Ok(reader)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: a context that was seen once stays open for good, and with it its descriptor.
        unsafe { BorrowedFd::borrow_raw((*self.context.as_ptr()).async_fd) }
    }

    /// The next event, read by any thread.
    pub(super) fn poll(&mut self) -> Option<DeviceEvent> {
        self.read_all();
        lock(&self.copies).pop_front()
    }

    fn read_all(&self) {
        let holders = lock(&HOLDERS);
        let mut event = MaybeUninit::<abi::AsyncEvent>::uninit();
        // SAFETY: the context is open and its descriptor does not block; `event` is as large as the
        // library expects.
        while unsafe {
            (self.functions.ibv_get_async_event)(self.context.as_ptr(), event.as_mut_ptr())
        } == 0
        {
            // SAFETY: the call above has succeeded and written it.
            let said = read(unsafe { event.assume_init_ref() });
            // SAFETY: the event came from `ibv_get_async_event` and is acknowledged once. Until
            // now, the destruction of what it is about had to wait.
            unsafe { (self.functions.ibv_ack_async_event)(event.as_mut_ptr()) };
            let Some(said) = said else { continue };
            let here = holders.iter().filter(|(context, _)| *context == self.key());
            for copies in here.filter_map(|(_, copies)| copies.upgrade()) {
                lock(&copies).push_back(said);
            }
        }
    }

    fn key(&self) -> usize {
        self.context.addr().get()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data is consistent even if a thread has panicked with the lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Converts an event, if it is of interest. It is not acknowledged yet.
fn read(event: &abi::AsyncEvent) -> Option<DeviceEvent> {
    let pair = |fault| {
        // SAFETY: this event is about a queue pair, which is alive until the acknowledgement.
        let number = unsafe { (*event.element.pair).number };
        Some(DeviceEvent::QueuePair(number, fault))
    };
    // SAFETY: this event is about a port and contains its number.
    let port = || u8::try_from(unsafe { event.element.port }).unwrap_or(0);
    match event.kind {
        device_event::PAIR_FATAL => pair(DeviceFault::QueuePair),
        device_event::PAIR_REQUEST_ERROR => pair(DeviceFault::Request),
        device_event::PAIR_ACCESS_ERROR => pair(DeviceFault::Access),
        device_event::QUEUE_ERROR => {
            // SAFETY: this event is about a completion queue, whose address is its key.
            let queue = unsafe { event.element.queue };
            Some(DeviceEvent::CompletionQueue(queue.addr() as u64))
        }
        device_event::DEVICE_FATAL => Some(DeviceEvent::Fatal),
        device_event::PORT_ACTIVE => Some(DeviceEvent::Port { port: port(), active: true }),
        device_event::PORT_ERROR => Some(DeviceEvent::Port { port: port(), active: false }),
        // Path migrations, changed tables and others.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: u32, element: abi::AsyncElement) -> abi::AsyncEvent {
        abi::AsyncEvent { element, kind }
    }

    #[test]
    fn events_are_read_for_what_they_are_about() {
        let port = |kind| read(&event(kind, abi::AsyncElement { port: 2 }));
        assert_eq!(port(9), Some(DeviceEvent::Port { port: 2, active: true }));
        assert_eq!(port(10), Some(DeviceEvent::Port { port: 2, active: false }));
        assert_eq!(port(8), Some(DeviceEvent::Fatal));
        assert_eq!(port(17), None, "clients are to register anew: nobody here has");
        // SAFETY: a queue pair is plain pointers and numbers, of which zeroes are some.
        let mut pair: abi::RawQueuePair = unsafe { std::mem::zeroed() };
        pair.number = 77;
        for (kind, fault) in
            [(1, DeviceFault::QueuePair), (2, DeviceFault::Request), (3, DeviceFault::Access)]
        {
            let said = read(&event(kind, abi::AsyncElement { pair: &raw mut pair }));
            assert_eq!(said, Some(DeviceEvent::QueuePair(77, fault)));
        }
        let queue = std::ptr::without_provenance_mut(0x1000);
        let said = read(&event(0, abi::AsyncElement { queue }));
        assert_eq!(said, Some(DeviceEvent::CompletionQueue(0x1000)));
    }
}
