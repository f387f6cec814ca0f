//! Commands and files of the documents run as they stand there, on a machine of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::weft::{Folder, Target, command, text, weft};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document(name: &str) -> String {
    fs::read_to_string(root().join(name)).expect("a document")
}

/// All documents, by their names in the repository.
fn documents() -> Vec<String> {
    let mut names = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    for folder in ["docs", "docs/gallery", "docs/notebook"] {
        let entries = fs::read_dir(root().join(folder)).expect("a folder").flatten();
        let files = entries.map(|entry| format!("{folder}/{}", entry.file_name().display()));
        names.extend(files.filter(|name| name.ends_with(".md")));
    }
    names.sort();
    names
}

/// What the word after `console` says of a fence's steps, which no page shows; `cargo xtask tidy`
/// knows the same words.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mark {
    /// Each step runs here.
    Runs,
    /// Only where there are minutes for it (`cargo xtask test --all`).
    Slow,
    /// It needs what is not here, or another test runs it.
    Elsewhere,
}

/// A part of a section: a file that it shows, or steps.
enum Part {
    File(String, String),
    Steps(Mark, Vec<String>),
}

/// The parts of a section. The name of a file stands at the end of the text before it.
fn parts(section: &str) -> Vec<Part> {
    let mut found = Vec::new();
    let mut before = "";
    for (index, part) in section.split("```").enumerate() {
        if index % 2 == 0 {
            before = part.trim_end().trim_end_matches([':', '.']);
            continue;
        }
        let (language, fence) = part.split_once('\n').expect("a line");
        let mark = match language.split(' ').collect::<Vec<_>>().as_slice() {
            ["console"] => Mark::Runs,
            ["console", "slow"] => Mark::Slow,
            ["console", ..] => Mark::Elsewhere,
            _ => {
                let name = before.rsplit('`').nth(1).filter(|_| before.ends_with('`'));
                found.extend(name.map(|name| Part::File(name.to_owned(), fence.to_owned())));
                continue;
            }
        };
        found.push(Part::Steps(mark, steps(fence)));
    }
    found
}

/// The steps of a fence: lines after the prompt, and those that continue them.
fn steps(fence: &str) -> Vec<String> {
    let mut steps: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in fence.lines().map(str::trim_start) {
        let last = steps.last_mut().filter(|_| goes_on);
        match (line.strip_prefix("$ "), last) {
            (Some(step), _) => steps.push(step.to_owned()),
            (None, Some(step)) => *step += &format!("\n{line}"),
            // What a step prints.
            (None, None) => continue,
        }
        goes_on = line.ends_with('\\');
    }
    steps
}

/// A load may be shorter than a reader wants it; one beside which others are run, less so.
fn shortened(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let mut short = words.clone();
    for (index, pair) in words.windows(2).enumerate() {
        if pair[0] == "--runtime" {
            short[index + 1] = if pair[1] == LASTING { "5" } else { "200ms" };
        }
    }
    short.join(" ")
}

/// The time of a load that goes on while the next steps are made.
const LASTING: &str = "30";

/// One step as a line of a script. What serves or shows something live runs until the section ends,
/// once it has said something, and a load beside what comes after.
fn line_of(step: &str, count: usize) -> String {
    let step = shortened(step.split("  #").next().unwrap_or(step).trim_end());
    let step = step.strip_suffix(" &").unwrap_or(&step);
    match step.split(' ').collect::<Vec<_>>().as_slice() {
        ["weft", verb, ..] if *verb == "target" || (*verb == "top" && !step.contains("--once")) => {
            format!(
                "{step} > said.{count} 2> log.{count} <&9 & targets=\"$targets $!\"\n\
                 until [ -s said.{count} ]; do kill -0 $!; sleep 0.05; done\n"
            )
        }
        ["weft", "bench", ..] if step.contains("--runtime 5") => {
            format!("{step} > said.{count} & loads=\"$loads $!\"\nsleep 1\n")
        }
        // What they found is in their exit codes.
        ["weft", "doctor" | "advise", ..] => format!("{step} || test $? = 3 || test $? = 4\n"),
        _ => format!("{step}\n"),
    }
}

