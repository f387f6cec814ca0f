//! Rate limits in virtual time: nothing is admitted beyond them, what they allow is done, and
//! every command ends once, whatever is aborted, disconnected or reloaded.

use std::collections::VecDeque;
use std::time::Duration;

use weft_backend::{Operation, Request};
use weft_reactor::simulation::{NetworkConditions, Random};
use weft_sim::{BLOCK_BYTES, Client, SUBSYSTEM, Size, Testbed};
use weft_target::config::{Hosts, RateLimit, RateLimitedCommands};

const BLOCKS: usize = 60;
const GROUPS: u64 = 2;
const TWO: Size = Size { groups: 2, hosts: 2, queues: 2 };
const MS: Duration = Duration::from_millis(1);
const DEVICE: &str = "memory:1MiB";

fn iops(rate: u64) -> RateLimit {
    RateLimit { rate_iops: Some(rate), force: true, ..RateLimit::default() }
}

fn bandwidth(rate: u64) -> RateLimit {
    RateLimit { rate: Some(rate), force: true, ..RateLimit::default() }
}

/// Commands and bytes that went to devices, of all groups, with the time.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Duration,
    commands: u64,
    bytes: u64,
}

fn sample(testbed: &Testbed) -> Sample {
    let at = testbed.world.now();
    let (mut commands, mut bytes) = (0, 0);
    for served in testbed.statistics().read(at).iter().flat_map(|group| &group.served) {
        commands += served.reads + served.writes;
        bytes += served.read_bytes + served.written_bytes;
    }
    Sample { at, commands, bytes }
}

/// In any time: at most the rate of it, the burst, one command, and 1 ms for each group.
fn check_windows(samples: &VecDeque<Sample>, limit: &RateLimit, largest: u64) {
    let Some(end) = samples.back() else { return };
    for begin in samples {
        let time = end.at - begin.at + limit.burst + MS * u32::try_from(GROUPS).expect("few");
        for (rate, done, one) in [
            (limit.rate_iops, end.commands - begin.commands, 1),
            (limit.rate, end.bytes - begin.bytes, largest),
        ] {
            let Some(rate) = rate else { continue };
            let most = u128::from(rate) * time.as_nanos() / 1_000_000_000 + u128::from(one) + 1;
            let within = end.at - begin.at;
            assert!(u128::from(done) <= most, "{done} in {within:?}, not {most}: {limit:?}");
        }
    }
}

/// Keeps `depth` reads of one size in flight at a host.
#[derive(Debug)]
struct Reader {
    host: usize,
    blocks: u32,
    submitted: u64,
    ended: u64,
}

impl Reader {
    fn new(host: usize, blocks: u32) -> Self {
        Self { host, blocks, submitted: 0, ended: 0 }
    }

    fn fill(&mut self, testbed: &mut Testbed, depth: u64) {
        while self.submitted - self.ended < depth {
            let tag = self.submitted;
            let queue = usize::try_from(tag % 2).expect("small");
            let (reactor, device) = testbed.device(self.host, queue);
            let bytes = self.blocks as usize * BLOCK_BYTES;
            let into = reactor.pool().take(bytes).expect("a large pool");
            let operation = Operation::Read { slba: 0, nlb: self.blocks, into };
            device.submit(reactor, Request { tag, operation });
            self.submitted += 1;
        }
    }

    fn collect(&mut self, testbed: &mut Testbed) {
        for done in testbed.finished(self.host) {
            assert_eq!(done.result, Ok(()));
            self.ended += 1;
        }
    }
}

/// Runs readers for a time and returns how many commands each has completed in it.
fn drive(testbed: &mut Testbed, readers: &mut [Reader], depth: u64, time: Duration) -> Vec<u64> {
    let before: Vec<_> = readers.iter().map(|reader| reader.ended).collect();
    let end = testbed.world.now() + time;
    while testbed.world.now() < end {
        readers.iter_mut().for_each(|reader| reader.fill(testbed, depth));
        testbed.step();
        readers.iter_mut().for_each(|reader| reader.collect(testbed));
    }
    readers.iter().zip(before).map(|(reader, before)| reader.ended - before).collect()
}

fn finish(mut testbed: Testbed, readers: &mut [Reader]) {
    testbed.set_rate_limits(Vec::new());
    while readers.iter().any(|reader| reader.ended < reader.submitted) {
        testbed.step();
        readers.iter_mut().for_each(|reader| reader.collect(&mut testbed));
    }
    testbed.finish();
}

