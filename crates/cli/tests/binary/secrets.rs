//! No secret is in what a target and its hosts write, at the highest level, whatever is done with
//! keys.

use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};

#[path = "../../../sim/tests/adversary/leak.rs"]
mod leak;

use crate::control::{call, client};
use crate::weft::{Folder, NQN, Target, text, weft};

/// A host with a key of TLS, one that authenticates itself, and one that makes its keys of TLS.
const HOSTS: [&str; 3] = ["nqn.2024-01.io.example:t", "nqn.2024-01.io.example:a", "nqn.c:c"];

/// Keys by the names of their files.
const KEYS: [(&str, &str, &str); 8] = [
    ("tls", "tls", "sha256"),
    ("tls-next", "tls", "sha384"),
    ("tls-other", "tls", "sha256"),
    ("own", "dhchap", "sha256"),
    ("own-next", "dhchap", "sha512"),
    ("own-other", "dhchap", "sha256"),
    ("controllers", "dhchap", "sha384"),
    ("controllers-other", "dhchap", "sha256"),
];

struct Bench {
    folder: Folder,
    target: Target,
    /// What has been written so far.
    lines: Vec<String>,
}

impl Bench {
    fn path(&self, key: &str) -> PathBuf {
        self.folder.path(key)
    }

    /// The key itself.
    fn key(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("a key").trim().to_owned()
    }

    /// Runs a command of a host; whether it succeeded.
    fn run(&mut self, words: &[&str]) -> bool {
        let ran = weft("epoll", [words, &["-vvv"]].concat());
        self.keep(&ran.stderr);
        self.keep(&String::from_utf8_lossy(&ran.stdout));
        ran.code == Some(0)
    }

    fn keep(&mut self, said: &str) {
        self.lines.extend(said.lines().map(str::to_owned));
    }

    /// Connects as this host with these options of keys: names of files follow those of options.
    fn host(&mut self, verb: &[&str], host: &str, keys: &[&str]) -> bool {
        let url = self.target.url(1);
        let paths: Vec<String> = keys.iter().map(|key| text(&self.path(key)).to_owned()).collect();
        let words = keys.iter().zip(&paths);
        let words = words.map(|(key, path)| if key.starts_with('-') { key } else { &**path });
        let words: Vec<&str> = words.collect();
        self.run(&[verb, &[&*url, "--hostnqn", host], &words].concat())
    }
}

fn config(folder: &Folder, psk: &str, own: &str) -> PathBuf {
    let path = |key: &str| folder.path(key);
    let host =
        |at: usize, keys: String| format!("[[subsystem.host]]\nnqn = \"{}\"\n{keys}\n", HOSTS[at]);
    let (own, controllers) = (path(own), path("controllers"));
    let both = format!("dhchap-key = {own:?}\ndhchap-ctrlr-key = {controllers:?}");
    let hosts = [
        host(0, format!("psk = [{:?}]", path(psk))),
        host(1, both),
        host(2, format!("dhchap-key = {own:?}\ndhchap-concat = true")),
    ];
    let text = format!(
        "[keyring]\nnamed = {:?}\n[[port]]\nlisten = \"tcp://127.0.0.1:0\"\ntls = \"allowed\"\n\
         [[subsystem]]\nnqn = \"{NQN}\"\n{}[[subsystem.namespace]]\nmemory = \"1MiB\"\n",
        path("tls"),
        hosts.concat()
    );
    folder.write("target.toml", text)
}

/// Calls of the control socket, right and wrong ones, and one with a key in every place of a name.
fn calls(bench: &mut Bench) {
    let mut client = client(&bench.target);
    let path = |bench: &Bench, key: &str| text(&bench.path(key)).to_owned();
    let mut say = |bench: &mut Bench, method: &str, params: Value| {
        let answer = call(&mut client, method, params);
        bench.keep(&format!("{answer:?}"));
        answer.is_ok()
    };
    let add = |name: &str, path: &str| json!({"name": name, "path": path});
    for key in ["tls-next", "own-next"] {
        let params = add(key, &path(bench, key));
        assert!(say(bench, "keyring_file_add_key", params), "{key}");
    }
    let of = |host: &str, key: &str, names: Value| {
        let mut params = json!({"nqn": NQN, "host": host});
        params[key] = names;
        params
    };
    let set = "nvmf_subsystem_set_keys";
    assert!(say(bench, set, of(HOSTS[0], "psk", json!(["named", "tls-next"]))));
    assert!(say(bench, set, of(HOSTS[1], "dhchap_key", json!("own-next"))));
    for name in ["tls-next", "own-next"] {
        let key = bench.key(name);
        for params in [add(&key, "/nowhere"), add("another", &key), add(&key, &key)] {
            assert!(!say(bench, "keyring_file_add_key", params));
        }
        for field in ["psk", "dhchap_key", "dhchap_ctrlr_key"] {
            for method in [set, "nvmf_subsystem_add_host"] {
                assert!(!say(bench, method, of(HOSTS[1], field, json!(key))), "{method} {field}");
            }
        }
        assert!(!say(bench, "keyring_file_remove_key", json!({"name": key})));
    }
    for method in ["keyring_get_keys", "nvmf_get_subsystems", "rpc_get_methods"] {
        assert!(say(bench, method, json!({})), "{method}");
    }
    for name in ["keyring", "nvmf"] {
        assert!(say(bench, "framework_get_config", json!({"name": name})));
    }
}

