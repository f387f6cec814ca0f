//! The discovery subsystem as a snapshot has it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use weft_nvme::Nqn;
use weft_nvmf::discovery::{DiscoveryEntry, DiscoveryView, EntryKind};
use weft_nvmf::subsystem::{
    ControllerModel, Namespaces, SubsystemKind, SubsystemShared, SubsystemView,
};
use weft_nvmf::visibility::Visibility;

use super::checks::nqn;
use super::views::subsystem_limits;
use crate::config::{Config, Referral, Subsystem, Transport, identity};
use crate::shared::error::TargetError;
use crate::shared::snapshot::PortView;

/// The discovery log over time.
#[derive(Debug)]
pub(super) struct DiscoveryLog {
    shared: Arc<SubsystemShared>,
    /// Its generation counter, and what it counted last.
    generation: u64,
    shown: Vec<DiscoveryEntry>,
}

impl DiscoveryLog {
    pub(super) fn new() -> Self {
        Self { shared: SubsystemShared::new(), generation: 0, shown: Vec::new() }
    }

    /// What hosts find of these subsystems at these ports.
    pub(super) fn view(
        &mut self,
        ports: &[PortView],
        subsystems: &BTreeMap<String, Arc<SubsystemView>>,
        addresses: &BTreeMap<u16, SocketAddr>,
        config: &Config,
    ) -> Result<SubsystemView, TargetError> {
        let (name, labels) = (Nqn::DISCOVERY, labels(config));
        let mut entries = Vec::new();
        // Hosts of a loopback transport are in this process and know its addresses.
        let shown = |port: &&PortView| port.listen.transport != Transport::Loopback;
        for port in ports.iter().filter(shown) {
            let address =
                port.advertise.or(addresses.get(&port.id).copied()).unwrap_or(port.listen.address);
            let entry = |kind, subsystem| DiscoveryEntry {
                port_id: port.id,
                tls: port.tls,
                transport: port.listen.transport_type(),
                ..DiscoveryEntry::tcp(kind, subsystem, address.ip(), address.port())
            };
            if port.discovery {
                entries.push(entry(EntryKind::Current, name));
            }
            for view in subsystems.values() {
                if port.served.contains(view.nqn.as_str()) {
                    let mut entry = entry(EntryKind::Nvm, view.nqn);
                    entry.allowed_hosts.clone_from(&view.allowed_hosts);
                    entry.admin_label = labels.get(view.nqn.as_str()).map(|label| (*label).into());
                    if view.controller_model == ControllerModel::Static {
                        entry.controller_id = weft_nvme::fabrics::CONTROLLER_ID_STATIC;
                    }
                    entries.push(entry);
                }
            }
            for referral in &port.referrals {
                entries.push(referral_entry(referral)?);
            }
        }
        for referral in &config.operated.referrals {
            entries.push(referral_entry(referral)?);
        }
        if self.generation == 0 || entries != self.shown {
            self.generation += 1;
            self.shown.clone_from(&entries);
        }
        let view = DiscoveryView {
            generation: self.generation,
            entries: entries.into(),
            is_centralized: config.centralized_discovery,
            ..DiscoveryView::default()
        };
        Ok(SubsystemView {
            nqn: name,
            kind: SubsystemKind::Discovery(Arc::new(view)),
            serial: identity::serial(name.as_str()),
            model: "weft".to_owned(),
            firmware: env!("CARGO_PKG_VERSION").to_owned(),
            namespaces: Namespaces::default(),
            owner_changes: 0,
            visibility: Visibility::default(),
            host_namespaces: None,
            allowed_hosts: None,
            ana: None,
            policies: Arc::default(),
            controller_model: ControllerModel::Dynamic,
            limits: subsystem_limits(&config.limits),
            shared: Arc::clone(&self.shared),
        })
    }
}

/// Whether the discovery log has the same of these subsystems.
pub(super) fn shows_alike(
    before: &BTreeMap<String, Arc<SubsystemView>>,
    after: &BTreeMap<String, Arc<SubsystemView>>,
) -> bool {
    before.len() == after.len()
        && before.values().zip(after.values()).all(|(one, other)| {
            let shown = |view: &SubsystemView| (view.nqn, view.controller_model);
            Arc::ptr_eq(one, other)
                || shown(one) == shown(other) && one.allowed_hosts == other.allowed_hosts
        })
}

/// The labels for administrators, by the NQNs of their subsystems.
fn labels(config: &Config) -> BTreeMap<&str, &str> {
    fn label(of: &Subsystem) -> Option<(&str, &str)> {
        Some((&of.nqn, of.admin_label.as_deref()?))
    }
    config.subsystems.iter().filter_map(label).collect()
}

fn referral_entry(referral: &Referral) -> Result<DiscoveryEntry, TargetError> {
    let at = referral.address.address;
    let subsystem = match &referral.subsystem {
        None => Nqn::DISCOVERY,
        Some(name) => nqn(name)?,
    };
    Ok(DiscoveryEntry {
        port_id: referral.port_id,
        transport: referral.address.transport_type(),
        ..DiscoveryEntry::tcp(EntryKind::Referral, subsystem, at.ip(), at.port())
    })
}
