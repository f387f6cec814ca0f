//! Each operation, on every device and driver.

use crate::rig::{BYTES, Rig, on_every_device};
use std::cell::Cell;
use std::sync::Arc;
use weft_backend::file::SimulatedFileFactory;
use weft_backend::{DeviceSpec, Failure, Operation, Request};
use weft_reactor::Reactor;
use weft_reactor::simulation::{NetworkConditions, StorageConditions, World};

#[test]
fn reads_return_what_was_written() {
    on_every_device(|rig| {
        let last = rig.blocks() - 64;
        for (seed, block, blocks, durable) in
            [(1, 0, 1, false), (2, 3, 5, true), (3, last, 64, false), (4, 100, 64, true)]
        {
            let bytes = rig.pattern(seed, blocks);
            let from = rig.buffer(&bytes);
            rig.ok(Operation::Write { slba: block, nlb: blocks, from, durable });
            assert_eq!(rig.read(block, blocks), bytes, "{}", rig.name);
        }
        assert_eq!(rig.read(3, 5), rig.pattern(2, 5), "{}", rig.name);
        let mut untouched = rig.read(50, 4);
        untouched.retain(|byte| *byte != 0);
        assert!(untouched.is_empty(), "{}: unwritten blocks are not zero", rig.name);
    });
}

#[test]
fn the_largest_transfer() {
    on_every_device(|rig| {
        let blocks = u32::try_from((4 << 20) / rig.block_bytes()).unwrap();
        let bytes = rig.pattern(9, blocks);
        rig.write(17, &bytes);
        assert!(rig.read(17, blocks) == bytes, "{}", rig.name);
    });
}

#[test]
fn many_requests_in_flight() {
    on_every_device(|rig| {
        for block in 0..128 {
            let operation = rig.write_of(block, &rig.pattern(block + 1, 1));
            rig.submit(block, operation);
        }
        assert_eq!(rig.device.in_flight(), 128, "{}", rig.name);
        let mut seen = [0; 128];
        for _ in 0..128 {
            let completion = rig.wait();
            assert_eq!(completion.result, Ok(()), "{}", rig.name);
            assert!(completion.buffer.is_some());
            seen[completion.tag as usize] += 1;
        }
        assert_eq!(seen, [1; 128], "{}", rig.name);
        assert_eq!(rig.device.in_flight(), 0);
        for block in 0..128 {
            assert_eq!(rig.read(block, 1), rig.pattern(block + 1, 1), "{}", rig.name);
        }
    });
}

#[test]
fn requests_beyond_the_end_are_out_of_range() {
    on_every_device(|rig| {
        let end = rig.blocks();
        let two = rig.pattern(1, 2);
        let operations = [
            rig.read_of(end, 1),
            rig.read_of(end - 1, 2),
            rig.read_of(u64::MAX, 1),
            rig.write_of(end - 1, &two),
            rig.compare_of(end - 1, &two),
            rig.compare_and_write_of(end - 1, &two, &two),
            Operation::Verify { slba: end, nlb: 1 },
            Operation::Verify { slba: 0, nlb: u32::MAX },
            Operation::WriteZeroes { slba: end, nlb: 1, deallocate: true, durable: false },
            Operation::Discard { ranges: Box::new([(0, 1), (end, 1)]) },
        ];
        for operation in operations {
            let kind = operation.kind();
            let had_buffer = matches!(
                operation,
                Operation::Read { .. }
                    | Operation::Write { .. }
                    | Operation::Compare { .. }
                    | Operation::CompareAndWrite { .. }
            );
            let completion = rig.run(operation);
            assert_eq!(completion.result, Err(Failure::OutOfRange), "{}: {kind}", rig.name);
            assert_eq!(completion.buffer.is_some(), had_buffer, "{}: {kind}", rig.name);
        }
        rig.write(end - 1, &two[..rig.block_bytes()]);
    });
}

