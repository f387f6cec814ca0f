//! Random rules of classes and limits, arrivals, aborts, disconnections and changes of the rules:
//! every command ends once, and no host with work waits longer than a bound while no limit holds it
//! up.
//!
//! 400 seeds, or those of `WEFT_SEEDS`, a quarter of them in each test.

use std::time::Duration;

use weft_backend::{Operation, Request};
use weft_reactor::simulation::{NetworkConditions, Random, StorageConditions};
use weft_sim::{BLOCK_BYTES, Client, Link, SUBSYSTEM, Size, Testbed, seeds};
use weft_target::config::{QosClass, QosRule, RateLimit};
use weft_transport::rdma::software::Fabric;

const SIZE: Size = Size { groups: 1, hosts: 3, queues: 2 };
const BLOCKS: usize = 60;

/// Commands of a host in a run.
const COMMANDS: u64 = 40;

/// A host with work has an answer within this time, if no limit holds it up: its commands cross the
/// network six times at most, 24 commands of each of 3 hosts with 160 KiB of data take 1.8 ms to be
/// sent at 10 µs for 64 KiB, and the target works on each for 3 µs some ten times.
const BOUND: Duration = Duration::from_millis(5);

/// A command waits for a limit at most so long; the hosts abort it after 3 s.
const LIMITED_BOUND: Duration = Duration::from_secs(60);

fn random_rules(random: &mut Random) -> Vec<QosRule> {
    let hosts = (0..3).map(|host| Some(Testbed::host_name(host).into())).chain([None]);
    let mut rules = Vec::new();
    for host in hosts {
        let class = match random.below(4) {
            0 | 1 => continue,
            2 => QosClass::Latency,
            _ => QosClass::Throughput,
        };
        let weight = u16::try_from(1 + random.below(1000)).expect("small");
        rules.push(QosRule {
            host,
            subsystem: random.chance(0.3).then(|| SUBSYSTEM.to_owned()),
            port: None,
            class,
            weight: random.chance(0.5).then_some(weight),
        });
    }
    rules
}

fn random_limits(random: &mut Random) -> Vec<RateLimit> {
    let host = Testbed::host_name(usize::try_from(random.below(3)).expect("small"));
    let limit = RateLimit { force: true, ..RateLimit::default() };
    match random.below(4) {
        0 => vec![RateLimit { rate_iops: Some(50 + random.below(5000)), ..limit }],
        1 => vec![RateLimit {
            host: Some(host.into()),
            rate: Some((1 << 20) + random.below(64 << 20)),
            ..limit
        }],
        _ => Vec::new(),
    }
}

/// What a host has to show for the time that it has waited.
#[derive(Debug, Clone, Copy)]
struct Progress {
    ended: u64,
    since: Duration,
}

fn run(seed: u64) {
    let mut random = Random::new(seed ^ 0x150_1a7e);
    let mut testbed = Testbed::new(seed, "memory:1MiB", SIZE);
    let is_rough = random.chance(0.25);
    if is_rough {
        testbed.world.set_network(NetworkConditions {
            jitter: Duration::from_micros(100),
            split_probability: 0.2,
            reset_probability: 0.001,
            silence_probability: 0.0002,
            ..NetworkConditions::default()
        });
    }
    testbed.world.set_work_time(Duration::from_nanos(random.below(3000)));
    testbed.world.set_send_time(Duration::from_micros(random.below(10)));
    let mut clients: Vec<_> = Client::of_each_host(&testbed, seed, BLOCKS)
        .into_iter()
        .map(|client| if random.chance(0.5) { client.small() } else { client })
        .collect();
    let mut progress = vec![Progress { ended: 0, since: testbed.world.now() }; clients.len()];
    let (mut is_limited, mut is_broken) = (false, is_rough);
    while clients.iter().any(|client| client.ended() < COMMANDS || !client.is_idle()) {
        for client in clients.iter_mut().filter(|client| client.ended() < COMMANDS) {
            if random.chance(0.5) {
                client.begin(&mut testbed);
            }
        }
        let now = testbed.world.now();
        match random.below(200) {
            0 if random.chance(0.1) => {
                testbed.reset(usize::try_from(random.below(3)).expect("small"));
                is_broken = true;
            }
            1..4 => testbed.set_qos_rules(random_rules(&mut random)),
            4 => {
                let limits = random_limits(&mut random);
                is_limited = !limits.is_empty();
                testbed.set_rate_limits(limits);
                progress.iter_mut().for_each(|one| one.since = now);
            }
            _ => {}
        }
        testbed.step();
        let now = testbed.world.now();
        for (client, progress) in clients.iter_mut().zip(&mut progress) {
            client.collect(&mut testbed);
            if client.ended() > progress.ended || client.is_idle() {
                *progress = Progress { ended: client.ended(), since: now };
            }
            let bound = if is_limited || is_broken { LIMITED_BOUND } else { BOUND };
            let waited = now - progress.since;
            assert!(waited <= bound, "seed {seed}: a host has waited {waited:?}: {client:?}");
        }
    }
    testbed.finish();
}

