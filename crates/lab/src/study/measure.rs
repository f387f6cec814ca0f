//! One step: runs its loads side by side, samples both sides during the measured time, checks the
//! results and writes the records.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use weft_advise::predict::is_served;
use weft_load::limits::{WINDOW, WINDOWS_MAX};
use weft_load::usage::Usage;
use weft_load::{
    Aside, DirectionResult, Job, Phase, Polling, Progress, RunObserver, RunResult, Windows,
};
use weft_reactor::monotonic_time;
use weft_rpc::machine::Machine;
use weft_statistics::Statistics;

use super::agent::{Elsewhere, Part, jumped, machines, overlap, parts_of, run_beside};
use super::deployment::{Deployment, Load, Place};
use super::disturbed::{self, Beside};
use super::given::{protocol, protocol_name};
use super::load_device::LoadDevice;
use super::plan::Measure;
use super::software::Software;
use super::steady::{Steadiness, SteadyStateDetector};
use super::target_set::TargetSet;
use super::{side, site};
use crate::limits::{FULL, OVERLAP_MIN};
use crate::results::{
    Connection, Direction, IdleRate, LatencyRecord, LinkProbe, LoadPart, Mark, NamespaceCounts,
    Record, Role, Side, Status, Window, fairness, key, number,
};

/// A reading of all counters at one time.
struct Sample {
    time_s: f64,
    /// What this thread has used, which carries no load.
    usage: Usage,
    machine: Machine,
    targets: Vec<Option<Statistics>>,
}

/// Reads the counters of both sides when measurement begins and ends; forwards progress.
struct Sampler<'a, 'b> {
    target_set: &'a mut TargetSet<'b>,
    own: bool,
    /// Whether any of the loads has a target.
    remote: bool,
    progress: &'a mut dyn FnMut(&Progress),
    samples: Vec<Sample>,
    windows: WindowLog,
    fault: Option<String>,
}

impl Sampler<'_, '_> {
    fn sample(&mut self) {
        let targets =
            if self.remote { self.target_set.statistics(self.own) } else { Ok(Vec::new()) };
        let machine = Machine::read();
        let time_s = monotonic_time().as_secs_f64();
        let usage = Usage::of_this_thread();
        match targets {
            Ok(targets) => self.samples.push(Sample { time_s, usage, machine, targets }),
            Err(error) => self.fault = Some(error),
        }
    }
}

impl RunObserver for Sampler<'_, '_> {
    fn progress(&mut self, progress: &Progress) {
        (self.progress)(progress);
        self.windows.progress(progress);
    }

    fn measurement_begins(&mut self) {
        self.sample();
    }

    fn measurement_ends(&mut self) {
        self.sample();
    }
}

/// Keeps the windows of a load.
#[derive(Debug, Default)]
struct WindowLog(Vec<Window>);

impl RunObserver for WindowLog {
    fn progress(&mut self, progress: &Progress) {
        if progress.phase == Phase::Check || self.0.len() == WINDOWS_MAX {
            return;
        }
        self.0.push(Window {
            at_s: (progress.elapsed.as_secs_f64() * 1e3).round() / 1e3,
            iops: (progress.read_iops + progress.write_iops).round(),
            p99_ns: progress.p99_ns,
            ramp: progress.phase == Phase::Ramp,
        });
    }
}

/// What a load did, and its windows.
struct LoadResult {
    result: RunResult,
    windows: Vec<Window>,
    /// What each machine did, if agents drove it.
    parts: Vec<Part>,
    /// What is wrong if they did not count at the same time.
    apart: Option<String>,
}

/// The result of one load.
pub(super) struct LoadOutcome {
    pub(super) result: RunResult,
    pub(super) name: String,
    pub(super) identity: String,
    pub(super) record: Record,
}

/// How a step is measured.
pub(super) struct MeasureOptions<'a> {
    pub(super) measure: &'a Measure,
    pub(super) study: &'a str,
    /// Whether to wait for steady state first.
    pub(super) settle: bool,
    pub(super) stop: &'a AtomicBool,
    /// The probes of the raw link.
    pub(super) link: &'a [LinkProbe],
    /// What the target's machine does without a load.
    pub(super) idle: Option<IdleRate>,
}

