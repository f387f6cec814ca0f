//! The reservations of a subsystem's namespaces, and what its hosts may do.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use weft_nvme::Nqn;

use crate::limits::NSID_MAX;

use super::{HostId, Refusals, Reservations};

/// What is refused to a host, for each namespace: the words that its queues look at.
///
/// All queues of a host look at the same words, so that a change is there for all of them at once.
/// There are none until a namespace is reserved.
#[derive(Debug, Default)]
pub struct HostAccess(OnceLock<Box<[AtomicU8]>>);

impl HostAccess {
    /// Whether such a command to a namespace is refused.
    pub(crate) fn refuses(&self, nsid: u32, what: Refusals) -> bool {
        match self.0.get() {
            None => false,
            Some(words) => is_refused(words, nsid, what),
        }
    }

    /// Release: what was done for the change before is seen by the queues.
    pub(crate) fn set(&self, nsid: u32, refused: Refusals) {
        if refused == Refusals::NONE && self.0.get().is_none() {
            return;
        }
        let words = self.0.get_or_init(|| (0..=NSID_MAX).map(|_| AtomicU8::new(0)).collect());
        if let Some(word) = words.get(nsid as usize) {
            word.store(refused.0, Ordering::Release);
        }
    }
}

#[cold]
fn is_refused(words: &[AtomicU8], nsid: u32, what: Refusals) -> bool {
    let word = words.get(nsid as usize).map(|word| word.load(Ordering::Acquire));
    word.is_some_and(|word| word & what.0 != 0)
}

/// The reservations of a subsystem's namespaces.
///
/// The lock is taken by reservation commands and when a host connects, never by a command that
/// moves data.
#[derive(Debug, Default)]
pub struct ReservationTable(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// By NSID, with the UUID of the namespace that they are of. Those of a namespace that was
    /// removed are there if it comes back.
    namespaces: BTreeMap<u32, ([u8; 16], Reservations)>,
    hosts: BTreeMap<HostId, Weak<HostAccess>>,
    /// The NQN that each Host Identifier belongs to: controllers and registrations keep it.
    owners: BTreeMap<HostId, Weak<str>>,
}

impl ReservationTable {
    /// What is refused to a host, now and later.
    #[must_use]
    pub fn access(&self, host: &HostId) -> Arc<HostAccess> {
        let mut table = self.lock();
        if let Some(access) = table.hosts.get(host).and_then(Weak::upgrade) {
            return access;
        }
        let access = Arc::<HostAccess>::default();
        for (nsid, (_, reservations)) in &table.namespaces {
            access.set(*nsid, reservations.refused_to(host));
        }
        table.hosts.retain(|_, access| access.strong_count() > 0);
        table.hosts.insert(*host, Arc::downgrade(&access));
        access
    }

    /// Has a Host Identifier belong to a host for as long as what is returned is kept, or a
    /// registration of that host is there.
    ///
    /// # Errors
    /// The host that it belongs to.
    pub fn claim(&self, id: &HostId, host: &Nqn) -> Result<Arc<str>, Arc<str>> {
        // It is nobody's: a host without an identifier cannot register.
        if *id == HostId::default() {
            return Ok(host.as_str().into());
        }
        let mut table = self.lock();
        match table.owner(id) {
            Some(owner) if *owner == *host.as_str() => Ok(owner),
            Some(owner) => Err(owner),
            None => {
                let owner: Arc<str> = host.as_str().into();
                table.owners.retain(|_, owner| owner.strong_count() > 0);
                table.owners.insert(*id, Arc::downgrade(&owner));
                Ok(owner)
            }
        }
    }

    /// The host that a Host Identifier belongs to.
    #[must_use]
    pub fn owner(&self, id: &HostId) -> Option<Arc<str>> {
        self.lock().owner(id)
    }

    /// The reservations of a namespace.
    #[must_use]
    pub fn get(&self, nsid: u32) -> Reservations {
        self.lock().get(nsid)
    }

    /// A namespace is served: one that is new has these reservations.
    pub fn serve(&self, nsid: u32, uuid: [u8; 16], restored: Reservations) {
        let mut table = self.lock();
        match table.namespaces.get_mut(&nsid) {
            Some((known, _)) if *known == uuid => {}
            // Commands that came before it was told who it is.
            Some((known, _)) if *known == [0; 16] => *known = uuid,
            _ => {
                table.replace(nsid, restored);
                if let Some((known, _)) = table.namespaces.get_mut(&nsid) {
                    *known = uuid;
                }
            }
        }
    }

    /// A namespace has these reservations, whatever it had.
    pub fn replace(&self, nsid: u32, after: Reservations) {
        self.lock().replace(nsid, after);
    }

    /// Makes a change, unless `before` is not what there is any more. Returns the hosts that may
    /// do less than before. No host may do more before these are bound.
    pub fn change(
        &self,
        nsid: u32,
        before: &Reservations,
        after: Reservations,
    ) -> Option<Vec<HostId>> {
        let mut table = self.lock();
        (table.get(nsid) == *before).then(|| table.replace(nsid, after))
    }

    /// Nothing that is done under the lock can panic halfway.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn get(&self, nsid: u32) -> Reservations {
        self.namespaces.get(&nsid).map(|(_, known)| known.clone()).unwrap_or_default()
    }

    fn owner(&self, id: &HostId) -> Option<Arc<str>> {
        self.owners.get(id).and_then(Weak::upgrade)
    }

    fn replace(&mut self, nsid: u32, mut after: Reservations) -> Vec<HostId> {
        let before = self.get(nsid);
        // Every registration of a host keeps the same name.
        let known = after.owners().iter().map(|(id, name)| {
            let owner = self.owner(id).filter(|owner| owner == name);
            (*id, owner.unwrap_or_else(|| Arc::clone(name)))
        });
        let known: Vec<_> = known.collect();
        self.owners.extend(known.iter().map(|(id, name)| (*id, Arc::downgrade(name))));
        after.add_owners(known);
        let (mut losers, mut others) = (Vec::new(), Vec::new());
        for (host, access) in &self.hosts {
            let Some(access) = access.upgrade() else { continue };
            let (was, is) = (before.refused_to(host), after.refused_to(host));
            if is.exceeds(was) {
                access.set(nsid, is);
                losers.push(*host);
            } else if is != was {
                others.push((access, is));
            }
        }
        for (access, is) in others {
            access.set(nsid, is);
        }
        self.namespaces.entry(nsid).or_default().1 = after;
        losers
    }
}