#[test]
fn buffers_must_be_as_long_as_their_blocks() {
    on_every_device(|rig| {
        let into = rig.dirty(rig.block_bytes() - 1);
        let short = rig.result(Operation::Read { slba: 0, nlb: 1, into });
        assert_eq!(short, Err(Failure::Device(22)), "{}", rig.name);
        let from = rig.dirty(rig.block_bytes());
        let long = rig.result(Operation::Write { slba: 0, nlb: 2, from, durable: false });
        assert_eq!(long, Err(Failure::Device(22)), "{}", rig.name);
        let into = rig.dirty(rig.block_bytes());
        let other = into.share();
        let shared = rig.result(Operation::Read { slba: 0, nlb: 1, into });
        assert_eq!(shared, Err(Failure::Device(22)), "{}", rig.name);
        drop(other);
        let nothing = rig.reactor.pool().take(0).unwrap();
        rig.ok(Operation::Read { slba: 0, nlb: 0, into: nothing });
    });
}

#[test]
fn flush_and_verify() {
    on_every_device(|rig| {
        let bytes = rig.pattern(1, 100);
        rig.write(0, &bytes);
        rig.ok(Operation::Flush);
        rig.ok(Operation::Verify { slba: 0, nlb: 1 });
        // Longer than a scratch buffer.
        let blocks = u32::try_from(rig.blocks()).unwrap();
        rig.ok(Operation::Verify { slba: 0, nlb: blocks });
        rig.factory.sync().unwrap();
        assert_eq!(rig.read(0, 100), bytes, "{}", rig.name);
    });
}

#[test]
fn discarded_blocks_read_as_zeroes_and_take_no_space() {
    on_every_device(|rig| {
        assert!(rig.device.geometry().capabilities.discard, "{}", rig.name);
        let per_mebibyte = u32::try_from((1 << 20) / rig.block_bytes()).unwrap();
        let bytes = rig.pattern(1, per_mebibyte);
        for mebibyte in 0..4 {
            rig.write(mebibyte * u64::from(per_mebibyte), &bytes);
        }
        rig.ok(Operation::Flush);
        let before = allocated(rig);
        let third = 2 * u64::from(per_mebibyte);
        let ranges =
            Box::new([(u64::from(per_mebibyte), per_mebibyte), (0, 0), (third, per_mebibyte)]);
        rig.ok(Operation::Discard { ranges });
        let zeroes = vec![0; 1 << 20];
        assert!(rig.read(third, per_mebibyte) == zeroes, "{}", rig.name);
        assert!(rig.read(u64::from(per_mebibyte), per_mebibyte) == zeroes, "{}", rig.name);
        assert!(rig.read(0, per_mebibyte) == bytes, "{}", rig.name);
        assert!(rig.read(3 * u64::from(per_mebibyte), per_mebibyte) == bytes, "{}", rig.name);
        if let (Some(before), Some(after)) = (before, allocated(rig)) {
            assert!(after + (2 << 20) <= before + 65536, "{}: {before} {after}", rig.name);
        }
        let whole = u32::try_from(rig.blocks()).unwrap();
        rig.ok(Operation::Discard { ranges: Box::new([(0, whole)]) });
        assert!(rig.read(0, per_mebibyte) == zeroes, "{}", rig.name);
        rig.ok(Operation::Discard { ranges: Box::new([]) });
    });
}

#[test]
fn zeroes_are_written() {
    on_every_device(|rig| {
        let per_mebibyte = u32::try_from((1 << 20) / rig.block_bytes()).unwrap();
        for (deallocate, durable) in [(false, false), (true, false), (false, true), (true, true)] {
            let bytes = rig.pattern(1, per_mebibyte);
            rig.write(0, &bytes);
            let blocks = per_mebibyte - 2;
            rig.ok(Operation::WriteZeroes { slba: 1, nlb: blocks, deallocate, durable });
            let mut expected = bytes.clone();
            let block_bytes = rig.block_bytes();
            expected[block_bytes..bytes.len() - block_bytes].fill(0);
            assert!(rig.read(0, per_mebibyte) == expected, "{}", rig.name);
        }
    });
}

