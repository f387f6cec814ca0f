//! The common part of [`file`](crate::file) and [`block`](crate::block): a device over the
//! reactor's file operations.
//!
//! A request becomes a [`Job`], which has at most one operation in flight at the reactor. Most jobs
//! have one step. An operation without a system call of its own has several: a compare reads piece
//! by piece into a scratch buffer; a compare-and-write excludes other writers (see
//! [`exclusion`](crate::exclusion)), reads, compares and writes.
//!
//! A job that cannot start waits for a scratch buffer or for stripes that are excluded. It takes
//! the buffer first: an excluder must not wait for memory that the writers it excludes may hold.
//! Waiting jobs are retried at the end of a turn in which a job of this handle ended, and by a
//! timer, because other reactors do not report the end of theirs. The timer runs only while jobs
//! wait.

use crate::exclusion::{self, CountedWrite, DrainState, ExcludedStripes, Stripes};
use crate::shared::LostWrites;
use crate::{
    BlockDevice, DEVICE_TAGS, Direction, Failure, Geometry, Operation, Request, RequestCompletion,
    Storage,
};
use core::time::Duration;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;
use weft_reactor::{Buffer, FileId, Operation as FileOperation, Outcome, Owner, Reactor, Token};

/// The largest scratch buffer.
const SCRATCH_BYTES_MAX: u64 = 128 << 10;
/// The smallest scratch buffer, unless a block is larger.
const SCRATCH_BYTES_MIN: u64 = 4096;
/// The time between retries of waiting jobs.
const RETRY: Duration = Duration::from_micros(100);
const RETRY_TAG: u32 = DEVICE_TAGS - 1;

/// The state that all handles of a device share. What all devices of its storage share is in that.
#[derive(Debug)]
pub(crate) struct Shared {
    base: Geometry,
    /// Whether transfers pass the page cache by.
    pub(crate) direct: bool,
    pub(crate) storage: Arc<Storage>,
}

impl Shared {
    /// A device of a storage, which has this size.
    pub(crate) fn new(base: Geometry, direct: bool, storage: &Arc<Storage>) -> Arc<Self> {
        Arc::new(Self { base, direct, storage: Arc::clone(storage) })
    }

    /// The current geometry.
    pub(crate) fn geometry(&self) -> Geometry {
        Geometry { blocks: self.blocks(), ..self.base }
    }

    fn blocks(&self) -> u64 {
        self.storage.bytes() >> self.base.block_bytes.trailing_zeros()
    }

    /// Publishes a new size.
    pub(crate) fn set_bytes(&self, bytes: u64) {
        self.storage.set_bytes(bytes);
    }

    /// Whether writes were lost, whichever device of the storage has lost them.
    pub(crate) fn lost_writes(&self) -> &LostWrites {
        &self.storage.lost_writes
    }

    /// Makes all completed writes durable and blocks until then.
    pub(crate) fn sync(&self, file: &File) -> io::Result<()> {
        if self.base.capabilities.read_only {
            return Ok(());
        }
        self.lost_writes().synced(file.sync_all())
    }

    /// Opens a handle on a reactor that has the file as `file`; `None` if there are too many
    /// handles.
    pub(crate) fn open(self: &Arc<Self>, file: FileId, owner: Owner) -> Option<FileDevice> {
        Some(FileDevice {
            file: Some(file),
            owner,
            geometry: self.geometry(),
            handle: self.storage.exclusion.open()?,
            shared: Arc::clone(self),
            jobs: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            syncs: Syncs::default(),
            done: VecDeque::new(),
            retry_due: false,
            retry_armed: false,
        })
    }
}

/// The handle of a file on one reactor.
#[derive(Debug)]
pub(crate) struct FileDevice {
    /// `None` once closed.
    file: Option<FileId>,
    owner: Owner,
    geometry: Geometry,
    handle: exclusion::Handle,
    shared: Arc<Shared>,
    /// Indexed by the tag of the reactor's operation.
    jobs: Vec<Option<Job>>,
    free: Vec<u32>,
    waiting: VecDeque<u32>,
    syncs: Syncs,
    done: VecDeque<RequestCompletion>,
    /// A job has ended since waiting jobs were last retried.
    retry_due: bool,
    retry_armed: bool,
}

