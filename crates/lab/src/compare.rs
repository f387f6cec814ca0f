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
//! A set may hold several sessions: then a value is the geometric mean of a session's repeats, and
//! what lies between sessions is in the spread of these. Of two sets of one session each, measured
//! one after the other, it is not known, and assumed.
//!
//! Few repeats cannot convince, however large the difference. [`Comparison::refusal`] then says how
//! many it takes.

mod judge;
mod rank;

use std::collections::BTreeMap;

use serde::Serialize;
use weft_load::statistics::Summary;

use self::judge::{Judgement, Question};
use crate::cells::{Cell, Cells, is_spoilt};
use crate::limits::{DISTURBED_REPEATS, SPOILT};
use crate::results::{Results, Role};
use crate::study::plan::Plan;

/// The parameters of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// The smallest relative change that counts as slower or faster, as a share.
    pub margin: f64,
    /// The confidence level, as a share.
    pub confidence: f64,
    /// The metrics; empty: the one that the study is judged by.
    pub metrics: Vec<String>,
    /// Whether sets are compared although other programs disturbed them.
    pub accepts_disturbed: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { margin: 0.05, confidence: 0.95, metrics: Vec::new(), accepts_disturbed: false }
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
pub struct MetricComparison {
    /// The metric's name.
    pub metric: String,
    /// Repeats of the first and of the second; of sets of several sessions, these.
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
    pub metrics: Vec<MetricComparison>,
}

/// How many repeats a comparison takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RepeatPlan {
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
    pub needed: RepeatPlan,
    /// The cells that are in both sets.
    pub cells: Vec<ComparedCell>,
    /// All of them together, for each metric.
    pub overall: Vec<MetricComparison>,
    /// Cells that have a result in the first set and none in the second, with the reason if known.
    pub missing: BTreeMap<String, String>,
    /// Cells that have a result in the second set only.
    pub new: Vec<String>,
    /// How the conditions of the two runs differ.
    pub differences: Vec<String>,
    /// Sessions of the first and of the second set.
    pub sessions: (usize, usize),
    /// What disturbed the sets, if that is not accepted.
    pub disturbed: Vec<String>,
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
        let is_seen = |one: &MetricComparison| {
            one.noticeable.is_some_and(|least| least <= self.needed.slow_down + 0.005)
        };
        self.all().any(|one| match one.answer {
            Answer::Slower | Answer::Faster | Answer::Same => false,
            Answer::Undecided | Answer::TooFew => !is_seen(one),
        })
    }

    /// Every metric of every cell.
    pub fn each(&self) -> impl Iterator<Item = &MetricComparison> {
        self.cells.iter().flat_map(|cell| &cell.metrics)
    }

    /// The same, and that of all cells together.
    pub fn all(&self) -> impl Iterator<Item = &MetricComparison> {
        self.each().chain(&self.overall)
    }

    /// Whether values are of sessions.
    #[must_use]
    pub const fn is_of_sessions(&self) -> bool {
        self.sessions.0 > 1 || self.sessions.1 > 1
    }

    /// Why the sets are not compared: they were disturbed, or are no sets of sessions both.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        if !self.disturbed.is_empty() {
            return Some(format!(
                "{}: measure again on a quiet machine (weft study run --wait-for-quiet 5m), or \
                 compare nevertheless with --accept-disturbed",
                self.disturbed.join("; ")
            ));
        }
        if self.is_of_sessions() && self.sessions.0.min(self.sessions.1) < 2 {
            return Some(format!(
                "one set has {} and the other {}: what lies between sessions is only known of \
                 several of each",
                sessions(self.sessions.0),
                sessions(self.sessions.1)
            ));
        }
        None
    }

    /// Why nothing can convince, whatever the cells show: none has enough repeats.
    #[must_use]
    pub fn inconclusive(&self) -> Option<String> {
        let RepeatPlan { questions, least, recommended, slow_down, spread, most } = self.needed;
        if self.all().any(|compared| compared.answer != Answer::TooFew) {
            return None;
        }
        let spread = spread.map_or("a spread of 10 % is assumed".to_owned(), |spread| {
            format!("the spread is {:.0} %", 100.0 * spread)
        });
        let (what, how) = match self.is_of_sessions() {
            true => ("sessions", format!("Measure {recommended} sessions of each")),
            false => ("repeats", format!("Measure with --repeats {recommended}")),
        };
        Some(format!(
            "{most} {what} of a cell cannot convince, whatever they show: beside {questions} \
             questions it takes at least {least} of each set; {recommended} are recommended, which \
             find a slow-down by {:.0} % of one cell in four of five cases ({spread} from one to \
             the next). {how}, or choose fewer cells or metrics",
            100.0 * slow_down,
        ))
    }
}

