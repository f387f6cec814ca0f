//! From a configuration to a snapshot, and from one snapshot to the next when the configuration
//! changes.
//!
//! The catalogue keeps the device of each namespace, so that a namespace that is still configured
//! keeps its device, its contents and its identity.

mod checks;
mod devices;
mod discovery;
mod one;
pub(super) mod plan;
mod resize;
mod slots;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use weft_backend::{DeviceFactory, DeviceSpec, ResizeCallback};
use weft_nvmf::subsystem::{
    NamespaceView, SubsystemKind, SubsystemLimits, SubsystemShared, SubsystemView,
};
use weft_transport::tls::TlsAcceptor;

use self::checks::{check_folder, check_names, nqn};
use self::discovery::{DiscoveryLog, shows_alike};
use self::plan::{Entries, Entry, NamedDevice, Plan};
use self::resize::resize;
use self::slots::Slots;
use self::views::{host_namespaces, namespace_view, subsystem_limits, visibility};
use crate::config::{self, Config, Hosts, Namespace, Pair, Policies, Psks, Subsystem};
use crate::control::events::EventLogs;
use crate::control::nsids;
use crate::control::reservations;
use crate::shared::error::TargetError;
use crate::shared::ids::DeviceId;
use crate::shared::snapshot::{
    Changes, Devices, PartialScope, PortView, ReservationFiles, Scope, Snapshot, connections_max,
    transport_limits,
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
    /// Whether devices are only looked at.
    is_trial: bool,
    /// The pair that the target belongs to.
    pair: Option<Pair>,
    /// Whether the first configuration is what an earlier process has served.
    is_restored: bool,
    /// What is called when a device changes its size by itself.
    resized: Option<ResizeCallback>,
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
    discovery_log: DiscoveryLog,
    /// The ports and referrals of the last snapshot, and its discovery subsystem.
    ports: Vec<PortView>,
    referrals: Vec<config::Referral>,
    discovery: Option<Arc<SubsystemView>>,
    /// The largest limit of data in a capsule that a controller may have been given.
    in_capsule_bytes: u32,
}

/// The properties that hosts know of the namespace that has a number, or had it last.
#[derive(Debug, Clone, Copy)]
struct NsidOwner {
    uuid: [u8; 16],
    block_bytes: u32,
    change: u64,
}

/// A file that was made for a device stays from now on.
fn keep(factory: &Arc<dyn DeviceFactory>) {
    factory.storage().into_iter().for_each(|storage| storage.keep());
}

impl Catalogue {
    pub(crate) fn new(given: Vec<(DeviceSpec, Arc<dyn DeviceFactory>)>) -> Self {
        Self {
            entries: BTreeMap::new(),
            bdevs: BTreeMap::new(),
            views: BTreeMap::new(),
            given,
            is_trial: false,
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
            discovery_log: DiscoveryLog::new(),
            ports: Vec::new(),
            referrals: Vec::new(),
            discovery: None,
            in_capsule_bytes: 0,
        }
    }

    /// One whose devices are only looked at.
    pub(crate) fn on_trial() -> Self {
        Self { is_trial: true, ..Self::new(Vec::new()) }
    }

