//! Tests of the rules of the device in memory, and raw endpoints for other tests.

use super::super::{Piece, SendOperation};
use super::*;

const REMOTE: Access =
    Access { local_write: true, remote_read: true, remote_write: true, bind: true };
const LOCAL: Access = Access { remote_read: false, remote_write: false, ..REMOTE };
const PAGE: usize = 4096;
/// `IBV_WC_MW_BIND_ERR`.
const WINDOW_BIND: WorkStatus = WorkStatus(6);

/// One side: an endpoint with its device, queue and memory.
pub(crate) struct Side {
    endpoint: Endpoint,
    queue: CompletionQueue,
    device: Device,
    region: Region,
    _domain: Domain,
    pool: Pool,
    /// The first four pages of the pool, which the region covers.
    pages: weft_reactor::Buffer,
    manager: Manager,
}

impl Side {
    pub(crate) fn new(
        mut endpoint: Endpoint,
        manager: Manager,
        access: Access,
        depth: u32,
    ) -> Self {
        let device = endpoint.open_device().unwrap();
        let queue = device.create_completion_queue(16).unwrap();
        let pool = Pool::new(1).unwrap();
        let pages = pool.take(4 * PAGE).unwrap();
        assert_eq!(pages.address(), pool.address());
        let domain = device.create_domain().unwrap();
        let region = domain.register(&pool, 0, 4 * PAGE, access).unwrap();
        let windows = u16::from(device.attributes().memory_windows);
        let options =
            QueuePairOptions { send_depth: depth, receive_depth: 4, inline_bytes: 64, windows };
        endpoint.create_queue_pair(&domain, &queue, options).unwrap();
        Self { endpoint, queue, device, _domain: domain, region, pool, pages, manager }
    }

    pub(crate) fn piece(&self, page: usize, bytes: u32) -> Piece {
        let address = u64::try_from(self.pool.address() + page * PAGE).unwrap();
        Piece { address, bytes, key: self.region.local_key() }
    }

    pub(crate) fn send(
        &mut self,
        work: u64,
        operation: SendOperation,
        piece: Piece,
    ) -> Result<(), PostError> {
        let pieces = [piece, Piece::default()];
        let send = SendWork { work, operation, pieces, signalled: true, inline: false };
        self.endpoint.post_send(&[send])
    }

    /// A side whose route to an address is resolved.
    pub(crate) fn resolve(fabric: &Fabric, address: SocketAddr) -> Self {
        let mut manager = fabric.open(waker());
        let endpoint = manager.resolve(address, None, Duration::ZERO).unwrap();
        let mut side = Self::new(endpoint, manager, REMOTE, 8);
        side.events();
        side
    }

    /// A listener with its manager.
    pub(crate) fn listen(fabric: &Fabric, address: SocketAddr) -> (Manager, Listener) {
        let mut manager = fabric.open(waker());
        let listener = manager.listen(address, 4).unwrap();
        (manager, listener)
    }

    /// A side that accepts the connection request.
    pub(crate) fn accept(mut manager: Manager, parameters: &Parameters) -> Self {
        let event = manager.poll().unwrap().unwrap().event;
        let CmEvent::Requested { incoming, .. } = event else { panic!("{event:?}") };
        let endpoint = manager.adopt(incoming);
        let mut side = Self::new(endpoint, manager, LOCAL, 8);
        side.endpoint.accept(parameters).unwrap();
        side
    }

    pub(crate) fn connect(&mut self, parameters: &Parameters) {
        self.endpoint.connect(parameters).unwrap();
    }

    /// The remote key of its memory.
    pub(crate) fn remote_key(&self) -> u32 {
        self.region.remote_key()
    }

    pub(crate) fn completions(&mut self) -> Vec<WorkCompletion> {
        let mut all = Vec::new();
        self.queue.poll(64, &mut all).unwrap();
        all
    }

