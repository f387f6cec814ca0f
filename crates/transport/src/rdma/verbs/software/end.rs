//! One end of a connection: its queue pair executes the posted work.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use super::state::State;
use super::{
    Access, CmEvent, DeviceEvent, DeviceFault, Parameters, PostError, QueuePairOptions,
    ReceiveWork, SendWork, WindowRange, WorkCompletion, WorkStatus,
};
use crate::rdma::verbs::{SOFT_IWARP_SHORT_BYTES, SendOperation};

/// The error of a queue pair without outstanding READs (`IBV_WC_LOC_QP_OP_ERR`).
const LOCAL_OPERATION: WorkStatus = WorkStatus(2);

/// The error of binding a memory window to memory without the right (`IBV_WC_MW_BIND_ERR`).
const WINDOW_BIND: WorkStatus = WorkStatus(6);

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The route is resolved.
    Resolved,
    /// A connection request was sent.
    Requesting,
    /// A connection request was received.
    Requested,
    /// Established, as far as this end knows.
    Connected,
    /// Ended.
    Ended,
}

#[derive(Debug)]
pub(super) struct End {
    pub(super) manager: u64,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) peer: Option<u64>,
    pub(super) stage: Stage,
    pub(super) queue_pair: Option<QueuePair>,
    /// Messages are lost, and work fails.
    severed: bool,
    /// Messages are lost, and work does not complete.
    silent: bool,
}

#[derive(Debug)]
pub(super) struct QueuePair {
    number: u32,
    domain: u64,
    completions: u64,
    options: QueuePairOptions,
    inline_bytes: u32,
    receives: VecDeque<ReceiveWork>,
    /// Work behind a READ that is delayed, the READ first.
    held: VecDeque<SendWork>,
    /// Send queue entries that no polled completion has freed.
    sends: u32,
    /// How many of them ended unsignalled since the last signalled one.
    silent: u32,
    failed: bool,
    /// The next message is not noticed before another arrives (soft-iWARP).
    overlooks: bool,
    /// A message that was not noticed, and the key that it invalidates.
    overlooked: Option<(Vec<u8>, Option<u32>)>,
    /// Work does not complete, not even as flushed.
    dead: bool,
    initiator_depth: u8,
    responder_resources: u8,
    /// Memory windows: the last key of each, and what the next binding gives access to.
    pub(super) windows: Vec<(u32, Option<WindowState>)>,
}

/// A memory window that is bound or prepared.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowState {
    /// The end that owns it; only its peer has access.
    pub(super) end: u64,
    region: u32,
    opening: WindowRange,
}

impl End {
    pub(super) fn new(manager: u64, local: SocketAddr, remote: SocketAddr) -> Self {
        let stage = Stage::Resolved;
        Self {
            manager,
            local,
            remote,
            peer: None,
            stage,
            queue_pair: None,
            severed: false,
            silent: false,
        }
    }
}

impl QueuePair {
    pub(super) fn new(
        number: u32,
        domain: u64,
        completions: u64,
        options: QueuePairOptions,
        inline_bytes: u32,
    ) -> Self {
        Self {
            number,
            domain,
            completions,
            options,
            inline_bytes,
            receives: VecDeque::new(),
            held: VecDeque::new(),
            sends: 0,
            silent: 0,
            failed: false,
            overlooks: false,
            overlooked: None,
            dead: false,
            initiator_depth: 0,
            responder_resources: 0,
            windows: Vec::new(),
        }
    }

    /// Stores the agreed numbers of outstanding READs.
    pub(super) fn store_parameters(&mut self, parameters: &Parameters) {
        self.initiator_depth = parameters.initiator_depth;
        self.responder_resources = parameters.responder_resources;
    }

    pub(super) fn overlook_first(&mut self, overlooks: bool) {
        self.overlooks = overlooks;
    }

    /// Makes posted work never complete. Returns the queue pair number.
    pub(super) fn stop_answering(&mut self) -> u32 {
        self.dead = true;
        self.failed = true;
        self.number
    }

    pub(super) fn free_sends(&mut self, count: u32) {
        self.sends = self.sends.saturating_sub(count);
    }
}

