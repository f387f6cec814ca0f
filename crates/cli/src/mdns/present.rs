//! By the library that the feature `mdns` builds.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use mdns_sd::{IfKind, ResolvedService, ScopedIp, ServiceDaemon, ServiceEvent, ServiceInfo};
use weft_nvme::Nqn;
use weft_target::steps::DISCOVERY_NQN;

use super::{ALL, ALL_OF_IPV4, DiscoveredController, Services};

/// The type of service.
const SERVICE: &str = "_nvme-disc._tcp.local.";

/// The keys of an announcement's texts; DNS-SD does not distinguish case in them.
const PROTOCOL: &str = "p";
const NQN: &str = "NQN";

/// How long it may take to tell others that an announcement is taken back.
const GOODBYE_PATIENCE: Duration = Duration::from_secs(1);

impl DiscoveredController {
    /// None if it announces nothing that hosts could use.
    fn of(service: &ResolvedService) -> Option<Self> {
        let text = |key| service.txt_properties.get_property_val_str(key);
        let scheme = match text(PROTOCOL).unwrap_or("tcp").to_lowercase().as_str() {
            "tcp" => "tcp",
            "rdma" | "roce" | "iwarp" => "rdma",
            _ => return None,
        };
        let nqn: Nqn = text(NQN).unwrap_or(DISCOVERY_NQN).parse().ok()?;
        let name = service.fullname.trim_end_matches(SERVICE).trim_end_matches('.');
        let ips: BTreeSet<IpAddr> = service.addresses.iter().filter_map(plain).collect();
        Some(Self {
            // Anyone can send a name, which is printed to a terminal.
            name: name.replace(char::is_control, "?"),
            scheme,
            nqn: nqn.to_string(),
            addresses: ips.into_iter().map(|ip| (ip, service.port).into()).collect(),
        })
    }
}

/// An address that needs no name of a link beside it.
fn plain(ip: &ScopedIp) -> Option<IpAddr> {
    match ip.to_ip_addr() {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => None,
        ip => Some(ip),
    }
}

fn text(error: mdns_sd::Error) -> String {
    error.to_string()
}

/// Whether there is any.
pub(crate) const fn check() -> Result<(), String> {
    Ok(())
}

/// Listens for this time to who answers.
pub(crate) fn browse(time: Duration) -> Result<Vec<DiscoveredController>, String> {
    let daemon = ServiceDaemon::new().map_err(text)?;
    let answers = daemon.browse(SERVICE).map_err(text)?;
    let end = Instant::now() + time;
    let mut found = BTreeMap::new();
    while let Ok(event) = answers.recv_deadline(end) {
        match event {
            ServiceEvent::ServiceResolved(service) => {
                if let Some(one) = DiscoveredController::of(&service) {
                    found.insert(service.fullname.clone(), one);
                }
            }
            ServiceEvent::ServiceRemoved(_, name) => drop(found.remove(&name)),
            _ => {}
        }
    }
    // Its thread ends with the process if it does not end now.
    let _ = daemon.shutdown();
    Ok(found.into_values().collect())
}

/// An announcement. Of wildcards the library finds the addresses, and follows them.
fn service(
    machine: &str,
    port: u16,
    protocol: &'static str,
    ips: &BTreeSet<IpAddr>,
) -> Result<ServiceInfo, String> {
    let name = format!("weft on {machine} {protocol} {port}");
    // Other programs may have records of the machine's own name.
    let host = format!("{machine}-weft-{protocol}-{port}.local.");
    let addresses: Vec<IpAddr> = ips.iter().filter(|ip| !ip.is_unspecified()).copied().collect();
    let texts = [(PROTOCOL, protocol), (NQN, DISCOVERY_NQN)];
    let mut service =
        ServiceInfo::new(SERVICE, &name, &host, &addresses[..], port, &texts[..]).map_err(text)?;
    if ips.contains(&ALL) || ips.contains(&ALL_OF_IPV4) {
        service = service.enable_addr_auto();
    }
    if ips.contains(&ALL_OF_IPV4) {
        let others = addresses.into_iter().map(IfKind::Addr);
        service.set_interfaces(std::iter::once(IfKind::IPv4).chain(others).collect());
    }
    Ok(service)
}

/// Announces discovery controllers while it is there.
pub(crate) struct Announcer {
    daemon: ServiceDaemon,
    machine: String,
    /// With their full names.
    announced: BTreeMap<(u16, &'static str), (BTreeSet<IpAddr>, String)>,
}

impl std::fmt::Debug for Announcer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Announcer").field("announced", &self.announced).finish_non_exhaustive()
    }
}

impl Announcer {
    pub(crate) fn new() -> Result<Self, String> {
        let uname = rustix::system::uname();
        let machine = uname.nodename().to_string_lossy();
        let machine = machine.split('.').next().unwrap_or_default().to_owned();
        Ok(Self {
            daemon: ServiceDaemon::new().map_err(text)?,
            machine,
            announced: BTreeMap::new(),
        })
    }

    /// Announces these, and nothing else any more.
    pub(crate) fn announce(&mut self, now: &Services) -> Result<(), String> {
        let is_same = |key: &_, ips: &BTreeSet<IpAddr>| now.get(key) == Some(ips);
        let old = self.announced.iter().filter(|(key, (ips, _))| !is_same(key, ips));
        for key in old.map(|(key, _)| *key).collect::<Vec<_>>() {
            if let Some((_, name)) = self.announced.remove(&key) {
                // It is announced again only after it was taken back.
                let told = self.daemon.unregister(&name).map_err(text)?;
                let _ = told.recv_timeout(GOODBYE_PATIENCE);
            }
        }
        for (&(port, protocol), ips) in now {
            if self.announced.contains_key(&(port, protocol)) {
                continue;
            }
            let service = service(&self.machine, port, protocol, ips)?;
            let full_name = service.get_fullname().to_owned();
            self.daemon.register(service).map_err(text)?;
            self.announced.insert((port, protocol), (ips.clone(), full_name));
        }
        Ok(())
    }

    /// Takes everything back.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        self.announce(&Services::new())?;
        let ended = self.daemon.shutdown().map_err(text)?;
        let _ = ended.recv_timeout(GOODBYE_PATIENCE);
        Ok(())
    }
}
