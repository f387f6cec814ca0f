//! Runs from seeds: whatever the network does, nothing is lost, completed twice or leaked.

use std::time::Duration;

use weft_backend::{Failure, Operation, Request};
use weft_reactor::BUFFER_BYTES_MAX;
use weft_reactor::simulation::{NetworkConditions, Random, StorageConditions};
use weft_sim::{Client, Link, Size, Testbed};
use weft_transport::rdma::software::{Conditions, Fabric};
use weft_transport::rdma::{DeviceFault, WorkStatus};

/// Blocks of one client: few, so that requests overlap.
const BLOCKS: usize = 60;

/// Two of each.
const TWO: Size = Size { groups: 2, hosts: 2, queues: 2 };

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

/// The outcome of a run: the world's fingerprint, its time, and requests of unknown outcome.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    fingerprint: u64,
    time: Duration,
    lost: u64,
}

fn run(seed: u64, device: &str, network: NetworkConditions, requests: u64) -> Run {
    let calm = network == NetworkConditions::default();
    let testbed = Testbed::new(seed, device, TWO);
    testbed.world.set_network(network);
    drive_clients(testbed, &Link::Tcp, calm, seed, requests)
}

/// Over RDMA. With faults: connections fail, work requests fail and devices are removed.
fn run_rdma(seed: u64, device: &str, conditions: Conditions, calm: bool, requests: u64) -> Run {
    let link = Link::Rdma(Fabric::new(conditions));
    let testbed = Testbed::over(link.clone(), seed, device, TWO);
    drive_clients(testbed, &link, calm, seed, requests)
}

/// Within a process. With faults: hosts reset their controllers.
fn run_loopback(seed: u64, device: &str, calm: bool, requests: u64) -> Run {
    let testbed = Testbed::over(Link::Loopback, seed, device, TWO);
    drive_clients(testbed, &Link::Loopback, calm, seed, requests)
}

fn drive_clients(mut testbed: Testbed, link: &Link, calm: bool, seed: u64, requests: u64) -> Run {
    let mut clients = Client::of_each_host(&testbed, seed, BLOCKS);
    let mut random = Random::new(seed ^ 0xd1ce);
    while clients.iter().any(|client| client.ended() < requests || !client.is_idle()) {
        for client in clients.iter_mut().filter(|client| client.ended() < requests) {
            client.begin(&mut testbed);
        }
        match random.below(3000) {
            0 if !calm => testbed.reset(0),
            1 => testbed.toggle_namespace(),
            chance @ 2..40 if !calm => match link {
                Link::Tcp => {}
                Link::Rdma(fabric) => inject_fault(fabric, chance, &mut random),
                Link::Loopback => testbed.reset(usize::from(chance % 2 == 0)),
            },
            _ => {}
        }
        testbed.step();
        clients.iter_mut().for_each(|client| client.collect(&mut testbed));
    }
    let run = Run {
        fingerprint: testbed.world.fingerprint(),
        time: testbed.world.now(),
        lost: clients.iter().map(Client::lost).sum(),
    };
    testbed.finish();
    run
}

fn inject_fault(fabric: &Fabric, which: u64, random: &mut Random) {
    match which {
        // Without notice: an adapter gives up later than a slow device completes. As on a network,
        // the other end of a failed connection may notice only by keep-alive.
        2..10 => drop(fabric.lose_connections()),
        10..14 => fabric.remove_device(),
        14..18 => fabric.move_address(),
        18..20 => fabric.fail(DeviceFault::QueuePair),
        20..22 => fabric.fail(DeviceFault::Device),
        _ => fabric.fail_send(random.below(20), WorkStatus::REMOTE_OPERATION),
    }
}

#[test]
fn without_faults_rdma_loses_nothing() {
    for seed in 0..4 {
        let hold_reads = seed % 2 == 1;
        let conditions = Conditions { hold_reads, ..Conditions::default() };
        let run = run_rdma(seed, "memory:4MiB", conditions, true, 300);
        assert_eq!(run.lost, 0);
    }
}

