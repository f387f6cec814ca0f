//! weft inside the guest on an emulated NVMe SSD without the block layer.

use super::bench::Bench;
use super::suite::{Step, Suite, long, step};
use crate::guest::Kernel;
use anyhow::Result;

pub(super) const SUITE: Suite = Suite {
    name: "nvme",
    script: "nvme.sh",
    kernel: Kernel::Release,
    forwards: false,
    modules: &["nvme", "nvme-tcp"],
    setup,
    steps: STEPS,
};

const STEPS: &[Step] = &[
    step("identified", |bench| bench.guest("identified").map(drop)),
    step("data", |bench| bench.guest("data").map(drop)),
    step("commands", |bench| bench.guest("commands").map(drop)),
    step("bad_block", |bench| bench.guest("bad_block").map(drop)),
    step("refused", |bench| bench.guest("refused").map(drop)),
    long("baseline", baseline),
    step("vanished", |bench| bench.guest("vanished").map(drop)),
];

fn setup(bench: &mut Bench) -> Result<()> {
    bench.give_weft()?;
    bench.guest("prepare").map(drop)
}

/// Prints the ratio.
fn baseline(bench: &mut Bench) -> Result<()> {
    let said = bench.guest("baseline")?;
    let told = |line: &&str| line.contains("ratio") || line.contains(" iops ");
    said.lines().filter(told).for_each(|line| println!("{line}"));
    Ok(())
}
