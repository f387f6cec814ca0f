//! Keys of TLS that authentications have made (secure concatenation).
//!
//! A key waits for the host's next connection, for a while. From the Connect of an admin queue over
//! TLS with it on it belongs to that queue: it is good for the I/O queues of the controller, until
//! another exchange on the queue replaces it or the queue ends. Connections outlive their keys.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weft_nvmf::keys::{TlsIdentity, TlsPsk};

use crate::shared::ids::ConnectionId;
use crate::shared::limits::KEYS_WAITING_MAX;

/// One for the whole target.
#[derive(Debug, Default)]
pub(crate) struct GeneratedKeys(Mutex<Keys>);

#[derive(Debug, Default)]
struct Keys {
    by_identity: BTreeMap<String, Key>,
    /// How many there have been.
    count: u64,
}

#[derive(Debug)]
struct Key {
    psk: TlsPsk,
    number: u64,
    user: User,
}

#[derive(Debug, PartialEq, Eq)]
enum User {
    /// Its host has not come with it, for which it has until then, on the clock of this group.
    Nobody { group: usize, until: Duration },
    /// This admin queue, and the I/O queues of its controller.
    Queue(ConnectionId),
}

impl GeneratedKeys {
    /// Keeps a key until its host comes with it. Of one host at one subsystem a number of them may
    /// wait, of which the oldest gives way.
    pub(crate) fn add(&self, psk: TlsPsk, group: usize, now: Duration, until: Duration) {
        let mut keys = self.lock();
        keys.expire(group, now);
        let names = names(&psk.identity);
        let waiting = keys.by_identity.iter().filter(|(identity, key)| {
            matches!(key.user, User::Nobody { .. }) && self::names(identity) == names
        });
        let waiting: Vec<_> =
            waiting.map(|(identity, key)| (key.number, identity.clone())).collect();
        if waiting.len() >= KEYS_WAITING_MAX
            && let Some((_, oldest)) = waiting.iter().min()
        {
            keys.by_identity.remove(oldest);
        }
        keys.insert(psk, User::Nobody { group, until });
    }

    /// The key of an identity.
    pub(crate) fn find(&self, identity: &str) -> Option<TlsPsk> {
        self.lock().by_identity.get(identity).map(|key| key.psk.clone())
    }

    /// From now on a key belongs to this admin queue, whose connection has it. False: there is no
    /// such key any more.
    pub(crate) fn claim(&self, identity: &str, queue: ConnectionId) -> bool {
        let mut keys = self.lock();
        let Some(key) = keys.by_identity.get_mut(identity) else { return false };
        key.user = User::Queue(queue);
        true
    }

    /// This admin queue has another key in place of the one that it had.
    pub(crate) fn replace(&self, queue: ConnectionId, psk: TlsPsk) {
        let mut keys = self.lock();
        keys.release(queue);
        keys.insert(psk, User::Queue(queue));
    }

    /// This admin queue has ended, and its key with it.
    pub(crate) fn release(&self, queue: ConnectionId) {
        self.lock().release(queue);
    }

    /// Forgets the keys of this group with which nobody has come in time.
    pub(crate) fn expire(&self, group: usize, now: Duration) {
        self.lock().expire(group, now);
    }

    /// Every change is complete when the lock is released.
    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keys {
    fn insert(&mut self, psk: TlsPsk, user: User) {
        self.count += 1;
        let key = Key { number: self.count, user, psk };
        self.by_identity.insert(key.psk.identity.clone(), key);
    }

    fn release(&mut self, queue: ConnectionId) {
        self.by_identity.retain(|_, key| key.user != User::Queue(queue));
    }

    fn expire(&mut self, own: usize, now: Duration) {
        self.by_identity.retain(|_, key| {
            !matches!(key.user, User::Nobody { group, until } if group == own && until <= now)
        });
    }
}

/// The host and the subsystem of an identity.
fn names(identity: &str) -> Option<(&str, &str)> {
    let TlsIdentity { host, subsystem, .. } = TlsIdentity::parse(identity)?;
    Some((host, subsystem))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_nvmf::auth::{GeneratedPsk, HashFunction};

    const NOW: Duration = Duration::from_secs(10);
    const LATER: Duration = Duration::from_secs(20);

    fn psk(host: &str, number: u8) -> TlsPsk {
        let hash = HashFunction::Sha256;
        let psk = vec![number; hash.length()].into();
        TlsPsk::generated(&GeneratedPsk { hash, psk }, host, "nqn.s").expect("a key")
    }

    fn queue(serial: u64) -> ConnectionId {
        ConnectionId { group: 0, index: 0, serial }
    }

    #[test]
    fn a_key_waits_for_its_host_and_goes_with_its_queue() {
        let keys = GeneratedKeys::default();
        let (first, second) = (psk("nqn.h", 1), psk("nqn.h", 2));
        keys.add(first.clone(), 0, NOW, LATER);
        keys.add(second.clone(), 0, NOW, LATER);
        assert_eq!(keys.find(&first.identity), Some(first.clone()));
        assert!(keys.claim(&first.identity, queue(1)));
        keys.expire(1, LATER);
        assert!(keys.find(&second.identity).is_some(), "another group's clock");
        keys.expire(0, LATER);
        assert!(keys.find(&second.identity).is_none(), "nobody has come with it");
        assert!(!keys.claim(&second.identity, queue(2)));
        assert!(keys.find(&first.identity).is_some(), "it is in use");
        let third = psk("nqn.h", 3);
        keys.replace(queue(1), third.clone());
        assert!(keys.find(&first.identity).is_none(), "it was replaced");
        assert!(keys.find(&third.identity).is_some());
        keys.release(queue(2));
        assert!(keys.find(&third.identity).is_some(), "that was another queue");
        keys.release(queue(1));
        assert!(keys.lock().by_identity.is_empty());
    }

    #[test]
    fn keys_that_wait_are_bounded_for_each_host() {
        let keys = GeneratedKeys::default();
        let other = psk("nqn.other", 0);
        keys.add(other.clone(), 0, NOW, LATER);
        let most = u8::try_from(KEYS_WAITING_MAX).expect("few");
        for number in 0..=most {
            keys.add(psk("nqn.h", number), 0, NOW, LATER);
        }
        assert_eq!(keys.lock().by_identity.len(), KEYS_WAITING_MAX + 1);
        assert!(keys.find(&psk("nqn.h", 0).identity).is_none(), "the oldest");
        assert!(keys.find(&psk("nqn.h", most).identity).is_some(), "the newest");
        assert!(keys.find(&other.identity).is_some(), "another host's");
    }
}
