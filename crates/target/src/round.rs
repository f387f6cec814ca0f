//! A change for everybody, and who is told when everybody has made it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use weft_nvme::Status;
use weft_reactor::Postbox;

use crate::group::{ConnectionId, Message};

/// Counts acknowledgements down and tells whoever waits.
#[derive(Debug)]
pub(crate) struct Round {
    missing: AtomicUsize,
    waiter: Waiter,
}

/// Who waits for a round to be over.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// Nobody.
    None,
    /// A thread.
    Thread(Sender<()>),
    /// A Connect, which may be answered once every group has looked for what the host has left.
    Connect { post: Postbox<Message>, connection: ConnectionId, stale_check: u64 },
    /// A Set Features command of a controller, and what it has come to so far.
    Feature { post: Postbox<Message>, owner: ConnectionId, command_id: u16, status: Status },
}

impl Round {
    pub(crate) fn new(groups: usize, waiter: Waiter) -> Self {
        Self { missing: AtomicUsize::new(groups), waiter }
    }

    /// One group has made the change. AcqRel: what each group did before is seen by the waiter.
    pub(crate) fn acknowledge(&self) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        match &self.waiter {
            Waiter::None => {}
            // If the receiver is gone, nobody waits.
            Waiter::Thread(done) => drop(done.send(())),
            Waiter::Connect { post, connection, stale_check } => {
                post.post(Message::StaleChecked {
                    connection: *connection,
                    stale_check: *stale_check,
                });
            }
            Waiter::Feature { post, owner, command_id, status } => post.post(Message::Protected {
                owner: *owner,
                command_id: *command_id,
                status: *status,
            }),
        }
    }
}
