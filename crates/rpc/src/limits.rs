//! Every bound of this crate, and the reason for its value.

use std::time::Duration;

/// Longest message that a server accepts: a request is a method's name and a few parameters.
pub const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// Longest message that a client accepts: statistics of 1024 poll groups with 100 namespaces each.
pub const RESPONSE_BYTES_MAX: u64 = 32 << 20;

/// Most connections of a server; a user, a monitor and a study need three.
pub const CONNECTIONS_MAX: usize = 32;

/// An idle connection is closed after this time.
pub const SILENCE_MAX: Duration = Duration::from_secs(3600);

/// How many parts the request that shows a token may arrive in; each may take
/// [`AUTHENTICATE_TIMEOUT`]: a connection without a token does not stay.
pub const AUTHENTICATE_READS: u32 = 8;

/// How long a part of the request that shows a token may take.
pub const AUTHENTICATE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a server that ends waits for the answers of calls that have begun.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a peer may take to receive what is sent.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Most requests of a batch.
pub const BATCH_MAX: usize = 64;
