//! Memory for the commands of a group: how much is left, and which connections wait for it and
//! since when.
//!
//! While no connection waits, a command's buffer and memory for the data in its capsule come from
//! the pool. As soon as a connection waits, [`Pool::take`] returns nothing: freed memory goes to
//! the waiting connections, the hosts in turn and the connections of each in their order, and new
//! commands wait with them. A connection that cannot be served yet is passed over, as others may
//! need less; but after [`PASSED_OVER_MAX`] times all freed memory is kept for it.
//!
//! The last part of the pool is a reserve: for admin and Fabrics commands, for fused pairs (half a
//! pair must not wait for the other's memory), and for connections that hold memory which cannot
//! be filled before they make progress. Small responses are copied behind their headers and release
//! their buffer; until they are sent they count as if they had not.

use std::collections::VecDeque;
use std::time::Duration;

use weft_reactor::{Buffer, Pool};

use crate::shared::limits::{PASSED_OVER_MAX, TRIES_MAX};

/// The reserve's share of the pool: the protocol itself must make progress when bulk transfers have
/// taken the rest.
const RESERVE_SHARE: usize = 16;

/// The largest reserve: four of the longest transfers.
const RESERVE_BYTES_MAX: usize = 16 << 20;

/// Data of the protocol up to this length may come from the reserve: all but the longest log pages.
const RESERVED_BYTES: usize = 16 << 10;

/// The memory of a group, and who waits for it.
#[derive(Debug)]
pub(crate) struct Memory {
    pool: Pool,
    reserve: usize,
    /// Bytes of responses that were copied and are not sent.
    copied: usize,
    /// By rank.
    waiting: VecDeque<Waiter>,
    /// The highest rank that was served.
    rank_served: u64,
    /// Whether the connection at an index is among them.
    waits: Vec<bool>,
    /// How often another connection was served before the first one, since it has been the first.
    passed_over: u32,
    /// The next one to be tried.
    position: usize,
    /// The pool's misses when they were last read.
    misses: u64,
}

/// A connection that waits for memory.
#[derive(Debug)]
struct Waiter {
    index: usize,
    /// A hash of its host's name.
    host: u64,
    /// One connection of a host has each rank, and lower ranks are served first.
    rank: u64,
    since: Duration,
}

/// The outcome of another attempt to get memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryTry {
    /// A command has a buffer, and others of the connection may still wait.
    Served { has_more: bool },
    /// There is no memory for it.
    Refused,
    /// The connection does not wait any more.
    NotWaiting,
}

impl Memory {
    pub(crate) fn new(pool: Pool) -> Self {
        let reserve = (pool.capacity() / RESERVE_SHARE).min(RESERVE_BYTES_MAX);
        let memory = Self {
            pool,
            reserve,
            copied: 0,
            waiting: VecDeque::new(),
            rank_served: 0,
            waits: Vec::new(),
            passed_over: 0,
            position: 0,
            misses: 0,
        };
        memory.set_reserve();
        memory
    }

    /// A buffer for a new command, if there is memory and no connection waits.
    pub(crate) fn take(&self, bytes: usize) -> Option<Buffer> {
        self.pool.take(bytes)
    }

    /// A buffer for a command that must not wait.
    pub(crate) fn take_reserved(&self, bytes: usize) -> Option<Buffer> {
        self.pool.take_reserved(bytes)
    }

    /// A buffer for data of the protocol itself, if there is one.
    pub(crate) fn take_admin(&self, bytes: usize) -> Option<Buffer> {
        if bytes <= RESERVED_BYTES { self.take_reserved(bytes) } else { self.grant(bytes) }
    }

    /// A connection of a host begins to wait, unless it does already.
    pub(crate) fn wait(&mut self, index: usize, host: u64, now: Duration) {
        if self.waits.len() <= index {
            self.waits.resize(index + 1, false);
        }
        if let Some(waits) = self.waits.get_mut(index)
            && !std::mem::replace(waits, true)
        {
            let own = self.waiting.iter().rev().find(|waiter| waiter.host == host);
            let rank = own.map_or(0, |last| last.rank).max(self.rank_served) + 1;
            let place = self.waiting.partition_point(|waiter| waiter.rank <= rank);
            if place == 0 {
                self.passed_over = 0;
            }
            self.waiting.insert(place, Waiter { index, host, rank, since: now });
            self.set_reserve();
        }
    }

    /// Begins to try the waiting connections, the longest wait first.
    pub(crate) fn begin_tries(&mut self) {
        self.position = 0;
    }

    /// The connection whose turn it is to ask for a [`grant`](Self::grant), if any;
    /// [`end_try`](Self::end_try) takes the outcome.
    pub(crate) fn next_try(&self) -> Option<usize> {
        let is_first_only = self.passed_over >= PASSED_OVER_MAX;
        let tries = if is_first_only { 1 } else { TRIES_MAX };
        let waiter = self.waiting.get(self.position).filter(|_| self.position < tries);
        waiter.map(|waiter| waiter.index)
    }

