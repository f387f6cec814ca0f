use weft_host::Transport;

use super::*;
use crate::{
    cells::gate::{Rule, Sentence, rule},
    results::{Mark, Side, Thread, number},
    study::given::KnownTarget,
    study::matrix::{self, Capabilities, Step, expand},
    testing::{record, repeated},
};

fn plan(name: &str) -> Plan {
    builtin::find(name).expect(name).plan().expect(name)
}

fn answered(name: &str, records: &[Record]) -> Answer {
    of_records(&plan(name), &repeated(records), &Environment::default()).expect("an answer")
}

fn point(role: Role, settings: &[(&str, Value)], iops: f64, us: u64) -> Record {
    let base = [(key::PATTERN, Value::from("randread")), (key::BLOCK_BYTES, 4096u64.into())];
    record(role, &[&base, settings].concat(), iops, us)
}

fn first_look() -> Vec<Record> {
    let of = |transport: &str, iops, us| {
        let settings = [(key::TRANSPORT, Value::from(transport)), (key::DEPTH, 1u64.into())];
        point(Role::Plain, &settings, iops, us)
    };
    vec![of("local", 900_000.0, 1), of("tcp", 80_000.0, 13)]
}

fn knee_study() -> Vec<Record> {
    let of = |(load, us): (u64, u64)| {
        let settings = [
            (key::TRANSPORT, Value::from("tcp")),
            (key::LOAD_PERCENT, load.into()),
            (key::DEPTH, 128u64.into()),
        ];
        let offered = load as f64 * 1e3;
        let mut record = point(Role::Plain, &settings, offered, us);
        record.values.insert(number::OFFERED_IOPS.to_owned(), offered);
        record
    };
    let mut records: Vec<Record> = [(10, 20), (50, 25), (80, 38), (95, 400)].map(of).into();
    let capacity = [(key::TRANSPORT, Value::from("tcp"))];
    records.push(point(Role::Saturation, &capacity, 100_000.0, 900));
    records
}

fn idle_poll() -> Vec<Record> {
    let of = |(idle, us): (u64, u64)| {
        let settings = [
            (key::TRANSPORT, Value::from("tcp")),
            (key::TARGET_IDLE_POLL_US, idle.into()),
            (key::DEPTH, 1u64.into()),
        ];
        point(Role::Plain, &settings, 50_000.0, us)
    };
    [(0, 40), (20, 15), (80, 25)].map(of).into()
}

fn tenants() -> Vec<Record> {
    let of = |role, tenant: &str, load: Option<u64>, iops, us| {
        let mut settings = vec![
            (key::FOREGROUND, Value::from(tenant)),
            (key::HOST_POLLING, "sleep".into()),
            (key::SHARED, "target".into()),
        ];
        settings.extend(load.map(|load| (key::LOAD_PERCENT, load.into())));
        point(role, &settings, iops, us)
    };
    vec![
        of(Role::Alone, "l-app", None, 10_000.0, 100),
        of(Role::Foreground, "l-app", Some(10), 9_000.0, 110),
        of(Role::Foreground, "l-app", Some(90), 3_000.0, 300),
        of(Role::Alone, "t-app", None, 800_000.0, 100),
        of(Role::Foreground, "t-app", Some(90), 400_000.0, 200),
    ]
}

fn cores() -> Vec<Record> {
    let of = |(shared, iops): (&str, f64)| {
        point(Role::Saturation, &[(key::SHARED, shared.into())], iops, 100)
    };
    [("host", 500_000.0), ("target", 900_000.0)].map(of).into()
}

fn sizes() -> Vec<Record> {
    let of = |(transport, iops): (&str, f64)| {
        point(Role::Plain, &[(key::TRANSPORT, transport.into())], iops, 100)
    };
    [("local", 1_000_000.0), ("tcp", 250_000.0)].map(of).into()
}

