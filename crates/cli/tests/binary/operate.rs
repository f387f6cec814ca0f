//! Who may operate a target, what is said of it, and what operators see.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::control::{SECRETS, call, client, loaded, saved, waiting};
use crate::weft::{DRIVERS, Folder, NQN, Target, command, text, weft};

/// A file that only its user may read.
pub(crate) fn token_file(folder: &Folder, name: &str, contents: &str) -> String {
    let path = folder.write(name, contents);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    text(&path).to_owned()
}

#[test]
fn other_machines_need_the_token_of_the_target() {
    let folder = Folder::new("token");
    let own = token_file(&folder, "own", "0123456789abcdef0123456789abcdef\n");
    let other = token_file(&folder, "other", "0123456789abcdef0123456789abcdeX\n");
    let open = folder.write("open", "0123456789abcdef0123456789abcdef\n");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).expect("a mode");
    let start = |words: &[&str]| {
        let target = ["target", "--memory", "1MiB", "--listen", "tcp://127.0.0.1:0"];
        weft(DRIVERS[0], [&target[..], words].concat())
    };
    let fault = start(&["--control", "tcp://0.0.0.0:0"]).fault();
    assert!(fault.contains("--control-token-file") && fault.contains("127.0.0.1"), "{fault}");
    let fault = start(&["--control", "tcp:0.0.0.0:0", "--control-token-file", text(&open)]).fault();
    assert!(fault.contains("chmod 600"), "{fault}");
    let words = ["--control", "tcp:0.0.0.0:0", "--control-token-file", &own, "--memory", "1MiB"];
    let target = Target::start(DRIVERS[0], &words);
    let said = target.said["control"].as_str().expect("said").to_owned();
    let port = said.rsplit(':').next().expect("a port");
    let control = format!("tcp:127.0.0.1:{port}");
    let ctl = |words: &[&str]| {
        let ctl = ["ctl", "subsystem", "list", "-o", "json", "--control", &control];
        weft(DRIVERS[0], [&ctl[..], words].concat())
    };
    let listed = ctl(&["--control-token-file", &own]).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1));
    for words in [&[][..], &["--control-token-file", &other]] {
        let fault = ctl(words).fault();
        assert!(fault.contains("--control-token-file"), "{fault}");
        target.wait_for_log("is refused: it has not shown the token");
    }
    let top = ["top", "--once", "-o", "json", "--interval", "100ms", "--control", &control];
    weft(DRIVERS[0], [&top[..], &["--control-token-file", &own]].concat()).json();
    target.stop();
}

/// Each line says who, and what was made; as JSON as well.
#[test]
fn every_connection_and_every_change_is_logged_with_who_made_it() {
    let folder = Folder::new("who");
    let file = folder.path("target.toml");
    let write = |size: &str| {
        let text = format!(
            "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{NQN}\"\n\
             [[subsystem.namespace]]\nnull = \"{size}\"\n"
        );
        std::fs::write(&file, text).expect("a file");
    };
    write("1MiB");
    let words = ["--config", text(&file), "--log-format", "json"];
    let (target, mut client) = waiting(&folder, &words);
    let said = |part: &str| -> String {
        let line: Value = serde_json::from_str(&target.wait_for_log(part)).expect("JSON");
        assert!(line["time"].is_string() && line["level"].is_string(), "{line}");
        line["message"].as_str().expect("a text").to_owned()
    };
    let user = rustix::process::getuid().as_raw();
    let who = format!("control: user {user}, process {} (", std::process::id());
    let connected = said("is connected");
    assert!(connected.starts_with(&who), "{connected}");
    let made = json!({"name": "N0", "num_blocks": 2048, "block_size": 512});
    call(&mut client, "bdev_null_create", made.clone()).expect("a name");
    let line = said("bdev_null_create");
    assert!(line.starts_with(&who) && line.contains("\"num_blocks\":2048"), "{line}");
    call(&mut client, "bdev_null_create", made).expect_err("it exists");
    let line = said("bdev_null_create");
    assert!(line.starts_with(&who) && line.contains("exists"), "{line}");
    write("2MiB");
    target.signal(Signal::HUP);
    let line = said("resized");
    assert!(line.starts_with("SIGHUP: namespace 1 of "), "{line}");
    write("3MiB");
    call(&mut client, "reload", json!(null)).expect("changes");
    let line = said("resized");
    assert!(line.starts_with(&who), "{line}");
    std::fs::write(&file, "nonsense").expect("a file");
    target.signal(Signal::HUP);
    let line = said("stays as it was");
    assert!(line.starts_with("SIGHUP: "), "{line}");
    let url = format!("nvme-tcp://127.0.0.1:{}/{NQN}?nsid=1", target.port(0));
    weft(DRIVERS[0], ["read", &url, "--block-count", "1"]);
    let line = said("connected to");
    assert!(line.starts_with("127.0.0.1:") && line.contains("nqn.2014-08."), "{line}");
    let line = said("left controller");
    assert!(line.contains(": the host "), "{line}");
    call(&mut client, "spdk_kill_instance", json!({"sig_name": "SIGTERM"})).expect("it stops");
    let line = said("stopping");
    assert!(line.starts_with(&who), "{line}");
    assert_eq!(target.wait(), Some(0));
}

