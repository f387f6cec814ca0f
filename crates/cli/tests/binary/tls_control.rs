//! Ports with TLS, and hosts' keys of it, made by RPC while hosts are connected.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::control::{call, loaded, saved, waiting, with_null, without_listeners};
use crate::tls::{HOST, key, run};
use crate::weft::{Folder, NQN, text};

/// Address of the port with TLS, apart from that without.
const SECURE: &str = "127.0.0.2";

/// The port with TLS, as a subsystem's listeners show it.
fn secure_url(listeners: &Value) -> String {
    let all = listeners.as_array().expect("a list");
    let secure: Vec<_> = all.iter().filter(|one| one["secure_channel"] == true).collect();
    assert_eq!((secure.len(), all.len()), (1, 2), "{listeners}");
    assert_eq!(secure[0]["tls"], "required");
    let port = secure[0]["address"]["trsvcid"].as_str().expect("a port");
    format!("nvme-tcp://{SECURE}:{port}/{NQN}?nsid=3")
}

#[test]
fn keys_of_tls_change_by_rpc_without_disconnecting_anybody() {
    let folder = Folder::new("tls-rpc");
    let state = folder.path("state.json");
    let words = ["--state", text(&state), "-v"];
    let (target, mut client) = waiting(&folder, &words);
    with_null(&mut client);
    let (own, next) = (key(&folder, "own", &[]), key(&folder, "next", &["--hmac", "sha384"]));
    let mut done = |method: &str, params: Value| {
        assert_eq!(call(&mut client, method, params.clone()), Ok(json!(true)), "{method} {params}");
    };
    for (name, path) in [("own", &own), ("next", &next)] {
        done("keyring_file_add_key", json!({"name": name, "path": path}));
    }
    done("nvmf_subsystem_allow_any_host", json!({"nqn": NQN, "allow_any_host": false}));
    let at = json!({"trtype": "TCP", "traddr": SECURE, "trsvcid": "0", "adrfam": "ipv4"});
    let secure = json!({"nqn": NQN, "listen_address": at, "secure_channel": true});
    done("nvmf_subsystem_add_listener", secure);
    done("nvmf_subsystem_add_host", json!({"nqn": NQN, "host": HOST, "psk": "own"}));
    let listeners = call(&mut client, "nvmf_subsystem_get_listeners", json!({"nqn": NQN}));
    let url = secure_url(&listeners.expect("a list"));
    let plain = json!({"nqn": NQN, "listen_address": at, "secure_channel": false});
    let plain = call(&mut client, "nvmf_subsystem_add_listener", plain).expect_err("two settings");
    assert!(plain.1.contains("tls \"required\""), "{plain:?}");

    assert_eq!(run(&url, "list", &own, &[]).code, Some(0));
    run(&url, "list", &next, &[]).fault();
    let load = {
        let (url, own) = (url.clone(), own.clone());
        // The first loss would end it.
        let words = ["--rw", "randread", "--runtime", "3s", "--ctrl-loss-tmo", "0", "--quiet"];
        thread::spawn(move || run(&url, "bench", &own, &words))
    };
    let mut queues = || call(&mut client, "nvmf_subsystem_get_qpairs", json!({"nqn": NQN}));
    while queues().expect("a list").as_array().is_none_or(|all| all.len() < 2) {
        assert!(!load.is_finished(), "{}", load.join().expect("no panic").stderr);
        thread::sleep(Duration::from_millis(20));
    }
    let mut set = |names: Value| {
        let params = json!({"nqn": NQN, "host": HOST, "psk": names});
        assert_eq!(call(&mut client, "nvmf_subsystem_set_keys", params), Ok(json!(true)));
    };
    set(json!(["own", "next"]));
    for known in [&own, &next] {
        assert_eq!(run(&url, "list", known, &[]).code, Some(0), "while keys are changed, both do");
    }
    set(json!("next"));
    run(&url, "list", &own, &[]).fault();
    assert_eq!(run(&url, "list", &next, &[]).code, Some(0));
    let load = load.join().expect("no panic");
    assert_eq!(load.code, Some(0), "who is connected stays: {}", load.stderr);

    let removed = call(&mut client, "keyring_file_remove_key", json!({"name": "own"}));
    assert_eq!(removed, Ok(json!(true)));
    let shown = call(&mut client, "nvmf_get_subsystems", json!({"nqn": NQN})).expect("one");
    assert_eq!(shown[0]["hosts"], json!([{"nqn": HOST, "psk": "next"}]));
    let calls = saved(&mut client);
    let host = json!({"nqn": NQN, "host": HOST, "psk": "next"});
    assert!(calls.contains(&json!({"method": "nvmf_subsystem_add_host", "params": host})));
    let is_secure = |one: &&Value| one["params"]["secure_channel"] == true;
    assert_eq!(calls.iter().filter(is_secure).count(), 1);
    assert_eq!(loaded(&calls), without_listeners(calls));

    // What is kept has names, and serves the same after a crash.
    target.signal(rustix::process::Signal::KILL);
    let log = target.log_lines().join("\n");
    drop(target);
    let kept = std::fs::read_to_string(&state).expect("a state");
    for text in [&log, &kept] {
        assert!(text.contains("next") && !text.contains("NVMeTLSkey"), "{text}");
    }
    let (target, mut client) = waiting(&folder, &words);
    let listeners = call(&mut client, "nvmf_subsystem_get_listeners", json!({"nqn": NQN}));
    let url = secure_url(&listeners.expect("a list"));
    assert_eq!(run(&url, "list", &next, &[]).code, Some(0));
    run(&url, "list", &own, &[]).fault();
    target.stop();
}