fn reaching() -> Vec<Record> {
    let cells = [
        ("tcp", 4 << 10, 1e5),
        ("tcp", 8 << 10, 2e5),
        ("tcp", 16 << 10, 3.8e5),
        ("tcp", 32 << 10, 4e5),
        ("local", 16 << 10, 1e6),
    ];
    along(key::BLOCK_BYTES, &cells)
}

fn on_a_par() -> Vec<Record> {
    let cells = [
        ("local", 4 << 10, 4e5),
        ("local", 8 << 10, 4e5),
        ("local", 16 << 10, 4e5),
        ("tcp", 4 << 10, 1e5),
        ("tcp", 8 << 10, 3.9e5),
        ("tcp", 16 << 10, 3.9e5),
    ];
    along(key::BLOCK_BYTES, &cells)
}

/// p99 of hosts that poll and of hosts that sleep.
fn polling(cells: &[(&str, u64, u64)]) -> Vec<Record> {
    let of = |(polling, depth, us): &(&str, u64, u64)| {
        let settings = [
            (key::TRANSPORT, Value::from("tcp")),
            (key::HOST_POLLING, (*polling).into()),
            (key::DEPTH, (*depth).into()),
        ];
        point(Role::Plain, &settings, 50_000.0, *us)
    };
    cells.iter().map(of).collect()
}

/// Transports whose CPU is known.
fn transports() -> Vec<Record> {
    let cells = [("tcp", 128, 4e5), ("rdma", 128, 8e5), ("local", 128, 9e5)];
    let mut records = along(key::DEPTH, &cells);
    for record in &mut records {
        let thread = Thread { user_s: 0.5, ..Thread::default() };
        let busy = Side { seconds: 1.0, threads: vec![thread], ..Side::default() };
        (record.host, record.target) = (Some(busy.clone()), Some(busy));
    }
    records
}

