//! The driver of a simulated reactor.

use super::conditions::SimulatedFile;
use super::network::{End, SocketEntry};
use super::state::{Event, ExpressWork, Notice, State};
use crate::driver::{Driver, Wait, unserved};
use crate::limits::SEND_SLICE_BYTES;
use crate::mailbox::Waker;
use crate::message::{Message, PIECES_MAX};
use crate::operation::{
    FileId, ListenerId, Operation, Outcome, ReactorCompletion, SocketId, Token,
};
use crate::pool::{Buffer, Pool};
use crate::slab::{Key, Slab};
use crate::socket::Life;
use crate::source::ReadyFlag;
use crate::stream::{FileKind, FileSource, Stream, StreamKind};
use crate::timers::NumberMap;
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;
use std::{fmt, io};

/// The [`driver_name`](crate::Reactor::driver_name) of simulated reactors.
pub const DRIVER_NAME: &str = "simulated";

/// What [`World::set_send_time`](super::World::set_send_time) and the service of a file are the
/// time of.
const TIMED_BYTES: u32 = 64 << 10;

pub(crate) struct SimulatedDriver {
    state: Rc<RefCell<State>>,
    /// Its index among the world's reactors.
    reactor: usize,
    pool: Pool,
    waker: Waker,
    receive_bytes: usize,
    sockets: Slab<Socket>,
    tokens: NumberMap<Token, Key>,
    /// To be tried in the next turn.
    runnable: Vec<Key>,
    /// What is apart from the others.
    express: ExpressWork,
    /// Those that have more to send.
    sliced: VecDeque<Key>,
    files: Slab<SimulatedFile>,
    operations: Slab<FileWork>,
}

#[derive(Debug)]
enum Socket {
    Listener { listener: Key, accept: Option<Token> },
    Connecting { end: Key, token: Token },
    Stream { end: Key, receive: Option<Receive>, send: Option<Send> },
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

/// An operation on a file that has not ended yet.
#[derive(Debug)]
struct FileWork {
    token: Token,
    operation: Operation,
    file: SimulatedFile,
    /// The file's count when it began.
    crashes: u64,
    fails: bool,
}

impl fmt::Debug for SimulatedDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedDriver").field("reactor", &self.reactor).finish_non_exhaustive()
    }
}

impl SimulatedDriver {
    pub(super) fn new(state: Rc<RefCell<State>>, pool: Pool, waker: Waker) -> Self {
        let (reactor, receive_bytes) = {
            let mut state = state.borrow_mut();
            (state.add_reactor(), state.receive_bytes)
        };
        Self {
            state,
            reactor,
            pool,
            waker,
            receive_bytes,
            sockets: Slab::new(),
            tokens: NumberMap::default(),
            runnable: Vec::new(),
            express: ExpressWork::default(),
            sliced: VecDeque::new(),
            files: Slab::new(),
            operations: Slab::new(),
        }
    }

    fn is_out_of_sockets(&self) -> bool {
        let limit = self.state.borrow().socket_limit;
        limit.is_some_and(|limit| self.sockets.len() >= limit)
    }

    fn finish(&mut self, token: Token, outcome: Outcome, ready: &mut Vec<ReactorCompletion>) {
        self.tokens.remove(&token);
        ready.push(ReactorCompletion { token, outcome });
    }

    // Sockets

