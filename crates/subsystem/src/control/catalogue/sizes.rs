//! Devices that change their size, by themselves or as they are configured.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use weft_backend::{DeviceFactory, DeviceSpec, OpenError, Resized};

use super::Catalogue;
use crate::config::implied_bdev_name;
use crate::control::nsids::canonical_path;
use crate::control::settled::is_same_storage;
use crate::shared::error::TargetError;

impl Catalogue {
    /// Calls this after a device has changed its size by itself: one that is open, or is opened
    /// later.
    pub(crate) fn when_resized(&mut self, resized: Resized) {
        for factory in self.factories() {
            factory.when_resized(resized.clone());
        }
        self.resized = Some(resized);
    }

    /// Opens a device, or creates it if it was not there before.
    pub(super) fn build(&self, spec: &DeviceSpec) -> Result<Arc<dyn DeviceFactory>, OpenError> {
        let spec = self.pair.as_ref().map_or_else(|| spec.clone(), |pair| pair.opened(spec));
        let factory = match self.is_restored || self.has_lost(&spec) {
            true => spec.existing()?.build()?,
            false => spec.build()?,
        };
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
}

/// The size that a device is configured to have, if it says one.
fn configured_bytes(spec: &DeviceSpec) -> Option<u64> {
    match spec {
        DeviceSpec::Memory { bytes, .. } | DeviceSpec::Null { bytes, .. } => Some(*bytes),
        DeviceSpec::File { create_bytes, .. } => *create_bytes,
        DeviceSpec::Rbd(spec) => spec.least_bytes,
        DeviceSpec::Block { .. } => None,
        DeviceSpec::Delay { inner, .. }
        | DeviceSpec::Fault { inner, .. }
        | DeviceSpec::Uncorrectable { inner, .. } => configured_bytes(inner),
    }
}

/// A device that stays and is to have another size.
#[derive(Debug)]
pub(super) struct Resize {
    factory: Arc<dyn DeviceFactory>,
    before: u64,
    bytes: u64,
}

impl Resize {
    /// Whether a device is configured to have another size; otherwise it reads its size. A file or
    /// image grows but is never cut: a typing error would lose data.
    pub(super) fn wanted(
        factory: &Arc<dyn DeviceFactory>,
        old: &DeviceSpec,
        new: &DeviceSpec,
        told: &dyn Fn(&dyn std::fmt::Display) -> TargetError,
    ) -> Result<Option<Self>, TargetError> {
        let found = factory.refresh().map_err(|error| told(&error))?;
        let changed = configured_bytes(new) != configured_bytes(old);
        let Some(bytes) = configured_bytes(new).filter(|_| changed) else { return Ok(None) };
        if new.stored_name().is_some() && bytes < found.bytes() {
            log::warn!("{} is longer than its configured size: it is not cut", factory.identity());
            return Ok(None);
        }
        if bytes == 0 || !bytes.is_multiple_of(found.block_bytes.into()) {
            let (block_bytes, error) = (found.block_bytes, "not a whole number of blocks of");
            return Err(told(&format_args!("{bytes} bytes are {error} {block_bytes} bytes")));
        }
        Ok(Some(Self { factory: Arc::clone(factory), before: found.bytes(), bytes }))
    }

    fn grows(&self) -> bool {
        self.bytes > self.before
    }

    fn apply(&self, bytes: u64) -> Result<(), TargetError> {
        let resized = self.factory.resize(bytes);
        resized.map_err(|error| TargetError::new(format!("{}: {error}", self.factory.identity())))
    }
}

/// Resizes devices once nothing else can fail. Those that grow come first: they can be cut again
/// if another one fails, as no host has seen the new size. What was cut off is lost.
pub(super) fn resize(mut wanted: Vec<Resize>) -> Result<(), TargetError> {
    wanted.sort_by_key(|resize| !resize.grows());
    for (position, resize) in wanted.iter().enumerate() {
        let Err(error) = resize.apply(resize.bytes) else { continue };
        for done in wanted.iter().take(position).filter(|done| done.grows()) {
            if let Err(error) = done.apply(done.before) {
                log::warn!("{error}");
            }
        }
        return Err(error);
    }
    Ok(())
}
