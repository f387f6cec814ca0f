//! One copy of a job: its requests, its device, its books.

mod books;
mod check;
mod extras;
mod request;
mod timing;

use std::time::Duration;

use weft_backend::{BlockDevice, Failure, Operation, Request, RequestCompletion, duration};
use weft_reactor::{Buffer, Reactor};

use self::books::{Books, Data};
use self::check::Check;
use self::extras::{CompletedRequest, Extras};
use self::request::{Planned, Purpose, Replaying};
use self::timing::{Floor, Flushing, Thinking, Times};
use crate::histogram::Latency;
use crate::job::Job;
use crate::limits::{AWAIT_OTHERS, NOT_ENDED, VERIFY_READ_EVERY};
use crate::pacer::Pacer;
use crate::pattern::{Direction, DrawnRequest, Sequence};
use crate::random::Random;
use crate::run::{Ends, Setup};
use crate::statistics::{DirectionResult, LaneResult, batch_level, depth_level};
use crate::units::ns;

/// A lane.
pub(super) struct Lane {
    number: usize,
    times: Times,
    device: Box<dyn BlockDevice>,
    /// After how long without an answer it was closed.
    closed_after: Option<Duration>,
    sequence: Sequence,
    data: Data,
    pacer: Pacer,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Places of the queue that may be used, and those that may not: a search holds some back.
    in_play: usize,
    parked: Vec<u32>,
    /// A request that was drawn and could not start yet.
    drawn: Option<DrawnRequest>,
    /// Where the region begins, in bytes.
    region_offset: u64,
    /// A device block is so many bytes, as a power of two.
    block_shift: u32,
    /// The bytes of a request that is verified.
    unit_bytes: u64,
    longest: usize,
    durable: bool,
    /// Requests of the pattern that were started, and after how many the lane ends.
    started: u64,
    requests: u64,
    /// Their bytes.
    started_bytes: u64,
    end_bytes: u64,
    /// Bytes that were read back after them, and how many may be.
    read_back: u64,
    read_back_max: u64,
    think: Option<Thinking>,
    flush: Flushing,
    floor: Option<Floor>,
    /// Requests that were drawn, verification's own among them.
    draws: u64,
    /// Nothing is written to be verified, flushed in between or replayed.
    is_plain: bool,
    replay: Option<Replaying>,
    stage: Stage,
    stage_since_ns: u64,
    counting: bool,
    count_from_ns: u64,
    last_completion_ns: u64,
    read: Books,
    write: Books,
    trim: Books,
    flushes: Latency,
    depth_levels: [u64; 7],
    submit_levels: [u64; 7],
    complete_levels: [u64; 7],
    check: Option<Check>,
    extras: Option<Box<Extras>>,
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
    /// They have, and a flush comes.
    Flush,
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
    /// Bytes from the beginning of the region, and how many.
    offset: u64,
    bytes: u32,
    purpose: Purpose,
}

