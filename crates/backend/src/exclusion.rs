//! Keeps every reactor's writes out of a compare-and-write, without a lock on the way of a write.
//!
//! A namespace is divided into stripes of [`STRIPE_BYTES`]; a stripe's number modulo 64 is its bit
//! in a word. Two kinds of announcement meet:
//!
//! - a **writer** counts itself into its stripes in its own handle's [`WriteCounts`] (only this
//!   handle writes there, so a plain load and store suffice), then reads the one shared word of
//!   excluded stripes.
//!   If none of its own is among them, it writes, and counts itself out when the write is done.
//!   Otherwise it counts itself out at once and tries again later;
//! - an **excluder** sets its stripes' bits in the shared word, all at once and only if none of
//!   them was set; then it waits until all handles count zero for these stripes. Only then does it
//!   read, compare and write, and clears the bits.
//!
//! Why no write can overlap a compare-and-write. Both sides store their announcement, then execute
//! a sequentially consistent fence, then load the other's. Of two such fences one is first in the
//! single order that all threads agree on. If the writer's is first, the excluder's load, which
//! follows its own fence, sees the writer's count: it waits. If the excluder's is first, the
//! writer's load sees the bit: it steps back. Both may see each other, and then the writer steps
//! back and the excluder goes on. They cannot both miss each other. The argument holds for a handle
//! that was opened meanwhile, too: its counts are reached through `high_water` and its slot, which
//! it stores before its first fence.
//!
//! Why the excluder sees what earlier writers wrote, and later writers come after it: a writer
//! counts itself out with a release store after the kernel said that the write is done, and the
//! excluder reads that count with acquire; the excluder clears its bits with release, and a writer
//! loads the word with acquire.
//!
//! Why nobody waits forever: an excluder takes all its stripes in one step or none, so excluders do
//! not wait in a circle; a writer never waits while it is counted in, except for its own I/O; and
//! new writers stay out while the bit is set, so that the count runs down. Whoever must wait holds
//! neither counts nor bits while it does, and asks for memory before it announces itself (see
//! `engine`).
//!
//! Stripes share bits, so that a compare-and-write may hold up an unrelated write for the time of
//! one read and one write. Compare-and-write is a rare thing (locks of cluster file systems), a
//! plain write is not: this way it pays for two stores, a fence and a load.

use core::{
    cell::Cell,
    sync::atomic::{
        AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
        fence,
    },
};
use std::sync::{Arc, OnceLock};

/// The size of a stripe.
pub(crate) const STRIPE_BYTES: u64 = 1 << 20;

/// Handles of one namespace that may be open at once: one per reactor, so one per core.
pub(crate) const HANDLES_MAX: usize = 512;

/// What all handles of one namespace share.
#[derive(Debug)]
pub(crate) struct Exclusion {
    /// The stripes that are excluded now. On a cache line of its own: every write reads it.
    excluded: CacheLine<AtomicU64>,
    /// Boards below this index were in use at some time.
    high_water: AtomicUsize,
    handles: Box<[OnceLock<Box<WriteCounts>>]>,
    stripe_blocks_shift: u32,
}

#[derive(Debug)]
#[repr(align(128))]
struct CacheLine<T>(T);

/// One handle's counts of writes in flight, by stripe.
#[derive(Debug)]
#[repr(align(128))]
struct WriteCounts {
    claimed: AtomicBool,
    /// Its handle is gone, and left counts behind.
    abandoned: AtomicBool,
    counts: [AtomicU32; 64],
}

/// A set of stripes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stripes(u64);

/// A write that is counted in. Give it back to [`Handle::leave`].
#[derive(Debug)]
#[must_use]
pub(crate) struct CountedWrite(Stripes);

/// Stripes that are excluded. Give it back to [`Handle::release`].
#[derive(Debug)]
#[must_use]
pub(crate) struct ExcludedStripes(Stripes);

/// Whether the writes that an excluder found are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainState {
    /// All are.
    Yes,
    /// Not yet; ask again.
    NotYet,
    /// A handle was dropped with writes in flight, and nobody will ever learn when they are done.
    Never,
}

/// One open handle's part. Lives on one thread.
#[derive(Debug)]
pub(crate) struct Handle {
    exclusion: Arc<Exclusion>,
    index: usize,
    /// Writes counted in and not out.
    entered: Cell<u32>,
    /// Stripes that this handle excludes.
    excluding: Cell<u64>,
}

