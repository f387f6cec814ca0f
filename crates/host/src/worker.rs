//! The thread of a controller: a reactor, the owner of the admin queue, and one I/O queue for the
//! blocking calls, opened with the first of them.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError, RwLock};

use weft_backend::{Failure, Operation, Request, RequestCompletion};
use weft_nvme::Command;
use weft_nvmf::host::{AdminData, ControllerKind, NamespaceInfo};
use weft_reactor::{Mailbox, MailboxSender, Owner, Reactor, WaitLimit};

use crate::device::geometry;
use crate::driver::{AdminResult, ControllerDriver};
use crate::error::Error;
use crate::limits;
use crate::options::Options;
use crate::queue::QueuePair;
use crate::shared::{Secrets, Shared};

const DRIVER: Owner = Owner(0);
const QUEUE: Owner = Owner(1);

/// The result of a blocking request: its data, or a failure of the request or (as text) of the
/// queue.
pub(crate) type IoResult = Result<Vec<u8>, Result<Failure, String>>;

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

pub(crate) type Started = Result<(Arc<Shared>, Calls), Error>;

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
pub(crate) fn run(options: &Options, kind: ControllerKind, started: &Sender<Started>) {
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
                answer(reply, completion);
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
        let Io { namespace, kind, slba, nlb, data, reply } = io;
        let fail = |reply: &Sender<IoResult>, why| {
            let _ = reply.send(Err(why));
        };
        if let Err(words) = self.open_queue() {
            return fail(&reply, Err(words));
        }
        let Some(queue) = &mut self.queue else { return };
        // The queue has at least the state of the controller that the caller has seen.
        queue.listen(&mut self.reactor);
        let snapshot = queue.snapshot().cloned();
        let current = snapshot.as_ref().and_then(|snapshot| {
            let now = snapshot.namespaces.get(&namespace.nsid)?;
            now.is_same(&namespace).then_some((snapshot, now))
        });
        let Some((snapshot, current)) = current else {
            return fail(&reply, Ok(Failure::Gone));
        };
        let length = match kind {
            IoKind::Read => nlb as usize * namespace.block_bytes as usize,
            _ => data.len(),
        };
        let Some(operation) = operation(&self.reactor, kind, (slba, nlb), &data, length) else {
            let words = "the host's buffer pool has no room for the request";
            return fail(&reply, Err(words.into()));
        };
        let shape = geometry(&snapshot.controller, current);
        if let Err(failure) = operation.check(&shape) {
            return fail(&reply, Ok(failure));
        }
        let current = Arc::clone(current);
        let tag = self.next_tag + 1;
        self.next_tag = tag;
        self.io.insert(tag, reply);
        queue.submit(&current, Request { tag, operation });
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

/// The operation with buffers of the reactor; `None` where the pool has none.
fn operation(
    reactor: &Reactor,
    kind: IoKind,
    (slba, nlb): (u64, u32),
    data: &[u8],
    length: usize,
) -> Option<Operation> {
    let filled = |bytes: &[u8]| {
        let mut buffer = reactor.pool().take(bytes.len())?;
        buffer.bytes_mut().copy_from_slice(bytes);
        Some(buffer)
    };
    Some(match kind {
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
    })
}

fn answer(reply: Option<Sender<IoResult>>, completion: RequestCompletion) {
    let Some(reply) = reply else { return };
    let data = completion.buffer.map(|buffer| buffer.to_vec()).unwrap_or_default();
    // The caller may have stopped waiting.
    let _ = reply.send(completion.result.map(|()| data).map_err(Ok));
}
