//! A poll group: one thread's share of the target.
//!
//! A turn takes the reactor's completions, has each connection handle its events, polls the devices
//! for completed requests, and flushes the responses once for each connection. Groups share only
//! messages, the directory (not on the data path) and the devices' own shared state.

mod accept;
mod admin;
mod admission;
mod authenticate;
mod budget;
mod connect;
mod connection;
mod connections;
mod core;
mod devices;
mod doubt;
mod express;
mod io;
mod listen;
mod message;
mod meter;
mod pieces;
mod publish;
mod reserved;
mod shares;
mod targets;
mod tenants;
mod throttle;
mod tracer;
mod unconnected;
mod window;

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

pub(crate) use self::message::{ConnectionId, Endpoints, Message, Prepared};
pub use self::targets::{LatencyState, LatencyTarget};

use self::admin::Admin;
use self::admission::{Admission, Outcome};
use self::connection::{Connection, Placement, Role, transport_tag};
use self::connections::Connections;
use self::core::{
    AUTHENTICATION_TIMERS, CONNECTIONS, CONTROLLERS, Core, DEVICES, DOUBT_TIMER, DRAIN_TIMERS,
    KEY_TIMER, LISTENERS, RATE_TIMER, REGISTRATION_TIMERS, STALL_TIMER, TRACE_TIMER,
};
use self::devices::Devices;
use self::doubt::Doubt;
use self::express::Express;
use self::io::{Hold, Io};
use self::listen::Listeners;
use self::message::MovedConnection;
use self::shares::Shares;
use self::targets::LatencyTargets;
use self::throttle::{Throttle, Turn};
use crate::TargetError;
use crate::directory::Directory;
use crate::lines::Lines;
use crate::round::Round;
use crate::snapshot::Needs;
use crate::statistics::CounterWriter;

