//! Every claim of every built-in study, over made-up results, with every mark.

mod parts;
mod reasons;

use weft_host::Transport;

use super::*;
use crate::cells::gate::{Rule, Sentence, rule};
use crate::results::{IdleRate, Role, Side, Status, Thread, Value, key};
use crate::study::capabilities::KnownTarget;
use crate::study::capabilities::{Apart, Capabilities};
use crate::study::plan::AnswerKind;
use crate::testing::{large_machine, machine_of, made_up, record, repeated};

fn plan(name: &str) -> Plan {
    builtin::find(name).expect(name).plan().expect(name)
}

/// A machine of four processors without adapters.
fn small_machine() -> Capabilities {
    Capabilities { cpus: (0..4).collect(), rdma: false, ..large_machine() }
}

/// Every claim of a page.
fn claims_of(plan: &Plan, records: &[Record]) -> Vec<Claim> {
    claims_of_cells(plan, &Cells::of(records, &Environment::default()))
}

fn claims_of_cells(plan: &Plan, cells: &Cells) -> Vec<Claim> {
    let answer = of_cells(plan, cells).expect("an answer");
    let others = findings(plan, cells).into_iter().chain(criteria(cells));
    let claims = answer.claims.into_iter().chain(others.map(|ask| ask.claim(cells)));
    claims.filter(|claim| !claim.rows.is_empty()).collect()
}

fn answered(name: &str, records: &[Record]) -> Answer {
    of_records(&plan(name), &repeated(records), &Environment::default()).expect("an answer")
}

fn point(settings: &[(&str, Value)], iops: f64, us: u64) -> Record {
    let base = [(key::PATTERN, Value::from("randread")), (key::BLOCK_BYTES, 4096u64.into())];
    record(Role::Plain, &[&base, settings].concat(), iops, us)
}

fn over(transport: &str, depth: u64, iops: f64, us: u64) -> Record {
    let settings = [(key::TRANSPORT, Value::from(transport)), (key::DEPTH, depth.into())];
    point(&settings, iops, us)
}

fn all(mut check: impl FnMut(&Plan, &[Record])) {
    for study in builtin::BUILTINS {
        let mut plan = study.plan().expect(study.name);
        plan.quicken();
        check(&plan, &made_up(&plan, &machine_of(&plan)));
    }
}

#[test]
fn every_study_answers_its_question() {
    all(|plan, records| {
        let answer = answered(&plan.name, records);
        assert!(answer.is_answered, "{}: {}", plan.name, answer.sentence);
        assert!(answer.question.ends_with('?') && answer.sentence.ends_with('.'), "{answer:?}");
        let rows = answer.claims.iter().flat_map(|claim| &claim.rows);
        let mut made_from = rows.flat_map(|row| &row.cells).peekable();
        assert!(made_from.peek().is_some(), "{answer:?}");
        assert!(made_from.all(|id| records.iter().any(|record| record.cell == *id)), "{answer:?}");
        let nothing = of_records(plan, &[], &Environment::default()).expect("an answer");
        assert!(!nothing.is_answered && nothing.sentence.contains("no answer"), "{nothing:?}");
        // Results of earlier versions have plans without it.
        let earlier = Plan { answer: None, ..plan.clone() };
        assert!(of_records(&earlier, &[], &Environment::default()).is_some(), "{}", plan.name);
    });
}

/// W1: an interval that is one has three repeats, and without one nothing is decided.
#[test]
fn fewer_than_three_repeats_decide_nothing() {
    all(|plan, records| {
        for repeats in 1..=2 {
            let few: Vec<Record> =
                repeated(records).into_iter().filter(|record| record.repeat <= repeats).collect();
            for claim in claims_of(plan, &few) {
                let is_open =
                    |row: &Row| matches!(row.verdict, Verdict::CannotTell | Verdict::Reference);
                assert!(!claim.is_answered && claim.rows.iter().all(is_open), "{claim:?}");
                let numbers = claim.rows.iter().flat_map(|row| row.value.iter().chain(&row.beside));
                for interval in numbers.filter_map(|number| number.interval.as_ref()) {
                    assert_eq!((interval.kind, repeats), (BOTH, 2), "{claim:?}");
                }
            }
        }
    });
}

/// W4: every transport, target and setting of the plan has its row, measured or not.
#[test]
fn every_contender_of_a_plan_has_a_row() {
    for machine in [large_machine(), small_machine()] {
        all(|plan, _| {
            let records = repeated(&made_up(plan, &machine));
            for claim in claims_of(plan, &records) {
                let told = |name: &str| claim.rows.iter().any(|row| row.contender.contains(name));
                let transports = plan.axes.get(key::TRANSPORT).filter(|all| all.len() > 1);
                for name in transports.into_iter().flatten() {
                    let is_local = *name == Value::from("local");
                    let name = name.to_string();
                    assert!(is_local || told(&name), "{}: {name} is not in {claim:?}", plan.name);
                }
                for row in claim.rows.iter().filter(|row| row.value.is_none()) {
                    assert!(!row.why.is_empty(), "{}: {row:?}", plan.name);
                }
            }
        });
    }
}

