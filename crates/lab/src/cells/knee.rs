//! The knee of latency against load.

use super::{Cell, Cells, Metric};
use crate::results::number;

/// Up to the knee p99 is at most so many times the least p99 of the curve.
const LATENCY_TIMES: f64 = 2.0;

/// Up to the knee at least this share of the offered rate is served.
const SERVED: f64 = 0.98;

/// Where a curve of latency over the offered load bends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knee<'a> {
    /// The highest load before the bend.
    pub(crate) cell: &'a Cell,
    /// Whether no higher load was measured: the bend is beyond it.
    pub(crate) is_last: bool,
}

/// The knee of a curve: from the load with the least p99 upwards, the last one at which p99 is
/// within twice that least value and 98 % of the offered rate are served. A load below that of
/// the least p99 does not count: idle processors make it slower, not a queue.
pub(crate) fn knee<'a>(cells: &Cells, curve: &[&'a Cell]) -> Option<Knee<'a>> {
    let p99 = Metric::named("p99")?;
    let offered =
        |cell: &Cell| mean(cell, |repeat| repeat.values.get(number::OFFERED_IOPS).copied());
    let mut points: Vec<(f64, f64, &Cell)> = curve
        .iter()
        .filter_map(|cell| Some((offered(cell)?, p99.read(cells, cell).mean()?, *cell)))
        .collect();
    points.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
    if points.len() < 3 {
        return None;
    }
    let by_latency = |(_, one): &(usize, f64), (_, other): &(usize, f64)| one.total_cmp(other);
    let (from, least) = points.iter().map(|(_, p99, _)| *p99).enumerate().min_by(by_latency)?;
    let good = |(offered, p99, cell): &(f64, f64, &Cell)| {
        let served = mean(cell, |repeat| Some(repeat.iops)).unwrap_or(0.0);
        *p99 <= LATENCY_TIMES * least && served >= SERVED * offered
    };
    let rising = points.get(from..)?;
    let count = rising.iter().take_while(|point| good(point)).count();
    let (.., cell) = rising.get(count.checked_sub(1)?)?;
    Some(Knee { cell, is_last: count == rising.len() })
}

fn mean(cell: &Cell, value: impl Fn(&super::Repeat) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = cell.repeats.iter().filter_map(value).collect();
    super::Estimate::of(&values).map(|estimate| estimate.mean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        results::{Environment, Role, key},
        testing::record,
    };

    /// Load in percent of 100 K IOPS, share served, p99 in µs.
    fn knee_of(points: &[(u64, f64, u64)]) -> Option<(u64, bool)> {
        let records: Vec<_> = points
            .iter()
            .map(|(load, served, us)| {
                let offered = *load as f64 * 1e3;
                let settings = [(key::LOAD_PERCENT, (*load).into())];
                let mut record = record(Role::Plain, &settings, offered * served, *us);
                record.values.insert(number::OFFERED_IOPS.to_owned(), offered);
                record
            })
            .collect();
        let cells = Cells::of(&records, &Environment::default());
        let curve: Vec<&Cell> = cells.cells.iter().collect();
        let found = knee(&cells, &curve)?;
        Some((found.cell.value(key::LOAD_PERCENT)?.as_integer()?, found.is_last))
    }

    #[test]
    fn the_knee_is_the_last_load_before_latency_doubles_or_requests_are_left_over() {
        let rising = [(10, 1.0, 20), (50, 1.0, 22), (70, 1.0, 39), (80, 1.0, 45), (90, 1.0, 99)];
        assert_eq!(knee_of(&rising), Some((70, false)));
        let short = [(10, 1.0, 20), (50, 1.0, 22), (70, 0.97, 23), (80, 1.0, 23)];
        assert_eq!(knee_of(&short), Some((50, false)), "what is left over waits for ever");
        let flat = [(10, 1.0, 20), (50, 1.0, 22), (95, 1.0, 30)];
        assert_eq!(knee_of(&flat), Some((95, true)));
    }

    #[test]
    fn slow_wake_ups_at_low_load_are_no_knee() {
        let idle = [(10, 1.0, 90), (30, 1.0, 60), (50, 1.0, 20), (70, 1.0, 30), (90, 1.0, 200)];
        assert_eq!(knee_of(&idle), Some((70, false)));
        assert_eq!(knee_of(&idle[..2]), None, "two points are no curve");
    }
}
