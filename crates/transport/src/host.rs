//! The host side of a connection.

mod event;
mod options;

use std::io;
use std::net::SocketAddr;

use weft_nvme::Command;
use weft_nvmf::host::Transport;
use weft_nvmf::tcp::Negotiated;
use weft_reactor::{Marking, Owner, Reactor};

use crate::tcp::host::TcpHostConnection;
use crate::tls::{TlsConnector, TlsFault, TlsRecords};
use crate::{CloseReason, Slot, loopback, rdma};
pub use event::{HostData, HostEvent, NotSubmitted};
pub use options::{HostOptions, TransportOptions};

/// A connection to a controller: one queue pair over any transport.
#[derive(Debug)]
pub struct HostConnection {
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Tcp(Box<TcpHostConnection>),
    Rdma(Box<rdma::host::RdmaHostConnection>),
    Loopback(Box<loopback::host::LoopbackHostConnection>),
}

impl HostConnection {
    /// Starts to connect. Completions of the connection carry `owner` and a token whose
    /// [`crate::tag_of`] is `tag` (at most [`crate::TAG_MAX`]).
    pub fn connect(
        reactor: &mut Reactor,
        owner: Owner,
        tag: u32,
        address: SocketAddr,
        options: HostOptions,
    ) -> Self {
        let inner = match options.transport_options {
            TransportOptions::Tcp => {
                let connection = TcpHostConnection::connect(reactor, owner, tag, address, options);
                Inner::Tcp(Box::new(connection))
            }
            TransportOptions::Rdma { .. } => {
                let connect = rdma::host::RdmaHostConnection::connect;
                Inner::Rdma(Box::new(connect(reactor, owner, tag, address, options)))
            }
            TransportOptions::Loopback => {
                let connect = loopback::host::LoopbackHostConnection::connect;
                Inner::Loopback(Box::new(connect(reactor, owner, tag, address, options)))
            }
        };
        Self { inner }
    }

    /// Uses TLS for a connection that has just begun.
    ///
    /// # Errors
    /// The transport is not TCP, or the library fails.
    pub fn secure(&mut self, connector: &TlsConnector) -> Result<(), TlsFault> {
        match &mut self.inner {
            Inner::Tcp(connection) => connection.secure(connector),
            _ => Err(TlsFault::NotTcp),
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

    /// Handles a completion of this connection. Poll events afterwards.
    pub fn handle(&mut self, reactor: &mut Reactor, completion: weft_reactor::ReactorCompletion) {
        each!(&mut self.inner, connection => connection.handle(reactor, completion))
    }

    /// The next event, oldest first.
    pub fn poll_event(&mut self) -> Option<HostEvent> {
        each!(&mut self.inner, connection => connection.poll_event())
    }

    /// How many commands can be submitted now.
    #[must_use]
    pub fn free_slots(&self) -> usize {
        each!(&self.inner, connection => connection.free_slots())
    }

    /// The number of commands in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        each!(&self.inner, connection => connection.in_flight())
    }

    /// Submits a command, whose command identifier, PSDT and data pointer are set here.
    pub fn submit(&mut self, command: Command, data: HostData) -> Result<Slot, NotSubmitted> {
        each!(&mut self.inner, connection => connection.submit(command, data))
    }

    /// The command identifier of a command in flight, for Abort.
    #[must_use]
    pub fn command_id(&self, slot: Slot) -> Option<u16> {
        each!(&self.inner, connection => connection.command_id(slot))
    }

    /// Sets the length up to which data is sent in the capsule (from IOCCSZ), where the transport
    /// benefits from that.
    pub fn set_in_capsule_bytes(&mut self, bytes: u32) {
        each!(&mut self.inner, connection => connection.set_in_capsule_bytes(bytes))
    }

    /// Has the reactor hand out what comes for it apart from the others
    /// ([`Reactor::has_express`]), or no longer; an error where the transport or the reactor
    /// cannot.
    pub fn set_express(&self, reactor: &mut Reactor, is_express: bool) -> io::Result<()> {
        match &self.inner {
            Inner::Tcp(connection) => connection.set_express(reactor, is_express),
            Inner::Rdma(connection) => connection.set_express(is_express),
            Inner::Loopback(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Sends all that was queued in this turn, and continues to receive.
    pub fn flush(&mut self, reactor: &mut Reactor) {
        each!(&mut self.inner, connection => connection.flush(reactor))
    }

    /// Closes the connection: gracefully if no command is in flight, otherwise at once, so that
    /// nothing still unsent reaches the controller. Poll events afterwards; [`HostEvent::Closed`]
    /// may take a while.
    pub fn close(&mut self, reactor: &mut Reactor, reason: CloseReason) {
        each!(&mut self.inner, connection => connection.close(reactor, reason))
    }

    /// The local address.
    pub fn local_address(&self, reactor: &Reactor) -> io::Result<SocketAddr> {
        each!(&self.inner, connection => connection.local_address(reactor))
    }

    /// How what it sends is marked; none over other transports than TCP.
    #[must_use]
    pub fn marking(&self, reactor: &Reactor) -> Option<Marking> {
        match &self.inner {
            Inner::Tcp(connection) => connection.marking(reactor),
            Inner::Rdma(_) | Inner::Loopback(_) => None,
        }
    }

    /// The transport.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        match &self.inner {
            Inner::Tcp(_) => Transport::Tcp,
            Inner::Rdma(_) => Transport::Rdma,
            Inner::Loopback(_) => Transport::Loopback,
        }
    }

    /// The result of the handshake, once it is done.
    #[must_use]
    pub fn negotiated(&self) -> Option<&Negotiated> {
        let Inner::Tcp(connection) = &self.inner else { return None };
        connection.negotiated()
    }
}
