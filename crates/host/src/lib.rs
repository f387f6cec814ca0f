//! The host's side of NVMe over Fabrics, as a library: connect to a controller, list its
//! namespaces, read and write them, and go on when the connection is lost.
//!
//! # The layer
//!
//! `weft_nvmf::host` decides (what to send when, what to replay, when to give up) and
//! `weft-transport` carries; this crate puts the two on reactors. It must never know a target, a
//! load generator or a command line, and it decodes no bytes itself.
//!
//! # Two ways to use it
//!
//! * **Blocking**: [`connect`] starts a thread with a reactor and returns a [`Controller`];
//!   [`Controller::namespace`] gives a [`Namespace`] with `read`, `write`, `flush` and the rest.
//!   [`discover`] asks a discovery controller what there is.
//! * **On your own reactors**: [`Controller::factory`] gives a [`NamespaceFactory`], which opens
//!   a `BlockDevice` on any reactor, each with an I/O queue of its own. This is the fast way:
//!   requests gather until `flush` and go out in one send, and nothing allocates or locks on the
//!   way. A program without threads (a simulation) drives the admin queue, too, with a
//!   [`ControllerDriver`].
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
//! // Should the connection be lost, it is made anew and what was asked goes on; this tells of it.
//! while let Some(event) = controller.next_event(std::time::Duration::ZERO) {
//!     println!("{event}");
//! }
//! controller.disconnect()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `examples/tour.rs` is a whole program, from discovery to reconnection.
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
//! The driver owns the admin queue and decides for the whole controller: when queues connect,
//! when they let go, when what waits fails. Queues report lost connections to it. They talk in
//! words by mailbox; a word carries the number of the association that it is about, so that a
//! late one does no harm.
//!
//! # Memory
//!
//! A `BlockDevice` takes and gives buffers of its reactor's pool, and their bytes go to the socket
//! or the adapter from where they lie. The blocking calls take any memory: they copy it into the
//! pool of their own thread's reactor, or out of it, once for each direction and in pieces of
//! 1 MiB. Over RDMA it is the pool that is registered with the adapter, once; no call registers
//! the caller's memory.
//!
//! # Outages
//!
//! One lost connection, of whichever queue, is a lost controller: all connections are closed and
//! made anew, after a moment at first and then every [`Options::reconnect_delay`], until
//! [`Options::ctrl_loss_tmo`] has passed or the controller says Do Not Retry. Meanwhile requests
//! wait, or begin to fail after [`Options::fast_io_fail_tmo`]. What was on the wire may have been
//! executed: reads, writes, flushes and other requests that may be done twice are sent again;
//! compares, and fused pairs of compare and write, fail with `Failure::PathLost`. A namespace whose
//! UUID (or NGUID, or EUI64) is another one afterwards is gone (`Failure::Gone`), for what was
//! written to the old one is not there.
//!
//! # Invariants
//!
//! * Each request ends exactly once, and its buffer comes back with its end (unless part of it is
//!   still being sent, which happens when a controller answers a write before it has taken all
//!   of its data).
//! * Nothing is sent to a namespace that took the place of the one that was meant.
//! * The data path takes no locks and allocates nothing once its tables have grown.

mod controller;
mod device;
mod driver;
mod error;
mod identity;
mod limits;
mod namespace;
mod options;
mod queue;
mod resolve;
mod shared;
mod worker;

pub use controller::{AdminResponse, Controller, connect, connect_discovery, discover};
pub use device::NamespaceFactory;
pub use driver::{AdminResult, ControllerDriver};
pub use error::Error;
pub use namespace::Namespace;
pub use options::{Options, QUEUE_SIZE_DEFAULT, QUEUE_SIZE_MAX, QUEUE_SIZE_MIN};
pub use shared::{ControllerState, Ends};
pub use weft_nvmf::host::discovery::{is_referral, transport_id};
pub use weft_nvmf::host::{
    AddressError, AddressFamily, AdminData, Change, ControllerInfo, ControllerKind,
    ControllerSnapshot, DiscoveryLog, Event, NamespaceIdentity, NamespaceInfo, Problem, Side, Step,
    Transport, TransportId,
};
pub use weft_transport::rdma::Provider;
