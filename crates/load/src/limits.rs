//! Every bound of this crate, and the reason for its value.

use std::time::Duration;

/// Deepest queue of one lane: an I/O queue of NVMe over Fabrics has at most 65535 entries, and no
/// study asks for more than 4096.
pub const DEPTH_MAX: u32 = 4096;

/// Most copies of a job: two histograms of 256 KiB each make half a GiB in all.
pub const COPIES_MAX: u32 = 1024;

/// Largest block of a job: the reactor's largest buffer.
pub const BLOCK_BYTES_MAX: u32 = 4 << 20;

/// Most buffer memory of a worker's reactor; a larger job is refused with advice what to change.
pub const POOL_BYTES_MAX: usize = 8 << 30;

/// Memory of a worker's reactor for receives and small buffers, beside the payloads.
pub const POOL_BYTES_SPARE: usize = 64 << 20;

/// Blocks whose writes one lane remembers to verify them: 4 bytes each, 256 MiB in all.
pub const VERIFY_UNITS_MAX: u64 = 1 << 26;

/// Lines of a copy's logs, which are kept until its end: half a GiB.
pub const LOG_ENTRIES_MAX: usize = 1 << 23;

/// Smallest block that holds a verification header and something to compare.
pub const VERIFY_BLOCK_BYTES_MIN: u32 = 512;

/// Verification errors that are described one by one; further ones are only counted.
pub const FAULTS_DESCRIBED: usize = 16;

/// A verified job reads back one earlier block for every so many writes.
pub const VERIFY_READ_EVERY: u64 = 16;

/// Length of a window of the progress line and of `iops_min` and the like, as in fio.
pub const WINDOW: Duration = Duration::from_millis(500);

/// Windows that are kept: those of a day.
pub const WINDOWS_MAX: usize = 172_800;

/// The longest latency that histograms resolve: an hour.
pub const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// How often a lane looks whether the job it waits for has ended.
pub const AWAIT_OTHERS: Duration = Duration::from_millis(1);

/// Loop iterations with immediate completions before the reactor is polled.
pub const TURNS_WITHOUT_POLL: u32 = 32;

/// About the time that a wake-up takes.
pub const WAKE_UP: Duration = Duration::from_micros(60);

/// If a request is due within this time the worker polls instead of sleeping.
pub const SPIN_BEFORE_DUE: Duration = WAKE_UP;

/// How long requests in flight may take after the end before the run fails as stuck.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// How much longer than the slowest request requests may take after the end before those end that
/// no device works on: that wait for the connection to a lost controller, say. A controller takes
/// less than that to come back where it comes back at once.
pub const RECONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// What is said of requests that have taken longer.
pub const NOT_ENDED: &str = "did not end within";

/// The same where the user has ended the run; twice that for those that a device works on.
pub const INTERRUPTED_TIMEOUT: Duration = Duration::from_millis(500);

/// A percentile is resolved if so many samples lie beyond it.
pub const SAMPLES_BEYOND: f64 = 10.0;
