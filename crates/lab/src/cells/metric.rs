//! The metrics of a cell.

use weft_load::units::Unit;

use super::lost::percentile_of;
use super::{Cell, Cells, Estimate, Repeat, Scale};
use crate::results::{IdleRate, Mark, Role, Side, key, number};

/// From this share of the raw link on a link is full.
const LINE_RATE: f64 = 0.9;

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    More,
    Less,
}

/// A metric, by its name in a plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Metric {
    pub(crate) name: String,
    pub(crate) label: String,
    pub(crate) unit: Unit,
    pub(crate) better: Better,
}

/// The value of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reading {
    /// A number.
    Is(Estimate),
    /// A percentile beyond which there are too few samples.
    Unresolved,
    /// It was not measured, or the cell it refers to was not.
    Unknown,
}

impl Reading {
    /// The value, if there is one.
    pub(crate) const fn estimate(&self) -> Option<Estimate> {
        match self {
            Self::Is(estimate) => Some(*estimate),
            Self::Unresolved | Self::Unknown => None,
        }
    }

    /// Its mean.
    pub(crate) fn mean(&self) -> Option<f64> {
        self.estimate().map(|estimate| estimate.mean)
    }

    fn of(values: &[f64], scale: Scale) -> Self {
        Estimate::of(values, scale).map_or(Self::Unknown, Self::Is)
    }
}

/// A part of a processor's time, in the order in which parts are stacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    User,
    System,
    Softirq,
    Iowait,
    Steal,
    Idle,
}

impl Part {
    pub(crate) const ALL: [Self; 6] =
        [Self::User, Self::System, Self::Softirq, Self::Iowait, Self::Steal, Self::Idle];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::User => "usr",
            Self::System => "sys",
            Self::Softirq => "softirq",
            Self::Iowait => "iowait",
            Self::Steal => "steal",
            Self::Idle => "idle",
        }
    }

    /// Its share of the time of the processors to which a side was pinned, or of all of its
    /// machine's, averaged over repeats.
    pub(crate) fn share(self, sides: &[&Side], of_all: bool) -> Option<f64> {
        let mut part = 0.0;
        let mut all = 0.0;
        for side in sides {
            let mine = |cpu: &usize| of_all || side.cpus.is_empty() || side.cpus.contains(cpu);
            for core in side.machine.cores.iter().filter(|core| mine(&core.cpu)) {
                let softirq = core.softirq_s + core.irq_s;
                let parts =
                    [core.user_s, core.system_s, softirq, core.iowait_s, core.steal_s, core.idle_s];
                all += parts.iter().sum::<f64>();
                part += match self {
                    Self::User => core.user_s,
                    Self::System => core.system_s,
                    Self::Softirq => softirq,
                    Self::Iowait => core.iowait_s,
                    Self::Steal => core.steal_s,
                    Self::Idle => core.idle_s,
                };
            }
        }
        (all > 0.0).then_some(part / all)
    }
}

