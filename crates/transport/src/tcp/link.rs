//! The common part of both sides: one receive, one send, and the closing of a socket.
//!
//! ```text
//!           begin_close                sent              hung up, or too late
//!   Open -----------------> Flushing --------> Lingering ---------------------> Shut
//!     |                         |   (only after a termination)                   ^
//!     +-- lost -----------------+------------------------------------------------+
//! ```
//!
//! A peer that is sent a termination is given time to read it: closing a socket that holds unread
//! bytes resets the connection, which may overtake the termination. `Shut` means that the socket
//! is closed; the connection is finished once its operations have come back.

use std::io;
use std::ops::Range;
use std::time::Duration;

use weft_nvmf::tcp::Sink;
use weft_reactor::{
    Buffer, Message, Operation, Outcome, Owner, Reactor, ReactorCompletion, SocketId, Token,
};

use super::layer::{Layer, Plaintext};
use super::security::{DetachedSecurity, Security};
use crate::CloseReason;
use crate::deadline::Deadline;
use crate::limits::{
    COPIED_BYTES_MAX, GATHER_BYTES, IDLE_MESSAGE_BYTES, IDLE_TIME, UNSENT_BYTES_MAX,
};
use crate::tls::kernel_has;

/// The kind of a token's operation, in its low two bits.
const RECEIVE: u32 = 0;
const SEND: u32 = 1;
const DEADLINE: u32 = 2;
const CHORE: u32 = 3;
const KINDS: u32 = 0b11;

/// What a completion means for the connection.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// Nothing to do.
    Nothing,
    /// The socket is connected.
    Connected,
    /// Input was received.
    Input,
    /// Data was received directly into a command's buffer.
    Direct(Direct),
    /// The kernel has taken the last send.
    Sent,
    /// The deadline has passed.
    Deadline,
    /// The chore timer has expired.
    Chore,
    /// The connection is lost.
    Lost(CloseReason),
}

