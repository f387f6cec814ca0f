//! The steps of [`super::rdma`] over soft-iWARP, which has another protocol below the verbs: the
//! sink of a READ needs remote write access, and connections are set up over TCP.

use super::bench::Bench;
use super::suite::{Step, Suite, long};
use crate::guest::{Image, Kernel, siw};
use anyhow::{Context, Result};
use std::fs;

pub(super) const SUITE: Suite = Suite {
    name: "iwarp",
    script: "iwarp.sh",
    kernel: Kernel::Release,
    forwards: false,
    modules: &["nvme-rdma", "rdma_ucm", "ib_uverbs", "veth"],
    setup,
    steps: STEPS,
};

/// All but the studies, which find devices by an IP address in their GID. The module takes half a
/// gigabyte of packages and a compiler, and what does not depend on the protocol below the verbs
/// runs over soft-RoCE each time.
const STEPS: &[Step] = &[
    long("discover", |bench| bench.guest("discover").map(drop)),
    long("kernel_host_data", |bench| bench.guest("kernel_host_data").map(drop)),
    long("kernel_host_filesystem", |bench| bench.guest("kernel_host_filesystem").map(drop)),
    long("kernel_target", |bench| bench.guest("kernel_target").map(drop)),
    long("access", |bench| bench.guest("access").map(drop)),
    long("express", |bench| bench.guest("express").map(drop)),
    long("both_ends", |bench| bench.guest("both_ends").map(drop)),
    long("silent_target", |bench| bench.guest("silent_target").map(drop)),
    long("killed_under_load", |bench| bench.guest("killed_under_load").map(drop)),
    long("nothing_is_left_behind", |bench| bench.guest("nothing_is_left_behind").map(drop)),
    long("link_goes", |bench| bench.guest("link_goes").map(drop)),
];

/// Builds the module of this suite; other suites need none.
pub(super) fn prepare(suite: &Suite, image: &Image) -> Result<()> {
    if suite.name == SUITE.name {
        siw::prepare(image).context("soft-iWARP cannot be prepared")?;
    }
    Ok(())
}

fn setup(bench: &mut Bench) -> Result<()> {
    let module = siw::prepare(&Image::prepare(Kernel::Release, false)?)?;
    fs::copy(module, bench.folder.join("siw.ko"))?;
    bench.give_weft()?;
    bench.guest("load").map(drop)
}