impl Lane {
    /// A lane with buffers for every place of its queue.
    pub(super) fn new(
        setup: &Setup<'_>,
        number: usize,
        device: Box<dyn BlockDevice>,
        reactor: &Reactor,
    ) -> Result<Self, String> {
        let (part, part_number, copy) = setup.part(number);
        let (job, plan) = (&part.job, setup.plan(number));
        let region = plan.regions.get(copy).copied().ok_or("the lane has no region")?;
        let lane_number = number as u64;
        let random = |purpose| Random::new(job.seed ^ purpose, lane_number);
        let replay = job.replay.as_ref().map(|replay| Replaying::new(replay, job.loops));
        let pacer = match (&replay, job.rate) {
            (Some(replay), _) => replay.pacer(),
            (None, Some(rate)) => Pacer::open(rate.process, rate.iops, random(0x7061_6365)),
            (None, None) => Pacer::Closed,
        };
        let longest = job.longest() as usize;
        let mut data = Data::new(longest, random(0x6461_7461));
        let slots = new_slots(job, reactor, &mut data)?;
        let check = job.verify.then(|| Check::new(job, &region, setup.run_seed));
        let extras = Extras::new(job);
        let block_bytes = device.geometry().block_bytes;
        let books = || Books::new(pacer.is_open(), plan);
        Ok(Self {
            number,
            times: Times::new(part, part_number, plan, &setup.ends, random(0x6465_6c61)),
            sequence: Sequence::new(job, region.bytes, region.pass_bytes, &random),
            data,
            slots,
            free: (0..job.depth).rev().collect(),
            in_play: job.depth as usize,
            parked: Vec::new(),
            drawn: None,
            region_offset: region.first_block * u64::from(block_bytes),
            block_shift: block_bytes.trailing_zeros(),
            device,
            closed_after: None,
            unit_bytes: u64::from(job.shortest()),
            longest,
            durable: job.durable,
            started: 0,
            started_bytes: 0,
            draws: 0,
            is_plain: job.flush_every == 0 && !job.writes_to_verify() && replay.is_none(),
            replay,
            requests: region.end_requests.unwrap_or(u64::MAX),
            end_bytes: region.end_bytes.unwrap_or(u64::MAX),
            read_back: 0,
            read_back_max: region.read_back_bytes,
            think: job.think.map(Thinking::new),
            flush: Flushing { every: job.flush_every, writes: 0, at_end: job.flush_at_end },
            floor: job.rate_min.map(Floor::new),
            stage: Stage::Idle,
            stage_since_ns: 0,
            counting: false,
            count_from_ns: 0,
            last_completion_ns: 0,
            read: books(),
            write: books(),
            trim: books(),
            flushes: Latency::new(),
            depth_levels: [0; 7],
            submit_levels: [0; 7],
            complete_levels: [0; 7],
            check,
            extras,
            result: LaneResult::default(),
            pacer,
        })
    }

