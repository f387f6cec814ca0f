//! Memory of this process as a device: fast, shared by all reactors, empty at each start.
//!
//! The reactor's [`SharedRegion`] makes each block and a compare-and-write atomic between reactors.
//! Requests are executed no later than the next flush, in batches whose memory is prefetched
//! together. Large discards and zeroes are split over several turns, so that they do not block the
//! reactor's connections.

use crate::device::PIECE_BYTES;
use crate::error::check_size;
use crate::{
    BLOCK_BYTES_DEFAULT, BlockDevice, Capabilities, DEVICE_TAGS, DeviceFactory, Failure, Geometry,
    OpenError, Operation, Request, RequestCompletion, ResizeError, bytes, geometry,
};
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;
use std::sync::Arc;
use weft_reactor::{Owner, Reactor, SharedRegion, Token};

/// A namespace in memory.
#[derive(Debug)]
pub struct MemoryFactory {
    geometry: Geometry,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    region: Arc<SharedRegion>,
    blocks: AtomicU64,
}

impl MemoryFactory {
    /// Reserves this many bytes of address space. Pages are allocated when they are written.
    pub fn new(bytes: u64, block_bytes: u32) -> Result<Self, OpenError> {
        let mut geometry = geometry::sized(bytes, block_bytes)?;
        let region = SharedRegion::new(bytes, block_bytes).map_err(|error| OpenError::System {
            doing: "reserve memory",
            path: None,
            error,
        })?;
        geometry.discard_granularity_blocks = (PAGE_BYTES / block_bytes).max(1);
        geometry.capabilities = Capabilities {
            discard: true,
            discard_reads_zeroes: true,
            write_zeroes: true,
            // A write to memory has no higher durability.
            durable_write: true,
            compare_and_write: true,
            ..Capabilities::default()
        };
        let blocks = AtomicU64::new(geometry.blocks);
        Ok(Self { geometry, shared: Arc::new(Shared { region, blocks }) })
    }
}

impl DeviceFactory for MemoryFactory {
    fn open(&self, _: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
        Ok(Box::new(MemoryDevice {
            geometry: self.geometry(),
            shared: Arc::clone(&self.shared),
            queued: VecDeque::with_capacity(2 * PREFETCH_BATCH),
            prefetched: 0,
            hinted: None,
            long: VecDeque::new(),
            timer: Token::new(owner, TIMER_TAG),
            done: VecDeque::new(),
            closed: false,
        }))
    }

    fn geometry(&self) -> Geometry {
        Geometry { blocks: self.shared.blocks.load(Ordering::Acquire), ..self.geometry }
    }

    fn survives_restart(&self) -> bool {
        false
    }

    fn identity(&self) -> String {
        let block_bytes = self.geometry.block_bytes;
        let size = bytes::exact(self.geometry.bytes());
        match block_bytes {
            BLOCK_BYTES_DEFAULT => format!("memory:{size}"),
            _ => format!("memory:{size},block={block_bytes}"),
        }
    }

    fn resize(&self, bytes: u64) -> Result<(), ResizeError> {
        let block_bytes = self.geometry.block_bytes;
        check_size(bytes, block_bytes)?;
        let blocks = bytes / u64::from(block_bytes);
        // A handle must not see blocks that do not exist: a smaller size is published first.
        self.shared.blocks.fetch_min(blocks, Ordering::AcqRel);
        self.shared.region.resize(bytes).map_err(ResizeError::System)?;
        self.shared.blocks.store(blocks, Ordering::Release);
        Ok(())
    }
}

const PAGE_BYTES: u32 = 4096;
/// The number of requests whose memory is prefetched together.
const PREFETCH_BATCH: usize = 8;
/// Bytes of a request that are prefetched at once, up to two times. A processor has a limited
/// number of outstanding prefetches and stalls at more; its own prefetcher continues a longer
/// sequential run.
const PREFETCH_BYTES: usize = 2048;
const TIMER_TAG: u32 = DEVICE_TAGS - 1;
/// Bytes zeroed in a turn: some hundred microseconds.
const ZERO_BYTES_PER_TURN: u64 = 4 << 20;
/// Bytes discarded in a turn.
const DISCARD_BYTES_PER_TURN: u64 = 16 << 20;

#[derive(Debug)]
struct MemoryDevice {
    geometry: Geometry,
    shared: Arc<Shared>,
    /// Requests not executed yet, oldest first.
    queued: VecDeque<Request>,
    /// How many of them have been prefetched.
    prefetched: usize,
    /// The offset of the last prefetch hint, if no request has followed it yet.
    hinted: Option<u64>,
    /// Requests that are executed piece by piece. The timer is set while there are any.
    long: VecDeque<LongOperation>,
    timer: Token,
    done: VecDeque<RequestCompletion>,
    closed: bool,
}

