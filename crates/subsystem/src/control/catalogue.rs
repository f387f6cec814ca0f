//! From a configuration to a snapshot, and from one snapshot to the next when the configuration
//! changes.
//!
//! The catalogue keeps the device of each namespace, so that a namespace that is still configured
//! keeps its device, its contents and its identity.

mod checks;
mod discovery;
mod one;
mod sizes;
mod slots;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use weft_backend::delay::DelayFactory;
use weft_backend::{DeviceFactory, DeviceSpec, Resized};
use weft_nvmf::discovery::DiscoveryEntry;
use weft_nvmf::subsystem::{SubsystemShared, SubsystemView};
use weft_transport::tls::TlsAcceptor;

use self::checks::{alias, check_aliases, check_names, nqn};
use self::discovery::shows_alike;
use self::one::OnePlan;
use self::sizes::{Resize, resize};
use self::slots::Slots;
use crate::config::{
    self, Bdev, Config, Hosts, Namespace, Pair, Policies, Psks, Subsystem, identity,
};
use crate::control::events::EventLogs;
use crate::control::nsids::{self, same_device};
use crate::control::reservations;
use crate::shared::error::TargetError;
use crate::shared::ids::DeviceId;
use crate::shared::snapshot::{
    Changes, Devices, Needs, Part, PortView, ReservationFiles, Scope, ServedDevice, Snapshot,
    connections_max, transport_limits,
};
use crate::shared::tls;

/// What is served, with its configuration.
#[derive(Debug)]
pub(crate) struct Catalogue {
    /// By subsystem and NSID.
    entries: BTreeMap<String, Entries>,
    /// Block devices with names.
    bdevs: BTreeMap<String, NamedDevice>,
    /// The views of the subsystems as the configuration describes them.
    views: BTreeMap<String, Arc<SubsystemView>>,
    /// Devices that the target's owner has made: a namespace with one of these specs has that
    /// device.
    given: Vec<(DeviceSpec, Arc<dyn DeviceFactory>)>,
    /// The pair that the target belongs to.
    pair: Option<Pair>,
    /// Whether the first configuration is what an earlier process has served.
    is_restored: bool,
    /// What is called when a device changes its size by itself.
    resized: Option<Resized>,
    /// The places in the groups' tables.
    slots: Slots,
    /// The namespaces that have a UUID.
    uuids: BTreeSet<([u8; 16], String, u32)>,
    /// The devices of each subsystem.
    devices: Devices,
    /// Where reservations are kept.
    reservation_files: ReservationFiles,
    /// What ports with TLS accept hosts with.
    tls: Option<TlsAcceptor>,
    /// The last owner of each number by subsystem, and how often a number has changed its owner.
    owners: BTreeMap<String, BTreeMap<u32, NsidOwner>>,
    owner_changes: u64,
    shared: BTreeMap<String, Arc<SubsystemShared>>,
    events: EventLogs,
    /// What hosts have to prove and their keys of TLS, by subsystem; keys that were made by that.
    policies: BTreeMap<String, Arc<Policies>>,
    psks: BTreeMap<String, Arc<Psks>>,
    generated: Arc<crate::shared::generated::GeneratedKeys>,
    discovery_shared: Arc<SubsystemShared>,
    /// Generation counter of the discovery log, and what it counted last.
    generation: u64,
    shown: Vec<DiscoveryEntry>,
    /// The ports and referrals of the last snapshot, and its discovery subsystem.
    ports: Vec<PortView>,
    referrals: Vec<config::Referral>,
    discovery: Option<Arc<SubsystemView>>,
    /// The largest limit of data in a capsule that a controller may have been given.
    in_capsule_bytes: u32,
}

/// The namespaces of a subsystem by NSID.
type Entries = BTreeMap<u32, Entry>;

/// A namespace and its device.
#[derive(Debug, Clone)]
struct Entry {
    subsystem: String,
    nsid: u32,
    spec: DeviceSpec,
    /// The name of its block device, if that has one.
    bdev: Option<String>,
    device: Arc<ServedDevice>,
    identity: identity::Identity,
}

/// The properties that hosts know of the namespace that has a number, or had it last.
#[derive(Debug, Clone, Copy)]
struct NsidOwner {
    uuid: [u8; 16],
    block_bytes: u32,
    change: u64,
}

/// A block device with a name.
#[derive(Debug, Clone)]
struct NamedDevice {
    spec: DeviceSpec,
    factory: Arc<dyn DeviceFactory>,
}

