//! One copy of a job: its requests, its device, its books.

use std::time::Duration;

use weft_backend::{BlockDevice, Completion, Operation, Request};
use weft_reactor::{Buffer, Reactor};

use super::Window;
use crate::{
    histogram::Latency,
    job::{Job, Plan},
    limits::{VERIFY_READ_EVERY, WINDOW, WINDOWS_MAX},
    pacer::Pacer,
    pattern::{Direction, Sequence},
    random::Random,
    run::Setup,
    statistics::{DirectionResult, LaneResult},
    usage::Usage,
    verify::{self, Identity, Ledger},
};

/// A lane.
pub(super) struct Lane {
    number: usize,
    device: Box<dyn BlockDevice>,
    sequence: Sequence,
    data: Data,
    pacer: Pacer,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// A request that was drawn and could not start yet.
    drawn: Option<(Direction, u64)>,
    first_block: u64,
    blocks: u32,
    unit_bytes: u64,
    block_bytes: u64,
    durable: bool,
    /// Requests of the pattern that were started, and after how many the lane ends.
    started: u64,
    requests: u64,
    /// Blocks that were read back after them, and how many may be.
    read_back: u64,
    steps_after: u64,
    /// Requests that were drawn, verification's own among them.
    draws: u64,
    stage: Stage,
    stage_since_ns: u64,
    counting: bool,
    count_from_ns: u64,
    last_completion_ns: u64,
    read: Books,
    write: Books,
    depth_levels: [u64; 7],
    check: Option<Check>,
    result: LaneResult,
}

/// How far a lane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Before the start: a probe may be in flight.
    Idle,
    /// Requests are started.
    Run,
    /// No more are; those in flight complete.
    Drain,
    /// What was written is read back, from this block on.
    ReadBack(u64),
    /// The last of those complete.
    LastDrain,
    /// Nothing is in flight.
    Done,
}

/// A place in the queue, with the buffer that lives there.
#[derive(Debug)]
struct Slot {
    buffer: Option<Buffer>,
    due_ns: u64,
    started_ns: u64,
    unit: u64,
    purpose: Purpose,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Probe,
    Read,
    Write,
    /// A read of verification's own; it is in no statistics.
    ReadBack,
}

/// The books of one direction.
#[derive(Debug)]
struct Books {
    requests: u64,
    /// Of the window whose rate is kept.
    window_requests: u64,
    /// Of the window of the progress line, which goes on when counting ends.
    progress_requests: u64,
    latency: Latency,
    completion: Option<Latency>,
    windows: Vec<f64>,
    window_from_ns: u64,
}

/// What is written where nobody verifies it: bytes that do not compress. A place of the queue
/// writes the same ones again and again, unless it has read something in between.
#[derive(Debug)]
struct Data {
    random: Random,
    /// Twice as much as a request takes: it gets a piece from somewhere within. Random numbers
    /// for each would cost as much as the rest of the request.
    bytes: Vec<u8>,
}

/// Verification of a lane.
#[derive(Debug)]
struct Check {
    seed: u64,
    /// None: the job only reads what an earlier one wrote.
    ledger: Option<Ledger>,
    scratch: Vec<u8>,
}

