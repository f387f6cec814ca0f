//! Tests of what a controller can access of a host's memory, with a target of raw work requests,
//! and of what is accessible of a target's.

use weft_nvme::sgl::Location;
use weft_nvme::{Command, Completion, Status, Wire};
use weft_nvmf::rdma::Reply;
use weft_reactor::simulation::World;
use weft_reactor::{Owner, Reactor, WaitLimit};

use super::host::RdmaHostConnection;
use super::software::{Conditions, Fabric};
use super::verbs::software::tests::Side;
use super::verbs::{Parameters, PrivateData, SendOperation, WorkStatus};
use super::{Provider, RemoteAccess};
use crate::CloseReason;
use crate::host::{HostData, HostEvent, HostOptions, TransportOptions};

const HOST: Owner = Owner(3);
const LENGTH: usize = 4096;
/// Offsets in the target's memory.
const CAPSULE: usize = 0;
const RESPONSE: usize = 1;
const DATA: usize = 2;

/// The memory of one command, as its capsule describes it.
#[derive(Debug, Clone, Copy)]
struct TestBuffer {
    id: u16,
    address: u64,
    key: u32,
    invalidate: bool,
}

struct Raw {
    fabric: Fabric,
    reactor: Reactor,
    host: RdmaHostConnection,
    target: Side,
}

impl Raw {
    fn new(conditions: Conditions) -> Self {
        let fabric = Fabric::new(conditions);
        let mut reactor = Reactor::simulated(&World::new(1, Default::default()));
        super::set_provider(&mut reactor, Provider::Software(fabric.clone()));
        let (host, target) = connect(&fabric, &mut reactor, 1, None);
        Self { fabric, reactor, host, target }
    }

    fn turn(&mut self) -> Vec<HostEvent> {
        turn(&mut self.reactor, &mut self.host, 1)
    }

    /// Submits a command with a buffer for the controller to write or to read.
    fn submit(&mut self, from_controller: bool) -> TestBuffer {
        let mut buffer = self.reactor.pool().take(LENGTH).unwrap();
        buffer.fill(0x11);
        let data = match from_controller {
            true => HostData::FromController(buffer),
            false => HostData::ToController(buffer),
        };
        let capsule = self.target.piece(CAPSULE, 64);
        self.target.done();
        self.target.receive(50, capsule);
        self.host.submit(Command::default(), data).expect("a slot");
        self.host.flush(&mut self.reactor);
        assert_eq!(self.target.done(), [(50, WorkStatus::SUCCESS)]);
        let command = Command::read(&self.target.read(CAPSULE, 64)).unwrap();
        let id = command.command_id.get();
        let location = command.data_pointer.location();
        let Ok(Location::Keyed { address, key, invalidate, .. }) = location else {
            panic!("{location:?}")
        };
        TestBuffer { id, address, key, invalidate }
    }

    /// Makes the controller write, or read, this many bytes at `offset`.
    fn touch(&mut self, named: TestBuffer, offset: i64, bytes: u32, writes: bool) -> WorkStatus {
        touch(&mut self.target, named, offset, bytes, writes)
    }

    /// Sends a response. Returns the host's events of that turn and later ones.
    fn answer(&mut self, named: TestBuffer, invalidate: Option<u32>) -> Vec<HostEvent> {
        self.target.write(RESPONSE, Completion::new(named.id, Status::SUCCESS).bytes());
        let response = self.target.piece(RESPONSE, 16);
        let operation = match invalidate {
            Some(key) => SendOperation::SendInvalidate { key },
            None => SendOperation::Send,
        };
        self.target.send(60, operation, response).unwrap();
        let mut events = Vec::new();
        for _ in 0..5 {
            events.extend(self.turn());
        }
        events
    }
}

fn touch(side: &mut Side, named: TestBuffer, offset: i64, bytes: u32, writes: bool) -> WorkStatus {
    let (address, key) = (named.address.wrapping_add_signed(offset), named.key);
    let operation = match writes {
        true => SendOperation::Write { address, key },
        false => SendOperation::Read { address, key },
    };
    let piece = side.piece(DATA, bytes);
    side.done();
    side.send(70, operation, piece).unwrap();
    side.done()[0].1
}

