//! nvme-stas of Debian in the guest: it connects to what weft's discovery controller shows, follows
//! its changes, and registers the host.

use super::bench::{Bench, NQN};
use super::{Step, Suite, long};
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

const STEPS: &[Step] = &[long("follows_and_registers", follows_and_registers)];

/// A subsystem that comes and goes.
const SECOND: &str = "nqn.2026-01.io.weft:second";

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

fn follows_and_registers(bench: &mut Bench) -> Result<()> {
    bench.guest(&format!("start; is_connected {NQN}"))?;
    let registered = |bench: &mut Bench, task: &str| -> Result<bool> {
        let said = format!(": {task}: 1 of a host");
        Ok(bench.running()?.output().lines().any(|line| line.contains(&said)))
    };
    ensure!(registered(bench, "Register")?, "the host is not registered");
    let config = fs::read_to_string(bench.configuration())?;
    let second = format!(
        "\n[[subsystem]]\nnqn = \"{SECOND}\"\n[[subsystem.namespace]]\nmemory = \"1MiB\"\n"
    );
    fs::write(bench.configuration(), config.clone() + &second)?;
    bench.reload_target()?;
    bench.guest(&format!("is_connected {SECOND}"))?;
    fs::write(bench.configuration(), config)?;
    bench.reload_target()?;
    bench.guest(&format!("is_gone {SECOND}; is_connected {NQN}; stop")).map(drop)
}
