//! Behaviour of single kinds of devices.

use crate::rig::{BYTES, KERNEL_DRIVERS, Rig, file_spec, kernel_reactor, simulated};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use weft_backend::file::{FileFactory, FileOptions};
use weft_backend::{DeviceFactory, DeviceSpec, Failure, OpenError, Operation};

#[test]
fn a_null_device_reads_as_zeroes() {
    for block_bytes in [512, 4096] {
        let mut rig = Rig::of(&DeviceSpec::Null { bytes: 1 << 40, block_bytes });
        rig.write(5, &rig.pattern(1, 3));
        assert_eq!(rig.read(5, 3), vec![0; 3 * rig.block_bytes()], "the buffer's previous content");
        let (zeroes, other) = (vec![0; rig.block_bytes()], rig.pattern(1, 1));
        let same = rig.compare_of(0, &zeroes);
        assert_eq!(rig.result(same), Ok(()));
        let different = rig.compare_of(0, &other);
        assert_eq!(rig.result(different), Err(Failure::Mismatch));
        let update = rig.compare_and_write_of(0, &zeroes, &other);
        assert_eq!(rig.result(update), Ok(()));
        let end = rig.blocks();
        let beyond = rig.read_of(end, 1);
        assert_eq!(rig.result(beyond), Err(Failure::OutOfRange));
        rig.ok(Operation::Discard { ranges: Box::new([(0, 1 << 28)]) });
        rig.ok(Operation::Flush);
        rig.factory.resize(2 << 40).unwrap();
        assert_eq!(rig.read(end, 1), zeroes);
        assert!(rig.factory.survives_restart());
        rig.finish();
    }
}

#[test]
fn large_zeroes_in_memory_take_several_turns() {
    let spec = DeviceSpec::Memory { bytes: 64 << 20, block_bytes: 4096 };
    let mut rig = Rig::of(&spec);
    let bytes = rig.pattern(1, 256);
    for block in [0, 8192, 16384 - 256] {
        rig.write(block, &bytes);
    }
    let zeroes = Operation::WriteZeroes { slba: 1, nlb: 16382, deallocate: false, durable: false };
    rig.submit(1, zeroes);
    rig.submit(2, Operation::Discard { ranges: Box::new([(0, 1), (16383, 1)]) });
    let read = rig.read_of(0, 1);
    rig.submit(3, read);
    let first = rig.wait();
    assert_eq!((first.tag, first.result), (3, Ok(())), "a read does not wait for it");
    assert_eq!(first.buffer.as_deref(), Some(&bytes[..4096]));
    drop(first);
    for tag in [1, 2] {
        let completion = rig.wait();
        assert_eq!((completion.tag, completion.result), (tag, Ok(())));
    }
    for block in [0, 8192, 16384 - 256] {
        assert!(rig.read(block, 256) == vec![0; 1 << 20]);
    }
    assert!(!rig.factory.survives_restart());
    rig.finish();
}

#[test]
fn a_file_is_created_and_extended_but_never_truncated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let open = |create_bytes| {
        FileFactory::open(&path, FileOptions { create_bytes, ..FileOptions::default() })
    };
    assert!(matches!(open(None), Err(OpenError::Invalid(_))), "nothing to open");
    assert!(matches!(open(Some(100)), Err(OpenError::Invalid(_))), "no block");
    assert!(!path.exists(), "a refused open creates no file");
    let first = open(Some(1 << 20)).unwrap();
    assert_eq!(first.geometry().bytes(), 1 << 20);
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    assert_eq!(open(Some(2 << 20)).unwrap().geometry().bytes(), 2 << 20);
    assert_eq!(open(Some(4096)).unwrap().geometry().bytes(), 2 << 20);
    assert_eq!(open(None).unwrap().geometry().bytes(), 2 << 20);
    assert_eq!(fs::read(&path).unwrap()[..1 << 20], vec![7; 1 << 20]);
    assert_eq!(first.refresh().unwrap().bytes(), 2 << 20);
    assert_eq!(first.geometry().bytes(), 2 << 20);
}

#[test]
fn a_files_identity_is_its_path() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().canonicalize().unwrap().join("disk.img");
    let spec = file_spec(directory.path(), None, None);
    let identity = spec.build().unwrap().identity();
    assert_eq!(identity, place.display().to_string());
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&place, &link).unwrap();
    let through = DeviceSpec::file(link.to_str().unwrap()).unwrap().build().unwrap();
    assert_eq!(through.identity(), identity);
    assert!(through.survives_restart());
}

