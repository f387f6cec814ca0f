mod sentences;

use super::{
    figure::{Content, Grid},
    findings,
    section::Section,
    tradeoff::Standing,
};
use crate::{
    cells::Cells,
    results::{Environment, Mark, Record, Results, Role, Side, Status, Thread, Value, key, number},
    study::{builtin, plan::Plan},
    testing::{record, repeated},
};

fn plan(name: &str) -> Plan {
    builtin::find(name).expect(name).plan().expect(name)
}

fn found(name: &str, records: &[Record]) -> String {
    findings::findings(&Cells::of(records, &Environment::default()), &plan(name)).join(" ")
}

/// A tenant: p99 in µs and IOPS, with a background or alone.
fn tenant(role: Role, name: &str, load: u64, iops: f64, us: u64) -> Record {
    let mut settings = vec![(key::FOREGROUND, Value::from(name)), (key::SHARED, "target".into())];
    if role != Role::Alone {
        settings.push((key::LOAD_PERCENT, load.into()));
        settings.push((key::BACKGROUND, "storage".into()));
    }
    let mut record = record(role, &settings, iops, us);
    record.values.insert(number::REFERENCE_IOPS.to_owned(), 800_000.0);
    record
}

fn tenants() -> Vec<Record> {
    vec![
        tenant(Role::Alone, "l-app", 0, 10_000.0, 100),
        tenant(Role::Foreground, "l-app", 10, 9_900.0, 102),
        tenant(Role::Foreground, "l-app", 50, 5_000.0, 500),
        tenant(Role::Foreground, "l-app", 90, 7_000.0, 300),
        tenant(Role::Alone, "t-app", 0, 800_000.0, 150),
        tenant(Role::Foreground, "t-app", 10, 720_000.0, 160),
        tenant(Role::Foreground, "t-app", 90, 400_000.0, 300),
    ]
}

#[test]
fn interference_is_reported_with_its_onset_and_its_maximum() {
    let said = found("target-interference", &repeated(&tenants()));
    assert!(said.starts_with("A background load of 100 % is 800 K IOPS."), "{said}");
    let begins = "L-app: p99 is 1.02 times its value alone at 10 % background load, 3.00 times at \
                  90 %, and at worst 5.00 times at 50 %. L-app: loads from 50 % on make it more \
                  than 5 % worse.";
    assert!(said.contains(begins), "{said}");
    assert!(said.contains("T-app: IOPS is 90 % of its value alone at 10 %"), "{said}");
    assert!(
        said.contains("50 % at 90 %. T-app: every load makes it more than 5 % worse."),
        "{said}"
    );
    assert!(!said.contains("too few processors") && !said.contains("did not reach"), "{said}");
}

#[test]
fn a_background_with_fewer_processors_than_loads_is_told_from_tenants_that_share() {
    let said = |background: usize| {
        let of = |role, cpu: usize| {
            let mut record = tenant(role, "l-app", 90, 1_000.0, 100);
            record.host = Some(Side { seconds: 1.0, cpus: vec![cpu], ..Side::default() });
            record.mark(Mark::SharedCores);
            record
        };
        found("target-interference", &[of(Role::Foreground, 1), of(Role::Background, background)])
    };
    assert!(said(1).contains("too few processors to separate the tenants"), "{}", said(1));
    assert!(said(2).contains("too few processors for the background"), "{}", said(2));
    assert!(!said(2).contains("separate the tenants"), "{}", said(2));
}

#[test]
fn tenants_of_hosts_that_poll_and_of_hosts_that_sleep_are_told_apart() {
    let of = |role, polling: &str, reference: f64, us| {
        let mut settings = vec![
            (key::FOREGROUND, Value::from("l-app")),
            (key::SHARED, "target".into()),
            (key::HOST_POLLING, polling.into()),
        ];
        if role != Role::Alone {
            settings.push((key::LOAD_PERCENT, 10u64.into()));
        }
        let mut record = record(role, &settings, 10_000.0, us);
        record.values.insert(number::REFERENCE_IOPS.to_owned(), reference);
        record
    };
    let mut records = vec![
        of(Role::Alone, "sleep", 800_000.0, 100),
        of(Role::Foreground, "sleep", 800_000.0, 200),
        of(Role::Alone, "spin", 400_000.0, 100),
        of(Role::Foreground, "spin", 400_000.0, 2_000),
    ];
    let mut short = of(Role::Background, "spin", 400_000.0, 900);
    short.mark(Mark::BackgroundShort);
    records.push(short);
    let said = found("target-interference", &repeated(&records));
    for part in [
        "A background load of 100 % (host sleeps) is 800 K IOPS.",
        "A background load of 100 % (host polls) is 400 K IOPS.",
        "L-app (host sleeps): p99 is 2.00 times its value alone at",
        "L-app (host polls): p99 is 20.0 times its value alone at",
        "With the L-app in the foreground (host polls) the background did not reach",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("foreground (host sleeps)"), "{said}");
}

