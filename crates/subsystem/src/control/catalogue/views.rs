//! What hosts see of a subsystem, as it is configured.

use std::sync::Arc;
use std::time::Duration;

use weft_backend::Geometry;
use weft_nvmf::subsystem::{
    HostNamespaces, NamespaceCapabilities, NamespaceHints, NamespaceView, Namespaces,
    SubsystemKind, SubsystemLimits, SubsystemShared, SubsystemView,
};
use weft_nvmf::visibility::Visibility;

use super::{Catalogue, Entry, nqn};
use crate::config::{Config, Limits, Namespace, Subsystem};
use crate::control::events::EventLogs;
use crate::control::managed;
use crate::shared::error::TargetError;

impl Catalogue {
    pub(super) fn namespace_view(&self, nqn: &str, namespace: &Namespace) -> Option<NamespaceView> {
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

    pub(super) fn shared_of(&mut self, nqn: &str) -> Arc<SubsystemShared> {
        let begin = || SubsystemShared::with_events(self.events.begin(nqn));
        Arc::clone(self.shared.entry(nqn.to_owned()).or_insert_with(begin))
    }

    pub(super) fn view(
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
}

/// What hosts may make of the namespaces of a subsystem, which has these.
pub(super) fn host_namespaces(
    subsystem: &Subsystem,
    allocated: &Namespaces,
) -> Option<Arc<HostNamespaces>> {
    let settings = subsystem.host_namespaces.as_ref()?;
    let made = subsystem.namespaces.iter().filter(|namespace| managed::is_made(namespace));
    Some(Arc::new(HostNamespaces {
        allocated: allocated.clone(),
        made: made.map(|namespace| namespace.nsid).collect(),
        capacity_bytes: settings.capacity,
    }))
}

fn namespace_view(entry: &Entry, owner_change: u64) -> NamespaceView {
    let Geometry {
        block_bytes,
        blocks,
        atomic_blocks,
        compare_and_write_blocks,
        preferred_blocks,
        optimal_blocks,
        discard_granularity_blocks,
        capabilities,
    } = entry.device.factory.geometry();
    NamespaceView {
        nsid: entry.nsid,
        block_bytes,
        blocks,
        uuid: entry.identity.uuid,
        nguid: entry.identity.nguid,
        eui64: entry.identity.eui64.unwrap_or_default(),
        capabilities: NamespaceCapabilities {
            read_only: capabilities.read_only,
            volatile_cache: capabilities.volatile_cache,
            deallocate: capabilities.discard,
            reads_zeroes: capabilities.discard_reads_zeroes,
            write_zeroes_deallocates: capabilities.write_zeroes && capabilities.discard,
            write_uncorrectable: capabilities.write_uncorrectable,
            persistent_reservations: false,
        },
        hints: NamespaceHints {
            atomic_blocks,
            atomic_power_fail_blocks: atomic_blocks,
            compare_and_write_blocks,
            preferred_write_blocks: preferred_blocks,
            optimal_write_blocks: optimal_blocks,
            deallocate_blocks: discard_granularity_blocks,
        },
        write_protected: false,
        lost_writes: entry.device.factory.has_lost_writes(),
        detached: false,
        device: entry.device.id.0,
        ana_group: entry.nsid,
        owner_change,
    }
}

pub(super) fn subsystem_limits(limits: &Limits) -> SubsystemLimits {
    SubsystemLimits {
        max_io_queues: limits.io_queues,
        max_queue_entries: limits.queue_entries,
        mdts_bytes: limits.transfer_bytes,
        in_capsule_bytes: limits.in_capsule_bytes,
        max_namespaces: limits.namespaces,
        max_controllers: limits.controllers,
        keep_alive_ms_min: whole_ms(limits.keep_alive_min),
        keep_alive_ms_max: whole_ms(limits.keep_alive_max),
        ..SubsystemLimits::default()
    }
}

fn whole_ms(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// Which hosts see the namespaces that not every host sees. Their names were checked.
pub(super) fn visibility(subsystem: &Subsystem) -> Visibility {
    let of = |namespace: &Namespace| {
        let hosts = namespace.visible_to.as_ref()?;
        Some((namespace.nsid, hosts.iter().filter_map(|host| host.parse().ok()).collect()))
    };
    subsystem.namespaces.iter().filter_map(of).collect()
}
