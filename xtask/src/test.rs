//! `cargo xtask test`: all tests, the quick ones first.
//!
//! A stage that fails does not prevent the next, except that nothing runs a binary that does not
//! build.

use crate::arm;
use crate::ceph;
use crate::completion;
use crate::fio_plot;
use crate::fuzz;
use crate::instructions;
use crate::machines;
use crate::package;
use crate::packages;
use crate::pair;
use crate::peers::{self, Driver};
use crate::prometheus;
use crate::python::succeeded;
use crate::report::Report;
use crate::report_page;
use crate::scale;
use crate::security;
use crate::spdk;
use crate::supply;
use crate::tidy;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How much of the tests to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Without guests and browser.
    Quick,
    /// What CI runs.
    Normal,
    /// With the slower tests.
    All,
}

/// With this the lab's tests beside fio fail where it is missing.
const FIO_REQUIRED: (&str, &str) = ("WEFT_TEST_FIO_REQUIRED", "1");

/// The runs of the simulator with `--all`.
const MORE_SEEDS: (&str, &str) = ("WEFT_SEEDS", "0..1000");

/// What is tested has TLS, which takes a C compiler and some minutes to build, and multicast DNS.
pub(crate) const FEATURES: [&str; 2] = ["--features", "tls,mdns"];

/// The integration tests that use a driver of the reactor, and no process of their own. Others
/// simulate, compute or read.
const WITH_DRIVER: [&str; 3] = ["allocation", "serve", "suite"];

/// How long each fuzz target runs with `--all`.
const FUZZ_SECONDS: u64 = 60;

/// Runs the tests; false if any failed.
pub(crate) fn run(root: &Path, extent: Extent) -> Result<bool> {
    let mut report = Report::new();
    style(root, &mut report);
    report.announce("supply chain");
    supply::run(root, &mut report);

    report.announce("tests of the crates");
    let fio = extent != Extent::Quick && report.check("fio and its examples", need_fio);
    let fio: &[_] = if fio { &[FIO_REQUIRED] } else { &[] };
    let seeds: &[_] = if extent == Extent::All { &[MORE_SEEDS] } else { &[] };
    cargo_test(&mut report, "cargo test", of_workspace(root, &[fio, seeds].concat()))?;
    report.announce("those that have a driver, over epoll");
    let epoll = [&[("WEFT_DRIVER", "epoll")], fio].concat();
    let mut of_driver = of_workspace(root, &epoll);
    // The lab measures by what is tested without it. A smaller part of the packages would have
    // other features, and be built anew.
    of_driver
        .args(["--exclude", "weft-lab", "--lib"])
        .args(WITH_DRIVER.iter().flat_map(|name| ["--test", name]));
    cargo_test(&mut report, "cargo test over epoll", of_driver)?;

    instructions::test(root, &mut report);

    // Each harness also runs briefly among the tests of the crates.
    if extent == Extent::All {
        report.announce("fuzz targets");
        fuzz::all(root, &mut report, FUZZ_SECONDS);
    }
    if extent != Extent::Quick {
        report.announce("tests of the crates on Arm");
        arm::run(root, &mut report, extent == Extent::All)?;
        run_binary(root, &mut report, extent == Extent::All);
    }
    Ok(report.finish())
}

/// What needs no test to be run.
fn style(root: &Path, report: &mut Report) {
    report.announce("style and lints");
    report.check("format", || cargo(root, &["fmt", "--all", "--check"]));
    report.check("tidy", || {
        let faults = tidy::check(root)?;
        if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("\n")) }
    });
    report.check("clippy", || {
        let lints = ["--workspace", "--all-targets", "--", "-D", "warnings"];
        cargo(root, &[&["clippy"], &FEATURES[..], &lints].concat())
    });
    report.check("documentation", || {
        let mut command = cargo_command(root);
        command.args(["doc", "--workspace", "--no-deps", "--quiet"]).args(FEATURES);
        let status = command.env("RUSTDOCFLAGS", "-D warnings").status()?;
        if status.success() { Ok(()) } else { bail!("cargo doc: {status}") }
    });
}

/// The stages that run the binary beside programs and kernels of others.
fn run_binary(root: &Path, report: &mut Report, all: bool) {
    package::test(root, report);
    if all {
        // The static binary among them: it takes minutes, and rarely breaks.
        report.check("packages as shipped", || package::everything(root));
    }
    report.announce("1,000 hosts, 1,024 subsystems, 10,000 namespaces");
    scale::run(root, report);
    report.announce("SPDK's own clients");
    spdk::run(root, report);
    report.announce("completions");
    completion::run(root, report);
    report.announce("keys and TLS");
    security::run(root, report);
    report.announce("studies on several machines");
    machines::run(root, report, if all { machines::Which::All } else { machines::Which::Short });
    report.announce("Prometheus");
    prometheus::run(root, report);
    report.announce("a pair of targets");
    pair::run(root, report);
    report.announce("a Ceph cluster");
    ceph::test(root, report, all);
    report.announce("fio-plot");
    fio_plot::run(root, report);
    report.announce("the report page in a browser");
    report_page::run(root, report, &[]);
    report.announce("real peers");
    let drivers = [Driver::Uring, Driver::Epoll];
    peers::run(root, report, if all { &drivers } else { &drivers[..1] }, None);
}