#[test]
fn no_secret_is_written_whatever_is_done_with_keys() {
    let folder = Folder::new("secrets");
    for (name, kind, hmac) in KEYS {
        let path = folder.path(name);
        weft("epoll", ["key", "generate", kind, "--hmac", hmac, text(&path)]).text();
    }
    let control = format!("unix:{}", folder.path("control").display());
    let file = config(&folder, "tls", "own");
    let words = ["--config", text(&file), "--control", &control, "-vvv"];
    let target = Target::start("epoll", &words);
    let mut bench = Bench { folder, target, lines: Vec::new() };
    let secret = "--dhchap-secret-file";
    let both = ["own", "--dhchap-ctrl-secret-file", "controllers"];
    let tls = ["--tls", "--tls-key-file"];
    let read: &[&str] = &["read", "--data-size", "4096", "--data", "/dev/null"];
    let load: &[&str] = &["bench", "--runtime", "3s", "--time_based", "--numjobs", "2"];
    let load = &[load, &["--rw", "randread", "--dhchap-interval", "1"]].concat()[..];
    // What is right, and is authenticated again.
    for (verb, host, keys) in [
        (read, HOSTS[0], [&tls[..], &["tls"]].concat()),
        (load, HOSTS[1], [&[secret], &both[..]].concat()),
        (load, HOSTS[2], vec!["--concat", secret, "own"]),
    ] {
        assert!(bench.host(verb, host, &keys), "{keys:?}: {:#?}", bench.lines);
    }
    // What is wrong.
    for (host, keys) in [
        (HOSTS[0], [&tls[..], &["tls-other"]].concat()),
        (HOSTS[0], [&tls[..], &["own"]].concat()),
        (HOSTS[1], [&tls[..], &["tls"]].concat()),
        (HOSTS[1], vec![secret, "own-other"]),
        (HOSTS[1], vec![secret, "own", "--dhchap-ctrl-secret-file", "controllers-other"]),
        (HOSTS[1], vec![secret, "tls"]),
        (HOSTS[2], vec!["--concat", secret, "own-other"]),
        (HOSTS[2], vec![secret, "own"]),
        (HOSTS[2], vec![]),
    ] {
        assert!(!bench.host(read, host, &keys), "{host} {keys:?}");
    }
    // Who gives the key itself.
    let url = bench.target.url(1);
    for (option, name) in [(secret, "own"), ("--tls-key-file", "tls")] {
        let key = bench.key(name);
        assert!(!bench.run(&["list", &url, "--tls", "--hostnqn", HOSTS[0], option, &key]));
        assert!(!bench.run(&["key", "check", &key]));
        assert!(bench.run(&["key", "check", text(&bench.path(name))]));
    }
    calls(&mut bench);
    let secrets: Vec<String> = KEYS.iter().map(|(name, ..)| bench.key(name)).collect();
    // A reload gives other keys, and another one is not possible.
    config(&bench.folder, "tls-next", "own-next");
    bench.target.signal(Signal::HUP);
    let mut log = bench.target.log_until("has other keys of TLS");
    bench.folder.write("own-next", "DHHC-1:00:no key:");
    bench.target.signal(Signal::HUP);
    log.extend(bench.target.log_until("the configuration stays as it was"));
    bench.target.signal(Signal::KILL);
    log.extend(bench.target.log_lines());
    assert!(log.len() > 50 && bench.lines.len() > 50, "{} {}", log.len(), bench.lines.len());

    let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
    let patterns = leak::patterns(&secrets, &HOSTS.map(|host| (host, NQN)));
    for lines in [log, bench.lines] {
        assert_eq!(leak::leak(&lines, &patterns), None);
    }
}
