//! The owner of a controller's admin queue, on a reactor of the caller's choice.
//!
//! The loop of the reactor passes the completions of the [`ControllerDriver`]'s owner to it, calls
//! `flush` at the end of each turn, and takes its events and responses. The thread behind
//! [`crate::Controller`] does that; so can a program that already has a loop, or a deterministic
//! simulation in which host and target share one thread.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weft_nvme::{Command, Completion};
use weft_nvmf::auth::{GeneratedPsk, Secret};
use weft_nvmf::host::{
    Action, AdminCommand, AdminData, Association, ControllerKind, Event, Problem, Side, Transport,
};
use weft_nvmf::keys::TlsPsk;
use weft_reactor::{Mailbox, MailboxSender, Outcome, Owner, Reactor, Token};
use weft_transport::host::{HostConnection, HostEvent, HostOptions, NotSubmitted};
use weft_transport::rdma::ensure_provider;
use weft_transport::tls::{TlsConnector, TlsFault};
use weft_transport::{CloseReason, Slot, tag_of};

use crate::device::NamespaceFactory;
use crate::error::Error;
use crate::limits;
use crate::options::Options;
use crate::queue::{host_data, host_options, side_of, transport_options};
use crate::resolve::resolve;
use crate::shared::{
    Activity, ConnectionEnds, ControllerState, DriverMessage, LiveController, QueueMessage,
    Security, Shared, credentials, secure,
};

/// The result of an admin command: its completion and the data from the controller.
pub type AdminResult = Result<(Completion, Vec<u8>), Problem>;

/// See the module's documentation.
#[derive(Debug)]
pub struct ControllerDriver {
    shared: Arc<Shared>,
    association: Association,
    owner: Owner,
    mailbox: Mailbox<DriverMessage>,
    queues: BTreeMap<u16, Queue>,
    addresses: Vec<SocketAddr>,
    /// The index of the address that is being tried, and the number of addresses of this attempt.
    address: usize,
    tried: usize,

    security: Security,
    /// It is of a key that the last connection of the admin queue has made for the next.
    is_secured: bool,
    connection: Option<AdminConnection>,
    connection_tag: u32,
    /// Connections that are closing.
    closing: Vec<AdminConnection>,
    backlog: VecDeque<AdminCommand>,
    timer_at: Option<Duration>,
    /// Whether waiting requests fail until the controller is connected again.
    failing_io: bool,
    /// Whether the controller has ended a connection of the association by itself.
    ended_by_peer: bool,
    answers: VecDeque<(u64, AdminResult)>,
}

#[derive(Debug)]
struct Queue {
    postbox: MailboxSender<QueueMessage>,
    activity: Arc<Activity>,
}

#[derive(Debug)]
struct AdminConnection {
    inner: HostConnection,
    tag: u32,
    ready: bool,
    /// By slot: the association's tag.
    tags: Vec<Option<u16>>,
}

impl ControllerDriver {
    /// Starts to connect to the subsystem that the options name. Host names are resolved here,
    /// which may block.
    pub fn connect(
        reactor: &Reactor,
        owner: Owner,
        options: &Options,
        kind: ControllerKind,
    ) -> Result<Self, Error> {
        let addresses = resolve(&options.address, options.host_traddr)?;
        if options.address.transport == Transport::Rdma {
            let explained = |error| Error::Invalid(format!("{}: {error}", options.address));
            options.rdma.check(reactor.waker()).map_err(explained)?;
        }
        let (postbox, mailbox) = reactor.mailbox();
        let shared = Arc::new(Shared::new(options.clone(), kind, postbox)?);
        let mut association = Association::new(shared.config.clone());
        association.start(reactor.now());
        Ok(Self {
            shared,
            association,
            owner,
            mailbox,
            queues: BTreeMap::new(),
            addresses,
            address: 0,
            tried: 0,
            security: Ok(None),
            is_secured: false,
            connection: None,
            connection_tag: 0,
            closing: Vec::new(),
            backlog: VecDeque::new(),
            timer_at: None,
            failing_io: false,
            ended_by_peer: false,
            answers: VecDeque::new(),
        })
    }

    /// Takes a completion whose token has this driver's owner.
    pub fn handle(&mut self, reactor: &mut Reactor, completion: weft_reactor::ReactorCompletion) {
        if completion.token.tag == limits::TIMER_TAG {
            if matches!(completion.outcome, Outcome::Timer) {
                self.timer_at = None;
            }
            return;
        }
        let tag = tag_of(completion.token);
        if let Some(connection) = self.connection.as_mut().filter(|own| own.tag == tag) {
            connection.inner.handle(reactor, completion);
            self.take_events(reactor);
        } else if let Some(connection) = self.closing.iter_mut().find(|own| own.tag == tag) {
            connection.inner.handle(reactor, completion);
        }
    }

