//! A value that was measured several times, and the interval in which the true one lies.
//!
//! An interval has a confidence of 95 %, or there is none. It is Student's t of the repeats, from
//! three on: of a rate by the values, of a latency or cost by their logarithms, of a ratio by the
//! logarithms of both sides (Welch). Two repeats show a range and decide nothing.

use crate::results::Mark;

/// Quantiles of Student's t that leave 2.5 % on either side, by degrees of freedom from 1.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// Why a percentile of all repeats together decides nothing.
pub(crate) const POOLED: &str = "it is a percentile of all repeats together, since each has too \
                                 few requests for it: longer repeats would be needed";

/// Fewest repeats that have an interval.
pub(crate) const REPEATS_MIN: usize = 3;

/// The quantile for so many degrees of freedom. Those between two of the table are interpolated in
/// their reciprocals; beyond it the first term of the expansion about the normal quantile is exact
/// to three digits.
fn t_95(degrees: f64) -> f64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "few, or capped")]
    let whole = degrees.clamp(1.0, 1e6) as usize;
    let at = |whole: usize| T_95.get(whole - 1).copied().unwrap_or(1.960 + 2.372 / whole as f64);
    let (below, above) = (1.0 / whole as f64, 1.0 / (whole + 1) as f64);
    let share = (below - 1.0 / degrees.clamp(1.0, 1e6)) / (below - above);
    at(whole) + share * (at(whole + 1) - at(whole))
}

/// On what scale repeats spread evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// That of the values, which are not below zero: rates.
    Plain,
    /// The same of values on both sides of zero: differences.
    Signed,
    /// That of their logarithms: latencies, costs and ratios. The mean is the geometric one.
    Log,
}

/// A mean, the variance of that mean, and the degrees of freedom of this variance.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Moments {
    mean: f64,
    variance: f64,
    degrees: f64,
}

impl Moments {
    fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let summary = weft_load::statistics::Summary::of(values);
        let count = summary.count as f64;
        let variance = summary.stddev.powi(2) / count;
        Self { mean: summary.mean, variance, degrees: count - 1.0 }
    }

    /// A weighted sum of independent means (Welch and Satterthwaite).
    fn sum(parts: impl IntoIterator<Item = (Self, f64)>) -> Self {
        let (mut mean, mut variance, mut squares, mut least) = (0.0, 0.0, 0.0, f64::INFINITY);
        for (part, weight) in parts {
            let own: f64 = weight * weight * part.variance;
            mean += weight * part.mean;
            variance += own;
            squares += own * own / part.degrees;
            least = part.degrees.min(least);
        }
        let degrees = if squares > 0.0 { variance * variance / squares } else { least };
        Self { mean, variance, degrees }
    }

    /// Half of the 95 % interval.
    fn half(&self) -> f64 {
        t_95(self.degrees) * self.variance.sqrt()
    }
}

/// A value with its spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// The mean of the repeats: the geometric one of latencies, costs and ratios.
    pub(crate) mean: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// How many repeats.
    pub(crate) count: usize,
    /// No repeat resolves it alone; it is the percentile of all of them thrown together.
    pub(crate) pooled: bool,
    scale: Scale,
    /// On the scale; none if there is no spread.
    own: Option<Moments>,
    /// Of the logarithms; none if a value has none.
    logs: Option<Moments>,
    /// How far below and above it the value on a quiet machine may lie, whatever the spread: by
    /// the logarithm, of a difference by itself. Infinite: nothing is known of it.
    slack: [f64; 2],
    /// It is not below this, whatever the spread.
    floor: f64,
}

impl Estimate {
    /// Of these values; none if there are none. Values that have no logarithm spread as rates do.
    pub(crate) fn of(values: &[f64], scale: Scale) -> Option<Self> {
        let summary = weft_load::statistics::Summary::of(values.iter().copied());
        let (count, least, most) = (values.len(), summary.min, summary.max);
        if count == 0 {
            return None;
        }
        let logs = (least > 0.0 && scale != Scale::Signed)
            .then(|| Moments::of(values.iter().map(|value| value.ln())));
        let (scale, own) = match (scale, logs) {
            (Scale::Log, Some(logs)) => (Scale::Log, logs),
            (Scale::Log, None) => (Scale::Plain, Moments::of(values.iter().copied())),
            (scale, _) => (scale, Moments::of(values.iter().copied())),
        };
        let mean = if scale == Scale::Log { own.mean.exp() } else { own.mean };
        let known = |moments: Moments| (count > 1).then_some(moments);
        let (own, logs) = (known(own), logs.and_then(known));
        let floor = if scale == Scale::Signed { f64::NEG_INFINITY } else { 0.0 };
        let slack = [0.0; 2];
        Some(Self { mean, least, most, count, pooled: false, scale, own, logs, slack, floor })
    }

