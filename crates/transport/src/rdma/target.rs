//! The target side: receives for every capsule that the host may have outstanding, data transferred
//! by RDMA READ and WRITE, and a response for each command.
//!
//! A capsule's receive is posted again as soon as its command has been copied, and before any
//! response, so that the host always finds as many receives as it may have commands outstanding.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use weft_nvme::rdma::{RejectPrivateData, RejectStatus};
use weft_nvme::{Command, Completion, Wire};
use weft_nvmf::limits::RDMA_DESCRIPTORS_MAX;
use weft_nvmf::rdma::{Data, Reply, data_of};
use weft_reactor::{Buffer, Owner, Pool, Reactor, SEND_SLICE_BYTES, Token};

use super::arena::{self, Arena};
use super::command::{Answer, SlotState, capsule_bytes, with_transport};
use super::engine::{Engine, Role};
use super::listen::Incoming;
use super::pair::{PairEvent, RdmaQueuePair, Sizes};
use super::verbs::{
    Access, CmEvent, Endpoint, Parameters, PrivateData, SendOperation, WorkCompletion,
};
use crate::capsules::Capsules;
use crate::deadline::Deadline;
use crate::limits::{
    FIRST_MESSAGE_TIMEOUT, IDLE_TIME, POOL_RETRY, RESERVE_SHARE, SHALLOW_QUEUE_DEPTH,
};
use crate::subscriptions::Subscription;
use crate::target::{CapsuleData, Event, Limits};
use crate::{CHORE, CloseReason, DEADLINE, EVENTS, KINDS, Slot};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Accepted, and not confirmed by the host.
    Accepting,
    /// Commands are received.
    Live,
    /// Sending what is queued.
    Closing,
    /// Closed.
    Shut,
}

#[derive(Debug)]
pub(crate) struct RdmaTargetConnection {
    pair: Option<RdmaQueuePair>,
    owner: Owner,
    base: u32,
    stage: Stage,
    /// Connect was accepted.
    has_queue: bool,
    shallow: bool,
    capsule_bytes: usize,
    initiator_depth: usize,
    can_invalidate: bool,
    /// Whether the first message may not be noticed (on soft-iWARP).
    may_overlook: bool,
    slots: Vec<SlotState>,
    free: Vec<u16>,
    /// Slots for in-capsule data, by receive.
    inside: Vec<arena::Slot>,
    /// Capsules received and not processed, for want of a buffer.
    arrived: VecDeque<(u32, u32)>,
    capsules: Capsules,
    fetches: VecDeque<u16>,
    reads: usize,
    answers: VecDeque<Answer>,
    events: VecDeque<Event>,
    work: Vec<WorkCompletion>,
    /// Commands whose READs have ended, while a completion is handled.
    done: Vec<u16>,
    /// When work last ended, or was posted to an empty send queue.
    moved_at: Duration,
    deadline: Deadline,
    waits_for_memory: bool,
    /// It is served between the commands of others, and its data is not held back for others'.
    is_express: bool,
    /// A buffer for the data of the first of them.
    provided: Option<Buffer>,
    /// There was no memory for a leased slot.
    needs_slot: bool,
    limits: Limits,
    local: SocketAddr,
    peer: SocketAddr,
    subscription: Option<(Engine, Subscription)>,
    /// Why it is being closed, until that is reported.
    reason: Option<CloseReason>,
}

