//! A change of one namespace: no other one, and nothing else of its subsystem, is planned again.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::sync::Arc;

use weft_nvmf::subsystem::SubsystemView;

use super::Catalogue;
use super::checks::{alias, nqn as name};
use super::plan::{Entries, Entry, OnePlan, Plan};
use super::views::{host_namespaces, visibility};
use crate::config::{Config, Namespace, Subsystem, identity};
use crate::control::reservations;
use crate::control::settled::is_same_storage;
use crate::shared::error::TargetError;
use crate::shared::snapshot::{Changes, ServedDevice, Snapshot};

/// The namespace of this number, and its subsystem.
fn find<'a>(config: &'a Config, nqn: &str, nsid: u32) -> Option<(&'a Subsystem, &'a Namespace)> {
    let subsystem = config.subsystems.iter().find(|subsystem| subsystem.nqn == nqn)?;
    Some((subsystem, subsystem.namespaces.iter().find(|one| one.nsid == nsid)?))
}

impl Catalogue {
    /// Prepares to serve a namespace as it is configured, or no longer.
    pub(super) fn plan_one(
        &mut self,
        config: &Config,
        nqn: &str,
        nsid: u32,
        discovery: Arc<SubsystemView>,
        plan: &mut Plan,
    ) -> Result<(), TargetError> {
        let mut one = OnePlan { nqn: nqn.to_owned(), nsid, entry: None, discovery };
        if let Some((subsystem, namespace)) = find(config, nqn, nsid) {
            let entry = self.plan_entry(subsystem, namespace, plan)?;
            let known = self.entry(nqn, nsid).map(|known| known.identity.uuid);
            let uuid = Some(entry.identity.uuid);
            let restored = reservations::restore(nqn, [namespace], |_| uuid, |_| known)?;
            plan.restored.extend(restored);
            one.entry = Some(entry);
        }
        plan.one = Some(one);
        Ok(())
    }

    fn plan_entry(
        &mut self,
        subsystem: &Subsystem,
        namespace: &Namespace,
        plan: &mut Plan,
    ) -> Result<Entry, TargetError> {
        let (nqn, nsid) = (&subsystem.nqn, namespace.nsid);
        for host in namespace.visible_to.iter().flatten() {
            name(host)?;
        }
        let known = self.entry(nqn, nsid).map(|known| known.identity.uuid);
        let opened = plan.opened.len();
        let device = self.device(nqn, namespace, plan)?;
        if plan.opened.len() > opened {
            self.check_alias(nqn, namespace, &device)?;
        }
        let named = identity::Device::of(&*device.factory);
        // Equal null devices may ask often.
        let used = OnceCell::new();
        let all = || self.entries_of(nqn).map(|entry| entry.identity.uuid).collect();
        let is_used = |uuid: &[u8; 16]| {
            let used: &HashSet<_> = used.get_or_init(all);
            used.contains(uuid)
        };
        let known = identity::KnownIdentity { uuid: known, used: &mut 0 };
        let identity = identity::namespace(nqn, namespace, &named, known, is_used);
        let entry = Entry::new(nqn, namespace, device, identity);
        self.check_block_size(&entry)?;
        Ok(entry)
    }

    /// No other namespace of its subsystem may use the same file or device, whatever its path.
    fn check_alias(
        &self,
        nqn: &str,
        namespace: &Namespace,
        device: &ServedDevice,
    ) -> Result<(), TargetError> {
        let is_it = |entry: &&Entry| {
            entry.nsid != namespace.nsid
                && is_same_storage(&entry.device.factory, &device.factory)
                && device.factory.storage().is_some()
        };
        let first = self.entries_of(nqn).find(is_it);
        first.map_or(Ok(()), |first| Err(alias(nqn, namespace.nsid, device, first.nsid)))
    }

    /// Executes the plan for one namespace, and makes the snapshot.
    pub(super) fn apply_one(
        &mut self,
        config: &Config,
        one: OnePlan,
        restored: reservations::ReservationsByNamespace,
    ) -> Snapshot {
        let OnePlan { nqn, nsid, entry, discovery } = one;
        let mut changes = Changes { subsystems: vec![nqn.clone()], ..Changes::default() };
        let found = find(config, &nqn, nsid);
        if let Some(entry) = &entry {
            self.note_owners(&nqn, &Entries::from([(nsid, entry.clone())]));
        }
        if let Some(removed) = self.replace_entry(&nqn, nsid, entry) {
            changes.removed.push(removed);
        }
        let file = found.and_then(|(_, one)| one.ptpl_file.as_deref());
        reservations::keep_file(&mut self.reservation_files, &nqn, nsid, file);
        let namespace = found.and_then(|(_, namespace)| self.namespace_view(&nqn, namespace));
        let subsystem = config.subsystems.iter().find(|subsystem| subsystem.nqn == nqn);
        if let Some(view) = self.views.get_mut(&nqn) {
            // The one that is served stays as it is.
            let view = Arc::make_mut(view);
            view.namespaces = view.namespaces.with(nsid, namespace);
            view.owner_changes = self.owner_changes;
            view.visibility = subsystem.map(visibility).unwrap_or_default();
            let own = subsystem.and_then(|one| host_namespaces(one, &view.namespaces));
            view.host_namespaces = own;
            if view.ana.is_some() {
                view.ana = subsystem.and_then(|one| config.ana_view(one)).map(Arc::new);
            }
            reservations::serve_one(view, nsid, restored);
        }
        Snapshot { changes: Some(changes), ..self.snapshot_of(config, discovery) }
    }
}
