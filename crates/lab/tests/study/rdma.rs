//! Studies over RDMA, with a device in memory: what is labelled RDMA was measured over RDMA.

use std::net::SocketAddr;

use weft_host::Provider;
use weft_lab::results::{Environment, Mark, SCHEMA, Status, key};
use weft_lab::study::plan::{Plan, Run};
use weft_statistics::NamespaceStatistics;
use weft_target::Target;
use weft_target::config::{Config, Listen, Namespace, Port, Subsystem};
use weft_transport::rdma::software::Fabric;

use crate::support::{SUBSYSTEM, of, run};

/// A target that serves memory over the fabric's RDMA, and its address.
fn target(fabric: &Fabric) -> (Target, SocketAddr) {
    let mut subsystem = Subsystem::new(SUBSYSTEM);
    subsystem.namespaces = vec![Namespace::new(1, "memory:4MiB".parse().expect("a device"))];
    let listen = Listen::rdma("10.0.0.1:0".parse().expect("an address"));
    let config = Config {
        ports: vec![Port::new(1, listen)],
        subsystems: vec![subsystem],
        rdma: Provider::Software(fabric.clone()),
        ..Config::default()
    };
    let target = Target::start(config).expect("a target");
    let address = *target.addresses().values().next().expect("a port");
    (target, address)
}

fn commands_served(target: &Target) -> u64 {
    let groups = target.watch().read(weft_reactor::monotonic_time());
    let served = groups.iter().flat_map(|group| &group.served);
    served.map(NamespaceStatistics::commands).sum()
}

fn plan(kind: &str, axes: &str) -> Plan {
    let text = format!(
        "name = \"mine\"\ntitle = \"Mine\"\nquestion = \"What then?\"\nkind = \"{kind}\"\n\
         source = {{ document = \"weft\", figure = \"none\" }}\n[axes]\n{axes}\n\
         [fixed]\ntarget_idle_poll_us = 0\n\
         [measure]\nruntime = \"60ms\"\nramp = \"5ms\"\nsettle = \"0s\"\n\
         repeats = 1\nrepeats_max = 1\n"
    );
    let mut plan: Plan = text.parse().expect("a plan");
    plan.run = Some(Run { seed: 5, ..Run::default() });
    plan
}

/// The environment of a new run.
fn new() -> Environment {
    Environment { schema: SCHEMA, ..Environment::default() }
}

#[test]
fn a_given_rdma_target_is_what_rdma_cells_measure() {
    let fabric = Fabric::default();
    let (target, address) = target(&fabric);
    let folder = tempfile::tempdir().expect("a folder");
    let plan = plan("matrix", "transport = [\"local\", \"tcp\", \"rdma\"]");
    let (outcome, records, environment) =
        run(folder.path(), &plan, Some((address, &fabric)), new());
    assert_eq!((outcome.measured, outcome.skipped, outcome.failed), (2, 1, 0), "{records:?}");
    let rdma = of(&records, "rdma");
    let connection = rdma.connection.as_ref().expect("both ends");
    assert_eq!((connection.protocol.as_str(), connection.target), ("rdma", address));
    assert!(rdma.iops() > 0.0 && commands_served(&target) as f64 >= rdma.iops() * 0.05);
    assert_eq!(rdma.configuration[key::TARGET], "10.0.0.1".into());
    for unset in [key::TARGET_IDLE_POLL_US, key::TARGET_CORES, key::DEVICE] {
        assert!(!rdma.configuration.contains_key(unset), "{unset}");
    }
    assert!(rdma.has(Mark::DeviceUnknown) && rdma.has(Mark::TargetUnknown));
    assert!(of(&records, "local").connection.is_none());
    let Status::Skipped { reason } = &of(&records, "tcp").status else { panic!("{records:?}") };
    assert!(reason.contains("speaks RDMA, and these cells speak TCP"), "{reason}");
    assert!(environment.link.is_empty(), "no TCP was measured, so none was probed");
    target.stop().expect("a clean stop");
}

/// Without an adapter there is no link over RDMA, and nothing else is called one.
#[test]
fn no_raw_link_is_labelled_rdma() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = plan("link", "transport = [\"tcp\", \"rdma\"]");
    let (outcome, records, environment) = run(folder.path(), &plan, None, new());
    assert_eq!(outcome.measured, 1, "{records:?}");
    let reason = of(&records, "rdma").status.reason().expect("it has no result");
    assert!(reason.contains("no RDMA device"), "{reason}");
    let tcp = of(&records, "tcp").connection.as_ref().expect("both ends");
    assert!(tcp.protocol == "tcp" && tcp.is_within_a_machine());
    assert!(environment.link.iter().all(|probe| {
        probe.connection.as_ref().is_some_and(|connection| connection.protocol == "tcp")
    }));
}
