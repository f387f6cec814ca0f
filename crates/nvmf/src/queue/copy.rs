//! Copy: the check of its command, and of the source ranges that come as its data.

use weft_nvme::nvm::{CopyCommand, CopySourceRange};
use weft_nvme::{Command, Status, Wire};

use super::check::{DATA_LENGTH, DIRECTIVE, Direction, RANGE, SIZE, check_range, device_command};
use super::{CommandError, DeviceCommand, DeviceOperation, IoQueue, Transfer, error};
use crate::limits;
use crate::reservation::Refusals;
use crate::subsystem::NamespaceView;

/// The descriptor format whose ranges are of the namespace that is written.
const SAME_NAMESPACE: u8 = 0;
/// The one whose ranges name their namespaces.
const ANY_NAMESPACE: u8 = 2;

/// Copy Descriptor Formats Supported (CDFS).
pub(crate) const COPY_FORMATS: u16 = 1 << SAME_NAMESPACE | 1 << ANY_NAMESPACE;

const FORMAT: CommandError = error(Status::INVALID_FIELD, 49);
const RANGES: CommandError = error(Status::COMMAND_SIZE_LIMIT_EXCEEDED, 48);

/// A source range of a Copy command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyRange {
    /// Namespace Identifier.
    pub nsid: u32,
    /// Index of its device in the target's table.
    pub device: u32,
    /// Starting LBA.
    pub slba: u64,
    /// Number of logical blocks, counted from 1.
    pub nlb: u32,
}

/// Why a Copy command failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyError {
    /// The status.
    pub status: Status,
    /// The source range that was not copied, and none before it: for Dword 0.
    pub range: u32,
}

impl IoQueue {
    /// What can be checked before the source ranges are there.
    pub(super) fn check_copy(&self, command: &Command) -> Result<DeviceCommand, CommandError> {
        let namespace = self.namespace(command.namespace_id.get())?;
        let copy = CopyCommand::from_command(command);
        if copy.control.directive_type() != 0 {
            return Err(DIRECTIVE);
        }
        let is_enabled = match copy.control.descriptor_format() {
            SAME_NAMESPACE => true,
            ANY_NAMESPACE => self.controller.copy_formats() & (1 << ANY_NAMESPACE) != 0,
            _ => false,
        };
        if !is_enabled {
            return Err(FORMAT);
        }
        if copy.ranges() > limits::COPY_RANGES_MAX {
            return Err(RANGES);
        }
        check_range(namespace, copy.sdlba, 1)?;
        self.check_writable(namespace)?;
        let length = copy.data_length();
        if self.described(command, Direction::FromHost)? < length {
            return Err(DATA_LENGTH);
        }
        let operation = DeviceOperation::Copy {
            sdlba: copy.sdlba,
            ranges: copy.ranges(),
            names_namespaces: copy.control.descriptor_format() == ANY_NAMESPACE,
            durable: self.is_durable(copy.control.force_unit_access()),
        };
        Ok(device_command(command, namespace, operation, Transfer::FromHost(length)))
    }

    /// Reads the data of a Copy command: its source ranges, of which all are checked before the
    /// first is copied.
    pub fn handle_copy(
        &self,
        command: &DeviceCommand,
        data: &[u8],
    ) -> Result<Box<[CopyRange]>, CopyError> {
        let first = |error: CommandError| CopyError { status: error.status, range: 0 };
        self.recheck_place(command).map_err(first)?;
        let to = self.namespace(command.nsid).map_err(first)?;
        let DeviceOperation::Copy { sdlba, ranges, names_namespaces, .. } = command.operation
        else {
            return Err(first(FORMAT));
        };
        let limits = self.limits.copy.of(to.block_bytes);
        let (mut rest, mut total) = (data, 0_u64);
        let mut result = Vec::with_capacity(usize::from(ranges));
        for range in 0..u32::from(ranges) {
            let of_range = |error: CommandError| CopyError { status: error.status, range };
            let source = CopySourceRange::view(rest).map_err(|_| of_range(DATA_LENGTH))?;
            rest = rest.get(CopySourceRange::SIZE..).unwrap_or_default();
            let nsid = match names_namespaces {
                true => source.source_namespace_id.get(),
                false => command.nsid,
            };
            let nlb = u32::from(source.nlb_0s_based.get()) + 1;
            total += u64::from(nlb);
            if nlb > u32::from(limits.range_blocks) || total > u64::from(limits.blocks) {
                return Err(of_range(RANGES));
            }
            let range = CopyRange { nsid, device: 0, slba: source.slba.get(), nlb };
            let from = self.check_source(&range, to).map_err(of_range)?;
            result.push(CopyRange { device: from.device, ..range });
        }
        let total = u32::try_from(total).map_err(|_| first(SIZE))?;
        check_range(to, sdlba, total).map_err(first)?;
        let overlaps = |range: &CopyRange| {
            range.device == command.device
                && range.slba < sdlba + u64::from(total)
                && sdlba < range.slba + u64::from(range.nlb)
        };
        if let Some(range) = result.iter().position(overlaps) {
            let range = u32::try_from(range).unwrap_or(u32::MAX);
            return Err(CopyError { status: Status::OVERLAPPING_IO_RANGE.with_dnr(), range });
        }
        Ok(result.into_boxed_slice())
    }

    /// Whether a Copy command may go on with this range: it and the blocks that are written are
    /// still there, and the host may still read and write them.
    pub fn recheck_copy(&self, command: &DeviceCommand, range: &CopyRange) -> Result<(), Status> {
        self.recheck_place(command).map_err(|error| error.status)?;
        let to = self.namespace(command.nsid).map_err(|error| error.status)?;
        let from = self.check_source(range, to).map_err(|error| error.status)?;
        if from.device == range.device { Ok(()) } else { Err(Status::INVALID_NAMESPACE.with_dnr()) }
    }

    fn check_source(
        &self,
        range: &CopyRange,
        to: &NamespaceView,
    ) -> Result<&NamespaceView, CommandError> {
        let from = self.namespace(range.nsid)?;
        if from.block_bytes != to.block_bytes {
            return Err(CommandError {
                status: Status::INCOMPATIBLE_NAMESPACE_OR_FORMAT.with_dnr(),
                parameter: None,
            });
        }
        if from.blocks < range.slba.saturating_add(u64::from(range.nlb)) {
            return Err(RANGE);
        }
        self.check_access(from, Refusals::READS)?;
        Ok(from)
    }
}
