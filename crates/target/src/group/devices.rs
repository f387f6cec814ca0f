//! A group's handles of the block devices, by the index that every group uses for them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use weft_backend::{
    BlockDevice, Completion, DeviceFactory, Failure, OpenError, Operation, Request,
};
use weft_reactor::{Owner, Reactor};

use super::core::DEVICES;
use crate::statistics::Counters;
use weft_transport::Slot;

/// A device that goes on failing is told of no more often than this.
const SILENCE: Duration = Duration::from_secs(10);

/// The handles, and which of them have something to be looked at in this turn.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    handles: Vec<Option<Handle>>,
    active: Vec<usize>,
    counters: Counters,
}

#[derive(Debug)]
struct Handle {
    device: Box<dyn BlockDevice>,
    /// What to call it where somebody is told of it.
    name: String,
    /// Its failures are not told until then.
    silent_until: Duration,
    active: bool,
    /// No namespace uses it any more: it closes once nothing is in flight.
    removed: bool,
}

/// A request's way back: the connection's index in the group, and the command's slot.
pub(crate) const fn tag(connection: usize, slot: Slot) -> u64 {
    ((connection as u64) << 16) | slot.0 as u64
}

/// Where a completion with this tag belongs.
#[allow(clippy::cast_possible_truncation, reason = "the parts were put together by `tag`")]
pub(crate) const fn origin(tag: u64) -> (usize, Slot) {
    ((tag >> 16) as usize, Slot(tag as u16))
}

impl Devices {
    /// None yet; what goes to them is counted in these words.
    pub(crate) fn new(counters: Counters) -> Self {
        Self { counters, ..Self::default() }
    }

    /// Where the group counts.
    pub(crate) const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Opens what is new and lets go of what is gone. A device that cannot be opened here is
    /// reported; its namespace answers as one whose device is gone.
    pub(crate) fn replace(
        &mut self,
        factories: &[Option<Arc<dyn DeviceFactory>>],
        reactor: &mut Reactor,
    ) -> Result<(), OpenError> {
        let mut outcome = Ok(());
        self.counters.make_room(factories.len());
        self.handles.resize_with(factories.len().max(self.handles.len()), || None);
        for (index, handle) in self.handles.iter_mut().enumerate() {
            match (factories.get(index).and_then(Option::as_ref), handle.as_mut()) {
                (Some(factory), None) => match factory.open(reactor, owner(index)) {
                    Ok(device) => {
                        *handle = Some(Handle {
                            device,
                            name: factory.identity(),
                            silent_until: Duration::ZERO,
                            active: false,
                            removed: false,
                        });
                    }
                    Err(error) => outcome = Err(error),
                },
                (None, Some(open)) => open.removed = true,
                _ => {}
            }
        }
        self.close_removed(reactor);
        outcome
    }

    /// Hands a request to a device. `false`: there is no such device, and nothing will come.
    pub(crate) fn submit(
        &mut self,
        device: u32,
        tag: u64,
        operation: Operation,
        reactor: &mut Reactor,
    ) -> bool {
        let index = device as usize;
        let Some(Some(handle)) = self.handles.get_mut(index) else { return false };
        self.counters.count(index, &operation);
        handle.device.submit(reactor, Request { tag, operation });
        Self::activate(&mut self.active, handle, index);
        true
    }

    /// Takes a completion of the reactor that is for a device.
    pub(crate) fn handle(&mut self, completion: weft_reactor::Completion, reactor: &mut Reactor) {
        let index = completion.token.owner.0.saturating_sub(DEVICES) as usize;
        if let Some(Some(handle)) = self.handles.get_mut(index) {
            handle.device.handle(reactor, completion);
            Self::activate(&mut self.active, handle, index);
        }
    }

    /// The next request that is done.
    pub(crate) fn poll_completion(&mut self, now: Duration) -> Option<Completion> {
        for index in &self.active {
            if let Some(Some(handle)) = self.handles.get_mut(*index)
                && let Some(completion) = handle.device.poll_completion()
            {
                if let Err(failure) = completion.result {
                    handle.complain(failure, now);
                }
                return Some(completion);
            }
        }
        None
    }

