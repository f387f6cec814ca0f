//! The bounds of the host core, and where each number comes from.

use core::time::Duration;

/// Blocks that one command can name: NLB has 16 bits and is 0's based.
pub const BLOCKS_PER_COMMAND_MAX: u32 = 1 << 16;

/// Times that a command is sent again after a transient status; Linux's `nvme.max_retries`.
pub const RETRIES_MAX: u8 = 5;

/// Entries of the admin queue: what the specification asks for over Fabrics (and Linux uses).
pub const ADMIN_QUEUE_ENTRIES: u16 = 32;

/// Largest namespace identifier; those above mean something else.
pub const NAMESPACE_ID_MAX: u32 = 0xffff_fffe;

/// Namespaces that are scanned; further ones are ignored.
pub const NAMESPACES_MAX: usize = 4096;

/// Bytes of log page that one Get Log Page command asks for.
pub const LOG_PIECE_BYTES: usize = 4096;

/// Bytes of the Asymmetric Namespace Access log page that one command asks for.
pub const ACCESS_LOG_BYTES_MAX: u32 = 1 << 20;

/// Discovery log entries that are read: 16 MiB of log page.
pub const DISCOVERY_ENTRIES_MAX: u64 = 16384;

/// Times that the discovery log page is read again because its generation changed meanwhile.
pub const DISCOVERY_RESTARTS_MAX: u32 = 10;

/// Asynchronous Event Requests that are kept outstanding: one, as in Linux. The controller holds
/// further events back until the next request.
pub const ASYNCHRONOUS_EVENT_REQUESTS: u8 = 1;

/// Time in which a controller quiesces the commands of an association that has ended, where it does
/// not say so itself (CQT).
pub const QUIESCE_TIME: Duration = Duration::from_millis(500);

/// Time that each step of an attempt to connect again has, although the controller is given up
/// meanwhile: one at the end of that time would have none.
pub const LAST_ATTEMPT: Duration = Duration::from_secs(1);

/// Time between two reads of CSTS while the controller becomes ready.
pub const READY_POLL: Duration = Duration::from_millis(10);

/// Time for a controller to become ready where CAP.TO is zero.
pub const READY_TIMEOUT_MIN: Duration = Duration::from_millis(500);

/// Time for an orderly shutdown (CC.SHN) before the connection is simply closed; RTD3 entry
/// latency means nothing over Fabrics, and Linux's `shutdown_timeout` is 5 s.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for one admin command; Linux's `admin_timeout` is 60 s.
pub const ADMIN_TIMEOUT: Duration = Duration::from_secs(60);