#[test]
fn each_of_several_links_and_targets_has_a_row() {
    let plan = plan("tradeoffs");
    let links = ["tcp@eth1g", "tcp@ipoib", "rdma@roce40", "rdma@ib100"];
    let mut linked = plan.clone();
    let transports = std::iter::once("local").chain(links);
    linked.set(key::TRANSPORT, transports.map(Value::from).collect());
    let apart = Apart {
        load_cpus: (0..8).collect(),
        loads: 1,
        local: true,
        links: ["eth1g", "ipoib", "roce40", "ib100"].map(|name| (name.to_owned(), true)).into(),
        ..Apart::default()
    };
    let records = made_up(&linked, &Capabilities { apart: Some(apart), ..large_machine() });
    assert!(records.iter().any(Record::is_measured), "{records:?}");
    let answer = of_records(&linked, &repeated(&records), &Environment::default());
    for claim in answer.expect("an answer").claims {
        let names: Vec<&str> = claim.rows.iter().map(|row| row.contender.as_str()).collect();
        assert!(links.iter().all(|link| names.contains(link)), "{names:?}");
        assert!(links.iter().all(|link| claim.consequence.contains(link)), "{claim:?}");
    }
    let targets = ["near:4420", "far:4420"].map(|name| KnownTarget {
        name: name.to_owned(),
        transport: Transport::Tcp,
        elsewhere: true,
    });
    let given = Capabilities { own_target: false, targets: targets.into(), ..large_machine() };
    let plan = self::plan("overhead-l-app");
    let answer = answered(&plan.name, &made_up(&plan, &given));
    assert!(answer.sentence.contains("near:4420"), "{}", answer.sentence);
    assert!(answer.sentence.contains("far:4420"), "{}", answer.sentence);
}

/// W5, W8: nobody wins a race of one, and local is no contender.
#[test]
fn a_sole_contender_is_no_choice_and_local_is_none() {
    let records = made_up(&plan("tradeoffs"), &small_machine());
    let answer = answered("tradeoffs", &records);
    assert!(!answer.is_answered, "{}", answer.sentence);
    let part = "none of the others was measured beside it";
    assert!(answer.sentence.contains(part), "{}", answer.sentence);
    assert!(!answer.sentence.contains("take "), "{}", answer.sentence);
    all(|plan, records| {
        let local =
            |record: &Record| record.configuration.get(key::TRANSPORT) == Some(&"local".into());
        let only: Vec<Record> = records.iter().filter(|record| local(record)).cloned().collect();
        for claim in claims_of(plan, &repeated(&only)) {
            assert!(!claim.is_answered, "{}: {claim:?}", plan.name);
        }
    });
}

/// W5: means say over which points they are, and a verdict is of the interval of the quotient.
#[test]
fn means_name_the_points_that_they_are_over() {
    let points =
        [("tcp", 1, 9e4, 11), ("tcp", 32, 4e5, 80), ("rdma", 1, 1e5, 10), ("rdma", 32, 9e5, 35)];
    let mut records: Vec<Record> =
        points.map(|(name, depth, iops, us)| over(name, depth, iops, us)).into();
    records[3].mark(Mark::GeneratorFull);
    let mean = |records: &[Record]| {
        let cells = Cells::of(&repeated(records), &Environment::default());
        let asks = criteria(&cells);
        let ask = asks.iter().find(|ask| ask.metric.name == "mean").expect("a criterion");
        ask.claim(&cells)
    };
    let claim = mean(&records);
    assert_eq!(claim.points, "geometric mean over 1 of 2 points: depth 1");
    let verdict = |claim: &Claim, name: &str| {
        claim.rows.iter().find(|row| row.contender == name).expect(name).verdict
    };
    assert_eq!((verdict(&claim, "tcp"), verdict(&claim, "rdma")), (Verdict::No, Verdict::Yes));
    records[3].marks.clear();
    let claim = mean(&records);
    assert_eq!(claim.points, "geometric mean over 2 of 2 points: depth 1; depth 32");
    let tcp = claim.rows.iter().find(|row| row.contender == "tcp").expect("a row");
    let value = tcp.value.as_ref().expect("a value").value;
    assert!((value / (11e3 * 80e3f64).sqrt() - 1.0).abs() < 0.01, "{tcp:?}");
}

