//! Changes at run time: each is one step on one object, checked as a whole, and made by every poll
//! group or by none ([`Target::step`](crate::Target::step)).
//!
//! A step changes the configuration and names what it touches; what is not touched is neither
//! planned again nor visited by the groups. A reload is the same with everything touched.

use std::fmt;
use std::path::PathBuf;

mod hosts;
mod saved;
mod visible;

pub(crate) use saved::Savepoint;
pub use visible::NamespaceVisibility;

use hosts::{add_host, add_key, change_keys, change_psks, remove_host, remove_key};
use weft_backend::DeviceSpec;
use weft_backend::rbd::CephSpec;
use weft_nvmf::auth::{Group, HashFunction};
use weft_nvmf::keys::{TlsMode, TlsRecords};

use crate::config::index::Index;
use crate::config::rules::{self, Rule};
use crate::config::{
    AnaRule, AnaState, Bdev, BdevKind, BdevLimits, Config, HostKeys, Limits, Listen, NSID_MAX,
    Namespace, Port, PortSubsystems, QosRule, RateLimit, Referral, Subsystem, Transport,
};
use crate::shared::snapshot::{PartialScope, Scope};

/// The name of the discovery subsystem.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// One change: an object is put (create, register, add, set, limit), or removed by its key.
///
/// The others are verbs, because they keep what a put object would not have: `ResizeBdev` and
/// `RescanBdev` the device's data, `SetKeys`, `SetPsks` and `AllowAnyHost` the connections of
/// hosts, `SetAnaState`, `SetAnaGroup` and `SetVisible` the namespace's commands. `LimitSubsystems`
/// and `SetAuthentication` concern no object.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Creates a transport and sets the limits of what hosts may ask for.
    CreateTransport(Transport, Box<Limits>),
    /// Creates a block device.
    CreateBdev(Bdev),
    /// Deletes a block device and the namespace that uses it.
    DeleteBdev {
        /// Its name.
        name: String,
        /// Its kind, if it must have this one.
        kind: Option<BdevKind>,
    },
    /// Gives a block device another size.
    ResizeBdev {
        /// Its name.
        name: String,
        /// Its kind, if it must have this one.
        kind: Option<BdevKind>,
        /// The size.
        bytes: u64,
    },
    /// Reads the size of a block device again.
    RescanBdev {
        /// Its name.
        name: String,
    },
    /// Names a Ceph cluster. Nothing connects to it before an image is opened.
    RegisterCluster {
        /// Its name.
        name: String,
        /// How to reach it.
        ceph: CephSpec,
    },
    /// Forgets a name of a Ceph cluster.
    UnregisterCluster {
        /// Its name.
        name: String,
    },
    /// Limits the rates of a block device, whatever namespace uses it.
    LimitBdev {
        /// Its name.
        name: String,
        /// The limits.
        limits: BdevLimits,
    },
    /// Sets a rate limit; one that is for the same commands is replaced.
    SetRateLimit(Box<RateLimit>),
    /// Deletes the rate limit that is for the same commands as this one.
    DeleteRateLimit(Box<RateLimit>),
    /// Sets a rule of a class; one that is for the same queues is replaced.
    SetQosRule(Box<QosRule>),
    /// Deletes the rule that is for the same queues as this one.
    DeleteQosRule(Box<QosRule>),
    /// Creates a subsystem.
    CreateSubsystem(Box<Subsystem>),
    /// Deletes a subsystem, or discovery at all listeners that were made at run time.
    DeleteSubsystem {
        /// Its name.
        nqn: String,
    },
    /// Limits the number of subsystems.
    LimitSubsystems {
        /// Most of them.
        most: usize,
    },
    /// Sets the hash functions and DH groups of hosts that have none of their own.
    SetAuthentication {
        /// The hash functions, the preferred one first; an empty list allows all, and without a
        /// list they stay as they are.
        hashes: Option<Vec<HashFunction>>,
        /// The DH groups, likewise.
        groups: Option<Vec<Group>>,
    },
    /// Refers hosts to another discovery controller, or to a subsystem of another target.
    AddReferral(Referral),
    /// No longer refers them to it.
    RemoveReferral(Referral),
    /// Adds a namespace on a block device by name.
    AddNamespace {
        /// The subsystem.
        nqn: String,
        /// As [`Namespace::on_bdev`] makes it. Without a number it has the first that is free,
        /// without a UUID that of the block device, without an NGUID its UUID.
        namespace: Box<Namespace>,
    },
    /// Removes a namespace.
    RemoveNamespace {
        /// The subsystem.
        nqn: String,
        /// The namespace.
        nsid: u32,
    },
    /// Has a subsystem served at an address.
    AddListener {
        /// The subsystem.
        nqn: String,
        /// Where.
        listen: Listen,
        /// The access state of its groups there.
        ana: AnaState,
        /// Whether hosts come with TLS; none: as it is at this address, or else without.
        tls: Option<TlsMode>,
        /// Who makes the records of TLS; none: as it is at this address, or else this program.
        tls_records: Option<TlsRecords>,
    },
    /// No longer has it served there: its controllers end.
    RemoveListener {
        /// The subsystem.
        nqn: String,
        /// Where.
        listen: Listen,
    },
    /// Sets the access state of its groups at an address.
    SetAnaState {
        /// The subsystem.
        nqn: String,
        /// Where.
        listen: Listen,
        /// The group; none: all of them.
        group: Option<u32>,
        /// The state.
        state: AnaState,
    },
    /// Puts a namespace into another ANA group.
    SetAnaGroup {
        /// The subsystem.
        nqn: String,
        /// The namespace.
        nsid: u32,
        /// The group.
        group: u32,
    },
    /// Shows a namespace to other hosts than before.
    SetVisible {
        /// The subsystem.
        nqn: String,
        /// The namespace.
        nsid: u32,
        /// To which hosts.
        visible: NamespaceVisibility,
    },
    /// Adds a key file to the keyring.
    AddKey {
        /// The key's name.
        name: String,
        /// The file.
        path: PathBuf,
    },
    /// Removes a key that no host has.
    RemoveKey {
        /// Its name.
        name: String,
    },
    /// Allows a host, which has these keys, if any, from the beginning.
    AddHost {
        /// The subsystem.
        nqn: String,
        /// The host.
        host: HostKeys,
    },
    /// Gives a host that is listed other keys, or none. It stays connected.
    SetKeys {
        /// The subsystem.
        nqn: String,
        /// The host.
        host: HostKeys,
    },
    /// Gives a host that is listed other keys of TLS, or none. It stays connected.
    SetPsks {
        /// The subsystem.
        nqn: String,
        /// The host.
        host: String,
        /// The names of the keys.
        psk: Vec<String>,
    },
    /// No longer allows it: its controllers end.
    RemoveHost {
        /// The subsystem.
        nqn: String,
        /// The host.
        host: String,
    },
    /// Allows every host, or only those that are listed.
    AllowAnyHost {
        /// The subsystem.
        nqn: String,
        /// Which of the two.
        allow: bool,
    },
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// It was made.
    Done,
    /// The NSID of the namespace that was added.
    Nsid(u32),
}