    /// The end of a turn: handles messages of I/O queues and due timers, and flushes.
    pub fn flush(&mut self, reactor: &mut Reactor) {
        let now = reactor.turn_time();
        while let Some(message) = self.mailbox.take() {
            self.handle_message(message, now);
        }
        if self.association.deadline().is_some_and(|at| at <= now) {
            self.note_traffic();
            self.association.handle_deadline(now);
        }
        self.run_actions(reactor);
        if let Some(connection) = &mut self.connection {
            connection.inner.flush(reactor);
            self.take_events(reactor);
            self.run_actions(reactor);
        }
        for connection in &mut self.closing {
            connection.inner.flush(reactor);
        }
        self.closing.retain_mut(|connection| {
            let mut events = std::iter::from_fn(|| connection.inner.poll_event());
            !events.any(|event| matches!(event, HostEvent::Closed { .. }))
        });
        self.set_timer(reactor);
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.next_event(Duration::ZERO)
    }

    /// The next admin command that ended, by its tag.
    pub fn poll_answer(&mut self) -> Option<(u64, AdminResult)> {
        self.answers.pop_front()
    }

    /// The state of the controller.
    #[must_use]
    pub fn state(&self) -> ControllerState {
        self.shared.state()
    }

    /// The controller and its namespaces.
    #[must_use]
    pub fn snapshot(&self) -> Option<Arc<weft_nvmf::host::ControllerSnapshot>> {
        self.association.snapshot().cloned()
    }

    /// A namespace as a block device.
    pub fn factory(&self, nsid: u32) -> Result<NamespaceFactory, Error> {
        NamespaceFactory::new(&self.shared, nsid)
    }

    /// Submits an admin command; it waits while the controller is not connected. The result comes
    /// with [`ControllerDriver::poll_answer`].
    pub fn submit_admin(&mut self, tag: u64, command: Command, data: AdminData, now: Duration) {
        self.association.submit_user(tag, command, data, now);
    }

    /// Resets the controller; I/O waits meanwhile.
    pub fn reset(&mut self, now: Duration) {
        self.association.reset(now);
    }

    /// Authenticates the queues again, if the controller asks for authentication; I/O goes on.
    pub fn authenticate_again(&mut self, now: Duration) {
        self.association.authenticate_again(now);
    }

    /// The same with other secrets: the host's, and the controller's if it has to prove itself.
    pub fn set_secrets(&mut self, own: Secret, controllers: Option<Secret>, now: Duration) {
        let credentials = credentials(&self.shared.options, (own, controllers));
        self.association.set_credentials(credentials, now);
    }

    /// Rescans the namespaces.
    pub fn rescan(&mut self, now: Duration) {
        self.association.rescan(now);
    }

    /// Shuts the controller down, until [`ControllerDriver::is_finished`].
    pub fn shut_down(&mut self, now: Duration) {
        self.association.shut_down(now);
    }

    /// Whether it is over and all connections are closed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.association.is_ended() && self.connection.is_none() && self.closing.is_empty()
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn handle_message(&mut self, message: DriverMessage, now: Duration) {
        match message {
            DriverMessage::Opened { queue_id, postbox, activity } => {
                if let Some(live) = self.live_controller().filter(|_| self.association.is_live()) {
                    postbox.post(QueueMessage::Live(live));
                } else if self.association.is_ended() {
                    postbox.post(QueueMessage::Ended);
                } else if self.failing_io {
                    postbox.post(QueueMessage::FailIo);
                }
                self.queues.insert(queue_id, Queue { postbox, activity });
            }
            DriverMessage::Closed { queue_id } => {
                self.queues.remove(&queue_id);
                self.shared.release_queue_id(queue_id);
            }
            DriverMessage::AccessRefused => self.association.reread_access(now),
            DriverMessage::Authenticated { queue_id, generation, result } => {
                let association = &mut self.association;
                association.handle_queue_authenticated(generation, queue_id, result, now);
            }
            DriverMessage::Lost { queue_id, generation, problem, by_peer } => {
                self.ended_by_peer |= by_peer && generation == self.association.generation();
                self.association.handle_queue_lost(generation, queue_id, problem, now);
            }
        }
    }

    fn live_controller(&self) -> Option<LiveController> {
        let snapshot = Arc::clone(self.association.snapshot()?);
        let (address, security) = (*self.addresses.get(self.address)?, self.security.clone());
        let credentials = self.association.config().credentials.clone();
        Some(LiveController { snapshot, address, security, credentials })
    }

    fn post_to_queues(&self, message: &QueueMessage) {
        for queue in self.queues.values() {
            queue.postbox.post(message.clone());
        }
    }

