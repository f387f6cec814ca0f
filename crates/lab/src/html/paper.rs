//! Compares published numbers with the results of a study.
//!
//! Other hardware gives other numbers, so ratios are compared: the share of local, the position
//! on an axis at which a curve bends, the factor between two settings. Where there is no such ratio
//! the plain quotient is shown without a verdict.

mod matching;

use super::units;
use crate::cells::gate::{Gate, distinguish};
use crate::cells::{Cells, Estimate, Scale, Unit};
use crate::published::{Published, PublishedResult, Source};
use crate::study::plan::Plan;
use matching::{Counterpart, PublishedNumber};

/// Two ratios agree if neither is more than this share below the other.
const ALIKE: f64 = 0.25;

/// A published number beside the measured one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) figure: String,
    pub(super) what: String,
    pub(super) published: String,
    pub(super) measured: String,
    /// The ratio, published and measured.
    pub(super) shape: String,
    pub(super) verdict: Outcome,
    /// How the two settings differ.
    pub(super) differences: String,
    /// Transport, device and cores, ours beside theirs.
    pub(super) settings: String,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// They agree within a quarter.
    Alike,
    /// They do not; the numbers.
    Differs(String),
    /// There is no ratio to compare, only the quotient.
    Ratio(String),
    /// The measured number allows no verdict.
    Withheld(String),
    /// There is no measured number.
    Missing(String),
}

/// The numbers of one document for one study.
#[derive(Clone, Debug)]
pub(super) struct PaperComparison {
    pub(super) document: String,
    pub(super) testbed: String,
    pub(super) method: String,
    pub(super) rows: Vec<Row>,
}

