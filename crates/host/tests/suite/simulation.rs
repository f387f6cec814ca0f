//! Host and controller in one seeded world: connections are cut, fall silent and are refused,
//! the controller restarts and is reset, and each request still ends exactly once, with what was
//! acknowledged there to be read.

use std::collections::BTreeMap;
use std::time::Duration;

use weft_backend::{BlockDevice, DeviceFactory, Failure, Operation, Request, RequestCompletion};
use weft_host::{ControllerDriver, ControllerKind, ControllerState, Options};
use weft_reactor::simulation::{NetworkConditions, Random, World};
use weft_reactor::{Buffer, Owner, Reactor, WaitLimit};

use crate::controller::{BLOCK, SUBSYSTEM, TestTarget};

const DRIVER: Owner = Owner(0);
const TARGET: Owner = Owner(1);
const FIRST_DEVICE: u32 = 10;
const DEVICES: usize = 2;
const NSID: u32 = 1;
/// Blocks that the workload uses.
const BLOCKS: u64 = 256;

struct Simulation {
    world: World,
    host: Reactor,
    driver: ControllerDriver,
    devices: Vec<Box<dyn BlockDevice>>,
    far: Reactor,
    target: TestTarget,
    completions: Vec<weft_reactor::ReactorCompletion>,
}

impl Simulation {
    fn new(seed: u64, adjust: impl FnOnce(&mut Options)) -> Self {
        let world = World::new(seed, NetworkConditions::default());
        let mut far = Reactor::simulated(&world);
        let address = "10.0.0.2:4420".parse().expect("an address");
        let target = TestTarget::listen(&mut far, TARGET, address);
        let host = Reactor::simulated(&world);
        let url = format!("nvme-tcp://{}/{SUBSYSTEM}", target.address);
        let mut options = Options::new(url.parse().expect("a good address"));
        options.reconnect_delay = Duration::from_millis(200);
        options.keep_alive_tmo = Duration::from_secs(2);
        options.io_timeout = Duration::from_secs(3);
        options.admin_timeout = Duration::from_secs(3);
        options.connect_timeout = Duration::from_secs(2);
        options.ctrl_loss_tmo = None;
        options.queue_size = 16;
        adjust(&mut options);
        let driver = ControllerDriver::connect(&host, DRIVER, &options, ControllerKind::Nvm)
            .expect("it starts");
        let completions = Vec::new();
        Self { world, host, driver, devices: Vec::new(), far, target, completions }
    }

    /// One turn of both reactors; whether anything happened.
    fn turn(&mut self) -> bool {
        let mut completions = std::mem::take(&mut self.completions);
        self.host.poll(WaitLimit::NoWait, &mut completions);
        let mut happened = !completions.is_empty();
        for completion in completions.drain(..) {
            match completion.token.owner {
                DRIVER => self.driver.handle(&mut self.host, completion),
                Owner(device) => {
                    let device = (device - FIRST_DEVICE) as usize;
                    self.devices[device].handle(&mut self.host, completion);
                }
            }
        }
        for device in &mut self.devices {
            device.flush(&mut self.host);
        }
        self.driver.flush(&mut self.host);
        self.far.poll(WaitLimit::NoWait, &mut completions);
        happened |= !completions.is_empty();
        for completion in completions.drain(..) {
            self.target.handle(&mut self.far, completion);
        }
        self.target.flush(&mut self.far);
        self.completions = completions;
        happened
    }

    /// Everything that can happen without time passing, then the next event.
    fn step(&mut self) {
        let mut quiet = 0;
        while quiet < 3 {
            quiet = if self.turn() { 0 } else { quiet + 1 };
        }
        assert!(self.world.advance(), "nothing will ever happen again");
    }

    fn run_until(&mut self, what: &str, is_it: impl Fn(&Self) -> bool) {
        let end = self.world.now() + Duration::from_secs(600);
        while !is_it(self) {
            self.step();
            assert!(self.world.now() < end, "ten minutes and still not: {what}");
        }
    }