impl Metric {
    /// The metric of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        use Better::{Less, More};
        let percentile = name.strip_prefix('p').and_then(|digits| digits.parse::<f64>().ok());
        let (label, unit, better) = match name {
            "iops" => ("IOPS", Unit::Iops, More),
            "saturation" => ("saturation point", Unit::Iops, More),
            "bandwidth" => ("bandwidth", Unit::BytesPerSecond, More),
            "mean" => ("mean latency", Unit::Time, Less),
            "delta" => ("mean latency above local", Unit::Time, Less),
            "host-cpu" => ("CPU of the host's threads", Unit::CorePercent, Less),
            "target-cpu" => ("CPU of the target's threads", Unit::CorePercent, Less),
            "total-cpu" => ("CPU of host and target", Unit::CorePercent, Less),
            "cpu-per-io" => ("CPU time per request, host and target", Unit::Time, Less),
            "p99-and-cpu" => ("geometric mean of p99 and CPU time of a request", Unit::Time, Less),
            "host-cpu-per-io" => ("CPU time per request, host", Unit::Time, Less),
            "target-cpu-per-io" => ("CPU time per request, target", Unit::Time, Less),
            "cores-per-miops" => ("cores for a million IOPS", Unit::Cores, Less),
            "iops-per-core" => ("IOPS for each core", Unit::Iops, More),
            "line-rate-cores" => ("cores of host and target at line rate", Unit::Cores, Less),
            "drives" => ("drives like the local one that fill the link", Unit::Times, Less),
            "host-cpu-per-gbps" => ("host CPU per Gb/s", Unit::CorePercentPerGbps, Less),
            "target-cpu-per-gbps" => ("target CPU per Gb/s", Unit::CorePercentPerGbps, Less),
            "host-machine-cpu" => ("CPU of the host's whole machine", Unit::Share, Less),
            "target-machine-cpu" => ("CPU of the target's whole machine", Unit::Share, Less),
            "machine-cpu" => {
                ("CPU of everything on both machines, without idle", Unit::CorePercent, Less)
            }
            "machine-cpu-per-gbps" => {
                ("CPU of everything on both machines per Gb/s", Unit::CorePercentPerGbps, Less)
            }
            "machine-cpu-per-io" => {
                ("CPU time per request, everything on both machines", Unit::Time, Less)
            }
            "host-polling" => ("polling of the host that found nothing", Unit::CorePercent, Less),
            "target-polling" => {
                ("polling of the target that found nothing", Unit::CorePercent, Less)
            }
            "host-context-switches" => ("context switches of the host", Unit::PerSecond, Less),
            "target-context-switches" => ("context switches of the target", Unit::PerSecond, Less),
            "host-interrupts" => ("interrupts of the host's machine", Unit::PerSecond, Less),
            "target-interrupts" => ("interrupts of the target's machine", Unit::PerSecond, Less),
            "host-softirqs" => ("network softirqs of the host's machine", Unit::PerSecond, Less),
            "target-softirqs" => {
                ("network softirqs of the target's machine", Unit::PerSecond, Less)
            }
            "concurrency" => ("concurrency (local at depth 1 is 1)", Unit::Times, More),
            "share-of-local" => ("IOPS relative to local", Unit::Share, More),
            "share-of-link" => ("bandwidth relative to the raw link", Unit::Share, More),
            "latency-interference" => ("latency interference", Unit::Times, Less),
            "throughput-sustained" => ("throughput sustained", Unit::Times, More),
            "background-reached" => ("background load reached", Unit::Share, More),
            _ => match percentile {
                Some(share) if (0.0..100.0).contains(&share) => (name, Unit::Time, Less),
                _ => return None,
            },
        };
        let label =
            if percentile.is_some() { format!("{label} latency") } else { label.to_owned() };
        Some(Self { name: name.to_owned(), label, unit, better })
    }

    /// The metrics in a plan's `y`; other entries are figures of their own.
    pub(crate) fn all(names: &[String]) -> Vec<Self> {
        names.iter().filter_map(|name| Self::named(name)).collect()
    }

    /// Whether it is a metric of CPU use.
    pub(crate) fn is_cpu(&self) -> bool {
        const WORDS: [&str; 7] = [
            "cpu",
            "cores-per",
            "line-rate-cores",
            "polling",
            "softirqs",
            "interrupts",
            "context-switches",
        ];
        WORDS.iter().any(|word| self.name.contains(word))
    }

    /// Whether it is the time of a request.
    pub(crate) fn is_latency(&self) -> bool {
        self.unit == Unit::Time && !self.is_cpu()
    }

    /// Whether it is a rate, of which the best of several cells represents all of them.
    pub(crate) fn is_rate(&self) -> bool {
        self.better == Better::More
    }

    /// On what scale its repeats spread evenly.
    pub(crate) const fn scale(&self) -> Scale {
        match self.unit {
            Unit::Iops | Unit::BytesPerSecond | Unit::PerSecond => Scale::Plain,
            _ => Scale::Log,
        }
    }

    /// The quotient of two cells, each repeat by the same repeat of the other.
    pub(crate) fn quotient(&self, cells: &Cells, own: &Cell, base: &Cell) -> Option<Estimate> {
        let (mine, theirs) =
            (self.read(cells, own).estimate()?, self.read(cells, base).estimate()?);
        let apart = Estimate::ratio(&mine, &theirs);
        if !is_of_a_repeat(&self.name) || mine.pooled || theirs.pooled {
            return Some(apart);
        }
        let paired = against(own, Some(base), &|repeat| repeat.metric(&self.name), Join::Ratio);
        let paired = paired.estimate().filter(|paired| paired.count == apart.count);
        Some(paired.map_or(apart, |paired| paired.about(apart.mean).widened(apart.slack())))
    }

    /// The geometric mean of several cells with their values. Its spread is that of the repeats'
    /// means: cells of a repeat were measured in turns, and may be slow together.
    pub(crate) fn typical(&self, of: &[(Estimate, &Cell)]) -> Option<Estimate> {
        let values: Vec<Estimate> = of.iter().map(|(value, _)| *value).collect();
        let apart = Estimate::typical(&values)?;
        let (_, first) = of.first()?;
        let mean = |number: u32| {
            let each = of.iter().map(|(_, cell)| {
                let repeat = cell.repeats.iter().find(|repeat| repeat.number == number)?;
                Some(repeat.metric(&self.name)?.ln())
            });
            let all: Vec<f64> = each.collect::<Option<Vec<f64>>>()?;
            Some((all.iter().sum::<f64>() / all.len() as f64).exp())
        };
        let means: Option<Vec<f64>> =
            first.repeats.iter().map(|repeat| mean(repeat.number)).collect();
        let together =
            means.filter(|_| of.iter().all(|(_, cell)| cell.repeats.len() == apart.count));
        let together = together.and_then(|means| Estimate::of(&means, Scale::Log));
        Some(together.map_or(apart, |all| all.about(apart.mean).widened(apart.slack())))
    }

    /// The cells from which the value of one is made: itself, and what it is relative to.
    pub(crate) fn made_from<'a>(&self, cells: &'a Cells, cell: &'a Cell) -> Vec<&'a Cell> {
        let base = match self.name.as_str() {
            "delta" | "share-of-local" | "drives" => cells.local(cell),
            "concurrency" => cells.local_at_depth_1(cell),
            "throughput-sustained" | "latency-interference" => cells.alone(cell),
            _ => None,
        };
        let base = base.filter(|base| !std::ptr::eq(*base, cell));
        [Some(cell), base].into_iter().flatten().collect()
    }

    /// Whether `one` is better than `other`.
    pub(crate) fn is_better(&self, one: f64, other: f64) -> bool {
        match self.better {
            Better::More => one > other,
            Better::Less => one < other,
        }
    }

    /// The metric's value for a cell, and how far others may have moved it.
    pub(crate) fn read(&self, cells: &Cells, cell: &Cell) -> Reading {
        match self.measured(cells, cell) {
            Reading::Is(estimate) => {
                let estimate = estimate.widened(self.slack(cells, cell));
                let fastest = || cell.min_ns() as f64;
                Reading::Is(match self.name.as_str() {
                    // No request was faster, and local no slower than it may be.
                    "delta" => {
                        let local = cells.local(cell).map(|local| mean_of(cells, local));
                        estimate.at_least(fastest() - local.unwrap_or(f64::INFINITY))
                    }
                    _ if self.is_latency() => estimate.at_least(fastest()),
                    _ => estimate,
                })
            }
            unknown => unknown,
        }
    }

    /// How far the value on a quiet machine may lie below and above that of a cell, by its
    /// logarithm; of a difference by itself.
    fn slack(&self, cells: &Cells, cell: &Cell) -> [f64; 2] {
        let base = |of: Option<&Cell>, metric: &str| match of {
            Some(base) if !std::ptr::eq(base, cell) => base.slack(metric),
            _ => [0.0; 2],
        };
        let against = |of: Option<&Cell>, metric: &str| {
            let (own, base) = (cell.slack(metric), base(of, metric));
            [own[0] + base[1], own[1] + base[0]]
        };
        match self.name.as_str() {
            "share-of-link" | "iops-per-core" => cell.slack("iops"),
            "delta" => {
                let local = cells.local(cell);
                let ns = |of: Option<&Cell>, down: f64| {
                    let of = of.filter(|of| of.is_measured());
                    of.map_or(0.0, |of| of.latency().mean_ns()) * (1.0 - (-down).exp())
                };
                [ns(Some(cell), cell.slack("mean")[0]), ns(local, base(local, "mean")[0])]
            }
            "share-of-local" => against(cells.local(cell), "iops"),
            "concurrency" => against(cells.local_at_depth_1(cell), "iops"),
            "throughput-sustained" => against(cells.alone(cell), "iops"),
            "latency-interference" => against(cells.alone(cell), "p99"),
            name => cell.slack(name),
        }
    }

    fn measured(&self, cells: &Cells, cell: &Cell) -> Reading {
        if let Some(digits) = self.name.strip_prefix('p')
            && let Ok(percentile) = digits.parse::<f64>()
        {
            return read_percentile(cell, percentile);
        }
        let each = |cell: &Cell, value: &dyn Fn(&Repeat) -> Option<f64>| {
            let values = cell.repeats.iter().filter_map(value).filter(|value| value.is_finite());
            Reading::of(&values.collect::<Vec<f64>>(), self.scale())
        };
        match self.name.as_str() {
            "delta" => against(cell, cells.local(cell), &mean_ns, Join::Difference),
            // Of open loops it would be the ratio of what was offered.
            "share-of-local" if cell.value(key::LOAD_PERCENT).is_some() => Reading::Unknown,
            "share-of-local" => against(cell, cells.local(cell), &iops, Join::Ratio),
            "concurrency" => against(cell, cells.local_at_depth_1(cell), &iops, Join::Ratio),
            "throughput-sustained" => against(cell, cells.alone(cell), &iops, Join::Ratio),
            "latency-interference" => interference(cell, cells.alone(cell)),
            "background-reached" => background(cells, cell),
            // Nothing is faster than its floor: one of the two numbers is wrong.
            "share-of-link" if cell.marks.contains(&Mark::AboveFloor) => Reading::Unknown,
            "share-of-link" => {
                let link = cells.link(cell).map(|probe| probe.stream_bytes_per_s);
                match link.fold(0.0, f64::max) {
                    link if link > 0.0 => {
                        each(cell, &|repeat| Some(repeat.bytes_per_second / link))
                    }
                    _ => Reading::Unknown,
                }
            }
            "iops-per-core" => each(cell, &|repeat| Some(repeat.iops / cores_of(cell)?)),
            "line-rate-cores" if !is_at_line_rate(cells, cell) => Reading::Unknown,
            "line-rate-cores" => each(cell, &|repeat| Some(simple("total-cpu", repeat)? / 100.0)),
            "drives" => drives(cells, cell),
            // What it did beyond idle is not known if it was not idle.
            "machine-cpu"
            | "machine-cpu-per-gbps"
            | "machine-cpu-per-io"
            | "host-interrupts"
            | "host-softirqs"
            | "target-interrupts"
            | "target-softirqs"
                if cell.marks.contains(&Mark::BusyMachine) =>
            {
                Reading::Unknown
            }
            "machine-cpu" => each(cell, &|repeat| {
                Some(100.0 * machine_s(cells, cell, repeat)? / repeat.host.as_ref()?.seconds)
            }),
            "machine-cpu-per-gbps" => each(cell, &|repeat| {
                let percent =
                    100.0 * machine_s(cells, cell, repeat)? / repeat.host.as_ref()?.seconds;
                Some(percent / gbps(repeat))
            }),
            "machine-cpu-per-io" => {
                each(cell, &|repeat| per_request(machine_s(cells, cell, repeat)?, repeat))
            }
            name @ ("host-interrupts" | "host-softirqs" | "target-interrupts"
            | "target-softirqs") => {
                let rate = idle_rate(cells, cell, name);
                each(cell, &|repeat| Some((simple(name, repeat)? - rate).max(0.0)))
            }
            // A sum with an unknown part is unknown.
            "total-cpu" | "cpu-per-io" | "cores-per-miops" | "p99-and-cpu"
                if cell.marks.contains(&Mark::TargetUnknown) =>
            {
                Reading::Unknown
            }
            name => each(cell, &|repeat| simple(name, repeat)),
        }
    }
}

