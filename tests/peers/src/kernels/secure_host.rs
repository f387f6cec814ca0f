//! TLS and secure concatenation with Linux' host and tlshd in the guest, weft's target outside.

use super::bench::Bench;
use super::secure::{self, HOST, VERSIONS, insert, make_key, path};
use super::suite::{Suite, SuiteTest, long, step};
use crate::guest::Kernel;
use anyhow::Result;
use std::fs::File;
use std::time::Duration;

pub(super) const SUITE: Suite = Suite {
    name: "secure_host",
    script: "secure_host.sh",
    kernel: Kernel::Backports,
    forwards: false,
    modules: &["nvme-tcp", "tls"],
    setup,
    steps: STEPS,
};

const STEPS: &[SuiteTest] = &[
    step("tls", tls),
    step("tls_is_allowed", tls_is_allowed),
    step("tls_of_sha384", tls_of_sha384),
    step("tls_of_nvme_cli", tls_of_nvme_cli),
    step("wrong_keys_of_tls", wrong_keys_of_tls),
    step("rotation", rotation),
    step("concatenation", concatenation),
    long("concatenation_of_all_groups", concatenation_of_all_groups),
    step("wrong_keys_of_concatenation", wrong_keys_of_concatenation),
    step("reset_makes_new_keys", reset_makes_new_keys),
    step("tls_killed_under_load", tls_killed_under_load),
    long("concatenation_killed_under_load", concatenation_killed_under_load),
];

fn setup(bench: &mut Bench) -> Result<()> {
    File::create(bench.file())?.set_len(96 << 20)?;
    bench.configure("")?;
    bench.start_target()?;
    bench.guest("make_handshakes").map(drop)
}

/// Serves at a port with this TLS, to hosts of these tables alone.
fn serve(bench: &mut Bench, tls: &str, hosts: &str) -> Result<()> {
    bench.configure_port(&format!("tls = \"{tls}\"\n"), hosts)?;
    bench.stop_target()?;
    bench.start_target()
}

/// The table of the host with further TOML.
fn host(more: &str) -> String {
    format!("[[subsystem.host]]\nnqn = \"{HOST}\"\n{more}\n")
}

/// The table of the host with keys of TLS in these files.
fn with_psks(bench: &Bench, names: &[&str]) -> String {
    let paths: Vec<String> = names.iter().map(|name| path(bench, name)).collect();
    host(&format!("psk = {paths:?}"))
}

/// Under an identity of each version.
fn tls(bench: &mut Bench) -> Result<()> {
    make_key(bench, "tls", "sha256", "key")?;
    serve(bench, "required", &with_psks(bench, &["key"]))?;
    for version in VERSIONS {
        bench.guest("fresh; forget")?;
        insert(bench, "key", HOST, version)?;
        bench.guest("over_tls --tls; works; kernel_is_content; disconnect")?;
    }
    Ok(())
}

/// A port that allows TLS serves the host with it and without.
fn tls_is_allowed(bench: &mut Bench) -> Result<()> {
    make_key(bench, "tls", "sha256", "key")?;
    serve(bench, "allowed", &with_psks(bench, &["key"]))?;
    bench.guest("fresh; forget; as_host; has_tls_on 0; works; disconnect")?;
    insert(bench, "key", HOST, "1")?;
    bench.guest("over_tls --tls; works; disconnect").map(drop)
}

/// tlshd with GnuTLS before 3.8.11 has a binder of SHA-256 for every PSK, also one whose identity
/// says SHA-384: the target says so. With a newer one both suites work.
fn tls_of_sha384(bench: &mut Bench) -> Result<()> {
    make_key(bench, "tls", "sha384", "key")?;
    serve(bench, "required", &with_psks(bench, &["key"]))?;
    bench.guest("fresh; forget")?;
    insert(bench, "key", HOST, "1")?;
    if secure::hashes(bench)?.contains(&"sha384") {
        return bench.guest("over_tls --tls; works; disconnect").map(drop);
    }
    bench.guest("refused --tls")?;
    bench.running()?.wait_for("another hash function than its identity", Duration::from_secs(5))
}

/// A key that Debian's nvme-cli has made and put into the keyring, in libnvme's old way.
fn tls_of_nvme_cli(bench: &mut Bench) -> Result<()> {
    bench.guest("fresh; forget; nvme_cli_makes 1")?;
    secure::own(bench, "theirs")?;
    let table = with_psks(bench, &["theirs"]);
    serve(bench, "required", &format!("{table}psk-compat = true\n"))?;
    bench.guest("over_tls --tls; works; disconnect").map(drop)
}

/// Nobody gets in without the key, with another one or under another name.
fn wrong_keys_of_tls(bench: &mut Bench) -> Result<()> {
    make_key(bench, "tls", "sha256", "key")?;
    make_key(bench, "tls", "sha256", "other")?;
    serve(bench, "required", &with_psks(bench, &["key"]))?;
    bench.guest("fresh; forget; refused; refused --tls")?;
    // The identity of version 0 is that of the right key, and the PSK is not.
    insert(bench, "other", HOST, "0")?;
    bench.guest("refused --tls")?;
    bench.running()?.wait_for("TLS:", Duration::from_secs(5))?;
    bench.guest("forget")?;
    insert(bench, "other", HOST, "1")?;
    bench.guest("refused --tls")?;
    let said = "no key is configured for a PSK identity";
    bench.running()?.wait_for(said, Duration::from_secs(5))?;
    bench.guest("forget")?;
    insert(bench, "key", HOST, "1")?;
    bench.guest("over_tls --tls; disconnect").map(drop)
}

