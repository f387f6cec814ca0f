//! Reservations as a controller has them: notifications, and who its host is.

pub(super) mod log;

use weft_nvme::event::Event;
use weft_nvme::log_page::ReservationNotificationType;

use super::Controller;

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
