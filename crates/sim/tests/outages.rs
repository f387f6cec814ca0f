//! A network that is out for a while, and what is left of the connections that it had: bytes of a
//! dead process arrive later, resets are lost, and commands that the target has received wait there
//! while their host connects anew. Nothing of an old connection is executed after something newer
//! has begun.

use std::net::IpAddr;
use std::time::Duration;

use weft_host::Options;
use weft_reactor::simulation::{NetworkConditions, Random, StorageConditions};
use weft_sim::{Client, SUBSYSTEM, Size, Testbed, Tune, run_a_tenth};
use weft_target::config::{RateLimit, RateLimitedCommands};

/// Blocks of the client: few, so that requests overlap.
const BLOCKS: usize = 60;
/// Requests after an outage.
const REQUESTS: u64 = 30;
/// Within which all requests end once nothing fails any more. Longer than all of the time-outs, and
/// than the fences of a path that is lost again and again because a limit exceeds its patience.
const BOUND: Duration = Duration::from_secs(600);
/// What was held up at the target is over within this time.
const LATE: Duration = Duration::from_millis(3500);
const MS: Duration = Duration::from_millis(1);

/// What becomes of the host in the outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It gives its connections up and connects anew. The resets are lost.
    GivesUp,
    /// Its process is killed, and another one of the same host connects.
    Killed,
    /// Its process is killed, and another host takes its blocks over.
    TakenOver,
}

/// What writes wait for at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Nothing.
    None,
    /// A rate limit.
    Limit,
    /// A device.
    Device,
}

/// What happens in a run.
#[derive(Clone, Copy, Debug)]
struct Scene {
    fate: Fate,
    wait: Wait,
    paths: usize,
    /// None: as the drivers of the kernel have it.
    resets_at_death: Option<bool>,
    /// The outage is that of one of two paths, and is over only after there is something newer by
    /// the other one.
    outlasts: bool,
    /// A sync fails during the outage, and afterwards the storage loses what is not durable.
    fails_sync: bool,
}

/// A host that gives up before the target does.
fn impatient(options: &mut Options) {
    options.keep_alive_tmo = Duration::from_secs(5);
    options.io_timeout = 40 * MS;
    options.admin_timeout = 40 * MS;
    options.connect_timeout = 50 * MS;
    options.reconnect_delay = 5 * MS;
}

struct Run {
    testbed: Testbed,
    client: Client,
    random: Random,
    scene: Scene,
    /// The port that an outage of one path is of.
    port: usize,
}

impl Run {
    fn new(seed: u64, scene: Scene) -> Self {
        let hosts = if scene.fate == Fate::TakenOver { 2 } else { 1 };
        let size = Size { groups: 2, hosts, queues: 2 };
        let resets_at_death = scene.resets_at_death;
        let tune = Tune { options: impatient, resets_at_death };
        let testbed = Testbed::tuned(seed, "stored:1MiB", size, scene.paths, tune);
        testbed.world.set_network(NetworkConditions {
            latency: Duration::from_micros(200),
            jitter: Duration::from_micros(300),
            split_probability: 0.1,
            ..NetworkConditions::default()
        });
        let client = Client::new(seed, 0, 0, BLOCKS);
        Self { testbed, client, random: Random::new(seed ^ 0x0a75), scene, port: 0 }
    }

    fn now(&self) -> Duration {
        self.testbed.world.now()
    }

    /// A time between two, at random.
    fn between(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.random.below(most - least + 1))
    }

    /// Lets time pass, with new requests or without.
    fn pass(&mut self, time: Duration, begins: bool) {
        let end = self.now() + time;
        while self.now() < end {
            if begins {
                self.client.begin(&mut self.testbed);
            }
            self.testbed.step_within(end);
            self.client.collect(&mut self.testbed);
        }
    }

    fn requests(&mut self, count: u64) {
        let enough = self.client.ended() + count;
        while self.client.ended() < enough {
            self.client.begin(&mut self.testbed);
            self.testbed.step();
            self.client.collect(&mut self.testbed);
        }
    }

    fn finish(&mut self) {
        Client::finish(std::slice::from_mut(&mut self.client), &mut self.testbed, BOUND);
    }

    fn check(&mut self) {
        self.client.begin_check(&mut self.testbed);
        self.finish();
    }

    /// Has the writes that come from now on wait at the target.
    fn hold_writes(&mut self) {
        match self.scene.wait {
            Wait::None => {}
            Wait::Limit => {
                let rate = 10 + self.random.below(100);
                self.limit_writes(rate);
            }
            Wait::Device => {
                // Longer than a controller has for the commands of an association that has ended.
                let most = if self.scene.paths > 1 { 3000 } else { 600 };
                let delay = self.between(50, most);
                self.slow_device(delay);
            }
        }
    }

    fn limit_writes(&mut self, rate: u64) {
        let rw = RateLimitedCommands::Write;
        let limit = RateLimit { rw, rate_iops: Some(rate), force: true, ..RateLimit::default() };
        self.testbed.set_rate_limits(vec![limit]);
    }

    fn slow_device(&mut self, jitter: Duration) {
        self.testbed
            .world
            .set_storage(StorageConditions { jitter, ..StorageConditions::default() });
    }

    /// The network is out for a while, and the host meets its fate.
    fn outage(&mut self) -> Duration {
        self.port = usize::from(self.scene.paths > 1 && self.random.chance(0.5));
        let address = self.address();
        let before = self.between(0, 20);
        self.pass(before, true);
        self.hold_writes();
        let held = self.between(1, 20);
        self.pass(held, true);
        if self.scene.fails_sync {
            self.client.may_lose_writes();
            self.testbed.fail_sync();
        }
        self.testbed.world.set_outage(address, true);
        let began = self.now();
        let out = self.between(1, 250);
        self.pass(out, true);
        if self.scene.fate != Fate::GivesUp {
            self.testbed.kill_host(0);
            self.client.died();
            let dead = self.between(10, 60);
            self.pass(dead, false);
        }
        // What is new is not held up.
        self.slow_device(Duration::ZERO);
        if !self.scene.outlasts {
            self.testbed.world.set_outage(address, false);
        }
        self.now() - began
    }

    /// What is out.
    fn address(&self) -> IpAddr {
        match self.scene.paths {
            1 => Testbed::host_address(0),
            _ => Testbed::port_address(self.port),
        }
    }

    /// The sync that failed is noticed with the next flush at the latest. Then the storage loses
    /// what is not durable.
    fn crash(&mut self) {
        for _ in 0..20 {
            if !self.client.has_lost_writes() {
                self.requests(REQUESTS);
            }
        }
        self.finish();
        assert!(self.client.has_lost_writes(), "a sync that has failed was not noticed");
        self.testbed.world.crash_files();
        self.client.crashed();
        self.check();
    }

    /// Whoever goes on is connected.
    fn go_on(&mut self) {
        match self.scene.fate {
            Fate::GivesUp => {}
            Fate::Killed => {
                match self.scene.outlasts {
                    true => self.testbed.revive_host_by(1 - self.port, 0, SUBSYSTEM),
                    false => self.testbed.revive_host(0, SUBSYSTEM),
                }
                let end = self.now() + BOUND;
                while !self.testbed.open(0, 2) {
                    assert!(self.now() < end, "the host does not connect");
                    self.testbed.step();
                }
            }
            Fate::TakenOver => self.client.move_to(1),
        }
    }
}

