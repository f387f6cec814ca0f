//! `weft target --check` says what the start would be refused with, and leaves nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use crate::weft::{DRIVERS, Folder, NQN, Target, text, weft};

/// What is in a folder: names, and the contents of files.
fn contents(folder: &Folder) -> BTreeMap<String, Option<Vec<u8>>> {
    let entries = fs::read_dir(folder.path("")).expect("the folder").flatten();
    let one = |entry: fs::DirEntry| {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        let contents = is_file.then(|| fs::read(entry.path()).expect("a file"));
        (entry.file_name().to_string_lossy().into_owned(), contents)
    };
    entries.map(one).collect()
}

/// What holds something while the target is tried.
type Holder = Box<dyn std::any::Any>;

/// A damage: what is made of the folder, the address of the port, and of the only namespace and of
/// its subsystem.
#[derive(Default)]
struct Damage {
    held: Option<Holder>,
    port: Option<String>,
    device: Option<String>,
    of_subsystem: String,
    of_namespace: String,
    of_file: String,
    /// More words of the command.
    words: Vec<String>,
}

type Case = (fn(&Folder) -> Damage, &'static str);

fn at(folder: &Folder, name: &str) -> String {
    text(&folder.path(name)).to_owned()
}

fn words(words: &str) -> Damage {
    let words = words.split(' ').map(str::to_owned).collect();
    Damage { words, ..Damage::default() }
}

fn device(device: String) -> Damage {
    Damage { device: Some(device), ..Damage::default() }
}

fn of_namespace(line: String) -> Damage {
    Damage { of_namespace: line, ..Damage::default() }
}

/// A port that somebody has, and what keeps it.
fn taken() -> (String, Option<Holder>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    (address, Some(Box::new(listener)))
}

fn locked(folder: &Folder, name: &str) -> Option<Holder> {
    let file = File::create(folder.path(name)).expect("a file");
    file.set_len(1 << 20).expect("a size");
    file.try_lock().expect("nobody has it");
    Some(Box::new(file))
}

const PORTS: [Case; 8] = [
    (
        |_| {
            let (address, held) = taken();
            Damage { port: Some(format!("tcp://{address}")), held, ..Damage::default() }
        },
        "ss -ltnp",
    ),
    (
        |_| Damage { port: Some("tcp://192.0.2.1:4420".to_owned()), ..Damage::default() },
        "192.0.2.1",
    ),
    (
        |_| {
            let (address, held) = taken();
            Damage { held, ..words(&format!("--metrics {address}")) }
        },
        "listen for --metrics on",
    ),
    (
        |_| {
            let (address, held) = taken();
            Damage { held, ..words(&format!("--control tcp://{address}")) }
        },
        "listen for control on",
    ),
    (
        |folder| {
            let held = UnixListener::bind(folder.path("control")).expect("a socket");
            let control = format!("--control unix:{}", at(folder, "control"));
            Damage { held: Some(Box::new(held)), ..words(&control) }
        },
        "listen for control on",
    ),
    (
        |folder| words(&format!("--control unix:{}", at(folder, "missing/control"))),
        "listen for control on",
    ),
    (
        |folder| {
            let file = folder.write("control", "precious");
            words(&format!("--control unix:{}", text(&file)))
        },
        "listen for control on",
    ),
    (
        |folder| {
            let token = folder.write("token", "0123456789abcdef0123456789abcdef");
            fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).expect("a mode");
            let token = text(&token);
            words(&format!("--control tcp://127.0.0.1:0 --control-token-file {token}"))
        },
        "chmod 600",
    ),
];

