//! One I/O queue pair on one reactor: the hot path.
//!
//! ```text
//!            Live                 Ready              Connect accepted
//!   Idle ──────────▶ Connecting ───────▶ Handshake ──────────────────▶ Up
//!     ▲                  │                   │                          │
//!     │ Closed           │ Suspend, Ended, time-out, refusal, close     │
//!     └──── Closing ◀────┴───────────────────┴──────────────────────────┘
//!     └───────────────── Closed by the other side (lost) ───────────────┘
//! ```
//!
//! Requests enter the request table at any time. While the queue is up they are sent, as many as it
//! has slots, all of a turn in one send. When a connection ends, its buffers come back with
//! its last event; the table handles the loss only then, because a replay needs them.
//!
//! Nothing here allocates for a request once the tables have grown, and nothing takes a lock.

mod authenticate;
mod buffers;
mod connection;
mod copy;
mod path;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use weft_backend::{Failure, Request, RequestCompletion};
use weft_nvme::status::StatusCode;
use weft_nvme::{Command, Completion};
use weft_nvmf::host::request_table::{
    CommandResult, Issue, Kind, RequestError, RequestId, RequestPart, RequestTable,
};
use weft_nvmf::host::{
    AdminData, AuthenticationProgress, ControllerSnapshot, HostStep, NamespaceInfo, Problem,
    QueueAuthentication, connect_queue,
};
use weft_reactor::{Buffer, Mailbox, Outcome, Owner, Pool, Reactor, Token};
use weft_transport::host::{HostConnection, HostData, HostEvent, HostOptions, NotSubmitted};
use weft_transport::rdma::ensure_provider;
use weft_transport::{CloseReason, Slot, tag_of};

use crate::limits;
use crate::shared::{Activity, DriverMessage, LiveController, QueueMessage, Shared, secure};
use authenticate::Reauthentication;
pub(crate) use buffers::{CopyRequest, ReservationCommand};
use buffers::{RequestBuffers, RequestRange, failure_of};
pub(crate) use connection::{host_data, host_options, side_of, transport_options};
use path::PathState;
pub(crate) use path::{Outlook, RequestEnd, ReturnReason, is_of_access};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Connecting,
    /// The transport is connected; Connect, or a command of authentication after it, is in flight
    /// in this slot, or waits for a buffer.
    Handshake(Option<Slot>),
    Up,
    Closing,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct QueuePair {
    shared: Arc<Shared>,
    owner: Owner,
    queue_id: u16,
    mailbox: Mailbox<QueueMessage>,
    activity: Arc<Activity>,
    /// The last poll of `Activity` that this queue has seen, and the first command sent after it.
    activity_poll: u32,
    first_after_poll: u64,

    state: State,
    connection: Option<HostConnection>,
    connection_tag: u32,
    /// The controller to connect to; `None` while there is none.
    live: Option<LiveController>,
    /// The namespaces of the last controller.
    snapshot: Option<Arc<ControllerSnapshot>>,
    /// The failure of new requests, while they fail at once.
    failing: Option<RequestError>,
    closed: bool,
    /// Whether the controller's owner knows that the queue is closed.
    released: bool,

    requests: RequestTable,
    request_buffers: Vec<RequestBuffers>,
    completions: VecDeque<RequestCompletion>,
    /// What Dword 0 of the completions says of Copy, by tag.
    failed_ranges: BTreeMap<u64, u32>,
    /// Whether the pool had no buffer for a command to be sent.
    no_buffer: bool,
    /// How often in a row memory could not be registered with the transport's device.
    registration_failures: u32,
    /// The earliest time to try it again.
    retry_at: Duration,
    /// The earliest time to connect, and how often it was postponed.
    connect_at: Duration,
    connect_retries: u8,
    handshake_since: Duration,
    /// The exchange after Connect, or a later one, and its next command.
    authentication: Option<Box<QueueAuthentication>>,
    next_command: Option<(Command, AdminData)>,
    again: Reauthentication,
    timer_at: Option<Duration>,
    /// Only of one of several paths.
    path: Option<PathState>,
    /// What comes for it is handed out between the work for others.
    is_express: bool,
}

