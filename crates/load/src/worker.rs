//! One thread, one reactor, and the lanes that run on it.

mod lane;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use weft_reactor::{Config, DriverKind, Owner, Reactor, ReactorCompletion, Token, WaitLimit};

use self::lane::Lane;
use crate::histogram::Latency;
use crate::job::Polling;
use crate::limits::{
    DRAIN_TIMEOUT, INTERRUPTED_TIMEOUT, POOL_BYTES_SPARE, RECONNECT_TIMEOUT, SPIN_BEFORE_DUE,
    TURNS_WITHOUT_POLL, WINDOW,
};
use crate::run::{Ends, Phase, Setup, Window};
use crate::statistics::LaneResult;
use crate::units::ns;
use crate::usage::Usage;

/// Completions or requests of a lane between two looks at those that come first.
const PART: u32 = 16;

/// The worker's own timers: the end of a window, and what is next for a lane.
const WINDOW_TIMER: Token = Token::new(Owner(u32::MAX), 0);
const MOMENT_TIMER: Token = Token::new(Owner(u32::MAX), 1);

/// What a worker tells the coordinator.
pub(crate) enum News {
    /// It is ready to begin, with this driver, or cannot begin.
    Ready(Result<&'static str, String>),
    /// What happened in a window.
    Window(Box<Window>),
    /// What its lanes have come to so far, by number, and how long it has run.
    Status(Vec<(usize, LaneResult)>, Duration),
    /// It has ended: its lanes, by number, and how long it ran.
    Done(Vec<(usize, LaneResult)>, Duration),
}

/// How a worker runs, and which lanes it has.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) cpu: Option<usize>,
    /// The processors of the jobs that it is for.
    pub(crate) cpus: Vec<usize>,
    pub(crate) polling: Polling,
    pub(crate) driver: DriverKind,
    pub(crate) lanes: Vec<usize>,
}

/// What one worker is to do.
pub(crate) struct Order<'a> {
    pub(crate) number: usize,
    pub(crate) seat: Seat,
    pub(crate) setup: &'a Setup<'a>,
    pub(crate) news: Sender<(usize, News)>,
    pub(crate) go: Receiver<u64>,
}

impl Order<'_> {
    fn pool_bytes(&self) -> usize {
        let lanes = self.seat.lanes.iter();
        let lanes = lanes.map(|lane| self.setup.plan(*lane).pool_bytes_of_lane);
        lanes.sum::<usize>() + POOL_BYTES_SPARE
    }
}

/// The body of a worker's thread.
pub(crate) fn work(order: &Order<'_>) {
    let tell = |news| {
        // Nobody listens any more only if the coordinator is gone, and then nothing matters.
        let _ = order.news.send((order.number, news));
    };
    let mut worker = match Worker::new(order) {
        Ok(worker) => worker,
        Err(error) => return tell(News::Ready(Err(error))),
    };
    tell(News::Ready(Ok(worker.reactor.driver_name())));
    // The other side of the channel is dropped when another worker could not begin.
    if let Ok(start_ns) = order.go.recv() {
        worker.run(start_ns, &tell);
    }
    worker.close();
    let elapsed = worker.reactor.now().saturating_sub(worker.start);
    let lanes = worker.lanes.into_iter().map(|lane| lane.into_result(worker.used)).collect();
    tell(News::Done(lanes, elapsed));
}

struct Worker<'a> {
    reactor: Reactor,
    /// Those that come first are the first.
    lanes: Vec<Lane>,
    /// How many these are: they are served between any two pieces of work for the others.
    express: usize,
    /// Which lanes are to be looked at in the next turn: most of a crowd have nothing new.
    news: Vec<bool>,
    /// Whether lanes wait for times of their own.
    is_paced: bool,
    completions: Vec<ReactorCompletion>,
    polling: Polling,
    stop: &'a AtomicBool,
    ends: &'a Ends,
    start: Duration,
    /// When a lane next begins, begins to count, or ends.
    moment_ns: u64,
    stage: Stage,
    before: Usage,
    used: Usage,
    /// How long it looked for something to do in turns of its own and found nothing.
    looked: Duration,
    window_from: Duration,
    /// How often results so far are told, and when next.
    status: Option<Duration>,
    status_at: Duration,
    /// Latencies in this window, of all lanes.
    latency: Latency,
}