#[test]
fn the_block_size_divides_the_file_size() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let open = |block_bytes| {
        FileFactory::open(&path, FileOptions { block_bytes, ..FileOptions::default() })
    };
    fs::write(&path, vec![0; 3 * 4096 + 512]).unwrap();
    assert_eq!(open(None).unwrap().geometry().block_bytes, 512);
    assert_eq!(open(Some(4096)).unwrap().geometry().blocks, 3, "the rest is out of reach");
    fs::write(&path, vec![0; 3 * 4096]).unwrap();
    assert_eq!(open(None).unwrap().geometry().block_bytes, 4096);
    assert!(open(Some(520)).is_err());
    fs::write(&path, b"short").unwrap();
    assert!(open(None).is_err());
    fs::write(&path, b"").unwrap();
    assert!(open(None).is_err());
}

#[test]
fn errors_of_open_name_the_cause() {
    let directory = tempfile::tempdir().unwrap();
    for (path, why) in [
        (directory.path(), "not a regular file"),
        (Path::new("/dev/null"), "not a regular file"),
        (&directory.path().join("missing"), "does not exist"),
        (&directory.path().join("no/where"), "does not exist"),
    ] {
        let error = FileFactory::open(path, FileOptions::default()).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains(path.to_str().unwrap()), "{error}");
    }
    let created = FileOptions { create_bytes: Some(4096), ..FileOptions::default() };
    let error = FileFactory::open(&directory.path().join("no/where"), created).unwrap_err();
    assert!(matches!(error, OpenError::System { .. }), "{error}");
}

#[test]
fn a_read_only_file_is_only_read() {
    for driver in KERNEL_DRIVERS {
        let directory = tempfile::tempdir().unwrap();
        file_spec(directory.path(), None, None).build().unwrap();
        let path = directory.path().join("disk.img");
        fs::write(&path, vec![5; 1 << 20]).unwrap();
        let spec = DeviceSpec::file(&format!("{},read-only", path.display())).unwrap();
        let Some(reactor) = kernel_reactor(driver) else { continue };
        let mut rig = Rig::new("read-only".to_owned(), reactor, None, spec.build().unwrap());
        assert!(rig.device.geometry().capabilities.read_only);
        assert_eq!(rig.read(0, 4), vec![5; 4 * 4096]);
        rig.ok(Operation::Flush);
        let block = vec![5; 4096];
        let operations = [
            rig.write_of(0, &block),
            rig.compare_and_write_of(0, &block, &block),
            Operation::WriteZeroes { slba: 0, nlb: 1, deallocate: true, durable: false },
            Operation::Discard { ranges: Box::new([(0, 1)]) },
        ];
        for operation in operations {
            assert_eq!(rig.result(operation), Err(Failure::ReadOnly));
        }
        assert!(rig.factory.resize(4096).is_err());
        assert!(rig.factory.sync().is_ok());
        assert_eq!(fs::read(&path).unwrap(), vec![5; 1 << 20]);
        rig.finish();
    }
}

#[test]
fn a_truncated_file_reports_out_of_range() {
    for driver in KERNEL_DRIVERS {
        for direct in [Some(false), None] {
            let directory = tempfile::tempdir().unwrap();
            let spec = file_spec(directory.path(), Some(4096), direct);
            let Some(reactor) = kernel_reactor(driver) else { continue };
            let mut rig = Rig::new("cut".to_owned(), reactor, None, spec.build().unwrap());
            let path = directory.path().join("disk.img");
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(BYTES / 2).unwrap();
            let middle = rig.blocks() / 2;
            for operation in [rig.read_of(middle, 1), rig.read_of(middle - 1, 2)] {
                assert_eq!(rig.result(operation), Err(Failure::OutOfRange), "{driver:?}");
            }
            assert_eq!(rig.factory.refresh().unwrap().blocks, middle);
            rig.read(middle - 1, 1);
            file.set_len(2 * BYTES).unwrap();
            assert_eq!(rig.factory.refresh().unwrap().blocks, 4 * middle);
            rig.read(4 * middle - 1, 1);
            rig.finish();
        }
    }
}

