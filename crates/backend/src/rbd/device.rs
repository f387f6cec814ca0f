//! The handle of an image on one reactor.

use super::Shared;
use super::librbd::{Completions, FlightResult, Flights, Image, Io};
use crate::{
    BlockDevice, DEVICE_TAGS, Direction, Failure, Geometry, OpenError, Operation, Request,
    RequestCompletion, duration,
};
use core::time::Duration;
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use weft_reactor::{Buffer, Outcome, Owner, Pool, Reactor, ReactorCompletion, Source, Token};

/// Operations in flight of one handle.
const DEPTH: usize = 256;
/// Their memory.
const MEMORY_BYTES: usize = 32 << 20;
/// Bytes that are discarded or zeroed at a time: librbd makes an operation of every object.
const ZEROED_BYTES: u64 = 256 << 20;
/// Bytes that are verified at a time.
const VERIFIED_BYTES: u64 = 1 << 20;
const LANDED_TAG: u32 = DEVICE_TAGS - 2;
const TIMER_TAG: u32 = DEVICE_TAGS - 1;

/// The handle of an image on one reactor.
#[derive(Debug)]
pub(super) struct RbdDevice {
    geometry: Geometry,
    shared: Arc<Shared>,
    flights: Flights,
    memory: Pool,
    timeout: Duration,
    timer: Token,
    timer_armed: bool,
    hub: Rc<Hub>,
    completions: Arc<Completions>,
    jobs: Vec<Option<Job>>,
    free: Vec<usize>,
    /// The job of each operation in flight; none: it has been given up.
    flying: Vec<Option<usize>>,
    /// Jobs that cannot start yet, oldest first.
    waiting: VecDeque<usize>,
    done: VecDeque<RequestCompletion>,
    closed: bool,
}

/// A request in execution.
#[derive(Debug)]
struct Job {
    tag: u64,
    operation: Operation<()>,
    buffer: Option<Buffer>,
    compare: Option<Buffer>,
    deadline: Duration,
    slot: Option<usize>,
    /// The range that the next operation is for, and its blocks that are done.
    position: (usize, u32),
}

/// The handles on one reactor whose operations end on other threads.
#[derive(Debug, Default)]
struct Hub {
    handles: RefCell<Vec<(Token, Arc<Completions>)>>,
    news: Arc<AtomicBool>,
}

#[derive(Debug)]
struct HubSource(Rc<Hub>);

impl Source for HubSource {
    fn poll(&mut self, ready: &mut Vec<ReactorCompletion>) {
        if !self.0.news.load(Relaxed) || !self.0.news.swap(false, Acquire) {
            return;
        }
        let handles = self.0.handles.borrow();
        let landed = handles.iter().filter(|(_, completions)| completions.any());
        ready.extend(
            landed.map(|(token, _)| ReactorCompletion {
                token: *token,
                outcome: Outcome::SourceEvents,
            }),
        );
    }

    fn arm(&mut self, ready: &mut Vec<ReactorCompletion>) {
        // Every result wakes the reactor.
        self.poll(ready);
    }
}

impl Hub {
    fn of(reactor: &mut Reactor) -> Rc<Self> {
        if let Some(hub) = reactor.attachment::<Self>() {
            return hub;
        }
        let hub = Rc::new(Self::default());
        reactor.attach(Rc::clone(&hub));
        reactor.add_source(Box::new(HubSource(Rc::clone(&hub))));
        hub
    }
}

