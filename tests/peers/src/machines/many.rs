//! Many agents on one machine.

use super::bench::Bench;
use super::site::records;
use anyhow::{Context, Result, ensure};
use xtask::python::succeeded;

const AGENTS: usize = 64;

/// The rate of each, and for how long it is measured after how long.
const IOPS: u64 = 200;
const RUNTIME_MS: u64 = 1000;
const RAMP_MS: u64 = 300;

/// Each of them makes its requests at the same time as the others; how long a cell takes beyond its
/// time is printed.
pub(super) fn agents(bench: &Bench) -> Result<()> {
    let out = bench.path("out")?;
    let loads = vec!["here"; AGENTS].join(",");
    let places = ["--target-on", "here", "--load-on", &loads, "--no-site", "--repeats", "4"];
    let axes = format!("transport = [\"tcp\"]\nrate_iops = [{IOPS}]");
    succeeded(&mut bench.study_of(&axes, &out, &places)?)?;
    let mut found = records(&out)?;
    found.retain(|record| record["role"] == "plain");
    ensure!(found.len() >= 4, "{} records", found.len());
    let began = |record: &serde_json::Value| record["started_at_ms"].as_u64().unwrap_or(0);
    for record in &found {
        ensure!(record["status"]["is"] == "measured", "{}", record["status"]);
        let parts = record["parts"].as_array().context("no parts")?;
        ensure!(parts.len() == AGENTS, "{} parts", parts.len());
        let of = |part: &serde_json::Value| part["requests"].as_u64().unwrap_or(0);
        ensure!(parts.iter().all(|part| of(part) > 0), "{parts:?}");
        let all: u64 = parts.iter().map(of).sum();
        ensure!(record["read"]["requests"] == all, "{}", record["read"]);
        let fairness = &record["values"]["fairness"];
        println!("{AGENTS} loads: {all} requests, fairness {fairness}");
    }
    found.sort_by_key(began);
    let beyond: Vec<u64> = found
        .windows(2)
        .map(|pair| (began(&pair[1]) - began(&pair[0])).saturating_sub(RUNTIME_MS + RAMP_MS))
        .collect();
    let (first, others) = beyond.split_first().context("one cell")?;
    println!(
        "a cell of {RAMP_MS} ms of ramp and {RUNTIME_MS} ms takes {} to {} ms more; the first one, \
         which starts the target and fills its memory, {first} ms",
        others.iter().min().context("two cells")?,
        others.iter().max().context("two cells")?
    );
    Ok(())
}
