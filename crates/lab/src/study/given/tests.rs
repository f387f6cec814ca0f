use super::*;
use crate::results::text;
use crate::results::{Configuration, Role};
use crate::study::matrix::{Matrix, Step, expand};

fn plan(rest: &str) -> Plan {
    let head = "name = \"mine\"\ntitle = \"Mine\"\nquestion = \"What then?\"\n\
                source = { document = \"weft\", figure = \"none\" }\n";
    format!("{head}{rest}").parse().expect("a plan")
}

fn target(transport: Transport, elsewhere: bool) -> KnownTarget {
    KnownTarget { name: format!("{}:4420", protocol_name(transport)), transport, elsewhere }
}

fn with(targets: &[KnownTarget]) -> Capabilities {
    let (cpus, targets) = (vec![0, 1], targets.to_vec());
    Capabilities {
        cpus,
        own_target: true,
        targets,
        rdma: true,
        tls: true,
        ..Capabilities::default()
    }
}

fn missing(matrix: &Matrix, transport: &str) -> String {
    let of = |step: &&Step| {
        step.cells().any(|cell| text(&cell.configuration, key::TRANSPORT) == transport)
    };
    let step = matrix.steps().find(of).expect(transport);
    step.missing().unwrap_or_default().to_owned()
}

const ALL: &str = "[axes]\ntransport = [\"local\", \"tcp\", \"rdma\"]\n";

#[test]
fn cells_use_given_targets_of_their_protocol() {
    let plan = plan(ALL);
    let rdma = with(&[target(Transport::Rdma, true)]);
    assert_eq!(given_targets(&plan, "rdma", &rdma), Some(vec![0]));
    assert_eq!(given_targets(&plan, "tcp", &rdma), Some(vec![]));
    let both = with(&[target(Transport::Tcp, true), target(Transport::Rdma, true)]);
    assert_eq!(given_targets(&plan, "tcp", &both), Some(vec![0]));
    assert_eq!(given_targets(&plan, "rdma", &both), Some(vec![1]));
    let none = with(&[]);
    assert_eq!(given_targets(&plan, "tcp", &none), None);
    assert_eq!(given_targets(&plan, "rdma", &none), None);
    assert_eq!(given_targets(&plan, "loopback", &both), None);
}

#[test]
fn a_cell_whose_target_speaks_another_protocol_is_skipped_with_that_reason() {
    let expanded =
        |targets: &[KnownTarget]| expand(&plan(ALL), &with(targets), &Configuration::new());
    let matrix = expanded(&[target(Transport::Rdma, true)]);
    assert_eq!(missing(&matrix, "rdma"), "");
    let why = "the given target speaks RDMA, and these cells speak TCP (--target \
               nvme-tcp://HOST:4420/NQN)";
    assert_eq!(missing(&matrix, "tcp"), why);
    assert_eq!(missing(&matrix, "local"), "");
    let matrix = expanded(&[target(Transport::Tcp, true)]);
    assert_eq!(missing(&matrix, "tcp"), "");
    assert!(missing(&matrix, "rdma").contains("speaks TCP, and these cells speak RDMA"));
}

#[test]
fn a_link_is_that_of_a_target_elsewhere() {
    let plan = plan("[axes]\ntransport = [\"tcp\", \"tcp-link\", \"rdma\"]\n");
    let expanded = |targets: &[KnownTarget]| expand(&plan, &with(targets), &Configuration::new());
    let matrix = expanded(&[target(Transport::Tcp, true)]);
    assert_eq!((missing(&matrix, "tcp"), missing(&matrix, "tcp-link")), Default::default());
    assert_eq!(given_targets(&plan, "tcp", &with(&[target(Transport::Tcp, true)])), None);
    let matrix = expanded(&[target(Transport::Tcp, false)]);
    assert!(missing(&matrix, "tcp-link").contains("is on this machine; tcp-link needs one"));
    let matrix = expanded(&[target(Transport::Rdma, true)]);
    assert!(missing(&matrix, "tcp-link").contains("speaks RDMA, and these cells speak TCP"));
    assert_eq!(missing(&matrix, "rdma"), "");
}

#[test]
fn settings_of_a_given_target_are_in_no_record() {
    let plan = plan(
        "[axes]\ntransport = [\"local\", \"tcp\"]\n\
         [fixed]\ntarget_idle_poll_us = 0\ntarget_cores = 1\ndevice = \"null\"\n",
    );
    let matrix = expand(&plan, &with(&[target(Transport::Tcp, true)]), &Configuration::new());
    let cells: Vec<_> = matrix.steps().flat_map(Step::cells).collect();
    let has = |key: &str| {
        let of = cells.iter().map(|cell| cell.configuration.contains_key(key));
        of.collect::<Vec<bool>>()
    };
    assert_eq!(has(key::TARGET_IDLE_POLL_US), [false, false]);
    assert_eq!(has(key::TARGET_CORES), [false, false]);
    assert_eq!(has(key::DEVICE), [true, false]);
    let own = expand(&plan, &with(&[]), &Configuration::new());
    let remote = own.steps().flat_map(Step::cells).nth(1).expect("a cell");
    assert_eq!(remote.configuration[key::TARGET_IDLE_POLL_US], 0u64.into());
    assert!(remote.role == Role::Plain && remote.configuration.contains_key(key::TARGET_CORES));
}

#[test]
fn a_plan_that_varies_such_a_setting_is_refused() {
    let given = with(&[target(Transport::Tcp, true)]);
    let plan_of = |axis: &str| plan(&format!("[axes]\n{axis}\n"));
    for axis in ["target_idle_poll_us = [0, 50]", "target_cores = [1, 2]"] {
        let why = refusal(&plan_of(axis), &given).expect("a refusal");
        let knob = axis.split(' ').next().expect("a name");
        let told =
            format!("the plan varies {knob}, which cannot be set on a given target (tcp:4420)");
        assert!(why.starts_with(&told) && why.contains("without --target"), "{why}");
        assert_eq!(refusal(&plan_of(axis), &with(&[])), None);
    }
    assert_eq!(refusal(&plan_of("depth = [1, 2]"), &given), None);
    let local = plan("[axes]\ntarget_cores = [1, 2]\n[fixed]\ntransport = \"local\"\n");
    assert_eq!(refusal(&local, &given), None, "no cell uses the target");
}

#[test]
fn a_raw_link_is_probed_where_both_ends_are() {
    let plan = plan("kind = \"link\"\n[axes]\ntransport = [\"local\", \"tcp\", \"rdma\"]\n");
    let matrix = expand(&plan, &with(&[]), &Configuration::new());
    assert_eq!(missing(&matrix, "tcp"), "");
    assert_eq!(missing(&matrix, "rdma"), "");
    let without = expand(&plan, &Capabilities { rdma: false, ..with(&[]) }, &Configuration::new());
    assert!(missing(&without, "rdma").contains("no RDMA device"));
    assert!(missing(&matrix, "local").contains("no link"));
    let far = expand(&plan, &with(&[target(Transport::Tcp, true)]), &Configuration::new());
    assert!(missing(&far, "tcp").contains("needs a probe at the other end"));
    let here = expand(&plan, &with(&[target(Transport::Tcp, false)]), &Configuration::new());
    assert_eq!(missing(&here, "tcp"), "");
}
