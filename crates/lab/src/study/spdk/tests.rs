//! Against the answers of SPDK 26.09-pre (`nvmf_tgt`, git 3230130e6a) to the requests of its own
//! client, as they were recorded: `exchange.jsonl` has of each the method, the parameters and the
//! answer.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

use weft_host::Transport;
use weft_reactor::DriverKind;

use super::process::{delete, end};
use super::*;
use crate::study::knob::{Keeper, Machine};
use crate::study::launch::StartedTarget;
use crate::study::software::Software;

const EXCHANGE: &str = include_str!("exchange.jsonl");

/// A target that answers as the recorded one did, and keeps what it was asked.
struct RecordedTarget {
    socket: PathBuf,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    folder: tempfile::TempDir,
}

impl RecordedTarget {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("spdk.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let asked = Arc::<Mutex<Vec<(String, Value)>>>::default();
        let kept = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                thread::spawn(move || serve(stream, &kept));
            }
        });
        Self { socket, asked, folder }
    }

    fn linux(&self) -> Arc<Linux> {
        let watch = |_: &Path, file: std::fs::File| {
            let mut command = Command::new("cat");
            command.stdin(Stdio::piped()).stdout(file);
            command.spawn().map_err(|error| error.to_string())
        };
        let folder = self.folder.path().join("journals");
        let keeper = Keeper::new(Machine::default(), folder, Box::new(watch));
        Arc::new(Linux::new(Arc::new(keeper)))
    }

    fn tools(&self) -> SpdkTools {
        SpdkTools { socket: self.socket.display().to_string(), ..SpdkTools::default() }
    }

    fn methods(&self) -> Vec<String> {
        let asked = self.asked.lock().expect("no panic");
        asked.iter().map(|(method, _)| method.clone()).collect()
    }
}

/// A request ends where its value ends; an answer is a line.
fn serve(mut stream: UnixStream, kept: &Mutex<Vec<(String, Value)>>) {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut piece) {
        bytes.extend(&piece[..length]);
        while let Some(Ok(request)) =
            serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>().next()
        {
            bytes.clear();
            let method = request["method"].as_str().expect("a method").to_owned();
            let params = request.get("params").cloned().unwrap_or_default();
            let before =
                kept.lock().expect("no panic").iter().filter(|(m, _)| *m == method).count();
            let mut answer = answer(&method, &params, before);
            answer["id"] = request["id"].clone();
            kept.lock().expect("no panic").push((method, params));
            stream.write_all(format!("{answer}\n").as_bytes()).expect("sent");
        }
    }
}

/// The recorded answer to the n-th request of a method, the last one from then on. Every parameter
/// has to be one of the recorded requests, of the same type.
fn answer(method: &str, params: &Value, number: usize) -> Value {
    let lines = EXCHANGE.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line"));
    let same: Vec<Value> = lines.filter(|line| line["method"] == method).collect();
    assert!(!same.is_empty(), "{method} was not recorded");
    let known = types(&same.iter().map(|line| &line["params"]).collect::<Vec<_>>());
    for (name, kind) in types(&[params]) {
        assert_eq!(known.get(&name), Some(&kind), "{method}: {name}");
    }
    same[number.min(same.len() - 1)]["answer"].clone()
}

/// The names of parameters, nested ones with those before them, and their types.
fn types(all: &[&Value]) -> BTreeMap<String, &'static str> {
    let mut found = BTreeMap::new();
    let mut open: Vec<(String, &Value)> = all.iter().map(|value| (String::new(), *value)).collect();
    while let Some((path, value)) = open.pop() {
        let kind = match value {
            Value::Object(fields) => {
                let inner = fields.iter().map(|(name, value)| (format!("{path}.{name}"), value));
                open.extend(inner);
                continue;
            }
            Value::Null => continue,
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
        };
        found.insert(path, kind);
    }
    found
}

fn spec(devices: &[&str]) -> TargetSpec {
    TargetSpec {
        devices: devices.iter().map(|text| text.parse().expect("a device")).collect(),
        subsystems: 1,
        transport: Transport::Tcp,
        link: String::new(),
        cpus: Vec::new(),
        idle_poll: None,
        express: None,
        driver: DriverKind::Auto,
        tls: None,
        software: Software::Spdk,
    }
}