impl Scope {
    /// Whether the size of a block device is read again.
    fn refreshes(&self, bdev: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(part) => part.refresh && part.bdev.as_deref() == Some(bdev),
        }
    }

    /// The block devices with names that are concerned.
    fn bdevs<'a>(&self, config: &'a Config) -> Vec<&'a Bdev> {
        match self {
            Self::All => config.operated.bdevs.iter().collect(),
            Self::Only(part) => {
                part.bdev.as_ref().and_then(|name| config.bdev(name)).into_iter().collect()
            }
        }
    }

    /// The namespace that is all that is concerned of its subsystem.
    fn one(&self) -> Option<(&str, u32)> {
        let Self::Only(Part { subsystems, namespace, .. }) = self else { return None };
        let [nqn] = subsystems.as_slice() else { return None };
        Some((nqn, (*namespace)?))
    }
}

/// A configuration that can be served: its devices exist, and nothing has changed so far.
#[derive(Debug)]
pub(crate) struct Plan {
    scope: Scope,
    /// The namespace that is all that is concerned.
    one: Option<OnePlan>,
    /// The namespaces of the subsystems in its scope.
    entries: BTreeMap<String, Entries>,
    /// What their hosts have to prove.
    policies: BTreeMap<String, Arc<Policies>>,
    psks: BTreeMap<String, Arc<Psks>>,
    /// Block devices that are new, or have another size.
    bdevs: BTreeMap<String, NamedDevice>,
    resizes: Vec<Resize>,
    restored: reservations::Restored,
    /// Devices of namespaces that are new.
    pub(crate) opened: Vec<Arc<ServedDevice>>,
    /// The ports, if they may be others than before.
    ports: Option<Vec<PortView>>,
}

/// A file that was made for a device stays from now on.
fn keep(factory: &Arc<dyn DeviceFactory>) {
    factory.storage().into_iter().for_each(|storage| storage.keep());
}

impl Plan {
    /// What the groups need before it can be carried out, if they need anything.
    pub(crate) fn needs(&self) -> Option<Arc<Needs>> {
        let is_needed = self.ports.is_some() || !self.opened.is_empty();
        is_needed
            .then(|| Arc::new(Needs { devices: self.opened.clone(), ports: self.ports.clone() }))
    }

    /// Whether the ports may be others than before.
    pub(crate) const fn changes_ports(&self) -> bool {
        self.ports.is_some()
    }

    /// Whether the size of a namespace's device is read again.
    fn looks_at(&self, entry: &Entry, namespace: &Namespace) -> bool {
        let refreshes = match &self.scope {
            Scope::All => true,
            Scope::Only(part) => part.refresh,
        };
        refreshes || entry.spec != namespace.device
    }

    /// What it may change.
    pub(crate) fn scope(&self) -> Scope {
        self.scope.clone()
    }
}

impl Catalogue {
    pub(crate) fn new(given: Vec<(DeviceSpec, Arc<dyn DeviceFactory>)>) -> Self {
        Self {
            entries: BTreeMap::new(),
            bdevs: BTreeMap::new(),
            views: BTreeMap::new(),
            given,
            pair: None,
            is_restored: false,
            resized: None,
            slots: Slots::default(),
            uuids: BTreeSet::new(),
            devices: Devices::default(),
            reservation_files: ReservationFiles::default(),
            tls: None,
            owners: BTreeMap::new(),
            owner_changes: 0,
            shared: BTreeMap::new(),
            events: EventLogs::default(),
            policies: BTreeMap::new(),
            psks: BTreeMap::new(),
            generated: Arc::default(),
            discovery_shared: SubsystemShared::new(),
            generation: 0,
            shown: Vec::new(),
            ports: Vec::new(),
            referrals: Vec::new(),
            discovery: None,
            in_capsule_bytes: 0,
        }
    }

    /// The snapshot of a target that serves nothing yet, and its configuration.
    pub(crate) fn empty(&mut self, config: &Config) -> Result<(Snapshot, Config), TargetError> {
        self.pair.clone_from(&config.pair);
        self.is_restored = config.is_restored;
        let config = Config {
            ports: Vec::new(),
            subsystems: Vec::new(),
            operated: config::Operated::default(),
            ..config.clone()
        };
        Ok((self.snapshot(&config, &Scope::All, &BTreeMap::new())?, config))
    }

