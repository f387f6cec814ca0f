//! The Debian package's unit under systemd, inside the guest.

use super::bench::Bench;
use super::suite::{Step, Suite, inside};
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

const STEPS: &[Step] =
    &[inside("serves"), inside("credentials"), inside("reloads"), inside("stops")];

fn setup(bench: &mut Bench) -> Result<()> {
    package::install(&bench.root, &bench.weft, &bench.folder.join("root"))?;
    bench.guest("start").map(drop)
}
