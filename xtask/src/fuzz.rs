//! The fuzz targets in `fuzz/`, built with coverage and run by libFuzzer.
//!
//! The compiler's stable flags are enough for coverage, so neither a nightly compiler nor
//! cargo-fuzz is needed, only a C++ compiler for libFuzzer. The same harness functions run as
//! property tests under `cargo test`, where not even that is there.

use crate::report::Report;
use crate::test::target_folder;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// What cargo-fuzz tells the compiler, without the sanitizer: our crates are safe code.
const FLAGS: &str = "--cfg fuzzing -Cdebug-assertions -Cpasses=sancov-module -Ccodegen-units=1 \
     -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
     -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Named, so that the flags are not for build scripts and macros.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Fuzzes one target for so many seconds, beginning with what earlier runs have found.
pub(crate) fn run(root: &Path, target: &str, seconds: u64) -> Result<()> {
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
        bail!("{said}\n{target}: {status}; the input that did it is in {}", artifacts.display());
    }
    println!("{target}: {}", said.lines().last().unwrap_or_default());
    Ok(())
}

/// Runs every target for a while, or says why not.
pub(crate) fn all(root: &Path, report: &mut Report, seconds: u64) {
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
