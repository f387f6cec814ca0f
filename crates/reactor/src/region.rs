//! Memory that several reactors read and write at once, block by block.
//!
//! # Whole blocks without waiting readers
//! Every block has a version. A writer makes it odd, changes the block and makes it even again,
//! two higher; writers of one block exclude each other by that first step. A reader reads
//! the version before and after its copy and copies again if the two differ or the first was odd.
//! So a block is read as before or as after a write, never mixed, and readers write nothing.
//! A request over several blocks is that many requests of one block, except
//! [`compare_and_write`](SharedRegion::compare_and_write), which holds all its blocks, taken in
//! ascending order so that two of them cannot wait for each other.
//!
//! # Memory only for what was written
//! Pages are allocated when they are first written, huge ones where the kernel has them: random
//! reads would otherwise wait for page tables more than for data. A single small write may so take
//! up to 2 MiB. For each chunk of 2 MiB one byte says whether it was ever written; a discard skips
//! the others, so that discarding a whole large region costs little. Versions are allocated in the
//! same way, at most 2 MiB at a time.

pub(crate) mod copy;
mod version;

use crate::mapping::Mapping;
use std::io;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The unit in which a discard frees memory and `occupied` counts.
const CHUNK_BYTES: u64 = 2 << 20;
/// Least address space of a region, to grow into, where it is allowed.
const CAPACITY_BYTES: u64 = 1 << 40;
/// Bytes that a comparison copies to the stack at a time.
const PIECE_BYTES: usize = 4096;
/// Memory shared by all threads of the process, in blocks that change atomically.
///
/// A range that lies beyond the end, because of a resize at the same moment, reads as zeroes there
/// and is not written there; a caller that needs an error checks first.
#[derive(Debug)]
pub struct SharedRegion {
    data: Mapping,
    /// An `AtomicU32` per block.
    versions: Mapping,
    /// An `AtomicU8` per chunk.
    occupied: Mapping,
    block_bytes: u64,
    /// The same as a shift: a division takes longer than the rest of finding a block.
    block_shift: u32,
    capacity: u64,
    len: AtomicU64,
    resizing: Mutex<()>,
}

/// A part of a request inside one block.
#[derive(Clone, Copy)]
struct Segment {
    block: u64,
    /// From the start of the region.
    offset: u64,
    /// From the start of the request.
    at: usize,
    len: usize,
}

impl SharedRegion {
    /// A region of `bytes` zero bytes in blocks of `block_bytes`, a power of two from 512.
    pub fn new(bytes: u64, block_bytes: u32) -> io::Result<Arc<Self>> {
        if !block_bytes.is_power_of_two() || block_bytes < 512 {
            return Err(invalid("the block size is not a power of two from 512"));
        }
        if !bytes.is_multiple_of(u64::from(block_bytes)) {
            return Err(invalid("the size is not a multiple of the block size"));
        }
        // Room to grow if the address space is not limited; otherwise as it is.
        let generous = bytes.saturating_mul(4).max(CAPACITY_BYTES);
        let region = Self::with_capacity(bytes, block_bytes, generous)
            .or_else(|_| Self::with_capacity(bytes, block_bytes, bytes.saturating_mul(4)))
            .or_else(|_| Self::with_capacity(bytes, block_bytes, bytes))?;
        Ok(Arc::new(region))
    }

    fn with_capacity(bytes: u64, block_bytes: u32, capacity: u64) -> io::Result<Self> {
        let block_bytes = u64::from(block_bytes);
        let capacity = capacity.checked_next_multiple_of(CHUNK_BYTES.max(block_bytes));
        let capacity = capacity.ok_or_else(|| invalid("the size is too large"))?.max(CHUNK_BYTES);
        let data = reserve(capacity)?;
        let versions = reserve(capacity / block_bytes * size_of::<AtomicU32>() as u64)?;
        data.prefer_huge_pages();
        versions.prefer_huge_pages();
        Ok(Self {
            data,
            versions,
            occupied: reserve(capacity / CHUNK_BYTES)?,
            block_bytes,
            block_shift: block_bytes.trailing_zeros(),
            capacity,
            len: AtomicU64::new(bytes),
            resizing: Mutex::new(()),
        })
    }

