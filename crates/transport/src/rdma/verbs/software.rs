//! A device in memory: queue pairs connected within the process, for tests.
//!
//! It follows the rules of real devices, more strictly: a message without a posted receive fails at
//! once, a READ beyond the agreed number is refused, keys, bounds and rights are checked for every
//! access, a send queue is full until completions have been polled, and an overflow of a completion
//! queue fails its queue pairs. Work is executed when it is posted, unless
//! [`Conditions::hold_reads`] is set. As soft-iWARP it refuses what that does not support or does
//! too late, and does not notice the first message to the accepting side.
//!
//! The state of a [`Fabric`] is behind one lock, so that reactors of several threads can use it. It
//! has no clock and no thread: in a simulation equal runs have equal events.

mod end;
mod state;

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use weft_reactor::{Pool, Waker};

use super::types::{
    self, Access, Attributes, DeviceEvent, DeviceFault, DeviceKind, NotRegistered, Parameters,
    PostError, PrivateData, QueuePairLimits, QueuePairOptions, ReceiveWork, SendWork, WindowRange,
    WorkCompletion, WorkStatus,
};
use state::{RegionState, State};

type ManagerEvent = types::ManagerEvent<Incoming>;
type CmEvent = types::CmEvent<Incoming>;

/// The length of a request's private data that InfiniBand's connection manager leaves to its users.
const REQUEST_BYTES: usize = 56;
/// The same for a reply.
const REPLY_BYTES: usize = 196;
/// The same for a rejection.
const REJECT_BYTES: usize = 148;

/// The kind and behaviour of the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conditions {
    /// Its properties.
    pub attributes: Attributes,
    /// The maximum length of inline data.
    pub inline_bytes: u32,
    /// Execute an RDMA READ, and work posted after it (except on soft-iWARP), only when its
    /// completion queue is polled.
    pub hold_reads: bool,
}

impl Default for Conditions {
    /// A RoCE adapter with ample limits.
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

/// The objects that exist on a fabric, to detect leaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResourceCounts {
    /// Identifiers of the connection manager except listeners.
    pub endpoints: usize,
    /// Listeners.
    pub listeners: usize,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Protection domains.
    pub domains: usize,
    /// Memory regions.
    pub regions: usize,
    /// Bound memory windows.
    pub windows: usize,
    /// Completion queues.
    pub completion_queues: usize,
}

/// Counts of events on a fabric.
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
    /// Doorbells of send queues.
    pub doorbells: u64,
    /// Completions of send queue work that was signalled or failed.
    pub send_completions: u64,
    /// Messages that found no receive.
    pub receiver_not_ready: u64,
    /// Memory regions that were registered.
    pub registrations: u64,
    /// Memory windows that were bound.
    pub bindings: u64,
}

/// A region that peers can access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteRegion {
    /// Its protection domain: peers of its queue pairs have access.
    pub domain: u64,
    /// The remote key.
    pub key: u32,
    /// Its start.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
}

/// Adapters connected by a network, in memory. Clones are the same fabric.
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
    /// Compares identity, not content.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }
}

impl Eq for Fabric {}

impl Fabric {
    /// A fabric of adapters with these conditions.
    #[must_use]
    pub fn new(conditions: Conditions) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(conditions))) }
    }

    /// The current objects.
    #[must_use]
    pub fn resource_counts(&self) -> ResourceCounts {
        self.lock().resource_counts()
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Memory that peers can access without a window.
    #[must_use]
    pub fn reachable(&self) -> Vec<RemoteRegion> {
        self.lock().reachable()
    }

    /// Disconnects both ends of every connection without an event: work posted later fails as if
    /// the peer did not respond. Returns the number of connections.
    pub fn sever(&self) -> usize {
        self.lock().sever()
    }

    /// Disconnects both ends of every connection without an event: work posted later does not
    /// complete, as while an adapter retries. Returns the number of connections.
    pub fn lose_connections(&self) -> usize {
        self.lock().lose_connections()
    }

    /// Reports the removal of the device to connections and listeners, and fails its queue pairs.
    pub fn remove_device(&self) {
        self.lock().remove_device();
    }

    /// Reports to all connections that their address has moved to another device.
    pub fn move_address(&self) {
        self.lock().move_address();
    }

    /// Removes (`true`) or adds the device: without it nothing can be resolved or listened on.
    pub fn set_absent(&self, absent: bool) {
        self.lock().absent = absent;
    }

    /// Reports a fault of every queue pair, every completion queue or the device, without any other
    /// event: posted work does not complete.
    pub fn fail(&self, fault: DeviceFault) {
        self.lock().fail_by_itself(fault);
    }

    /// Reports that the port is up or down.
    pub fn set_port(&self, active: bool) {
        self.lock().say(DeviceEvent::Port { port: 1, active });
    }

    /// Makes the send queue work posted after `skip` others fail with this status.
    pub fn fail_send(&self, skip: u64, status: WorkStatus) {
        self.lock().failing = Some((skip, status));
    }

    /// Limits registered memory to this many bytes, as RLIMIT_MEMLOCK does.
    pub fn set_memory_limit(&self, bytes: u64) {
        self.lock().memory_limit = bytes;
    }

    /// Makes connection requests time out (`true`), as from a machine that is off.
    pub fn set_unreachable(&self, unreachable: bool) {
        self.lock().unreachable = unreachable;
    }

    pub(super) fn open(&self, waker: Waker) -> Manager {
        let key = self.lock().add_manager(waker);
        Manager { fabric: self.clone(), key }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread panics only in a test that fails anyway.
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
        // Dropping a request in an event takes the lock.
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
    /// `None` once adopted.
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
        // All endpoints are on the same adapter.
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
        opening: WindowRange,
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
    /// Keeps the memory mapped while it is registered.
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
