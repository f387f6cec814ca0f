//! Two sets of results, cell by cell: is the second one slower than the first?
//!
//! The question has a margin: slower **by more than a margin**, with confidence, so that a script
//! can act on the result. The test assumes no distribution and uses only the order of the values
//! (Mann, Whitney and Wilcoxon's rank sum test, with the first set shifted by the margin).
//!
//! What is ranked, in order of preference:
//! - **repeats**, which are independent of each other, by an exact test, if there are enough of
//!   them to reach the confidence at all;
//! - **windows** of 500 ms within the repeats, for IOPS, otherwise. Windows of one repeat do not
//!   contain the variation between repeats, so in addition every repeat of the second set has to
//!   lie beyond every repeat of the first;
//! - **requests**, for latency: the histograms, under the same condition. Requests of one run
//!   are correlated; at most [`INDEPENDENT_PER_SECOND`] of each second count as independent.
//!
//! Each p is adjusted for the number of comparisons by Holm's method. Every result states the
//! smallest change that would have been detected; a comparison that could not detect any says so.

mod rank;

use std::collections::BTreeMap;

use serde::Serialize;

use self::rank::{Counted, Ranked, arrangements, holm, normal_quantile, normal_tail, rank};
use crate::{
    cells::{Cell, Cells, Repeat},
    results::{Results, Role},
};

/// Requests of one second that count as independent of each other, at most.
pub const INDEPENDENT_PER_SECOND: f64 = 100.0;

/// Fewest windows of a set.
const WINDOWS_MIN: usize = 8;

/// The probability with which a change of the size of [`Compared::noticeable`] is detected.
const POWER: f64 = 0.8;

/// The asymptotic relative efficiency of the rank test to the t-test for normal values.
const EFFICIENCY: f64 = 3.0 / std::f64::consts::PI;

/// The parameters of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// The smallest relative change that counts as slower or faster, as a share.
    pub margin: f64,
    /// The confidence level, as a share.
    pub confidence: f64,
}

impl Default for Parameters {
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
    /// Repeats, by the exact test.
    Repeats,
    /// Windows of 500 ms; in addition the repeats of the two sets did not overlap.
    Windows,
    /// Latencies in the histograms; in addition the repeats of the two sets did not overlap.
    Requests,
    /// Nothing: there are too few repeats, or the value was not measured.
    Nothing,
}

/// The result for one quantity.
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
}

/// One quantity of one cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Which quantity.
    pub quantity: Quantity,
    /// The mean of the first set's repeats: IOPS, or ns.
    pub first: f64,
    /// The mean of the second set's repeats.
    pub second: f64,
    /// Second divided by first.
    pub ratio: f64,
    /// What was ranked.
    pub ranking: Ranking,
    /// The p-value of "slower by more than the margin".
    pub p_slower: f64,
    /// The same, adjusted for the number of comparisons.
    pub p_slower_adjusted: f64,
    /// The p-value of "faster by more than the margin".
    pub p_faster: f64,
    /// The result.
    pub answer: Answer,
    /// The smallest slow-down that would have been detected with probability [`POWER`], as a
    /// share; none if it is unbounded.
    pub noticeable: Option<f64>,
    #[serde(skip)]
    p_not_slower: f64,
    #[serde(skip)]
    p_not_faster: f64,
}

/// A cell that is in both sets.
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
    /// The p-value of "IOPS are lower by more than the margin" over all cells: ranks within each
    /// cell, added up (van Elteren's test).
    pub p_slower: f64,
    /// Whether that reaches the confidence.
    pub slower: bool,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The margin, as a share.
    pub margin: f64,
    /// The confidence, as a share.
    pub confidence: f64,
    /// The cells that are in both sets.
    pub cells: Vec<ComparedCell>,
    /// All of them together; none if there are none.
    pub overall: Option<Overall>,
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
        self.overall.as_ref().is_some_and(|overall| overall.slower)
            || self.quantities().any(|compared| compared.answer == Answer::Slower)
    }

    /// All compared quantities.
    pub fn quantities(&self) -> impl Iterator<Item = &Compared> {
        self.cells.iter().flat_map(|cell| &cell.quantities)
    }
}