    fn submit_socket(
        &mut self,
        token: Token,
        operation: Operation,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        let key = match &operation {
            Operation::Accept { listener } => listener.0,
            Operation::Receive { socket }
            | Operation::ReceiveInto { socket, .. }
            | Operation::Send { socket, .. } => socket.0,
            _ => unreachable!("only operations on sockets come here"),
        };
        let refusal = match (self.sockets.get_mut(key), &operation) {
            (Some(Socket::Listener { accept, .. }), Operation::Accept { .. }) => {
                accept.is_some().then_some(Errno::ALREADY)
            }
            (Some(Socket::Stream { send, .. }), Operation::Send { .. }) => {
                send.is_some().then_some(Errno::ALREADY)
            }
            (
                Some(Socket::Stream { receive, .. }),
                Operation::Receive { .. } | Operation::ReceiveInto { .. },
            ) => receive.is_some().then_some(Errno::ALREADY),
            _ => Some(Errno::BADF),
        };
        if let Some(error) = refusal {
            ready.push(ReactorCompletion { token, outcome: operation.refuse(error) });
            return;
        }
        self.tokens.insert(token, key);
        let is_send = matches!(operation, Operation::Send { .. });
        match (self.sockets.get_mut(key), operation) {
            (Some(Socket::Listener { accept, .. }), _) => *accept = Some(token),
            (Some(Socket::Stream { send, .. }), Operation::Send { mut message, .. }) => {
                message.rewind();
                *send = Some(Send { token, message });
            }
            (Some(Socket::Stream { receive, .. }), operation) => {
                let into = match operation {
                    Operation::ReceiveInto { buffer, range, .. } => Some((buffer, range)),
                    _ => None,
                };
                *receive = Some(Receive { token, into });
            }
            _ => {}
        }
        if is_send {
            self.try_send(key, ready);
        } else {
            self.runnable.push(key);
        }
    }

    fn connect(&mut self, token: Token, operation: &Operation, ready: &mut Vec<ReactorCompletion>) {
        let &Operation::Connect { address, local, timeout, .. } = operation else { return };
        if self.is_out_of_sockets() {
            ready.push(ReactorCompletion { token, outcome: Outcome::failed(Errno::MFILE) });
            return;
        }
        // The end and the socket refer to each other, so the first one has an unused key until the
        // second one exists.
        let unknown = Key::from_bits(u64::MAX);
        let socket = self.sockets.insert(Socket::Connecting { end: unknown, token });
        let place = SocketEntry { reactor: self.reactor, socket };
        let end = self.state.borrow_mut().connect(place, address, local, timeout);
        if let Some(Socket::Connecting { end: slot, .. }) = self.sockets.get_mut(socket) {
            *slot = end;
        }
        self.tokens.insert(token, socket);
    }

    /// Continues a socket's operations as far as possible.
    fn try_socket(&mut self, key: Key, ready: &mut Vec<ReactorCompletion>) {
        match self.sockets.get(key) {
            Some(Socket::Listener { .. }) => self.try_accept(key, ready),
            Some(Socket::Stream { .. }) => {
                self.try_receive(key, ready);
                self.try_send(key, ready);
            }
            Some(Socket::Connecting { .. }) | None => {}
        }
    }

    fn try_accept(&mut self, key: Key, ready: &mut Vec<ReactorCompletion>) {
        loop {
            let is_full = self.is_out_of_sockets();
            let Some(Socket::Listener { listener, accept }) = self.sockets.get_mut(key) else {
                return;
            };
            let (Some(token), listener) = (*accept, *listener) else { return };
            if !self.state.borrow().has_backlog(listener) {
                return;
            }
            if is_full {
                *accept = None;
                return self.finish(token, Outcome::failed(Errno::MFILE), ready);
            }
            let (sockets, reactor) = (&mut self.sockets, self.reactor);
            let mut accepted = None;
            let end = self.state.borrow_mut().accept(listener, |end| {
                let socket = sockets.insert(Socket::Stream { end, receive: None, send: None });
                accepted = Some(socket);
                SocketEntry { reactor, socket }
            });
            let (Some(end), Some(socket)) = (end, accepted) else { return };
            let state = self.state.borrow();
            let Some(peer) = state.ends.get(end).map(|end| end.remote) else { return };
            let outcome = Outcome::Accepted { socket: SocketId(socket), peer };
            ready.push(ReactorCompletion { token, outcome });
        }
    }

