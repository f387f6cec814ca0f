use super::*;
use std::sync::atomic::Ordering;

use crate::job::{Backlog, Extent, LatencyTarget, Polling, Rate, RateMin, Think, processors};
use crate::jobfile::Exit;
use crate::limits::WINDOW;
use crate::logs::Logs;
use crate::pacer::Process;
use crate::pattern::Pattern;
use crate::replay::{Replay, Timing};
use crate::verify::FaultKind;
use weft_backend::{DeviceSpec, Operation, Request};
use weft_reactor::{Config, Owner, Reactor};

fn device(spec: &str) -> Arc<dyn DeviceFactory> {
    spec.parse::<DeviceSpec>().expect(spec).build().expect(spec)
}

fn run_on(factory: &Arc<dyn DeviceFactory>, job: &Job) -> RunResult {
    run(job, factory, &AtomicBool::new(false), &mut |_| {}).expect("a run")
}

fn counted(pattern: Pattern, requests: u64) -> Job {
    Job { pattern, io_size: Some(Extent::Bytes(requests * 4096)), depth: 8, ..Job::default() }
}

#[test]
fn every_request_is_counted_once() {
    for spec in ["null:1GiB", "memory:16MiB,block=512"] {
        for pattern in Pattern::ALL {
            let result = run_on(&device(spec), &counted(pattern, 5_000));
            let total = result.total();
            assert_eq!(total.error, None);
            let requests = total.read.requests + total.write.requests + total.trim.requests;
            let all = if pattern.trims_and_writes() { 10_000 } else { 5_000 };
            assert_eq!(requests, all, "{spec} {pattern}");
            assert_eq!(total.read.latency.count(), total.read.requests);
            assert_eq!(total.write.bytes, total.write.requests * 4096);
            assert_eq!(total.read.requests > 0, pattern.reads());
            assert_eq!(total.write.requests > 0, pattern.writes());
            assert_eq!(total.trim.requests > 0, pattern.trims());
            assert_eq!(total.depth_levels.iter().sum::<u64>(), all);
            assert!(!result.failed());
        }
    }
}

/// Where the callbacks of a run were made.
#[derive(Default)]
struct Places(Vec<Vec<usize>>);

impl RunObserver for Places {
    fn measurement_begins(&mut self) {
        self.0.push(weft_reactor::system::cpus_of_current_thread().expect("processors"));
    }

    fn measurement_ends(&mut self) {
        self.measurement_begins();
    }
}

