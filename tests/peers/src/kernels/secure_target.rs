//! TLS and secure concatenation with Linux' target and tlshd in the guest, weft's host outside.

use super::authentication;
use super::bench::{Bench, NQN};
use super::secure::{self, HOST, VERSIONS, insert, make_key, path};
use super::suite::{Suite, SuiteTest, long, step};
use crate::guest::Kernel;
use crate::process::Process;
use anyhow::{Context, Result, bail, ensure};
use std::time::Duration;

pub(super) const SUITE: Suite = Suite {
    name: "secure_target",
    script: "secure_target.sh",
    kernel: Kernel::Backports,
    forwards: true,
    modules: &["nvmet-tcp", "tls"],
    setup: |bench| bench.guest("make_handshakes; serve; wants_tls required").map(drop),
    steps: STEPS,
};

const STEPS: &[SuiteTest] = &[
    step("tls", tls),
    step("tls_is_allowed", tls_is_allowed),
    step("tls_of_sha384", tls_of_sha384),
    step("tls_of_nvme_cli", tls_of_nvme_cli),
    step("wrong_keys_of_tls", wrong_keys_of_tls),
    step("rotation", rotation),
    long("port_with_tls_goes_and_comes", port_with_tls_goes_and_comes),
    step("concatenation", concatenation),
    long("concatenation_of_all_groups", concatenation_of_all_groups),
    step("wrong_keys_of_concatenation", wrong_keys_of_concatenation),
    step("keys_of_concatenation_are_replaced", keys_of_concatenation_are_replaced),
    step("port_with_concatenation_goes_and_comes", port_with_concatenation_goes_and_comes),
];

/// The URL of namespace 1 of the guest's target.
fn url(bench: &Bench) -> String {
    format!("nvme-tcp://127.0.0.1:{}/{NQN}?nsid=1", bench.port)
}

/// The words by which weft's host uses a key of TLS.
fn with_key(bench: &Bench, name: &str) -> Vec<String> {
    ["--hostnqn", HOST, "--tls", "--tls-key-file", &path(bench, name)].map(str::to_owned).into()
}

/// Writes data with a checksum in each block and reads it back, over these words.
fn works(bench: &mut Bench, words: &[String]) -> Result<()> {
    for (bs, depth) in [("4k", "8"), ("128k", "4")] {
        let url = url(bench);
        let mut all = vec!["bench", &url, "--rw", "randwrite", "--verify", "crc32c", "--quiet"];
        all.extend(["--size", "1m", "--io-size", "1m", "--bs", bs, "--iodepth", depth]);
        all.extend(["--output-format", "json"]);
        all.extend(words.iter().map(String::as_str));
        let said = bench.weft(&all)?;
        let result: serde_json::Value = serde_json::from_slice(&said).context("fio's JSON")?;
        let job = &result["jobs"][0];
        let written = job["write"]["io_bytes"].as_u64().unwrap_or(0);
        ensure!(written >= 1 << 20 && job["error"] == 0, "{written} bytes, error {}", job["error"]);
    }
    Ok(())
}

/// Weft's host is refused, and says this.
fn refused(bench: &mut Bench, words: &[String], says: &str) -> Result<()> {
    let mut all = vec!["list".to_owned(), url(bench)];
    all.extend_from_slice(words);
    authentication::refused(bench, &all, says)
}

/// Under an identity of each version, of which the target knows one.
fn tls(bench: &mut Bench) -> Result<()> {
    make_key(bench, "tls", "sha256", "key")?;
    for version in VERSIONS {
        bench.guest("forget")?;
        insert(bench, "key", HOST, version)?;
        let words = with_key(bench, "key");
        works(bench, &words).with_context(|| format!("version {version}"))?;
    }
    Ok(())
}

/// A port that does not require TLS serves weft's host with it and without.
fn tls_is_allowed(bench: &mut Bench) -> Result<()> {
    make_key(bench, "tls", "sha256", "key")?;
    bench.guest("forget; wants_tls \"not required\"")?;
    insert(bench, "key", HOST, "1")?;
    let (with, without) = (with_key(bench, "key"), ["--hostnqn", HOST].map(str::to_owned));
    let both = works(bench, &without).and_then(|()| works(bench, &with));
    bench.guest("wants_tls required")?;
    both
}

