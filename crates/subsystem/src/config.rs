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
mod idle_poll;
mod ids;
pub(crate) mod index;
mod io_metrics;
pub mod key_file;
mod keys;
mod limits;
mod merge;
mod nqn;
pub mod nvmetcli;
mod operated;
mod pair;
mod port;
mod qos;
mod rate_limit;
pub(crate) mod rules;
mod state;
mod subsystem;
mod text;
pub mod toml;
mod validate;

pub use address::{Listen, ParseListenError, Referral, Transport, socket_address, traddr};
pub use ana::{AnaRule, AnaState};
pub use bdevs::{Bdev, BdevKind, Bdevs, implied_bdev_name};
pub use error::ConfigError;
pub use hosts::Hosts;
pub use idle_poll::{IDLE_POLL_DEFAULT, IDLE_POLL_FOREVER};
pub use ids::{HexId, ParseIdError};
pub use io_metrics::IoMetricsConfig;
pub use keys::{HostKeys, Keyring};
pub(crate) use keys::{Policies, Psks, unknown_key};
pub use limits::{CNTLID_FIRST, CNTLID_LAST, Limits};
pub use nqn::nqn_fault;
pub use operated::RuntimeObjects;
pub use pair::{Arbiter, Etcd, EtcdTls, Pair};
pub use port::{Port, PortSubsystems};
pub use qos::{QOS_WEIGHT_DEFAULT, QOS_WEIGHT_MAX, QosClass, QosRule, replaced_key};
pub use rate_limit::{BdevLimits, RateLimit, RateLimitedCommands};
pub use state::State;
pub use subsystem::{HostNamespaces, Namespace, Subsystem};
pub use weft_nvmf::limits::NSID_MAX;
pub use weft_nvmf::subsystem::ControllerModel;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_nvme::Nqn;
use weft_nvmf::ana::{AnaView, GroupStates};
use weft_reactor::DriverKind;
use weft_transport::rdma::Provider;