    /// Prepares to serve this configuration, which differs from the last one only within a scope,
    /// where namespaces are given their numbers. If it fails, nothing has changed.
    pub(crate) fn plan(&mut self, config: &mut Config, scope: Scope) -> Result<Plan, TargetError> {
        self.slots.forget_opened();
        let mut plan = Plan {
            scope,
            one: None,
            entries: BTreeMap::new(),
            policies: BTreeMap::new(),
            psks: BTreeMap::new(),
            bdevs: BTreeMap::new(),
            resizes: Vec::new(),
            restored: reservations::Restored::new(),
            opened: Vec::new(),
            ports: None,
        };
        self.plan_bdevs(config, &mut plan)?;
        let ports = ports(config);
        let others = plan.scope == Scope::All || ports != self.ports;
        if let Some((nqn, nsid)) = plan.scope.one().map(|(nqn, nsid)| (nqn.to_owned(), nsid))
            && let Some(discovery) = self.discovery.clone().filter(|_| !others)
        {
            self.plan_one(config, &nqn, nsid, discovery, &mut plan)?;
            return Ok(plan);
        }
        tls::check(config)?;
        let limited = config.rate_limits.iter().filter_map(|limit| limit.host.as_ref());
        let ruled = config.qos_rules.iter().filter_map(|rule| rule.host.as_ref());
        for host in limited.chain(ruled).flat_map(Hosts::names) {
            nqn(host)?;
        }
        for subsystem in config.subsystems.iter().filter(|one| plan.scope.contains(&one.nqn)) {
            check_names(subsystem)?;
            let policies = config.policies(subsystem).map_err(TargetError::new)?;
            plan.policies.insert(subsystem.nqn.clone(), Arc::new(policies));
            let psks = config.psks(subsystem).map_err(TargetError::new)?;
            plan.psks.insert(subsystem.nqn.clone(), Arc::new(psks));
        }
        for subsystem in &mut config.subsystems {
            if !plan.scope.contains(&subsystem.nqn) {
                continue;
            }
            let paths: Vec<_> = self.entries_of(&subsystem.nqn).map(Entry::path).collect();
            let entries = self.entries_of(&subsystem.nqn).zip(&paths);
            let owners: Vec<_> =
                entries.map(|(entry, path)| entry.owner(path.as_deref())).collect();
            let most = subsystem.most_namespaces(&config.limits);
            nsids::assign(subsystem, &owners, most)?;
            self.open_namespaces(subsystem, &mut plan)?;
            let nqn = &subsystem.nqn;
            let uuid = |nsid| Some(plan.entries.get(nqn)?.get(&nsid)?.identity.uuid);
            let known = |nsid| Some(self.entry(nqn, nsid)?.identity.uuid);
            let restored = reservations::restore(nqn, &subsystem.namespaces, uuid, known)?;
            plan.restored.extend(restored);
        }
        plan.ports = others.then_some(ports);
        Ok(plan)
    }

    /// Opens the block devices that are new, and finds those whose size changes.
    fn plan_bdevs(&self, config: &Config, plan: &mut Plan) -> Result<(), TargetError> {
        for bdev in plan.scope.bdevs(config) {
            let told = |error: &dyn std::fmt::Display| {
                TargetError::new(format!("block device {}: {error}", bdev.name))
            };
            let Some(known) = self.bdevs.get(&bdev.name) else {
                let factory = match (&bdev.base, &bdev.device) {
                    (Some(base), DeviceSpec::Delay { read, write, .. }) => {
                        let under = plan.bdevs.get(base).or_else(|| self.bdevs.get(base));
                        let under = under.ok_or_else(|| told(&format_args!("{base} is gone")))?;
                        let under = Arc::clone(&under.factory);
                        let delayed = DelayFactory::new(under, *read, *write);
                        Arc::new(delayed.map_err(|error| told(&error))?)
                    }
                    _ => self.build(&bdev.device).map_err(|error| told(&error))?,
                };
                let named = NamedDevice { spec: bdev.device.clone(), factory };
                plan.bdevs.insert(bdev.name.clone(), named);
                continue;
            };
            if known.spec == bdev.device && !plan.scope.refreshes(&bdev.name) {
                continue;
            }
            if !same_device(&known.spec, &bdev.device) {
                return Err(told(&"it is another device; delete it first"));
            }
            let wanted = Resize::wanted(&known.factory, &known.spec, &bdev.device, &told)?;
            plan.resizes.extend(wanted);
            let factory = Arc::clone(&known.factory);
            plan.bdevs
                .insert(bdev.name.clone(), NamedDevice { spec: bdev.device.clone(), factory });
        }
        Ok(())
    }