impl RdmaTargetConnection {
    pub(crate) fn accept(
        reactor: &mut Reactor,
        owner: Owner,
        tag: u32,
        incoming: Incoming,
        limits: Limits,
    ) -> Self {
        let (local, peer) = (incoming.local_address(), incoming.peer_address());
        let entries = incoming.request.entries;
        let capsule_bytes = capsule_bytes(incoming.request.queue_id, &limits);
        let mut connection = Self {
            pair: None,
            owner,
            base: tag << 2,
            stage: Stage::Accepting,
            has_queue: false,
            shallow: entries <= SHALLOW_QUEUE_DEPTH,
            capsule_bytes,
            initiator_depth: 0,
            can_invalidate: false,
            may_overlook: false,
            slots: Vec::new(),
            free: (0..entries).rev().collect(),
            inside: Vec::new(),
            arrived: VecDeque::with_capacity(entries.into()),
            capsules: Capsules::default(),
            fetches: VecDeque::with_capacity(entries.into()),
            reads: 0,
            answers: VecDeque::with_capacity(entries.into()),
            events: VecDeque::with_capacity(entries.into()),
            work: Vec::new(),
            done: Vec::new(),
            moved_at: reactor.turn_time(),
            deadline: Deadline::new(Token::new(owner, tag << 2 | DEADLINE)),
            waits_for_memory: false,
            is_express: false,
            provided: None,
            needs_slot: false,
            limits,
            local,
            peer,
            subscription: None,
            reason: None,
        };
        connection.slots.resize_with(entries.into(), SlotState::default);
        if let Err(error) = connection.begin(reactor, incoming) {
            log::warn!("{peer}: an RDMA queue of {entries} entries cannot be created: {error}");
            connection.shut(reactor, CloseReason::from(&error));
        }
        connection.set_deadline(reactor, limits.handshake_timeout);
        connection
    }

    fn begin(&mut self, reactor: &mut Reactor, incoming: Incoming) -> io::Result<()> {
        let Incoming { inner, request, initiator_depth, .. } = incoming;
        self.initiator_depth = initiator_depth.into();
        let engine = Engine::of(reactor, Role::Target)?;
        let mut endpoint = engine.with_manager(|manager| manager.adopt(inner))?;
        let subscription = engine.subscribe(endpoint.key(), self.token(EVENTS))?;
        self.subscription = Some((engine.clone(), subscription));
        let sizes = match self.sizes(reactor, &engine, &endpoint) {
            Ok(sizes) => sizes,
            Err(error) => {
                let _ = endpoint.reject(no_resources().bytes());
                return Err(error);
            }
        };
        let responder_resources = 0;
        let mut pair = RdmaQueuePair::new(reactor, engine, subscription, endpoint, sizes)?;
        let begun = self.fill_receives(&mut pair, reactor.pool());
        let reply = Reply { controller_receives: request.entries };
        let depth = u8::try_from(self.initiator_depth).unwrap_or(u8::MAX);
        let parameters = Parameters {
            private_data: PrivateData::new(reply.to_wire().bytes()),
            responder_resources,
            initiator_depth: depth,
        };
        let accepted = begun.and_then(|()| pair.accept(&parameters));
        if accepted.is_err() {
            pair.reject(no_resources().bytes());
        }
        self.pair = Some(pair);
        accepted
    }

