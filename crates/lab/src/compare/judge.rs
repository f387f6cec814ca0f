//! Whether repeats of two sets differ by more than a margin, for many questions at once, and how
//! many repeats that takes.
//!
//! One repeat is one value. Values of a set are independent of each other only as repeats are;
//! windows and requests within a repeat are not, so nothing below a repeat is ranked.
//!
//! A page is wrong about a change in at most 1 − confidence of all comparisons without one,
//! whatever the margin, the spread and the number of its cells: of that share [`FOR_SLOWER`] goes
//! to "slower", the question, and the rest to "faster". Each is shared among all questions of the
//! page by Holm's method.

use weft_load::statistics::Summary;

use super::rank::{holm, normal_quantile, normal_tail, rank, ways};
use super::{Answer, Parameters};

/// The part of the allowed error that belongs to "slower".
const FOR_SLOWER: f64 = 0.8;

/// The probability with which a change of [`FOUND`] beyond the margin is found.
const POWER: f64 = 0.8;

/// The slow-down beyond the margin, as a share, for which repeats are recommended: 15 % in all
/// at the usual margin of 5 %.
const FOUND: f64 = 0.10;

/// The spread from repeat to repeat where none could be measured, as a share.
const SPREAD: f64 = 0.10;

/// The asymptotic relative efficiency of the rank test to the t-test for normal values.
const EFFICIENCY: f64 = 3.0 / std::f64::consts::PI;

/// As many repeats as are ever asked for.
const REPEATS_MAX: usize = 10_000;

/// How far a run is from another of the same build, as a standard deviation of the logarithm:
/// what a machine's state changes from one session to the next.
pub(super) const SESSIONS: f64 = 0.1;

/// What may lie between two sessions, as a logarithm, with a confidence of 95 %.
pub(super) const BETWEEN_SESSIONS: f64 = 1.96 * std::f64::consts::SQRT_2 * SESSIONS;

/// One value for each repeat of both sets, and which way is worse.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Question {
    pub(super) first: Vec<f64>,
    pub(super) second: Vec<f64>,
    /// Whether less is better: for times.
    pub(super) is_time: bool,
    /// What lies between the two sets by itself, as a logarithm: nothing if they were measured in
    /// turns.
    pub(super) between: f64,
}

/// The result of a question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Judgement {
    pub(super) p_slower: f64,
    pub(super) p_slower_adjusted: f64,
    pub(super) p_faster: f64,
    pub(super) p_faster_adjusted: f64,
    pub(super) answer: Answer,
    /// The smallest slow-down that is found with probability [`POWER`], as a share.
    pub(super) noticeable: Option<f64>,
}

impl Question {
    /// The values as rates, so that smaller is worse.
    fn rates(&self, values: &[f64]) -> Vec<f64> {
        values.iter().map(|value| if self.is_time { 1.0 / value } else { *value }).collect()
    }

    /// The factors by which the first set's rates are multiplied, for slower and for faster.
    fn factors(&self, margin: f64) -> (f64, f64) {
        // A time that is longer by the margin is a rate that is smaller by this factor.
        let (slow, fast) = if self.is_time {
            (1.0 / (1.0 + margin), 1.0 / (1.0 - margin))
        } else {
            (1.0 - margin, 1.0 + margin)
        };
        (slow * (-self.between).exp(), fast * self.between.exp())
    }

    /// The p-values of "slower", "faster" and "neither".
    fn p_values(&self, margin: f64) -> [f64; 3] {
        let (first, second) = (self.rates(&self.first), self.rates(&self.second));
        let (slow, fast) = self.factors(margin);
        let moved = |factor: f64| -> Vec<f64> { first.iter().map(|rate| rate * factor).collect() };
        let (slow, fast) = (moved(slow), moved(fast));
        let neither = rank(&slow, &second).max(rank(&second, &fast));
        [rank(&second, &slow), rank(&fast, &second), neither]
    }

    /// The smallest p-value that so many repeats can have.
    fn least_p(&self) -> f64 {
        1.0 / ways(self.first.len(), self.first.len() + self.second.len())
    }

    /// Squares of the logarithms' distances from their means, and the degrees of freedom.
    fn squares(&self) -> (f64, f64) {
        let of = |values: &[f64]| {
            let summary = Summary::of(values.iter().map(|value| value.ln()));
            let degrees = summary.count.saturating_sub(1) as f64;
            (summary.stddev.powi(2) * degrees, degrees)
        };
        let ((one, few), (other, more)) = (of(&self.first), of(&self.second));
        (one + other, few + more)
    }

