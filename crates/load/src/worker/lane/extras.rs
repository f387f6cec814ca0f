//! What a lane does for each request only where a job asks for it: logs, and the search for the
//! depth that keeps a latency.

use std::collections::BTreeMap;

use super::Lane;
use super::request::{Planned, Purpose};
use crate::job::{Job, LatencyTarget};
use crate::limits::LOG_ENTRIES_MAX;
use crate::logs::{self, Histogram, IssuedRequest, LogLine};
use crate::pattern::Direction;
use crate::statistics::{LaneResult, TargetResult};
use crate::units::ns;

/// All of it.
#[derive(Debug)]
pub(super) struct Extras {
    pub(super) start_ns: u64,
    log: Option<Log>,
    histograms: Option<Histograms>,
    issued: Option<Vec<IssuedRequest>>,
    pub(super) search: Option<Search>,
}

/// Requests that completed.
#[derive(Debug)]
struct Log {
    entries: Vec<LogLine>,
    /// Of windows: how long they are, when this one began, and what it has of each direction.
    window_ns: u64,
    maximum: bool,
    from_ns: u64,
    sums: [Sum; 3],
}

/// Histograms of windows, for each direction.
#[derive(Debug)]
struct Histograms {
    every_ns: u64,
    entries: Vec<Histogram>,
    /// How many bins of them have something.
    bins: usize,
    /// Of each direction: when its window began, and what it has.
    windows: [(u64, BTreeMap<u32, u64>); 3],
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    requests: u64,
    bytes: u64,
    latency_ns: u64,
    completion_ns: u64,
    longest_ns: u64,
    longest_completion_ns: u64,
}

/// A request that completed and counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompletedRequest {
    pub(super) direction: Direction,
    pub(super) now_ns: u64,
    pub(super) due_ns: u64,
    pub(super) started_ns: u64,
    pub(super) offset: u64,
    pub(super) bytes: u32,
}

/// What a lane is to do about a window of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Go on.
    Continue,
    /// Count anew: the depth is found, and the last window is the result.
    Last,
    /// End.
    End,
}

/// The search for the greatest depth at which so many of a hundred requests are fast enough.
#[derive(Debug)]
pub(super) struct Search {
    target: LatencyTarget,
    deepest: u32,
    /// The depth that is tried, the greatest that has kept the target (0: none), and the least that
    /// has not.
    pub(super) depth: u32,
    kept: u32,
    broken: Option<u32>,
    is_last: bool,
    until_ns: u64,
    requests: u64,
    fast: u64,
}

impl Extras {
    /// None: the job asks for nothing of this.
    pub(super) fn new(job: &Job) -> Option<Box<Self>> {
        let log = job.logs.is_wanted().then(|| Log {
            entries: Vec::new(),
            window_ns: ns(job.logs.average),
            maximum: job.logs.maximum,
            from_ns: 0,
            sums: [Sum::default(); 3],
        });
        let every_ns = ns(job.logs.histogram_every);
        let histograms = (job.logs.histogram.is_some() && every_ns > 0).then(|| Histograms {
            every_ns,
            entries: Vec::new(),
            bins: 0,
            windows: Default::default(),
        });
        let issued = job.logs.requests.as_ref().map(|_| Vec::new());
        let search = job.latency_target.map(|target| Search::new(target, job.depth));
        let is_wanted =
            log.is_some() || histograms.is_some() || issued.is_some() || search.is_some();
        is_wanted.then(|| Box::new(Self { start_ns: 0, log, histograms, issued, search }))
    }

    /// A request is submitted; what is wrong if there is no room for it.
    pub(super) fn submitted(&mut self, mut issued: IssuedRequest) -> Option<String> {
        let list = self.issued.as_mut()?;
        issued.at_ns = issued.at_ns.saturating_sub(self.start_ns);
        list.push(issued);
        (list.len() >= LOG_ENTRIES_MAX).then(|| {
            format!("write_iolog holds {LOG_ENTRIES_MAX} requests at most: give number_ios")
        })
    }