    fn try_receive(&mut self, key: Key, ready: &mut Vec<ReactorCompletion>) {
        let Some(Socket::Stream { end, receive, .. }) = self.sockets.get_mut(key) else { return };
        let Some(Receive { into, .. }) = receive else { return };
        let mut state = self.state.borrow_mut();
        if !state.ends.get(*end).is_some_and(|end| end.has_input()) {
            return;
        }
        let mut taken = None;
        let bytes = match into {
            Some((buffer, range)) => &mut buffer.bytes_mut()[range.clone()],
            None => match taken.insert(self.pool.take_largest(self.receive_bytes)) {
                Some(buffer) => buffer.bytes_mut(),
                // The pool is empty: again in the next turn.
                None => return self.runnable.push(key),
            },
        };
        let result = state.receive(*end, bytes);
        drop(state);
        let Some(Receive { token, into }) = receive.take() else { return };
        let outcome = match (result, into, taken.flatten()) {
            (Ok(len), Some((buffer, _)), _) => Outcome::ReceivedInto { buffer, len },
            (Ok(len), None, Some(mut buffer)) => {
                self.pool.fit(&mut buffer, len);
                Outcome::Received { buffer, len }
            }
            (Err(error), into, _) => {
                let buffer = into.map(|(buffer, _)| buffer);
                Outcome::Failed { error: error.into(), buffer, message: None }
            }
            (Ok(_), None, None) => return,
        };
        self.finish(token, outcome, ready);
    }

    fn try_send(&mut self, key: Key, ready: &mut Vec<ReactorCompletion>) {
        let Some(Socket::Stream { end, send, .. }) = self.sockets.get_mut(key) else { return };
        let Some(Send { message, .. }) = send else { return };
        let mut state = self.state.borrow_mut();
        let sockets = &self.express.sockets;
        let is_sliced = !sockets.is_empty() && !sockets.contains(&key);
        let send_time = if is_sliced { state.send_time } else { Duration::ZERO };
        let most = if send_time.is_zero() { usize::MAX } else { SEND_SLICE_BYTES };
        let before = message.unsent();
        let result = send_most(&mut state, *end, message, most);
        let sent = u32::try_from(before - message.unsent()).unwrap_or(u32::MAX);
        state.pass(send_time * sent / TIMED_BYTES);
        drop(state);
        if result == Err(Errno::AGAIN) {
            return;
        }
        if result.is_ok() && message.unsent() > 0 {
            if !self.sliced.contains(&key) {
                self.sliced.push_back(key);
            }
            return;
        }
        let Some(Send { token, message }) = send.take() else { return };
        let outcome = match result {
            Ok(()) => Outcome::Sent { message },
            Err(error) => {
                Outcome::Failed { error: error.into(), buffer: None, message: Some(message) }
            }
        };
        self.finish(token, outcome, ready);
    }

    fn close_socket(&mut self, key: Key, ready: &mut Vec<ReactorCompletion>) {
        let cancelled = |buffer, message| Outcome::Cancelled { buffer, message };
        self.express.sockets.retain(|express| *express != key);
        match self.sockets.remove(key) {
            Some(Socket::Listener { listener, accept }) => {
                self.state.borrow_mut().close_listener(listener);
                if let Some(token) = accept {
                    self.finish(token, cancelled(None, None), ready);
                }
            }
            Some(Socket::Connecting { end, token }) => {
                self.state.borrow_mut().close_end(end);
                self.finish(token, cancelled(None, None), ready);
            }
            Some(Socket::Stream { end, receive, send }) => {
                self.state.borrow_mut().close_end(end);
                if let Some(Receive { token, into }) = receive {
                    let buffer = into.map(|(buffer, _)| buffer);
                    self.finish(token, cancelled(buffer, None), ready);
                }
                if let Some(Send { token, message }) = send {
                    self.finish(token, cancelled(None, Some(message)), ready);
                }
            }
            None => {}
        }
    }

