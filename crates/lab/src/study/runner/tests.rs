use std::sync::atomic::Ordering;

use weft_load::Progress;

use super::*;
use crate::results::{Connection, LinkProbe, Mark, file};
use crate::study::launch::{StartedTarget, TargetSpec};
use crate::study::plan::Run;

const HEAD: &str = r#"
    name = "mine"
    title = "Mine"
    question = "What then?"
    source = { document = "weft", figure = "none" }
    [measure]
    runtime = "20ms"
    ramp = "5ms"
    settle = "0s"
"#;

fn plan(measure: &str, rest: &str) -> Plan {
    let mut plan: Plan = format!("{HEAD}{measure}\n{rest}").parse().expect("a plan");
    plan.run = Some(Run { seed: 5, ..Run::default() });
    plan
}

/// A launcher that cannot start anything.
struct Broken;

impl Launcher for Broken {
    fn launch(&self, _: &TargetSpec, _: Option<IpAddr>) -> Result<Box<dyn StartedTarget>, String> {
        Err("no target can be started".to_owned())
    }
}

/// Records the callbacks.
#[derive(Default)]
struct Notes {
    begun: Vec<String>,
    positions: Vec<(usize, usize)>,
    /// The time left before each step, the same at the most, and when that was.
    left: Vec<(Duration, Duration, Duration)>,
    records: usize,
    stop: AtomicBool,
    /// A directory that is removed meanwhile.
    removes: Option<std::path::PathBuf>,
}

impl StudyObserver for Notes {
    fn begins(&mut self, position: &Position, what: &str) {
        if let Some(directory) = self.removes.take() {
            fs::remove_dir_all(directory).expect("a directory");
        }
        self.begun.push(what.to_owned());
        self.positions.push((position.done, position.all));
        self.left.push((position.left, position.left_most, monotonic_time()));
    }

    fn progress(&mut self, _: &Position, _: &str, _: &Progress) {}

    fn ends(&mut self, _: &Position, records: &[Record]) {
        self.records += records.len();
    }

    fn note(&mut self, _: &str) {}
}

struct Bench {
    directory: tempfile::TempDir,
    local: &'static str,
    capabilities: Capabilities,
}

impl Bench {
    fn new() -> Self {
        let capabilities =
            Capabilities { cpus: vec![0], own_target: true, ..Capabilities::default() };
        Self {
            directory: tempfile::tempdir().expect("a directory"),
            local: "null:1GiB",
            capabilities,
        }
    }

    fn run(&self, plan: &Plan, notes: &mut Notes) -> Result<Outcome, StartError> {
        let mut store = Store::open(self.directory.path()).expect("a store");
        let settings = Settings {
            plan,
            capabilities: &self.capabilities,
            local: Some(self.local.parse().expect("a device")),
            given: Vec::new(),
            fleet: None,
            linux: None,
            rdma: Provider::System,
            driver: DriverKind::Auto,
            precondition: None,
            fio: false,
            rerun_command: "weft study run mine".to_owned(),
            wall_ms: &|| 42,
            // A known link is not probed again.
            environment: Environment {
                schema: SCHEMA,
                link: vec![Default::default()],
                ..Environment::default()
            },
        };
        let stop = AtomicBool::new(notes.stop.load(Ordering::Relaxed));
        run(&settings, &mut store, Some(&Broken), notes, &stop)
    }

    fn records(&self) -> Vec<Record> {
        results::load(self.directory.path()).expect("results").records
    }
}

/// W6: a busy loop on the processor of a load was seen by nobody.
#[test]
fn a_busy_loop_on_the_processor_of_a_load_is_marked() {
    let bench = Bench::new();
    let axes = "[axes]\ntransport = [\"local\"]\nhost_polling = [\"spin\"]\n";
    let mut plan = plan("repeats = 1\nrepeats_max = 1", axes);
    plan.measure.runtime = Duration::from_millis(500);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            weft_reactor::pin_current_thread(0).expect("the processor of the load");
            while !is_over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let outcome = bench.run(&plan, &mut Notes::default());
        is_over.store(true, Ordering::Relaxed);
        outcome.expect("an outcome");
    });
    let [record] = &bench.records()[..] else { panic!("one record") };
    assert!(record.has(Mark::Disturbed), "{record:?}");
    let host = record.host.as_ref().expect("a side");
    assert_eq!(host.cpus, [0]);
    let collector = host.collector.as_ref().expect("its own cost");
    assert!(collector.user_s + collector.system_s < host.seconds, "{collector:?}");
    assert!(host.threads.iter().all(|thread| thread.name != collector.name), "it is in no cost");
    assert!(host.others_s.is_some_and(|seconds| seconds > 0.0), "{host:?}");
    let delay = host.threads[0].delay.expect("every kernel that schedules says it");
    assert!(delay.waited_s > 0.01 && delay.involuntary_switches > 0, "{delay:?}");
}

