//! Two sets of results, cell by cell: is the second one slower than the first?
//!
//! The question has a margin: slower **by more than a margin**, with confidence, so that a script
//! can act on the result. What is compared are **repeats**: one value of the metric for each. The
//! test assumes no distribution and uses only their order (Mann, Whitney and Wilcoxon's rank sum
//! test, exact, with the first set shifted by the margin). Each p is adjusted for all cells and
//! metrics of the page by Holm's method, see `judge`.
//!
//! All cells together are one more question for each metric: there the value of a repeat is the
//! geometric mean of its cells, so that what they have in common (the state of the machine in that
//! round) counts once.
//!
//! Few repeats cannot convince, however large the difference. [`Comparison::refusal`] then says how
//! many it takes.

mod judge;
mod rank;

use std::collections::BTreeMap;

use serde::Serialize;

use self::judge::{Judged, Question};
use crate::{
    cells::{Cell, Cells},
    results::{Results, Role},
    study::plan::Plan,
};

/// The parameters of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// The smallest relative change that counts as slower or faster, as a share.
    pub margin: f64,
    /// The confidence level, as a share.
    pub confidence: f64,
    /// The metrics; empty: the one that the study is judged by.
    pub metrics: Vec<String>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { margin: 0.05, confidence: 0.95, metrics: Vec::new() }
    }
}

/// Whether a metric of this name can be compared: it has a value in each repeat.
#[must_use]
pub fn is_metric(name: &str) -> bool {
    crate::cells::is_of_a_repeat(name)
}

/// The result for one metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Slower by more than the margin.
    Slower,
    /// Faster by more than the margin.
    Faster,
    /// Neither: within the margin, with confidence.
    Same,
    /// None of these reaches the confidence.
    Undecided,
    /// There are too few repeats for any of these.
    TooFew,
}

/// One metric of one cell, or of all together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The metric's name.
    pub metric: String,
    /// Repeats of the first and of the second.
    pub repeats: (usize, usize),
    /// The median of the first set's repeats, which are compared by rank: a rate, or ns.
    pub first: f64,
    /// The median of the second set's repeats.
    pub second: f64,
    /// Second divided by first.
    pub ratio: f64,
    /// The p-value of "slower by more than the margin".
    pub p_slower: f64,
    /// The same, adjusted for all questions of the page.
    pub p_slower_adjusted: f64,
    /// The p-value of "faster by more than the margin".
    pub p_faster: f64,
    /// The same, adjusted for all questions of the page.
    pub p_faster_adjusted: f64,
    /// The result.
    pub answer: Answer,
    /// The smallest slow-down that is found with probability 0.8, as a share; none if there are too
    /// few repeats.
    pub noticeable: Option<f64>,
}

/// A cell that is in both sets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedCell {
    /// Its identifier.
    pub cell: String,
    /// What it is for.
    pub role: Role,
    /// What was compared.
    pub metrics: Vec<Compared>,
}

/// How many repeats a comparison takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Needed {
    /// Questions of the page: every metric of every cell, and of all together.
    pub questions: usize,
    /// Fewer repeats of each set cannot convince.
    pub least: usize,
    /// So many find a slow-down by `slow_down` of one cell in four of five cases.
    pub recommended: usize,
    /// That slow-down, as a share.
    pub slow_down: f64,
    /// The spread from repeat to repeat, as a share; none if no cell has two.
    pub spread: Option<f64>,
    /// The most repeats that a cell has in both sets.
    pub most: usize,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The margin, as a share.
    pub margin: f64,
    /// The confidence, as a share.
    pub confidence: f64,
    /// How many repeats it takes.
    pub needed: Needed,
    /// The cells that are in both sets.
    pub cells: Vec<ComparedCell>,
    /// All of them together, for each metric.
    pub overall: Vec<Compared>,
    /// Cells that have a result in the first set and none in the second, with the reason if known.
    pub missing: BTreeMap<String, String>,
    /// Cells that have a result in the second set only.
    pub new: Vec<String>,
    /// How the conditions of the two runs differ.
    pub differences: Vec<String>,
}