/// A study of each kind, with results that answer it.
fn each_kind() -> [(&'static str, Vec<Record>); 10] {
    let deep = [("spin", 16, 10), ("sleep", 16, 20), ("spin", 64, 90), ("sleep", 64, 60)];
    [
        ("first-look", first_look()),
        ("request-size", sizes()),
        ("target-idle-poll", idle_poll()),
        ("latency-vs-load", knee_study()),
        ("target-interference", tenants()),
        ("saturation", cores()),
        ("size-sweep", reaching()),
        ("overhead-b-app", on_a_par()),
        ("pollable-queues", polling(&deep)),
        ("tradeoffs", transports()),
    ]
}

#[test]
fn each_kind_answers_in_a_sentence_with_three_numbers_at_most() {
    let parts = [
        "4 KiB random read over tcp takes 12.00 µs",
        "25.0 % (",
        "Best is idle poll 20 µs: p99 latency 15.",
        "up to 80.0 K IOPS",
        "on the same target core (host sleeps) a tenant with one request in flight has 3.00 × \
         (3.00 × to 3.00 ×) its p99 alone",
        "One host core: 500 K IOPS (",
        "from 16 KiB on: ",
        "reaches that of local from 8 KiB on: ",
        "host polls against host sleeps: lower at depth 16; higher at depth 64; 0.50 × (",
        "most IOPS: 800 K IOPS (",
    ];
    for ((study, records), part) in each_kind().into_iter().zip(parts) {
        let answer = answered(study, &records);
        assert!(answer.is_answered, "{study}: {}", answer.sentence);
        assert!(answer.sentence.contains(part), "{study}: {}", answer.sentence);
        assert!((1..=3).contains(&answer.numbers.len()), "{answer:?}");
        assert!(answer.numbers.iter().all(|number| number.interval.is_some()), "{answer:?}");
        assert_eq!(answer.question, plan(study).question);
    }
}

/// Results of every cell of a plan that a large machine can run. They differ from cell to cell, and
/// repeats hardly do.
fn results_of(plan: &Plan, targets: Vec<KnownTarget>) -> Vec<Record> {
    let capabilities = Capabilities {
        cpus: (0..64).collect(),
        own_target: targets.is_empty(),
        targets,
        rdma: true,
        tls: true,
        ..Capabilities::default()
    };
    let matrix = expand(plan, &capabilities, &Configuration::new());
    let cells = matrix.steps().filter(|step| step.missing().is_none()).flat_map(Step::cells);
    let made_up = |(number, cell): (usize, &matrix::Cell)| {
        let settings: Vec<(&str, Value)> =
            cell.configuration.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        let way = match cell.configuration.get(key::TRANSPORT).and_then(Value::as_text) {
            Some("local") => 1,
            Some("rdma") => 4,
            _ => 7,
        };
        let number = u32::try_from(number).expect("few");
        let iops = 1e6 / f64::from(way) * (1.0 + f64::from(number) / 10.0);
        let mut record = record(cell.role, &settings, iops, u64::from(way * (10 + number)));
        record.cell.clone_from(&cell.id);
        let busy = Side {
            seconds: 1.0,
            threads: vec![Thread { user_s: 0.5, ..Thread::default() }],
            ..Side::default()
        };
        record.host = Some(busy.clone());
        record.target = Some(busy);
        record.values.insert(number::OFFERED_IOPS.to_owned(), iops);
        record
    };
    cells.enumerate().map(made_up).collect()
}

#[test]
fn every_study_answers_its_question() {
    for study in builtin::BUILTINS {
        let plan = study.plan().expect(study.name);
        let records = results_of(&plan, Vec::new());
        let answer = answered(study.name, &records);
        let mut made_from = answer.numbers.iter().flat_map(|number| &number.cells).peekable();
        assert!(made_from.peek().is_some(), "{answer:?}");
        assert!(made_from.all(|id| records.iter().any(|record| record.cell == *id)), "{answer:?}");
        assert!(answer.question.ends_with('?'), "{}: {}", study.name, answer.question);
        assert!(answer.is_answered, "{}: {}", study.name, answer.sentence);
        assert!((1..=3).contains(&answer.numbers.len()), "{answer:?}");
        assert!(answer.numbers.iter().all(|number| number.value.is_finite()), "{answer:?}");
    }
}

/// It keeps its own settings, so that the sentence has other numbers.
#[test]
fn a_given_target_is_judged_as_it_is() {
    let plan = plan("isolation");
    let target = KnownTarget {
        name: "target.example:4420".to_owned(),
        transport: Transport::Tcp,
        elsewhere: true,
    };
    let records = results_of(&plan, vec![target]);
    assert!(records.iter().all(|one| !one.configuration.contains_key(key::TARGET_EXPRESS)));
    let answer = answered("isolation", &records);
    assert!(answer.is_answered && answer.numbers.len() == 3, "{answer:?}");
    let labels = ["P99 of L beside T: ", "; relative to p99 alone: ", "; T keeps, of its rate"];
    assert!(labels.iter().all(|part| answer.sentence.contains(part)), "{}", answer.sentence);
    let own = answered("isolation", &results_of(&plan, Vec::new()));
    assert!(own.sentence.contains("; without: "), "{}", own.sentence);
}

#[test]
fn a_neighbour_without_storage_is_told_beside_one_with_it() {
    let control = |us| {
        let mut records = tenants();
        let mut network = records[2].clone();
        network.configuration.insert(key::BACKGROUND.to_owned(), "network".into());
        let settings: Vec<(&str, Value)> = network
            .configuration
            .iter()
            .map(|(key, value)| (key.as_str(), value.clone()))
            .collect();
        records.push(point(Role::Foreground, &settings, 5_000.0, us));
        answered("target-interference", &records)
    };
    let answer = control(200);
    assert!(answer.is_answered && answer.numbers.len() == 3, "{answer:?}");
    let part = "3.00 × (3.00 × to 3.00 ×) its p99 alone; 2.00 × (2.00 × to 2.00 ×) with the same \
                bytes over TCP only; one with a deep queue keeps";
    assert!(answer.sentence.contains(part), "{}", answer.sentence);
    let answer = control(300);
    let part = "with the same bytes over TCP only: not distinguishable here";
    assert!(answer.sentence.contains(part) && answer.numbers.len() == 2, "{}", answer.sentence);
}

#[test]
fn marks_that_forbid_a_sentence_forbid_the_answer() {
    for (study, records) in each_kind() {
        for mark in Mark::ALL {
            let marked = |record: &Record| {
                let mut record = record.clone();
                record.mark(mark);
                record
            };
            let records: Vec<Record> = records.iter().map(marked).collect();
            let Answer { sentence, is_answered, .. } = answered(study, &records);
            let (kind, is_of_one) = kind_of(study);
            let expected = is_of_one && mark == Mark::GeneratorFull;
            let allowed = rule(mark, kind) != Rule::Forbidden || expected;
            // The CPU of both sides is unknown if the target's is.
            let unknown = mark == Mark::TargetUnknown && study == "tradeoffs";
            assert_eq!(is_answered, allowed && !unknown, "{study}, {mark:?}: {sentence}");
            if !allowed {
                assert!(sentence.contains(mark.explained()), "{study}, {mark:?}: {sentence}");
            }
            let is_named = sentence.contains(&format!("({})", mark.short()));
            let named = rule(mark, kind) == Rule::Named;
            assert_eq!(is_named, named, "{study}, {mark:?}: {sentence}");
            // A generator that was at its limit has found no capacity.
            if mark == Mark::LoadLimited && study == "latency-vs-load" {
                assert!(sentence.contains("% of the most that was reached"), "{sentence}");
            }
        }
    }
}

/// What kind of sentence a study's answer is, and whether it is about latency with one request in
/// flight, of which a full generator is no fault.
fn kind_of(study: &str) -> (Sentence, bool) {
    match study {
        "first-look" | "target-idle-poll" => (Sentence::Comparison, true),
        "latency-vs-load" => (Sentence::Value, false),
        "saturation" => (Sentence::Capacity, false),
        _ => (Sentence::Comparison, false),
    }
}

#[test]
fn what_is_not_distinguishable_is_said_with_the_repeats_that_it_takes() {
    let once = of_records(&plan("first-look"), &first_look(), &Environment::default());
    let once = once.expect("an answer");
    assert!(!once.is_answered && once.sentence.contains("at least 3 are needed"), "{once:?}");
    let mut records = idle_poll();
    records.truncate(2);
    let mut repeats = Vec::new();
    for (number, [one, other]) in [[10u64, 12], [14, 13], [12, 16]].into_iter().enumerate() {
        for (record, us) in records.iter().zip([one, other]) {
            let idle = record.configuration[key::TARGET_IDLE_POLL_US].clone();
            let settings = [
                (key::TRANSPORT, Value::from("tcp")),
                (key::TARGET_IDLE_POLL_US, idle),
                (key::DEPTH, 1u64.into()),
            ];
            let mut record = point(Role::Plain, &settings, 50_000.0, us);
            record.repeat = u32::try_from(number).expect("few") + 1;
            repeats.push(record);
        }
    }
    let plan = plan("target-idle-poll");
    let close = of_records(&plan, &repeats, &Environment::default()).expect("an answer");
    assert!(!close.is_answered && close.numbers.len() == 2);
    assert!(close.sentence.contains("not distinguishable here: about"), "{}", close.sentence);
}

/// Results along a setting: transport, value, IOPS.
fn along(setting: &str, cells: &[(&str, u64, f64)]) -> Vec<Record> {
    let of = |(transport, value, iops): &(&str, u64, f64)| {
        let settings = [(key::TRANSPORT, Value::from(*transport)), (setting, (*value).into())];
        point(Role::Plain, &settings, *iops, 100)
    };
    cells.iter().map(of).collect()
}

#[test]
fn a_sweep_answers_from_which_value_on() {
    let mut cells = vec![
        ("tcp", 4 << 10, 1e5),
        ("tcp", 8 << 10, 2e5),
        ("tcp", 16 << 10, 3.8e5),
        ("tcp", 32 << 10, 4e5),
        ("local", 16 << 10, 1e6),
    ];
    assert_eq!(along(key::BLOCK_BYTES, &cells), reaching());
    let of = |cells: &[_]| answered("size-sweep", &along(key::BLOCK_BYTES, cells));
    let answer = of(&cells);
    assert!(answer.sentence.contains("from 16 KiB on: "), "{}", answer.sentence);
    assert!(answer.sentence.contains(", 38.0 % ("), "{}", answer.sentence);
    assert_eq!(answer.numbers.len(), 3);
    cells[3].2 = 8e5;
    let answer = of(&cells);
    let grows = "still grows at 32 KiB, the last that was measured";
    assert!(answer.is_answered && answer.sentence.contains(grows), "{}", answer.sentence);
    // What falls again is not near its highest from there on.
    cells[3].2 = 2e5;
    let dips = of(&cells);
    assert!(dips.sentence.contains("is highest with 16 KiB: "), "{}", dips.sentence);
    let one = of(&cells[..1]);
    assert!(one.sentence.contains("with 4 KiB, the only one here"), "{}", one.sentence);
}

#[test]
fn parity_is_reached_at_a_size_or_nowhere() {
    let of = |cells: &[_]| answered("overhead-b-app", &along(key::BLOCK_BYTES, cells));
    let local = [("local", 4 << 10, 4e5), ("local", 8 << 10, 4e5)];
    let near = of(&[&local[..], &[("tcp", 4 << 10, 1e5), ("tcp", 8 << 10, 3.9e5)]].concat());
    assert!(near.sentence.contains("reaches that of local from 8 KiB on: "), "{}", near.sentence);
    let dips = of(&[&local[..], &[("tcp", 4 << 10, 3.9e5), ("tcp", 8 << 10, 1e5)]].concat());
    let only = "reaches that of local with some block size only; it is nearest with 4 KiB: ";
    assert!(dips.sentence.contains(only), "{}", dips.sentence);
    let far = of(&[&local[..], &[("tcp", 4 << 10, 1e5), ("tcp", 8 << 10, 2e5)]].concat());
    assert!(far.sentence.contains("nowhere; it is nearest with 8 KiB: "), "{}", far.sentence);
    assert!(far.is_answered && far.numbers[0].text == "50.0 %", "{far:?}");
}

#[test]
fn one_way_beats_another_at_some_depths() {
    let cells = [
        ("spin", 1, 10),
        ("sleep", 1, 20),
        ("spin", 16, 30),
        ("sleep", 16, 30),
        ("spin", 64, 90),
        ("sleep", 64, 60),
    ];
    let mut records = polling(&cells);
    let answer = answered("pollable-queues", &records);
    let parts = "host polls against host sleeps: lower at depth 1; higher at depth 64; \
                 at depth 16: not distinguishable here: more than 100 repeats would be needed; \
                 0.50 × (";
    assert!(answer.sentence.contains(parts), "{}", answer.sentence);
    assert_eq!(answer.numbers.len(), 2);
    // A depth that its marks forbid has its reason, and the marks of all others are named.
    records[0].mark(Mark::Loopback);
    records[5].mark(Mark::GeneratorFull);
    let answer = answered("pollable-queues", &records);
    let part = "at depth 64: the load generator's processor was saturated; 0.50 × (";
    assert!(answer.sentence.contains(part), "{}", answer.sentence);
    assert!(answer.sentence.ends_with("at depth 1 (loopback)."), "{}", answer.sentence);
}

#[test]
fn what_holds_from_a_value_on_names_the_marks_of_all_of_them() {
    for (study, mut records, place) in
        [("size-sweep", reaching(), 3), ("overhead-b-app", on_a_par(), 5)]
    {
        records[place].mark(Mark::NotSettled);
        let answer = answered(study, &records);
        assert!(answer.is_answered && answer.sentence.contains("(not steady)"), "{answer:?}");
    }
}

#[test]
fn the_best_transport_is_named_for_each_criterion() {
    let cells = [("tcp", 128, 4e5), ("rdma", 128, 8e5), ("local", 128, 9e5)];
    let answer = answered("tradeoffs", &along(key::DEPTH, &cells));
    assert!(answer.sentence.contains("most IOPS: 800 K IOPS ("), "{}", answer.sentence);
    assert!(answer.sentence.contains(") with rdma"), "{}", answer.sentence);
    assert!(!answer.is_answered, "nothing is known of the CPU: {}", answer.sentence);
    let alike = [("tcp", 128, 7.99e5), cells[1], cells[2]];
    let answer = answered("tradeoffs", &along(key::DEPTH, &alike));
    assert!(answer.sentence.contains("rdma and tcp are not distin"), "{}", answer.sentence);
}

#[test]
fn what_is_faster_over_the_network_takes_less() {
    let mut records = first_look();
    let [local, remote] = &mut records[..] else { panic!("two records") };
    std::mem::swap(&mut local.read, &mut remote.read);
    let answer = answered("first-look", &records);
    assert!(answer.sentence.contains(" tcp takes 12.00 µs (12.00 µs to 12.00 µs) less than from"));
    assert_eq!(answer.numbers[0].label, "less for a 4 KiB random read over tcp");
    assert_eq!(answer.numbers[0].text, "12.00 µs");
}

#[test]
fn two_repeats_give_a_range_and_say_so() {
    let records: Vec<Record> =
        repeated(&idle_poll()).into_iter().filter(|record| record.repeat < 3).collect();
    let answer = of_records(&plan("target-idle-poll"), &records, &Environment::default());
    let answer = answer.expect("an answer");
    assert!(answer.sentence.contains(", both repeats)"), "{}", answer.sentence);
}

#[test]
fn the_processor_time_of_a_cell_passes_the_gate_like_its_latency() {
    let records = results_of(&plan("first-look"), Vec::new());
    let answer = answered("first-look", &records);
    let [.., cpu] = &answer.numbers[..] else { panic!("{answer:?}") };
    let sides = "host 1.30 µs (1.26 µs to 1.33 µs), target 1.30 µs (1.26 µs to 1.33 µs)";
    assert_eq!(cpu.note, sides);
    assert!(answer.sentence.contains(sides), "{}", answer.sentence);
}

#[test]
fn memory_is_no_ssd_and_a_measured_device_is_the_measure() {
    let of = |local: &str| {
        let environment = Environment { local: local.to_owned(), ..Environment::default() };
        let records = repeated(&first_look());
        of_records(&plan("first-look"), &records, &environment).expect("an answer").sentence
    };
    let memory = of("memory:256MiB");
    assert!(memory.contains("a copy and no SSD") && memory.contains("15.0 %"), "{memory}");
    assert!(memory.contains("80 µs (assumed: none was measured)"), "{memory}");
    let disk = of("/dev/nvme0n1");
    assert!(disk.contains("the local device /dev/nvme0n1 (1.00 µs)"), "{disk}");
    assert!(!disk.contains("assumed"), "{disk}");
}

#[test]
fn every_study_says_what_its_answer_is() {
    for study in builtin::BUILTINS {
        let plan = study.plan().expect(study.name);
        assert!(plan.answer.is_some(), "{}", study.name);
        let nothing = of_records(&plan, &[], &Environment::default()).expect("an answer");
        assert!(!nothing.is_answered && nothing.sentence.contains("not measured"), "{nothing:?}");
        // Results of earlier versions have plans without it.
        let earlier = Plan { answer: None, ..plan };
        assert!(of_records(&earlier, &[], &Environment::default()).is_some());
    }
}
