//! One load on several machines at the same time.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use weft_reactor::monotonic_time;
use weft_rpc::machine::Machine;

use super::{
    CloseLoad, CountedLoad, Go, PrepareLoad,
    line::{Agent, Offset},
};
use crate::{
    Job, Progress, RunObserver, RunResult,
    random::split_mix,
    results::{LoadPart, SideMachine},
    study::{
        inside::{Event, News, Settings, Stop},
        side,
    },
};

/// How long before its start a load is told of it, beside round trips.
const LEAD: Duration = Duration::from_millis(20);

/// How many of the longest round trips that takes.
const LEAD_ROUND_TRIPS: u32 = 4;

/// What one of the machines did.
#[derive(Clone, Debug)]
pub(in crate::study) struct Part {
    pub(in crate::study) place: String,
    pub(in crate::study) boot_id: String,
    pub(in crate::study) driver: &'static str,
    pub(in crate::study) requests: u64,
    pub(in crate::study) bytes: u64,
    pub(in crate::study) p99_ns: Option<u64>,
    /// When its measured time began and ended, by this machine's clock.
    pub(in crate::study) counted: (Duration, Duration),
    /// By how much these may be wrong.
    pub(in crate::study) error: Duration,
    /// What its machine did between two readings, and how long that was.
    pub(in crate::study) machine: Machine,
    pub(in crate::study) lasted: Duration,
}

/// The device of a load, open on several machines.
#[derive(Debug)]
pub(in crate::study) struct Elsewhere {
    agents: Vec<Arc<Agent>>,
    parts: Mutex<Vec<Part>>,
}

/// What the thread of an agent reports.
enum Told {
    /// Its load waits for its start.
    Ready(Offset),
    Event(Event),
    /// There is no load, or no agent, any more.
    Failed(String),
}

/// What all threads of a load share.
struct Common<'a> {
    /// The user's wish.
    stop: &'a AtomicBool,
    /// Whether another load has failed, so that this one is of no use.
    abandoned: AtomicBool,
}

impl Common<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.abandoned.load(Ordering::Relaxed)
    }
}

impl Elsewhere {
    pub(super) fn new(agents: Vec<Arc<Agent>>) -> Self {
        Self { agents, parts: Mutex::default() }
    }

    /// Runs a job on every machine: each has the whole of it, with a seed of its own.
    ///
    /// # Errors
    /// One sentence that names the machine without a result.
    pub(in crate::study) fn run(
        &self,
        job: &Job,
        stop: &AtomicBool,
        observer: &mut dyn RunObserver,
    ) -> Result<RunResult, String> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let common = Common { stop, abandoned: AtomicBool::new(false) };
        let (told_by, told) = channel();
        let mut gathered = Gathered::new(self.agents.len());
        thread::scope(|scope| {
            let mut starts = Vec::new();
            for (number, agent) in self.agents.iter().enumerate() {
                let (start, starting) = channel();
                let (told_by, common) = (told_by.clone(), &common);
                let job = job_of(job, number);
                let driving = move || {
                    let tell = |what| {
                        // The receiver is there as long as the threads are.
                        let _ = told_by.send((number, what));
                    };
                    if let Err(why) = drive(agent, &job, common, &starting, &tell) {
                        tell(Told::Failed(why));
                    }
                };
                let spawned = thread::Builder::new().spawn_scoped(scope, driving);
                if let Err(error) = spawned {
                    gathered.failed(number, format!("cannot start a thread: {error}"));
                }
                starts.push(start);
            }
            gathered.receive(&told, starts, &common, observer);
        });
        let (results, offsets) = gathered.finish()?;
        let mut parts = Vec::new();
        for ((agent, result), offset) in self.agents.iter().zip(&results).zip(offsets) {
            parts.push(part(agent, job, result, offset)?);
        }
        *self.parts.lock().unwrap_or_else(PoisonError::into_inner) = parts;
        Ok(merged(results))
    }

    /// What each machine did in the last run.
    pub(in crate::study) fn parts(&self) -> Vec<Part> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Closes the device on every machine.
    pub(in crate::study) fn close(mut self) -> Result<(), String> {
        self.close_all()
    }

    fn close_all(&mut self) -> Result<(), String> {
        let close = |agent: Arc<Agent>| agent.call::<CloseLoad>(&());
        // All are closed, even if one fails.
        let closed: Vec<Result<(), String>> = self.agents.drain(..).map(close).collect();
        closed.into_iter().collect()
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        // A step that has failed drops it: its reason is the first fault.
        let _ = self.close_all();
    }
}

