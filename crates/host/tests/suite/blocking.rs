//! The blocking library against a small controller on loopback.

use std::time::Duration;

use weft_backend::{DeviceFactory, Failure, Operation, Request};
use weft_host::{
    AdminData, Change, Controller, ControllerState, CopySource, Event, Options, Side, Transport,
    TransportId, connect, discover,
};
use weft_nvme::event::Event as AsynchronousEvent;
use weft_nvme::log_page::LogPageId;
use weft_nvme::{AdminOpcode, Command, Status};
use weft_reactor::{Config, Owner, Reactor, WaitLimit};

use crate::controller::{BLOCK, SUBSYSTEM, TestNamespace, discovery_entry};
use crate::running::RunningTarget;

const SOON: Duration = Duration::from_secs(20);

fn wait_for(controller: &Controller, is_it: impl Fn(&Event) -> bool) -> Event {
    loop {
        let event = controller.next_event(SOON).expect("the event comes");
        if is_it(&event) {
            return event;
        }
    }
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at / 7 % 251).expect("below 251") ^ seed).collect()
}

#[test]
fn written_data_is_read_back_at_every_length() {
    let target = RunningTarget::start();
    let controller = target.connect();
    let disk = controller.namespace(1).unwrap();
    assert_eq!((disk.block_bytes() as usize, disk.bytes()), (BLOCK, 4096 * 512));
    // In the capsule, by R2T, cut at MDTS (16 KiB), and longer than one blocking piece.
    for (seed, length) in [(1, 512), (2, 8192), (3, 12288), (4, 100 * 512), (5, 1 << 21)] {
        let data = pattern(length, seed);
        disk.write(0, &data).unwrap();
        let mut back = vec![0; length];
        disk.read(0, &mut back).unwrap();
        assert!(back == data, "{length} bytes");
        disk.compare(0, &data).unwrap();
    }
    disk.flush().unwrap();
    disk.verify(0, 4096).unwrap();
    controller.disconnect().unwrap();
}

#[test]
fn both_ends_of_the_connection_are_known() {
    let target = RunningTarget::start();
    let controller = target.connect();
    let ends = controller.ends().expect("it is connected");
    assert_eq!((ends.transport, ends.remote), (Transport::Tcp, target.address));
    assert!(ends.local.ip().is_loopback() && ends.local.port() != 0, "{ends:?}");
    controller.disconnect().unwrap();
}

#[test]
fn digests_change_nothing() {
    let target = RunningTarget::start();
    let options = Options { hdr_digest: true, data_digest: true, ..target.options() };
    let controller = connect(&options).unwrap();
    let disk = controller.namespace(1).unwrap();
    let data = pattern(64 << 10, 9);
    disk.write_durable(8192, &data).unwrap();
    let mut back = vec![0; data.len()];
    disk.read(8192, &mut back).unwrap();
    assert!(back == data);
}

/// A fused pair needs two places on the queue. Where there is but one it is refused, and nothing
/// waits behind it.
#[test]
fn the_shortest_queue_takes_no_fused_pair() {
    let target = RunningTarget::start();
    for (queue_size, taken) in [(2, false), (3, true)] {
        let controller = connect(&Options { queue_size, ..target.options() }).unwrap();
        let disk = controller.namespace(1).unwrap();
        disk.write(0, &[1; 512]).unwrap();
        match disk.compare_and_write(0, &[1; 512], &[2; 512]) {
            Ok(()) => assert!(taken),
            Err(error) => {
                assert!(!taken, "{error}");
                assert_eq!(error.failure(), Some(Failure::Unsupported));
            }
        }
        disk.flush().unwrap();
        controller.disconnect().unwrap();
    }
}

#[test]
fn zeroes_discards_and_compare_and_write() {
    let target = RunningTarget::start();
    let controller = target.connect();
    let disk = controller.namespace(1).unwrap();
    let data = pattern(8192, 3);
    disk.write(0, &data).unwrap();
    disk.write_zeroes(512, 1024, true).unwrap();
    disk.deallocate(&[(4096, 512), (5120, 1024)]).unwrap();
    let mut expected = data;
    expected[512..1536].fill(0);
    expected[4096..4608].fill(0);
    expected[5120..6144].fill(0);
    disk.compare(0, &expected).unwrap();
    let error = disk.compare(0, &pattern(512, 99)).unwrap_err();
    assert_eq!(error.failure(), Some(Failure::Mismatch), "{error}");
    let new = pattern(512, 7);
    disk.compare_and_write(0, &expected[..512], &new).unwrap();
    let error = disk.compare_and_write(0, &expected[..512], &new).unwrap_err();
    assert_eq!(error.failure(), Some(Failure::Mismatch), "{error}");
    disk.compare(0, &new).unwrap();
    let long = vec![0; 9 * 512];
    let error = disk.compare_and_write(0, &long, &long).unwrap_err().to_string();
    assert!(error.contains("at most 8 blocks"), "{error}");
}

