//! The state of a fabric: managers, listeners, regions, completion queues; and the connection
//! set-up. [`super::end`] has the queue pairs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use weft_reactor::Waker;

use super::end::{End, QueuePair, Stage, WindowState};
use super::{
    Access, CmEvent, Conditions, Counts, DeviceEvent, DeviceFault, Fabric, Incoming, ManagerEvent,
    Parameters, PrivateData, QueuePairLimits, QueuePairOptions, REJECT_BYTES, REPLY_BYTES,
    REQUEST_BYTES, RemoteRegion, ResourceCounts, WorkCompletion, WorkStatus,
};

/// The first port chosen when none is given.
const EPHEMERAL: u16 = 49_152;

/// `ECONNREFUSED`: the connection manager's reason without a listener.
const NOBODY_LISTENS: i32 = 111;
/// `ETIMEDOUT`.
const TIMED_OUT: i32 = 110;
/// `ENODEV`.
const NO_DEVICE: i32 = 19;

pub(super) struct State {
    pub(super) conditions: Conditions,
    pub(super) counts: Counts,
    pub(super) managers: BTreeMap<u64, ManagerState>,
    pub(super) listeners: BTreeMap<SocketAddr, ListenerState>,
    pub(super) ends: BTreeMap<u64, End>,
    pub(super) domains: BTreeSet<u64>,
    pub(super) regions: BTreeMap<u32, RegionState>,
    /// Bound memory windows, by key.
    pub(super) windows: BTreeMap<u32, WindowState>,
    pub(super) queues: BTreeMap<u64, QueueState>,
    pub(super) failing: Option<(u64, WorkStatus)>,
    pub(super) unreachable: bool,
    pub(super) absent: bool,
    pub(super) memory_limit: u64,
    pub(super) devices: BTreeMap<u64, ReactorDeviceState>,
    next: u64,
    next_region: u32,
    next_port: u16,
}

pub(super) struct ManagerState {
    waker: Waker,
    events: VecDeque<RawEvent>,
}

/// A device as one reactor has opened it.
pub(super) struct ReactorDeviceState {
    waker: Waker,
    events: VecDeque<DeviceEvent>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ListenerState {
    pub(super) key: u64,
    manager: u64,
    backlog: u32,
    /// Its device was removed: it gets no more requests.
    removed: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct RegionState {
    pub(super) domain: u64,
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) access: Access,
    /// Whether the peer has not invalidated its key.
    pub(super) valid: bool,
}

pub(super) struct QueueState {
    entries: usize,
    waker: Waker,
    armed: bool,
    /// Completions, each with the number of send queue entries that it frees.
    ready: VecDeque<(WorkCompletion, u64, u32)>,
}

/// An event that is not reported yet, whose request has no owner.
pub(super) struct RawEvent {
    key: u64,
    what: Raw,
}

enum Raw {
    Told(CmEvent),
    Requested { end: u64, local: SocketAddr, peer: SocketAddr, parameters: Parameters },
}

impl RawEvent {
    pub(super) fn into_manager_event(self, fabric: &Fabric) -> ManagerEvent {
        let event = match self.what {
            Raw::Told(event) => event,
            Raw::Requested { end, local, peer, parameters } => {
                let incoming = Incoming { fabric: fabric.clone(), key: Some(end), local, peer };
                CmEvent::Requested { incoming, parameters }
            }
        };
        ManagerEvent { key: self.key, event }
    }
}

impl State {
    pub(super) fn new(conditions: Conditions) -> Self {
        Self {
            conditions,
            counts: Counts::default(),
            managers: BTreeMap::new(),
            listeners: BTreeMap::new(),
            ends: BTreeMap::new(),
            domains: BTreeSet::new(),
            regions: BTreeMap::new(),
            windows: BTreeMap::new(),
            queues: BTreeMap::new(),
            failing: None,
            unreachable: false,
            absent: false,
            memory_limit: u64::MAX,
            devices: BTreeMap::new(),
            next: 1,
            next_region: 0x100,
            next_port: EPHEMERAL,
        }
    }

    pub(super) fn resource_counts(&self) -> ResourceCounts {
        ResourceCounts {
            endpoints: self.ends.len(),
            listeners: self.listeners.len(),
            queue_pairs: self.ends.values().filter(|end| end.queue_pair.is_some()).count(),
            domains: self.domains.len(),
            regions: self.regions.len(),
            windows: self.windows.len(),
            completion_queues: self.queues.len(),
        }
    }

    pub(super) fn reachable(&self) -> Vec<RemoteRegion> {
        let open = |region: &RegionState| region.access.remote_read || region.access.remote_write;
        let open = self.regions.iter().filter(|(_, region)| open(region));
        open.map(|(key, region)| RemoteRegion {
            domain: region.domain,
            key: *key,
            address: region.address,
            bytes: region.bytes,
        })
        .collect()
    }

