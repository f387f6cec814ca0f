//! The verbs and the connection manager, as far as NVMe over RDMA needs them.
//!
//! Each type has two implementations: the libraries of this machine, loaded at run time (`real`),
//! and a device in memory (`software`, behind a feature for tests and the simulator) with the same
//! rules, checked more strictly. The code above is the same for both.
//!
//! # Ownership
//!
//! * A `Manager` belongs to one reactor, as do its endpoints and listeners. Only an `Incoming` may
//!   move to another thread.
//! * A `Device` is one reactor's open device (with protection domain and completion channel).
//!   `Region`s, `CompletionQueue`s and endpoints keep alive what they need of it, so they may be
//!   dropped in any order.
//! * Memory that a work request uses belongs to the device from the post until the completion, or
//!   until the endpoint is dropped; the caller keeps the buffer for that long. The peer may access
//!   a region with remote rights while it is registered, and others through a memory window from
//!   its binding until its invalidation, or until the endpoint is dropped. Only buffers of a
//!   reactor's pool are registered: their contents are plain bytes, of which every pattern is
//!   valid.
//!
//! # Events
//!
//! `CompletionQueue::poll` makes no system call. Before the reactor sleeps, each queue is armed and
//! polled once more; then the `Device::descriptor` becomes readable with the next completion, until
//! `Device::take_events`. The manager's descriptor is non-blocking; `Manager::poll` is called until
//! it returns `None`. Each `Device` gets a copy of every asynchronous event (`Device::poll_event`).
//! A device without descriptors calls the reactor's waker instead.

#![allow(unsafe_code)]

mod real;
#[cfg(feature = "software")]
pub mod software;
mod types;

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use weft_reactor::{Pool, Waker};

pub use real::{LocalDevice, devices};
pub(crate) use types::{
    Access, DeviceEvent, NotRegistered, Parameters, Piece, Pieces, PostError, PrivateData,
    QueuePairLimits, QueuePairOptions, ReceiveWork, SOFT_IWARP_SHORT_BYTES, SendOperation,
    SendWork, WindowRange, WorkCompletion,
};
pub use types::{Attributes, DeviceFault, DeviceKind, RemoteAccess, WorkStatus};

/// Calls the same function of either implementation; its result becomes a type of this module.
macro_rules! either {
    ($this:expr, $inner:ident => $result:expr) => {
        match $this {
            Self::Real($inner) => $result,
            #[cfg(feature = "software")]
            Self::Software($inner) => $result,
        }
    };
    ($this:expr, $inner:ident => $result:expr, makes $made:ident) => {
        match $this {
            Self::Real($inner) => $result.map($made::Real),
            #[cfg(feature = "software")]
            Self::Software($inner) => $result.map($made::Software),
        }
    };
}

