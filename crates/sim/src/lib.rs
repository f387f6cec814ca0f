//! Target and hosts together, in a world that a seed decides.
//!
//! # The layer
//!
//! Everything here is the real thing: the target's poll groups, the host's controllers and
//! queues, the protocol and the transport under both. Only the reactors are simulated: time is
//! virtual, the network cuts, delays, splits and loses what it likes, and the same seed gives the
//! same run to the last event. So a run that fails can be had again, and hours of outages take
//! seconds.
//!
//! * [`Rig`]: a target of some poll groups and some hosts, and turns for all of them.
//! * [`Client`]: one host's requests, and what it knows of its blocks.
//!
//! # What is checked
//!
//! * Each request ends exactly once ([`Client`] panics when one is told twice, and a run does not
//!   end before all have ended).
//! * What was acknowledged is read back; what failed without an answer was either done or not,
//!   block by block, and stays what it is once it has been read. A write that comes late, after
//!   its connection has ended and a newer write was acknowledged, is found by this.
//! * What was flushed, or written to be durable, is there after a crash of the storage.
//! * No block is ever torn.
//! * Nothing is left behind: when everybody has gone, every buffer is back.

mod client;
mod rig;

pub use client::{BLOCK_BYTES, Client};
pub use rig::{Rig, SUBSYSTEM, Via};
