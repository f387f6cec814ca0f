//! Hosts and a target in simulation from a seed: segments of any length, resets, connections that
//! transfer nothing more, refused attempts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use weft_nvme::Status;
use weft_nvmf::tcp::target::Config;
use weft_reactor::simulation::{NetworkConditions, Random, World};
use weft_reactor::{Reactor, ReactorCompletion, WaitLimit};
use weft_transport::host::HostOptions;
use weft_transport::target::Limits;
use weft_transport::{CloseReason, Slot, Transport, tag_of};

use crate::rig::{Behaviour, CommandOutcome, HOST, Host, Target, pattern};

const LENGTHS: [usize; 9] = [1, 512, 4096, 8193, 16_384, 20_000, 65_536, 131_072, 200_000];
const HOSTS: usize = 3;
/// Connections that each host makes, one after the other.
const LIVES: u32 = 4;
const COMMANDS: u32 = 40;

/// The expected result of a command.
#[derive(Debug, Clone, Copy)]
struct ExpectedResult {
    key: u32,
    length: usize,
    is_write: bool,
}

/// A host and its successive connections.
struct Life {
    host: Host,
    life: u32,
    submitted: u32,
    expected: BTreeMap<Slot, ExpectedResult>,
}

struct Simulation {
    world: World,
    random: Random,
    target_reactor: Reactor,
    host_reactor: Reactor,
    target: Target,
    lives: Vec<Life>,
    options: HostOptions,
    next_tag: u32,
    tally: Tally,
    silences: u32,
}

/// Counts of events over all hosts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Tally {
    reads: u32,
    writes: u32,
    unknown: u32,
    lost: u32,
}

impl Simulation {
    fn new(seed: u64, conditions: NetworkConditions) -> Self {
        let mut random = Random::new(seed);
        let world = World::new(seed, conditions);
        world.set_memory(32 << 20, [4096, 65_536, 262_144][random.below(3) as usize]);
        let mut target_reactor = Reactor::simulated(&world);
        let host_reactor = Reactor::simulated(&world);
        let mut tcp = Config::default();
        tcp.parameters.maximum_h2c_data = [4096, 65_536][random.below(2) as usize];
        tcp.parameters.controller_data_alignment = random.below(32) as u8;
        tcp.r2t_bytes = [5000, 1 << 20][random.below(2) as usize];
        tcp.c2h_data_bytes = [7000, 1 << 20][random.below(2) as usize];
        let behaviour = Behaviour {
            depth: 16,
            flow_control: random.chance(0.5),
            limits: Limits { tcp, ..Limits::default() },
            ..Behaviour::default()
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 4420));
        let target = Target::listen(&mut target_reactor, Transport::Tcp, address, behaviour);
        let options = HostOptions {
            header_digest: random.chance(0.5),
            data_digest: random.chance(0.5),
            queue_depth: 16,
            maximum_r2t: 1 + random.below(5) as u32,
            timeout: Duration::from_secs(5),
            ..HostOptions::default()
        };
        let (lives, tally) = (Vec::new(), Tally::default());
        let mut simulation = Self {
            world,
            random,
            target_reactor,
            host_reactor,
            target,
            lives,
            options,
            next_tag: 0,
            tally,
            silences: 0,
        };
        for _ in 0..HOSTS {
            let life = simulation.be_born(0);
            simulation.lives.push(life);
        }
        simulation
    }

    fn be_born(&mut self, life: u32) -> Life {
        let tag = self.next_tag;
        self.next_tag += 1;
        let reactor = &mut self.host_reactor;
        let host = Host::connect(reactor, tag, self.target.address, self.options);
        Life { host, life, submitted: 0, expected: BTreeMap::new() }
    }

    fn run(mut self) -> (Tally, u64) {
        while self.lives.iter().any(|life| life.host.closed.is_none()) {
            self.poll();
            for index in 0..self.lives.len() {
                self.live(index);
            }
            if !self.world.advance() {
                self.give_up();
            }
        }
        self.target.close_all(&mut self.target_reactor);
        self.target.stop(&mut self.target_reactor);
        while !self.target.connections.is_empty() {
            self.poll();
            assert!(self.target.connections.is_empty() || self.world.advance(), "stuck");
        }
        for reactor in [&self.target_reactor, &self.host_reactor] {
            let pool = reactor.pool();
            assert_eq!(pool.available(), pool.capacity(), "every buffer was returned");
        }
        (self.tally, self.world.fingerprint())
    }

    /// Runs one turn of both reactors.
    fn poll(&mut self) {
        let mut completions = Vec::new();
        loop {
            self.target_reactor.poll(WaitLimit::NoWait, &mut completions);
            let mut idle = completions.is_empty();
            for completion in completions.drain(..) {
                self.target.handle(&mut self.target_reactor, completion);
            }
            self.host_reactor.poll(WaitLimit::NoWait, &mut completions);
            idle &= completions.is_empty();
            for completion in completions.drain(..) {
                assert_eq!(completion.token.owner, HOST);
                self.dispatch(completion);
            }
            if idle {
                return;
            }
        }
    }

    fn dispatch(&mut self, completion: ReactorCompletion) {
        let tag = tag_of(completion.token);
        let born = self.next_tag;
        let found = self.lives.iter_mut().find(|life| life.host.tag == tag);
        match found {
            Some(life) => life.host.handle(&mut self.host_reactor, completion),
            // Its connection has reported that no operation is in flight.
            None => panic!("completion for {tag} of {born}: {completion:?}"),
        }
    }

    /// Checks the results of a host's commands, and submits more.
    fn live(&mut self, index: usize) {
        self.check_endings(index);
        if self.lives[index].host.closed.is_some() {
            return self.bury(index);
        }
        let life = &mut self.lives[index];
        let mut submitted = false;
        while life.host.ready
            && life.submitted < COMMANDS
            && life.host.connection.free_slots() > 0
            && self.random.chance(0.8)
        {
            let length = LENGTHS[self.random.below(LENGTHS.len() as u64) as usize];
            let key = (index as u32 * LIVES + life.life) * COMMANDS + life.submitted;
            let is_write = self.random.chance(0.5);
            let slot = if is_write {
                life.host.write(&self.host_reactor, key, &pattern(!key, length))
            } else {
                life.host.read(&self.host_reactor, key, length)
            };
            life.expected.insert(slot, ExpectedResult { key, length, is_write });
            life.submitted += 1;
            submitted = true;
        }
        if submitted {
            life.host.connection.flush(&mut self.host_reactor);
        }
        let done = life.submitted == COMMANDS && life.host.connection.in_flight() == 0;
        if done && life.host.connection.free_slots() > 0 {
            let reason = CloseReason::Requested("all commands are done");
            life.host.connection.close(&mut self.host_reactor, reason);
            life.host.take_events();
        }
    }

    fn check_endings(&mut self, index: usize) {
        let life = &mut self.lives[index];
        for (slot, ending) in std::mem::take(&mut life.host.endings) {
            let ExpectedResult { key, length, is_write } =
                life.expected.remove(&slot).expect("it was submitted");
            let CommandOutcome::Completed { status: Status::SUCCESS, received, data } = ending
            else {
                panic!("no data is corrupted here: {ending:?}");
            };
            if is_write {
                assert!(self.target.stored[&key] == pattern(!key, length), "it is written");
                self.tally.writes += 1;
            } else {
                assert_eq!(received as usize, length);
                assert!(data == Some(pattern(key, length)), "{length} bytes");
                self.tally.reads += 1;
            }
        }
    }

    /// Its connection is closed: commands in flight may or may not have been executed.
    fn bury(&mut self, index: usize) {
        let life = &mut self.lives[index];
        let (reason, in_flight) = life.host.closed.as_ref().expect("it is closed");
        self.tally.lost += u32::from(*reason != CloseReason::Requested("all commands are done"));
        for (slot, _) in in_flight {
            if let Some(expected) = life.expected.remove(slot) {
                self.tally.unknown += 1;
                if let Some(stored) = self.target.stored.get(&expected.key) {
                    assert!(*stored == pattern(!expected.key, expected.length), "all or nothing");
                }
            }
        }
        assert!(life.expected.is_empty(), "a command without a result: {:?}", life.expected);
        let next = life.life + 1;
        if next < LIVES {
            self.lives[index] = self.be_born(next);
        }
    }

    /// No event is left, because connections transfer nothing more.
    fn give_up(&mut self) {
        self.silences += 1;
        assert!(self.silences < 100, "closing connections does not end the test");
        for life in self.lives.iter_mut().filter(|life| life.host.closed.is_none()) {
            let reason = CloseReason::Requested("silence");
            life.host.connection.close(&mut self.host_reactor, reason);
            life.host.take_events();
        }
    }
}