/// Why a step is not possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepError {
    /// The kind.
    pub kind: StepErrorKind,
    what: String,
}

/// The kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepErrorKind {
    /// The object does not exist.
    NotFound,
    /// It exists already.
    Exists,
    /// It has other properties than the step needs.
    Invalid,
    /// Something outside of the configuration failed: a device, an address.
    Failed,
}

impl StepError {
    fn new(kind: StepErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into() }
    }

    fn not_found(what: impl Into<String>) -> Self {
        Self::new(StepErrorKind::NotFound, what)
    }

    fn exists(what: impl Into<String>) -> Self {
        Self::new(StepErrorKind::Exists, what)
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::new(StepErrorKind::Invalid, what)
    }

    /// Something outside of the configuration failed.
    #[must_use]
    pub fn failed(what: impl Into<String>) -> Self {
        Self::new(StepErrorKind::Failed, what)
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for StepError {}

type Outcome = Result<(StepOutcome, Scope), StepError>;

/// What a step has done that touches these subsystems.
fn done(subsystems: impl IntoIterator<Item = String>) -> Outcome {
    let subsystems = subsystems.into_iter().collect();
    Ok((StepOutcome::Done, Scope::Only(PartialScope { subsystems, ..PartialScope::default() })))
}

impl Step {
    /// Makes the change in a configuration, and says what it touches.
    pub(crate) fn apply(&self, config: &mut Config, index: &Index) -> Outcome {
        match self {
            Self::CreateTransport(transport, limits) => {
                create_transport(config, *transport, limits)
            }
            Self::CreateBdev(bdev) => create_bdev(config, index, bdev),
            Self::DeleteBdev { name, kind } => delete_bdev(config, index, name, *kind),
            Self::ResizeBdev { name, kind, bytes } => {
                resize_bdev(config, index, name, *kind, *bytes)
            }
            Self::RescanBdev { name } => {
                let user = user_of(config, index, name, None)?;
                let subsystems = user.into_iter().map(|(nqn, _)| nqn).collect();
                Ok((
                    StepOutcome::Done,
                    Scope::Only(PartialScope {
                        subsystems,
                        refresh: true,
                        ..PartialScope::default()
                    }),
                ))
            }
            Self::RegisterCluster { name, ceph } => register_cluster(config, name, ceph),
            Self::UnregisterCluster { name } => unregister_cluster(config, name),
            Self::LimitBdev { name, limits } => limit_bdev(config, index, name, *limits),
            Self::SetRateLimit(limit) => set_rule(&mut config.rate_limits, limit),
            Self::DeleteRateLimit(limit) => delete_rule(&mut config.rate_limits, limit),
            Self::SetQosRule(rule) => set_rule(&mut config.qos_rules, rule),
            Self::DeleteQosRule(rule) => delete_rule(&mut config.qos_rules, rule),
            Self::CreateSubsystem(subsystem) => create_subsystem(config, subsystem),
            Self::LimitSubsystems { most } => limit_subsystems(config, *most),
            Self::SetAuthentication { hashes, groups } => {
                let operated = &mut config.operated;
                hashes.iter().for_each(|hashes| operated.dhchap_hashes.clone_from(hashes));
                groups.iter().for_each(|groups| operated.dhchap_groups.clone_from(groups));
                Ok((StepOutcome::Done, Scope::All))
            }
            Self::AddReferral(referral) => add_referral(config, referral),
            Self::RemoveReferral(referral) => remove_referral(config, referral),
            Self::DeleteSubsystem { nqn } => delete_subsystem(config, nqn),
            Self::AddNamespace { nqn, namespace } => add_namespace(config, index, nqn, namespace),
            Self::RemoveNamespace { nqn, nsid } => remove_namespace(config, nqn, *nsid),
            Self::AddListener { nqn, listen, ana, tls, tls_records } => {
                add_listener(config, nqn, *listen, *ana, *tls, *tls_records)
            }
            Self::RemoveListener { nqn, listen } => remove_listener(config, nqn, *listen),
            Self::SetAnaState { nqn, listen, group, state } => {
                set_ana_state(config, nqn, *listen, *group, *state)
            }
            Self::SetAnaGroup { nqn, nsid, group } => set_ana_group(config, nqn, *nsid, *group),
            Self::SetVisible { nqn, nsid, visible } => visible::set(config, nqn, *nsid, visible),
            Self::AddKey { name, path } => add_key(config, name, path),
            Self::RemoveKey { name } => remove_key(config, name),
            Self::AddHost { nqn, host } => add_host(config, nqn, host),
            Self::SetKeys { nqn, host } => change_keys(config, nqn, host),
            Self::SetPsks { nqn, host, psk } => change_psks(config, nqn, host, psk),
            Self::RemoveHost { nqn, host } => remove_host(config, nqn, host),
            Self::AllowAnyHost { nqn, allow } => {
                let subsystem = subsystem(config, nqn)?;
                if *allow {
                    subsystem
                        .listed_hosts
                        .extend(subsystem.allowed_hosts.take().unwrap_or_default());
                } else if subsystem.allowed_hosts.is_none() {
                    subsystem.allowed_hosts = Some(std::mem::take(&mut subsystem.listed_hosts));
                }
                done([nqn.clone()])
            }
        }
    }
}

fn subsystem<'a>(config: &'a mut Config, nqn: &str) -> Result<&'a mut Subsystem, StepError> {
    let found = config.subsystems.iter_mut().find(|subsystem| subsystem.nqn == nqn);
    found.ok_or_else(|| StepError::not_found(format!("there is no subsystem {nqn}")))
}

