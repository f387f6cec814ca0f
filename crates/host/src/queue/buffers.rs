//! The buffers of requests and the commands of their parts, beside the request table.

use weft_backend::{Failure, Operation, Request, RequestCompletion};
use weft_nvme::command::{Flags, Fused};
use weft_nvme::nvm::{
    CopyCommand, DatasetAttributes, DatasetManagement, DatasetRange, ReadWrite, WriteZeroes,
};
use weft_nvme::status::StatusCode;
use weft_nvme::{Command, NvmOpcode, Status, Wire};
use weft_nvmf::host::request_table::{FusedPart, Kind, RequestError, RequestPart};
use weft_reactor::{Buffer, Pool};
use weft_transport::host::HostData;

use crate::limits;

/// The buffers of one request, at the index of its identifier in the request table.
#[derive(Debug, Default)]
pub(super) struct RequestBuffers {
    pub(super) tag: u64,
    pub(super) nsid: u32,
    block_bytes: u32,
    durable: bool,
    deallocate: bool,
    /// Read into, written from, or compared with.
    buffer: Option<Buffer>,
    /// The compared data of a compare-and-write.
    compare: Option<Buffer>,
    ranges: Box<[(u64, u32)]>,
    copy: Option<Box<CopyRequest>>,
    reservation: Option<Box<ReservationCommand>>,
}

/// A Copy of one command, whose source ranges are in a buffer.
#[derive(Debug)]
pub(crate) struct CopyRequest {
    pub(crate) command: CopyCommand,
    /// The namespaces that are read.
    pub(crate) sources: Box<[u32]>,
}

/// A reservation command, whose keys or report are in a buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReservationCommand {
    pub(crate) command: Command,
    /// Whether the controller sends the data.
    pub(crate) is_report: bool,
}

/// A request for the request table.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestRange {
    pub(super) kind: Kind,
    pub(super) slba: u64,
    pub(super) nlb: u32,
}

impl RequestBuffers {
    /// Splits a request into its buffers and its entry.
    pub(super) fn new(nsid: u32, block_bytes: u32, request: Request) -> (Self, RequestRange) {
        let mut buffers = Self { tag: request.tag, nsid, block_bytes, ..Self::default() };
        let (kind, slba, nlb) = match request.operation {
            Operation::Read { slba, nlb, into } => {
                buffers.buffer = Some(into);
                (Kind::Read, slba, nlb)
            }
            Operation::Write { slba, nlb, from, durable } => {
                buffers.buffer = Some(from);
                buffers.durable = durable;
                (Kind::Write, slba, nlb)
            }
            Operation::Flush => (Kind::Flush, 0, 0),
            Operation::WriteZeroes { slba, nlb, deallocate, durable } => {
                buffers.deallocate = deallocate;
                buffers.durable = durable;
                (Kind::WriteZeroes, slba, nlb)
            }
            Operation::Discard { ranges } => {
                buffers.ranges = ranges;
                let count = u32::try_from(buffers.ranges.len()).unwrap_or(u32::MAX);
                (Kind::Deallocate, 0, count)
            }
            Operation::Compare { slba, nlb, with } => {
                buffers.buffer = Some(with);
                (Kind::Compare, slba, nlb)
            }
            Operation::CompareAndWrite { slba, nlb, compare, write, durable } => {
                buffers.buffer = Some(write);
                buffers.compare = Some(compare);
                buffers.durable = durable;
                (Kind::CompareAndWrite, slba, nlb)
            }
            Operation::Verify { slba, nlb } => (Kind::Verify, slba, nlb),
            Operation::WriteUncorrectable { slba, nlb } => (Kind::WriteUncorrectable, slba, nlb),
        };
        (buffers, RequestRange { kind, slba, nlb })
    }

