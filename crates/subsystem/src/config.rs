//! The configuration of a target as plain data, and the forms in which people write it.
//!
//! The types here are the one schema of what is served. Their serde forms are what a state file
//! keeps, what a TOML file has once its short forms are replaced ([`toml`]), and, with SPDK's names
//! in place of some keys, the parameters of methods that make them.
//!
//! A [`Config`] is made from flags or a TOML file; [`nvmetcli`] makes one of another tool's. It is
//! complete: defaults are filled in, every namespace has its NSID, and [`Config::validate`] has
//! checked it for contradictions. It opens nothing and resolves nothing; the target does that when
//! it starts or reloads.

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
pub(crate) mod rules;
mod state;
mod text;
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

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::ops::Not;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};
use weft_backend::rbd::RbdSpec;
use weft_backend::{DeviceSpec, files};
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// Where it listens.
    #[serde(rename = "port", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// What it serves.
    #[serde(rename = "subsystem", skip_serializing_if = "Vec::is_empty")]
    pub subsystems: Vec<Subsystem>,
    /// One poll group for each of these processors, pinned; empty: [`Config::threads`] of them,
    /// not pinned.
    #[serde(deserialize_with = "cpus::deserialize", skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<usize>,
    /// Those of them whose poll groups have only queues that a rule of the class latency is for.
    #[serde(deserialize_with = "cpus::deserialize", skip_serializing_if = "Vec::is_empty")]
    pub express_cpus: Vec<usize>,
    /// Poll groups where no processors are named; they run wherever the scheduler puts them.
    pub threads: usize,
    /// How long a poll group spins after the last command before it sleeps.
    #[serde(with = "text::idle_poll")]
    pub idle_poll: Duration,
    /// Whether commands of queues with few and small ones are served between those of others.
    pub express: bool,
    /// Whether it is a Centralized Discovery controller, with which other targets register.
    pub centralized_discovery: bool,
    /// Centralized Discovery controllers with which it is to be registered, which is left to the
    /// program around it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub register: Vec<Listen>,
    /// Whether its discovery controllers are to be announced by multicast DNS, which is left to the
    /// program around it.
    pub mdns: bool,
    /// The kernel interface that the reactors use.
    #[serde(with = "Driver")]
    pub driver: DriverKind,
    /// Where RDMA devices come from; not part of files or flags.
    #[serde(skip)]
    pub rdma: Provider,
    /// Limits of what hosts may ask for and of the resources that the target uses.
    pub limits: Limits,
    /// What was made at run time; not part of files that people write, nor of flags.
    #[serde(skip)]
    pub operated: Operated,
    /// Limits of rates.
    #[serde(rename = "rate-limit", skip_serializing_if = "Vec::is_empty")]
    pub rate_limits: Vec<RateLimit>,
    /// Rules that give queues a class.
    #[serde(rename = "qos", skip_serializing_if = "Vec::is_empty")]
    pub qos_rules: Vec<QosRule>,
    /// Keys, by name.
    #[serde(skip_serializing_if = "Keyring::is_empty")]
    pub keyring: Keyring,
    /// The pair of targets that this one belongs to; its table has more forms than one.
    #[serde(skip)]
    pub pair: Option<Pair>,
    /// Whether it stands by: hosts have no access to any namespace; not part of files.
    #[serde(skip)]
    pub is_standby: bool,
    /// Whether an earlier process has served it, so that files of it that are gone are not created;
    /// looked at when the target starts, and not part of files.
    #[serde(skip)]
    pub is_restored: bool,
    /// What is measured of hosts' commands, from the start on; not part of files.
    #[serde(skip)]
    pub io_metrics: Option<IoMetricsConfig>,
    /// Where the Persistent Event Logs are kept, from the start on; not part of files.
    #[serde(skip)]
    pub events_file: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "DriverKind", rename_all = "kebab-case")]