    fn connected(&mut self, key: Key, ready: &mut Vec<ReactorCompletion>) {
        let Some(socket) = self.sockets.get_mut(key) else { return };
        let Socket::Connecting { end, token } = *socket else { return };
        *socket = Socket::Stream { end, receive: None, send: None };
        self.finish(token, Outcome::Connected { socket: SocketId(key) }, ready);
    }

    fn not_connected(&mut self, key: Key, error: Errno, ready: &mut Vec<ReactorCompletion>) {
        let Some(Socket::Connecting { end, token }) = self.sockets.get(key) else { return };
        let (end, token) = (*end, *token);
        self.sockets.remove(key);
        self.state.borrow_mut().close_end(end);
        self.finish(token, Outcome::failed(error), ready);
    }

    // Files

    fn submit_file(
        &mut self,
        token: Token,
        operation: Operation,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        let (id, offset, length) = match &operation {
            Operation::Read { file, offset, range, .. }
            | Operation::Write { file, offset, range, .. } => (*file, *offset, range.len() as u64),
            Operation::Discard { file, offset, length }
            | Operation::WriteZeroes { file, offset, length, .. } => (*file, *offset, *length),
            Operation::Sync { file } => (*file, 0, 0),
            _ => unreachable!("only operations on files come here"),
        };
        let is_sound = offset.checked_add(length).is_some_and(|end| i64::try_from(end).is_ok());
        let refusal = match self.files.get(id.0) {
            None => Err(Errno::BADF),
            Some(_) if !is_sound => Err(Errno::INVAL),
            Some(file) => Ok(*file),
        };
        let file = match refusal {
            Ok(file) => file,
            Err(error) => {
                ready.push(ReactorCompletion { token, outcome: operation.refuse(error) });
                return;
            }
        };
        let mut state = self.state.borrow_mut();
        let (latency, jitter) = (state.storage.latency, state.storage.jitter);
        let error_probability = state.storage.error_probability;
        let fails = state.random.chance(error_probability);
        let crashes = state.file(file).crashes;
        let (now, mut at) = (state.now(), state.now());
        let (service, channels) = (state.storage.service, state.storage.channels);
        if !service.is_zero() {
            let parts = u32::try_from(length).unwrap_or(u32::MAX);
            let time = service * parts / TIMED_BYTES;
            at = state.file_mut(file).serve(channels, time, now);
        }
        at += state.delay(latency, jitter);
        let operation = self.operations.insert(FileWork { token, operation, file, crashes, fails });
        state.schedule(at, Event::File { reactor: self.reactor, operation });
    }

    /// An operation takes effect at its due time.
    fn file_completed(&mut self, key: Key, ready: &mut Vec<ReactorCompletion>) {
        self.express.operations.retain(|express| *express != key);
        let Some(work) = self.operations.remove(key) else { return };
        let mut state = self.state.borrow_mut();
        let file = state.file_mut(work.file);
        let outcome = if work.fails || work.crashes != file.crashes {
            work.operation.refuse(Errno::IO)
        } else {
            match work.operation {
                Operation::Read { offset, buffer, range, .. } => {
                    if offset + range.len() as u64 > file.len() {
                        let error = io::ErrorKind::UnexpectedEof.into();
                        Outcome::Failed { error, buffer: Some(buffer), message: None }
                    } else {
                        let mut buffer = buffer;
                        file.peek(offset, &mut buffer.bytes_mut()[range]);
                        Outcome::Transferred { buffer }
                    }
                }
                Operation::Write { offset, buffer, range, durable, .. } => {
                    file.write(offset, &buffer[range], durable);
                    Outcome::Transferred { buffer }
                }
                Operation::Discard { offset, length, .. }
                | Operation::WriteZeroes { offset, length, .. } => {
                    file.erase(offset, length);
                    Outcome::Done
                }
                _ => match file.sync() {
                    Ok(()) => Outcome::Done,
                    Err(error) => Outcome::failed(error),
                },
            }
        };
        ready.push(ReactorCompletion { token: work.token, outcome });
    }

