//! The NVMe over Fabrics protocol without I/O and without a clock.
//!
//! Everything here is a state machine: its input is commands, headers and the time, its output is
//! what has to be done. The same code runs under sockets, under verbs and, from a seed, under
//! a simulator. It sees headers and the data that the protocol itself defines (connect, ranges,
//! features, identify, log pages), never user data.
//!
//! * [`controller`], [`discovery`]: a target's admin queue; [`queue`]: one of its I/O queues;
//!   [`subsystem`]: an immutable snapshot of what they serve; [`connect`]: the checks of Connect.
//! * [`host`]: the host's side: initialisation, supervision and loss of a controller.
//! * [`auth`]: in-band authentication, for both sides.
//! * [`tcp`]: the sessions of the TCP transport, for both sides; [`rdma`]: what is the RDMA
//!   transport's own.
//! * [`persistent`]: the Persistent Event Log of a subsystem.
//! * [`keys`]: keys of hosts and subsystems, and what is derived from them.
//!
//! Invariants: no input panics; every command is answered exactly once or ends with its queue;
//! `now` is always an argument.

pub mod ana;
pub mod auth;
pub mod connect;
pub mod controller;
mod counters;
pub mod discovery;
pub mod host;
pub mod keys;
pub mod limits;
mod namespaces;
pub mod persistent;
pub mod queue;
pub mod rdma;
pub mod registration;
pub mod reservation;
pub mod subsystem;
pub mod tcp;
pub mod visibility;

/// What tests/ordering has loom's own of, in the modules that it compiles.
mod sync {
    pub(crate) use std::sync::atomic;
}