/// Within 2 % and one command.
fn assert_near(done: u64, expected: u64) {
    let slack = expected / 50 + 1;
    assert!(done.abs_diff(expected) <= slack, "{done}, not {expected}");
}

#[test]
fn the_rate_is_kept_and_used_up() {
    for (limit, blocks, expected) in [
        (iops(100), 1, 1000),
        (iops(1_001), 1, 10_010),
        (bandwidth(1 << 20), 1, 2560),
        (bandwidth(10 << 20), 8, 3200),
    ] {
        let mut testbed = Testbed::new(1, DEVICE, TWO);
        testbed.set_rate_limits(vec![limit.clone()]);
        let mut readers = [Reader::new(0, blocks), Reader::new(1, blocks)];
        // The burst is over.
        drive(&mut testbed, &mut readers, 8, Duration::from_secs(1));
        let done = drive(&mut testbed, &mut readers, 8, Duration::from_secs(10));
        assert_near(done.iter().sum(), expected);
        // The hosts' queues are in both groups.
        assert!(done[0].abs_diff(done[1]) <= expected / 20 + 2, "{limit:?}: {done:?}");
        finish(testbed, &mut readers);
    }
}

#[test]
fn the_tightest_limit_binds_and_siblings_do_not_notice() {
    let mut testbed = Testbed::new(2, DEVICE, TWO);
    let host = Some(Testbed::host_name(0).into());
    let subsystem = Some(SUBSYSTEM.to_owned());
    let both = RateLimit { host: host.clone(), ..iops(500) };
    let one = RateLimit { host, subsystem: subsystem.clone(), nsid: Some(1), ..iops(200) };
    let all = RateLimit { subsystem, rw: RateLimitedCommands::Read, ..iops(1000) };
    testbed.set_rate_limits(vec![both, one.clone(), all]);
    let mut readers = [Reader::new(0, 1), Reader::new(1, 1)];
    drive(&mut testbed, &mut readers, 8, Duration::from_secs(1));
    let done = drive(&mut testbed, &mut readers, 8, Duration::from_secs(10));
    assert_near(done[0], 2000);
    assert_near(done[1], 8000);
    let waited = testbed.statistics().rate_limits();
    let binding = waited.iter().find(|limit| limit.nsid == one.nsid).expect("it");
    assert!(binding.throttled > 1900, "{waited:?}");
    assert!(binding.throttled_ns > 10_000_000_000, "{waited:?}");
    assert_eq!(waited[0].throttled, 0, "the wider limit of the host does not bind");
    finish(testbed, &mut readers);
}

/// A thousand changes under load: 10 ms after each, what is admitted is the new rate, whatever the
/// old one was.
#[test]
fn other_limits_are_in_force_within_10_ms() {
    let mut random = Random::new(3);
    let mut testbed = Testbed::new(3, DEVICE, TWO);
    testbed.set_rate_limits(vec![iops(1)]);
    let mut readers = [Reader::new(0, 1), Reader::new(1, 1)];
    drive(&mut testbed, &mut readers, 8, Duration::from_secs(1));
    for change in 0..1000 {
        let rate = 500 + random.below(4000);
        testbed.set_rate_limits(vec![iops(rate)]);
        drive(&mut testbed, &mut readers, 8, 10 * MS);
        let begin = sample(&testbed);
        drive(&mut testbed, &mut readers, 8, 20 * MS);
        let end = sample(&testbed);
        let time = (end.at - begin.at).as_micros();
        let expected = u64::try_from(u128::from(rate) * time / 1_000_000).expect("few");
        let done = end.commands - begin.commands;
        // What accrues in 1 ms of each group may be used before or after.
        let slack = rate * GROUPS / 1000 + 2;
        assert!(done.abs_diff(expected) <= slack, "{change}: {done}, not {expected} at {rate}");
    }
    finish(testbed, &mut readers);
}