#[test]
fn who_collects_the_results_runs_on_no_measured_processor_while_one_is_left() {
    let all = weft_reactor::system::cpus_of_current_thread().expect("processors");
    let others = if all.len() > 1 { &all[1..] } else { &all[..] };
    let timed = Job { runtime: Some(Duration::from_millis(50)), ..Job::default() };
    for (cpus, expected) in [(&all[..1], others), (&all[..], &all[..]), (&[], &all[..])] {
        let copies = u32::try_from(cpus.len().max(1)).expect("few");
        let job = Job { cpus: cpus.to_vec(), copies, ..timed.clone() };
        let mut places = Places::default();
        let stop = AtomicBool::new(false);
        run_observed(&job, &device("null:1GiB"), &stop, &mut places).expect("a run");
        assert_eq!(places.0, [expected, expected], "{cpus:?}");
        assert_eq!(weft_reactor::system::cpus_of_current_thread().expect("processors"), all);
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
        time_based: true,
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
        time_based: true,
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
    let job = Job { runtime: Some(Duration::from_secs(3600)), time_based: true, ..Job::default() };
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
        io_size: Some(Extent::Bytes(400 * 4096)),
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
        io_size: Some(Extent::Bytes(40 * 4096)),
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
        time_based: true,
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
        time_based: true,
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
    // Others may have the processor while it looks for completions, but not each time.
    let job = Job { copies: 1, ..job };
    let busy = || run_on(&device("null:1GiB"), &job).total().usage.idle;
    let least = (0..3).map(|_| busy()).min();
    assert!(least < Some(Duration::from_millis(20)), "{least:?}");
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
        let operation = Operation::Read { slba: 0, nlb: 64, into };
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
        time_based: true,
        depth: 64,
        copies: 2,
        ..Job::default()
    };
    let mut seen = Vec::new();
    let factory = device("delay:read=2ms:null:1GiB");
    run(&job, &factory, &AtomicBool::new(false), &mut |progress| seen.push(progress.clone()))
        .expect("a run");
    // The ramp's only window, then 500, 500 and the last 350 ms.
    assert!((3..=4).contains(&seen.len()), "{seen:?}");
    for progress in &seen {
        let share = progress.read_iops / (2.0 * rate);
        // A machine that is busy with others is late, but not by 40 % of half a second.
        assert!((0.7..1.4).contains(&share), "{share}: {progress:?}");
        let left = progress.left.expect("a run of a known time").as_secs_f64();
        let total = left + progress.elapsed.as_secs_f64();
        assert!((total - 2.05).abs() < 0.3, "{progress:?}");
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

#[test]
fn jobs_of_several_kinds_run_at_once_and_wait_for_each_other() {
    let memory = device("memory:4MiB");
    let writes = Job { rate: None, ..counted(Pattern::Write, 1_024) };
    let reads = Job { copies: 2, ..counted(Pattern::Read, 64) };
    let trims = counted(Pattern::RandTrim, 100);
    let mut parts = [&writes, &reads, &trims].map(|job| Part::new(job, &memory));
    parts[1].after = Some(0);
    parts[2].after = Some(1);
    let stop = AtomicBool::new(false);
    let results = run_jobs(&parts, &stop, &mut Windows(&mut |_| {})).expect("three results");
    let [written, read, trimmed] = &results[..] else { panic!("{}", results.len()) };
    assert_eq!(written.total().write.requests, 1_024);
    assert_eq!((read.lanes.len(), read.total().read.requests), (2, 128));
    assert_eq!(trimmed.total().trim.requests, 100);
    assert!(!results.iter().any(RunResult::failed));
}

#[test]
fn a_job_that_ends_its_group_ends_no_other() {
    let null = device("null:1GiB");
    let runtime = Some(Duration::from_secs(3_600));
    let endless = Job { runtime, time_based: true, polling: Polling::Sleep, ..Job::default() };
    let mut parts = [&counted(Pattern::Read, 100), &endless, &endless, &counted(Pattern::Read, 9)]
        .map(|job| Part::new(job, &null));
    (parts[0].exit, parts[2].group, parts[3].group) = (Some(Exit::Group), 1, 1);
    let stop = AtomicBool::new(false);
    let results = run_jobs(
        &parts,
        &stop,
        &mut Windows(&mut |progress| {
            // The second group goes on until somebody stops it.
            if progress.elapsed > Duration::from_millis(800) {
                stop.store(true, Ordering::Relaxed);
            }
        }),
    )
    .expect("four results");
    let measured = |number: usize| results[number].total().read.measured;
    assert!(measured(1) < Duration::from_millis(450), "{:?}", measured(1));
    assert!(measured(2) > Duration::from_millis(750), "{:?}", measured(2));
}

#[test]
fn a_delay_a_pause_and_flushes_are_kept() {
    let delay = Duration::from_millis(50);
    let job = Job {
        start_delay: (delay, delay),
        think: Some(Think { time: Duration::from_millis(10), blocks: 8 }),
        flush_every: 4,
        flush_at_end: true,
        number_ios: Some(64),
        ..counted(Pattern::Write, 1_000)
    };
    let result = run_on(&device("memory:4MiB"), &job);
    let total = result.total();
    assert_eq!(total.write.requests, 64);
    // One after each four writes but the last, and the one at the end.
    assert_eq!(total.flushes.count(), 16);
    assert!(result.elapsed >= delay + 7 * Duration::from_millis(10), "{:?}", result.elapsed);
}

#[test]
fn a_job_covers_its_region_once_and_verification_all_of_it() {
    let job = Job {
        verify: true,
        pattern: Pattern::RandWrite,
        depth: 8,
        size: Some(Extent::Bytes(1 << 20)),
        ..Job::default()
    };
    let memory = device("memory:4MiB");
    let total = run_on(&memory, &job).total();
    assert_eq!(total.write.requests, 256);
    let check = Job { pattern: Pattern::Read, ..job.clone() };
    let total = run_on(&memory, &check).total();
    assert_eq!((total.verify.blocks, total.verify.faults), (256, 0), "none was left out");
    let bytes = Some(b"weft".to_vec());
    let pattern = Job { verify_pattern: bytes.clone(), ..job };
    assert_eq!(run_on(&memory, &pattern).total().verify.faults, 0);
    let read = Job { verify_pattern: bytes, ..check.clone() };
    assert_eq!(run_on(&memory, &read).total().verify.faults, 0);
    assert_eq!(run_on(&memory, &check).total().verify.faults, 256, "these have no headers");
}

#[test]
fn a_copy_that_is_too_slow_has_failed() {
    let job = Job {
        rate: Some(Rate { iops: 100.0, process: Process::Fixed }),
        rate_min: Some(RateMin { iops: 1_000.0, bytes: 0.0, cycle: Duration::from_millis(400) }),
        runtime: Some(Duration::from_secs(30)),
        time_based: true,
        ..Job::default()
    };
    let result = run_on(&device("null:1GiB"), &job);
    assert!(result.elapsed < Duration::from_secs(20), "{:?}", result.elapsed);
    let error = result.total().error.expect("an error");
    assert!(error.contains("below the least that is allowed (1000 and 0)"), "{error}");
}

#[test]
fn requests_of_several_lengths_are_counted_by_their_bytes() {
    use crate::pattern::sizes::Sizes;
    let split = Some(Sizes::Split(vec![(4096, 50), (16_384, 50)]));
    let job = Job {
        sizes: [split.clone(), split, None],
        random_map: false,
        number_ios: Some(2_000),
        size: Some(Extent::Percent(100)),
        loops: 100,
        depth: 4,
        pattern: Pattern::RandRw,
        ..Job::default()
    };
    let total = run_on(&device("memory:4MiB"), &job).total();
    assert_eq!(total.read.requests + total.write.requests, 2_000);
    let mean = (total.read.bytes + total.write.bytes) / 2_000;
    assert!((9_500..11_000).contains(&mean), "{mean}");
}

#[test]
fn trims_are_followed_by_writes_of_the_same_blocks() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = folder.path().join("log").display().to_string();
    let logs = Logs { requests: Some(name), ..Logs::default() };
    let job = Job { number_ios: Some(40), depth: 1, logs, ..counted(Pattern::RandTrimWrite, 64) };
    let result = run_on(&device("memory:1MiB"), &job);
    let issued = &result.lanes[0].1.issued;
    assert_eq!(issued.len(), 80);
    for pair in issued.chunks(2) {
        assert_eq!((pair[0].action, pair[1].action), ("trim", "write"));
        assert_eq!((pair[0].offset, pair[0].bytes), (pair[1].offset, pair[1].bytes));
    }
}

/// What is written is verified after every so many blocks, and only the rest at the end.
#[test]
fn a_backlog_is_verified_before_more_is_written() {
    let backlog = Some(Backlog { blocks: 10, batch: 10 });
    let job = Job { verify: true, verify_backlog: backlog, ..counted(Pattern::RandWrite, 95) };
    for depth in [1, 8] {
        let job = Job { depth, size: Some(Extent::Bytes(95 * 4096)), ..job.clone() };
        let total = run_on(&device("memory:1MiB"), &job).total();
        assert_eq!((total.error, total.write.requests), (None, 95));
        assert_eq!((total.verify.blocks, total.verify.faults), (95, 0));
    }
    // Wrong data is found while there is more to write.
    let lost = device("null:1GiB");
    let endless = Job { number_ios: Some(100), verify_backlog: backlog, ..job.clone() };
    let total = run_on(&lost, &endless).total();
    assert!(total.verify.faults > 50, "{}", total.verify.faults);
    let half = Some(Backlog { blocks: 10, batch: 5 });
    let job = Job { verify_backlog: half, depth: 1, size: Some(Extent::Bytes(95 * 4096)), ..job };
    assert_eq!(run_on(&device("memory:1MiB"), &job).total().verify.blocks, 95, "none is left out");
}

#[test]
fn the_depth_for_a_latency_is_found() {
    let target = LatencyTarget {
        latency: Duration::from_secs(5),
        window: Duration::from_millis(20),
        percentile: 99.0,
        goes_on: false,
    };
    let job = Job { latency_target: Some(target), depth: 11, ..Job::default() };
    let job = Job { time_based: true, runtime: Some(Duration::from_secs(60)), ..job };
    let result = run_on(&device("delay:read=100us:memory:1MiB"), &job);
    assert_eq!(result.total().target.map(|found| found.depth), Some(11));
    assert!(result.elapsed < Duration::from_secs(30), "{:?}", result.elapsed);
    assert!(result.total().depth_levels[0] < result.total().read.requests, "the last window");
    let none = LatencyTarget { latency: Duration::from_micros(50), ..target };
    let job = Job { latency_target: Some(none), ..job };
    let result = run_on(&device("delay:read=1ms:memory:1MiB"), &job);
    assert_eq!(result.total().target.map(|found| found.depth), Some(0));
    assert!(!result.failed());
}

/// Each line has as many numbers as fio's, and they count the requests of its window.
#[test]
fn histograms_are_logged_as_fio_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = folder.path().join("log");
    let every = Duration::from_millis(50);
    for (coarseness, numbers) in [(0, 1856), (3, 232), (6, 29)] {
        let histogram = Some(name.display().to_string());
        let logs = Logs { histogram, histogram_every: every, coarseness, ..Logs::default() };
        let rate = Some(Rate { iops: 1_000.0, process: Process::Fixed });
        let job = Job { logs, rate, ..counted(Pattern::Read, 300) };
        let result = run_on(&device("memory:1MiB"), &job);
        crate::logs::write(&job, "memory:1MiB", &result, 1).expect("a log");
        let text = std::fs::read_to_string(folder.path().join("log_clat_hist.1.log"));
        let mut counted = 0;
        for line in text.expect("the log").lines() {
            let fields: Vec<u64> = line.split(", ").map(|field| field.parse().unwrap()).collect();
            assert_eq!((fields[1], fields[2], fields.len()), (0, 4096, 3 + numbers), "{line}");
            assert!(fields[0] >= 50, "{line}");
            counted += fields[3..].iter().sum::<u64>();
        }
        assert!((1..=300).contains(&counted), "{counted}");
    }
}