impl State {
    pub(super) fn prepare_window(
        &mut self,
        key: u64,
        window: u16,
        region: u32,
        opening: WindowRange,
    ) -> io::Result<u32> {
        let windows = &mut self.pair(key)?.windows;
        let window = windows.get_mut(usize::from(window)).ok_or(io::ErrorKind::NotFound)?;
        let next = window.0 & !0xff | window.0.wrapping_add(1) & 0xff;
        *window = (next, Some(WindowState { end: key, region, opening }));
        Ok(next)
    }

    pub(super) fn post_receive(
        &mut self,
        key: u64,
        chain: &[ReceiveWork],
    ) -> Result<(), PostError> {
        for (posted, work) in chain.iter().enumerate() {
            let pair = self.pair(key).map_err(|error| PostError { posted, error })?;
            if count(pair.receives.len()) >= pair.options.receive_depth {
                let error = io::ErrorKind::OutOfMemory.into();
                return Err(PostError { posted, error });
            }
            pair.receives.push_back(*work);
            if pair.failed {
                self.flush(key);
            }
        }
        Ok(())
    }

    pub(super) fn post_send(&mut self, key: u64, chain: &[SendWork]) -> Result<(), PostError> {
        self.counts.doorbells += 1;
        let soft_iwarp = self.conditions.attributes.soft_iwarp;
        for (posted, work) in chain.iter().enumerate() {
            let pair = self.pair(key).map_err(|error| PostError { posted, error })?;
            let bytes: u32 = work.pieces.iter().map(|piece| piece.bytes).sum();
            if pair.sends >= pair.options.send_depth {
                let error = io::ErrorKind::OutOfMemory.into();
                return Err(PostError { posted, error });
            }
            let invalidates = matches!(work.operation, SendOperation::SendInvalidate { .. });
            if work.inline && (bytes > pair.inline_bytes || soft_iwarp && invalidates) {
                let error = io::ErrorKind::InvalidInput.into();
                return Err(PostError { posted, error });
            }
            pair.sends += 1;
            if !pair.held.is_empty() && !soft_iwarp {
                pair.held.push_back(*work);
                continue;
            }
            self.begin(key, work);
        }
        Ok(())
    }

    /// Executes work, or delays it.
    fn begin(&mut self, key: u64, work: &SendWork) {
        if self.pair(key).is_ok_and(|pair| pair.dead) {
            return;
        }
        let is_read = matches!(work.operation, SendOperation::Read { .. });
        let silent = self.ends.get(&key).is_some_and(|end| end.silent);
        if (self.conditions.hold_reads && is_read || silent)
            && let Ok(pair) = self.pair(key)
            && !pair.failed
        {
            pair.held.push_back(*work);
        } else {
            self.execute_work(key, work);
        }
    }

    /// Executes the delayed work of this completion queue's queue pairs.
    pub(super) fn release_reads(&mut self, queue: u64) {
        let holding = self.ends.iter().filter(|(_, end)| end.holds(queue));
        let keys: Vec<u64> = holding.map(|(key, _)| *key).collect();
        for key in keys {
            let Ok(pair) = self.pair(key) else { continue };
            // As many READs at a time as may be outstanding.
            let mut depth = u32::from(pair.initiator_depth.max(1));
            while let Ok(pair) = self.pair(key)
                && let Some(work) = pair.held.front().copied()
            {
                if matches!(work.operation, SendOperation::Read { .. }) {
                    if depth == 0 {
                        break;
                    }
                    depth -= 1;
                }
                pair.held.pop_front();
                self.execute_work(key, &work);
            }
        }
    }

    fn execute_work(&mut self, key: u64, work: &SendWork) {
        let injected = match &mut self.failing {
            Some((0, status)) => Some(*status),
            Some((skip, _)) => {
                *skip -= 1;
                None
            }
            None => None,
        };
        if injected.is_some() {
            self.failing = None;
        }
        let failed = self.pair(key).is_ok_and(|pair| pair.failed);
        let result = match injected {
            _ if failed => Err(WorkStatus::FLUSHED),
            Some(status) => Err(status),
            None => self.perform(key, work),
        };
        match result {
            Ok(()) => self.send_done(key, work, WorkStatus::SUCCESS),
            Err(status) => {
                self.send_done(key, work, status);
                self.fail(key);
            }
        }
    }

