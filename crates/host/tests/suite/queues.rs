//! Devices of one namespace on several threads, each with a reactor and an I/O queue of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weft_backend::{BlockDevice, DeviceFactory, Operation, Request};
use weft_host::{Event, NamespaceFactory};
use weft_reactor::{Config, Owner, Reactor, WaitLimit};

use crate::controller::BLOCK;
use crate::running::RunningTarget;

const OWNER: Owner = Owner(3);
const SOON: Duration = Duration::from_secs(20);
const DEPTH: usize = 16;

/// One thread's reactor and device.
struct Lane {
    reactor: Reactor,
    device: Box<dyn BlockDevice>,
    completions: Vec<weft_reactor::ReactorCompletion>,
}

impl Lane {
    fn open(factory: &NamespaceFactory) -> Self {
        let mut reactor = Reactor::new(Config::default()).expect("a reactor");
        let device = factory.open(&mut reactor, OWNER).expect("a queue");
        Self { reactor, device, completions: Vec::new() }
    }

    /// As soon as the controller's thread knows that the last one was closed.
    fn open_when_free(factory: &NamespaceFactory) -> Self {
        let mut reactor = Reactor::new(Config::default()).expect("a reactor");
        loop {
            if let Ok(device) = factory.open(&mut reactor, OWNER) {
                return Self { reactor, device, completions: Vec::new() };
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn write(&mut self, block: u64, stamp: u8) {
        let mut from = self.reactor.pool().take(BLOCK).expect("a buffer");
        from.bytes_mut().fill(stamp);
        let operation = Operation::Write { slba: block, nlb: 1, from, durable: false };
        self.device.submit(&mut self.reactor, Request { tag: block, operation });
    }

    fn turn(&mut self) {
        self.device.flush(&mut self.reactor);
        let soon = self.reactor.now() + Duration::from_millis(20);
        self.reactor.poll(WaitLimit::Until(soon), &mut self.completions);
        for completion in self.completions.drain(..) {
            self.device.handle(&mut self.reactor, completion);
        }
    }
}

/// Writes a block of its own over and over until told to stop, then closes; what was written.
fn work(factory: &NamespaceFactory, first: u64, stop: &AtomicBool) -> u64 {
    let mut lane = Lane::open(factory);
    let mut stamps = [0u8; DEPTH];
    let mut ended = 0;
    for block in (first..).take(DEPTH) {
        lane.write(block, 0);
    }
    while lane.device.in_flight() > 0 {
        lane.turn();
        while let Some(completion) = lane.device.poll_completion() {
            completion.result.expect("writes survive whatever happens");
            ended += 1;
            if !stop.load(Ordering::Relaxed) {
                let index = usize::try_from(completion.tag - first).expect("one of ours");
                stamps[index] = stamps[index].wrapping_add(1);
                lane.write(completion.tag, stamps[index]);
            }
        }
    }
    for (block, stamp) in (first..).zip(stamps) {
        let mut with = lane.reactor.pool().take(BLOCK).expect("a buffer");
        with.bytes_mut().fill(stamp);
        let operation = Operation::Compare { slba: block, nlb: 1, with };
        lane.device.submit(&mut lane.reactor, Request { tag: block, operation });
    }
    while lane.device.in_flight() > 0 {
        lane.turn();
        while let Some(completion) = lane.device.poll_completion() {
            completion.result.expect("the last stamp lies there");
        }
    }
    lane.device.close(&mut lane.reactor);
    lane.turn();
    ended
}

#[test]
fn a_queue_that_is_not_free_yet_is_waited_for() {
    let target = RunningTarget::start();
    target.with(|target, _| target.behaviour.io_queues = 1);
    let controller = target.connect();
    let factory = controller.factory(1).unwrap();
    for round in 0..5 {
        target.with(move |target, _| target.behaviour.queues_taken = round % 3);
        let mut lane = Lane::open_when_free(&factory);
        lane.write(0, 1);
        while lane.device.in_flight() > 0 {
            lane.turn();
            while let Some(completion) = lane.device.poll_completion() {
                completion.result.expect("it is written");
            }
        }
        lane.device.close(&mut lane.reactor);
        lane.turn();
    }
    assert_eq!(target.with(|target, _| target.behaviour.queues_taken), 0);
}

#[test]
fn every_lane_continues_after_each_reconnect() {
    let target = RunningTarget::start();
    let controller = target.connect();
    let factory = controller.factory(1).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let lanes: Vec<_> = (0..3)
        .map(|lane| {
            let (factory, stop) = (factory.clone(), Arc::clone(&stop));
            std::thread::spawn(move || work(&factory, lane * 100, &stop))
        })
        .collect();
    for round in 0..4 {
        let seen = target.with(|target, _| target.executed);
        while target.with(|target, _| target.executed) < seen + 300 {
            std::thread::sleep(Duration::from_millis(1));
        }
        if round < 3 {
            target.with(move |target, reactor| match round {
                0 => target.hang_up(reactor),
                1 => target.hang_up_queues(reactor),
                _ => {
                    target.stop(reactor);
                    target.start(reactor);
                }
            });
            while !matches!(controller.next_event(SOON).expect("a loss"), Event::Lost { .. }) {}
        }
    }
    while target.with(|target, _| target.connected_queues()) < 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    stop.store(true, Ordering::Relaxed);
    let ended: u64 = lanes.into_iter().map(|lane| lane.join().expect("no lane fails")).sum();
    assert!(ended >= 1200, "{ended}");
    controller.disconnect().unwrap();
}
