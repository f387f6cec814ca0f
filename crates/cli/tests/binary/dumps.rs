//! Who has keys leaves no core dump, and no other process of the same user looks into its memory.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::weft::{Folder, NQN, text, weft};

/// The user of the process where root runs the test, to whom everything belongs anyway.
const OTHER_USER: u32 = 65534;

/// The owner of what /proc shows of a target: its user, or root where it leaves no core dump.
fn shown_owner(program: &Path, user: Option<u32>, words: &[&str]) -> u32 {
    let mut command = Command::new(program);
    command.args(words).args(["--stop-with-stdin"]).env("WEFT_DRIVER", "epoll");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let mut target = command.spawn().expect("a target");
    let mut line = String::new();
    let output = target.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert!(!line.is_empty(), "the target has not started");
    let shown = fs::metadata(format!("/proc/{}/status", target.id())).expect("a process");
    drop(target.stdin.take());
    assert!(target.wait().expect("an end").success());
    shown.uid()
}

#[test]
fn who_has_keys_leaves_no_core_dump_unless_told_to() {
    let folder = Folder::new("dumps");
    let key = folder.path("key");
    weft("epoll", ["key", "generate", "dhchap", text(&key)]).text();
    let config = |name: &str, host: &str| {
        let text = format!(
            "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{NQN}\"\n{host}\n\
             [[subsystem.namespace]]\nmemory = \"1MiB\"\n"
        );
        folder.write(name, text)
    };
    let host = format!("[[subsystem.host]]\nnqn = \"nqn.h\"\ndhchap-key = {key:?}\n");
    let (with, without) = (config("with.toml", &host), config("without.toml", ""));
    let program = folder.path("weft");
    // By another process: one that another test starts meanwhile would have this one's open file
    // for a moment, and a program that is open for writing cannot be started.
    let copied =
        Command::new("cp").args([Path::new(env!("CARGO_BIN_EXE_weft")), &program]).status();
    assert!(copied.expect("cp").success());
    let own = rustix::process::geteuid();
    let user = own.is_root().then_some(OTHER_USER);
    for path in [&folder.path(""), &key, &with, &without, &program] {
        chown(path, user, user).expect("another owner");
    }
    let owner = user.unwrap_or(own.as_raw());
    let run = |words: &[&str]| shown_owner(&program, user, words);
    assert_eq!(run(&["target", "--config", text(&without)]), owner, "it has no keys");
    assert_ne!(run(&["target", "--config", text(&with)]), owner, "it has keys");
    assert_eq!(run(&["--core-dumps", "target", "--config", text(&with)]), owner, "it is told to");
}
