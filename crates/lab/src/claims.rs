//! What a study's results say: claims, each with its question, every contender and a verdict.
//!
//! A page, the last lines of a terminal, `answer.json` and the comparisons of a report are views of
//! claims. They are made in one place ([`make`]) from the cells, and gated in one place
//! ([`crate::cells::gate`]); [`ask`] has what is asked of a plan.

mod ask;
mod doubt;
mod make;
mod sweep;
mod words;

use serde::Serialize;

use crate::cells::{Cells, Estimate, Unit};
use crate::results::{Environment, Mark, Record, Results};
use crate::study::builtin;
use crate::study::plan::Plan;
use crate::units;

use ask::Ask;
pub(crate) use ask::{criteria, findings};

/// The version of `answer.json`.
pub const SCHEMA: u32 = 2;

/// The answer of a study.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// The version of this format.
    pub schema: u32,
    /// The study.
    pub study: String,
    /// What a reader has to know before everything else: a machine was busy before the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub banner: Option<String>,
    /// Its question.
    pub question: String,
    /// The consequences of its claims.
    pub sentence: String,
    /// Whether the data answers the question: every claim does.
    pub is_answered: bool,
    /// What it is made of.
    pub claims: Vec<Claim>,
}

/// A question with every contender that the plan had.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// What is asked.
    pub question: String,
    /// What was measured.
    pub metric: String,
    /// `ns`, `IOPS`, `bytes/s`, `ratio` and others.
    pub unit: &'static str,
    /// What the second number of a row is: `of the best`, `above local` and others.
    pub beside: String,
    /// Over which points the values are means; empty where each row has its own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub points: String,
    /// A row for each contender.
    pub rows: Vec<Row>,
    /// Marks of the cells that it is made from, where they belong to what it says.
    pub marks: Vec<&'static str>,
    /// What follows, in a sentence.
    pub consequence: String,
    /// Whether marks and intervals allow a verdict.
    pub is_answered: bool,
}

/// A contender.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its link, target, software or what else distinguishes it.
    pub contender: String,
    /// At which point its value is, if points differ.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// The value; none if it was not measured, or if its marks allow none.
    pub value: Option<Number>,
    /// The same beside the best, local or whatever the claim says.
    pub beside: Option<Number>,
    /// Whether it is as good.
    pub verdict: Verdict,
    /// Why there is no value or no verdict.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The cells that it is made from.
    pub cells: Vec<String>,
}

/// Whether a contender is within 5 % of what it is compared with, or better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is, beyond doubt.
    Yes,
    /// It is not, beyond doubt.
    No,
    /// The repeats cannot tell, or marks forbid it.
    CannotTell,
    /// It is what others are compared with.
    Reference,
    /// There is nothing to compare it with, and nothing was asked but its value.
    Value,
}

impl Verdict {
    /// The sign in a table.
    #[must_use]
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Yes => "✓",
            Self::No => "✗",
            Self::CannotTell => "?",
            Self::Reference | Self::Value => "",
        }
    }
}

/// A number with its interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Number {
    /// The mean of the repeats, in `unit`: the geometric one of latencies, costs and ratios.
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
}

/// An interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// How it is made: `95 % confidence` and by what, or `both repeats` where there are two.
    pub kind: &'static str,
}

/// The kind of an interval that is a range: two repeats have no confidence.
const BOTH: &str = "both repeats";

impl Number {
    fn of(unit: Unit, estimate: &Estimate) -> Self {
        let interval = estimate.bar().map(|(down, up)| Interval {
            low: estimate.mean - down,
            high: estimate.mean + up,
            kind: if estimate.interval().is_some() { estimate.method() } else { BOTH },
        });
        let range = |low: f64, high: f64| {
            format!("{} to {}", units::show(unit, low), units::show(unit, high))
        };
        let interval_text = match &interval {
            Some(Interval { low, high, kind }) if *kind == BOTH => {
                format!("{}, {BOTH}", range(*low, *high))
            }
            Some(Interval { low, high, .. }) => range(*low, *high),
            None if estimate.pooled => "all repeats together".to_owned(),
            None if estimate.count > 1 => "not known".to_owned(),
            None => "one repeat".to_owned(),
        };
        Self {
            value: estimate.mean,
            unit: unit_name(unit),
            interval,
            repeats: estimate.count,
            text: units::quantity(unit, estimate.mean),
            interval_text,
        }
    }

