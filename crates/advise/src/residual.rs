//! What a fitted network leaves of the cells that it was fitted to.
//!
//! A network of a few parameters misses what it does not have. What is left of one rate is near
//! what is left of the next, so that a prediction between two cells is corrected by both; and each
//! cell, predicted from the others, says how far that may be off.

use crate::fit::{Cell, Fit};
use crate::network::Arrivals;
use crate::predict::PARTS;

/// Quantiles, and the mean behind them.
pub(crate) const KINDS: usize = PARTS.len() + 1;

/// That of a cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Residual {
    cores: [usize; 2],
    iops: f64,
    /// The natural logarithms of measured by simulated.
    logs: [f64; KINDS],
}

/// A correction, by natural logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Correction {
    pub(crate) logs: [f64; KINDS],
    /// The deviation of what remains.
    pub(crate) deviations: [f64; KINDS],
}

impl Fit {
    /// With what it leaves of these cells.
    pub(crate) fn with_residuals(mut self, cells: &[Cell]) -> Self {
        let is_open = |cell: &&Cell| cell.arrivals != Arrivals::Closed && cell.is_served();
        for cell in cells.iter().filter(is_open) {
            let cores = [cell.host_cores, cell.target_cores];
            let simulated = self.uncorrected(cell.iops, cell.depth, cores, 1);
            let of = |measured: Option<f64>, simulated: f64| {
                measured.map_or(0.0, |measured| (measured.max(1.0) / simulated.max(1.0)).ln())
            };
            let mut logs = [of(Some(cell.mean_ns[1]), simulated.mean_ns.value); KINDS];
            for (at, part) in PARTS.iter().enumerate() {
                logs[at] = of(cell.quantile(*part), simulated.quantiles_ns[at].value);
            }
            self.residuals.push(Residual { cores, iops: cell.iops, logs });
        }
        self.residuals.sort_by(|one, other| one.iops.total_cmp(&other.iops));
        self
    }

    /// The correction at a rate; none where fewer than three cells with these cores know one.
    pub(crate) fn correction(&self, rate: f64, cores: [usize; 2]) -> Option<Correction> {
        let known: Vec<&Residual> =
            self.residuals.iter().filter(|one| one.cores == cores).collect();
        let ends = (known.first()?.iops, known.last()?.iops);
        if known.len() < 3 {
            return None;
        }
        let is_between = ends.0 <= rate && rate <= ends.1;
        let mut squares = [0.0; KINDS];
        let mut count = 0.0;
        for (at, one) in known.iter().enumerate() {
            // A cell at an end is predicted from one side, and says how well that is done.
            if is_between && (at == 0 || at + 1 == known.len()) {
                continue;
            }
            let others: Vec<&Residual> = known
                .iter()
                .enumerate()
                .filter(|(place, _)| *place != at)
                .map(|(_, of)| *of)
                .collect();
            let expected = interpolated(&others, one.iops);
            count += 1.0;
            for (square, (own, expected)) in squares.iter_mut().zip(one.logs.iter().zip(expected)) {
                *square += (own - expected).powi(2);
            }
        }
        let deviations = squares.map(|square: f64| (square / f64::max(count, 1.0)).sqrt());
        Some(Correction { logs: interpolated(&known, rate), deviations })
    }
}

/// Between the two nearest, by the logarithm of the rate; that of the end beyond it.
fn interpolated(known: &[&Residual], rate: f64) -> [f64; KINDS] {
    let above = known.iter().position(|one| one.iops >= rate);
    let (low, high) = match above {
        Some(0) => (known.first(), known.first()),
        Some(above) => (known.get(above - 1), known.get(above)),
        None => (known.last(), known.last()),
    };
    let (Some(low), Some(high)) = (low, high) else { return [0.0; KINDS] };
    let apart = (high.iops / low.iops).ln();
    let at = if apart > 0.0 { (rate / low.iops).ln() / apart } else { 0.0 };
    let mut logs = low.logs;
    for (own, other) in logs.iter_mut().zip(high.logs) {
        *own += at * (other - *own);
    }
    logs
}