/// A file system without FALLOC_FL_ZERO_RANGE.
#[test]
fn zeroes_are_written_where_the_file_system_has_no_zero_range() {
    let shared_memory = Path::new("/dev/shm");
    if !shared_memory.is_dir() {
        eprintln!("no /dev/shm here");
        return;
    }
    for driver in KERNEL_DRIVERS {
        let directory = tempfile::tempdir_in(shared_memory).unwrap();
        let spec = file_spec(directory.path(), Some(512), None);
        let Some(reactor) = kernel_reactor(driver) else { continue };
        let mut rig = Rig::new("tmpfs".to_owned(), reactor, None, spec.build().unwrap());
        let blocks = u32::try_from((300 << 10) / 512).unwrap();
        for deallocate in [false, true] {
            for durable in [false, true] {
                let mut bytes = rig.pattern(1, blocks);
                rig.write(3, &bytes);
                let block = 4;
                let blocks = blocks - 2;
                rig.ok(Operation::WriteZeroes { slba: block, nlb: blocks, deallocate, durable });
                let len = bytes.len();
                bytes[512..len - 512].fill(0);
                assert!(rig.read(3, blocks + 2) == bytes);
            }
        }
        rig.finish();
    }
}

/// Runs a test of this program in a child process whose files are limited to 1 MiB.
#[test]
fn a_full_disk_is_no_space() {
    let directory = tempfile::tempdir().unwrap();
    file_spec(directory.path(), Some(512), None).build().unwrap();
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 2048; exec \"$0\" --exact \"$1\" --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .arg("devices::child_with_a_full_disk")
        .env(FULL_DISK, directory.path().join("disk.img"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("the disk was full"), "{text}");
}

const FULL_DISK: &str = "WEFT_TEST_FULL_DISK";

/// Runs only as the child of the test above.
#[test]
fn child_with_a_full_disk() {
    let Some(path) = std::env::var_os(FULL_DISK) else { return };
    for driver in KERNEL_DRIVERS {
        let spec = DeviceSpec::file(path.to_str().unwrap()).unwrap();
        let Some(reactor) = kernel_reactor(driver) else { continue };
        let mut rig = Rig::new(format!("full {driver:?}"), reactor, None, spec.build().unwrap());
        let end = rig.blocks();
        let bytes = rig.pattern(1, 8);
        let beyond = rig.write_of(end - 8, &bytes);
        let completion = rig.run(beyond);
        assert_eq!(completion.result, Err(Failure::NoSpace), "{}", rig.name);
        assert_eq!(completion.buffer.as_deref(), Some(&bytes[..]));
        drop(completion);
        let zeroes = vec![0; bytes.len()];
        let update = rig.compare_and_write_of(end - 8, &zeroes, &bytes);
        assert_eq!(rig.result(update), Err(Failure::NoSpace), "{}", rig.name);
        rig.write(0, &bytes);
        assert_eq!(rig.read(end - 8, 8), zeroes, "{}", rig.name);
        rig.finish();
        println!("the disk was full");
    }
}

#[test]
fn a_simulated_file_survives_as_far_as_it_was_flushed() {
    let mut rig = simulated(3, BYTES, false);
    let world = rig.world.clone().unwrap();
    let (first, second) = (rig.pattern(1, 1), rig.pattern(2, 1));
    rig.write(0, &first);
    rig.ok(Operation::Flush);
    rig.write(0, &second);
    rig.write(1, &second);
    let from = rig.buffer(&second);
    rig.ok(Operation::Write { slba: 2, nlb: 1, from, durable: true });
    world.crash_files();
    let found = rig.read(0, 3);
    assert!(found[..4096] == first, "what was flushed");
    assert!(found[4096..8192] == [0; 4096], "what was not");
    assert!(found[8192..] == second, "a durable write");
    rig.finish();
}

/// Every operation, also behind a wrapper. The control: without `durable` the data is lost.
#[test]
fn durable_writes_survive_a_power_loss() {
    for delayed in [false, true] {
        for durable in [false, true] {
            let mut rig = simulated(4, BYTES, delayed);
            let world = rig.world.clone().unwrap();
            let (old, new) = (rig.pattern(1, 2), rig.pattern(2, 2));
            for block in [0, 2, 4] {
                rig.write(block, &old);
            }
            rig.ok(Operation::Flush);
            let from = rig.buffer(&new);
            rig.ok(Operation::Write { slba: 0, nlb: 2, from, durable });
            rig.ok(Operation::WriteZeroes { slba: 2, nlb: 2, deallocate: false, durable });
            let (compare, write) = (rig.buffer(&old), rig.buffer(&new));
            rig.ok(Operation::CompareAndWrite { slba: 4, nlb: 2, compare, write, durable });
            world.crash_files();
            let (zero, len) = (vec![0; old.len()], old.len());
            let found = rig.read(0, 6);
            let expected = if durable { [&new, &zero, &new] } else { [&old, &old, &old] };
            for (found, (expected, what)) in
                found.chunks(len).zip(expected.into_iter().zip(["write", "zeroes", "compare"]))
            {
                assert!(found == expected, "{what}, durable: {durable}, delayed: {delayed}");
            }
            rig.finish();
        }
    }
}

#[test]
fn a_dropped_handle_does_not_block_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let factory = file_spec(directory.path(), None, None).build().unwrap();
    for driver in KERNEL_DRIVERS {
        let Some(reactor) = kernel_reactor(driver) else { continue };
        let mut rig = Rig::new("dropped".to_owned(), reactor, None, factory.clone());
        let write = rig.write_of(0, &rig.pattern(1, 8));
        rig.submit(1, write);
        let Rig { reactor, device, .. } = rig;
        drop(device);
        drop(reactor);
    }
    let mut rig =
        Rig::new("other".to_owned(), kernel_reactor(KERNEL_DRIVERS[1]).unwrap(), None, factory);
    rig.write(0, &rig.pattern(2, 8));
    assert_eq!(rig.read(0, 8), rig.pattern(2, 8));
    let elsewhere = rig.blocks() / 2;
    let zero = vec![0; 4096];
    let update = rig.compare_and_write_of(elsewhere, &zero, &rig.pattern(1, 1));
    assert_eq!(rig.result(update), Ok(()));
    let update = rig.compare_and_write_of(0, &rig.pattern(2, 1), &zero);
    assert_eq!(rig.result(update), Err(Failure::Gone), "its writes may not have ended");
    rig.finish();
}

