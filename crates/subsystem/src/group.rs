//! A poll group: one thread's share of the target.
//!
//! A turn takes the reactor's completions, has each connection handle its events, polls the devices
//! for completed requests, and flushes the responses once for each connection. Groups share only
//! messages, the directory (not on the data path) and the devices' own shared state.

mod accept;
mod admin;
mod arrivals;
mod authenticate;
mod connect;
mod connection;
mod connections;
mod core;
mod devices;
mod doubt;
mod express;
mod io;
mod lines;
mod listen;
mod meter;
mod owners;
mod publish;
mod reserved;
mod schedule;
mod tracer;
mod turn;
mod unconnected;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use weft_backend::RequestCompletion;
use weft_nvme::Status;
use weft_nvmf::auth::target::WorkDone;
use weft_nvmf::connect::{ConnectError, ConnectRequest};
use weft_nvmf::controller::ControllerEvent;
use weft_nvmf::queue::QueueGrant;
use weft_reactor::{Mailbox, MailboxSender, Reactor, ReactorCompletion, Token, WaitLimit};
use weft_transport::target::TargetConnection;
use weft_transport::{CloseReason, Slot};

use self::admin::Admin;
use self::connection::{Connection, Role};
use self::connections::Connections;
use self::core::{Context, Core};
use self::devices::Devices;
use self::doubt::Doubts;
use self::io::{Hold, Io};
use self::lines::Lines;
use self::listen::Listeners;
use self::owners::{
    AUTHENTICATION_TIMERS, CONNECTIONS, CONTROLLERS, DEVICES, DOUBT_TIMER, DRAIN_TIMERS, KEY_TIMER,
    LISTENERS, REGISTRATION_TIMERS, STALL_TIMER, TRACE_TIMER, transport_tag,
};
use self::schedule::Schedule;
use self::tracer::Tracer;
use crate::shared::directory::Directory;
use crate::shared::error::TargetError;
use crate::shared::ids::ConnectionId;
use crate::shared::message::{Message, MovedConnection, PrepareResult};
use crate::shared::round::Round;
use crate::shared::snapshot::Requirements;
use crate::shared::statistics::CounterWriter;
use crate::shared::trace::Trace;

/// What a round waits for.
type BusyCheck = fn(&Io) -> bool;

/// One thread's share of the target.
#[derive(Debug)]
pub(crate) struct Group {
    core: Core,
    connections: Connections,
    listeners: Listeners,
    mailbox: Mailbox<Message>,
    completions: Vec<ReactorCompletion>,
    express_completions: Vec<ReactorCompletion>,
    /// What came with those of express queues and is not for one: for the next turn.
    deferred: Vec<ReactorCompletion>,
    /// Requests of others that completed while an express queue was served.
    set_aside: VecDeque<RequestCompletion>,
    /// Controllers that have to learn of the present snapshot, unless they have meanwhile.
    outdated: VecDeque<ConnectionId>,
    /// Rounds that wait until no I/O queue is busy.
    waiting_for_idle: Vec<(Arc<Round>, BusyCheck)>,
    /// Hosts that connect anew, whose connections here have to show that they are alive.
    doubts: Doubts,
    /// Rounds that wait for the commands that hold this.
    settling: Vec<(Arc<Round>, Hold)>,
    /// Memory was short, and a check for the hosts that hold it is scheduled.
    stall_timer_set: bool,
    stopping: bool,
    failed: bool,
}

impl Group {
    /// A group on this reactor. `posts` are the mailboxes of all groups, this one's at `id`.
    pub(crate) fn new(
        id: usize,
        reactor: Reactor,
        mailbox: Mailbox<Message>,
        posts: Vec<MailboxSender<Message>>,
        directory: Arc<Directory>,
    ) -> Self {
        let snapshot = directory.snapshot();
        let group_counters = directory.counters_of(id);
        let schedule = Schedule::new(id, reactor.pool().clone(), &snapshot);
        Self {
            core: Core {
                id,
                reactor,
                posts,
                directory,
                snapshot,
                devices: Devices::new(CounterWriter::new(group_counters)),
                schedule,
                tracer: None,
                stale_checks: 0,
                pending_lines: Lines::default(),
                fault_lines: Lines::default(),
                host_lines: Lines::default(),
                is_stopping: false,
            },
            connections: Connections::default(),
            listeners: Listeners::default(),
            mailbox,
            completions: Vec::new(),
            express_completions: Vec::new(),
            deferred: Vec::new(),
            set_aside: VecDeque::new(),
            outdated: VecDeque::new(),
            waiting_for_idle: Vec::new(),
            doubts: Doubts::default(),
            settling: Vec::new(),
            stall_timer_set: false,
            stopping: false,
            failed: false,
        }
    }

