//! The host of NVMe over Fabrics as a library: connect to a controller, list its namespaces, read
//! and write them, and reconnect when the connection is lost.
//!
//! # The layer
//!
//! `weft_nvmf::host` decides (what to send when, what to replay, when to give up) and
//! `weft-transport` transfers; this crate runs both on reactors. It does not depend on a target, a
//! load generator or a command line, and it decodes no bytes itself.
//!
//! # Two ways to use it
//!
//! * **Blocking**: [`connect`] starts a thread with a reactor and returns a [`Controller`];
//!   [`Controller::namespace`] gives a [`Namespace`] with `read`, `write`, `flush` and the rest.
//!   [`discover`] reads the log page of a discovery controller.
//! * **On your own reactors**: [`Controller::factory`] gives a [`NamespaceFactory`], which opens
//!   a `BlockDevice` on any reactor, each with an I/O queue of its own. This is the
//!   fastest interface: requests are gathered until `flush` and sent together, without allocations
//!   or locks. [`reactor`] and [`backend`] have what it works with. A program without threads (a
//!   simulation) drives the admin queue, too, with a [`ControllerDriver`].
//!
//! ```no_run
//! use weft_host::{Options, TransportId};
//!
//! let address: TransportId = "nvme-tcp://192.0.2.7:4420/nqn.2024-01.io.example:disk".parse()?;
//! let controller = weft_host::connect(&Options::new(address))?;
//! for namespace in controller.namespaces() {
//!     println!("{}: {} blocks of {}", namespace.nsid, namespace.blocks, namespace.block_bytes);
//! }
//! let disk = controller.namespace(1)?;
//! disk.write(0, &vec![0x77; disk.block_bytes() as usize])?;
//! disk.flush()?;
//! // A lost connection is made again and requests continue; events report it.
//! while let Some(event) = controller.next_event(std::time::Duration::ZERO) {
//!     println!("{event}");
//! }
//! controller.disconnect()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Complete programs in `examples/`: `read` only reads; `tour` goes from discovery to reconnection;
//! `async_read` makes futures of reads on a reactor of its own, for any executor.
//!
//! # Parts
//!
//! ```text
//!   Controller ──calls──▶ worker thread                    reactors of the user
//!                         ┌──────────────────────────┐     ┌───────────────────────┐
//!                         │ ControllerDriver (admin) │◀───▶│ NamespaceDevice       │
//!                         │ QueuePair (blocking I/O) │words│  QueuePair (I/O)      │
//!                         └──────────────────────────┘     └───────────────────────┘
//! ```
//!
//! The driver owns the admin queue and decides for the whole controller: when queues connect, when
//! they disconnect, when waiting requests fail. Queues report lost connections to it. They exchange
//! messages by mailbox; a message has the number of its association, so that a late one has no
//! effect.
//!
//! # Memory
//!
//! A `BlockDevice` takes and returns buffers of its reactor's pool, whose bytes are sent without a
//! copy. The blocking calls take any memory: they copy it into the
//! pool of their own thread's reactor, or out of it, once for each direction and in pieces of
//! 1 MiB. Over RDMA it is the pool that is registered with the adapter, once; no call registers
//! the caller's memory.
//!
//! # Outages
//!
//! If the connection of any queue is lost, the controller is lost: all connections are closed and
//! made again, at once at first and then every [`Options::reconnect_delay`], until
//! [`Options::ctrl_loss_tmo`] has passed or the controller sets Do Not Retry. Meanwhile requests
//! wait, or begin to fail after [`Options::fast_io_fail_tmo`]. Commands in flight may have been
//! executed: reads, writes, flushes and other requests that may be done twice are sent again;
//! compares, and fused pairs of compare and write, fail with `Failure::PathLost`. A namespace whose
//! UUID (or NGUID, or EUI64) is different afterwards is gone (`Failure::Gone`), since it does not
//! have the data that was written to the old one.
//!
//! # Several paths
//!
//! [`Multipath`] connects to every endpoint of an address; [`Multipath::factory`] gives a namespace
//! as one device over them. It follows access states (ANA), and a request whose path is lost is
//! sent by another: a write that was in flight not before the old controller cannot execute it any
//! more.
//!
//! # Invariants
//!
//! * Each request ends exactly once, and its buffer comes back with its end (unless part of it is
//!   still being sent, which happens when a controller answers a write before it has taken all
//!   of its data).
//! * Nothing is sent to another namespace that has got the same NSID.
//! * The data path takes no locks and allocates nothing once its tables have grown.

mod controller;
mod device;
mod driver;
mod error;
mod identity;
mod limits;
mod multipath;
mod namespace;
mod options;
mod queue;
mod resolve;
mod shared;
mod sources;
mod worker;

pub use weft_backend as backend;
pub use weft_reactor as reactor;

pub use controller::{AdminResponse, Controller, connect, connect_discovery, discover};
pub use device::NamespaceFactory;
pub use driver::{AdminResult, ControllerDriver};
pub use error::Error;
pub use identity::{HOST_ID_FILE, HOST_NQN_FILE};
pub use multipath::{IoPolicy, Multipath, MultipathFactory, PathInfo};
pub use namespace::{CopySource, Namespace};
pub use options::{Options, QUEUE_SIZE_DEFAULT, QUEUE_SIZE_MAX, QUEUE_SIZE_MIN};
pub use shared::{ConnectionEnds, ControllerState};
pub use sources::discover_ports;
pub use weft_nvme::Nqn;
pub use weft_nvmf::auth::Secret;
pub use weft_nvmf::host::discovery::transport_id;
pub use weft_nvmf::host::{
    AddressError, AddressFamily, AdminData, Change, ControllerInfo, ControllerKind,
    ControllerSnapshot, DiscoveryLog, Event, HostStep, NamespaceIdentity, NamespaceInfo, Problem,
    Side, Transport, TransportId,
};
pub use weft_nvmf::keys::{Derivation, TlsKey, TlsRecords};
pub use weft_transport::rdma::{Provider, RemoteAccess};