/// tlshd with GnuTLS before 3.8.11 takes every PSK for one of SHA-256, so that one of SHA-384 has
/// another binder there: the handshake ends. With a newer one both suites work.
fn tls_of_sha384(bench: &mut Bench) -> Result<()> {
    make_key(bench, "tls", "sha384", "key")?;
    bench.guest("forget")?;
    insert(bench, "key", HOST, "1")?;
    let words = with_key(bench, "key");
    match secure::hashes(bench)?.contains(&"sha384") {
        true => works(bench, &words),
        false => refused(bench, &words, "the controller has ended the TLS handshake"),
    }
}

/// A key that Debian's nvme-cli has made and put into the keyring, in libnvme's old way.
fn tls_of_nvme_cli(bench: &mut Bench) -> Result<()> {
    bench.guest("forget; nvme_cli_makes 1")?;
    secure::own(bench, "theirs")?;
    let mut words = with_key(bench, "theirs");
    refused(bench, &words, "")?;
    words.push("--tls-compat".to_owned());
    works(bench, &words)
}

fn wrong_keys_of_tls(bench: &mut Bench) -> Result<()> {
    make_key(bench, "tls", "sha256", "key")?;
    make_key(bench, "tls", "sha256", "other")?;
    bench.guest("forget")?;
    let (right, wrong) = (with_key(bench, "key"), with_key(bench, "other"));
    refused(bench, &right, "")?;
    for version in VERSIONS {
        bench.guest("forget")?;
        insert(bench, "key", HOST, version)?;
        refused(bench, &wrong, "")?;
    }
    refused(bench, &["--hostnqn", HOST].map(str::to_owned), "")?;
    works(bench, &right)
}

/// The key in the kernel's keyring is another one from now on.
fn rotation(bench: &mut Bench) -> Result<()> {
    for name in ["key", "next"] {
        make_key(bench, "tls", "sha256", name)?;
    }
    let (old, new) = (with_key(bench, "key"), with_key(bench, "next"));
    bench.guest("forget")?;
    insert(bench, "key", HOST, "1")?;
    works(bench, &old)?;
    insert(bench, "next", HOST, "1")?;
    works(bench, &old)?;
    works(bench, &new)?;
    bench.guest("forget")?;
    insert(bench, "next", HOST, "1")?;
    refused(bench, &old, "")?;
    works(bench, &new)
}

/// Linux' target is removed under load and added again: the host comes back over TLS, and nothing
/// is lost.
fn goes_and_comes(bench: &mut Bench, words: &[String]) -> Result<()> {
    let url = url(bench);
    let mut command = bench.weft_command();
    command.args(["bench", &url, "--rw", "randwrite", "--verify", "crc32c", "--bs", "4k"]);
    command.args(["--iodepth", "16", "--size", "4m", "--runtime", "8", "--time_based"]);
    command.args(["--quiet", "--reconnect-delay", "1", "--ctrl-loss-tmo", "60"]).args(words);
    let created =
        |bench: &mut Bench| -> Result<u32> { Ok(bench.guest("created")?.trim().parse()?) };
    let before = created(bench)?;
    let mut load = Process::start(&mut command, &bench.folder.join("load.log"))?;
    std::thread::sleep(Duration::from_secs(3));
    bench.guest("stop_port; sleep 1; start_port")?;
    let status = load.wait(Duration::from_secs(120))?;
    if !status.success() {
        bail!("{status}:\n{}", load.output());
    }
    let controllers = created(bench)? - before;
    ensure!(controllers >= 2, "{controllers} controllers: the host did not reconnect");
    Ok(())
}

fn port_with_tls_goes_and_comes(bench: &mut Bench) -> Result<()> {
    make_key(bench, "tls", "sha256", "key")?;
    bench.guest("forget")?;
    insert(bench, "key", HOST, "1")?;
    let words = with_key(bench, "key");
    goes_and_comes(bench, &words)
}

