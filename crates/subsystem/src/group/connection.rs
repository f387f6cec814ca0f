//! One connection of a host and its roles: without a Connect, waiting for its Connect's answer, an
//! admin queue or an I/O queue (also while devices have its last commands), and closed.

use std::sync::Arc;
use std::time::Duration;

use weft_backend::RequestCompletion;
use weft_nvme::Status;
use weft_nvmf::connect::{ConnectError, ConnectRequest};
use weft_nvmf::controller::EndReason;
use weft_reactor::{Buffer, Life};
use weft_transport::target::{Event, TargetConnection};
use weft_transport::{CloseReason, Slot};

use super::admin::{Admin, end_reason};
use super::arrivals::Arrivals;
use super::authenticate::Guard;
use super::core::{Context, Core};
use super::devices;
use super::io::Io;
use super::owners::{DRAIN_TIMERS, timer};
use super::schedule::{MemoryTry, Shares, TenantId};
use crate::shared::ids::{ConnectionId, HostKey};
use crate::shared::limits::{THROTTLED_SHARE, TLS_WARNINGS};
use crate::shared::message::{Endpoints, MovedConnection};

/// A queue without commands from which something has come within this time is not in doubt: the
/// kernel asks a peer after a silence of a second, so that one that has been silent for longer is
/// asked at once, and another path of a live host costs no time.
const SILENCE: Duration = Duration::from_secs(1);

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) endpoints: Endpoints,
    pub(crate) transport: TargetConnection,
    pub(crate) role: Role,
    /// Its host has to authenticate itself, or has done so.
    pub(super) guard: Option<Box<Guard>>,
    /// It came to a port that requires TLS, and its handshake is not over.
    pub(super) is_pending: bool,
    /// A key of TLS that an authentication has made belongs to it.
    pub(super) holds_key: bool,
    /// An admin queue's: its Host Identifier belongs to its host.
    pub(super) host_id_claim: Option<Arc<str>>,
    pub(super) turn: TurnState,
    /// When the events have come that its transport has, if commands are measured.
    pub(super) arrivals: Arrivals,
    /// It counts as one of this group's queues.
    pub(crate) placed: bool,
    /// Bytes of its copied responses when they were last counted.
    pub(crate) copied: usize,
    /// It counts as a draining queue of its host until its end has been handled.
    pub(crate) drain_begun: bool,
}

/// The role of a connection.
#[derive(Debug)]
pub(crate) enum Role {
    /// No Connect has been accepted: only Connect is handled.
    Unconnected {
        /// The data of a Connect is being transferred.
        fetching: bool,
    },
    /// Its Connect waits for an answer.
    Connecting(Box<PendingConnect>),
    /// An admin queue, with the controller it belongs to.
    Admin(Box<Admin>),
    /// An I/O queue.
    Io(Box<Io>),
    /// Closed, with nothing outstanding.
    Gone,
}

/// Where a connection is in the turns of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnState {
    /// It has nothing to do.
    Idle,
    /// It may have events, which are looked at in this turn or the next one.
    Arrived,
    /// It waits for its tenant's turn.
    Queued,
    /// It was polled in this turn, at whose end its responses are sent.
    Polled,
    /// It was polled in this turn, and waits for its tenant's turn again.
    Requeued,
}

/// A Connect that waits: for the check for stale connections, for its host's drain, or for the
/// owner of the controller.
#[derive(Debug)]
pub(crate) struct PendingConnect {
    pub(crate) slot: Slot,
    pub(crate) request: ConnectRequest,
    pub(crate) stale_check: StaleCheck,
}

/// The state of the check for stale connections of an admin queue's host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StaleCheck {
    /// Not yet.
    Needed,
    /// All groups were asked; this is the number of the check.
    Pending(u64),
    /// They have answered.
    Done,
}

