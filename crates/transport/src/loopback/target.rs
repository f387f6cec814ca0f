//! The target side: data is copied at once from or to the host's buffer.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weft_nvme::{Command, Completion};
use weft_reactor::{Borrower, Buffer, Owner, Reactor, Token};

use super::hub::{Address, Batch, Entry, Hub, Message};
use super::listen::{Incoming, Request};
use crate::deadline::Deadline;
use crate::subscriptions::Subscription;
use crate::target::{CapsuleData, Event, Limits};
use crate::{CloseReason, DEADLINE, EVENTS, KINDS, Slot};

#[derive(Debug)]
struct SlotState {
    in_flight: bool,
    command: Command,
    /// Access to the host's buffer, while it is lent.
    data: Borrower,
}

#[derive(Debug)]
pub(crate) struct LoopbackTargetConnection {
    hub: Hub,
    subscription: Option<Subscription>,
    host: Option<Address>,
    slots: Vec<SlotState>,
    in_flight: usize,
    gathered: Batch,
    host_closed: Arc<AtomicBool>,
    events: VecDeque<Event>,
    /// Connect was accepted.
    has_queue: bool,
    deadline: Deadline,
    limits: Limits,
    local: SocketAddr,
    peer: SocketAddr,
    /// A protocol error, until the connection is closed for it.
    violation: Option<CloseReason>,
}

impl LoopbackTargetConnection {
    pub(crate) fn accept(
        reactor: &mut Reactor,
        owner: Owner,
        tag: u32,
        mut incoming: Incoming,
        limits: Limits,
    ) -> Self {
        let (local, peer) = (incoming.local_address(), incoming.peer_address());
        let token = Token::new(owner, tag << 2);
        let mut connection = Self {
            hub: Hub::of(reactor),
            subscription: None,
            host: None,
            slots: Vec::new(),
            in_flight: 0,
            gathered: Batch::default(),
            host_closed: Arc::default(),
            events: VecDeque::new(),
            has_queue: false,
            deadline: Deadline::new(Token { tag: token.tag | DEADLINE, ..token }),
            limits,
            local,
            peer,
            violation: None,
        };
        match connection.hub.subscribe(Token { tag: token.tag | EVENTS, ..token }) {
            Ok((subscription, address)) => {
                connection.subscription = Some(subscription);
                if let Some(Request { host, data, host_closed }) = incoming.request.take() {
                    let state =
                        |data| SlotState { in_flight: false, command: Command::default(), data };
                    connection.slots = data.into_iter().map(state).collect();
                    connection.events.reserve(connection.slots.len());
                    connection.host_closed = host_closed;
                    host.send(Message::Accepted(address));
                    connection.host = Some(host);
                }
                connection.deadline.set(reactor, limits.handshake_timeout);
            }
            Err(error) => {
                let reason = CloseReason::from(&error);
                connection.events.push_back(Event::Closed { reason });
            }
        }
        connection
    }