    /// A request has completed; what is wrong if there is no room for it.
    pub(super) fn completed(&mut self, one: CompletedRequest) -> Option<String> {
        if let Some(search) = &mut self.search {
            search.requests += 1;
            let is_fast = one.now_ns.saturating_sub(one.due_ns) <= ns(search.target.latency);
            search.fast += u64::from(is_fast);
        }
        if let Some(histograms) = &mut self.histograms {
            histograms.take(one, self.start_ns);
            if histograms.bins >= LOG_ENTRIES_MAX {
                return Some(format!(
                    "write_hist_log holds {LOG_ENTRIES_MAX} bins at most: give a longer \
                     log_hist_msec"
                ));
            }
        }
        let log = self.log.as_mut()?;
        log.take(one, self.start_ns);
        (log.entries.len() >= LOG_ENTRIES_MAX)
            .then(|| format!("logs hold {LOG_ENTRIES_MAX} lines at most: give log_avg_msec"))
    }

    /// What they came to.
    pub(super) fn close(mut self, now_ns: u64, result: &mut LaneResult) {
        if let Some(mut log) = self.log.take() {
            log.end_window(now_ns, self.start_ns);
            result.logged = log.entries;
        }
        result.histograms = self.histograms.map_or_else(Vec::new, |all| all.entries);
        result.issued = self.issued.unwrap_or_default();
        result.target = self.search.map(|search| TargetResult { depth: search.kept });
    }
}

impl Lane {
    /// Remembers a request that is submitted, where a job asks for that.
    pub(super) fn record(&mut self, planned: Planned) {
        let Planned { purpose, offset, bytes, started_ns, .. } = planned;
        let is_own = matches!(purpose, Purpose::Probe | Purpose::ReadBack);
        let Some(extras) = self.extras.as_mut().filter(|_| !is_own) else { return };
        let action = if purpose == Purpose::Flush { "sync" } else { purpose.name() };
        let offset = if bytes == 0 { 0 } else { self.region_offset + offset };
        if let Some(full) =
            extras.submitted(IssuedRequest { at_ns: started_ns, action, offset, bytes })
        {
            self.fail(full);
        }
    }

    /// Does what a job asks for besides with a request that has completed.
    pub(super) fn observe(&mut self, mut completed: CompletedRequest) {
        let Some(extras) = &mut self.extras else { return };
        completed.offset += self.region_offset;
        let now_ns = completed.now_ns;
        let full = extras.completed(completed);
        let search = extras.search.as_mut().filter(|search| now_ns >= search.until_ns());
        match search.map(|search| search.step(now_ns)) {
            Some(Step::Last) => self.count_anew(now_ns),
            Some(Step::End) => self.end(now_ns),
            Some(Step::Continue) | None => {}
        }
        self.park();
        if let Some(full) = full {
            self.fail(full);
        }
    }

    /// Lets as many places of the queue be used as the search for a depth says.
    pub(super) fn park(&mut self) {
        let search = self.extras.as_ref().and_then(|extras| extras.search.as_ref());
        let Some(depth) = search.map(|search| search.depth as usize) else { return };
        while self.in_play > depth
            && let Some(place) = self.free.pop()
        {
            self.parked.push(place);
            self.in_play -= 1;
        }
        while self.in_play < depth
            && let Some(place) = self.parked.pop()
        {
            self.free.push(place);
            self.in_play += 1;
        }
    }
}

impl Histograms {
    /// As fio does it, a request ends the window of its direction, and the last window is left out.
    fn take(&mut self, one: CompletedRequest, start_ns: u64) {
        let Some((began_ns, bins)) = self.windows.get_mut(one.direction as usize) else { return };
        let at_ns = one.now_ns.saturating_sub(start_ns);
        *bins.entry(logs::bin(one.now_ns.saturating_sub(one.started_ns))).or_default() += 1;
        if at_ns.saturating_sub(*began_ns) < self.every_ns {
            return;
        }
        *began_ns = at_ns - at_ns.saturating_sub(*began_ns) % self.every_ns;
        let (direction, bytes) = (one.direction, one.bytes);
        self.bins += bins.len();
        self.entries.push(Histogram { at_ns, direction, bytes, bins: std::mem::take(bins) });
    }
}

impl Log {
    fn take(&mut self, one: CompletedRequest, start_ns: u64) {
        let latency_ns = one.now_ns.saturating_sub(one.due_ns);
        let completion_ns = one.now_ns.saturating_sub(one.started_ns);
        if self.window_ns == 0 {
            return self.entries.push(LogLine {
                at_ns: one.now_ns.saturating_sub(start_ns),
                direction: one.direction,
                latency_ns,
                completion_ns,
                requests: 1,
                bytes: u64::from(one.bytes),
                offset: one.offset,
                lasted_ns: 0,
            });
        }
        if self.from_ns == 0 {
            self.from_ns = one.now_ns;
        } else if one.now_ns.saturating_sub(self.from_ns) >= self.window_ns {
            self.end_window(one.now_ns, start_ns);
        }
        if let Some(sum) = self.sums.get_mut(one.direction as usize) {
            sum.requests += 1;
            sum.bytes += u64::from(one.bytes);
            sum.latency_ns += latency_ns;
            sum.completion_ns += completion_ns;
            sum.longest_ns = sum.longest_ns.max(latency_ns);
            sum.longest_completion_ns = sum.longest_completion_ns.max(completion_ns);
        }
    }

