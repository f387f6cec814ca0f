//! A group's handles of the block devices, by the place that every group uses for them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use weft_backend::{BlockDevice, Failure, OpenError, Operation, Request, RequestCompletion};
use weft_nvme::Status;
use weft_reactor::{Owner, Reactor};
use weft_transport::Slot;

use super::owners::DEVICES;
use super::schedule::{DeviceWindow, ExpressDelay, Pieces, is_long, turn_bytes};
use crate::shared::ids::DeviceId;
use crate::shared::snapshot::ServedDevice;
use crate::shared::statistics::CounterWriter;

/// The shortest time between two log lines of a failing device.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The handles, and which of them are to be polled in this turn.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    handles: Vec<Option<Handle>>,
    /// Opened for a reload that is not executed yet.
    prepared: Vec<Handle>,
    active: Vec<usize>,
    /// Those that were removed and are not closed yet.
    removing: Vec<usize>,
    counters: CounterWriter,
    /// Requests that are executed in pieces.
    pieces: Pieces,
    /// Large ones are to be, and devices have windows: there are express queues.
    is_express: bool,
    /// Large ones are to be: each piece is time of its tenant.
    is_divided: bool,
    express_delay: ExpressDelay,
    /// A request has failed on a device that has lost writes.
    lost_writes: bool,
}

#[derive(Debug)]
struct Handle {
    id: DeviceId,
    /// Its index is not used again as long as this exists.
    served: Arc<ServedDevice>,
    device: Box<dyn BlockDevice>,
    window: DeviceWindow,
    /// Its failures are not logged until then.
    log_after: Duration,
    active: bool,
    /// No namespace uses it any more: once nothing is in flight it is flushed, then closed.
    removed: bool,
    /// The last flush, after which it closes, is under way or done.
    last_flush: bool,
}

/// The tag of a removed device's last flush, which no command has: connections are fewer.
const LAST_FLUSH: u64 = u64::MAX;

/// The origin of a request: the connection's index in the group, and the command's slot.
pub(crate) const fn tag(connection: usize, slot: Slot) -> u64 {
    ((connection as u64) << 16) | slot.0 as u64
}

/// The origin of a completion with this tag.
#[allow(clippy::cast_possible_truncation, reason = "the parts were put together by `tag`")]
pub(crate) const fn origin(tag: u64) -> (usize, Slot) {
    ((tag >> 16) as usize, Slot(tag as u16))
}

impl Devices {
    /// No device yet; `counters` counts their requests.
    pub(crate) fn new(counters: CounterWriter) -> Self {
        Self { counters, ..Self::default() }
    }

    /// Where the group counts.
    pub(crate) const fn counters(&self) -> &CounterWriter {
        &self.counters
    }

