//! The devices of a catalogue: opened as they are configured, looked at, and told of their sizes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use weft_backend::delay::DelayFactory;
use weft_backend::{DeviceFactory, DeviceSpec, OpenError, ResizeCallback};

use super::Catalogue;
use super::checks::{check_aliases, check_reservations_file};
use super::plan::{Entries, Entry, NamedDevice, Plan};
use super::resize::Resize;
use crate::config::{Config, Namespace, Subsystem, identity, implied_bdev_name};
use crate::control::nsids::{canonical_path, same_device};
use crate::control::settled::is_same_storage;
use crate::shared::error::TargetError;
use crate::shared::snapshot::ServedDevice;

impl Catalogue {
    /// Opens the block devices that are new, and finds those whose size changes.
    pub(super) fn plan_bdevs(&self, config: &Config, plan: &mut Plan) -> Result<(), TargetError> {
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

    /// Finds or opens the device of each namespace, and gives the namespaces their identities.
    pub(super) fn open_namespaces(
        &mut self,
        subsystem: &Subsystem,
        plan: &mut Plan,
    ) -> Result<(), TargetError> {
        let (mut opened, mut known) = (Vec::new(), Vec::new());
        for namespace in &subsystem.namespaces {
            let entry = self.entry(&subsystem.nqn, namespace.nsid);
            known.push(entry.map(|entry| entry.identity.uuid));
            opened.push(self.device(&subsystem.nqn, namespace, plan)?);
        }
        check_aliases(subsystem, &opened)?;
        let named: Vec<_> = opened.iter().map(|one| identity::Device::of(&*one.factory)).collect();
        let identities = identity::namespaces(subsystem, &named, &known);
        let mut entries = Entries::new();
        for ((namespace, device), identity) in
            subsystem.namespaces.iter().zip(opened).zip(identities)
        {
            let entry = Entry::new(&subsystem.nqn, namespace, device, identity);
            self.check_block_size(&entry)?;
            entries.insert(entry.nsid, entry);
        }
        plan.entries.insert(subsystem.nqn.clone(), entries);
        Ok(())
    }

    /// The device of a namespace: the one that it has, perhaps of another size from now on, or one
    /// that is opened.
    pub(super) fn device(
        &mut self,
        nqn: &str,
        namespace: &Namespace,
        plan: &mut Plan,
    ) -> Result<Arc<ServedDevice>, TargetError> {
        let told =
            |error: &dyn std::fmt::Display| TargetError::namespace(nqn, namespace.nsid, error);
        let kept_in = self.reservation_files.get(nqn).and_then(|files| files.get(&namespace.nsid));
        if kept_in.map(|file| &***file) != namespace.ptpl_file.as_deref() {
            check_reservations_file(nqn, namespace)?;
        }
        let known = self.entry(nqn, namespace.nsid);
        if let Some(kept) = known.filter(|known| known.keeps_device(namespace)) {
            if kept.bdev.is_none() && plan.looks_at(kept, namespace) {
                let (factory, spec) = (&kept.device.factory, &kept.spec);
                plan.resizes.extend(Resize::wanted(factory, spec, &namespace.device, &told)?);
            }
            return Ok(Arc::clone(&kept.device));
        }
        if known.is_some_and(|known| known.device.factory.has_lost_writes()) {
            let what = "its writes were lost, which another opening would hide; remove it with \
                        one reload and add it again with the next";
            return Err(told(&what));
        }
        let device = self.open(nqn, namespace, plan)?;
        plan.opened.push(Arc::clone(&device));
        Ok(device)
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
    pub(super) fn check_block_size(&self, entry: &Entry) -> Result<(), TargetError> {
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

    /// Calls this after a device has changed its size by itself: one that is open, or is opened
    /// later.
    pub(crate) fn when_resized(&mut self, resized: ResizeCallback) {
        for factory in self.factories() {
            factory.when_resized(resized.clone());
        }
        self.resized = Some(resized);
    }

    /// Opens a device, or creates it if it was not there before.
    pub(super) fn build(&self, spec: &DeviceSpec) -> Result<Arc<dyn DeviceFactory>, OpenError> {
        let spec = self.pair.as_ref().map_or_else(|| spec.clone(), |pair| pair.opened(spec));
        let spec = match self.is_restored || self.has_lost(&spec) {
            true => spec.existing()?,
            false => spec,
        };
        let factory = if self.is_trial { spec.try_out()? } else { spec.build()? };
        if factory.has_lost_writes() && !self.factories().any(|one| is_same_storage(one, &factory))
        {
            // It was removed, though a group may still have it.
            factory.storage().into_iter().for_each(|storage| storage.forget_lost_writes());
        }
        factory.storage().into_iter().for_each(|storage| storage.try_out());
        if let Some(resized) = &self.resized {
            factory.when_resized(resized.clone());
        }
        Ok(factory)
    }

    /// Whether the file of a device is served and is gone: another one would be empty.
    fn has_lost(&self, spec: &DeviceSpec) -> bool {
        if spec.path().is_none_or(Path::exists) {
            return false;
        }
        let path = canonical_path(spec);
        self.factories().any(|factory| Some(factory.identity()) == path)
    }

    /// The devices of all namespaces, and the block devices with names.
    fn factories(&self) -> impl Iterator<Item = &Arc<dyn DeviceFactory>> {
        let entries = self.entries.values().flat_map(BTreeMap::values);
        let served = entries.map(|entry| &entry.device.factory);
        served.chain(self.bdevs.values().map(|bdev| &bdev.factory))
    }

    /// Reads the sizes of all devices again.
    pub(crate) fn read_sizes(&self) {
        for entry in self.entries.values().flat_map(|entries| entries.values()) {
            if let Err(error) = entry.device.factory.refresh() {
                log::warn!(
                    "the size of {} cannot be read: {error}",
                    entry.device.factory.identity()
                );
            }
        }
    }

    /// The block devices of namespaces that have another size than hosts know.
    pub(crate) fn resized(&self) -> Vec<String> {
        let mut names = Vec::new();
        for (nqn, entries) in &self.entries {
            let Some(view) = self.views.get(nqn) else { continue };
            let resized = entries.values().filter(|entry| {
                let shown = view.namespaces.get(entry.nsid).map(|namespace| namespace.blocks);
                shown.is_some_and(|blocks| blocks != entry.device.factory.geometry().blocks)
            });
            names.extend(resized.map(|entry| {
                entry.bdev.clone().unwrap_or_else(|| implied_bdev_name(nqn, entry.nsid))
            }));
        }
        names
    }

    /// Block size and blocks of a block device that has a name.
    pub(crate) fn bdev_size(&self, name: &str) -> Option<(u32, u64)> {
        let geometry = self.bdevs.get(name)?.factory.geometry();
        Some((geometry.block_bytes, geometry.blocks))
    }

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
}
