//! What SPDK's own configurations and scripts ask of a target.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::control::{
    SECRETS, call, key_file, loaded, saved, waiting, with_null, without_listeners,
};
use crate::weft::{DRIVERS, Folder, NQN, command, text, weft, weft_with_stdin};

/// What `save_config` of SPDK 26.09 writes of every process, and of a subsystem with a namespace.
const SAVED: &str = r#"[
  ["fsdev_set_opts", {"fsdev_io_pool_size": 65535, "fsdev_io_cache_size": 256}],
  ["keyring_linux_set_options", {"enable": false}],
  ["iobuf_set_options", {"small_pool_count": 8192, "large_pool_count": 1024,
    "small_bufsize": 8192, "large_bufsize": 135168, "enable_numa": false}],
  ["sock_set_default_impl", {"impl_name": "posix"}],
  ["sock_impl_set_options", {"impl_name": "ssl", "recv_buf_size": 4096, "enable_quickack": false,
    "enable_zerocopy_send_server": true, "tls_version": 0, "enable_ktls": false}],
  ["sock_impl_set_options", {"impl_name": "posix", "recv_buf_size": 2097152}],
  ["accel_set_options", {"small_cache_size": 128, "large_cache_size": 16}],
  ["bdev_set_options", {"bdev_io_pool_size": 65535, "bdev_auto_examine": true}],
  ["bdev_raid_set_options", {"process_window_size_kb": 1024}],
  ["bdev_iscsi_set_options", {"timeout_sec": 30}],
  ["bdev_nvme_set_options", {"action_on_timeout": "none", "dhchap_digests": ["sha256"]}],
  ["bdev_nvme_set_hotplug", {"period_us": 100000, "enable": false}],
  ["bdev_malloc_create", {"name": "M0", "num_blocks": 2048, "block_size": 512,
    "physical_block_size": 512, "uuid": "5b4a0e7d-6f8c-4d0c-9d55-0a3a4f8d7c11",
    "optimal_io_boundary": 0, "md_size": 0, "dif_type": 0, "dif_is_head_of_md": false,
    "dif_pi_format": 0, "numa_id": -1}],
  ["bdev_aio_create", {"name": "A0", "filename": "DISK", "block_size": 512, "readonly": false,
    "fallocate": false, "nowait": true}],
  ["bdev_wait_for_examine", null],
  ["framework_set_scheduler", {"name": "static"}],
  ["nvmf_set_config", {"discovery_filters": [], "admin_cmd_passthru": {"identify_ctrlr": false,
    "get_log_page": false, "vendor_specific": false}, "dup_host_policy": "allow",
    "dhchap_digests": ["sha256", "sha384", "sha512"], "dhchap_dhgroups": ["null", "ffdhe2048",
    "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192"]}],
  ["nvmf_set_max_subsystems", {"max_subsystems": 1024}],
  ["nvmf_set_crdt", {"crdt1": 0, "crdt2": 0, "crdt3": 0}],
  ["nvmf_create_transport", {"trtype": "TCP", "max_queue_depth": 128,
    "max_io_qpairs_per_ctrlr": 127, "in_capsule_data_size": 4096, "max_io_size": 131072,
    "max_aq_depth": 128, "iobuf_small_cache_size": 4294967295, "dif_insert_or_strip": false,
    "zcopy": false, "c2h_success": true, "sock_priority": 0, "abort_timeout_sec": 1,
    "ack_timeout": 0, "disable_command_passthru": false, "kas": 100, "min_kato": 0}],
  ["nvmf_discovery_add_referral", {"address": {"trtype": "TCP", "adrfam": "IPv4",
    "traddr": "192.0.2.7", "trsvcid": "4420"}, "secure_channel": false,
    "subnqn": "nqn.2024-01.io.example:other"}],
  ["nvmf_create_subsystem", {"nqn": "SUBSYSTEM", "allow_any_host": true,
    "serial_number": "SPDK001", "model_number": "SPDK bdev Controller", "max_namespaces": 32,
    "min_cntlid": 1, "max_cntlid": 65519, "ana_reporting": false, "dmrsl": 0, "wzsl": 0,
    "passthrough": false, "enable_nssr": false, "admin_label": "rack 7"}],
  ["nvmf_subsystem_add_ns", {"nqn": "SUBSYSTEM", "namespace": {"nsid": 1, "bdev_name": "M0",
    "nguid": "5B4A0E7D6F8C4D0C9D550A3A4F8D7C11", "uuid": "5b4a0e7d-6f8c-4d0c-9d55-0a3a4f8d7c11",
    "no_auto_visible": false}}],
  ["nvmf_subsystem_add_listener", {"nqn": "SUBSYSTEM", "listen_address": {"trtype": "TCP",
    "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "0"}, "secure_channel": false,
    "sock_impl": "posix"}],
  ["iscsi_set_options", {"max_sessions": 128, "max_connections_per_session": 2}]
]"#;