impl Comparison {
    /// Whether anything is slower by more than the margin, with confidence.
    #[must_use]
    pub fn is_slower(&self) -> bool {
        self.all().any(|compared| compared.answer == Answer::Slower)
    }

    /// Whether something may be slower by more than one would mind: neither is it known to be
    /// within the margin, nor would a slow-down have been found for which repeats are recommended.
    #[must_use]
    pub fn is_undecided(&self) -> bool {
        let is_seen = |one: &Compared| {
            one.noticeable.is_some_and(|least| least <= self.needed.slow_down + 0.005)
        };
        self.all().any(|one| match one.answer {
            Answer::Slower | Answer::Faster | Answer::Same => false,
            Answer::Undecided | Answer::TooFew => !is_seen(one),
        })
    }

    /// Every metric of every cell.
    pub fn each(&self) -> impl Iterator<Item = &Compared> {
        self.cells.iter().flat_map(|cell| &cell.metrics)
    }

    /// The same, and that of all cells together.
    pub fn all(&self) -> impl Iterator<Item = &Compared> {
        self.each().chain(&self.overall)
    }

    /// Why nothing can be said, if no cell has enough repeats to convince.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        let Needed { questions, least, recommended, slow_down, spread, most } = self.needed;
        if self.all().any(|compared| compared.answer != Answer::TooFew) {
            return None;
        }
        let spread = spread.map_or("a spread of 10 % is assumed".to_owned(), |spread| {
            format!("the spread is {:.0} %", 100.0 * spread)
        });
        Some(format!(
            "{most} repeats of a cell cannot convince, whatever they show: beside {questions} \
             questions it takes at least {least} of each set; {recommended} are recommended, which \
             find a slow-down by {:.0} % of one cell in four of five cases ({spread} from repeat \
             to repeat). Measure with --repeats {recommended}, or choose fewer cells or metrics",
            100.0 * slow_down,
        ))
    }
}

/// Compares the second set of results with the first.
#[must_use]
pub fn compare(first: &Results, second: &Results, parameters: &Parameters) -> Comparison {
    let one = Cells::of(&first.records, &first.environment);
    let other = Cells::of(&second.records, &second.environment);
    let (pairs, missing) = pairs(&one, &other);
    let measured = |cell: &&Cell| cell.is_measured();
    let new = other.cells.iter().filter(measured).filter(|cell| {
        !counterpart(cell, &one).is_some_and(|counterpart| counterpart.is_measured())
    });
    let between = if are_in_turns(first, second) { 0.0 } else { judge::BETWEEN_SESSIONS };
    let metrics = match &parameters.metrics[..] {
        [] => vec![judged_by(first)],
        metrics => metrics.to_vec(),
    };
    let mut asked = Vec::new();
    for (index, pair) in pairs.iter().enumerate() {
        let of =
            |metric: &String| Some((Some(index), metric.clone(), question(metric, pair, between)?));
        asked.extend(metrics.iter().filter_map(of));
    }
    if pairs.len() > 1 {
        let of = |metric: &String| Some((None, metric.clone(), together(metric, &pairs, between)?));
        asked.extend(metrics.iter().filter_map(of));
    }
    let questions: Vec<Question> = asked.iter().map(|(.., question)| question.clone()).collect();
    let mut cells: Vec<ComparedCell> = pairs
        .iter()
        .map(|(cell, _)| ComparedCell { cell: cell.id.clone(), role: cell.role, metrics: vec![] })
        .collect();
    let mut overall = Vec::new();
    for ((index, metric, of), judged) in asked.iter().zip(judge::judge(&questions, parameters)) {
        let compared = compared(metric, of, &judged);
        match index.and_then(|index| cells.get_mut(index)) {
            Some(cell) => cell.metrics.push(compared),
            None => overall.push(compared),
        }
    }
    Comparison {
        margin: parameters.margin,
        confidence: parameters.confidence,
        needed: needed(&asked, parameters),
        cells,
        overall,
        missing,
        new: new.map(|cell| cell.id.clone()).collect(),
        differences: differences(first, second),
    }
}

