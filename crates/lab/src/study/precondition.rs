//! Preconditioning of a solid-state device: a new device is faster than one that has been written
//! completely.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weft_load::limits::WINDOW;
use weft_load::{Extent, Job, Pattern, Progress, RunObserver, RunResult, Windows};

use super::steady::Steadiness;

/// How often it is written from end to end.
const FILLS: u32 = 2;

/// The rounds of SNIA's Solid State Storage Performance Test Specification: at most 25, and five
/// in a row have to agree.
const ROUNDS_MAX: u32 = 25;
const ROUNDS_AGREEING: usize = 5;

/// The longest round.
const ROUND_MAX: Duration = Duration::from_secs(60);

/// The largest difference of agreeing rounds, in percent of their mean.
const RANGE_PERCENT: f64 = 20.0;

/// How much the regression line may rise or fall over agreeing rounds, in percent of their mean.
const RISE_PERCENT: f64 = 10.0;

/// Runs a job on the device, wherever that is.
pub type Drive<'a> =
    &'a dyn Fn(&Job, &AtomicBool, &mut dyn RunObserver) -> Result<RunResult, String>;

/// The random writes of a preconditioning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds {
    /// Length of a round.
    pub length: Duration,
    /// Mean IOPS of each round.
    pub iops: Vec<f64>,
}

impl Rounds {
    /// Whether the last five rounds agree: their range is within 20 % of their mean, and the
    /// regression line changes by at most 10 % of it from the first to the last.
    #[must_use]
    pub fn agree(&self) -> bool {
        let last = self.iops.len().saturating_sub(ROUNDS_AGREEING);
        let last = self.iops.get(last..).unwrap_or_default();
        let (least, most) = last
            .iter()
            .fold((f64::MAX, 0.0_f64), |(least, most), iops| (least.min(*iops), most.max(*iops)));
        let mean = last.iter().sum::<f64>() / last.len() as f64;
        let steps = (ROUNDS_AGREEING - 1) as f64;
        last.len() == ROUNDS_AGREEING
            && 100.0 * (most - least) <= RANGE_PERCENT * mean
            && Steadiness::of(last, 1.0)
                .is_some_and(|steady| steady.slope_percent_per_s.abs() * steps <= RISE_PERCENT)
    }
}

impl fmt::Display for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.iops.len();
        write!(
            f,
            "the device was filled twice, then written at random in {count} rounds of {:.1} s: ",
            self.length.as_secs_f64()
        )?;
        match self.agree() {
            true => write!(f, "the last five agree")?,
            false => write!(f, "no five in a row agree, so that it may not be in steady state")?,
        }
        let last: Vec<String> = self
            .iops
            .iter()
            .rev()
            .take(ROUNDS_AGREEING)
            .rev()
            .copied()
            .map(|iops| format!("{iops:.0}"))
            .collect();
        write!(f, " (IOPS of the last rounds: {})", last.join(", "))
    }
}

/// Writes the whole device twice in blocks of 128 KiB, then blocks of 4 KiB at random in rounds,
/// until five in a row agree or `limit` has passed. All data on the device is overwritten.
///
/// # Errors
/// The device fails, or the run is stopped.
pub fn precondition(
    drive: Drive<'_>,
    limit: Duration,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&str, &Progress),
) -> Result<Rounds, String> {
    for pass in 1..=FILLS {
        let job = Job {
            name: format!("fill {pass} of {FILLS}"),
            pattern: Pattern::Write,
            block_bytes: 128 << 10,
            depth: 32,
            size: Some(Extent::Percent(100)),
            ..Job::default()
        };
        run(&job, drive, stop, &mut |progress| tell(&job.name, progress))?;
        stopped(stop)?;
    }
    let job = Job {
        name: "random writes".to_owned(),
        pattern: Pattern::RandWrite,
        depth: 32,
        runtime: Some(limit),
        time_based: true,
        random_map: false,
        ..Job::default()
    };
    let enough = AtomicBool::new(false);
    let mut rounds = Rounds { length: round_length(limit), iops: Vec::new() };
    let windows = (rounds.length.as_secs_f64() / WINDOW.as_secs_f64()).round().max(1.0);
    let mut window = Vec::new();
    run(&job, drive, &enough, &mut |progress| {
        tell(&job.name, progress);
        window.push(progress.write_iops);
        if window.len() as f64 >= windows {
            rounds.iops.push(window.drain(..).sum::<f64>() / windows);
        }
        if rounds.agree() || stop.load(Ordering::Relaxed) {
            enough.store(true, Ordering::Relaxed);
        }
    })?;
    stopped(stop)?;
    Ok(rounds)
}

