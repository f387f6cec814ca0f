//! What hosts see of a subsystem, as it is configured.

use std::sync::Arc;
use std::time::Duration;

use weft_backend::Geometry;
use weft_nvmf::subsystem::{
    HostNamespaces, NamespaceCapabilities, NamespaceHints, NamespaceView, Namespaces,
    SubsystemLimits,
};
use weft_nvmf::visibility::Visibility;

use super::plan::Entry;
use crate::config::{Limits, Namespace, Subsystem};
use crate::control::managed;

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

pub(super) fn namespace_view(entry: &Entry, owner_change: u64) -> NamespaceView {
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
