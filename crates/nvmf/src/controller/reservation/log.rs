//! The log of reservation notifications.

use std::collections::VecDeque;

use weft_nvme::Wire;
use weft_nvme::log_page::{ReservationNotification, ReservationNotificationType};

use crate::limits;
use weft_nvme::wire::{U32, U64};

/// The notifications that the host has not read yet, oldest first.
#[derive(Debug, Default)]
pub(in crate::controller) struct Log {
    count: u64,
    waiting: VecDeque<ReservationNotification>,
}

impl Log {
    /// The log page: the oldest notification, or an empty one.
    pub(in crate::controller) fn page(&self) -> Vec<u8> {
        let mut page = self.waiting.front().copied().unwrap_or_default();
        let more = self.waiting.len().saturating_sub(1);
        page.available = u8::try_from(more).unwrap_or(u8::MAX);
        page.bytes().to_vec()
    }

    /// The oldest notification has been read.
    pub(in crate::controller) fn pop(&mut self) {
        self.waiting.pop_front();
    }

    pub(super) fn push(&mut self, nsid: u32, kind: ReservationNotificationType) {
        self.count += 1;
        if self.waiting.len() == limits::RESERVATION_NOTIFICATIONS_MAX {
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