#[test]
fn a_target_is_made_as_spdks_own_client_would_and_deleted_at_the_end() {
    let recorded = RecordedTarget::start();
    let spec = spec(&["memory:64MiB,block=512", "null:1GiB,block=512"]);
    let target = start(&recorded.linux(), &recorded.tools(), &spec, None);
    let target = Box::new(target.expect("a target"));
    let address = target.address().to_string();
    assert!(address.starts_with("nvme-tcp://127.0.0.1:"), "{address}");
    assert!(!target.has_control());
    let made = [
        "nvmf_get_transports",
        "nvmf_create_transport",
        "bdev_malloc_create",
        "bdev_null_create",
        "nvmf_create_subsystem",
        "nvmf_subsystem_add_ns",
        "nvmf_subsystem_add_ns",
        "nvmf_subsystem_add_listener",
    ];
    assert_eq!(recorded.methods(), made);
    let malloc = recorded.asked.lock().expect("no panic")[2].1.clone();
    assert_eq!((&malloc["num_blocks"], &malloc["block_size"]), (&json!(131_072), &json!(512)));
    target.stop().expect("deleted");
    let deleted = ["nvmf_delete_subsystem", "bdev_null_delete", "bdev_malloc_delete"];
    assert_eq!(recorded.methods()[made.len()..], deleted);
}

#[test]
fn what_cannot_be_made_is_said_and_the_rest_deleted() {
    let recorded = RecordedTarget::start();
    let linux = recorded.linux();
    let spec = spec(&["memory:64MiB,block=512"]);
    let first = start(&linux, &recorded.tools(), &spec, None).expect("a target");
    // The recorded target has refused a second subsystem of the same name, and a second deletion.
    let why = start(&linux, &recorded.tools(), &spec, None).expect_err("refused");
    assert!(why.contains("nvmf_create_subsystem") && why.contains("Unable to create"), "{why}");
    let transports = recorded.methods();
    let created = transports.iter().filter(|method| *method == "nvmf_create_transport").count();
    assert_eq!(created, 1, "the second one found it");
    assert_eq!(recorded.methods().iter().filter(|m| *m == "bdev_malloc_delete").count(), 1);
    Box::new(first).stop().expect("what is gone already counts as deleted");
}

#[test]
fn a_target_that_is_not_there_is_said_in_a_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("none.sock");
    let mut tools = SpdkTools { socket: socket.display().to_string(), ..SpdkTools::default() };
    let why = lacks(&tools).expect("it lacks");
    assert!(why.contains("none.sock") && why.contains(": start nvmf_tgt first"), "{why}");
    tools.nvmf_tgt = "/nowhere/nvmf_tgt".to_owned();
    let why = lacks(&tools).expect("it lacks");
    assert!(why.contains("is not at /nowhere/nvmf_tgt"), "{why}");
    let gone = || delete(&socket, "bdev_null_delete", &json!({ "name": "x" }));
    gone().expect("it removed its socket at its end");
    let listener = UnixListener::bind(&socket).expect("a socket");
    drop(listener);
    gone().expect("it was killed");
}

/// A target that does not run is started, and ended with what was made there.
#[test]
fn a_target_is_started_where_the_site_says_what_it_is() {
    let recorded = RecordedTarget::start();
    let hidden = recorded.socket.with_extension("hidden");
    std::fs::rename(&recorded.socket, &hidden).expect("a socket");
    let (program, pid) =
        (recorded.folder.path().join("nvmf_tgt"), recorded.folder.path().join("pid"));
    // Its socket is there some time after its start.
    let script = format!(
        "#!/bin/sh\necho $$ >{}\nsleep 0.1\n[ \"$1\" = -r ] && mv {} \"$2\"\nexec sleep 60\n",
        pid.display(),
        hidden.display()
    );
    std::fs::write(&program, script).expect("a file");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("a program");
    let nvmf_tgt = program.display().to_string();
    let tools = SpdkTools { nvmf_tgt, ..recorded.tools() };
    assert_eq!(lacks(&tools), None);
    let spec = spec(&["memory:64MiB,block=512"]);
    let target = start(&recorded.linux(), &tools, &spec, None).expect("a target");
    let id: u32 = std::fs::read_to_string(&pid).expect("a number").trim().parse().expect("one");
    let known = began(id).expect("it runs");
    end(id, known + 1).expect("another one is left alone");
    assert_eq!(began(id), Some(known));
    Box::new(target).stop().expect("all is undone");
    assert_eq!(recorded.methods().last().map(String::as_str), Some("bdev_malloc_delete"));
    assert_eq!(began(id), None, "it runs on");
    let (nvmf_tgt, socket) = ("/bin/false".to_owned(), "/nowhere/s".to_owned());
    let ended = SpdkTools { nvmf_tgt, socket, ..tools };
    let why = start(&recorded.linux(), &ended, &spec, None).expect_err("it ends");
    assert!(why.starts_with("/bin/false has ended"), "{why}");
}