    /// The sizes of the queue pair.
    fn sizes(
        &mut self,
        reactor: &mut Reactor,
        engine: &Engine,
        endpoint: &Endpoint,
    ) -> io::Result<Sizes> {
        let hold = engine.hold(endpoint, reactor, false)?;
        let hold = hold.borrow();
        let attributes = hold.attributes();
        let entries = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        if entries > attributes.queue_depth_max || attributes.pieces_max < 2 {
            let what = "the queues of the device are too short";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        // A host that serves no READs can still send its data in capsules.
        self.initiator_depth = self.initiator_depth.min(attributes.initiator_depth_max.into());
        self.can_invalidate = attributes.send_with_invalidate;
        self.may_overlook = attributes.soft_iwarp && self.initiator_depth > 0;
        let descriptors = u32::try_from(RDMA_DESCRIPTORS_MAX).unwrap_or(u32::MAX);
        Ok(Sizes {
            sends: entries.saturating_mul(2).saturating_add(descriptors),
            receives: entries,
            message_bytes: Completion::SIZE,
            received_bytes: Command::SIZE,
            windows: 0,
            wide: false,
            leased: attributes.sink_is_remote().then_some(Access {
                local_write: true,
                remote_write: true,
                ..Access::default()
            }),
        })
    }

    fn fill_receives(&mut self, pair: &mut RdmaQueuePair, pool: &Pool) -> io::Result<()> {
        // A new queue does not wait for memory: it gets its slots or is refused.
        let reserve = pool.capacity() / RESERVE_SHARE;
        for index in 0..u32::try_from(self.slots.len()).unwrap_or(0) {
            let buffer = pool.take_leaving(reserve, self.capsule_bytes);
            let buffer = buffer.ok_or(io::ErrorKind::OutOfMemory)?;
            let slot = pair.name(buffer)?;
            pair.push_receive(index, Some(&slot))?;
            self.inside.push(slot);
        }
        pair.post()
    }

    pub(crate) fn local_address(&self, _: &Reactor) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    pub(crate) fn peer_address(&self, _: &Reactor) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn is_ending(&self, _: &Reactor) -> bool {
        let gone =
            |(engine, subscription): &(Engine, Subscription)| engine.is_ending(*subscription);
        !self.is_open() || self.subscription.as_ref().is_none_or(gone)
    }

    /// Bytes held for a host that has made no progress for `patience`. The device reports a host
    /// that does not respond, but not one that posts no receives for its responses.
    pub(crate) fn stalled_bytes(&self, now: Duration, patience: Duration) -> usize {
        let Some(pair) = self.pair.as_ref().filter(|pair| !pair.is_quiet()) else { return 0 };
        if now.saturating_sub(self.moved_at) < patience {
            return 0;
        }
        let fetching = self.slots.iter().filter_map(|state| state.buffer.as_deref());
        let waiting = self.answers.iter().filter_map(|answer| answer.data.as_deref());
        fetching.chain(waiting).map(<[u8]>::len).sum::<usize>() + pair.posted_bytes()
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

    pub(crate) fn wanted(&self) -> Option<usize> {
        let waits = self.stage == Stage::Live && !self.arrived.is_empty();
        (waits && !self.capsules.are_bound()).then_some(self.capsule_bytes)
    }

    pub(crate) const fn bound_capsules(&mut self, leave: Option<usize>) {
        self.capsules.leave = leave;
    }

    pub(crate) fn provide(&mut self, reactor: &mut Reactor, buffer: Buffer) {
        self.provided = Some(buffer);
        self.take_capsules(reactor);
        self.provided = None;
    }

    /// Has the engine hand out what comes for it apart from the others, or no longer.
    pub(crate) fn set_express(&mut self, is_express: bool) -> io::Result<()> {
        let (engine, subscription) =
            self.subscription.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        engine.set_express(*subscription, is_express);
        self.is_express = is_express;
        Ok(())
    }

    pub(crate) fn set_queue(&mut self, _: u16, depth: u16, _: bool) {
        self.has_queue = true;
        self.shallow = depth <= SHALLOW_QUEUE_DEPTH;
    }

    pub(crate) fn handle(
        &mut self,
        reactor: &mut Reactor,
        completion: weft_reactor::ReactorCompletion,
    ) {
        if self.stage == Stage::Shut {
            return;
        }
        match completion.token.tag & KINDS {
            EVENTS => self.handle_source_events(reactor),
            DEADLINE => self.handle_deadline(reactor),
            _ => {
                self.waits_for_memory = false;
                self.take_capsules(reactor);
                self.release_idle(reactor);
                self.send_wake_up_read(reactor);
            }
        }
        self.finish_close(reactor);
    }

    pub(crate) fn receive(&mut self, slot: Slot, buffer: Buffer) {
        let Some(state) = self.slots.get_mut(slot.index()).filter(|_| self.stage == Stage::Live)
        else {
            return;
        };
        debug_assert!(state.in_flight && !buffer.is_shared());
        if buffer.is_empty() || state.remote.is_none() {
            self.events.push_back(Event::Data { slot, buffer, result: Ok(()) });
        } else {
            state.buffer = Some(buffer);
            self.fetches.push_back(slot.0);
        }
    }

    pub(crate) fn send(&mut self, slot: Slot, buffer: Buffer, completion: Completion) {
        if self.is_open() {
            let data = Some(buffer).filter(|buffer| !buffer.is_empty());
            self.answers.push_back(Answer { slot: slot.0, completion, data });
        }
    }

    pub(crate) fn complete(&mut self, slot: Slot, completion: Completion) {
        let Some(state) = self.slots.get_mut(slot.index()).filter(|_| self.stage == Stage::Live)
        else {
            return;
        };
        if state.reads > 0 {
            state.late = Some(completion);
            return;
        }
        if state.buffer.take().is_some() {
            self.fetches.retain(|waiting| *waiting != slot.0);
        }
        self.answers.push_back(Answer { slot: slot.0, completion, data: None });
    }

    pub(crate) fn discard(&mut self, slot: Slot) {
        if let Some(state) = self.slots.get_mut(slot.index())
            && std::mem::take(&mut state.in_flight)
        {
            self.free.push(slot.0);
            if std::mem::take(&mut state.in_capsule) {
                self.capsules.remove();
            }
        }
    }

    pub(crate) fn flush(&mut self, reactor: &mut Reactor) {
        if self.pair.as_ref().is_some_and(RdmaQueuePair::is_quiet) {
            self.moved_at = reactor.turn_time();
        }
        if let Err(error) = self.put() {
            self.shut(reactor, CloseReason::from(&error));
        }
        let tries_again = self.shallow || self.capsules.leave.is_some();
        let waits = tries_again && !self.arrived.is_empty() || self.needs_slot;
        if waits && !std::mem::replace(&mut self.waits_for_memory, true) {
            let at = reactor.now().saturating_add(POOL_RETRY);
            reactor.set_timer(self.token(CHORE), at);
        }
    }

    pub(crate) fn close(&mut self, reactor: &mut Reactor, reason: CloseReason) {
        match self.stage {
            Stage::Accepting => self.shut(reactor, reason),
            Stage::Live => {
                self.stage = Stage::Closing;
                self.reason = Some(reason);
                self.events.clear();
                self.arrived.clear();
                self.fetches.clear();
                self.set_deadline(reactor, self.limits.close_timeout);
                self.finish_close(reactor);
            }
            Stage::Closing | Stage::Shut => {}
        }
    }

    pub(crate) fn abort(&mut self, reactor: &mut Reactor, reason: CloseReason) {
        self.shut(reactor, reason);
    }

    fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Accepting | Stage::Live)
    }

