//! Objects that are changed one at a time while the target runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_backend::{BlockDevice, DeviceFactory, DeviceSpec, Geometry, OpenError, ResizeError};
use weft_nvme::Status;
use weft_reactor::{Owner, Reactor};
use weft_target::Target;
use weft_target::config::{
    AnaState, Bdev, BdevKind, Config, HostKeys, Listen, Namespace, Subsystem, Transport,
};
use weft_target::steps::{DISCOVERY_NQN, Step, StepErrorKind, StepOutcome};

use crate::support::peer::{ConnectFields, Peer};
use crate::support::{
    HOST, OTHER_HOST, address, config_of_two_groups, pattern, start, subsystem, wait_until,
};

const BLOCK: usize = 4096;
const NQN: &str = "nqn.2024-01.io.weft:made";

fn bdev(name: &str, device: &str) -> Step {
    let device = device.parse().expect("a device");
    let mut uuid = [1; 16];
    uuid[..name.len()].copy_from_slice(name.as_bytes());
    let (name, kind) = (name.to_owned(), BdevKind::of(&device));
    Step::CreateBdev(Bdev { name, kind, device, base: None, uuid })
}

fn add(nqn: &str, bdev: &str, nsid: Option<u32>) -> Step {
    let namespace = Namespace { nsid: nsid.unwrap_or(0), ..Namespace::on_bdev(bdev) };
    Step::AddNamespace { nqn: nqn.to_owned(), namespace: Box::new(namespace) }
}

fn add_listener(nqn: &str, listen: Listen) -> Step {
    Step::AddListener {
        nqn: nqn.to_owned(),
        listen,
        ana: AnaState::Optimized,
        tls: None,
        tls_records: None,
    }
}

fn listen(address: &str) -> Listen {
    Listen::tcp(address.parse().expect("an address"))
}

fn make(target: &mut Target, step: Step) -> StepOutcome {
    let told = format!("{step:?}");
    target.step(&step).unwrap_or_else(|error| panic!("{told}: {error}"))
}

/// The kind and the sentence of a refusal, which has changed nothing.
fn refused(target: &mut Target, step: &Step) -> (StepErrorKind, String) {
    let before = target.config().clone();
    let Err(error) = target.step(step) else { panic!("{step:?} is made") };
    assert_eq!(*target.config(), before, "a refused step changes nothing");
    (error.kind, error.to_string())
}

/// A target without anything gets a transport, a subsystem and a listener.
fn from_nothing() -> Target {
    let mut target =
        start(Config { ports: Vec::new(), subsystems: Vec::new(), ..config_of_two_groups(&[]) });
    assert!(target.addresses().is_empty());
    make(&mut target, Step::CreateTransport(Transport::Tcp, Box::default()));
    make(&mut target, Step::CreateSubsystem(Box::new(Subsystem::new(NQN))));
    let listener = add_listener(NQN, listen("127.0.0.1:0"));
    make(&mut target, listener);
    target
}

/// An admin and an I/O queue of a host at a subsystem.
fn host(target: &Target, nqn: &str) -> (Peer, Peer) {
    let admin = ConnectFields { subsystem: nqn.to_owned(), ..ConnectFields::admin() };
    let (admin, controller) = Peer::admin_as(address(target), &admin);
    let io = ConnectFields { subsystem: nqn.to_owned(), ..ConnectFields::io(controller, 1) };
    (admin, Peer::io_as(address(target), &io, weft_transport::host::HostOptions::default()))
}

#[test]
fn a_target_is_made_from_nothing_and_unmade() {
    let mut target = from_nothing();
    make(&mut target, bdev("m", "memory:4MiB"));
    assert_eq!(make(&mut target, add(NQN, "m", None)), StepOutcome::Nsid(1));
    let (_admin, mut io) = host(&target, NQN);
    let bytes = pattern(BLOCK, 7);
    io.write(1, 3, 1, &bytes).succeeded();
    // A block device keeps its contents while no namespace uses it.
    make(&mut target, Step::RemoveNamespace { nqn: NQN.to_owned(), nsid: 1 });
    assert_eq!(io.read(1, 3, 1, BLOCK).status(), Status::INVALID_NAMESPACE.with_dnr());
    assert_eq!(make(&mut target, add(NQN, "m", Some(5))), StepOutcome::Nsid(5));
    assert!(io.read(5, 3, 1, BLOCK).bytes() == bytes);
    let resize = Step::ResizeBdev { name: "m".to_owned(), kind: None, bytes: 8 << 20 };
    make(&mut target, resize);
    io.write(5, 1500, 1, &bytes).succeeded();
    let served = target.namespace(NQN, 5).expect("served");
    assert_eq!((served.blocks, served.uuid[0], served.uuid == served.nguid), (2048, b'm', true));
    make(&mut target, Step::DeleteBdev { name: "m".to_owned(), kind: None });
    assert_eq!(io.read(5, 3, 1, BLOCK).status(), Status::INVALID_NAMESPACE.with_dnr());
    make(&mut target, Step::DeleteSubsystem { nqn: NQN.to_owned() });
    assert!(target.addresses().is_empty(), "the listener went with its last subsystem");
    io.until_closed();
    wait_until("its queues are gone", || target.queues(None).is_empty());
    target.stop().expect("a clean stop");
}

