//! What the measured cells of a way say of a rate.

use weft_advise::fit::{Cell as FittedCell, Fit};
use weft_advise::network::Interruptions;
use weft_advise::{Network, Prediction, Refusal};

use super::evidence::Evidence;
use super::isotonic;
use super::kind::Kind;
use super::measured::{fitted_cell, mean_iops, processors};
use crate::cells::Cell;
use crate::results::Mark;
use crate::units;

/// Marks with which a cell says nothing of a way.
pub(super) const SPOILT: [Mark; 4] =
    [Mark::BusyMachine, Mark::AboveFloor, Mark::SharedCores, Mark::BackgroundShort];

/// A mark with which a cell is left out: its rate is not that of what was asked for.
pub(super) const LEFT_OUT: Mark = Mark::GeneratorFull;

/// What an objective is about, and so many cells have to know it.
const P99: f64 = 0.99;
const CELLS_MIN: usize = 3;

/// How many times the lowest rate that was measured a rate is below it of which nothing is said.
const BELOW: f64 = 100.0;

/// Of each prediction, so that the same results give the same advice.
pub(super) const SEED: u64 = 1;

/// What the cells of a way say of a kind of requests that was measured.
#[derive(Clone, Debug)]
struct Model {
    fit: Fit,
    evidence: Evidence,
    /// Repeats that others' programs spoilt, and all.
    left_out: [usize; 2],
    cells: Vec<Cell>,
    cores: [usize; 2],
    deepest: usize,
}

/// What is said of a rate.
#[derive(Clone, Debug)]
pub(super) struct Forecast {
    pub(super) prediction: Prediction,
    /// Whether it comes from measured cells alone, since no model explains them.
    pub(super) is_measured: bool,
}

/// What they say of a kind that is one of those, or between some.
#[derive(Clone, Debug)]
pub(super) struct KindModel {
    /// With their weights, which together are 1.
    models: Vec<(f64, Model)>,
    /// What is asked for.
    pub(super) kind: Kind,
}

impl Model {
    /// Of the cells that say something, and of those with other cores.
    ///
    /// # Errors
    /// They do not say enough.
    fn of(cells: &[Cell], beside: &[&Cell]) -> Result<Self, String> {
        let spoilt = |cell: &&Cell| cell.marks.iter().any(|mark| SPOILT.contains(mark));
        if let Some(cell) = cells.iter().find(spoilt) {
            let marks = cell.marks.iter().filter(|mark| SPOILT.contains(mark));
            let words: Vec<&str> = marks.map(|mark| mark.explained()).collect();
            return Err(words.join(", "));
        }
        let kept: Vec<Cell> = cells.iter().filter_map(Cell::unspoilt).collect();
        let repeats = |cells: &[Cell]| cells.iter().map(|cell| cell.repeats.len()).sum::<usize>();
        let before: usize = cells.iter().map(|cell| cell.left_out).sum();
        let repeats_of_all = repeats(cells) + before;
        let left_out = repeats_of_all - repeats(&kept);
        if 2 * left_out > repeats_of_all {
            return Err(Mark::Disturbed.explained().to_owned());
        }
        let sound = kept.iter().filter(|cell| !cell.marks.contains(&LEFT_OUT));
        let known: Vec<(&Cell, FittedCell)> =
            sound.filter_map(|cell| Some((cell, fitted_cell(cell)?))).collect();
        let fitted: Vec<FittedCell> = known.iter().map(|(_, fitted)| fitted.clone()).collect();
        let resolved = fitted.iter().filter(|cell| cell.quantile(P99).is_some()).count();
        if fitted.len() >= CELLS_MIN && resolved < CELLS_MIN {
            return Err(format!(
                "too few requests for a p99 in all but {resolved} of {} cells: measure longer",
                fitted.len()
            ));
        }
        let says_more = |cell: &&Cell| !spoilt(cell) && !cell.marks.contains(&LEFT_OUT);
        let beside = beside.iter().copied().filter(says_more).filter_map(Cell::unspoilt);
        let beside = beside.filter_map(|cell| fitted_cell(&cell));
        let all: Vec<FittedCell> = fitted.iter().cloned().chain(beside).collect();
        let fit = fit_of(&all).ok_or(
            "at least three cells are needed, one of them at half of the highest rate or less: \
             weft study run latency-vs-load",
        )?;
        let cores = fitted.first().map_or([1, 0], |cell| [cell.host_cores, cell.target_cores]);
        let evidence = Evidence::of(&known, &fit, cores);
        Ok(Self {
            evidence,
            left_out: [left_out, repeats_of_all],
            fit,
            cells: kept,
            cores,
            deepest: fitted.iter().map(|cell| cell.depth).max().unwrap_or(1),
        })
    }

