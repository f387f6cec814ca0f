//! How many requests of others a device has at a time while its group has express queues.
//!
//! What a device has taken cannot be overtaken. So a device that does not complete at once is given
//! only as many reads and writes of others as leave express queues their time in devices; the rest
//! waits here, and requests of express queues go past it.
//!
//! The windows follow the delay of express requests in the devices of the group, as Gimbal's
//! (SIGCOMM 2021) follow that of all: it is compared with the least that those of their device,
//! kind and size have needed. Less than [`DELAY_LOW`] hundredths of that: there is room for more.
//! More than [`DELAY_HIGH`]: they stand behind others. What a request needs at least is measured
//! again in each [`EPOCH`], which begins with a small window. A delay ends with the last look at
//! which nothing had come, so that time for which an answer waits for this processor, of which the
//! window does not decide, is no part of it.

use std::collections::VecDeque;
use std::time::Duration;

use weft_backend::{Operation, Request};
use weft_statistics::ns;

/// The first window, and that of each epoch.
const WINDOW_MIN: usize = 1;
const WINDOW_MAX: usize = 1024;

/// Delays of express requests in hundredths of the least ones: below, windows grow; above, they
/// shrink.
const DELAY_LOW: u64 = 140;
const DELAY_HIGH: u64 = 180;
/// One delay counts as this at most: a device may stop for a while for reasons of its own.
const DELAY_MAX: u64 = 400;

/// What a device completes sooner (in ns) did not wait in it.
const LEAST_MIN: u64 = 5000;

/// The mean is of so many.
const MEAN_OF: u64 = 16;

/// A window changes no more often, and when so many have ended since then.
const STEP: Duration = Duration::from_millis(2);
const STEP_OF: u64 = 4;

/// Windows grow if no express request has been in a device for so long.
const FORGET: Duration = Duration::from_millis(20);

/// How long the least delay of a kind of request is believed.
const EPOCH: Duration = Duration::from_secs(10);

/// After so many requests in a row that were complete in the turn that began them the device is one
/// that completes at once, and has no window in this epoch.
const AT_ONCE: usize = 64;

/// Kinds: reads or writes, by powers of two of their bytes.
const SIZES: usize = 24;

/// How long express requests are in the devices of a group, beside the least that those of their
/// device, kind and size have needed.
#[derive(Debug, Default)]
pub(crate) struct ExpressDelay {
    /// How many are in devices now.
    in_devices: usize,
    /// The mean of the last ones, in hundredths.
    mean: u64,
    /// How many have ended, and when the last one did.
    ended: u64,
    at: Option<Duration>,
}

impl ExpressDelay {
    /// Whether one is in a device.
    pub(crate) const fn is_any_in_device(&self) -> bool {
        self.in_devices > 0
    }

    fn note(&mut self, delay: u64, now: Duration) {
        let delay = delay.min(DELAY_MAX);
        self.mean = match self.at {
            Some(at) if at + FORGET > now => (self.mean * (MEAN_OF - 1) + delay) / MEAN_OF,
            _ => delay,
        };
        (self.ended, self.at) = (self.ended + 1, Some(now));
    }

    fn mean(&self, now: Duration) -> Option<u64> {
        self.at.filter(|at| *at + FORGET > now).map(|_| self.mean)
    }
}

/// The window of one device.
#[derive(Debug)]
pub(crate) struct DeviceWindow {
    size: usize,
    /// Requests of others that the device has: their tags, and when they went there.
    begun: Vec<(u64, Duration)>,
    /// Those of express queues, with their kinds.
    express: Vec<(u64, usize, Duration)>,
    /// Those that wait for a place.
    waiting: VecDeque<Request>,
    /// The least delay of express requests by kind in this epoch, in ns.
    least: [u64; 2 * SIZES],
    epoch_at: Duration,
    /// The window doubles: it has not been too large in this epoch.
    is_fast: bool,
    /// It was full at some completion since it has changed last.
    was_full: bool,
    changed_at: Duration,
    /// How many express requests had ended then.
    changed_after: u64,
    /// So many in a row were complete at once.
    at_once: usize,
}