/// The metric that the study of these results is judged by.
fn judged_by(results: &Results) -> String {
    let plan: Option<Plan> = results.plan.parse().ok();
    plan.map_or("iops".to_owned(), |plan| plan.judged_by())
}

fn counterpart<'a>(cell: &Cell, cells: &'a Cells) -> Option<&'a Cell> {
    cells.cells.iter().find(|other| other.role == cell.role && other.id == cell.id)
}

/// Cells with a result in both sets, and those of the first that have none in the second.
fn pairs<'a>(
    one: &'a Cells,
    other: &'a Cells,
) -> (Vec<(&'a Cell, &'a Cell)>, BTreeMap<String, String>) {
    let mut missing = BTreeMap::new();
    let mut pairs = Vec::new();
    for cell in one.cells.iter().filter(|cell| cell.is_measured()) {
        match counterpart(cell, other) {
            Some(counterpart) if counterpart.is_measured() => pairs.push((cell, counterpart)),
            Some(counterpart) => {
                let reason = counterpart.missing.first().and_then(|status| status.reason());
                missing.insert(cell.id.clone(), reason.unwrap_or("no result").to_owned());
            }
            None => {
                missing.insert(cell.id.clone(), "not in the second set".to_owned());
            }
        }
    }
    (pairs, missing)
}

/// Values of the repeats of a cell, by repeat.
fn values(cell: &Cell, metric: &str) -> BTreeMap<u32, f64> {
    let value = |repeat: &crate::cells::Repeat| Some((repeat.number, repeat.metric(metric)?));
    let positive = |(_, value): &(u32, f64)| value.is_finite() && *value > 0.0;
    cell.repeats.iter().filter_map(value).filter(positive).collect()
}

fn question(metric: &str, (cell, counterpart): &(&Cell, &Cell), between: f64) -> Option<Question> {
    let of = |cell: &Cell| -> Vec<f64> { values(cell, metric).into_values().collect() };
    asks(metric, of(cell), of(counterpart), between)
}

/// All cells as one.
fn together(metric: &str, pairs: &[(&Cell, &Cell)], between: f64) -> Option<Question> {
    let first = pairs.iter().map(|(cell, _)| values(cell, metric)).collect::<Vec<_>>();
    let second = pairs.iter().map(|(_, cell)| values(cell, metric)).collect::<Vec<_>>();
    asks(metric, means(&first), means(&second), between)
}

/// The geometric mean of the cells in each repeat that all of them have.
fn means(cells: &[BTreeMap<u32, f64>]) -> Vec<f64> {
    let mean = |round: &u32| -> Option<f64> {
        let log = |of: &BTreeMap<u32, f64>| of.get(round).map(|value| value.ln());
        let logs: Option<Vec<f64>> = cells.iter().map(log).collect();
        let logs = logs?;
        Some((logs.iter().sum::<f64>() / logs.len() as f64).exp())
    };
    cells.first().into_iter().flat_map(BTreeMap::keys).filter_map(mean).collect()
}

fn asks(metric: &str, first: Vec<f64>, second: Vec<f64>, between: f64) -> Option<Question> {
    let any = !first.is_empty() && !second.is_empty();
    let is_time = crate::cells::is_better_if_less(metric);
    any.then_some(Question { first, second, is_time, between })
}

