//! Who calls.

use std::{fmt, fs, net::SocketAddr, os::unix::net::UnixStream};

/// The other end of a control connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A process of this machine.
    Process {
        /// Its number.
        process_id: u32,
        /// Its name, if it still ran.
        name: Option<String>,
        /// Its user.
        user_id: u32,
    },
    /// An address.
    Address(SocketAddr),
    /// It is not known: its connection has ended.
    Unknown,
}

impl Caller {
    pub(crate) fn of_unix(stream: &UnixStream) -> Self {
        let Ok(peer) = rustix::net::sockopt::socket_peercred(stream) else { return Self::Unknown };
        let process_id = peer.pid.as_raw_nonzero().get().unsigned_abs();
        let name = fs::read_to_string(format!("/proc/{process_id}/comm")).ok();
        let name = name.map(|name| name.trim().to_owned());
        Self::Process { process_id, name, user_id: peer.uid.as_raw() }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { process_id, name, user_id } => {
                let name = name.as_deref().unwrap_or("a process that has ended");
                // A process names itself as it likes.
                let name = name.escape_default();
                write!(f, "user {user_id}, process {process_id} ({name})")
            }
            Self::Address(address) => address.fmt(f),
            Self::Unknown => f.write_str("a caller that has gone"),
        }
    }
}
