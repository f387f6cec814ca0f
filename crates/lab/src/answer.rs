//! The answer of a study: its question, and one sentence that is made from the data.
//!
//! A sentence has three numbers at most, each with its interval. It passes the same gate as every
//! other sentence of a report: what may not be said is replaced by the reason.

mod curves;
mod kinds;

use serde::Serialize;

use crate::{
    cells::{Cell, Cells, Estimate, Metric, Unit, gate::Gate, value_order},
    results::{Configuration, Environment, Record, Results, Role, Value, key},
    study::{
        builtin,
        plan::{AnswerPlan, Kind, Plan},
        site::link_of,
    },
    units,
};

/// The version of `answer.json`.
pub const SCHEMA: u32 = 1;

/// The answer of a study.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// The version of this format.
    pub schema: u32,
    /// The study.
    pub study: String,
    /// Its question.
    pub question: String,
    /// The answer in a sentence, or why there is none.
    pub sentence: String,
    /// The numbers of the sentence, three at most.
    pub numbers: Vec<Number>,
    /// Whether the data answers the question: intervals are apart and marks allow it.
    pub is_answered: bool,
}

/// A number of an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Number {
    /// What it is.
    pub label: String,
    /// The mean of the repeats, in `unit`.
    pub value: f64,
    /// `ns`, `IOPS`, `bytes/s`, `ratio` and others.
    pub unit: &'static str,
    /// Its interval, from two repeats on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// How many repeats.
    pub repeats: usize,
    /// The value as the page shows it.
    pub text: String,
    /// The interval as the page shows it, or why there is none.
    pub interval_text: String,
    /// A remark that belongs to it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The cells that it is made from.
    #[serde(skip)]
    pub cells: Vec<String>,
}

/// An interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// `95 % confidence`, or `both repeats` where there are two.
    pub kind: &'static str,
}

/// The kind of an interval that is a range: two repeats have no confidence interval of use.
const BOTH: &str = "both repeats";

impl Number {
    fn of(label: impl Into<String>, unit: Unit, estimate: &Estimate) -> Self {
        let interval = estimate.bar().map(|(down, up)| Interval {
            low: estimate.mean - down,
            high: estimate.mean + up,
            kind: if estimate.half_width.is_some() { "95 % confidence" } else { BOTH },
        });
        let interval_text = match &interval {
            Some(Interval { low, high, .. }) => {
                format!("{} to {}", units::show(unit, *low), units::show(unit, *high))
            }
            None if estimate.pooled => "all repeats together".to_owned(),
            None => "one repeat".to_owned(),
        };
        Self {
            label: label.into(),
            value: estimate.mean,
            unit: unit_name(unit),
            interval,
            repeats: estimate.count,
            text: units::quantity(unit, estimate.mean),
            interval_text,
            note: String::new(),
            cells: Vec::new(),
        }
    }

    /// Names the cells that it is made from.
    fn made_from(mut self, cells: &[&Cell]) -> Self {
        self.cells = cells.iter().map(|cell| cell.id.clone()).collect();
        self
    }

    /// The value with its interval, for the sentence.
    fn told(&self) -> String {
        let both = self.interval.as_ref().is_some_and(|interval| interval.kind == BOTH);
        let kind = if both { ", both repeats" } else { "" };
        format!("{} ({}{kind})", self.text, self.interval_text)
    }
}

const fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Iops => "IOPS",
        Unit::BytesPerSecond => "bytes/s",
        Unit::Time => "ns",
        Unit::Cores => "cores",
        Unit::CorePercent => "% of a core",
        Unit::CorePercentPerGbps => "% of a core per Gb/s",
        Unit::PerSecond => "1/s",
        Unit::Times | Unit::Share => "ratio",
    }
}

/// What a kind of answer is made from.
struct Asked<'a> {
    cells: &'a Cells,
    plan: &'a Plan,
    answer: &'a AnswerPlan,
    role: Role,
}

/// The best cell with a value of a setting.
#[derive(Clone, Debug)]
struct Point<'a> {
    value: &'a Value,
    cell: &'a Cell,
    estimate: Estimate,
}

/// The sentence and its numbers.
#[derive(Clone, Debug, Default)]
struct Said {
    sentence: String,
    numbers: Vec<Number>,
    is_answered: bool,
}

impl Said {
    fn answered(sentence: String, numbers: Vec<Number>) -> Self {
        Self { sentence, numbers, is_answered: true }
    }

    /// No answer, for this reason.
    fn open(why: &str) -> Self {
        let end = if why.ends_with('.') { "" } else { "." };
        Self { sentence: format!("No answer from these results: {why}{end}"), ..Self::default() }
    }
}

/// The answer that a study's results give; none for a plan that does not say what its answer is.
#[must_use]
pub fn answer(results: &Results) -> Option<Answer> {
    let plan = results.plan.parse::<Plan>().ok();
    let plan = plan.or_else(|| builtin::find(&results.environment.study)?.plan().ok())?;
    of_records(&plan, &results.records, &results.environment)
}

fn of_records(plan: &Plan, records: &[Record], environment: &Environment) -> Option<Answer> {
    of_cells(plan, &Cells::of(records, environment))
}

