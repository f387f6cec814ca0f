//! Get Log Page of the Persistent Event Log: each controller has a reporting context of its own.

use std::time::Duration;

use weft_nvme::log_page::{
    ChangeNamespace, GetLogPage, LogPageId, PersistentEventAction, PersistentEventHeader,
    ReportingContext,
};
use weft_nvme::wire::{Text, U16, U32, U64, U128};
use weft_nvme::{Command, Status, Wire, identify};

use super::Controller;
use super::admin::Outcome;
use crate::discovery::window;
use crate::persistent::{EventSnapshot, RECORDED};
use crate::queue::{CommandError, error};

/// Reporting Context Port Identifier Type: a port of the NVM subsystem.
const SUBSYSTEM_PORT: u8 = 1;

const SEQUENCE: CommandError = error(Status::COMMAND_SEQUENCE_ERROR, 41);
const OFFSET: CommandError = error(Status::INVALID_FIELD, 48);

/// What the host reads until it gives it up, or resets the controller: later events are not in it.
#[derive(Debug)]
pub(super) struct Context {
    header: PersistentEventHeader,
    snapshot: EventSnapshot,
}

impl Context {
    /// The log page for a command before which this context existed, or did not.
    fn page(&self, port_id: u16, existed: bool) -> Vec<u8> {
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
pub(super) struct Setting {
    pub(super) command_id: u16,
    pub(super) change: Option<(Change, Duration)>,
}

#[derive(Debug)]
pub(super) enum Change {
    /// A namespace is made or deleted.
    Namespace(ChangeNamespace),
    /// A feature is set: command dwords 10 and 11.
    Feature([u32; 2]),
}

impl Change {
    /// A Set Features command.
    pub(super) fn of_feature(command: &Command) -> Self {
        Self::Feature([command.cdw10.get(), command.cdw11.get()])
    }

    /// A Namespace Management command for a namespace with these properties.
    pub(super) fn of_namespace(command: &Command, namespace: &identify::Namespace) -> Self {
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

impl Controller {
    /// Get Log Page of the Persistent Event Log.
    pub(super) fn get_persistent_events(
        &mut self,
        command: &Command,
        get: &GetLogPage,
        now: Duration,
    ) -> Result<Outcome, CommandError> {
        let action = PersistentEventAction(get.specific_parameter & 0b11);
        if action == PersistentEventAction::RELEASE {
            self.event_context = None;
            return Ok(Outcome::Done(0));
        }
        let length = self.check_part(command, get)?;
        let context = self.event_context.take();
        let existed = context.is_some();
        let page = match (action, &context) {
            (PersistentEventAction::READ, None) => return Err(SEQUENCE),
            (PersistentEventAction::ESTABLISH_AND_READ, Some(_)) => {
                self.event_context = context;
                return Err(SEQUENCE);
            }
            _ => {
                let context = context.unwrap_or_else(|| self.new_context(now));
                let page = context.page(self.port_id, existed);
                self.event_context = Some(context);
                page
            }
        };
        let part = match action {
            PersistentEventAction::ESTABLISH_AND_READ_HEADER => {
                window(page.get(..PersistentEventHeader::SIZE).unwrap_or_default(), 0, length)
            }
            _ => window(&page, get.offset, length),
        };
        if part.is_none() && !existed {
            self.event_context = None;
        }
        part.map(Outcome::Data).ok_or(OFFSET)
    }

    fn new_context(&self, now: Duration) -> Context {
        let view = &self.view;
        let log = view.shared.events();
        let snapshot = log.snapshot();
        let bytes: usize = snapshot.events.iter().map(|event| event.len()).sum();
        let length = PersistentEventHeader::SIZE + bytes;
        let header = PersistentEventHeader {
            log_page: LogPageId::PERSISTENT_EVENT_LOG,
            events: U32::new(u32::try_from(snapshot.events.len()).unwrap_or(u32::MAX)),
            length: U64::new(u64::try_from(length).unwrap_or(u64::MAX)),
            revision: PersistentEventHeader::REVISION,
            header_length: U16::new(PersistentEventHeader::HEADER_LENGTH),
            timestamp: log.timestamp(now).into(),
            power_on_hours: U128::new(self.power_on_hours(now)),
            power_cycles: U64::new(snapshot.power_cycles),
            serial_number: Text::new(&view.serial),
            model_number: Text::new(&view.model),
            subsystem_nqn: view.nqn.to_field(),
            generation: U16::new(snapshot.generation),
            supported: PersistentEventHeader::bitmap(&RECORDED),
            ..PersistentEventHeader::zeroed()
        };
        Context { header, snapshot }
    }

    /// The host has reset these controllers.
    pub(super) fn record_reset(&self, controllers: &[u16], now: Duration) {
        let origin = Some((self.controller_id, self.port_id));
        self.view.shared.events().record_reset(&self.view.firmware, controllers, origin, now);
    }

    /// A command has succeeded; `nsid` is that of a namespace that was made, or 0.
    pub(super) fn record_change(&self, change: Change, nsid: u32, began: Duration) {
        let origin = (self.controller_id, self.port_id);
        let log = self.view.shared.events();
        match change {
            Change::Feature(dwords) => log.record_feature(dwords, origin, began),
            Change::Namespace(mut change) => {
                if nsid != 0 {
                    change.namespace_id = U32::new(nsid);
                    let made = self.allocated().get(nsid).filter(|_| self.view.ana.is_some());
                    change.ana_group_id = U32::new(made.map_or(0, |made| made.ana_group));
                }
                log.record_namespace(&change, origin, began);
            }
        }
    }
}
