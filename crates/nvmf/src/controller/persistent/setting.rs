//! What waits for the target before it belongs into the log, and what of the log a host reads.

use std::time::Duration;

use weft_nvme::log_page::{ChangeNamespace, PersistentEventHeader, ReportingContext};
use weft_nvme::{Command, Wire, identify};

use crate::persistent::EventSnapshot;

/// Reporting Context Port Identifier Type: a port of the NVM subsystem.
const SUBSYSTEM_PORT: u8 = 1;

/// What the host reads until it gives it up, or resets the controller: later events are not in it.
#[derive(Debug)]
pub(in crate::controller) struct Context {
    pub(super) header: PersistentEventHeader,
    pub(super) snapshot: EventSnapshot,
}

impl Context {
    /// The log page for a command before which this context existed, or did not.
    pub(super) fn page(&self, port_id: u16, existed: bool) -> Vec<u8> {
        let context = match existed {
            true => ReportingContext(0)
                .with_port_id(port_id)
                .with_port_type(SUBSYSTEM_PORT)
                .with_exists(true),
            false => ReportingContext(0),
        };
        let header = PersistentEventHeader { reporting_context: context.into(), ..self.header };
        let mut page = header.bytes().to_vec();
        self.snapshot.events.iter().for_each(|event| page.extend_from_slice(event));
        page
    }
}

/// A command that waits for the target, and what of it belongs into the log if it succeeds.
#[derive(Debug)]
pub(in crate::controller) struct Setting {
    pub(in crate::controller) command_id: u16,
    pub(in crate::controller) change: Option<(Change, Duration)>,
}

#[derive(Debug)]
pub(in crate::controller) enum Change {
    /// A namespace is made or deleted.
    Namespace(ChangeNamespace),
    /// A feature is set: command dwords 10 and 11.
    Feature([u32; 2]),
}

impl Change {
    /// A Set Features command.
    pub(in crate::controller) fn of_feature(command: &Command) -> Self {
        Self::Feature([command.cdw10.get(), command.cdw11.get()])
    }

    /// A Namespace Management command for a namespace with these properties.
    pub(in crate::controller) fn of_namespace(
        command: &Command,
        namespace: &identify::Namespace,
    ) -> Self {
        Self::Namespace(ChangeNamespace {
            cdw10: command.cdw10,
            size: namespace.size,
            capacity: namespace.capacity,
            formatted_lba_size: namespace.formatted_lba_size.0,
            protection: namespace.protection_settings,
            sharing: namespace.sharing.0,
            ana_group_id: namespace.ana_group_id,
            nvm_set_id: namespace.nvm_set_id,
            endurance_group_id: namespace.endurance_group_id,
            namespace_id: command.namespace_id,
            ..ChangeNamespace::default()
        })
    }
}