    fn open_devices(&mut self) {
        self.run_until("live", |own| own.driver.state() == ControllerState::Live);
        let factory = self.driver.factory(NSID).expect("the namespace is there");
        for index in 0..DEVICES {
            let owner = Owner(FIRST_DEVICE + u32::try_from(index).expect("few"));
            self.devices.push(factory.open(&mut self.host, owner).expect("it opens"));
        }
    }

    fn buffer(&self, blocks: u32, mut stamp: impl FnMut(u32) -> u64) -> Buffer {
        let mut buffer = self.host.pool().take(blocks as usize * BLOCK).expect("a large pool");
        for (number, block) in (0..).zip(buffer.bytes_mut().chunks_mut(BLOCK)) {
            let stamp = stamp(number).to_le_bytes();
            block.chunks_mut(8).for_each(|place| place.copy_from_slice(&stamp));
        }
        buffer
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("small")
}

fn stamp_of(block: &[u8]) -> u64 {
    let stamp = u64::from_le_bytes(block[..8].try_into().expect("8 bytes"));
    assert!(block.chunks(8).all(|piece| piece == stamp.to_le_bytes()), "a torn block");
    stamp
}

/// A request under way.
#[derive(Debug)]
struct Pending {
    kind: &'static str,
    first: u64,
    blocks: u32,
    /// What each block holds if it succeeds; `None`: as before.
    after: Option<u64>,
}

/// Requests, and what each block may hold.
struct Workload {
    random: Random,
    pending: BTreeMap<u64, Pending>,
    contents: Vec<Vec<u64>>,
    next: u64,
    ended: u64,
    lost: u64,
}

impl Workload {
    fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            pending: BTreeMap::new(),
            contents: vec![vec![0]; index(BLOCKS)],
            next: 1,
            ended: 0,
            lost: 0,
        }
    }

    fn is_idle(&self, first: u64, blocks: u32) -> bool {
        self.pending.values().all(|other| {
            first + u64::from(blocks) <= other.first
                || other.first + u64::from(other.blocks) <= first
        })
    }

    /// Begins a request on blocks that no other touches.
    fn begin(&mut self, simulation: &mut Simulation) {
        let long = self.random.chance(0.3);
        let blocks =
            u32::try_from(self.random.below(if long { 60 } else { 7 }) + 1).expect("small");
        let first = self.random.below(BLOCKS - u64::from(blocks));
        if !self.is_idle(first, blocks) {
            return;
        }
        let range = index(first)..index(first) + blocks as usize;
        let known: Option<Vec<u64>> = self.contents[range]
            .iter()
            .map(|may| if let [one] = may[..] { Some(one) } else { None })
            .collect();
        let tag = self.next;
        self.next += 1;
        let stamp = tag << 8;
        let (kind, after, operation) = match (self.random.below(20), known) {
            (0..=6, _) => {
                let from = simulation.buffer(blocks, |_| stamp);
                let durable = self.random.chance(0.2);
                let operation = Operation::Write { slba: first, nlb: blocks, from, durable };
                ("write", Some(stamp), operation)
            }
            (7, _) => ("flush", None, Operation::Flush),
            (8, _) => {
                let operation = Operation::WriteZeroes {
                    slba: first,
                    nlb: blocks,
                    deallocate: true,
                    durable: false,
                };
                ("write zeroes", Some(0), operation)
            }
            (9, _) => {
                let ranges = vec![(first, blocks)].into_boxed_slice();
                ("discard", Some(0), Operation::Discard { ranges })
            }
            (10, _) => ("verify", None, Operation::Verify { slba: first, nlb: blocks }),
            (11 | 12, Some(known)) => {
                let with = simulation.buffer(blocks, |number| known[number as usize]);
                ("compare", None, Operation::Compare { slba: first, nlb: blocks, with })
            }
            (13 | 14, Some(known)) if blocks <= 8 => {
                let compare = simulation.buffer(blocks, |number| known[number as usize]);
                let write = simulation.buffer(blocks, |_| stamp);
                let operation = Operation::CompareAndWrite {
                    slba: first,
                    nlb: blocks,
                    compare,
                    write,
                    durable: false,
                };
                ("compare and write", Some(stamp), operation)
            }
            _ => {
                let into = simulation.buffer(blocks, |_| u64::MAX);
                ("read", None, Operation::Read { slba: first, nlb: blocks, into })
            }
        };
        self.pending.insert(tag, Pending { kind, first, blocks, after });
        let device = index(self.random.below(DEVICES as u64));
        let request = Request { tag, operation };
        simulation.devices[device].submit(&mut simulation.host, request);
    }

    fn collect(&mut self, simulation: &mut Simulation) {
        for device in &mut simulation.devices {
            while let Some(completion) = device.poll_completion() {
                self.end(completion);
            }
        }
    }

    fn end(&mut self, completion: RequestCompletion) {
        let tag = completion.tag;
        let pending = self.pending.remove(&tag).unwrap_or_else(|| panic!("{tag} is told twice"));
        self.ended += 1;
        let start = index(pending.first);
        let range = start..start + pending.blocks as usize;
        let contents = &mut self.contents[range];
        match completion.result {
            Ok(()) => {
                if let Some(after) = pending.after {
                    contents.fill(vec![after]);
                }
                if pending.kind == "read" {
                    let buffer = completion.buffer.expect("a read has a buffer");
                    for (may, block) in contents.iter_mut().zip(buffer.chunks(BLOCK)) {
                        let found = stamp_of(block);
                        assert!(may.contains(&found), "{tag}: {found:#x} is none of {may:x?}");
                        *may = vec![found];
                    }
                }
            }
            Err(Failure::PathLost) => {
                self.lost += 1;
                let once = ["compare", "compare and write"].contains(&pending.kind);
                assert!(once, "a {} has to be replayed", pending.kind);
                if let Some(after) = pending.after {
                    contents.iter_mut().for_each(|may| may.push(after));
                }
            }
            Err(other) => panic!("{pending:?} failed: {other}"),
        }
    }
}