#[test]
fn rules_keep_every_command_and_no_host_waits_first_quarter() {
    seeds(0, 4).for_each(run);
}

#[test]
fn rules_keep_every_command_and_no_host_waits_second_quarter() {
    seeds(1, 4).for_each(run);
}

#[test]
fn rules_keep_every_command_and_no_host_waits_third_quarter() {
    seeds(2, 4).for_each(run);
}

#[test]
fn rules_keep_every_command_and_no_host_waits_fourth_quarter() {
    seeds(3, 4).for_each(run);
}

fn read(testbed: &mut Testbed, (host, tag): (usize, u64), blocks: u32) {
    let (reactor, device) = testbed.device(host, 0);
    let into = reactor.pool().take(blocks as usize * BLOCK_BYTES).expect("a large pool");
    let operation = Operation::Read { slba: 0, nlb: blocks, into };
    device.submit(reactor, Request { tag, operation });
}

/// How long a channel of the device works on a read of 128 KiB.
const READ_TIME: Duration = Duration::from_micros(400);

/// A host that reads 4 KiB at a time from a file whose device has so many channels, beside one that
/// keeps so many reads of 128 KiB in flight: the largest time but for 1 %, and the other's reads.
fn beside(channels: usize, depth: u64, is_on: bool) -> (Duration, u64) {
    let mut testbed = Testbed::new(7, "stored:16MiB", Size { groups: 1, hosts: 2, queues: 1 });
    testbed.set_express(is_on);
    testbed.world.set_storage(StorageConditions {
        latency: Duration::from_micros(60),
        service: READ_TIME / 2,
        channels,
        ..StorageConditions::default()
    });
    let (mut begun, mut ended, mut counted) = (0, 0, 0);
    let mut times = Vec::new();
    let mut since = testbed.world.now();
    read(&mut testbed, (0, 0), 1);
    while times.len() < 300 {
        while begun - ended < depth {
            read(&mut testbed, (1, begun), 32);
            begun += 1;
        }
        testbed.run_until("nothing is left to do at this moment", |_| true);
        let done = testbed.finished(1).len() as u64;
        ended += done;
        counted += if times.len() >= 100 { done } else { 0 };
        if !testbed.finished(0).is_empty() {
            let now = testbed.world.now();
            times.push(now - since);
            since = now;
            read(&mut testbed, (0, times.len() as u64), 1);
        } else {
            testbed.step();
        }
    }
    let mut is_left = true;
    while begun > ended || is_left {
        testbed.step();
        ended += testbed.finished(1).len() as u64;
        is_left &= testbed.finished(0).is_empty();
    }
    let mut times = times.split_off(100);
    let all: Duration = times.iter().sum();
    times.sort_unstable();
    // In a second.
    let rate = u128::from(counted) * 1_000_000_000 / all.as_nanos();
    testbed.finish();
    (times[times.len() * 99 / 100], u64::try_from(rate).expect("few"))
}

/// A device works on what it has in its order. So with express queues it has only as many requests
/// of others as it works on, and a few more: the small host waits for these, and the others lose
/// little.
#[test]
fn what_others_have_in_a_device_is_bounded_by_its_delay() {
    for channels in [1, 4] {
        let (alone, none) = beside(channels, 0, true);
        assert_eq!(none, 0);
        let (without, others) = beside(channels, 64, false);
        let (with, kept) = beside(channels, 64, true);
        let figures =
            format!("{channels}: {alone:?} alone, {without:?} to {with:?}, {others} to {kept}");
        assert!(with <= alone + 3 * READ_TIME, "{figures}");
        assert!(without >= with + READ_TIME, "{figures}");
        assert!(kept * 10 >= others * 8, "{figures}");
    }
}

