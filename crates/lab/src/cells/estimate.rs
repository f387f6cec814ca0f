//! A value that was measured several times.

/// Quantiles of Student's t that leave 2.5 % on either side, by degrees of freedom from 1.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// The quantile for so many degrees of freedom; beyond the table the first term of its expansion
/// about the normal quantile is exact to three digits.
fn t_95(degrees: usize) -> f64 {
    let beyond = 1.960 + 2.372 / degrees.max(1) as f64;
    degrees.checked_sub(1).and_then(|index| T_95.get(index)).copied().unwrap_or(beyond)
}

/// Half of the 95 % confidence interval of the mean of so many values with this deviation.
pub(super) fn half_of_interval(deviation: f64, count: usize) -> f64 {
    t_95(count.saturating_sub(1)) * deviation / (count as f64).sqrt()
}

/// Half of the 95 % interval of the difference of two means, if each has three values (Welch).
fn welch(one: &[f64], other: &[f64]) -> Option<f64> {
    let of = |values: &[f64]| {
        let summary = crate::statistics::Summary::of(values.iter().copied());
        let enough = summary.count >= 3 && summary.stddev.is_finite();
        enough.then(|| (summary.stddev.powi(2) / summary.count as f64, summary.count as f64 - 1.0))
    };
    let ((first, few), (second, more)) = (of(one)?, of(other)?);
    let variance = first + second;
    if variance <= 0.0 {
        return Some(0.0);
    }
    let degrees = variance.powi(2) / (first.powi(2) / few + second.powi(2) / more);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few repeats")]
    Some(t_95(degrees as usize) * variance.sqrt())
}

/// Mean, minimum, maximum and confidence interval of repeats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) mean: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// How far the 95 % confidence interval of the mean goes up from it, from three repeats on.
    pub(crate) half_width: Option<f64>,
    /// How far it goes down, if that differs: for ratios.
    pub(crate) down: Option<f64>,
    /// How many repeats.
    pub(crate) count: usize,
    /// No repeat resolves it alone; it is the percentile of all of them thrown together.
    pub(crate) pooled: bool,
}

