//! Results in fio's terse format: a line of values for each job, separated by semicolons.

use std::fmt::Write;

use super::human::cpu_percent;
use super::{Entry, fio};
use crate::histogram::Latency;
use crate::job::Job;
use crate::statistics::{DirectionResult, Summary};

/// fio's versions of the format.
pub const VERSIONS: std::ops::RangeInclusive<u32> = 2..=5;

/// The percentiles that a line has room for.
const PERCENTILES_MAX: usize = 20;

/// A line for each job. There is no utilisation of disks, as for devices that have none in fio.
#[must_use]
pub fn lines(entries: &[Entry], version: u32) -> String {
    entries.iter().map(|entry| line(entry, version)).collect()
}

fn line(entry: &Entry, version: u32) -> String {
    let total = entry.result.total();
    let (name, group, error) = (&entry.job.name, entry.group, fio::error(&total));
    let mut text = match version {
        2 => format!("2;{name};{group};{error}"),
        _ => format!("{version};{};{name};{group};{error}", fio::FIO_VERSION),
    };
    let directions = [&total.read, &total.write, &total.trim];
    for one in &directions[..if version == 3 { 2 } else { 3 }] {
        text += &direction(&entry.job, one, version);
    }
    let (user, system) = cpu_percent(&total, entry.result.workers());
    let usage = &total.usage;
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        ";{user:.6}%;{system:.6}%;{};{};{}",
        usage.context_switches, usage.major_faults, usage.minor_faults
    );
    let all = total.depth_levels.iter().sum::<u64>().max(1) as f64;
    for times in total.depth_levels {
        let _ = write!(text, ";{:.1}%", 100.0 * times as f64 / all);
    }
    let mut latency = total.read.latency.clone();
    latency.add(&total.write.latency);
    latency.add(&total.trim.latency);
    let mut low = 0.0;
    for (name, shares) in fio::latency_groups(&latency) {
        for (at, share) in shares.as_object().into_iter().flatten() {
            let share = share.as_f64().unwrap_or(0.0);
            // What took less than a microsecond is in the first of the microseconds.
            low += if name == "latency_ns" { share } else { 0.0 };
            let is_first = name == "latency_us" && at == "2";
            if name != "latency_ns" {
                let _ = write!(text, ";{:.2}%", if is_first { share + low } else { share });
            }
        }
    }
    text + "\n"
}

fn direction(job: &Job, of: &DirectionResult, version: u32) -> String {
    let millis = of.measured.as_millis();
    let kib = of.bytes_per_second() / 1024.0;
    let mut text = format!(";{};{kib:.0};{:.0};{millis}", of.bytes / 1024, of.iops());
    let completion = of.completion.as_ref().unwrap_or(&of.latency);
    let wait_us = (of.latency.mean_ns() - completion.mean_ns()).max(0.0) / 1e3;
    // Of the wait before the submission only the mean is known.
    let _ = write!(text, ";0;0;{wait_us:.6};0.000000");
    text += &ends(completion);
    let ranked = if job.percentiles_of_lat { &of.latency } else { completion };
    let listed = job.percentiles.as_deref().unwrap_or(&fio::PERCENTILES);
    for number in 0..PERCENTILES_MAX {
        match listed.get(number) {
            Some(percentile) => {
                // fio has a number for each; one that is not resolved is the maximum.
                let ns = ranked.percentile_ns(*percentile).unwrap_or(ranked.max_ns());
                let _ = write!(text, ";{percentile:.6}%={}", ns / 1000);
            }
            None => text.push_str(";0%=0"),
        }
    }
    text += &ends(&of.latency);
    let iops = Summary::of(of.window_iops.iter().copied());
    let each_kib = of.bytes as f64 / of.requests.max(1) as f64 / 1024.0;
    let share = if of.requests > 0 { 100.0 } else { 0.0 };
    let of_iops = |factor: f64| {
        let Summary { min, max, mean, stddev, .. } = iops;
        (min * factor, max * factor, mean * factor, stddev * factor)
    };
    let (min, max, mean, stddev) = of_iops(each_kib);
    let _ = write!(text, ";{min:.0};{max:.0};{share:.6}%;{mean:.6};{stddev:.6}");
    if version == 5 {
        let (min, max, mean, stddev) = of_iops(1.0);
        let count = iops.count;
        let _ = write!(text, ";{count};{min:.0};{max:.0};{mean:.6};{stddev:.6};{count}");
    }
    text
}

/// Minimum, maximum, mean and deviation in microseconds.
fn ends(latency: &Latency) -> String {
    format!(
        ";{};{};{:.6};{:.6}",
        latency.min_ns() / 1000,
        latency.max_ns() / 1000,
        latency.mean_ns() / 1e3,
        latency.stddev_ns() / 1e3
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LaneResult, RunResult};
    use std::time::Duration;

    fn entry() -> Entry {
        let mut latency = Latency::new();
        (0..1000).for_each(|n| latency.record(10_000 + n * 1_000));
        latency.record(400);
        let read = DirectionResult {
            requests: 1001,
            bytes: 1001 * 4096,
            measured: Duration::from_secs(2),
            latency,
            completion: None,
            window_iops: vec![500.0, 501.0],
        };
        let lane =
            LaneResult { read, depth_levels: [9, 1, 0, 0, 0, 0, 0], ..LaneResult::default() };
        let result = RunResult { lanes: vec![(0, lane)], ..RunResult::default() };
        Entry { group: 0, job: Job::default(), device: "null:1GiB".to_owned(), result }
    }

    /// The numbers of fields are those of fio 3.33's lines for a null device.
    #[test]
    fn lines_have_as_many_fields_as_fios() {
        for (version, fields) in [(2, 161), (3, 121), (4, 162), (5, 180)] {
            let line = lines(&[entry()], version);
            assert_eq!(line.trim_end().split(';').count(), fields, "{version}: {line}");
        }
    }

    #[test]
    fn values_are_where_fio_has_them() {
        let line = lines(&[entry()], 3);
        let fields: Vec<&str> = line.trim_end().split(';').collect();
        assert_eq!((fields[0], fields[2], fields[5]), ("3", "weft", "4004"));
        assert_eq!((fields[6], fields[7], fields[8]), ("2002", "500", "2000"));
        // The wait; then completions in µs.
        assert_eq!(fields[9..13], ["0", "0", "0.000000", "0.000000"]);
        assert_eq!((fields[13], fields[14]), ("0", "1009"));
        assert!(fields[23].starts_with("50.000000%=50"), "{}", fields[23]);
        assert_eq!(fields[36], "0%=0");
        assert_eq!((fields[92], fields[93]), ("90.0%", "10.0%"));
        // At most 2 µs: one of 1001.
        assert_eq!(fields[99], "0.10%");
    }

    /// At a rate they differ; the ends of completions stay theirs.
    #[test]
    fn percentiles_are_those_of_lat_where_these_are_asked_for() {
        let mut entry = entry();
        let mut completion = Latency::new();
        (0..1000).for_each(|_| completion.record(3_000));
        entry.result.lanes[0].1.read.completion = Some(completion);
        let fields = |entry: &Entry| -> Vec<String> {
            lines(std::slice::from_ref(entry), 3).split(';').map(str::to_owned).collect()
        };
        let plain = fields(&entry);
        entry.job.percentiles_of_lat = true;
        let of_lat = fields(&entry);
        assert_eq!(plain[23], "50.000000%=3");
        assert!(of_lat[23].starts_with("50.000000%=50"), "{}", of_lat[23]);
        assert_eq!(plain[..17], of_lat[..17]);
        assert_eq!(plain[37..], of_lat[37..]);
    }
}
