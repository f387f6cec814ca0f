//! The host side: buffers lent to the target, one per command.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_nvme::command::Flags;
use weft_nvme::sgl::Descriptor;
use weft_nvme::wire::U16;
use weft_nvme::{Command, Completion};
use weft_reactor::{Lender, Owner, Reactor, Token, loan};

use super::hub::{Address, Batch, Entry, Hub, Message};
use super::listen::{Incoming, Request, find};
use crate::deadline::Deadline;
use crate::host::{HostData, HostEvent, HostOptions, NotSubmitted};
use crate::slots::Slots;
use crate::subscriptions::Subscription;
use crate::{CHORE, CloseReason, DEADLINE, EVENTS, KINDS, Slot};

#[derive(Debug)]
pub(crate) struct LoopbackHostConnection {
    hub: Hub,
    subscription: Option<Subscription>,
    token: Token,
    /// Where to send commands, once the target has accepted.
    target: Option<Address>,
    local: Option<SocketAddr>,
    slots: Slots<Fill>,
    lenders: Vec<Lender>,
    gathered: Batch,
    host_closed: Arc<AtomicBool>,
    events: VecDeque<HostEvent>,
    deadline: Deadline,
    /// The reason of the end, until it is reported.
    reason: Option<CloseReason>,
}

/// Whether the target fills a command's buffer.
#[derive(Debug, Clone, Copy)]
struct Fill(bool);

impl LoopbackHostConnection {
    pub(crate) fn connect(
        reactor: &mut Reactor,
        owner: Owner,
        tag: u32,
        address: SocketAddr,
        options: HostOptions,
    ) -> Self {
        let token = Token::new(owner, tag << 2);
        let slots = Slots::new(options.queue_depth);
        let depth = usize::from(slots.depth());
        let mut connection = Self {
            hub: Hub::of(reactor),
            subscription: None,
            token,
            target: None,
            local: None,
            slots,
            lenders: Vec::with_capacity(depth),
            gathered: Batch::default(),
            host_closed: Arc::default(),
            events: VecDeque::with_capacity(depth),
            deadline: Deadline::new(Token { tag: token.tag | DEADLINE, ..token }),
            reason: None,
        };
        match connection.send_connect(address, options.local) {
            Ok(()) => connection.deadline.set(reactor, options.timeout),
            Err(error) => {
                connection.reason = Some(CloseReason::from(&error));
                // The failure is reported after a completion, as all events are.
                let token = Token { tag: token.tag | CHORE, ..token };
                reactor.set_timer(token, reactor.now());
            }
        }
        connection
    }

    fn send_connect(&mut self, address: SocketAddr, local: Option<SocketAddr>) -> io::Result<()> {
        let (listener, local) = find(address, local)?;
        let (subscription, host) =
            self.hub.subscribe(Token { tag: self.token.tag | EVENTS, ..self.token })?;
        self.subscription = Some(subscription);
        self.local = Some(local);
        let mut data = Vec::with_capacity(self.lenders.capacity());
        for _ in 0..self.slots.depth() {
            let (lender, borrower) = loan();
            self.lenders.push(lender);
            data.push(borrower);
        }
        let request = Request { host, data, host_closed: Arc::clone(&self.host_closed) };
        listener.send(Message::Request(Incoming::new(request, address, local)));
        Ok(())
    }

