//! One load on several machines at the same time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weft_load::random::split_mix;
use weft_load::{Job, Progress, RunObserver, RunResult};
use weft_reactor::monotonic_time;
use weft_rpc::machine::Machine;

use super::calls::{Clock, CloseLoad, CountedLoad, Go, MachineCounts, PrepareLoad};
use super::line::{Agent, Offset, Reading, SentRequest, call_all, wait_for};
use crate::results::{LoadPart, SideMachine};
use crate::study::inside::{Event, News, Settings, Stop};
use crate::study::side;

/// How long before its start a load is told of it, beside round trips.
const LEAD: Duration = Duration::from_millis(20);

/// How many of the longest round trips that takes.
const LEAD_ROUND_TRIPS: u32 = 4;

/// How often it is looked at whether the user has stopped it.
const LOOK: Duration = Duration::from_millis(100);

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
    /// By how much its clock has jumped meanwhile, if it has.
    pub(in crate::study) jumped: Option<Duration>,
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

impl Elsewhere {
    pub(super) fn new(agents: Vec<Arc<Agent>>) -> Self {
        Self { agents, parts: Mutex::default() }
    }

    /// Runs a job on every machine: each has the whole of it, with a seed of its own. All are
    /// driven by this thread.
    ///
    /// # Errors
    /// One sentence that names the machine without a result.
    pub(in crate::study) fn run(
        &self,
        job: &Job,
        stop: &AtomicBool,
        observer: &mut dyn RunObserver,
    ) -> Result<RunResult, String> {
        let results = run_beside(&[(self, job)], stop, &mut [observer])?;
        results.into_iter().next().ok_or_else(|| "a load has no result".to_owned())
    }

    fn set_parts(&self, parts: Vec<Part>) {
        *self.parts.lock().unwrap_or_else(PoisonError::into_inner) = parts;
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
        // All are closed, even if one fails.
        let agents = std::mem::take(&mut self.agents);
        call_all::<CloseLoad>(&agents, |_| Ok(())).into_iter().collect()
    }
}

/// Runs several loads, all of whose agents begin together, and each of which has an observer: the
/// result of each.
///
/// # Errors
/// One sentence that names the machine without a result.
pub(in crate::study) fn run_beside(
    loads: &[(&Elsewhere, &Job)],
    stop: &AtomicBool,
    observers: &mut [&mut dyn RunObserver],
) -> Result<Vec<RunResult>, String> {
    let mut all = Vec::new();
    for (load, (elsewhere, job)) in loads.iter().enumerate() {
        elsewhere.set_parts(Vec::new());
        let agents = elsewhere.agents.iter().enumerate();
        all.extend(agents.map(|(number, agent)| Driven::begin(agent, load, &job_of(job, number))));
    }
    let phases = vec![Phases::default(); loads.len()];
    let mut gathered = AgentLoads { all, fault: None, phases };
    gathered.receive(stop, observers);
    let mut ended = gathered.finish()?.into_iter().peekable();
    let mut merged_results = Vec::new();
    for (load, (elsewhere, job)) in loads.iter().enumerate() {
        let (mut results, mut parts) = (Vec::new(), Vec::new());
        while let Some((one, result)) = ended.next_if(|(one, _)| one.load == load) {
            parts.push(one.part(job, &result));
            results.push(result);
        }
        elsewhere.set_parts(parts);
        merged_results.push(merged(results));
    }
    Ok(merged_results)
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

/// What an agent was asked last, and has not answered.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Prepare(SentRequest),
    Go(SentRequest),
    Stop(SentRequest),
    News(SentRequest),
    Clock(SentRequest),
    Counted(SentRequest),
    /// Nothing: its load waits for the others.
    Waits,
    /// Nothing: it has ended, in either way.
    Ended,
}

/// One agent, whose load is driven to its end.
struct Driven<'a> {
    agent: &'a Agent,
    /// The load, of several.
    load: usize,
    pending: Pending,
    reading: Reading,
    /// How far its clock was ahead before its load began, and when that was known.
    offset: Option<(Offset, Duration)>,
    /// The same after its end.
    after: Option<(Offset, Duration)>,
    is_stopped: bool,
    window: Option<Progress>,
    result: Option<RunResult>,
    counted: Option<MachineCounts>,
}

impl<'a> Driven<'a> {
    /// Begins with the preparation of its load.
    fn begin(agent: &'a Agent, load: usize, job: &Job) -> Result<Self, String> {
        let pending = Pending::Prepare(agent.ask::<PrepareLoad>(&Settings::of(job))?);
        Ok(Self {
            agent,
            load,
            pending,
            reading: Reading::default(),
            offset: None,
            after: None,
            is_stopped: false,
            window: None,
            result: None,
            counted: None,
        })
    }

    const fn has_ended(&self) -> bool {
        matches!(self.pending, Pending::Ended)
    }