    /// Takes the world's notices and continues the operations that they make possible.
    fn handle_notices(&mut self, ready: &mut Vec<ReactorCompletion>) {
        loop {
            let notice = self.state.borrow_mut().take_notice(self.reactor, &self.express);
            match notice {
                None => break,
                Some(Notice::Changed(key)) => self.try_socket(key, ready),
                Some(Notice::Connected(key)) => self.connected(key, ready),
                Some(Notice::NotConnected(key, error)) => self.not_connected(key, error, ready),
                Some(Notice::File(key)) => self.file_completed(key, ready),
            }
        }
        for key in std::mem::take(&mut self.runnable) {
            self.try_socket(key, ready);
        }
        for key in std::mem::take(&mut self.sliced) {
            self.try_send(key, ready);
        }
    }
}

/// Sends so much, until nothing is left or there is no room.
fn send_most(state: &mut State, end: Key, message: &mut Message, most: usize) -> Result<(), Errno> {
    let rest = message.unsent().saturating_sub(most);
    while message.unsent() > rest {
        let room = state.room(end)?.min(message.unsent() - rest);
        let mut slices = [const { MaybeUninit::uninit() }; PIECES_MAX];
        let mut bytes = Vec::new();
        for piece in message.gather(&mut slices, room) {
            let len = piece.len().min(room - bytes.len());
            bytes.extend_from_slice(&piece[..len]);
        }
        message.advance(bytes.len());
        state.send(end, bytes);
    }
    Ok(())
}

