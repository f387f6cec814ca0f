//! The checks of I/O commands: namespace, fields, protection and reservation, range, and data.

use weft_nvme::command::{DataPointer, NAMESPACE_ID_BROADCAST};
use weft_nvme::nvm::{DatasetManagement, ReadWrite, StartingBlock, WriteZeroes};
use weft_nvme::reservation::{
    AcquireAction, PersistenceChange, RELEASE_BYTES, RegisterAction, ReleaseAction,
    ReservationControl,
};
use weft_nvme::sgl::Location;
use weft_nvme::{Command, Completion, NvmOpcode, Status};

use super::{CommandError, DeviceCommand, DeviceOperation, IoAction, IoQueue, Transfer, error};
use crate::reservation::{Operation, Refusals};
use crate::subsystem::{CopyLimits, NamespaceView, SubsystemLimits, exponent_bytes, page_exponent};

/// The limits of a controller that commands are held against, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) copy: CopyLimits,
    transfer: u64,
    in_capsule: u32,
    write_zeroes: u64,
    verify: u64,
}

impl Limits {
    pub(super) fn of(limits: &SubsystemLimits) -> Self {
        Self {
            copy: limits.copy(),
            transfer: u64::from(limits.transfer_bytes_max()),
            in_capsule: limits.in_capsule_bytes,
            write_zeroes: u64::from(exponent_bytes(page_exponent(limits.write_zeroes_bytes))),
            verify: u64::from(exponent_bytes(page_exponent(limits.verify_bytes))),
        }
    }
}

const OPCODE: CommandError = error(Status::INVALID_OPCODE, 0);
const FLAGS: CommandError = error(Status::INVALID_FIELD, 1);
pub(super) const FUSED_RESERVED: CommandError = FLAGS;
const NAMESPACE: CommandError = error(Status::INVALID_NAMESPACE, 4);
pub(super) const FABRICS_TYPE: CommandError = error(Status::INVALID_OPCODE, 4);
pub(super) const CONNECTED_ALREADY: CommandError = error(Status::COMMAND_SEQUENCE_ERROR, 4);
pub(super) const DATA_LENGTH: CommandError = error(Status::DATA_SGL_LENGTH_INVALID, 32);
const DATA_OFFSET: CommandError = error(Status::SGL_OFFSET_INVALID, 24);
const DATA_TYPE: CommandError = error(Status::SGL_DESCRIPTOR_TYPE_INVALID, 39);
const DATA_DIRECTION: CommandError = error(Status::INVALID_FIELD, 39);
pub(super) const DISCONNECT_FORMAT: CommandError = error(Status::CONNECT_INCOMPATIBLE_FORMAT, 40);
pub(super) const RANGE: CommandError = error(Status::LBA_OUT_OF_RANGE, 40);
const CONFLICT: CommandError =
    CommandError { status: Status::RESERVATION_CONFLICT.with_dnr(), parameter: None };
const WRITE_PROTECTED: CommandError = error(Status::NAMESPACE_WRITE_PROTECTED, 4);
pub(super) const SIZE: CommandError = error(Status::INVALID_FIELD, 48);
const ATOMIC_SIZE: CommandError = error(Status::ATOMIC_WRITE_UNIT_EXCEEDED, 48);
const FUSED_RANGE: CommandError = error(Status::INVALID_FIELD, 40);
pub(super) const DIRECTIVE: CommandError = error(Status::INVALID_FIELD, 50);
const NAMESPACE_ZEROES: CommandError = error(Status::INVALID_FIELD, 50);

const RESERVATION: CommandError = error(Status::INVALID_FIELD, 40);
const REPORT_SIZE: CommandError = error(Status::INVALID_FIELD, 40);
const HOST_ID_FORMAT: CommandError = error(Status::HOST_ID_INCONSISTENT_FORMAT, 44);

/// Reservation Report: Extended Data Structure (EDS).
const EXTENDED_DATA_STRUCTURE: u32 = 1;
/// Bytes of the data of Reservation Register and Reservation Acquire.
const KEYS_BYTES: u32 = 16;

