//! A device in memory: queue pairs joined within the process, for tests of all that lies above.
//!
//! It obeys the rules that real devices have, and forgives less: a message that finds no receive
//! is an error at once, a READ beyond what was agreed is refused, keys, bounds and rights are
//! checked for every access, a send queue is full until completions have been polled, and a
//! completion queue that overflows fails its queue pairs. Everything happens as it is posted,
//! unless [`Conditions::hold_reads`] says otherwise. As soft-iWARP it refuses what that does
//! not do, or does when it is too late, and overlooks the first message to whoever accepts.
//!
//! All of a [`Fabric`]'s state is behind one lock, so that reactors of several threads can meet
//! on it. No clock and no thread is involved: in a simulated world the same run has the same
//! events.

mod end;
mod state;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weft_reactor::{Pool, Waker};

use super::{
    Access, Attributes, DeviceEvent, DeviceFault, DeviceKind, ManagerEvent, NotRegistered, Opening,
    Parameters, PostError, PrivateData, QueuePairLimits, QueuePairOptions, ReceiveWork, SendWork,
    WorkCompletion, WorkStatus,
};
use state::{RegionState, State};

/// Bytes of private data of a request, as InfiniBand's connection manager leaves its users.
const REQUEST_BYTES: usize = 56;
/// The same for a reply.
const REPLY_BYTES: usize = 196;
/// The same for a rejection.
const REJECT_BYTES: usize = 148;

/// What kind of device it is and how it behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conditions {
    /// What it says of itself.
    pub attributes: Attributes,
    /// Bytes that can be sent inline.
    pub inline_bytes: u32,
    /// An RDMA READ, and what was posted after it (but on soft-iWARP), is done only when its
    /// completion queue is polled.
    pub hold_reads: bool,
}

impl Default for Conditions {
    /// A generous RoCE adapter.
    fn default() -> Self {
        Self {
            attributes: Attributes {
                name: "software".to_owned(),
                kind: DeviceKind::Roce,
                queue_depth_max: 8192,
                queue_pairs_max: 4096,
                completion_entries_max: 65_536,
                pieces_max: 4,
                initiator_depth_max: 16,
                responder_resources_max: 16,
                send_with_invalidate: true,
                memory_windows: true,
                soft_roce: false,
                soft_iwarp: false,
            },
            inline_bytes: 64,
            hold_reads: false,
        }
    }
}

/// What exists on a fabric at a moment, to be counted for leaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResourceCounts {
    /// Identifiers of the connection manager that are no listeners.
    pub endpoints: usize,
    /// Listeners.
    pub listeners: usize,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Protection domains.
    pub domains: usize,
    /// Memory regions.
    pub regions: usize,
    /// Memory windows that are open.
    pub windows: usize,
    /// Completion queues.
    pub completion_queues: usize,
}

/// What has happened on a fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// SENDs delivered, with or without invalidation.
    pub sends: u64,
    /// SENDs with invalidation delivered.
    pub invalidations: u64,
    /// RDMA READs done.
    pub reads: u64,
    /// RDMA WRITEs done.
    pub writes: u64,
    /// Times that the send queue's doorbell was rung.
    pub doorbells: u64,
    /// Completions of sends, READs and WRITEs that their poster asked for or that failed.
    pub send_completions: u64,
    /// Messages that found no receive.
    pub receiver_not_ready: u64,
    /// Memory regions that were registered.
    pub registrations: u64,
    /// Memory windows that were bound.
    pub bindings: u64,
}

/// A region that peers may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteRegion {
    /// Its protection domain: only peers of queue pairs of that get there.
    pub domain: u64,
    /// The key that they need.
    pub key: u32,
    /// Where it begins.
    pub address: u64,
    /// How long it is.
    pub bytes: u64,
}

/// Adapters joined by a network, all in memory. Clones are the same fabric.
#[derive(Clone)]
pub struct Fabric {
    state: Arc<Mutex<State>>,
}

impl fmt::Debug for Fabric {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Fabric")
            .field("resource_counts", &self.resource_counts())
            .finish_non_exhaustive()
    }
}

impl Default for Fabric {
    fn default() -> Self {
        Self::new(Conditions::default())
    }
}

impl PartialEq for Fabric {
    /// The same fabric, not one that looks alike.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }
}

impl Eq for Fabric {}

