//! Runs a job: starts the workers together, receives their messages and merges their results.

mod setup;
mod window;

pub use setup::Part;
pub(crate) use setup::{Ends, Setup};
pub use window::Phase;
pub(crate) use window::Window;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;
use std::{fmt, thread};

use weft_backend::DeviceFactory;
use weft_reactor::monotonic_time;

use crate::aside::Aside;
use crate::histogram::Latency;
use crate::job::{Job, JobError, Plan, processors};
use crate::random::split_mix;
use crate::statistics::{LaneResult, RunResult};
use crate::units::ns;
use crate::worker::{self, News, Order, Seat};

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
    /// Trims a second.
    pub trim_iops: f64,
    /// Bytes a second, all ways.
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
    /// All workers are set up: the run begins at the returned time, or else now.
    fn ready(&mut self) -> Option<Duration> {
        None
    }

    /// The numbers of the last window; about twice a second.
    fn progress(&mut self, _progress: &Progress) {}

    /// The ramp is over: measurement begins.
    fn measurement_begins(&mut self) {}

    /// Measurement has ended.
    fn measurement_ends(&mut self) {}

    /// How often [`RunObserver::status`] is wanted; to half a second.
    fn status_interval(&self) -> Option<Duration> {
        None
    }

    /// What each job has come to so far.
    fn status(&mut self, _results: &[RunResult]) {}
}

/// An observer of the windows alone.
pub struct Windows<'a>(pub &'a mut dyn FnMut(&Progress));

impl fmt::Debug for Windows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Windows")
    }
}

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
    let mut results = run_parts(&[Part::new(job, factory)], None, stop, observer)?;
    results.pop().ok_or_else(|| RunError::Worker("there is no job".to_owned()))
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
    let parts = [Part::new(job, factory), Part::new(beside, factory)];
    let mut results = run_parts(&parts, Some(job.workers()), stop, &mut Windows(observe))?;
    match (results.pop(), results.pop()) {
        (Some(second), Some(first)) => Ok((first, second)),
        _ => Err(RunError::Worker("there is no job".to_owned())),
    }
}

/// Runs jobs at the same time: a result for each. Jobs with the same processors, polling and
/// driver share threads.
///
/// # Errors
/// As [`run_observed`].
pub fn run_jobs(
    parts: &[Part],
    stop: &AtomicBool,
    observer: &mut dyn RunObserver,
) -> Result<Vec<RunResult>, RunError> {
    run_parts(parts, None, stop, observer)
}

/// As [`run_jobs`], on so many workers at most.
fn run_parts(
    parts: &[Part],
    workers_max: Option<usize>,
    stop: &AtomicBool,
    observer: &mut dyn RunObserver,
) -> Result<Vec<RunResult>, RunError> {
    let plan = |part: &Part| part.job.plan(&part.factory.geometry()).map_err(RunError::Job);
    let plans = parts.iter().map(plan).collect::<Result<Vec<Plan>, RunError>>()?;
    let copies = |(number, part): (usize, &Part)| {
        (0..part.job.copies as usize).map(move |copy| (number, copy))
    };
    let time = ns(monotonic_time());
    let seed = parts.first().map_or(0, |part| part.job.seed);
    let setup = Setup {
        parts,
        plans,
        lanes: parts.iter().enumerate().flat_map(copies).collect(),
        stop,
        ends: Arc::new(Ends::of(parts)),
        status: observer.status_interval(),
        run_seed: split_mix(seed ^ split_mix(time)),
    };
    let (news_to, news) = mpsc::channel();
    thread::scope(|scope| {
        let mut go = Vec::new();
        let seats = seats(&setup, workers_max);
        let pinned: Option<Vec<usize>> = seats.iter().map(|seat| seat.cpu).collect();
        for (number, seat) in seats.into_iter().enumerate() {
            let (start, started) = mpsc::channel();
            let order = Order { number, seat, setup: &setup, news: news_to.clone(), go: started };
            thread::Builder::new()
                .name(format!("weft-lab-{number}"))
                .spawn_scoped(scope, move || worker::work(&order))
                .map_err(|error| RunError::Worker(format!("cannot start a thread: {error}")))?;
            go.push(start);
        }
        drop(news_to);
        // Workers that are not pinned may be anywhere.
        let _aside = Aside::of(&pinned.unwrap_or_default());
        collect(&setup, &news, go, observer)
    })
}

/// The workers, and which lanes each has.
fn seats(setup: &Setup<'_>, workers_max: Option<usize>) -> Vec<Seat> {
    let mut seats: Vec<Seat> = Vec::new();
    for (number, part) in setup.parts.iter().enumerate() {
        let job = &part.job;
        let lanes = setup.lanes.iter().enumerate();
        let lanes: Vec<usize> =
            lanes.filter(|(_, (part, _))| *part == number).map(|(lane, _)| lane).collect();
        let is_alike = |seat: &Seat| {
            (&seat.cpus, seat.polling, seat.driver) == (&job.cpus, job.polling, job.driver)
        };
        let alike = seats.iter().filter(|seat| is_alike(seat));
        let (count, used) = (alike.clone().count(), alike.map(|seat| seat.lanes.len()).sum());
        let most = if job.cpus.is_empty() { processors() } else { job.cpus.len() };
        let most = workers_max.unwrap_or(most).min(count + lanes.len());
        for index in count..most {
            let cpu = (!job.cpus.is_empty()).then(|| job.cpus[index % job.cpus.len()]);
            let (cpus, polling, driver) = (job.cpus.clone(), job.polling, job.driver);
            seats.push(Seat { cpu, cpus, polling, driver, lanes: Vec::new() });
        }
        let mut alike: Vec<&mut Seat> = seats.iter_mut().filter(|seat| is_alike(seat)).collect();
        let count = alike.len().max(1);
        let used: usize = used;
        for (index, lane) in lanes.into_iter().enumerate() {
            if let Some(seat) = alike.get_mut((used + index) % count) {
                seat.lanes.push(lane);
            }
        }
    }
    seats.retain(|seat| !seat.lanes.is_empty());
    seats
}

