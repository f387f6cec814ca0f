//! Two sets of results, cell by cell: is the second one slower than the first?
//!
//! The question is asked so that a machine can act on the answer: slower **by more than a margin**,
//! with confidence. Nothing is assumed about how numbers are distributed, only their order counts
//! (Mann, Whitney and Wilcoxon's test, with the first set moved by the margin).
//!
//! What is ranked, in order of preference:
//! - **repeats**, which are independent of each other, by an exact test, where there are enough of
//!   them that any arrangement could convince;
//! - **windows** of 500 ms within the repeats, for IOPS, where there are not. Windows of one repeat
//!   know nothing of what makes repeats differ, so the repeats have to be apart as well, every one
//!   of the second set beyond every one of the first;
//! - **requests**, for latency: the histograms, under the same condition. Requests of one run
//!   depend on each other; a second counts as no more than [`INDEPENDENT_PER_SECOND`].
//!
//! Many cells are asked at once, so each p counts as Holm has it. Beside every answer stands how
//! small a change would have been noticed: a comparison that could not have found anything says so.

mod rank;

use std::collections::BTreeMap;

use serde::Serialize;

use self::rank::{Counted, Ranked, arrangements, holm, normal_quantile, normal_tail, rank};
use crate::{
    cells::{Cell, Cells, Repeat},
    results::{Results, Role},
};

/// Requests of a second that count as independent of each other, at most.
pub const INDEPENDENT_PER_SECOND: f64 = 100.0;

/// Windows that a set needs, at least.
const WINDOWS_MIN: usize = 8;

/// The chance with which a change is noticed that is called noticeable.
const POWER: f64 = 0.8;

/// The asymptotic efficiency of the rank test beside the t-test where the latter is at its best.
const EFFICIENCY: f64 = 3.0 / std::f64::consts::PI;

/// What to ask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    /// By how much slower is slower, as a share.
    pub margin: f64,
    /// With how much confidence, as a share.
    pub confidence: f64,
}

impl Default for Question {
    fn default() -> Self {
        Self { margin: 0.05, confidence: 0.95 }
    }
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Requests a second.
    Iops,
    /// Mean latency of the repeats, or all latencies.
    Latency,
    /// The 99th percentile of the repeats.
    P99,
}

/// What was ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ranking {
    /// Repeats, exactly.
    Repeats,
    /// Windows of 500 ms; the repeats had to be apart as well.
    Windows,
    /// Latencies in the histograms; the repeats had to be apart as well.
    Requests,
    /// Nothing: there are too few repeats, or no numbers.
    Nothing,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// By more than the margin.
    Slower,
    /// By more than the margin.
    Faster,
    /// Neither: with confidence within the margin.
    Same,
    /// The numbers do not tell.
    Undecided,
}

/// One quantity of one cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// What.
    pub quantity: Quantity,
    /// The mean of the first set's repeats: IOPS, or ns.
    pub first: f64,
    /// Of the second's.
    pub second: f64,
    /// The second over the first.
    pub ratio: f64,
    /// What was ranked.
    pub ranking: Ranking,
    /// That it is slower by more than the margin: the probability of such numbers if it is not.
    pub p_slower: f64,
    /// The same as it counts among all that was asked.
    pub p_slower_adjusted: f64,
    /// That it is faster by more than the margin.
    pub p_faster: f64,
    /// The answer.
    pub answer: Answer,
    /// The least slow-down that would have been noticed in four of five cases, as a share; none if
    /// none would.
    pub noticeable: Option<f64>,
    #[serde(skip)]
    p_not_slower: f64,
    #[serde(skip)]
    p_not_faster: f64,
}

/// A cell that both have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedCell {
    /// Its identifier.
    pub cell: String,
    /// What it is for.
    pub role: Role,
    /// Repeats of the first and of the second.
    pub repeats: (usize, usize),
    /// What was compared.
    pub quantities: Vec<Compared>,
}

/// All cells together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overall {
    /// The geometric mean of the cells' ratios of IOPS.
    pub iops_ratio: f64,
    /// Cells.
    pub cells: usize,
    /// That IOPS are lower by more than the margin, over all cells: ranks within each cell, added
    /// up (van Elteren's test).
    pub p_slower: f64,
    /// Whether that is convincing.
    pub slower: bool,
}