    /// Opens what a reload needs. If it fails, nothing stays open.
    pub(crate) fn prepare(&mut self, needs: &Requirements) -> PrepareResult {
        let core = &mut self.core;
        let devices = core.devices.prepare(&needs.devices, &mut core.reactor);
        devices.map_err(|error| TargetError::new(error.to_string()))?;
        let Some(ports) = needs.ports.as_ref().filter(|_| core.id == 0 && !core.is_stopping) else {
            return Ok(BTreeMap::new());
        };
        let listening = self.listeners.prepare(ports, core);
        listening.map_err(|(address, error)| {
            core.devices.rollback(&mut core.reactor);
            TargetError::listen(address, &error)
        })
    }

    /// Closes what was opened for a reload that is not executed.
    pub(crate) fn rollback(&mut self) {
        self.core.devices.rollback(&mut self.core.reactor);
        self.listeners.rollback(&mut self.core);
    }

    /// Runs until the target stops.
    pub(crate) fn run(&mut self) {
        let grace = self.core.snapshot.idle_poll;
        while self.turn(WaitLimit::Adaptive { grace }) {}
        if !self.failed {
            self.core.devices.close(&mut self.core.reactor);
        }
    }

    /// The time of its reactor.
    pub(crate) fn now(&self) -> Duration {
        self.core.reactor.now()
    }

    /// Bytes of buffers in use.
    pub(crate) fn buffers_in_use(&self) -> usize {
        let pool = self.core.reactor.pool();
        pool.capacity() - pool.available()
    }

    fn dispatch(&mut self, completion: ReactorCompletion) {
        let token = completion.token;
        match token.owner {
            CONNECTIONS => {
                let Err(completion) = self.dispatch_express(completion) else { return };
                let index = weft_transport::tag_of(token) as usize;
                self.note_received(index, &completion);
                self.with(index, |connection, core| connection.handle(completion, core));
                if self.core.schedule.express.queues() > 0 {
                    self.count_refused(index);
                }
            }
            owner if owner.0 >= DEVICES => {
                self.core.devices.handle(completion, &mut self.core.reactor);
            }
            LISTENERS => self.handle_listener(completion),
            STALL_TIMER => self.end_stalled_connection(),
            TRACE_TIMER => self.end_trace(),
            DOUBT_TIMER => self.doubts.check(&mut self.connections, &mut self.core),
            KEY_TIMER => {
                let now = self.core.reactor.turn_time();
                self.core.snapshot.generated.expire(self.core.id, now);
            }
            REGISTRATION_TIMERS => self.core.expire_registrations(),
            CONTROLLERS => self.with(token.tag as usize, |connection, core| {
                connection.with_admin(core, Admin::handle_timer);
            }),
            DRAIN_TIMERS => self.with(token.tag as usize, Connection::handle_drain_timeout),
            AUTHENTICATION_TIMERS => {
                self.with(token.tag as usize, Connection::handle_authentication_timeout);
            }
            _ => {}
        }
    }

    /// Runs an action on a connection, whose events are polled in this turn.
    fn with(&mut self, index: usize, action: impl FnOnce(&mut Connection, &mut Core)) {
        self.with_if_changed(index, |connection, core| {
            action(connection, core);
            true
        });
    }

    /// The same if this connection still exists; returns whether it does.
    fn with_id(
        &mut self,
        id: ConnectionId,
        action: impl FnOnce(&mut Connection, &mut Core),
    ) -> bool {
        let exists = self.connections.get(id).is_some();
        if exists {
            self.with(id.index, action);
        }
        exists
    }

