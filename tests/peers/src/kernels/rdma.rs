//! RDMA inside the guest over soft-RoCE: Linux' host with weft's target, weft's host with Linux'
//! target, and weft with itself.

use super::bench::Bench;
use super::pairings;
use super::suite::{Suite, SuiteTest, inside, long};
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

const STEPS: &[SuiteTest] = &[
    inside("study").long(),
    long("pairings", |bench| {
        bench.guest("pairings")?;
        pairings::all_four(bench, "pairings", "pairings.json", "rdma")
    }),
    inside("raw_link"),
    inside("discover"),
    inside("kernel_host_data"),
    inside("kernel_host_filesystem").long(),
    inside("kernel_target"),
    inside("access").long(),
    inside("express").long(),
    inside("both_ends"),
    inside("silent_target").long(),
    inside("killed_under_load"),
    inside("nothing_is_left_behind").long(),
    inside("link_goes").long(),
];

fn setup(bench: &mut Bench) -> Result<()> {
    bench.give_weft()?;
    bench.guest("device").map(drop)
}
