//! Linux' host, nvme-cli, fio and ext4 in the guest, weft's target outside.

use super::authentication::{self, ALL, FEW};
use super::bench::Bench;
use super::suite::{Suite, SuiteTest, inside, long, step};
use crate::guest::Kernel;
use anyhow::{Result, ensure};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

pub(super) const SUITE: Suite = Suite {
    name: "kernel_host",
    script: "kernel_host.sh",
    kernel: Kernel::Release,
    forwards: false,
    modules: &["nvme-tcp"],
    setup,
    steps: STEPS,
};

const STEPS: &[SuiteTest] = &[
    inside("discover"),
    inside("connect_all"),
    inside("persistent_discovery").long(),
    step("registered", registered),
    inside("identify"),
    inside("logs"),
    inside("features"),
    inside("commands"),
    inside("managed_namespaces"),
    long("data_of_memory", |bench| bench.guest("data 1 512").map(drop)),
    step("data_of_file", |bench| bench.guest("data 2 4096").map(drop)),
    long("data_with_digests", |bench| bench.guest("data 2 4096 -g -G").map(drop)),
    inside("mixed"),
    inside("digests"),
    step("queues", |bench| bench.guest("queues --nr-io-queues=2 --queue-size=16").map(drop)),
    inside("queues_of_all_kinds").long(),
    step("filesystem", |bench| bench.guest("filesystem /etc /usr/bin/fio").map(drop)),
    long("larger_filesystem", |bench| {
        bench.guest("filesystem /etc /usr/bin/fio /usr/share/bash-completion /usr/lib/modules")?;
        Ok(())
    }),
    inside("write_cache"),
    step("deallocate", deallocate),
    inside("two_hosts").long(),
    inside("reservations"),
    step("block_reservations", block_reservations),
    step("allowed_hosts", allowed_hosts),
    step("authentication", |bench| authentication::of_kernel_host(bench, FEW)),
    long("authentication_of_all_groups", |bench| authentication::of_kernel_host(bench, ALL)),
    step("wrong_keys", authentication::wrong_keys_of_kernel_host),
    long("new_key", authentication::new_key_of_kernel_host),
    inside("reset").long(),
    long("subsystem_reset", |bench| bench.guest("reset subsystem-reset").map(drop)),
    step("identity_survives_a_restart", identity_survives_a_restart),
    step("namespaces_change", namespaces_change),
    step("killed_under_load", killed_under_load),
    step("silent_host", silent_host),
    step("idle", idle),
    step("stop", Bench::stop_target),
];

/// The kernel asks that they persist.
fn block_reservations(bench: &mut Bench) -> Result<()> {
    let config = fs::read_to_string(bench.configuration())?;
    let file = format!("nsid = 2\nptpl-file = {:?}\n", bench.folder.join("ptpl"));
    fs::write(bench.configuration(), config.replace("nsid = 2\n", &file))?;
    bench.reload_target()?;
    std::thread::sleep(Duration::from_secs(1));
    let done = bench.guest("block_reservations");
    fs::write(bench.configuration(), config)?;
    bench.reload_target()?;
    done.map(drop)
}

/// The target has read what libnvme writes.
fn registered(bench: &mut Bench) -> Result<()> {
    bench.guest("registered")?;
    let log = bench.running()?.output();
    for task in ["Register", "De-Register"] {
        let line = log.lines().find(|line| line.contains(&format!(": {task}: 1 of a host")));
        ensure!(line.is_some(), "no line says {task}");
    }
    Ok(())
}

const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 96 * MIB;

fn setup(bench: &mut Bench) -> Result<()> {
    File::create(bench.file())?.set_len(FILE_BYTES)?;
    bench.configure("")?;
    bench.start_target()
}

/// Allocated bytes of the file.
fn allocated(bench: &Bench) -> Result<u64> {
    Ok(fs::metadata(bench.file())?.blocks() * 512)
}

/// Deallocated blocks read as zero, and their space is freed.
fn deallocate(bench: &mut Bench) -> Result<()> {
    bench.guest("fill")?;
    let full = allocated(bench)?;
    ensure!(full >= 16 * MIB, "16 MiB were written and the file takes {full} bytes");
    bench.guest("discard")?;
    let discarded = allocated(bench)?;
    ensure!(discarded + 8 * MIB <= full, "discard of 8 MiB: {full} bytes became {discarded}");
    bench.guest("punch")?;
    let punched = allocated(bench)?;
    ensure!(punched + 4 * MIB <= discarded, "punch of 4 MiB: {discarded} became {punched}");
    bench.guest("zero").map(drop)
}

/// A host that is not on the list is refused, and accepted once it is.
fn allowed_hosts(bench: &mut Bench) -> Result<()> {
    bench.configure("allowed-hosts = [\"nqn.2026-01.io.weft:allowed\"]")?;
    bench.reload_target()?;
    let result = bench.guest("refused_host").and_then(|_| bench.guest("allowed_host"));
    bench.configure("")?;
    bench.reload_target()?;
    result.map(drop)
}

/// The kernel's host drops a namespace whose identity has changed when it reconnects.
fn identity_survives_a_restart(bench: &mut Bench) -> Result<()> {
    let path = bench.folder.join("identity");
    bench.guest("identity")?;
    let before = fs::read_to_string(&path)?;
    bench.stop_target()?;
    bench.start_target()?;
    bench.guest("identity")?;
    let after = fs::read_to_string(&path)?;
    ensure!(before == after, "before the restart:\n{before}after it:\n{after}");
    Ok(())
}

/// A host that is connected sees namespaces grow, come and go.
fn namespaces_change(bench: &mut Bench) -> Result<()> {
    bench.guest("before_change")?;
    let bytes = FILE_BYTES + 32 * MIB;
    File::options().write(true).open(bench.file())?.set_len(bytes)?;
    bench.reload_target()?;
    bench.guest(&format!("grown {bytes}"))?;

    let text = fs::read_to_string(bench.configuration())?;
    let third = "\n[[subsystem.namespace]]\nnsid = 3\nmemory = \"16MiB\"\n";
    fs::write(bench.configuration(), format!("{text}{third}"))?;
    bench.reload_target()?;
    bench.guest("added")?;
    fs::write(bench.configuration(), text)?;
    bench.reload_target()?;
    bench.guest("removed")?;

    File::options().write(true).open(bench.file())?.set_len(FILE_BYTES)?;
    bench.reload_target()
}

/// The target is killed under load and restarted: the host reconnects and nothing is lost.
fn killed_under_load(bench: &mut Bench) -> Result<()> {
    bench.guest("start_load")?;
    for _ in 0..2 {
        bench.kill_target();
        std::thread::sleep(Duration::from_secs(2));
        bench.start_target()?;
        std::thread::sleep(Duration::from_secs(4));
    }
    bench.guest("end_load 120").map(drop)
}

/// A host that sends nothing for longer than its keep-alive timeout loses its controller.
fn silent_host(bench: &mut Bench) -> Result<()> {
    bench.guest("silence")?;
    let target = bench.running()?;
    target.wait_for("keep-alive", Duration::from_secs(30))?;
    bench.guest("recovered").map(drop)
}

/// A target without requests uses almost no CPU time.
fn idle(bench: &mut Bench) -> Result<()> {
    bench.guest("idle")?;
    let target = bench.running()?;
    let before = target.processor_time()?;
    std::thread::sleep(Duration::from_secs(5));
    let used = target.processor_time()?.saturating_sub(before);
    ensure!(used <= Duration::from_millis(100), "{used:?} of processor time in 5 idle seconds");
    bench.guest("disconnect").map(drop)
}
