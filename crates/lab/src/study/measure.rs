//! One step: its loads run side by side, both sides are sampled while it counts, and what it comes
//! to is checked and written down.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use weft_reactor::monotonic_time;
use weft_rpc::{machine::Machine, statistics::Statistics};

use super::{
    fleet::{Fleet, Seat},
    plan::Measure,
    scene::{Load, Scene},
    side,
    steady::{Awaiting, Steadiness},
};
use crate::{
    DirectionResult, Onlooker, Polling, Progress, RunResult,
    limits::WINDOW,
    results::{Direction, LatencyRecord, Mark, Record, Role, Served, Side, Status, number},
    run_watched,
};

/// A processor that is busy for at least this share of the time is full.
const FULL: f64 = 0.95;

/// A background that reaches at least this share of its rate has reached it.
const REACHED: f64 = 0.98;

/// A reading of everything at one moment.
struct Sample {
    time_s: f64,
    machine: Machine,
    targets: Vec<Option<Statistics>>,
}

/// Reads both sides when counting begins and when it ends, and passes progress on.
struct Sampler<'a, 'b> {
    fleet: &'a mut Fleet<'b>,
    own: bool,
    /// Whether any of the loads has a target.
    remote: bool,
    progress: &'a mut dyn FnMut(&Progress),
    samples: Vec<Sample>,
    fault: Option<String>,
}

impl Sampler<'_, '_> {
    fn sample(&mut self) {
        let targets = if self.remote { self.fleet.statistics(self.own) } else { Ok(Vec::new()) };
        let machine = Machine::read();
        let time_s = monotonic_time().as_secs_f64();
        match targets {
            Ok(targets) => self.samples.push(Sample { time_s, machine, targets }),
            Err(error) => self.fault = Some(error),
        }
    }
}

impl Onlooker for Sampler<'_, '_> {
    fn progress(&mut self, progress: &Progress) {
        (self.progress)(progress);
    }

    fn counting_begins(&mut self) {
        self.sample();
    }

    fn counting_ends(&mut self) {
        self.sample();
    }
}

/// The background's onlooker.
struct Nobody;

impl Onlooker for Nobody {}

/// What one load came to.
pub(super) struct Measured {
    pub(super) result: RunResult,
    pub(super) name: String,
    pub(super) identity: String,
    pub(super) record: Record,
}

/// How a step is to be measured.
pub(super) struct Terms<'a> {
    pub(super) measure: &'a Measure,
    pub(super) study: &'a str,
    /// Wait for steady state first.
    pub(super) settle: bool,
    pub(super) stop: &'a AtomicBool,
    /// The target is on this machine.
    pub(super) loopback: bool,
}

/// Measures a step: a record for each of its loads.
///
/// # Errors
/// One sentence that says why it could not be measured.
pub(super) fn measure(
    terms: &Terms<'_>,
    scene: &Scene,
    fleet: &mut Fleet<'_>,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Vec<Measured>, String> {
    fleet.arrange(&scene.orders, terms.stop)?;
    let own = !scene.orders.is_empty();
    let remote = scene.loads.iter().any(|load| load.place.is_remote());
    let mut seats = Vec::new();
    for load in &scene.loads {
        seats.push(fleet.seat(load, terms.stop)?);
    }
    let mut settled = None;
    if let (true, Some(load), Some(seat)) = (terms.settle, scene.loads.first(), seats.first()) {
        settled = Some(await_steady(terms, load, seat, progress)?);
    }
    let before = if remote { fleet.statistics(own)? } else { Vec::new() };
    let mut sampler = Sampler { fleet, own, remote, progress, samples: Vec::new(), fault: None };
    let results = run_loads(terms, scene, &seats, &mut sampler)?;
    let Sampler { samples, fault, .. } = sampler;
    if let Some(fault) = fault {
        return Err(fault);
    }
    let described: Vec<(String, String, u32)> =
        seats.iter().map(|s| (s.name.clone(), s.identity.clone(), s.nsid)).collect();
    for seat in seats {
        seat.close()?;
    }
    let after = if remote { fleet.statistics(own)? } else { Vec::new() };
    let all: Vec<Option<Statistics>> = after
        .iter()
        .zip(&before)
        .map(|(after, before)| Some(after.as_ref()?.since(before.as_ref()?)))
        .collect();
    let [begin, end] = &samples[..] else {
        return Err("it ended before it began to count".to_owned());
    };
    let mut measured = Vec::new();
    for ((load, result), (name, identity, nsid)) in scene.loads.iter().zip(results).zip(described) {
        let target = fleet.target_of(&load.place);
        let context = Context { terms, scene, load, target, nsid, begin, end, all: &all, settled };
        let record = context.record(&result);
        measured.push(Measured { result, name, identity, record });
    }
    void_broken(scene, fleet, &all, &mut measured);
    Ok(measured)
}

