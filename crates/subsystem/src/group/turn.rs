//! Tenants of a group: which connection is polled next while there are [shares](super::shares).

use weft_reactor::{Outcome, ReactorCompletion};

use super::Group;

impl Group {
    /// The reactor has been polled.
    pub(super) fn begin_shares_turn(&mut self) {
        if !self.core.shares.is_on() && !self.core.shares.is_wanted() {
            return;
        }
        let (now, idle) = (self.core.reactor.now(), self.core.reactor.idle_time());
        let left = self.core.shares.begin_turn(now, idle);
        self.requeue(left);
    }

    /// These connections have work and wait for no tenant any more.
    pub(super) fn requeue(&mut self, connections: Vec<usize>) {
        for index in connections {
            if let Some(mut connection) = self.connections.take(index) {
                connection.is_queued = false;
                self.connections.put(connection);
                self.active.push(index);
            }
        }
    }

    /// Something has come for a connection.
    #[inline]
    pub(super) fn note_received(&mut self, index: usize, completion: &ReactorCompletion) {
        if !self.core.shares.is_on() {
            return;
        }
        let (Outcome::Received { len, .. } | Outcome::ReceivedInto { len, .. }) =
            completion.outcome
        else {
            return;
        };
        let tenant = self.connections.at(index).and_then(|one| one.tenant(&self.core.shares));
        tenant.into_iter().for_each(|tenant| self.core.shares.received(tenant, len));
    }

    /// All that came was received.
    pub(super) fn end_receive(&mut self) {
        if self.core.shares.is_on() {
            self.core.shares.end_receive(self.core.reactor.now());
        }
    }

    /// Charges the time since the last call to a connection's tenant.
    #[inline]
    pub(super) fn charge(&mut self, index: usize) {
        if self.core.shares.is_on() {
            let tenant = self.connections.at(index).and_then(|one| one.tenant(&self.core.shares));
            self.core.shares.charge(tenant, self.core.reactor.now());
        }
    }

    /// The turn has ended.
    pub(super) fn end_shares_turn(&mut self) {
        if self.core.shares.is_on() {
            self.core.shares.end_turn(self.core.reactor.now());
        }
    }

    /// Handles events of the tenants' connections in the order of their shares, as many as a turn
    /// may take, and those of others at once.
    pub(super) fn poll_tenants(&mut self) {
        loop {
            // Connections that have come into the list since: those of tenants wait for their turn.
            for index in self.active.split_off(self.seen) {
                self.queue(index);
            }
            if !self.core.admission.may_begin() {
                return;
            }
            let Some(visit) = self.core.shares.next() else { return };
            let index = visit.connection;
            if let Some(mut connection) = self.connections.take(index) {
                connection.is_queued = false;
                let is_seen = std::mem::replace(&mut connection.is_seen, true);
                self.connections.put(connection);
                if !is_seen {
                    self.see(index);
                }
            }
            let begun = self.core.admission.begin_visit(visit.bytes);
            self.handle_events(index);
            let bytes = self.core.admission.end_visit(begun);
            self.core.shares.charge(Some(visit.tenant), self.core.reactor.now());
            let mut has_more = false;
            if let Some(mut connection) = self.connections.take(index) {
                // Its host may have set other weights meanwhile.
                let tenant = connection.enter_tenant(&mut self.core);
                let is_of_tenant = tenant == Some(visit.tenant);
                has_more = is_of_tenant && connection.transport.has_events();
                connection.is_queued = has_more;
                self.connections.put(connection);
            }
            self.core.shares.visited(visit, bytes, has_more);
        }
    }

    /// A connection of the turn's list is to be polled: in its tenant's turn if it has one.
    fn queue(&mut self, index: usize) {
        let Some(mut connection) = self.connections.take(index) else { return self.see(index) };
        if connection.is_queued {
            return self.connections.put(connection);
        }
        let has_events = connection.transport.has_events();
        let tenant = connection.enter_tenant(&mut self.core).filter(|_| has_events);
        connection.is_queued = tenant.is_some();
        self.connections.put(connection);
        match tenant {
            Some(tenant) => self.core.shares.push(tenant, index),
            None => {
                self.see(index);
                self.handle_events(index);
                self.core.shares.charge(None, self.core.reactor.now());
            }
        }
    }

    /// A connection of this turn, whose responses are flushed at its end.
    fn see(&mut self, index: usize) {
        self.active.insert(self.seen, index);
        self.seen += 1;
    }
}
