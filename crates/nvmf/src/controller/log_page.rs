//! Get Log Page.

use std::sync::Arc;
use std::time::Duration;

use weft_nvme::command::NAMESPACE_ID_BROADCAST;
use weft_nvme::completion::StatusField;
use weft_nvme::identify::CommandSetId;
use weft_nvme::log_page::{
    CHANGED_NAMESPACES_TOO_MANY, ChangedNamespaceList, CommandEffects, CommandsSupportedAndEffects,
    DiscoveryParameter, ErrorInformation, FirmwareSlots, GetLogPage, Health, LogPageId,
    ParameterLocation, SupportedLogPages,
};
use weft_nvme::wire::{Text, U16, U32, U64, U128};
use weft_nvme::{AdminOpcode, Command, NvmOpcode, Status, Wire};

use super::Controller;
use super::feature::values::COMPOSITE_TEMPERATURE_K;
use super::outcome::{Outcome, check_data_to_host};
use crate::discovery::{DiscoveryLogPage, window};
use crate::limits;
use crate::queue::{CommandError, ErrorRecord, error};

/// The log pages of every I/O controller.
const SUPPORTED: [LogPageId; 10] = [
    LogPageId::SUPPORTED_LOG_PAGES,
    LogPageId::ERROR_INFORMATION,
    LogPageId::HEALTH,
    LogPageId::FIRMWARE_SLOT,
    LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST,
    LogPageId::COMMANDS_SUPPORTED_AND_EFFECTS,
    LogPageId::TELEMETRY_HOST_INITIATED,
    LogPageId::TELEMETRY_CONTROLLER_INITIATED,
    LogPageId::PERSISTENT_EVENT_LOG,
    LogPageId::RESERVATION_NOTIFICATION,
];

/// The log pages of a discovery controller.
const SUPPORTED_BY_DISCOVERY: [LogPageId; 2] =
    [LogPageId::SUPPORTED_LOG_PAGES, LogPageId::DISCOVERY];

/// The admin commands of an I/O controller, for the effects log page.
const ADMIN_COMMANDS: [AdminOpcode; 7] = [
    AdminOpcode::GET_LOG_PAGE,
    AdminOpcode::IDENTIFY,
    AdminOpcode::ABORT,
    AdminOpcode::SET_FEATURES,
    AdminOpcode::GET_FEATURES,
    AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST,
    AdminOpcode::KEEP_ALIVE,
];

/// The I/O commands that leave the blocks as they are, and those that do not.
const READING_COMMANDS: [NvmOpcode; 8] = [
    NvmOpcode::FLUSH,
    NvmOpcode::READ,
    NvmOpcode::COMPARE,
    NvmOpcode::VERIFY,
    NvmOpcode::RESERVATION_REGISTER,
    NvmOpcode::RESERVATION_REPORT,
    NvmOpcode::RESERVATION_ACQUIRE,
    NvmOpcode::RESERVATION_RELEASE,
];
const WRITING_COMMANDS: [NvmOpcode; 4] =
    [NvmOpcode::WRITE, NvmOpcode::WRITE_ZEROES, NvmOpcode::DATASET_MANAGEMENT, NvmOpcode::COPY];

/// LID Specific Parameter of the Persistent Event Log: Establish Context and Read 512 Bytes of
/// Header is supported (ECRH).
const READS_HEADER: u16 = 1;

const NAMESPACE: CommandError = error(Status::INVALID_FIELD, 4);
const LOG_PAGE: CommandError = error(Status::INVALID_LOG_PAGE, 40);
pub(super) const LENGTH: CommandError = error(Status::INVALID_FIELD, 42);
pub(super) const OFFSET: CommandError = error(Status::INVALID_FIELD, 48);
const OFFSET_TYPE: CommandError = error(Status::INVALID_FIELD, 58);
const COMMAND_SET: CommandError = error(Status::INVALID_FIELD, 59);

