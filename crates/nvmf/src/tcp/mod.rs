//! The TCP transport's sessions, for both sides of a connection, without a socket.
//!
//! # The layer
//!
//! A session stands between a stream of bytes and a queue pair. It knows which PDU may come when,
//! how data is cut into PDUs, what digests cover, and what a malformed PDU has to be answered
//! with. It must never know a socket, a buffer, a clock, or what a command means: an opcode is
//! none of its business, and neither is user data. It sees headers; of payload it sees only where
//! a piece belongs and, if the connection has agreed to data digests, the bytes as they pass.
//!
//! # How bytes come in
//!
//! [`target::Session::handle_input`] and [`host::Session::handle_input`] are given whatever the
//! stream yielded, cut anywhere, and say one thing at a time: a command, a piece of data and the
//! slot and offset where it belongs, the end of a transfer with the verdict on its digest. Nothing
//! is kept but a partial header. When a session stands inside the data of a PDU, `direct` says how
//! much of it is still to come and where it belongs, so that the owner may let the kernel write
//! the rest straight into the command's buffer and report it with `handle_direct`.
//!
//! # How bytes go out
//!
//! Every method that sends writes the PDU's header (with digest and padding) into a [`Sink`]. The
//! owner appends the payload, copied or gathered from where it lies, and the data digest that
//! `data_digest` yields.
//!
//! # Slots
//!
//! A command in flight has a slot, a small index that the owner can use for tables of its own. On
//! the target the slot is part of the transfer tag; on the host it is part of the command
//! identifier, beside a generation that exposes an answer that comes twice.
//!
//! # Invariants
//!
//! * No input panics, allocates without bound, or moves data outside the range that its command
//!   was given: ranges are checked before the first byte is handed out.
//! * What is handed out does not depend on how the stream was cut.
//! * After a [`Fault`] a session takes nothing in any more; the owner sends the termination that
//!   [`target::Session::terminate`] or [`host::Session::terminate`] writes, and closes.
//! * A wrong data digest is no fault: it ends that one command, and the stream goes on.
//!
//! # Map
//!
//! [`framing`] cuts the stream into PDUs; [`handshake`] is ICReq and ICResp; [`target`] and
//! [`host`] are the sessions; [`encode`] writes PDUs; [`digest`] is CRC32C; [`limits`] has every
//! bound; [`fuzzing`] drives all of it from arbitrary bytes.

pub mod digest;
pub mod encode;
pub mod fault;
pub mod framing;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod handshake;
pub mod host;
pub mod limits;
pub mod target;

pub use encode::Sink;
pub use fault::Fault;
pub use handshake::Negotiated;

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "what tests count is small")]
mod tests;