impl Default for DeviceWindow {
    fn default() -> Self {
        Self {
            size: WINDOW_MIN,
            begun: Vec::new(),
            express: Vec::new(),
            waiting: VecDeque::new(),
            least: [u64::MAX; 2 * SIZES],
            epoch_at: Duration::ZERO,
            is_fast: true,
            was_full: false,
            changed_at: Duration::ZERO,
            changed_after: 0,
            at_once: 0,
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

impl DeviceWindow {
    /// A request of others has come; gives it back if it is to go to the device now.
    pub(crate) fn enter(&mut self, request: Request, now: Duration) -> Option<Request> {
        if kind_of(&request.operation).is_none() {
            return Some(request);
        }
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
        self.begun.push((request.tag, now));
        Some(request)
    }

    /// A request of an express queue goes to the device.
    pub(crate) fn pass(&mut self, request: &Request, now: Duration, delay: &mut ExpressDelay) {
        if let Some(kind) = kind_of(&request.operation) {
            delay.in_devices += 1;
            self.express.push((request.tag, kind, now));
        }
    }

    /// Whether the device completes at once.
    const fn is_off(&self) -> bool {
        self.at_once >= AT_ONCE
    }

    fn begin_epoch(&mut self, now: Duration) {
        let waiting = std::mem::take(&mut self.waiting);
        let begun = std::mem::take(&mut self.begun);
        let express = std::mem::take(&mut self.express);
        *self = Self { waiting, begun, express, epoch_at: now, ..Self::default() };
    }

    /// The next one that may go to the device; `all`: whatever the window is.
    pub(crate) fn next(&mut self, all: bool, now: Duration) -> Option<Request> {
        let all = all || self.is_off();
        if self.waiting.is_empty() || (!all && self.begun.len() >= self.size) {
            return None;
        }
        let request = self.waiting.pop_front()?;
        if !all {
            self.begun.push((request.tag, now));
        }
        Some(request)
    }

    /// Whether the device has some, of others or of express queues.
    pub(crate) const fn has_begun(&self) -> bool {
        !self.begun.is_empty() || !self.express.is_empty()
    }

    /// Whether some wait.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether one that waits may go to the device.
    pub(crate) fn has_next(&self) -> bool {
        !self.waiting.is_empty() && (self.begun.len() < self.size || self.is_off())
    }

    /// Notes that a request has completed: it was seen at `now`, in the turn that began at `turn`.
    /// A request of an express queue was still in the device at `before`.
    pub(crate) fn completed(
        &mut self,
        tag: u64,
        before: Duration,
        turn: Duration,
        now: Duration,
        delay: &mut ExpressDelay,
    ) {
        if let Some(place) = self.express.iter().position(|one| one.0 == tag) {
            let (_, kind, since) = self.express.swap_remove(place);
            delay.in_devices -= 1;
            let Some(least) = self.least.get_mut(kind).filter(|_| since >= self.epoch_at) else {
                return;
            };
            *least = ns(now.saturating_sub(since)).max(1).min(*least);
            if *least >= LEAST_MIN {
                let own = ns(before.saturating_sub(since));
                delay.note(own.saturating_mul(100) / *least, now);
            }
            return;
        }
        let Some(place) = self.begun.iter().position(|one| one.0 == tag) else { return };
        self.was_full |= self.begun.len() >= self.size;
        let (_, since) = self.begun.swap_remove(place);
        if self.epoch_at + EPOCH <= now {
            self.begin_epoch(now);
        }
        self.at_once = if since >= turn { self.at_once + 1 } else { 0 };
        let mean = delay.mean(now);
        let is_known = mean.is_none() || delay.ended >= self.changed_after + STEP_OF;
        if is_known && self.changed_at + STEP <= now {
            (self.changed_at, self.changed_after) = (now, delay.ended);
            self.change(mean);
        }
    }

    fn change(&mut self, delay: Option<u64>) {
        let was_full = std::mem::take(&mut self.was_full);
        match delay {
            Some(delay) if delay > DELAY_HIGH => {
                self.is_fast = false;
                self.size = (self.size * 3 / 4).max(WINDOW_MIN);
            }
            Some(delay) if delay > DELAY_LOW => self.is_fast = false,
            _ if was_full => {
                let more = if self.is_fast { self.size } else { 1 + self.size / 16 };
                self.size = (self.size + more).min(WINDOW_MAX);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_reactor::Pool;

    /// How often an express request comes.
    const EXPRESS_INTERVAL: Duration = Duration::from_millis(1);

    /// A device that works on so many requests at a time, each for 100 µs. The window after a time,
    /// the part of its work that it did, and how many requests stood in its queue on average.
    fn run(channels: usize, time: Duration) -> (usize, f64, f64) {
        let pool = Pool::new(1 << 20).expect("memory");
        let read = |tag| Request {
            tag,
            operation: Operation::Read { slba: 0, nlb: 1, into: pool.take(4096).expect("room") },
        };
        let service = Duration::from_micros(100);
        let (mut window, mut delay) = (DeviceWindow::default(), ExpressDelay::default());
        let (mut now, mut tag) = (Duration::from_secs(1), 0);
        let mut express_at = now;
        // When each channel is free, and what the device has by its end.
        let mut free = vec![now; channels];
        let mut ends: Vec<(Duration, u64)> = Vec::new();
        let (mut done, mut queued, mut looks) = (0_u32, 0, 0);
        let until = now + time;
        while now < until {
            let mut new = Vec::new();
            tag += 1;
            if express_at <= now {
                express_at += EXPRESS_INTERVAL;
                let request = read(tag);
                window.pass(&request, now, &mut delay);
                new.push(request);
            }
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
            window.completed(tag, now, now, now, &mut delay);
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
        let mut window = DeviceWindow::default();
        let now = Duration::from_secs(1);
        assert_eq!(window.enter(read(1), now).map(|one| one.tag), Some(1));
        assert!(window.enter(read(2), now).is_none() && window.enter(read(3), now).is_none());
        let flush = Request { tag: 4, operation: Operation::Flush };
        assert_eq!(window.enter(flush, now).map(|one| one.tag), Some(4), "it goes past");
        assert!(window.has_waiting() && !window.has_next() && window.next(false, now).is_none());
        let mut delay = ExpressDelay::default();
        let later = now + Duration::from_micros(50);
        window.completed(9, now, now, later, &mut delay);
        assert!(!window.has_next(), "it has none of that");
        window.completed(1, now, now, later, &mut delay);
        assert_eq!(window.next(false, now).map(|one| one.tag), Some(2));
        assert_eq!(window.next(true, now).map(|one| one.tag), Some(3));
        assert!(!window.has_waiting());
    }

    /// An answer that has waited for the processor has not waited in the device, and what is small
    /// against the time of a device does not count.
    #[test]
    fn the_delay_is_that_in_the_device() {
        let pool = Pool::new(1 << 20).expect("memory");
        let us = Duration::from_micros;
        let pass = |window: &mut DeviceWindow, tag, at, delay: &mut ExpressDelay| {
            let into = pool.take(4096).expect("room");
            let operation = Operation::Read { slba: 0, nlb: 1, into };
            window.pass(&Request { tag, operation }, at, delay);
            assert!(delay.is_any_in_device() && window.has_begun());
        };
        let (mut window, mut delay) = (DeviceWindow::default(), ExpressDelay::default());
        let start = Duration::from_secs(1);
        let times = [(3, 4), (80, 81), (80, 500), (160, 500)];
        let means = [None, Some(98), Some(98), Some((98 * 15 + 197) / 16)];
        for ((tag, (before, now)), mean) in (0..).zip(times).zip(means) {
            // The first is of a device that completes at once.
            window = if tag == 1 { DeviceWindow::default() } else { window };
            pass(&mut window, tag, start, &mut delay);
            window.completed(tag, start + us(before), start, start + us(now), &mut delay);
            assert!(!delay.is_any_in_device() && !window.has_begun());
            assert_eq!(delay.mean(start + us(now)), mean);
        }
        assert_eq!(delay.mean(start + us(500) + FORGET), None, "nobody is there any more");
    }

    #[test]
    fn a_device_that_completes_at_once_has_no_window() {
        let pool = Pool::new(1 << 20).expect("memory");
        let mut window = DeviceWindow::default();
        let now = Duration::from_secs(1);
        let enter = |window: &mut DeviceWindow, tag, now| {
            let into = pool.take(4096).expect("room");
            let operation = Operation::Read { slba: 0, nlb: 1, into };
            window.enter(Request { tag, operation }, now).is_some()
        };
        for tag in 0..AT_ONCE as u64 {
            assert!(enter(&mut window, tag, now));
            window.completed(tag, now, now, now, &mut ExpressDelay::default());
        }
        assert!((100..300).all(|tag| enter(&mut window, tag, now)));
        // It may be another one later.
        assert!(enter(&mut window, 300, now + EPOCH) && !enter(&mut window, 301, now + EPOCH));
    }
}