#[test]
fn hosts_are_referred_to_other_discovery_controllers() {
    let folder = Folder::new("referrals");
    let state = folder.path("state.json");
    let words = ["--state", text(&state), "--listen", "tcp://127.0.0.1:0", "--memory", "1MiB"];
    let (target, mut client) = waiting(&folder, &words);
    let at = |port: &str| {
        let ip = "192.0.2.7";
        json!({"trtype": "TCP", "adrfam": "IPv4", "traddr": ip, "trsvcid": port})
    };
    let discovered = |target: &Target| -> Vec<Value> {
        let url = format!("tcp://127.0.0.1:{}", target.port(0));
        let log = weft(DRIVERS[0], ["discover", &url, "-o", "json"]).json();
        let records = log["records"].as_array().expect("a list").iter();
        let referrals = records.filter(|one| one["subtype"] == "discovery subsystem referral");
        referrals.map(|one| json!([one["traddr"], one["trsvcid"], one["subnqn"]])).collect()
    };
    assert_eq!(discovered(&target), Vec::<Value>::new());
    for port in ["8009", "8010"] {
        let added = call(&mut client, "nvmf_discovery_add_referral", json!({"address": at(port)}));
        assert_eq!(added, Ok(json!(true)));
    }
    let again = call(&mut client, "nvmf_discovery_add_referral", json!({"address": at("8010")}));
    assert!(again.is_err_and(|(code, _)| code == -32602));
    let removed =
        call(&mut client, "nvmf_discovery_remove_referral", json!({"address": at("8010")}));
    assert_eq!(removed, Ok(json!(true)));
    let nqn = "nqn.2014-08.org.nvmexpress.discovery";
    let listed = json!([{"address": at("8009"), "secure_channel": false, "subnqn": nqn}]);
    let shown = |client: &mut _| call(client, "nvmf_discovery_get_referrals", json!({}));
    assert_eq!(shown(&mut client), Ok(listed.clone()));
    assert_eq!(discovered(&target), [json!(["192.0.2.7", "8009", nqn])]);
    // The process that is killed has kept it, as its configuration has.
    let saved = call(&mut client, "framework_get_config", json!({"name": "nvmf"})).expect("calls");
    let add = json!({"method": "nvmf_discovery_add_referral", "params": listed[0]});
    assert!(saved.as_array().is_some_and(|calls| calls.contains(&add)), "{saved}");
    target.signal(Signal::KILL);
    drop(target);
    let (target, mut client) = waiting(&folder, &words);
    assert_eq!(shown(&mut client), Ok(listed));
    target.stop();
}

/// A call is for all ports, and there is one for each that hosts are referred to.
#[test]
fn a_referral_at_two_ports_is_saved_once() {
    let folder = Folder::new("referral-twice");
    let port = "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n\
                [[port.referral]]\naddress = \"tcp://192.0.2.7:8009\"\n";
    let file = folder.write("target.toml", format!("{port}{port}"));
    let (target, mut client) = waiting(&folder, &["--config", text(&file)]);
    let calls = saved(&mut client);
    let of = |one: &&Value| one["method"] == "nvmf_discovery_add_referral";
    assert_eq!(calls.iter().filter(of).count(), 1, "{calls:?}");
    assert_eq!(loaded(&calls).iter().filter(of).count(), 1);
    target.stop();
}

