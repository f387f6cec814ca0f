//! What the RDMA connections of one reactor share: the event channel of the connection manager,
//! each device with its registered memory and completion queues, and the pending events of each
//! connection.
//!
//! It is a [`Source`] of the reactor, polled in every turn. A poll takes completions in batches
//! from few large queues and notifies each connection once.
//!
//! A queue pair keeps its completion queues for its life, and may become express later. So a look
//! for express connections takes what is in the queues of all: their completions are handed out at
//! once, those of others wait in their lists for the next turn. A look at an empty queue is one
//! word of memory.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use weft_reactor::{
    BUFFER_BYTES_MAX, Buffer, Pool, Reactor, ReactorCompletion, ReadyFlag, Source, Token,
};

use super::verbs::{
    Access, Attributes, CmEvent, CompletionQueue, Device, DeviceEvent, DeviceFault, Domain,
    Endpoint, Manager, Piece, Provider, Region, WorkCompletion,
};
use crate::CloseReason;
use crate::subscriptions::{Subscription, Subscriptions};

/// Completions polled from a queue at once.
const BATCH: usize = 64;

/// Batches polled from a queue in one turn; the rest waits for the next.
const BATCHES_PER_TURN: usize = 4;

/// Entries of a completion queue, unless one connection needs more: for some twenty queue pairs of
/// 128 commands.
const COMPLETION_ENTRIES: u32 = 16_384;

/// The side of a reactor's connections. The two sides have separate engines, even on one reactor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Hosts connect to this side.
    Target,
    /// The controller accesses this side's memory.
    Host,
}

/// An engine of a reactor; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    inner: Rc<RefCell<Inner>>,
}

/// The engines of a reactor.
#[derive(Debug, Default)]
struct Engines {
    target: RefCell<Option<Engine>>,
    host: RefCell<Option<Engine>>,
}

impl Subscription {
    /// A work request identifier of this subscription.
    pub(crate) fn work(self, number: u32) -> u64 {
        u64::from(self.0) << 32 | u64::from(number)
    }

    fn of(work: u64) -> Self {
        Self(u32::try_from(work >> 32).unwrap_or(u32::MAX))
    }
}

#[derive(Debug)]
struct Inner {
    manager: Manager,
    ready_flag: Option<ReadyFlag>,
    role: Role,
    holds: Vec<Rc<RefCell<ReactorDevice>>>,
    subscriptions: Subscriptions<PendingEvents>,
    /// Subscriptions by the key of their endpoint or listener.
    keys: BTreeMap<u64, Subscription>,
    scratch: Vec<WorkCompletion>,
    /// How many connections are express.
    express: usize,
    /// Those that are to be notified.
    express_ready: Vec<ReactorCompletion>,
    /// Others that a look for express ones has found.
    others_ready: Vec<ReactorCompletion>,
    /// Bytes of data that posted work uses.
    posted_bytes: usize,
}

/// Pending events of a connection or listener.
#[derive(Debug, Default)]
struct PendingEvents {
    work: Vec<WorkCompletion>,
    events: VecDeque<CmEvent>,
    /// Why the connection cannot continue, if its device or part of it has failed or was removed.
    fault: Option<CloseReason>,
    is_express: bool,
}

impl Engine {
    /// The engine of a reactor for one side, created when first used, with the devices of
    /// [`set_provider`](super::set_provider).
    pub(crate) fn of(reactor: &mut Reactor, role: Role) -> io::Result<Self> {
        let engines = reactor.attachment::<Engines>().unwrap_or_else(|| {
            let engines = Rc::new(Engines::default());
            reactor.attach(Rc::clone(&engines));
            engines
        });
        let place = match role {
            Role::Target => &engines.target,
            Role::Host => &engines.host,
        };
        if let Some(engine) = &*place.borrow() {
            return Ok(engine.clone());
        }
        let engine = Self::open(reactor, role)?;
        *place.borrow_mut() = Some(engine.clone());
        Ok(engine)
    }

    fn open(reactor: &mut Reactor, role: Role) -> io::Result<Self> {
        let provider = reactor.attachment::<Provider>();
        let manager = provider.as_deref().unwrap_or(&Provider::System).open(reactor.waker())?;
        let ready_flag = watch(reactor, manager.descriptor())?;
        let inner = Inner {
            manager,
            ready_flag,
            role,
            holds: Vec::new(),
            subscriptions: Subscriptions::new(),
            keys: BTreeMap::new(),
            scratch: Vec::with_capacity(BATCH),
            express: 0,
            express_ready: Vec::new(),
            others_ready: Vec::new(),
            posted_bytes: 0,
        };
        let engine = Self { inner: Rc::new(RefCell::new(inner)) };
        reactor.add_source(Box::new(engine.clone()));
        Ok(engine)
    }