/// A loop device; needs root.
#[test]
fn a_block_device() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("disk.img");
    fs::File::create(&image).unwrap().set_len(BYTES).unwrap();
    let Some(node) = LoopDevice::new(&image) else {
        eprintln!("no loop devices here");
        return;
    };
    for driver in KERNEL_DRIVERS {
        let spec = DeviceSpec::block(&node.0).unwrap();
        let Some(reactor) = kernel_reactor(driver) else { continue };
        let mut rig = Rig::new(format!("loop {driver:?}"), reactor, None, spec.build().unwrap());
        assert_eq!(rig.factory.geometry().bytes(), BYTES);
        assert_eq!(rig.factory.identity(), node.0);
        assert!(rig.device.geometry().capabilities.discard);
        let bytes = rig.pattern(1, 64);
        for deallocate in [false, true] {
            rig.write(8, &bytes);
            assert_eq!(rig.read(8, 64), bytes);
            let (block, blocks) = (16, 32);
            rig.ok(Operation::WriteZeroes { slba: block, nlb: blocks, deallocate, durable: true });
            assert_eq!(rig.read(16, 32), vec![0; 32 * rig.block_bytes()]);
        }
        rig.ok(Operation::Discard { ranges: Box::new([(0, 4096)]) });
        rig.ok(Operation::Flush);
        let zeroes = vec![0; rig.block_bytes()];
        let update = rig.compare_and_write_of(0, &zeroes, &bytes[..zeroes.len()]);
        assert_eq!(rig.result(update), Ok(()));
        assert!(rig.factory.resize(4096).is_err());
        fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(2 * BYTES).unwrap();
        assert!(run("losetup", &["-c", &node.0]));
        assert_eq!(rig.factory.refresh().unwrap().bytes(), 2 * BYTES);
        let last = rig.factory.geometry().blocks - 1;
        rig.read(last, 1);
        rig.finish();
        drop(rig);
        fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(BYTES).unwrap();
        assert!(run("losetup", &["-c", &node.0]));
    }
}

struct LoopDevice(String);

impl LoopDevice {
    fn new(image: &Path) -> Option<Self> {
        let output = Command::new("losetup").args(["-f", "--show"]).arg(image).output().ok()?;
        let node = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !node.is_empty()).then_some(Self(node))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        run("losetup", &["-d", &self.0]);
    }
}

fn run(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).status().is_ok_and(|status| status.success())
}

#[test]
fn no_timer_runs_while_nothing_waits() {
    let mut rig = simulated(5, BYTES, false);
    rig.write(0, &rig.pattern(1, 1));
    let zeroes = vec![0; 4096];
    let update = rig.compare_and_write_of(0, &zeroes, &zeroes);
    assert_eq!(rig.result(update), Err(Failure::Mismatch));
    let world = rig.world.clone().unwrap();
    let mut turns = 0;
    while world.advance() {
        rig.device.flush(&mut rig.reactor);
        rig.reactor.poll(weft_reactor::WaitLimit::NoWait, &mut rig.completions);
        for completion in rig.completions.drain(..) {
            rig.device.handle(&mut rig.reactor, completion);
        }
        turns += 1;
        assert!(turns < 10, "a timer keeps running");
    }
    assert!(world.now() < Duration::from_secs(1));
    rig.finish();
}