/// What a round waits for.
type IsBusy = fn(&Io) -> bool;

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
    /// Connections to poll, in this order, and how many of them were polled in this turn.
    active: Vec<usize>,
    seen: usize,
    /// Connections with more events than the last turn could take: they go behind new ones, but
    /// only once.
    postponed: Vec<usize>,
    /// Controllers that have to learn of the present snapshot, unless they have meanwhile.
    outdated: VecDeque<ConnectionId>,
    /// Rounds that wait until no I/O queue is busy.
    draining: Vec<(Arc<Round>, IsBusy)>,
    /// Hosts that connect anew, whose connections here have to show that they are alive.
    doubts: Vec<Doubt>,
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
        let admission = Admission::new(reactor.pool().clone());
        let shares = Shares::new(snapshot.has_weights());
        let express = Express::new(snapshot.express, &snapshot.qos_rules);
        let (begun, now) = (admission.spent(), reactor.now());
        let targets = LatencyTargets::new(&snapshot.qos_rules, begun, reactor.idle_time(), now);
        Self {
            core: Core {
                id,
                reactor,
                posts,
                directory,
                snapshot,
                devices: Devices::new(CounterWriter::new(group_counters)),
                admission,
                throttle: Throttle::new(id),
                copies: VecDeque::new(),
                tracer: None,
                express,
                targets,
                shares,
                stale_checks: 0,
                stranger_lines: Lines::default(),
                fault_lines: Lines::default(),
                host_lines: Lines::default(),
                draining: false,
            },
            connections: Connections::default(),
            listeners: Listeners::default(),
            mailbox,
            completions: Vec::new(),
            express_completions: Vec::new(),
            deferred: Vec::new(),
            set_aside: VecDeque::new(),
            active: Vec::new(),
            seen: 0,
            postponed: Vec::new(),
            outdated: VecDeque::new(),
            draining: Vec::new(),
            doubts: Vec::new(),
            settling: Vec::new(),
            stall_timer_set: false,
            stopping: false,
            failed: false,
        }
    }

    /// Opens what a reload needs. If it fails, nothing stays open.
    pub(crate) fn prepare(&mut self, needs: &Needs) -> Prepared {
        let core = &mut self.core;
        let devices = core.devices.prepare(&needs.devices, &mut core.reactor);
        devices.map_err(|error| TargetError::new(error.to_string()))?;
        let Some(ports) = needs.ports.as_ref().filter(|_| core.id == 0 && !core.draining) else {
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

    /// One turn. `false`: the target has stopped.
    pub(crate) fn turn(&mut self, patience: WaitLimit) -> bool {
        // Work that is left from the last turn does not wait.
        let patience = if self.has_left() { WaitLimit::NoWait } else { patience };
        let mut completions = std::mem::take(&mut self.completions);
        completions.append(&mut self.deferred);
        self.core.reactor.poll(patience, &mut completions);
        self.core.devices.counters().set_busy(self.core.reactor.idle_time());
        self.begin_shares_turn();
        self.begin_express_turn(&mut completions);
        for completion in completions.drain(..) {
            self.dispatch(completion);
            self.serve_express();
        }
        self.end_receive();
        self.completions = completions;
        while let Some(message) = self.mailbox.take() {
            self.handle_message(message);
        }
        if self.failed {
            return false;
        }
        self.active.append(&mut self.postponed);
        self.core.admission.begin_turn();
        self.begin_pieces();
        self.continue_copies();
        self.update_controllers();
        self.serve_throttled();
        loop {
            self.poll_connections();
            self.serve_waiting();
            self.core.devices.flush(&mut self.core.reactor);
            // Requests that a flush has completed at once would wait for the device's next event.
            if !self.finish_requests() || !self.has_more() {
                break;
            }
        }
        self.core.devices.end_turn(&mut self.core.reactor);
        self.finish_turn();
        self.end_shares_turn();
        self.core.end_targets_turn();
        self.set_stall_timer();
        self.core.throttle.set_timer(&mut self.core.reactor);
        let (counters, now) = (self.core.devices.counters(), self.core.reactor.turn_time());
        counters.set_idle(self.connections.len(), now);
        counters.set_pool(self.core.reactor.pool());
        self.check_drained();
        !(self.stopping && self.connections.len() == 0 && !self.core.devices.is_flushing_removed())
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
                if self.core.express.queues() > 0 {
                    self.count_refused(index);
                }
            }
            owner if owner.0 >= DEVICES => {
                self.core.devices.handle(completion, &mut self.core.reactor);
            }
            LISTENERS => self.handle_listener(completion),
            STALL_TIMER => self.end_stalled_connection(),
            RATE_TIMER => self.core.throttle.timer_arrived(),
            TRACE_TIMER => self.end_trace(),
            DOUBT_TIMER => self.check_doubts(),
            KEY_TIMER => {
                let now = self.core.reactor.turn_time();
                self.core.snapshot.generated.expire(self.core.id, now);
            }
            REGISTRATION_TIMERS => self.core.expire_registrations(),
            CONTROLLERS => self.with(token.tag as usize, |connection, core| {
                if let Role::Admin(admin) = &mut connection.role {
                    admin.handle_timer(&mut connection.transport, core);
                }
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
        let Some(mut connection) = self.connections.take(index) else { return };
        if action(&mut connection, &mut self.core) {
            self.mark_active(&mut connection);
        }
        self.connections.put(connection);
    }

    fn mark_active(&mut self, connection: &mut Connection) {
        if !std::mem::replace(&mut connection.active, true) {
            self.active.push(connection.id.index);
        }
    }

    /// Handles events, as many as a turn may take, and the requests that are finished.
    fn poll_connections(&mut self) {
        loop {
            if self.core.shares.is_on() {
                self.poll_tenants();
            }
            while self.core.admission.may_begin()
                && let Some(index) = self.active.get(self.seen).copied()
            {
                self.seen += 1;
                self.handle_events(index);
            }
            if !self.finish_requests() {
                return;
            }
        }
    }

    fn handle_events(&mut self, index: usize) {
        while let Some(mut connection) = self.connections.take(index) {
            match connection.handle_events(&mut self.core) {
                Placement::Stay => return self.connections.put(connection),
                Placement::Interrupted => {
                    self.connections.put(connection);
                    self.take_express();
                }
                Placement::Move { group, slot, request } => {
                    return self.move_to_group(connection, group, slot, *request);
                }
            }
        }
    }

    /// Passes completed requests to their queues. Returns whether there were any.
    fn finish_requests(&mut self) -> bool {
        let mut any = false;
        let turn = self.core.reactor.turn_time();
        // Latencies end here, not when the turn began; one reading of the clock serves all.
        let is_measured = self.core.directory.io_metrics().is_some() || self.core.tracer.is_some();
        let now = if is_measured { self.core.reactor.now() } else { turn };
        while let Some(done) = self.set_aside.pop_front().or_else(|| self.core.poll_completion()) {
            any = true;
            let is_any = self.core.express.queues() > 0;
            let done = if is_any { self.finish_express(done) } else { Err(done) };
            let Err(done) = done else { continue };
            let (index, _) = devices::origin(done.tag);
            self.with(index, |connection, core| connection.handle_done(done, now, core));
            self.serve_express();
        }
        self.core.publish_lost_writes();
        any
    }

    /// Whether the last turn has left work.
    fn has_left(&self) -> bool {
        !self.active.is_empty()
            || !self.postponed.is_empty()
            || !self.deferred.is_empty()
            || !self.set_aside.is_empty()
            || self.core.shares.has_backlog()
            || self.core.admission.has_more()
            || self.core.devices.has_next_piece()
            || self.core.devices.have_next()
            || !self.core.copies.is_empty()
            || !self.outdated.is_empty()
    }

    /// Whether the requests that completed last have left work for this turn.
    fn has_more(&self) -> bool {
        self.seen < self.active.len()
            || self.core.shares.has_backlog()
            || self.core.admission.waits_since().is_some()
            || self.core.devices.are_busy()
    }

    /// Begins a piece of each Copy command whose turn it is, as many as a turn may begin.
    fn continue_copies(&mut self) {
        for _ in 0..self.core.copies.len() {
            if !self.core.admission.may_begin() {
                return;
            }
            let Some((id, slot)) = self.core.copies.pop_front() else { return };
            self.with_id(id, |connection, core| connection.continue_copy(slot, core));
            self.charge(id.index);
        }
    }

    /// Gives freed memory to the waiting connections.
    fn serve_waiting(&mut self) {
        self.core.admission.begin_tries();
        while let Some(index) = self.core.admission.next_try() {
            let mut outcome = Outcome::NotWaiting;
            self.with_if_changed(index, |connection, core| {
                outcome = connection.retry(core);
                matches!(outcome, Outcome::Served { .. })
            });
            self.core.admission.end_try(outcome, self.core.reactor.turn_time());
            self.charge(index);
            if let Outcome::Served { .. } = outcome {
                self.poll_connections();
            }
        }
    }

    /// Begins commands that have waited for a rate limit: one of each flow in turn.
    fn serve_throttled(&mut self) {
        let now = self.core.reactor.turn_time();
        let mut due = self.core.throttle.take_due(now, self.core.draining);
        while let Some(flow) = due.pop_front() {
            if !self.core.admission.may_begin() {
                self.core.throttle.wait_until(now, flow);
                continue;
            }
            let mut turn = Turn::Empty;
            if self.connections.get(flow.connection).is_some() {
                self.with_if_changed(flow.connection.index, |connection, core| {
                    turn = connection.retry_throttled(flow.flow, core);
                    matches!(turn, Turn::Begin(_))
                });
                self.charge(flow.connection.index);
            }
            match turn {
                Turn::Begin(_) => due.push_back(self.core.throttle.served(flow)),
                Turn::Wait(at) => self.core.throttle.wait_until(at, flow),
                Turn::Empty => {}
            }
        }
    }

    /// Flushes responses and removes connections that have ended. Connections that were not polled
    /// stay in the list: visiting all of a thousand in each turn would cost more than the turn.
    fn finish_turn(&mut self) {
        let seen = std::mem::take(&mut self.seen);
        for place in 0..seen {
            self.finish_connection(place);
            // The others' responses go out in slices, and express queues come between.
            self.serve_express();
            while self.core.reactor.continue_sends() {
                self.serve_express();
            }
            if let Some(index) = self.active.get(place).copied() {
                self.charge(index);
            }
        }
        self.active.drain(..seen);
    }

    /// The same for the connection at this place of the turn's list.
    fn finish_connection(&mut self, place: usize) {
        let Some(index) = self.active.get(place).copied() else { return };
        let Some(mut connection) = self.connections.take(index) else { return };
        (connection.active, connection.is_seen) = (connection.is_queued, false);
        self.core.flush(&mut connection);
        connection.settle_class(self.core.reactor.turn_time(), &mut self.core);
        if connection.is_queued {
            return self.connections.put(connection);
        }
        if connection.is_gone() {
            self.connections.free(connection.id);
            self.core.directory.connection_gone();
            return;
        }
        if connection.transport.has_events() {
            connection.active = true;
            self.postponed.push(index);
        }
        self.connections.put(connection);
    }

    /// If memory was short in this turn, schedules a check for the hosts that hold it.
    fn set_stall_timer(&mut self) {
        if self.stall_timer_set || !self.core.admission.was_short() {
            return;
        }
        self.stall_timer_set = true;
        let patience = self.core.snapshot.limits.stall_timeout;
        let at = self.core.reactor.turn_time().saturating_add(patience);
        self.core.reactor.set_timer(Token { owner: STALL_TIMER, tag: 0 }, at);
    }

    /// If memory is still short, ends the controller of the connection that holds most of it
    /// without progress: the others wait for this memory, and its other queues would take it.
    fn end_stalled_connection(&mut self) {
        self.stall_timer_set = false;
        // The others try again in this turn; if they fail there is another check.
        let waits_since = self.core.admission.waits_since();
        if !self.core.admission.was_short() && waits_since.is_none() {
            return;
        }
        let (now, patience) =
            (self.core.reactor.turn_time(), self.core.snapshot.limits.stall_timeout);
        let Some(index) =
            self.connections.largest(|one| one.transport.stalled_bytes(now, patience))
        else {
            return;
        };
        let waited = now.saturating_sub(waits_since.unwrap_or(now));
        self.with(index, |connection, core| {
            let peer = connection.endpoints.peer;
            log::warn!(
                "{peer}: it holds memory without moving, for which others have waited {waited:?}"
            );
            let reason = CloseReason::Requested("it held memory that others waited for");
            connection.abort_controller(reason, core);
        });
    }

    fn handle_message(&mut self, message: Message) {
        match message {
            Message::TakeOver(moved) => self.take_over(*moved),
            Message::Incoming { incoming, port_id } => self.accept_incoming(*incoming, port_id),
            Message::Attach { owner, queue, has_tls, request } => {
                self.attach(owner, (queue, has_tls), &request);
            }
            Message::Attached { queue, owner, result } => self.attached(queue, owner, result),
            Message::PowerComputed { connection, done } => self.power_computed(connection, *done),
            Message::EndQueue { queue, reason } => {
                self.with_id(queue, |connection, core| connection.end(reason, core));
            }
            Message::QueueEnded { owner, queue_id } => {
                self.with_admin(owner, |admin, transport, core| {
                    admin.queue_ended(queue_id, transport, core);
                });
            }
            Message::StaleCheck { host, round } => self.stale_check(host, round),
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
            Message::Protected { owner, command_id, status } => {
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
            Message::Idle { round } => self.draining.push((round, Io::is_busy)),
            Message::DevicesIdle { round } => self.draining.push((round, Io::has_begun)),
            Message::Drain { round } => self.drain(round),
            Message::Stop => self.stop(),
            Message::Fail => self.failed = true,
        }
    }

    fn abort_command(&mut self, queue: ConnectionId, command_id: u16) -> bool {
        let mut aborted = false;
        self.with_id(queue, |connection, core| {
            aborted = connection.abort_command(command_id, core);
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
        self.with_admin(owner, |admin, transport, core| {
            admin.handle_protected(command_id, status, transport, core);
        });
    }

    fn tell_controller(&mut self, owner: ConnectionId, event: ControllerEvent) {
        self.with_admin(owner, |admin, transport, core| {
            admin.handle_event(event, transport, core);
        });
    }

    fn with_admin(
        &mut self,
        owner: ConnectionId,
        action: impl FnOnce(&mut Admin, &mut TargetConnection, &mut Core),
    ) {
        self.with_id(owner, |connection, core| {
            if let Role::Admin(admin) = &mut connection.role {
                action(admin, &mut connection.transport, core);
            }
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
        (queue, has_tls): (ConnectionId, bool),
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
        self.core.draining = true;
        self.draining.push((round, Io::is_busy));
        self.listeners.close(&mut self.core);
    }

    fn check_drained(&mut self) {
        let (connections, core) = (&self.connections, &self.core);
        self.draining.retain(|(round, is_busy)| {
            let waits = connections.any(|connection| match &connection.role {
                Role::Io(io) => is_busy(io),
                _ => false,
            });
            if !waits {
                core.acknowledge(round);
            }
            waits
        });
        self.settling.retain(|(round, hold)| {
            let waits = Arc::strong_count(hold) > 1;
            if !waits {
                core.acknowledge(round);
            }
            waits
        });
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
