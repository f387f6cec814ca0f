//! Every kind of sentence of a report, with every mark.

use super::*;
use crate::{
    cells::gate::{Rule, Sentence, rule},
    results::{Connection, LinkProbe},
};

/// A kind of sentence.
struct Case {
    study: &'static str,
    /// What brings it about.
    records: Vec<Record>,
    /// A part of it, which its refusal does not have.
    part: &'static str,
    kind: Sentence,
    /// It is about latency with one request in flight, of which a full generator is no fault.
    is_of_one: bool,
}

fn case(study: &'static str, records: Vec<Record>, part: &'static str, kind: Sentence) -> Case {
    Case { study, records, part, kind, is_of_one: false }
}

fn of_one(case: Case) -> Case {
    Case { is_of_one: true, ..case }
}

/// Local and TCP at three depths, where TCP reaches these shares of local.
fn near_local(shares: [f64; 3]) -> Vec<Record> {
    let depths = [(1, 1e5), (32, 9.6e5), (128, 1e6)];
    let both = depths.into_iter().zip(shares).map(|((depth, iops), share)| {
        [point("local", depth, iops, 2), point("tcp", depth, iops * share, 3)]
    });
    both.flatten().collect()
}

/// Cells over a connection whose raw link was probed, at half of its floors.
fn over_the_link() -> Vec<Record> {
    let of = |depth: u64, iops: f64| {
        let settings = [
            (key::TRANSPORT, Value::from("tcp")),
            (key::PATTERN, "randread".into()),
            (key::BLOCK_BYTES, 4096u64.into()),
            (key::DEPTH, depth.into()),
            (key::JOBS, 1u64.into()),
        ];
        let mut record = record(Role::Plain, &settings, iops, 10);
        record.connection = Some(Connection::over_loopback("tcp"));
        record
    };
    vec![of(1, 1e5), of(32, 4e5)]
}

fn environment() -> Environment {
    let probe = LinkProbe {
        connection: Some(Connection::over_loopback("tcp")),
        round_trips_per_s: 2e5,
        messages_per_s: 8e5,
        stream_bytes_per_s: 8e5 * 4096.0,
        ..LinkProbe::default()
    };
    Environment { link: vec![probe], ..Environment::default() }
}

fn of_matrices() -> Vec<Case> {
    use Sentence::{Comparison, ShareOfLink, Value as Number};
    let pair = || matrix(&[("local", 100.0), ("tcp", 40.0)]);
    let three = || matrix(&[("local", 100.0), ("tcp", 40.0), ("rdma", 60.0)]);
    let mut with_cpu = three();
    for record in &mut with_cpu {
        let thread = Thread { user_s: 0.5, ..Thread::default() };
        let side = Side { seconds: 1.0, threads: vec![thread], ..Side::default() };
        (record.host, record.target) = (Some(side.clone()), Some(side));
    }
    let (late, always) = (near_local([0.4, 0.98, 0.99]), near_local([0.98, 0.99, 0.99]));
    let link = over_the_link;
    vec![
        case("first-look", pair(), "of the local IOPS; the median", Comparison),
        case("first-look", pair(), "within 5 % of local at any", Comparison),
        case("first-look", late, "within 5 % of local from depth 32 on", Comparison),
        case("first-look", always, "within 5 % of local at every", Comparison),
        of_one(case("first-look", pair(), "the mean latency is 1.00 µs above local", Comparison)),
        case("first-look", pair(), "is reached at depth 32 for", Comparison),
        case("concurrency", three(), "IOPS, peak: rdma is best", Comparison),
        case("concurrency", with_cpu, "CPU time of host and target together", Number),
        case("concurrency", link(), "relative to raw round trips: 50 % (", ShareOfLink),
        case("concurrency", link(), "relative to raw messages: 50 % (", ShareOfLink),
        case("concurrency", link(), "relative to the raw stream: 50 % (", ShareOfLink),
    ]
}

