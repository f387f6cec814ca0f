//! Deadlines by key. Moving a timer to a later time, the common case (keep-alive), costs one
//! look-up: its old entry in the queue stays until it is due.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::time::Duration;

/// A hasher for keys that are small numbers and that no peer chooses.
#[derive(Debug, Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        // Multiplication by the golden ratio moves low bits up, the rotation brings them back.
        let mixed = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

/// A map for such keys.
pub(crate) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

#[derive(Clone, Copy, Debug)]
struct Timer {
    at: Duration,
    /// Timers of the same instant fire in the order in which they were set.
    order: u64,
    /// Its entry in the queue; entries with another number are stale.
    queued: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueueEntry<K> {
    at: Duration,
    order: u64,
    id: u64,
    key: K,
}

/// One timer per key.
#[derive(Debug)]
pub(crate) struct Timers<K> {
    timers: NumberMap<K, Timer>,
    queue: BinaryHeap<Reverse<QueueEntry<K>>>,
    counter: u64,
}

impl<K: Copy + Ord + Hash> Timers<K> {
    pub(crate) fn new() -> Self {
        Self { timers: NumberMap::default(), queue: BinaryHeap::new(), counter: 0 }
    }

    /// Sets or moves the timer of `key`.
    pub(crate) fn set(&mut self, key: K, at: Duration) {
        self.counter += 1;
        let order = self.counter;
        if let Some(timer) = self.timers.get_mut(&key)
            && timer.at <= at
        {
            timer.at = at;
            timer.order = order;
            return;
        }
        self.timers.insert(key, Timer { at, order, queued: order });
        self.queue.push(Reverse(QueueEntry { at, order, id: order, key }));
        if self.queue.len() > 2 * self.timers.len() + 64 {
            let timers = &self.timers;
            self.queue.retain(|Reverse(entry)| is_live(timers, entry));
        }
    }

    pub(crate) fn clear(&mut self, key: K) {
        self.timers.remove(&key);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.timers.is_empty()
    }

    /// The earliest deadline.
    pub(crate) fn next(&mut self) -> Option<Duration> {
        self.next_live().map(|entry| entry.at)
    }

    /// Takes a timer that is due at `now`, the earliest first.
    pub(crate) fn pop(&mut self, now: Duration) -> Option<K> {
        // Without looking anything up while the earliest entry, stale or not, is in the future.
        if self.queue.peek().is_none_or(|Reverse(first)| first.at > now) {
            return None;
        }
        let entry = self.next_live()?;
        if entry.at > now {
            return None;
        }
        self.queue.pop();
        self.timers.remove(&entry.key);
        Some(entry.key)
    }

    /// Brings the queue's head in line with its timer; the head, which is live and accurate.
    fn next_live(&mut self) -> Option<QueueEntry<K>> {
        loop {
            let Reverse(entry) = *self.queue.peek()?;
            match self.timers.get(&entry.key) {
                Some(timer) if timer.queued == entry.id => {
                    if (timer.at, timer.order) == (entry.at, entry.order) {
                        return Some(entry);
                    }
                    let moved = QueueEntry { at: timer.at, order: timer.order, ..entry };
                    self.queue.pop();
                    self.queue.push(Reverse(moved));
                }
                _ => {
                    self.queue.pop();
                }
            }
        }
    }
}

fn is_live<K: Copy + Ord + Hash>(timers: &NumberMap<K, Timer>, entry: &QueueEntry<K>) -> bool {
    timers.get(&entry.key).is_some_and(|timer| timer.queued == entry.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn due_timers_come_in_order() {
        let mut timers = Timers::new();
        timers.set(1u32, ms(30));
        timers.set(2, ms(10));
        timers.set(3, ms(20));
        timers.set(4, ms(10));
        assert_eq!(timers.next(), Some(ms(10)));
        assert_eq!(timers.pop(ms(9)), None);
        let fired: Vec<_> = std::iter::from_fn(|| timers.pop(ms(25))).collect();
        assert_eq!(fired, [2, 4, 3]);
        assert_eq!(timers.next(), Some(ms(30)));
    }

    #[test]
    fn set_again_moves_both_ways() {
        let mut timers = Timers::new();
        timers.set(1u32, ms(10));
        timers.set(1, ms(50));
        assert_eq!(timers.pop(ms(49)), None);
        timers.set(1, ms(5));
        assert_eq!(timers.next(), Some(ms(5)));
        assert_eq!(timers.pop(ms(5)), Some(1));
        assert_eq!(timers.pop(ms(1000)), None);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn stale_entries_do_not_pile_up() {
        let mut timers = Timers::new();
        for round in 0..10_000u64 {
            timers.set(1u32, ms(1_000_000 - round));
            timers.clear(1);
        }
        assert!(timers.queue.len() <= 66);
    }

    proptest! {
        #[test]
        fn behaves_as_a_sorted_list(
            steps in proptest::collection::vec((0..3u8, 0..6u32, 0..40u64), 1..200)
        ) {
            let mut timers = Timers::new();
            let mut model: BTreeMap<u32, (Duration, usize)> = BTreeMap::new();
            for (n, (kind, key, at)) in steps.into_iter().enumerate() {
                match kind {
                    0 => {
                        timers.set(key, ms(at));
                        model.insert(key, (ms(at), n));
                    }
                    1 => {
                        timers.clear(key);
                        model.remove(&key);
                    }
                    _ => {
                        let due = model
                            .iter()
                            .filter(|(_, (due, _))| *due <= ms(at))
                            .min_by_key(|(_, when)| **when)
                            .map(|(key, _)| *key);
                        prop_assert_eq!(timers.pop(ms(at)), due);
                        if let Some(due) = due {
                            model.remove(&due);
                        }
                    }
                }
                let next = model.values().map(|(at, _)| *at).min();
                prop_assert_eq!(timers.next(), next);
            }
        }
    }
}
