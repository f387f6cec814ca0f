//! Preconditioning of a solid-state device: a new device is faster than one that has been written
//! completely.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use weft_backend::DeviceFactory;

use super::{plan::Measure, steady::SteadyStateDetector};
use crate::{Extent, Job, Pattern, Progress, limits::WINDOW};

/// How often it is written from end to end.
const FILLS: u32 = 2;

/// Writes the whole device twice in blocks of 128 KiB, then blocks of 4 KiB at random until IOPS
/// are steady or `limit` has passed. All data on the device is overwritten. Returns whether IOPS
/// became steady.
///
/// # Errors
/// The device fails, or the run is stopped.
pub fn precondition(
    factory: &Arc<dyn DeviceFactory>,
    limit: Duration,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&str, &Progress),
) -> Result<bool, String> {
    for pass in 1..=FILLS {
        let job = Job {
            name: format!("fill {pass} of {FILLS}"),
            pattern: Pattern::Write,
            block_bytes: 128 << 10,
            depth: 32,
            size: Some(Extent::Percent(100)),
            ..Job::default()
        };
        run(&job, factory, stop, &mut |progress| tell(&job.name, progress))?;
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
    let mut awaiting = SteadyStateDetector::default();
    let mut steady = false;
    run(&job, factory, &enough, &mut |progress| {
        tell(&job.name, progress);
        steady |= awaiting.take(progress.write_iops, WINDOW.as_secs_f64(), &Measure::default());
        if steady || stop.load(Ordering::Relaxed) {
            enough.store(true, Ordering::Relaxed);
        }
    })?;
    stopped(stop)?;
    Ok(steady)
}

fn stopped(stop: &AtomicBool) -> Result<(), String> {
    if stop.load(Ordering::Relaxed) { Err("stopped".to_owned()) } else { Ok(()) }
}

fn run(
    job: &Job,
    factory: &Arc<dyn DeviceFactory>,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(&Progress),
) -> Result<(), String> {
    let result = crate::run(job, factory, stop, observe).map_err(|error| error.to_string())?;
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
        let stop = AtomicBool::new(false);
        let mut seen: Vec<String> = Vec::new();
        let mut tell = |what: &str, _: &Progress| {
            if seen.last().is_none_or(|last| last != what) {
                seen.push(what.to_owned());
            }
        };
        let limit = Duration::from_millis(150);
        let steady = precondition(&factory, limit, &stop, &mut tell).expect("done");
        assert!(!steady, "so short a run cannot be steady");
        assert_eq!(seen, ["fill 1 of 2", "fill 2 of 2", "random writes"]);
    }

    #[test]
    fn a_failing_device_is_reported() {
        let spec = "fault:operation=write,nth=3,effect=media-write:memory:4MiB";
        let factory = spec.parse::<DeviceSpec>().expect(spec).build().expect(spec);
        let stop = AtomicBool::new(false);
        let outcome = precondition(&factory, Duration::from_secs(1), &stop, &mut |_, _| {});
        assert!(outcome.is_err_and(|what| what.starts_with("fill 1 of 2")));
    }
}