/// The job of one of several machines: with the same seed all would access the same blocks.
fn job_of(job: &Job, number: usize) -> Job {
    let seed = match number {
        0 => job.seed,
        number => split_mix(job.seed ^ number as u64),
    };
    Job { seed, ..job.clone() }
}

/// Drives the load of one agent to its end.
fn drive(
    agent: &Agent,
    job: &Job,
    common: &Common<'_>,
    starting: &Receiver<Duration>,
    tell: &dyn Fn(Told),
) -> Result<(), String> {
    agent.call::<PrepareLoad>(&Settings::of(job))?;
    let mut is_told = false;
    loop {
        if common.is_stopped() && !std::mem::replace(&mut is_told, true) {
            agent.call::<Stop>(&())?;
        }
        for event in agent.call::<News>(&())? {
            match event {
                Event::Ready => {
                    let offset = agent.offset()?;
                    tell(Told::Ready(offset));
                    // Without an answer another load has failed: this one is stopped above.
                    if let Ok(at) = starting.recv() {
                        agent.call::<Go>(&(offset.theirs(at),))?;
                    }
                }
                Event::Failed(why) => return Err(format!("{}: {why}", agent.place)),
                Event::Result(result) => {
                    tell(Told::Event(Event::Result(result)));
                    return Ok(());
                }
                event => tell(Told::Event(event)),
            }
        }
    }
}

/// What has come of the loads so far.
struct Gathered {
    offsets: Vec<Option<Offset>>,
    windows: Vec<Option<Progress>>,
    results: Vec<Option<RunResult>>,
    /// Which have ended, in either way.
    ended: Vec<bool>,
    fault: Option<String>,
    begun: bool,
    over: bool,
}

impl Gathered {
    fn new(count: usize) -> Self {
        Self {
            offsets: vec![None; count],
            windows: vec![None; count],
            results: vec![None; count],
            ended: vec![false; count],
            fault: None,
            begun: false,
            over: false,
        }
    }

    fn failed(&mut self, number: usize, why: String) {
        self.fault.get_or_insert(why);
        if let Some(ended) = self.ended.get_mut(number) {
            *ended = true;
        }
    }

    /// Starts all together and passes on what they report, until all have ended.
    fn receive(
        &mut self,
        told: &Receiver<(usize, Told)>,
        starts: Vec<Sender<Duration>>,
        common: &Common<'_>,
        observer: &mut dyn RunObserver,
    ) {
        let mut starts = Some(starts);
        while self.ended.iter().any(|ended| !ended) {
            if self.fault.is_some() || common.is_stopped() {
                common.abandoned.store(true, Ordering::Relaxed);
                // Those that wait are waked.
                starts = None;
            }
            let Ok((number, what)) = told.recv() else { return };
            match what {
                Told::Ready(offset) => {
                    if let Some(place) = self.offsets.get_mut(number) {
                        *place = Some(offset);
                    }
                    self.start(&mut starts);
                }
                Told::Failed(why) => self.failed(number, why),
                Told::Event(event) => self.event(number, event, observer),
            }
        }
    }

    /// Starts all as soon as all wait.
    fn start(&self, starts: &mut Option<Vec<Sender<Duration>>>) {
        let offsets: Option<Vec<Offset>> = self.offsets.iter().copied().collect();
        let Some(offsets) = offsets else { return };
        let longest = offsets.iter().map(|offset| offset.round_trip).max().unwrap_or_default();
        let at = monotonic_time() + LEAD + longest * LEAD_ROUND_TRIPS;
        for start in starts.take().into_iter().flatten() {
            // Whoever has failed says so itself.
            let _ = start.send(at);
        }
    }