/// Marks that forbid what a claim says forbid it, and the others that belong to it are named.
#[test]
fn every_mark_forbids_or_is_named_in_every_claim() {
    all(|plan, records| {
        let mut cells = Cells::of(&repeated(records), &Environment::default());
        for mark in Mark::ALL {
            cells.cells.iter_mut().for_each(|cell| cell.marks = vec![mark]);
            let is_of = |sentence| rule(mark, sentence);
            for claim in claims_of_cells(plan, &cells) {
                let sentences =
                    [Sentence::Value, Sentence::Capacity, Sentence::Comparison, Sentence::Cost];
                let forbids = sentences.map(is_of);
                let names = claim.marks.contains(&mark.short());
                let context = || format!("{}, {mark:?}: {claim:?}", plan.name);
                if forbids.iter().all(|rule| *rule == Rule::Named) && claim.is_answered {
                    assert!(names, "{}", context());
                }
                if forbids.iter().all(|rule| *rule == Rule::Silent) {
                    assert!(!names, "{}", context());
                }
                // A full generator is no fault of one request at a time, nor of a host under test.
                if mark == Mark::LoadLimited && claim.unit == "IOPS" && claim.is_answered {
                    assert!(claim.question.contains("p99"), "{}", context());
                }
                let is_refused = |row: &&Row| row.why.contains(mark.explained());
                for row in claim.rows.iter().filter(is_refused) {
                    let is_open = [Verdict::CannotTell, Verdict::Reference];
                    assert!(is_open.contains(&row.verdict), "{}", context());
                    assert!(forbids.contains(&Rule::Forbidden), "{}", context());
                }
            }
        }
        let mut void = repeated(records);
        for record in &mut void {
            record.status = Status::Void { reason: "a check failed".to_owned() };
        }
        for claim in claims_of(plan, &void) {
            assert!(claim.rows.iter().all(|row| row.value.is_none()), "{claim:?}");
            assert!(!claim.is_answered);
        }
    });
}

/// W6: no number of a processor that others used as well is told as a cost, whatever it is.
#[test]
fn what_forbids_a_cost_forbids_every_one() {
    let forbids = |mark: &Mark| rule(*mark, Sentence::Cost) == Rule::Forbidden;
    assert!(forbids(&Mark::Disturbed));
    let mut told = 0;
    all(|plan, records| {
        let mut cells = Cells::of(&repeated(records), &Environment::default());
        let costs = |cells: &Cells| {
            let asks = criteria(cells).into_iter().chain(findings(plan, cells));
            let asks = asks.chain(ask::of_answer(plan, cells).into_iter().flatten());
            let claims = asks.filter(|ask| ask.metric.is_cpu()).map(|ask| ask.claim(cells));
            claims.flat_map(|claim| claim.rows).filter(|row| row.value.is_some()).count()
        };
        told += costs(&cells);
        for mark in Mark::ALL.into_iter().filter(forbids) {
            cells.cells.iter_mut().for_each(|cell| cell.marks = vec![mark]);
            let repeats = cells.cells.iter_mut().flat_map(|cell| &mut cell.repeats);
            repeats.for_each(|repeat| repeat.lost.time = 1.0);
            assert_eq!(costs(&cells), 0, "{}, {mark:?}", plan.name);
        }
    });
    assert!(told > 0, "there are costs to be forbidden");
}

/// W6: of a machine that was 98 % busy nothing was said but in the environment, at the very end.
#[test]
fn a_machine_that_was_busy_is_told_before_everything_else() {
    let idle = IdleRate { seconds: 2.0, processors: 2, cpu_s: 1.97, ..IdleRate::default() };
    let environment = Environment { idle: Some(idle), ..Environment::default() };
    let records = repeated(&[over("local", 1, 1e5, 10), over("tcp", 1, 4e4, 39)]);
    let plan = plan("first-look");
    let answer = of_records(&plan, &records, &environment).expect("an answer");
    let banner = answer.banner.as_ref().expect("a banner");
    assert!(banner.starts_with("The machine was 98 % busy before the run"), "{banner}");
    assert!(banner.contains("weft study run --wait-for-quiet 5m"), "{banner}");
    let data = serde_json::to_value(&answer).expect("JSON");
    assert_eq!(data["banner"], banner.as_str());
    let quiet = of_records(&plan, &records, &Environment::default()).expect("an answer");
    assert!(quiet.banner.is_none() && !quiet.sentence.contains("busy"), "{quiet:?}");
    // It is no reason to tell nothing: who compares knows it.
    assert!(answer.is_answered && answer.sentence.contains("busy machine"), "{}", answer.sentence);
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = crate::results::Store::open(folder.path()).expect("a store");
    store.set_plan(&plan.to_text().expect("a plan")).expect("a plan");
    store.set_environment(&environment).expect("an environment");
    records.iter().for_each(|record| store.add(record).expect("a record"));
    let page = crate::html::report(&[folder.path()]).expect("a page");
    let (before, _) = page.split_once("class=\"sentence\"").expect("an answer");
    assert!(before.contains(banner.as_str()), "above the answer");
}

/// W6: `first-look` beside a compiler had a narrow interval about a number of the compiler.
#[test]
fn a_disturbed_cell_is_compared_with_nothing() {
    let records = [over("local", 1, 1e5, 10), over("tcp", 1, 4e4, 39)];
    let quiet = answered("first-look", &records);
    assert!(quiet.sentence.contains("29.00 µs"), "{}", quiet.sentence);
    let [local, mut tcp] = records;
    tcp.mark(Mark::Disturbed);
    let answer = answered("first-look", &[local, tcp]);
    assert!(!answer.is_answered && !answer.sentence.contains("29.00 µs"), "{}", answer.sentence);
    assert!(!answer.text().contains("29.00 µs"), "{}", answer.text());
    assert!(!answer.text().contains("one repeat"), "there are three: {}", answer.text());
    assert!(answer.sentence.contains(Mark::Disturbed.explained()), "{}", answer.sentence);
}

