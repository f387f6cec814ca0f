//! Runs from seeds: whatever the network does, nothing is lost, told twice or left behind.

use std::time::Duration;

use weft_reactor::simulation::{NetworkConditions, Random};
use weft_sim::{Client, Rig};

/// Blocks of one client: few, so that requests meet on them.
const BLOCKS: usize = 60;

fn rough() -> NetworkConditions {
    NetworkConditions {
        latency: Duration::from_micros(200),
        jitter: Duration::from_micros(300),
        split_probability: 0.3,
        reset_probability: 0.002,
        silence_probability: 0.0003,
        refusal_probability: 0.1,
        ..NetworkConditions::default()
    }
}

/// What a run came to: the world's fingerprint, its time, and requests without an answer.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    fingerprint: u64,
    time: Duration,
    lost: u64,
}

fn run(seed: u64, device: &str, network: NetworkConditions, requests: u64) -> Run {
    let calm = network == NetworkConditions::default();
    let mut rig = Rig::new(seed, device, 2, 2, 2);
    rig.world.set_network(network);
    let mut clients: Vec<_> = (0..rig.hosts())
        .map(|host| {
            let first = (host * BLOCKS) as u64;
            Client::new(seed ^ (host as u64 + 1) << 32, host, first, BLOCKS)
        })
        .collect();
    let mut random = Random::new(seed ^ 0xd1ce);
    while clients.iter().any(|client| client.ended() < requests || !client.is_idle()) {
        for client in clients.iter_mut().filter(|client| client.ended() < requests) {
            client.begin(&mut rig);
        }
        match random.below(3000) {
            0 if !calm => rig.reset(0),
            1 => rig.toggle_namespace(),
            _ => {}
        }
        rig.step();
        clients.iter_mut().for_each(|client| client.collect(&mut rig));
    }
    let run = Run {
        fingerprint: rig.world.fingerprint(),
        time: rig.world.now(),
        lost: clients.iter().map(Client::lost).sum(),
    };
    rig.finish();
    run
}

#[test]
fn a_calm_network_loses_nothing_at_all() {
    for seed in 0..4 {
        let run = run(seed, "memory:4MiB", NetworkConditions::default(), 300);
        assert_eq!(run.lost, 0);
    }
}

#[test]
fn a_rough_network_loses_only_answers() {
    let runs: Vec<_> = (100..112).map(|seed| run(seed, "memory:4MiB", rough(), 300)).collect();
    let slowest = runs.iter().map(|run| run.time).max().expect("some");
    assert!(slowest > Duration::from_secs(1), "the network was too kind: {runs:?}");
}

/// Writes that a slow device still has when their connection ends must not land after newer ones.
#[test]
fn an_old_write_never_lands_after_a_newer_one() {
    let device = "delay:read=1ms,write=700ms:memory:4MiB";
    let worse = NetworkConditions { reset_probability: 0.02, ..rough() };
    for seed in 200..216 {
        run(seed, device, worse.clone(), 300);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let once = run(7, "delay:read=50us,write=2ms:memory:4MiB", rough(), 150);
    assert_eq!(once, run(7, "delay:read=50us,write=2ms:memory:4MiB", rough(), 150));
}
