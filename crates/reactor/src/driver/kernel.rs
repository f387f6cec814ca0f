//! The driver over the kernel's sockets and files. A [`Poller`] supplies readiness and completions
//! of files.

use crate::driver::files::{Files, OpenFile};
use crate::driver::poller::{Poller, Ready};
use crate::driver::sockets::Sockets;
use crate::driver::{Driver, Wait, unpolled, unserved};
use crate::limits::{EXPRESS_FILE_INTERVAL, EXPRESS_FILE_TIME, POLL_INTERVAL};
use crate::operation::{FileId, ListenerId, Operation, ReactorCompletion, SocketId, Token};
use crate::passthrough::Commands;
use crate::pool::Pool;
use crate::records::Records;
use crate::setup::Config;
use crate::socket::{Life, Marking};
use crate::source::ReadyFlag;
use crate::stream::{FileKind, FileSource, Stream, StreamKind};
use crate::system::monotonic_time;
use crate::ublk::Queue;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Sockets, files and a poller.
#[derive(Debug)]
pub(crate) struct Kernel<P: Poller> {
    // First, because it is dropped first: it waits for operations that the kernel still has.
    poller: P,
    /// Watches express sockets, beside `poller`.
    express: Option<P>,
    sockets: Sockets,
    files: Files,
    readiness: Vec<Ready>,
    last_look: Duration,
    /// When an operation on a file was submitted to `express` last.
    express_file_at: Duration,
    is_hot_elsewhere: bool,
}

impl<P: Poller> Kernel<P> {
    pub(crate) fn new(poller: P, config: &Config, pool: &Pool) -> Self {
        Self {
            poller,
            express: None,
            sockets: Sockets::new(pool.clone(), config.receive_bytes),
            files: Files::new(),
            readiness: Vec::new(),
            last_look: Duration::ZERO,
            express_file_at: Duration::ZERO,
            is_hot_elsewhere: false,
        }
    }

    /// Whether this turn has to ask the kernel. While the only hot socket is tried directly, the
    /// others wait for at most a [`POLL_INTERVAL`].
    fn is_poll_due(&mut self, now: Duration) -> bool {
        self.sockets.are_several_hot(now)
            || !(self.sockets.has_one_hot(now) || self.is_hot_elsewhere)
            || now.saturating_sub(self.last_look) >= POLL_INTERVAL
            || self.poller.has_ready()
    }

    /// The poller of what is express, made with the first of it.
    fn express_poller(&mut self) -> io::Result<&mut P> {
        match &mut self.express {
            Some(express) => Ok(express),
            none => Ok(none.insert(self.poller.for_express()?)),
        }
    }

    /// Whether the poller of what is express can have an operation.
    fn has_express_file(&mut self, operation: &Operation) -> bool {
        let is_of_a_file = matches!(
            operation,
            Operation::Read { .. } | Operation::Write { .. } | Operation::Sync { .. }
        );
        is_of_a_file && P::HAS_EXPRESS_FILES && self.express_poller().is_ok()
    }

    /// How to wait while operations on files are express, with which no wait ends: not at all, and
    /// shortly where they take long.
    fn wait_beside_express(&self, now: Duration, wait: Wait) -> Wait {
        let has_files = self.express.as_ref().is_some_and(|one| one.files_in_flight() > 0);
        match wait {
            Wait::Block(_) if has_files && now < self.express_file_at + EXPRESS_FILE_TIME => {
                Wait::Look
            }
            Wait::Block(until) if has_files => {
                Wait::Block(earliest(until, Some(now + EXPRESS_FILE_INTERVAL)))
            }
            wait => wait,
        }
    }

    fn leave_express(&mut self, socket: SocketId) {
        if let Some(express) = &mut self.express {
            self.sockets.leave_express(express, socket.0);
        }
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

    fn marking(&self, socket: SocketId) -> io::Result<Marking> {
        self.sockets.marking(socket.0)
    }

    fn records(&mut self, socket: SocketId) -> io::Result<Records<'_>> {
        self.sockets.records(socket.0)
    }

    fn has_hung_up(&self, socket: SocketId) -> bool {
        self.sockets.has_hung_up(socket.0)
    }

    fn life_within(&self, socket: SocketId, time: Duration) -> Life {
        self.sockets.life_within(socket.0, time)
    }