/// The words by which weft's host makes keys of TLS.
fn with_secrets(bench: &Bench, own: &str, controllers: Option<&str>) -> Vec<String> {
    let secret = path(bench, own);
    let words = ["--hostnqn", HOST, "--concat", "--dhchap-secret-file", &secret];
    let mut words: Vec<String> = words.map(str::to_owned).into();
    if let Some(name) = controllers {
        words.extend(["--dhchap-ctrl-secret-file".to_owned(), path(bench, name)]);
    }
    words
}

/// Runs `action` while the guest's target has keys of the host, and makes keys of TLS with this
/// hash function and group.
fn with_host(
    bench: &mut Bench,
    hash: &str,
    group: &str,
    both_ways: bool,
    action: impl FnOnce(&mut Bench) -> Result<()>,
) -> Result<()> {
    let controllers = if both_ways { "controllers" } else { "" };
    bench.guest("forget; only_listed_hosts; wants_tls \"not required\"")?;
    bench.guest(&format!("list_secret_host {HOST} {hash} {group} secret {controllers}"))?;
    let result = action(bench);
    bench.guest("every_host; wants_tls required")?;
    result.with_context(|| format!("{hash} {group}"))
}

fn make_secrets(bench: &mut Bench) -> Result<()> {
    make_key(bench, "dhchap", "sha256", "secret")?;
    make_key(bench, "dhchap", "sha384", "controllers")
}

fn concatenations(bench: &mut Bench, groups: &[&str]) -> Result<()> {
    make_secrets(bench)?;
    let hashes = secure::hashes(bench)?;
    for (hash, group) in groups.iter().flat_map(|group| hashes.iter().map(move |h| (h, group))) {
        with_host(bench, hash, group, false, |bench| {
            let words = with_secrets(bench, "secret", None);
            works(bench, &words)?;
            bench.guest(&format!("has_made_keys {HOST}")).map(drop)
        })?;
    }
    Ok(())
}

fn concatenation(bench: &mut Bench) -> Result<()> {
    concatenations(bench, &["ffdhe2048", "ffdhe3072"])
}

fn concatenation_of_all_groups(bench: &mut Bench) -> Result<()> {
    concatenations(bench, &["ffdhe4096", "ffdhe6144", "ffdhe8192"])
}

/// Linux' target (7.3) makes no key of an exchange in which it proves itself as well ("failed to
/// generate PSK, error -22"), and then has none for the handshake; one-way it has.
fn wrong_keys_of_concatenation(bench: &mut Bench) -> Result<()> {
    make_secrets(bench)?;
    make_key(bench, "dhchap", "sha256", "other")?;
    with_host(bench, "sha256", "ffdhe2048", true, |bench| {
        let words = with_secrets(bench, "other", None);
        refused(bench, &words, "does not accept this host's secret")?;
        let words = with_secrets(bench, "secret", Some("other"));
        refused(bench, &words, "has not proved that it has its secret")?;
        let words = with_secrets(bench, "secret", None);
        works(bench, &words)
    })
}

/// Another exchange on the admin queue, over TLS, makes the next key; I/O queues have none.
fn keys_of_concatenation_are_replaced(bench: &mut Bench) -> Result<()> {
    make_secrets(bench)?;
    with_host(bench, "sha256", "ffdhe2048", false, |bench| {
        let words = with_secrets(bench, "secret", None);
        authentication::again_under_load(bench, &words, &[0])?;
        let made = bench.guest(&format!("made_keys {HOST}"))?;
        let keys = made.lines().count();
        ensure!(keys >= 3, "only {keys} keys were made: {made}");
        Ok(())
    })
}

fn port_with_concatenation_goes_and_comes(bench: &mut Bench) -> Result<()> {
    make_secrets(bench)?;
    with_host(bench, "sha256", "ffdhe2048", false, |bench| {
        let words = with_secrets(bench, "secret", None);
        goes_and_comes(bench, &words)
    })
}
