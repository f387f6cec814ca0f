//! What the books of a queue do not hold: the buffers of its requests, and how a request becomes
//! a command.

use weft_backend::{Completion, Failure, Operation, Request};
use weft_nvme::command::{Flags, Fused};
use weft_nvme::nvm::{DatasetAttributes, DatasetManagement, DatasetRange, ReadWrite, WriteZeroes};
use weft_nvme::status::StatusCode;
use weft_nvme::{Command, NvmOpcode, Status, Wire};
use weft_nvmf::host::request_table::{FusedPart, Kind, Part, RequestError};
use weft_reactor::{Buffer, Pool};
use weft_transport::host::HostData;

use crate::limits;

/// The memory of one request, at the index that its number in the books gives.
#[derive(Debug, Default)]
pub(super) struct Memory {
    tag: u64,
    pub(super) nsid: u32,
    block_bytes: u32,
    durable: bool,
    deallocate: bool,
    /// Read into, written from, or compared with.
    buffer: Option<Buffer>,
    /// What a compare-and-write compares with.
    compare: Option<Buffer>,
    ranges: Box<[(u64, u32)]>,
}

/// What the books need to know of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) block: u64,
    pub(super) blocks: u32,
}

impl Memory {
    /// Takes a request apart.
    pub(super) fn new(nsid: u32, block_bytes: u32, request: Request) -> (Self, Entry) {
        let mut memory = Self { tag: request.tag, nsid, block_bytes, ..Self::default() };
        let (kind, block, blocks) = match request.operation {
            Operation::Read { slba, nlb, into } => {
                memory.buffer = Some(into);
                (Kind::Read, slba, nlb)
            }
            Operation::Write { slba, nlb, from, durable } => {
                memory.buffer = Some(from);
                memory.durable = durable;
                (Kind::Write, slba, nlb)
            }
            Operation::Flush => (Kind::Flush, 0, 0),
            Operation::WriteZeroes { slba, nlb, deallocate, durable } => {
                memory.deallocate = deallocate;
                memory.durable = durable;
                (Kind::WriteZeroes, slba, nlb)
            }
            Operation::Discard { ranges } => {
                memory.ranges = ranges;
                let count = u32::try_from(memory.ranges.len()).unwrap_or(u32::MAX);
                (Kind::Deallocate, 0, count)
            }
            Operation::Compare { slba, nlb, with } => {
                memory.buffer = Some(with);
                (Kind::Compare, slba, nlb)
            }
            Operation::CompareAndWrite { slba, nlb, compare, write, durable } => {
                memory.buffer = Some(write);
                memory.compare = Some(compare);
                memory.durable = durable;
                (Kind::CompareAndWrite, slba, nlb)
            }
            Operation::Verify { slba, nlb } => (Kind::Verify, slba, nlb),
            Operation::WriteUncorrectable { slba, nlb } => (Kind::WriteUncorrectable, slba, nlb),
        };
        (memory, Entry { kind, block, blocks })
    }

    /// The request's end.
    pub(super) fn complete(self, result: Result<(), Failure>) -> Completion {
        Completion { tag: self.tag, result, buffer: self.buffer }
    }

    /// Bytes of data that a part moves.
    pub(super) fn data_bytes(&self, part: &Part) -> usize {
        let each = match part.kind {
            Kind::Read | Kind::Write | Kind::Compare | Kind::CompareAndWrite => self.block_bytes,
            Kind::Deallocate => u32::try_from(DatasetRange::SIZE).unwrap_or(0),
            _ => 0,
        };
        part.blocks as usize * each as usize
    }

    /// The command of a part and its data; `None` while the pool has no buffer for it.
    pub(super) fn command(&mut self, part: &Part, pool: &Pool) -> Option<(Command, HostData)> {
        let data = self.data(part, pool)?;
        Some((self.dwords(part), data))
    }