/// How far the worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Ramp,
    Counting,
    /// Nothing new is started but what verification reads back.
    Over,
}

impl<'a> Worker<'a> {
    fn new(order: &Order<'a>) -> Result<Self, String> {
        let Seat { cpu, polling, driver, ref lanes, .. } = order.seat;
        let config = Config { driver, pool_bytes: order.pool_bytes(), cpu, ..Config::default() };
        let mut reactor = Reactor::new(config).map_err(|error| error.to_string())?;
        let is_express = |number: &usize| order.setup.part(*number).0.job.express;
        let (first, others): (Vec<_>, Vec<_>) = lanes.iter().copied().partition(is_express);
        let mut lanes = Vec::with_capacity(lanes.len());
        for (index, number) in first.iter().chain(&others).enumerate() {
            lanes.push(open_lane(order, &mut reactor, index, *number)?);
        }
        let express = if others.is_empty() { 0 } else { first.len() };
        lanes.iter_mut().take(express).for_each(|lane| lane.set_express(&mut reactor));
        let start = reactor.now();
        Self {
            reactor,
            news: vec![true; lanes.len()],
            is_paced: lanes.iter().any(Lane::is_paced),
            lanes,
            express,
            completions: Vec::with_capacity(256),
            polling,
            stop: order.setup.stop,
            ends: &order.setup.ends,
            start,
            moment_ns: 0,
            stage: Stage::Ramp,
            before: Usage::default(),
            used: Usage::default(),
            looked: Duration::ZERO,
            window_from: start,
            status: order.setup.status,
            status_at: start,
            latency: Latency::new(),
        }
        .probed()
    }

    /// Reads the first block of each lane: what cannot be reached is found now, and a connection
    /// that a device makes with its first request is there before anything is measured.
    fn probed(mut self) -> Result<Self, String> {
        let deadline = self.reactor.now() + DRAIN_TIMEOUT;
        for lane in &mut self.lanes {
            lane.begin_probe(&mut self.reactor);
        }
        while self.lanes.iter().any(Lane::is_busy) {
            self.turn();
            if self.lanes.iter().any(Lane::is_busy) {
                self.reactor.poll(WaitLimit::Until(deadline), &mut self.completions);
                self.dispatch();
            }
            if self.reactor.now() >= deadline {
                return Err("the device did not answer the first read".to_owned());
            }
        }
        match self.lanes.iter().find_map(|lane| lane.error()) {
            Some(error) => Err(error.to_owned()),
            None => Ok(self),
        }
    }

    fn run(&mut self, start_ns: u64, tell: &dyn Fn(News)) {
        self.begin(start_ns);
        let mut idle_turns = 0;
        let mut nothing_since = None;
        let mut is_told = false;
        loop {
            let now = self.reactor.now();
            let now_ns = ns(now);
            if let Some(since) = nothing_since.take() {
                self.looked += now.saturating_sub(since);
            }
            if let Some(last) = self.advance(now_ns) {
                is_told = true;
                tell(News::Window(Box::new(last)));
            }
            let completed = self.turn();
            if self.lanes.iter().all(Lane::is_done) {
                break;
            }
            // A device that completes at once leaves nothing to wait for.
            if completed > 0 && idle_turns < TURNS_WITHOUT_POLL {
                idle_turns += 1;
                continue;
            }
            idle_turns = 0;
            let has_left = completed > 0 || !self.completions.is_empty();
            let patience = if has_left { WaitLimit::NoWait } else { self.patience() };
            self.reactor.poll(patience, &mut self.completions);
            if completed == 0 && patience == WaitLimit::NoWait && self.completions.is_empty() {
                nothing_since = Some(now);
            }
            if self.dispatch() {
                is_told = true;
                tell(News::Window(Box::new(self.window())));
                self.tell_status(tell);
                let now_ns = ns(self.reactor.now());
                if self.lanes.iter().any(|lane| lane.is_stuck(now_ns, self.drain_ns(lane))) {
                    self.lanes.iter_mut().for_each(Lane::give_up);
                    break;
                }
                self.close_stuck(now_ns);
            }
        }
        if !is_told {
            // A run that is shorter than a window is one.
            tell(News::Window(Box::new(self.window())));
        }
        self.end_counting();
    }

