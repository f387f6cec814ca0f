//! The thread of a controller: a reactor, the owner of the admin queue, and one I/O queue for the
//! blocking calls, opened with the first of them.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError, RwLock};

use weft_backend::{Failure, Operation, Request, RequestCompletion};
use weft_nvme::nvm::{CopyCommand, CopySourceRange};
use weft_nvme::{Command, Wire};
use weft_nvmf::host::{AdminData, ControllerKind, NamespaceInfo};
use weft_reactor::{Buffer, Mailbox, MailboxSender, Owner, Reactor, WaitLimit};

use crate::device::geometry;
use crate::driver::{AdminResult, ControllerDriver};
use crate::error::Error;
use crate::limits;
use crate::options::Options;
use crate::queue::{CopyRequest, QueuePair, ReservationCommand};
use crate::shared::{Secrets, Shared};

const DRIVER: Owner = Owner(0);
const QUEUE: Owner = Owner(1);

/// The result of a blocking request: its data, or a failure of the request, with the first range
/// that was not copied if it is a Copy, or (as text) of the queue.
pub(crate) type IoResult = Result<Vec<u8>, Result<(Failure, u32), String>>;

/// Why a request was not begun.
type StartFailure = Result<Failure, String>;

/// The operation of a blocking request: that of a block device, with its own bytes.
#[derive(Debug, Clone)]
pub(crate) enum IoKind {
    Read,
    Write { durable: bool },
    Flush,
    WriteZeroes { deallocate: bool },
    Deallocate { ranges: Box<[(u64, u32)]> },
    Compare,
    CompareAndWrite { expected: Vec<u8> },
    Verify,
    Copy { ranges: Box<[CopyRange]>, durable: bool },
    Reservation(Box<ReservationCommand>),
}

/// A source range of a Copy.
#[derive(Debug, Clone)]
pub(crate) struct CopyRange {
    pub(crate) from: Arc<NamespaceInfo>,
    pub(crate) slba: u64,
    pub(crate) nlb: u32,
}

impl IoKind {
    pub(crate) const fn words(&self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write { .. } => "write",
            Self::Flush => "flush",
            Self::WriteZeroes { .. } => "write zeroes",
            Self::Deallocate { .. } => "deallocate",
            Self::Compare => "compare",
            Self::CompareAndWrite { .. } => "compare and write",
            Self::Verify => "verify",
            Self::Copy { .. } => "copy",
            Self::Reservation(_) => "reservation",
        }
    }
}

/// A blocking request.
#[derive(Debug)]
pub(crate) struct Io {
    pub(crate) namespace: Arc<NamespaceInfo>,
    pub(crate) kind: IoKind,
    pub(crate) slba: u64,
    pub(crate) nlb: u32,
    pub(crate) data: Vec<u8>,
    pub(crate) reply: Sender<IoResult>,
}

/// A call to the thread.
#[derive(Debug)]
pub(crate) enum Call {
    Io(Io),
    Admin {
        command: Command,
        data: AdminData,
        reply: Sender<AdminResult>,
    },
    Reset,
    /// With other secrets, if some are given.
    Authenticate(Option<Box<Secrets>>),
    Rescan,
    Stop,
}

pub(crate) type StartResult = Result<(Arc<Shared>, Calls), Error>;

/// The calls to the thread. Once the thread has ended it accepts none: a call without an answer
/// would be waited for forever.
#[derive(Debug, Clone)]
pub(crate) struct Calls {
    postbox: MailboxSender<Call>,
    open: Arc<RwLock<bool>>,
}

impl Calls {
    /// Sends a call to the thread, unless that has ended.
    pub(crate) fn post(&self, call: Call) -> Result<(), Error> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        if !*open {
            return Err(Error::Stopped);
        }
        self.postbox.post(call);
        Ok(())
    }
}

/// The thread's main function. It first reports its mailbox, or why it failed.
pub(crate) fn run(options: &Options, kind: ControllerKind, started: &Sender<StartResult>) {
    let mut worker = match Worker::new(options, kind) {
        Ok((worker, calls)) => {
            let shared = Arc::clone(worker.driver.shared());
            if started.send(Ok((shared, calls))).is_err() {
                return;
            }
            worker
        }
        Err(error) => {
            // If this fails the caller has ended.
            let _ = started.send(Err(error));
            return;
        }
    };
    worker.run();
}

#[derive(Debug)]
struct Worker {
    reactor: Reactor,
    driver: ControllerDriver,
    calls: Mailbox<Call>,
    open: Arc<RwLock<bool>>,
    queue: Option<QueuePair>,
    io: HashMap<u64, Sender<IoResult>>,
    admin: HashMap<u64, Sender<AdminResult>>,
    /// Requests that wait for a buffer.
    waiting: VecDeque<Io>,
    next_tag: u64,
    stopping: bool,
}