/// Compares the second set of results with the first.
#[must_use]
pub fn compare(first: &Results, second: &Results, parameters: &Parameters) -> Comparison {
    compare_sets(std::slice::from_ref(first), std::slice::from_ref(second), parameters)
}

/// Compares a second set of sessions with the first.
#[must_use]
pub fn compare_sets(first: &[Results], second: &[Results], parameters: &Parameters) -> Comparison {
    let cells = |of: &Results| Cells::whole(&of.records, &of.environment);
    let mut one: Vec<Cells> = first.iter().map(cells).collect();
    let mut other: Vec<Cells> = second.iter().map(cells).collect();
    if !parameters.accepts_disturbed {
        leave_out_spoilt(&mut one, &mut other);
    }
    let (pairs, missing) = pairs(&one, &other);
    let mut new = ids(&other);
    new.retain(|cell| counterparts(cell, &one).is_empty());
    let between = match (first, second) {
        ([one], [other]) if !are_in_turns(one, other) => judge::BETWEEN_SESSIONS,
        _ => 0.0,
    };
    let mut differences = differences(first, second);
    let mut disturbed: Vec<String> = [("first", first), ("second", second)]
        .into_iter()
        .flat_map(|(name, set)| disturbed(name, set))
        .collect();
    if parameters.accepts_disturbed {
        differences.append(&mut disturbed);
    }
    let metrics = match &parameters.metrics[..] {
        [] => vec![first.first().map_or("iops".to_owned(), judged_by)],
        metrics => metrics.to_vec(),
    };
    let asked = asked(&pairs, &metrics, between, parameters);
    let questions: Vec<Question> = asked.iter().map(|(.., question)| question.clone()).collect();
    let mut cells: Vec<ComparedCell> = pairs
        .iter()
        .map(|pair| ComparedCell { cell: pair.id.clone(), role: pair.role, metrics: vec![] })
        .collect();
    let mut overall = Vec::new();
    for ((index, metric, of), judged) in asked.iter().zip(judge::judge(&questions, parameters)) {
        let compared = compared(metric, of, &judged);
        match index.and_then(|index| cells.get_mut(index)) {
            Some(cell) => cell.metrics.push(compared),
            None => overall.push(compared.over(&cells)),
        }
    }
    Comparison {
        margin: parameters.margin,
        confidence: parameters.confidence,
        needed: needed(&asked, parameters),
        cells,
        overall,
        missing,
        new: new.into_iter().map(|cell| cell.id.clone()).collect(),
        differences,
        sessions: (first.len(), second.len()),
        disturbed,
    }
}

