use weft_host::Transport;

use super::*;
use crate::results::{Configuration, Role, key};
use crate::results::{integer, text};
use crate::study::capabilities::Capabilities;
use crate::study::capabilities::KnownTarget;
use crate::study::matrix::{Matrix, Step, expand};
use crate::study::plan::Kind;

fn plan(name: &str) -> Plan {
    find(name).expect(name).plan().expect(name)
}

fn capabilities(cpus: usize) -> Capabilities {
    Capabilities { cpus: (0..cpus).collect(), own_target: true, ..Capabilities::default() }
}

/// Cells of a study on a machine, and how many of them can run there.
fn cells(name: &str, cpus: usize) -> (usize, usize) {
    let matrix = expand(&plan(name), &capabilities(cpus), &Configuration::new());
    let runnable =
        matrix.steps().filter(|step| step.missing().is_none()).map(|step| step.cells().count());
    (matrix.len(), runnable.sum())
}

#[test]
fn published_numbers_that_a_plan_names_are_there() {
    for builtin in BUILTINS {
        let plan = builtin.plan().expect(builtin.name);
        let Some(published) = plan.published else { continue };
        let found = crate::published::published().of_study(&published.study).count();
        // Its table says in words which transport is best.
        assert!(
            found > 0 || plan.name == "tradeoffs",
            "{}: nothing is published for {:?}",
            plan.name,
            published.study
        );
    }
}

#[test]
fn every_plan_is_valid_and_names_its_source() {
    for builtin in BUILTINS {
        let plan = builtin.plan().expect(builtin.name);
        assert_eq!(plan.name, builtin.name);
        let documents =
            ["weft", "kashyap2020", "chelsio2020", "jia2019", "sivakumar2024", "nbdx2016"];
        assert!(documents.contains(&plan.source.document.as_str()), "{}", plan.name);
        let own = plan.source.document == "weft";
        assert!(own || plan.source.figure.contains(['F', 'T', 'l']), "{}", plan.name);
        assert_eq!(
            plan.published.is_none(),
            own,
            "{}: what is published belongs beside it",
            plan.name
        );
        assert!(!plan.plots.is_empty(), "{} draws nothing", plan.name);
        assert!(own || plan.plots.iter().any(|plot| !plot.figure.is_empty()), "{}", plan.name);
        assert!(plan.question.ends_with('?'), "{}", plan.name);
        let text = plan.to_text().expect("a text");
        assert_eq!(text.parse::<Plan>().expect("the same plan"), plan);
        let mut quick = plan.clone();
        quick.quicken();
        assert!(quick.to_text().expect("a text").parse::<Plan>().is_ok(), "{}", plan.name);
    }
}

#[test]
fn every_study_of_every_document_is_there() {
    let of = |document: &str| {
        BUILTINS.iter().filter(|b| b.plan().expect(b.name).source.document == document).count()
    };
    assert_eq!((of("kashyap2020"), of("chelsio2020"), of("jia2019")), (8, 3, 5));
    assert_eq!((of("sivakumar2024"), of("nbdx2016"), of("weft")), (9, 1, 7));
}

/// Name, cells in all, cells that run on 2 processors with a target that is started there.
const EXPECTED: &[(&str, usize, usize)] = &[
    ("first-look", 24, 24),
    // Eleven loads and the capacity for each transport.
    ("latency-vs-load", 4 * 12, 2 * 12),
    ("protocol-floor", 3 * 2 * 2 * 2, 3 * 2 * 2 * 2),
    // Knobs are set by agents.
    ("loss", 4 * 3, 0),
    // Without the cargo feature only the cells without TLS run.
    ("tls-cost", 4 * 2 * 2, 2 * 2),
    ("size-sweep", 4 * 12, 2 * 12),
    // Two processors give one to each side, or two to a local device.
    ("core-sweep", 4 * 5, 1 + 2),
    ("pattern-sweep", 4 * 6 * 2, 2 * 6 * 2),
    ("latency-at-peak", 4 * 2, 2 * 2),
    ("latency-cdf", 4 * 5, 1 + 2),
    ("host-cpu", 4 * 2, 2 * 2),
    ("concurrency", 4 * 8 * 4, 2 * 8 * 4),
    ("tradeoffs", 4 * 4, 2 * 4),
    ("null-size-sweep", 2 * 7 * 2, 2 * 7 * 2),
    ("cpu-per-gbps", 2 * 7 * 2, 2 * 7 * 2),
    ("local-vs-remote", 4 * 2, 2 * 2),
    ("link-probe", 2 * 2 * 2, 2 * 2 * 2),
    ("request-size", 4 * 6, 2 * 6),
    ("parallelism", 4 * 5, 2 * 5),
    ("computational-cost", 4 * 6, 2 * 6),
    ("one-target-core", 4 * 8, 2 * 8),
    ("knobs", 2 * 2 * 4, 2 * 2 * 4),
    ("pollable-queues", 2 * 9, 2 * 9),
    ("target-idle-poll", 6 * 9, 6 * 9),
    ("overhead-l-app", 3, 2),
    ("overhead-t-app", 3 * 11, 2 * 11),
    ("overhead-b-app", 3 * 7 * 11, 2 * 7 * 11),
    ("saturation", 2, 2),
    // For hosts that poll and for those that sleep: one reference, two tenants alone, and a
    // foreground and a background of each pair, with storage and without.
    ("host-interference", 2 * (1 + 2 + 2 * 2 * 2 * 10), 2 * (1 + 2 + 2 * 2 * 2 * 10)),
    ("target-interference", 2 * (1 + 2 + 2 * 2 * 2 * 9), 2 * (1 + 2 + 2 * 2 * 2 * 9)),
    // With express queues and without: a reference for each neighbour, L alone, and both at three
    // loads.
    ("isolation", 2 * (9 + 1 + 2 * 9 * 3), 2 * (9 + 1 + 2 * 9 * 3)),
    ("depth-by-size", 4 * 4 * 4 * 4, 2 * 4 * 4 * 4),
    ("attach", 3 * 2, 2 * 2),
];

