//! What a lane counts in each direction, and what it writes.

use std::time::Duration;

use super::{Lane, Stage};
use crate::histogram::Latency;
use crate::job::Plan;
use crate::limits::{WINDOW, WINDOWS_MAX};
use crate::random::Random;
use crate::run::Window;
use crate::statistics::{DirectionResult, LaneResult};
use crate::usage::Usage;

/// The books of one direction.
#[derive(Debug)]
pub(super) struct Books {
    pub(super) requests: u64,
    pub(super) bytes: u64,
    /// Of the window whose rate is kept.
    pub(super) window_requests: u64,
    /// Of the window of the progress line, which goes on when counting ends.
    pub(super) progress_requests: u64,
    pub(super) progress_bytes: u64,
    pub(super) latency: Latency,
    pub(super) completion: Option<Latency>,
    pub(super) windows: Vec<f64>,
    pub(super) window_from_ns: u64,
}

/// What is written where nobody verifies it: bytes that do not compress. A place of the queue
/// writes the same ones again and again, unless it has read something in between.
#[derive(Debug)]
pub(super) struct Data {
    pub(super) random: Random,
    /// Twice as much as a request takes: it gets a piece from somewhere within. Random numbers
    /// for each would cost as much as the rest of the request.
    pub(super) bytes: Vec<u8>,
}

impl Data {
    pub(super) fn new(unit_bytes: usize, mut random: Random) -> Self {
        let words = std::iter::from_fn(|| Some(random.word().to_le_bytes()));
        let bytes = words.take(2 * unit_bytes / 8).flatten().collect();
        Self { random, bytes }
    }

    /// Fills a buffer of a request, after it held anything else.
    pub(super) fn fill(&mut self, buffer: &mut [u8]) {
        let places = self.bytes.len().saturating_sub(buffer.len()) + 1;
        let at = usize::try_from(self.random.below(places as u64)).unwrap_or(0);
        if let Some(piece) = self.bytes.get(at..at + buffer.len()) {
            buffer.copy_from_slice(piece);
        }
    }
}

impl Lane {
    /// Ends a window: its numbers are added to `window`, which has the latencies already.
    pub(in crate::worker) fn end_window(&mut self, now_ns: u64, window: &mut Window) {
        window.faults += self.result.verify.faults;
        window.work_bytes += self.work_done();
        let (mut requests, mut bytes) = (0, 0);
        for (books, window_requests) in [
            (&mut self.read, &mut window.reads),
            (&mut self.write, &mut window.writes),
            (&mut self.trim, &mut window.trims),
        ] {
            let completed = std::mem::take(&mut books.progress_requests);
            *window_requests += completed;
            requests += completed;
            bytes += std::mem::take(&mut books.progress_bytes);
            books.end_window(now_ns, self.counting);
        }
        window.bytes += bytes;
        let is_running = self.counting && self.stage == Stage::Run;
        let slow = self.floor.as_mut().filter(|_| is_running);
        if let Some(slow) = slow.and_then(|floor| floor.take(now_ns, requests, bytes)) {
            self.fail(slow);
        }
    }

    /// How far a lane has come that ends with a number of bytes: these, and those that are read
    /// back after them.
    pub(super) fn work_done(&self) -> u64 {
        let read_back = match self.stage {
            Stage::LastDrain | Stage::Done => self.read_back_max,
            _ => self.read_back,
        };
        self.started_bytes.min(self.end_bytes) + read_back
    }

    /// What the lane has done so far; `usage` is its worker's.
    pub(in crate::worker) fn so_far(&self, now_ns: u64, usage: Usage) -> (usize, LaneResult) {
        let mut result = LaneResult {
            usage,
            depth_levels: self.depth_levels,
            submit_levels: self.submit_levels,
            complete_levels: self.complete_levels,
            flushes: self.flushes.clone(),
            ..self.result.clone()
        };
        if self.counting {
            let measured = Duration::from_nanos(now_ns.saturating_sub(self.count_from_ns));
            result.read = self.read.so_far(measured);
            result.write = self.write.so_far(measured);
            result.trim = self.trim.so_far(measured);
        }
        (self.number, result)
    }