enum Driver {
    Auto,
    Uring,
    Epoll,
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

impl Config {
    /// Reads and checks a TOML file, which may have nothing to serve.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML, or contradicts itself.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = weft_backend::files::read_text(path).map_err(|error| {
            ConfigError::new("", format!("the file cannot be read: {error}"))
                .remedy("check the path and its permissions")
                .in_file(path)
        })?;
        let read = match text.trim_start().starts_with('{') {
            true => Err(ConfigError::new("", "it is JSON, as nvmetcli writes it")
                .remedy("weft convert FILE prints it as TOML")),
            false => toml::read(&text),
        };
        read.map_err(|error| error.in_file(path))
    }
}

/// One address that the target listens on.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Port {
    /// The port's id in the discovery log; 0, until it is known: that of its place.
    #[serde(default)]
    pub id: u16,
    /// Transport and address; port 0 takes a free one.
    pub listen: Listen,
    /// The address that the discovery log gives instead of the one to which the host connected,
    /// for hosts behind NAT and for containers.
    #[serde(default, with = "text::address", skip_serializing_if = "Option::is_none")]
    pub advertise: Option<SocketAddr>,
    /// Whether hosts come with TLS.
    #[serde_as(as = "DisplayFromStr")]
    #[serde(default, skip_serializing_if = "text::is_default")]
    pub tls: TlsMode,
    /// Who makes and reads the records of TLS.
    #[serde_as(as = "DisplayFromStr")]
    #[serde(default, skip_serializing_if = "text::is_default")]
    pub tls_records: TlsRecords,
    /// Whether the discovery subsystem answers here.
    #[serde(default = "text::yes", skip_serializing_if = "Clone::clone")]
    pub discovery: bool,
    /// Which subsystems answer here.
    #[serde(default, skip_serializing_if = "text::is_default")]
    pub subsystems: PortSubsystems,
    /// Other discovery services that the log of this port refers to.
    #[serde(rename = "referral", default, skip_serializing_if = "Vec::is_empty")]
    pub referrals: Vec<Referral>,
    /// The access states of groups of namespaces here; of several for a group the last one holds,
    /// and it is optimized without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ana: Vec<AnaRule>,
    /// It was made at run time, and goes with the last subsystem that uses it.
    #[serde(default, skip_serializing_if = "Not::not")]
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

/// Which subsystems a port serves. Written as the list of those.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Option<Vec<String>>", into = "Option<Vec<String>>")]
pub enum PortSubsystems {
    /// All of them.
    #[default]
    All,
    /// Those with these NQNs; none: a port for discovery only.
    Only(Vec<String>),
}

impl From<Option<Vec<String>>> for PortSubsystems {
    fn from(only: Option<Vec<String>>) -> Self {
        only.map_or(Self::All, Self::Only)
    }
}

