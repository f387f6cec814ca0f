//! A change is answered when no device has a command that it forbids.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use weft_backend::{
    BlockDevice, DeviceFactory, DeviceSpec, Geometry, OpenError, Operation, Request,
    RequestCompletion, ResizeError,
};
use weft_nvme::Status;
use weft_reactor::{Owner, Reactor, ReactorCompletion, Token};
use weft_target::Target;
use weft_target::config::{AnaState, Config, RateLimit, Subsystem};
use weft_target::steps::{NamespaceVisibility, Step};
use weft_transport::host::HostOptions;

use crate::support::peer::{ConnectFields, Peer};
use crate::support::{
    HOST, OTHER_HOST, SUBSYSTEM, address, config_of_two_groups, drivers, log, pattern, subsystem,
    wait_until,
};

const BLOCK: usize = 4096;
const BESIDE: &str = "nqn.2024-01.io.weft:beside";

/// Too short for a command of a device that keeps it.
const SHORT: Duration = Duration::from_millis(100);

/// A device in memory that keeps writes until it is opened.
#[derive(Debug, Clone)]
struct Gate {
    inner: Arc<dyn DeviceFactory>,
    is_open: Arc<AtomicBool>,
    held: Arc<AtomicUsize>,
}

impl Gate {
    /// The device and the spec of a namespace that has it.
    fn new() -> (DeviceSpec, Self) {
        let spec: DeviceSpec = "memory:5MiB".parse().expect("a device");
        let inner = spec.build().expect("a device");
        (spec, Self { inner, is_open: Arc::default(), held: Arc::default() })
    }

    fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }

    fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }
}

impl DeviceFactory for Gate {
    fn open(&self, reactor: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
        let inner = self.inner.open(reactor, owner)?;
        let timer = Token { owner, tag: u32::MAX };
        Ok(Box::new(GateDevice { inner, gate: self.clone(), timer, kept: VecDeque::new() }))
    }
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn survives_restart(&self) -> bool {
        false
    }
    fn identity(&self) -> String {
        "a gate".to_owned()
    }
    fn resize(&self, bytes: u64) -> Result<(), ResizeError> {
        self.inner.resize(bytes)
    }
}

#[derive(Debug)]
struct GateDevice {
    inner: Box<dyn BlockDevice>,
    gate: Gate,
    timer: Token,
    kept: VecDeque<Request>,
}

impl BlockDevice for GateDevice {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }
    fn submit(&mut self, reactor: &mut Reactor, request: Request) {
        if !matches!(request.operation, Operation::Write { .. }) {
            return self.inner.submit(reactor, request);
        }
        self.gate.held.fetch_add(1, Ordering::SeqCst);
        self.kept.push_back(request);
        reactor.set_timer(self.timer, reactor.now() + Duration::from_millis(1));
    }
    fn handle(&mut self, reactor: &mut Reactor, completion: ReactorCompletion) {
        if completion.token != self.timer {
            return self.inner.handle(reactor, completion);
        }
        if !self.gate.is_open.load(Ordering::SeqCst) {
            return reactor.set_timer(self.timer, reactor.now() + Duration::from_millis(1));
        }
        for request in self.kept.drain(..) {
            self.gate.held.fetch_sub(1, Ordering::SeqCst);
            self.inner.submit(reactor, request);
        }
    }
    fn flush(&mut self, reactor: &mut Reactor) {
        self.inner.flush(reactor);
    }
    fn poll_completion(&mut self) -> Option<RequestCompletion> {
        self.inner.poll_completion()
    }
    fn in_flight(&self) -> usize {
        self.kept.len() + self.inner.in_flight()
    }
    fn close(&mut self, reactor: &mut Reactor) {
        self.inner.close(reactor);
    }
}

type Change = fn(&mut Target) -> Result<(), String>;

fn step(target: &mut Target, step: Step) -> Result<(), String> {
    target.step(&step).map(drop).map_err(|error| error.to_string())
}

fn reload(target: &mut Target, change: impl Fn(&mut Config)) -> Result<(), String> {
    let mut config = target.config().clone();
    change(&mut config);
    target.reload(config).map(drop).map_err(|error| error.to_string())
}

fn nqn() -> String {
    SUBSYSTEM.to_owned()
}