fn namespace<'a>(
    config: &'a mut Config,
    nqn: &str,
    nsid: u32,
) -> Result<&'a mut Namespace, StepError> {
    let found = subsystem(config, nqn)?.namespaces.iter_mut().find(|one| one.nsid == nsid);
    found.ok_or_else(|| StepError::not_found(format!("{nqn} has no namespace {nsid}")))
}

fn create_transport(config: &mut Config, transport: Transport, limits: &Limits) -> Outcome {
    if config.operated.transports.contains(&transport) {
        return Err(StepError::exists(format!("transport {transport} exists")));
    }
    config.operated.transports.push(transport);
    let same = config.limits == *limits;
    config.limits.clone_from(limits);
    if same { done([]) } else { Ok((StepOutcome::Done, Scope::All)) }
}

fn limit_bdev(config: &mut Config, index: &Index, name: &str, limits: BdevLimits) -> Outcome {
    user_of(config, index, name, None)?;
    config.operated.bdev_limits.insert(name.to_owned(), limits);
    done([])
}

fn set_rule<T: Rule>(list: &mut Vec<T>, rule: &T) -> Outcome {
    rules::set(list, rule);
    done([])
}

fn delete_rule<T: Rule>(list: &mut Vec<T>, rule: &T) -> Outcome {
    match rules::delete(list, rule) {
        true => done([]),
        false => Err(StepError::not_found(format!("there is no {} for {rule}", T::NAME))),
    }
}

