//! Random sequences of requests, compared with a model: a vector of bytes.

use crate::rig::{Rig, kernel_reactor, simulated};
use proptest::prelude::*;
use std::path::Path;
use weft_backend::{DeviceSpec, Failure, Operation};
use weft_reactor::DriverKind;

const BLOCKS: u64 = 64;

#[derive(Clone, Debug)]
enum ModelStep {
    Read {
        block: u64,
        blocks: u32,
    },
    Write {
        block: u64,
        blocks: u32,
        seed: u64,
        durable: bool,
    },
    Zeroes {
        block: u64,
        blocks: u32,
        deallocate: bool,
        durable: bool,
    },
    Discard {
        ranges: Vec<(u64, u32)>,
    },
    /// Compares with the current data, of which one byte may be flipped.
    Compare {
        block: u64,
        blocks: u32,
        flip: Option<usize>,
    },
    CompareAndWrite {
        block: u64,
        blocks: u32,
        flip: Option<usize>,
        seed: u64,
    },
    Verify {
        block: u64,
        blocks: u32,
    },
    Flush,
    Resize {
        blocks: u64,
    },
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<ModelStep>> {
    let range = (0..BLOCKS + 2, 0u32..9);
    let flip = prop::option::of(any::<prop::sample::Index>().prop_map(|at| at.index(512)));
    let step = prop_oneof![
        4 => range.clone().prop_map(|(block, blocks)| ModelStep::Read { block, blocks }),
        4 => (range.clone(), any::<u64>(), any::<bool>()).prop_map(
            |((block, blocks), seed, durable)| ModelStep::Write { block, blocks, seed, durable }
        ),
        2 => (range.clone(), any::<bool>(), any::<bool>()).prop_map(
            |((block, blocks), deallocate, durable)| {
                ModelStep::Zeroes { block, blocks, deallocate, durable }
            }
        ),
        2 => prop::collection::vec(range.clone(), 0..4).prop_map(|ranges| {
            ModelStep::Discard { ranges }
        }),
        2 => (range.clone(), flip.clone())
            .prop_map(|((block, blocks), flip)| ModelStep::Compare { block, blocks, flip }),
        2 => (range.clone(), flip, any::<u64>()).prop_map(|((block, blocks), flip, seed)| {
            ModelStep::CompareAndWrite { block, blocks, flip, seed }
        }),
        1 => range.prop_map(|(block, blocks)| ModelStep::Verify { block, blocks }),
        1 => Just(ModelStep::Flush),
        1 => (1..BLOCKS + 1).prop_map(|blocks| ModelStep::Resize { blocks }),
        1 => Just(ModelStep::Reopen),
    ];
    prop::collection::vec(step, 1..40)
}

/// The model.
struct Disk {
    bytes: Vec<u8>,
    block_bytes: usize,
}

impl Disk {
    fn range(&self, block: u64, blocks: u32) -> Result<core::ops::Range<usize>, Failure> {
        let start = usize::try_from(block).unwrap() * self.block_bytes;
        let end = start + blocks as usize * self.block_bytes;
        if end > self.bytes.len() { Err(Failure::OutOfRange) } else { Ok(start..end) }
    }