/// Declares types that wrap the type of the same name of either implementation.
macro_rules! either_types {
    ($($(#[$attribute:meta])* $name:ident;)*) => {$(
        $(#[$attribute])*
        #[derive(Debug)]
        pub(crate) enum $name {
            Real(real::$name),
            #[cfg(feature = "software")]
            Software(software::$name),
        }
    )*};
}

either_types! {
    /// One reactor's access to the connection manager.
    Manager;
    /// A listener, until it is dropped.
    Listener;
    /// A connection request, on the way to the reactor that accepts it. It is rejected, without
    /// private data, if it is dropped.
    Incoming;
    /// A connection: an identifier of the connection manager and, once created, its queue pair.
    /// Dropping it destroys both, after which nothing completes.
    Endpoint;
    /// A device as one reactor has opened it.
    Device;
    /// A protection domain: only its queue pairs can access what is registered in it.
    Domain;
    /// Registered memory, until it is dropped.
    Region;
    /// A completion queue.
    CompletionQueue;
}

/// An event of the connection manager for one endpoint or listener.
pub(crate) type ManagerEvent = types::ManagerEvent<Incoming>;

/// The kind of an event of the connection manager.
pub(crate) type CmEvent = types::CmEvent<Incoming>;

/// Where devices come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Provider {
    /// This machine, through libibverbs and librdmacm.
    #[default]
    System,
    /// A simulated fabric.
    #[cfg(feature = "software")]
    Software(software::Fabric),
}

impl Provider {
    /// Whether devices can be used at all; if not, the error is a sentence for the user. The waker
    /// is that of a reactor that will use them.
    pub fn check(&self, waker: Waker) -> io::Result<()> {
        self.open(waker).map(drop)
    }

    /// Opens the connection manager for a reactor. The waker is called where there is no descriptor
    /// to watch.
    #[cfg_attr(not(feature = "software"), expect(unused_variables))]
    pub(crate) fn open(&self, waker: Waker) -> io::Result<Manager> {
        match self {
            Self::System => real::Manager::open().map(Manager::Real),
            #[cfg(feature = "software")]
            Self::Software(fabric) => Ok(Manager::Software(fabric.open(waker))),
        }
    }
}

impl Manager {
    /// The descriptor that becomes readable with an event.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        either!(self, manager => manager.descriptor())
    }

    /// Listens. Port 0 takes a free one.
    pub(crate) fn listen(&mut self, address: SocketAddr, backlog: u32) -> io::Result<Listener> {
        either!(self, manager => manager.listen(address, backlog), makes Listener)
    }

    /// Starts to resolve an address. `AddressResolved` follows, then `RouteResolved`, or `Failed`.
    pub(crate) fn resolve(
        &mut self,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        timeout: Duration,
    ) -> io::Result<Endpoint> {
        either!(self, manager => manager.resolve(remote, local, timeout), makes Endpoint)
    }

    /// Takes a request, perhaps from another reactor's manager. Its events are reported here from
    /// now on.
    pub(crate) fn adopt(&mut self, incoming: Incoming) -> io::Result<Endpoint> {
        match (self, incoming) {
            (Self::Real(manager), Incoming::Real(incoming)) => {
                manager.adopt(incoming).map(Endpoint::Real)
            }
            #[cfg(feature = "software")]
            (Self::Software(manager), Incoming::Software(incoming)) => {
                Ok(Endpoint::Software(manager.adopt(incoming)))
            }
            #[cfg(feature = "software")]
            _ => Err(of_another_provider()),
        }
    }

    /// The next event, if any. Never blocks.
    pub(crate) fn poll(&mut self) -> io::Result<Option<ManagerEvent>> {
        Ok(match self {
            Self::Real(manager) => manager.poll()?.map(|event| event.map(Incoming::Real)),
            #[cfg(feature = "software")]
            Self::Software(manager) => manager.poll()?.map(|event| event.map(Incoming::Software)),
        })
    }
}

impl Listener {
    /// The key of its events.
    pub(crate) fn key(&self) -> u64 {
        either!(self, listener => listener.key())
    }

    /// The address with the actual port.
    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        either!(self, listener => listener.local_address())
    }
}

impl Incoming {
    /// Rejects the request, with private data.
    pub(crate) fn reject(self, private_data: &[u8]) {
        either!(self, incoming => incoming.reject(private_data));
    }

    /// The address that the peer connected to.
    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        either!(self, incoming => incoming.local_address())
    }

    /// The address of the peer.
    pub(crate) fn peer_address(&self) -> io::Result<SocketAddr> {
        either!(self, incoming => incoming.peer_address())
    }
}

impl Endpoint {
    /// The key of its events.
    pub(crate) fn key(&self) -> u64 {
        either!(self, endpoint => endpoint.key())
    }

    /// The number of its device, the same for the same adapter. `None` until its address is
    /// resolved.
    pub(crate) fn device_key(&self) -> Option<u64> {
        either!(self, endpoint => endpoint.device_key())
    }

    /// Opens its device for this reactor.
    pub(crate) fn open_device(&self) -> io::Result<Device> {
        either!(self, endpoint => endpoint.open_device(), makes Device)
    }

    /// Creates the queue pair, once.
    pub(crate) fn create_queue_pair(
        &mut self,
        domain: &Domain,
        completions: &CompletionQueue,
        options: QueuePairOptions,
    ) -> io::Result<QueuePairLimits> {
        match (self, domain, completions) {
            (Self::Real(endpoint), Domain::Real(domain), CompletionQueue::Real(completions)) => {
                endpoint.create_queue_pair(domain, completions, options)
            }
            #[cfg(feature = "software")]
            (
                Self::Software(endpoint),
                Domain::Software(domain),
                CompletionQueue::Software(completions),
            ) => endpoint.create_queue_pair(domain, completions, options),
            #[cfg(feature = "software")]
            _ => Err(of_another_provider()),
        }
    }

    /// Sets what the next binding of a memory window, by the next posted chain, gives access to.
    /// Returns the remote key, a new one each time.
    pub(crate) fn prepare_window(
        &mut self,
        window: u16,
        region: &Region,
        opening: WindowRange,
    ) -> io::Result<u32> {
        match (self, region) {
            (Self::Real(endpoint), Region::Real(region)) => {
                endpoint.prepare_window(window, region, opening)
            }
            #[cfg(feature = "software")]
            (Self::Software(endpoint), Region::Software(region)) => {
                endpoint.prepare_window(window, region, opening)
            }
            #[cfg(feature = "software")]
            _ => Err(of_another_provider()),
        }
    }

