//! Runs weft and fio with the same job.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// The result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Measurement {
    pub(crate) iops: f64,
    pub(crate) least_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// weft and fio.
#[derive(Debug)]
pub(crate) struct Program {
    weft: PathBuf,
    cpu: usize,
}

impl Program {
    pub(crate) fn new(weft: PathBuf, cpu: usize) -> Self {
        Self { weft, cpu }
    }

    /// Checks that fio is installed, and prints its version.
    pub(crate) fn check(&self) -> Result<()> {
        let output = Command::new("fio")
            .arg("--version")
            .output()
            .context("fio cannot be run (apt-get install fio)")?;
        print!("{}", String::from_utf8_lossy(&output.stdout));
        Ok(())
    }

    /// Reads 4 KiB blocks at random with weft.
    pub(crate) fn ours(
        &self,
        device: &str,
        depth: u32,
        polling: &str,
        seconds: u32,
    ) -> Result<Measurement> {
        let mut command = Command::new(&self.weft);
        command
            .args(["bench", device, "--rw", "randread", "--bs", "4k", "--quiet", "-o", "json"])
            .args(["--driver", "uring", "--polling", polling, "--ramp-time", "500ms"])
            .args(["--iodepth", &depth.to_string(), "--runtime", &seconds.to_string()])
            .args(["--time_based", "--norandommap"])
            .args(["--cpus", &self.cpu.to_string()]);
        said(&mut command, "lat_ns")
    }

    /// The same with fio: the same kernel interface, without page cache, sleeping until
    /// completions, blocks drawn independently of each other, and latency from the start of a
    /// request's submission.
    pub(crate) fn fio(&self, path: &str, depth: u32, seconds: u32) -> Result<Measurement> {
        let mut command = Command::new("fio");
        command
            .args(["--name=agreement", "--ioengine=io_uring", "--direct=1", "--thread"])
            .args(["--rw=randread", "--bs=4k", "--norandommap", "--random_generator=tausworthe64"])
            .args(["--time_based", "--ramp_time=500ms", "--lat_percentiles=1"])
            .args(["--randrepeat=0", "--output-format=json"])
            .arg(format!("--filename={path}"))
            .arg(format!("--iodepth={depth}"))
            .arg(format!("--runtime={seconds}"))
            .arg(format!("--cpus_allowed={}", self.cpu));
        said(&mut command, "lat_ns")
    }
}

fn said(command: &mut Command, latency: &str) -> Result<Measurement> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // fio may print messages before the JSON.
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.find('{').and_then(|at| text.get(at..)).unwrap_or_default();
    let report: Value = serde_json::from_str(json).with_context(|| format!("{command:?}"))?;
    measured(&report, latency).with_context(|| format!("{command:?}: values are missing"))
}

/// The values of reads in fio's JSON.
fn measured(report: &Value, latency: &str) -> Option<Measurement> {
    let read = &report["jobs"][0]["read"];
    let latency = &read[latency];
    let us = |value: &Value| value.as_f64().map(|ns| ns / 1e3);
    Some(Measurement {
        iops: read["iops"].as_f64()?,
        least_us: us(&latency["min"])?,
        p50_us: us(&latency["percentile"]["50.000000"])?,
        p99_us: us(&latency["percentile"]["99.000000"])?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_missing_value_is_not_zero() {
        let percentile = json!({ "50.000000": 2000, "99.000000": 9000 });
        let lat_ns = json!({ "min": 1000, "percentile": percentile });
        let report = json!({ "jobs": [{ "read": { "iops": 10.5, "lat_ns": lat_ns } }] });
        let expected = Measurement { iops: 10.5, least_us: 1.0, p50_us: 2.0, p99_us: 9.0 };
        assert_eq!(measured(&report, "lat_ns"), Some(expected));
        assert_eq!(measured(&report, "clat_ns"), None);
        assert_eq!(measured(&json!({}), "lat_ns"), None);
    }
}
