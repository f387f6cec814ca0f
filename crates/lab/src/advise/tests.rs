//! Results that were made up from networks whose truth is known.

mod closed;
mod evidence;
mod priced;
mod replaced;
mod tenants;
mod truth;

use weft_advise::Arrivals;
use weft_advise::network::{Class, Core, Network, together};
use weft_load::Latency;

use super::model::{LEFT_OUT, SPOILT};
use super::*;
use crate::results::{Configuration, Environment, LatencyRecord, Record, Side, Thread, Value, key};
use crate::study::plan::Plan;
use crate::testing::record;
use crate::units;

/// A target of one core that needs so long for a request beside its delay.
fn network(request_ns: f64, delay_ns: f64) -> Network {
    Network {
        has_lanes: false,
        host: Core { turn_ns: 1000.0, request_ns: 500.0 },
        host_cores: 1,
        target: Core { turn_ns: 2000.0, request_ns },
        target_cores: 1,
        delays_ns: vec![delay_ns, 1.3 * delay_ns],
        device_width: f64::INFINITY,
        wire_ns: 0.0,
    }
}

/// A closed loop of some depths, and a few rates, as a study records them.
fn results(ways: &[(&str, Network)], settings: &[(&str, Value)]) -> Vec<Results> {
    results_of(ways, settings, 7)
}

fn results_of(ways: &[(&str, Network)], settings: &[(&str, Value)], seed: u64) -> Vec<Results> {
    let mut records = Vec::new();
    for (transport, network) in ways {
        let closed = [1, 16, 128].map(|depth| (Arrivals::Closed, depth));
        let most = network.simulate(Arrivals::Closed, 128, 20_000, 1).iops;
        let open = [0.3, 0.6, 0.85].map(|part| (Arrivals::Poisson(part * most), 128));
        for (arrivals, depth) in closed.into_iter().chain(open) {
            let mut all = vec![
                (key::TRANSPORT, Value::from(*transport)),
                (key::HOST_CORES, 1_u64.into()),
                (key::TARGET_CORES, 1_u64.into()),
                (key::DEPTH, (depth as u64).into()),
            ];
            all.extend_from_slice(settings);
            if let Arrivals::Poisson(rate) = arrivals {
                all.push((key::RATE_IOPS, rate.into()));
            }
            records.push(simulated(network, arrivals, depth, &all, seed));
        }
    }
    let environment = Environment::default();
    vec![Results { directory: "made-up".into(), environment, plan: String::new(), records }]
}

fn simulated(
    network: &Network,
    arrivals: Arrivals,
    depth: usize,
    settings: &[(&str, Value)],
    seed: u64,
) -> Record {
    let outcome = network.simulate(arrivals, depth, 60_000, seed);
    let mut latency = Latency::new();
    for part in 0..10_000_u32 {
        let at = outcome.quantile((f64::from(part) + 0.5) / 1e4);
        latency.record(at.round().to_string().parse().expect("a whole number"));
    }
    let mut record = record(Role::Plain, settings, outcome.iops, 1);
    record.read.as_mut().expect("reads").latency = LatencyRecord::of(&latency);
    let thread = |part: f64| Thread { user_s: part, ..Thread::default() };
    let side = |place: usize, cores: usize| {
        let threads = vec![thread(outcome.busy[place]); cores];
        Some(Side { seconds: 1.0, threads, ..Side::default() })
    };
    (record.host, record.target) = (side(0, network.host_cores), side(1, network.target_cores));
    record.marks.extend(matches!(arrivals, Arrivals::Poisson(_)).then_some(Mark::OpenLoop));
    record
}

/// A run with latencies that are so many times as long.
fn longer(record: &mut Record, times: f64) {
    longer_from(record, 0.0, times);
}

/// A run whose latencies beyond a percentile are so many times as long.
fn longer_from(record: &mut Record, percentile: f64, times: f64) {
    let read = record.read.as_mut().expect("reads");
    let own = read.latency.latency().expect("a histogram");
    let mut latency = Latency::new();
    // A histogram takes long to find a percentile.
    for part in 0..1000_u32 {
        let part = (f64::from(part) + 0.5) / 10.0;
        let at = own.percentile_ns(part).unwrap_or(own.max_ns()) as f64;
        let ns = weft_load::units::whole(if part < percentile { at } else { times * at });
        latency.record_times(ns, 10);
    }
    read.latency = LatencyRecord::of(&latency);
}

