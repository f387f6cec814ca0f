//! Developers' tasks of this repository: `cargo xtask --help`.

use anyhow::{Context, Result};
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use xtask::report::Report;
use xtask::test::Extent;
use xtask::{bench, cargo, docs, fuzz, instructions, lines, package, release, supply, test, tidy};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Developers' tasks of weft", after_help = MORE)]
enum Task {
    /// Run all tests; the first run downloads and prepares a Linux guest
    Test {
        /// Leave out tests with real peers, which boot guests, and tests in a browser
        #[arg(long)]
        quick: bool,
        /// Include the slower tests
        #[arg(long, conflicts_with = "quick")]
        all: bool,
    },
    /// Measure the target against plain TCP, row by row of docs/performance.md
    Bench(bench::Options),
    /// Count the protocol's instructions and compare them with the record
    Instructions {
        /// Record them instead
        #[arg(long)]
        record: bool,
    },
    /// Check the rules that neither compiler nor clippy check
    Tidy,
    /// Count lines of code, of comments and of tests by crate
    Lines {
        /// And the code's at this commit
        #[arg(long, value_name = "COMMIT")]
        against: Option<String>,
    },
    /// Check licences and sources of what is linked (deny.toml)
    Supply,
    /// Build the documents as a site, and check its links
    Docs,
    /// Build packages, serve from each of them, and write their SHA256SUMS
    Package(package::Options),
    /// Make everything that the page of a release needs, and install from it
    Release(release::Options),
    /// Fuzz one target of fuzz/
    Fuzz {
        target: String,
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// One of the tests beside programs and kernels of others, or a guest of theirs
    #[command(external_subcommand)]
    Peers(Vec<String>),
}

/// The commands of the other program.
const MORE: &str = "Tests beside programs and kernels of others (tests/peers), each by its name: \
    agreement, arm, ceph, completion, fio-plot, machines, page, pair, peers, prometheus, scale, \
    security, spdk; and guest, which runs a Linux kernel in a virtual machine";

fn main() -> ExitCode {
    run(Task::parse()).unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::from(126)
    })
}

fn run(task: Task) -> Result<ExitCode> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no workspace")?;
    let other = std::env::var_os(cargo::ROOT).map(PathBuf::from);
    let root = other.as_deref().unwrap_or(own);
    let mut report = Report::begin();
    let passed = match task {
        Task::Test { quick, all } => {
            let extent = match (quick, all) {
                (true, _) => Extent::Quick,
                (_, true) => Extent::All,
                _ => Extent::Normal,
            };
            test::run(root, extent)?
        }
        Task::Bench(options) => bench::run(root, &options)?,
        Task::Instructions { record } => instructions::run(root, record)?,
        Task::Tidy => {
            let faults = tidy::check(root)?;
            faults.iter().for_each(|fault| println!("{fault}"));
            println!("{} faults", faults.len());
            faults.is_empty()
        }
        Task::Lines { against } => lines::run(root, against.as_deref()).map(|()| true)?,
        Task::Supply => {
            supply::run(root, &mut report);
            report.finish()
        }
        Task::Docs => {
            println!("{}", docs::build(root)?.join("index.html").display());
            true
        }
        Task::Package(options) if options.test => {
            package::test(root, &mut report, true);
            package::test_static(root, &mut report);
            report.finish()
        }
        Task::Release(options) => release::run(root, &options).map(|()| true)?,
        Task::Package(options) => package::run(root, &options).map(|()| true)?,
        Task::Fuzz { target, seconds } => fuzz::run(root, &target, seconds).map(|()| true)?,
        Task::Peers(words) => {
            let status = cargo::peers(root).args(words).status().context("cannot start cargo")?;
            return Ok(ExitCode::from(
                status.code().and_then(|code| code.try_into().ok()).unwrap_or(126),
            ));
        }
    };
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
