//! What is measured: steps that run alternately, and figures that are made of their samples.

use std::collections::BTreeMap;
use std::fmt;

/// A row of the table, or a few that share their steps.
#[derive(Debug)]
pub(crate) struct Experiment {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Targets that run meanwhile; a step names one by its place here.
    pub(crate) targets: Vec<TargetSpec>,
    pub(crate) steps: Vec<BenchStep>,
    pub(crate) figures: Vec<Figure>,
    /// Rounds that are run even if fewer are asked for.
    pub(crate) rounds_min: usize,
}

/// A target of our own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetSpec {
    pub(crate) device: Device,
    /// More of its command line.
    pub(crate) arguments: &'static [&'static str],
    /// Not pinned to the target's processor by itself, but confined to it from outside.
    pub(crate) confined: bool,
    /// Processors, with a thread on each.
    pub(crate) cores: usize,
}

/// What a target serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// Memory of blocks of this size, written once from end to end.
    Memory(u32),
    Null,
}

/// One measurement.
#[derive(Debug)]
pub(crate) struct BenchStep {
    pub(crate) label: &'static str,
    pub(crate) action: Action,
}

/// How a sample is taken.
#[derive(Debug)]
pub(crate) enum Action {
    /// The raw socket.
    Floor(Floor),
    /// Load on a target.
    Load(Load),
    /// What a target uses while so many connections are open and none says anything.
    Idle { target: usize, connections: usize },
    /// What a new target occupies with no connection, with idle ones, and with ones that were busy.
    Memory { connections: usize },
    /// How much a new target grows while it is busy.
    Growth,
    /// From the start of a process to the first block that was read from it.
    StartUp,
    /// The longest request of a host whose first path of two ends under load.
    Failover(PathEnd),
    /// The latency of a load while other hosts connect.
    Flood(Flood),
}

/// Hosts that connect beside a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flood {
    /// Whether they have to authenticate themselves.
    pub(crate) authenticates: bool,
    /// How long the target polls after the last command.
    pub(crate) idle_poll: &'static str,
}

/// How a path ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathEnd {
    /// Its target's process is killed.
    Death,
    /// Its access state becomes inaccessible.
    Command,
}

/// Messages on raw sockets.
#[derive(Clone, Debug)]
pub(crate) struct Floor {
    pub(crate) request_bytes: u32,
    pub(crate) response_bytes: u32,
    pub(crate) depth: u32,
    pub(crate) connections: Option<u32>,
    pub(crate) spin: bool,
    /// The system's choice if `None`.
    pub(crate) congestion: Option<&'static str>,
}

/// A job of `weft bench`.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) target: usize,
    pub(crate) pattern: &'static str,
    pub(crate) block_bytes: u32,
    pub(crate) depth: u32,
    pub(crate) copies: u32,
    /// Processors, over which the copies are spread.
    pub(crate) cores: usize,
    pub(crate) flow_control: bool,
    /// More of its command line.
    pub(crate) arguments: &'static [&'static str],
    /// Over all ports of the target, each a path; else over the first.
    pub(crate) all_paths: bool,
    /// Everything counts, from the first command on: for what a target uses in all.
    pub(crate) no_ramp: bool,
}

/// What a sample may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Metric {
    Iops,
    MeanUs,
    P50Us,
    P99Us,
    /// The same of the second job.
    BesideIops,
    BesideP99Us,
    /// Of the target's processor, in all threads, for each command.
    CpuUsPerIo,
    /// Of one processor.
    CpuPercent,
    /// Resident.
    ProcessMib,
    IdleConnectionKib,
    UsedConnectionKib,
    GrowthKib,
    Milliseconds,
    /// Of other hosts, to their end.
    ConnectsPerSecond,
    /// What the hypervisor took of the machine meanwhile.
    StolenPercent,
}

pub(crate) type Sample = BTreeMap<Metric, f64>;

/// A number that is held against a bar.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) label: &'static str,
    pub(crate) of: (&'static str, Metric),
    /// What it is divided by, in the same round.
    pub(crate) per: Option<(&'static str, Metric)>,
    pub(crate) bar: Bar,
}

/// What a figure is to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bar {
    AtLeast(f64),
    AtMost(f64),
    /// At most so much more than what it is beside: the difference in place of the ratio.
    AtMostMore(f64),
    /// Within this share of 1, either way.
    Within(f64),
    /// Nothing was promised.
    None,
}

impl Experiment {
    /// How many processors it needs. Targets that a step does not use are stopped meanwhile.
    pub(crate) fn processors(&self) -> usize {
        let of_load = |step: &BenchStep| match &step.action {
            Action::Load(load) => load.cores,
            _ => 1,
        };
        let of_targets = self.targets.iter().map(|target| target.cores).max().unwrap_or(1);
        of_targets + self.steps.iter().map(of_load).max().unwrap_or(1)
    }

    /// Whether it can measure a target that this run did not start.
    pub(crate) fn suits_any_target(&self) -> bool {
        let ours = |step: &BenchStep| match &step.action {
            Action::Floor(_) => false,
            Action::Load(load) => load.target > 0 || load.all_paths,
            Action::Idle { .. }
            | Action::Memory { .. }
            | Action::Growth
            | Action::StartUp
            | Action::Failover(_)
            | Action::Flood(_) => true,
        };
        let device = self.targets.first().map(|target| target.device);
        matches!(device, Some(Device::Memory(_))) && !self.steps.iter().any(ours)
    }
}