    /// A buffer for the connection whose turn it is.
    pub(crate) fn grant(&self, bytes: usize) -> Option<Buffer> {
        self.pool.take_leaving(self.reserve.saturating_add(self.copied), bytes)
    }

    /// The outcome for the connection whose turn it was. If more of its commands wait, they wait
    /// behind the others.
    pub(crate) fn end_try(&mut self, outcome: MemoryTry, now: Duration) {
        if outcome == MemoryTry::Refused {
            self.position += 1;
            return;
        }
        let Some(waiter) = self.waiting.remove(self.position) else { return };
        match outcome {
            _ if self.position == 0 => self.passed_over = 0,
            MemoryTry::Served { .. } => self.passed_over += 1,
            _ => {}
        }
        if let Some(waits) = self.waits.get_mut(waiter.index) {
            *waits = false;
        }
        if matches!(outcome, MemoryTry::Served { .. }) {
            self.rank_served = self.rank_served.max(waiter.rank);
        }
        if outcome == (MemoryTry::Served { has_more: true }) {
            self.wait(waiter.index, waiter.host, now);
        }
        self.set_reserve();
    }

    /// Since when the one that has waited longest does so, if any waits.
    pub(crate) fn waits_since(&self) -> Option<Duration> {
        self.waiting.iter().map(|waiter| waiter.since).min()
    }

    /// Whether memory was short since the last call of this.
    pub(crate) fn was_short(&mut self) -> bool {
        let misses = self.pool.misses();
        std::mem::replace(&mut self.misses, misses) != misses
    }

    /// A connection has `now` bytes of copied responses; `before` at the last call.
    pub(crate) fn recount_copied(&mut self, before: usize, now: usize) {
        if before != now {
            self.copied = self.copied.saturating_sub(before) + now;
            self.set_reserve();
        }
    }

