//! Results in the format of fio 3's `--output-format=json`, for programs that read it (such as
//! fio-plot).
//!
//! Values that weft does not have are left out or marked: `slat_ns` is the wait between due time
//! and submission and exists in an open loop only, with a mean and a bound, and a percentile that
//! the samples do not resolve is missing. All copies of a job are one entry, as with
//! `group_reporting`. `disk_util` is added by who knows the disks
//! ([`Disks`](super::disks::Disks)).

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Entry;
use super::human::cpu_percent;
use crate::calendar::Date;
use crate::histogram::Latency;
use crate::job::{Extent, Job, LatencyTarget};
use crate::pacer::Process;
use crate::statistics::{
    BATCH_LEVELS, DEPTH_LEVELS, DirectionResult, LaneResult, RunResult, Summary,
};
use crate::units;

/// The version of fio whose format this is; readers compare the number.
pub const FIO_VERSION: &str = concat!("fio-3.36-weft-", env!("CARGO_PKG_VERSION"));

/// fio's default percentiles.
pub(super) const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

/// Upper ends of fio's latency groups, of each unit.
const GROUPS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];

/// `EIO` and `EILSEQ`: what fio's `error` says about a failed request and about wrong data.
const ERROR_IO: i32 = 5;
const ERROR_VERIFY: i32 = 84;

/// A result as fio's JSON.
///
/// `device` names the device; `ended` is the time of the end, since 1970.
#[must_use]
pub fn report(job: &Job, device: &str, result: &RunResult, ended: Duration) -> Value {
    let (job, device, result) = (job.clone(), device.to_owned(), result.clone());
    reports(&[Entry { group: 0, job, device, result }], ended)
}

/// The results of several jobs.
#[must_use]
pub fn reports(results: &[Entry], ended: Duration) -> Value {
    written(results, ended, false)
}

/// The results of several jobs as `json+`: with how often each latency occurred.
#[must_use]
pub fn reports_with_bins(results: &[Entry], ended: Duration) -> Value {
    written(results, ended, true)
}

fn written(results: &[Entry], ended: Duration, bins: bool) -> Value {
    let entries = results.iter().map(|one| {
        let mut entry = entry(one, ended);
        if bins {
            put_bins(&mut entry, &one.result.total());
        }
        entry
    });
    let entries = entries.collect::<Vec<Value>>();
    json!({
        "fio version": FIO_VERSION,
        "timestamp": ended.as_secs(),
        "timestamp_ms": millis(ended),
        "time": calendar(ended),
        "global options": {},
        "jobs": entries,
    })
}

/// As fio: of latencies, and of completions where those differ. Its own scripts take the first bin
/// of what has bins, so that what has no samples has none.
fn put_bins(entry: &mut Value, total: &LaneResult) {
    let mut put = |of: &str, field: &str, latency: &Latency| {
        if latency.count() > 0 {
            let counts = latency.raw().map(|(ns, count)| (ns.to_string(), json!(count)));
            entry[of][field]["bins"] = Value::Object(counts.collect());
        }
    };
    for (name, direction) in [("read", &total.read), ("write", &total.write), ("trim", &total.trim)]
    {
        put(name, "clat_ns", direction.completion.as_ref().unwrap_or(&direction.latency));
        put(name, "lat_ns", &direction.latency);
    }
    put("sync", "lat_ns", &total.flushes);
}

fn entry(of: &Entry, ended: Duration) -> Value {
    let Entry { job, device, result, .. } = of;
    let total = &result.total();
    let (user, system) = cpu_percent(total, result.workers());
    let measured = total.read.measured.max(total.write.measured).max(total.trim.measured);
    let mut entry = json!({
        "jobname": job.name,
        "groupid": of.group,
        "job_start": millis(ended.saturating_sub(result.elapsed)),
        "error": error(total),
        "eta": 0,
        "elapsed": millis(result.elapsed).div_ceil(1000),
        "job options": options(job, device),
        "read": direction(job, &total.read),
        "write": direction(job, &total.write),
        "trim": direction(job, &total.trim),
        "sync": {
            "total_ios": total.flushes.count(),
            "lat_ns": latency(&total.flushes, &PERCENTILES),
        },
        "job_runtime": millis(measured),
        "usr_cpu": user,
        "sys_cpu": system,
        "ctx": total.usage.context_switches,
        "majf": total.usage.major_faults,
        "minf": total.usage.minor_faults,
        "iodepth_level": shares(DEPTH_LEVELS, total.depth_levels),
        "iodepth_submit": shares(BATCH_LEVELS, total.submit_levels),
        "iodepth_complete": shares(BATCH_LEVELS, total.complete_levels),
    });
    let mut both = total.read.latency.clone();
    both.add(&total.write.latency);
    both.add(&total.trim.latency);
    if let Value::Object(fields) = &mut entry {
        fields.extend(latency_groups(&both));
        fields.extend(latency_target(job, total));
        if let Some(error) = &total.error {
            fields.insert("weft_error".to_owned(), json!(error));
        }
        if job.verify {
            let described: Vec<String> =
                total.verify.described.iter().map(ToString::to_string).collect();
            let verify = json!({
                "blocks": total.verify.blocks,
                "faults": total.verify.faults,
                "described": described,
            });
            fields.insert("weft_verify".to_owned(), verify);
        }
        if result.interrupted {
            fields.insert("weft_interrupted".to_owned(), json!(true));
        }
        fields.insert("weft_driver".to_owned(), json!(result.driver));
    }
    entry
}