    fn add_stream(&mut self, stream: Stream) -> io::Result<SocketId> {
        match stream.0 {
            StreamKind::Kernel { descriptor, records } => {
                self.sockets.add(descriptor, records).map(SocketId)
            }
            StreamKind::Simulated(_) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "a simulated stream"))
            }
        }
    }

    fn take_stream(&mut self, socket: SocketId) -> Option<Stream> {
        self.leave_express(socket);
        let (descriptor, records) = self.sockets.take(&mut self.poller, socket.0)?;
        Some(Stream(StreamKind::Kernel { descriptor, records }))
    }

    fn discard_unsent(&mut self, socket: SocketId) {
        self.sockets.discard_unsent(socket.0);
    }

    fn close(&mut self, socket: SocketId, ready: &mut Vec<ReactorCompletion>) {
        self.leave_express(socket);
        self.sockets.close(&mut self.poller, socket.0, ready);
    }

    fn close_listener(&mut self, listener: ListenerId, ready: &mut Vec<ReactorCompletion>) {
        self.sockets.close(&mut self.poller, listener.0, ready);
    }

    fn watch(&mut self, descriptor: OwnedFd, ready_flag: ReadyFlag) -> io::Result<()> {
        self.sockets.watch(&mut self.poller, descriptor, ready_flag)
    }

    fn set_hot(&mut self, hot: bool) {
        self.is_hot_elsewhere = hot;
    }

    fn add_file(&mut self, file: FileSource, direct: bool) -> FileId {
        let file: Arc<File> = match file.0 {
            FileKind::Kernel(file) => file,
            FileKind::Simulated(_) => panic!("a simulated file on a reactor of the kernel"),
        };
        FileId(self.files.add(OpenFile::new(file, direct)))
    }

    fn add_ublk_queue(&mut self, queue: &Queue) -> io::Result<FileId> {
        if !P::HAS_COMMANDS {
            return Err(unserved());
        }
        let (file, place) = queue.parts();
        Ok(FileId(self.files.add(OpenFile::ublk(file, place))))
    }

    fn add_nvme_namespace(&mut self, file: Arc<File>, commands: Commands) -> io::Result<FileId> {
        self.poller.prepare_commands()?;
        Ok(FileId(self.files.add(OpenFile::commanded(file, commands))))
    }

    fn add_polled_file(&mut self, file: FileSource) -> io::Result<FileId> {
        let FileKind::Kernel(file) = file.0 else { return Err(unpolled()) };
        self.poller.prepare_polling()?;
        Ok(FileId(self.files.add(OpenFile::polled(file))))
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
            | Operation::WriteZeroes { .. }
            | Operation::FetchUblk { .. } => {
                let is_express = is_express && self.has_express_file(&operation);
                match (self.files.prepare(token, operation), &mut self.express) {
                    (Err(completion), _) => ready.push(completion),
                    (Ok(operation), Some(express)) if is_express && operation.is_plain() => {
                        self.express_file_at = monotonic_time();
                        express.submit_file(operation, ready);
                    }
                    (Ok(operation), _) => self.poller.submit_file(operation, ready),
                }
            }
        }
    }

    fn cancel(&mut self, token: Token, ready: &mut Vec<ReactorCompletion>) {
        if self.sockets.cancel(&mut self.poller, token, ready) {
            return;
        }
        if let Some(express) = &mut self.express {
            express.cancel_file(token, ready);
        }
        self.poller.cancel_file(token, ready);
    }

    fn turn(&mut self, now: Duration, wait: Wait, ready: &mut Vec<ReactorCompletion>) {
        let spins = wait == Wait::Look;
        if spins {
            // Somebody waits for it, and the sockets may have nothing.
            self.poller.hand_over();
        }
        self.sockets.try_likely(&mut self.poller, now, spins, ready);
        let (mut wait, due) = match wait {
            Wait::Look => (Wait::Look, self.is_poll_due(now)),
            Wait::Block(_) if !ready.is_empty() => (Wait::Look, true),
            Wait::Block(until) => (Wait::Block(earliest(until, self.sockets.deadline())), true),
        };
        if !due {
            return;
        }
        if self.sockets.has_runnable() {
            wait = Wait::Look;
        }
        wait = self.wait_beside_express(now, wait);
        self.last_look = now;
        let mut readiness = std::mem::take(&mut self.readiness);
        self.poller.poll(now, wait, &mut readiness, ready);
        let now = if wait == Wait::Look { now } else { monotonic_time() };
        for event in readiness.drain(..) {
            self.sockets.handle_ready(&mut self.poller, event, now, ready);
        }
        self.readiness = readiness;
        self.sockets.handle_deadlines(&mut self.poller, now, ready);
    }

    fn set_express(
        &mut self,
        socket: SocketId,
        is_express: bool,
        ready: &mut Vec<ReactorCompletion>,
    ) -> io::Result<()> {
        if !is_express {
            self.leave_express(socket);
            return Ok(());
        }
        self.express_poller()?;
        // The end of an earlier watch must not be taken for the end of this one.
        self.poll_express(ready);
        if let Some(express) = &mut self.express {
            self.sockets.enter_express(express, socket.0)?;
        }
        // The watch reports what is there already.
        self.poll_express(ready);
        Ok(())
    }

    fn express(&self) -> usize {
        self.sockets.express() + self.express.as_ref().map_or(0, P::files_in_flight)
    }

    fn hand_over_express(&mut self) {
        if let Some(express) = &mut self.express {
            express.hand_over();
        }
    }

    fn has_express(&mut self) -> bool {
        self.express.as_mut().is_some_and(P::is_reported)
    }

    fn poll_express(&mut self, ready: &mut Vec<ReactorCompletion>) {
        let Some(express) = &mut self.express else { return };
        let mut readiness = std::mem::take(&mut self.readiness);
        let now = monotonic_time();
        express.poll(now, Wait::Look, &mut readiness, ready);
        for event in readiness.drain(..) {
            if !event.is_watched {
                self.sockets.watch_express_again(express, event.key);
            }
            self.sockets.continue_stream(&mut self.poller, event, now, ready);
        }
        self.readiness = readiness;
    }

    fn continue_sends(&mut self, ready: &mut Vec<ReactorCompletion>) -> bool {
        self.sockets.continue_sends(&mut self.poller, ready)
    }

    fn release_idle(&mut self) {
        self.sockets.release_idle();
    }
}