    fn at(&self, rate: f64, depth: usize) -> Result<Forecast, String> {
        let least = self.slowest() / BELOW;
        if rate < least {
            return Err(format!(
                "nothing is said below {} IOPS, a hundredth of the least that was measured: what \
                 sleeps between requests is slower",
                units::count(least)
            ));
        }
        let said = |is_measured| move |prediction| Forecast { prediction, is_measured };
        match self.fit.predict(rate, depth, self.cores, SEED) {
            Ok(prediction) => {
                let held = self.evidence.hold(prediction, rate);
                Ok(said(false)(held.at_least(self.fastest_request_ns())))
            }
            Err(Refusal::NotExplained { .. }) => {
                isotonic::at(&self.cells, rate, depth).map(said(true))
            }
            Err(Refusal::BeyondMeasured { most }) => Err(format!(
                "nothing is said beyond {} IOPS, 1.25 of the most that was measured",
                units::count(most)
            )),
        }
    }

    /// What no request took less than.
    fn fastest_request_ns(&self) -> f64 {
        let least = self.cells.iter().map(Cell::min_ns).filter(|ns| *ns > 0).min();
        least.unwrap_or(0) as f64
    }

    /// The lowest rate that was measured.
    fn slowest(&self) -> f64 {
        self.cells.iter().map(mean_iops).fold(f64::INFINITY, f64::min)
    }
}

#[cfg(not(test))]
fn fit_of(cells: &[FittedCell]) -> Option<Fit> {
    Fit::new(cells, SEED)
}

/// The same cells have the same fit, and many tests ask of the same ones.
#[cfg(test)]
fn fit_of(cells: &[FittedCell]) -> Option<Fit> {
    type Fits = std::sync::Mutex<Vec<(Vec<FittedCell>, Option<Fit>)>>;
    static KNOWN: Fits = Fits::new(Vec::new());
    let find = |known: &[(Vec<FittedCell>, Option<Fit>)]| {
        known.iter().find(|(of, _)| of == cells).map(|(_, fit)| fit.clone())
    };
    if let Some(fit) = find(&KNOWN.lock().expect("not poisoned")) {
        return fit;
    }
    let fit = Fit::new(cells, SEED);
    KNOWN.lock().expect("not poisoned").push((cells.to_vec(), fit.clone()));
    fit
}

impl KindModel {
    /// What these cells say of a kind, together with those of the same way with other cores.
    ///
    /// # Errors
    /// They do not say enough, or have no such requests and none beside them.
    pub(super) fn of(kind: &Kind, cells: &[Cell], beside: &[Cell]) -> Result<Self, String> {
        let kinds: Vec<Kind> = cells.iter().map(Kind::of).collect();
        let all: Vec<&Kind> = kinds.iter().collect();
        let near = kind
            .between(&all)
            .ok_or("neither such requests nor some on both sides of them were measured")?;
        let model = |(weight, near): (f64, &Kind)| {
            let own = cells.iter().zip(&kinds).filter(|(_, kind)| *kind == near);
            let own: Vec<Cell> = own.map(|(cell, _)| cell.clone()).collect();
            let beside = beside.iter().filter(|cell| Kind::of(cell) == *near);
            Ok((weight, Model::of(&own, &beside.collect::<Vec<_>>())?))
        };
        let models = near.into_iter().map(model).collect::<Result<_, String>>()?;
        Ok(Self { models, kind: kind.clone() })
    }