    fn event(&mut self, number: usize, event: Event, observer: &mut dyn RunObserver) {
        match event {
            Event::Begins if !std::mem::replace(&mut self.begun, true) => {
                observer.measurement_begins();
            }
            Event::Ends if !std::mem::replace(&mut self.over, true) => {
                observer.measurement_ends();
            }
            Event::Begins | Event::Ends | Event::Ready | Event::Failed(_) => {}
            Event::Window(window) => {
                if let Some(place) = self.windows.get_mut(number) {
                    *place = Some(window.progress());
                }
                self.show(observer);
            }
            Event::Result(result) => {
                if let (Some(place), Some(ended)) =
                    (self.results.get_mut(number), self.ended.get_mut(number))
                {
                    *place = Some(*result);
                    *ended = true;
                }
                self.show(observer);
            }
        }
    }

    /// Shows the windows once every load that runs has one.
    fn show(&mut self, observer: &mut dyn RunObserver) {
        let mut all = self.windows.iter().zip(&self.ended);
        if all.any(|(window, ended)| window.is_none() && !ended) {
            return;
        }
        let windows: Vec<Progress> = self.windows.iter_mut().filter_map(Option::take).collect();
        if let Some(sum) = sum(windows) {
            observer.progress(&sum);
        }
    }

    /// The results and the offsets of all.
    fn finish(self) -> Result<(Vec<RunResult>, Vec<Offset>), String> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let results = self.results.into_iter().collect::<Option<Vec<_>>>();
        // A load that was stopped while it waited has no offset, and no result that counts.
        let offsets = self.offsets.into_iter().map(Option::unwrap_or_default).collect();
        Ok((results.ok_or("a load has no result")?, offsets))
    }
}

/// One window of several machines. Their percentiles cannot be added.
fn sum(windows: Vec<Progress>) -> Option<Progress> {
    windows.into_iter().reduce(|one, other| Progress {
        phase: one.phase.min(other.phase),
        elapsed: one.elapsed.max(other.elapsed),
        total: one.total.max(other.total),
        left: one.left.max(other.left),
        read_iops: one.read_iops + other.read_iops,
        write_iops: one.write_iops + other.write_iops,
        trim_iops: one.trim_iops + other.trim_iops,
        bytes_per_second: one.bytes_per_second + other.bytes_per_second,
        p99_ns: None,
        faults: one.faults + other.faults,
    })
}

/// The copies of all machines as one result, in which each worker keeps a number of its own.
fn merged(results: Vec<RunResult>) -> RunResult {
    let mut all = RunResult::default();
    let mut first = 0;
    for result in results {
        let workers = result.lanes.iter().map(|(worker, _)| worker + 1).max().unwrap_or(0);
        all.lanes.extend(result.lanes.into_iter().map(|(worker, lane)| (first + worker, lane)));
        first += workers;
        all.elapsed = all.elapsed.max(result.elapsed);
        all.interrupted |= result.interrupted;
        all.driver = if all.driver.is_empty() { result.driver } else { all.driver };
    }
    all
}

fn part(agent: &Agent, job: &Job, result: &RunResult, offset: Offset) -> Result<Part, String> {
    let counted = agent.call::<CountedLoad>(&())?;
    let total = result.total();
    let measured = total.read.measured.max(total.write.measured);
    let begin = offset.ours(counted.start) + job.ramp;
    let mut latency = total.read.latency.clone();
    latency.add(&total.write.latency);
    Ok(Part {
        place: agent.place.clone(),
        boot_id: agent.description.boot_id.clone(),
        driver: result.driver,
        requests: total.read.requests + total.write.requests,
        bytes: total.read.bytes + total.write.bytes,
        p99_ns: latency.percentile_ns(99.0),
        counted: (begin, begin + measured),
        error: offset.round_trip / 2,
        machine: counted.machine,
        lasted: counted.lasted,
    })
}

/// What each machine did, for a record.
pub(in crate::study) fn parts_of(parts: &[Part]) -> Vec<LoadPart> {
    let first = parts.iter().map(|part| part.counted.0).min().unwrap_or_default();
    let of = |part: &Part| LoadPart {
        place: part.place.clone(),
        driver: part.driver.to_owned(),
        requests: part.requests,
        bytes: part.bytes,
        p99_ns: part.p99_ns,
        began_s: part.counted.0.saturating_sub(first).as_secs_f64(),
        clock_error_s: part.error.as_secs_f64(),
        seconds: part.counted.1.saturating_sub(part.counted.0).as_secs_f64(),
    };
    parts.iter().map(of).collect()
}