/// Most poll groups that are not pinned: each has a pool and a ring of its own.
pub const THREADS_MAX: usize = 256;

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
    #[serde(with = "idle_poll")]
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
    pub operated: RuntimeObjects,
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
            operated: RuntimeObjects::default(),
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

    /// What hosts are referred to, at any port.
    pub fn referrals(&self) -> impl Iterator<Item = &Referral> {
        let of_ports = self.ports.iter().flat_map(|port| &port.referrals);
        self.operated.referrals.iter().chain(of_ports)
    }

    /// The block device of this name.
    #[must_use]
    pub fn bdev(&self, name: &str) -> Option<&Bdev> {
        self.operated.bdevs.get(name)
    }

    /// The namespace that uses a block device, by the place of its subsystem and its own place.
    #[must_use]
    pub fn user_of(&self, bdev: &str) -> Option<(usize, usize)> {
        self.subsystems.iter().enumerate().find_map(|(index, subsystem)| {
            let uses = |namespace: &Namespace| match &namespace.bdev {
                Some(name) => name == bdev,
                None => bdev
                    .strip_prefix(subsystem.nqn.as_str())
                    .and_then(|rest| rest.strip_prefix(':'))
                    .is_some_and(|nsid| nsid == namespace.nsid.to_string()),
            };
            Some((index, subsystem.namespaces.iter().position(uses)?))
        })
    }

    /// A copy without subsystems and block devices, which are all that is large.
    pub(crate) fn frame(&mut self) -> Self {
        let subsystems = std::mem::take(&mut self.subsystems);
        let bdevs = std::mem::take(&mut self.operated.bdevs);
        let frame = self.clone();
        (self.subsystems, self.operated.bdevs) = (subsystems, bdevs);
        frame
    }

    /// Is as in this frame again, but for subsystems and block devices.
    pub(crate) fn restore_frame(&mut self, mut frame: Self) {
        frame.subsystems = std::mem::take(&mut self.subsystems);
        frame.operated.bdevs = std::mem::take(&mut self.operated.bdevs);
        *self = frame;
    }

    /// Whether a transport was created, or is used by a port.
    #[must_use]
    pub fn has_transport(&self, transport: Transport) -> bool {
        self.operated.transports.contains(&transport)
            || self.ports.iter().any(|port| port.listen.transport == transport)
    }

    /// Removes ports that serve nothing any more, and what ports say of subsystems that are gone.
    pub(crate) fn prune_ports(&mut self) {
        let subsystems = &self.subsystems;
        let has = |nqn: &String| subsystems.iter().any(|subsystem| subsystem.nqn == *nqn);
        for port in &mut self.ports {
            port.ana.retain(|rule| rule.subsystem.as_ref().is_none_or(has));
        }
        let discovery = &self.operated.discovery;
        self.ports.retain(|port| {
            port.subsystems != PortSubsystems::Only(Vec::new())
                || !port.made_at_run_time
                || discovery.contains(&port.listen)
        });
    }

    /// All rate limits, also those of the block devices that namespaces use.
    #[must_use]
    pub fn served_rate_limits(&self) -> Vec<RateLimit> {
        self.served_rate_limits_of(|bdev| {
            let (index, place) = self.user_of(bdev)?;
            let subsystem = self.subsystems.get(index)?;
            Some((&subsystem.nqn, subsystem.namespaces.get(place)?))
        })
    }

    /// The same, with the namespace that uses a block device.
    pub(crate) fn served_rate_limits_of<'a>(
        &'a self,
        user: impl Fn(&str) -> Option<(&'a str, &'a Namespace)>,
    ) -> Vec<RateLimit> {
        let of_bdevs = self.operated.bdev_limits.iter().flat_map(|(bdev, limits)| {
            let user = user(bdev);
            user.map(|(nqn, one)| limits.of_namespace(bdev, nqn, one.nsid)).unwrap_or_default()
        });
        self.rate_limits.iter().cloned().chain(of_bdevs).collect()
    }

    /// Removes the limits of block devices that are gone.
    pub(crate) fn prune_bdev_limits(&mut self) {
        let mut limits = std::mem::take(&mut self.operated.bdev_limits);
        limits.retain(|bdev, limits| {
            *limits != BdevLimits::default()
                && (self.bdev(bdev).is_some() || self.user_of(bdev).is_some())
        });
        self.operated.bdev_limits = limits;
    }

    /// Reads the keys of TLS of a subsystem's hosts.
    pub(crate) fn psks(&self, subsystem: &Subsystem) -> Result<Psks, String> {
        let read = |keys: &HostKeys| {
            let psks = keys.psks(&self.keyring).map_err(|error| {
                format!("host {} of subsystem {}: {error}", keys.nqn, subsystem.nqn)
            })?;
            Ok((keys.nqn.clone(), psks))
        };
        subsystem.host_keys.iter().map(read).collect()
    }

    /// Reads the keys of a subsystem's hosts.
    pub(crate) fn policies(&self, subsystem: &Subsystem) -> Result<Policies, String> {
        let mut policies = Policies::new();
        for keys in &subsystem.host_keys {
            let told = |error: &dyn fmt::Display| {
                format!("host {} of subsystem {}: {error}", keys.nqn, subsystem.nqn)
            };
            let nqn: Nqn = keys.nqn.parse().map_err(|error| told(&error))?;
            if let Some(policy) =
                keys.policy(&self.keyring, &self.operated).map_err(|error| told(&error))?
            {
                policies.insert(nqn, Arc::new(policy));
            }
        }
        Ok(policies)
    }

    /// The state of a group at a port, as hosts are to see it. One that stands by has no access.
    #[must_use]
    pub fn shown_state(&self, state: AnaState) -> AnaState {
        match state {
            AnaState::PersistentLoss => state,
            _ if self.is_standby => AnaState::Inaccessible,
            _ => state,
        }
    }

    /// The states of a subsystem's groups at every port, if its hosts are told of them.
    pub(crate) fn ana_view(&self, subsystem: &Subsystem) -> Option<AnaView> {
        let groups = subsystem.ana_groups();
        let states = |port: &Port| -> GroupStates {
            let state = |group: &u32| {
                let state = port.ana_state(&subsystem.nqn, *group);
                (*group, self.shown_state(state).on_the_wire())
            };
            groups.iter().map(state).collect()
        };
        let reports = subsystem.ana_reporting;
        reports.then(|| self.ports.iter().map(|port| (port.id, states(port))).collect())
    }
}
