//! Loopback: host and target in one process, without a network.
//!
//! Commands and responses are sent to the other side's reactor in batches, one for each turn. The
//! target copies data from or to the buffer that the host has lent it, once. So a loopback shows
//! the cost of the protocol itself, a lower bound for every network, and serves tests that need no
//! network.
//!
//! An address is an entry of a table of this process, with IP address and port, and is not
//! reachable from outside. There is no in-capsule data: the target can copy a command's data as
//! soon as it gets the command.
//!
//! A `hub` delivers a reactor's messages; `target` and `host` are the two sides.

pub(crate) mod host;
mod hub;
mod listen;
pub(crate) mod target;

pub use listen::{Incoming, Listener};