    fn send_done(&mut self, key: u64, work: &SendWork, status: WorkStatus) {
        let Ok(pair) = self.pair(key) else { return };
        pair.silent += 1;
        if !work.signalled && status == WorkStatus::SUCCESS {
            return;
        }
        let frees = std::mem::take(&mut pair.silent);
        let completion = WorkCompletion {
            work: work.work,
            queue_pair: pair.number,
            status,
            bytes: 0,
            invalidated: None,
        };
        let queue = pair.completions;
        self.counts.send_completions += 1;
        if !self.complete(queue, key, completion, frees) {
            self.fail(key);
        }
    }

    fn bind(&mut self, key: u64, window: u16) -> Result<(), WorkStatus> {
        let pair = self.pair(key).map_err(|_| LOCAL_OPERATION)?;
        let (domain, window) = (pair.domain, pair.windows.get_mut(usize::from(window)));
        let (key, state) = window.ok_or(LOCAL_OPERATION)?;
        let (key, state) = (*key, state.take().ok_or(LOCAL_OPERATION)?);
        let WindowRange { address, bytes, written } = state.opening;
        let region = self.regions.get(&state.region).ok_or(WINDOW_BIND)?;
        let allowed = region.access.bind && region.domain == domain;
        let inside = Memory::of(address, bytes).is_within(region.address, region.bytes);
        let is_open = self.windows.keys().any(|open| open >> 8 == key >> 8);
        if !allowed || !inside || is_open || bytes == 0 || written && !region.access.local_write {
            return Err(WINDOW_BIND);
        }
        self.counts.bindings += 1;
        self.windows.insert(key, state);
        Ok(())
    }

    /// Invalidates a window, if it belongs to this end.
    fn close_window(&mut self, key: u64, window: u32) -> bool {
        let is_own = self.windows.get(&window).is_some_and(|state| state.end == key);
        is_own && self.windows.remove(&window).is_some()
    }

    /// Whether soft-iWARP may fail to send this from its kernel thread; here it always fails.
    fn is_short_for_soft_iwarp(&self, work: &SendWork) -> bool {
        let is_read = matches!(work.operation, SendOperation::Read { .. });
        let [first, second] = work.pieces;
        self.conditions.attributes.soft_iwarp
            && !(work.inline || is_read)
            && second.bytes == 0
            && (2..=SOFT_IWARP_SHORT_BYTES).contains(&first.bytes)
    }

    fn perform(&mut self, key: u64, work: &SendWork) -> Result<(), WorkStatus> {
        match work.operation {
            _ if self.is_short_for_soft_iwarp(work) => return Err(LOCAL_OPERATION),
            SendOperation::Bind { window } => return self.bind(key, window),
            SendOperation::Invalidate { key: window } => {
                let closed = self.close_window(key, window);
                return if closed { Ok(()) } else { Err(LOCAL_OPERATION) };
            }
            _ => {}
        }
        let end = self.ends.get(&key).ok_or(WorkStatus::RETRIES_EXCEEDED)?;
        let reachable = end.stage == Stage::Connected && !end.severed;
        let peer = end.peer.filter(|_| reachable).ok_or(WorkStatus::RETRIES_EXCEEDED)?;
        let other = self.ends.get(&peer).ok_or(WorkStatus::RETRIES_EXCEEDED)?;
        let is_there = other.queue_pair.as_ref().is_some_and(|pair| !pair.failed);
        if !is_there || other.severed {
            return Err(WorkStatus::RETRIES_EXCEEDED);
        }
        match work.operation {
            SendOperation::Send => self.deliver(key, peer, work, None),
            SendOperation::SendInvalidate { key: remote } => {
                if !self.conditions.attributes.send_with_invalidate {
                    return Err(LOCAL_OPERATION);
                }
                self.deliver(key, peer, work, Some(remote))
            }
            SendOperation::Read { .. } => {
                self.check_read(key, peer)?;
                self.counts.reads += 1;
                self.transfer(key, peer, work)?;
                self.notice(key)
            }
            SendOperation::Write { .. } => {
                // The memory would be read at an unknown later time.
                if self.conditions.attributes.soft_iwarp && !work.signalled {
                    return Err(LOCAL_OPERATION);
                }
                self.counts.writes += 1;
                self.transfer(key, peer, work)?;
                self.notice(peer)
            }
            SendOperation::Bind { .. } | SendOperation::Invalidate { .. } => Ok(()),
        }
    }

