//! One point in one round of repeats.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_host::Transport;
use weft_load::random::Random;
use weft_load::report::fio;
use weft_reactor::monotonic_time;

use super::{FAILURES_MAX, Position, Runner, Stop, judged};
use crate::cells::{Estimate, Repeat, Scale};
use crate::limits::INTERVAL_REPEATS;
use crate::results::{
    IdleRate, KnobRecord, Mark, Record, Role, Status, TestedTarget, Value, key, number,
};
use crate::results::{integer, text};
use crate::study::agent::Fleet;
use crate::study::deployment::{Deployment, Place, Planner};
use crate::study::given::protocol;
use crate::study::link::OpenLoop;
use crate::study::matrix::{Cell, Step};
use crate::study::measure::{LoadOutcome, MeasureOptions, measure};
use crate::study::plan::Kind;
use crate::study::software::Software;
use crate::study::{knob, link, site};

/// What ends a step.
enum Trouble {
    /// It has no result, and the run goes on.
    Step(String),
    /// The run ends.
    Run(Stop),
}

impl From<String> for Trouble {
    fn from(reason: String) -> Self {
        Self::Step(reason)
    }
}

impl From<&str> for Trouble {
    fn from(reason: &str) -> Self {
        Self::Step(reason.to_owned())
    }
}

impl From<Stop> for Trouble {
    fn from(stop: Stop) -> Self {
        Self::Run(stop)
    }
}

