//! The target's control socket.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weft_rpc::{Address, CallError, Client};
use weft_statistics::{GetStatistics, Reload};

use crate::operate::token_file;
use crate::weft::{DRIVERS, Folder, NQN, Target, command, weft};

const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) fn client(target: &Target) -> Client {
    let address: Address = target.said["control"].as_str().expect("said").parse().expect("one");
    Client::connect(&address, None, TIMEOUT).expect("a control connection")
}

#[test]
fn statistics_report_requests_and_cpu_use() {
    for driver in DRIVERS {
        let folder = Folder::new("control");
        let control = format!("unix:{}", folder.path("control").display());
        let words = ["--memory", "1MiB", "--memory", "1MiB", "--control", &control];
        let target = Target::start(driver, &words);
        let mut client = client(&target);
        let before = client.call::<GetStatistics>(&()).expect("statistics");
        assert_eq!(target.weft("read", 2, &["--block-count", "3"]).code, Some(0));
        let after = client.call::<GetStatistics>(&()).expect("statistics").since(&before);
        let group = &after.groups[0];
        let served: Vec<_> = group.served.iter().map(|s| (s.nsid, s.reads, s.read_bytes)).collect();
        assert_eq!(served, [(1, 0, 0), (2, 1, 3 * 4096)]);
        assert_eq!(group.served[1].subsystem, NQN);
        assert!(group.thread.user_ns + group.thread.system_ns > 0);
        assert!(group.idle_ns > 0 && !after.machine.cores.is_empty());
        let path = folder.path("control");
        target.stop();
        assert!(!path.exists(), "the socket goes with the target");
    }
}

#[test]
fn a_reload_is_answered_when_it_is_complete() {
    let folder = Folder::new("control-reload");
    let file = folder.path("target.toml");
    let write = |devices: &[&str]| {
        let namespaces: String = devices
            .iter()
            .map(|device| format!("[[subsystem.namespace]]\ndevice = \"{device}\"\n"))
            .collect();
        let text = format!(
            "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{NQN}\"\n{namespaces}"
        );
        std::fs::write(&file, text).expect("a file");
    };
    write(&["memory:1MiB"]);
    let name = file.display().to_string();
    let words = ["--config", &name, "--control", "tcp://127.0.0.1:0"];
    let target = Target::start("epoll", &words);
    let mut client = client(&target);
    write(&["memory:1MiB", "null:1GiB"]);
    let changes = client.call::<Reload>(&()).expect("a reload");
    assert!(matches!(&changes[..], [added] if added.contains("null:1GiB")), "{changes:?}");
    let groups = client.call::<GetStatistics>(&()).expect("statistics").groups;
    assert_eq!(groups[0].served.len(), 2, "the reply follows the change");
    std::fs::write(&file, "nonsense").expect("a file");
    let fault = client.call::<Reload>(&()).expect_err("no configuration");
    assert!(matches!(fault, CallError::Error(_)), "{fault}");
    let groups = client.call::<GetStatistics>(&()).expect("statistics").groups;
    assert_eq!(groups[0].served.len(), 2, "the configuration is unchanged");
    target.stop();
}

#[test]
fn an_unusable_address_is_reported() {
    let folder = Folder::new("unusable");
    let token = token_file(&folder, "token", "0123456789abcdef0123456789abcdef");
    for bad in ["tcp://192.0.2.1:1", "unix:/nonexistent/control"] {
        let words =
            ["target", "--memory", "1MiB", "--listen", "tcp://127.0.0.1:0", "--control", bad];
        let words = [&words[..], &["--control-token-file", &token]].concat();
        let fault = weft("epoll", words).fault();
        assert!(fault.contains("control on") && fault.contains(bad), "{fault}");
    }
}

/// Calls a method by its name.
pub(crate) fn call(
    client: &mut Client,
    method: &str,
    params: Value,
) -> Result<Value, (i64, String)> {
    match client.call_named(method, params) {
        Ok(answer) => Ok(answer),
        Err(CallError::Error(error)) => Err((error.code.0, error.message)),
        Err(error) => panic!("{method}: {error}"),
    }
}

/// A target that serves nothing, and its control connection.
pub(crate) fn waiting(folder: &Folder, more: &[&str]) -> (Target, Client) {
    let control = format!("unix:{}", folder.path("control").display());
    let mut command = command(DRIVERS[0]);
    command.args(["target", "--stop-with-stdin", "-o", "json", "--control", &control]).args(more);
    let target = Target::spawn(DRIVERS[0], command);
    let client = client(&target);
    (target, client)
}

#[test]
fn a_target_with_nothing_to_serve_waits_for_what_it_is_given() {
    let folder = Folder::new("waits");
    let (target, mut client) = waiting(&folder, &[]);
    assert_eq!(target.said["subsystems"], json!([]));
    let mut call = |method, params| call(&mut client, method, params).expect(method);
    assert_eq!(
        call("bdev_malloc_create", json!({"num_blocks": 2048, "block_size": 512})),
        "Malloc0"
    );
    call("nvmf_create_transport", json!({"trtype": "tcp"}));
    // As SPDK 25's client has it.
    let limits = json!({"nqn": NQN, "allow_any_host": true, "max_discard_size_kib": 0,
        "max_write_zeroes_size_kib": 0});
    call("nvmf_create_subsystem", limits);
    let of = json!({"bdev_name": "Malloc0", "nsid": 3});
    assert_eq!(call("nvmf_subsystem_add_ns", json!({"nqn": NQN, "namespace": of})), 3);
    let at = json!({"trtype": "TCP", "traddr": "127.0.0.1", "trsvcid": "0", "adrfam": "ipv4"});
    call("nvmf_subsystem_add_listener", json!({"nqn": NQN, "listen_address": at}));
    let listeners = call("nvmf_subsystem_get_listeners", json!({"nqn": NQN}));
    let port = listeners[0]["address"]["trsvcid"].as_str().expect("a port").to_owned();
    let listed =
        weft(DRIVERS[0], ["list", &format!("nvme-tcp://127.0.0.1:{port}"), "-o", "json"]).text();
    assert!(listed.contains("nsid=3"), "{listed}");
    assert_eq!(call("notify_get_notifications", json!({}))[0]["type"], "bdev_register");
    target.stop();
}