/// What a comparison found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The margin, as a share.
    pub margin: f64,
    /// The confidence, as a share.
    pub confidence: f64,
    /// The cells that both have.
    pub cells: Vec<ComparedCell>,
    /// All of them together; none if there is none.
    pub overall: Option<Overall>,
    /// Cells that the first has a result for and the second has not, and why as far as it is known.
    pub missing: BTreeMap<String, String>,
    /// Cells that only the second has a result for.
    pub new: Vec<String>,
    /// How the two were run differently.
    pub differences: Vec<String>,
}

impl Comparison {
    /// Whether anything is slower by more than the margin, with confidence.
    #[must_use]
    pub fn is_slower(&self) -> bool {
        self.overall.as_ref().is_some_and(|overall| overall.slower)
            || self.quantities().any(|compared| compared.answer == Answer::Slower)
    }

    /// Everything that was compared.
    pub fn quantities(&self) -> impl Iterator<Item = &Compared> {
        self.cells.iter().flat_map(|cell| &cell.quantities)
    }
}

/// Compares the second set of results with the first.
#[must_use]
pub fn compare(first: &Results, second: &Results, question: Question) -> Comparison {
    let one = Cells::of(&first.records, &first.environment);
    let other = Cells::of(&second.records, &second.environment);
    let twin = |cell: &Cell, cells: &'_ Cells| {
        let same = |twin: &&Cell| twin.role == cell.role && twin.id == cell.id;
        cells.cells.iter().find(same).cloned()
    };
    let mut missing = BTreeMap::new();
    let mut pairs = Vec::new();
    for cell in one.cells.iter().filter(|cell| cell.is_measured()) {
        match twin(cell, &other) {
            Some(twin) if twin.is_measured() => pairs.push((cell, twin)),
            Some(twin) => {
                let reason = twin.missing.first().and_then(|status| status.reason());
                missing.insert(cell.id.clone(), reason.unwrap_or("no result").to_owned());
            }
            None => {
                missing.insert(cell.id.clone(), "not in the second set".to_owned());
            }
        }
    }
    let new = other.cells.iter().filter(|cell| cell.is_measured());
    let new = new.filter(|cell| !twin(cell, &one).is_some_and(|twin| twin.is_measured()));
    let asked = 3 * pairs.len();
    let mut cells: Vec<ComparedCell> =
        pairs.iter().map(|(cell, twin)| compared_cell(cell, twin, question, asked)).collect();
    adjust(&mut cells, question);
    Comparison {
        margin: question.margin,
        confidence: question.confidence,
        overall: overall(&pairs, question),
        cells,
        missing,
        new: new.map(|cell| cell.id.clone()).collect(),
        differences: differences(first, second),
    }
}

/// Values of the repeats of a cell.
fn values(cell: &Cell, quantity: Quantity) -> Vec<f64> {
    let value = |repeat: &Repeat| match quantity {
        Quantity::Iops => Some(repeat.iops),
        Quantity::Latency => (repeat.requests > 0).then(|| repeat.latency.mean_ns()),
        Quantity::P99 => repeat.latency.percentile_ns(99.0).map(|ns| ns as f64),
    };
    cell.repeats.iter().filter_map(value).collect()
}

/// A sample of either set, turned so that smaller is worse, and the first moved by the margin.
struct Samples {
    first: Vec<f64>,
    second: Vec<f64>,
}

impl Samples {
    /// How likely such numbers are if the second is not worse than `factor` times the first.
    fn p_below(&self, factor: f64) -> f64 {
        let moved: Vec<f64> = self.first.iter().map(|value| value * factor).collect();
        rank(&self.second, &moved).p_smaller
    }

    /// And if it is not better.
    fn p_above(&self, factor: f64) -> f64 {
        let moved: Vec<f64> = self.first.iter().map(|value| value * factor).collect();
        rank(&moved, &self.second).p_smaller
    }

    /// The same as of [`chances`], of these samples.
    fn chances(&self, slow: f64, fast: f64) -> [f64; 4] {
        [self.p_below(slow), self.p_above(fast), self.p_above(slow), self.p_below(fast)]
    }
}

fn compared_cell(cell: &Cell, twin: &Cell, question: Question, asked: usize) -> ComparedCell {
    let quantities = [Quantity::Iops, Quantity::Latency, Quantity::P99];
    ComparedCell {
        cell: cell.id.clone(),
        role: cell.role,
        repeats: (cell.repeats.len(), twin.repeats.len()),
        quantities: quantities
            .into_iter()
            .filter_map(|quantity| compared(cell, twin, quantity, question, asked))
            .collect(),
    }
}