    /// Asks for news, after it was told once to stop if that is wished.
    fn go_on(&mut self, stop: bool) -> Result<(), String> {
        self.pending = match stop && !std::mem::replace(&mut self.is_stopped, stop) {
            true => Pending::Stop(self.agent.ask::<Stop>(&())?),
            false => Pending::News(self.agent.ask::<News>(&())?),
        };
        Ok(())
    }

    /// Takes an answer, if it has come, and asks for the next: the events in it.
    fn look(&mut self, stop: bool) -> Result<Vec<Event>, String> {
        let agent = self.agent;
        match self.pending {
            Pending::Waits if stop => self.go_on(stop)?,
            Pending::Waits | Pending::Ended => {}
            Pending::Prepare(asked) => {
                if agent.answer::<PrepareLoad>(asked)?.is_some() {
                    self.go_on(stop)?;
                }
            }
            Pending::Go(asked) => {
                if agent.answer::<Go>(asked)?.is_some() {
                    self.go_on(stop)?;
                }
            }
            Pending::Stop(asked) => {
                if agent.answer::<Stop>(asked)?.is_some() {
                    self.go_on(stop)?;
                }
            }
            Pending::News(asked) => {
                if let Some(events) = agent.answer::<News>(asked)? {
                    return self.news(events, stop);
                }
            }
            Pending::Clock(asked) => {
                if let Some(theirs) = agent.answer::<Clock>(asked)? {
                    self.clock(asked, theirs)?;
                }
            }
            Pending::Counted(asked) => {
                if let Some(counted) = agent.answer::<CountedLoad>(asked)? {
                    self.counted = Some(counted);
                    self.pending = Pending::Clock(agent.ask::<Clock>(&())?);
                }
            }
        }
        Ok(Vec::new())
    }

    /// What has happened: the events that concern others.
    fn news(&mut self, events: Vec<Event>, stop: bool) -> Result<Vec<Event>, String> {
        let mut others = Vec::new();
        self.pending = Pending::Waits;
        for event in events {
            match event {
                Event::Ready => {
                    self.pending = Pending::Clock(self.agent.ask::<Clock>(&())?);
                }
                Event::Failed(why) => return Err(format!("{}: {why}", self.agent.place)),
                Event::Result(result) => {
                    self.result = Some(*result);
                    self.pending = Pending::Counted(self.agent.ask::<CountedLoad>(&())?);
                }
                event @ (Event::Begins | Event::Ends | Event::Window(_)) => others.push(event),
            }
        }
        if matches!(self.pending, Pending::Waits) {
            self.go_on(stop)?;
        }
        Ok(others)
    }

    /// A reading of its clock, before its load or after it.
    fn clock(&mut self, asked: SentRequest, theirs: Duration) -> Result<(), String> {
        let Some(offset) = self.reading.take(asked, theirs) else {
            self.pending = Pending::Clock(self.agent.ask::<Clock>(&())?);
            return Ok(());
        };
        self.reading = Reading::default();
        let known = Some((offset, monotonic_time()));
        (self.pending, self.offset, self.after) = match self.result {
            None => (Pending::Waits, known, None),
            Some(_) => (Pending::Ended, self.offset, known),
        };
        Ok(())
    }

    /// Begins its load at a time of this machine's clock.
    fn start(&mut self, at: Duration) -> Result<(), String> {
        let (offset, _) = self.offset.unwrap_or_default();
        self.pending = Pending::Go(self.agent.ask::<Go>(&(offset.theirs(at),))?);
        Ok(())
    }

    /// What it did.
    fn part(&self, job: &Job, result: &RunResult) -> Part {
        let counted = self.counted.clone().unwrap_or_default();
        // A load that was stopped while it waited has no offset, and no result that counts.
        let (offset, known) = self.offset.unwrap_or_default();
        let jumped = self.after.filter(|_| self.offset.is_some());
        let total = result.total();
        let measured = total.read.measured.max(total.write.measured);
        let begin = offset.ours(counted.start) + job.ramp;
        let mut latency = total.read.latency.clone();
        latency.add(&total.write.latency);
        Part {
            place: self.agent.place.clone(),
            boot_id: self.agent.description.boot_id.clone(),
            driver: result.driver,
            requests: total.read.requests + total.write.requests,
            bytes: total.read.bytes + total.write.bytes,
            p99_ns: latency.percentile_ns(99.0),
            counted: (begin, begin + measured),
            error: offset.round_trip / 2,
            jumped: jumped
                .and_then(|(after, later)| after.jump_since(offset, later.saturating_sub(known))),
            machine: counted.machine,
            lasted: counted.lasted,
        }
    }
}

/// What the observer of a load has been told.
#[derive(Clone, Copy, Debug, Default)]
struct Phases {
    begun: bool,
    over: bool,
}