impl RbdDevice {
    pub(super) fn open(
        reactor: &mut Reactor,
        owner: Owner,
        image: Arc<Image>,
        shared: Arc<Shared>,
        timeout: Duration,
    ) -> Result<Self, OpenError> {
        let memory = Pool::new(MEMORY_BYTES).map_err(|error| OpenError::System {
            doing: "reserve memory",
            path: None,
            error,
        })?;
        let hub = Hub::of(reactor);
        let completions = Completions::new(DEPTH, Arc::clone(&hub.news), reactor.waker());
        let token = Token::new(owner, LANDED_TAG);
        hub.handles.borrow_mut().push((token, Arc::clone(&completions)));
        Ok(Self {
            geometry: shared.geometry(),
            shared,
            flights: Flights::new(image, Arc::clone(&completions)),
            memory,
            timeout,
            timer: Token::new(owner, TIMER_TAG),
            timer_armed: false,
            hub,
            completions,
            jobs: Vec::new(),
            free: Vec::new(),
            flying: vec![None; DEPTH],
            waiting: VecDeque::new(),
            done: VecDeque::new(),
            closed: false,
        })
    }

    fn insert(&mut self, job: Job) -> usize {
        match self.free.pop() {
            Some(index) => {
                self.jobs[index] = Some(job);
                index
            }
            None => {
                self.jobs.push(Some(job));
                self.jobs.len() - 1
            }
        }
    }

    /// Ends a job. An operation of it that is in flight is given up.
    fn end(&mut self, index: usize, result: Result<(), Failure>) {
        let Some(job) = self.jobs.get_mut(index).and_then(Option::take) else { return };
        if let Some(slot) = job.slot {
            self.flying[slot] = None;
        }
        self.free.push(index);
        let known = [Failure::Mismatch, Failure::NoSpace, Failure::OutOfRange];
        if result.is_err_and(|failure| !known.contains(&failure)) {
            self.shared.note_failure();
        }
        self.done.push_back(RequestCompletion { tag: job.tag, result, buffer: job.buffer });
    }

    /// Starts the next operation of a job. `false`: there is no memory for it, or there are too
    /// many operations.
    fn start(&mut self, index: usize) -> bool {
        let Self { jobs, memory, geometry, flights, .. } = self;
        let Some(job) = jobs.get_mut(index).and_then(Option::as_mut) else { return true };
        if !flights.has_room() {
            return false;
        }
        let Some(io) = job.next(memory, geometry) else { return false };
        match flights.start(io) {
            Ok(slot) => {
                job.slot = Some(slot);
                self.flying[slot] = Some(index);
            }
            Err(error) => {
                let failure = job.failure(error);
                self.end(index, Err(failure));
            }
        }
        true
    }

    /// Starts jobs that wait, in their order.
    fn start_waiting(&mut self) {
        while let Some(index) = self.waiting.front().copied() {
            if !self.start(index) {
                break;
            }
            self.waiting.pop_front();
        }
    }

    fn land(&mut self, landed: FlightResult) {
        // The job of an operation that took too long has ended already.
        let Some(index) = self.flying[landed.slot].take() else { return };
        let Some(job) = self.jobs.get_mut(index).and_then(Option::as_mut) else { return };
        job.slot = None;
        match job.finish(&landed, &self.geometry) {
            Some(result) => self.end(index, result),
            None => self.waiting.push_back(index),
        }
    }

    /// What is in flight still has its time.
    fn clear_idle_timer(&mut self, reactor: &mut Reactor) {
        if self.timer_armed && self.jobs.len() == self.free.len() {
            self.timer_armed = false;
            reactor.clear_timer(self.timer);
        }
    }

    /// Fails the jobs that have taken too long, and sets the timer for the others.
    fn expire(&mut self, reactor: &mut Reactor) {
        let now = reactor.now();
        let late = |job: &Option<Job>| job.as_ref().is_some_and(|job| job.deadline <= now);
        self.waiting.retain(|index| !late(&self.jobs[*index]));
        let before = self.done.len();
        for index in 0..self.jobs.len() {
            if late(&self.jobs[index]) {
                self.end(index, Err(Failure::PathLost));
            }
        }
        match self.done.len() - before {
            0 => {}
            count => log::warn!(
                "{}: the Ceph cluster did not complete {count} requests within {}",
                self.shared.name,
                duration::exact(self.timeout)
            ),
        }
        let next = self.jobs.iter().flatten().map(|job| job.deadline).min();
        self.timer_armed = next.is_some();
        if let Some(at) = next {
            reactor.set_timer(self.timer, at);
        }
    }
}

