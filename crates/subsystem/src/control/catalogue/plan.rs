//! What a change of the configuration needs, before anything has changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_backend::{DeviceFactory, DeviceSpec};
use weft_nvmf::subsystem::SubsystemView;

use super::resize::Resize;
use crate::config::{Bdev, Config, Namespace, Policies, Psks, identity};
use crate::control::nsids::{self, same_device};
use crate::control::reservations;
use crate::shared::snapshot::{PartialScope, PortView, Requirements, Scope, ServedDevice};

/// The namespaces of a subsystem by NSID.
pub(super) type Entries = BTreeMap<u32, Entry>;

/// A namespace and its device.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) subsystem: String,
    pub(super) nsid: u32,
    pub(super) spec: DeviceSpec,
    /// The name of its block device, if that has one.
    pub(super) bdev: Option<String>,
    pub(super) device: Arc<ServedDevice>,
    pub(super) identity: identity::Identity,
}

/// A block device with a name.
#[derive(Debug, Clone)]
pub(super) struct NamedDevice {
    pub(super) spec: DeviceSpec,
    pub(super) factory: Arc<dyn DeviceFactory>,
}

/// A namespace that comes, goes or changes.
#[derive(Debug)]
pub(super) struct OnePlan {
    pub(super) nqn: String,
    pub(super) nsid: u32,
    /// None: it goes.
    pub(super) entry: Option<Entry>,
    /// No namespace is shown by it, so it stays.
    pub(super) discovery: Arc<SubsystemView>,
}

impl Scope {
    /// Whether the size of a block device is read again.
    pub(super) fn refreshes(&self, bdev: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(part) => part.refresh && part.bdev.as_deref() == Some(bdev),
        }
    }

    /// The block devices with names that are concerned.
    pub(super) fn bdevs<'a>(&self, config: &'a Config) -> Vec<&'a Bdev> {
        match self {
            Self::All => config.operated.bdevs.iter().collect(),
            Self::Only(part) => {
                part.bdev.as_ref().and_then(|name| config.bdev(name)).into_iter().collect()
            }
        }
    }

    /// The namespace that is all that is concerned of its subsystem.
    pub(super) fn one(&self) -> Option<(&str, u32)> {
        let Self::Only(PartialScope { subsystems, namespace, .. }) = self else { return None };
        let [nqn] = subsystems.as_slice() else { return None };
        Some((nqn, (*namespace)?))
    }
}

/// A configuration that can be served: its devices exist, and nothing has changed so far.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) scope: Scope,
    /// The namespace that is all that is concerned.
    pub(super) one: Option<OnePlan>,
    /// The namespaces of the subsystems in its scope.
    pub(super) entries: BTreeMap<String, Entries>,
    /// What their hosts have to prove.
    pub(super) policies: BTreeMap<String, Arc<Policies>>,
    pub(super) psks: BTreeMap<String, Arc<Psks>>,
    /// Block devices that are new, or have another size.
    pub(super) bdevs: BTreeMap<String, NamedDevice>,
    pub(super) resizes: Vec<Resize>,
    pub(super) restored: reservations::ReservationsByNamespace,
    /// Devices of namespaces that are new.
    pub(crate) opened: Vec<Arc<ServedDevice>>,
    /// The ports, if they may be others than before.
    pub(super) ports: Option<Vec<PortView>>,
}

impl Plan {
    /// What the groups need before it can be carried out, if they need anything.
    pub(crate) fn needs(&self) -> Option<Arc<Requirements>> {
        let is_needed = self.ports.is_some() || !self.opened.is_empty();
        is_needed.then(|| {
            Arc::new(Requirements { devices: self.opened.clone(), ports: self.ports.clone() })
        })
    }

    /// Whether the ports may be others than before.
    pub(crate) const fn changes_ports(&self) -> bool {
        self.ports.is_some()
    }

    /// Whether the size of a namespace's device is read again.
    pub(super) fn looks_at(&self, entry: &Entry, namespace: &Namespace) -> bool {
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

impl Entry {
    pub(super) fn new(
        nqn: &str,
        namespace: &Namespace,
        device: Arc<ServedDevice>,
        identity: identity::Identity,
    ) -> Self {
        Self {
            subsystem: nqn.to_owned(),
            nsid: namespace.nsid,
            spec: namespace.device.clone(),
            bdev: namespace.bdev.clone(),
            device,
            identity,
        }
    }

    /// Canonical path of the device, if it has one.
    pub(super) fn path(&self) -> Option<String> {
        self.spec.stored_name().map(|_| self.device.factory.identity())
    }

    /// Whether a namespace of the same number has the same device, perhaps of another size.
    pub(super) fn keeps_device(&self, namespace: &Namespace) -> bool {
        self.bdev == namespace.bdev && same_device(&self.spec, &namespace.device)
    }

    pub(super) fn owner<'a>(&'a self, path: Option<&'a str>) -> nsids::ServedNamespace<'a> {
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
