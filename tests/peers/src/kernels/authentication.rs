//! DH-HMAC-CHAP with Linux' host and with Linux' target: steps of both suites.

use super::bench::{Bench, NQN};
use crate::process::Process;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const HASHES: [&str; 3] = ["sha256", "sha384", "sha512"];
const GROUPS: [&str; 6] = ["null", "ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192"];

/// The host of the steps that need one.
const HOST: &str = "nqn.2026-01.io.weft:authenticated";

/// What weft's host says where the target's answer was lost.
const CLOSED: &str = "the peer closed the connection";

/// Keys that the guest's nvme-cli makes: with each transformation, and of each length without one.
const KEYS: usize = 6;

/// A host, and how it and the subsystem authenticate each other.
struct Case {
    host: String,
    hash: &'static str,
    group: &'static str,
    /// The host's key, and the controller's if it has to prove itself as well.
    keys: (usize, Option<usize>),
}

/// One case of so many is tried: each hash function with each group, or each function once.
pub(super) const ALL: usize = 1;
pub(super) const FEW: usize = GROUPS.len() + 1;

/// Hash functions with groups, one way and both ways in turn: each key is used in each place.
fn cases(one_of: usize) -> Vec<Case> {
    let all = HASHES.into_iter().flat_map(|hash| GROUPS.map(|group| (hash, group)));
    let case = |(number, (hash, group))| Case {
        host: format!("nqn.2026-01.io.weft:{hash}-{group}"),
        hash,
        group,
        keys: (number % KEYS, (number % 3 != 0).then_some((number + 1) % KEYS)),
    };
    all.enumerate().step_by(one_of).map(case).collect()
}

/// The path of a key file, as it is here.
fn key(bench: &Bench, number: usize) -> PathBuf {
    bench.folder.join(format!("key{number}"))
}