/// Whatever a method takes is what `save_config` has, and what the state keeps.
#[test]
fn what_methods_take_is_saved_and_kept() {
    let folder = Folder::new("schema");
    let key = token_file(&folder, "key", SECRETS[0]);
    let state = folder.path("state");
    let words = ["--state", text(&state)];
    let (target, mut client) = waiting(&folder, &words);
    let nqn = "nqn.2024-01.org.example:schema";
    let calls = [
        ("keyring_file_add_key", json!({"name": "own", "path": key})),
        ("bdev_null_create", json!({"name": "n", "num_blocks": 256, "block_size": 4096})),
        (
            "nvmf_create_subsystem",
            json!({
                "nqn": nqn, "serial_number": "S7", "model_number": "M7", "firmware": "7",
                "admin_label": "rack 7", "max_namespaces": 7, "qid_max": 3, "min_cntlid": 7,
                "max_cntlid": 70, "controllers": "static", "ana_reporting": true,
                "enable_nssr": true, "host_namespaces": {"capacity": "1GiB"},
                "allow_any_host": false,
            }),
        ),
        (
            "nvmf_subsystem_add_host",
            json!({
                "nqn": nqn, "host": "nqn.2024-01.org.example:h", "dhchap_key": "own",
                "dhchap_ctrlr_key": "own", "dhchap_hashes": ["sha384"],
                "dhchap_groups": ["ffdhe3072"], "dhchap_concat_compat": true,
            }),
        ),
        (
            "nvmf_subsystem_add_ns",
            json!({"nqn": nqn, "namespace": {
                "bdev_name": "n", "nsid": 5, "anagrpid": 3, "read_only": true,
                "ptpl_file": folder.path("ptpl"), "eui64": "0011223344556677",
                "uuid": "99451596-9675-4382-bff8-b78ee34de567",
                "nguid": "99451596967543821FF8B78EE34DE567",
            }}),
        ),
    ];
    for (method, params) in &calls {
        call(&mut client, method, params.clone()).expect(method);
    }
    let all = saved(&mut client);
    let has = |of: &Value, wanted: &Value| match (of, wanted) {
        (Value::Object(of), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| of.get(key) == Some(value))
        }
        (of, wanted) => of == wanted,
    };
    for (method, params) in &calls {
        let one = all.iter().find(|one| one["method"] == *method).expect(method);
        for (key, value) in params.as_object().expect("parameters") {
            assert!(has(&one["params"][key], value), "{method}: {key}: {}", one["params"]);
        }
    }
    target.signal(Signal::KILL);
    drop(target);
    let (target, mut client) = waiting(&folder, &words);
    assert_eq!(saved(&mut client), all);
    target.stop();
}

#[test]
fn the_number_of_subsystems_is_limited() {
    let folder = Folder::new("subsystems");
    let (target, mut client) = waiting(&folder, &[]);
    let mut call = |method, params| call(&mut client, method, params);
    assert_eq!(call("nvmf_set_max_subsystems", json!({"max_subsystems": 1})), Ok(json!(true)));
    call("nvmf_create_subsystem", json!({"nqn": "nqn.a"})).expect("the first");
    let (code, what) = call("nvmf_create_subsystem", json!({"nqn": "nqn.b"})).expect_err("a limit");
    assert_eq!((code, what.contains("limit")), (-32603, true), "{what}");
    target.stop();
}

