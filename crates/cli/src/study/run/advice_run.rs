//! Runs that an advice asks for.

use std::path::{Path, PathBuf};
use std::time::Duration;

use weft_lab::results::{Configuration, Value};
use weft_lab::study::matrix::{Matrix, Step, expand};
use weft_lab::study::plan::Plan;

use super::words::{self, FixedValues};
use super::{RunOptions, begin, fresh_directory};
use crate::failure::Failure;
use crate::study::here;

/// The shortest and the longest repeat of a run that has a budget, in seconds.
const REPEAT: (f64, f64) = (0.5, 10.0);

/// Settings, and their values.
pub(crate) type AdviceSettings = Vec<(&'static str, Vec<Value>)>;

/// A run for an advice.
pub(crate) struct AdviceRun {
    /// Settings in place of the plan's, before those of the command line.
    pub(crate) settings: AdviceSettings,
    /// Only cells with these values.
    pub(crate) only: Configuration,
    /// How long all of it takes, about; none: as long as the plan says.
    pub(crate) budget: Option<Duration>,
}

impl RunOptions {
    /// The directory of results, or a new one for this study.
    pub(crate) fn directory(&self, study: &str) -> PathBuf {
        self.setup.out.clone().unwrap_or_else(|| fresh_directory(study))
    }

    /// The same for a plan that has all settings in it but the times that were given.
    pub(crate) fn of_a_plan(&self) -> Self {
        let mut how = self.clone();
        (how.setup.set, how.setup.quick, how.setup.seed) = (Vec::new(), false, None);
        (how.setup.repeats, how.setup.only) = (None, None);
        how
    }

    /// What a study would measure: the settings of each cell that can run.
    pub(crate) fn configurations(&self, study: &str) -> Result<Vec<Configuration>, Failure> {
        let mut plan = here::plan(study)?;
        self.amend(&mut plan, &self.agents)?;
        let matrix = self.matrix(&plan)?;
        let run = matrix.steps().filter(|step| step.missing().is_none()).flat_map(Step::cells);
        Ok(run.map(|cell| cell.configuration.clone()).collect())
    }

    /// These come before those of the command line.
    fn set_first(&mut self, settings: &AdviceSettings) {
        let settings = settings.iter().cloned();
        let settings = settings.map(|(key, values)| words::Setting { key: key.to_owned(), values });
        self.setup.set.splice(0..0, settings);
    }

    /// Measures a study into a directory, and tells nothing but what went wrong.
    pub(crate) fn measure(
        &self,
        study: &str,
        directory: &Path,
        wanted: AdviceRun,
    ) -> Result<(), Failure> {
        let mut how = Self { told_elsewhere: true, ..self.clone() };
        how.setup.out = Some(directory.to_owned());
        how.set_first(&wanted.settings);
        if !wanted.only.is_empty() {
            how.setup.only = Some(FixedValues(wanted.only));
        }
        // Within a budget nothing waits for a steady state.
        how.setup.quick |= wanted.budget.is_some();
        if let (Some(budget), None) = (wanted.budget, how.setup.runtime) {
            let mut plan = here::plan(study)?;
            how.amend(&mut plan, &how.agents)?;
            how.setup.runtime = Some(how.time_of_a_repeat(&plan, budget)?);
        }
        begin(study, &how, false)
    }

    fn matrix(&self, plan: &Plan) -> Result<Matrix, Failure> {
        let only = self.setup.only.clone().unwrap_or_default().0;
        Ok(expand(plan, &self.capabilities(plan)?, &only))
    }

    /// The measured time of a repeat with which a plan takes so long.
    fn time_of_a_repeat(&self, plan: &Plan, budget: Duration) -> Result<Duration, Failure> {
        let steps = self.matrix(plan)?.steps().filter(|step| step.missing().is_none()).count();
        let repeats = (steps as f64 * f64::from(plan.measure.repeats)).max(1.0);
        let ramp = plan.measure.ramp.as_secs_f64();
        let each = budget.as_secs_f64() / repeats - ramp;
        let (least, most) = REPEAT;
        if each < least {
            return Err(Failure::Because(format!(
                "--budget is too short: {repeats:.0} repeats take {:.0} s at least: give as much, \
                 or measure less (--only, --set)",
                (repeats * (least + ramp)).ceil()
            )));
        }
        Ok(Duration::from_secs_f64(each.min(most)))
    }
}
