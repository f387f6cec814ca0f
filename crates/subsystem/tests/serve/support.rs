//! What the tests share: configurations, hosts that behave and hosts that do not, children.

pub(crate) mod child;
pub(crate) mod log;
pub(crate) mod peer;
pub(crate) mod raw;

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use weft_reactor::{DriverKind, Reactor};
use weft_target::Target;
use weft_target::config::{Config, Listen, Namespace, Port, Subsystem};
use weft_transport::rdma::Provider;
use weft_transport::rdma::software::Fabric;

/// The subsystem that the tests serve.
pub(crate) const SUBSYSTEM: &str = "nqn.2024-01.io.weft:test";
/// The host that the tests are, unless they are several.
pub(crate) const HOST: &str =
    "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
/// Another host.
pub(crate) const OTHER_HOST: &str =
    "nqn.2014-08.org.nvmexpress:uuid:99999999-8888-7777-6666-555555555555";
/// The host's identifier.
pub(crate) const HOST_ID: [u8; 16] = [0x11; 16];
/// The other host's.
pub(crate) const OTHER_HOST_ID: [u8; 16] = [0x99; 16];

/// How long a test waits for what must come.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// The drivers that this machine can run the target on.
pub(crate) fn drivers() -> &'static [DriverKind] {
    static DRIVERS: OnceLock<Vec<DriverKind>> = OnceLock::new();
    DRIVERS.get_or_init(|| {
        let config =
            weft_reactor::Config { driver: DriverKind::Uring, ..weft_reactor::Config::default() };
        match Reactor::new(config) {
            Ok(_) => vec![DriverKind::Epoll, DriverKind::Uring],
            Err(error) => {
                eprintln!("SKIPPED: everything on io_uring: {error}");
                vec![DriverKind::Epoll]
            }
        }
    })
}

/// The same drivers, as the environment names them.
pub(crate) fn driver_names() -> impl Iterator<Item = &'static str> {
    drivers().iter().map(|driver| match driver {
        DriverKind::Uring => "uring",
        _ => "epoll",
    })
}

/// The address of targets over RDMA: they listen on no network, but on [`fabric`].
pub(crate) const RDMA: &str = "10.0.0.1:0";

/// The RDMA devices of all these tests.
pub(crate) fn fabric() -> &'static Fabric {
    static FABRIC: OnceLock<Fabric> = OnceLock::new();
    FABRIC.get_or_init(Fabric::default)
}

/// What a target is reached by.
pub(crate) fn is_rdma(address: SocketAddr) -> bool {
    address.ip() == RDMA.parse::<SocketAddr>().expect("an address").ip()
}

/// The same configuration, but all its ports are RDMA's.
pub(crate) fn over_rdma(config: &Config) -> Config {
    let mut config = Config { rdma: Provider::Software(fabric().clone()), ..config.clone() };
    for port in &mut config.ports {
        port.listen = Listen::rdma(RDMA.parse().expect("an address"));
    }
    config
}

/// Runs a test with a target on each driver that there is, and with one over RDMA.
pub(crate) fn on_each_transport(config: &Config, test: impl Fn(&Target)) {
    on_each_driver(config, &test);
    on_each_driver(&over_rdma(config), &test);
}

/// Runs a test with a target on each driver that there is.
pub(crate) fn on_each_driver(config: &Config, test: impl Fn(&Target)) {
    for driver in drivers() {
        let target = start(Config { driver: *driver, ..config.clone() });
        test(&target);
        target.stop().expect("a clean stop");
    }
}

/// A target that runs.
pub(crate) fn start(config: Config) -> Target {
    log::install();
    Target::start(config).expect("a target")
}

/// A configuration that serves these devices on a free port of loopback.
pub(crate) fn config(devices: &[&str]) -> Config {
    Config {
        ports: vec![port(1, "127.0.0.1:0")],
        subsystems: vec![subsystem(SUBSYSTEM, devices)],
        ..Config::default()
    }
}

/// The same, on two poll groups.
pub(crate) fn config_of_two_groups(devices: &[&str]) -> Config {
    // Both on processor 0 where there is no second one.
    let second = usize::from(std::thread::available_parallelism().is_ok_and(|n| n.get() > 1));
    Config { cpus: vec![0, second], ..config(devices) }
}

/// A port that serves everything.
pub(crate) fn port(id: u16, address: &str) -> Port {
    Port::new(id, Listen::tcp(address.parse().expect("an address")))
}

/// A subsystem with these devices as its namespaces 1, 2, 3 and so on.
pub(crate) fn subsystem(nqn: &str, devices: &[&str]) -> Subsystem {
    let mut subsystem = Subsystem::new(nqn);
    subsystem.namespaces = devices
        .iter()
        .zip(1..)
        .map(|(device, nsid)| Namespace::new(nsid, device.parse().expect("a device")))
        .collect();
    subsystem
}

/// Where a target listens.
pub(crate) fn address(target: &Target) -> SocketAddr {
    *target.addresses().values().next().expect("a port")
}

/// Bytes that look alike nowhere.
pub(crate) fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    let mut state = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut all = Vec::with_capacity(bytes + 8);
    while all.len() < bytes {
        all.extend_from_slice(&next());
    }
    all.truncate(bytes);
    all
}

/// A deadline for a loop that waits by looking again and again.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = weft_reactor::monotonic_time();
    while !condition() {
        assert!(weft_reactor::monotonic_time() - began < LONG, "{what} did not happen in {LONG:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