fn advise(results: &[Results], question: &Question) -> Result<Advice, String> {
    super::advise(results, std::slice::from_ref(question), &Terms::default())
}

fn question(p99_us: f64, iops: f64) -> Question {
    Question { p99_ns: p99_us * 1e3, iops, ..Question::default() }
}

#[test]
fn a_run_counts_once() {
    let mut all = results(&[("tcp", network(1500.0, 50_000.0))], &[]);
    for (record, at) in all[0].records.iter_mut().zip(1..) {
        record.started_at_ms = at;
    }
    let again = Results { directory: "copy".into(), ..all[0].clone() };
    all.push(again);
    let why = advise(&all, &question(1e4, 10_000.0)).expect_err("one run twice");
    assert_eq!(why, "made-up and copy are of one run, which counts once");
}

/// Two targets whose p99 at the rate is below and above the objective: the right one is advised,
/// and ✓ is never said of the other, whichever is named first.
#[test]
fn the_way_that_holds_is_advised_and_the_other_is_not() {
    let [near, far] = [network(1500.0, 200_000.0), network(1500.0, 280_000.0)];
    for ways in [[("a", near.clone()), ("b", far.clone())], [("b", near), ("a", far)]] {
        let p99 = ways.each_ref().map(|(_, network)| {
            network.simulate(Arrivals::Poisson(200_000.0), 128, 60_000, 9).quantile(0.99)
        });
        assert!(p99[0] < 290_000.0 && p99[1] > 340_000.0, "{p99:?}");
        let advice = advise(&results(&ways, &[]), &question(310.0, 200_000.0)).expect("advice");
        let of = |name: &str| advice.rows.iter().find(|row| row.way == name).expect("a row");
        assert_eq!(of(ways[0].0).verdict, Verdict::Holds, "{advice:#?}");
        assert_eq!(of(ways[1].0).verdict, Verdict::Fails, "{advice:#?}");
        let first = &advice.rows[0];
        let depth = first.least_depth.expect("it holds");
        // Little's law: 200,000 requests a second of some 230 µs.
        assert!((64..=128).contains(&depth), "{depth}");
        let taken = first.processors[1].expect("known");
        let (_, network) = &ways[0];
        let [_, needed] = network.simulate(Arrivals::Poisson(200_000.0), 128, 60_000, 9).busy;
        assert!((taken / needed - 1.0).abs() < 0.3, "{taken} of {needed}");
        assert!(advice.conclusion.starts_with(&ways[0].0.to_uppercase()), "{}", advice.conclusion);
    }
}

/// A mark that spoils a cell, another kind of request, a rate far beyond: nothing is said, and why.
#[test]
fn what_would_be_a_guess_is_refused() {
    let ways = [("tcp", network(1500.0, 50_000.0))];
    let mut spoilt = results(&ways, &[]);
    for mark in SPOILT {
        spoilt[0].records[2].marks = vec![mark];
        let advice = advise(&spoilt, &question(1000.0, 1000.0)).expect("rows");
        assert_eq!(advice.rows[0].verdict, Verdict::Unknown);
        assert_eq!(advice.rows[0].refusal.as_deref(), Some(mark.explained()));
        assert!(advice.conclusion.starts_with("No way is known"), "{}", advice.conclusion);
    }
    // Cells of a generator that was saturated are left out, and with them their rates.
    let mut full = results(&ways, &[]);
    let of_rate = |records: &[Record], part: usize| records[part].iops();
    let (high, low) = (of_rate(&full[0].records, 5), of_rate(&full[0].records, 4));
    assert!(low * 1.25 < high, "{low} {high}");
    [1, 2, 5].into_iter().for_each(|at: usize| full[0].records[at].marks = vec![LEFT_OUT]);
    let advice = advise(&full, &question(1000.0, 0.9 * low)).expect("rows");
    assert_eq!(advice.rows[0].verdict, Verdict::Holds, "{advice:?}");
    let advice = advise(&full, &question(1000.0, high)).expect("rows");
    assert_eq!(advice.rows[0].verdict, Verdict::Unknown, "{advice:?}");
    let sound = results(&ways, &[(key::BLOCK_BYTES, 4096_u64.into())]);
    let beyond = advise(&sound, &question(1000.0, 1e6)).expect("rows");
    let why = beyond.rows[0].refusal.as_deref().expect("refused");
    assert!(why.starts_with("nothing is said beyond"), "{why}");
    let other = Question { block_bytes: Some(8192), ..question(1000.0, 1000.0) };
    let error = advise(&sound, &other).expect_err("no cell");
    assert_eq!(error, "no cell has such requests: there are 4 KiB");
    let mut mixed = sound.clone();
    mixed.extend(results(&ways, &[(key::BLOCK_BYTES, 8192_u64.into())]));
    let error = advise(&mixed, &question(1000.0, 1000.0)).expect_err("two kinds");
    assert!(error.starts_with("give --rw and --bs"), "{error}");
    assert!(advise(&mixed, &other).is_ok());
    let few = vec![Results { records: sound[0].records[..2].to_vec(), ..sound[0].clone() }];
    let advice = advise(&few, &question(1000.0, 1000.0)).expect("rows");
    assert!(advice.rows[0].refusal.as_deref().is_some_and(|why| why.starts_with("at least three")));
}

