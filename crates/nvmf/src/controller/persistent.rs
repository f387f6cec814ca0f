//! Get Log Page of the Persistent Event Log: each controller has a reporting context of its own.

pub(super) mod setting;

use std::time::Duration;

use weft_nvme::log_page::{GetLogPage, LogPageId, PersistentEventAction, PersistentEventHeader};
use weft_nvme::wire::{Text, U16, U32, U64, U128};
use weft_nvme::{Command, Status, Wire};

use super::Controller;
use super::outcome::Outcome;
use crate::discovery::window;
use crate::persistent::RECORDED;
use crate::queue::{CommandError, error};
use setting::{Change, Context};

const SEQUENCE: CommandError = error(Status::COMMAND_SEQUENCE_ERROR, 41);
const OFFSET: CommandError = error(Status::INVALID_FIELD, 48);

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