    /// Calls `action` with the connection manager.
    pub(crate) fn with_manager<T>(&self, action: impl FnOnce(&mut Manager) -> T) -> T {
        action(&mut self.inner.borrow_mut().manager)
    }

    /// Subscribes to the events of the endpoint or listener of this key, under the token.
    pub(crate) fn subscribe(&self, key: u64, token: Token) -> io::Result<Subscription> {
        self.inner.borrow_mut().subscribe(key, token)
    }

    /// Ends a subscription.
    pub(crate) fn unsubscribe(&self, subscription: Subscription) {
        let mut inner = self.inner.borrow_mut();
        inner.keys.retain(|_, taken| *taken != subscription);
        let gone = inner.subscriptions.unsubscribe(subscription);
        if gone.as_ref().is_some_and(|pending| pending.is_express) {
            inner.express -= 1;
        }
        drop(inner);
        // Dropped requests are rejected, which needs the manager.
        drop(gone);
    }

    /// Takes the pending work completions, in exchange for an empty list.
    pub(crate) fn take_work(&self, subscription: Subscription, empty: &mut Vec<WorkCompletion>) {
        if let Some(pending) = self.inner.borrow_mut().subscriptions.open(subscription) {
            std::mem::swap(&mut pending.work, empty);
        }
    }

    /// Makes a connection express, or one like the others.
    pub(crate) fn set_express(&self, subscription: Subscription, is_express: bool) {
        let mut inner = self.inner.borrow_mut();
        let Some(pending) = inner.subscriptions.peek_mut(subscription) else { return };
        let was_express = std::mem::replace(&mut pending.is_express, is_express);
        inner.express = inner.express + usize::from(is_express) - usize::from(was_express);
    }

    /// Posted work uses so many bytes of data more, or less.
    pub(crate) fn note_posted(&self, more: usize, less: usize) {
        let posted = &mut self.inner.borrow_mut().posted_bytes;
        *posted = (*posted + more).saturating_sub(less);
    }

    /// Whether so many bytes more may be posted for a connection that is not express, if all are to
    /// post so many at a time while there are express ones.
    pub(crate) fn may_post(&self, bytes: usize, at_a_time: usize) -> bool {
        let inner = self.inner.borrow();
        inner.express == 0 || inner.posted_bytes + bytes <= at_a_time
    }

    /// Takes the next event of the connection manager.
    pub(crate) fn take_event(&self, subscription: Subscription) -> Option<CmEvent> {
        self.inner.borrow_mut().subscriptions.open(subscription)?.events.pop_front()
    }

    /// Why a connection cannot continue, if its device or part of it has failed or was removed. Its
    /// work may have been flushed before that was reported.
    pub(crate) fn fault(&self, subscription: Subscription) -> Option<CloseReason> {
        self.inner.borrow().subscriptions.peek(subscription)?.fault
    }

    /// Sends events of this key to this subscription from now on.
    pub(crate) fn set_key(&self, subscription: Subscription, key: u64) {
        let mut inner = self.inner.borrow_mut();
        inner.keys.retain(|_, taken| *taken != subscription);
        inner.keys.insert(key, subscription);
    }

    /// Whether the end of the connection is among the pending events.
    pub(crate) fn is_ending(&self, subscription: Subscription) -> bool {
        let ends =
            |event: &CmEvent| matches!(event, CmEvent::Disconnected | CmEvent::DeviceRemoved);
        let inner = self.inner.borrow();
        let over =
            |pending: &PendingEvents| pending.fault.is_some() || pending.events.iter().any(ends);
        inner.subscriptions.peek(subscription).is_none_or(over)
    }

