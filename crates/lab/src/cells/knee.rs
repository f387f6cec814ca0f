//! The knee of latency against load.

use weft_advise::predict::is_served;

use super::gate::distinguish;
use super::{Cell, Cells, Estimate, Metric, Scale};
use crate::results::{key, number};

/// Up to the knee p99 is at most so many times the least p99 of the curve.
const LATENCY_TIMES: f64 = 2.0;

/// What an offered load is a share of, if that may not be called a capacity.
pub(crate) const MOST_REACHED: &str = "the most that was reached";

/// Where a curve of latency over the offered load bends.
#[derive(Clone, Debug)]
pub(crate) struct Knee<'a> {
    /// The highest load before the bend.
    pub(crate) cell: &'a Cell,
    /// Whether no higher load was measured: the bend is beyond it.
    pub(crate) is_last: bool,
    /// Whether no lower load was measured, and the next one is beyond the bend.
    pub(crate) is_first: bool,
    /// The load with the least p99, and the one beyond the bend.
    ends: Vec<&'a Cell>,
    /// The next load, if its p99 cannot be told from twice the least one, and what that would take.
    unsure: Option<(&'a Cell, String)>,
}

impl<'a> Knee<'a> {
    /// The cells that say where it is.
    pub(crate) fn made_from(&self) -> Vec<&'a Cell> {
        std::iter::once(self.cell).chain(self.ends.iter().copied()).collect()
    }

    /// What follows a sentence about it: whether the next load is beyond it is not known.
    pub(crate) fn doubt(&self) -> String {
        let Some((cell, why)) = &self.unsure else { return String::new() };
        let load = cell.number(key::LOAD_PERCENT).unwrap_or_default();
        format!("; {load:.0} % beside that: {why}")
    }
}

/// The knee of a curve: from the load with the least p99 of those that are served upwards, the last
/// one at which p99 is within twice that least value and 98 % of the offered rate are served. What
/// is below the least p99 does not count: idle processors make it slower, not a queue.
pub(crate) fn knee<'a>(cells: &Cells, curve: &[&'a Cell]) -> Option<Knee<'a>> {
    let p99 = Metric::named("p99")?;
    let offered =
        |cell: &Cell| mean(cell, |repeat| repeat.values.get(number::OFFERED_IOPS).copied());
    let mut points: Vec<(f64, Estimate, &Cell)> = curve
        .iter()
        .filter_map(|cell| Some((offered(cell)?, p99.read(cells, cell).estimate()?, *cell)))
        .collect();
    points.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
    if points.len() < 3 {
        return None;
    }
    let is_within = |(offered, _, cell): &(f64, Estimate, &Cell)| {
        is_served(*offered, mean(cell, |repeat| Some(repeat.iops)).unwrap_or(0.0))
    };
    let by_latency = |(_, one): &(usize, f64), (_, other): &(usize, f64)| one.total_cmp(other);
    let served = points.iter().enumerate().filter(|(_, point)| is_within(point));
    let (from, least) = served.map(|(at, (_, p99, _))| (at, p99.mean)).min_by(by_latency)?;
    let bound = LATENCY_TIMES * least;
    let good = |point: &(f64, Estimate, &Cell)| point.1.mean <= bound && is_within(point);
    let rising = points.get(from..)?;
    let count = rising.iter().take_while(|point| good(point)).count();
    let (.., cell) = rising.get(count.checked_sub(1)?)?;
    let beyond = rising.get(count);
    let unsure = beyond.filter(|point| is_within(point)).and_then(|(_, p99, cell)| {
        Some((*cell, distinguish(p99, &Estimate::exact(bound)).refusal()?))
    });
    let ends = rising.first().into_iter().chain(beyond).map(|(.., cell)| *cell).collect();
    let (is_last, is_first) = (count == rising.len(), from + count == 1);
    Some(Knee { cell, is_last, is_first, ends, unsure })
}

fn mean(cell: &Cell, value: impl Fn(&super::Repeat) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = cell.repeats.iter().filter_map(value).collect();
    Estimate::of(&values, Scale::Plain).map(|estimate| estimate.mean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Environment, Role};
    use crate::testing::record;

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
    fn a_load_beyond_that_cannot_be_told_from_the_bound_is_named() {
        let of = |load: u64, repeats: [u64; 3]| {
            repeats.into_iter().zip(1u32..).map(move |(us, repeat)| {
                let settings = [(key::LOAD_PERCENT, load.into())];
                let mut record = record(Role::Plain, &settings, load as f64 * 1e3, us);
                record.values.insert(number::OFFERED_IOPS.to_owned(), load as f64 * 1e3);
                record.repeat = repeat;
                record
            })
        };
        let low = of(10, [20, 20, 21]).chain(of(50, [22, 22, 23]));
        let doubt = |beyond| {
            let records: Vec<_> = low.clone().chain(of(70, beyond)).collect();
            let cells = Cells::of(&records, &Environment::default());
            let curve: Vec<&Cell> = cells.cells.iter().collect();
            knee(&cells, &curve).expect("a knee").doubt()
        };
        let near = doubt([38, 45, 52]);
        let part = "; 70 % beside that: not distinguishable here: about ";
        assert!(near.starts_with(part) && near.ends_with(" repeats would be needed"), "{near}");
        assert_eq!(doubt([80, 81, 82]), "");
    }

    #[test]
    fn a_load_that_is_not_served_has_no_least_latency() {
        let least_unserved = [(10, 1.0, 30), (45, 1.0, 32), (75, 0.9, 20), (95, 0.9, 21)];
        assert_eq!(knee_of(&least_unserved), Some((45, false)));
        assert_eq!(knee_of(&[(10, 0.9, 20), (45, 0.9, 20), (75, 0.9, 20)]), None);
    }

    #[test]
    fn slow_wake_ups_at_low_load_are_no_knee() {
        let idle = [(10, 1.0, 90), (30, 1.0, 60), (50, 1.0, 20), (70, 1.0, 30), (90, 1.0, 200)];
        assert_eq!(knee_of(&idle), Some((70, false)));
        assert_eq!(knee_of(&idle[..2]), None, "two points are no curve");
    }
}
