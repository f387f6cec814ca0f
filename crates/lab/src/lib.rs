//! The load generator: what drives a block device and says what that was like.
//!
//! A [`Job`] (in fio's words) becomes workers, one thread and one reactor each. A worker runs one
//! or more lanes; a lane is one copy of the job with its own handle of the device, its own random
//! sequence and its own books. The lane keeps `iodepth` requests in flight or, at a given rate,
//! starts each request when it is due; it reads the clock when it submits and when a completion
//! comes back and records the difference in a histogram that is kept raw.
//!
//! What it must never know: what kind of device it drives (memory, a file, a namespace across the
//! network: all are [`weft_backend::DeviceFactory`]), and the target. A target under test is
//! another process that somebody else started.
//!
//! Invariants:
//! - Nothing is allocated for an I/O: buffers, slots and histograms are there before the first.
//! - At a given rate latency counts from the moment a request was due, not from the moment there
//!   was room for it, so that a stall is seen by every request it delayed.
//! - A number that the samples do not carry is not shown: a percentile needs ten samples beyond it.
//! - With verification every block that was written is read back and compared byte by byte, and
//!   what is wrong is said with its offset.
//! - A run that failed says so; its numbers are never passed off as a result.

mod cells;
pub mod compare;
pub mod environment;
pub mod floor;
pub mod histogram;
pub mod html;
pub mod job;
pub mod limits;
pub mod pacer;
pub mod pattern;
pub mod published;
pub mod random;
pub mod report;
pub mod results;
mod run;
pub mod statistics;
pub mod study;
#[cfg(test)]
mod testing;
pub mod usage;
pub mod verify;
mod worker;

pub use histogram::Latency;
pub use job::{Job, JobError, Polling, Rate};
pub use pattern::{Direction, Pattern};
pub use run::{Onlooker, Phase, Progress, RunError, run, run_beside, run_watched};
pub use statistics::{DirectionResult, LaneResult, RunResult};
