//! The configuration of a target as plain data, and the forms in which people write it.
//!
//! A [`Config`] is made from flags, a TOML file ([`toml`]) or the JSON of `nvmetcli save`
//! ([`nvmetcli`]). It is complete: defaults are filled in, every namespace has its NSID, and
//! [`Config::validate`] has checked it for contradictions. It opens nothing and resolves nothing;
//! the target does that when it starts or reloads.

mod address;
mod ana;
mod bdevs;
pub mod cpus;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod hosts;
pub mod identity;
mod ids;
pub(crate) mod index;
mod io_metrics;
pub mod key_file;
mod keys;
mod limits;
mod merge;
pub mod nvmetcli;
mod operated;
mod pair;
mod qos;
mod rate_limit;
mod state;
pub mod toml;
mod validate;

pub use address::{Listen, ParseListenError, Referral, Transport, socket_address, traddr};
pub use ana::{AnaRule, AnaState};
pub use bdevs::Bdevs;
pub use error::ConfigError;
pub use hosts::Hosts;
pub use ids::{HexId, ParseIdError};
pub use io_metrics::IoMetricsConfig;
pub use keys::{HostKeys, Keyring};
pub(crate) use keys::{Policies, Psks, unknown_key};
pub use limits::Limits;
pub use operated::{Bdev, BdevKind, Operated, implied_bdev_name};
pub use pair::{Arbiter, Etcd, EtcdTls, Pair};
pub use qos::{QOS_WEIGHT_DEFAULT, QOS_WEIGHT_MAX, QosClass, QosRule, replaced_key};
pub use rate_limit::{BdevLimits, RateLimit, RateLimitedCommands};
pub use state::State;
pub use validate::nqn_fault;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use weft_backend::{DeviceSpec, files, rbd::RbdSpec};
use weft_nvmf::keys::{TlsMode, TlsRecords};
use weft_reactor::DriverKind;
use weft_transport::rdma::Provider;

/// How long a poll group spins after its last command before it sleeps, by default: about a
/// loopback round trip, so that the target is awake for a host at queue depth 1.
pub const IDLE_POLL_DEFAULT: Duration = Duration::from_micros(50);

/// As [`Config::idle_poll`]: a poll group never sleeps.
pub const IDLE_POLL_FOREVER: Duration = Duration::MAX;

/// Most poll groups that are not pinned: each has a pool and a ring of its own.
pub const THREADS_MAX: usize = 256;

pub use weft_nvmf::subsystem::{ControllerModel, NSID_MAX};

/// First controller id handed out, as in the Linux target.
pub const CNTLID_FIRST: u16 = 1;

/// Last controller id handed out: FFF0h and above are reserved or have special meanings.
pub const CNTLID_LAST: u16 = 0xffef;

/// What a target serves, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where it listens.
    pub ports: Vec<Port>,
    /// What it serves.
    pub subsystems: Vec<Subsystem>,
    /// One poll group for each of these processors, pinned; empty: [`Config::threads`] of them,
    /// not pinned.
    pub cpus: Vec<usize>,
    /// Those of them whose poll groups have only queues that a rule of the class latency is for.
    pub express_cpus: Vec<usize>,
    /// Poll groups where no processors are named; they run wherever the scheduler puts them.
    pub threads: usize,
    /// How long a poll group spins after the last command before it sleeps.
    pub idle_poll: Duration,
    /// Whether commands of queues with few and small ones are served between those of others.
    pub express: bool,
    /// Whether it is a Centralized Discovery controller, with which other targets register.
    pub centralized_discovery: bool,
    /// Centralized Discovery controllers with which it is to be registered, which is left to the
    /// program around it.
    pub register: Vec<Listen>,
    /// Whether its discovery controllers are to be announced by multicast DNS, which is left to the
    /// program around it.
    pub mdns: bool,
    /// The kernel interface that the reactors use.
    pub driver: DriverKind,
    /// Where RDMA devices come from; not part of files or flags.
    pub rdma: Provider,
    /// Limits of what hosts may ask for and of the resources that the target uses.
    pub limits: Limits,
    /// What was made at run time; not part of files that people write, nor of flags.
    pub operated: Operated,
    /// Limits of rates.
    pub rate_limits: Vec<RateLimit>,
    /// Rules that give queues a class.
    pub qos_rules: Vec<QosRule>,
    /// Keys, by name.
    pub keyring: Keyring,
    /// The pair of targets that this one belongs to.
    pub pair: Option<Pair>,
    /// Whether it stands by: hosts have no access to any namespace; not part of files.
    pub is_standby: bool,
    /// Whether an earlier process has served it, so that files of it that are gone are not created;
    /// looked at when the target starts, and not part of files.
    pub is_restored: bool,
    /// What is measured of hosts' commands, from the start on; not part of files.
    pub io_metrics: Option<IoMetricsConfig>,
    /// Where the Persistent Event Logs are kept, from the start on; not part of files.
    pub events_file: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ports: Vec::new(),
            subsystems: Vec::new(),
            cpus: Vec::new(),
            express_cpus: Vec::new(),
            threads: 1,
            idle_poll: IDLE_POLL_DEFAULT,
            express: true,
            centralized_discovery: false,
            register: Vec::new(),
            mdns: false,
            driver: DriverKind::Auto,
            rdma: Provider::System,
            limits: Limits::default(),
            operated: Operated::default(),
            rate_limits: Vec::new(),
            qos_rules: Vec::new(),
            keyring: Keyring::new(),
            pair: None,
            is_standby: false,
            is_restored: false,
            io_metrics: None,
            events_file: None,
        }
    }
}