fn accidents(seed: u64) -> NetworkConditions {
    let mut random = Random::new(!seed);
    let mut often = |probability: f64| if random.chance(0.5) { probability } else { 0.0 };
    NetworkConditions {
        jitter: Duration::from_micros(often(300.0) as u64),
        split_probability: often(0.3),
        reset_probability: often(0.004),
        silence_probability: often(0.001),
        refusal_probability: often(0.1),
        window_bytes: if often(1.0) > 0.0 { 5000 } else { 256 << 10 },
        ..NetworkConditions::default()
    }
}

#[test]
fn a_calm_network_loses_nothing() {
    for seed in 0..4 {
        let (tally, _) = Simulation::new(seed, NetworkConditions::default()).run();
        assert_eq!(tally.reads + tally.writes, HOSTS as u32 * LIVES * COMMANDS, "seed {seed}");
        assert_eq!((tally.unknown, tally.lost), (0, 0), "seed {seed}");
    }
}

#[test]
fn every_segmentation_gives_the_same_result() {
    for seed in 0..8 {
        let conditions = NetworkConditions {
            split_probability: 0.9,
            jitter: Duration::from_micros(100),
            window_bytes: 3000 + seed as usize * 1111,
            ..NetworkConditions::default()
        };
        let (tally, _) = Simulation::new(seed, conditions).run();
        assert_eq!(tally.reads + tally.writes, HOSTS as u32 * LIVES * COMMANDS, "seed {seed}");
    }
}

#[test]
fn faults_lose_connections_but_no_data() {
    let mut all = Tally::default();
    for seed in 0..60 {
        let (tally, _) = Simulation::new(seed, accidents(seed)).run();
        all.reads += tally.reads;
        all.writes += tally.writes;
        all.unknown += tally.unknown;
        all.lost += tally.lost;
    }
    assert!(all.reads > 1000 && all.writes > 1000, "{all:?}");
    assert!(all.lost > 50 && all.unknown > 50, "faults occurred: {all:?}");
}

#[test]
fn a_seed_is_a_run() {
    for seed in [3, 17] {
        let first = Simulation::new(seed, accidents(seed)).run();
        assert_eq!(Simulation::new(seed, accidents(seed)).run(), first);
    }
}