/// What one job has recorded another one does again, at the same times.
#[test]
fn a_recording_is_replayed() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = folder.path().join("log").display().to_string();
    let logs = Logs { requests: Some(name.clone()), ..Logs::default() };
    let think = Some(Think { time: Duration::from_millis(20), blocks: 8 });
    let job = Job { logs, think, flush_every: 4, ..counted(Pattern::RandRw, 32) };
    let memory = device("memory:1MiB");
    let first = run_on(&memory, &job);
    crate::logs::write(&job, "memory:1MiB", &first, 1).expect("a log");
    for (kept, pauses) in [(true, 3), (false, 0)] {
        let timing = Timing { is_kept: kept, percent: 100.0 };
        let replay = Some(Arc::new(Replay::read(&name, timing).expect("a recording")));
        let again = Job { replay, logs: job.logs.clone(), depth: 8, ..Job::default() };
        let result = run_on(&memory, &again);
        let requests = |result: &RunResult| -> Vec<_> {
            let issued = result.lanes[0].1.issued.iter();
            issued.map(|one| (one.action, one.offset, one.bytes)).collect()
        };
        assert_eq!(requests(&result), requests(&first));
        assert!(result.elapsed >= Duration::from_millis(19 * pauses), "{:?}", result.elapsed);
        assert_eq!(result.total().flushes.count(), first.total().flushes.count());
    }
}