impl Job {
    /// The blocks that the next operation is for: all of a range, or as many as are done at a time.
    fn piece(&self, geometry: &Geometry) -> (u64, u32) {
        let (range, done) = self.position;
        let (slba, nlb) = self.operation.ranges().nth(range).unwrap_or_default();
        let most = match self.operation {
            Operation::Discard { .. } | Operation::WriteZeroes { .. } => ZEROED_BYTES,
            Operation::Verify { .. } => VERIFIED_BYTES,
            _ => u64::MAX,
        };
        let most = u32::try_from(most / u64::from(geometry.block_bytes)).unwrap_or(u32::MAX);
        (slba.saturating_add(done.into()), nlb.saturating_sub(done).min(most))
    }

    /// Goes on after a piece of this many blocks. `false`: that was the last one.
    fn advance(&mut self, blocks: u32) -> bool {
        let (range, done) = &mut self.position;
        *done += blocks;
        let mut ranges = self.operation.ranges().skip(*range);
        if ranges.next().is_some_and(|(_, blocks)| *done < blocks) {
            return true;
        }
        // Nothing is to be done for an empty range.
        *range += 1 + ranges.take_while(|(_, blocks)| *blocks == 0).count();
        *done = 0;
        *range < self.operation.ranges().count()
    }

    /// The operation that comes next, with its memory; none: there is no memory.
    fn next(&self, memory: &Pool, geometry: &Geometry) -> Option<Io> {
        let (slba, nlb) = self.piece(geometry);
        let (offset, bytes) = (geometry.offset_of(slba), geometry.bytes_of(nlb));
        let len = usize::try_from(bytes).ok()?;
        let copy = |from: Option<&Buffer>| {
            let mut copy = memory.take(len)?;
            copy.bytes_mut().copy_from_slice(from?.get(..len)?);
            Some(copy)
        };
        Some(match self.operation {
            Operation::Read { .. } | Operation::Compare { .. } | Operation::Verify { .. } => {
                Io::Read { offset, into: memory.take(len)? }
            }
            Operation::Write { durable, .. } => {
                Io::Write { offset, from: copy(self.buffer.as_ref())?, durable }
            }
            Operation::Flush | Operation::WriteUncorrectable { .. } => Io::Flush,
            Operation::WriteZeroes { deallocate, durable, .. } => {
                Io::WriteZeroes { offset, len, thick: !deallocate, durable }
            }
            Operation::Discard { .. } => Io::Discard { offset, len: bytes },
            Operation::CompareAndWrite { durable, .. } => {
                let (expected, new) = (copy(self.compare.as_ref())?, copy(self.buffer.as_ref())?);
                Io::CompareAndWrite { offset, expected, new, durable }
            }
        })
    }

    /// Takes the result of an operation. None: another one follows.
    fn finish(
        &mut self,
        landed: &FlightResult,
        geometry: &Geometry,
    ) -> Option<Result<(), Failure>> {
        if landed.result < 0 {
            return Some(Err(self.failure(landed.result)));
        }
        let data = landed.data.as_deref().unwrap_or_default();
        let (read, read_all) = (self.operation.kind().is_read(), usize::try_from(landed.result));
        if read && read_all.is_ok_and(|read| read < data.len()) {
            // The image has become shorter.
            return Some(Err(Failure::OutOfRange));
        }
        match (&self.operation, &mut self.buffer) {
            (Operation::Read { .. }, Some(buffer)) => buffer.bytes_mut().copy_from_slice(data),
            (Operation::Compare { .. }, Some(buffer)) if **buffer != *data => {
                return Some(Err(Failure::Mismatch));
            }
            _ => {}
        }
        let (_, blocks) = self.piece(geometry);
        (!self.advance(blocks)).then_some(Ok(()))
    }

