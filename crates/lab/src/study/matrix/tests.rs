use weft_host::Transport;

use super::*;

const HEAD: &str = r#"
    name = "mine"
    title = "Mine"
    question = "What then?"
    source = { document = "weft", figure = "none" }
"#;

fn plan(rest: &str) -> Plan {
    format!("{HEAD}{rest}").parse().expect("a plan")
}

fn capabilities(cpus: usize) -> Capabilities {
    Capabilities { cpus: (0..cpus).collect(), own_target: true, ..Capabilities::default() }
}

/// A target on another machine.
fn far() -> KnownTarget {
    KnownTarget { name: "far:4420".to_owned(), transport: Transport::Tcp, elsewhere: true }
}

fn ids(matrix: &Matrix) -> Vec<&str> {
    matrix.steps().flat_map(Step::cells).map(|cell| cell.id.as_str()).collect()
}

#[test]
fn every_combination_is_a_cell_and_transports_are_adjacent() {
    let plan = plan(
        r#"
        [axes]
        transport = ["local", "tcp"]
        depth = [1, 16]
        block_bytes = ["4k", "8k", "16k"]
        [fixed]
        pattern = "randrw"
        "#,
    );
    let matrix = expand(&plan, &capabilities(2), &Configuration::new());
    assert_eq!((matrix.points.len(), matrix.len()), (6, 12));
    for point in &matrix.points {
        let transports: Vec<_> = point
            .iter()
            .flat_map(Step::cells)
            .map(|cell| text(&cell.configuration, key::TRANSPORT).to_owned())
            .collect();
        assert_eq!(transports, ["local", "tcp"]);
    }
    let cell = matrix.steps().flat_map(Step::cells).next().expect("a cell");
    assert_eq!(cell.id, "block_bytes=16384 depth=1 transport=local");
    assert_eq!(integer(&cell.configuration, key::READ_PERCENT), Some(70));
    assert_eq!(integer(&cell.configuration, key::JOBS), Some(1));
    assert_eq!(integer(&cell.configuration, key::TARGET_CORES), None, "a local cell has no target");
}

#[test]
fn all_cores_are_half_of_them_on_one_machine() {
    let plan = plan(
        r#"
        [axes]
        cores = [1, 2, 4, "all"]
        [fixed]
        jobs = "per-core"
        "#,
    );
    let matrix = expand(&plan, &capabilities(8), &Configuration::new());
    assert_eq!(ids(&matrix), ["cores=1", "cores=2", "cores=4"], "all is 4, which is there already");
    let jobs: Vec<_> = matrix
        .steps()
        .flat_map(Step::cells)
        .map(|cell| {
            let number = |key| integer(&cell.configuration, key).expect("a number");
            assert_eq!(number(key::JOBS), number(key::HOST_CORES));
            assert_eq!(number(key::JOBS), number(key::TARGET_CORES));
            number(key::JOBS)
        })
        .collect();
    assert_eq!(jobs, [1, 2, 4]);
    let elsewhere = Capabilities { targets: vec![far()], ..capabilities(8) };
    let matrix = expand(&plan, &elsewhere, &Configuration::new());
    assert!(ids(&matrix).contains(&"cores=8"));
}

#[test]
fn cells_that_cannot_run_are_kept_with_the_reason() {
    let plan = plan(
        r#"
        [axes]
        transport = ["local", "loopback", "tcp", "tcp-link", "rdma"]
        hosts = [1, 4]
        "#,
    );
    let matrix = expand(&plan, &capabilities(2), &Configuration::new());
    assert_eq!(matrix.len(), 10);
    let reason = |id: &str| {
        let cell = matrix.steps().flat_map(Step::cells).find(|cell| cell.id == id).expect(id);
        cell.missing.clone().unwrap_or_default()
    };
    assert_eq!(reason("hosts=1 transport=local"), "");
    assert_eq!(reason("hosts=1 transport=tcp"), "");
    assert_eq!(reason("hosts=1 transport=loopback"), "");
    assert!(reason("hosts=1 transport=rdma").contains("RDMA"));
    assert!(reason("hosts=1 transport=tcp-link").contains("--target"));
    assert_eq!(reason("hosts=4 transport=tcp"), "");
    assert!(reason("hosts=4 transport=local").contains("one host"));
    let with_device = Capabilities { rdma: true, ..capabilities(2) };
    let matrix = expand(&plan, &with_device, &Configuration::new());
    let rdma = |cell: &&Cell| cell.id == "hosts=1 transport=rdma";
    let cell = matrix.steps().flat_map(Step::cells).find(rdma).expect("a cell");
    assert_eq!(cell.missing, None);
}