    pub(crate) fn local_address(&self, _: &Reactor) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    pub(crate) fn peer_address(&self, _: &Reactor) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn is_ending(&self, _: &Reactor) -> bool {
        self.subscription.is_none() || self.host_closed.load(Ordering::Acquire)
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn command(&self, slot: Slot) -> Option<&Command> {
        let state = self.slots.get(slot.index())?;
        state.in_flight.then_some(&state.command)
    }

    pub(crate) fn events(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Data is copied when it is requested, so nothing is held for a host or waits for memory.
    pub(crate) fn stalled_bytes(&mut self, _: Duration, _: Duration) -> usize {
        0
    }

    pub(crate) fn wanted(&self) -> Option<usize> {
        None
    }

    pub(crate) const fn bound_capsules(&mut self, _: Option<usize>) {}

    pub(crate) fn provide(&mut self, _: &mut Reactor, _: Buffer) {}

    pub(crate) fn set_queue(&mut self, _: u16, _: u16, _: bool) {
        self.has_queue = true;
    }

    pub(crate) fn handle(
        &mut self,
        reactor: &mut Reactor,
        completion: weft_reactor::ReactorCompletion,
    ) {
        match completion.token.tag & KINDS {
            EVENTS => self.handle_source_events(reactor),
            DEADLINE => self.handle_deadline(reactor),
            _ => {}
        }
    }

    pub(crate) fn receive(&mut self, slot: Slot, mut buffer: Buffer) {
        let state = self.slots.get_mut(slot.index()).filter(|_| self.subscription.is_some());
        let Some(state) = state else { return };
        debug_assert!(state.in_flight && !buffer.is_shared());
        if buffer.is_empty() || state.data.read(buffer.bytes_mut()).is_some() {
            self.events.push_back(Event::Data { slot, buffer, result: Ok(()) });
        } else if !self.host_closed.load(Ordering::Acquire) {
            self.violation =
                Some(CloseReason::Violation("a command's data is shorter than its SGL says"));
        }
    }

    pub(crate) fn send(&mut self, slot: Slot, buffer: Buffer, completion: Completion) {
        let state = self.slots.get_mut(slot.index()).filter(|_| self.subscription.is_some());
        let Some(state) = state else { return };
        let length = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        match state.data.write(&buffer) {
            Some(()) => self.respond(slot, completion, length),
            None if buffer.is_empty() => self.respond(slot, completion, 0),
            // The host has closed the connection.
            None if self.host_closed.load(Ordering::Acquire) => {}
            None => {
                let what = "a command's buffer is shorter than its SGL says";
                self.violation = Some(CloseReason::Violation(what));
            }
        }
    }

    pub(crate) fn complete(&mut self, slot: Slot, completion: Completion) {
        if self.subscription.is_some() {
            self.respond(slot, completion, 0);
        }
    }

    pub(crate) fn discard(&mut self, slot: Slot) {
        if let Some(state) = self.slots.get_mut(slot.index())
            && std::mem::take(&mut state.in_flight)
        {
            self.in_flight -= 1;
        }
    }

    fn respond(&mut self, slot: Slot, completion: Completion, written: u32) {
        let Some(state) = self.slots.get_mut(slot.index()) else { return };
        debug_assert!(state.in_flight, "a command is completed once");
        if std::mem::take(&mut state.in_flight) {
            self.in_flight -= 1;
            self.gathered.push(Entry::Response { slot: slot.0, completion, written });
        }
    }

    pub(crate) fn flush(&mut self, reactor: &mut Reactor) {
        if let Some(host) = &self.host {
            self.gathered.send(host);
        }
        if let Some(reason) = self.violation.take() {
            self.close(reactor, reason);
        }
    }

    pub(crate) fn abort(&mut self, reactor: &mut Reactor, reason: CloseReason) {
        self.close(reactor, reason);
    }

    /// Ends the connection, after sending the queued responses, which takes no time.
    pub(crate) fn close(&mut self, reactor: &mut Reactor, reason: CloseReason) {
        let Some(subscription) = self.subscription.take() else { return };
        self.hub.unsubscribe(subscription);
        self.deadline.clear(reactor);
        if let Some(host) = self.host.take() {
            self.gathered.send(&host);
            host.send(Message::Ended);
        }
        self.slots.clear();
        self.in_flight = 0;
        self.events.clear();
        self.events.push_back(Event::Closed { reason });
    }

    fn handle_source_events(&mut self, reactor: &mut Reactor) {
        while let Some(subscription) = self.subscription
            && let Some(message) = self.hub.take(subscription)
        {
            match message {
                Message::Batch(mut entries) => {
                    // The host has closed the connection, and may send the command again on
                    // another, so it must not be executed.
                    if !self.host_closed.load(Ordering::Acquire) {
                        entries.drain(..).for_each(|entry| self.handle_entry(entry));
                    }
                    self.gathered.keep(entries);
                }
                Message::Ended => self.close(reactor, CloseReason::PeerClosed),
                Message::Request(_) | Message::Accepted(_) | Message::Refused => {}
            }
        }
    }

    fn handle_entry(&mut self, entry: Entry) {
        let Entry::Command { slot, command } = entry else { return };
        self.raise(Slot(slot), command);
    }

    fn raise(&mut self, slot: Slot, command: Command) {
        let Some(state) = self.slots.get_mut(slot.index()) else { return };
        if !std::mem::replace(&mut state.in_flight, true) {
            state.command = command;
            self.in_flight += 1;
            self.events.push_back(Event::Command { slot, data: CapsuleData::None });
        }
    }

    fn handle_deadline(&mut self, reactor: &mut Reactor) {
        if !self.deadline.take_due(reactor) || self.has_queue {
            return;
        }
        if self.in_flight == 0 {
            return self.close(reactor, CloseReason::HandshakeTimeout);
        }
        // The owner is executing Connect.
        self.deadline.set(reactor, self.limits.handshake_timeout);
    }
}

impl Drop for LoopbackTargetConnection {
    fn drop(&mut self) {
        if let Some(host) = self.host.take() {
            host.send(Message::Ended);
        }
        if let Some(subscription) = self.subscription.take() {
            self.hub.unsubscribe(subscription);
        }
    }
}