fn connect(
    fabric: &Fabric,
    reactor: &mut Reactor,
    tag: u32,
    remote_access: Option<RemoteAccess>,
) -> (RdmaHostConnection, Side) {
    let address = format!("10.0.0.{tag}:4420").parse().unwrap();
    let (manager, _listener) = Side::listen(fabric, address);
    let transport_options = TransportOptions::Rdma { queue_id: 1, controller_id: 1 };
    let options =
        HostOptions { transport_options, queue_depth: 4, remote_access, ..HostOptions::default() };
    let mut host = RdmaHostConnection::connect(reactor, HOST, tag, address, options);
    turn(reactor, &mut host, tag);
    let private_data = PrivateData::new(Reply { controller_receives: 5 }.to_wire().bytes());
    let parameters = Parameters { private_data, responder_resources: 0, initiator_depth: 1 };
    let target = Side::accept(manager, &parameters);
    let events = turn(reactor, &mut host, tag);
    assert!(matches!(events[..], [HostEvent::Ready { .. }]), "{events:?}");
    (host, target)
}

fn turn(reactor: &mut Reactor, host: &mut RdmaHostConnection, tag: u32) -> Vec<HostEvent> {
    let mut completions = Vec::new();
    reactor.poll(WaitLimit::NoWait, &mut completions);
    for completion in completions.into_iter().filter(|one| crate::tag_of(one.token) == tag) {
        host.handle(reactor, completion);
    }
    let events = std::iter::from_fn(|| host.poll_event()).collect();
    host.flush(reactor);
    events
}

fn buffer_of(events: Vec<HostEvent>) -> weft_reactor::Buffer {
    let mut events = events.into_iter();
    let Some(HostEvent::Completed { buffer: Some(buffer), .. }) = events.next() else {
        panic!("no command was completed")
    };
    assert!(events.next().is_none());
    buffer
}

fn windows() -> Raw {
    Raw::new(Conditions::default())
}

fn leases() -> Raw {
    let mut conditions = Conditions::default();
    conditions.attributes.memory_windows = false;
    Raw::new(conditions)
}

#[test]
fn a_window_covers_exactly_the_buffer_of_its_command() {
    for raw in [windows, leases] {
        for (offset, bytes, from_controller, writes, status) in [
            (0, 4096, true, true, WorkStatus::SUCCESS),
            (4095, 1, true, true, WorkStatus::SUCCESS),
            (0, 4096, false, false, WorkStatus::SUCCESS),
            (0, 4097, true, true, WorkStatus::REMOTE_ACCESS),
            (4096, 1, true, true, WorkStatus::REMOTE_ACCESS),
            (-1, 1, true, true, WorkStatus::REMOTE_ACCESS),
            (-1, 1, false, false, WorkStatus::REMOTE_ACCESS),
            (4096, 1, false, false, WorkStatus::REMOTE_ACCESS),
        ] {
            let mut raw = raw();
            let named = raw.submit(from_controller);
            let what = (offset, bytes, writes);
            assert_eq!(raw.touch(named, offset, bytes, writes), status, "{what:?}");
        }
    }
}

#[test]
fn a_window_lets_a_controller_read_or_write_but_not_both() {
    for from_controller in [false, true] {
        let mut raw = windows();
        let named = raw.submit(from_controller);
        assert_eq!(raw.touch(named, 0, 1, !from_controller), WorkStatus::REMOTE_ACCESS);
    }
}

#[test]
fn a_controller_has_no_access_after_the_command() {
    for (invalidates, from_controller) in
        [(false, false), (false, true), (true, false), (true, true)]
    {
        let mut raw = windows();
        for _ in 0..3 {
            let named = raw.submit(from_controller);
            assert!(named.invalidate, "it is asked to invalidate the key");
            assert_eq!(raw.touch(named, 0, 16, from_controller), WorkStatus::SUCCESS);
            let buffer = buffer_of(raw.answer(named, invalidates.then_some(named.key)));
            assert_eq!(
                (buffer[0] == 0, raw.fabric.resource_counts().windows),
                (from_controller, 0)
            );
        }
        let named = raw.submit(from_controller);
        buffer_of(raw.answer(named, invalidates.then_some(named.key)));
        let status = raw.touch(named, 0, 16, from_controller);
        assert_eq!(status, WorkStatus::REMOTE_ACCESS, "the key is void");
    }
}

/// A lease stays with the connection, but a late write to it does not change the buffer.
#[test]
fn a_late_write_to_a_lease_does_not_reach_the_buffer() {
    let mut raw = leases();
    let named = raw.submit(true);
    assert!(!named.invalidate);
    raw.target.write(DATA, &[7; LENGTH]);
    assert_eq!(raw.touch(named, 0, 4096, true), WorkStatus::SUCCESS);
    let buffer = buffer_of(raw.answer(named, None));
    assert!(buffer.iter().all(|byte| *byte == 7));
    raw.target.write(DATA, &[8; LENGTH]);
    assert_eq!(raw.touch(named, 0, 4096, true), WorkStatus::SUCCESS);
    assert!(buffer.iter().all(|byte| *byte == 7), "it was given back");
}

