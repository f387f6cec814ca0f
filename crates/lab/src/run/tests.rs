use super::*;
use std::sync::atomic::Ordering;

use crate::{
    job::{Polling, Rate, processors},
    limits::WINDOW,
    pacer::Process,
    pattern::Pattern,
    verify::FaultKind,
};
use weft_backend::{DeviceSpec, Operation, Request};
use weft_reactor::{Config, Owner, Reactor};

fn device(spec: &str) -> Arc<dyn DeviceFactory> {
    spec.parse::<DeviceSpec>().expect(spec).build().expect(spec)
}

fn run_on(factory: &Arc<dyn DeviceFactory>, job: &Job) -> RunResult {
    run(job, factory, &AtomicBool::new(false), &mut |_| {}).expect("a run")
}

fn counted(pattern: Pattern, requests: u64) -> Job {
    Job { pattern, io_bytes: Some(requests * 4096), depth: 8, ..Job::default() }
}

#[test]
fn every_request_is_counted_once() {
    for spec in ["null:1GiB", "memory:16MiB,block=512"] {
        for pattern in Pattern::ALL {
            let result = run_on(&device(spec), &counted(pattern, 5_000));
            let total = result.total();
            assert_eq!(total.error, None);
            assert_eq!(total.read.requests + total.write.requests, 5_000, "{spec} {pattern}");
            assert_eq!(total.read.latency.count(), total.read.requests);
            assert_eq!(total.write.bytes, total.write.requests * 4096);
            assert_eq!(total.read.requests > 0, pattern.reads());
            assert_eq!(total.write.requests > 0, pattern.writes());
            assert_eq!(total.depth_levels.iter().sum::<u64>(), 5_000);
            assert!(!result.failed());
        }
    }
}

#[test]
fn copies_beyond_the_processors_share_threads() {
    let processors = processors();
    let copies = 4 * processors;
    let alone =
        Job { copies: u32::try_from(copies).expect("few"), ..counted(Pattern::RandRead, 1_000) };
    let result = run_on(&device("null:1GiB"), &alone);
    // A worker is a thread.
    let workers: Vec<usize> = result.lanes.iter().map(|(worker, _)| *worker).collect();
    let expected: Vec<usize> = (0..copies).map(|copy| copy % processors).collect();
    assert_eq!(workers, expected);
    assert_eq!(result.total().read.requests, 1_000 * copies as u64);
    let together = Job { cpus: vec![0], ..alone };
    let result = run_on(&device("memory:1MiB"), &together);
    assert!(result.lanes.iter().all(|(worker, lane)| *worker == 0 && lane.read.requests == 1_000));
}

#[test]
fn two_jobs_run_side_by_side_with_separate_results() {
    let rate = Rate { iops: 2_000.0, process: Process::Fixed };
    let shallow = Job {
        copies: 2,
        rate: Some(rate),
        cpus: vec![0],
        runtime: Some(Duration::from_millis(200)),
        polling: Polling::Sleep,
        ..Job::default()
    };
    let deep = Job { depth: 32, pattern: Pattern::RandWrite, rate: None, ..shallow.clone() };
    let deep = Job { copies: 1, ..deep };
    let factory = device("delay:read=10us,write=10us:memory:1MiB");
    let stop = AtomicBool::new(false);
    let (one, other) =
        run_beside(&shallow, &deep, &factory, &stop, &mut |_| {}).expect("two results");
    assert_eq!((one.lanes.len(), other.lanes.len()), (2, 1));
    let (one, other) = (one.total(), other.total());
    assert_eq!((one.write.requests, other.read.requests), (0, 0));
    assert!((1..=820).contains(&one.read.requests), "{}", one.read.requests);
    assert!(other.write.requests > 0);
}

#[test]
fn a_run_ends_after_its_runtime_and_the_ramp_is_not_measured() {
    let job = Job {
        runtime: Some(Duration::from_millis(300)),
        ramp: Duration::from_millis(100),
        polling: Polling::Sleep,
        ..Job::default()
    };
    let mut phases = Vec::new();
    let result = run(&job, &device("null:1GiB"), &AtomicBool::new(false), &mut |progress| {
        phases.push(progress.phase);
        assert_eq!(progress.total, Some(Duration::from_millis(400)));
    })
    .expect("a run");
    let total = result.total();
    assert!(result.elapsed >= Duration::from_millis(400));
    assert!(total.read.measured >= Duration::from_millis(300));
    assert!(total.read.measured < result.elapsed);
    assert_eq!(total.read.latency.count(), total.read.requests);
    assert!(!phases.is_empty());
}

