//! The target's side of a connection.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use weft_nvme::sgl::Location;
use weft_nvme::{Command, Completion, Status};
use weft_nvmf::tcp::Negotiated;
use weft_nvmf::tcp::target::Config;
use weft_reactor::{Buffer, Owner, Reactor, SocketId};

use crate::limits::{CLOSE_TIMEOUT_DEFAULT, HANDSHAKE_TIMEOUT_DEFAULT};
use crate::listen::RequestState;
use crate::tcp::target::{DetachedConnection, TcpTargetConnection};
use crate::{CloseReason, DataDigestError, Incoming, Slot, loopback, rdma};

/// What a connection raises.
#[derive(Debug)]
pub enum Event {
    /// A command, with all of its in-capsule data: [`TargetConnection::command`] says which. Its
    /// slot is in flight until [`TargetConnection::send`] or [`TargetConnection::complete`].
    Command {
        /// The command's slot.
        slot: Slot,
        /// Its in-capsule data.
        data: CapsuleData,
    },
    /// All that [`TargetConnection::receive`] asked for.
    Data {
        /// The command's slot.
        slot: Slot,
        /// The buffer that was given, filled.
        buffer: Buffer,
        /// Whether the data can be trusted. If not, the command is to be completed with Transient
        /// Transport Error.
        result: Result<(), DataDigestError>,
    },
    /// The connection is no more; nothing follows. Answers to commands still in flight may be
    /// given and go nowhere.
    Closed {
        /// Why.
        reason: CloseReason,
    },
}

/// The in-capsule data of a command.
#[derive(Debug)]
pub enum CapsuleData {
    /// There is none.
    None,
    /// All of it, exactly as long as the command's SGL says.
    Inline(Buffer),
    /// There was some, but its digest does not fit: the command is to be completed with
    /// Transient Transport Error.
    Corrupt,
    /// There was some, but not what the command's SGL says: the command is to be completed with
    /// this status.
    Invalid(Status),
}

impl CapsuleData {
    /// The data, if there is some, or the status that the command is to be completed with.
    pub fn into_result(self) -> Result<Option<Buffer>, Status> {
        match self {
            Self::None => Ok(None),
            Self::Inline(buffer) => Ok(Some(buffer)),
            Self::Corrupt => Err(Status::TRANSIENT_TRANSPORT_ERROR),
            Self::Invalid(status) => Err(status),
        }
    }
}

/// Where a command's data lies, and how much of it there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Bytes that the SGL describes.
    pub bytes: u32,
    /// Whether they are in the capsule (then they came with [`Event::Command`]).
    pub in_capsule: bool,
}

/// What a connection may take from its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Time to get as far as [`TargetConnection::set_queue`]. The time that the owner itself
    /// takes for Connect does not count.
    pub handshake_timeout: Duration,
    /// Time for what is queued to go out when the connection is closed.
    pub close_timeout: Duration,
    /// The TCP session's own.
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

/// A connection of a host to this target: one queue pair, whatever the transport.
#[derive(Debug)]
pub struct TargetConnection {
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Tcp(Box<TcpTargetConnection>),
    Rdma(Box<rdma::target::RdmaTargetConnection>),
    Loopback(Box<loopback::target::LoopbackTargetConnection>),
}

/// A connection on its way to another reactor.
#[derive(Debug)]
pub struct Detached {
    inner: DetachedInner,
}

#[derive(Debug)]
enum DetachedInner {
    Tcp(Box<DetachedConnection>),
}

impl TargetConnection {
    /// Takes a connection that the reactor has accepted. Completions for it carry `owner` and a
    /// token of which [`crate::tag_of`] is `tag` (at most [`crate::TAG_MAX`]).
    pub fn accept(
        reactor: &mut Reactor,
        owner: Owner,
        tag: u32,
        socket: SocketId,
        limits: Limits,
    ) -> Self {
        let connection = TcpTargetConnection::accept(reactor, owner, tag, socket, limits);
        Self { inner: Inner::Tcp(Box::new(connection)) }
    }