#[test]
fn a_request_whose_memory_cannot_be_registered_fails_in_the_end() {
    let one = Size { groups: 1, hosts: 1, queues: 1 };
    for fused in [false, true] {
        let fabric = Fabric::default();
        let mut testbed = Testbed::over(Link::Rdma(fabric.clone()), 9, "memory:4MiB", one);
        testbed.run_until("nothing is left to do at this moment", |_| true);
        fabric.set_memory_limit(0);
        let begun = testbed.world.now();
        let (reactor, device) = testbed.device(0, 0);
        // All of a piece that nobody has used before.
        let buffer = |length| {
            let mut buffer = reactor.pool().take(BUFFER_BYTES_MAX).expect("a buffer");
            buffer.set_len(length);
            buffer
        };
        let operation = match fused {
            false => Operation::Read { slba: 0, nlb: 1, into: buffer(4096) },
            true => Operation::CompareAndWrite {
                slba: 0,
                nlb: 1,
                compare: buffer(4096),
                write: buffer(4096),
                durable: false,
            },
        };
        device.submit(reactor, Request { tag: 1, operation });
        let completion = loop {
            testbed.step();
            if let Some(completion) = testbed.finished(0).pop() {
                break completion;
            }
            assert!(testbed.world.now() - begun < Duration::from_secs(60), "it is tried for ever");
        };
        assert_eq!(completion.result, Err(Failure::Device(12)), "ENOMEM");
        assert!(testbed.world.now() - begun > Duration::from_secs(1), "it was tried again");
        assert!(completion.buffer.is_some_and(|buffer| buffer.len() == 4096), "with its buffer");
        testbed.finish();
    }
}

#[test]
fn with_faults_rdma_loses_only_responses() {
    for seed in 300..312 {
        let mut conditions = Conditions { hold_reads: seed % 2 == 1, ..Conditions::default() };
        conditions.attributes.memory_windows = seed % 4 < 2;
        run_rdma(seed, "delay:read=100us,write=300us:memory:4MiB", conditions, false, 300);
    }
}

#[test]
fn an_old_write_never_lands_after_a_newer_one_over_rdma() {
    for seed in 400..408 {
        let device = "delay:read=1ms,write=700ms:memory:4MiB";
        run_rdma(seed, device, Conditions::default(), false, 200);
    }
}

#[test]
fn the_same_seed_is_the_same_run_over_rdma() {
    let run = || {
        let device = "delay:read=50us,write=2ms:memory:4MiB";
        run_rdma(7, device, Conditions::default(), false, 150)
    };
    assert_eq!(run(), run());
}

#[test]
fn without_resets_loopback_loses_nothing() {
    for seed in 0..4 {
        assert_eq!(run_loopback(seed, "memory:4MiB", true, 300).lost, 0);
    }
}

#[test]
fn resets_over_loopback_lose_only_responses() {
    for seed in 500..508 {
        run_loopback(seed, "delay:read=1ms,write=700ms:memory:4MiB", false, 300);
    }
    let run = || run_loopback(9, "delay:read=50us,write=2ms:memory:4MiB", false, 150);
    assert_eq!(run(), run(), "a run depends on its seed alone");
}

#[test]
fn without_faults_tcp_loses_nothing() {
    for seed in 0..4 {
        let run = run(seed, "memory:4MiB", NetworkConditions::default(), 300);
        assert_eq!(run.lost, 0);
    }
}

#[test]
fn with_faults_tcp_loses_only_responses() {
    let runs: Vec<_> = (100..112).map(|seed| run(seed, "memory:4MiB", rough(), 300)).collect();
    let slowest = runs.iter().map(|run| run.time).max().expect("some");
    assert!(slowest > Duration::from_secs(1), "the network had too few faults: {runs:?}");
}

