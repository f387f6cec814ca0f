//! The limits of a connection.

use std::time::Duration;

use weft_nvmf::tcp::target::Config;

use crate::limits::{CLOSE_TIMEOUT_DEFAULT, HANDSHAKE_TIMEOUT_DEFAULT};

/// The limits of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Time until [`set_queue`](crate::target::TargetConnection::set_queue), without the time that
    /// the owner takes for Connect.
    pub handshake_timeout: Duration,
    /// Time to send what is queued when the connection is closed.
    pub close_timeout: Duration,
    /// The configuration of a TCP session.
    pub tcp: Config,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake_timeout: HANDSHAKE_TIMEOUT_DEFAULT,
            close_timeout: CLOSE_TIMEOUT_DEFAULT,
            tcp: Config::default(),
        }
    }
}