#[test]
fn a_step_is_refused_as_a_whole() {
    use StepErrorKind::{Exists, Failed, Invalid, NotFound};
    let mut target = from_nothing();
    make(&mut target, bdev("m", "memory:4MiB"));
    make(&mut target, add(NQN, "m", None));
    let nqn = || NQN.to_owned();
    let used = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let used = Listen::tcp(used.local_addr().expect("an address"));
    let rdma = Listen::rdma("127.0.0.1:4420".parse().expect("an address"));
    let resize = |kind, bytes| Step::ResizeBdev { name: "m".to_owned(), kind: Some(kind), bytes };
    let unknown = || "nqn.2024-01.io.weft:none".to_owned();
    let same = listen("127.0.0.1:0");
    for (step, kind, part) in [
        (Step::CreateTransport(Transport::Tcp, Box::default()), Exists, "exists"),
        (bdev("m", "null:1MiB"), Exists, "exists"),
        (bdev("f", "file:/nonexistent/a"), Failed, "/nonexistent/a"),
        (add(NQN, "m", None), Exists, "used by namespace 1"),
        (add(NQN, "x", None), NotFound, "no block device x"),
        (add(&unknown(), "x", None), NotFound, "no block device x"),
        (Step::CreateSubsystem(Box::new(Subsystem::new(NQN))), Exists, "exists"),
        (Step::CreateSubsystem(Box::new(Subsystem::new("a b"))), Invalid, "no NQN"),
        (Step::DeleteSubsystem { nqn: unknown() }, NotFound, "no subsystem"),
        (Step::RemoveNamespace { nqn: nqn(), nsid: 9 }, NotFound, "no namespace 9"),
        (add_listener(NQN, same), Exists, "already"),
        (add_listener(NQN, used), Failed, "cannot listen"),
        (add_listener(NQN, rdma), Invalid, "was not created"),
        (Step::RemoveListener { nqn: nqn(), listen: used }, NotFound, "not served"),
        (Step::RemoveHost { nqn: nqn(), host: HOST.to_owned() }, NotFound, "not listed"),
        (Step::AddHost { nqn: nqn(), host: HostKeys::new("a b") }, Invalid, "no NQN"),
        (resize(BdevKind::Null, 1 << 20), Invalid, "is of kind malloc"),
        (resize(BdevKind::Malloc, 1000), Failed, "whole number of blocks"),
    ] {
        let (found, what) = refused(&mut target, &step);
        assert_eq!(found, kind, "{step:?}: {what}");
        assert!(what.contains(part), "{step:?}: {what}");
    }
    target.stop().expect("a clean stop");
}