    pub(super) fn take_key(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn add_manager(&mut self, waker: Waker) -> u64 {
        let key = self.take_key();
        self.managers.insert(key, ManagerState { waker, events: VecDeque::new() });
        key
    }

    pub(super) fn poll_manager(&mut self, key: u64) -> Option<RawEvent> {
        self.managers.get_mut(&key)?.events.pop_front()
    }

    pub(super) fn waker_of(&self, end: u64) -> Option<Waker> {
        let end = self.ends.get(&end)?;
        Some(self.managers.get(&end.manager)?.waker.clone())
    }

    /// Queues an event for an end. Events for a removed end are dropped.
    pub(super) fn push_event(&mut self, key: u64, event: CmEvent) {
        let Some(end) = self.ends.get(&key) else { return };
        if let Some(manager) = self.managers.get_mut(&end.manager) {
            manager.events.push_back(RawEvent { key, what: Raw::Told(event) });
            manager.waker.wake();
        }
    }

    pub(super) fn listen(
        &mut self,
        manager: u64,
        mut address: SocketAddr,
        backlog: u32,
    ) -> io::Result<(u64, SocketAddr)> {
        if address.port() == 0 {
            address.set_port(self.take_port());
        }
        if self.absent {
            return Err(io::Error::from_raw_os_error(NO_DEVICE));
        }
        if self.listeners.contains_key(&address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let key = self.take_key();
        self.listeners.insert(address, ListenerState { key, manager, backlog, removed: false });
        Ok((key, address))
    }

    fn take_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = self.next_port.checked_add(1).unwrap_or(EPHEMERAL);
        port
    }

    pub(super) fn resolve(
        &mut self,
        manager: u64,
        remote: SocketAddr,
        local: Option<SocketAddr>,
    ) -> io::Result<u64> {
        if self.absent {
            return Err(io::Error::from_raw_os_error(NO_DEVICE));
        }
        let key = self.take_key();
        let ip = local.map_or(remote.ip(), |local| local.ip());
        let local = SocketAddr::new(ip, self.take_port());
        self.ends.insert(key, End::new(manager, local, remote));
        self.push_event(key, CmEvent::AddressResolved);
        self.push_event(key, CmEvent::RouteResolved);
        Ok(key)
    }

    fn listener(&self, address: SocketAddr) -> Option<ListenerState> {
        let wild = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), address.port());
        let wild_6 = SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), address.port());
        [address, wild, wild_6]
            .iter()
            .find_map(|place| self.listeners.get(place))
            .copied()
            .filter(|found| !found.removed)
    }

    pub(super) fn connect(&mut self, key: u64, parameters: &Parameters) -> io::Result<()> {
        let parameters = self.checked(parameters, REQUEST_BYTES)?;
        let end = self.ends.get_mut(&key).ok_or(io::ErrorKind::NotConnected)?;
        let pair = end.queue_pair.as_mut().ok_or(io::ErrorKind::InvalidInput)?;
        if end.stage != Stage::Resolved {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        pair.store_parameters(&parameters);
        end.stage = Stage::Requesting;
        let remote = end.remote;
        if self.unreachable {
            let step = "connecting";
            self.push_event(key, CmEvent::Failed { step, error: TIMED_OUT });
            return Ok(());
        }
        let Some(listener) = self.listener(remote) else {
            let private_data = PrivateData::new(&[]);
            self.push_event(key, CmEvent::Rejected { reason: NOBODY_LISTENS, private_data });
            return Ok(());
        };
        self.request(listener, key, parameters);
        Ok(())
    }

    fn request(&mut self, listener: ListenerState, from: u64, parameters: Parameters) {
        let Some(&End { local, remote, .. }) = self.ends.get(&from) else { return };
        // Each side gets the parameters from its own view.
        let parameters = Parameters {
            initiator_depth: parameters.responder_resources,
            responder_resources: parameters.initiator_depth,
            ..parameters
        };
        let waiting = |event: &&RawEvent| matches!(event.what, Raw::Requested { .. });
        let Some(manager) = self.managers.get(&listener.manager) else { return };
        let waiting = manager.events.iter().filter(waiting).count();
        if waiting >= usize::try_from(listener.backlog).unwrap_or(usize::MAX) {
            let private_data = PrivateData::new(&[]);
            self.push_event(from, CmEvent::Rejected { reason: NOBODY_LISTENS, private_data });
            return;
        }
        let key = self.take_key();
        let mut end = End::new(listener.manager, remote, local);
        end.stage = Stage::Requested;
        end.peer = Some(from);
        self.ends.insert(key, end);
        if let Some(end) = self.ends.get_mut(&from) {
            end.peer = Some(key);
        }
        if let Some(manager) = self.managers.get_mut(&listener.manager) {
            let what = Raw::Requested { end: key, local: remote, peer: local, parameters };
            manager.events.push_back(RawEvent { key: listener.key, what });
            manager.waker.wake();
        }
    }

    /// The private data as received: padded to the message's length.
    fn checked(&self, parameters: &Parameters, most: usize) -> io::Result<Parameters> {
        let given = parameters.private_data.bytes();
        let attributes = &self.conditions.attributes;
        if given.len() > most
            || parameters.initiator_depth > attributes.initiator_depth_max
            || parameters.responder_resources > attributes.responder_resources_max
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Parameters { private_data: padded(given, most), ..*parameters })
    }

    pub(super) fn adopt(&mut self, key: u64, manager: u64) {
        if let Some(end) = self.ends.get_mut(&key) {
            let from = std::mem::replace(&mut end.manager, manager);
            self.move_events(key, from, manager);
        }
    }

    /// Moves an end's pending events to its new manager.
    fn move_events(&mut self, key: u64, from: u64, to: u64) {
        if from == to {
            return;
        }
        let Some(manager) = self.managers.get_mut(&from) else { return };
        let (moved, kept) =
            manager.events.drain(..).partition::<Vec<_>, _>(|event| event.key == key);
        manager.events.extend(kept);
        if let Some(manager) = self.managers.get_mut(&to) {
            manager.events.extend(moved);
            manager.waker.wake();
        }
    }

    pub(super) fn accept(&mut self, key: u64, parameters: &Parameters) -> io::Result<()> {
        let parameters = self.checked(parameters, REPLY_BYTES)?;
        let end = self.ends.get_mut(&key).ok_or(io::ErrorKind::NotConnected)?;
        let pair = end.queue_pair.as_mut().ok_or(io::ErrorKind::InvalidInput)?;
        if end.stage != Stage::Requested {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        pair.store_parameters(&parameters);
        pair.overlook_first(self.conditions.attributes.soft_iwarp);
        let peer = end.peer.filter(|_| !self.unreachable);
        end.stage = Stage::Connected;
        match peer.and_then(|peer| self.ends.get_mut(&peer)) {
            Some(other) if other.stage == Stage::Requesting => other.stage = Stage::Connected,
            _ => {
                self.push_event(key, CmEvent::Failed { step: "accepting", error: TIMED_OUT });
                return Ok(());
            }
        }
        if let Some(peer) = peer {
            self.push_event(peer, CmEvent::Established { parameters });
        }
        let private_data = PrivateData::new(&[]);
        let parameters = Parameters { private_data, responder_resources: 0, initiator_depth: 0 };
        self.push_event(key, CmEvent::Established { parameters });
        Ok(())
    }

    pub(super) fn reject(&mut self, key: u64, private_data: &[u8]) {
        let Some(end) = self.ends.get_mut(&key) else { return };
        if end.stage != Stage::Requested {
            return;
        }
        end.stage = Stage::Ended;
        if let Some(peer) = end.peer.take() {
            let private_data = padded(private_data, REJECT_BYTES);
            self.push_event(peer, CmEvent::Rejected { reason: 28, private_data });
        }
    }

    pub(super) fn remove_end(&mut self, key: u64) {
        self.reject(key, &[]);
        let _ = self.disconnect(key);
        self.ends.remove(&key);
        self.windows.retain(|_, window| window.end != key);
        for manager in self.managers.values_mut() {
            manager.events.retain(|event| event.key != key);
        }
    }

    pub(super) fn add_region(&mut self, region: RegionState) -> io::Result<u32> {
        let registered: u64 = self.regions.values().map(|region| region.bytes).sum();
        if registered.saturating_add(region.bytes) > self.memory_limit {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.counts.registrations += 1;
        let key = self.take_region_key();
        self.regions.insert(key, region);
        Ok(key)
    }

    /// A key whose upper 24 bits are unique; the lower 8 change with each binding of a window.
    fn take_region_key(&mut self) -> u32 {
        self.next_region = self.next_region.wrapping_add(0x101);
        self.next_region
    }

    pub(super) fn add_domain(&mut self) -> u64 {
        let key = self.take_key();
        self.domains.insert(key);
        key
    }

    pub(super) fn add_completion_queue(&mut self, entries: u32, waker: Waker) -> io::Result<u64> {
        if entries == 0 || entries > self.conditions.attributes.completion_entries_max {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let entries = usize::try_from(entries).unwrap_or(usize::MAX);
        let key = self.take_key();
        let ready = VecDeque::with_capacity(entries);
        self.queues.insert(key, QueueState { entries, waker, armed: false, ready });
        Ok(key)
    }

    pub(super) fn create_queue_pair(
        &mut self,
        key: u64,
        domain: u64,
        completions: u64,
        options: QueuePairOptions,
    ) -> io::Result<QueuePairLimits> {
        let limits = self.conditions.attributes.clone();
        let too_deep = options.send_depth.max(options.receive_depth) > limits.queue_depth_max;
        let pairs = self.resource_counts().queue_pairs;
        if pairs >= usize::try_from(limits.queue_pairs_max).unwrap_or(usize::MAX) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let number = u32::try_from(self.take_key()).map_err(io::Error::other)?;
        let inline_bytes = self.conditions.inline_bytes.min(options.inline_bytes);
        if options.windows > 0 && !limits.memory_windows {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let windows = (0..options.windows).map(|_| (self.take_region_key(), None)).collect();
        let end = self.ends.get_mut(&key).ok_or(io::ErrorKind::NotConnected)?;
        if too_deep || end.queue_pair.is_some() || !self.queues.contains_key(&completions) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut pair = QueuePair::new(number, domain, completions, options, inline_bytes);
        pair.windows = windows;
        end.queue_pair = Some(pair);
        Ok(QueuePairLimits { number, inline_bytes })
    }

    /// Adds a completion. `false`: the queue has overflowed.
    pub(super) fn complete(
        &mut self,
        queue: u64,
        of: u64,
        completion: WorkCompletion,
        frees: u32,
    ) -> bool {
        let Some(queue) = self.queues.get_mut(&queue) else { return true };
        if queue.ready.len() >= queue.entries {
            return false;
        }
        queue.ready.push_back((completion, of, frees));
        if std::mem::take(&mut queue.armed) {
            queue.waker.wake();
        }
        true
    }

    pub(super) fn open_for_reactor(&mut self, waker: &Waker) -> u64 {
        let domain = self.take_key();
        self.devices
            .insert(domain, ReactorDeviceState { waker: waker.clone(), events: VecDeque::new() });
        domain
    }

    pub(super) fn poll_device(&mut self, domain: u64) -> Option<DeviceEvent> {
        self.devices.get_mut(&domain)?.events.pop_front()
    }

    /// Reports an event to everyone who has opened the device.
    pub(super) fn say(&mut self, event: DeviceEvent) {
        for hold in self.devices.values_mut() {
            hold.events.push_back(event);
            hold.waker.wake();
        }
    }

    pub(super) fn fail_by_itself(&mut self, fault: DeviceFault) {
        let pairs = self.ends.values_mut().filter_map(|end| end.queue_pair.as_mut());
        let numbers: Vec<u32> = pairs.map(QueuePair::stop_answering).collect();
        match fault {
            DeviceFault::Device => self.say(DeviceEvent::Fatal),
            DeviceFault::CompletionQueue => {
                let queues: Vec<u64> = self.queues.keys().copied().collect();
                queues.into_iter().for_each(|key| self.say(DeviceEvent::CompletionQueue(key)));
            }
            fault => {
                let say = |number| self.say(DeviceEvent::QueuePair(number, fault));
                numbers.into_iter().for_each(say);
            }
        }
    }

    /// Reports the device's removal to listeners.
    pub(super) fn remove_listeners(&mut self) {
        for listener in self.listeners.values_mut().filter(|listener| !listener.removed) {
            listener.removed = true;
            if let Some(manager) = self.managers.get_mut(&listener.manager) {
                let what = Raw::Told(CmEvent::DeviceRemoved);
                manager.events.push_back(RawEvent { key: listener.key, what });
                manager.waker.wake();
            }
        }
    }

    pub(super) fn arm(&mut self, key: u64) {
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.armed = true;
        }
    }

    pub(super) fn poll_completions(
        &mut self,
        key: u64,
        most: usize,
        into: &mut Vec<WorkCompletion>,
    ) -> usize {
        let overtaken = self.conditions.attributes.soft_iwarp;
        if self.conditions.hold_reads && !overtaken {
            self.release_reads(key);
        }
        let Some(queue) = self.queues.get_mut(&key) else { return 0 };
        let count = most.min(queue.ready.len());
        for (completion, of, frees) in queue.ready.drain(..count) {
            into.push(completion);
            if let Some(pair) = self.ends.get_mut(&of).and_then(|end| end.queue_pair.as_mut()) {
                pair.free_sends(frees);
            }
        }
        // Work posted behind a READ completes before the READ's data is there.
        if self.conditions.hold_reads && overtaken && count == 0 {
            self.release_reads(key);
        }
        count
    }
}

fn padded(given: &[u8], to: usize) -> PrivateData {
    let mut bytes = [0; super::super::types::PRIVATE_DATA_BYTES];
    for (place, byte) in bytes.iter_mut().zip(given) {
        *place = *byte;
    }
    PrivateData::new(bytes.get(..to).unwrap_or(&bytes))
}
