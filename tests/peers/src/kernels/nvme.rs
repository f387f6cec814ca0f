//! weft inside the guest on an emulated NVMe SSD without the block layer.

use super::bench::Bench;
use super::suite::{Suite, SuiteTest, inside, long};
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

const STEPS: &[SuiteTest] = &[
    inside("identified"),
    inside("data"),
    inside("commands"),
    inside("bad_block"),
    inside("refused"),
    long("baseline", baseline),
    inside("vanished"),
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