#[test]
fn the_time_that_is_left_is_that_of_the_steps() {
    let bench = Bench::new();
    let axes = "[axes]\ntransport = [\"local\"]\ndepth = [1, 4, 16]\n";
    let mut plan = plan("repeats = 3\nrepeats_max = 3", axes);
    plan.measure.runtime = Duration::from_millis(200);
    let mut notes = Notes::default();
    bench.run(&plan, &mut notes).expect("an outcome");
    let ended = monotonic_time();
    assert_eq!(notes.left.len(), 9);
    // Once a step has been timed; a machine that is busy takes longer, never less.
    let mut shares = Vec::new();
    for (left, most, at) in notes.left.iter().skip(1) {
        let really = (ended - *at).as_secs_f64();
        assert!(left.as_secs_f64() < 1.5 * really && left.as_secs_f64() > 0.2 * really, "{left:?}");
        assert_eq!(left, most, "no repeats may be added");
        shares.push(left.as_secs_f64() / really);
    }
    // One step that the machine held up is foreseen by nobody, so this is about the middle one.
    shares.sort_by(f64::total_cmp);
    assert!((0.8..=1.2).contains(&shares[shares.len() / 2]), "{shares:?}");
}

#[test]
fn the_time_that_is_left_says_how_much_repeats_may_add() {
    // Steps that are certain and the most that there may be, before each of them.
    let narrow = [(3, 5), (2, 4), (1, 3)];
    let wide = [(3, 5), (2, 4), (1, 3), (1, 2), (1, 1)];
    for (percent, expected) in [("1e9", &narrow[..]), ("1e-9", &wide[..])] {
        let bench = Bench::new();
        let measure = format!("repeats = 3\nrepeats_max = 5\nconfidence_percent = {percent}");
        let mut notes = Notes::default();
        let plan = plan(&measure, "[axes]\ntransport = [\"local\"]\n");
        bench.run(&plan, &mut notes).expect("an outcome");
        assert_eq!(notes.left.len(), expected.len(), "{percent}");
        for (step, (certain, most)) in expected.iter().enumerate() {
            let (left, at_most, _) = notes.left[step];
            let share = at_most.as_secs_f64() / left.as_secs_f64();
            let wanted = f64::from(*most) / f64::from(*certain);
            assert!((share - wanted).abs() < 1e-6, "{percent}, step {step}: {share}");
        }
        let totals: Vec<usize> = notes.positions.iter().map(|(_, all)| *all).collect();
        assert_eq!(totals, [3, 3, 3, 4, 5][..expected.len()], "{percent}");
    }
}

#[test]
fn every_cell_is_in_the_results_with_its_command() {
    let bench = Bench::new();
    let axes = "[axes]\ntransport = [\"local\", \"rdma\"]\ndepth = [1, 4, 16]\n";
    let plan = plan("repeats = 2\nrepeats_max = 2", axes);
    let mut notes = Notes::default();
    let outcome = bench.run(&plan, &mut notes).expect("an outcome");
    assert_eq!((outcome.measured, outcome.skipped, outcome.failed), (6, 3, 0));
    assert_eq!((outcome.missing.len(), outcome.error, outcome.interrupted), (0, None, false));
    let records = bench.records();
    assert_eq!(records.len(), 9);
    for record in &records {
        let depth = &record.configuration["depth"];
        let transport = &record.configuration["transport"];
        let command = format!("weft study run mine --only depth={depth},transport={transport}");
        assert_eq!((&record.command, record.started_at_ms), (&command, 42));
        assert_eq!(record.is_measured(), transport.as_text() == Some("local"));
        if record.is_measured() {
            assert!(record.host.is_some() && record.target.is_none());
            assert!(record.has(Mark::NotAwaited) && !record.has(Mark::Loopback));
        } else {
            assert!(record.status.reason().is_some_and(|reason| reason.contains("RDMA")));
        }
    }
    assert_eq!(
        notes.positions.iter().map(|(done, _)| *done).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5]
    );
    assert!(notes.positions.iter().all(|(_, all)| *all == 6));
    assert_eq!(notes.records, 6);
    // On a busy machine so short a cell may complete no request, but not all of them.
    assert!(records.iter().any(|record| record.iops() > 0.0));
    // Four times as long as a cell, before the first one.
    let environment = results::load(bench.directory.path()).expect("results").environment;
    let idle = environment.idle.expect("the machine without a load");
    assert!(idle.seconds >= 0.08 && idle.cpu_s >= 0.0, "{idle:?}");
    assert!(environment.target_idle.is_empty());
    for name in [file::PLAN, file::ENVIRONMENT, file::TABLE] {
        assert!(bench.directory.path().join(name).exists(), "{name}");
    }
}

