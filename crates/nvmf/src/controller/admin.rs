//! The admin commands, and when each is allowed.

use std::time::Duration;

use weft_nvme::command::DataPointer;
use weft_nvme::discovery_information::EntityType;
use weft_nvme::{AdminOpcode, Command, FabricsType, Status};

use super::outcome::{DATA_LENGTH, DATA_TYPE, Outcome, check_data_from_host};
use super::persistent::setting::Setting;
use super::{Controller, Effect};
use crate::limits;
use crate::queue::{CommandError, error};
use crate::registration;

const OPCODE: CommandError = error(Status::INVALID_OPCODE, 0);
const FLAGS: CommandError = error(Status::INVALID_FIELD, 1);
const FABRICS_TYPE: CommandError = error(Status::INVALID_OPCODE, 4);
const CONNECTED_ALREADY: CommandError = error(Status::COMMAND_SEQUENCE_ERROR, 4);
const ID_CONFLICT: CommandError = error(Status::COMMAND_ID_CONFLICT, 2);
const NOT_READY: CommandError = error(Status::COMMAND_SEQUENCE_ERROR, 0);
const ADMIN_DISCONNECT: CommandError = error(Status::DISCONNECT_INVALID_QUEUE_TYPE, 4);
/// Only hosts register with a controller that is no Centralized Discovery controller.
const ENTITY: CommandError =
    CommandError { status: Status::INVALID_FIELD.with_dnr(), parameter: None };
impl Controller {
    /// Carries an admin command out.
    pub(super) fn execute(
        &mut self,
        command: &Command,
        data: &[u8],
        now: Duration,
    ) -> Result<Outcome, CommandError> {
        if let Some(fabrics_type) = command.fabrics_type() {
            return self.execute_fabrics(fabrics_type, command, now);
        }
        check_flags(command)?;
        if !self.is_ready() || self.ended {
            return Err(NOT_READY);
        }
        if self.is_waiting(command.command_id.get()) {
            return Err(ID_CONFLICT);
        }
        match self.view.discovery() {
            None => self.execute_admin(command, data, now),
            Some(_) => self.execute_discovery(command, data, now),
        }
    }

    /// Whether an earlier command of this identifier is not answered yet.
    fn is_waiting(&self, command_id: u16) -> bool {
        self.events.is_waiting(command_id)
            || self.setting.iter().any(|one| one.command_id == command_id)
            || self.is_aborting(command_id)
    }

    fn execute_fabrics(
        &mut self,
        fabrics_type: FabricsType,
        command: &Command,
        now: Duration,
    ) -> Result<Outcome, CommandError> {
        if self.ended {
            return Err(NOT_READY);
        }
        let given_up = self.events.note_identifier(command.command_id.get());
        let discard = |command_id| Effect::Discard { command_id };
        self.effects.extend(given_up.into_iter().map(discard));
        match fabrics_type {
            FabricsType::PROPERTY_GET => self.property_get(command),
            FabricsType::PROPERTY_SET => self.property_set(command, now),
            FabricsType::CONNECT => Err(CONNECTED_ALREADY),
            FabricsType::DISCONNECT => Err(ADMIN_DISCONNECT),
            _ => Err(FABRICS_TYPE),
        }
    }

    /// The admin commands of an I/O controller.
    fn execute_admin(
        &mut self,
        command: &Command,
        data: &[u8],
        now: Duration,
    ) -> Result<Outcome, CommandError> {
        match command.admin_opcode() {
            AdminOpcode::IDENTIFY => self.identify(command),
            AdminOpcode::GET_LOG_PAGE => self.get_log_page(command, now),
            AdminOpcode::GET_FEATURES => self.get_features(command),
            AdminOpcode::SET_FEATURES => self.set_features(command, data, now),
            AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST => self.event_request(command),
            AdminOpcode::ABORT => self.abort(command),
            AdminOpcode::KEEP_ALIVE => Ok(Outcome::Done(0)),
            AdminOpcode::NAMESPACE_MANAGEMENT => self.manage_namespace(command, data, now),
            AdminOpcode::NAMESPACE_ATTACHMENT => self.attach_namespace(command, data),
            _ => Err(OPCODE),
        }
    }

    /// The admin commands of a discovery controller.
    fn execute_discovery(
        &mut self,
        command: &Command,
        data: &[u8],
        now: Duration,
    ) -> Result<Outcome, CommandError> {
        match command.admin_opcode() {
            AdminOpcode::IDENTIFY => self.identify_discovery(command),
            AdminOpcode::GET_LOG_PAGE => self.get_discovery_log_page(command),
            AdminOpcode::GET_FEATURES => self.get_discovery_features(command),
            AdminOpcode::SET_FEATURES => self.set_discovery_features(command, now),
            AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST => self.event_request(command),
            AdminOpcode::ABORT => self.abort(command),
            AdminOpcode::KEEP_ALIVE => Ok(Outcome::Done(0)),
            AdminOpcode::DISCOVERY_INFORMATION_MANAGEMENT => self.register(command, data),
            _ => Err(OPCODE),
        }
    }

    /// Discovery Information Management: hosts register with every discovery controller, others'
    /// subsystems are registered with a Centralized Discovery controller.
    fn register(&mut self, command: &Command, data: &[u8]) -> Result<Outcome, CommandError> {
        let location = command.data_pointer.location().map_err(|_| DATA_TYPE)?;
        let length = location.length();
        if length > limits::REGISTRATION_BYTES_MAX.min(self.view.limits.transfer_bytes_max()) {
            return Err(DATA_LENGTH);
        }
        check_data_from_host(command, length)?;
        if data.is_empty() && length > 0 {
            return Ok(Outcome::NeedData(length));
        }
        let change = registration::Change::read(command, data)
            .map_err(|status| CommandError { status: status.with_dnr(), parameter: None })?;
        let is_centralized = self.view.discovery().is_some_and(|view| view.is_centralized);
        if change.entity.kind == EntityType::DIRECT && !is_centralized {
            return Err(ENTITY);
        }
        let command_id = command.command_id.get();
        self.setting.push(Setting { command_id, change: None });
        self.effects.push_back(Effect::Register { command_id, change: Box::new(change) });
        Ok(Outcome::Pending)
    }
}

/// Over Fabrics every command uses SGLs, and no admin command is fused.
fn check_flags(command: &Command) -> Result<(), CommandError> {
    let pointer = command.flags.data_pointer();
    let sgl =
        pointer == DataPointer::SGL_METADATA_BUFFER || pointer == DataPointer::SGL_METADATA_SGL;
    if sgl && command.flags.raw_fused() == 0 { Ok(()) } else { Err(FLAGS) }
}