/// What happens to a connection after it was polled.
#[derive(Debug)]
pub(crate) enum Placement {
    /// It stays.
    Stay,
    /// It stays and has more events, but an express queue comes first.
    Interrupted,
    /// It moves to another group.
    Move { group: usize, slot: Slot, request: Box<ConnectRequest> },
}

impl Connection {
    /// A connection without a Connect; `placed`: it counts as one of this group's queues.
    pub(crate) fn new(
        id: ConnectionId,
        endpoints: Endpoints,
        transport: TargetConnection,
        placed: bool,
    ) -> Self {
        let role = Role::Unconnected { fetching: false };
        Self {
            id,
            endpoints,
            transport,
            role,
            guard: None,
            is_pending: false,
            holds_key: false,
            turn: TurnState::Idle,
            arrivals: Arrivals::default(),
            placed,
            host_id_claim: None,
            copied: 0,
            drain_begun: false,
        }
    }

    /// Its Connect waits for an answer from now on.
    pub(crate) fn begin_connecting(&mut self, slot: Slot, request: ConnectRequest) {
        let stale_check = StaleCheck::Needed;
        self.role = Role::Connecting(Box::new(PendingConnect { slot, request, stale_check }));
    }

    /// Has the device prefetch for the command that a completion brings, before it is processed.
    fn prefetch_hint(&self, completion: &weft_reactor::ReactorCompletion, core: &mut Core) {
        if let Role::Io(io) = &self.role
            && let Some(command) = self.transport.peek_command(completion)
        {
            io.prefetch_hint(command, core);
        }
    }

    /// Handles a completion for the connection.
    pub(crate) fn handle(&mut self, completion: weft_reactor::ReactorCompletion, core: &mut Core) {
        self.prefetch_hint(&completion, core);
        self.transport.handle(&mut core.reactor, completion);
        self.note_arrivals(core);
        if self.transport.wanted().is_some() {
            let host = if let Role::Io(io) = &self.role { io.host_hash() } else { 0 };
            core.schedule.memory.wait(self.id.index, host, core.reactor.turn_time());
        }
    }

    /// Events may have come. They may wait for several turns.
    fn note_arrivals(&mut self, core: &Core) {
        if core.is_measured() {
            self.arrivals.note(self.transport.events(), core.time());
        }
    }

    /// Retries the command that has waited longest for memory.
    pub(crate) fn retry(&mut self, core: &mut Core) -> MemoryTry {
        let of_commands = self.with_io(core, Io::retry).unwrap_or(MemoryTry::NotWaiting);
        match (of_commands, self.transport.wanted()) {
            (MemoryTry::Served { has_more }, wanted) => {
                MemoryTry::Served { has_more: has_more || wanted.is_some() }
            }
            (MemoryTry::NotWaiting, Some(bytes)) => {
                let Some(buffer) = core.schedule.memory.grant(bytes) else {
                    return MemoryTry::Refused;
                };
                self.transport.provide(&mut core.reactor, buffer);
                self.note_arrivals(core);
                MemoryTry::Served { has_more: self.transport.wanted().is_some() }
            }
            (outcome, _) => outcome,
        }
    }

    /// Other rate limits may apply to its queue: writes that wait for one keep the data that came
    /// in their capsules, and must not take all memory.
    pub(crate) fn bound_capsules(&mut self, core: &Core) {
        let Role::Io(io) = &self.role else { return };
        let leave = core.reactor.pool().capacity() / THROTTLED_SHARE;
        self.transport.bound_capsules(io.is_limited(core).then_some(leave));
    }

