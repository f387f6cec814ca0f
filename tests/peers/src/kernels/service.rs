//! The Debian package's unit under systemd, inside the guest.

use super::bench::Bench;
use super::suite::{Suite, SuiteTest, inside, step};
use crate::guest::Kernel;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use xtask::package;

pub(super) const SUITE: Suite = Suite {
    name: "service",
    script: "service.sh",
    kernel: Kernel::Release,
    forwards: false,
    modules: &["nvme-tcp", "loop"],
    setup,
    steps: STEPS,
};

const STEPS: &[SuiteTest] = &[
    inside("serves"),
    inside("credentials"),
    inside("reloads"),
    inside("stops"),
    step("first_day", |bench| {
        fs::write(bench.folder.join("first_day"), first_steps(&bench.root)?)?;
        bench.guest("first_day").map(drop)
    }),
];

fn setup(bench: &mut Bench) -> Result<()> {
    package::install(&bench.root, &bench.weft, &bench.folder.join("root"))?;
    bench.guest("start").map(drop)
}

/// The steps of docs/operate.md as they stand there, behind the installation, which is the suite's
/// own beginning.
fn first_steps(root: &Path) -> Result<String> {
    let page = fs::read_to_string(root.join("docs/operate.md"))?;
    let (_, begin) = page.split_once("## Begin\n```").context("operate.md begins otherwise")?;
    let (fence, _) = begin.split_once("```").context("no end")?;
    let mut steps = fence.lines().filter_map(|line| line.strip_prefix("$ "));
    let install = steps.next().context("no step")?;
    ensure!(install.starts_with("apt install ./weft_"), "{install}");
    Ok(steps.map(|step| format!("{step}\n")).collect())
}