    /// Whether the two sides have agreed on READs in this direction.
    fn check_read(&mut self, key: u64, peer: u64) -> Result<(), WorkStatus> {
        let depth = self.pair(key).map_or(0, |pair| pair.initiator_depth);
        let resources = self.pair(peer).map_or(0, |pair| pair.responder_resources);
        match depth {
            0 => Err(LOCAL_OPERATION),
            depth if depth > resources => Err(WorkStatus::REMOTE_INVALID_REQUEST),
            _ => Ok(()),
        }
    }

    /// Delivers a message to the peer's next receive.
    fn deliver(
        &mut self,
        key: u64,
        peer: u64,
        work: &SendWork,
        invalidated: Option<u32>,
    ) -> Result<(), WorkStatus> {
        let mut message = Vec::new();
        for piece in work.pieces {
            if piece.bytes > 0 {
                let memory = Memory::of(piece.address, piece.bytes);
                // Inline data needs no registration, but here only registered memory is known to be
                // valid.
                let domain = self.pair(key).map_or(0, |pair| pair.domain);
                self.check_local(domain, piece.key, memory, false)?;
                memory.read(&mut message);
            }
        }
        let other = self.pair(peer).map_err(|_| WorkStatus::RETRIES_EXCEEDED)?;
        if std::mem::take(&mut other.overlooks) {
            other.overlooked = Some((message, invalidated));
            return Ok(());
        }
        self.notice(peer)?;
        self.arrive(peer, &message, invalidated)
    }

    /// Delivers a message that was not noticed before.
    fn notice(&mut self, key: u64) -> Result<(), WorkStatus> {
        match self.pair(key).ok().and_then(|pair| pair.overlooked.take()) {
            Some((message, invalidated)) => self.arrive(key, &message, invalidated),
            None => Ok(()),
        }
    }

    fn arrive(
        &mut self,
        peer: u64,
        message: &[u8],
        invalidated: Option<u32>,
    ) -> Result<(), WorkStatus> {
        let other = self.pair(peer).map_err(|_| WorkStatus::RETRIES_EXCEEDED)?;
        let (domain, number, queue) = (other.domain, other.number, other.completions);
        let Some(receive) = other.receives.pop_front() else {
            self.counts.receiver_not_ready += 1;
            return Err(WorkStatus::RECEIVER_NOT_READY);
        };
        let status = self.fill(domain, &receive, message);
        if let Some(remote) = invalidated {
            self.counts.invalidations += 1;
            let region = self.regions.get_mut(&remote).filter(|region| region.domain == domain);
            if let Some(region) = region {
                region.valid = false;
            } else if !self.close_window(peer, remote) {
                return Err(WorkStatus::REMOTE_ACCESS);
            }
        }
        self.counts.sends += 1;
        let completion = WorkCompletion {
            work: receive.work,
            queue_pair: number,
            status,
            bytes: count(message.len()),
            invalidated,
        };
        if !self.complete(queue, peer, completion, 0) || status != WorkStatus::SUCCESS {
            self.fail(peer);
            return Err(WorkStatus::REMOTE_INVALID_REQUEST);
        }
        Ok(())
    }

    /// Scatters a message over a receive's memory.
    fn fill(&self, domain: u64, receive: &ReceiveWork, message: &[u8]) -> WorkStatus {
        let mut rest = message;
        for piece in receive.pieces {
            let length = rest.len().min(usize::try_from(piece.bytes).unwrap_or(usize::MAX));
            let (now, later) = rest.split_at(length);
            if !now.is_empty() {
                let memory = Memory::of(piece.address, count(now.len()));
                if let Err(status) = self.check_local(domain, piece.key, memory, true) {
                    return status;
                }
                memory.write(now);
            }
            rest = later;
        }
        if rest.is_empty() { WorkStatus::SUCCESS } else { WorkStatus::LOCAL_LENGTH }
    }

