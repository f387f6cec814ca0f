//! Results of lanes and runs.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::histogram::Latency;
use crate::logs::{Histogram, IssuedRequest, LogLine};
use crate::pattern::Direction;
use crate::usage::Usage;
use crate::verify::VerifyResult;

/// Mean, deviation, minimum and maximum of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// How many samples.
    pub count: u64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
    /// The arithmetic mean.
    pub mean: f64,
    /// The standard deviation of the samples.
    pub stddev: f64,
}

impl Summary {
    /// The summary of these samples; zeros if there are none.
    #[must_use]
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Self {
        // Welford's recurrence: squares of large numbers are not subtracted from each other.
        let mut summary = Self { min: f64::INFINITY, max: f64::NEG_INFINITY, ..Self::default() };
        let mut squares = 0.0;
        for sample in samples {
            summary.count += 1;
            let delta = sample - summary.mean;
            summary.mean += delta / summary.count as f64;
            squares += delta * (sample - summary.mean);
            summary.min = summary.min.min(sample);
            summary.max = summary.max.max(sample);
        }
        match summary.count {
            0 => Self::default(),
            1 => summary,
            count => Self { stddev: (squares / (count - 1) as f64).sqrt(), ..summary },
        }
    }
}

/// The reads, or the writes, of a lane or of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DirectionResult {
    /// Requests that completed during the measured time.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The measured time.
    pub measured: Duration,
    /// From the due time to the completion.
    pub latency: Latency,
    /// From the submission to the completion, where that differs (open loop).
    pub completion: Option<Latency>,
    /// Requests a second in each full window.
    pub window_iops: Vec<f64>,
}

impl DirectionResult {
    /// Requests a second.
    #[must_use]
    pub fn iops(&self) -> f64 {
        per_second(self.requests, self.measured)
    }

    /// Bytes a second.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        per_second(self.bytes, self.measured)
    }

    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.measured = self.measured.max(other.measured);
        // Requests of a closed loop are due when they are submitted.
        match (&mut self.completion, &other.completion) {
            (Some(mine), others) => mine.add(others.as_ref().unwrap_or(&other.latency)),
            (mine @ None, Some(others)) => {
                let mut all = self.latency.clone();
                all.add(others);
                *mine = Some(all);
            }
            (None, None) => {}
        }
        self.latency.add(&other.latency);
        // Windows of all lanes begin together, so those of a run are their sums.
        if self.window_iops.is_empty() {
            self.window_iops.clone_from(&other.window_iops);
        } else {
            self.window_iops.truncate(other.window_iops.len());
            for (mine, others) in self.window_iops.iter_mut().zip(&other.window_iops) {
                *mine += others;
            }
        }
    }
}

/// Names of [`LaneResult::depth_levels`], as in fio.
pub const DEPTH_LEVELS: [&str; 7] = ["1", "2", "4", "8", "16", "32", ">=64"];

/// Names of [`LaneResult::submit_levels`] and [`LaneResult::complete_levels`], as in fio.
pub const BATCH_LEVELS: [&str; 7] = ["0", "4", "8", "16", "32", "64", ">=64"];

/// What one copy of a job did. What only jobs of the command line have is not serialized.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LaneResult {
    /// Its reads.
    pub read: DirectionResult,
    /// Its writes.
    pub write: DirectionResult,
    /// Its trims.
    pub trim: DirectionResult,
    /// Latencies of its flushes.
    pub flushes: Latency,
    /// How often so many requests were in flight after a submission.
    pub depth_levels: [u64; 7],
    /// How often so many requests were submitted together.
    #[serde(skip)]
    pub submit_levels: [u64; 7],
    /// How often so many completions were taken together.
    #[serde(skip)]
    pub complete_levels: [u64; 7],
    /// CPU use of its worker during the measured time; lanes of one worker share it.
    pub usage: Usage,
    /// Requests of all kinds that were submitted to the device since the start, including ramp,
    /// probes and verification's reads.
    pub submitted: u64,
    /// What verification found.
    #[serde(skip)]
    pub verify: VerifyResult,
    /// What `latency_target` came to.
    #[serde(skip)]
    pub target: Option<TargetResult>,
    /// The lines of its logs, if it writes any.
    #[serde(skip)]
    pub logged: Vec<LogLine>,
    /// The lines of `write_hist_log`.
    #[serde(skip)]
    pub histograms: Vec<Histogram>,
    /// What it submitted, if that is recorded.
    #[serde(skip)]
    pub issued: Vec<IssuedRequest>,
    /// Why it ended early, if it did.
    pub error: Option<String>,
}

