//! A study as data.

mod check;
mod read;

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::results::{Configuration, Value};

/// A study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Its name: lower case, digits and dashes.
    pub name: String,
    /// What it is about, in a few words.
    pub title: String,
    /// What it answers.
    pub question: String,
    /// What kind of cells it has.
    #[serde(default)]
    pub kind: Kind,
    /// Fill the device until it behaves as one that has been used, before the first cell.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub precondition: bool,
    /// What else has to be said, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Where the experiment was published.
    pub source: Source,
    /// What of the published numbers belongs beside the results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
    /// What is varied: every combination of these values is a cell.
    #[serde(default)]
    pub axes: BTreeMap<String, Vec<Value>>,
    /// What is not.
    #[serde(default)]
    pub fixed: Configuration,
    /// How long and how often.
    #[serde(default)]
    pub measure: Measure,
    /// What a quick run does differently.
    #[serde(default)]
    pub quick: Quick,
    /// What a machine with an RDMA device does differently.
    #[serde(default, skip_serializing_if = "Rdma::is_empty")]
    pub rdma: Rdma,
    /// Of [`Kind::Interference`]: who shares what with whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interference: Option<Interference>,
    /// What to draw.
    #[serde(default, rename = "plot", skip_serializing_if = "Vec::is_empty")]
    pub plots: Vec<Plot>,
    /// How it was run, in the copy of a plan that lies beside results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
}

/// What kind of cells a study has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Every combination of the axes.
    #[default]
    Matrix,
    /// The raw link, without storage.
    Link,
    /// The most that one processor delivers; the axis `shared` says whose.
    Saturation,
    /// Two tenants that share a processor.
    Interference,
}

/// Where an experiment was published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The document: a name of published.toml, or `weft`.
    pub document: String,
    /// Its figure or table.
    pub figure: String,
}

/// Which published numbers belong beside a study's results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The study's name there.
    pub study: String,
    /// Names of transports there, and ours for them.
    #[serde(default)]
    pub transports: BTreeMap<String, String>,
}

/// How long and how often.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Measure {
    /// How long each repeat counts.
    #[serde(with = "weft_backend::duration::as_text")]
    pub runtime: Duration,
    /// How long it runs before that.
    #[serde(with = "weft_backend::duration::as_text")]
    pub ramp: Duration,
    /// How often each cell is measured.
    pub repeats: u32,
    /// How often at most, until the confidence interval is narrow enough.
    pub repeats_max: u32,
    /// Half of the 95 % confidence interval of IOPS, in percent of their mean, that is narrow
    /// enough.
    pub confidence_percent: f64,
    /// How long to wait for steady state before a cell's first repeat, at most; 0: not.
    #[serde(with = "weft_backend::duration::as_text")]
    pub settle: Duration,
    /// IOPS are steady if they change by no more than so many percent of their mean a second.
    pub slope_percent_per_s: f64,
    /// And if no window is further from the mean than so many percent of it.
    pub deviation_percent: f64,
    /// Whether the order of the cells is shuffled.
    pub shuffle: bool,
}

impl Default for Measure {
    fn default() -> Self {
        Self {
            runtime: Duration::from_secs(10),
            ramp: Duration::from_secs(2),
            repeats: 3,
            repeats_max: 6,
            confidence_percent: 5.0,
            settle: Duration::from_secs(20),
            slope_percent_per_s: 0.5,
            deviation_percent: 10.0,
            shuffle: true,
        }
    }
}

/// What a quick run does differently.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quick {
    /// How long each repeat counts.
    #[serde(with = "weft_backend::duration::as_text")]
    pub runtime: Duration,
    /// How long it runs before that.
    #[serde(with = "weft_backend::duration::as_text")]
    pub ramp: Duration,
    /// How often each cell is measured.
    pub repeats: u32,
    /// Axes with fewer values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub axes: BTreeMap<String, Vec<Value>>,
}

impl Default for Quick {
    fn default() -> Self {
        Self {
            runtime: Duration::from_millis(1200),
            ramp: Duration::from_millis(300),
            repeats: 2,
            axes: BTreeMap::new(),
        }
    }
}

/// What a machine with an RDMA device does differently: a study that is to be short has one more
/// transport there, and less of something else.
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

