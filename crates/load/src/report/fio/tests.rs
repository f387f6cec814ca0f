use super::*;
use crate::job::Rate;
use crate::pattern::Pattern;
use crate::verify::VerifyResult;

fn run(requests: u64) -> RunResult {
    let mut latency = Latency::new();
    (0..requests).for_each(|n| latency.record(1_500 + n));
    let read = DirectionResult {
        requests,
        bytes: requests * 4096,
        measured: Duration::from_secs(2),
        latency,
        completion: None,
        window_iops: vec![900.0, 1_000.0, 1_100.0],
    };
    let lane = LaneResult { read, depth_levels: [0, 0, 0, 0, 0, 9, 1], ..LaneResult::default() };
    let elapsed = Duration::from_millis(2_500);
    RunResult { lanes: vec![(0, lane)], driver: "epoll", elapsed, ..RunResult::default() }
}

fn written(job: &Job, result: &RunResult) -> Value {
    let report = report(job, "memory:1GiB", result, Duration::from_millis(1_741_208_676_700));
    // What a reader gets is the text.
    serde_json::from_str(&report.to_string()).expect("JSON")
}

/// Every path that fio-plot reads, with the type it expects.
#[test]
fn fields_that_fio_plot_reads_are_there() {
    let report = written(&Job { depth: 32, ..Job::default() }, &run(2_000));
    assert!(report["fio version"].as_str().is_some_and(|text| text.starts_with("fio-3.")));
    let job = &report["jobs"][0];
    assert!(job["jobname"].is_string());
    for option in ["iodepth", "numjobs", "bs", "rw"] {
        assert!(job["job options"][option].is_string(), "{option}");
    }
    assert_eq!(job["job options"]["iodepth"], "32");
    assert_eq!(job["job options"]["bs"], "4K");
    for direction in ["read", "write", "trim"] {
        let direction = &job[direction];
        for field in ["bw", "io_bytes", "total_ios", "runtime", "bw_bytes", "iops_samples"] {
            assert!(direction[field].is_u64(), "{field}");
        }
        for field in ["iops", "iops_stddev", "iops_mean", "bw_mean", "bw_dev"] {
            assert!(direction[field].is_f64(), "{field}");
        }
        for field in ["lat_ns", "clat_ns", "slat_ns"] {
            for number in ["min", "max", "mean", "stddev", "N"] {
                assert!(direction[field][number].is_number(), "{field} {number}");
            }
        }
    }
    for field in ["usr_cpu", "sys_cpu"] {
        assert!(job[field].is_f64(), "{field}");
    }
    for (group, size) in [("latency_ns", 10), ("latency_us", 10), ("latency_ms", 12)] {
        let shares = job[group].as_object().expect(group);
        assert_eq!(shares.len(), size, "{group}");
        assert!(shares.values().all(Value::is_f64), "{group}");
    }
    assert!(job.get("steadystate").is_none(), "fio-plot would read its settings");
}

#[test]
fn the_numbers_are_those_of_the_run() {
    let report = written(&Job::default(), &run(2_000));
    let read = &report["jobs"][0]["read"];
    assert_eq!(read["io_bytes"], 8_192_000);
    assert_eq!(read["bw_bytes"], 4_096_000);
    assert_eq!(read["bw"], 4_000);
    assert_eq!(read["iops"], 1_000.0);
    assert_eq!(read["runtime"], 2_000);
    assert_eq!((&read["iops_min"], &read["iops_max"]), (&json!(900), &json!(1_100)));
    assert_eq!(read["iops_stddev"], 100.0);
    assert_eq!(read["bw_mean"], 4_000.0);
    assert_eq!(read["lat_ns"]["min"], 1_500);
    assert_eq!(read["lat_ns"]["mean"], 2_499.5);
    let percentiles = read["clat_ns"]["percentile"].as_object().expect("percentiles");
    let fifty = percentiles["50.000000"].as_f64().expect("a number");
    assert!((fifty / 2_500.0 - 1.0).abs() < 0.01, "{fifty}");
    assert!(percentiles.contains_key("99.500000"), "ten of 2000 are beyond");
    assert!(!percentiles.contains_key("99.900000"), "two of 2000 are beyond");
    assert_eq!(report["jobs"][0]["iodepth_level"]["32"], 90.0);
    assert_eq!(report["timestamp"], 1_741_208_676);
    assert_eq!(report["jobs"][0]["job_start"], 1_741_208_674_200u64);
    assert_eq!(report["jobs"][0]["error"], 0);
}