#[test]
fn log_set_level_raises_the_level_of_a_running_target() {
    let folder = Folder::new("log-level");
    let (target, mut client) =
        waiting(&folder, &["--memory", "1MiB", "--listen", "tcp://127.0.0.1:0"]);
    let level =
        |client: &mut Client, level: &str| call(client, "log_set_level", json!({ "level": level }));
    assert_eq!(call(&mut client, "log_get_level", json!({})), Ok("NOTICE".into()));
    assert_eq!(level(&mut client, "DEBUG"), Ok(true.into()));
    assert_eq!(call(&mut client, "log_get_print_level", json!({})), Ok("DEBUG".into()));
    assert_eq!(target.weft("read", 1, &["--block-count", "1"]).code, Some(0));
    target.wait_for_log(" debug: ");
    target.stop();

    let mut command = command(DRIVERS[0]);
    let control = format!("unix:{}", folder.path("filtered").display());
    command.args(["target", "--stop-with-stdin", "-o", "json", "--control", &control]);
    command.env("WEFT_LOG", "warn");
    let target = Target::spawn(DRIVERS[0], command);
    let mut client = self::client(&target);
    let (code, why) = level(&mut client, "DEBUG").expect_err("it is left out");
    assert!(code == -32602 && why.contains("WEFT_LOG"), "{code}: {why}");
    assert_eq!(level(&mut client, "ERROR"), Ok(true.into()));
    target.stop();
}

#[test]
fn what_is_not_there_is_an_error_and_never_ignored() {
    let folder = Folder::new("refused");
    let (target, mut client) =
        waiting(&folder, &["--memory", "1MiB", "--listen", "tcp://127.0.0.1:0"]);
    let nqn = target.said["subsystems"][0]["nqn"].clone();
    let own = format!("{}:1", nqn.as_str().expect("a name"));
    let host = |more: Value| {
        let mut params = json!({"nqn": nqn, "host": "nqn.2014-08.org.example:h"});
        params.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
        params
    };
    let at = json!({"trtype": "TCP", "traddr": "127.0.0.1", "trsvcid": "0"});
    let secure = json!({"nqn": nqn, "listen_address": at, "secure_channel": true, "tls": "off"});
    for (method, params, code, part) in [
        ("nvmf_subsystem_add_host", host(json!({"psk": "key0"})), -32602, "no key \"key0\""),
        ("nvmf_subsystem_add_host", host(json!({"psk": [1]})), -32602, "a list of names"),
        ("nvmf_subsystem_set_keys", host(json!({"psk": "a", "dhchap_key": "b"})), -32602, "own"),
        (
            "nvmf_subsystem_set_keys",
            host(json!({"dhchap_key": "a", "dhchap_hashes": ["sha256"]})),
            -32602,
            "dhchap_hashes is unknown",
        ),
        ("nvmf_subsystem_add_host", host(json!({"dhchap_key": "key0"})), -32602, "no key \"key0\""),
        ("nvmf_subsystem_set_keys", host(json!({})), -32602, "not listed"),
        ("keyring_file_remove_key", json!({"name": "x"}), -32602, "no key \"x\""),
        ("nvmf_subsystem_add_listener", secure, -32602, "secure_channel"),
        ("bdev_enable_histogram", json!({"name": "x"}), -32601, "Method not found"),
        ("bdev_set_qos_limit", json!({"name": "x", "rw_ios_per_sec": 1}), -19, "No such device"),
        ("bdev_set_qos_limit", json!({"name": own}), -22, "rw_ios_per_sec"),
        ("bdev_malloc_delete", json!({"name": "x"}), -19, "No such device"),
        ("bdev_malloc_create", json!({"num_blocks": 1, "block_size": 7}), -32603, "block"),
        (
            "bdev_malloc_create",
            json!({"num_blocks": 8, "block_size": 512, "md_size": 8}),
            -32603,
            "md_size",
        ),
        (
            "bdev_null_create",
            json!({"name": "n", "num_blocks": 8, "block_size": 512, "speed": 1}),
            -32603,
            "speed",
        ),
        ("bdev_aio_create", json!({"name": "a", "filename": "/nonexistent"}), -2, "/nonexistent"),
        ("bdev_get_bdevs", json!({"name": "x"}), -19, "No such device"),
        (
            "nvmf_delete_subsystem",
            json!({"nqn": "nqn.x"}),
            -32602,
            "Subsystem with NQN 'nqn.x' not found",
        ),
        ("nvmf_create_subsystem", json!({"nqn": nqn}), -32603, "Unable to create subsystem"),
        (
            "nvmf_create_subsystem",
            json!({"nqn": "nqn.y", "passthrough": true}),
            -32602,
            "passthrough",
        ),
        (
            "nvmf_subsystem_listener_set_ana_state",
            json!({"nqn": nqn, "listen_address": at, "ana_state": "inaccessible"}),
            -32602,
            "access states",
        ),
        ("nvmf_subsystem_remove_ns", json!({"nqn": nqn, "nsid": 77}), -32602, "Invalid parameters"),
        ("nvmf_get_subsystems", json!({"nqn": "nqn.x"}), -19, "nqn.x"),
        ("framework_get_config", json!({"name": "iscsi"}), -32602, "iscsi"),
        ("log_set_level", json!({"level": "LOUD"}), -32602, "ERROR to DEBUG"),
        ("log_set_flag", json!({"flag": "nvmf"}), -32602, "there is no flag \"nvmf\""),
        ("log_clear_flag", json!({"flag": "nvmf"}), -32602, "see log_set_level"),
        ("nvmf_ns_add_host", host(json!({"nsid": 1})), -32602, "every host sees it"),
        ("nvmf_ns_remove_host", host(json!({"nsid": 77})), -32602, "no namespace 77"),
        ("spdk_get_version", json!({"x": 1}), -32602, "x is unknown"),
        (
            "rate_limit_set",
            json!({"rate_iops": 500, "latency_target": "1ms"}),
            -32602,
            "served as soon as possible",
        ),
        (
            "rate_limit_set",
            json!({"rate_iops": 500, "subsystem": NQN, "nsid": u32::MAX}),
            -32602,
            "4294967295 is no NSID",
        ),
        ("spdk_kill_instance", json!({"sig_name": "SIGKILL"}), -32602, "SIGTERM"),
        ("iobuf_set_options", json!([64]), -32602, "give them by name"),
        ("nvmf_get_subsystems", json!({"tgt_name": "other"}), -32603, "Unable to find a target"),
        (
            "nvmf_create_subsystem",
            json!({"nqn": "nqn.2024-01.org.example:s", "serial_number": "123456789012345678901"}),
            -32602,
            "serial number",
        ),
        (
            "nvmf_create_subsystem",
            json!({"nqn": "nqn.2024-01.org.example:m", "model_number": "größe"}),
            -32602,
            "model number",
        ),
        (
            "nvmf_create_subsystem",
            json!({"nqn": "nqn.2024-01.org.example:c", "min_cntlid": 5, "max_cntlid": 4}),
            -32602,
            "min_cntlid 5",
        ),
        ("nvmf_discovery_remove_referral", json!({"address": at}), -32602, "no referral"),
        ("nvmf_discovery_add_referral", json!({"address": at}), -32602, "hosts cannot connect"),
        ("nvmf_set_max_subsystems", json!({"max_subsystems": 0}), -32602, "subsystems already"),
    ] {
        let (found, what) = call(&mut client, method, params).expect_err(method);
        assert!(found == code && what.contains(part), "{method}: {found} {what}");
    }
    // A namespace of the flags has a block device as well; it goes with it.
    let bdevs = call(&mut client, "bdev_get_bdevs", json!({})).expect("a list");
    let name = bdevs[0]["name"].clone();
    assert_eq!(name, format!("{}:1", nqn.as_str().expect("a name")));
    call(&mut client, "bdev_malloc_delete", json!({"name": name})).expect("it is deleted");
    let shown = call(&mut client, "nvmf_get_subsystems", json!({"nqn": nqn})).expect("shown");
    assert_eq!(shown[0]["namespaces"], json!([]));
    target.stop();
}

