//! What the RDMA connections of one reactor have in common: its channel to the connection manager,
//! each device with its registered memory and completion queues, and the pending events of each
//! connection from both.
//!
//! The reactor looks here in every turn ([`Source`]). One look takes completions in batches from
//! few large queues, whoever they are for, and tells each connection once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::VecDeque;
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

/// Completions taken from a queue at once.
const BATCH: usize = 64;

/// Batches taken from a queue in one turn: what is left waits for the next.
const BATCHES_PER_TURN: usize = 4;

/// Entries of a completion queue, unless one connection alone needs more: room for some twenty
/// queue pairs of 128 commands.
const COMPLETION_ENTRIES: u32 = 16_384;

/// Which side this reactor's connections are on: the two are kept apart even on one reactor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Hosts come to us.
    Target,
    /// The controller reads and writes our memory.
    Host,
}

/// One engine of a reactor; all clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    inner: Rc<RefCell<Inner>>,
}

/// Where engines are found on their reactor.
#[derive(Debug, Default)]
struct Engines {
    target: RefCell<Option<Engine>>,
    host: RefCell<Option<Engine>>,
}

impl Subscription {
    /// A work identifier of this subscription's.
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
}

/// What has come for a connection or listener and was not taken yet.
#[derive(Debug, Default)]
struct PendingEvents {
    work: Vec<WorkCompletion>,
    events: VecDeque<CmEvent>,
    /// Why the connection cannot go on, if what it stands on has failed or goes away.
    fault: Option<CloseReason>,
}

