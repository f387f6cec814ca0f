//! Runs a job: starts the workers together, listens to them, gathers what they did.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use weft_backend::DeviceFactory;
use weft_reactor::monotonic_time;

use crate::{
    histogram::Latency,
    job::{Job, JobError, Plan},
    random::split_mix,
    statistics::{LaneResult, RunResult},
    worker::{self, News, Order, Window},
};

/// What all workers of a run share.
pub(crate) struct Setup<'a> {
    pub(crate) job: &'a Job,
    pub(crate) plan: &'a Plan,
    /// A second job, whose lanes come after those of the first.
    pub(crate) beside: Option<(&'a Job, &'a Plan)>,
    pub(crate) factory: &'a Arc<dyn DeviceFactory>,
    pub(crate) stop: &'a AtomicBool,
    /// Marks the blocks of this run: with the job's seed alone, a write that was lost would look
    /// like the same write of an earlier run.
    pub(crate) run_seed: u64,
}

impl<'a> Setup<'a> {
    /// The job that a lane is a copy of, and which of its copies.
    pub(crate) fn part(&self, lane: usize) -> (&'a Job, &'a Plan, usize) {
        match (lane.checked_sub(self.job.copies as usize), self.beside) {
            (Some(copy), Some((job, plan))) => (job, plan, copy),
            _ => (self.job, self.plan, lane),
        }
    }

    fn lanes(&self) -> usize {
        let beside = self.beside.map_or(0, |(job, _)| job.copies as usize);
        self.job.copies as usize + beside
    }
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It runs, and nothing counts yet.
    Ramp,
    /// It runs.
    Run,
    /// What was written is read back.
    Check,
}

/// What happened in the last window.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Where the run is.
    pub phase: Phase,
    /// Since the start.
    pub elapsed: Duration,
    /// How long the run takes, ramp included, if that is known.
    pub total: Option<Duration>,
    /// How long it will go on, as far as can be said: by the time it may take, or by what is left
    /// to do at the speed so far.
    pub left: Option<Duration>,
    /// Reads a second.
    pub read_iops: f64,
    /// Writes a second.
    pub write_iops: f64,
    /// Bytes a second, both ways.
    pub bytes_per_second: f64,
    /// The 99th percentile of the latency, if there were enough requests.
    pub p99_ns: Option<u64>,
    /// Blocks that verification found wrong so far.
    pub faults: u64,
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// The job contradicts itself or the device.
    Job(JobError),
    /// A worker could not begin.
    Setup(String),
    /// A worker's thread could not be started, or died.
    Worker(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(error) => error.fmt(f),
            Self::Setup(what) | Self::Worker(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for RunError {}

/// Who looks on while a job runs: on the thread that gathers results, never on one that carries
/// load.
pub trait Onlooker {
    /// What happened in the last window; about twice a second.
    fn progress(&mut self, _progress: &Progress) {}

    /// The ramp is over: from now on it counts.
    fn counting_begins(&mut self) {}

    /// Nothing counts any more.
    fn counting_ends(&mut self) {}
}

/// An onlooker who wants to know about windows only.
struct Windows<'a>(&'a mut dyn FnMut(&Progress));

impl Onlooker for Windows<'_> {
    fn progress(&mut self, progress: &Progress) {
        (self.0)(progress);
    }
}

/// Runs a job on a device. `stop` ends it early; `observe` is called about twice a second.
///
/// # Errors
/// As [`run_watched`].
pub fn run(
    job: &Job,
    factory: &Arc<dyn DeviceFactory>,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(&Progress),
) -> Result<RunResult, RunError> {
    run_watched(job, factory, stop, &mut Windows(observe))
}

/// Runs a job on a device. `stop` ends it early.
///
/// # Errors
/// The run could not begin. A run that began has a result, even if it
/// [failed](RunResult::failed).
pub fn run_watched(
    job: &Job,
    factory: &Arc<dyn DeviceFactory>,
    stop: &AtomicBool,
    onlooker: &mut dyn Onlooker,
) -> Result<RunResult, RunError> {
    let plan = job.plan(&factory.geometry()).map_err(RunError::Job)?;
    run_planned((job, &plan), None, factory, stop, onlooker)
}