    fn token(&self, kind: u32) -> Token {
        Token::new(self.owner, self.base | kind)
    }

    fn set_deadline(&mut self, reactor: &mut Reactor, timeout: Duration) {
        if self.stage != Stage::Shut {
            self.deadline.set(reactor, timeout);
        }
    }

    fn handle_deadline(&mut self, reactor: &mut Reactor) {
        if !self.deadline.take_due(reactor) {
            return;
        }
        match self.stage {
            Stage::Closing => self.shut(reactor, CloseReason::PeerClosed),
            Stage::Accepting | Stage::Live if !self.has_queue => {
                if self.in_flight() == 0 {
                    return self.shut(reactor, CloseReason::HandshakeTimeout);
                }
                // The owner is executing Connect.
                self.set_deadline(reactor, self.limits.handshake_timeout);
            }
            _ => {}
        }
    }

    fn handle_source_events(&mut self, reactor: &mut Reactor) {
        let Some((engine, subscription)) = self.subscription.clone() else { return };
        let mut work = std::mem::take(&mut self.work);
        engine.take_work(subscription, &mut work);
        if !work.is_empty() {
            self.moved_at = reactor.turn_time();
        }
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
        self.take_capsules(reactor);
    }

    fn handle_cm_event(&mut self, reactor: &mut Reactor, event: &CmEvent) {
        let reason = match event {
            CmEvent::Established { .. } => {
                self.release_idle(reactor);
                if self.stage == Stage::Accepting {
                    self.stage = Stage::Live;
                    self.schedule_wake_up_read(reactor);
                }
                return;
            }
            CmEvent::Disconnected => CloseReason::PeerClosed,
            CmEvent::DeviceRemoved => CloseReason::DeviceRemoved,
            CmEvent::AddressChanged => CloseReason::AddressChanged,
            CmEvent::Failed { error, .. } => {
                CloseReason::from(&io::Error::from_raw_os_error(*error))
            }
            _ => return,
        };
        self.shut(reactor, reason);
    }

    /// Frees the leased memory of an idle connection.
    fn release_idle(&mut self, reactor: &mut Reactor) {
        if let Some(arena) = self.pair.as_mut().and_then(RdmaQueuePair::arena) {
            arena.release_idle();
            let at = reactor.now().saturating_add(IDLE_TIME);
            reactor.set_timer(self.token(CHORE), at);
        }
    }