/// What `latency_target` came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetResult {
    /// The greatest depth at which enough requests were fast enough; 0: not even one at a time.
    pub depth: u32,
}

impl LaneResult {
    /// The reads or the writes.
    #[must_use]
    pub fn direction(&self, direction: Direction) -> &DirectionResult {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
            Direction::Trim => &self.trim,
        }
    }

    /// Whether it ended early or found wrong data.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.error.is_some() || self.verify.faults > 0
    }

    /// Adds another lane's results; its `usage` only if it is another worker's.
    pub fn add(&mut self, other: &Self, usage: bool) {
        self.read.add(&other.read);
        self.write.add(&other.write);
        self.trim.add(&other.trim);
        self.flushes.add(&other.flushes);
        for (mine, others) in [
            (&mut self.depth_levels, other.depth_levels),
            (&mut self.submit_levels, other.submit_levels),
            (&mut self.complete_levels, other.complete_levels),
        ] {
            mine.iter_mut().zip(others).for_each(|(mine, other)| *mine += other);
        }
        if usage {
            self.usage = self.usage.plus(&other.usage);
        }
        self.submitted += other.submitted;
        self.verify.add(&other.verify);
        // Of several copies the one that reached least.
        let depths = [self.target, other.target].into_iter().flatten();
        self.target = depths.min_by_key(|target| target.depth);
        if self.error.is_none() {
            self.error.clone_from(&other.error);
        }
    }
}

/// A constant; by this name serde does not take it for text that it could borrow.
type DriverName = &'static str;

/// What a run of a job did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunResult {
    /// Each copy, and the number of the worker that ran it.
    pub lanes: Vec<(usize, LaneResult)>,
    /// From the common start to the end of the last lane, ramp included.
    pub elapsed: Duration,
    /// The driver that the reactors used.
    #[serde(deserialize_with = "driver")]
    pub driver: DriverName,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
}

impl RunResult {
    /// All copies together.
    #[must_use]
    pub fn total(&self) -> LaneResult {
        let mut total = LaneResult::default();
        let mut counted = Vec::new();
        for (worker, lane) in &self.lanes {
            let first = !counted.contains(worker);
            total.add(lane, first);
            if first {
                counted.push(*worker);
            }
        }
        total
    }

    /// On how many workers it ran.
    #[must_use]
    pub fn workers(&self) -> usize {
        let mut workers: Vec<usize> = self.lanes.iter().map(|(worker, _)| *worker).collect();
        workers.sort_unstable();
        workers.dedup();
        workers.len()
    }

    /// Whether any copy ended early or found wrong data.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.lanes.iter().any(|(_, lane)| lane.failed())
    }
}

/// The name of a reactor's driver.
fn driver<'a, D: Deserializer<'a>>(from: D) -> Result<&'static str, D::Error> {
    let name = String::deserialize(from)?;
    let known = ["io_uring", "epoll", "simulated", ""].into_iter().find(|known| *known == name);
    known.ok_or_else(|| D::Error::custom(format!("{name:?} is not a driver")))
}

fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

/// Which of [`DEPTH_LEVELS`] so many requests in flight are.
#[inline]
pub(crate) fn depth_level(in_flight: usize) -> usize {
    // fio's levels: 1, then 2 to 3, 4 to 7, …, and 64 up.
    (in_flight.max(1).ilog2() as usize).min(6)
}

