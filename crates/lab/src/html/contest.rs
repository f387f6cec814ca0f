//! Who is best: transports, or settings of a knob, over the points that all of them have.

use super::units;
use crate::{
    cells::{Better, Cell, Cells, Metric, value_order},
    results::{Role, Value, key},
};

/// Within this of the best is as good as the best.
pub(super) const CLOSE: f64 = 0.05;

/// Settings that can compete, the first that varies does.
const CONTENDERS: [&str; 7] = [
    key::TRANSPORT,
    key::HOST_POLLING,
    key::TARGET_IDLE_POLL_US,
    key::PLACEMENT,
    key::MODERATION,
    key::SCHEDULER,
    key::DEVICE,
];

/// Settings that only a target has: they do not tell local points apart.
const OF_THE_TARGET: [&str; 4] =
    [key::TARGET_IDLE_POLL_US, key::PLACEMENT, key::MODERATION, key::TARGET_CORES];

/// Contenders, and the points that all of them have.
#[derive(Debug)]
pub(super) struct Contest<'a> {
    pub(super) cells: &'a Cells,
    /// The setting whose values compete.
    pub(super) key: String,
    pub(super) contenders: Vec<Value>,
    /// For each point a cell of each contender.
    pub(super) points: Vec<Vec<&'a Cell>>,
}

/// The contest of a study, if anything competes in it.
pub(super) fn contest(cells: &Cells, role: Role) -> Option<Contest<'_>> {
    let varied = cells.varied(role);
    CONTENDERS
        .iter()
        .filter(|key| varied.iter().any(|varied| varied == *key))
        .find_map(|key| among(cells, role, key, &varied))
}

fn among<'a>(
    cells: &'a Cells,
    role: Role,
    contender: &str,
    varied: &[String],
) -> Option<Contest<'a>> {
    let mut contenders: Vec<Value> = Vec::new();
    for cell in cells.measured(role) {
        if let Some(value) = cell.value(contender).filter(|value| !contenders.contains(value)) {
            contenders.push(value.clone());
        }
    }
    contenders.sort_by(|one, other| value_order(contender, one, other));
    if contenders.len() < 2 {
        return None;
    }
    let local = contender == key::TRANSPORT;
    let tells =
        |key: &&String| *key != contender && !(local && OF_THE_TARGET.contains(&key.as_str()));
    let place = |cell: &Cell| -> Vec<Option<Value>> {
        varied.iter().filter(tells).map(|key| cell.value(key).cloned()).collect()
    };
    // Each place, with the cell that each contender has there.
    type Point<'a> = (Vec<Option<Value>>, Vec<Option<&'a Cell>>);
    let mut points: Vec<Point<'_>> = Vec::new();
    for cell in cells.measured(role) {
        let found = contenders.iter().position(|value| Some(value) == cell.value(contender));
        let Some(index) = found else { continue };
        let place = place(cell);
        let known = points.iter().position(|(known, _)| *known == place).unwrap_or_else(|| {
            points.push((place, vec![None; contenders.len()]));
            points.len() - 1
        });
        if let Some(slot) = points.get_mut(known).and_then(|(_, cells)| cells.get_mut(index)) {
            slot.get_or_insert(cell);
        }
    }
    let points: Vec<Vec<&Cell>> = points
        .into_iter()
        .filter_map(|(_, cells)| cells.into_iter().collect::<Option<Vec<&Cell>>>())
        .collect();
    let key = contender.to_owned();
    (!points.is_empty()).then_some(Contest { cells, key, contenders, points })
}

/// How the points of a contender are made into one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The best of them.
    Peak,
    /// Their geometric mean.
    Typical,
}

/// How a contender stands in one discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Best,
    /// Within 5 % of the best.
    Close,
    Behind,
    /// Local beside several remote ones: what they are read against.
    Reference,
    /// No number.
    None,
}

/// A line of the tradeoff table.
#[derive(Clone, Debug)]
pub(super) struct Discipline {
    pub(super) name: &'static str,
    /// At how many of how many points the bars of the best and the second keep clear of each
    /// other.
    pub(super) apart: (usize, usize),
    /// A number in words and how it stands, for each contender.
    pub(super) entries: Vec<(String, Standing)>,
}