impl Lane {
    /// A lane with buffers for every place of its queue.
    pub(super) fn new(
        setup: &Setup<'_>,
        number: usize,
        device: Box<dyn BlockDevice>,
        reactor: &Reactor,
    ) -> Result<Self, String> {
        let (job, plan, copy) = setup.part(number);
        let lane_number = number as u64;
        let random = |purpose| Random::new(job.seed ^ purpose, lane_number);
        let pacer = job.rate.map_or(Pacer::Closed, |rate| {
            Pacer::open(rate.process, rate.iops, random(0x7061_6365))
        });
        let mut data = Data::new(job.block_bytes as usize, random(0x6461_7461));
        let slots = new_slots(job, reactor, &mut data)?;
        let free = (0..job.depth).rev().collect();
        let check = job.verify.then(|| Check {
            seed: setup.run_seed,
            ledger: job.pattern.writes().then(|| Ledger::new(plan.units)),
            scratch: Vec::with_capacity(job.block_bytes as usize),
        });
        let block_bytes = u64::from(device.geometry().block_bytes);
        Ok(Self {
            number,
            device,
            sequence: Sequence::new(job.pattern, job.read_percent, plan.units, random(0)),
            data,
            slots,
            free,
            drawn: None,
            first_block: plan.first_block.get(copy).copied().unwrap_or(0),
            blocks: plan.blocks,
            unit_bytes: u64::from(job.block_bytes),
            block_bytes,
            durable: job.durable,
            started: 0,
            draws: 0,
            requests: plan.requests.unwrap_or(u64::MAX),
            read_back: 0,
            steps_after: plan.read_back,
            stage: Stage::Idle,
            stage_since_ns: 0,
            counting: false,
            count_from_ns: 0,
            last_completion_ns: 0,
            read: Books::new(pacer.is_open(), plan),
            write: Books::new(pacer.is_open(), plan),
            depth_levels: [0; 7],
            check,
            result: LaneResult::default(),
            pacer,
        })
    }

    /// Starts a read of the first block.
    pub(super) fn begin_probe(&mut self, reactor: &mut Reactor) {
        if let Some(slot) = self.free.pop() {
            self.submit(reactor, slot, Purpose::Probe, 0, 0, 0);
        }
    }

    /// Begins to start requests.
    pub(super) fn start(&mut self, now_ns: u64) {
        self.pacer.start(now_ns);
        self.enter(Stage::Run, now_ns);
    }

    /// From here on completions count.
    pub(super) fn begin_counting(&mut self, now_ns: u64) {
        self.counting = self.stage == Stage::Run;
        self.count_from_ns = now_ns;
        for books in [&mut self.read, &mut self.write] {
            books.progress_requests = 0;
            books.begin_window(now_ns);
        }
        self.depth_levels = [0; 7];
    }

    /// No more requests are started, and none that complete from here on count.
    pub(super) fn end(&mut self, now_ns: u64) {
        if self.stage == Stage::Run {
            self.end_counting(now_ns);
            self.enter(Stage::Drain, now_ns);
        }
    }

    /// Takes what completed, starts what may start; how many completed at once. All latencies go
    /// into `window`, whose they are besides.
    #[inline]
    pub(super) fn turn(&mut self, reactor: &mut Reactor, window: &mut Latency) -> u32 {
        let mut completed = self.go_on(reactor, window);
        while !self.is_busy() && self.step(reactor.now()) {
            completed += self.go_on(reactor, window);
        }
        completed
    }

    #[inline]
    fn go_on(&mut self, reactor: &mut Reactor, window: &mut Latency) -> u32 {
        self.take_completions(reactor, window);
        match self.stage {
            Stage::Run => self.start_requests(reactor),
            Stage::ReadBack(unit) => self.start_read_back(reactor, unit),
            Stage::Idle | Stage::Drain | Stage::LastDrain | Stage::Done => {}
        }
        self.device.flush(reactor);
        self.take_completions(reactor, window)
    }

    /// A completion of the reactor for this lane's device.
    #[inline]
    pub(super) fn handle(&mut self, reactor: &mut Reactor, completion: weft_reactor::Completion) {
        self.device.handle(reactor, completion);
    }

    /// Whether requests have times of their own to start at.
    pub(super) fn is_paced(&self) -> bool {
        self.pacer.is_open()
    }