#[test]
fn a_copy_takes_as_many_commands_as_its_limits_ask_for() {
    let target = RunningTarget::start();
    target.with(|target, _| {
        target.behaviour.copies = true;
        target.namespaces.insert(2, TestNamespace::new(2, 4096));
    });
    let controller = target.connect();
    let [one, two] = [1, 2].map(|nsid| controller.namespace(nsid).unwrap());
    let data = pattern(20 * 512, 4);
    one.write(0, &data).unwrap();
    let source = |nsid, offset: u64, length: u64| CopySource {
        nsid,
        offset: offset * 512,
        length: length * 512,
    };
    // 4 + 4 + 2, then 2 + 4, without what has no blocks.
    let before = target.with(|target, _| target.executed);
    one.copy(100 * 512, &[source(1, 0, 12), source(1, 5, 0), source(1, 16, 4)], false).unwrap();
    assert_eq!(target.with(|target, _| target.executed) - before, 2);
    one.compare(100 * 512, &[&data[..12 * 512], &data[16 * 512..]].concat()).unwrap();
    two.write(512, &pattern(512, 9)).unwrap();
    two.copy(200 * 512, &[source(1, 3, 1), source(2, 1, 1), source(1, 4, 1)], true).unwrap();
    let expected = [&data[3 * 512..4 * 512], &pattern(512, 9), &data[4 * 512..5 * 512]].concat();
    two.compare(200 * 512, &expected).unwrap();
    controller.disconnect().unwrap();
}

#[test]
fn a_copy_ends_with_each_of_its_namespaces() {
    let target = RunningTarget::start();
    target.with(|target, _| {
        target.behaviour.copies = true;
        target.namespaces.insert(2, TestNamespace::new(2, 4096));
    });
    let controller = target.connect();
    let disk = controller.namespace(1).unwrap();
    let source = CopySource { nsid: 2, offset: 0, length: 512 };
    disk.copy(512, &[source], false).unwrap();
    target.with(|target, _| target.behaviour.hold_io = true);
    let copier = {
        let disk = disk.clone();
        std::thread::spawn(move || disk.copy(1024, &[source], false))
    };
    while target.with(|target, _| target.held.is_empty()) {
        std::thread::sleep(Duration::from_millis(1));
    }
    // What is copied has become something else before the command can be sent again.
    target.with(|target, reactor| {
        target.stop(reactor);
        target.behaviour.hold_io = false;
        let mut other = TestNamespace::new(77, 4096);
        other.data.fill(7);
        target.namespaces.insert(2, other);
        target.start(reactor);
    });
    let error = copier.join().unwrap().unwrap_err();
    assert_eq!(error.failure(), Some(Failure::Gone), "{error}");
    assert!(error.to_string().contains("blocks 0 to 0 of namespace 2"), "{error}");
    disk.compare(1024, &[0; 512]).unwrap();
}

#[test]
fn errors_say_what_is_wrong_and_where() {
    let target = RunningTarget::start();
    let controller = target.connect();
    let disk = controller.namespace(1).unwrap();
    let source = CopySource { nsid: 1, offset: 0, length: 512 };
    let error = disk.copy(512, &[source], false).unwrap_err().to_string();
    assert_eq!(error, "the controller does not support Copy");
    let error = disk.read(100, &mut [0; 512]).unwrap_err();
    assert!(error.to_string().contains("the block size is 512"), "{error}");
    assert_eq!(error.side(), Side::Local);
    let error = disk.read(4096 * 512, &mut [0; 512]).unwrap_err();
    assert_eq!(error.failure(), Some(Failure::OutOfRange), "{error}");
    let error = controller.namespace(9).unwrap_err().to_string();
    assert_eq!(error, "the controller has no namespace 9");

    let mut options = target.options();
    options.address.subnqn = Some("nqn.2024-01.io.example:other".parse().unwrap());
    let error = connect(&options).unwrap_err();
    assert!(error.to_string().contains("there is no subsystem of this NQN"), "{error}");
    assert_eq!(error.side(), Side::Peer);
    options.address.subnqn = None;
    let error = connect(&options).unwrap_err().to_string();
    assert!(error.contains("names no subsystem"), "{error}");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    options = target.options();
    options.address.trsvcid = Some(closed.port());
    let error = connect(&options).unwrap_err();
    assert!(error.to_string().contains(&format!("cannot connect to {closed}: ")), "{error}");
    assert_eq!(error.side(), Side::Io);
}

