//! A world with a target and hosts in it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weft_backend::file::SimulatedFileFactory;
use weft_backend::{BlockDevice, DeviceFactory, DeviceSpec};
use weft_host::{ControllerDriver, ControllerKind, ControllerState, Options};
use weft_reactor::simulation::{NetworkConditions, World};
use weft_reactor::{Owner, Patience, Reactor};
use weft_target::LocalTarget;
use weft_target::config::{Config, Listen, Namespace, Port, Subsystem};
use weft_transport::rdma::Provider;
use weft_transport::rdma::software::{Census, Fabric};

/// The subsystem that the target serves.
pub const SUBSYSTEM: &str = "nqn.2024-01.io.weft:sim";

const DRIVER: Owner = Owner(0);
const FIRST_DEVICE: u32 = 1;
/// Virtual time after which something that must happen is taken never to.
const FOREVER: Duration = Duration::from_secs(3600);

/// What joins host and target.
#[derive(Debug, Clone)]
pub enum Via {
    /// The simulated network.
    Tcp,
    /// A fabric, whose messages take no time.
    Rdma(Fabric),
    /// Nothing at all: they are in one process.
    Loopback,
}

impl Via {
    fn fabric(&self) -> Option<&Fabric> {
        match self {
            Self::Rdma(fabric) => Some(fabric),
            Self::Tcp | Self::Loopback => None,
        }
    }
}

/// A target and its hosts.
#[derive(Debug)]
pub struct Rig {
    /// The world they live in.
    pub world: World,
    target: LocalTarget,
    config: Config,
    hosts: Vec<Host>,
    via: Via,
    completions: Vec<weft_reactor::Completion>,
}

/// One host: a reactor, its controller, and its devices.
#[derive(Debug)]
struct Host {
    reactor: Reactor,
    driver: ControllerDriver,
    devices: Vec<Box<dyn BlockDevice>>,
    /// Bytes of its pool that were free before anything happened.
    free: usize,
}

impl Rig {
    /// A target of `groups` poll groups that serves `device` as namespace 1, and `hosts` hosts,
    /// each with `queues` devices open.
    ///
    /// # Panics
    /// If one of them cannot be had, which in a calm world is a defect.
    #[must_use]
    pub fn new(seed: u64, device: &str, groups: usize, hosts: usize, queues: u32) -> Self {
        Self::over(Via::Tcp, seed, device, groups, hosts, queues)
    }

