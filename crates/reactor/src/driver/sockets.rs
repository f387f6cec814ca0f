//! Sockets on the kernel: listeners, connections being made, streams.
//!
//! Both kernel drivers share this. The system calls are the plain non-blocking ones; a poller
//! reports edges. For each direction of a stream one bit says whether an attempt is likely to
//! succeed. It is cleared when the kernel had nothing more to give (or no more room), and set by
//! the next edge. A stream is watched from the first attempt that failed; an idle one costs
//! nothing but its watch.
//!
//! A stream that had bytes lately is *hot*. While only one is, a spinning reactor tries it
//! directly, whatever the bit says, and polls the others only every [`POLL_INTERVAL`]. While
//! several are hot, it calls the poller in each turn: a receive that finds nothing takes the
//! socket's lock and its cache lines from the processor that is delivering to it, and with many
//! streams most would find nothing.

mod connections;
mod express;
mod streams;

use crate::driver::poller::{Poller, Ready};
use crate::limits::{BACKLOG, HOT_TIME, RECEIVE_BYTES_MIN};
use crate::message::Message;
use crate::operation::{Operation, Outcome, ReactorCompletion, Token};
use crate::pool::{BUFFER_BYTES_MAX, Buffer, Pool};
use crate::records::Records;
use crate::slab::{Key, Slab};
use crate::socket::{
    Life, Marking, internet_address, life_within, listen_unpaced, prepare, set_reset_at_close,
    tcp_socket,
};
use crate::source::ReadyFlag;
use crate::timers::{NumberMap, Timers};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// All sockets of a reactor.
#[derive(Debug)]
pub(crate) struct Sockets {
    table: Slab<Socket>,
    /// Where the pending operations are, for `cancel`.
    tokens: NumberMap<Token, Key>,
    /// To be tried in the next turn: submitted operations that are likely to succeed.
    runnable: Vec<Key>,
    /// Receives that found the pool empty.
    starved: Vec<Key>,
    /// Sends of which a slice was sent.
    sliced: VecDeque<Key>,
    /// How many sockets are express.
    express: usize,
    scratch: Vec<Key>,
    hot: HotStreams,
    connect_limits: Timers<Key>,
    pool: Pool,
    receive_bytes: usize,
    /// A buffer that an attempt did not need, for the next one, until the reactor sleeps or its
    /// user is busy.
    spare: Option<Buffer>,
}

/// Which streams are hot: the last one that had bytes, until when, and until when there are others.
#[derive(Debug, Default)]
struct HotStreams {
    last: Option<Key>,
    until: Duration,
    several_until: Duration,
}

impl HotStreams {
    fn had_bytes(&mut self, key: Key, now: Duration) {
        if self.last != Some(key) && now < self.until {
            self.several_until = now + HOT_TIME;
        }
        (self.last, self.until) = (Some(key), now + HOT_TIME);
    }

    fn only_one(&self, now: Duration) -> Option<Key> {
        self.last.filter(|_| self.several_until <= now && now < self.until)
    }
}

#[derive(Debug)]
struct Socket {
    descriptor: OwnedFd,
    watched: bool,
    /// Watched by a second poller as well, which continues its operations.
    express: bool,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Listener(Listener),
    Connecting {
        token: Token,
    },
    Stream(Stream),
    /// A descriptor that its owner reads when its flag is set, not a socket.
    Watched(ReadyFlag),
}

#[derive(Debug)]
struct Listener {
    accept: Option<Token>,
    /// Connections may be waiting.
    readable: bool,
}

#[derive(Debug)]
struct Stream {
    readable: bool,
    writable: bool,
    /// The end of the stream was reported: `readable` stays set, since no edge will come.
    ended: bool,
    /// Its TLS is the kernel's: a receive ends before a record that is no data.
    records: bool,
    /// Its close discards what the kernel has not sent.
    discards: bool,
    receive: Option<Receive>,
    send: Option<Send>,
}

#[derive(Debug)]
struct Receive {
    token: Token,
    into: Option<(Buffer, Range<usize>)>,
}

#[derive(Debug)]
struct Send {
    token: Token,
    message: Message,
}

