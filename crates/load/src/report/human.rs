//! Results as text.

use std::fmt::Write;
use std::time::Duration;

use super::Entry;
use crate::histogram::Latency;
use crate::job::{Job, LatencyTarget};
use crate::run::{Phase, Progress};
use crate::statistics::{DEPTH_LEVELS, DirectionResult, LaneResult, RunResult, TargetResult};
use crate::units::{byte_rate, count, decimal_byte_rate, time};

/// The percentiles that are shown.
pub const PERCENTILES: [f64; 8] = [1.0, 50.0, 90.0, 95.0, 99.0, 99.9, 99.95, 99.99];

/// The result of a run, over several lines.
#[must_use]
pub fn result(job: &Job, device: &str, result: &RunResult) -> String {
    let total = result.total();
    let mut text = String::new();
    let mut line = |arguments: std::fmt::Arguments<'_>| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{arguments}");
    };
    line(format_args!("{}: {} on {device} ({})", job.name, words(job), result.driver));
    for (name, direction) in [("read", &total.read), ("write", &total.write), ("trim", &total.trim)]
    {
        if direction.requests > 0 {
            line(format_args!("  {name:<6}: {}", rates(direction)));
            for row in latencies(job, direction) {
                line(format_args!("    {row}"));
            }
        }
    }
    if total.flushes.count() > 0 {
        line(format_args!("  flush : {}", ends(&count_of(&total.flushes), &total.flushes)));
    }
    if total.read.requests + total.write.requests + total.trim.requests == 0 {
        line(format_args!("  no request completed in the measured time"));
    }
    if let (Some(wanted), Some(found)) = (job.latency_target, total.target) {
        line(format_args!("  {}", target(&wanted, found)));
    }
    line(format_args!("  {}", processor(&total, result.workers())));
    line(format_args!("  {}", depths(&total)));
    if job.verify {
        let verify = &total.verify;
        line(format_args!("  verify: {} blocks compared, {} wrong", verify.blocks, verify.faults));
        for fault in &verify.described {
            line(format_args!("    {fault}"));
        }
        let more = verify.faults.saturating_sub(verify.described.len() as u64);
        if more > 0 {
            line(format_args!("    and {more} more"));
        }
    }
    if result.interrupted {
        let seconds = result.elapsed.as_secs_f64();
        line(format_args!(
            "  interrupted after {seconds:.1} s: this is what was measured until then"
        ));
    }
    if let Some(error) = &total.error {
        line(format_args!("  error : {error}"));
    }
    text
}

/// The progress line, most important values first: a narrow terminal cuts off the others.
#[must_use]
pub fn progress(progress: &Progress) -> String {
    let mut text = match progress.phase {
        Phase::Ramp => "ramp ".to_owned(),
        Phase::Run => "run ".to_owned(),
        Phase::Check => "check ".to_owned(),
    };
    let _ = write!(text, "{}", seconds(progress.elapsed));
    if let Some(left) = progress.left {
        let share = progress.elapsed.as_secs_f64() / (progress.elapsed + left).as_secs_f64();
        let _ = write!(text, " ({:.0} %), {} left", 100.0 * share, seconds(left));
    }
    if progress.faults > 0 {
        let _ = write!(text, "  {} WRONG BLOCKS", progress.faults);
    }
    let iops = progress.read_iops + progress.write_iops + progress.trim_iops;
    let _ = write!(text, "  {} IOPS", count(iops));
    if let Some(p99_ns) = progress.p99_ns {
        let _ = write!(text, "  p99 {}", time(p99_ns as f64));
    }
    let _ = write!(text, "  {}", byte_rate(progress.bytes_per_second));
    if progress.read_iops > 0.0 && progress.write_iops > 0.0 {
        let (reads, writes) = (count(progress.read_iops), count(progress.write_iops));
        let _ = write!(text, "  {reads} reads, {writes} writes a second");
    }
    text
}

