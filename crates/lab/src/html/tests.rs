use serde_json::json;

use super::figure::{Content, Grid};
use super::section::Section;
use crate::cells::gate::{Sentence, gate};
use crate::claims::Verdict;
use crate::results::{
    Environment, Mark, Record, Results, Role, Side, Status, Thread, Value, key, number,
};
use crate::study::builtin;
use crate::study::plan::Plan;
use crate::testing::{record, repeated};

fn plan(name: &str) -> Plan {
    builtin::find(name).expect(name).plan().expect(name)
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

fn point(transport: &str, depth: u64, iops: f64, us: u64) -> Record {
    let settings = [
        (key::TRANSPORT, Value::from(transport)),
        (key::BLOCK_BYTES, 4096u64.into()),
        (key::DEPTH, depth.into()),
    ];
    record(Role::Plain, &settings, iops, us)
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
    // Each of the two figures has its tenant alone, as it was printed.
    assert_eq!(charts[0], ["l-app", "sivakumar2024, l-app"]);
    assert!(charts.contains(&["t-app", "sivakumar2024, t-app"].map(str::to_owned).into()));
    let numbers = grid_of(&section, 0);
    assert_eq!(numbers.head[1..], ["l-app", "sivakumar2024, l-app"]);
    let published: Vec<&str> = numbers.rows.iter().map(|row| row[2].as_str()).collect();
    assert!(published.iter().any(|text| text.ends_with('×')), "{published:?}");
    assert!(published.iter().all(|text| !text.contains("n = ")), "{published:?}");
    let loads: Vec<u64> = numbers.rows.iter().map(|row| row[0].parse().expect("a load")).collect();
    assert!(loads.is_sorted() && loads.len() > 4, "theirs are in the order of ours: {loads:?}");
    let (_, summary) = section.paper.first().expect("what the paper says");
    assert!(summary.starts_with("Published numbers: 8, "), "{summary}");
    assert!(!summary.contains(" 0 "), "{summary}");
}

fn section(study: &str, records: Vec<Record>) -> Section {
    Section::of(&Results {
        directory: "made-up".into(),
        records,
        environment: Environment::default(),
        plan: plan(study).to_text().expect("a plan"),
    })
}

/// lab.md: "IOPS relative to local" was drawn to three digits beside "generator saturated (12 of 12
/// points)". A point is hollow for its own marks, and for those of what it is relative to.
#[test]
fn points_that_may_not_be_compared_are_hollow() {
    let of = |transport: &str, depth: u64, mark: Option<Mark>| {
        let mut record = point(transport, depth, 1e5 * depth as f64, 10);
        mark.into_iter().for_each(|mark| record.mark(mark));
        record
    };
    for mark in Mark::ALL {
        let records = [of("local", 1, Some(mark)), of("local", 128, None), of("tcp", 128, None)];
        let section = section("concurrency", repeated(&records));
        let metric = crate::cells::Metric::named("concurrency").expect("a metric");
        let cells = crate::cells::Cells::of(&repeated(&records), &Environment::default());
        let base = gate(Sentence::Comparison, &metric, &[&cells.cells[0]]).refusal().is_some();
        let chart = section.charts().next().expect("concurrency");
        let traces = chart["traces"].as_array().expect("traces");
        let measured = traces.iter().filter(|trace| trace["meta"]["published"] == false);
        let hollow: Vec<_> = measured.map(|trace| trace["meta"].get("hollow").cloned()).collect();
        let expected = |points: usize| base.then(|| json!(vec![true; points]));
        assert_eq!(hollow, [expected(2), expected(1)], "{mark:?}: {chart}");
        let figure = &section.figures[0];
        assert_eq!(figure.note.contains("Hollow:"), base, "{}", figure.note);
        let numbers = format!("{:?}", grid_of(&section, 0));
        assert_eq!(numbers.contains(", hollow"), base, "{numbers}");
    }
}

#[test]
fn panels_that_are_compared_have_one_range() {
    let of = |transport: &str, cores: u64, us: u64| {
        let settings = [
            (key::TRANSPORT, Value::from(transport)),
            (key::CORES, cores.into()),
            (key::BLOCK_BYTES, 4096u64.into()),
        ];
        record(Role::Plain, &settings, 1e5, us)
    };
    let records = [of("local", 1, 3), of("tcp", 1, 60), of("local", 2, 2), of("tcp", 2, 9000)];
    let section = section("latency-cdf", repeated(&records));
    let panels: Vec<_> = section.charts().map(|chart| &chart["layout"]["xaxis"]).collect();
    assert!(panels.len() >= 2, "{panels:?}");
    let range = panels[0]["range"].as_array().expect("a range");
    let ends: Vec<f64> = range.iter().filter_map(serde_json::Value::as_f64).collect();
    assert!(ends[0] < (2e3_f64).log10() && ends[1] > (9e6_f64).log10(), "{ends:?}");
    assert!(panels.iter().all(|panel| panel == &panels[0]), "{panels:?}");
}

/// A publication's number is in the chart of its metric, at its place, with the settings of the
/// group.
#[test]
fn published_numbers_are_in_the_charts_of_their_metric() {
    let records: Vec<Record> = [1u64, 32, 128]
        .into_iter()
        .flat_map(|depth| ["local", "rdma"].map(|transport| point(transport, depth, 1e5, 100)))
        .map(|mut record| {
            record.configuration.insert(key::PATTERN.to_owned(), "read".into());
            record
        })
        .collect();
    let section = section("one-target-core", repeated(&records));
    let chart = |title: &str| {
        let figure = section.figures.iter().find(|figure| figure.title == title).expect(title);
        let Content::Chart { data, .. } = &figure.content else { panic!("a chart") };
        let traces = data["traces"].as_array().expect("traces").iter();
        let published = traces.filter(|trace| trace["meta"]["published"] == true);
        published.map(|trace| trace["x"].as_array().expect("places").len()).sum::<usize>()
    };
    let theirs = |metric: &str| {
        let all = crate::published::published().of_study("one-target-core");
        all.filter(|result| result.metric == metric).count()
    };
    for (title, metric) in
        [("Latency: p80 latency", "lat_p80"), ("Latency: p95 latency", "lat_p95")]
    {
        assert!(chart(title) > 0 && chart(title) == theirs(metric), "{title}");
    }
    assert_eq!(chart("Latency: p99 latency"), 0, "nobody published it");
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
    let cost = section.tradeoffs.iter().find(|claim| claim.question.starts_with("cost"));
    let cost = cost.expect("the claim about cost");
    let names: Vec<&str> = cost.rows.iter().map(|row| row.contender.as_str()).collect();
    assert_eq!(names, ["local", "tcp", "rdma"]);
    assert_eq!(cost.rows[2].verdict, Verdict::Yes, "{cost:?}");
    let values = cost.rows.iter().filter_map(|row| row.value.as_ref());
    assert!(values.map(|value| &value.text).all(|text| text.ends_with(" cores")), "{cost:?}");
}

/// What was advised stands above the study's own answer, with the curve and the points of each way.
#[test]
fn an_advice_is_drawn_from_the_file_beside_the_results() {
    let folder = tempfile::tempdir().expect("a folder");
    let interval = |value: f64| json!({ "value": value, "low": 0.8 * value, "high": 1.2 * value });
    let at = |iops: f64, ns: f64| json!({ "iops": iops, "p99_ns": interval(ns) });
    let row = |way: &str, verdict: &str, refusal: Option<&str>| {
        let known = refusal.is_none();
        json!({
            "way": way, "verdict": verdict, "refusal": refusal,
            "quantiles_ns": known.then(|| [interval(2e4), interval(1e5), interval(3e5)]),
            "least_depth": known.then_some(16), "headroom_iops": known.then_some(9e5),
            "processors": [known.then_some(0.75), None::<f64>], "cells": 6, "configuration": {},
            "predicted": if known { vec![at(1e5, 9e4), at(2e5, 1e5)] } else { Vec::new() },
            "measured": [at(1.5e5, 9.5e4)],
        })
    };
    let advice = json!({
        "p99_ns": 3e5, "iops": 2e5, "conclusion": "Tcp holds <it>.", "confirmation": null,
        "rows": [row("tcp", "holds", None), row("rdma", "unknown", Some("it was a guess"))],
    });
    let path = folder.path().join(crate::results::file::ADVICE);
    std::fs::write(&path, advice.to_string()).expect("a file");
    let plan = plan("latency-vs-load").to_text().expect("a plan");
    let (directory, environment) = (folder.path().to_owned(), Environment::default());
    let results = Results { directory, environment, plan, records: repeated(&loads()) };
    let section = Section::of(&results);
    let [table, chart] = &section.figures[..2] else { panic!("two figures") };
    assert_eq!(table.title, "Which way holds p99 ≤ 300.0 µs at 200 K IOPS");
    let Content::Table(rows) = &table.content else { panic!("a table") };
    assert_eq!(rows.rows[0][..2], ["✓", "tcp"]);
    assert!(rows.rows[0].contains(&"100.0 µs (80.00 µs to 120.0 µs)".to_owned()), "{rows:?}");
    assert_eq!(rows.rows[1].last().map(String::as_str), Some("it was a guess"));
    let Content::Chart { data, .. } = &chart.content else { panic!("a chart") };
    let traces = data["traces"].as_array().expect("traces");
    let names: Vec<_> = traces.iter().filter_map(|trace| trace["name"].as_str()).collect();
    let expected =
        ["tcp, predicted", "tcp, measured", "rdma, predicted", "rdma, measured", "objective"];
    assert_eq!(names, expected);
    let page = super::page::page(&[section]);
    let (above, _) = page.split_once("Tcp holds &lt;it&gt;.").expect("the conclusion");
    assert!(!above.contains("Load up to which"), "above the study's own answer");
    std::fs::write(&path, "{ cut").expect("a file");
    assert!(Section::of(&results).advice.is_none());
}

/// Of an axis that a plan has, other values are shown as its own are; a new one is a series.
#[test]
fn other_values_of_an_axis_make_no_series() {
    let mut plan = plan("latency-vs-load");
    let before = plan.plots.clone();
    plan.set(key::LOAD_PERCENT, vec![10u64.into(), 50u64.into()]);
    assert_eq!(plan.plots, before);
    plan.set(key::HOST_POLLING, vec!["adaptive".into(), "sleep".into()]);
    let is_series =
        |plot: &crate::study::plan::Plot| plot.series.iter().any(|key| key == key::HOST_POLLING);
    assert!(plan.plots.iter().all(is_series), "{:?}", plan.plots);
}

/// Of cells that vary in depth and jobs, in any study.
#[test]
fn depth_by_jobs_has_the_deviations_beneath() {
    let of = |depth: u64, jobs: u64| {
        let mut record = point("tcp", depth, 1e4 * (depth * jobs) as f64, 100);
        record.cell += &format!(" jobs={jobs}");
        record.configuration.insert(key::JOBS.to_owned(), jobs.into());
        record
    };
    let records = repeated(&[of(1, 1), of(1, 4), of(32, 1), of(32, 4)]);
    let section = section("latency-cdf", records);
    let at = section.figures.iter().position(|figure| figure.title == "Depth by jobs: IOPS");
    let beneath = &section.figures[at.expect("a chart") + 1];
    assert_eq!(beneath.title, "Depth by jobs: IOPS: deviation");
    let Content::Table(grid) = &beneath.content else { panic!("a table") };
    assert_eq!(grid.head, ["", "queue depth 1", "queue depth 32"]);
    assert_eq!(grid.rows[0][0], "1 job");
    assert!(grid.rows.iter().all(|row| row[1] == "2.48 %" && row[2] == "2.48 %"), "{grid:?}");
}

#[test]
fn a_second_metric_has_an_axis_at_the_right_and_columns_of_its_own() {
    let of = |cores: u64| {
        let settings = [(key::TRANSPORT, Value::from("tcp")), (key::TARGET_CORES, cores.into())];
        let mut record = record(Role::Plain, &settings, 1e5, 10);
        record.cell = format!("cores={cores} transport=tcp");
        record.configuration.insert(key::CORES.to_owned(), cores.into());
        let thread = crate::results::Thread { user_s: 0.5, ..Default::default() };
        let threads = vec![thread];
        let side = crate::results::Side { seconds: 1.0, threads, ..Default::default() };
        (record.host, record.target) = (Some(side.clone()), Some(side));
        record
    };
    let section = section("core-sweep", repeated(&[of(1), of(2)]));
    let mut figures = section.figures.iter();
    let figure = figures.find(|figure| figure.title == "IOPS for each core").expect("a chart");
    let Content::Chart { data, numbers } = &figure.content else { panic!("a chart") };
    assert_eq!(data["layout"]["yaxis2"]["side"], "right");
    assert_eq!(data["traces"][1]["yaxis"], "y2");
    assert_eq!(numbers.head[1..], ["tcp", "tcp, CPU of host and target"]);
    assert!(numbers.rows[1][1].starts_with("50.0 K"), "{numbers:?}");
}
