//! The target side of a connection.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use weft_nvme::sgl::Location;
use weft_nvme::{Command, Completion, Status};
use weft_nvmf::tcp::Negotiated;
use weft_reactor::{Buffer, Life, Owner, Reactor, SocketId};

use crate::listen::RequestState;
pub use crate::target_event::{CapsuleData, Event};
pub use crate::target_limits::Limits;
use crate::tcp::target::{DetachedConnection, TcpTargetConnection};
use crate::tls::{TlsAcceptor, TlsFault, TlsMode, TlsRecords};
use crate::{CloseReason, Incoming, Slot, loopback, rdma};

/// The location and length of a command's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// The length described by the SGL.
    pub bytes: u32,
    /// Whether the data is in the capsule (and came with [`Event::Command`]).
    pub in_capsule: bool,
}

/// A host's connection to this target: one queue pair over any transport.
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

/// A connection that is being moved to another reactor.
#[derive(Debug)]
pub struct Detached {
    inner: DetachedInner,
}

#[derive(Debug)]
enum DetachedInner {
    Tcp(Box<DetachedConnection>),
}

impl TargetConnection {
    /// Takes a connection that the reactor has accepted. Its completions carry `owner` and a token
    /// whose [`crate::tag_of`] is `tag` (at most [`crate::TAG_MAX`]).
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

    /// Uses TLS for a connection that was just accepted, as its port's mode says, and with records
    /// made by whom the port says.
    ///
    /// # Errors
    /// The transport is not TCP, or the library fails.
    pub fn secure(
        &mut self,
        acceptor: &TlsAcceptor,
        mode: TlsMode,
        records: TlsRecords,
    ) -> Result<(), TlsFault> {
        match &mut self.inner {
            Inner::Tcp(connection) => connection.secure(acceptor, mode, records),
            _ => Err(TlsFault::NotTcp),
        }
    }

    /// The identity of the PSK in use, if the connection has TLS.
    #[must_use]
    pub fn tls_identity(&self) -> Option<String> {
        match &self.inner {
            Inner::Tcp(connection) => connection.tls_identity(),
            _ => None,
        }
    }

    /// Who has the records, if the connection has TLS.
    #[must_use]
    pub fn tls_records(&self) -> Option<TlsRecords> {
        match &self.inner {
            Inner::Tcp(connection) => connection.tls_records(),
            _ => None,
        }
    }

    /// Accepts a host's request for a queue. Completions are as for [`TargetConnection::accept`].
    /// Poll events at once: creating the queue may have failed.
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

