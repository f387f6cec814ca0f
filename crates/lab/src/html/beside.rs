//! Beside the paper: what was published, what was had here, and where the two disagree.
//!
//! Other hardware gives other numbers, so what is held against each other is the shape: the share
//! of local, the place where a curve bends, the factor between two settings. Only where there is no
//! shape to compare the plain ratio stands alone, without a verdict.

mod matching;

use super::units;
use crate::{
    cells::{Cells, Unit},
    published::{Published, PublishedResult},
    study::plan::Plan,
};
use matching::{Match, Ours};

/// Two shapes are alike if one is within this of the other.
const ALIKE: f64 = 0.25;

/// A published number with ours beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) figure: String,
    pub(super) what: String,
    pub(super) theirs: String,
    pub(super) ours: String,
    /// The shape of theirs and of ours.
    pub(super) shape: String,
    pub(super) verdict: Verdict,
    /// How the two settings differ.
    pub(super) differences: String,
}

/// How a shape compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Within a quarter.
    Alike,
    /// Not; and how.
    Differs(String),
    /// There is no shape to compare, only a ratio.
    Ratio(String),
    /// There is nothing of ours.
    Missing(String),
}

/// A document's numbers for one study.
#[derive(Clone, Debug)]
pub(super) struct Beside {
    pub(super) document: String,
    pub(super) testbed: String,
    pub(super) method: String,
    pub(super) rows: Vec<Row>,
}

/// The published numbers of a study, by document.
pub(super) fn beside(published: &Published, cells: &Cells, plan: &Plan) -> Vec<Beside> {
    let results = results(published, plan);
    let mut documents: Vec<Beside> = Vec::new();
    for result in &results {
        let Some(source) = published.source.get(&result.source) else { continue };
        let row = row(&results, result, cells, plan);
        match documents.iter_mut().find(|known| known.document == source.title) {
            Some(document) => document.rows.push(row),
            None => documents.push(Beside {
                document: source.title.clone(),
                testbed: source.testbed.clone(),
                method: source.method.clone(),
                rows: vec![row],
            }),
        }
    }
    documents
}

/// The numbers that belong to a plan.
pub(super) fn results<'a>(published: &'a Published, plan: &'a Plan) -> Vec<&'a PublishedResult> {
    let study = plan.published.as_ref().map_or(plan.name.as_str(), |known| &known.study);
    published.of_study(study).collect()
}

fn row(results: &[&PublishedResult], result: &PublishedResult, cells: &Cells, plan: &Plan) -> Row {
    let unit = unit_of(result);
    let show = |value: f64| shown(result, unit, value);
    let mut row = Row {
        figure: result.figure.clone(),
        what: what(result),
        theirs: show(result.plain_value()),
        ours: "–".to_owned(),
        shape: String::new(),
        verdict: Verdict::Missing(String::new()),
        differences: String::new(),
    };
    let found = match matching::ours(result, cells, plan) {
        Match::Found(found) => found,
        Match::Missing(why) => {
            row.verdict = Verdict::Missing(why);
            return row;
        }
    };
    row.ours = show(found.value);
    row.differences = found.differences.join("; ");
    row.verdict = match shape(results, result, &found, cells, plan) {
        Some((name, theirs, ours)) => {
            let number = |value: f64| match name {
                Shape::Itself => show(value),
                Shape::OfLocal => units::percent(value),
                Shape::OfSetting(_) => format!("{} ×", units::digits(value)),
            };
            row.shape = match &name {
                Shape::Itself => String::new(),
                Shape::OfLocal => {
                    format!("of local: theirs {}, ours {}", number(theirs), number(ours))
                }
                Shape::OfSetting(base) => {
                    format!("against {base}: theirs {}, ours {}", number(theirs), number(ours))
                }
            };
            verdict(&name, result, theirs, ours, &number)
        }
        None => Verdict::Ratio(format!(
            "ours is {} theirs",
            units::times(found.value / result.plain_value())
        )),
    };
    row
}

fn verdict(
    name: &Shape,
    result: &PublishedResult,
    theirs: f64,
    ours: f64,
    number: &dyn Fn(f64) -> String,
) -> Verdict {
    let factor = ours / theirs;
    if (1.0 - ALIKE..=1.0 / (1.0 - ALIKE)).contains(&factor) {
        return Verdict::Alike;
    }
    let around_one = *name != Shape::Itself || ["x", "fraction"].contains(&result.unit.as_str());
    let opposite = around_one && (theirs - 1.0) * (ours - 1.0) < 0.0;
    let how = if opposite { "the other way round: " } else { "" };
    Verdict::Differs(format!("{how}theirs {}, ours {}", number(theirs), number(ours)))
}

/// What is held against each other.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    /// The number has no hardware in it: a factor, or a place on an axis.
    Itself,
    /// Its share of the local number.
    OfLocal,
    /// Its factor to that of another setting.
    OfSetting(String),
}

