//! `cargo xtask test`: all tests, the quick ones first.
//!
//! A stage that fails does not prevent the next, except that nothing runs a binary that does not
//! build.

use crate::cargo::{self, EPOLL, FEATURES, TestProgram, cargo, cargo_command};
use crate::report::Report;
use crate::{docs, fuzz, instructions, lines, package, packages, release, supply, tidy};
use anyhow::{Result, bail};
use std::path::Path;

/// How much of the tests to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
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

/// With this the steps of documents that take minutes are run.
const SLOW_STEPS: (&str, &str) = ("WEFT_TEST_SLOW_STEPS", "1");

/// How many test programs run at the same time: most tests wait.
const PROGRAMS_AT_A_TIME: usize = 2;

/// How long each fuzz target runs with `--all`.
const FUZZ_SECONDS: u64 = 60;

/// Runs the tests; false if any failed.
pub fn run(root: &Path, extent: Extent) -> Result<bool> {
    let mut report = Report::begin();
    style(root, &mut report, extent == Extent::All);
    report.announce("lines");
    report.check("lines by crate", || lines::run(root, None));
    report.announce("supply chain");
    supply::run(root, &mut report);

    report.announce("tests of the crates");
    let fio = extent != Extent::Quick && report.check("fio and its examples", need_fio);
    let fio: &[_] = if fio { &[FIO_REQUIRED] } else { &[] };
    let slow: &[_] = if extent == Extent::All { &[MORE_SEEDS, SLOW_STEPS] } else { &[] };
    run_tests(root, &mut report, &[fio, slow].concat());

    if extent == Extent::All {
        // What is compiled for it alone, which takes minutes.
        instructions::test(root, &mut report);
        // Each harness also runs briefly among the tests of the crates.
        report.announce("fuzz targets");
        fuzz::all(root, &mut report, FUZZ_SECONDS);
        report.check("crates as published", || supply::publish(root));
        report.check("a release, twice", || release::test(root));
    }
    if extent != Extent::Quick {
        package::test(root, &mut report, extent == Extent::All);
        let mut beside = cargo::peers(root);
        beside.arg("beside").args((extent == Extent::All).then_some("--all"));
        report.follow("beside programs and kernels of others", &mut beside)?;
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
    let (alone, others) = programs.iter().partition::<Vec<_>, _>(|program| program.measures());
    let of = |programs: Vec<_>| programs.into_iter().map(|program| (program, variables));
    let run = |report: &mut Report, (program, variables): (&TestProgram, &[_])| {
        program.run(report, variables);
    };
    report.spread(1, of(alone).collect(), run);
    report.spread(PROGRAMS_AT_A_TIME, of(others).chain(with_driver).collect(), run);
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
        // mdBook is built from its source, once.
        report.check("site of the documents", || docs::build(root).map(drop));
    }
}

/// fio and its examples, beside which the lab's tests put weft.
fn need_fio() -> Result<()> {
    packages::need(
        "tests put weft beside fio",
        &[("fio", "fio"), ("/usr/share/doc/fio/examples/fio-rand-RW.fio", "fio-examples")],
    )
}