#[test]
fn the_windows_of_a_run_are_in_its_record() {
    let bench = Bench::new();
    let mut plan = plan("repeats = 1\nrepeats_max = 1", "[axes]\ntransport = [\"local\"]\n");
    plan.measure.runtime = std::time::Duration::from_millis(600);
    bench.run(&plan, &mut Notes::default()).expect("an outcome");
    let [record] = &bench.records()[..] else { panic!("one cell") };
    let counted = record.windows.iter().filter(|window| !window.ramp);
    assert!(counted.clone().count() >= 1, "{record:?}");
    assert!(counted.clone().all(|window| window.at_s > 0.2), "{:?}", record.windows);
}

#[test]
fn repeats_go_on_until_the_interval_is_narrow_or_the_limit_is_reached() {
    let axes = "[axes]\ntransport = [\"local\"]\n";
    for (percent, expected) in [("1e9", 3), ("1e-9", 5)] {
        let bench = Bench::new();
        let measure = format!("repeats = 3\nrepeats_max = 5\nconfidence_percent = {percent}");
        let outcome = bench.run(&plan(&measure, axes), &mut Notes::default()).expect("an outcome");
        assert_eq!(outcome.measured, expected, "{percent}");
        let records = bench.records();
        let repeats: Vec<u32> = records.iter().map(|record| record.repeat).collect();
        assert_eq!(repeats, (1..=u32::try_from(expected).expect("few")).collect::<Vec<_>>());
        let marked: Vec<bool> = records.iter().map(|r| r.has(Mark::WideInterval)).collect();
        let is_last = |repeat: &u32| *repeat == 5;
        assert_eq!(marked, repeats.iter().map(is_last).collect::<Vec<_>>(), "{percent}");
    }
}

#[test]
fn repeats_go_on_until_the_metric_of_the_study_is_known() {
    // No repeat has the hundred thousand requests that this percentile takes.
    let judged = "repeats = 3\nrepeats_max = 4\nconfidence_percent = 1e9\njudged_by = ";
    for (metric, expected) in [("\"p99.99\"", 4), ("\"iops\"", 3)] {
        let bench = Bench::new();
        let axes = "[axes]\ntransport = [\"local\"]\n[fixed]\nrate_iops = 2000\n";
        let plan = plan(&format!("{judged}{metric}"), axes);
        let outcome = bench.run(&plan, &mut Notes::default()).expect("an outcome");
        assert_eq!(outcome.measured, expected, "{metric}");
    }
}

#[test]
fn cells_that_the_answer_is_made_from_have_more_repeats() {
    let bench = Bench::new();
    let rest = "[axes]\ntransport = [\"local\"]\ndepth = [1, 2]\n\
                [answer]\nkind = \"ratio\"\nrepeats = 4\nat = { depth = 2 }";
    let mut plan = plan("repeats = 1\nrepeats_max = 2\nconfidence_percent = 1e9", rest);
    let mut notes = Notes::default();
    bench.run(&plan, &mut notes).expect("an outcome");
    let repeats = || {
        bench.records().iter().fold([0, 0], |[one, two], record| {
            match record.configuration[key::DEPTH].as_integer() {
                Some(1) => [one + 1, two],
                _ => [one, two + 1],
            }
        })
    };
    // One repeat has no interval, so that the other cell has the most that it may.
    assert_eq!(repeats(), [2, 4]);
    assert_eq!(notes.positions[0], (0, 5), "the total is known from the start");
    plan.set_repeats(3);
    bench.run(&plan, &mut Notes::default()).expect("an outcome");
    assert_eq!(repeats(), [3, 4], "with a number given, all have it");
}

