//! How many requests of others a device has at a time while its group has express queues.
//!
//! What a device has taken cannot be overtaken. So a device that does not complete at once is given
//! only as many reads and writes of others as it works on, and a few more; the rest waits here, and
//! requests of express queues go past it.
//!
//! The window follows the delay, as in Gimbal (SIGCOMM 2021): each time a window's worth of
//! requests has completed, it is looked how long they were in the device, beside the least that
//! requests of their kind and size have needed. Less than [`DELAY_LOW`] hundredths of that: the
//! device has room for more. More than [`DELAY_HIGH`]: they stand in its queue. What a request
//! needs at least is measured again in each [`EPOCH`], which begins with a small window.

use std::collections::VecDeque;
use std::time::Duration;

use weft_backend::{Operation, Request};

use crate::statistics::ns;

/// The first window, and that of each epoch.
const WINDOW_MIN: usize = 1;
const WINDOW_MAX: usize = 1024;

/// Delays in hundredths of the least ones: below, the window grows; above, it shrinks.
const DELAY_LOW: u64 = 150;
const DELAY_HIGH: u64 = 200;

/// How long the least delay of a kind of request is believed.
const EPOCH: Duration = Duration::from_secs(10);

/// After so many requests in a row that were complete in the turn that began them the device is one
/// that completes at once, and has no window in this epoch.
const AT_ONCE: usize = 64;

/// Kinds: reads or writes, by powers of two of their bytes.
const SIZES: usize = 24;

/// The window of one device.
#[derive(Debug)]
pub(crate) struct Window {
    size: usize,
    /// Requests that the device has: their tags, kinds, and when they went there.
    begun: Vec<(u64, usize, Duration)>,
    /// Those that wait for a place.
    waiting: VecDeque<Request>,
    /// The least delay by kind in this epoch, in ns.
    least: [u64; 2 * SIZES],
    epoch_at: Duration,
    /// The window doubles: it has not been too large in this epoch.
    is_fast: bool,
    /// So many in a row were complete at once.
    at_once: usize,
    /// Of the requests that have completed since the last look: how many, and their delays in
    /// hundredths of the least ones.
    completed: usize,
    delays: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            size: WINDOW_MIN,
            begun: Vec::new(),
            waiting: VecDeque::new(),
            least: [u64::MAX; 2 * SIZES],
            epoch_at: Duration::ZERO,
            is_fast: true,
            at_once: 0,
            completed: 0,
            delays: 0,
        }
    }
}

/// The kind of a request that has to wait for a place: what changes no data or little goes past.
fn kind_of(operation: &Operation) -> Option<usize> {
    let (is_write, bytes) = match operation {
        Operation::Read { into, .. } => (0, into.len()),
        Operation::Write { from, .. } => (1, from.len()),
        _ => return None,
    };
    let size = usize::try_from(bytes.max(1).ilog2()).unwrap_or(0).min(SIZES - 1);
    Some(is_write * SIZES + size)
}

impl Window {
    /// A request of others has come; gives it back if it is to go to the device now.
    pub(crate) fn enter(&mut self, request: Request, now: Duration) -> Option<Request> {
        let Some(kind) = kind_of(&request.operation) else { return Some(request) };
        if self.is_off() {
            if self.epoch_at + EPOCH > now {
                return Some(request);
            }
            self.begin_epoch(now);
        }
        if self.begun.len() >= self.size || !self.waiting.is_empty() {
            self.waiting.push_back(request);
            return None;
        }
        self.begun.push((request.tag, kind, now));
        Some(request)
    }

    /// Whether the device completes at once.
    const fn is_off(&self) -> bool {
        self.at_once >= AT_ONCE
    }

    fn begin_epoch(&mut self, now: Duration) {
        let waiting = std::mem::take(&mut self.waiting);
        let begun = std::mem::take(&mut self.begun);
        *self = Self { waiting, begun, epoch_at: now, ..Self::default() };
    }

    /// The next one that may go to the device; `all`: whatever the window is.
    pub(crate) fn next(&mut self, all: bool, now: Duration) -> Option<Request> {
        let all = all || self.is_off();
        if self.waiting.is_empty() || (!all && self.begun.len() >= self.size) {
            return None;
        }
        let request = self.waiting.pop_front()?;
        if !all && let Some(kind) = kind_of(&request.operation) {
            self.begun.push((request.tag, kind, now));
        }
        Some(request)
    }

    /// Whether some wait.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether one that waits may go to the device.
    pub(crate) fn has_next(&self) -> bool {
        !self.waiting.is_empty() && (self.begun.len() < self.size || self.is_off())
    }

