//! The drain of a host's earlier commands, which its next Connect waits for.
//!
//! When an association ends, devices may still have commands of it. If the same host connected to
//! the same subsystem before they complete, an old write could be executed after a newer one. So
//! each queue that ends counts as draining until its last command has completed, and an admin
//! Connect of that host waits until none of its queues is draining.
//!
//! A group notices that a host has closed a connection when it reads from it, which may be after
//! the host's next Connect reached another group. So each admin Connect first has every group check
//! for such stale connections (`Message::StaleCheck`): they end at once, what the host sent on them
//! and no group has read is never executed, and they count as draining. So do those whose peer does
//! not answer any more (`group::doubt`): an outage may have lost their end.

use std::collections::BTreeMap;

/// The drains of all hosts: `K` is a host at a subsystem, `W` a Connect that waits.
#[derive(Debug)]
pub(crate) struct HostDrains<K, W> {
    drains: BTreeMap<K, HostDrain<W>>,
}

#[derive(Debug)]
struct HostDrain<W> {
    queues: usize,
    waiting: Vec<W>,
}

impl<K: Ord + Clone, W: PartialEq> HostDrains<K, W> {
    pub(crate) fn new() -> Self {
        Self { drains: BTreeMap::new() }
    }

    /// One more queue of this host is draining.
    pub(crate) fn begin(&mut self, key: &K) {
        self.drains
            .entry(key.clone())
            .or_insert_with(|| HostDrain { queues: 0, waiting: Vec::new() })
            .queues += 1;
    }

    /// One of them has drained. Returns those that do not wait any longer.
    pub(crate) fn end(&mut self, key: &K) -> Vec<W> {
        let Some(drain) = self.drains.get_mut(key) else { return Vec::new() };
        drain.queues = drain.queues.saturating_sub(1);
        if drain.queues > 0 {
            return Vec::new();
        }
        self.drains.remove(key).map(|drain| drain.waiting).unwrap_or_default()
    }

    /// Keeps `waiter` while the host is draining; returns it if it is not.
    pub(crate) fn wait(&mut self, key: &K, waiter: W) -> Option<W> {
        match self.drains.get_mut(key) {
            None => Some(waiter),
            Some(drain) => {
                drain.waiting.push(waiter);
                None
            }
        }
    }

    /// Removes a waiter.
    pub(crate) fn cancel(&mut self, key: &K, waiter: &W) {
        if let Some(drain) = self.drains.get_mut(key) {
            drain.waiting.retain(|other| other != waiter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_not_draining_does_not_wait() {
        let mut drains: HostDrains<&str, u32> = HostDrains::new();
        assert_eq!(drains.wait(&"host", 1), Some(1));
    }

    #[test]
    fn waiters_continue_once_the_last_queue_has_drained() {
        let mut drains = HostDrains::new();
        drains.begin(&"host");
        drains.begin(&"host");
        assert_eq!(drains.wait(&"host", 1), None);
        assert_eq!(drains.wait(&"other", 2), Some(2));
        assert!(drains.end(&"host").is_empty());
        assert_eq!(drains.wait(&"host", 3), None);
        assert_eq!(drains.end(&"host"), vec![1, 3]);
        assert_eq!(drains.wait(&"host", 4), Some(4));
    }

    #[test]
    fn a_cancelled_waiter_is_not_returned() {
        let mut drains = HostDrains::new();
        drains.begin(&"host");
        assert_eq!(drains.wait(&"host", 1), None);
        assert_eq!(drains.wait(&"host", 2), None);
        drains.cancel(&"host", &1);
        drains.cancel(&"host", &3);
        drains.cancel(&"other", &2);
        assert_eq!(drains.end(&"host"), vec![2]);
        drains.cancel(&"host", &2);
        assert_eq!(drains.wait(&"host", 4), Some(4));
    }

    #[test]
    fn an_end_without_a_begin_changes_nothing() {
        let mut drains: HostDrains<&str, u32> = HostDrains::new();
        assert!(drains.end(&"host").is_empty());
        assert_eq!(drains.wait(&"host", 1), Some(1));
    }
}
