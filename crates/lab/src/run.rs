//! Runs a job: starts the workers together, receives their messages and merges their results.

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
    /// A second job, whose lanes follow those of the first.
    pub(crate) beside: Option<(&'a Job, &'a Plan)>,
    pub(crate) factory: &'a Arc<dyn DeviceFactory>,
    pub(crate) stop: &'a AtomicBool,
    /// Identifies the blocks of this run. With the job's seed alone, a lost write could not be told
    /// from the same write of an earlier run.
    pub(crate) run_seed: u64,
}

impl<'a> Setup<'a> {
    /// The job and plan of a lane, and which copy of the job it is.
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

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Running, not yet measured.
    Ramp,
    /// Running and measured.
    Run,
    /// Reading back what was written.
    Check,
}

/// The numbers of the last window.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The phase.
    pub phase: Phase,
    /// Since the start.
    pub elapsed: Duration,
    /// Duration of the run, ramp included, if known.
    pub total: Option<Duration>,
    /// Estimated time left: by the runtime, or by the remaining requests at the speed so far.
    pub left: Option<Duration>,
    /// Reads a second.
    pub read_iops: f64,
    /// Writes a second.
    pub write_iops: f64,
    /// Bytes a second, both ways.
    pub bytes_per_second: f64,
    /// The 99th percentile of the latency, if it is resolved.
    pub p99_ns: Option<u64>,
    /// Blocks that verification has found wrong so far.
    pub faults: u64,
}

/// Why a run did not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// The job contradicts itself or the device.
    Job(JobError),
    /// A worker could not be set up.
    Setup(String),
    /// A worker's thread could not be started, or panicked.
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

/// Callbacks while a job runs, on the thread that merges results and never on one that carries
/// load.
pub trait RunObserver {
    /// The numbers of the last window; about twice a second.
    fn progress(&mut self, _progress: &Progress) {}

    /// The ramp is over: measurement begins.
    fn measurement_begins(&mut self) {}

    /// Measurement has ended.
    fn measurement_ends(&mut self) {}
}

/// An observer of the windows alone.
struct Windows<'a>(&'a mut dyn FnMut(&Progress));

impl RunObserver for Windows<'_> {
    fn progress(&mut self, progress: &Progress) {
        (self.0)(progress);
    }
}

/// Runs a job on a device. `stop` ends it early; `observe` is called about twice a second.
///
/// # Errors
/// As [`run_observed`].
pub fn run(
    job: &Job,
    factory: &Arc<dyn DeviceFactory>,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(&Progress),
) -> Result<RunResult, RunError> {
    run_observed(job, factory, stop, &mut Windows(observe))
}

/// Runs a job on a device. `stop` ends it early.
///
/// # Errors
/// The run could not start. A run that has started has a result, even if it
/// [failed](RunResult::failed).
pub fn run_observed(
    job: &Job,
    factory: &Arc<dyn DeviceFactory>,
    stop: &AtomicBool,
    observer: &mut dyn RunObserver,
) -> Result<RunResult, RunError> {
    let plan = job.plan(&factory.geometry()).map_err(RunError::Job)?;
    run_planned((job, &plan), None, factory, stop, observer)
}

/// Runs a job together with a second one on the workers of the first, to measure how two loads
/// affect each other when they share everything. Processors, polling, driver, ramp and runtime
/// are those of the first.
///
/// # Errors
/// As [`run_observed`].
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
    observer: &mut dyn RunObserver,
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
        collect(&setup, &news, go, observer)
    })
}

