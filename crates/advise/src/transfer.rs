//! What a network with other parts does, from what is known of the one that was measured.
//!
//! A prediction has what was measured in it and its interval. Both networks are simulated, and the
//! prediction changes as the simulation does. What the model does not have of the measured network
//! may stay as it is or grow with the rest, so that the interval holds both; it also holds what the
//! other network may be at the least and at the most.

use crate::network::{Core, Network, Outcome};
use crate::predict::{CLOSEST, Interval, PARTS, Prediction, SERVED};

/// Simulations of a rate.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// Of what was measured, at the rate at which the prediction is.
    pub before: &'a Outcome,
    /// Of the other network: as it is thought to be, and where it may be different.
    pub after: &'a [Outcome],
}

impl Change<'_> {
    /// The prediction for the other network, at the rate that arrives there. None where nothing is
    /// known: the measured network does not serve what the other one does.
    #[must_use]
    pub fn of(&self, known: &Prediction, rate: f64) -> Option<Prediction> {
        let first = self.after.first()?;
        let is_beyond = |outcome: &Outcome| outcome.iops < SERVED * rate;
        let is_beyond_knee = is_beyond(first);
        if known.is_beyond_knee && !self.after.iter().all(is_beyond) {
            return None;
        }
        let moved = |interval: &Interval, of: &dyn Fn(&Outcome) -> f64| {
            let before = of(self.before).max(1.0);
            let both = |after: &Outcome| {
                let after = of(after);
                let by = |one: f64| [one * after / before, (one + after - before).max(1.0)];
                [interval.low, interval.value, interval.high].map(by)
            };
            let [_, value, _] = both(first);
            let all: Vec<[[f64; 2]; 3]> = self.after.iter().map(both).collect();
            let ends = |end: usize| all.iter().flat_map(move |one| one[end]);
            // A change that was simulated is off by something itself.
            let own = Interval::around(1.0, CLOSEST);
            Interval {
                value: (value[0] * value[1]).sqrt(),
                low: own.low * ends(0).fold(f64::INFINITY, f64::min),
                high: own.high * ends(2).fold(0.0, f64::max),
            }
        };
        let mut quantiles_ns = known.quantiles_ns;
        for (interval, part) in quantiles_ns.iter_mut().zip(PARTS) {
            *interval = moved(interval, &|outcome| outcome.quantile(part));
        }
        let mean_ns = moved(&known.mean_ns, &Outcome::mean);
        Some(Prediction {
            iops: first.iops,
            is_beyond_knee,
            mean_ns,
            quantiles_ns,
            busy: first.busy,
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
            quantiles_ns: [0, 1, 2].map(|at| between(&|one| one.quantiles_ns[at])),
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
