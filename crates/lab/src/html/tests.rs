use super::{findings, section::Section};
use crate::{
    cells::Cells,
    results::{Environment, Mark, Record, Results, Role, Value, key, number},
    study::{builtin, plan::Plan},
    testing::record,
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
    let said = found("target-interference", &tenants());
    assert!(said.starts_with("A background load of 100 % is 800 K IOPS."), "{said}");
    let begins = "L-app: p99 is 1.02 times its value alone at 10 % background load, 3.00 times at \
                  90 %, and at worst 5.00 times at 50 %; loads from 50 % on make it more than \
                  5 % worse.";
    assert!(said.contains(begins), "{said}");
    assert!(said.contains("T-app: IOPS is 90 % of its value alone at 10 %"), "{said}");
    assert!(said.contains("50 % at 90 %; every load makes it more than 5 % worse."), "{said}");
    assert!(!said.contains("too few processors") && !said.contains("did not reach"), "{said}");
}

#[test]
fn harm_by_the_lowest_load_is_reported() {
    let records = [
        tenant(Role::Alone, "l-app", 0, 10_000.0, 100),
        tenant(Role::Foreground, "l-app", 10, 2_000.0, 500),
        tenant(Role::Foreground, "l-app", 90, 5_000.0, 200),
    ];
    let said = found("target-interference", &records);
    let harm = "2.00 times at 90 % (the lowest load does the most harm); every load";
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
    let said = found("first-look", &records);
    assert!(
        said.contains("between 10 % (depth 1) and 98 % (depth 32) of the local IOPS"),
        "{said}"
    );
    assert!(said.contains("They are within 5 % of local from depth 32 on."), "{said}");
    assert!(said.contains("the mean latency is 9.00 µs above local"), "{said}");
}

#[test]
fn ninety_percent_of_the_maximum_are_reported() {
    let iops = [(1, 100.0), (8, 600.0), (32, 950.0), (128, 1000.0)];
    let records = iops.map(|(depth, iops)| point("tcp", depth, iops, 10));
    let said = found("overhead-t-app", &records);
    assert!(said.contains("is reached at depth 32 for"), "{said}");
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
    let (_, summary) = section.paper.first().expect("what the paper says");
    assert!(summary.starts_with("Published numbers: 8, "), "{summary}");
    assert!(!summary.contains(" 0 "), "{summary}");
}

#[test]
fn a_study_without_results_says_so() {
    assert_eq!(found("first-look", &[]), "No cell has a result.");
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
