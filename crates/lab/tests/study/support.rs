//! What the tests share: a run of a study without targets of its own.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use weft_host::{Options, Provider, Transport};
use weft_lab::results::{self, Environment, Record, Store, key};
use weft_lab::study::capabilities::Capabilities;
use weft_lab::study::capabilities::KnownTarget;
use weft_lab::study::launch::{GivenTarget, Launcher, StartedTarget, TargetSpec};
use weft_lab::study::observe::{Position, StudyObserver};
use weft_lab::study::plan::Plan;
use weft_lab::study::runner::{self, Outcome, Settings};
use weft_load::Progress;
use weft_reactor::DriverKind;
use weft_transport::rdma::software::Fabric;

/// The subsystem of a given target.
pub(crate) const SUBSYSTEM: &str = "nqn.2024-01.io.weft:test";

/// Starts nothing: a cell that wants a target of its own fails.
struct NoTargets;

impl Launcher for NoTargets {
    fn launch(&self, _: &TargetSpec, _: Option<IpAddr>) -> Result<Box<dyn StartedTarget>, String> {
        Err("a target of its own was wanted".to_owned())
    }
}

struct Quiet;

impl StudyObserver for Quiet {
    fn begins(&mut self, _: &Position, _: &str) {}
    fn progress(&mut self, _: &Position, _: &str, _: &Progress) {}
    fn ends(&mut self, _: &Position, _: &[Record]) {}
    fn note(&mut self, _: &str) {}
}

/// Runs a plan into a directory: against a target that was given, if any, on this fabric.
pub(crate) fn run(
    directory: &Path,
    plan: &Plan,
    given: Option<(SocketAddr, &Fabric)>,
    environment: Environment,
) -> (Outcome, Vec<Record>, Environment) {
    let address = given.map(|(address, _)| format!("nvme-rdma://{address}/{SUBSYSTEM}"));
    let address = address.map(|text| text.parse().expect("an address"));
    let known = |_: &GivenTarget| KnownTarget {
        name: "10.0.0.1".to_owned(),
        transport: Transport::Rdma,
        elsewhere: true,
    };
    let targets: Vec<GivenTarget> = address
        .map(|address| GivenTarget { options: Options::new(address), control: None, token: None })
        .into_iter()
        .collect();
    let capabilities = Capabilities {
        cpus: vec![0],
        own_target: true,
        targets: targets.iter().map(known).collect(),
        rdma: true,
        tls: true,
        ..Capabilities::default()
    };
    let settings = Settings {
        plan,
        capabilities: &capabilities,
        local: Some("memory:4MiB".parse().expect("a device")),
        fleet: None,
        linux: None,
        given: targets,
        rdma: given.map_or(Provider::System, |(_, fabric)| Provider::Software(fabric.clone())),
        driver: DriverKind::Auto,
        precondition: None,
        fio: false,
        rerun_command: String::new(),
        wall_ms: &|| 42,
        environment,
    };
    let mut store = Store::open(directory).expect("a store");
    let stop = AtomicBool::new(false);
    let outcome = runner::run(&settings, &mut store, Some(&NoTargets), &mut Quiet, &stop);
    let results = results::load(directory).expect("results");
    (outcome.expect("an outcome"), results.records, results.environment)
}

/// The record of a transport.
pub(crate) fn of<'a>(records: &'a [Record], transport: &str) -> &'a Record {
    let is_it = |record: &&Record| record.configuration[key::TRANSPORT] == transport.into();
    records.iter().find(is_it).expect(transport)
}
