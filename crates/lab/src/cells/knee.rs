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
    /// This load or the next one, if its p99 cannot be told from twice the least one, and what that
    /// would take.
    unsure: Option<(&'a Cell, String)>,
}

impl<'a> Knee<'a> {
    /// The cells that say where it is.
    pub(crate) fn made_from(&self) -> Vec<&'a Cell> {
        std::iter::once(self.cell).chain(self.ends.iter().copied()).collect()
    }

    /// What follows a sentence about it: whether it is within the bound, or the next load beyond
    /// it, is not known.
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
    let load = |(offered, p99, cell): &(f64, Estimate, &Cell)| {
        let iops = mean(cell, |repeat| Some(repeat.iops)).unwrap_or(0.0);
        Load { p99: p99.mean, is_served: is_served(*offered, iops) }
    };
    let loads: Vec<Load> = points.iter().map(load).collect();
    let bend = bend(&loads, |least| LATENCY_TIMES * least)?;
    let (.., cell) = points[bend.last];
    let beyond = points.get(bend.last + 1);
    let is_served = loads.get(bend.last + 1).is_some_and(|load| load.is_served);
    // The least is within twice itself.
    let own = points.get(bend.last).filter(|_| bend.last > bend.from);
    let mut beside = own.into_iter().chain(beyond.filter(|_| is_served));
    let unsure = beside.find_map(|(_, p99, cell)| {
        Some((*cell, distinguish(p99, &Estimate::exact(bend.bound)).refusal()?))
    });
    let ends = points.get(bend.from).into_iter().chain(beyond).map(|(.., cell)| *cell).collect();
    Some(Knee { cell, is_last: beyond.is_none(), is_first: bend.last == 0, ends, unsure })
}

/// What is at a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) p99: f64,
    /// Whether as much is served as arrives.
    pub(crate) is_served: bool,
}

/// Where rising loads bend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bend {
    /// Where p99 is least.
    from: usize,
    /// The last one from there on up to which all are served within the bound.
    pub(crate) last: usize,
    bound: f64,
}

/// Where loads in the order of their rates bend, by a bound that may depend on the least p99 of
/// those that are served; none where none of them is within it.
pub(crate) fn bend(rising: &[Load], bound: impl Fn(f64) -> f64) -> Option<Bend> {
    let served = rising.iter().enumerate().filter(|(_, load)| load.is_served);
    let (from, least) = served.min_by(|(_, one), (_, other)| one.p99.total_cmp(&other.p99))?;
    let bound = bound(least.p99);
    let count = rising[from..].iter().take_while(|load| load.is_within(bound)).count();
    Some(Bend { from, last: (from + count).checked_sub(1).filter(|_| count > 0)?, bound })
}

impl Load {
    /// Whether it is served within a bound.
    pub(crate) fn is_within(self, bound: f64) -> bool {
        self.is_served && self.p99 <= bound
    }
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
    fn a_load_that_cannot_be_told_from_the_bound_is_named() {
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
        // The load itself, and not that beyond it.
        let within = doubt([33, 38, 43]);
        assert!(within.starts_with(part) && within.ends_with(" repeats would be needed"));
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