    /// Writes bytes to the start of a page.
    pub(crate) fn write(&mut self, page: usize, bytes: &[u8]) {
        self.pages[page * PAGE..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Reads the start of a page.
    pub(crate) fn read(&self, page: usize, length: usize) -> Vec<u8> {
        self.pages[page * PAGE..][..length].to_vec()
    }

    pub(crate) fn receive(&mut self, work: u64, piece: Piece) {
        let pieces = [piece, Piece::default()];
        self.endpoint.post_receive(&[ReceiveWork { work, pieces }]).unwrap();
    }

    pub(crate) fn done(&mut self) -> Vec<(u64, WorkStatus)> {
        let mut all = Vec::new();
        self.queue.poll(64, &mut all).unwrap();
        all.iter().map(|completion| (completion.work, completion.status)).collect()
    }

    pub(crate) fn events(&mut self) -> Vec<&'static str> {
        let name = |event: ManagerEvent| match event.event {
            CmEvent::Established { .. } => "established",
            CmEvent::Disconnected => "disconnected",
            CmEvent::Rejected { .. } => "rejected",
            _ => "other",
        };
        std::iter::from_fn(|| self.manager.poll().unwrap()).map(name).collect()
    }
}

fn waker() -> Waker {
    let world = weft_reactor::simulation::World::new(1, Default::default());
    weft_reactor::Reactor::simulated(&world).waker()
}

fn parameters(responder_resources: u8, initiator_depth: u8) -> Parameters {
    let private_data = PrivateData::new(b"hello");
    Parameters { private_data, responder_resources, initiator_depth }
}

/// Two connected sides; the first may have `depth` READs outstanding.
fn pair(fabric: &Fabric, access: Access, depth: u8, sends: u32) -> (Side, Side) {
    let mut passive = fabric.open(waker());
    let address = "10.0.0.1:4420".parse().unwrap();
    let _listener = passive.listen(address, 4).unwrap();
    let mut active = fabric.open(waker());
    let endpoint = active.resolve(address, None, Duration::ZERO).unwrap();
    let mut host = Side::new(endpoint, active, access, sends);
    host.events();
    host.endpoint.connect(&parameters(1, 0)).unwrap();
    let event = passive.poll().unwrap().unwrap();
    let CmEvent::Requested { incoming, parameters: asked } = event.event else { panic!() };
    assert_eq!(&asked.private_data.bytes()[..6], b"hello\0");
    assert_eq!((asked.private_data.bytes().len(), asked.initiator_depth), (REQUEST_BYTES, 1));
    let endpoint = passive.adopt(incoming);
    let mut target = Side::new(endpoint, passive, LOCAL, sends);
    target.endpoint.accept(&parameters(0, depth)).unwrap();
    assert_eq!((host.events(), target.events()), (vec!["established"], vec!["established"]));
    (target, host)
}

#[test]
fn a_message_needs_a_receive_that_has_room() {
    let fabric = Fabric::default();
    let (mut target, mut host) = pair(&fabric, REMOTE, 1, 8);
    host.write(0, &[7; PAGE]);
    let (there, here) = (target.piece(1, 100), host.piece(0, 100));
    target.receive(5, there);
    host.send(1, SendOperation::Send, here).unwrap();
    assert_eq!(host.done(), [(1, WorkStatus::SUCCESS)]);
    assert_eq!(target.done(), [(5, WorkStatus::SUCCESS)]);
    host.send(2, SendOperation::Send, here).unwrap();
    assert_eq!(host.done(), [(2, WorkStatus::RECEIVER_NOT_READY)]);
    assert_eq!(fabric.counts().receiver_not_ready, 1);
    // The queue pair has failed.
    target.receive(6, there);
    host.send(3, SendOperation::Send, here).unwrap();
    assert_eq!(host.done(), [(3, WorkStatus::FLUSHED)]);
    let (mut target, mut host) = pair(&Fabric::default(), REMOTE, 1, 8);
    let (short, long) = (target.piece(1, 10), host.piece(0, 11));
    target.receive(5, short);
    host.send(1, SendOperation::Send, long).unwrap();
    assert_eq!(target.done(), [(5, WorkStatus::LOCAL_LENGTH)]);
    assert_eq!(host.done(), [(1, WorkStatus::REMOTE_INVALID_REQUEST)]);
}

#[test]
fn keys_rights_and_bounds_are_checked() {
    let read_only = Access { remote_write: false, ..REMOTE };
    let page = u64::try_from(PAGE).unwrap();
    // Start, key offset, bytes, READ or WRITE, and the expected status.
    for (start, key, bytes, reads, status) in [
        (0, 0, 4096, true, WorkStatus::SUCCESS),
        (3 * page, 0, 4096, true, WorkStatus::SUCCESS),
        (3 * page + 1, 0, 4096, true, WorkStatus::REMOTE_ACCESS),
        (0, 1, 4096, true, WorkStatus::REMOTE_ACCESS),
        (0, 0, 16, false, WorkStatus::REMOTE_ACCESS),
    ] {
        let fabric = Fabric::default();
        let (mut target, mut host) = pair(&fabric, read_only, 1, 8);
        let address = host.piece(0, 1).address + start;
        let key = host.region.remote_key() + key;
        let operation = match reads {
            true => SendOperation::Read { address, key },
            false => SendOperation::Write { address, key },
        };
        let piece = target.piece(0, bytes);
        target.send(9, operation, piece).unwrap();
        assert_eq!(target.done(), [(9, status)]);
        // The queue pair that was accessed fails as well.
        let here = host.piece(0, 1);
        host.send(1, SendOperation::Send, here).unwrap();
        let alive = status == WorkStatus::SUCCESS;
        assert_eq!(host.done()[0].1 == WorkStatus::FLUSHED, !alive);
    }
    let (mut target, _host) = pair(&Fabric::default(), REMOTE, 1, 8);
    let outside = Piece { bytes: 8192, ..target.piece(3, 0) };
    target.send(1, SendOperation::Send, outside).unwrap();
    assert_eq!(target.done(), [(1, WorkStatus::LOCAL_PROTECTION)]);
}

#[test]
fn reads_are_agreed_on() {
    for (depth, status) in
        [(0, WorkStatus(2)), (1, WorkStatus::SUCCESS), (2, WorkStatus::REMOTE_INVALID_REQUEST)]
    {
        let (mut target, host) = pair(&Fabric::default(), REMOTE, depth, 8);
        let (address, key) = (host.piece(0, 1).address, host.region.remote_key());
        let piece = target.piece(0, 16);
        target.send(1, SendOperation::Read { address, key }, piece).unwrap();
        assert_eq!(target.done(), [(1, status)]);
    }
}

#[test]
fn a_send_queue_is_full_until_completions_are_polled() {
    let (mut target, host) = pair(&Fabric::default(), REMOTE, 1, 2);
    let (address, key) = (host.piece(0, 1).address, host.region.remote_key());
    let (operation, piece) = (SendOperation::Write { address, key }, target.piece(0, 16));
    for round in 0..3 {
        target.send(2 * round, operation, piece).unwrap();
        target.send(2 * round + 1, operation, piece).unwrap();
        let error = target.send(99, operation, piece).unwrap_err();
        assert_eq!((error.posted, error.error.kind()), (0, io::ErrorKind::OutOfMemory));
        assert_eq!(target.done().len(), 2);
    }
}

#[test]
fn delayed_work_stays_in_order() {
    let fabric = Fabric::new(Conditions { hold_reads: true, ..Conditions::default() });
    let (mut target, mut host) = pair(&fabric, REMOTE, 1, 8);
    let (address, key) = (host.piece(1, 1).address, host.region.remote_key());
    let (there, piece) = (host.piece(0, 16), target.piece(0, 16));
    host.receive(7, there);
    target.send(1, SendOperation::Read { address, key }, piece).unwrap();
    target.send(2, SendOperation::Send, piece).unwrap();
    assert_eq!(host.done(), [], "nothing overtakes the READ");
    let done = [(1, WorkStatus::SUCCESS), (2, WorkStatus::SUCCESS)];
    assert_eq!(target.done(), done);
    assert_eq!(host.done(), [(7, WorkStatus::SUCCESS)]);
}

#[test]
fn an_invalidated_key_gives_no_access() {
    let (mut target, mut host) = pair(&Fabric::default(), REMOTE, 1, 8);
    let (address, key) = (host.piece(1, 1).address, host.region.remote_key());
    let (there, piece) = (host.piece(0, 16), target.piece(0, 16));
    host.receive(7, there);
    target.send(1, SendOperation::SendInvalidate { key }, piece).unwrap();
    let mut all = Vec::new();
    host.queue.poll(1, &mut all).unwrap();
    assert_eq!(all[0].invalidated, Some(key));
    target.send(2, SendOperation::Write { address, key }, piece).unwrap();
    let done = [(1, WorkStatus::SUCCESS), (2, WorkStatus::REMOTE_ACCESS)];
    assert_eq!(target.done(), done);
}

#[test]
fn an_access_without_right_is_reported_by_the_device() {
    let fabric = Fabric::default();
    let (mut target, mut host) = pair(&fabric, LOCAL, 1, 8);
    let (address, key) = (host.piece(0, 1).address, host.region.remote_key());
    let piece = target.piece(0, 16);
    target.send(1, SendOperation::Write { address, key }, piece).unwrap();
    assert_eq!(target.done(), [(1, WorkStatus::REMOTE_ACCESS)]);
    // Every `Device` gets the event once.
    let event = host.device.poll_event().unwrap();
    assert!(matches!(event, DeviceEvent::QueuePair(_, DeviceFault::Access)), "{event:?}");
    assert_eq!(target.device.poll_event(), Some(event));
    assert_eq!((host.device.poll_event(), target.device.poll_event()), (None, None));
}

#[test]
fn a_fault_is_reported_once_and_work_does_not_complete() {
    let queues = |event: &DeviceEvent| matches!(event, DeviceEvent::CompletionQueue(_));
    let pairs = |event: &DeviceEvent| matches!(event, DeviceEvent::QueuePair(..));
    for (fault, count, is_it) in [
        (DeviceFault::QueuePair, 2, &pairs as &dyn Fn(&DeviceEvent) -> bool),
        (DeviceFault::CompletionQueue, 2, &queues),
        (DeviceFault::Device, 1, &|event| *event == DeviceEvent::Fatal),
    ] {
        let fabric = Fabric::default();
        let (mut target, mut host) = pair(&fabric, REMOTE, 1, 8);
        let (there, here) = (host.piece(0, 16), target.piece(0, 16));
        host.receive(7, there);
        fabric.fail(fault);
        target.send(1, SendOperation::Send, here).unwrap();
        assert_eq!((target.done(), host.done()), (vec![], vec![]), "nothing ends: {fault}");
        let said: Vec<_> = std::iter::from_fn(|| host.device.poll_event()).collect();
        assert!(said.len() == count && said.iter().all(is_it), "{said:?}");
    }
}

#[test]
fn all_objects_are_counted_and_freed() {
    let fabric = Fabric::default();
    let (target, mut host) = pair(&fabric, REMOTE, 1, 8);
    let there = host.piece(0, 16);
    host.receive(7, there);
    let resource_counts = ResourceCounts {
        endpoints: 2,
        listeners: 0,
        queue_pairs: 2,
        domains: 2,
        regions: 2,
        windows: 0,
        completion_queues: 2,
    };
    assert_eq!(fabric.resource_counts(), resource_counts);
    assert!(format!("{:?}", target.device).contains("Device"));
    drop(target);
    assert_eq!(host.events(), ["disconnected"]);
    host.endpoint.disconnect().unwrap();
    assert_eq!(host.done(), [(7, WorkStatus::FLUSHED)]);
    drop(host);
    assert_eq!(fabric.resource_counts(), ResourceCounts::default());
}

#[test]
fn refused_connections_are_rejected() {
    let fabric = Fabric::default();
    let mut passive = fabric.open(waker());
    let address = "10.0.0.1:4420".parse().unwrap();
    let listener = passive.listen(address, 4).unwrap();
    assert!(passive.listen(address, 4).is_err(), "somebody listens there");
    let mut host = Side::resolve(&fabric, address);
    host.connect(&parameters(1, 0));
    drop(passive.poll().unwrap().unwrap());
    assert_eq!(host.events(), ["rejected"]);
    drop((listener, host, passive));
    assert_eq!(fabric.resource_counts(), ResourceCounts::default());
}

#[test]
fn a_window_gives_access_to_its_range_while_it_is_bound() {
    let page = u64::try_from(PAGE).unwrap();
    // Start, bytes, READ or WRITE, and the expected status.
    for (start, bytes, written, status) in [
        (0, 4096, true, WorkStatus::SUCCESS),
        (100, 3996, true, WorkStatus::SUCCESS),
        (1, 4096, true, WorkStatus::REMOTE_ACCESS),
        (page - 1, 1, true, WorkStatus::SUCCESS),
        (page, 1, true, WorkStatus::REMOTE_ACCESS),
        (0, 16, false, WorkStatus::REMOTE_ACCESS),
    ] {
        let (mut target, mut host) = pair(&Fabric::default(), LOCAL, 1, 8);
        let first = host.piece(1, 4096);
        let opening = WindowRange { address: first.address, bytes: 4096, written: true };
        let key = host.endpoint.prepare_window(0, &host.region, opening).unwrap();
        host.send(1, SendOperation::Bind { window: 0 }, Piece::default()).unwrap();
        assert_eq!(host.done(), [(1, WorkStatus::SUCCESS)]);
        let address = first.address + start;
        let operation = match written {
            true => SendOperation::Write { address, key },
            false => SendOperation::Read { address, key },
        };
        let piece = target.piece(0, bytes);
        target.send(2, operation, piece).unwrap();
        assert_eq!(target.done(), [(2, status)]);
        if status == WorkStatus::SUCCESS {
            host.send(3, SendOperation::Invalidate { key }, Piece::default()).unwrap();
            assert_eq!(host.done(), [(3, WorkStatus::SUCCESS)]);
            target.send(4, operation, piece).unwrap();
            assert_eq!(target.done(), [(4, WorkStatus::REMOTE_ACCESS)], "closed is closed");
        }
    }
}

#[test]
fn a_window_is_bound_once_at_a_time_with_a_key_of_its_own() {
    let (_target, mut host) = pair(&Fabric::default(), LOCAL, 1, 8);
    let opening = WindowRange { address: host.piece(1, 16).address, bytes: 16, written: true };
    let first = host.endpoint.prepare_window(0, &host.region, opening).unwrap();
    host.send(1, SendOperation::Bind { window: 0 }, Piece::default()).unwrap();
    let second = host.endpoint.prepare_window(0, &host.region, opening).unwrap();
    assert!(second != first && second >> 8 == first >> 8);
    host.send(2, SendOperation::Bind { window: 0 }, Piece::default()).unwrap();
    assert_eq!(host.done(), [(1, WorkStatus::SUCCESS), (2, WINDOW_BIND)]);
}

#[test]
fn a_window_belongs_to_one_connection() {
    let fabric = Fabric::default();
    let (_target, mut host) = pair(&fabric, LOCAL, 1, 8);
    let piece = host.piece(1, 16);
    let opening = WindowRange { address: piece.address, bytes: 16, written: true };
    let key = host.endpoint.prepare_window(0, &host.region, opening).unwrap();
    host.send(1, SendOperation::Bind { window: 0 }, Piece::default()).unwrap();
    let (mut other, _its_host) = pair(&fabric, LOCAL, 1, 8);
    let from = other.piece(0, 16);
    other.send(2, SendOperation::Write { address: piece.address, key }, from).unwrap();
    assert_eq!(other.done(), [(2, WorkStatus::REMOTE_ACCESS)]);
    assert_eq!(fabric.resource_counts().windows, 1);
    drop(host);
    assert_eq!(fabric.resource_counts().windows, 0);
}