/// The names of SPDK's result, and times that the device really took.
#[test]
fn the_times_of_a_block_device_have_the_shape_of_spdk() {
    let folder = Folder::new("iostat");
    let device = "delay:read=2ms,write=1ms:memory:1MiB";
    let (target, mut client) =
        waiting(&folder, &["--listen", "tcp://127.0.0.1:0", "--nqn", NQN, "--device", device]);
    for _ in 0..3 {
        assert_eq!(target.weft("read", 1, &["--block-count", "2"]).code, Some(0));
    }
    let found = call(&mut client, "bdev_get_iostat", json!({})).expect("counters");
    let bdev = &found["bdevs"][0];
    let reads = (&bdev["num_read_ops"], &bdev["bytes_read"], &bdev["io_error"]);
    assert_eq!(reads, (&json!(3), &json!(3 * 8192), &json!({})));
    let ticks = |name: &str| bdev[name].as_u64().unwrap_or_else(|| panic!("{name}: {bdev}"));
    assert_eq!(found["tick_rate"], 1_000_000_000);
    let (least, most) = (ticks("min_read_latency_ticks"), ticks("max_read_latency_ticks"));
    assert!(least >= 2_000_000 && most >= least, "{bdev}");
    assert!((3 * least..=3 * most).contains(&ticks("read_latency_ticks")), "{bdev}");
    for kind in ["write", "unmap", "copy"] {
        assert_eq!(ticks(&format!("{kind}_latency_ticks")), 0);
        assert_eq!(ticks(&format!("max_{kind}_latency_ticks")), 0);
        assert_eq!(ticks(&format!("min_{kind}_latency_ticks")), 0);
    }
    let counts = ["bytes_written", "num_write_ops", "bytes_unmapped", "num_unmap_ops"];
    counts.iter().chain(&["bytes_copied", "num_copy_ops"]).for_each(|name| {
        assert_eq!(ticks(name), 0);
    });
    let stats = call(&mut client, "thread_get_stats", json!({})).expect("threads");
    let thread = &stats["threads"][0];
    assert!(thread["name"].as_str().is_some_and(|name| name.contains("poll")), "{stats}");
    let busy_and_idle = |key: &str| thread[key].as_u64().is_some_and(|ticks| ticks > 0);
    assert!(busy_and_idle("busy") && busy_and_idle("idle"), "{stats}");
    target.stop();
    // Without measuring there are no times that could be taken for measured ones.
    let (target, mut client) = waiting(
        &folder,
        &["--memory", "1MiB", "--listen", "tcp://127.0.0.1:0", "--metrics-pairs", "0"],
    );
    let found = call(&mut client, "bdev_get_iostat", json!({})).expect("counters");
    assert!(found["bdevs"][0].get("read_latency_ticks").is_none(), "{found}");
    target.stop();
}