    fn end_window(&mut self, now_ns: u64, start_ns: u64) {
        let lasted_ns = now_ns.saturating_sub(self.from_ns).max(1);
        for direction in [Direction::Read, Direction::Write, Direction::Trim] {
            let sum = std::mem::take(&mut self.sums[direction as usize]);
            if sum.requests == 0 {
                continue;
            }
            let (latency_ns, completion_ns) = if self.maximum {
                (sum.longest_ns, sum.longest_completion_ns)
            } else {
                (sum.latency_ns / sum.requests, sum.completion_ns / sum.requests)
            };
            self.entries.push(LogLine {
                at_ns: now_ns.saturating_sub(start_ns),
                direction,
                latency_ns,
                completion_ns,
                requests: sum.requests,
                bytes: sum.bytes,
                offset: 0,
                lasted_ns,
            });
        }
        self.from_ns = now_ns;
    }
}

impl Search {
    fn new(target: LatencyTarget, deepest: u32) -> Self {
        Self {
            target,
            deepest,
            depth: 1,
            kept: 0,
            broken: None,
            is_last: false,
            until_ns: 0,
            requests: 0,
            fast: 0,
        }
    }

    /// When the window ends.
    pub(super) const fn until_ns(&self) -> u64 {
        self.until_ns
    }

    /// A window begins.
    pub(super) fn begin(&mut self, now_ns: u64) {
        (self.requests, self.fast) = (0, 0);
        self.until_ns = now_ns.saturating_add(ns(self.target.window));
    }

    /// A window has ended: the depth of the next one.
    pub(super) fn step(&mut self, now_ns: u64) -> Step {
        let least = self.target.percentile / 100.0 * self.requests as f64;
        let is_kept = self.requests > 0 && self.fast as f64 >= least;
        self.begin(now_ns);
        if self.is_last && !self.target.goes_on {
            self.kept = if is_kept { self.depth } else { self.depth - 1 };
            if is_kept || self.depth == 1 {
                return Step::End;
            }
            self.depth -= 1;
            return Step::Last;
        }
        if is_kept {
            self.kept = self.kept.max(self.depth);
            // What was too slow then may not be now.
            let is_next = self.broken == Some(self.depth + 1) && self.target.goes_on;
            self.broken = self.broken.map(|broken| broken + u32::from(is_next));
        } else {
            self.broken = Some(self.depth);
            self.kept = self.kept.min(self.depth - 1);
        }
        let is_found = match self.broken {
            None => self.kept == self.deepest,
            Some(broken) => broken == self.kept + 1,
        };
        if is_found && !self.target.goes_on {
            (self.is_last, self.depth) = (true, self.kept.max(1));
            return if self.kept == 0 { Step::End } else { Step::Last };
        }
        let next = match self.broken {
            None => self.depth.saturating_mul(2),
            Some(broken) => (self.kept + broken) / 2,
        };
        self.depth = next.clamp(1, self.deepest);
        Step::Continue
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The depth that is found where a depth of `bound` and less keeps the target, and in how many
    /// windows.
    fn found(bound: u32, deepest: u32) -> (u32, u32) {
        let target = LatencyTarget {
            latency: Duration::from_micros(100),
            window: Duration::from_secs(1),
            percentile: 99.0,
            goes_on: false,
        };
        let mut search = Search::new(target, deepest);
        search.begin(0);
        for window in 1..100 {
            search.requests = 1000;
            search.fast = if search.depth <= bound { 990 } else { 989 };
            if search.step(0) == Step::End {
                return (search.kept, window);
            }
        }
        panic!("no end for {bound} of {deepest}");
    }

    #[test]
    fn every_depth_is_found() {
        for deepest in [1, 2, 3, 16, 100, 128] {
            for bound in 0..=deepest + 1 {
                let (depth, windows) = found(bound, deepest);
                assert_eq!(depth, bound.min(deepest), "{bound} of {deepest}");
                assert!(windows <= 16, "{bound} of {deepest}: {windows}");
            }
        }
    }
}
