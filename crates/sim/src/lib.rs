//! Target and hosts together in a simulation that depends on a seed.
//!
//! # The layer
//!
//! The target's poll groups, the host's controllers and queues, the protocol and the transport are
//! those of the product. Only the reactors are simulated: time is virtual, and the network
//! disconnects, delays, splits and drops. The same seed gives the same run to the last event, so
//! a failing run can be repeated, and hours of outages take seconds.
//!
//! * [`Testbed`]: a target with its poll groups, the hosts, and the loop that runs them.
//! * [`Client`]: one host's requests, and the possible contents of its blocks.
//! * [`seeds`]: 400 runs, or those of `WEFT_SEEDS=FROM..TO`; [`run_a_tenth`]: 40, or
//!   those.
//!
//! # What is checked
//!
//! * Each request completes exactly once ([`Client`] panics at a second completion, and a run does
//!   not end before all have completed).
//! * What was acknowledged is read back; a request that failed without a response was executed or
//!   not, block by block, and its blocks do not change after they have been read. This detects a
//!   write that arrives late, after its connection has ended and a newer write was acknowledged.
//! * What was flushed, or written with FUA, is still there after a crash of the storage.
//! * No block mixes the data of two writes.
//! * Nothing leaks: at the end every buffer is free again.

mod client;
mod seeds;
mod testbed;

pub use client::{BLOCK_BYTES, Client};
pub use seeds::{run_a_tenth, seeds};
pub use testbed::{Link, SUBSYSTEM, Security, Size, Testbed, Tune};