/// fio and its examples, beside which the lab's tests put weft.
fn need_fio() -> Result<()> {
    packages::need(
        "tests put weft beside fio",
        &[("fio", "fio"), ("/usr/share/doc/fio/examples/fio-rand-RW.fio", "fio-examples")],
    )
}

/// Builds the binary for the tests that run it and returns its path; or the path in
/// `WEFT_BINARY`, for the test of another build.
pub(crate) fn build_binary(root: &Path) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("WEFT_BINARY") {
        return Ok(Path::new(&path).canonicalize()?);
    }
    // The one of the tests: alone it would have dependencies with other features, built anew.
    let of_tests = ["test", "--no-run", "--quiet", "--workspace", "--test", "binary"];
    cargo(root, &[&of_tests[..], &FEATURES].concat())?;
    let path = target_folder(root).join("debug/weft");
    if path.exists() { Ok(path) } else { bail!("cargo has built no {}", path.display()) }
}

/// Where cargo puts what it builds.
pub(crate) fn target_folder(root: &Path) -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    root.join(folder)
}

/// Runs cargo with its output on this terminal.
pub(crate) fn cargo(root: &Path, arguments: &[&str]) -> Result<()> {
    let status = cargo_command(root).args(arguments).status().context("cannot start cargo")?;
    if !status.success() {
        bail!("cargo {}: {status}", arguments.join(" "));
    }
    Ok(())
}

/// Cargo in the repository, without input.
pub(crate) fn cargo_command(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).stdin(Stdio::null());
    command
}

/// Makes sure that the compiler has the standard library for `target`.
pub(crate) fn need_target(root: &Path, target: &str) -> Result<()> {
    let has = || -> Result<bool> {
        let mut command = Command::new("rustc");
        let print = ["--print", "target-libdir", "--target", target];
        Ok(Path::new(succeeded(command.current_dir(root).args(print))?.trim()).exists())
    };
    if has()? {
        return Ok(());
    }
    let add = ["target", "add", target];
    succeeded(Command::new("rustup").current_dir(root).args(add)).with_context(|| {
        format!("this compiler has no standard library for {target}: rustup target add {target}")
    })?;
    if has()? { Ok(()) } else { bail!("rustup has installed no standard library for {target}") }
}

/// `cargo test` of all packages.
fn of_workspace(root: &Path, variables: &[(&str, &str)]) -> Command {
    let mut command = cargo_command(root);
    command.args(["test", "--workspace", "--no-fail-fast"]).args(FEATURES);
    command.envs(variables.iter().copied());
    command
}

/// Runs a `cargo test`, prints all but the tests that pass, and adds up the harness' counts.
pub(crate) fn cargo_test(report: &mut Report, name: &str, mut command: Command) -> Result<()> {
    // Most tests of sockets and processes wait: more of them than processors run at a time.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    command.env("RUST_TEST_THREADS", (3 * processors).to_string());
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let mut failures = 0;
    for line in lines.map_while(Result::ok) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            report.add(count(counts, "passed"), count(counts, "ignored"));
            println!("{counts}");
        } else if let Some(test) = line.strip_prefix("test ").and_then(|l| l.strip_suffix("FAILED"))
        {
            failures += 1;
            report.add_failure(&format!("{name}: {}", test.trim_end_matches([' ', '.'])));
            println!("{line}");
        } else if !line.is_empty() && !line.ends_with("... ok") && !line.starts_with("running ") {
            println!("{line}");
        }
    }
    let status = child.wait()?;
    if !status.success() && failures == 0 {
        report.add_failure(&format!("{name}: {status}"));
    }
    Ok(())
}

/// The number before `word` in the line "ok. 3 passed; 0 failed; 1 ignored; …".
fn count(text: &str, word: &str) -> usize {
    let words: Vec<&str> = text.split([' ', ';']).collect();
    let at = words.iter().position(|found| *found == word);
    at.and_then(|at| words.get(at.checked_sub(1)?)?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_the_harness_are_parsed() {
        let line =
            "ok. 13 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s";
        assert_eq!(count(line, "passed"), 13);
        assert_eq!(count(line, "failed"), 2);
        assert_eq!(count(line, "ignored"), 1);
        assert_eq!(count("nonsense", "passed"), 0);
    }
}
