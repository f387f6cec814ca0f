//! Excludes the writes of every reactor during a compare-and-write; a plain write takes no lock.
//!
//! A namespace is divided into stripes of [`STRIPE_BYTES`]. Bit n of a word stands for all stripes
//! whose number is n modulo 64.
//!
//! - A **writer** increments its stripes' counts in its own handle's [`WriteCounts`] (only this
//!   handle writes there, so a plain load and store suffice), then loads the shared word of
//!   excluded stripes. If none of its stripes is excluded, it writes, and decrements the counts
//!   when the write has completed. Otherwise it decrements them at once and retries later.
//! - An **excluder** sets its stripes' bits in the shared word, all in one step and only if none of
//!   them was set. It waits until all handles' counts of these stripes are zero, reads, compares
//!   and writes, and clears the bits.
//!
//! Why no write overlaps a compare-and-write: each side stores, executes a sequentially consistent
//! fence, and loads what the other side stores. One of the two fences is first in the single total
//! order. If it is the writer's, the excluder's load comes after it, returns the count, and the
//! excluder waits. If it is the excluder's, the writer's load returns the bit, and the writer
//! retries. Both may happen; then the writer retries and the excluder continues. The same holds for
//! a handle that was opened meanwhile: it stores its slot and `high_water`, through which its
//! counts are found, before its first fence.
//!
//! Why the excluder reads what earlier writers wrote, and later writers follow it: a writer
//! decrements with a release store after the kernel has completed the write, and the excluder loads
//! the count with acquire; the excluder clears its bits with release, and a writer loads the word
//! with acquire.
//!
//! Why there is no deadlock: an excluder takes all its stripes in one step, so excluders do not
//! wait for each other in a cycle. A writer that is counted waits only for its own I/O. No new
//! writer is counted while the bit is set, so the count reaches zero. A request that waits holds
//! neither counts nor bits, and takes its memory before it is counted or sets bits (see `engine`).
//!
//! Because stripes share bits, a compare-and-write may delay an unrelated write by one read and one
//! write. Compare-and-write is rare (locks of cluster file systems); a plain write costs two
//! stores, a fence and a load.

use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
use core::cell::Cell;
use std::sync::{Arc, OnceLock};

/// The maximum number of open handles of a namespace: one per reactor, so one per core.
pub(crate) const HANDLES_MAX: usize = 512;

/// The size of a stripe.
pub(crate) const STRIPE_BYTES: u64 = 1 << 20;

/// The state that all handles of a namespace share.
#[derive(Debug)]
pub(crate) struct Exclusion {
    /// The stripes that are excluded now. On its own cache line, because every write loads it.
    excluded: CacheLine<AtomicU64>,
    /// Slots of `handles` below this index have been in use.
    high_water: AtomicUsize,
    handles: Box<[OnceLock<Box<WriteCounts>>]>,
}

#[derive(Debug)]
#[repr(align(128))]
struct CacheLine<T>(T);

/// One handle's counts of writes in flight, by stripe.
#[derive(Debug)]
#[repr(align(128))]
struct WriteCounts {
    claimed: AtomicBool,
    /// The handle was dropped with writes in flight.
    abandoned: AtomicBool,
    counts: [AtomicU32; 64],
}

/// A set of stripes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stripes(u64);

/// A write in flight, to be passed to [`Handle::end_write`].
#[derive(Debug)]
#[must_use]
pub(crate) struct CountedWrite(Stripes);

/// Excluded stripes, to be passed to [`Handle::release`].
#[derive(Debug)]
#[must_use]
pub(crate) struct ExcludedStripes(Stripes);

/// Whether the writes that were in flight at an exclusion have completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainState {
    /// All have completed.
    Drained,
    /// Some are in flight.
    Pending,
    /// A handle was dropped with writes in flight, whose end cannot be known.
    Lost,
}

