//! When a lane begins, pauses, flushes and ends, and how slow it may be.

use std::sync::Arc;
use std::time::Duration;

use crate::job::{Plan, RateMin, Think};
use crate::jobfile::Exit;
use crate::random::Random;
use crate::run::{Ends, Part};
use crate::units::ns;

/// When a lane does what.
#[derive(Debug)]
pub(super) struct Times {
    /// The part it is a copy of, the one it waits for, and its group; what ends with it.
    pub(super) part: usize,
    pub(super) after: Option<usize>,
    pub(super) group: usize,
    pub(super) exit: Option<Exit>,
    pub(super) ends: Arc<Ends>,
    pub(super) delay_ns: u64,
    pub(super) ramp_ns: u64,
    pub(super) runtime_ns: Option<u64>,
    /// None: what it waits for has not ended.
    pub(super) start_ns: Option<u64>,
    pub(super) has_begun_counting: bool,
}

/// Pauses of a lane.
#[derive(Debug)]
pub(super) struct Thinking {
    pub(super) time_ns: u64,
    pub(super) blocks: u32,
    /// Requests until the next pause.
    pub(super) left: u32,
    /// When it is over; 0: there is none.
    pub(super) until_ns: u64,
}

/// Flushes of a lane.
#[derive(Debug)]
pub(super) struct Flushing {
    /// After so many writes; 0: never.
    pub(super) every: u32,
    pub(super) writes: u32,
    /// One is still to come at the end.
    pub(super) at_end: bool,
}

/// How slow a lane may be.
#[derive(Debug)]
pub(super) struct Floor {
    pub(super) min: RateMin,
    pub(super) since_ns: u64,
    pub(super) requests: u64,
    pub(super) bytes: u64,
}

impl Times {
    pub(super) fn new(
        part: &Part,
        number: usize,
        plan: &Plan,
        ends: &Arc<Ends>,
        mut random: Random,
    ) -> Self {
        let (from, to) = part.job.start_delay;
        let delay = from + to.saturating_sub(from).mul_f64(random.unit());
        Self {
            part: number,
            after: part.after,
            group: part.group,
            exit: part.exit,
            ends: Arc::clone(ends),
            delay_ns: ns(delay),
            ramp_ns: ns(part.job.ramp),
            runtime_ns: plan.runtime.map(ns),
            start_ns: None,
            has_begun_counting: false,
        }
    }

    pub(super) fn end_ns(&self) -> u64 {
        let ends = self.start_ns.zip(self.runtime_ns);
        ends.map_or(u64::MAX, |(start_ns, runtime_ns)| {
            start_ns.saturating_add(self.ramp_ns).saturating_add(runtime_ns)
        })
    }
}

impl Thinking {
    pub(super) fn new(think: Think) -> Self {
        let blocks = think.blocks.max(1);
        Self { time_ns: ns(think.time), blocks, left: blocks, until_ns: 0 }
    }
}

impl Floor {
    pub(super) fn new(min: RateMin) -> Self {
        Self { min, since_ns: 0, requests: 0, bytes: 0 }
    }

    /// Takes what completed in a window; what is wrong if it was too little for a cycle.
    pub(super) fn take(&mut self, now_ns: u64, requests: u64, bytes: u64) -> Option<String> {
        if self.since_ns == 0 {
            self.since_ns = now_ns;
            return None;
        }
        self.requests += requests;
        self.bytes += bytes;
        let lasted = Duration::from_nanos(now_ns.saturating_sub(self.since_ns));
        if lasted < self.min.cycle {
            return None;
        }
        let (iops, rate) =
            (self.requests as f64 / lasted.as_secs_f64(), self.bytes as f64 / lasted.as_secs_f64());
        (self.since_ns, self.requests, self.bytes) = (now_ns, 0, 0);
        let RateMin { iops: least_iops, bytes: least_bytes, .. } = self.min;
        (iops < least_iops || rate < least_bytes).then(|| {
            format!(
                "the rate of {iops:.0} IOPS and {rate:.0} bytes a second is below the least that \
                 is allowed ({least_iops:.0} and {least_bytes:.0})"
            )
        })
    }
}