impl QueuePair {
    /// A queue of this controller on this reactor. It connects by itself.
    pub(crate) fn open(
        shared: &Arc<Shared>,
        reactor: &Reactor,
        owner: Owner,
    ) -> Result<Self, String> {
        Self::open_as(shared, reactor, owner, None)
    }

    /// As [`QueuePair::open`], or as the queue of one of several paths.
    fn open_as(
        shared: &Arc<Shared>,
        reactor: &Reactor,
        owner: Owner,
        path: Option<PathState>,
    ) -> Result<Self, String> {
        let queue_id = shared.allocate_queue_id()?;
        let (postbox, mailbox) = reactor.mailbox();
        let activity = Arc::new(Activity::default());
        let message = DriverMessage::Opened { queue_id, postbox, activity: Arc::clone(&activity) };
        shared.postbox.post(message);
        let capacity = usize::from(shared.options.queue_size);
        Ok(Self {
            shared: Arc::clone(shared),
            owner,
            queue_id,
            mailbox,
            activity,
            activity_poll: 0,
            first_after_poll: 0,
            state: State::Idle,
            connection: None,
            connection_tag: path.as_ref().map_or(0, PathState::first_connection_tag),
            live: None,
            snapshot: shared.snapshot(),
            failing: None,
            closed: false,
            released: false,
            requests: match path {
                None => RequestTable::new(capacity),
                Some(_) => RequestTable::of_path(capacity),
            },
            path,
            request_buffers: Vec::with_capacity(capacity),
            completions: VecDeque::with_capacity(capacity),
            failed_ranges: BTreeMap::new(),
            no_buffer: false,
            registration_failures: 0,
            retry_at: Duration::ZERO,
            connect_at: Duration::ZERO,
            connect_retries: 0,
            handshake_since: Duration::ZERO,
            authentication: None,
            next_command: None,
            again: Reauthentication::default(),
            timer_at: None,
            is_express: false,
        })
    }

    /// Has the reactor hand out what comes for it between the work for others, or no longer: now,
    /// and whenever it connects.
    pub(crate) fn set_express(&mut self, reactor: &mut Reactor, is_express: bool) {
        self.is_express = is_express;
        self.settle_express(reactor);
    }

    fn settle_express(&self, reactor: &mut Reactor) {
        if self.state == State::Up
            && let Some(connection) = &self.connection
            && let Err(error) = connection.set_express(reactor, self.is_express)
        {
            log::debug!("queue {} is served with the others: {error}", self.queue_id);
        }
    }

    /// The namespaces; they change with [`QueuePair::flush`].
    pub(crate) const fn snapshot(&self) -> Option<&Arc<ControllerSnapshot>> {
        self.snapshot.as_ref()
    }

    /// Accepts a request. It was checked against the namespace's geometry.
    pub(crate) fn submit(&mut self, namespace: &NamespaceInfo, request: Request) {
        if let Some(error) = self.failing {
            self.completions.push_back(request.refuse(failure_of(error)));
            return;
        }
        let (buffers, entry) = RequestBuffers::new(namespace.nsid, namespace.block_bytes, request);
        self.begin(namespace, buffers, entry);
    }

    fn begin(&mut self, namespace: &NamespaceInfo, buffers: RequestBuffers, entry: RequestRange) {
        let id = self.requests.begin(entry.kind, entry.slba, entry.nlb, &namespace.limits);
        let index = id.0 as usize;
        if index >= self.request_buffers.len() {
            self.request_buffers.resize_with(index + 1, RequestBuffers::default);
        }
        self.request_buffers[index] = buffers;
    }

    /// Fails a request that was not accepted.
    pub(crate) fn refuse(&mut self, request: Request, failure: Failure) {
        self.completions.push_back(request.refuse(failure));
    }

    /// Takes a completion of the reactor for this queue's owner.
    pub(crate) fn handle(
        &mut self,
        reactor: &mut Reactor,
        completion: weft_reactor::ReactorCompletion,
    ) {
        if completion.token.tag == self.timer_tag() {
            if matches!(completion.outcome, Outcome::Timer) {
                self.timer_at = None;
                self.tick(reactor);
            }
            return;
        }
        if tag_of(completion.token) != self.connection_tag {
            return;
        }
        if let Some(connection) = &mut self.connection {
            connection.handle(reactor, completion);
            self.take_events(reactor);
        }
    }