/// Jobs that have the operating system flush.
///
/// Of those at the same time Linux tells only one that writes were lost. So one that has succeeded
/// is held until those which were in flight beside it have ended.
#[derive(Debug, Default)]
struct Syncs {
    begun: u64,
    /// Their numbers, ascending.
    in_flight: VecDeque<u64>,
    /// Jobs that have succeeded, with the number that had begun until then.
    held: VecDeque<(u32, u64)>,
}

impl Syncs {
    fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.in_flight.push_back(self.begun);
        self.begun
    }

    fn end(&mut self, number: u64) {
        if let Ok(place) = self.in_flight.binary_search(&number) {
            self.in_flight.remove(place);
        }
    }

    /// A held job, if none that was in flight beside it is any more.
    fn next_released(&mut self) -> Option<u32> {
        let oldest = self.in_flight.front().copied().unwrap_or(u64::MAX);
        let (index, _) = *self.held.front().filter(|(_, begun)| *begun < oldest)?;
        self.held.pop_front();
        Some(index)
    }
}

/// A request in execution.
#[derive(Debug)]
struct Job {
    tag: u64,
    operation: Operation<()>,
    step: JobState,
    /// The submitter's buffer, unless the reactor has it.
    buffer: Option<Buffer>,
    /// The data that a compare-and-write compares with.
    compare: Option<Buffer>,
    /// The job's own buffer, unless the reactor has it.
    scratch: Option<Buffer>,
    access: Access,
    /// Bytes that are done; for a discard, ranges.
    position: u64,
    /// Its number among jobs that have the operating system flush, since it does so.
    sync: Option<u64>,
}

/// The step that a job is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobState {
    /// Not started.
    Begin,
    /// Waiting until earlier writes have ended, before a compare-and-write.
    Drain,
    /// Reading a piece into the scratch buffer.
    Scan,
    /// Writing zeroes.
    Zero,
    /// Discarding a range.
    Discard,
    /// Having the operating system flush.
    Sync,
    /// Writing again, without making it durable, what it had no space for.
    Probe,
    /// The last operation.
    Last,
}

/// The job's entry in the exclusion table.
#[derive(Debug)]
enum Access {
    None,
    CountedWrite(CountedWrite),
    ExcludedStripes(ExcludedStripes),
}

/// What happens after a step.
enum StepResult {
    /// An operation is in flight.
    Busy,
    /// Retry this step later.
    Wait,
    /// The request has ended.
    End(Result<(), Failure>),
}

impl BlockDevice for FileDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&mut self, reactor: &mut Reactor, request: Request) {
        self.geometry.blocks = self.shared.blocks();
        let checked = match self.file {
            None => Err(Failure::Gone),
            Some(_) => request.operation.check(&self.geometry),
        };
        if let Err(failure) = checked {
            return self.done.push_back(request.refuse(failure));
        }
        if request.operation.is_empty() {
            let buffer = request.operation.into_buffer();
            return self.done.push_back(RequestCompletion {
                tag: request.tag,
                result: Ok(()),
                buffer,
            });
        }
        let (operation, buffer, compare) = request.operation.split();
        let job = Job {
            tag: request.tag,
            operation,
            step: JobState::Begin,
            buffer,
            compare,
            scratch: None,
            access: Access::None,
            position: 0,
            sync: None,
        };
        let index = self.insert(job);
        self.resume(reactor, index);
    }

    fn handle(&mut self, reactor: &mut Reactor, completion: weft_reactor::ReactorCompletion) {
        let index = completion.token.tag;
        if index == RETRY_TAG {
            self.retry_armed = false;
            return self.retry(reactor);
        }
        let Some(job) = self.jobs.get_mut(index as usize).and_then(Option::as_mut) else {
            return;
        };
        let result = job.take_back(completion.outcome);
        let sync = job.sync;
        match (self.continue_after(reactor, index, result), sync) {
            (StepResult::End(result), Some(sync)) => self.end_synced(index, sync, result),
            (next, _) => self.handle_next(reactor, index, next),
        }
    }

    fn flush(&mut self, reactor: &mut Reactor) {
        self.geometry.blocks = self.shared.blocks();
        if self.retry_due {
            self.retry(reactor);
        }
    }

    fn poll_completion(&mut self) -> Option<RequestCompletion> {
        self.done.pop_front()
    }

    fn in_flight(&self) -> usize {
        self.jobs.len() - self.free.len() + self.done.len()
    }

    fn close(&mut self, reactor: &mut Reactor) {
        let Some(file) = self.file.take() else { return };
        while let Some(index) = self.waiting.pop_front() {
            self.end(index, Err(Failure::Gone));
        }
        if self.retry_armed {
            reactor.clear_timer(Token::new(self.owner, RETRY_TAG));
        }
        // Operations in flight keep the file open.
        reactor.remove_file(file);
    }
}