fn rough() -> NetworkConditions {
    NetworkConditions {
        latency: Duration::from_micros(200),
        jitter: Duration::from_micros(300),
        split_probability: 0.3,
        reset_probability: 0.003,
        silence_probability: 0.0005,
        refusal_probability: 0.2,
        ..NetworkConditions::default()
    }
}

/// A run of so many requests; the world's fingerprint, requests lost, and connects.
fn run(seed: u64, requests: u64) -> (u64, u64, u64) {
    let mut simulation = Simulation::new(seed, |_| {});
    simulation.target.behaviour.mdts = 1;
    simulation.open_devices();
    let idle = simulation.host.pool().available();
    simulation.world.set_network(rough());
    let mut workload = Workload::new(seed ^ 0x5eed);
    let end = Duration::from_secs(36_000);
    while workload.ended < requests {
        if workload.pending.len() < 24 && workload.next <= requests {
            workload.begin(&mut simulation);
        }
        match workload.random.below(4000) {
            0 => simulation.target.hang_up(&mut simulation.far),
            1 => simulation.target.hang_up_queues(&mut simulation.far),
            2 => simulation.driver.reset(simulation.world.now()),
            3 => {
                simulation.target.stop(&mut simulation.far);
                simulation.target.start(&mut simulation.far);
            }
            _ => {}
        }
        simulation.step();
        workload.collect(&mut simulation);
        assert!(simulation.world.now() < end, "it takes forever: {:?}", workload.pending);
    }
    finish(simulation, workload, idle)
}

