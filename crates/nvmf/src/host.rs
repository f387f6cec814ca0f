//! The host without I/O: how a controller is initialised, supervised, lost and reconnected, and how
//! each request ends.
//!
//! * [`address`]: where a subsystem is reached; [`discovery`]: the log page that says so.
//! * [`association`]: one host and one controller, from the first connection to the last; its
//!   configuration, initialisation, authentication, the scan of namespaces and the table of admin
//!   commands are private.
//! * [`access`]: how well a controller reaches each namespace (ANA).
//! * [`event`]: events for its user; [`snapshot`]: the controller and its namespaces.
//! * [`request_table`]: the requests of one I/O queue: splitting, replay, and that each request
//!   ends exactly once.
//! * [`keep_alive`] and [`reconnect`]: the two schedules; [`problem`]: the errors.
//!
//! The state machines take input with `handle_*` and yield output with `poll_*`; `now` is an
//! argument. They hold no sockets and no user data: a request is a range of blocks here, and its
//! buffer belongs to the crate above. No response of a controller can make them panic; an invalid
//! one ends the attempt with an error that describes it.

pub mod access;
pub mod address;
mod admin_commands;
mod admin_queue;
pub mod association;
mod authenticate;
mod config;
pub mod discovery;
pub mod event;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod initialise;
pub mod keep_alive;
pub mod limits;
pub mod problem;
pub mod reconnect;
pub mod request_table;
mod scan;
pub mod snapshot;

pub use access::AccessStates;
pub use address::{AddressError, AddressFamily, Endpoint, Transport, TransportId};
pub use admin_queue::{AdminCommand, AdminData};
pub use association::{Action, Association};
pub use authenticate::{AuthenticationProgress, Credentials, QueueAuthentication};
pub use config::{ControllerKind, HostConfig};
pub use discovery::{DiscoveryLog, DiscoveryReader};
pub use event::Event;
pub use initialise::{check_queue_connected, connect_queue};
pub use problem::{HostStep, Problem, Side};
pub use reconnect::ReconnectPolicy;
pub use snapshot::{
    Change, ControllerInfo, ControllerSnapshot, NamespaceIdentity, NamespaceInfo, Namespaces,
    UnusableNamespaces,
};