    /// This reactor's state of the device of an endpoint. With `wide`, all registered memory is
    /// accessible to peers, otherwise none.
    pub(crate) fn hold(
        &self,
        endpoint: &Endpoint,
        reactor: &mut Reactor,
        wide: bool,
    ) -> io::Result<Rc<RefCell<ReactorDevice>>> {
        let key = endpoint.device_key().ok_or(io::ErrorKind::NotConnected)?;
        let mut inner = self.inner.borrow_mut();
        let known = inner.holds.iter().find(|hold| {
            let hold = hold.borrow();
            hold.key == key && hold.access.remote_write == wide && !hold.removed
        });
        if let Some(hold) = known {
            return Ok(Rc::clone(hold));
        }
        let device = endpoint.open_device()?;
        let ready_flag = watch(reactor, device.descriptor())?;
        let event_flag = watch(reactor, device.event_descriptor())?;
        let bind = inner.role == Role::Host && device.attributes().memory_windows;
        let access = Access {
            local_write: true,
            remote_read: wide,
            remote_write: wide,
            bind: bind && !wide,
        };
        let pool = reactor.pool().clone();
        let chunks = pool.capacity() / BUFFER_BYTES_MAX;
        let mut regions = Vec::new();
        regions.resize_with(chunks, || None);
        let hold = ReactorDevice {
            queues: Vec::new(),
            regions,
            domain: device.create_domain()?,
            device,
            key,
            ready_flag,
            event_flag,
            access,
            pool,
            pairs: Vec::new(),
            removed: false,
        };
        let hold = Rc::new(RefCell::new(hold));
        inner.holds.push(Rc::clone(&hold));
        Ok(hold)
    }
}

impl Inner {
    fn subscribe(&mut self, key: u64, token: Token) -> io::Result<Subscription> {
        let subscription = self.subscriptions.take(token)?;
        self.keys.insert(key, subscription);
        Ok(subscription)
    }

    fn poll_manager_events(&mut self, ready: &mut Vec<ReactorCompletion>) {
        loop {
            let event = match self.manager.poll() {
                Ok(Some(event)) => event,
                Ok(None) => return,
                Err(error) => {
                    log::warn!("the RDMA connection manager: {error}");
                    return;
                }
            };
            // Events without subscription are dropped, which rejects a request among them.
            let Some(subscription) = self.keys.get(&event.key).copied() else { continue };
            let removed = matches!(event.event, CmEvent::DeviceRemoved);
            if removed {
                self.remove_device_of(subscription);
            }
            if let Some(pending) = self.deliver(subscription, ready) {
                if removed {
                    pending.fault.get_or_insert(CloseReason::DeviceRemoved);
                }
                pending.events.push_back(event.event);
            }
        }
    }

    /// Marks the device of this connection as removed, so that no new connection uses it.
    fn remove_device_of(&self, subscription: Subscription) {
        for hold in &self.holds {
            let mut hold = hold.borrow_mut();
            hold.removed |= hold.pairs.iter().any(|pair| pair.subscription == subscription);
        }
    }

    fn poll_device_events(&mut self, ready: &mut Vec<ReactorCompletion>) {
        for index in 0..self.holds.len() {
            let Some(hold) = self.holds.get(index).map(Rc::clone) else { break };
            let mut hold = hold.borrow_mut();
            while let Some(event) = hold.poll_event() {
                self.handle_event(&mut hold, event, ready);
            }
            hold.take_ready_flag();
            self.poll_queues(&mut hold, BATCHES_PER_TURN, ready);
        }
    }

    /// Takes so many batches of completions at most from each queue.
    fn poll_queues(
        &mut self,
        hold: &mut ReactorDevice,
        batches: usize,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        let mut scratch = std::mem::take(&mut self.scratch);
        for queue in &mut hold.queues {
            for _ in 0..batches {
                scratch.clear();
                let found = queue.inner.poll(BATCH, &mut scratch).unwrap_or_else(|error| {
                    log::warn!("an RDMA completion queue: {error}");
                    0
                });
                for completion in scratch.drain(..) {
                    let subscription = Subscription::of(completion.work);
                    if let Some(pending) = self.deliver(subscription, ready) {
                        pending.work.push(completion);
                    }
                }
                if found < BATCH {
                    break;
                }
            }
        }
        self.scratch = scratch;
    }

    /// Adds to the events of a connection, which is notified with the express ones if it is one.
    fn deliver(
        &mut self,
        subscription: Subscription,
        ready: &mut Vec<ReactorCompletion>,
    ) -> Option<&mut PendingEvents> {
        let is_express = self.express > 0
            && self.subscriptions.peek(subscription).is_some_and(|pending| pending.is_express);
        let ready = if is_express { &mut self.express_ready } else { ready };
        self.subscriptions.deliver(subscription, ready)
    }

    /// Looks whether something has come for an express connection.
    fn look_for_express(&mut self) -> bool {
        if self.express > 0 && self.express_ready.is_empty() {
            let mut others = std::mem::take(&mut self.others_ready);
            for index in 0..self.holds.len() {
                let Some(hold) = self.holds.get(index).map(Rc::clone) else { break };
                self.poll_queues(&mut hold.borrow_mut(), 1, &mut others);
            }
            self.others_ready = others;
        }
        !self.express_ready.is_empty()
    }