/// Who shares what with whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interference {
    /// Which processor the tenants share; their other ones, and their namespaces, are apart.
    pub shared: Shared,
    /// The load that stands in the background, at a rate given by the axis `load_percent`.
    pub background: Configuration,
    /// The tenants that are looked at, by the names that the axis `foreground` uses.
    pub foreground: BTreeMap<String, Configuration>,
}

/// A processor that is shared, or saturated.
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
    /// The published figure that it stands for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub figure: String,
    /// Its form.
    pub kind: PlotKind,
    /// The configuration's entry along x; of a CDF nothing: there x is latency.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub x: String,
    /// What is drawn: names of [`METRICS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub y: Vec<String>,
    /// The configuration's entries that tell series apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<String>,
    /// One chart for each combination of these entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub split: Vec<String>,
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

/// What a plot can draw, and its unit. Derived ones need another cell to be read against.
pub const METRICS: &[(&str, &str)] = &[
    ("iops", "IOPS"),
    ("bandwidth", "bytes/s"),
    ("mean", "ns"),
    ("p50", "ns"),
    ("p90", "ns"),
    ("p95", "ns"),
    ("p99", "ns"),
    ("p99.9", "ns"),
    ("p99.99", "ns"),
    ("host-cpu", "% of a core, of the host's threads"),
    ("target-cpu", "% of a core, of the target's threads"),
    ("total-cpu", "% of a core, of both"),
    ("cpu-per-io", "µs, host and target together"),
    ("host-cpu-per-gbps", "% of a core per Gb/s"),
    ("target-cpu-per-gbps", "% of a core per Gb/s"),
    ("host-cpu-split", "usr, sys, softirq, iowait, idle of the host's cores"),
    ("target-cpu-split", "usr, sys, softirq, iowait, idle of the target's cores"),
    ("host-context-switches", "per second"),
    ("target-context-switches", "per second"),
    ("host-interrupts", "per second, of the machine"),
    ("target-interrupts", "per second, of the machine"),
    ("host-softirqs", "per second, NET_RX and NET_TX of the machine"),
    ("target-softirqs", "per second, NET_RX and NET_TX of the machine"),
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
    /// Seed of the order, and of the load.
    pub seed: u64,
    /// Whether it was a quick run; then `measure` and `axes` are the quick ones already.
    pub quick: bool,
    /// Addresses of targets that were given.
    pub targets: Vec<String>,
    /// Their control addresses, in the same order.
    pub controls: Vec<String>,
    /// The local device that was given.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub local: String,
    /// Only cells with these values.
    #[serde(skip_serializing_if = "Configuration::is_empty")]
    pub only: Configuration,
}

/// Why a text is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError(pub(crate) String);

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlanError {}

impl Plan {
    /// Takes what a quick run does differently.
    pub fn quicken(&mut self) {
        replace(&mut self.axes, &self.quick.axes);
        self.measure.runtime = self.quick.runtime;
        self.measure.ramp = self.quick.ramp;
        self.measure.repeats = self.quick.repeats;
        self.measure.repeats_max = self.quick.repeats;
        self.measure.settle = Duration::ZERO;
    }

    /// Takes what a machine with an RDMA device does differently.
    pub fn with_rdma(&mut self) {
        replace(&mut self.axes, &self.rdma.axes);
    }

    /// A value that is the same in every cell.
    #[must_use]
    pub fn fixed(&self, key: &str) -> Option<&Value> {
        self.fixed.get(key)
    }

    /// Every value that a setting takes somewhere in the study.
    pub fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Value> {
        let loads = self.interference.iter().flat_map(|interference| {
            interference.foreground.values().chain(std::iter::once(&interference.background))
        });
        let axis = self.axes.get(key).into_iter().flatten();
        axis.chain(self.fixed.get(key)).chain(loads.filter_map(move |load| load.get(key)))
    }
}

/// Gives axes that there are other values.
fn replace(axes: &mut BTreeMap<String, Vec<Value>>, others: &BTreeMap<String, Vec<Value>>) {
    for (key, values) in others {
        if let Some(axis) = axes.get_mut(key) {
            axis.clone_from(values);
        }
    }
}