/// A calm network: everything ends, is as it should be, and nothing is left behind.
fn finish(mut simulation: Simulation, mut workload: Workload, idle: usize) -> (u64, u64, u64) {
    simulation.world.set_network(NetworkConditions::default());
    simulation.run_until("live", |own| own.driver.state() == ControllerState::Live);
    workload.collect(&mut simulation);
    assert!(workload.pending.is_empty());
    let data = &simulation.target.namespaces[&NSID].data;
    for (may, block) in workload.contents.iter().zip(data.chunks(BLOCK)) {
        let found = stamp_of(block);
        assert!(may.contains(&found), "{found:#x} lies there, not one of {may:x?}");
    }
    let mut devices = std::mem::take(&mut simulation.devices);
    for device in &mut devices {
        device.close(&mut simulation.host);
        assert_eq!(device.in_flight(), 0);
    }
    simulation.devices = devices;
    let now = simulation.world.now();
    simulation.driver.shut_down(now);
    simulation.run_until("the end", |own| own.driver.is_finished());
    simulation.devices.clear();
    assert_eq!(simulation.driver.state(), ControllerState::Ended(None));
    assert!(simulation.host.pool().available() >= idle, "buffers are left behind");
    (simulation.world.fingerprint(), workload.lost, simulation.target.connects)
}

