//! Devices that change their size by themselves.

use std::sync::Arc;

use weft_backend::{DeviceFactory, DeviceSpec, OpenError, Resized};

use super::Catalogue;
use crate::config::implied_bdev_name;

impl Catalogue {
    /// Calls this after a device has changed its size by itself: one that is open, or is opened
    /// later.
    pub(crate) fn when_resized(&mut self, resized: Resized) {
        let entries = self.entries.values().flat_map(|entries| entries.values());
        let served = entries.map(|entry| &entry.device.factory);
        for factory in served.chain(self.bdevs.values().map(|bdev| &bdev.factory)) {
            factory.when_resized(resized.clone());
        }
        self.resized = Some(resized);
    }

    /// Opens or creates a device.
    pub(super) fn build(&self, spec: &DeviceSpec) -> Result<Arc<dyn DeviceFactory>, OpenError> {
        let factory = spec.build()?;
        if let Some(resized) = &self.resized {
            factory.when_resized(resized.clone());
        }
        Ok(factory)
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
pub(super) fn configured_bytes(spec: &DeviceSpec) -> Option<u64> {
    match spec {
        DeviceSpec::Memory { bytes, .. } | DeviceSpec::Null { bytes, .. } => Some(*bytes),
        DeviceSpec::File { create_bytes, .. } => *create_bytes,
        DeviceSpec::Rbd(spec) => spec.least_bytes,
        DeviceSpec::Block { .. } => None,
        DeviceSpec::Delay { inner, .. } | DeviceSpec::Fault { inner, .. } => {
            configured_bytes(inner)
        }
    }
}
