//! Against a program that prints what perf.c of SPDK 26.09-pre (git 3230130e6a) prints, by its
//! formats: no real one is to be had here.

use std::os::unix::fs::PermissionsExt;

use weft_load::Pattern;

use super::*;

/// `print_performance`, `check_cutoff` and `print_bucket`, of two processors and one namespace.
const REPORT: &str = "\
========================================================
                                                           Latency(us)
Device Information          :       IOPS      MiB/s    Average        min        max
TCP (addr:192.0.2.1 subnqn:nqn.x:disk) NSID 1 from core  0:    2000.00       7.81 \
      15.00      10.00      90.00
TCP (addr:192.0.2.1 subnqn:nqn.x:disk) NSID 1 from core  1:    1000.00       3.91 \
      15.00      10.00      20.00
========================================================
Total                       :    3000.00      11.72      15.00      10.00      90.00

Summary latency data for TCP (addr:192.0.2.1 subnqn:nqn.x:disk) NSI from core 0:
=================================================================================
  1.00000% :    10.100us
 50.00000% :    10.100us
 99.00000% :    90.100us

Summary latency data for TCP (addr:192.0.2.1 subnqn:nqn.x:disk) NSI from core 1:
=================================================================================
  1.00000% :    10.100us

Latency histogram for TCP (addr:192.0.2.1 subnqn:nqn.x:disk) NSI from core 0:
==============================================================================
       Range in us     Cumulative    IO count
   10.000 -    10.100:   95.0000%  (     1900)
   90.000 -    90.100:  100.0000%  (      100)

Latency histogram for TCP (addr:192.0.2.1 subnqn:nqn.x:disk) NSI from core 1:
==============================================================================
       Range in us     Cumulative    IO count
   10.000 -    10.100:  100.0000%  (     1000)

";

fn perf(program: PathBuf, targets: usize) -> Perf {
    let target: TransportId =
        "nvme-tcp://192.0.2.1:4420/nqn.2024-01.io.example:disk".parse().expect("an address");
    let targets = vec![target; targets];
    let from = Some("192.0.2.9".parse().expect("an address"));
    Perf { program, targets, nsid: 1, from, hdr_digest: true, data_digest: false }
}

fn job() -> Job {
    Job {
        pattern: Pattern::RandRead,
        depth: 32,
        copies: 4,
        cpus: vec![2, 5],
        runtime: Some(Duration::from_millis(900)),
        ramp: Duration::ZERO,
        ..Job::default()
    }
}

#[test]
fn it_is_asked_in_its_own_words() {
    let words = perf(PathBuf::new(), 1).words(&job()).expect("words").join(" ");
    let expected = "-q 64 -P 2 -o 4096 -w randread -c [2,5] -t 1 -L -L -H -r \
                    ns:1 hostaddr:192.0.2.9 trtype:TCP adrfam:IPv4 traddr:192.0.2.1 trsvcid:4420 \
                    subnqn:nqn.2024-01.io.example:disk";
    assert_eq!(words, expected);
    let ramp = Duration::from_millis(1500);
    let two = Job { copies: 4, ramp, ..job() };
    let words = perf(PathBuf::new(), 2).words(&two).expect("words").join(" ");
    assert!(words.contains("-q 32 -P 1 ") && words.contains(" -a 2 "), "{words}");
    assert!(words.contains("--use-every-core") && words.matches("-r ns:1 ").count() == 2);
    let fewer = Job { copies: 1, ..job() };
    let words = perf(PathBuf::new(), 1).words(&fewer).expect("words").join(" ");
    assert!(words.contains("-c [2] "), "{words}");
    let mix = Job { pattern: Pattern::RandRw, read_percent: 70.0, ..job() };
    let words = perf(PathBuf::new(), 1).words(&mix).expect("words").join(" ");
    assert!(words.contains(" -w randrw ") && words.contains(" -M 70 "), "{words}");
    let odd = Job { copies: 3, ..job() };
    assert!(perf(PathBuf::new(), 1).words(&odd).is_err_and(|why| why.contains("3 jobs")));
    let rate = weft_load::Rate { iops: 10.0, process: weft_load::pacer::Process::Fixed };
    let paced = Job { rate: Some(rate), ..job() };
    assert!(perf(PathBuf::new(), 1).words(&paced).is_err());
}