impl FileDevice {
    fn insert(&mut self, job: Job) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.jobs[index as usize] = Some(job);
                index
            }
            None => {
                self.jobs.push(Some(job));
                u32::try_from(self.jobs.len() - 1).unwrap_or(RETRY_TAG)
            }
        }
    }

    /// Starts or continues a job that has no operation in flight.
    fn resume(&mut self, reactor: &mut Reactor, index: u32) {
        let step = self.jobs.get(index as usize).and_then(Option::as_ref).map(|job| job.step);
        let next = match step {
            Some(JobState::Drain) => self.drain(reactor, index),
            Some(_) => self.begin(reactor, index),
            None => return,
        };
        self.handle_next(reactor, index, next);
    }

    fn handle_next(&mut self, reactor: &mut Reactor, index: u32, next: StepResult) {
        match next {
            StepResult::Busy => {}
            StepResult::Wait => {
                self.waiting.push_back(index);
                if !self.retry_armed {
                    self.retry_armed = true;
                    let at = reactor.now().saturating_add(RETRY);
                    reactor.set_timer(Token::new(self.owner, RETRY_TAG), at);
                }
            }
            StepResult::End(result) => self.end(index, result),
        }
    }

    /// Ends a job that had the operating system flush, once it is certain that all beside it have
    /// been told the same, and those that waited for that.
    fn end_synced(&mut self, index: u32, sync: u64, result: Result<(), Failure>) {
        self.syncs.end(sync);
        match result {
            Ok(()) => self.syncs.held.push_back((index, self.syncs.begun)),
            result => self.end(index, result),
        }
        while let Some(index) = self.syncs.next_released() {
            self.end(index, Ok(()));
        }
    }

    fn retry(&mut self, reactor: &mut Reactor) {
        self.retry_due = false;
        for _ in 0..self.waiting.len() {
            if let Some(index) = self.waiting.pop_front() {
                self.resume(reactor, index);
            }
        }
    }

    fn end(&mut self, index: u32, result: Result<(), Failure>) {
        let Some(job) = self.jobs.get_mut(index as usize).and_then(Option::take) else { return };
        self.free.push(index);
        let result = match result {
            Ok(()) if job.operation.is_durable() && self.shared.lost_writes().any() => {
                Err(Failure::MediaWrite)
            }
            result => result,
        };
        self.release_access(job.access);
        self.done.push_back(RequestCompletion { tag: job.tag, result, buffer: job.buffer });
        // A scratch buffer or stripes may have become free.
        self.retry_due |= !self.waiting.is_empty();
    }

    fn release_access(&self, access: Access) {
        match access {
            Access::None => {}
            Access::CountedWrite(write) => self.handle.end_write(write),
            Access::ExcludedStripes(excluded) => self.handle.release(excluded),
        }
    }

    /// Starts a job.
    fn begin(&mut self, reactor: &mut Reactor, index: u32) -> StepResult {
        let Some(job) = self.jobs[index as usize].as_mut() else { return StepResult::Busy };
        if let (None, Some(nlb)) = (&job.scratch, job.scanned_nlb()) {
            let bytes = self.geometry.bytes_of(nlb);
            job.scratch = take_scratch(reactor, bytes, self.geometry.block_bytes);
            if job.scratch.is_none() {
                return StepResult::Wait;
            }
        }
        if !job.operation.kind().is_write() {
            return self.submit_next(reactor, index);
        }
        let geometry = &self.geometry;
        let each = job
            .operation
            .ranges()
            .map(|(slba, nlb)| Stripes::of(geometry.offset_of(slba), geometry.bytes_of(nlb)));
        let stripes = each.fold(Stripes::default(), Stripes::with);
        if let Operation::CompareAndWrite { .. } = job.operation {
            let Some(excluded) = self.handle.exclude(stripes) else { return StepResult::Wait };
            job.access = Access::ExcludedStripes(excluded);
            job.step = JobState::Drain;
            return self.drain(reactor, index);
        }
        let Some(write) = self.handle.begin_write(stripes) else { return StepResult::Wait };
        job.access = Access::CountedWrite(write);
        self.submit_next(reactor, index)
    }

    fn drain(&mut self, reactor: &mut Reactor, index: u32) -> StepResult {
        let Some(job) = self.jobs[index as usize].as_mut() else { return StepResult::Busy };
        let Access::ExcludedStripes(excluded) = &job.access else {
            return StepResult::End(Err(Failure::Gone));
        };
        match self.handle.drain_state(excluded) {
            DrainState::Drained => self.submit_next(reactor, index),
            DrainState::Pending => StepResult::Wait,
            DrainState::Lost => StepResult::End(Err(Failure::Gone)),
        }
    }

    /// Submits the job's next operation to the reactor.
    fn submit_next(&mut self, reactor: &mut Reactor, index: u32) -> StepResult {
        let Some(file) = self.file else { return StepResult::End(Err(Failure::Gone)) };
        let Some(job) = self.jobs[index as usize].as_mut() else { return StepResult::Busy };
        match job.next(file, &self.geometry) {
            Some((step, operation)) => {
                job.step = step;
                if job.sync.is_none() && job.may_flush(&self.shared) {
                    job.sync = Some(self.syncs.begin());
                }
                reactor.submit(Token::new(self.owner, index), operation);
                StepResult::Busy
            }
            // The job has lost its buffer, which the reactor rules out.
            None => StepResult::End(Err(Failure::Device(Errno::INVAL.raw_os_error()))),
        }
    }

    /// Continues after an operation has completed.
    fn continue_after(
        &mut self,
        reactor: &mut Reactor,
        index: u32,
        result: Result<(), Failure>,
    ) -> StepResult {
        let Some(job) = self.jobs[index as usize].as_mut() else { return StepResult::Busy };
        match (job.step, result) {
            (JobState::Last, Err(Failure::NoSpace)) if job.writes_through_cache(&self.shared) => {
                job.step = JobState::Probe;
                self.submit_next(reactor, index)
            }
            (JobState::Probe, Ok(())) => {
                self.shared.lost_writes().record();
                StepResult::End(Err(Failure::NoSpace))
            }
            (_, Err(failure)) => {
                if job.may_flush(&self.shared) {
                    self.shared.lost_writes().flush_failed(failure);
                }
                StepResult::End(Err(failure))
            }
            (JobState::Last | JobState::Begin | JobState::Drain | JobState::Sync, Ok(())) => {
                StepResult::End(Ok(()))
            }
            (JobState::Scan, Ok(())) if !job.scanned_matches() => {
                StepResult::End(Err(Failure::Mismatch))
            }
            (JobState::Scan | JobState::Zero | JobState::Discard, Ok(())) => {
                match job.count_step(&self.geometry) {
                    JobProgress::None => StepResult::End(Ok(())),
                    JobProgress::More => self.submit_next(reactor, index),
                }
            }
        }
    }
}