/// Writes pending on a slow device when their connection ends must not follow newer ones.
#[test]
fn an_old_write_never_lands_after_a_newer_one() {
    let device = "delay:read=1ms,write=700ms:memory:4MiB";
    let worse = NetworkConditions { reset_probability: 0.02, ..rough() };
    for seed in 200..216 {
        run(seed, device, worse.clone(), 300);
    }
}

/// The same while the queues of one host are express: what comes for them interrupts the work for
/// the other host, and connections come and go at any such point.
#[test]
fn express_queues_lose_only_responses() {
    let mut served = 0;
    for seed in 700..716 {
        let device = match seed % 2 {
            0 => "memory:4MiB",
            _ => "delay:read=90us,write=300us:memory:4MiB",
        };
        let calm = seed % 4 < 2;
        let mut testbed = Testbed::new(seed, device, TWO);
        if !calm {
            testbed.world.set_network(rough());
        }
        testbed.world.set_work_time(Duration::from_micros(seed % 7));
        let statistics = testbed.statistics();
        let mut clients = [0, 1].map(|host| {
            let client = Client::new(seed ^ host as u64, host, (host * BLOCKS) as u64, BLOCKS);
            if host == 1 { client.small() } else { client }
        });
        let mut random = Random::new(seed ^ 0xd1ce);
        while clients.iter().any(|client| client.ended() < 300 || !client.is_idle()) {
            for client in clients.iter_mut().filter(|client| client.ended() < 300) {
                client.begin(&mut testbed);
            }
            match random.below(1500) {
                0 if !calm => testbed.reset(0),
                1 if !calm => testbed.reset(1),
                2 => testbed.toggle_namespace(),
                _ => {}
            }
            testbed.step();
            clients.iter_mut().for_each(|client| client.collect(&mut testbed));
        }
        assert!(!calm || clients.iter().all(|client| client.lost() == 0), "seed {seed}");
        let groups = statistics.read(testbed.world.now());
        served += groups.iter().map(|group| group.express.served).sum::<u64>();
        testbed.finish();
    }
    assert!(served > 1000, "queues were express too seldom: {served}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let once = run(7, "delay:read=50us,write=2ms:memory:4MiB", rough(), 150);
    assert_eq!(once, run(7, "delay:read=50us,write=2ms:memory:4MiB", rough(), 150));
}

/// Requests between two crashes.
const BETWEEN_CRASHES: u64 = 40;

/// What was flushed or written with FUA survives a crash of the storage, whichever queue it came
/// by and whatever the network did meanwhile.
#[test]
fn durable_data_survives_a_crash() {
    for (seed, link, network) in [
        (600, Link::Tcp, NetworkConditions::default()),
        (601, Link::Tcp, rough()),
        (602, Link::Tcp, rough()),
        (603, Link::Rdma(Fabric::new(Conditions::default())), NetworkConditions::default()),
        (604, Link::Loopback, NetworkConditions::default()),
    ] {
        let mut testbed = Testbed::over(link, seed, "stored:4MiB", TWO);
        testbed.world.set_network(network);
        let jitter = Duration::from_micros(500);
        testbed.world.set_storage(StorageConditions { jitter, ..StorageConditions::default() });
        let mut clients: Vec<_> = (0..testbed.hosts())
            .map(|host| Client::new(seed ^ host as u64, host, (host * BLOCKS) as u64, BLOCKS))
            .collect();
        for crash in 1..=15 {
            let enough = |client: &Client| client.ended() >= crash * 2 * BETWEEN_CRASHES;
            while !clients.iter().all(|client| enough(client) && client.is_idle()) {
                for client in clients.iter_mut().filter(|client| !enough(client)) {
                    client.begin(&mut testbed);
                }
                testbed.step();
                clients.iter_mut().for_each(|client| client.collect(&mut testbed));
            }
            testbed.world.crash_files();
            for client in &mut clients {
                client.crashed();
                client.begin_check(&mut testbed);
            }
            while !clients.iter().all(Client::is_idle) {
                testbed.step();
                clients.iter_mut().for_each(|client| client.collect(&mut testbed));
            }
        }
        testbed.finish();
    }
}