    /// The command at the start of what a completion has received, unchecked, so that its memory
    /// can be prefetched while it is parsed.
    #[must_use]
    pub fn peek_command<'a>(
        &self,
        completion: &'a weft_reactor::ReactorCompletion,
    ) -> Option<&'a Command> {
        let Inner::Tcp(connection) = &self.inner else { return None };
        connection.peek_command(completion)
    }

    /// Handles a completion of this connection. Poll events afterwards.
    pub fn handle(&mut self, reactor: &mut Reactor, completion: weft_reactor::ReactorCompletion) {
        each!(&mut self.inner, connection => connection.handle(reactor, completion))
    }

    /// The next event, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        each!(&mut self.inner, connection => connection.poll_event())
    }

    /// The submission queue entry of the command in flight in a slot.
    pub fn command(&self, slot: Slot) -> Option<&Command> {
        each!(&self.inner, connection => connection.command(slot))
    }

    /// Events that have come and were not polled.
    pub fn events(&self) -> usize {
        each!(&self.inner, connection => connection.events())
    }

    /// Whether [`TargetConnection::poll_event`] would return an event.
    pub fn has_events(&self) -> bool {
        each!(&self.inner, connection => connection.has_events())
    }

    /// Sets the queue of an accepted Connect: its identifier, depth, and whether it uses SQ flow
    /// control. To be called before Connect is completed.
    pub fn set_queue(&mut self, queue_id: u16, depth: u16, sq_flow_control: bool) {
        each!(&mut self.inner, connection => connection.set_queue(queue_id, depth, sq_flow_control))
    }

    /// The location of a command's data, or the status to complete it with because this transport
    /// does not support its data pointer.
    pub fn transfer(&self, command: &Command) -> Result<Transfer, Status> {
        // The RDMA transport has converted keyed data pointers to these two forms.
        match command.data_pointer.location() {
            Ok(Location::InCapsule { offset: 0, length }) => {
                Ok(Transfer { bytes: length, in_capsule: true })
            }
            Ok(Location::InCapsule { .. }) => Err(Status::SGL_OFFSET_INVALID.with_dnr()),
            Ok(Location::Transport { length }) => Ok(Transfer { bytes: length, in_capsule: false }),
            Ok(_) | Err(_) => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr()),
        }
    }

    /// Transfers the first `buffer.len()` bytes of a command's data from the host; [`Event::Data`]
    /// reports the end. The buffer must not be shared.
    pub fn receive(&mut self, slot: Slot, buffer: Buffer) {
        each!(&mut self.inner, connection => connection.receive(slot, buffer))
    }

    /// Sends data to the host and completes the command. The slot is free.
    pub fn send(&mut self, slot: Slot, buffer: Buffer, completion: Completion) {
        each!(&mut self.inner, connection => connection.send(slot, buffer, completion))
    }

    /// Completes the command. The slot is free. If requested data is still to come, the completion
    /// is sent after it, because the host has been told to send it; the data is dropped.
    pub fn complete(&mut self, slot: Slot, completion: Completion) {
        each!(&mut self.inner, connection => connection.complete(slot, completion))
    }

    /// The host has given the command up and takes no completion for it, as it may do with an
    /// Asynchronous Event Request. The slot is free; no data of it may be on its way.
    pub fn discard(&mut self, slot: Slot) {
        each!(&mut self.inner, connection => connection.discard(slot))
    }

    /// Sends all that was queued in this turn, and continues to receive.
    pub fn flush(&mut self, reactor: &mut Reactor) {
        each!(&mut self.inner, connection => connection.flush(reactor))
    }

    /// Closes the connection once what is queued has been sent, or after [`Limits::close_timeout`].
    /// Poll events afterwards; [`Event::Closed`] may take a while.
    pub fn close(&mut self, reactor: &mut Reactor, reason: CloseReason) {
        each!(&mut self.inner, connection => connection.close(reactor, reason))
    }

    /// Closes the connection at once, even if it is being closed already: its descriptor is needed.
    /// Poll events afterwards.
    pub fn abort(&mut self, reactor: &mut Reactor, reason: CloseReason) {
        each!(&mut self.inner, connection => connection.abort(reactor, reason))
    }

    /// The length of in-capsule data for which there is no memory. The connection receives nothing
    /// until [`TargetConnection::provide`] passes it a buffer of this length.
    #[must_use]
    pub fn wanted(&self) -> Option<usize> {
        each!(&self.inner, connection => connection.wanted())
    }

    /// Bounds the memory for in-capsule data of commands that may wait for long: a connection with
    /// such commands in flight takes more only while it leaves this much of the pool free. Else it
    /// receives nothing, and others need not wait for it. `None`: no such bound.
    pub fn bound_capsules(&mut self, leave: Option<usize>) {
        each!(&mut self.inner, connection => connection.bound_capsules(leave));
    }

    /// Passes the buffer requested by [`TargetConnection::wanted`]. Poll events afterwards.
    pub fn provide(&mut self, reactor: &mut Reactor, buffer: Buffer) {
        each!(&mut self.inner, connection => connection.provide(reactor, buffer))
    }

    /// Bytes of responses that were copied from the pool's buffers and are not sent yet.
    #[must_use]
    pub fn copied_bytes(&self) -> usize {
        let Inner::Tcp(connection) = &self.inner else { return 0 };
        connection.copied_bytes()
    }

    /// Bytes of the pool held for a host that has made no progress for `patience`: it neither sends
    /// the data requested from it nor reads what it is sent. A host that sends too little of it is
    /// found by the second call, at least that long after the first.
    #[must_use]
    pub fn stalled_bytes(&mut self, now: Duration, patience: Duration) -> usize {
        each!(&mut self.inner, connection => connection.stalled_bytes(now, patience))
    }

    /// Whether the connection is about to end, or the host has ended it; data that the host sent
    /// before may not have been received yet.
    #[must_use]
    pub fn is_ending(&self, reactor: &Reactor) -> bool {
        each!(&self.inner, connection => connection.is_ending(reactor))
    }

    /// Whether the host has shown since then that it is alive. Over TCP it is asked, if it has not:
    /// ask again a little later. An adapter reports a host that does not respond by itself.
    pub fn life_since(&self, reactor: &Reactor, since: Duration) -> Life {
        match &self.inner {
            Inner::Tcp(connection) => connection.life_since(reactor, since),
            Inner::Rdma(_) | Inner::Loopback(_) => Life::Shown,
        }
    }

    /// Detaches the connection from this reactor, for another that will own its queue. Possible
    /// while its first command, Connect, is in flight and nothing has been sent; otherwise, or if
    /// the connection has ended, it is returned unchanged.
    pub fn detach(self, reactor: &mut Reactor) -> Result<Detached, Self> {
        match self.inner {
            Inner::Tcp(connection) => match connection.detach(reactor) {
                Ok(detached) => Ok(Detached { inner: DetachedInner::Tcp(Box::new(detached)) }),
                Err(connection) => Err(Self { inner: Inner::Tcp(connection) }),
            },
            // Their reactor was chosen when they were accepted.
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

    /// The address that the host connected to.
    pub fn local_address(&self, reactor: &Reactor) -> io::Result<SocketAddr> {
        each!(&self.inner, connection => connection.local_address(reactor))
    }

    /// The address of the host.
    pub fn peer_address(&self, reactor: &Reactor) -> io::Result<SocketAddr> {
        each!(&self.inner, connection => connection.peer_address(reactor))
    }

    /// Whether the connection can move to another reactor before its Connect is completed.
    #[must_use]
    pub const fn is_movable(&self) -> bool {
        matches!(self.inner, Inner::Tcp(_))
    }

    /// Whether commands have keyed data pointers.
    #[must_use]
    pub const fn is_keyed(&self) -> bool {
        matches!(self.inner, Inner::Rdma(_))
    }

    /// The result of the handshake, once it is done; over TCP there is nothing to negotiate.
    #[must_use]
    pub fn negotiated(&self) -> Option<&Negotiated> {
        let Inner::Tcp(connection) = &self.inner else { return None };
        connection.negotiated()
    }

    /// Has the reactor serve it apart from the others, or no longer; an error where the transport
    /// or the reactor cannot.
    pub fn set_express(&mut self, reactor: &mut Reactor, is_express: bool) -> io::Result<()> {
        match &mut self.inner {
            Inner::Tcp(connection) => connection.set_express(reactor, is_express),
            Inner::Rdma(connection) => connection.set_express(is_express),
            Inner::Loopback(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The number of commands in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        each!(&self.inner, connection => connection.in_flight())
    }
}
