//! Runs a study cell by cell and repeat by repeat, and writes its directory of results.

mod round;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use std::{fmt, fs};

use weft_backend::DeviceSpec;
use weft_host::{Provider, Transport};
use weft_load::{Job, RunObserver};
use weft_reactor::{DriverKind, monotonic_time};
use weft_rpc::machine::Machine;

use super::agent::{self, Fleet};
use super::capabilities::Capabilities;
use super::given::{self, given_targets, protocol};
use super::knob::KnobValue;
use super::launch::{GivenTarget, Launcher};
use super::linux::Linux;
use super::matrix::{self, Matrix, Step};
use super::observe::{Position, StudyObserver};
use super::plan::{self, Kind, Plan, PlanError};
use super::target_set::TargetSet;
use super::{link, precondition, side, software};
use crate::cells::{Estimate, Metric, Repeat};
use crate::limits::{REFERENCE_EVERY, REFERENCES_MAX};
use crate::results::{
    self, Configuration, Environment, IdleRate, Record, Role, SCHEMA, Status, Store, key,
};
use crate::{claims, environment};

/// After this many failed cells in a row the run ends: the others would fail, too.
const FAILURES_MAX: usize = 3;

/// How long the machine is watched without a load, at most.
const IDLE: Duration = Duration::from_secs(2);

/// How long each probe of the link takes.
const LINK_PROBE: Duration = Duration::from_millis(150);

/// The parameters of a run.
pub struct Settings<'a> {
    /// The study; its `run` has the seed and the selection of cells.
    pub plan: &'a Plan,
    /// What is available.
    pub capabilities: &'a Capabilities,
    /// A given device, in place of the plan's.
    pub local: Option<DeviceSpec>,
    /// Given targets.
    pub given: Vec<GivenTarget>,
    /// The agents that drive the loads and start the targets, if the study has several machines.
    pub fleet: Option<&'a Fleet>,
    /// The kernel of this machine, for cells of which it is the host.
    pub linux: Option<Arc<Linux>>,
    /// Where RDMA devices come from.
    pub rdma: Provider,
    /// The driver of all reactors.
    pub driver: DriverKind,
    /// Precondition the device first, and wait at most this long for it to become steady. The
    /// caller has asked the user for permission.
    pub precondition: Option<Duration>,
    /// Whether to write fio's JSON for each repeat, too.
    pub fio: bool,
    /// The command that runs this study; `--only …` is added for each cell.
    pub rerun_command: String,
    /// Milliseconds since 1970.
    pub wall_ms: &'a dyn Fn() -> u64,
    /// What is known about the environment so far.
    pub environment: Environment,
}

impl fmt::Debug for Settings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("plan", &self.plan.name).finish_non_exhaustive()
    }
}

/// The outcome of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Repeats that were measured, including those of a resumed run.
    pub measured: usize,
    /// Cells that cannot run here.
    pub skipped: usize,
    /// Repeats that are void.
    pub void: usize,
    /// Repeats that failed.
    pub failed: usize,
    /// Cells that should have a result and have none, with the reason if known.
    pub missing: Vec<String>,
    /// Whether the user stopped it.
    pub interrupted: bool,
    /// The error that ended it early.
    pub error: Option<String>,
}

/// Why a study did not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartError(String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

impl From<PlanError> for StartError {
    fn from(error: PlanError) -> Self {
        Self(error.to_string())
    }
}