#[test]
fn each_request_ends_once_whatever_the_network_does() {
    let (mut lost, mut connects) = (0, 0);
    for seed in 0..12 {
        let (_, lost_here, connects_here) = run(seed, 400);
        lost += lost_here;
        connects += connects_here;
    }
    assert!(lost > 0 && connects > 100, "the network was too kind: {lost} {connects}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(run(77, 150), run(77, 150));
}

#[test]
fn closing_a_device_ends_its_waiting_requests() {
    let mut simulation = Simulation::new(5, |_| {});
    simulation.open_devices();
    simulation.target.stop(&mut simulation.far);
    simulation.run_until("lost", |own| own.driver.state() == ControllerState::Reconnecting);
    for tag in 0..40 {
        let into = simulation.buffer(1, |_| 0);
        let operation = Operation::Read { slba: tag, nlb: 1, into };
        simulation.devices[0].submit(&mut simulation.host, Request { tag, operation });
    }
    simulation.step();
    assert_eq!(simulation.devices[0].in_flight(), 40);
    simulation.devices[0].close(&mut simulation.host);
    simulation.devices[0].close(&mut simulation.host);
    let mut told = 0;
    while let Some(completion) = simulation.devices[0].poll_completion() {
        assert_eq!(completion.result, Err(Failure::Gone));
        assert!(completion.buffer.is_some());
        told += 1;
    }
    assert_eq!((told, simulation.devices[0].in_flight()), (40, 0));
    let operation = Operation::Flush;
    simulation.devices[0].submit(&mut simulation.host, Request { tag: 99, operation });
    let completion = simulation.devices[0].poll_completion().expect("refused at once");
    assert_eq!((completion.tag, completion.result), (99, Err(Failure::Gone)));
}

#[test]
fn waiting_requests_begin_to_fail_when_that_is_asked() {
    let mut simulation = Simulation::new(6, |options| {
        options.fast_io_fail_tmo = Some(Duration::from_secs(5));
    });
    simulation.open_devices();
    simulation.target.stop(&mut simulation.far);
    simulation.run_until("lost", |own| own.driver.state() == ControllerState::Reconnecting);
    let lost_at = simulation.world.now();
    let request = Request { tag: 1, operation: Operation::Flush };
    simulation.devices[1].submit(&mut simulation.host, request);
    let completion = loop {
        simulation.step();
        if let Some(completion) = simulation.devices[1].poll_completion() {
            break completion;
        }
    };
    assert_eq!(completion.result, Err(Failure::PathLost));
    let waited = simulation.world.now() - lost_at;
    assert!(waited >= Duration::from_millis(4900), "{waited:?}");
    assert!(waited < Duration::from_secs(6), "{waited:?}");
    simulation.target.start(&mut simulation.far);
    simulation.run_until("live", |own| own.driver.state() == ControllerState::Live);
    simulation.step();
    let request = Request { tag: 2, operation: Operation::Flush };
    simulation.devices[1].submit(&mut simulation.host, request);
    let completion = loop {
        simulation.step();
        if let Some(completion) = simulation.devices[1].poll_completion() {
            break completion;
        }
    };
    assert_eq!((completion.tag, completion.result), (2, Ok(())));
}

#[test]
fn keep_alive_finds_a_silent_controller_and_traffic_spares_it() {
    let mut simulation = Simulation::new(8, |_| {});
    simulation.open_devices();
    let start = simulation.world.now();
    while simulation.world.now() < start + Duration::from_secs(20) {
        simulation.step();
    }
    let idle = simulation.target.keep_alives;
    assert!((38..=40).contains(&idle), "{idle} in 20 s without traffic, every quarter of 2 s");
    let start = simulation.world.now();
    let mut tag = 0;
    while simulation.world.now() < start + Duration::from_secs(20) {
        simulation.step();
        while simulation.devices[0].poll_completion().is_some() {}
        if simulation.devices[0].in_flight() == 0 {
            tag += 1;
            let into = simulation.buffer(1, |_| 0);
            let operation = Operation::Read { slba: 0, nlb: 1, into };
            simulation.devices[0].submit(&mut simulation.host, Request { tag, operation });
        }
    }
    let busy = simulation.target.keep_alives - idle;
    assert!(busy <= 2, "{busy} beside {tag} reads, and not 40");
    let silent = NetworkConditions { silence_probability: 1.0, ..NetworkConditions::default() };
    simulation.world.set_network(silent);
    simulation.run_until("lost", |own| own.driver.state() == ControllerState::Reconnecting);
    simulation.world.set_network(NetworkConditions::default());
    simulation.run_until("live", |own| own.driver.state() == ControllerState::Live);
}

/// A controller counts commands as they come; that it answers old ones keeps no association alive.
#[test]
fn answers_to_old_commands_are_no_traffic() {
    let mut simulation = Simulation::new(8, |options| options.io_timeout = Duration::from_secs(60));
    simulation.target.behaviour.hold_io = true;
    simulation.open_devices();
    simulation.run_until("connected", |own| own.target.connected_queues() == DEVICES);
    for tag in 0..12 {
        let request = Request { tag, operation: Operation::Flush };
        simulation.devices[0].submit(&mut simulation.host, request);
    }
    simulation.run_until("there", |own| own.target.held.len() == 12);
    let before = simulation.target.keep_alives;
    for _ in 0..12 {
        let start = simulation.world.now();
        while simulation.world.now() < start + Duration::from_millis(400) {
            simulation.step();
        }
        simulation.target.answer_held();
    }
    for _ in 0..12 {
        while simulation.devices[0].poll_completion().is_none() {
            simulation.step();
        }
    }
    let keep_alives = simulation.target.keep_alives - before;
    assert!(keep_alives >= 8, "{keep_alives} in 4.8 s, which is more than two timeouts");
}

#[test]
fn requests_wait_for_an_empty_pool_and_go_on() {
    let mut simulation = Simulation::new(9, |_| {});
    simulation.target.behaviour.mdts = 1;
    simulation.open_devices();
    simulation.run_until("connected", |own| own.target.connected_queues() == DEVICES);
    // Longer than MDTS, so that each part needs a buffer of its own.
    let requests: Vec<Request> = (0..8)
        .map(|tag| {
            let from = simulation.buffer(60, |_| tag + 1);
            let operation = Operation::Write { slba: tag * 60, nlb: 60, from, durable: false };
            Request { tag, operation }
        })
        .collect();
    let mut hoard = Vec::new();
    while let Some(buffer) = simulation.host.pool().take_reserved(4096) {
        hoard.push(buffer);
    }
    for request in requests {
        simulation.devices[0].submit(&mut simulation.host, request);
    }
    let start = simulation.world.now();
    while simulation.world.now() < start + Duration::from_millis(20) {
        simulation.step();
    }
    assert_eq!((simulation.devices[0].in_flight(), simulation.target.executed), (8, 0));
    hoard.clear();
    simulation.run_until("written", |own| own.target.executed >= 32);
    simulation.step();
    let mut told = 0;
    while let Some(completion) = simulation.devices[0].poll_completion() {
        completion.result.expect("it is written");
        told += 1;
    }
    assert_eq!(told, 8);
    let data = &simulation.target.namespaces[&NSID].data;
    for (number, block) in (0u64..).zip(data.chunks(BLOCK).take(480)) {
        assert_eq!(stamp_of(block), number / 60 + 1);
    }
}
