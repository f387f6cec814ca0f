//! Compares alternatives (transports, or values of a setting) at the points that all of them have.

use super::units;
use crate::{
    cells::{Better, Cell, Cells, Metric, value_order},
    results::{Role, Value, key},
};

/// An alternative within this share of the best counts as close.
pub(super) const CLOSE: f64 = 0.05;

/// Settings whose values can be compared; the first that varies is.
const ALTERNATIVES: [&str; 7] = [
    key::TRANSPORT,
    key::HOST_POLLING,
    key::TARGET_IDLE_POLL_US,
    key::PLACEMENT,
    key::MODERATION,
    key::SCHEDULER,
    key::DEVICE,
];

/// Settings that only a target has: they do not distinguish local points.
const OF_THE_TARGET: [&str; 4] =
    [key::TARGET_IDLE_POLL_US, key::PLACEMENT, key::MODERATION, key::TARGET_CORES];

/// Alternatives, and the points that all of them have.
#[derive(Debug)]
pub(super) struct Tradeoff<'a> {
    pub(super) cells: &'a Cells,
    /// The setting whose values are compared.
    pub(super) key: String,
    pub(super) alternatives: Vec<Value>,
    /// The cell of each alternative, for each point.
    pub(super) points: Vec<Vec<&'a Cell>>,
}

/// The comparison of a study, if it has alternatives.
pub(super) fn tradeoff(cells: &Cells, role: Role) -> Option<Tradeoff<'_>> {
    let varied = cells.varied(role);
    ALTERNATIVES
        .iter()
        .filter(|key| varied.iter().any(|varied| varied == *key))
        .find_map(|key| among(cells, role, key, &varied))
}

fn among<'a>(
    cells: &'a Cells,
    role: Role,
    alternative: &str,
    varied: &[String],
) -> Option<Tradeoff<'a>> {
    let mut alternatives: Vec<Value> = Vec::new();
    for cell in cells.measured(role) {
        if let Some(value) = cell.value(alternative).filter(|value| !alternatives.contains(value)) {
            alternatives.push(value.clone());
        }
    }
    alternatives.sort_by(|one, other| value_order(alternative, one, other));
    if alternatives.len() < 2 {
        return None;
    }
    let local = alternative == key::TRANSPORT;
    let tells =
        |key: &&String| *key != alternative && !(local && OF_THE_TARGET.contains(&key.as_str()));
    let place = |cell: &Cell| -> Vec<Option<Value>> {
        varied.iter().filter(tells).map(|key| cell.value(key).cloned()).collect()
    };
    // Each point, with the cell of each alternative.
    type Point<'a> = (Vec<Option<Value>>, Vec<Option<&'a Cell>>);
    let mut points: Vec<Point<'_>> = Vec::new();
    for cell in cells.measured(role) {
        let found = alternatives.iter().position(|value| Some(value) == cell.value(alternative));
        let Some(index) = found else { continue };
        let place = place(cell);
        let known = points.iter().position(|(known, _)| *known == place).unwrap_or_else(|| {
            points.push((place, vec![None; alternatives.len()]));
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
    let key = alternative.to_owned();
    (!points.is_empty()).then_some(Tradeoff { cells, key, alternatives, points })
}

/// How the values of all points are reduced to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The best of them.
    Peak,
    /// Their geometric mean.
    Typical,
}

/// How an alternative compares by one criterion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Best,
    /// Within 5 % of the best.
    Close,
    Behind,
    /// Local beside several remote ones: the reference.
    Reference,
    /// It has no value.
    None,
}

/// A line of the tradeoff table.
#[derive(Clone, Debug)]
pub(super) struct Criterion {
    pub(super) name: &'static str,
    /// Number of points at which the error bars of the best and the second do not overlap, and
    /// number of points.
    pub(super) apart: (usize, usize),
    /// A value as text and its standing, for each alternative.
    pub(super) entries: Vec<(String, Standing)>,
}

const CRITERIA: [(&str, &str, Over); 6] = [
    ("bandwidth, peak", "bandwidth", Over::Peak),
    ("IOPS, peak", "iops", Over::Peak),
    ("mean latency", "mean", Over::Typical),
    ("tail latency (p99)", "p99", Over::Typical),
    ("CPU time per request", "cpu-per-io", Over::Typical),
    ("concurrency, peak", "concurrency", Over::Peak),
];

impl Tradeoff<'_> {
    /// The names of the alternatives.
    pub(super) fn names(&self) -> Vec<String> {
        self.alternatives.iter().map(|value| units::setting(&self.key, value)).collect()
    }

    /// Whether local is the reference of several others.
    pub(super) fn has_reference(&self) -> bool {
        self.alternatives.len() > 2 && self.alternatives.contains(&Value::from("local"))
    }

    /// One value of an alternative over all points, if it has any.
    pub(super) fn value(&self, metric: &Metric, over: Over, alternative: usize) -> Option<f64> {
        let values: Vec<f64> = self
            .points
            .iter()
            .filter_map(|point| {
                let read = |cell: &&Cell| metric.read(self.cells, cell).mean();
                let all: Option<Vec<f64>> = point.iter().map(read).collect();
                all?.get(alternative).copied()
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

    /// Number of points at which the error bars of the best and the second do not overlap.
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

    /// The tradeoff table: criteria for which at least two alternatives have a value.
    pub(super) fn criteria(&self) -> Vec<Criterion> {
        let reference = self.has_reference();
        let line = |(name, metric, over): &(&'static str, &str, Over)| {
            let metric = Metric::named(metric)?;
            let values: Vec<Option<f64>> = (0..self.alternatives.len())
                .map(|index| self.value(&metric, *over, index))
                .collect();
            let is_reference =
                |index: usize| reference && self.alternatives.get(index) == Some(&"local".into());
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
            (known >= 2).then_some(Criterion { name, apart, entries })
        };
        CRITERIA.iter().filter_map(line).collect()
    }
}