    /// The end of a turn: handles messages of the controller's owner, and sends gathered requests.
    pub(crate) fn flush(&mut self, reactor: &mut Reactor) {
        self.listen(reactor);
        if self.state == State::Idle
            && self.failing.is_none()
            && self.connect_at <= reactor.turn_time()
        {
            self.connect(reactor);
        }
        if self.state == State::Handshake(None) {
            self.send_handshake(reactor);
        }
        if self.state == State::Up {
            self.send_exchange(reactor);
            self.send_waiting(reactor);
        }
        if let Some(connection) = &mut self.connection {
            connection.flush(reactor);
            self.take_events(reactor);
        }
        self.finish_close(reactor);
        self.set_timer(reactor);
    }

    /// Handles messages of the controller's owner.
    pub(crate) fn listen(&mut self, reactor: &mut Reactor) {
        while let Some(message) = self.mailbox.take() {
            self.handle_message(reactor, message);
        }
    }

    /// The next request that ended.
    pub(crate) fn poll_completion(&mut self) -> Option<RequestCompletion> {
        if let Some(completion) = self.completions.pop_front() {
            return Some(completion);
        }
        let (RequestId(index), result) = self.requests.poll_finished()?;
        let buffers = std::mem::take(&mut self.request_buffers[index as usize]);
        Some(buffers.complete(result.map_err(failure_of)))
    }

    /// Requests that were accepted and not yet polled as ended.
    pub(crate) fn in_flight(&self) -> usize {
        self.requests.unfinished() + self.completions.len()
    }

    /// Accepts no more requests. Waiting ones fail, those in flight complete, and then the
    /// connection ends.
    pub(crate) fn close(&mut self, reactor: &mut Reactor) {
        if !self.closed {
            self.closed = true;
            self.fail(RequestError::Gone);
            self.finish_close(reactor);
        }
    }

    fn fail(&mut self, error: RequestError) {
        self.failing = Some(error);
        // Another path may take them.
        let error = if self.path.is_some() { RequestError::NotSent } else { error };
        self.requests.fail_waiting(error);
    }

    fn finish_close(&mut self, reactor: &mut Reactor) {
        if !self.closed || self.requests.in_flight() > 0 {
            return;
        }
        self.live = None;
        self.disconnect(reactor, "the queue is closed");
        // Not before the connection has ended: the controller has to notice it before another queue
        // of the same identifier connects.
        if self.connection.is_none() {
            self.release();
        }
    }

    fn release(&mut self) {
        if !self.released {
            self.released = true;
            self.shared.postbox.post(DriverMessage::Closed { queue_id: self.queue_id });
        }
    }

    fn handle_message(&mut self, reactor: &mut Reactor, message: QueueMessage) {
        let ends = matches!(message, QueueMessage::Suspend { .. } | QueueMessage::Ended);
        if self.closed && !ends {
            return;
        }
        match message {
            QueueMessage::Live(live) => {
                self.failing = None;
                self.connect_at = Duration::ZERO;
                self.connect_retries = 0;
                self.take_snapshot(Arc::clone(&live.snapshot));
                if let Some(path) = &mut self.path {
                    path.awaits_access = false;
                }
                self.live = Some(live);
            }
            QueueMessage::Changed(snapshot) => {
                self.take_snapshot(snapshot);
                if let Some(path) = &mut self.path {
                    path.awaits_access = false;
                }
            }
            QueueMessage::Authenticate(credentials) => {
                self.authenticate_again(reactor, credentials);
            }
            QueueMessage::Renew(security) => {
                if let Some(live) = &mut self.live {
                    live.security = security;
                }
            }
            QueueMessage::Suspend { by_peer } => {
                self.live = None;
                if let Some(path) = &mut self.path {
                    path.suspended_by_peer = by_peer;
                }
                self.disconnect(reactor, "the controller is reset");
            }
            QueueMessage::FailIo => self.fail(RequestError::PathLost),
            QueueMessage::Ended => {
                self.live = None;
                self.disconnect(reactor, "the controller is disconnected");
                self.fail(RequestError::Gone);
            }
        }
    }