const DISCIPLINES: [(&str, &str, Over); 6] = [
    ("bandwidth, peak", "bandwidth", Over::Peak),
    ("IOPS, peak", "iops", Over::Peak),
    ("mean latency", "mean", Over::Typical),
    ("tail latency (p99)", "p99", Over::Typical),
    ("CPU for a request", "cpu-per-io", Over::Typical),
    ("concurrency, peak", "concurrency", Over::Peak),
];

impl Contest<'_> {
    /// The names of the contenders.
    pub(super) fn names(&self) -> Vec<String> {
        self.contenders.iter().map(|value| units::setting(&self.key, value)).collect()
    }

    /// Whether local is there as what the others are read against.
    pub(super) fn has_reference(&self) -> bool {
        self.contenders.len() > 2 && self.contenders.contains(&Value::from("local"))
    }

    /// One number for a contender over all points, if it has one at any point that all have.
    pub(super) fn value(&self, metric: &Metric, over: Over, contender: usize) -> Option<f64> {
        let values: Vec<f64> = self
            .points
            .iter()
            .filter_map(|point| {
                let read = |cell: &&Cell| metric.read(self.cells, cell).mean();
                let all: Option<Vec<f64>> = point.iter().map(read).collect();
                all?.get(contender).copied()
            })
            .filter(|value| value.is_finite() && *value > 0.0)
            .collect();
        if values.is_empty() {
            return None;
        }
        match (over, metric.better) {
            (Over::Peak, Better::More) => values.into_iter().reduce(f64::max),
            (Over::Peak, Better::Less) => values.into_iter().reduce(f64::min),
            (Over::Typical, _) => {
                let count = values.len() as f64;
                Some((values.iter().map(|value| value.ln()).sum::<f64>() / count).exp())
            }
        }
    }

    /// At how many points the repeats tell the best from the second.
    fn apart(
        &self,
        metric: &Metric,
        values: &[Option<f64>],
        is_reference: &dyn Fn(usize) -> bool,
    ) -> (usize, usize) {
        let mut order: Vec<(usize, f64)> = values
            .iter()
            .enumerate()
            .filter(|(index, _)| !is_reference(*index))
            .filter_map(|(index, value)| Some((index, (*value)?)))
            .collect();
        order.sort_by(|(_, one), (_, other)| match metric.better {
            Better::More => other.total_cmp(one),
            Better::Less => one.total_cmp(other),
        });
        let [(best, _), (second, _), ..] = order[..] else { return (0, 0) };
        let estimates = self.points.iter().filter_map(|point| {
            let read = |index: usize| metric.read(self.cells, point.get(index)?).estimate();
            Some((read(best)?, read(second)?))
        });
        estimates.fold((0, 0), |(apart, all), (best, second)| {
            (apart + usize::from(best.is_apart_from(&second)), all + 1)
        })
    }

    /// The tradeoff table: only what at least two contenders have a number for.
    pub(super) fn disciplines(&self) -> Vec<Discipline> {
        let reference = self.has_reference();
        let line = |(name, metric, over): &(&'static str, &str, Over)| {
            let metric = Metric::named(metric)?;
            let values: Vec<Option<f64>> =
                (0..self.contenders.len()).map(|index| self.value(&metric, *over, index)).collect();
            let is_reference =
                |index: usize| reference && self.contenders.get(index) == Some(&"local".into());
            let best = values
                .iter()
                .enumerate()
                .filter(|(index, _)| !is_reference(*index))
                .filter_map(|(_, value)| *value)
                .reduce(|best, value| if metric.is_better(value, best) { value } else { best })?;
            let entries: Vec<(String, Standing)> = values
                .iter()
                .enumerate()
                .map(|(index, value)| match value {
                    None => ("–".to_owned(), Standing::None),
                    Some(value) => {
                        let text = units::show(metric.unit, *value);
                        let standing = match metric.advantage(*value, best) {
                            _ if is_reference(index) => Standing::Reference,
                            1.0.. => Standing::Best,
                            advantage if advantage >= 1.0 - CLOSE => Standing::Close,
                            _ => Standing::Behind,
                        };
                        (text, standing)
                    }
                })
                .collect();
            let known = entries.iter().filter(|(_, standing)| *standing != Standing::None).count();
            let apart = self.apart(&metric, &values, &is_reference);
            (known >= 2).then_some(Discipline { name, apart, entries })
        };
        DISCIPLINES.iter().filter_map(line).collect()
    }
}