/// Runs the loads side by side; the first one's onlooker is `sampler`.
fn run_loads(
    terms: &Terms<'_>,
    scene: &Scene,
    seats: &[Seat],
    sampler: &mut Sampler<'_, '_>,
) -> Result<Vec<RunResult>, String> {
    let stop = terms.stop;
    let outcomes = thread::scope(|scope| {
        let mut beside = Vec::new();
        for (load, seat) in scene.loads.iter().zip(seats).skip(1) {
            beside.push(
                scope.spawn(move || run_watched(&load.job, &seat.factory, stop, &mut Nobody)),
            );
        }
        let first = scene.loads.first().zip(seats.first());
        let first = first.map(|(load, seat)| run_watched(&load.job, &seat.factory, stop, sampler));
        let beside = beside.into_iter().map(|thread| thread.join().ok());
        first.into_iter().map(Some).chain(beside).collect::<Vec<_>>()
    });
    let mut results = Vec::new();
    for outcome in outcomes {
        let result = outcome
            .ok_or_else(|| "the load's thread failed".to_owned())?
            .map_err(|error| error.to_string())?;
        if let Some(error) = result.total().error {
            return Err(error);
        }
        results.push(result);
    }
    Ok(results)
}

/// Runs a load until its IOPS are steady, or no longer than the plan allows; whether they became
/// so.
fn await_steady(
    terms: &Terms<'_>,
    load: &Load,
    seat: &Seat,
    progress: &mut dyn FnMut(&Progress),
) -> Result<bool, String> {
    let mut job = load.job.clone();
    job.name = format!("settle: {}", job.name);
    job.runtime = Some(terms.measure.settle);
    let enough = AtomicBool::new(false);
    let mut awaiting = Awaiting::default();
    let mut steady = false;
    let mut observe = |seen: &Progress| {
        progress(seen);
        let iops = seen.read_iops + seen.write_iops;
        steady |= awaiting.take(iops, WINDOW.as_secs_f64(), terms.measure);
        if steady || terms.stop.load(Ordering::Relaxed) {
            enough.store(true, Ordering::Relaxed);
        }
    };
    let result = crate::run(&job, &seat.factory, &enough, &mut observe)
        .map_err(|error| error.to_string())?;
    match result.total().error {
        Some(error) => Err(error),
        None => Ok(steady),
    }
}

/// All that a record is made from.
struct Context<'a> {
    terms: &'a Terms<'a>,
    scene: &'a Scene,
    load: &'a Load,
    target: Option<usize>,
    nsid: u32,
    begin: &'a Sample,
    end: &'a Sample,
    all: &'a [Option<Statistics>],
    settled: Option<bool>,
}