    /// Requests to namespaces that have been replaced must not reach the new ones.
    fn take_snapshot(&mut self, snapshot: Arc<ControllerSnapshot>) {
        if let Some(before) = &self.snapshot {
            let request_buffers = &self.request_buffers;
            let is_gone =
                |nsid| match (before.namespaces.get(&nsid), snapshot.namespaces.get(&nsid)) {
                    (Some(before), Some(now)) => !now.is_same(before),
                    (_, now) => now.is_none(),
                };
            let is_meant = |id: RequestId| request_buffers[id.0 as usize].nsids().any(is_gone);
            self.requests.fail_requests(RequestError::Gone, is_meant);
        }
        self.snapshot = Some(snapshot);
    }

    fn connect(&mut self, reactor: &mut Reactor) {
        let Some(live) = &self.live else { return };
        let first = self.path.as_ref().map_or(0, PathState::first_connection_tag);
        self.connection_tag = first + (self.connection_tag - first + 1) % limits::CONNECTION_TAGS;
        let entries = live.snapshot.controller.queue_entries;
        let controller_id = live.snapshot.controller.controller_id;
        let options = HostOptions {
            queue_depth: entries - 1,
            transport_options: transport_options(&self.shared, self.queue_id, controller_id),
            ..host_options(&self.shared)
        };
        ensure_provider(reactor, &self.shared.options.rdma);
        let mut connection = HostConnection::connect(
            reactor,
            self.owner,
            self.connection_tag,
            live.address,
            options,
        );
        secure(&live.security, reactor, &mut connection);
        self.connection = Some(connection);
        self.state = State::Connecting;
    }

    /// Sends Connect, or the next command of the authentication after it.
    fn send_handshake(&mut self, reactor: &mut Reactor) {
        let (Some(live), Some(connection)) = (&self.live, &mut self.connection) else { return };
        let connect = || connect_queue(&self.shared.config, &live.snapshot, self.queue_id);
        let (command, data) = self.next_command.get_or_insert_with(connect);
        let Some(data) = host_data(data, reactor.pool()) else {
            self.no_buffer = true;
            return;
        };
        match connection.submit(*command, data) {
            Ok(slot) => {
                self.next_command = None;
                self.state = State::Handshake(Some(slot));
                self.handshake_since = reactor.turn_time();
            }
            Err(NotSubmitted { why, .. }) => self.wait(reactor, why),
        }
    }

    fn take_events(&mut self, reactor: &mut Reactor) {
        let mut active = false;
        while let Some(event) = self.connection.as_mut().and_then(HostConnection::poll_event) {
            match event {
                HostEvent::Ready { .. } => {
                    if self.state == State::Connecting {
                        self.state = State::Handshake(None);
                        self.handshake_since = reactor.turn_time();
                    }
                }
                HostEvent::Completed { slot, completion, buffer, received } => {
                    active |= self.proves_liveness(slot);
                    if self.state == State::Handshake(Some(slot)) {
                        let bytes = buffer.as_ref().and_then(|all| all.get(..received as usize));
                        let bytes = bytes.unwrap_or_default();
                        self.handshake_completed(reactor, &completion, bytes);
                    } else if self.again.is_in(slot) {
                        let bytes = buffer.as_ref().and_then(|all| all.get(..received as usize));
                        self.exchange_completed(reactor, &completion, bytes.unwrap_or_default());
                    } else {
                        self.completed(slot, Some(&completion), buffer, received);
                    }
                }
                HostEvent::Failed { slot, buffer, .. } => {
                    if self.state == State::Handshake(Some(slot)) {
                        let step = self.handshake_step();
                        let what = "its data digest is wrong";
                        self.connected(reactor, Err(Problem::InvalidResponse { step, what }));
                    } else if self.again.is_in(slot) {
                        let (step, what) = (HostStep::Authenticate, "its data digest is wrong");
                        let problem = Problem::InvalidResponse { step, what };
                        self.exchange_failed(reactor, problem);
                    } else {
                        self.completed(slot, None, buffer, 0);
                    }
                }
                HostEvent::Closed { reason, in_flight } => {
                    self.ended(reason, in_flight, reactor.turn_time());
                }
            }
        }
        if active {
            self.activity.note();
        }
    }