    /// Executes a plan of this configuration: gives devices their sizes and makes the snapshot,
    /// without write protection by hosts. If it fails, nothing has changed.
    pub(crate) fn apply(
        &mut self,
        config: &Config,
        plan: Plan,
        addresses: &BTreeMap<u16, SocketAddr>,
    ) -> Result<Snapshot, TargetError> {
        let Plan { scope, one, entries, resizes, restored, ports, .. } = plan;
        let Plan { mut policies, mut psks, bdevs, opened, .. } = plan;
        resize(resizes)?;
        let opened = opened.iter().map(|device| &device.factory);
        opened.chain(bdevs.values().map(|named| &named.factory)).for_each(keep);
        // `append` would go through all of them.
        self.bdevs.extend(bdevs);
        self.forget_bdevs(config, &scope);
        self.slots.keep_opened();
        self.is_restored = false;
        if let Some(one) = one {
            return Ok(self.apply_one(config, one, restored));
        }
        let mut changes = Changes::default();
        if let Scope::Only(part) = &scope {
            changes.subsystems.clone_from(&part.subsystems);
            changes.removed = self.removed(&part.subsystems, &entries);
        }
        let other_keys = ports.is_some() || self.has_psks(&scope, &psks);
        let nqns: BTreeSet<&str> = config.subsystems.iter().map(|one| &*one.nqn).collect();
        let has = |nqn: &str| nqns.contains(nqn);
        self.forget_entries(|nqn| scope.contains(nqn) && !has(nqn));
        self.policies.append(&mut policies);
        self.policies.retain(|nqn, _| has(nqn));
        self.psks.append(&mut psks);
        self.psks.retain(|nqn, _| has(nqn));
        for (nqn, entries) in entries {
            self.note_owners(&nqn, &entries);
            self.replace_entries(nqn, entries);
        }
        reservations::keep_files(&mut self.reservation_files, config, |nqn| scope.contains(nqn));
        if other_keys {
            self.tls = tls::acceptor(config, &self.psks, &self.generated)?;
        }
        let before = self.discovery.clone();
        let mut snapshot = self.snapshot(config, &scope, addresses)?;
        let concerned = snapshot.subsystems.iter().filter(|(nqn, _)| scope.contains(nqn));
        reservations::serve(concerned, restored);
        if before.is_none_or(|before| !Arc::ptr_eq(&before, &snapshot.discovery)) {
            changes.subsystems.push(snapshot.discovery.nqn.as_str().to_owned());
        }
        let is_a_part = ports.is_none() && matches!(scope, Scope::Only(_));
        snapshot.changes = is_a_part.then_some(changes);
        Ok(snapshot)
    }

    /// Forgets block devices that are gone.
    fn forget_bdevs(&mut self, config: &Config, scope: &Scope) {
        match scope {
            Scope::All => self.bdevs.retain(|name, _| config.bdev(name).is_some()),
            Scope::Only(Part { bdev: Some(name), .. }) if config.bdev(name).is_none() => {
                self.bdevs.remove(name);
            }
            Scope::Only(_) => {}
        }
    }

    /// The keys of TLS of the hosts of each subsystem.
    pub(crate) const fn psks(&self) -> &BTreeMap<String, Arc<Psks>> {
        &self.psks
    }

    /// Whether a host has, or had, a key of TLS at a subsystem of this scope.
    fn has_psks(&self, scope: &Scope, next: &BTreeMap<String, Arc<Psks>>) -> bool {
        let any = |psks: &Psks| psks.values().any(|keys| !keys.is_empty());
        let mut before = self.psks.iter().filter(|(nqn, _)| scope.contains(nqn));
        before.any(|(_, psks)| any(psks)) || next.values().any(|psks| any(psks))
    }

    /// The devices of these subsystems that their next namespaces do not have.
    fn removed(&self, nqns: &[String], next: &BTreeMap<String, Entries>) -> Vec<DeviceId> {
        let mut removed = Vec::new();
        for nqn in nqns {
            for entry in self.entries_of(nqn) {
                let after = next.get(nqn).and_then(|entries| entries.get(&entry.nsid));
                if after.is_none_or(|after| after.device.id != entry.device.id) {
                    removed.push(entry.device.id);
                }
            }
        }
        removed
    }

