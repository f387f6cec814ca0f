//! The bounds of a connection, and where each number comes from.

use std::time::Duration;

/// Payload from this length on is gathered from where it lies; what is shorter is copied behind
/// its header, so that a batch of small answers is one run of bytes. Measured, see
/// docs/performance.md: copying blocks of 4 KiB is faster by 4 % for one connection and slower by
/// 8 to 11 % for four and more, whose copies do not stay in the cache; of 8 KiB by a sixth.
pub const GATHER_BYTES: usize = 4 * 1024;

/// Of payload that is to be sent, no more than this is copied; the rest is gathered, so that it
/// stays in the pool, where it is bounded. As much as a turn copies of 64 answers.
pub const COPIED_BYTES_MAX: usize = 256 * 1024;

/// When this much waits to be sent until the peer takes what is being sent, its next commands wait,
/// too: they would only hold memory. Twice what a target begins in a turn, so that there is always
/// something to go on with.
pub const UNSENT_BYTES_MAX: usize = 1024 * 1024;

/// When a PDU's data has at least this much to come, it is received straight into the command's
/// buffer; what is shorter is received along with what follows it, and copied.
pub const DIRECT_RECEIVE_BYTES: usize = 16 * 1024;

/// Time for a new connection to get as far as an accepted Connect, unless configured otherwise.
/// As long as the Linux host waits for a connection of its own (`NVME_DEFAULT_ADMIN_TIMEOUT`
/// is 60 s) would keep 10,000 idle strangers for a minute; half of it is ample.
pub const HANDSHAKE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// Time for what is queued to go out, and for a peer that was sent a termination to hang up,
/// before the connection is closed regardless.
pub const CLOSE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);

/// How often a connection that may use the pool's reserve looks again when that is empty, too.
pub const POOL_RETRY: Duration = Duration::from_millis(1);

/// How long a first command that may be overlooked (on soft-iWARP) is waited for before the
/// wake-up read.
pub const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_millis(250);

/// A message that has grown beyond this is given up once its connection is quiet, in bytes:
/// idle connections are to stay below 300 KiB.
pub const IDLE_MESSAGE_BYTES: usize = 64 * 1024;

/// How long a connection must be quiet for that.
pub const IDLE_TIME: Duration = Duration::from_secs(1);

/// A host that is asked for data must send this share of it in the time for which it may stall:
/// one that sends a byte now and then holds memory as well as one that sends none.
pub const STALL_SHARE: usize = 16;

/// Queues of this depth or less, and connections before Connect, may use the pool's reserve: they
/// cannot take much of it, and admin queues are among them (`NVME_AQ_DEPTH` of Linux is 32).
pub const SHALLOW_QUEUE_DEPTH: u16 = 32;

/// Time for a host's connection to be ready for Connect, unless configured otherwise.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// How often a listener whose RDMA device has gone looks for another: a reset takes an adapter some
/// seconds, and hosts try to come back about as often.
pub const RDMA_LISTEN_RETRY: Duration = Duration::from_secs(2);

/// In-capsule data that an admin queue over RDMA takes: as much as over TCP, where the protocol
/// wants it (`ADMIN_IN_CAPSULE_BYTES`).
pub const RDMA_ADMIN_CAPSULE_BYTES: u32 = 8192;

/// The part of the pool that rooms for capsules leave alone, as a fraction.
pub const RESERVE_SHARE: usize = 16;
