//! weft's target inside the guest, on block devices that count the requests that reach them.

use super::bench::Bench;
use super::suite::{Suite, SuiteTest, inside, step};
use crate::guest::Kernel;
use anyhow::Result;

pub(super) const SUITE: Suite = Suite {
    name: "block",
    script: "block.sh",
    kernel: Kernel::Release,
    forwards: false,
    modules: &["nvme-tcp", "loop"],
    setup,
    steps: STEPS,
};

const STEPS: &[SuiteTest] = &[
    inside("flush"),
    inside("fua"),
    inside("discard"),
    inside("data"),
    step("io_uring_forbidden", |bench| bench.guest("forbidden").map(drop)),
];

fn setup(bench: &mut Bench) -> Result<()> {
    bench.give_weft()?;
    bench.guest("disk").map(drop)
}