/// Over RDMA, how many of another host's reads of 128 KiB end before one of 4 KiB that has come
/// after them: at most, of some times.
fn others_before(is_on: bool) -> usize {
    let size = Size { groups: 1, hosts: 2, queues: 1 };
    let mut testbed = Testbed::over(Link::Rdma(Fabric::default()), 7, "memory:16MiB", size);
    testbed.set_qos_rules(vec![QosRule {
        host: Some(Testbed::host_name(0).into()),
        subsystem: None,
        port: None,
        class: if is_on { QosClass::Latency } else { QosClass::Throughput },
        weight: None,
    }]);
    let mut most = 0;
    for round in 0..20 {
        testbed.run_until("nothing is left to do", |_| true);
        (0..12).for_each(|tag| read(&mut testbed, (1, tag), 32));
        let (reactor, device) = testbed.device(1, 0);
        device.flush(reactor);
        read(&mut testbed, (0, round), 1);
        let (mut before, mut after) = (0, 0);
        let mut has_ended = false;
        while !has_ended || before + after < 12 {
            testbed.turn();
            let others = testbed.finished(1).len();
            has_ended |= !testbed.finished(0).is_empty();
            if has_ended { after += others } else { before += others }
        }
        most = most.max(before);
    }
    testbed.finish();
    most
}

/// The small one's answer is among the first, as others' data is written a slice at a time; in its
/// turn it comes after theirs.
#[test]
fn small_reads_come_before_others_over_rdma() {
    let (with, without) = (others_before(true), others_before(false));
    assert!(with <= 2 && without >= 4, "{with} with, {without} without");
}

/// How long a host takes to send 64 KiB.
const SEND_TIME: Duration = Duration::from_micros(10);

/// L, which reads 4 KiB 5,000 times a second, and T, which writes 128 KiB at this depth, by queue
/// pairs of one thread of one host: the p99 of L, and T's writes in a second. T's device is the
/// first of the host; that which is express is idle, or L's.
fn on_one_thread(depth: u64, is_express: bool) -> (Duration, u64) {
    let mut testbed = Testbed::new(7, "memory:16MiB", Size { groups: 1, hosts: 1, queues: 3 });
    testbed.set_express(false);
    testbed.world.set_send_time(SEND_TIME);
    testbed.make_express(0, if is_express { 1 } else { 2 });
    let (mut begun, mut ended, mut quiet, mut times) = (0, 0, 0, Vec::new());
    let (begin, mut due) = (testbed.world.now(), Vec::new());
    while times.len() < 200 || times.len() < due.len() || ended < begun {
        while times.len() < 200 && begun - ended < depth {
            let (reactor, device) = testbed.device(0, 0);
            let from = reactor.pool().take(32 * BLOCK_BYTES).expect("a large pool");
            let operation = Operation::Write { slba: 64, nlb: 32, from, durable: false };
            device.submit(reactor, Request { tag: 0, operation });
            begun += 1;
        }
        let next = begin + Duration::from_micros(200) * u32::try_from(due.len()).expect("few");
        if times.len() < 200 && next <= testbed.world.now() {
            let (reactor, device) = testbed.device(0, 1);
            let into = reactor.pool().take(BLOCK_BYTES).expect("a large pool");
            let request = Request { tag: 1, operation: Operation::Read { slba: 0, nlb: 1, into } };
            match is_express {
                true => testbed.submit_express(0, request),
                false => device.submit(reactor, request),
            }
            due.push(next);
        }
        quiet = if testbed.turn() { 0 } else { quiet + 1 };
        if quiet == 3 {
            testbed.world.advance();
            quiet = 0;
        }
        let now = testbed.world.now();
        let others = testbed.finished(0).into_iter().map(|done| (now, done));
        for (at, done) in testbed.finished_express(0).into_iter().chain(others) {
            assert_eq!(done.result, Ok(()));
            match done.tag {
                0 => ended += 1,
                // They are answered in their order.
                _ => times.push(at - due[times.len()]),
            }
        }
    }
    let rate = u128::from(ended) * 1_000_000_000 / (testbed.world.now() - begin).as_nanos();
    testbed.finish();
    times.sort_unstable();
    (times[times.len() * 99 / 100], u64::try_from(rate).expect("few"))
}

/// The host's end: the bar is 60 µs on top of what L takes alone, or half as much again.
#[test]
fn small_reads_do_not_wait_for_other_jobs_of_their_thread() {
    let (alone, _) = on_one_thread(0, true);
    for depth in [4, 32] {
        let (in_turn, before) = on_one_thread(depth, false);
        let (express, kept) = on_one_thread(depth, true);
        let figures =
            format!("{depth}: {alone:?} alone, {in_turn:?} to {express:?}, {before} to {kept}");
        assert!(express <= (alone + Duration::from_micros(60)).max(alone * 3 / 2), "{figures}");
        assert!(in_turn > express, "{figures}");
        assert!(kept * 10 >= before * 9, "{figures}");
    }
}