/// A handle that is dropped with requests in flight cannot complete them; for the effect on a
/// compare-and-write see [`exclusion`](crate::exclusion).
impl Drop for FileDevice {
    fn drop(&mut self) {
        let busy = self.jobs.len() - self.free.len();
        if busy != 0 && !std::thread::panicking() {
            log::warn!("a file was dropped with {busy} requests in flight; close it first");
        }
    }
}

/// Whether a job has another step.
enum JobProgress {
    None,
    More,
}

impl Job {
    /// The number of blocks that are read into the scratch buffer.
    fn scanned_nlb(&self) -> Option<u32> {
        match self.operation {
            Operation::Compare { nlb, .. }
            | Operation::CompareAndWrite { nlb, .. }
            | Operation::Verify { nlb, .. } => Some(nlb),
            _ => None,
        }
    }

    /// The next operation and its step.
    fn next(&mut self, file: FileId, geometry: &Geometry) -> Option<(JobState, FileOperation)> {
        let at = match self.operation {
            Operation::Discard { .. } => usize::try_from(self.position).ok()?,
            _ => 0,
        };
        let (slba, nlb) = self.operation.ranges().nth(at).unwrap_or_default();
        let (offset, length) = (geometry.offset_of(slba), geometry.bytes_of(nlb));
        Some(match self.operation {
            Operation::Read { .. } => {
                let buffer = self.buffer.take()?;
                let range = 0..buffer.len();
                (JobState::Last, FileOperation::Read { file, offset, buffer, range })
            }
            _ if self.step == JobState::Probe => {
                (JobState::Probe, write(file, offset, self.buffer.take()?, false))
            }
            Operation::Write { durable, .. } => {
                (JobState::Last, write(file, offset, self.buffer.take()?, durable))
            }
            Operation::Flush => (JobState::Sync, FileOperation::Sync { file }),
            Operation::Discard { .. } => {
                (JobState::Discard, FileOperation::Discard { file, offset, length })
            }
            Operation::WriteZeroes { .. } if self.position == length => {
                (JobState::Sync, FileOperation::Sync { file })
            }
            Operation::WriteZeroes { deallocate: unmap, .. } => {
                (JobState::Zero, FileOperation::WriteZeroes { file, offset, length, unmap })
            }
            Operation::CompareAndWrite { durable, .. } if self.position == length => {
                (JobState::Last, write(file, offset, self.buffer.take()?, durable))
            }
            Operation::Compare { .. }
            | Operation::CompareAndWrite { .. }
            | Operation::Verify { .. } => {
                let mut buffer = self.scratch.take()?;
                truncate(&mut buffer, length - self.position);
                let (offset, range) = (offset + self.position, 0..buffer.len());
                (JobState::Scan, FileOperation::Read { file, offset, buffer, range })
            }
            // `Operation::check` refuses it: a file cannot mark blocks.
            Operation::WriteUncorrectable { .. } => return None,
        })
    }