fn iops(repeat: &Repeat) -> Option<f64> {
    Some(repeat.iops)
}

fn mean_ns(repeat: &Repeat) -> Option<f64> {
    simple("mean", repeat)
}

/// The highest that the mean latency of a cell may be.
fn mean_of(cells: &Cells, cell: &Cell) -> f64 {
    let mean = Metric::named("mean").and_then(|mean| mean.read(cells, cell).estimate());
    mean.map_or(f64::INFINITY, |mean| mean.high())
}

/// The cores of the target, or of a local load.
fn cores_of(cell: &Cell) -> Option<f64> {
    let is_local = cell.text(key::TRANSPORT) == "local";
    cell.number(if is_local { key::HOST_CORES } else { key::TARGET_CORES })
}

/// Whether a cell fills the raw link, and the CPU use of both sides is known.
fn is_at_line_rate(cells: &Cells, cell: &Cell) -> bool {
    let share = Metric::named("share-of-link").map(|share| share.read(cells, cell));
    share.and_then(|share| share.mean()) >= Some(LINE_RATE)
        && !cell.marks.contains(&Mark::TargetUnknown)
}

/// How many devices like the local one fill the link of a cell; not known of memory, which is no
/// drive.
fn drives(cells: &Cells, cell: &Cell) -> Reading {
    let device = cells.environment.local.split([':', ',']).next().unwrap_or_default();
    let is_drive = !["", "memory", "null", "delay"].contains(&device);
    let is_above = cell.marks.contains(&Mark::AboveFloor);
    let link = cells.link(cell).map(|probe| probe.stream_bytes_per_s).fold(0.0, f64::max);
    let local = cells.local(cell).filter(|local| !std::ptr::eq(*local, cell));
    let Some(local) = local.filter(|_| is_drive && !is_above && link > 0.0) else {
        return Reading::Unknown;
    };
    let drives = local.repeats.iter().map(|repeat| link / repeat.bytes_per_second);
    Reading::of(&drives.filter(|count| count.is_finite()).collect::<Vec<f64>>(), Scale::Log)
}