    /// A Copy.
    pub(super) fn of_copy(nsid: u32, tag: u64, copy: CopyRequest, ranges: Buffer) -> Self {
        Self { tag, nsid, buffer: Some(ranges), copy: Some(Box::new(copy)), ..Self::default() }
    }

    /// A reservation command.
    pub(super) fn of_reservation(
        nsid: u32,
        tag: u64,
        what: ReservationCommand,
        data: Buffer,
    ) -> Self {
        let reservation = Some(Box::new(what));
        Self { tag, nsid, buffer: Some(data), reservation, ..Self::default() }
    }

    /// The namespaces that the request is for.
    pub(super) fn nsids(&self) -> impl Iterator<Item = u32> {
        let sources = self.copy.as_ref().map_or(&[][..], |copy| &copy.sources[..]);
        std::iter::once(self.nsid).chain(sources.iter().copied())
    }

    /// The request's end.
    pub(super) fn complete(self, result: Result<(), Failure>) -> RequestCompletion {
        RequestCompletion { tag: self.tag, result, buffer: self.buffer }
    }

    /// The request once more, for another path. `Err`: a part of its data is still being sent, or
    /// there is no memory.
    pub(super) fn into_request(
        mut self,
        kind: Kind,
        slba: u64,
        nlb: u32,
        pool: &Pool,
    ) -> Result<Request, Self> {
        if kind == Kind::Read && self.buffer.is_none() {
            self.buffer = pool.take(nlb as usize * self.block_bytes as usize);
        }
        let has_buffer = matches!(kind, Kind::Read | Kind::Write | Kind::Compare);
        let durable = self.durable;
        let operation = match (kind, self.buffer.take(), self.compare.take()) {
            (Kind::Read, Some(into), _) => Operation::Read { slba, nlb, into },
            (Kind::Write, Some(from), _) => Operation::Write { slba, nlb, from, durable },
            (Kind::Compare, Some(with), _) => Operation::Compare { slba, nlb, with },
            (Kind::CompareAndWrite, Some(write), Some(compare)) => {
                Operation::CompareAndWrite { slba, nlb, compare, write, durable }
            }
            (_, buffer, compare) if has_buffer || kind == Kind::CompareAndWrite => {
                return Err(Self { buffer, compare, ..self });
            }
            (Kind::WriteZeroes, ..) => {
                Operation::WriteZeroes { slba, nlb, deallocate: self.deallocate, durable }
            }
            (Kind::Deallocate, ..) => Operation::Discard { ranges: self.ranges },
            (Kind::Verify, ..) => Operation::Verify { slba, nlb },
            (Kind::WriteUncorrectable, ..) => Operation::WriteUncorrectable { slba, nlb },
            // No device has it, so no other path.
            (Kind::Copy | Kind::Reservation, buffer, _) => return Err(Self { buffer, ..self }),
            _ => Operation::Flush,
        };
        Ok(Request { tag: self.tag, operation })
    }

    /// Bytes of data that a part moves.
    pub(super) fn data_bytes(&self, part: &RequestPart) -> usize {
        let each = match part.kind {
            Kind::Read | Kind::Write | Kind::Compare | Kind::CompareAndWrite => self.block_bytes,
            Kind::Deallocate => u32::try_from(DatasetRange::SIZE).unwrap_or(0),
            _ => 0,
        };
        part.nlb as usize * each as usize
    }

    /// The command of a part and its data; `None` while the pool has no buffer for it.
    pub(super) fn command(
        &mut self,
        part: &RequestPart,
        pool: &Pool,
    ) -> Option<(Command, HostData)> {
        let data = self.data(part, pool)?;
        Some((self.dwords(part), data))
    }