/// Runs a job and a second one beside it, on the workers of the first: what two kinds of load do
/// to each other when they share everything. Processors, polling, driver, ramp and runtime are
/// those of the first.
///
/// # Errors
/// As [`run_watched`].
pub fn run_beside(
    job: &Job,
    beside: &Job,
    factory: &Arc<dyn DeviceFactory>,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(&Progress),
) -> Result<(RunResult, RunResult), RunError> {
    let geometry = factory.geometry();
    let plan = job.plan(&geometry).map_err(RunError::Job)?;
    let plan_beside = beside.plan(&geometry).map_err(RunError::Job)?;
    let second = Some((beside, &plan_beside));
    let mut result = run_planned((job, &plan), second, factory, stop, &mut Windows(observe))?;
    let lanes = result.lanes.split_off(job.copies as usize);
    let beside = RunResult { lanes, ..result };
    Ok((result, beside))
}

fn run_planned(
    (job, plan): (&Job, &Plan),
    beside: Option<(&Job, &Plan)>,
    factory: &Arc<dyn DeviceFactory>,
    stop: &AtomicBool,
    onlooker: &mut dyn Onlooker,
) -> Result<RunResult, RunError> {
    let time = u64::try_from(monotonic_time().as_nanos()).unwrap_or(0);
    let run_seed = split_mix(job.seed ^ split_mix(time));
    let setup = Setup { job, plan, beside, factory, stop, run_seed };
    let workers = job.workers();
    let (news_to, news) = mpsc::channel();
    thread::scope(|scope| {
        let mut go = Vec::with_capacity(workers);
        for number in 0..workers {
            let lanes = (number..setup.lanes()).step_by(workers).collect();
            let (start, started) = mpsc::channel();
            let order = Order { number, lanes, setup: &setup, news: news_to.clone(), go: started };
            thread::Builder::new()
                .name(format!("weft-lab-{number}"))
                .spawn_scoped(scope, move || worker::work(&order))
                .map_err(|error| RunError::Worker(format!("cannot start a thread: {error}")))?;
            go.push(start);
        }
        drop(news_to);
        gather(&setup, &news, go, onlooker)
    })
}

/// Listens to the workers until all have ended.
fn gather(
    setup: &Setup<'_>,
    news: &Receiver<(usize, News)>,
    go: Vec<Sender<u64>>,
    onlooker: &mut dyn Onlooker,
) -> Result<RunResult, RunError> {
    let workers = go.len();
    let driver = wait_until_ready(news, workers)?;
    let start = monotonic_time();
    let start_ns = u64::try_from(start.as_nanos()).unwrap_or(0);
    for start in &go {
        // A worker that is gone is missed below.
        let _ = start.send(start_ns);
    }
    drop(go);
    let total = setup.plan.runtime.map(|runtime| runtime + setup.job.ramp);
    let mut gathering = Gathering::new(setup, start, total, workers);
    let mut result = RunResult { driver, ..RunResult::default() };
    let mut gathered: Vec<(usize, usize, LaneResult)> = Vec::new();
    let mut done = 0;
    let mut moments = Moments::new(setup, start);
    while done < workers {
        let (worker, news) = match moments.next(news, onlooker) {
            Ok(news) => news,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(RunError::Worker("a worker's thread died".to_owned()));
            }
        };
        match news {
            News::Ready(_) => {}
            News::Window(window) => gathering.note(worker, *window, onlooker),
            News::Done(lanes, elapsed) => {
                done += 1;
                gathering.ended(worker, onlooker);
                result.elapsed = result.elapsed.max(elapsed);
                gathered.extend(lanes.into_iter().map(|(lane, result)| (lane, worker, result)));
            }
        }
    }
    moments.end(onlooker);
    result.interrupted = setup.stop.load(Ordering::Relaxed);
    gathered.sort_by_key(|(lane, _, _)| *lane);
    result.lanes = gathered.into_iter().map(|(_, worker, result)| (worker, result)).collect();
    Ok(result)
}

fn wait_until_ready(
    news: &Receiver<(usize, News)>,
    workers: usize,
) -> Result<&'static str, RunError> {
    let mut driver = "";
    for _ in 0..workers {
        match news.recv() {
            Ok((_, News::Ready(Ok(name)))) => driver = name,
            Ok((_, News::Ready(Err(error)))) => return Err(RunError::Setup(error)),
            Ok(_) | Err(_) => return Err(RunError::Worker("a worker's thread died".to_owned())),
        }
    }
    Ok(driver)
}

/// When counting begins and ends, for the onlooker.
struct Moments {
    /// What is still to come, soonest last.
    due: Vec<Moment>,
}

/// When (`None`: never), and what the onlooker is told then.
type Moment = (Option<Duration>, fn(&mut dyn Onlooker));