#[test]
fn latency_groups_hold_every_request_once() {
    let mut result = run(0);
    let latency = &mut result.lanes[0].1.read.latency;
    for ns in [1, 900, 1_000, 1_900, 700_000, 999_000, 3_000_000, 1_500_000_000, 5_000_000_000] {
        latency.record(ns);
    }
    let report = written(&Job::default(), &result);
    let job = &report["jobs"][0];
    let sum: f64 = ["latency_ns", "latency_us", "latency_ms"]
        .iter()
        .flat_map(|group| job[group].as_object().expect(group).values())
        .filter_map(Value::as_f64)
        .sum();
    assert!((sum - 100.0).abs() < 1e-6, "{sum}");
    let ninth = 100.0 / 9.0;
    let close = |value: &Value, expected: f64| {
        value.as_f64().is_some_and(|value| (value - expected).abs() < 1e-6)
    };
    assert!(close(&job["latency_ns"]["1000"], 2.0 * ninth), "{job}");
    assert!(close(&job["latency_us"]["2"], ninth), "{job}");
    assert!(close(&job["latency_ms"]["2000"], ninth), "{job}");
    assert!(close(&job["latency_ms"][">=2000"], ninth), "{job}");
}

#[test]
fn an_open_loop_shows_both_latencies() {
    let mut result = run(100);
    let mut completion = Latency::new();
    (0..100).for_each(|_| completion.record(1_000));
    result.lanes[0].1.read.completion = Some(completion);
    let rate = Some(Rate { iops: 50.0, process: Process::Poisson });
    let report = written(&Job { rate, ..Job::default() }, &result);
    let read = &report["jobs"][0]["read"];
    assert_eq!(read["clat_ns"]["mean"], 1_000.0);
    assert_eq!(read["lat_ns"]["mean"], 1_549.5);
    assert_eq!(read["slat_ns"]["mean"], 549.5);
    assert_eq!(report["jobs"][0]["job options"]["rate_process"], "poisson");
}

#[test]
fn a_failed_run_has_an_error() {
    let mut wrong = run(10);
    wrong.lanes[0].1.verify = VerifyResult { blocks: 3, faults: 1, described: Vec::new() };
    let job = Job { verify: true, pattern: Pattern::RandRw, ..Job::default() };
    let report = written(&job, &wrong);
    assert_eq!(report["jobs"][0]["error"], ERROR_VERIFY);
    assert_eq!(report["jobs"][0]["weft_verify"]["faults"], 1);
    wrong.lanes[0].1.error = Some("gone".to_owned());
    let report = written(&job, &wrong);
    assert_eq!(report["jobs"][0]["error"], ERROR_IO);
    assert_eq!(report["jobs"][0]["weft_error"], "gone");
}

#[test]
fn the_calendar_handles_leap_years() {
    for (seconds, text) in [
        (0, "Thu Jan  1 00:00:00 1970"),
        (951_782_399, "Mon Feb 28 23:59:59 2000"),
        (951_782_400, "Tue Feb 29 00:00:00 2000"),
        (1_741_208_676, "Wed Mar  5 21:04:36 2025"),
        (4_107_542_400, "Mon Mar  1 00:00:00 2100"),
    ] {
        assert_eq!(calendar(Duration::from_secs(seconds)), text);
    }
}