/// Part of a command's buffer, to receive data into directly.
#[derive(Debug)]
pub(crate) struct Direct {
    pub(crate) slot: u16,
    pub(crate) buffer: Buffer,
    pub(crate) range: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Receiving {
    Idle,
    Connect,
    Bytes,
    /// The reactor has `held` bytes of a command's buffer.
    Direct {
        slot: u16,
        start: usize,
        held: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    Open,
    Flushing { linger: bool },
    Lingering,
    Shut,
}

/// Received input that is not all processed.
#[derive(Debug)]
pub(crate) struct Input {
    store: Store,
    start: usize,
    end: usize,
}

#[derive(Debug)]
enum Store {
    Received(Buffer),
    Parked(Vec<u8>),
}

impl Input {
    /// Input in memory outside the pool.
    pub(crate) fn parked(bytes: Vec<u8>) -> Self {
        let end = bytes.len();
        Self::first(bytes, end)
    }

    /// Input in the first `end` bytes of memory outside the pool.
    pub(crate) fn first(memory: Vec<u8>, end: usize) -> Self {
        Self { store: Store::Parked(memory), start: 0, end }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        let all = match &self.store {
            Store::Received(buffer) => &buffer[..],
            Store::Parked(bytes) => &bytes[..],
        };
        all.get(self.start..self.end).unwrap_or_default()
    }

    /// Drops all but the last `left` bytes.
    pub(crate) fn keep(&mut self, left: usize) {
        self.start = self.end.saturating_sub(left);
    }

    /// Copies the input out of the pool's buffer and frees that: connections that wait for the
    /// pool's memory while they hold some of it could deadlock.
    pub(crate) fn park(self) -> Self {
        match self.store {
            Store::Received(_) => Self::parked(self.bytes().to_vec()),
            Store::Parked(_) => self,
        }
    }
}

/// Messages to send.
#[derive(Debug, Default)]
pub(crate) struct Outgoing(Message);

impl Sink for Outgoing {
    fn put(&mut self, bytes: &[u8]) {
        self.0.bytes(bytes);
    }
}

impl Outgoing {
    /// Adds payload behind its header: copied if it is short, gathered otherwise.
    pub(crate) fn payload(&mut self, buffer: &Buffer, start: usize, end: usize) {
        if end - start < GATHER_BYTES && self.0.copied() < COPIED_BYTES_MAX {
            self.0.bytes(&buffer[start..end]);
        } else {
            self.0.buffer(buffer.share(), start..end);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Link {
    owner: Owner,
    base: u32,
    socket: Option<SocketId>,
    /// TLS, if this connection has it.
    security: Option<Box<Security>>,
    /// The messages of the next send.
    pub(crate) outgoing: Outgoing,
    spare: Option<Message>,
    sending: bool,
    /// Bytes of the current send, how many of them were copied, and when a send last made progress.
    sending_bytes: usize,
    sending_copied: usize,
    sent_at: Duration,
    /// When input was last received.
    received_at: Duration,
    /// The total number of bytes received.
    received: u64,
    receiving: Receiving,
    pub(crate) input: Option<Input>,
    /// A buffer returned by a receive that failed.
    pub(crate) returned: Option<(u16, Buffer)>,
    closing: Closing,
    /// Closing discards what the kernel has not sent yet.
    abrupt: bool,
    deadline: Deadline,
    /// The total number of sends at the last idle check, and whether another check is due.
    sends: u32,
    sends_seen: u32,
    watching: bool,
    chore_at: Option<Duration>,
    /// Why TLS can encrypt nothing more, until that is reported.
    fault: Option<CloseReason>,
}

impl Link {
    pub(crate) fn new(owner: Owner, tag: u32, socket: Option<SocketId>) -> Self {
        Self {
            owner,
            base: tag << 2,
            socket,
            security: None,
            outgoing: Outgoing::default(),
            spare: None,
            sending: false,
            sending_bytes: 0,
            sending_copied: 0,
            sent_at: Duration::ZERO,
            received_at: Duration::ZERO,
            received: 0,
            receiving: Receiving::Idle,
            input: None,
            returned: None,
            closing: Closing::Open,
            abrupt: false,
            deadline: Deadline::new(Token::new(owner, tag << 2 | DEADLINE)),
            sends: 0,
            sends_seen: 0,
            watching: false,
            chore_at: None,
            fault: None,
        }
    }

    /// Uses TLS for the session, before anything is received or sent.
    pub(crate) fn set_layer(&mut self, layer: Layer) {
        self.security = Some(Box::new(Security::Layer(layer)));
    }

    /// What TLS is, to move it with [`Self::take_socket`].
    pub(crate) fn take_security(&mut self) -> Option<DetachedSecurity> {
        self.security.take().map(|security| security.detach())
    }

    /// Takes what TLS was elsewhere.
    pub(crate) fn attach_security(&mut self, detached: DetachedSecurity) {
        self.security = Some(Box::new(Security::attach(detached)));
    }

    /// TLS, if this connection has it.
    pub(crate) fn security(&self) -> Option<&Security> {
        self.security.as_deref()
    }

    /// The layer of TLS; none where the records are the kernel's.
    pub(crate) fn layer(&self) -> Option<&Layer> {
        self.security.as_ref()?.layer()
    }

    fn layer_mut(&mut self) -> Option<&mut Layer> {
        self.security.as_mut()?.layer_mut()
    }

    /// Whether the records are to be the kernel's, and are not.
    pub(crate) fn is_for_kernel(&self) -> bool {
        self.layer().is_some_and(Layer::is_for_kernel)
    }

    /// Gives the kernel the records from now on if they are to be its. Both ends do so where the
    /// other has nothing to say; if it does they stay here.
    pub(crate) fn hand_over(&mut self, reactor: &mut Reactor) -> Result<(), CloseReason> {
        let is_quiet = self.is_flushed() && !self.is_receiving() && self.input.is_none();
        let (Some(socket), Some(security)) = (self.socket, &mut self.security) else {
            return Ok(());
        };
        let handed = security.hand_over(is_quiet, kernel_has, || reactor.records(socket));
        handed.map_err(CloseReason::Tls)
    }

    pub(crate) fn socket(&self) -> io::Result<SocketId> {
        self.socket.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Whether the connection is in use: neither closed nor about to be.
    pub(crate) fn is_open(&self) -> bool {
        self.closing == Closing::Open
    }

    /// Whether the socket is closed and no operation is in flight.
    pub(crate) fn is_finished(&self) -> bool {
        self.closing == Closing::Shut && !self.sending && self.receiving == Receiving::Idle
    }

    /// Whether everything that was queued has been handed to the kernel.
    pub(crate) fn is_flushed(&self) -> bool {
        let is_sealed = |layer: &Layer| layer.outgoing.is_empty();
        !self.sending && self.outgoing.0.is_empty() && self.layer().is_none_or(is_sealed)
    }

    /// Bytes queued, if the peer has not taken any for `patience`.
    pub(crate) fn stalled_bytes(&self, now: Duration, patience: Duration) -> usize {
        let is_stuck = self.sending && now.saturating_sub(self.sent_at) >= patience;
        if is_stuck { self.sending_bytes + self.outgoing.0.len() } else { 0 }
    }

    /// Whether the peer does not read and [`UNSENT_BYTES_MAX`] is queued.
    pub(crate) fn is_backed_up(&self) -> bool {
        self.sending && self.outgoing.0.len() >= UNSENT_BYTES_MAX
    }

    /// Copied bytes that are not sent.
    pub(crate) fn copied_bytes(&self) -> usize {
        self.sending_copied + self.outgoing.0.copied()
    }

    /// Whether nothing was received for `patience`.
    pub(crate) fn is_silent(&self, now: Duration, patience: Duration) -> bool {
        now.saturating_sub(self.received_at) >= patience
    }

    /// The total number of bytes received.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Bytes of a command's buffer that the reactor receives into.
    pub(crate) fn lent_bytes(&self) -> usize {
        match self.receiving {
            Receiving::Direct { held, .. } => held,
            _ => 0,
        }
    }

    pub(crate) fn is_receiving(&self) -> bool {
        self.receiving != Receiving::Idle
    }

    pub(crate) fn connect(&mut self, reactor: &mut Reactor, operation: Operation) {
        self.receiving = Receiving::Connect;
        reactor.submit(self.token(RECEIVE), operation);
    }

    /// Starts a receive.
    pub(crate) fn receive(&mut self, reactor: &mut Reactor) {
        let Some(socket) = self.socket else { return };
        self.receiving = Receiving::Bytes;
        reactor.submit(self.token(RECEIVE), Operation::Receive { socket });
    }

    /// Starts a receive into part of a command's buffer.
    pub(crate) fn receive_into(&mut self, reactor: &mut Reactor, direct: Direct) {
        let Some(socket) = self.socket else { return };
        let Direct { slot, buffer, range } = direct;
        self.receiving = Receiving::Direct { slot, start: range.start, held: buffer.len() };
        reactor.submit(self.token(RECEIVE), Operation::ReceiveInto { socket, buffer, range });
    }

    /// Sends what is queued, unless a send is in flight. Returns whether one is.
    pub(crate) fn send(&mut self, reactor: &mut Reactor) -> bool {
        let Some(socket) = self.socket else { return false };
        if self.sending {
            return false;
        }
        let queue = match self.security {
            None => &mut self.outgoing.0,
            Some(_) => {
                self.seal(reactor);
                queue(&mut self.security, &mut self.outgoing)
            }
        };
        if queue.is_empty() {
            return false;
        }
        let message = std::mem::replace(queue, self.spare.take().unwrap_or_default());
        self.sending = true;
        self.sending_bytes = message.len();
        self.sending_copied = message.copied();
        self.sent_at = reactor.turn_time();
        self.sends = self.sends.wrapping_add(1);
        reactor.submit(self.token(SEND), Operation::Send { socket, message });
        true
    }

    /// Encrypts what is queued.
    fn seal(&mut self, reactor: &mut Reactor) {
        let (Some(security), Some(socket)) = (&mut self.security, self.socket) else { return };
        if let Err(fault) = security.seal(&mut self.outgoing.0, || reactor.records(socket)) {
            self.outgoing.0.clear();
            self.fault = Some(CloseReason::Tls(fault));
            self.set_chore(reactor, Duration::ZERO);
        }
    }

    /// Whether [`Self::open`] may have input.
    pub(crate) fn has_more(&self) -> bool {
        self.layer().is_some_and(Layer::has_more)
    }

    /// Decrypts the next part of what was received: into a command's buffer if one is given, else
    /// as input.
    pub(crate) fn open(&mut self, reactor: &mut Reactor, direct: Option<Direct>) -> LinkEvent {
        let Some(layer) = self.layer_mut() else { return LinkEvent::Nothing };
        let (plain, direct) = match direct {
            Some(mut direct) => {
                let place = direct.buffer.bytes_mut().get_mut(direct.range.clone());
                (layer.open(place), Some(direct))
            }
            None => (layer.open(None), None),
        };
        // The handshake may have an answer, and its end lets the session's messages go.
        self.send(reactor);
        match (plain, direct) {
            (Ok(Plaintext::Placed(bytes)), Some(Direct { slot, buffer, range })) => {
                let range = range.start..range.start + bytes;
                LinkEvent::Direct(Direct { slot, buffer, range })
            }
            (Ok(Plaintext::Input(input)), _) => {
                self.input = Some(input);
                LinkEvent::Input
            }
            (Ok(Plaintext::Starved | Plaintext::Placed(_)), direct) => {
                direct.map_or(LinkEvent::Nothing, |Direct { slot, buffer, range }| {
                    LinkEvent::Direct(Direct { slot, buffer, range: range.start..range.start })
                })
            }
            (Ok(Plaintext::Ended), direct) => self.lose(CloseReason::PeerClosed, direct),
            (Err(fault), direct) => self.lose(CloseReason::Tls(fault), direct),
        }
    }

    /// The connection is lost; a command's buffer is kept.
    fn lose(&mut self, reason: CloseReason, direct: Option<Direct>) -> LinkEvent {
        self.returned =
            direct.map(|Direct { slot, buffer, .. }| (slot, buffer)).or(self.returned.take());
        LinkEvent::Lost(reason)
    }

    /// Copies input out of the pool's buffers and frees those. Returns whether there is input.
    pub(crate) fn park(&mut self) -> bool {
        self.input = self.input.take().map(Input::park);
        let is_received = self.layer_mut().is_some_and(Layer::park);
        self.input.is_some() || is_received
    }

    /// Keeps the last `left` bytes of input, and the memory of input that is used up.
    pub(crate) fn keep_input(&mut self, input: Option<Input>, left: usize) {
        let Some(mut input) = input else { return };
        if left > 0 && self.is_open() {
            input.keep(left);
            self.input = Some(input);
        } else if let (Store::Parked(memory), Some(layer)) = (input.store, self.layer_mut()) {
            layer.reuse(memory);
        }
    }

    pub(crate) fn set_deadline(&mut self, reactor: &mut Reactor, timeout: Duration) {
        self.deadline.set(reactor, timeout);
    }

    pub(crate) fn clear_deadline(&mut self, reactor: &mut Reactor) {
        self.deadline.clear(reactor);
    }

    /// Requests [`LinkEvent::Chore`] after `delay`, or earlier if it was requested earlier.
    pub(crate) fn set_chore(&mut self, reactor: &mut Reactor, delay: Duration) {
        let at = reactor.now().saturating_add(delay);
        if self.chore_at.is_none_or(|earlier| at < earlier) {
            self.chore_at = Some(at);
            reactor.set_timer(self.token(CHORE), at);
        }
    }

    /// Closes the connection after sending what is queued, within `timeout`.
    pub(crate) fn begin_close(&mut self, reactor: &mut Reactor, linger: bool, timeout: Duration) {
        if self.closing != Closing::Open {
            return;
        }
        self.input = None;
        if self.socket.is_none() {
            return self.shut(reactor);
        }
        self.closing = Closing::Flushing { linger };
        self.set_deadline(reactor, timeout);
        // The layer's end comes after what is queued. The kernel's records are begun by sends
        // alone, of which one may be in flight.
        if self.layer().is_some() {
            self.seal(reactor);
        }
        self.layer_mut().into_iter().for_each(Layer::end);
        self.advance_close(reactor);
    }

    /// Closes the socket now and discards what the kernel has not sent.
    pub(crate) fn abort(&mut self, reactor: &mut Reactor) {
        self.abrupt = true;
        self.shut(reactor);
    }

    /// Closes the socket now. Operations in flight are cancelled.
    pub(crate) fn shut(&mut self, reactor: &mut Reactor) {
        if self.closing == Closing::Shut {
            return;
        }
        self.closing = Closing::Shut;
        self.input = None;
        self.outgoing.0.clear();
        self.clear_deadline(reactor);
        reactor.clear_timer(self.token(CHORE));
        match self.socket.take() {
            Some(socket) if self.abrupt => reactor.abort(socket),
            Some(socket) => reactor.close(socket),
            None if self.receiving == Receiving::Connect => reactor.cancel(self.token(RECEIVE)),
            None => {}
        }
    }

    /// Takes the socket to move it to another reactor; only while no operation is in flight.
    pub(crate) fn take_socket(&mut self, reactor: &mut Reactor) -> Option<SocketId> {
        if !self.is_open() || self.sending || self.is_receiving() {
            return None;
        }
        self.clear_deadline(reactor);
        reactor.clear_timer(self.token(CHORE));
        self.socket.take()
    }

    /// Handles a completion. While the connection is being closed, nothing is passed on.
    pub(crate) fn handle(
        &mut self,
        reactor: &mut Reactor,
        completion: ReactorCompletion,
    ) -> LinkEvent {
        match completion.token.tag & KINDS {
            RECEIVE => self.handle_receive(reactor, completion.outcome),
            SEND => self.handle_send(reactor, completion.outcome),
            DEADLINE => self.handle_deadline(reactor),
            _ => self.handle_chore(reactor),
        }
    }

    fn token(&self, kind: u32) -> Token {
        Token::new(self.owner, self.base | kind)
    }

    fn handle_receive(&mut self, reactor: &mut Reactor, outcome: Outcome) -> LinkEvent {
        let receiving = std::mem::replace(&mut self.receiving, Receiving::Idle);
        self.received_at = reactor.turn_time();
        if let Outcome::Received { len, .. } | Outcome::ReceivedInto { len, .. } = &outcome {
            self.received = self.received.wrapping_add(*len as u64);
        }
        if !self.is_open() {
            self.discard(reactor, outcome, receiving);
            return LinkEvent::Nothing;
        }
        match (outcome, receiving) {
            (Outcome::Connected { socket }, _) => {
                self.socket = Some(socket);
                LinkEvent::Connected
            }
            (Outcome::Received { len: 0, .. }, _) => LinkEvent::Lost(CloseReason::PeerClosed),
            (Outcome::Received { buffer, len }, _) => {
                self.take(Input { store: Store::Received(buffer), start: 0, end: len })
            }
            (Outcome::ReceivedInto { buffer, len }, Receiving::Direct { slot, start, .. })
                if len > 0 =>
            {
                LinkEvent::Direct(Direct { slot, buffer, range: start..start + len })
            }
            (Outcome::ReceivedInto { buffer, .. }, _) => {
                self.keep(receiving, Some(buffer));
                LinkEvent::Lost(CloseReason::PeerClosed)
            }
            (Outcome::Failed { error, buffer, .. }, _) => {
                self.handle_failed(reactor, &error, receiving, buffer)
            }
            (Outcome::Cancelled { buffer, .. }, _) => {
                self.keep(receiving, buffer);
                LinkEvent::Lost(CloseReason::Requested("the operation was cancelled"))
            }
            _ => LinkEvent::Nothing,
        }
    }

    /// A receive has failed: the connection is lost, unless it has come upon a record of the
    /// kernel's that is no data.
    fn handle_failed(
        &mut self,
        reactor: &mut Reactor,
        error: &io::Error,
        receiving: Receiving,
        buffer: Option<Buffer>,
    ) -> LinkEvent {
        let taken = match (&mut self.security, self.socket) {
            (Some(security), Some(socket)) => {
                security.take_record(error, || reactor.records(socket))
            }
            _ => Err(CloseReason::from(error)),
        };
        match (taken, receiving, buffer) {
            (Ok(()), Receiving::Direct { slot, start, .. }, Some(buffer)) => {
                LinkEvent::Direct(Direct { slot, buffer, range: start..start })
            }
            (Ok(()), ..) => LinkEvent::Input,
            (Err(reason), receiving, buffer) => {
                self.keep(receiving, buffer);
                LinkEvent::Lost(reason)
            }
        }
    }

    /// Takes received input, which TLS has to decrypt if there is any.
    fn take(&mut self, input: Input) -> LinkEvent {
        let Some(layer) = self.layer_mut() else {
            self.input = Some(input);
            return LinkEvent::Input;
        };
        match layer.take(input) {
            Ok(None) => {}
            Ok(Some(input)) => {
                // Of a peer without TLS.
                self.security = None;
                self.input = Some(input);
            }
            Err(fault) => return LinkEvent::Lost(CloseReason::Tls(fault)),
        }
        LinkEvent::Input
    }

    /// Drops input while the connection is being closed.
    fn discard(&mut self, reactor: &mut Reactor, outcome: Outcome, receiving: Receiving) {
        let ended = match outcome {
            Outcome::Connected { socket } => {
                reactor.close(socket);
                true
            }
            Outcome::Received { len, .. } => len == 0,
            Outcome::ReceivedInto { buffer, len } => {
                self.keep(receiving, Some(buffer));
                len == 0
            }
            Outcome::Failed { buffer, .. } | Outcome::Cancelled { buffer, .. } => {
                self.keep(receiving, buffer);
                true
            }
            _ => true,
        };
        if ended {
            self.shut(reactor);
        } else if self.closing == Closing::Lingering {
            self.receive(reactor);
        }
    }

    /// Keeps the buffer of a command that was being received into.
    fn keep(&mut self, receiving: Receiving, buffer: Option<Buffer>) {
        if let (Receiving::Direct { slot, .. }, Some(buffer)) = (receiving, buffer) {
            self.returned = Some((slot, buffer));
        }
    }

    fn handle_send(&mut self, reactor: &mut Reactor, outcome: Outcome) -> LinkEvent {
        self.sending = false;
        self.sending_copied = 0;
        let (message, lost) = match outcome {
            Outcome::Sent { message } => (Some(message), None),
            Outcome::Failed { error, message, .. } => (message, Some(CloseReason::from(&error))),
            Outcome::Cancelled { message, .. } => {
                (message, Some(CloseReason::Requested("the operation was cancelled")))
            }
            _ => (None, None),
        };
        if let Some(mut message) = message {
            let is_large = message.len() > IDLE_MESSAGE_BYTES || self.layer().is_some();
            if is_large && !self.watching && self.is_open() {
                self.watch(reactor);
            }
            message.clear();
            // The memory of the message just sent is in the cache, so it is reused.
            let queue = queue(&mut self.security, &mut self.outgoing);
            if queue.is_empty() {
                std::mem::swap(queue, &mut message);
            }
            self.spare = Some(message);
        }
        match lost {
            Some(reason) if self.is_open() => LinkEvent::Lost(reason),
            Some(_) => {
                self.shut(reactor);
                LinkEvent::Nothing
            }
            None if self.is_open() => LinkEvent::Sent,
            None => {
                self.advance_close(reactor);
                LinkEvent::Nothing
            }
        }
    }

    fn handle_deadline(&mut self, reactor: &mut Reactor) -> LinkEvent {
        if !self.deadline.take_due(reactor) {
            return LinkEvent::Nothing;
        }
        if self.is_open() {
            return LinkEvent::Deadline;
        }
        // The peer has not taken what was sent last: it gets none of it later.
        self.abort(reactor);
        LinkEvent::Nothing
    }

    /// Continues closing, unless a send is in flight.
    fn advance_close(&mut self, reactor: &mut Reactor) {
        let Closing::Flushing { linger } = self.closing else { return };
        self.send(reactor);
        if self.sending {
            return;
        }
        if let (Some(security), Some(socket)) = (&mut self.security, self.socket) {
            security.end(|| reactor.records(socket));
        }
        if !linger {
            return self.shut(reactor);
        }
        self.closing = Closing::Lingering;
        if !self.is_receiving() {
            self.receive(reactor);
        }
    }

    /// Schedules the idle check, unless a send is in flight: its end does so.
    fn watch(&mut self, reactor: &mut Reactor) {
        self.watching = true;
        self.sends_seen = self.sends;
        self.set_chore(reactor, IDLE_TIME);
    }

    /// Frees the memory of large messages once the connection is quiet.
    fn handle_chore(&mut self, reactor: &mut Reactor) -> LinkEvent {
        self.chore_at = None;
        if !self.is_open() {
            return LinkEvent::Nothing;
        }
        if std::mem::take(&mut self.watching) && self.is_flushed() {
            if self.sends == self.sends_seen {
                self.spare = None;
                self.outgoing = Outgoing::default();
                self.layer_mut().into_iter().for_each(Layer::release);
            } else {
                self.watch(reactor);
            }
        }
        self.fault.take().map_or(LinkEvent::Chore, LinkEvent::Lost)
    }
}

/// Where what is sent next is.
fn queue<'a>(
    security: &'a mut Option<Box<Security>>,
    outgoing: &'a mut Outgoing,
) -> &'a mut Message {
    let layer = security.as_mut().and_then(|security| security.layer_mut());
    layer.map_or(&mut outgoing.0, |layer| &mut layer.outgoing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::KernelRecords;
    use std::io::Read;
    use std::net::SocketAddr;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use weft_reactor::simulation::{NetworkConditions, World};
    use weft_reactor::{Config, DriverKind, Stream, WaitLimit};

    const LISTENER: Owner = Owner(7);

    /// Two links connected by a simulated network.
    fn pair() -> (Reactor, Link, Link) {
        let mut reactor = Reactor::simulated(&World::new(1, NetworkConditions::default()));
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let listener = reactor.listen(address).unwrap();
        reactor.submit(Token::new(LISTENER, 0), Operation::Accept { listener });
        let mut near = Link::new(Owner(0), 0, None);
        near.connect(
            &mut reactor,
            Operation::Connect {
                address,
                local: None,
                timeout: None,
                marking: weft_reactor::Marking::default(),
            },
        );
        let mut far = Link::new(Owner(1), 0, None);
        let mut completions = Vec::new();
        while near.socket.is_none() || far.socket.is_none() {
            reactor.poll(WaitLimit::Sleep, &mut completions);
            for completion in completions.drain(..) {
                match completion.outcome {
                    Outcome::Accepted { socket, .. } => far.socket = Some(socket),
                    _ => assert!(matches!(
                        near.handle(&mut reactor, completion),
                        LinkEvent::Connected
                    )),
                }
            }
        }
        (reactor, near, far)
    }

    fn turn(reactor: &mut Reactor, near: &mut Link, far: &mut Link) {
        let mut completions = Vec::new();
        reactor.poll(WaitLimit::Sleep, &mut completions);
        for completion in completions {
            let link = if completion.token.owner == Owner(0) { &mut *near } else { &mut *far };
            if let LinkEvent::Input = link.handle(reactor, completion) {
                link.input = None;
                link.receive(reactor);
            }
        }
    }

    #[test]
    fn a_quiet_connection_frees_its_large_messages() {
        let (mut reactor, mut near, mut far) = pair();
        far.receive(&mut reactor);
        for kept in [IDLE_MESSAGE_BYTES, IDLE_MESSAGE_BYTES + 1] {
            near.outgoing.put(&vec![0; kept]);
            near.send(&mut reactor);
            while !near.is_flushed() {
                turn(&mut reactor, &mut near, &mut far);
            }
            assert!(near.spare.is_some());
            assert_eq!(near.watching, kept > IDLE_MESSAGE_BYTES);
        }
        let quiet = reactor.now();
        while near.watching {
            turn(&mut reactor, &mut near, &mut far);
        }
        assert!(reactor.now() - quiet >= IDLE_TIME - Duration::from_millis(1));
        assert!(near.spare.is_none());
    }

    /// The kernel's part is played by a socket that takes records as they are.
    #[test]
    fn what_is_queued_at_the_end_is_counted_once_by_the_kernels_key() {
        let config = Config { driver: DriverKind::Epoll, ..Config::default() };
        let mut reactor = Reactor::new(config).unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        let socket = reactor.add_stream(Stream::from(OwnedFd::from(near))).unwrap();
        let mut link = Link::new(Owner(0), 0, Some(socket));
        let records = KernelRecords::of_test(u64::MAX, false);
        link.security = Some(Box::new(Security::Kernel(records)));
        link.outgoing.put(&vec![1; 4 << 20]);
        assert!(link.send(&mut reactor));
        link.outgoing.put(&[2; 1000]);
        link.begin_close(&mut reactor, false, Duration::from_secs(20));
        assert!(link.sending, "the first message is in flight");
        let peer = std::thread::spawn(move || far.read_to_end(&mut Vec::new()));
        let mut completions = Vec::new();
        while !link.is_finished() {
            reactor.poll(WaitLimit::Sleep, &mut completions);
            for completion in completions.drain(..) {
                link.handle(&mut reactor, completion);
            }
        }
        let Some(Security::Kernel(records)) = link.security() else { panic!("it was given") };
        assert_eq!(records.sealed(), (4 << 20) + 1000);
        // The alert that closes comes last.
        assert_eq!(peer.join().unwrap().unwrap(), (4 << 20) + 1000 + 2);
    }

    #[test]
    fn a_cleared_deadline_has_no_effect() {
        let (mut reactor, mut near, _far) = pair();
        let token = near.token(DEADLINE);
        let stale = || ReactorCompletion { token, outcome: Outcome::Timer };
        assert!(matches!(near.handle(&mut reactor, stale()), LinkEvent::Nothing));
        near.set_deadline(&mut reactor, Duration::from_secs(1));
        assert!(matches!(near.handle(&mut reactor, stale()), LinkEvent::Nothing));
        let mut completions = Vec::new();
        while completions.is_empty() {
            reactor.poll(WaitLimit::Sleep, &mut completions);
        }
        let timer = completions.remove(0);
        assert!(matches!(near.handle(&mut reactor, timer), LinkEvent::Deadline));
    }

    #[test]
    fn the_sooner_of_two_chores_is_done() {
        let (mut reactor, mut near, _far) = pair();
        let start = reactor.now();
        near.set_chore(&mut reactor, Duration::from_secs(5));
        near.set_chore(&mut reactor, Duration::from_secs(1));
        near.set_chore(&mut reactor, Duration::from_secs(3));
        let mut completions = Vec::new();
        while completions.is_empty() {
            reactor.poll(WaitLimit::Sleep, &mut completions);
        }
        assert_eq!(reactor.now() - start, Duration::from_secs(1));
        assert!(matches!(near.handle(&mut reactor, completions.remove(0)), LinkEvent::Chore));
    }
}
