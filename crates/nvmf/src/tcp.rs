//! The TCP transport's sessions, for both sides of a connection, without a socket.
//!
//! # The layer
//!
//! A session stands between a stream of bytes and a queue pair. It knows which PDU may come when,
//! how data is cut into PDUs, what digests cover, and how a malformed PDU is answered. It does not
//! know sockets, buffers, clocks or opcodes. It reads headers; of the payload it knows only which
//! command and offset a piece belongs to and, with data digests, the bytes as they pass.
//!
//! # Input
//!
//! [`target::Session::handle_input`] and [`host::Session::handle_input`] take bytes of the stream,
//! cut anywhere, and yield one event at a time: a command, a piece of data with its slot and
//! offset, the end of a transfer with the result of its digest. Only a partial header is kept.
//! Inside the data of a PDU, `direct` returns where the rest belongs and how long it is, so that
//! the owner can receive it directly into the command's buffer and report it with `handle_direct`.
//!
//! # Output
//!
//! Every method that sends writes the PDU's header (with digest and padding) into a [`Sink`]. The
//! owner appends the payload, copied or gathered from where it lies, and the data digest that
//! `data_digest` yields.
//!
//! # Slots
//!
//! A command in flight has a slot, a small index that the owner can use for tables of its own. On
//! the target the slot is part of the transfer tag; on the host it is part of the command
//! identifier, beside a generation that reveals a duplicate response.
//!
//! # Invariants
//!
//! * No input panics, allocates without bound, or moves data outside the range of its command:
//!   ranges are checked before the first byte is yielded.
//! * What is yielded does not depend on how the stream was cut.
//! * After a [`FatalError`] a session ignores all input; the owner sends the termination request
//!   that [`target::Session::terminate`] or [`host::Session::terminate`] writes, and closes.
//! * A wrong data digest is not fatal: it ends that one command, and the stream goes on.
//!
//! # Map
//!
//! [`framing`] cuts the stream into PDUs; [`handshake`] is ICReq and ICResp; [`target`] and
//! [`host`] are the sessions; [`encode`] writes PDUs; [`digest`] is CRC32C; [`limits`] has every
//! bound; `fuzzing` drives all of it from arbitrary bytes.

pub mod digest;
pub mod encode;
pub mod error;
pub mod framing;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod handshake;
pub mod host;
pub mod limits;
pub mod target;

pub use encode::Sink;
pub use error::FatalError;
pub use handshake::Negotiated;

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "what tests count is small")]
mod tests;
