//! What is advised.

use serde::{Deserialize, Serialize};
use weft_advise::Interval;

use super::prices::Prices;
use crate::results::{Configuration, key};
use crate::units;

/// So many ways are worth being measured at most, where it cannot be told of them.
const CANDIDATES_MAX: usize = 3;

/// Whether a way holds the objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval of its p99 is within the objective.
    Holds,
    /// None of it is, or less is served than is asked for.
    Fails,
    /// The objective is within the interval, or nothing can be said.
    Unknown,
}

impl Verdict {
    /// ✓, ✗ or ?.
    #[must_use]
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Holds => "✓",
            Self::Fails => "✗",
            Self::Unknown => "?",
        }
    }
}

/// The p99 at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Requests a second.
    pub iops: f64,
    /// In ns.
    pub p99_ns: Interval,
}

/// p50, p99 and p99.9, in ns, with 90 % intervals; no p99.9 where nothing that was measured
/// supports one.
pub type Latencies = (Interval, Interval, Option<Interval>);

/// What a way does with the requests of one of several tenants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tenant {
    /// The job.
    pub name: String,
    /// Its objective's p99, in ns, and rate.
    pub p99_ns: f64,
    /// Requests a second.
    pub iops: f64,
    /// Whether the way holds that.
    pub verdict: Verdict,
    /// Its latencies.
    pub quantiles_ns: Latencies,
    /// The least depth, a power of two, at which it holds, or is likely to, with the others at
    /// their greatest.
    pub least_depth: Option<usize>,
}

/// One way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Its name: the settings by which ways differ.
    pub way: String,
    /// Whether it holds the objective.
    pub verdict: Verdict,
    /// Whether the expected p99 is within the objective although its interval is not.
    #[serde(default)]
    pub is_likely: bool,
    /// Whether such requests were not measured, but others on both sides of them.
    #[serde(default)]
    pub is_between: bool,
    /// Why nothing is said of it.
    pub refusal: Option<String>,
    /// What of it was not measured as it is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Latencies at the rate; of several tenants each has its own.
    pub quantiles_ns: Option<Latencies>,
    /// Whether less is served at the rate than arrives, so that these have no bound.
    #[serde(default)]
    pub is_beyond_knee: bool,
    /// The least depth, a power of two, at which it holds, or is likely to.
    pub least_depth: Option<usize>,
    /// Each of several tenants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<Tenant>,
    /// The rate up to which the p99 is expected to be within the objective, of all tenants
    /// together.
    pub headroom_iops: Option<f64>,
    /// Whether that is only the highest rate of which something is said: it may be held beyond.
    #[serde(default)]
    pub is_headroom_least: bool,
    /// Processors of the host and of the target that it takes at the rate, between the cells with
    /// the nearest rates; of a target that reports none, none.
    pub processors: [Option<f64>; 2],
    /// What that costs, with the ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub money: Option<f64>,
    /// Fewest repeats of a cell.
    #[serde(default)]
    pub repeats: usize,
    /// Cells that were fitted.
    pub cells: usize,
    /// Its settings.
    pub configuration: Configuration,
    /// What is expected at several rates at its greatest depth, up to the knee.
    pub predicted: Vec<Point>,
    /// What was measured with random arrivals: as measured, and what another count of such requests
    /// and the repeats may have, at the least without what may be of other programs' making.
    pub measured: Vec<Point>,
}

impl Row {
    /// One of which nothing is known yet.
    pub(super) fn new(way: String, configuration: Configuration, cells: usize) -> Self {
        Self {
            way,
            verdict: Verdict::Unknown,
            is_likely: false,
            is_between: false,
            refusal: None,
            notes: Vec::new(),
            quantiles_ns: None,
            is_beyond_knee: false,
            least_depth: None,
            tenants: Vec::new(),
            headroom_iops: None,
            is_headroom_least: false,
            processors: [None; 2],
            money: None,
            repeats: 0,
            cells,
            configuration,
            predicted: Vec::new(),
            measured: Vec::new(),
        }
    }