/// How a cell is set against another one.
#[derive(Clone, Copy)]
enum Join {
    Ratio,
    Difference,
}

/// A cell against another one: each repeat against the same repeat, which was measured next to it;
/// all against all if one of them has no such repeat. Either way the spread of both counts.
fn against(
    cell: &Cell,
    base: Option<&Cell>,
    value: &dyn Fn(&Repeat) -> Option<f64>,
    join: Join,
) -> Reading {
    let Some(base) = base.filter(|base| base.is_measured()) else { return Reading::Unknown };
    let twin = |repeat: &Repeat| {
        let twin = base.repeats.iter().find(|other| other.number == repeat.number);
        Some((value(repeat)?, value(twin?)?))
    };
    let pairs: Option<Vec<(f64, f64)>> = cell.repeats.iter().map(twin).collect();
    let joined = |join: fn(f64, f64) -> f64, scale: Scale, pairs: &[(f64, f64)]| {
        let joined = pairs.iter().map(|(own, base)| join(*own, *base));
        Estimate::of(&joined.filter(|value| value.is_finite()).collect::<Vec<f64>>(), scale)
    };
    let values = |cell: &Cell, scale| {
        Estimate::of(&cell.repeats.iter().filter_map(value).collect::<Vec<f64>>(), scale)
    };
    let scale = if let Join::Ratio = join { Scale::Plain } else { Scale::Log };
    let apart = values(cell, scale).zip(values(base, scale)).map(|(own, base)| match join {
        Join::Ratio => Estimate::ratio(&own, &base),
        Join::Difference => Estimate::difference(&own, &base),
    });
    let Some(apart) = apart else { return Reading::Unknown };
    let paired = pairs.and_then(|pairs| match join {
        Join::Ratio => joined(|own, base| own / base, Scale::Log, &pairs),
        Join::Difference => joined(|own, base| own - base, Scale::Signed, &pairs),
    });
    // About what the values say that are shown beside it.
    Reading::Is(paired.map_or(apart, |paired| paired.about(apart.mean)))
}