impl Worker {
    fn new(options: &Options, kind: ControllerKind) -> Result<(Self, Calls), Error> {
        let reactor = Reactor::new(options.reactor.clone()).map_err(Error::Reactor)?;
        let driver = ControllerDriver::connect(&reactor, DRIVER, options, kind)?;
        let (postbox, calls) = reactor.mailbox();
        let open = Arc::new(RwLock::new(true));
        let way = Calls { postbox, open: Arc::clone(&open) };
        let worker = Self {
            reactor,
            driver,
            calls,
            open,
            queue: None,
            io: HashMap::new(),
            admin: HashMap::new(),
            waiting: VecDeque::new(),
            next_tag: 0,
            stopping: false,
        };
        Ok((worker, way))
    }

    fn run(&mut self) {
        let mut completions = Vec::new();
        self.turn();
        while !(self.stopping && self.driver.is_finished()) {
            let busy = !self.io.is_empty() || !self.admin.is_empty();
            let patience = if busy {
                WaitLimit::Adaptive { grace: limits::SPIN_GRACE }
            } else {
                WaitLimit::Sleep
            };
            self.reactor.poll(patience, &mut completions);
            for completion in completions.drain(..) {
                match (completion.token.owner, &mut self.queue) {
                    (DRIVER, _) => self.driver.handle(&mut self.reactor, completion),
                    (QUEUE, Some(queue)) => queue.handle(&mut self.reactor, completion),
                    _ => {}
                }
            }
            self.turn();
        }
    }

    /// Everything but completions: calls, requests, results, and sending.
    fn turn(&mut self) {
        while let Some(call) = self.calls.take() {
            self.handle_call(call);
        }
        self.begin_waiting();
        if let Some(queue) = &mut self.queue {
            queue.flush(&mut self.reactor);
        }
        self.driver.flush(&mut self.reactor);
        if let Some(queue) = &mut self.queue {
            while let Some(completion) = queue.poll_completion() {
                let reply = self.io.remove(&completion.tag);
                let failed_range = queue.take_failed_range(completion.tag);
                answer(reply, completion, failed_range);
            }
        }
        while let Some((tag, result)) = self.driver.poll_answer() {
            if let Some(reply) = self.admin.remove(&tag) {
                // The caller may have stopped waiting.
                let _ = reply.send(result);
            }
        }
    }

    fn handle_call(&mut self, call: Call) {
        let now = self.reactor.now();
        match call {
            Call::Io(io) => self.waiting.push_back(io),
            Call::Admin { command, data, reply } => {
                let tag = self.take_tag();
                self.admin.insert(tag, reply);
                self.driver.submit_admin(tag, command, data, now);
            }
            Call::Reset => self.driver.reset(now),
            Call::Authenticate(None) => self.driver.authenticate_again(now),
            Call::Authenticate(Some(secrets)) => {
                let (own, controllers) = *secrets;
                self.driver.set_secrets(own, controllers, now);
            }
            Call::Rescan => self.driver.rescan(now),
            Call::Stop => {
                self.stopping = true;
                self.driver.shut_down(now);
            }
        }
    }

    fn take_tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    fn begin_waiting(&mut self) {
        while let Some(io) = self.waiting.pop_front() {
            let free = self.reactor.pool().available();
            if !self.io.is_empty() && free < 2 * limits::BLOCKING_PIECE_BYTES {
                // Requests in flight will return their buffers.
                self.waiting.push_front(io);
                return;
            }
            self.begin(io);
        }
    }

    fn begin(&mut self, io: Io) {
        let reply = io.reply.clone();
        match self.hand_over(io) {
            Ok(tag) => {
                self.io.insert(tag, reply);
            }
            Err(why) => {
                // The caller may have stopped waiting.
                let _ = reply.send(Err(why.map(|failure| (failure, 0))));
            }
        }
    }