/// What others took is in the interval: where it cannot have made the difference, that is told.
#[test]
fn a_cell_that_lost_little_is_compared_within_what_it_lost() {
    let lost = |part: f64, us: u64| {
        let mut record = over("tcp", 1, 4e4, us);
        record.mark(Mark::Disturbed);
        record.host =
            Some(Side { seconds: 1.0, lost_s: Some(part), interruptions: 20, ..Side::default() });
        answered("first-look", &[over("local", 1, 4e4, 10), record])
    };
    let told = lost(0.02, 39);
    assert!(told.is_answered && told.sentence.contains("29.00 µs"), "{}", told.sentence);
    assert!(told.sentence.contains("disturbed"), "{}", told.sentence);
    let spoilt = lost(0.2, 39);
    assert!(!spoilt.is_answered, "{}", spoilt.sentence);
}

/// Whether a repeat counts depends on what others did: one that lost a fifth of its time is left
/// out where three remain, and without three the cell is compared with nothing.
#[test]
fn a_spoilt_repeat_is_left_out_where_three_others_remain() {
    let spoil = |record: &mut Record| {
        let lost_s = Some(0.2);
        record.mark(Mark::Disturbed);
        record.host = Some(Side { seconds: 1.0, lost_s, interruptions: 20, ..Side::default() });
    };
    let mut records = repeated(&[over("local", 1, 1e5, 10), over("tcp", 1, 4e4, 39)]);
    let mut more = over("tcp", 1, 2e4, 90);
    more.repeat = 4;
    spoil(&mut more);
    let answer_of = |records: &[Record]| {
        of_records(&plan("first-look"), records, &Environment::default()).expect("an answer")
    };
    records.push(more);
    let answer = answer_of(&records);
    assert!(answer.is_answered && answer.sentence.contains("29.00 µs"), "{}", answer.sentence);
    assert!(answer.sentence.contains("disturbed"), "{}", answer.sentence);
    let cells = Cells::of(&records, &Environment::default());
    let tcp = cells.cells.iter().find(|cell| cell.text(key::TRANSPORT) == "tcp").expect("it");
    assert_eq!((tcp.repeats.len(), tcp.left_out), (3, 1));
    spoil(&mut records[1]);
    assert!(!answer_of(&records).is_answered, "two are too few");
}

#[test]
fn a_full_generator_forbids_rates_and_says_so() {
    let mut records =
        vec![over("local", 32, 3e6, 10), over("tcp", 32, 4e5, 80), over("rdma", 32, 9e5, 35)];
    records[2].mark(Mark::GeneratorFull);
    let answer = answered("tradeoffs", &records);
    let iops = answer.claims.iter().find(|claim| claim.unit == "IOPS").expect("a claim");
    let rdma = iops.rows.iter().find(|row| row.contender == "rdma").expect("a row");
    assert_eq!((rdma.verdict, rdma.value.is_none()), (Verdict::CannotTell, true), "{iops:?}");
    assert!(rdma.why.contains(Mark::GeneratorFull.explained()), "{rdma:?}");
    assert!(!iops.is_answered, "tcp has won nothing: {iops:?}");
}

/// W9: settings that the plan's answer does not name distinguish contenders; none is left out.
#[test]
fn odd_axes_are_told_apart() {
    let mut plan = plan("latency-cdf");
    plan.axes.remove("cores");
    plan.set(key::TRANSPORT, ["loopback", "tcp"].map(Value::from).into());
    plan.set("arfs", ["off", "on"].map(Value::from).into());
    plan.set(key::PATTERN, vec!["randrw".into()]);
    plan.set(key::READ_PERCENT, [50u64, 100].map(Value::from).into());
    let settings = |transport: &str, arfs: &str, reads: u64| {
        [
            (key::TRANSPORT, Value::from(transport)),
            (key::ARFS, arfs.into()),
            (key::READ_PERCENT, reads.into()),
        ]
    };
    let mut records = Vec::new();
    for (place, transport) in ["loopback", "tcp"].into_iter().enumerate() {
        for (arfs, reads) in [("off", 50), ("off", 100), ("on", 50), ("on", 100)] {
            let us = 10 + 30 * place as u64 + reads / 10;
            records.push(point(&settings(transport, arfs, reads), 1e8 / us as f64, us));
        }
    }
    let answer = of_records(&plan, &repeated(&records), &Environment::default()).expect("one");
    for claim in &answer.claims {
        let names: Vec<&str> = claim.rows.iter().map(|row| row.contender.as_str()).collect();
        assert_eq!(
            names,
            ["loopback, arfs off", "loopback, arfs on", "tcp, arfs off", "tcp, arfs on"]
        );
        assert!(claim.rows.iter().all(|row| row.at.ends_with("% reads")), "{claim:?}");
        assert!(claim.consequence.contains("loopback, arfs"), "{}", claim.consequence);
    }
}

