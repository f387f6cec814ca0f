//! Operations on files, in steps of one system call or io_uring entry each.
//!
//! One [`FileOperation`] is one operation of the caller. It may take several steps: the rest of a
//! short transfer, or another method of zeroing where a file system does not support the first.

use crate::driver::step::KernelRequest;
use crate::limits::ZERO_BYTES;
use crate::mapping::Mapping;
use crate::operation::{Operation, Outcome, ReactorCompletion, Token};
use crate::passthrough::{self, Commands, DeallocatedRange};
use crate::pool::Buffer;
use crate::slab::{Key, Slab};
use crate::ublk::QueueInfo;
use rustix::fs::{FallocateFlags, FileType};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// A file as a reactor knows it.
#[derive(Debug)]
pub(crate) struct OpenFile {
    file: Arc<File>,
    direct: bool,
    is_block_device: bool,
    /// Whether completions of reads and writes are polled.
    is_polled: bool,
    /// What it is of a ublk device.
    ublk: Option<QueueInfo>,
    /// What it is without the block layer.
    commands: Option<Commands>,
}

impl OpenFile {
    pub(crate) fn new(file: Arc<File>, direct: bool) -> Self {
        let is_block_device = rustix::fs::fstat(&file)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice);
        Self { file, direct, is_block_device, is_polled: false, ublk: None, commands: None }
    }

    /// One of which completions are polled.
    pub(crate) fn polled(file: Arc<File>) -> Self {
        Self { is_polled: true, ..Self::new(file, true) }
    }

    /// A queue of a ublk device.
    pub(crate) fn ublk(file: Arc<File>, place: QueueInfo) -> Self {
        Self { ublk: Some(place), ..Self::new(file, false) }
    }

    /// A namespace without the block layer.
    pub(crate) fn commanded(file: Arc<File>, commands: Commands) -> Self {
        Self { commands: Some(commands), ..Self::new(file, true) }
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The files of one reactor.
#[derive(Debug)]
pub(crate) struct Files(Slab<Rc<OpenFile>>);

impl Files {
    pub(crate) fn new() -> Self {
        Self(Slab::new())
    }

    pub(crate) fn add(&mut self, file: OpenFile) -> Key {
        self.0.insert(Rc::new(file))
    }

    pub(crate) fn remove(&mut self, key: Key) {
        self.0.remove(key);
    }

    /// The work behind an operation on a file, or the completion of one that cannot begin.
    pub(crate) fn prepare(
        &self,
        token: Token,
        operation: Operation,
    ) -> Result<FileOperation, ReactorCompletion> {
        let key = match &operation {
            Operation::Read { file, .. }
            | Operation::Write { file, .. }
            | Operation::Sync { file }
            | Operation::Discard { file, .. }
            | Operation::WriteZeroes { file, .. }
            | Operation::FetchUblk { file, .. } => file.0,
            _ => unreachable!("only operations on files come here"),
        };
        let Some(file) = self.0.get(key) else {
            return Err(ReactorCompletion { token, outcome: operation.refuse(Errno::BADF) });
        };
        FileOperation::new(token, Rc::clone(file), operation)
    }
}

/// One operation on a file, under way. Its buffer stays here until the completion.
#[derive(Debug)]
pub(crate) struct FileOperation {
    token: Token,
    file: Rc<OpenFile>,
    operation: Operation,
    /// The method of zeroing, for an operation that zeroes.
    way: ZeroMethod,
    done: u64,
    /// Bytes of the command in flight, and the range that it deallocates.
    commanded: u64,
    deallocated: Option<Box<DeallocatedRange>>,
    /// How often the kernel has taken the command back without an answer.
    taken_back: u8,
}

/// So often a command is handed over again: Linux' own number (`nvme_core.max_retries`).
const COMMAND_RETRIES: u8 = 5;

/// The methods of zeroing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ZeroMethod {
    PunchHole,
    ZeroRange,
    Device,
    Write,
}

