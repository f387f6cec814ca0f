//! Where a reactor gets its messages, and what is in them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use weft_nvme::{Command, Completion};
use weft_reactor::{Mailbox, MailboxSender, Reactor, Source, Token};

use super::listen::Incoming;
use crate::subscriptions::{Subscription, Subscriptions};

/// Emptied batches that a connection keeps to be filled again: one is being filled while another
/// may be on its way back.
const SPARE_BATCHES: usize = 2;

/// What one side tells the other.
#[derive(Debug)]
pub(super) enum Message {
    /// To a listener: somebody wants a queue.
    Request(Incoming),
    /// To the host: it has one, and this is where its commands go.
    Accepted(Address),
    /// To the host: it gets none.
    Refused,
    /// What one side has gathered in a turn.
    Words(Vec<Entry>),
    /// The other side is no more.
    Ended,
}

/// One thing that is said.
#[derive(Debug)]
pub(super) enum Entry {
    /// A command, and how much data there is.
    Command { slot: u16, command: Command },
    /// Its answer, and how much was put into its buffer.
    Answer { slot: u16, completion: Completion, written: u32 },
}

/// Where messages for one connection or listener go.
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

/// A reactor's messages; all clones are the same.
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
    /// The hub of a reactor, made when it is first asked for.
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

    /// A place for messages, of which the owner is notified under the token.
    pub(super) fn subscribe(&self, token: Token) -> io::Result<(Subscription, Address)> {
        let mut inner = self.inner.borrow_mut();
        let subscription = inner.subscriptions.take(token)?;
        Ok((subscription, Address { post: inner.post.clone(), subscription }))
    }

    pub(super) fn unsubscribe(&self, subscription: Subscription) {
        let left = self.inner.borrow_mut().subscriptions.unsubscribe(subscription);
        // Requests among them are refused, for which the hub may be needed.
        drop(left);
    }

    pub(super) fn take(&self, subscription: Subscription) -> Option<Message> {
        self.inner.borrow_mut().subscriptions.open(subscription)?.pop_front()
    }
}

impl Source for Hub {
    fn poll(&mut self, ready: &mut Vec<weft_reactor::ReactorCompletion>) {
        // What was posted before the owner's last turn ended is here; what comes later calls.
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

    /// A message wakes the reactor that it is for: nothing is to be done for that.
    fn arm(&mut self, ready: &mut Vec<weft_reactor::ReactorCompletion>) {
        self.poll(ready);
    }
}

/// What a side gathers in a turn, and memory that has come back for it.
#[derive(Debug, Default)]
pub(super) struct Batch {
    words: Vec<Entry>,
    spare: Vec<Vec<Entry>>,
}

impl Batch {
    pub(super) fn push(&mut self, word: Entry) {
        self.words.push(word);
    }

    /// Sends what was gathered, if there is any.
    pub(super) fn send(&mut self, to: &Address) {
        if !self.words.is_empty() {
            let next = self.spare.pop().unwrap_or_default();
            to.send(Message::Words(std::mem::replace(&mut self.words, next)));
        }
    }

    /// Keeps the memory of the other side's batch.
    pub(super) fn keep(&mut self, mut emptied: Vec<Entry>) {
        if self.spare.len() < SPARE_BATCHES {
            emptied.clear();
            self.spare.push(emptied);
        }
    }
}
