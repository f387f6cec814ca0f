//! `cargo xtask bench`: performance requirements, relative to raw sockets with the same messages.
//!
//! Absolute figures drift by a third within an hour, so figures of different runs are not compared:
//! the two sides of a ratio run alternately, and the result is the median of the rounds' ratios.
//! Target and load are processes on one processor each.

mod against;
mod experiment;
mod failover;
mod flood;
mod machine;
mod options;
mod page;
mod process;
mod results;
mod rows;
mod stage;

use crate::cargo::{cargo, target_folder};
use anyhow::{Context, Result, bail};
pub use experiment::Spread;
use experiment::{Experiment, Metric, Sample};
pub use machine::{cpu_time, resident_bytes};
pub use options::Options;
use process::{Program, User};
use results::Results;
use stage::Stage;
use std::path::{Path, PathBuf};

/// Most rounds that are measured for each round that is requested (`--steady`).
const TRIES: usize = 4;

/// Measures; false if a requirement was not met.
pub fn run(root: &Path, options: &Options) -> Result<bool> {
    let experiments = chosen(options)?;
    if options.list {
        for experiment in &experiments {
            println!("{:<28} {}", experiment.name, experiment.about);
        }
        return Ok(true);
    }
    let user = User::choose(options.as_root);
    let program = Program::install(&binary(root, options)?, user, "this")?;
    let folder = target_folder(root).join("bench");
    let environment = machine::environment(root, options, &program);
    let page = options.page.then(|| root.to_owned());
    let mut results = Results::create(&folder, environment, page)?;
    let there = machine::processors();
    // One takes two in turns, which a warning tells.
    let (experiments, lacking): (Vec<_>, Vec<_>) =
        experiments.into_iter().partition(|experiment| experiment.processors() <= there.max(2));
    for experiment in &lacking {
        let needed = experiment.processors();
        results.skip(experiment, &format!("it needs {needed} processors, and {there} are here"))?;
    }
    for warning in machine::warnings(options.cpus) {
        println!("{warning}");
    }
    if let Some(other) = &options.against {
        let other = other.canonicalize().with_context(|| other.display().to_string())?;
        let builds = [program, Program::install(&other, user, "against")?];
        against::run(options, &experiments, builds, &mut results)?;
        return results.finish();
    }
    let mut stage = Stage::new(program, options);
    for experiment in &experiments {
        println!("==> {}: {}", experiment.name, experiment.about);
        match measure(experiment, options, &mut stage, &mut results) {
            Ok(()) => {}
            Err(error) => results.fail(experiment, &format!("{error:#}"))?,
        }
    }
    stage.clear();
    results.finish()
}

/// All rounds of one experiment. Every other round runs backwards, so that what grows or fades
/// meanwhile hits first and last alike.
fn measure(
    experiment: &Experiment,
    options: &Options,
    stage: &mut Stage,
    results: &mut Results,
) -> Result<()> {
    let rounds = options.rounds.max(experiment.rounds_min);
    let most = if options.steady.is_some() { rounds * TRIES } else { rounds };
    stage.prepare(experiment)?;
    let mut samples = Vec::with_capacity(rounds);
    for round in 0..most {
        if samples.len() == rounds {
            break;
        }
        samples.extend(measure_round(experiment, round, options, stage, results)?);
    }
    if samples.len() < rounds {
        println!("  only {} of {most} rounds count", samples.len());
    }
    results.add(experiment, &samples)
}

/// The samples of one round, in the order of the steps; none if the machine was not steady.
fn measure_round(
    experiment: &Experiment,
    round: usize,
    options: &Options,
    stage: &mut Stage,
    results: &mut Results,
) -> Result<Option<Vec<Sample>>> {
    let mut order: Vec<usize> = (0..experiment.steps.len()).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    let mut of_round = vec![Sample::new(); experiment.steps.len()];
    for at in &order {
        let step = &experiment.steps[*at];
        let sample = stage.take(experiment, step).context(step.label)?;
        results.line(experiment, step.label, round, &sample)?;
        of_round[*at] = sample;
    }
    let first = &experiment.steps[order[0]];
    let before = of_round[order[0]].get(&Metric::Iops).copied();
    if let (Some(share), Some(before)) = (options.steady, before) {
        let sample = stage.take(experiment, first).context(first.label)?;
        let after = sample.get(&Metric::Iops).copied().unwrap_or(0.0);
        results.line(experiment, first.label, round, &sample)?;
        if !results.judge(experiment, round, is_steady(before, after, share))? {
            return Ok(None);
        }
    }
    Ok(Some(of_round))
}

/// Whether two figures of the same thing differ by no more than a share of the larger one.
fn is_steady(before: f64, after: f64, share: f64) -> bool {
    (before - after).abs() <= share * before.max(after)
}

fn chosen(options: &Options) -> Result<Vec<Experiment>> {
    let mut experiments = rows::all();
    if options.target.is_some() {
        experiments.retain(Experiment::suits_any_target);
    }
    let wanted = |name: &str| options.only.iter().any(|pattern| name.contains(pattern));
    experiments.retain(|experiment| options.only.is_empty() || wanted(experiment.name));
    if experiments.is_empty() {
        bail!("no row has such a name; --list names them all");
    }
    Ok(experiments)
}

/// The binary that is measured, built for speed.
fn binary(root: &Path, options: &Options) -> Result<PathBuf> {
    if let Some(path) = &options.binary {
        return path.canonicalize().with_context(|| path.display().to_string());
    }
    built(root)
}

/// The binary of this tree, built for speed, or that in `WEFT_BINARY`.
pub fn built(root: &Path) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("WEFT_BINARY") {
        return Ok(Path::new(&path).canonicalize()?);
    }
    cargo(root, &["build", "--profile", "dist", "--package", "weft-nvmeof"])?;
    let path = target_folder(root).join("dist/weft");
    if path.exists() { Ok(path) } else { bail!("cargo has built no {}", path.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_not_steady() {
        assert!(is_steady(100.0, 100.0, 0.0));
        assert!(is_steady(100.0, 90.0, 0.1) && is_steady(90.0, 100.0, 0.1));
        assert!(!is_steady(100.0, 89.0, 0.1) && !is_steady(89.0, 100.0, 0.1));
        assert!(!is_steady(100.0, 0.0, 0.9), "nothing came the second time");
    }
}
