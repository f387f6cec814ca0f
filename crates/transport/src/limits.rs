//! The limits of a connection, with the reason for each number.

use std::time::Duration;

/// Payload of this length or more is sent from its buffer (gathered); shorter payload is copied
/// behind its header, so that the small responses of a batch are contiguous. Measured in
/// docs/notebook: copying blocks of 4 KiB is 4 % faster for one connection, but 8 to 11 %
/// slower for four and more, whose copies do not fit the cache; copying 8 KiB is slower by a sixth.
pub const GATHER_BYTES: usize = 4 * 1024;

/// The maximum number of copied bytes that are not sent. Further payload is gathered, so that it
/// stays in the pool, which is bounded. This is what a turn with 64 responses copies.
pub const COPIED_BYTES_MAX: usize = 256 * 1024;

/// While the peer does not read and this much is unsent, the connection starts no further command,
/// because it would only hold memory. Twice what a target starts in a turn, so that there is always
/// something to send.
pub const UNSENT_BYTES_MAX: usize = 1024 * 1024;

/// If at least this much of a PDU's data is missing, it is received directly into the command's
/// buffer; less is received together with what follows it, and copied.
pub const DIRECT_RECEIVE_BYTES: usize = 16 * 1024;

/// The default time for a new connection until an accepted Connect. The Linux host waits 60 s for
/// its own (`NVME_DEFAULT_ADMIN_TIMEOUT`); half of that is enough, and limits how long idle
/// peers that are not known are kept.
pub const HANDSHAKE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// The default time to send what is queued, and for a peer to close after it was sent a
/// termination, before the connection is closed regardless.
pub const CLOSE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);

/// The interval at which a connection that may use the pool's reserve retries while that is empty.
pub const POOL_RETRY: Duration = Duration::from_millis(1);

/// How long a first command that may not have been noticed (on soft-iWARP) is awaited before the
/// wake-up read.
pub const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_millis(250);

/// A send message that has grown beyond this many bytes is freed once its connection is quiet: idle
/// connections should stay below 300 KiB.
pub const IDLE_MESSAGE_BYTES: usize = 64 * 1024;

/// The time without sends after which a connection counts as quiet.
pub const IDLE_TIME: Duration = Duration::from_secs(1);

/// The share of requested data that a host must send in the time for which it may stall; one that
/// sends a byte now and then holds memory as much as one that sends nothing.
pub const STALL_SHARE: usize = 16;

/// Queues of this depth or less, and connections before Connect, may use the pool's reserve: they
/// need little of it, and they include admin queues (`NVME_AQ_DEPTH` of Linux is 32).
pub const SHALLOW_QUEUE_DEPTH: u16 = 32;

/// The default time for a host's connection until it is ready for Connect.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// The interval at which a listener whose RDMA device was removed looks for a device: a reset of an
/// adapter takes some seconds, and hosts reconnect at about this interval.
pub const RDMA_LISTEN_RETRY: Duration = Duration::from_secs(2);

/// In-capsule data of an admin queue over RDMA: as much as NVMe/TCP prescribes
/// (`ADMIN_IN_CAPSULE_BYTES`).
pub const RDMA_ADMIN_CAPSULE_BYTES: u32 = 8192;

/// The fraction of the pool that buffers for in-capsule data leave free.
pub const RESERVE_SHARE: usize = 16;

/// Most requests in flight of a probe of the raw link: more than fill any link, and less than half
/// the entries of every adapter's queues.
pub const PROBE_DEPTH_MAX: u16 = 1024;

/// How long a probe waits for an answer. The connection manager gives up a peer earlier.
pub const PROBE_SILENCE_MAX: Duration = Duration::from_secs(10);

/// The longest life of the end that answers a probe, which does not notice a client whose machine
/// has vanished.
pub const PROBE_TIME_MAX: Duration = Duration::from_secs(600);