#[test]
fn what_asks_for_nothing_is_accepted_and_a_file_is_not_made_smaller() {
    let folder = Folder::new("accepted");
    let file = folder.path("disk");
    let words = ["--memory", "1MiB", "--listen", "tcp://127.0.0.1:0"];
    let (target, mut client) = waiting(&folder, &words);
    for (method, params) in [
        ("nvmf_create_transport", json!({"trtype": "RDMA", "c2h_success": false})),
        ("nvmf_get_subsystems", json!({"tgt_name": "nvmf_tgt"})),
        ("sock_set_default_impl", json!({"impl_name": "posix"})),
        ("iobuf_set_options", json!({"small_pool_count": 8192})),
        ("bdev_set_options", json!({"bdev_io_pool_size": 65535})),
        ("framework_set_scheduler", json!({"name": "static"})),
    ] {
        call(&mut client, method, params).expect(method);
    }
    let resize = |name: &str, bytes: u64| json!({"name": name, "size": bytes});
    let device = format!("file:{},size=2MiB", file.display());
    call(&mut client, "bdev_device_create", json!({"name": "B", "device": device})).expect("made");
    let (code, what) = call(&mut client, "bdev_resize", resize("B", 1 << 20)).expect_err("less");
    assert!(code == -22 && what.contains("has 2MiB, and a file"), "{code} {what}");
    call(&mut client, "bdev_resize", resize("B", 3 << 20)).expect("more");
    assert_eq!(std::fs::metadata(&file).expect("a file").len(), 3 << 20);
    target.stop();
}

/// What a target serves, without the port numbers that the kernel chose.
fn shown(client: &mut Client) -> Value {
    let mut all = call(client, "nvmf_get_subsystems", json!({})).expect("subsystems");
    for subsystem in all.as_array_mut().expect("a list") {
        subsystem["listen_addresses"] = Value::Null;
    }
    all
}

#[test]
fn a_state_file_outlives_the_process() {
    let folder = Folder::new("state");
    let config = folder.path("config.toml");
    let text = |serial: &str| {
        format!(
            "[[port]]\nlisten = 'tcp://127.0.0.1:0'\n[[subsystem]]\nnqn = '{NQN}'\n\
             serial = '{serial}'\n\
             [[subsystem.namespace]]\nnull = '1MiB'\n"
        )
    };
    std::fs::write(&config, text("S1")).expect("a file");
    let state = folder.path("state.json");
    let words =
        ["--config", config.to_str().expect("text"), "--state", state.to_str().expect("text")];
    let (target, mut client) = waiting(&folder, &words);
    let mut made = |method, params| call(&mut client, method, params).expect(method);
    made("bdev_null_create", json!({"name": "N0", "num_blocks": 2048, "block_size": 512}));
    let of = json!({"bdev_name": "N0", "nsid": 9});
    made("nvmf_subsystem_add_ns", json!({"nqn": NQN, "namespace": of}));
    made("nvmf_create_subsystem", json!({"nqn": "nqn.made", "allow_any_host": true}));
    made("nvmf_subsystem_add_host", json!({"nqn": "nqn.made", "host": "nqn.h"}));
    made("bdev_null_resize", json!({"name": format!("{NQN}:1"), "new_size": 2}));
    let before = shown(&mut client);
    assert_eq!(before[1]["namespaces"][1]["nsid"], 9);
    // A process that is killed has kept it as well.
    target.signal(rustix::process::Signal::KILL);
    drop(target);
    // The file only seeds a state that is absent.
    std::fs::write(&config, text("S2")).expect("a file");
    let (target, mut client) = waiting(&folder, &words);
    assert_eq!(shown(&mut client), before, "NSIDs, UUIDs, serial numbers");
    let bdevs = call(&mut client, "bdev_get_bdevs", json!({})).expect("a list");
    let sizes: Vec<_> =
        bdevs.as_array().expect("a list").iter().map(|one| &one["num_blocks"]).collect();
    assert_eq!(sizes, [2048, 512]);
    // A reload applies what the file changed since it was applied, and leaves the rest.
    let changes = client.call::<Reload>(&()).expect("a reload");
    assert_eq!(changes.len(), 1, "{changes:?}");
    let mut expected = before.clone();
    expected[1]["serial_number"] = "S2".into();
    assert_eq!(shown(&mut client), expected);
    assert_eq!(client.call::<Reload>(&()).expect("a reload"), Vec::<String>::new());
    target.stop();
    let (target, mut client) = waiting(&folder, &words);
    assert_eq!(shown(&mut client), expected);
    assert_eq!(client.call::<Reload>(&()).expect("a reload"), Vec::<String>::new());
    target.stop();
    std::fs::write(&state, "{").expect("a file");
    let words = [&["target", "--control", "unix:/nonexistent/c"], &words[..]].concat();
    let fault = weft(DRIVERS[0], words).fault();
    assert!(fault.contains("state.json") && fault.contains("move it away"), "{fault}");
}

/// An NQN has the form of one, whose it is and whoever gives it: flags, file, method, `weft ctl`.
#[test]
fn an_nqn_is_checked_wherever_it_is_given() {
    let folder = Folder::new("nqns");
    let (target, mut client) = waiting(&folder, &[]);
    let control = target.said["control"].as_str().expect("said").to_owned();
    call(&mut client, "nvmf_create_transport", json!({"trtype": "tcp"})).expect("a transport");
    call(&mut client, "nvmf_create_subsystem", json!({"nqn": NQN})).expect("a subsystem");
    let ctl = |words: &[&str]| {
        weft(DRIVERS[0], ["ctl", "--control", &control].into_iter().chain(words.iter().copied()))
    };
    let long = format!("nqn.{}", "x".repeat(220));
    for wrong in ["nqm.2024-01.io.example:a", "notannqn", "nqn.", &long, "nqn.2024-01.io a"] {
        let says = |text: &str| {
            let found = ["begins with \"nqn.\"", "too long", "has a space"];
            assert!(found.iter().any(|part| text.contains(part)), "{wrong}: {text}");
        };
        let mut refused =
            |method, params| says(&call(&mut client, method, params).expect_err(wrong).1);
        refused("nvmf_create_subsystem", json!({"nqn": wrong}));
        refused("nvmf_subsystem_add_host", json!({"nqn": NQN, "host": wrong}));
        says(&ctl(&["subsystem", "create", wrong]).fault());
        says(&ctl(&["host", "allow", NQN, wrong]).fault());
        for flag in ["--nqn", "--allow-host"] {
            let ran = weft(DRIVERS[0], ["target", "--check", "--memory", "1MiB", flag, wrong]);
            assert_ne!(ran.code, Some(0), "{flag} {wrong}");
            says(&ran.stderr);
        }
        let file = folder.path("target.toml");
        for (subsystem, host) in [(wrong, NQN), (NQN, wrong)] {
            let text = format!(
                "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystem]]\nnqn = {subsystem:?}\n\
                 allowed-hosts = [{host:?}]\n"
            );
            std::fs::write(&file, text).expect("it is written");
            let file = file.to_str().expect("a path");
            says(&weft(DRIVERS[0], ["target", "--check", "--config", file]).fault());
        }
    }
    target.stop();
}