    fn set_reserve(&self) {
        let is_free = self.waiting.is_empty();
        let reserve = self.reserve.saturating_add(self.copied);
        self.pool.set_reserve(if is_free { reserve } else { usize::MAX });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Duration = Duration::ZERO;
    const HOST: u64 = 1;
    const SERVED: MemoryTry = MemoryTry::Served { has_more: false };
    const POOL: usize = 16 << 20;

    fn memory() -> Memory {
        Memory::new(Pool::new(POOL).unwrap())
    }

    /// Tries all; those that `outcome` serves do not wait any more.
    fn tries(memory: &mut Memory, mut outcome: impl FnMut(usize) -> MemoryTry) -> Vec<usize> {
        let mut tried = Vec::new();
        memory.begin_tries();
        while let Some(index) = memory.next_try() {
            tried.push(index);
            memory.end_try(outcome(index), NOW);
        }
        tried
    }

    #[test]
    fn a_new_command_does_not_overtake_waiting_connections() {
        let mut memory = memory();
        let first = memory.take(4096).unwrap();
        memory.wait(3, HOST, NOW);
        assert!(memory.take(4096).is_none() && memory.pool.take(4096).is_none());
        assert!(memory.grant(4096).is_some());
        assert!(memory.take_reserved(4096).is_some() && memory.take_admin(4096).is_some());
        assert_eq!(tries(&mut memory, |_| SERVED), [3]);
        assert!(memory.waits_since().is_none());
        assert!(memory.take(4096).is_some());
        drop(first);
    }

    #[test]
    fn each_has_its_turn() {
        let mut memory = memory();
        (1..=3).for_each(|index| memory.wait(index, HOST, NOW));
        // It waits already.
        memory.wait(1, HOST, NOW);
        let mut more = true;
        let served = |_| MemoryTry::Served { has_more: std::mem::take(&mut more) };
        assert_eq!(tries(&mut memory, served), [1, 2, 3, 1]);
        assert!(tries(&mut memory, |_| SERVED).is_empty());
    }

    /// Whoever has many connections that wait is served no sooner for that, and not later than who
    /// comes after.
    #[test]
    fn hosts_are_served_in_turn() {
        let mut memory = memory();
        (1..=5).for_each(|index| memory.wait(index, HOST, NOW));
        memory.wait(9, HOST + 1, NOW);
        let served = |_| MemoryTry::Served { has_more: true };
        let mut order = Vec::new();
        for _ in 0..8 {
            memory.begin_tries();
            order.extend(memory.next_try());
            memory.end_try(served(()), NOW);
        }
        assert_eq!(order, [1, 9, 2, 9, 3, 9, 4, 9]);
        memory.wait(8, HOST + 2, NOW);
        memory.begin_tries();
        assert_eq!(memory.next_try(), Some(5), "who has waited longer is first of a rank");
    }

    #[test]
    fn the_first_is_not_passed_over_for_ever() {
        let mut memory = memory();
        (1..=3).for_each(|index| memory.wait(index, HOST, NOW));
        let mut passed = 0;
        let mut outcome = |index| match index {
            2 if passed < 1000 => {
                passed += 1;
                MemoryTry::Served { has_more: true }
            }
            _ => MemoryTry::Refused,
        };
        while tries(&mut memory, &mut outcome).len() > 1 {}
        assert_eq!(passed, PASSED_OVER_MAX);
        assert_eq!(tries(&mut memory, |_| MemoryTry::Refused), [1], "nobody else is tried");
        assert_eq!(tries(&mut memory, |_| SERVED), [1, 3, 2]);
    }

    #[test]
    fn copied_answers_count_until_they_are_sent() {
        let mut memory = memory();
        let most = |memory: &Memory| {
            let taken: Vec<_> = std::iter::from_fn(|| memory.take(256 << 10)).collect();
            taken.len()
        };
        assert_eq!(most(&memory), 60);
        memory.recount_copied(0, 1 << 20);
        memory.recount_copied(0, 1 << 20);
        assert_eq!(most(&memory), 52);
        memory.wait(1, HOST, NOW);
        let taken: Vec<_> = std::iter::from_fn(|| memory.grant(256 << 10)).collect();
        assert_eq!(taken.len(), 52);
        drop(taken);
        assert_eq!(tries(&mut memory, |_| MemoryTry::NotWaiting), [1]);
        memory.recount_copied(1 << 20, 1000);
        memory.recount_copied(1 << 20, 0);
        memory.recount_copied(1000, 0);
        assert_eq!(most(&memory), 60);
    }

    /// A connection of the simulation: what its commands ask for, oldest first, and after how many
    /// commands of others each may be late.
    #[derive(Default)]
    struct Demand {
        sizes: VecDeque<usize>,
        /// Commands of others that were served since this connection began to wait.
        passed: usize,
        /// Their upper limit.
        bound: usize,
    }

    proptest! {
        /// Connections ask for buffers of every size; served commands end in any order, but all
        /// end.
        #[test]
        fn every_waiting_connection_is_served(
            steps in proptest::collection::vec((0..8_usize, 0..11_u32, any::<u16>()), 1..2000)
        ) {
            let mut memory = memory();
            let mut asks: Vec<Demand> = (0..8).map(|_| Demand::default()).collect();
            let mut held: Vec<Buffer> = Vec::new();
            let mut steps = steps.into_iter();
            loop {
                let step = steps.next();
                if let Some((index, order, _)) = step {
                    let bytes = 4096 << order;
                    match memory.take(bytes) {
                        Some(buffer) => {
                            let nobody_waits = asks.iter().all(|one| one.sizes.is_empty());
                            prop_assert!(nobody_waits, "past others");
                            held.push(buffer);
                        }
                        None => {
                            if asks[index].sizes.is_empty() {
                                let ahead = memory.waiting.len();
                                asks[index].bound = (ahead + 1) * (PASSED_OVER_MAX as usize + 1);
                            }
                            asks[index].sizes.push_back(bytes);
                            memory.wait(index, HOST, NOW);
                        }
                    }
                }
                // What has begun ends: one command in most steps, all of them in the end.
                match step {
                    Some((_, _, pick)) if pick % 8 == 0 || held.is_empty() => {}
                    Some((_, _, pick)) => drop(held.swap_remove(usize::from(pick) % held.len())),
                    None if held.is_empty() => break,
                    None => drop(held.pop()),
                }
                memory.begin_tries();
                while let Some(index) = memory.next_try() {
                    let outcome = match asks[index].sizes.front() {
                        None => MemoryTry::NotWaiting,
                        Some(bytes) => match memory.grant(*bytes) {
                            None => MemoryTry::Refused,
                            Some(buffer) => {
                                held.push(buffer);
                                asks[index].sizes.pop_front();
                                MemoryTry::Served { has_more: !asks[index].sizes.is_empty() }
                            }
                        },
                    };
                    let ahead = memory.waiting.len() - 1;
                    memory.end_try(outcome, NOW);
                    if let MemoryTry::Served { .. } = outcome {
                        asks.iter_mut().for_each(|one| one.passed += 1);
                        asks[index].passed = 0;
                        asks[index].bound = (ahead + 1) * (PASSED_OVER_MAX as usize + 1);
                    }
                    for one in asks.iter_mut().filter(|one| one.sizes.is_empty()) {
                        one.passed = 0;
                    }
                    prop_assert!(asks.iter().all(|one| one.passed <= one.bound), "for too long");
                }
            }
            prop_assert!(asks.iter().all(|one| one.sizes.is_empty()), "not all were served");
        }
    }
}
