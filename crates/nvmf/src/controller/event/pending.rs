//! Events that are raised, and the requests that wait for them.

use std::collections::{BTreeSet, VecDeque};

use weft_nvme::event::Event;
use weft_nvme::log_page::LogPageId;

/// Identifiers that the Changed Attached Namespace List can hold.
const CHANGED_NAMESPACES_MAX: usize = 1024;

/// The events and requests of a controller.
#[derive(Debug, Default)]
pub(in crate::controller) struct Events {
    /// Identifiers of the Asynchronous Event Requests that wait.
    pub(in crate::controller) requests: VecDeque<u16>,
    /// Raised, and not yet sent.
    pub(in crate::controller) raised: VecDeque<Event>,
    /// Sent, and not to be sent again until their log page is read.
    pub(in crate::controller) masked: Vec<Event>,
}

impl Events {
    /// Raises an event, unless it is raised already or masked.
    pub(in crate::controller) fn raise(&mut self, event: Event) {
        if !self.raised.contains(&event) && !self.masked.contains(&event) {
            self.raised.push_back(event);
        }
    }

    /// The host read a log page with Retain Asynchronous Event cleared.
    pub(in crate::controller) fn clear(&mut self, log_page: LogPageId) {
        self.raised.retain(|event| event.log_page() != log_page);
        self.masked.retain(|event| event.log_page() != log_page);
    }

    /// The next event to send, with the request that it answers.
    pub(in crate::controller) fn next(&mut self) -> Option<(u16, Event)> {
        if self.raised.is_empty() {
            return None;
        }
        let request = self.requests.pop_front()?;
        let event = self.raised.pop_front()?;
        self.masked.push(event);
        Some((request, event))
    }

    /// Removes every event; the requests are answered by [`Self::take_requests`].
    pub(in crate::controller) fn reset(&mut self) {
        self.raised.clear();
        self.masked.clear();
    }

    /// A command came with this identifier. If a request has it that waits, then the host has given
    /// its requests up: these are taken, and none of them is answered any more.
    ///
    /// SPDK's host does so before it shuts a controller down or disables it, and would take a
    /// completion for that of the command.
    pub(in crate::controller) fn note_identifier(&mut self, command_id: u16) -> VecDeque<u16> {
        match self.is_waiting(command_id) {
            true => self.take_requests(),
            false => VecDeque::new(),
        }
    }

    /// Takes all requests that wait.
    pub(in crate::controller) fn take_requests(&mut self) -> VecDeque<u16> {
        std::mem::take(&mut self.requests)
    }

    /// Whether a request of this identifier waits.
    pub(in crate::controller) fn is_waiting(&self, command_id: u16) -> bool {
        self.requests.contains(&command_id)
    }

    /// Takes one request back, if it waits.
    pub(in crate::controller) fn withdraw(&mut self, command_id: u16) -> bool {
        let found = self.requests.iter().position(|request| *request == command_id);
        found.and_then(|index| self.requests.remove(index)).is_some()
    }
}

/// The Changed Attached Namespace List in the making.
#[derive(Debug, Default)]
pub(in crate::controller) struct ChangedNamespaces {
    nsids: BTreeSet<u32>,
    overflowed: bool,
}

impl ChangedNamespaces {
    pub(in crate::controller) fn add(&mut self, nsid: u32) {
        if self.nsids.len() < CHANGED_NAMESPACES_MAX || self.nsids.contains(&nsid) {
            self.nsids.insert(nsid);
        } else {
            self.overflowed = true;
        }
    }

    /// The identifiers in ascending order; `None` if there are more than the list can hold.
    pub(in crate::controller) fn list(&self) -> Option<impl Iterator<Item = u32> + '_> {
        (!self.overflowed).then(|| self.nsids.iter().copied())
    }

    pub(in crate::controller) fn clear(&mut self) {
        self.nsids.clear();
        self.overflowed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMESPACE: Event = Event::NAMESPACE_ATTRIBUTE_CHANGED;
    const DISCOVERY: Event = Event::DISCOVERY_LOG_PAGE_CHANGE;

    #[test]
    fn an_event_waits_for_a_request_and_a_request_for_an_event() {
        let mut events = Events::default();
        events.raise(NAMESPACE);
        events.raise(NAMESPACE);
        assert_eq!(events.next(), None);
        events.requests.extend([7, 8]);
        assert_eq!(events.next(), Some((7, NAMESPACE)));
        assert_eq!(events.next(), None, "raised twice, sent once");
        events.raise(DISCOVERY);
        assert_eq!(events.next(), Some((8, DISCOVERY)), "another kind is not masked");
    }

    #[test]
    fn an_event_is_masked_until_its_log_page_is_read() {
        let mut events = Events::default();
        events.requests.extend([1, 2]);
        events.raise(NAMESPACE);
        assert_eq!(events.next(), Some((1, NAMESPACE)));
        events.raise(NAMESPACE);
        assert_eq!(events.next(), None);
        events.clear(DISCOVERY.log_page());
        events.raise(NAMESPACE);
        assert_eq!(events.next(), None, "another log page");
        events.clear(NAMESPACE.log_page());
        assert_eq!(events.next(), None, "the read showed it");
        events.raise(NAMESPACE);
        assert_eq!(events.next(), Some((2, NAMESPACE)));
    }

    #[test]
    fn requests_can_be_withdrawn() {
        let mut events = Events::default();
        events.requests.extend([1, 2, 3]);
        assert!(events.withdraw(2));
        assert!(!events.withdraw(2));
        assert_eq!(events.take_requests(), [1, 3]);
    }

    #[test]
    fn the_list_of_changes_is_bounded() {
        let mut changed = ChangedNamespaces::default();
        for nsid in (1..=1024).rev() {
            changed.add(nsid);
        }
        changed.add(5);
        assert!(changed.list().expect("whole").eq(1..=1024));
        changed.add(1025);
        assert!(changed.list().is_none());
        changed.clear();
        assert_eq!(changed.list().expect("whole").count(), 0);
    }
}