/// Receives the workers' messages until all have ended.
fn collect(
    setup: &Setup<'_>,
    news: &Receiver<(usize, News)>,
    go: Vec<Sender<u64>>,
    observer: &mut dyn RunObserver,
) -> Result<Vec<RunResult>, RunError> {
    let workers = go.len();
    let driver = wait_until_ready(news, workers)?;
    let start = observer.ready().unwrap_or_else(monotonic_time);
    let start_ns = ns(start);
    for start in &go {
        // A worker that has ended is missing below.
        let _ = start.send(start_ns);
    }
    drop(go);
    let mut collector = WindowCollector::new(setup, start, workers);
    let mut gathered: Vec<LaneEnd> = Vec::new();
    let mut statuses: Vec<Option<Vec<LaneEnd>>> = vec![None; workers];
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
            News::Status(lanes, elapsed) => {
                statuses[worker] = Some(ended(worker, lanes, elapsed));
                if statuses.iter().all(Option::is_some) {
                    // What has ended is in what its worker says last.
                    let lanes = statuses.iter().flatten().flatten().cloned().collect();
                    observer.status(&merged(setup, driver, lanes));
                    let lasts = collector.running.iter().map(|running| !running);
                    for (status, is_last) in statuses.iter_mut().zip(lasts) {
                        *status = status.take().filter(|_| is_last);
                    }
                }
            }
            News::Done(lanes, elapsed) => {
                done += 1;
                collector.ended(worker, observer);
                let lanes = ended(worker, lanes, elapsed);
                if setup.status.is_some() {
                    statuses[worker] = Some(lanes.clone());
                }
                gathered.extend(lanes);
            }
        }
    }
    callbacks.end(observer);
    Ok(merged(setup, driver, gathered))
}

/// What a lane did: its number, its worker's, and how long that ran.
type LaneEnd = (usize, usize, LaneResult, Duration);

fn ended(worker: usize, lanes: Vec<(usize, LaneResult)>, elapsed: Duration) -> Vec<LaneEnd> {
    lanes.into_iter().map(|(lane, result)| (lane, worker, result, elapsed)).collect()
}

/// A result for each part.
fn merged(setup: &Setup<'_>, driver: &'static str, mut lanes: Vec<LaneEnd>) -> Vec<RunResult> {
    let interrupted = setup.stop.load(Ordering::Relaxed);
    lanes.sort_by_key(|(lane, ..)| *lane);
    let mut results =
        vec![RunResult { driver, interrupted, ..RunResult::default() }; setup.parts.len()];
    for (lane, worker, lane_result, elapsed) in lanes {
        if let Some(result) = results.get_mut(setup.part(lane).1) {
            result.elapsed = result.elapsed.max(elapsed);
            result.lanes.push((worker, lane_result));
        }
    }
    results
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
        let job = setup.parts.first().map(|part| &part.job);
        let begin = start + job.map_or(Duration::ZERO, |job| job.start_delay.0 + job.ramp);
        let runtime = setup.plans.first().and_then(|plan| plan.runtime);
        let end = runtime.map(|runtime| begin + runtime);
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
    /// How many bytes all lanes have before them, if each has such an end.
    work: Option<u64>,
    windows: Vec<Option<Window>>,
    running: Vec<bool>,
    /// Bytes that each worker has done.
    done: Vec<u64>,
    /// The phase of the last window.
    last: Phase,
    /// From when the speed counts, and how many bytes were done by then.
    since: (Duration, u64),
}

impl WindowCollector {
    fn new(setup: &Setup<'_>, start: Duration, workers: usize) -> Self {
        Self {
            start,
            total: setup.total(),
            work: setup.work(),
            windows: vec![None; workers],
            running: vec![true; workers],
            done: vec![0; workers],
            last: Phase::Ramp,
            since: (setup.begin(), 0),
        }
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
            trim_iops: 0.0,
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
            progress.trim_iops += window.trims as f64 / seconds;
            progress.bytes_per_second += window.bytes as f64 / seconds;
            progress.faults += window.faults;
            latency.add(&window.latency);
            *done = window.work_bytes;
        }
        progress.p99_ns = latency.percentile_ns(99.0);
        progress.left = self.left(progress.phase, progress.elapsed);
        observer.progress(&progress);
    }

    /// The estimated time to the end that comes first. The speed is that of the phase: blocks are
    /// not read back as fast as they were written, and how fast is not known at once.
    fn left(&mut self, phase: Phase, elapsed: Duration) -> Option<Duration> {
        let done = self.done.iter().sum::<u64>();
        let before = std::mem::replace(&mut self.last, phase);
        if phase == Phase::Check && before != Phase::Check {
            self.since = (elapsed, done);
        }
        let (since, done_since) = self.since;
        let by_work = self.work.filter(|_| done > done_since).map(|work| {
            let left = work.saturating_sub(done) as f64 / (done - done_since) as f64;
            elapsed.saturating_sub(since).mul_f64(left)
        });
        let by_time = self.total.map(|total| total.saturating_sub(elapsed));
        [by_work, by_time].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod express_tests;
#[cfg(test)]
mod tests;