    fn begin(&mut self, start_ns: u64) {
        self.start = Duration::from_nanos(start_ns);
        self.window_from = self.start;
        self.status_at = self.start + self.status.unwrap_or_default();
        for lane in &mut self.lanes {
            lane.start(start_ns);
        }
        self.moment_ns = start_ns;
        self.news.fill(true);
        self.reactor.set_timer(WINDOW_TIMER, self.start + WINDOW);
    }

    fn tell_status(&mut self, tell: &dyn Fn(News)) {
        let now = self.reactor.now();
        let Some(interval) = self.status.filter(|_| now >= self.status_at) else { return };
        self.status_at = now + interval;
        let used = self.usage().since(&self.before);
        let lanes = self.lanes.iter().map(|lane| lane.so_far(ns(now), used)).collect();
        tell(News::Status(lanes, now.saturating_sub(self.start)));
    }

    /// Notices that lanes begin, begin to count, or end; the last window that counts, if that is
    /// long enough to say something.
    fn advance(&mut self, now_ns: u64) -> Option<Window> {
        let is_stopped = self.stop.load(Ordering::Relaxed) && self.stage != Stage::Over;
        let is_told = self.ends.any && self.lanes.iter().any(|lane| lane.is_told(self.ends));
        let is_over = self.stage != Stage::Over && self.lanes.iter().all(Lane::has_counted);
        if now_ns < self.moment_ns && !is_stopped && !is_told && !is_over {
            return None;
        }
        let was_counting = self.stage == Stage::Counting;
        let mut counts_from_ns = None;
        for lane in &mut self.lanes {
            if is_stopped || lane.is_told(self.ends) {
                lane.end(now_ns);
            }
            if let Some(from_ns) = lane.advance(now_ns, self.ends) {
                counts_from_ns.get_or_insert(from_ns);
            }
        }
        self.news.fill(true);
        if let Some(from_ns) = counts_from_ns.filter(|_| self.stage == Stage::Ramp) {
            self.stage = Stage::Counting;
            self.before = self.usage();
            // Windows begin anew, so that none is of both.
            self.latency.clear();
            self.lanes.iter_mut().for_each(Lane::begin_progress);
            self.window_from = Duration::from_nanos(from_ns);
            self.reactor.set_timer(WINDOW_TIMER, self.window_from + WINDOW);
        }
        let is_over = self.lanes.iter().all(Lane::has_counted);
        let mut last = None;
        if is_over && self.stage != Stage::Over {
            let lasted = now_ns.saturating_sub(ns(self.window_from));
            if was_counting && lasted >= ns(WINDOW / 2) {
                last = Some(self.window());
            }
            self.end_counting();
            self.stage = Stage::Over;
        }
        self.set_moment(now_ns);
        last
    }

    /// Sets when to look at the lanes' times again.
    fn set_moment(&mut self, now_ns: u64) {
        let moments = self.lanes.iter().map(|lane| lane.moment_ns(now_ns));
        self.moment_ns = moments.min().unwrap_or(u64::MAX);
        if self.moment_ns == u64::MAX {
            self.reactor.clear_timer(MOMENT_TIMER);
        } else {
            self.reactor.set_timer(MOMENT_TIMER, Duration::from_nanos(self.moment_ns));
        }
    }

    fn end_counting(&mut self) {
        if self.stage == Stage::Counting {
            self.used = self.usage().since(&self.before);
            self.stage = Stage::Over;
        }
    }