/// What was measured of the advised way is held against the objective and the prediction, and what
/// other programs may have done to it counts for neither side.
#[test]
fn an_advice_is_confirmed_or_not() {
    let ways = [("tcp", network(1500.0, 200_000.0))];
    let question = question(310.0, 200_000.0);
    let all = results(&ways, &[]);
    let advice = advise(&all, &question).expect("advice");
    let row = advice.advised().expect("it holds");
    let measured = |network: &Network, part: f64, lost_s: f64| {
        let load = [(key::DEPTH, Value::from(128_u64)), (key::RATE_IOPS, question.iops.into())];
        let arrivals = Arrivals::Poisson(part * question.iops);
        let mut record = simulated(network, arrivals, 128, &load, 7);
        let host = record.host.as_mut().expect("a side");
        host.lost_s = Some(lost_s);
        let records = vec![record];
        confirm(&Results { records, ..all[0].clone() }, row, &question).expect("a result")
    };
    let held = measured(&ways[0].1, 1.0, 0.0);
    assert_eq!((held.verdict, held.is_predicted), (Verdict::Holds, true), "{held:?}");
    let slower = network(1500.0, 280_000.0);
    let failed = measured(&slower, 1.0, 0.0);
    assert_eq!((failed.verdict, failed.is_predicted), (Verdict::Fails, false), "{failed:?}");
    assert_eq!(measured(&ways[0].1, 0.9, 0.0).verdict, Verdict::Fails, "less than was asked for");
    assert_eq!(measured(&slower, 1.0, 0.2).verdict, Verdict::Unknown, "spoilt");
    let nothing = Results { records: Vec::new(), ..all[0].clone() };
    assert!(confirm(&nothing, row, &question).is_err());
}

/// Where no interval is within the objective, a way of which it cannot be told is worth being
/// measured: one whose p99 is expected to hold first, at a depth that is, and another at the
/// greatest depth. What does not hold is not, and of what holds only the cheapest.
#[test]
fn what_cannot_be_told_is_worth_being_measured() {
    let [near, far] = [network(1500.0, 200_000.0), network(1500.0, 280_000.0)];
    let local = ("local", network(1500.0, 100_000.0));
    let mut all = results(&[("near", near.clone()), ("far", far), local], &[]);
    let plan = crate::study::builtin::find("latency-vs-load").expect("a study");
    all[0].plan = plan.plan().expect("a plan").to_text().expect("text");
    let rate = 200_000.0;
    let at = |p99_us: f64| advise(&all, &question(p99_us, rate)).expect("advice");
    let own = |advice: &Advice| {
        let row = advice.rows.iter().find(|row| row.way == "near").expect("a row");
        row.quantiles_ns.expect("latencies").1
    };
    let p99 = own(&at(1000.0));
    let inside = |part: f64| (p99.value + part * (p99.high - p99.value)) / 1e3;
    let candidates = |advice: &Advice| -> Vec<String> {
        advice.candidates().map(|row| row.way.clone()).collect()
    };
    let unknown = at(inside(0.5));
    assert_eq!(candidates(&unknown), ["near"], "{unknown:#?}");
    let row = unknown.candidates().next().expect("a candidate");
    assert_eq!(row.verdict, Verdict::Unknown);
    assert!(row.least_depth.is_some_and(|depth| (32..=128).contains(&depth)), "{row:?}");
    assert!(unknown.conclusion.contains("likely to is near: its p99 may be"), "{unknown:?}");
    let doubtful = at((p99.low + 0.5 * (p99.value - p99.low)) / 1e3);
    assert_eq!(candidates(&doubtful), ["near"], "{doubtful:#?}");
    let row = doubtful.candidates().next().expect("a candidate");
    assert!(!row.is_likely && row.least_depth.is_none(), "{row:?}");
    let plan = confirming(&all[0], row, &question(300.0, rate)).expect("a plan");
    assert_eq!(plan.fixed.get(key::DEPTH), Some(&128_u64.into()), "the greatest");
    assert!(candidates(&at(p99.low / 1e3 * 0.9)).is_empty(), "none holds");
    let both = at(10_000.0);
    assert_eq!(candidates(&both).len(), 1, "what is advised, and no other: {both:?}");
}

