//! Messages from other threads to a reactor: a queue, and a wake-up only if the reactor sleeps.
//!
//! # Why no wake-up is lost
//!
//! Three variables take part: the queue (under its lock), `pending` (there are messages) and
//! `sleeping` (a system call is needed to wake the reactor).
//!
//! - A sender does: S1 push the message; S2 set `pending`; S3 if S2 changed it, read `sleeping`,
//!   and if it is set, write to the eventfd.
//! - The reactor, before it sleeps, does: R1 set `sleeping`; R2 read `pending`; if it is set, do
//!   not sleep. Otherwise wait in the kernel, with the eventfd among the things waited for.
//!
//! S2 and R2 are both read-modify-writes (R2 changes nothing), so one of them sees what the other
//! has left, and each is a release and an acquire. If R2 comes after S2, the reactor sees `pending`
//! and stays awake. Otherwise S2 acquires what R2 has released, R1 among it, so that the sender
//! sees `sleeping` in S3 and writes; the eventfd is watched from the reactor's creation on, so the
//! write ends the wait whenever it happens: a driver that finds its report before it waits does not
//! wait.
//!
//! A sender whose S2 finds `pending` already set leaves S3 out. That is safe because the reactor
//! has not seen the flag of the sender that set it: either the reactor is going to see `pending` in
//! R2 or in its next turn, or that other sender still has its own S3 to do, to which the argument
//! above applies.
//! The reactor clears `pending` (by a swap, so that it also sees what all those senders pushed)
//! before it returns to its owner, and the owner empties its mailboxes after that. A message that
//! comes later sets `pending` again.

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard};
use rustix::event::EventfdFlags;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};
use std::{fmt, io};

/// Wakes a reactor. Cheap to clone, usable from every thread.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Signal>,
}

#[derive(Debug)]
struct Signal {
    pending: AtomicBool,
    sleeping: AtomicBool,
    /// None under simulation, where no reactor sleeps.
    event: Option<OwnedFd>,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self::with(Some(event)))
    }

    /// A waker for a reactor that never waits in the kernel.
    pub(crate) fn without_kernel() -> Self {
        Self::with(None)
    }

    fn with(event: Option<OwnedFd>) -> Self {
        let shared =
            Signal { pending: AtomicBool::new(false), sleeping: AtomicBool::new(false), event };
        Self { shared: Arc::new(shared) }
    }

    /// Makes the reactor's current or next `poll` return.
    pub fn wake(&self) {
        let signal = &*self.shared;
        if signal.pending.swap(true, Ordering::AcqRel) {
            return;
        }
        if signal.sleeping.load(Ordering::Relaxed)
            && let Some(event) = &signal.event
        {
            // The counter is never read, only its edge matters; it cannot overflow in practice,
            // and an EAGAIN from a full counter would mean that the edge is there anyway.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
    }

    /// What to watch for wake-ups.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.shared.event.as_ref().map(AsFd::as_fd)
    }

    /// Whether a wake-up came since the last call of this.
    pub(crate) fn take_pending(&self) -> bool {
        self.shared.pending.load(Ordering::Relaxed)
            && self.shared.pending.swap(false, Ordering::AcqRel)
    }

    /// Announces a sleep. False: a wake-up came, do not sleep. True must be followed by
    /// [`end_sleep`](Self::end_sleep).
    pub(crate) fn begin_sleep(&self) -> bool {
        self.shared.sleeping.store(true, Ordering::Relaxed);
        if self.shared.pending.fetch_or(false, Ordering::AcqRel) {
            self.end_sleep();
            return false;
        }
        true
    }

    pub(crate) fn end_sleep(&self) {
        self.shared.sleeping.store(false, Ordering::Relaxed);
    }
}

struct Queue<M> {
    messages: Mutex<VecDeque<M>>,
    /// The reader takes no lock while this is zero.
    filled: AtomicBool,
}

impl<M> Queue<M> {
    fn lock(&self) -> MutexGuard<'_, VecDeque<M>> {
        // A push or swap cannot leave the queue half changed.
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sending end, for any thread.
pub struct MailboxSender<M> {
    queue: Arc<Queue<M>>,
    waker: Waker,
}

/// The receiving end, for the reactor's thread.
pub struct Mailbox<M> {
    queue: Arc<Queue<M>>,
    taken: RefCell<VecDeque<M>>,
    /// Belongs to one thread.
    not_send: PhantomData<*const ()>,
}

pub(crate) fn mailbox<M: Send>(waker: Waker) -> (MailboxSender<M>, Mailbox<M>) {
    let queue =
        Arc::new(Queue { messages: Mutex::new(VecDeque::new()), filled: AtomicBool::new(false) });
    let mailbox = Mailbox {
        queue: Arc::clone(&queue),
        taken: RefCell::new(VecDeque::new()),
        not_send: PhantomData,
    };
    (MailboxSender { queue, waker }, mailbox)
}

impl<M: Send> MailboxSender<M> {
    /// Sends a message. The reactor's `poll` returns soon after; a system call is made only if it
    /// sleeps.
    pub fn post(&self, message: M) {
        {
            let mut messages = self.queue.lock();
            messages.push_back(message);
            self.queue.filled.store(true, Ordering::Release);
        }
        self.waker.wake();
    }
}

impl<M> Mailbox<M> {
    /// The next message, if there is one.
    pub fn take(&self) -> Option<M> {
        let mut taken = self.taken.borrow_mut();
        if taken.is_empty() && self.queue.filled.load(Ordering::Acquire) {
            let mut messages = self.queue.lock();
            self.queue.filled.store(false, Ordering::Relaxed);
            std::mem::swap(&mut *messages, &mut *taken);
        }
        taken.pop_front()
    }
}

impl<M> Clone for MailboxSender<M> {
    fn clone(&self) -> Self {
        Self { queue: Arc::clone(&self.queue), waker: self.waker.clone() }
    }
}

impl<M> fmt::Debug for MailboxSender<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailboxSender").finish_non_exhaustive()
    }
}

impl<M> fmt::Debug for Mailbox<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_in_order() {
        let (sender, mailbox) = mailbox(Waker::without_kernel());
        sender.post(1);
        sender.clone().post(2);
        assert_eq!(mailbox.take(), Some(1));
        sender.post(3);
        assert_eq!(mailbox.take(), Some(2));
        assert_eq!(mailbox.take(), Some(3));
        assert_eq!(mailbox.take(), None);
    }

    #[test]
    fn a_call_forbids_sleep_until_it_is_taken() {
        let waker = Waker::new().unwrap();
        assert!(waker.begin_sleep());
        waker.end_sleep();
        waker.wake();
        assert!(!waker.begin_sleep());
        assert!(waker.take_pending());
        assert!(!waker.take_pending());
        assert!(waker.begin_sleep());
        waker.end_sleep();
    }
}