#[test]
fn each_expands_to_the_expected_matrix() {
    assert_eq!(EXPECTED.len(), BUILTINS.len());
    for (name, all, runnable) in EXPECTED {
        assert_eq!(cells(name, 2), (*all, *runnable), "{name}");
    }
}

#[test]
fn the_axes_are_those_of_the_publications() {
    let axis = |study: &str, key: &str| -> Vec<String> {
        plan(study).axes[key].iter().map(ToString::to_string).collect()
    };
    let sizes: Vec<String> = (9..=20).map(|power| (1u64 << power).to_string()).collect();
    assert_eq!(axis("size-sweep", key::BLOCK_BYTES), sizes);
    assert_eq!(axis("concurrency", key::DEPTH), ["1", "2", "4", "8", "16", "32", "64", "128"]);
    assert_eq!(
        axis("target-idle-poll", key::TARGET_IDLE_POLL_US),
        ["0", "10", "20", "40", "80", "160"]
    );
    assert_eq!(axis("overhead-t-app", key::DEPTH).last().map(String::as_str), Some("1024"));
    assert_eq!(axis("parallelism", key::JOBS), ["1", "2", "4", "8", "16"]);
    assert_eq!(axis("host-interference", key::LOAD_PERCENT).len(), 10);
    assert_eq!(axis("target-interference", key::LOAD_PERCENT).len(), 9);
    for study in ["pollable-queues", "host-interference", "target-interference"] {
        assert_eq!(axis(study, key::HOST_POLLING), ["spin", "sleep"], "{study}");
    }
    for study in ["size-sweep", "core-sweep", "pattern-sweep", "latency-at-peak", "latency-cdf"] {
        assert_eq!(integer(&plan(study).fixed, key::DEPTH), Some(128), "{study}");
    }
}

#[test]
fn every_published_setting_is_that_of_a_cell() {
    for result in &crate::published::published().results {
        let matrix = expand(&plan(&result.study), &capabilities(64), &Configuration::new());
        let mut cells = matrix.steps().flat_map(Step::cells);
        let fits = cells.any(|cell| {
            result.settings.iter().all(|(key, value)| cell.configuration.get(key) == Some(value))
        });
        assert!(fits, "{result:?}");
        for transport in result.between.iter().flatten() {
            let mut cells = matrix.steps().flat_map(Step::cells);
            let known = cells.any(|cell| text(&cell.configuration, key::TRANSPORT) == transport);
            assert!(known, "{transport} of {result:?}");
        }
    }
}

#[test]
fn the_published_gain_of_idle_polling_is_that_of_hosts_that_poll() {
    let published = crate::published::published();
    let find = |study: &str, metric: &str, note: &str| {
        let mut all = published.results.iter();
        let same = |note_of: &str| note_of.starts_with(note);
        all.find(|result| {
            result.study == study
                && result.metric == metric
                && same(result.note.as_deref().unwrap_or_default())
        })
        .expect(metric)
    };
    let p99 = |note| find("pollable-queues", "lat_p99", note).value;
    // The note of a gain begins with it in µs.
    let base = |metric: &str| {
        let gain = find("target-idle-poll", metric, "");
        let note = gain.note.as_deref().expect("a note");
        let us: f64 = note.split(' ').next().expect("a word").parse().expect("a number");
        us / (gain.value / 100.0)
    };
    let polls = |base: f64| (base - p99("pollable")).abs() < (base - p99("default")).abs() / 4.0;
    assert!(polls(base("p99_improvement_min")) && polls(base("p99_improvement_max")));
    assert_eq!(text(&plan("target-idle-poll").fixed, key::HOST_POLLING), "spin");
}