    /// Whether it is a durable write that the operating system executes as a write to its cache and
    /// a flush, which report with one error. Without space it is written once more: if there is
    /// space for that, the flush has failed.
    fn writes_through_cache(&self, shared: &Shared) -> bool {
        let is_write = matches!(
            self.operation,
            Operation::Write { durable: true, .. }
                | Operation::CompareAndWrite { durable: true, .. }
        );
        is_write && !shared.direct
    }

    /// Whether its step has the operating system flush, or may do so.
    fn may_flush(&self, shared: &Shared) -> bool {
        match self.step {
            JobState::Sync => true,
            JobState::Last => self.writes_through_cache(shared),
            _ => false,
        }
    }

    /// Takes the buffer of a completed operation back, and returns the result.
    fn take_back(&mut self, outcome: Outcome) -> Result<(), Failure> {
        let direction = match (&self.operation, self.step) {
            (Operation::Read { .. }, _) | (_, JobState::Scan) => Direction::Read,
            _ => Direction::Write,
        };
        let (result, buffer) = match outcome {
            Outcome::Transferred { buffer } => (Ok(()), Some(buffer)),
            Outcome::Done => (Ok(()), None),
            Outcome::Cancelled { buffer, .. } => (Err(Failure::Aborted), buffer),
            Outcome::Failed { error, buffer, .. } => {
                (Err(Failure::from_io(&error, direction)), buffer)
            }
            _ => (Err(Failure::Aborted), None),
        };
        match self.step {
            JobState::Scan => self.scratch = buffer,
            _ if buffer.is_some() => self.buffer = buffer,
            _ => {}
        }
        result
    }

