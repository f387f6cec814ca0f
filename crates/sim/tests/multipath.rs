//! Several paths to one target: whatever happens to them, no acknowledged write is lost, and every
//! request ends once there is a path.

use std::time::Duration;

use weft_host::IoPolicy;
use weft_reactor::simulation::{NetworkConditions, Random};
use weft_sim::{Client, Size, Testbed, seeds};
use weft_target::config::AnaState;

/// Blocks of one client: few, so that requests overlap.
const BLOCKS: usize = 60;
const PATHS: usize = 2;
const SIZE: Size = Size { groups: 2, hosts: 2, queues: 2 };
/// Virtual time in which all requests end once nothing fails any more. Longer than the I/O
/// time-out, reconnection and the fence together.
const BOUND: Duration = Duration::from_secs(30);

fn rough() -> NetworkConditions {
    NetworkConditions {
        latency: Duration::from_micros(200),
        jitter: Duration::from_micros(300),
        split_probability: 0.2,
        reset_probability: 0.003,
        silence_probability: 0.001,
        refusal_probability: 0.1,
        ..NetworkConditions::default()
    }
}

/// What happened in a run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Run {
    fingerprint: u64,
    lost: u64,
    states: u32,
    ports: u32,
    ended: u32,
}

/// What is done to the paths.
#[derive(Debug, Default)]
struct Paths {
    /// Whose port is not there.
    away: [bool; PATHS],
    /// That all hosts have let go of.
    ended: Option<usize>,
}

/// One change of the paths, at random; none most of the time.
fn disturb(testbed: &mut Testbed, random: &mut Random, paths: &mut Paths, run: &mut Run) {
    let path = usize::from(random.chance(0.5));
    match random.below(400) {
        0..4 => {
            let state = AnaState::ALL[usize::try_from(random.below(5)).expect("small")];
            testbed.set_access(path, state);
            run.states += 1;
        }
        4 | 5 => {
            paths.away[path] = !paths.away[path];
            testbed.set_port(path, !paths.away[path]);
            run.ports += 1;
        }
        6 if paths.ended.is_none() => testbed.reset(path),
        // Requests fail when there is no path.
        7 if paths.ended.is_none() => {
            testbed.end_path(path);
            paths.ended = Some(path);
            run.ended += 1;
        }
        8..12 if paths.ended.is_some_and(|ended| testbed.add_path(ended)) => paths.ended = None,
        _ => {}
    }
}

fn run(seed: u64, device: &str, policy: IoPolicy, requests: u64) -> Run {
    let mut testbed = Testbed::multipath(seed, device, SIZE, PATHS, policy);
    testbed.world.set_network(rough());
    let mut clients = Client::of_each_host(&testbed, seed, BLOCKS);
    let mut random = Random::new(seed ^ 0xd1ce);
    let (mut run, mut paths) = (Run::default(), Paths::default());
    while clients.iter().any(|client| client.ended() < requests) {
        for client in clients.iter_mut().filter(|client| client.ended() < requests) {
            client.begin(&mut testbed);
        }
        disturb(&mut testbed, &mut random, &mut paths, &mut run);
        testbed.step();
        clients.iter_mut().for_each(|client| client.collect(&mut testbed));
    }
    testbed.world.set_network(NetworkConditions::default());
    for (path, away) in paths.away.into_iter().enumerate() {
        if away {
            testbed.set_port(path, true);
        }
        testbed.set_access(path, AnaState::Optimized);
    }
    if let Some(ended) = paths.ended {
        while !testbed.add_path(ended) {
            testbed.step();
        }
    }
    Client::finish(&mut clients, &mut testbed, BOUND);
    clients.iter_mut().for_each(|client| client.begin_check(&mut testbed));
    Client::finish(&mut clients, &mut testbed, BOUND);
    run.fingerprint = testbed.world.fingerprint();
    run.lost = clients.iter().map(Client::lost).sum();
    testbed.finish();
    run
}

/// A run whose policy and device are its seed's.
fn run_of(seed: u64) -> Run {
    let policy = IoPolicy::ALL[usize::try_from(seed % 4).expect("small")];
    let device = match seed % 3 {
        0 => "memory:4MiB",
        1 => "delay:read=50us,write=2ms:memory:4MiB",
        // Longer than it takes to send a request by another path.
        _ => "delay:read=1ms,write=300ms:memory:4MiB",
    };
    run(seed, device, policy, 40)
}

/// A half of the seeds, so that the halves run at the same time.
fn half(number: u64) {
    let (mut lost, mut states, mut ports, mut ended) = (0, 0, 0, 0);
    let seeds = seeds(number, 2);
    let some = (seeds.end - seeds.start) / 10;
    for seed in seeds {
        let run = run_of(seed);
        lost += run.lost;
        states += u64::from(run.states);
        ports += u64::from(run.ports);
        ended += u64::from(run.ended);
    }
    let enough = lost > 0 && states > some && ports > some && ended > some;
    // A few seeds alone are looked at for what they find.
    assert!(enough || some == 0, "too little happened: {lost} {states} {ports} {ended}");
}

#[test]
fn whatever_happens_to_the_paths_no_acknowledged_write_is_lost_first_half() {
    half(0);
}

#[test]
fn whatever_happens_to_the_paths_no_acknowledged_write_is_lost_second_half() {
    half(1);
}

#[test]
fn seeds_that_have_found_something() {
    // A controller had ended before one of its queues connected: its path was given up for good.
    run_of(112_464);
    // A connection was lost between the answers to a Compare, aborted because of its Write, and to
    // this Write, which had the reason.
    run_of(194_742);
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = || run(77, "delay:read=50us,write=2ms:memory:4MiB", IoPolicy::RoundRobin, 150);
    assert_eq!(run(), run());
}