#[test]
fn a_host_name_leads_to_whichever_of_its_addresses_answers() {
    let target = RunningTarget::start();
    let mut options = target.options();
    options.address.traddr = "localhost".into();
    options.address.family = None;
    let controller = connect(&options).unwrap();
    controller.namespace(1).unwrap().flush().unwrap();
}

#[test]
fn discovery_finds_subsystems() {
    let target = RunningTarget::start();
    target.with(|target, _| {
        let entries = (1..=9).map(|n| discovery_entry(SUBSYSTEM, "192.0.2.7", 4420 + n));
        target.discovery_entries = entries.collect();
    });
    let log = discover(&target.options()).unwrap();
    assert_eq!((log.generation, log.entries.len()), (1, 9));
    let id: TransportId = weft_host::transport_id(&log.entries[8]).unwrap();
    assert_eq!(id.to_string(), format!("nvme-tcp://192.0.2.7:4429/{SUBSYSTEM}"));
}

#[test]
fn a_discovery_controller_that_is_kept_tells_of_changes() {
    let target = RunningTarget::start();
    let mut options = target.options();
    options.address.subnqn = None;
    let controller = weft_host::connect_discovery(&options).unwrap();
    assert_eq!(controller.discovery_log().unwrap().entries.len(), 0);
    target.with(|target, _| {
        target.discovery_entries.push(discovery_entry(SUBSYSTEM, "192.0.2.8", 4420));
        target.generation += 1;
        target.notify(AsynchronousEvent::DISCOVERY_LOG_PAGE_CHANGE);
    });
    wait_for(&controller, |event| *event == Event::DiscoveryChanged);
    assert_eq!(controller.discovery_log().unwrap().entries.len(), 1);
}

#[test]
fn admin_commands_and_log_pages() {
    let target = RunningTarget::start();
    let controller = target.connect();
    let answer = controller.admin_command(Command::new(AdminOpcode(0xc5)), AdminData::None);
    assert_eq!(answer.unwrap().completion.status(), Status::INVALID_OPCODE.with_dnr());
    let error = controller
        .admin_command_checked(Command::new(AdminOpcode(0xc5)), AdminData::None)
        .unwrap_err();
    assert!(error.to_string().contains("Invalid Command Opcode"), "{error}");
    let log = controller.get_log_page(LogPageId::COMMANDS_SUPPORTED_AND_EFFECTS, 10_000).unwrap();
    let expected: Vec<u8> = (0..2500u32).flat_map(u32::to_le_bytes).collect();
    assert!(log == expected, "pieces are put together in order");
}

#[test]
fn namespaces_that_come_go_and_grow_are_seen() {
    let target = RunningTarget::start();
    let controller = target.connect();
    let disk = controller.namespace(1).unwrap();
    target.with(|target, _| {
        target.namespaces.insert(5, TestNamespace::new(5, 64));
        target.namespaces.get_mut(&1).unwrap().data.resize(8192 * BLOCK, 0);
        target.notify(AsynchronousEvent::NAMESPACE_ATTRIBUTE_CHANGED);
    });
    let grown = Event::Namespace { nsid: 1, change: Change::Changed };
    wait_for(&controller, |event| *event == grown);
    let added = Event::Namespace { nsid: 5, change: Change::Added };
    wait_for(&controller, |event| *event == added);
    assert_eq!(disk.bytes(), 8192 * 512);
    disk.write(8000 * 512, &[1; 512]).unwrap();
    controller.namespace(5).unwrap().write(0, &[2; 512]).unwrap();
    target.with(|target, _| {
        target.namespaces.remove(&5);
        target.notify(AsynchronousEvent::NAMESPACE_ATTRIBUTE_CHANGED);
    });
    let removed = Event::Namespace { nsid: 5, change: Change::Removed };
    wait_for(&controller, |event| *event == removed);
    assert_eq!(controller.namespaces().len(), 1);
}

#[test]
fn requests_wait_for_a_target_that_comes_back() {
    let target = RunningTarget::start();
    let controller = target.connect();
    let disk = controller.namespace(1).unwrap();
    disk.write(0, &pattern(4096, 1)).unwrap();
    target.with(|target, reactor| target.stop(reactor));
    wait_for(&controller, |event| matches!(event, Event::Lost { .. }));
    assert_eq!(controller.state(), ControllerState::Reconnecting);
    let reader = {
        let disk = disk.clone();
        std::thread::spawn(move || {
            let mut back = vec![0; 4096];
            disk.read(0, &mut back).map(|()| back)
        })
    };
    target.with(|target, reactor| target.start(reactor));
    assert!(reader.join().unwrap().unwrap() == pattern(4096, 1));
    wait_for(&controller, |event| matches!(event, Event::Connected { attempts: 1.., .. }));
    assert_eq!(controller.state(), ControllerState::Live);
}