/// Measures a step: a record for each of its loads.
///
/// # Errors
/// One sentence with the reason why it could not be measured.
pub(super) fn measure(
    options: &MeasureOptions<'_>,
    deployment: &Deployment,
    target_set: &mut TargetSet<'_>,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Vec<LoadOutcome>, String> {
    target_set.arrange(&deployment.targets, options.stop)?;
    let _aside = Aside::of(&measured_cpus(deployment));
    let own = !deployment.targets.is_empty();
    let remote = deployment.loads.iter().any(|load| load.place.is_remote());
    let open = |load: &Load| target_set.load_device(load, options.stop);
    let load_devices =
        deployment.loads.iter().map(open).collect::<Result<Vec<LoadDevice>, String>>()?;
    let mut settled = None;
    // SPDK's perf says nothing while it runs.
    let speaks = |load: &&Load| load.host.software != Software::Spdk;
    if let (true, Some(load), Some(load_device)) =
        (options.settle, deployment.loads.first().filter(speaks), load_devices.first())
    {
        settled = Some(await_steady(options, load, load_device, progress)?);
    }
    let before = if remote { target_set.statistics(own)? } else { Vec::new() };
    let mut sampler = Sampler {
        target_set,
        own,
        remote,
        progress,
        samples: Vec::new(),
        windows: WindowLog::default(),
        fault: None,
    };
    let results = run_loads(options, deployment, &load_devices, &mut sampler)?;
    let Sampler { samples, fault, .. } = sampler;
    if let Some(fault) = fault {
        return Err(fault);
    }
    let described: Vec<DeviceDescription> =
        load_devices.iter().map(DeviceDescription::of).collect();
    for load_device in load_devices {
        load_device.close()?;
    }
    let after = if remote { target_set.statistics(own)? } else { Vec::new() };
    let all = since(&after, &before);
    let [begin, end] = &samples[..] else {
        return Err("it ended before measurement began".to_owned());
    };
    let step = Step { options, deployment, begin, end, all: &all, settled };
    let mut measured = step.records(target_set, results, described);
    void_broken(deployment, target_set, &all, &mut measured);
    Ok(measured)
}

/// The processors of all measured threads; none if some of them are not pinned, or if a load is
/// another program, which chooses its processors among those of this thread.
fn measured_cpus(deployment: &Deployment) -> Vec<usize> {
    let loads = deployment.loads.iter().map(|load| &load.job.cpus);
    let all: Vec<&Vec<usize>> =
        loads.chain(deployment.targets.iter().map(|target| &target.cpus)).collect();
    let is_own = |load: &Load| load.host.software == Software::Weft;
    let is_known = deployment.loads.iter().all(is_own) && all.iter().all(|cpus| !cpus.is_empty());
    all.into_iter().filter(|_| is_known).flatten().copied().collect()
}

/// What all loads of a step have in common.
#[derive(Clone, Copy)]
struct Step<'a> {
    options: &'a MeasureOptions<'a>,
    deployment: &'a Deployment,
    begin: &'a Sample,
    end: &'a Sample,
    all: &'a [Option<Statistics>],
    settled: Option<bool>,
}

impl Step<'_> {
    /// The record of each load.
    fn records(
        self,
        target_set: &TargetSet<'_>,
        results: Vec<LoadResult>,
        described: Vec<DeviceDescription>,
    ) -> Vec<LoadOutcome> {
        let mut measured = Vec::new();
        let mut machines = Vec::new();
        for ((load, ran), device) in self.deployment.loads.iter().zip(results).zip(described) {
            let LoadResult { result, windows, parts, apart } = ran;
            let target = target_set.target_of(&load.place);
            let context =
                Context { step: self, load, target, device: &device, parts: &parts, apart };
            let mut record = context.record(&result);
            record.windows = windows;
            machines.push(parts.into_iter().map(|part| part.boot_id).collect());
            measured.push(LoadOutcome {
                result,
                name: device.name,
                identity: device.identity,
                record,
            });
        }
        self.mark_disturbed(target_set, machines, &mut measured);
        measured
    }

    /// Marks the records whose threads did not get their processors.
    fn mark_disturbed(
        self,
        target_set: &TargetSet<'_>,
        machines: Vec<Vec<String>>,
        measured: &mut [LoadOutcome],
    ) {
        let loads = &self.deployment.loads;
        let is_network = |load: &Load| matches!(load.place, Place::Network(_));
        let is_beside_network = loads.iter().any(is_network);
        let both = loads.iter().zip(measured).zip(machines);
        let mut beside: Vec<Beside<'_>> = both
            .map(|((load, LoadOutcome { result, record, .. }), machines)| {
                let total = result.total();
                let mut latency = total.read.latency;
                latency.add(&total.write.latency);
                let target = target_set.target_of(&load.place);
                let spec = target.and_then(|target| self.deployment.targets.get(target));
                Beside {
                    record,
                    machines,
                    target,
                    p99_s: latency.percentile_ns(99.0).map(|ns| ns as f64 / 1e9),
                    is_alone: disturbed::is_alone(load, spec),
                    is_beside_network,
                }
            })
            .collect();
        disturbed::mark(&mut beside);
    }
}

