//! Several reactors on one file in virtual time: each seed gives another, reproducible order of
//! events.

use crate::rig::{Rig, pattern};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use weft_backend::file::SimulatedFileFactory;
use weft_backend::{DeviceFactory, Failure, Operation, RequestCompletion};
use weft_reactor::simulation::{NetworkConditions, Random, StorageConditions, World};
use weft_reactor::{Reactor, WaitLimit};

const BLOCKS: u64 = 8;
const BLOCK: usize = 4096;

/// Reactors of one world that have the same file open.
fn rigs(seed: u64, count: usize, storage: StorageConditions) -> (World, Vec<Rig>) {
    let world = World::new(seed, NetworkConditions::default());
    world.set_storage(storage);
    world.set_memory(4 << 20, 256 << 10);
    let bytes = BLOCKS * BLOCK as u64;
    let factory = SimulatedFileFactory::new(world.add_file(bytes), bytes, 4096).unwrap();
    let factory: Arc<dyn DeviceFactory> = Arc::new(factory);
    let rig = |index| {
        let reactor = Reactor::simulated(&world);
        let name = format!("seed {seed}, reactor {index}");
        Rig::new(name, reactor, Some(world.clone()), Arc::clone(&factory))
    };
    let rigs = (0..count).map(rig).collect();
    (world, rigs)
}

fn slow_storage(error_probability: f64) -> StorageConditions {
    StorageConditions {
        latency: Duration::from_micros(20),
        jitter: Duration::from_micros(300),
        error_probability,
        ..StorageConditions::default()
    }
}

/// Runs one turn. Whether there were events.
fn poll(rig: &mut Rig) -> bool {
    rig.device.flush(&mut rig.reactor);
    rig.reactor.poll(WaitLimit::NoWait, &mut rig.completions);
    let any = !rig.completions.is_empty();
    for completion in rig.completions.drain(..) {
        rig.device.handle(&mut rig.reactor, completion);
    }
    rig.device.flush(&mut rig.reactor);
    any
}

fn block_of(value: u64) -> Vec<u8> {
    let mut block = pattern(value, BLOCK);
    block[..8].copy_from_slice(&value.to_le_bytes());
    block
}

/// Reactor 0 writes values and reads them back; the others replace values by compare-and-write.
#[test]
fn no_order_of_events_loses_a_write() {
    let mut replacements = 0;
    let mut mismatches = 0;
    for seed in 0..60 {
        let (world, mut rigs) = rigs(seed, 3, slow_storage(0.0));
        let mut replaced: HashMap<u64, u64> = HashMap::new();
        // For each replacer the value that it read last, and its next value.
        let mut seen = [0u64; 3];
        let mut wanted = [0u64; 3];
        let mut written = Vec::new();
        let mut next = 1u64;
        for (index, rig) in rigs.iter_mut().enumerate() {
            start(rig, index, &seen, &mut wanted, &mut next);
        }
        while written.len() < 30 {
            let mut any = false;
            for (index, rig) in rigs.iter_mut().enumerate() {
                any |= poll(rig);
                while let Some(completion) = rig.device.poll_completion() {
                    any = true;
                    match (completion.tag, completion.result) {
                        (READ, Ok(())) => {
                            seen[index] = value_of(&completion);
                            if index == 0 {
                                written.push((wanted[0], seen[0]));
                            }
                            drop(completion);
                            start(rig, index, &seen, &mut wanted, &mut next);
                        }
                        (REPLACE, Ok(())) => {
                            replacements += 1;
                            let before = replaced.insert(wanted[index], seen[index]);
                            assert_eq!(before, None);
                            submit_read(rig);
                        }
                        (REPLACE, Err(Failure::Mismatch)) => {
                            mismatches += 1;
                            submit_read(rig);
                        }
                        (WRITE, Ok(())) => submit_read(rig),
                        (tag, result) => panic!("{}: {tag} {result:?}", rig.name),
                    }
                }
            }
            assert!(any || world.advance(), "seed {seed}: no event is left");
        }
        for (value, found) in written {
            let mut back = found;
            while back != value {
                back = *replaced.get(&back).unwrap_or_else(|| {
                    panic!("seed {seed}: {value} was lost, found {found}, {replaced:?}")
                });
            }
        }
        let mut values: Vec<_> = replaced.values().collect();
        values.sort_unstable();
        values.dedup();
        assert_eq!(values.len(), replaced.len(), "seed {seed}: a value was replaced twice");
        drain(&world, &mut rigs);
        rigs.iter_mut().for_each(Rig::finish);
    }
    assert!(replacements > 500 && mismatches > 500, "{replacements} {mismatches}");
}