    /// Where the first message may not be noticed, schedules a READ or WRITE of no data. Delayed,
    /// because the host may not know yet that the connection is established.
    fn schedule_wake_up_read(&self, reactor: &mut Reactor) {
        if self.may_overlook && self.stage == Stage::Live && !self.has_queue {
            let at = reactor.now().saturating_add(FIRST_MESSAGE_TIMEOUT);
            reactor.set_timer(self.token(CHORE), at);
        }
    }

    fn send_wake_up_read(&mut self, reactor: &mut Reactor) {
        let idle = self.in_flight() == 0 && self.arrived.is_empty();
        if let Some(pair) = &mut self.pair
            && self.may_overlook
            && self.stage == Stage::Live
            && !self.has_queue
            && idle
            && pair.is_quiet()
        {
            pair.push_wake_up_read(SendOperation::Read { address: 0, key: 0 });
        }
        self.schedule_wake_up_read(reactor);
    }

    fn handle_work(&mut self, reactor: &mut Reactor, completion: &WorkCompletion) {
        let Some(mut pair) = self.pair.take() else { return };
        let mut done = std::mem::take(&mut self.done);
        let handled = pair.handle(completion, |ended| match ended {
            PairEvent::Received { index, bytes, .. } => self.arrived.push_back((index, bytes)),
            PairEvent::Sent { what } => done.push(what),
        });
        for slot in done.drain(..) {
            self.handle_read(&mut pair, slot);
        }
        self.done = done;
        self.pair = Some(pair);
        if let Err(reason) = handled {
            self.shut(reactor, reason);
        }
    }

    /// Ends a READ of this slot.
    fn handle_read(&mut self, pair: &mut RdmaQueuePair, slot: u16) {
        self.reads = self.reads.saturating_sub(1);
        let Some(state) = self.slots.get_mut(usize::from(slot)) else { return };
        state.reads = state.reads.saturating_sub(1);
        if state.reads > 0 {
            return;
        }
        let mut buffer = state.buffer.take();
        if let (Some(leased), Some(arena)) = (state.leased.take(), pair.arena()) {
            if let Some(buffer) = &mut buffer {
                leased.load(buffer);
            }
            arena.give(leased);
        }
        if let Some(completion) = state.late.take() {
            self.answers.push_back(Answer { slot, completion, data: None });
        } else if let (Some(buffer), Stage::Live) = (buffer, self.stage) {
            self.events.push_back(Event::Data { slot: Slot(slot), buffer, result: Ok(()) });
        }
    }

    /// Takes commands from the received capsules, while there is memory for their data.
    fn take_capsules(&mut self, reactor: &mut Reactor) {
        // A capsule may arrive before the event that the connection is established.
        if self.stage == Stage::Accepting && !self.arrived.is_empty() {
            self.stage = Stage::Live;
        }
        while self.stage == Stage::Live
            && let Some((index, bytes)) = self.arrived.front().copied()
        {
            match self.take_capsule(reactor.pool(), index, bytes) {
                Ok(true) => {
                    self.arrived.pop_front();
                }
                Ok(false) => return,
                Err(reason) => return self.shut(reactor, reason),
            }
        }
    }

