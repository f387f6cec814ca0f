//! `cargo xtask test`: all tests, the quick ones first.
//!
//! A stage that fails does not prevent the next, except that nothing runs a binary that does not
//! build.

use crate::arm;
use crate::cargo::{FEATURES, cargo, cargo_command, cargo_test};
use crate::ceph;
use crate::completion;
use crate::fio_plot;
use crate::fuzz;
use crate::instructions;
use crate::lines;
use crate::machines;
use crate::package;
use crate::packages;
use crate::pair;
use crate::peers::{self, Driver};
use crate::prometheus;
use crate::report::Report;
use crate::report_page;
use crate::scale;
use crate::security;
use crate::spdk;
use crate::supply;
use crate::tidy;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;

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

/// The integration tests that use a driver of the reactor, and no process of their own. Others
/// simulate, compute or read.
const WITH_DRIVER: [&str; 3] = ["allocation", "serve", "suite"];

/// How long each fuzz target runs with `--all`.
const FUZZ_SECONDS: u64 = 60;

/// Runs the tests; false if any failed.
pub(crate) fn run(root: &Path, extent: Extent) -> Result<bool> {
    let mut report = Report::new();
    style(root, &mut report);
    report.announce("lines");
    report.check("lines by crate", || lines::run(root, None));
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

/// `cargo test` of all packages.
fn of_workspace(root: &Path, variables: &[(&str, &str)]) -> Command {
    let mut command = cargo_command(root);
    command.args(["test", "--workspace", "--no-fail-fast"]).args(FEATURES);
    command.envs(variables.iter().copied());
    command
}
