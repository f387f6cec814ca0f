//! Who calls.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::{fmt, fs};

use nix::sys::socket::{getsockopt, sockopt};

/// The other end of a control connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A process of this machine.
    Process {
        /// Its number; none: it is of a PID namespace that this process does not see.
        process_id: Option<u32>,
        /// Its name, if it still ran.
        name: Option<String>,
        /// Its user.
        user_id: u32,
    },
    /// An address.
    Address(SocketAddr),
    /// Whoever has started this process.
    Parent,
    /// It is not known: its connection has ended.
    Unknown,
}

impl Caller {
    pub(crate) fn of_unix(stream: &UnixStream) -> Self {
        // The kernel's answer is 0 for a process that is not seen, for which rustix has no value.
        let Ok(peer) = getsockopt(stream, sockopt::PeerCredentials) else { return Self::Unknown };
        let process_id = u32::try_from(peer.pid()).ok().filter(|pid| *pid != 0);
        let name = process_id.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok());
        let name = name.map(|name| name.trim().to_owned());
        Self::Process { process_id, name, user_id: peer.uid() }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { process_id: None, user_id, .. } => {
                write!(f, "user {user_id}, a process of another PID namespace")
            }
            Self::Process { process_id: Some(process_id), name, user_id } => {
                let name = name.as_deref().unwrap_or("a process that has ended");
                // A process names itself as it likes.
                let name = name.escape_default();
                write!(f, "user {user_id}, process {process_id} ({name})")
            }
            Self::Address(address) => address.fmt(f),
            Self::Parent => f.write_str("whoever has started this process"),
            Self::Unknown => f.write_str("a caller that has gone"),
        }
    }
}