    /// Runs an action on the I/O queue that it is; none: it is none.
    pub(super) fn with_io<R>(
        &mut self,
        core: &mut Core,
        action: impl FnOnce(&mut Io, &mut Context<'_>) -> R,
    ) -> Option<R> {
        match &mut self.role {
            Role::Io(io) => Some(action(io, &mut Context { transport: &mut self.transport, core })),
            _ => None,
        }
    }

    /// The same with the admin queue that it is.
    pub(super) fn with_admin<R>(
        &mut self,
        core: &mut Core,
        action: impl FnOnce(&mut Admin, &mut Context<'_>) -> R,
    ) -> Option<R> {
        match &mut self.role {
            Role::Admin(admin) => {
                Some(action(admin, &mut Context { transport: &mut self.transport, core }))
            }
            _ => None,
        }
    }

    /// Handles its events, as many as a turn may take.
    pub(crate) fn handle_events(&mut self, core: &mut Core) -> Placement {
        if let Role::Admin(admin) = &mut self.role
            && admin.is_outdated()
        {
            admin.update(&mut Context { transport: &mut self.transport, core });
        }
        while core.schedule.allowance.may_begin()
            && let Some(event) = self.transport.poll_event()
        {
            let arrived = self.arrivals.take().unwrap_or_else(|| core.time());
            if let Event::Closed { reason } = event {
                self.handle_closed(reason, core);
                return Placement::Stay;
            }
            let event = match self.guard {
                None => event,
                Some(_) => match self.guard(event, core) {
                    Some(event) => event,
                    None => continue,
                },
            };
            match &mut self.role {
                Role::Unconnected { .. } => {
                    let placement = self.handle_unconnected(event, core);
                    if matches!(placement, Placement::Move { .. }) {
                        return placement;
                    }
                }
                Role::Admin(admin) => {
                    admin.handle(event, &mut Context { transport: &mut self.transport, core });
                }
                Role::Io(io) => {
                    let context = &mut Context { transport: &mut self.transport, core };
                    io.handle(event, arrived, context);
                }
                // A host that sends commands before its Connect is answered breaks the protocol.
                Role::Connecting(_) => {
                    self.close(
                        CloseReason::Requested("commands came before Connect's answer"),
                        core,
                    );
                }
                Role::Gone => {}
            }
            self.continue_copy(core);
            if core.is_express_due() && !self.is_express() {
                return Placement::Interrupted;
            }
        }
        while core.schedule.allowance.may_begin() && self.continue_copy(core) {
            if core.is_express_due() && !self.is_express() {
                return Placement::Interrupted;
            }
        }
        Placement::Stay
    }

    /// Begins the next piece of a Copy command. Whether there was one.
    fn continue_copy(&mut self, core: &mut Core) -> bool {
        self.with_io(core, |io, context| io.continue_copy(context)).unwrap_or(false)
    }

    /// A device has completed a request of it.
    pub(crate) fn handle_done(&mut self, done: RequestCompletion, now: Duration, core: &mut Core) {
        let (_, slot) = devices::origin(done.tag);
        let context = &mut Context { transport: &mut self.transport, core };
        match &mut self.role {
            Role::Io(io) => io.handle_done(slot, done, now, context),
            Role::Admin(admin) => admin.handle_flushed(slot, done.result, context),
            _ => {}
        }
        self.reap(core);
    }

    /// Sends its responses.
    pub(crate) fn flush(&mut self, core: &mut Core) {
        self.transport.flush(&mut core.reactor);
        if let (Some(tracer), Role::Io(io)) = (&mut core.tracer, &mut self.role) {
            io.trace_sent(core.reactor.now(), tracer);
        }
        let copied = self.transport.copied_bytes();
        let before = std::mem::replace(&mut self.copied, copied);
        core.schedule.memory.recount_copied(before, copied);
    }

    /// It may have events, which are polled in this turn or the next one.
    pub(crate) fn mark_active(&mut self, core: &mut Core) {
        if self.turn == TurnState::Idle {
            self.turn = TurnState::Arrived;
            core.schedule.arrived(self.id.index);
        }
    }

    /// Whether it is an express queue.
    pub(crate) fn is_express(&self) -> bool {
        matches!(&self.role, Role::Io(io) if io.class.is_express())
    }

    /// Whose share its commands are part of, if that is known.
    pub(super) fn tenant(&self, shares: &Shares) -> Option<TenantId> {
        match &self.role {
            Role::Io(io) => io.tenant(shares),
            _ => None,
        }
    }

    /// The same of a connection that has work.
    pub(super) fn tenant_with_work(&mut self, core: &mut Core) -> Option<TenantId> {
        match &mut self.role {
            Role::Io(io)
                if self.transport.has_events()
                    || io.has_copies()
                    || core.schedule.shares.is_divided()
                        && core.devices.pieces().has_next_of(self.id.index) =>
            {
                io.enter_tenant(core)
            }
            _ => None,
        }
    }

    /// Other rules of classes are in force.
    pub(crate) fn regrant(&mut self, core: &mut Core) {
        if let Role::Io(io) = &mut self.role {
            io.regrant(core);
            self.settle_class(core.reactor.turn_time(), core);
        }
    }

    /// Requests of an I/O queue that devices have.
    pub(super) fn requests(&self) -> usize {
        if let Role::Io(io) = &self.role { io.requests() } else { 0 }
    }

    /// Whether it has commands, or pieces of Copy commands, that could begin now.
    pub(super) fn has_work(&self) -> bool {
        let copies = matches!(&self.role, Role::Io(io) if io.has_copies());
        copies || self.transport.has_events()
    }

    /// Makes it an express queue, or one like the others, if it is to be that now.
    #[inline]
    pub(crate) fn settle_class(&mut self, now: Duration, core: &mut Core) {
        if let Role::Io(io) = &mut self.role
            && io.class.is_to_change(&mut core.schedule.express, now)
        {
            let is_express = !io.class.is_express();
            let changed = self.transport.set_express(&mut core.reactor, is_express);
            io.class.changed(&mut core.schedule.express, changed.is_ok(), now);
        }
    }

    /// Closes the connection gracefully. What no device has of it ends now.
    pub(crate) fn close(&mut self, reason: CloseReason, core: &mut Core) {
        self.transport.close(&mut core.reactor, reason);
        self.stop(core);
    }

    /// Closes it at once.
    pub(crate) fn abort(&mut self, reason: CloseReason, core: &mut Core) {
        self.transport.abort(&mut core.reactor, reason);
        self.stop(core);
    }

    /// The same, with the controller whose queue it is.
    pub(crate) fn abort_controller(&mut self, reason: CloseReason, core: &mut Core) {
        if let Role::Io(io) = &self.role {
            io.end_controller(core);
        }
        self.abort(reason, core);
    }

    fn stop(&mut self, core: &mut Core) {
        if let Role::Io(io) = &mut self.role {
            io.stop(core);
        }
    }

    /// Ends an I/O queue on behalf of its controller.
    pub(crate) fn end(&mut self, reason: EndReason, core: &mut Core) {
        self.close(CloseReason::Requested(end_reason(reason)), core);
    }

    /// Ends a queue of this host whose connection the host has closed, or that is about to end for
    /// another reason. It counts as draining until its end has been handled. Returns whether there
    /// was one.
    pub(crate) fn end_if_stale(&mut self, host: &HostKey, core: &mut Core) -> bool {
        let is_open = match &self.role {
            Role::Admin(admin) => !admin.is_closed() && admin.host() == host,
            Role::Io(io) => !io.is_closed() && io.host() == host,
            _ => false,
        };
        if !is_open || self.drain_begun || !self.transport.is_ending(&core.reactor) {
            return false;
        }
        self.drain_begun = true;
        core.directory.begin_drain(host);
        self.close(CloseReason::PeerClosed, core);
        true
    }

    /// What is known of the life of this host since then, if it is a queue of it. What its next
    /// association must not meet is a command here, or one that is still to come from a process
    /// that has ended: so a queue without commands is asked as well, if nothing has come for a
    /// while.
    pub(crate) fn life_of(&self, host: &HostKey, since: Duration, core: &Core) -> Option<Life> {
        let (is_its, has_commands) = match &self.role {
            // It always has commands, which wait for events.
            Role::Admin(admin) => (!admin.is_closed() && admin.host() == host, false),
            Role::Io(io) => {
                let has_commands = self.transport.in_flight() > 0;
                (!io.is_closed() && io.host() == host, has_commands)
            }
            _ => return None,
        };
        let is_idle = !has_commands && self.transport.wanted().is_none();
        let since = if is_idle { since.saturating_sub(SILENCE) } else { since };
        (is_its && !self.drain_begun).then(|| self.transport.life_since(&core.reactor, since))
    }

    /// Ends a queue of a host that has not shown that it is alive. What no device has of it is
    /// never executed; it counts as draining until its end has been handled.
    pub(crate) fn end_doubted(&mut self, host: &HostKey, core: &mut Core) {
        let (peer, (name, subsystem)) = (self.endpoints.peer, host.names());
        let queue = if matches!(self.role, Role::Io(_)) { "I/O queue" } else { "admin queue" };
        log::info!(
            "{peer}: {name} connects anew to {subsystem}, and this {queue} of it does not answer: \
             it ends"
        );
        self.drain_begun = true;
        core.directory.begin_drain(host);
        let reason = CloseReason::Requested("the host connected anew and did not answer here");
        self.abort(reason, core);
    }

    /// The subsystem whose queue it is, once its Connect was accepted.
    pub(crate) fn subsystem(&self) -> Option<&str> {
        match &self.role {
            Role::Admin(admin) => Some(admin.host().subsystem()),
            Role::Io(io) => Some(io.host().subsystem()),
            _ => None,
        }
    }

    /// Whether no Connect has been accepted, so that it may be evicted.
    pub(crate) fn is_unconnected(&self) -> bool {
        matches!(self.role, Role::Unconnected { .. })
    }

    /// Whether no Connect has been accepted, or none will be if its Connect is refused.
    pub(crate) fn may_be_unconnected(&self) -> bool {
        matches!(self.role, Role::Unconnected { .. } | Role::Connecting(_))
    }

    /// Whether it has ended completely, so that its index can be used again.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.role, Role::Gone)
    }

    fn handle_closed(&mut self, reason: CloseReason, core: &mut Core) {
        self.end_handshake(core);
        self.report(&reason, core);
        self.drop_guard(core);
        if std::mem::take(&mut self.holds_key) {
            core.snapshot.generated.release(self.id);
        }
        let held = std::mem::take(&mut self.drain_begun);
        let host = match &mut self.role {
            Role::Admin(admin) => {
                admin.handle_closed(reason, &mut Context { transport: &mut self.transport, core });
                Some(admin.host().clone())
            }
            Role::Io(io) => {
                io.handle_closed(core);
                // It is no tenant's any more.
                match self.turn {
                    TurnState::Queued => {
                        self.turn = TurnState::Arrived;
                        core.schedule.arrived(self.id.index);
                    }
                    TurnState::Requeued => self.turn = TurnState::Polled,
                    TurnState::Idle | TurnState::Arrived | TurnState::Polled => {}
                }
                Some(io.host().clone())
            }
            Role::Unconnected { .. } | Role::Connecting(_) => {
                self.cancel_drain_wait(core);
                core.reactor.clear_timer(timer(DRAIN_TIMERS, self.id));
                self.role = Role::Gone;
                None
            }
            Role::Gone => None,
        };
        if let (true, Some(host)) = (held, host) {
            core.end_drain(&host);
        }
        self.reap(core);
    }

    /// One line for each connection that ends; a warning only if the peer is at fault.
    fn report(&self, reason: &CloseReason, core: &mut Core) {
        let what = match self.role {
            Role::Unconnected { .. } | Role::Connecting(_) => "connection",
            Role::Admin(_) => "admin queue",
            Role::Io(_) | Role::Gone => "I/O queue",
        };
        let peer = self.endpoints.peer;
        match reason {
            CloseReason::Tls(_) if self.may_be_unconnected() => {
                let what = format_args!("{peer}: {what} ended: {reason}");
                core.count_failed_authentication(what, TLS_WARNINGS);
            }
            CloseReason::Protocol(_)
            | CloseReason::Violation(_)
            | CloseReason::PeerTerminated { .. }
            | CloseReason::Tls(_) => {
                core.say_fault(log::Level::Warn, format_args!("{peer}: {what} ended: {reason}"));
            }
            CloseReason::HandshakeTimeout => {
                core.say_fault(log::Level::Info, format_args!("{peer}: {what} ended: {reason}"));
            }
            _ => log::debug!("{peer}: {what} ended: {reason}"),
        }
    }

    /// Its TLS handshake is over, or it is.
    pub(super) fn end_handshake(&mut self, core: &Core) {
        if std::mem::take(&mut self.is_pending) {
            let address = self.endpoints.peer.ip();
            core.directory.handshakes(|handshakes| handshakes.remove(address));
        }
    }

    /// Becomes closed once nothing is outstanding.
    pub(crate) fn reap(&mut self, core: &mut Core) {
        let finished = match &self.role {
            Role::Admin(admin) => admin.is_finished(),
            Role::Io(io) => io.is_finished(),
            Role::Gone => true,
            Role::Unconnected { .. } | Role::Connecting(_) => false,
        };
        if !finished {
            return;
        }
        core.directory.queue_gone(self.id);
        match std::mem::replace(&mut self.role, Role::Gone) {
            Role::Admin(admin) => admin.release(self.endpoints.peer.ip(), core),
            Role::Io(io) => io.release(core),
            _ => {}
        }
        if std::mem::take(&mut self.placed) {
            core.directory.unplace_queue(core.id);
        }
    }

    fn handle_unconnected(&mut self, event: Event, core: &mut Core) -> Placement {
        self.end_handshake(core);
        match event {
            Event::Command { slot, data } => {
                let Some(command) = self.transport.command(slot).copied() else {
                    return Placement::Stay;
                };
                match data.into_result() {
                    Ok(Some(data)) => self.connect(slot, command, &data, core),
                    Ok(None) => self.fetch_connect(slot, command, core),
                    Err(status) => {
                        self.refuse(slot, &command, ConnectError::status(status));
                        Placement::Stay
                    }
                }
            }
            Event::Data { slot, buffer, result } => {
                self.fetched_connect(slot, buffer, result, core)
            }
            Event::Closed { .. } => Placement::Stay,
        }
    }

    fn fetched_connect(
        &mut self,
        slot: Slot,
        buffer: Buffer,
        result: Result<(), weft_transport::DataDigestError>,
        core: &mut Core,
    ) -> Placement {
        let Role::Unconnected { fetching } = &mut self.role else { return Placement::Stay };
        *fetching = false;
        let Some(command) = self.transport.command(slot).copied() else { return Placement::Stay };
        match result {
            Ok(()) => self.connect(slot, command, &buffer, core),
            Err(_) => {
                let status = Status::TRANSIENT_TRANSPORT_ERROR;
                self.refuse(slot, &command, ConnectError::status(status));
                Placement::Stay
            }
        }
    }
}

impl MovedConnection {
    /// Detaches a connection to move it; returns it if it cannot move.
    pub(crate) fn detach(
        mut connection: Connection,
        request: &ConnectRequest,
        core: &mut Core,
    ) -> Result<Self, Box<Connection>> {
        match connection.transport.detach(&mut core.reactor) {
            Ok(detached) => {
                let endpoints = connection.endpoints;
                Ok(Self { detached, request: request.clone(), endpoints })
            }
            Err(transport) => {
                connection.transport = transport;
                Err(Box::new(connection))
            }
        }
    }
}