#[test]
fn a_given_target_has_no_settings() {
    let plan = plan("[axes]\ntarget_idle_poll_us = [0, 50]\n");
    let given = Capabilities { targets: vec![far()], ..capabilities(4) };
    let matrix = expand(&plan, &given, &Configuration::new());
    assert!(
        matrix.steps().all(|step| step.missing().is_some_and(|why| why.contains("cannot be set")))
    );
    let matrix = expand(&plan, &capabilities(4), &Configuration::new());
    assert!(matrix.steps().all(|step| step.missing().is_none()));
}

const PAIRS: &str = r#"
    kind = "interference"
    [axes]
    foreground = ["l-app", "t-app"]
    load_percent = [10, 50, 100]
    [fixed]
    transport = "tcp"
    [interference]
    shared = "host"
    background = { depth = 64, rate_process = "fixed" }
    foreground = { l-app = { depth = 1 }, t-app = { depth = 128 } }
"#;

#[test]
fn interference_needs_references_and_pairs() {
    let matrix = expand(&plan(PAIRS), &capabilities(2), &Configuration::new());
    assert_eq!(matrix.first.len(), 1);
    assert_eq!(matrix.points.len(), 2 + 6);
    assert_eq!(matrix.len(), 1 + 2 + 12);
    let names = ids(&matrix);
    assert!(names.contains(&"role=saturation"));
    assert!(names.contains(&"role=alone foreground=l-app"));
    assert!(names.contains(&"role=foreground foreground=t-app load_percent=50"));
    assert!(names.contains(&"role=background foreground=t-app load_percent=50"));
    let mut sorted = names.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), names.len(), "every cell has its own name");
    let Some(Step::Single(saturation)) = matrix.first[0].first() else { panic!("no saturation") };
    assert_eq!(integer(&saturation.configuration, key::DEPTH), Some(64));
    let within = PAIRS.replace("\"tcp\"", "\"loopback\"");
    let matrix = expand(&self::plan(&within), &capabilities(2), &Configuration::new());
    assert!(matrix.steps().all(|s| s.missing().is_some_and(|why| why.contains("one process"))));
    assert_eq!(text(&saturation.configuration, key::SHARED), "host");
}

#[test]
fn a_network_only_control_has_the_references_of_its_study() {
    let control = PAIRS
        .replace("[axes]", "[axes]\nbackground = [\"storage\", \"network\"]")
        .replace("[fixed]", "[fixed]\ntarget_idle_poll_us = 0");
    let matrix = expand(&plan(&control), &capabilities(4), &Configuration::new());
    assert_eq!((matrix.first.len(), matrix.points.len()), (1, 2 + 12));
    assert!(matrix.steps().all(|step| step.missing().is_none()));
    let only = Configuration::from([(key::BACKGROUND.to_owned(), "network".into())]);
    let matrix = expand(&plan(&control), &capabilities(4), &only);
    assert_eq!((matrix.first.len(), matrix.points.len()), (1, 6), "its rate has a reference");
    let missing = |plan: &Plan, capabilities: &Capabilities| -> Vec<String> {
        let matrix = expand(plan, capabilities, &Configuration::new());
        let steps =
            matrix.steps().filter(|step| step.cells().any(|c| is_network(&c.configuration)));
        steps.map(|step| step.missing().unwrap_or_default().to_owned()).collect()
    };
    let given = Capabilities { targets: vec![far()], ..capabilities(4) };
    let rdma = Capabilities { rdma: true, ..capabilities(4) };
    let over_rdma = missing(&plan(&control.replace("\"tcp\"", "\"rdma\"")), &rdma);
    assert!(over_rdma.iter().all(|why| why.contains("over RDMA")), "{over_rdma:?}");
    let remote = missing(&plan(&control), &given);
    assert!(remote.iter().all(|why| why.contains("where the given target runs")), "{remote:?}");
}

