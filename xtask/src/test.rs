//! `cargo xtask test`: all tests, the quick ones first.
//!
//! A stage that fails does not prevent the next, except that nothing runs a binary that does not
//! build.

use crate::arm;
use crate::cargo::{EPOLL, FEATURES, TestProgram, cargo, cargo_command};
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

/// How many test programs run at the same time: most tests wait.
const PROGRAMS_AT_A_TIME: usize = 2;

/// How long each fuzz target runs with `--all`.
const FUZZ_SECONDS: u64 = 60;

/// Runs the tests; false if any failed.
pub(crate) fn run(root: &Path, extent: Extent) -> Result<bool> {
    let mut report = Report::new();
    style(root, &mut report, extent == Extent::All);
    report.announce("lines");
    report.check("lines by crate", || lines::run(root, None));
    report.announce("supply chain");
    supply::run(root, &mut report);

    report.announce("tests of the crates");
    let fio = extent != Extent::Quick && report.check("fio and its examples", need_fio);
    let fio: &[_] = if fio { &[FIO_REQUIRED] } else { &[] };
    let seeds: &[_] = if extent == Extent::All { &[MORE_SEEDS] } else { &[] };
    run_tests(root, &mut report, &[fio, seeds].concat());

    if extent == Extent::All {
        // What is compiled for it alone, which takes minutes.
        instructions::test(root, &mut report);
        // Each harness also runs briefly among the tests of the crates.
        report.announce("fuzz targets");
        fuzz::all(root, &mut report, FUZZ_SECONDS);
        report.announce("tests of the crates on Arm");
        arm::run(root, &mut report, true)?;
        report.check("packages as shipped", || package::everything(root));
    }
    if extent != Extent::Quick {
        run_binary(root, &mut report, extent == Extent::All);
    }
    Ok(report.finish())
}

/// The tests of all packages: each program over io_uring, and over epoll if it has a driver.
fn run_tests(root: &Path, report: &mut Report, variables: &[(&str, &str)]) {
    let mut programs = Vec::new();
    report.check("build of the tests", || {
        programs = TestProgram::build(root)?;
        Ok(())
    });
    let epoll = [variables, &[EPOLL]].concat();
    let with_driver = programs.iter().filter(|program| program.has_driver());
    let with_driver = with_driver.map(|program| (program, &epoll[..]));
    let jobs = programs.iter().map(|program| (program, variables)).chain(with_driver).collect();
    report.spread(PROGRAMS_AT_A_TIME, jobs, |report, (program, variables)| {
        program.run(report, variables);
    });
    let mut documented = cargo_command(root);
    documented.args(["test", "--workspace", "--doc", "--quiet"]).args(FEATURES);
    report.check("tests in documentation", || {
        let status = documented.status()?;
        if status.success() { Ok(()) } else { bail!("cargo test --doc: {status}") }
    });
}

/// What needs no test to be run.
fn style(root: &Path, report: &mut Report, all: bool) {
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
    if all {
        // It compiles every crate once more.
        report.check("documentation", || {
            let mut command = cargo_command(root);
            command.args(["doc", "--workspace", "--no-deps", "--quiet"]).args(FEATURES);
            let status = command.env("RUSTDOCFLAGS", "-D warnings").status()?;
            if status.success() { Ok(()) } else { bail!("cargo doc: {status}") }
        });
    }
}

/// The stages that run the binary beside programs and kernels of others. Those of kernels have a
/// thread of their own: they wait for their guests, and those of programs for their timers.
fn run_binary(root: &Path, report: &mut Report, all: bool) {
    package::test(root, report, all);
    report.announce("1,000 hosts, 1,024 subsystems, 10,000 namespaces");
    scale::run(root, report);
    let [mut programs, mut kernels] = [report.beside(), report.beside()];
    std::thread::scope(|scope| {
        scope.spawn(|| run_programs(root, &mut programs, all));
        kernels.announce("real peers");
        let drivers = [Driver::Uring, Driver::Epoll];
        peers::run(root, &mut kernels, if all { &drivers } else { &drivers[..1] }, None);
    });
    report.merge(programs);
    report.merge(kernels);
}

/// The stages that run the binary beside programs of others.
fn run_programs(root: &Path, report: &mut Report, all: bool) {
    report.announce("a Ceph cluster");
    ceph::test(root, report, all);
    report.announce("studies on several machines");
    machines::run(root, report, if all { machines::Which::All } else { machines::Which::Short });
    report.announce("SPDK's own clients");
    spdk::run(root, report);
    report.announce("completions");
    completion::run(root, report);
    report.announce("keys and TLS");
    security::run(root, report);
    report.announce("Prometheus");
    prometheus::run(root, report);
    report.announce("a pair of targets");
    pair::run(root, report);
    report.announce("the report page in a browser");
    let arguments = if all { Vec::new() } else { vec!["--brief".to_owned()] };
    report_page::run(root, report, &arguments);
    if all {
        report.announce("fio-plot");
        fio_plot::run(root, report);
    }
}

/// fio and its examples, beside which the lab's tests put weft.
fn need_fio() -> Result<()> {
    packages::need(
        "tests put weft beside fio",
        &[("fio", "fio"), ("/usr/share/doc/fio/examples/fio-rand-RW.fio", "fio-examples")],
    )
}
