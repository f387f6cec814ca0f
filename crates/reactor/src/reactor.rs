//! The reactor itself: timers, mailboxes and waiting, over a driver.

use crate::driver::choice::kernel_driver;
use crate::driver::{Driver, Wait};
use crate::limits::HOT_SOURCE_TIME;
use crate::mailbox::{Mailbox, MailboxSender, Waker, mailbox};
use crate::operation::{
    Endpoint, FileId, ListenerId, Operation, Outcome, ReactorCompletion, SocketId, Token,
};
use crate::passthrough::{Commands, NvmeFormat, NvmeNamespace};
use crate::pool::Pool;
use crate::records::Records;
use crate::setup::{Config, SetupError};
use crate::simulation;
use crate::socket::{Life, Marking};
use crate::source::{ReadyFlag, Source};
use crate::stream::{FileSource, Stream};
use crate::system::pin_current_thread;
use crate::timers::Timers;
use crate::ublk::Queue;
use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long [`Reactor::poll`] may wait for something to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitLimit {
    /// It does not wait.
    NoWait,
    /// Spin until something happens.
    Spin,
    /// Spin until nothing has happened for `grace`, then sleep.
    Adaptive {
        /// How long to spin after the last event.
        grace: Duration,
    },
    /// Sleep until something happens.
    Sleep,
    /// Sleep until something happens or this time (as of [`Reactor::now`]) has come.
    Until(Duration),
}

impl WaitLimit {
    /// To spin for `grace` at most, but to sleep at once after a wait ([`Reactor::last_wait`]) of
    /// more than twice that: spinning would find nothing. Twice, because a sleep adds the time of a
    /// wake-up.
    #[must_use]
    pub fn after(waited: Duration, grace: Duration) -> Self {
        if waited > 2 * grace { Self::Sleep } else { Self::Adaptive { grace } }
    }
}

/// One thread's event loop, its sockets, files, timers and buffers. Stays on its thread.
///
/// The loop of its user: [`poll`](Self::poll), hand the completions to their owners, empty the
/// mailboxes, flush what was gathered, again.
#[derive(Debug)]
pub struct Reactor {
    // First, because it is dropped first: it waits for operations that use memory of `pool`.
    driver: Box<dyn Driver>,
    ready: Vec<ReactorCompletion>,
    pool: Pool,
    timers: Timers<Token>,
    waker: Waker,
    sources: Vec<Box<dyn Source>>,
    attachments: Vec<Rc<dyn Any>>,
    last_news: Duration,
    turn_time: Duration,
    last_event: Duration,
    idle_time: Duration,
    last_wait: Duration,
    /// Whether a wake-up came during the last poll.
    called: bool,
    /// How many sockets and operations on files are express.
    express: usize,
    /// What is submitted now is.
    is_express: bool,
    express_timers: Timers<Token>,
    /// How many owners of sources are.
    express_owners: usize,
}

impl Reactor {
    /// A reactor on the kernel. Call it on the thread that is going to use it.
    pub fn new(config: Config) -> Result<Self, SetupError> {
        if let Some(cpu) = config.cpu {
            pin_current_thread(cpu).map_err(|error| SetupError::Pin { cpu, error })?;
        }
        let pool = Pool::new(config.pool_bytes).map_err(SetupError::Pool)?;
        let waker = Waker::new().map_err(SetupError::Waker)?;
        let driver = kernel_driver(&config, &pool, &waker)?;
        Ok(Self::with(driver, pool, waker))
    }

    /// A simulated reactor: no kernel, virtual time.
    pub fn simulated(world: &simulation::World) -> Self {
        let pool = world.pool();
        let waker = Waker::without_kernel();
        let driver = world.driver(pool.clone(), waker.clone());
        Self::with(Box::new(driver), pool, waker)
    }