    /// What was gathered goes to the devices. Ask for completions afterwards.
    pub(crate) fn flush(&mut self, reactor: &mut Reactor) {
        for index in &self.active {
            if let Some(Some(handle)) = self.handles.get_mut(*index) {
                handle.device.flush(reactor);
            }
        }
    }

    /// Ends a turn: there is nothing to be looked at until something happens.
    pub(crate) fn rest(&mut self, reactor: &mut Reactor) {
        let mut removed = false;
        for index in self.active.drain(..) {
            if let Some(Some(handle)) = self.handles.get_mut(index) {
                handle.active = false;
                removed |= handle.removed;
            }
        }
        if removed {
            self.close_removed(reactor);
        }
    }

    /// Ends what waits in a device without being worked on.
    pub(crate) fn end(&mut self, reactor: &mut Reactor) {
        for (index, handle) in self.handles.iter_mut().enumerate() {
            if let Some(handle) = handle {
                handle.silent_until = Duration::MAX;
                handle.device.close(reactor);
                Self::activate(&mut self.active, handle, index);
            }
        }
    }

    /// Closes every device.
    pub(crate) fn close(&mut self, reactor: &mut Reactor) {
        for handle in self.handles.iter_mut().flatten() {
            handle.device.close(reactor);
        }
        self.handles.clear();
        self.active.clear();
    }

    fn close_removed(&mut self, reactor: &mut Reactor) {
        for handle in &mut self.handles {
            let idle = |open: &Handle| open.removed && !open.active && open.device.in_flight() == 0;
            if handle.as_ref().is_some_and(idle)
                && let Some(mut open) = handle.take()
            {
                open.device.close(reactor);
            }
        }
    }

    fn activate(active: &mut Vec<usize>, handle: &mut Handle, index: usize) {
        if !handle.active {
            handle.active = true;
            active.push(index);
        }
    }
}

impl Handle {
    /// Tells who runs the target that a device is in trouble; its host knows by the status.
    fn complain(&mut self, failure: Failure, now: Duration) {
        if now < self.silent_until || self.removed {
            return;
        }
        if let Some(trouble) = trouble(failure) {
            self.silent_until = now.saturating_add(SILENCE);
            log::warn!("{}: a request failed: {trouble}", self.name);
        }
    }
}

/// A failure that is the device's trouble and not a host's mistake, in words.
fn trouble(failure: Failure) -> Option<String> {
    let words = match failure {
        Failure::NoSpace => "there is no space left",
        Failure::MediaRead => "the medium could not be read",
        Failure::MediaWrite => "the medium could not be written",
        Failure::OutOfRange => "the device is shorter than it was",
        Failure::Gone => "the device is gone",
        Failure::PathLost => "the way to the device is lost",
        Failure::Device(number) => return Some(io::Error::from_raw_os_error(number).to_string()),
        Failure::ReadOnly
        | Failure::Mismatch
        | Failure::Unsupported
        | Failure::Aborted
        | Failure::Remote(_) => return None,
    };
    Some(words.to_owned())
}

fn owner(index: usize) -> Owner {
    Owner(DEVICES.saturating_add(u32::try_from(index).unwrap_or(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_told_and_mistakes_are_not() {
        assert_eq!(trouble(Failure::NoSpace).as_deref(), Some("there is no space left"));
        assert!(trouble(Failure::Device(24)).is_some_and(|words| words.contains("open files")));
        for mistake in [Failure::Mismatch, Failure::ReadOnly, Failure::Remote(0x281)] {
            assert_eq!(trouble(mistake), None);
        }
    }

    #[test]
    fn a_tag_finds_its_way_back() {
        for (connection, slot) in [(0, 0), (1, 0xffff), (0xffff_ffff, 7)] {
            assert_eq!(origin(tag(connection, Slot(slot))), (connection, Slot(slot)));
        }
    }
}