fn compared(
    cell: &Cell,
    twin: &Cell,
    quantity: Quantity,
    question: Question,
    asked: usize,
) -> Option<Compared> {
    let (first, second) = (values(cell, quantity), values(twin, quantity));
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (first_mean, second_mean) = (mean(&first), mean(&second));
    if first.is_empty() || second.is_empty() || first_mean <= 0.0 || second_mean <= 0.0 {
        return None;
    }
    // Speeds: smaller is worse, for times as well.
    let speed = |values: &[f64]| -> Vec<f64> {
        values.iter().map(|v| if quantity == Quantity::Iops { *v } else { 1.0 / v }).collect()
    };
    let repeats = Samples { first: speed(&first), second: speed(&second) };
    let level = (1.0 - question.confidence) / asked.max(1) as f64;
    let least = 1.0 / arrangements(first.len(), first.len() + second.len()) as f64;
    let (slow, fast) = factors(quantity, question);
    let ranking = match quantity {
        _ if least <= level => Ranking::Repeats,
        Quantity::Iops if windows(cell).len().min(windows(twin).len()) >= WINDOWS_MIN => {
            Ranking::Windows
        }
        Quantity::Latency => Ranking::Requests,
        Quantity::Iops | Quantity::P99 => Ranking::Nothing,
    };
    let [p_slower, p_faster, p_not_slower, p_not_faster] =
        chances(cell, twin, &repeats, ranking, (slow, fast));
    Some(Compared {
        quantity,
        first: first_mean,
        second: second_mean,
        ratio: second_mean / first_mean,
        ranking,
        p_slower,
        p_slower_adjusted: 1.0,
        p_faster,
        answer: Answer::Undecided,
        noticeable: noticeable(&repeats, ranking, question, level),
        p_not_slower,
        p_not_faster,
    })
}

/// How likely such values are if the second set were not slower, not faster, slower and faster.
fn chances(
    cell: &Cell,
    twin: &Cell,
    repeats: &Samples,
    ranking: Ranking,
    (slow, fast): (f64, f64),
) -> [f64; 4] {
    match ranking {
        Ranking::Repeats => repeats.chances(slow, fast),
        Ranking::Windows => {
            let windows = Samples { first: windows(cell), second: windows(twin) };
            guarded(repeats, (slow, fast), windows.chances(slow, fast))
        }
        Ranking::Requests => {
            // Times where the others are speeds.
            let (longer, shorter) = (1.0 / slow, 1.0 / fast);
            let p = [
                requests(twin, cell, longer),
                1.0 - requests(twin, cell, shorter),
                1.0 - requests(twin, cell, longer),
                requests(twin, cell, shorter),
            ];
            guarded(repeats, (slow, fast), p)
        }
        Ranking::Nothing => [1.0; 4],
    }
}

/// What the first set's speeds are moved by, for slower and for faster.
fn factors(quantity: Quantity, question: Question) -> (f64, f64) {
    let margin = question.margin;
    match quantity {
        Quantity::Iops => (1.0 - margin, 1.0 + margin),
        // A latency that is larger by the margin is a speed that is smaller by this factor.
        Quantity::Latency | Quantity::P99 => (1.0 / (1.0 + margin), 1.0 / (1.0 - margin)),
    }
}

/// What windows or requests say counts only if the repeats are apart in the same sense.
fn guarded(repeats: &Samples, (slow, fast): (f64, f64), p: [f64; 4]) -> [f64; 4] {
    let below = |factor: f64| {
        let least = repeats.first.iter().fold(f64::INFINITY, |least, value| least.min(*value));
        repeats.second.iter().all(|value| *value < factor * least)
    };
    let above = |factor: f64| {
        let most = repeats.first.iter().fold(0.0, |most: f64, value| most.max(*value));
        repeats.second.iter().all(|value| *value > factor * most)
    };
    let [slower, faster, not_slower, not_faster] = p;
    [
        if below(slow) { slower } else { 1.0 },
        if above(fast) { faster } else { 1.0 },
        if above(slow) { not_slower } else { 1.0 },
        if below(fast) { not_faster } else { 1.0 },
    ]
}

