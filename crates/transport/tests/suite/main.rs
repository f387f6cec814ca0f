//! Tests of target and host connections: with each other, with other peers, and in simulation.

mod every;
#[allow(missing_docs, unreachable_pub, reason = "what the tests share")]
mod raw_peer;
mod raw_peers;
mod rdma;
#[allow(missing_docs, unreachable_pub, reason = "what the tests share")]
mod rig;
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
mod simulated;
mod sockets;
mod turns;
