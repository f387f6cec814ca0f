//! What a namespace stands on is known whatever the path that leads to it, and is not made anew
//! where it was once.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_backend::ResizeCallback;
use weft_nvme::log_page::LogPageId;
use weft_target::config::{Bdev, BdevKind, Config, Namespace};
use weft_target::steps::Step;
use weft_target::{Target, check};

use crate::support::peer::Peer;
use crate::support::{SUBSYSTEM, address, config, log, start, subsystem, wait_until};

const OTHER: &str = "nqn.2024-01.io.weft:other";

struct Folder(tempfile::TempDir);

impl Folder {
    /// A folder with `disk` and its other names: a hard link and a symbolic one.
    fn new() -> Self {
        let this = Self(tempfile::tempdir().expect("a folder"));
        std::fs::write(this.at("disk"), vec![0; 1 << 20]).expect("a file");
        std::fs::hard_link(this.at("disk"), this.at("hard")).expect("a link");
        std::os::unix::fs::symlink(this.at("disk"), this.at("soft")).expect("a link");
        this
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str) -> String {
        format!("file:{}", self.at(name).display())
    }
}

/// What is said where this configuration cannot be served.
#[track_caller]
fn refused(config: Config) -> String {
    let error = Target::start(config).expect_err("it is refused");
    error.to_string()
}

#[test]
fn a_file_by_another_name_is_served_once_in_a_subsystem() {
    let folder = Folder::new();
    let disk = folder.file("disk");
    let mut target = start(config(&[&disk]));
    for name in ["hard", "soft"] {
        let other = format!("delay:read=1us:{}", folder.file(name));
        let both = config(&[&disk, &other]);
        let bdev = Bdev {
            name: name.to_owned(),
            kind: BdevKind::Device,
            device: other.parse().expect("a device"),
            base: None,
            uuid: [7; 16],
        };
        target.step(&Step::CreateBdev(bdev)).expect("beside a namespace");
        let namespace = Box::new(Namespace::on_bdev(name));
        let step = Step::AddNamespace { nqn: SUBSYSTEM.to_owned(), namespace };
        let told = [
            check(&both).expect_err("checked").to_string(),
            target.step(&step).expect_err("added").to_string(),
            target.reload(both.clone()).expect_err("read again").to_string(),
            refused(both),
        ];
        for error in told {
            assert!(error.contains("namespace 2 of "), "{name}: {error}");
            assert!(error.contains("is what namespace 1 stands on"), "{name}: {error}");
        }
    }
    target.stop().expect("a clean stop");
}