/// The loads of all agents.
struct AgentLoads<'a> {
    /// Those that could not even be prepared have their reason instead.
    all: Vec<Result<Driven<'a>, String>>,
    fault: Option<String>,
    /// Of each load.
    phases: Vec<Phases>,
}

impl<'a> AgentLoads<'a> {
    fn at(&mut self, number: usize) -> Option<&mut Driven<'a>> {
        self.all.get_mut(number)?.as_mut().ok()
    }

    fn driven(&mut self) -> impl Iterator<Item = &mut Driven<'a>> {
        self.all.iter_mut().filter_map(|one| one.as_mut().ok())
    }

    /// Starts all together and passes on what they report, until all have ended.
    fn receive(&mut self, stop: &AtomicBool, observers: &mut [&mut dyn RunObserver]) {
        loop {
            // If one has failed the others are of no use.
            let is_faulty = self.fault.is_some() || self.all.iter().any(Result::is_err);
            let stop = is_faulty || stop.load(Ordering::Relaxed);
            for number in 0..self.all.len() {
                let looked = self.at(number).map(|one| one.look(stop));
                let events = looked.unwrap_or(Ok(Vec::new())).unwrap_or_else(|why| {
                    self.failed(number, why);
                    Vec::new()
                });
                events.into_iter().for_each(|event| self.event(number, event, observers));
            }
            for (load, observer) in observers.iter_mut().enumerate() {
                self.show(load, &mut **observer);
            }
            self.start();
            let left = self.driven().filter(|one| !one.has_ended());
            let left: Vec<&Agent> = left.map(|one| one.agent).collect();
            if left.is_empty() {
                return;
            }
            wait_for(&left, LOOK);
        }
    }

    /// Starts all as soon as all wait.
    fn start(&mut self) {
        let waits = |one: &Driven<'_>| matches!(one.pending, Pending::Waits);
        if !self.all.iter().all(|one| one.as_ref().is_ok_and(waits)) {
            return;
        }
        let offsets = self.driven().filter_map(|one| one.offset);
        let longest = offsets.map(|(offset, _)| offset.round_trip).max().unwrap_or_default();
        let at = monotonic_time() + LEAD + longest * LEAD_ROUND_TRIPS;
        for number in 0..self.all.len() {
            if let Some(Err(why)) = self.at(number).map(|one| one.start(at)) {
                self.failed(number, why);
            }
        }
    }

    fn failed(&mut self, number: usize, why: String) {
        if let Some(one) = self.at(number) {
            one.pending = Pending::Ended;
        }
        self.fault.get_or_insert(why);
    }

    fn event(&mut self, number: usize, event: Event, observers: &mut [&mut dyn RunObserver]) {
        let Some(one) = self.at(number) else { return };
        let load = one.load;
        if let Event::Window(window) = event {
            one.window = Some(window.progress());
            if let Some(observer) = observers.get_mut(load) {
                self.show(load, &mut **observer);
            }
            return;
        }
        let both = observers.get_mut(load).zip(self.phases.get_mut(load));
        let Some((observer, phases)) = both else { return };
        match event {
            Event::Begins if !std::mem::replace(&mut phases.begun, true) => {
                observer.measurement_begins();
            }
            Event::Ends if !std::mem::replace(&mut phases.over, true) => {
                observer.measurement_ends();
            }
            _ => {}
        }
    }

    /// Shows the windows of a load once every agent that drives it has one: a last one that only
    /// some have is not what all did.
    fn show(&mut self, load: usize, observer: &mut dyn RunObserver) {
        if self.driven().any(|one| one.load == load && one.window.is_none()) {
            return;
        }
        let of = self.driven().filter(|one| one.load == load);
        let windows: Vec<Progress> = of.filter_map(|one| one.window.take()).collect();
        if let Some(sum) = sum(windows) {
            observer.progress(&sum);
        }
    }

    /// All agents with their results, in the order of the loads.
    fn finish(self) -> Result<Vec<(Driven<'a>, RunResult)>, String> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let with_result = |one: Result<Driven<'a>, String>| {
            let mut one = one?;
            let result = one.result.take().ok_or("a load has no result")?;
            Ok::<_, String>((one, result))
        };
        self.all.into_iter().map(with_result).collect()
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

/// What is wrong with a clock that has jumped while its load ran.
pub(in crate::study) fn jumped(parts: &[Part]) -> Option<String> {
    let mut all = parts.iter().filter_map(|part| Some((part, part.jumped?)));
    all.next().map(|(part, by)| {
        format!(
            "{}: its clock jumped by {:.3} s while the load ran, as that of a virtual machine does \
             which is stopped or moved: keep it running where it is, and measure again with weft \
             study run --resume",
            part.place,
            by.as_secs_f64()
        )
    })
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
    use crate::results::LatencyRecord;
    use weft_load::{DirectionResult, LaneResult};
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
            jumped: None,
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