impl Context<'_> {
    fn record(&self, result: &RunResult) -> Record {
        let cell = &self.load.cell;
        let mut record =
            Record::new(self.terms.study, &cell.id, cell.role, cell.configuration.clone());
        let total = result.total();
        record.read = direction(&total.read);
        record.write = direction(&total.write);
        record.host = Some(self.host(result));
        record.target = self.target_side();
        self.values(&mut record, result);
        self.marks(&mut record, &total.read.window_iops, &total.write.window_iops);
        record
    }

    fn host(&self, result: &RunResult) -> Side {
        let machine = self.end.machine.since(&self.begin.machine);
        Side {
            seconds: self.end.time_s - self.begin.time_s,
            threads: side::workers(result),
            machine: side::machine(&machine),
            cpus: self.load.job.cpus.clone(),
            served: Vec::new(),
        }
    }

    /// What the target says about the counted time.
    fn counted(&self) -> Option<Statistics> {
        let index = self.target?;
        let of = |sample: &Sample| sample.targets.get(index).cloned().flatten();
        Some(of(self.end)?.since(&of(self.begin)?))
    }

    fn target_side(&self) -> Option<Side> {
        self.counted().map(|counted| side::target(&counted, self.target.unwrap_or(0)))
    }

    fn values(&self, record: &mut Record, result: &RunResult) {
        let mut set = |name: &str, value: f64| {
            record.values.insert(name.to_owned(), value);
        };
        let sleeps = self.load.job.polling == Polling::Sleep;
        set(number::GENERATOR_SHARE, side::generator_share(result, sleeps));
        if let Some(counted) = self.counted() {
            let order = self.target.and_then(|target| self.scene.orders.get(target));
            let sleeps = order.is_some_and(|order| order.idle_poll == Some(Duration::ZERO));
            set(number::TARGET_SHARE, side::target_share(&counted, sleeps));
        }
        let submitted: u64 = result.lanes.iter().map(|(_, lane)| lane.submitted).sum();
        set(number::REQUESTS_ALL, submitted as f64);
        let target = self.target.and_then(|index| self.all.get(index)).and_then(Option::as_ref);
        if let Some(all) = target {
            let served: u64 = side::served(all, 0)
                .iter()
                .filter(|served| served.nsid == self.nsid)
                .map(Served::commands)
                .sum();
            set(number::SERVED_ALL, served as f64);
        }
        if let Some(rate) = self.load.job.rate {
            set(number::OFFERED_IOPS, rate.iops * f64::from(self.load.job.copies));
        }
    }

    fn marks(&self, record: &mut Record, reads: &[f64], writes: &[f64]) {
        if self.scene.shared {
            record.mark(Mark::SharedCores);
        }
        if self.load.place.is_remote() {
            if self.terms.loopback {
                record.mark(Mark::Loopback);
            }
            if record.target.is_none() {
                record.mark(Mark::TargetUnknown);
            }
        }
        let generator = record.values.get(number::GENERATOR_SHARE).copied().unwrap_or(0.0);
        let target = record.values.get(number::TARGET_SHARE).copied().unwrap_or(0.0);
        if generator >= FULL {
            record.mark(Mark::GeneratorFull);
        }
        if record.role == Role::Saturation {
            let of_target =
                super::matrix::text(&record.configuration, crate::results::key::SHARED) == "target";
            let filled = if of_target { target } else { generator };
            if filled < FULL {
                record.mark(Mark::LoadLimited);
            }
        }
        if let Some(rate) = self.load.job.rate {
            record.mark(Mark::OpenLoop);
            let offered = rate.iops * f64::from(self.load.job.copies);
            if record.role == Role::Background && record.iops() < offered * REACHED {
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
        let measure = self.terms.measure;
        if measure.settle.is_zero() {
            record.mark(Mark::NotAwaited);
        } else if self.settled == Some(false)
            || steadiness.is_some_and(|steadiness| !steadiness.is_steady(measure))
        {
            record.mark(Mark::NotSettled);
        }
    }
}

/// IOPS of each window, both ways.
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

/// Voids the records of a scene whose target served something else than what was asked of it, or
/// elsewhere.
fn void_broken(
    scene: &Scene,
    fleet: &Fleet<'_>,
    all: &[Option<Statistics>],
    measured: &mut [Measured],
) {
    let tenants = measured
        .iter()
        .any(|of| matches!(of.record.role, Role::Alone | Role::Foreground | Role::Background));
    // On a target that others use as well, only what needs the invariant is held to it.
    if scene.orders.is_empty() && !tenants {
        return;
    }
    let mut expected: BTreeMap<(usize, u32), u64> = BTreeMap::new();
    let mut unknown = false;
    for (load, of) in scene.loads.iter().zip(measured.iter()) {
        let Some(target) = fleet.target_of(&load.place) else { continue };
        unknown |= all.get(target).is_none_or(Option::is_none);
        let submitted = of.result.lanes.iter().map(|(_, lane)| lane.submitted).sum::<u64>();
        *expected.entry((target, of.nsid(load))).or_default() += submitted;
    }
    let reason = if unknown {
        Some(
            "the target does not tell what it served, so the invariant cannot be checked"
                .to_owned(),
        )
    } else {
        broken(all, &expected, tenants)
    };
    if let Some(reason) = reason {
        for of in measured {
            of.record.status = Status::Void { reason: reason.clone() };
        }
    }
}

impl Measured {
    /// The namespace, as its address says.
    fn nsid(&self, load: &Load) -> u32 {
        match load.place {
            super::scene::Place::Own { nsid, .. } => nsid,
            _ => {
                self.name.rsplit_once("nsid=").and_then(|(_, nsid)| nsid.parse().ok()).unwrap_or(1)
            }
        }
    }
}

/// What does not hold: every request of the host was served, on the namespace meant for it, by one
/// poll group where tenants are told apart, and nothing else was served.
fn broken(
    all: &[Option<Statistics>],
    expected: &BTreeMap<(usize, u32), u64>,
    tenants: bool,
) -> Option<String> {
    for (target, statistics) in all.iter().enumerate() {
        let Some(statistics) = statistics else { continue };
        let mut found: BTreeMap<u32, (u64, Vec<usize>)> = BTreeMap::new();
        for served in side::served(statistics, target).iter().filter(|s| s.commands() > 0) {
            let entry = found.entry(served.nsid).or_default();
            entry.0 += served.commands();
            entry.1.push(served.group);
        }
        for (nsid, (commands, groups)) in &found {
            let Some(submitted) = expected.get(&(target, *nsid)) else {
                return Some(format!(
                    "namespace {nsid} of target {target} served {commands} commands that nobody \
                     here asked for"
                ));
            };
            if submitted != commands {
                return Some(format!(
                    "the host completed {submitted} requests on namespace {nsid} of target \
                     {target}, which served {commands}"
                ));
            }
            if tenants && groups.len() > 1 {
                return Some(format!(
                    "poll groups {groups:?} of target {target} served namespace {nsid}, which is \
                     one group's"
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

#[cfg(test)]
mod tests {
    use super::*;
    use weft_rpc::statistics::{Group, Served as Counted};

    fn statistics(groups: &[&[(u32, u64)]]) -> Option<Statistics> {
        let groups = groups.iter().enumerate().map(|(group, served)| Group {
            group,
            served: served
                .iter()
                .map(|(nsid, reads)| Counted { nsid: *nsid, reads: *reads, ..Counted::default() })
                .collect(),
            ..Group::default()
        });
        Some(Statistics { groups: groups.collect(), ..Statistics::default() })
    }

    fn expected(of: &[((usize, u32), u64)]) -> BTreeMap<(usize, u32), u64> {
        of.iter().copied().collect()
    }

    #[test]
    fn what_was_asked_is_what_was_served() {
        let all = [statistics(&[&[(1, 100), (2, 40)]])];
        let good = expected(&[((0, 1), 100), ((0, 2), 40)]);
        assert_eq!(broken(&all, &good, true), None);
        let two = [statistics(&[&[(1, 100)]]), statistics(&[&[(1, 40)]])];
        assert_eq!(broken(&two, &expected(&[((0, 1), 100), ((1, 1), 40)]), true), None);
    }

    #[test]
    fn what_breaks_the_invariant_is_told() {
        let told = |all: &[Option<Statistics>], expected: &BTreeMap<(usize, u32), u64>| {
            broken(all, expected, true).expect("broken")
        };
        let all = [statistics(&[&[(1, 99), (2, 40)]])];
        let both = expected(&[((0, 1), 100), ((0, 2), 40)]);
        assert!(told(&all, &both).contains("completed 100 requests on namespace 1"));
        let only = expected(&[((0, 1), 99)]);
        assert!(told(&all, &only).contains("nobody"));
        let spread = [statistics(&[&[(1, 50)], &[(1, 49)]])];
        assert!(told(&spread, &only).contains("groups [0, 1]"));
        assert_eq!(broken(&spread, &only, false), None, "a load of many queues may be spread");
        let none = [statistics(&[&[(1, 99), (2, 0)]])];
        let missing = expected(&[((0, 1), 99), ((0, 2), 5)]);
        assert!(told(&none, &missing).contains("served none"));
    }
}
