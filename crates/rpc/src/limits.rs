//! Every bound of this crate, and where its number comes from.

use std::time::Duration;

/// Longest message that a server takes: a request is a method's name and a few parameters.
pub const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// Longest message that a client takes: statistics of 1024 poll groups with 100 namespaces each.
pub const RESPONSE_BYTES_MAX: u64 = 32 << 20;

/// Connections that a server has at a time; a person, a monitor and a study are three.
pub const CONNECTIONS_MAX: usize = 32;

/// A connection that says nothing for so long is closed.
pub const SILENCE_MAX: Duration = Duration::from_secs(3600);

/// How long a peer may take to accept what is sent to it.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Requests of one batch.
pub const BATCH_MAX: usize = 64;