#[test]
fn a_configuration_that_spdk_has_saved_is_loaded() {
    let folder = Folder::new("spdk-saved");
    let disk = folder.write("disk", [0; 4096]);
    let saved_there = SAVED.replace("DISK", text(&disk)).replace("SUBSYSTEM", NQN);
    let calls: Vec<(String, Value)> = serde_json::from_str(&saved_there).expect("calls");
    let (target, mut client) = waiting(&folder, &[]);
    let known = call(&mut client, "rpc_get_methods", json!({"current": true})).expect("names");
    for (method, params) in calls {
        // SPDK's client looks each method up before it calls any.
        assert!(known.as_array().expect("a list").contains(&json!(method)), "{method}");
        let done = call(&mut client, &method, params);
        assert!(done.is_ok(), "{method}: {done:?}");
    }
    let shown = call(&mut client, "nvmf_get_subsystems", json!({"nqn": NQN})).expect("one");
    assert_eq!(shown[0]["namespaces"][0]["bdev_name"], "M0");
    assert_eq!(shown[0]["admin_label"], "rack 7");
    assert_eq!(shown[0]["listen_addresses"].as_array().map(Vec::len), Some(1));
    let again = saved(&mut client);
    assert!(again.iter().all(|one| one["method"] != "nvmf_set_config"), "all: {again:?}");
    target.stop();
}

#[test]
fn what_a_method_of_spdk_cannot_do_is_refused() {
    let folder = Folder::new("spdk-refused");
    let (target, mut client) = waiting(&folder, &[]);
    call(&mut client, "nvmf_create_transport", json!({"trtype": "tcp"})).expect("a transport");
    call(&mut client, "nvmf_create_subsystem", json!({"nqn": NQN})).expect("a subsystem");
    let listener = |more: Value| {
        let at = json!({"trtype": "TCP", "traddr": "127.0.0.1", "trsvcid": "0"});
        let mut params = json!({"nqn": NQN, "listen_address": at});
        params.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
        params
    };
    let (create, config) = ("nvmf_create_subsystem", "nvmf_set_config");
    let add = "nvmf_subsystem_add_listener";
    for (method, params, part) in [
        (config, json!({"admin_cmd_passthru": {"identify_ctrlr": true}}), "admin_cmd_passthru"),
        (config, json!({"poll_groups_mask": "0x3"}), "poll_groups_mask"),
        (config, json!({"discovery_filters": ["transport"]}), "discovery_filters"),
        (config, json!({"discovery_filter": "transport"}), "discovery_filter \"transport\""),
        (config, json!({"dup_host_policy": "restrict_per_listener"}), "dup_host_policy"),
        (config, json!({"dhchap_digests": ["md5"]}), "\"md5\" is not a hash function"),
        (config, json!({"dhchap_digests": []}), "dhchap_digests allows none"),
        (config, json!({"dhchap_dhgroups": ["modp"]}), "\"modp\" is not a DH group"),
        (create, json!({"nqn": "nqn.l", "admin_label": "abc"}), "Invalid admin_label"),
        ("nvmf_set_crdt", json!({"crdt1": 0, "crdt2": 10}), "crdt2"),
        ("bdev_nvme_set_hotplug", json!({"enable": true}), "enable"),
        (add, listener(json!({"sock_impl": "dpdk"})), "give posix, uring or ssl"),
        (add, listener(json!({"sock_impl": "ssl", "tls": "off"})), "contradicts"),
        (add, listener(json!({"sock_impl": "uring", "secure_channel": true})), "contradicts"),
    ] {
        let (code, what) = call(&mut client, method, params).expect_err(part);
        assert!(code == -32602 && what.contains(part), "{method}: {code} {what}");
    }
    target.stop();
}

/// A host that authenticates itself and reads, until it is dropped.
struct Reader(std::process::Child);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.kill().expect("a process");
        self.0.wait().expect("a process");
    }
}

