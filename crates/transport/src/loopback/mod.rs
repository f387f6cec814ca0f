//! Loopback: host and target in one process, without a network.
//!
//! What is left of a transport when nothing lies between: commands and answers go to the other
//! side's reactor in batches, one for each turn, and data is copied once, by the target, from or
//! to the very buffer that the host has lent it. So a loopback shows what the protocol itself
//! costs, beneath which no network can get; and it serves tests that are not about a network.
//!
//! An address is a name in a table of this process, of the same form as the others'. Nobody
//! outside the process reaches it. There is no in-capsule data: whatever is to be fetched lies
//! there when its command comes, so that nothing is gained by sending it along.
//!
//! A `hub` is where a reactor gets its messages; on it stand the two sides, `target` and `host`.

pub(crate) mod host;
mod hub;
mod listen;
pub(crate) mod target;

pub use listen::{Incoming, Listener};
