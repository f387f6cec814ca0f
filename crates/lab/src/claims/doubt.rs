//! Why a value is not told, and why the best one may be another.

use super::ask::Ask;
use super::make::{Contender, NO_LOCAL, listed};
use crate::cells::gate::gate;
use crate::cells::{Cell, Cells, Reading};
use crate::results::Status;
use crate::units;

/// The first words of why a contender without a result has no value.
pub(super) const NOT_MEASURED: &str = "not measured";

impl Ask {
    /// Why the best value of a contender may be another one: what its other cells would say if
    /// their marks allowed it.
    pub(super) fn doubt(
        &self,
        cells: &Cells,
        of: &Contender<'_>,
        telling: &[&Cell],
        best: f64,
    ) -> String {
        let is_left_out = |cell: &&&Cell| !telling.iter().any(|told| std::ptr::eq(*told, **cell));
        let why = |cell: &&Cell| {
            let along = cell.value(&self.along).map(|value| units::setting(&self.along, value));
            let place = [along.unwrap_or_default(), self.place(cell)];
            let place = Some(listed(place)).filter(|place| !place.is_empty());
            let place = place.unwrap_or_else(|| "another cell".to_owned());
            if !cell.is_measured() {
                let is_failed = |of: &Status| !matches!(of, Status::Skipped { .. });
                let is_failed = self.metric.is_rate() && cell.missing.iter().any(is_failed);
                return is_failed.then(|| format!("{place} has no result"));
            }
            let value = self.metric.read(cells, cell).mean()?;
            let made_from = self.metric.made_from(cells, cell);
            let refused = gate(self.sentence(), &self.metric, &made_from).reason()?;
            let is_better = self.metric.is_better(value, best);
            is_better.then(|| format!("{place} may be better: {refused}"))
        };
        of.cells.iter().filter(is_left_out).find_map(why).unwrap_or_default()
    }

    /// Why these cells have no value.
    pub(super) fn why_missing(&self, cells: &Cells, of: &[&Cell]) -> String {
        let reason = of.iter().find_map(|cell| cell.missing.first()?.reason());
        let Some(cell) = of.iter().find(|cell| cell.is_measured()) else {
            return format!("{NOT_MEASURED}: {}", reason.unwrap_or("no result"));
        };
        let unknown = || format!("its {} is not known", self.metric.label);
        match (self.metric.read(cells, cell), self.metric.name.as_str()) {
            (Reading::Unresolved, _) => {
                let count = cell.latency().count();
                format!("too few requests for its {} ({count})", self.metric.label)
            }
            (Reading::Is(_), _) if !self.along.is_empty() && cell.value(&self.along).is_none() => {
                format!("it has no {}", units::axis(&self.along))
            }
            (Reading::Unknown, "latency-interference" | "throughput-sustained")
                if cells.alone(cell).is_none() =>
            {
                "it was not measured alone".to_owned()
            }
            (Reading::Unknown, "delta" | "share-of-local") if cells.local(cell).is_none() => {
                NO_LOCAL.to_owned()
            }
            (Reading::Unknown, "concurrency") if cells.local_at_depth_1(cell).is_none() => {
                "local was not measured at depth 1 beside it".to_owned()
            }
            _ => unknown(),
        }
    }

    /// Why these cells, some of which may have a value, have none that is told.
    pub(super) fn why_untold(&self, cells: &Cells, of: &[&Cell]) -> String {
        let measured = of.iter().filter(|cell| cell.is_measured());
        let refused = |cell: &&Cell| gate(self.sentence(), &self.metric, &[*cell]).refusal();
        measured
            .copied()
            .find_map(|cell| refused(&cell))
            .unwrap_or_else(|| self.why_missing(cells, of))
    }
}
