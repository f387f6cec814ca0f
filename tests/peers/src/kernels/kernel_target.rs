//! Linux' target (nvmet) in the guest, weft's host outside.

use super::authentication::{self, ALL, FEW};
use super::bench::{Bench, NQN};
use super::suite::{Suite, SuiteTest, long, step};
use crate::guest::Kernel;
use crate::process::Process;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use std::fs;
use std::time::Duration;

pub(super) const SUITE: Suite = Suite {
    name: "kernel_target",
    script: "kernel_target.sh",
    kernel: Kernel::Release,
    forwards: true,
    modules: &["nvmet-tcp"],
    setup: |bench| bench.guest("serve").map(drop),
    steps: STEPS,
};

const STEPS: &[SuiteTest] = &[
    step("discover", discover),
    step("identify", identify),
    step("list", list),
    step("read", read),
    step("write", write),
    step("verified", |bench| verified(bench, &["16"])),
    long("verified_at_all_depths", |bench| verified(bench, &["1", "16", "128"])),
    step("digests", digests),
    step("queues", queues),
    step("flipped_byte", flipped_byte),
    step("authentication", |bench| authentication::of_kernel_target(bench, FEW)),
    long("authentication_of_all_groups", |bench| authentication::of_kernel_target(bench, ALL)),
    step("wrong_keys", authentication::wrong_keys_of_kernel_target),
    long("again", authentication::again_with_kernel_target),
    step("port_goes_and_comes", port_goes_and_comes),
    step("one_of_two_ports_goes", one_of_two_ports_goes),
    long("ports_by_referral", ports_by_referral),
    long("studied", studied),
];

const MIB: u64 = 1 << 20;