    /// What the lane did; `usage` is its worker's.
    pub(in crate::worker) fn into_result(mut self, usage: Usage) -> (usize, LaneResult) {
        let ended_ns = self.last_completion_ns;
        self.end_counting(ended_ns);
        self.result.usage = usage;
        self.result.depth_levels = self.depth_levels;
        self.result.submit_levels = self.submit_levels;
        self.result.complete_levels = self.complete_levels;
        self.result.flushes = self.flushes;
        if let Some(extras) = self.extras {
            extras.close(ended_ns, &mut self.result);
        }
        (self.number, self.result)
    }
}

impl Books {
    pub(super) fn new(open_loop: bool, plan: &Plan) -> Self {
        // As many windows as the runtime has, so that none is made room for in between.
        let windows = plan.runtime.map_or(0, |runtime| {
            usize::try_from(runtime.as_nanos() / WINDOW.as_nanos()).unwrap_or(WINDOWS_MAX)
        });
        Self {
            requests: 0,
            bytes: 0,
            window_requests: 0,
            progress_requests: 0,
            progress_bytes: 0,
            latency: Latency::new(),
            completion: open_loop.then(Latency::new),
            windows: Vec::with_capacity(windows.min(WINDOWS_MAX)),
            window_from_ns: 0,
        }
    }

    pub(super) fn begin_window(&mut self, now_ns: u64) {
        (self.window_requests, self.window_from_ns) = (0, now_ns);
    }

    /// Begins to count anew.
    pub(super) fn begin(&mut self, now_ns: u64) {
        (self.requests, self.bytes) = (0, 0);
        self.latency.clear();
        if let Some(completion) = &mut self.completion {
            completion.clear();
        }
        self.windows.clear();
        self.begin_window(now_ns);
    }

    pub(super) fn end_window(&mut self, now_ns: u64, counts: bool) {
        let lasted = Duration::from_nanos(now_ns.saturating_sub(self.window_from_ns));
        // What is left at the end of a run is no window.
        if counts && lasted >= WINDOW / 2 && self.windows.len() < WINDOWS_MAX {
            self.windows.push(self.window_requests as f64 / lasted.as_secs_f64());
        }
        self.begin_window(now_ns);
    }

    pub(super) fn so_far(&self, measured: Duration) -> DirectionResult {
        DirectionResult {
            requests: self.requests,
            bytes: self.bytes,
            measured,
            latency: self.latency.clone(),
            completion: self.completion.clone(),
            window_iops: self.windows.clone(),
        }
    }

    pub(super) fn close(&mut self, now_ns: u64, measured: Duration) -> DirectionResult {
        self.end_window(now_ns, true);
        DirectionResult {
            requests: self.requests,
            bytes: self.bytes,
            measured,
            latency: std::mem::take(&mut self.latency),
            completion: self.completion.take(),
            window_iops: std::mem::take(&mut self.windows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_kept_as_rates_and_a_rest_is_not() {
        let plan = Plan {
            regions: Vec::new(),
            runtime: Some(Duration::from_secs(2)),
            pool_bytes_of_lane: 0,
        };
        let mut books = Books::new(false, &plan);
        // What the ramp brought counts for nothing, and not for the next window either.
        books.window_requests = 70;
        books.end_window(900_000_000, false);
        assert_eq!((books.window_requests, books.windows.len()), (0, 0));
        books.begin_window(1_000_000_000);
        books.window_requests = 50;
        (books.requests, books.bytes) = (50, 50 * 4096);
        books.end_window(1_500_000_000, true);
        books.window_requests = 1;
        (books.requests, books.bytes) = (51, 51 * 4096);
        let result = books.close(1_510_000_000, Duration::from_millis(510));
        assert_eq!(result.window_iops, [100.0]);
        assert_eq!((result.requests, result.bytes), (51, 51 * 4096));
    }
}