/// A time of the progress line, with two digits at least.
fn seconds(time: Duration) -> String {
    match time.as_secs_f64() {
        s if s < 9.95 => format!("{s:.1} s"),
        s if s < 99.5 => format!("{s:.0} s"),
        s if s < 597.0 => format!("{:.1} min", s / 60.0),
        s if s < 6_000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3_600.0),
    }
}

fn words(job: &Job) -> String {
    let exact = |bytes: u32| weft_backend::bytes::exact(u64::from(bytes));
    let bytes = match (job.shortest(), job.longest()) {
        (short, long) if short == long => exact(short),
        (short, long) => format!("{} to {}", exact(short), exact(long)),
    };
    let mut text =
        format!("rw={} bs={bytes} iodepth={} numjobs={}", job.pattern, job.depth, job.copies);
    if job.pattern.reads() && job.pattern.writes() {
        let _ = write!(text, " rwmixread={:.0}", job.read_percent);
    }
    if let Some(rate) = job.rate {
        let process = format!("{:?}", rate.process).to_lowercase();
        let _ = write!(text, " rate-iops={} ({process}, latency from the due time)", rate.iops);
    }
    text
}

/// What each group of several jobs came to.
#[must_use]
pub fn groups(entries: &[Entry]) -> String {
    let mut text = String::new();
    for group in entries.chunk_by(|one, other| one.group == other.group) {
        let [first, _, ..] = group else { continue };
        let mut total = LaneResult::default();
        for entry in group {
            total.add(&entry.result.total(), false);
        }
        let _ = writeln!(text, "group {}: {} jobs", first.group, group.len());
        for (name, direction) in
            [("read", &total.read), ("write", &total.write), ("trim", &total.trim)]
        {
            if direction.requests > 0 {
                let _ = writeln!(text, "  {name:<6}: {}", rates(direction));
            }
        }
    }
    text
}

fn rates(direction: &DirectionResult) -> String {
    let bytes = direction.bytes_per_second();
    format!(
        "IOPS {}, {} ({}), {} requests in {:.2} s",
        count(direction.iops()),
        byte_rate(bytes),
        decimal_byte_rate(bytes),
        direction.requests,
        direction.measured.as_secs_f64(),
    )
}

fn latencies(job: &Job, direction: &DirectionResult) -> Vec<String> {
    let mut rows = vec![ends("latency", &direction.latency)];
    if let Some(completion) = &direction.completion {
        rows.push(ends("from the submission", completion));
    }
    let shown = |percentile: &f64| {
        let value = direction.latency.percentile_ns(*percentile);
        format!("p{percentile} {}", value.map_or("unresolved".to_owned(), |ns| time(ns as f64)))
    };
    let listed = job.percentiles.as_deref().unwrap_or(&PERCENTILES);
    let percentiles: Vec<String> = listed.iter().map(shown).collect();
    rows.extend(percentiles.chunks(4).map(|row| row.join(", ")));
    rows
}

fn count_of(latency: &Latency) -> String {
    format!("{} requests", latency.count())
}

fn ends(name: &str, latency: &Latency) -> String {
    format!(
        "{name}: min {}, mean {}, stddev {}, max {}",
        time(latency.min_ns() as f64),
        time(latency.mean_ns()),
        time(latency.stddev_ns()),
        time(latency.max_ns() as f64),
    )
}

fn target(wanted: &LatencyTarget, found: TargetResult) -> String {
    let LatencyTarget { latency, percentile, .. } = wanted;
    let kept = format!("{percentile} % within {}", time(latency.as_nanos() as f64));
    match found.depth {
        0 => format!("latency target: not even iodepth=1 has {kept}"),
        depth => format!("latency target: iodepth={depth} is the greatest found with {kept}"),
    }
}

fn processor(total: &LaneResult, workers: usize) -> String {
    let (user, system) = cpu_percent(total, workers);
    let switches = total.usage.context_switches;
    format!("cpu   : usr {user:.1} %, sys {system:.1} % of {workers} core(s), ctx {switches}")
}

