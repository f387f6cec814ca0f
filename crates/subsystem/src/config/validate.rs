//! Checks a configuration for contradictions.

mod ana;
mod pair;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use weft_nvmf::keys::{TlsMode, TlsRecords};
use weft_nvmf::registration::{LABEL_BYTES_MAX, LABEL_BYTES_MIN};

use super::index::Index;
use super::nqn::check_nqn;
use super::rules::{self, Rule};
use super::subsystem::OWN_FILE;
use super::{
    CNTLID_LAST, Config, ConfigError, HostNamespaces, IDLE_POLL_FOREVER, Limits, Listen, NSID_MAX,
    Namespace, Port, PortSubsystems, Referral, Subsystem, THREADS_MAX, Transport,
};

/// The well-known name of every discovery subsystem.
const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Most ports: each is a listener on every poll group.
const PORTS_MAX: usize = 256;

/// Most subsystems.
const SUBSYSTEMS_MAX: usize = 1024;

/// Longest spin before sleep: a longer one is a mistake in the unit.
const IDLE_POLL_MAX: Duration = Duration::from_secs(10);

impl Config {
    /// Checks for contradictions, and that there is something to serve.
    ///
    /// # Errors
    /// The first contradiction, with its key and what to do about it.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.check_consistent()?;
        self.check_serves()
    }

    /// Whether there is something to serve.
    pub(super) fn check_serves(&self) -> Result<(), ConfigError> {
        if self.ports.is_empty() {
            return Err(ConfigError::new("", "no port to listen on")
                .remedy("add [[port]] with `listen = \"tcp://127.0.0.1:4420\"`"));
        }
        let refers = self.ports.iter().any(|port| !port.referrals.is_empty());
        if self.subsystems.is_empty() && !refers && !self.centralized_discovery {
            return Err(ConfigError::new("", "no subsystem to serve").remedy(
                "add [[subsystem]] with `nqn`, and below it [[subsystem.namespace]] with \
                     `memory = \"1GiB\"`",
            ));
        }
        check_scopes(&self.rate_limits, self)?;
        check_scopes(&self.qos_rules, self)
    }

    /// Checks for contradictions: a target that is controlled at run time may have nothing to serve
    /// yet.
    ///
    /// # Errors
    /// The first contradiction, with its key and what to do about it.
    pub fn check_consistent(&self) -> Result<(), ConfigError> {
        self.limits.validate()?;
        if self.idle_poll > IDLE_POLL_MAX && self.idle_poll != IDLE_POLL_FOREVER {
            return Err(ConfigError::new("idle-poll", "it is longer than 10s")
                .remedy("give what a host needs between two commands, like 50us, or forever"));
        }
        let mut cpus = HashSet::new();
        if let Some(cpu) = self.cpus.iter().find(|cpu| !cpus.insert(**cpu)) {
            return Err(ConfigError::new("cpus", format!("processor {cpu} is named twice"))
                .remedy("one poll group runs on each"));
        }
        self.check_express_cpus()?;
        if self.threads == 0 || self.threads > THREADS_MAX {
            let what = format!("{} is out of range", self.threads);
            return Err(
                ConfigError::new("threads", what).remedy(format!("give 1 to {THREADS_MAX}"))
            );
        }
        self.check_frame()?;
        self.check_subsystems()?;
        self.check_identities()?;
        self.check_ana_groups()?;
        self.check_own_files()
    }

    fn check_express_cpus(&self) -> Result<(), ConfigError> {
        let fault = |what: String| ConfigError::new("express-cpus", what);
        if let Some(cpu) = self.express_cpus.iter().find(|cpu| !self.cpus.contains(cpu)) {
            return Err(fault(format!("processor {cpu} is not one of `cpus`"))
                .remedy("name some of those that `cpus` names"));
        }
        if let Some(first) = self.cpus.first().filter(|cpu| self.express_cpus.contains(cpu)) {
            return Err(fault(format!("processor {first} is the first of `cpus`"))
                .remedy("leave that one for new connections and for queues without a rule"));
        }
        Ok(())
    }

    /// Checks all but subsystems by themselves and the settings of the process.
    pub(crate) fn check_frame(&self) -> Result<(), ConfigError> {
        self.check_ports()?;
        self.operated.referrals.iter().try_for_each(|to| check_referral("referral", to))?;
        self.register.iter().try_for_each(|to| check_reachable("register", *to))?;
        at_most("subsystem", self.subsystems.len(), SUBSYSTEMS_MAX)?;
        self.check_ana_rules()?;
        rules::validate(&self.rate_limits, &self.limits)?;
        rules::validate(&self.qos_rules, &self.limits)
    }

    /// Checks one subsystem, beside others of which the index knows.
    pub(crate) fn check_one_subsystem(&self, nqn: &str, index: &Index) -> Result<(), ConfigError> {
        let Some(place) = self.subsystems.iter().position(|one| one.nqn == nqn) else {
            return Ok(());
        };
        let (at, subsystem) = (format!("subsystem[{place}]"), &self.subsystems[place]);
        self.check_subsystem(&at, subsystem)?;
        self.check_ana_groups_of(&at, subsystem)?;
        let mut own = Index::default();
        for namespace in &subsystem.namespaces {
            own.check(nqn, namespace)?;
            own.add(nqn, namespace);
            index.check(nqn, namespace)?;
        }
        Ok(())
    }

    /// Checks one namespace, beside others of which the index knows.
    pub(crate) fn check_one_namespace(
        &self,
        nqn: &str,
        nsid: u32,
        index: &Index,
    ) -> Result<(), ConfigError> {
        let find = |one: &Subsystem| one.namespaces.iter().position(|one| one.nsid == nsid);
        let Some(place) = self.subsystems.iter().position(|one| one.nqn == nqn) else {
            return Ok(());
        };
        let (at, subsystem) = (format!("subsystem[{place}]"), &self.subsystems[place]);
        let Some(number) = find(subsystem) else { return Ok(()) };
        let (here, namespace) =
            (format!("{at}.namespace[{number}]"), &subsystem.namespaces[number]);
        check_namespace(&here, namespace)?;
        if let Some(pair) = &self.pair {
            pair.check_namespace(&here, namespace)?;
        }
        if let Some(stored) = namespace.device.stored_name() {
            let same = |(other, one): (usize, &Namespace)| {
                other != number && one.device.stored_name().as_ref() == Some(&stored)
            };
            if let Some((_, first)) = subsystem.namespaces.iter().enumerate().find(|one| same(*one))
            {
                return Err(same_storage(here, &stored, first.nsid));
            }
        }
        self.check_count(&at, subsystem)?;
        check_most_namespaces(&at, subsystem, &self.limits)?;
        self.check_ana_group_of(&at, subsystem, number)?;
        index.check(nqn, namespace)
    }

    /// Checks a subsystem as far as others do not matter.
    fn check_subsystem(&self, at: &str, subsystem: &Subsystem) -> Result<(), ConfigError> {
        check_subsystem(at, subsystem)?;
        if let Some(pair) = &self.pair {
            pair.check_subsystem(at, subsystem)?;
        }
        check_most_namespaces(at, subsystem, &self.limits)?;
        self.check_host_keys(at, subsystem)?;
        self.check_count(at, subsystem)
    }

    fn check_count(&self, at: &str, subsystem: &Subsystem) -> Result<(), ConfigError> {
        if subsystem.namespaces.len() as u64 <= u64::from(self.limits.namespaces) {
            return Ok(());
        }
        let what = format!("{} namespaces are too many", subsystem.namespaces.len());
        Err(ConfigError::new(format!("{at}.namespace"), what)
            .remedy("raise `limits.namespaces` or use another subsystem"))
    }

    fn check_ports(&self) -> Result<(), ConfigError> {
        at_most("port", self.ports.len(), PORTS_MAX)?;
        let (mut addresses, mut ids) = (HashMap::new(), HashMap::new());
        let nqns: HashSet<&str> = self.subsystems.iter().map(|one| &*one.nqn).collect();
        for (index, port) in self.ports.iter().enumerate() {
            check_port(index, port, &nqns)?;
            if port.listen.address.port() != 0
                && let Some(first) = addresses.insert(port.listen, index)
            {
                let what = format!("{} is what port[{first}] listens on", port.listen);
                return Err(ConfigError::new(format!("port[{index}].listen"), what)
                    .remedy("give each port an address of its own"));
            }
            if let Some(first) = ids.insert(port.id, index) {
                let what = format!("{} is the id of port[{first}]", port.id);
                return Err(ConfigError::new(format!("port[{index}].id"), what)
                    .remedy("give each port an id of its own, or leave it out"));
            }
        }
        Ok(())
    }

    fn check_subsystems(&self) -> Result<(), ConfigError> {
        let mut nqns = HashMap::new();
        for (index, subsystem) in self.subsystems.iter().enumerate() {
            let at = format!("subsystem[{index}]");
            self.check_subsystem(&at, subsystem)?;
            if let Some(first) = nqns.insert(&subsystem.nqn, index) {
                let what = format!("{:?} is the NQN of subsystem[{first}]", subsystem.nqn);
                return Err(ConfigError::new(format!("{at}.nqn"), what)
                    .remedy("give each subsystem an NQN of its own"));
            }
        }
        Ok(())
    }

    fn check_host_keys(&self, at: &str, subsystem: &Subsystem) -> Result<(), ConfigError> {
        let mut nqns = HashMap::new();
        for (index, keys) in subsystem.host_keys.iter().enumerate() {
            let at = format!("{at}.host[{index}]");
            if let Some(first) = nqns.insert(&keys.nqn, index) {
                let what = format!("{:?} is the NQN of host[{first}]", keys.nqn);
                return Err(ConfigError::new(format!("{at}.nqn"), what)
                    .remedy("give the keys of a host in one place"));
            }
            let mut hosts = subsystem.allowed_hosts.iter().flatten().chain(&subsystem.listed_hosts);
            if !hosts.any(|host| *host == keys.nqn) {
                let what = format!("{:?} is not a host of the subsystem", keys.nqn);
                return Err(ConfigError::new(format!("{at}.nqn"), what).remedy("allow the host"));
            }
            keys.check(&at, &self.keyring)?;
        }
        Ok(())
    }

    /// Hosts take two namespaces of one identity for two paths to the same data.
    fn check_identities(&self) -> Result<(), ConfigError> {
        let mut seen: HashMap<(&str, &[u8]), (usize, usize)> = HashMap::new();
        let at = |(index, number)| format!("subsystem[{index}].namespace[{number}]");
        for (index, subsystem) in self.subsystems.iter().enumerate() {
            for (number, namespace) in subsystem.namespaces.iter().enumerate() {
                let place = (index, number);
                let given = [
                    ("uuid", namespace.uuid.as_ref().map(<[u8; 16]>::as_slice)),
                    ("nguid", namespace.nguid.as_ref().map(<[u8; 16]>::as_slice)),
                    ("eui64", namespace.eui64.as_ref().map(<[u8; 8]>::as_slice)),
                ];
                for (name, value) in given {
                    let Some(value) = value else { continue };
                    if let Some(first) = seen.insert((name, value), place) {
                        let (key, first) = (format!("{}.{name}", at(place)), at(first));
                        return Err(ConfigError::new(
                            key,
                            format!("it is that of {first} as well"),
                        )
                        .remedy("leave it out to have one derived"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether the subsystems and ports that are named are served. A target that is controlled at run
/// time may get them later.
fn check_scopes<T: Rule>(rules: &[T], config: &Config) -> Result<(), ConfigError> {
    for (index, rule) in rules.iter().enumerate() {
        let missing = |key: &str, what: String| {
            ConfigError::new(format!("{}[{index}].{key}", T::KEY), what)
                .remedy("name one that is configured, or leave the key out for all")
        };
        if let Some(nqn) = rule.subsystem()
            && config.subsystems.iter().all(|served| served.nqn != *nqn)
        {
            return Err(missing("subsystem", format!("there is no subsystem {nqn:?}")));
        }
        if let Some(id) = rule.port()
            && config.ports.iter().all(|port| port.id != id)
        {
            return Err(missing("port", format!("there is no port with the id {id}")));
        }
    }
    Ok(())
}

/// `known` are the names of all subsystems.
fn check_port(index: usize, port: &Port, known: &HashSet<&str>) -> Result<(), ConfigError> {
    if let Some(address) = port.advertise
        && (address.port() == 0 || address.ip().is_unspecified())
    {
        let what = format!("hosts cannot connect to {address}");
        return Err(ConfigError::new(format!("port[{index}].advertise"), what)
            .remedy("give the address and port under which hosts reach this port"));
    }
    if port.tls != TlsMode::Off && port.listen.transport != Transport::Tcp {
        let what = format!("only TCP has TLS, not {}", port.listen.transport);
        return Err(ConfigError::new(format!("port[{index}].tls"), what)
            .remedy("leave it out, or listen on a tcp:// address"));
    }
    if port.tls == TlsMode::Off && port.tls_records != TlsRecords::User {
        let what = "records of a port without TLS cannot be the kernel's";
        return Err(ConfigError::new(format!("port[{index}].tls-records"), what)
            .remedy("leave it out, or set tls"));
    }
    let key = format!("port[{index}].subsystems");
    if let PortSubsystems::Only(nqns) = &port.subsystems {
        let unknown = nqns.iter().find(|nqn| !known.contains(nqn.as_str()));
        if let Some(nqn) = unknown {
            return Err(ConfigError::new(key, format!("there is no subsystem {nqn:?}"))
                .remedy("name one that is configured, or leave the key out for all"));
        }
        if nqns.is_empty() && !port.discovery {
            return Err(ConfigError::new(key, "the port serves nothing")
                .remedy("name a subsystem or switch discovery on"));
        }
    }
    for (number, referral) in port.referrals.iter().enumerate() {
        check_referral(&format!("port[{index}].referral[{number}]"), referral)?;
    }
    Ok(())
}

fn check_referral(at: &str, to: &Referral) -> Result<(), ConfigError> {
    check_reachable(format!("{at}.address"), to.address)?;
    to.subsystem.iter().try_for_each(|nqn| check_nqn(&format!("{at}.subsystem"), nqn))
}

/// Hosts are sent to an address that they can connect to.
fn check_reachable(key: impl Into<String>, to: Listen) -> Result<(), ConfigError> {
    let address = to.address;
    if address.port() == 0 || address.ip().is_unspecified() {
        return Err(ConfigError::new(key, format!("hosts cannot connect to {address}"))
            .remedy("give the address and port where the other one answers"));
    }
    Ok(())
}

fn check_subsystem(at: &str, subsystem: &Subsystem) -> Result<(), ConfigError> {
    check_nqn(&format!("{at}.nqn"), &subsystem.nqn)?;
    if subsystem.nqn == DISCOVERY_NQN {
        let what = "it is the name of the discovery subsystem";
        return Err(ConfigError::new(format!("{at}.nqn"), what)
            .remedy("that one is served by itself; use another name"));
    }
    if let Some(serial) = &subsystem.serial {
        check_text(&format!("{at}.serial"), serial, 20)?;
    }
    check_text(&format!("{at}.model"), &subsystem.model, 40)?;
    check_text(&format!("{at}.firmware"), &subsystem.firmware, 8)?;
    if let Some(label) = &subsystem.admin_label {
        let key = format!("{at}.admin-label");
        check_text(&key, label, LABEL_BYTES_MAX)?;
        if label.len() < LABEL_BYTES_MIN {
            return Err(ConfigError::new(key, format!("{label:?} is too short"))
                .remedy(format!("give {LABEL_BYTES_MIN} characters or more, or leave it out")));
        }
    }
    let listed = subsystem.allowed_hosts.iter().flatten().chain(&subsystem.listed_hosts);
    check_hosts(&format!("{at}.allowed-hosts"), listed)?;
    let (first, last) = subsystem.controller_ids(None);
    check_controller_ids(at, first, last)?;
    check_namespaces(at, &subsystem.namespaces)
}

impl Config {
    /// Reservations, and marks of unreadable blocks, are kept in a file of their own, whatever path
    /// leads to it.
    fn check_own_files(&self) -> Result<(), ConfigError> {
        let mut files = HashMap::new();
        for (at, subsystem) in self.subsystems.iter().enumerate() {
            for (index, namespace) in subsystem.namespaces.iter().enumerate() {
                for (key, path) in namespace.own_files() {
                    let here = format!("subsystem[{at}].namespace[{index}].{key}");
                    let what = format!("{} is that of", path.display());
                    if let Some(first) = files.insert(path, here.clone()) {
                        return Err(
                            ConfigError::new(here, format!("{what} {first} too")).remedy(OWN_FILE)
                        );
                    }
                }
            }
        }
        Ok(())
    }
}

fn check_host_namespaces(at: &str, own: &HostNamespaces) -> Result<(), ConfigError> {
    if own.capacity == 0 {
        let what = "without capacity hosts can make none";
        return Err(ConfigError::new(format!("{at}.capacity"), what)
            .remedy("give a size, or leave host-namespaces out"));
    }
    let Some(rbd) = &own.rbd else { return Ok(()) };
    if own.folder.is_some() {
        let what = "a namespace is a file or an image, not both";
        return Err(ConfigError::new(at, what).remedy("leave folder or rbd out"));
    }
    let of_each = rbd.least_bytes.is_some() || rbd.block_bytes.is_some();
    if of_each || rbd.is_read_only() || rbd.create {
        let what = "images that hosts make have the size and blocks that hosts ask for";
        return Err(ConfigError::new(format!("{at}.rbd"), what)
            .remedy("leave size, block, create, read-only and a snapshot out"));
    }
    Ok(())
}

/// The largest NSID, which hosts are told (NN).
fn check_most_namespaces(
    at: &str,
    subsystem: &Subsystem,
    limits: &Limits,
) -> Result<(), ConfigError> {
    if let Some(own) = &subsystem.host_namespaces {
        check_host_namespaces(&format!("{at}.host-namespaces"), own)?;
    }
    let most = subsystem.most_namespaces(limits);
    if most == 0 || most > NSID_MAX {
        let what = format!("{most} is out of range");
        return Err(ConfigError::new(format!("{at}.namespaces-max"), what)
            .remedy(format!("give 1 to {NSID_MAX}")));
    }
    match subsystem.namespaces.iter().find(|namespace| namespace.nsid > most) {
        None => Ok(()),
        Some(Namespace { nsid, .. }) => {
            let what = format!("NSID {nsid} is above the largest one of this subsystem, {most}");
            Err(ConfigError::new(format!("{at}.namespace"), what).remedy(
                match subsystem.namespaces_max {
                    Some(_) => "give a smaller one, or make the subsystem with more namespaces",
                    None => "give a smaller one, or raise `limits.namespaces`",
                },
            ))
        }
    }
}

fn check_controller_ids(at: &str, first: u16, last: u16) -> Result<(), ConfigError> {
    if first == 0 || last > CNTLID_LAST {
        let what = format!("{first} to {last} goes beyond what there is");
        return Err(ConfigError::new(format!("{at}.cntlid-min"), what)
            .remedy(format!("controller ids go from 1 to {CNTLID_LAST}")));
    }
    if first > last {
        let what = format!("{first} is above `cntlid-max` {last}");
        return Err(ConfigError::new(format!("{at}.cntlid-min"), what).remedy("swap the two"));
    }
    Ok(())
}

fn check_namespaces(at: &str, namespaces: &[Namespace]) -> Result<(), ConfigError> {
    let (mut nsids, mut stored_on) = (HashMap::new(), HashMap::new());
    for (index, namespace) in namespaces.iter().enumerate() {
        let here = format!("{at}.namespace[{index}]");
        check_namespace(&here, namespace)?;
        let nsid = namespace.nsid;
        if let Some(first) = nsids.insert(nsid, index) {
            let what = format!("{nsid} is the NSID of {at}.namespace[{first}]");
            return Err(ConfigError::new(format!("{here}.nsid"), what)
                .remedy("give each namespace of a subsystem an NSID of its own"));
        }
        if let Some(stored) = namespace.device.stored_name()
            && let Some(first) = stored_on.insert(stored.clone(), nsid)
        {
            return Err(same_storage(here, &stored, first));
        }
    }
    Ok(())
}

fn same_storage(here: String, stored: &str, first: u32) -> ConfigError {
    ConfigError::new(here, format!("{stored} is behind namespace {first} too"))
        .remedy("two namespaces of a subsystem on one device would overwrite each other")
}

/// Checks a namespace as far as others do not matter.
fn check_namespace(here: &str, namespace: &Namespace) -> Result<(), ConfigError> {
    let nsid = namespace.nsid;
    if nsid == 0 || nsid > NSID_MAX {
        return Err(ConfigError::new(format!("{here}.nsid"), format!("{nsid} is no NSID"))
            .remedy(format!("give 1 to {NSID_MAX}, or leave it out")));
    }
    if namespace.ptpl_file.as_ref().is_some_and(|path| path.as_os_str().is_empty()) {
        return Err(ConfigError::new(format!("{here}.ptpl-file"), "it is empty")
            .remedy("give the path of a file, or leave it out"));
    }
    if let Err(error) = namespace.device.check() {
        return Err(ConfigError::new(here, error.to_string()));
    }
    check_hosts(&format!("{here}.visible-to"), namespace.visible_to.iter().flatten())?;
    for (name, zero) in [
        ("uuid", namespace.uuid == Some([0; 16])),
        ("nguid", namespace.nguid == Some([0; 16])),
        ("eui64", namespace.eui64 == Some([0; 8])),
    ] {
        if zero {
            return Err(ConfigError::new(format!("{here}.{name}"), "it is zero")
                .remedy("leave it out to have one derived"));
        }
    }
    Ok(())
}

/// The hosts of a list are named correctly, and once.
fn check_hosts<'a>(list: &str, hosts: impl Iterator<Item = &'a String>) -> Result<(), ConfigError> {
    let mut seen = HashSet::new();
    for (index, host) in hosts.enumerate() {
        let key = format!("{list}[{index}]");
        check_nqn(&key, host)?;
        if !seen.insert(host) {
            let what = format!("{host:?} is there twice");
            return Err(ConfigError::new(key, what).remedy("leave one out"));
        }
    }
    Ok(())
}

/// The text fields of Identify Controller are printable ASCII of a fixed length.
fn check_text(key: &str, text: &str, bytes_max: usize) -> Result<(), ConfigError> {
    if text.len() <= bytes_max && text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return Ok(());
    }
    Err(ConfigError::new(key, format!("{text:?} does not fit"))
        .remedy(format!("give at most {bytes_max} characters of printable ASCII")))
}

fn at_most(key: &str, count: usize, count_max: usize) -> Result<(), ConfigError> {
    if count <= count_max {
        return Ok(());
    }
    Err(ConfigError::new(key, format!("{count} of them are too many"))
        .remedy(format!("at most {count_max} are served")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Listen, Referral};
    use std::path::PathBuf;
    use weft_backend::DeviceSpec;

    fn listen(text: &str) -> Listen {
        text.parse().expect("an address")
    }

    fn memory() -> DeviceSpec {
        DeviceSpec::Memory { bytes: 1 << 20, block_bytes: 4096 }
    }

    fn config() -> Config {
        let mut subsystem = Subsystem::new("nqn.a");
        subsystem.namespaces = vec![Namespace::new(1, memory()), Namespace::new(2, memory())];
        let mut other = Subsystem::new("nqn.b");
        other.namespaces = vec![Namespace::new(1, memory())];
        let mut discovery = Port::new(2, listen("tcp://127.0.0.1:8009"));
        discovery.subsystems = PortSubsystems::Only(Vec::new());
        Config {
            ports: vec![Port::new(1, listen("tcp://127.0.0.1:4420")), discovery],
            subsystems: vec![subsystem, other],
            ..Config::default()
        }
    }

    fn fault(change: impl FnOnce(&mut Config)) -> String {
        let mut config = config();
        change(&mut config);
        let error = config.validate().expect_err("a contradiction");
        assert!(error.to_string().contains("; "), "no remedy: {error}");
        error.key().to_owned()
    }

    #[test]
    fn a_valid_configuration_passes() {
        assert_eq!(config().validate(), Ok(()));
        let mut config = config();
        config.ports[0].listen = listen("tcp://127.0.0.1:0");
        config.ports[1].listen = listen("tcp://127.0.0.1:0");
        assert_eq!(config.validate(), Ok(()), "port 0 may be there twice");
    }

    #[test]
    fn a_port_needs_an_address_of_its_own_and_something_to_serve() {
        assert_eq!(fault(|c| c.ports.clear()), "");
        assert_eq!(fault(|c| c.ports[1].listen = c.ports[0].listen), "port[1].listen");
        assert_eq!(fault(|c| c.ports[1].id = 1), "port[1].id");
        assert_eq!(fault(|c| c.ports[1].discovery = false), "port[1].subsystems");
        let unknown = PortSubsystems::Only(vec!["nqn.c".to_owned()]);
        assert_eq!(fault(|c| c.ports[0].subsystems = unknown), "port[0].subsystems");
        for text in ["0.0.0.0:4420", "10.0.0.1:0"] {
            let address = text.parse().expect("an address");
            assert_eq!(fault(|c| c.ports[0].advertise = Some(address)), "port[0].advertise");
        }
        let nowhere: Referral = "tcp://0.0.0.0:8009".parse().expect("a referral");
        assert_eq!(fault(|c| c.ports[0].referrals.push(nowhere)), "port[0].referral[0].address");
    }

    #[test]
    fn a_subsystem_needs_a_name_of_its_own() {
        let names = [String::new(), "a b".to_owned(), "n".repeat(224), DISCOVERY_NQN.to_owned()];
        for nqn in names {
            assert_eq!(fault(|c| c.subsystems[0].nqn = nqn), "subsystem[0].nqn");
        }
        assert_eq!(fault(|c| c.subsystems[1].nqn = "nqn.a".to_owned()), "subsystem[1].nqn");
        assert_eq!(fault(|c| c.subsystems.clear()), "");
    }

    #[test]
    fn texts_fit_their_fields() {
        let long = |count| "x".repeat(count);
        assert_eq!(fault(|c| c.subsystems[0].serial = Some(long(21))), "subsystem[0].serial");
        assert_eq!(fault(|c| c.subsystems[0].model = long(41)), "subsystem[0].model");
        assert_eq!(fault(|c| c.subsystems[0].firmware = long(9)), "subsystem[0].firmware");
        assert_eq!(fault(|c| c.subsystems[0].model = "größe".to_owned()), "subsystem[0].model");
        let hosts = vec!["nqn.h".to_owned(), "nqn.h".to_owned()];
        let key = "subsystem[0].allowed-hosts[1]";
        assert_eq!(fault(|c| c.subsystems[0].allowed_hosts = Some(hosts)), key);
    }

    #[test]
    fn controller_ids_are_a_range() {
        for (first, last) in [(0, 1), (2, 1), (1, 0xfff0)] {
            let key = fault(|c| {
                c.subsystems[0].cntlid_min = Some(first);
                c.subsystems[0].cntlid_max = Some(last);
            });
            assert_eq!(key, "subsystem[0].cntlid-min");
        }
    }

    #[test]
    fn a_namespace_needs_an_id_of_its_own() {
        let key = "subsystem[0].namespace[1].nsid";
        for nsid in [0, 1, NSID_MAX + 1, u32::MAX] {
            assert_eq!(fault(|c| c.subsystems[0].namespaces[1].nsid = nsid), key);
        }
        assert_eq!(fault(|c| c.limits.namespaces = 1), "subsystem[0].namespace");
    }

    #[test]
    fn hosts_that_see_a_namespace_are_named_once() {
        let see = |hosts: &[&str]| {
            let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
            fault(|c| c.subsystems[0].namespaces[1].visible_to = Some(hosts))
        };
        assert_eq!(see(&["nqn.h", "nqn.h"]), "subsystem[0].namespace[1].visible-to[1]");
        assert_eq!(see(&["a b"]), "subsystem[0].namespace[1].visible-to[0]");
    }

    #[test]
    fn a_namespace_has_a_device_of_its_own() {
        let block = || DeviceSpec::Block {
            path: "/dev/sdz".into(),
            read_only: false,
            shared: false,
            polled: false,
        };
        let delayed = DeviceSpec::Delay {
            read: Duration::from_micros(10),
            write: Duration::ZERO,
            inner: Box::new(block()),
        };
        let key = fault(|c| {
            c.subsystems[0].namespaces[0].device = block();
            c.subsystems[0].namespaces[1].device = delayed;
        });
        assert_eq!(key, "subsystem[0].namespace[1]");
    }

    #[test]
    fn what_is_kept_beside_a_device_has_a_file_of_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link) = (folder.path().join("a"), folder.path().join("link"));
        std::os::unix::fs::symlink("a", &link).expect("a link");
        let twice = |first: &dyn Fn(&mut Namespace), second: &dyn Fn(&mut Namespace)| {
            fault(|c| {
                first(&mut c.subsystems[0].namespaces[0]);
                second(&mut c.subsystems[1].namespaces[0]);
            })
        };
        let reservations =
            |path: PathBuf| move |one: &mut Namespace| one.ptpl_file = Some(path.clone());
        let marks = |path: PathBuf| {
            move |one: &mut Namespace| {
                let text = format!("uncorrectable:file={}:memory:1MiB", path.display());
                one.device = text.parse().expect("a device");
            }
        };
        let empty = reservations(PathBuf::new());
        let key = fault(|c| empty(&mut c.subsystems[0].namespaces[0]));
        assert_eq!(key, "subsystem[0].namespace[0].ptpl-file");
        let of_reservations = "subsystem[1].namespace[0].ptpl-file";
        let of_marks = "subsystem[1].namespace[0].uncorrectable:file";
        for second in [&file, &link] {
            let (first, second) = (file.clone(), second.clone());
            let key = twice(&reservations(first.clone()), &reservations(second.clone()));
            assert_eq!(key, of_reservations);
            assert_eq!(twice(&marks(first.clone()), &marks(second.clone())), of_marks);
            assert_eq!(twice(&reservations(first), &marks(second)), of_marks);
        }
    }

    #[test]
    fn identities_are_unique_and_not_zero() {
        let key = fault(|c| {
            c.subsystems[0].namespaces[0].uuid = Some([7; 16]);
            c.subsystems[1].namespaces[0].uuid = Some([7; 16]);
        });
        assert_eq!(key, "subsystem[1].namespace[0].uuid");
        let key = fault(|c| c.subsystems[0].namespaces[0].nguid = Some([0; 16]));
        assert_eq!(key, "subsystem[0].namespace[0].nguid");
        let key = fault(|c| c.subsystems[0].namespaces[0].eui64 = Some([0; 8]));
        assert_eq!(key, "subsystem[0].namespace[0].eui64");
    }

    #[test]
    fn processors_are_named_once_and_grace_is_short() {
        assert_eq!(fault(|c| c.cpus = vec![0, 1, 0]), "cpus");
        let express = |cpus: &[usize], express: &[usize]| {
            let (cpus, express) = (cpus.to_vec(), express.to_vec());
            fault(|c| (c.cpus, c.express_cpus) = (cpus, express))
        };
        for (cpus, of_them) in [(&[0, 1][..], &[2][..]), (&[0, 1], &[0]), (&[], &[0])] {
            assert_eq!(express(cpus, of_them), "express-cpus");
        }
        assert_eq!(fault(|c| c.idle_poll = Duration::from_secs(11)), "idle-poll");
        assert_eq!(fault(|c| c.threads = 0), "threads");
        assert_eq!(fault(|c| c.threads = 257), "threads");
        let forever = Config { idle_poll: IDLE_POLL_FOREVER, ..config() };
        assert_eq!(forever.validate(), Ok(()));
        assert_eq!(fault(|c| c.limits.io_queues = 0), "limits.io-queues");
    }
}