    /// Accepts a host that asks for a queue. Completions for it come as for the others. Look for
    /// events at once: that the queue cannot be had may be one.
    pub fn accept_incoming(
        reactor: &mut Reactor,
        owner: Owner,
        tag: u32,
        incoming: Incoming,
        limits: Limits,
    ) -> Self {
        let inner = match incoming.inner {
            RequestState::Rdma(incoming) => {
                let accept = rdma::target::RdmaTargetConnection::accept;
                Inner::Rdma(Box::new(accept(reactor, owner, tag, incoming, limits)))
            }
            RequestState::Loopback(incoming) => {
                let accept = loopback::target::LoopbackTargetConnection::accept;
                Inner::Loopback(Box::new(accept(reactor, owner, tag, incoming, limits)))
            }
        };
        Self { inner }
    }

    /// The command that a completion for this connection seems to begin with: time to prepare for
    /// it while it is being taken in. Nothing of it has been checked.
    #[must_use]
    pub fn peek_command<'a>(
        &self,
        completion: &'a weft_reactor::ReactorCompletion,
    ) -> Option<&'a Command> {
        let Inner::Tcp(connection) = &self.inner else { return None };
        connection.peek_command(completion)
    }

    /// Takes a completion that is for this connection. Poll events afterwards.
    pub fn handle(&mut self, reactor: &mut Reactor, completion: weft_reactor::ReactorCompletion) {
        each!(&mut self.inner, connection => connection.handle(reactor, completion))
    }

    /// The next event, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        each!(&mut self.inner, connection => connection.poll_event())
    }

    /// The submission queue entry of the command in a slot, while it is in flight.
    pub fn command(&self, slot: Slot) -> Option<&Command> {
        each!(&self.inner, connection => connection.command(slot))
    }

    /// Whether [`TargetConnection::poll_event`] has something.
    pub fn has_events(&self) -> bool {
        each!(&self.inner, connection => connection.has_events())
    }

    /// Connect was accepted: which queue it is, how many commands may be in flight, and whether the
    /// queue uses SQ flow control. To be called before Connect is completed.
    pub fn set_queue(&mut self, queue_id: u16, depth: u16, sq_flow_control: bool) {
        each!(&mut self.inner, connection => connection.set_queue(queue_id, depth, sq_flow_control))
    }

    /// Where the data of a command lies that came on this connection, or the status that it is to
    /// be completed with because this transport has no such data pointers.
    pub fn transfer(&self, command: &Command) -> Result<Transfer, Status> {
        // Over RDMA the data pointer has been brought to the same two forms.
        match command.data_pointer.location() {
            Ok(Location::InCapsule { offset: 0, length }) => {
                Ok(Transfer { bytes: length, in_capsule: true })
            }
            Ok(Location::InCapsule { .. }) => Err(Status::SGL_OFFSET_INVALID.with_dnr()),
            Ok(Location::Transport { length }) => Ok(Transfer { bytes: length, in_capsule: false }),
            Ok(_) | Err(_) => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr()),
        }
    }

    /// Fetches the first `buffer.len()` bytes of a command's data from the host; [`Event::Data`]
    /// answers. The buffer must not be shared.
    pub fn receive(&mut self, slot: Slot, buffer: Buffer) {
        each!(&mut self.inner, connection => connection.receive(slot, buffer))
    }

    /// Sends data to the host and completes the command. The slot is free.
    pub fn send(&mut self, slot: Slot, buffer: Buffer, completion: Completion) {
        each!(&mut self.inner, connection => connection.send(slot, buffer, completion))
    }

    /// Completes the command. The slot is free. If data that was asked for is still on its way,
    /// the completion waits for it (the host has been told to send it) and drops it.
    pub fn complete(&mut self, slot: Slot, completion: Completion) {
        each!(&mut self.inner, connection => connection.complete(slot, completion))
    }

    /// Sends all that was queued in this turn, and receives on.
    pub fn flush(&mut self, reactor: &mut Reactor) {
        each!(&mut self.inner, connection => connection.flush(reactor))
    }

    /// Closes the connection once what is queued has gone out, or has not for
    /// [`Limits::close_timeout`]. Poll events afterwards; [`Event::Closed`] may take a while.
    pub fn close(&mut self, reactor: &mut Reactor, reason: CloseReason) {
        each!(&mut self.inner, connection => connection.close(reactor, reason))
    }

    /// Closes the connection at once, also one that is being closed already: its descriptor is
    /// needed. Poll events afterwards.
    pub fn abort(&mut self, reactor: &mut Reactor, reason: CloseReason) {
        each!(&mut self.inner, connection => connection.abort(reactor, reason))
    }

    /// Bytes of in-capsule data for which there is no memory. The connection takes nothing in until
    /// [`TargetConnection::provide`] gives it a buffer of this length.
    #[must_use]
    pub fn wanted(&self) -> Option<usize> {
        each!(&self.inner, connection => connection.wanted())
    }

    /// A buffer as [`TargetConnection::wanted`] has said. Poll events afterwards.
    pub fn provide(&mut self, reactor: &mut Reactor, buffer: Buffer) {
        each!(&mut self.inner, connection => connection.provide(reactor, buffer))
    }

    /// Bytes of answers that were copied out of the pool's buffers and are not sent yet.
    #[must_use]
    pub fn copied_bytes(&self) -> usize {
        let Inner::Tcp(connection) = &self.inner else { return 0 };
        connection.copied_bytes()
    }

    /// Bytes of the pool that wait for the host, which has not moved for so long: it neither sends
    /// the data that it was asked for nor takes what it is sent. One that sends hardly any of it
    /// is found when it is asked for the second time, after at least that long.
    #[must_use]
    pub fn stalled_bytes(&mut self, now: Duration, patience: Duration) -> usize {
        each!(&mut self.inner, connection => connection.stalled_bytes(now, patience))
    }

    /// Whether the connection is about to end, or the host has ended it already: what it sent
    /// before that may not have been received yet.
    #[must_use]
    pub fn is_ending(&self, reactor: &Reactor) -> bool {
        each!(&self.inner, connection => connection.is_ending(reactor))
    }

    /// Takes the connection off this reactor, to another that is to own its queue. Possible while
    /// the first command, Connect, is in flight and nothing has been answered; otherwise (or if
    /// the connection has ended) it comes back unchanged.
    pub fn detach(self, reactor: &mut Reactor) -> Result<Detached, Self> {
        match self.inner {
            Inner::Tcp(connection) => match connection.detach(reactor) {
                Ok(detached) => Ok(Detached { inner: DetachedInner::Tcp(Box::new(detached)) }),
                Err(connection) => Err(Self { inner: Inner::Tcp(connection) }),
            },
            // These were placed when they asked.
            inner @ (Inner::Rdma(_) | Inner::Loopback(_)) => Err(Self { inner }),
        }
    }

    /// Continues a connection on this reactor. Its first command is in flight in slot 0.
    pub fn attach(
        reactor: &mut Reactor,
        owner: Owner,
        tag: u32,
        detached: Detached,
    ) -> io::Result<Self> {
        match detached.inner {
            DetachedInner::Tcp(detached) => {
                let connection = TcpTargetConnection::attach(reactor, owner, tag, *detached)?;
                Ok(Self { inner: Inner::Tcp(Box::new(connection)) })
            }
        }
    }

    /// The address that the host came to.
    pub fn local_address(&self, reactor: &Reactor) -> io::Result<SocketAddr> {
        each!(&self.inner, connection => connection.local_address(reactor))
    }

    /// The address that the host came from.
    pub fn peer_address(&self, reactor: &Reactor) -> io::Result<SocketAddr> {
        each!(&self.inner, connection => connection.peer_address(reactor))
    }

    /// Whether the connection could move to another reactor before its Connect is answered.
    #[must_use]
    pub const fn is_movable(&self) -> bool {
        matches!(self.inner, Inner::Tcp(_))
    }

    /// Whether the host's data is reached by keyed data pointers.
    #[must_use]
    pub const fn is_keyed(&self) -> bool {
        matches!(self.inner, Inner::Rdma(_))
    }

    /// What the handshake has agreed, once it has; but over TCP there is nothing to agree.
    #[must_use]
    pub fn negotiated(&self) -> Option<&Negotiated> {
        let Inner::Tcp(connection) = &self.inner else { return None };
        connection.negotiated()
    }

    /// Commands in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        each!(&self.inner, connection => connection.in_flight())
    }
}
