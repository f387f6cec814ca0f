//! RDMA inside the guest over soft-RoCE: Linux' host with weft's target, weft's host with Linux'
//! target, and weft with itself.

use super::bench::Bench;
use super::pairings;
use super::suite::{Step, Suite, long, step};
use crate::guest::Kernel;
use anyhow::Result;

pub(super) const SUITE: Suite = Suite {
    name: "rdma",
    script: "rdma.sh",
    kernel: Kernel::Release,
    forwards: false,
    modules: &["nvme-rdma", "rdma_rxe", "rdma_ucm", "ib_uverbs", "veth"],
    setup,
    steps: STEPS,
};

const STEPS: &[Step] = &[
    long("study", |bench| bench.guest("study").map(drop)),
    long("pairings", |bench| {
        bench.guest("pairings")?;
        pairings::all_four(bench, "pairings", "pairings.json", "rdma")
    }),
    step("discover", |bench| bench.guest("discover").map(drop)),
    step("kernel_host_data", |bench| bench.guest("kernel_host_data").map(drop)),
    long("kernel_host_filesystem", |bench| bench.guest("kernel_host_filesystem").map(drop)),
    step("kernel_target", |bench| bench.guest("kernel_target").map(drop)),
    long("access", |bench| bench.guest("access").map(drop)),
    long("express", |bench| bench.guest("express").map(drop)),
    step("both_ends", |bench| bench.guest("both_ends").map(drop)),
    long("silent_target", |bench| bench.guest("silent_target").map(drop)),
    step("killed_under_load", |bench| bench.guest("killed_under_load").map(drop)),
    long("nothing_is_left_behind", |bench| bench.guest("nothing_is_left_behind").map(drop)),
    long("link_goes", |bench| bench.guest("link_goes").map(drop)),
];

fn setup(bench: &mut Bench) -> Result<()> {
    bench.give_weft()?;
    bench.guest("device").map(drop)
}
