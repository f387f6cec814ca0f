//! One I/O queue of a controller: checks its commands and translates them for the device.
//!
//! An [`IoQueue`] belongs to the reactor of its connection. It works from a snapshot of its
//! subsystem and returns for each command either a completion or the device's operation, whose
//! result is reported with [`IoQueue::complete`]. It holds at most one command: the first of a
//! fused pair.
//!
//! A read or write allocates nothing, takes no lock, and writes only the queue's own counters.
//!
//! The caller polls [`IoQueue::poll_completion`] after each command: an incomplete fused pair
//! completes an earlier command than the one just passed.

mod check;
mod copy;
mod device;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod record;
mod shared;

use std::collections::VecDeque;
use std::sync::Arc;

use weft_nvme::command::Fused as FusedField;
use weft_nvme::feature::Arbitration;
use weft_nvme::nvm::{DatasetRange, ReadWrite};
use weft_nvme::{Command, Completion, FabricsType, NvmOpcode, Status, Wire};

use crate::ana::GroupStates;
use crate::reservation::{self, HostAccess, HostId};
use crate::subsystem::{Namespaces, SubsystemLimits, SubsystemView};

pub(crate) use copy::COPY_FORMATS;
pub use copy::{CopyError, CopyRange};
pub use device::{DeviceCommand, DeviceOperation, Transfer};
pub(crate) use shared::ErrorRecord;
pub use shared::{ControllerShared, QueueShared};

/// A queue that a controller granted to a connection: what [`IoQueue::new`] needs, on whichever
/// reactor.
#[derive(Debug, Clone)]
pub struct QueueGrant {
    /// Queue ID.
    pub queue_id: u16,
    /// Entries of the submission queue.
    pub entries: u32,
    /// Whether SQ flow control is used.
    pub flow_control: bool,
    /// Its priority class, if the host has chosen weighted round robin.
    pub priority: Option<u8>,
    /// The controller that the queue belongs to.
    pub controller_id: u16,
    /// The port that the controller's host came to.
    pub port_id: u16,
    /// Identifier of the Connect command.
    pub command_id: u16,
    /// The queue's words.
    pub shared: Arc<QueueShared>,
    /// The controller's words.
    pub controller: Arc<ControllerShared>,
    /// The controller's limits.
    pub limits: SubsystemLimits,
}

impl QueueGrant {
    /// The answer to the Connect.
    #[must_use]
    pub fn completion(&self) -> Completion {
        let head = Head::after_connect(self.entries, self.flow_control);
        Completion::new(self.command_id, Status::SUCCESS)
            .with_dword0(u32::from(self.controller_id))
            .with_submission_queue_head(if self.flow_control { head.value } else { u16::MAX })
            .with_submission_queue_id(self.queue_id)
    }
}

/// SQ Head Pointer: advances by one with each command that arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    value: u16,
    /// 0 without SQ flow control: then the pointer is reserved.
    entries: u32,
}

impl Head {
    /// The head once the Connect itself has been taken from the queue.
    pub(crate) fn after_connect(entries: u32, flow_control: bool) -> Self {
        let mut head = Self { value: 0, entries: if flow_control { entries } else { 0 } };
        head.advance();
        head
    }

    pub(crate) fn advance(&mut self) {
        let next = u32::from(self.value) + 1;
        if next < self.entries {
            self.value = self.value.wrapping_add(1);
        } else {
            self.value = 0;
        }
    }

    pub(crate) fn value(self) -> u16 {
        self.value
    }
}

/// What is to be done for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoAction {
    /// Send this completion.
    Complete(Completion),
    /// Let a device do this, then [`IoQueue::complete`] it.
    Device(DeviceCommand),
    /// Flush the device of each of [`IoQueue::namespaces`], then complete the command.
    FlushAll {
        /// Command Identifier.
        command_id: u16,
    },
    /// Keep the command and its data: it is the first half of a fused pair. It ends with
    /// [`IoAction::Fused`] or through [`IoQueue::poll_completion`].
    Held {
        /// Command Identifier.
        command_id: u16,
    },
    /// Compare and, if equal, write, as one; then [`IoQueue::complete_fused`].
    Fused {
        /// The first half, which was held.
        compare: DeviceCommand,
        /// The second half, which has just come.
        write: DeviceCommand,
    },
    /// The host deletes this queue: send the completion, then end the queue and its connection.
    Disconnect(Completion),
}