#[test]
fn compare_finds_a_flipped_byte() {
    on_every_device(|rig| {
        // Longer than a scratch buffer.
        let blocks = u32::try_from((300 << 10) / rig.block_bytes()).unwrap();
        let bytes = rig.pattern(1, blocks);
        rig.write(5, &bytes);
        let same = rig.compare_of(5, &bytes);
        let completion = rig.run(same);
        assert_eq!(completion.result, Ok(()), "{}", rig.name);
        assert_eq!(completion.buffer.as_deref(), Some(&bytes[..]), "{}", rig.name);
        for at in [0, 200 << 10, bytes.len() - 1] {
            let mut other = bytes.clone();
            other[at] ^= 1;
            let operation = rig.compare_of(5, &other);
            let result = rig.result(operation);
            assert_eq!(result, Err(Failure::Mismatch), "{} at {at}", rig.name);
        }
    });
}

#[test]
fn compare_and_write_writes_only_if_the_data_matches() {
    on_every_device(|rig| {
        let blocks = u32::try_from((300 << 10) / rig.block_bytes()).unwrap();
        let (first, second, third) =
            (rig.pattern(1, blocks), rig.pattern(2, blocks), rig.pattern(3, blocks));
        rig.write(5, &first);
        let fitting = rig.compare_and_write_of(5, &first, &second);
        let completion = rig.run(fitting);
        assert_eq!(completion.result, Ok(()), "{}", rig.name);
        assert_eq!(completion.buffer.as_deref(), Some(&second[..]), "{}", rig.name);
        assert!(rig.read(5, blocks) == second, "{}", rig.name);
        let unfitting = rig.compare_and_write_of(5, &first, &third);
        assert_eq!(rig.result(unfitting), Err(Failure::Mismatch), "{}", rig.name);
        assert!(rig.read(5, blocks) == second, "{}", rig.name);
        let zeroes = vec![0; rig.block_bytes()];
        let operation = Operation::CompareAndWrite {
            slba: 0,
            nlb: 1,
            compare: rig.buffer(&zeroes),
            write: rig.buffer(&third[..zeroes.len()]),
            durable: true,
        };
        rig.ok(operation);
        assert!(rig.read(0, 1) == third[..zeroes.len()], "{}", rig.name);
    });
}

#[test]
fn unsupported_operations_are_refused() {
    on_every_device(|rig| {
        if rig.device.geometry().capabilities.write_uncorrectable {
            return;
        }
        let result = rig.result(Operation::WriteUncorrectable { slba: 0, nlb: 1 });
        assert_eq!(result, Err(Failure::Unsupported), "{}", rig.name);
    });
}

/// Marked blocks cannot be read, compared or verified until they are written, by whatever writes
/// them, and only those that are.
#[test]
fn marked_blocks_are_unreadable_until_they_are_written() {
    let devices = Cell::new(0);
    on_every_device(|rig| {
        if !rig.device.geometry().capabilities.write_uncorrectable {
            return;
        }
        devices.set(devices.get() + 1);
        let bytes = rig.pattern(1, 8);
        rig.write(0, &bytes);
        let block = rig.block_bytes();
        rig.ok(Operation::WriteUncorrectable { slba: 2, nlb: 4 });
        let beyond = Operation::WriteUncorrectable { slba: rig.blocks(), nlb: 1 };
        assert_eq!(rig.result(beyond), Err(Failure::OutOfRange));
        for (slba, nlb, is_marked) in
            [(0, 2, false), (1, 2, true), (5, 1, true), (5, 3, true), (6, 2, false)]
        {
            let expected = if is_marked { Err(Failure::MediaRead) } else { Ok(()) };
            let same = &bytes[slba as usize * block..][..nlb as usize * block];
            let compare = Operation::Compare { slba, nlb, with: rig.buffer(same) };
            let both = Operation::CompareAndWrite {
                slba,
                nlb,
                compare: rig.buffer(same),
                write: rig.buffer(same),
                durable: false,
            };
            let read = rig.read_of(slba, nlb);
            let verify = Operation::Verify { slba, nlb };
            for operation in [read, compare, both, verify] {
                let kind = operation.kind();
                assert_eq!(rig.result(operation), expected, "{}: {kind} {slba}", rig.name);
            }
        }
        rig.ok(Operation::Flush);
        if rig.device.geometry().capabilities.discard {
            rig.ok(Operation::Discard { ranges: Box::new([(2, 1)]) });
            assert_eq!(rig.result(rig.read_of(2, 1)), Err(Failure::MediaRead), "it stays so");
        }
        rig.write(3, &bytes[..block]);
        rig.ok(Operation::WriteZeroes { slba: 5, nlb: 2, deallocate: false, durable: false });
        assert!(rig.read(3, 1) == bytes[..block]);
        assert!(rig.read(5, 2).iter().all(|byte| *byte == 0));
        for slba in [2, 4] {
            assert_eq!(rig.result(rig.read_of(slba, 1)), Err(Failure::MediaRead), "{slba}");
        }
        rig.write(0, &bytes);
        assert!(rig.read(0, 8) == bytes);
    });
    assert!(devices.get() >= 2);
}