/// What each target counted between two readings; nothing of those that report nothing.
fn since(after: &[Option<Statistics>], before: &[Option<Statistics>]) -> Vec<Option<Statistics>> {
    let both = after.iter().zip(before);
    both.map(|(after, before)| Some(after.as_ref()?.since(before.as_ref()?))).collect()
}

/// What is kept of a load's device when it is closed.
struct DeviceDescription {
    name: String,
    identity: String,
    nsid: u32,
    connection: Option<Connection>,
}

impl DeviceDescription {
    fn of(device: &LoadDevice) -> Self {
        Self {
            name: device.name.clone(),
            identity: device.identity.clone(),
            nsid: device.nsid,
            connection: device.connection.clone(),
        }
    }
}

/// Runs the loads side by side; `sampler` observes the first one.
fn run_loads(
    options: &MeasureOptions<'_>,
    deployment: &Deployment,
    load_devices: &[LoadDevice],
    sampler: &mut Sampler<'_, '_>,
) -> Result<Vec<LoadResult>, String> {
    let stop = options.stop;
    let agents: Vec<_> = load_devices.iter().filter_map(LoadDevice::driven_elsewhere).collect();
    if let (true, [load, beside]) = (agents.len() == load_devices.len(), &deployment.loads[..]) {
        return run_tenants(&agents, [&load.job, &beside.job], stop, sampler);
    }
    let outcomes = thread::scope(|scope| {
        let mut beside = Vec::new();
        for (load, load_device) in deployment.loads.iter().zip(load_devices).skip(1) {
            beside.push(scope.spawn(move || {
                let mut log = WindowLog::default();
                (load_device.run(&load.job, stop, &mut log), log)
            }));
        }
        let first = deployment.loads.first().zip(load_devices.first());
        let first = first.map(|(load, load_device)| {
            let result = load_device.run(&load.job, stop, sampler);
            (result, std::mem::take(&mut sampler.windows))
        });
        let beside = beside.into_iter().map(|thread| thread.join().ok());
        first.into_iter().map(Some).chain(beside).collect::<Vec<_>>()
    });
    let mut results = Vec::new();
    for (outcome, load_device) in outcomes.into_iter().zip(load_devices) {
        let (result, log) = outcome.ok_or_else(|| "the load's thread panicked".to_owned())?;
        let result = result?;
        if let Some(error) = result.total().error {
            return Err(error);
        }
        let parts = load_device.parts();
        let apart = apart(&parts);
        results.push(LoadResult { result, windows: log.0, parts, apart });
    }
    Ok(results)
}

/// Runs the loads of two tenants, which agents drive, and which have to count at the same time.
fn run_tenants(
    agents: &[&Elsewhere],
    jobs: [&Job; 2],
    stop: &AtomicBool,
    sampler: &mut Sampler<'_, '_>,
) -> Result<Vec<LoadResult>, String> {
    let mut log = WindowLog::default();
    let loads: Vec<_> = agents.iter().copied().zip(jobs).collect();
    let results = run_beside(&loads, stop, &mut [&mut *sampler, &mut log])?;
    let all: Vec<Part> = agents.iter().flat_map(|agents| agents.parts()).collect();
    if let Some(error) = results.iter().find_map(|result| result.total().error) {
        return Err(error);
    }
    let windows = [std::mem::take(&mut sampler.windows).0, log.0];
    let mut ran = Vec::new();
    for ((result, windows), agents) in results.into_iter().zip(windows).zip(agents) {
        ran.push(LoadResult { result, windows, parts: agents.parts(), apart: apart(&all) });
    }
    Ok(ran)
}