#[test]
fn hosts_come_and_go_with_the_list() {
    let mut target = from_nothing();
    let allow = |allow| Step::AllowAnyHost { nqn: NQN.to_owned(), allow };
    let nqn = || NQN.to_owned();
    make(&mut target, Step::AddHost { nqn: nqn(), host: HostKeys::new(OTHER_HOST) });
    let (mut admin, _io) = host(&target, NQN);
    let controllers = target.controllers(Some(NQN));
    assert_eq!((controllers.len(), controllers[0].io_queues), (1, 1));
    assert_eq!(controllers[0].host, HOST);
    assert!(target.controllers(Some("nqn.other")).is_empty());
    let queues = target.queues(Some(NQN));
    assert_eq!(queues.iter().map(|queue| queue.queue_id).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(queues[1].local, address(&target));
    // The list holds once not everyone is allowed.
    make(&mut target, allow(false));
    admin.until_closed();
    let fields = ConnectFields { subsystem: NQN.to_owned(), ..ConnectFields::admin() };
    let options = fields.options(address(&target), weft_transport::host::HostOptions::default());
    let status = Peer::open(address(&target), options).connect(&fields).status();
    assert_eq!(status, Status::CONNECT_INVALID_HOST.with_dnr());
    make(&mut target, Step::AddHost { nqn: nqn(), host: HostKeys::new(HOST) });
    let (mut admin, _io) = host(&target, NQN);
    make(&mut target, Step::RemoveHost { nqn: nqn(), host: HOST.to_owned() });
    admin.until_closed();
    make(&mut target, allow(true));
    host(&target, NQN);
    assert_eq!(target.config().subsystems[0].listed_hosts, [OTHER_HOST]);
    target.stop().expect("a clean stop");
}

#[test]
fn a_step_leaves_other_subsystems_alone() {
    let mut target = start(config_of_two_groups(&["memory:4MiB"]));
    let (mut admin, mut io) = {
        let (admin, controller) = Peer::admin(address(&target));
        (admin, Peer::io(address(&target), controller, 1))
    };
    let event = admin.begin_event_request();
    make(&mut target, Step::CreateSubsystem(Box::new(subsystem(NQN, &["null:1MiB"]))));
    for number in 0..50 {
        let name = format!("n{number}");
        make(&mut target, bdev(&name, "null:1MiB"));
        assert_eq!(make(&mut target, add(NQN, &name, None)), StepOutcome::Nsid(number + 2));
        io.read(1, 0, 1, BLOCK).succeeded();
    }
    assert!(!admin.is_answered(event, std::time::Duration::ZERO), "it hears of nothing");
    // A reload of what is served drops nothing that was made.
    let config = target.config().clone();
    assert_eq!(target.reload(config).expect("a reload"), Vec::<String>::new());
    assert!(target.namespace(NQN, 51).is_some());
    target.stop().expect("a clean stop");
}

#[test]
fn discovery_is_a_subsystem_that_can_be_deleted() {
    let mut target = from_nothing();
    let discovery = || DISCOVERY_NQN.to_owned();
    assert!(target.config().ports[0].discovery, "as at a port of a file");
    let also = listen("127.0.0.2:0");
    make(&mut target, add_listener(DISCOVERY_NQN, also));
    assert_eq!(target.addresses().len(), 2);
    make(&mut target, Step::RemoveListener { nqn: discovery(), listen: also });
    assert_eq!(target.addresses().len(), 1);
    make(&mut target, Step::DeleteSubsystem { nqn: discovery() });
    assert!(!target.config().ports[0].discovery);
    let step = add_listener(DISCOVERY_NQN, also);
    assert_eq!(refused(&mut target, &step).0, StepErrorKind::NotFound);
    target.stop().expect("a clean stop");
}

/// A subsystem at two ports whose states differ, changed while a host reads through both.
#[test]
fn access_states_are_those_of_a_listener() {
    use StepErrorKind::{Invalid, NotFound};
    let mut target = from_nothing();
    let set = |port: &str, group, state| Step::SetAnaState {
        nqn: NQN.to_owned(),
        listen: listen(port),
        group,
        state,
    };
    let (first, second) = ("127.0.0.1:0", "[::1]:0");
    let (kind, told) = refused(&mut target, &set(first, None, AnaState::Change));
    assert!(kind == Invalid && told.contains("ana-reporting"), "{told}");
    make(&mut target, Step::DeleteSubsystem { nqn: NQN.to_owned() });
    let reporting = Subsystem { ana_reporting: true, ..Subsystem::new(NQN) };
    make(&mut target, Step::CreateSubsystem(Box::new(reporting)));
    make(&mut target, add_listener(NQN, listen(first)));
    for (name, nsid) in [("a", 1), ("b", 2)] {
        make(&mut target, bdev(name, "memory:4MiB"));
        make(&mut target, add(NQN, name, Some(nsid)));
    }
    let (_admin, mut io) = host(&target, NQN);
    let bytes = pattern(BLOCK, 7);
    io.write(1, 3, 1, &bytes).succeeded();
    make(&mut target, set(first, Some(1), AnaState::Inaccessible));
    assert_eq!(io.read(1, 3, 1, BLOCK).status(), Status::ANA_INACCESSIBLE);
    assert_eq!(io.write(1, 3, 1, &bytes).status(), Status::ANA_INACCESSIBLE);
    io.write(2, 3, 1, &bytes).succeeded();
    // A listener that is added is optimized, unless it is told to be otherwise.
    let ana = AnaState::NonOptimized;
    make(
        &mut target,
        Step::AddListener {
            nqn: NQN.to_owned(),
            listen: listen(second),
            ana,
            tls: None,
            tls_records: None,
        },
    );
    let states = |target: &Target| -> Vec<[AnaState; 2]> {
        let ports = target.config().ports.iter();
        ports.map(|port| [1, 2].map(|group| port.ana_state(NQN, group))).collect()
    };
    let before = [[AnaState::Inaccessible, AnaState::Optimized], [ana, ana]];
    assert_eq!(states(&target), before);
    make(&mut target, Step::SetAnaGroup { nqn: NQN.to_owned(), nsid: 1, group: 2 });
    assert!(io.read(1, 3, 1, BLOCK).bytes() == bytes, "it moved to a group that is reached");
    make(&mut target, set(first, None, AnaState::PersistentLoss));
    assert_eq!(io.read(1, 3, 1, BLOCK).status(), Status::ANA_PERSISTENT_LOSS);
    make(&mut target, set(first, None, AnaState::Optimized));
    assert!(io.read(1, 3, 1, BLOCK).bytes() == bytes);
    for (step, kind, part) in [
        (set("127.0.0.1:1", None, ana), NotFound, "not served at"),
        (set(first, Some(0), ana), Invalid, "no group"),
        (Step::SetAnaGroup { nqn: NQN.to_owned(), nsid: 3, group: 1 }, NotFound, "namespace 3"),
        (Step::SetAnaGroup { nqn: NQN.to_owned(), nsid: 1, group: 9999 }, Invalid, "no group"),
    ] {
        let (found, told) = refused(&mut target, &step);
        assert!(found == kind && told.contains(part), "{step:?}: {told}");
    }
    // What was said of a listener goes with it.
    make(&mut target, Step::RemoveListener { nqn: NQN.to_owned(), listen: listen(second) });
    make(&mut target, add_listener(NQN, listen(second)));
    assert_eq!(states(&target)[1], [AnaState::Optimized; 2]);
    target.stop().expect("a clean stop");
}

/// A device that counts how often it is looked at.
#[derive(Debug)]
struct CountingFactory {
    inner: Arc<dyn DeviceFactory>,
    looks: Arc<AtomicUsize>,
}

impl CountingFactory {
    fn look(&self) -> &dyn DeviceFactory {
        self.looks.fetch_add(1, Ordering::Relaxed);
        &*self.inner
    }
}

impl DeviceFactory for CountingFactory {
    fn open(&self, reactor: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
        self.look().open(reactor, owner)
    }
    fn geometry(&self) -> Geometry {
        self.look().geometry()
    }
    fn survives_restart(&self) -> bool {
        self.look().survives_restart()
    }
    fn identity(&self) -> String {
        self.look().identity()
    }
    fn resize(&self, bytes: u64) -> Result<(), ResizeError> {
        self.look().resize(bytes)
    }
    fn refresh(&self) -> std::io::Result<Geometry> {
        self.look().refresh()
    }
    fn sync(&self) -> std::io::Result<()> {
        self.look().sync()
    }
    fn has_lost_writes(&self) -> bool {
        self.look().has_lost_writes()
    }
}

/// 1,000 namespaces of another subsystem, none of which is looked at.
#[test]
fn a_step_looks_at_no_namespace_of_another_subsystem() {
    let beside = "nqn.2024-01.io.weft:beside";
    let spec: DeviceSpec = "null:3MiB".parse().expect("a device");
    let mut other = Subsystem::new(beside);
    other.namespaces = (1..=1000).map(|nsid| Namespace::new(nsid, spec.clone())).collect();
    let looks = Arc::<AtomicUsize>::default();
    let inner = spec.build().expect("a device");
    let device = CountingFactory { inner, looks: Arc::clone(&looks) };
    let config = Config { subsystems: vec![other], ..config_of_two_groups(&[]) };
    let device: Arc<dyn DeviceFactory> = Arc::new(device);
    let mut target = Target::with_devices(config, vec![(spec, device)]).expect("a target");
    let began = looks.load(Ordering::Relaxed);
    assert!(began >= 1000, "each is looked at when it is opened: {began}");
    make(&mut target, Step::CreateSubsystem(Box::new(Subsystem::new(NQN))));
    make(&mut target, Step::AddHost { nqn: NQN.to_owned(), host: HostKeys::new(HOST) });
    make(&mut target, bdev("stays", "null:1MiB"));
    make(&mut target, add(NQN, "stays", None));
    for _ in 0..3 {
        make(&mut target, bdev("m", "null:1MiB"));
        assert_eq!(make(&mut target, add(NQN, "m", None)), StepOutcome::Nsid(2));
        let resize = Step::ResizeBdev { name: "m".to_owned(), kind: None, bytes: 2 << 20 };
        make(&mut target, resize);
        refused(&mut target, &add(NQN, "m", None));
        refused(&mut target, &add(beside, "m", Some(1)));
        make(&mut target, Step::RemoveNamespace { nqn: NQN.to_owned(), nsid: 2 });
        make(&mut target, Step::DeleteBdev { name: "m".to_owned(), kind: None });
    }
    make(&mut target, Step::DeleteSubsystem { nqn: NQN.to_owned() });
    assert_eq!(looks.load(Ordering::Relaxed), began);
    // One of that subsystem looks at the one that it concerns.
    make(&mut target, Step::RemoveNamespace { nqn: beside.to_owned(), nsid: 500 });
    assert_eq!(looks.load(Ordering::Relaxed), began);
    make(&mut target, bdev("m", "null:1MiB"));
    assert_eq!(make(&mut target, add(beside, "m", None)), StepOutcome::Nsid(500));
    assert_eq!(looks.load(Ordering::Relaxed), began, "others of its own subsystem neither");
    target.stop().expect("a clean stop");
}