/// What is in the file is there for the next process; a device that keeps its data needs one.
#[test]
fn marks_in_a_file_outlast_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let (path, image) = (folder.path().join("marks"), folder.path().join("image"));
    let (marks, image) = (path.display(), image.display());
    let text = format!("uncorrectable:file={marks}:file:{image},size=1MiB,block=512");
    let spec: DeviceSpec = text.parse().unwrap();
    let mut rig = Rig::of(&spec);
    let bytes = rig.pattern(1, 8);
    rig.write(8, &bytes);
    rig.ok(Operation::WriteUncorrectable { slba: 8, nlb: 8 });
    rig.write(10, &bytes[..512]);
    rig.finish();
    drop(rig);
    let mut rig = Rig::of(&spec);
    for slba in 8..16 {
        let expected = if slba == 10 { Ok(()) } else { Err(Failure::MediaRead) };
        assert_eq!(rig.result(rig.read_of(slba, 1)), expected, "{slba}");
    }
    rig.write(8, &bytes);
    rig.finish();
    drop(rig);
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1, "none is left");
    assert!(Rig::of(&spec).read(8, 8) == bytes);
    std::fs::write(&path, "something else").unwrap();
    let why = spec.build().unwrap_err().to_string();
    assert!(why.contains("move it away"), "{why}");
    let without = format!("uncorrectable::file:{image}").parse::<DeviceSpec>().unwrap();
    let why = without.build().unwrap_err().to_string();
    assert!(why.contains("uncorrectable:file=PATH"), "{why}");
}

/// A change that cannot be kept fails; the next one that can is kept, with all before it.
#[test]
fn marks_are_kept_again_when_their_file_can_be_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let marks = folder.path().join("marks");
    let text = format!("uncorrectable:file={}:memory:1MiB", marks.display());
    let mut rig = Rig::of(&text.parse().unwrap());
    rig.ok(Operation::WriteUncorrectable { slba: 0, nlb: 1 });
    // A folder is where the new contents would be written.
    let aside = weft_backend::files::aside(&marks);
    std::fs::create_dir(&aside).unwrap();
    let mark = Operation::WriteUncorrectable { slba: 8, nlb: 1 };
    assert_eq!(rig.result(mark), Err(Failure::MediaWrite));
    std::fs::remove_dir(&aside).unwrap();
    rig.ok(Operation::WriteUncorrectable { slba: 16, nlb: 1 });
    let kept = std::fs::read_to_string(&marks).unwrap();
    assert!(kept.ends_with("\n0 1\n8 1\n16 1\n"), "{kept}");
    rig.write(8, &rig.pattern(1, 1));
    rig.finish();
}

