//! What weft costs beside Ceph's own clients: the same loads on one image by fio's rbd engine and
//! by `rbd bench`, and over NVMe/TCP, in turns.

use super::served::{RunningTarget, Scene};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use xtask::bench::Spread;
use xtask::packages;
use xtask::python::succeeded;

/// What the loads are spread over: it fits into the OSD's cache, which all of them share.
const IMAGE: &str = "bars";
const IMAGE_SIZE: &str = "256M";

/// A load: its name for fio and for `rbd bench`, and its depth.
const LOADS: [(&str, &str, u32); 4] = [
    ("randread", "read", 32),
    ("randwrite", "write", 32),
    ("randread", "read", 1),
    ("randwrite", "write", 1),
];

/// Over TCP at depth 32: at least this part of the requests.
const LEAST_PART: f64 = 0.85;
/// At depth 1: at most so many microseconds more.
const MOST_MORE_US: f64 = 20.0;

/// How long fio may take beyond its time: longer than a cluster keeps the lock for a client that
/// has died.
const FIO_PATIENCE: Duration = Duration::from_secs(45);

/// One measurement.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    iops: f64,
    mean_us: f64,
}

/// Measures and prints; fails if a bar is missed.
pub(super) fn measure(scene: &Scene, rounds: usize, time: Duration) -> Result<()> {
    packages::need("fio's rbd engine is measured", &[("fio", "fio")])?;
    scene.cluster.rbd(&format!("create --size {IMAGE_SIZE} {IMAGE}"))?;
    let served = scene.serve("bars", &[IMAGE])?;
    // Every object is there before anything is read.
    served.weft("bench", 1, &["--rw", "write", "--bs", "1m", "--iodepth", "4"])?;
    let mut missed = Vec::new();
    for load in LOADS {
        // What one client does not end says nothing of the other loads.
        let (pattern, of_rbd, depth) = load;
        let found = rounds_of(scene, &served, pattern, of_rbd, depth, rounds, time);
        scene.cluster.check_osd()?;
        missed.extend(found.unwrap_or_else(|error| {
            println!("{} 4k, depth {}: {error:#}", load.0, load.2);
            vec![format!("{} at depth {} was not measured", load.0, load.2)]
        }));
    }
    served.stop()?;
    ensure!(missed.is_empty(), "bars missed: {}", missed.join("; "));
    Ok(())
}

/// Measures a load; returns the bars that it misses.
fn rounds_of(
    scene: &Scene,
    served: &RunningTarget<'_>,
    pattern: &str,
    of_rbd: &str,
    depth: u32,
    rounds: usize,
    time: Duration,
) -> Result<Vec<String>> {
    let mut taken = Vec::new();
    for round in 0..rounds {
        // Every other round backwards: what grows or fades hits all alike.
        let mut order = [0, 1, 2];
        if round % 2 == 1 {
            order.reverse();
        }
        let mut of_round = [Measurement { iops: 0.0, mean_us: 0.0 }; 3];
        for at in order {
            of_round[at] = match at {
                0 => over_tcp(served, pattern, depth, time)?,
                1 => by_fio(scene, pattern, depth, time)?,
                _ => by_rbd(scene, of_rbd, depth, time)?,
            };
        }
        println!("  {pattern} {depth} round {}: {of_round:.0?}", round + 1);
        taken.push(of_round);
    }
    judge(pattern, depth, &taken)
}

