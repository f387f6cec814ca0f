//! A change that all groups make, and the notification when all have made it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use weft_nvme::Status;
use weft_reactor::MailboxSender;

use crate::shared::ids::ConnectionId;
use crate::shared::message::{Message, ReservationResult};

/// Counts acknowledgements down and notifies the waiter.
#[derive(Debug)]
pub(crate) struct Round {
    missing: AtomicUsize,
    waiter: Waiter,
}

/// The waiter for the end of a round.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// Nobody.
    None,
    /// A thread.
    Thread(Sender<()>),
    /// A Connect, which may be answered once every group has checked for the host's stale
    /// connections.
    Connect { connection: ConnectionId, stale_check: u64 },
    /// A host that has changed reservations.
    Reservation(Arc<ReservationResult>),
    /// A Set Features command of a controller, and its status so far.
    Feature { owner: ConnectionId, command_id: u16, status: Status },
}

impl Round {
    /// A round of so many groups.
    pub(crate) fn new(groups: usize, waiter: Waiter) -> Arc<Self> {
        Arc::new(Self { missing: AtomicUsize::new(groups), waiter })
    }

    /// Sends every group a message of a new round.
    pub(crate) fn begin(
        posts: &[MailboxSender<Message>],
        waiter: Waiter,
        message: impl Fn(Arc<Self>) -> Message,
    ) {
        let round = Self::new(posts.len(), waiter);
        for post in posts {
            post.post(message(Arc::clone(&round)));
        }
    }

    /// One group has made the change. If it was the last one, returns the message for the
    /// connection that waits. AcqRel: what each group did before is seen by the waiter.
    pub(crate) fn acknowledge(&self) -> Option<(ConnectionId, Message)> {
        if self.missing.fetch_sub(1, Ordering::AcqRel) != 1 {
            return None;
        }
        match self.waiter {
            Waiter::None => None,
            Waiter::Thread(ref done) => {
                // If the receiver was dropped, there is no waiter.
                let _ = done.send(());
                None
            }
            Waiter::Connect { connection, stale_check } => {
                Some((connection, Message::StaleChecked { connection, stale_check }))
            }
            Waiter::Reservation(ref changed) => {
                Some((changed.asker.connection, Message::Reserved(Arc::clone(changed))))
            }
            Waiter::Feature { owner, command_id, status } => {
                Some((owner, Message::WriteProtectApplied { owner, command_id, status }))
            }
        }
    }
}
