//! Which namespace has which number when the configuration is read again.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use weft_nvme::Status;
use weft_nvme::identify::{Cns, Identify};
use weft_target::Target;
use weft_target::config::{Config, nvmetcli, toml};

use crate::support::peer::Peer;
use crate::support::{SUBSYSTEM, address, drivers, pattern, start, wait_until};

const BLOCK: usize = 4096;
const BLOCKS: usize = 64;

/// Two files of which one begins with zeroes and the other with a pattern.
struct Files {
    _directory: tempfile::TempDir,
    first: PathBuf,
    second: PathBuf,
    contents: Vec<u8>,
}

impl Files {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let (first, second) = (directory.path().join("first"), directory.path().join("second"));
        let contents = pattern(BLOCK * BLOCKS, 7);
        std::fs::write(&first, vec![0; contents.len()]).expect("a file");
        std::fs::write(&second, &contents).expect("a file");
        Self { _directory: directory, first, second, contents }
    }

    #[track_caller]
    fn second_is_untouched(&self) {
        assert!(std::fs::read(&self.second).expect("a file") == self.contents, "it was written to");
    }
}

/// A TOML configuration with these blocks of a namespace's keys.
fn from_toml(namespaces: &[String]) -> Config {
    let mut text =
        format!("[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n");
    for namespace in namespaces {
        text += &format!("[[subsystem.namespace]]\n{namespace}\n");
    }
    toml::parse(&text).expect("a configuration")
}

fn file(path: &Path) -> String {
    format!("file = \"{}\"", path.display())
}

fn serves(target: &Target, config: Config) -> Config {
    Config { driver: target.config().driver, ..config }
}

/// A namespace whose block is deleted while a host writes to it takes no other file's place.
#[test]
fn a_write_never_reaches_the_file_after_it() {
    for (driver, depth) in drivers().iter().zip([32, 1]).chain(drivers().iter().zip([4, 32])) {
        let files = Files::new();
        let both = [file(&files.first), file(&files.second)];
        let mut target = start(Config { driver: *driver, ..from_toml(&both) });
        let at = address(&target);
        let (written, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let host = scope.spawn(|| {
                let (_admin, controller) = Peer::admin(at);
                let mut io = Peer::io(at, controller, 1);
                let bytes = pattern(BLOCK, 1);
                let mut under_way = VecDeque::new();
                for block in (0..BLOCKS as u64).cycle() {
                    if under_way.len() == depth {
                        let slot = under_way.pop_front().expect("one");
                        match io.wait_for(slot).status() {
                            Status::SUCCESS => written.fetch_add(1, Ordering::Relaxed),
                            status => {
                                assert_eq!(status, Status::INVALID_NAMESPACE.with_dnr());
                                refused.fetch_add(1, Ordering::Relaxed)
                            }
                        };
                    }
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    under_way.push_back(io.begin_write(1, block, 1, &bytes));
                }
                for slot in under_way {
                    io.wait_for(slot);
                }
                let second = io.read(2, 0, 1, BLOCK);
                (second.status(), second.data.map(|data| data.to_vec()))
            });
            let enough = |count: &AtomicUsize, more: usize| {
                let from = count.load(Ordering::Relaxed);
                wait_until("writing", || count.load(Ordering::Relaxed) >= from + more);
            };
            enough(&written, 2 * depth);
            let config = serves(&target, from_toml(&both[1..]));
            let reloaded = target.reload(config);
            // What would be written now would be written to the other file.
            let before = (written.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
            wait_until("the host goes on", || {
                let now = (written.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
                now.0 + now.1 >= before.0 + before.1 + 2 * depth
            });
            stop.store(true, Ordering::Relaxed);
            let second = host.join().expect("no panic");
            reloaded.expect("a reload");
            files.second_is_untouched();
            assert_eq!(second.0, Status::SUCCESS);
            assert!(second.1.as_deref() == files.contents.get(..BLOCK));
        });
        assert!(refused.load(Ordering::Relaxed) > 0, "number 1 is gone");
        assert_eq!(target.config().subsystems[0].namespaces[0].nsid, 2);
        target.stop().expect("a clean stop");
        files.second_is_untouched();
    }
}

/// In the form of `nvmetcli` every number is explicit.
#[test]
fn a_number_does_not_get_another_file() {
    let saved = |path: &Path| {
        let text = format!(
            r#"{{"hosts": [], "ports": [{{"addr": {{"adrfam": "ipv4", "traddr": "127.0.0.1",
            "trsvcid": "0", "trtype": "tcp"}}, "portid": 1, "subsystems": ["{SUBSYSTEM}"]}}],
            "subsystems": [{{"nqn": "{SUBSYSTEM}", "attr": {{"allow_any_host": "1"}},
            "namespaces": [{{"nsid": 1, "enable": 1, "device": {{"path": "{}"}}}}]}}]}}"#,
            path.display()
        );
        nvmetcli::parse(&text).expect("a configuration").config
    };
    for from in
        [saved as fn(&Path) -> Config, |path| from_toml(&[format!("nsid = 1\n{}", file(path))])]
    {
        let files = Files::new();
        let mut target = start(from(&files.first));
        let (_admin, controller) = Peer::admin(address(&target));
        let mut io = Peer::io(address(&target), controller, 1);
        let error =
            target.reload(from(&files.second)).map(|_| ()).expect_err("another owner").to_string();
        for part in ["namespace 1 of", "first", "second", "UUID", "nsid"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        io.write(1, 0, 1, &pattern(BLOCK, 1)).succeeded();
        target.stop().expect("a clean stop");
        files.second_is_untouched();
    }
}

