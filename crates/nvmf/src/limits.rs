//! The most that hosts may have of a controller, and where each number comes from. Bounds of a
//! session over TCP are in [`crate::tcp::limits`], those of the host core in
//! [`crate::host::limits`].

/// Most bytes of the data of one Discovery Information Management command.
pub const REGISTRATION_BYTES_MAX: u32 = 256 << 10;

/// Most registered entries of one host.
pub const REGISTRATIONS_OF_HOST_MAX: usize = 256;

/// Most registered entries of all hosts.
pub const REGISTRATIONS_MAX: usize = 4096;

/// Most bytes of the attributes of a registered entry: a host identifier, two labels, and as much
/// again and more of a vendor's. With the bounds above, 20 MiB are registered at most.
pub const ATTRIBUTE_BYTES_MAX: usize = 4096;

/// Persistent events of one type that are recorded within [`EVENT_FLOOD_MS`]; further ones are not,
/// so that a host that repeats something does not drive everything else out of the log.
pub const EVENTS_OF_TYPE_MAX: usize = 100;

/// The time that [`EVENTS_OF_TYPE_MAX`] is counted in.
pub const EVENT_FLOOD_MS: u64 = 60_000;

/// Controllers that a Power-on or Reset event names.
pub const EVENT_CONTROLLERS_MAX: usize = 64;

/// Most bytes of a message of DH-HMAC-CHAP: what Linux allocates for one. The longest has 1168.
pub const AUTH_MESSAGE_BYTES_MAX: u32 = 4096;

/// Most registrants of a namespace: hosts may come with any number of identifiers.
pub const REGISTRANTS_MAX: usize = 1024;

/// Reservation notifications that wait to be read: as many as with the Linux target. The oldest
/// goes first.
pub const RESERVATION_NOTIFICATIONS_MAX: usize = 64;

/// Entries of the Error Information log (ELPE and one). Linux keeps 128, most devices 64.
pub const ERROR_ENTRIES: usize = 64;

/// The largest Namespace Identifier of a subsystem: what `nvmetcli` allows.
pub const NSID_MAX: u32 = 8192;

/// In-capsule data that an I/O queue over RDMA takes at most: it costs memory for every entry of
/// the queue, used or not. As much as the targets of Linux and SPDK take unless configured
/// otherwise.
pub const RDMA_IN_CAPSULE_BYTES_MAX: u32 = 4096;

/// Entries of the longest I/O queue over RDMA, each with its posted receive, used or not: 1 MiB of
/// in-capsule data for a queue. As many as Linux allows over RDMA (`NVME_RDMA_MAX_QUEUE_SIZE`).
pub const RDMA_QUEUE_ENTRIES_MAX: u16 = 256;

/// Keyed descriptors of one command at most; the controller says so in MSDBD. As many as SPDK's
/// target takes.
pub const RDMA_DESCRIPTORS_MAX: usize = 16;

/// Bytes of the telemetry log's text, without the line that says that it is cut off. 128 queues, 64
/// errors and the events take 20 KiB, and the poll group does nothing else while it is made.
pub const TELEMETRY_BYTES_MAX: usize = 32 * 1024;

/// Persistent events that the telemetry log shows, the newest.
pub const TELEMETRY_EVENTS_MAX: usize = 32;

/// Source ranges of one Copy (MSRC and one): their list is a page.
pub const COPY_RANGES_MAX: u16 = 128;
