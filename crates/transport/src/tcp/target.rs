//! The target side: a session, the buffers of its commands, and the progress of Connect.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use weft_nvme::sgl::Location;
use weft_nvme::{Command, Completion, Status};
use weft_nvmf::tcp::encode::DataPdu;
use weft_nvmf::tcp::target::{Session, SessionEvent};
use weft_nvmf::tcp::{FatalError, Negotiated, Sink};
use weft_reactor::{Buffer, Life, Outcome, Owner, Reactor, SocketId, Stream};

use super::layer::Layer;
use super::link::{Direct, Input, Link, LinkEvent};
use super::security::{DetachedSecurity, Security};
use crate::capsules::Capsules;
use crate::limits::{DIRECT_RECEIVE_BYTES, POOL_RETRY, SHALLOW_QUEUE_DEPTH, STALL_SHARE};
use crate::target::{CapsuleData, Event, Limits};
use crate::tls::{TlsAcceptor, TlsFault, TlsMode, TlsRecords};
use crate::{CloseReason, DataDigestError, Slot};

/// The progress of a connection. Nothing is received in the stages marked with a star, because what
/// the host may send depends on what it is sent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Waiting for ICReq.
    AwaitingRequest,
    /// * Sending ICResp.
    Responding,
    /// Waiting for the first command or its data.
    AwaitingConnect,
    /// * The owner is executing the first command.
    Connecting,
    /// The queue is ready.
    Ready,
}

#[derive(Debug, Default)]
struct SlotState {
    in_flight: bool,
    command: Command,
    /// The buffer for its data.
    buffer: Option<Buffer>,
    /// A completion to be sent once the requested data has arrived.
    late: Option<Completion>,
    /// Its data came in the capsule.
    in_capsule: bool,
}

/// A command that waits for a buffer for its in-capsule data.
#[derive(Debug, Clone, Copy)]
struct WaitingCommand {
    slot: u16,
    bytes: usize,
}

/// The held and received bytes at the last check for a stalled host.
#[derive(Debug, Clone, Copy)]
struct Progress {
    at: Duration,
    held: usize,
    received: u64,
}

#[derive(Debug)]
pub(crate) struct TcpTargetConnection {
    link: Link,
    session: Session,
    stage: Stage,
    shallow: bool,
    slots: Vec<SlotState>,
    starved: Option<WaitingCommand>,
    capsules: Capsules,
    /// Commands whose responses wait until the kernel has taken the current send.
    unsent: usize,
    events: VecDeque<Event>,
    limits: Limits,
    /// The result of the last check for a stalled host.
    progress: Option<Progress>,
    /// Why the connection ends, until that is reported.
    reason: Option<CloseReason>,
}

/// The state that moves to another reactor.
#[derive(Debug)]
pub(crate) struct DetachedConnection {
    stream: Stream,
    security: Option<DetachedSecurity>,
    session: Session,
    limits: Limits,
    /// Its Connect, which is in flight.
    command: Command,
    input: Vec<u8>,
}

impl TcpTargetConnection {
    pub(crate) fn accept(
        reactor: &mut Reactor,
        owner: Owner,
        tag: u32,
        socket: SocketId,
        limits: Limits,
    ) -> Self {
        let session = Session::new(limits.tcp);
        let mut connection = Self::new(owner, tag, socket, session, limits);
        connection.link.set_deadline(reactor, limits.handshake_timeout);
        connection.flush(reactor);
        connection
    }

    /// Uses TLS for it, before anything is received.
    pub(crate) fn secure(
        &mut self,
        acceptor: &TlsAcceptor,
        mode: TlsMode,
        records: TlsRecords,
    ) -> Result<(), TlsFault> {
        if mode != TlsMode::Off {
            self.link.set_layer(Layer::accept(acceptor, mode, records)?);
        }
        Ok(())
    }

    /// The identity of the PSK, if it has TLS.
    pub(crate) fn tls_identity(&self) -> Option<String> {
        self.link.security()?.identity()
    }

    pub(crate) fn tls_records(&self) -> Option<TlsRecords> {
        self.link.security().map(Security::records)
    }

