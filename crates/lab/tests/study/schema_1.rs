//! Results of schema 1: the first version's are read, reported, compared and continued.

use std::fs;
use std::path::Path;

use weft_lab::compare::{Parameters, compare};
use weft_lab::html;
use weft_lab::results::{self, Mark, Record, Results, Role, SCHEMA, Status, key};
use weft_lab::study::plan::Plan;

use crate::support::run;

fn fixture() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/study/schema-1"))
}

fn loaded() -> Results {
    results::load(fixture()).expect("results")
}

fn find<'a>(records: &'a [Record], cell: &str) -> &'a Record {
    records.iter().find(|record| record.cell == cell).expect(cell)
}

#[test]
fn what_schema_1_said_falsely_is_put_right() {
    let results = loaded();
    assert!(results.records.iter().all(|record| record.schema == 1));
    let tcp = find(&results.records, "block_bytes=1048576 transport=tcp");
    let connection = tcp.connection.as_ref().expect("its targets were on loopback");
    assert!(connection.protocol == "tcp" && connection.is_within_a_machine());
    assert!(tcp.is_measured() && tcp.has(Mark::AboveFloor), "116 % of the stream: {:?}", tcp.marks);
    let given = find(&results.records, "block_bytes=1048576 target=192.0.2.1:4420 transport=tcp");
    assert!(given.connection.is_none() && given.has(Mark::DeviceUnknown));
    assert!(!given.has(Mark::AboveFloor), "its link was not probed");
    for unset in [key::TARGET_IDLE_POLL_US, key::TARGET_CORES] {
        assert!(!given.configuration.contains_key(unset), "{unset}");
    }
    let link = |transport: &str| {
        let id = format!("role=link block_bytes=1048576 transport={transport}");
        find(&results.records, &id).clone()
    };
    assert!(link("tcp").role == Role::Link && link("tcp").is_measured());
    let Status::Void { reason } = link("rdma").status else { panic!("{:?}", link("rdma")) };
    assert_eq!(reason, "it was measured over loopback TCP and labelled rdma");
    let probes = &results.environment.link;
    assert!(probes.iter().all(|probe| probe.connection.is_some()));
}

#[test]
fn a_report_on_schema_1_gives_no_share_of_a_link_that_is_exceeded() {
    let page = html::report(&[fixture()]).expect("a page");
    let said = "Maximum bandwidth, relative to the raw stream: faster than the raw link was when \
                it was probed";
    assert!(page.contains(said));
    assert!(page.contains("it was measured over loopback TCP and labelled rdma"));
}

#[test]
fn schema_1_is_compared() {
    let results = loaded();
    let comparison = compare(&results, &results, &Parameters::default());
    assert!(!comparison.is_slower() && !comparison.cells.is_empty());
    let void = "role=link block_bytes=1048576 transport=rdma";
    assert!(comparison.cells.iter().all(|cell| cell.cell != void));
}

#[test]
fn a_run_of_schema_1_is_continued_in_this_schema() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["results.jsonl", "environment.json", "plan.toml"] {
        fs::copy(fixture().join(name), folder.path().join(name)).expect(name);
    }
    let before = results::load(folder.path()).expect("results");
    let mut plan: Plan = before.plan.parse().expect("a plan");
    let only = [(key::TRANSPORT.to_owned(), "local".into())];
    plan.run.as_mut().expect("how it was run").only = only.into_iter().collect();
    (plan.measure.repeats, plan.measure.repeats_max) = (3, 3);
    let (outcome, records, environment) =
        run(folder.path(), &plan, None, before.environment.clone());
    assert_eq!((outcome.measured, outcome.failed, outcome.error), (6 + 1, 0, None));
    assert_eq!(records.len(), before.records.len() + 1, "one repeat was missing");
    let added = records.last().expect("a record");
    assert_eq!((added.schema, added.repeat), (SCHEMA, 3));
    assert_eq!(environment.schema, SCHEMA);
    assert!(environment.link.is_empty(), "a local cell has no link");
}