/// A machine of its own: folders that are empty or copied, the others as they are, addresses of
/// the documents, and what a reader has, which is the binary, a job, blocks and, where a section
/// uses its socket, the service of the package.
const MACHINE: &str = r#"
set -eu -o pipefail
mount -t tmpfs none "$MACHINE"
for at in /*; do
    own=$MACHINE$at
    case $at in
    /home | /media | /mnt | /root | /run | /srv | /tmp | /var) mkdir -m 1777 "$own" ;;
    /etc) cp -r --preserve=mode,links /etc "$MACHINE" 2> /dev/null || : ;;
    *) if [ -L "$at" ]; then cp -a "$at" "$own"; elif [ -d "$at" ]; then
        mkdir "$own"; mount --rbind "$at" "$own"; fi ;;
    esac
done
mkdir -p "$MACHINE"/{own/bin,run/weft,var/lib/weft,var/tmp,etc/weft/keys}
touch "$MACHINE/own/bin/weft"
mount --bind "$WEFT" "$MACHINE/own/bin/weft"
ip link set lo up
for address in 192.0.2.1 192.0.2.7 192.0.2.8 198.51.100.1; do
    ip address add $address/32 dev lo
done
export PATH=/own/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
exec chroot "$MACHINE" bash -c "$STEPS"
"#;

/// The beginning of the steps of a section.
const BEGIN: &str = r#"
set -eu -o pipefail
cd /root
targets= loads=
trap 'code=$?; kill -9 $targets 2> /dev/null || :; [ $code = 0 ] || tail -n 9 log.* || :' EXIT
mkfifo /run/open
exec 9<> /run/open
printf '[job]
rw=randread
bs=4k
runtime=200ms
time_based
' > job.fio
head -c 32768 /dev/urandom > blocks.bin
"#;

/// The package's service, of which a section uses the socket.
const SERVICE: &str = "weft target --listen tcp://192.0.2.1:4420 --memory 64MiB \
                       --control unix:/run/weft/control.sock";

/// The script of the steps of a section that run here; none: there is no such step.
fn script(section: &str, with_slow: bool) -> Option<String> {
    let mut script = BEGIN.to_owned();
    let mut count = 0;
    let mut add = |script: &mut String, step: &str| {
        count += 1;
        *script += &format!("echo {}\n{}", shell_word(&format!("$ {step}")), line_of(step, count));
    };
    let parts = parts(section);
    let runs = |mark: Mark| mark == Mark::Runs || (with_slow && mark == Mark::Slow);
    let all: Vec<&String> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Steps(mark, steps) if runs(*mark) => Some(steps),
            _ => None,
        })
        .flatten()
        .collect();
    if all.iter().any(|step| step.contains("/run/weft/control.sock")) {
        add(&mut script, SERVICE);
    }
    for part in &parts {
        if let Part::File(name, text) = part {
            script += &format!("printf %s {} > {name}\n", shell_word(text));
        }
    }
    all.iter().for_each(|step| add(&mut script, step));
    script += "for load in $loads; do wait $load; done\n";
    (!all.is_empty()).then_some(script)
}

fn shell_word(line: &str) -> String {
    format!("'{}'", line.replace('\'', "'\\''"))
}

/// A program with a network and mounts of its own.
fn apart(program: &[&str]) -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--net", "--mount"]).args(program);
    unshare
}

/// Whether the kernel allows that, which some systems forbid to users; says so otherwise.
fn can_be_apart() -> bool {
    let is_allowed = apart(&["true"]).output().is_ok_and(|ran| ran.status.success());
    if !is_allowed {
        eprintln!("SKIPPED: steps of the documents: unshare --user --net --mount is not allowed");
    }
    is_allowed
}

/// Runs a section in a network and with folders of its own; returns what went wrong.
fn run(place: &str, script: &str) -> Option<String> {
    let folder = Folder::new("steps");
    let mut unshare = apart(&["bash", "-c", MACHINE]);
    unshare.env("MACHINE", folder.path(".")).env("WEFT", env!("CARGO_BIN_EXE_weft"));
    unshare.env("STEPS", script).env_remove("WEFT_LOG").stdin(Stdio::null());
    let ran = unshare.output().expect("unshare");
    let said = String::from_utf8_lossy(&ran.stdout);
    let error = String::from_utf8_lossy(&ran.stderr);
    (!ran.status.success()).then(|| format!("{place}:\n{said}{error}"))
}

/// Every fence whose steps are for here is run as it stands, but for the times of loads. What is
/// marked otherwise is read by the parser of the command line (`study::run::examples`).
#[test]
fn the_steps_of_the_documents_run() {
    if !can_be_apart() {
        return;
    }
    let with_slow = std::env::var_os("WEFT_TEST_SLOW_STEPS").is_some();
    let mut scripts = Vec::new();
    for name in documents() {
        let page = document(&name);
        for section in page.split("\n## ") {
            let title = section.lines().next().unwrap_or_default();
            // A build without TLS has no steps with it; tests are built with it.
            let has = |script: &String| cfg!(feature = "tls") || !script.contains("tls");
            let script = script(section, with_slow).filter(has);
            scripts.extend(script.map(|script| (format!("{name}, {title}"), script)));
        }
    }
    let count = scripts.len();
    let scripts = Mutex::new(scripts);
    let next = || scripts.lock().expect("a list").pop();
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some((place, script)) = next() {
                    let fault = run(&place, &script);
                    failed.lock().expect("a list").extend(fault);
                }
            });
        }
    });
    let failed = failed.into_inner().expect("a list");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(count >= 12, "{count} sections have steps");
}

/// Most sections wait, and other tests run beside them.
const AT_A_TIME: usize = 2;

#[test]
fn a_fence_is_run_unless_its_mark_says_otherwise() {
    let page = "`a.toml`:\n```toml\nx = 1\n```\n```console\n$ echo one \\\n  two\nthree\n```\n\
                ```console slow\n$ four\n```\n```console needs a disk\n$ five\n```\n\
                ```\nsix\n```\n";
    let of = |with_slow| script(page, with_slow).expect("steps");
    assert!(of(false).contains("> a.toml\n") && of(false).contains("\necho one \\\ntwo\n"));
    assert!(!of(false).contains("three") && !of(false).contains("four"));
    assert!(of(true).contains("\nfour\n") && !of(true).contains("five"));
    assert_eq!(script("```console needs a disk\n$ five\n```\n", true), None);
    if !can_be_apart() {
        return;
    }
    let broken = run("here", &(BEGIN.to_owned() + "echo out\nfalse\n")).expect("a fault");
    assert!(broken.contains("out"), "{broken}");
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