/// Runs a study into a directory. Repeats that it holds already are not measured again.
///
/// # Errors
/// It cannot start: there is no cell, target or writable directory. A run that has started returns
/// an outcome in any case.
pub fn run(
    settings: &Settings<'_>,
    store: &mut Store,
    launcher: Option<&dyn Launcher>,
    observer: &mut dyn StudyObserver,
    stop: &AtomicBool,
) -> Result<Outcome, StartError> {
    let plan = settings.plan;
    let refusal = given::refusal(plan, settings.capabilities).or_else(|| software::refusal(plan));
    if let Some(why) = refusal {
        return Err(StartError(why));
    }
    let only = plan.run.as_ref().map(|run| run.only.clone()).unwrap_or_default();
    let matrix = matrix::expand(plan, settings.capabilities, &only);
    if matrix.is_empty() {
        return Err(StartError(no_cells(&only)));
    }
    let directory = store.directory().to_owned();
    let unwritable = |error: std::io::Error| {
        StartError(format!("{} cannot be written: {error}", directory.display()))
    };
    store.set_plan(&plan.to_text()?).map_err(unwritable)?;
    let mut environment = current(&settings.environment);
    environment.cells = matrix.steps().flat_map(Step::cells).map(|cell| cell.id.clone()).collect();
    store.set_environment(&environment).map_err(unwritable)?;
    let before = results::load(store.directory()).map_err(|error| StartError(error.to_string()))?;
    let target_set = TargetSet::new(
        launcher,
        settings.fleet,
        &settings.given,
        settings.rdma.clone(),
        settings.linux.clone(),
    )
    .map_err(StartError)?;
    let mut runner = Runner {
        settings,
        seed: plan.run.as_ref().map_or(0, |run| run.seed),
        matrix: &matrix,
        target_set,
        store,
        observer,
        stop,
        environment,
        records: Vec::new(),
        history: BTreeMap::new(),
        passed: BTreeMap::new(),
        judged_by: settings.plan.judged_by(),
        failures_in_a_row: 0,
        knobs: Default::default(),
        refused: BTreeSet::new(),
        spent: Default::default(),
        done: 0,
        done_before: 0,
        outcome: Outcome::default(),
    };
    runner.add_earlier_records(before.records);
    runner.go();
    Ok(runner.end())
}

/// The environment of a run that goes on, in this build's schema. The link of schema 1 was probed
/// with another congestion control than weft takes, so it is probed again.
fn current(before: &Environment) -> Environment {
    let mut environment = before.clone();
    if environment.schema < SCHEMA {
        environment.schema = SCHEMA;
        environment.link.clear();
    }
    environment
}

fn no_cells(only: &Configuration) -> String {
    if only.is_empty() {
        return "the study has no cells".to_owned();
    }
    if let Some(key) = only.keys().find(|key| !plan::is_setting(key) && *key != "target") {
        return plan::no_setting(key);
    }
    let words: Vec<String> = only.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("no cell of the study has {}", words.join(","))
}

struct Runner<'a> {
    settings: &'a Settings<'a>,
    seed: u64,
    matrix: &'a Matrix,
    target_set: TargetSet<'a>,
    store: &'a mut Store,
    observer: &'a mut dyn StudyObserver,
    stop: &'a AtomicBool,
    environment: Environment,
    records: Vec<Record>,
    /// The measured repeats of each cell.
    history: BTreeMap<String, BTreeMap<u32, Measurement>>,
    /// The last repeat of each step that was measured, or that it did not need.
    passed: BTreeMap<String, u32>,
    /// The metric that the study is judged by.
    judged_by: String,
    failures_in_a_row: usize,
    /// The knobs of the last cell, and its link.
    knobs: (Vec<KnobValue>, String),
    /// Steps whose knobs a machine refuses.
    refused: BTreeSet<String>,
    /// How many first and later repeats were measured, and how long they took.
    spent: [(u32, Duration); 2],
    done: usize,
    done_before: usize,
    outcome: Outcome,
}

/// The cell that shows whether the machine stays the same.
struct Drift {
    step: Step,
    /// How often it was measured.
    repeat: u32,
    /// After how many steps it comes back.
    every: usize,
    /// The number of steps done at which it comes back.
    due: usize,
}

/// What later repeats and cells depend on.
#[derive(Clone, Copy)]
struct Measurement {
    iops: f64,
    /// The metric that the study is judged by; none if too few samples lie beyond its percentile.
    judged: Option<f64>,
}

/// What a cell was judged by in each repeat.
fn judged(repeats: Option<&BTreeMap<u32, Measurement>>) -> impl Iterator<Item = Option<f64>> + '_ {
    repeats.into_iter().flat_map(BTreeMap::values).map(|repeat| repeat.judged)
}