    fn data(&mut self, part: &Part, pool: &Pool) -> Option<HostData> {
        let bytes = self.data_bytes(part);
        match part.kind {
            Kind::Read => {
                let own = if part.whole { self.buffer.take() } else { None };
                let buffer = match own {
                    Some(buffer) => buffer,
                    None => pool.take(bytes)?,
                };
                Some(HostData::FromController(buffer))
            }
            Kind::Write | Kind::Compare | Kind::CompareAndWrite => {
                if part.whole {
                    // It comes back with the command's end, or with the connection's.
                    return self.whole(part).take().map(HostData::ToController);
                }
                let start = part.skipped as usize * self.block_bytes as usize;
                let piece = self.buffer.as_ref()?.get(start..start + bytes)?;
                let mut buffer = pool.take(bytes)?;
                buffer.bytes_mut().copy_from_slice(piece);
                Some(HostData::ToController(buffer))
            }
            Kind::Deallocate => {
                let first = part.skipped as usize;
                let ranges = self.ranges.get(first..first + part.blocks as usize)?;
                let mut buffer = pool.take(bytes)?;
                let places = buffer.bytes_mut().chunks_exact_mut(DatasetRange::SIZE);
                for (place, (block, blocks)) in places.zip(ranges) {
                    place.copy_from_slice(DatasetRange::new(*block, *blocks).bytes());
                }
                Some(HostData::ToController(buffer))
            }
            Kind::Flush | Kind::WriteZeroes | Kind::Verify | Kind::WriteUncorrectable => {
                Some(HostData::None)
            }
        }
    }

    fn dwords(&self, part: &Part) -> Command {
        let read_write = |opcode, durable| {
            ReadWrite::new(part.block, part.blocks)
                .unwrap_or_default()
                .with_force_unit_access(durable)
                .to_command(opcode, self.nsid)
        };
        match part.kind {
            Kind::Read => read_write(NvmOpcode::READ, false),
            Kind::Write => read_write(NvmOpcode::WRITE, self.durable),
            Kind::Compare => read_write(NvmOpcode::COMPARE, false),
            Kind::Verify => read_write(NvmOpcode::VERIFY, false),
            Kind::WriteUncorrectable => read_write(NvmOpcode::WRITE_UNCORRECTABLE, false),
            Kind::CompareAndWrite if part.fused == FusedPart::First => {
                let flags = Flags::SGL.with_fused(Fused::FIRST);
                read_write(NvmOpcode::COMPARE, false).with_flags(flags)
            }
            Kind::CompareAndWrite => {
                let flags = Flags::SGL.with_fused(Fused::SECOND);
                read_write(NvmOpcode::WRITE, self.durable).with_flags(flags)
            }
            Kind::Flush => Command::new(NvmOpcode::FLUSH).with_namespace_id(self.nsid),
            Kind::WriteZeroes => {
                let mut zeroes = WriteZeroes::new(part.block, part.blocks).unwrap_or_default();
                zeroes.control = zeroes
                    .control
                    .with_deallocate(self.deallocate)
                    .with_force_unit_access(self.durable);
                zeroes.to_command(self.nsid)
            }
            Kind::Deallocate => DatasetManagement {
                range_count: u16::try_from(part.blocks).unwrap_or(u16::MAX),
                attributes: DatasetAttributes(0).with_deallocate(true),
            }
            .to_command(self.nsid),
        }
    }

    /// The place of the buffer of a part that is all of its request.
    fn whole(&mut self, part: &Part) -> &mut Option<Buffer> {
        match part.fused {
            FusedPart::First => &mut self.compare,
            FusedPart::No | FusedPart::Second => &mut self.buffer,
        }
    }

    /// A command ended: its buffer comes back. Tells whether the part could be sent again; if
    /// not, part of it is still being sent, and nobody may have it until then.
    pub(super) fn take_back(&mut self, part: &Part, returned: Option<Buffer>, good: bool) -> bool {
        if part.whole {
            return self.take_back_whole(part, returned);
        }
        if part.kind == Kind::Read
            && let (true, Some(piece), Some(whole)) = (good, returned, &mut self.buffer)
        {
            let start = part.skipped as usize * self.block_bytes as usize;
            if let Some(place) = whole.bytes_mut().get_mut(start..start + piece.len()) {
                place.copy_from_slice(&piece);
            }
        }
        true
    }