#[test]
fn open_handles_follow_a_resize() {
    on_every_device(|rig| {
        if rig.world.is_some() {
            assert!(rig.factory.resize(2 * BYTES).is_err());
            return;
        }
        let block_bytes = rig.block_bytes() as u64;
        let end = rig.blocks();
        let bytes = rig.pattern(1, 1);
        rig.write(end - 1, &bytes);
        rig.factory.resize(2 * BYTES).unwrap();
        assert_eq!(rig.factory.geometry().blocks, 2 * end, "{}", rig.name);
        rig.write(2 * end - 1, &bytes);
        assert_eq!(rig.device.geometry().blocks, 2 * end, "{}", rig.name);
        assert_eq!(rig.read(end - 1, 1), bytes, "{}", rig.name);
        rig.factory.resize(BYTES / 2).unwrap();
        let beyond = rig.read_of(end / 2, 1);
        assert_eq!(rig.result(beyond), Err(Failure::OutOfRange), "{}", rig.name);
        rig.factory.resize(BYTES).unwrap();
        let zeroes = vec![0; rig.block_bytes()];
        assert_eq!(rig.read(end - 1, 1), zeroes, "{}: truncated data is back", rig.name);
        assert!(rig.factory.resize(0).is_err(), "{}", rig.name);
        assert!(rig.factory.resize(block_bytes + 1).is_err(), "{}", rig.name);
        assert_eq!(rig.factory.geometry().blocks, end, "{}", rig.name);
    });
}

#[test]
fn a_closed_device_completes_and_refuses_requests() {
    on_every_device(|rig| {
        let bytes = rig.pattern(1, 4);
        for tag in 0..16 {
            let operation = match tag % 4 {
                0 => rig.write_of(tag, &bytes),
                1 => rig.read_of(tag, 4),
                2 => rig.compare_and_write_of(tag, &bytes, &bytes),
                _ => Operation::WriteZeroes {
                    slba: tag,
                    nlb: 1000,
                    deallocate: false,
                    durable: true,
                },
            };
            rig.submit(tag, operation);
        }
        rig.device.close(&mut rig.reactor);
        rig.device.close(&mut rig.reactor);
        let late = rig.read_of(0, 1);
        rig.device.submit(&mut rig.reactor, Request { tag: 16, operation: late });
        let mut seen = [false; 17];
        while rig.device.in_flight() != 0 {
            let completion = rig.wait();
            let seen = &mut seen[completion.tag as usize];
            assert!(!*seen, "{}", rig.name);
            *seen = true;
            let expected = [Ok(()), Err(Failure::Gone), Err(Failure::Mismatch)];
            assert!(expected.contains(&completion.result), "{}: {completion:?}", rig.name);
            if completion.tag == 16 {
                assert_eq!(completion.result, Err(Failure::Gone), "{}", rig.name);
            }
        }
        assert_eq!(seen, [true; 17], "{}", rig.name);
    });
}

#[test]
fn a_device_is_opened_again() {
    on_every_device(|rig| {
        let bytes = rig.pattern(1, 1);
        rig.write(0, &bytes);
        rig.finish();
        rig.device = rig.factory.open(&mut rig.reactor, crate::rig::OWNER).unwrap();
        assert_eq!(rig.read(0, 1), bytes, "{}", rig.name);
    });
}

#[test]
fn requests_wait_for_scratch_buffers() {
    on_every_device(|rig| {
        let bytes = rig.pattern(1, 2);
        rig.write(0, &bytes);
        let compare = rig.compare_of(0, &bytes);
        let update = rig.compare_and_write_of(0, &bytes, &bytes);
        let pool = rig.reactor.pool().clone();
        let mut taken = Vec::new();
        for len in [4 << 20, 4096] {
            taken.extend(core::iter::from_fn(|| pool.take(len)));
        }
        rig.submit(1, compare);
        rig.submit(2, update);
        rig.submit(3, Operation::Verify { slba: 0, nlb: 2 });
        rig.device.flush(&mut rig.reactor);
        let mut ended = 0;
        for _ in 0..5 {
            while let Some(completion) = rig.device.poll_completion() {
                assert_eq!(completion.result, Ok(()), "{}", rig.name);
                ended += 1;
            }
            if ended < 3 {
                rig.turn();
            }
        }
        let needs_none = rig.name.contains("memory");
        assert_eq!(ended, if needs_none { 3 } else { 0 }, "{}", rig.name);
        drop(taken);
        for _ in ended..3 {
            assert_eq!(rig.wait().result, Ok(()), "{}", rig.name);
        }
    });
}