    /// Forgets the namespaces of subsystems that are gone.
    fn forget_entries(&mut self, is_gone: impl Fn(&str) -> bool) {
        let gone: Vec<String> = self.entries.keys().filter(|nqn| is_gone(nqn)).cloned().collect();
        for nqn in gone {
            self.replace_entries(nqn.clone(), Entries::new());
            self.entries.remove(&nqn);
            self.devices.remove(&nqn);
        }
    }

    /// A namespace of a subsystem is this one from now on, or there is none. Returns the device
    /// that it no longer has.
    fn replace_entry(&mut self, nqn: &str, nsid: u32, entry: Option<Entry>) -> Option<DeviceId> {
        let entries = self.entries.entry(nqn.to_owned()).or_default();
        let (device, uuid) = match &entry {
            Some(entry) => (Some(entry.device.id), Some(entry.identity.uuid)),
            None => (None, None),
        };
        let before = match entry {
            Some(entry) => entries.insert(nsid, entry),
            None => entries.remove(&nsid),
        };
        let devices = entries.values().map(|entry| Arc::clone(&entry.device)).collect();
        self.devices.insert(nqn.to_owned(), devices);
        let before = before.map(|before| (before.device.id, before.identity.uuid));
        if before.map(|(_, uuid)| uuid) != uuid {
            if let Some((_, uuid)) = before {
                self.uuids.remove(&(uuid, nqn.to_owned(), nsid));
            }
            self.uuids.extend(uuid.map(|uuid| (uuid, nqn.to_owned(), nsid)));
        }
        let removed = before.map(|(id, _)| id).filter(|id| Some(*id) != device);
        removed.iter().for_each(|id| self.slots.release(*id));
        removed
    }

    /// A subsystem has these namespaces from now on.
    fn replace_entries(&mut self, nqn: String, entries: Entries) {
        let devices = entries.values().map(|entry| Arc::clone(&entry.device)).collect();
        self.devices.insert(nqn.clone(), devices);
        let before = self.entries.insert(nqn.clone(), entries).unwrap_or_default();
        let after = self.entries.get(&nqn);
        for (nsid, entry) in &before {
            let now = after.and_then(|after| after.get(nsid));
            if now.is_none_or(|now| now.identity.uuid != entry.identity.uuid) {
                self.uuids.remove(&(entry.identity.uuid, nqn.clone(), *nsid));
            }
            if now.is_none_or(|now| now.device.id != entry.device.id) {
                self.slots.release(entry.device.id);
            }
        }
        for (nsid, entry) in after.into_iter().flatten() {
            let was = before.get(nsid);
            if was.is_none_or(|was| was.identity.uuid != entry.identity.uuid) {
                self.uuids.insert((entry.identity.uuid, nqn.clone(), *nsid));
            }
        }
    }

    fn snapshot(
        &mut self,
        config: &Config,
        scope: &Scope,
        addresses: &BTreeMap<u16, SocketAddr>,
    ) -> Result<Snapshot, TargetError> {
        let mut subsystems = BTreeMap::new();
        for subsystem in &config.subsystems {
            let view = match self.views.get(&subsystem.nqn) {
                Some(view) if !scope.contains(&subsystem.nqn) => Arc::clone(view),
                _ => Arc::new(self.view(subsystem, config)?),
            };
            subsystems.insert(subsystem.nqn.clone(), view);
        }
        let before = std::mem::replace(&mut self.views, subsystems);
        self.shared.retain(|nqn, _| self.views.contains_key(nqn));
        let ports = ports(config);
        let is_shown_alike = *scope != Scope::All
            && ports == self.ports
            && config.operated.referrals == self.referrals
            && shows_alike(&before, &self.views);
        let discovery = match &self.discovery {
            Some(discovery) if is_shown_alike => Arc::clone(discovery),
            _ => {
                let views = self.views.clone();
                Arc::new(self.discovery_view(&ports, &views, addresses, config)?)
            }
        };
        self.ports = ports;
        self.referrals.clone_from(&config.operated.referrals);
        self.discovery = Some(Arc::clone(&discovery));
        self.in_capsule_bytes = self.in_capsule_bytes.max(config.limits.in_capsule_bytes);
        Ok(self.snapshot_of(config, discovery))
    }

