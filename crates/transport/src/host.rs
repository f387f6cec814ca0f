//! The host's side of a connection.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use weft_nvme::{Command, Completion};
use weft_nvmf::host::Transport;
use weft_nvmf::tcp::Negotiated;
use weft_nvmf::tcp::limits::{ADMIN_IN_CAPSULE_BYTES, MAXIMUM_R2T_DEFAULT};
use weft_reactor::{Buffer, Owner, Reactor};

use crate::limits::{CLOSE_TIMEOUT_DEFAULT, CONNECT_TIMEOUT_DEFAULT};
use crate::rdma::RemoteAccess;
use crate::tcp::host::TcpHostConnection;
use crate::{CloseReason, DataDigestError, Slot, loopback, rdma};

/// What a connection raises.
#[derive(Debug)]
pub enum HostEvent {
    /// The connection stands: commands, Connect first, may be submitted.
    Ready {
        /// What the handshake has agreed; but over TCP there is nothing to agree.
        negotiated: Option<Negotiated>,
    },
    /// A command is done; its slot is free.
    Completed {
        /// The command's slot.
        slot: Slot,
        /// The completion queue entry.
        completion: Completion,
        /// The buffer that was given, unless part of it is still being sent.
        buffer: Option<Buffer>,
        /// Bytes that the controller has sent into the buffer, from its beginning on. It is for
        /// the caller to know how many there had to be.
        received: u32,
    },
    /// A command is done, but its data cannot be trusted; its slot is free.
    Failed {
        /// The command's slot.
        slot: Slot,
        /// The buffer that was given.
        buffer: Option<Buffer>,
        /// Why.
        why: DataDigestError,
    },
    /// The connection is no more; nothing follows.
    Closed {
        /// Why.
        reason: CloseReason,
        /// Commands that were in flight, which may or may not have been executed, and their
        /// buffers, as far as they have come back.
        in_flight: Vec<(Slot, Option<Buffer>)>,
    },
}

/// A command's data.
#[derive(Debug)]
pub enum HostData {
    /// There is none.
    None,
    /// All of the buffer is the controller's to fetch. Nobody may write to it until it comes back.
    ToController(Buffer),
    /// The controller is to fill the buffer, which must not be shared.
    FromController(Buffer),
}

/// A command that could not be submitted.
#[derive(Debug)]
pub struct NotSubmitted {
    /// The data that was given.
    pub data: HostData,
    /// What is wrong with this side; `None`: no slot is free or the connection is not ready, which
    /// may change by itself.
    pub why: Option<CloseReason>,
}

impl From<HostData> for NotSubmitted {
    fn from(data: HostData) -> Self {
        Self { data, why: None }
    }
}

/// What carries a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransportOptions {
    /// A stream of bytes.
    #[default]
    Tcp,
    /// A queue pair of an RDMA device.
    Rdma {
        /// The queue that it is going to be (QID), which the controller wants to know beforehand.
        queue_id: u16,
        /// The controller that an I/O queue is for; 0 for an admin queue.
        controller_id: u16,
    },
    /// This process.
    Loopback,
}

/// How to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostOptions {
    /// What carries the connection.
    pub transport_options: TransportOptions,
    /// Ask for header digests.
    pub header_digest: bool,
    /// Ask for data digests.
    pub data_digest: bool,
    /// Commands in flight at most.
    pub queue_depth: u16,
    /// R2Ts of one command that the controller may have outstanding (MAXR2T).
    pub maximum_r2t: u32,
    /// Data up to this length goes within the capsule, until
    /// [`HostConnection::set_in_capsule_bytes`].
    pub in_capsule_bytes: u32,
    /// How the controller gets at data over RDMA; `None`: by the narrowest way that the device has.
    pub remote_access: Option<RemoteAccess>,
    /// Address to connect from.
    pub local: Option<SocketAddr>,
    /// Time until [`HostEvent::Ready`].
    pub timeout: Duration,
    /// Time for what is queued to go out when the connection is closed.
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
            timeout: CONNECT_TIMEOUT_DEFAULT,
            close_timeout: CLOSE_TIMEOUT_DEFAULT,
        }
    }
}

/// A connection to a controller: one queue pair, whatever the transport.
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
    /// Starts to connect. Completions for the connection carry `owner` and a token of which
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

    /// Takes a completion that is for this connection. Poll events afterwards.
    pub fn handle(&mut self, reactor: &mut Reactor, completion: weft_reactor::ReactorCompletion) {
        each!(&mut self.inner, connection => connection.handle(reactor, completion))
    }

    /// The next event, oldest first.
    pub fn poll_event(&mut self) -> Option<HostEvent> {
        each!(&mut self.inner, connection => connection.poll_event())
    }

    /// Commands that can be submitted now.
    #[must_use]
    pub fn free_slots(&self) -> usize {
        each!(&self.inner, connection => connection.free_slots())
    }

    /// Commands in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        each!(&self.inner, connection => connection.in_flight())
    }

    /// Submits a command. Its command identifier, PSDT and data pointer are filled in here.
    pub fn submit(&mut self, command: Command, data: HostData) -> Result<Slot, NotSubmitted> {
        each!(&mut self.inner, connection => connection.submit(command, data))
    }

    /// The command identifier of a command in flight, as an Abort needs it.
    #[must_use]
    pub fn command_id(&self, slot: Slot) -> Option<u16> {
        each!(&self.inner, connection => connection.command_id(slot))
    }

    /// Data up to this length goes within the capsule from now on (from IOCCSZ), where the
    /// transport has anything to gain by it.
    pub fn set_in_capsule_bytes(&mut self, bytes: u32) {
        each!(&mut self.inner, connection => connection.set_in_capsule_bytes(bytes))
    }

    /// Sends all that was queued in this turn, and receives on.
    pub fn flush(&mut self, reactor: &mut Reactor) {
        each!(&mut self.inner, connection => connection.flush(reactor))
    }

    /// Closes the connection: in good order if no command is in flight, or else at once and so that
    /// nothing of what is still on its way reaches the controller. Poll events afterwards;
    /// [`HostEvent::Closed`] may take a while.
    pub fn close(&mut self, reactor: &mut Reactor, reason: CloseReason) {
        each!(&mut self.inner, connection => connection.close(reactor, reason))
    }

    /// The address that the connection comes from.
    pub fn local_address(&self, reactor: &Reactor) -> io::Result<SocketAddr> {
        each!(&self.inner, connection => connection.local_address(reactor))
    }

    /// What carries the connection.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        match &self.inner {
            Inner::Tcp(_) => Transport::Tcp,
            Inner::Rdma(_) => Transport::Rdma,
            Inner::Loopback(_) => Transport::Loopback,
        }
    }

    /// What the handshake has agreed, once it has.
    #[must_use]
    pub fn negotiated(&self) -> Option<&Negotiated> {
        let Inner::Tcp(connection) = &self.inner else { return None };
        connection.negotiated()
    }
}