#[test]
fn a_reference_cell_comes_back_through_the_run() {
    let bench = Bench::new();
    let axes = "[axes]\ntransport = [\"local\"]\ndepth = [1, 2, 4, 8, 16, 32, 64, 128]\n";
    let of_reference = |bench: &Bench| -> Vec<Record> {
        let records = bench.records().into_iter();
        records.filter(|record| record.role == results::Role::Reference).collect()
    };
    // A repeat in which no request ended is void, and 20 ms are not enough on a busy machine.
    let plan_of = |repeats: u32| {
        let mut plan = plan(&format!("repeats = {repeats}\nrepeats_max = {repeats}"), axes);
        plan.measure.runtime = Duration::from_millis(200);
        plan
    };
    let (short, long) = (plan_of(1), plan_of(5));
    let outcome = bench.run(&short, &mut Notes::default()).expect("an outcome");
    assert_eq!((outcome.measured, of_reference(&bench).len()), (8, 0), "the run is short");
    let mut notes = Notes::default();
    let outcome = bench.run(&long, &mut notes).expect("an outcome");
    assert_eq!((outcome.measured, outcome.failed, outcome.error), (40, 0, None));
    let references = of_reference(&bench);
    let repeats: Vec<u32> = references.iter().map(|record| record.repeat).collect();
    assert_eq!(repeats, [1, 2, 3], "first, after 20 steps, and last");
    assert!(references.iter().all(Record::is_measured));
    let last = bench.records();
    assert_eq!(last.last().map(|record| record.role), Some(results::Role::Reference));
    assert!(notes.positions.iter().all(|(done, all)| done <= all && *all == 40));
    bench.run(&long, &mut Notes::default()).expect("an outcome");
    assert_eq!(of_reference(&bench).len(), 3, "nothing was left to measure");
}

#[test]
fn a_direction_faster_than_the_raw_link_is_marked() {
    let over = |protocol: &str| Some(Connection::over_loopback(protocol));
    let probe =
        LinkProbe { connection: over("tcp"), stream_bytes_per_s: 4.096e9, ..LinkProbe::default() };
    let is_above = |record: &Record| {
        let mut marked = record.clone();
        marked.mark_above_floor(std::slice::from_ref(&probe));
        marked.has(Mark::AboveFloor)
    };
    for (protocol, iops, expected) in
        [("tcp", 1.1e6, true), ("tcp", 1.04e6, false), ("rdma", 1.1e6, false)]
    {
        let mut record = crate::testing::record(results::Role::Plain, &[], iops, 10);
        record.connection = over(protocol);
        assert_eq!(is_above(&record), expected, "{protocol} {iops}");
        // Reads and writes have a direction of the link each.
        record.write = record.read.clone();
        assert_eq!(is_above(&record), expected, "{protocol} {iops}");
    }
}

#[test]
fn measured_repeats_are_not_measured_again() {
    let bench = Bench::new();
    let axes = "[axes]\ntransport = [\"local\", \"rdma\"]\ndepth = [1, 4]\n";
    let mut plan = plan("repeats = 2\nrepeats_max = 2", axes);
    plan.measure.repeats = 1;
    plan.measure.repeats_max = 1;
    bench.run(&plan, &mut Notes::default()).expect("an outcome");
    assert_eq!(bench.records().len(), 4);
    plan.measure.repeats = 2;
    plan.measure.repeats_max = 2;
    let mut notes = Notes::default();
    let outcome = bench.run(&plan, &mut notes).expect("an outcome");
    assert_eq!((outcome.measured, outcome.skipped), (4, 2));
    assert_eq!(notes.begun.len(), 2, "{:?}", notes.begun);
    assert!(notes.begun.iter().all(|what| what.contains("repeat 2")));
    let text = std::fs::read_to_string(bench.directory.path().join(file::RECORDS)).expect("lines");
    assert_eq!(text.lines().count(), 6, "and skipped cells are recorded once");
}

#[test]
fn failures_are_reported_and_several_in_a_row_end_the_run() {
    let bench = Bench::new();
    let axes = "[axes]\ntransport = [\"tcp\"]\ndepth = [1, 2, 4, 8, 16]\n";
    let plan = plan("repeats = 1\nrepeats_max = 1", axes);
    let outcome = bench.run(&plan, &mut Notes::default()).expect("an outcome");
    assert_eq!((outcome.measured, outcome.failed), (0, 3));
    let error = outcome.error.expect("trouble");
    assert!(error.contains("3 cells in a row") && error.contains("no target can"), "{error}");
    assert_eq!(outcome.missing.len(), 5);
    let reasons =
        outcome.missing.iter().filter(|missing| missing.contains("no target can")).count();
    assert_eq!(reasons, 3, "why is known of those that were tried: {:?}", outcome.missing);
}

