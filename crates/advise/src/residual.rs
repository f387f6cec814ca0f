//! What a fitted network leaves of the cells that it was fitted to, and what a simpler law leaves.
//!
//! A network of a few parameters misses what it does not have, and where other programs make most
//! of a latency it knows little of it. So a prediction is the mean of two: that of the simulation,
//! and that of the law of a queue, 1/(1 - ρ); each times the middle of what it is off by in the
//! cells. Each cell, predicted from the others, says how much each of the two counts, and how far
//! both together may be off.

use crate::fit::{Cell, Fit};
use crate::network::Arrivals;
use crate::predict::{PARTS, Prediction};

/// Quantiles, and the mean behind them.
pub(crate) const KINDS: usize = PARTS.len() + 1;

/// So many cells have to know a kind before what is left of them says something.
const CELLS_MIN: usize = 3;

/// A law counts by this power of what it is off by, which is taken to be this at least (a natural
/// logarithm).
const POWER: i32 = -4;
const LEAST: f64 = 0.01;

/// The queue has so much to spare beyond the highest rate that was measured; its law says nothing
/// beyond this part of what it can do.
const SPARE: f64 = 1.02;
const FULL: f64 = 0.98;

/// Natural logarithms of measured by expected: of the simulation, and of the law of a queue.
type Logs = [f64; 2];

/// What is left of a cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Residual {
    /// None of a closed loop, whose cells count whatever cores they have.
    cores: Option<[usize; 2]>,
    /// What the law of a queue has there, or that of a closed loop.
    queue: f64,
    /// None of a kind for which the cell has too few requests.
    logs: [Option<Logs>; KINDS],
}

impl Fit {
    /// With what it leaves of these cells.
    pub(crate) fn with_residuals(mut self, cells: &[Cell]) -> Self {
        for cell in cells.iter().filter(|cell| cell.is_served()) {
            let cores = [cell.host_cores, cell.target_cores];
            let (arrivals, queue) = match cell.arrivals {
                Arrivals::Closed => (Arrivals::Closed, self.in_flight(cell.depth)),
                Arrivals::Poisson(_) => {
                    (Arrivals::Poisson(cell.iops), self.queue(cell.iops, cores))
                }
            };
            let simulated = self.uncorrected(arrivals, cell.depth, cores, 1).numbers();
            let cores = (arrivals != Arrivals::Closed).then_some(cores);
            let logs = std::array::from_fn(|kind| {
                let measured = match PARTS.get(kind) {
                    Some(part) => cell.quantile(*part),
                    None => Some(cell.mean_ns[1]),
                };
                let measured = measured?.max(1.0).ln();
                Some([measured - simulated[kind].max(1.0).ln(), measured - queue])
            });
            self.residuals.push(Residual { cores, queue, logs });
        }
        self
    }

    /// The law of a queue, as a natural logarithm of how many times its latency is that of one
    /// without others.
    pub(crate) fn queue(&self, rate: f64, cores: [usize; 2]) -> f64 {
        -(1.0 - (rate / (SPARE * self.most(cores))).min(FULL)).ln()
    }

    /// That of a closed loop: a latency without others, and one after the other of those under way.
    pub(crate) fn in_flight(&self, depth: usize) -> f64 {
        let most = self.measured.iter().map(|one| one.1).fold(1.0, f64::max);
        (self.alone_ns + (depth.max(1) - 1) as f64 * 1e9 / most).ln()
    }

    /// How many times longer a queue makes a latency than where random arrivals were measured with
    /// these cores: closed loops show little of it.
    pub(crate) fn beyond_measured(&self, queue: f64, cores: Option<[usize; 2]>) -> f64 {
        if cores.is_none() {
            return 1.0;
        }
        let known = self.residuals.iter().filter(|one| one.cores == cores).map(|one| one.queue);
        (queue - known.fold(0.0, f64::max)).max(0.0).exp()
    }

    /// What a prediction is to be multiplied by, as a natural logarithm, and the deviation of what
    /// remains, for each kind; none where fewer than three cells with these cores know it.
    pub(crate) fn correction(
        &self,
        simulated: &Prediction,
        queue: f64,
        cores: Option<[usize; 2]>,
    ) -> [Option<(f64, f64)>; KINDS] {
        let simulated = simulated.numbers();
        let of_cores = || self.residuals.iter().filter(|one| one.cores == cores);
        std::array::from_fn(|kind| {
            let known: Vec<Logs> = of_cores().filter_map(|one| one.logs[kind]).collect();
            if known.len() < CELLS_MIN {
                return None;
            }
            let expected = [0.0, queue - simulated[kind].max(1.0).ln()];
            let left = |law: usize| known.iter().map(move |logs| logs[law]);
            let errors = [0, 1].map(|law| from_the_others(&left(law).collect::<Vec<f64>>()));
            let count = known.len() as f64;
            let weight = |errors: &Vec<f64>| {
                let error = errors.iter().map(|error| error.abs()).sum::<f64>() / count;
                (error + LEAST).powi(POWER)
            };
            let weights = [weight(&errors[0]), weight(&errors[1])];
            let blend = |of: [f64; 2]| {
                (weights[0] * of[0] + weights[1] * of[1]) / (weights[0] + weights[1])
            };
            let squares = (0..known.len()).map(|at| blend([errors[0][at], errors[1][at]]).powi(2));
            let deviation = (squares.sum::<f64>() / (count - 1.0)).sqrt();
            let middles = [0, 1].map(|law| expected[law] + middle(left(law).collect()));
            Some((blend(middles), deviation))
        })
    }
}

/// How far each is off from the middle of the others.
fn from_the_others(all: &[f64]) -> Vec<f64> {
    let others = |at: usize| [&all[..at], &all[at + 1..]].concat();
    all.iter().enumerate().map(|(at, own)| own - middle(others(at))).collect()
}

fn middle(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    let count = all.len();
    f64::midpoint(all[(count - 1) / 2], all[count / 2])
}
