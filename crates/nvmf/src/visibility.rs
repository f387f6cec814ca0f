//! Namespaces that not every host of a subsystem sees.
//!
//! A host that does not see all namespaces has a view of its own, in which the others are not
//! there: its Identify lists leave them out, its commands to them are refused as to any namespace
//! that does not exist, and it is told of a change as if they came or went.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use weft_nvme::Nqn;

use crate::subsystem::{NamespaceView, Namespaces, SubsystemView};

/// Which hosts see the namespaces that not every host sees.
#[derive(Debug, Default)]
pub struct Visibility {
    hosts: Arc<Hosts>,
    /// The views of hosts as long as somebody has them, by the namespaces that they see of those
    /// that not every host sees: hosts that see the same share one.
    views: Mutex<BTreeMap<BTreeSet<u32>, Weak<SubsystemView>>>,
    /// The namespaces that every host sees, once somebody asks: in the views of all hosts.
    of_all: OnceLock<Namespaces>,
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

    /// Whether a host sees a namespace that there is.
    #[must_use]
    pub fn shows(&self, nsid: u32, host: &Nqn) -> bool {
        self.hosts(nsid).is_none_or(|hosts| hosts.contains(host))
    }
}

impl SubsystemView {
    fn seen_by_all(&self) -> &Namespaces {
        let is_seen = |one: &&NamespaceView| {
            #[cfg(test)]
            tests::count_namespace();
            self.visibility.hosts(one.nsid).is_none()
        };
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
        let own = seen.iter().filter_map(|nsid| {
            #[cfg(test)]
            tests::count_namespace();
            self.namespaces.get(*nsid).copied()
        });
        let view =
            Arc::new(Self { namespaces: self.seen_by_all().with_own(own), ..(**self).clone() });
        if views.len().is_power_of_two() {
            views.retain(|_, view| view.strong_count() > 0);
        }
        views.insert(seen.clone(), Arc::downgrade(&view));
        view
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::subsystem::test_support::{HOST, nqn, view};

    thread_local! {
        /// Namespaces that were looked at for views of hosts on this thread.
        static NAMESPACES: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count_namespace() {
        NAMESPACES.set(NAMESPACES.get() + 1);
    }

    /// All I/O queues have their views within a turn: each costs what its host alone sees.
    #[test]
    fn a_view_costs_what_its_host_alone_sees() {
        const HOSTS: u32 = 500;
        let host = |number: u32| nqn(&format!("nqn.host{number}"));
        let mut all = view(&(1..=2 * HOSTS).collect::<Vec<_>>());
        // Those with odd numbers are of one host each.
        let of_one = |number| (2 * number + 1, BTreeSet::from([host(number)]));
        all.visibility = (0..HOSTS).map(of_one).collect();
        let (all, before) = (Arc::new(all), NAMESPACES.get());
        let views: Vec<_> = (0..HOSTS).map(|number| all.of_host(&host(number))).collect();
        assert_eq!(NAMESPACES.get() - before, (2 * HOSTS + HOSTS) as usize);
        for (view, number) in views.iter().zip(0..) {
            let (seen, own) = (&view.namespaces, 2 * number + 1);
            let expected: Vec<u32> =
                (1..=2 * HOSTS).filter(|nsid| nsid % 2 == 0 || *nsid == own).collect();
            assert!(seen.iter().map(|one| one.nsid).eq(expected.iter().copied()), "{number}");
            assert!(seen.len() == expected.len() && seen.get(own + 2).is_none());
            assert!(expected.iter().all(|nsid| seen.get(*nsid).is_some_and(|n| n.nsid == *nsid)));
            let above = seen.range(own..).map(|one| one.nsid);
            assert!(above.eq(expected.iter().copied().filter(|nsid| *nsid >= own)), "{number}");
        }
    }

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