const DEVICES: [Case; 10] = [
    (
        |folder| {
            let held = locked(folder, "disk");
            Damage { held, ..device(format!("file:{}", at(folder, "disk"))) }
        },
        "is in use by another process",
    ),
    (|folder| device(format!("file:{}", at(folder, "none"))), "does not exist"),
    (|folder| device(format!("file:{},size=1MiB", at(folder, "none/disk"))), "none/disk"),
    (|folder| device(format!("file:{},size=1MiB", at(folder, "."))), "is not a regular file"),
    (
        |folder| device(format!("file:{}", text(&folder.write("short", [0; 100])))),
        "less than a block",
    ),
    (|folder| device(format!("block:{}", text(&folder.write("disk", [0; 512])))), "block device"),
    (
        |folder| {
            let marks = folder.write("marks", "nonsense");
            device(format!("uncorrectable:file={}:memory:1MiB", text(&marks)))
        },
        "no marks of blocks",
    ),
    (
        |folder| {
            let marks = at(folder, "missing/marks");
            device(format!("uncorrectable:file={marks}:memory:1MiB"))
        },
        "keep marked blocks in",
    ),
    (
        |folder| {
            let same = format!("{},size=1MiB", at(folder, "disk"));
            let second = format!("[[subsystem.namespace]]\ndevice = \"file:{same}\"\n");
            Damage { of_namespace: second, ..device(format!("file:{same}")) }
        },
        "two namespaces of a subsystem on one device",
    ),
    (|_| words("--cpus 1000"), "there is no processor 1000"),
];

const FILES: [Case; 15] = [
    (|folder| words(&format!("--state {}", at(folder, "missing/state"))), "missing/state"),
    (
        |folder| {
            fs::create_dir(folder.path("state.new")).expect("a folder");
            words(&format!("--state {}", at(folder, "state")))
        },
        "the state",
    ),
    (
        |folder| {
            fs::create_dir(folder.path("state")).expect("a folder");
            words(&format!("--state {}", at(folder, "state")))
        },
        "it is not a regular file",
    ),
    (
        |folder| {
            let held = locked(folder, "state.lock");
            Damage { held, ..words(&format!("--state {}", at(folder, "state"))) }
        },
        "another process keeps what it serves there",
    ),
    (
        |folder| {
            folder.write("state", "nonsense");
            words(&format!("--state {}", at(folder, "state")))
        },
        "state",
    ),
    (
        |folder| {
            folder.write("state.events", "nonsense");
            words(&format!("--state {}", at(folder, "state")))
        },
        "begin with an empty log",
    ),
    (
        |folder| {
            let state = at(folder, "state");
            let words = words(&format!("--state {state}"));
            Damage { words: words.words, ..device(format!("file:{state},size=1MiB")) }
        },
        "is a file that this process keeps for itself",
    ),
    (
        |folder| of_namespace(format!("ptpl-file = \"{}\"\n", at(folder, "missing/ptpl"))),
        "reservations cannot be kept in",
    ),
    (
        |folder| {
            let file = folder.write("ptpl", "nonsense");
            of_namespace(format!("ptpl-file = \"{}\"\n", text(&file)))
        },
        "begin without reservations",
    ),
    (
        |folder| {
            let folder = at(folder, "missing");
            let made =
                format!("host-namespaces = {{ capacity = \"1GiB\", folder = \"{folder}\" }}\n");
            Damage { of_subsystem: made, ..Damage::default() }
        },
        "no file can be made in",
    ),
    (
        |folder| {
            let key = at(folder, "no-key");
            let host = format!("[[subsystem.host]]\nnqn = \"nqn.h\"\npsk = [\"{key}\"]\n");
            Damage { of_namespace: host, ..Damage::default() }
        },
        "no-key",
    ),
    (|folder| pair(folder, "missing/lock"), "missing/lock"),
    (
        |folder| Damage { held: locked(folder, "lock.1.lock"), ..pair(folder, "lock") },
        "member 1 is taken by another process",
    ),
    (
        |folder| {
            fs::create_dir(folder.path("lock")).expect("a folder");
            pair(folder, "lock")
        },
        "lock",
    ),
    (|_| words("--metrics 127.0.0.1:0 --metrics-buckets 2ms,1ms"), "--metrics-buckets"),
];

/// A member of a pair with this lock file.
fn pair(folder: &Folder, lock: &str) -> Damage {
    let of_file = format!("[pair]\nmember = 1\nlock-file = \"{}\"\n", at(folder, lock));
    folder.write("disk", [0; 4096]);
    Damage { of_file, ..device(format!("file:{}", at(folder, "disk"))) }
}

