//! The table of a subsystem's namespaces.

use std::ops::RangeFrom;
use std::sync::Arc;

use crate::subsystem::NamespaceView;

/// The active namespaces of a subsystem in the order of their identifiers, which are mostly 1, 2, 3
/// and so on. The view and the queues share one table, and hosts that do not see all namespaces the
/// table of those that every host sees.
#[derive(Debug, Clone, Default)]
pub struct Namespaces {
    all: Arc<[NamespaceView]>,
    /// Those that only some hosts see, of which the table is for one.
    own: Arc<[NamespaceView]>,
}

impl FromIterator<NamespaceView> for Namespaces {
    fn from_iter<T: IntoIterator<Item = NamespaceView>>(namespaces: T) -> Self {
        let mut sorted: Vec<_> = namespaces.into_iter().collect();
        sorted.sort_by_key(|namespace| namespace.nsid);
        Self { all: sorted.into(), own: Arc::default() }
    }
}

impl PartialEq for Namespaces {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Namespaces {}

impl Namespaces {
    /// These, and others in the order of their identifiers, which are not among them.
    pub(crate) fn with_own(&self, own: impl Iterator<Item = NamespaceView>) -> Self {
        Self { all: Arc::clone(&self.all), own: own.collect() }
    }

    /// The namespace of this identifier.
    #[must_use]
    pub fn get(&self, nsid: u32) -> Option<&NamespaceView> {
        let guess = usize::try_from(nsid.wrapping_sub(1)).unwrap_or(usize::MAX);
        if let Some(namespace) = self.all.get(guess)
            && namespace.nsid == nsid
        {
            return Some(namespace);
        }
        [&self.all, &self.own].into_iter().find_map(|part| part.get(find(part, nsid)?))
    }

    /// The same to be changed, in this table alone.
    pub fn get_mut(&mut self, nsid: u32) -> Option<&mut NamespaceView> {
        let part = if find(&self.all, nsid).is_some() { &mut self.all } else { &mut self.own };
        let index = find(part, nsid)?;
        Arc::make_mut(part).get_mut(index)
    }

    /// The same with this namespace in the place of the one of this identifier, or without one.
    #[must_use]
    pub fn with(&self, nsid: u32, namespace: Option<NamespaceView>) -> Self {
        self.iter().filter(|one| one.nsid != nsid).copied().chain(namespace).collect()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len() + self.own.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &NamespaceView> {
        self.range(0..)
    }

    /// All of them to be changed, in this table alone.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut NamespaceView> {
        Arc::make_mut(&mut self.all).iter_mut().chain(Arc::make_mut(&mut self.own))
    }

    /// Those from this identifier on.
    pub(crate) fn range(&self, from: RangeFrom<u32>) -> impl Iterator<Item = &NamespaceView> {
        let part = |part: &'_ Arc<[NamespaceView]>| {
            part.partition_point(|namespace| namespace.nsid < from.start)
        };
        let (all, own) = (part(&self.all), part(&self.own));
        let mut all = self.all.iter().skip(all).peekable();
        let mut own = self.own.iter().skip(own).peekable();
        std::iter::from_fn(move || match (all.peek(), own.peek()) {
            (Some(one), Some(other)) if other.nsid < one.nsid => own.next(),
            (None, _) => own.next(),
            _ => all.next(),
        })
    }
}

fn find(part: &[NamespaceView], nsid: u32) -> Option<usize> {
    part.binary_search_by_key(&nsid, |namespace| namespace.nsid).ok()
}
