//! `weft ctl namespace add-host` and `remove-host`: namespaces that not every host sees.

use clap::Args;
use clap_complete::ArgValueCandidates;
use serde::Serialize;

use crate::names;

/// A host of a namespace.
#[derive(Debug, Args, Serialize)]
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