impl Fabric {
    /// A fabric whose adapters are like this.
    #[must_use]
    pub fn new(conditions: Conditions) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(conditions))) }
    }

    /// What exists now.
    #[must_use]
    pub fn resource_counts(&self) -> ResourceCounts {
        self.lock().resource_counts()
    }

    /// What has happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Memory that peers may reach without a window.
    #[must_use]
    pub fn reachable(&self) -> Vec<RemoteRegion> {
        self.lock().reachable()
    }

    /// Both ends of every connection lose each other, without a word: work that is posted from
    /// now on fails as if the peer did not answer. Says how many connections there were.
    pub fn sever(&self) -> usize {
        self.lock().sever()
    }

    /// Both ends of every connection lose each other, and nobody notices: work that is posted from
    /// now on does not end, as while an adapter still tries. Says how many connections there were.
    pub fn lose_connections(&self) -> usize {
        self.lock().lose_connections()
    }

    /// Whoever holds a connection, or listens, hears that its device goes away, and its queue pairs
    /// fail.
    pub fn remove_device(&self) {
        self.lock().remove_device();
    }

    /// Whoever holds a connection hears that its address has moved to another device.
    pub fn move_address(&self) {
        self.lock().move_address();
    }

    /// From now on (`true`) there is no device: nobody finds a way to an address, or can listen.
    pub fn set_absent(&self, absent: bool) {
        self.lock().absent = absent;
    }

    /// Something of the device fails by itself: every queue pair, every completion queue or all of
    /// it. Who holds it hears of that and of nothing else: what was posted does not end.
    pub fn fail(&self, fault: DeviceFault) {
        self.lock().fail_by_itself(fault);
    }

    /// The device says that its port is there, or no longer.
    pub fn set_port(&self, active: bool) {
        self.lock().say(DeviceEvent::Port { port: 1, active });
    }

    /// The send-queue work that is posted after `skip` others fails with this status.
    pub fn fail_send(&self, skip: u64, status: WorkStatus) {
        self.lock().failing = Some((skip, status));
    }

    /// Registered memory is at most this many bytes from now on, as under RLIMIT_MEMLOCK.
    pub fn set_memory_limit(&self, bytes: u64) {
        self.lock().memory_limit = bytes;
    }

    /// From now on (`true`) connection requests get no answer, as from a machine that is off.
    pub fn set_unreachable(&self, unreachable: bool) {
        self.lock().unreachable = unreachable;
    }

    pub(super) fn open(&self, waker: Waker) -> Manager {
        let key = self.lock().add_manager(waker);
        Manager { fabric: self.clone(), key }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panicked did so in a test that fails anyway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct Manager {
    fabric: Fabric,
    key: u64,
}

impl Manager {
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    pub(super) fn listen(&mut self, address: SocketAddr, backlog: u32) -> io::Result<Listener> {
        let (key, address) = self.fabric.lock().listen(self.key, address, backlog)?;
        Ok(Listener { fabric: self.fabric.clone(), key, address })
    }

    pub(super) fn resolve(
        &mut self,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        _timeout: Duration,
    ) -> io::Result<Endpoint> {
        let key = self.fabric.lock().resolve(self.key, remote, local)?;
        Ok(Endpoint { fabric: self.fabric.clone(), key })
    }

    pub(super) fn adopt(&mut self, mut incoming: Incoming) -> Endpoint {
        let key = incoming.key.take().unwrap_or_default();
        self.fabric.lock().adopt(key, self.key);
        Endpoint { fabric: self.fabric.clone(), key }
    }

    pub(super) fn poll(&mut self) -> io::Result<Option<ManagerEvent>> {
        // Events may hold requests, which take the lock when they are dropped.
        let raw = self.fabric.lock().poll_manager(self.key);
        Ok(raw.map(|raw| raw.into_manager_event(&self.fabric)))
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        while let Ok(Some(_)) = self.poll() {}
        self.fabric.lock().managers.remove(&self.key);
    }
}

#[derive(Debug)]
pub(crate) struct Listener {
    fabric: Fabric,
    key: u64,
    address: SocketAddr,
}

impl Listener {
    pub(super) fn key(&self) -> u64 {
        self.key
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.fabric.lock().listeners.remove(&self.address);
    }
}

#[derive(Debug)]
pub(crate) struct Incoming {
    fabric: Fabric,
    /// Taken when it is adopted.
    key: Option<u64>,
    local: SocketAddr,
    peer: SocketAddr,
}

impl Incoming {
    pub(super) fn reject(mut self, private_data: &[u8]) {
        if let Some(key) = self.key.take() {
            self.fabric.lock().reject(key, private_data);
            self.fabric.lock().remove_end(key);
        }
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    pub(super) fn peer_address(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.fabric.lock().reject(key, &[]);
            self.fabric.lock().remove_end(key);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Endpoint {
    fabric: Fabric,
    key: u64,
}

impl Endpoint {
    pub(super) fn key(&self) -> u64 {
        self.key
    }

    pub(super) fn device_key(&self) -> Option<u64> {
        // One adapter for all: what differs between reactors is their hold on it.
        Some(0)
    }

    pub(super) fn open_device(&self) -> io::Result<Device> {
        let mut state = self.fabric.lock();
        let waker = state.waker_of(self.key).ok_or(io::ErrorKind::NotConnected)?;
        let key = state.open_for_reactor(&waker);
        let attributes = state.conditions.attributes.clone();
        drop(state);
        Ok(Device { fabric: self.fabric.clone(), key, waker, attributes })
    }

    pub(super) fn create_queue_pair(
        &mut self,
        domain: &Domain,
        completions: &CompletionQueue,
        options: QueuePairOptions,
    ) -> io::Result<QueuePairLimits> {
        let mut state = self.fabric.lock();
        state.create_queue_pair(self.key, domain.key, completions.key, options)
    }

    pub(super) fn prepare_window(
        &mut self,
        window: u16,
        region: &Region,
        opening: Opening,
    ) -> io::Result<u32> {
        self.fabric.lock().prepare_window(self.key, window, region.key, opening)
    }

    pub(super) fn connect(&mut self, parameters: &Parameters) -> io::Result<()> {
        self.fabric.lock().connect(self.key, parameters)
    }

    pub(super) fn accept(&mut self, parameters: &Parameters) -> io::Result<()> {
        self.fabric.lock().accept(self.key, parameters)
    }

    pub(super) fn reject(&mut self, private_data: &[u8]) -> io::Result<()> {
        self.fabric.lock().reject(self.key, private_data);
        Ok(())
    }

    pub(super) fn disconnect(&mut self) -> io::Result<()> {
        self.fabric.lock().disconnect(self.key)
    }

    pub(super) fn post_send(&mut self, chain: &[SendWork]) -> Result<(), PostError> {
        self.fabric.lock().post_send(self.key, chain)
    }

    pub(super) fn post_receive(&mut self, chain: &[ReceiveWork]) -> Result<(), PostError> {
        self.fabric.lock().post_receive(self.key, chain)
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        let state = self.fabric.lock();
        let end = state.ends.get(&self.key).ok_or(io::ErrorKind::NotConnected)?;
        Ok(end.local)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.fabric.lock().remove_end(self.key);
    }
}

pub(crate) struct Device {
    fabric: Fabric,
    key: u64,
    waker: Waker,
    attributes: Attributes,
}

impl fmt::Debug for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Device").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Device {
    pub(super) fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    pub(super) fn take_events(&mut self) {}

    pub(super) fn event_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    pub(super) fn poll_event(&mut self) -> Option<DeviceEvent> {
        self.fabric.lock().poll_device(self.key)
    }

    pub(super) fn create_domain(&self) -> io::Result<Domain> {
        let key = self.fabric.lock().add_domain();
        let name = self.attributes.name.clone();
        Ok(Domain { fabric: self.fabric.clone(), key, name })
    }

    pub(super) fn create_completion_queue(&self, entries: u32) -> io::Result<CompletionQueue> {
        let key = self.fabric.lock().add_completion_queue(entries, self.waker.clone())?;
        Ok(CompletionQueue { fabric: self.fabric.clone(), key })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.fabric.lock().devices.remove(&self.key);
    }
}

#[derive(Debug)]
pub(crate) struct Domain {
    fabric: Fabric,
    key: u64,
    /// The device's name.
    name: String,
}

impl Domain {
    pub(super) fn register(
        &self,
        pool: &Pool,
        offset: usize,
        bytes: usize,
        access: Access,
    ) -> io::Result<Region> {
        if offset.checked_add(bytes).is_none_or(|end| end > pool.capacity()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let number = |value: usize| u64::try_from(value).map_err(io::Error::other);
        let address = number(pool.address())?.saturating_add(number(offset)?);
        let region =
            RegionState { domain: self.key, address, bytes: number(bytes)?, access, valid: true };
        let key = self.fabric.lock().add_region(region).map_err(|error| {
            io::Error::from(NotRegistered { device: self.name.clone(), bytes, error })
        })?;
        Ok(Region { fabric: self.fabric.clone(), key, _pool: pool.clone() })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        self.fabric.lock().domains.remove(&self.key);
    }
}

#[derive(Debug)]
pub(crate) struct Region {
    fabric: Fabric,
    key: u32,
    /// Keeps the memory mapped for as long as the fabric knows of it.
    _pool: Pool,
}

impl Region {
    pub(super) fn local_key(&self) -> u32 {
        self.key
    }

    pub(super) fn remote_key(&self) -> u32 {
        self.key
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.fabric.lock().regions.remove(&self.key);
    }
}

#[derive(Debug)]
pub(crate) struct CompletionQueue {
    fabric: Fabric,
    key: u64,
}

impl CompletionQueue {
    pub(super) fn key(&self) -> u64 {
        self.key
    }

    pub(super) fn poll(
        &mut self,
        most: usize,
        into: &mut Vec<WorkCompletion>,
    ) -> io::Result<usize> {
        Ok(self.fabric.lock().poll_completions(self.key, most, into))
    }

    pub(super) fn arm(&mut self) -> io::Result<()> {
        self.fabric.lock().arm(self.key);
        Ok(())
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        self.fabric.lock().queues.remove(&self.key);
    }
}

#[cfg(test)]
pub(crate) mod tests;