    /// Records a poll of `Activity` since the last call.
    fn note_activity_poll(&mut self) {
        let activity_poll = self.activity.polls();
        if activity_poll != self.activity_poll {
            self.activity_poll = activity_poll;
            self.first_after_poll = self.requests.next_sequence();
        }
    }

    /// Whether the command in this slot was sent after the last poll of `Activity`.
    fn proves_liveness(&mut self, slot: Slot) -> bool {
        self.note_activity_poll();
        self.requests.sequence(slot.0).is_some_and(|sequence| sequence >= self.first_after_poll)
    }

    /// Connect, or a command of the authentication after it, was completed.
    fn handshake_completed(&mut self, reactor: &mut Reactor, completion: &Completion, data: &[u8]) {
        let progress = match &mut self.authentication {
            Some(authentication) => authentication.handle_completion(completion, data),
            None => match self.connect_answered(completion) {
                Ok(Some(authentication)) => {
                    let first = authentication.first();
                    self.authentication = Some(Box::new(authentication));
                    AuthenticationProgress::Submit(first)
                }
                Ok(None) => AuthenticationProgress::Done,
                Err(problem) => AuthenticationProgress::Failed(problem),
            },
        };
        match progress {
            AuthenticationProgress::Submit(next) => {
                self.next_command = Some(next);
                self.state = State::Handshake(None);
                self.send_handshake(reactor);
            }
            AuthenticationProgress::Done => self.connected(reactor, Ok(())),
            AuthenticationProgress::Failed(problem) => self.connected(reactor, Err(problem)),
        }
    }

    fn handshake_step(&self) -> HostStep {
        match &self.authentication {
            Some(_) => HostStep::Authenticate,
            None => HostStep::ConnectQueue(self.queue_id),
        }
    }

    fn connected(&mut self, reactor: &mut Reactor, result: Result<(), Problem>) {
        match result {
            Ok(()) => {
                self.state = State::Up;
                self.end_handshake(reactor);
                self.connect_retries = 0;
                if let (Some(connection), Some(live)) = (&mut self.connection, &self.live) {
                    connection.set_in_capsule_bytes(live.snapshot.controller.in_capsule_bytes);
                }
                if self.is_express {
                    self.settle_express(reactor);
                }
            }
            Err(problem) if self.is_in_use(&problem) => {
                self.connect_retries += 1;
                self.connect_at = reactor.turn_time().saturating_add(limits::QUEUE_TAKEN_DELAY);
                self.disconnect(reactor, "the queue is not free yet");
            }
            Err(problem) => self.lose(reactor, problem),
        }
    }

    /// Whether the status says that the controller still has a queue of this identifier, whose end
    /// it may notice soon. (Linux and weft send this status.)
    fn is_in_use(&self, problem: &Problem) -> bool {
        let sequence = StatusCode::COMMAND_SEQUENCE_ERROR;
        self.connect_retries < limits::QUEUE_TAKEN_RETRIES
            && matches!(problem, Problem::Refused { status, .. } if status.code() == sequence)
    }

    /// A command ended; without a completion if its data had a wrong digest.
    fn completed(
        &mut self,
        slot: Slot,
        completion: Option<&Completion>,
        buffer: Option<Buffer>,
        received: u32,
    ) {
        let Some(part) = self.requests.in_slot(slot.0) else { return };
        let buffers = &mut self.request_buffers[part.request.0 as usize];
        let ending = completion.map_or(CommandResult::Corrupt, |completion| {
            CommandResult::Status(completion.status())
        });
        if let (Kind::Copy, Some(completion)) = (part.kind, completion) {
            self.failed_ranges.insert(buffers.tag, completion.dword0());
        }
        let success = matches!(ending, CommandResult::Status(status) if status.is_success());
        let short = part.kind == Kind::Read && buffers.data_bytes(&part) != received as usize;
        let ending = if success && short { CommandResult::Short } else { ending };
        let can_replay = buffers.return_buffer(&part, buffer, success && !short);
        let ending = match ending {
            CommandResult::Status(status) if !can_replay && !success => {
                CommandResult::Status(status.with_dnr())
            }
            ending => ending,
        };
        // The slot was found above, so it exists.
        let _ = self.requests.completed(slot.0, ending);
    }