/// A number that was removed on purpose may be used again; who knew its owner has to ask first.
#[test]
fn a_number_is_used_again_by_those_who_have_asked() {
    let files = Files::new();
    let one = |path: &Path| {
        from_toml(&[format!("nsid = 1\n{}", file(path)), "nsid = 2\nnull = \"1MiB\"".to_owned()])
    };
    let mut target = start(one(&files.first));
    let (mut admin, controller) = Peer::admin(address(&target));
    let mut io = Peer::io(address(&target), controller, 1);
    let bytes = pattern(BLOCK, 1);
    io.write(1, 0, 1, &bytes).succeeded();
    target.reload(from_toml(&["nsid = 2\nnull = \"1MiB\"".to_owned()])).expect("1 is removed");
    target.reload(one(&files.second)).expect("1 is used again");
    let refused = Status::INVALID_NAMESPACE.with_dnr();
    assert_eq!(io.write(1, 0, 1, &bytes).status(), refused);
    assert_eq!(io.read(1, 0, 1, BLOCK).status(), refused);
    io.write(2, 0, 1, &bytes).succeeded();
    let (mut later, controller) = Peer::admin(address(&target));
    let mut new = Peer::io(address(&target), controller, 1);
    assert!(new.read(1, 0, 1, BLOCK).bytes() == &files.contents[..BLOCK]);
    assert_eq!(io.write(1, 0, 1, &bytes).status(), refused, "another host has asked");
    let identify = Identify::new(Cns::NAMESPACE_DESCRIPTOR_LIST, 1).to_command();
    admin.run_for(identify, 4096).succeeded();
    assert!(io.read(1, 0, 1, BLOCK).bytes() == &files.contents[..BLOCK]);
    assert!(later.controller_status().ready());
    // What comes back is known.
    target.reload(from_toml(&["nsid = 2\nnull = \"1MiB\"".to_owned()])).expect("1 is removed");
    target.reload(one(&files.second)).expect("the same again");
    assert!(io.read(1, 0, 1, BLOCK).bytes() == &files.contents[..BLOCK]);
    target.stop().expect("a clean stop");
    files.second_is_untouched();
}

/// Until hosts look again they use the block size that they know, with a UUID that they know.
#[test]
fn a_block_size_stays_with_its_uuid() {
    let files = Files::new();
    let sized = |bytes: u32| from_toml(&[format!("{}\nblock-size = {bytes}", file(&files.second))]);
    let mut target = start(sized(4096));
    let error = target.reload(sized(512)).map(|_| ()).expect_err("another block size").to_string();
    assert!(error.contains("4096") && error.contains("512") && error.contains("uuid"), "{error}");
    let (_admin, controller) = Peer::admin(address(&target));
    let mut io = Peer::io(address(&target), controller, 1);
    assert!(io.read(1, 1, 1, BLOCK).bytes() == &files.contents[BLOCK..2 * BLOCK]);
    target.reload(from_toml(&["null = \"1MiB\"".to_owned()])).expect("it is removed");
    target.reload(sized(512)).expect("it is added again");
    let number = target.config().subsystems[0].namespaces[0].nsid;
    assert_eq!(number, 1);
    assert_eq!(io.read(1, 0, 1, 512).status(), Status::INVALID_NAMESPACE.with_dnr());
    target.stop().expect("a clean stop");
}
