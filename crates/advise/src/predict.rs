//! What a fitted network says of a rate, with its interval, or why it says nothing.

use std::ops::Deref;

use crate::fit::Fit;
use crate::network::{Arrivals, Interruptions, Network, Outcome};

/// Half the width of a 90 % interval, in deviations.
pub const NORMAL: f64 = 1.645;

/// The highest rate that is predicted, as a multiple of the highest that was measured.
const BEYOND: f64 = 1.25;

/// Whether what arrives is served, but for what a part of a run may leave over: beyond the knee
/// what waits grows without a bound.
#[must_use]
pub fn is_served(rate: f64, iops: f64) -> bool {
    iops >= 0.98 * rate
}

/// A fit whose p99 is off by more than this (a natural logarithm) does not explain its own cells;
/// where each cell was predicted from the others, what it is off by is in the interval as well.
const EXPLAINED: f64 = 0.4;
const CORRECTED: f64 = 1.0;

/// No prediction is closer than this (a natural logarithm): machines differ by as much from minute
/// to minute.
pub const CLOSEST: f64 = 0.04;

/// A run of seconds has few interruptions, so that they may take so many times less of the time, or
/// more in pieces so many times longer. The lower end of an interval has none of other programs.
const INTERRUPTED: f64 = 1.6;

/// Requests of a prediction.
const REQUESTS: usize = 50_000;

/// A number with its 90 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Interval {
    /// The number.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// Around a value, by the deviation of its natural logarithm.
    #[must_use]
    pub fn around(value: f64, deviation: f64) -> Self {
        let by = (NORMAL * deviation).exp();
        Self { value, low: value / by, high: value * by }
    }

    fn at_least(self, least: f64) -> Self {
        let [value, low, high] = [self.value, self.low, self.high].map(|one| one.max(least));
        Self { value, low, high }
    }
}

/// Latencies, by the parts of the requests that have at most this ([`PARTS`]), in ns. Each is
/// predicted for itself; but none is below that of a smaller part, nor are its ends.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Quantiles([Interval; PARTS.len()]);

impl Quantiles {
    /// Of these, of which a later one is raised to those before it.
    #[must_use]
    pub fn new(mut all: [Interval; PARTS.len()]) -> Self {
        for at in 1..all.len() {
            let (before, own) = (all[at - 1], &mut all[at]);
            own.value = own.value.max(before.value);
            own.low = own.low.max(before.low);
            own.high = own.high.max(before.high);
        }
        Self(all)
    }

    /// None of them below that.
    fn at_least(self, ns: f64) -> Self {
        Self(self.0.map(|one| one.at_least(ns)))
    }
}

impl Deref for Quantiles {
    type Target = [Interval; PARTS.len()];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// What becomes of a rate.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Prediction {
    /// Requests a second that are served.
    pub iops: f64,
    /// Whether less is served than arrives, so that what waits grows without a bound.
    pub is_beyond_knee: bool,
    /// Mean latency, in ns.
    pub mean_ns: Interval,
    /// Latencies.
    pub quantiles_ns: Quantiles,
    /// Whether the last of these is held against measured cells that have random arrivals and
    /// requests enough for it. What interrupts a core makes most of it, and a closed loop hardly
    /// shows that.
    pub is_tail_known: bool,
    /// Part of its time that each core of the host, and of the target, has work.
    pub busy: [f64; 2],
}

impl Prediction {
    /// The same where no request takes less than that.
    #[must_use]
    pub fn at_least(self, ns: f64) -> Self {
        let (mean_ns, quantiles_ns) = (self.mean_ns.at_least(ns), self.quantiles_ns.at_least(ns));
        Self { mean_ns, quantiles_ns, ..self }
    }

    /// Its latencies: quantiles, and the mean behind them.
    pub(crate) fn numbers(&self) -> [f64; PARTS.len() + 1] {
        let [p50, p99, p999] = self.quantiles_ns.map(|one| one.value);
        [p50, p99, p999, self.mean_ns.value]
    }
}

/// The parts of [`Prediction::quantiles_ns`].
pub const PARTS: [f64; 3] = [0.5, 0.99, 0.999];

/// Why nothing is said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Refusal {
    /// No cell has so many cores, or the rate is far beyond what was measured with them.
    BeyondMeasured {
        /// The highest rate that is predicted.
        most: f64,
    },
    /// The model does not come near the cells that it was fitted to.
    NotExplained {
        /// How far it is off, as a factor.
        factor: f64,
    },
}