    /// When the next request is due, if the lane waits for that rather than for a completion.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let waits = self.stage == Stage::Run && !self.free.is_empty();
        self.pacer.due_ns().filter(|_| waits)
    }

    pub(super) fn is_counting(&self) -> bool {
        self.counting
    }

    pub(super) fn is_busy(&self) -> bool {
        self.free.len() < self.slots.len()
    }

    pub(super) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Whether the lane has only to wait for requests, and has waited for too long.
    pub(super) fn is_stuck(&self, now_ns: u64, patience_ns: u64) -> bool {
        let since_ns = self.stage_since_ns.max(self.last_completion_ns);
        matches!(self.stage, Stage::Drain | Stage::ReadBack(_) | Stage::LastDrain)
            && now_ns.saturating_sub(since_ns) > patience_ns
    }

    /// The longest that a request took while it counted.
    pub(super) fn slowest_ns(&self) -> u64 {
        let of = |result: &DirectionResult| result.latency.max_ns();
        of(&self.result.read).max(of(&self.result.write))
    }

    /// Ends a lane whose device does not answer any more.
    pub(super) fn give_up(&mut self) {
        let stuck = self.slots.len() - self.free.len();
        if stuck > 0 {
            self.fail(format!("{stuck} requests never completed"));
        }
        self.stage = Stage::Done;
    }

    pub(super) fn close(&mut self, reactor: &mut Reactor) {
        self.device.close(reactor);
    }

    /// Whether the closed device still holds requests.
    pub(super) fn is_open(&mut self) -> bool {
        while let Some(completion) = self.device.poll_completion() {
            drop(completion);
        }
        self.device.in_flight() > 0
    }

    pub(super) fn error(&self) -> Option<&str> {
        self.result.error.as_deref()
    }

    /// Ends a window: its numbers are added to `window`, which has the latencies already.
    pub(super) fn end_window(&mut self, now_ns: u64, window: &mut Window) {
        window.faults += self.result.verify.faults;
        window.steps += self.steps_done();
        for (books, requests) in
            [(&mut self.read, &mut window.reads), (&mut self.write, &mut window.writes)]
        {
            let completed = std::mem::take(&mut books.progress_requests);
            *requests += completed;
            window.bytes += completed * self.unit_bytes;
            books.end_window(now_ns, self.counting);
        }
    }

    /// How far a lane has come that ends with a number of requests: these, and the blocks that are
    /// read back after them.
    fn steps_done(&self) -> u64 {
        let read_back = match self.stage {
            Stage::LastDrain | Stage::Done => self.steps_after,
            Stage::Idle | Stage::Run | Stage::Drain | Stage::ReadBack(_) => self.read_back,
        };
        self.started + read_back
    }

    /// What the lane did; `usage` is its worker's.
    pub(super) fn into_result(mut self, usage: Usage) -> (usize, LaneResult) {
        let ended_ns = self.last_completion_ns;
        self.end_counting(ended_ns);
        self.result.usage = usage;
        self.result.depth_levels = self.depth_levels;
        (self.number, self.result)
    }

    fn enter(&mut self, stage: Stage, now_ns: u64) {
        self.stage = stage;
        self.stage_since_ns = now_ns;
    }

    /// Nothing is in flight: the next stage, if this one is over. Whether it has something to do.
    fn step(&mut self, now: Duration) -> bool {
        let now_ns = super::ns(now);
        match self.stage {
            Stage::Drain => {
                self.end_counting(self.last_completion_ns);
                let wrote = self.check.as_ref().is_some_and(|check| check.ledger.is_some());
                let next = if wrote && self.result.error.is_none() {
                    Stage::ReadBack(0)
                } else {
                    Stage::Done
                };
                self.enter(next, now_ns);
            }
            Stage::LastDrain => self.enter(Stage::Done, now_ns),
            Stage::Idle | Stage::Run | Stage::ReadBack(_) | Stage::Done => return false,
        }
        matches!(self.stage, Stage::ReadBack(_))
    }

    fn start_requests(&mut self, reactor: &mut Reactor) {
        if self.free.is_empty() {
            return;
        }
        // All that is started here goes out with one flush, which is later: no latency is
        // flattered by one look at the clock.
        let now_ns = super::ns(reactor.now());
        while let Some(slot) = self.free.last().copied() {
            if self.stage != Stage::Run {
                return;
            }
            if self.started >= self.requests {
                self.enter(Stage::Drain, now_ns);
                return;
            }
            if self.pacer.due_ns().is_some_and(|due_ns| due_ns > now_ns) {
                return;
            }
            let Some((purpose, unit)) = self.draw() else { return };
            let due_ns = match purpose {
                Purpose::ReadBack | Purpose::Probe => now_ns,
                Purpose::Read | Purpose::Write => {
                    self.started += 1;
                    self.pacer.take(now_ns).unwrap_or(now_ns)
                }
            };
            self.free.pop();
            self.submit(reactor, slot, purpose, unit, due_ns, now_ns);
        }
    }

    /// The next request, unless verification has to wait for others to complete first.
    #[inline]
    fn draw(&mut self) -> Option<(Purpose, u64)> {
        let Some(check) = &mut self.check else {
            let (direction, unit) = self.sequence.draw();
            return Some((Purpose::of(direction), unit));
        };
        let Some(ledger) = &mut check.ledger else {
            let (direction, unit) = self.sequence.draw();
            return Some((Purpose::of(direction), unit));
        };
        self.draws += 1;
        if self.drawn.is_none() && self.draws.is_multiple_of(VERIFY_READ_EVERY) {
            let unit = self.sequence.any_unit();
            if ledger.generation(unit) > 0 && ledger.free_from(unit) == Some(unit) {
                ledger.begin(unit);
                return Some((Purpose::ReadBack, unit));
            }
        }
        let (direction, unit) = self.drawn.take().unwrap_or_else(|| self.sequence.draw());
        let Some(free) = ledger.free_from(unit) else {
            self.drawn = Some((direction, unit));
            return None;
        };
        if direction == Direction::Read {
            ledger.begin(free);
        }
        Some((Purpose::of(direction), free))
    }

    fn start_read_back(&mut self, reactor: &mut Reactor, from: u64) {
        let mut next = from;
        while let Some(slot) = self.free.last().copied() {
            let ledger = self.check.as_ref().and_then(|check| check.ledger.as_ref());
            let found = ledger.and_then(|ledger| ledger.written_from(next));
            let now_ns = super::ns(reactor.now());
            let Some(unit) = found.filter(|_| self.result.error.is_none()) else {
                self.enter(Stage::LastDrain, now_ns);
                return;
            };
            next = unit + 1;
            self.read_back += 1;
            self.free.pop();
            self.submit(reactor, slot, Purpose::ReadBack, unit, now_ns, now_ns);
        }
        self.stage = Stage::ReadBack(next);
    }

    #[inline]
    fn submit(
        &mut self,
        reactor: &mut Reactor,
        number: u32,
        purpose: Purpose,
        unit: u64,
        due_ns: u64,
        started_ns: u64,
    ) {
        let Some(slot) = self.slots.get_mut(number as usize) else { return };
        // A device may answer a write while the last of its data is still being sent; the buffer
        // is back in the pool soon after.
        let another = || reactor.pool().take(usize::try_from(self.unit_bytes).unwrap_or(0));
        let is_filled = slot.buffer.is_some() && slot.purpose == Purpose::Write;
        let Some(mut buffer) = slot.buffer.take().or_else(another) else {
            self.free.push(number);
            return self.fail("the device kept its buffers".to_owned());
        };
        let block = self.first_block + unit * u64::from(self.blocks);
        (slot.due_ns, slot.started_ns, slot.unit, slot.purpose) =
            (due_ns, started_ns, unit, purpose);
        let operation = if purpose == Purpose::Write {
            if let Some(check) = &mut self.check
                && let Some(ledger) = &mut check.ledger
            {
                let generation = ledger.begin_write(unit);
                let offset = block * self.block_bytes;
                let identity = Identity { seed: check.seed, offset, generation };
                verify::fill(buffer.bytes_mut(), identity);
            } else if !is_filled {
                self.data.fill(buffer.bytes_mut());
            }
            let durable = self.durable;
            Operation::Write { block, blocks: self.blocks, from: buffer, durable }
        } else {
            Operation::Read { block, blocks: self.blocks, into: buffer }
        };
        self.device.submit(reactor, Request { tag: u64::from(number), operation });
        self.result.submitted += 1;
        if matches!(purpose, Purpose::Read | Purpose::Write) {
            self.depth_levels[depth_level(self.slots.len() - self.free.len())] += 1;
        }
    }

    #[inline]
    fn take_completions(&mut self, reactor: &mut Reactor, window: &mut Latency) -> u32 {
        // What one turn brings ends at one time: looking at the clock costs as much as the rest.
        let mut now_ns = None;
        let mut completed = 0;
        while let Some(completion) = self.device.poll_completion() {
            let now_ns = *now_ns.get_or_insert_with(|| super::ns(reactor.now()));
            self.complete(completion, now_ns, window);
            completed += 1;
        }
        completed
    }

    #[inline]
    fn complete(&mut self, completion: Completion, now_ns: u64, window: &mut Latency) {
        let Ok(number) = u32::try_from(completion.tag) else { return };
        let Some(slot) = self.slots.get_mut(number as usize) else { return };
        slot.buffer = completion.buffer;
        let (due_ns, started_ns, unit, purpose) =
            (slot.due_ns, slot.started_ns, slot.unit, slot.purpose);
        self.free.push(number);
        self.last_completion_ns = now_ns;
        if let Err(failure) = completion.result {
            let what = if purpose == Purpose::Write { "write" } else { "read" };
            let offset = (self.first_block + unit * u64::from(self.blocks)) * self.block_bytes;
            let bytes = self.unit_bytes;
            self.fail(format!("{what} of {bytes} bytes at offset {offset} failed: {failure}"));
        } else if self.check.is_some() {
            self.compare(number, unit, purpose);
        }
        let books = match purpose {
            Purpose::Read => &mut self.read,
            Purpose::Write => &mut self.write,
            Purpose::ReadBack => {
                self.read.progress_requests += 1;
                return;
            }
            Purpose::Probe => return,
        };
        let latency_ns = now_ns.saturating_sub(due_ns);
        books.window_requests += 1;
        books.progress_requests += 1;
        window.record(latency_ns);
        if self.counting {
            books.requests += 1;
            books.latency.record(latency_ns);
            if let Some(completion) = &mut books.completion {
                completion.record(now_ns.saturating_sub(started_ns));
            }
        }
    }

    /// Ends a request in verification's books, and compares what was read.
    fn compare(&mut self, number: u32, unit: u64, purpose: Purpose) {
        let Some(check) = &mut self.check else { return };
        let mut generation = 0;
        if let Some(ledger) = &mut check.ledger {
            ledger.end(unit);
            generation = ledger.generation(unit);
            if generation == 0 {
                // The job writes, but not here yet: what is here is nobody's business.
                return;
            }
        }
        if matches!(purpose, Purpose::Write | Purpose::Probe) {
            return;
        }
        let slot = self.slots.get(number as usize);
        let Some(buffer) = slot.and_then(|slot| slot.buffer.as_ref()) else { return };
        let offset = (self.first_block + unit * u64::from(self.blocks)) * self.block_bytes;
        let expected = Identity { seed: check.seed, offset, generation };
        self.result.verify.note(verify::check(buffer, expected, &mut check.scratch));
    }

    /// Remembers the first error and starts nothing more.
    fn fail(&mut self, error: String) {
        if self.result.error.is_none() {
            self.result.error = Some(error);
        }
        let now_ns = self.last_completion_ns;
        match self.stage {
            Stage::Run => {
                self.end_counting(now_ns);
                self.enter(Stage::Drain, now_ns);
            }
            Stage::ReadBack(_) => self.enter(Stage::LastDrain, now_ns),
            Stage::Idle | Stage::Drain | Stage::LastDrain | Stage::Done => {}
        }
    }

    fn end_counting(&mut self, now_ns: u64) {
        if !self.counting {
            return;
        }
        self.counting = false;
        let measured = Duration::from_nanos(now_ns.saturating_sub(self.count_from_ns));
        let unit_bytes = self.unit_bytes;
        self.result.read = self.read.close(now_ns, measured, unit_bytes);
        self.result.write = self.write.close(now_ns, measured, unit_bytes);
    }
}

