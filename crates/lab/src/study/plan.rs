//! The definition of a study.

mod check;

pub(crate) use check::{is_setting, no_setting};
mod read;

pub use self::read::with_repeats;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::site::{Link, SpdkTools};
use crate::results::{Configuration, Role, Value};

/// A study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Its name: lower case, digits and dashes.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The question it answers.
    pub question: String,
    /// The kind of its cells.
    #[serde(default)]
    pub kind: Kind,
    /// Whether to write the device until it is in a used state, before the first cell.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub precondition: bool,
    /// Further explanation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The publication it follows.
    pub source: Source,
    /// Which published numbers are compared with the results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
    /// The axes: every combination of their values is a cell.
    #[serde(default)]
    pub axes: BTreeMap<String, Vec<Value>>,
    /// Settings that are the same in every cell.
    #[serde(default)]
    pub fixed: Configuration,
    /// Times and repeats.
    #[serde(default)]
    pub measure: Measure,
    /// Changes for a quick run.
    #[serde(default)]
    pub quick: Quick,
    /// Changes for a machine with an RDMA device.
    #[serde(default, skip_serializing_if = "Rdma::is_empty")]
    pub rdma: Rdma,
    /// Of [`Kind::Interference`]: the tenants, and the processor they share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interference: Option<Interference>,
    /// The figures and tables.
    #[serde(default, rename = "plot", skip_serializing_if = "Vec::is_empty")]
    pub plots: Vec<Plot>,
    /// What its answer is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<AnswerPlan>,
    /// How it was run; only in the copy beside the results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
}

/// The kind of a study's cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Every combination of the axes.
    #[default]
    Matrix,
    /// The raw link, without storage.
    Link,
    /// The maximum rate of one processor; the axis `shared` says on which side.
    Saturation,
    /// Two tenants that share a processor.
    Interference,
    /// Open loops at shares of the capacity, which is measured first. The axis `load_percent` gives
    /// the shares.
    Load,
}

impl Kind {
    /// The role whose cells a study's plots show.
    pub(crate) const fn role(self) -> Role {
        match self {
            Self::Matrix | Self::Load => Role::Plain,
            Self::Link => Role::Link,
            Self::Saturation => Role::Saturation,
            Self::Interference => Role::Foreground,
        }
    }
}

/// A publication.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The document: a name of published.toml, or `weft`.
    pub document: String,
    /// Its figure or table.
    pub figure: String,
}

/// Which published numbers are compared with a study's results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The study's name in the published data.
    pub study: String,
    /// Names of transports there, and the corresponding names here.
    #[serde(default)]
    pub transports: BTreeMap<String, String>,
}

/// Times and repeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Measure {
    /// Measured time of each repeat.
    #[serde(with = "weft_backend::duration::as_text")]
    pub runtime: Duration,
    /// Time it runs before that.
    #[serde(with = "weft_backend::duration::as_text")]
    pub ramp: Duration,
    /// Fewest repeats of a cell.
    pub repeats: u32,
    /// Most repeats, if the confidence interval stays too wide.
    pub repeats_max: u32,
    /// Repeats end when half of the 95 % confidence interval of the metric that the study is judged
    /// by is at most this percentage of its mean.
    pub confidence_percent: f64,
    /// That metric: `iops`, `bandwidth`, `mean` or a percentile of latency such as `p99`; empty:
    /// that of the first figure ([`Plan::judged_by`]).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub judged_by: String,
    /// How long to wait for steady state before a cell's first repeat, at most; 0: no waiting.
    #[serde(with = "weft_backend::duration::as_text")]
    pub settle: Duration,
    /// IOPS are steady if their slope is at most this percentage of their mean per second
    pub slope_percent_per_s: f64,
    /// and no window is further from the mean than this percentage of it.
    pub deviation_percent: f64,
    /// Whether the order of the cells is shuffled.
    pub shuffle: bool,
    /// Whether the bare sockets are measured at the rate of each open loop over TCP, directly
    /// after it.
    pub bare_socket: bool,
}

impl Default for Measure {
    fn default() -> Self {
        Self {
            runtime: Duration::from_secs(10),
            ramp: Duration::from_secs(2),
            repeats: 3,
            repeats_max: 6,
            confidence_percent: 5.0,
            judged_by: String::new(),
            settle: Duration::from_secs(20),
            slope_percent_per_s: 0.5,
            deviation_percent: 10.0,
            shuffle: true,
            bare_socket: true,
        }
    }
}

