//! The host without I/O: how a controller is brought up, watched, lost and found again, and what
//! becomes of the commands meanwhile.
//!
//! * [`address`]: where a subsystem is reached.
//! * [`ledger`]: the books of one I/O queue: splitting, replay, and that each request ends
//!   exactly once.
//! * [`keep_alive`] and [`reconnect`]: the two schedules.
//!
//! The machines are driven with `handle_*`, asked with `poll_*`, and told the time in each call.
//! They hold no sockets and no user data: a request is a range of blocks here, and whose memory
//! it goes to is known only to the crate above. Nothing that a controller answers can make them
//! panic; an answer that makes no sense ends the attempt with an error that says so.

pub mod address;
pub mod fuzzing;
pub mod keep_alive;
pub mod ledger;
pub mod limits;
pub mod reconnect;

pub use address::{AddressError, AddressFamily, Transport, TransportId};
