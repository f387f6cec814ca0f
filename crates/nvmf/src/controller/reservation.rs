//! The log of reservation notifications.

use std::collections::VecDeque;

use weft_nvme::Wire;
use weft_nvme::event::Event;
use weft_nvme::log_page::{ReservationNotification, ReservationNotificationType};
use weft_nvme::wire::{U32, U64};

use super::Controller;

/// Notifications that wait to be read: as many as with the Linux target. The oldest goes first.
const LENGTH_MAX: usize = 64;

/// The notifications that the host has not read yet, oldest first.
#[derive(Debug, Default)]
pub(super) struct Log {
    count: u64,
    waiting: VecDeque<ReservationNotification>,
}

impl Log {
    /// The log page: the oldest notification, or an empty one.
    pub(super) fn page(&self) -> Vec<u8> {
        let mut page = self.waiting.front().copied().unwrap_or_default();
        let more = self.waiting.len().saturating_sub(1);
        page.available = u8::try_from(more).unwrap_or(u8::MAX);
        page.bytes().to_vec()
    }

    /// The oldest notification has been read.
    pub(super) fn pop(&mut self) {
        self.waiting.pop_front();
    }

    fn push(&mut self, nsid: u32, kind: ReservationNotificationType) {
        self.count += 1;
        if self.waiting.len() == LENGTH_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(ReservationNotification {
            count: U64::new(self.count),
            notification_type: kind,
            namespace_id: U32::new(nsid),
            ..ReservationNotification::default()
        });
    }
}

impl Controller {
    /// Another host has changed the reservations of a namespace; the host is told unless it has
    /// masked that, or does not have the namespace.
    pub(super) fn note_reservation(&mut self, nsid: u32, kind: ReservationNotificationType) {
        let is_there = self.view.namespaces.get(nsid).is_some();
        if is_there && self.is_ready() && self.features.is_reservation_notified(nsid, kind) {
            self.reservation_log.push(nsid, kind);
            self.raise(Event::RESERVATION_LOG_PAGE_AVAILABLE);
            self.deliver_events();
        }
    }

    /// Host Identifier.
    #[must_use]
    pub fn host_id(&self) -> &[u8; 16] {
        &self.host_id
    }
}