/// Changes for a quick run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quick {
    /// Measured time of each repeat.
    #[serde(with = "weft_backend::duration::as_text")]
    pub runtime: Duration,
    /// Time it runs before that.
    #[serde(with = "weft_backend::duration::as_text")]
    pub ramp: Duration,
    /// Repeats of each cell.
    pub repeats: u32,
    /// Axes with fewer values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub axes: BTreeMap<String, Vec<Value>>,
}

impl Default for Quick {
    fn default() -> Self {
        Self {
            runtime: Duration::from_millis(750),
            ramp: Duration::from_millis(200),
            repeats: 3,
            axes: BTreeMap::new(),
        }
    }
}

/// Changes for a machine with an RDMA device: a study that has to be short has one more transport
/// there, and fewer values on another axis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rdma {
    /// Axes with other values.
    pub axes: BTreeMap<String, Vec<Value>>,
}

impl Rdma {
    fn is_empty(&self) -> bool {
        self.axes.is_empty()
    }
}

/// The tenants of an interference study, and the processor they share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interference {
    /// The side of the shared processor; the tenants' other processors and namespaces are separate.
    pub shared: Shared,
    /// The load of the background, whose rate the axis `load_percent` gives.
    pub background: Configuration,
    /// What is different in it, by the names that the axis `neighbour` uses, if there is one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub neighbour: BTreeMap<String, Configuration>,
    /// The foreground loads, by the names that the axis `foreground` uses.
    pub foreground: BTreeMap<String, Configuration>,
}

/// What the answer of a study is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerPlan {
    /// Its kind.
    pub kind: AnswerKind,
    /// The metric that it is about, where the kind leaves it open.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub metric: String,
    /// The setting that [`AnswerKind::Best`], `Reach`, `Parity` and `Beats` are about.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub over: String,
    /// Of [`AnswerKind::Beats`]: the setting along which the values of `over` are compared.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub along: String,
    /// Only cells with these values.
    #[serde(default, skip_serializing_if = "Configuration::is_empty")]
    pub at: Configuration,
    /// Repeats of the cells in `at`, if more than others have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u32>,
    /// Of [`AnswerKind::Values`]: the numbers, three at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub number: Vec<AnswerNumber>,
    /// The numbers in place of these where the cells have not the settings that these ask for: a
    /// given target keeps its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<AnswerNumber>,
}

/// A number that a plan's answer names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerNumber {
    /// What it is called.
    pub label: String,
    /// Its metric; of several cells the best one counts.
    pub metric: String,
    /// Only cells with these values.
    #[serde(default, skip_serializing_if = "Configuration::is_empty")]
    pub at: Configuration,
}

/// The kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnswerKind {
    /// The latency that a remote request has above a local one, as a share of an SSD's, and its
    /// CPU time.
    ExtraLatency,
    /// The most of a rate over a transport, as a share of the local one.
    Ratio,
    /// The best value of a setting, against the second.
    Best,
    /// The load up to which latency does not rise.
    Knee,
    /// What a neighbour at its highest load does to each tenant.
    Slowdown,
    /// Numbers that the plan names.
    Values,
    /// From which value of a setting on a rate is near its highest.
    Reach,
    /// From which value of a setting on a rate reaches the local one.
    Parity,
    /// At which values of one setting the first value of another is better than the second.
    Beats,
}

/// The side of a processor that is shared or saturated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shared {
    /// One of the host.
    Host,
    /// One of the target.
    Target,
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Target => "target",
        })
    }
}

/// A figure or table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// The published figure that it corresponds to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub figure: String,
    /// The form of presentation.
    pub kind: PlotKind,
    /// The setting along x; none for a CDF, where x is latency.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub x: String,
    /// The metrics: names of [`METRICS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub y: Vec<String>,
    /// The settings that distinguish series.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<String>,
    /// One chart for each combination of these settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub split: Vec<String>,
    /// Of lines: a metric on a second axis, at the right.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub second: String,
    /// The setting of which each point has the best value, which its label names.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub best_over: String,
    /// Only cells with these values.
    #[serde(default, skip_serializing_if = "Configuration::is_empty")]
    pub only: Configuration,
    /// Logarithmic along x.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub log_x: bool,
    /// Logarithmic along y.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub log_y: bool,
}

impl Plot {
    /// One without a title, axes and metrics.
    pub(crate) fn of(kind: PlotKind) -> Self {
        Self {
            title: String::new(),
            figure: String::new(),
            kind,
            x: String::new(),
            y: Vec::new(),
            series: Vec::new(),
            split: Vec::new(),
            second: String::new(),
            best_over: String::new(),
            only: Configuration::new(),
            log_x: false,
            log_y: false,
        }
    }
}