    /// Whether the piece just read equals the expected data.
    fn scanned_matches(&self) -> bool {
        let expected = match self.operation {
            Operation::Compare { .. } => self.buffer.as_deref(),
            Operation::CompareAndWrite { .. } => self.compare.as_deref(),
            _ => return true,
        };
        let expected = expected.unwrap_or(&[]);
        let found = self.scratch.as_deref().unwrap_or(&[]);
        let start = usize::try_from(self.position).unwrap_or(usize::MAX);
        expected.get(start..).is_some_and(|rest| rest.starts_with(found)) && !found.is_empty()
    }

    /// Advances the position after one of several steps.
    fn count_step(&mut self, geometry: &Geometry) -> JobProgress {
        let (length, last) = match &self.operation {
            Operation::Discard { ranges } => {
                self.position += 1;
                (ranges.len() as u64, JobProgress::None)
            }
            // A sync makes the zeroes durable.
            Operation::WriteZeroes { nlb, durable, .. } => {
                self.position = geometry.bytes_of(*nlb);
                (self.position, if *durable { JobProgress::More } else { JobProgress::None })
            }
            operation => {
                self.position += self.scratch.as_ref().map_or(0, |scratch| scratch.len() as u64);
                let writes = operation.kind().is_write();
                let length = geometry.bytes_of(self.scanned_nlb().unwrap_or(0));
                (length, if writes { JobProgress::More } else { JobProgress::None })
            }
        };
        if self.position < length { JobProgress::More } else { last }
    }
}

fn write(file: FileId, offset: u64, buffer: Buffer, durable: bool) -> FileOperation {
    let range = 0..buffer.len();
    FileOperation::Write { file, offset, buffer, range, durable }
}

/// Shortens a scratch buffer to what is left.
fn truncate(buffer: &mut Buffer, left: u64) {
    let left = usize::try_from(left).unwrap_or(usize::MAX);
    if left < buffer.len() {
        buffer.set_len(left);
    }
}