#[test]
fn a_run_is_stopped_by_its_flag() {
    let stop = AtomicBool::new(false);
    let job = Job { runtime: Some(Duration::from_secs(3600)), ..Job::default() };
    let result = run(&job, &device("null:1GiB"), &stop, &mut |_| {
        stop.store(true, Ordering::Relaxed);
    })
    .expect("a run");
    assert!(result.total().read.requests > 0);
    assert!(result.elapsed >= WINDOW);
    assert_eq!(result.total().error, None);
}

#[test]
fn an_open_loop_keeps_its_rate_and_latency_counts_from_the_due_time() {
    let job = Job {
        rate: Some(Rate { iops: 2_000.0, process: Process::Fixed }),
        io_bytes: Some(400 * 4096),
        depth: 4,
        ..Job::default()
    };
    let result = run_on(&device("null:1GiB"), &job);
    let total = result.total();
    assert_eq!(total.read.requests, 400);
    assert!(result.elapsed >= Duration::from_millis(199), "{:?}", result.elapsed);
    let completion = total.read.completion.as_ref().expect("an open loop");
    assert_eq!(completion.count(), 400);
    assert!(completion.mean_ns() <= total.read.latency.mean_ns());
}

#[test]
fn a_stall_shows_in_every_request_that_it_delayed() {
    // Each request takes 5 ms and only one fits; one is due every millisecond.
    let job = Job {
        rate: Some(Rate { iops: 1_000.0, process: Process::Fixed }),
        io_bytes: Some(40 * 4096),
        ..Job::default()
    };
    let total = run_on(&device("delay:read=5ms:null:1GiB"), &job).total();
    let waited = total.read.latency.max_ns();
    // The fortieth was due after 39 ms and completed after 200 at the earliest.
    assert!(waited >= 155_000_000, "{waited}");
    let completion = total.read.completion.expect("an open loop");
    assert!(completion.min_ns() >= 5_000_000, "{}", completion.min_ns());
}

#[test]
fn percentiles_contain_a_known_delay() {
    let job = Job { depth: 4, ..counted(Pattern::RandRead, 200) };
    let total = run_on(&device("delay:read=2ms:null:1GiB"), &job).total();
    assert!(total.read.latency.min_ns() >= 2_000_000);
    assert!(total.read.latency.percentile_ns(50.0).is_some_and(|p50| p50 >= 2_000_000));
}

#[test]
fn what_was_written_is_read_back_unchanged() {
    for pattern in [Pattern::Write, Pattern::RandWrite, Pattern::ReadWrite, Pattern::RandRw] {
        for spec in ["memory:4MiB,block=512", "memory:4MiB"] {
            let job = Job { verify: true, copies: 2, cpus: vec![0], ..counted(pattern, 2_000) };
            let total = run_on(&device(spec), &job).total();
            assert_eq!(total.error, None);
            assert_eq!(total.verify.faults, 0, "{pattern}: {:?}", total.verify.described);
            assert!(total.verify.blocks > 500, "{pattern}: {}", total.verify.blocks);
            assert_eq!(total.read.requests + total.write.requests, 4_000);
        }
    }
}

#[test]
fn a_later_job_verifies_what_an_earlier_one_wrote() {
    let memory = device("memory:1MiB");
    let write = Job { verify: true, ..counted(Pattern::Write, 256) };
    assert_eq!(run_on(&memory, &write).total().verify.faults, 0);
    let read = Job { pattern: Pattern::Read, ..write };
    let total = run_on(&memory, &read).total();
    assert_eq!((total.verify.blocks, total.verify.faults), (256, 0));
    let empty = run_on(&device("memory:1MiB"), &read);
    assert_eq!(empty.total().verify.faults, 256);
    assert!(empty.failed());
}

