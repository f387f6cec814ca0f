//! Target and host connections against each other, against strangers, and in a simulated world.

#[allow(missing_docs, unreachable_pub, reason = "what the tests share")]
mod rig;
mod sockets;
#[allow(missing_docs, unreachable_pub, reason = "what the tests share")]
mod stranger;
mod strangers;
mod turns;