    fn note_traffic(&mut self) {
        let mut traffic = false;
        for queue in self.queues.values() {
            traffic |= queue.activity.take();
        }
        if traffic {
            self.association.handle_traffic();
        }
    }

    fn run_actions(&mut self, reactor: &mut Reactor) {
        while let Some(action) = self.association.poll_action() {
            match action {
                Action::Open => {
                    if !std::mem::take(&mut self.is_secured) {
                        self.security = Ok(self.shared.tls.clone());
                    }
                    self.tried = 0;
                    self.open(reactor);
                }
                Action::Secure(generated) => {
                    self.secure(&generated);
                    self.is_secured = true;
                }
                Action::Renew(generated) => {
                    self.secure(&generated);
                    self.post_to_queues(&QueueMessage::Renew(self.security.clone()));
                }
                Action::Authenticate(credentials) => {
                    self.post_to_queues(&QueueMessage::Authenticate(credentials));
                }
                Action::Submit(command) => self.backlog.push_back(command),
                Action::Close => self.close(reactor),
                Action::Live(snapshot) => {
                    self.failing_io = false;
                    self.ended_by_peer = false;
                    self.shared.set_snapshot(Arc::clone(&snapshot));
                    self.shared.set_state(ControllerState::Live);
                    if let Some(live) = self.live_controller() {
                        self.post_to_queues(&QueueMessage::Live(live));
                    }
                }
                Action::Changed(snapshot) => {
                    self.shared.set_snapshot(Arc::clone(&snapshot));
                    self.post_to_queues(&QueueMessage::Changed(snapshot));
                }
                Action::Suspend => {
                    self.shared.set_state(ControllerState::Reconnecting);
                    let by_peer = self.ended_by_peer;
                    self.post_to_queues(&QueueMessage::Suspend { by_peer });
                }
                Action::FailIo => {
                    self.failing_io = true;
                    self.post_to_queues(&QueueMessage::FailIo);
                }
                Action::Answer { tag, result } => self.answers.push_back((tag, result)),
                Action::Event(event) => {
                    self.log(&event);
                    self.shared.push_event(event);
                }
                Action::Ended(problem) => {
                    self.post_to_queues(&QueueMessage::Ended);
                    self.shared.set_state(ControllerState::Ended(problem));
                }
            }
        }
        self.send_backlog(reactor);
    }

    fn log(&self, event: &Event) {
        let address = &self.shared.options.address;
        match event {
            Event::Lost { problem, .. } | Event::AttemptFailed { problem, .. } => {
                log::warn!("{address}: {event} ({})", problem.side());
            }
            Event::QueueRefused { problem, .. } | Event::ScanFailed(problem) => {
                log::warn!("{address}: {event} ({})", problem.side());
            }
            Event::NamespaceUnusable { .. } => log::warn!("{address}: {event}"),
            Event::Connected { attempts: 0, .. } | Event::Authenticated { .. } => {
                log::debug!("{address}: {event}")
            }
            _ => log::info!("{address}: {event}"),
        }
    }

    /// Connections have TLS from now on, with a key that an authentication has made.
    fn secure(&mut self, generated: &GeneratedPsk) {
        let config = &self.shared.config;
        let psk = TlsPsk::generated(generated, config.host.as_str(), config.subsystem.as_str());
        self.security =
            TlsConnector::new(psk.into_iter().collect(), self.shared.options.tls_records).map(Some);
    }

    /// A target may end the handshake at the first identity that it does not know (GnuTLS, and
    /// with it tlshd), in place of taking the next: the last one is offered alone then. Returns
    /// whether it was not before.
    fn fall_back(&mut self) -> bool {
        let offered = self.security.as_ref().ok().and_then(Option::as_ref);
        let Some(last) = offered.and_then(TlsConnector::last_alone) else { return false };
        self.security = Ok(Some(last));
        true
    }

    fn open(&mut self, reactor: &mut Reactor) {
        let Some(address) = self.addresses.get(self.address).copied() else { return };
        self.tried += 1;
        self.connection_tag = (self.connection_tag + 1) % limits::CONNECTION_TAGS;
        let tag = self.connection_tag;
        let depth = weft_nvmf::host::limits::ADMIN_QUEUE_ENTRIES - 1;
        let options = HostOptions {
            queue_depth: depth,
            transport_options: transport_options(&self.shared, 0, 0),
            ..host_options(&self.shared)
        };
        ensure_provider(reactor, &self.shared.options.rdma);
        let mut inner = HostConnection::connect(reactor, self.owner, tag, address, options);
        secure(&self.security, reactor, &mut inner);
        let tags = vec![None; usize::from(depth)];
        self.connection = Some(AdminConnection { inner, tag, ready: false, tags });
    }