/// Two subsystems have one device: a size that one of them changes is that of both.
#[test]
fn two_subsystems_of_one_file_have_one_size() {
    let folder = Folder::new();
    let two = |size: &str| {
        let mut config = config(&[&format!("{},size={size}", folder.file("disk"))]);
        config.subsystems.push(subsystem(OTHER, &[&folder.file("hard")]));
        config
    };
    let mut target = start(two("1MiB"));
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    target.when_resized(ResizeCallback::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    let name = format!("{SUBSYSTEM}:1");
    let step = Step::ResizeBdev { name, kind: None, bytes: 2 << 20 };
    target.step(&step).expect("it grows");
    assert!(told.load(Ordering::SeqCst) > 0, "who scans devices again is told");
    let bytes = |target: &Target, nqn| target.device(nqn, 1).expect("there").geometry().bytes();
    assert_eq!(bytes(&target, SUBSYSTEM), 2 << 20);
    assert_eq!(bytes(&target, OTHER), 2 << 20);
    assert_eq!(target.resized().len(), 1, "hosts of the other are to be told");
    target.stop().expect("a clean stop");
}

/// A file that was renamed has the number that it had.
#[test]
fn a_file_keeps_its_number_under_another_name() {
    let folder = Folder::new();
    std::fs::write(folder.at("first"), vec![0; 1 << 20]).expect("a file");
    let by_position = |names: &[&str]| {
        let devices: Vec<_> = names.iter().map(|name| folder.file(name)).collect();
        let mut config = config(&devices.iter().map(String::as_str).collect::<Vec<_>>());
        for namespace in &mut config.subsystems[0].namespaces {
            namespace.by_position = true;
        }
        config
    };
    let mut target = start(by_position(&["first", "disk"]));
    let uuid = |target: &Target| target.namespace(SUBSYSTEM, 2).expect("number 2").uuid;
    let before = uuid(&target);
    target.reload(by_position(&["hard"])).expect("it is the same file");
    assert_eq!(target.config().subsystems[0].namespaces[0].nsid, 2);
    assert_eq!(uuid(&target), before);
    target.stop().expect("a clean stop");
}

#[test]
fn a_file_that_was_served_is_not_made_anew() {
    let folder = Folder::new();
    let new = format!("{},size=1MiB", folder.file("new"));
    for device in [new.clone(), format!("delay:read=1us:{new}")] {
        let restored = Config { is_restored: true, ..config(&[&device]) };
        for error in [check(&restored).expect_err("checked").to_string(), refused(restored.clone())]
        {
            let (path, place) = (folder.at("new"), folder.at(""));
            assert!(error.contains(&format!("{} was served before", path.display())), "{error}");
            let mount = place.display().to_string();
            let mount = mount.trim_end_matches('/');
            assert!(error.contains(&format!("Mount the file system of {mount}")), "{error}");
            assert!(error.contains("truncate -s 1MiB"), "a remedy: {error}");
            assert!(!path.exists(), "nothing is made");
        }
    }
    let mut target = start(config(&[&new]));
    assert!(target.is_created(SUBSYSTEM, 1), "nothing is known of it");
    std::fs::remove_file(folder.at("new")).expect("removed");
    // It is opened again with another option: that would be an empty one.
    let error = target.reload(config(&[&format!("{new},direct=off")])).expect_err("gone");
    assert!(error.to_string().contains("was served before"), "{error}");
    assert!(!folder.at("new").exists());
    target.reload(config(&[])).expect("it is removed on purpose");
    target.reload(config(&[&new])).expect("and made");
    assert!(folder.at("new").exists() && target.is_created(SUBSYSTEM, 1));
    target.stop().expect("a clean stop");
    let mut target = start(config(&[&new]));
    assert!(!target.is_created(SUBSYSTEM, 1), "it is there");
    target.reload(Config { is_restored: true, ..config(&[&new]) }).expect("it is there");
    target.stop().expect("a clean stop");
}

/// A file that is removed, replaced or moved while it is served is told at once and at the end.
#[test]
fn a_file_that_goes_while_it_is_served_is_told() {
    type Removal = fn(&Folder);
    let gone: [(&str, Removal); 3] = [
        ("was removed while it is served", |folder| {
            std::fs::remove_file(folder.at("only")).expect("removed");
        }),
        ("was removed while it is served", |folder| {
            std::fs::rename(folder.at("disk"), folder.at("only")).expect("replaced");
        }),
        ("nothing is there", |folder| {
            std::fs::rename(folder.at("only"), folder.at("moved")).expect("moved");
        }),
    ];
    log::install();
    for (words, goes) in gone {
        let folder = Folder::new();
        std::fs::write(folder.at("only"), vec![0; 1 << 20]).expect("a file");
        let mut target = start(config(&[&format!("delay:read=1us:{}", folder.file("only"))]));
        let told = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&told);
        target.when_resized(ResizeCallback::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        }));
        let (mut admin, _) = Peer::admin(address(&target));
        let mut warning = || admin.log_page(LogPageId::HEALTH, 512)[0];
        let degraded = |target: &Target| target.watch().namespaces()[0].is_degraded;
        target.look_at_files().expect("nothing to tell");
        assert_eq!((warning(), degraded(&target)), (0, false));
        goes(&folder);
        wait_until("the kernel tells", || told.load(Ordering::SeqCst) > 0);
        target.look_at_files().expect("hosts are told");
        assert_eq!((warning(), degraded(&target)), (4, true), "{words}");
        if words == "nothing is there" {
            let before = told.load(Ordering::SeqCst);
            std::fs::rename(folder.at("moved"), folder.at("only")).expect("moved back");
            wait_until("the kernel tells", || told.load(Ordering::SeqCst) > before);
            target.look_at_files().expect("hosts are told");
            assert_eq!((warning(), degraded(&target)), (0, false), "it is back");
            let path = folder.at("only").canonicalize().expect("a path");
            let line = format!("{}, which was moved away, is back", path.display());
            assert_eq!(log::since(0, &line).len(), 1);
            goes(&folder);
        }
        let error = target.stop().expect_err("at the end again").to_string();
        assert!(error.contains(words), "{error}");
    }
}
