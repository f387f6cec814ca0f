//! The Debian package's unit under systemd, inside the guest.

use super::bench::Bench;
use super::suite::{Step, Suite, step};
use crate::guest::Kernel;
use anyhow::Result;
use xtask::package;

pub(super) const SUITE: Suite = Suite {
    name: "service",
    script: "service.sh",
    kernel: Kernel::Release,
    forwards: false,
    modules: &["nvme-tcp", "loop"],
    setup,
    steps: STEPS,
};

const STEPS: &[Step] = &[
    step("serves", |bench| bench.guest("serves").map(drop)),
    step("credentials", |bench| bench.guest("credentials").map(drop)),
    step("reloads", |bench| bench.guest("reloads").map(drop)),
    step("stops", |bench| bench.guest("stops").map(drop)),
];

fn setup(bench: &mut Bench) -> Result<()> {
    package::install(&bench.root, &bench.weft, &bench.folder.join("root"))?;
    bench.guest("start").map(drop)
}
