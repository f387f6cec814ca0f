//! Files that are not where they were: an empty one does not take their place.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::weft::{Folder, NQN, Target, command, text, weft};
use rustix::process::Signal;

/// Runs the binary in a mount namespace of its own after a command that mounts something there.
fn mounted(mount: &str, place: &Path, words: &[&str]) -> String {
    let script = format!("{mount} || exit 99; shift; exec \"$@\"");
    let mut unshare = std::process::Command::new("unshare");
    unshare.env("WEFT_DRIVER", "epoll").stdin(Stdio::null());
    unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh", text(place)]);
    unshare.arg(command("epoll").get_program()).args(words);
    let ran = unshare.output().expect("unshare");
    assert_ne!(ran.status.code(), Some(99), "a mount: {}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(ran.status.code(), Some(1));
    String::from_utf8_lossy(&ran.stderr).into_owned()
}

/// One would overwrite what the other one keeps.
#[test]
fn a_state_has_one_process_and_is_checked_without_a_configuration() {
    let folder = Folder::new("one-state");
    let state = folder.path("state.json");
    let target = Target::start("epoll", &["--memory", "1MiB", "--state", text(&state)]);
    let second = ["target", "--state", text(&state), "--memory", "1MiB"];
    let second = [&second[..], &["--listen", "tcp://127.0.0.1:0"]].concat();
    let fault = weft("epoll", second).fault();
    assert!(fault.contains("another process keeps what it serves there"), "{fault}");
    let fault = weft("epoll", ["target", "--check", "--state", text(&state)]).fault();
    assert!(fault.contains("another process keeps what it serves there"), "{fault}");
    target.stop();
    let said = weft("epoll", ["target", "--check", "--state", text(&state)]).text();
    assert!(said.contains("memory:1MiB"), "{said}");
    // A limit that waits for what it is for is kept, and does not keep the target from its start.
    let control = format!("unix:{}", text(&folder.path("control")));
    let words = ["--memory", "1MiB", "--state", text(&state), "--control", &control];
    let target = Target::start("epoll", &words);
    let limit = "rate-limit set --subsystem nqn.2024-01.io.example:later --rate-iops 500";
    let words = ["ctl", "--control", &control].into_iter().chain(limit.split(' '));
    assert!(weft("epoll", words).text().contains("the rule waits for it"));
    target.stop();
    weft("epoll", ["target", "--check", "--state", text(&state)]).text();
    let target = Target::start("epoll", &["--memory", "1MiB", "--state", text(&state)]);
    target.stop();
}

#[test]
fn a_disk_that_is_not_mounted_is_no_empty_one() {
    let folder = Folder::new("unmounted");
    let disks = folder.path("disks");
    fs::create_dir(&disks).expect("a folder");
    let (disk, state) = (disks.join("disk.img"), folder.path("state.json"));
    let file = format!("{},size=4MiB", text(&disk));
    let words = ["--file", &file, "--state", text(&state)];
    let target = Target::start("epoll", &words);
    assert_eq!(target.said["subsystems"][0]["namespaces"][0]["created"], true);
    target.wait_for_log("disk.img is created, empty, with 4 MiB");
    target.stop();
    let target = Target::start("epoll", &words);
    assert_eq!(target.said["subsystems"][0]["namespaces"][0]["created"], false);
    target.stop();
    // Another file system hides it, as an empty mount point would.
    let serve = ["target", "--file", &file, "--state", text(&state), "--nqn", NQN];
    let serve = [&serve[..], &["--listen", "tcp://127.0.0.1:0"]].concat();
    let fault = mounted("mount -t tmpfs none \"$1\"", &disks, &serve);
    assert!(fault.contains("disk.img was served before and is missing"), "{fault}");
    assert!(fault.contains("The name is that of the state file"), "a new name: {fault}");
    assert!(fault.contains(&format!("Mount the file system of {}", text(&disks))), "{fault}");
    fs::rename(&disk, folder.path("away.img")).expect("moved away");
    let config = folder.write(
        "target.toml",
        format!("[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{NQN}\"\n"),
    );
    let check = ["target", "--check", "--config", text(&config), "--state", text(&state)];
    let fault = weft("epoll", check).fault();
    assert!(fault.contains("disk.img was served before"), "{fault}");
    assert!(!disk.exists(), "nothing was made");
    let again = ["--file", &file];
    let target = Target::start("epoll", &again);
    assert_eq!(
        target.said["subsystems"][0]["namespaces"][0]["created"], true,
        "without a state nothing is known of it, so it is told"
    );
    target.stop();
}

#[test]
fn a_state_that_cannot_be_written_at_a_start_is_no_change() {
    let folder = Folder::new("unwritable");
    let state = folder.path("state");
    fs::create_dir(folder.path("state.new")).expect("in the way of what is written first");
    let words = ["target", "--memory", "1MiB", "--listen", "tcp://127.0.0.1:0"];
    let fault = weft("epoll", [&words[..], &["--state", text(&state)]].concat()).fault();
    assert!(fault.contains("the state") && fault.contains("cannot be written"), "{fault}");
    assert!(fault.contains("give --state another file"), "what to do: {fault}");
    assert!(!fault.contains("the change is made"), "{fault}");
}

/// Of two calls that make a namespace the first one leaves nothing, whatever is asked for.
#[test]
fn what_cannot_be_kept_is_not_made() {
    let folder = Folder::new("not-made");
    let (disk, state) = (folder.path("disk"), folder.path("state"));
    let control = format!("unix:{}", text(&folder.path("control")));
    let words = ["--memory", "1MiB", "--state", text(&state), "--control", &control];
    let target = Target::start("epoll", &words);
    let ctl = |words: &str| {
        weft("epoll", ["ctl", "--control", &control].into_iter().chain(words.split(' ')))
    };
    let shown = || {
        ["bdev list", "namespace list", "subsystem list", "listener list", "host list", "key list"]
            .map(|list| ctl(&format!("{list} -o json")).json())
    };
    let before = (shown(), fs::read(&state).expect("a state"));
    let in_the_way = folder.path("state.new");
    fs::create_dir(&in_the_way).expect("in the way of what is written first");
    let key = folder.write("key", "nothing that is read");
    for change in [
        format!("namespace add {NQN} --memory 1MiB"),
        format!("namespace add {NQN} --file {},size=1MiB", text(&disk)),
        format!("namespace resize {NQN} 1 2MiB"),
        "bdev create one memory:1MiB".to_owned(),
        "subsystem create nqn.2024-01.io.example:other".to_owned(),
        format!("listener add {NQN} tcp://127.0.0.1:0"),
        format!("host allow {NQN} nqn.2024-01.io.example:h"),
        format!("key add k {}", text(&key)),
        "rate-limit set --rate-iops 5000".to_owned(),
        "qos set --class latency".to_owned(),
    ] {
        let fault = ctl(&change).fault();
        assert!(fault.contains("nothing has changed") && fault.contains("state"), "{fault}");
        assert_eq!((shown(), fs::read(&state).expect("a state")), before, "{change}");
        assert!(!disk.exists(), "{change}");
    }
    fs::remove_dir(&in_the_way).expect("out of the way");
    ctl(&format!("namespace add {NQN} --file {},size=1MiB", text(&disk))).text();
    target.stop();
}

/// The answer says that the change is made, so it comes no sooner for that.
#[test]
fn a_removal_that_cannot_be_kept_is_answered_after_the_last_command_as_well() {
    let folder = Folder::new("unkept");
    let (disk, state) = (folder.write("disk", vec![0; 1 << 20]), folder.path("state"));
    let device = format!("delay:write=1500ms:file:{}", text(&disk));
    let words = ["--device", &device, "--state", text(&state), "--control"];
    let control = format!("unix:{}", text(&folder.path("control")));
    let target = Target::start("epoll", &[&words[..], &[&control]].concat());
    fs::create_dir(folder.path("state.new")).expect("in the way of what is written first");
    let data = folder.write("data", vec![7; 4096]);
    let mut writer = command("epoll");
    writer.args(["write", "--data", text(&data), &target.url(1)]);
    let writer = writer.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut writer = writer.expect("a host");
    target.wait_for_log("connected to");
    std::thread::sleep(std::time::Duration::from_millis(500));
    let fault = weft("epoll", ["ctl", "--control", &control, "namespace", "remove", NQN, "1"]);
    let answered = fs::read(&disk).expect("the disk");
    let fault = fault.fault();
    assert!(fault.contains("the change is made, but"), "{fault}");
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(fs::read(&disk).expect("the disk") == answered, "something was written afterwards");
    writer.kill().expect("it ends");
    writer.wait().expect("it has ended");
    target.signal(Signal::TERM);
    target.wait();
}

#[test]
fn a_bind_mount_is_the_same_file() {
    let folder = Folder::new("bind");
    for name in ["disks", "other"] {
        fs::create_dir(folder.path(name)).expect("a folder");
    }
    let disk = folder.write("disks/disk.img", vec![0; 1 << 20]);
    let again = folder.path("other/disk.img");
    let words = ["target", "--file", text(&disk), "--file", text(&again), "--nqn", NQN];
    let words = [&words[..], &["--listen", "tcp://127.0.0.1:0"]].concat();
    let bind = "mount --bind \"$1\" \"$1/../other\"";
    let fault = mounted(bind, &folder.path("disks"), &words);
    assert!(fault.contains("namespace 2 of"), "{fault}");
    assert!(fault.contains("is what namespace 1 stands on"), "{fault}");
}

#[test]
fn a_file_that_is_removed_while_it_is_served_is_told() {
    let folder = Folder::new("removed");
    let disk = folder.write("disk.img", vec![0; 1 << 20]);
    let target = Target::start("epoll", &["--file", text(&disk)]);
    fs::remove_file(&disk).expect("removed");
    let line = target.wait_for_log("was removed while it is served");
    assert!(line.contains("disk.img") && line.contains("/proc/"), "how to save it: {line}");
    let smart = target.weft("log", 1, &["smart", "-o", "json"]).json();
    assert_eq!(smart["critical_warning"], 4, "{smart}");
    target.signal(Signal::TERM);
    let line = target.wait_for_log("disk.img was removed while it is served");
    assert!(line.contains("copy /proc/"), "{line}");
    assert_eq!(target.wait(), Some(1));
}