    /// What is served now.
    fn snapshot_of(&self, config: &Config, discovery: Arc<SubsystemView>) -> Snapshot {
        Snapshot {
            version: 1,
            ports: self.ports.clone(),
            subsystems: self.views.clone(),
            discovery,
            devices: self.devices.clone(),
            transport: transport_limits(&config.limits, self.in_capsule_bytes),
            limits: config.limits.clone(),
            rate_limits: Arc::default(),
            reservation_files: self.reservation_files.clone(),
            idle_poll: config.idle_poll,
            express: config.express,
            qos_rules: Arc::new(config.qos_rules.clone()),
            tls: self.tls.clone(),
            generated: Arc::clone(&self.generated),
            connections_max: connections_max(&config.limits),
            changes: None,
        }
    }

    /// The UUID of a namespace whose contents outlive this process.
    pub(crate) fn lasting_uuid(&self, nqn: &str, nsid: u32) -> Option<[u8; 16]> {
        let entry = self.entry(nqn, nsid)?;
        entry.device.factory.survives_restart().then_some(entry.identity.uuid)
    }

    /// Block size and blocks of a block device that has a name.
    pub(crate) fn bdev_size(&self, name: &str) -> Option<(u32, u64)> {
        let geometry = self.bdevs.get(name)?.factory.geometry();
        Some((geometry.block_bytes, geometry.blocks))
    }

    /// Has the namespaces have the reservations that were kept, and no others.
    pub(crate) fn read_reservations(&self, config: &Config) -> Result<(), TargetError> {
        for subsystem in &config.subsystems {
            let (nqn, namespaces) = (&subsystem.nqn, &subsystem.namespaces);
            let uuid = |nsid| Some(self.entry(nqn, nsid)?.identity.uuid);
            let mut kept = reservations::restore(nqn, namespaces, uuid, |_| None)?;
            let Some(view) = self.views.get(nqn) else { continue };
            for namespace in namespaces {
                let kept = kept.remove(&(nqn.clone(), namespace.nsid)).unwrap_or_default();
                view.shared.reservations().replace(namespace.nsid, kept);
            }
        }
        Ok(())
    }

    /// Flushes every device. What is returned are those whose data is not safe.
    pub(crate) fn sync(&self) -> Vec<String> {
        let outcome = |factory: &Arc<dyn DeviceFactory>| match factory.sync() {
            Err(error) => Some(format!("{} could not be synced: {error}", factory.identity())),
            Ok(()) => factory.detached(),
        };
        let entries = self.entries.values().flat_map(BTreeMap::values);
        let own = entries.filter(|entry| entry.bdev.is_none()).map(|entry| &entry.device.factory);
        own.chain(self.bdevs.values().map(|bdev| &bdev.factory)).filter_map(outcome).collect()
    }

    fn entries_of(&self, nqn: &str) -> impl Iterator<Item = &Entry> {
        self.entries.get(nqn).into_iter().flat_map(BTreeMap::values)
    }

    fn entry(&self, nqn: &str, nsid: u32) -> Option<&Entry> {
        self.entries.get(nqn)?.get(&nsid)
    }

    /// Finds or opens the device of each namespace, and gives the namespaces their identities.
    fn open_namespaces(
        &mut self,
        subsystem: &Subsystem,
        plan: &mut Plan,
    ) -> Result<(), TargetError> {
        let (mut opened, mut known) = (Vec::new(), Vec::new());
        for namespace in &subsystem.namespaces {
            let entry = self.entry(&subsystem.nqn, namespace.nsid);
            known.push(entry.map(|entry| entry.identity.uuid));
            let kept = entry.filter(|entry| entry.keeps_device(namespace));
            opened.push(match kept {
                Some(entry) => {
                    if entry.bdev.is_none() && plan.looks_at(entry, namespace) {
                        let told = |error: &dyn std::fmt::Display| {
                            TargetError::namespace(&entry.subsystem, entry.nsid, error)
                        };
                        let (factory, spec) = (&entry.device.factory, &entry.spec);
                        let wanted = Resize::wanted(factory, spec, &namespace.device, &told)?;
                        plan.resizes.extend(wanted);
                    }
                    Arc::clone(&entry.device)
                }
                None if entry.is_some_and(|entry| entry.device.factory.has_lost_writes()) => {
                    let what = "its writes were lost, which another opening would hide; remove it \
                                with one reload and add it again with the next";
                    return Err(TargetError::namespace(&subsystem.nqn, namespace.nsid, &what));
                }
                None => {
                    let device = self.open(&subsystem.nqn, namespace, plan)?;
                    plan.opened.push(Arc::clone(&device));
                    device
                }
            });
        }
        check_aliases(subsystem, &opened)?;
        let named = opened.iter().map(|device| identity::Device {
            identity: device.factory.identity(),
            survives_restart: device.factory.survives_restart(),
        });
        let identities = identity::namespaces(subsystem, &named.collect::<Vec<_>>(), &known);
        let mut entries = Entries::new();
        for ((namespace, device), identity) in
            subsystem.namespaces.iter().zip(opened).zip(identities)
        {
            let entry = Entry {
                subsystem: subsystem.nqn.clone(),
                nsid: namespace.nsid,
                spec: namespace.device.clone(),
                bdev: namespace.bdev.clone(),
                device,
                identity,
            };
            self.check_block_size(&entry)?;
            entries.insert(entry.nsid, entry);
        }
        plan.entries.insert(subsystem.nqn.clone(), entries);
        Ok(())
    }