#[test]
fn data_that_was_not_stored_is_detected() {
    let job = Job { verify: true, ..counted(Pattern::Write, 100) };
    let result = run_on(&device("null:1MiB"), &job);
    let verify = result.total().verify;
    assert!(result.failed());
    assert!(verify.faults >= 100, "{}", verify.faults);
    assert_eq!(verify.described[0].kind, FaultKind::Zeroes);
}

#[test]
fn a_flipped_byte_is_reported_with_its_offset() {
    use std::os::unix::fs::FileExt;
    let path = std::env::temp_dir().join(format!("weft-lab-flip-{}", std::process::id()));
    let spec = format!("file:{},size=1MiB,direct=off", path.display());
    let file = device(&spec);
    let write = Job { verify: true, ..counted(Pattern::Write, 256) };
    assert_eq!(run_on(&file, &write).total().verify.faults, 0);
    let disk = std::fs::OpenOptions::new().read(true).write(true).open(&path).expect("the file");
    let mut byte = [0];
    disk.read_exact_at(&mut byte, 123_456).expect("a byte");
    disk.write_all_at(&[byte[0] ^ 1], 123_456).expect("a byte");
    let read = Job { pattern: Pattern::Read, ..write };
    let verify = run_on(&file, &read).total().verify;
    std::fs::remove_file(&path).expect("the file");
    assert_eq!((verify.blocks, verify.faults), (256, 1));
    let fault = &verify.described[0];
    assert_eq!((fault.byte_offset, fault.wrong_bytes), (123_456, 1));
    assert_eq!((fault.expected, fault.got), (Some(byte[0]), byte[0] ^ 1));
}

#[test]
fn an_error_ends_the_lane_and_is_reported() {
    let spec = "fault:operation=write,nth=50,effect=media-write:memory:1MiB";
    let job = Job { verify: true, ..counted(Pattern::Write, 1_000) };
    let result = run_on(&device(spec), &job);
    assert!(result.failed());
    let error = result.total().error.expect("an error");
    assert!(error.contains("write of 4096 bytes at offset"), "{error}");
    assert!(error.contains("media-write"), "{error}");
}

#[test]
fn setup_errors_are_reported() {
    let bad = Job { block_bytes: 100, ..Job::default() };
    let error = run(&bad, &device("null:1MiB"), &AtomicBool::new(false), &mut |_| {});
    assert!(matches!(error, Err(RunError::Job(_))), "{error:?}");
    let cpu = Job { cpus: vec![100_000], ..Job::default() };
    let error = run(&cpu, &device("null:1MiB"), &AtomicBool::new(false), &mut |_| {});
    assert!(matches!(&error, Err(RunError::Setup(what)) if what.contains("100000")), "{error:?}");
    let broken = device("fault:operation=read,effect=media-read:memory:1MiB");
    let error = run(&Job::default(), &broken, &AtomicBool::new(false), &mut |_| {});
    assert!(
        matches!(&error, Err(RunError::Setup(what)) if what.contains("media-read")),
        "{error:?}"
    );
}