#[test]
fn a_local_cell_between_failures_resets_their_count() {
    let bench = Bench::new();
    let axes = "[axes]\ntransport = [\"local\", \"tcp\"]\ndepth = [1, 2, 4, 8]\n";
    let plan = plan("repeats = 1\nrepeats_max = 1", axes);
    let outcome = bench.run(&plan, &mut Notes::default()).expect("an outcome");
    assert_eq!((outcome.measured, outcome.failed, outcome.error), (4, 4, None));
    assert_eq!(outcome.missing.len(), 4);
}

#[test]
fn a_run_stopped_at_once_reports_missing_cells() {
    let bench = Bench::new();
    let plan = plan("", "[axes]\ntransport = [\"local\"]\ndepth = [1, 2]\n");
    let mut notes = Notes { stop: AtomicBool::new(true), ..Notes::default() };
    let outcome = bench.run(&plan, &mut notes).expect("an outcome");
    assert!(outcome.interrupted && outcome.measured == 0 && outcome.missing.len() == 2);
    assert!(notes.begun.is_empty() && bench.records().is_empty());
    assert!(results::load(bench.directory.path()).expect("results").environment.interrupted);
}

#[test]
fn a_selection_without_cells_is_an_error() {
    let bench = Bench::new();
    let mut plan = plan("", "[axes]\ndepth = [1]\n");
    let only = Configuration::from([("depth".to_owned(), results::Value::from(7u64))]);
    plan.run = Some(Run { only, ..Run::default() });
    let error = bench.run(&plan, &mut Notes::default()).expect_err("no cell");
    assert_eq!(error.to_string(), "no cell of the study has depth=7");
}

#[test]
fn results_that_cannot_be_written_are_reported() {
    let bench = Bench::new();
    let plan = plan("repeats = 1\nrepeats_max = 1", "[axes]\ntransport = [\"local\"]\n");
    let removes = Some(bench.directory.path().to_owned());
    let mut notes = Notes { removes, ..Notes::default() };
    let outcome = bench.run(&plan, &mut notes).expect("an outcome");
    let error = outcome.error.expect("trouble");
    assert!(error.contains("cannot be written") || error.contains("not whole"), "{error}");
}

#[test]
fn a_time_in_which_nothing_ended_is_no_result() {
    let bench = Bench { local: "delay:read=1s:null:1GiB", ..Bench::new() };
    let plan = plan("repeats = 1\nrepeats_max = 1", "[axes]\ntransport = [\"local\"]\n");
    let outcome = bench.run(&plan, &mut Notes::default()).expect("an outcome");
    assert_eq!((outcome.measured, outcome.void), (0, 1));
    let reason = bench.records()[0].status.reason().map(str::to_owned);
    assert_eq!(reason.as_deref(), Some("no request ended in the measured time"));
}

#[test]
fn an_open_loop_is_offered_its_share_of_the_capacity() {
    let bench = Bench::new();
    let fixed = "[fixed]\nrate_process = \"poisson\"\n";
    let axes = "[axes]\ntransport = [\"local\"]\nload_percent = [20, 60]\n";
    let mut plan = plan("repeats = 1\nrepeats_max = 1", &format!("{fixed}{axes}"));
    plan.kind = Kind::Load;
    // A machine that is busy elsewhere serves something in this time.
    plan.measure.runtime = Duration::from_millis(200);
    let outcome = bench.run(&plan, &mut Notes::default()).expect("an outcome");
    let reasons: Vec<_> = bench.records().iter().map(|record| record.status.clone()).collect();
    let counts = (outcome.measured, outcome.failed, outcome.error);
    assert_eq!(counts, (3, 0, None), "{reasons:?}");
    let records = bench.records();
    assert_eq!(records[0].role, results::Role::Saturation);
    let capacity = records[0].iops();
    for record in &records[1..] {
        let percent = record.configuration["load_percent"].as_number().expect("a number");
        let offered = record.values["offered_iops"];
        assert!((offered / capacity - percent / 100.0).abs() < 1e-6, "{offered} of {capacity}");
        assert!(record.has(Mark::OpenLoop));
        // Written and read as a decimal, each may differ in its last digit.
        assert!((record.values["reference_iops"] / capacity - 1.0).abs() < 1e-9);
    }
}
