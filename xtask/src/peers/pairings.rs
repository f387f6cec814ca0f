//! Hosts and targets of either kind in one study: weft's and the kernel's, inside the guest.

use super::bench::Bench;
use super::{Step, Suite, step};
use crate::guest::Kernel;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;

pub(super) const SUITE: Suite = Suite {
    name: "pairings",
    script: "pairings.sh",
    kernel: Kernel::Release,
    forwards: false,
    modules: &[],
    setup,
    steps: STEPS,
};

const STEPS: &[Step] = &[
    step("measured", measured),
    step("study_killed", |bench| bench.guest("killed study").map(drop)),
    step("watchdog_killed", |bench| bench.guest("killed both").map(drop)),
];

fn setup(bench: &mut Bench) -> Result<()> {
    fs::copy(&bench.weft, bench.folder.join("weft"))?;
    Ok(())
}

/// All four pairings are measured, their records have what applies to them, and the page has them.
fn measured(bench: &mut Bench) -> Result<()> {
    bench.guest("pairings")?;
    let outcome: Value = serde_json::from_slice(&fs::read(bench.folder.join("outcome.json"))?)?;
    ensure!(outcome["measured"] == 4, "{outcome}");
    let folder = bench.folder.join("study");
    let lines = fs::read_to_string(folder.join("results.jsonl"))?;
    let mut seen = Vec::new();
    for line in lines.lines() {
        let record: Value = serde_json::from_str(line)?;
        if record["role"] != "plain" {
            continue;
        }
        let cell = &record["cell"];
        ensure!(record["status"]["is"] == "measured", "{cell}: {}", record["status"]);
        ensure!(record["connection"]["protocol"] == "tcp", "{cell}: {}", record["connection"]);
        let settings = &record["configuration"];
        let [host, target] = ["host_software", "target_software"]
            .map(|key| settings[key].as_str().unwrap_or_default().to_owned());
        let counted = !record["target"].is_null();
        ensure!(counted == (target == "weft"), "{cell}: statistics of the target: {counted}");
        let polls = settings.get("target_idle_poll_us").is_some();
        ensure!(polls == (target == "weft"), "{cell} has a setting that was not applied");
        let scheduled = settings["scheduler"] == "none";
        ensure!(scheduled == (host == "linux"), "{cell}: scheduler {}", settings["scheduler"]);
        let requests = record["read"]["requests"].as_u64().unwrap_or(0);
        println!("{cell}: {requests} requests");
        ensure!(requests > 10, "{cell}: {requests} requests");
        seen.push(format!("{host} {target}"));
    }
    seen.sort_unstable();
    let all = ["linux linux", "linux weft", "weft linux", "weft weft"];
    ensure!(seen == all, "pairings: {seen:?}");
    let page = fs::read_to_string(folder.join("report.html")).context("the report")?;
    ensure!(page.contains("the kernel's, started for the study"), "the page names no kernel");
    for word in ["host_software", "target_software", "linux"] {
        ensure!(page.contains(word), "the page has no {word}");
    }
    Ok(())
}