    /// What a negative error number of librbd says of this request.
    fn failure(&self, error: i64) -> Failure {
        let number = i32::try_from(-error).unwrap_or(0);
        let kind = self.operation.kind();
        let direction = if kind.is_read() { Direction::Read } else { Direction::Write };
        match Errno::from_raw_os_error(number) {
            Errno::ILSEQ if matches!(self.operation, Operation::CompareAndWrite { .. }) => {
                Failure::Mismatch
            }
            // The image or its pool was removed.
            Errno::NOENT => Failure::Gone,
            // Another client was given the lock, and this one is fenced; or it keeps the lock
            // (requests that a read-only image refuses are not sent); or no answer came; or this
            // client may not, which is also said first where a pool was removed.
            Errno::SHUTDOWN | Errno::ROFS | Errno::TIMEDOUT | Errno::PERM => Failure::PathLost,
            // It was cut meanwhile.
            Errno::INVAL => Failure::OutOfRange,
            _ => Failure::from_errno(number, direction),
        }
    }
}

/// Checks a request; the cluster compares and writes a block, which lies in one object.
fn check(operation: &Operation, geometry: &Geometry) -> Result<(), Failure> {
    match operation {
        Operation::CompareAndWrite { nlb, .. } if *nlb > geometry.compare_and_write_blocks => {
            Err(Failure::Unsupported)
        }
        _ => operation.check(geometry),
    }
}

impl BlockDevice for RbdDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&mut self, reactor: &mut Reactor, request: Request) {
        self.geometry = self.shared.geometry();
        let checked = match self.closed || self.shared.gone.load(Relaxed) {
            true => Err(Failure::Gone),
            false => check(&request.operation, &self.geometry),
        };
        if let Err(failure) = checked {
            return self.done.push_back(request.refuse(failure));
        }
        let empty = request.operation.is_empty();
        let (operation, buffer, compare) = request.operation.split();
        let tag = request.tag;
        if empty {
            return self.done.push_back(RequestCompletion { tag, result: Ok(()), buffer });
        }
        let first = operation.ranges().position(|(_, blocks)| blocks != 0).unwrap_or(0);
        let deadline = reactor.turn_time().saturating_add(self.timeout);
        let (position, slot) = ((first, 0), None);
        let index = self.insert(Job { tag, operation, buffer, compare, deadline, slot, position });
        if !self.waiting.is_empty() || !self.start(index) {
            self.waiting.push_back(index);
        }
        if !self.timer_armed {
            self.timer_armed = true;
            reactor.set_timer(self.timer, deadline);
        }
    }

    fn handle(&mut self, reactor: &mut Reactor, completion: ReactorCompletion) {
        if completion.token == self.timer {
            return self.expire(reactor);
        }
        while let Some(landed) = self.flights.next_landed() {
            self.land(landed);
        }
        self.start_waiting();
        if self.closed {
            self.clear_idle_timer(reactor);
        }
    }

    fn flush(&mut self, _: &mut Reactor) {
        self.geometry = self.shared.geometry();
    }

    fn poll_completion(&mut self) -> Option<RequestCompletion> {
        self.done.pop_front()
    }

    fn in_flight(&self) -> usize {
        self.jobs.len() - self.free.len() + self.done.len()
    }

    fn close(&mut self, reactor: &mut Reactor) {
        self.closed = true;
        while let Some(index) = self.waiting.pop_front() {
            self.end(index, Err(Failure::Gone));
        }
        self.clear_idle_timer(reactor);
    }
}

impl Drop for RbdDevice {
    fn drop(&mut self) {
        // Nobody is notified of what ends later.
        let this = &self.completions;
        self.hub.handles.borrow_mut().retain(|(_, completions)| !Arc::ptr_eq(completions, this));
        if self.flights.any() {
            log::warn!(
                "an RBD image was closed while operations were in flight; it waits for them"
            );
        }
    }
}
