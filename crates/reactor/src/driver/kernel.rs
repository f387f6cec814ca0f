//! The driver over the kernel's sockets and files; where readiness and file completions come from
//! is a [`Poller`]'s business.

use crate::driver::files::{FileOperation, Files, OpenFile};
use crate::driver::sockets::Sockets;
use crate::driver::{Driver, Wait};
use crate::limits::LOOK_INTERVAL;
use crate::operation::{Completion, FileId, ListenerId, Operation, SocketId, Token};
use crate::pool::Pool;
use crate::setup::Config;
use crate::slab::Key;
use crate::source::Bell;
use crate::stream::{FileKind, FileSource, Stream, StreamKind};
use crate::system::monotonic_time;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// What the kernel said about a watched descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) key: Key,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The peer sends nothing more, or all is over: no further edge may come.
    pub(crate) ended: bool,
    /// More reports may follow. Otherwise the watch is over and has to be set up anew.
    pub(crate) is_watched: bool,
}

/// Where readiness and the completions of file operations come from.
pub(crate) trait Poller: Debug {
    const NAME: &'static str;

    /// From now on every edge of the descriptor's readiness is reported under `key`, beginning
    /// with its present state.
    fn watch(&mut self, descriptor: BorrowedFd<'_>, key: Key) -> io::Result<()>;

    /// Undoes [`watch`](Self::watch). Reports that are on their way may still come.
    fn unwatch(&mut self, descriptor: BorrowedFd<'_>, key: Key);

    fn submit_file(&mut self, operation: FileOperation, ready: &mut Vec<Completion>);
    fn cancel_file(&mut self, token: Token, ready: &mut Vec<Completion>);

    /// Whether a look would find something, as far as can be told without a system call.
    fn has_news(&mut self) -> bool;

    /// Takes what the kernel has, after waiting for it if `wait` says so.
    fn look(
        &mut self,
        now: Duration,
        wait: Wait,
        readiness: &mut Vec<Ready>,
        ready: &mut Vec<Completion>,
    );
}

/// Sockets, files and a poller.
#[derive(Debug)]
pub(crate) struct Kernel<P: Poller> {
    // First, because it is dropped first: it waits for what the kernel still holds.
    poller: P,
    sockets: Sockets,
    files: Files,
    readiness: Vec<Ready>,
    last_look: Duration,
    is_hot_elsewhere: bool,
}

impl<P: Poller> Kernel<P> {
    pub(crate) fn new(poller: P, config: &Config, pool: &Pool) -> Self {
        Self {
            poller,
            sockets: Sockets::new(pool.clone(), config.receive_bytes),
            files: Files::new(),
            readiness: Vec::new(),
            last_look: Duration::ZERO,
            is_hot_elsewhere: false,
        }
    }

    /// Whether this turn has to ask the kernel. While hot sockets are tried directly, the others
    /// wait for at most a [`LOOK_INTERVAL`].
    fn is_look_due(&mut self, now: Duration) -> bool {
        !(self.sockets.has_hot() || self.is_hot_elsewhere)
            || now.saturating_sub(self.last_look) >= LOOK_INTERVAL
            || self.poller.has_news()
    }
}

impl<P: Poller> Driver for Kernel<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn now(&self) -> Duration {
        monotonic_time()
    }

    fn listen(&mut self, address: SocketAddr) -> io::Result<ListenerId> {
        self.sockets.listen(address).map(ListenerId)
    }

    fn listener_address(&self, listener: ListenerId) -> io::Result<SocketAddr> {
        self.sockets.local_address(listener.0)
    }

    fn socket_address(&self, socket: SocketId) -> io::Result<SocketAddr> {
        self.sockets.local_address(socket.0)
    }

    fn peer_address(&self, socket: SocketId) -> io::Result<SocketAddr> {
        self.sockets.peer_address(socket.0)
    }

    fn has_hung_up(&self, socket: SocketId) -> bool {
        self.sockets.has_hung_up(socket.0)
    }

    fn add_stream(&mut self, stream: Stream) -> io::Result<SocketId> {
        match stream.0 {
            StreamKind::Kernel(descriptor) => self.sockets.add(descriptor).map(SocketId),
            StreamKind::Simulated(_) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "a stream of a simulated world"))
            }
        }
    }

    fn take_stream(&mut self, socket: SocketId) -> Option<Stream> {
        let descriptor = self.sockets.take(&mut self.poller, socket.0)?;
        Some(Stream(StreamKind::Kernel(descriptor)))
    }

    fn discard_unsent(&mut self, socket: SocketId) {
        self.sockets.discard_unsent(socket.0);
    }

    fn close(&mut self, socket: SocketId, ready: &mut Vec<Completion>) {
        self.sockets.close(&mut self.poller, socket.0, ready);
    }

    fn close_listener(&mut self, listener: ListenerId, ready: &mut Vec<Completion>) {
        self.sockets.close(&mut self.poller, listener.0, ready);
    }

    fn watch(&mut self, descriptor: OwnedFd, bell: Bell) -> io::Result<()> {
        self.sockets.watch(&mut self.poller, descriptor, bell)
    }

    fn set_hot(&mut self, hot: bool) {
        self.is_hot_elsewhere = hot;
    }

    fn add_file(&mut self, file: FileSource, direct: bool) -> FileId {
        let file: Arc<File> = match file.0 {
            FileKind::Kernel(file) => file,
            FileKind::Simulated(_) => panic!("a file of a simulated world on a kernel reactor"),
        };
        FileId(self.files.add(OpenFile::new(file, direct)))
    }

    fn remove_file(&mut self, file: FileId) {
        self.files.remove(file.0);
    }

    fn submit(&mut self, token: Token, operation: Operation, ready: &mut Vec<Completion>) {
        match operation {
            Operation::Accept { .. }
            | Operation::Connect { .. }
            | Operation::Receive { .. }
            | Operation::ReceiveInto { .. }
            | Operation::Send { .. } => {
                self.sockets.submit(&mut self.poller, token, operation, ready);
            }
            Operation::Read { .. }
            | Operation::Write { .. }
            | Operation::Sync { .. }
            | Operation::Discard { .. }
            | Operation::WriteZeroes { .. } => match self.files.prepare(token, operation) {
                Ok(operation) => self.poller.submit_file(operation, ready),
                Err(completion) => ready.push(completion),
            },
        }
    }

    fn cancel(&mut self, token: Token, ready: &mut Vec<Completion>) {
        if !self.sockets.cancel(&mut self.poller, token, ready) {
            self.poller.cancel_file(token, ready);
        }
    }

    fn turn(&mut self, now: Duration, wait: Wait, ready: &mut Vec<Completion>) {
        let spins = wait == Wait::Look;
        self.sockets.carry_on(&mut self.poller, now, spins, ready);
        let (mut wait, due) = match wait {
            Wait::Look => (Wait::Look, self.is_look_due(now)),
            Wait::Block(_) if !ready.is_empty() => (Wait::Look, true),
            Wait::Block(until) => (Wait::Block(earliest(until, self.sockets.deadline())), true),
        };
        if !due {
            return;
        }
        if self.sockets.has_runnable() {
            wait = Wait::Look;
        }
        self.last_look = now;
        let mut readiness = std::mem::take(&mut self.readiness);
        self.poller.look(now, wait, &mut readiness, ready);
        let now = if wait == Wait::Look { now } else { monotonic_time() };
        for event in readiness.drain(..) {
            self.sockets.handle_ready(&mut self.poller, event, now, ready);
        }
        self.readiness = readiness;
        self.sockets.handle_deadlines(&mut self.poller, now, ready);
    }

    fn rest(&mut self) {
        self.sockets.rest();
    }
}

fn earliest(first: Option<Duration>, second: Option<Duration>) -> Option<Duration> {
    match (first, second) {
        (Some(first), Some(second)) => Some(first.min(second)),
        (first, second) => first.or(second),
    }
}
