//! Delay and fault.

use crate::rig::{BYTES, Rig, kernel_reactor, simulated};
use std::sync::Arc;
use std::time::Duration;
use weft_backend::delay::DelayFactory;
use weft_backend::fault::FaultFactory;
use weft_backend::memory::MemoryFactory;
use weft_backend::{DeviceSpec, Failure, FaultRule, Operation, OperationKind};
use weft_reactor::simulation::{NetworkConditions, World};
use weft_reactor::{DriverKind, Reactor, WaitLimit};

const READ: Duration = Duration::from_micros(300);
const WRITE: Duration = Duration::from_millis(5);

fn slow_memory() -> Rig {
    let world = World::new(1, NetworkConditions::default());
    let memory = Arc::new(MemoryFactory::new(1 << 20, 4096).unwrap());
    let factory = Arc::new(DelayFactory::new(memory, READ, WRITE).unwrap());
    let reactor = Reactor::simulated(&world);
    Rig::new("slow memory".to_owned(), reactor, Some(world), factory)
}

#[test]
fn requests_complete_after_their_delay() {
    let mut rig = slow_memory();
    let start = rig.reactor.now();
    rig.write(0, &rig.pattern(1, 1));
    let written = rig.reactor.now();
    assert_eq!(written - start, WRITE);
    rig.read(0, 1);
    assert_eq!(rig.reactor.now() - written, READ);
    rig.finish();
}

#[test]
fn a_delayed_write_is_executed_after_the_delay() {
    let mut rig = slow_memory();
    let write = rig.write_of(0, &rig.pattern(1, 1));
    rig.submit(1, write);
    let read = rig.read_of(0, 1);
    rig.submit(2, read);
    let first = rig.wait();
    assert_eq!(first.tag, 2, "reads overtake");
    assert_eq!(first.buffer.as_deref(), Some(&[0; 4096][..]));
    drop(first);
    assert_eq!(rig.wait().tag, 1);
    assert_eq!(rig.read(0, 1), rig.pattern(1, 1));
    rig.finish();
}

#[test]
fn delayed_requests_keep_their_order_and_end_at_close() {
    let mut rig = slow_memory();
    for tag in 0..10 {
        let write = rig.write_of(0, &rig.pattern(tag + 1, 1));
        rig.submit(tag, write);
    }
    for tag in 0..10 {
        assert_eq!(rig.wait().tag, tag);
    }
    assert_eq!(rig.read(0, 1), rig.pattern(10, 1));
    let write = rig.write_of(0, &rig.pattern(99, 1));
    rig.submit(10, write);
    assert_eq!(rig.device.in_flight(), 1);
    rig.device.close(&mut rig.reactor);
    let completion = rig.wait();
    assert_eq!((completion.tag, completion.result), (10, Err(Failure::Gone)));
    assert!(completion.buffer.is_some());
    drop(completion);
    rig.device = rig.factory.open(&mut rig.reactor, crate::rig::OWNER).unwrap();
    assert_eq!(rig.read(0, 1), rig.pattern(10, 1));
    rig.finish();
}

