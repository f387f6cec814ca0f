//! The host side: capsules as SENDs, buffers that the controller accesses by their keys, and a
//! receive for each response.
//!
//! [`RemoteAccess`] says what a key gives access to. With memory windows each command has one,
//! bound by the work request before its SEND. The controller is asked to invalidate its key with
//! the response; otherwise this side does, and the command completes only after that. Data of a
//! lease is copied before the SEND, or after the response. A command that is given up returns its
//! buffer after the queue pair has been destroyed.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use weft_nvme::command::Flags;
use weft_nvme::sgl::Descriptor;
use weft_nvme::wire::U16;
use weft_nvme::{Command, Completion, Wire};
use weft_nvmf::rdma::{Refusal, Reply, Request};
use weft_reactor::{Buffer, Owner, Reactor, Token};

use super::arena;
use super::engine::{Engine, Role};
use super::pair::{PairEvent, RdmaQueuePair, Sizes};
use super::verbs::{
    Access, CmEvent, Endpoint, Parameters, Piece, PrivateData, RemoteAccess, SendOperation,
    WorkCompletion,
};
use crate::deadline::Deadline;
use crate::host::{HostData, HostEvent, HostOptions, NotSubmitted, TransportOptions};
use crate::limits::{FIRST_MESSAGE_TIMEOUT, IDLE_TIME};
use crate::slots::Slots;
use crate::subscriptions::Subscription;
use crate::{CHORE, CloseReason, DEADLINE, EVENTS, KINDS, Slot};

#[derive(Debug)]
enum Stage {
    /// Resolving address and route.
    Resolving(Endpoint),
    /// Waiting for the connection.
    Connecting(Box<RdmaQueuePair>),
    /// Commands may be submitted.
    Live(Box<RdmaQueuePair>),
    /// Closed. Also while one of the other stages is being processed.
    Shut,
}

#[derive(Debug, Default)]
struct SlotState {
    buffer: Option<Buffer>,
    /// The leased slot that the controller accesses instead of the buffer.
    leased: Option<arena::Slot>,
    /// Bytes that the controller was to write.
    expected: u32,
    /// Its SEND of in-capsule data has not completed.
    sending: bool,
    /// The key of its window, until that is invalidated.
    key: Option<u32>,
    /// The response, until the SEND has completed and the key is invalidated.
    response: Option<Completion>,
}

/// A capsule to send.
#[derive(Debug)]
struct Capsule {
    slot: u16,
    command: Command,
    /// Its in-capsule data.
    data: Option<Piece>,
    /// Whether its window is bound first.
    binds: bool,
}

/// The access to a command's data.
#[derive(Debug)]
struct DataAccess {
    pointer: Descriptor,
    data: Option<Piece>,
    leased: Option<arena::Slot>,
    key: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct RdmaHostConnection {
    stage: Stage,
    engine: Option<(Engine, Subscription)>,
    owner: Owner,
    base: u32,
    options: HostOptions,
    in_capsule_bytes: u32,
    local: Option<SocketAddr>,
    slots: Slots<SlotState>,
    capsules: VecDeque<Capsule>,
    /// Windows to invalidate: command and key.
    open: VecDeque<(u16, u32)>,
    events: VecDeque<HostEvent>,
    work: Vec<WorkCompletion>,
    ended: Vec<PairEvent>,
    deadline: Deadline,
    /// The first command may not be noticed (on soft-iWARP), and has no response yet.
    may_be_overlooked: bool,
    /// The reason of the end, until it is reported.
    reason: Option<CloseReason>,
}

impl RdmaHostConnection {
    pub(crate) fn connect(
        reactor: &mut Reactor,
        owner: Owner,
        tag: u32,
        address: SocketAddr,
        options: HostOptions,
    ) -> Self {
        let slots = Slots::new(options.queue_depth);
        let depth = slots.depth();
        let mut connection = Self {
            stage: Stage::Shut,
            engine: None,
            owner,
            base: tag << 2,
            options,
            in_capsule_bytes: 0,
            local: None,
            slots,
            capsules: VecDeque::with_capacity(depth.into()),
            open: VecDeque::with_capacity(depth.into()),
            events: VecDeque::with_capacity(depth.into()),
            work: Vec::new(),
            ended: Vec::new(),
            deadline: Deadline::new(Token::new(owner, tag << 2 | DEADLINE)),
            may_be_overlooked: false,
            reason: None,
        };
        match connection.resolve(reactor, address) {
            Ok(endpoint) => {
                connection.stage = Stage::Resolving(endpoint);
                connection.deadline.set(reactor, options.timeout);
            }
            Err(error) => {
                log::debug!("{address}: {error}");
                connection.reason = Some(CloseReason::from(&error));
                // The failure is reported after a completion, as all events are.
                reactor.set_timer(connection.token(CHORE), reactor.now());
            }
        }
        connection
    }

