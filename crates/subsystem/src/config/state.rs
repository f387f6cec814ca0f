//! The objects of a configuration as a state file keeps them, with every NSID and UUID, so that a
//! target that starts again serves the same.
//!
//! Settings of the process (processors, driver, limits) are not part of it: they come from the
//! configuration's file or from flags each time, but for the limits that a transport was created
//! with.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use weft_backend::{DeviceSpec, rbd::CephSpec};
use weft_nvmf::keys::{TlsMode, TlsRecords};

use super::{
    AnaRule, Bdev, BdevKind, BdevLimits, Config, ConfigError, ControllerIds, ControllerModel,
    HexId, HostKeys, HostNamespaces, Keyring, Namespace, Operated, Port, PortSubsystems, QosRule,
    RateLimit, Referral, Subsystem, Transport, address::socket_text, socket_address,
};

/// The version of the form.
const VERSION: u32 = 1;

/// What a state file has.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// What is served.
    pub config: Config,
    /// The file, or the flags, that were applied last: a reload is compared with it.
    pub applied: Config,
}

impl State {
    /// Its text.
    ///
    /// # Errors
    /// A path in it is not Unicode.
    pub fn to_text(&self) -> Result<String, String> {
        let limits = &self.config.limits;
        let file = File {
            weft_state: VERSION,
            transports: transports(&self.config),
            transport_limits: Some(TransportLimits {
                queue_entries: limits.queue_entries,
                io_queues: limits.io_queues,
                in_capsule_bytes: limits.in_capsule_bytes,
                transfer_bytes: limits.transfer_bytes,
            })
            .filter(|_| !self.config.operated.transports.is_empty()),
            discovery: texts(&self.config.operated.discovery),
            without_discovery: self.config.operated.without_discovery,
            referrals: texts(&self.config.operated.referrals),
            dhchap_hashes: texts(&self.config.operated.dhchap_hashes),
            dhchap_groups: texts(&self.config.operated.dhchap_groups),
            subsystems_max: self.config.operated.subsystems_max,
            bdevs: self.config.operated.bdevs.iter().map(BdevKeys::of).collect(),
            ceph_clusters: self.config.operated.ceph_clusters.clone(),
            bdev_limits: self.config.operated.bdev_limits.clone(),
            objects: Objects::of(&self.config),
            applied: Objects::of(&self.applied),
        };
        serde_json::to_string_pretty(&file).map(|text| text + "\n").map_err(|e| e.to_string())
    }

