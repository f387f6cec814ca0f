//! Studies over links that a site file names.

use super::{Bench, NAMES, name};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

impl Bench {
    /// Writes the site of target and first load: two links, and one whose ends are on different
    /// ones.
    fn site(&self) -> Result<String> {
        let machine = |machine: &str, of: &str, host: u32, crossed: u32| {
            let place = format!("exec:ip netns exec {} {} agent", name(of), self.weft.display());
            format!(
                "[machines.{machine}]\nplace = \"{place}\"\nlinks = {{ \
                 fast = \"10.77.1.{host}\", slow = \"10.77.3.{host}\", \
                 crossed = \"10.77.{crossed}.{host}\" }}\n"
            )
        };
        let path = self.path("site.toml")?;
        let machines =
            [machine("server", NAMES[0], 1, 1), machine("client", NAMES[1], 2, 3)].concat();
        fs::write(&path, format!("target = \"server\"\nloads = [\"client\"]\n{machines}"))?;
        Ok(path)
    }
}

/// The records of a run.
fn records(out: &str) -> Result<Vec<Value>> {
    let text = fs::read_to_string(Path::new(out).join("results.jsonl"))?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// The only sentence that a command says, which has failed.
fn refusal(command: &mut Command) -> Result<String> {
    let said = command.output()?;
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    ensure!(!said.status.success(), "it did not fail");
    ensure!(text.trim_end().lines().count() == 1, "not one sentence: {text}");
    Ok(text)
}

pub(super) fn links(bench: &Bench) -> Result<()> {
    let (site, out) = (bench.site()?, bench.path("out")?);
    let axes = "transport = [\"tcp@fast\", \"tcp@slow\", \"tcp@absent\", \"rdma@fast\"]";
    crate::python::succeeded(&mut bench.study_of(axes, &out, &["--site", &site])?)?;
    let records = records(&out)?;
    let of = |transport: &str| {
        let mut found = records.iter();
        found
            .find(|record| record["configuration"]["transport"] == transport)
            .with_context(|| format!("no record of {transport}"))
    };
    for (transport, link, network) in [("tcp@fast", "fast", 1), ("tcp@slow", "slow", 3)] {
        let record = of(transport)?;
        ensure!(record["status"]["is"] == "measured", "{transport}: {}", record["status"]);
        let connection = &record["connection"];
        ensure!(connection["link"] == link && connection["protocol"] == "tcp", "{connection}");
        for (end, host) in [("target", 1), ("host", 2)] {
            let address = connection[end].as_str().unwrap_or_default();
            let expected = format!("10.77.{network}.{host}:");
            ensure!(address.starts_with(&expected), "{connection}");
        }
        ensure!(record["read"]["requests"].as_u64() > Some(0), "{record}");
        let command = record["command"].as_str().unwrap_or_default();
        ensure!(command.contains(&format!("--site {site}")), "{command}");
    }
    for (transport, reason) in
        [("tcp@absent", "no link absent"), ("rdma@fast", "no RDMA device has the address")]
    {
        let status = &of(transport)?["status"];
        let said = status["reason"].as_str().unwrap_or_default();
        ensure!(status["is"] == "skipped" && said.contains(reason), "{status}");
    }
    let axes = "transport = [\"tcp@crossed\"]";
    let said = refusal(&mut bench.study_of(axes, &bench.path("no")?, &["--site", &site])?)?;
    ensure!(said.contains("crossed has its ends in two networks, 10.77.1.1/24 at"), "{said}");
    Ok(())
}
