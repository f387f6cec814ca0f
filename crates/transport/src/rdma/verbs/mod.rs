//! The verbs and the connection manager, as far as NVMe over RDMA needs them.
//!
//! Two implementations stand behind each type: the libraries of this machine, loaded at run time
//! (`real`), and a device in memory (`software`, behind a feature that only tests and the simulator
//! turn on) that obeys the same rules and is stricter about them. What lies above cannot tell which
//! one it has.
//!
//! # Who owns what
//!
//! * A `Manager` belongs to one reactor, as do the endpoints and listeners made from it. Only
//!   an `Incoming` travels to another thread.
//! * A `Device` is one reactor's hold on an adapter (its protection domain and completion
//!   channel). `Region`s, `CompletionQueue`s and endpoints keep what they need of it alive;
//!   dropping each in any order is sound and gives everything back.
//! * Memory that a work request names belongs to the device from the post until its completion,
//!   or until the endpoint is dropped: who posts keeps the buffer for that long. A region with
//!   rights for the peer may be accessed by it for as long as it is registered, and others through
//!   a memory window from its binding until it was invalidated, or the endpoint is dropped. Only
//!   buffers of a reactor's pool are registered: their contents are plain bytes, of which every
//!   pattern is valid.
//!
//! # Events
//!
//! A look costs no system call: `CompletionQueue::poll`. Before its reactor sleeps, each queue
//! is armed and polled once more; then the `Device::descriptor` becomes readable with the next
//! completion, and `Device::take_events` makes it unreadable again. The manager's descriptor is
//! non-blocking; `Manager::poll` is called until it has nothing more. What a device says by itself
//! is for whoever holds it: each hold on it hears all of it (`Device::poll_event`). A device
//! without descriptors calls the reactor's waker instead.

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
    Access, CmEvent, DeviceEvent, ManagerEvent, NotRegistered, Opening, Parameters, Piece, Pieces,
    PostError, PrivateData, QueuePairLimits, QueuePairOptions, ReceiveWork, SOFT_IWARP_SHORT_BYTES,
    SendOperation, SendWork, WorkCompletion,
};
pub use types::{Attributes, DeviceFault, DeviceKind, RemoteAccess, WorkStatus};

/// Does the same with either implementation; what that makes becomes a type of this module.
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

/// Declares types that are one or the other implementation's of the same name.
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
    /// One reactor's way to the connection manager.
    Manager;
    /// An address that is listened on, until it is dropped.
    Listener;
    /// Somebody who wants to connect, on the way to the reactor that is to take it. Dropped, it is
    /// rejected without a word.
    Incoming;
    /// One connection: an identifier of the connection manager and, once made, its queue pair.
    /// Dropped, both are gone, and nothing completes any more.
    Endpoint;
    /// One reactor's hold on an adapter.
    Device;
    /// A protection domain: what is registered in it is reached by its queue pairs only.
    Domain;
    /// Registered memory, until it is dropped.
    Region;
    /// Where work completes.
    CompletionQueue;
}

/// Where devices come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Provider {
    /// This machine's, through libibverbs and librdmacm.
    #[default]
    System,
    /// Made up in memory.
    #[cfg(feature = "software")]
    Software(software::Fabric),
}

impl Provider {
    /// Whether there is a way to devices at all; if not, the error is a sentence for the user. The
    /// waker is that of a reactor that is going to use them.
    pub fn check(&self, waker: Waker) -> io::Result<()> {
        self.open(waker).map(drop)
    }