    /// Reads it; what is not part of a state is as in `settings`.
    ///
    /// # Errors
    /// The text is not a state file of this version.
    pub fn parse(text: &str, settings: &Config) -> Result<Self, ConfigError> {
        let file: File = serde_json::from_str(text).map_err(|error| {
            ConfigError::new("", error.to_string())
                .remedy("it is not a state file of this version; move it away to begin anew")
        })?;
        if file.weft_state != VERSION {
            let what = format!("version {} is unknown", file.weft_state);
            return Err(ConfigError::new("weft-state", what).remedy("use a newer weft"));
        }
        let mut config = Config { operated: file.operated()?, ..settings.clone() };
        if let Some(limits) = &file.transport_limits {
            config.limits.queue_entries = limits.queue_entries;
            config.limits.io_queues = limits.io_queues;
            config.limits.in_capsule_bytes = limits.in_capsule_bytes;
            config.limits.transfer_bytes = limits.transfer_bytes;
        }
        file.objects.put_into(&mut config)?;
        let limits = config.limits.clone();
        for subsystem in &mut config.subsystems {
            // What was served goes on, though the limit may be another one now.
            let largest = subsystem.largest_nsid();
            if largest > subsystem.most_namespaces(&limits) {
                subsystem.namespaces_max = Some(largest);
            }
        }
        let mut applied = Config { operated: Operated::default(), ..settings.clone() };
        file.applied.put_into(&mut applied)?;
        config.check_consistent()?;
        Ok(Self { config, applied })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    weft_state: u32,
    transports: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    transport_limits: Option<TransportLimits>,
    discovery: Vec<String>,
    without_discovery: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    referrals: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dhchap_hashes: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dhchap_groups: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subsystems_max: Option<usize>,
    bdevs: Vec<BdevKeys>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    ceph_clusters: BTreeMap<String, CephSpec>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    bdev_limits: BTreeMap<String, BdevLimits>,
    #[serde(rename = "served")]
    objects: Objects,
    applied: Objects,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TransportLimits {
    queue_entries: u16,
    io_queues: u16,
    in_capsule_bytes: u32,
    transfer_bytes: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct BdevKeys {
    name: String,
    kind: String,
    device: String,
    uuid: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Objects {
    ports: Vec<PortKeys>,
    subsystems: Vec<SubsystemKeys>,
    /// Paths of key files: the keys themselves are not part of a state.
    #[serde(default, skip_serializing_if = "Keyring::is_empty")]
    keyring: Keyring,
    /// None: those of the configuration's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate_limits: Option<Vec<RateLimit>>,
    /// None: those of the configuration's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    qos: Option<Vec<QosRule>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PortKeys {
    id: u16,
    listen: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    advertise: Option<String>,
    /// None: off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tls: Option<String>,
    /// None: this program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tls_records: Option<String>,
    discovery: bool,
    /// None: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subsystems: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    referrals: Vec<(String, u16)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ana: Vec<AnaRule>,
    made_at_run_time: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct SubsystemKeys {
    nqn: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    serial: Option<String>,
    model: String,
    firmware: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    admin_label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allowed_hosts: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    listed_hosts: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    host_keys: Vec<HostKeys>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespaces_max: Option<u32>,
    static_controllers: bool,
    cntlid_min: u16,
    cntlid_max: u16,
    #[serde(default)]
    ana_reporting: bool,
    #[serde(default)]
    subsystem_reset: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host_namespaces: Option<HostNamespaces>,
    namespaces: Vec<NamespaceKeys>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct NamespaceKeys {
    nsid: u32,
    by_position: bool,
    device: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bdev: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nguid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    eui64: Option<String>,
    read_only: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ana_group: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ptpl_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    visible_to: Option<Vec<String>>,
}

fn texts(values: &[impl ToString]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

fn transports(config: &Config) -> Vec<String> {
    texts(&config.operated.transports)
}

/// A value that is written as text.
fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
    key: &str,
    text: &str,
) -> Result<T, ConfigError> {
    text.parse().map_err(|error: T::Err| ConfigError::new(key, error.to_string()))
}

fn all_parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
    key: &str,
    texts: &[String],
) -> Result<Vec<T>, ConfigError> {
    texts.iter().map(|text| parsed(key, text)).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn id<const N: usize>(key: &str, text: Option<&String>) -> Result<Option<[u8; N]>, ConfigError> {
    text.map(|text| parsed::<HexId<N>>(key, text).map(|id| id.0)).transpose()
}

impl File {
    fn operated(&self) -> Result<Operated, ConfigError> {
        let transport = |text: &String| {
            let all = [Transport::Tcp, Transport::Rdma, Transport::Loopback];
            let found = all.into_iter().find(|one| one.to_string() == *text);
            found.ok_or_else(|| ConfigError::new("transports", format!("{text:?} is unknown")))
        };
        Ok(Operated {
            bdevs: self.bdevs.iter().map(BdevKeys::read).collect::<Result<_, _>>()?,
            transports: self.transports.iter().map(transport).collect::<Result<_, _>>()?,
            discovery: all_parsed("discovery", &self.discovery)?,
            without_discovery: self.without_discovery,
            referrals: all_parsed("referrals", &self.referrals)?,
            dhchap_hashes: all_parsed("dhchap-hashes", &self.dhchap_hashes)?,
            dhchap_groups: all_parsed("dhchap-groups", &self.dhchap_groups)?,
            subsystems_max: self.subsystems_max,
            ceph_clusters: self.ceph_clusters.clone(),
            bdev_limits: self.bdev_limits.clone(),
        })
    }
}

impl BdevKeys {
    fn of(bdev: &Bdev) -> Self {
        Self {
            name: bdev.name.clone(),
            kind: bdev.kind.word().to_owned(),
            device: bdev.device.to_string(),
            uuid: Uuid::from_bytes(bdev.uuid).to_string(),
        }
    }

    fn read(&self) -> Result<Bdev, ConfigError> {
        let kind = BdevKind::ALL.into_iter().find(|kind| kind.word() == self.kind);
        Ok(Bdev {
            name: self.name.clone(),
            kind: kind.ok_or_else(|| ConfigError::new("bdevs.kind", "it is unknown"))?,
            device: parsed("bdevs.device", &self.device)?,
            uuid: parsed::<HexId<16>>("bdevs.uuid", &self.uuid)?.0,
        })
    }
}

impl Objects {
    fn of(config: &Config) -> Self {
        Self {
            ports: config.ports.iter().map(PortKeys::of).collect(),
            subsystems: config.subsystems.iter().map(SubsystemKeys::of).collect(),
            keyring: config.keyring.clone(),
            rate_limits: Some(config.rate_limits.clone()),
            qos: Some(config.qos_rules.clone()),
        }
    }

    fn put_into(&self, config: &mut Config) -> Result<(), ConfigError> {
        config.ports = self.ports.iter().map(PortKeys::read).collect::<Result<_, _>>()?;
        let subsystems = self.subsystems.iter().map(SubsystemKeys::read);
        config.subsystems = subsystems.collect::<Result<_, _>>()?;
        config.keyring.clone_from(&self.keyring);
        if let Some(limits) = &self.rate_limits {
            config.rate_limits.clone_from(limits);
        }
        if let Some(rules) = &self.qos {
            config.qos_rules.clone_from(rules);
        }
        Ok(())
    }
}

fn advertised(text: &str) -> Result<std::net::SocketAddr, ConfigError> {
    socket_address(text).map_err(|error| ConfigError::new("ports.advertise", error))
}

impl PortKeys {
    fn of(port: &Port) -> Self {
        let referral = |one: &Referral| (one.to_string(), one.port_id);
        Self {
            id: port.id,
            listen: port.listen.to_string(),
            advertise: port.advertise.map(socket_text),
            tls: (port.tls != TlsMode::Off).then(|| port.tls.name().to_owned()),
            tls_records: (port.tls_records != TlsRecords::User)
                .then(|| port.tls_records.name().to_owned()),
            discovery: port.discovery,
            subsystems: match &port.subsystems {
                PortSubsystems::All => None,
                PortSubsystems::Only(nqns) => Some(nqns.clone()),
            },
            referrals: port.referrals.iter().map(referral).collect(),
            ana: port.ana.clone(),
            made_at_run_time: port.made_at_run_time,
        }
    }

    fn read(&self) -> Result<Port, ConfigError> {
        let referral = |(address, port_id): &(String, u16)| {
            Ok(Referral { port_id: *port_id, ..parsed("ports.referrals", address)? })
        };
        Ok(Port {
            id: self.id,
            listen: parsed("ports.listen", &self.listen)?,
            advertise: self.advertise.as_deref().map(advertised).transpose()?,
            tls: self.tls.as_ref().map_or(Ok(TlsMode::Off), |tls| parsed("ports.tls", tls))?,
            tls_records: match &self.tls_records {
                None => TlsRecords::User,
                Some(records) => parsed("ports.tls_records", records)?,
            },
            discovery: self.discovery,
            subsystems: self.subsystems.clone().map_or(PortSubsystems::All, PortSubsystems::Only),
            referrals: self.referrals.iter().map(referral).collect::<Result<_, ConfigError>>()?,
            ana: self.ana.clone(),
            made_at_run_time: self.made_at_run_time,
        })
    }
}

impl SubsystemKeys {
    fn of(subsystem: &Subsystem) -> Self {
        let ControllerIds { model, first, last } = subsystem.controller_ids;
        Self {
            nqn: subsystem.nqn.clone(),
            serial: subsystem.serial.clone(),
            model: subsystem.model.clone(),
            firmware: subsystem.firmware.clone(),
            admin_label: subsystem.admin_label.clone(),
            allowed_hosts: subsystem.allowed_hosts.clone(),
            listed_hosts: subsystem.listed_hosts.clone(),
            host_keys: subsystem.host_keys.clone(),
            namespaces_max: subsystem.namespaces_max,
            static_controllers: model == ControllerModel::Static,
            cntlid_min: first,
            cntlid_max: last,
            ana_reporting: subsystem.ana_reporting,
            subsystem_reset: subsystem.subsystem_reset,
            host_namespaces: subsystem.host_namespaces.clone(),
            namespaces: subsystem.namespaces.iter().map(NamespaceKeys::of).collect(),
        }
    }

    fn read(&self) -> Result<Subsystem, ConfigError> {
        let model = match self.static_controllers {
            true => ControllerModel::Static,
            false => ControllerModel::Dynamic,
        };
        let namespaces = self.namespaces.iter().map(NamespaceKeys::read);
        Ok(Subsystem {
            serial: self.serial.clone(),
            model: self.model.clone(),
            firmware: self.firmware.clone(),
            admin_label: self.admin_label.clone(),
            allowed_hosts: self.allowed_hosts.clone(),
            listed_hosts: self.listed_hosts.clone(),
            host_keys: self.host_keys.clone(),
            namespaces_max: self.namespaces_max,
            controller_ids: ControllerIds { model, first: self.cntlid_min, last: self.cntlid_max },
            ana_reporting: self.ana_reporting,
            subsystem_reset: self.subsystem_reset,
            host_namespaces: self.host_namespaces.clone(),
            namespaces: namespaces.collect::<Result<_, _>>()?,
            ..Subsystem::new(&self.nqn)
        })
    }
}

impl NamespaceKeys {
    fn of(namespace: &Namespace) -> Self {
        Self {
            nsid: namespace.nsid,
            by_position: namespace.by_position,
            device: namespace.device.to_string(),
            bdev: namespace.bdev.clone(),
            uuid: namespace.uuid.map(|id| Uuid::from_bytes(id).to_string()),
            nguid: namespace.nguid.map(|id| hex(&id)),
            eui64: namespace.eui64.map(|id| hex(&id)),
            read_only: namespace.read_only,
            ana_group: namespace.ana_group,
            ptpl_file: namespace.ptpl_file.clone(),
            visible_to: namespace.visible_to.clone(),
        }
    }

    fn read(&self) -> Result<Namespace, ConfigError> {
        let device: DeviceSpec = parsed("namespaces.device", &self.device)?;
        Ok(Namespace {
            by_position: self.by_position,
            bdev: self.bdev.clone(),
            uuid: id("namespaces.uuid", self.uuid.as_ref())?,
            nguid: id("namespaces.nguid", self.nguid.as_ref())?,
            eui64: id("namespaces.eui64", self.eui64.as_ref())?,
            read_only: self.read_only,
            ana_group: self.ana_group,
            ptpl_file: self.ptpl_file.clone(),
            visible_to: self.visible_to.clone(),
            ..Namespace::new(self.nsid, device)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Listen;
    use weft_backend::rbd::RbdSpec;
    use weft_nvmf::auth::{Group, HashFunction};

    fn device(text: &str) -> DeviceSpec {
        text.parse().expect("a device")
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let listen: Listen = "tcp://127.0.0.1:4420".parse().expect("an address");
        let mut subsystem = Subsystem::new("nqn.a");
        subsystem.allowed_hosts = Some(vec!["nqn.h".to_owned()]);
        subsystem.namespaces_max = Some(8);
        subsystem.ana_reporting = true;
        subsystem.subsystem_reset = true;
        subsystem.admin_label = Some("rack 7".to_owned());
        let folder = Some("/var/lib/weft".into());
        subsystem.host_namespaces = Some(HostNamespaces { capacity: 1 << 40, folder, rbd: None });
        let named = Namespace {
            bdev: Some("m".to_owned()),
            uuid: Some([7; 16]),
            nguid: Some([8; 16]),
            eui64: Some([9; 8]),
            read_only: true,
            ana_group: Some(7),
            ptpl_file: Some("/a/ptpl".into()),
            visible_to: Some(vec!["nqn.h".to_owned()]),
            ..Namespace::new(5, device("memory:1MiB,block=512"))
        };
        let file = device("file:/a,,b,size=1MiB,read-only");
        let own = Namespace { by_position: true, ..Namespace::new(1, file) };
        subsystem.namespaces = vec![own, named];
        let mut any = Subsystem::new("nqn.b");
        let rbd = RbdSpec::parse("pool/team/disk,user=weft").map(Box::new).ok();
        any.host_namespaces = Some(HostNamespaces { capacity: 1 << 30, folder: None, rbd });
        any.listed_hosts = vec!["nqn.h".to_owned()];
        any.controller_ids.model = ControllerModel::Static;
        let mut port = Port::new(3, listen);
        port.tls = TlsMode::Required;
        port.tls_records = TlsRecords::Kernel;
        port.advertise = Some("192.0.2.1:4420".parse().expect("an address"));
        let referral: Referral = "tcp://192.0.2.2:4420/nqn.other".parse().expect("a referral");
        port.referrals = vec![Referral { port_id: 4, ..referral.clone() }];
        port.ana = vec![AnaRule {
            subsystem: Some("nqn.a".to_owned()),
            group: Some(7),
            state: crate::config::AnaState::PersistentLoss,
        }];
        let made = Port {
            subsystems: PortSubsystems::Only(vec!["nqn.a".to_owned()]),
            made_at_run_time: true,
            ..Port::new(4, "rdma://127.0.0.1:4421".parse().expect("an address"))
        };
        let mut config = Config {
            ports: vec![port, made],
            subsystems: vec![subsystem, any],
            ..Config::default()
        };
        config.rate_limits = vec![RateLimit {
            host: Some("nqn.h".into()),
            rate: Some(12_345_678),
            burst: std::time::Duration::from_millis(50),
            force: true,
            ..RateLimit::default()
        }];
        config.qos_rules = vec![QosRule {
            host: Some("nqn.h".into()),
            subsystem: None,
            port: Some(3),
            class: crate::config::QosClass::Latency,
            weight: Some(200),
        }];
        config.limits.queue_entries = 64;
        let limits = BdevLimits { w_mbytes_per_sec: 3, ..BdevLimits::default() };
        let ceph = CephSpec { user: Some("weft".to_owned()), ..CephSpec::default() };
        config.operated = Operated {
            bdevs: [Bdev {
                name: "m".to_owned(),
                kind: BdevKind::Malloc,
                device: device("memory:1MiB,block=512"),
                uuid: [7; 16],
            }]
            .into_iter()
            .collect(),
            transports: vec![Transport::Tcp],
            discovery: vec![listen],
            without_discovery: false,
            referrals: vec![referral],
            dhchap_hashes: vec![HashFunction::Sha512],
            dhchap_groups: vec![Group::Ffdhe8192, Group::Null],
            subsystems_max: Some(7),
            ceph_clusters: [("east".to_owned(), ceph)].into(),
            bdev_limits: [("m".to_owned(), limits)].into(),
        };
        let applied = Config { subsystems: vec![Subsystem::new("nqn.b")], ..Config::default() };
        let state = State { config, applied };
        let text = state.to_text().expect("a text");
        assert_eq!(State::parse(&text, &Config::default()).expect("a state"), state, "{text}");
    }

    #[test]
    fn another_file_is_refused() {
        for (text, part) in
            [("", "move it away"), ("{}", "move it away"), ("{\"weft-state\": 1", "move it away")]
        {
            let error = State::parse(text, &Config::default()).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let state = State { config: Config::default(), applied: Config::default() };
        let text =
            state.to_text().expect("a text").replace("\"weft-state\": 1", "\"weft-state\": 9");
        let error = State::parse(&text, &Config::default()).expect_err("newer").to_string();
        assert!(error.contains("version 9"), "{error}");
    }
}