impl Figure {
    /// The figure of one round, if its steps have brought what it is made of.
    pub(crate) fn value(&self, steps: &[BenchStep], samples: &[Sample]) -> Option<f64> {
        let find = |(label, metric): (&str, Metric)| {
            let at = steps.iter().position(|step| step.label == label)?;
            samples.get(at)?.get(&metric).copied()
        };
        let of = find(self.of)?;
        match self.per {
            None => Some(of),
            Some(per) if matches!(self.bar, Bar::AtMostMore(_)) => find(per).map(|per| of - per),
            Some(per) => find(per).filter(|per| *per > 0.0).map(|per| of / per),
        }
    }
}

impl Bar {
    /// Whether a value is good enough; `None` where no bar is.
    pub(crate) fn holds(self, value: f64) -> Option<bool> {
        match self {
            Self::AtLeast(least) => Some(value >= least),
            Self::AtMost(most) | Self::AtMostMore(most) => Some(value <= most),
            Self::Within(share) => Some((value - 1.0).abs() <= share),
            Self::None => None,
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "≥ {least}"),
            Self::AtMost(most) => write!(f, "≤ {most}"),
            Self::AtMostMore(most) => write!(f, "≤ + {most}"),
            Self::Within(share) => write!(f, "1 ± {share}"),
            Self::None => f.write_str("–"),
        }
    }
}

impl Metric {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Iops => "iops",
            Self::MeanUs => "mean_us",
            Self::P50Us => "p50_us",
            Self::P99Us => "p99_us",
            Self::BesideIops => "beside_iops",
            Self::BesideP99Us => "beside_p99_us",
            Self::CpuUsPerIo => "target_cpu_us_per_io",
            Self::CpuPercent => "target_cpu_percent",
            Self::ProcessMib => "process_mib",
            Self::IdleConnectionKib => "idle_connection_kib",
            Self::UsedConnectionKib => "used_connection_kib",
            Self::GrowthKib => "growth_kib",
            Self::Milliseconds => "milliseconds",
            Self::ConnectsPerSecond => "connects_per_second",
            Self::StolenPercent => "stolen_percent",
        }
    }
}

/// The middle of some values, and their ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one, or the mean of the middle two.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many there are.
    pub count: usize,
}

impl Spread {
    /// That of some values, if there are any.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let upper = *values.get(half)?;
        let odd = values.len() % 2 == 1;
        let median = if odd { upper } else { (values.get(half - 1)? + upper) / 2.0 };
        Some(Self { median, min, max, count: values.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floor() -> Action {
        Action::Floor(Floor {
            request_bytes: 72,
            response_bytes: 4120,
            depth: 1,
            connections: None,
            spin: true,
            congestion: None,
        })
    }

    #[test]
    fn a_figure_divides_what_one_round_brought() {
        let steps = [
            BenchStep { label: "raw", action: floor() },
            BenchStep { label: "on", action: Action::StartUp },
        ];
        let sample = |value| Sample::from([(Metric::Iops, value)]);
        let samples = [sample(200.0), sample(120.0)];
        let figure = |of, per| Figure { label: "", of, per, bar: Bar::None };
        let ratio = figure(("on", Metric::Iops), Some(("raw", Metric::Iops)));
        assert_eq!(ratio.value(&steps, &samples), Some(0.6));
        assert_eq!(figure(("on", Metric::Iops), None).value(&steps, &samples), Some(120.0));
        let more = Figure {
            bar: Bar::AtMostMore(1.0),
            ..figure(("raw", Metric::Iops), Some(("on", Metric::Iops)))
        };
        assert_eq!(more.value(&steps, &samples), Some(80.0), "the difference");
        assert_eq!(figure(("off", Metric::Iops), None).value(&steps, &samples), None);
        assert_eq!(figure(("on", Metric::P99Us), None).value(&steps, &samples), None);
        let nothing = [sample(0.0), sample(120.0)];
        assert_eq!(ratio.value(&steps, &nothing), None, "nothing to divide by");
    }

    #[test]
    fn bars_hold_or_do_not() {
        assert_eq!(Bar::AtLeast(0.5).holds(0.5), Some(true));
        assert_eq!(Bar::AtLeast(0.5).holds(0.49), Some(false));
        assert_eq!(Bar::AtMost(1.2).holds(1.21), Some(false));
        assert_eq!(Bar::Within(0.1).holds(0.89), Some(false));
        assert_eq!(Bar::Within(0.1).holds(1.09), Some(true));
        assert_eq!(Bar::None.holds(7.0), None);
    }

    #[test]
    fn the_middle_is_the_middle() {
        let spread = Spread::of([3.0, 1.0, 2.0]).expect("values");
        assert_eq!((spread.median, spread.min, spread.max, spread.count), (2.0, 1.0, 3.0, 3));
        assert_eq!(Spread::of([1.0, 2.0]).map(|spread| spread.median), Some(1.5));
        assert_eq!(Spread::of([]), None);
    }
}
