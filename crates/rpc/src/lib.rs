//! JSON-RPC 2.0, by which a process is controlled and observed.
//!
//! One JSON value is one message, over a Unix socket or TCP. A message ends where its value ends,
//! since SPDK's client sends no final newline; messages sent here end with one. A [`Method`] is
//! defined once, with its name, parameters and response; client and server both use that
//! definition.
//!
//! This crate knows nothing about storage. It reports the CPU use of a process and its machine
//! ([`machine`]).
//!
//! Invariants:
//! - Whatever a peer sends, it gets an error or its connection is closed; nothing panics, and no
//!   buffer grows beyond [`limits`].
//! - A call without a reply in time fails; it never hangs.
//! - Nobody but its user may connect to a Unix socket, unless [`Listening`] names a group.
//! - Over TCP a server that has a [`Token`] answers nobody who does not show it first.
//! - Nothing here runs on a data path: each connection has a thread of its own, which blocks.

/// A reading whose counters, those with these names, are the difference to an earlier reading.
#[macro_export]
macro_rules! since {
    ($now:expr, $earlier:expr; $($counter:ident),+) => {{
        let mut since = Clone::clone($now);
        $(since.$counter = since.$counter.saturating_sub($earlier.$counter);)+
        since
    }};
}

mod address;
mod caller;
mod client;
mod codec;
pub mod limits;
mod listening;
pub mod machine;
mod message;
mod method;
mod server;
mod token;

pub use address::{Address, ParseAddressError};
pub use caller::Caller;
pub use client::{CallError, Client};
pub use codec::{ReadError, read_value};
pub use listening::{Listening, ParseListeningError};
pub use message::{Code, ErrorObject, Id, Request, Response};
pub use method::{Method, Methods};
pub use server::{Server, serve};
pub use token::{Authenticate, Token};
