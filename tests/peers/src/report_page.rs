//! The report page in a browser.
//!
//! Chromium and its driver are the distribution's. If they are missing they are installed, which
//! needs root; without root the stage fails and says what to install. It is never skipped.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use xtask::report::Report;
use xtask::{cargo, packages};

/// The programs, and the Debian packages that hold them.
const PROGRAMS: &[(&str, &str)] = &[("chromium", "chromium"), ("chromedriver", "chromium-driver")];

/// Opens pages in Chromium and counts what was checked.
pub(crate) fn run(root: &Path, report: &mut Report, arguments: &[String]) {
    if report.check("chromium and chromedriver", || {
        packages::need("the report page is tested in Chromium", PROGRAMS)
    }) && report.check("build of the page's tests", || build(root))
        && let Err(error) = look(root, report, arguments)
    {
        report.add_failure(&format!("report page: {error:#}"));
    }
}

fn build(root: &Path) -> Result<()> {
    // That of the tests: alone it would have dependencies with other features, built anew.
    let of_tests = ["test", "--no-run", "--quiet", "--workspace", "--test", "page"];
    cargo::cargo(root, &[&of_tests[..], &cargo::FEATURES].concat())
}

/// Runs the checks; each prints one line with its result.
fn look(root: &Path, report: &mut Report, arguments: &[String]) -> Result<()> {
    let weft = cargo::build_binary(root)?;
    let program = cargo::target_folder(root).join("debug/report-page");
    let mut command = Command::new(&program);
    command.arg("--weft").arg(weft).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
    let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let (mut passed, mut failed) = (0, 0);
    for line in lines.map_while(Result::ok) {
        println!("{line}");
        if line.starts_with("PASS ") {
            passed += 1;
        } else if let Some(check) = line.strip_prefix("FAIL ") {
            failed += 1;
            report.add_failure(&format!("report page: {check}"));
        }
    }
    report.add(passed, 0);
    let status = child.wait()?;
    if !status.success() && failed == 0 {
        bail!("{status}");
    }
    // A program without checks has not passed.
    if passed == 0 { bail!("there were no checks") } else { Ok(()) }
}
