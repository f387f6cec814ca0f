//! Why something of a target is not possible.

use std::fmt;
use std::io::ErrorKind;

use crate::config::Listen;

/// Why a target cannot start, or cannot be reconfigured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetError {
    what: String,
    /// An address is in use, perhaps by a process that is just ending.
    pub(crate) is_address_in_use: bool,
}

impl TargetError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), is_address_in_use: false }
    }

    pub(crate) fn namespace(nqn: &str, nsid: u32, error: &dyn fmt::Display) -> Self {
        Self::new(format!("namespace {nsid} of {nqn}: {error}"))
    }

    pub(crate) fn listen(address: Listen, error: &std::io::Error) -> Self {
        let remedy = match error.kind() {
            ErrorKind::AddrInUse => "; ss -ltnp shows by whom",
            ErrorKind::AddrNotAvailable => "; it is no address of this machine (ip addr)",
            _ => "",
        };
        let told = Self::new(format!("cannot listen on {address}: {error}{remedy}"));
        Self { is_address_in_use: error.kind() == ErrorKind::AddrInUse, ..told }
    }

    pub(crate) fn name(name: &str, error: &impl fmt::Display) -> Self {
        Self::new(format!("{name:?} is no NVMe qualified name: {error}"))
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for TargetError {}
