//! Every bound of this crate, and where its number comes from.

use std::time::Duration;

/// Deepest queue of one lane: an I/O queue of NVMe over Fabrics has at most 65535 entries, and no
/// study asks for more than 4096.
pub const DEPTH_MAX: u32 = 4096;

/// Most copies of a job: what two histograms each (of 256 KiB) make of half a GiB.
pub const COPIES_MAX: u32 = 1024;

/// Largest block of a job: the reactor's largest buffer.
pub const BLOCK_BYTES_MAX: u32 = 4 << 20;

/// Buffers of a worker's reactor at most; beyond that a job is refused with what to change.
pub const POOL_BYTES_MAX: usize = 8 << 30;

/// What a worker's reactor has for receives and small things beside the payloads.
pub const POOL_BYTES_SPARE: usize = 64 << 20;

/// Blocks whose writes one lane remembers to verify them: 4 bytes each, 256 MiB in all.
pub const VERIFY_UNITS_MAX: u64 = 1 << 26;

/// Smallest block that holds a verification header and something to compare.
pub const VERIFY_BLOCK_BYTES_MIN: u32 = 512;

/// Differences that are described one by one; the rest is counted.
pub const FAULTS_DESCRIBED: usize = 16;

/// One of so many requests of a verified write reads back an earlier block.
pub const VERIFY_READ_EVERY: u64 = 16;

/// Length of a window of the progress line and of fio's `iops_min` and its relatives, as in fio.
pub const WINDOW: Duration = Duration::from_millis(500);

/// Windows that are kept: a day of them.
pub const WINDOWS_MAX: usize = 172_800;

/// Latencies are told apart up to an hour.
pub const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Turns of the loop in which requests completed at once before the reactor is looked at.
pub const TURNS_WITHOUT_POLL: u32 = 32;

/// A request that is due within this time is waited for awake: about what waking up takes.
pub const SPIN_BEFORE_DUE: Duration = Duration::from_micros(60);

/// How long requests in flight may take after the end before the run is given up as stuck.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// How much longer than the slowest request requests may take after the end before those end that
/// no device works on: that wait for the connection to a lost controller, say. A controller takes
/// less than that to come back where it comes back at once.
pub const RECONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// A percentile is resolved if so many samples lie beyond it.
pub const SAMPLES_BEYOND: f64 = 10.0;