    /// Hands a request to the queue; its tag there.
    fn hand_over(&mut self, io: Io) -> Result<u64, StartFailure> {
        let Io { namespace, kind, slba, nlb, data, .. } = io;
        self.open_queue().map_err(StartFailure::Err)?;
        let gone = || StartFailure::Ok(Failure::Gone);
        let queue = self.queue.as_mut().ok_or_else(gone)?;
        // The queue has at least the state of the controller that the caller has seen.
        queue.listen(&mut self.reactor);
        let snapshot = queue.snapshot().cloned().ok_or_else(gone)?;
        let find = |namespace: &NamespaceInfo| {
            let now = snapshot.namespaces.get(&namespace.nsid);
            now.filter(|now| now.is_same(namespace)).ok_or_else(gone)
        };
        let current = find(&namespace)?;
        if let IoKind::Copy { ranges, .. } = &kind {
            ranges.iter().try_for_each(|range| find(&range.from).map(drop))?;
        }
        let length = match kind {
            IoKind::Read => nlb as usize * namespace.block_bytes as usize,
            _ => data.len(),
        };
        let work = work(&self.reactor, namespace.nsid, slba, nlb, kind, &data, length);
        let no_room =
            || StartFailure::Err("the host's buffer pool has no room for the request".into());
        let work = work.ok_or_else(no_room)?;
        let shape = geometry(&snapshot.controller, current);
        let tag = self.next_tag + 1;
        self.next_tag = tag;
        match work {
            Work::Device(operation) => {
                operation.check(&shape).map_err(StartFailure::Ok)?;
                queue.submit(current, Request { tag, operation });
            }
            Work::Copy(copy, ranges) => {
                // It needs what a write of these blocks needs.
                let write = Operation::WriteZeroes { slba, nlb, deallocate: false, durable: false };
                write.check(&shape).map_err(StartFailure::Ok)?;
                queue.submit_copy(current, tag, copy, ranges);
            }
            Work::Reservation(what, data) => queue.submit_reservation(current, tag, what, data),
        }
        Ok(tag)
    }

    fn open_queue(&mut self) -> Result<(), String> {
        if self.queue.is_none() {
            let shared = self.driver.shared();
            self.queue = Some(QueuePair::open(shared, &self.reactor, QUEUE)?);
        }
        Ok(())
    }
}

/// The end of the thread: all pending calls are answered.
impl Drop for Worker {
    fn drop(&mut self) {
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = false;
        while let Some(call) = self.calls.take() {
            drop(call);
        }
    }
}

/// A request for the queue.
enum Work {
    Device(Operation),
    Copy(CopyRequest, Buffer),
    Reservation(ReservationCommand, Buffer),
}

/// The request with buffers of the reactor; `None` where the pool has none.
fn work(
    reactor: &Reactor,
    nsid: u32,
    slba: u64,
    nlb: u32,
    kind: IoKind,
    data: &[u8],
    length: usize,
) -> Option<Work> {
    let filled = |bytes: &[u8]| {
        let mut buffer = reactor.pool().take(bytes.len())?;
        buffer.bytes_mut().copy_from_slice(bytes);
        Some(buffer)
    };
    Some(Work::Device(match kind {
        IoKind::Read => Operation::Read { slba, nlb, into: reactor.pool().take(length)? },
        IoKind::Write { durable } => Operation::Write { slba, nlb, from: filled(data)?, durable },
        IoKind::Flush => Operation::Flush,
        IoKind::WriteZeroes { deallocate } => {
            Operation::WriteZeroes { slba, nlb, deallocate, durable: false }
        }
        IoKind::Deallocate { ranges } => Operation::Discard { ranges },
        IoKind::Compare => Operation::Compare { slba, nlb, with: filled(data)? },
        IoKind::CompareAndWrite { expected } => {
            let compare = filled(&expected)?;
            let write = filled(data)?;
            Operation::CompareAndWrite { slba, nlb, compare, write, durable: false }
        }
        IoKind::Verify => Operation::Verify { slba, nlb },
        IoKind::Reservation(what) => return Some(Work::Reservation(*what, filled(data)?)),
        IoKind::Copy { ranges, durable } => {
            let sources = ranges.iter().map(|range| range.from.nsid);
            let format = if sources.clone().all(|source| source == nsid) { 0 } else { 2 };
            // The first format has no field for the namespace.
            let named = |source| if format == 0 { 0 } else { source };
            let mut bytes = Vec::with_capacity(ranges.len() * CopySourceRange::SIZE);
            for range in &ranges {
                let range = CopySourceRange::new(named(range.from.nsid), range.slba, range.nlb)?;
                bytes.extend_from_slice(range.bytes());
            }
            let mut command = CopyCommand::new(slba, u16::try_from(ranges.len()).ok()?, format);
            command.control = command.control.with_force_unit_access(durable);
            let copy = CopyRequest { command, sources: sources.collect() };
            return Some(Work::Copy(copy, filled(&bytes)?));
        }
    }))
}

fn answer(reply: Option<Sender<IoResult>>, completion: RequestCompletion, failed_range: u32) {
    let Some(reply) = reply else { return };
    let data = completion.buffer.map(|buffer| buffer.to_vec()).unwrap_or_default();
    // The caller may have stopped waiting.
    let failed = |failure| Ok((failure, failed_range));
    let _ = reply.send(completion.result.map(|()| data).map_err(failed));
}