    /// Runs an action on a connection, whose events are polled in this turn if it returns `true`.
    fn with_if_changed(
        &mut self,
        index: usize,
        action: impl FnOnce(&mut Connection, &mut Core) -> bool,
    ) {
        self.connections.with_if_changed(index, &mut self.core, action);
    }

    fn handle_message(&mut self, message: Message) {
        match message {
            Message::TakeOver(moved) => self.take_over(*moved),
            Message::Incoming { incoming, port_id } => self.accept_incoming(*incoming, port_id),
            Message::Attach { owner, queue, has_tls, request } => {
                self.attach(owner, queue, has_tls, &request);
            }
            Message::Attached { queue, owner, result } => self.attached(queue, owner, result),
            Message::PowerComputed { connection, done } => self.power_computed(connection, *done),
            Message::EndQueue { queue, reason } => {
                self.with_id(queue, |connection, core| connection.end(reason, core));
            }
            Message::QueueEnded { owner, queue_id } => {
                self.with_admin(owner, |admin, context| admin.queue_ended(queue_id, context));
            }
            Message::StaleCheck { host, round } => {
                self.doubts.begin(host, round, &mut self.connections, &mut self.core);
            }
            Message::StaleChecked { connection, stale_check } => {
                self.with_id(connection, |connection, core| {
                    connection.handle_stale_checked(stale_check, core);
                });
            }
            Message::Proceed { connection } => _ = self.with_id(connection, Connection::proceed),
            Message::Abort { queue, owner, abort_id, command_id } => {
                let aborted = self.abort_command(queue, command_id);
                self.core.post(owner, Message::AbortDone { owner, abort_id, aborted });
            }
            Message::AbortDone { owner, abort_id, aborted } => {
                self.tell_controller(owner, ControllerEvent::AbortDone { abort_id, aborted });
            }
            Message::WriteProtectApplied { owner, command_id, status } => {
                self.protected(owner, command_id, status);
            }
            Message::Fatal { owner } => self.tell_controller(owner, ControllerEvent::Fatal),
            Message::SubsystemReset { owner } => {
                self.tell_controller(owner, ControllerEvent::SubsystemReset);
            }
            Message::NamespacesChanged { owner, command_id, result } => {
                let event = ControllerEvent::NamespacesChanged { command_id, result };
                self.tell_controller(owner, event);
            }
            // If the receiver is gone, the next message is a rollback.
            Message::Prepare { needs, done } => drop(done.send(self.prepare(&needs))),
            Message::Rollback => self.rollback(),
            Message::Reload { snapshot, ports, round, settled } => {
                self.publish(snapshot, settled);
                if ports {
                    self.listeners.serve(&mut self.core);
                }
                self.core.acknowledge(&round);
            }
            Message::Publish { snapshot, round } => self.publish(snapshot, round),
            Message::Trace { trace } => self.begin_trace(trace),
            Message::Settle { device, hosts, round } => self.settle(device, &hosts, round),
            Message::Reserved(changed) => self.reserved(&changed),
            Message::NotifyReserved(changed) => self.notify_reserved(&changed),
            Message::Idle { round } => self.waiting_for_idle.push((round, Io::is_busy)),
            Message::DevicesIdle { round } => self.waiting_for_idle.push((round, Io::has_begun)),
            Message::Drain { round } => self.drain(round),
            Message::Stop => self.stop(),
            Message::Fail => self.failed = true,
        }
    }

    /// Records the commands that come from now on.
    fn begin_trace(&mut self, trace: Arc<Trace>) {
        let core = &mut self.core;
        let Some(tracer) = Tracer::begin(trace, core.id) else { return };
        let end = core.reactor.now().saturating_add(tracer.time());
        core.reactor.set_timer(Token { owner: TRACE_TIMER, tag: 0 }, end);
        core.tracer = Some(tracer);
        self.trace_queues();
    }

