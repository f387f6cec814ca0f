//! Commands and files of the documents run as they stand there, but for addresses, paths and times.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::weft::{Folder, Target, command, text, weft};

fn document(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(name)).expect("a document")
}

/// A port that is free now.
fn free_port() -> u16 {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    socket.local_addr().expect("an address").port()
}

/// A load may be shorter than a reader wants it.
fn shortened(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let mut short = words.clone();
    for (index, pair) in words.windows(2).enumerate() {
        if pair[0] == "--runtime" {
            short[index + 1] = if pair[1] == "30" { "5" } else { "200ms" };
        }
    }
    short.join(" ")
}

/// A script of the steps of a tutorial, and the files that it shows: what serves or loads runs
/// beside what comes after, and has to end well.
fn script(section: &str, folder: &Folder) -> String {
    let mut script =
        "set -eu -o pipefail\ntrap 'kill $targets 2> /dev/null || :' EXIT\n".to_owned();
    script += "targets= loads=\n";
    let mut name = String::new();
    for (index, part) in section.split("```").enumerate() {
        if index % 2 == 0 {
            // The file that comes next is called so.
            let last = part.trim_end().trim_end_matches([':', '.']);
            name = last.rsplit('`').nth(1).unwrap_or_default().to_owned();
            continue;
        }
        let (language, fence) = part.split_once('\n').expect("a line");
        if language == "toml" {
            folder.write(&name, fence);
            continue;
        }
        assert_eq!(language, "console", "{section}");
        for line in fence.lines() {
            let step = line.strip_prefix("$ ").unwrap_or_else(|| panic!("{line} is no step"));
            let step = shortened(step);
            let count = script.len();
            script += &format!("echo {}\n", shell_word(line));
            script += &match step.split(' ').nth(1).filter(|_| step.starts_with("weft ")) {
                Some("target") => format!(
                    "{step} > said.{count} 2>&1 & targets=\"$targets $!\"\n\
                     until [ -s said.{count} ]; do kill -0 $!; sleep 0.05; done\n"
                ),
                Some("bench") => format!("{step} > said.{count} & loads=\"$loads $!\"\nsleep 1\n"),
                _ => format!("{step}\n"),
            };
        }
    }
    script + "for load in $loads; do wait $load; done\n"
}

fn shell_word(line: &str) -> String {
    format!("'{}'", line.replace('\'', "'\\''"))
}

#[test]
fn the_steps_of_the_tutorials_run() {
    let page = document("docs/tutorials.md");
    let (mut run, mut others) = (Vec::new(), Vec::new());
    for section in page.split("\n## ").skip(1) {
        let title = section.lines().next().expect("a title");
        // What root, a network or a minute is needed for runs in `attach` and `machines` of the
        // tests beside kernels, and among the tests of studies.
        if !["Serve a disk in five minutes", "A pair of targets"].contains(&title) {
            others.push(title);
            continue;
        }
        let folder = Folder::new("tutorial");
        let mut section = section.to_owned();
        for port in ["4420", "4421", "4422"] {
            section = section.replace(port, &free_port().to_string());
        }
        symlink(env!("CARGO_BIN_EXE_weft"), folder.path("weft")).expect("a link");
        let script = script(&section, &folder);
        let path = std::env::var("PATH").unwrap_or_default();
        let mut bash = Command::new("bash");
        bash.args(["-c", &script]).current_dir(folder.path(".")).stdin(Stdio::null());
        bash.env("PATH", format!("{}:{path}", text(&folder.path(".")))).env_remove("WEFT_LOG");
        let output = bash.output().expect("bash");
        let said = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{title}: {said}{error}");
        run.push(title);
    }
    assert_eq!(run.len(), 2);
    assert_eq!(
        others,
        ["Measure what a network costs", "Attach a namespace", "Several machines"],
        "does a step of a new tutorial run here?"
    );
}

/// Each key of it is used by a target that starts; what this machine has not is replaced.
#[test]
fn the_configuration_of_the_documents_starts() {
    let folder = Folder::new("configuration");
    let mut config = document("docs/config.toml");
    for key in ["web1", "disk", "web1-tls", "web1-next"] {
        let kind = if ["web1", "disk"].contains(&key) { "dhchap" } else { "tls" };
        fs::create_dir_all(folder.path("keys")).expect("a folder");
        weft("epoll", ["key", "generate", kind, text(&folder.path(&format!("keys/{key}")))]).text();
    }
    fs::create_dir_all(folder.path("namespaces")).expect("a folder");
    let here = text(&folder.path(".")).trim_end_matches("/.").to_owned();
    folder.write("sdb", vec![0; 1 << 20]);
    for (there, here) in [
        ("\"/etc/weft/", format!("\"{here}/")),
        ("/var/lib/weft/", format!("{here}/")),
        ("tcp://0.0.0.0:4420", "tcp://127.0.0.1:0".to_owned()),
        ("tcp://0.0.0.0:8009", "tcp://127.0.0.1:0".to_owned()),
        ("block = \"/dev/sdb\"", format!("file = \"{here}/sdb\"")),
        (
            "rbd = \"rbd/disk1,conf=/etc/ceph/ceph.conf,user=weft,timeout=20s\"",
            "null = \"1GiB\"".into(),
        ),
        ("10GiB", "10MiB".to_owned()),
    ] {
        assert!(config.contains(there), "{there} is replaced");
        config = config.replace(there, &here);
    }
    let file = folder.write("target.toml", config);
    let mut target = command("epoll");
    target.args(["target", "--stop-with-stdin", "-o", "json", "--config", text(&file)]);
    let target = Target::spawn("epoll", target);
    let subsystems = target.said["subsystems"].as_array().expect("a list");
    assert_eq!((subsystems.len(), target.said["ports"].as_array().map(Vec::len)), (2, Some(2)));
    target.stop();
}
