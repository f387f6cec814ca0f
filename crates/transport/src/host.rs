//! The host side of a connection.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use weft_nvme::{Command, Completion};
use weft_nvmf::host::Transport;
use weft_nvmf::tcp::Negotiated;
use weft_nvmf::tcp::limits::{ADMIN_IN_CAPSULE_BYTES, MAXIMUM_R2T_DEFAULT};
use weft_reactor::{Buffer, Marking, Owner, Reactor};

use crate::limits::{CLOSE_TIMEOUT_DEFAULT, CONNECT_TIMEOUT_DEFAULT};
use crate::rdma::RemoteAccess;
use crate::tcp::host::TcpHostConnection;
use crate::tls::{TlsConnector, TlsFault, TlsRecords};
use crate::{CloseReason, DataDigestError, Slot, loopback, rdma};

/// Events of a connection.
#[derive(Debug)]
pub enum HostEvent {
    /// The connection is established: commands, first of all Connect, may be submitted.
    Ready {
        /// The result of the handshake; over TCP there is nothing to negotiate.
        negotiated: Option<Negotiated>,
    },
    /// A command has completed; its slot is free.
    Completed {
        /// The command's slot.
        slot: Slot,
        /// The completion queue entry.
        completion: Completion,
        /// The command's buffer, unless part of it is still being sent.
        buffer: Option<Buffer>,
        /// Bytes that the controller has transferred into the buffer, from its start. The caller
        /// checks whether they are complete.
        received: u32,
    },
    /// A command has completed, but its data is corrupt; its slot is free.
    Failed {
        /// The command's slot.
        slot: Slot,
        /// The command's buffer.
        buffer: Option<Buffer>,
        /// The error.
        why: DataDigestError,
    },
    /// The connection is closed; the last event.
    Closed {
        /// The reason.
        reason: CloseReason,
        /// Commands that were in flight, which may or may not have been executed, and their buffers
        /// as far as they were returned.
        in_flight: Vec<(Slot, Option<Buffer>)>,
    },
}

/// A command's data.
#[derive(Debug)]
pub enum HostData {
    /// No data.
    None,
    /// Data for the controller: the whole buffer. It must not change until it is returned.
    ToController(Buffer),
    /// A buffer for the controller to fill, which must not be shared.
    FromController(Buffer),
}

/// A command that could not be submitted.
#[derive(Debug)]
pub struct NotSubmitted {
    /// The command's data.
    pub data: HostData,
    /// The error of this side, if any; `None`: no slot is free or the connection is not ready, and
    /// the command may be submitted later.
    pub why: Option<CloseReason>,
}

impl From<HostData> for NotSubmitted {
    fn from(data: HostData) -> Self {
        Self { data, why: None }
    }
}

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
    /// [`HostConnection::set_in_capsule_bytes`].
    pub in_capsule_bytes: u32,
    /// How the controller accesses data over RDMA; `None`: the narrowest way that the device
    /// supports.
    pub remote_access: Option<RemoteAccess>,
    /// Address to connect from.
    pub local: Option<SocketAddr>,
    /// How what is sent over TCP is marked.
    pub marking: Marking,
    /// Time until [`HostEvent::Ready`].
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