/// What is said of `latency_target`, with or without one: the target in ns and the window in µs,
/// as in fio.
fn latency_target(job: &Job, total: &LaneResult) -> Map<String, Value> {
    let whole = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
    let of = |target: &LatencyTarget| {
        (whole(target.latency.as_nanos()), target.percentile, whole(target.window.as_micros()))
    };
    let (target, percentile, window) = job.latency_target.as_ref().map_or((0, 100.0, 0), of);
    let depth = total.target.map_or(job.depth, |target| target.depth);
    Map::from_iter([
        ("latency_depth".to_owned(), json!(depth)),
        ("latency_target".to_owned(), json!(target)),
        ("latency_percentile".to_owned(), json!(percentile)),
        ("latency_window".to_owned(), json!(window)),
    ])
}

/// fio's number for what went wrong.
pub(super) fn error(total: &LaneResult) -> i32 {
    match (&total.error, total.verify.faults) {
        (Some(_), _) => ERROR_IO,
        (None, 0) => 0,
        (None, _) => ERROR_VERIFY,
    }
}

/// The job's options as texts, as fio writes them.
fn options(job: &Job, device: &str) -> Value {
    let mut options = Map::new();
    let mut put = |name: &str, value: String| {
        options.insert(name.to_owned(), Value::String(value));
    };
    put("name", job.name.clone());
    put("ioengine", "weft".to_owned());
    put("filename", device.to_owned());
    put("rw", job.pattern.name().to_owned());
    put("bs", weft_backend::bytes::exact(u64::from(job.block_bytes)).replace("iB", ""));
    put("iodepth", job.depth.to_string());
    put("numjobs", job.copies.to_string());
    put("group_reporting", "1".to_owned());
    put("randseed", job.seed.to_string());
    if job.pattern.reads() && job.pattern.writes() {
        put("rwmixread", job.read_percent.to_string());
    }
    if let Some(runtime) = job.runtime {
        put("runtime", seconds(runtime));
    }
    if job.time_based {
        put("time_based", "1".to_owned());
    }
    if !job.has_map() && job.pattern.is_random() {
        put("norandommap", "1".to_owned());
    }
    if !job.ramp.is_zero() {
        put("ramp_time", seconds(job.ramp));
    }
    for (name, extent) in [
        ("offset", Some(job.offset).filter(|offset| *offset != Extent::Bytes(0))),
        ("size", job.size),
        ("io_size", job.io_size),
    ] {
        match extent {
            Some(Extent::Bytes(bytes)) => put(name, bytes.to_string()),
            Some(Extent::Percent(percent)) => put(name, format!("{percent}%")),
            None => {}
        }
    }
    if let Some(rate) = job.rate {
        put("rate_iops", rate.iops.to_string());
        let process = match rate.process {
            Process::Fixed => "linear",
            Process::Poisson => "poisson",
        };
        put("rate_process", process.to_owned());
    }
    if !job.cpus.is_empty() {
        let cpus: Vec<String> = job.cpus.iter().map(ToString::to_string).collect();
        put("cpus_allowed", cpus.join(","));
    }
    if job.verify {
        let name = if job.verify_pattern.is_some() { "pattern" } else { job.checksum.name() };
        put("verify", name.to_owned());
    }
    Value::Object(options)
}