    /// Requests in flight, at most.
    pub(super) fn depth(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// What comes for its device is handed out between the work for others.
    pub(super) fn set_express(&mut self, reactor: &mut Reactor) {
        self.device.set_express(reactor, true);
    }

    /// Starts a read of the first block.
    pub(super) fn begin_probe(&mut self, reactor: &mut Reactor) {
        if let Some(slot) = self.free.pop() {
            let bytes = u32::try_from(self.unit_bytes).unwrap_or(0);
            self.submit(reactor, slot, Planned::own(Purpose::Probe, 0, bytes, 0));
        }
    }

    /// The common start of all lanes.
    pub(super) fn start(&mut self, now_ns: u64) {
        if self.times.after.is_none() {
            self.times.start_ns = Some(now_ns.saturating_add(self.times.delay_ns));
        }
    }

    /// Does what is due now; from when completions count, if they begin to.
    pub(super) fn advance(&mut self, now_ns: u64, ends: &Ends) -> Option<u64> {
        let has_ended = |part: usize| ends.has_ended(part);
        if self.times.start_ns.is_none() && self.times.after.is_none_or(has_ended) {
            self.times.start_ns = Some(now_ns.saturating_add(self.times.delay_ns));
        }
        let start_ns = self.times.start_ns.filter(|start_ns| *start_ns <= now_ns)?;
        if self.stage == Stage::Idle {
            self.pacer.start(start_ns);
            if let Some(extras) = &mut self.extras {
                extras.start_ns = start_ns;
            }
            self.enter(Stage::Run, start_ns);
        }
        let count_from_ns = start_ns.saturating_add(self.times.ramp_ns);
        let begins = now_ns >= count_from_ns && !self.times.has_begun_counting;
        if begins {
            self.begin_counting(count_from_ns);
        }
        let end_ns = self.times.end_ns();
        if now_ns >= end_ns {
            // Nothing that completes from then on counts, however late that is noticed: several
            // loads count in the same time.
            self.end(end_ns);
        }
        begins.then_some(count_from_ns)
    }

    /// When something is next due.
    pub(super) fn moment_ns(&self, now_ns: u64) -> u64 {
        match (self.stage, self.times.start_ns) {
            (Stage::Idle, None) => now_ns.saturating_add(ns(AWAIT_OTHERS)),
            (Stage::Idle, Some(start_ns)) => start_ns,
            (Stage::Run, Some(start_ns)) if !self.times.has_begun_counting => {
                start_ns.saturating_add(self.times.ramp_ns).min(self.times.end_ns())
            }
            (Stage::Run, _) => self.times.end_ns(),
            _ => u64::MAX,
        }
    }

    /// Whether another lane has ended it, and it does not know yet.
    pub(super) fn is_told(&self, ends: &Ends) -> bool {
        matches!(self.stage, Stage::Idle | Stage::Run) && ends.is_to_end(self.times.group)
    }

    /// From here on completions count.
    fn begin_counting(&mut self, now_ns: u64) {
        self.times.has_begun_counting = true;
        self.counting = self.stage == Stage::Run;
        self.count_anew(now_ns);
        if let Some(search) = self.extras.as_mut().and_then(|extras| extras.search.as_mut()) {
            search.begin(now_ns);
            self.park();
        }
    }

    /// What completed so far does not count.
    fn count_anew(&mut self, now_ns: u64) {
        self.count_from_ns = now_ns;
        for books in [&mut self.read, &mut self.write, &mut self.trim] {
            books.begin(now_ns);
        }
        self.flushes.clear();
        (self.depth_levels, self.submit_levels, self.complete_levels) = ([0; 7], [0; 7], [0; 7]);
    }

    /// What completed so far is not in the next window of the progress line.
    pub(super) fn begin_progress(&mut self) {
        for books in [&mut self.read, &mut self.write, &mut self.trim] {
            (books.progress_requests, books.progress_bytes) = (0, 0);
        }
    }

    /// No more requests are started, and none that complete from here on count.
    pub(super) fn end(&mut self, now_ns: u64) {
        match self.stage {
            Stage::Idle => self.enter(Stage::Done, now_ns),
            Stage::Run => {
                self.end_counting(now_ns);
                self.enter(Stage::Drain, now_ns);
            }
            _ => {}
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
            Stage::Flush => self.start_last_flush(reactor),
            Stage::Idle | Stage::Drain | Stage::LastDrain | Stage::Done => {}
        }
        self.device.flush(reactor);
        self.take_completions(reactor, window)
    }

    /// The same up to the send, for so many requests at most. Whether there may be more.
    pub(super) fn gather(
        &mut self,
        reactor: &mut Reactor,
        window: &mut Latency,
        most: u32,
    ) -> bool {
        let taken = self.take_at_most(reactor, window, most);
        let started = if self.stage == Stage::Run { self.start_at_most(reactor, most) } else { 0 };
        taken == most || started == most
    }

    /// A completion of the reactor for this lane's device.
    #[inline]
    pub(super) fn handle(
        &mut self,
        reactor: &mut Reactor,
        completion: weft_reactor::ReactorCompletion,
    ) {
        self.device.handle(reactor, completion);
    }

    /// Whether requests have times of their own to start at.
    pub(super) fn is_paced(&self) -> bool {
        self.pacer.is_open() || self.think.is_some()
    }

    /// When the next request is due, if the lane waits for that rather than for a completion.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let waits = self.stage == Stage::Run && !self.free.is_empty();
        let pause_ns = self.think.as_ref().map(|think| think.until_ns).filter(|until| *until > 0);
        let is_pausing = self.think.as_ref().is_some_and(|think| think.left == 0);
        let due_ns = if is_pausing { pause_ns } else { self.pacer.due_ns() };
        due_ns.filter(|_| waits)
    }

