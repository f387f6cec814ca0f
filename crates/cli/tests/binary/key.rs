//! Keys.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::weft::{DRIVERS, Folder, text, weft};

const KEY: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:\n";
const NAMES: [&str; 4] = ["--hostnqn", "nqn.psk-test-host", "--subsysnqn", "nqn.psk-test-subsys"];

fn key(words: &[&str]) -> crate::weft::CommandOutput {
    weft(DRIVERS[0], [&["key"], words].concat())
}

fn private(path: &Path) {
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, mode).expect("a mode");
}

#[test]
fn a_new_key_is_its_users_alone_and_passes_the_check() {
    let folder = Folder::new("key");
    let cases = [
        (&["tls"][..], "a key of TLS, sha256, 32 bytes\n"),
        (&["tls", "--hmac", "sha384"], "a key of TLS, sha384, 48 bytes\n"),
        (&["tls", "-m", "none", "-l", "48"], "a key of TLS, no hash function, 48 bytes\n"),
        (&["dhchap", "-m", "3"], "a key of DH-HMAC-CHAP, sha512, 64 bytes\n"),
        (&["dhchap", "-m", "0"], "a key of DH-HMAC-CHAP, no hash function, 32 bytes\n"),
    ];
    for (number, (words, expected)) in cases.into_iter().enumerate() {
        let path = folder.path(&number.to_string());
        assert_eq!(key(&[&["generate"], words, &[text(&path)]].concat()).text(), "");
        let mode = std::fs::metadata(&path).expect("the file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(key(&["check", text(&path)]).text(), expected);
        let again = key(&[&["generate"], words, &[text(&path)]].concat());
        assert!(again.fault().contains("a key is never overwritten"), "{}", again.fault());
    }
    let (first, second) = (folder.path("0"), folder.path("other"));
    key(&["generate", "tls", text(&second)]).text();
    assert_ne!(std::fs::read(first).ok(), std::fs::read(second).ok());
}

#[test]
fn what_is_said_of_keys_is_json_for_programs() {
    let folder = Folder::new("key-json");
    let path = folder.path("key");
    let made = key(&["generate", "tls", text(&path), "-o", "json"]).json();
    assert_eq!(made, serde_json::json!({ "file": path, "hash": "sha256", "bytes": 32 }));
    let found = key(&["check", text(&path), "-o", "json"]).json();
    assert_eq!(found, serde_json::json!({ "kind": "TLS", "hash": "sha256", "bytes": 32 }));
    let show = [&["show-identity", text(&path)], &NAMES[..]].concat();
    let lines = key(&show).text();
    let identities = &key(&[&show[..], &["-o", "json"]].concat()).json()["identities"];
    assert_eq!(*identities, serde_json::json!(lines.lines().collect::<Vec<_>>()));
}

#[test]
fn wrong_lengths_and_hashes_are_refused() {
    let folder = Folder::new("key-refused");
    let path = folder.path("key");
    for (words, why) in [
        (&["tls", "-m", "sha512"][..], "hash"),
        (&["tls", "-m", "md5"], "sha256, sha384"),
        (&["tls", "-m", "sha256", "-l", "48"], "48 bytes"),
        (&["dhchap", "-l", "33"], "32, 48 or 64"),
    ] {
        let ran = key(&[&["generate"], words, &[text(&path)]].concat());
        assert_ne!(ran.code, Some(0), "{words:?}");
        assert!(ran.stderr.contains(why), "{words:?}: {}", ran.stderr);
        assert!(!path.exists());
    }
}

#[test]
fn a_folder_that_is_missing_is_named_with_what_makes_it() {
    let folder = Folder::new("key-folder");
    let path = folder.path("keys/web1");
    let ran = key(&["generate", "tls", text(&path)]);
    let fault = ran.fault();
    let made = format!("mkdir -p -m 700 {}", text(&folder.path("keys")));
    assert!(fault.contains(&made), "{fault}");
    std::fs::create_dir(folder.path("keys")).expect("a folder");
    assert_eq!(key(&["generate", "tls", text(&path)]).text(), "");
}

#[test]
fn identities_are_those_of_libnvme() {
    let folder = Folder::new("key-identity");
    let path = folder.write("key", KEY);
    private(&path);
    let show =
        |words: &[&str]| key(&[&["show-identity", text(&path)], &NAMES[..], words].concat()).text();
    let digest = "iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU=";
    let first = "NVMe0R01 nqn.psk-test-host nqn.psk-test-subsys\n";
    let second = format!("NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys {digest}\n");
    assert_eq!(show(&[]), format!("{first}{second}"));
    assert_eq!(show(&["--identity", "1"]), second);
    assert_ne!(show(&["--identity", "1", "--compat"]), second);
    let psk = folder.path("psk");
    assert_eq!(show(&["--identity", "0", "--psk-file", text(&psk)]), first);
    let bytes = std::fs::read(&psk).expect("the PSK");
    assert_eq!(bytes.len(), 32);
    assert_eq!(bytes[..4], [0x05, 0xc6, 0x50, 0x35]);
}

#[test]
fn a_key_that_is_open_or_damaged_is_reported_without_it() {
    let folder = Folder::new("key-open");
    let path = folder.write("key", KEY);
    let mode = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&path, mode).expect("a mode");
    assert!(key(&["check", text(&path)]).fault().contains("chmod 600"));
    private(&path);
    assert_eq!(key(&["check", text(&path)]).text(), "a key of TLS, sha256, 32 bytes\n");
    let damaged = folder.write("damaged", KEY.replace("VRL", "VRM"));
    private(&damaged);
    let error = key(&["check", text(&damaged)]).fault();
    assert!(error.contains("checksum") && !error.contains("VRM"), "{error}");
}
