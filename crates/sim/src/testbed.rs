//! A simulated world with a target and hosts.

mod hosts;

pub use hosts::Tune;

use crate::seeds::Seed;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use weft_backend::file::SimulatedFileFactory;
use weft_backend::{BlockDevice, DeviceFactory};
use weft_host::{
    ControllerDriver, ControllerKind, ControllerState, IoPolicy, MultipathFactory, Options,
};
use weft_nvmf::auth::Group;
use weft_nvmf::keys::TlsMode;
use weft_reactor::simulation::{NetworkConditions, SimulatedFile, World};
use weft_reactor::{Owner, Reactor, WaitLimit};
use weft_target::config::{
    AnaRule, AnaState, Config, HostKeys, Listen, Namespace, Port, QosRule, RateLimit, Subsystem,
};
use weft_target::{LocalTarget, StatisticsReader, key_file};
use weft_transport::rdma::Provider;
use weft_transport::rdma::software::{Fabric, ResourceCounts};

/// The subsystem that the target serves.
pub const SUBSYSTEM: &str = "nqn.2024-01.io.weft:sim";

/// The drivers of a host's controllers have the owners below.
const FIRST_DEVICE: u32 = 8;
/// Virtual time after which an expected event is considered lost.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// The transport between hosts and target.
#[derive(Debug, Clone)]
pub enum Link {
    /// The simulated network.
    Tcp,
    /// A simulated fabric without latency.
    Rdma(Fabric),
    /// Within the process.
    Loopback,
}

impl Link {
    fn fabric(&self) -> Option<&Fabric> {
        match self {
            Self::Rdma(fabric) => Some(fabric),
            Self::Tcp | Self::Loopback => None,
        }
    }
}

/// How hosts and target are secured over TCP; the key in this file is that of all hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Security {
    /// They are not.
    Off,
    /// The port requires TLS with this key.
    Tls(PathBuf),
    /// The authentication with this secret makes the keys of TLS, without which no host is served,
    /// again and again.
    Concatenation(PathBuf),
}

/// A target and its hosts.
#[derive(Debug)]
pub struct Testbed {
    /// Their simulated world.
    pub world: World,
    /// One, or the two members of a pair.
    targets: Vec<Member>,
    /// Poll groups of each.
    groups: usize,
    /// The file of the device `stored:SIZE`, with its size.
    file: Option<(SimulatedFile, u64)>,
    hosts: Vec<Host>,
    link: Link,
    security: Security,
    /// What hosts that connect from now on have other than usual.
    tune: fn(&mut Options),
    /// Whose timer ends a step.
    clock: Option<Reactor>,
    completions: Vec<weft_reactor::ReactorCompletion>,
    _seed: Seed,
}

/// A target, and what it serves.
#[derive(Debug)]
struct Member {
    config: Config,
    /// None while it does not run.
    running: Option<LocalTarget>,
    /// Its process is stopped, and does nothing.
    is_paused: bool,
}

/// One host: a reactor, its controllers, one for each path, and its devices.
#[derive(Debug)]
struct Host {
    reactor: Reactor,
    drivers: Vec<ControllerDriver>,
    /// Where each leads.
    addresses: Vec<SocketAddr>,
    /// What has opened the devices, if they have several paths.
    multipath: Option<MultipathFactory>,
    devices: Vec<Box<dyn BlockDevice>>,
    /// The device that is express, if one is.
    express: Option<usize>,
    /// What it has completed, and when.
    express_done: Vec<(Duration, weft_backend::RequestCompletion)>,
    /// Free bytes of its pool at the start.
    free: usize,
}

impl Host {
    /// Whether all its controllers are in such a state.
    fn is_in(&self, is_it: impl Fn(&ControllerState) -> bool) -> bool {
        self.drivers.iter().all(|driver| is_it(&driver.state()))
    }

