//! What a study can be run with: processors, targets, links and other software.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weft_host::Transport;

/// What is available for running a study.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The processors that this process may use; of a study with agents, those of the target's
    /// machine.
    pub cpus: Vec<usize>,
    /// Whether targets can be started here.
    pub own_target: bool,
    /// The given targets.
    pub targets: Vec<KnownTarget>,
    /// Whether there is an RDMA device.
    pub rdma: bool,
    /// Whether this program was built with TLS.
    pub tls: bool,
    /// Why hosts and targets that are not weft cannot run.
    pub lacks: MissingSoftware,
    /// The machines of the loads, if agents drive them.
    pub apart: Option<Apart>,
}

/// The machines of the loads, if agents drive them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Apart {
    /// The processors that all of them have.
    pub load_cpus: Vec<usize>,
    /// Whether the target runs on one of them.
    pub one_machine: bool,
    /// How many places carry the load.
    pub loads: usize,
    /// Whether several of them are on one machine.
    pub same_load_machine: bool,
    /// Whether a device of the target's machine was given, to be driven there as well.
    pub local: bool,
    /// The links between all of them, and whether each has an RDMA device at every end.
    pub links: BTreeMap<String, bool>,
}

impl Capabilities {
    /// Whether a given target is on another machine.
    #[must_use]
    pub fn target_elsewhere(&self) -> bool {
        self.targets.iter().any(|target| target.elsewhere)
    }

    /// The processors of the load's machines, if the target has one of its own.
    pub(super) fn load_cpus(&self) -> Option<&[usize]> {
        let apart = self.apart.as_ref().filter(|apart| !apart.one_machine);
        apart.map(|apart| apart.load_cpus.as_slice())
    }
}

/// A target that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownTarget {
    /// Its name in the results.
    pub name: String,
    /// The protocol that it speaks.
    pub transport: Transport,
    /// Whether it is on another machine.
    pub elsewhere: bool,
}

/// Why hosts and targets that are not weft cannot run here: by software and protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MissingSoftware {
    /// Of the target.
    pub target: BTreeMap<String, String>,
    /// Of the host.
    pub host: BTreeMap<String, String>,
}