#[test]
fn lists_of_authentication_hold_for_hosts_without_lists_of_their_own() {
    let folder = Folder::new("spdk-lists");
    let state = folder.path("state.json");
    let words = ["--state", text(&state)];
    let (target, mut client) = waiting(&folder, &words);
    let port = with_null(&mut client);
    let (key, host) = (key_file(&folder, "key", SECRETS[0]), "nqn.2014-08.org.example:h");
    let lists = json!({"dhchap_digests": ["sha512", "sha384"], "dhchap_dhgroups": ["ffdhe3072"]});
    for (method, params) in [
        ("nvmf_set_config", lists),
        ("nvmf_set_config", json!({"dhchap_digests": ["sha512"]})),
        ("keyring_file_add_key", json!({"name": "key", "path": key})),
        ("nvmf_subsystem_allow_any_host", json!({"nqn": NQN, "allow_any_host": false})),
        ("nvmf_subsystem_add_host", json!({"nqn": NQN, "host": host, "dhchap_key": "key"})),
    ] {
        assert_eq!(call(&mut client, method, params), Ok(json!(true)), "{method}");
    }
    let url = format!("nvme-tcp://127.0.0.1:{port}/{NQN}?nsid=3");
    let mut reader = command(DRIVERS[0]);
    reader.args(["bench", "--runtime", "300", "--time_based", "--quiet", "--hostnqn", host]);
    reader.args(["--dhchap-secret-file", &key, &url]).stdout(std::process::Stdio::null());
    let reader = Reader(reader.spawn().expect("the binary"));
    let begin = Instant::now();
    let auth = loop {
        let queues = call(&mut client, "nvmf_subsystem_get_qpairs", json!({"nqn": NQN}));
        let queues = queues.expect("a list");
        match queues.as_array().and_then(|all| all.iter().find(|one| one["qid"] == 1)) {
            Some(queue) if queue["auth"]["state"] == "completed" => break queue["auth"].clone(),
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{queues}");
    };
    let completed = json!({"state": "completed", "digest": "sha512", "dhgroup": "ffdhe3072"});
    assert_eq!(auth, completed);
    drop(reader);
    let calls = saved(&mut client);
    let params = json!({"dhchap_digests": ["sha512"], "dhchap_dhgroups": ["ffdhe3072"]});
    let set = json!({"method": "nvmf_set_config", "params": params});
    assert!(calls.contains(&set), "{calls:?}");
    assert_eq!(loaded(&calls), without_listeners(calls));
    // The process that is killed has kept them.
    target.signal(Signal::KILL);
    drop(target);
    let (target, mut client) = waiting(&folder, &words);
    assert!(saved(&mut client).contains(&set));
    target.stop();
}

#[test]
fn hosts_are_referred_to_a_subsystem_of_another_target() {
    let folder = Folder::new("spdk-referral");
    let state = folder.path("state.json");
    let words = ["--state", text(&state), "--listen", "tcp://127.0.0.1:0", "--memory", "1MiB"];
    let (target, mut client) = waiting(&folder, &words);
    let other = "nqn.2024-01.io.example:other";
    let at = json!({"trtype": "TCP", "adrfam": "IPv4", "traddr": "192.0.2.7", "trsvcid": "4420"});
    let referral = json!({"address": at, "secure_channel": false, "subnqn": other});
    let discovery = json!({"address": at});
    for params in [&referral, &discovery] {
        let added = call(&mut client, "nvmf_discovery_add_referral", params.clone());
        assert_eq!(added, Ok(json!(true)));
    }
    let removed = call(&mut client, "nvmf_discovery_remove_referral", discovery);
    assert_eq!(removed, Ok(json!(true)), "the other one stays");
    let wrong = json!({"address": at, "subnqn": "notannqn"});
    let (code, what) = call(&mut client, "nvmf_discovery_add_referral", wrong).expect_err("wrong");
    assert!(code == -32602 && what.contains("begins with"), "{code} {what}");
    let url = format!("tcp://127.0.0.1:{}", target.port(0));
    let log = weft(DRIVERS[0], ["discover", &url, "-o", "json"]).json();
    let records = log["records"].as_array().expect("a list").iter();
    let away: Vec<&Value> = records.filter(|one| one["traddr"] == "192.0.2.7").collect();
    assert_eq!(away.len(), 1, "{log}");
    assert_eq!(
        (&away[0]["subtype"], &away[0]["subnqn"]),
        (&json!("nvme subsystem"), &json!(other))
    );
    // The process that is killed has kept it.
    target.signal(Signal::KILL);
    drop(target);
    let (target, mut client) = waiting(&folder, &words);
    let shown = call(&mut client, "nvmf_discovery_get_referrals", json!({}));
    assert_eq!(shown, Ok(json!([referral])));
    assert_eq!(call(&mut client, "nvmf_discovery_remove_referral", referral), Ok(json!(true)));
    target.stop();
}

/// One device under two names, of which only the upper one is used while it is there.
#[test]
fn a_block_device_is_delayed_by_another_one() {
    let folder = Folder::new("spdk-delay");
    let state = folder.path("state");
    let words = ["--state", text(&state)];
    let (target, mut client) = waiting(&folder, &words);
    let port = with_null(&mut client);
    let malloc = json!({"name": "M", "num_blocks": 256, "block_size": 4096});
    call(&mut client, "bdev_malloc_create", malloc).expect("memory");
    let delay = |name: &str, base: &str, p99: u64| {
        json!({
            "name": name, "base_bdev_name": base, "avg_read_latency": 30_000,
            "p99_read_latency": p99, "avg_write_latency": 30_000, "p99_write_latency": 30_000,
        })
    };
    let mut refused = |method: &str, params: Value, code: i64, part: &str| {
        let (found, what) = call(&mut client, method, params).expect_err(method);
        assert!(found == code && what.contains(part), "{method}: {found} {what}");
    };
    refused("bdev_delay_create", delay("D", "M", 60_000), -32603, "each request waits as long");
    refused("bdev_delay_create", delay("D", "X", 30_000), -19, "no block device X");
    refused("bdev_delay_create", delay("D", "N0", 30_000), -17, "used by namespace 3");
    let made = call(&mut client, "bdev_delay_create", delay("D", "M", 30_000));
    assert_eq!(made, Ok("D".into()));
    let add = |bdev: &str| json!({"nqn": NQN, "namespace": {"bdev_name": bdev, "nsid": 7}});
    let mut refused = |method: &str, params: Value, code: i64| {
        let (found, what) = call(&mut client, method, params).expect_err(method);
        assert!(found == code && what.contains("used by block device D"), "{method}: {what}");
    };
    refused("bdev_delay_create", delay("E", "M", 30_000), -17);
    refused("bdev_malloc_delete", json!({"name": "M"}), -17);
    refused("nvmf_subsystem_add_ns", add("M"), -32602);
    let one = call(&mut client, "bdev_get_bdevs", json!({"name": "D"})).expect("one");
    assert_eq!(one[0]["driver_specific"]["delay"], delay("D", "M", 30_000));
    let base = call(&mut client, "bdev_get_bdevs", json!({"name": "M"})).expect("one");
    assert_eq!((&base[0]["claimed"], &one[0]["claimed"]), (&json!(true), &json!(false)));
    assert_eq!(call(&mut client, "nvmf_subsystem_add_ns", add("D")), Ok(7.into()));
    let url = format!("nvme-tcp://127.0.0.1:{port}/{NQN}?nsid=7");
    let begun = Instant::now();
    let wrote = weft_with_stdin(DRIVERS[0], &["write", &url], &[0x5a; 4096]);
    assert_eq!(wrote.code, Some(0), "{}", wrote.stderr);
    assert!(begun.elapsed() >= Duration::from_millis(30));
    let calls = saved(&mut client);
    assert_eq!(loaded(&calls), without_listeners(calls.clone()));
    // It goes, and what was written is in the other one.
    call(&mut client, "bdev_delay_delete", json!({"name": "D"})).expect("deleted");
    assert_eq!(call(&mut client, "nvmf_subsystem_add_ns", add("M")), Ok(7.into()));
    let read = weft(DRIVERS[0], ["read", &url, "--block-count", "1"]);
    assert_eq!(read.stdout, [0x5a; 4096]);
    call(&mut client, "nvmf_subsystem_remove_ns", json!({"nqn": NQN, "nsid": 7})).expect("gone");
    call(&mut client, "bdev_delay_create", delay("D", "M", 30_000)).expect("again");
    target.signal(Signal::KILL);
    drop(target);
    let (target, mut client) = waiting(&folder, &words);
    let one = call(&mut client, "bdev_get_bdevs", json!({"name": "D"})).expect("one");
    assert_eq!(one[0]["driver_specific"]["delay"], delay("D", "M", 30_000));
    target.stop();
}
