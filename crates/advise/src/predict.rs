//! What a fitted network says of a rate, with its interval, or why it says nothing.

use crate::fit::Fit;
use crate::network::{Arrivals, Interruptions, Network, Outcome};

/// Half the width of a 90 % interval, in deviations.
const DEVIATIONS: f64 = 1.645;

/// The highest rate that is predicted, as a multiple of the highest that was measured.
const BEYOND: f64 = 1.25;

/// Less than this part of what arrives is served beyond the knee.
pub(crate) const SERVED: f64 = 0.985;

/// A fit whose p99 is off by more than this (a natural logarithm) does not explain its own cells;
/// where each cell was predicted from the others, what it is off by is in the interval as well.
const EXPLAINED: f64 = 0.4;
const CORRECTED: f64 = 1.0;

/// No prediction is closer than this (a natural logarithm): machines differ by as much from minute
/// to minute.
const CLOSEST: f64 = 0.04;

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
        let by = (DEVIATIONS * deviation).exp();
        Self { value, low: value / by, high: value * by }
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
    /// Latencies, in ns, by the part of requests that have at most this.
    pub quantiles_ns: [Interval; 3],
    /// Part of its time that each core of the host, and of the target, has work.
    pub busy: [f64; 2],
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
        let most = self.measured.iter().find(|one| one.0 == cores).map_or(0.0, |one| one.1);
        if rate > BEYOND * most {
            return Err(Refusal::BeyondMeasured { most: BEYOND * most });
        }
        let (deviation, most) = match self.correction(rate, cores) {
            Some(correction) => (correction.deviations[1], CORRECTED),
            None => (self.deviation(|cell| cell.quantile(0.99)), EXPLAINED),
        };
        if deviation > most {
            return Err(Refusal::NotExplained { factor: deviation.exp() });
        }
        Ok(self.simulated(rate, depth, cores, seed))
    }

    fn simulated(&self, rate: f64, depth: usize, cores: [usize; 2], seed: u64) -> Prediction {
        let mut found = self.uncorrected(rate, depth, cores, seed);
        if let Some(correction) = self.correction(rate, cores) {
            let all = found.quantiles_ns.iter_mut().chain([&mut found.mean_ns]);
            for (at, interval) in all.enumerate() {
                let by = correction.logs[at].exp();
                let own =
                    Interval::around(by * interval.value, correction.deviations[at].max(CLOSEST));
                // A quiet machine has no less than the model says, whatever is left of this one.
                let low = own.low.min(interval.low * by.min(1.0));
                *interval = Interval { low, high: own.high.max(by * interval.high), ..own };
            }
        }
        found
    }

    /// What the network says, without what it leaves of its cells.
    pub(crate) fn uncorrected(
        &self,
        rate: f64,
        depth: usize,
        cores: [usize; 2],
        seed: u64,
    ) -> Prediction {
        let [host_cores, target_cores] = cores;
        let network = Network { host_cores, target_cores, ..self.network.clone() };
        let arrivals = Arrivals::Poisson(rate);
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
        let between = |of: &dyn Fn(&Outcome) -> f64, deviation: f64| {
            let around = |one: &Outcome| Interval::around(of(one), deviation.max(CLOSEST));
            Interval { low: around(&none).low, high: around(&more).high, ..around(&outcome) }
        };
        let quantiles_ns = PARTS.map(|part| {
            between(&|one| one.quantile(part), self.deviation(|cell| cell.quantile(part)))
        });
        Prediction {
            iops: outcome.iops,
            is_beyond_knee: outcome.iops < SERVED * rate,
            mean_ns: between(&|outcome| outcome.mean(), self.deviation(|cell| cell.mean)),
            quantiles_ns,
            busy: outcome.busy,
        }
    }

    /// The highest rate at which a quantile is at most an objective, from what was measured.
    #[must_use]
    pub fn headroom(&self, part: usize, objective_ns: f64, depth: usize, cores: [usize; 2]) -> f64 {
        let most = self.measured.iter().find(|one| one.0 == cores).map_or(0.0, |one| one.1);
        let holds = |rate: f64| {
            let prediction = self.simulated(rate, depth, cores, 1);
            !prediction.is_beyond_knee && prediction.quantiles_ns[part].value <= objective_ns
        };
        let (mut low, mut high) = (0.0, BEYOND * most);
        for _ in 0..8 {
            let middle = f64::midpoint(low, high);
            if holds(middle) { low = middle } else { high = middle }
        }
        low
    }
}

#[cfg(test)]
mod tests;