/// Receives the workers' messages until all have ended.
fn collect(
    setup: &Setup<'_>,
    news: &Receiver<(usize, News)>,
    go: Vec<Sender<u64>>,
    observer: &mut dyn RunObserver,
) -> Result<RunResult, RunError> {
    let workers = go.len();
    let driver = wait_until_ready(news, workers)?;
    let start = monotonic_time();
    let start_ns = u64::try_from(start.as_nanos()).unwrap_or(0);
    for start in &go {
        // A worker that has ended is missing below.
        let _ = start.send(start_ns);
    }
    drop(go);
    let total = setup.plan.runtime.map(|runtime| runtime + setup.job.ramp);
    let mut collector = WindowCollector::new(setup, start, total, workers);
    let mut result = RunResult { driver, ..RunResult::default() };
    let mut gathered: Vec<(usize, usize, LaneResult)> = Vec::new();
    let mut done = 0;
    let mut callbacks = TimedCallbacks::new(setup, start);
    while done < workers {
        let (worker, news) = match callbacks.next(news, observer) {
            Ok(news) => news,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(RunError::Worker("a worker's thread panicked".to_owned()));
            }
        };
        match news {
            News::Ready(_) => {}
            News::Window(window) => collector.note(worker, *window, observer),
            News::Done(lanes, elapsed) => {
                done += 1;
                collector.ended(worker, observer);
                result.elapsed = result.elapsed.max(elapsed);
                gathered.extend(lanes.into_iter().map(|(lane, result)| (lane, worker, result)));
            }
        }
    }
    callbacks.end(observer);
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

/// When measurement begins and ends, for the observer.
struct TimedCallbacks {
    /// Callbacks that are still to be made, soonest last.
    due: Vec<TimedCallback>,
}

/// When (`None`: never), and the callback.
type TimedCallback = (Option<Duration>, fn(&mut dyn RunObserver));

impl TimedCallbacks {
    fn new(setup: &Setup<'_>, start: Duration) -> Self {
        let begin = start + setup.job.ramp;
        let end = setup.plan.runtime.map(|runtime| begin + runtime);
        let ends: fn(&mut dyn RunObserver) = |observer| observer.measurement_ends();
        let begins: fn(&mut dyn RunObserver) = |observer| observer.measurement_begins();
        Self { due: vec![(end, ends), (Some(begin), begins)] }
    }

    /// Waits for a message until a callback is due, and then makes it.
    fn next<T>(
        &mut self,
        news: &Receiver<T>,
        observer: &mut dyn RunObserver,
    ) -> Result<T, RecvTimeoutError> {
        let Some((Some(at), tell)) = self.due.last().copied() else {
            return news.recv().map_err(|_| RecvTimeoutError::Disconnected);
        };
        let left = at.saturating_sub(monotonic_time());
        if left.is_zero() {
            self.due.pop();
            tell(observer);
            return Err(RecvTimeoutError::Timeout);
        }
        news.recv_timeout(left)
    }

    /// Makes the remaining callbacks: the run has ended early.
    fn end(&mut self, observer: &mut dyn RunObserver) {
        while let Some((_, tell)) = self.due.pop() {
            tell(observer);
        }
    }
}

/// The windows of the workers, collected until every running worker has sent one.
struct WindowCollector {
    start: Duration,
    total: Option<Duration>,
    /// Steps of all lanes; none if a lane does not end after a number of requests.
    steps: Option<u64>,
    windows: Vec<Option<Window>>,
    running: Vec<bool>,
    /// Completed steps of each worker.
    done: Vec<u64>,
}

impl WindowCollector {
    fn new(setup: &Setup<'_>, start: Duration, total: Option<Duration>, workers: usize) -> Self {
        let lanes = (0..setup.lanes()).map(|lane| setup.part(lane).1);
        let steps = lanes.map(|plan| Some(plan.requests? + plan.read_back)).sum();
        let (windows, running) = (vec![None; workers], vec![true; workers]);
        Self { start, total, steps, windows, running, done: vec![0; workers] }
    }

    fn note(&mut self, worker: usize, window: Window, observer: &mut dyn RunObserver) {
        match self.windows.get_mut(worker) {
            Some(Some(before)) => before.extend(window),
            Some(place) => *place = Some(window),
            None => return,
        }
        self.show(observer);
    }

    /// A worker that has ended sends no more windows.
    fn ended(&mut self, worker: usize, observer: &mut dyn RunObserver) {
        if let Some(running) = self.running.get_mut(worker) {
            *running = false;
        }
        self.show(observer);
    }

    fn show(&mut self, observer: &mut dyn RunObserver) {
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
        observer.progress(&progress);
    }

    /// The estimated time to the end that comes first.
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