/// What is asked: each metric of each cell, by its number, and of all cells together.
fn asked(
    pairs: &[Pair<'_>],
    metrics: &[String],
    between: f64,
    parameters: &Parameters,
) -> Vec<(Option<usize>, String, Question)> {
    // What lies between the sets by itself, and what others may have done to them.
    let apart = |metric: &str, pairs: &[Pair<'_>]| match parameters.accepts_disturbed {
        true => between,
        false => between + Summary::of(pairs.iter().map(|pair| pair.slack(metric))).mean,
    };
    let mut asked = Vec::new();
    for (index, pair) in pairs.iter().enumerate() {
        let of = |metric: &String| {
            let apart = apart(metric, std::slice::from_ref(pair));
            Some((Some(index), metric.clone(), question(metric, pair, apart)?))
        };
        asked.extend(metrics.iter().filter_map(of));
    }
    if pairs.len() > 1 {
        let of = |metric: &String| {
            let apart = apart(metric, pairs);
            Some((None, metric.clone(), together(metric, pairs, apart)?))
        };
        asked.extend(metrics.iter().filter_map(of));
    }
    asked
}

/// Leaves spoilt repeats out of a cell where enough others remain in every session of both sets: of
/// one set alone it would make sets differ that do not.
fn leave_out_spoilt(first: &mut [Cells], second: &mut [Cells]) {
    let all = || first.iter().chain(second.iter()).flat_map(|set| &set.cells);
    let few = all().filter(|cell| !cell.has_enough_without());
    let few: Vec<(Role, String)> = few.map(|cell| (cell.role, cell.id.clone())).collect();
    for cell in first.iter_mut().chain(second).flat_map(|set| &mut set.cells) {
        if !few.iter().any(|(role, id)| *role == cell.role && *id == cell.id) {
            cell.leave_out_spoilt();
        }
    }
}

/// The metric that the study of these results is judged by.
fn judged_by(results: &Results) -> String {
    let plan: Option<Plan> = results.plan.parse().ok();
    plan.map_or("iops".to_owned(), |plan| plan.judged_by())
}

/// A cell of both sets: the sessions of each in which it has a result, by their numbers.
struct Pair<'a> {
    id: String,
    role: Role,
    first: Vec<(u32, &'a Cell)>,
    second: Vec<(u32, &'a Cell)>,
    /// Whether a set has several sessions, which are its values then.
    is_of_sessions: bool,
}

/// The cells of a set that have a result in any session, each once.
fn ids(set: &[Cells]) -> Vec<&Cell> {
    let mut all: Vec<&Cell> = Vec::new();
    let cells = set.iter().flat_map(|cells| &cells.cells);
    for cell in cells.filter(|cell| cell.is_measured() && !cell.is_bare_socket()) {
        if !all.iter().any(|known| is_same(known, cell)) {
            all.push(cell);
        }
    }
    all
}

fn is_same(one: &Cell, other: &Cell) -> bool {
    one.role == other.role && one.id == other.id
}

/// A cell in the sessions of a set in which it has a result.
fn counterparts<'a>(cell: &Cell, set: &'a [Cells]) -> Vec<(u32, &'a Cell)> {
    let of = |(number, cells): (u32, &'a Cells)| {
        let found = cells.cells.iter().find(|other| is_same(other, cell));
        Some((number, found.filter(|found| found.is_measured())?))
    };
    (0..).zip(set).filter_map(of).collect()
}

/// Cells with a result in both sets, and those of the first that have none in the second.
fn pairs<'a>(one: &'a [Cells], other: &'a [Cells]) -> (Vec<Pair<'a>>, BTreeMap<String, String>) {
    let mut missing = BTreeMap::new();
    let mut pairs = Vec::new();
    let is_of_sessions = one.len() > 1 || other.len() > 1;
    for cell in ids(one) {
        let second = counterparts(cell, other);
        if !second.is_empty() {
            let (id, first) = (cell.id.clone(), counterparts(cell, one));
            pairs.push(Pair { id, role: cell.role, first, second, is_of_sessions });
            continue;
        }
        let mut gone = other.iter().flat_map(|cells| &cells.cells);
        let why = gone.find(|other| is_same(other, cell)).map(|other| {
            other.missing.first().and_then(|status| status.reason()).unwrap_or("no result")
        });
        missing.insert(cell.id.clone(), why.unwrap_or("not in the second set").to_owned());
    }
    (pairs, missing)
}

/// Values of the repeats of a cell, by repeat; of several sessions the geometric mean of each.
fn values(sessions: &[(u32, &Cell)], metric: &str, is_of_sessions: bool) -> BTreeMap<u32, f64> {
    let of = |cell: &Cell| -> BTreeMap<u32, f64> {
        let value = |repeat: &crate::cells::Repeat| Some((repeat.number, repeat.metric(metric)?));
        let positive = |(_, value): &(u32, f64)| value.is_finite() && *value > 0.0;
        cell.repeats.iter().filter_map(value).filter(positive).collect()
    };
    let mut all = BTreeMap::new();
    for (number, cell) in sessions {
        let repeats = of(cell);
        match is_of_sessions {
            false => all.extend(repeats),
            true if repeats.is_empty() => {}
            true => {
                let logs: f64 = repeats.values().map(|value| value.ln()).sum();
                all.insert(*number, (logs / repeats.len() as f64).exp());
            }
        }
    }
    all
}

