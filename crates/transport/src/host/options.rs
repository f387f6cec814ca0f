//! How to connect.

use std::net::SocketAddr;
use std::time::Duration;

use weft_nvmf::tcp::limits::{ADMIN_IN_CAPSULE_BYTES, MAXIMUM_R2T_DEFAULT};
use weft_reactor::Marking;

use crate::limits::{CLOSE_TIMEOUT_DEFAULT, CONNECT_TIMEOUT_DEFAULT};
use crate::rdma::RemoteAccess;

/// The transport of a connection, with what it needs to know beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransportOptions {
    /// NVMe/TCP.
    #[default]
    Tcp,
    /// NVMe over RDMA.
    Rdma {
        /// The QID of the queue to create, which the connection request carries.
        queue_id: u16,
        /// The Controller ID for an I/O queue; 0 for an admin queue.
        controller_id: u16,
    },
    /// Loopback within the process.
    Loopback,
}

/// How to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostOptions {
    /// The transport.
    pub transport_options: TransportOptions,
    /// Ask for header digests.
    pub header_digest: bool,
    /// Ask for data digests.
    pub data_digest: bool,
    /// The maximum number of commands in flight.
    pub queue_depth: u16,
    /// The maximum number of outstanding R2Ts of one command (MAXR2T).
    pub maximum_r2t: u32,
    /// Data up to this length is sent in the capsule, until
    /// [`set_in_capsule_bytes`](super::HostConnection::set_in_capsule_bytes).
    pub in_capsule_bytes: u32,
    /// How the controller accesses data over RDMA; `None`: the narrowest way that the device
    /// supports.
    pub remote_access: Option<RemoteAccess>,
    /// Address to connect from.
    pub local: Option<SocketAddr>,
    /// How what is sent over TCP is marked.
    pub marking: Marking,
    /// Time until [`Ready`](super::HostEvent::Ready).
    pub timeout: Duration,
    /// Time to send what is queued when the connection is closed.
    pub close_timeout: Duration,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            transport_options: TransportOptions::Tcp,
            header_digest: false,
            data_digest: false,
            queue_depth: 128,
            maximum_r2t: MAXIMUM_R2T_DEFAULT,
            in_capsule_bytes: ADMIN_IN_CAPSULE_BYTES,
            remote_access: None,
            local: None,
            marking: Marking::default(),
            timeout: CONNECT_TIMEOUT_DEFAULT,
            close_timeout: CLOSE_TIMEOUT_DEFAULT,
        }
    }
}