    fn with(driver: Box<dyn Driver>, pool: Pool, waker: Waker) -> Self {
        let now = driver.now();
        Self {
            driver,
            ready: Vec::new(),
            pool,
            timers: Timers::new(),
            waker,
            sources: Vec::new(),
            attachments: Vec::new(),
            last_news: Duration::ZERO,
            turn_time: now,
            last_event: now,
            idle_time: Duration::ZERO,
            last_wait: Duration::ZERO,
            called: false,
            express: 0,
            is_express: false,
            express_timers: Timers::new(),
            express_owners: 0,
        }
    }

    /// Which driver executes the operations: `io_uring`, `epoll` or `simulated`.
    pub fn driver_name(&self) -> &'static str {
        self.driver.name()
    }

    /// The time, since an origin that all reactors of this machine share.
    pub fn now(&self) -> Duration {
        self.driver.now()
    }

    /// The time as of the current turn: cheaper than [`now`](Self::now), and the same for
    /// everything that is done about one batch of completions.
    pub fn turn_time(&self) -> Duration {
        self.turn_time
    }

    /// How long this reactor has polled or slept without finding anything. The rest of the time it
    /// was busy.
    pub fn idle_time(&self) -> Duration {
        self.idle_time
    }

    /// How long the last [`poll`](Self::poll) waited that did not find something at once. Waits
    /// until a time do not count: they do not say how soon answers come.
    pub fn last_wait(&self) -> Duration {
        self.last_wait
    }

    /// The buffers of this reactor.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// A handle that wakes this reactor from other threads.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// A mailbox by which other threads send `M`s to this one.
    pub fn mailbox<M: Send + 'static>(&self) -> (MailboxSender<M>, Mailbox<M>) {
        mailbox(self.waker.clone())
    }

    /// Listens for TCP connections. Port 0 lets the kernel choose; an IPv6 wildcard takes IPv4
    /// connections too.
    pub fn listen(&mut self, address: SocketAddr) -> io::Result<ListenerId> {
        self.driver.listen(address)
    }

    /// The local address of a listener or socket.
    pub fn local_address(&self, of: impl Into<Endpoint>) -> io::Result<SocketAddr> {
        match of.into() {
            Endpoint::Listener(listener) => self.driver.listener_address(listener),
            Endpoint::Socket(socket) => self.driver.socket_address(socket),
        }
    }

    /// The address of a socket's peer.
    pub fn peer_address(&self, socket: SocketId) -> io::Result<SocketAddr> {
        self.driver.peer_address(socket)
    }

    /// How what a connection sends is marked; nothing is known of one without the kernel.
    pub fn marking(&self, socket: SocketId) -> io::Result<Marking> {
        self.driver.marking(socket)
    }

    /// TLS of the kernel for a connection.
    ///
    /// # Errors
    /// There is no such connection, or it is none of the kernel's.
    pub fn records(&mut self, socket: SocketId) -> io::Result<Records<'_>> {
        self.driver.records(socket)
    }

    /// Whether the peer of a connection has closed it, or it is broken, as far as the kernel knows;
    /// bytes that came before that may not have been received yet. Costs a system call.
    pub fn has_hung_up(&self, socket: SocketId) -> bool {
        self.driver.has_hung_up(socket)
    }

    /// Whether the peer of a connection has shown since then, by a segment that has come, that it
    /// is alive. If not, it is asked without the knowledge of its process: ask again a little
    /// later.
    pub fn life_since(&self, socket: SocketId, since: Duration) -> Life {
        self.driver.life_within(socket, self.driver.now().saturating_sub(since))
    }

    /// Takes over a connection from another reactor or the standard library.
    pub fn add_stream(&mut self, stream: Stream) -> io::Result<SocketId> {
        self.driver.add_stream(stream)
    }

    /// Releases a connection, to move it to another reactor for example. Nothing may be in flight
    /// on it: cancel a pending receive first (what has arrived stays in the connection).
    ///
    /// # Panics
    /// If there is no such socket or something is in flight on it: a caller's bug.
    pub fn take_stream(&mut self, socket: SocketId) -> Stream {
        let stream = self.driver.take_stream(socket);
        self.express = self.driver.express();
        stream.expect("the socket exists and nothing is in flight on it")
    }

    /// Closes a connection. What is pending on it completes as [`Outcome::Cancelled`].
    pub fn close(&mut self, socket: SocketId) {
        self.driver.close(socket, &mut self.ready);
        self.express = self.driver.express();
    }

    /// Makes a stream express, or an ordinary one again. What comes on an express stream is handed
    /// out by [`poll_express`](Self::poll_express), between the work for the other ones, which send
    /// in slices meanwhile ([`continue_sends`](Self::continue_sends)). Costs a system call.
    pub fn set_express(&mut self, socket: SocketId, is_express: bool) -> io::Result<()> {
        let outcome = self.driver.set_express(socket, is_express, &mut self.ready);
        self.express = self.driver.express();
        outcome
    }

    /// What is submitted from now on until [`end_express`](Self::end_express) is for an express
    /// stream: reads, writes and syncs of files come by [`poll_express`](Self::poll_express) as
    /// well, where the driver can have that. No turn sleeps meanwhile, but for moments where they
    /// take long.
    pub fn begin_express(&mut self) {
        self.is_express = true;
    }

    /// Ends that. The kernel has what was submitted.
    pub fn end_express(&mut self) {
        if std::mem::take(&mut self.is_express) {
            self.driver.hand_over_express();
        }
    }

    /// Whether what is submitted now is for an express stream.
    pub fn is_express(&self) -> bool {
        self.is_express
    }

    /// Whether an express stream, operation, timer or owner of a source may have something: of
    /// streams and operations one word of memory is read, and none if there are none.
    #[inline]
    pub fn has_express(&mut self) -> bool {
        self.express != 0 && self.driver.has_express()
            || self.is_express_timer_due()
            || self.have_sources_express()
    }

    #[inline]
    fn is_express_timer_due(&mut self) -> bool {
        !self.express_timers.is_empty()
            && self.express_timers.next().is_some_and(|at| at <= self.driver.now())
    }

    #[inline]
    fn have_sources_express(&mut self) -> bool {
        self.express_owners != 0 && self.sources.iter_mut().any(|source| source.has_express())
    }

    /// Continues the operations of express streams and appends what has completed, also of other
    /// operations that were submitted since the last poll, and what has come for express owners of
    /// sources.
    pub fn poll_express(&mut self, completions: &mut Vec<ReactorCompletion>) {
        self.driver.poll_express(&mut self.ready);
        // The watch of a stream may have been lost.
        self.express = self.driver.express();
        if !self.express_timers.is_empty() {
            let now = self.driver.now();
            while let Some(token) = self.express_timers.pop(now) {
                self.ready.push(ReactorCompletion { token, outcome: Outcome::Timer });
            }
            self.note_deadline();
        }
        for source in &mut self.sources {
            source.poll_express(&mut self.ready);
        }
        completions.append(&mut self.ready);
    }

    /// Sends another slice of what ordinary streams send while there are express ones. Whether more
    /// is left; [`poll`](Self::poll) sends it, too.
    pub fn continue_sends(&mut self) -> bool {
        self.express != 0 && self.driver.continue_sends(&mut self.ready)
    }

    /// Closes a connection with a reset: what was sent and is still in the kernel is discarded and
    /// does not reach the peer.
    pub fn abort(&mut self, socket: SocketId) {
        self.driver.discard_unsent(socket);
        self.close(socket);
    }

    /// Stops listening. A pending accept completes as [`Outcome::Cancelled`].
    pub fn close_listener(&mut self, listener: ListenerId) {
        self.driver.close_listener(listener, &mut self.ready);
    }

    /// Registers a file or block device. `direct` says that it was opened with `O_DIRECT`.
    pub fn add_file(&mut self, file: impl Into<FileSource>, direct: bool) -> FileId {
        self.driver.add_file(file.into(), direct)
    }

    /// Registers a block device that was opened with `O_DIRECT`, of which the completions of reads
    /// and writes are polled: while one is in flight no turn sleeps.
    ///
    /// # Errors
    /// The driver is not io_uring, or the kernel has no such rings.
    pub fn add_polled_file(&mut self, file: impl Into<FileSource>) -> io::Result<FileId> {
        self.driver.add_polled_file(file.into())
    }

    /// Registers a namespace without the block layer: reads, writes, syncs, discards and zeroing of
    /// whole blocks become commands of the device.
    ///
    /// # Errors
    /// The driver is not io_uring, or the kernel's has no large entries (Linux 5.19); the largest
    /// commands are not of whole blocks.
    pub fn add_nvme_namespace(
        &mut self,
        namespace: &NvmeNamespace,
        format: NvmeFormat,
    ) -> io::Result<FileId> {
        if !format.is_valid() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let commands = Commands { nsid: namespace.nsid(), format };
        self.driver.add_nvme_namespace(Arc::clone(namespace.file()), commands)
    }

    /// Registers a queue of a ublk device, which this thread serves from its first
    /// [`Operation::FetchUblk`] on.
    ///
    /// # Errors
    /// The driver is not io_uring.
    pub fn add_ublk_queue(&mut self, queue: &Queue) -> io::Result<FileId> {
        self.driver.add_ublk_queue(queue)
    }

    /// Removes a file. Operations in flight on it keep it open and complete as usual.
    pub fn remove_file(&mut self, file: FileId) {
        self.driver.remove_file(file);
    }

    /// Adds a source, which is polled in every turn from now on.
    pub fn add_source(&mut self, source: Box<dyn Source>) {
        self.sources.push(source);
    }

    /// Sets the flag whenever a descriptor may have become readable. The reactor works on a
    /// duplicate, which it closes some time after the last other handle of the flag has gone.
    pub fn watch(&mut self, descriptor: BorrowedFd<'_>, ready_flag: ReadyFlag) -> io::Result<()> {
        self.driver.watch(descriptor.try_clone_to_owned()?, ready_flag)
    }

    /// Stores an object that all users of this reactor share.
    pub fn attach<T: 'static>(&mut self, what: Rc<T>) {
        self.attachments.push(what);
    }

    /// The shared object of this type, the first if there are several.
    pub fn attachment<T: 'static>(&self) -> Option<Rc<T>> {
        self.attachments.iter().find_map(|what| Rc::clone(what).downcast().ok())
    }

    /// Starts an operation. Never fails: errors come as completions. See
    /// [`operation`](crate::operation) for who owns its memory meanwhile.
    pub fn submit(&mut self, token: Token, operation: Operation) {
        if let Some(error) = operation.invalid_memory() {
            self.ready.push(ReactorCompletion { token, outcome: operation.refuse(error) });
            return;
        }
        self.driver.submit(token, operation, self.is_express, &mut self.ready);
        if self.is_express {
            self.express = self.driver.express();
        }
    }

    /// Requests that an operation ends early. Its own completion still comes, exactly once.
    pub fn cancel(&mut self, token: Token) {
        self.driver.cancel(token, &mut self.ready);
    }

    /// Sets the timer named `token`, or moves it. It arrives once, as [`Outcome::Timer`].
    pub fn set_timer(&mut self, token: Token, at: Duration) {
        self.timers.set(token, at);
        self.note_deadline();
    }

    /// The same of a timer that [`poll_express`](Self::poll_express) hands out. Its name is that
    /// of no other timer.
    pub fn set_express_timer(&mut self, token: Token, at: Duration) {
        self.express_timers.set(token, at);
        self.note_deadline();
    }

    /// Clears the timer named `token`. It does not arrive, unless it was handed out already.
    pub fn clear_timer(&mut self, token: Token) {
        self.timers.clear(token);
        self.express_timers.clear(token);
        self.note_deadline();
    }

    /// Runs one turn and appends what completed. Returns with nothing when the wait limit is
    /// reached and when a wake-up came: empty the mailboxes after every poll, or when
    /// [`Self::was_called`].
    pub fn poll(&mut self, patience: WaitLimit, completions: &mut Vec<ReactorCompletion>) {
        let mut now = self.driver.now();
        let idle_time = self.idle_time;
        // Virtual time does not pass by spinning.
        let mut asleep = match patience {
            WaitLimit::Sleep | WaitLimit::Until(_) => true,
            WaitLimit::Spin | WaitLimit::Adaptive { .. } => self.driver.is_virtual(),
            WaitLimit::NoWait => false,
        };
        loop {
            self.turn_time = now;
            self.fire_timers(now);
            self.called = self.waker.take_pending();
            let fired = self.ready.len();
            self.poll_sources(now);
            if asleep
                && self.ready.is_empty()
                && !self.called
                && !is_over(patience, now)
                && !self.has_express()
                && self.arm_sources()
            {
                self.sleep(now, patience);
                let woken = self.driver.now();
                self.idle_time += woken.saturating_sub(now);
                now = woken;
                self.turn_time = now;
                self.fire_timers(now);
                self.called = self.waker.take_pending();
                self.poll_sources(now);
                if self.called || !self.ready.is_empty() || self.has_express() {
                    self.last_event = now;
                    break;
                }
                continue;
            }
            self.driver.turn(now, Wait::Look, &mut self.ready);
            let has_express = self.has_express();
            if self.called || has_express || self.ready.len() > fired {
                self.last_event = now;
            }
            if self.called || has_express || !self.ready.is_empty() || is_over(patience, now) {
                break;
            }
            std::hint::spin_loop();
            let later = self.driver.now();
            self.idle_time += later.saturating_sub(now);
            now = later;
            asleep |= match patience {
                WaitLimit::Adaptive { grace } => now.saturating_sub(self.last_event) >= grace,
                _ => false,
            };
        }
        if self.idle_time > idle_time && !matches!(patience, WaitLimit::Until(_)) {
            self.last_wait = self.idle_time - idle_time;
        }
        self.driver.release_idle();
        completions.append(&mut self.ready);
        self.note_deadline();
    }

    /// Whether a message or another wake-up has come since the poll before the last.
    pub fn was_called(&self) -> bool {
        self.called
    }

    fn poll_sources(&mut self, now: Duration) {
        if self.sources.is_empty() {
            return;
        }
        let before = self.ready.len();
        self.express_owners = 0;
        for source in &mut self.sources {
            source.poll(&mut self.ready);
            self.express_owners += source.express();
        }
        if self.ready.len() > before {
            self.last_news = now;
        }
        self.driver.set_hot(now.saturating_sub(self.last_news) < HOT_SOURCE_TIME);
    }

    /// Arms all sources for their next event. `false`: there is some already.
    fn arm_sources(&mut self) -> bool {
        for source in &mut self.sources {
            source.arm(&mut self.ready);
        }
        self.ready.is_empty() && !self.have_sources_express()
    }

    /// One wait in the kernel, unless a wake-up has come before.
    fn sleep(&mut self, now: Duration, patience: WaitLimit) {
        let mut until = self.next_deadline();
        if let WaitLimit::Until(at) = patience {
            until = Some(until.map_or(at, |next| next.min(at)));
        }
        if self.waker.begin_sleep() {
            self.driver.turn(now, Wait::Block(until), &mut self.ready);
            self.waker.end_sleep();
        }
    }

    fn fire_timers(&mut self, now: Duration) {
        while let Some(token) = self.timers.pop(now) {
            self.ready.push(ReactorCompletion { token, outcome: Outcome::Timer });
        }
    }

    fn note_deadline(&mut self) {
        if self.driver.is_virtual() {
            let next = self.next_deadline();
            self.driver.note_deadline(next);
        }
    }

    fn next_deadline(&mut self) -> Option<Duration> {
        self.timers.next().into_iter().chain(self.express_timers.next()).min()
    }
}

/// Whether a poll that found nothing returns.
fn is_over(patience: WaitLimit, now: Duration) -> bool {
    match patience {
        WaitLimit::NoWait => true,
        WaitLimit::Until(at) => now >= at,
        WaitLimit::Spin | WaitLimit::Adaptive { .. } | WaitLimit::Sleep => false,
    }
}