#[test]
fn its_report_is_read() {
    let found = report(REPORT).expect("a report");
    assert!((found.iops - 3000.0).abs() < 1e-9);
    assert_eq!(found.latency.count(), 3000);
    let close = |ns: Option<u64>, us: f64| {
        let ns = ns.expect("a percentile") as f64;
        assert!((ns / 1e3 - us).abs() < 1.0, "{ns} ns is not {us} µs");
    };
    close(found.latency.percentile_ns(50.0), 10.05);
    close(found.latency.percentile_ns(99.0), 90.05);
    for text in ["", "Total : x", "Latency histogram for x\n10.000 - y: 1% (3)\n"] {
        assert!(report(text).is_none(), "{text}");
    }
    let without = REPORT.split("Latency histogram").next().expect("a part");
    assert!(report(without).is_none(), "a report without its histogram");
}

/// A program that sets itself up, works for its time and prints a report.
fn program(folder: &tempfile::TempDir, script: &str) -> PathBuf {
    let path = folder.path().join("spdk_nvme_perf");
    fs::write(folder.path().join("report"), REPORT).expect("a file");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
    path
}

/// Counts what it is told.
#[derive(Default)]
struct EventCounts {
    begins: u32,
    ends: u32,
}

impl RunObserver for EventCounts {
    fn measurement_begins(&mut self) {
        self.begins += 1;
    }

    fn measurement_ends(&mut self) {
        self.ends += 1;
    }
}

#[test]
fn a_run_has_its_requests_its_latencies_and_its_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!(
        "echo \"$@\" >{0}/words\necho Attached\necho '{LAUNCHED}'\nsleep 1.2\ncat {0}/report",
        folder.path().display()
    );
    let perf = perf(program(&folder, &script), 1);
    let mut seen = EventCounts::default();
    let result = perf.run(&job(), &AtomicBool::new(false), &mut seen).expect("a result");
    assert_eq!((seen.begins, seen.ends), (1, 1));
    let total = result.total();
    assert_eq!((total.read.requests, total.read.bytes), (3000, 3000 * 4096));
    assert!((total.read.iops() - 3000.0).abs() < 1.0);
    assert!(!result.interrupted && total.write.requests == 0);
    let words = fs::read_to_string(folder.path().join("words")).expect("its words");
    assert!(words.contains("-w randread") && words.contains("subnqn:nqn.2024"), "{words}");
    let write = Job { pattern: Pattern::RandWrite, ..job() };
    let result =
        perf.run(&write, &AtomicBool::new(false), &mut EventCounts::default()).expect("a result");
    assert_eq!((result.total().write.requests, result.total().read.requests), (3000, 0));
    let mix = Job { pattern: Pattern::RandRw, ..job() };
    let result =
        perf.run(&mix, &AtomicBool::new(false), &mut EventCounts::default()).expect("a result");
    assert_eq!((result.total().write.requests, result.total().read.requests), (0, 3000));
}

#[test]
fn what_goes_wrong_is_a_sentence_and_leaves_no_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |script: &str, stop: bool| {
        let perf = perf(program(&folder, script), 1);
        perf.run(&job(), &AtomicBool::new(stop), &mut EventCounts::default())
    };
    let why = run("echo 'EAL: no hugepages' >&2\nexit 3", false).expect_err("it failed");
    assert!(why.contains("exit status: 3") && why.ends_with("EAL: no hugepages"), "{why}");
    let why = run(&format!("echo '{LAUNCHED}'\nsleep 1.1\necho nothing"), false);
    assert!(why.is_err_and(|why| why.contains("no report that is known")));
    let pid = folder.path().join("pid");
    let script = format!("echo $$ >{}\nexec sleep 60", pid.display());
    let stopping = AtomicBool::new(false);
    let perf = perf(program(&folder, &script), 1);
    thread::scope(|scope| {
        scope.spawn(|| {
            let written = || fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n'));
            while !written() {
                thread::sleep(LOOK);
            }
            stopping.store(true, Ordering::Relaxed);
        });
        let result =
            perf.run(&job(), &stopping, &mut EventCounts::default()).expect("it was stopped");
        assert!(result.interrupted);
    });
    let pid = fs::read_to_string(&pid).expect("a number");
    assert!(!PathBuf::from(format!("/proc/{}", pid.trim())).exists(), "it runs on");
    let why = find("/nowhere/perf").expect_err("no such file");
    assert!(why.contains("/nowhere/perf"), "{why}");
}