    /// The same over any transport. The device `stored:SIZE` is a file of the world, which loses
    /// in a crash what has not been made durable.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub fn over(
        via: Via,
        seed: u64,
        device: &str,
        groups: usize,
        hosts: usize,
        queues: u32,
    ) -> Self {
        let world = World::new(seed, NetworkConditions::default());
        let (spec, devices) = stored(device, &world);
        let config = config(&spec, &via);
        let reactors = (0..groups).map(|_| Reactor::simulated(&world)).collect();
        let target = LocalTarget::with_devices(&config, reactors, devices).expect("a target");
        let (hosts_to_be, completions) = (Vec::new(), Vec::new());
        let mut rig = Self { world, target, config, hosts: hosts_to_be, via, completions };
        rig.settle();
        let address = *rig.target.addresses().values().next().expect("it listens");
        for number in 0..hosts {
            let scheme = match &rig.via {
                Via::Tcp => "nvme-tcp",
                Via::Rdma(_) => "nvme-rdma",
                Via::Loopback => "nvme-loopback",
            };
            let url = format!("{scheme}://{address}/{SUBSYSTEM}");
            let mut options = host_options(&url, number);
            options.data_digest &= matches!(rig.via, Via::Tcp);
            if let Some(fabric) = rig.via.fabric() {
                options.rdma = Provider::Software(fabric.clone());
            }
            let reactor = Reactor::simulated(&rig.world);
            let free = reactor.pool().available();
            let driver = ControllerDriver::connect(&reactor, DRIVER, &options, ControllerKind::Nvm)
                .expect("it starts");
            rig.hosts.push(Host { reactor, driver, devices: Vec::new(), free });
        }
        rig.run_until("all hosts are connected", Self::is_live);
        for host in &mut rig.hosts {
            let factory = host.driver.factory(1).expect("namespace 1");
            for owner in (FIRST_DEVICE..).take(queues as usize).map(Owner) {
                host.devices.push(factory.open(&mut host.reactor, owner).expect("a device"));
            }
        }
        rig
    }

    /// Whether every host has its controller.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.hosts.iter().all(|host| host.driver.state() == ControllerState::Live)
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

    /// Takes what a host's devices have finished.
    pub fn finished(&mut self, host: usize) -> Vec<weft_backend::Completion> {
        let devices = &mut self.hosts[host].devices;
        devices
            .iter_mut()
            .flat_map(|device| std::iter::from_fn(|| device.poll_completion()))
            .collect()
    }

    /// Lets a host reset its controller.
    pub fn reset(&mut self, host: usize) {
        let now = self.world.now();
        self.hosts[host].driver.reset(now);
    }

    /// Lets the target serve the same with another namespace beside it, or without.
    pub fn toggle_namespace(&mut self) {
        let namespaces = &mut self.config.subsystems[0].namespaces;
        if namespaces.len() > 1 {
            namespaces.truncate(1);
        } else {
            namespaces.push(Namespace::new(2, "null:1MiB".parse().expect("a device")));
        }
        self.target.reload(&self.config).expect("it can be had");
    }

    /// Everything that can happen without time passing, then the next event.
    ///
    /// # Panics
    /// If nothing will ever happen again.
    pub fn step(&mut self) {
        self.settle();
        assert!(self.world.advance(), "nothing will ever happen again");
    }

    /// Steps until something is so.
    ///
    /// # Panics
    /// If that takes forever.
    pub fn run_until(&mut self, what: &str, is_it: impl Fn(&Self) -> bool) {
        let end = self.world.now() + FOREVER;
        loop {
            // What can happen without time passing may be all that was missing.
            self.settle();
            if is_it(self) {
                return;
            }
            assert!(self.world.advance(), "nothing will ever happen again, and not: {what}");
            assert!(self.world.now() < end, "an hour and still not: {what}");
        }
    }

    /// Everybody leaves in good order; then nothing may be left behind.
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
            host.driver.shut_down(now);
        }
        self.run_until("the hosts have left", |rig| {
            rig.hosts.iter().all(|host| host.driver.is_finished())
        });
        for host in &mut self.hosts {
            host.devices.clear();
            let left = host.free.saturating_sub(host.reactor.pool().available());
            assert_eq!(left, 0, "bytes of buffers that a host has left behind");
        }
        if let Some(fabric) = self.via.fabric() {
            let counts = fabric.counts();
            assert_eq!(counts.receiver_not_ready, 0, "{counts:?}");
        }
        self.target.stop();
        let end = self.world.now() + FOREVER;
        while self.target.turn() {
            self.world.advance();
            assert!(self.world.now() < end, "the target does not stop");
        }
        assert_eq!(self.target.buffers_in_use(), 0, "bytes of buffers that the target still has");
        if let Some(fabric) = self.via.fabric().cloned() {
            let census = fabric.census();
            let left = (census.endpoints, census.queue_pairs, census.listeners);
            assert_eq!(left, (0, 0, 0), "what is left on the fabric: {census:?}");
            drop(self);
            assert_eq!(fabric.census(), Census::default(), "what outlives its reactor");
        }
    }

    /// Turns until nothing happens any more at this moment.
    fn settle(&mut self) {
        let mut quiet = 0;
        // A Connect asks every group and waits for its controller's. But over TCP nothing of that
        // leaves a trace in the world.
        let enough = if matches!(self.via, Via::Tcp) { 3 } else { 10 };
        while quiet < enough {
            let before = self.world.fingerprint();
            let happened = self.turn() || self.world.fingerprint() != before;
            quiet = if happened { 0 } else { quiet + 1 };
        }
    }

    /// One turn of everybody. Whether a host had anything to do.
    fn turn(&mut self) -> bool {
        let mut happened = false;
        let mut completions = std::mem::take(&mut self.completions);
        for host in &mut self.hosts {
            host.reactor.poll(Patience::NoWait, &mut completions);
            happened |= !completions.is_empty();
            for completion in completions.drain(..) {
                match completion.token.owner {
                    DRIVER => host.driver.handle(&mut host.reactor, completion),
                    Owner(device) => {
                        let device = (device - FIRST_DEVICE) as usize;
                        host.devices[device].handle(&mut host.reactor, completion);
                    }
                }
            }
            for device in &mut host.devices {
                device.flush(&mut host.reactor);
            }
            host.driver.flush(&mut host.reactor);
        }
        self.completions = completions;
        self.target.turn();
        happened
    }
}

/// Devices that the rig has made, by the specs that they stand for.
type Made = Vec<(DeviceSpec, Arc<dyn DeviceFactory>)>;

/// What is to be configured for a device, and what the rig has to make for that.
fn stored(device: &str, world: &World) -> (String, Made) {
    let Some(size) = device.strip_prefix("stored:") else { return (device.to_owned(), Vec::new()) };
    let bytes = weft_backend::bytes::parse(size).expect("a size");
    let file = SimulatedFileFactory::new(world.add_file(bytes), bytes, 4096).expect("a file");
    let placeholder = format!("file:/stored,size={size}");
    let spec = placeholder.parse().expect("a device");
    (placeholder, vec![(spec, Arc::new(file))])
}

fn config(device: &str, via: &Via) -> Config {
    let mut subsystem = Subsystem::new(SUBSYSTEM);
    let mut namespace = Namespace::new(1, device.parse().expect("a device"));
    // Memory draws its identity by lot, but a run is decided by its seed alone.
    namespace.uuid = Some([0x5e; 16]);
    subsystem.namespaces = vec![namespace];
    let address: SocketAddr = "10.0.0.1:4420".parse().expect("an address");
    let listen = match via {
        Via::Tcp => Listen::tcp(address),
        Via::Rdma(_) => Listen::rdma(address),
        // Other worlds of this process may be there at the same time.
        Via::Loopback => Listen::loopback(SocketAddr::new(address.ip(), 0)),
    };
    Config {
        ports: vec![Port::new(1, listen)],
        rdma: via.fabric().cloned().map_or(Provider::System, Provider::Software),
        subsystems: vec![subsystem],
        ..Config::default()
    }
}

/// Options that make outages short.
fn host_options(url: &str, number: usize) -> Options {
    let name = format!("nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-{number:012}");
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