    /// The connection has ended, closed by either side.
    fn ended(
        &mut self,
        reason: CloseReason,
        in_flight: Vec<(Slot, Option<Buffer>)>,
        now: Duration,
    ) {
        for (slot, buffer) in in_flight {
            if let Some(part) = self.requests.in_slot(slot.0) {
                let buffers = &mut self.request_buffers[part.request.0 as usize];
                if !buffers.return_whole_buffer(&part, buffer) {
                    self.requests.fail_requests(RequestError::PathLost, |id| id == part.request);
                }
            }
        }
        self.connection = None;
        self.again = Reauthentication::default();
        self.authentication = None;
        self.next_command = None;
        self.requests.lost();
        let was_closing = self.state == State::Closing;
        self.state = State::Idle;
        self.raise_fence((!was_closing).then_some(&reason), now);
        if let Some(error) = self.failing {
            // A part of it was sent: it may have been executed.
            let error = if error == RequestError::Gone { RequestError::PathLost } else { error };
            self.requests.fail_waiting(error);
        }
        if !was_closing && let Some(live) = self.live.take() {
            let problem = Problem::Transport { side: side_of(&reason), reason: reason.to_string() };
            self.report(live.snapshot.generation, problem, reason.is_by_peer());
        }
    }

    /// This side closes the connection.
    fn lose(&mut self, reactor: &mut Reactor, problem: Problem) {
        let Some(live) = self.live.take() else { return };
        if problem.is_final() {
            let error = match &problem {
                Problem::Refused { status, .. } => RequestError::Status(*status),
                Problem::Impossible(_) => RequestError::NoMemory,
                _ => RequestError::Gone,
            };
            log::warn!("{}: {problem}", self.shared.options.address);
            self.fail(error);
        }
        if let Some(path) = &mut self.path {
            path.suspended_by_peer = false;
        }
        self.report(live.snapshot.generation, problem, false);
        self.disconnect(reactor, "the queue is given up");
    }

    fn report(&self, generation: u32, problem: Problem, by_peer: bool) {
        let queue_id = self.queue_id;
        let message = DriverMessage::Lost { queue_id, generation, problem, by_peer };
        self.shared.postbox.post(message);
    }

    fn disconnect(&mut self, reactor: &mut Reactor, why: &'static str) {
        if self.state == State::Closing {
            return;
        }
        if let Some(connection) = &mut self.connection {
            self.state = State::Closing;
            connection.close(reactor, CloseReason::Requested(why));
        }
    }

    /// Sends waiting requests, as far as there are slots and buffers.
    fn send_waiting(&mut self, reactor: &mut Reactor) {
        self.note_activity_poll();
        if reactor.turn_time() < self.retry_at {
            return;
        }
        self.no_buffer = false;
        if !self.requests.has_waiting() {
            return;
        }
        let epoch = epoch(reactor.turn_time(), self.shared.options.io_timeout);
        while let Some(connection) = &self.connection
            && let Some(issue) = self.requests.next(connection.free_slots())
        {
            let sent = match issue {
                Issue::Single(part) => self.send(&part, reactor.pool(), epoch),
                Issue::Fused(first, second) => {
                    let sent = self.send(&first, reactor.pool(), epoch);
                    if sent.is_err() {
                        self.requests.put_back(second.id);
                    } else if self.send(&second, reactor.pool(), epoch).is_err() {
                        // The first one was not sent yet, and must not be sent alone.
                        let why = "there is no memory for the second of two fused commands";
                        if let Some(connection) = &mut self.connection {
                            connection.close(reactor, CloseReason::Requested(why));
                        }
                        return;
                    }
                    sent
                }
            };
            if let Err(why) = sent {
                return self.wait(reactor, why);
            }
            self.registration_failures = 0;
        }
    }