impl Driver for SimulatedDriver {
    fn name(&self) -> &'static str {
        DRIVER_NAME
    }

    fn is_virtual(&self) -> bool {
        true
    }

    fn now(&self) -> Duration {
        self.state.borrow().now()
    }

    fn listen(&mut self, address: SocketAddr) -> io::Result<ListenerId> {
        if self.is_out_of_sockets() {
            return Err(Errno::MFILE.into());
        }
        let unknown = Key::from_bits(u64::MAX);
        let socket = self.sockets.insert(Socket::Listener { listener: unknown, accept: None });
        let place = SocketEntry { reactor: self.reactor, socket };
        match self.state.borrow_mut().listen(place, address) {
            Ok(key) => {
                if let Some(Socket::Listener { listener, .. }) = self.sockets.get_mut(socket) {
                    *listener = key;
                }
                Ok(ListenerId(socket))
            }
            Err(error) => {
                self.sockets.remove(socket);
                Err(error.into())
            }
        }
    }

    fn listener_address(&self, listener: ListenerId) -> io::Result<SocketAddr> {
        let Some(Socket::Listener { listener, .. }) = self.sockets.get(listener.0) else {
            return Err(Errno::BADF.into());
        };
        let state = self.state.borrow();
        Ok(state.listeners.get(*listener).ok_or(Errno::BADF)?.address)
    }

    fn socket_address(&self, socket: SocketId) -> io::Result<SocketAddr> {
        let Some(Socket::Stream { end, .. }) = self.sockets.get(socket.0) else {
            return Err(Errno::BADF.into());
        };
        Ok(self.state.borrow().ends.get(*end).ok_or(Errno::BADF)?.local)
    }

    fn peer_address(&self, socket: SocketId) -> io::Result<SocketAddr> {
        let Some(Socket::Stream { end, .. }) = self.sockets.get(socket.0) else {
            return Err(Errno::BADF.into());
        };
        Ok(self.state.borrow().ends.get(*end).ok_or(Errno::BADF)?.remote)
    }

    fn has_hung_up(&self, socket: SocketId) -> bool {
        let Some(Socket::Stream { end, .. }) = self.sockets.get(socket.0) else { return true };
        self.state.borrow().ends.get(*end).is_none_or(End::has_hung_up)
    }

    fn life_within(&self, socket: SocketId, _: Duration) -> Life {
        let Some(Socket::Stream { end, .. }) = self.sockets.get(socket.0) else {
            return Life::Doubtful;
        };
        self.state.borrow().life(*end)
    }

    fn add_stream(&mut self, stream: Stream) -> io::Result<SocketId> {
        let StreamKind::Simulated(detached) = stream.0 else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "a stream of the kernel"));
        };
        if self.is_out_of_sockets() {
            return Err(Errno::MFILE.into());
        }
        let end = detached.end;
        let socket = self.sockets.insert(Socket::Stream { end, receive: None, send: None });
        let place = SocketEntry { reactor: self.reactor, socket };
        self.state.borrow_mut().attach(&detached, place);
        Ok(SocketId(socket))
    }

    fn take_stream(&mut self, socket: SocketId) -> Option<Stream> {
        let Some(Socket::Stream { end, receive: None, send: None }) = self.sockets.get(socket.0)
        else {
            return None;
        };
        let detached = self.state.borrow_mut().detach(*end);
        self.sockets.remove(socket.0);
        self.express.sockets.retain(|key| *key != socket.0);
        Some(Stream(StreamKind::Simulated(detached)))
    }

    fn discard_unsent(&mut self, socket: SocketId) {
        if let Some(Socket::Stream { end, .. } | Socket::Connecting { end, .. }) =
            self.sockets.get(socket.0)
        {
            self.state.borrow_mut().discard_unsent(*end);
        }
    }

    fn close(&mut self, socket: SocketId, ready: &mut Vec<ReactorCompletion>) {
        self.close_socket(socket.0, ready);
    }

    fn close_listener(&mut self, listener: ListenerId, ready: &mut Vec<ReactorCompletion>) {
        self.close_socket(listener.0, ready);
    }

    fn add_file(&mut self, file: FileSource, _direct: bool) -> FileId {
        match file.0 {
            FileKind::Simulated(file) => FileId(self.files.insert(file)),
            FileKind::Kernel(_) => panic!("a file of the kernel on a simulated reactor"),
        }
    }

    fn remove_file(&mut self, file: FileId) {
        self.files.remove(file.0);
    }

    fn submit(
        &mut self,
        token: Token,
        operation: Operation,
        is_express: bool,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        match operation {
            Operation::Connect { .. } => self.connect(token, &operation, ready),
            Operation::Accept { .. }
            | Operation::Receive { .. }
            | Operation::ReceiveInto { .. }
            | Operation::Send { .. } => self.submit_socket(token, operation, ready),
            Operation::Read { .. }
            | Operation::Write { .. }
            | Operation::Sync { .. }
            | Operation::Discard { .. }
            | Operation::WriteZeroes { .. } => self.submit_file(token, operation, ready),
            Operation::FetchUblk { .. } => {
                ready.push(ReactorCompletion { token, outcome: operation.refuse(unserved()) });
            }
        }
        if is_express {
            let own = self.operations.iter().find(|(_, work)| work.token == token);
            self.express.operations.extend(own.map(|(key, _)| key));
        }
    }

    fn cancel(&mut self, token: Token, ready: &mut Vec<ReactorCompletion>) {
        let cancelled = |buffer, message| Outcome::Cancelled { buffer, message };
        let Some(&key) = self.tokens.get(&token) else {
            // Half of the file operations cannot be stopped any more.
            let found = self.operations.iter().find(|(_, work)| work.token == token);
            if let Some((key, _)) = found
                && self.state.borrow_mut().random.chance(0.5)
                && let Some(work) = self.operations.remove(key)
            {
                self.express.operations.retain(|express| *express != key);
                let outcome = match work.operation.refuse(Errno::CANCELED) {
                    Outcome::Failed { buffer, message, .. } => cancelled(buffer, message),
                    other => other,
                };
                ready.push(ReactorCompletion { token, outcome });
            }
            return;
        };
        match self.sockets.get_mut(key) {
            Some(Socket::Connecting { .. }) => self.close_socket(key, ready),
            Some(Socket::Listener { accept, .. }) => {
                *accept = None;
                self.finish(token, cancelled(None, None), ready);
            }
            Some(Socket::Stream { receive, send, .. }) => {
                if let Some(Receive { into, .. }) = receive.take_if(|it| it.token == token) {
                    let buffer = into.map(|(buffer, _)| buffer);
                    self.finish(token, cancelled(buffer, None), ready);
                } else if let Some(Send { message, .. }) = send.take_if(|it| it.token == token) {
                    self.finish(token, cancelled(None, Some(message)), ready);
                }
            }
            None => {}
        }
    }

    fn watch(&mut self, _descriptor: OwnedFd, _bell: ReadyFlag) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "a simulated reactor has no descriptors"))
    }

    fn turn(&mut self, _now: Duration, wait: Wait, ready: &mut Vec<ReactorCompletion>) {
        self.handle_notices(ready);
        let Wait::Block(until) = wait else { return };
        let has_express = |this: &Self| this.state.borrow().has_change(this.reactor, &this.express);
        while ready.is_empty() && !has_express(self) {
            let happened = self.state.borrow_mut().advance_until(until);
            self.handle_notices(ready);
            if !happened {
                // Only a deadline or a wake-up can end this now.
                let is_forever = until.is_none() && !self.state.borrow().has_events();
                assert!(
                    !is_forever || !self.waker.begin_sleep(),
                    "a simulated reactor waits for ever"
                );
                return;
            }
        }
    }

    fn set_express(
        &mut self,
        socket: SocketId,
        is_express: bool,
        _ready: &mut Vec<ReactorCompletion>,
    ) -> io::Result<()> {
        self.express.sockets.retain(|key| *key != socket.0);
        match self.sockets.get(socket.0) {
            Some(Socket::Stream { .. }) if is_express => self.express.sockets.push(socket.0),
            Some(Socket::Stream { .. }) => {}
            _ => return Err(Errno::BADF.into()),
        }
        Ok(())
    }

    fn express(&self) -> usize {
        self.express.sockets.len() + self.express.operations.len()
    }

    fn has_express(&mut self) -> bool {
        let mut state = self.state.borrow_mut();
        let work = state.work_time;
        state.pass(work);
        state.has_change(self.reactor, &self.express)
    }

    fn poll_express(&mut self, ready: &mut Vec<ReactorCompletion>) {
        loop {
            let change = self.state.borrow_mut().take_change(self.reactor, &self.express);
            match change {
                Some(Notice::Changed(key)) => self.try_socket(key, ready),
                Some(Notice::File(key)) => self.file_completed(key, ready),
                _ => return,
            }
        }
    }

    fn continue_sends(&mut self, ready: &mut Vec<ReactorCompletion>) -> bool {
        if let Some(key) = self.sliced.pop_front() {
            self.try_send(key, ready);
        }
        !self.sliced.is_empty()
    }

    fn note_deadline(&mut self, deadline: Option<Duration>) {
        self.state.borrow_mut().set_deadline(self.reactor, deadline);
    }
}

impl Drop for SimulatedDriver {
    /// As when a process ends: its connections are closed, its timers are gone.
    fn drop(&mut self) {
        let keys: Vec<Key> = self.sockets.iter().map(|(key, _)| key).collect();
        let mut ready = Vec::new();
        for key in keys {
            if let Some(Socket::Stream { end, .. }) = self.sockets.get(key) {
                self.state.borrow_mut().process_ended(*end);
            }
            self.close_socket(key, &mut ready);
        }
        self.state.borrow_mut().set_deadline(self.reactor, None);
    }
}