/// Each takes from the host what it has of namespace 1, and the status of what waits for a limit;
/// none: its connection ends.
fn changes() -> [(&'static str, Change, Option<Status>); 10] {
    let gone = Some(Status::INVALID_NAMESPACE.with_dnr());
    let protected = Some(Status::NAMESPACE_WRITE_PROTECTED.with_dnr());
    [
        (
            "remove host",
            |target| step(target, Step::RemoveHost { nqn: nqn(), host: HOST.to_owned() }),
            None,
        ),
        (
            "remove listener",
            |target| {
                let listen = target.config().ports[0].listen;
                step(target, Step::RemoveListener { nqn: nqn(), listen })
            },
            None,
        ),
        ("delete subsystem", |target| step(target, Step::DeleteSubsystem { nqn: nqn() }), None),
        (
            "remove namespace",
            |target| step(target, Step::RemoveNamespace { nqn: nqn(), nsid: 1 }),
            gone,
        ),
        (
            "hide namespace",
            |target| {
                let visible = NamespaceVisibility::NotTo(HOST.to_owned());
                step(target, Step::SetVisible { nqn: nqn(), nsid: 1, visible })
            },
            gone,
        ),
        (
            "access state",
            |target| {
                let listen = target.config().ports[0].listen;
                let (group, state) = (None, AnaState::Inaccessible);
                step(target, Step::SetAnaState { nqn: nqn(), listen, group, state })
            },
            Some(Status::ANA_INACCESSIBLE),
        ),
        (
            "file without the host",
            |target| {
                let other = vec![OTHER_HOST.to_owned()];
                reload(target, |config| config.subsystems[0].allowed_hosts = Some(other.clone()))
            },
            None,
        ),
        (
            "file without the port",
            |target| reload(target, |config| drop(config.ports.remove(0))),
            None,
        ),
        (
            "file without the namespace",
            |target| reload(target, |config| config.subsystems[0].namespaces.clear()),
            gone,
        ),
        (
            "file with it read-only",
            |target| reload(target, |config| config.subsystems[0].namespaces[0].read_only = true),
            protected,
        ),
    ]
}

/// A target with the gate as namespace 1 of one subsystem, and another subsystem.
fn target_with(gate: &(DeviceSpec, Gate), config: Config) -> Target {
    log::install();
    let (spec, gate) = gate.clone();
    let mut own = Subsystem::new(SUBSYSTEM);
    own.namespaces = vec![weft_target::config::Namespace::new(1, spec.clone())];
    own.namespaces[0].visible_to = Some(vec![HOST.to_owned(), OTHER_HOST.to_owned()]);
    own.allowed_hosts = Some(vec![HOST.to_owned(), OTHER_HOST.to_owned()]);
    own.ana_reporting = true;
    let beside = subsystem(BESIDE, &["memory:1MiB"]);
    let mut ports = config.ports.clone();
    ports.push(crate::support::port(2, "127.0.0.1:0"));
    let config = Config { ports, subsystems: vec![own, beside], ..config };
    Target::with_devices(config, vec![(spec, Arc::new(gate))]).expect("a target")
}

fn host_beside(target: &Target) -> (Peer, Peer) {
    let at = *target.addresses().get(&2).expect("a port");
    let fields = ConnectFields { subsystem: BESIDE.to_owned(), ..ConnectFields::admin() };
    let fields = fields.of_other_host();
    let (admin, controller) = Peer::admin_as(at, &fields);
    let fields = ConnectFields { queue_id: 1, entries: 16, controller, ..fields };
    (admin, Peer::io_as(at, &fields, HostOptions::default()))
}

#[test]
fn a_change_is_answered_after_the_last_command_that_it_forbids() {
    for driver in drivers() {
        for (name, change, _) in changes() {
            let gate = Gate::new();
            let config = Config { driver: *driver, ..config_of_two_groups(&[]) };
            let mut target = target_with(&gate, config);
            let gate = &gate.1;
            let (_admin, controller) = Peer::admin(address(&target));
            let mut io = Peer::io(address(&target), controller, 1);
            let (_other, mut beside) = host_beside(&target);
            io.begin_write(1, 0, 1, &pattern(BLOCK, 1));
            wait_until("the device has it", || gate.held() == 1);
            std::thread::scope(|scope| {
                let (done, is_done) = channel();
                let target = &mut target;
                scope.spawn(move || done.send((change(target), gate.held())));
                let early = is_done.recv_timeout(SHORT);
                assert_eq!(early, Err(RecvTimeoutError::Timeout), "{name}: it waits");
                // A neighbour does not notice.
                beside.write(1, 0, 1, &pattern(BLOCK, 2)).succeeded();
                gate.open();
                assert_eq!(is_done.recv(), Ok((Ok(()), 0)), "{name}: nothing is left");
            });
            target.stop().expect("a clean stop");
        }
    }
}

/// It waits for a rate limit that admits it in an hour.
#[test]
fn what_has_not_begun_ends_with_the_change_that_forbids_it() {
    let limit = RateLimit { rate: Some(1), force: true, ..RateLimit::default() };
    for (name, change, status) in changes() {
        let gate = Gate::new();
        let rate_limits = vec![limit.clone()];
        let config = Config { rate_limits, ..config_of_two_groups(&[]) };
        let mut target = target_with(&gate, config);
        let (_admin, controller) = Peer::admin(address(&target));
        let mut io = Peer::io(address(&target), controller, 1);
        io.read(1, 0, 1, BLOCK).succeeded();
        let parked = io.begin_write(1, 0, 1, &pattern(BLOCK, 1));
        assert!(!io.is_answered(parked, SHORT), "{name}: it waits for the limit");
        change(&mut target).expect(name);
        match status {
            Some(status) => assert_eq!(io.wait_for(parked).status(), status, "{name}"),
            None => drop(io.until_closed()),
        }
        gate.1.open();
        target.stop().expect("a clean stop");
        assert_eq!(gate.1.held(), 0, "{name}");
    }
}

/// One reload takes a device from a namespace and gives it to another one.
#[test]
fn a_reload_gives_a_device_away_after_its_last_command() {
    let gate = Gate::new();
    let mut config = config_of_two_groups(&[]);
    config.limits.drain_timeout = Duration::from_secs(1);
    let mut target = target_with(&gate, config);
    let gate = gate.1;
    let second = Subsystem::new("nqn.2024-01.io.weft:c");
    step(&mut target, Step::CreateSubsystem(Box::new(second))).expect("a subsystem");
    let (_admin, controller) = Peer::admin(address(&target));
    let mut io = Peer::io(address(&target), controller, 1);
    let write = io.begin_write(1, 0, 1, &pattern(BLOCK, 1));
    wait_until("the device has it", || gate.held() == 1);
    let before = target.config().clone();
    let mut wanted = before.clone();
    let moved = std::mem::take(&mut wanted.subsystems[0].namespaces).remove(0);
    let moved = weft_target::config::Namespace { nsid: 2, ..moved };
    wanted.subsystems[1].namespaces.push(moved);
    let mut impossible = wanted.clone();
    let missing = "file:/nonexistent/weft".parse().expect("a device");
    impossible.subsystems[1].namespaces.push(weft_target::config::Namespace::new(9, missing));
    target.reload(impossible).expect_err("there is no such file");
    assert_eq!(target.config(), &before, "nothing was taken away");
    let error = target.reload(wanted.clone()).expect_err("it takes too long").to_string();
    assert!(error.contains("reload again later") && error.contains("1s"), "{error}");
    assert!(target.config().subsystems[0].namespaces.is_empty(), "it was taken away");
    assert_eq!(target.config().subsystems[1..], before.subsystems[1..], "nobody has it");
    target.reload(wanted.clone()).expect_err("the device still has a write");
    gate.open();
    io.wait_for(write).succeeded();
    target.reload(wanted.clone()).expect("the write has ended");
    assert_eq!(target.config(), &wanted);
    target.stop().expect("a clean stop");
}

/// A device that keeps a command for longer than the change waits.
#[test]
fn a_device_has_no_other_owner_before_the_commands_of_the_last_one_have_ended() {
    let gate = Gate::new();
    let mut config = config_of_two_groups(&[]);
    config.limits.drain_timeout = Duration::from_secs(1);
    let mut target = target_with(&gate, config);
    let gate = gate.1;
    let (_admin, controller) = Peer::admin(address(&target));
    let mut io = Peer::io(address(&target), controller, 1);
    let write = io.begin_write(1, 0, 1, &pattern(BLOCK, 1));
    wait_until("the device has it", || gate.held() == 1);
    let namespaces = target.config().subsystems[0].namespaces.clone();
    let removed = reload(&mut target, |config| config.subsystems[0].namespaces.clear());
    let error = removed.expect_err("it takes too long");
    assert!(error.contains("the change is made, but") && error.contains("1s"), "{error}");
    assert!(target.config().subsystems[0].namespaces.is_empty(), "it is made");
    // What has nothing to do with it does not wait.
    step(&mut target, Step::CreateSubsystem(Box::new(Subsystem::new("nqn.2024-01.io.weft:c"))))
        .expect("a subsystem");
    let mut give = || {
        reload(&mut target, |config| {
            config.subsystems[1].namespaces =
                vec![weft_target::config::Namespace { nsid: 2, ..namespaces[0].clone() }];
        })
    };
    let error = give().expect_err("the device still has a write");
    assert!(error.contains("a gate still has commands"), "{error}");
    gate.open();
    io.wait_for(write).succeeded();
    give().expect("the write has ended");
    target.stop().expect("a clean stop");
}