/// Starting LBA of a command that has one, for the error log.
pub(super) fn slba(command: &Command) -> u64 {
    match command.nvm_opcode() {
        NvmOpcode::READ
        | NvmOpcode::WRITE
        | NvmOpcode::COMPARE
        | NvmOpcode::WRITE_ZEROES
        | NvmOpcode::VERIFY
        | NvmOpcode::COPY
        | NvmOpcode::WRITE_UNCORRECTABLE => StartingBlock::of(command).0,
        _ => 0,
    }
}

impl IoQueue {
    /// What is to be done for a command that stands alone.
    pub(super) fn check(&self, command: &Command) -> Result<IoAction, CommandError> {
        check_flags(command)?;
        match command.nvm_opcode() {
            NvmOpcode::READ => self.check_read(command).map(IoAction::Device),
            NvmOpcode::WRITE => self.check_write(command).map(IoAction::Device),
            NvmOpcode::FLUSH => self.check_flush(command),
            NvmOpcode::WRITE_ZEROES => self.check_write_zeroes(command).map(IoAction::Device),
            NvmOpcode::DATASET_MANAGEMENT => self.check_dataset_management(command),
            NvmOpcode::COMPARE => self.check_compare(command).map(IoAction::Device),
            NvmOpcode::VERIFY => self.check_verify(command).map(IoAction::Device),
            NvmOpcode::COPY => self.check_copy(command).map(IoAction::Device),
            NvmOpcode::WRITE_UNCORRECTABLE => {
                self.check_write_uncorrectable(command).map(IoAction::Device)
            }
            NvmOpcode::FABRICS => Self::check_fabrics(command),
            NvmOpcode::RESERVATION_REGISTER
            | NvmOpcode::RESERVATION_ACQUIRE
            | NvmOpcode::RESERVATION_RELEASE
            | NvmOpcode::RESERVATION_REPORT => {
                self.check_reservation(command).map(IoAction::Device)
            }
            _ => Err(OPCODE),
        }
    }

    /// The first half of a fused pair. The one pair that there is: Compare and Write.
    pub(super) fn check_fused_first(
        &self,
        command: &Command,
    ) -> Result<DeviceCommand, CommandError> {
        check_flags(command)?;
        if command.nvm_opcode() != NvmOpcode::COMPARE {
            return Err(FLAGS);
        }
        let compare = self.check_compare(command)?;
        let namespace = self.namespace(compare.nsid)?;
        let limit = namespace.hints.compare_and_write_blocks.max(1);
        match compare.operation.range() {
            Some((_, nlb)) if nlb <= limit => Ok(compare),
            _ => Err(ATOMIC_SIZE),
        }
    }

    /// The second half, which must name the same blocks.
    pub(super) fn check_fused_second(
        &self,
        command: &Command,
        compare: &DeviceCommand,
    ) -> Result<DeviceCommand, CommandError> {
        check_flags(command)?;
        if command.nvm_opcode() != NvmOpcode::WRITE {
            return Err(FLAGS);
        }
        let write = self.check_write(command)?;
        let same = write.nsid == compare.nsid
            && write.device == compare.device
            && write.operation.range() == compare.operation.range();
        if same { Ok(write) } else { Err(FUSED_RANGE) }
    }

    /// Checks a command again, against the present view.
    pub(super) fn recheck_place(&self, command: &DeviceCommand) -> Result<(), CommandError> {
        let namespace = self.namespace(command.nsid)?;
        if namespace.device != command.device {
            return Err(NAMESPACE);
        }
        if let Some((slba, nlb)) = command.operation.range() {
            check_range(namespace, slba, nlb)?;
        }
        match command.operation {
            operation if operation.modifies() => self.check_writable(namespace),
            DeviceOperation::Read { .. }
            | DeviceOperation::Compare { .. }
            | DeviceOperation::Verify { .. } => self.check_access(namespace, Refusals::READS),
            _ => Ok(()),
        }
    }

    /// The active namespace of this identifier, unless the host has identified it as
    /// another one, or the namespace is not to be reached through this port now.
    pub(super) fn namespace(&self, nsid: u32) -> Result<&NamespaceView, CommandError> {
        let namespace = self.namespaces.get(nsid).ok_or(NAMESPACE)?;
        if !self.is_plain {
            self.check_reach(namespace)?;
        }
        Ok(namespace)
    }