    fn fill(&mut self, ranges: &[(u64, u32)]) -> Result<(), Failure> {
        for (block, blocks) in ranges {
            self.range(*block, *blocks)?;
        }
        for (block, blocks) in ranges {
            let range = self.range(*block, *blocks)?;
            self.bytes[range].fill(0);
        }
        Ok(())
    }
}

fn take(rig: &mut Rig, disk: &mut Disk, step: &ModelStep) {
    match *step {
        ModelStep::Read { block, blocks } => {
            let operation = rig.read_of(block, blocks);
            let completion = rig.run(operation);
            let expected = disk.range(block, blocks);
            assert_eq!(completion.result, expected.clone().map(|_| ()), "{}", rig.name);
            if let Ok(range) = expected {
                assert!(completion.buffer.as_deref() == Some(&disk.bytes[range]), "{}", rig.name);
            }
        }
        ModelStep::Write { block, blocks, seed, durable } => {
            let bytes = rig.pattern(seed, blocks);
            let from = rig.buffer(&bytes);
            let result = rig.result(Operation::Write { slba: block, nlb: blocks, from, durable });
            let expected = disk.range(block, blocks);
            assert_eq!(result, expected.clone().map(|_| ()), "{}", rig.name);
            if let Ok(range) = expected {
                disk.bytes[range].copy_from_slice(&bytes);
            }
        }
        ModelStep::Zeroes { block, blocks, deallocate, durable } => {
            let zeroes = Operation::WriteZeroes { slba: block, nlb: blocks, deallocate, durable };
            assert_eq!(rig.result(zeroes), disk.fill(&[(block, blocks)]), "{}", rig.name);
        }
        ModelStep::Discard { ref ranges } => {
            let discard = Operation::Discard { ranges: ranges.clone().into() };
            assert_eq!(rig.result(discard), disk.fill(ranges), "{}", rig.name);
        }
        ModelStep::Compare { block, blocks, flip } => {
            let (with, expected) = comparison(rig, disk, block, blocks, flip);
            let operation = rig.compare_of(block, &with);
            assert_eq!(rig.result(operation), expected, "{}", rig.name);
        }
        ModelStep::CompareAndWrite { block, blocks, flip, seed } => {
            let (with, expected) = comparison(rig, disk, block, blocks, flip);
            let bytes = rig.pattern(seed, blocks);
            let operation = rig.compare_and_write_of(block, &with, &bytes);
            assert_eq!(rig.result(operation), expected, "{}", rig.name);
            if expected.is_ok() {
                let range = disk.range(block, blocks).unwrap();
                disk.bytes[range].copy_from_slice(&bytes);
            }
        }
        ModelStep::Verify { block, blocks } => {
            let result = rig.result(Operation::Verify { slba: block, nlb: blocks });
            assert_eq!(result, disk.range(block, blocks).map(|_| ()), "{}", rig.name);
        }
        ModelStep::Flush => rig.ok(Operation::Flush),
        // Nothing there can be resized.
        ModelStep::Resize { .. } if rig.world.is_some() => {}
        ModelStep::Resize { blocks } => {
            let bytes = usize::try_from(blocks).unwrap() * disk.block_bytes;
            rig.factory.resize(bytes as u64).unwrap();
            disk.bytes.resize(bytes, 0);
        }
        ModelStep::Reopen => {
            rig.finish();
            rig.device = rig.factory.open(&mut rig.reactor, crate::rig::OWNER).unwrap();
        }
    }
}

/// The data to compare with and the expected result.
fn comparison(
    rig: &Rig,
    disk: &Disk,
    block: u64,
    blocks: u32,
    flip: Option<usize>,
) -> (Vec<u8>, Result<(), Failure>) {
    match disk.range(block, blocks) {
        Err(failure) => (rig.pattern(0, blocks), Err(failure)),
        Ok(range) => {
            let mut with = disk.bytes[range].to_vec();
            let flipped = flip.filter(|_| !with.is_empty()).inspect(|at| with[*at] ^= 1);
            (with, flipped.map_or(Ok(()), |_| Err(Failure::Mismatch)))
        }
    }
}

fn play(mut rig: Rig, steps: &[ModelStep]) {
    let block_bytes = rig.block_bytes();
    let mut disk = Disk { bytes: vec![0; BLOCKS as usize * block_bytes], block_bytes };
    assert_eq!(rig.device.geometry().bytes(), disk.bytes.len() as u64, "{}", rig.name);
    for step in steps {
        take(&mut rig, &mut disk, step);
    }
    let blocks = u32::try_from(disk.bytes.len() / block_bytes).unwrap();
    assert!(rig.read(0, blocks) == disk.bytes, "{}", rig.name);
    rig.finish();
}

fn on_kernel(spec: &dyn Fn(&Path) -> DeviceSpec, driver: DriverKind, steps: &[ModelStep]) {
    let directory = tempfile::tempdir().unwrap();
    let Some(reactor) = kernel_reactor(driver) else { return };
    let spec = spec(directory.path());
    play(Rig::new(spec.to_string(), reactor, None, spec.build().unwrap()), steps);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn memory_is_a_vector(steps in steps()) {
        for block_bytes in [512, 4096] {
            let bytes = BLOCKS * u64::from(block_bytes);
            let spec = |_: &Path| DeviceSpec::Memory { bytes, block_bytes };
            on_kernel(&spec, DriverKind::Epoll, &steps);
        }
    }

    #[test]
    fn a_file_is_a_vector(steps in steps(), small in any::<bool>(), uring in any::<bool>()) {
        let (block_bytes, direct) = if small { (512, Some(false)) } else { (4096, None) };
        let driver = if uring { DriverKind::Uring } else { DriverKind::Epoll };
        let spec = |path: &Path| DeviceSpec::File {
            path: path.join("disk.img"),
            create_bytes: Some(BLOCKS * u64::from(block_bytes)),
            block_bytes: Some(block_bytes),
            direct,
            read_only: false,
            shared: false,
        };
        on_kernel(&spec, driver, &steps);
    }

    #[test]
    fn a_simulated_file_is_a_vector(steps in steps(), seed in any::<u64>(), slow in any::<bool>()) {
        play(simulated(seed, BLOCKS * 4096, slow), &steps);
    }
}