/// No request is expected to take less than the fastest of those that were measured.
#[test]
fn nothing_takes_less_than_the_fastest_request() {
    let mut all = results(&[("tcp", network(1500.0, 50_000.0))], &[]);
    // What is left of one cell makes the intervals wide.
    longer(&mut all[0].records[3], 2.0);
    let advice = advise(&all, &question(1000.0, 100_000.0)).expect("advice");
    let (p50, p99, p999) = advice.rows[0].quantiles_ns.expect("latencies");
    let all_ns = [p50, p99, p999.expect("three rates")];
    assert!(all_ns[0].high > 1.3 * all_ns[0].value, "{all_ns:?}");
    assert!(all_ns.iter().all(|one| one.low >= 50_000.0), "{all_ns:?}");
}

/// The plan that confirms is the one that was measured, at the advised depth and the wanted rate.
#[test]
fn the_plan_that_confirms_has_the_advised_way_only() {
    let plan = crate::study::builtin::find("latency-vs-load").expect("a study");
    let plan = plan.plan().expect("a plan").to_text().expect("text");
    let ways = [("local", network(0.0, 1000.0)), ("tcp", network(1500.0, 200_000.0))];
    let mut all = results(&ways, &[]);
    all[0].plan = plan;
    let question = question(400.0, 150_000.0);
    let advice = advise(&all, &question).expect("advice");
    assert!(advice.rows.last().is_some_and(Row::is_local), "{advice:?}");
    let row = advice.advised().expect("one holds");
    let plan = confirming(&all[0], row, &question).expect("a plan");
    let again: Plan = plan.to_text().expect("text").parse().expect("a plan of a file");
    assert_eq!(again, plan);
    assert_eq!(plan.fixed.get(key::RATE_IOPS), Some(&150_000.0.into()));
    let depth = row.least_depth.expect("a depth") as u64;
    assert_eq!(plan.fixed.get(key::DEPTH), Some(&depth.into()));
    let only = only(&plan, row);
    let expected = Configuration::from([(key::TRANSPORT.to_owned(), "tcp".into())]);
    assert_eq!(only, expected);
    let machine = crate::testing::large_machine();
    let matrix = crate::study::matrix::expand(&plan, &machine, &only);
    assert_eq!(matrix.steps().count(), 1);
}