/// An open handle, used by one thread.
#[derive(Debug)]
pub(crate) struct Handle {
    exclusion: Arc<Exclusion>,
    index: usize,
    /// Writes in flight.
    writes: Cell<u32>,
    /// The stripes that this handle excludes.
    excluding: Cell<u64>,
}

impl Exclusion {
    pub(crate) fn new() -> Self {
        Self {
            excluded: CacheLine(AtomicU64::new(0)),
            high_water: AtomicUsize::new(0),
            handles: (0..HANDLES_MAX).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Opens a handle; `None` if there are [`HANDLES_MAX`].
    pub(crate) fn open(self: &Arc<Self>) -> Option<Handle> {
        for (index, slot) in self.handles.iter().enumerate() {
            let write_counts = slot.get_or_init(Box::default);
            if write_counts.claimed.compare_exchange(false, true, Acquire, Relaxed).is_ok() {
                self.high_water.fetch_max(index + 1, Release);
                let (writes, excluding) = (Cell::new(0), Cell::new(0));
                return Some(Handle { exclusion: Arc::clone(self), index, writes, excluding });
            }
        }
        None
    }

    fn write_counts(&self, index: usize) -> Option<&WriteCounts> {
        self.handles.get(index)?.get().map(Box::as_ref)
    }
}

impl Default for WriteCounts {
    fn default() -> Self {
        Self {
            claimed: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            counts: core::array::from_fn(|_| AtomicU32::new(0)),
        }
    }
}

impl Stripes {
    /// Those of a range of bytes: handles of one device may have blocks of different sizes.
    pub(crate) fn of(offset: u64, bytes: u64) -> Self {
        if bytes == 0 {
            return Self(0);
        }
        let first = offset / STRIPE_BYTES;
        let last = offset.saturating_add(bytes - 1) / STRIPE_BYTES;
        match u32::try_from(last - first) {
            Ok(more @ 0..63) => {
                let ones = (2u64 << more) - 1;
                Self(ones.rotate_left((first % 64) as u32))
            }
            _ => Self(u64::MAX),
        }
    }

    /// The union of both sets.
    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn each(self, mut visit: impl FnMut(usize)) {
        let mut rest = self.0;
        while rest != 0 {
            visit(rest.trailing_zeros() as usize);
            rest &= rest - 1;
        }
    }
}

impl Handle {
    /// Counts a write; `None` while one of its stripes is excluded.
    pub(crate) fn begin_write(&self, stripes: Stripes) -> Option<CountedWrite> {
        self.count(stripes, 1);
        fence(SeqCst);
        if self.exclusion.excluded.0.load(Acquire) & stripes.0 != 0 {
            self.count(stripes, -1);
            return None;
        }
        self.writes.set(self.writes.get() + 1);
        Some(CountedWrite(stripes))
    }

    /// Ends a write, after its last I/O has completed.
    pub(crate) fn end_write(&self, write: CountedWrite) {
        self.count(write.0, -1);
        self.writes.set(self.writes.get() - 1);
    }

    /// The excluder's first step; `None` while one of the stripes is excluded.
    pub(crate) fn exclude(&self, stripes: Stripes) -> Option<ExcludedStripes> {
        let word = &self.exclusion.excluded.0;
        let mut seen = word.load(Relaxed);
        loop {
            if seen & stripes.0 != 0 {
                return None;
            }
            match word.compare_exchange_weak(seen, seen | stripes.0, Acquire, Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        fence(SeqCst);
        self.excluding.set(self.excluding.get() | stripes.0);
        Some(ExcludedStripes(stripes))
    }

    /// The excluder's second step, repeated until all earlier writes have completed.
    pub(crate) fn drain_state(&self, excluded: &ExcludedStripes) -> DrainState {
        let mut drained = DrainState::Drained;
        for index in 0..self.exclusion.high_water.load(Acquire) {
            let Some(write_counts) = self.exclusion.write_counts(index) else { continue };
            let mut busy = false;
            excluded.0.each(|stripe| busy |= write_counts.counts[stripe & 63].load(Acquire) != 0);
            match (busy, write_counts.abandoned.load(Acquire)) {
                (false, _) => {}
                (true, false) => drained = DrainState::Pending,
                (true, true) => return DrainState::Lost,
            }
        }
        drained
    }

    /// The excluder's last step, after its write has completed.
    pub(crate) fn release(&self, excluded: ExcludedStripes) {
        self.excluding.set(self.excluding.get() & !excluded.0.0);
        self.exclusion.excluded.0.fetch_and(!excluded.0.0, Release);
    }

    fn count(&self, stripes: Stripes, change: i32) {
        let Some(write_counts) = self.exclusion.write_counts(self.index) else { return };
        stripes.each(|stripe| {
            let count = &write_counts.counts[stripe & 63];
            count.store(count.load(Relaxed).wrapping_add_signed(change), Release);
        });
    }
}

/// The writes in flight of a dropped handle stay counted for ever, and a compare-and-write in
/// flight is counted as a write: they may reach the device at any later time, so that a
/// compare-and-write of their stripes must fail.
impl Drop for Handle {
    fn drop(&mut self) {
        let excluding = self.excluding.get();
        let Some(write_counts) = self.exclusion.write_counts(self.index) else { return };
        if self.writes.get() == 0 && excluding == 0 {
            write_counts.claimed.store(false, Release);
            return;
        }
        self.count(Stripes(excluding), 1);
        write_counts.abandoned.store(true, Release);
        self.exclusion.excluded.0.fetch_and(!excluding, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const BLOCK: u64 = 4096;

    fn stripes(block: u64, blocks: u64) -> Stripes {
        Stripes::of(block.saturating_mul(BLOCK), blocks * BLOCK)
    }

    #[test]
    fn stripes_cover_their_blocks() {
        let bits = |block, blocks| stripes(block, blocks).0;
        assert_eq!(bits(0, 0), 0);
        assert_eq!(bits(0, 1), 1);
        assert_eq!(bits(255, 1), 1);
        assert_eq!(bits(255, 2), 0b11);
        assert_eq!(bits(256 * 63, 257), 1 << 63 | 1);
        assert_eq!(bits(256 * 64, 256), 1);
        assert_eq!(bits(0, 256 * 63), u64::MAX >> 1);
        assert_eq!(bits(128, 256 * 63), u64::MAX);
        assert_eq!(bits(0, 256 * 64), u64::MAX);
        assert_eq!(bits(1, u32::MAX.into()), u64::MAX);
        assert_eq!(bits(u64::MAX, 1).count_ones(), 1);
    }

    #[test]
    fn an_excluder_waits_for_writers_and_blocks_new_ones() {
        let exclusion = Arc::new(Exclusion::new());
        let [one, two] = [0, 1].map(|_| exclusion.open().unwrap());
        let near = stripes(0, 1);
        let far = stripes(256, 1);
        let writing = one.begin_write(near).unwrap();
        let writing_too = one.begin_write(near).unwrap();
        let excluded = two.exclude(near).unwrap();
        assert!(one.exclude(near.with(far)).is_none(), "all or nothing");
        assert_eq!(two.drain_state(&excluded), DrainState::Pending);
        assert!(one.begin_write(near).is_none());
        assert!(two.begin_write(near.with(far)).is_none());
        let elsewhere = one.begin_write(far).unwrap();
        one.end_write(writing);
        assert_eq!(two.drain_state(&excluded), DrainState::Pending);
        one.end_write(writing_too);
        assert_eq!(
            two.drain_state(&excluded),
            DrainState::Drained,
            "what is elsewhere does not matter"
        );
        two.release(excluded);
        let writing = two.begin_write(near).unwrap();
        two.end_write(writing);
        one.end_write(elsewhere);
    }

    #[test]
    fn counts_are_reused_unless_a_write_in_flight_was_dropped() {
        let exclusion = Arc::new(Exclusion::new());
        for _ in 0..2 * HANDLES_MAX {
            drop(exclusion.open().unwrap());
        }
        assert_eq!(exclusion.high_water.load(Relaxed), 1);
        let near = stripes(0, 1);
        let lost = exclusion.open().unwrap();
        let _write = lost.begin_write(near).unwrap();
        drop(lost);
        let other = exclusion.open().unwrap();
        let excluded = other.exclude(near).unwrap();
        assert_eq!(other.drain_state(&excluded), DrainState::Lost);
        other.release(excluded);
        let excluded = other.exclude(stripes(256, 1)).unwrap();
        assert_eq!(other.drain_state(&excluded), DrainState::Drained);
        drop(other);
        let third = exclusion.open().unwrap();
        let writing = third.begin_write(stripes(256, 1)).expect("the bits went with the handle");
        third.end_write(writing);
        let handles: Vec<_> = core::iter::from_fn(|| exclusion.open()).collect();
        assert_eq!(handles.len(), HANDLES_MAX - 3, "one in use, two lost");
    }

    /// Ends the writers' loops, also after a panic.
    struct EndGuard<'a>(&'a AtomicU32);

    impl Drop for EndGuard<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Relaxed);
        }
    }

    /// A writer marks its cell during a write. An excluder must find no marks, and what it stores
    /// must stay.
    #[test]
    fn no_write_overlaps_an_exclusion() {
        const MARK: u64 = 1 << 63;
        const OURS: u64 = 1 << 62;
        const ROUNDS: u64 = 500;
        let exclusion = Arc::new(Exclusion::new());
        let cells = [AtomicU64::new(0), AtomicU64::new(0)];
        let entries = [AtomicU64::new(0), AtomicU64::new(0)];
        let excluders = AtomicU32::new(2);
        let (cells, entries) = (&cells, &entries);
        let (exclusion, excluders) = (&exclusion, &excluders);
        let near = stripes(0, 1);
        thread::scope(|scope| {
            for (cell, entries) in cells.iter().zip(entries) {
                scope.spawn(move || {
                    let handle = exclusion.open().unwrap();
                    while excluders.load(Relaxed) != 0 {
                        let Some(write) = handle.begin_write(near) else {
                            // There may be fewer processors than threads.
                            thread::yield_now();
                            continue;
                        };
                        let value = entries.fetch_add(1, Relaxed);
                        cell.store(value | MARK, Relaxed);
                        core::hint::spin_loop();
                        cell.store(value, Relaxed);
                        handle.end_write(write);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(move || {
                    let _done = EndGuard(excluders);
                    let handle = exclusion.open().unwrap();
                    // Until each writer has run often enough to overlap with an exclusion.
                    let mut rounds = 0;
                    while rounds < ROUNDS || entries.iter().any(|n| n.load(Relaxed) < ROUNDS) {
                        rounds += 1;
                        let excluded = loop {
                            match handle.exclude(near) {
                                Some(excluded) => break excluded,
                                None => thread::yield_now(),
                            }
                        };
                        loop {
                            match handle.drain_state(&excluded) {
                                DrainState::Drained => break,
                                DrainState::Pending => thread::yield_now(),
                                DrainState::Lost => panic!("another thread has failed"),
                            }
                        }
                        let values = cells.each_ref().map(|cell| cell.load(Relaxed));
                        assert!(values.iter().all(|value| value & MARK == 0), "half written");
                        cells.iter().for_each(|cell| cell.store(OURS, Relaxed));
                        for _ in 0..20 {
                            core::hint::spin_loop();
                            assert!(cells.iter().all(|cell| cell.load(Relaxed) == OURS));
                        }
                        for (cell, value) in cells.iter().zip(values) {
                            cell.store(value, Relaxed);
                        }
                        handle.release(excluded);
                    }
                });
            }
        });
    }
}