impl Runner<'_> {
    /// Measures the steps of a point that need this repeat, directly after one another.
    pub(super) fn point(&mut self, steps: &[&Step], repeat: u32) -> Result<(), Stop> {
        for step in steps {
            if !self.runs(step) {
                continue;
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(Stop::User);
            }
            if self.needs(step, repeat) {
                self.step(step, repeat)?;
                continue;
            }
            self.pass(step, repeat);
            if repeat <= self.repeats_of(step) {
                // An earlier run has measured it.
                self.done += 1;
                self.done_before += 1;
            }
        }
        Ok(())
    }

    /// A step has this repeat behind it.
    fn pass(&mut self, step: &Step, repeat: u32) {
        if let Some(cell) = step.cells().next() {
            self.passed.insert(cell.id.clone(), repeat);
        }
    }

    fn step(&mut self, step: &Step, repeat: u32) -> Result<(), Stop> {
        let Some(first) = step.cells().next() else { return Ok(()) };
        let what = format!("{} (repeat {repeat})", first.id);
        let position = self.position_of(first);
        self.observer.begins(&position, &what);
        let (started_at_ms, began) = ((self.settings.wall_ms)(), monotonic_time());
        let outcome = self.attempt(step, repeat, &what);
        if self.stop.load(Ordering::Relaxed) {
            // A step that was stopped has no result.
            return Err(Stop::User);
        }
        let outcome = outcome?;
        let is_broken = outcome.is_err();
        let records = match outcome {
            Ok(records) => {
                self.failures_in_a_row = 0;
                records
            }
            Err(status) => {
                // A lost agent is started again.
                self.failures_in_a_row += usize::from(matches!(status, Status::Failed { .. }));
                without_result(&self.settings.plan.name, step, &status)
            }
        };
        let command = self.command(step);
        let is_pair = step.cells().count() > 1 && records.len() > 1;
        let together = is_pair.then(|| format!("{}#{repeat}", first.id));
        let mut written = Vec::new();
        for mut record in records {
            record.repeat = repeat;
            record.started_at_ms = started_at_ms;
            record.command.clone_from(&command);
            record.together.clone_from(&together);
            self.mark(&mut record);
            self.write(record.clone())?;
            self.count(&record);
            written.push(record);
        }
        let is_counted = first.role != Role::Reference;
        self.done += usize::from(is_counted);
        self.pass(step, repeat);
        // The time of reference cells is shared by the others.
        if let Some((count, time)) = self.spent.get_mut(usize::from(repeat > 1 || !is_counted)) {
            *count += u32::from(is_counted);
            *time += monotonic_time().saturating_sub(began);
        }
        let position = self.position();
        self.observer.ends(&position, &written);
        if is_broken {
            // A target that may be the cause is started again.
            if let Err(error) = self.target_set.end() {
                self.observer.note(&format!("a target did not stop cleanly: {error}"));
            }
        }
        if self.failures_in_a_row >= FAILURES_MAX {
            let reason = written.iter().find_map(|record| record.status.reason());
            let what = format!(
                "{FAILURES_MAX} cells in a row failed; the last error: {}",
                reason.unwrap_or_default()
            );
            return Err(Stop::Error(what));
        }
        Ok(())
    }

    /// The progress during a cell. Reference cells come on top of the steps.
    fn position_of(&self, cell: &Cell) -> Position {
        let position = self.position();
        let with_this = position.done + usize::from(cell.role != Role::Reference);
        Position { all: position.all.max(with_this), ..position }
    }

    /// Marks a record by what is known of the other repeats.
    fn mark(&self, record: &mut Record) {
        if !record.is_measured() {
            return;
        }
        let plan = &self.settings.plan;
        let most = plan.measure.repeats_max.max(plan.repeats_of(&record.configuration));
        let is_last = record.repeat == most && record.role != Role::Reference;
        if is_last && record.repeat >= INTERVAL_REPEATS {
            let earlier = judged(self.history.get(&record.cell));
            let last = Repeat::of(record).ok().and_then(|last| last.metric(&self.judged_by));
            if !self.is_narrow(earlier.chain([last])) {
                record.mark(Mark::WideInterval);
            }
        }
    }

    fn count(&mut self, record: &Record) {
        match &record.status {
            Status::Measured => {
                self.outcome.measured += usize::from(Self::is_planned(record));
                self.remember(record);
            }
            Status::Void { .. } => self.outcome.void += 1,
            Status::Failed { .. } => self.outcome.failed += 1,
            Status::Skipped { .. } => self.outcome.skipped += 1,
        }
    }

    /// The bare sockets beside a step that is an open loop over TCP, in the same minute; none
    /// beside any other.
    fn bare_socket(&self, step: &Step, deployment: &Deployment) -> Option<Record> {
        let plan = self.settings.plan;
        let (Step::Single(cell), [load]) = (step, &deployment.loads[..]) else { return None };
        let transport = text(&cell.configuration, key::TRANSPORT);
        let is_asked = plan.measure.bare_socket && matches!(cell.role, Role::Plain | Role::Alone);
        let open = OpenLoop::of(load)
            .filter(|_| is_asked && protocol(transport) == Some(Transport::Tcp))?;
        let runtime = plan.measure.runtime.min(link::BARE);
        let record = link::bare_socket(&plan.name, cell, open);
        let measured = match (self.settings.fleet, self.path(transport)) {
            (Some(fleet), _) => fleet.measure_bare(record.clone(), open, runtime),
            (None, Some((transport, address))) => {
                let link = link::Link { transport, address, rdma: &self.settings.rdma };
                let target = deployment.targets.first().and_then(|target| target.cpus.first());
                let cpus = target.copied().zip(load.job.cpus.first().copied());
                link::measure_bare(record.clone(), open, runtime, &link, cpus)
            }
            (None, None) => Err("the other end of the link is on another machine".to_owned()),
        };
        Some(measured.unwrap_or_else(|reason| Record {
            status: Status::Skipped { reason: format!("bare sockets: {reason}") },
            ..record
        }))
    }

    /// The records of a step, or why it has no result: void if an agent was lost under it.
    fn attempt(
        &mut self,
        step: &Step,
        repeat: u32,
        what: &str,
    ) -> Result<Result<Vec<Record>, Status>, Stop> {
        let fleet = self.settings.fleet;
        if let Err(reason) = fleet.map_or(Ok(()), Fleet::mend) {
            return Ok(Err(Status::Failed { reason }));
        }
        let void_if_lost = |otherwise: Status| match fleet.and_then(Fleet::lost) {
            Some(reason) => Status::Void { reason },
            None => otherwise,
        };
        let knobs = match self.set_knobs(step) {
            Ok(knobs) => knobs,
            Err(reason) => {
                let status = void_if_lost(Status::Skipped { reason });
                if let (Status::Skipped { .. }, Some(cell)) = (&status, step.cells().next()) {
                    self.refused.insert(cell.id.clone());
                }
                return Ok(Err(status));
            }
        };
        let mut records = match self.measured(step, repeat, what) {
            Ok(records) => records,
            Err(Trouble::Step(reason)) => return Ok(Err(void_if_lost(Status::Failed { reason }))),
            Err(Trouble::Run(stop)) => return Err(stop),
        };
        records.iter_mut().for_each(|record| record.knobs.clone_from(&knobs));
        Ok(Ok(records))
    }

    /// Gives the machines of agents the knobs of a step.
    fn set_knobs(&mut self, step: &Step) -> Result<Vec<KnobRecord>, String> {
        let (Some(fleet), Some(cell)) = (self.settings.fleet, step.cells().next()) else {
            return Ok(Vec::new());
        };
        let link = site::link_of(text(&cell.configuration, key::TRANSPORT)).to_owned();
        let knobs = (knob::wishes(&cell.configuration, &link), link);
        if knobs != self.knobs {
            // A socket that listens keeps what was set when it was opened.
            if let Err(error) = self.target_set.end() {
                self.observer.note(&format!("a target did not stop cleanly: {error}"));
            }
            self.knobs = knobs;
        }
        fleet.set_knobs(&self.knobs.0, &self.knobs.1)
    }

    /// The records of a step.
    fn measured(&mut self, step: &Step, repeat: u32, what: &str) -> Result<Vec<Record>, Trouble> {
        let plan = self.settings.plan;
        if let (Kind::Link, Step::Single(cell)) = (plan.kind, step) {
            if let Some(fleet) = self.settings.fleet {
                return Ok(vec![fleet.measure_link(&plan.name, cell, &plan.measure)?]);
            }
            let cpus = &self.settings.capabilities.cpus;
            let transport = text(&cell.configuration, key::TRANSPORT);
            let path = self.path(transport).ok_or(
                "its other end is on another machine, or no RDMA device here has an IPv4 address",
            )?;
            let rdma = &self.settings.rdma;
            let link = link::Link { transport: path.0, address: path.1, rdma };
            let record = link::measure(&plan.name, cell, &plan.measure, &link, cpus)?;
            return Ok(vec![record]);
        }
        let reference = self.reference(step)?;
        let percent = step.cells().find_map(|cell| integer(&cell.configuration, key::LOAD_PERCENT));
        let offered = reference.zip(percent).map(|(iops, percent)| iops * percent as f64 / 100.0);
        let planner = Planner {
            plan,
            capabilities: self.settings.capabilities,
            local: self.settings.local.as_ref(),
            // Repeats that had the same arrivals would agree on what chance has made.
            seed: Random::new(self.seed, u64::from(repeat)).word(),
            driver: self.settings.driver,
        };
        let deployment = planner.deployment(step, offered)?;
        let probes = self.environment.link.clone();
        let options = MeasureOptions {
            measure: &plan.measure,
            study: &plan.name,
            settle: repeat == 1 && !plan.measure.settle.is_zero(),
            stop: self.stop,
            link: &probes,
            idle: self.target_idle(),
        };
        let position = self.position_of(step.cells().next().ok_or("a step without cells")?);
        let observer = &mut *self.observer;
        let mut progress = |seen: &weft_load::Progress| observer.progress(&position, what, seen);
        let measured = measure(&options, &deployment, &mut self.target_set, &mut progress)?;
        let bare = self.bare_socket(step, &deployment);
        self.note_tested(&deployment, &measured)?;
        let mut records = Vec::new();
        for (load, of) in deployment.loads.iter().zip(measured) {
            let mut record = of.record;
            if let Some(iops) = reference {
                record.values.insert(number::REFERENCE_IOPS.to_owned(), iops);
            }
            if record.role == Role::Saturation {
                let iops = record.iops();
                record.values.insert(number::SATURATION_IOPS.to_owned(), iops);
            }
            self.name_device(&mut record, &deployment, &load.place);
            if self.settings.fio {
                let ended = Duration::from_millis((self.settings.wall_ms)());
                let json = fio::report(&load.job, &of.name, &of.result, ended);
                record.repeat = repeat;
                self.keep_fio(&record, &format!("{json:#}\n"))?;
            }
            records.push(record);
        }
        records.extend(bare);
        Ok(records)
    }

    /// What the machine of targets that the study starts does without a load; not known if it was
    /// busy.
    fn target_idle(&self) -> Option<IdleRate> {
        let environment = &self.environment;
        let is_busy = match self.settings.fleet {
            Some(_) => environment.target_busy_share("").is_some(),
            None => environment.busy_share().is_some(),
        };
        let idle = match self.settings.fleet {
            Some(_) => environment.target_idle.get("").copied(),
            None => environment.idle,
        };
        idle.filter(|_| !is_busy)
    }

    /// Records the device if it is not the plan's.
    fn name_device(&self, record: &mut Record, deployment: &Deployment, place: &Place) {
        let device = match place {
            Place::Given { target, .. } => {
                // The devices of a given target are not known.
                let known = self.settings.capabilities.targets.get(*target);
                let name = known.map_or("", |target| &target.name);
                record.configuration.insert(key::TARGET.to_owned(), Value::from(name));
                return;
            }
            Place::Local(spec) => spec.to_string(),
            Place::Network(_) => return,
            Place::Own { target, .. } | Place::Inside { target, .. } => {
                device_of(deployment, *target)
            }
        };
        if self.settings.local.is_some() {
            record.configuration.insert(key::DEVICE.to_owned(), Value::Text(device));
        }
    }

    /// The saturation point to which a pair's load refers.
    fn reference(&self, step: &Step) -> Result<Option<f64>, String> {
        let loaded = match step {
            Step::Pair { background, .. } => background,
            Step::Single(cell)
                if self.settings.plan.kind == Kind::Load && cell.role == Role::Plain =>
            {
                cell
            }
            Step::Single(_) => return Ok(None),
        };
        let apart = [key::FOREGROUND, key::LOAD_PERCENT, key::BACKGROUND];
        let axes = self.settings.plan.axes.keys().map(String::as_str);
        let keys: Vec<&str> =
            axes.filter(|key| !apart.contains(key)).chain(Some(key::TARGET)).collect();
        let same = |cell: &Cell| {
            keys.iter().all(|key| cell.configuration.get(*key) == loaded.configuration.get(*key))
        };
        let found = self
            .matrix
            .first
            .iter()
            .flatten()
            .flat_map(Step::cells)
            .find(|cell| same(cell))
            .and_then(|cell| self.history.get(&cell.id));
        let values: Vec<f64> =
            found.into_iter().flat_map(BTreeMap::values).map(|repeat| repeat.iops).collect();
        match Estimate::of(&values, Scale::Plain) {
            Some(estimate) => Ok(Some(estimate.mean)),
            None => Err("the saturation point to which its load refers is not known".to_owned()),
        }
    }

    /// Records what was tested, once for each target and device.
    fn note_tested(
        &mut self,
        deployment: &Deployment,
        measured: &[LoadOutcome],
    ) -> Result<(), Stop> {
        let before = self.environment.clone();
        for (load, of) in deployment.loads.iter().zip(measured) {
            self.environment.driver = of.result.driver.to_owned();
            let tested = match &load.place {
                Place::Local(spec) => {
                    self.environment.local = spec.to_string();
                    continue;
                }
                Place::Inside { target, .. } => {
                    self.environment.local = device_of(deployment, *target);
                    self.environment.local_inside = true;
                    continue;
                }
                Place::Own { target, .. } => TestedTarget {
                    address: self.where_started(deployment, *target),
                    device: device_of(deployment, *target),
                    started_here: self.settings.fleet.is_none(),
                    identity: of.identity.clone(),
                    statistics: of.record.target.is_some() && !of.record.has(Mark::TargetMachine),
                },
                Place::Network(_) => continue,
                Place::Given { .. } => TestedTarget {
                    address: of.name.clone(),
                    device: String::new(),
                    started_here: false,
                    identity: of.identity.clone(),
                    statistics: of.record.target.is_some(),
                },
            };
            if !self.environment.targets.contains(&tested) {
                self.environment.targets.push(tested);
            }
        }
        if self.environment == before { Ok(()) } else { self.write_environment() }
    }

    fn where_started(&self, deployment: &Deployment, target: usize) -> String {
        let spec = deployment.targets.get(target);
        let of = match spec.map(|spec| spec.software) {
            Some(Software::Linux) => "the kernel's, ",
            Some(Software::Spdk) => "SPDK's, ",
            _ => "",
        };
        let machine = self.environment.machines.iter().find(|machine| machine.role == "target");
        if let Some(machine) = machine {
            return format!("{of}started for the study, on {}", machine.place);
        }
        let place = match spec.map(|spec| spec.transport) {
            Some(Transport::Loopback) => "in its process",
            _ => "on loopback",
        };
        format!("{of}started for the study, {place}")
    }
}

fn device_of(deployment: &Deployment, target: usize) -> String {
    let spec = deployment.targets.get(target);
    spec.and_then(|spec| spec.devices.first()).map(ToString::to_string).unwrap_or_default()
}

fn without_result(study: &str, step: &Step, status: &Status) -> Vec<Record> {
    let record = |cell: &Cell| {
        let mut record = Record::new(study, &cell.id, cell.role, cell.configuration.clone());
        record.status = status.clone();
        record
    };
    step.cells().map(record).collect()
}