/// Has the guest make keys, in files that only their owner may read.
fn make_keys(bench: &mut Bench) -> Result<()> {
    bench.guest("make_keys")?;
    for number in 0..KEYS {
        fs::set_permissions(key(bench, number), fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// The table of a host for the target's configuration.
fn host_table(bench: &Bench, host: &str, own: usize, controllers: Option<usize>) -> String {
    let path = |number| key(bench, number).display().to_string();
    let mut text =
        format!("[[subsystem.host]]\nnqn = \"{host}\"\ndhchap-key = \"{}\"\n", path(own));
    if let Some(controllers) = controllers {
        text += &format!("dhchap-ctrlr-key = \"{}\"\n", path(controllers));
    }
    text
}

/// Serves with these hosts while `action` runs.
fn with_hosts(
    bench: &mut Bench,
    hosts: &str,
    action: impl FnOnce(&mut Bench) -> Result<()>,
) -> Result<()> {
    bench.configure(hosts)?;
    bench.stop_target()?;
    bench.start_target()?;
    let result = action(bench);
    bench.configure("")?;
    bench.stop_target()?;
    bench.start_target()?;
    result
}

/// Linux' host authenticates itself, and weft's target to it.
pub(super) fn of_kernel_host(bench: &mut Bench, one_of: usize) -> Result<()> {
    make_keys(bench)?;
    let table = |bench: &Bench, case: &Case| {
        let Case { host, hash, group, keys } = case;
        let (own, controllers) = *keys;
        let table = host_table(bench, host, own, controllers);
        format!("{table}dhchap-hashes = [\"{hash}\"]\ndhchap-groups = [\"{group}\"]\n")
    };
    let cases = cases(one_of);
    let hosts: String = cases.iter().map(|case| table(bench, case)).collect();
    with_hosts(bench, &hosts, |bench| {
        let mut calls = String::from("fresh");
        for Case { host, keys: (own, controllers), .. } in &cases {
            let controllers = controllers.map_or(String::new(), |number| number.to_string());
            calls += &format!("; authenticated {host} {own} {controllers}");
        }
        bench.guest(&calls).map(drop)
    })
}

/// Neither side accepts the other without the right key.
pub(super) fn wrong_keys_of_kernel_host(bench: &mut Bench) -> Result<()> {
    make_keys(bench)?;
    let hosts = host_table(bench, HOST, 0, Some(1));
    with_hosts(bench, &hosts, |bench| {
        bench.guest(&format!("fresh; not_authenticated {HOST}"))?;
        bench.guest(&format!("not_authenticated {HOST} 2"))?;
        let target = bench.running()?;
        target.wait_for("was not authenticated: Authentication failed", Duration::from_secs(5))?;
        bench.guest(&format!("not_authenticated {HOST} 0 3"))?;
        bench.guest(&format!("authenticated {HOST} 0 1")).map(drop)
    })
}

/// Keys, and then the group and the hash function, change at both ends while the host is connected.
pub(super) fn new_key_of_kernel_host(bench: &mut Bench) -> Result<()> {
    make_keys(bench)?;
    let hosts = host_table(bench, HOST, 0, Some(1));
    with_hosts(bench, &hosts, |bench| {
        bench.guest(&format!("fresh; connected_with {HOST} 0 1; new_secret 0; reads"))?;
        fs::copy(key(bench, 2), key(bench, 0))?;
        bench.reload_target()?;
        bench.running()?.wait_for("has other keys", Duration::from_secs(20))?;
        bench.guest("reads; new_secret 2; reads")?;
        // The host's other secret is the controller's.
        fs::copy(key(bench, 3), key(bench, 1))?;
        bench.reload_target()?;
        bench.guest("sleep 1; new_controller_secret 3; reads")?;
        let groups = "dhchap-groups = [\"ffdhe8192\"]\n";
        for policy in [groups.to_owned(), format!("{groups}dhchap-hashes = [\"sha512\"]\n")] {
            bench.configure(&(hosts.clone() + &policy))?;
            bench.reload_target()?;
            bench.guest("sleep 1; new_secret 2; reads")?;
        }
        bench.guest("disconnect").map(drop)
    })
}

/// The arguments by which weft's host reads with these keys.
fn arguments(bench: &Bench, host: &str, keys: (Option<usize>, Option<usize>)) -> Vec<String> {
    let url = format!("nvme-tcp://127.0.0.1:{}/{NQN}?nsid=1", bench.port);
    let mut words: Vec<String> = ["read", &url, "--block-count", "8"].map(str::to_owned).into();
    words.extend(["--data".to_owned(), bench.folder.join("read.bin").display().to_string()]);
    let (own, controllers) = keys;
    words.extend(secrets(bench, host, own, controllers));
    words
}

/// The arguments by which a host has these keys.
fn secrets(
    bench: &Bench,
    host: &str,
    own: Option<usize>,
    controllers: Option<usize>,
) -> Vec<String> {
    let path = |number| key(bench, number).display().to_string();
    let mut words: Vec<String> = ["--hostnqn", host].map(str::to_owned).into();
    if let Some(own) = own {
        words.extend(["--dhchap-secret-file".to_owned(), path(own)]);
    }
    if let Some(controllers) = controllers {
        words.extend(["--dhchap-ctrl-secret-file".to_owned(), path(controllers)]);
    }
    words
}

fn reads(bench: &mut Bench, host: &str, keys: (Option<usize>, Option<usize>)) -> Result<()> {
    let words = arguments(bench, host, keys);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    bench.weft(&words).map(drop)
}

/// Weft's host authenticates itself, and Linux' target to it.
pub(super) fn of_kernel_target(bench: &mut Bench, one_of: usize) -> Result<()> {
    make_keys(bench)?;
    let cases = cases(one_of);
    let mut calls = String::from("only_listed_hosts");
    for Case { host, hash, group, keys: (own, controllers) } in &cases {
        let controllers = controllers.map_or(String::new(), |number| number.to_string());
        calls += &format!("; list_host {host} {hash} {group} {own} {controllers}");
    }
    bench.guest(&calls)?;
    let result = cases.iter().try_for_each(|case| {
        let (own, controllers) = case.keys;
        let (hash, group) = (case.hash, case.group);
        reads(bench, &case.host, (Some(own), controllers)).context(format!("{hash} {group}"))
    });
    bench.guest("every_host")?;
    result
}

/// Weft's host with these words is refused, and says this. Linux' target ends a controller whose
/// host it refuses while its answer is still queued, so that the answer is at times lost: then the
/// host comes again.
pub(super) fn refused(bench: &mut Bench, words: &[String], says: &str) -> Result<()> {
    for _ in 0..5 {
        let output = bench.weft_command().args(words).output()?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success(), "{words:?}: it was accepted");
        if error.contains(says) {
            return Ok(());
        }
        ensure!(error.contains(CLOSED), "{words:?}: no {says:?} in {error}");
    }
    bail!("{words:?}: each time {CLOSED}")
}

/// The same as of the kernel's host, the other way round.
pub(super) fn wrong_keys_of_kernel_target(bench: &mut Bench) -> Result<()> {
    make_keys(bench)?;
    bench.guest(&format!("only_listed_hosts; list_host {HOST} sha256 ffdhe2048 0 1"))?;
    let result = (|| {
        for (keys, said) in [
            ((None, None), "requires authentication"),
            ((Some(2), None), "does not accept this host's secret"),
            ((Some(0), Some(3)), "has not proved that it has its secret"),
        ] {
            let words = arguments(bench, HOST, keys);
            refused(bench, &words, said).with_context(|| format!("{keys:?}"))?;
        }
        reads(bench, HOST, (Some(0), Some(1)))
    })();
    bench.guest("every_host")?;
    // Nobody may be taken for the controller who asks for no authentication.
    let words = arguments(bench, HOST, (Some(0), Some(1)));
    let output = bench.weft_command().args(&words).output()?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!output.status.success() && error.contains("asks for no authentication"), "{error}");
    result
}

/// Queues are authenticated again under load. With a key that the target no longer takes that ends
/// the load, and the host has to come with the new one.
pub(super) fn again_with_kernel_target(bench: &mut Bench) -> Result<()> {
    make_keys(bench)?;
    bench.guest(&format!("only_listed_hosts; list_host {HOST} sha256 ffdhe2048 0 1"))?;
    let result = (|| {
        for controllers in [None, Some(1)] {
            let words = secrets(bench, HOST, Some(0), controllers);
            again_under_load(bench, &words, &[0, 1])?;
            bench.guest(&format!("new_policy {HOST} sha512 ffdhe3072"))?;
        }
        let words = secrets(bench, HOST, Some(0), None);
        let mut command = load(bench, "60");
        let mut load = Process::start(command.args(&words), &bench.folder.join("load.log"))?;
        std::thread::sleep(Duration::from_secs(3));
        bench.guest(&format!("new_key {HOST} 2"))?;
        let status = load.wait(Duration::from_secs(40))?;
        let said = load.output();
        ensure!(!status.success(), "the old key is still taken: {said}");
        ensure!(said.contains("does not accept this host's secret"), "{said}");
        reads(bench, HOST, (Some(2), Some(1)))
    })();
    bench.guest("every_host")?;
    result
}

/// Weft's host authenticates these queues again each second while it writes and verifies.
pub(super) fn again_under_load(bench: &Bench, words: &[String], queues: &[u32]) -> Result<()> {
    let output = load(bench, "5").args(words).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{said}");
    for queue in queues {
        let times = said.matches(&format!("queue {queue} was authenticated again")).count();
        ensure!(times >= 2, "queue {queue} was authenticated again {times} times: {said}");
    }
    Ok(())
}

/// A load of so many seconds whose queues are authenticated again each second; the first loss ends
/// it.
fn load(bench: &Bench, seconds: &str) -> Command {
    let url = format!("nvme-tcp://127.0.0.1:{}/{NQN}?nsid=1", bench.port);
    let mut command = bench.weft_command();
    command.args(["bench", &url, "--rw", "randwrite", "--verify", "crc32c", "--bs", "4k"]);
    command.args(["--iodepth", "4", "--size", "1m", "--runtime", seconds, "--time_based", "-vv"]);
    command.args(["--quiet", "--dhchap-interval", "1", "--ctrl-loss-tmo", "0"]);
    command
}
