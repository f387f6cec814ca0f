//! The files that a target itself reads and writes: what is no file is refused at once, and none is
//! served.

use std::path::Path;

use serde_json::{Value, json};

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

/// A host would write over it, or read it.
#[test]
fn no_namespace_stands_on_a_file_of_the_target() {
    let folder = Folder::new("own-files");
    let at = |name: &str| folder.path(name);
    let file = folder.write("target.toml", config() + &"# long enough\n".repeat(1000));
    let key = token_file(&folder, "key", &(SECRETS[0].to_owned() + &" ".repeat(600)));
    let state = at("state");
    let words = ["--config", text(&file), "--state", text(&state)];
    let (target, mut client) = waiting(&folder, &words);
    let served = |client: &mut _| -> Value {
        call(client, "nvmf_get_subsystems", json!({})).expect("an answer")
    };
    let null = json!({"name": "n", "num_blocks": 256, "block_size": 4096});
    call(&mut client, "bdev_null_create", null).expect("made");
    call(&mut client, "keyring_file_add_key", json!({"name": "k", "path": key})).expect("made");
    let kept = json!({"bdev_name": "n", "ptpl_file": at("ptpl")});
    let kept = json!({"nqn": NQN, "namespace": kept});
    call(&mut client, "nvmf_subsystem_add_ns", kept).expect("made");
    let marks = format!("uncorrectable:file={}:memory:1MiB", text(&at("marks")));
    let marked = json!({"name": "m", "device": marks});
    call(&mut client, "bdev_device_create", marked).expect("made");
    std::os::unix::fs::symlink(&file, at("soft")).expect("a link");
    let before = served(&mut client);
    for name in
        ["state", "state.events", "state.lock", "target.toml", "soft", "key", "marks", "ptpl"]
    {
        let device = format!("file:{},size=1MiB,block=512", text(&at(name)));
        let params = json!({"name": "f", "device": device});
        let (_, said) = call(&mut client, "bdev_device_create", params).expect_err(name);
        assert!(said.contains("keeps for itself"), "{name}: {said}");
    }
    assert_eq!(served(&mut client), before);
    // The other way round: what is served is none of them.
    folder.write("disk", vec![0; 1 << 20]);
    let device = format!("file:{}", text(&at("disk")));
    let params = json!({"name": "d", "device": device});
    call(&mut client, "bdev_device_create", params).expect("made");
    std::fs::set_permissions(at("disk"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("a mode");
    let null = json!({"name": "n2", "num_blocks": 256, "block_size": 4096});
    call(&mut client, "bdev_null_create", null).expect("made");
    let kept = json!({"bdev_name": "n2", "ptpl_file": at("disk")});
    let marks = format!("uncorrectable:file={}:memory:1MiB", text(&at("disk")));
    for (method, params) in [
        ("nvmf_subsystem_add_ns", json!({"nqn": NQN, "namespace": kept})),
        ("bdev_device_create", json!({"name": "m2", "device": marks})),
        ("keyring_file_add_key", json!({"name": "k2", "path": at("disk")})),
    ] {
        let (_, said) = call(&mut client, method, params).expect_err(method);
        assert!(said.contains("a device stands on"), "{method}: {said}");
    }
    target.stop();
    // A check refuses the same.
    let own = format!("file = \"{}\"", text(&at("own.toml")));
    let file = folder.write("own.toml", config().replace("memory = \"1MiB\"", &own));
    let fault = weft(DRIVERS[0], ["target", "--check", "--config", text(&file)]).fault();
    assert!(fault.contains("keeps for itself"), "{fault}");
}

/// A start says no to the same, with the same words.
#[test]
fn a_check_refuses_a_file_that_cannot_grow() {
    let folder = Folder::new("no-growth");
    let disk = folder.write("disk", vec![0; 1 << 20]);
    let keys = format!("file = \"{}\"\nsize = \"2MiB\"\nread-only = true", text(&disk));
    let file = folder.write("target.toml", config().replace("memory = \"1MiB\"", &keys));
    for words in
        [&["target", "--config", text(&file)][..], &["target", "--check", "--config", text(&file)]]
    {
        let fault = weft(DRIVERS[0], words).fault();
        assert!(fault.contains("cannot grow read-only"), "{words:?}: {fault}");
    }
}