impl Controller {
    /// Get Log Page on an I/O controller.
    pub(super) fn get_log_page(
        &mut self,
        command: &Command,
        now: Duration,
    ) -> Result<Outcome, CommandError> {
        let get = GetLogPage::from_command(command);
        let supported = self.supported_log_pages();
        if !supported.contains(&get.log_page) {
            return Err(LOG_PAGE);
        }
        match get.log_page {
            LogPageId::TELEMETRY_HOST_INITIATED | LogPageId::TELEMETRY_CONTROLLER_INITIATED => {
                return self.get_telemetry(command, &get, now);
            }
            LogPageId::PERSISTENT_EVENT_LOG => {
                return self.get_persistent_events(command, &get, now);
            }
            _ => {}
        }
        let length = self.check_part(command, &get)?;
        let page = match get.log_page {
            LogPageId::ERROR_INFORMATION => self.errors_page(),
            LogPageId::HEALTH => self.health_page(&get, now)?,
            LogPageId::FIRMWARE_SLOT => {
                FirmwareSlots::single(Text::new(&self.view.firmware)).bytes().to_vec()
            }
            LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST => self.changed_namespaces_page(),
            LogPageId::COMMANDS_SUPPORTED_AND_EFFECTS => self.effects_page(&get)?,
            LogPageId::ASYMMETRIC_NAMESPACE_ACCESS => self.ana_page(&get),
            LogPageId::RESERVATION_NOTIFICATION => self.reservation_log.page(),
            LogPageId::SUPPORTED_LOG_PAGES => {
                let mut page = SupportedLogPages::new(&supported);
                page.set_specific(LogPageId::PERSISTENT_EVENT_LOG, READS_HEADER);
                page.bytes().to_vec()
            }
            _ => return Err(LOG_PAGE),
        };
        let part = window(&page, get.offset, length).ok_or(OFFSET)?;
        if !get.retain_event {
            if get.log_page == LogPageId::RESERVATION_NOTIFICATION {
                self.reservation_log.pop();
            }
            self.clear_events(get.log_page);
        }
        Ok(Outcome::Data(part))
    }

    fn supported_log_pages(&self) -> Vec<LogPageId> {
        let ana = self.view.ana.as_ref().map(|_| LogPageId::ASYMMETRIC_NAMESPACE_ACCESS);
        SUPPORTED.into_iter().chain(ana).collect()
    }

    /// Get Log Page on a discovery controller.
    pub(super) fn get_discovery_log_page(
        &mut self,
        command: &Command,
    ) -> Result<Outcome, CommandError> {
        let get = GetLogPage::from_command(command);
        if !SUPPORTED_BY_DISCOVERY.contains(&get.log_page) {
            return Err(LOG_PAGE);
        }
        let length = self.check_part(command, &get)?;
        let parameter = DiscoveryParameter(get.specific_parameter);
        let part = match self.view.discovery() {
            Some(view) if get.log_page == LogPageId::DISCOVERY => {
                let make =
                    || DiscoveryLogPage::new(Arc::clone(view), &self.host, self.local_address);
                let page = self.discovery_log_page.get_or_insert_with(make);
                page.part(get.offset, length, parameter.extended_entries())
            }
            _ => {
                let mut page = SupportedLogPages::new(&SUPPORTED_BY_DISCOVERY);
                let extended = DiscoveryParameter(0).with_extended_entries(true);
                page.set_specific(LogPageId::DISCOVERY, extended.0.into());
                window(page.bytes(), get.offset, length)
            }
        };
        let part = part.ok_or(OFFSET)?;
        if !get.retain_event {
            self.clear_events(get.log_page);
        }
        Ok(Outcome::Data(part))
    }

    /// How many bytes are asked for, if they may be.
    pub(super) fn check_part(
        &self,
        command: &Command,
        get: &GetLogPage,
    ) -> Result<usize, CommandError> {
        if get.offset_is_index {
            return Err(OFFSET_TYPE);
        }
        if !get.offset.is_multiple_of(4) {
            return Err(OFFSET);
        }
        let length = u32::try_from(get.length()).map_err(|_| LENGTH)?;
        if length > self.view.limits.transfer_bytes_max() {
            return Err(LENGTH);
        }
        check_data_to_host(command, length)?;
        usize::try_from(length).map_err(|_| LENGTH)
    }

