//! Words that several reactors write and read as a whole: a seqlock.

use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// A record with a version, which is odd while somebody writes it.
#[derive(Debug)]
pub(crate) struct Record<const N: usize> {
    version: AtomicU64,
    words: [AtomicU64; N],
}

impl<const N: usize> Default for Record<N> {
    fn default() -> Self {
        let words = std::array::from_fn(|_| AtomicU64::new(0));
        Self { version: AtomicU64::new(0), words }
    }
}

impl<const N: usize> Record<N> {
    /// Writes it, unless another writer is at it.
    pub(crate) fn write(&self, words: [u64; N]) {
        let version = self.version.load(Ordering::Relaxed);
        if version % 2 == 1 {
            return;
        }
        let odd = version.wrapping_add(1);
        let order = (Ordering::Acquire, Ordering::Relaxed);
        if self.version.compare_exchange(version, odd, order.0, order.1).is_err() {
            return;
        }
        // The odd version comes before the words that it announces.
        fence(Ordering::Release);
        for (word, value) in self.words.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        self.version.store(odd.wrapping_add(1), Ordering::Release);
    }

    /// What was written, unless that is nothing or is changing.
    pub(crate) fn read(&self) -> Option<[u64; N]> {
        let before = self.version.load(Ordering::Acquire);
        let words = std::array::from_fn(|index| self.words[index].load(Ordering::Relaxed));
        // The words are read before the version is again.
        fence(Ordering::Acquire);
        let after = self.version.load(Ordering::Relaxed);
        (before == after && before.is_multiple_of(2) && before != 0).then_some(words)
    }
}