/// Records the callbacks and their times.
#[derive(Default)]
struct Notes(Vec<(&'static str, Duration)>);

impl RunObserver for Notes {
    fn measurement_begins(&mut self) {
        self.0.push(("begins", monotonic_time()));
    }

    fn measurement_ends(&mut self) {
        self.0.push(("ends", monotonic_time()));
    }
}

#[test]
fn an_observer_is_told_when_measurement_begins_and_ends() {
    let stop = AtomicBool::new(false);
    let job = Job {
        runtime: Some(Duration::from_millis(150)),
        ramp: Duration::from_millis(80),
        polling: Polling::Sleep,
        ..Job::default()
    };
    let mut notes = Notes::default();
    let before = monotonic_time();
    run_observed(&job, &device("delay:read=1ms:memory:1MiB"), &stop, &mut notes).expect("a run");
    let [("begins", begins), ("ends", ends)] = notes.0[..] else { panic!("{:?}", notes.0) };
    assert!(begins - before >= job.ramp && ends - begins >= Duration::from_millis(140));
    let mut notes = Notes::default();
    run_observed(&counted(Pattern::Read, 10), &device("null:1GiB"), &stop, &mut notes)
        .expect("a run");
    let told: Vec<_> = notes.0.iter().map(|(what, _)| *what).collect();
    assert_eq!(told, ["begins", "ends"], "each once, also when a job ends by its requests");
}

#[test]
fn all_submissions_and_idle_time_are_counted() {
    let job = Job {
        runtime: Some(Duration::from_millis(200)),
        ramp: Duration::from_millis(60),
        depth: 4,
        copies: 2,
        ..Job::default()
    };
    for polling in [Polling::Sleep, Polling::Spin, Polling::Adaptive(Duration::from_micros(50))] {
        let job = Job { polling, ..job.clone() };
        let total = run_on(&device("delay:read=2ms:memory:1MiB"), &job).total();
        // `submitted` includes the ramp's requests and the two probes.
        assert!(total.submitted > total.read.requests + 2, "{polling:?}");
        assert!(total.usage.idle > Duration::from_millis(150), "{polling:?}: {:?}", total.usage);
    }
    let busy = run_on(&device("null:1GiB"), &Job { copies: 1, ..job }).total();
    assert!(busy.usage.idle < Duration::from_millis(20), "{:?}", busy.usage);
}

/// Neither the read that every lane begins with nor the reads of a mixed job may leave zeroes in
/// the buffers that are written: a device that compresses would look faster than it is.
#[test]
fn written_data_does_not_compress() {
    for pattern in [Pattern::Write, Pattern::ReadWrite] {
        let factory = device("memory:256KiB");
        let written = run_on(&factory, &counted(pattern, 64)).total().write.requests;
        let mut reactor = Reactor::new(Config::default()).expect("a reactor");
        let mut device = factory.open(&mut reactor, Owner(0)).expect("a device");
        let into = reactor.pool().take(256 << 10).expect("a buffer");
        let operation = Operation::Read { block: 0, blocks: 64, into };
        device.submit(&mut reactor, Request { tag: 0, operation });
        device.flush(&mut reactor);
        let read = device.poll_completion().and_then(|completion| completion.buffer);
        let read = read.expect("data");
        let is_full = |block: &&[u8]| block.iter().filter(|byte| **byte == 0).count() < 64;
        let full = read.chunks(4096).filter(is_full).count();
        assert_eq!(full as u64, written, "{pattern}");
    }
}

/// All that is shown of an open loop on a device of a known delay must be its rate.
#[test]
fn every_window_that_is_shown_is_true() {
    let rate = 2_000.0;
    let job = Job {
        rate: Some(Rate { iops: rate, process: Process::Fixed }),
        ramp: Duration::from_millis(700),
        runtime: Some(Duration::from_millis(1_350)),
        depth: 64,
        copies: 2,
        ..Job::default()
    };
    let mut seen = Vec::new();
    let factory = device("delay:read=2ms:null:1GiB");
    run(&job, &factory, &AtomicBool::new(false), &mut |progress| seen.push(progress.clone()))
        .expect("a run");
    // The ramp's only window, then 500, 500 and the last 350 ms.
    assert_eq!(seen.len(), 4, "{seen:?}");
    for progress in &seen {
        let share = progress.read_iops / (2.0 * rate);
        assert!((0.9..1.1).contains(&share), "{share}: {progress:?}");
        let left = progress.left.expect("a run of a known time").as_secs_f64();
        assert!((left + progress.elapsed.as_secs_f64() - 2.05).abs() < 0.1, "{progress:?}");
    }
}

#[test]
fn what_is_left_of_a_number_of_requests_is_said() {
    let rate = Some(Rate { iops: 200.0, process: Process::Fixed });
    let job = Job { rate, ..counted(Pattern::Write, 320) };
    let mut seen = Vec::new();
    run(&job, &device("memory:4MiB"), &AtomicBool::new(false), &mut |progress| {
        seen.push((progress.elapsed, progress.left.expect("a known number")));
    })
    .expect("a run");
    // 320 writes at 200 a second.
    assert_eq!(seen.len(), 3, "{seen:?}");
    for (elapsed, left) in seen {
        let total = (elapsed + left).as_secs_f64();
        assert!((1.28..1.92).contains(&total), "{total}");
    }
}
