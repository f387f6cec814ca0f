use super::{section::Section, words};
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
    words::found(&Cells::of(records, &Environment::default()), &plan(name)).join(" ")
}

/// A tenant: p99 in µs and IOPS, under a background or alone.
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
fn interference_is_told_with_where_it_begins_and_where_it_is_worst() {
    let said = found("target-interference", &tenants());
    assert!(said.starts_with("100 % of background stand for 800 K IOPS."), "{said}");
    let begins = "L-app: p99 under 10 % of background is 1.02 times what it is alone, under 90 % \
                  3.00 times, and at its worst under 50 % (5.00 times); it is harmed by more than \
                  5 % from 50 % on.";
    assert!(said.contains(begins), "{said}");
    assert!(said.contains("T-app: IOPS under 10 % of background is 90 %"), "{said}");
    assert!(said.contains("under 90 % 50 %; at no load is it left as it was."), "{said}");
    assert!(!said.contains("too few processors") && !said.contains("did not get"), "{said}");
}

#[test]
fn harm_by_the_least_load_is_told() {
    let records = [
        tenant(Role::Alone, "l-app", 0, 10_000.0, 100),
        tenant(Role::Foreground, "l-app", 10, 2_000.0, 500),
        tenant(Role::Foreground, "l-app", 90, 5_000.0, 200),
    ];
    let said = found("target-interference", &records);
    assert!(said.contains("under 90 % 2.00 times: least load, most harm; at no load"), "{said}");
}

#[test]
fn a_shared_second_processor_and_a_background_that_fell_short_are_told() {
    let mut records = tenants();
    let mut short = tenant(Role::Background, "t-app", 90, 400_000.0, 900);
    short.mark(Mark::BackgroundShort);
    records.push(short);
    records.iter_mut().for_each(|record| record.mark(Mark::SharedCores));
    let said = found("target-interference", &records);
    let shared = "their loads shared one as well, so what follows is the interference of both, and \
                  not that of the target's core alone";
    assert!(said.contains(shared), "{said}");
    assert!(
        said.contains(
            "Beside the T-app the background did not get all that it asked for from 90 %"
        )
    );
    assert!(!said.contains("Beside the L-app"), "{said}");
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
fn the_share_of_local_is_told_from_its_least_to_its_most() {
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
    assert!(said.contains("From depth 32 on it keeps within 5 % of local."), "{said}");
    assert!(said.contains("takes 9.00 µs more on average than locally"), "{said}");
}

#[test]
fn the_knee_is_where_nine_tenths_are_reached() {
    let iops = [(1, 100.0), (8, 600.0), (32, 950.0), (128, 1000.0)];
    let records = iops.map(|(depth, iops)| point("tcp", depth, iops, 10));
    let said = found("overhead-t-app", &records);
    assert!(said.contains("lies at depth 32 for"), "{said}");
}

#[test]
fn published_numbers_stand_in_the_figure_of_their_tenant() {
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
    let (_, summary) = section.beside.first().expect("what the paper says");
    assert!(summary.starts_with("Published numbers: 8, "), "{summary}");
    assert!(!summary.contains(" 0 "), "{summary}");
}

#[test]
fn nothing_is_said_where_nothing_was_measured() {
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