    /// The quotient of two values, by their logarithms.
    pub(crate) fn ratio(own: &Self, base: &Self) -> Self {
        let both = own.logs.zip(base.logs);
        let mean = own.mean / base.mean;
        let logs = both.map(|(own, base)| {
            let sum = Moments::sum([(own, 1.0), (base, -1.0)]);
            // About the quotient of the values that are shown beside it.
            Moments { mean: mean.ln(), ..sum }
        });
        Self {
            mean,
            least: own.least / base.most,
            most: own.most / base.least,
            count: own.count.min(base.count),
            pooled: own.pooled || base.pooled,
            scale: Scale::Log,
            own: logs,
            logs,
            slack: [own.slack[0] + base.slack[1], own.slack[1] + base.slack[0]],
            floor: 0.0,
        }
    }

    /// The difference of two values. That of logarithmic ones has the variance of both to the
    /// first order.
    pub(crate) fn difference(own: &Self, base: &Self) -> Self {
        let both = own.plain().zip(base.plain());
        let (mine, theirs) = (own.plain_slack(), base.plain_slack());
        Self {
            mean: own.mean - base.mean,
            least: own.least - base.most,
            most: own.most - base.least,
            count: own.count.min(base.count),
            pooled: own.pooled || base.pooled,
            scale: Scale::Signed,
            own: both.map(|(own, base)| Moments::sum([(own, 1.0), (base, -1.0)])),
            logs: None,
            slack: [mine[0] + theirs[1], mine[1] + theirs[0]],
            floor: own.floor - base.high(),
        }
    }

    /// The same about another value of the same scale: that of the means, where the quotients of
    /// repeats have another mean.
    pub(crate) fn about(self, mean: f64) -> Self {
        let moved = |moments: Moments| Moments {
            mean: if self.scale == Scale::Log { mean.ln() } else { mean },
            ..moments
        };
        Self { mean, own: self.own.map(moved), logs: self.logs.map(moved), ..self }
    }

    /// The upper end of what is known of it.
    pub(crate) fn high(&self) -> f64 {
        self.interval().map_or(self.most, |(_, high)| high)
    }

    /// The geometric mean of several values; none if one has no logarithm.
    pub(crate) fn typical(values: &[Self]) -> Option<Self> {
        let (count, weight) = (values.iter().map(|value| value.count).min()?, values.len() as f64);
        let mean = |of: fn(&Self) -> f64| {
            (values.iter().map(|value| of(value).ln()).sum::<f64>() / weight).exp()
        };
        let logs: Option<Vec<Moments>> = values.iter().map(|value| value.logs).collect();
        let logs = logs.map(|logs| Moments::sum(logs.into_iter().map(|of| (of, 1.0 / weight))));
        let (least, most, mean) =
            (mean(|value| value.least), mean(|value| value.most), mean(|value| value.mean));
        let pooled = logs.is_none() && count > 1;
        let slack =
            [0, 1].map(|end| values.iter().map(|value| value.slack[end]).sum::<f64>() / weight);
        let scale = Scale::Log;
        let (own, floor) = (logs, 0.0);
        let typical = Self { mean, least, most, count, pooled, scale, own, logs, slack, floor };
        mean.is_finite().then_some(typical)
    }

    /// The same, but for what others may have done to it.
    pub(crate) const fn widened(self, slack: [f64; 2]) -> Self {
        Self { slack, ..self }
    }

    /// How far below and above it the value on a quiet machine may lie.
    pub(crate) const fn slack(&self) -> [f64; 2] {
        self.slack
    }

    /// The same, which cannot be less than this.
    pub(crate) const fn at_least(self, floor: f64) -> Self {
        Self { floor, ..self }
    }

    /// How far below and above it the value may lie because of others, on the scale of the values.
    fn plain_slack(&self) -> [f64; 2] {
        let [down, up] = self.slack;
        match self.scale {
            Scale::Signed => self.slack,
            Scale::Plain | Scale::Log => {
                [self.mean.abs() * (1.0 - (-down).exp()), self.mean.abs() * (up.exp() - 1.0)]
            }
        }
    }

    /// The moments on the scale of the values.
    fn plain(&self) -> Option<Moments> {
        let own = self.own?;
        Some(match self.scale {
            Scale::Plain | Scale::Signed => own,
            Scale::Log => {
                let variance = own.variance * self.mean * self.mean;
                Moments { mean: self.mean, variance, ..own }
            }
        })
    }

    /// The same with these ends of its bar, which have other reasons than a spread.
    pub(crate) const fn within(self, least: f64, most: f64) -> Self {
        Self { least, most, count: 2, pooled: false, ..self }
    }

    /// Of all samples of so many repeats together.
    pub(crate) const fn pooled(value: f64, count: usize) -> Self {
        Self {
            mean: value,
            least: value,
            most: value,
            count,
            pooled: true,
            scale: Scale::Plain,
            own: None,
            logs: None,
            slack: [0.0; 2],
            floor: 0.0,
        }
    }