/// Bytes allocated to the rig's file by its file system.
fn allocated(rig: &Rig) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let metadata = rig.path()?.metadata().ok()?;
    Some(metadata.blocks() * 512)
}

/// Two handles of a simulated file, after `failing` has failed on the first.
fn after_a_failure(failing: impl Fn(&Rig) -> Operation) -> [Rig; 2] {
    let world = World::new(1, NetworkConditions::default());
    let file = world.add_file(BYTES);
    let factory = Arc::new(SimulatedFileFactory::new(file, BYTES, 4096).unwrap());
    let [mut one, mut two] = ["one", "two"].map(|name| {
        let reactor = Reactor::simulated(&world);
        Rig::new(name.to_owned(), reactor, Some(world.clone()), factory.clone())
    });
    two.ok(Operation::Flush);
    one.write(0, &one.pattern(1, 1));
    world.set_storage(StorageConditions { error_probability: 1.0, ..StorageConditions::default() });
    let operation = failing(&one);
    assert_eq!(one.result(operation), Err(Failure::MediaWrite));
    world.set_storage(StorageConditions::default());
    [one, two]
}

#[test]
fn a_flush_that_failed_stays_failed_on_every_handle() {
    let durable_write = |rig: &Rig| {
        let from = rig.buffer(&rig.pattern(2, 1));
        Operation::Write { slba: 0, nlb: 1, from, durable: true }
    };
    let zeroes = |durable| {
        move |_: &Rig| Operation::WriteZeroes { slba: 1, nlb: 1, deallocate: false, durable }
    };
    let all_durable: [&dyn Fn(&Rig) -> Operation; 3] =
        [&|_| Operation::Flush, &durable_write, &zeroes(true)];
    let mut rigs = after_a_failure(|_| Operation::Flush);
    assert!(rigs[0].factory.has_lost_writes());
    for rig in &mut rigs {
        for durable in all_durable {
            let operation = durable(rig);
            assert_eq!(rig.result(operation), Err(Failure::MediaWrite), "{}", rig.name);
        }
        let bytes = rig.pattern(3, 1);
        rig.write(8, &bytes);
        assert_eq!(rig.read(8, 1), bytes, "reads and other writes go on");
        rig.ok(zeroes(false)(rig));
    }
    rigs.iter_mut().for_each(Rig::finish);
    // The simulated file is used past the cache: a durable write that is refused says nothing of
    // others.
    let others: [&dyn Fn(&Rig) -> Operation; 4] =
        [&|rig| rig.write_of(0, &rig.pattern(2, 1)), &zeroes(false), &durable_write, &zeroes(true)];
    for fails in others {
        let mut rigs = after_a_failure(fails);
        assert!(!rigs[0].factory.has_lost_writes(), "the failed write was reported");
        for rig in &mut rigs {
            rig.ok(Operation::Flush);
            rig.ok(durable_write(rig));
            rig.finish();
        }
    }
}

/// Whoever has the device flush is the only one whom the operating system tells of a loss.
#[test]
fn a_flush_that_blocks_and_fails_stays_failed_as_one_of_a_host() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let spec = format!(
        "fault:operation=flush,nth=1,effect=media-write:file:{},size=1MiB",
        file.path().display()
    );
    let factory = spec.parse::<weft_backend::DeviceSpec>().unwrap().build().unwrap();
    assert!(factory.sync().is_err());
    assert!(factory.has_lost_writes());
    assert!(factory.sync().is_err(), "the second try is not clean");
}
