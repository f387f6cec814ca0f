//! Messages between poll groups, and to them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use weft_nvme::log_page::ReservationNotificationType;
use weft_nvme::{Nqn, Status};
use weft_nvmf::auth::target::WorkDone;
use weft_nvmf::connect::{ConnectError, ConnectRequest};
use weft_nvmf::controller::{EndReason, NamespaceChange};
use weft_nvmf::queue::QueueGrant;
use weft_nvmf::reservation::{HostId, Notice};
use weft_reactor::MailboxSender;
use weft_transport::Incoming;
use weft_transport::target::Detached;

use super::ids::{ConnectionId, HostKey};
use crate::shared::error::TargetError;
use crate::shared::round::Round;
use crate::shared::snapshot::{Requirements, Snapshot};
use crate::shared::trace::Trace;

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

/// The command that asks for a change of reservations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Requester {
    pub(crate) connection: ConnectionId,
    /// The slot of a command of an I/O queue, the identifier of one of an admin queue.
    pub(crate) tag: u16,
}

/// What has become of a change of reservations that a host asked for.
#[derive(Debug)]
pub(crate) struct ReservationResult {
    pub(crate) asker: Requester,
    pub(crate) status: Status,
    pub(super) subsystem: Nqn,
    pub(crate) nsid: u32,
    pub(super) notices: Vec<Notice>,
}

impl ReservationResult {
    /// Whether somebody is to be told.
    pub(crate) fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// What a host of a subsystem is to be told.
    pub(crate) fn notices(
        &self,
        subsystem: &str,
        host: &HostId,
    ) -> impl Iterator<Item = ReservationNotificationType> {
        let is_here = self.subsystem.as_str() == subsystem;
        let own = self.notices.iter().filter(move |notice| is_here && notice.host == *host);
        own.map(|notice| notice.kind)
    }
}

/// What a host asks for by Namespace Management; it waits for [`Self::answer`].
#[derive(Debug)]
pub struct NamespaceRequest {
    /// The subsystem.
    pub subsystem: Nqn,
    /// The host.
    pub host: Nqn,
    /// What is to be changed.
    pub change: NamespaceChange,
    pub(crate) owner: ConnectionId,
    pub(crate) command_id: u16,
    pub(crate) post: MailboxSender<Message>,
}

impl NamespaceRequest {
    /// Answers the host: with the number of a namespace that was made, 0 without one.
    pub fn answer(&self, result: Result<u32, Status>) {
        let (owner, command_id) = (self.owner, self.command_id);
        self.post.post(Message::NamespacesChanged { owner, command_id, result });
    }
}

/// Where these go.
pub(crate) type Manager = Sender<NamespaceRequest>;

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
    Prepare { needs: Arc<Requirements>, done: Sender<PrepareResult> },
    /// Close what was opened for the reload, which is not executed.
    Rollback,
    /// Execute the reload: serve this from now on, with other ports if so, and acknowledge it.
    /// A group acknowledges `round` once it serves this, and `settled` once no device has a command
    /// that the change forbids.
    Reload { snapshot: Arc<Snapshot>, ports: bool, round: Arc<Round>, settled: Arc<Round> },
    /// Serve this from now on. Acknowledge it once no device has a command that was begun before
    /// and is refused now.
    Publish { snapshot: Arc<Snapshot>, round: Arc<Round> },
    /// The same for commands of these hosts to a device: they have lost access to it.
    Settle { device: u32, hosts: Arc<[HostId]>, round: Arc<Round> },
    /// To the group of the host that asked: its change of reservations is made, or is not.
    Reserved(Arc<ReservationResult>),
    /// Tell the hosts that it concerns.
    NotifyReserved(Arc<ReservationResult>),
    /// To the owner: the round that Set Features waited for is over.
    WriteProtectApplied { owner: ConnectionId, command_id: u16, status: Status },
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
pub(crate) type PrepareResult = Result<BTreeMap<u16, SocketAddr>, TargetError>;