    /// Whether nothing that completes from now on counts.
    pub(super) fn has_counted(&self) -> bool {
        !self.counting && !matches!(self.stage, Stage::Idle | Stage::Run)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.free.len() < self.in_play
    }

    pub(super) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Whether the lane has only to wait for requests, and has waited for too long.
    pub(super) fn is_stuck(&self, now_ns: u64, patience_ns: u64) -> bool {
        let since_ns = self.stage_since_ns.max(self.last_completion_ns);
        matches!(self.stage, Stage::Drain | Stage::Flush | Stage::ReadBack(_) | Stage::LastDrain)
            && now_ns.saturating_sub(since_ns) > patience_ns
    }

    /// The longest that a request took while it counted.
    pub(super) fn slowest_ns(&self) -> u64 {
        let of = |result: &DirectionResult| result.latency.max_ns();
        of(&self.result.read).max(of(&self.result.write)).max(of(&self.result.trim))
    }

    /// Ends a lane whose device does not answer any more.
    pub(super) fn give_up(&mut self) {
        let stuck = self.in_play - self.free.len();
        if stuck > 0 {
            self.fail(format!("{stuck} requests never completed"));
        }
        self.enter(Stage::Done, self.last_completion_ns);
    }

    /// Closes the device of a lane that has waited for requests for so long after its end.
    pub(super) fn close_stuck(&mut self, patience: Duration, reactor: &mut Reactor) {
        self.closed_after = Some(patience);
        self.close(reactor);
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

    fn enter(&mut self, stage: Stage, now_ns: u64) {
        if stage == Stage::Done && self.stage != Stage::Done {
            let Times { part, exit, group, .. } = self.times;
            self.times.ends.lane_ended(part, group, exit);
        }
        self.stage = stage;
        self.stage_since_ns = now_ns;
    }

    /// Nothing is in flight: the next stage, if this one is over. Whether it has something to do.
    fn step(&mut self, now: Duration) -> bool {
        let now_ns = ns(now);
        match self.stage {
            Stage::Drain => {
                self.end_counting(self.last_completion_ns);
                let is_sound = self.result.error.is_none();
                let next = if is_sound && std::mem::take(&mut self.flush.at_end) {
                    Stage::Flush
                } else if is_sound && self.read_back_max > 0 {
                    Stage::ReadBack(0)
                } else {
                    Stage::Done
                };
                self.enter(next, now_ns);
            }
            Stage::LastDrain => self.enter(Stage::Done, now_ns),
            Stage::Idle | Stage::Run | Stage::Flush | Stage::ReadBack(_) | Stage::Done => {
                return false;
            }
        }
        matches!(self.stage, Stage::Flush | Stage::ReadBack(_))
    }

    fn start_requests(&mut self, reactor: &mut Reactor) {
        self.start_at_most(reactor, u32::MAX);
    }

    /// Starts what may start, so many at most, and says how many.
    #[inline]
    fn start_at_most(&mut self, reactor: &mut Reactor, most: u32) -> u32 {
        let mut started = 0;
        if self.free.is_empty() {
            return started;
        }
        // All that is started here goes out with one flush, which is later: no latency is
        // flattered by one look at the clock.
        let now_ns = ns(reactor.now());
        while let Some(slot) = self.free.last().copied().filter(|_| started < most) {
            if self.stage != Stage::Run {
                break;
            }
            if self.started >= self.requests || self.started_bytes >= self.end_bytes {
                self.enter(Stage::Drain, now_ns);
                break;
            }
            if self.is_pausing(now_ns) {
                break;
            }
            if self.pacer.due_ns().is_some_and(|due_ns| due_ns > now_ns) {
                break;
            }
            let Some(mut planned) = self.draw(now_ns) else { break };
            started += 1;
            if planned.purpose.is_of_the_pattern() {
                self.started += 1;
                self.started_bytes += u64::from(planned.bytes);
                planned.due_ns = self.pacer.take(now_ns).unwrap_or(now_ns);
                if let Some(think) = &mut self.think {
                    think.left -= 1;
                }
            }
            self.free.pop();
            self.submit(reactor, slot, planned);
        }
        if started > 0 {
            self.submit_levels[batch_level(started)] += 1;
        }
        started
    }

    /// Whether the lane thinks: from when nothing is in flight after the last request before.
    fn is_pausing(&mut self, now_ns: u64) -> bool {
        let is_busy = self.is_busy();
        let Some(think) = &mut self.think else { return false };
        if think.left > 0 {
            return false;
        }
        if is_busy {
            return true;
        }
        if think.until_ns == 0 {
            think.until_ns = now_ns.saturating_add(think.time_ns);
        }
        if now_ns < think.until_ns {
            return true;
        }
        (think.left, think.until_ns) = (think.blocks, 0);
        false
    }

    /// The next request, unless verification has to wait for others to complete first.
    #[inline]
    fn draw(&mut self, now_ns: u64) -> Option<Planned> {
        if self.is_plain {
            return Some(Planned::of(self.sequence.draw(), now_ns));
        }
        self.draw_beside(now_ns)
    }

    /// The next request of a job that verifies, flushes in between, or replays.
    fn draw_beside(&mut self, now_ns: u64) -> Option<Planned> {
        if let Some(replay) = &mut self.replay {
            let next = replay.next(now_ns);
            if next.is_none() {
                // The lane ends with what was started.
                self.requests = self.started;
            } else if next.is_some_and(|next| next.purpose == Purpose::Flush) {
                self.pacer.take(now_ns);
            }
            return next;
        }
        if self.flush.every > 0 && self.flush.writes >= self.flush.every {
            self.flush.writes = 0;
            return Some(Planned::own(Purpose::Flush, 0, 0, now_ns));
        }
        let bytes = u32::try_from(self.unit_bytes).unwrap_or(0);
        if let Some(unit) = self.check.as_mut().and_then(Check::next_of_backlog) {
            let offset = unit.ok()? * self.unit_bytes;
            self.read_back = (self.read_back + self.unit_bytes).min(self.read_back_max);
            return Some(Planned::own(Purpose::ReadBack, offset, bytes, now_ns));
        }
        let has_backlog = self.check.as_ref().is_some_and(|check| check.backlog.is_some());
        let Some(generations) = self.check.as_mut().and_then(|check| check.generations.as_mut())
        else {
            return Some(Planned::of(self.sequence.draw(), now_ns));
        };
        self.draws += 1;
        let reads_back =
            self.read_back_max > 0 && !has_backlog && self.draws.is_multiple_of(VERIFY_READ_EVERY);
        if self.drawn.is_none() && reads_back {
            let unit = self.sequence.any_unit();
            if generations.generation(unit) > 0 && generations.free_from(unit) == Some(unit) {
                generations.begin(unit);
                let offset = unit * self.unit_bytes;
                return Some(Planned::own(Purpose::ReadBack, offset, bytes, now_ns));
            }
        }
        let drawn = self.drawn.take().unwrap_or_else(|| self.sequence.draw());
        let Some(free) = generations.free_from(drawn.offset / self.unit_bytes) else {
            self.drawn = Some(drawn);
            return None;
        };
        if drawn.direction == Direction::Read {
            generations.begin(free);
        }
        Some(Planned::of(DrawnRequest { offset: free * self.unit_bytes, ..drawn }, now_ns))
    }

    fn start_last_flush(&mut self, reactor: &mut Reactor) {
        let now_ns = ns(reactor.now());
        if let Some(slot) = self.free.pop() {
            self.submit(reactor, slot, Planned::own(Purpose::Flush, 0, 0, now_ns));
        }
        self.enter(Stage::Drain, now_ns);
    }

    fn start_read_back(&mut self, reactor: &mut Reactor, from: u64) {
        let mut next = from;
        let bytes = u32::try_from(self.unit_bytes).unwrap_or(0);
        while let Some(slot) = self.free.last().copied() {
            let found = self.check.as_mut().and_then(|check| check.next_written(next));
            let now_ns = ns(reactor.now());
            let Some(unit) = found.filter(|_| self.result.error.is_none()) else {
                self.enter(Stage::LastDrain, now_ns);
                return;
            };
            next = unit + 1;
            self.read_back = (self.read_back + self.unit_bytes).min(self.read_back_max);
            self.free.pop();
            let offset = unit * self.unit_bytes;
            self.submit(reactor, slot, Planned::own(Purpose::ReadBack, offset, bytes, now_ns));
        }
        self.stage = Stage::ReadBack(next);
    }

    #[inline]
    fn submit(&mut self, reactor: &mut Reactor, number: u32, planned: Planned) {
        let Planned { purpose, offset, bytes, due_ns, started_ns } = planned;
        let Some(slot) = self.slots.get_mut(number as usize) else { return };
        let is_filled = slot.buffer.is_some() && slot.purpose == Purpose::Write;
        (slot.due_ns, slot.started_ns, slot.offset, slot.bytes, slot.purpose) =
            (due_ns, started_ns, offset, bytes, purpose);
        let slba = (self.region_offset + offset) >> self.block_shift;
        let nlb = bytes >> self.block_shift;
        let operation = match purpose {
            Purpose::Flush => Operation::Flush,
            Purpose::Trim => Operation::Discard { ranges: Box::new([(slba, nlb)]) },
            Purpose::Probe | Purpose::Read | Purpose::Write | Purpose::ReadBack => {
                // A device may answer a write while the last of its data is still being sent; the
                // buffer is back in the pool soon after.
                let another = || reactor.pool().take(self.longest);
                let Some(mut buffer) = slot.buffer.take().or_else(another) else {
                    self.free.push(number);
                    return self.fail("the device kept its buffers".to_owned());
                };
                buffer.set_len(bytes as usize);
                if purpose == Purpose::Write {
                    self.fill(&mut buffer, offset, is_filled);
                    Operation::Write { slba, nlb, from: buffer, durable: self.durable }
                } else {
                    Operation::Read { slba, nlb, into: buffer }
                }
            }
        };
        self.device.submit(reactor, Request { tag: u64::from(number), operation });
        self.result.submitted += 1;
        if purpose == Purpose::Write {
            self.flush.writes = self.flush.writes.saturating_add(1);
        }
        if purpose.is_of_the_pattern() {
            self.depth_levels[depth_level(self.in_play - self.free.len())] += 1;
        }
        if self.extras.is_some() {
            self.record(planned);
        }
    }

    /// Fills the buffer of a write; `is_filled`: it still holds what an earlier write had.
    #[inline]
    fn fill(&mut self, buffer: &mut Buffer, offset: u64, is_filled: bool) {
        if let Some(check) = &mut self.check {
            let unit = offset / self.unit_bytes;
            check.fill(buffer.bytes_mut(), unit, self.region_offset + offset);
        } else if !is_filled {
            self.data.fill(buffer.bytes_mut());
        }
    }

    #[inline]
    fn take_completions(&mut self, reactor: &mut Reactor, window: &mut Latency) -> u32 {
        self.take_at_most(reactor, window, u32::MAX)
    }

    #[inline]
    fn take_at_most(&mut self, reactor: &mut Reactor, window: &mut Latency, most: u32) -> u32 {
        // What one turn brings ends at one time: looking at the clock costs as much as the rest.
        let mut now_ns = None;
        let mut completed = 0;
        while completed < most
            && let Some(completion) = self.device.poll_completion()
        {
            let now_ns = *now_ns.get_or_insert_with(|| ns(reactor.now()));
            self.complete(completion, now_ns, window);
            completed += 1;
        }
        if completed > 0 {
            self.complete_levels[batch_level(completed)] += 1;
        }
        completed
    }

    #[inline]
    fn complete(&mut self, completion: RequestCompletion, now_ns: u64, window: &mut Latency) {
        let Ok(number) = u32::try_from(completion.tag) else { return };
        let Some(slot) = self.slots.get_mut(number as usize) else { return };
        if completion.buffer.is_some() {
            slot.buffer = completion.buffer;
        }
        let (due_ns, started_ns, purpose) = (slot.due_ns, slot.started_ns, slot.purpose);
        let (offset, bytes) = (slot.offset, slot.bytes);
        self.free.push(number);
        self.last_completion_ns = now_ns;
        if let Err(failure) = completion.result {
            let what = purpose.name();
            let at = self.region_offset + offset;
            let why = match self.closed_after.filter(|_| failure == Failure::Gone) {
                Some(patience) => format!("{NOT_ENDED} {} of the end", duration::exact(patience)),
                None => format!("failed: {failure}"),
            };
            self.fail(format!("{what} of {bytes} bytes at offset {at} {why}"));
        } else if self.check.is_some() {
            self.compare(number, offset, purpose);
        }
        let latency_ns = now_ns.saturating_sub(due_ns);
        let books = match purpose {
            Purpose::Read => &mut self.read,
            Purpose::Write => &mut self.write,
            Purpose::Trim => &mut self.trim,
            Purpose::Flush => return self.flushes.record(latency_ns),
            Purpose::ReadBack => {
                self.read.progress_requests += 1;
                self.read.progress_bytes += u64::from(bytes);
                return;
            }
            Purpose::Probe => return,
        };
        books.window_requests += 1;
        books.progress_requests += 1;
        books.progress_bytes += u64::from(bytes);
        window.record(latency_ns);
        if self.counting {
            books.requests += 1;
            books.bytes += u64::from(bytes);
            books.latency.record(latency_ns);
            if let Some(completion) = &mut books.completion {
                completion.record(now_ns.saturating_sub(started_ns));
            }
            if let Some(direction) = purpose.direction().filter(|_| self.extras.is_some()) {
                self.observe(CompletedRequest {
                    direction,
                    now_ns,
                    due_ns,
                    started_ns,
                    offset,
                    bytes,
                });
            }
        }
    }

    /// Ends a request in verification's books, and compares what was read.
    fn compare(&mut self, number: u32, offset: u64, purpose: Purpose) {
        let Some(check) = &mut self.check else { return };
        let slot = self.slots.get(number as usize);
        let block = slot.and_then(|slot| slot.buffer.as_deref());
        let (unit, offset) = (offset / self.unit_bytes, self.region_offset + offset);
        if let Some(outcome) = check.completed(purpose, unit, offset, block) {
            self.result.verify.note(outcome);
        }
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
            Stage::Idle | Stage::Drain | Stage::Flush | Stage::LastDrain | Stage::Done => {}
        }
    }

    fn end_counting(&mut self, now_ns: u64) {
        if !self.counting {
            return;
        }
        self.counting = false;
        let measured = Duration::from_nanos(now_ns.saturating_sub(self.count_from_ns));
        self.result.read = self.read.close(now_ns, measured);
        self.result.write = self.write.close(now_ns, measured);
        self.result.trim = self.trim.close(now_ns, measured);
    }
}

/// A buffer for each place of the queue, with data to be written.
fn new_slots(job: &Job, reactor: &Reactor, data: &mut Data) -> Result<Vec<Slot>, String> {
    let mut slots = Vec::with_capacity(job.depth as usize);
    for _ in 0..job.depth {
        let mut buffer = reactor
            .pool()
            .take(job.longest() as usize)
            .ok_or("the buffer pool is too small for bs × iodepth")?;
        data.fill(buffer.bytes_mut());
        slots.push(Slot {
            buffer: Some(buffer),
            due_ns: 0,
            started_ns: 0,
            offset: 0,
            bytes: 0,
            purpose: Purpose::Write,
        });
    }
    Ok(slots)
}