    fn errors_page(&self) -> Vec<u8> {
        let records = self.shared.errors().newest_first();
        let mut page: Vec<u8> =
            records.iter().flat_map(|record| error_entry(record).bytes().to_vec()).collect();
        page.resize(limits::ERROR_ENTRIES * ErrorInformation::SIZE, 0);
        page
    }

    fn health_page(&self, get: &GetLogPage, now: Duration) -> Result<Vec<u8>, CommandError> {
        if get.namespace_id != 0 && get.namespace_id != NAMESPACE_ID_BROADCAST {
            return Err(NAMESPACE);
        }
        let totals = self.view.shared.totals();
        let data_units = |bytes: u64| U128::new(Health::data_units(bytes.into()));
        let count = |value: u64| U128::new(value.into());
        let health = Health {
            critical_warning: self.features.critical_warning(&self.view),
            composite_temperature_k: U16::new(COMPOSITE_TEMPERATURE_K),
            available_spare_percent: 100,
            data_units_read: data_units(totals.read_bytes),
            data_units_written: data_units(totals.written_bytes),
            host_read_commands: count(totals.reads),
            host_write_commands: count(totals.writes),
            power_cycles: count(self.view.shared.events().power_cycles()),
            power_on_hours: U128::new(self.power_on_hours(now)),
            unexpected_power_losses: count(self.view.shared.associations_lost()),
            media_errors: count(self.shared.errors().media_count()),
            error_log_entries: count(self.shared.errors().count()),
            ..Health::default()
        };
        Ok(health.bytes().to_vec())
    }

    pub(super) fn power_on_hours(&self, now: Duration) -> u128 {
        (now.saturating_sub(self.started).as_secs() / 3600).into()
    }

    fn changed_namespaces_page(&self) -> Vec<u8> {
        match self.changed_namespaces.list() {
            Some(list) => ChangedNamespaceList::new(list).bytes().to_vec(),
            None => ChangedNamespaceList::new([CHANGED_NAMESPACES_TOO_MANY]).bytes().to_vec(),
        }
    }

    /// The page of the zoned command set is there because the Linux target has it and nvme-cli
    /// asks for it; no I/O command of that set is supported.
    fn effects_page(&self, get: &GetLogPage) -> Result<Vec<u8>, CommandError> {
        let mut effects = CommandsSupportedAndEffects::none();
        for opcode in ADMIN_COMMANDS {
            effects.set_admin(opcode.0, CommandEffects::SUPPORTED);
        }
        if self.view.host_namespaces.is_some() {
            let changes = CommandEffects::SUPPORTED.with_namespace_inventory_change(true);
            effects.set_admin(AdminOpcode::NAMESPACE_MANAGEMENT.0, changes);
            effects.set_admin(AdminOpcode::NAMESPACE_ATTACHMENT.0, changes);
        }
        match get.command_set {
            CommandSetId::NVM => {}
            CommandSetId::ZONED_NAMESPACE => return Ok(effects.bytes().to_vec()),
            _ => return Err(COMMAND_SET),
        }
        for opcode in READING_COMMANDS {
            effects.set_io(opcode.0, CommandEffects::SUPPORTED);
        }
        for opcode in WRITING_COMMANDS {
            effects.set_io(opcode.0, CommandEffects::WRITES);
        }
        if self.optional_nvm_commands().write_uncorrectable() {
            effects.set_io(NvmOpcode::WRITE_UNCORRECTABLE.0, CommandEffects::WRITES);
        }
        Ok(effects.bytes().to_vec())
    }
}

fn error_entry(record: &ErrorRecord) -> ErrorInformation {
    let location = match record.parameter {
        Some(byte) => ParameterLocation(0).with_byte(byte),
        None => ParameterLocation::NONE,
    };
    ErrorInformation {
        error_count: U64::new(record.count),
        submission_queue_id: U16::new(record.queue_id),
        command_id: U16::new(record.command_id),
        status_field: StatusField::new(record.status),
        parameter_location: location.into(),
        lba: U64::new(record.lba),
        namespace_id: U32::new(record.nsid),
        opcode: record.opcode,
        log_page_version: 1,
        ..ErrorInformation::default()
    }
}