    fn close(&mut self, reactor: &mut Reactor) {
        self.backlog.clear();
        if let Some(mut connection) = self.connection.take() {
            connection
                .inner
                .close(reactor, CloseReason::Requested("the controller is disconnected"));
            self.closing.push(connection);
        }
    }

    fn take_events(&mut self, reactor: &mut Reactor) {
        let now = reactor.turn_time();
        while let Some(connection) = &mut self.connection {
            let Some(event) = connection.inner.poll_event() else { return };
            match event {
                HostEvent::Ready { .. } => {
                    connection.ready = true;
                    let remote = self.addresses.get(self.address).copied();
                    if let (Ok(local), Some(remote)) =
                        (connection.inner.local_address(reactor), remote)
                    {
                        let transport = connection.inner.transport();
                        let marking = connection.inner.marking(reactor);
                        let tls_records = connection.inner.tls_records();
                        if let Some(records) = tls_records {
                            let address = &self.shared.options.address;
                            log::info!("{address}: TLS: records of {}", records.place());
                        }
                        let ends =
                            ConnectionEnds { transport, local, remote, marking, tls_records };
                        self.shared.set_ends(ends);
                    }
                    self.association.handle_opened(now);
                }
                HostEvent::Completed { slot, completion, buffer, received } => {
                    let Some(tag) = connection.take_tag(slot) else { continue };
                    let length = received as usize;
                    let bytes = buffer.as_ref().and_then(|buffer| buffer.get(..length));
                    let data = bytes.unwrap_or_default().to_vec();
                    self.association.handle_completion(tag, &completion, data, now);
                }
                HostEvent::Failed { slot, .. } => {
                    let Some(tag) = connection.take_tag(slot) else { continue };
                    self.association.handle_broken(tag, now);
                }
                HostEvent::Closed { reason, .. } => {
                    let ready = connection.ready;
                    self.connection = None;
                    self.closed(reactor, &reason, ready);
                }
            }
        }
    }

    /// The connection ended. If it was never established, the host's next address is tried.
    fn closed(&mut self, reactor: &mut Reactor, reason: &CloseReason, ready: bool) {
        self.backlog.clear();
        let refused = reason.is_by_peer()
            || matches!(reason, CloseReason::Tls(TlsFault::Alert(_) | TlsFault::Ended));
        if !ready && refused && self.fall_back() {
            self.tried -= 1;
            self.open(reactor);
            return;
        }
        let address = self.addresses.get(self.address).copied();
        let more = !ready && self.tried < self.addresses.len();
        if more || !ready {
            self.address = (self.address + 1) % self.addresses.len().max(1);
        }
        if more {
            self.open(reactor);
            return;
        }
        let words = if ready {
            format!("the connection of the admin queue ended: {reason}")
        } else {
            let to = address.map_or_else(String::new, |address| format!(" to {address}"));
            format!("cannot connect{to}: {reason}")
        };
        self.ended_by_peer |= ready && reason.is_by_peer();
        let side = if ready { side_of(reason) } else { Side::Io };
        self.association.handle_closed(side, words, reactor.turn_time());
    }

    fn send_backlog(&mut self, reactor: &mut Reactor) {
        while let Some(next) = self.backlog.front() {
            let Some(connection) = &mut self.connection else { return };
            let Some(data) = host_data(&next.data, reactor.pool()) else { return };
            match connection.inner.submit(next.command, data) {
                Ok(slot) => connection.put_tag(slot, next.tag),
                // The connection ends with this: its owner decides when to try again.
                Err(NotSubmitted { why: Some(why), .. }) => {
                    return connection.inner.close(reactor, why);
                }
                Err(_) => return,
            }
            self.backlog.pop_front();
        }
    }

    fn set_timer(&mut self, reactor: &mut Reactor) {
        let mut at = self.association.deadline();
        if !self.backlog.is_empty() {
            let retry = reactor.turn_time().saturating_add(limits::POOL_RETRY);
            at = Some(at.map_or(retry, |at| at.min(retry)));
        }
        if at == self.timer_at {
            return;
        }
        let token = Token::new(self.owner, limits::TIMER_TAG);
        match at {
            Some(at) => reactor.set_timer(token, at),
            None => reactor.clear_timer(token),
        }
        self.timer_at = at;
    }
}

impl AdminConnection {
    fn take_tag(&mut self, slot: Slot) -> Option<u16> {
        self.tags.get_mut(slot.index())?.take()
    }

    fn put_tag(&mut self, slot: Slot, tag: u16) {
        if self.tags.len() <= slot.index() {
            self.tags.resize(slot.index() + 1, None);
        }
        self.tags[slot.index()] = Some(tag);
    }
}