fn read_percentile(cell: &Cell, percentile: f64) -> Reading {
    let resolved: Vec<f64> = cell
        .repeats
        .iter()
        .filter_map(|repeat| repeat.latency.percentile_ns(percentile))
        .map(|ns| ns as f64)
        .collect();
    match (resolved.len(), cell.repeats.len()) {
        (_, 0) => Reading::Unknown,
        (resolving, all) if resolving == all => Reading::of(&resolved, Scale::Log),
        (_, all) => match cell.latency().percentile_ns(percentile) {
            Some(ns) => Reading::Is(Estimate::pooled(ns as f64, all)),
            None => Reading::Unresolved,
        },
    }
}

/// p99 under load divided by p99 alone; 1 by definition if it is alone.
fn interference(cell: &Cell, alone: Option<&Cell>) -> Reading {
    let Some(alone) = alone else { return Reading::Unknown };
    match (read_percentile(cell, 99.0), read_percentile(alone, 99.0)) {
        (Reading::Is(loaded), Reading::Is(_)) if std::ptr::eq(cell, alone) => {
            Reading::of(&vec![1.0; loaded.count], Scale::Log)
        }
        (Reading::Is(loaded), Reading::Is(base)) if base.mean > 0.0 => {
            Reading::Is(Estimate::ratio(&loaded, &base))
        }
        (Reading::Unknown, _) | (_, Reading::Unknown) => Reading::Unknown,
        _ => Reading::Unresolved,
    }
}