    fn usage(&self) -> Usage {
        Usage { idle: self.reactor.idle_time() + self.looked, ..Usage::of_this_thread() }
    }

    /// One turn of every lane that has something to do; how many requests completed at once.
    fn turn(&mut self) -> u32 {
        let mut completed = self.turn_of(0..self.express);
        for lane in self.express..self.lanes.len() {
            if self.express > 0 {
                completed += self.gather_between(lane);
            }
            completed += self.turn_of(lane..lane + 1);
            while self.express > 0 && self.reactor.continue_sends() {
                completed += self.serve_express();
            }
        }
        completed
    }

    /// The same of these lanes.
    fn turn_of(&mut self, lanes: Range<usize>) -> u32 {
        let mut completed = 0;
        let news = self.news.get_mut(lanes.clone()).into_iter().flatten();
        for (lane, has_news) in self.lanes.get_mut(lanes).into_iter().flatten().zip(news) {
            if *has_news || self.is_paced {
                let at_once = lane.turn(&mut self.reactor, &mut self.latency);
                // Nothing else comes of a lane with nothing in flight.
                *has_news = at_once > 0 || !lane.is_busy();
                completed += at_once;
            }
        }
        completed
    }

    /// What a lane's turn does up to its send, in pieces between which others come first.
    fn gather_between(&mut self, lane: usize) -> u32 {
        let mut completed = 0;
        if !self.news[lane] && !self.is_paced {
            return completed;
        }
        // No more than a turn has: a device may complete requests as they are submitted.
        for _ in 0..self.lanes[lane].depth().div_ceil(PART) {
            if !self.lanes[lane].gather(&mut self.reactor, &mut self.latency, PART) {
                break;
            }
            completed += self.serve_express();
        }
        completed
    }

    /// Serves the lanes that come first, if something has come for one or is due: how many of their
    /// requests completed at once. What has come for others with it waits.
    fn serve_express(&mut self) -> u32 {
        let mut is_due = false;
        if self.is_paced {
            let now_ns = ns(self.reactor.now());
            let first = self.lanes.iter().take(self.express);
            is_due = first.filter_map(Lane::due_ns).any(|due_ns| due_ns <= now_ns);
        }
        if self.reactor.has_express() {
            let known = self.completions.len();
            self.reactor.poll_express(&mut self.completions);
            let come = self.completions.split_off(known);
            for completion in come {
                if usize::try_from(completion.token.owner.0).is_ok_and(|one| one < self.express) {
                    self.handle(completion);
                    is_due = true;
                } else {
                    self.completions.push(completion);
                }
            }
        }
        if is_due { self.turn_of(0..self.express) } else { 0 }
    }

    /// Hands a completion to its lane.
    fn handle(&mut self, completion: ReactorCompletion) {
        let lane = usize::try_from(completion.token.owner.0).ok();
        let lane = lane.and_then(|lane| self.lanes.get_mut(lane).zip(self.news.get_mut(lane)));
        if let Some((lane, has_news)) = lane {
            lane.handle(&mut self.reactor, completion);
            *has_news = true;
        }
    }

    /// Hands the reactor's completions to their lanes; whether a window has ended.
    fn dispatch(&mut self) -> bool {
        let mut window_over = false;
        if self.express > 0 {
            self.serve_express();
        }
        let mut completions = std::mem::take(&mut self.completions);
        for completion in completions.drain(..) {
            if completion.token == WINDOW_TIMER {
                window_over = true;
                continue;
            }
            self.handle(completion);
            if self.express > 0 {
                self.serve_express();
            }
        }
        // What has come with that of lanes that come first.
        completions.append(&mut self.completions);
        self.completions = completions;
        if self.reactor.was_called() {
            // Devices look into their mailboxes when they are flushed.
            self.news.fill(true);
        }
        if window_over {
            self.reactor.set_timer(WINDOW_TIMER, self.reactor.now() + WINDOW);
        }
        window_over
    }

