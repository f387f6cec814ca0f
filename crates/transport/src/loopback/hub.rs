//! The source of a reactor for loopback messages, and the messages.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use weft_nvme::{Command, Completion};
use weft_reactor::{Mailbox, MailboxSender, Reactor, Source, Token};

use super::listen::Incoming;
use crate::subscriptions::{Subscription, Subscriptions};

/// Empty batches that a connection keeps for reuse: one is being filled while another may be on its
/// way back.
const SPARE_BATCHES: usize = 2;

/// A message to the other side.
#[derive(Debug)]
pub(super) enum Message {
    /// To a listener: a host requests a queue.
    Request(Incoming),
    /// To the host: accepted, with the address for its commands.
    Accepted(Address),
    /// To the host: refused.
    Refused,
    /// The entries that one side has queued in a turn.
    Batch(Vec<Entry>),
    /// The other side has closed the connection.
    Ended,
}

/// An entry of a batch.
#[derive(Debug)]
pub(super) enum Entry {
    /// A command, and the length of its data.
    Command { slot: u16, command: Command },
    /// Its completion, and the bytes written to its buffer.
    Response { slot: u16, completion: Completion, written: u32 },
}

/// The destination of messages for one connection or listener.
#[derive(Debug, Clone)]
pub(super) struct Address {
    post: MailboxSender<(Subscription, Message)>,
    subscription: Subscription,
}

impl Address {
    pub(super) fn send(&self, message: Message) {
        self.post.post((self.subscription, message));
    }
}

/// The loopback messages of a reactor; clones share them.
#[derive(Debug, Clone)]
pub(super) struct Hub {
    inner: Rc<RefCell<Inner>>,
}

#[derive(Debug)]
struct Inner {
    post: MailboxSender<(Subscription, Message)>,
    mailbox: Mailbox<(Subscription, Message)>,
    subscriptions: Subscriptions<VecDeque<Message>>,
}

impl Hub {
    /// The hub of a reactor, created when it is first used.
    pub(super) fn of(reactor: &mut Reactor) -> Self {
        if let Some(hub) = reactor.attachment::<Self>() {
            return Self::clone(&hub);
        }
        let (post, mailbox) = reactor.mailbox();
        let inner = Inner { post, mailbox, subscriptions: Subscriptions::new() };
        let hub = Self { inner: Rc::new(RefCell::new(inner)) };
        reactor.attach(Rc::new(hub.clone()));
        reactor.add_source(Box::new(hub.clone()));
        hub
    }

    /// Subscribes: the owner is notified under the token of messages to the address.
    pub(super) fn subscribe(&self, token: Token) -> io::Result<(Subscription, Address)> {
        let mut inner = self.inner.borrow_mut();
        let subscription = inner.subscriptions.take(token)?;
        Ok((subscription, Address { post: inner.post.clone(), subscription }))
    }

    pub(super) fn unsubscribe(&self, subscription: Subscription) {
        let left = self.inner.borrow_mut().subscriptions.unsubscribe(subscription);
        // Dropped requests are refused, which may need the hub.
        drop(left);
    }

    pub(super) fn take(&self, subscription: Subscription) -> Option<Message> {
        self.inner.borrow_mut().subscriptions.open(subscription)?.pop_front()
    }
}

impl Source for Hub {
    fn poll(&mut self, ready: &mut Vec<weft_reactor::ReactorCompletion>) {
        // Messages posted before the owner's last turn are here; later ones wake the reactor.
        loop {
            let mut inner = self.inner.borrow_mut();
            let Some((subscription, message)) = inner.mailbox.take() else { return };
            let undelivered = match inner.subscriptions.deliver(subscription, ready) {
                Some(messages) => {
                    messages.push_back(message);
                    None
                }
                None => Some(message),
            };
            drop(inner);
            drop(undelivered);
        }
    }

    /// Nothing to do: a message wakes the reactor that it is for.
    fn arm(&mut self, ready: &mut Vec<weft_reactor::ReactorCompletion>) {
        self.poll(ready);
    }
}

/// The entries that a side queues in a turn, and empty batches for reuse.
#[derive(Debug, Default)]
pub(super) struct Batch {
    entries: Vec<Entry>,
    spare: Vec<Vec<Entry>>,
}

impl Batch {
    pub(super) fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// Sends the queued entries, if any.
    pub(super) fn send(&mut self, to: &Address) {
        if !self.entries.is_empty() {
            let next = self.spare.pop().unwrap_or_default();
            to.send(Message::Batch(std::mem::replace(&mut self.entries, next)));
        }
    }

    /// Keeps the memory of a received batch for reuse.
    pub(super) fn keep(&mut self, mut emptied: Vec<Entry>) {
        if self.spare.len() < SPARE_BATCHES {
            emptied.clear();
            self.spare.push(emptied);
        }
    }
}