impl Moments {
    fn new(setup: &Setup<'_>, start: Duration) -> Self {
        let begin = start + setup.job.ramp;
        let end = setup.plan.runtime.map(|runtime| begin + runtime);
        let ends: fn(&mut dyn Onlooker) = |onlooker| onlooker.counting_ends();
        let begins: fn(&mut dyn Onlooker) = |onlooker| onlooker.counting_begins();
        Self { due: vec![(end, ends), (Some(begin), begins)] }
    }

    /// Waits for news, or until a moment has come, and then tells the onlooker.
    fn next<T>(
        &mut self,
        news: &Receiver<T>,
        onlooker: &mut dyn Onlooker,
    ) -> Result<T, RecvTimeoutError> {
        let Some((Some(at), tell)) = self.due.last().copied() else {
            return news.recv().map_err(|_| RecvTimeoutError::Disconnected);
        };
        let left = at.saturating_sub(monotonic_time());
        if left.is_zero() {
            self.due.pop();
            tell(onlooker);
            return Err(RecvTimeoutError::Timeout);
        }
        news.recv_timeout(left)
    }

    /// A run that ended early has its moments now.
    fn end(&mut self, onlooker: &mut dyn Onlooker) {
        while let Some((_, tell)) = self.due.pop() {
            tell(onlooker);
        }
    }
}

/// Windows of the workers, until all that still run have told theirs.
struct Gathering {
    start: Duration,
    total: Option<Duration>,
    /// How many steps the lanes that end with a number of requests have before them; none if a
    /// lane has no such end.
    steps: Option<u64>,
    windows: Vec<Option<Window>>,
    running: Vec<bool>,
    /// Steps that each worker has done.
    done: Vec<u64>,
}

impl Gathering {
    fn new(setup: &Setup<'_>, start: Duration, total: Option<Duration>, workers: usize) -> Self {
        let lanes = (0..setup.lanes()).map(|lane| setup.part(lane).1);
        let steps = lanes.map(|plan| Some(plan.requests? + plan.read_back)).sum();
        let (windows, running) = (vec![None; workers], vec![true; workers]);
        Self { start, total, steps, windows, running, done: vec![0; workers] }
    }

    fn note(&mut self, worker: usize, window: Window, onlooker: &mut dyn Onlooker) {
        match self.windows.get_mut(worker) {
            Some(Some(before)) => before.extend(window),
            Some(place) => *place = Some(window),
            None => return,
        }
        self.show(onlooker);
    }

    /// Nobody waits for a worker that has ended.
    fn ended(&mut self, worker: usize, onlooker: &mut dyn Onlooker) {
        if let Some(running) = self.running.get_mut(worker) {
            *running = false;
        }
        self.show(onlooker);
    }

    fn show(&mut self, onlooker: &mut dyn Onlooker) {
        let mut all = self.windows.iter().zip(&self.running);
        let is_awaited = all.any(|(window, running)| window.is_none() && *running);
        if is_awaited || self.windows.iter().all(Option::is_none) {
            return;
        }
        let mut latency = Latency::new();
        let mut progress = Progress {
            phase: Phase::Check,
            elapsed: monotonic_time().saturating_sub(self.start),
            total: self.total,
            left: None,
            read_iops: 0.0,
            write_iops: 0.0,
            bytes_per_second: 0.0,
            p99_ns: None,
            faults: 0,
        };
        for (window, done) in self.windows.iter_mut().zip(&mut self.done) {
            let Some(window) = window.take() else { continue };
            let seconds = window.lasted.as_secs_f64().max(1e-6);
            progress.phase = progress.phase.min(window.phase);
            progress.read_iops += window.reads as f64 / seconds;
            progress.write_iops += window.writes as f64 / seconds;
            progress.bytes_per_second += window.bytes as f64 / seconds;
            progress.faults += window.faults;
            latency.add(&window.latency);
            *done = window.steps;
        }
        progress.p99_ns = latency.percentile_ns(99.0);
        progress.left = self.left(progress.elapsed);
        onlooker.progress(&progress);
    }

    /// The end that comes first.
    fn left(&self, elapsed: Duration) -> Option<Duration> {
        let done = self.done.iter().sum::<u64>();
        let by_steps = self
            .steps
            .filter(|_| done > 0)
            .map(|steps| elapsed.mul_f64(steps.saturating_sub(done) as f64 / done as f64));
        let by_time = self.total.map(|total| total.saturating_sub(elapsed));
        [by_steps, by_time].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