    /// A number that is known exactly: a bound.
    pub(crate) fn exact(value: f64) -> Self {
        let of = |mean| Moments { mean, variance: 0.0, degrees: f64::INFINITY };
        let logs = (value > 0.0).then(|| of(value.ln()));
        let plain = Self::pooled(value, usize::MAX);
        Self { pooled: false, own: Some(of(value)), logs, ..plain }
    }

    /// The 95 % interval, from three repeats on.
    pub(crate) fn interval(&self) -> Option<(f64, f64)> {
        let is_known = self.count >= REPEATS_MIN && self.slack.iter().all(|end| end.is_finite());
        let own = self.own.filter(|_| is_known)?;
        let [down, up] = if self.scale == Scale::Log { self.slack } else { self.plain_slack() };
        let (low, high) = (own.mean - own.half() - down, own.mean + own.half() + up);
        let (low, high) = match self.scale {
            Scale::Plain | Scale::Signed => (low, high),
            Scale::Log => (low.exp(), high.exp()),
        };
        Some((low.max(self.floor), high))
    }

    /// Why there is no interval; empty if there is one.
    pub(crate) fn why_no_interval(&self) -> &'static str {
        match self.interval() {
            Some(_) => "",
            None if self.is_pooled() => POOLED,
            None if self.slack.iter().any(|end| end.is_infinite()) => Mark::Disturbed.explained(),
            None => "at least 3 repeats would be needed",
        }
    }

    /// Whether it is of several repeats together.
    pub(crate) const fn is_pooled(&self) -> bool {
        self.pooled && self.count > 1
    }

    /// How the interval is made.
    pub(crate) const fn method(&self) -> &'static str {
        match self.scale {
            Scale::Plain | Scale::Signed => "95 % confidence (Student's t)",
            Scale::Log => "95 % confidence (Student's t of the logarithms)",
        }
    }

    /// How far an error bar goes down and up from the mean: the interval, or where there are two
    /// repeats both of them. Nothing for one.
    pub(crate) fn bar(&self) -> Option<(f64, f64)> {
        let ends = self
            .interval()
            .or((self.count == 2 && !self.pooled).then_some((self.least, self.most)));
        ends.map(|(low, high)| (self.mean - low, high - self.mean))
    }

    /// Half of the interval as a share of the mean.
    pub(crate) fn relative_error(&self) -> Option<f64> {
        self.interval().map(|(low, high)| (high - low) / 2.0 / self.mean.abs())
    }

    /// What their distance is made of: the logarithms, if both have them.
    fn distance(&self, other: &Self) -> Option<(Moments, Moments)> {
        self.logs.zip(other.logs).or_else(|| self.plain().zip(other.plain()))
    }

    /// Whether the 95 % interval of their difference, or of the logarithm of their quotient, has
    /// zero outside; without three repeats nothing is known.
    pub(crate) fn is_apart_from(&self, other: &Self) -> bool {
        let both = self.distance(other).filter(|_| self.count.min(other.count) >= REPEATS_MIN);
        both.is_some_and(|(own, others)| {
            let apart = Moments::sum([(own, 1.0), (others, -1.0)]);
            apart.mean.abs() > apart.half() + self.slack_towards(other, apart.mean)
        })
    }

    /// How much nearer they may be on a quiet machine.
    fn slack_towards(&self, other: &Self, apart: f64) -> f64 {
        let by_logs = self.logs.is_some() && other.logs.is_some();
        let slack = |of: &Self| if by_logs { of.slack } else { of.plain_slack() };
        let (own, others) = (slack(self), slack(other));
        if apart > 0.0 { own[0] + others[1] } else { own[1] + others[0] }
    }

    /// Whether they are apart, but for what others may have done to them.
    pub(crate) fn is_apart_when_quiet(&self, other: &Self) -> bool {
        self.widened([0.0; 2]).is_apart_from(&other.widened([0.0; 2]))
    }

    /// How many repeats of each would tell them apart, up to `most`, if neither means nor spread
    /// change: an outer None if no spread is known, an inner one if more than that are needed.
    #[expect(clippy::option_option, reason = "two different answers")]
    pub(crate) fn needed(&self, other: &Self, most: usize) -> Option<Option<usize>> {
        let (own, others) = self.distance(other)?;
        let squares = |moments: Moments, of: &Self| {
            if of.count == usize::MAX { 0.0 } else { moments.variance * of.count as f64 }
        };
        let of = |moments: Moments, square: f64, count: usize| {
            let count = count as f64;
            let degrees = if square > 0.0 { count - 1.0 } else { f64::INFINITY };
            Moments { variance: square / count, degrees, ..moments }
        };
        let (mine, theirs) = (squares(own, self), squares(others, other));
        Some((REPEATS_MIN..=most).find(|count| {
            let parts = [(of(own, mine, *count), 1.0), (of(others, theirs, *count), -1.0)];
            let apart = Moments::sum(parts);
            apart.mean.abs() > apart.half()
        }))
    }
}

#[cfg(test)]
mod tests;
