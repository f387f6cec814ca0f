//! The fuzz targets in `fuzz/`, built with coverage and run by libFuzzer.
//!
//! The flags of a stable compiler suffice for coverage, so that only a C++ compiler is needed for
//! libFuzzer, not a nightly compiler or cargo-fuzz. The same harness functions also run as
//! property tests under `cargo test`.

use crate::cargo::target_folder;
use crate::report::Report;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The flags that cargo-fuzz passes to the compiler, without the sanitizer.
const FLAGS: &str = "--cfg fuzzing -Cdebug-assertions -Cpasses=sancov-module -Ccodegen-units=1 \
     -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
     -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Given explicitly, so that the flags do not apply to build scripts and macros.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Fuzzes one target for so many seconds, starting with the corpus of earlier runs.
pub fn run(root: &Path, target: &str, seconds: u64) -> Result<()> {
    build(root)?;
    let folder = target_folder(root).join("fuzz");
    let corpus = folder.join("corpus").join(target);
    let artifacts = folder.join("artifacts").join(target);
    fs::create_dir_all(&corpus)?;
    fs::create_dir_all(&artifacts)?;
    let mut command = Command::new(folder.join(PLATFORM).join("release").join(target));
    command.arg(&corpus);
    let seeds = root.join("fuzz/corpus").join(target);
    if seeds.exists() {
        command.arg(seeds);
    }
    command.arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    command.args(["-timeout=20", "-rss_limit_mb=4096"]);
    let log = folder.join(format!("{target}.log"));
    let file = fs::File::create(&log)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let status = command.status().with_context(|| format!("cannot start {target}"))?;
    let said = fs::read_to_string(&log).unwrap_or_default();
    if !status.success() {
        bail!("{said}\n{target}: {status}; the failing input is in {}", artifacts.display());
    }
    println!("{target}: {}", said.lines().last().unwrap_or_default());
    Ok(())
}

/// Runs every target for some time, or reports why it cannot.
pub fn all(root: &Path, report: &mut Report, seconds: u64) {
    let targets = match targets(root) {
        Ok(targets) => targets,
        Err(error) => return report.skip("fuzz", 1, &format!("{error:#}")),
    };
    if Command::new("c++").arg("--version").output().is_err() {
        let reason = "libFuzzer needs a C++ compiler (apt-get install g++)";
        return report.skip("fuzz", targets.len(), reason);
    }
    if report.check("fuzz/build", || build(root)) {
        for target in targets {
            report.check(&format!("fuzz/{target}"), || run(root, &target, seconds));
        }
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

fn build(root: &Path) -> Result<()> {
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--release", "--bins", "--target", PLATFORM, "--target-dir"])
        .arg(target_folder(root).join("fuzz"))
        .current_dir(root.join("fuzz"))
        .env("RUSTFLAGS", FLAGS)
        .stdin(Stdio::null())
        .status()
        .context("cannot start cargo")?;
    if status.success() { Ok(()) } else { bail!("the fuzz targets do not build: {status}") }
}