    pub(super) fn refused(self, why: String) -> Self {
        Self { refusal: Some(why), ..self }
    }

    /// Whether it is the device of this machine, without a network: what others are held against.
    pub(super) fn is_local(&self) -> bool {
        self.configuration.get(key::TRANSPORT).is_some_and(|name| name.as_text() == Some("local"))
    }

    /// ✓, ✗ or ?, with ≈ where it is only of requests on both sides of these.
    #[must_use]
    pub fn mark(&self) -> String {
        let between = if self.is_between { "≈" } else { "" };
        format!("{}{between}", self.verdict.sign())
    }

    /// The rate up to which it is expected to hold, where nothing is known beyond with a sign for
    /// that.
    #[must_use]
    pub fn up_to(&self) -> Option<String> {
        let sign = if self.is_headroom_least { "≥ " } else { "" };
        Some(format!("{sign}{}", units::count(self.headroom_iops?)))
    }

    /// Its money, or without prices the processors of both sides, if the host's are known.
    pub(super) fn cost(&self, prices: Option<&Prices>) -> Option<f64> {
        match prices {
            Some(_) => self.money,
            None => Some(self.processors[0]? + self.processors[1].unwrap_or(0.0)),
        }
    }
}

/// What is advised.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Advice {
    /// The objective's p99, in ns, and rate: of several tenants the least one and that of all.
    pub p99_ns: f64,
    /// Requests a second.
    pub iops: f64,
    /// Of what the money is, where prices are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    /// Each way, the cheapest that holds first, and the local device last.
    pub rows: Vec<Row>,
    /// The conclusion.
    pub conclusion: String,
    /// What became of it when it was measured.
    pub confirmation: Option<Confirmation>,
}

impl Advice {
    /// The cheapest way that holds the objective; a local one only where nothing else was measured.
    #[must_use]
    pub fn advised(&self) -> Option<&Row> {
        advised(&self.rows)
    }

    /// The ways that are worth being measured: the one that is advised, or where none is, some of
    /// which it cannot be told, the cheapest that is likely to hold first.
    pub fn candidates(&self) -> impl Iterator<Item = &Row> {
        let is_unknown = |row: &&Row| row.verdict == Verdict::Unknown && !row.is_local();
        let unknown = self.rows.iter().filter(is_unknown);
        let unknown = unknown.filter(|_| self.advised().is_none());
        self.advised().into_iter().chain(unknown).take(CANDIDATES_MAX)
    }
}

pub(super) fn advised(rows: &[Row]) -> Option<&Row> {
    rows.first().filter(|row| row.verdict == Verdict::Holds)
}

/// What was measured of a way at the rate that was asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Confirmation {
    /// The way.
    #[serde(default)]
    pub way: String,
    /// Requests a second.
    pub iops: f64,
    /// The p99: as measured, with the ends that a measured point has.
    pub p99_ns: Interval,
    /// Whether it is within the objective; unknown where other programs make the difference.
    pub verdict: Verdict,
    /// Whether the prediction's interval and this one have a number in common.
    pub is_predicted: bool,
}

impl Confirmation {
    /// In a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let (way, p99) = (&self.way, self.p99_ns);
        let within = format!("p99 {} at {} IOPS", units::time(p99.value), units::count(self.iops));
        let predicted = match self.is_predicted {
            true => "as predicted",
            false => "which is not what was predicted",
        };
        match self.verdict {
            Verdict::Holds => format!("Measured: {way} holds, {within}, {predicted}."),
            Verdict::Fails => format!("Measured: {way} does not hold, {within}, {predicted}."),
            Verdict::Unknown => format!(
                "Measured: {way}, {within}, of which other programs may have made what is above \
                 {}: measure on a quiet machine (--wait-for-quiet).",
                units::time(p99.low)
            ),
        }
    }
}