    #[cold]
    fn check_reach(&self, namespace: &NamespaceView) -> Result<(), CommandError> {
        if namespace.owner_change > self.owner_changes && !self.controller.has_identified(namespace)
        {
            return Err(NAMESPACE);
        }
        let refusal = self.ana.as_ref().and_then(|states| states.refusal(namespace.ana_group));
        refusal.map_or(Ok(()), |status| Err(CommandError { status, parameter: None }))
    }

    /// Force Unit Access of a read is not acted upon: as from Linux, the read sees what was
    /// written last, durable or not.
    fn check_read(&self, command: &Command) -> Result<DeviceCommand, CommandError> {
        let namespace = self.namespace(command.namespace_id.get())?;
        self.check_access(namespace, Refusals::READS)?;
        let read = ReadWrite::from_command(command);
        let (slba, nlb) = (read.slba, read.nlb());
        let length = self.check_blocks(command, namespace, slba, nlb, Direction::ToHost)?;
        let operation = DeviceOperation::Read { slba, nlb };
        Ok(device_command(command, namespace, operation, Transfer::ToHost(length)))
    }

    fn check_write(&self, command: &Command) -> Result<DeviceCommand, CommandError> {
        let namespace = self.namespace(command.namespace_id.get())?;
        let write = ReadWrite::from_command(command);
        if write.control.directive_type() != 0 {
            return Err(DIRECTIVE);
        }
        let (slba, nlb) = (write.slba, write.nlb());
        self.check_writable(namespace)?;
        let length = self.check_blocks(command, namespace, slba, nlb, Direction::FromHost)?;
        let durable = self.is_durable(write.control.force_unit_access());
        let operation = DeviceOperation::Write { slba, nlb, durable };
        Ok(device_command(command, namespace, operation, Transfer::FromHost(length)))
    }

    fn check_compare(&self, command: &Command) -> Result<DeviceCommand, CommandError> {
        let namespace = self.namespace(command.namespace_id.get())?;
        self.check_access(namespace, Refusals::READS)?;
        let compare = ReadWrite::from_command(command);
        let (slba, nlb) = (compare.slba, compare.nlb());
        let length = self.check_blocks(command, namespace, slba, nlb, Direction::FromHost)?;
        let operation = DeviceOperation::Compare { slba, nlb };
        Ok(device_command(command, namespace, operation, Transfer::FromHost(length)))
    }

    fn check_flush(&self, command: &Command) -> Result<IoAction, CommandError> {
        let done = IoAction::Complete(success(command));
        let nsid = command.namespace_id.get();
        if nsid == NAMESPACE_ID_BROADCAST {
            let any = self.namespaces.iter().any(|one| one.capabilities.volatile_cache);
            let command_id = command.command_id.get();
            return Ok(if any { IoAction::FlushAll { command_id } } else { done });
        }
        let namespace = self.namespace(nsid)?;
        self.check_access(namespace, Refusals::WRITES)?;
        if !namespace.capabilities.volatile_cache {
            return Ok(done);
        }
        let flush = DeviceOperation::Flush;
        Ok(IoAction::Device(device_command(command, namespace, flush, Transfer::None)))
    }

    fn check_write_zeroes(&self, command: &Command) -> Result<DeviceCommand, CommandError> {
        let namespace = self.namespace(command.namespace_id.get())?;
        let zeroes = WriteZeroes::from_command(command);
        if zeroes.control.namespace_zeroes() {
            return Err(NAMESPACE_ZEROES);
        }
        let (slba, nlb) = (zeroes.slba, zeroes.nlb());
        check_range(namespace, slba, nlb)?;
        self.check_writable(namespace)?;
        check_bytes(namespace, nlb, self.limits.write_zeroes)?;
        let operation = DeviceOperation::WriteZeroes {
            slba,
            nlb,
            deallocate: zeroes.control.deallocate()
                && namespace.capabilities.write_zeroes_deallocates,
            durable: self.is_durable(zeroes.control.force_unit_access()),
        };
        Ok(device_command(command, namespace, operation, Transfer::None))
    }