/// The published numbers of a study, by document.
pub(super) fn paper_comparisons(
    published: &Published,
    cells: &Cells,
    plan: &Plan,
) -> Vec<PaperComparison> {
    let results = results(published, plan);
    let each = cells.by_repeat();
    let mut documents: Vec<PaperComparison> = Vec::new();
    for result in &results {
        let Some(source) = published.source.get(&result.source) else { continue };
        let row = row(&Numbers { results: &results, source, plan, cells, each: &each }, result);
        match documents.iter_mut().find(|known| known.document == source.title) {
            Some(document) => document.rows.push(row),
            None => documents.push(PaperComparison {
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

/// What rows are made of.
struct Numbers<'a> {
    results: &'a [&'a PublishedResult],
    source: &'a Source,
    plan: &'a Plan,
    cells: &'a Cells,
    /// Each repeat by itself.
    each: &'a [Cells],
}

fn row(numbers: &Numbers<'_>, result: &PublishedResult) -> Row {
    let unit = unit_of(result);
    let show = |value: f64| shown(result, unit, value);
    let mut row = Row {
        figure: result.figure.clone(),
        what: what(result),
        published: show(result.plain_value()),
        measured: "–".to_owned(),
        shape: String::new(),
        verdict: Outcome::Missing(String::new()),
        differences: String::new(),
        settings: String::new(),
    };
    let found = match numbers.counterpart(result, numbers.cells) {
        Ok(found) => found,
        Err(why) => {
            row.verdict = Outcome::Missing(why);
            return row;
        }
    };
    row.measured = show(found.value);
    row.differences = found.differences.join("; ");
    let compared = numbers.compared(result, numbers.cells, &found);
    let named = compared.as_ref().map_or(&found.gate, |compared| &compared.gate).named();
    row.settings = format!("ours: {}{named}; theirs: {}", found.setting, theirs(result));
    let Some(compared) = compared else {
        row.verdict = match found.gate.refusal() {
            None => Outcome::Ratio(format!(
                "measured is {} published",
                units::times(found.value / result.plain_value())
            )),
            Some(why) => Outcome::Withheld(why),
        };
        return row;
    };
    let number = |value: f64| match compared.shape {
        Shape::Itself => show(value),
        Shape::OfLocal => units::percent(value),
        Shape::OfSetting(_) => format!("{} ×", units::digits(value)),
    };
    let both = (number(compared.published), number(compared.measured));
    row.shape = match &compared.shape {
        Shape::Itself => String::new(),
        Shape::OfLocal => {
            format!("relative to local: published {}, measured {}", both.0, both.1)
        }
        Shape::OfSetting(base) => {
            format!("relative to {base}: published {}, measured {}", both.0, both.1)
        }
    };
    row.verdict = match numbers.is_another_local() && is_of_local(result) {
        true => Outcome::Withheld(
            "it is relative to local, which is a copy in memory here and a device there".to_owned(),
        ),
        false => verdict(&compared, result, &numbers.spread(result, &compared), &number),
    };
    row
}

/// Whether a number is relative to local by itself.
fn is_of_local(result: &PublishedResult) -> bool {
    let between = result.between.iter().flatten().any(|name| name == "local");
    between
        || ["concurrency_max", "local_over_remote_iops", "bs_at_parity"]
            .contains(&result.metric.as_str())
}

/// Their transport, device and cores, as far as the number names them.
fn theirs(result: &PublishedResult) -> String {
    let mut words: Vec<String> = result.transport.iter().chain(&result.device).cloned().collect();
    words.extend(result.cores.map(|cores| format!("{cores} cores")));
    if words.is_empty() { "the testbed's".to_owned() } else { words.join(", ") }
}

/// A measured number in the form in which it is compared with the published one.
struct NumberPair {
    shape: Shape,
    published: f64,
    measured: f64,
    /// Whether the marks of all cells allow a verdict.
    gate: Gate,
}

impl Numbers<'_> {
    fn counterpart(&self, of: &PublishedResult, cells: &Cells) -> Result<Counterpart, String> {
        PublishedNumber::new(of, self.source, self.plan, cells).counterpart()
    }

    /// Whether local is a copy here and a device there: a share of one is no share of the other.
    fn is_another_local(&self) -> bool {
        let local = &self.cells.environment.local;
        !self.source.memory && ["memory", "null"].iter().any(|name| local.starts_with(name))
    }

    fn compared(
        &self,
        result: &PublishedResult,
        cells: &Cells,
        found: &Counterpart,
    ) -> Option<NumberPair> {
        let (shape, published, measured, base) = shape(self, result, found, cells)?;
        let own = found.gate.clone();
        let gate = match base {
            Some(base) => base.and(own),
            None => own,
        };
        Some(NumberPair { shape, published, measured, gate })
    }

    /// The measured number of each repeat, in the form in which it is compared.
    fn spread(&self, result: &PublishedResult, whole: &NumberPair) -> Estimate {
        let of = |cells: &Cells| {
            let found = self.counterpart(result, cells).ok()?;
            let compared = self.compared(result, cells, &found)?;
            (compared.shape == whole.shape).then(|| quotient(result, compared.measured))
        };
        let values: Vec<f64> =
            self.each.iter().filter_map(of).filter(|value| value.is_finite()).collect();
        let estimate = Estimate::of(&values, Scale::Log).filter(|estimate| estimate.count > 1);
        estimate.unwrap_or_else(|| Estimate::pooled(quotient(result, whole.measured), values.len()))
    }
}

/// They agree, or do not, if the interval of the measured number is within the bounds, or outside.
fn verdict(
    compared: &NumberPair,
    result: &PublishedResult,
    spread: &Estimate,
    number: &dyn Fn(f64) -> String,
) -> Outcome {
    let [published, measured] =
        [compared.published, compared.measured].map(|value| quotient(result, value));
    if let Some(why) = compared.gate.refusal() {
        return Outcome::Withheld(why);
    }
    for bound in [1.0 - ALIKE, 1.0 / (1.0 - ALIKE)] {
        let bound = Estimate::exact(published * bound);
        if let Some(why) = distinguish(spread, &bound).refusal() {
            return Outcome::Withheld(why);
        }
    }
    let factor = measured / published;
    if (1.0 - ALIKE..=1.0 / (1.0 - ALIKE)).contains(&factor) {
        return Outcome::Alike;
    }
    let itself = compared.shape == Shape::Itself;
    let around_one =
        !itself || ["x", "fraction"].contains(&result.unit.as_str()) || gain(result).is_some();
    let opposite = around_one && (published - 1.0) * (measured - 1.0) < 0.0;
    let how = if opposite { "in the opposite direction: " } else { "" };
    let (published, measured) = (number(compared.published), number(compared.measured));
    Outcome::Differs(format!("{how}published {published}, measured {measured}"))
}

/// The sign of a gain in percent; none of other numbers.
fn gain(result: &PublishedResult) -> Option<f64> {
    match result.metric.as_str() {
        "iops_improvement" | "p99_added_pct" => Some(1.0),
        "p99_improvement"
        | "p99_improvement_min"
        | "p99_improvement_max"
        | "target_cpu_per_gbps_saving_vs_tcp" => Some(-1.0),
        _ => None,
    }
}

/// What a number is compared by: a gain in percent is a quotient less one, and has its interval.
fn quotient(result: &PublishedResult, value: f64) -> f64 {
    gain(result).map_or(value, |sign| 1.0 + sign * value / 100.0)
}

/// What is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    /// The number itself, which does not depend on hardware: a factor, or a position on an axis.
    Itself,
    /// Its share of the local number.
    OfLocal,
    /// Its factor to the number of another setting.
    OfSetting(String),
}

/// The form, the published number, the measured one, and the gate of what it is relative to.
fn shape(
    numbers: &Numbers<'_>,
    result: &PublishedResult,
    found: &Counterpart,
    cells: &Cells,
) -> Option<(Shape, f64, f64, Option<Gate>)> {
    const THEMSELVES: [&str; 8] =
        ["x", "fraction", "bytes", "cores", "processes", "qd", "x local qd1 IOPS", "%"];
    let results = numbers.results;
    let percentage_of_cpu = result.metric.contains("cpu") && result.unit == "%";
    let knob = result.metric == "best_idle_poll";
    if THEMSELVES.contains(&result.unit.as_str()) && !percentage_of_cpu || knob {
        return Some((Shape::Itself, result.plain_value(), found.value, None));
    }
    let base = |other: &PublishedResult| match numbers.counterpart(other, cells) {
        Ok(base) if base.value > 0.0 => {
            Some((result.value / other.value, found.value / base.value, Some(base.gate)))
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
    if !is_local(&result.transport) && !numbers.is_another_local() {
        let local = results.iter().filter(point).find(|other| {
            is_local(&other.transport)
                && other.bs_bytes == result.bs_bytes
                && other.jobs == result.jobs
                && (other.qd == result.qd || result.metric.ends_with("_max"))
        });
        if let Some((published, measured, gate)) = local.and_then(|local| base(local)) {
            return Some((Shape::OfLocal, published, measured, gate));
        }
    }
    let setting = results.iter().filter(point).find(|other| other.base)?;
    if result.base {
        return None;
    }
    let (published, measured, gate) = base(setting)?;
    let name = setting.note.clone().unwrap_or_default();
    Some((Shape::OfSetting(name), published, measured, gate))
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
        // The rate of a link is shown in bits.
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

/// The comparison as text: how many numbers agree, and each that does not.
pub(super) fn summary(paper: &PaperComparison) -> String {
    let rows = &paper.rows;
    let count =
        |wanted: fn(&Outcome) -> bool| rows.iter().filter(|row| wanted(&row.verdict)).count();
    let alike = count(|verdict| *verdict == Outcome::Alike);
    let differ = count(|verdict| matches!(verdict, Outcome::Differs(_)));
    let missing = count(|verdict| matches!(verdict, Outcome::Missing(_)));
    let withheld = count(|verdict| matches!(verdict, Outcome::Withheld(_)));
    let ratio = rows.len() - alike - differ - withheld - missing;
    let counts = [
        (alike, "agree within a quarter"),
        (differ, "differ"),
        (ratio, "have a plain quotient only"),
        (withheld, "allow no verdict"),
        (missing, "were not measured"),
    ];
    let counts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let mut text = format!("Published numbers: {}, {}.", rows.len(), counts.join(", "));
    for row in rows {
        if let Outcome::Differs(how) = &row.verdict {
            text += &format!(" {} ({}): {how} ({}).", row.figure, row.what, row.settings);
        }
    }
    text
}

#[cfg(test)]
mod tests;