/// W10: a percentile has one definition, in claims, in the terminal's table and on the page.
#[test]
fn a_percentile_is_the_same_number_everywhere() {
    let mut records = repeated(&[over("tcp", 1, 5e4, 20)]);
    let slow = over("tcp", 1, 5e4, 2_000);
    records[2].read = slow.read;
    let plan = plan("latency-cdf");
    let answer = of_records(&plan, &records, &Environment::default()).expect("an answer");
    let p99 = answer.claims.iter().find(|claim| claim.question == "lowest p99").expect("a claim");
    let told = p99.rows[0].value.as_ref().expect("a value").text.clone();
    let results = Results {
        directory: "made-up".into(),
        environment: Environment::default(),
        plan: plan.to_text().expect("a plan"),
        records,
    };
    assert_eq!(crate::summary::lines(&results)[0].p99, told);
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = crate::results::Store::open(folder.path()).expect("a store");
    store.set_plan(&results.plan).expect("a plan");
    store.set_environment(&results.environment).expect("an environment");
    let mut store = store;
    results.records.iter().for_each(|record| store.add(record).expect("a record"));
    let page = crate::html::report(&[folder.path()]).expect("a page");
    let markup = page.split("<script id=\"charts\"").next().expect("markup");
    for cell in markup.split("<td").filter(|cell| cell.contains(" ms") || cell.contains("µs")) {
        let cell = cell.split("</td>").next().unwrap_or_default();
        assert!(!cell.contains("12.0 ms"), "{cell}");
    }
    assert!(markup.matches(told.as_str()).count() >= 3, "{told}");
}

/// W11: no interval of a latency, cost or rate is below zero, however wild the repeats.
#[test]
fn no_interval_is_below_zero() {
    all(|plan, records| {
        let mut wild = repeated(records);
        for (number, record) in wild.iter_mut().enumerate() {
            let factor = [1u32, 40, 3][number % 3];
            let made =
                self::record(record.role, &[], 1e5 / f64::from(factor), 10 * u64::from(factor));
            if record.is_measured() {
                record.read = made.read;
            }
        }
        for claim in claims_of(plan, &wild) {
            let is_difference = claim.beside == "above local";
            let others = claim.rows.iter().filter_map(|row| row.beside.as_ref());
            let values = claim.rows.iter().filter_map(|row| row.value.as_ref());
            for number in values.chain(others.filter(|_| !is_difference)) {
                let low = number.interval.as_ref().map_or(0.0, |interval| interval.low);
                assert!(low >= 0.0 && !number.interval_text.contains('−'), "{claim:?}");
            }
        }
    });
}

/// W12: numbers of one sentence about one thing are of the same statistic of the same cells.
#[test]
fn a_round_trip_is_not_above_its_own_tail() {
    let plan = plan("link-probe");
    let records = repeated(&made_up(&plan, &large_machine()));
    let answer = of_records(&plan, &records, &Environment::default()).expect("an answer");
    let [middle, tail, ..] = &answer.claims[..] else { panic!("{answer:?}") };
    for (one, other) in middle.rows.iter().zip(&tail.rows) {
        assert_eq!(one.contender, other.contender);
        let value = |row: &Row| row.value.as_ref().map(|number| number.value).expect("a value");
        assert!(value(one) <= value(other), "{one:?} {other:?}");
    }
    assert!(answer.claims.iter().all(|claim| !claim.metric.contains("mean")), "{answer:?}");
}

/// W15: what a question asks of is what its claims are about.
#[test]
fn polling_and_placement_are_answered_for_one_and_for_many() {
    let plan = plan("knobs");
    let answer = answered("knobs", &made_up(&plan, &large_machine()));
    assert_eq!(answer.claims.len(), 2);
    for claim in &answer.claims {
        assert_eq!(claim.rows.len(), 4, "{claim:?}");
    }
    assert_eq!([&answer.claims[0].unit, &answer.claims[1].unit], [&"ns", &"IOPS"]);
}

#[test]
fn what_cannot_be_told_says_how_many_repeats_would() {
    let mut records = repeated(&[over("tcp", 32, 100.0, 80), over("rdma", 32, 100.0, 80)]);
    for (record, requests) in records.iter_mut().zip([95, 100, 100, 110, 105, 117]) {
        record.read.as_mut().expect("reads").requests = requests;
    }
    let answer = of_records(&plan("tradeoffs"), &records, &Environment::default()).expect("one");
    let claim = answer.claims.iter().find(|claim| claim.unit == "IOPS").expect("a claim");
    let open: Vec<&Row> =
        claim.rows.iter().filter(|row| row.verdict == Verdict::CannotTell).collect();
    assert!(!open.is_empty(), "{claim:?}");
    assert!(open.iter().all(|row| row.why.contains("repeats would be needed")), "{open:?}");
    assert!(claim.consequence.contains("about "), "{}", claim.consequence);
}