    pub(crate) fn detach(
        mut self: Box<Self>,
        reactor: &mut Reactor,
    ) -> Result<DetachedConnection, Box<Self>> {
        if self.stage != Stage::Connecting || !self.link.is_flushed() || !self.events.is_empty() {
            return Err(self);
        }
        let Some(socket) = self.link.take_socket(reactor) else { return Err(self) };
        let security = self.link.take_security();
        let input = self.link.input.as_ref().map(|input| input.bytes().to_vec());
        let command = self.command(Slot(0)).copied().unwrap_or_default();
        let Self { session, limits, .. } = *self;
        let stream = reactor.take_stream(socket);
        Ok(DetachedConnection {
            stream,
            security,
            session,
            limits,
            command,
            input: input.unwrap_or_default(),
        })
    }

    pub(crate) fn attach(
        reactor: &mut Reactor,
        owner: Owner,
        tag: u32,
        detached: DetachedConnection,
    ) -> io::Result<Self> {
        let DetachedConnection { stream, security, session, limits, command, input } = detached;
        let socket = reactor.add_stream(stream)?;
        let mut connection = Self::new(owner, tag, socket, session, limits);
        if let Some(security) = security {
            connection.link.attach_security(security);
        }
        connection.link.input = (!input.is_empty()).then(|| Input::parked(input));
        connection.stage = Stage::Connecting;
        connection.slots[0] = SlotState { in_flight: true, command, ..SlotState::default() };
        connection.link.set_deadline(reactor, limits.handshake_timeout);
        Ok(connection)
    }

    pub(crate) fn local_address(&self, reactor: &Reactor) -> io::Result<SocketAddr> {
        reactor.local_address(self.link.socket()?)
    }

    pub(crate) fn peer_address(&self, reactor: &Reactor) -> io::Result<SocketAddr> {
        reactor.peer_address(self.link.socket()?)
    }

    pub(crate) fn is_ending(&self, reactor: &Reactor) -> bool {
        !self.link.is_open() || self.link.socket().is_ok_and(|socket| reactor.has_hung_up(socket))
    }

    pub(crate) fn life_since(&self, reactor: &Reactor, since: Duration) -> Life {
        self.link.socket().map_or(Life::Doubtful, |socket| reactor.life_since(socket, since))
    }

    pub(crate) fn negotiated(&self) -> Option<&Negotiated> {
        self.session.negotiated()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.session.in_flight()
    }

    pub(crate) fn set_express(&self, reactor: &mut Reactor, is_express: bool) -> io::Result<()> {
        reactor.set_express(self.link.socket()?, is_express)
    }

    /// Bytes held for a host that has made no progress for `patience`, or too little since the last
    /// call.
    pub(crate) fn stalled_bytes(&mut self, now: Duration, patience: Duration) -> usize {
        let buffers = self.slots.iter().filter_map(|state| state.buffer.as_deref());
        // The host cannot move while it is not received from; but what it holds beside the data in
        // capsules, which has a bound of its own, others wait for.
        let held = match self.is_paused() && !self.is_bound() {
            true => 0,
            false => buffers.map(<[u8]>::len).sum::<usize>() + self.link.lent_bytes(),
        };
        let received = self.link.received();
        let dribbles = self.progress.is_some_and(|progress| {
            // The share of what was held then and is held now; later requests are too recent.
            let owed = progress.held.min(held) / STALL_SHARE;
            let since = now.saturating_sub(progress.at);
            let moved =
                usize::try_from(received.wrapping_sub(progress.received)).unwrap_or(usize::MAX);
            (patience..=3 * patience).contains(&since) && moved < owed
        });
        if self.progress.is_none_or(|progress| now.saturating_sub(progress.at) >= patience) {
            self.progress = Some(Progress { at: now, held, received });
        }
        let is_still = dribbles || self.link.is_silent(now, patience);
        self.link.stalled_bytes(now, patience) + if is_still { held } else { 0 }
    }