impl Stream {
    /// A stream of unknown state: both directions are to be tried.
    fn fresh() -> Kind {
        Kind::Stream(Self::unknown(false))
    }

    fn unknown(records: bool) -> Self {
        Self {
            readable: true,
            writable: true,
            ended: false,
            records,
            discards: false,
            receive: None,
            send: None,
        }
    }
}

impl Sockets {
    pub(crate) fn new(pool: Pool, receive_bytes: usize) -> Self {
        Self {
            table: Slab::new(),
            tokens: NumberMap::default(),
            runnable: Vec::new(),
            starved: Vec::new(),
            sliced: VecDeque::new(),
            express: 0,
            scratch: Vec::new(),
            hot: HotStreams::default(),
            connect_limits: Timers::new(),
            pool,
            receive_bytes: receive_bytes.clamp(RECEIVE_BYTES_MIN, BUFFER_BYTES_MAX),
            spare: None,
        }
    }

    pub(crate) fn listen(&mut self, address: SocketAddr) -> io::Result<Key> {
        let descriptor = tcp_socket(&address)?;
        rustix::net::sockopt::set_socket_reuseaddr(&descriptor, true)?;
        if address.is_ipv6() {
            let only = !address.ip().is_unspecified();
            rustix::net::sockopt::set_ipv6_v6only(&descriptor, only)?;
        }
        set_reset_at_close(&descriptor, true);
        listen_unpaced(&descriptor);
        rustix::net::bind(&descriptor, &address)?;
        rustix::net::listen(&descriptor, BACKLOG)?;
        let kind = Kind::Listener(Listener { accept: None, readable: true });
        Ok(self.table.insert(Socket { descriptor, watched: false, express: false, kind }))
    }

    /// Takes a stream over; its TLS may be the kernel's.
    pub(crate) fn add(&mut self, descriptor: OwnedFd, records: bool) -> io::Result<Key> {
        prepare(&descriptor)?;
        let kind = Kind::Stream(Stream::unknown(records));
        Ok(self.table.insert(Socket { descriptor, watched: false, express: false, kind }))
    }

    /// Sets a flag with every edge of a descriptor's readiness. Descriptors whose flag has no other
    /// owner any more are closed.
    pub(crate) fn watch<P: Poller>(
        &mut self,
        poller: &mut P,
        descriptor: OwnedFd,
        ready_flag: ReadyFlag,
    ) -> io::Result<()> {
        let unshared =
            |socket: &Socket| matches!(&socket.kind, Kind::Watched(flag) if flag.is_unshared());
        let unheard = |table: &Slab<Socket>| {
            table.iter().find(|(_, socket)| unshared(socket)).map(|(key, _)| key)
        };
        while let Some(key) = unheard(&self.table) {
            if let Some(socket) = self.table.remove(key) {
                poller.unwatch(socket.descriptor.as_fd(), key);
            }
        }
        let kind = Kind::Watched(ready_flag);
        let key = self.table.insert(Socket { descriptor, watched: true, express: false, kind });
        let Some(socket) = self.table.get(key) else { return Ok(()) };
        let watched = poller.watch(socket.descriptor.as_fd(), key);
        if watched.is_err() {
            self.table.remove(key);
        }
        watched
    }

    pub(crate) fn local_address(&self, key: Key) -> io::Result<SocketAddr> {
        let socket = self.table.get(key).ok_or(Errno::BADF)?;
        internet_address(rustix::net::getsockname(&socket.descriptor)?)
    }

    pub(crate) fn marking(&self, key: Key) -> io::Result<Marking> {
        let socket = self.table.get(key).ok_or(Errno::BADF)?;
        Marking::of(&socket.descriptor, &self.local_address(key)?)
    }