/// A large zeroing or discard in execution.
#[derive(Debug)]
struct LongOperation {
    tag: u64,
    /// Frees the pages instead of filling them.
    discard: bool,
    ranges: Box<[(u64, u32)]>,
    /// The current range, and how many of its blocks are done.
    range: usize,
    done_blocks: u32,
}

impl MemoryDevice {
    /// Queues a request. Most of a small request's time is spent waiting for memory that is not in
    /// the cache, so it is prefetched while other requests are queued.
    fn enqueue(&mut self, reactor: &mut Reactor, request: Request) {
        // The first request may be the only one, so it is prefetched at once: a flush executes one
        // request at least, even if something express has come.
        if self.queued.is_empty() {
            if let Some((offset, len)) = self.extent(&request) {
                if self.hinted.take() != Some(offset) {
                    self.shared.region.find(offset);
                    self.prefetch(offset, len);
                }
                self.prefetch_rest(offset, len);
            }
            self.prefetched = 1;
        }
        self.queued.push_back(request);
        if self.queued.len() - self.prefetched == PREFETCH_BATCH {
            let _ = self.execute_batch(reactor);
        }
    }

    /// Prefetches the requests queued since the last call, and executes those prefetched then. The
    /// two alternate, because the processor stalls at more than a few prefetches at a time.
    /// `false`: something express has come, and some are left.
    fn execute_batch(&mut self, reactor: &mut Reactor) -> bool {
        let (prefetched, mut bytes) = (self.prefetched, 0);
        let new = self.queued.len() - prefetched;
        for request in self.queued.range(prefetched..) {
            if let Some((offset, _)) = self.extent(request) {
                self.shared.region.find(offset);
            }
        }
        for turn in 0..new.max(prefetched) {
            // The requests executed so far are no longer in the queue.
            let next = self.queued.get(prefetched.max(turn));
            let next = next.and_then(|request| self.extent(request));
            if let Some((offset, len)) = next {
                self.prefetch(offset, len);
            }
            if turn < prefetched
                && let Some(request) = self.queued.pop_front()
            {
                bytes += self.extent(&request).map_or(0, |(_, len)| len);
                self.execute(reactor, request);
            }
            if let Some((offset, len)) = next {
                self.prefetch_rest(offset, len);
            }
            if bytes >= PIECE_BYTES && turn + 1 < new.max(prefetched) {
                bytes = 0;
                if reactor.has_express() {
                    self.prefetched = prefetched.saturating_sub(turn + 1) + new.min(turn + 1);
                    return false;
                }
            }
        }
        self.prefetched = new;
        true
    }

    fn prefetch(&self, offset: u64, len: usize) {
        self.shared.region.prefetch(offset, len.min(PREFETCH_BYTES));
    }

    fn prefetch_rest(&self, offset: u64, len: usize) {
        if let Some(left) = len.checked_sub(PREFETCH_BYTES) {
            self.prefetch(offset + PREFETCH_BYTES as u64, left);
        }
    }

    /// The offset and length of a read or write.
    fn extent(&self, request: &Request) -> Option<(u64, usize)> {
        match &request.operation {
            Operation::Read { slba, into: buffer, .. }
            | Operation::Write { slba, from: buffer, .. } => {
                Some((self.geometry.offset_of(*slba), buffer.len()))
            }
            _ => None,
        }
    }

    fn execute(&mut self, reactor: &mut Reactor, request: Request) {
        let Request { tag, mut operation } = request;
        let region = &self.shared.region;
        let geometry = &self.geometry;
        let matched = |same: bool| same.then_some(()).ok_or(Failure::Mismatch);
        let result = match &mut operation {
            Operation::Read { slba, into, .. } => {
                region.read(geometry.offset_of(*slba), into.bytes_mut());
                Ok(())
            }
            Operation::Write { slba, from, .. } => {
                region.write(geometry.offset_of(*slba), from);
                Ok(())
            }
            Operation::Compare { slba, with, .. } => {
                matched(region.compare(geometry.offset_of(*slba), with))
            }
            Operation::CompareAndWrite { slba, compare, write, .. } => {
                matched(region.compare_and_write(geometry.offset_of(*slba), compare, write))
            }
            Operation::WriteZeroes { slba, nlb, deallocate, .. } => {
                let ranges = Box::new([(*slba, *nlb)]);
                return self.start(reactor, LongOperation::new(tag, *deallocate, ranges));
            }
            Operation::Discard { ranges } => {
                let ranges = core::mem::take(ranges);
                return self.start(reactor, LongOperation::new(tag, true, ranges));
            }
            Operation::Flush | Operation::Verify { .. } => Ok(()),
            Operation::WriteUncorrectable { .. } => Err(Failure::Unsupported),
        };
        self.done.push_back(RequestCompletion { tag, result, buffer: operation.into_buffer() });
    }

