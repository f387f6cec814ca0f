//! A turn of a group: receive, schedule, execute, complete, send.

use std::sync::Arc;

use weft_reactor::{Outcome as Received, ReactorCompletion, Token, WaitLimit};
use weft_transport::CloseReason;

use super::connection::{Placement, Role, TurnState};
use super::owners::STALL_TIMER;
use super::schedule::{
    LimitAnswer, MemoryTry, PIECE_TURN_BYTES, TenantId, Visit, WaitingFlow, Work,
};
use super::{Group, devices};

impl Group {
    /// One turn. `false`: the target has stopped.
    pub(crate) fn turn(&mut self, patience: WaitLimit) -> bool {
        self.receive(patience);
        if self.failed {
            return false;
        }
        let (now, is_stopping) = (self.core.reactor.turn_time(), self.core.is_stopping);
        self.core.schedule.begin_turn(now, is_stopping);
        self.queue_pieces();
        self.update_controllers();
        loop {
            while let Some(work) = self.core.next_work() {
                self.execute(work);
            }
            self.core.devices.flush(&mut self.core.reactor);
            // Requests that a flush has completed at once would wait for the device's next event.
            if !self.complete() || !self.has_more() {
                break;
            }
            self.core.schedule.memory.begin_tries();
        }
        self.core.devices.end_turn(&mut self.core.reactor);
        self.send();
        self.end_turn();
        !(self.stopping && self.connections.len() == 0 && !self.core.devices.is_flushing_removed())
    }

    /// Takes what has come, that of express queues first, which is served at once.
    fn receive(&mut self, patience: WaitLimit) {
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
    }

    /// Does what the schedule says.
    fn execute(&mut self, work: Work) {
        match work {
            Work::Piece => self.begin_piece(),
            Work::Limited(flow) => self.ask_limit(flow),
            Work::Connection(index) => self.queue(index),
            Work::Visit(visit) => self.visit(visit),
            Work::Memory(index) => self.ask_memory(index),
        }
    }

    /// Begins a piece of a large request without data; express queues come between two of them.
    fn begin_piece(&mut self) {
        let Some(tag) = self.core.devices.begin_piece(None, &mut self.core.reactor) else { return };
        self.complete();
        self.serve_express();
        self.charge(devices::origin(tag).0);
    }

    /// Where tenants share the group's time, connections wait for their tenants' turns with their
    /// pieces as with commands.
    fn queue_pieces(&mut self) {
        let is_divided = self.core.schedule.shares.is_divided();
        self.core.devices.set_divided(is_divided);
        if !is_divided || !self.core.devices.pieces().has_next() {
            return;
        }
        for index in self.core.devices.pieces().connections() {
            if let Some(mut connection) = self.connections.take(index) {
                connection.mark_active(&mut self.core);
                self.connections.put(connection);
            }
        }
    }

    /// Begins a piece of a request of a connection, if there is one.
    fn begin_piece_of(&mut self, index: usize) {
        if self.core.devices.begin_piece(Some(index), &mut self.core.reactor).is_some() {
            self.core.schedule.allowance.spend(PIECE_TURN_BYTES);
            self.serve_express();
        }
    }

    /// The first command of a flow that has waited for a rate limit asks again.
    fn ask_limit(&mut self, flow: WaitingFlow) {
        let mut answer = LimitAnswer::Empty;
        if self.connections.get(flow.connection).is_some() {
            self.with_if_changed(flow.connection.index, |connection, core| {
                let asked =
                    connection.with_io(core, |io, context| io.retry_throttled(flow.flow, context));
                answer = asked.unwrap_or(LimitAnswer::Empty);
                matches!(answer, LimitAnswer::Begin(_))
            });
            self.charge(flow.connection.index);
        }
        self.core.schedule.asked(flow, answer);
    }

    /// A connection that waits for memory asks again.
    fn ask_memory(&mut self, index: usize) {
        let mut outcome = MemoryTry::NotWaiting;
        self.with_if_changed(index, |connection, core| {
            outcome = connection.retry(core);
            matches!(outcome, MemoryTry::Served { .. })
        });
        let now = self.core.reactor.turn_time();
        self.core.schedule.memory.end_try(outcome, now);
        self.charge(index);
    }