    /// Sends one part. A part that has to wait goes back into the request table; the error says
    /// what is wrong with this side, if anything is.
    fn send(
        &mut self,
        part: &RequestPart,
        pool: &Pool,
        epoch: u32,
    ) -> Result<(), Option<CloseReason>> {
        let buffers = &mut self.request_buffers[part.request.0 as usize];
        let command = buffers.command(part, pool);
        let (Some((command, data)), Some(connection)) = (command, &mut self.connection) else {
            self.requests.put_back(part.id);
            return Err(None);
        };
        match connection.submit(command, data) {
            Ok(slot) => {
                self.requests.submitted(part.id, slot.0, epoch);
                Ok(())
            }
            Err(NotSubmitted { data, why }) => {
                if let HostData::FromController(buffer) | HostData::ToController(buffer) = data {
                    buffers.return_whole_buffer(part, Some(buffer));
                }
                self.requests.put_back(part.id);
                Err(why)
            }
        }
    }

    /// Requests wait for memory. If it cannot be registered they wait longer each time, and finally
    /// the queue is given up: another connection would have the same problem.
    fn wait(&mut self, reactor: &mut Reactor, why: Option<CloseReason>) {
        self.no_buffer = true;
        let Some(why) = why else { return };
        let delay = limits::POOL_RETRY.saturating_mul(1 << self.registration_failures);
        self.retry_at = reactor.turn_time().saturating_add(delay);
        self.registration_failures += 1;
        if self.registration_failures >= limits::REGISTRATION_RETRIES {
            self.lose(reactor, Problem::Impossible(why.to_string()));
        }
    }

    fn tick(&mut self, reactor: &mut Reactor) {
        self.requests.tick();
        let timeout = self.shared.options.io_timeout;
        let now = reactor.turn_time();
        let silent = match self.state {
            State::Handshake(_) => now.saturating_sub(self.handshake_since) >= timeout,
            State::Up if self.again.is_overdue(now, timeout) => true,
            State::Up => {
                let age = self.requests.oldest_age(epoch(now, timeout));
                age.is_some_and(|age| age > limits::TIMEOUT_PARTS)
            }
            State::Idle | State::Connecting | State::Closing => false,
        };
        if silent {
            let step = match self.state {
                State::Handshake(_) => self.handshake_step(),
                _ if self.again.is_overdue(now, timeout) => HostStep::Authenticate,
                _ => HostStep::InputOutput,
            };
            self.lose(reactor, Problem::TimedOut { step, waited: timeout });
        }
    }

    fn is_awaiting_answer(&self) -> bool {
        self.requests.in_flight() > 0
            || self.again.is_in_flight()
            || matches!(self.state, State::Handshake(_))
    }

    /// Sets the one timer, only while something has a time-out, and moves it only to an earlier
    /// time.
    fn set_timer(&mut self, reactor: &mut Reactor) {
        let delay = if self.state == State::Idle && self.live.is_some() {
            self.connect_at.saturating_sub(reactor.turn_time())
        } else if self.no_buffer || self.again.lacks_buffer {
            self.retry_at.saturating_sub(reactor.turn_time()).max(limits::POOL_RETRY)
        } else if self.requests.has_delayed() {
            limits::RETRY_DELAY
        } else if self.is_awaiting_answer() {
            self.shared.options.io_timeout / limits::TIMEOUT_PARTS
        } else {
            return;
        };
        let at = reactor.turn_time().saturating_add(delay);
        if self.timer_at.is_none_or(|set| at < set) {
            self.timer_at = Some(at);
            reactor.set_timer(Token::new(self.owner, self.timer_tag()), at);
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        self.release();
    }
}

/// Time in eighths of the I/O time-out: what the age of a command is measured in.
fn epoch(now: Duration, timeout: Duration) -> u32 {
    let milliseconds = |time: Duration| {
        time.as_secs().wrapping_mul(1000).wrapping_add(u64::from(time.subsec_millis()))
    };
    let part = milliseconds(timeout / limits::TIMEOUT_PARTS).max(1);
    let [a, b, c, d, ..] = (milliseconds(now) / part).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