#[test]
fn a_sweep_says_from_which_value_on() {
    let size = |transport: &str, bytes: u64, iops: f64| {
        let settings = [(key::TRANSPORT, Value::from(transport)), (key::BLOCK_BYTES, bytes.into())];
        record(Role::Plain, &settings, iops, 100)
    };
    let of = |study: &str, points: &[(&str, u64, f64)]| {
        let records: Vec<Record> =
            points.iter().map(|(name, kib, iops)| size(name, kib << 10, *iops)).collect();
        answered(study, &records).claims.remove(0)
    };
    let row = |claim: &Claim| {
        let row = claim.rows.iter().find(|row| row.contender == "tcp").expect("a row");
        (row.verdict, row.at.clone(), row.beside.as_ref().map(|of| of.text.clone()))
    };
    let tcp = |iops: [f64; 4]| {
        let mut points = vec![("local", 16, 1e6)];
        points.extend([4, 8, 16, 32].into_iter().zip(iops).map(|(kib, iops)| ("tcp", kib, iops)));
        row(&of("size-sweep", &points))
    };
    let share = || Some("38.0 %".to_owned());
    assert_eq!(
        tcp([1e5, 2e5, 3.8e5, 4e5]),
        (Verdict::Yes, "near its highest from 16 KiB on".into(), share())
    );
    assert_eq!(tcp([1e5, 2e5, 3.8e5, 8e5]).0, Verdict::No, "it still grows");
    assert_eq!(tcp([1e5, 2e5, 3.8e5, 2e5]).1, "highest at 16 KiB");
    let sole = of("size-sweep", &[("tcp", 4, 1e5)]);
    assert!(
        !sole.is_answered && sole.rows[0].why.contains("block size were not measured"),
        "{sole:?}"
    );
    let local = [("local", 4, 4e5), ("local", 8, 4e5)];
    let parity = |small: f64, large: f64| {
        row(&of("overhead-b-app", &[&local[..], &[("tcp", 4, small), ("tcp", 8, large)]].concat()))
    };
    assert_eq!(parity(1e5, 3.95e5), (Verdict::Yes, "from 8 KiB on".into(), Some("98.8 %".into())));
    assert_eq!(parity(3.95e5, 1e5).1, "only at 4 KiB; farthest at 8 KiB");
    assert_eq!(
        parity(1e5, 2e5),
        (Verdict::No, "nowhere; nearest at 8 KiB".into(), Some("50.0 %".into()))
    );
}

#[test]
fn a_tenant_is_beside_itself_alone_at_every_load() {
    let of = |role, tenant: &str, load: Option<u64>, iops, us| {
        let mut settings =
            vec![(key::FOREGROUND, Value::from(tenant)), (key::HOST_POLLING, "sleep".into())];
        settings.extend(load.map(|load| (key::LOAD_PERCENT, load.into())));
        record(role, &settings, iops, us)
    };
    let records = [
        of(Role::Alone, "l-app", None, 1e4, 100),
        of(Role::Foreground, "l-app", Some(10), 9.9e3, 101),
        of(Role::Foreground, "l-app", Some(40), 8e3, 150),
        of(Role::Foreground, "l-app", Some(50), 5e3, 230),
        of(Role::Foreground, "l-app", Some(90), 3e3, 300),
        of(Role::Alone, "t-app", None, 8e5, 100),
        of(Role::Foreground, "t-app", Some(90), 4e5, 200),
    ];
    let answer = answered("target-interference", &records);
    let [p99, latency, iops, rate] = &answer.claims[..] else { panic!("{answer:?}") };
    assert_eq!(p99.rows[0].at, "load 90 %, worse from load 40 % on", "{p99:?}");
    let borne = |claim: &Claim| (claim.rows[0].verdict, claim.rows[0].at.clone());
    assert_eq!(borne(latency), (Verdict::Yes, "up to load 40 %".to_owned()), "{latency:?}");
    assert_eq!(borne(rate), (Verdict::No, "not even load 90 %".to_owned()), "{rate:?}");
    assert_eq!(latency.rows[0].beside.as_ref().map(|of| of.text.as_str()), Some("1.50 ×"));
    assert_eq!(p99.rows[0].beside.as_ref().map(|of| of.text.as_str()), Some("3.00 ×"));
    assert_eq!(iops.rows[0].beside.as_ref().map(|of| of.text.as_str()), Some("50.0 %"));
    assert_eq!((p99.rows[0].verdict, iops.rows[0].verdict), (Verdict::No, Verdict::No));
}

/// Latency and CPU together: of few jobs each request costs more, and of many it waits longer.
#[test]
fn jobs_are_chosen_by_latency_and_cpu_together() {
    let of = |jobs: u64, us: u64, busy_s: f64| {
        let settings = [(key::TRANSPORT, Value::from("tcp")), (key::JOBS, jobs.into())];
        let mut record = point(&settings, 1e5, us);
        let thread = Thread { user_s: busy_s, ..Thread::default() };
        let side = Side { seconds: 1.0, threads: vec![thread], ..Side::default() };
        (record.host, record.target) = (Some(side.clone()), Some(side));
        record
    };
    let records = repeated(&[of(1, 40, 0.9), of(4, 50, 0.3), of(16, 400, 0.25)]);
    let cells = Cells::of(&records, &Environment::default());
    let asked = findings(&plan("parallelism"), &cells);
    let claims: Vec<Claim> = asked.iter().map(|ask| ask.claim(&cells)).collect();
    let claim = claims.iter().find(|claim| claim.question.starts_with("jobs with which"));
    let claim = claim.expect("the claim");
    assert!(claim.consequence.contains("take 4 jobs"), "{}", claim.consequence);
}