    /// Opens what is new among these. If one of them cannot be opened, none is.
    pub(crate) fn prepare(
        &mut self,
        devices: &[Arc<ServedDevice>],
        reactor: &mut Reactor,
    ) -> Result<(), OpenError> {
        for device in devices {
            if self.find(device.id).is_some() {
                continue;
            }
            match device.factory.open(reactor, owner(device.id)) {
                Ok(open) => self.prepared.push(Handle {
                    id: device.id,
                    served: Arc::clone(device),
                    device: open,
                    window: DeviceWindow::default(),
                    log_after: Duration::ZERO,
                    active: false,
                    removed: false,
                    last_flush: false,
                }),
                Err(error) => {
                    self.rollback(reactor);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Undoes the preparation.
    pub(crate) fn rollback(&mut self, reactor: &mut Reactor) {
        for mut handle in self.prepared.drain(..) {
            handle.device.close(reactor);
        }
    }

    /// Serves these devices, of which new ones were prepared, and releases the others.
    pub(crate) fn serve<'a>(
        &mut self,
        devices: impl Iterator<Item = &'a Arc<ServedDevice>>,
        reactor: &mut Reactor,
    ) {
        let mut ids: Vec<_> = devices.map(|device| device.id.0).collect();
        ids.sort_unstable();
        let is_served = |handle: &Handle| ids.binary_search(&handle.id.0).is_ok();
        let (new, left) = self.prepared.drain(..).partition(is_served);
        self.prepared = left;
        self.begin(new);
        for (index, handle) in self.handles.iter_mut().enumerate() {
            let Some(handle) = handle.as_mut().filter(|handle| !handle.removed) else { continue };
            if !is_served(handle) {
                handle.removed = true;
                self.removing.push(index);
            }
        }
        self.close_removed(reactor);
    }

    /// Serves the devices that were prepared as well, and releases these.
    pub(crate) fn change(&mut self, removed: &[DeviceId], reactor: &mut Reactor) {
        let new = std::mem::take(&mut self.prepared);
        self.begin(new);
        for id in removed {
            if let Some(handle) = self.find(*id)
                && !std::mem::replace(&mut handle.removed, true)
            {
                self.removing.push(id.slot());
            }
        }
        self.close_removed(reactor);
    }

    /// Serves devices that were prepared.
    fn begin(&mut self, new: Vec<Handle>) {
        for handle in new {
            let slot = handle.id.slot();
            self.counters.begin(slot, handle.served.subsystem.counters());
            self.handles.resize_with(self.handles.len().max(slot + 1), || None);
            self.handles[slot] = Some(handle);
        }
    }

    /// The device of this identifier.
    fn find(&mut self, id: DeviceId) -> Option<&mut Handle> {
        let handle = self.handles.get_mut(id.slot())?.as_mut()?;
        (handle.id == id).then_some(handle)
    }

    /// Submits a request to a device, of an express queue or of another one. `false`: there is no
    /// such device, and no completion follows.
    pub(crate) fn submit(
        &mut self,
        device: u32,
        tag: u64,
        is_express: bool,
        operation: Operation,
        reactor: &mut Reactor,
    ) -> bool {
        let (id, slot) = (DeviceId(device), DeviceId(device).slot());
        let Some(Some(handle)) = self.handles.get_mut(slot) else { return false };
        if handle.id != id {
            return false;
        }
        let geometry = handle.device.geometry();
        self.counters.count(slot, geometry.block_bytes, &operation);
        if (self.is_express || self.is_divided)
            && self.pieces.take(origin(tag).0, device, tag, &operation, geometry)
        {
            return true;
        }
        let request = Request { tag, operation };
        let request = match (self.is_express, is_express) {
            (true, false) => handle.window.enter(request, reactor.now()),
            (true, true) => {
                handle.window.pass(&request, reactor.now(), &mut self.express_delay);
                Some(request)
            }
            (false, _) => Some(request),
        };
        request.into_iter().for_each(|request| handle.device.submit(reactor, request));
        Self::activate(&mut self.active, handle, slot);
        true
    }

    /// Whether there are express queues: then large requests without data are executed in pieces,
    /// and devices are given a window's requests of others at a time.
    pub(crate) fn set_express(&mut self, is_express: bool) {
        if std::mem::replace(&mut self.is_express, is_express) && !is_express {
            for (index, handle) in self.handles.iter_mut().enumerate() {
                if let Some(handle) = handle.as_mut().filter(|one| one.window.has_waiting()) {
                    Self::activate(&mut self.active, handle, index);
                }
            }
        }
    }

    /// Whether several tenants share the group: then large requests without data are executed in
    /// pieces.
    pub(crate) const fn set_divided(&mut self, is_divided: bool) {
        self.is_divided = is_divided;
    }

    /// Requests that are executed in pieces.
    pub(crate) const fn pieces(&self) -> &Pieces {
        &self.pieces
    }

    /// What a request without data takes of a turn, in bytes; of one in pieces only these do.
    pub(crate) fn turn_bytes(&mut self, device: u32, operation: &Operation) -> usize {
        let is_pieced = self.is_express || self.is_divided;
        if !is_long(operation) {
            return 0;
        }
        let handle = self.find(DeviceId(device));
        handle.map_or(0, |one| turn_bytes(operation, one.device.geometry(), is_pieced))
    }

    /// A queue has ended: what of its requests is in pieces that have not begun is given up.
    pub(crate) fn give_up_pieces(&mut self, connection: usize) {
        self.pieces.give_up(connection);
    }

    /// Begins a piece of a request of a connection, or of any, if there is one. The tag of the
    /// request.
    pub(crate) fn begin_piece(&mut self, of: Option<usize>, reactor: &mut Reactor) -> Option<u64> {
        let (device, tag, operation) = match of {
            Some(of) => self.pieces.next_of(of),
            None => self.pieces.next(),
        }?;
        // A device stays as long as it has requests in pieces.
        if let Some(Some(handle)) = self.handles.get_mut(DeviceId(device).slot()) {
            handle.device.submit(reactor, Request { tag, operation });
            handle.device.flush(reactor);
            Self::activate(&mut self.active, handle, DeviceId(device).slot());
        }
        Some(tag)
    }

    /// Hints a device at a read or write that is likely to come next.
    pub(crate) fn prefetch_hint(&mut self, device: u32, block: u64, blocks: u32) {
        if let Some(handle) = self.find(DeviceId(device)) {
            handle.device.prefetch_hint(block, blocks);
        }
    }

    /// Takes a completion of the reactor that is for a device.
    pub(crate) fn handle(
        &mut self,
        completion: weft_reactor::ReactorCompletion,
        reactor: &mut Reactor,
    ) {
        let id = DeviceId(completion.token.owner.0.saturating_sub(DEVICES));
        if let Some(Some(handle)) = self.handles.get_mut(id.slot())
            && handle.id == id
        {
            handle.device.handle(reactor, completion);
            Self::activate(&mut self.active, handle, id.slot());
        }
    }

    /// Whether one of an express queue is in a device.
    #[inline]
    pub(crate) const fn have_express(&self) -> bool {
        self.express_delay.is_any_in_device()
    }

    /// The next completed request; nothing had come for express queues at `before`.
    pub(crate) fn poll_completion(
        &mut self,
        reactor: &Reactor,
        before: Duration,
    ) -> Option<RequestCompletion> {
        if let Some(tag) = self.pieces.take_given_up() {
            return Some(RequestCompletion { tag, result: Err(Failure::Gone), buffer: None });
        }
        let turn = reactor.turn_time();
        for index in &self.active {
            let Some(Some(handle)) = self.handles.get_mut(*index) else { continue };
            while let Some(completion) = handle.device.poll_completion() {
                if handle.window.has_begun() {
                    let (now, delay) = (reactor.now(), &mut self.express_delay);
                    handle.window.completed(completion.tag, before, turn, now, delay);
                }
                if let Err(failure) = completion.result {
                    self.counters.count_failure(*index, failure);
                    self.lost_writes |= handle.served.factory.has_lost_writes();
                }
                match completion.result {
                    Err(failure) if completion.tag == LAST_FLUSH => {
                        handle.log_failed_last_flush(failure)
                    }
                    Err(failure) => handle.log_failure(failure, turn),
                    Ok(()) => {}
                }
                let is_whole = self.pieces.is_empty()
                    || self.pieces.ended(completion.tag, completion.result.is_ok());
                if completion.tag != LAST_FLUSH && is_whole {
                    return Some(completion);
                }
            }
        }
        None
    }

    /// Whether a request has failed on a device that has lost writes, since this was asked last.
    pub(crate) fn take_lost_writes(&mut self) -> bool {
        std::mem::take(&mut self.lost_writes)
    }

    /// Flushes gathered requests to the devices. Poll for completions afterwards.
    pub(crate) fn flush(&mut self, reactor: &mut Reactor) {
        for index in &self.active {
            if let Some(Some(handle)) = self.handles.get_mut(*index) {
                handle.begin_waiting(!self.is_express, reactor);
                handle.device.flush(reactor);
            }
        }
    }

    /// Flushes gathered requests to one device.
    pub(crate) fn flush_one(&mut self, device: u32, reactor: &mut Reactor) {
        if let Some(handle) = self.find(DeviceId(device)) {
            handle.device.flush(reactor);
        }
    }

    /// Whether a device that was looked at in this turn has requests: some of them may have come
    /// since its flush, or have waited for one that has ended with it.
    pub(crate) fn are_busy(&self) -> bool {
        let mut open = self.active.iter().filter_map(|index| self.handles.get(*index)?.as_ref());
        open.any(|handle| handle.device.in_flight() > 0 || handle.window.has_next())
    }

    /// Whether a device that has had events since the last turn has a place for a request that
    /// waits.
    pub(crate) fn have_next(&self) -> bool {
        let mut open = self.active.iter().filter_map(|index| self.handles.get(*index)?.as_ref());
        open.any(|handle| handle.window.has_next())
    }

    /// Ends a turn: no device is polled until it has events.
    pub(crate) fn end_turn(&mut self, reactor: &mut Reactor) {
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

    /// Fails requests that wait in a device without being executed.
    pub(crate) fn end(&mut self, reactor: &mut Reactor) {
        for (index, handle) in self.handles.iter_mut().enumerate() {
            if let Some(handle) = handle {
                handle.log_after = Duration::MAX;
                handle.begin_waiting(true, reactor);
                handle.device.close(reactor);
                Self::activate(&mut self.active, handle, index);
            }
        }
    }

    /// Whether the last flush of a device that was removed is under way.
    pub(crate) fn is_flushing_removed(&self) -> bool {
        let mut open = self.handles.iter().flatten();
        open.any(|handle| handle.last_flush && handle.device.in_flight() > 0)
    }

    /// Closes every device.
    pub(crate) fn close(&mut self, reactor: &mut Reactor) {
        for handle in self.handles.iter_mut().flatten() {
            handle.device.close(reactor);
        }
        self.handles.clear();
        self.active.clear();
        self.removing.clear();
    }

    /// Closes removed devices that are idle, after a flush: no host can flush them any more, and
    /// written data may still be in the device's cache.
    fn close_removed(&mut self, reactor: &mut Reactor) {
        let Self { removing, handles, active, pieces, .. } = self;
        removing.retain(|index| {
            let Some(place) = handles.get_mut(*index) else { return false };
            let Some(open) = place.as_mut() else { return false };
            let is_busy = open.active || open.device.in_flight() > 0 || open.window.has_waiting();
            if is_busy || pieces.has_any_for(open.id.0) {
                return true;
            }
            let can = open.device.geometry().capabilities;
            if can.volatile_cache && !can.read_only && !open.last_flush {
                open.last_flush = true;
                let request = Request { tag: LAST_FLUSH, operation: Operation::Flush };
                open.device.submit(reactor, request);
                Self::activate(active, open, *index);
                return true;
            }
            open.device.close(reactor);
            *place = None;
            false
        });
    }

    fn activate(active: &mut Vec<usize>, handle: &mut Handle, index: usize) {
        if !handle.active {
            handle.active = true;
            active.push(index);
        }
    }
}

impl Handle {
    /// Gives the device what its window leaves place for, or all that waits.
    fn begin_waiting(&mut self, all: bool, reactor: &mut Reactor) {
        while let Some(request) = self.window.next(all, reactor.now()) {
            self.device.submit(reactor, request);
        }
    }

    /// Logs that a device has failed; its host gets the status.
    fn log_failure(&mut self, failure: Failure, now: Duration) {
        if now < self.log_after || self.removed {
            return;
        }
        if let Some(text) = failure_text(failure) {
            self.log_after = now.saturating_add(LOG_INTERVAL);
            let name = self.served.factory.identity();
            log::warn!("{name}: a request failed: {text}");
            if self.served.factory.has_lost_writes() {
                log::error!(
                    "{name}: writes were lost before they were durable: Flush and FUA fail until \
                     the namespace is removed and added again"
                );
            }
        }
    }

    /// The last flush of a removed device has failed. No host waits for it.
    fn log_failed_last_flush(&self, failure: Failure) {
        let name = self.served.factory.identity();
        log::error!("{name}: the last writes may not be durable: {failure}");
    }
}

/// The text of a failure of the device; none for a host's mistake.
fn failure_text(failure: Failure) -> Option<String> {
    let words = match failure {
        Failure::NoSpace => {
            "there is no space left: free space where it is stored, or remove the namespace"
        }
        Failure::MediaRead => "the medium could not be read",
        Failure::MediaWrite => "the medium could not be written",
        Failure::OutOfRange => "the device is shorter than it was",
        Failure::Gone => "the device is gone",
        Failure::PathLost => "the path to the device is lost",
        Failure::Device(number) => return Some(io::Error::from_raw_os_error(number).to_string()),
        Failure::ReadOnly
        | Failure::Mismatch
        | Failure::Unsupported
        | Failure::Aborted
        | Failure::Remote(_) => return None,
    };
    Some(words.to_owned())
}

fn owner(id: DeviceId) -> Owner {
    Owner(DEVICES.saturating_add(id.0))
}

/// The status of a command whose device is not there, or is closed.
pub(super) const NO_DEVICE: Status = Status::INVALID_NAMESPACE.with_dnr();

/// The status that tells a host of a result. Do Not Retry is set where the same command would fail
/// the same way again.
pub(super) const fn status_of(result: Result<(), Failure>) -> Status {
    let Err(failure) = result else { return Status::SUCCESS };
    match failure {
        Failure::OutOfRange => Status::LBA_OUT_OF_RANGE.with_dnr(),
        Failure::ReadOnly => Status::NAMESPACE_WRITE_PROTECTED.with_dnr(),
        Failure::Mismatch => Status::COMPARE_FAILURE.with_dnr(),
        Failure::NoSpace => Status::CAPACITY_EXCEEDED.with_dnr(),
        Failure::Unsupported => Status::INVALID_OPCODE.with_dnr(),
        Failure::MediaRead => Status::UNRECOVERED_READ_ERROR,
        Failure::MediaWrite => Status::WRITE_FAULT,
        Failure::Gone => NO_DEVICE,
        Failure::Aborted => Status::ABORT_REQUESTED,
        Failure::PathLost => Status::INTERNAL_PATH_ERROR,
        Failure::Device(_) => Status::INTERNAL_ERROR,
        Failure::Remote(status) => Status(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;
    use weft_backend::{Capabilities, DeviceFactory, Geometry, ResizeError};
    use weft_reactor::simulation::{NetworkConditions, World};

    #[test]
    fn device_failures_are_logged_and_host_mistakes_are_not() {
        assert!(
            failure_text(Failure::NoSpace).is_some_and(|words| words.contains("no space left"))
        );
        assert!(
            failure_text(Failure::Device(24)).is_some_and(|words| words.contains("open files"))
        );
        for mistake in [Failure::Mismatch, Failure::ReadOnly, Failure::Remote(0x281)] {
            assert_eq!(failure_text(mistake), None);
        }
    }

    type Log = Arc<Mutex<Vec<&'static str>>>;

    /// A device that completes its requests on demand and records its operations.
    #[derive(Debug, Clone)]
    struct Recorder {
        geometry: Geometry,
        log: Log,
        may_end: Arc<AtomicBool>,
        waiting: Vec<u64>,
    }

    impl DeviceFactory for Recorder {
        fn open(&self, _: &mut Reactor, _: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
            Ok(Box::new(self.clone()))
        }
        fn geometry(&self) -> Geometry {
            self.geometry
        }
        fn survives_restart(&self) -> bool {
            true
        }
        fn identity(&self) -> String {
            "recorder".to_owned()
        }
        fn resize(&self, _: u64) -> Result<(), ResizeError> {
            Err(ResizeError::Unsupported)
        }
    }

    impl BlockDevice for Recorder {
        fn geometry(&self) -> &Geometry {
            &self.geometry
        }
        fn submit(&mut self, _: &mut Reactor, request: Request) {
            self.log.lock().unwrap().push(request.operation.kind().name());
            self.waiting.push(request.tag);
        }
        fn handle(&mut self, _: &mut Reactor, _: weft_reactor::ReactorCompletion) {}
        fn flush(&mut self, _: &mut Reactor) {}
        fn poll_completion(&mut self) -> Option<RequestCompletion> {
            let tag = self.may_end.load(Relaxed).then(|| self.waiting.pop()).flatten()?;
            Some(RequestCompletion { tag, result: Ok(()), buffer: None })
        }
        fn in_flight(&self) -> usize {
            self.waiting.len()
        }
        fn close(&mut self, _: &mut Reactor) {
            self.log.lock().unwrap().push("close");
        }
    }

    /// A device with a Write Zeroes in flight when its namespace is removed.
    fn operations_of_removed(capabilities: Capabilities, is_named: bool) -> Vec<&'static str> {
        let mut reactor = Reactor::simulated(&World::new(1, NetworkConditions::default()));
        let recorder = Recorder {
            geometry: Geometry { capabilities, ..Geometry::new(1 << 20, 512) },
            log: Log::default(),
            may_end: Arc::default(),
            waiting: Vec::new(),
        };
        let mut devices = Devices::default();
        let factory: Arc<dyn DeviceFactory> = Arc::new(recorder.clone());
        let served = Arc::new(ServedDevice { id: DeviceId(0), factory, subsystem: Arc::default() });
        devices.prepare(std::slice::from_ref(&served), &mut reactor).unwrap();
        devices.serve([&served].into_iter(), &mut reactor);
        let zero = Operation::WriteZeroes { slba: 0, nlb: 1, deallocate: false, durable: false };
        assert!(!devices.are_busy());
        assert!(devices.submit(0, 7, false, zero, &mut reactor));
        devices.flush(&mut reactor);
        assert!(devices.are_busy(), "what is still in flight after a flush may need another");
        match is_named {
            true => devices.change(&[DeviceId(0)], &mut reactor),
            false => devices.serve([].into_iter(), &mut reactor),
        }
        devices.end_turn(&mut reactor);
        assert_eq!(*recorder.log.lock().unwrap(), ["write-zeroes"], "it is still in flight");
        recorder.may_end.store(true, Relaxed);
        let handle = devices.handles[0].as_mut().unwrap();
        Devices::activate(&mut devices.active, handle, 0);
        let done = devices.poll_completion(&reactor, Duration::ZERO);
        assert_eq!(done.map(|done| done.tag), Some(7));
        assert!(!devices.are_busy());
        for _ in 0..2 {
            let done = devices.poll_completion(&reactor, Duration::ZERO);
            assert!(done.is_none(), "that is nobody's");
            devices.end_turn(&mut reactor);
        }
        assert!(devices.handles[0].is_none());
        recorder.log.lock().unwrap().clone()
    }

    #[test]
    fn a_removed_device_is_flushed_before_it_is_closed() {
        let cached = Capabilities { volatile_cache: true, ..Capabilities::default() };
        let read_only = Capabilities { read_only: true, ..cached };
        for is_named in [false, true] {
            let operations = |capabilities| operations_of_removed(capabilities, is_named);
            assert_eq!(operations(cached), ["write-zeroes", "flush", "close"]);
            assert_eq!(operations(Capabilities::default()), ["write-zeroes", "close"]);
            assert_eq!(operations(read_only), ["write-zeroes", "close"]);
        }
    }

    #[test]
    fn every_failure_has_its_status() {
        let table = [
            (Failure::OutOfRange, 0x4080),
            (Failure::ReadOnly, 0x4020),
            (Failure::Mismatch, 0x4285),
            (Failure::NoSpace, 0x4081),
            (Failure::Unsupported, 0x4001),
            (Failure::MediaRead, 0x0281),
            (Failure::MediaWrite, 0x0280),
            (Failure::Gone, 0x400b),
            (Failure::Aborted, 0x0007),
            (Failure::PathLost, 0x0300),
            (Failure::Device(5), 0x0006),
            (Failure::Remote(0x4123), 0x4123),
        ];
        for (failure, status) in table {
            assert_eq!(status_of(Err(failure)), Status(status), "{failure:?}");
        }
    }

    #[test]
    fn a_tag_finds_its_way_back() {
        for (connection, slot) in [(0, 0), (1, 0xffff), (0xffff_ffff, 7)] {
            assert_eq!(origin(tag(connection, Slot(slot))), (connection, Slot(slot)));
        }
    }
}