impl Engine {
    /// The engine of a reactor for one side, made when it is first asked for. Where its devices
    /// come from is what [`set_provider`](super::set_provider) has said.
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
        };
        let engine = Self { inner: Rc::new(RefCell::new(inner)) };
        reactor.add_source(Box::new(engine.clone()));
        Ok(engine)
    }

    /// Does something with the connection manager.
    pub(crate) fn with_manager<T>(&self, action: impl FnOnce(&mut Manager) -> T) -> T {
        action(&mut self.inner.borrow_mut().manager)
    }

    /// A subscription for the endpoint or listener of this key; events come under the token.
    pub(crate) fn subscribe(&self, key: u64, token: Token) -> io::Result<Subscription> {
        self.inner.borrow_mut().subscribe(key, token)
    }

    /// Gives a subscription up. Nothing comes for it any more.
    pub(crate) fn unsubscribe(&self, subscription: Subscription) {
        let mut inner = self.inner.borrow_mut();
        inner.keys.retain(|_, taken| *taken != subscription);
        let gone = inner.subscriptions.unsubscribe(subscription);
        drop(inner);
        // Requests nobody took: their rejection needs the manager.
        drop(gone);
    }

    /// Takes the work that has completed, in exchange for an empty list.
    pub(crate) fn take_work(&self, subscription: Subscription, empty: &mut Vec<WorkCompletion>) {
        if let Some(pending) = self.inner.borrow_mut().subscriptions.open(subscription) {
            std::mem::swap(&mut pending.work, empty);
        }
    }

    /// Takes the next thing that the connection manager has said.
    pub(crate) fn take_event(&self, subscription: Subscription) -> Option<CmEvent> {
        self.inner.borrow_mut().subscriptions.open(subscription)?.events.pop_front()
    }

    /// Why a connection cannot go on, if what it stands on has failed or goes away. Its work may
    /// have been flushed for that before anybody could say so.
    pub(crate) fn fault(&self, subscription: Subscription) -> Option<CloseReason> {
        self.inner.borrow().subscriptions.peek(subscription)?.fault
    }

    /// From now on events for this key go to this subscription.
    pub(crate) fn set_key(&self, subscription: Subscription, key: u64) {
        let mut inner = self.inner.borrow_mut();
        inner.keys.retain(|_, taken| *taken != subscription);
        inner.keys.insert(key, subscription);
    }

    /// Whether the end of a connection is among what has not been taken.
    pub(crate) fn is_ending(&self, subscription: Subscription) -> bool {
        let ends =
            |event: &CmEvent| matches!(event, CmEvent::Disconnected | CmEvent::DeviceRemoved);
        let inner = self.inner.borrow();
        let over =
            |pending: &PendingEvents| pending.fault.is_some() || pending.events.iter().any(ends);
        inner.subscriptions.peek(subscription).is_none_or(over)
    }

    /// This reactor's hold on the device that an endpoint is on. One that is `wide` lets the peer
    /// reach all memory that is registered, the other lets it reach none.
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
        let event_bell = watch(reactor, device.event_descriptor())?;
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
            event_bell,
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
            // An event for nobody is dropped; a request among them is rejected with that.
            let Some(subscription) = self.keys.get(&event.key).copied() else { continue };
            let removed = matches!(event.event, CmEvent::DeviceRemoved);
            if removed {
                self.remove_device_of(subscription);
            }
            if let Some(pending) = self.subscriptions.deliver(subscription, ready) {
                if removed {
                    pending.fault.get_or_insert(CloseReason::DeviceRemoved);
                }
                pending.events.push_back(event.event);
            }
        }
    }

    /// No new connection is to use the device that this one is on.
    fn remove_device_of(&self, subscription: Subscription) {
        for hold in &self.holds {
            let mut hold = hold.borrow_mut();
            hold.removed |= hold.pairs.iter().any(|pair| pair.subscription == subscription);
        }
    }

    fn poll_device_events(&mut self, ready: &mut Vec<ReactorCompletion>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        for index in 0..self.holds.len() {
            let Some(hold) = self.holds.get(index).map(Rc::clone) else { break };
            let mut hold = hold.borrow_mut();
            while let Some(event) = hold.poll_event() {
                self.handle_event(&mut hold, event, ready);
            }
            hold.take_ready_flag();
            for queue in &mut hold.queues {
                for _ in 0..BATCHES_PER_TURN {
                    scratch.clear();
                    let found = queue.inner.poll(BATCH, &mut scratch).unwrap_or_else(|error| {
                        log::warn!("an RDMA completion queue: {error}");
                        0
                    });
                    for completion in scratch.drain(..) {
                        let subscription = Subscription::of(completion.work);
                        if let Some(pending) = self.subscriptions.deliver(subscription, ready) {
                            pending.work.push(completion);
                        }
                    }
                    if found < BATCH {
                        break;
                    }
                }
            }
        }
        self.scratch = scratch;
    }

    /// Tells the connections that something is about which the device says by itself.
    fn handle_event(
        &mut self,
        hold: &mut ReactorDevice,
        event: DeviceEvent,
        ready: &mut Vec<ReactorCompletion>,
    ) {
        let name = &hold.device.attributes().name;
        match event {
            DeviceEvent::Port { port, active } => {
                let what = if active { "is there" } else { "is not there any more" };
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
            if let Some(pending) = self.subscriptions.deliver(pair.subscription, ready) {
                pending.fault.get_or_insert(CloseReason::Device(fault));
            }
        }
        if let Some(queue) = failed.and_then(|failed| hold.queues.get_mut(failed)) {
            queue.failed = true;
        }
    }

    fn poll(&mut self, ready: &mut Vec<ReactorCompletion>) {
        if self.ready_flag.as_ref().is_none_or(ReadyFlag::take) {
            self.poll_manager_events(ready);
        }
        self.poll_device_events(ready);
        // A device that is gone, and that nobody uses any more, waits to be let go of.
        self.holds.retain(|hold| Rc::strong_count(hold) > 1 || !hold.borrow().removed);
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
}

/// A reactor's hold on a device: memory that is registered with it, and completion queues.
#[derive(Debug)]
pub(crate) struct ReactorDevice {
    // Queues and regions go before the device they are of.
    queues: Vec<Queue>,
    /// The pool's memory in pieces of the largest buffer, which no buffer crosses. Each is
    /// registered when something in it is first named, and stays so: an idle target pins little,
    /// and a busy one registers nothing any more.
    regions: Vec<Option<Region>>,
    domain: Domain,
    device: Device,
    key: u64,
    ready_flag: Option<ReadyFlag>,
    /// Rung when the device has something to say by itself.
    event_bell: Option<ReadyFlag>,
    access: Access,
    pool: Pool,
    /// The queue pairs that were made with it.
    pairs: Vec<PairEntry>,
    /// The device is going away: no new connection is to use it.
    removed: bool,
}

#[derive(Debug)]
struct Queue {
    inner: CompletionQueue,
    /// Entries that no queue pair has been promised.
    free: u32,
    armed: bool,
    /// It has failed: nothing new is to complete there.
    failed: bool,
}

/// A queue pair, and whose it is.
#[derive(Debug, Clone, Copy)]
struct PairEntry {
    number: u32,
    queue: usize,
    subscription: Subscription,
}

impl Queue {
    /// Whether so many entries can be reserved.
    fn has(&self, entries: u32) -> bool {
        self.free >= entries && !self.failed
    }
}

/// Entries of one of a device's completion queues.
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

    /// Gives the entries back, when the queue pair is gone.
    pub(crate) fn release(&mut self, lease: Lease) {
        if let Some(queue) = self.queues.get_mut(lease.queue) {
            queue.free = queue.free.saturating_add(lease.entries);
        }
    }

    /// Takes note of a queue pair that was made.
    pub(crate) fn add_pair(&mut self, number: u32, lease: Lease, subscription: Subscription) {
        self.pairs.push(PairEntry { number, queue: lease.queue, subscription });
    }

    /// Forgets a queue pair that is gone.
    pub(crate) fn remove_pair(&mut self, subscription: Subscription) {
        self.pairs.retain(|pair| pair.subscription != subscription);
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        // All that came since the flag was set is taken at once; without a flag, whatever there is.
        if self.event_bell.as_ref().is_some_and(|ready_flag| !ready_flag.peek()) {
            return None;
        }
        let event = self.device.poll_event();
        if event.is_none() {
            let _ = self.event_bell.as_ref().map(ReadyFlag::take);
        }
        event
    }

    /// The domain and the queue of a lease, to make a queue pair with.
    pub(crate) fn parts(&self, lease: Lease) -> Option<(&Domain, &CompletionQueue)> {
        Some((&self.domain, &self.queues.get(lease.queue)?.inner))
    }

    /// A protection domain for one queue pair.
    pub(crate) fn create_domain(&self) -> io::Result<Domain> {
        self.device.create_domain()
    }

    /// Names `length` bytes of a buffer from `start` on for this side's work requests.
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

    /// A queue that is armed already has not called yet, or its call has yet to be heard.
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

/// The flag of a descriptor, if there is one.
fn watch(
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