fn background(cells: &Cells, cell: &Cell) -> Reading {
    // Alone means without one.
    let background = cells.background(cell).filter(|_| cell.role != Role::Alone);
    let Some(background) = background else { return Reading::Unknown };
    let reached = background.repeats.iter().filter_map(|repeat| {
        let offered = repeat.values.get(number::OFFERED_IOPS)?;
        (*offered > 0.0).then(|| repeat.iops / offered)
    });
    Reading::of(&reached.collect::<Vec<f64>>(), Scale::Plain)
}

impl Repeat {
    /// The value of a metric that depends on a repeat alone; none if it was not measured, or if
    /// too few samples lie beyond the percentile.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        match percentile_of(name) {
            Some(percentile) => self.latency.percentile_ns(percentile).map(|ns| ns as f64),
            None => simple(name, self),
        }
    }
}

/// Whether each repeat has a value of this metric that says how fast it was.
pub(crate) fn is_of_a_repeat(name: &str) -> bool {
    ["iops", "bandwidth", "mean"].contains(&name) || percentile_of(name).is_some()
}

/// Whether less of this metric is better.
pub(crate) fn is_better_if_less(name: &str) -> bool {
    Metric::named(name).is_some_and(|metric| metric.better == Better::Less)
}

/// A metric that depends on one repeat alone. Times are in nanoseconds.
fn simple(name: &str, repeat: &Repeat) -> Option<f64> {
    let host = repeat.host.as_ref();
    let target = repeat.target.as_ref();
    match name {
        "iops" => Some(repeat.iops),
        "saturation" => {
            Some(repeat.values.get(number::SATURATION_IOPS).copied().unwrap_or(repeat.iops))
        }
        "bandwidth" => Some(repeat.bytes_per_second),
        "mean" => (repeat.requests > 0).then(|| repeat.latency.mean_ns()),
        "host-cpu" => core_percent(host?),
        "target-cpu" => core_percent(target?),
        "total-cpu" => Some(core_percent(host?)? + target.and_then(core_percent).unwrap_or(0.0)),
        "cpu-per-io" => {
            per_request(host?.cpu_seconds() + target.map_or(0.0, Side::cpu_seconds), repeat)
        }
        "p99-and-cpu" => {
            let p99 = repeat.latency.percentile_ns(99.0)?;
            Some((p99 as f64 * simple("cpu-per-io", repeat)?).sqrt())
        }
        "host-cpu-per-io" => per_request(host?.cpu_seconds(), repeat),
        "target-cpu-per-io" => per_request(target?.cpu_seconds(), repeat),
        // A million requests of 1 µs each take a second of a core.
        "cores-per-miops" => simple("cpu-per-io", repeat).map(|ns| ns / 1e3),
        "host-cpu-per-gbps" => Some(core_percent(host?)? / gbps(repeat)),
        "target-cpu-per-gbps" => Some(core_percent(target?)? / gbps(repeat)),
        _ => match (name.strip_prefix("host-"), name.strip_prefix("target-")) {
            (Some(what), _) => counted(what, host),
            (_, Some(what)) => counted(what, target),
            _ => None,
        },
    }
}