fn create_bdev(config: &mut Config, index: &Index, bdev: &Bdev) -> Outcome {
    let name = &bdev.name;
    if name.is_empty() {
        return Err(StepError::invalid("a block device needs a name"));
    }
    if config.bdev(name).is_some() || index.user_of(config, name).is_some() {
        return Err(StepError::exists(format!("block device {name} exists")));
    }
    let mut bdev = bdev.clone();
    if let Some(base) = bdev.base.clone() {
        check_unused(config, index, &base)?;
        let under = config.bdev(&base).map(|under| Box::new(under.device.clone()));
        let under = under.ok_or_else(|| no_bdev(&base))?;
        if let DeviceSpec::Delay { inner, .. } = &mut bdev.device {
            *inner = under;
        }
    } else if let Some(other) = config.operated.bdevs.on_storage_of(&bdev) {
        let what = format!("block device {} is on the same file or image", other.name);
        return Err(StepError::exists(what));
    }
    config.operated.bdevs.put(bdev);
    done([])
}

fn no_bdev(name: &str) -> StepError {
    StepError::not_found(format!("there is no block device {name}"))
}

/// Whether a block device has no namespace, and no other one stands on it.
fn check_unused(config: &Config, index: &Index, name: &str) -> Result<(), StepError> {
    if let Some((user, namespace)) = index.user_of(config, name) {
        let nsid = namespace.nsid;
        let what = format!("block device {name} is used by namespace {nsid} of {user}");
        return Err(StepError::exists(what));
    }
    check_base(config, name)
}

/// Whether no other block device stands on one.
fn check_base(config: &Config, name: &str) -> Result<(), StepError> {
    match config.operated.bdevs.on_base(name) {
        None => Ok(()),
        Some(other) => {
            let what = format!("block device {name} is used by block device {}", other.name);
            Err(StepError::exists(what))
        }
    }
}

/// The namespace that uses a block device of this name and kind, if there is one.
fn user_of(
    config: &Config,
    index: &Index,
    name: &str,
    kind: Option<BdevKind>,
) -> Result<Option<(String, u32)>, StepError> {
    let user = index.user_of(config, name);
    let found = match (config.bdev(name), user) {
        (Some(bdev), _) => Some(bdev.kind),
        (None, Some((_, namespace))) => Some(BdevKind::of(&namespace.device)),
        (None, None) => None,
    };
    let Some(found) = found else { return Err(no_bdev(name)) };
    if let Some(kind) = kind.filter(|kind| *kind != found) {
        let what = format!("{name} is of kind {}, not {}", found.word(), kind.word());
        return Err(StepError::invalid(what));
    }
    Ok(user.map(|(nqn, namespace)| (nqn.to_owned(), namespace.nsid)))
}