    fn start(&mut self, reactor: &mut Reactor, long: LongOperation) {
        let first = self.long.is_empty();
        self.long.push_back(long);
        if first {
            self.run_slice(reactor);
        }
    }

    /// Executes as much as one turn allows, and sets the timer if there is more.
    fn run_slice(&mut self, reactor: &mut Reactor) {
        let mut left = ZERO_BYTES_PER_TURN;
        while let Some(long) = self.long.front_mut() {
            if !long.run_slice(&self.shared, &self.geometry, &mut left) {
                return reactor.set_timer(self.timer, reactor.now());
            }
            self.done.push_back(RequestCompletion { tag: long.tag, result: Ok(()), buffer: None });
            self.long.pop_front();
        }
    }
}

impl LongOperation {
    fn new(tag: u64, discard: bool, ranges: Box<[(u64, u32)]>) -> Self {
        Self { tag, discard, ranges, range: 0, done_blocks: 0 }
    }

    /// Executes as much as is `left` of a turn; true when all is done.
    fn run_slice(&mut self, shared: &Shared, geometry: &Geometry, left: &mut u64) -> bool {
        let weight = if self.discard { DISCARD_BYTES_PER_TURN / ZERO_BYTES_PER_TURN } else { 1 };
        while let Some((block, blocks)) = self.ranges.get(self.range).copied() {
            let fitting = *left * weight / u64::from(geometry.block_bytes);
            let piece = u32::try_from(fitting).unwrap_or(u32::MAX).min(blocks - self.done_blocks);
            let start = block + u64::from(self.done_blocks);
            // The device may have shrunk since the range was checked.
            let there = shared.blocks.load(Ordering::Acquire).saturating_sub(start);
            let there = u32::try_from(there).unwrap_or(u32::MAX).min(piece);
            if there != 0 {
                let (offset, length) = (geometry.offset_of(start), geometry.bytes_of(there));
                match self.discard {
                    true => shared.region.discard(offset, length),
                    false => shared.region.zero(offset, length),
                }
            }
            *left = left.saturating_sub(geometry.bytes_of(piece).div_ceil(weight));
            self.done_blocks += piece;
            if self.done_blocks < blocks {
                return false;
            }
            self.range += 1;
            self.done_blocks = 0;
        }
        true
    }
}

impl BlockDevice for MemoryDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&mut self, reactor: &mut Reactor, request: Request) {
        self.geometry.blocks = self.shared.blocks.load(Ordering::Acquire);
        let checked = match self.closed {
            true => Err(Failure::Gone),
            false => request.operation.check(&self.geometry),
        };
        match checked {
            // It does not wait for those of others that are queued.
            Ok(()) if reactor.is_express() => self.execute(reactor, request),
            Ok(()) => self.enqueue(reactor, request),
            Err(failure) => self.done.push_back(request.refuse(failure)),
        }
    }

    fn prefetch_hint(&mut self, block: u64, blocks: u32) {
        if self.queued.is_empty() && self.geometry.contains(block, blocks) {
            let offset = self.geometry.offset_of(block);
            let bytes = usize::try_from(self.geometry.bytes_of(blocks)).unwrap_or(usize::MAX);
            self.shared.region.find(offset);
            self.prefetch(offset, bytes);
            self.hinted = Some(offset);
        }
    }

    fn handle(&mut self, reactor: &mut Reactor, completion: weft_reactor::ReactorCompletion) {
        if completion.token == self.timer {
            self.run_slice(reactor);
        }
    }

    fn flush(&mut self, reactor: &mut Reactor) {
        let mut goes_on = !reactor.is_express();
        while goes_on && !self.queued.is_empty() {
            goes_on = self.execute_batch(reactor) && !reactor.has_express();
        }
        self.geometry.blocks = self.shared.blocks.load(Ordering::Acquire);
    }

    fn poll_completion(&mut self) -> Option<RequestCompletion> {
        self.done.pop_front()
    }

    fn in_flight(&self) -> usize {
        self.queued.len() + self.long.len() + self.done.len()
    }

    fn close(&mut self, reactor: &mut Reactor) {
        self.closed = true;
        self.prefetched = 0;
        let gone = self.queued.drain(..).map(|request| request.refuse(Failure::Gone));
        self.done.extend(gone);
        if self.long.is_empty() {
            return;
        }
        reactor.clear_timer(self.timer);
        let gone = |long: LongOperation| RequestCompletion {
            tag: long.tag,
            result: Err(Failure::Gone),
            buffer: None,
        };
        self.done.extend(self.long.drain(..).map(gone));
    }
}

#[cfg(test)]
mod tests;
