//! Hosts and targets of either kind in one study: weft's and the kernel's, inside the guest.

use super::bench::Bench;
use super::suite::{Suite, SuiteTest, long, step};
use crate::guest::Kernel;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::Path;

pub(super) const SUITE: Suite = Suite {
    name: "pairings",
    script: "pairings.sh",
    kernel: Kernel::Release,
    forwards: false,
    modules: &[],
    setup,
    steps: STEPS,
};

const STEPS: &[SuiteTest] = &[
    step("measured", |bench| {
        bench.guest("pairings")?;
        all_four(bench, "study", "outcome.json", "tcp")
    }),
    long("agents", |bench| {
        bench.guest("agents")?;
        all_four(bench, "agents", "agents.json", "tcp")
    }),
    long("polled", polled),
    long("study_killed", |bench| bench.guest("killed study").map(drop)),
    long("watchdog_killed", |bench| bench.guest("killed both").map(drop)),
];

fn setup(bench: &mut Bench) -> Result<()> {
    bench.give_weft()?;
    Ok(())
}

/// All four pairings are measured, their records have what applies to them, and the page has them.
pub(super) fn all_four(bench: &Bench, study: &str, outcome: &str, protocol: &str) -> Result<()> {
    let is_tcp = protocol == "tcp";
    let outcome: Value = serde_json::from_slice(&fs::read(bench.folder.join(outcome))?)?;
    ensure!(outcome["measured"] == 4, "{outcome}");
    let folder = bench.folder.join(study);
    let mut seen = Vec::new();
    for record in records(&folder)? {
        let cell = &record["cell"];
        let ends = &record["connection"];
        ensure!(ends["protocol"] == protocol, "{cell}: {ends}");
        let read_back = [&ends["tos"], &ends["so_priority"], &ends["io_queues"]];
        let marks = is_tcp.then_some((8, 3)).unzip();
        ensure!(read_back.map(Value::as_u64) == [marks.0, marks.1, Some(1)], "{cell}: {ends}");
        let settings = &record["configuration"];
        let [host, target] = ["host_software", "target_software"]
            .map(|key| settings[key].as_str().unwrap_or_default().to_owned());
        let thread = record["target"]["threads"][0].clone();
        let used =
            thread["user_s"].as_f64().unwrap_or(0.0) + thread["system_s"].as_f64().unwrap_or(0.0);
        ensure!(used > 0.0, "{cell}: the target's CPU time: {}", record["target"]);
        let marks = record["marks"].as_array().context("no marks")?;
        let of_machine = marks.iter().any(|mark| mark == "target-machine");
        ensure!(of_machine == (target == "linux"), "{cell}: marks: {marks:?}");
        let parts = record["parts"].as_array().map_or(0, Vec::len);
        ensure!(parts == usize::from(study == "agents"), "{cell}: {parts} parts");
        let polls = settings.get("target_idle_poll_us").is_some();
        ensure!(polls == is_tcp, "{cell}: {settings}");
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

/// The plain records of a study, all of which were measured.
pub(super) fn records(folder: &Path) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    for line in fs::read_to_string(folder.join("results.jsonl"))?.lines() {
        let record: Value = serde_json::from_str(line)?;
        if record["role"] == "plain" {
            ensure!(
                record["status"]["is"] == "measured",
                "{}: {}",
                record["cell"],
                record["status"]
            );
            found.push(record);
        }
    }
    Ok(found)
}

/// Polled queues are used where they are, and a device without them gets a sentence.
fn polled(bench: &mut Bench) -> Result<()> {
    bench.guest("polled")?;
    let found = records(&bench.folder.join("polled"))?;
    ensure!(found.len() == 2, "{} records", found.len());
    for record in &found {
        let settings = &record["configuration"];
        let polls = settings["nr_poll_queues"] == 1;
        ensure!((settings["hipri"] == "on") == polls, "{settings}");
        let ends = &record["connection"];
        let queues = if polls { 2 } else { 1 };
        ensure!(ends["io_queues"] == queues, "{}: {ends}", record["cell"]);
        let requests = record["read"]["requests"].as_u64().unwrap_or(0);
        println!("{}: {requests} reads", record["cell"]);
        ensure!(requests > 10, "{}: {requests} reads", record["cell"]);
    }
    let said = fs::read(bench.folder.join("polled-local.json"))?;
    let said: Value = serde_json::from_slice(&said)?;
    ensure!(said["jobs"][0]["read"]["total_ios"] == 5000, "{said}");
    let refused = fs::read_to_string(bench.folder.join("polled-refused"))?;
    let why = "/dev/slept has no queues that can be polled (hipri)";
    ensure!(refused.contains(why) && refused.trim_end().lines().count() == 1, "{refused}");
    Ok(())
}