impl Purpose {
    const fn of(direction: Direction) -> Self {
        match direction {
            Direction::Read => Self::Read,
            Direction::Write => Self::Write,
        }
    }
}

impl Data {
    fn new(unit_bytes: usize, mut random: Random) -> Self {
        let words = std::iter::from_fn(|| Some(random.word().to_le_bytes()));
        let bytes = words.take(2 * unit_bytes / 8).flatten().collect();
        Self { random, bytes }
    }

    /// Fills a buffer of a request, after it held anything else.
    fn fill(&mut self, buffer: &mut [u8]) {
        let places = self.bytes.len().saturating_sub(buffer.len()) + 1;
        let at = usize::try_from(self.random.below(places as u64)).unwrap_or(0);
        if let Some(piece) = self.bytes.get(at..at + buffer.len()) {
            buffer.copy_from_slice(piece);
        }
    }
}

impl Books {
    fn new(open_loop: bool, plan: &Plan) -> Self {
        // As many windows as the runtime has, so that none is made room for in between.
        let windows = plan.runtime.map_or(0, |runtime| {
            usize::try_from(runtime.as_nanos() / WINDOW.as_nanos()).unwrap_or(WINDOWS_MAX)
        });
        Self {
            requests: 0,
            window_requests: 0,
            progress_requests: 0,
            latency: Latency::new(),
            completion: open_loop.then(Latency::new),
            windows: Vec::with_capacity(windows.min(WINDOWS_MAX)),
            window_from_ns: 0,
        }
    }