fn windows(cell: &Cell) -> Vec<f64> {
    cell.repeats.iter().flat_map(|repeat| repeat.windows.iter().copied()).collect()
}

/// How likely such latencies are if those of `cell` are not longer than `factor` times those of
/// `base`.
fn requests(cell: &Cell, base: &Cell, factor: f64) -> f64 {
    let counted = |cell: &Cell, factor: f64| -> Counted {
        cell.latency().raw().map(|(ns, times)| (ns as f64 * factor, times as f64)).collect()
    };
    let independent = |cell: &Cell| {
        INDEPENDENT_PER_SECOND * cell.repeats.iter().map(|repeat| repeat.seconds).sum::<f64>()
    };
    let independent = (independent(cell), independent(base));
    rank::rank_counts(&counted(cell, 1.0), &counted(base, factor), independent)
}

/// The least slow-down that is noticed with [`POWER`], from the spread of the repeats.
fn noticeable(repeats: &Samples, ranking: Ranking, question: Question, level: f64) -> Option<f64> {
    if ranking == Ranking::Nothing {
        return None;
    }
    let variation = |values: &[f64]| {
        let summary = crate::statistics::Summary::of(values.iter().copied());
        (summary.count >= 2).then(|| (summary.stddev / summary.mean).powi(2))
    };
    // Of one repeat nobody knows what another one would have been.
    let (first, second) = (variation(&repeats.first)?, variation(&repeats.second)?);
    let (m, n) = (repeats.first.len() as f64, repeats.second.len() as f64);
    let spread = ((first / m + second / n) / EFFICIENCY).sqrt();
    let quantiles = normal_quantile(level) + normal_quantile(1.0 - POWER);
    Some(question.margin + quantiles * spread)
}

/// Adjusts for how much was asked, and answers.
fn adjust(cells: &mut [ComparedCell], question: Question) {
    let level = 1.0 - question.confidence;
    let compared = || cells.iter().flat_map(|cell| &cell.quantities);
    let tested = |one: &&Compared| one.ranking != Ranking::Nothing;
    let slower = holm(&compared().filter(tested).map(|one| one.p_slower).collect::<Vec<f64>>());
    let faster = holm(&compared().filter(tested).map(|one| one.p_faster).collect::<Vec<f64>>());
    let all = cells.iter_mut().flat_map(|cell| &mut cell.quantities);
    let all = all.filter(|one| one.ranking != Ranking::Nothing);
    for ((one, slower), faster) in all.zip(slower).zip(faster) {
        one.p_slower_adjusted = slower;
        one.answer = if slower <= level {
            Answer::Slower
        } else if faster <= level {
            Answer::Faster
        } else if one.p_not_slower.max(one.p_not_faster) <= level {
            Answer::Same
        } else {
            Answer::Undecided
        };
    }
}

/// All cells' repeats, ranked within their cells.
fn overall(pairs: &[(&Cell, Cell)], question: Question) -> Option<Overall> {
    let (mut excess, mut variance, mut logs) = (0.0, 0.0, Vec::new());
    for (cell, twin) in pairs {
        let (first, second) = (values(cell, Quantity::Iops), values(twin, Quantity::Iops));
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let ratio = mean(&second) / mean(&first);
        if !(ratio.is_finite() && ratio > 0.0) {
            continue;
        }
        logs.push(ratio.ln());
        let (slow, _) = factors(Quantity::Iops, question);
        let moved: Vec<f64> = first.iter().map(|value| value * slow).collect();
        let ranked: Ranked = rank(&second, &moved);
        let weight = 1.0 / ((first.len() + second.len()) as f64 + 1.0);
        excess += weight * ranked.excess;
        variance += weight * weight * ranked.variance;
    }
    if logs.is_empty() {
        return None;
    }
    let p_slower = if variance > 0.0 { normal_tail(-excess / variance.sqrt()) } else { 1.0 };
    Some(Overall {
        iops_ratio: (logs.iter().sum::<f64>() / logs.len() as f64).exp(),
        cells: logs.len(),
        p_slower,
        slower: p_slower <= 1.0 - question.confidence,
    })
}

/// What makes two sets of results hard to compare.
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
    note("local device", &one.local, &other.local);
    note("weft", &one.weft_version, &other.weft_version);
    differences
}

#[cfg(test)]
mod tests;
