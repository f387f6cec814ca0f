//! What is said of a rate from measured cells alone, where no model explains them.
//!
//! A latency does not fall as the rate rises. So the means of the repeats, by their logarithms, are
//! made to rise with the rate (pool adjacent violators), and what is between two cells is between
//! their intervals. An interval is that of another run, by what all repeats are apart.

use weft_advise::fit::Cell as FittedCell;
use weft_advise::predict::{CLOSEST, NORMAL, PARTS};
use weft_advise::{Arrivals, Interval, Prediction, Quantiles};

use super::measured::fitted_cell;
use crate::cells::{Cell, Repeat};
use crate::units;

/// Student's t that leaves 5 % on either side, by degrees of freedom from 1, and beyond.
const T_90: [f64; 10] = [6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812];

/// The quantiles, and the mean behind them.
const KINDS: usize = PARTS.len() + 1;

/// A rate that was measured, by logarithms.
struct Point {
    rate: f64,
    /// Of each repeat.
    repeats: Vec<f64>,
    /// How far below them a quiet machine may be.
    slack: f64,
}

/// What becomes of a rate at a depth.
///
/// # Errors
/// It is not between measured rates of that depth, or these have no repeats.
pub(super) fn at(cells: &[Cell], rate: f64, depth: usize) -> Result<Prediction, String> {
    let is_open = |(_, fitted): &(&Cell, FittedCell)| {
        fitted.arrivals != Arrivals::Closed && fitted.depth <= depth
    };
    let all = cells.iter().filter_map(|cell| Some((cell, fitted_cell(cell)?)));
    let (served, beyond): (Vec<_>, Vec<_>) = all.filter(is_open).partition(|one| one.1.is_served());
    let arrived = |(_, fitted): &(&Cell, FittedCell)| match fitted.arrivals {
        Arrivals::Poisson(rate) => rate,
        Arrivals::Closed => f64::INFINITY,
    };
    let knee = beyond.iter().filter(|one| arrived(one) <= rate).map(|one| one.1.iops);
    let knee = knee.reduce(f64::max);
    let rates = || served.iter().map(arrived);
    let (least, most) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    if !(least <= rate && rate <= most) && knee.is_none() {
        return Err(format!(
            "the model does not explain its cells, and only {} to {} IOPS were measured: measure \
             this rate",
            units::count(least.min(most)),
            units::count(most)
        ));
    }
    let found = (0..KINDS).map(|kind| {
        let point = |one: &(&Cell, FittedCell)| point(one.0, kind, arrived(one).ln());
        between(served.iter().map(point).collect::<Option<Vec<Point>>>()?, rate.min(most).ln())
    });
    let found = found.collect::<Option<Vec<Interval>>>();
    let Some(&[p50, p99, p999, mean_ns]) = found.as_deref() else {
        return Err("the model does not explain its cells, and these have no repeats or too few \
                    requests: measure them twice, and longer"
            .to_owned());
    };
    let quantiles_ns = Quantiles::new([p50, p99, p999]);
    let (iops, is_beyond_knee) = (knee.unwrap_or(rate), knee.is_some());
    let (is_tail_known, busy) = (true, [0.0; 2]);
    Ok(Prediction { iops, is_beyond_knee, mean_ns, quantiles_ns, is_tail_known, busy })
}

/// A cell's repeats; none where one does not resolve it.
fn point(cell: &Cell, kind: usize, rate: f64) -> Option<Point> {
    let part = PARTS.get(kind);
    let ln = |repeat: &Repeat| {
        let ns = match part {
            Some(part) => repeat.latency.percentile_ns(100.0 * part)? as f64,
            None => repeat.latency.mean_ns(),
        };
        Some(ns.max(1.0).ln())
    };
    let repeats = cell.repeats.iter().map(ln).collect::<Option<Vec<f64>>>()?;
    let name = part.map_or_else(|| "mean".to_owned(), |part| format!("p{}", 100.0 * part));
    Some(Point { rate, repeats, slack: cell.slack(&name)[0] })
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

/// What is expected at a rate between these; none without a repeat.
fn between(mut points: Vec<Point>, rate: f64) -> Option<Interval> {
    points.sort_by(|one, other| one.rate.total_cmp(&other.rate));
    let last = points.len().checked_sub(1)?;
    // Neighbours that fall are one.
    let mut pools: Vec<(f64, usize)> = Vec::new();
    let mut members: Vec<usize> = Vec::new();
    for point in &points {
        pools.push((mean(&point.repeats), point.repeats.len()));
        members.push(1);
        while let [.., (low, fewer), (high, more)] = pools[..]
            && low > high
        {
            let count = fewer + more;
            let joined = (low * fewer as f64 + high * more as f64) / count as f64;
            pools.truncate(pools.len() - 2);
            pools.push((joined, count));
            let joined = members.pop()?;
            *members.last_mut()? += joined;
        }
    }
    let values: Vec<f64> = pools
        .iter()
        .zip(&members)
        .flat_map(|((value, _), count)| std::iter::repeat_n(*value, *count))
        .collect();
    let all: usize = points.iter().map(|point| point.repeats.len()).sum();
    // Neighbours that fall are no repeats: what they differ by is not what a run differs by.
    let free = all.checked_sub(pools.len()).filter(|_| all > points.len())?;
    let apart = |(point, value): (&Point, &f64)| -> f64 {
        point.repeats.iter().map(|one| (one - value).powi(2)).sum()
    };
    let square: f64 = points.iter().zip(&values).map(apart).sum::<f64>() / free as f64;
    let t = T_90.get(free - 1).copied().unwrap_or(NORMAL + NORMAL / free as f64);
    let half = |point: &Point| {
        let count = point.repeats.len() as f64;
        (t * (square * (1.0 + 1.0 / count)).sqrt()).max(NORMAL * CLOSEST)
    };
    let above = points.iter().position(|point| point.rate >= rate).unwrap_or(last);
    let below = if points[above].rate > rate { above.checked_sub(1)? } else { above };
    let (low, high) = (&points[below], &points[above]);
    let at = (rate - low.rate) / (high.rate - low.rate).max(f64::MIN_POSITIVE);
    let value = values[below] + at.clamp(0.0, 1.0) * (values[above] - values[below]);
    Some(Interval {
        value: value.exp(),
        low: (values[below] - half(low) - low.slack).exp(),
        high: (values[above] + half(high)).exp(),
    })
}

#[cfg(test)]
mod tests;