fn register_cluster(config: &mut Config, name: &str, ceph: &CephSpec) -> Outcome {
    match config.operated.ceph_clusters.insert(name.to_owned(), ceph.clone()) {
        None => done([]),
        Some(_) => Err(StepError::exists(format!("Ceph cluster {name} exists"))),
    }
}

fn unregister_cluster(config: &mut Config, name: &str) -> Outcome {
    let Some(ceph) = config.operated.ceph_clusters.remove(name) else {
        return Err(StepError::not_found(format!("there is no Ceph cluster {name}")));
    };
    let uses = |bdev: &&Bdev| {
        bdev.kind == BdevKind::Rbd
            && matches!(&bdev.device, DeviceSpec::Rbd(spec) if spec.ceph == ceph)
    };
    match config.operated.bdevs.iter().find(uses) {
        None => done([]),
        Some(bdev) => {
            let what = format!("block device {} is on Ceph cluster {name}", bdev.name);
            Err(StepError::invalid(what))
        }
    }
}

fn delete_bdev(config: &mut Config, index: &Index, name: &str, kind: Option<BdevKind>) -> Outcome {
    let user = user_of(config, index, name, kind)?;
    check_base(config, name)?;
    config.operated.bdevs.remove(name);
    if let Some((nqn, nsid)) = &user {
        subsystem(config, nqn)?.namespaces.retain(|namespace| namespace.nsid != *nsid);
    }
    done(user.map(|(nqn, _)| nqn))
}

fn resize_bdev(
    config: &mut Config,
    index: &Index,
    name: &str,
    kind: Option<BdevKind>,
    bytes: u64,
) -> Outcome {
    let user = user_of(config, index, name, kind)?;
    check_base(config, name)?;
    let mut bdev = config.bdev(name).cloned();
    let mut devices: Vec<_> = bdev.iter_mut().map(|bdev| &mut bdev.device).collect();
    if let Some((nqn, nsid)) = &user {
        let subsystem = config.subsystems.iter_mut().find(|subsystem| subsystem.nqn == *nqn);
        let namespaces = subsystem.into_iter().flat_map(|subsystem| &mut subsystem.namespaces);
        let used = namespaces.filter(|namespace| namespace.nsid == *nsid);
        devices.extend(used.map(|namespace| &mut namespace.device));
    }
    if !devices.into_iter().all(|device| device.set_bytes(bytes)) {
        return Err(StepError::invalid(format!("{name} cannot be resized")));
    }
    bdev.into_iter().for_each(|bdev| config.operated.bdevs.put(bdev));
    done(user.map(|(nqn, _)| nqn))
}

fn create_subsystem(config: &mut Config, subsystem: &Subsystem) -> Outcome {
    let nqn = &subsystem.nqn;
    if nqn == DISCOVERY_NQN {
        config.operated.without_discovery = false;
        return done([]);
    }
    if config.subsystems.iter().any(|other| other.nqn == *nqn) {
        return Err(StepError::exists(format!("subsystem {nqn} exists")));
    }
    if let Some(most) = config.operated.subsystems_max
        && config.subsystems.len() >= most
    {
        let what = format!("there are {most} subsystems, which is the limit that was set");
        return Err(StepError::invalid(what));
    }
    config.subsystems.push(subsystem.clone());
    done([nqn.clone()])
}

fn limit_subsystems(config: &mut Config, most: usize) -> Outcome {
    let present = config.subsystems.len();
    if most < present {
        return Err(StepError::invalid(format!("there are {present} subsystems already")));
    }
    config.operated.subsystems_max = Some(most);
    done([])
}

fn add_referral(config: &mut Config, referral: &Referral) -> Outcome {
    if config.referrals().any(|one| one.is_to_that_of(referral)) {
        return Err(StepError::exists(format!("there is a referral to {referral}")));
    }
    config.operated.referrals.push(referral.clone());
    done([])
}

fn remove_referral(config: &mut Config, referral: &Referral) -> Outcome {
    if !config.referrals().any(|one| one.is_to_that_of(referral)) {
        return Err(StepError::not_found(format!("there is no referral to {referral}")));
    }
    config.operated.referrals.retain(|one| !one.is_to_that_of(referral));
    for port in &mut config.ports {
        port.referrals.retain(|one| !one.is_to_that_of(referral));
    }
    done([])
}