/// Which of [`BATCH_LEVELS`] so many requests of one turn are.
#[inline]
pub(crate) fn batch_level(requests: u32) -> usize {
    // fio's levels: 0, then 1 to 4, 5 to 8, 9 to 16, …, and 65 up.
    match requests {
        0 => 0,
        1..=4 => 1,
        _ => ((requests - 1).ilog2() as usize).min(6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(requests: u64, windows: &[f64]) -> LaneResult {
        let mut latency = Latency::new();
        (0..requests).for_each(|n| latency.record(1_000 + n));
        let read = DirectionResult {
            requests,
            bytes: requests * 4096,
            measured: Duration::from_secs(2),
            latency,
            completion: None,
            window_iops: windows.to_vec(),
        };
        let user = Duration::from_secs(1);
        LaneResult { read, usage: Usage { user, ..Usage::default() }, ..LaneResult::default() }
    }

    #[test]
    fn a_summary_is_that_of_its_samples() {
        let summary = Summary::of([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!((summary.count, summary.min, summary.max, summary.mean), (8, 2.0, 9.0, 5.0));
        assert!((summary.stddev - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(Summary::of([]), Summary::default());
        assert_eq!(Summary::of([3.0]).stddev, 0.0);
    }

    #[test]
    fn lanes_add_up() {
        let run = RunResult {
            lanes: vec![(0, lane(10, &[5.0, 5.0])), (0, lane(30, &[15.0, 10.0, 5.0]))],
            ..RunResult::default()
        };
        let total = run.total();
        assert_eq!((total.read.requests, total.read.bytes), (40, 163_840));
        assert!((total.read.iops() - 20.0).abs() < 1e-9);
        assert_eq!(total.read.latency.count(), 40);
        assert_eq!(total.read.window_iops, [20.0, 15.0]);
        assert_eq!(total.usage.user, Duration::from_secs(1), "one worker counts once");
        assert_eq!(total.write.iops(), 0.0);
        assert!(!run.failed());
    }

    #[test]
    fn workers_add_up_and_one_failure_fails_the_run() {
        let mut run =
            RunResult { lanes: vec![(0, lane(1, &[])), (1, lane(1, &[]))], ..RunResult::default() };
        assert_eq!(run.total().usage.user, Duration::from_secs(2));
        run.lanes[1].1.error = Some("gone".to_owned());
        assert!(run.failed());
        assert_eq!(run.total().error.as_deref(), Some("gone"));
    }

    #[test]
    fn depths_fall_into_fios_levels() {
        for (depth, level) in [
            (1, "1"),
            (2, "2"),
            (3, "2"),
            (4, "4"),
            (31, "16"),
            (32, "32"),
            (63, "32"),
            (64, ">=64"),
        ] {
            assert_eq!(DEPTH_LEVELS[depth_level(depth)], level, "{depth}");
        }
        assert_eq!(DEPTH_LEVELS[depth_level(4096)], ">=64");
    }

    /// An open and a closed loop in one report have all their requests in both latencies, whichever
    /// comes first.
    #[test]
    fn a_closed_loop_completes_as_it_is_due() {
        let closed = lane(10, &[]).read;
        let open = DirectionResult { completion: Some(closed.latency.clone()), ..closed.clone() };
        for [first, second] in [[&open, &closed], [&closed, &open]] {
            let mut both = DirectionResult::default();
            both.add(first);
            both.add(second);
            let completion = both.completion.expect("an open loop is among them");
            assert_eq!((both.latency.count(), completion.count()), (20, 20));
        }
    }

    #[test]
    fn batches_fall_into_fios_levels() {
        for (batch, level) in [
            (0, "0"),
            (1, "4"),
            (4, "4"),
            (5, "8"),
            (8, "8"),
            (9, "16"),
            (32, "32"),
            (33, "64"),
            (64, "64"),
            (65, ">=64"),
            (4096, ">=64"),
        ] {
            assert_eq!(BATCH_LEVELS[batch_level(batch)], level, "{batch}");
        }
    }
}