    /// A request of the device has completed.
    pub(crate) fn completed(&mut self, tag: u64, now: Duration) {
        let Some(place) = self.begun.iter().position(|one| one.0 == tag) else { return };
        let was_full = self.begun.len() >= self.size;
        let (_, kind, since) = self.begun.swap_remove(place);
        if self.epoch_at + EPOCH <= now {
            self.begin_epoch(now);
        }
        if since < self.epoch_at {
            // It was in a larger window's company.
            return;
        }
        self.at_once = if since == now { self.at_once + 1 } else { 0 };
        let delay = ns(now.saturating_sub(since)).max(1);
        let Some(least) = self.least.get_mut(kind) else { return };
        *least = delay.min(*least);
        self.delays += (delay.saturating_mul(100) / *least).min(100_000);
        self.completed += 1;
        if self.completed >= self.size {
            let mean = self.delays / self.completed as u64;
            (self.completed, self.delays) = (0, 0);
            self.look(mean, was_full);
        }
    }

    fn look(&mut self, delay: u64, was_full: bool) {
        if delay > DELAY_HIGH {
            self.is_fast = false;
            self.size = (self.size * 3 / 4).max(WINDOW_MIN);
        } else if delay < DELAY_LOW && was_full {
            let more = if self.is_fast { self.size } else { 1 };
            self.size = (self.size + more).min(WINDOW_MAX);
        } else {
            self.is_fast = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_reactor::Pool;

    /// A device that works on so many requests at a time, each for 100 µs. The window after a time,
    /// the part of its work that it did, and how many requests stood in its queue on average.
    fn run(channels: usize, time: Duration) -> (usize, f64, f64) {
        let pool = Pool::new(1 << 20).expect("memory");
        let read = |tag| Request {
            tag,
            operation: Operation::Read { slba: 0, nlb: 1, into: pool.take(4096).expect("room") },
        };
        let service = Duration::from_micros(100);
        let mut window = Window::default();
        let (mut now, mut tag) = (Duration::from_secs(1), 0);
        // When each channel is free, and what the device has by its end.
        let mut free = vec![now; channels];
        let mut ends: Vec<(Duration, u64)> = Vec::new();
        let (mut done, mut queued, mut looks) = (0_u32, 0, 0);
        let until = now + time;
        while now < until {
            let mut new = Vec::new();
            while window.waiting.len() < 4 {
                tag += 1;
                new.extend(window.enter(read(tag), now));
            }
            new.extend(std::iter::from_fn(|| window.next(false, now)));
            for request in new {
                let first = free.iter_mut().min().expect("a channel");
                *first = now.max(*first) + service;
                ends.push((*first, request.tag));
            }
            queued += ends.len().saturating_sub(channels);
            looks += 1;
            ends.sort_unstable();
            let (at, tag) = ends.remove(0);
            now = at;
            window.completed(tag, now);
            done += 1;
        }
        let work = service.as_secs_f64() * f64::from(done);
        let most = time.as_secs_f64() * channels as f64;
        (window.size, work / most, f64::from(u32::try_from(queued).unwrap()) / f64::from(looks))
    }

    #[test]
    fn a_device_is_kept_busy_and_little_stands_in_its_queue() {
        for channels in [1, 4, 32] {
            for time in [Duration::from_millis(500), Duration::from_secs(25)] {
                let (size, used, queued) = run(channels, time);
                assert!(used >= 0.9, "{channels}: {used} with {size}");
                assert!(queued <= channels as f64 * 1.1 + 1.0, "{channels}: {queued} with {size}");
            }
        }
    }

    #[test]
    fn what_waits_goes_in_its_order_and_all_of_it_where_the_window_is_off() {
        let pool = Pool::new(1 << 20).expect("memory");
        let read = |tag| Request {
            tag,
            operation: Operation::Read { slba: 0, nlb: 1, into: pool.take(4096).expect("room") },
        };
        let mut window = Window::default();
        let now = Duration::from_secs(1);
        assert_eq!(window.enter(read(1), now).map(|one| one.tag), Some(1));
        assert!(window.enter(read(2), now).is_none() && window.enter(read(3), now).is_none());
        let flush = Request { tag: 4, operation: Operation::Flush };
        assert_eq!(window.enter(flush, now).map(|one| one.tag), Some(4), "it goes past");
        assert!(window.has_waiting() && !window.has_next() && window.next(false, now).is_none());
        window.completed(9, now);
        assert!(!window.has_next(), "it has none of that");
        window.completed(1, now + Duration::from_micros(50));
        assert_eq!(window.next(false, now).map(|one| one.tag), Some(2));
        assert_eq!(window.next(true, now).map(|one| one.tag), Some(3));
        assert!(!window.has_waiting());
    }

    #[test]
    fn a_device_that_completes_at_once_has_no_window() {
        let pool = Pool::new(1 << 20).expect("memory");
        let mut window = Window::default();
        let now = Duration::from_secs(1);
        let enter = |window: &mut Window, tag, now| {
            let into = pool.take(4096).expect("room");
            let operation = Operation::Read { slba: 0, nlb: 1, into };
            window.enter(Request { tag, operation }, now).is_some()
        };
        for tag in 0..AT_ONCE as u64 {
            assert!(enter(&mut window, tag, now));
            window.completed(tag, now);
        }
        assert!((100..300).all(|tag| enter(&mut window, tag, now)));
        // It may be another one later.
        assert!(enter(&mut window, 300, now + EPOCH) && !enter(&mut window, 301, now + EPOCH));
    }
}