fn earliest(first: Option<Duration>, second: Option<Duration>) -> Option<Duration> {
    match (first, second) {
        (Some(first), Some(second)) => Some(first.min(second)),
        (first, second) => first.or(second),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::files::FileOperation;
    use crate::limits::HOT_TIME;
    use crate::operation::{Outcome, Owner};
    use crate::slab::Key;
    use std::io::Write;
    use std::os::fd::BorrowedFd;
    use std::os::unix::net::UnixStream;

    /// A poller that reports what a test puts into it and counts how often it is asked.
    #[derive(Debug, Default)]
    struct FakePoller {
        readable: Vec<Key>,
        looks: usize,
        /// The peer that answers what is handed over.
        answering: Option<UnixStream>,
    }

    impl Poller for FakePoller {
        const NAME: &'static str = "reports";

        fn watch(&mut self, _descriptor: BorrowedFd<'_>, _key: Key) -> io::Result<()> {
            Ok(())
        }

        fn unwatch(&mut self, _descriptor: BorrowedFd<'_>, _key: Key) {}

        fn submit_file(&mut self, _operation: FileOperation, _ready: &mut Vec<ReactorCompletion>) {}

        fn cancel_file(&mut self, _token: Token, _ready: &mut Vec<ReactorCompletion>) {}

        fn hand_over(&mut self) {
            if let Some(mut peer) = self.answering.take() {
                peer.write_all(b"bytes").unwrap();
            }
        }

        fn has_ready(&mut self) -> bool {
            false
        }

        fn for_express(&self) -> io::Result<Self> {
            Ok(Self::default())
        }

        fn is_reported(&mut self) -> bool {
            !self.readable.is_empty()
        }

        fn poll(
            &mut self,
            _now: Duration,
            _wait: Wait,
            readiness: &mut Vec<Ready>,
            _ready: &mut Vec<ReactorCompletion>,
        ) {
            self.looks += 1;
            readiness.extend(self.readable.drain(..).map(|key| Ready {
                key,
                readable: true,
                writable: true,
                ended: false,
                is_watched: true,
            }));
        }
    }

    /// Streams on each of which a receive is pending, and their peers.
    struct Streams {
        kernel: Kernel<FakePoller>,
        sockets: Vec<SocketId>,
        peers: Vec<UnixStream>,
    }

    impl Streams {
        /// All of them are watched, and none is hot.
        fn new(count: u32) -> Self {
            let pool = Pool::new(1).unwrap();
            let kernel = Kernel::new(FakePoller::default(), &Config::default(), &pool);
            let mut this = Self { kernel, sockets: Vec::new(), peers: Vec::new() };
            for number in 0..count {
                let (near, far) = UnixStream::pair().unwrap();
                let stream = Stream::from(OwnedFd::from(near));
                this.sockets.push(this.kernel.add_stream(stream).unwrap());
                this.peers.push(far);
                this.receive(number);
            }
            assert!(this.turn(Duration::ZERO).is_empty());
            this
        }

        fn receive(&mut self, number: u32) {
            let socket = self.sockets[number as usize];
            let token = Token::new(Owner(0), number);
            self.kernel.submit(token, Operation::Receive { socket }, false, &mut Vec::new());
        }

        fn write(&mut self, number: usize) {
            self.peers[number].write_all(b"bytes").unwrap();
        }

        fn set_ready(&mut self, number: usize) {
            self.kernel.poller.readable.push(self.sockets[number].0);
        }

        /// The streams that have received something in this turn; they receive again.
        fn turn(&mut self, now: Duration) -> Vec<u32> {
            let mut ready = Vec::new();
            self.kernel.turn(now, Wait::Look, &mut ready);
            let received = ready.into_iter().map(|completion| {
                assert!(matches!(completion.outcome, Outcome::Received { len: 5, .. }));
                completion.token.tag
            });
            let numbers: Vec<u32> = received.collect();
            numbers.iter().for_each(|number| self.receive(*number));
            numbers
        }
    }

    #[test]
    fn a_stream_whose_tls_is_the_kernels_stays_one_where_it_moves() {
        for begun in [false, true] {
            let mut streams = Streams::new(1);
            let socket = streams.sockets[0];
            streams.kernel.cancel(Token::new(Owner(0), 0), &mut Vec::new());
            *streams.kernel.records(socket).unwrap().begun = begun;
            let stream = streams.kernel.take_stream(socket).unwrap();
            let socket = streams.kernel.add_stream(stream).unwrap();
            assert_eq!(*streams.kernel.records(socket).unwrap().begun, begun);
        }
    }

    #[test]
    fn of_several_hot_streams_none_is_tried_that_was_not_reported() {
        let mut streams = Streams::new(16);
        let mut now = HOT_TIME * 10;
        for number in 0..16 {
            streams.write(number);
            streams.set_ready(number);
        }
        assert_eq!(streams.turn(now).len(), 16);
        for round in 0..16 {
            now += Duration::from_micros(1);
            streams.write(round);
            let looks = streams.kernel.poller.looks;
            assert!(streams.turn(now).is_empty(), "tried without a report in round {round}");
            streams.set_ready(round);
            assert_eq!(streams.turn(now), [u32::try_from(round).expect("few")]);
            assert_eq!(streams.kernel.poller.looks, looks + 2, "each turn asks the poller");
        }
    }

    #[test]
    fn what_was_submitted_leaves_before_a_stream_is_tried() {
        let mut streams = Streams::new(1);
        let now = HOT_TIME * 10;
        streams.write(0);
        streams.set_ready(0);
        assert_eq!(streams.turn(now), [0]);
        streams.kernel.poller.answering = Some(streams.peers[0].try_clone().unwrap());
        assert_eq!(streams.turn(now), [0], "the answer came in the same turn");
    }

    #[test]
    fn the_only_hot_stream_is_tried_without_a_report() {
        let mut streams = Streams::new(2);
        let mut now = HOT_TIME * 10;
        streams.write(0);
        streams.set_ready(0);
        assert_eq!(streams.turn(now), [0]);
        let looks = streams.kernel.poller.looks;
        for _ in 0..10 {
            now += Duration::from_micros(1);
            streams.write(0);
            assert_eq!(streams.turn(now), [0]);
        }
        assert_eq!(streams.kernel.poller.looks, looks, "nobody was asked");
        // The other one has bytes: both wait for reports, until it was idle for a while.
        streams.write(1);
        now += POLL_INTERVAL;
        streams.set_ready(1);
        assert_eq!(streams.turn(now), [1]);
        streams.write(0);
        assert!(streams.turn(now).is_empty());
        streams.set_ready(0);
        assert_eq!(streams.turn(now), [0]);
        let quiet_from = now;
        while now < quiet_from + HOT_TIME {
            streams.write(0);
            assert!(streams.turn(now).is_empty());
            streams.set_ready(0);
            assert_eq!(streams.turn(now), [0]);
            now += HOT_TIME / 4;
        }
        streams.write(0);
        assert_eq!(streams.turn(now), [0], "alone again");
    }
}