/// Compares the second set of results with the first.
#[must_use]
pub fn compare(first: &Results, second: &Results, parameters: Parameters) -> Comparison {
    let one = Cells::of(&first.records, &first.environment);
    let other = Cells::of(&second.records, &second.environment);
    let counterpart = |cell: &Cell, cells: &'_ Cells| {
        let same = |counterpart: &&Cell| counterpart.role == cell.role && counterpart.id == cell.id;
        cells.cells.iter().find(same).cloned()
    };
    let mut missing = BTreeMap::new();
    let mut pairs = Vec::new();
    for cell in one.cells.iter().filter(|cell| cell.is_measured()) {
        match counterpart(cell, &other) {
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
    let new = other.cells.iter().filter(|cell| cell.is_measured());
    let new = new.filter(|cell| {
        !counterpart(cell, &one).is_some_and(|counterpart| counterpart.is_measured())
    });
    let comparisons = 3 * pairs.len();
    let mut cells: Vec<ComparedCell> = pairs
        .iter()
        .map(|(cell, counterpart)| compared_cell(cell, counterpart, parameters, comparisons))
        .collect();
    adjust(&mut cells, parameters);
    Comparison {
        margin: parameters.margin,
        confidence: parameters.confidence,
        overall: overall(&pairs, parameters),
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

/// Values of both sets, oriented so that smaller is worse.
struct Samples {
    first: Vec<f64>,
    second: Vec<f64>,
}

impl Samples {
    /// The p-value of "the second is worse than `factor` times the first".
    fn p_below(&self, factor: f64) -> f64 {
        let moved: Vec<f64> = self.first.iter().map(|value| value * factor).collect();
        rank(&self.second, &moved).p_smaller
    }

    /// The p-value of "the second is better than `factor` times the first".
    fn p_above(&self, factor: f64) -> f64 {
        let moved: Vec<f64> = self.first.iter().map(|value| value * factor).collect();
        rank(&moved, &self.second).p_smaller
    }

    /// As [`p_values`], from these samples.
    fn p_values(&self, slow: f64, fast: f64) -> [f64; 4] {
        [self.p_below(slow), self.p_above(fast), self.p_above(slow), self.p_below(fast)]
    }
}

fn compared_cell(
    cell: &Cell,
    counterpart: &Cell,
    parameters: Parameters,
    comparisons: usize,
) -> ComparedCell {
    let quantities = [Quantity::Iops, Quantity::Latency, Quantity::P99];
    ComparedCell {
        cell: cell.id.clone(),
        role: cell.role,
        repeats: (cell.repeats.len(), counterpart.repeats.len()),
        quantities: quantities
            .into_iter()
            .filter_map(|quantity| compared(cell, counterpart, quantity, parameters, comparisons))
            .collect(),
    }
}

fn compared(
    cell: &Cell,
    counterpart: &Cell,
    quantity: Quantity,
    parameters: Parameters,
    comparisons: usize,
) -> Option<Compared> {
    let (first, second) = (values(cell, quantity), values(counterpart, quantity));
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (first_mean, second_mean) = (mean(&first), mean(&second));
    if first.is_empty() || second.is_empty() || first_mean <= 0.0 || second_mean <= 0.0 {
        return None;
    }
    // Times become rates, so that smaller is worse for them, too.
    let speed = |values: &[f64]| -> Vec<f64> {
        values.iter().map(|v| if quantity == Quantity::Iops { *v } else { 1.0 / v }).collect()
    };
    let repeats = Samples { first: speed(&first), second: speed(&second) };
    let level = (1.0 - parameters.confidence) / comparisons.max(1) as f64;
    let least = 1.0 / arrangements(first.len(), first.len() + second.len()) as f64;
    let (slow, fast) = factors(quantity, parameters);
    let ranking = match quantity {
        _ if least <= level => Ranking::Repeats,
        Quantity::Iops if windows(cell).len().min(windows(counterpart).len()) >= WINDOWS_MIN => {
            Ranking::Windows
        }
        Quantity::Latency => Ranking::Requests,
        Quantity::Iops | Quantity::P99 => Ranking::Nothing,
    };
    let [p_slower, p_faster, p_not_slower, p_not_faster] =
        p_values(cell, counterpart, &repeats, ranking, (slow, fast));
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
        noticeable: noticeable(&repeats, ranking, parameters, level),
        p_not_slower,
        p_not_faster,
    })
}

/// The p-values of "slower", "faster", "not slower" and "not faster".
fn p_values(
    cell: &Cell,
    counterpart: &Cell,
    repeats: &Samples,
    ranking: Ranking,
    (slow, fast): (f64, f64),
) -> [f64; 4] {
    match ranking {
        Ranking::Repeats => repeats.p_values(slow, fast),
        Ranking::Windows => {
            let windows = Samples { first: windows(cell), second: windows(counterpart) };
            guarded(repeats, (slow, fast), windows.p_values(slow, fast))
        }
        Ranking::Requests => {
            // Factors of rates become factors of times.
            let (longer, shorter) = (1.0 / slow, 1.0 / fast);
            let p = [
                requests(counterpart, cell, longer),
                1.0 - requests(counterpart, cell, shorter),
                1.0 - requests(counterpart, cell, longer),
                requests(counterpart, cell, shorter),
            ];
            guarded(repeats, (slow, fast), p)
        }
        Ranking::Nothing => [1.0; 4],
    }
}

/// The factors by which the first set's rates are multiplied, for slower and for faster.
fn factors(quantity: Quantity, parameters: Parameters) -> (f64, f64) {
    let margin = parameters.margin;
    match quantity {
        Quantity::Iops => (1.0 - margin, 1.0 + margin),
        // A latency that is larger by the margin is a rate that is smaller by this factor.
        Quantity::Latency | Quantity::P99 => (1.0 / (1.0 + margin), 1.0 / (1.0 - margin)),
    }
}

/// Windows and requests count only if the repeats are apart in the same direction.
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

/// The p-value of "latencies of `cell` are longer than `factor` times those of `base`".
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

/// The smallest slow-down that is detected with [`POWER`], from the spread of the repeats.
fn noticeable(
    repeats: &Samples,
    ranking: Ranking,
    parameters: Parameters,
    level: f64,
) -> Option<f64> {
    if ranking == Ranking::Nothing {
        return None;
    }
    let variation = |values: &[f64]| {
        let summary = crate::statistics::Summary::of(values.iter().copied());
        (summary.count >= 2).then(|| (summary.stddev / summary.mean).powi(2))
    };
    // One repeat says nothing about the spread.
    let (first, second) = (variation(&repeats.first)?, variation(&repeats.second)?);
    let (m, n) = (repeats.first.len() as f64, repeats.second.len() as f64);
    let spread = ((first / m + second / n) / EFFICIENCY).sqrt();
    let quantiles = normal_quantile(level) + normal_quantile(1.0 - POWER);
    Some(parameters.margin + quantiles * spread)
}

/// Adjusts the p-values for the number of comparisons and derives the results.
fn adjust(cells: &mut [ComparedCell], parameters: Parameters) {
    let level = 1.0 - parameters.confidence;
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

/// The IOPS of all cells together, ranked within their cells.
fn overall(pairs: &[(&Cell, Cell)], parameters: Parameters) -> Option<Overall> {
    let (mut excess, mut variance, mut logs) = (0.0, 0.0, Vec::new());
    for (cell, counterpart) in pairs {
        let (first, second) = (values(cell, Quantity::Iops), values(counterpart, Quantity::Iops));
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let ratio = mean(&second) / mean(&first);
        if !(ratio.is_finite() && ratio > 0.0) {
            continue;
        }
        logs.push(ratio.ln());
        let (slow, _) = factors(Quantity::Iops, parameters);
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
        slower: p_slower <= 1.0 - parameters.confidence,
    })
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
    note("local device", &one.local, &other.local);
    note("weft", &one.weft_version, &other.weft_version);
    differences
}

#[cfg(test)]
mod tests;
