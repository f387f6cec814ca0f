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
mod process;
mod results;
mod rows;
mod stage;

use crate::cargo::{cargo, target_folder};
use anyhow::{Context, Result, bail};
use clap::Args;
pub use experiment::Spread;
use experiment::{Experiment, Metric, Sample};
pub use machine::{cpu_time, resident_bytes};
use process::{Program, User};
use results::Results;
use stage::Stage;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most rounds that are measured for each round that is requested (`--steady`).
const TRIES: usize = 4;

/// What to measure, and how.
#[derive(Debug, Args)]
pub struct Options {
    /// Only rows whose name contains one of these
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// List the rows and what each measures, and exit
    #[arg(long)]
    list: bool,
    /// How often each measurement is repeated
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long each measurement counts
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
    /// Count only rounds in which the machine was steady: the first measurement is repeated at the
    /// end of the round and may differ by this share, like 0.15. Other rounds are measured again,
    /// up to four times as many as requested
    #[arg(long, value_name = "SHARE", value_parser = share)]
    steady: Option<f64>,
    /// Another target to measure, like nvme-tcp://127.0.0.1:4420/NQN?nsid=1; the data of its
    /// namespace is overwritten
    #[arg(long, value_name = "ADDRESS")]
    target: Option<String>,
    /// The process of that target, stopped while the raw socket is measured, because a target that
    /// polls all the time would take half of the processor; continue it with SIGCONT if this run
    /// is interrupted
    #[arg(long, value_name = "PID", requires = "target")]
    target_pid: Option<u32>,
    /// The target's processor and the load's
    #[arg(long, default_value = "0,1", value_parser = two_cpus)]
    cpus: (usize, usize),
    /// Run as root if this is root, instead of as nobody with the usual limit of locked memory
    #[arg(long)]
    as_root: bool,
    /// Duration of the load of the row `growth` in seconds
    #[arg(long, default_value_t = 30.0, value_parser = seconds)]
    soak: f64,
    /// Another binary than that of this tree
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Another build to be measured in turns with this one: its binary. Only loads are measured
    /// then, and a row fails if the whole 95 % interval of its ratio is below 0.97
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "steady"])]
    against: Option<PathBuf>,
}

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
    let mut results = Results::create(&folder, &machine::environment(root, options, &program))?;
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
    cargo(root, &["build", "--profile", "dist", "--package", "weft-cli"])?;
    let path = target_folder(root).join("dist/weft");
    if path.exists() { Ok(path) } else { bail!("cargo has built no {}", path.display()) }
}

impl Options {
    /// So many processors of the target, for a command line.
    fn target_cpus(&self, count: usize) -> String {
        cpus_of(self.cpus.into(), 0, count)
    }

    /// So many of the load.
    fn load_cpus(&self, count: usize) -> String {
        cpus_of(self.cpus.into(), 1, count)
    }

    fn runtime(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Before anything counts: connections are there and buffers have been touched.
    fn ramp(&self) -> Duration {
        (self.runtime() / 4).min(Duration::from_millis(500))
    }
}

/// So many processors of the target (`end` 0) or of the load (1): its own of the two that are
/// given, then every second one of all others.
fn cpus_of(given: [usize; 2], end: usize, count: usize) -> String {
    let others = (0..).filter(|cpu| !given.contains(cpu)).skip(end).step_by(2);
    let cpus = std::iter::once(given[end]).chain(others).take(count);
    cpus.map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",")
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.05..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("seconds, from 0.05 to a million".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..1.0).contains(&share) => Ok(share),
        _ => Err("a share between 0 and 1, like 0.15".to_owned()),
    }
}

fn two_cpus(text: &str) -> Result<(usize, usize), String> {
    let (target, load) = text.split_once(',').ok_or("two processors, like 0,1")?;
    let number = |text: &str| text.trim().parse::<usize>().map_err(|error| error.to_string());
    let (target, load) = (number(target)?, number(load)?);
    if target == load { Err("one processor twice".to_owned()) } else { Ok((target, load)) }
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
        assert_eq!(share("0.15"), Ok(0.15));
        for bad in ["1", "-0.1", "15 %", "nan", ""] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn seconds_are_some() {
        assert_eq!(seconds("0.3"), Ok(0.3));
        for bad in ["0", "-1", "nan", "inf", "1e7", "30s", ""] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn each_end_has_processors_of_its_own() {
        let both = |given, count| [cpus_of(given, 0, count), cpus_of(given, 1, count)];
        assert_eq!(both([0, 1], 1), ["0", "1"]);
        assert_eq!(both([0, 1], 2), ["0,2", "1,3"]);
        assert_eq!(both([3, 0], 2), ["3,1", "0,2"]);
    }

    #[test]
    fn two_processors_are_two() {
        assert_eq!(two_cpus("0,1"), Ok((0, 1)));
        for bad in ["0", "1,1", "a,b", ""] {
            assert!(two_cpus(bad).is_err(), "{bad}");
        }
    }
}