    fn handle(&mut self, completion: weft_reactor::ReactorCompletion) {
        match completion.token.owner {
            Owner(driver) if driver < FIRST_DEVICE => {
                self.drivers[driver as usize].handle(&mut self.reactor, completion);
            }
            Owner(device) => {
                let device = (device - FIRST_DEVICE) as usize;
                self.devices[device].handle(&mut self.reactor, completion);
            }
        }
    }

    /// Serves the device that is express, if something has come for it.
    fn serve_express(&mut self) {
        let Some(express) = self.express.filter(|_| self.reactor.has_express()) else { return };
        let mut completions = Vec::new();
        self.reactor.poll_express(&mut completions);
        completions.into_iter().for_each(|completion| self.handle(completion));
        self.flush_express(express);
    }

    fn flush_express(&mut self, express: usize) {
        let device = &mut self.devices[express];
        device.flush(&mut self.reactor);
        while let Some(done) = device.poll_completion() {
            self.express_done.push((self.reactor.now(), done));
        }
    }

    /// One turn. Whether something has come.
    fn turn(&mut self, completions: &mut Vec<weft_reactor::ReactorCompletion>) -> bool {
        self.reactor.poll(WaitLimit::NoWait, completions);
        let has_come = !completions.is_empty();
        self.serve_express();
        for completion in completions.drain(..) {
            self.handle(completion);
            self.serve_express();
        }
        for number in 0..self.devices.len() {
            self.devices[number].flush(&mut self.reactor);
            self.serve_express();
            while self.reactor.continue_sends() {
                self.serve_express();
            }
        }
        for driver in &mut self.drivers {
            driver.flush(&mut self.reactor);
        }
        has_come
    }

    fn has_ended(&self) -> bool {
        self.is_in(|state| matches!(state, ControllerState::Ended(_)))
    }
}

/// How many poll groups, hosts, and open devices of each host there are.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Poll groups of the target.
    pub groups: usize,
    /// Hosts.
    pub hosts: usize,
    /// Open devices, which have a queue each, of each host.
    pub queues: usize,
}

impl Testbed {
    /// A target that serves `device` as namespace 1, and its hosts.
    ///
    /// # Panics
    /// If one of them cannot be created, which without simulated faults is a defect.
    #[must_use]
    pub fn new(seed: u64, device: &str, size: Size) -> Self {
        Self::over(Link::Tcp, seed, device, size)
    }