impl Pair<'_> {
    /// How far others may have moved a metric of either set, by the logarithm. Beyond all that is
    /// told where they had too much of the time.
    fn slack(&self, metric: &str) -> f64 {
        const MOST: f64 = 10.0;
        let of = |sessions: &[(u32, &Cell)]| {
            let each = sessions.iter().map(|(_, cell)| cell.slack(metric).into_iter().sum());
            Summary::of(each).mean
        };
        of(&self.first).max(of(&self.second)).min(MOST)
    }
}

fn question(metric: &str, pair: &Pair<'_>, between: f64) -> Option<Question> {
    let of = |sessions: &[(u32, &Cell)]| -> Vec<f64> {
        values(sessions, metric, pair.is_of_sessions).into_values().collect()
    };
    asks(metric, of(&pair.first), of(&pair.second), between)
}

/// All cells as one.
fn together<'a>(metric: &str, pairs: &[Pair<'a>], between: f64) -> Option<Question> {
    let of = |side: for<'p> fn(&'p Pair<'a>) -> &'p [(u32, &'a Cell)]| {
        let each = pairs.iter().map(|pair| values(side(pair), metric, pair.is_of_sessions));
        means(&each.collect::<Vec<_>>())
    };
    asks(metric, of(|pair| &pair.first), of(|pair| &pair.second), between)
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

fn compared(metric: &str, of: &Question, judged: &Judgement) -> MetricComparison {
    let (first, second) = (median(&of.first), median(&of.second));
    MetricComparison {
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

impl MetricComparison {
    /// The same of all cells: what it shows is the geometric mean of what they show.
    fn over(self, cells: &[ComparedCell]) -> Self {
        let of = cells.iter().flat_map(|cell| &cell.metrics);
        let of: Vec<&Self> = of.filter(|one| one.metric == self.metric).collect();
        let mean = |value: fn(&Self) -> f64| {
            let logs = of.iter().map(|one| value(one).ln());
            (logs.sum::<f64>() / of.len() as f64).exp()
        };
        let (first, second) = (mean(|one| one.first), mean(|one| one.second));
        Self { first, second, ratio: second / first, ..self }
    }
}

/// One repeat that was disturbed does not move it, as it does not move a rank.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = |at: usize| sorted.get(at).copied().unwrap_or(f64::NAN);
    f64::midpoint(middle(sorted.len().saturating_sub(1) / 2), middle(sorted.len() / 2))
}

fn needed(asked: &[(Option<usize>, String, Question)], parameters: &Parameters) -> RepeatPlan {
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
    RepeatPlan {
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

fn sessions(count: usize) -> String {
    if count == 1 { "one session".to_owned() } else { format!("{count} sessions") }
}

/// What disturbed a set: other programs before its sessions or during its repeats.
fn disturbed(name: &str, set: &[Results]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let busy = set.iter().filter_map(|results| results.environment.busy_share());
    if let Some(share) = busy.reduce(f64::max) {
        let share = crate::units::percent(share);
        found.push(format!("the machine was {share} busy before the {name} set was measured"));
    }
    let measured = || set.iter().flat_map(|of| &of.records).filter(|record| record.is_measured());
    let (all, count) = (measured().count(), measured().filter(|of| is_spoilt(of)).count());
    let most = crate::units::percent(SPOILT);
    if count as f64 > DISTURBED_REPEATS * all as f64 {
        found.push(format!(
            "{count} of {all} repeats of the {name} set were disturbed for more than {most} of \
             their time"
        ));
    }
    found
}

/// Differences in the conditions of the sessions, each beside the first one.
fn differences(first: &[Results], second: &[Results]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let Some((base, more)) = first.split_first() else { return all };
    for other in more.iter().chain(second) {
        for what in conditions(base, other) {
            if !all.contains(&what) {
                all.push(what);
            }
        }
    }
    if let ([one], [other]) = (first, second)
        && !are_in_turns(one, other)
    {
        all.push(format!(
            "time: one set was measured after the other, so that up to {:.0} % may be what changed \
             on the machine meanwhile (`weft study run --against` measures them in turns; sets of \
             several sessions show what it is)",
            100.0 * (judge::BETWEEN_SESSIONS.exp() - 1.0)
        ));
    }
    all
}

fn conditions(first: &Results, second: &Results) -> Vec<String> {
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