/// The repeats that a step has before it.
#[derive(Clone, Copy, Debug, Default)]
struct RepeatsLeft {
    /// Those that are known to come.
    certain: usize,
    /// They, and all that the stop rule may ask for besides.
    most: usize,
    /// Those of them that an earlier run has measured already.
    known: usize,
}

/// Why a run ends early.
#[derive(Debug)]
enum Stop {
    /// The user has stopped it.
    User,
    /// An error ended it.
    Error(String),
}

impl Runner<'_> {
    /// Loads what an earlier run measured into the same directory.
    fn add_earlier_records(&mut self, records: Vec<Record>) {
        for record in records {
            if record.is_measured() {
                self.remember(&record);
                self.outcome.measured += usize::from(Self::is_planned(&record));
            }
            self.records.push(record);
        }
    }

    /// Whether it is of a cell of the plan: not the one that comes back, nor the bare sockets
    /// beside an open loop.
    fn is_planned(record: &Record) -> bool {
        let has_rate = |key: &&str| record.configuration.contains_key(*key);
        let is_open = [key::LOAD_PERCENT, key::RATE_IOPS].iter().any(has_rate);
        record.role != Role::Reference && !(record.role == Role::Link && is_open)
    }

    fn remember(&mut self, record: &Record) {
        let judged = Repeat::of(record).ok().and_then(|repeat| repeat.metric(&self.judged_by));
        let repeats = self.history.entry(record.cell.clone()).or_default();
        repeats.insert(record.repeat, Measurement { iops: record.iops(), judged });
    }

    fn go(&mut self) {
        match self.prepare().and_then(|()| self.measure_all()) {
            Ok(()) => {}
            Err(Stop::User) => self.outcome.interrupted = true,
            Err(Stop::Error(what)) => self.outcome.error = Some(what),
        }
        if let Err(error) = self.target_set.end() {
            self.observer.note(&format!("a target did not stop cleanly: {error}"));
        }
        // Their agents put everything back when they end as well.
        let put_back = self.settings.fleet.map(|fleet| fleet.set_knobs(&[], ""));
        if let Some(Err(error)) = put_back {
            self.observer.note(&error);
            self.environment.notes.push(error);
        }
    }

    /// Whether a step can run, as far as that is known.
    fn runs(&self, step: &Step) -> bool {
        let is_refused = step.cells().next().is_some_and(|cell| self.refused.contains(&cell.id));
        step.missing().is_none() && !is_refused
    }

    fn prepare(&mut self) -> Result<(), Stop> {
        self.skip()?;
        if let Some(what) = software::untried(self.settings.plan)
            && !self.environment.notes.contains(&what)
        {
            self.observer.note(&what);
            self.environment.notes.push(what);
        }
        self.claim()?;
        self.measure_idle()?;
        if self.environment.link.is_empty() {
            self.probe_link()?;
        }
        if let Some(limit) = self.settings.precondition {
            self.precondition(limit)?;
        }
        Ok(())
    }

    /// Measures what the machines do without a load, to be taken off what they do under it.
    fn measure_idle(&mut self) -> Result<(), Stop> {
        let time = IDLE.min(self.settings.plan.measure.runtime * 4);
        self.observer.note("measuring what the machine does without a load");
        if let Some(fleet) = self.settings.fleet {
            return self.measure_idle_apart(fleet, time);
        }
        let (machine, began) = (Machine::read(), monotonic_time());
        // A target that does not answer is reported by its first cell.
        let before = self.target_set.statistics(false).unwrap_or_default();
        std::thread::sleep(time);
        let after = self.target_set.statistics(false).unwrap_or_default();
        let seconds = monotonic_time().saturating_sub(began).as_secs_f64();
        let here = side::machine(&Machine::read().since(&machine));
        self.environment.idle = IdleRate::of(&here, seconds);
        let targets = self.settings.capabilities.targets.iter();
        for (target, (after, before)) in targets.zip(after.iter().zip(&before)) {
            let (Some(after), Some(before)) = (after, before) else { continue };
            let counted = side::target(&after.since(before), 0);
            let rate = IdleRate::of(&counted.machine, counted.seconds);
            self.environment.target_idle.extend(rate.map(|rate| (target.name.clone(), rate)));
        }
        self.note_idle()
    }

    /// The same of the machines of agents. The target's has no name: it is no given one.
    fn measure_idle_apart(&mut self, fleet: &Fleet, time: Duration) -> Result<(), Stop> {
        let before = fleet.readings();
        std::thread::sleep(time);
        let (Ok((loads, target)), Ok((loads_after, target_after))) = (before, fleet.readings())
        else {
            // An agent that does not answer is reported by its first cell.
            return Ok(());
        };
        self.environment.idle = agent::idle(&loads, &loads_after);
        let target = agent::idle(&target, &target_after);
        self.environment.target_idle.extend(target.map(|rate| (String::new(), rate)));
        self.note_idle()
    }

    fn note_idle(&mut self) -> Result<(), Stop> {
        if let Some(banner) = self.environment.banner() {
            self.observer.note(&banner);
        }
        self.write_environment()
    }

    /// Probes the link between this machine and itself, at each address that a cell uses.
    fn probe_link(&mut self) -> Result<(), Stop> {
        let matrix = self.matrix;
        let cells = matrix.steps().filter(|step| step.missing().is_none()).flat_map(Step::cells);
        if let Some(fleet) = self.settings.fleet {
            return self.probe_links_apart(fleet, cells.collect());
        }
        let mut paths: Vec<(Transport, IpAddr)> = Vec::new();
        for cell in cells {
            let transport = crate::results::text(&cell.configuration, key::TRANSPORT);
            paths.extend(self.path(transport).filter(|path| !paths.contains(path)));
        }
        for (transport, address) in paths {
            let link = link::Link { transport, address, rdma: &self.settings.rdma };
            self.observer.note(&format!("probing the raw link over {transport} at {address}"));
            match link::probe(&link, &self.settings.capabilities.cpus, LINK_PROBE) {
                Ok(link) => self.environment.link.extend(link),
                Err(error) => self.not_probed(&error),
            }
        }
        self.write_environment()
    }

    fn not_probed(&mut self, error: &dyn fmt::Display) {
        let what = format!("the raw link could not be probed: {error}");
        self.observer.note(&what);
        self.environment.notes.push(what);
    }

    /// Probes the links between the machines of agents that a cell uses.
    fn probe_links_apart(&mut self, fleet: &Fleet, cells: Vec<&matrix::Cell>) -> Result<(), Stop> {
        let mut links: Vec<(Transport, &str)> = Vec::new();
        for cell in cells {
            let transport = crate::results::text(&cell.configuration, key::TRANSPORT);
            let spoken = protocol(transport).filter(|spoken| *spoken != Transport::Loopback);
            let link = spoken.map(|spoken| (spoken, super::site::link_of(transport)));
            links.extend(link.filter(|link| !links.contains(link)));
        }
        for (spoken, link) in links {
            let name = if link.is_empty() { "between the machines" } else { link };
            self.observer.note(&format!("probing the raw link {name} over {spoken}"));
            match fleet.probe_link(spoken, link, LINK_PROBE) {
                Ok(probes) => self.environment.link.extend(probes),
                Err(error) => self.not_probed(&error),
            }
        }
        self.write_environment()
    }

    /// The protocol and the address of both ends of cells of a transport, if they are within this
    /// machine.
    fn path(&self, transport: &str) -> Option<(Transport, IpAddr)> {
        let spoken = protocol(transport).filter(|spoken| *spoken != Transport::Loopback)?;
        if self.settings.fleet.is_some() {
            return None;
        }
        let Settings { plan, capabilities, given, .. } = self.settings;
        let address = match given_targets(plan, transport, capabilities) {
            Some(targets) => {
                let address = &given.get(*targets.first()?)?.options.address;
                environment::addresses_here(&address.traddr).next()?
            }
            None if spoken == Transport::Rdma => environment::rdma_address()?,
            None => IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        Some((spoken, address))
    }

    /// Locks a file or block device for the load and targets of this run, against other processes.
    fn claim(&mut self) -> Result<(), Stop> {
        let local = self.settings.local.clone().filter(|_| self.settings.fleet.is_none());
        let local = local.filter(|own| own.clone().into_shared() != *own);
        match local.map(|own| own.build()) {
            Some(Err(error)) => Err(Stop::Error(error.to_string())),
            Some(Ok(_)) | None => Ok(()),
        }
    }

    /// Records the cells that cannot run here.
    fn skip(&mut self) -> Result<(), Stop> {
        let matrix = self.matrix;
        for step in matrix.steps() {
            let Some(reason) = step.missing() else { continue };
            for cell in step.cells() {
                self.outcome.skipped += 1;
                let status = Status::Skipped { reason: reason.to_owned() };
                if self.records.iter().any(|r| r.cell == cell.id && r.status == status) {
                    continue;
                }
                let study = &self.settings.plan.name;
                let mut record =
                    Record::new(study, &cell.id, cell.role, cell.configuration.clone());
                record.status = status;
                record.started_at_ms = (self.settings.wall_ms)();
                record.command = self.command(step);
                self.write(record)?;
            }
        }
        if self.outcome.skipped > 0 {
            let text = format!("{} cells cannot run here", self.outcome.skipped);
            self.observer.note(&text);
        }
        Ok(())
    }

    fn precondition(&mut self, limit: Duration) -> Result<(), Stop> {
        let device = match &self.settings.local {
            Some(spec) => self.target_set.device(spec, self.settings.driver, self.stop),
            None => Err("preconditioning needs a device (--local PATH)".to_owned()),
        };
        let device = match device {
            Ok(device) => device,
            Err(error) => return Err(Stop::Error(error)),
        };
        let drive = |job: &Job, stop: &AtomicBool, observer: &mut dyn RunObserver| {
            device.run(job, stop, observer)
        };
        let observer = &mut *self.observer;
        let position = Position::default();
        let mut tell = |what: &str, progress: &weft_load::Progress| {
            observer.progress(&position, &format!("preconditioning: {what}"), progress);
        };
        match precondition::precondition(&drive, limit, self.stop, &mut tell) {
            Ok(rounds) => {
                self.environment.notes.push(rounds.to_string());
                self.write_environment()
            }
            Err(error) => Err(Stop::Error(format!("preconditioning failed: {error}"))),
        }
    }

    fn measure_all(&mut self) -> Result<(), Stop> {
        let (matrix, measure) = (self.matrix, &self.settings.plan.measure);
        let mut drift = self.drift();
        for point in &matrix.first {
            let steps: Vec<&Step> = point.iter().collect();
            for repeat in 1..=self.settings.plan.repeats_max() {
                self.reference_if_due(&mut drift)?;
                self.point(&steps, repeat)?;
            }
        }
        for repeat in 1..=self.settings.plan.repeats_max() {
            for steps in matrix.round(self.seed, repeat, measure.shuffle) {
                self.reference_if_due(&mut drift)?;
                self.point(&steps, repeat)?;
            }
        }
        // The last time is the end of the run, unless nothing was left to measure.
        if let Some(drift) = &mut drift {
            drift.due = if self.done > self.done_before { 0 } else { usize::MAX };
        }
        self.reference_if_due(&mut drift)
    }

    /// The cell that comes back through the run; none in a short run.
    fn drift(&self) -> Option<Drift> {
        let step = self.matrix.reference()?;
        let all = self.planned();
        if all < REFERENCE_EVERY || self.outcome.measured >= all {
            return None;
        }
        let id = &step.cells().next()?.id;
        let repeats = self.history.get(id).and_then(|repeats| repeats.keys().last().copied());
        let every = all.div_ceil(REFERENCES_MAX).max(REFERENCE_EVERY);
        Some(Drift { step, repeat: repeats.unwrap_or(0), every, due: 0 })
    }

    fn reference_if_due(&mut self, drift: &mut Option<Drift>) -> Result<(), Stop> {
        let Some(drift) = drift.as_mut().filter(|drift| self.done >= drift.due) else {
            return Ok(());
        };
        drift.due = self.done + drift.every;
        drift.repeat += 1;
        self.point(&[&drift.step], drift.repeat)
    }

    /// Whether a step needs this repeat: it has fewer than the minimum, or its confidence interval
    /// is too wide.
    fn needs(&self, step: &Step, repeat: u32) -> bool {
        let measure = &self.settings.plan.measure;
        let Some(cell) = step.cells().next() else { return false };
        let repeats = self.history.get(&cell.id);
        if repeats.is_some_and(|repeats| repeats.contains_key(&repeat)) {
            return false;
        }
        if repeat <= self.repeats_of(step) || cell.role == Role::Reference {
            return true;
        }
        if repeat > measure.repeats_max {
            return false;
        }
        !self.is_narrow(judged(repeats))
    }

    /// The fewest repeats of a step.
    fn repeats_of(&self, step: &Step) -> u32 {
        let cell = step.cells().next();
        cell.map_or(0, |cell| self.settings.plan.repeats_of(&cell.configuration))
    }

    /// How many steps with their fewest repeats run.
    fn planned(&self) -> usize {
        let steps = self.matrix.steps().filter(|step| self.runs(step));
        steps.map(|step| self.repeats_of(step) as usize).sum()
    }

    /// Whether the confidence interval of the metric by which the study is judged is within the
    /// plan's bound. It is not as long as a repeat has too few samples for that metric.
    fn is_narrow(&self, values: impl Iterator<Item = Option<f64>>) -> bool {
        let Some(metric) = Metric::named(&self.judged_by) else { return false };
        values
            .collect::<Option<Vec<f64>>>()
            .and_then(|values| Estimate::of(&values, metric.scale()))
            .and_then(|estimate| estimate.relative_error())
            .is_some_and(|share| 100.0 * share <= self.settings.plan.measure.confidence_percent)
    }

    /// How long a first repeat of a step takes, which waits for steady state, and a later one.
    fn each(&self) -> [Duration; 2] {
        let measure = &self.settings.plan.measure;
        let mean = |(count, time): (u32, Duration)| time.checked_div(count);
        let planned = measure.runtime + measure.ramp + Duration::from_millis(200);
        let [first, later] = self.spent.map(mean);
        let like_first = first.filter(|_| measure.settle.is_zero());
        let later = later.or(like_first).unwrap_or(planned);
        [first.unwrap_or(later + measure.settle / 4), later]
    }

    /// The repeats that a step has before it. One beyond the minimum is certain as long as the
    /// interval is too wide; how many follow it is not.
    fn repeats_left(&self, step: &Step) -> RepeatsLeft {
        let Some(cell) = step.cells().next() else { return RepeatsLeft::default() };
        let least = self.repeats_of(step);
        let most = self.settings.plan.measure.repeats_max.max(least);
        let from = self.passed.get(&cell.id).map_or(1, |passed| passed + 1);
        let repeats = self.history.get(&cell.id);
        let is_known = |repeat: &u32| repeats.is_some_and(|known| known.contains_key(repeat));
        let known = (from..=least).filter(is_known).count();
        let certain = (from..=least).count() - known;
        let beyond = (from.max(least + 1)..=most).filter(|repeat| !is_known(repeat)).count();
        if beyond == 0 || certain > 0 {
            return RepeatsLeft { certain, most: certain + beyond, known };
        }
        match self.is_narrow(judged(repeats)) {
            true => RepeatsLeft { known, ..RepeatsLeft::default() },
            false => RepeatsLeft { certain: 1, most: beyond, known },
        }
    }

    /// The progress. Repeats beyond the minimum are added to the total as they are needed.
    fn position(&self) -> Position {
        let (mut all, mut first) = (RepeatsLeft::default(), 0);
        for step in self.matrix.steps().filter(|step| self.runs(step)) {
            let left = self.repeats_left(step);
            all.certain += left.certain;
            all.most += left.most;
            all.known += left.known;
            let is_new = step.cells().all(|cell| !self.history.contains_key(&cell.id));
            first += usize::from(is_new && left.certain > 0);
        }
        let count = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
        let [one, other] = self.each();
        let time = |repeats: usize| one * count(first) + other * count(repeats - first);
        Position {
            done: self.done,
            all: self.done + all.certain + all.known,
            left: time(all.certain),
            left_most: time(all.most),
        }
    }

    fn write(&mut self, record: Record) -> Result<(), Stop> {
        if let Err(error) = self.store.add(&record) {
            let directory = self.store.directory().display().to_string();
            return Err(Stop::Error(format!("{directory} cannot be written: {error}")));
        }
        self.records.push(record);
        Ok(())
    }

    fn write_environment(&mut self) -> Result<(), Stop> {
        match self.store.set_environment(&self.environment) {
            Ok(()) => Ok(()),
            Err(error) => Err(Stop::Error(format!("the environment cannot be written: {error}"))),
        }
    }

    /// The command that measures a step again.
    fn command(&self, step: &Step) -> String {
        let Some(cell) = step.cells().next() else { return self.settings.rerun_command.clone() };
        let plan = self.settings.plan;
        let mut words: Vec<String> = plan
            .axes
            .keys()
            .filter_map(|key| {
                let value = cell.configuration.get(key)?;
                Some(format!("{key}={}", value.as_word()))
            })
            .collect();
        if matches!(plan.kind, Kind::Interference | Kind::Load) {
            words.push(format!("role={}", matrix::role_name(cell.role)));
        }
        if words.is_empty() {
            return self.settings.rerun_command.clone();
        }
        format!("{} --only {}", self.settings.rerun_command, words.join(","))
    }

    /// Writes the final files and completes the outcome.
    fn end(mut self) -> Outcome {
        let reasons: BTreeMap<&str, &str> = self
            .records
            .iter()
            .filter_map(|record| Some((record.cell.as_str(), record.status.reason()?)))
            .collect();
        let cells = self.matrix.steps().filter(|step| self.runs(step));
        let missing = cells
            .flat_map(Step::cells)
            .filter(|cell| !self.history.contains_key(&cell.id))
            .map(|cell| match reasons.get(cell.id.as_str()) {
                Some(reason) => format!("{}: {reason}", cell.id),
                None => cell.id.clone(),
            });
        self.outcome.missing = missing.collect();
        self.environment.interrupted = self.outcome.interrupted;
        self.environment.ended_at_ms = (self.settings.wall_ms)();
        let written = self.store.set_environment(&self.environment);
        let loaded = results::load(self.store.directory());
        let table = loaded.map_err(|error| error.to_string()).and_then(|results| {
            let answer = claims::answer(&results);
            let answered = answer.map_or(Ok(()), |answer| self.store.set_answer(&answer));
            answered
                .and_then(|()| self.store.set_table(&results.records))
                // The environment seals the others.
                .and_then(|()| self.store.set_environment(&self.environment))
                .map_err(|error| error.to_string())
        });
        if let Some(error) = written.err().map(|error| error.to_string()).or(table.err()) {
            self.outcome.error.get_or_insert(format!("the results are incomplete: {error}"));
        }
        self.outcome
    }

    /// Writes a repeat in fio's format.
    fn keep_fio(&mut self, record: &Record, text: &str) -> Result<(), Stop> {
        let slug: String = record
            .cell
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "=.-".contains(c) { c } else { '_' })
            .collect();
        let directory = self.store.directory().join("fio");
        let path = directory.join(format!("{slug}.{}.json", record.repeat));
        match fs::create_dir_all(&directory).and_then(|()| fs::write(&path, text)) {
            Ok(()) => Ok(()),
            Err(error) => {
                Err(Stop::Error(format!("{} cannot be written: {error}", path.display())))
            }
        }
    }
}

#[cfg(test)]
mod tests;
