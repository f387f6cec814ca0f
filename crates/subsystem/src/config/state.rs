//! The objects of a configuration as a state file keeps them, with every NSID and UUID, so that a
//! target that starts again serves the same.
//!
//! Settings of the process (processors, driver, limits) are not part of it: they come from the
//! configuration's file or from flags each time, but for the limits that a transport was created
//! with.

use serde::{Deserialize, Serialize};

use uuid::Uuid;
use weft_backend::DeviceSpec;

use super::{
    Bdev, BdevKind, Config, ConfigError, Keyring, Port, QosRule, RateLimit, RuntimeObjects,
    Subsystem,
};

/// The version of the form.
const VERSION: u32 = 2;

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
            transport_limits: Some(TransportLimits {
                queue_entries: limits.queue_entries,
                io_queues: limits.io_queues,
                in_capsule_bytes: limits.in_capsule_bytes,
                transfer_bytes: limits.transfer_bytes,
            })
            .filter(|_| !self.config.operated.transports.is_empty()),
            operated: self.config.operated.clone(),
            served: Objects::of(&self.config),
            applied: Objects::of(&self.applied),
        };
        serde_json::to_string_pretty(&file).map(|text| text + "\n").map_err(|e| e.to_string())
    }

    /// Reads it; what is not part of a state is as in `settings`.
    ///
    /// # Errors
    /// The text is not a state file of this version.
    pub fn parse(text: &str, settings: &Config) -> Result<Self, ConfigError> {
        let refused = |error: serde_json::Error| {
            ConfigError::new("", error.to_string())
                .remedy("it is not a state file of this version; move it away to begin anew")
        };
        let Version { weft_state } = serde_json::from_str(text).map_err(refused)?;
        if weft_state != VERSION {
            let what = format!("it is of version {weft_state}, and this weft keeps {VERSION}");
            return Err(ConfigError::new("weft-state", what)
                .remedy("use the weft that wrote it, or move it away to begin anew"));
        }
        let file: File = serde_json::from_str(text).map_err(refused)?;
        let mut config = Config { operated: file.operated, ..settings.clone() };
        if let Some(limits) = &file.transport_limits {
            config.limits.queue_entries = limits.queue_entries;
            config.limits.io_queues = limits.io_queues;
            config.limits.in_capsule_bytes = limits.in_capsule_bytes;
            config.limits.transfer_bytes = limits.transfer_bytes;
        }
        file.served.put_into(&mut config);
        renew_volatile(&mut config);
        let limits = config.limits.clone();
        for subsystem in &mut config.subsystems {
            // What was served goes on, though the limit may be another one now.
            let largest = subsystem.largest_nsid();
            if largest > subsystem.most_namespaces(&limits) {
                subsystem.namespaces_max = Some(largest);
            }
        }
        let mut applied = Config { operated: RuntimeObjects::default(), ..settings.clone() };
        file.applied.put_into(&mut applied);
        config.check_consistent()?;
        Ok(Self { config, applied })
    }
}