/// The error of a command, for its completion and the error log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CommandError {
    pub(crate) status: Status,
    /// The byte of the command that is in error (Parameter Error Location).
    pub(crate) parameter: Option<u8>,
}

/// An error of the byte at this offset of the command, with Do Not Retry.
pub(crate) const fn error(status: Status, parameter: u8) -> CommandError {
    CommandError { status: status.with_dnr(), parameter: Some(parameter) }
}

/// The one command that a queue may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fused {
    /// None.
    None,
    /// The first half of a pair.
    Held(DeviceCommand),
    /// The first half was refused; the second must be too.
    Refused,
}

/// One I/O queue.
#[derive(Debug)]
pub struct IoQueue {
    queue_id: u16,
    head: Head,
    namespaces: Namespaces,
    port_id: u16,
    /// The access states at the port, if any of them refuses commands.
    ana: Option<Arc<GroupStates>>,
    /// Changes of owner that the controller is not older than.
    owner_changes: u64,
    /// Every namespace of the table can be reached: no state refuses commands, no owner is newer
    /// than the controller.
    is_plain: bool,
    limits: check::Limits,
    fused: Fused,
    late: VecDeque<Completion>,
    shared: Arc<QueueShared>,
    /// What reservations refuse to the host.
    access: Arc<HostAccess>,
    controller: Arc<ControllerShared>,
}

impl IoQueue {
    /// The queue that was granted, over this view of its subsystem.
    #[must_use]
    pub fn new(grant: QueueGrant, view: &SubsystemView) -> Self {
        let mut queue = Self {
            queue_id: grant.queue_id,
            head: Head::after_connect(grant.entries, grant.flow_control),
            namespaces: Namespaces::default(),
            port_id: grant.port_id,
            ana: None,
            owner_changes: grant.controller.owner_changes(),
            is_plain: false,
            limits: check::Limits::of(&grant.limits),
            fused: Fused::None,
            late: VecDeque::new(),
            shared: grant.shared,
            access: Arc::clone(grant.controller.access()),
            controller: grant.controller,
        };
        queue.replace_view(view);
        queue
    }

    /// Queue ID.
    #[must_use]
    pub fn queue_id(&self) -> u16 {
        self.queue_id
    }

    /// The Host Identifier of its host.
    #[must_use]
    pub fn host_id(&self) -> &HostId {
        self.controller.host_id()
    }

    /// The feature Arbitration of its controller.
    #[must_use]
    pub fn arbitration(&self) -> Arbitration {
        self.controller.arbitration()
    }

    /// Takes the namespaces of a newer view. Commands that come from now on are held against them;
    /// those that a device already has are not.
    pub fn replace_view(&mut self, view: &SubsystemView) {
        self.namespaces = view.namespaces.clone();
        self.ana = view.ana.as_ref().and_then(|ana| ana.refusing(self.port_id));
        self.is_plain = self.ana.is_none() && view.owner_changes <= self.owner_changes;
    }

    /// The namespaces of the view, for [`IoAction::FlushAll`].
    #[must_use]
    pub fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// The device, SLBA and number of blocks of a Read or Write that has not been taken yet,
    /// unchecked.
    #[must_use]
    pub fn device_range(&self, command: &Command) -> Option<(u32, u64, u32)> {
        if !matches!(command.nvm_opcode(), NvmOpcode::READ | NvmOpcode::WRITE) {
            return None;
        }
        let namespace = self.namespace(command.namespace_id.get()).ok()?;
        let read_write = ReadWrite::from_command(command);
        Some((namespace.device, read_write.slba, read_write.nlb()))
    }

    /// Takes a command that arrived.
    pub fn handle_command(&mut self, command: &Command) -> IoAction {
        self.arrived();
        if command.flags.raw_fused() != 0 || self.fused != Fused::None {
            return self.handle_fusing(command);
        }
        self.handle_plain(command)
    }

    /// Completes a command whose data was not received correctly with `status`.
    pub fn reject(&mut self, command: &Command, status: Status) -> Completion {
        self.arrived();
        match command.flags.fused() {
            FusedField::SECOND => self.give_up_held(Status::ABORTED_FAILED_FUSED),
            _ => self.give_up_held(Status::ABORTED_MISSING_FUSED),
        }
        if command.flags.fused() == FusedField::FIRST {
            self.fused = Fused::Refused;
        }
        self.refuse(command, CommandError { status, parameter: None })
    }