/// Runs a load until its IOPS are steady, or as long as the plan allows. Returns whether they are
/// steady.
fn await_steady(
    options: &MeasureOptions<'_>,
    load: &Load,
    load_device: &LoadDevice,
    progress: &mut dyn FnMut(&Progress),
) -> Result<bool, String> {
    let mut job = load.job.clone();
    job.name = format!("settle: {}", job.name);
    job.runtime = Some(options.measure.settle);
    let enough = AtomicBool::new(false);
    let mut awaiting = SteadyStateDetector::default();
    let mut steady = false;
    let mut observe = |seen: &Progress| {
        progress(seen);
        let iops = seen.read_iops + seen.write_iops;
        steady |= awaiting.take(iops, WINDOW.as_secs_f64(), options.measure);
        if steady || options.stop.load(Ordering::Relaxed) {
            enough.store(true, Ordering::Relaxed);
        }
    };
    let result = load_device.run(&job, &enough, &mut Windows(&mut observe))?;
    match result.total().error {
        Some(error) => Err(error),
        None => Ok(steady),
    }
}

/// The input of a record.
struct Context<'a> {
    step: Step<'a>,
    load: &'a Load,
    target: Option<usize>,
    device: &'a DeviceDescription,
    parts: &'a [Part],
    apart: Option<String>,
}