    fn open(
        &mut self,
        nqn: &str,
        namespace: &Namespace,
        plan: &Plan,
    ) -> Result<Arc<ServedDevice>, TargetError> {
        let factory = self.factory(namespace, plan);
        let factory =
            factory.map_err(|error| TargetError::namespace(nqn, namespace.nsid, &error))?;
        let subsystem = self.shared_of(nqn);
        let device = self.slots.open(|id| ServedDevice { id, factory, subsystem });
        let full = || TargetError::namespace(nqn, namespace.nsid, &"there are too many devices");
        device.ok_or_else(full)
    }

    /// The device of a namespace that is new: a block device with a name, one that the target's
    /// owner has made, or a new one.
    fn factory(
        &self,
        namespace: &Namespace,
        plan: &Plan,
    ) -> Result<Arc<dyn DeviceFactory>, String> {
        if let Some(name) = &namespace.bdev {
            let bdev = plan.bdevs.get(name).or_else(|| self.bdevs.get(name));
            let factory = bdev.map(|bdev| Arc::clone(&bdev.factory));
            return factory.ok_or_else(|| format!("there is no block device {name:?}"));
        }
        match self.given.iter().find(|(spec, _)| *spec == namespace.device) {
            Some((_, factory)) => Ok(Arc::clone(factory)),
            None => self.build(&namespace.device).map_err(|error| error.to_string()),
        }
    }

    /// Hosts that know a UUID keep using the block size that it had.
    fn check_block_size(&self, entry: &Entry) -> Result<(), TargetError> {
        let before = self.entry(&entry.subsystem, entry.nsid);
        if before.is_some_and(|before| Arc::ptr_eq(&before.device, &entry.device)) {
            return Ok(());
        }
        let uuid = entry.identity.uuid;
        let mut same = self.uuids.range((uuid, String::new(), 0)..);
        let was = same.next().filter(|known| known.0 == uuid);
        let was = was.and_then(|(_, nqn, nsid)| self.entry(nqn, *nsid));
        let is = entry.device.factory.geometry().block_bytes;
        let Some(was) = was.map(|old| old.device.factory.geometry().block_bytes) else {
            return Ok(());
        };
        if was == is {
            return Ok(());
        }
        let what = format!(
            "the blocks of {} are {was} bytes and would be {is}, and hosts that use it would reach \
             other data; give it another `nsid` and `uuid`, or remove it with one reload and add \
             it again with the next",
            entry.spec
        );
        Err(TargetError::namespace(&entry.subsystem, entry.nsid, &what))
    }

    /// Counts the numbers whose owner is not their last one.
    fn note_owners(&mut self, nqn: &str, entries: &Entries) {
        let owners = self.owners.entry(nqn.to_owned()).or_default();
        for entry in entries.values() {
            let uuid = entry.identity.uuid;
            let block_bytes = entry.device.factory.geometry().block_bytes;
            let last = owners.get(&entry.nsid);
            if last.is_some_and(|last| (last.uuid, last.block_bytes) == (uuid, block_bytes)) {
                continue;
            }
            let change = match last {
                None => 0,
                Some(_) => {
                    self.owner_changes += 1;
                    self.owner_changes
                }
            };
            owners.insert(entry.nsid, NsidOwner { uuid, block_bytes, change });
        }
    }
}

impl Entry {
    /// Canonical path of the device, if it has one.
    fn path(&self) -> Option<String> {
        self.spec.stored_name().map(|_| self.device.factory.identity())
    }

    /// Whether a namespace of the same number has the same device, perhaps of another size.
    fn keeps_device(&self, namespace: &Namespace) -> bool {
        self.bdev == namespace.bdev && same_device(&self.spec, &namespace.device)
    }