    /// The same over any transport. The device `stored:SIZE` is a file of the simulated world,
    /// which loses in a crash what is not durable.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub fn over(link: Link, seed: u64, device: &str, size: Size) -> Self {
        Self::build(link, (seed, device, size), 1, None)
    }

    /// Over TCP with this security.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub fn secured(security: Security, seed: u64, device: &str, size: Size) -> Self {
        let mut testbed =
            Self::apart(Link::Tcp, security, (seed, device, size), 1, |config| vec![config]);
        testbed.connect(size, None);
        testbed
    }

    /// Over TCP by so many ports of the target, each a path of its own, with this policy.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub fn multipath(seed: u64, device: &str, size: Size, paths: usize, policy: IoPolicy) -> Self {
        Self::build(Link::Tcp, (seed, device, size), paths, Some(policy))
    }

    /// Over TCP with two targets that serve one stored file of this size as one subsystem, each
    /// at a port of its own. The first serves, the second stands by.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub fn pair(seed: u64, bytes: &str, size: Size, policy: IoPolicy) -> Self {
        let device = format!("stored:{bytes}");
        let members = |both: Config| {
            let member = |number: u16| {
                let mut config = both.clone();
                config.ports.retain(|port| port.id == number);
                config.subsystems[0].cntlid_min = Some(number * 1000);
                config.subsystems[0].cntlid_max = Some(number * 1000 + 999);
                config.is_standby = number == 2;
                config
            };
            vec![member(1), member(2)]
        };
        let what = (seed, &*device, size);
        let mut testbed = Self::apart(Link::Tcp, Security::Off, what, 2, members);
        testbed.connect(size, Some(policy));
        testbed
    }

    fn build(
        link: Link,
        (seed, device, size): (u64, &str, Size),
        paths: usize,
        policy: Option<IoPolicy>,
    ) -> Self {
        let what = (seed, device, size);
        let mut testbed = Self::apart(link, Security::Off, what, paths, |config| vec![config]);
        testbed.connect(size, policy);
        testbed
    }

    /// Targets without hosts: what each serves is made of the configuration with all ports.
    fn apart(
        link: Link,
        security: Security,
        (seed, device, size): (u64, &str, Size),
        paths: usize,
        members: impl FnOnce(Config) -> Vec<Config>,
    ) -> Self {
        let world = World::new(seed, NetworkConditions::default());
        let stored = device.strip_prefix("stored:");
        let file = stored.map(|size| {
            let bytes = weft_backend::bytes::parse(size).expect("a size");
            (world.add_file(bytes), bytes)
        });
        let spec = stored.map_or(device.to_owned(), |size| format!("file:/stored,size={size}"));
        let mut config = config(&spec, &link, paths);
        secure(&mut config, &security, size.hosts);
        let member = |config| Member { config, running: None, is_paused: false };
        let targets = members(config).into_iter().map(member).collect();
        let (hosts, completions, groups) = (Vec::new(), Vec::new(), size.groups);
        let mut testbed = Self {
            world,
            targets,
            groups,
            file,
            hosts,
            link,
            security,
            tune: |_| {},
            clock: None,
            completions,
            _seed: Seed(seed),
        };
        (0..testbed.targets.len()).for_each(|member| testbed.start(member));
        testbed.settle();
        testbed
    }

    /// Where the targets listen.
    fn addresses(&self) -> Vec<SocketAddr> {
        let running = self.targets.iter().filter_map(|member| member.running.as_ref());
        running.flat_map(|target| target.addresses().into_values()).collect()
    }

    /// Hosts that begin to connect.
    fn begin_to_connect(&mut self, hosts: usize, policy: Option<IoPolicy>) {
        for number in 0..hosts {
            let addresses = self.addresses();
            let host = self.begin_host(number, SUBSYSTEM, addresses, policy.is_some());
            self.hosts.push(host);
        }
    }

    /// Hosts that have given up, because they were refused for good, connect anew; the requests of
    /// their devices have failed. Returns how many.
    ///
    /// # Panics
    /// If they are refused again and again.
    pub fn replace_ended(&mut self, queues: usize) -> usize {
        let mut replaced = 0;
        loop {
            self.run_until("all hosts are connected or have given up", |testbed| {
                let mut hosts = testbed.hosts.iter();
                hosts.all(|host| {
                    host.is_in(|state| *state == ControllerState::Live) || host.has_ended()
                })
            });
            let Some(number) = self.hosts.iter().position(Host::has_ended) else { break };
            replaced += 1;
            assert!(replaced < 10 * self.hosts.len(), "they give up again and again");
            self.replace(number, queues);
        }
        replaced
    }

    fn replace(&mut self, number: usize, queues: usize) {
        let address = *self.addresses().first().expect("a port");
        let options = self.host_options(address, number);
        let host = &mut self.hosts[number];
        host.devices.iter_mut().for_each(|device| device.close(&mut host.reactor));
        self.settle();
        let host = &mut self.hosts[number];
        host.devices.clear();
        let driver =
            ControllerDriver::connect(&host.reactor, Owner(0), &options, ControllerKind::Nvm);
        host.drivers = vec![driver.expect("it starts")];
        self.run_until("the host is connected anew", |testbed| {
            testbed.hosts[number].is_in(|state| *state == ControllerState::Live)
        });
        self.open_devices(number, queues, None);
    }

    fn connect(&mut self, size: Size, policy: Option<IoPolicy>) {
        self.begin_to_connect(size.hosts, policy);
        self.run_until("all hosts are connected", Self::is_live);
        for number in 0..size.hosts {
            self.open_devices(number, size.queues, policy);
        }
    }

    fn open_devices(&mut self, number: usize, queues: usize, policy: Option<IoPolicy>) {
        let host = &mut self.hosts[number];
        let factory: Arc<dyn DeviceFactory> = match policy {
            None => Arc::new(host.drivers[0].factory(1).expect("namespace 1")),
            Some(policy) => {
                let over = MultipathFactory::over(&host.drivers, 1, policy);
                Arc::new(host.multipath.insert(over.expect("namespace 1")).clone())
            }
        };
        for owner in (FIRST_DEVICE..).take(queues).map(Owner) {
            host.devices.push(factory.open(&mut host.reactor, owner).expect("a device"));
        }
    }

    /// Has every host disconnect its controller of a path.
    pub fn end_path(&mut self, path: usize) {
        let now = self.world.now();
        self.hosts.iter_mut().for_each(|host| host.drivers[path].shut_down(now));
    }

    /// If the controllers of a path have ended, has every host make another one, which is a path of
    /// its open devices from now on. Whether they had.
    ///
    /// # Panics
    /// If it cannot start, or the hosts have not several paths.
    pub fn add_path(&mut self, path: usize) -> bool {
        if !self.hosts.iter().all(|host| host.drivers[path].is_finished()) {
            return false;
        }
        for number in 0..self.hosts.len() {
            let address = self.hosts[number].addresses[path];
            let options = Options { multipath: true, ..self.host_options(address, number) };
            let host = &mut self.hosts[number];
            let owner = Owner(u32::try_from(path).expect("small"));
            let driver =
                ControllerDriver::connect(&host.reactor, owner, &options, ControllerKind::Nvm);
            host.drivers[path] = driver.expect("it starts");
            host.multipath.as_ref().expect("several paths").set_paths(&host.drivers);
        }
        true
    }

    /// Starts a target that does not run.
    ///
    /// # Panics
    /// If it cannot start.
    pub fn start(&mut self, member: usize) {
        let reactors = (0..self.groups).map(|_| Reactor::simulated(&self.world)).collect();
        let member = &mut self.targets[member];
        let spec = member.config.subsystems[0].namespaces[0].device.clone();
        let made = self.file.map(|(file, bytes)| {
            let file = SimulatedFileFactory::new(file, bytes, 4096).expect("a file");
            (spec, Arc::new(file) as Arc<dyn DeviceFactory>)
        });
        let devices = made.into_iter().collect();
        let target = LocalTarget::with_devices(&member.config, reactors, devices);
        member.running = Some(target.expect("a target"));
    }

    /// Kills a target, as SIGKILL does, and has it stand by when it is started again.
    pub fn kill(&mut self, member: usize) {
        let member = &mut self.targets[member];
        (member.running, member.is_paused) = (None, false);
        member.config.is_standby = true;
    }

    /// Stops a target's process, as SIGSTOP does, or continues it.
    pub fn pause(&mut self, member: usize, is_paused: bool) {
        self.targets[member].is_paused = is_paused;
    }

    /// Has a target stand by, or serve.
    pub fn stand_by(&mut self, member: usize, is_standby: bool) {
        self.targets[member].config.is_standby = is_standby;
        self.reload(member);
    }

    /// What says when a target has no I/O command in flight.
    ///
    /// # Panics
    /// If it does not run.
    #[must_use]
    pub fn when_idle(&self, member: usize) -> Receiver<()> {
        self.targets[member].running.as_ref().expect("it runs").when_idle()
    }

    fn reload(&mut self, member: usize) {
        let Member { config, running, .. } = &mut self.targets[member];
        if let Some(target) = running {
            target.reload(config).expect("a valid configuration");
        }
    }

    /// Whether every host has its controllers.
    #[must_use]
    pub fn is_live(&self) -> bool {
        let mut drivers = self.hosts.iter().flat_map(|host| &host.drivers);
        drivers.all(|driver| driver.state() == ControllerState::Live)
    }

    /// Options that keep outages short.
    fn host_options(&self, address: SocketAddr, number: usize) -> Options {
        self.options_for(address, number, SUBSYSTEM)
    }

    fn options_for(&self, address: SocketAddr, number: usize, subsystem: &str) -> Options {
        let scheme = match &self.link {
            Link::Tcp => "nvme-tcp",
            Link::Rdma(_) => "nvme-rdma",
            Link::Loopback => "nvme-loopback",
        };
        let mut options = host_options(&format!("{scheme}://{address}/{subsystem}"), number);
        let is_tcp = matches!(self.link, Link::Tcp);
        options.data_digest &= is_tcp;
        options.host_traddr = is_tcp.then(|| Self::host_address(number));
        (self.tune)(&mut options);
        if let Some(fabric) = self.link.fabric() {
            options.rdma = Provider::Software(fabric.clone());
        }
        match &self.security {
            Security::Off => {}
            Security::Tls(file) => options.tls_key = Some(key_file::read(file).expect("a key")),
            Security::Concatenation(file) => {
                options.dhchap_secret = Some(key_file::read(file).expect("a key"));
                options.concat = true;
                options.dhchap_interval = Some(Duration::from_secs(2));
            }
        }
        options
    }

    /// How many hosts there are.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// A host's reactor and one of its devices.
    pub fn device(&mut self, host: usize, device: usize) -> (&mut Reactor, &mut dyn BlockDevice) {
        let host = &mut self.hosts[host];
        let count = host.devices.len();
        (&mut host.reactor, host.devices[device % count].as_mut())
    }

    /// Takes the completions of a host's devices.
    pub fn finished(&mut self, host: usize) -> Vec<weft_backend::RequestCompletion> {
        let devices = &mut self.hosts[host].devices;
        devices
            .iter_mut()
            .flat_map(|device| std::iter::from_fn(|| device.poll_completion()))
            .collect()
    }

    /// Makes a device of a host express: it is served between any two pieces of work for the
    /// host's others, and its requests leave at once.
    pub fn make_express(&mut self, host: usize, device: usize) {
        let host = &mut self.hosts[host];
        host.express = Some(device);
        host.devices[device].set_express(&mut host.reactor, true);
    }

    /// Submits a request to a host's express device.
    ///
    /// # Panics
    /// If it has none.
    pub fn submit_express(&mut self, host: usize, request: weft_backend::Request) {
        let host = &mut self.hosts[host];
        let express = host.express.expect("an express device");
        host.devices[express].submit(&mut host.reactor, request);
        host.flush_express(express);
    }

    /// What a host's express device has completed, and when.
    pub fn finished_express(
        &mut self,
        host: usize,
    ) -> Vec<(Duration, weft_backend::RequestCompletion)> {
        std::mem::take(&mut self.hosts[host].express_done)
    }

    /// Resets a host's controller, the first if it has several.
    pub fn reset(&mut self, host: usize) {
        let now = self.world.now();
        self.hosts[host].drivers[0].reset(now);
    }

    /// Sets the access state of the namespace at a port.
    pub fn set_access(&mut self, port: usize, state: AnaState) {
        let rule = AnaRule { subsystem: None, group: None, state };
        let ports = &mut self.targets[0].config.ports;
        if let Some(port) = ports.iter_mut().find(|own| usize::from(own.id) == port + 1) {
            port.ana = vec![rule];
        }
        self.reload(0);
        self.settle();
    }

    /// Takes a port away, or makes it again. The connections of one that is away end.
    pub fn set_port(&mut self, port: usize, is_there: bool) {
        let id = u16::try_from(port + 1).expect("few");
        let ports = &mut self.targets[0].config.ports;
        ports.retain(|own| own.id != id);
        if is_there {
            ports.push(tcp_port(id));
        }
        self.reload(0);
        self.settle();
    }

    /// Reloads the target with a second namespace, or without it.
    pub fn toggle_namespace(&mut self) {
        let namespaces = &mut self.targets[0].config.subsystems[0].namespaces;
        if namespaces.len() > 1 {
            namespaces.truncate(1);
        } else {
            namespaces.push(Namespace::new(2, "null:1MiB".parse().expect("a device")));
        }
        self.reload(0);
    }

    /// Reloads the target with these rate limits.
    pub fn set_rate_limits(&mut self, limits: Vec<RateLimit>) {
        self.targets[0].config.rate_limits = limits;
        self.reload(0);
    }

    /// Reloads the target with express queues that no rule makes, or without.
    pub fn set_express(&mut self, is_on: bool) {
        self.targets[0].config.express = is_on;
        self.reload(0);
    }

    /// Reloads the target with these rules of classes.
    pub fn set_qos_rules(&mut self, rules: Vec<QosRule>) {
        self.targets[0].config.qos_rules = rules;
        self.reload(0);
    }

    /// Reads the target's counters.
    ///
    /// # Panics
    /// If it does not run.
    #[must_use]
    pub fn statistics(&self) -> StatisticsReader {
        self.targets[0].running.as_ref().expect("it runs").watch()
    }

    /// The host NQN of a host.
    #[must_use]
    pub fn host_name(number: usize) -> String {
        format!("nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-{number:012}")
    }

    /// Runs everything that is possible without time passing, then advances to the next event.
    ///
    /// # Panics
    /// If no event is left.
    pub fn step(&mut self) {
        self.settle();
        assert!(self.world.advance(), "no event is left");
    }

    /// Steps until a condition holds.
    ///
    /// # Panics
    /// If it does not hold within an hour of virtual time.
    pub fn run_until(&mut self, what: &str, is_it: impl Fn(&Self) -> bool) {
        let end = self.world.now() + TIMEOUT;
        loop {
            // The condition may hold without time passing.
            self.settle();
            if is_it(self) {
                return;
            }
            assert!(self.world.advance(), "no event is left, and not: {what}");
            assert!(self.world.now() < end, "not within an hour: {what}");
        }
    }

    /// All hosts disconnect; then nothing may be left.
    ///
    /// # Panics
    /// If something is.
    pub fn finish(mut self) {
        self.world.set_network(NetworkConditions::default());
        self.run_until("all hosts are connected again", Self::is_live);
        let now = self.world.now();
        for host in &mut self.hosts {
            for device in &mut host.devices {
                device.close(&mut host.reactor);
            }
            host.drivers.iter_mut().for_each(|driver| driver.shut_down(now));
        }
        self.run_until("the hosts have disconnected", |testbed| {
            let mut drivers = testbed.hosts.iter().flat_map(|host| &host.drivers);
            drivers.all(ControllerDriver::is_finished)
        });
        for host in &mut self.hosts {
            host.devices.clear();
            let left = host.free.saturating_sub(host.reactor.pool().available());
            assert_eq!(left, 0, "bytes of buffers that a host has not freed");
        }
        if let Some(fabric) = self.link.fabric() {
            let counts = fabric.counts();
            assert_eq!(counts.receiver_not_ready, 0, "{counts:?}");
        }
        for target in self.targets.iter_mut().filter_map(|member| member.running.as_mut()) {
            target.stop();
            let end = self.world.now() + TIMEOUT;
            while target.turn() {
                self.world.advance();
                assert!(self.world.now() < end, "the target does not stop");
            }
            assert_eq!(target.buffers_in_use(), 0, "bytes that the target has not freed");
        }
        if let Some(fabric) = self.link.fabric().cloned() {
            let resource_counts = fabric.resource_counts();
            let left =
                (resource_counts.endpoints, resource_counts.queue_pairs, resource_counts.listeners);
            assert_eq!(left, (0, 0, 0), "objects left on the fabric: {resource_counts:?}");
            drop(self);
            assert_eq!(
                fabric.resource_counts(),
                ResourceCounts::default(),
                "objects that outlive their reactor"
            );
        }
    }

    /// Runs until nothing more happens at this time.
    fn settle(&mut self) {
        let mut quiet = 0;
        // A Connect sends messages to every group and waits for its controller's. Over TCP they
        // leave no trace in the simulated world.
        let enough = if matches!(self.link, Link::Tcp) { 3 } else { 10 };
        while quiet < enough {
            let before = self.world.fingerprint();
            let happened = self.turn() || self.world.fingerprint() != before;
            quiet = if happened { 0 } else { quiet + 1 };
        }
    }

    /// One turn of all hosts and the target. Whether a host had work.
    pub fn turn(&mut self) -> bool {
        let mut happened = false;
        let mut completions = std::mem::take(&mut self.completions);
        for host in &mut self.hosts {
            happened |= host.turn(&mut completions);
        }
        self.completions = completions;
        let awake = self.targets.iter_mut().filter(|member| !member.is_paused);
        awake.filter_map(|member| member.running.as_mut()).for_each(|target| _ = target.turn());
        happened
    }
}

