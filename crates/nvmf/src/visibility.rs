//! Namespaces that not every host of a subsystem sees.
//!
//! A host that does not see all namespaces has a view of its own, in which the others are not
//! there: its Identify lists leave them out, its commands to them are refused as to any namespace
//! that does not exist, and it is told of a change as if they came or went.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use weft_nvme::Nqn;

use crate::subsystem::SubsystemView;

/// Which hosts see the namespaces that not every host sees.
#[derive(Debug, Default)]
pub struct Visibility {
    /// By Namespace Identifier.
    hosts: BTreeMap<u32, BTreeSet<Nqn>>,
    /// The views of hosts as long as somebody has them, so that all queues of a host share one.
    views: Mutex<BTreeMap<Nqn, Weak<SubsystemView>>>,
}

impl Clone for Visibility {
    /// Without the hosts' views, since the copy may belong to a view that is changed.
    fn clone(&self) -> Self {
        Self { hosts: self.hosts.clone(), views: Mutex::default() }
    }
}

impl FromIterator<(u32, BTreeSet<Nqn>)> for Visibility {
    fn from_iter<T: IntoIterator<Item = (u32, BTreeSet<Nqn>)>>(hosts: T) -> Self {
        Self { hosts: hosts.into_iter().collect(), views: Mutex::default() }
    }
}

impl Visibility {
    /// The hosts that see a namespace; `None`: every host.
    #[must_use]
    pub fn hosts(&self, nsid: u32) -> Option<&BTreeSet<Nqn>> {
        self.hosts.get(&nsid)
    }

    fn shows(&self, nsid: u32, host: &Nqn) -> bool {
        self.hosts(nsid).is_none_or(|hosts| hosts.contains(host))
    }
}

impl SubsystemView {
    /// What a host sees of this subsystem.
    #[must_use]
    pub fn of_host(self: &Arc<Self>, host: &Nqn) -> Arc<Self> {
        if self.visibility.hosts.keys().all(|nsid| self.visibility.shows(*nsid, host)) {
            return Arc::clone(self);
        }
        // An entry is complete whenever the lock is released.
        let mut views = self.visibility.views.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = views.get(host).and_then(Weak::upgrade) {
            return known;
        }
        let seen = self.namespaces.iter();
        let seen = seen.filter(|namespace| self.visibility.shows(namespace.nsid, host));
        let view = Arc::new(Self {
            namespaces: seen.copied().collect(),
            visibility: Visibility::default(),
            ..(**self).clone()
        });
        views.retain(|_, view| view.strong_count() > 0);
        views.insert(*host, Arc::downgrade(&view));
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
        assert!(!Arc::ptr_eq(&first, &(*all).clone().into_shared().of_host(&one)), "of a copy");
    }

    impl SubsystemView {
        fn into_shared(self) -> Arc<Self> {
            Arc::new(self)
        }
    }
}
