//! The steps of [`super::rdma`] over soft-iWARP, which has another protocol below the verbs: the
//! sink of a READ needs remote write access, and connections are set up over TCP.

use super::bench::Bench;
use super::suite::{Suite, SuiteTest, inside};
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
const STEPS: &[SuiteTest] = &[
    inside("raw_link").long(),
    inside("discover").long(),
    inside("kernel_host_data").long(),
    inside("kernel_host_filesystem").long(),
    inside("kernel_target").long(),
    inside("access").long(),
    inside("express").long(),
    inside("both_ends").long(),
    inside("silent_target").long(),
    inside("killed_under_load").long(),
    inside("nothing_is_left_behind").long(),
    inside("link_goes").long(),
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