impl Context<'_> {
    fn record(&self, result: &RunResult) -> Record {
        let cell = &self.load.cell;
        let mut record =
            Record::new(self.step.options.study, &cell.id, cell.role, cell.configuration.clone());
        let total = result.total();
        record.read = direction(&total.read);
        record.write = direction(&total.write);
        record.host = Some(self.host(result));
        record.connection.clone_from(&self.device.connection);
        record.target = self.target_side(record.host.as_ref());
        record.inside_target = matches!(self.load.place, Place::Inside { .. });
        record.parts = parts_of(self.parts);
        let rates: Vec<f64> = record.parts.iter().map(LoadPart::iops).collect();
        if let (Some(index), 2..) = (fairness(&rates), rates.len()) {
            record.values.insert(number::FAIRNESS.to_owned(), index);
        }
        self.values(&mut record, result);
        self.marks(&mut record, &total.read.window_iops, &total.write.window_iops);
        record.mark_above_floor(self.step.options.link);
        let is_empty = record.directions().all(|direction| direction.requests == 0);
        let empty = is_empty.then(|| "no request ended in the measured time".to_owned());
        let wrong = mislabelled(&record).or_else(|| jumped(self.parts)).or(empty);
        if let Some(reason) = wrong.or_else(|| self.apart.clone()) {
            record.status = Status::Void { reason };
        }
        record
    }

    fn host(&self, result: &RunResult) -> Side {
        let lasted = self.parts.iter().map(|part| part.lasted).max();
        let machine = match lasted {
            Some(_) => machines(self.parts),
            None => side::machine(&self.step.end.machine.since(&self.step.begin.machine)),
        };
        let used = self.step.end.usage.since(&self.step.begin.usage);
        let seconds = self.step.end.time_s - self.step.begin.time_s;
        Side {
            seconds: lasted.map_or(seconds, |lasted| lasted.as_secs_f64()),
            threads: side::workers(result),
            machine,
            cpus: self.load.job.cpus.clone(),
            others_s: None,
            lost_s: None,
            interruptions: 0,
            collector: Some(side::thread("collector".to_owned(), &used, seconds)),
            served: Vec::new(),
        }
    }

    /// The target's statistics of the measured time.
    fn counted(&self) -> Option<Statistics> {
        let index = self.target?;
        let of = |sample: &Sample| sample.targets.get(index).cloned().flatten();
        Some(of(self.step.end)?.since(&of(self.step.begin)?))
    }

    /// Whether its target is one that counts nothing of its own.
    fn counts_nothing(&self) -> bool {
        let spec = self.target.and_then(|target| self.step.deployment.targets.get(target));
        spec.is_some_and(|spec| spec.software != Software::Weft)
    }

    fn target_side(&self, host: Option<&Side>) -> Option<Side> {
        let counted = self.counted()?;
        if !self.counts_nothing() {
            return Some(side::target(&counted, self.target.unwrap_or(0)));
        }
        let ends = self.device.connection.as_ref();
        let load = host.filter(|_| ends.is_none_or(Connection::is_within_a_machine));
        Some(side::of_a_machine(&counted, self.step.options.idle.as_ref()?, load))
    }

    fn values(&self, record: &mut Record, result: &RunResult) {
        let mut set = |name: &str, value: f64| {
            record.values.insert(name.to_owned(), value);
        };
        let sleeps = self.load.job.polling == Polling::Sleep;
        // SPDK's perf polls, and does not say what of that was work.
        if self.load.host.software != Software::Spdk {
            set(number::GENERATOR_SHARE, side::generator_share(result, sleeps));
        }
        if let Some(counted) = self.counted().filter(|_| !self.counts_nothing()) {
            let spec = self.target.and_then(|target| self.step.deployment.targets.get(target));
            let sleeps = spec.is_some_and(|spec| spec.idle_poll == Some(Duration::ZERO));
            set(number::TARGET_SHARE, side::target_share(&counted, sleeps));
        }
        let submitted: u64 = result.lanes.iter().map(|(_, lane)| lane.submitted).sum();
        set(number::REQUESTS_ALL, submitted as f64);
        let target =
            self.target.and_then(|index| self.step.all.get(index)).and_then(Option::as_ref);
        if let Some(all) = target.filter(|_| !self.counts_nothing()) {
            let served: u64 = side::served(all, 0)
                .iter()
                .filter(|served| served.counted.nsid == self.device.nsid)
                .map(|served| served.counted.commands())
                .sum();
            set(number::SERVED_ALL, served as f64);
        }
        if let Some(offered) = self.offered() {
            set(number::OFFERED_IOPS, offered);
        }
    }

    /// The requested rate of all copies on all machines.
    fn offered(&self) -> Option<f64> {
        let rate = self.load.job.rate?;
        Some(rate.iops * f64::from(self.load.job.copies) * self.parts.len().max(1) as f64)
    }

    fn marks(&self, record: &mut Record, reads: &[f64], writes: &[f64]) {
        if self.step.deployment.shared {
            record.mark(Mark::SharedCores);
        }
        let pattern = self.load.job.pattern;
        let is_mix = pattern.reads() && pattern.writes();
        if is_mix && self.load.host.software == Software::Spdk {
            record.mark(Mark::MixedTogether);
        }
        if self.load.place.is_remote() {
            let given = matches!(self.load.place, Place::Given { .. });
            let connection = self.device.connection.as_ref();
            let here = !given && self.parts.is_empty();
            if here || connection.is_some_and(Connection::is_within_a_machine) {
                record.mark(Mark::Loopback);
            }
            if given {
                record.mark(Mark::DeviceUnknown);
            }
            if record.target.is_none() && self.target.is_some() {
                record.mark(Mark::TargetUnknown);
            } else if self.counts_nothing() {
                record.mark(Mark::TargetMachine);
            }
        }
        let generator = record.values.get(number::GENERATOR_SHARE).copied().unwrap_or(0.0);
        let target = record.values.get(number::TARGET_SHARE).copied().unwrap_or(0.0);
        if generator >= FULL {
            record.mark(Mark::GeneratorFull);
        }
        if record.role == Role::Saturation {
            let shared = crate::results::text(&record.configuration, key::SHARED);
            let filled = match shared {
                "target" => target,
                "host" => generator,
                // The capacity of both together: whichever is full first.
                _ => generator.max(target),
            };
            if filled < FULL {
                record.mark(Mark::LoadLimited);
            }
        }
        if let Some(offered) = self.offered() {
            record.mark(Mark::OpenLoop);
            if record.role == Role::Background && !is_served(offered, record.iops()) {
                record.mark(Mark::BackgroundShort);
            }
        }
        self.mark_steadiness(record, &sums(reads, writes));
    }

    fn mark_steadiness(&self, record: &mut Record, windows: &[f64]) {
        let steadiness = Steadiness::of(windows, WINDOW.as_secs_f64());
        if let Some(Steadiness { slope_percent_per_s, deviation_percent }) = steadiness {
            record.values.insert(number::SLOPE_PERCENT_PER_S.to_owned(), slope_percent_per_s);
            record.values.insert(number::DEVIATION_PERCENT.to_owned(), deviation_percent);
        }
        let measure = self.step.options.measure;
        if measure.settle.is_zero() || self.load.host.software == Software::Spdk {
            record.mark(Mark::NotAwaited);
        } else if self.step.settled == Some(false)
            || steadiness.is_some_and(|steadiness| !steadiness.is_steady(measure))
        {
            record.mark(Mark::NotSettled);
        }
    }
}