    /// What becomes of a rate.
    ///
    /// # Errors
    /// It would be a guess.
    pub(super) fn at(&self, rate: f64, depth: usize) -> Result<Forecast, String> {
        let [(_, only)] = &self.models[..] else {
            let one = |(weight, model): &(f64, Model)| Ok((*weight, model.at(rate, depth)?));
            let all = self.models.iter().map(one).collect::<Result<Vec<_>, String>>()?;
            let is_measured = all.iter().any(|(_, said)| said.is_measured);
            let all: Vec<_> = all.into_iter().map(|(by, said)| (by, said.prediction)).collect();
            let prediction = Prediction::between(&all).ok_or(
                "of the measured requests on both sides of these some are served at this rate, \
                 and some are not",
            )?;
            return Ok(Forecast { prediction, is_measured });
        };
        only.at(rate, depth)
    }

    /// The network that was fitted, or the one between those.
    pub(super) fn network(&self) -> Network {
        let networks = self.models.iter().map(|(weight, model)| (*weight, &model.fit.network));
        let [host_cores, target_cores] = self.cores();
        Network { host_cores, target_cores, ..Network::between(&networks.collect::<Vec<_>>()) }
    }

    /// What interrupts its cores.
    pub(super) fn interrupted_by(&self) -> Vec<Interruptions> {
        let part =
            |weight: f64, by: Interruptions| Interruptions { share: weight * by.share, ..by };
        let of =
            |(weight, model): &(f64, Model)| model.fit.interrupted_by().map(|by| part(*weight, by));
        self.models.iter().flat_map(of).collect()
    }

    pub(super) fn cores(&self) -> [usize; 2] {
        self.models.first().map_or([1, 0], |(_, model)| model.cores)
    }

    /// The greatest depth that was measured.
    pub(super) fn deepest(&self) -> usize {
        self.models.iter().map(|(_, model)| model.deepest).min().unwrap_or(1)
    }

    fn least(&self, of: impl Fn(&Model) -> f64) -> f64 {
        self.models.iter().map(|(_, model)| of(model)).fold(f64::INFINITY, f64::min)
    }

    /// The highest rate that the model has, and the highest of any cell, also of one that says
    /// nothing of latencies.
    pub(super) fn most(&self) -> f64 {
        self.least(|model| {
            let own = model.fit.measured.iter().filter(|one| one.0 == model.cores);
            own.map(|one| one.1).fold(0.0, f64::max)
        })
    }

    pub(super) fn fastest(&self) -> f64 {
        self.least(|model| model.cells.iter().map(mean_iops).fold(0.0, f64::max))
    }

    /// The lowest rate of any cell.
    pub(super) fn slowest(&self) -> f64 {
        self.models.iter().map(|(_, model)| model.slowest()).fold(0.0, f64::max)
    }

    /// Processors of the host and of the target at a rate.
    pub(super) fn processors(&self, rate: f64) -> [Option<f64>; 2] {
        let each =
            self.models.iter().map(|(weight, model)| (weight, processors(&model.cells, rate)));
        let all: Vec<_> = each.collect();
        [0, 1].map(|side| all.iter().map(|(weight, one)| Some(**weight * one[side]?)).sum())
    }

    /// How many repeats were left out, of how many.
    pub(super) fn left_out(&self) -> [usize; 2] {
        let of = |at: usize| self.models.iter().map(|(_, model)| model.left_out[at]).sum();
        [of(0), of(1)]
    }

    /// Cells of all.
    pub(super) fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.models.iter().flat_map(|(_, model)| &model.cells)
    }

    /// Whether such requests were measured, and not only others on both sides of them.
    pub(super) fn is_measured(&self) -> bool {
        self.models.len() == 1
    }
}