    pub(crate) fn peek_command<'a>(
        &self,
        completion: &'a weft_reactor::ReactorCompletion,
    ) -> Option<&'a Command> {
        match &completion.outcome {
            Outcome::Received { buffer, len }
                if self.stage == Stage::Ready && self.link.layer().is_none() =>
            {
                self.session.peek_command(buffer.get(..*len)?)
            }
            _ => None,
        }
    }

    /// No events while the host does not read its responses.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        if self.is_backed_up() { None } else { self.events.pop_front() }
    }

    pub(crate) fn command(&self, slot: Slot) -> Option<&Command> {
        let state = self.slots.get(slot.index())?;
        state.in_flight.then_some(&state.command)
    }

    pub(crate) fn events(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty() && !self.is_backed_up()
    }

    /// In-capsule data for which there is no memory; nothing is received meanwhile.
    pub(crate) fn wanted(&self) -> Option<usize> {
        let waits = self.link.is_open() && !self.capsules.are_bound();
        self.starved.map(|starved| starved.bytes).filter(|_| waits)
    }

    pub(crate) const fn bound_capsules(&mut self, leave: Option<usize>) {
        self.capsules.leave = leave;
    }

    /// Passes that memory.
    pub(crate) fn provide(&mut self, reactor: &mut Reactor, buffer: Buffer) {
        self.fill(buffer);
        self.process(reactor);
        self.raise_closed();
    }

    pub(crate) fn copied_bytes(&self) -> usize {
        self.link.copied_bytes()
    }

    pub(crate) fn handle(
        &mut self,
        reactor: &mut Reactor,
        completion: weft_reactor::ReactorCompletion,
    ) {
        match self.link.handle(reactor, completion) {
            LinkEvent::Nothing | LinkEvent::Connected => {}
            LinkEvent::Input => self.process(reactor),
            LinkEvent::Direct(direct) => {
                self.handle_direct(direct);
                self.process(reactor);
            }
            LinkEvent::Sent => self.handle_sent(reactor),
            LinkEvent::Deadline => self.handle_deadline(reactor),
            LinkEvent::Chore => {
                self.retry(reactor);
                self.process(reactor);
            }
            LinkEvent::Lost(reason) => self.lose(reactor, reason),
        }
        self.raise_closed();
    }

    pub(crate) fn set_queue(&mut self, queue_id: u16, depth: u16, sq_flow_control: bool) {
        self.session.set_queue(queue_id, depth, sq_flow_control);
        self.shallow = depth <= SHALLOW_QUEUE_DEPTH;
        self.stage = Stage::Ready;
        let depth = usize::from(depth);
        if self.slots.len() < depth {
            self.slots.resize_with(depth, SlotState::default);
        }
        self.events.reserve(depth);
    }

    pub(crate) fn receive(&mut self, slot: Slot, buffer: Buffer) {
        let Some(state) = self.slots.get_mut(slot.index()).filter(|_| self.link.is_open()) else {
            return;
        };
        debug_assert!(state.in_flight && !buffer.is_shared());
        match u32::try_from(buffer.len()) {
            Ok(0) | Err(_) => {
                self.events.push_back(Event::Data { slot, buffer, result: Ok(()) });
            }
            Ok(length) => {
                state.buffer = Some(buffer);
                if self.stage == Stage::Connecting {
                    self.stage = Stage::AwaitingConnect;
                }
                self.session.request_data(slot.0, length, &mut self.link.outgoing);
            }
        }
    }

    pub(crate) fn send(&mut self, slot: Slot, buffer: Buffer, completion: Completion) {
        if !self.link.is_open() {
            return;
        }
        let total = buffer.len();
        let success = self.session.success_suffices(&completion);
        let most = usize::try_from(self.session.c2h_data_bytes()).unwrap_or(usize::MAX);
        let mut start = 0;
        while start < total {
            let end = total.min(start.saturating_add(most));
            let last = end == total;
            // A buffer has at most 4 MiB.
            let offset = u32::try_from(start).unwrap_or(u32::MAX);
            let length = u32::try_from(end - start).unwrap_or(u32::MAX);
            let outgoing = &mut self.link.outgoing;
            let success = last && success;
            let pdu = DataPdu { offset, length, last, success, ..DataPdu::default() };
            self.session.put_data(slot.0, pdu, outgoing);
            outgoing.payload(&buffer, start, end);
            if let Some(digest) = self.session.data_digest(&buffer[start..end]) {
                outgoing.put(&digest);
            }
            start = end;
        }
        if total > 0 && success {
            self.free(slot);
        } else {
            self.respond(slot, &completion);
        }
    }

    pub(crate) fn complete(&mut self, slot: Slot, completion: Completion) {
        if !self.link.is_open() {
            return;
        }
        if self.session.abandon(slot.0) {
            if let Some(state) = self.slots.get_mut(slot.index()) {
                state.late = Some(completion);
                state.buffer = None;
            }
        } else {
            self.respond(slot, &completion);
        }
    }

    pub(crate) fn discard(&mut self, slot: Slot) {
        if self.link.is_open() {
            self.free(slot);
        }
    }

    pub(crate) fn flush(&mut self, reactor: &mut Reactor) {
        if self.link.send(reactor) {
            self.unsent = 0;
        }
        if self.starved.is_some() {
            self.retry(reactor);
        }
        if self.is_paused() || self.link.is_receiving() {
            return;
        }
        if self.link.input.is_some() || self.link.has_more() {
            // Input was left while the connection was paused, and is processed in `handle`.
            return self.link.set_chore(reactor, Duration::ZERO);
        }
        // What comes over TLS is decrypted into a command's buffer, not received into it.
        let direct = if self.link.layer().is_none() { self.direct() } else { None };
        match direct {
            Some(direct) => self.link.receive_into(reactor, direct),
            None => self.link.receive(reactor),
        }
    }

    pub(crate) fn close(&mut self, reactor: &mut Reactor, reason: CloseReason) {
        self.begin_close(reactor, reason, false);
        self.raise_closed();
    }

    pub(crate) fn abort(&mut self, reactor: &mut Reactor, reason: CloseReason) {
        if self.link.is_open() {
            self.reason = Some(reason);
        }
        self.link.shut(reactor);
        self.raise_closed();
    }

    fn new(owner: Owner, tag: u32, socket: SocketId, session: Session, limits: Limits) -> Self {
        Self {
            link: Link::new(owner, tag, Some(socket)),
            session,
            stage: Stage::AwaitingRequest,
            shallow: true,
            slots: vec![SlotState::default()],
            starved: None,
            capsules: Capsules::default(),
            unsent: 0,
            events: VecDeque::new(),
            limits,
            progress: None,
            reason: None,
        }
    }

    /// Whether nothing may be processed now.
    fn is_paused(&self) -> bool {
        matches!(self.stage, Stage::Responding | Stage::Connecting)
            || self.starved.is_some()
            || self.is_backed_up()
            || !self.link.is_open()
    }

    /// Whether it waits for room for in-capsule data beside what it has in flight.
    const fn is_bound(&self) -> bool {
        self.starved.is_some() && self.capsules.are_bound()
    }

    /// Whether the host does not read its responses. For the host, the command of an unread
    /// response is still in flight, so a host that keeps to its queue depth is not delayed by this,
    /// and another cannot fill the memory with responses.
    fn is_backed_up(&self) -> bool {
        (self.unsent > self.slots.len() || self.link.is_backed_up()) && self.link.is_open()
    }

    /// Processes received input until it is used up or the connection is paused.
    fn process(&mut self, reactor: &mut Reactor) {
        self.process_input(reactor);
        // What was received over TLS is one piece of input after another.
        while self.link.has_more() && self.link.input.is_none() && !self.is_paused() {
            let direct = self.direct();
            match self.link.open(reactor, direct) {
                LinkEvent::Direct(direct) => self.handle_direct(direct),
                LinkEvent::Lost(reason) => self.lose(reactor, reason),
                _ => {}
            }
            self.process_input(reactor);
        }
    }

    fn process_input(&mut self, reactor: &mut Reactor) {
        self.advance(reactor);
        if self.starved.is_some() && self.link.park() {
            self.retry(reactor);
            self.advance(reactor);
        }
        if self.is_backed_up() {
            self.link.park();
        }
    }

    fn advance(&mut self, reactor: &mut Reactor) {
        let input = self.link.input.take();
        let mut bytes = input.as_ref().map_or(&[][..], Input::bytes);
        while !self.is_paused() {
            match self.session.handle_input(&mut bytes, &mut self.link.outgoing) {
                Ok(SessionEvent::Starved) => break,
                Ok(received) => self.handle_received(reactor, received),
                Err(fault) => self.fail(reactor, &fault),
            }
        }
        let left = bytes.len();
        self.link.keep_input(input, left);
    }

    fn handle_received(&mut self, reactor: &mut Reactor, received: SessionEvent<'_>) {
        match received {
            SessionEvent::Starved => {}
            SessionEvent::Initialized(_) => self.stage = Stage::Responding,
            SessionEvent::Command { slot, data_length } => {
                self.handle_command(reactor, slot, data_length);
            }
            SessionEvent::Data { slot, offset, piece } => self.store(slot, offset, piece),
            SessionEvent::CapsuleEnd { slot, intact } => self.handle_capsule_end(slot, intact),
            SessionEvent::TransferEnd { slot, intact } => self.handle_transfer_end(slot, intact),
            SessionEvent::Terminated { status, information } => {
                self.lose(reactor, CloseReason::PeerTerminated { status, information });
            }
        }
    }

    fn handle_command(&mut self, reactor: &mut Reactor, slot: u16, data_length: u32) {
        let Some(command) = self.session.command() else { return };
        let Some(state) = self.slots.get_mut(usize::from(slot)) else { return };
        state.in_flight = true;
        state.command = *command;
        if data_length == 0 {
            let data = match state.command.data_pointer.location() {
                Ok(Location::InCapsule { length, .. }) if length > 0 => {
                    CapsuleData::Invalid(Status::DATA_SGL_LENGTH_INVALID.with_dnr())
                }
                _ => CapsuleData::None,
            };
            self.events.push_back(Event::Command { slot: Slot(slot), data });
            return self.mark_connect();
        }
        let bytes = usize::try_from(data_length).unwrap_or(usize::MAX);
        self.starved = Some(WaitingCommand { slot, bytes });
        self.retry(reactor);
    }

    /// Tries to take the buffer that a command waits for. If there is none, the connection waits
    /// until the owner provides one.
    fn retry(&mut self, reactor: &mut Reactor) {
        let Some(WaitingCommand { bytes, .. }) = self.starved else { return };
        if self.capsules.may_add(reactor.pool())
            && let Some(buffer) = reactor.pool().take(bytes)
        {
            return self.fill(buffer);
        }
        if self.capsules.leave.is_some() {
            self.link.set_chore(reactor, POOL_RETRY);
        }
        if self.capsules.are_bound() {
            return;
        }
        // A connection that waits for memory receives nothing, so buffers of its commands whose
        // data is to come would be held as long. It may use the reserve to avoid a deadlock with
        // other such connections.
        if self.shallow || self.slots.iter().any(|state| state.buffer.is_some()) {
            match reactor.pool().take_reserved(bytes) {
                Some(buffer) => self.fill(buffer),
                None => self.link.set_chore(reactor, POOL_RETRY),
            }
        }
    }

    fn fill(&mut self, buffer: Buffer) {
        let Some(WaitingCommand { slot, .. }) = self.starved.take() else { return };
        if let Some(state) = self.slots.get_mut(usize::from(slot)) {
            state.buffer = Some(buffer);
        }
    }

    fn store(&mut self, slot: u16, offset: u32, piece: &[u8]) {
        let buffer = self.slots.get_mut(usize::from(slot)).and_then(|state| state.buffer.as_mut());
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        // Without a buffer the command was completed early, and its data is dropped.
        if let Some(place) = buffer
            .and_then(|buffer| buffer.bytes_mut().get_mut(start..start.saturating_add(piece.len())))
        {
            place.copy_from_slice(piece);
        }
    }

    fn handle_capsule_end(&mut self, slot: u16, intact: bool) {
        let Some(state) = self.slots.get_mut(usize::from(slot)) else { return };
        let buffer = state.buffer.take();
        state.in_capsule = buffer.is_some();
        if state.in_capsule {
            self.capsules.add();
        }
        let data = match buffer {
            Some(buffer) if intact => capsule_data(&state.command, buffer),
            _ => CapsuleData::Corrupt,
        };
        self.events.push_back(Event::Command { slot: Slot(slot), data });
        self.mark_connect();
    }

    fn handle_transfer_end(&mut self, slot: u16, intact: bool) {
        let Some(state) = self.slots.get_mut(usize::from(slot)) else { return };
        let (buffer, late) = (state.buffer.take(), state.late.take());
        let slot = Slot(slot);
        if let Some(completion) = late {
            self.respond(slot, &completion);
        } else if let Some(buffer) = buffer {
            self.mark_connect();
            let result = if intact { Ok(()) } else { Err(DataDigestError) };
            self.events.push_back(Event::Data { slot, buffer, result });
        }
    }

    /// If that was the first command with its data, nothing is received until it is completed.
    fn mark_connect(&mut self) {
        if self.stage == Stage::AwaitingConnect {
            self.stage = Stage::Connecting;
        }
    }

    /// Data was received directly into a command's buffer.
    fn handle_direct(&mut self, Direct { slot, buffer, range }: Direct) {
        self.session.handle_direct(buffer.get(range).unwrap_or_default());
        if let Some(state) = self.slots.get_mut(usize::from(slot))
            && state.late.is_none()
        {
            state.buffer = Some(buffer);
        }
    }

    /// The buffer and range to receive the rest of a PDU's data into directly, if it is long
    /// enough.
    fn direct(&mut self) -> Option<Direct> {
        let (slot, offset, remaining) = self.session.direct()?;
        let start = usize::try_from(offset).ok()?;
        let len = usize::try_from(remaining).ok()?;
        if len < DIRECT_RECEIVE_BYTES {
            return None;
        }
        let state = self.slots.get_mut(usize::from(slot))?;
        let buffer = state.buffer.take_if(|buffer| start + len <= buffer.len())?;
        Some(Direct { slot, buffer, range: start..start + len })
    }

    fn handle_sent(&mut self, reactor: &mut Reactor) {
        if self.stage == Stage::Responding && self.link.is_flushed() {
            // The host waits for ICResp: neither end has more to say now.
            if let Err(reason) = self.link.hand_over(reactor) {
                return self.lose(reactor, reason);
            }
            self.stage = Stage::AwaitingConnect;
            self.process(reactor);
        }
    }

    fn handle_deadline(&mut self, reactor: &mut Reactor) {
        match self.stage {
            Stage::Ready => {}
            Stage::Connecting => self.link.set_deadline(reactor, self.limits.handshake_timeout),
            _ => self.begin_close(reactor, CloseReason::HandshakeTimeout, false),
        }
    }

    fn respond(&mut self, slot: Slot, completion: &Completion) {
        self.session.put_response(completion, &mut self.link.outgoing);
        self.free(slot);
        if self.stage == Stage::Connecting {
            // Connect failed: the host may send another.
            self.stage = Stage::AwaitingConnect;
        }
    }

    fn free(&mut self, slot: Slot) {
        self.unsent += 1;
        if let Some(state) = self.slots.get_mut(slot.index()) {
            debug_assert!(state.in_flight, "a command is completed once");
            state.in_flight = false;
            state.buffer = None;
            if std::mem::take(&mut state.in_capsule) {
                self.capsules.remove();
            }
            self.session.release(slot.0);
        }
    }

    /// The host broke the protocol: sends a termination.
    fn fail(&mut self, reactor: &mut Reactor, fault: &FatalError) {
        self.session.terminate(fault, &mut self.link.outgoing);
        self.begin_close(reactor, CloseReason::Protocol(*fault), true);
    }

    /// The connection is lost.
    fn lose(&mut self, reactor: &mut Reactor, reason: CloseReason) {
        if self.link.is_open() {
            self.reason = Some(reason);
            self.link.shut(reactor);
        }
    }

    fn begin_close(&mut self, reactor: &mut Reactor, reason: CloseReason, linger: bool) {
        if self.link.is_open() {
            self.reason = Some(reason);
            self.link.begin_close(reactor, linger, self.limits.close_timeout);
        }
    }

    /// Reports the end once no operation is in flight.
    fn raise_closed(&mut self) {
        if self.link.is_finished()
            && let Some(reason) = self.reason.take()
        {
            self.link.returned = None;
            self.slots.clear();
            self.events.clear();
            self.events.push_back(Event::Closed { reason });
        }
    }
}

/// In-capsule data, checked against the command's SGL.
fn capsule_data(command: &Command, mut buffer: Buffer) -> CapsuleData {
    let Ok(Location::InCapsule { length, .. }) = command.data_pointer.location() else {
        return CapsuleData::Invalid(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr());
    };
    match usize::try_from(length) {
        Ok(length) if length <= buffer.len() => {
            buffer.set_len(length);
            CapsuleData::Inline(buffer)
        }
        _ => CapsuleData::Invalid(Status::DATA_SGL_LENGTH_INVALID.with_dnr()),
    }
}
