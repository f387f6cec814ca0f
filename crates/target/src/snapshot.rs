//! What is served at one time: immutable, replaced as a whole, the same for all groups.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weft_backend::DeviceFactory;
use weft_nvme::Nqn;
use weft_nvmf::subsystem::SubsystemView;

use crate::config::{Limits, Listen, Referral, Served};

/// One state of the whole target.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    /// Goes up by one with each snapshot.
    pub(crate) version: u64,
    pub(crate) ports: Vec<PortView>,
    /// By NQN.
    pub(crate) subsystems: BTreeMap<String, Arc<SubsystemView>>,
    pub(crate) discovery: Arc<SubsystemView>,
    /// The devices by the index that namespaces carry. An index is never used again.
    pub(crate) devices: Vec<Option<Arc<dyn DeviceFactory>>>,
    pub(crate) transport: weft_transport::target::Limits,
    pub(crate) limits: Limits,
    pub(crate) idle_poll: Duration,
    /// Connections of all groups at a time.
    pub(crate) connections_max: usize,
}

/// One port.
#[derive(Debug, Clone)]
pub(crate) struct PortView {
    pub(crate) id: u16,
    pub(crate) listen: Listen,
    pub(crate) advertise: Option<SocketAddr>,
    pub(crate) discovery: bool,
    pub(crate) served: Served,
    pub(crate) referrals: Vec<Referral>,
}

impl Snapshot {
    /// A subsystem by its name as it can be reached through a port.
    pub(crate) fn view(&self, nqn: &Nqn, port_id: u16) -> Option<Arc<SubsystemView>> {
        let port = self.ports.iter().find(|port| port.id == port_id)?;
        if nqn.is_discovery() || *nqn == self.discovery.nqn {
            return port.discovery.then(|| Arc::clone(&self.discovery));
        }
        let view = self.subsystems.get(nqn.as_str())?;
        port.served.contains(nqn.as_str()).then(|| Arc::clone(view))
    }

    /// What hosts have protected stays protected: each namespace that stands on the same device
    /// as in `old`.
    pub(crate) fn keep_write_protect(&mut self, old: &Self) {
        for (nqn, view) in &mut self.subsystems {
            let Some(old) = old.subsystems.get(nqn) else { continue };
            let is_protected = |nsid: &u32, device: u32| {
                let before = old.namespaces.get(nsid);
                before.is_some_and(|old| old.device == device && old.write_protected)
            };
            let mut changed = SubsystemView::clone(view);
            for (nsid, namespace) in &mut changed.namespaces {
                namespace.write_protected = is_protected(nsid, namespace.device);
            }
            *view = Arc::new(changed);
        }
    }

    /// Whether a device has lost writes since this was made.
    pub(crate) fn misses_lost_writes(&self) -> bool {
        let mut all = self.subsystems.values().flat_map(|view| view.namespaces.values());
        all.any(|namespace| !namespace.lost_writes && self.has_lost_writes(namespace.device))
    }

    /// The same, with the namespaces marked whose devices have lost writes.
    pub(crate) fn with_lost_writes(&self) -> Self {
        let mut next = self.clone();
        next.version += 1;
        for view in next.subsystems.values_mut() {
            for namespace in Arc::make_mut(view).namespaces.values_mut() {
                namespace.lost_writes = self.has_lost_writes(namespace.device);
            }
        }
        next
    }

    fn has_lost_writes(&self, device: u32) -> bool {
        let device = self.devices.get(device as usize).and_then(Option::as_ref);
        device.is_some_and(|device| device.has_lost_writes())
    }

    /// The same, but for one namespace that may or may not be written.
    pub(crate) fn with_write_protect(&self, subsystem: &Nqn, nsid: u32, protect: bool) -> Self {
        let mut next = self.clone();
        next.version += 1;
        if let Some(view) = next.subsystems.get_mut(subsystem.as_str()) {
            let mut changed = SubsystemView::clone(view);
            if let Some(namespace) = changed.namespaces.get_mut(&nsid) {
                namespace.write_protected = protect;
            }
            *view = Arc::new(changed);
        }
        next
    }
}