fn delete_subsystem(config: &mut Config, nqn: &str) -> Outcome {
    if nqn == DISCOVERY_NQN {
        config.operated.without_discovery = true;
        config.operated.discovery.clear();
        let made = config.ports.iter_mut().filter(|port| port.made_at_run_time);
        made.for_each(|port| port.discovery = false);
        config.prune_ports();
        return done([]);
    }
    subsystem(config, nqn)?;
    config.subsystems.retain(|subsystem| subsystem.nqn != nqn);
    for port in &mut config.ports {
        if let PortSubsystems::Only(nqns) = &mut port.subsystems {
            nqns.retain(|served| served != nqn);
        }
    }
    config.prune_ports();
    done([nqn.to_owned()])
}

fn add_namespace(config: &mut Config, index: &Index, nqn: &str, added: &Namespace) -> Outcome {
    let bdev = added.bdev.as_deref().unwrap_or_default();
    check_unused(config, index, bdev)?;
    let found = config.bdev(bdev).cloned().ok_or_else(|| no_bdev(bdev))?;
    let limits = config.limits.clone();
    let subsystem = subsystem(config, nqn)?;
    let most = subsystem.most_namespaces(&limits).min(NSID_MAX);
    let is_free = |nsid: &u32| subsystem.namespaces.iter().all(|other| other.nsid != *nsid);
    let nsid = match added.nsid {
        0 => first_free(subsystem, most)
            .ok_or_else(|| StepError::invalid(format!("{nqn} has {most} namespaces, its most")))?,
        nsid if !is_free(&nsid) => {
            return Err(StepError::exists(format!("{nqn} has a namespace {nsid}")));
        }
        nsid if nsid > most => {
            let what = format!("NSID {nsid} is above {most}, the largest one of {nqn}");
            return Err(StepError::invalid(what));
        }
        nsid => nsid,
    };
    let uuid = added.uuid.unwrap_or(found.uuid);
    let namespace = Namespace {
        nsid,
        device: found.device,
        uuid: Some(uuid),
        nguid: Some(added.nguid.unwrap_or(uuid)),
        ..added.clone()
    };
    let behind = subsystem.namespaces.iter().position(|other| other.nsid > nsid);
    subsystem.namespaces.insert(behind.unwrap_or(subsystem.namespaces.len()), namespace);
    let (_, scope) = done([nqn.to_owned()])?;
    Ok((StepOutcome::Nsid(nsid), scope))
}

fn remove_namespace(config: &mut Config, nqn: &str, nsid: u32) -> Outcome {
    namespace(config, nqn, nsid)?;
    subsystem(config, nqn)?.namespaces.retain(|one| one.nsid != nsid);
    done([nqn.to_owned()])
}

fn first_free(subsystem: &Subsystem, most: u32) -> Option<u32> {
    let used: std::collections::BTreeSet<u32> =
        subsystem.namespaces.iter().map(|namespace| namespace.nsid).collect();
    (1..=most).find(|nsid| !used.contains(nsid))
}

/// Refuses another value of an option than the port has that is there already.
fn check_same(
    listen: Listen,
    option: &str,
    known: &str,
    wanted: Option<&str>,
) -> Result<(), StepError> {
    if wanted.is_none_or(|wanted| wanted == known) {
        return Ok(());
    }
    let what = format!("{listen} has {option} {known:?}, for all that is served there");
    Err(StepError::invalid(what))
}

