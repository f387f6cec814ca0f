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

/// Makes the module that this suite needs; no other does.
pub(super) fn prepare(suite: &Suite, image: &Image) -> Result<()> {
    if suite.name == SUITE.name {
        siw::prepare(image).context("soft-iWARP cannot be prepared")?;
    }
    Ok(())
}

fn setup(bench: &mut Bench) -> Result<()> {
    let module = siw::prepare(&Image::prepare(false)?)?;
    fs::copy(module, bench.folder.join("siw.ko"))?;
    fs::copy(&bench.weft, bench.folder.join("weft"))?;
    bench.guest("load").map(drop)
}