    /// Executes an RDMA READ (`into` local memory) or WRITE.
    fn transfer(&mut self, key: u64, peer: u64, work: &SendWork) -> Result<(), WorkStatus> {
        let (mut address, remote, into) = match work.operation {
            SendOperation::Read { address, key } => (address, key, true),
            SendOperation::Write { address, key } => (address, key, false),
            _ => return Ok(()),
        };
        let domain = self.pair(key).map_or(0, |pair| pair.domain);
        for piece in work.pieces {
            if piece.bytes == 0 {
                continue;
            }
            let near = Memory::of(piece.address, piece.bytes);
            self.check_local(domain, piece.key, near, into)?;
            // On iWARP the peer's adapter writes to the sink of a READ.
            if into && self.conditions.attributes.sink_is_remote() {
                self.check_remote(key, piece.key, near, false)
                    .map_err(|_| WorkStatus::LOCAL_PROTECTION)?;
            }
            let far = Memory::of(address, piece.bytes);
            if let Err(status) = self.check_remote(peer, remote, far, into) {
                self.raise(peer, DeviceFault::Access);
                self.fail(peer);
                return Err(status);
            }
            let mut bytes = Vec::new();
            let (from, to) = if into { (far, near) } else { (near, far) };
            from.read(&mut bytes);
            to.write(&bytes);
            address = address.saturating_add(piece.bytes.into());
        }
        Ok(())
    }

    fn check_local(
        &self,
        domain: u64,
        key: u32,
        memory: Memory,
        written: bool,
    ) -> Result<(), WorkStatus> {
        let region = self.regions.get(&key).ok_or(WorkStatus::LOCAL_PROTECTION)?;
        let allowed = region.domain == domain && (!written || region.access.local_write);
        let inside = memory.is_within(region.address, region.bytes);
        if allowed && inside { Ok(()) } else { Err(WorkStatus::LOCAL_PROTECTION) }
    }

    /// Checks the right of an end's peer to read or write this memory.
    fn check_remote(
        &self,
        end: u64,
        key: u32,
        memory: Memory,
        read: bool,
    ) -> Result<(), WorkStatus> {
        if let Some(window) = self.windows.get(&key) {
            let WindowRange { address, bytes, written } = window.opening;
            let is_there = self.regions.contains_key(&window.region);
            let allowed = window.end == end && written != read && is_there;
            let inside = memory.is_within(address, bytes.into());
            return if allowed && inside { Ok(()) } else { Err(WorkStatus::REMOTE_ACCESS) };
        }
        let pair = self.ends.get(&end).and_then(|end| end.queue_pair.as_ref());
        let domain = pair.map_or(0, |pair| pair.domain);
        let region = self.regions.get(&key).ok_or(WorkStatus::REMOTE_ACCESS)?;
        let Access { remote_read, remote_write, .. } = region.access;
        let right = if read { remote_read } else { remote_write };
        let allowed = right && region.valid && region.domain == domain;
        let inside = memory.is_within(region.address, region.bytes);
        if allowed && inside { Ok(()) } else { Err(WorkStatus::REMOTE_ACCESS) }
    }

    /// Puts the queue pair into the error state and flushes its work.
    fn fail(&mut self, key: u64) {
        if let Ok(pair) = self.pair(key) {
            pair.failed = true;
            self.flush(key);
        }
    }

    /// Reports an asynchronous fault of a queue pair.
    fn raise(&mut self, key: u64, fault: DeviceFault) {
        if let Ok(pair) = self.pair(key) {
            let event = DeviceEvent::QueuePair(pair.number, fault);
            self.say(event);
        }
    }

    fn flush(&mut self, key: u64) {
        let Ok(pair) = self.pair(key) else { return };
        if pair.dead {
            return;
        }
        let (number, queue) = (pair.number, pair.completions);
        let held = std::mem::take(&mut pair.held);
        let receives = std::mem::take(&mut pair.receives);
        for work in held {
            self.send_done(key, &work, WorkStatus::FLUSHED);
        }
        for work in receives {
            let status = WorkStatus::FLUSHED;
            let completion = WorkCompletion {
                work: work.work,
                queue_pair: number,
                status,
                bytes: 0,
                invalidated: None,
            };
            self.complete(queue, key, completion, 0);
        }
    }

