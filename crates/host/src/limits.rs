//! The limits of the host, and the source of each number.

use std::time::Duration;

/// Connections of one owner have tags below this; a connection has ended long before its tag is
/// used again.
pub(crate) const CONNECTION_TAGS: u32 = 1 << 20;

/// The token of an owner's own timer: above all tokens of its connections (two bits of a token
/// are the connection's), and below those that wrappers of block devices use.
pub(crate) const TIMER_TAG: u32 = (1 << 24) - 1;

/// Paths of one device: so many ranges of tags fit below those of wrappers.
pub(crate) const PATHS_MAX: u32 = 8;

/// The tags of the connections and of the timer of a path begin at its number times this: four
/// times as many as there are connections, of which each has two bits more.
pub(crate) const PATH_TAGS: u32 = 1 << 24;

/// The token of the timer of a device of several paths: below that of its last path.
pub(crate) const MULTIPATH_TIMER_TAG: u32 = PATH_TAGS * PATHS_MAX - 2;

/// How long a command may take from this host to a controller, at most.
pub(crate) const NETWORK_DELAY: Duration = Duration::from_millis(100);

/// Time between two looks at the states of paths while they are being connected.
pub(crate) const STATE_POLL: Duration = Duration::from_millis(1);

/// How long to wait for further paths once one is connected.
pub(crate) const FURTHER_PATHS: Duration = Duration::from_secs(1);

/// Time after which a discovery log page is read again that has not told of a change.
pub(crate) const LOG_REREAD: Duration = Duration::from_secs(60);

/// Discovery controllers that are asked for the paths of a device: one for each path, and as many
/// again that list none. Each of them costs a thread and a connection.
pub(crate) const DISCOVERY_CONTROLLERS_MAX: usize = 2 * PATHS_MAX as usize;

/// Time between two looks whether a path that is listed no longer can be let go of.
pub(crate) const UNLISTED_POLL: Duration = Duration::from_millis(100);

/// Parts of the I/O time-out in which the age of commands is measured: a command that hangs is
/// found between one and one and an eighth of the time-out.
pub(crate) const TIMEOUT_PARTS: u32 = 8;

/// Time until a command that failed for a transient reason is sent again.
pub(crate) const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Time until a queue tries again whose identifier is still in use for the controller, which has
/// not noticed the end of the earlier connection.
pub(crate) const QUEUE_TAKEN_DELAY: Duration = Duration::from_millis(50);

/// Number of tries: for as long as a controller may take to notice (3 s).
pub(crate) const QUEUE_TAKEN_RETRIES: u8 = 60;

/// Time until a queue that found the buffer pool empty tries again without other events.
pub(crate) const POOL_RETRY: Duration = Duration::from_millis(1);

/// Time to send the rest when a connection is closed. Nothing of it matters: requests in flight are
/// replayed or reported.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);

/// Bytes of one request of the blocking calls; longer ones are cut into several.
pub(crate) const BLOCKING_PIECE_BYTES: usize = 1 << 20;

/// Events that are kept for a user who does not read them; the oldest are dropped first.
pub(crate) const EVENTS_MAX: usize = 1024;

/// How long the controller's thread spins after work before it sleeps: the time in which a blocking
/// caller makes its next request.
pub(crate) const SPIN_GRACE: Duration = Duration::from_micros(50);

/// Times that a queue tries again, after [`POOL_RETRY`] and then twice as long each time, to use
/// memory that could not be registered with an RDMA device: four seconds.
pub(crate) const REGISTRATION_RETRIES: u32 = 12;

/// Most bytes of data of one admin command.
pub(crate) const ADMIN_DATA_MAX: u32 = 1 << 20;

/// Error number of a request whose memory could not be registered (`ENOMEM`).
pub(crate) const ERROR_NO_MEMORY: i32 = 12;

/// Error number of a transfer with a wrong data digest (`EBADMSG`).
pub(crate) const ERROR_BROKEN: i32 = 74;
