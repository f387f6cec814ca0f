//! Every limit of this crate, and where its number comes from.

use std::time::Duration;

/// Connections that the kernel holds for a listener until they are accepted (the kernel cuts it
/// to net.core.somaxconn, 4096 by default).
pub(crate) const BACKLOG: i32 = 4096;

/// Connections accepted from one listener in one turn, so that they do not starve the rest.
pub(crate) const ACCEPTS_PER_TURN: usize = 64;

/// How long after its last bytes a socket counts as hot.
pub(crate) const HOT_TIME: Duration = Duration::from_micros(200);

/// How long after its last event a source counts as hot, as sockets do.
pub(crate) const HOT_SOURCE_TIME: Duration = Duration::from_millis(1);

/// Express operations on files are waited for awake for so long, and after that with sleeps of this
/// interval: a device that hangs does not take the processor.
pub(crate) const EXPRESS_FILE_TIME: Duration = Duration::from_millis(2);
pub(crate) const EXPRESS_FILE_INTERVAL: Duration = Duration::from_micros(100);

/// How long a spinning reactor with one hot socket may go without polling the others. A poll costs
/// about 0.3 µs, so this bounds its share at 2 % and the delay of a cold socket at 20 µs.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_micros(20);

/// Events taken from the kernel at once.
pub(crate) const EVENTS: usize = 256;

/// The smallest buffer that is worth receiving into when the pool has no larger one.
pub(crate) const RECEIVE_BYTES_MIN: usize = 4096;

/// Zeroes written at once where a file system cannot make them itself.
pub(crate) const ZERO_BYTES: usize = 256 * 1024;

/// Entries of the io_uring submission queue; when it is full it is handed to the kernel.
pub(crate) const SUBMISSION_ENTRIES: u32 = 512;

/// Entries of the io_uring completion queue; the kernel keeps what does not fit.
pub(crate) const COMPLETION_ENTRIES: u32 = 8192;

/// Bytes that are sent at once while other sockets are express: these wait for it. Half of a turn's
/// data: slices of 128 KiB cost hosts whose requests they answer up to 30 % of their rate, as these
/// receive smaller batches; without slices an express request waits up to twice as long.
pub const SEND_SLICE_BYTES: usize = 256 * 1024;

/// The interval at which epoll is asked about express sockets, as it sets no flag that can be read.
pub(crate) const EXPRESS_INTERVAL: Duration = Duration::from_micros(10);