impl Config {
    /// How many poll groups there are.
    #[must_use]
    pub fn groups(&self) -> usize {
        if self.cpus.is_empty() { self.threads } else { self.cpus.len() }
    }

    /// For each of so many poll groups, whether it has only queues that a rule of the class latency
    /// is for.
    pub(crate) fn express_groups(&self, groups: usize) -> Vec<bool> {
        let is_one = |cpu: Option<&usize>| cpu.is_some_and(|cpu| self.express_cpus.contains(cpu));
        (0..groups).map(|group| is_one(self.cpus.get(group))).collect()
    }
}

/// A configuration that was read from a file, and what this build ignores in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// One sentence for each thing that is ignored, to be shown to the user.
    pub notes: Vec<String>,
}

impl Config {
    /// Reads and checks a file: JSON as `nvmetcli save` writes it if it starts with a brace, else
    /// TOML, which may have nothing to serve.
    ///
    /// # Errors
    /// The file cannot be read, is not of its form, or contradicts itself.
    pub fn load(path: &Path) -> Result<Loaded, ConfigError> {
        let text = weft_backend::files::read_text(path).map_err(|error| {
            ConfigError::new("", format!("the file cannot be read: {error}"))
                .remedy("check the path and its permissions")
                .in_file(path)
        })?;
        let loaded = if text.trim_start().starts_with('{') {
            nvmetcli::parse(&text)
        } else {
            toml::read(&text).map(|config| Loaded { config, notes: Vec::new() })
        };
        loaded.map_err(|error| error.in_file(path))
    }
}

/// One address that the target listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The port's id in the discovery log.
    pub id: u16,
    /// Transport and address; port 0 takes a free one.
    pub listen: Listen,
    /// The address that the discovery log gives instead of the one to which the host connected,
    /// for hosts behind NAT and for containers.
    pub advertise: Option<SocketAddr>,
    /// Whether hosts come with TLS.
    pub tls: TlsMode,
    /// Who makes and reads the records of TLS.
    pub tls_records: TlsRecords,
    /// Whether the discovery subsystem answers here.
    pub discovery: bool,
    /// Which subsystems answer here.
    pub subsystems: PortSubsystems,
    /// Other discovery services that the log of this port refers to.
    pub referrals: Vec<Referral>,
    /// The access states of groups of namespaces here; of several for a group the last one holds,
    /// and it is optimized without one.
    pub ana: Vec<AnaRule>,
    /// It was made at run time, and goes with the last subsystem that uses it.
    pub made_at_run_time: bool,
}

impl Port {
    /// A port that serves every subsystem and discovery.
    #[must_use]
    pub fn new(id: u16, listen: Listen) -> Self {
        Self {
            id,
            listen,
            advertise: None,
            tls: TlsMode::Off,
            tls_records: TlsRecords::User,
            discovery: true,
            subsystems: PortSubsystems::All,
            referrals: Vec::new(),
            ana: Vec::new(),
            made_at_run_time: false,
        }
    }
}

/// Which subsystems a port serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortSubsystems {
    /// All of them.
    All,
    /// Those with these NQNs; none: a port for discovery only.
    Only(Vec<String>),
}

impl PortSubsystems {
    /// Whether a subsystem is among them.
    #[must_use]
    pub fn contains(&self, nqn: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(nqns) => nqns.iter().any(|served| served == nqn),
        }
    }
}

/// A subsystem.
#[derive(Clone, Debug, PartialEq)]
pub struct Subsystem {
    /// Its name.
    pub nqn: String,
    /// Serial number, at most 20 characters; none: derived from the NQN.
    pub serial: Option<String>,
    /// Model number, at most 40 characters.
    pub model: String,
    /// Firmware revision, at most 8 characters.
    pub firmware: String,
    /// A label for administrators in extended discovery log pages, 4 to 256 characters.
    pub admin_label: Option<String>,
    /// The hosts that may connect, by NQN; none: every host.
    pub allowed_hosts: Option<Vec<String>>,
    /// Hosts that are listed while every host is allowed; they count once that ends.
    pub listed_hosts: Vec<String>,
    /// Keys of hosts that are allowed or listed.
    pub host_keys: Vec<HostKeys>,
    /// Most namespaces, and the largest NSID; none: [`Limits::namespaces`].
    pub namespaces_max: Option<u32>,
    /// How controllers get their ids.
    pub controller_ids: ControllerIds,
    /// Whether hosts are told how well each port reaches its namespaces (ANA).
    pub ana_reporting: bool,
    /// Whether a host may reset the NVM subsystem, for all of its hosts.
    pub subsystem_reset: bool,
    /// What hosts may make of its namespaces; none: nothing.
    pub host_namespaces: Option<HostNamespaces>,
    /// Its namespaces in the order of their NSIDs.
    pub namespaces: Vec<Namespace>,
}

