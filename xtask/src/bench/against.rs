//! Two builds in turns: each load on the target of its own build, one right after the other.

use super::experiment::{Action, Experiment, Metric, Sample, Spread};
use super::options::Options;
use super::process::Program;
use super::results::Results;
use super::stage::Stage;
use anyhow::{Context, Result};

/// A row fails if its whole interval is below this.
pub(crate) const LEAST: f64 = 0.97;

/// With fewer rounds there is no interval of 95 %.
const ROUNDS_MIN: usize = 6;

/// The median of some ratios, and the interval that holds the true one with 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) count: usize,
}

impl Interval {
    /// By order alone, as in a sign test: nothing is assumed about how ratios are distributed.
    pub(crate) fn of(mut ratios: Vec<f64>) -> Option<Self> {
        ratios.sort_by(f64::total_cmp);
        let count = ratios.len();
        // How likely at most `beyond` of `count` lie on one side of the true median: 2.5 %.
        let (mut term, mut tail, mut beyond) = (0.5f64.powf(count as f64), 0.0, 0);
        while beyond < count / 2 && tail + term <= 0.025 {
            tail += term;
            term *= (count - beyond) as f64 / (beyond + 1) as f64;
            beyond += 1;
        }
        let outermost = beyond.checked_sub(1)?;
        let (low, high) = (*ratios.get(outermost)?, *ratios.get(count - 1 - outermost)?);
        Some(Self { median: Spread::of(ratios)?.median, low, high, count })
    }

    pub(crate) fn holds(self) -> bool {
        self.high >= LEAST
    }
}

/// Measures all rows that are loads.
pub(crate) fn run(
    options: &Options,
    experiments: &[Experiment],
    builds: [Program; 2],
    results: &mut Results,
) -> Result<()> {
    let mut stages = builds.map(|program| Stage::new(program, options));
    for experiment in experiments {
        let compared = compared(experiment);
        if compared.is_empty() {
            continue;
        }
        println!("==> {}: {}", experiment.name, experiment.about);
        let rounds = options.rounds.max(ROUNDS_MIN);
        match measure(experiment, &compared, rounds, &mut stages, results) {
            Ok(()) => {}
            Err(error) => results.fail(experiment, &format!("{error:#}"))?,
        }
    }
    Ok(())
}

/// The loads of an experiment, and what each is judged by: its rate, or its median latency, which a
/// pause of some milliseconds moves less than the mean.
fn compared(experiment: &Experiment) -> Vec<(usize, Metric)> {
    let judged = |label: &str| {
        let figures = experiment.figures.iter().filter(|figure| figure.of.0 == label);
        figures.map(|figure| figure.of.1).find_map(|metric| match metric {
            Metric::Iops => Some(Metric::Iops),
            Metric::MeanUs | Metric::P50Us => Some(Metric::P50Us),
            _ => None,
        })
    };
    let steps = experiment.steps.iter().enumerate();
    let loads = steps.filter(|(_, step)| matches!(step.action, Action::Load(_)));
    loads.filter_map(|(at, step)| Some((at, judged(step.label)?))).collect()
}

fn measure(
    experiment: &Experiment,
    compared: &[(usize, Metric)],
    rounds: usize,
    stages: &mut [Stage<'_>; 2],
    results: &mut Results,
) -> Result<()> {
    for stage in stages.iter_mut() {
        stage.prepare(experiment)?;
        stage.let_all_run(false)?;
    }
    let mut taken: Vec<Vec<[Sample; 2]>> = vec![Vec::new(); compared.len()];
    for round in 0..rounds {
        for ((at, _), taken) in compared.iter().zip(&mut taken) {
            let step = &experiment.steps[*at];
            let mut pair = [Sample::new(), Sample::new()];
            let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for build in order {
                let sample = stages[build].take(experiment, step).context(step.label)?;
                stages[build].let_all_run(false)?;
                let label = format!("{} {}", ["this", "against"][build], step.label);
                results.line(experiment, &label, round, &sample)?;
                pair[build] = sample;
            }
            taken.push(pair);
        }
    }
    for ((at, metric), taken) in compared.iter().zip(&taken) {
        results.compare(experiment, experiment.steps[*at].label, *metric, taken)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::rows;
    use super::*;

    #[test]
    fn the_interval_is_that_of_a_sign_test() {
        let ratios = |count: u32| (1..=count).rev().map(f64::from).collect();
        assert_eq!(Interval::of(ratios(5)), None, "five of five happen in one of 16 cases");
        let of = |count| Interval::of(ratios(count)).map(|it| (it.low, it.median, it.high));
        assert_eq!(of(6), Some((1.0, 3.5, 6.0)));
        assert_eq!(of(9), Some((2.0, 5.0, 8.0)));
        assert_eq!(of(10), Some((2.0, 5.5, 9.0)));
        assert_eq!(of(15), Some((4.0, 8.0, 12.0)));
        assert_eq!(of(20), Some((6.0, 10.5, 15.0)));
    }

    #[test]
    fn only_an_interval_that_is_whole_below_fails() {
        let holds = |ratios: [f64; 6]| Interval::of(ratios.into()).map(Interval::holds);
        assert_eq!(holds([0.9, 0.9, 0.9, 0.9, 0.9, 0.97]), Some(true));
        assert_eq!(holds([0.9, 0.9, 0.9, 0.9, 0.9, 0.96]), Some(false));
    }

    #[test]
    fn loads_are_compared_by_rate_or_latency() {
        let rows = rows::all();
        let of = |name: &str| {
            let row = rows.iter().find(|row| row.name == name).expect("a row");
            compared(row).into_iter().map(|(at, metric)| (row.steps[at].label, metric)).collect()
        };
        let deep: Vec<_> = of("randread-4k-128-memory");
        assert_eq!(deep.len(), 2);
        assert!(deep.iter().all(|(_, metric)| *metric == Metric::Iops));
        let shallow: Vec<_> = of("randread-4k-1-polling");
        assert!(shallow.len() == 2 && shallow.iter().all(|(_, of)| *of == Metric::P50Us));
        assert_eq!(of("independent-16-read-4k"), [("flow control on", Metric::P50Us)]);
        assert!(of("start-up").is_empty() && of("idle").is_empty());
    }
}