    /// Its size now.
    pub fn bytes(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// The size of a block.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// The size up to which it can grow.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Has the processor load the page table entry for `offset`. With random offsets a prefetch
    /// first waits for page tables, and only consecutive ones wait at the same time: call this for
    /// several requests, then [`prefetch`](Self::prefetch).
    #[inline]
    pub fn find(&self, offset: u64) {
        if self.clip(offset, 1) > 0 {
            copy::prefetch(std::ptr::from_ref(self.version(offset >> self.block_shift)).cast(), 1);
            copy::prefetch(self.pointer(offset), 1);
        }
    }

    /// Has the processor fetch this range, which is going to be read or written.
    #[inline]
    pub fn prefetch(&self, offset: u64, len: usize) {
        let len = self.clip(offset, len);
        if len > 0 {
            copy::prefetch(self.pointer(offset), len);
        }
    }

    /// Reads at `offset`.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        let inside = self.clip(offset, into.len());
        if inside < into.len() {
            into[inside..].fill(0);
        }
        for segment in self.segments(offset, inside) {
            let part = &mut into[segment.at..segment.at + segment.len];
            self.read_consistently(segment.block, || {
                // SAFETY: segments lie inside the mapping (`clip`); `part` is ours alone.
                unsafe {
                    copy::load(self.pointer(segment.offset), part.as_mut_ptr(), part.len());
                }
            });
        }
    }

    /// Writes at `offset`.
    pub fn write(&self, offset: u64, from: &[u8]) {
        for segment in self.segments(offset, self.clip(offset, from.len())) {
            let version = self.lock(segment.block);
            self.store(segment, from);
            self.unlock(segment.block, version.wrapping_add(2));
        }
    }

    /// Writes zeroes. The memory stays allocated.
    pub fn zero(&self, offset: u64, length: u64) {
        self.each_chunk(offset, length, |start, length| self.zero_in_chunk(start, length));
    }

    /// Frees memory; the range reads as zeroes.
    pub fn discard(&self, offset: u64, length: u64) {
        self.each_chunk(offset, length, |start, length| self.discard_in_chunk(start, length));
    }

    /// Whether the bytes at `offset` are these. Each block is compared atomically for itself.
    pub fn compare(&self, offset: u64, with: &[u8]) -> bool {
        let inside = self.clip(offset, with.len());
        with[inside..].iter().all(|byte| *byte == 0)
            && self.segments(offset, inside).all(|segment| {
                let with = &with[segment.at..segment.at + segment.len];
                self.compare_segment(segment, with)
            })
    }

    /// Writes `write` at `offset` if what is there is `compare`; whether it was. No other write
    /// to any of the blocks comes between. A reader still sees each block for itself.
    ///
    /// # Panics
    /// If the two are not equally long.
    pub fn compare_and_write(&self, offset: u64, compare: &[u8], write: &[u8]) -> bool {
        assert_eq!(compare.len(), write.len(), "what is compared is what is written");
        let inside = self.clip(offset, compare.len());
        if compare[inside..].iter().any(|byte| *byte != 0) {
            return false;
        }
        for segment in self.segments(offset, inside) {
            self.lock(segment.block);
        }
        let is_equal = self.segments(offset, inside).all(|segment| {
            // SAFETY: the segment lies inside the mapping; its block is locked, so nobody writes
            // it while this slice lives.
            let now =
                unsafe { std::slice::from_raw_parts(self.pointer(segment.offset), segment.len) };
            now == &compare[segment.at..segment.at + segment.len]
        });
        if is_equal {
            self.segments(offset, inside).for_each(|segment| self.store(segment, write));
        }
        let step = if is_equal { 1 } else { u32::MAX }; // forward, or back to where it was
        for segment in self.segments(offset, inside) {
            let odd = self.version(segment.block).load(Ordering::Relaxed);
            self.unlock(segment.block, odd.wrapping_add(step));
        }
        is_equal
    }