/// The namespaces that hosts may make in a subsystem, by Namespace Management.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HostNamespaces {
    /// Bytes that they may have together.
    pub capacity: u64,
    /// Each is a file in this folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Each is an image of a Ceph cluster, whose name begins with that of this one. Without this
    /// and a folder each is memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rbd: Option<Box<RbdSpec>>,
}

impl Subsystem {
    /// A subsystem with defaults and without namespaces.
    #[must_use]
    pub fn new(nqn: impl Into<String>) -> Self {
        Self {
            nqn: nqn.into(),
            serial: None,
            model: "weft".to_owned(),
            firmware: env!("CARGO_PKG_VERSION").chars().take(8).collect(),
            admin_label: None,
            allowed_hosts: None,
            listed_hosts: Vec::new(),
            host_keys: Vec::new(),
            namespaces_max: None,
            controller_ids: ControllerIds::default(),
            ana_reporting: false,
            subsystem_reset: false,
            host_namespaces: None,
            namespaces: Vec::new(),
        }
    }

    /// Most namespaces that it may have, and the largest NSID.
    #[must_use]
    pub fn most_namespaces(&self, limits: &Limits) -> u32 {
        self.namespaces_max.unwrap_or(limits.namespaces)
    }

    /// The largest NSID that a namespace has.
    pub(crate) fn largest_nsid(&self) -> u32 {
        self.namespaces.iter().map(|namespace| namespace.nsid).max().unwrap_or(0)
    }

    /// The serial number, derived if none is given.
    #[must_use]
    pub fn serial(&self) -> String {
        self.serial.clone().unwrap_or_else(|| identity::serial(&self.nqn))
    }
}

/// How controllers get their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerIds {
    /// Whether the host names the controller it wants (the static controller model) or takes the
    /// one it is given (the dynamic controller model).
    pub model: ControllerModel,
    /// First id.
    pub first: u16,
    /// Last id.
    pub last: u16,
}

impl Default for ControllerIds {
    fn default() -> Self {
        Self { model: ControllerModel::Dynamic, first: CNTLID_FIRST, last: CNTLID_LAST }
    }
}

/// A namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct Namespace {
    /// Its id within the subsystem.
    pub nsid: u32,
    /// Whether the id is only its position in the list: when the target reloads, a namespace that
    /// is still there keeps the id that it has.
    pub by_position: bool,
    /// Its device.
    pub device: DeviceSpec,
    /// The block device that it uses, if that has a name of its own.
    pub bdev: Option<String>,
    /// UUID; none: derived, or new at each start for a device that loses its contents.
    pub uuid: Option<[u8; 16]>,
    /// NGUID; none: derived from the UUID.
    pub nguid: Option<[u8; 16]>,
    /// EUI-64; none: not reported.
    pub eui64: Option<[u8; 8]>,
    /// Whether hosts may only read.
    pub read_only: bool,
    /// Its ANA group; none: that with the number of its NSID, as with SPDK.
    pub ana_group: Option<u32>,
    /// Where its reservations are kept if hosts let them persist; none: they cannot persist.
    pub ptpl_file: Option<PathBuf>,
    /// The hosts that see it, by NQN; none: every host of the subsystem.
    pub visible_to: Option<Vec<String>>,
}

impl Namespace {
    /// A namespace with an id and a device only.
    #[must_use]
    pub fn new(nsid: u32, device: DeviceSpec) -> Self {
        Self {
            nsid,
            by_position: false,
            device,
            bdev: None,
            uuid: None,
            nguid: None,
            eui64: None,
            read_only: false,
            ana_group: None,
            ptpl_file: None,
            visible_to: None,
        }
    }

    /// Its ANA group.
    #[must_use]
    pub fn ana_group(&self) -> u32 {
        self.ana_group.unwrap_or(self.nsid)
    }

    /// The files that no other namespace may have, by canonical path, each with its key.
    pub(crate) fn own_files(&self) -> impl Iterator<Item = (&'static str, PathBuf)> {
        let reservations = self.ptpl_file.iter().map(|path| ("ptpl-file", files::canonical(path)));
        let marks = self.device.marks_files().into_iter();
        reservations.chain(marks.map(|path| ("uncorrectable:file", path)))
    }
}

/// What to do about a file that two of them would have.
pub(crate) const OWN_FILE: &str = "give each namespace a file of its own";
