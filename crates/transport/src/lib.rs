//! Transports: the sessions of `weft-nvmf` carried over a reactor.
//!
//! # The layer
//!
//! Below lies a reactor that moves bytes, above it whoever owns queues: the target, or the host's
//! queue pairs. A transport turns one into the other. The target sees commands, answers and data
//! in buffers; the host submits commands and sees them completed. Neither sees PDUs, sockets or
//! digests, so that the same target and host run over other transports as well: what is
//! particular to TCP is private to `tcp`, and [`target::TargetConnection`] and
//! [`host::HostConnection`] are the whole interface.
//!
//! A transport must never know what a command means, which controller or namespace it is for, or
//! whether it may be executed. The only fields of a command that it reads and writes are the
//! command identifier and the data pointer, because these two are the transport's own.
//!
//! # A turn
//!
//! The owner of a connection gives it every completion that carries its tag (`handle`), takes its
//! events (`poll_event`), answers commands, and calls `flush` once at the end: everything that was
//! answered goes out in one send. [`tag_of`] says which connection a completion belongs to.
//!
//! # Invariants
//!
//! * A command raised is in flight until it is answered or the connection is closed; `Closed` is
//!   raised exactly once, nothing follows it, and by then no operation of the connection is in
//!   flight: its tag may be used again.
//! * The work of one turn is bounded by one receive buffer; what waits is bounded by the queue's
//!   depth. When the pool is empty a connection stops reading, and resumes by itself.
//! * Nothing is allocated for a command once a connection is warm.
//! * A connection that is idle holds no payload memory.

/// Calls the same function of whichever transport's connection there is.
macro_rules! each {
    ($inner:expr, $connection:ident => $call:expr) => {
        match $inner {
            Inner::Tcp($connection) => $call,
            Inner::Rdma($connection) => $call,
            Inner::Loopback($connection) => $call,
        }
    };
}

mod deadline;
pub mod host;
pub mod limits;
mod listen;
pub mod loopback;
pub mod rdma;
mod reason;
mod slots;
mod subscriptions;
pub mod target;
mod tcp;

pub use listen::{Incoming, Listener, Transport};
pub use reason::{CloseReason, DataDigestError};

use weft_reactor::Token;

/// A command in flight on a connection: a small index for tables of the owner's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u16);

impl Slot {
    /// The slot as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Largest tag that a connection may have: two bits of a token's tag are the connection's own.
pub const TAG_MAX: u32 = u32::MAX >> 2;

/// The kinds of a connection's tokens, in the two bits below its tag. Everything except its
/// deadline and its next chore is reported as events.
const EVENTS: u32 = 0;
const DEADLINE: u32 = 1;
const CHORE: u32 = 2;
const KINDS: u32 = 3;

/// The tag of the connection that a completion with this token is for.
#[must_use]
pub const fn tag_of(token: Token) -> u32 {
    token.tag >> 2
}