    fn data(&mut self, part: &RequestPart, pool: &Pool) -> Option<HostData> {
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
                let ranges = self.ranges.get(first..first + part.nlb as usize)?;
                let mut buffer = pool.take(bytes)?;
                let places = buffer.bytes_mut().chunks_exact_mut(DatasetRange::SIZE);
                for (place, (slba, nlb)) in places.zip(ranges) {
                    place.copy_from_slice(DatasetRange::new(*slba, *nlb).bytes());
                }
                Some(HostData::ToController(buffer))
            }
            Kind::Copy => self.buffer.take().map(HostData::ToController),
            Kind::Reservation => {
                let is_report = self.reservation.as_ref().is_some_and(|what| what.is_report);
                self.buffer.take().map(match is_report {
                    true => HostData::FromController,
                    false => HostData::ToController,
                })
            }
            Kind::Flush | Kind::WriteZeroes | Kind::Verify | Kind::WriteUncorrectable => {
                Some(HostData::None)
            }
        }
    }

    fn dwords(&self, part: &RequestPart) -> Command {
        let read_write = |opcode, durable| {
            ReadWrite::new(part.slba, part.nlb)
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
                let mut zeroes = WriteZeroes::new(part.slba, part.nlb).unwrap_or_default();
                zeroes.control = zeroes
                    .control
                    .with_deallocate(self.deallocate)
                    .with_force_unit_access(self.durable);
                zeroes.to_command(self.nsid)
            }
            Kind::Deallocate => DatasetManagement {
                range_count: u16::try_from(part.nlb).unwrap_or(u16::MAX),
                attributes: DatasetAttributes(0).with_deallocate(true),
            }
            .to_command(self.nsid),
            Kind::Copy => {
                let copy = self.copy.as_ref().map(|copy| copy.command);
                copy.unwrap_or_default().to_command(self.nsid)
            }
            Kind::Reservation => {
                let command = self.reservation.as_ref().map(|what| what.command);
                command.unwrap_or_default().with_namespace_id(self.nsid)
            }
        }
    }

    /// The buffer of a part that is its whole request.
    fn whole(&mut self, part: &RequestPart) -> &mut Option<Buffer> {
        match part.fused {
            FusedPart::First => &mut self.compare,
            FusedPart::No | FusedPart::Second => &mut self.buffer,
        }
    }

    /// A command ended: its buffer comes back. Returns whether the part could be sent again; if
    /// not, a part of the buffer is still being sent and must not be used until then.
    pub(super) fn return_buffer(
        &mut self,
        part: &RequestPart,
        returned: Option<Buffer>,
        good: bool,
    ) -> bool {
        if part.whole {
            return self.return_whole_buffer(part, returned);
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

    /// As [`RequestBuffers::return_buffer`], for a part whose data was not moved, or perhaps not.
    pub(super) fn return_whole_buffer(
        &mut self,
        part: &RequestPart,
        returned: Option<Buffer>,
    ) -> bool {
        match part.kind {
            Kind::Read
            | Kind::Write
            | Kind::Compare
            | Kind::CompareAndWrite
            | Kind::Copy
            | Kind::Reservation
                if part.whole =>
            {
                // A read can use any buffer, so only data to be sent has to be back.
                let is_back = returned.is_some() || part.kind == Kind::Read;
                *self.whole(part) = returned;
                is_back
            }
            _ => true,
        }
    }
}

/// An error as the failure of a block device.
pub(super) fn failure_of(error: RequestError) -> Failure {
    match error {
        RequestError::Status(status) => failure_of_status(status),
        RequestError::PathLost | RequestError::NotSent => Failure::PathLost,
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

    fn part(kind: Kind, fused: FusedPart, slba: u64, nlb: u32, skipped: u32) -> RequestPart {
        let whole = skipped == 0;
        RequestPart { id: PartId(0), request: RequestId(0), kind, fused, slba, nlb, skipped, whole }
    }

    fn pool() -> Pool {
        Pool::new(1 << 20).unwrap()
    }

    fn filled(pool: &Pool, bytes: &[u8]) -> Buffer {
        let mut buffer = pool.take(bytes.len()).unwrap();
        buffer.bytes_mut().copy_from_slice(bytes);
        buffer
    }

    fn buffers(operation: Operation) -> (RequestBuffers, RequestRange) {
        RequestBuffers::new(5, 512, Request { tag: 77, operation })
    }

    #[test]
    fn a_durable_write_has_fua_and_keeps_its_buffer() {
        let pool = pool();
        let from = filled(&pool, &[7; 1024]);
        let (mut buffers, entry) =
            buffers(Operation::Write { slba: 9, nlb: 2, from, durable: true });
        assert_eq!((entry.kind, entry.slba, entry.nlb), (Kind::Write, 9, 2));
        let part = part(Kind::Write, FusedPart::No, 9, 2, 0);
        let (command, data) = buffers.command(&part, &pool).unwrap();
        let read_write = ReadWrite::from_command(&command);
        assert!(read_write.control.force_unit_access());
        assert_eq!((read_write.slba, read_write.nlb()), (9, 2));
        assert_eq!((command.nvm_opcode(), command.namespace_id.get()), (NvmOpcode::WRITE, 5));
        let HostData::ToController(buffer) = data else { panic!("{data:?}") };
        assert!(buffers.return_buffer(&part, Some(buffer), true));
        let completion = buffers.complete(Ok(()));
        assert_eq!((completion.tag, completion.buffer.unwrap().is_shared()), (77, false));
    }

    #[test]
    fn a_buffer_that_is_still_being_sent_does_not_come_back() {
        let pool = pool();
        let from = filled(&pool, &[7; 512]);
        let (mut buffers, _) = buffers(Operation::Write { slba: 9, nlb: 1, from, durable: false });
        let part = part(Kind::Write, FusedPart::No, 9, 1, 0);
        let sent = buffers.command(&part, &pool).unwrap();
        assert!(!buffers.return_buffer(&part, None, false));
        assert!(buffers.complete(Ok(())).buffer.is_none());
        drop(sent);
    }

    #[test]
    fn parts_of_a_read_are_put_together() {
        let pool = pool();
        let into = filled(&pool, &[0; 1536]);
        let (mut buffers, _) = buffers(Operation::Read { slba: 0, nlb: 3, into });
        let mut second = part(Kind::Read, FusedPart::No, 1, 2, 1);
        second.whole = false;
        let Some((_, HostData::FromController(mut buffer))) = buffers.command(&second, &pool)
        else {
            panic!()
        };
        assert_eq!(buffer.len(), 1024);
        buffer.bytes_mut().fill(3);
        assert!(buffers.return_buffer(&second, Some(buffer), true));
        let buffer = buffers.complete(Ok(())).buffer.unwrap();
        assert!(buffer[..512].iter().all(|byte| *byte == 0));
        assert!(buffer[512..].iter().all(|byte| *byte == 3));
    }

    #[test]
    fn a_discard_writes_its_ranges_out() {
        let pool = pool();
        let ranges: Box<[_]> = Box::new([(1, 2), (0x1_0000_0000, 8)]);
        let (mut buffers, entry) = buffers(Operation::Discard { ranges });
        assert_eq!((entry.kind, entry.nlb), (Kind::Deallocate, 2));
        let part = part(Kind::Deallocate, FusedPart::No, 0, 2, 0);
        let (command, data) = buffers.command(&part, &pool).unwrap();
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
        let (mut buffers, _) = buffers(operation);
        let first = part(Kind::CompareAndWrite, FusedPart::First, 4, 1, 0);
        let (command, data) = buffers.command(&first, &pool).unwrap();
        assert_eq!(command.flags.fused(), Fused::FIRST);
        assert_eq!(command.nvm_opcode(), NvmOpcode::COMPARE);
        assert!(matches!(data, HostData::ToController(buffer) if buffer[0] == 1));
        let second = part(Kind::CompareAndWrite, FusedPart::Second, 4, 1, 0);
        let (command, data) = buffers.command(&second, &pool).unwrap();
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