fn add_listener(
    config: &mut Config,
    nqn: &str,
    listen: Listen,
    ana: AnaState,
    tls: Option<TlsMode>,
    records: Option<TlsRecords>,
) -> Outcome {
    let is_discovery = nqn == DISCOVERY_NQN;
    if !is_discovery {
        subsystem(config, nqn)?;
    }
    if !config.has_transport(listen.transport) {
        let transport = listen.transport;
        let what = format!("transport {transport} was not created (nvmf_create_transport)");
        return Err(StepError::invalid(what));
    }
    let exists = || StepError::exists(format!("{nqn} is served at {listen} already"));
    if let Some(known) = config.ports.iter().find(|port| port.listen == listen) {
        let at = |option, known, wanted| check_same(listen, option, known, wanted);
        at("tls-records", known.tls_records.name(), records.map(TlsRecords::name))?;
        at("tls", known.tls.name(), tls.map(TlsMode::name))?;
    }
    if is_discovery {
        if config.operated.without_discovery {
            return Err(StepError::not_found("the discovery subsystem was deleted"));
        }
        if config.operated.discovery.contains(&listen) {
            return Err(exists());
        }
        config.operated.discovery.push(listen);
    }
    let discovery = !config.operated.without_discovery;
    let port = match config.ports.iter().position(|port| port.listen == listen) {
        Some(place) => place,
        None => {
            let highest = config.ports.iter().map(|port| port.id).max().unwrap_or(0);
            let id = highest.checked_add(1).ok_or_else(|| StepError::invalid("too many ports"))?;
            let subsystems = PortSubsystems::Only(Vec::new());
            let made_at_run_time = true;
            let (tls, tls_records) = (tls.unwrap_or_default(), records.unwrap_or_default());
            let port = Port { tls, tls_records, ..Port::new(id, listen) };
            let port = Port { subsystems, discovery, made_at_run_time, ..port };
            config.ports.push(port);
            config.ports.len() - 1
        }
    };
    let Some(port) = config.ports.get_mut(port) else { return Err(exists()) };
    if is_discovery {
        port.discovery = true;
        return done([]);
    }
    match &mut port.subsystems {
        PortSubsystems::Only(nqns) if !nqns.iter().any(|served| served == nqn) => {
            nqns.push(nqn.to_owned());
        }
        _ => return Err(exists()),
    }
    if ana == AnaState::Optimized {
        return done([nqn.to_owned()]);
    }
    set_ana_state(config, nqn, listen, None, ana)
}

/// A subsystem that tells hosts of access states.
fn reporting<'a>(config: &'a mut Config, nqn: &str) -> Result<&'a mut Subsystem, StepError> {
    let found = subsystem(config, nqn)?;
    if found.ana_reporting {
        return Ok(found);
    }
    let what = "does not report access states; create it anew with `ana-reporting = true`";
    Err(StepError::invalid(format!("{nqn} {what}")))
}

fn set_ana_state(
    config: &mut Config,
    nqn: &str,
    listen: Listen,
    group: Option<u32>,
    state: AnaState,
) -> Outcome {
    reporting(config, nqn)?;
    let served = |port: &&mut Port| port.listen == listen && port.subsystems.contains(nqn);
    let missing = || StepError::not_found(format!("{nqn} is not served at {listen}"));
    let port = config.ports.iter_mut().find(served).ok_or_else(missing)?;
    port.set_ana(AnaRule { subsystem: Some(nqn.to_owned()), group, state });
    done([nqn.to_owned()])
}

fn set_ana_group(config: &mut Config, nqn: &str, nsid: u32, group: u32) -> Outcome {
    reporting(config, nqn)?;
    namespace(config, nqn, nsid)?.ana_group = Some(group);
    done([nqn.to_owned()])
}

fn remove_listener(config: &mut Config, nqn: &str, listen: Listen) -> Outcome {
    let missing = || StepError::not_found(format!("{nqn} is not served at {listen}"));
    if nqn == DISCOVERY_NQN {
        let discovery = &mut config.operated.discovery;
        let place = discovery.iter().position(|one| *one == listen).ok_or_else(missing)?;
        discovery.remove(place);
        config.prune_ports();
        return done([]);
    }
    subsystem(config, nqn)?;
    let port = config.ports.iter_mut().find(|port| port.listen == listen).ok_or_else(missing)?;
    let all = config.subsystems.iter().map(|subsystem| subsystem.nqn.clone());
    match &mut port.subsystems {
        // The others are still served there.
        all_of_them @ PortSubsystems::All => {
            let others = all.filter(|other| other != nqn).collect();
            *all_of_them = PortSubsystems::Only(others);
        }
        PortSubsystems::Only(nqns) => {
            let place = nqns.iter().position(|served| served == nqn).ok_or_else(missing)?;
            nqns.remove(place);
        }
    }
    port.ana.retain(|rule| rule.subsystem.as_deref() != Some(nqn));
    config.prune_ports();
    done([nqn.to_owned()])
}