/// What is wrong if machines did not count at the same time.
fn apart(parts: &[Part]) -> Option<String> {
    let share = overlap(parts);
    (!parts.is_empty() && share < OVERLAP_MIN).then(|| {
        format!(
            "its machines counted together for {:.1} % of the measured time, and {} % is the least",
            share * 100.0,
            OVERLAP_MIN * 100.0
        )
    })
}

/// What is wrong if the connection spoke another protocol than the label says.
fn mislabelled(record: &Record) -> Option<String> {
    let label = crate::results::text(&record.configuration, key::TRANSPORT);
    let expected = protocol(label).map(protocol_name);
    let spoken = record.connection.as_ref().map(|connection| connection.protocol.as_str());
    let link = record.connection.as_ref().map_or("", |connection| &connection.link);
    if spoken == expected && link != site::link_of(label) {
        return Some(format!("the cell's transport is {label}, and its connection is not on it"));
    }
    (spoken != expected).then(|| {
        let spoken = spoken.unwrap_or("no protocol that is known");
        format!("the cell's transport is {label}, and its connection spoke {spoken}")
    })
}

/// IOPS of each window, reads and writes together.
fn sums(reads: &[f64], writes: &[f64]) -> Vec<f64> {
    let count = reads.len().max(writes.len());
    let of = |windows: &[f64], index: usize| windows.get(index).copied().unwrap_or(0.0);
    (0..count).map(|index| of(reads, index) + of(writes, index)).collect()
}

fn direction(of: &DirectionResult) -> Option<Direction> {
    (of.requests > 0).then(|| Direction {
        requests: of.requests,
        bytes: of.bytes,
        seconds: of.measured.as_secs_f64(),
        latency: LatencyRecord::of(&of.latency),
        completion: of.completion.as_ref().map(LatencyRecord::of),
        window_iops: of.window_iops.iter().map(|iops| iops.round()).collect(),
    })
}

/// Marks the records of a step as void if its target did not serve exactly the requests of its
/// loads, on the right namespaces and poll groups.
fn void_broken(
    deployment: &Deployment,
    target_set: &TargetSet<'_>,
    all: &[Option<Statistics>],
    measured: &mut [LoadOutcome],
) {
    let groups = Groups::of(measured);
    // A target that others use as well is checked only where the result depends on it.
    let given = deployment.targets.is_empty();
    // The kernel's target does not count, and its host splits and joins requests.
    let counts = |load: &Load| load.host.software == Software::Weft;
    let counted = deployment.targets.iter().all(|spec| spec.software == Software::Weft)
        && deployment.loads.iter().all(counts);
    if (given || !counted) && groups == Groups::Any {
        return;
    }
    let mut expected: BTreeMap<(usize, u32), u64> = BTreeMap::new();
    let mut unknown = false;
    for (load, of) in deployment.loads.iter().zip(measured.iter()) {
        let Some(target) = target_set.target_of(&load.place) else { continue };
        unknown |= all.get(target).is_none_or(Option::is_none);
        let submitted = of.result.lanes.iter().map(|(_, lane)| lane.submitted).sum::<u64>();
        *expected.entry((target, of.nsid(load))).or_default() += submitted;
    }
    let reason = if unknown {
        Some(
            "the target has no control connection, so its served requests cannot be checked"
                .to_owned(),
        )
    } else {
        broken(all, &expected).or_else(|| wrong_groups(all, groups))
    };
    if let Some(reason) = reason {
        for of in measured {
            of.record.status = Status::Void { reason: reason.clone() };
        }
    }
}

/// Which poll groups have to serve the loads of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Groups {
    /// Any number of them.
    Any,
    /// One and the same: the processor under test is the target's.
    Same,
    /// One each, and different ones: the tenants share a processor of the host only.
    Different,
}

impl Groups {
    fn of(measured: &[LoadOutcome]) -> Self {
        let shared = |record: &Record, side: &str| {
            crate::results::text(&record.configuration, key::SHARED) == side
        };
        let role = |of: &LoadOutcome, roles: &[Role]| roles.contains(&of.record.role);
        let tenants = [Role::Alone, Role::Foreground, Role::Background];
        let mut records = measured.iter();
        if records.any(|of| role(of, &tenants) && shared(&of.record, "host")) {
            return Self::Different;
        }
        let mut records = measured.iter();
        let one = |of: &LoadOutcome| role(of, &tenants) || role(of, &[Role::Saturation]);
        match records.any(|of| one(of) && shared(&of.record, "target")) {
            true => Self::Same,
            false => Self::Any,
        }
    }
}