fn compared(metric: &str, of: &Question, judged: &Judged) -> Compared {
    let (first, second) = (median(&of.first), median(&of.second));
    Compared {
        metric: metric.to_owned(),
        repeats: (of.first.len(), of.second.len()),
        first,
        second,
        ratio: second / first,
        p_slower: judged.p_slower,
        p_slower_adjusted: judged.p_slower_adjusted,
        p_faster: judged.p_faster,
        p_faster_adjusted: judged.p_faster_adjusted,
        answer: judged.answer,
        noticeable: judged.noticeable,
    }
}

/// One repeat that was disturbed does not move it, as it does not move a rank.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = |at: usize| sorted.get(at).copied().unwrap_or(f64::NAN);
    f64::midpoint(middle(sorted.len().saturating_sub(1) / 2), middle(sorted.len() / 2))
}

fn needed(asked: &[(Option<usize>, String, Question)], parameters: &Parameters) -> Needed {
    let count = asked.len();
    let of_cells = asked.iter().filter(|(index, ..)| index.is_some());
    let of_cells: Vec<(&str, &Question)> =
        of_cells.map(|(_, metric, question)| (metric.as_str(), question)).collect();
    let spread = |metric: &str| {
        let questions = of_cells.iter().filter(|(name, _)| *name == metric);
        judge::spread(questions.map(|(_, question)| *question))
    };
    let repeats = of_cells.iter().map(|(_, of)| of.first.len().min(of.second.len()));
    let recommended = of_cells.iter().map(|(metric, of)| {
        judge::recommended_repeats(count, of.is_time, spread(metric), parameters)
    });
    Needed {
        questions: count,
        least: judge::least_repeats(count, parameters),
        recommended: recommended.max().unwrap_or(0),
        slow_down: judge::slow_down(parameters),
        spread: of_cells.iter().filter_map(|(metric, _)| spread(metric)).reduce(f64::max),
        most: repeats.max().unwrap_or(0),
    }
}

/// How many repeats of each set a comparison of so many cells takes by a metric, before anything
/// has been measured: at least, and recommended for a spread of 10 % from repeat to repeat.
#[must_use]
pub fn repeats_needed(cells: usize, metric: &str, parameters: &Parameters) -> (usize, usize) {
    let questions = cells + usize::from(cells > 1);
    let is_time = crate::cells::is_better_if_less(metric);
    (
        judge::least_repeats(questions, parameters),
        judge::recommended_repeats(questions, is_time, None, parameters),
    )
}

/// Differences in the conditions of the two runs.
fn differences(first: &Results, second: &Results) -> Vec<String> {
    let (one, other) = (&first.environment, &second.environment);
    let mut differences = Vec::new();
    let mut note = |what: &str, one: &str, other: &str| {
        if one != other {
            differences.push(format!("{what}: {one:?} and {other:?}"));
        }
    };
    note("study", &one.study, &other.study);
    note("machine", &one.machine, &other.machine);
    note("processor", &one.processor.model, &other.processor.model);
    note("cores", &one.processor.cores.to_string(), &other.processor.cores.to_string());
    note("governor", &one.processor.governor, &other.processor.governor);
    note("kernel", &one.kernel, &other.kernel);
    note("driver", &one.driver, &other.driver);
    note("local device", &one.local_device(), &other.local_device());
    note("weft", &one.weft_version, &other.weft_version);
    if !are_in_turns(first, second) {
        differences.push(format!(
            "time: one set was measured after the other, so that up to {:.0} % may be what changed \
             on the machine meanwhile (`weft study run --against` measures them in turns)",
            100.0 * (judge::BETWEEN_SESSIONS.exp() - 1.0)
        ));
    }
    differences
}

/// Whether neither set had ended when the other one began, as far as that is known.
fn are_in_turns(first: &Results, second: &Results) -> bool {
    let both = [&first.environment, &second.environment];
    let late = both.iter().map(|one| one.started_at_ms).max().unwrap_or(0);
    late == 0 || !both.iter().any(|one| one.ended_at_ms > 0 && one.ended_at_ms <= late)
}

#[cfg(test)]
mod tests;