/// Prints the figures of a load; returns the bars that it misses.
fn judge(pattern: &str, depth: u32, taken: &[[Measurement; 3]]) -> Result<Vec<String>> {
    let mut missed = Vec::new();
    for (at, client) in [(1, "fio's rbd engine"), (2, "rbd bench")] {
        let part = Spread::of(taken.iter().map(|one| one[0].iops / one[at].iops));
        let part = part.context("no round")?;
        let more = Spread::of(taken.iter().map(|one| one[0].mean_us - one[at].mean_us));
        let more = more.context("no round")?;
        println!(
            "{pattern} 4k, depth {depth}, TCP beside {client}: IOPS x {:.3} ({:.3} to {:.3}), \
             mean latency {:+.1} us ({:+.1} to {:+.1}), {} rounds",
            part.median, part.min, part.max, more.median, more.min, more.max, part.count
        );
        let (holds, bar) = match depth {
            1 => (more.median <= MOST_MORE_US, format!("at most {MOST_MORE_US} us more")),
            _ => (part.median >= LEAST_PART, format!("at least {LEAST_PART} of the IOPS")),
        };
        if !holds {
            missed.push(format!("{pattern} at depth {depth} beside {client}: {bar}"));
        }
    }
    Ok(missed)
}

fn seconds(time: Duration) -> String {
    time.as_secs().max(1).to_string()
}

/// What a report in fio's shape says.
fn measured(report: &str, pattern: &str) -> Result<Measurement> {
    // Notes come first.
    let report = report.get(report.find('{').context("no report")?..).unwrap_or_default();
    let report: Value = serde_json::from_str(report)?;
    let direction = if pattern == "randread" { "read" } else { "write" };
    let of = &report["jobs"][0][direction];
    let number = |value: &Value| value.as_f64().context("no number");
    Ok(Measurement { iops: number(&of["iops"])?, mean_us: number(&of["lat_ns"]["mean"])? / 1000.0 })
}

fn over_tcp(
    served: &RunningTarget<'_>,
    pattern: &str,
    depth: u32,
    time: Duration,
) -> Result<Measurement> {
    let (depth, time) = (depth.to_string(), seconds(time));
    let words = ["--rw", pattern, "--bs", "4k", "--iodepth", &depth, "--time_based", "--quiet"];
    let more = ["--runtime", &time, "--ramp_time", "1", "-o", "json"];
    let said = served.weft("bench", 1, &[&words[..], &more].concat())?;
    measured(&String::from_utf8_lossy(&said), pattern)
}

fn by_fio(scene: &Scene, pattern: &str, depth: u32, time: Duration) -> Result<Measurement> {
    let mut fio = Command::new("timeout");
    fio.args(["--kill-after=5", &(time + FIO_PATIENCE).as_secs().to_string(), "fio"]);
    fio.env("CEPH_CONF", scene.cluster.configuration());
    fio.args(["--name=rbd", "--ioengine=rbd", "--clientname=weft", "--pool=rbd", "--bs=4k"]);
    fio.arg(format!("--rbdname={IMAGE}")).arg(format!("--rw={pattern}"));
    fio.arg(format!("--iodepth={depth}")).arg(format!("--runtime={}", seconds(time)));
    fio.args(["--ramp_time=1", "--time_based", "--norandommap", "--output-format=json"]);
    let said = succeeded(&mut fio).context("fio's rbd engine failed, or did not end in time")?;
    measured(&said, pattern)
}

/// `rbd bench` has no time; it is told how much to do, and tells its rate.
fn by_rbd(scene: &Scene, of_rbd: &str, depth: u32, time: Duration) -> Result<Measurement> {
    let bench = |operations: f64| {
        let said = scene.cluster.rbd(&format!(
            "bench {IMAGE} --io-type {of_rbd} --io-pattern rand --io-size 4K --io-threads {depth} \
             --io-total {:.0}K",
            operations * 4.0
        ))?;
        let (_, rest) = said.rsplit_once("ops/sec:").with_context(|| said.clone())?;
        let rate = rest.split_whitespace().next().context("no rate")?;
        rate.parse::<f64>().with_context(|| said.clone())
    };
    // Some for the rate, as many as its clock of milliseconds needs; then the whole time.
    let some = 1024.0;
    let rate = bench(some)?;
    let iops = bench(some.max(rate * time.as_secs_f64()))?;
    Ok(Measurement { iops, mean_us: f64::from(depth) * 1e6 / iops })
}