#[test]
fn a_lost_queue_reconnects_the_controller() {
    let target = RunningTarget::start();
    let controller = target.connect();
    let disk = controller.namespace(1).unwrap();
    disk.write(0, &pattern(512, 1)).unwrap();
    target.with(|target, reactor| target.hang_up_queues(reactor));
    let lost = wait_for(&controller, |event| matches!(event, Event::Lost { .. }));
    let Event::Lost { problem, .. } = lost else { unreachable!() };
    assert!(problem.to_string().starts_with("I/O queue 1 was lost"), "{problem}");
    disk.compare(0, &pattern(512, 1)).unwrap();
}

#[test]
fn a_write_on_the_wire_is_replayed_and_a_compare_is_not() {
    let target = RunningTarget::start();
    let controller = target.connect();
    let disk = controller.namespace(1).unwrap();
    disk.flush().unwrap();
    target.with(|target, _| target.behaviour.mute_io = true);
    let data = pattern(512, 4);
    let writer = {
        let (disk, data) = (disk.clone(), data.clone());
        std::thread::spawn(move || disk.write(512, &data))
    };
    let comparer = {
        let disk = disk.clone();
        std::thread::spawn(move || disk.compare(0, &[0; 512]))
    };
    while target.with(|target, _| target.executed) < 3 {
        std::thread::yield_now();
    }
    target.with(|target, reactor| {
        target.behaviour.mute_io = false;
        target.hang_up(reactor);
    });
    writer.join().unwrap().unwrap();
    let error = comparer.join().unwrap().unwrap_err();
    assert_eq!(error.failure(), Some(Failure::PathLost), "{error}");
    disk.compare(512, &data).unwrap();
}

#[test]
fn a_transient_status_is_tried_again() {
    let target = RunningTarget::start();
    let controller = target.connect();
    let disk = controller.namespace(1).unwrap();
    target.with(|target, _| target.behaviour.transient = 3);
    disk.write(0, &pattern(512, 5)).unwrap();
    disk.compare(0, &pattern(512, 5)).unwrap();
}

#[test]
fn an_io_timeout_loses_the_controller() {
    let target = RunningTarget::start();
    let options = Options { io_timeout: Duration::from_millis(200), ..target.options() };
    let controller = connect(&options).unwrap();
    let disk = controller.namespace(1).unwrap();
    disk.flush().unwrap();
    target.with(|target, _| target.behaviour.hold_io = true);
    let writer = {
        let disk = disk.clone();
        std::thread::spawn(move || disk.write(0, &pattern(512, 6)))
    };
    let lost = wait_for(&controller, |event| matches!(event, Event::Lost { .. }));
    let Event::Lost { problem, .. } = lost else { unreachable!() };
    assert!(problem.to_string().contains("did not answer within 200ms: an I/O command"));
    target.with(|target, _| target.behaviour.hold_io = false);
    writer.join().unwrap().unwrap();
    disk.compare(0, &pattern(512, 6)).unwrap();
}

#[test]
fn another_namespace_in_the_place_of_the_old_one_is_not_touched() {
    let target = RunningTarget::start();
    let controller = target.connect();
    let disk = controller.namespace(1).unwrap();
    disk.write(0, &pattern(512, 1)).unwrap();
    target.with(|target, reactor| {
        target.stop(reactor);
        target.namespaces.insert(1, TestNamespace::new(77, 4096));
    });
    wait_for(&controller, |event| matches!(event, Event::Lost { .. }));
    let writer = {
        let disk = disk.clone();
        std::thread::spawn(move || disk.write(0, &pattern(512, 2)))
    };
    target.with(|target, reactor| target.start(reactor));
    let error = writer.join().unwrap().unwrap_err();
    assert_eq!(error.failure(), Some(Failure::Gone), "{error}");
    let replaced = Event::Namespace { nsid: 1, change: Change::Replaced };
    wait_for(&controller, |event| *event == replaced);
    let fresh = controller.namespace(1).unwrap();
    fresh.compare(0, &[0; 512]).unwrap();
    let error = disk.read(0, &mut [0; 512]).unwrap_err();
    assert_eq!(error.failure(), Some(Failure::Gone), "{error}");
}