    /// Takes a command from its capsule and posts the receive again. `false`: there is no memory
    /// for its data.
    fn take_capsule(&mut self, pool: &Pool, index: u32, bytes: u32) -> Result<bool, CloseReason> {
        let Some(pair) = &mut self.pair else { return Ok(false) };
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let Some(in_capsule) = length.checked_sub(Command::SIZE) else {
            return Err(CloseReason::Violation("a capsule is shorter than a command"));
        };
        let command = Command::read(pair.received(index)).unwrap_or_default();
        let place = self.inside.get_mut(usize::try_from(index).unwrap_or(usize::MAX));
        let Some(place) = place else { return Ok(true) };
        let capsule = place.buffer().get(..in_capsule);
        let data = data_of(&command, capsule.unwrap_or_default());
        let Some(&slot) = self.free.last() else {
            return Err(CloseReason::Violation("more commands than the queue has entries"));
        };
        let (command, remote, capsule) = match data {
            Ok(Data::None) => (with_transport(command, 0), None, CapsuleData::None),
            Ok(Data::Remote(remote)) => {
                (with_transport(command, remote.length()), Some(remote), CapsuleData::None)
            }
            Ok(Data::InCapsule { length }) => {
                let room = self.capsule_bytes;
                let taken = self.provided.take();
                let taken = taken.or_else(|| match self.shallow && !self.capsules.are_bound() {
                    true => pool.take_reserved(room),
                    false if self.capsules.may_add(pool) => pool.take(room),
                    false => None,
                });
                let Some(fresh) = taken else { return Ok(false) };
                let mut buffer = place.exchange(fresh);
                buffer.set_len(usize::try_from(length).unwrap_or(0).min(in_capsule));
                buffer.shrink_to_fit();
                (command, None, CapsuleData::Inline(buffer))
            }
            Err(status) => (with_transport(command, 0), None, CapsuleData::Invalid(status)),
        };
        if let Err(error) = pair.push_receive(index, Some(place)) {
            return Err(CloseReason::from(&error));
        }
        self.free.pop();
        let in_capsule = matches!(capsule, CapsuleData::Inline(_));
        if in_capsule {
            self.capsules.add();
        }
        if let Some(state) = self.slots.get_mut(usize::from(slot)) {
            let default = SlotState::default();
            *state = SlotState { in_flight: true, command, remote, in_capsule, ..default };
        }
        self.events.push_back(Event::Command { slot: Slot(slot), data: capsule });
        Ok(true)
    }

    /// Queues as much as the send queue has room for, and posts it.
    fn put(&mut self) -> io::Result<()> {
        let Some(mut pair) = self.pair.take() else { return Ok(()) };
        let result = self.put_on(&mut pair);
        self.pair = Some(pair);
        result
    }

    fn put_on(&mut self, pair: &mut RdmaQueuePair) -> io::Result<()> {
        self.needs_slot = false;
        while let Some(answer) = self.answers.front()
            && pair.room() > self.parts_of(answer)
            && self.may_post(pair, answer)
            && let Some(answer) = self.answers.pop_front()
        {
            if let Some(answer) = self.put_answer(pair, answer)? {
                self.answers.push_front(answer);
                self.needs_slot = true;
                break;
            }
        }
        while let Some(slot) = self.fetches.front().copied() {
            let state = self.slots.get(usize::from(slot));
            let parts =
                state.and_then(|state| Some(state.remote.as_ref()?.parts(u32::MAX).count()));
            let parts = parts.unwrap_or(0);
            let deep = self.reads > 0 && self.reads + parts > self.initiator_depth;
            if deep || pair.room() < parts {
                break;
            }
            if !self.put_fetch(pair, slot)? {
                self.needs_slot = true;
                break;
            }
            self.fetches.pop_front();
        }
        pair.post()
    }

    /// Whether an answer's data may be written now: express connections do not wait for more than a
    /// slice of others'. What waits is written when the data before it has been.
    fn may_post(&self, pair: &RdmaQueuePair, answer: &Answer) -> bool {
        let Some(data) = &answer.data else { return true };
        self.is_express || pair.may_post(data.len(), SEND_SLICE_BYTES)
    }

    /// The number of WRITEs before a response.
    fn parts_of(&self, answer: &Answer) -> usize {
        if answer.data.is_none() {
            return 0;
        }
        let state = self.slots.get(usize::from(answer.slot));
        let remote = state.and_then(|state| state.remote.as_ref());
        remote.map_or(0, |remote| remote.parts(u32::MAX).count())
    }

