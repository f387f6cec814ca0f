//! Connections that have not completed Connect, by address: which one is evicted when there is no
//! room for another.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use crate::shared::ids::ConnectionId;

/// They are pruned only when there are more than this.
const PRUNED_MIN: usize = 64;

/// Connections without Connect of each address, in the order of their arrival; some may have
/// completed it since.
#[derive(Debug, Default)]
pub(super) struct ConnectBacklog {
    by_address: BTreeMap<IpAddr, VecDeque<ConnectionId>>,
    count: usize,
}

impl ConnectBacklog {
    /// Adds one.
    pub(super) fn add(&mut self, address: IpAddr, id: ConnectionId) {
        self.by_address.entry(address).or_default().push_back(id);
        self.count += 1;
    }

    /// Removes the oldest one of the address that has most; it may have completed Connect since.
    pub(super) fn pop(&mut self) -> Option<ConnectionId> {
        self.take(|_| true)
    }

    /// Removes the oldest such one of the address that has most connections of those that have one.
    pub(super) fn take(&mut self, is_one: impl Fn(ConnectionId) -> bool) -> Option<ConnectionId> {
        let place = |ids: &VecDeque<_>| ids.iter().position(|id| is_one(*id));
        let most = self
            .by_address
            .iter()
            .filter_map(|(address, ids)| place(ids).map(|place| (ids.len(), *address, place)));
        let (_, address, place) = most.max()?;
        let ids = self.by_address.get_mut(&address)?;
        let id = ids.remove(place)?;
        self.count -= 1;
        if ids.is_empty() {
            self.by_address.remove(&address);
        }
        Some(id)
    }

    /// If there are more than `most`, removes those that have completed Connect.
    pub(super) fn prune(&mut self, most: usize, may_be: impl Fn(ConnectionId) -> bool) {
        if self.count > most.max(PRUNED_MIN) {
            self.by_address.retain(|_, ids| {
                ids.retain(|id| may_be(*id));
                !ids.is_empty()
            });
            self.count = self.by_address.values().map(VecDeque::len).sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_opens_many_evicts_its_own() {
        let mut unconnected = ConnectBacklog::default();
        let id = |index| ConnectionId { group: 0, index, serial: index as u64 };
        let address = |last| IpAddr::from([192, 0, 2, last]);
        unconnected.add(address(1), id(0));
        for index in 1..100 {
            unconnected.add(address(2), id(index));
        }
        unconnected.add(address(3), id(100));
        for index in 1..99 {
            assert_eq!(unconnected.pop(), Some(id(index)), "the oldest of those that are many");
        }
        unconnected.add(address(1), id(101));
        assert_eq!(unconnected.pop(), Some(id(0)));
        for index in 102..300 {
            unconnected.add(address(4), id(index));
        }
        unconnected.prune(100, |id| id.index < 101);
        assert_eq!(unconnected.count, 2);
        assert_eq!(unconnected.by_address.len(), 2, "nothing is kept of those who are gone");
        while unconnected.pop().is_some() {}
        assert_eq!((unconnected.count, unconnected.by_address.len()), (0, 0));
    }
}
