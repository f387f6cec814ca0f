//! Devices of one storage: they exclude each other's writes, have one size, and know of each
//! other's lost writes, whatever their paths, block sizes and wrappers.

use crate::rig::{KERNEL_DRIVERS, Rig, kernel_reactor};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use weft_backend::{DeviceFactory, DeviceSpec, Failure, Operation, ResizeCallback};

fn build(text: &str) -> Arc<dyn DeviceFactory> {
    let spec: DeviceSpec = text.parse().unwrap();
    spec.build().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// One file by four ways: its path with other blocks, a hard link, and a symbolic link, two of them
/// within wrappers.
fn ways(folder: &Path) -> Vec<Arc<dyn DeviceFactory>> {
    let at = |name: &str| folder.join(name);
    std::fs::write(at("disk"), vec![0; 8 << 20]).unwrap();
    std::fs::hard_link(at("disk"), at("hard")).unwrap();
    std::os::unix::fs::symlink(at("disk"), at("soft")).unwrap();
    let folder = folder.display();
    vec![
        build(&format!("file:{folder}/disk,block=4096")),
        build(&format!("file:{folder}/disk,block=512,direct=off")),
        build(&format!("delay:read=20us,write=20us:file:{folder}/hard")),
        build(&format!("fault:operation=flush,nth=1,effect=media-write:file:{folder}/soft")),
    ]
}

/// A counter in the first bytes of the file, incremented through all of them by compare-and-write.
#[test]
fn compare_and_writes_exclude_each_other_by_whatever_way() {
    const COUNTS: u64 = 30;
    for driver in KERNEL_DRIVERS {
        let folder = tempfile::tempdir().unwrap();
        let ways = ways(folder.path());
        if kernel_reactor(driver).is_none() {
            continue;
        }
        thread::scope(|scope| {
            for (way, factory) in ways.iter().enumerate() {
                scope.spawn(move || {
                    let reactor = kernel_reactor(driver).unwrap();
                    let mut rig = Rig::new(way.to_string(), reactor, None, Arc::clone(factory));
                    let mut counted = 0;
                    while counted < COUNTS {
                        let before = rig.read(0, 1);
                        let count = u64::from_le_bytes(before[..8].try_into().unwrap());
                        let mut after = before.clone();
                        after[..8].copy_from_slice(&(count + 1).to_le_bytes());
                        let operation = rig.compare_and_write_of(0, &before, &after);
                        match rig.result(operation) {
                            Ok(()) => counted += 1,
                            Err(Failure::Mismatch) => {}
                            Err(failure) => panic!("{way}: {failure}"),
                        }
                    }
                    rig.finish();
                });
            }
        });
        let mut rig =
            Rig::new("after".to_owned(), kernel_reactor(driver).unwrap(), None, ways[0].clone());
        let all = COUNTS * ways.len() as u64;
        assert_eq!(rig.read(0, 1)[..8], all.to_le_bytes(), "{driver:?}: none is lost");
        rig.finish();
    }
}

#[test]
fn a_size_and_a_loss_are_those_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let ways = ways(folder.path());
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    ways[3].when_resized(ResizeCallback::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    for (way, bytes) in [(0, 16 << 20), (2, 4 << 20), (3, 12 << 20)] {
        let before = told.load(Ordering::Relaxed);
        ways[way].resize(bytes).unwrap();
        assert!(ways.iter().all(|way| way.geometry().bytes() == bytes), "through {way}");
        assert!(told.load(Ordering::Relaxed) > before, "who has asked is told");
    }
    let mut rigs: Vec<_> = ways
        .iter()
        .map(|way| {
            let reactor = kernel_reactor(weft_reactor::DriverKind::Epoll).unwrap();
            Rig::new("one of four".to_owned(), reactor, None, Arc::clone(way))
        })
        .collect();
    rigs.iter_mut().take(3).for_each(|rig| rig.ok(Operation::Flush));
    assert_eq!(rigs[3].result(Operation::Flush), Err(Failure::MediaWrite), "the rule hits");
    for rig in &mut rigs {
        assert_eq!(
            rig.result(Operation::Flush),
            Err(Failure::MediaWrite),
            "the writes were of all"
        );
        assert!(rig.factory.has_lost_writes() && rig.factory.sync().is_err());
        rig.finish();
    }
}

/// A loop device of a file, with a partition. `None` where that cannot be made.
struct Loop(String);

impl Loop {
    fn of(file: &Path) -> Option<Self> {
        let run = |program: &str, words: &[&str]| {
            let output = Command::new(program).args(words).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let path = file.to_str()?;
        let node = run("losetup", &["--find", "--show", path])?;
        let this = Self(node.trim().to_owned());
        // One may be left of a process that was killed.
        let _ = run("delpart", &[&this.0, "1"]);
        run("addpart", &[&this.0, "1", "2048", "4096"])?;
        Path::new(&this.partition()).exists().then_some(this)
    }

    fn partition(&self) -> String {
        format!("{}p1", self.0)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("delpart").args([&self.0, "1"]).status();
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_part_is_refused_beside_its_whole() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(8 << 20).unwrap();
    let Some(disk) = Loop::of(file.path()) else {
        return eprintln!("without root and loop devices that have partitions: not tested");
    };
    let (whole, part) = (format!("block:{}", disk.0), format!("block:{}", disk.partition()));
    let backing = format!("file:{}", file.path().display());
    for (first, second) in [
        (&whole, &part),
        (&part, &whole),
        (&backing, &whole),
        (&whole, &backing),
        (&backing, &part),
        (&part, &backing),
    ] {
        let open = build(first);
        let error = second.parse::<DeviceSpec>().unwrap().build().unwrap_err().to_string();
        assert!(error.contains("has its blocks on"), "{first} then {second}: {error}");
        assert!(error.contains("serve only one of the two"), "{error}");
        drop(open);
        build(second);
    }
    let again = Loop::of(file.path()).expect("another loop device");
    for other in [format!("block:{}", again.0), format!("block:{}", again.partition())] {
        let open = build(&whole);
        let error = other.parse::<DeviceSpec>().unwrap().build().unwrap_err().to_string();
        assert!(error.contains("have their blocks on one file or device"), "{other}: {error}");
        drop(open);
        build(&other);
    }
    // A second node of a device is the device.
    let node = tempfile::tempdir().unwrap();
    let node = node.path().join("node");
    let numbers = Command::new("stat").args(["-c", "%Hr %Lr", &disk.0]).output().unwrap().stdout;
    let numbers = String::from_utf8(numbers).unwrap();
    let mut numbers = numbers.split_whitespace();
    let status = Command::new("mknod")
        .arg(&node)
        .args(["b", numbers.next().unwrap(), numbers.next().unwrap()])
        .status();
    assert!(status.unwrap().success());
    let open = build(&whole);
    let again = build(&format!("block:{}", node.display()));
    assert_eq!(open.storage().unwrap().id(), again.storage().unwrap().id());
    drop((open, again));
    // Another process is kept away by whatever it has the blocks on.
    let locked = |path: &str, shared: bool| {
        let file = std::fs::File::open(path).unwrap();
        let locked = if shared { file.try_lock_shared() } else { file.try_lock() };
        locked.is_err()
    };
    let backing = file.path().to_str().unwrap();
    let open = build(&format!("block:{}", node.display()));
    assert!(locked(&disk.0, true) && locked(backing, true), "by another node of the device");
    drop(open);
    let open = build(&part);
    for whole in [&disk.0, backing] {
        assert!(locked(whole, false) && !locked(whole, true), "{whole}: others may have parts");
    }
    drop(open);
    assert!(!locked(&disk.0, false) && !locked(backing, false));
}

/// The kernel goes on naming the path that a loop device was made with.
#[test]
fn a_loop_device_has_its_file_whatever_that_is_called_now() {
    let folder = tempfile::tempdir().unwrap();
    let [path, link, other] = ["disk", "link", "other"].map(|name| folder.path().join(name));
    for path in [&path, &other] {
        std::fs::File::create(path).unwrap().set_len(8 << 20).unwrap();
    }
    std::fs::hard_link(&path, &link).unwrap();
    let Some(disk) = Loop::of(&path) else {
        return eprintln!("without root and loop devices that have partitions: not tested");
    };
    let refused = |first: &str, second: &str, why: &str| {
        for (first, second) in [(first, second), (second, first)] {
            let _open = build(first);
            let error = second.parse::<DeviceSpec>().unwrap().build().unwrap_err().to_string();
            assert!(error.contains(why), "{first} then {second}: {error}");
        }
    };
    let whole = format!("block:{}", disk.0);
    let (backing, at_its_path) =
        (format!("file:{}", link.display()), format!("file:{}", path.display()));
    std::fs::rename(&other, &path).unwrap();
    refused(&backing, &whole, "has its blocks on");
    refused(&backing, &format!("block:{}", disk.partition()), "has its blocks on");
    drop((build(&whole), build(&at_its_path)));
    let open = build(&whole);
    build(&at_its_path);
    drop(open);
    std::fs::remove_file(&path).unwrap();
    refused(&backing, &whole, "has its blocks on");
    let again = Loop::of(&link).expect("another loop device");
    refused(&whole, &format!("block:{}", again.0), "have their blocks on one file or device");
    drop(again);
    let upon = Loop::of(Path::new(&disk.0)).expect("a loop device on another one");
    refused(&backing, &format!("block:{}", upon.0), "has its blocks on");
    let beside = Loop::of(Path::new(&disk.0)).expect("another one on it");
    let devices = [&upon, &beside].map(|disk| format!("block:{}", disk.0));
    refused(&devices[0], &devices[1], "have their blocks on one file or device");
}