    fn owner<'a>(&'a self, path: Option<&'a str>) -> nsids::ServedNamespace<'a> {
        let storage = self.device.factory.storage();
        nsids::ServedNamespace {
            nsid: self.nsid,
            uuid: self.identity.uuid,
            spec: &self.spec,
            path,
            storage: storage.map(|storage| storage.id()),
            bdev: self.bdev.as_deref(),
        }
    }
}

fn ports(config: &Config) -> Vec<PortView> {
    config.ports.iter().map(PortView::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A namespace that is added and removed: its place is used again, its identifier is not.
    #[test]
    fn places_of_devices_are_used_again_under_other_identifiers() {
        let mut catalogue = Catalogue::new(Vec::new());
        let mut config = Config { subsystems: vec![Subsystem::new("nqn.a")], ..Config::default() };
        let mut ids = std::collections::BTreeSet::new();
        let mut held = None;
        for _ in 0..2 * DeviceId::GENERATIONS_MAX {
            config.subsystems[0].namespaces =
                vec![Namespace::new(1, DeviceSpec::Null { bytes: 1 << 20, block_bytes: 4096 })];
            let plan = catalogue.plan(&mut config, Scope::All).expect("a plan");
            let snapshot = catalogue.apply(&config, plan, &BTreeMap::new()).expect("a snapshot");
            let device = snapshot.devices().next().expect("a device").id.0;
            assert!(ids.insert(device), "no identifier is used twice");
            // A group may have a device for a while after it was removed.
            held = Some(snapshot);
            config.subsystems[0].namespaces.clear();
            let plan = catalogue.plan(&mut config, Scope::All).expect("a plan");
            catalogue.apply(&config, plan, &BTreeMap::new()).expect("a snapshot");
        }
        drop(held);
        assert!(catalogue.slots.len() <= 4, "{} places", catalogue.slots.len());
    }

    /// The 1,000th namespace of a subsystem beside another one of 1,000.
    #[test]
    fn a_namespace_concerns_its_subsystem_alone() {
        let mut catalogue = Catalogue::new(Vec::new());
        let null =
            |nsid| Namespace::new(nsid, DeviceSpec::Null { bytes: 1 << 20, block_bytes: 4096 });
        let mut subsystems = ["nqn.a", "nqn.b"].map(Subsystem::new);
        subsystems[0].namespaces = (1..=999).map(null).collect();
        subsystems[1].namespaces = (1..=1000).map(null).collect();
        let mut config = Config { subsystems: subsystems.to_vec(), ..Config::default() };
        let mut make = |config: &Config, scope| {
            let plan = catalogue.plan(&mut config.clone(), scope).expect("a plan");
            let needs = plan.needs();
            (needs, catalogue.apply(config, plan, &BTreeMap::new()).expect("a snapshot"))
        };
        let (_, before) = make(&config, Scope::All);
        assert_eq!(before.changes, None, "all may be others");
        let scope =
            || Scope::Only(Part { subsystems: vec!["nqn.a".to_owned()], ..Part::default() });
        config.subsystems[0].namespaces.push(null(1000));
        let (needs, after) = make(&config, scope());
        let needs = needs.expect("a device");
        assert_eq!((needs.devices.len(), needs.ports.is_none()), (1, true));
        let added = after.subsystems["nqn.a"].namespaces.get(1000).expect("added").device;
        assert_eq!(needs.devices[0].id, DeviceId(added));
        let only = |removed| Changes { after: 0, subsystems: vec!["nqn.a".to_owned()], removed };
        assert_eq!(after.changes, Some(only(Vec::new())));
        assert!(Arc::ptr_eq(&before.subsystems["nqn.b"], &after.subsystems["nqn.b"]));
        assert!(Arc::ptr_eq(&before.discovery, &after.discovery), "no host hears of it");
        config.subsystems[0].namespaces.pop();
        let (needs, after) = make(&config, scope());
        assert!(needs.is_none(), "nothing is opened");
        assert_eq!(after.changes, Some(only(vec![DeviceId(added)])));
        // What the discovery log shows of a subsystem concerns the discovery controllers as well.
        config.subsystems[0].allowed_hosts = Some(vec!["nqn.h".to_owned()]);
        let (_, after) = make(&config, scope());
        let concerned = after.changes.map(|changes| changes.subsystems.len());
        assert_eq!(concerned, Some(2));
        assert!(!Arc::ptr_eq(&before.discovery, &after.discovery));
    }
}
