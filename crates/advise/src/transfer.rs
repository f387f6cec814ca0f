//! What a network with other parts does, from what is known of the one that was measured.
//!
//! A prediction has what was measured in it and its interval. Both networks are simulated, and the
//! prediction changes as the simulation does. Where cores have other work, what the model does not
//! have of the measured network may stay as it is or grow with the rest, so that the interval holds
//! both. Where a request only waits longer or shorter, what it met besides stays: a round trip of
//! 30 µs more makes a latency of 3 ms, which interruptions made, no longer than by 30 µs. The
//! interval also holds what the other network may be at the least and at the most.

use crate::network::{Core, Network, Outcome};
use crate::predict::{CLOSEST, Interval, PARTS, Prediction, Quantiles, is_served};

/// Simulations of a rate.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// Of what was measured, at the rate at which the prediction is.
    pub before: &'a Outcome,
    /// With the cores and all that arrives at them, but the measured delays: as it is thought to
    /// be, and where it may be different.
    pub worked: &'a [Outcome],
    /// The same with the other delays.
    pub after: &'a [Outcome],
}

impl Change<'_> {
    /// The prediction for the other network, at the rate that arrives there. None where nothing is
    /// known: the measured network does not serve what the other one does.
    #[must_use]
    pub fn of(&self, known: &Prediction, rate: f64) -> Option<Prediction> {
        let first = self.after.first()?;
        let is_beyond = |outcome: &Outcome| !is_served(rate, outcome.iops);
        let is_beyond_knee = is_beyond(first);
        if known.is_beyond_knee && !self.after.iter().all(is_beyond) {
            return None;
        }
        let [p50, p99, p999] = known.quantiles_ns.map(|one| one);
        let of = |interval, part| self.moved(interval, |outcome| outcome.quantile(part));
        let quantiles_ns = [of(p50, PARTS[0])?, of(p99, PARTS[1])?, of(p999, PARTS[2])?];
        Some(Prediction {
            iops: first.iops,
            is_beyond_knee,
            mean_ns: self.moved(known.mean_ns, Outcome::mean)?,
            quantiles_ns: Quantiles::new(quantiles_ns),
            is_tail_known: known.is_tail_known,
            busy: first.busy,
        })
    }

    fn moved(&self, known: Interval, of: impl Fn(&Outcome) -> f64) -> Option<Interval> {
        let before = of(self.before).max(1.0);
        // What was simulated is off by something itself: other work all of it, another delay by
        // itself.
        let doubt = Interval::around(1.0, CLOSEST).high - 1.0;
        let both = |(worked, after): (&Outcome, &Outcome)| {
            let (worked, after) = (of(worked), of(after));
            move |one: f64| {
                [one * worked / before, (one + worked - before).max(1.0)].map(|other| {
                    let moved = other + after - worked;
                    // What is taken out is no larger a part of it than it was in the simulation.
                    let kept = if after < worked { other * after / worked } else { 0.0 };
                    let is_other = (worked - before).abs() > f64::EPSILON * before;
                    let size = if is_other { other } else { (after - worked).abs() };
                    (moved.max(kept).max(1.0), doubt * size)
                })
            }
        };
        let all: Vec<_> = self.worked.iter().zip(self.after).map(both).collect();
        let [(grown, _), (moved, _)] = all.first()?(known.value);
        let value = (grown * moved).sqrt();
        let low = all.iter().flat_map(|by| by(known.low)).map(|(one, doubt)| one - doubt);
        let high = all.iter().flat_map(|by| by(known.high)).map(|(one, doubt)| one + doubt);
        Some(Interval {
            value,
            low: low.fold(value, f64::min).max(1.0),
            high: high.fold(value, f64::max),
        })
    }
}

impl Prediction {
    /// Between predictions of other mixes or sizes, by their weights, which together are 1. How it
    /// goes from one to the other is not known, so that the interval holds all of theirs. None
    /// where they do not agree on whether the rate is served.
    #[must_use]
    pub fn between(all: &[(f64, Self)]) -> Option<Self> {
        let (_, first) = all.first()?;
        if all.iter().any(|(_, one)| one.is_beyond_knee != first.is_beyond_knee) {
            return None;
        }
        let sum = |of: &dyn Fn(&Self) -> f64| all.iter().map(|(by, one)| by * of(one)).sum::<f64>();
        let between = |of: &dyn Fn(&Self) -> Interval| Interval {
            value: sum(&|one| of(one).value.max(1.0).ln()).exp(),
            low: all.iter().map(|(_, one)| of(one).low).fold(f64::INFINITY, f64::min),
            high: all.iter().map(|(_, one)| of(one).high).fold(0.0, f64::max),
        };
        Some(Self {
            iops: sum(&|one| one.iops),
            is_beyond_knee: first.is_beyond_knee,
            mean_ns: between(&|one| one.mean_ns),
            quantiles_ns: Quantiles::new([0, 1, 2].map(|at| between(&|one| one.quantiles_ns[at]))),
            is_tail_known: all.iter().all(|(_, one)| one.is_tail_known),
            busy: [0, 1].map(|side| sum(&|one| one.busy[side])),
        })
    }
}

impl Network {
    /// Between networks, by their weights, which together are 1.
    #[must_use]
    pub fn between(all: &[(f64, &Self)]) -> Self {
        let sum = |of: &dyn Fn(&Self) -> f64| all.iter().map(|(by, one)| by * of(one)).sum::<f64>();
        let core = |of: &dyn Fn(&Self) -> Core| Core {
            turn_ns: sum(&|one| of(one).turn_ns),
            request_ns: sum(&|one| of(one).request_ns),
        };
        let Some((_, first)) = all.first() else { return Self::default() };
        let delay = |at: usize| sum(&|one| one.delays_ns.get(at).copied().unwrap_or_default());
        let narrowest = all.iter().map(|(_, one)| *one);
        let narrowest =
            narrowest.min_by(|one, other| one.device_width.total_cmp(&other.device_width));
        let narrowest = narrowest.unwrap_or(first);
        Self {
            host: core(&|one| one.host),
            target: core(&|one| one.target),
            delays_ns: (0..first.delays_ns.len()).map(delay).collect(),
            device_width: narrowest.device_width,
            has_lanes: narrowest.has_lanes,
            ..(*first).clone()
        }
    }
}

#[cfg(test)]
mod tests;