    /// Makes it `bytes` long. What is cut off is freed; what is added is zero.
    pub fn resize(&self, bytes: u64) -> io::Result<()> {
        let _one_at_a_time = self.lock_size();
        if !bytes.is_multiple_of(self.block_bytes) {
            return Err(invalid("the size is not a multiple of the block size"));
        }
        if bytes > self.capacity {
            return Err(invalid("the region cannot grow that far"));
        }
        let before = self.bytes();
        if bytes < before {
            self.len.store(bytes, Ordering::Release);
        }
        // Bytes that a request from before a cut has written beyond it are removed before they can
        // be seen.
        let (start, end) = (bytes.min(before), bytes.max(before));
        self.each_chunk_unclipped(start, end, |start, length| {
            self.discard_in_chunk(start, length);
        });
        self.len.store(bytes, Ordering::Release);
        Ok(())
    }

    fn lock_size(&self) -> MutexGuard<'_, ()> {
        self.resizing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much of a request lies inside the region.
    fn clip(&self, offset: u64, len: usize) -> usize {
        let inside = self.bytes().saturating_sub(offset);
        usize::try_from(inside).map_or(len, |inside| inside.min(len))
    }

    fn segments(&self, offset: u64, len: usize) -> impl Iterator<Item = Segment> + use<> {
        let (block_bytes, block_shift) = (self.block_bytes, self.block_shift);
        let mut at = 0;
        std::iter::from_fn(move || {
            if at == len {
                return None;
            }
            let offset = offset + at as u64;
            let rest = block_bytes - (offset & (block_bytes - 1));
            let rest = usize::try_from(rest).map_or(len - at, |rest| rest.min(len - at));
            let segment = Segment { block: offset >> block_shift, offset, at, len: rest };
            at += rest;
            Some(segment)
        })
    }

    /// Cuts a range into parts of one chunk each (or one block, where blocks are larger).
    fn each_chunk(&self, offset: u64, length: u64, act: impl Fn(u64, u64)) {
        let end = offset.saturating_add(length).min(self.bytes());
        self.each_chunk_unclipped(offset, end, act);
    }

    fn each_chunk_unclipped(&self, mut start: u64, end: u64, act: impl Fn(u64, u64)) {
        let chunk_bytes = CHUNK_BYTES.max(self.block_bytes);
        while start < end {
            let next = (start / chunk_bytes + 1).saturating_mul(chunk_bytes).min(end);
            act(start, next - start);
            start = next;
        }
    }

    fn zero_in_chunk(&self, start: u64, length: u64) {
        // Chunks that nobody wrote are zero. A concurrent write is not ordered with this anyway.
        if self.occupied(start).load(Ordering::Acquire) == 0 {
            return;
        }
        for segment in self.segments(start, to_usize(length)) {
            let version = self.lock(segment.block);
            // SAFETY: the segment lies inside the mapping and its block is locked.
            unsafe { copy::fill(self.pointer(segment.offset), segment.len) };
            self.unlock(segment.block, version.wrapping_add(2));
        }
    }

    /// Discards inside one chunk: whole pages are freed, the edges are zeroed.
    fn discard_in_chunk(&self, start: u64, length: u64) {
        if self.occupied(start).load(Ordering::Acquire) == 0 {
            return;
        }
        let page_bytes = rustix::param::page_size() as u64;
        let end = start + length;
        let first_page = start.next_multiple_of(page_bytes);
        let last_page = end - end % page_bytes;
        if first_page >= last_page {
            return self.zero_in_chunk(start, length);
        }
        for segment in self.segments(start, to_usize(length)) {
            self.lock(segment.block);
        }
        self.give_pages_back(first_page, last_page);
        // SAFETY: the ranges lie inside the mapping and their blocks are locked.
        unsafe {
            copy::fill(self.pointer(start), to_usize(first_page - start));
            copy::fill(self.pointer(last_page), to_usize(end - last_page));
        }
        if length >= CHUNK_BYTES {
            for chunk in (start..end).step_by(to_usize(CHUNK_BYTES)) {
                self.occupied(chunk).store(0, Ordering::Release);
            }
        }
        for segment in self.segments(start, to_usize(length)) {
            let version = self.version(segment.block).load(Ordering::Relaxed);
            self.unlock(segment.block, version.wrapping_add(1));
        }
    }