/// The URL of namespace `nsid` of the guest's target.
fn url(bench: &Bench, nsid: u32) -> String {
    format!("nvme-tcp://127.0.0.1:{}/{NQN}?nsid={nsid}", bench.port)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The checksum of the namespace's backing inside the guest.
fn sum_inside(bench: &mut Bench, nsid: u32, offset: u64, length: u64) -> Result<String> {
    Ok(bench.guest(&format!("sum {nsid} {offset} {length}"))?.trim().to_owned())
}

/// The checksum of a file in the shared folder.
fn sum_of(bench: &mut Bench, name: &str) -> Result<String> {
    Ok(bench.guest(&format!("sum_of {name}"))?.trim().to_owned())
}

fn discover(bench: &mut Bench) -> Result<()> {
    let port = bench.port.to_string();
    let said = text(&bench.weft(&["discover", "--traddr", "127.0.0.1", "--trsvcid", &port])?);
    ensure!(said.contains(NQN), "the subsystem is not in the log");
    Ok(())
}

fn identify(bench: &mut Bench) -> Result<()> {
    let said = text(&bench.weft(&["identify", &url(bench, 1), "--output-format", "json"])?);
    let value: serde_json::Value = serde_json::from_str(&said)?;
    ensure!(value.to_string().contains("Linux"), "the model number is not Linux'");
    Ok(())
}

fn list(bench: &mut Bench) -> Result<()> {
    let said = text(&bench.weft(&["list", &url(bench, 1)])?);
    ensure!(said.contains("64"), "the namespaces do not have 64 MiB");
    Ok(())
}

/// Reads bytes that the guest has written.
fn read(bench: &mut Bench) -> Result<()> {
    for (nsid, block_bytes) in [(1, 512), (2, 4096)] {
        bench.guest(&format!("put {nsid}"))?;
        let blocks = (4 * MIB / block_bytes).to_string();
        let back = bench.folder.join("read.bin");
        let back = back.display().to_string();
        let url = url(bench, nsid);
        bench.weft(&[
            "read",
            &url,
            "--start-block",
            "0",
            "--block-count",
            &blocks,
            "--data",
            &back,
        ])?;
        let (put, read) = (fs::read(bench.folder.join("put.bin"))?, fs::read(&back)?);
        ensure!(put == read, "namespace {nsid}: read other bytes than were written");
    }
    Ok(())
}

/// Writes bytes and compares them inside the guest.
fn write(bench: &mut Bench) -> Result<()> {
    for (nsid, block_bytes) in [(1, 512), (2, 4096)] {
        let data: Vec<u8> = (0..4 * MIB).map(|at| (at * 31 / 7 % 251) as u8).collect();
        let path = bench.folder.join("write.bin");
        fs::write(&path, &data)?;
        let path = path.display().to_string();
        let start = 8 * MIB / block_bytes;
        let url = url(bench, nsid);
        bench.weft(&["write", &url, "--start-block", &start.to_string(), "--data", &path])?;
        bench.weft(&["flush", &url])?;
        let inside = sum_inside(bench, nsid, 8 * MIB, 4 * MIB)?;
        let written = sum_of(bench, "write.bin")?;
        ensure!(inside == written, "namespace {nsid}: other bytes were stored");
    }
    Ok(())
}

/// Writes `bytes` at random positions of a region of that size, and reads all of it back.
fn bench_verified(bench: &mut Bench, nsid: u32, bytes: &str, more: &[&str]) -> Result<()> {
    let url = url(bench, nsid);
    let mut arguments = vec!["bench", &url, "--rw", "randwrite", "--verify", "crc32c", "--quiet"];
    arguments.extend(["--size", bytes, "--io-size", bytes, "--output-format", "json"]);
    arguments.extend(more);
    let said = text(&bench.weft(&arguments)?);
    let result: serde_json::Value = serde_json::from_str(&said).context("fio's JSON")?;
    let job = &result["jobs"][0];
    let written = job["write"]["io_bytes"].as_u64().unwrap_or(0);
    ensure!(written > 0 && job["error"] == 0, "{written} bytes written, error {}", job["error"]);
    Ok(())
}

/// Sizes from 512 bytes to 1 MiB at these depths, with a checksum in each block.
fn verified(bench: &mut Bench, depths: &[&str]) -> Result<()> {
    for bs in ["512", "4k", "64k", "256k", "1m"] {
        for depth in depths {
            bench_verified(bench, 1, "2m", &["--bs", bs, "--iodepth", depth])?;
        }
    }
    bench_verified(bench, 2, "8m", &["--bs", "4k", "--iodepth", "32"])
}

fn digests(bench: &mut Bench) -> Result<()> {
    for digests in [&["--hdr-digest"][..], &["--data-digest"], &["--hdr-digest", "--data-digest"]] {
        let mut more = vec!["--bs", "64k", "--iodepth", "8"];
        more.extend(digests);
        bench_verified(bench, 1, "2m", &more)?;
    }
    Ok(())
}

fn queues(bench: &mut Bench) -> Result<()> {
    for queues in ["1", "2"] {
        for size in ["8", "128", "1024"] {
            let more = ["--nr-io-queues", queues, "--queue-size", size];
            let work = ["--bs", "4k", "--iodepth", "64"];
            bench_verified(bench, 1, "2m", &[&more[..], &work[..]].concat())?;
        }
    }
    Ok(())
}

/// A byte that changes on the target is detected.
fn flipped_byte(bench: &mut Bench) -> Result<()> {
    let region = ["--bs", "4k", "--size", "1m", "--io-size", "1m", "--verify", "crc32c", "--quiet"];
    let url = url(bench, 1);
    bench.weft(&[&["bench", &url, "--rw", "write"], &region[..]].concat())?;
    bench.weft(&[&["bench", &url, "--rw", "read"], &region[..]].concat())?;
    bench.guest("flip 1 70000")?;
    let found = bench.weft(&[&["bench", &url, "--rw", "read"], &region[..]].concat());
    ensure!(found.is_err(), "the change was not detected");
    Ok(())
}

/// The kernel's target is removed under load and added again: the host reconnects, and all its
/// writes are stored.
fn port_goes_and_comes(bench: &mut Bench) -> Result<()> {
    let url = url(bench, 1);
    let mut command = bench.weft_command();
    command.args(["bench", &url, "--rw", "randwrite", "--verify", "crc32c", "--bs", "4k"]);
    command.args(["--iodepth", "16", "--size", "16m", "--runtime", "14", "--time_based"]);
    command.args(["--quiet", "--reconnect-delay", "1", "--ctrl-loss-tmo", "60"]);
    let created =
        |bench: &mut Bench| -> Result<u32> { Ok(bench.guest("created")?.trim().parse()?) };
    let before = created(bench)?;
    let mut load = Process::start(&mut command, &bench.folder.join("load.log"))?;
    std::thread::sleep(Duration::from_secs(3));
    for _ in 0..2 {
        bench.guest("stop_port; sleep 2; start_port")?;
        std::thread::sleep(Duration::from_secs(3));
    }
    let status = load.wait(Duration::from_secs(120))?;
    if !status.success() {
        bail!("{status}:\n{}", load.output());
    }
    let controllers = created(bench)? - before;
    ensure!(controllers >= 3, "{controllers} controllers: the host did not reconnect twice");
    Ok(())
}

/// One of two ports goes and comes back, then the other, then their access states change, while the
/// host writes and verifies.
fn one_of_two_ports_goes(bench: &mut Bench) -> Result<()> {
    bench.guest("second_port")?;
    let places = format!("127.0.0.1:{},127.0.0.1:{}", bench.port, bench.second_port);
    let url = format!("nvme-tcp://{places}/{NQN}?nsid=1");
    let mut command = bench.weft_command();
    command.args(["bench", &url, "--rw", "randwrite", "--verify", "crc32c", "--bs", "4k"]);
    command.args(["--iodepth", "16", "--size", "16m", "--runtime", "100000", "--time_based"]);
    command.args(["--quiet", "--reconnect-delay", "1", "--iopolicy", "round-robin"]);
    let mut load = Process::start(&mut command, &bench.folder.join("paths.log"))?;
    std::thread::sleep(Duration::from_secs(3));
    for change in [
        "stop_port",
        "start_port",
        "stop_port 2",
        "start_port 2",
        "ana_state 1 inaccessible",
        "ana_state 1 optimized; ana_state 2 inaccessible",
        "ana_state 2 non-optimized",
    ] {
        bench.guest(&format!("{change}; sleep 2; grows"))?;
    }
    load.signal(Signal::INT)?;
    let status = load.wait(Duration::from_secs(120))?;
    // It was interrupted, after it had read back what it had written.
    ensure!(status.code() == Some(130), "{status}:\n{}", load.output());
    let said = load.output();
    ensure!(!said.contains(" error: ") && !said.contains("panicked"), "{said}");
    bench.guest("no_second_port").map(drop)
}

/// The same with a host that knows one port, and finds the other by the referral there. It runs in
/// the guest, whose addresses are what Linux' log page has.
fn ports_by_referral(bench: &mut Bench) -> Result<()> {
    bench.give_weft()?;
    bench.guest("ports_by_referral").map(drop)
}

/// A study of a target without statistics ends with a report, and marks each remote cell as such.
fn studied(bench: &mut Bench) -> Result<()> {
    let url = url(bench, 2);
    let results = bench.folder.join("study");
    let _ = fs::remove_dir_all(&results);
    let out = results.display().to_string();
    let given = ["--target", &url, "--yes-destroy", &url, "--local", "memory:64MiB"];
    let how = ["first-look", "--quick", "--out", &out, "--output-format", "json"];
    let said = text(&bench.weft(&[&["study", "run"], &how[..], &given].concat())?);
    let outcome: serde_json::Value = serde_json::from_str(&said).context("the outcome")?;
    for nothing in ["skipped", "void", "failed"] {
        ensure!(outcome[nothing] == 0, "{nothing}: {}", outcome[nothing]);
    }
    let lines = fs::read_to_string(results.join("results.jsonl"))?;
    let (mut local, mut remote) = (0usize, 0);
    for line in lines.lines() {
        let record: serde_json::Value = serde_json::from_str(line)?;
        let cell = &record["cell"];
        ensure!(record["status"]["is"] == "measured", "{cell}: {}", record["status"]);
        let unknown = record["marks"].to_string().contains("target-unknown");
        if record["configuration"]["transport"] == "local" {
            local += 1;
            ensure!(!unknown, "{cell} has no target");
        } else {
            remote += usize::from(record["role"] != "reference");
            ensure!(unknown && record["target"].is_null(), "{cell}: statistics without a source");
        }
    }
    ensure!(remote > 0 && local == remote, "{local} cells are local and {remote} remote");
    let report = fs::read_to_string(results.join("report.html")).context("the report")?;
    ensure!(report.contains("CPU is not known"), "the report does not mention the missing CPU use");
    Ok(())
}