    /// Has a connection of a tenant wait for the tenant's turn, and polls one of nobody.
    fn queue(&mut self, index: usize) {
        let Some(mut connection) = self.connections.take(index) else { return };
        let tenant = connection.tenant_with_work(&mut self.core);
        connection.turn = if tenant.is_some() { TurnState::Queued } else { TurnState::Polled };
        self.connections.put(connection);
        match tenant {
            Some(tenant) => self.core.schedule.shares.push(tenant, index),
            None => {
                self.core.schedule.polled.push(index);
                self.handle_events(index);
                self.charge_to(None);
            }
        }
    }

    /// Polls a connection of a tenant for as much as the tenant has of the turn.
    fn visit(&mut self, visit: Visit) {
        let index = visit.connection;
        if let Some(mut connection) = self.connections.take(index) {
            if connection.turn == TurnState::Queued {
                self.core.schedule.polled.push(index);
            }
            connection.turn = TurnState::Polled;
            self.connections.put(connection);
        }
        let begun = self.core.schedule.allowance.begin_visit(visit.bytes);
        self.handle_events(index);
        if self.core.schedule.shares.is_divided() {
            self.begin_piece_of(index);
            // What a device does at once is its tenant's time.
            self.core.devices.flush(&mut self.core.reactor);
        }
        let bytes = self.core.schedule.allowance.end_visit(begun);
        self.charge_to(Some(visit.tenant));
        let mut has_more = false;
        if let Some(mut connection) = self.connections.take(index) {
            // Its host may have set other weights meanwhile.
            has_more = connection.tenant_with_work(&mut self.core) == Some(visit.tenant);
            if has_more {
                connection.turn = TurnState::Requeued;
            }
            self.connections.put(connection);
        }
        self.core.schedule.shares.visited(visit, bytes, has_more);
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
    fn complete(&mut self) -> bool {
        let mut any = false;
        let turn = self.core.reactor.turn_time();
        // Latencies end here, not when the turn began; one reading of the clock serves all.
        let now = if self.core.is_measured() { self.core.reactor.now() } else { turn };
        while let Some(done) = self.set_aside.pop_front().or_else(|| self.core.poll_completion()) {
            any = true;
            let is_any = self.core.schedule.express.queues() > 0;
            let done = if is_any { self.finish_express(done) } else { Err(done) };
            let Err(done) = done else { continue };
            let (index, _) = devices::origin(done.tag);
            let mut goes_on = false;
            self.with(index, |connection, core| {
                let requests = connection.requests();
                connection.handle_done(done, now, core);
                goes_on = requests > 0 && connection.requests() >= requests;
            });
            if goes_on && self.core.schedule.shares.is_divided() {
                // The next request of a Copy is no time of whose turn comes next.
                self.charge_to(None);
                self.core.devices.flush(&mut self.core.reactor);
                self.charge(index);
            }
            self.serve_express();
        }
        // It is everybody's, and not that of whom is charged next.
        self.charge_to(None);
        self.core.publish_lost_writes();
        any
    }

    /// Sends the responses of the connections that were polled, and removes those that have ended.
    fn send(&mut self) {
        let mut polled = std::mem::take(&mut self.core.schedule.polled);
        for index in polled.drain(..) {
            self.finish_connection(index);
            // The others' responses go out in slices, and express queues come between.
            self.serve_express();
            while self.core.reactor.continue_sends() {
                self.serve_express();
            }
            self.charge(index);
        }
        self.core.schedule.polled = polled;
    }

    fn finish_connection(&mut self, index: usize) {
        let Some(mut connection) = self.connections.take(index) else { return };
        connection.flush(&mut self.core);
        connection.settle_class(self.core.reactor.turn_time(), &mut self.core);
        if connection.turn == TurnState::Requeued {
            connection.turn = TurnState::Queued;
            return self.connections.put(connection);
        }
        connection.turn = TurnState::Idle;
        if connection.is_gone() {
            self.connections.free(connection.id);
            self.core.directory.connection_gone();
            return;
        }
        if connection.has_work() {
            connection.turn = TurnState::Arrived;
            self.core.schedule.postpone(index);
        }
        self.connections.put(connection);
    }

    fn end_turn(&mut self) {
        if self.core.schedule.shares.is_divided() {
            self.core.schedule.shares.end_turn(self.core.reactor.now());
        }
        self.set_stall_timer();
        self.core.schedule.end_turn(&mut self.core.reactor);
        let (counters, now) = (self.core.devices.counters(), self.core.reactor.turn_time());
        counters.set_idle(self.connections.len(), now);
        counters.set_pool(self.core.reactor.pool());
        self.check_drained();
    }

    /// Whether the last turn has left work.
    fn has_left(&self) -> bool {
        self.core.schedule.has_left()
            || !self.deferred.is_empty()
            || !self.set_aside.is_empty()
            || self.core.devices.pieces().has_left()
            || self.core.devices.have_next()
            || !self.outdated.is_empty()
    }

    /// Whether the requests that completed last have left work for this turn.
    fn has_more(&self) -> bool {
        self.core.schedule.has_more() || self.core.devices.are_busy()
    }

    /// The reactor has been polled.
    pub(super) fn begin_shares_turn(&mut self) {
        if self.core.schedule.shares.is_to_be_measured() {
            let (now, idle) = (self.core.reactor.now(), self.core.reactor.idle_time());
            self.core.schedule.shares.begin_turn(now, idle);
        }
    }

    /// These connections have work and wait for no tenant any more.
    pub(super) fn requeue(&mut self, connections: Vec<usize>) {
        for index in connections {
            if let Some(mut connection) = self.connections.take(index) {
                connection.turn = TurnState::Arrived;
                self.connections.put(connection);
                self.core.schedule.arrived(index);
            }
        }
    }

    /// Something has come for a connection.
    #[inline]
    pub(super) fn note_received(&mut self, index: usize, completion: &ReactorCompletion) {
        if !self.core.schedule.shares.is_divided() {
            return;
        }
        let (Received::Received { len, .. } | Received::ReceivedInto { len, .. }) =
            completion.outcome
        else {
            return;
        };
        let tenant =
            self.connections.at(index).and_then(|one| one.tenant(&self.core.schedule.shares));
        tenant.into_iter().for_each(|tenant| self.core.schedule.shares.received(tenant, len));
    }

    /// All that came was received.
    pub(super) fn end_receive(&mut self) {
        if self.core.schedule.shares.is_divided() {
            self.core.schedule.shares.end_receive(self.core.reactor.now());
        }
    }

    /// Charges the time since the last call to a connection's tenant.
    #[inline]
    pub(super) fn charge(&mut self, index: usize) {
        if self.core.schedule.shares.is_divided() {
            let tenant =
                self.connections.at(index).and_then(|one| one.tenant(&self.core.schedule.shares));
            self.charge_to(tenant);
        }
    }

    /// Charges it to a tenant, or to nobody.
    fn charge_to(&mut self, tenant: Option<TenantId>) {
        if self.core.schedule.shares.is_divided() {
            self.core.schedule.shares.charge(tenant, self.core.reactor.now());
        }
    }

    /// If memory was short in this turn, schedules a check for the hosts that hold it.
    fn set_stall_timer(&mut self) {
        if self.stall_timer_set || !self.core.schedule.memory.was_short() {
            return;
        }
        self.stall_timer_set = true;
        let patience = self.core.snapshot.limits.stall_timeout;
        let at = self.core.reactor.turn_time().saturating_add(patience);
        self.core.reactor.set_timer(Token { owner: STALL_TIMER, tag: 0 }, at);
    }

    /// If memory is still short, ends the controller of the connection that holds most of it
    /// without progress: the others wait for this memory, and its other queues would take it.
    pub(super) fn end_stalled_connection(&mut self) {
        self.stall_timer_set = false;
        // The others try again in this turn; if they fail there is another check.
        let waits_since = self.core.schedule.memory.waits_since();
        if !self.core.schedule.memory.was_short() && waits_since.is_none() {
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

    fn check_drained(&mut self) {
        let (connections, core) = (&self.connections, &self.core);
        self.waiting_for_idle.retain(|(round, is_busy)| {
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
}