/// The words of a target with this damage, after the verb.
fn target(folder: &Folder, damage: &Damage) -> Vec<String> {
    let Damage { port, device, of_subsystem, of_namespace, of_file, words, .. } = damage;
    let port = port.as_deref().unwrap_or("tcp://127.0.0.1:0");
    let device = device.as_deref().unwrap_or("memory:1MiB");
    let file = folder.write(
        "target.toml",
        format!(
            "[[port]]\nlisten = \"{port}\"\n[[subsystem]]\nnqn = \"{NQN}\"\n{of_subsystem}\
             [[subsystem.namespace]]\ndevice = \"{device}\"\n{of_namespace}{of_file}"
        ),
    );
    let config = ["--config", text(&file)].map(str::to_owned);
    config.into_iter().chain(words.iter().cloned()).collect()
}

#[test]
fn whatever_refuses_the_start_is_said_by_check_in_the_same_words() {
    let mut wrong = Vec::new();
    for (number, (damage, part)) in [&PORTS[..], &DEVICES, &FILES].concat().into_iter().enumerate()
    {
        let driver = DRIVERS[number % DRIVERS.len()];
        let folder = Folder::new("check");
        let damage = damage(&folder);
        let words = target(&folder, &damage);
        let before = contents(&folder);
        let said = |flag: &str| {
            let verb = ["target", flag].map(str::to_owned);
            let ran = weft(driver, verb.into_iter().chain(words.iter().cloned()));
            let last = ran.stderr.trim_end().lines().last().unwrap_or_default().to_owned();
            (ran.code, last)
        };
        let checked = said("--check");
        let is_as_before = contents(&folder) == before;
        let started = said("--stop-with-stdin");
        let is_refused = started.0 == Some(1) && started.1.contains(part);
        if !is_refused || !is_as_before || checked != started {
            wrong.push((part, is_as_before, checked, started));
        }
        drop(damage.held);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_check_makes_nothing_and_extends_nothing() {
    let folder = Folder::new("check-good");
    let short = folder.write("short", [7; 4096]);
    let (fresh, marks) = (at(&folder, "fresh"), at(&folder, "marks"));
    let file = folder.write(
        "target.toml",
        format!(
            "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{NQN}\"\n\
             host-namespaces = {{ capacity = \"1GiB\", folder = \"{}\" }}\n\
             [[subsystem.namespace]]\nfile = \"{}\"\nsize = \"1MiB\"\nptpl-file = \"{}\"\n\
             [[subsystem.namespace]]\n\
             device = \"uncorrectable:file={marks}:file:{fresh},size=2MiB\"\n",
            at(&folder, "."),
            text(&short),
            at(&folder, "ptpl"),
        ),
    );
    let before = contents(&folder);
    let (control, state) = (format!("unix:{}", at(&folder, "control")), at(&folder, "state"));
    let words = ["--config", text(&file), "--state", &state, "--control", &control];
    for driver in DRIVERS {
        let checked = [&["target", "--check", "-o", "json"], &words[..]].concat();
        let said = weft(driver, checked).json();
        let facts = |one: &serde_json::Value| (one["bytes"].as_u64(), one["created"] == true);
        let all = said["namespaces"].as_array().expect("a list").iter().map(facts);
        assert_eq!(all.collect::<Vec<_>>(), [(Some(1 << 20), false), (Some(2 << 20), true)]);
        assert_eq!(contents(&folder), before);
    }
    // Flags are checked as a file is.
    let flags = ["target", "--check", "--file", &format!("{fresh},size=1MiB"), "--nqn", NQN];
    let said = weft(DRIVERS[0], [&flags[..], &["--listen", "tcp://127.0.0.1:0"]].concat()).text();
    assert!(said.contains("to be created, empty") && contents(&folder) == before, "{said}");
    // The service's own check, and its start right after it.
    let target = Target::start(DRIVERS[0], &words);
    let busy = weft(DRIVERS[0], [&["target", "--check"], &words[..]].concat());
    assert!(busy.stderr.contains("another process keeps"), "{}", busy.stderr);
    target.stop();
}
