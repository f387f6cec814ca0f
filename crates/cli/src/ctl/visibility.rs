//! `weft ctl namespace add-host` and `remove-host`: namespaces that not every host sees.

use clap::Args;
use clap_complete::ArgValueCandidates;
use serde_json::{Value, json};

use crate::names;

/// A host of a namespace.
#[derive(Debug, Args)]
pub(super) struct Host {
    /// The subsystem.
    #[arg(add = ArgValueCandidates::new(names::subsystems))]
    nqn: String,
    /// The namespace.
    #[arg(add = ArgValueCandidates::new(names::namespaces))]
    nsid: u32,
    /// The host's NQN.
    host: String,
}

impl Host {
    /// The parameters of the method.
    pub(super) fn params(&self) -> Value {
        json!({ "nqn": self.nqn, "nsid": self.nsid, "host": self.host })
    }
}