fn gbps(repeat: &Repeat) -> f64 {
    repeat.bytes_per_second * 8.0 / 1e9
}

/// CPU time of each request in nanoseconds.
fn per_request(seconds: f64, repeat: &Repeat) -> Option<f64> {
    (repeat.requests > 0).then(|| seconds * 1e9 / repeat.requests as f64)
}

/// What the machine of a side does without a load.
fn idle<'a>(cells: &'a Cells, cell: &Cell, of_target: bool) -> Option<&'a IdleRate> {
    let is_elsewhere = cell.connection.as_ref().is_some_and(|ends| !ends.is_within_a_machine());
    match of_target && is_elsewhere {
        true => cells.environment.target_idle.get(cell.text(key::TARGET)),
        false => cells.environment.idle.as_ref(),
    }
}

/// How often a machine is interrupted without a load, by the name of the metric.
fn idle_rate(cells: &Cells, cell: &Cell, name: &str) -> f64 {
    let idle = idle(cells, cell, name.starts_with("target-"));
    idle.map_or(0.0, |idle| match name.ends_with("softirqs") {
        true => idle.network_softirqs,
        false => idle.interrupts,
    })
}

/// CPU time of everything that ran on the machine or on both, beyond their idle rates, in seconds.
/// It says nothing of one of several tenants.
fn machine_s(cells: &Cells, cell: &Cell, repeat: &Repeat) -> Option<f64> {
    let of = |side: Option<&Side>, of_target: bool| {
        let (side, idle) = (side?, idle(cells, cell, of_target)?);
        let busy = side.machine.busy_s() - idle.cpu_s * side.seconds;
        (!side.machine.cores.is_empty()).then_some(busy.max(0.0))
    };
    if matches!(cell.role, Role::Foreground | Role::Background) {
        return None;
    }
    let host = of(repeat.host.as_ref(), false)?;
    match &cell.connection {
        Some(ends) if !ends.is_within_a_machine() => Some(host + of(repeat.target.as_ref(), true)?),
        _ => Some(host),
    }
}

fn core_percent(side: &Side) -> Option<f64> {
    (side.seconds > 0.0).then(|| 100.0 * side.cpu_seconds() / side.seconds)
}

fn counted(what: &str, side: Option<&Side>) -> Option<f64> {
    let side = side.filter(|side| side.seconds > 0.0)?;
    let count = match what {
        "polling" => {
            let polled: f64 = side.threads.iter().map(|thread| thread.polling_s).sum();
            return Some(100.0 * polled / side.seconds);
        }
        "machine-cpu" => {
            let idle = [Part::Idle, Part::Iowait].map(|part| part.share(&[side], true));
            return Some(1.0 - idle[0]? - idle[1]?);
        }
        "context-switches" => side.context_switches(),
        "interrupts" => side.machine.interrupts,
        "softirqs" => side.machine.network_softirqs(),
        _ => return None,
    };
    Some(count as f64 / side.seconds)
}