/// Chelsio says what an offload saves, and not how many times as much its absence costs.
#[test]
fn a_cost_that_is_worse_says_what_is_saved() {
    let of = |transport: &str, busy_s: f64| {
        let mut record = over(transport, 1, 1e5, 20);
        let thread = Thread { user_s: busy_s, ..Thread::default() };
        let side = Side { seconds: 1.0, threads: vec![thread], ..Side::default() };
        (record.host, record.target) = (Some(side.clone()), Some(side));
        record
    };
    let records = [of("tcp@toe", 0.2), of("tcp@nic", 0.4)];
    let answer = answered("cpu-per-gbps", &records);
    let part = "worse: tcp@nic (2.00 ×, of which 50 % are saved)";
    assert!(answer.sentence.contains(part), "{}", answer.sentence);
}

#[test]
fn a_tenant_is_judged_by_its_load_and_not_by_its_name() {
    let of = |role, tenant: &str, depth: u64, load: Option<u64>, iops, us| {
        let mut settings = vec![
            (key::FOREGROUND, Value::from(tenant)),
            (key::HOST_POLLING, "sleep".into()),
            (key::DEPTH, depth.into()),
        ];
        settings.extend(load.map(|load| (key::LOAD_PERCENT, load.into())));
        record(role, &settings, iops, us)
    };
    let records = repeated(&[
        of(Role::Alone, "reader", 1, None, 1e4, 100),
        of(Role::Foreground, "reader", 1, Some(90), 3e3, 300),
        of(Role::Alone, "loader", 128, None, 8e5, 100),
        of(Role::Foreground, "loader", 128, Some(90), 4e5, 200),
    ]);
    let mut renamed = plan("target-interference");
    renamed.set(key::FOREGROUND, ["reader", "loader"].map(Value::from).into());
    let loads = &mut renamed.interference.as_mut().expect("an interference study").foreground;
    for (before, now) in [("l-app", "reader"), ("t-app", "loader")] {
        let load = loads.remove(before).expect(before);
        loads.insert(now.to_owned(), load);
    }
    // The plan says what each is; of a plan that does not know them the cells do.
    for plan in [renamed, plan("target-interference")] {
        let answer = of_records(&plan, &records, &Environment::default()).expect("an answer");
        let question = |name: &str| {
            let mut claims = answer.claims.iter();
            let claim = claims.find(|claim| claim.question.contains(name)).expect(name);
            (claim.question.split(' ').next().map(str::to_owned), claim.unit)
        };
        assert_eq!(question("reader"), (Some("p99".to_owned()), "ns"));
        assert_eq!(question("loader"), (Some("IOPS".to_owned()), "IOPS"));
    }
}

#[test]
fn the_views_of_a_claim_say_the_same() {
    let mut kinds = Vec::new();
    all(|plan, records| {
        let answer = answered(&plan.name, records);
        kinds.extend(plan.answer.as_ref().map(|answer| answer.kind));
        let text = answer.text();
        let data = serde_json::to_value(&answer).expect("JSON");
        for (claim, json) in answer.claims.iter().zip(data["claims"].as_array().expect("claims")) {
            for (row, json) in claim.rows.iter().zip(json["rows"].as_array().expect("rows")) {
                assert!(text.contains(&row.contender), "{text}");
                assert_eq!(json["contender"], row.contender.as_str());
                for number in row.value.iter().chain(&row.beside) {
                    assert!(text.contains(&number.text), "{text}");
                }
            }
        }
        assert!(!answer.sentence.contains("the only one here"), "{}", answer.sentence);
    });
    assert!(kinds.contains(&AnswerKind::Knee) && kinds.contains(&AnswerKind::Slowdown));
}

/// A latency or a cost at one load is not compared with that at another.
#[test]
fn latencies_are_compared_at_one_point() {
    all(|plan, records| {
        for claim in claims_of(plan, &repeated(records)) {
            let is_time = ["ns", "cores"].contains(&claim.unit);
            if !is_time || !claim.beside.starts_with("of the best") {
                continue;
            }
            let compared = claim.rows.iter().filter(|row| row.beside.is_some());
            let compared = compared.filter(|row| row.verdict != Verdict::Reference);
            let places: Vec<&str> = compared.map(|row| row.at.as_str()).collect();
            assert!(places.windows(2).all(|two| two[0] == two[1]), "{}: {claim:?}", plan.name);
        }
    });
    let of = |polling: &str, kib: u64, us: u64| {
        let settings = [(key::HOST_POLLING, Value::from(polling)), (key::DEPTH, kib.into())];
        point(&settings, 1e4, us)
    };
    let mut plan = plan("latency-cdf");
    plan.set(key::HOST_POLLING, ["spin", "sleep"].map(Value::from).into());
    // Each is fastest elsewhere.
    let records = [of("spin", 1, 6), of("spin", 20, 11), of("sleep", 1, 142), of("sleep", 20, 72)];
    let cells = Cells::of(&repeated(&records), &Environment::default());
    let ask = criteria(&cells).into_iter().find(|ask| ask.metric.name == "p99").expect("one");
    let claim = Ask { is_typical: false, ..ask }.claim(&cells);
    let sleeps = claim.rows.iter().find(|row| row.contender == "host sleeps").expect("a row");
    assert_eq!(sleeps.at, "depth 1", "{claim:?}");
    let ratio = sleeps.beside.as_ref().expect("a ratio").value;
    assert!((ratio / (142.0 / 6.0) - 1.0).abs() < 0.01, "{claim:?}");
}