#[test]
fn io_fails_fast_where_that_is_asked_and_the_controller_is_given_up() {
    let target = RunningTarget::start();
    let options = Options {
        fast_io_fail_tmo: Some(Duration::ZERO),
        ctrl_loss_tmo: Some(Duration::from_millis(300)),
        ..target.options()
    };
    let controller = connect(&options).unwrap();
    let disk = controller.namespace(1).unwrap();
    disk.flush().unwrap();
    target.with(|target, reactor| target.stop(reactor));
    wait_for(&controller, |event| matches!(event, Event::Lost { .. }));
    let error = disk.read(0, &mut [0; 512]).unwrap_err();
    assert_eq!(error.failure(), Some(Failure::PathLost), "{error}");
    wait_for(&controller, |event| matches!(event, Event::AttemptFailed { retry_in: None, .. }));
    while controller.next_event(SOON).is_some() {}
    assert!(matches!(controller.state(), ControllerState::Ended(Some(_))));
    let error = disk.read(0, &mut [0; 512]).unwrap_err();
    assert_eq!(error.failure(), Some(Failure::Gone), "{error}");
    let error = controller.disconnect().unwrap_err();
    assert_eq!(error.side(), Side::Io, "{error}");
}

#[test]
fn a_reset_is_survived() {
    let target = RunningTarget::start();
    let controller = target.connect();
    let disk = controller.namespace(1).unwrap();
    wait_for(&controller, |event| matches!(event, Event::Connected { .. }));
    disk.write(0, &pattern(512, 8)).unwrap();
    controller.reset();
    wait_for(&controller, |event| matches!(event, Event::Connected { .. }));
    disk.compare(0, &pattern(512, 8)).unwrap();
    assert!(target.with(|target, _| target.connects) >= 4, "two queues, twice");
}

#[test]
fn a_namespace_outlives_its_controller_without_hanging() {
    let target = RunningTarget::start();
    let controller = target.connect();
    let disk = controller.namespace(1).unwrap();
    disk.flush().unwrap();
    let factory = disk.factory().clone();
    controller.disconnect().unwrap();
    let error = disk.read(0, &mut [0; 512]).unwrap_err();
    assert_eq!(error.to_string(), "the controller is disconnected");
    let mut reactor = Reactor::new(Config::default()).unwrap();
    let mut device = factory.open(&mut reactor, Owner(1)).unwrap();
    let request = Request { tag: 7, operation: Operation::Flush };
    device.submit(&mut reactor, request);
    device.close(&mut reactor);
    let completion = device.poll_completion().expect("nothing waits any more");
    assert_eq!((completion.tag, completion.result), (7, Err(Failure::Gone)));
}

#[test]
fn queues_are_granted_and_given_back() {
    let target = RunningTarget::start();
    target.with(|target, _| target.behaviour.io_queues = 2);
    let controller = target.connect();
    assert_eq!(controller.info().unwrap().io_queues, 2);
    let factory = controller.factory(1).unwrap();
    assert_eq!(factory.identity(), "uuid.01010101-0101-0101-0101-010101010101");
    let mut reactor = Reactor::new(Config::default()).unwrap();
    let first = factory.open(&mut reactor, Owner(1)).unwrap();
    let second = factory.open(&mut reactor, Owner(2)).unwrap();
    let error = factory.open(&mut reactor, Owner(3)).unwrap_err().to_string();
    assert!(error.contains("all 2 I/O queues of the controller are in use"), "{error}");
    drop((first, second));
    let mut completions = Vec::new();
    for _ in 0..1000 {
        if factory.open(&mut reactor, Owner(3)).is_ok() {
            return;
        }
        let soon = reactor.now() + Duration::from_millis(10);
        reactor.poll(WaitLimit::Until(soon), &mut completions);
    }
    panic!("the queues of closed devices are not free again");
}

#[test]
fn a_controller_that_refuses_queues_fails_their_requests() {
    let target = RunningTarget::start();
    let controller = target.connect();
    let disk = controller.namespace(1).unwrap();
    target.with(|target, _| {
        target.behaviour.refuse_queues = Some(Status::INVALID_QUEUE_ID.with_dnr());
    });
    let error = disk.flush().unwrap_err();
    let status = Status::INVALID_QUEUE_ID.with_dnr();
    assert_eq!(error.failure(), Some(Failure::Remote(status.0)), "{error}");
    wait_for(&controller, |event| matches!(event, Event::QueueRefused { queue: 1, .. }));
    assert_eq!(controller.state(), ControllerState::Live);
}