    /// Sends a connection request. `Established`, `Rejected` or `Failed` follows.
    pub(crate) fn connect(&mut self, parameters: &Parameters) -> io::Result<()> {
        either!(self, endpoint => endpoint.connect(parameters))
    }

    /// Accepts the peer's request. `Established` or `Failed` follows; a receive may complete
    /// before that.
    pub(crate) fn accept(&mut self, parameters: &Parameters) -> io::Result<()> {
        either!(self, endpoint => endpoint.accept(parameters))
    }

    /// Rejects the peer's request after it was adopted.
    pub(crate) fn reject(&mut self, private_data: &[u8]) -> io::Result<()> {
        either!(self, endpoint => endpoint.reject(private_data))
    }

    /// Disconnects: posted work completes as flushed, and `Disconnected` follows.
    pub(crate) fn disconnect(&mut self) -> io::Result<()> {
        either!(self, endpoint => endpoint.disconnect())
    }

    /// Posts a chain to the send queue and rings the doorbell once.
    pub(crate) fn post_send(&mut self, chain: &[SendWork]) -> Result<(), PostError> {
        either!(self, endpoint => endpoint.post_send(chain))
    }

    /// Posts a chain to the receive queue.
    pub(crate) fn post_receive(&mut self, chain: &[ReceiveWork]) -> Result<(), PostError> {
        either!(self, endpoint => endpoint.post_receive(chain))
    }

    /// The local address.
    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        either!(self, endpoint => endpoint.local_address())
    }
}

impl Device {
    /// The properties of the device.
    pub(crate) fn attributes(&self) -> &Attributes {
        either!(self, device => device.attributes())
    }

    /// The descriptor that becomes readable when an armed queue has a completion.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        either!(self, device => device.descriptor())
    }

    /// Takes the completion channel's events, after which the descriptor is not readable.
    pub(crate) fn take_events(&mut self) {
        either!(self, device => device.take_events());
    }

    /// The descriptor that becomes readable with an asynchronous event.
    pub(crate) fn event_descriptor(&self) -> Option<BorrowedFd<'_>> {
        either!(self, device => device.event_descriptor())
    }

    /// The next asynchronous event of the device, or of any queue pair or completion queue on it.
    /// Never blocks.
    pub(crate) fn poll_event(&mut self) -> Option<DeviceEvent> {
        either!(self, device => device.poll_event())
    }

    /// A new protection domain.
    pub(crate) fn create_domain(&self) -> io::Result<Domain> {
        either!(self, device => device.create_domain(), makes Domain)
    }

    /// A completion queue on this device's channel.
    pub(crate) fn create_completion_queue(&self, entries: u32) -> io::Result<CompletionQueue> {
        either!(self, device => device.create_completion_queue(entries), makes CompletionQueue)
    }
}

impl Domain {
    /// Registers `bytes` bytes of the pool from `offset` on.
    pub(crate) fn register(
        &self,
        pool: &Pool,
        offset: usize,
        bytes: usize,
        access: Access,
    ) -> io::Result<Region> {
        either!(self, domain => domain.register(pool, offset, bytes, access), makes Region)
    }
}

impl Region {
    /// The key for this side's work requests.
    pub(crate) fn local_key(&self) -> u32 {
        either!(self, region => region.local_key())
    }

    /// The key for the peer's work requests.
    pub(crate) fn remote_key(&self) -> u32 {
        either!(self, region => region.remote_key())
    }
}

impl CompletionQueue {
    /// The key of its failure event.
    pub(crate) fn key(&self) -> u64 {
        either!(self, queue => queue.key())
    }

    /// Appends up to `most` completions. Returns how many.
    pub(crate) fn poll(
        &mut self,
        most: usize,
        into: &mut Vec<WorkCompletion>,
    ) -> io::Result<usize> {
        either!(self, queue => queue.poll(most, into))
    }

    /// Makes the next completion signal the device's descriptor (or call the waker). Earlier
    /// completions do not: poll once more after this.
    pub(crate) fn arm(&mut self) -> io::Result<()> {
        either!(self, queue => queue.arm())
    }
}

#[cfg(feature = "software")]
fn of_another_provider() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "the object belongs to another provider")
}