impl LoadOutcome {
    /// The namespace of the load.
    fn nsid(&self, load: &Load) -> u32 {
        match load.place {
            Place::Own { nsid, .. } => nsid,
            _ => {
                self.name.rsplit_once("nsid=").and_then(|(_, nsid)| nsid.parse().ok()).unwrap_or(1)
            }
        }
    }
}

/// The violated condition, if any: every request of the host was served on its namespace, and
/// nothing else was served.
fn broken(all: &[Option<Statistics>], expected: &BTreeMap<(usize, u32), u64>) -> Option<String> {
    for (target, statistics) in all.iter().enumerate() {
        let Some(statistics) = statistics else { continue };
        let mut found: BTreeMap<u32, u64> = BTreeMap::new();
        for served in side::served(statistics, target) {
            *found.entry(served.counted.nsid).or_default() += served.counted.commands();
        }
        found.retain(|_, commands| *commands > 0);
        for (nsid, commands) in &found {
            let Some(submitted) = expected.get(&(target, *nsid)) else {
                return Some(format!(
                    "namespace {nsid} of target {target} served {commands} commands that no load \
                     of this step sent"
                ));
            };
            if submitted != commands {
                return Some(format!(
                    "the host completed {submitted} requests on namespace {nsid} of target \
                     {target}, which served {commands}"
                ));
            }
        }
        let missing = expected
            .iter()
            .find(|((of, nsid), count)| *of == target && **count > 0 && !found.contains_key(nsid));
        if let Some(((_, nsid), count)) = missing {
            return Some(format!(
                "the host completed {count} requests on namespace {nsid} of target {target}, \
                 which served none"
            ));
        }
    }
    None
}