/// What bash offers for a line that ends where the tabulator is pressed.
fn completed(line: &str, control: &str) -> Vec<String> {
    let binary = command(DRIVERS[0]).get_program().to_owned();
    let folder = std::path::Path::new(&binary).parent().expect("a folder").display().to_string();
    let script = format!(
        "PATH={folder}:$PATH; export WEFT_CONTROL={control}; source <(weft completion bash)\n\
         show() {{ _weft_whole_words \"$@\"; printf 'offered:%s\\n' \"${{COMPREPLY[@]}}\"; }}\n\
         complete -F show weft\n{line}\t\x15\n"
    );
    // What is typed into an interactive shell goes through its own splitting of words; ^U takes the
    // line away before it is executed.
    let mut bash = Command::new("bash")
        .args(["--norc", "-i"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("bash");
    bash.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("it reads");
    let out = bash.wait_with_output().expect("its output").stdout;
    let out = String::from_utf8_lossy(&out).into_owned();
    let offered = out.lines().filter_map(|line| line.split_once("offered:"));
    offered.map(|(_, word)| word.trim_end().to_owned()).collect()
}

#[test]
fn a_shell_completes_the_names_that_exist() {
    let folder = Folder::new("completion");
    let (target, mut client) = waiting(&folder, &[]);
    let mut made = |method, params| call(&mut client, method, params).expect(method);
    for nqn in ["nqn.2024-01.io.example:a", "nqn.2024-01.io.example:b"] {
        made("nvmf_create_subsystem", json!({"nqn": nqn}));
    }
    made("bdev_null_create", json!({"name": "N0", "num_blocks": 2048, "block_size": 512}));
    let of = json!({"bdev_name": "N0", "nsid": 7});
    made("nvmf_subsystem_add_ns", json!({"nqn": "nqn.2024-01.io.example:b", "namespace": of}));
    made("nvmf_create_transport", json!({"trtype": "tcp"}));
    made("nvmf_subsystem_add_host", json!({"nqn": "nqn.2024-01.io.example:b", "host": "nqn.h"}));
    let control = target.said["control"].as_str().expect("said").to_owned();
    for (line, expected) in [
        (
            "weft ctl subsystem delete ",
            &["nqn.2024-01.io.example:a", "nqn.2024-01.io.example:b"][..],
        ),
        // Bash has what is before the colon already.
        ("weft ctl subsystem delete nqn.2024-01.io.example:", &["a", "b"]),
        ("weft ctl namespace remove nqn.2024-01.io.example:b ", &["7"]),
        ("weft ctl bdev delete N", &["N0"]),
        ("weft ctl host remove nqn.2024-01.io.example:b nqn", &["nqn.h"]),
        ("weft ctl namespace add nqn.2024-01.io.example:a --bdev ", &["N0"]),
        ("weft ctl subsystem cre", &["create"]),
    ] {
        let offered = completed(line, &control);
        let offered: Vec<_> = offered.iter().filter(|word| !word.starts_with('-')).collect();
        assert_eq!(offered, expected, "{line}");
    }
    // A target that does not answer leaves the words of the command line.
    assert_eq!(completed("weft ctl subsystem cre", "unix:/nonexistent/c"), ["create"]);
    assert!(client_is_still_served(&target));
    target.stop();
}

#[test]
fn a_central_controller_that_does_not_answer_holds_up_no_stop() {
    let hangs = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("tcp://{}", hangs.local_addr().expect("an address"));
    let target = Target::start(DRIVERS[0], &["--register", &url, "--memory", "1MiB"]);
    // It connects before it waits for an answer.
    let _connection = hangs.accept().expect("a connection");
    let begin = std::time::Instant::now();
    target.stop();
    assert!(begin.elapsed() < std::time::Duration::from_secs(6), "{:?}", begin.elapsed());
}

fn client_is_still_served(target: &Target) -> bool {
    call(&mut client(target), "spdk_get_version", json!({})).is_ok()
}

/// The subsystems that hosts find at a target's first port, with their places.
fn found_at(target: &Target) -> Vec<(String, String)> {
    let url = format!("tcp://127.0.0.1:{}", target.port(0));
    let log = weft(DRIVERS[0], ["discover", &url, "-o", "json"]).json();
    let records = log["records"].as_array().expect("a list").iter();
    let nvm = records.filter(|one| one["subtype"] == "nvme subsystem");
    let word = |value: &Value| value.as_str().expect("text").to_owned();
    nvm.map(|one| (word(&one["subnqn"]), word(&one["trsvcid"]))).collect()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < std::time::Duration::from_secs(20), "not in time: {what}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn targets_register_with_a_central_discovery_controller() {
    let folder = Folder::new("central");
    let words = ["--centralized-discovery", "--discovery", "tcp://127.0.0.1:0"];
    let (central, mut client) = waiting(&folder, &words);
    let url = format!("tcp://127.0.0.1:{}", central.port(0));
    assert!(found_at(&central).is_empty());
    let other = Folder::new("registers");
    let words = ["--register", &url, "--listen", "tcp://127.0.0.1:0", "--memory", "1MiB"];
    let (target, mut to_target) = waiting(&other, &[&words[..], &["--nqn", NQN]].concat());
    let own = (NQN.to_owned(), target.port(0).to_string());
    wait_until("it is registered", || found_at(&central) == [own.clone()]);
    let shown = call(&mut client, "discovery_get_registrations", json!({})).expect("a list");
    assert_eq!(shown[0]["entity"], "direct discovery controller", "{shown}");
    assert_eq!(shown[0]["connected"], true, "{shown}");
    assert_eq!(shown[0]["entries"][0]["nqn"], NQN, "{shown}");
    // Hosts come by what they have found.
    let found = format!("nvme-tcp://127.0.0.1:{}/{}?nsid=1", own.1, own.0);
    let read = weft(DRIVERS[0], ["read", &found, "--block-count", "1"]);
    assert_eq!(read.code, Some(0), "{}", read.stderr);
    // What changes there is told, too.
    let second = "nqn.2024-01.io.weft:second";
    // Its port serves every subsystem.
    let create = json!({"nqn": second, "allow_any_host": true});
    call(&mut to_target, "nvmf_create_subsystem", create).expect("a subsystem");
    wait_until("both are registered", || found_at(&central).len() == 2);
    call(&mut to_target, "nvmf_delete_subsystem", json!({"nqn": second})).expect("it is gone");
    wait_until("one is registered", || found_at(&central) == [own.clone()]);
    target.stop();
    assert!(found_at(&central).is_empty(), "a target that stops takes it back");
    // With any other target nobody registers subsystems.
    let direct = ["--memory", "1MiB", "--nqn", "nqn.2024-01.io.weft:direct"];
    let direct = Target::start(DRIVERS[0], &direct);
    let url = format!("tcp://127.0.0.1:{}", direct.port(0));
    let words = ["--register", &url, "--listen", "tcp://127.0.0.1:0", "--memory", "1MiB"];
    let refused = Target::start(DRIVERS[0], &[&words[..], &["--nqn", NQN]].concat());
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(!found_at(&direct).iter().any(|(nqn, _)| nqn == NQN));
    for target in [refused, direct, central] {
        target.stop();
    }
}