#[test]
fn a_lease_does_not_expose_previous_data() {
    let mut raw = leases();
    let mut secrets: Vec<_> = std::iter::from_fn(|| raw.reactor.pool().take(LENGTH)).collect();
    secrets.iter_mut().for_each(|secret| secret.fill(0x77));
    drop(secrets);
    let named = raw.submit(true);
    assert_eq!(raw.touch(named, 0, 4096, false), WorkStatus::SUCCESS);
    assert!(raw.target.read(DATA, LENGTH).iter().all(|byte| *byte == 0));
}

#[test]
fn an_idle_connection_keeps_no_lease() {
    let mut raw = leases();
    let before = (raw.fabric.resource_counts().regions, raw.reactor.pool().available());
    let named = raw.submit(true);
    assert_eq!(raw.fabric.reachable().len(), 1);
    buffer_of(raw.answer(named, None));
    let until = raw.reactor.now() + crate::limits::IDLE_TIME * 4;
    while raw.reactor.now() < until {
        let mut completions = Vec::new();
        raw.reactor.poll(WaitLimit::Until(until), &mut completions);
        for completion in completions {
            raw.host.handle(&mut raw.reactor, completion);
        }
    }
    assert_eq!((raw.fabric.resource_counts().regions, raw.reactor.pool().available()), before);
    assert_eq!(raw.touch(named, 0, 1, true), WorkStatus::REMOTE_ACCESS);
}

#[test]
fn a_controller_has_no_access_to_another_association() {
    for raw in [windows, leases] {
        let mut raw = raw();
        let (_other_host, mut other) = connect(&raw.fabric, &mut raw.reactor, 2, None);
        let named = raw.submit(true);
        assert_eq!(touch(&mut other, named, 0, 16, true), WorkStatus::REMOTE_ACCESS);
        assert_eq!(raw.touch(named, 0, 16, true), WorkStatus::SUCCESS);
    }
}

#[test]
fn the_buffer_of_a_command_is_returned_after_its_queue_pair() {
    for raw in [windows, leases] {
        let mut raw = raw();
        let named = raw.submit(true);
        raw.host.close(&mut raw.reactor, CloseReason::Requested("given up"));
        let Some(HostEvent::Closed { in_flight, .. }) = raw.host.poll_event() else { panic!() };
        assert!(in_flight[0].1.is_some());
        assert_ne!(raw.touch(named, 0, 16, true), WorkStatus::SUCCESS);
        assert_eq!((raw.fabric.resource_counts().windows, raw.fabric.reachable().len()), (0, 0));
    }
}

#[test]
fn invalidating_the_key_of_another_command_ends_the_connection() {
    let mut raw = windows();
    let (first, second) = (raw.submit(true), raw.submit(true));
    let events = raw.answer(first, Some(second.key));
    let [HostEvent::Closed { reason: CloseReason::Violation(what), in_flight }] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert!(what.contains("key") && in_flight.len() == 2, "{what}");
}

#[test]
fn wide_gives_access_to_all_registered_memory() {
    let mut raw = windows();
    assert_eq!(raw.fabric.reachable(), [], "a window is no region");
    let wide = Some(RemoteAccess::Wide);
    let (host, target) = connect(&raw.fabric, &mut raw.reactor, 2, wide);
    (raw.host, raw.target) = (host, target);
    let named = raw.submit(true);
    assert_eq!(raw.touch(named, 4096, 16, true), WorkStatus::SUCCESS);
    assert!(raw.fabric.reachable().iter().all(|region| region.bytes == 4 << 20));
}

#[test]
fn windows_that_a_device_does_not_have_are_an_error() {
    let mut raw = leases();
    let address = "10.0.0.9:4420".parse().unwrap();
    let transport_options = TransportOptions::Rdma { queue_id: 1, controller_id: 1 };
    let remote_access = Some(RemoteAccess::Window);
    let options = HostOptions { transport_options, remote_access, ..HostOptions::default() };
    let mut host = RdmaHostConnection::connect(&mut raw.reactor, HOST, 9, address, options);
    let events = turn(&mut raw.reactor, &mut host, 9);
    let [HostEvent::Closed { reason, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(*reason, CloseReason::NoMemoryWindows);
}