/// What a job of fio asks for, and what no study measures is refused by its name.
#[test]
fn a_job_is_a_question() {
    let of = |text: &str, iops| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("job.fio");
        std::fs::write(&path, format!("[a]\n{text}\n")).expect("a file");
        let sections = weft_load::jobfile::read(&path).expect("a job file");
        Question::of(&sections[0].job, Some(1e6), iops)
    };
    let job = "rw=randrw\nrwmixread=70\nbs=8k\nnumjobs=2\nrate_iops=700,300";
    let mixed = of(job, None).expect("a question");
    let expected = Question {
        name: "a".to_owned(),
        iops: 2000.0,
        pattern: Some("randrw".to_owned()),
        read_percent: Some(70),
        block_bytes: Some(8192),
        ..question(1000.0, 0.0)
    };
    assert_eq!(mixed, expected);
    let log = |lines: &str| format!("fio version 3 iolog\n0 /d add\n0 /d open\n{lines}");
    let recorded = |lines: &str, iops| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        std::fs::write(&path, log(lines)).expect("a file");
        of(&format!("read_iolog={}", path.display()), iops)
    };
    let four = "5 /d read 0 4096\n5 /d read 8192 4096\n5 /d write 0 4096\n35 /d read 4096 4096\n";
    let question = recorded(four, None).expect("a question");
    assert!((question.iops - 1e5).abs() < 1.0, "three of 10 µs: {question:?}");
    assert_eq!(question.gaps[..], [0.0, 0.0, 3.0]);
    assert_eq!((question.pattern.as_deref(), question.read_percent), (Some("randrw"), Some(75)));
    assert_eq!(recorded(four, Some(5.0)).map(|question| question.iops), Ok(5.0));
    let next = recorded("5 /d read 0 4096\n15 /d read 4096 4096\n25 /d read 8192 4096", None);
    assert_eq!(next.expect("a question").pattern.as_deref(), Some("read"));
    for (lines, why) in [
        ("5 /d read 0 4096\n6 /d read 0 512", "several sizes"),
        ("5 /d read 0 4096\n5 /d read 0 4096", "no times"),
        ("5 /d read 0 4096\n6 /d sync", "flushes"),
    ] {
        assert!(recorded(lines, None).is_err_and(|error| error.contains(why)), "{lines}");
    }
    assert_eq!(of(job, Some(5.0)).map(|question| question.iops), Ok(5.0));
    assert_eq!(of("rw=randread", Some(5.0)).map(|question| question.read_percent), Ok(None));
    assert!(of("rw=randread", None).is_err_and(|why| why.contains("give --iops")));
    for (what, named) in [
        ("random_distribution=zipf:1.1", "random_distribution"),
        ("bssplit=4k/50:8k/50", "bssplit"),
        ("thinktime=10", "thinktime"),
    ] {
        let refused = of(&format!("rw=randread\n{what}"), Some(5.0)).expect_err(what);
        assert!(refused.contains(named), "{refused}");
    }
}

/// Arrivals as they were recorded are simulated: what comes four at once waits longer than what
/// comes at random, and each is near its truth.
#[test]
fn recorded_arrivals_are_simulated() {
    let own = network(1500.0, 30_000.0);
    let all = results(&[("tcp", own.clone())], &[]);
    let rate = 150_000.0;
    let ask = |gaps: &[f64]| {
        advise(&all, &Question { gaps: gaps.into(), ..question(1000.0, rate) }).expect("advice")
    };
    let burst: Vec<f64> = (0..32).map(|at| if at == 31 { 32.0 } else { 0.0 }).collect();
    let [random, bursts] = [&[][..], &burst].map(|gaps| {
        let row = ask(gaps).rows.remove(0);
        let arrivals = Arrivals::Poisson(rate);
        let class = Class { network: &own, arrivals, depth: 128, link: None, gaps };
        let truth = together(&[class], 60_000, 9).remove(0).quantile(0.99);
        let (_, p99, _) = row.quantiles_ns.expect("known");
        assert!((p99.value / truth).ln().abs() < 0.2, "{truth} {p99:?}");
        assert!(p99.low <= truth && truth <= p99.high, "{truth} {p99:?}");
        let is_said = row.notes.iter().any(|note| note.contains("as they were recorded"));
        assert_eq!(is_said, !gaps.is_empty(), "{row:?}");
        p99.value
    });
    assert!(bursts > 1.3 * random, "{random} {bursts}");
}

/// Far below what was measured nothing is said, and a little below it comes with a note.
#[test]
fn far_below_what_was_measured_nothing_is_said() {
    let all = results(&[("tcp", network(1500.0, 50_000.0))], &[]);
    let least = all[0].records.iter().map(Record::iops).fold(f64::INFINITY, f64::min);
    let row = |rate| advise(&all, &question(1000.0, rate)).expect("rows").rows.remove(0);
    let below = row(0.5 * least);
    assert_eq!(below.verdict, Verdict::Holds, "{below:?}");
    assert!(below.notes[0].ends_with("what sleeps then may be slower"), "{below:?}");
    assert!(row(1.5 * least).notes.is_empty());
    let far = row(3.0);
    assert_eq!(far.verdict, Verdict::Unknown, "{far:?}");
    assert!(far.refusal.is_some_and(|why| why.starts_with("nothing is said below")));
}