    fn begin_window(&mut self, now_ns: u64) {
        (self.window_requests, self.window_from_ns) = (0, now_ns);
    }

    fn end_window(&mut self, now_ns: u64, counts: bool) {
        let lasted = Duration::from_nanos(now_ns.saturating_sub(self.window_from_ns));
        // What is left at the end of a run is no window.
        if counts && lasted >= WINDOW / 2 && self.windows.len() < WINDOWS_MAX {
            self.windows.push(self.window_requests as f64 / lasted.as_secs_f64());
        }
        self.begin_window(now_ns);
    }

    fn close(&mut self, now_ns: u64, measured: Duration, unit_bytes: u64) -> DirectionResult {
        self.end_window(now_ns, true);
        DirectionResult {
            requests: self.requests,
            bytes: self.requests * unit_bytes,
            measured,
            latency: std::mem::take(&mut self.latency),
            completion: self.completion.take(),
            window_iops: std::mem::take(&mut self.windows),
        }
    }
}

/// A buffer for each place of the queue, with data to be written.
fn new_slots(job: &Job, reactor: &Reactor, data: &mut Data) -> Result<Vec<Slot>, String> {
    let mut slots = Vec::with_capacity(job.depth as usize);
    for _ in 0..job.depth {
        let mut buffer = reactor
            .pool()
            .take(job.block_bytes as usize)
            .ok_or("the buffer pool is too small for bs × iodepth")?;
        data.fill(buffer.bytes_mut());
        slots.push(Slot {
            buffer: Some(buffer),
            due_ns: 0,
            started_ns: 0,
            unit: 0,
            purpose: Purpose::Write,
        });
    }
    Ok(slots)
}