/// A new key is added and the old one taken out, while the host is connected.
fn rotation(bench: &mut Bench) -> Result<()> {
    make_key(bench, "tls", "sha256", "key")?;
    make_key(bench, "tls", "sha256", "next")?;
    serve(bench, "required", &with_psks(bench, &["key"]))?;
    bench.guest("fresh; forget")?;
    insert(bench, "key", HOST, "1")?;
    bench.guest("over_tls --tls; works")?;
    let reload = |bench: &mut Bench, names: &[&str]| {
        bench.configure_port("tls = \"required\"\n", &with_psks(bench, names))?;
        bench.reload_target()
    };
    reload(bench, &["key", "next"])?;
    bench.guest("works; disconnect; over_tls --tls; works; forget")?;
    insert(bench, "next", HOST, "1")?;
    bench.guest("disconnect; over_tls --tls")?;
    reload(bench, &["next"])?;
    bench.guest("works; sleep 1; disconnect; over_tls --tls; works; disconnect; forget")?;
    insert(bench, "key", HOST, "1")?;
    bench.guest("refused --tls").map(drop)
}

/// The table of a host that makes keys of TLS, and the controller's key if it proves itself.
fn with_secrets(bench: &Bench, both_ways: bool, more: &str) -> String {
    let mut text = format!("dhchap-key = {:?}\ndhchap-concat = true\n", path(bench, "secret"));
    if both_ways {
        text += &format!("dhchap-ctrlr-key = {:?}\n", path(bench, "controllers"));
    }
    host(&(text + more))
}

fn make_secrets(bench: &mut Bench) -> Result<()> {
    make_key(bench, "dhchap", "sha256", "secret")?;
    make_key(bench, "dhchap", "sha384", "controllers")
}

/// Authenticates with these groups, in turn one way and both ways, and goes on over TLS with the
/// key that this makes. Of keys with SHA-384 see `tls_of_sha384`.
fn concatenations(bench: &mut Bench, groups: &[&str]) -> Result<()> {
    make_secrets(bench)?;
    bench.guest("fresh; forget")?;
    let hashes = secure::hashes(bench)?;
    let cases = groups.iter().flat_map(|group| hashes.iter().map(move |hash| (hash, group)));
    for (number, (hash, group)) in cases.enumerate() {
        let both_ways = number % 2 == 1;
        let policy = format!("dhchap-hashes = [{hash:?}]\ndhchap-groups = [{group:?}]\n");
        serve(bench, "allowed", &with_secrets(bench, both_ways, &policy))?;
        let controllers = if both_ways { "controllers" } else { "" };
        bench.guest(&format!("concatenated secret {controllers}; works; disconnect"))?;
    }
    bench.guest("kernel_is_content").map(drop)
}

fn concatenation(bench: &mut Bench) -> Result<()> {
    concatenations(bench, &["ffdhe2048", "ffdhe3072"])
}

fn concatenation_of_all_groups(bench: &mut Bench) -> Result<()> {
    concatenations(bench, &["ffdhe4096", "ffdhe6144", "ffdhe8192"])
}

fn wrong_keys_of_concatenation(bench: &mut Bench) -> Result<()> {
    make_secrets(bench)?;
    make_key(bench, "dhchap", "sha256", "other")?;
    serve(bench, "allowed", &with_secrets(bench, true, ""))?;
    // A wrong secret of the controller is no matter: with --concat Linux' host does not ask for it.
    bench.guest("fresh; forget; not_concatenated other")?;
    // Who has the key and wants no TLS.
    bench.guest("refused --dhchap-secret=$(key secret)")?;
    bench.guest("concatenated secret controllers; disconnect").map(drop)
}

/// What a reset begins with is another exchange, and another key.
fn reset_makes_new_keys(bench: &mut Bench) -> Result<()> {
    make_secrets(bench)?;
    serve(bench, "allowed", &with_secrets(bench, false, ""))?;
    bench.guest("fresh; forget; concatenated secret; reset_has_new_key; works; disconnect")?;
    Ok(())
}

/// The target is killed under load and comes back: the host reconnects, and nothing is lost.
fn killed_under_load(bench: &mut Bench, options: &str) -> Result<()> {
    bench.guest(&format!("LOAD_SIZE=7M; start_load --hostnqn={HOST} {options}; encrypted"))?;
    bench.kill_target();
    std::thread::sleep(Duration::from_secs(1));
    bench.start_target()?;
    bench.guest("sleep 3; encrypted; end_load 120").map(drop)
}

fn tls_killed_under_load(bench: &mut Bench) -> Result<()> {
    make_key(bench, "tls", "sha256", "key")?;
    serve(bench, "required", &with_psks(bench, &["key"]))?;
    bench.guest("fresh; forget")?;
    insert(bench, "key", HOST, "1")?;
    killed_under_load(bench, "--tls")
}

fn concatenation_killed_under_load(bench: &mut Bench) -> Result<()> {
    make_secrets(bench)?;
    serve(bench, "allowed", &with_secrets(bench, false, ""))?;
    bench.guest("fresh; forget")?;
    killed_under_load(bench, "--concat --dhchap-secret=$(key secret)")
}