#[test]
fn every_cell_of_every_plan_can_run_somewhere() {
    let known = |protocol, elsewhere| {
        let name = format!("{protocol:?} {elsewhere}");
        KnownTarget { name, transport: protocol, elsewhere }
    };
    let alone = Capabilities { rdma: true, tls: true, ..capabilities(64) };
    let near = Capabilities {
        targets: vec![known(Transport::Tcp, false), known(Transport::Rdma, false)],
        ..alone.clone()
    };
    let far = Capabilities {
        targets: vec![known(Transport::Tcp, true), known(Transport::Rdma, true)],
        // A side of its own: `all` are as many as half of the others' 64.
        cpus: (0..32).collect(),
        ..alone.clone()
    };
    for builtin in BUILTINS {
        let plan = builtin.plan().expect(builtin.name);
        let agents = crate::testing::machine_of(&plan);
        let matrices =
            [&alone, &near, &far, &agents].map(|on| expand(&plan, on, &Configuration::new()));
        let runs = |id: &str| {
            let steps = matrices.iter().flat_map(Matrix::steps);
            let mut cells = steps.flat_map(Step::cells);
            cells.any(|cell| cell.id == id && cell.missing.is_none())
        };
        for cell in matrices[0].steps().flat_map(Step::cells) {
            assert!(runs(&cell.id), "{}: {}: {:?}", builtin.name, cell.id, cell.missing);
        }
    }
}

#[test]
fn the_page_of_studies_names_every_study_with_its_figures() {
    let page = include_str!("../../../../../docs/studies.md");
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| published"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    for row in &rows {
        assert!(row.len() == 3 && find(row[1]).is_some(), "{row:?}");
    }
    for builtin in BUILTINS {
        let source = builtin.plan().expect(builtin.name).source;
        if source.document == "weft" {
            assert!(page.contains(builtin.name), "{}", builtin.name);
            continue;
        }
        let published: Vec<&str> =
            rows.iter().filter(|row| row[1] == builtin.name).map(|row| row[0]).collect();
        let numbers = |text: &str| -> Vec<String> {
            let all = text.split(|c: char| !c.is_ascii_digit() && c != '.');
            all.filter(|number| !number.is_empty()).map(str::to_owned).collect()
        };
        let (of_page, of_plan) = (numbers(&published.join(" ")), numbers(&source.figure));
        let named = of_plan.iter().all(|number| of_page.contains(number));
        assert!(!published.is_empty() && named, "{}: {published:?}", builtin.name);
    }
}

#[test]
fn the_first_look_is_short() {
    for rdma in [false, true] {
        let mut plan = plan("first-look");
        let capabilities = Capabilities { rdma, ..capabilities(2) };
        if rdma {
            plan.with_rdma();
        }
        let matrix = expand(&plan, &capabilities, &Configuration::new());
        let here = matrix.steps().filter(|step| step.missing().is_none()).count();
        assert!(here == matrix.len() && here <= 32, "every transport that is there, and no other");
        let each = plan.measure.runtime + plan.measure.ramp;
        assert_eq!((plan.measure.repeats, plan.measure.repeats_max), (3, 3));
        let repeats: u32 = matrix
            .steps()
            .flat_map(Step::cells)
            .map(|cell| plan.repeats_of(&cell.configuration))
            .sum();
        // Two of its cells, or three, have five.
        let more = if rdma { 6 } else { 4 };
        assert_eq!(repeats, 3 * u32::try_from(here).expect("few") + more);
        let all = each * repeats;
        assert!((25..=32).contains(&all.as_secs()), "{all:?}");
        let transports = plan.values(key::TRANSPORT).count();
        assert_eq!(transports, if rdma { 3 } else { 2 });
    }
}

#[test]
fn tenants_are_those_of_the_thesis() {
    for name in ["host-interference", "target-interference"] {
        let plan = plan(name);
        assert_eq!(plan.kind, Kind::Interference);
        let matrix = expand(&plan, &capabilities(2), &Configuration::new());
        for cell in matrix.steps().flat_map(Step::cells) {
            let depth = integer(&cell.configuration, key::DEPTH);
            let tenant = text(&cell.configuration, key::FOREGROUND);
            let expected = match (cell.role, tenant) {
                (Role::Alone | Role::Foreground, "l-app") => 1,
                _ => 128,
            };
            assert_eq!(depth, Some(expected), "{}", cell.id);
            assert_eq!(integer(&cell.configuration, key::BLOCK_BYTES), Some(4096));
        }
    }
}

#[test]
fn a_machine_with_more_processors_runs_more_cells() {
    let (all, on_two) = cells("core-sweep", 2);
    let (_, on_64) = cells("core-sweep", 64);
    assert_eq!((all, on_two), (20, 3));
    assert_eq!(on_64, 12, "1 to 16, and the 32 that are half of them");
}