    /// The snapshot of a target that serves nothing yet, and its configuration.
    pub(crate) fn empty(&mut self, config: &Config) -> Result<(Snapshot, Config), TargetError> {
        self.pair.clone_from(&config.pair);
        self.is_restored = config.is_restored;
        let config = Config {
            ports: Vec::new(),
            subsystems: Vec::new(),
            operated: config::RuntimeObjects::default(),
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
            restored: reservations::ReservationsByNamespace::new(),
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
            if !self.views.contains_key(&subsystem.nqn) {
                check_folder(subsystem)?;
            }
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
            Scope::Only(PartialScope { bdev: Some(name), .. }) if config.bdev(name).is_none() => {
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
            _ => Arc::new(self.discovery_log.view(&ports, &self.views, addresses, config)?),
        };
        self.ports = ports;
        self.referrals.clone_from(&config.operated.referrals);
        self.discovery = Some(Arc::clone(&discovery));
        self.in_capsule_bytes = self.in_capsule_bytes.max(config.limits.in_capsule_bytes);
        Ok(self.snapshot_of(config, discovery))
    }

    fn namespace_view(&self, nqn: &str, namespace: &Namespace) -> Option<NamespaceView> {
        let entry = self.entry(nqn, namespace.nsid)?;
        let owner = self.owners.get(nqn).and_then(|owners| owners.get(&entry.nsid));
        let mut view = namespace_view(entry, owner.map_or(0, |owner| owner.change));
        view.capabilities.read_only |= namespace.read_only;
        view.ana_group = namespace.ana_group();
        view.capabilities.persistent_reservations = namespace.ptpl_file.is_some();
        Some(view)
    }

    /// The Persistent Event Logs are these, which is to be said before anything is served.
    pub(crate) fn keep_events(&mut self, events: EventLogs) {
        self.events = events;
    }

    /// Writes what was recorded in the Persistent Event Logs.
    pub(crate) fn write_events(&self) -> Result<(), String> {
        self.events.write()
    }

    fn shared_of(&mut self, nqn: &str) -> Arc<SubsystemShared> {
        let begin = || SubsystemShared::with_events(self.events.begin(nqn));
        Arc::clone(self.shared.entry(nqn.to_owned()).or_insert_with(begin))
    }

    /// What hosts see of a subsystem.
    fn view(
        &mut self,
        subsystem: &Subsystem,
        config: &Config,
    ) -> Result<SubsystemView, TargetError> {
        let namespaces = subsystem.namespaces.iter();
        let namespaces = namespaces.filter_map(|one| self.namespace_view(&subsystem.nqn, one));
        let namespaces = namespaces.collect();
        let shared = self.shared_of(&subsystem.nqn);
        shared.events().record_power_on(&subsystem.firmware);
        let mut view = SubsystemView {
            nqn: nqn(&subsystem.nqn)?,
            kind: SubsystemKind::Nvm,
            serial: subsystem.serial(),
            model: subsystem.model.clone(),
            firmware: subsystem.firmware.clone(),
            namespaces,
            owner_changes: self.owner_changes,
            visibility: visibility(subsystem),
            host_namespaces: None,
            allowed_hosts: subsystem
                .allowed_hosts
                .as_ref()
                .map(|hosts| hosts.iter().map(|host| nqn(host)).collect())
                .transpose()?
                .map(Arc::new),
            ana: config.ana_view(subsystem).map(Arc::new),
            policies: self.policies.get(&subsystem.nqn).cloned().unwrap_or_default(),
            controller_model: subsystem.controllers,
            limits: SubsystemLimits {
                controller_ids: subsystem.controller_ids(config.pair.as_ref()),
                max_namespaces: subsystem.most_namespaces(&config.limits),
                max_io_queues: subsystem.qid_max.map_or(config.limits.io_queues, |most| {
                    most.get().min(config.limits.io_queues)
                }),
                weighted_round_robin: config.express,
                subsystem_reset: subsystem.subsystem_reset,
                ..subsystem_limits(&config.limits)
            },
            shared,
        };
        view.host_namespaces = host_namespaces(subsystem, &view.namespaces);
        Ok(view)
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

    /// The UUID of a namespace, and its device.
    pub(crate) fn served(&self, nqn: &str, nsid: u32) -> Option<([u8; 16], &dyn DeviceFactory)> {
        let entry = self.entry(nqn, nsid)?;
        Some((entry.identity.uuid, &*entry.device.factory))
    }

    /// The UUID of a namespace whose contents outlive this process.
    pub(crate) fn lasting_uuid(&self, nqn: &str, nsid: u32) -> Option<[u8; 16]> {
        let entry = self.entry(nqn, nsid)?;
        entry.device.factory.survives_restart().then_some(entry.identity.uuid)
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

    fn entries_of(&self, nqn: &str) -> impl Iterator<Item = &Entry> {
        self.entries.get(nqn).into_iter().flat_map(BTreeMap::values)
    }

    fn entry(&self, nqn: &str, nsid: u32) -> Option<&Entry> {
        self.entries.get(nqn)?.get(&nsid)
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
        let scope = || {
            Scope::Only(PartialScope {
                subsystems: vec!["nqn.a".to_owned()],
                ..PartialScope::default()
            })
        };
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
