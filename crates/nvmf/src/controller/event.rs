//! Asynchronous events: which are raised, when they are sent, and the list of namespaces that
//! changed.
//!
//! An event is sent once, and then masked until the host has read its log page with Retain
//! Asynchronous Event cleared. That read shows all earlier changes; a later change raises the event
//! again.

pub(super) mod pending;

use weft_nvme::event::Event;
use weft_nvme::log_page::LogPageId;
use weft_nvme::{Command, Status};

use super::Controller;
use super::outcome::Outcome;
use crate::queue::CommandError;
use crate::subsystem::{NamespaceView, SubsystemView};

const LIMIT: CommandError =
    CommandError { status: Status::ASYNCHRONOUS_EVENT_LIMIT_EXCEEDED, parameter: None };

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