fn direction(job: &Job, direction: &DirectionResult) -> Value {
    let open = direction.completion.as_ref();
    let iops = Summary::of(direction.window_iops.iter().copied());
    let kib = direction.bytes as f64 / direction.requests.max(1) as f64 / 1024.0;
    let bandwidth = Summary::of(direction.window_iops.iter().map(|iops| iops * kib));
    let percentiles = job.percentiles.as_deref().unwrap_or(&PERCENTILES);
    let bytes_per_second = direction.bytes_per_second();
    json!({
        "io_bytes": direction.bytes,
        "io_kbytes": direction.bytes / 1024,
        "bw_bytes": rounded(bytes_per_second),
        "bw": rounded(bytes_per_second / 1024.0),
        "iops": direction.iops(),
        "runtime": millis(direction.measured),
        "total_ios": direction.requests,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": waiting(&direction.latency, open),
        "clat_ns": latency(open.unwrap_or(&direction.latency), percentiles),
        "lat_ns": latency(&direction.latency, percentiles),
        "bw_min": rounded(bandwidth.min),
        "bw_max": rounded(bandwidth.max),
        "bw_agg": if direction.requests > 0 { 100.0 } else { 0.0 },
        "bw_mean": bandwidth.mean,
        "bw_dev": bandwidth.stddev,
        "bw_samples": bandwidth.count,
        "iops_min": rounded(iops.min),
        "iops_max": rounded(iops.max),
        "iops_mean": iops.mean,
        "iops_stddev": iops.stddev,
        "iops_samples": iops.count,
    })
}

fn latency(latency: &Latency, percentiles: &[f64]) -> Value {
    let mut fields = json!({
        "min": latency.min_ns(),
        "max": latency.max_ns(),
        "mean": latency.mean_ns(),
        "stddev": latency.stddev_ns(),
        "N": latency.count(),
    });
    if !percentiles.is_empty() && latency.count() > 0 {
        let resolved = percentiles.iter().filter_map(|percentile| {
            Some((format!("{percentile:.6}"), json!(latency.percentile_ns(*percentile)?)))
        });
        fields["percentile"] = Value::Object(resolved.collect());
    }
    fields
}

/// How long requests of an open loop waited before they were submitted: only the mean of the
/// difference is known.
fn waiting(latency: &Latency, completion: Option<&Latency>) -> Value {
    let Some(completion) = completion else { return self::latency(&Latency::new(), &[]) };
    let mean = (latency.mean_ns() - completion.mean_ns()).max(0.0);
    // Only the mean is known: no wait was longer than the whole.
    let most = if mean > 0.0 { latency.max_ns() } else { 0 };
    json!({ "min": 0, "max": most, "mean": mean, "stddev": 0.0, "N": latency.count() })
}

/// Of how often something was at each level, the shares in percent.
fn shares(names: [&str; 7], times: [u64; 7]) -> Value {
    let all = times.iter().sum::<u64>();
    let levels = names.into_iter().zip(times);
    Value::Object(
        levels.map(|(level, times)| (level.to_owned(), json!(percent(times, all)))).collect(),
    )
}

/// fio's three groups: nanoseconds up to a microsecond, microseconds up to a millisecond, and
/// milliseconds.
pub(super) fn latency_groups(latency: &Latency) -> Vec<(String, Value)> {
    let all = latency.count();
    let mut groups = Vec::with_capacity(3);
    let mut low_ns = 0;
    for (name, unit_ns) in [("latency_ns", 1), ("latency_us", 1_000), ("latency_ms", 1_000_000)] {
        let mut shares = Map::new();
        for end in GROUPS {
            let high_ns = end * unit_ns;
            let share = percent(latency.count_between(low_ns, high_ns), all);
            if high_ns > low_ns {
                shares.insert(end.to_string(), json!(share));
                low_ns = high_ns;
            } else {
                shares.insert(end.to_string(), json!(0.0));
            }
        }
        if name == "latency_ms" {
            let slow = latency.count_between(low_ns, 2 * low_ns);
            shares.insert("2000".to_owned(), json!(percent(slow, all)));
            let slower = latency.count_between(2 * low_ns, u64::MAX);
            shares.insert(">=2000".to_owned(), json!(percent(slower, all)));
        }
        groups.push((name.to_owned(), Value::Object(shares)));
    }
    groups
}

fn percent(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { 100.0 * part as f64 / all as f64 }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn seconds(time: Duration) -> String {
    format!("{}", time.as_secs_f64())
}

fn rounded(number: f64) -> u64 {
    units::whole(number.round())
}

/// The time as `ctime` writes it, in UTC: `Wed Mar  5 22:04:36 2025`.
fn calendar(since_1970: Duration) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let date = Date::of(since_1970);
    let name = |names: &[&'static str], index: u64| {
        usize::try_from(index).ok().and_then(|index| names.get(index)).copied().unwrap_or_default()
    };
    let (weekday, month) = (name(&DAYS, date.weekday), name(&MONTHS, date.month - 1));
    format!("{weekday} {month} {:>2} {} {}", date.day, date.time_text(), date.year)
}

#[cfg(test)]
mod tests;