fn depths(total: &LaneResult) -> String {
    let all = total.depth_levels.iter().sum::<u64>().max(1) as f64;
    let levels: Vec<String> = DEPTH_LEVELS
        .iter()
        .zip(total.depth_levels)
        .filter(|(_, times)| *times > 0)
        .map(|(level, times)| format!("{level}={:.1} %", 100.0 * times as f64 / all))
        .collect();
    format!("depths: {}", if levels.is_empty() { "none".to_owned() } else { levels.join(", ") })
}

/// User and system time as a share of the workers' cores, in percent.
pub(crate) fn cpu_percent(total: &LaneResult, workers: usize) -> (f64, f64) {
    let measured = total.read.measured.max(total.write.measured).max(total.trim.measured);
    let wall = measured.as_secs_f64() * workers as f64;
    let percent = |used: std::time::Duration| {
        if wall > 0.0 { 100.0 * used.as_secs_f64() / wall } else { 0.0 }
    };
    (percent(total.usage.user), percent(total.usage.system))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::VerifyResult;

    fn run(requests: u64) -> RunResult {
        let mut latency = Latency::new();
        (0..requests).for_each(|n| latency.record(10_000 + n));
        let read = DirectionResult {
            requests,
            bytes: requests * 4096,
            measured: Duration::from_secs(2),
            latency,
            completion: None,
            window_iops: vec![],
        };
        let lane =
            LaneResult { read, depth_levels: [0, 0, 0, 0, 0, 9, 1], ..LaneResult::default() };
        RunResult { lanes: vec![(0, lane)], driver: "epoll", ..RunResult::default() }
    }

    #[test]
    fn the_text_says_what_was_measured() {
        let text = result(&Job::default(), "memory:1GiB", &run(20_000));
        for part in [
            "weft: rw=randread bs=4KiB iodepth=1 numjobs=1 on memory:1GiB (epoll)",
            "read  : IOPS 10.0 K, 39.1 MiB/s (41.0 MB/s), 20000 requests in 2.00 s",
            "latency: min 10.00 µs, mean 20.00 µs",
            "p50 20.0",
            "p99.9 29.9",
            "p99.99 unresolved",
            "depths: 32=90.0 %, >=64=10.0 %",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("write") && !text.contains("verify"), "{text}");
    }

    #[test]
    fn faults_and_errors_are_reported() {
        let mut failed = run(0);
        failed.lanes[0].1.error = Some("read failed: gone".to_owned());
        failed.lanes[0].1.verify = VerifyResult { blocks: 9, faults: 2, described: Vec::new() };
        let job = Job { verify: true, ..Job::default() };
        let text = result(&job, "x", &failed);
        for part in ["no request completed", "9 blocks compared, 2 wrong", "and 2 more", "gone"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn the_progress_line_has_60_columns() {
        let mut seen = Progress {
            phase: Phase::Run,
            elapsed: Duration::from_millis(3_700),
            total: Some(Duration::from_secs(10)),
            left: Some(Duration::from_millis(6_300)),
            read_iops: 1_234_000.0,
            write_iops: 0.0,
            trim_iops: 0.0,
            bytes_per_second: 4096.0 * 1_234_000.0,
            p99_ns: Some(12_340),
            faults: 0,
        };
        let line = progress(&seen);
        assert_eq!(line, "run 3.7 s (37 %), 6.3 s left  1.23 M IOPS  p99 12.34 µs  4.71 GiB/s");
        (seen.left, seen.write_iops) = (None, 12_300.0);
        let line = progress(&seen);
        assert!(line.starts_with("run 3.7 s  1.25 M IOPS  p99 12.34 µs"), "{line}");
        assert!(line.ends_with("1.23 M reads, 12.3 K writes a second"), "{line}");
        seen.faults = 2;
        assert!(progress(&seen).starts_with("run 3.7 s  2 WRONG BLOCKS  1.25 M IOPS"));
        let hours =
            [(9, "9.0 s"), (99, "99 s"), (100, "1.7 min"), (3_600, "60 min"), (7_200, "2.0 h")];
        assert!(hours.iter().all(|(s, text)| seconds(Duration::from_secs(*s)) == *text));
    }
}