    /// A reactor's way to the connection manager. The waker is called where there is no
    /// descriptor to watch.
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
    /// What becomes readable when there are events.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        either!(self, manager => manager.descriptor())
    }

    /// Listens. Port 0 takes a free one.
    pub(crate) fn listen(&mut self, address: SocketAddr, backlog: u32) -> io::Result<Listener> {
        either!(self, manager => manager.listen(address, backlog), makes Listener)
    }

    /// Begins to look for the way to an address. `AddressResolved` follows, then `RouteResolved`
    /// (both asked for here), or `Failed`.
    pub(crate) fn resolve(
        &mut self,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        timeout: Duration,
    ) -> io::Result<Endpoint> {
        either!(self, manager => manager.resolve(remote, local, timeout), makes Endpoint)
    }

    /// Takes a request over, perhaps from another reactor's manager. From now on its events come
    /// here.
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

    /// The next event, if there is one. Never blocks.
    pub(crate) fn poll(&mut self) -> io::Result<Option<ManagerEvent>> {
        either!(self, manager => manager.poll())
    }
}

impl Listener {
    /// What its events carry.
    pub(crate) fn key(&self) -> u64 {
        either!(self, listener => listener.key())
    }

    /// The address, with the port that was chosen.
    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        either!(self, listener => listener.local_address())
    }
}

impl Incoming {
    /// Rejects the request, with private data.
    pub(crate) fn reject(self, private_data: &[u8]) {
        either!(self, incoming => incoming.reject(private_data));
    }

    /// The address that the peer came to.
    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        either!(self, incoming => incoming.local_address())
    }

    /// The address that the peer came from.
    pub(crate) fn peer_address(&self) -> io::Result<SocketAddr> {
        either!(self, incoming => incoming.peer_address())
    }
}

impl Endpoint {
    /// What its events carry.
    pub(crate) fn key(&self) -> u64 {
        either!(self, endpoint => endpoint.key())
    }

    /// Which device it is on; the same number for the same adapter. `None` until its address is
    /// resolved.
    pub(crate) fn device_key(&self) -> Option<u64> {
        either!(self, endpoint => endpoint.device_key())
    }

    /// A new hold on the device it is on, for this reactor.
    pub(crate) fn open_device(&self) -> io::Result<Device> {
        either!(self, endpoint => endpoint.open_device(), makes Device)
    }

    /// Makes the queue pair; once.
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

    /// Says what a memory window is to open when it is bound next, by the next chain that is
    /// posted. The key for the peer is returned: another one each time.
    pub(crate) fn prepare_window(
        &mut self,
        window: u16,
        region: &Region,
        opening: Opening,
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

    /// Asks the peer for the connection. `Established`, `Rejected` or `Failed` follows.
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

    /// Ends the connection: what is posted completes as flushed, and `Disconnected` follows.
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

    /// The address of this end.
    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        either!(self, endpoint => endpoint.local_address())
    }
}

impl Device {
    /// What the device can do.
    pub(crate) fn attributes(&self) -> &Attributes {
        either!(self, device => device.attributes())
    }

    /// What becomes readable when an armed queue has a completion.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        either!(self, device => device.descriptor())
    }

    /// Takes the completion channel's events, so that the descriptor is no longer readable.
    pub(crate) fn take_events(&mut self) {
        either!(self, device => device.take_events());
    }

    /// What becomes readable when the device has something to say by itself.
    pub(crate) fn event_descriptor(&self) -> Option<BorrowedFd<'_>> {
        either!(self, device => device.event_descriptor())
    }

    /// The next thing that the device says by itself; of the whole device, or of what was made
    /// with any hold on it. Never blocks.
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
    /// What its failure is told by.
    pub(crate) fn key(&self) -> u64 {
        either!(self, queue => queue.key())
    }

    /// Appends up to `most` completions. Says how many there were.
    pub(crate) fn poll(
        &mut self,
        most: usize,
        into: &mut Vec<WorkCompletion>,
    ) -> io::Result<usize> {
        either!(self, queue => queue.poll(most, into))
    }

    /// The next completion makes the device's descriptor readable (or calls the waker). What is
    /// there already does not: poll once more after this.
    pub(crate) fn arm(&mut self) -> io::Result<()> {
        either!(self, queue => queue.arm())
    }
}

#[cfg(feature = "software")]
fn of_another_provider() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "it is of another provider")
}