/// A port of several: each has an address of its own.
fn tcp_port(id: u16) -> Port {
    let address = format!("10.0.0.{id}:4420").parse().expect("an address");
    Port::new(id, Listen::tcp(address))
}

fn config(device: &str, link: &Link, paths: usize) -> Config {
    let mut subsystem = Subsystem::new(SUBSYSTEM);
    let mut namespace = Namespace::new(1, device.parse().expect("a device"));
    // The UUID of a memory device is random, but a run depends on its seed alone.
    namespace.uuid = Some([0x5e; 16]);
    subsystem.namespaces = vec![namespace];
    subsystem.ana_reporting = paths > 1;
    let address: SocketAddr = "10.0.0.1:4420".parse().expect("an address");
    let listen = match link {
        Link::Tcp => Listen::tcp(address),
        Link::Rdma(_) => Listen::rdma(address),
        // Other simulated worlds of this process may exist at the same time.
        Link::Loopback => Listen::loopback(SocketAddr::new(address.ip(), 0)),
    };
    let further = (2..).take(paths - 1).map(tcp_port);
    let ports = std::iter::once(Port::new(1, listen)).chain(further).collect();
    Config {
        ports,
        rdma: link.fabric().cloned().map_or(Provider::System, Provider::Software),
        subsystems: vec![subsystem],
        express: true,
        ..Config::default()
    }
}