/// Takes a scratch buffer; if the pool is empty, a small one from the reserve, because the request
/// has started and connections may be waiting for the memory that it holds.
fn take_scratch(reactor: &Reactor, bytes: u64, block_bytes: u32) -> Option<Buffer> {
    let smallest = SCRATCH_BYTES_MIN.max(u64::from(block_bytes)).min(bytes);
    let pool = reactor.pool();
    let large = pool.take(usize::try_from(bytes.min(SCRATCH_BYTES_MAX)).ok()?);
    large.or_else(|| pool.take_reserved(usize::try_from(smallest).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StorageId;
    use weft_reactor::simulation::{NetworkConditions, World};
    use weft_reactor::{ReactorCompletion, WaitLimit};

    /// A durable write, or a flush, whose steps end with these errors, 0 for success: its result,
    /// and whether writes are lost.
    fn after(direct: bool, is_write: bool, errors: &[i32]) -> (Result<(), Failure>, bool) {
        let world = World::new(1, NetworkConditions::default());
        let mut reactor = Reactor::simulated(&world);
        let mut geometry = Geometry::new(1 << 20, 4096);
        geometry.capabilities.durable_write = true;
        let storage = Storage::new(StorageId::Named("a file".to_owned()), false);
        storage.set_bytes(1 << 20);
        let shared = Shared::new(geometry, direct, &storage);
        let file = reactor.add_file(world.add_file(1 << 20), direct);
        let mut device = shared.open(file, Owner(7)).expect("a handle");
        let operation = match is_write {
            true => {
                let from = reactor.pool().take(4096).expect("a buffer");
                Operation::Write { slba: 0, nlb: 1, from, durable: true }
            }
            false => Operation::Flush,
        };
        device.submit(&mut reactor, Request { tag: 1, operation });
        for error in errors {
            let mut completions: Vec<ReactorCompletion> = Vec::new();
            reactor.poll(WaitLimit::NoWait, &mut completions);
            while completions.is_empty() {
                assert!(world.advance(), "there is another step");
                reactor.poll(WaitLimit::NoWait, &mut completions);
            }
            let ReactorCompletion { token, outcome } = completions.remove(0);
            let outcome = match outcome {
                outcome if *error == 0 => outcome,
                Outcome::Transferred { buffer } => failed(*error, Some(buffer)),
                _ => failed(*error, None),
            };
            device.handle(&mut reactor, ReactorCompletion { token, outcome });
        }
        let result = device.poll_completion().expect("it has ended").result;
        device.close(&mut reactor);
        (result, shared.lost_writes().any())
    }

    /// Linux tells one of two flushes at the same time that writes were lost, and may end the other
    /// one first.
    #[test]
    fn a_flush_that_succeeds_beside_one_that_fails_is_not_acknowledged() {
        for ends in [[false, false], [false, true], [true, false]] {
            let world = World::new(1, NetworkConditions::default());
            let mut reactor = Reactor::simulated(&world);
            let storage = Storage::new(StorageId::Named("a file".to_owned()), false);
            storage.set_bytes(1 << 20);
            let shared = Shared::new(Geometry::new(1 << 20, 4096), true, &storage);
            let file = reactor.add_file(world.add_file(1 << 20), true);
            let mut device = shared.open(file, Owner(7)).expect("a handle");
            for tag in [0, 1] {
                device.submit(&mut reactor, Request { tag, operation: Operation::Flush });
            }
            let mut completions = Vec::new();
            while completions.len() < 2 {
                reactor.poll(WaitLimit::NoWait, &mut completions);
                world.advance();
            }
            for (completion, fails) in completions.into_iter().zip(ends) {
                assert!(device.done.iter().all(|ended| ended.result.is_err()), "one is in flight");
                let outcome = if fails { failed(5, None) } else { completion.outcome };
                device.handle(&mut reactor, ReactorCompletion { outcome, ..completion });
            }
            let mut ended = || device.poll_completion().expect("it has ended").result.is_err();
            assert_eq!([ended(), ended()], [ends != [false, false]; 2]);
            device.close(&mut reactor);
        }
    }

    fn failed(error: i32, buffer: Option<Buffer>) -> Outcome {
        let error = io::Error::from_raw_os_error(error);
        Outcome::Failed { error, buffer, message: None }
    }

    #[test]
    fn a_refused_write_is_its_own_error_and_a_failed_flush_is_a_loss() {
        let (io, space) = (Errno::IO.raw_os_error(), Errno::NOSPC.raw_os_error());
        let (medium, no_space) = (Err(Failure::MediaWrite), Err(Failure::NoSpace));
        for direct in [true, false] {
            assert_eq!(after(direct, true, &[0]), (Ok(()), false));
            assert_eq!(after(direct, false, &[io]), (medium, true));
            assert_eq!(after(direct, false, &[space]), (no_space, true));
        }
        assert_eq!(after(true, true, &[io]), (medium, false));
        assert_eq!(after(true, true, &[space]), (no_space, false));
        // Through the cache the kernel writes and flushes: an error may be of earlier writes.
        assert_eq!(after(false, true, &[io]), (medium, true));
        assert_eq!(after(false, true, &[space, space]), (no_space, false), "there is no space");
        assert_eq!(after(false, true, &[space, 0]), (no_space, true), "for what came before");
        assert_eq!(after(false, true, &[space, io]), (medium, false));
    }
}
