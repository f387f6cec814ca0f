//! Asynchronous events: which are raised, when they are sent, and the list of namespaces that
//! changed.
//!
//! An event is sent once, and then masked until the host has read its log page with Retain
//! Asynchronous Event cleared. That read shows all earlier changes; a later change raises the event
//! again.

use std::collections::{BTreeSet, VecDeque};

use weft_nvme::event::Event;
use weft_nvme::log_page::LogPageId;
use weft_nvme::{Command, Status};

use super::Controller;
use super::admin::Outcome;
use crate::queue::CommandError;
use crate::subsystem::{NamespaceView, SubsystemView};

/// Identifiers that the Changed Attached Namespace List can hold.
const CHANGED_NAMESPACES_MAX: usize = 1024;

const LIMIT: CommandError =
    CommandError { status: Status::ASYNCHRONOUS_EVENT_LIMIT_EXCEEDED, parameter: None };

/// The events and requests of a controller.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Identifiers of the Asynchronous Event Requests that wait.
    pub(super) requests: VecDeque<u16>,
    /// Raised, and not yet sent.
    pub(super) raised: VecDeque<Event>,
    /// Sent, and not to be sent again until their log page is read.
    pub(super) masked: Vec<Event>,
}

impl Events {
    /// Raises an event, unless it is raised already or masked.
    fn raise(&mut self, event: Event) {
        if !self.raised.contains(&event) && !self.masked.contains(&event) {
            self.raised.push_back(event);
        }
    }

    /// The host read a log page with Retain Asynchronous Event cleared.
    fn clear(&mut self, log_page: LogPageId) {
        self.raised.retain(|event| event.log_page() != log_page);
        self.masked.retain(|event| event.log_page() != log_page);
    }

    /// The next event to send, with the request that it answers.
    fn next(&mut self) -> Option<(u16, Event)> {
        if self.raised.is_empty() {
            return None;
        }
        let request = self.requests.pop_front()?;
        let event = self.raised.pop_front()?;
        self.masked.push(event);
        Some((request, event))
    }

    /// Removes every event; the requests are answered by [`Self::take_requests`].
    pub(super) fn reset(&mut self) {
        self.raised.clear();
        self.masked.clear();
    }

    /// A command came with this identifier. If a request has it that waits, then the host has given
    /// its requests up: these are taken, and none of them is answered any more.
    ///
    /// SPDK's host does so before it shuts a controller down or disables it, and would take a
    /// completion for that of the command.
    pub(super) fn note_identifier(&mut self, command_id: u16) -> VecDeque<u16> {
        match self.is_waiting(command_id) {
            true => self.take_requests(),
            false => VecDeque::new(),
        }
    }

    /// Takes all requests that wait.
    pub(super) fn take_requests(&mut self) -> VecDeque<u16> {
        std::mem::take(&mut self.requests)
    }

    /// Whether a request of this identifier waits.
    pub(super) fn is_waiting(&self, command_id: u16) -> bool {
        self.requests.contains(&command_id)
    }

    /// Takes one request back, if it waits.
    pub(super) fn withdraw(&mut self, command_id: u16) -> bool {
        let found = self.requests.iter().position(|request| *request == command_id);
        found.and_then(|index| self.requests.remove(index)).is_some()
    }
}

/// The Changed Attached Namespace List in the making.
#[derive(Debug, Default)]
pub(super) struct ChangedNamespaces {
    nsids: BTreeSet<u32>,
    overflowed: bool,
}

impl ChangedNamespaces {
    fn add(&mut self, nsid: u32) {
        if self.nsids.len() < CHANGED_NAMESPACES_MAX || self.nsids.contains(&nsid) {
            self.nsids.insert(nsid);
        } else {
            self.overflowed = true;
        }
    }

    /// The identifiers in ascending order; `None` if there are more than the list can hold.
    pub(super) fn list(&self) -> Option<impl Iterator<Item = u32> + '_> {
        (!self.overflowed).then(|| self.nsids.iter().copied())
    }

    pub(super) fn clear(&mut self) {
        self.nsids.clear();
        self.overflowed = false;
    }
}

impl Controller {
    /// Takes an Asynchronous Event Request: answered when there is an event.
    pub(super) fn event_request(&mut self, command: &Command) -> Result<Outcome, CommandError> {
        if self.events.requests.len() >= usize::from(self.view.limits.max_event_requests.max(1)) {
            return Err(LIMIT);
        }
        self.events.requests.push_back(command.command_id.get());
        self.deliver_events();
        Ok(Outcome::Pending)
    }

    /// Raises an event, if the host has enabled it.
    pub(super) fn raise(&mut self, event: Event) {
        if self.features.is_event_enabled(event) {
            self.events.raise(event);
        }
    }

    /// Sends the events that are raised, as long as requests wait.
    pub(super) fn deliver_events(&mut self) {
        while let Some((request, event)) = self.events.next() {
            let completion = self.completion(request, Status::SUCCESS);
            self.complete_late(completion.with_dword0(event.0));
        }
    }

    /// The host has read a log page, which unmasks its event.
    pub(super) fn clear_events(&mut self, log_page: LogPageId) {
        self.events.clear(log_page);
        if log_page == LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST {
            self.changed_namespaces.clear();
        }
    }

    /// Notes what is different from an older view.
    pub(super) fn note_changes(&mut self, old: &SubsystemView) {
        if let (Some(new), Some(old)) = (self.view.discovery(), old.discovery()) {
            if new.generation != old.generation {
                self.raise(Event::DISCOVERY_LOG_PAGE_CHANGE);
            }
            return;
        }
        let was = |nsid| old.namespaces.get(nsid).is_some_and(NamespaceView::is_degraded);
        let is_news = |namespace: &NamespaceView| namespace.is_degraded() && !was(namespace.nsid);
        if self.view.namespaces.iter().any(is_news) {
            self.raise_health_events();
        }
        self.note_ana_changes(old);
        let changed = changed_namespaces(old, &self.view);
        if changed.is_empty() {
            return;
        }
        for nsid in changed {
            self.changed_namespaces.add(nsid);
        }
        self.raise(Event::NAMESPACE_ATTRIBUTE_CHANGED);
    }
}

/// The namespaces that were added, removed or changed.
fn changed_namespaces(old: &SubsystemView, new: &SubsystemView) -> Vec<u32> {
    let is_gone = |known: &&NamespaceView| new.namespaces.get(known.nsid).is_none();
    let differs = |namespace: &&NamespaceView| {
        let known = old.namespaces.get(namespace.nsid);
        known.is_none_or(|known| namespace.differs_for_hosts(known))
    };
    let gone = old.namespaces.iter().filter(is_gone);
    gone.chain(new.namespaces.iter().filter(differs)).map(|namespace| namespace.nsid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subsystem::test_support::view;

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

    #[test]
    fn changes_are_additions_removals_and_differences() {
        let old = view(&[1, 2, 3]);
        let mut new = view(&[2, 3, 4]);
        assert_eq!(changed_namespaces(&old, &old), vec![]);
        if let Some(namespace) = new.namespaces.get_mut(3) {
            namespace.blocks += 1;
        }
        assert_eq!(changed_namespaces(&old, &new), vec![1, 3, 4]);
    }
}
