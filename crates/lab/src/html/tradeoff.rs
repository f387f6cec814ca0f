//! Compares alternatives (transports, or values of a setting) at the points that all of them have.

use super::units;
use crate::{
    cells::{
        Cell, Cells, Estimate, Metric,
        gate::{Gate, Sentence, Sifted, compare, gate},
        value_order,
    },
    results::{Role, Value, key},
};

/// An alternative within this share of the best counts as close.
pub(super) const CLOSE: f64 = 0.05;

/// Settings whose values can be compared; the first that varies is.
const ALTERNATIVES: [&str; 8] = [
    key::TRANSPORT,
    key::TARGET_SOFTWARE,
    key::HOST_SOFTWARE,
    key::HOST_POLLING,
    key::TARGET_IDLE_POLL_US,
    key::PLACEMENT,
    key::TLS,
    key::DEVICE,
];

/// Settings that only a target has: they do not distinguish local points.
const OF_THE_TARGET: [&str; 6] = [
    key::TARGET_SOFTWARE,
    key::TARGET_IDLE_POLL_US,
    key::TARGET_EXPRESS,
    key::PLACEMENT,
    key::TARGET_CORES,
    key::TLS,
];

/// Alternatives, and the points that all of them have.
#[derive(Debug)]
pub(super) struct Tradeoff<'a> {
    pub(super) cells: &'a Cells,
    /// The setting whose values are compared.
    pub(super) key: String,
    pub(super) alternatives: Vec<Value>,
    /// The cell of each alternative, for each point.
    pub(super) points: Vec<Point<'a>>,
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
    type Place<'a> = (Vec<Option<Value>>, Vec<Option<&'a Cell>>);
    let mut points: Vec<Place<'_>> = Vec::new();
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
    let points: Vec<Point<'_>> = points
        .into_iter()
        .filter_map(|(_, cells)| cells.into_iter().collect::<Option<Point<'_>>>())
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
    /// Within 5 % of the best, or not distinguishable from it.
    Close,
    Behind,
    /// The marks of its cells allow no comparison.
    Untold,
    /// Local beside several remote ones: the reference.
    Reference,
    /// It has no value.
    None,
}

/// A line of the tradeoff table.
#[derive(Clone, Debug)]
pub(super) struct Criterion {
    pub(super) name: &'static str,
    /// A value as text and its standing, for each alternative.
    pub(super) entries: Vec<(String, Standing)>,
    /// The marks of its points, as [`Sifted::named`].
    pub(super) named: String,
    /// What is said of points that allow no comparison.
    pub(super) refused: Option<String>,
    /// What is said of alternatives that cannot be told from the best.
    pub(super) alike: Option<String>,
}

/// The cells of each alternative at one point.
type Point<'a> = Vec<&'a Cell>;

const CRITERIA: [(&str, &str, Over); 6] = [
    ("bandwidth, peak", "bandwidth", Over::Peak),
    ("IOPS, peak", "iops", Over::Peak),
    ("mean latency", "mean", Over::Typical),
    ("tail latency (p99)", "p99", Over::Typical),
    ("cost (cores for a million IOPS)", "cores-per-miops", Over::Typical),
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

    /// The points whose cells allow a comparison by a metric; those of the reference always do.
    fn sifted(&self, metric: &Metric) -> Sifted<&Point<'_>> {
        Sifted::of(self.points.iter().map(|point| {
            let compared = point.iter().enumerate().filter(|(index, _)| !self.is_reference(*index));
            let compared: Vec<&Cell> =
                compared.flat_map(|(_, cell)| metric.made_from(self.cells, cell)).collect();
            (gate(Sentence::Comparison, metric, &compared), point)
        }))
    }

    fn is_reference(&self, alternative: usize) -> bool {
        self.has_reference() && self.alternatives.get(alternative) == Some(&"local".into())
    }

    /// One value of an alternative over these points, if it has any.
    pub(super) fn value<'p>(
        &self,
        (metric, over): (&Metric, Over),
        alternative: usize,
        points: impl Iterator<Item = &'p Point<'p>>,
    ) -> Option<Estimate> {
        let values: Vec<Estimate> = points
            .filter_map(|point| {
                let read = |cell: &&Cell| metric.read(self.cells, cell).estimate();
                let all: Option<Vec<Estimate>> = point.iter().map(read).collect();
                all?.get(alternative).copied()
            })
            .filter(|value| value.mean.is_finite() && value.mean > 0.0)
            .collect();
        let better = |best: Estimate, value: Estimate| {
            if metric.is_better(value.mean, best.mean) { value } else { best }
        };
        match over {
            Over::Peak => values.into_iter().reduce(better),
            Over::Typical => geometric_mean(&values),
        }
    }

    /// The tradeoff table: criteria for which at least two alternatives have a value.
    pub(super) fn criteria(&self) -> Vec<Criterion> {
        CRITERIA.iter().filter_map(|line| self.criterion(line)).collect()
    }

    fn criterion(&self, line: &(&'static str, &str, Over)) -> Option<Criterion> {
        let (name, metric, over) = line;
        let metric = Metric::named(metric)?;
        let sifted = self.sifted(&metric);
        let told = !sifted.allowed.is_empty();
        let value = |index: usize| match told {
            true => self.value((&metric, *over), index, sifted.allowed.iter().copied()),
            false => self.value((&metric, *over), index, self.points.iter()),
        };
        let values: Vec<Option<Estimate>> = (0..self.alternatives.len()).map(value).collect();
        if values.iter().flatten().count() < 2 {
            return None;
        }
        let compared = values.iter().enumerate().filter(|(index, _)| !self.is_reference(*index));
        let better = |best: Estimate, value: Estimate| {
            if metric.is_better(value.mean, best.mean) { value } else { best }
        };
        let best = compared.filter_map(|(_, value)| *value).reduce(better)?;
        let mut alike: Vec<Gate> = Vec::new();
        let mut standing = |index: usize, value: &Estimate| {
            let advantage = metric.advantage(value.mean, best.mean);
            match (self.is_reference(index), told) {
                (true, _) => Standing::Reference,
                (_, false) => Standing::Untold,
                _ if advantage >= 1.0 => Standing::Best,
                _ => match compare(Sentence::Comparison, &metric, &[], value, &best) {
                    Gate::Allowed { .. } if advantage < 1.0 - CLOSE => Standing::Behind,
                    Gate::Allowed { .. } => Standing::Close,
                    refused => {
                        alike.push(refused);
                        Standing::Close
                    }
                },
            }
        };
        let mut entries = Vec::new();
        for (index, value) in values.iter().enumerate() {
            entries.push(match value {
                None => ("–".to_owned(), Standing::None),
                Some(value) => (units::show(metric.unit, value.mean), standing(index, value)),
            });
        }
        let alike = Sifted::of(alike.into_iter().map(|gate| (gate, ()))).refusal();
        Some(Criterion { name, entries, named: sifted.named(), refused: sifted.refusal(), alike })
    }
}

/// The geometric mean; its deviation is that of independent repeats of each value.
fn geometric_mean(values: &[Estimate]) -> Option<Estimate> {
    let count = values.len() as f64;
    let repeats = values.iter().map(|value| value.count).min()?;
    let mean = (values.iter().map(|value| value.mean.ln()).sum::<f64>() / count).exp();
    let squares: Option<f64> =
        values.iter().map(|value| Some((value.deviation()? / value.mean).powi(2))).sum();
    let relative = squares.map(|squares| squares.sqrt() / count);
    Some(Estimate::with_deviation(mean, relative, repeats))
}