    pub(crate) fn local_address(&self, _: &Reactor) -> io::Result<SocketAddr> {
        self.local.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    pub(crate) fn free_slots(&self) -> usize {
        if self.target.is_some() { self.slots.free() } else { 0 }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.slots.in_flight()
    }

    pub(crate) fn command_id(&self, slot: Slot) -> Option<u16> {
        self.slots.command_id(slot.0)
    }

    pub(crate) fn poll_event(&mut self) -> Option<HostEvent> {
        self.events.pop_front()
    }

    pub(crate) fn submit(
        &mut self,
        mut command: Command,
        data: HostData,
    ) -> Result<Slot, NotSubmitted> {
        let buffer = match &data {
            HostData::None => None,
            HostData::ToController(buffer) | HostData::FromController(buffer) => Some(buffer),
        };
        let length = buffer.map_or(Some(0), |buffer| u32::try_from(buffer.len()).ok());
        let fill = Fill(matches!(data, HostData::FromController(_)));
        let next = self.slots.next().filter(|_| self.target.is_some());
        let lender = next.and_then(|slot| self.lenders.get_mut(usize::from(slot)));
        let (Some(length), Some(lender)) = (length, lender) else {
            return Err(data.into());
        };
        let Some((slot, command_id)) = self.slots.begin(fill) else {
            return Err(data.into());
        };
        match data {
            HostData::None => {}
            HostData::ToController(buffer) => lender.lend(buffer),
            HostData::FromController(buffer) => lender.lend_to_fill(buffer),
        }
        command.command_id = U16::new(command_id);
        command.flags = Flags::SGL.with_fused(command.flags.fused());
        command.data_pointer = Descriptor::transport(length);
        self.gathered.push(Entry::Command { slot, command });
        Ok(Slot(slot))
    }

    pub(crate) fn handle(
        &mut self,
        reactor: &mut Reactor,
        completion: weft_reactor::ReactorCompletion,
    ) {
        match completion.token.tag & KINDS {
            EVENTS => self.handle_source_events(reactor),
            DEADLINE if self.deadline.take_due(reactor) => {
                self.shut(reactor, CloseReason::HandshakeTimeout);
            }
            _ => {}
        }
        self.raise_closed();
    }

    /// There is no in-capsule data.
    pub(crate) fn set_in_capsule_bytes(&mut self, _: u32) {}

    pub(crate) fn flush(&mut self, _: &mut Reactor) {
        if let Some(target) = &self.target {
            self.gathered.send(target);
        }
    }

    pub(crate) fn close(&mut self, reactor: &mut Reactor, reason: CloseReason) {
        self.shut(reactor, reason);
        self.raise_closed();
    }

    fn handle_source_events(&mut self, reactor: &mut Reactor) {
        while let Some(subscription) = self.subscription
            && let Some(message) = self.hub.take(subscription)
        {
            match message {
                Message::Accepted(target) => {
                    self.target = Some(target);
                    self.deadline.clear(reactor);
                    self.events.push_back(HostEvent::Ready { negotiated: None });
                }
                Message::Refused => {
                    let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
                    self.shut(reactor, CloseReason::from(&refused));
                }
                Message::Batch(mut entries) => {
                    for entry in entries.drain(..) {
                        if let Entry::Response { slot, completion, written } = entry {
                            self.completed(slot, completion, written);
                        }
                    }
                    self.gathered.keep(entries);
                }
                Message::Ended => self.shut(reactor, CloseReason::PeerClosed),
                Message::Request(_) => {}
            }
        }
    }

    fn completed(&mut self, slot: u16, completion: Completion, written: u32) {
        let Some(Fill(fill)) = self.slots.end(slot) else { return };
        let buffer = self.lenders.get_mut(usize::from(slot)).and_then(Lender::take_back);
        let received = if fill { written } else { 0 };
        let slot = Slot(slot);
        self.events.push_back(HostEvent::Completed { slot, completion, buffer, received });
    }

    /// Ends the connection now. Commands that the target has not taken will not be executed.
    fn shut(&mut self, reactor: &mut Reactor, reason: CloseReason) {
        self.host_closed.store(true, Ordering::Release);
        if let Some(subscription) = self.subscription.take() {
            self.reason = Some(reason);
            self.hub.unsubscribe(subscription);
        }
        self.deadline.clear(reactor);
        if let Some(target) = self.target.take() {
            target.send(Message::Ended);
        }
    }

    /// Reports the end, once.
    fn raise_closed(&mut self) {
        if self.subscription.is_some() {
            return;
        }
        let Some(reason) = self.reason.take() else { return };
        let mut in_flight = Vec::new();
        let lenders = &mut self.lenders;
        self.slots.end_all(|slot, _| {
            let buffer = lenders.get_mut(slot.index()).and_then(Lender::take_back);
            in_flight.push((slot, buffer));
        });
        self.events.push_back(HostEvent::Closed { reason, in_flight });
    }
}

impl Drop for LoopbackHostConnection {
    fn drop(&mut self) {
        self.host_closed.store(true, Ordering::Release);
        if let Some(target) = self.target.take() {
            target.send(Message::Ended);
        }
        if let Some(subscription) = self.subscription.take() {
            self.hub.unsubscribe(subscription);
        }
    }
}