/// The form of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlotKind {
    /// Lines over x.
    Line,
    /// Groups of bars over x.
    Bar,
    /// Cumulative distributions of latency.
    Cdf,
    /// Bars of parts that add up: CPU.
    Stack,
    /// Rows and columns.
    Table,
}

/// The metrics of plots and their units. Derived ones refer to another cell.
pub const METRICS: &[(&str, &str)] = &[
    ("iops", "IOPS"),
    ("bandwidth", "bytes/s"),
    ("mean", "ns"),
    ("p20", "ns"),
    ("p50", "ns"),
    ("p80", "ns"),
    ("p90", "ns"),
    ("p95", "ns"),
    ("p99", "ns"),
    ("p99.9", "ns"),
    ("p99.99", "ns"),
    ("host-cpu", "% of a core, of the host's threads"),
    ("target-cpu", "% of a core, of the target's threads"),
    ("total-cpu", "% of a core, of both"),
    ("host-machine-cpu", "share of all processors of the host's machine, as mpstat has it"),
    ("target-machine-cpu", "share of all processors of the target's machine"),
    ("cpu-per-io", "µs, host and target together"),
    ("p99-and-cpu", "ns, geometric mean of p99 and cpu-per-io"),
    ("host-cpu-per-io", "µs"),
    ("target-cpu-per-io", "µs"),
    ("cores-per-miops", "cores, host and target together"),
    ("iops-per-core", "IOPS ÷ cores of the target, or of a local load"),
    ("line-rate-cores", "cores of both, of cells with nine tenths of the raw link or more"),
    ("drives", "raw link ÷ bandwidth of the local device, if it is a drive"),
    ("machine-cpu", "% of a core, of everything on both machines beyond their idle rate"),
    ("machine-cpu-per-io", "µs, of everything on both machines beyond their idle rate"),
    ("machine-cpu-per-gbps", "% of a core per Gb/s, of everything beyond its idle rate"),
    ("host-polling", "% of a core, of the host's polling that found nothing"),
    ("target-polling", "% of a core, of the target's polling that found nothing"),
    ("host-cpu-per-gbps", "% of a core per Gb/s"),
    ("target-cpu-per-gbps", "% of a core per Gb/s"),
    ("host-cpu-split", "usr, sys, softirq, iowait, idle of the host's cores"),
    ("target-cpu-split", "usr, sys, softirq, iowait, idle of the target's cores"),
    ("host-context-switches", "per second"),
    ("target-context-switches", "per second"),
    ("host-interrupts", "per second, of the machine beyond its idle rate"),
    ("target-interrupts", "per second, of the machine beyond its idle rate"),
    ("host-softirqs", "per second, NET_RX and NET_TX of the machine beyond its idle rate"),
    ("target-softirqs", "per second, NET_RX and NET_TX of the machine beyond its idle rate"),
    ("concurrency", "IOPS ÷ IOPS of local at depth 1"),
    ("delta", "ns, mean latency − that of local"),
    ("share-of-local", "IOPS ÷ IOPS of local"),
    ("share-of-link", "of the raw link's bandwidth"),
    ("latency-interference", "p99 ÷ p99 alone"),
    ("throughput-sustained", "IOPS ÷ IOPS alone"),
    ("background-reached", "IOPS ÷ IOPS asked for"),
    ("saturation", "IOPS"),
    ("best", "which series is best, or within 5 % of it"),
];

/// How a plan was run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Run {
    /// Seed of the order of cells, and of the load.
    pub seed: u64,
    /// Whether it was a quick run; `measure` and `axes` then are the quick ones already.
    pub quick: bool,
    /// Addresses of given targets.
    pub targets: Vec<String>,
    /// Their control addresses, in the same order.
    pub controls: Vec<String>,
    /// Where the target's agent is; empty without agents.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target_on: String,
    /// Where those of the loads are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub load_on: Vec<String>,
    /// The given address of the target's machine.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target_address: String,
    /// The given path of weft on these machines.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub agent_program: String,
    /// The links between these machines, by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, Link>,
    /// Where SPDK's programs are on these machines, by their places.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub spdk: BTreeMap<String, SpdkTools>,
    /// Whether this program is copied to them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deploy: bool,
    /// The given local device.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub local: String,
    /// The name of the driver of loads and targets; empty if an earlier version did not say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver: String,
    /// Only cells with these values.
    #[serde(skip_serializing_if = "Configuration::is_empty")]
    pub only: Configuration,
}

/// Why a text is not a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError(pub(crate) String);

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlanError {}