/// A part of the limit, so that all rounds fit, in whole windows.
fn round_length(limit: Duration) -> Duration {
    let round = (limit / ROUNDS_MAX).min(ROUND_MAX);
    let windows = (round.as_secs_f64() / WINDOW.as_secs_f64()).floor().max(1.0);
    WINDOW.mul_f64(windows)
}

fn stopped(stop: &AtomicBool) -> Result<(), String> {
    if stop.load(Ordering::Relaxed) { Err("stopped".to_owned()) } else { Ok(()) }
}

fn run(
    job: &Job,
    drive: Drive<'_>,
    stop: &AtomicBool,
    mut observe: &mut dyn FnMut(&Progress),
) -> Result<(), String> {
    let result = drive(job, stop, &mut Windows(&mut observe))?;
    match result.total().error {
        Some(error) => Err(format!("{}: {error}", job.name)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_backend::DeviceSpec;

    #[test]
    fn it_fills_twice_and_then_writes_at_random() {
        let spec: DeviceSpec = "memory:4MiB".parse().expect("a device");
        let factory = spec.build().expect("a device");
        let drive = |job: &Job, stop: &AtomicBool, observer: &mut dyn RunObserver| {
            weft_load::run_observed(job, &factory, stop, observer)
                .map_err(|error| error.to_string())
        };
        let stop = AtomicBool::new(false);
        let mut seen: Vec<String> = Vec::new();
        let mut tell = |what: &str, _: &Progress| {
            if seen.last().is_none_or(|last| last != what) {
                seen.push(what.to_owned());
            }
        };
        let limit = Duration::from_millis(150);
        let rounds = precondition(&drive, limit, &stop, &mut tell).expect("done");
        assert!(!rounds.agree(), "so short a run has no five rounds");
        assert_eq!(seen, ["fill 1 of 2", "fill 2 of 2", "random writes"]);
    }

    fn rounds(iops: &[f64]) -> Rounds {
        Rounds { length: Duration::from_secs(60), iops: iops.to_vec() }
    }

    #[test]
    fn five_rounds_agree_by_range_and_slope() {
        assert!(!rounds(&[100.0; 4]).agree());
        assert!(rounds(&[100.0; 5]).agree());
        assert!(rounds(&[900.0, 500.0, 100.0, 100.0, 100.0, 100.0, 100.0]).agree(), "the last");
        assert!(!rounds(&[100.0, 100.0, 100.0, 100.0, 900.0]).agree());
        assert!(rounds(&[100.0, 109.0, 91.0, 109.0, 100.0]).agree(), "within 20 %, no slope");
        assert!(!rounds(&[100.0, 112.0, 89.0, 110.0, 100.0]).agree(), "more than 20 % apart");
        assert!(!rounds(&[107.0, 104.0, 100.0, 97.0, 94.0]).agree(), "falls by 13 %");
        assert!(rounds(&[104.0, 102.0, 100.0, 98.0, 96.0]).agree(), "falls by 8 %");
        assert!(!rounds(&[0.0; 5]).agree());
    }

    #[test]
    fn rounds_fit_into_the_limit() {
        assert_eq!(round_length(Duration::from_secs(3600)), ROUND_MAX);
        assert_eq!(round_length(Duration::from_secs(250)), Duration::from_secs(10));
        assert_eq!(round_length(Duration::from_millis(10)), WINDOW);
    }

    #[test]
    fn the_report_says_how_it_ended() {
        let text = rounds(&[100.0, 120.0]).to_string();
        assert!(text.contains("2 rounds of 60.0 s") && text.contains("no five in a row"), "{text}");
        let text = rounds(&[900.0, 100.0, 100.0, 100.0, 100.0, 100.0]).to_string();
        assert!(text.contains("the last five agree (IOPS of the last rounds: 100, "), "{text}");
    }

    #[test]
    fn a_failing_device_is_reported() {
        let spec = "fault:operation=write,nth=3,effect=media-write:memory:4MiB";
        let factory = spec.parse::<DeviceSpec>().expect(spec).build().expect(spec);
        let drive = |job: &Job, stop: &AtomicBool, observer: &mut dyn RunObserver| {
            weft_load::run_observed(job, &factory, stop, observer)
                .map_err(|error| error.to_string())
        };
        let stop = AtomicBool::new(false);
        let outcome = precondition(&drive, Duration::from_secs(1), &stop, &mut |_, _| {});
        assert!(outcome.is_err_and(|what| what.starts_with("fill 1 of 2")));
    }
}
