//! Which connections of a reactor get events from a source that they share.

use std::io;

use weft_reactor::{Outcome, ReactorCompletion, Token};

/// Identifies one entry. No two have the same number at a time, and a number is rarely used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subscription(pub(crate) u32);

impl Subscription {
    fn index(self) -> usize {
        usize::from(u16::try_from(self.0 & 0xffff).unwrap_or(u16::MAX))
    }
}

/// The entries of one source, each with its events that were not taken yet.
#[derive(Debug)]
pub(crate) struct Subscriptions<M> {
    entries: Vec<Option<Entry<M>>>,
    free: Vec<usize>,
    serial: u16,
}

#[derive(Debug)]
struct Entry<M> {
    subscription: Subscription,
    token: Token,
    notified: bool,
    events: M,
}

impl<M: Default> Subscriptions<M> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), serial: 0 }
    }

    /// A new entry, whose owner is notified under this token.
    pub(crate) fn take(&mut self, token: Token) -> io::Result<Subscription> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.entries.push(None);
                self.entries.len() - 1
            }
        };
        let number = u16::try_from(index).map_err(|_| io::ErrorKind::OutOfMemory)?;
        self.serial = self.serial.wrapping_add(1);
        let subscription = Subscription(u32::from(self.serial) << 16 | u32::from(number));
        if let Some(entry) = self.entries.get_mut(index) {
            *entry = Some(Entry { subscription, token, notified: false, events: M::default() });
        }
        Ok(subscription)
    }

    /// Removes an entry and returns the events that were not taken.
    pub(crate) fn unsubscribe(&mut self, subscription: Subscription) -> Option<M> {
        let entry = self.entries.get_mut(subscription.index())?;
        let entry = entry.take_if(|entry| entry.subscription == subscription)?;
        self.free.push(subscription.index());
        Some(entry.events)
    }

    /// The events of an entry, to be taken: the owner is notified again of the next one.
    pub(crate) fn open(&mut self, subscription: Subscription) -> Option<&mut M> {
        let entry = self.entry(subscription)?;
        entry.notified = false;
        Some(&mut entry.events)
    }

    /// The events of an entry, which stay there.
    pub(crate) fn peek(&self, subscription: Subscription) -> Option<&M> {
        let entry = self.entries.get(subscription.index())?.as_ref()?;
        (entry.subscription == subscription).then_some(&entry.events)
    }

    /// The same, to change what is known of the owner.
    pub(crate) fn peek_mut(&mut self, subscription: Subscription) -> Option<&mut M> {
        self.entry(subscription).map(|entry| &mut entry.events)
    }

    /// Adds to the events of an entry. Its owner is notified unless it has been already.
    pub(crate) fn deliver(
        &mut self,
        subscription: Subscription,
        ready: &mut Vec<ReactorCompletion>,
    ) -> Option<&mut M> {
        let entry = self.entry(subscription)?;
        if !std::mem::replace(&mut entry.notified, true) {
            ready.push(ReactorCompletion { token: entry.token, outcome: Outcome::SourceEvents });
        }
        Some(&mut entry.events)
    }

    fn entry(&mut self, subscription: Subscription) -> Option<&mut Entry<M>> {
        self.entries
            .get_mut(subscription.index())?
            .as_mut()
            .filter(|entry| entry.subscription == subscription)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_reactor::Owner;

    #[test]
    fn an_owner_is_notified_once_until_it_takes_the_events() {
        let mut subscriptions = Subscriptions::<Vec<u8>>::new();
        let subscription = subscriptions.take(Token::new(Owner(1), 7)).unwrap();
        let mut ready = Vec::new();
        for byte in 0..3 {
            subscriptions.deliver(subscription, &mut ready).unwrap().push(byte);
        }
        assert_eq!(ready.len(), 1);
        assert_eq!(ready[0].token, Token::new(Owner(1), 7));
        assert_eq!(std::mem::take(subscriptions.open(subscription).unwrap()), [0, 1, 2]);
        subscriptions.deliver(subscription, &mut ready);
        assert_eq!(ready.len(), 2);
    }

    #[test]
    fn events_of_a_removed_entry_do_not_reach_its_successor() {
        let mut subscriptions = Subscriptions::<Vec<u8>>::new();
        let gone = subscriptions.take(Token::new(Owner(1), 1)).unwrap();
        assert_eq!(subscriptions.unsubscribe(gone), Some(Vec::new()));
        let here = subscriptions.take(Token::new(Owner(1), 2)).unwrap();
        assert_eq!(gone.index(), here.index());
        let mut ready = Vec::new();
        assert!(subscriptions.deliver(gone, &mut ready).is_none() && ready.is_empty());
        assert!(subscriptions.unsubscribe(gone).is_none() && subscriptions.open(here).is_some());
    }
}