impl Plan {
    /// Applies the changes for a quick run.
    pub fn quicken(&mut self) {
        replace(&mut self.axes, &self.quick.axes);
        self.measure.runtime = self.quick.runtime;
        self.measure.ramp = self.quick.ramp;
        self.measure.repeats = self.quick.repeats;
        self.measure.repeats_max = self.quick.repeats;
        self.measure.settle = Duration::ZERO;
    }

    /// Sets the number of repeats of every cell.
    pub fn set_repeats(&mut self, repeats: u32) {
        (self.measure.repeats, self.measure.repeats_max) = (repeats, repeats);
        if let Some(answer) = &mut self.answer {
            answer.repeats = None;
        }
    }

    /// Gives a setting one value in all cells, or makes it an axis of several. A new axis is a
    /// series of every figure that does not show it already.
    pub fn set(&mut self, key: &str, values: Vec<Value>) {
        self.fixed.remove(key);
        let was_axis = self.axes.remove(key).is_some();
        if let [value] = &values[..] {
            self.fixed.insert(key.to_owned(), value.clone());
            for axes in [&mut self.quick.axes, &mut self.rdma.axes] {
                axes.remove(key);
            }
            // What was about several values has nothing to say of one.
            self.answer.take_if(|answer| answer.over == key || answer.along == key);
            for plot in self.plots.iter_mut().filter(|plot| plot.best_over == key) {
                plot.best_over.clear();
            }
            return;
        }
        self.axes.insert(key.to_owned(), values);
        for plot in self.plots.iter_mut().filter(|_| !was_axis) {
            let shown = plot.series.iter().chain(&plot.split).chain([&plot.x, &plot.best_over]);
            if !shown.chain(plot.only.keys()).any(|shown| shown == key) {
                plot.series.push(key.to_owned());
            }
        }
    }

    /// The fewest repeats of a cell with these settings: those that the answer is made from may
    /// have more than others.
    #[must_use]
    pub fn repeats_of(&self, configuration: &Configuration) -> u32 {
        let answering = self.answer.as_ref().filter(|answer| {
            answer.at.iter().all(|(key, value)| configuration.get(key) == Some(value))
        });
        let more = answering.and_then(|answer| answer.repeats).unwrap_or(0);
        self.measure.repeats.max(more)
    }

    /// The most repeats of any cell.
    #[must_use]
    pub fn repeats_max(&self) -> u32 {
        let more = self.answer.as_ref().and_then(|answer| answer.repeats).unwrap_or(0);
        self.measure.repeats_max.max(more)
    }

    /// Applies the changes for a machine with an RDMA device.
    pub fn with_rdma(&mut self) {
        replace(&mut self.axes, &self.rdma.axes);
    }

    /// The metric that the study is judged by: repeats go on until it is known well enough, and
    /// comparisons ask about it. Unless the plan names it, it is that of the first figure, or what
    /// the figure's metric is made of.
    #[must_use]
    pub fn judged_by(&self) -> String {
        if !self.measure.judged_by.is_empty() {
            return self.measure.judged_by.clone();
        }
        let first = self.plots.first();
        let y = first.and_then(|plot| plot.y.first()).map_or("", String::as_str);
        match y {
            _ if first.is_some_and(|plot| plot.kind == PlotKind::Cdf) => "p99",
            "latency-interference" => "p99",
            "delta" => "mean",
            metric if crate::cells::is_of_a_repeat(metric) => metric,
            _ => "iops",
        }
        .to_owned()
    }

    /// A value that is the same in every cell.
    #[must_use]
    pub fn fixed(&self, key: &str) -> Option<&Value> {
        self.fixed.get(key)
    }

    /// Whether a setting has a value somewhere in the study.
    #[must_use]
    pub fn has(&self, key: &str, word: &str) -> bool {
        self.values(key).any(|value| value.as_text() == Some(word))
    }

    /// Every value of a setting in the study.
    pub fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Value> {
        let loads = self.interference.iter().flat_map(|interference| {
            let named = interference.foreground.values().chain(interference.neighbour.values());
            named.chain(std::iter::once(&interference.background))
        });
        let axis = self.axes.get(key).into_iter().flatten();
        axis.chain(self.fixed.get(key)).chain(loads.filter_map(move |load| load.get(key)))
    }
}

/// Replaces the values of existing axes.
fn replace(axes: &mut BTreeMap<String, Vec<Value>>, others: &BTreeMap<String, Vec<Value>>) {
    for (key, values) in others {
        if let Some(axis) = axes.get_mut(key) {
            axis.clone_from(values);
        }
    }
}
