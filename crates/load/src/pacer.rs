//! When requests start.
//!
//! In a closed loop a request starts as soon as the queue has a free slot. In an open loop it
//! starts when it is due, whether or not earlier ones have completed; if the queue is full it
//! starts late, and its latency still counts from when it was due.

use std::sync::Arc;

use crate::random::Random;
use crate::units::whole;

/// The arrival process of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// At fixed intervals.
    Fixed,
    /// As a Poisson process with a given mean rate.
    Poisson,
}

/// Decides when the next request starts. Times are nanoseconds since an arbitrary origin.
#[derive(Clone, Debug)]
pub enum Pacer {
    /// As soon as a slot is free.
    Closed,
    /// When it is due.
    Open(Schedule),
    /// When it was recorded.
    Recorded(Recording),
}

/// The times of a recording, in passes.
#[derive(Clone, Debug)]
pub struct Recording {
    times: Arc<[u64]>,
    next: usize,
    start_ns: u64,
}

impl Recording {
    fn due_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.times.get(self.next).copied().unwrap_or(0))
    }
}

/// The times of an open loop.
#[derive(Clone, Debug)]
pub struct Schedule {
    process: Process,
    interval_ns: f64,
    /// When the next request is due, and the fraction of a nanosecond that belongs to it: a sum of
    /// doubles alone would drift.
    next_ns: u64,
    part_ns: f64,
    random: Random,
}

impl Pacer {
    /// A pacer for `iops` requests a second; it begins with [`Pacer::start`].
    #[must_use]
    pub fn open(process: Process, iops: f64, random: Random) -> Self {
        let interval_ns = 1e9 / iops.max(1e-3);
        Self::Open(Schedule { process, interval_ns, next_ns: 0, part_ns: 0.0, random })
    }

    /// A pacer for a recording's times.
    #[must_use]
    pub const fn recorded(times: Arc<[u64]>) -> Self {
        Self::Recorded(Recording { times, next: 0, start_ns: 0 })
    }

    /// Sets the time of the first request.
    pub fn start(&mut self, now_ns: u64) {
        if let Self::Recorded(recording) = self {
            (recording.next, recording.start_ns) = (0, now_ns);
        }
        if let Self::Open(schedule) = self {
            (schedule.next_ns, schedule.part_ns) = (now_ns, 0.0);
            if schedule.process == Process::Poisson {
                schedule.advance();
            }
        }
    }

    /// Takes the next request if it may start: the time from which its latency counts.
    #[inline]
    pub fn take(&mut self, now_ns: u64) -> Option<u64> {
        match self {
            Self::Closed => Some(now_ns),
            Self::Open(schedule) => {
                let due_ns = schedule.next_ns;
                if due_ns > now_ns {
                    return None;
                }
                schedule.advance();
                Some(due_ns)
            }
            Self::Recorded(recording) => {
                let due_ns = recording.due_ns();
                if due_ns > now_ns {
                    return None;
                }
                recording.next += 1;
                if recording.next == recording.times.len() {
                    // A further pass begins where this one ends.
                    (recording.next, recording.start_ns) = (0, due_ns);
                }
                Some(due_ns)
            }
        }
    }

    /// When the next request is due, in an open loop.
    #[must_use]
    pub fn due_ns(&self) -> Option<u64> {
        match self {
            Self::Closed => None,
            Self::Open(schedule) => Some(schedule.next_ns),
            Self::Recorded(recording) => Some(recording.due_ns()),
        }
    }

    /// Whether latency counts from the scheduled time.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        !matches!(self, Self::Closed)
    }
}

impl Schedule {
    fn advance(&mut self) {
        self.part_ns += match self.process {
            Process::Fixed => self.interval_ns,
            Process::Poisson => self.interval_ns * self.random.exponential(),
        };
        let whole_ns = whole(self.part_ns);
        self.part_ns -= whole_ns as f64;
        self.next_ns = self.next_ns.saturating_add(whole_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_loop_starts_at_once() {
        let mut pacer = Pacer::Closed;
        pacer.start(5);
        assert_eq!((pacer.take(7), pacer.take(7), pacer.due_ns()), (Some(7), Some(7), None));
        assert!(!pacer.is_open());
    }

    #[test]
    fn fixed_times_have_equal_intervals_and_do_not_drift() {
        let mut pacer = Pacer::open(Process::Fixed, 3.0, Random::new(1, 0));
        pacer.start(1_000);
        assert_eq!(pacer.take(999), None);
        assert_eq!(pacer.take(1_000), Some(1_000));
        assert_eq!(pacer.take(1_000), None);
        assert_eq!(pacer.due_ns(), Some(333_334_333));
        for _ in 0..3_000_000 {
            assert!(pacer.take(u64::MAX).is_some());
        }
        // 3,000,001 intervals of a third of a second.
        let exact = 1_000 + 1_000_000_333_333_333;
        assert!(pacer.due_ns().is_some_and(|due| due.abs_diff(exact) < 10), "{pacer:?}");
    }

    #[test]
    fn the_latency_of_late_requests_counts_from_when_they_were_due() {
        let mut pacer = Pacer::open(Process::Fixed, 1_000.0, Random::new(1, 0));
        pacer.start(0);
        let starts: Vec<_> = (0..4).map(|_| pacer.take(3_500_000)).collect();
        assert_eq!(starts, [Some(0), Some(1_000_000), Some(2_000_000), Some(3_000_000)]);
        assert_eq!(pacer.take(3_500_000), None);
    }

    #[test]
    fn poisson_times_have_the_requested_rate() {
        let mut pacer = Pacer::open(Process::Poisson, 10_000.0, Random::new(3, 0));
        pacer.start(0);
        let mut count = 0u32;
        let (mut last, mut short) = (0, 0u32);
        while let Some(due) = pacer.take(10_000_000_000) {
            assert!(due >= last);
            short += u32::from(due - last < 10_000);
            last = due;
            count += 1;
        }
        assert!((99_000..101_000).contains(&count), "{count}");
        // One gap in ten is shorter than a tenth of the mean: 1 - exp(-0.1).
        assert!((9_000..10_000).contains(&short), "{short}");
    }
}