/// Has the hosts' keys in the configuration.
fn secure(config: &mut Config, security: &Security, hosts: usize) {
    let text = |file: &PathBuf| file.to_str().expect("a path of text").to_owned();
    let subsystem = &mut config.subsystems[0];
    for nqn in (0..hosts).map(Testbed::host_name) {
        let keys = HostKeys::new(nqn.clone());
        subsystem.host_keys.push(match security {
            Security::Off => return,
            Security::Tls(file) => HostKeys { psk: vec![text(file)], ..keys },
            Security::Concatenation(file) => HostKeys {
                dhchap_key: Some(text(file)),
                dhchap_groups: vec![Group::Ffdhe2048],
                dhchap_concat: true,
                ..keys
            },
        });
        subsystem.allowed_hosts.get_or_insert_default().push(nqn);
    }
    config.ports[0].tls = match security {
        Security::Off => TlsMode::Off,
        Security::Tls(_) => TlsMode::Required,
        Security::Concatenation(_) => TlsMode::Allowed,
    };
}

/// Options that keep outages short.
fn host_options(url: &str, number: usize) -> Options {
    let name = Testbed::host_name(number);
    let mut options = Options::new(url.parse().expect("a good address"))
        .with_host_nqn(name.parse().expect("a good name"));
    options.reconnect_delay = Duration::from_millis(200);
    options.keep_alive_tmo = Duration::from_secs(2);
    options.io_timeout = Duration::from_secs(3);
    options.admin_timeout = Duration::from_secs(3);
    options.connect_timeout = Duration::from_secs(2);
    options.ctrl_loss_tmo = None;
    options.queue_size = 16;
    options.data_digest = number % 2 == 1;
    options
}