const READ: u64 = 1;
const WRITE: u64 = 2;
const REPLACE: u64 = 3;

fn start(rig: &mut Rig, index: usize, seen: &[u64; 3], wanted: &mut [u64; 3], next: &mut u64) {
    let value = *next;
    *next += 1;
    wanted[index] = value;
    let before = if seen[index] == 0 { vec![0; BLOCK] } else { block_of(seen[index]) };
    match index {
        0 => {
            let operation = rig.write_of(3, &block_of(value));
            rig.submit(WRITE, operation);
        }
        _ => {
            let operation = rig.compare_and_write_of(3, &before, &block_of(value));
            rig.submit(REPLACE, operation);
        }
    }
}

fn submit_read(rig: &mut Rig) {
    let operation = rig.read_of(3, 1);
    rig.submit(READ, operation);
}

fn value_of(completion: &RequestCompletion) -> u64 {
    let block = completion.buffer.as_deref().unwrap();
    u64::from_le_bytes(block[..8].try_into().unwrap())
}

/// Completes all requests in flight, of all rigs together: they may wait for each other.
fn drain(world: &World, rigs: &mut [Rig]) {
    while rigs.iter().any(|rig| rig.device.in_flight() != 0) {
        let mut any = false;
        for rig in rigs.iter_mut() {
            any |= poll(rig);
            while let Some(completion) = rig.device.poll_completion() {
                drop(completion);
                any = true;
            }
        }
        assert!(any || world.advance(), "no event is left");
    }
}

/// Storage fails at random. Every request ends once, returns its buffer and leaves no stripe
/// excluded.
#[test]
fn every_request_ends_when_storage_fails() {
    let mut failures = 0;
    for seed in 0..40 {
        let (world, mut rigs) = rigs(seed, 2, slow_storage(0.1));
        let mut random = Random::new(seed);
        let mut open = vec![[false; 200]; rigs.len()];
        let mut submitted = 0;
        while submitted < 200 || rigs.iter().any(|rig| rig.device.in_flight() != 0) {
            let mut any = false;
            for (index, rig) in rigs.iter_mut().enumerate() {
                if submitted < 200 && rig.device.in_flight() < 8 {
                    let operation = random_operation(rig, &mut random);
                    rig.submit(submitted, operation);
                    open[index][submitted as usize] = true;
                    submitted += 1;
                    any = true;
                }
                any |= poll(rig);
                while let Some(completion) = rig.device.poll_completion() {
                    any = true;
                    let open = &mut open[index][completion.tag as usize];
                    assert!(*open, "{}: {} ended twice", rig.name, completion.tag);
                    *open = false;
                    match completion.result {
                        Ok(()) | Err(Failure::Mismatch) => {}
                        Err(Failure::MediaRead | Failure::MediaWrite) => failures += 1,
                        Err(failure) => panic!("{}: {failure}", rig.name),
                    }
                }
            }
            assert!(any || world.advance(), "seed {seed}: no event is left");
        }
        assert!(open.iter().flatten().all(|open| !open), "seed {seed}: something never ended");
        world.set_storage(slow_storage(0.0));
        for rig in &mut rigs {
            let blocks = u32::try_from(BLOCKS).unwrap();
            let whole = rig.read(0, blocks);
            let operation = rig.compare_and_write_of(0, &whole, &whole);
            rig.ok(operation);
            rig.finish();
        }
    }
    assert!(failures > 100, "{failures}");
}

fn random_operation(rig: &Rig, random: &mut Random) -> Operation {
    let block = random.below(BLOCKS - 2);
    let blocks = 2;
    let bytes = pattern(random.below(3), 2 * BLOCK);
    let (deallocate, durable) = (random.below(2) == 0, random.below(2) == 0);
    match random.below(9) {
        0 | 1 => rig.read_of(block, blocks),
        2 | 3 => rig.write_of(block, &bytes),
        4 => Operation::WriteZeroes { slba: block, nlb: blocks, deallocate, durable },
        5 => Operation::Discard { ranges: Box::new([(block, blocks), (0, 1)]) },
        6 => rig.compare_of(block, &bytes),
        7 => rig.compare_and_write_of(block, &bytes, &bytes),
        _ => Operation::Flush,
    }
}
