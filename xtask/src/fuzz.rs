//! The fuzz targets in `fuzz/`, which need a nightly compiler and cargo-fuzz.

use crate::report::Report;
use crate::test::target_folder;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Fuzzes one target for so many seconds.
pub(crate) fn run(root: &Path, target: &str, seconds: u64) -> Result<()> {
    available()?;
    let status = Command::new("cargo")
        .args(["+nightly", "fuzz", "run", "--target-dir"])
        .arg(target_folder(root).join("fuzz"))
        .args([target, "--", &format!("-max_total_time={seconds}"), "-verbosity=0"])
        .current_dir(root.join("fuzz"))
        .stdin(Stdio::null())
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("{target}: {status}; the input that did it is in fuzz/artifacts/{target}");
    }
    Ok(())
}

/// Runs every target for a short while, or says why not. The same harness functions run as
/// property tests under `cargo test`, with or without a nightly compiler.
pub(crate) fn smoke(root: &Path, report: &mut Report, seconds: u64) {
    let targets = match targets(root) {
        Ok(targets) => targets,
        Err(error) => return report.skip("fuzz", 1, &format!("{error:#}")),
    };
    if let Err(error) = available() {
        return report.skip("fuzz", targets.len(), &format!("{error:#}"));
    }
    for target in targets {
        report.check(&format!("fuzz/{target}"), || run(root, &target, seconds));
    }
}

/// The names of the fuzz targets.
fn targets(root: &Path) -> Result<Vec<String>> {
    let mut targets = Vec::new();
    for entry in fs::read_dir(root.join("fuzz/fuzz_targets")).context("fuzz/fuzz_targets")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        targets.extend(name.strip_suffix(".rs").map(str::to_owned));
    }
    targets.sort();
    Ok(targets)
}

fn available() -> Result<()> {
    let output = Command::new("cargo").args(["+nightly", "fuzz", "--version"]).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        _ => bail!(
            "needs `rustup toolchain install nightly` and `cargo install cargo-fuzz --locked`"
        ),
    }
}