#[test]
fn a_person_makes_and_shows_objects_with_ctl() {
    let folder = Folder::new("ctl");
    let (target, _client) = waiting(&folder, &[]);
    let control = target.said["control"].as_str().expect("said").to_owned();
    let ctl = |words: &str| {
        weft(DRIVERS[0], ["ctl", "--control", &control].into_iter().chain(words.split(' ')))
    };
    for words in ["create", "create"].iter().zip([Some(0), Some(1)]) {
        let ran = ctl(&format!("subsystem {} {NQN} --serial S1", words.0));
        assert_eq!(ran.code, words.1, "{}", ran.stderr);
    }
    assert_eq!(ctl(&format!("namespace add {NQN} --null 1MiB --nsid 4")).text(), "namespace 4\n");
    assert!(ctl(&format!("namespace add {NQN} --null 1MiB --nsid 4")).fault().contains("4"));
    ctl(&format!("namespace resize {NQN} 4 2MiB")).text();
    ctl(&format!("host allow {NQN} nqn.2014-08.org.example:h")).text();
    ctl(&format!("listener add {NQN} tcp://127.0.0.1:0")).text();
    let namespaces = ctl("namespace list -o json").json();
    assert_eq!(namespaces.as_array().map(Vec::len), Some(1), "the refused one left no device");
    assert_eq!((&namespaces[0]["nsid"], &namespaces[0]["num_blocks"]), (&json!(4), &json!(512)));
    let listed = ctl("subsystem list").text();
    assert!(listed.contains("nqn.2014-08.org.example:h  tcp://127.0.0.1:"), "{listed}");
    // A host that is listed stays in the table beside any, which needs no key of its own.
    ctl(&format!("host allow {NQN} any")).text();
    let hosts = ctl("host list -o json").json();
    let hosts = hosts.as_array().expect("a list").iter().map(|one| &one["host"]);
    assert_eq!(hosts.collect::<Vec<_>>(), ["any", "nqn.2014-08.org.example:h"]);
    ctl(&format!("host remove {NQN} any")).text();
    assert_eq!(ctl("bdev list -o json").json().as_array().map(Vec::len), Some(1));

    // A device that was created by itself stays; one that a namespace came with goes with it.
    let disk = folder.path("disk").display().to_string();
    ctl(&format!("namespace add {NQN} --file {disk},size=1MiB --nsid 5")).text();
    let listed = ctl("namespace list").text();
    assert!(listed.contains("null:2MiB"), "{listed}");
    assert!(listed.contains(&disk), "{listed}");
    ctl("bdev create named null:1MiB").text();
    ctl(&format!("namespace add {NQN} --bdev named --nsid 6")).text();
    let bdevs = || {
        let all = ctl("bdev list -o json").json();
        let names = all.as_array().expect("a list").iter();
        names.map(|one| one["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    ctl(&format!("namespace remove {NQN} 5")).text();
    assert_eq!(bdevs().len(), 2, "{:?}", bdevs());
    ctl(&format!("subsystem delete {NQN}")).text();
    assert_eq!(ctl("subsystem list -o json").json(), json!([]));
    assert_eq!(bdevs(), ["named"]);
    assert!(ctl("reload").fault().contains("--config FILE"));
    target.stop();
}

/// A port whose number the kernel chose is named by that number; what is saved makes the same, and
/// a state file keeps it.
#[test]
fn access_states_are_set_listed_saved_and_kept() {
    let folder = Folder::new("ana");
    let state = folder.path("state.json");
    let words = ["--state", state.to_str().expect("text")];
    let (target, mut client) = waiting(&folder, &words);
    let control = target.said["control"].as_str().expect("said").to_owned();
    let ctl = |words: &str| {
        weft(DRIVERS[0], ["ctl", "--control", &control].into_iter().chain(words.split(' ')))
    };
    ctl(&format!("subsystem create {NQN} --ana-reporting")).text();
    for nsid in [1, 2] {
        ctl(&format!("namespace add {NQN} --null 1MiB --nsid {nsid}")).text();
    }
    ctl(&format!("listener add {NQN} tcp://127.0.0.1:0")).text();
    let states = |listed: &Value| -> Vec<(u64, String, Value)> {
        let one = |one: &Value| {
            let state = one["state"].as_str().expect("a state").to_owned();
            (one["group"].as_u64().expect("a group"), state, one["namespaces"].clone())
        };
        listed.as_array().expect("a list").iter().map(one).collect()
    };
    let listed = || ctl("ana list -o json").json();
    let url = listed()[0]["address"].as_str().expect("an address").to_owned();
    let optimized = || "optimized".to_owned();
    assert_eq!(states(&listed()), [(1, optimized(), json!([1])), (2, optimized(), json!([2]))]);
    ctl(&format!("ana set {NQN} {url} non-optimized --group 1")).text();
    let at = json!({"trtype": "TCP", "traddr": "127.0.0.1",
        "trsvcid": url.rsplit(':').next().expect("a port")});
    let params = json!({"nqn": NQN, "listen_address": at, "ana_state": "persistent_loss",
        "anagrpid": 7});
    call(&mut client, "nvmf_subsystem_listener_set_ana_state", params).expect("set");
    ctl(&format!("ana group {NQN} 2 7")).text();
    let now = [
        (1, "non-optimized".to_owned(), json!([1])),
        (7, "persistent-loss".to_owned(), json!([2])),
    ];
    assert_eq!(states(&listed()), now);
    let shown = call(&mut client, "nvmf_subsystem_get_listeners", json!({"nqn": NQN}));
    let shown = shown.expect("listeners")[0]["ana_states"].clone();
    assert_eq!(shown[0], json!({"ana_group": 1, "ana_state": "non_optimized"}));
    assert!(ctl(&format!("ana set {NQN} {url} best")).stderr.contains("persistent-loss"));
    let table = ctl("ana list").text();
    assert!(table.contains(&url) && table.contains("persistent-loss"), "{table}");
    let saved = saved(&mut client);
    let set = |one: &&Value| one["method"] == "nvmf_subsystem_listener_set_ana_state";
    assert_eq!(saved.iter().filter(set).count(), 2, "{saved:?}");
    let add = saved.iter().rfind(|one| one["method"] == "nvmf_subsystem_add_ns");
    assert_eq!(add.expect("namespaces")["params"]["namespace"]["anagrpid"], 7);
    target.stop();
    let (target, mut client) = waiting(&folder, &words);
    let again = call(&mut client, "nvmf_subsystem_get_listeners", json!({"nqn": NQN}));
    assert_eq!(again.expect("listeners")[0]["ana_states"], shown);
    target.stop();
}

/// What is shown, saved and kept of a namespace that not every host sees.
#[test]
fn a_namespace_that_only_some_hosts_see_is_shown_saved_and_kept() {
    let folder = Folder::new("visible");
    let state = folder.path("state.json");
    let words = ["--state", state.to_str().expect("text")];
    let (target, mut client) = waiting(&folder, &words);
    let control = target.said["control"].as_str().expect("said").to_owned();
    let ctl = |words: &str| {
        weft(DRIVERS[0], ["ctl", "--control", &control].into_iter().chain(words.split(' ')))
    };
    let port = with_null(&mut client);
    let add = format!("namespace add {NQN} --null 1MiB --nsid 9 --no-auto-visible");
    assert_eq!(ctl(&add).text(), "namespace 9\n");
    let host = |name: &str| format!("nqn.2014-08.org.example:{name}");
    let sees = |name: &str| {
        let url = format!("nvme-tcp://127.0.0.1:{port}/{NQN}");
        let listed = weft(DRIVERS[0], ["list", &url, "--hostnqn", &host(name), "-o", "json"]);
        listed.text().contains("nsid=9")
    };
    assert!(!sees("one") && !sees("other"));
    ctl(&format!("namespace add-host {NQN} 9 {}", host("one"))).text();
    let params = |name: &str| json!({"nqn": NQN, "nsid": 9, "host": host(name)});
    call(&mut client, "nvmf_ns_add_host", params("other")).expect("added");
    call(&mut client, "nvmf_ns_add_host", params("other")).expect("it is so already");
    assert!(sees("one") && sees("other"));
    ctl(&format!("namespace remove-host {NQN} 9 {}", host("one"))).text();
    assert!(!sees("one") && sees("other"));
    let before = shown(&mut client);
    let namespace = &before[1]["namespaces"][1];
    assert_eq!(namespace["no_auto_visible"], true, "{before}");
    assert_eq!(namespace["hosts"], json!([{"nqn": host("other")}]));
    let saved = saved(&mut client);
    let calls = saved.iter().filter(|one| one["params"]["nsid"] == 9);
    let calls: Vec<_> = calls.map(|one| (&one["method"], &one["params"])).collect();
    assert_eq!(calls, [(&json!("nvmf_ns_add_host"), &params("other"))], "{saved:?}");
    target.stop();
    let (target, mut client) = waiting(&folder, &words);
    assert_eq!(shown(&mut client), before);
    let visible = json!({"nqn": NQN, "nsid": 9, "auto_visible": true});
    call(&mut client, "nvmf_subsystem_set_ns_visibility", visible).expect("set");
    assert_eq!(shown(&mut client)[1]["namespaces"][1].get("hosts"), None);
    target.stop();
}

/// A subsystem with a block device N0, served at this port.
pub(crate) fn with_null(client: &mut Client) -> String {
    let mut call = |method, params| call(client, method, params).expect(method);
    call("bdev_null_create", json!({"name": "N0", "num_blocks": 1 << 20, "block_size": 4096}));
    call("nvmf_create_transport", json!({"trtype": "tcp"}));
    call("nvmf_create_subsystem", json!({"nqn": NQN, "allow_any_host": true}));
    let of = json!({"bdev_name": "N0", "nsid": 3});
    call("nvmf_subsystem_add_ns", json!({"nqn": NQN, "namespace": of}));
    let at = json!({"trtype": "TCP", "traddr": "127.0.0.1", "trsvcid": "0", "adrfam": "ipv4"});
    call("nvmf_subsystem_add_listener", json!({"nqn": NQN, "listen_address": at}));
    let listeners = call("nvmf_subsystem_get_listeners", json!({"nqn": NQN}));
    listeners[0]["address"]["trsvcid"].as_str().expect("a port").to_owned()
}

/// A host that reads until it is dropped.
struct Load(std::process::Child);

impl Load {
    fn new(port: &str) -> Self {
        let url = format!("nvme-tcp://127.0.0.1:{port}/{NQN}?nsid=3");
        let mut command = command(DRIVERS[0]);
        command.args(["bench", "--runtime", "300", "--time_based", "--rw", "randread"]);
        command.args(["--iodepth", "4", "--quiet", &url]).stdout(std::process::Stdio::null());
        Self(command.spawn().expect("the binary"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.kill().expect("a process");
        self.0.wait().expect("a process");
    }
}

/// Reads until now, and how many have been the first to wait for a limit.
fn counts(client: &mut Client) -> (u64, u64) {
    let now = client.call::<GetStatistics>(&()).expect("statistics");
    let served = now.groups.iter().flat_map(|group| &group.served);
    (served.map(|one| one.reads).sum(), now.rate_limits.iter().map(|limit| limit.throttled).sum())
}

/// Waits until so many more reads have been done.
fn reads_go_on(client: &mut Client, more: u64) {
    let from = counts(client).0;
    let begin = Instant::now();
    while counts(client).0 < from + more {
        assert!(begin.elapsed() < TIMEOUT, "the reads stand still");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Under a limit of 20 reads a second, no more are done.
fn is_held_to_20(client: &mut Client) {
    let begin = Instant::now();
    while counts(client).1 == 0 {
        assert!(begin.elapsed() < TIMEOUT, "no read waits");
        std::thread::sleep(Duration::from_millis(10));
    }
    let (begin, from) = (Instant::now(), counts(client).0);
    std::thread::sleep(Duration::from_millis(500));
    let done = counts(client).0 - from;
    // Those in flight beside what the limit admits.
    let most = begin.elapsed().as_millis() / 50 + 8;
    assert!(u128::from(done) <= most, "{done} reads, at most {most} are admitted");
}

/// What a configuration that is saved has.
pub(crate) fn saved(client: &mut Client) -> Vec<Value> {
    ["keyring", "bdev", "nvmf"]
        .iter()
        .flat_map(|name| {
            let calls = call(client, "framework_get_config", json!({"name": name}));
            calls.expect("calls").as_array().expect("a list").clone()
        })
        .collect()
}

/// Another target makes what was saved; what it would save itself.
pub(crate) fn loaded(calls: &[Value]) -> Vec<Value> {
    let folder = Folder::new("loaded");
    let (target, mut client) = waiting(&folder, &[]);
    for one in calls {
        let method = one["method"].as_str().expect("a method");
        // The address is in use.
        if method != "nvmf_subsystem_add_listener" {
            call(&mut client, method, one["params"].clone()).expect(method);
        }
    }
    let again = saved(&mut client);
    target.stop();
    again
}

pub(crate) fn without_listeners(calls: Vec<Value>) -> Vec<Value> {
    calls.into_iter().filter(|one| one["method"] != "nvmf_subsystem_add_listener").collect()
}

#[test]
fn the_limits_of_a_block_device_change_under_load_and_are_kept() {
    let folder = Folder::new("qos");
    let state = folder.path("state.json");
    let words = ["--state", state.to_str().expect("text")];
    let (target, mut client) = waiting(&folder, &words);
    let port = with_null(&mut client);
    let assigned = |client: &mut Client| {
        let found = call(client, "bdev_get_bdevs", json!({"name": "N0"})).expect("a list");
        found[0]["assigned_rate_limits"].clone()
    };
    let limits = |ios: u64, rw: u64, r: u64, w: u64| {
        json!({"rw_ios_per_sec": ios, "rw_mbytes_per_sec": rw, "r_mbytes_per_sec": r,
               "w_mbytes_per_sec": w})
    };
    assert_eq!(assigned(&mut client), limits(0, 0, 0, 0));
    let set = |client: &mut Client, mut params: Value| {
        params["name"] = "N0".into();
        assert_eq!(call(client, "bdev_set_qos_limit", params), Ok(json!(true)));
    };
    let load = Load::new(&port);
    reads_go_on(&mut client, 1000);
    set(&mut client, json!({"rw_ios_per_sec": 20}));
    is_held_to_20(&mut client);
    set(&mut client, json!({"w_mbytes_per_sec": 7, "rw_mbytes_per_sec": u64::MAX}));
    // It is taken, as by SPDK, but hosts may give up.
    target.log_until("128 commands of 1MiB take 18 s, and hosts give up after 30 s; 9MiB or more");
    assert_eq!(assigned(&mut client), limits(20, 0, 0, 7), "what is not given stays");
    set(&mut client, json!({"rw_ios_per_sec": 0}));
    reads_go_on(&mut client, 1000);
    drop(load);
    set(&mut client, json!({"rw_ios_per_sec": 12345}));
    let calls = saved(&mut client);
    let limit = json!({"name": "N0", "rw_ios_per_sec": 12345, "w_mbytes_per_sec": 7});
    assert!(calls.contains(&json!({"method": "bdev_set_qos_limit", "params": limit})), "{calls:?}");
    assert_eq!(loaded(&calls), without_listeners(calls));
    // The process that is killed has kept it as well.
    target.signal(rustix::process::Signal::KILL);
    drop(target);
    let (target, mut client) = waiting(&folder, &words);
    assert_eq!(assigned(&mut client), limits(12345, 0, 0, 7));
    // They go with their device.
    call(&mut client, "bdev_delete", json!({"name": "N0"})).expect("it is deleted");
    let again = json!({"name": "N0", "num_blocks": 1 << 20, "block_size": 4096});
    call(&mut client, "bdev_null_create", again).expect("a name");
    assert_eq!(assigned(&mut client), limits(0, 0, 0, 0));
    target.stop();
}

#[test]
fn rate_limits_are_set_and_deleted_under_load_and_kept() {
    let folder = Folder::new("rate-limit");
    let state = folder.path("state.json");
    let words = ["--state", state.to_str().expect("text")];
    let (target, mut client) = waiting(&folder, &words);
    let port = with_null(&mut client);
    let control = target.said["control"].as_str().expect("said").to_owned();
    let ctl = |words: &str| {
        let words =
            ["ctl", "--control", &control, "rate-limit"].into_iter().chain(words.split(' '));
        weft(DRIVERS[0], words)
    };
    let at = format!("--subsystem {NQN} --nsid 3");
    let load = Load::new(&port);
    reads_go_on(&mut client, 1000);
    ctl(&format!("set {at} --rw read --rate-iops 20")).text();
    is_held_to_20(&mut client);
    ctl(&format!("delete {at} --rw read")).text();
    reads_go_on(&mut client, 1000);
    drop(load);
    for (words, part) in [
        (format!("delete {at}"), "there is no rate limit for commands to namespace 3"),
        (format!("set {at}"), "it limits nothing; give --rate-iops, --rate or both"),
        ("set --host noisy --rate-iops 9".to_owned(), "--host: \"noisy\" is no NQN"),
        (format!("set {at} --rate 1MiB"), "give --rate 9MiB or more, or --force"),
        (format!("set {at} --rate-iops 100 --burst 61s"), "longer than 60s"),
        (format!("set {at} --rate-iops 100 --burst soon"), "soon"),
    ] {
        let fault = ctl(&words).fault();
        assert!(fault.contains(part), "{words}: {fault}");
    }
    ctl("set --host nqn.2014-08.org.example:h --rate 100MiB --burst 50ms").text();
    ctl(&format!("set {at} --rate 1MiB --force")).text();
    let told = ctl(&format!("set {at} --rate-iops 5000")).text();
    assert_eq!(told, "note: the earlier limit of 1MiB/s is gone: a limit is set as a whole\n");
    ctl(&format!("delete {at}")).text();
    let told = ctl(&format!("set --subsystem {NQN} --nsid 77 --iops 5000")).text();
    assert!(
        told.contains("there is no namespace 77 of") && told.contains("waits for it"),
        "{told}"
    );
    ctl(&format!("remove --subsystem {NQN} --nsid 77")).text();
    ctl(&format!("set {at} --rate 200MiB")).text();
    ctl("set --host nqn.example:b --host nqn.example:a --rate-iops 3000").text();
    let limits = json!([
        {"host": "nqn.2014-08.org.example:h", "rw": "rw", "rate": 100 << 20, "burst": "50ms"},
        {"subsystem": NQN, "nsid": 3, "rw": "rw", "rate": 200 << 20},
        {"host": ["nqn.example:a", "nqn.example:b"], "rw": "rw", "rate_iops": 3000},
    ]);
    assert_eq!(ctl("list -o json").json(), limits);
    let listed = ctl("list").text();
    assert!(listed.contains("200MiB") && listed.contains("50ms"), "{listed}");
    assert!(listed.contains("nqn.example:a,nqn.example:b"), "{listed}");
    let shown = call(&mut client, "statistics", json!({})).expect("statistics");
    let of_group = |one: &Value| one["host"] == "nqn.example:a,nqn.example:b";
    assert!(shown["rate_limits"].as_array().expect("a list").iter().any(of_group), "{shown}");
    let unknown = call(&mut client, "rate_limit_set", json!({"speed": 1}));
    assert!(unknown.is_err_and(|(code, what)| code == -32602 && what.contains("speed")));
    let calls = saved(&mut client);
    assert!(calls.contains(&json!({"method": "rate_limit_set", "params": limits[1]})), "{calls:?}");
    assert_eq!(loaded(&calls), without_listeners(calls));
    target.signal(rustix::process::Signal::KILL);
    drop(target);
    let (target, mut client) = waiting(&folder, &words);
    assert_eq!(call(&mut client, "rate_limit_get_all", json!({})), Ok(limits));
    target.stop();
}

/// A reload applies what the file has changed of the limits, and leaves the rest.
#[test]
fn a_reload_keeps_rate_limits_that_were_made_at_run_time() {
    let folder = Folder::new("rate-limit-reload");
    let file = folder.path("target.toml");
    let write = |reads: u32| {
        let text = format!(
            "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{NQN}\"\n\
             [[subsystem.namespace]]\nnull = \"1GiB\"\n\
             [[rate-limit]]\nrw = \"read\"\nrate-iops = {reads}\n\
             [[rate-limit]]\nrw = \"write\"\nrate-iops = 300\n"
        );
        std::fs::write(&file, text).expect("a file");
    };
    write(100);
    let (target, mut client) = waiting(&folder, &["--config", file.to_str().expect("text")]);
    let mut call = |method, params| call(&mut client, method, params).expect(method);
    call("rate_limit_set", json!({"nsid": 1, "subsystem": NQN, "rate_iops": 50}));
    call("rate_limit_delete", json!({"rw": "write"}));
    assert_eq!(call("reload", json!(null)), json!([]), "the file is as it was");
    write(200);
    assert_eq!(call("reload", json!(null)).as_array().map(Vec::len), Some(1));
    let reads = json!({"rw": "read", "rate_iops": 200});
    let made = json!({"subsystem": NQN, "nsid": 1, "rw": "rw", "rate_iops": 50});
    assert_eq!(call("rate_limit_get_all", json!({})), json!([reads, made]));
    target.stop();
}

/// A file with a secret, as `nvme gen-dhchap-key` prints it.
pub(crate) fn key_file(folder: &Folder, name: &str, secret: &str) -> String {
    let path = folder.path(name);
    std::fs::write(&path, secret).expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, mode).expect("its mode");
    path.to_str().expect("text").to_owned()
}

pub(crate) const SECRETS: [&str; 2] = [
    "DHHC-1:00:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH:",
    "DHHC-1:01:MjM0NTY3ODk6Ozw9Pj9AQUJDREVGR0hJSktMTU5PUFGALiae:",
];

const FLAG: &str = "--dhchap-secret-file";

#[test]
fn keys_have_names_are_changed_while_hosts_are_connected_and_are_kept() {
    let folder = Folder::new("keys");
    let state = folder.path("state.json");
    let words = ["--state", state.to_str().expect("text"), "-v"];
    let (target, mut client) = waiting(&folder, &words);
    let port = with_null(&mut client);
    let paths = [0, 1].map(|at| key_file(&folder, &format!("key{at}"), SECRETS[at]));
    let host = "nqn.2014-08.org.example:h";
    let mut done = |method: &str, params: Value| {
        assert_eq!(call(&mut client, method, params.clone()), Ok(json!(true)), "{method} {params}");
    };
    for (at, path) in paths.iter().enumerate() {
        done("keyring_file_add_key", json!({"name": format!("key{at}"), "path": path}));
    }
    done("nvmf_subsystem_allow_any_host", json!({"nqn": NQN, "allow_any_host": false}));
    let keys = json!({"nqn": NQN, "host": host, "dhchap_key": "key0", "dhchap_ctrlr_key": "key1"});
    done("nvmf_subsystem_add_host", keys.clone());
    let url = format!("nvme-tcp://127.0.0.1:{port}/{NQN}");
    let list = |own: usize, controllers: usize| {
        let own = ["--dhchap-secret-file", &paths[own]];
        let controllers = ["--dhchap-ctrl-secret-file", &paths[controllers]];
        weft(DRIVERS[0], [&["list", &url, "--hostnqn", host], &own[..], &controllers].concat())
    };
    list(0, 1).text();
    assert!(list(1, 1).fault().contains("does not accept this host's secret"));
    assert!(list(0, 0).fault().contains("has not proved that it has its secret"));
    let bare = weft(DRIVERS[0], ["list", &url, "--hostnqn", host]).fault();
    assert!(bare.contains("--dhchap-secret-file"), "{bare}");
    let inline = ["list", &url, "--dhchap-secret-file", SECRETS[0]];
    let inline = weft(DRIVERS[0], inline).fault();
    assert!(inline.contains("not the secret") && !inline.contains("DHHC"), "{inline}");

    let control = target.said["control"].as_str().expect("said");
    let listed = weft(DRIVERS[0], ["ctl", "--control", control, "host", "list"]).text();
    assert!(listed.contains("dhchap_key=key0 dhchap_ctrlr_key=key1"), "{listed}");
    let listed = weft(DRIVERS[0], ["ctl", "--control", control, "listener", "list"]).text();
    assert!(listed.contains("tls") && listed.contains(" off"), "{listed}");
    let shown = call(&mut client, "nvmf_get_subsystems", json!({"nqn": NQN})).expect("one");
    let named = json!([{"nqn": host, "dhchap_key": "key0", "dhchap_ctrlr_key": "key1"}]);
    assert_eq!(shown[0]["hosts"], named);
    let given = json!({"name": "key2", "path": SECRETS[1]});
    let given = call(&mut client, "keyring_file_add_key", given).expect_err("no path");
    assert!(given.1.contains("not the secret") && !given.1.contains("DHHC"), "{given:?}");
    let given = json!({"nqn": NQN, "host": host, "dhchap_key": SECRETS[1]});
    let given = call(&mut client, "nvmf_subsystem_set_keys", given).expect_err("no name");
    assert!(given.1.contains("a key itself") && !given.1.contains("DHHC"), "{given:?}");
    let calls = saved(&mut client);
    assert!(calls.contains(&json!({"method": "nvmf_subsystem_add_host", "params": keys})));
    assert_eq!(loaded(&calls), without_listeners(calls));
    // The process that is killed has kept the names, and nobody has told a key.
    target.signal(rustix::process::Signal::KILL);
    let log = target.log_lines().join("\n");
    assert!(log.contains("key0") && !log.contains("DHHC-1"), "{log}");
    drop(target);
    let text = std::fs::read_to_string(&state).expect("a state");
    assert!(text.contains("key0") && !text.contains("DHHC-1"), "{text}");

    let (target, mut client) = waiting(&folder, &words);
    let other = json!({"nqn": NQN, "host": host, "dhchap_key": "key1"});
    assert_eq!(call(&mut client, "nvmf_subsystem_set_keys", other), Ok(json!(true)));
    let listeners = call(&mut client, "nvmf_subsystem_get_listeners", json!({"nqn": NQN}));
    let listeners = listeners.expect("a list");
    let port = listeners[0]["address"]["trsvcid"].as_str().expect("a port").to_owned();
    let url = format!("nvme-tcp://127.0.0.1:{port}/{NQN}");
    let list = |own: usize| weft(DRIVERS[0], ["list", &url, "--hostnqn", host, FLAG, &paths[own]]);
    list(1).text();

    // Keys change their file and keep their name, as ceph-nvmeof has it: the old file goes first,
    // and the host has its old key until it is given the new one.
    let done = |client: &mut Client, method: &str, params: Value| {
        assert_eq!(call(client, method, params.clone()), Ok(json!(true)), "{method} {params}");
    };
    let moved = key_file(&folder, "moved", SECRETS[1]);
    std::fs::rename(&paths[1], &moved).expect("a file");
    done(&mut client, "keyring_file_remove_key", json!({"name": "key1"}));
    done(&mut client, "keyring_file_add_key", json!({"name": "key1", "path": &paths[0]}));
    let shown = call(&mut client, "nvmf_get_subsystems", json!({"nqn": NQN})).expect("one");
    assert_eq!(shown[0]["hosts"], json!([{"nqn": host, "dhchap_key": &paths[1]}]));
    let has_old = ["list", &url, "--hostnqn", host, FLAG, &moved];
    weft(DRIVERS[0], has_old).text();
    list(0).fault();
    done(
        &mut client,
        "nvmf_subsystem_set_keys",
        json!({"nqn": NQN, "host": host, "dhchap_key": "key1"}),
    );
    list(0).text();
    weft(DRIVERS[0], has_old).fault();
    target.stop();
}

/// The target sees no number of a caller outside its PID namespace.
#[test]
fn a_caller_of_another_pid_namespace_is_named_as_such() {
    let folder = Folder::new("pid-namespace");
    let control = format!("unix:{}", folder.path("control").display());
    let mut unshare = std::process::Command::new("unshare");
    unshare.env("WEFT_DRIVER", "epoll");
    unshare.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]);
    unshare.arg(command("epoll").get_program());
    unshare.args(["target", "--output-format", "json", "--stop-with-stdin", "--control", &control]);
    let target = Target::spawn("epoll", unshare);
    weft("epoll", ["ctl", "--control", &control, "subsystem", "create", "nqn.2024-01.a:b"]).text();
    target.wait_for_log("a process of another PID namespace");
    target.stop();
}

/// The class of a queue, who decides it, and whether the queue is express.
fn class_of_queue(client: &mut Client, qid: u64) -> Value {
    let queues = call(client, "nvmf_subsystem_get_qpairs", json!({"nqn": NQN})).expect("a list");
    let io = queues.as_array().expect("a list").iter().find(|queue| queue["qid"] == qid);
    io.expect("an I/O queue")["qos"].clone()
}

#[test]
fn classes_are_set_and_deleted_under_load_and_kept() {
    let folder = Folder::new("qos");
    let state = folder.path("state.json");
    let words = ["--state", state.to_str().expect("text")];
    let (target, mut client) = waiting(&folder, &words);
    let port = with_null(&mut client);
    let control = target.said["control"].as_str().expect("said").to_owned();
    let ctl = |words: &str| {
        let words = ["ctl", "--control", &control, "qos"].into_iter().chain(words.split(' '));
        weft(DRIVERS[0], words)
    };
    let load = Load::new(&port);
    reads_go_on(&mut client, 1000);
    for (change, class, reason) in [
        ("set --class latency", Some("latency"), "rule"),
        ("set --class throughput", Some("throughput"), "rule"),
        // Without a rule the load decides, which on a slow machine is small at times.
        ("delete", None, "automatic"),
    ] {
        ctl(change).text();
        let begin = Instant::now();
        let is_in_force = |qos: &Value| {
            let is_express = qos["class"] == "latency";
            let is_expected = class.is_none_or(|class| qos["class"] == class);
            is_expected && qos["reason"] == reason && qos["express"] == is_express
        };
        loop {
            let qos = class_of_queue(&mut client, 1);
            if is_in_force(&qos) {
                break;
            }
            assert!(begin.elapsed() < TIMEOUT, "{change}: it is not in force: {qos}");
            std::thread::sleep(Duration::from_millis(10));
        }
        reads_go_on(&mut client, 1000);
        let qos = class_of_queue(&mut client, 1);
        assert!(is_in_force(&qos), "{change}: {qos}");
    }
    let listed =
        weft(DRIVERS[0], ["ctl", "--control", &control, "controller", "list", "-o", "json"]);
    let one = &listed.json()[0];
    let peer = one["peer"].as_str().expect("the host is connected");
    assert!(peer.starts_with("tcp://127.0.0.1:"), "{one}");
    assert_eq!((&one["tls"], &one["authenticated"]), (&json!(false), &json!(false)));
    drop(load);
    for (words, part) in [
        ("delete", "there is no rule for all queues"),
        ("set --class throughput --weight 0", "give 1 to 10000"),
    ] {
        let fault = ctl(words).fault();
        assert!(fault.contains(part), "{words}: {fault}");
    }
    ctl("set --host nqn.2014-08.org.example:h --class latency").text();
    ctl("set --port 7 --class throughput --weight 250").text();
    ctl("set --host nqn.example:b --host nqn.example:a --class throughput --weight 300").text();
    let rules = json!([
        {"host": "nqn.2014-08.org.example:h", "class": "latency"},
        {"port": 7, "class": "throughput", "weight": 250},
        {"host": ["nqn.example:a", "nqn.example:b"], "class": "throughput", "weight": 300},
    ]);
    assert_eq!(ctl("list -o json").json(), rules);
    let listed = ctl("list").text();
    assert!(listed.contains("latency") && listed.contains("throughput"), "{listed}");
    assert!(listed.contains("250") && listed.contains("nqn.example:a,nqn.example:b"), "{listed}");
    let unknown = call(&mut client, "qos_set", json!({"class": "latency", "nsid": 1}));
    assert!(unknown.is_err_and(|(code, what)| code == -32602 && what.contains("nsid")));
    for (key, part) in [
        ("budget", "half of a poll group's time together"),
        ("latency_target", "served as soon as possible"),
        ("max_throughput_loss", "others always keep half"),
    ] {
        let replaced = call(&mut client, "qos_set", json!({"class": "latency", key: 40}));
        assert!(replaced.is_err_and(|(code, what)| code == -32602 && what.contains(part)), "{key}");
    }
    let calls = saved(&mut client);
    assert!(calls.contains(&json!({"method": "qos_set", "params": rules[0]})), "{calls:?}");
    assert_eq!(loaded(&calls), without_listeners(calls));
    target.signal(rustix::process::Signal::KILL);
    drop(target);
    let (target, mut client) = waiting(&folder, &words);
    assert_eq!(call(&mut client, "qos_get_all", json!({})), Ok(rules));
    target.stop();
}