/// Every half second at the soonest, and as much as there is by then.
#[test]
fn what_there_is_so_far_is_told() {
    struct Statuses(Vec<u64>);
    impl RunObserver for Statuses {
        fn status_interval(&self) -> Option<Duration> {
            Some(Duration::from_millis(400))
        }
        fn status(&mut self, results: &[RunResult]) {
            assert_eq!((results.len(), results[0].lanes.len()), (2, 2));
            self.0.push(results[0].total().read.requests);
        }
    }
    let rate = Some(Rate { iops: 1_000.0, process: Process::Fixed });
    let runtime = Some(Duration::from_millis(1_800));
    let job = Job { copies: 2, rate, runtime, time_based: true, ..Job::default() };
    let null = device("null:1GiB");
    let parts = [Part::new(&job, &null), Part::new(&counted(Pattern::Read, 10), &null)];
    let mut statuses = Statuses(Vec::new());
    let results = run_jobs(&parts, &AtomicBool::new(false), &mut statuses);
    let requests = results.expect("results")[0].total().read.requests;
    assert!(statuses.0.len() >= 2, "{:?}", statuses.0);
    assert!(statuses.0.is_sorted() && statuses.0[0] > 0 && statuses.0[0] < requests);
}

/// Of each window the time since the start and the time left, and when the run ended.
fn told_of(parts: &[Part]) -> (Vec<(Phase, f64, Option<f64>)>, f64) {
    let mut seen = Vec::new();
    let results = run_jobs(
        parts,
        &AtomicBool::new(false),
        &mut Windows(&mut |progress| {
            let left = progress.left.map(|left| left.as_secs_f64());
            seen.push((progress.phase, progress.elapsed.as_secs_f64(), left));
        }),
    );
    let ended = results.expect("results").iter().map(|result| result.elapsed).max();
    (seen, ended.unwrap_or_default().as_secs_f64())
}