    /// The smallest slow-down that is found with [`POWER`], from the spread of these repeats.
    fn noticeable(&self, margin: f64, level: f64) -> Option<f64> {
        let (squares, degrees) = self.squares();
        if degrees < 1.0 {
            return None;
        }
        let (m, n) = (self.first.len() as f64, self.second.len() as f64);
        let spread = (squares / degrees * (1.0 / m + 1.0 / n) / EFFICIENCY).sqrt();
        let beyond = (normal_quantile(level) + normal_quantile(1.0 - POWER)) * spread;
        let slow = self.factors(margin).0 * (-beyond).exp();
        Some(if self.is_time { 1.0 / slow - 1.0 } else { 1.0 - slow })
    }
}

/// The levels of "slower" and of "faster" for one of so many questions.
fn levels(parameters: &Parameters, questions: usize) -> (f64, f64) {
    let error = (1.0 - parameters.confidence) / questions.max(1) as f64;
    (error * FOR_SLOWER, error * (1.0 - FOR_SLOWER))
}

/// Whether a question has enough repeats to be answered beside so many others.
pub(super) fn can_convince(of: &Question, questions: usize, parameters: &Parameters) -> bool {
    of.least_p() <= levels(parameters, questions).0
}

/// Answers all questions of a page.
pub(super) fn judge(questions: &[Question], parameters: &Parameters) -> Vec<Judgement> {
    let p: Vec<[f64; 3]> = questions.iter().map(|of| of.p_values(parameters.margin)).collect();
    let adjusted = |which: usize| holm(&p.iter().map(|p| p[which]).collect::<Vec<f64>>());
    let (slower, faster, neither) = (adjusted(0), adjusted(1), adjusted(2));
    let (slower_level, faster_level) = levels(parameters, 1);
    let (level, _) = levels(parameters, questions.len());
    let each = questions.iter().zip(p).enumerate();
    each.map(|(index, (of, [p_slower, p_faster, _]))| {
        let can = can_convince(of, questions.len(), parameters);
        let answer = match (slower[index], faster[index], neither[index]) {
            _ if !can => Answer::TooFew,
            (slower, ..) if slower <= slower_level => Answer::Slower,
            (_, faster, _) if faster <= faster_level => Answer::Faster,
            (.., neither) if of.between <= 0.0 && neither <= 1.0 - parameters.confidence => {
                Answer::Same
            }
            _ => Answer::Undecided,
        };
        Judgement {
            p_slower,
            p_slower_adjusted: slower[index],
            p_faster,
            p_faster_adjusted: faster[index],
            answer,
            noticeable: can.then(|| of.noticeable(parameters.margin, level)).flatten(),
        }
    })
    .collect()
}

/// The smallest number of repeats of each set with which one of so many questions can be answered
/// with "slower".
pub(super) fn least_repeats(questions: usize, parameters: &Parameters) -> usize {
    let (level, _) = levels(parameters, questions);
    let enough = |count: &usize| 1.0 / ways(*count, 2 * count) <= level;
    (1..REPEATS_MAX).find(enough).unwrap_or(REPEATS_MAX)
}

/// The spread from repeat to repeat in the logarithm, over all questions together.
pub(super) fn spread<'a>(questions: impl Iterator<Item = &'a Question>) -> Option<f64> {
    let add = |(squares, degrees), (more, others)| (squares + more, degrees + others);
    let (squares, degrees) = questions.map(Question::squares).fold((0.0, 0.0), add);
    (degrees >= 1.0).then(|| (squares / degrees).sqrt())
}

/// The number of repeats of each set with which a slow-down of one cell by [`slow_down`] is found
/// with probability [`POWER`] (Noether's formula for rank tests, which errs to the safe side).
pub(super) fn recommended_repeats(
    questions: usize,
    is_time: bool,
    spread: Option<f64>,
    parameters: &Parameters,
) -> usize {
    let (level, _) = levels(parameters, questions);
    let (margin, all) = (parameters.margin, slow_down(parameters));
    let beyond =
        if is_time { (1.0 + all) / (1.0 + margin) } else { (1.0 - margin) / (1.0 - all) }.ln();
    let apart = beyond / spread.unwrap_or(SPREAD).max(1e-3) / std::f64::consts::SQRT_2;
    let pairs = 0.5 - normal_tail(apart);
    let quantiles = normal_quantile(level) + normal_quantile(1.0 - POWER);
    let count = quantiles.powi(2) / (6.0 * pairs.powi(2));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, small")]
    let count = count.min(REPEATS_MAX as f64).ceil() as usize;
    count.max(least_repeats(questions, parameters))
}

/// The slow-down for which repeats are recommended, as a share.
pub(super) fn slow_down(parameters: &Parameters) -> f64 {
    parameters.margin + FOUND.min((1.0 - parameters.margin) / 2.0)
}

#[cfg(test)]
mod tests;