/// How far an objective is held is a rate at which its p99 is that, or at least the highest one of
/// which something is said; and the sentence has what the next better way is.
#[test]
fn how_far_an_objective_is_held_is_said_and_what_another_way_would() {
    let (near, far) = (network(4000.0, 20_000.0), network(1500.0, 200_000.0));
    let ways = [("near", near.clone()), ("far", far), ("local", network(0.0, 1000.0))];
    let all = results(&ways, &[]);
    // Of a third of what it serves nothing more was measured.
    let mut low = results(&ways[1..2], &[]);
    low[0].records = [0, 1, 3].map(|at| low[0].records[at].clone()).to_vec();
    let wide = advise(&low, &question(1e6, 20_000.0)).expect("advice").rows.remove(0);
    let most = low[0].records.iter().map(Record::iops).fold(0.0, f64::max);
    assert!(wide.is_headroom_least && wide.headroom_iops > Some(1.2 * most), "{wide:?}");
    assert!(wide.up_to().is_some_and(|text| text.starts_with("≥ ")), "{wide:?}");
    let row = |of: &Advice, way: &str| of.rows.iter().find(|row| row.way == way).cloned();
    let tight = advise(&all, &question(100.0, 100_000.0)).expect("advice");
    let own = row(&tight, "near").expect("a row");
    let up_to = own.headroom_iops.expect("a rate");
    let at = |rate| near.simulate(Arrivals::Poisson(rate), 128, 60_000, 9).quantile(0.99);
    assert!(!own.is_headroom_least && at(0.9 * up_to) < 110e3 && at(1.1 * up_to) > 90e3, "{own:?}");
    let said = &tight.conclusion;
    assert!(said.starts_with("Near holds") && said.contains("Far, "), "{said}");
    assert!(said.contains(" would hold a p99 of 2") && said.contains(" at this rate"), "{said}");
    let loose = advise(&all, &question(400.0, 100_000.0)).expect("advice");
    let (first, said) = (&loose.rows[0], &loose.conclusion);
    assert_eq!(first.way, "far", "it takes fewer processors: {said}");
    assert!(
        said.contains(" Near, ") && said.contains("would be the choice for a p99 of"),
        "{said}"
    );
    let none = advise(&all[..1], &question(10.0, 100_000.0)).expect("advice").conclusion;
    assert!(none.contains("Near would hold a p99 of"), "{none}");
}

/// A measured point has an interval on both sides: other runs differ.
#[test]
fn a_measured_point_is_between_its_ends() {
    let mut all = results(&[("tcp", network(1500.0, 50_000.0))], &[]);
    let mut again = all[0].records.clone();
    for record in &mut again {
        record.repeat = 2;
        longer(record, 1.5);
    }
    let points = |all: &[Results]| {
        let cells = ways(all).remove(0).cells;
        cells.iter().map(|cell| point_of(cell).expect("a p99")).collect::<Vec<_>>()
    };
    let once = points(&all);
    all[0].records.extend(again);
    for (once, twice) in once.iter().zip(points(&all)) {
        assert!(once.low < once.value && once.value < 0.99 * once.high, "{once:?}");
        assert!(twice.low <= once.value && 1.4 * once.value < twice.high, "{once:?} {twice:?}");
    }
}

/// Repeats of which other programs had more than a tenth are left out; where they had most of the
/// cells nothing is said, and never that the objective is held.
#[test]
fn spoilt_repeats_are_left_out_and_a_spoilt_machine_is_refused() {
    let ways = [("tcp", network(1500.0, 200_000.0))];
    let question = question(310.0, 200_000.0);
    let spoil = |record: &mut Record| {
        record.marks.push(Mark::Disturbed);
        let host = record.host.as_mut().expect("a side");
        (host.lost_s, host.interruptions) = (Some(0.4), 100);
    };
    let mut twice = results(&ways, &[]);
    let mut again = twice[0].records.clone();
    for record in &mut again {
        record.repeat = 2;
        spoil(record);
    }
    let sound = advise(&twice, &question).expect("rows");
    twice[0].records.extend(again);
    let advice = advise(&twice, &question).expect("rows");
    assert_eq!(advice.rows[0].verdict, Verdict::Holds, "{advice:?}");
    assert_eq!(advice.rows[0].quantiles_ns, sound.rows[0].quantiles_ns, "as without them");
    let mut busy = results(&ways, &[]);
    busy[0].records.iter_mut().skip(2).for_each(spoil);
    let refused = advise(&busy, &question).expect("rows");
    assert_eq!(refused.rows[0].verdict, Verdict::Unknown, "{refused:?}");
    assert_eq!(refused.rows[0].refusal.as_deref(), Some(Mark::Disturbed.explained()));
}