impl FileOperation {
    fn new(
        token: Token,
        file: Rc<OpenFile>,
        operation: Operation,
    ) -> Result<Self, ReactorCompletion> {
        let unmaps = matches!(operation, Operation::WriteZeroes { unmap: true, .. });
        let way = match (unmaps, file.is_block_device) {
            _ if file.commands.is_some_and(|commands| !commands.format.writes_zeroes) => {
                ZeroMethod::Write
            }
            _ if file.commands.is_some() => ZeroMethod::Device,
            (true, _) => ZeroMethod::PunchHole,
            (false, true) => ZeroMethod::Device,
            (false, false) => ZeroMethod::ZeroRange,
        };
        let this = Self {
            token,
            file,
            operation,
            way,
            done: 0,
            commanded: 0,
            deallocated: None,
            taken_back: 0,
        };
        let (offset, length) = this.range();
        let in_range = offset.checked_add(length).is_some_and(|end| i64::try_from(end).is_ok())
            && this.file.commands.is_none_or(|all| all.has_whole_blocks(offset, length));
        if !in_range {
            return Err(this.end(Err(Errno::INVAL.into())));
        }
        match &this.operation {
            Operation::Sync { .. } => Ok(this),
            Operation::FetchUblk { buffer, .. } => match this.file.ublk {
                Some(place) if buffer.capacity() >= place.buffer_bytes => Ok(this),
                _ => Err(this.end(Err(Errno::INVAL.into()))),
            },
            // On a queue no file operation means anything.
            _ if this.file.ublk.is_some() => Err(this.end(Err(Errno::INVAL.into()))),
            _ if length == 0 => Err(this.end(Ok(()))),
            _ => Ok(this),
        }
    }