    fn give_pages_back(&self, first: u64, end: u64) {
        let (pointer, length) = (self.pointer(first), to_usize(end - first));
        // SAFETY: the pages lie inside the mapping, which is private and anonymous, so that they
        // read as zeroes afterwards. Their blocks are locked: nobody writes them, and readers
        // discard what they copy meanwhile.
        let advised = unsafe {
            rustix::mm::madvise(pointer.cast(), length, rustix::mm::Advice::LinuxDontNeed)
        };
        if advised.is_err() {
            // Locked in memory, for example.
            // SAFETY: as above.
            unsafe { copy::fill(pointer, length) };
        }
    }

    /// Copies a segment's part of `from` into a locked block.
    fn store(&self, segment: Segment, from: &[u8]) {
        let part = &from[segment.at..segment.at + segment.len];
        let occupied = self.occupied(segment.offset);
        if occupied.load(Ordering::Relaxed) == 0 {
            occupied.store(1, Ordering::Release);
        }
        // SAFETY: the segment lies inside the mapping and its block is locked.
        unsafe { copy::store(part.as_ptr(), self.pointer(segment.offset), part.len()) };
    }

    fn compare_segment(&self, segment: Segment, with: &[u8]) -> bool {
        let mut is_equal = false;
        self.read_consistently(segment.block, || {
            let mut piece = [0; PIECE_BYTES];
            let mut offset = segment.offset;
            is_equal = with.chunks(PIECE_BYTES).all(|with| {
                let piece = &mut piece[..with.len()];
                // SAFETY: the segment lies inside the mapping; `piece` is ours alone.
                unsafe { copy::load(self.pointer(offset), piece.as_mut_ptr(), piece.len()) };
                offset += with.len() as u64;
                piece == with
            });
        });
        is_equal
    }

    /// Runs `copy` until the block did not change meanwhile.
    fn read_consistently(&self, block: u64, copy: impl FnMut()) {
        version::read(self.version(block), copy);
    }

    /// Makes a block's version odd; returns the one before.
    fn lock(&self, block: u64) -> u32 {
        version::lock(self.version(block))
    }

    fn unlock(&self, block: u64, even: u32) {
        version::unlock(self.version(block), even);
    }

    fn pointer(&self, offset: u64) -> *mut u8 {
        // SAFETY: callers stay within the capacity, which is the size of the mapping.
        unsafe { self.data.base().as_ptr().add(to_usize(offset)) }
    }

    fn version(&self, block: u64) -> &AtomicU32 {
        debug_assert!(block < self.capacity / self.block_bytes);
        // SAFETY: there is a version for each block of the capacity, zero (which is a valid value)
        // until it is first changed, aligned because the mapping is, and never accessed otherwise.
        unsafe { &*self.versions.base().as_ptr().cast::<AtomicU32>().add(to_usize(block)) }
    }

    fn occupied(&self, offset: u64) -> &AtomicU8 {
        debug_assert!(offset < self.capacity);
        // SAFETY: there is a byte for each chunk of the capacity, never accessed otherwise.
        unsafe {
            &*self.occupied.base().as_ptr().cast::<AtomicU8>().add(to_usize(offset / CHUNK_BYTES))
        }
    }
}

fn reserve(bytes: u64) -> io::Result<Mapping> {
    Mapping::reserve(usize::try_from(bytes).map_err(|_| invalid("the size is too large"))?)
}

/// For numbers within a capacity, which was reserved and so fits a `usize`.
fn to_usize(number: u64) -> usize {
    usize::try_from(number).expect("offsets fit the address space")
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

#[cfg(test)]
mod tests;