impl From<PortSubsystems> for Option<Vec<String>> {
    fn from(subsystems: PortSubsystems) -> Self {
        match subsystems {
            PortSubsystems::All => None,
            PortSubsystems::Only(nqns) => Some(nqns),
        }
    }
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Subsystem {
    /// Its name.
    pub nqn: String,
    /// Serial number, at most 20 characters; none: derived from the NQN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Model number, at most 40 characters.
    #[serde(default = "model", skip_serializing_if = "is_model")]
    pub model: String,
    /// Firmware revision, at most 8 characters.
    #[serde(default = "firmware")]
    pub firmware: String,
    /// A label for administrators in extended discovery log pages, 4 to 256 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_label: Option<String>,
    /// The hosts that may connect, by NQN; none: every host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_hosts: Option<Vec<String>>,
    /// Hosts that are listed while every host is allowed; they count once that ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listed_hosts: Vec<String>,
    /// Most namespaces, and the largest NSID; none: [`Limits::namespaces`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces_max: Option<u32>,
    /// Most I/O queues of a controller; none, and at most: [`Limits::io_queues`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qid_max: Option<NonZeroU16>,
    /// Whether the host names the controller it wants (the static controller model) or takes the
    /// one it is given (the dynamic controller model).
    #[serde(default, with = "Model", skip_serializing_if = "text::is_default")]
    pub controllers: ControllerModel,
    /// The first controller id; none: as [`Subsystem::controller_ids`] says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cntlid_min: Option<u16>,
    /// The last controller id; none: as [`Subsystem::controller_ids`] says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cntlid_max: Option<u16>,
    /// Whether hosts are told how well each port reaches its namespaces (ANA).
    #[serde(default, skip_serializing_if = "Not::not")]
    pub ana_reporting: bool,
    /// Whether a host may reset the NVM subsystem, for all of its hosts.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub subsystem_reset: bool,
    /// What hosts may make of its namespaces; none: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_namespaces: Option<HostNamespaces>,
    /// Keys of hosts that are allowed or listed.
    #[serde(rename = "host", default, skip_serializing_if = "Vec::is_empty")]
    pub host_keys: Vec<HostKeys>,
    /// Its namespaces in the order of their NSIDs.
    #[serde(rename = "namespace", default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<Namespace>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "ControllerModel", rename_all = "kebab-case")]
enum Model {
    Dynamic,
    Static,
}

fn model() -> String {
    "weft".to_owned()
}

fn is_model(text: &str) -> bool {
    text == model()
}

fn firmware() -> String {
    env!("CARGO_PKG_VERSION").chars().take(8).collect()
}

/// The namespaces that hosts may make in a subsystem, by Namespace Management.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HostNamespaces {
    /// Bytes that they may have together.
    #[serde(with = "weft_backend::bytes::as_text")]
    pub capacity: u64,
    /// Each is a file in this folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Each is an image of a Ceph cluster, whose name begins with that of this one. Without this
    /// and a folder each is memory.
    #[serde_as(as = "Option<Box<DisplayFromStr>>")]
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
            model: model(),
            firmware: firmware(),
            admin_label: None,
            allowed_hosts: None,
            listed_hosts: Vec::new(),
            host_keys: Vec::new(),
            namespaces_max: None,
            qid_max: None,
            controllers: ControllerModel::default(),
            cntlid_min: None,
            cntlid_max: None,
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

    /// The first and the last controller id: those of the member of a pair, or all, where none are
    /// given.
    #[must_use]
    pub fn controller_ids(&self, pair: Option<&Pair>) -> (u16, u16) {
        let (first, last) = pair.map_or((CNTLID_FIRST, CNTLID_LAST), Pair::controller_ids);
        (self.cntlid_min.unwrap_or(first), self.cntlid_max.unwrap_or(last))
    }

    /// The serial number, derived if none is given.
    #[must_use]
    pub fn serial(&self) -> String {
        self.serial.clone().unwrap_or_else(|| identity::serial(&self.nqn))
    }
}

/// A namespace.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Namespace {
    /// Its id within the subsystem; 0, until it is known: that of its position, or the first free.
    #[serde(default)]
    pub nsid: u32,
    /// Whether the id is only its position in the list: when the target reloads, a namespace that
    /// is still there keeps the id that it has.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub by_position: bool,
    /// Its device.
    #[serde_as(as = "DisplayFromStr")]
    pub device: DeviceSpec,
    /// The block device that it uses, if that has a name of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bdev: Option<String>,
    /// UUID; none: derived, or new at each start for a device that loses its contents.
    #[serde_as(as = "Option<HexId<16>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<[u8; 16]>,
    /// NGUID; none: derived from the UUID.
    #[serde_as(as = "Option<HexId<16>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nguid: Option<[u8; 16]>,
    /// EUI-64; none: not reported.
    #[serde_as(as = "Option<HexId<8>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eui64: Option<[u8; 8]>,
    /// Whether hosts may only read.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub read_only: bool,
    /// Its ANA group; none: that with the number of its NSID, as with SPDK.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ana_group: Option<u32>,
    /// Where its reservations are kept if hosts let them persist; none: they cannot persist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ptpl_file: Option<PathBuf>,
    /// The hosts that see it, by NQN; none: every host of the subsystem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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

    /// A namespace on a block device by name, which the step that adds it gives its device and, if
    /// it has none, its number.
    #[must_use]
    pub fn on_bdev(name: impl Into<String>) -> Self {
        let block_bytes = weft_backend::BLOCK_BYTES_DEFAULT;
        let device = DeviceSpec::Null { bytes: block_bytes.into(), block_bytes };
        Self { bdev: Some(name.into()), ..Self::new(0, device) }
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
