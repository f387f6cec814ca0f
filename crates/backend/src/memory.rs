//! Memory of this process as a device: fast, shared by all reactors, empty at each start.
//!
//! A block that is read while another reactor writes it comes back as before or as after; that, and
//! compare-and-write, is the work of the reactor's [`SharedRegion`]. Requests end with the flush
//! that follows them, so that the memory of several is fetched at once; large discards and zeroes
//! go on a piece a turn, so that the connections of the reactor do not stand still meanwhile.

use crate::{
    BLOCK_BYTES_DEFAULT, BlockDevice, Capabilities, DEVICE_TAGS, DeviceFactory, Failure, Geometry,
    OpenError, Operation, Request, RequestCompletion, ResizeError, bytes, device, geometry,
};
use core::sync::atomic::{AtomicU64, Ordering};
use std::{collections::VecDeque, sync::Arc};
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
    /// Reserves this many bytes; they take memory as they are written.
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
            // There is nothing more durable to be had.
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
            begun: VecDeque::with_capacity(2 * TOGETHER),
            fetched: 0,
            foreseen: None,
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
        device::check_size(bytes, block_bytes)?;
        let blocks = bytes / u64::from(block_bytes);
        // Nobody may be told of blocks that are not there: shrinking tells first.
        self.shared.blocks.fetch_min(blocks, Ordering::AcqRel);
        self.shared.region.resize(bytes).map_err(ResizeError::System)?;
        self.shared.blocks.store(blocks, Ordering::Release);
        Ok(())
    }
}

const PAGE_BYTES: u32 = 4096;
/// Requests whose memory is asked for together.
const TOGETHER: usize = 8;
/// How much of a request's memory is asked for at once, which is done twice. A processor takes so
/// much and goes on; with more it stands still until some of it has come. A longer run of lines it
/// follows by itself.
const FETCH_BYTES: usize = 2048;
const TIMER_TAG: u32 = DEVICE_TAGS - 1;
/// How much is zeroed in a turn: some hundred microseconds.
const ZERO_BYTES_PER_TURN: u64 = 4 << 20;
/// How much is discarded in a turn.
const DISCARD_BYTES_PER_TURN: u64 = 16 << 20;

#[derive(Debug)]
struct MemoryDevice {
    geometry: Geometry,
    shared: Arc<Shared>,
    /// Requests that wait for their memory, in the order in which they came.
    begun: VecDeque<Request>,
    /// How many of these have had it asked for; it is on its way into the cache.
    fetched: usize,
    /// Where the next request is expected, whose first memory has been asked for.
    foreseen: Option<u64>,
    /// Requests that are done piece by piece; the timer runs while there are any.
    long: VecDeque<LongOperation>,
    timer: Token,
    done: VecDeque<RequestCompletion>,
    closed: bool,
}

/// Zeroes or discards under way.
#[derive(Debug)]
struct LongOperation {
    tag: u64,
    /// Give the pages back rather than fill them.
    discard: bool,
    ranges: Box<[(u64, u32)]>,
    /// The range that is being done, and how many of its blocks are.
    range: usize,
    done_blocks: u32,
}

impl MemoryDevice {
    /// Memory of a large namespace is seldom in the cache, and waiting for it is most of what a
    /// small request costs: it is fetched while others are being taken on.
    fn begin(&mut self, reactor: &mut Reactor, request: Request) {
        // The first has nobody yet to wait together with; it may be the only one.
        if self.begun.is_empty()
            && let Some((offset, len)) = self.place(&request)
        {
            if self.foreseen.take() != Some(offset) {
                self.shared.region.find(offset);
                self.fetch(offset, len);
            }
            self.fetch_more(offset, len);
            self.fetched = 1;
        }
        self.begun.push_back(request);
        if self.begun.len() - self.fetched == TOGETHER {
            self.advance(reactor);
        }
    }

    /// Asks for the memory of the requests that came since the last time, and carries out those
    /// whose memory was asked for then, in turns: the processor takes a few fetches at once and
    /// stands still at the next.
    fn advance(&mut self, reactor: &mut Reactor) {
        let ready = self.fetched;
        let fresh = self.begun.len() - ready;
        for request in self.begun.range(ready..) {
            if let Some((offset, _)) = self.place(request) {
                self.shared.region.find(offset);
            }
        }
        for turn in 0..fresh.max(ready) {
            // What was carried out is no longer in front of it.
            let next = self.begun.get(ready.max(turn));
            let next = next.and_then(|request| self.place(request));
            if let Some((offset, len)) = next {
                self.fetch(offset, len);
            }
            if turn < ready
                && let Some(request) = self.begun.pop_front()
            {
                self.execute(reactor, request);
            }
            if let Some((offset, len)) = next {
                self.fetch_more(offset, len);
            }
        }
        self.fetched = fresh;
    }

    fn fetch(&self, offset: u64, len: usize) {
        self.shared.region.prefetch(offset, len.min(FETCH_BYTES));
    }

    fn fetch_more(&self, offset: u64, len: usize) {
        if let Some(left) = len.checked_sub(FETCH_BYTES) {
            self.fetch(offset + FETCH_BYTES as u64, left);
        }
    }

    /// Where a request reads or writes, and how much.
    fn place(&self, request: &Request) -> Option<(u64, usize)> {
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

    /// Does as much as one turn may take, and comes back in the next if there is more.
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

    /// Uses up what is `left` of a turn; true when all is done.
    fn run_slice(&mut self, shared: &Shared, geometry: &Geometry, left: &mut u64) -> bool {
        let weight = if self.discard { DISCARD_BYTES_PER_TURN / ZERO_BYTES_PER_TURN } else { 1 };
        while let Some((block, blocks)) = self.ranges.get(self.range).copied() {
            let fitting = *left * weight / u64::from(geometry.block_bytes);
            let piece = u32::try_from(fitting).unwrap_or(u32::MAX).min(blocks - self.done_blocks);
            let start = block + u64::from(self.done_blocks);
            // The device may have become smaller since the range was checked.
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
            Ok(()) => self.begin(reactor, request),
            Err(failure) => self.done.push_back(request.refuse(failure)),
        }
    }

    fn prefetch_hint(&mut self, block: u64, blocks: u32) {
        if self.begun.is_empty() && self.geometry.contains(block, blocks) {
            let offset = self.geometry.offset_of(block);
            let bytes = usize::try_from(self.geometry.bytes_of(blocks)).unwrap_or(usize::MAX);
            self.shared.region.find(offset);
            self.fetch(offset, bytes);
            self.foreseen = Some(offset);
        }
    }

    fn handle(&mut self, reactor: &mut Reactor, completion: weft_reactor::ReactorCompletion) {
        if completion.token == self.timer {
            self.run_slice(reactor);
        }
    }

    fn flush(&mut self, reactor: &mut Reactor) {
        while !self.begun.is_empty() {
            self.advance(reactor);
        }
        self.geometry.blocks = self.shared.blocks.load(Ordering::Acquire);
    }

    fn poll_completion(&mut self) -> Option<RequestCompletion> {
        self.done.pop_front()
    }

    fn in_flight(&self) -> usize {
        self.begun.len() + self.long.len() + self.done.len()
    }

    fn close(&mut self, reactor: &mut Reactor) {
        self.closed = true;
        self.fetched = 0;
        let gone = self.begun.drain(..).map(|request| request.refuse(Failure::Gone));
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
