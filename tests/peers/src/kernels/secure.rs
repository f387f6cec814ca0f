//! Keys of TLS at both ends: what the steps with Linux' host and with Linux' target have in common.

use super::bench::{Bench, NQN};
use anyhow::Result;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// The host of all steps.
pub(super) const HOST: &str = "nqn.2026-01.io.weft:secure";

/// The versions of an identity.
pub(super) const VERSIONS: [&str; 2] = ["0", "1"];

/// The path of a file in the folder shared with the guest, as it is here.
pub(super) fn path(bench: &Bench, name: &str) -> String {
    bench.folder.join(name).display().to_string()
}

/// Makes a key of TLS or of DH-HMAC-CHAP in the file of this name, in place of the one there.
pub(super) fn make_key(bench: &mut Bench, kind: &str, hash: &str, name: &str) -> Result<()> {
    let path = path(bench, name);
    // There is none yet the first time.
    let _ = fs::remove_file(&path);
    bench.weft(&["key", "generate", kind, "--hmac", hash, &path]).map(drop)
}

/// Takes over a key that the guest has made, which only its owner may read.
pub(super) fn own(bench: &Bench, name: &str) -> Result<()> {
    Ok(fs::set_permissions(path(bench, name), fs::Permissions::from_mode(0o600))?)
}

/// Puts the PSK of a key of this host into the keyring of the guest's kernel.
pub(super) fn insert(bench: &mut Bench, name: &str, host: &str, version: &str) -> Result<()> {
    let identity = identity(bench, name, host, version)?;
    bench.guest(&format!("insert \"{identity}\" psk")).map(drop)
}

/// The identity of a key of this host; its PSK is in the file `psk` then.
pub(super) fn identity(bench: &mut Bench, name: &str, host: &str, version: &str) -> Result<String> {
    let (key, psk) = (path(bench, name), path(bench, "psk"));
    // There is none yet the first time.
    let _ = fs::remove_file(&psk);
    let names = ["--hostnqn", host, "--subsysnqn", NQN, "--identity", version];
    let words = [&["key", "show-identity", &key], &names[..], &["--psk-file", &psk]].concat();
    Ok(String::from_utf8(bench.weft(&words)?)?.trim().to_owned())
}

/// The hash functions that keys of TLS may have with the guest's tlshd: of GnuTLS before 3.8.11
/// SHA-256 alone, as it takes every PSK for one of that.
pub(super) fn hashes(bench: &mut Bench) -> Result<&'static [&'static str]> {
    let both = bench.guest("gnutls_has_sha384")?.trim() == "yes";
    Ok(if both { &["sha256", "sha384"] } else { &["sha256"] })
}
