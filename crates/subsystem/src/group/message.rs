//! Messages between poll groups.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use weft_nvme::Status;
use weft_nvmf::auth::target::WorkDone;
use weft_nvmf::connect::{ConnectError, ConnectRequest};
use weft_nvmf::controller::EndReason;
use weft_nvmf::queue::QueueGrant;
use weft_nvmf::reservation::HostId;
use weft_transport::Incoming;
use weft_transport::target::Detached;

use crate::TargetError;
use crate::directory::HostKey;
use crate::reservations::Changed;
use crate::round::Round;
use crate::snapshot::{Needs, Snapshot};
use crate::trace::Trace;

/// A connection of one group. The serial number distinguishes it from earlier ones at its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId {
    pub(crate) group: usize,
    pub(crate) index: usize,
    pub(crate) serial: u64,
}

/// The endpoints of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Endpoints {
    pub(crate) peer: SocketAddr,
    /// The local address.
    pub(crate) local: SocketAddr,
    /// Identifier of the port that accepted it.
    pub(crate) port_id: u16,
    /// Whether its Connect came over TLS.
    pub(crate) has_tls: bool,
}

/// A connection that moves to the group of its queue: Connect has been read and is answered there.
#[derive(Debug)]
pub(crate) struct MovedConnection {
    pub(crate) detached: Detached,
    pub(crate) request: ConnectRequest,
    pub(crate) endpoints: Endpoints,
}

/// From one group to another. A message for a connection that has ended is answered as if it had
/// just ended.
#[derive(Debug)]
pub(crate) enum Message {
    /// Take over this connection.
    TakeOver(Box<MovedConnection>),
    /// Accept this host's queue over RDMA at this port, which was placed here.
    Incoming { incoming: Box<Incoming>, port_id: u16 },
    /// To the owner of a controller: may this I/O queue be attached?
    Attach {
        owner: ConnectionId,
        queue: ConnectionId,
        /// Its connection has TLS.
        has_tls: bool,
        request: Box<ConnectRequest>,
    },
    /// The answer to `Attach`.
    Attached {
        queue: ConnectionId,
        owner: ConnectionId,
        result: Result<Box<QueueGrant>, ConnectError>,
    },
    /// A power for the authentication of this queue has been computed.
    PowerComputed { connection: ConnectionId, done: Box<WorkDone> },
    /// To the holder of an I/O queue: end it.
    EndQueue { queue: ConnectionId, reason: EndReason },
    /// To the owner: the last command of this I/O queue has completed.
    QueueEnded { owner: ConnectionId, queue_id: u16 },
    /// This host connects again: end its stale connections, which may not have been noticed yet,
    /// and acknowledge it.
    StaleCheck { host: Arc<HostKey>, round: Arc<Round> },
    /// Every group has done so.
    StaleChecked { connection: ConnectionId, stale_check: u64 },
    /// The host of this Connect has drained.
    Proceed { connection: ConnectionId },
    /// To the holder of an I/O queue: abort this command if that is still possible.
    Abort { queue: ConnectionId, owner: ConnectionId, abort_id: u16, command_id: u16 },
    /// The answer to `Abort`.
    AbortDone { owner: ConnectionId, abort_id: u16, aborted: bool },
    /// Open what a reload needs, without serving it, and say where the target would listen.
    Prepare { needs: Arc<Needs>, done: Sender<Prepared> },
    /// Close what was opened for the reload, which is not executed.
    Rollback,
    /// Execute the reload: serve this from now on, with other ports if so, and acknowledge it.
    /// `settled` is as `round` of `Publish`.
    Reload { snapshot: Arc<Snapshot>, ports: bool, round: Arc<Round>, settled: Arc<Round> },
    /// Serve this from now on. Acknowledge it once no device has a command that was begun before
    /// and is refused now.
    Publish { snapshot: Arc<Snapshot>, round: Arc<Round> },
    /// The same for commands of these hosts to a device: they have lost access to it.
    Settle { device: u32, hosts: Arc<[HostId]>, round: Arc<Round> },
    /// To the group of the host that asked: its change of reservations is made, or is not.
    Reserved(Arc<Changed>),
    /// Tell the hosts that it concerns.
    NotifyReserved(Arc<Changed>),
    /// To the owner: the round that Set Features waited for is over.
    Protected { owner: ConnectionId, command_id: u16, status: Status },
    /// To the owner: its controller cannot go on.
    Fatal { owner: ConnectionId },
    /// To the owner: its NVM subsystem is reset.
    SubsystemReset { owner: ConnectionId },
    /// To the owner: what Namespace Management has asked for is done, or is not possible.
    NamespacesChanged { owner: ConnectionId, command_id: u16, result: Result<u32, Status> },
    /// Record the commands for a while.
    Trace { trace: Arc<Trace> },
    /// Acknowledge it once no I/O command is in flight.
    Idle { round: Arc<Round> },
    /// Acknowledge it once no device has an I/O command.
    DevicesIdle { round: Arc<Round> },
    /// Take no new command, finish those under way, and acknowledge it.
    Drain { round: Arc<Round> },
    /// Close everything and stop.
    Stop,
    /// A group has failed: stop without further responses.
    Fail,
}

/// Where the group listens, by port, if it has what a reload needs.
pub(crate) type Prepared = Result<BTreeMap<u16, SocketAddr>, TargetError>;