    /// The value with its interval, for a sentence.
    fn told(&self) -> String {
        format!("{} ({})", self.text, self.interval_text)
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

impl Claim {
    /// The columns of its table.
    #[must_use]
    pub fn head(&self) -> Vec<&str> {
        let mut head = vec!["", "contender", &self.metric, "interval"];
        if self.rows.iter().any(|row| row.beside.is_some()) {
            head.extend([self.beside.as_str(), "its interval"]);
        }
        head.push("measured at; why there is no verdict");
        head
    }

    /// Its rows.
    #[must_use]
    pub fn table(&self) -> Vec<Vec<String>> {
        let has_beside = self.rows.iter().any(|row| row.beside.is_some());
        let of = |number: Option<&Number>| match number {
            Some(number) => [number.text.clone(), number.interval_text.clone()],
            None => ["–".to_owned(), String::new()],
        };
        let row = |row: &Row| {
            let mut cells = vec![row.verdict.sign().to_owned(), row.contender.clone()];
            cells.extend(of(row.value.as_ref()));
            if has_beside {
                cells.extend(of(row.beside.as_ref()));
            }
            let words = [row.at.as_str(), row.why.as_str()];
            let words: Vec<&str> = words.into_iter().filter(|text| !text.is_empty()).collect();
            cells.push(words.join("; "));
            cells
        };
        self.rows.iter().map(row).collect()
    }

    /// The table as text.
    #[must_use]
    pub fn text(&self) -> String {
        let head: Vec<String> = self.head().into_iter().map(str::to_owned).collect();
        let rows: Vec<Vec<String>> = std::iter::once(head).chain(self.table()).collect();
        let columns = rows.first().map_or(0, Vec::len);
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|text| text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).map(|(text, width)| format!("{text:width$}"));
            format!("{}\n", cells.collect::<Vec<String>>().join("  ").trim_end())
        };
        let title = [units::capital(&self.question), self.points.clone()];
        let title: Vec<String> = title.into_iter().filter(|text| !text.is_empty()).collect();
        format!("{}\n{}", title.join("; "), rows.iter().map(line).collect::<String>())
    }
}

impl Answer {
    /// The tables of its claims, as text.
    #[must_use]
    pub fn text(&self) -> String {
        self.claims.iter().map(Claim::text).collect::<Vec<String>>().join("\n")
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
    let claim = |ask: &Ask| Some(ask.claim(cells)).filter(|it| it.is_answered || !ask.is_aside);
    let claims: Vec<Claim> = ask::of_answer(plan, cells)?.iter().filter_map(claim).collect();
    let sentences: Vec<&str> = claims.iter().map(|claim| claim.consequence.as_str()).collect();
    Some(Answer {
        schema: SCHEMA,
        study: plan.name.clone(),
        banner: banner(cells),
        question: plan.question.clone(),
        sentence: sentences.join(" "),
        is_answered: claims.iter().all(|claim| claim.is_answered),
        claims,
    })
}

/// What a reader has to know of results before everything else.
pub(crate) fn banner(cells: &Cells) -> Option<String> {
    let planned = &cells.environment.cells;
    let absent = cells.cells.iter().filter(|cell| cell.is_absent()).count();
    let missing = (absent > 0).then(|| {
        format!(
            "{absent} of the {} cells of the plan have no line here: what they would say is \
             missing in every answer.",
            planned.len()
        )
    });
    let all: Vec<String> = cells.environment.banner().into_iter().chain(missing).collect();
    (!all.is_empty()).then(|| all.join(" "))
}

/// The names of marks.
fn marks_of(marks: &[Mark]) -> Vec<&'static str> {
    marks.iter().map(|mark| mark.short()).collect()
}

#[cfg(test)]
mod tests;
