//! The Linux kernel as host and as target of a study.
//!
//! - `target`: nvmet's subsystems and port in configfs, as nvmetcli would write them;
//! - `made`: what a target of the kernel and one of SPDK have in common;
//! - `host`: a connection through `/dev/nvme-fabrics`, as nvme-cli makes it, and its block device.
//!
//! Both need root. What they change is in the [journal of knobs](super::knob) before it is
//! changed, and is removed at the end: by this process, by its watchdog if it dies, or by the
//! next process if both died. Modules that were loaded stay loaded.

mod changes;
pub(super) mod fabrics;
mod host;
mod made;
mod sysfs;
mod target;

use std::net::IpAddr;
use std::sync::Arc;

use weft_host::Transport;

pub(super) use self::changes::Changes;
pub use self::changes::Linux;
pub(super) use self::host::{KernelConnection, connect, ends};
pub(super) use self::made::{ForeignTarget, Port};
use self::sysfs::{configfs, module};
use super::capabilities::MissingSoftware;
use super::given::protocol_name;
use super::launch::{StartedTarget, TargetSpec};
use super::site::SpdkTools;
use super::software::Software;
use super::spdk;

impl Linux {
    /// Starts a target that is not weft.
    ///
    /// # Errors
    /// One sentence that says why it cannot serve these devices here.
    pub fn start_target(
        self: &Arc<Self>,
        spec: &TargetSpec,
        listen: Option<IpAddr>,
    ) -> Result<Box<dyn StartedTarget>, String> {
        Ok(match spec.software {
            Software::Weft => return Err("this is no target of the kernel".to_owned()),
            Software::Linux => Box::new(target::start(self, spec, listen)?),
            Software::Spdk => Box::new(spdk::start(self, &self.spdk(), spec, listen)?),
        })
    }
}

/// Why the kernel or SPDK cannot be host or target here, as far as that can be seen without a
/// change.
#[must_use]
pub fn lacks(tools: &SpdkTools) -> MissingSoftware {
    let mut lacks = MissingSoftware::default();
    let spdk = spdk::lacks(tools);
    let perf = spdk::perf::find(&tools.perf).err();
    for transport in [Transport::Tcp, Transport::Rdma] {
        let spoken = protocol_name(transport);
        let name = format!("linux {spoken}");
        let root = || match rustix::process::geteuid().is_root() {
            true => Ok(()),
            false => Err("the kernel's host and target need root: run weft as root".to_owned()),
        };
        let target =
            root().and_then(|()| configfs()).and_then(|()| module(&sysfs::nvmet(transport)));
        lacks.target.extend(target.err().map(|why| (name.clone(), why)));
        let host = root().and_then(|()| module(&sysfs::nvme(transport)));
        lacks.host.extend(host.err().map(|why| (name, why)));
        lacks.target.extend(spdk.clone().map(|why| (format!("spdk {spoken}"), why)));
        lacks.host.extend(perf.clone().map(|why| (format!("spdk {spoken}"), why)));
    }
    let null = module("null_blk").err().map(|why| ("linux null_blk".to_owned(), why));
    lacks.target.extend(null);
    lacks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lacks_is_said_in_a_sentence() {
        let lacks = lacks(&SpdkTools::default());
        for why in lacks.target.values().chain(lacks.host.values()) {
            assert!(why.starts_with("the kernel") || why.starts_with("SPDK"), "{why}");
        }
    }
}