/// The same cell beside a background without storage.
fn network(mut record: Record) -> Record {
    record.configuration.insert(key::BACKGROUND.to_owned(), "network".into());
    record.cell.push_str(" background=network");
    record
}

fn with_control() -> Vec<Record> {
    let mut records = tenants();
    records.push(network(tenant(Role::Foreground, "t-app", 90, 600_000.0, 200)));
    records
}

#[test]
fn what_remains_without_storage_is_told() {
    let with = |us| {
        let mut records = with_control();
        records.push(network(tenant(Role::Foreground, "l-app", 50, 8_000.0, 900)));
        records.push(network(tenant(Role::Foreground, "l-app", 90, 8_000.0, us)));
        let mut short = network(tenant(Role::Background, "l-app", 50, 400_000.0, 900));
        short.mark(Mark::BackgroundShort);
        records.push(short);
        found("target-interference", &repeated(&records))
    };
    let said = with(200);
    for part in [
        // Nothing of the control is in the sentences about storage.
        "3.00 times at 90 %, and at worst 5.00 times at 50 %",
        "T-app: IOPS is 90 % of its value alone at 10 % background load, 50 % at 90 %.",
        "L-app at 90 % background load: p99 is 3.00 times its value alone with storage in the \
         background, and 2.00 times it with the same bytes over TCP only",
        "T-app at 90 % background load: IOPS is 50 % of its value alone with storage in the \
         background, and 75 % of it with the same bytes over TCP only",
        "With the L-app in the foreground and a background without storage, the background did not \
         reach",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let said = with(300);
    let alike = "L-app at 90 % background load, p99 with storage in the background and with the \
                 same bytes over TCP only: not distinguishable here";
    assert!(said.contains(alike), "{said}");
}

#[test]
fn harm_by_the_lowest_load_is_reported() {
    let records = [
        tenant(Role::Alone, "l-app", 0, 10_000.0, 100),
        tenant(Role::Foreground, "l-app", 10, 2_000.0, 500),
        tenant(Role::Foreground, "l-app", 90, 5_000.0, 200),
    ];
    let said = found("target-interference", &repeated(&records));
    let harm = "2.00 times at 90 % (the lowest load does the most harm). L-app: every load";
    assert!(said.contains(harm), "{said}");
}

#[test]
fn a_shared_second_processor_and_a_slow_background_are_reported() {
    let mut records = tenants();
    let mut short = tenant(Role::Background, "t-app", 90, 400_000.0, 900);
    short.mark(Mark::BackgroundShort);
    records.push(short);
    records.iter_mut().for_each(|record| record.mark(Mark::SharedCores));
    let said = found("target-interference", &records);
    let shared = "their loads shared one as well, so the results show the interference on both, \
                  not on the target's core alone";
    assert!(said.contains(shared), "{said}");
    assert!(said.contains(
        "With the T-app in the foreground the background did not reach its requested rate \
             from 90 %"
    ));
    assert!(!said.contains("With the L-app in the foreground"), "{said}");
}

fn point(transport: &str, depth: u64, iops: f64, us: u64) -> Record {
    let settings = [
        (key::TRANSPORT, Value::from(transport)),
        (key::BLOCK_BYTES, 4096u64.into()),
        (key::DEPTH, depth.into()),
    ];
    record(Role::Plain, &settings, iops, us)
}

#[test]
fn the_share_of_local_has_a_minimum_and_a_maximum() {
    let records = [
        point("local", 1, 1_000_000.0, 1),
        point("tcp", 1, 100_000.0, 10),
        point("local", 32, 2_000_000.0, 16),
        point("tcp", 32, 1_960_000.0, 17),
    ];
    let said = found("first-look", &repeated(&records));
    assert!(
        said.contains("between 10 % (depth 1) and 98 % (depth 32) of the local IOPS"),
        "{said}"
    );
    assert!(said.contains("They are within 5 % of local from depth 32 on."), "{said}");
    assert!(said.contains("the mean latency is 9.00 µs above local"), "{said}");
}

#[test]
fn a_share_of_a_full_generator_is_none() {
    let mut records = vec![point("local", 1, 2_000_000.0, 1), point("tcp", 1, 100_000.0, 10)];
    records.extend([point("local", 32, 3_000_000.0, 10), point("tcp", 32, 900_000.0, 35)]);
    for record in &mut records {
        let local = record.configuration[key::TRANSPORT] == "local".into();
        record.mark(if local { Mark::GeneratorFull } else { Mark::Loopback });
    }
    let said = found("first-look", &repeated(&records));
    assert!(!said.contains("of the local IOPS") && !said.contains("within 5 %"), "{said}");
    let why = "IOPS over tcp beside local: the load generator's processor was saturated (2 of 2 \
               points).";
    assert!(said.contains(why), "{said}");
    let latency = "the mean latency is 9.00 µs above local (10.00 µs against 1.00 µs); p99 is \
                   10.00 µs against 1.00 µs (loopback).";
    assert!(said.contains(latency), "a full generator says nothing against latency: {said}");
}

#[test]
fn what_does_not_differ_is_not_distinguishable() {
    let records = [point("local", 1, 1_000.0, 10), point("tcp", 1, 950.0, 10)];
    let mut records = repeated(&records);
    for (index, record) in records.iter_mut().enumerate() {
        let direction = record.read.as_mut().expect("reads");
        direction.requests += [0, 90, 60, 0, 0, 40][index];
    }
    let said = found("first-look", &records);
    assert!(!said.contains("of the local IOPS"), "{said}");
    let alike = "IOPS over tcp beside local: not distinguishable here: about ";
    assert!(said.contains(alike) && said.contains("repeats would be needed"), "{said}");
}

/// A saturation point with the shares of the two processors.
fn saturation(shared: &str, iops: f64, host: f64, target: f64) -> Record {
    let settings = [(key::SHARED, Value::from(shared)), (key::DEPTH, 64u64.into())];
    let mut record = record(Role::Saturation, &settings, iops, 60);
    record.values.insert(number::GENERATOR_SHARE.to_owned(), host);
    record.values.insert(number::TARGET_SHARE.to_owned(), target);
    record.mark(Mark::Loopback);
    record
}

#[test]
fn what_was_full_is_what_is_named_as_the_limit() {
    let target = saturation("target", 970_000.0, 0.73, 0.99);
    let mut host = saturation("host", 1_050_000.0, 0.70, 0.99);
    host.mark(Mark::LoadLimited);
    host.mark(Mark::NotSettled);
    let said = found("saturation", &repeated(&[host.clone(), target.clone()]));
    let limit = "1.05 M IOPS with one host core are not its capacity: the target's core was full \
                 first (99 %; the host's 70 %).";
    assert!(said.contains(limit), "{said}");
    assert!(said.contains("One target core delivers 970 K IOPS (loopback)."), "{said}");
    assert!(!said.contains("times the IOPS") && !said.contains("load's own core"), "{said}");
    let beside = "A target core beside a host core: load-limited: another processor";
    assert!(said.contains(beside), "{said}");
    for (share, target, expected) in [
        (0.7, 0.8, "no core was full (the host's 70 %, the target's 80 %)"),
        (0.97, 0.99, "the target's core was full as well (99 %)"),
    ] {
        host.values.insert(number::GENERATOR_SHARE.to_owned(), share);
        host.values.insert(number::TARGET_SHARE.to_owned(), target);
        let said = found("saturation", &repeated(std::slice::from_ref(&host)));
        assert!(said.contains(expected), "{said}");
    }
    host.values.clear();
    let said = found("saturation", &repeated(&[host]));
    assert!(said.contains("which processor was full is not known"), "{said}");
}

#[test]
fn two_cores_are_compared_if_both_were_full() {
    let target = saturation("target", 500_000.0, 0.73, 0.99);
    let mut host = saturation("host", 1_000_000.0, 0.99, 0.70);
    host.mark(Mark::GeneratorFull);
    let said = found("saturation", &repeated(&[host, target]));
    assert!(said.contains("One host core delivers 1.00 M IOPS (loopback)."), "{said}");
    assert!(said.contains("0.50 times the IOPS of a host core (loopback)."), "{said}");
}

#[test]
fn ninety_percent_of_the_maximum_are_reported() {
    let iops = [(1, 100.0), (8, 600.0), (32, 950.0), (128, 1000.0)];
    let records = iops.map(|(depth, iops)| point("tcp", depth, iops, 10));
    let said = found("overhead-t-app", &repeated(&records));
    assert!(said.contains("is reached at depth 32 for"), "{said}");
    let said = found("overhead-t-app", &records);
    let alike = "90 % of the maximum IOPS: not distinguishable here: the repeats show no spread";
    assert!(said.contains(alike), "{said}");
}

#[test]
fn published_numbers_are_in_the_figure_of_their_tenant() {
    let mut records = tenants();
    for record in &mut records {
        let depth =
            if record.configuration[key::FOREGROUND] == "l-app".into() { 1u64 } else { 128 };
        record.configuration.insert(key::DEPTH.to_owned(), depth.into());
    }
    let text = plan("target-interference").to_text().expect("a plan");
    let section = Section::of(&Results {
        directory: "made-up".into(),
        records,
        environment: Environment::default(),
        plan: text,
    });
    let names = |chart: &serde_json::Value| -> Vec<String> {
        let traces = chart["traces"].as_array().expect("traces").iter();
        traces.map(|trace| trace["name"].as_str().expect("a name").to_owned()).collect()
    };
    let charts: Vec<Vec<String>> = section.charts().map(names).collect();
    assert_eq!(charts[0], ["l-app", "t-app", "sivakumar2024, l-app"]);
    assert!(charts.contains(&["l-app", "t-app", "sivakumar2024, t-app"].map(str::to_owned).into()));
    let numbers = grid_of(&section, 0);
    assert_eq!(numbers.head[1..], ["l-app", "t-app", "sivakumar2024, l-app"]);
    let published: Vec<&str> = numbers.rows.iter().map(|row| row[3].as_str()).collect();
    assert!(published.iter().any(|text| text.ends_with('×')), "{published:?}");
    assert!(published.iter().all(|text| !text.contains("n = ")), "{published:?}");
    let loads: Vec<u64> = numbers.rows.iter().map(|row| row[0].parse().expect("a load")).collect();
    assert!(loads.is_sorted() && loads.len() > 4, "theirs are in the order of ours: {loads:?}");
    let (_, summary) = section.paper.first().expect("what the paper says");
    assert!(summary.starts_with("Published numbers: 8, "), "{summary}");
    assert!(!summary.contains(" 0 "), "{summary}");
}

/// The numbers of a section's chart.
fn grid_of(section: &Section, chart: usize) -> &Grid {
    let grids = section.figures.iter().filter_map(|figure| match &figure.content {
        Content::Chart { numbers, .. } => Some(numbers),
        Content::Table(_) => None,
    });
    grids.into_iter().nth(chart).expect("a chart")
}

/// Open loops with a knee at 80 %.
fn loads() -> Vec<Record> {
    let at = |(load, us): (u64, u64)| {
        let settings = [
            (key::TRANSPORT, Value::from("tcp")),
            (key::LOAD_PERCENT, load.into()),
            (key::DEPTH, 128u64.into()),
        ];
        let mut record = record(Role::Plain, &settings, load as f64 * 1e3, us);
        record.values.insert(number::OFFERED_IOPS.to_owned(), load as f64 * 1e3);
        record
    };
    [(10, 20), (50, 25), (80, 38), (95, 400)].map(at).into()
}

#[test]
fn the_knee_is_named_in_the_numbers_as_it_is_ringed_in_the_chart() {
    let section = Section::of(&Results {
        directory: "made-up".into(),
        records: repeated(&loads()),
        environment: Environment::default(),
        plan: plan("latency-vs-load").to_text().expect("a plan"),
    });
    let numbers = grid_of(&section, 1);
    let named: Vec<bool> = numbers.rows.iter().map(|row| row[1].ends_with(", knee")).collect();
    assert_eq!(named, [false, false, true, false], "{numbers:?}");
    assert_eq!(numbers.head[0], "offered load, IOPS");
    let of_table = section.figures.iter().find_map(|figure| match &figure.content {
        Content::Table(grid) => Some(&grid.head[0]),
        Content::Chart { .. } => None,
    });
    assert_eq!(of_table.map(String::as_str), Some("load, % of capacity"));
    let axis = section.charts().nth(1).map(|chart| &chart["layout"]["xaxis"]).expect("an axis");
    assert_eq!(axis["ticktext"], serde_json::json!(["5 K", "10 K", "20 K", "50 K", "100 K"]));
    assert_eq!(numbers.head.len(), 2, "the ring is no column: {:?}", numbers.head);
    let traces = section.charts().nth(1).and_then(|chart| chart["traces"].as_array());
    assert_eq!(traces.map(Vec::len), Some(2));
}

#[test]
fn the_best_depth_of_each_size_and_transport_is_drawn_and_named() {
    let of = |transport: &str, bytes: u64, depth: u64, iops: f64, us: u64| {
        let settings = [
            (key::TRANSPORT, Value::from(transport)),
            (key::BLOCK_BYTES, bytes.into()),
            (key::DEPTH, depth.into()),
        ];
        record(Role::Plain, &settings, iops, us)
    };
    let records = [
        of("local", 4096, 1, 300_000.0, 3),
        of("local", 4096, 64, 200_000.0, 90),
        of("tcp", 4096, 1, 20_000.0, 50),
        of("tcp", 4096, 8, 50_000.0, 40),
        of("tcp", 4096, 64, 40_000.0, 900),
        of("tcp", 65536, 1, 10_000.0, 60),
        of("tcp", 65536, 64, 30_000.0, 70),
    ];
    let text = plan("overhead-b-app").to_text().expect("a plan");
    // Of latency the least is the best.
    let text = text.replacen("y = [\"bandwidth\"]", "y = [\"bandwidth\", \"p99\"]", 1);
    let section = Section::of(&Results {
        directory: "made-up".into(),
        records: repeated(&records),
        environment: Environment::default(),
        plan: text,
    });
    let charts: Vec<&serde_json::Value> = section.charts().collect();
    let trace = |chart: usize, name: &str| {
        let traces = charts[chart]["traces"].as_array().expect("traces");
        traces.iter().find(|trace| trace["name"] == name).expect(name)
    };
    assert_eq!(charts[0]["traces"].as_array().map(Vec::len), Some(2), "one line a transport");
    assert_eq!(trace(0, "local")["text"], serde_json::json!(["1"]));
    assert_eq!(trace(0, "tcp")["text"], serde_json::json!(["8", "64"]));
    assert_eq!(trace(1, "tcp")["text"], serde_json::json!(["8", "1"]), "of p99");
    let mbps = trace(0, "tcp")["y"][0].as_f64().expect("a bandwidth");
    assert!((mbps / trace(0, "local")["y"][0].as_f64().expect("one") - 1.0 / 6.0).abs() < 0.001);
    assert!(charts[2]["traces"][0].get("text").is_none(), "{}", charts[2]);
    let shown = format!("{:?}", section.figures[0]);
    assert!(
        shown.contains("n = 3, queue depth 8") && shown.contains("n = 3, queue depth 64"),
        "{shown}"
    );
    assert!(shown.contains("Each point is the best over queue depth."), "{shown}");
}

#[test]
fn a_table_has_the_cells_with_a_result_and_says_how_many_have_none() {
    let mut records = vec![point("local", 1, 1e6, 1), point("tcp", 1, 1e5, 10)];
    records[1].status = Status::Skipped { reason: "no target was given".to_owned() };
    let section = Section::of(&Results {
        directory: "made-up".into(),
        records,
        environment: Environment::default(),
        plan: plan("tradeoffs").to_text().expect("a plan"),
    });
    let table = section.figures.iter().find_map(|figure| match &figure.content {
        Content::Table(grid) => Some((grid, &figure.note)),
        Content::Chart { .. } => None,
    });
    let (grid, note) = table.expect("a table");
    assert_eq!((grid.rows.len(), grid.rows[0][0].as_str()), (1, "local"));
    assert!(note.ends_with("One cell has no result; see below."), "{note}");
    assert_eq!(section.missing.len(), 1);
}

#[test]
fn a_study_without_results_says_so() {
    assert_eq!(found("first-look", &[]), "No cell has a result.");
}

#[test]
fn lines_far_apart_have_a_logarithmic_axis() {
    let axis = |local: f64| {
        let records = [point("local", 1, local, 1), point("tcp", 1, 100_000.0, 10)];
        let section = Section::of(&Results {
            directory: "made-up".into(),
            records: repeated(&records),
            environment: Environment::default(),
            plan: plan("overhead-t-app").to_text().expect("a plan"),
        });
        let chart = section.charts().next().expect("IOPS against depth");
        chart["layout"]["yaxis"]["type"].as_str().expect("a type").to_owned()
    };
    assert_eq!((axis(1_900_000.0), axis(2_100_000.0)), ("linear".to_owned(), "log".to_owned()));
}

#[test]
fn a_section_has_a_figure_for_each_plot_that_has_data() {
    let records = vec![
        point("local", 1, 1_000_000.0, 1),
        point("tcp", 1, 100_000.0, 10),
        point("local", 32, 2_000_000.0, 16),
        point("tcp", 32, 1_960_000.0, 17),
    ];
    let plan = plan("overhead-t-app");
    let text = plan.to_text().expect("a plan");
    let results = Results {
        directory: "made-up".into(),
        records,
        environment: Environment::default(),
        plan: text,
    };
    let section = Section::of(&results);
    assert_eq!(section.plan_fault, None);
    assert!(section.figures.len() >= plan.plots.len(), "{:?}", section.figures.len());
    assert!(section.charts().count() > 0);
}

/// Records of one cell of each transport and depth, for all sentences about a matrix.
fn matrix(transports: &[(&str, f64)]) -> Vec<Record> {
    let of = |depth: u64, iops: f64| {
        let at = transports.iter().enumerate();
        at.map(move |(index, (name, share))| point(name, depth, iops * share, 2 + index as u64))
    };
    of(1, 1e3).chain(of(32, 9.6e3)).chain(of(128, 1e4)).collect()
}

#[test]
fn the_tradeoffs_have_the_cost_of_a_million_iops() {
    let mut records = matrix(&[("local", 100.0), ("tcp", 40.0), ("rdma", 60.0)]);
    for record in &mut records {
        let seconds = if record.configuration[key::TRANSPORT] == "rdma".into() { 0.2 } else { 0.5 };
        let thread = Thread { user_s: seconds, ..Thread::default() };
        let side = Side { seconds: 1.0, threads: vec![thread], ..Side::default() };
        (record.host, record.target) = (Some(side.clone()), Some(side));
    }
    let section = Section::of(&Results {
        directory: "made-up".into(),
        records: repeated(&records),
        environment: Environment::default(),
        plan: plan("tradeoffs").to_text().expect("a plan"),
    });
    let table = section.tradeoffs.as_ref().expect("a table");
    let cost = table.criteria.iter().find(|line| line.name.starts_with("cost"));
    let cost = cost.expect("the row of cost");
    assert_eq!(table.alternatives, ["local", "tcp", "rdma"]);
    assert_eq!(cost.entries[2].1, Standing::Best, "{cost:?}");
    assert!(cost.entries.iter().all(|(text, _)| text.ends_with(" cores")), "{cost:?}");
}

#[test]
fn alternatives_that_overlap_have_no_winner() {
    let records = matrix(&[("local", 100.0), ("tcp", 50.0), ("rdma", 51.0)]);
    let mut records = repeated(&records);
    for (index, record) in records.iter_mut().enumerate() {
        let direction = record.read.as_mut().expect("reads");
        direction.requests = direction.requests * (100 + [0, 9, 4, 0, 7][index % 5]) / 100;
    }
    let said = found("concurrency", &records);
    assert!(said.contains("IOPS, peak: not distinguishable here: about"), "{said}");
    assert!(!said.contains("IOPS, peak: rdma is best"), "{said}");
}