    /// Which bytes of the file: from where, and how many.
    fn range(&self) -> (u64, u64) {
        match &self.operation {
            Operation::Read { offset, range, .. } | Operation::Write { offset, range, .. } => {
                (*offset, range.len() as u64)
            }
            Operation::Discard { offset, length, .. }
            | Operation::WriteZeroes { offset, length, .. } => (*offset, *length),
            _ => (0, 0),
        }
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    /// Whether it waits for what may never come.
    pub(crate) fn is_open_ended(&self) -> bool {
        matches!(self.operation, Operation::FetchUblk { .. })
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.descriptor()
    }

    /// Whether it is nothing but system calls, which any poller can make.
    pub(crate) fn is_plain(&self) -> bool {
        !self.is_final() && self.file.ublk.is_none()
    }

    /// Whether the device has it, and nobody can take it back.
    pub(crate) fn is_final(&self) -> bool {
        self.file.is_polled || self.file.commands.is_some()
    }

    /// Whether its completion is polled, if it reads or writes.
    pub(crate) fn is_polled(&self) -> bool {
        self.file.is_polled
    }

    /// The next request to the kernel.
    pub(crate) fn step(&mut self) -> KernelRequest {
        let (offset, length) = self.range();
        let (offset, length) = (offset + self.done, length - self.done);
        match &self.operation {
            Operation::Read { buffer, range, .. } => {
                let (memory, len) = self.memory(buffer, range);
                KernelRequest::Read { memory, len, offset }
            }
            Operation::Write { buffer, range, durable, .. } => {
                let (memory, len) = self.memory(buffer, range);
                KernelRequest::Write { memory, len, offset, durable: *durable }
            }
            Operation::Discard { .. }
                if self.file.is_block_device || self.file.commands.is_some() =>
            {
                KernelRequest::DeviceDiscard { offset, length }
            }
            Operation::Discard { .. } => KernelRequest::Allocate { flags: hole(), offset, length },
            Operation::WriteZeroes { .. } => match self.way {
                ZeroMethod::PunchHole => KernelRequest::Allocate { flags: hole(), offset, length },
                ZeroMethod::ZeroRange => {
                    let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
                    KernelRequest::Allocate { flags, offset, length }
                }
                ZeroMethod::Device => KernelRequest::DeviceZero { offset, length },
                ZeroMethod::Write => {
                    let (memory, most) = zeroes();
                    let len = usize::try_from(length).map_or(most, |length| length.min(most));
                    KernelRequest::Write { memory, len, offset, durable: false }
                }
            },
            Operation::FetchUblk { tag, result, buffer, .. } => {
                let queue = self.file.ublk.map_or(u16::MAX, |place| place.queue);
                let memory = buffer.pointer();
                KernelRequest::FetchUblk { queue, tag: *tag, result: *result, memory }
            }
            _ => KernelRequest::Sync,
        }
    }

    /// The next command, if it is for a namespace without the block layer.
    pub(crate) fn command(&mut self) -> Option<[u8; 80]> {
        let commands = self.file.commands?;
        let step = self.step();
        let unmaps = matches!(self.operation, Operation::WriteZeroes { unmap: true, .. });
        let mut none = [0; 16];
        let range = match step {
            KernelRequest::DeviceDiscard { .. } => &mut **self.deallocated.get_or_insert_default(),
            _ => &mut none,
        };
        let (command, covered) = commands.command(step, unmaps, range);
        self.commanded = covered;
        Some(command)
    }

    /// Takes the result of a command: a status, or a negative error number. As [`Self::advance`].
    pub(crate) fn advance_command(&mut self, result: i32) -> Option<io::Result<()>> {
        if result >= 0 {
            self.taken_back = 0;
        }
        match result {
            0 if self.commanded > 0 => self.moved(self.commanded),
            0 => Some(Ok(())),
            status if status > 0 => self.fail(passthrough::error_of(status)),
            error => match Errno::from_raw_os_error(error.saturating_neg()) {
                // The controller was reset with the command in flight, or there is no room for it.
                // One that does not come back, or is reset by every such command, must not hold up
                // its thread.
                Errno::INTR | Errno::AGAIN if self.taken_back < COMMAND_RETRIES => {
                    self.taken_back += 1;
                    None
                }
                Errno::INTR => self.fail(Errno::NOLINK),
                error => self.fail(error),
            },
        }
    }

    /// What is left of the operation's range of its buffer.
    fn memory(&self, buffer: &Buffer, range: &Range<usize>) -> (*mut u8, usize) {
        let done = usize::try_from(self.done).expect("less than a buffer");
        // SAFETY: `done` is at most the range's length, and the range was checked to lie inside
        // the buffer when the operation was submitted.
        let memory = unsafe { buffer.pointer().add(range.start + done) };
        (memory, range.len() - done)
    }

    /// Takes a step's result. `Some` when the operation is over, otherwise [`step`](Self::step)
    /// is the next request.
    pub(crate) fn advance(&mut self, result: Result<u64, Errno>) -> Option<io::Result<()>> {
        match result {
            Err(Errno::INTR | Errno::AGAIN) => None,
            Err(error) => self.fail(error),
            Ok(count) => match (&self.operation, self.way) {
                (Operation::Read { .. } | Operation::Write { .. }, _)
                | (Operation::WriteZeroes { .. }, ZeroMethod::Write) => self.moved(count),
                _ => Some(Ok(())),
            },
        }
    }

    fn moved(&mut self, count: u64) -> Option<io::Result<()>> {
        let reads = matches!(self.operation, Operation::Read { .. });
        if count == 0 {
            let kind = if reads { io::ErrorKind::UnexpectedEof } else { io::ErrorKind::WriteZero };
            return Some(Err(kind.into()));
        }
        let (_, length) = self.range();
        self.done = (self.done + count).min(length);
        if self.done == length {
            return Some(Ok(()));
        }
        // A direct read comes short of a sector only at the end of the file, and could not go on
        // from there anyway.
        if reads && self.file.direct && !self.done.is_multiple_of(512) {
            return Some(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        None
    }

    fn fail(&mut self, error: Errno) -> Option<io::Result<()>> {
        let is_unsupported = matches!(error, Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV);
        if matches!(self.operation, Operation::WriteZeroes { .. })
            && is_unsupported
            && let Some(next) = next_method(self.way, self.file.is_block_device)
        {
            self.way = next;
            return None;
        }
        Some(Err(error.into()))
    }

    /// The completion of an operation with this result.
    pub(crate) fn end(self, result: io::Result<()>) -> ReactorCompletion {
        let outcome = match (result, self.operation) {
            (
                Ok(()),
                Operation::Read { buffer, .. }
                | Operation::Write { buffer, .. }
                | Operation::FetchUblk { buffer, .. },
            ) => Outcome::Transferred { buffer },
            (Ok(()), _) => Outcome::Done,
            (Err(error), operation) => match operation.refuse(error) {
                Outcome::Failed { error, buffer, message }
                    if error.raw_os_error() == Some(Errno::CANCELED.raw_os_error()) =>
                {
                    Outcome::Cancelled { buffer, message }
                }
                outcome => outcome,
            },
        };
        ReactorCompletion { token: self.token, outcome }
    }
}

fn hole() -> FallocateFlags {
    FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE
}

/// The method of zeroing to try when `way` is not supported. Each next one costs more; writing is
/// the last and always works.
fn next_method(way: ZeroMethod, is_block_device: bool) -> Option<ZeroMethod> {
    match way {
        ZeroMethod::PunchHole if is_block_device => Some(ZeroMethod::Device),
        ZeroMethod::PunchHole => Some(ZeroMethod::ZeroRange),
        ZeroMethod::ZeroRange | ZeroMethod::Device => Some(ZeroMethod::Write),
        ZeroMethod::Write => None,
    }
}

/// Page-aligned zeroes, for the whole process.
fn zeroes() -> (*const u8, usize) {
    static ZEROES: OnceLock<Mapping> = OnceLock::new();
    let mapping = ZEROES.get_or_init(|| {
        Mapping::reserve(ZERO_BYTES).expect("address space for a few pages of zeroes")
    });
    (mapping.base().as_ptr(), mapping.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{FileId, Owner};
    use crate::passthrough::NvmeFormat;
    use crate::pool::Pool;

    const TOKEN: Token = Token::new(Owner(1), 2);

    fn begin(direct: bool, operation: impl FnOnce(FileId) -> Operation) -> FileOperation {
        let mut files = Files::new();
        let file = Arc::new(tempfile::tempfile().unwrap());
        let key = files.add(OpenFile::new(file, direct));
        files.prepare(TOKEN, operation(FileId(key))).unwrap()
    }

    fn read(pool: &Pool, direct: bool) -> FileOperation {
        let buffer = pool.take(8192).unwrap();
        begin(direct, |file| Operation::Read { file, offset: 1000, buffer, range: 100..4196 })
    }

    #[test]
    fn a_short_read_goes_on_where_it_stopped() {
        let pool = Pool::new(1).unwrap();
        let mut operation = read(&pool, false);
        let KernelRequest::Read { memory: start, len: 4096, offset: 1000 } = operation.step()
        else {
            panic!()
        };
        assert!(operation.advance(Ok(96)).is_none());
        assert!(operation.advance(Err(Errno::INTR)).is_none());
        assert!(operation.advance(Err(Errno::AGAIN)).is_none());
        let KernelRequest::Read { memory, len: 4000, offset: 1096 } = operation.step() else {
            panic!()
        };
        assert_eq!(memory.addr(), start.addr() + 96);
        assert!(matches!(operation.advance(Ok(4000)), Some(Ok(()))));
        let completion = operation.end(Ok(()));
        assert_eq!(completion.token, TOKEN);
        assert!(matches!(completion.outcome, Outcome::Transferred { .. }));
    }

    #[test]
    fn nothing_more_to_read_is_the_end() {
        let pool = Pool::new(1).unwrap();
        let end_of = |result: Option<io::Result<()>>| result.unwrap().unwrap_err().kind();
        let mut operation = read(&pool, false);
        assert_eq!(end_of(operation.advance(Ok(0))), io::ErrorKind::UnexpectedEof);
        // A direct read cannot go on from within a sector.
        let mut operation = read(&pool, true);
        assert!(operation.advance(Ok(512)).is_none());
        assert_eq!(end_of(operation.advance(Ok(100))), io::ErrorKind::UnexpectedEof);
        let outcome = operation.end(Err(io::ErrorKind::UnexpectedEof.into())).outcome;
        assert!(matches!(outcome, Outcome::Failed { buffer: Some(_), .. }));
    }

    #[test]
    fn zeroing_tries_one_way_after_the_other() {
        for (unmap, flags) in [
            (true, vec![hole(), FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE]),
            (false, vec![FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE]),
        ] {
            let length = ZERO_BYTES as u64 + 5;
            let mut operation =
                begin(false, |file| Operation::WriteZeroes { file, offset: 7, length, unmap });
            for expected in flags {
                let KernelRequest::Allocate { flags, offset: 7, length: asked } = operation.step()
                else {
                    panic!()
                };
                assert_eq!((flags, asked), (expected, length));
                assert!(operation.advance(Err(Errno::OPNOTSUPP)).is_none());
            }
            let KernelRequest::Write { memory, len: ZERO_BYTES, offset: 7, durable: false } =
                operation.step()
            else {
                panic!()
            };
            // SAFETY: the zeroes are that long, live as long as the process, and never change.
            let bytes = unsafe { std::slice::from_raw_parts(memory, ZERO_BYTES) };
            assert!(bytes.iter().all(|byte| *byte == 0));
            assert!(operation.advance(Ok(ZERO_BYTES as u64)).is_none());
            assert!(matches!(operation.step(), KernelRequest::Write { len: 5, .. }));
            assert!(matches!(operation.advance(Ok(5)), Some(Ok(()))));
        }
    }

    fn commanded(operation: impl FnOnce(FileId) -> Operation) -> FileOperation {
        let format = NvmeFormat {
            block_shift: 9,
            transfer_bytes_max: 4096,
            protection_type: 0,
            writes_zeroes: true,
            zeroes_bytes_max: 4096,
            deallocates_zeroes: false,
        };
        let mut files = Files::new();
        let file = Arc::new(tempfile::tempfile().unwrap());
        let commands = Commands { nsid: 1, format };
        let key = files.add(OpenFile::commanded(file, commands));
        files.prepare(TOKEN, operation(FileId(key))).unwrap()
    }

    #[test]
    fn a_command_that_the_kernel_takes_back_is_given_up_after_some_tries() {
        let error_after = |errno: Errno| {
            let zero =
                |file| Operation::WriteZeroes { file, offset: 0, length: 8192, unmap: false };
            let mut operation = commanded(zero);
            for answered in [false, true] {
                for _ in 0..COMMAND_RETRIES {
                    assert!(operation.command().is_some());
                    assert!(operation.advance_command(-errno.raw_os_error()).is_none());
                }
                if !answered {
                    // One that was answered in between is another one.
                    assert!(operation.advance_command(0).is_none());
                }
            }
            let ended = operation.advance_command(-errno.raw_os_error()).expect("an end");
            ended.unwrap_err().raw_os_error()
        };
        assert_eq!(error_after(Errno::INTR), Some(Errno::NOLINK.raw_os_error()));
        assert_eq!(error_after(Errno::AGAIN), Some(Errno::AGAIN.raw_os_error()));
    }

    #[test]
    fn other_errors_end_it() {
        let zero = |file| Operation::WriteZeroes { file, offset: 0, length: 9, unmap: true };
        assert!(matches!(begin(false, zero).advance(Err(Errno::NOSPC)), Some(Err(_))));
        let discard = |file| Operation::Discard { file, offset: 0, length: 9 };
        assert!(matches!(begin(false, discard).advance(Err(Errno::OPNOTSUPP)), Some(Err(_))));
        let outcome = begin(false, discard).end(Err(Errno::CANCELED.into())).outcome;
        assert!(matches!(outcome, Outcome::Cancelled { .. }));
    }
}