/// What marks or faults leave out may be what is asked for.
#[test]
fn a_peak_that_may_be_elsewhere_is_no_peak() {
    let claim = |change: &dyn Fn(&mut Record)| {
        let mut records: Vec<Record> = [("tcp", 1, 3e4), ("tcp", 5, 9.5e4), ("rdma", 1, 2e4)]
            .map(|(transport, depth, iops)| over(transport, depth, iops, 30))
            .into();
        change(&mut records[1]);
        let cells = Cells::of(&repeated(&records), &Environment::default());
        let ask = criteria(&cells).into_iter().find(|ask| ask.metric.name == "iops");
        ask.expect("a criterion").claim(&cells)
    };
    let tcp = |claim: &Claim| {
        let row = claim.rows.iter().find(|row| row.contender == "tcp").expect("a row");
        (row.verdict, row.why.clone())
    };
    assert_eq!(tcp(&claim(&|_| {})), (Verdict::Yes, String::new()));
    let (verdict, why) = tcp(&claim(&|record| record.mark(Mark::GeneratorFull)));
    assert_eq!(verdict, Verdict::CannotTell);
    assert!(why.starts_with("depth 5 may be better: "), "{why}");
    let failed = Status::Failed { reason: "gone".to_owned() };
    let (verdict, why) = tcp(&claim(&|record| record.status = failed.clone()));
    assert_eq!((verdict, why.as_str()), (Verdict::CannotTell, "depth 5 has no result"));
    let skipped = Status::Skipped { reason: "one processor".to_owned() };
    let (verdict, _) = tcp(&claim(&|record| record.status = skipped.clone()));
    assert_eq!(verdict, Verdict::Yes, "it cannot be measured here");
}

#[test]
fn a_difference_to_local_is_the_same_in_claims_and_tables() {
    let mut records = repeated(&[over("local", 1, 1e5, 10), over("tcp", 1, 4e4, 39)]);
    // Repeats that are slow together, by so much.
    for record in &mut records {
        let us = 20 * u64::from(record.repeat);
        let other = record.configuration.get(key::TRANSPORT) == Some(&"tcp".into());
        record.read = over("tcp", 1, 4e4, us + if other { 30 } else { 0 }).read;
    }
    let plan = plan("first-look");
    let cells = Cells::of(&records, &Environment::default());
    let tcp = cells.cells.iter().find(|cell| cell.text(key::TRANSPORT) == "tcp").expect("a cell");
    let table = crate::cells::Metric::named("delta").expect("a metric").read(&cells, tcp);
    let table = table.estimate().expect("a value");
    let answer = of_cells(&plan, &cells).expect("an answer");
    let told = answer.claims[0].rows.iter().find(|row| row.contender == "tcp").expect("a row");
    let beside = told.beside.as_ref().expect("a difference");
    assert_eq!(beside.value, table.mean);
    let interval = beside.interval.as_ref().expect("three repeats");
    let (low, high) = table.interval().expect("three repeats");
    assert!((interval.low - low).abs() < 1e-6 && (interval.high - high).abs() < 1e-6);
    assert!(high - low < 1.0, "each repeat has the same: {interval:?}");
}

#[test]
fn cells_without_a_line_are_told_before_everything_else() {
    let records = repeated(&[over("local", 1, 1e5, 10), over("tcp", 1, 4e4, 39)]);
    let mut cells: Vec<String> = records.iter().map(|record| record.cell.clone()).collect();
    cells.dedup();
    let of = |cells: &[String]| {
        let environment = Environment { cells: cells.to_vec(), ..Environment::default() };
        of_records(&plan("first-look"), &records, &environment).expect("an answer").banner
    };
    assert_eq!(of(&cells), None);
    cells.push("another".to_owned());
    let banner = of(&cells).expect("a banner");
    assert!(banner.starts_with(&format!("1 of the {} cells", cells.len())), "{banner}");
}

#[test]
fn a_background_that_fell_short_is_a_condition_of_its_foreground() {
    let of = |role, load: Option<u64>, us| {
        let mut settings = vec![
            (key::FOREGROUND, Value::from("l-app")),
            (key::HOST_POLLING, "sleep".into()),
            (key::DEPTH, 1u64.into()),
        ];
        settings.extend(load.map(|load| (key::LOAD_PERCENT, load.into())));
        record(role, &settings, 1e4, us)
    };
    let mut background = of(Role::Background, Some(90), 50);
    background.mark(Mark::BackgroundShort);
    let (alone, beside) = (of(Role::Alone, None, 100), of(Role::Foreground, Some(90), 300));
    let answer = answered("target-interference", &[alone, beside, background]);
    let claim = answer.claims.iter().find(|claim| claim.question.starts_with("p99 of l-app"));
    let claim = claim.expect("a claim");
    assert!(claim.marks.contains(&Mark::BackgroundShort.short()), "{claim:?}");
}
