//! Why a value is not told, and why the best one may be another.

use super::Verdict;
use super::ask::Ask;
use super::make::{Contender, ContenderValue, Entry, NO_LOCAL, POINTS_NAMED, listed};
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
            let place = self.spot(cell);
            if !cell.is_measured() {
                let is_failed = self.metric.is_rate() && may_run(cell);
                return is_failed.then(|| format!("{place} has no result"));
            }
            let value = self.metric.read(cells, cell).mean()?;
            let made_from = self.metric.made_from(cells, cell);
            let refused = gate(self.sentence(), &self.metric, &made_from).reason()?;
            // What others took of it is not known, whatever its number.
            let is_better = cell.is_spoilt() || self.metric.is_better(value, best);
            is_better.then(|| format!("{place} may be better: {refused}"))
        };
        of.cells.iter().filter(is_left_out).find_map(why).unwrap_or_default()
    }

    /// The point of a cell and its value of the setting along which something holds.
    fn spot(&self, cell: &Cell) -> String {
        let along = cell.value(&self.along).map(|value| units::setting(&self.along, value));
        let place = listed([along.unwrap_or_default(), self.place(cell)]);
        if place.is_empty() { "another cell".to_owned() } else { place }
    }

    /// Why a verdict about highest values beside local may be another one: a contender that is
    /// worse was not measured where local was, or local that is no better may be so elsewhere.
    pub(super) fn unlike(
        &self,
        cells: &Cells,
        (of, own): (&Contender<'_>, &ContenderValue<'_>),
        local: &ContenderValue<'_>,
        verdict: Verdict,
    ) -> Option<String> {
        if self.is_typical || !self.metric.is_rate() {
            return None;
        }
        let doubt = |of: &ContenderValue<'_>| Some(of.doubt.clone()).filter(|of| !of.is_empty());
        let is_local_there = |cell: &&&Cell| {
            let local = cells.local(cell).filter(|_| !cell.is_measured());
            local.is_some_and(Cell::is_measured)
        };
        match verdict {
            Verdict::No => doubt(own).or_else(|| {
                let absent = of.cells.iter().find(is_local_there)?;
                Some(format!("{} has no result", self.spot(absent)))
            }),
            Verdict::Yes => doubt(local).map(|why| format!("local: {why}")),
            Verdict::CannotTell | Verdict::Reference | Verdict::Value => None,
        }
    }

    /// Whether the value of a cell is told.
    pub(super) fn is_told(&self, cells: &Cells, cell: &Cell) -> bool {
        let from = self.metric.made_from(cells, cell);
        cell.is_measured()
            && self.metric.read(cells, cell).estimate().is_some()
            && gate(self.sentence(), &self.metric, &from).refusal().is_none()
    }

    /// Over which of its points something is said of a contender; empty if it is over all of them.
    pub(super) fn cover(&self, of: &Contender<'_>, is_told: impl Fn(&Cell) -> bool) -> String {
        let mut points: Vec<(String, bool)> = Vec::new();
        for cell in &of.cells {
            let (place, is_told) = (self.spot(cell), is_told(cell));
            match points.iter_mut().find(|(known, _)| *known == place) {
                Some((_, told)) => *told |= is_told,
                None => points.push((place, is_told)),
            }
        }
        let missing: Vec<&str> =
            points.iter().filter(|(_, told)| !told).map(|(place, _)| place.as_str()).collect();
        let (told, all) = (points.len() - missing.len(), points.len());
        if missing.is_empty() {
            return String::new();
        }
        let named = missing.iter().take(POINTS_NAMED).copied().collect::<Vec<&str>>().join(" and ");
        let more = if missing.len() > POINTS_NAMED { " and others" } else { "" };
        format!("over {told} of {all} points, without {named}{more}")
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

/// Whether a cell has a result, or would have one if nothing had gone wrong.
fn may_run(cell: &Cell) -> bool {
    let is_failed = |of: &Status| !matches!(of, Status::Skipped { .. });
    cell.is_measured() || cell.missing.iter().any(is_failed)
}

/// Why one of these contenders that has no value may be the best; one that cannot run here is not.
pub(super) fn unknown_rival(entries: &[Entry<'_>]) -> Option<String> {
    let remote = entries.iter().filter(|(of, _)| !of.is_local);
    let mut possible = remote.filter(|(of, _)| of.cells.iter().any(|cell| may_run(cell)));
    possible.find_map(|(of, found)| {
        let why = found.as_ref().err()?;
        Some(format!("{} may be better: {why}", of.name))
    })
}
