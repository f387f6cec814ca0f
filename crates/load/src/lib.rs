//! The load generator: drives a block device and reports its throughput and latency.
//!
//! A [`Job`] (with fio's parameters) becomes workers, one thread and one reactor each. A worker
//! runs one or more lanes; a lane is one copy of the job with its own handle of the device, its
//! own random sequence and its own counters. The lane keeps `iodepth` requests in flight or, at a
//! given rate, starts each request when it is due; it reads the clock at submission and at
//! completion and records the difference in a histogram that is stored whole.
//!
//! This crate does not know which kind of device it drives: memory, a file, a namespace over the
//! network are all a [`weft_backend::DeviceFactory`]. The [`floor`] and the [`network`] are what
//! the same bytes cost without a device.
//!
//! Invariants:
//! - No I/O allocates: buffers, slots and histograms exist before the first request.
//! - At a given rate latency counts from the time at which a request was due, not from the time at
//!   which it could be started, so that a stall shows in every request it delayed.
//! - A number that the samples do not resolve is not shown: a percentile needs ten samples
//!   beyond it.
//! - With verification every block that was written is read back and compared byte by byte, and
//!   differences are reported with their offset.
//! - A run that failed is reported as failed; its numbers never appear as a result.

mod aside;
#[cfg(test)]
mod beside_fio;
pub mod calendar;
pub mod floor;
pub mod histogram;
pub mod job;
pub mod jobfile;
pub mod limits;
pub mod logs;
pub mod network;
pub mod pacer;
pub mod pattern;
pub mod random;
pub mod replay;
pub mod report;
mod run;
pub mod statistics;
pub mod text;
pub mod units;
pub mod usage;
pub mod verify;
mod worker;

pub use aside::Aside;
pub use histogram::Latency;
pub use job::{Extent, Job, JobError, Polling, Rate};
pub use pattern::{Direction, Pattern};
pub use run::{
    Part, Phase, Progress, RunError, RunObserver, Windows, run, run_beside, run_jobs, run_observed,
};
pub use statistics::{DirectionResult, LaneResult, RunResult};