fn of_other_kinds() -> Vec<Case> {
    use Sentence::{Capacity, Comparison, Value as Number};
    let target = saturation("target", 1e6, 0.7, 0.99);
    let cores = vec![saturation("host", 5e5, 0.99, 0.7), target.clone()];
    let over_tcp = |role, depth: u64, iops| {
        let settings = [(key::TRANSPORT, Value::from("tcp")), (key::DEPTH, depth.into())];
        record(role, &settings, iops, 10)
    };
    let mut of_capacity = loads();
    of_capacity.push(over_tcp(Role::Saturation, 128, 1e5));
    let mut of_saturation = tenants();
    of_saturation.push(target.clone());
    let (one, deep) = (over_tcp(Role::Link, 1, 1e6), over_tcp(Role::Link, 32, 1e6));
    let interference = "target-interference";
    vec![
        case("saturation", vec![target], "One target core delivers", Capacity),
        case("saturation", cores, "times the IOPS of a host core", Comparison),
        case("latency-vs-load", loads(), "p99 stays within twice its least value up to", Number),
        case("latency-vs-load", of_capacity, "up to 80.0 K IOPS, 80 % of the ", Number),
        case(interference, of_saturation, "A background load of 100 % is", Number),
        case(interference, tenants(), "T-app: IOPS is 90 %", Comparison),
        case(interference, tenants(), "T-app: every load makes it", Comparison),
        case(
            interference,
            with_control(),
            "IOPS is 50 % of its value alone with storage",
            Comparison,
        ),
        of_one(case("link-probe", vec![one], ") takes ", Number)),
        case("link-probe", vec![deep], "The maximum bandwidth of the raw link is", Number),
    ]
}

/// The findings of three repeats, and what they say of the raw link.
fn said(study: &str, records: &[Record]) -> Vec<String> {
    let section = Section::of(&Results {
        directory: "made-up".into(),
        records: repeated(records),
        environment: environment(),
        plan: plan(study).to_text().expect("a plan"),
    });
    section.findings.into_iter().chain(section.link_shares).collect()
}

fn marked(records: &[Record], mark: Mark) -> Vec<Record> {
    let mut marked = records.to_vec();
    for record in &mut marked {
        record.marks = vec![mark];
        if record.configuration.get(key::FOREGROUND) == Some(&"t-app".into()) {
            record.configuration.insert(key::DEPTH.to_owned(), 128u64.into());
        }
    }
    marked
}

#[test]
fn every_sentence_is_forbidden_by_the_marks_that_the_table_says_and_names_the_others() {
    let cases = of_matrices().into_iter().chain(of_other_kinds());
    for Case { study, records, part, kind, is_of_one } in cases {
        for mark in Mark::ALL {
            let all = said(study, &marked(&records, mark));
            let told = all.iter().find(|sentence| sentence.contains(part));
            let expected = is_of_one && mark == Mark::GeneratorFull;
            let allowed = rule(mark, kind) != Rule::Forbidden || expected;
            // The CPU of both sides is unknown if the target's is.
            let unknown = mark == Mark::TargetUnknown && part.starts_with("CPU");
            assert_eq!(told.is_some(), allowed && !unknown, "{mark:?}, {part}: {all:?}");
            let named = format!("({})", mark.short());
            if let Some(told) = told {
                assert_eq!(told.contains(&named), rule(mark, kind) == Rule::Named, "{told}");
            }
            if !allowed {
                let refused = all.iter().any(|sentence| {
                    sentence.contains(mark.explained()) || sentence.contains("not its capacity")
                });
                assert!(refused, "{mark:?}, {part}: {all:?}");
            }
        }
        let mut void = records;
        for record in &mut void {
            record.status = Status::Void { reason: "a check failed".to_owned() };
        }
        let all = said(study, &void);
        assert!(all.iter().all(|sentence| !sentence.contains(part)), "{part}: {all:?}");
    }
}
