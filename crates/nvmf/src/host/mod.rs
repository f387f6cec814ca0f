//! The host without I/O: how a controller is brought up, watched, lost and found again, and what
//! becomes of the commands meanwhile.
//!
//! * [`address`]: where a subsystem is reached; [`discovery`]: the log page that says so.
//! * [`association`]: one host and one controller, from the first connection to the last; its
//!   steps on the way up, the scan of namespaces and the table of admin commands are private.
//! * [`event`]: what its user is told; [`picture`]: what is known of a controller and its
//!   namespaces.
//! * [`ledger`]: the books of one I/O queue: splitting, replay, and that each request ends
//!   exactly once.
//! * [`keep_alive`] and [`reconnect`]: the two schedules; [`problem`]: what can go wrong.
//!
//! The machines are driven with `handle_*`, asked with `poll_*`, and told the time in each call.
//! They hold no sockets and no user data: a request is a range of blocks here, and whose memory
//! it goes to is known only to the crate above. Nothing that a controller answers can make them
//! panic; an answer that makes no sense ends the attempt with an error that says so.

pub mod address;
mod admin_queue;
pub mod association;
pub mod discovery;
pub mod event;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod initialise;
pub mod keep_alive;
pub mod ledger;
pub mod limits;
pub mod picture;
pub mod problem;
pub mod reconnect;
mod requests;
mod scan;

pub use address::{AddressError, AddressFamily, Transport, TransportId};
pub use admin_queue::{AdminCommand, AdminData};
pub use association::{Action, Association, ControllerKind, HostConfig};
pub use discovery::{DiscoveryLog, DiscoveryReader};
pub use event::Event;
pub use initialise::{check_queue_connected, connect_queue};
pub use picture::{
    Change, ControllerPicture, NamespaceIdentity, NamespacePicture, Namespaces, Picture, Unusable,
};
pub use problem::{Problem, Side, Step};
pub use reconnect::ReconnectPolicy;