#[test]
fn only_selected_cells_are_kept() {
    let only = |words: &[(&str, Value)]| -> Configuration {
        words.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
    };
    let some = only(&[("foreground", Value::from("l-app")), ("load_percent", Value::from(50u64))]);
    let matrix = expand(&plan(PAIRS), &capabilities(2), &some);
    assert_eq!((matrix.first.len(), matrix.points.len()), (1, 1), "a pair brings its reference");
    let alone = expand(&plan(PAIRS), &capabilities(2), &only(&[("role", Value::from("alone"))]));
    assert_eq!(alone.points.len(), 2);
    let none = expand(&plan(PAIRS), &capabilities(2), &only(&[("depth", Value::from(7u64))]));
    assert!(none.is_empty());
}

#[test]
fn the_order_depends_on_the_seed() {
    let plan = plan("[axes]\ndepth = [1, 2, 4, 8, 16, 32, 64, 128]\n");
    let matrix = expand(&plan, &capabilities(2), &Configuration::new());
    let order = |seed, round, shuffle| -> Vec<String> {
        let points = matrix.round(seed, round, shuffle);
        points.iter().flatten().flat_map(|step| step.cells()).map(|c| c.id.clone()).collect()
    };
    assert_eq!(order(1, 1, true), order(1, 1, true));
    assert_ne!(order(1, 1, true), order(1, 2, true));
    assert_ne!(order(1, 1, true), order(2, 1, true));
    assert_ne!(order(1, 1, true), order(1, 1, false));
    let (mut shuffled, mut plain) = (order(1, 1, true), order(1, 1, false));
    shuffled.sort();
    plain.sort();
    assert_eq!(shuffled, plain);
}

#[test]
fn the_order_within_a_point_is_shuffled_too() {
    let plan =
        plan("[axes]\ntransport = [\"local\", \"tcp\", \"loopback\"]\ndepth = [1, 2, 4, 8]\n");
    let matrix = expand(&plan, &capabilities(2), &Configuration::new());
    let firsts: std::collections::BTreeSet<&str> = (1..=6)
        .flat_map(|round| matrix.round(7, round, true))
        .map(|point| {
            assert_eq!(point.len(), 3);
            super::text(&point[0].cells().next().expect("a cell").configuration, key::TRANSPORT)
        })
        .collect();
    assert_eq!(firsts.len(), 3, "each transport comes first at times: {firsts:?}");
}

fn load_plan() -> Plan {
    crate::study::builtin::find("latency-vs-load").expect("a study").plan().expect("a plan")
}

#[test]
fn a_load_study_measures_the_capacity_of_each_transport_first() {
    let capabilities = Capabilities { cpus: vec![0, 1], own_target: true, ..Default::default() };
    let matrix = expand(&load_plan(), &capabilities, &Configuration::new());
    let first: Vec<&Cell> = matrix.first.iter().flatten().flat_map(Step::cells).collect();
    assert!(first.iter().all(|cell| cell.role == Role::Saturation));
    assert!(first.iter().all(|cell| !cell.configuration.contains_key(key::LOAD_PERCENT)));
    assert_eq!(first.len(), 4, "one for each transport");
    assert_eq!(matrix.points.len(), 11, "transports of one load are measured together");
    let only = |text: &[(&str, Value)]| {
        let only = text.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
        let matrix = expand(&load_plan(), &capabilities, &only.collect());
        (matrix.first.len(), matrix.points.len())
    };
    let one = [(key::TRANSPORT, "tcp".into()), (key::LOAD_PERCENT, Value::Integer(50))];
    assert_eq!(only(&one), (1, 1), "a cell needs its capacity, and no other");
    let capacity = [("role", Value::from("saturation")), (key::TRANSPORT, "tcp".into())];
    assert_eq!(only(&capacity), (1, 0), "the command of the capacity's cell measures it");
}
