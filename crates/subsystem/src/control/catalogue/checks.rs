//! What is checked of subsystems before anything is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weft_nvme::Nqn;

use super::{Catalogue, Entries, Entry, Plan};
use crate::config::Subsystem;
use crate::control::settled::is_same_storage;
use crate::shared::error::TargetError;
use crate::shared::snapshot::ServedDevice;

/// Two namespaces of a subsystem must not use one file or device, whatever its paths.
pub(super) fn check_aliases(
    subsystem: &Subsystem,
    opened: &[Arc<ServedDevice>],
) -> Result<(), TargetError> {
    let mut seen = BTreeMap::new();
    for (namespace, device) in subsystem.namespaces.iter().zip(opened) {
        let Some(storage) = device.factory.storage() else { continue };
        if let Some(first) = seen.insert(storage.id(), namespace.nsid) {
            return Err(alias(&subsystem.nqn, namespace.nsid, device, first));
        }
    }
    Ok(())
}

pub(super) fn alias(nqn: &str, nsid: u32, device: &ServedDevice, first: u32) -> TargetError {
    let what = format!("{} is what namespace {first} stands on", device.factory.identity());
    TargetError::namespace(nqn, nsid, &what)
}

/// Invalid names are found before anything is done.
pub(super) fn check_names(subsystem: &Subsystem) -> Result<(), TargetError> {
    nqn(&subsystem.nqn)?;
    let hosts = subsystem.allowed_hosts.iter().flatten().chain(&subsystem.listed_hosts);
    let seeing = subsystem.namespaces.iter().flat_map(|one| one.visible_to.iter().flatten());
    for host in hosts.chain(seeing) {
        nqn(host)?;
    }
    Ok(())
}

pub(super) fn nqn(name: &str) -> Result<Nqn, TargetError> {
    name.parse().map_err(|error| TargetError::name(name, &error))
}

impl Catalogue {
    /// The namespaces whose device another one gets by a plan of a whole configuration, each with
    /// the name of its subsystem.
    pub(crate) fn moved(&self, plan: &Plan) -> BTreeSet<(String, u32)> {
        type Subsystems = BTreeMap<String, Entries>;
        let without = |these: &Subsystems, others: &Subsystems| -> Vec<_> {
            let stays = |entry: &&Entry| {
                let other = others.get(&entry.subsystem).and_then(|all| all.get(&entry.nsid));
                other.is_some_and(|other| Arc::ptr_eq(&other.device, &entry.device))
            };
            let all = these.values().flat_map(BTreeMap::values).filter(|entry| !stays(entry));
            let key = |entry: &Entry| (entry.subsystem.clone(), entry.nsid);
            all.map(|entry| (key(entry), Arc::clone(&entry.device.factory))).collect()
        };
        let gained = without(&plan.entries, &self.entries);
        let lost = without(&self.entries, &plan.entries).into_iter();
        let moved = lost.filter(|(key, factory)| {
            let mut gained = gained.iter().filter(|(other, _)| other != key);
            gained.any(|(_, other)| is_same_storage(other, factory))
        });
        moved.map(|(key, _)| key).collect()
    }
}
