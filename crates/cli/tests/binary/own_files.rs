//! The files that a target itself reads and writes: what is no file is refused at once.

use std::path::Path;

use serde_json::json;

use crate::control::{SECRETS, call, waiting};
use crate::operate::token_file;
use crate::weft::{DRIVERS, Folder, NQN, text, weft};

fn fifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(path).status();
    assert!(made.expect("mkfifo").success());
}

fn config() -> String {
    format!(
        "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{NQN}\"\n\
         [[subsystem.namespace]]\nmemory = \"1MiB\"\n"
    )
}

/// Whoever opened one would wait for somebody who writes to it, and the target with him.
#[test]
fn a_fifo_in_the_place_of_a_file_keeps_nobody() {
    let folder = Folder::new("fifos");
    let file = folder.write("target.toml", config());
    let (target, mut client) = waiting(&folder, &["--config", text(&file)]);
    let path = folder.path("fifo");
    fifo(&path);
    let key = token_file(&folder, "key", SECRETS[0]);
    let null = json!({"name": "n", "num_blocks": 256, "block_size": 4096});
    call(&mut client, "bdev_null_create", null).expect("made");
    call(&mut client, "keyring_file_add_key", json!({"name": "k", "path": key})).expect("made");
    let namespace = json!({"bdev_name": "n", "ptpl_file": path});
    let marks = format!("uncorrectable:file={}:memory:1MiB", text(&path));
    let host = |key: &str| json!({"nqn": NQN, "host": "nqn.2024-01.org.example:h", key: path});
    let calls = [
        ("keyring_file_add_key", json!({"name": "own", "path": path})),
        ("nvmf_subsystem_add_host", host("dhchap_key")),
        ("nvmf_subsystem_add_host", host("psk")),
        ("nvmf_subsystem_add_ns", json!({"nqn": NQN, "namespace": namespace})),
        ("bdev_device_create", json!({"name": "m", "device": marks})),
        ("bdev_aio_create", json!({"name": "a", "filename": path, "block_size": 512})),
    ];
    for (method, params) in calls {
        let (_, said) = call(&mut client, method, params).expect_err(method);
        assert!(said.contains("not a regular file"), "{method}: {said}");
    }
    std::fs::remove_file(&file).expect("removed");
    fifo(&file);
    let (_, said) = call(&mut client, "reload", json!(null)).expect_err("no file");
    assert!(said.contains("not a regular file"), "{said}");
    call(&mut client, "nvmf_get_subsystems", json!({})).expect("an answer");
    target.stop();
    for flag in ["--config", "--state"] {
        let fault = weft(DRIVERS[0], ["target", "--check", flag, text(&path)]).fault();
        assert!(fault.contains("not a regular file"), "{flag}: {fault}");
    }
}