impl Exclusion {
    /// For a namespace with blocks of this size.
    pub(crate) fn new(block_bytes: u32) -> Self {
        let stripe_blocks = (STRIPE_BYTES / u64::from(block_bytes.max(1))).max(1);
        Self {
            excluded: CacheLine(AtomicU64::new(0)),
            high_water: AtomicUsize::new(0),
            handles: (0..HANDLES_MAX).map(|_| OnceLock::new()).collect(),
            stripe_blocks_shift: stripe_blocks.ilog2(),
        }
    }

    /// The stripes of some blocks.
    pub(crate) fn stripes(&self, block: u64, blocks: u32) -> Stripes {
        if blocks == 0 {
            return Stripes(0);
        }
        let first = block >> self.stripe_blocks_shift;
        let last = block.saturating_add(u64::from(blocks) - 1) >> self.stripe_blocks_shift;
        match u32::try_from(last - first) {
            Ok(more @ 0..63) => {
                let ones = (2u64 << more) - 1;
                Stripes(ones.rotate_left((first % 64) as u32))
            }
            _ => Stripes(u64::MAX),
        }
    }

    /// Takes the counts of a new handle; `None` if there are too many.
    pub(crate) fn join(self: &Arc<Self>) -> Option<Handle> {
        for (index, slot) in self.handles.iter().enumerate() {
            let write_counts = slot.get_or_init(Box::default);
            if write_counts.claimed.compare_exchange(false, true, Acquire, Relaxed).is_ok() {
                self.high_water.fetch_max(index + 1, Release);
                let (entered, excluding) = (Cell::new(0), Cell::new(0));
                return Some(Handle { exclusion: Arc::clone(self), index, entered, excluding });
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
    /// Both.
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
    /// A writer's way in; `None` while one of its stripes is excluded.
    pub(crate) fn enter(&self, stripes: Stripes) -> Option<CountedWrite> {
        self.count(stripes, 1);
        fence(SeqCst);
        if self.exclusion.excluded.0.load(Acquire) & stripes.0 != 0 {
            self.count(stripes, -1);
            return None;
        }
        self.entered.set(self.entered.get() + 1);
        Some(CountedWrite(stripes))
    }

    /// A writer's way out, after its last I/O is done.
    pub(crate) fn leave(&self, entered: CountedWrite) {
        self.count(entered.0, -1);
        self.entered.set(self.entered.get() - 1);
    }

    /// An excluder's first step; `None` while another one has some of the stripes.
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

    /// An excluder's second step, repeated until all writes that came before are done.
    pub(crate) fn drained(&self, excluded: &ExcludedStripes) -> DrainState {
        let mut drained = DrainState::Yes;
        for index in 0..self.exclusion.high_water.load(Acquire) {
            let Some(write_counts) = self.exclusion.write_counts(index) else { continue };
            let mut busy = false;
            excluded.0.each(|stripe| busy |= write_counts.counts[stripe & 63].load(Acquire) != 0);
            match (busy, write_counts.abandoned.load(Acquire)) {
                (false, _) => {}
                (true, false) => drained = DrainState::NotYet,
                (true, true) => return DrainState::Never,
            }
        }
        drained
    }

    /// An excluder's last step, after its write is done.
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

/// A handle that goes away with writes in flight leaves them counted for ever, and a compare-and-
/// write in flight becomes such a write: what is still on its way may land at any time, and a
/// compare-and-write that meets it must be refused rather than be wrong.
impl Drop for Handle {
    fn drop(&mut self) {
        let excluding = self.excluding.get();
        let Some(write_counts) = self.exclusion.write_counts(self.index) else { return };
        if self.entered.get() == 0 && excluding == 0 {
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

    const BLOCK: u32 = 4096;

    fn bits(exclusion: &Exclusion, block: u64, blocks: u32) -> u64 {
        exclusion.stripes(block, blocks).0
    }

    #[test]
    fn stripes_cover_their_blocks() {
        let exclusion = Exclusion::new(BLOCK);
        assert_eq!(bits(&exclusion, 0, 0), 0);
        assert_eq!(bits(&exclusion, 0, 1), 1);
        assert_eq!(bits(&exclusion, 255, 1), 1);
        assert_eq!(bits(&exclusion, 255, 2), 0b11);
        assert_eq!(bits(&exclusion, 256 * 63, 257), 1 << 63 | 1);
        assert_eq!(bits(&exclusion, 256 * 64, 256), 1);
        assert_eq!(bits(&exclusion, 0, 256 * 63), u64::MAX >> 1);
        assert_eq!(bits(&exclusion, 128, 256 * 63), u64::MAX);
        assert_eq!(bits(&exclusion, 0, 256 * 64), u64::MAX);
        assert_eq!(bits(&exclusion, 1, u32::MAX), u64::MAX);
        assert_eq!(bits(&exclusion, u64::MAX, 1).count_ones(), 1);
    }

    #[test]
    fn an_excluder_waits_for_writers_and_keeps_new_ones_out() {
        let exclusion = Arc::new(Exclusion::new(BLOCK));
        let [one, two] = [0, 1].map(|_| exclusion.join().unwrap());
        let near = exclusion.stripes(0, 1);
        let far = exclusion.stripes(256, 1);
        let writing = one.enter(near).unwrap();
        let writing_too = one.enter(near).unwrap();
        let excluded = two.exclude(near).unwrap();
        assert!(one.exclude(near.with(far)).is_none(), "all or nothing");
        assert_eq!(two.drained(&excluded), DrainState::NotYet);
        assert!(one.enter(near).is_none());
        assert!(two.enter(near.with(far)).is_none());
        let elsewhere = one.enter(far).unwrap();
        one.leave(writing);
        assert_eq!(two.drained(&excluded), DrainState::NotYet);
        one.leave(writing_too);
        assert_eq!(two.drained(&excluded), DrainState::Yes, "what is elsewhere does not matter");
        two.release(excluded);
        let writing = two.enter(near).unwrap();
        two.leave(writing);
        one.leave(elsewhere);
    }

    #[test]
    fn boards_are_used_again_unless_a_write_is_lost_on_them() {
        let exclusion = Arc::new(Exclusion::new(BLOCK));
        for _ in 0..2 * HANDLES_MAX {
            drop(exclusion.join().unwrap());
        }
        assert_eq!(exclusion.high_water.load(Relaxed), 1);
        let stripes = exclusion.stripes(0, 1);
        let lost = exclusion.join().unwrap();
        let _entered = lost.enter(stripes).unwrap();
        drop(lost);
        let other = exclusion.join().unwrap();
        let excluded = other.exclude(stripes).unwrap();
        assert_eq!(other.drained(&excluded), DrainState::Never);
        other.release(excluded);
        let excluded = other.exclude(exclusion.stripes(256, 1)).unwrap();
        assert_eq!(other.drained(&excluded), DrainState::Yes);
        drop(other);
        let third = exclusion.join().unwrap();
        let writing =
            third.enter(exclusion.stripes(256, 1)).expect("the bits went with the handle");
        third.leave(writing);
        let handles: Vec<_> = core::iter::from_fn(|| exclusion.join()).collect();
        assert_eq!(handles.len(), HANDLES_MAX - 3, "one in use, two lost");
    }

    /// Lets the writers go home, also after a panic.
    struct Done<'a>(&'a AtomicU32);

    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Relaxed);
        }
    }

    /// A writer marks its cell while it is in; an excluder must find no marks, and whatever it
    /// puts there must stay.
    #[test]
    fn threads_never_meet_in_an_excluded_stripe() {
        const MARK: u64 = 1 << 63;
        const OURS: u64 = 1 << 62;
        const ROUNDS: u64 = 500;
        let exclusion = Arc::new(Exclusion::new(BLOCK));
        let cells = [AtomicU64::new(0), AtomicU64::new(0)];
        let entries = [AtomicU64::new(0), AtomicU64::new(0)];
        let excluders = AtomicU32::new(2);
        let (cells, entries) = (&cells, &entries);
        let (exclusion, excluders) = (&exclusion, &excluders);
        let stripes = exclusion.stripes(0, 1);
        thread::scope(|scope| {
            for (cell, entries) in cells.iter().zip(entries) {
                scope.spawn(move || {
                    let handle = exclusion.join().unwrap();
                    while excluders.load(Relaxed) != 0 {
                        let Some(entered) = handle.enter(stripes) else {
                            // There may be fewer processors than threads.
                            thread::yield_now();
                            continue;
                        };
                        let value = entries.fetch_add(1, Relaxed);
                        cell.store(value | MARK, Relaxed);
                        core::hint::spin_loop();
                        cell.store(value, Relaxed);
                        handle.leave(entered);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(move || {
                    let _done = Done(excluders);
                    let handle = exclusion.join().unwrap();
                    // Until both sides were there often enough to have met.
                    let mut rounds = 0;
                    while rounds < ROUNDS || entries.iter().any(|n| n.load(Relaxed) < ROUNDS) {
                        rounds += 1;
                        let excluded = loop {
                            match handle.exclude(stripes) {
                                Some(excluded) => break excluded,
                                None => thread::yield_now(),
                            }
                        };
                        loop {
                            match handle.drained(&excluded) {
                                DrainState::Yes => break,
                                DrainState::NotYet => thread::yield_now(),
                                DrainState::Never => panic!("another thread has failed"),
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