    /// The records of a stream whose TLS is the kernel's.
    pub(crate) fn records(&mut self, key: Key) -> io::Result<Records<'_>> {
        match self.table.get_mut(key) {
            Some(Socket { kind: Kind::Stream(stream), descriptor, .. }) => {
                Ok(Records { descriptor, begun: &mut stream.records })
            }
            _ => Err(Errno::BADF.into()),
        }
    }

    pub(crate) fn peer_address(&self, key: Key) -> io::Result<SocketAddr> {
        let socket = self.table.get(key).ok_or(Errno::BADF)?;
        let address = rustix::net::getpeername(&socket.descriptor)?.ok_or(Errno::NOTCONN)?;
        internet_address(address)
    }

    /// Whether nothing will follow what has been received so far, read or not.
    pub(crate) fn has_hung_up(&self, key: Key) -> bool {
        let Some(socket) = self.table.get(key) else { return true };
        polls(&socket.descriptor, PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
    }

    /// Whether something of the peer has come within this time.
    pub(crate) fn life_within(&self, key: Key, time: Duration) -> Life {
        let Some(socket) = self.table.get(key) else { return Life::Doubtful };
        life_within(&socket.descriptor, time)
    }

    /// Releases an idle stream's descriptor, with whether its TLS is the kernel's.
    pub(crate) fn take<P: Poller>(&mut self, poller: &mut P, key: Key) -> Option<(OwnedFd, bool)> {
        let records = match &self.table.get(key)?.kind {
            Kind::Stream(Stream { receive: None, send: None, records, .. }) => *records,
            _ => return None,
        };
        let socket = self.table.remove(key)?;
        if socket.watched {
            poller.unwatch(socket.descriptor.as_fd(), key);
        }
        Some((socket.descriptor, records))
    }

    /// The close of a socket will be a reset that discards the bytes which the kernel still has.
    pub(crate) fn discard_unsent(&mut self, key: Key) {
        if let Some(Socket { kind: Kind::Stream(stream), .. }) = self.table.get_mut(key) {
            stream.discards = true;
        }
    }

    /// Closes a socket of any kind; what is pending completes as cancelled.
    pub(crate) fn close<P: Poller>(
        &mut self,
        poller: &mut P,
        key: Key,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        let Some(socket) = self.table.remove(key) else { return };
        if socket.watched {
            poller.unwatch(socket.descriptor.as_fd(), key);
        }
        match socket.kind {
            Kind::Listener(Listener { accept: Some(token), .. }) | Kind::Connecting { token } => {
                self.connect_limits.clear(key);
                self.finish(token, cancelled(None, None), ready);
            }
            Kind::Listener(_) | Kind::Watched(_) => {}
            Kind::Stream(stream) => {
                if !stream.discards {
                    set_reset_at_close(&socket.descriptor, false);
                }
                if let Some(Receive { token, into }) = stream.receive {
                    let buffer = into.map(|(buffer, _)| buffer);
                    self.finish(token, cancelled(buffer, None), ready);
                }
                if let Some(Send { token, message }) = stream.send {
                    self.finish(token, cancelled(None, Some(message)), ready);
                }
            }
        }
    }

    /// Begins an operation on a socket.
    pub(crate) fn submit<P: Poller>(
        &mut self,
        poller: &mut P,
        token: Token,
        operation: Operation,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        match operation {
            Operation::Accept { listener } => {
                let Some(Socket { kind: Kind::Listener(state), .. }) =
                    self.table.get_mut(listener.0)
                else {
                    return refuse(token, operation, Errno::BADF, ready);
                };
                if state.accept.is_some() {
                    return refuse(token, operation, Errno::ALREADY, ready);
                }
                state.accept = Some(token);
                if state.readable {
                    self.runnable.push(listener.0);
                }
                self.tokens.insert(token, listener.0);
            }
            Operation::Connect { .. } => {
                if let Err(error) = self.connect(poller, token, &operation, ready) {
                    ready.push(ReactorCompletion { token, outcome: Outcome::failed(error) });
                }
            }
            Operation::Receive { socket } | Operation::ReceiveInto { socket, .. } => {
                self.receive(token, socket, operation, ready);
            }
            Operation::Send { .. } => self.send(poller, token, operation, ready),
            _ => unreachable!("only operations on sockets come here"),
        }
    }

    /// Withdraws a pending operation. Whether there was one by that name.
    pub(crate) fn cancel<P: Poller>(
        &mut self,
        poller: &mut P,
        token: Token,
        ready: &mut Vec<ReactorCompletion>,
    ) -> bool {
        let Some(&key) = self.tokens.get(&token) else { return false };
        let Some(socket) = self.table.get_mut(key) else { return false };
        match &mut socket.kind {
            Kind::Connecting { .. } => self.close(poller, key, ready),
            Kind::Listener(listener) => {
                listener.accept = None;
                self.finish(token, cancelled(None, None), ready);
            }
            Kind::Watched(_) => {}
            Kind::Stream(stream) => {
                if let Some(Receive { into, .. }) = stream.receive.take_if(|it| it.token == token) {
                    let buffer = into.map(|(buffer, _)| buffer);
                    self.finish(token, cancelled(buffer, None), ready);
                } else if let Some(Send { message, .. }) =
                    stream.send.take_if(|it| it.token == token)
                {
                    self.finish(token, cancelled(None, Some(message)), ready);
                }
            }
        }
        true
    }

    /// The next time at which [`handle_deadlines`](Self::handle_deadlines) has something to do.
    pub(crate) fn deadline(&mut self) -> Option<Duration> {
        self.connect_limits.next()
    }

    /// Gives up connections that took too long.
    pub(crate) fn handle_deadlines<P: Poller>(
        &mut self,
        poller: &mut P,
        now: Duration,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        while let Some(key) = self.connect_limits.pop(now) {
            self.connect_failed(poller, key, Errno::TIMEDOUT, ready);
        }
    }

    /// Whether a turn without waiting has something to try.
    pub(crate) fn has_runnable(&self) -> bool {
        !self.runnable.is_empty() || !self.sliced.is_empty()
    }

    /// Whether a stream is to be tried directly.
    pub(crate) fn has_one_hot(&self, now: Duration) -> bool {
        self.hot.only_one(now).is_some()
    }

    /// Whether several streams are hot.
    pub(crate) fn are_several_hot(&self, now: Duration) -> bool {
        now < self.hot.several_until
    }

    /// Tries what is likely to succeed: new receives, receives for which there is memory again
    /// and, when spinning, the only hot stream.
    pub(crate) fn try_likely<P: Poller>(
        &mut self,
        poller: &mut P,
        now: Duration,
        spins: bool,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        if !self.starved.is_empty() {
            self.runnable.append(&mut self.starved);
        }
        for _ in 0..self.sliced.len() {
            self.continue_sends(poller, ready);
        }
        let direct = self.hot.only_one(now).filter(|_| spins);
        if !self.runnable.is_empty() {
            let mut keys = std::mem::take(&mut self.scratch);
            std::mem::swap(&mut keys, &mut self.runnable);
            // Not twice in one turn.
            for key in keys.drain(..).filter(|key| direct != Some(*key)) {
                self.try_input(poller, key, now, ready);
            }
            self.scratch = keys;
        }
        if let Some(key) = direct {
            self.try_receive(poller, key, now, ready);
        }
        if !spins {
            self.release_idle();
        }
    }

    /// Releases what was kept for the next turn.
    pub(crate) fn release_idle(&mut self) {
        self.spare = None;
    }

    /// Takes an edge from the poller and continues the operations that it makes possible.
    pub(crate) fn handle_ready<P: Poller>(
        &mut self,
        poller: &mut P,
        event: Ready,
        now: Duration,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        let key = event.key;
        let Some(socket) = self.table.get_mut(key) else { return };
        socket.watched &= event.is_watched;
        match &mut socket.kind {
            Kind::Listener(listener) => {
                listener.readable |= event.readable || !event.is_watched;
                self.try_accept(poller, key, ready);
            }
            Kind::Connecting { .. } => {
                if event.writable || event.ended {
                    self.try_connected(poller, key, ready);
                }
                // Does nothing if it is still watched.
                if !event.is_watched {
                    self.ensure_watched(poller, key, ready);
                }
            }
            Kind::Watched(ready_flag) => {
                ready_flag.set();
                if !event.is_watched {
                    self.ensure_watched(poller, key, ready);
                }
            }
            // Its own poller reports the same, and first. This report ends a sleep; that it comes
            // before the other one is possible, so the stream is tried in the next turn.
            Kind::Stream(stream) if socket.express && event.is_watched => {
                if event.readable && !std::mem::replace(&mut stream.readable, true) {
                    self.runnable.push(key);
                }
            }
            Kind::Stream(_) => self.continue_stream(poller, event, now, ready),
        }
    }

    /// Continues the operations of a stream that an edge makes possible.
    pub(crate) fn continue_stream<P: Poller>(
        &mut self,
        poller: &mut P,
        event: Ready,
        now: Duration,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        let key = event.key;
        let Some(Socket { kind: Kind::Stream(stream), .. }) = self.table.get_mut(key) else {
            return;
        };
        // Without a watch the state is unknown: an attempt finds it and watches again.
        stream.readable |= event.readable || !event.is_watched;
        stream.writable |= event.writable || !event.is_watched;
        stream.ended |= event.ended;
        let (receives, sends) =
            (stream.readable && stream.receive.is_some(), stream.writable && stream.send.is_some());
        if receives {
            self.try_receive(poller, key, now, ready);
        }
        if sends {
            self.try_send(poller, key, ready);
        }
    }

    fn try_input<P: Poller>(
        &mut self,
        poller: &mut P,
        key: Key,
        now: Duration,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        match self.table.get(key).map(|socket| &socket.kind) {
            Some(Kind::Listener(_)) => self.try_accept(poller, key, ready),
            Some(Kind::Stream(_)) => self.try_receive(poller, key, now, ready),
            Some(Kind::Connecting { .. } | Kind::Watched(_)) | None => {}
        }
    }

    /// Watches the socket. If that is impossible its operations could wait forever, so they fail.
    /// Whether it is watched.
    fn ensure_watched<P: Poller>(
        &mut self,
        poller: &mut P,
        key: Key,
        ready: &mut Vec<ReactorCompletion>,
    ) -> bool {
        let Some(socket) = self.table.get_mut(key) else { return false };
        if !socket.watched {
            match poller.watch(socket.descriptor.as_fd(), key) {
                Ok(()) => socket.watched = true,
                Err(error) => {
                    self.cannot_watch(key, &error, ready);
                    return false;
                }
            }
        }
        true
    }

    fn cannot_watch(&mut self, key: Key, error: &io::Error, ready: &mut Vec<ReactorCompletion>) {
        let again = || match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => error.kind().into(),
        };
        let Some(socket) = self.table.get_mut(key) else { return };
        match &mut socket.kind {
            Kind::Listener(listener) => {
                if let Some(token) = listener.accept.take() {
                    self.finish(token, Outcome::failed(again()), ready);
                }
            }
            // Its reactor still polls it whenever it is awake.
            Kind::Watched(ready_flag) => ready_flag.set(),
            Kind::Connecting { token } => {
                let token = *token;
                self.connect_limits.clear(key);
                self.table.remove(key);
                self.finish(token, Outcome::failed(again()), ready);
            }
            Kind::Stream(stream) => {
                let (receive, send) = (stream.receive.take(), stream.send.take());
                stream.readable = true;
                stream.writable = true;
                if let Some(Receive { token, into }) = receive {
                    let buffer = into.map(|(buffer, _)| buffer);
                    let outcome = Outcome::Failed { error: again(), buffer, message: None };
                    self.finish(token, outcome, ready);
                }
                if let Some(Send { token, message }) = send {
                    let message = Some(message);
                    let outcome = Outcome::Failed { error: again(), buffer: None, message };
                    self.finish(token, outcome, ready);
                }
            }
        }
    }

    fn finish(&mut self, token: Token, outcome: Outcome, ready: &mut Vec<ReactorCompletion>) {
        self.tokens.remove(&token);
        ready.push(ReactorCompletion { token, outcome });
    }
}

fn refuse(token: Token, operation: Operation, error: Errno, ready: &mut Vec<ReactorCompletion>) {
    ready.push(ReactorCompletion { token, outcome: operation.refuse(error) });
}

fn cancelled(buffer: Option<Buffer>, message: Option<Message>) -> Outcome {
    Outcome::Cancelled { buffer, message }
}

/// Whether any of these holds for a descriptor at this moment.
fn polls(descriptor: &OwnedFd, any: PollFlags) -> bool {
    let mut descriptors = [PollFd::new(descriptor, any)];
    let found = rustix::event::poll(&mut descriptors, Some(&Timespec::default()));
    found.is_ok_and(|_| descriptors[0].revents().intersects(any))
}