    /// The next completion of a command that was held, if there is one.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.late.pop_front()
    }

    /// Whether a command that waited for its data may still go to its device: the namespace is
    /// there, is the same device, is large enough and may be written.
    pub fn recheck(&self, command: &DeviceCommand) -> Result<(), Status> {
        self.recheck_place(command).map_err(|error| error.status)
    }

    /// Reads the data of a Dataset Management command: the ranges to deallocate, as first block
    /// and number of blocks. There may be none.
    pub fn handle_ranges(
        &self,
        command: &DeviceCommand,
        data: &[u8],
    ) -> Result<Box<[(u64, u32)]>, Status> {
        self.recheck(command)?;
        let namespace = self.namespace(command.nsid).map_err(|error| error.status)?;
        let DeviceOperation::Deallocate { ranges } = command.operation else {
            return Err(Status::INVALID_FIELD.with_dnr());
        };
        let mut result = Vec::with_capacity(usize::from(ranges));
        let mut rest = data;
        for _ in 0..ranges {
            let range =
                DatasetRange::view(rest).map_err(|_| Status::DATA_SGL_LENGTH_INVALID.with_dnr())?;
            rest = rest.get(DatasetRange::SIZE..).unwrap_or_default();
            let end = range.blocks().map(|blocks| blocks.end);
            if end.is_none_or(|end| end > namespace.blocks) {
                return Err(Status::LBA_OUT_OF_RANGE.with_dnr());
            }
            if range.nlb.get() > 0 {
                result.push((range.slba.get(), range.nlb.get()));
            }
        }
        Ok(result.into_boxed_slice())
    }

    /// Ends a command that was given to a device, or to [`IoAction::FlushAll`].
    pub fn complete(&mut self, command_id: u16, status: Status) -> Completion {
        self.shared.count_completion();
        Completion::new(command_id, status)
            .with_submission_queue_head(self.head.value())
            .with_submission_queue_id(self.queue_id)
    }

    /// Ends a device command with a status; one that is not success goes to the error log.
    pub fn complete_device(&mut self, command: &DeviceCommand, status: Status) -> Completion {
        if !status.is_success() {
            self.controller.errors().push(ErrorRecord {
                count: 0,
                queue_id: self.queue_id,
                command_id: command.command_id,
                status,
                parameter: None,
                lba: command.operation.first_block(),
                nsid: command.nsid,
                opcode: command.operation.opcode().0,
            });
        }
        self.complete(command.command_id, status)
    }

    /// Ends both commands of a fused pair; a failure fails the compare and aborts the write.
    pub fn complete_fused(
        &mut self,
        compare: &DeviceCommand,
        write: &DeviceCommand,
        status: Status,
    ) -> [Completion; 2] {
        let first = self.complete_device(compare, status);
        let second = if status.is_success() { status } else { Status::ABORTED_FAILED_FUSED };
        [first, self.complete(write.command_id, second)]
    }

    /// Aborts the command that the queue itself holds, if it is this one. Any other command is
    /// with a device or with the transport.
    pub fn abort_held(&mut self, command_id: u16) -> Option<Completion> {
        match self.fused {
            Fused::Held(held) if held.command_id == command_id => {
                self.fused = Fused::Refused;
                Some(self.complete(command_id, Status::ABORT_REQUESTED))
            }
            _ => None,
        }
    }

    /// Ends the command that the queue itself holds, if it may not be executed any more.
    pub fn refuse_held(&mut self) -> Option<Completion> {
        let Fused::Held(held) = self.fused else { return None };
        let status = self.recheck(&held).err()?;
        self.fused = Fused::Refused;
        Some(self.complete_device(&held, status))
    }

    /// A command has come that the queue's owner completes itself, with [`IoQueue::complete`]: one
    /// of authentication, or one that came before it. Other commands count themselves.
    pub fn arrived(&mut self) {
        self.head.advance();
        self.shared.count_command();
    }

    fn handle_plain(&mut self, command: &Command) -> IoAction {
        match self.check(command) {
            Ok(IoAction::Complete(done)) => {
                IoAction::Complete(self.complete(done.command_id.get(), done.status()))
            }
            Ok(IoAction::Disconnect(done)) => {
                IoAction::Disconnect(self.complete(done.command_id.get(), done.status()))
            }
            Ok(action) => action,
            Err(error) => IoAction::Complete(self.refuse(command, error)),
        }
    }

    /// A command that is part of a fused pair, or comes between the two halves of one.
    #[cold]
    fn handle_fusing(&mut self, command: &Command) -> IoAction {
        match command.flags.fused() {
            FusedField::FIRST => self.handle_first(command),
            FusedField::SECOND => self.handle_second(command),
            FusedField::NONE => {
                self.give_up_held(Status::ABORTED_MISSING_FUSED);
                self.handle_plain(command)
            }
            _ => {
                self.give_up_held(Status::ABORTED_MISSING_FUSED);
                IoAction::Complete(self.refuse(command, check::FUSED_RESERVED))
            }
        }
    }

    fn handle_first(&mut self, command: &Command) -> IoAction {
        self.give_up_held(Status::ABORTED_MISSING_FUSED);
        match self.check_fused_first(command) {
            Ok(held) => {
                self.fused = Fused::Held(held);
                IoAction::Held { command_id: held.command_id }
            }
            Err(error) => {
                self.fused = Fused::Refused;
                IoAction::Complete(self.refuse(command, error))
            }
        }
    }

    fn handle_second(&mut self, command: &Command) -> IoAction {
        let status = match std::mem::replace(&mut self.fused, Fused::None) {
            Fused::None => Status::ABORTED_MISSING_FUSED,
            Fused::Refused => Status::ABORTED_FAILED_FUSED,
            Fused::Held(compare) => match self.check_fused_second(command, &compare) {
                Ok(write) => return IoAction::Fused { compare, write },
                Err(error) => {
                    self.fused = Fused::Held(compare);
                    self.give_up_held(Status::ABORTED_FAILED_FUSED);
                    return IoAction::Complete(self.refuse(command, error));
                }
            },
        };
        IoAction::Complete(self.refuse(command, CommandError { status, parameter: None }))
    }

    /// Answers the held command, if there is one, and forgets a refused one.
    fn give_up_held(&mut self, status: Status) {
        if let Fused::Held(held) = std::mem::replace(&mut self.fused, Fused::None) {
            let completion = self.complete_device(&held, status);
            self.late.push_back(completion);
        }
    }

    #[cold]
    fn refuse(&mut self, command: &Command, error: CommandError) -> Completion {
        self.controller.errors().push(ErrorRecord {
            count: 0,
            queue_id: self.queue_id,
            command_id: command.command_id.get(),
            status: error.status,
            parameter: error.parameter,
            lba: check::slba(command),
            nsid: command.namespace_id.get(),
            opcode: command.opcode,
        });
        self.complete(command.command_id.get(), error.status)
    }

    /// A Fabrics command on an I/O queue: of all of them, Disconnect.
    fn check_fabrics(command: &Command) -> Result<IoAction, CommandError> {
        match command.fabrics_type() {
            Some(FabricsType::DISCONNECT) => {
                let format = weft_nvme::fabrics::Disconnect::from_command(command).record_format;
                if format != weft_nvme::fabrics::RECORD_FORMAT {
                    return Err(check::DISCONNECT_FORMAT);
                }
                let done = Completion::new(command.command_id.get(), Status::SUCCESS);
                Ok(IoAction::Disconnect(done))
            }
            Some(FabricsType::CONNECT) => Err(check::CONNECTED_ALREADY),
            _ => Err(check::FABRICS_TYPE),
        }
    }
}

impl DeviceOperation {
    /// The opcode of the command that asks for this.
    fn opcode(&self) -> NvmOpcode {
        match self {
            Self::Read { .. } => NvmOpcode::READ,
            Self::Write { .. } => NvmOpcode::WRITE,
            Self::Flush => NvmOpcode::FLUSH,
            Self::WriteZeroes { .. } => NvmOpcode::WRITE_ZEROES,
            Self::Deallocate { .. } => NvmOpcode::DATASET_MANAGEMENT,
            Self::Copy { .. } => NvmOpcode::COPY,
            Self::Compare { .. } => NvmOpcode::COMPARE,
            Self::Verify { .. } => NvmOpcode::VERIFY,
            Self::WriteUncorrectable { .. } => NvmOpcode::WRITE_UNCORRECTABLE,
            Self::Reserve(reservation::Operation::Acquire { .. }) => NvmOpcode::RESERVATION_ACQUIRE,
            Self::Reserve(reservation::Operation::Release { .. }) => NvmOpcode::RESERVATION_RELEASE,
            Self::Reserve(_) => NvmOpcode::RESERVATION_REGISTER,
            Self::ReportReservations => NvmOpcode::RESERVATION_REPORT,
        }
    }
}

#[cfg(test)]
mod tests;
