//! The steps of [`super::rdma`] over soft-iWARP, which has another protocol below the verbs: the
//! sink of a READ needs remote write access, and connections are set up over TCP.

use super::bench::Bench;
use super::{Step, Suite, rdma};
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

/// All but the first two, the studies, which find devices by an IP address in their GID.
const STEPS: &[Step] = rdma::STEPS.split_at(2).1;

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
    fs::copy(&bench.weft, bench.folder.join("weft"))?;
    bench.guest("load").map(drop)
}
