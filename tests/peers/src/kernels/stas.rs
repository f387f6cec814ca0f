//! nvme-stas of Debian in the guest: it connects to what weft's discovery controller shows, and
//! registers the host.

use super::bench::{Bench, NQN};
use super::suite::{Suite, SuiteTest, long};
use crate::guest::{Kernel, stas};
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};

pub(super) const SUITE: Suite = Suite {
    name: "stas",
    script: "stas.sh",
    kernel: Kernel::Release,
    forwards: false,
    modules: &["nvme-tcp"],
    setup,
    steps: STEPS,
};

const STEPS: &[SuiteTest] = &[long("connects_and_registers", connects_and_registers)];

/// Fetches what this suite needs; others need nothing.
pub(super) fn prepare(suite: &Suite) -> Result<()> {
    if suite.name == SUITE.name {
        stas::prepare().context("nvme-stas cannot be fetched")?;
    }
    Ok(())
}

fn setup(bench: &mut Bench) -> Result<()> {
    fs::copy(stas::prepare()?, bench.folder.join("stas.tar"))?;
    File::create(bench.file())?.set_len(1 << 20)?;
    bench.configure("")?;
    bench.start_target()
}

/// Its daemons hear of later changes by udev alone, which does not run in the guest.
fn connects_and_registers(bench: &mut Bench) -> Result<()> {
    bench.guest(&format!("start; is_connected {NQN}"))?;
    let log = bench.running()?.output();
    let is_registered = log.lines().any(|line| line.contains(": Register: 1 of a host"));
    ensure!(is_registered, "the host is not registered");
    bench.guest("stop").map(drop)
}