    /// Without Deallocate, and on a device that does not support it, the command has no effect.
    fn check_dataset_management(&self, command: &Command) -> Result<IoAction, CommandError> {
        let namespace = self.namespace(command.namespace_id.get())?;
        let management = DatasetManagement::from_command(command);
        if !management.attributes.deallocate() || !namespace.capabilities.deallocate {
            return Ok(IoAction::Complete(success(command)));
        }
        self.check_writable(namespace)?;
        let length = management.data_length();
        // The Linux host always sends room for 256 ranges, however few there are.
        if self.described(command, Direction::FromHost)? < length {
            return Err(DATA_LENGTH);
        }
        let operation = DeviceOperation::Deallocate { ranges: management.range_count };
        let transfer = Transfer::FromHost(length);
        Ok(IoAction::Device(device_command(command, namespace, operation, transfer)))
    }

    fn check_verify(&self, command: &Command) -> Result<DeviceCommand, CommandError> {
        let namespace = self.namespace(command.namespace_id.get())?;
        self.check_access(namespace, Refusals::READS)?;
        let verify = ReadWrite::from_command(command);
        let (slba, nlb) = (verify.slba, verify.nlb());
        check_range(namespace, slba, nlb)?;
        check_bytes(namespace, nlb, self.limits.verify)?;
        let operation = DeviceOperation::Verify { slba, nlb };
        Ok(device_command(command, namespace, operation, Transfer::None))
    }

    /// The commands of reservations are for every host, whatever is reserved.
    fn check_reservation(&self, command: &Command) -> Result<DeviceCommand, CommandError> {
        let namespace = self.namespace(command.namespace_id.get())?;
        let (operation, direction, length) = match command.nvm_opcode() {
            NvmOpcode::RESERVATION_REPORT => {
                // Over Fabrics a Host Identifier has 128 bits.
                if command.cdw11.get() & EXTENDED_DATA_STRUCTURE == 0 {
                    return Err(HOST_ID_FORMAT);
                }
                let bytes = (u64::from(command.cdw10.get()) + 1) * 4;
                let length = u32::try_from(bytes).ok();
                let length = length.filter(|_| bytes <= self.limits.transfer).ok_or(REPORT_SIZE)?;
                (DeviceOperation::ReportReservations, Direction::ToHost, length)
            }
            opcode => {
                let (operation, length) = reserving(opcode, command)?;
                (DeviceOperation::Reserve(operation), Direction::FromHost, length)
            }
        };
        self.check_data(command, length, direction)?;
        let transfer = match direction {
            Direction::ToHost => Transfer::ToHost(length),
            Direction::FromHost => Transfer::FromHost(length),
        };
        Ok(device_command(command, namespace, operation, transfer))
    }

    fn check_write_uncorrectable(&self, command: &Command) -> Result<DeviceCommand, CommandError> {
        let namespace = self.namespace(command.namespace_id.get())?;
        if !namespace.capabilities.write_uncorrectable {
            return Err(OPCODE);
        }
        let mark = ReadWrite::from_command(command);
        let (slba, nlb) = (mark.slba, mark.nlb());
        check_range(namespace, slba, nlb)?;
        self.check_writable(namespace)?;
        let operation = DeviceOperation::WriteUncorrectable { slba, nlb };
        Ok(device_command(command, namespace, operation, Transfer::None))
    }

    /// Range, size and data of a command that moves blocks; how many bytes these are.
    fn check_blocks(
        &self,
        command: &Command,
        namespace: &NamespaceView,
        slba: u64,
        nlb: u32,
        direction: Direction,
    ) -> Result<u32, CommandError> {
        check_range(namespace, slba, nlb)?;
        let bytes = check_bytes(namespace, nlb, self.limits.transfer)?;
        let length = u32::try_from(bytes).map_err(|_| SIZE)?;
        self.check_data(command, length, direction)?;
        Ok(length)
    }

    /// The data pointer must describe exactly the data that the command moves.
    fn check_data(
        &self,
        command: &Command,
        length: u32,
        direction: Direction,
    ) -> Result<(), CommandError> {
        if self.described(command, direction)? == length { Ok(()) } else { Err(DATA_LENGTH) }
    }

    /// The number of bytes that the data pointer describes.
    pub(super) fn described(
        &self,
        command: &Command,
        direction: Direction,
    ) -> Result<u32, CommandError> {
        match command.data_pointer.location() {
            Ok(Location::Transport { length } | Location::Keyed { length, .. }) => Ok(length),
            Ok(Location::InCapsule { offset, length }) => {
                if direction == Direction::ToHost {
                    return Err(DATA_DIRECTION);
                }
                if offset != 0 || length > self.limits.in_capsule {
                    return Err(DATA_OFFSET);
                }
                Ok(length)
            }
            _ => Err(DATA_TYPE),
        }
    }