    /// Notifies the connections that an asynchronous event concerns.
    fn handle_event(
        &mut self,
        hold: &mut ReactorDevice,
        event: DeviceEvent,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        let name = &hold.device.attributes().name;
        match event {
            DeviceEvent::Port { port, active } => {
                let what = if active { "is up" } else { "is down" };
                log::info!("RDMA device {name}: port {port} {what}");
            }
            DeviceEvent::Fatal => {
                log::error!("RDMA device {name}: {}", DeviceFault::Device);
                hold.removed = true;
            }
            DeviceEvent::CompletionQueue(_) => {
                log::error!("RDMA device {name}: {}", DeviceFault::CompletionQueue);
            }
            DeviceEvent::QueuePair(..) => {}
        }
        let failed = hold.queues.iter().position(
            |queue| matches!(event, DeviceEvent::CompletionQueue(key) if queue.inner.key() == key),
        );
        for pair in &hold.pairs {
            let fault = match event {
                DeviceEvent::QueuePair(number, fault) if number == pair.number => fault,
                DeviceEvent::CompletionQueue(_) if failed == Some(pair.queue) => {
                    DeviceFault::CompletionQueue
                }
                DeviceEvent::Fatal => DeviceFault::Device,
                _ => continue,
            };
            if let Some(pending) = self.deliver(pair.subscription, ready) {
                pending.fault.get_or_insert(CloseReason::Device(fault));
            }
        }
        if let Some(queue) = failed.and_then(|failed| hold.queues.get_mut(failed)) {
            queue.failed = true;
        }
    }

    fn poll(&mut self, ready: &mut Vec<ReactorCompletion>) {
        ready.append(&mut self.others_ready);
        if self.ready_flag.as_ref().is_none_or(ReadyFlag::take) {
            self.poll_manager_events(ready);
        }
        self.poll_device_events(ready);
        // A removed device is freed when nothing uses it any more.
        self.holds.retain(|hold| Rc::strong_count(hold) > 1 || !hold.borrow().removed);
        if self.express == 0 {
            // The last one is so no longer.
            ready.append(&mut self.express_ready);
        }
    }
}

impl Source for Engine {
    fn poll(&mut self, ready: &mut Vec<ReactorCompletion>) {
        self.inner.borrow_mut().poll(ready);
    }

    fn arm(&mut self, ready: &mut Vec<ReactorCompletion>) {
        let mut inner = self.inner.borrow_mut();
        for hold in &inner.holds {
            hold.borrow_mut().arm();
        }
        inner.poll(ready);
    }

    fn express(&self) -> usize {
        self.inner.borrow().express
    }

    fn has_express(&mut self) -> bool {
        self.inner.borrow_mut().look_for_express()
    }

    fn poll_express(&mut self, ready: &mut Vec<ReactorCompletion>) {
        ready.append(&mut self.inner.borrow_mut().express_ready);
    }
}

/// A reactor's state of a device: registered memory and completion queues.
#[derive(Debug)]
pub(crate) struct ReactorDevice {
    // Dropped first: queues and regions are freed before their device.
    queues: Vec<Queue>,
    /// The pool's memory in pieces of the largest buffer, which no buffer crosses. Each is
    /// registered when a buffer in it is first used, and stays registered: an idle target pins
    /// little memory, and a busy one registers no more.
    regions: Vec<Option<Region>>,
    domain: Domain,
    device: Device,
    key: u64,
    ready_flag: Option<ReadyFlag>,
    /// Set when the device has asynchronous events.
    event_flag: Option<ReadyFlag>,
    access: Access,
    pool: Pool,
    /// The queue pairs on it.
    pairs: Vec<PairEntry>,
    /// The device was removed: no new connection uses it.
    removed: bool,
}

#[derive(Debug)]
struct Queue {
    inner: CompletionQueue,
    /// Entries that are not reserved.
    free: u32,
    armed: bool,
    /// It has failed: nothing new uses it.
    failed: bool,
}

/// A queue pair and its subscription.
#[derive(Debug, Clone, Copy)]
struct PairEntry {
    number: u32,
    queue: usize,
    subscription: Subscription,
}

impl Queue {
    /// Whether this many entries can be reserved.
    fn has(&self, entries: u32) -> bool {
        self.free >= entries && !self.failed
    }
}

/// Reserved entries of a completion queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lease {
    queue: usize,
    entries: u32,
}