    fn resolve(&mut self, reactor: &mut Reactor, address: SocketAddr) -> io::Result<Endpoint> {
        let engine = Engine::of(reactor, Role::Host)?;
        let (local, timeout) = (self.options.local, self.options.timeout);
        let endpoint = engine.with_manager(|manager| manager.resolve(address, local, timeout))?;
        let subscription = engine.subscribe(endpoint.key(), self.token(EVENTS))?;
        self.engine = Some((engine, subscription));
        Ok(endpoint)
    }

    pub(crate) fn local_address(&self, _: &Reactor) -> io::Result<SocketAddr> {
        self.local.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    pub(crate) fn free_slots(&self) -> usize {
        if matches!(self.stage, Stage::Live(_)) { self.slots.free() } else { 0 }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.slots.in_flight()
    }

    pub(crate) fn command_id(&self, slot: Slot) -> Option<u16> {
        self.slots.command_id(slot.0)
    }

    pub(crate) fn set_in_capsule_bytes(&mut self, bytes: u32) {
        self.in_capsule_bytes = bytes;
    }

    pub(crate) fn poll_event(&mut self) -> Option<HostEvent> {
        self.events.pop_front()
    }

    pub(crate) fn submit(
        &mut self,
        mut command: Command,
        data: HostData,
    ) -> Result<Slot, NotSubmitted> {
        let Stage::Live(pair) = &mut self.stage else { return Err(data.into()) };
        let Some(next) = self.slots.next() else { return Err(data.into()) };
        let opened = match open(pair, next, &data, self.in_capsule_bytes) {
            Ok(opened) => opened,
            Err(why) => return Err(NotSubmitted { data, why }),
        };
        let (buffer, expected) = match data {
            HostData::None => (None, 0),
            HostData::ToController(buffer) => (Some(buffer), 0),
            HostData::FromController(buffer) => {
                let expected = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
                (Some(buffer), expected)
            }
        };
        let DataAccess { pointer, data, leased, key } = opened;
        let (sending, binds) = (data.is_some(), key.is_some());
        let state = SlotState { buffer, leased, expected, sending, key, response: None };
        let Some((slot, command_id)) = self.slots.begin(state) else {
            return Err(HostData::None.into());
        };
        command.command_id = U16::new(command_id);
        command.flags = Flags::SGL.with_fused(command.flags.fused());
        command.data_pointer = pointer;
        self.capsules.push_back(Capsule { slot, command, data, binds });
        Ok(Slot(slot))
    }

    pub(crate) fn handle(
        &mut self,
        reactor: &mut Reactor,
        completion: weft_reactor::ReactorCompletion,
    ) {
        match completion.token.tag & KINDS {
            EVENTS => self.handle_source_events(reactor),
            DEADLINE => self.handle_deadline(reactor),
            _ => {
                self.release_idle(reactor);
                self.send_wake_up_read(reactor);
            }
        }
        self.raise_closed();
    }

    pub(crate) fn set_express(&self, is_express: bool) -> io::Result<()> {
        let (engine, subscription) = self.engine.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        engine.set_express(*subscription, is_express);
        Ok(())
    }

    pub(crate) fn flush(&mut self, reactor: &mut Reactor) {
        if let Stage::Live(pair) = &mut self.stage
            && let Err(error) = put(pair, &mut self.open, &mut self.capsules)
        {
            self.shut(reactor, CloseReason::from(&error));
            // The owner polls events after a completion.
            reactor.set_timer(self.token(CHORE), reactor.now());
        }
    }

    pub(crate) fn close(&mut self, reactor: &mut Reactor, reason: CloseReason) {
        // Commands in flight are given up, so there is nothing to wait for.
        self.shut(reactor, reason);
        self.raise_closed();
    }

    fn token(&self, kind: u32) -> Token {
        Token::new(self.owner, self.base | kind)
    }

    fn handle_deadline(&mut self, reactor: &mut Reactor) {
        if self.deadline.take_due(reactor) {
            self.shut(reactor, CloseReason::HandshakeTimeout);
        }
    }

    fn handle_source_events(&mut self, reactor: &mut Reactor) {
        let Some((engine, subscription)) = self.engine.clone() else { return };
        // During set-up events of the manager are handled first: it may report that the connection
        // is established and that it ended together. Later, work completions are: the last
        // responses may come together with the end.
        if matches!(self.stage, Stage::Resolving(_) | Stage::Connecting(_))
            && let Some(event) = engine.take_event(subscription)
        {
            self.handle_cm_event(reactor, &event);
        }
        let mut work = std::mem::take(&mut self.work);
        engine.take_work(subscription, &mut work);
        for completion in &work {
            self.handle_work(reactor, completion);
        }
        work.clear();
        self.work = work;
        if let Some(fault) = engine.fault(subscription) {
            self.shut(reactor, fault);
        }
        while let Some(event) = engine.take_event(subscription) {
            self.handle_cm_event(reactor, &event);
        }
    }

    fn handle_cm_event(&mut self, reactor: &mut Reactor, event: &CmEvent) {
        let reason = match event {
            CmEvent::RouteResolved => match self.request_connection(reactor) {
                Ok(()) => return,
                Err(error) => CloseReason::from(&error),
            },
            CmEvent::Established { parameters } => {
                match Reply::parse(parameters.private_data.bytes()) {
                    Ok(_) => return self.established(reactor),
                    Err(problem) => CloseReason::Refused(problem),
                }
            }
            CmEvent::Rejected { reason, private_data } => {
                match Refusal::of_rejection(private_data.bytes()) {
                    Some(problem) => CloseReason::Refused(problem),
                    None => {
                        log::debug!("the connection was rejected for reason {reason}");
                        CloseReason::from(&io::Error::from(io::ErrorKind::ConnectionRefused))
                    }
                }
            }
            CmEvent::Failed { step, error } => {
                let error = io::Error::from_raw_os_error(*error);
                log::debug!("{step}: {error}");
                CloseReason::from(&error)
            }
            CmEvent::Disconnected => CloseReason::PeerClosed,
            CmEvent::DeviceRemoved => CloseReason::DeviceRemoved,
            CmEvent::AddressChanged => CloseReason::AddressChanged,
            CmEvent::AddressResolved | CmEvent::Requested { .. } => return,
        };
        self.shut(reactor, reason);
    }

    /// The route is resolved: creates the queue pair and connects.
    fn request_connection(&mut self, reactor: &mut Reactor) -> io::Result<()> {
        let Stage::Resolving(endpoint) = std::mem::replace(&mut self.stage, Stage::Shut) else {
            return Ok(());
        };
        let Some((engine, subscription)) = self.engine.clone() else { return Ok(()) };
        self.local = endpoint.local_address().ok();
        let entries = self.slots.depth().saturating_add(1);
        let wanted = self.options.remote_access;
        let wide = wanted == Some(RemoteAccess::Wide);
        let attributes = engine.hold(&endpoint, reactor, wide)?.borrow().attributes().clone();
        let access = wanted.unwrap_or(attributes.narrowest_access());
        if access == RemoteAccess::Window && !attributes.memory_windows {
            self.reason = Some(CloseReason::NoMemoryWindows);
            self.unsubscribe(reactor);
            return Ok(());
        }
        let windows = if access == RemoteAccess::Window { self.slots.depth() } else { 0 };
        let both = Access { local_write: true, remote_read: true, remote_write: true, bind: false };
        let sizes = Sizes {
            // The capsule, and the binding and invalidation of a window.
            sends: u32::from(entries).saturating_mul(if windows > 0 { 4 } else { 2 }),
            receives: entries.into(),
            message_bytes: Command::SIZE,
            received_bytes: Completion::SIZE,
            windows,
            wide,
            leased: (access == RemoteAccess::Lease).then_some(both),
        };
        let mut pair = match RdmaQueuePair::new(reactor, engine, subscription, endpoint, sizes) {
            Ok(pair) => pair,
            Err(error) => {
                // The endpoint is gone with the queue pair; the subscription is still held.
                self.reason = Some(CloseReason::from(&error));
                self.unsubscribe(reactor);
                return Ok(());
            }
        };
        let begun = self.begin(&mut pair, entries);
        self.stage = Stage::Connecting(Box::new(pair));
        begun
    }

    fn begin(&self, pair: &mut RdmaQueuePair, entries: u16) -> io::Result<()> {
        for index in 0..u32::from(entries) {
            pair.push_receive(index, None)?;
        }
        pair.post()?;
        let (queue_id, controller_id) = match self.options.transport_options {
            TransportOptions::Rdma { queue_id, controller_id } => (queue_id, controller_id),
            TransportOptions::Tcp | TransportOptions::Loopback => (0, 0),
        };
        let request = Request { queue_id, entries, host_receives: entries, controller_id };
        let responder_resources = pair.hold().borrow().attributes().responder_resources_max;
        pair.connect(&Parameters {
            private_data: PrivateData::new(request.to_wire().bytes()),
            responder_resources,
            initiator_depth: 0,
        })
    }

    fn established(&mut self, reactor: &mut Reactor) {
        match std::mem::replace(&mut self.stage, Stage::Shut) {
            Stage::Connecting(pair) => {
                self.may_be_overlooked = pair.hold().borrow().attributes().soft_iwarp;
                self.stage = Stage::Live(pair);
                self.deadline.clear(reactor);
                self.release_idle(reactor);
                self.schedule_wake_up_read(reactor);
                self.events.push_back(HostEvent::Ready { negotiated: None });
            }
            stage => self.stage = stage,
        }
    }

    /// After the time in which controllers that work around this do so.
    fn schedule_wake_up_read(&self, reactor: &mut Reactor) {
        if self.may_be_overlooked {
            let at = reactor.now().saturating_add(FIRST_MESSAGE_TIMEOUT * 2);
            reactor.set_timer(self.token(CHORE), at);
        }
    }

    fn send_wake_up_read(&mut self, reactor: &mut Reactor) {
        let Stage::Live(pair) = &mut self.stage else { return };
        if self.may_be_overlooked && pair.is_quiet() {
            pair.push_wake_up_read(SendOperation::Write { address: 0, key: 0 });
        }
        self.schedule_wake_up_read(reactor);
    }

    /// Frees the leased memory of an idle connection.
    fn release_idle(&mut self, reactor: &mut Reactor) {
        let Stage::Live(pair) = &mut self.stage else { return };
        if let Some(arena) = pair.arena() {
            arena.release_idle();
            let at = reactor.now().saturating_add(IDLE_TIME);
            reactor.set_timer(self.token(CHORE), at);
        }
    }

    fn handle_work(&mut self, reactor: &mut Reactor, completion: &WorkCompletion) {
        let mut ended = std::mem::take(&mut self.ended);
        let pair = match &mut self.stage {
            Stage::Connecting(pair) | Stage::Live(pair) => pair,
            Stage::Resolving(_) | Stage::Shut => return,
        };
        let mut outcome = pair.handle(completion, |one| ended.push(one));
        for one in ended.drain(..) {
            outcome = outcome.and_then(|()| self.handle_ended(one));
        }
        self.ended = ended;
        if let Err(reason) = outcome {
            self.shut(reactor, reason);
        }
    }

    fn handle_ended(&mut self, ended: PairEvent) -> Result<(), CloseReason> {
        match ended {
            // In-capsule data was sent, or a window was invalidated: no command has both.
            PairEvent::Sent { what } => {
                if let Some(state) = self.slots.get_mut(what) {
                    state.sending = false;
                    state.key = None;
                    if let Some(response) = state.response.take() {
                        self.completed(what, response);
                    }
                }
                Ok(())
            }
            PairEvent::Received { index, bytes, invalidated } => {
                self.handle_response(index, bytes, invalidated)
            }
        }
    }

    fn handle_response(
        &mut self,
        index: u32,
        bytes: u32,
        invalidated: Option<u32>,
    ) -> Result<(), CloseReason> {
        let pair = match &mut self.stage {
            Stage::Connecting(pair) | Stage::Live(pair) => pair,
            Stage::Resolving(_) | Stage::Shut => return Ok(()),
        };
        if usize::try_from(bytes).is_ok_and(|bytes| bytes != Completion::SIZE) {
            return Err(CloseReason::Violation("a response is not 16 bytes long"));
        }
        let response = Completion::read(pair.received(index))
            .map_err(|_| CloseReason::Violation("a response is truncated"))?;
        pair.push_receive(index, None).map_err(|error| CloseReason::from(&error))?;
        self.may_be_overlooked = false;
        let found = self.slots.find(response.command_id.get());
        let state = found.and_then(|slot| Some((slot, self.slots.get_mut(slot)?)));
        let Some((slot, state)) = state.filter(|(_, state)| state.response.is_none()) else {
            return Err(CloseReason::Violation("a response is for no command in flight"));
        };
        if invalidated.is_some() {
            if state.key != invalidated {
                let what = "an invalidated key is not the command's";
                return Err(CloseReason::Violation(what));
            }
            state.key = None;
        }
        if let Some(key) = state.key {
            self.open.push_back((slot, key));
        }
        if state.sending || state.key.is_some() {
            state.response = Some(response);
        } else {
            self.completed(slot, response);
        }
        Ok(())
    }

    fn completed(&mut self, slot: u16, completion: Completion) {
        let Some(state) = self.slots.end(slot) else { return };
        let SlotState { mut buffer, leased, expected, .. } = state;
        // Only the controller knows how much was written: after a success, all of it.
        let received = if completion.status().is_success() { expected } else { 0 };
        if let (Some(leased), Stage::Live(pair)) = (leased, &mut self.stage) {
            if let (Some(buffer), true) = (&mut buffer, received > 0) {
                leased.load(buffer);
            }
            if let Some(arena) = pair.arena() {
                arena.give(leased);
            }
        }
        let slot = Slot(slot);
        self.events.push_back(HostEvent::Completed { slot, completion, buffer, received });
    }

    /// Ends the connection now.
    fn shut(&mut self, reactor: &mut Reactor, reason: CloseReason) {
        match std::mem::replace(&mut self.stage, Stage::Shut) {
            Stage::Shut => return,
            Stage::Resolving(endpoint) => drop(endpoint),
            Stage::Connecting(pair) | Stage::Live(pair) => pair.end(),
        }
        self.capsules.clear();
        self.open.clear();
        self.reason.get_or_insert(reason);
        self.unsubscribe(reactor);
    }

    fn unsubscribe(&mut self, reactor: &mut Reactor) {
        self.deadline.clear(reactor);
        self.may_be_overlooked = false;
        reactor.clear_timer(self.token(CHORE));
        if let Some((engine, subscription)) = self.engine.take() {
            engine.unsubscribe(subscription);
        }
    }

    /// Reports the end once the connection is closed.
    fn raise_closed(&mut self) {
        if !matches!(self.stage, Stage::Shut) {
            return;
        }
        let Some(reason) = self.reason.take() else { return };
        let mut in_flight = Vec::new();
        self.slots.end_all(|slot, state| in_flight.push((slot, state.buffer)));
        self.events.push_back(HostEvent::Closed { reason, in_flight });
    }
}

impl Drop for RdmaHostConnection {
    fn drop(&mut self) {
        if let Some((engine, subscription)) = self.engine.take() {
            engine.unsubscribe(subscription);
        }
    }
}

/// Prepares the data of this slot's command for the controller. The error is that of this side, or
/// `None` if memory may be available later.
fn open(
    pair: &mut RdmaQueuePair,
    slot: u16,
    data: &HostData,
    in_capsule_bytes: u32,
) -> Result<DataAccess, Option<CloseReason>> {
    let failed = |error: io::Error| {
        log::debug!("{error}");
        Some(CloseReason::from(&error))
    };
    let nothing = Descriptor::keyed(0, 0, 0, false);
    let mut opened = DataAccess { pointer: nothing, data: None, leased: None, key: None };
    let (buffer, written) = match data {
        HostData::None => return Ok(opened),
        HostData::ToController(buffer) => (buffer, false),
        HostData::FromController(buffer) => (buffer, true),
    };
    let length = u32::try_from(buffer.len()).map_err(|_| None)?;
    if length == 0 {
        return Ok(opened);
    }
    if let Some(arena) = pair.arena() {
        let mut leased = arena.take(buffer.len())?;
        if !written {
            leased.store(buffer);
        }
        opened.leased = Some(leased);
    }
    if !written && length <= in_capsule_bytes {
        let piece = match &opened.leased {
            Some(leased) => leased.piece(0, buffer.len()),
            None => pair.piece_of(buffer, 0, buffer.len()),
        };
        opened.data = Some(piece.map_err(failed)?);
        opened.pointer = Descriptor::in_capsule(0, length);
        return Ok(opened);
    }
    let (address, key) = match &opened.leased {
        Some(leased) => (leased.buffer().address(), leased.remote_key()),
        None => {
            let key = pair.remote_key(buffer, slot, written).map_err(failed)?;
            opened.key = pair.has_windows().then_some(key);
            (buffer.address(), key)
        }
    };
    let address = u64::try_from(address).map_err(|_| None)?;
    opened.pointer = Descriptor::keyed(address, length, key, opened.key.is_some());
    Ok(opened)
}

/// Queues as many invalidations and capsules as the send queue has room for, and posts them.
fn put(
    pair: &mut RdmaQueuePair,
    open: &mut VecDeque<(u16, u32)>,
    capsules: &mut VecDeque<Capsule>,
) -> io::Result<()> {
    while pair.room() > 0
        && let Some((slot, key)) = open.pop_front()
    {
        pair.push_invalidate(key, slot);
    }
    while pair.room() > 1
        && let Some(Capsule { slot, command, data, binds }) = capsules.pop_front()
    {
        if binds {
            pair.push_bind(slot);
        }
        let what = data.map(|_| slot);
        pair.push_message(SendOperation::Send, command.bytes(), data, what)?;
    }
    pair.post()
}