    pub(super) fn check_writable(&self, namespace: &NamespaceView) -> Result<(), CommandError> {
        if namespace.is_write_protected() {
            return Err(WRITE_PROTECTED);
        }
        self.check_access(namespace, Refusals::WRITES)
    }

    /// The reservation of a namespace may refuse what the host wants.
    pub(super) fn check_access(
        &self,
        namespace: &NamespaceView,
        what: Refusals,
    ) -> Result<(), CommandError> {
        match self.access.refuses(namespace.nsid, what) {
            false => Ok(()),
            true => Err(CONFLICT),
        }
    }

    /// Whether a write must be durable: it says so, or the write cache is off.
    pub(super) fn is_durable(&self, force_unit_access: bool) -> bool {
        force_unit_access || !self.controller.write_cache()
    }
}

/// What a reservation command is to change, and how much data its keys are.
fn reserving(opcode: NvmOpcode, command: &Command) -> Result<(Operation, u32), CommandError> {
    let control = ReservationControl(command.cdw10.get());
    let (action, kind) = (control.raw_action(), control.reservation_type());
    if opcode == NvmOpcode::RESERVATION_REGISTER {
        let action = RegisterAction(action);
        let change = PersistenceChange(control.raw_persistence());
        if !action.is_known() || !change.is_known() {
            return Err(RESERVATION);
        }
        let persist = match change {
            PersistenceChange::NONE => None,
            change => Some(change == PersistenceChange::ON),
        };
        let ignore_existing_key = control.ignore_existing_key();
        let operation = Operation::Register { action, ignore_existing_key, persist };
        return Ok((operation, KEYS_BYTES));
    }
    // The key of a registrant always counts.
    if control.ignore_existing_key() {
        return Err(RESERVATION);
    }
    if opcode == NvmOpcode::RESERVATION_ACQUIRE {
        let action = AcquireAction(action);
        if !action.is_known() || !kind.is_held() {
            return Err(RESERVATION);
        }
        return Ok((Operation::Acquire { action, kind }, KEYS_BYTES));
    }
    let action = ReleaseAction(action);
    if !action.is_known() {
        return Err(RESERVATION);
    }
    // Linux sends as much as with the other commands, of which the first key counts.
    let location = command.data_pointer.location();
    let has_both = location.is_ok_and(|location| location.length() == KEYS_BYTES);
    let length = if has_both { KEYS_BYTES } else { RELEASE_BYTES };
    Ok((Operation::Release { action, kind }, length))
}

/// Which way a command's data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToHost,
    FromHost,
}

/// Over Fabrics every command uses SGLs. Of Fabrics commands the bits are reserved.
fn check_flags(command: &Command) -> Result<(), CommandError> {
    match command.flags.data_pointer() {
        DataPointer::SGL_METADATA_BUFFER | DataPointer::SGL_METADATA_SGL => Ok(()),
        _ if command.is_fabrics() => Ok(()),
        _ => Err(FLAGS),
    }
}

pub(super) fn check_range(
    namespace: &NamespaceView,
    slba: u64,
    nlb: u32,
) -> Result<(), CommandError> {
    match slba.checked_add(u64::from(nlb)) {
        Some(end) if end <= namespace.blocks => Ok(()),
        _ => Err(RANGE),
    }
}

fn check_bytes(namespace: &NamespaceView, nlb: u32, limit: u64) -> Result<u64, CommandError> {
    let bytes = u64::from(nlb) * u64::from(namespace.block_bytes);
    if bytes <= limit { Ok(bytes) } else { Err(SIZE) }
}

fn success(command: &Command) -> Completion {
    Completion::new(command.command_id.get(), Status::SUCCESS)
}

pub(super) fn device_command(
    command: &Command,
    namespace: &NamespaceView,
    operation: DeviceOperation,
    transfer: Transfer,
) -> DeviceCommand {
    DeviceCommand {
        command_id: command.command_id.get(),
        device: namespace.device,
        nsid: namespace.nsid,
        operation,
        transfer,
    }
}