    /// As [`Memory::take_back`], for a part whose data moved nowhere, or nobody knows.
    pub(super) fn take_back_whole(&mut self, part: &Part, returned: Option<Buffer>) -> bool {
        match part.kind {
            Kind::Read | Kind::Write | Kind::Compare | Kind::CompareAndWrite if part.whole => {
                // A read can use any buffer, so only what is to be sent has to be back.
                let is_back = returned.is_some() || part.kind == Kind::Read;
                *self.whole(part) = returned;
                is_back
            }
            _ => true,
        }
    }
}

/// What a fault means to the user of a block device.
pub(super) fn failure_of(fault: RequestError) -> Failure {
    match fault {
        RequestError::Status(status) => failure_of_status(status),
        RequestError::PathLost => Failure::PathLost,
        RequestError::Broken => Failure::Device(limits::ERROR_BROKEN),
        RequestError::Gone => Failure::Gone,
        RequestError::NoMemory => Failure::Device(limits::ERROR_NO_MEMORY),
        RequestError::TooLarge => Failure::Unsupported,
    }
}

fn failure_of_status(status: Status) -> Failure {
    match status.code() {
        StatusCode::LBA_OUT_OF_RANGE => Failure::OutOfRange,
        StatusCode::NAMESPACE_WRITE_PROTECTED => Failure::ReadOnly,
        code if code == Status::READ_ONLY_RANGE.code() => Failure::ReadOnly,
        StatusCode::COMPARE_FAILURE => Failure::Mismatch,
        StatusCode::CAPACITY_EXCEEDED => Failure::NoSpace,
        StatusCode::INVALID_OPCODE => Failure::Unsupported,
        StatusCode::UNRECOVERED_READ_ERROR | StatusCode::UNWRITTEN_BLOCK => Failure::MediaRead,
        StatusCode::WRITE_FAULT => Failure::MediaWrite,
        StatusCode::INVALID_NAMESPACE => Failure::Gone,
        StatusCode::ABORT_REQUESTED | StatusCode::ABORTED_QUEUE_DELETED => Failure::Aborted,
        _ => Failure::Remote(status.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_nvmf::host::request_table::{PartId, RequestId};

    fn part(kind: Kind, fused: FusedPart, block: u64, blocks: u32, skipped: u32) -> Part {
        let whole = skipped == 0;
        Part { id: PartId(0), request: RequestId(0), kind, fused, block, blocks, skipped, whole }
    }

    fn pool() -> Pool {
        Pool::new(1 << 20).unwrap()
    }

    fn filled(pool: &Pool, bytes: &[u8]) -> Buffer {
        let mut buffer = pool.take(bytes.len()).unwrap();
        buffer.bytes_mut().copy_from_slice(bytes);
        buffer
    }

    fn memory(operation: Operation) -> (Memory, Entry) {
        Memory::new(5, 512, Request { tag: 77, operation })
    }

    #[test]
    fn a_durable_write_has_fua_and_keeps_its_buffer() {
        let pool = pool();
        let from = filled(&pool, &[7; 1024]);
        let (mut memory, entry) = memory(Operation::Write { slba: 9, nlb: 2, from, durable: true });
        assert_eq!((entry.kind, entry.block, entry.blocks), (Kind::Write, 9, 2));
        let part = part(Kind::Write, FusedPart::No, 9, 2, 0);
        let (command, data) = memory.command(&part, &pool).unwrap();
        let read_write = ReadWrite::from_command(&command);
        assert!(read_write.control.force_unit_access());
        assert_eq!((read_write.starting_block, read_write.block_count()), (9, 2));
        assert_eq!((command.nvm_opcode(), command.namespace_id.get()), (NvmOpcode::WRITE, 5));
        let HostData::ToController(buffer) = data else { panic!("{data:?}") };
        assert!(memory.take_back(&part, Some(buffer), true));
        let completion = memory.complete(Ok(()));
        assert_eq!((completion.tag, completion.buffer.unwrap().is_shared()), (77, false));
    }

    #[test]
    fn a_buffer_that_is_still_being_sent_does_not_come_back() {
        let pool = pool();
        let from = filled(&pool, &[7; 512]);
        let (mut memory, _) = memory(Operation::Write { slba: 9, nlb: 1, from, durable: false });
        let part = part(Kind::Write, FusedPart::No, 9, 1, 0);
        let sent = memory.command(&part, &pool).unwrap();
        assert!(!memory.take_back(&part, None, false));
        assert!(memory.complete(Ok(())).buffer.is_none());
        drop(sent);
    }

    #[test]
    fn parts_of_a_read_are_put_together() {
        let pool = pool();
        let into = filled(&pool, &[0; 1536]);
        let (mut memory, _) = memory(Operation::Read { slba: 0, nlb: 3, into });
        let mut second = part(Kind::Read, FusedPart::No, 1, 2, 1);
        second.whole = false;
        let Some((_, HostData::FromController(mut buffer))) = memory.command(&second, &pool) else {
            panic!()
        };
        assert_eq!(buffer.len(), 1024);
        buffer.bytes_mut().fill(3);
        assert!(memory.take_back(&second, Some(buffer), true));
        let buffer = memory.complete(Ok(())).buffer.unwrap();
        assert!(buffer[..512].iter().all(|byte| *byte == 0));
        assert!(buffer[512..].iter().all(|byte| *byte == 3));
    }

    #[test]
    fn a_discard_writes_its_ranges_out() {
        let pool = pool();
        let ranges: Box<[_]> = Box::new([(1, 2), (0x1_0000_0000, 8)]);
        let (mut memory, entry) = memory(Operation::Discard { ranges });
        assert_eq!((entry.kind, entry.blocks), (Kind::Deallocate, 2));
        let part = part(Kind::Deallocate, FusedPart::No, 0, 2, 0);
        let (command, data) = memory.command(&part, &pool).unwrap();
        let dataset = DatasetManagement::from_command(&command);
        assert_eq!((dataset.range_count, dataset.attributes.deallocate()), (2, true));
        let HostData::ToController(buffer) = data else { panic!("{data:?}") };
        assert_eq!(buffer[..16], *DatasetRange::new(1, 2).bytes());
        assert_eq!(buffer[16..], *DatasetRange::new(0x1_0000_0000, 8).bytes());
    }

    #[test]
    fn the_fused_pair_is_marked() {
        let pool = pool();
        let (compare, write) = (filled(&pool, &[1; 512]), filled(&pool, &[2; 512]));
        let operation =
            Operation::CompareAndWrite { slba: 4, nlb: 1, compare, write, durable: false };
        let (mut memory, _) = memory(operation);
        let first = part(Kind::CompareAndWrite, FusedPart::First, 4, 1, 0);
        let (command, data) = memory.command(&first, &pool).unwrap();
        assert_eq!(command.flags.fused(), Fused::FIRST);
        assert_eq!(command.nvm_opcode(), NvmOpcode::COMPARE);
        assert!(matches!(data, HostData::ToController(buffer) if buffer[0] == 1));
        let second = part(Kind::CompareAndWrite, FusedPart::Second, 4, 1, 0);
        let (command, data) = memory.command(&second, &pool).unwrap();
        assert_eq!(command.flags.fused(), Fused::SECOND);
        assert_eq!(command.nvm_opcode(), NvmOpcode::WRITE);
        assert!(matches!(data, HostData::ToController(buffer) if buffer[0] == 2));
    }

    #[test]
    fn statuses_become_failures() {
        for (status, failure) in [
            (Status::LBA_OUT_OF_RANGE.with_dnr(), Failure::OutOfRange),
            (Status::COMPARE_FAILURE, Failure::Mismatch),
            (Status::INVALID_NAMESPACE.with_dnr(), Failure::Gone),
            (Status::INTERNAL_ERROR, Failure::Remote(Status::INTERNAL_ERROR.0)),
        ] {
            assert_eq!(failure_of(RequestError::Status(status)), failure);
        }
        assert_eq!(failure_of(RequestError::PathLost), Failure::PathLost);
    }
}
