//! Namespaces that not every host of a subsystem sees.
//!
//! A host that does not see all namespaces has a view of its own, in which the others are not
//! there: its Identify lists leave them out, its commands to them are refused as to any namespace
//! that does not exist, and it is told of a change as if they came or went.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use weft_nvme::Nqn;

use crate::subsystem::{NamespaceView, SubsystemView};

/// Which hosts see the namespaces that not every host sees.
#[derive(Debug, Default)]
pub struct Visibility {
    hosts: Arc<Hosts>,
    /// The views of hosts as long as somebody has them, by the namespaces that they see of those
    /// that not every host sees: hosts that see the same share one.
    views: Mutex<BTreeMap<BTreeSet<u32>, Weak<SubsystemView>>>,
    /// The namespaces that every host sees, once somebody asks.
    of_all: OnceLock<Vec<NamespaceView>>,
}

/// Namespaces that not every host sees, and the same by host: nobody looks through all of them for
/// each host.
#[derive(Debug, Default)]
struct Hosts {
    by_namespace: BTreeMap<u32, BTreeSet<Nqn>>,
    by_host: BTreeMap<Nqn, BTreeSet<u32>>,
}

impl Clone for Visibility {
    /// Without the hosts' views, since the copy may belong to a view that is changed.
    fn clone(&self) -> Self {
        Self { hosts: Arc::clone(&self.hosts), views: Mutex::default(), of_all: OnceLock::new() }
    }
}

impl FromIterator<(u32, BTreeSet<Nqn>)> for Visibility {
    fn from_iter<T: IntoIterator<Item = (u32, BTreeSet<Nqn>)>>(hosts: T) -> Self {
        let by_namespace: BTreeMap<_, _> = hosts.into_iter().collect();
        let mut by_host: BTreeMap<Nqn, BTreeSet<u32>> = BTreeMap::new();
        for (nsid, hosts) in &by_namespace {
            for host in hosts {
                by_host.entry(*host).or_default().insert(*nsid);
            }
        }
        Self {
            hosts: Arc::new(Hosts { by_namespace, by_host }),
            views: Mutex::default(),
            of_all: OnceLock::new(),
        }
    }
}

impl Visibility {
    /// The hosts that see a namespace; `None`: every host.
    #[must_use]
    pub fn hosts(&self, nsid: u32) -> Option<&BTreeSet<Nqn>> {
        self.hosts.by_namespace.get(&nsid)
    }
}

impl SubsystemView {
    fn seen_by_all(&self) -> &[NamespaceView] {
        let is_seen = |one: &&NamespaceView| self.visibility.hosts(one.nsid).is_none();
        let all = || self.namespaces.iter().filter(is_seen).copied().collect();
        self.visibility.of_all.get_or_init(all)
    }

    /// What a host sees of this subsystem.
    #[must_use]
    pub fn of_host(self: &Arc<Self>, host: &Nqn) -> Arc<Self> {
        let Hosts { by_namespace, by_host } = &*self.visibility.hosts;
        let none = BTreeSet::new();
        let seen = by_host.get(host).unwrap_or(&none);
        if seen.len() == by_namespace.len() {
            return Arc::clone(self);
        }
        // An entry is complete whenever the lock is released.
        let mut views = self.visibility.views.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = views.get(seen).and_then(Weak::upgrade) {
            return known;
        }
        let of_all = self.seen_by_all().iter().copied();
        let own = seen.iter().filter_map(|nsid| self.namespaces.get(*nsid).copied());
        let view = Arc::new(Self {
            namespaces: of_all.chain(own).collect(),
            visibility: Visibility::default(),
            ..(**self).clone()
        });
        if views.len().is_power_of_two() {
            views.retain(|_, view| view.strong_count() > 0);
        }
        views.insert(seen.clone(), Arc::downgrade(&view));
        view
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subsystem::test_support::{HOST, nqn, view};

    #[test]
    fn a_host_sees_what_every_host_sees_and_what_it_may() {
        let (one, other) = (nqn(HOST), nqn("other"));
        let mut all = view(&[1, 2, 3]);
        let plain = Arc::new(all.clone());
        assert!(Arc::ptr_eq(&plain, &plain.of_host(&one)), "there is nothing to hide");
        all.visibility = [(2, [one].into()), (3, BTreeSet::new())].into_iter().collect();
        let all = Arc::new(all);
        let seen = |host: &Nqn| -> Vec<u32> {
            all.of_host(host).namespaces.iter().map(|namespace| namespace.nsid).collect()
        };
        assert_eq!((seen(&one), seen(&other)), (vec![1, 2], vec![1]));
        let (first, second) = (all.of_host(&one), all.of_host(&one));
        assert!(Arc::ptr_eq(&first, &second), "queues of a host share one view");
        let (some, more) = (all.of_host(&nqn("a")), all.of_host(&nqn("b")));
        assert!(Arc::ptr_eq(&some, &more), "and hosts that see the same");
        assert!(!Arc::ptr_eq(&first, &(*all).clone().into_shared().of_host(&one)), "of a copy");
    }

    impl SubsystemView {
        fn into_shared(self) -> Arc<Self> {
            Arc::new(self)
        }
    }
}
