//! weft's target on an emulated processor of Arm, Linux' host in a guest beside it.

use super::bench::{Bench, NQN};
use super::suite::{Suite, inside};
use crate::guest::Kernel;
use crate::guest::arm::ArmGuest;
use crate::process::Process;
use anyhow::Result;
use std::time::Duration;

pub(super) const SUITE: Suite = Suite {
    name: "arm",
    script: "arm.sh",
    kernel: Kernel::Release,
    forwards: false,
    modules: &["nvme-tcp"],
    setup,
    steps: &[inside("serves").long()],
};

/// Two guests without hardware support boot in this time on a busy machine.
const BOOT_TIME: Duration = Duration::from_secs(180);

fn setup(bench: &mut Bench) -> Result<()> {
    let weft = crate::arm::build(&bench.root, &bench.folder)?;
    let arguments = format!("target --listen tcp://0.0.0.0:4420 --nqn {NQN} --memory 64MiB");
    let initrd = bench.folder.join("arm.initrd");
    let guest = ArmGuest::prepare()?;
    let mut emulator = guest.serve(&initrd, bench.port, 4420, &weft, &arguments)?;
    let mut target = Process::start(&mut emulator, &bench.folder.join("target.log"))?;
    target.wait_for("nvme connect", BOOT_TIME)?;
    bench.target = Some(target);
    Ok(())
}
