//! Several reactors, each on its own thread, on one namespace.

use crate::rig::{KERNEL_DRIVERS, Rig, keeping_specs, kernel_reactor, pattern};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use weft_backend::{DeviceFactory, Failure, Operation};
use weft_reactor::DriverKind;

/// Runs a test on every device that keeps its data, and both kernel drivers.
fn on_every_factory(test: impl Fn(&str, DriverKind, &Arc<dyn DeviceFactory>)) {
    for driver in KERNEL_DRIVERS {
        for index in 0..keeping_specs(Path::new("/")).len() {
            let directory = tempfile::tempdir().unwrap();
            let (name, spec) = keeping_specs(directory.path()).swap_remove(index);
            if kernel_reactor(driver).is_some() {
                test(&format!("{name} on {driver:?}"), driver, &spec.build().unwrap());
            }
        }
    }
}

fn rig(name: &str, driver: DriverKind, factory: &Arc<dyn DeviceFactory>) -> Rig {
    let reactor = kernel_reactor(driver).unwrap();
    Rig::new(name.to_owned(), reactor, None, Arc::clone(factory))
}

#[test]
fn reactors_read_each_others_writes() {
    on_every_factory(|name, driver, factory| {
        let (written, write_done) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut rig = rig(name, driver, factory);
                for round in 0..20 {
                    rig.write(round * 3, &rig.pattern(round + 1, 3));
                    written.send(round).unwrap();
                }
                rig.finish();
            });
            scope.spawn(move || {
                let mut rig = rig(name, driver, factory);
                for round in write_done {
                    assert_eq!(rig.read(round * 3, 3), rig.pattern(round + 1, 3), "{name}");
                }
                rig.finish();
            });
        });
    });
}

/// Two counters in one block, incremented by compare-and-write only.
#[test]
fn concurrent_compare_and_writes_lose_no_count() {
    const COUNTS: u64 = 40;
    on_every_factory(|name, driver, factory| {
        let start = Barrier::new(2);
        let start = &start;
        thread::scope(|scope| {
            for counter in 0..2usize {
                scope.spawn(move || {
                    let mut rig = rig(name, driver, factory);
                    start.wait();
                    let mut counted = 0;
                    while counted < COUNTS {
                        let before = rig.read(1, 1);
                        let mut after = before.clone();
                        let at = counter * 8..counter * 8 + 8;
                        assert_eq!(after[at.clone()], counted.to_le_bytes(), "{name}");
                        after[at].copy_from_slice(&(counted + 1).to_le_bytes());
                        let operation = rig.compare_and_write_of(1, &before, &after);
                        match rig.result(operation) {
                            Ok(()) => counted += 1,
                            Err(Failure::Mismatch) => {}
                            Err(failure) => panic!("{name}: {failure}"),
                        }
                    }
                    rig.finish();
                });
            }
        });
        let mut rig = rig(name, driver, factory);
        let both = [COUNTS.to_le_bytes(), COUNTS.to_le_bytes()].concat();
        assert_eq!(rig.read(1, 1)[..16], both, "{name}");
        rig.finish();
    });
}

/// One reactor writes unique values, another replaces them by compare-and-write. A written value
/// may disappear only by a compare-and-write that expected it.
#[test]
fn no_write_overlaps_a_compare_and_write() {
    const WRITES: u64 = 60;
    on_every_factory(|name, driver, factory| {
        let done = AtomicBool::new(false);
        let done = &done;
        let (replaced, written) = thread::scope(|scope| {
            let replacer = scope.spawn(move || {
                let mut rig = rig(name, driver, factory);
                let mut replaced = HashMap::new();
                let mut value = 1u64 << 40;
                while !done.load(Ordering::Relaxed) {
                    let before = rig.read(0, 1);
                    value += 1;
                    let after = block_of(value, before.len());
                    let operation = rig.compare_and_write_of(0, &before, &after);
                    match rig.result(operation) {
                        Ok(()) => {
                            replaced.insert(value, value_of(&before));
                        }
                        Err(Failure::Mismatch) => {}
                        Err(failure) => panic!("{name}: {failure}"),
                    }
                }
                rig.finish();
                replaced
            });
            let writer = scope.spawn(move || {
                let mut rig = rig(name, driver, factory);
                let mut written = Vec::new();
                for value in 1..=WRITES {
                    rig.write(0, &block_of(value, rig.block_bytes()));
                    written.push((value, value_of(&rig.read(0, 1))));
                }
                done.store(true, Ordering::Relaxed);
                rig.finish();
                written
            });
            (replacer.join().unwrap(), writer.join().unwrap())
        });
        for (value, found) in written {
            let mut back = found;
            while back != value {
                back = *replaced
                    .get(&back)
                    .unwrap_or_else(|| panic!("{name}: {value} was lost, found {found}"));
            }
        }
    });
}

fn block_of(value: u64, len: usize) -> Vec<u8> {
    let mut block = pattern(value, len);
    block[..8].copy_from_slice(&value.to_le_bytes());
    block
}

/// The value of a block, which must be complete or zero.
fn value_of(block: &[u8]) -> u64 {
    let value = u64::from_le_bytes(block[..8].try_into().unwrap());
    if value == 0 {
        assert!(block.iter().all(|byte| *byte == 0));
    } else {
        assert!(block == block_of(value, block.len()), "a block with parts of two writes");
    }
    value
}

/// Writes, zeroes and discards on the same handle that overlap a compare-and-write wait for it.
#[test]
fn overlapping_requests_on_one_handle() {
    on_every_factory(|name, driver, factory| {
        let mut rig = rig(name, driver, factory);
        let mut current = rig.read(0, 1);
        for round in 0..10u64 {
            let next = rig.pattern(round * 2 + 1, 1);
            let other = rig.pattern(round * 2 + 2, 1);
            let update = rig.compare_and_write_of(0, &current, &next);
            rig.submit(1, update);
            let write = rig.write_of(0, &other);
            rig.submit(2, write);
            rig.submit(3, Operation::Discard { ranges: Box::new([(1, 1)]) });
            let zeroes =
                Operation::WriteZeroes { slba: 2, nlb: 1, deallocate: false, durable: false };
            rig.submit(4, zeroes);
            let mut updated = None;
            for _ in 0..4 {
                let completion = rig.wait();
                match completion.tag {
                    1 => updated = Some(completion.result),
                    _ => assert_eq!(completion.result, Ok(()), "{name}"),
                }
            }
            let found = rig.read(0, 1);
            match updated {
                // Executed in either order.
                Some(Ok(())) | Some(Err(Failure::Mismatch)) => {
                    assert!(found == other, "{name}: round {round}");
                }
                result => panic!("{name}: {result:?}"),
            }
            current = found;
        }
        rig.finish();
    });
}