/// One of an express queue is executed when it is due, and not after those of others that are due
/// as well.
#[test]
fn express_requests_do_not_wait_for_others_that_are_due() {
    let mut rig = slow_memory();
    let start = rig.reactor.now();
    for tag in 0..10 {
        let read = rig.read_of(0, 1);
        rig.submit(tag, read);
    }
    rig.reactor.begin_express();
    let read = rig.read_of(0, 1);
    rig.submit(99, read);
    rig.device.flush(&mut rig.reactor);
    rig.reactor.end_express();
    let (mut others, mut express) = (Vec::new(), Vec::new());
    while !rig.reactor.has_express() {
        rig.reactor.poll(WaitLimit::Sleep, &mut others);
    }
    assert_eq!(rig.reactor.now() - start, READ);
    rig.reactor.poll_express(&mut express);
    rig.reactor.begin_express();
    for completion in express.drain(..) {
        rig.device.handle(&mut rig.reactor, completion);
    }
    rig.reactor.end_express();
    assert_eq!(rig.device.poll_completion().map(|done| done.tag), Some(99));
    assert!(rig.device.poll_completion().is_none(), "the others are not executed yet");
    for completion in others.drain(..) {
        rig.device.handle(&mut rig.reactor, completion);
    }
    assert_eq!((0..10).map(|_| rig.wait().tag).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    rig.finish();
}

#[test]
fn delays_add_up() {
    let spec: DeviceSpec = "delay:both=1ms:delay:both=2ms:memory:1MiB".parse().unwrap();
    let factory = spec.build().unwrap();
    assert_eq!(factory.layers(), 2);
    let world = World::new(1, NetworkConditions::default());
    let reactor = Reactor::simulated(&world);
    let mut rig = Rig::new(spec.to_string(), reactor, Some(world), factory);
    rig.write(0, &rig.pattern(1, 1));
    assert_eq!(rig.reactor.now(), Duration::from_millis(3));
    rig.finish();
    let mut rig = simulated(1, BYTES, true);
    rig.write(0, &rig.pattern(1, 1));
    assert!(rig.reactor.now() >= Duration::from_millis(2));
    rig.finish();
}

#[test]
fn the_number_of_wrappers_is_limited() {
    let mut spec = DeviceSpec::memory("1MiB").unwrap();
    for layers in 0..40 {
        let (read, write) = (Duration::ZERO, Duration::ZERO);
        let built = spec.build();
        assert_eq!(built.is_ok(), layers <= 16, "{layers}");
        spec = DeviceSpec::Delay { read, write, inner: Box::new(spec) };
    }
}

#[test]
fn faults_follow_their_rules() {
    let text = "fault:operation=write,nth=2,effect=media-write;\
                operation=flush,effect=errno-4,times=1;\
                first-block=100,last-block=109,effect=media-read:memory:1MiB";
    let mut rig = Rig::of(&text.parse().unwrap());
    let (one, two) = (rig.pattern(1, 1), rig.pattern(2, 1));
    rig.write(0, &one);
    let second = rig.write_of(0, &two);
    let completion = rig.run(second);
    assert_eq!(completion.result, Err(Failure::MediaWrite));
    assert_eq!(completion.buffer.as_deref(), Some(&two[..]));
    drop(completion);
    assert_eq!(rig.read(0, 1), one, "what fails has not been done");
    rig.write(0, &two);
    assert_eq!(rig.result(Operation::Flush), Err(Failure::Device(4)));
    assert_eq!(rig.result(Operation::Flush), Err(Failure::MediaWrite), "it stays failed");
    rig.read(90, 10);
    let hit = rig.read_of(90, 11);
    assert_eq!(rig.result(hit), Err(Failure::MediaRead));
    rig.read(110, 1);
    rig.finish();
}

#[test]
fn rules_count_over_all_handles() {
    let memory = Arc::new(MemoryFactory::new(1 << 20, 4096).unwrap());
    let rule =
        FaultRule { operation: Some(OperationKind::Read), nth: Some(3), ..FaultRule::default() };
    let factory = Arc::new(FaultFactory::new(memory, vec![rule]).unwrap());
    let mut rigs = [0, 1].map(|_| {
        let reactor = kernel_reactor(DriverKind::Epoll).unwrap();
        Rig::new("fault".to_owned(), reactor, None, factory.clone())
    });
    rigs[0].read(0, 1);
    rigs[1].read(0, 1);
    assert_eq!(factory.hits(), [0]);
    let third = rigs[0].read_of(0, 1);
    assert_eq!(rigs[0].result(third), Err(Failure::Device(5)));
    rigs[1].read(0, 1);
    assert_eq!(factory.hits(), [1]);
    rigs.iter_mut().for_each(Rig::finish);
}

#[test]
fn a_dropped_request_ends_with_the_device() {
    let text = "fault:operation=write,nth=1,effect=drop:memory:1MiB";
    let mut rig = Rig::of(&text.parse().unwrap());
    let write = rig.write_of(0, &rig.pattern(1, 1));
    rig.submit(1, write);
    assert_eq!(rig.read(0, 1), [0; 4096]);
    assert_eq!(rig.device.in_flight(), 1);
    assert!(rig.device.poll_completion().is_none());
    rig.device.close(&mut rig.reactor);
    let completion = rig.wait();
    assert_eq!((completion.tag, completion.result), (1, Err(Failure::Gone)));
    assert!(completion.buffer.is_some());
    drop(completion);
    rig.finish();
}
