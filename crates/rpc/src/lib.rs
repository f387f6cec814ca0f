//! JSON-RPC 2.0 between a process and whoever controls or watches it.
//!
//! One JSON value is one message, over a Unix socket or TCP. A message ends where its value ends,
//! as with SPDK, whose client sends no final new line; what is sent here ends with one. A
//! [`Method`] is described once: its name, what it takes, what it answers; client and server both
//! use that description.
//!
//! What it must never know: storage. It says what a process and its machine did ([`machine`]) and
//! carries the counters that a target keeps ([`statistics`]); what is counted there are words to
//! it.
//!
//! Invariants:
//! - Whatever a peer sends, it gets an error or loses its connection; nothing panics and nothing
//!   grows beyond [`limits`].
//! - A call that is not answered in time is an error, never a hang.
//! - Nothing here runs on a data path: threads block, and each connection has its own.

mod address;
mod client;
mod codec;
pub mod limits;
pub mod machine;
mod message;
mod method;
mod server;
pub mod statistics;

pub use address::{Address, ParseAddressError};
pub use client::{CallError, Client};
pub use codec::{ReadError, read_value};
pub use message::{Code, Fault, Id, Request, Response};
pub use method::{Method, Methods};
pub use server::Server;