/// Whether so much was left, within 20 % and what a window lasts.
fn is_true(elapsed: f64, left: f64, ended: f64) -> bool {
    let really = (ended - elapsed).max(0.0);
    (left - really).abs() <= 0.2 * really + 0.25
}

#[test]
fn what_is_left_is_true_after_a_delay_and_while_blocks_are_read_back() {
    let rate = Some(Rate { iops: 200.0, process: Process::Fixed });
    let delay = Duration::from_secs(1);
    let late = Job { rate, start_delay: (delay, delay), ..counted(Pattern::Write, 320) };
    let size = Some(Extent::Bytes(80 * 4096));
    let verify = Job { verify: true, depth: 1, size, ..counted(Pattern::Write, 80) };
    for (device_of, job, phase) in [
        ("memory:4MiB", late, Phase::Run),
        ("delay:write=5ms,read=25ms:memory:4MiB", verify, Phase::Check),
    ] {
        let (seen, ended) = told_of(&[Part::new(&job, &device(device_of))]);
        let told = |(at, elapsed, left): &(Phase, f64, Option<f64>)| {
            left.filter(|_| *at == phase).map(|left| (*elapsed, left))
        };
        let told: Vec<(f64, f64)> = seen.iter().filter_map(told).collect();
        assert!(told.len() >= 2, "{seen:?}");
        for (elapsed, left) in told {
            assert!(is_true(elapsed, left, ended), "{device_of}: {elapsed} {left} of {ended}");
        }
    }
}

#[test]
fn what_is_left_is_true_of_recordings_searches_and_jobs_that_end_others() {
    let memory = device("memory:4MiB");
    // Long requests at first, short ones later.
    let request =
        |number: u64| format!("/d read 0 {}\n/d wait {}\n", 1 << 18 >> number, number * 400);
    let text: String = (1..=5).map(request).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log").display().to_string();
    let text = format!("fio version 2 iolog\n/d add\n/d open\n{text}/d read 0 4096\n/d close\n");
    std::fs::write(&path, text).expect("a recording");
    let timing = Timing { is_kept: true, percent: 100.0 };
    let replay = Some(Arc::new(Replay::read(&path, timing).expect("a recording")));
    let replayed = Job { replay, block_bytes: 1 << 17, ..Job::default() };
    let endless =
        Job { runtime: Some(Duration::from_secs(3_600)), time_based: true, ..Job::default() };
    let endless = Job { polling: Polling::Sleep, ..endless };
    let short = Job { runtime: Some(Duration::from_millis(1_700)), ..endless.clone() };
    let mut ending = [&endless, &short].map(|job| Part::new(job, &memory));
    ending[1].exit = Some(Exit::Group);
    for parts in [&[Part::new(&replayed, &memory)][..], &ending] {
        let (seen, ended) = told_of(parts);
        assert!(seen.len() >= 3 && ended < 60.0, "{seen:?}");
        for (_, elapsed, left) in seen {
            let left = left.expect("it is known");
            assert!(is_true(elapsed, left, ended), "{elapsed} {left} of {ended}");
        }
    }
    let target = LatencyTarget {
        latency: Duration::from_secs(5),
        window: Duration::from_millis(300),
        percentile: 99.0,
        goes_on: false,
    };
    let search = Job { latency_target: Some(target), depth: 2, ..endless };
    let (seen, _) = told_of(&[Part::new(&search, &memory)]);
    assert!(!seen.is_empty() && seen.iter().all(|(.., left)| left.is_none()), "{seen:?}");
}