fn shape(
    results: &[&PublishedResult],
    result: &PublishedResult,
    found: &Ours,
    cells: &Cells,
    plan: &Plan,
) -> Option<(Shape, f64, f64)> {
    const THEMSELVES: [&str; 8] =
        ["x", "fraction", "bytes", "cores", "processes", "qd", "x local qd1 IOPS", "%"];
    let percentage_of_cpu = result.metric.contains("cpu") && result.unit == "%";
    let knob = result.metric == "best_idle_poll";
    if THEMSELVES.contains(&result.unit.as_str()) && !percentage_of_cpu || knob {
        return Some((Shape::Itself, result.plain_value(), found.value));
    }
    let base = |other: &PublishedResult| match matching::ours(other, cells, plan) {
        Match::Found(base) if base.value > 0.0 => {
            Some((result.value / other.value, found.value / base.value))
        }
        _ => None,
    };
    let point = |other: &&&PublishedResult| {
        other.metric == result.metric
            && other.source == result.source
            && other.pattern == result.pattern
            && other.unit == result.unit
    };
    let is_local = |transport: &Option<String>| transport.as_deref() == Some("local");
    if !is_local(&result.transport) {
        let local = results.iter().filter(point).find(|other| {
            is_local(&other.transport)
                && other.bs_bytes == result.bs_bytes
                && other.jobs == result.jobs
                && (other.qd == result.qd || result.metric.ends_with("_max"))
        });
        if let Some((theirs, ours)) = local.and_then(|local| base(local)) {
            return Some((Shape::OfLocal, theirs, ours));
        }
    }
    let setting = results.iter().filter(point).find(|other| matching::is_base(other))?;
    if matching::is_base(result) {
        return None;
    }
    let (theirs, ours) = base(setting)?;
    Some((Shape::OfSetting(setting.note.clone().unwrap_or_default()), theirs, ours))
}

fn what(result: &PublishedResult) -> String {
    let mut words = vec![result.metric.replace('_', " ")];
    words.extend(result.transport.clone());
    words.extend(result.pattern.clone());
    words.extend(result.bs_bytes.map(units::bytes_text));
    words.extend(result.qd.map(|depth| format!("depth {depth}")));
    words.extend(result.jobs.filter(|jobs| *jobs > 1).map(|jobs| format!("{jobs} jobs")));
    words.extend(result.cores.filter(|cores| *cores > 1).map(|cores| format!("{cores} cores")));
    words.extend(result.device.clone());
    words.extend(result.note.clone());
    words.join(", ")
}

fn unit_of(result: &PublishedResult) -> Option<Unit> {
    Some(match result.unit.as_str() {
        "s" | "ms" | "us" if result.metric != "best_idle_poll" => Unit::Time,
        "MiB/s" | "MB/s" | "Gb/s" => Unit::BytesPerSecond,
        "KIOPS" | "IOPS" => Unit::Iops,
        "x" | "x local qd1 IOPS" | "fraction" => Unit::Times,
        _ => return None,
    })
}

fn shown(result: &PublishedResult, unit: Option<Unit>, value: f64) -> String {
    match (unit, result.unit.as_str()) {
        // A link's rate is told in bits.
        (Some(_), "Gb/s") => format!("{} Gb/s", units::digits(value * 8.0 / 1e9)),
        (Some(unit), _) => units::show(unit, value),
        (None, "%") => units::percent(value / 100.0),
        (None, "us") => format!("{} µs", units::digits(value / 1e3)),
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a block size")]
        (None, "bytes") => units::bytes_text(value.max(0.0) as u64),
        (None, "qd") => format!("depth {}", units::digits(value)),
        (None, unit) => format!("{} {unit}", units::digits(value)),
    }
}

/// Where the two disagree, and how much of what was published has a counterpart.
pub(super) fn summary(beside: &Beside) -> String {
    let rows = &beside.rows;
    let count =
        |wanted: fn(&Verdict) -> bool| rows.iter().filter(|row| wanted(&row.verdict)).count();
    let alike = count(|verdict| *verdict == Verdict::Alike);
    let differ = count(|verdict| matches!(verdict, Verdict::Differs(_)));
    let missing = count(|verdict| matches!(verdict, Verdict::Missing(_)));
    let ratio = rows.len() - alike - differ - missing;
    let counts = [
        (alike, "with the same shape here (within a quarter)"),
        (differ, "with another one"),
        (ratio, "with a ratio only"),
        (missing, "without a counterpart"),
    ];
    let counts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let mut text = format!("Published numbers: {}, {}.", rows.len(), counts.join(", "));
    for row in rows {
        if let Verdict::Differs(how) = &row.verdict {
            text += &format!(" {} ({}): {how}.", row.figure, row.what);
        }
    }
    text
}

#[cfg(test)]
mod tests;