/// Which of [`crate::statistics::DEPTH_LEVELS`] so many requests in flight are.
#[inline]
fn depth_level(in_flight: usize) -> usize {
    // fio's levels: 1, then 2 to 3, 4 to 7, …, and 64 up.
    (in_flight.max(1).ilog2() as usize).min(6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::DEPTH_LEVELS;

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

    #[test]
    fn windows_are_kept_as_rates_and_a_rest_is_not() {
        let plan = Plan {
            blocks: 1,
            units: 1,
            first_block: vec![0],
            runtime: Some(Duration::from_secs(2)),
            requests: None,
            read_back: 0,
            pool_bytes_of_lane: 0,
        };
        let mut books = Books::new(false, &plan);
        // What the ramp brought counts for nothing, and not for the next window either.
        books.window_requests = 70;
        books.end_window(900_000_000, false);
        assert_eq!((books.window_requests, books.windows.len()), (0, 0));
        books.begin_window(1_000_000_000);
        books.window_requests = 50;
        books.requests = 50;
        books.end_window(1_500_000_000, true);
        books.window_requests = 1;
        books.requests += 1;
        let result = books.close(1_510_000_000, Duration::from_millis(510), 4096);
        assert_eq!(result.window_iops, [100.0]);
        assert_eq!((result.requests, result.bytes), (51, 51 * 4096));
    }
}