    /// Queues a response, or returns it if there is no memory to send its data from.
    fn put_answer(
        &mut self,
        pair: &mut RdmaQueuePair,
        answer: Answer,
    ) -> io::Result<Option<Answer>> {
        let Some(state) = self.slots.get_mut(usize::from(answer.slot)) else { return Ok(None) };
        let from = match (&answer.data, pair.arena()) {
            (Some(buffer), Some(arena)) => {
                let Some(mut leased) = leased(arena, buffer)? else { return Ok(Some(answer)) };
                leased.store(buffer);
                Some(leased)
            }
            _ => None,
        };
        let Answer { slot, completion, data } = answer;
        let data = from.or_else(|| data.map(arena::Slot::of_pool));
        let remote = state.remote.take();
        if let (Some(remote), Some(data)) = (&remote, &data) {
            for part in remote.parts(u32::try_from(data.buffer().len()).unwrap_or(u32::MAX)) {
                let operation = SendOperation::Write { address: part.address, key: part.key };
                let piece = pair.piece(data, size(part.offset), size(part.length))?;
                pair.push_transfer(operation, piece, None);
            }
        }
        let invalidate = remote.and_then(|remote| remote.invalidate());
        let operation = match invalidate.filter(|_| self.can_invalidate) {
            Some(key) => SendOperation::SendInvalidate { key },
            None => SendOperation::Send,
        };
        pair.push_message(operation, completion.bytes(), None, None)?;
        if let Some(data) = data {
            pair.keep(data);
        }
        if std::mem::take(&mut state.in_capsule) {
            self.capsules.remove();
        }
        if std::mem::take(&mut state.in_flight) {
            self.free.push(slot);
        }
        Ok(None)
    }

    /// Queues the READs of a command's data, unless there is no memory to read into.
    fn put_fetch(&mut self, pair: &mut RdmaQueuePair, slot: u16) -> io::Result<bool> {
        let Some(state) = self.slots.get_mut(usize::from(slot)) else { return Ok(true) };
        let (Some(remote), Some(buffer)) = (&state.remote, &state.buffer) else { return Ok(true) };
        if let Some(arena) = pair.arena() {
            let Some(leased) = leased(arena, buffer)? else { return Ok(false) };
            state.leased = Some(leased);
        }
        for part in remote.parts(u32::try_from(buffer.len()).unwrap_or(u32::MAX)) {
            let operation = SendOperation::Read { address: part.address, key: part.key };
            let (start, length) = (size(part.offset), size(part.length));
            let piece = match &state.leased {
                Some(leased) => leased.piece(start, length)?,
                None => pair.piece_of(buffer, start, length)?,
            };
            pair.push_transfer(operation, piece, Some(slot));
            state.reads += 1;
            self.reads += 1;
        }
        Ok(true)
    }

    /// Ends a connection that is being closed, once what was queued has been sent.
    fn finish_close(&mut self, reactor: &mut Reactor) {
        let is_quiet = self.pair.as_ref().is_none_or(RdmaQueuePair::is_quiet);
        if self.stage == Stage::Closing && self.answers.is_empty() && is_quiet {
            self.shut(reactor, CloseReason::PeerClosed);
        }
    }

    /// Ends the connection now. If it was being closed already, the first reason is kept.
    fn shut(&mut self, reactor: &mut Reactor, reason: CloseReason) {
        if self.stage == Stage::Shut {
            return;
        }
        let reason = self.reason.take().unwrap_or(reason);
        self.stage = Stage::Shut;
        self.deadline.clear(reactor);
        reactor.clear_timer(self.token(CHORE));
        match (self.pair.take(), self.subscription.take()) {
            (Some(pair), _) => pair.end(),
            (None, Some((engine, subscription))) => engine.unsubscribe(subscription),
            (None, None) => {}
        }
        self.events.clear();
        self.answers.clear();
        self.arrived.clear();
        self.fetches.clear();
        self.inside.clear();
        self.slots.iter_mut().for_each(|state| *state = SlotState::default());
        self.events.push_back(Event::Closed { reason });
    }
}

impl Drop for RdmaTargetConnection {
    fn drop(&mut self) {
        if let Some((engine, subscription)) = self.subscription.take() {
            engine.unsubscribe(subscription);
        }
    }
}

/// A slot for the length of a buffer; `None` while the pool is empty.
fn leased(arena: &mut Arena, buffer: &Buffer) -> io::Result<Option<arena::Slot>> {
    match arena.take(buffer.len()) {
        Ok(slot) => Ok(Some(slot)),
        Err(None) => Ok(None),
        Err(Some(why)) => Err(io::Error::other(why.to_string())),
    }
}

fn size(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn no_resources() -> RejectPrivateData {
    RejectPrivateData::new(RejectStatus::NO_RESOURCES)
}