/// As [`answer`], of cells.
pub(crate) fn of_cells(plan: &Plan, cells: &Cells) -> Option<Answer> {
    // Results of an earlier version have a plan without it.
    let earlier = || builtin::find(&plan.name)?.plan().ok()?.answer;
    let section = plan.answer.clone().or_else(earlier)?;
    let role = match plan.kind {
        Kind::Matrix | Kind::Load => Role::Plain,
        Kind::Link => Role::Link,
        Kind::Saturation => Role::Saturation,
        Kind::Interference => Role::Foreground,
    };
    let asked = Asked { cells, plan, answer: &section, role };
    let Said { sentence, mut numbers, is_answered } = kinds::said(&asked);
    numbers.truncate(3);
    Some(Answer {
        schema: SCHEMA,
        study: plan.name.clone(),
        question: plan.question.clone(),
        sentence,
        numbers,
        is_answered,
    })
}

impl<'a> Asked<'a> {
    /// Measured cells with these settings.
    fn at(&self, at: &'a Configuration) -> impl Iterator<Item = &'a Cell> + use<'a> {
        self.cells
            .measured(self.role)
            .filter(move |cell| at.iter().all(|(key, value)| cell.value(key) == Some(value)))
    }

    fn metric(&self, otherwise: &str) -> Metric {
        let name = if self.answer.metric.is_empty() { otherwise } else { &self.answer.metric };
        Metric::named(name).unwrap_or_else(|| unreachable!("a plan's check knows {name}"))
    }

    fn estimate(&self, metric: &Metric, cell: &Cell) -> Option<Estimate> {
        metric.read(self.cells, cell).estimate()
    }

    /// The best cell by a metric.
    fn best(
        &self,
        metric: &Metric,
        cells: impl Iterator<Item = &'a Cell>,
    ) -> Option<(&'a Cell, Estimate)> {
        let read = cells.filter_map(|cell| Some((cell, self.estimate(metric, cell)?)));
        read.reduce(
            |best, other| {
                if metric.is_better(other.1.mean, best.1.mean) { other } else { best }
            },
        )
    }

    /// The best cell for each value of a setting, in the order of the values.
    fn curve(
        &self,
        metric: &Metric,
        over: &str,
        cells: impl Iterator<Item = &'a Cell>,
    ) -> Vec<Point<'a>> {
        let mut found: Vec<Point<'a>> = Vec::new();
        for cell in cells {
            let (Some(value), Some(estimate)) = (cell.value(over), self.estimate(metric, cell))
            else {
                continue;
            };
            let point = Point { value, cell, estimate };
            match found.iter_mut().find(|known| known.value == value) {
                Some(known) if metric.is_better(point.estimate.mean, known.estimate.mean) => {
                    *known = point;
                }
                Some(_) => {}
                None => found.push(point),
            }
        }
        found.sort_by(|one, other| value_order(over, one.value, other.value));
        found
    }

    /// The remote transport that the answer is about: the one that reaches furthest.
    fn remote(&self, at: &'a Configuration) -> Option<&'a str> {
        const ORDER: [&str; 4] = ["tcp-link", "rdma", "tcp", "loopback"];
        let has = |name: &&&str| self.at(at).any(|cell| cell.text(key::TRANSPORT) == **name);
        let link = || {
            let named = self.at(at).map(|cell| cell.text(key::TRANSPORT));
            named.filter(|transport| !link_of(transport).is_empty()).min()
        };
        link().or_else(|| ORDER.iter().find(has).copied())
    }

    /// Why there is no cell for the answer.
    fn missing(&self, at: &Configuration) -> Said {
        Said::open(&self.why_missing(at))
    }

    fn why_missing(&self, at: &Configuration) -> String {
        let fits = |cell: &&Cell| {
            cell.role == self.role
                && cell.text(key::TRANSPORT) != "local"
                && at.iter().all(|(key, value)| cell.value(key).is_none_or(|own| own == value))
        };
        let mut unmeasured = self.cells.cells.iter().filter(fits);
        unmeasured
            .find_map(|cell| cell.missing.first()?.reason().map(str::to_owned))
            .unwrap_or_else(|| "the cells that it needs were not measured".to_owned())
    }

    /// What distinguishes a cell from the others, but for its transport and `apart`.
    fn place(&self, cell: &Cell, apart: &[&str]) -> String {
        let words: Vec<String> = self
            .cells
            .varied(cell.role)
            .iter()
            .filter(|key| *key != key::TRANSPORT && !apart.contains(&key.as_str()))
            .filter_map(|key| cell.value(key).map(|value| units::setting(key, value)))
            .collect();
        if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
    }
}

/// What a request of a cell is: `4 KiB random read`.
fn request(cell: &Cell) -> String {
    let pattern = match cell.text(key::PATTERN) {
        "randread" => "random read",
        "randwrite" => "random write",
        "randrw" => "random request",
        "rw" => "sequential request",
        other => other,
    };
    match cell.value(key::BLOCK_BYTES) {
        Some(Value::Integer(bytes)) => format!("{} {pattern}", units::bytes_text(*bytes)),
        _ => pattern.to_owned(),
    }
}

/// A quotient with the spread of both sides.
fn quotient(one: &Estimate, other: &Estimate) -> Estimate {
    let share = |of: &Estimate| of.bar().map(|(down, up)| down.max(up) / of.mean.abs());
    let mean = one.mean / other.mean;
    let half = match (share(one), share(other)) {
        (Some(mine), Some(others)) => Some(mean.abs() * mine.hypot(others)),
        _ => None,
    };
    Estimate {
        mean,
        least: one.least / other.most,
        most: one.most / other.least,
        half_width: half,
        down: None,
        count: one.count.min(other.count),
        pooled: one.pooled || other.pooled,
    }
}

/// What is said in place of a sentence that the gate does not allow.
fn refused(gate: &Gate) -> String {
    gate.refusal().unwrap_or_default()
}

#[cfg(test)]
mod tests;
