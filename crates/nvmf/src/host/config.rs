//! How an association is to be.

use core::time::Duration;

use weft_nvme::Nqn;

use super::authenticate::Credentials;
use super::reconnect::ReconnectPolicy;

/// The type of controller to connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControllerKind {
    /// One with I/O queues and namespaces.
    Nvm,
    /// A discovery controller.
    Discovery,
}

/// The configuration of an association.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// The subsystem.
    pub subsystem: Nqn,
    /// This host's name.
    pub host: Nqn,
    /// This host's identifier.
    pub host_id: [u8; 16],
    /// The type of controller.
    pub kind: ControllerKind,
    /// Keep Alive Timeout; zero for none.
    pub keep_alive_timeout: Duration,
    /// I/O queues wanted.
    pub io_queues: u16,
    /// Entries of each I/O queue.
    pub queue_entries: u16,
    /// Whether to ask for queues without SQ flow control.
    pub disable_flow_control: bool,
    /// What to do after a loss.
    pub reconnect: ReconnectPolicy,
    /// Time for the transport to connect.
    pub open_timeout: Duration,
    /// Time for an admin command.
    pub admin_timeout: Duration,
    /// What it authenticates itself with, if it can.
    pub credentials: Option<Credentials>,
    /// How often queues that have been authenticated are again; `None`: only when that is asked
    /// for.
    pub authenticate_every: Option<Duration>,
    /// Whether it is one of several paths: access states (ANA) are followed, and it is tried again
    /// if the first attempt fails.
    pub multipath: bool,
}