/// Gives block devices in memory, and namespaces on them, new UUIDs: they are empty, and a host
/// must not take them for those that it knew. What was made as SPDK makes it keeps its own.
fn renew_volatile(config: &mut Config) {
    let mut renewed = Vec::new();
    let renew = |bdev: &Bdev| {
        let mut bdev = bdev.clone();
        let is_memory = matches!(bdev.device.innermost(), DeviceSpec::Memory { .. });
        if bdev.kind == BdevKind::Device && is_memory {
            let before = std::mem::replace(&mut bdev.uuid, Uuid::new_v4().into_bytes());
            renewed.push((bdev.name.clone(), before, bdev.uuid));
        }
        bdev
    };
    config.operated.bdevs = config.operated.bdevs.iter().map(renew).collect();
    let namespaces = config.subsystems.iter_mut().flat_map(|one| &mut one.namespaces);
    for namespace in namespaces {
        let own = renewed.iter().find(|(name, before, _)| {
            namespace.bdev.as_ref() == Some(name) && namespace.uuid == Some(*before)
        });
        if let Some((_, before, uuid)) = own {
            namespace.uuid = Some(*uuid);
            // A namespace on a block device has its UUID for an NGUID as well.
            namespace.nguid = namespace.nguid.map(|own| if own == *before { *uuid } else { own });
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Version {
    weft_state: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    weft_state: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    transport_limits: Option<TransportLimits>,
    operated: RuntimeObjects,
    served: Objects,
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

/// The parts of a configuration that are objects and no settings.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Objects {
    port: Vec<Port>,
    subsystem: Vec<Subsystem>,
    /// Paths of key files: the keys themselves are not part of a state.
    keyring: Keyring,
    rate_limit: Vec<RateLimit>,
    qos: Vec<QosRule>,
}

impl Objects {
    fn of(config: &Config) -> Self {
        let Config { ports, subsystems, keyring, rate_limits, qos_rules, .. } = config.clone();
        Self {
            port: ports,
            subsystem: subsystems,
            keyring,
            rate_limit: rate_limits,
            qos: qos_rules,
        }
    }

    fn put_into(self, config: &mut Config) {
        let Self { port, subsystem, keyring, rate_limit, qos } = self;
        (config.ports, config.subsystems, config.keyring) = (port, subsystem, keyring);
        (config.rate_limits, config.qos_rules) = (rate_limit, qos);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{
        AnaRule, Bdev, BdevKind, BdevLimits, ControllerModel, HostNamespaces, Listen, Namespace,
        PortSubsystems, Referral, Transport,
    };
    use weft_backend::DeviceSpec;
    use weft_backend::rbd::{CephSpec, RbdSpec};
    use weft_nvmf::auth::{Group, HashFunction};
    use weft_nvmf::keys::{TlsMode, TlsRecords};

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
        any.controllers = ControllerModel::Static;
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
        config.operated = RuntimeObjects {
            bdevs: [Bdev {
                name: "m".to_owned(),
                kind: BdevKind::Malloc,
                device: device("memory:1MiB,block=512"),
                base: None,
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

    /// A block device in memory is empty after a restart, and so is what stands on it; a file is
    /// not, and what was made as SPDK makes it has the UUID that it had.
    #[test]
    fn memory_is_another_device_after_a_restart() {
        let made = [
            ("m", BdevKind::Device, "memory:1MiB"),
            ("d", BdevKind::Device, "delay:read=1ms:memory:1MiB"),
            ("f", BdevKind::Device, "file:/a"),
            ("s", BdevKind::Malloc, "memory:1MiB"),
        ];
        let mut config = Config { subsystems: vec![Subsystem::new("nqn.a")], ..Config::default() };
        let bdevs = made.iter().zip(1..).map(|((name, kind, text), uuid)| Bdev {
            name: (*name).to_owned(),
            kind: *kind,
            device: device(text),
            base: None,
            uuid: [uuid; 16],
        });
        config.operated.bdevs = bdevs.collect();
        config.subsystems[0].namespaces = (1..=4)
            .zip(made)
            .map(|(nsid, (name, _, text))| Namespace {
                bdev: Some(name.to_owned()),
                uuid: Some([nsid; 16]),
                nguid: Some([if nsid == 2 { 9 } else { nsid }; 16]),
                ..Namespace::new(nsid.into(), device(text))
            })
            .collect();
        let applied = Config::default();
        let text = State { config: config.clone(), applied }.to_text().expect("a text");
        let read = State::parse(&text, &Config::default()).expect("a state").config;
        let stays = |place: usize| {
            let both = [&config, &read].map(|one| one.subsystems[0].namespaces[place].clone());
            let bdev = read.operated.bdevs.get(made[place].0).expect("it is there");
            assert_eq!(both[1].uuid, Some(bdev.uuid), "{bdev:?}");
            both[0].uuid == both[1].uuid
        };
        assert_eq!([0, 1, 2, 3].map(stays), [false, false, true, true]);
        let nguids = read.subsystems[0].namespaces.iter().map(|one| one.nguid);
        let first = read.subsystems[0].namespaces[0].uuid;
        let expected = [first, Some([9; 16]), Some([3; 16]), Some([4; 16])];
        assert_eq!(nguids.collect::<Vec<_>>(), expected, "one that was chosen stays");
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
        let text = state.to_text().expect("a text");
        for other in ["1", "9"] {
            let text = text.replace("\"weft-state\": 2", &format!("\"weft-state\": {other}"));
            let error = State::parse(&text, &Config::default()).expect_err(other).to_string();
            assert!(error.contains(&format!("of version {other}")), "{error}");
        }
        let error = State::parse("{\"weft-state\": 1, \"bdevs\": []}", &Config::default());
        let error = error.expect_err("an old form").to_string();
        assert!(error.contains("of version 1"), "{error}");
    }
}
