use std::net::{IpAddr, Shutdown};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use weft_reactor::monotonic_time;

use super::calls::{Clock, StopTarget};
use super::fleet::Places;
use super::line::{Agent, Reading};
use super::*;
use crate::results::key;
use crate::study::builtin;
use crate::study::knob::{Keeper, Knobs, Machine};
use crate::study::launch::{Launcher, StartedTarget, TargetSpec};
use crate::study::site::Link;
use crate::study::software::Software;

/// A launcher that starts nothing.
struct Nothing;

impl Launcher for Nothing {
    fn launch(&self, _: &TargetSpec, _: Option<IpAddr>) -> Result<Box<dyn StartedTarget>, String> {
        Err("no target is started here".to_owned())
    }
}

fn build(id: &str) -> Build {
    Build { version: "1.2.3".to_owned(), id: id.to_owned() }
}

/// A connection within this process.
struct Wire;

impl Carrier for Wire {
    fn hear(&mut self) {}

    fn why(&mut self, _: bool) -> String {
        "it has ended".to_owned()
    }
}

/// The connection to an agent of a build, on a thread of this process; and what cuts it.
fn serving(id: &str) -> (Streams, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let nowhere = std::path::PathBuf::from("/nonexistent");
    let watch = Box::new(|_: &std::path::Path, _: std::fs::File| Err("no watchdog".to_owned()));
    let keeper = Keeper::new(Machine::default(), nowhere, watch);
    let knobs = Knobs::new(Arc::new(keeper));
    let methods = methods(Box::new(Nothing), None, build(id), knobs);
    thread::spawn(move || {
        let from = theirs.try_clone().expect("a clone");
        weft_rpc::serve(methods, from, theirs);
    });
    let cut = ours.try_clone().expect("a clone");
    let from = ours.try_clone().expect("a clone").into();
    (Streams { from, to: Box::new(ours), carrier: Box::new(Wire) }, cut)
}

#[test]
fn an_agent_of_the_same_build_describes_its_machine_and_its_clock() {
    let (streams, _) = serving("a");
    let agent = Agent::greet("there", streams, &build("a")).expect("an agent");
    assert!(!agent.description.boot_id.is_empty() && !agent.description.cpus.is_empty());
    assert!(!agent.description.environment.kernel.is_empty());
    let mut reading = Reading::default();
    let offset = loop {
        let asked = agent.ask::<Clock>(&()).expect("it is there");
        let theirs = agent.wait::<Clock>(asked).expect("a clock");
        if let Some(offset) = reading.take(asked, theirs) {
            break offset;
        }
    };
    // Both clocks are the same one.
    let error = i128::try_from(offset.round_trip.as_nanos()).expect("a short time");
    assert!(offset.ns.abs() <= error, "{offset:?}");
    let now = monotonic_time();
    assert!(offset.ours(offset.theirs(now)).abs_diff(now) < Duration::from_nanos(2));
}

#[test]
fn an_agent_of_another_build_is_refused_in_a_sentence() {
    let (streams, _) = serving("a");
    let why = Agent::greet("there", streams, &build("b")).expect_err("another build");
    assert!(why.starts_with("there: it has another build of weft 1.2.3"), "{why}");
    let (streams, _) = serving("a");
    let newer = Build { version: "1.3.0".to_owned(), id: "a".to_owned() };
    let why = Agent::greet("there", streams, &newer).expect_err("another version");
    assert!(why.contains("weft 1.2.3, and this is 1.3.0"), "{why}");
}

#[test]
fn an_agent_that_is_gone_is_lost_with_the_reason() {
    let (streams, cut) = serving("a");
    let agent = Arc::new(Agent::greet("there", streams, &build("a")).expect("an agent"));
    assert_eq!(agent.lost(), None);
    let why = agent.call::<StopTarget>(&(7,));
    assert_eq!(why, Ok(()), "one that has ended already");
    let mut control = agent.control(7);
    let why = control.call_named("x", Value::Null).expect_err("no target").to_string();
    assert_eq!(why, "there: there is no target 7");
    cut.shutdown(Shutdown::Both).expect("an open stream");
    let why = agent.call::<Clock>(&()).expect_err("it is gone");
    assert_eq!(why, "there: it has ended");
    assert_eq!(agent.lost(), Some(why));
}

/// A place whose agent is on a thread of this process.
#[derive(Debug)]
struct Thread(&'static str);

impl Connector for Thread {
    fn place(&self) -> String {
        self.0.to_owned()
    }

    fn connect(&self) -> Result<Streams, String> {
        Ok(serving("a").0)
    }
}

#[test]
fn a_fleet_knows_its_machines_and_what_cannot_be_started_there() {
    let loads: Vec<Box<dyn Connector>> = vec![Box::new(Thread("b")), Box::new(Thread("c"))];
    let lo = "127.0.0.1".parse().expect("an address");
    let far = "198.51.100.7".parse().expect("an address");
    let link = |target, load| Link { target, loads: vec![load, lo] };
    let links = [("near", link(lo, lo)), ("unknown", link(lo, far))];
    let links = links.map(|(name, link)| (name.to_owned(), link)).into();
    let (target, spdk) = (Box::new(Thread("a")), std::collections::BTreeMap::new());
    let places = Places { target, loads, address: None, links, spdk, build: build("a") };
    let fleet = Fleet::gather(places).expect("agents");
    let capabilities = fleet.capabilities(false);
    let apart = capabilities.apart.expect("machines of agents");
    assert_eq!((apart.loads, apart.one_machine, apart.local), (2, true, false));
    assert_eq!(apart.load_cpus, capabilities.cpus, "it is one machine");
    let places: Vec<String> = fleet.machines().into_iter().map(|machine| machine.place).collect();
    assert_eq!(places, ["a", "b", "c"]);
    let known: Vec<(&String, &bool)> = apart.links.iter().collect();
    assert_eq!(known, [(&"near".to_owned(), &false), (&"unknown".to_owned(), &false)]);
    let checked = |transport: &str| {
        let mut plan = builtin::find("concurrency").expect("a study").plan().expect("a plan");
        plan.axes.insert(key::TRANSPORT.to_owned(), vec![transport.into()]);
        fleet.check_links(&plan)
    };
    assert_eq!(
        (checked("tcp@near"), checked("tcp@none"), checked("tcp")),
        (Ok(()), Ok(()), Ok(()))
    );
    let why = checked("tcp@unknown").expect_err("not an address of this machine");
    assert!(why.starts_with("b: it has no address 198.51.100.7, which the site"), "{why}");
    let spec = TargetSpec {
        devices: vec!["memory:1MiB".parse().expect("a device")],
        subsystems: 1,
        transport: weft_host::Transport::Tcp,
        link: String::new(),
        cpus: Vec::new(),
        idle_poll: None,
        express: Some(false),
        driver: weft_reactor::DriverKind::Epoll,
        tls: None,
        software: Software::Weft,
    };
    // All have reached an address of the target's machine before.
    let why = fleet.launch(&spec, None).err().expect("nothing is started");
    assert_eq!(why, "a: no target is started here");
    assert_eq!((fleet.lost(), fleet.mend()), (None, Ok(())));
}