impl Fit {
    /// What becomes of so many requests a second with these cores and this depth.
    ///
    /// # Errors
    /// It would be a guess.
    pub fn predict(
        &self,
        rate: f64,
        depth: usize,
        cores: [usize; 2],
        seed: u64,
    ) -> Result<Prediction, Refusal> {
        let most = self.most(cores);
        if rate > BEYOND * most {
            return Err(Refusal::BeyondMeasured { most: BEYOND * most });
        }
        let (found, deviation) = self.simulated(rate, depth, cores, seed);
        let (deviation, most) = match deviation {
            Some(deviation) => (deviation, CORRECTED),
            None => (self.deviation(|cell| cell.quantile(0.99)), EXPLAINED),
        };
        if deviation > most {
            return Err(Refusal::NotExplained { factor: deviation.exp() });
        }
        Ok(found)
    }

    /// The highest rate that was measured with these cores.
    pub(crate) fn most(&self, cores: [usize; 2]) -> f64 {
        self.measured.iter().find(|one| one.0 == cores).map_or(0.0, |one| one.1)
    }

    /// What becomes of a closed loop with these cores and this depth, as the network has it.
    #[must_use]
    pub fn closed(&self, depth: usize, cores: [usize; 2], seed: u64) -> Prediction {
        let found = self.uncorrected(Arrivals::Closed, depth, cores, seed);
        self.corrected(found, self.in_flight(depth), None).0
    }

    /// The prediction, and how far its p99 may be off if it is corrected.
    fn simulated(
        &self,
        rate: f64,
        depth: usize,
        cores: [usize; 2],
        seed: u64,
    ) -> (Prediction, Option<f64>) {
        let found = self.uncorrected(Arrivals::Poisson(rate), depth, cores, seed);
        self.corrected(found, self.queue(rate, cores), Some(cores))
    }

    fn corrected(
        &self,
        found: Prediction,
        queue: f64,
        cores: Option<[usize; 2]>,
    ) -> (Prediction, Option<f64>) {
        let correction = self.correction(&found, queue, cores);
        let times = self.beyond_measured(queue, cores);
        let corrected = |interval: Interval, kind: usize| {
            let Some((log, deviation)) = correction[kind] else {
                return self.widened(interval, kind, times);
            };
            let by = log.exp();
            let own = Interval::around(by * interval.value, deviation.max(CLOSEST));
            // A quiet machine has no less than the model says, whatever is left of this one.
            let low = own.low.min(interval.low * by.min(1.0));
            Interval { low, high: own.high.max(by * interval.high), ..own }
        };
        let [_, of_p99, of_p999, _] = correction;
        let quantiles_ns = [0, 1, 2].map(|kind| corrected(found.quantiles_ns[kind], kind));
        let corrected = Prediction {
            quantiles_ns: Quantiles::new(quantiles_ns),
            mean_ns: corrected(found.mean_ns, PARTS.len()),
            is_tail_known: of_p999.is_some(),
            ..found
        };
        (corrected, of_p99.map(|(_, deviation)| deviation))
    }

    /// By how far the network is off in its own cells, so many times.
    fn widened(&self, interval: Interval, kind: usize, times: f64) -> Interval {
        let deviation = match PARTS.get(kind) {
            Some(part) => self.deviation(|cell| cell.quantile(*part)),
            None => self.deviation(|cell| cell.mean),
        };
        let by = Interval::around(1.0, times * deviation.max(CLOSEST));
        Interval { low: interval.low * by.low, high: interval.high * by.high, ..interval }
    }

    /// What the network says, with fewer interruptions and without other programs, and with more.
    pub(crate) fn uncorrected(
        &self,
        arrivals: Arrivals,
        depth: usize,
        cores: [usize; 2],
        seed: u64,
    ) -> Prediction {
        let [host_cores, target_cores] = cores;
        let network = Network { host_cores, target_cores, ..self.network.clone() };
        let simulated = network.simulate(arrivals, depth, REQUESTS, seed);
        // Those that nobody counts, and those of other programs.
        let with = |unseen: f64, others: f64| {
            let more = |by: Interruptions, times: f64| {
                let share = (by.share * times).min(0.5);
                Interruptions { share, mean_ns: by.mean_ns * times.max(1.0) }
            };
            let kinds = [more(self.interruptions, unseen), more(self.others, others)];
            simulated.clone().interrupted(&network, arrivals, &kinds)
        };
        let none = with(1.0 / INTERRUPTED, 0.0);
        let [outcome, more] = [1.0, INTERRUPTED].map(|times| with(times, times));
        let between = |of: &dyn Fn(&Outcome) -> f64| Interval {
            value: of(&outcome),
            low: of(&none),
            high: of(&more),
        };
        Prediction {
            iops: outcome.iops,
            is_beyond_knee: match arrivals {
                Arrivals::Poisson(rate) => !is_served(rate, outcome.iops),
                Arrivals::Closed => false,
            },
            mean_ns: between(&Outcome::mean),
            quantiles_ns: Quantiles::new(PARTS.map(|part| between(&|one| one.quantile(part)))),
            is_tail_known: false,
            busy: outcome.busy,
        }
    }
}

#[cfg(test)]
mod tests;
