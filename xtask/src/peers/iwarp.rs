//! The same steps as [`super::rdma`] over soft-iWARP, which is another protocol below the verbs:
//! the sink of a READ needs remote write access, and the connection manager speaks over TCP.

use super::bench::Bench;
use super::{Step, Suite, rdma};
use crate::guest::{Image, siw};
use anyhow::{Context, Result};
use std::fs;

pub(super) const SUITE: Suite = Suite {
    name: "iwarp",
    script: "iwarp.sh",
    modules: &["nvme-rdma", "rdma_ucm", "ib_uverbs", "veth"],
    setup,
    steps: STEPS,
};

/// All but the first, the study: it finds devices by their GID, which is no address of IP here.
const STEPS: &[Step] = rdma::STEPS.split_at(1).1;

/// Why this suite cannot run, where its module has not been prepared.
pub(super) fn missing(suite: &Suite, image: &Image) -> Option<&'static str> {
    let prepared = || siw::find(image).ok().flatten().is_some();
    (suite.name == SUITE.name && !prepared())
        .then_some("soft-iWARP is not prepared; `cargo xtask guest siw` does it")
}

fn setup(bench: &mut Bench) -> Result<()> {
    let module = siw::find(&Image::prepare(false)?)?.context("siw is gone")?;
    fs::copy(module, bench.folder.join("siw.ko"))?;
    fs::copy(&bench.weft, bench.folder.join("weft"))?;
    bench.guest("load").map(drop)
}