fn run(seed: u64, scene: Scene) {
    let mut run = Run::new(seed, scene);
    run.requests(REQUESTS);
    let out = run.outage();
    run.go_on();
    if scene.fate != Fate::GivesUp {
        run.check();
    }
    // What was pending is sent again, and then there is something newer.
    for _ in 0..2 {
        run.requests(REQUESTS);
        run.finish();
        run.check();
    }
    let mut late = out + LATE;
    if scene.outlasts {
        late += run.now();
        run.testbed.world.set_outage(run.address(), false);
    }
    // What comes late has come.
    run.pass(late, false);
    run.check();
    if scene.fails_sync {
        run.crash();
    }
    run.testbed.set_rate_limits(Vec::new());
    run.testbed.finish();
}

fn all(scene: Scene) {
    run_a_tenth(|seed| run(seed, scene));
}

fn scene(fate: Fate, wait: Wait) -> Scene {
    Scene { fate, wait, paths: 1, resets_at_death: Some(true), outlasts: false, fails_sync: false }
}

fn paths(wait: Wait) -> Scene {
    Scene { paths: 2, ..scene(Fate::GivesUp, wait) }
}

#[test]
fn what_a_killed_host_has_sent_does_not_come_after_what_it_sends_anew() {
    all(Scene { resets_at_death: None, ..scene(Fate::Killed, Wait::None) });
}

#[test]
fn what_a_killed_host_has_sent_does_not_come_after_what_another_one_sends() {
    all(Scene { resets_at_death: None, ..scene(Fate::TakenOver, Wait::None) });
}

#[test]
fn bytes_that_outlive_their_process_are_found() {
    let scene = Scene { resets_at_death: Some(false), ..scene(Fate::TakenOver, Wait::None) };
    let loses = |seed| std::panic::catch_unwind(|| run(seed, scene)).is_err();
    assert!((0..1000).any(loses), "nothing was found where nothing was reset");
}

/// Whoever writes by the other path is the same host, so that its dead process's connections end,
/// also those without commands at the target.
#[test]
fn what_a_killed_host_has_not_reset_does_not_come_after_what_it_sends_by_another_path() {
    let killed = scene(Fate::Killed, Wait::None);
    all(Scene { resets_at_death: Some(false), outlasts: true, paths: 2, ..killed });
}

#[test]
fn what_waits_for_a_limit_is_not_executed_after_its_host_has_connected_anew() {
    all(scene(Fate::GivesUp, Wait::Limit));
}

#[test]
fn what_waits_for_a_limit_is_not_executed_after_its_host_was_started_anew() {
    all(scene(Fate::Killed, Wait::Limit));
}

#[test]
fn what_a_device_has_is_over_before_its_host_has_connected_anew() {
    all(scene(Fate::GivesUp, Wait::Device));
}

#[test]
fn what_a_device_has_is_over_before_its_host_was_started_anew() {
    all(scene(Fate::Killed, Wait::Device));
}

#[test]
fn what_waits_for_a_limit_is_not_executed_after_another_path_was_taken() {
    all(paths(Wait::Limit));
}

#[test]
fn what_a_device_has_is_over_before_another_path_is_taken() {
    all(paths(Wait::Device));
}

#[test]
fn nothing_is_acknowledged_as_durable_after_a_sync_has_failed_in_an_outage() {
    for fate in [Fate::GivesUp, Fate::Killed, Fate::TakenOver] {
        all(Scene { fails_sync: true, ..scene(fate, Wait::None) });
    }
}

#[test]
fn nothing_is_acknowledged_as_durable_by_another_path_after_a_sync_has_failed() {
    all(Scene { fails_sync: true, ..paths(Wait::None) });
}