    /// The time of a trace is over.
    fn end_trace(&mut self) {
        let tracer = self.core.tracer.take();
        self.trace_queues();
        if let Some(tracer) = tracer {
            tracer.end();
        }
    }

    /// Has every queue record its commands, or no longer.
    fn trace_queues(&mut self) {
        for index in self.connections.indices() {
            self.with_if_changed(index, |connection, core| {
                if let Role::Io(io) = &mut connection.role {
                    io.trace(core);
                }
                false
            });
        }
    }

    fn abort_command(&mut self, queue: ConnectionId, command_id: u16) -> bool {
        let mut aborted = false;
        self.with_id(queue, |connection, core| {
            let found = connection.with_io(core, |io, context| io.abort(command_id, context));
            aborted = found.unwrap_or(false);
        });
        aborted
    }

    fn attached(
        &mut self,
        queue: ConnectionId,
        owner: ConnectionId,
        result: Result<Box<QueueGrant>, ConnectError>,
    ) {
        let mut result = Some(result);
        let found = self.with_id(queue, |connection, core| {
            if let Some(result) = result.take() {
                connection.handle_attached(owner, result, core);
            }
        });
        if let (false, Some(result)) = (found, result) {
            connect::release_grant(owner, result, &self.core);
        }
    }

    fn power_computed(&mut self, connection: ConnectionId, done: WorkDone) {
        self.with_id(connection, |connection, core| connection.handle_power(done, core));
    }

    fn protected(&mut self, owner: ConnectionId, command_id: u16, status: Status) {
        self.with_admin(owner, |admin, context| {
            admin.handle_protected(command_id, status, context);
        });
    }

    fn tell_controller(&mut self, owner: ConnectionId, event: ControllerEvent) {
        self.with_admin(owner, |admin, context| admin.handle_event(event, context));
    }

    fn with_admin(
        &mut self,
        owner: ConnectionId,
        action: impl FnOnce(&mut Admin, &mut Context<'_>),
    ) {
        self.with_id(owner, |connection, core| {
            connection.with_admin(core, action);
            connection.reap(core);
        });
    }

    fn take_over(&mut self, moved: MovedConnection) {
        let MovedConnection { detached, request, endpoints } = moved;
        let id = self.connections.reserve(self.core.id);
        let tag = transport_tag(id);
        match TargetConnection::attach(&mut self.core.reactor, CONNECTIONS, tag, detached) {
            Ok(transport) => {
                let mut connection = Connection::new(id, endpoints, transport, true);
                connection.begin_connecting(Slot(0), request);
                connection.proceed(&mut self.core);
                self.add(connection);
            }
            Err(error) => {
                log::warn!("{}: the connection cannot be taken over: {error}", endpoints.peer);
                self.connections.free(id);
                self.core.directory.unplace_queue(self.core.id);
                self.core.directory.connection_gone();
            }
        }
    }

    fn attach(
        &mut self,
        owner: ConnectionId,
        queue: ConnectionId,
        has_tls: bool,
        request: &ConnectRequest,
    ) {
        let mut refused = Some(ConnectError::unknown_controller());
        self.with_id(owner, |connection, core| {
            if !connection.admits_queue(has_tls) {
                let status = Status::CONNECT_INVALID_HOST.with_dnr();
                refused = Some(ConnectError::status(status));
            } else if let Role::Admin(admin) = &mut connection.role {
                admin.attach(queue, request, core);
                refused = None;
            }
        });
        if let Some(error) = refused {
            let result = Err(error);
            self.core.post(queue, Message::Attached { queue, owner, result });
        }
    }

    fn drain(&mut self, round: Arc<Round>) {
        self.core.is_stopping = true;
        self.waiting_for_idle.push((round, Io::is_busy));
        self.listeners.close(&mut self.core);
    }

    fn stop(&mut self) {
        self.stopping = true;
        self.listeners.close(&mut self.core);
        for index in self.connections.indices() {
            self.with(index, |connection, core| {
                connection.close(CloseReason::Requested("the target stops"), core);
            });
        }
        // The wait for commands is over: requests that wait in a device fail, those that it
        // executes are finished.
        self.core.devices.end(&mut self.core.reactor);
    }
}