/// What is wrong with the poll groups that served, by what the targets report.
fn wrong_groups(all: &[Option<Statistics>], groups: Groups) -> Option<String> {
    if groups == Groups::Any {
        return None;
    }
    let mut served: Vec<NamespaceCounts> = Vec::new();
    for (target, statistics) in all.iter().enumerate() {
        let of = statistics.iter().flat_map(|statistics| side::served(statistics, target));
        served.extend(of.filter(|served| served.counted.commands() > 0));
    }
    let name =
        |served: &NamespaceCounts| format!("group {} of target {}", served.group, served.target);
    let pairs = served.iter().enumerate();
    let mut pairs =
        pairs.flat_map(|(at, one)| served.iter().skip(at + 1).map(move |two| (one, two)));
    pairs.find_map(|(one, two)| {
        let same_group = (one.target, one.group) == (two.target, two.group);
        let same_namespace = (one.target, one.counted.nsid) == (two.target, two.counted.nsid);
        let (first, second) = (name(one), name(two));
        match groups {
            Groups::Same if !same_group => Some(format!(
                "{first} and {second} served the loads, whose processor has to be that of one group"
            )),
            Groups::Different if same_namespace => {
                Some(format!("{first} and {second} served one tenant, which has one group"))
            }
            Groups::Different if same_group => Some(format!(
                "{first} served both tenants, which have to share the host's processor only"
            )),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Configuration;
    use weft_statistics::{Group, NamespaceStatistics as MachineCounts};

    fn statistics(groups: &[&[(u32, u64)]]) -> Option<Statistics> {
        let groups = groups.iter().enumerate().map(|(group, served)| Group {
            group,
            served: served
                .iter()
                .map(|(nsid, reads)| MachineCounts {
                    nsid: *nsid,
                    reads: *reads,
                    ..MachineCounts::default()
                })
                .collect(),
            ..Group::default()
        });
        Some(Statistics { groups: groups.collect(), ..Statistics::default() })
    }

    fn expected(of: &[((usize, u32), u64)]) -> BTreeMap<(usize, u32), u64> {
        of.iter().copied().collect()
    }

    #[test]
    fn windows_of_ramp_and_measured_time_are_kept_and_those_of_a_check_are_not() {
        let mut log = WindowLog::default();
        for (phase, ms) in [(Phase::Ramp, 500), (Phase::Run, 1_000), (Phase::Check, 1_500)] {
            log.progress(&Progress {
                phase,
                elapsed: Duration::from_millis(ms),
                total: None,
                left: None,
                read_iops: 900.0,
                write_iops: 100.4,
                trim_iops: 0.0,
                bytes_per_second: 4e6,
                p99_ns: Some(ms),
                faults: 0,
            });
        }
        let window = |at_s, p99, ramp| Window { at_s, iops: 1_000.0, p99_ns: Some(p99), ramp };
        assert_eq!(log.0, [window(0.5, 500, true), window(1.0, 1_000, false)]);
    }

    #[test]
    fn served_requests_match_the_submitted_ones() {
        let all = [statistics(&[&[(1, 100), (2, 40)]])];
        let good = expected(&[((0, 1), 100), ((0, 2), 40)]);
        assert_eq!(broken(&all, &good), None);
        let two = [statistics(&[&[(1, 100)]]), statistics(&[&[(1, 40)]])];
        assert_eq!(broken(&two, &expected(&[((0, 1), 100), ((1, 1), 40)])), None);
    }

    #[test]
    fn violated_conditions_are_reported() {
        let told = |all: &[Option<Statistics>], expected: &BTreeMap<(usize, u32), u64>| {
            broken(all, expected).expect("broken")
        };
        let all = [statistics(&[&[(1, 99), (2, 40)]])];
        let both = expected(&[((0, 1), 100), ((0, 2), 40)]);
        assert!(told(&all, &both).contains("completed 100 requests on namespace 1"));
        let only = expected(&[((0, 1), 99)]);
        assert!(told(&all, &only).contains("no load"));
        let spread = [statistics(&[&[(1, 50)], &[(1, 49)]])];
        assert_eq!(broken(&spread, &only), None, "a load of many queues may be spread");
        let none = [statistics(&[&[(1, 99), (2, 0)]])];
        let missing = expected(&[((0, 1), 99), ((0, 2), 5)]);
        assert!(told(&none, &missing).contains("served none"));
    }

    #[test]
    fn tenants_of_one_processor_are_served_by_one_group() {
        let together = [statistics(&[&[(1, 100), (2, 40)], &[]])];
        assert_eq!(wrong_groups(&together, Groups::Same), None);
        assert_eq!(wrong_groups(&together, Groups::Any), None);
        let apart = [statistics(&[&[(1, 100)], &[(2, 40)]])];
        let why = wrong_groups(&apart, Groups::Same).expect("two groups");
        let told = "group 0 of target 0 and group 1 of target 0 served the loads";
        assert!(why.starts_with(told), "{why}");
        let targets = [statistics(&[&[(1, 100)]]), statistics(&[&[(1, 40)]])];
        assert!(wrong_groups(&targets, Groups::Same).is_some(), "two targets are two groups");
        assert_eq!(wrong_groups(&apart, Groups::Any), None);
    }

    #[test]
    fn tenants_of_one_host_processor_are_served_by_different_groups() {
        let apart = [statistics(&[&[(1, 100)], &[(2, 40)]])];
        assert_eq!(wrong_groups(&apart, Groups::Different), None);
        let targets = [statistics(&[&[(1, 100)]]), statistics(&[&[(1, 40)]])];
        assert_eq!(wrong_groups(&targets, Groups::Different), None);
        let together = [statistics(&[&[(1, 100), (2, 40)]])];
        let why = wrong_groups(&together, Groups::Different).expect("one group");
        assert!(why.contains("group 0 of target 0 served both tenants"), "{why}");
        let spread = [statistics(&[&[(1, 60)], &[(1, 40)], &[(2, 9)]])];
        let why = wrong_groups(&spread, Groups::Different).expect("a tenant on two groups");
        assert!(why.contains("served one tenant"), "{why}");
    }

    #[test]
    fn the_shared_side_decides_which_groups_may_serve() {
        let of = |role: Role, shared: &str| {
            let configuration = Configuration::from([(key::SHARED.to_owned(), shared.into())]);
            let record = Record::new("mine", "x", role, configuration);
            let (name, identity) = (String::new(), String::new());
            Groups::of(&[LoadOutcome { result: RunResult::default(), name, identity, record }])
        };
        assert_eq!(of(Role::Foreground, "host"), Groups::Different);
        assert_eq!(of(Role::Alone, "target"), Groups::Same);
        assert_eq!(of(Role::Saturation, "target"), Groups::Same);
        assert_eq!(of(Role::Saturation, "host"), Groups::Any, "every processor of the target");
        assert_eq!(of(Role::Plain, ""), Groups::Any);
    }
}