/// The share of the longest measured time in which all machines counted.
pub(in crate::study) fn overlap(parts: &[Part]) -> f64 {
    let begin = parts.iter().map(|part| part.counted.0).max().unwrap_or_default();
    let end = parts.iter().map(|part| part.counted.1).min().unwrap_or_default();
    let lasted = |part: &Part| part.counted.1.saturating_sub(part.counted.0);
    let longest = parts.iter().map(lasted).max().unwrap_or_default();
    match longest.is_zero() {
        true => 0.0,
        false => end.saturating_sub(begin).as_secs_f64() / longest.as_secs_f64(),
    }
}

/// What all machines did: each once, whatever number of places it has.
pub(in crate::study) fn machines(parts: &[Part]) -> SideMachine {
    let mut all = SideMachine::default();
    let mut seen: Vec<&str> = Vec::new();
    for part in parts {
        if seen.contains(&part.boot_id.as_str()) {
            continue;
        }
        seen.push(&part.boot_id);
        let SideMachine { cores, interrupts, context_switches, softirqs } =
            side::machine(&part.machine);
        all.cores.extend(cores);
        all.interrupts += interrupts;
        all.context_switches += context_switches;
        for (name, count) in softirqs {
            *all.softirqs.entry(name).or_default() += count;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DirectionResult, LaneResult, results::LatencyRecord};
    use weft_rpc::machine::Core as Counted;

    fn part(boot_id: &str, begin_ms: u64, end_ms: u64) -> Part {
        let core = Counted { cpu: 3, user_ns: 2_000_000_000, ..Counted::default() };
        Part {
            place: boot_id.to_owned(),
            boot_id: boot_id.to_owned(),
            driver: "epoll",
            requests: 1,
            bytes: 4096,
            p99_ns: None,
            counted: (Duration::from_millis(begin_ms), Duration::from_millis(end_ms)),
            error: Duration::ZERO,
            machine: Machine { cores: vec![core], interrupts: 7, ..Machine::default() },
            lasted: Duration::from_secs(1),
        }
    }

    #[test]
    fn loads_overlap_by_the_share_of_the_longest() {
        assert!((overlap(&[part("a", 0, 1_000), part("b", 5, 1_005)]) - 0.995).abs() < 1e-9);
        assert!((overlap(&[part("a", 0, 1_000), part("b", 0, 500)]) - 0.5).abs() < 1e-9);
        assert_eq!(overlap(&[part("a", 0, 1_000), part("b", 2_000, 3_000)]), 0.0);
        assert_eq!(overlap(&[part("a", 0, 1_000)]), 1.0);
        assert_eq!(overlap(&[]), 0.0);
    }

    #[test]
    fn a_machine_counts_once_whatever_number_of_places_it_has() {
        let all = machines(&[part("a", 0, 1), part("a", 0, 1), part("b", 0, 1)]);
        assert_eq!((all.cores.len(), all.interrupts), (2, 14));
        assert!((all.busy_s() - 4.0).abs() < 1e-9);
    }

    #[test]
    fn results_of_several_machines_merge_exactly() {
        let result = |latencies: &[u64], worker| {
            let mut read =
                DirectionResult { measured: Duration::from_secs(1), ..Default::default() };
            for ns in latencies {
                read.latency.record(*ns);
                read.requests += 1;
            }
            let lane = LaneResult { read, ..LaneResult::default() };
            RunResult { lanes: vec![(worker, lane)], driver: "epoll", ..RunResult::default() }
        };
        let (one, other) = ([100, 200, 300], [150, 250_000]);
        let all = merged(vec![result(&one, 0), result(&other, 0)]);
        assert_eq!((all.workers(), all.driver), (2, "epoll"));
        let (total, whole) = (all.total(), result(&[one.as_slice(), &other].concat(), 0).total());
        assert_eq!((total.read.requests, total.read.measured), (5, Duration::from_secs(1)));
        let record = |latency| LatencyRecord::of(latency);
        assert_eq!(record(&total.read.latency), record(&whole.read.latency));
    }

    #[test]
    fn every_machine_has_a_seed_of_its_own() {
        let job = Job { seed: 9, ..Job::default() };
        let seeds: Vec<u64> = (0..3).map(|number| job_of(&job, number).seed).collect();
        assert_eq!(seeds.first(), Some(&9));
        assert!(seeds[1] != seeds[0] && seeds[2] != seeds[1] && seeds[2] != seeds[0]);
    }
}