/// Two hosts are one tenant: they share a rate, and a third does not notice.
#[test]
fn a_group_of_hosts_is_under_one_limit() {
    let size = Size { hosts: 3, ..TWO };
    let mut testbed = Testbed::new(2, DEVICE, size);
    let hosts = Hosts::group([0, 1].map(Testbed::host_name));
    let group = RateLimit { host: hosts, ..iops(600) };
    let only = RateLimit { host: Some(Testbed::host_name(1).into()), ..iops(100) };
    testbed.set_rate_limits(vec![group.clone()]);
    let mut readers = [0, 1, 2].map(|host| Reader::new(host, 1));
    drive(&mut testbed, &mut readers, 8, Duration::from_millis(300));
    let done = drive(&mut testbed, &mut readers, 8, Duration::from_secs(1));
    assert_near(done[0] + done[1], 600);
    assert!(done[0].abs_diff(done[1]) <= 20 && done[2] > 10 * 600, "{done:?}");
    // A limit of one of them besides: the other has the rest of the group's.
    testbed.set_rate_limits(vec![group, only]);
    drive(&mut testbed, &mut readers[..2], 8, Duration::from_secs(1));
    let done = drive(&mut testbed, &mut readers[..2], 8, Duration::from_secs(5));
    assert_near(done[1], 500);
    assert_near(done[0], 2500);
    finish(testbed, &mut readers);
}

/// Random limits, changes of them, resets of controllers and commands that reach their timeout
/// while they wait, which hosts abort.
fn run(seed: u64, network: NetworkConditions) -> u64 {
    let mut random = Random::new(seed ^ 0x11a1);
    let mut testbed = Testbed::new(seed, DEVICE, TWO);
    testbed.world.set_network(network);
    let mut clients = Client::of_each_host(&testbed, seed, BLOCKS);
    let mut waited = 0;
    while clients.iter().any(|client| client.ended() < 150 || !client.is_idle()) {
        for client in clients.iter_mut().filter(|client| client.ended() < 150) {
            client.begin(&mut testbed);
        }
        match random.below(1000) {
            0 => testbed.reset(0),
            1..4 => {
                waited += throttled(&testbed);
                testbed.set_rate_limits(random_limit(&mut random).into_iter().collect());
            }
            _ => {}
        }
        testbed.step();
        clients.iter_mut().for_each(|client| client.collect(&mut testbed));
    }
    testbed.finish();
    waited
}

fn throttled(testbed: &Testbed) -> u64 {
    testbed.statistics().rate_limits().iter().map(|one| one.throttled).sum()
}

/// Random limits and changes of them, under reads of random sizes from two hosts.
fn run_readers(seed: u64) {
    let mut random = Random::new(seed ^ 0x22b2);
    let mut testbed = Testbed::new(seed, DEVICE, TWO);
    let size = |random: &mut Random| 1 + u32::try_from(random.below(8)).expect("small");
    let mut readers = [0, 1].map(|host| Reader::new(host, size(&mut random)));
    for _ in 0..4 {
        let limit = random_limit(&mut random).unwrap_or_else(|| iops(3000));
        testbed.set_rate_limits(vec![limit.clone()]);
        let end = testbed.world.now() + MS * 200;
        // The groups have made the change.
        testbed.step();
        let mut samples = VecDeque::new();
        while testbed.world.now() < end {
            let depth = 1 + random.below(24);
            readers.iter_mut().for_each(|reader| reader.fill(&mut testbed, depth));
            testbed.step();
            readers.iter_mut().for_each(|reader| reader.collect(&mut testbed));
            samples.push_back(sample(&testbed));
            if samples.len() > 300 {
                samples.pop_front();
            }
            let largest = readers.iter().map(|reader| reader.blocks).max().unwrap_or(0);
            check_windows(&samples, &limit, u64::from(largest) * BLOCK_BYTES as u64);
        }
    }
    finish(testbed, &mut readers);
}

#[test]
fn no_limit_is_exceeded_in_any_time() {
    (0..8).for_each(run_readers);
}

fn random_limit(random: &mut Random) -> Option<RateLimit> {
    let burst = MS * u32::try_from(random.below(20)).expect("few");
    let limit = match random.below(4) {
        0 => return None,
        // At 1 in a second commands reach their timeout of 3 s.
        1 => iops(1 + random.below(4)),
        2 => iops(100 + random.below(2000)),
        _ => bandwidth(1 + random.below(4 << 20)),
    };
    Some(RateLimit { burst, ..limit })
}

#[test]
fn every_command_under_changing_limits_ends_once() {
    let rough = NetworkConditions {
        latency: Duration::from_micros(200),
        jitter: Duration::from_micros(300),
        split_probability: 0.3,
        reset_probability: 0.001,
        silence_probability: 0.0002,
        ..NetworkConditions::default()
    };
    let mut waited = 0;
    for seed in 0..12 {
        waited += run(seed, NetworkConditions::default());
        waited += run(seed, rough.clone());
    }
    assert!(waited > 100, "only {waited} commands have waited");
}