    fn window(&mut self) -> Window {
        let now = self.reactor.now();
        let phase = match self.stage {
            Stage::Ramp => Phase::Ramp,
            Stage::Counting => Phase::Run,
            Stage::Over => Phase::Check,
        };
        let lasted = now.saturating_sub(self.window_from);
        self.window_from = now;
        let mut window = Window {
            phase,
            reads: 0,
            writes: 0,
            trims: 0,
            bytes: 0,
            lasted,
            latency: std::mem::take(&mut self.latency),
            faults: 0,
            work_bytes: 0,
        };
        for lane in &mut self.lanes {
            lane.end_window(ns(now), &mut window);
        }
        window
    }

    /// How long to wait when nothing completed at once.
    fn patience(&self) -> WaitLimit {
        let due_ns = || self.lanes.iter().filter_map(Lane::due_ns).min();
        if let Some(due_ns) = self.is_paced.then(due_ns).flatten() {
            // The end of the run is a time like any other.
            let due = Duration::from_nanos(due_ns.min(self.moment_ns));
            // Who is to sleep leaves the processor to others until the last moment.
            let sleeps = self.polling == Polling::Sleep;
            let early = if sleeps { Duration::ZERO } else { SPIN_BEFORE_DUE };
            let wake = due.saturating_sub(early);
            if self.polling == Polling::Spin || wake <= self.reactor.now() {
                return WaitLimit::NoWait;
            }
            return WaitLimit::Until(wake);
        }
        match self.polling {
            Polling::Spin => WaitLimit::NoWait,
            Polling::Adaptive(grace) => WaitLimit::after(self.reactor.last_wait(), grace),
            Polling::Sleep => WaitLimit::Sleep,
        }
    }

    /// How long after its end a lane waits for requests that a device has.
    fn drain_ns(&self, lane: &Lane) -> u64 {
        match self.stop.load(Ordering::Relaxed) {
            true => 2 * ns(INTERRUPTED_TIMEOUT) + lane.slowest_ns(),
            false => ns(DRAIN_TIMEOUT),
        }
    }

    /// Closes the devices of lanes that wait for too long: the requests that such a device does
    /// not work on end then.
    fn close_stuck(&mut self, now_ns: u64) {
        let patience = match self.stop.load(Ordering::Relaxed) {
            true => INTERRUPTED_TIMEOUT,
            false => RECONNECT_TIMEOUT,
        };
        for (lane, has_news) in self.lanes.iter_mut().zip(&mut self.news) {
            if lane.is_stuck(now_ns, ns(patience) + lane.slowest_ns()) {
                lane.close_stuck(patience, &mut self.reactor);
                *has_news = true;
            }
        }
    }

    /// Closes the devices and waits, within reason, for what they still hold.
    fn close(&mut self) {
        let patience = match self.stop.load(Ordering::Relaxed) {
            true => INTERRUPTED_TIMEOUT,
            false => Duration::from_secs(5),
        };
        let deadline = self.reactor.now() + patience;
        for lane in &mut self.lanes {
            lane.close(&mut self.reactor);
        }
        while self.lanes.iter_mut().any(Lane::is_open) && self.reactor.now() < deadline {
            // Devices hear from others (a lost controller, say) when they are flushed.
            self.news.fill(true);
            self.turn();
            let soon = self.reactor.now() + Duration::from_millis(10);
            self.reactor.poll(WaitLimit::Until(soon.min(deadline)), &mut self.completions);
            self.dispatch();
        }
    }
}

fn open_lane(
    order: &Order<'_>,
    reactor: &mut Reactor,
    index: usize,
    number: usize,
) -> Result<Lane, String> {
    let owner = Owner(u32::try_from(index).map_err(|_| "too many lanes".to_owned())?);
    let factory = &order.setup.part(number).0.factory;
    let device = factory.open(reactor, owner).map_err(|error| error.to_string())?;
    Lane::new(order.setup, number, device, reactor)
}