impl ReactorDevice {
    pub(crate) fn attributes(&self) -> &Attributes {
        self.device.attributes()
    }

    /// Reserves entries in a completion queue.
    pub(crate) fn lease(&mut self, entries: u32) -> io::Result<Lease> {
        if let Some(queue) = self.queues.iter().position(|queue| queue.has(entries)) {
            self.queues[queue].free -= entries;
            return Ok(Lease { queue, entries });
        }
        let most = self.attributes().completion_entries_max;
        let size = COMPLETION_ENTRIES.max(entries).min(most);
        if size < entries {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let inner = self.device.create_completion_queue(size)?;
        self.queues.push(Queue { inner, free: size - entries, armed: false, failed: false });
        Ok(Lease { queue: self.queues.len() - 1, entries })
    }

    /// Releases the entries, when the queue pair is destroyed.
    pub(crate) fn release(&mut self, lease: Lease) {
        if let Some(queue) = self.queues.get_mut(lease.queue) {
            queue.free = queue.free.saturating_add(lease.entries);
        }
    }

    /// Adds a queue pair to the table.
    pub(crate) fn add_pair(&mut self, number: u32, lease: Lease, subscription: Subscription) {
        self.pairs.push(PairEntry { number, queue: lease.queue, subscription });
    }

    /// Removes a queue pair from the table.
    pub(crate) fn remove_pair(&mut self, subscription: Subscription) {
        self.pairs.retain(|pair| pair.subscription != subscription);
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        // The flag is taken before all events are polled; without a flag they are always polled.
        if self.event_flag.as_ref().is_some_and(|ready_flag| !ready_flag.peek()) {
            return None;
        }
        let event = self.device.poll_event();
        if event.is_none() {
            let _ = self.event_flag.as_ref().map(ReadyFlag::take);
        }
        event
    }

    /// The domain and completion queue for the queue pair of a lease.
    pub(crate) fn parts(&self, lease: Lease) -> Option<(&Domain, &CompletionQueue)> {
        Some((&self.domain, &self.queues.get(lease.queue)?.inner))
    }

    /// A protection domain for one queue pair.
    pub(crate) fn create_domain(&self) -> io::Result<Domain> {
        self.device.create_domain()
    }

    /// A scatter/gather element of `length` bytes of a buffer from `start`, for local work
    /// requests.
    pub(crate) fn piece(
        &mut self,
        buffer: &Buffer,
        start: usize,
        length: usize,
    ) -> io::Result<Piece> {
        let key = self.region(buffer)?.local_key();
        let address = buffer.address().saturating_add(start);
        Ok(Piece { address: number(address)?, bytes: short(length)?, key })
    }

    pub(crate) fn region(&mut self, buffer: &Buffer) -> io::Result<&Region> {
        let chunk = buffer.address().wrapping_sub(self.pool.address()) / BUFFER_BYTES_MAX;
        let place = self.regions.get_mut(chunk).ok_or(io::ErrorKind::InvalidInput)?;
        match place {
            Some(region) => Ok(region),
            None => {
                let offset = chunk * BUFFER_BYTES_MAX;
                let (pool, access) = (&self.pool, self.access);
                let region = self.domain.register(pool, offset, BUFFER_BYTES_MAX, access)?;
                Ok(place.insert(region))
            }
        }
    }

    fn take_ready_flag(&mut self) {
        if self.ready_flag.as_ref().is_some_and(ReadyFlag::take) {
            self.device.take_events();
            for queue in &mut self.queues {
                queue.armed = false;
            }
        }
    }

    /// A queue that is still armed has had no completion, or its event is not taken yet.
    fn arm(&mut self) {
        let lasts = self.ready_flag.is_some();
        for queue in self.queues.iter_mut().filter(|queue| !queue.armed) {
            match queue.inner.arm() {
                Ok(()) => queue.armed = lasts,
                Err(error) => log::warn!("an RDMA completion queue cannot be armed: {error}"),
            }
        }
    }
}

/// Watches a descriptor, if there is one.
pub(super) fn watch(
    reactor: &mut Reactor,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<Option<ReadyFlag>> {
    let Some(descriptor) = descriptor else { return Ok(None) };
    let ready_flag = ReadyFlag::new();
    reactor.watch(descriptor, ready_flag.clone())?;
    Ok(Some(ready_flag))
}

pub(super) fn number(value: usize) -> io::Result<u64> {
    u64::try_from(value).map_err(io::Error::other)
}

pub(super) fn short(value: usize) -> io::Result<u32> {
    u32::try_from(value).map_err(io::Error::other)
}
