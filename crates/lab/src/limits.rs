//! Every bound of this crate, and the reason for its value.

use std::time::Duration;

/// A processor is full if it has work for at least this share of the time.
pub const FULL: f64 = 0.95;

/// The least share of its measured time in which all machines of a load count together: rates are
/// added that were measured at the same time.
pub const OVERLAP_MIN: f64 = 0.99;

/// A rate is above a floor, beyond noise, if it is more than this many times it.
pub const ABOVE_FLOOR: f64 = 1.05;

/// A reference cell comes back after this many steps of a study at least, and at most so often.
pub const REFERENCE_EVERY: usize = 20;
/// See [`REFERENCE_EVERY`].
pub const REFERENCES_MAX: usize = 20;

/// The machine did not stay the same if its reference cell's IOPS vary by more than this
/// percentage of their mean.
pub const DRIFT_PERCENT: f64 = 10.0;

/// Measured threads were disturbed if they did not get their processors for this share of the
/// time.
pub const DISTURBED: f64 = 0.01;

/// A set of results is not compared if more than this share of its repeats was disturbed: the test
/// goes by ranks, which single ones do not change.
pub const DISTURBED_REPEATS: f64 = 0.10;

/// A repeat says nothing beyond its own numbers if measured threads lost this share of the time:
/// what they would have done otherwise is no longer near.
pub const SPOILT: f64 = 0.10;

/// Pieces in which processors are lost: half of the least slice that Linux gives a thread before
/// another one (`base_slice_ns`, 0.7 ms).
pub const PIECE: Duration = Duration::from_micros(350);

/// A machine of whose processors' time more than this share is used before a run is busy.
pub const BUSY: f64 = 0.10;

/// The kernel's unit of the times of processors, and how often, at the least, it looks what runs on
/// one.
pub const TICK: Duration = Duration::from_millis(10);

/// Fewest repeats that have a confidence interval.
pub(crate) const INTERVAL_REPEATS: u32 = 3;

/// No machine has more: requests in flight, processors, and requests a second.
pub(crate) const DEPTH_MAX: usize = 1 << 16;
/// See [`DEPTH_MAX`].
pub(crate) const CORES_MAX: usize = 1 << 13;
/// See [`DEPTH_MAX`].
pub(crate) const IOPS_MAX: f64 = 1e10;
