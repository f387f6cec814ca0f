//! Queues whose hosts have not authenticated themselves yet, and connections whose handshake with
//! TLS is not over: how many there may be, and what becomes of them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::shared::limits::{PENDING_MAX, PENDING_OF_AN_ADDRESS_MAX};

/// What has become of exchanges since the start, and how many are to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AuthenticationStatistics {
    /// Queues whose hosts have not authenticated themselves yet, and handshakes with TLS.
    pub waiting: u64,
    /// Exchanges that have succeeded.
    pub succeeded: u64,
    /// Exchanges that have failed, or that took too long.
    pub failed: u64,
    /// Those that were refused because there were too many.
    pub refused: u64,
}

impl std::ops::Add for AuthenticationStatistics {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            waiting: self.waiting + other.waiting,
            succeeded: self.succeeded + other.succeeded,
            failed: self.failed + other.failed,
            refused: self.refused + other.refused,
        }
    }
}

/// Queues, or handshakes, of the whole target: neither keeps the other out. It has an entry only
/// for addresses that have such a queue now.
#[derive(Debug, Default)]
pub(crate) struct PendingPeers {
    by_address: BTreeMap<IpAddr, usize>,
    statistics: AuthenticationStatistics,
}

impl PendingPeers {
    /// Whether another one of this address may come; it counts from now on.
    pub(crate) fn admit(&mut self, address: IpAddr) -> bool {
        let may_come = !self.is_full() && !self.has_many(address);
        if may_come {
            *self.by_address.entry(address).or_default() += 1;
            self.statistics.waiting += 1;
        } else {
            self.statistics.refused += 1;
        }
        may_come
    }

    /// Whether one of this address may come only once another one has gone.
    pub(crate) fn needs_place(&self, address: IpAddr) -> bool {
        self.is_full() && !self.has_many(address)
    }

    fn is_full(&self) -> bool {
        usize::try_from(self.statistics.waiting).is_ok_and(|all| all >= PENDING_MAX)
    }

    fn has_many(&self, address: IpAddr) -> bool {
        self.by_address.get(&address).is_some_and(|of_it| *of_it >= PENDING_OF_AN_ADDRESS_MAX)
    }

    /// One of these is authenticated, or gone.
    pub(crate) fn remove(&mut self, address: IpAddr) {
        if let Some(of_it) = self.by_address.get_mut(&address) {
            *of_it -= 1;
            self.statistics.waiting -= 1;
            if *of_it == 0 {
                self.by_address.remove(&address);
            }
        }
    }

    /// An exchange has ended.
    pub(crate) fn note(&mut self, succeeded: bool) {
        let place = match succeeded {
            true => &mut self.statistics.succeeded,
            false => &mut self.statistics.failed,
        };
        *place += 1;
    }

    pub(crate) const fn statistics(&self) -> AuthenticationStatistics {
        self.statistics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_peers_are_bounded_for_each_address_and_in_all() {
        let mut pending = PendingPeers::default();
        let address = |last: u8| IpAddr::from([192, 0, 2, last]);
        for _ in 0..PENDING_OF_AN_ADDRESS_MAX {
            assert!(pending.admit(address(0)));
        }
        assert!(!pending.admit(address(0)) && pending.admit(address(1)));
        let mut all = PENDING_OF_AN_ADDRESS_MAX + 1;
        for last in (2..=u8::MAX).cycle() {
            if !pending.admit(address(last)) {
                break;
            }
            all += 1;
        }
        assert_eq!(all, PENDING_MAX);
        assert!(!pending.admit(address(1)), "the others are full");
        assert!(!pending.needs_place(address(0)), "it has too many itself");
        assert!(pending.needs_place(address(1)), "another one may go");
        assert!(!pending.admit(address(1)), "but as long as it is there, none comes");
        pending.remove(address(0));
        pending.remove(address(0));
        assert!(!pending.needs_place(address(1)));
        assert!(pending.admit(address(1)) && pending.admit(address(0)));
        assert!(!pending.admit(address(0)));
        for last in 0..=u8::MAX {
            for _ in 0..PENDING_MAX {
                pending.remove(address(last));
            }
        }
        assert!(pending.by_address.is_empty(), "nothing is kept of those who are gone");
        assert_eq!(pending.statistics().waiting, 0);
        assert_eq!(pending.statistics().refused, 5);
    }
}