impl Estimate {
    /// Of these values; none if there are none.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let summary = crate::statistics::Summary::of(values.iter().copied());
        let count = values.len();
        if count == 0 {
            return None;
        }
        let half_width = (count >= 3).then(|| half_of_interval(summary.stddev, count));
        Some(Self {
            mean: summary.mean,
            least: summary.min,
            most: summary.max,
            half_width,
            down: None,
            count,
            pooled: false,
        })
    }

    /// The ratio of the means of two sets of repeats, with the spread of both.
    ///
    /// The interval is that of the difference of the logarithms (Welch's t): repeats of rates and
    /// latencies spread in proportion to themselves, and it stays finite and above 0 however few
    /// they are, which Fieller's does not.
    pub(crate) fn ratio(own: &[f64], base: &[f64]) -> Option<Self> {
        let joined = |one: f64, other: f64| one / other;
        let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<f64>>();
        let ratio = Self::unpaired(own, base, joined, welch(&logs(own), &logs(base)))?;
        let mean = ratio.mean;
        let down = ratio.half_width.map(|log| mean * (1.0 - (-log).exp()));
        let half_width = ratio.half_width.map(|log| mean * (log.exp() - 1.0));
        mean.is_finite().then_some(Self { half_width, down, ..ratio })
    }

    /// The difference of the means of two sets of repeats, with the spread of both.
    pub(crate) fn difference(own: &[f64], base: &[f64]) -> Option<Self> {
        Self::unpaired(own, base, |one, other| one - other, welch(own, base))
    }

    fn unpaired(
        own: &[f64],
        base: &[f64],
        join: fn(f64, f64) -> f64,
        half_width: Option<f64>,
    ) -> Option<Self> {
        let (one, other) = (Self::of(own)?, Self::of(base)?);
        Some(Self {
            mean: join(one.mean, other.mean),
            least: join(one.least, other.most),
            most: join(one.most, other.least),
            half_width,
            down: None,
            count: one.count.min(other.count),
            pooled: false,
        })
    }

    /// Of all samples of so many repeats together.
    pub(crate) const fn pooled(value: f64, count: usize) -> Self {
        Self {
            mean: value,
            least: value,
            most: value,
            half_width: None,
            down: None,
            count,
            pooled: true,
        }
    }

    /// How far an error bar goes down and up from the mean: the confidence interval, or where
    /// there are two repeats both of them. Nothing for one.
    pub(crate) fn bar(&self) -> Option<(f64, f64)> {
        match (self.half_width, self.count, self.pooled) {
            (Some(half), ..) => Some((self.down.unwrap_or(half), half)),
            (None, 2, false) => Some((self.mean - self.least, self.most - self.mean)),
            _ => None,
        }
    }

    /// The same in another unit, or with another sign.
    pub(crate) fn scaled(&self, factor: f64) -> Self {
        let part = |part: Option<f64>| part.map(|part| part * factor.abs());
        let (up, down) = (part(self.half_width), part(self.down));
        let (one, other) = (self.least * factor, self.most * factor);
        let is_turned = factor < 0.0 && down.is_some();
        Self {
            mean: self.mean * factor,
            least: one.min(other),
            most: one.max(other),
            half_width: if is_turned { down } else { up },
            down: if is_turned { up } else { down },
            ..*self
        }
    }

    /// A mean with this relative deviation of so many repeats; none: it is not known.
    pub(crate) fn with_deviation(mean: f64, relative: Option<f64>, count: usize) -> Self {
        let Some(deviation) = relative.map(|relative| relative * mean).filter(|_| count > 1) else {
            return Self::pooled(mean, count);
        };
        let aside = deviation / std::f64::consts::SQRT_2;
        let half_width = (count >= 3).then(|| half_of_interval(deviation, count));
        let (least, most) = (mean - aside, mean + aside);
        Self { mean, least, most, half_width, down: None, count, pooled: false }
    }

    /// A number that is known exactly: a bound.
    pub(crate) const fn exact(value: f64) -> Self {
        Self {
            mean: value,
            least: value,
            most: value,
            half_width: Some(0.0),
            down: None,
            count: usize::MAX,
            pooled: false,
        }
    }

    /// The standard deviation of the repeats; none if they show no spread.
    pub(crate) fn deviation(&self) -> Option<f64> {
        match (self.half_width, self.count, self.pooled) {
            (Some(half), ..) => Some(half / half_of_interval(1.0, self.count)),
            (None, 2, false) => Some((self.most - self.least) / std::f64::consts::SQRT_2),
            _ => None,
        }
    }

    /// Whether the 95 % confidence intervals of two keep clear of each other; without an interval
    /// nothing is known. (Two repeats have one, a wide one, although their bar shows both.)
    pub(crate) fn is_apart_from(&self, other: &Self) -> bool {
        let half = |of: &Self| Some(half_of_interval(of.deviation()?, of.count));
        let (Some(mine), Some(others)) = (half(self), half(other)) else { return false };
        (self.mean - other.mean).abs() > mine + others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        // 10, 12, 14: mean 12, s 2, 4.303 · 2 / √3.
        let estimate = Estimate::of(&[10.0, 12.0, 14.0]).expect("values");
        assert_eq!((estimate.mean, estimate.count), (12.0, 3));
        assert!((estimate.half_width.expect("three") - 4.9687).abs() < 1e-3);
        assert!((t_95(40) - 2.021).abs() < 2e-3 && (t_95(1000) - 1.962).abs() < 1e-3);
        assert!((t_95(30) - 2.042).abs() < 1e-9 && (t_95(1) - 12.706).abs() < 1e-9);
    }

    #[test]
    fn two_repeats_show_both_and_one_shows_nothing() {
        assert_eq!(Estimate::of(&[1.0, 3.0]).expect("values").bar(), Some((1.0, 1.0)));
        assert_eq!(Estimate::of(&[1.0]).expect("a value").bar(), None);
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::pooled(5.0, 2).bar(), None);
    }

    #[test]
    fn a_ratio_has_the_spread_of_both_sides() {
        // 2 ÷ 1 with a denominator that spreads: ln has variances 0 and 0.01, 2 degrees.
        let base = [-0.1f64, 0.0, 0.1].map(f64::exp);
        let ratio = Estimate::ratio(&[2.0, 2.0, 2.0], &base).expect("values");
        let log = 4.303 * 0.1 / 3.0f64.sqrt();
        let (down, up) = ratio.bar().expect("three of each");
        assert!((up / ratio.mean - (log.exp() - 1.0)).abs() < 1e-6, "{ratio:?}");
        assert!((down / ratio.mean - (1.0 - (-log).exp())).abs() < 1e-6, "{ratio:?}");
        // Two of each: the extremes of both.
        let ratio = Estimate::ratio(&[2.0, 4.0], &[1.0, 2.0]).expect("values");
        assert_eq!((ratio.mean, ratio.bar()), (2.0, Some((1.0, 2.0))));
        assert_eq!(Estimate::ratio(&[2.0], &[1.0, 2.0, 3.0]).expect("values").bar(), None);
        assert_eq!(Estimate::ratio(&[2.0], &[]), None);
        let apart = Estimate::difference(&[9.0, 10.0, 11.0], &[4.0, 5.0, 6.0]).expect("values");
        assert!((apart.half_width.expect("three") - 2.776 * (2.0f64 / 3.0).sqrt()).abs() < 1e-9);
        assert_eq!((apart.mean, apart.least, apart.most), (5.0, 3.0, 7.0));
    }

    #[test]
    fn values_are_apart_if_their_intervals_are() {
        let of = |values: &[f64]| Estimate::of(values).expect("values");
        // 12.7 · 0.0707 / √2 = 0.635 each.
        assert!(of(&[1.0, 1.1]).is_apart_from(&of(&[3.0, 3.1])));
        assert!(!of(&[1.0, 1.1]).is_apart_from(&of(&[2.0, 2.1])));
        assert!(
            !of(&[1.0, 2.0]).is_apart_from(&of(&[3.0, 4.0])),
            "two repeats may be so by chance"
        );
        assert!(!of(&[1.0]).is_apart_from(&of(&[9.0, 9.5])), "one has no interval");
        assert!(of(&[1.0, 1.1, 1.2]).is_apart_from(&Estimate::exact(0.8)));
        assert!(!of(&[1.0, 1.1, 1.2]).is_apart_from(&Estimate::exact(1.3)));
        assert!(!Estimate::pooled(1.0, 9).is_apart_from(&Estimate::exact(2.0)));
    }

    #[test]
    fn the_deviation_is_that_of_the_repeats() {
        let of = |values: &[f64]| Estimate::of(values).expect("values").deviation();
        assert!((of(&[10.0, 12.0, 14.0]).expect("three") - 2.0).abs() < 1e-9);
        assert!((of(&[10.0, 12.0]).expect("two") - 2.0_f64.sqrt()).abs() < 1e-9);
        assert_eq!(of(&[10.0]), None);
        assert_eq!(Estimate::exact(3.0).deviation(), Some(0.0));
    }
}
