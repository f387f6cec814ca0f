//! What the measured cells of a way say of a prediction by themselves.
//!
//! A rate that was served is not beyond the knee, and one that no closed loop reached is. At a
//! measured rate the interval of the p99 holds the measured one, and between two such rates what
//! lies between; beyond the highest it grows as the law of a queue, 1/(1 − ρ).

use weft_advise::fit::{Cell as FittedCell, Fit};
use weft_advise::{Arrivals, Prediction, Quantiles};

use super::measured::point_of;
use super::model::SEED;
use crate::cells::Cell;

/// A capacity that was measured is off by this part at most, and ρ is the part of that.
const OF_CAPACITY: f64 = 1.02;

/// So near to its capacity nothing is said of a queue.
const IDLE_MIN: f64 = 0.01;

/// What was measured at a rate: the natural logarithms of the rate and of the ends of the measured
/// p99 by the predicted one.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    rate: f64,
    ends: [f64; 2],
}

#[derive(Clone, Debug)]
pub(super) struct Evidence {
    /// In the order of their rates.
    measurements: Vec<Measurement>,
    /// The highest rate at which all that arrived was served.
    served: f64,
    /// What a closed loop of the greatest depth served at the most.
    closed: Option<f64>,
    /// The highest rate of any cell.
    most: f64,
}

impl Evidence {
    /// What these cells say, beside what the model says of them.
    pub(super) fn of(cells: &[(&Cell, FittedCell)], fit: &Fit, cores: [usize; 2]) -> Self {
        let deepest = cells.iter().map(|(_, fitted)| fitted.depth).max().unwrap_or(1);
        let mut found = Self { measurements: Vec::new(), served: 0.0, closed: None, most: 0.0 };
        for (cell, fitted) in cells {
            let best = cell.repeats.iter().map(|repeat| repeat.iops).fold(0.0, f64::max);
            found.most = found.most.max(best);
            match fitted.arrivals {
                Arrivals::Closed if fitted.depth == deepest => {
                    found.closed = Some(found.closed.unwrap_or(0.0).max(best));
                }
                Arrivals::Poisson(rate) if fitted.is_served() => {
                    found.served = found.served.max(rate);
                    let said = fit.predict(rate, fitted.depth, cores, SEED);
                    if let (Ok(said), Some(point)) = (said, point_of(cell)) {
                        let by = |end: f64| (end / said.quantiles_ns[1].value).ln();
                        let ends = [by(point.low), by(point.high)];
                        found.measurements.push(Measurement { rate: rate.ln(), ends });
                    }
                }
                Arrivals::Closed | Arrivals::Poisson(_) => {}
            }
        }
        found.measurements.sort_by(|one, other| one.rate.total_cmp(&other.rate));
        found
    }

    /// A prediction with what was measured.
    pub(super) fn hold(&self, prediction: Prediction, rate: f64) -> Prediction {
        let is_beyond_knee = match () {
            () if rate <= self.served => false,
            () if self.closed.is_some_and(|most| rate > most) => true,
            () => prediction.is_beyond_knee,
        };
        let [p50, mut p99, mut p999] = *prediction.quantiles_ns;
        if let Some([low, high]) = self.ends(rate.ln()) {
            p99.low = p99.low.min(p99.value * low.exp());
            p99.high = p99.high.max(p99.value * high.exp());
        }
        if rate > self.served && self.served > 0.0 {
            let idle = |rate: f64| (1.0 - rate / (OF_CAPACITY * self.most)).max(IDLE_MIN);
            let grown = idle(self.served) / idle(rate);
            p99.high *= grown;
            p999.high *= grown;
        }
        let quantiles_ns = Quantiles::new([p50, p99, p999]);
        Prediction { is_beyond_knee, quantiles_ns, ..prediction }
    }

    /// Between the two nearest measured rates, by logarithms, or those of the nearest one.
    fn ends(&self, rate: f64) -> Option<[f64; 2]> {
        let above = self.measurements.iter().position(|one| one.rate >= rate);
        let (before, after) = match above {
            Some(0) => (0, 0),
            Some(at) => (at - 1, at),
            None => (self.measurements.len().checked_sub(1)?, self.measurements.len() - 1),
        };
        let (before, after) = (self.measurements.get(before)?, self.measurements.get(after)?);
        let wide = after.rate - before.rate;
        let part = if wide > 0.0 { ((rate - before.rate) / wide).clamp(0.0, 1.0) } else { 0.0 };
        let between = |at: usize| before.ends[at] + part * (after.ends[at] - before.ends[at]);
        Some([between(0), between(1)])
    }
}
