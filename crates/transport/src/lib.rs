//! Transports: the sessions of `weft-nvmf` over a reactor.
//!
//! # The layer
//!
//! A transport lies between a reactor, which moves bytes, and the owners of queues: the target, or
//! the host's queue pairs. The target receives commands and data in buffers and sends responses;
//! the host submits commands and gets their completions. Neither depends on PDUs, sockets or
//! digests: [`target::TargetConnection`] and [`host::HostConnection`] are the whole interface.
//!
//! A transport does not interpret commands, nor know their controller or namespace. Of a command it
//! reads and writes only the command identifier and the data pointer.
//!
//! # A turn
//!
//! The owner of a connection passes it every completion with its tag (`handle`), takes its events
//! (`poll_event`), completes commands, and at the end calls `flush` once, which sends all responses
//! together. [`tag_of`] returns the connection's tag from a completion's token.
//!
//! # Invariants
//!
//! * A reported command is in flight until it is completed or the connection is closed. `Closed` is
//!   reported once and last; then no operation of the connection is in flight, and its tag may be
//!   used again.
//! * The work of one turn is bounded by one receive buffer, the queued work by the queue's depth.
//!   When the pool is empty a connection stops receiving, and continues once there is memory.
//! * After a warm-up a command needs no allocation.
//! * A connection that is idle holds no payload memory.

/// Calls the same function of the connection of any transport.
macro_rules! each {
    ($inner:expr, $connection:ident => $call:expr) => {
        match $inner {
            Inner::Tcp($connection) => $call,
            Inner::Rdma($connection) => $call,
            Inner::Loopback($connection) => $call,
        }
    };
}

mod capsules;
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
mod target_event;
mod target_limits;
mod tcp;
pub mod tls;

pub use listen::{Incoming, Listener, Transport};
pub use reason::{CloseReason, DataDigestError};

use weft_reactor::Token;

/// The slot of a command in flight: a small index for the owner's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u16);

impl Slot {
    /// The slot as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The largest tag of a connection: two bits of a token's tag are used here.
pub const TAG_MAX: u32 = u32::MAX >> 2;

/// The kinds of a connection's tokens, in the two bits below its tag. All completions except those
/// of the deadline and of the chore timer are events.
const EVENTS: u32 = 0;
const DEADLINE: u32 = 1;
const CHORE: u32 = 2;
const KINDS: u32 = 3;

/// The tag of the connection that a completion with this token is for.
#[must_use]
pub const fn tag_of(token: Token) -> u32 {
    token.tag >> 2
}