    pub(super) fn disconnect(&mut self, key: u64) -> io::Result<()> {
        let end = self.ends.get_mut(&key).ok_or(io::ErrorKind::NotConnected)?;
        let stage = std::mem::replace(&mut end.stage, Stage::Ended);
        let peer = end.peer.filter(|_| !end.severed && !end.silent);
        self.fail(key);
        if !matches!(stage, Stage::Connected | Stage::Requesting) {
            return Ok(());
        }
        self.push_event(key, CmEvent::Disconnected);
        if let Some(peer) = peer
            && self.ends.get(&peer).is_some_and(|other| other.stage == Stage::Connected)
        {
            self.push_event(peer, CmEvent::Disconnected);
        }
        Ok(())
    }

    pub(super) fn sever(&mut self) -> usize {
        let mut ends = 0;
        for end in self.ends.values_mut().filter(|end| end.stage == Stage::Connected) {
            end.severed = true;
            ends += 1;
        }
        ends / 2
    }

    pub(super) fn lose_connections(&mut self) -> usize {
        let mut ends = 0;
        for end in self.ends.values_mut().filter(|end| end.stage == Stage::Connected) {
            end.silent = true;
            ends += 1;
        }
        ends / 2
    }

    pub(super) fn remove_device(&mut self) {
        let keys: Vec<u64> = self.ends.keys().copied().collect();
        for key in keys {
            self.fail(key);
            self.push_event(key, CmEvent::DeviceRemoved);
        }
        self.remove_listeners();
        // As the kernel reports it on an open device.
        self.say(DeviceEvent::Fatal);
    }

    pub(super) fn move_address(&mut self) {
        let keys: Vec<u64> = self.ends.keys().copied().collect();
        for key in keys {
            self.push_event(key, CmEvent::AddressChanged);
        }
    }

    fn pair(&mut self, key: u64) -> io::Result<&mut QueuePair> {
        let end = self.ends.get_mut(&key).ok_or(io::ErrorKind::NotConnected)?;
        end.queue_pair.as_mut().ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

impl End {
    fn holds(&self, queue: u64) -> bool {
        let holds = |pair: &QueuePair| pair.completions == queue && !pair.held.is_empty();
        !self.silent && self.queue_pair.as_ref().is_some_and(holds)
    }
}

/// A range of memory of this process.
#[derive(Debug, Clone, Copy)]
struct Memory {
    address: u64,
    bytes: u32,
}

impl Memory {
    fn of(address: u64, bytes: u32) -> Self {
        Self { address, bytes }
    }

    fn is_within(self, base: u64, bytes: u64) -> bool {
        let start = self.address.checked_sub(base);
        let end = start.and_then(|start| start.checked_add(self.bytes.into()));
        end.is_some_and(|end| end <= bytes)
    }

    fn place(self) -> (usize, usize) {
        let number = |value: u64| usize::try_from(value).unwrap_or(0);
        (number(self.address), number(self.bytes.into()))
    }

    /// Appends the bytes. The range was checked to be in a region.
    fn read(self, into: &mut Vec<u8>) {
        let (address, length) = self.place();
        into.reserve(length);
        let from = std::ptr::with_exposed_provenance::<u8>(address);
        // SAFETY: the range lies in a region (`check_local`, `check_remote`), whose handle keeps
        // its pool's mapping alive and takes the fabric's lock, which is held here, before it
        // lets go. The memory is a device's for as long as a work request names it: nobody in
        // the program writes to it meanwhile. There is room for `length` bytes in `into`.
        unsafe {
            let end = into.as_mut_ptr().add(into.len());
            std::ptr::copy_nonoverlapping(from, end, length);
            into.set_len(into.len() + length);
        }
    }

    /// Writes `self.bytes` bytes.
    fn write(self, bytes: &[u8]) {
        let (address, length) = self.place();
        let to = std::ptr::with_exposed_provenance_mut::<u8>(address);
        let length = length.min(bytes.len());
        // SAFETY: as in `read`; and a region that is written to was registered for that, so that
        // nobody in the program relies on these bytes while a work request may fill them.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, length) }
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
