//! Where a reactor gets its letters, and what is in them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use weft_nvme::{Command, Completion};
use weft_reactor::{Mailbox, Postbox, Reactor, Source, Token};

use super::listen::Incoming;
use crate::seats::{Seat, Seats};

/// Emptied batches that a connection keeps to be filled again: one is being filled while another
/// may be on its way back.
const SPARE_BATCHES: usize = 2;

/// What one side tells the other.
#[derive(Debug)]
pub(super) enum Letter {
    /// To a listener: somebody wants a queue.
    Request(Incoming),
    /// To the host: it has one, and this is where its commands go.
    Accepted(Address),
    /// To the host: it gets none.
    Refused,
    /// What one side has gathered in a turn.
    Words(Vec<Word>),
    /// The other side is no more.
    Ended,
}

/// One thing that is said.
#[derive(Debug)]
pub(super) enum Word {
    /// A command, and how much data there is.
    Command { slot: u16, command: Command },
    /// Its answer, and how much was put into its buffer.
    Answer { slot: u16, completion: Completion, written: u32 },
}

/// Where letters for one connection or listener go.
#[derive(Debug, Clone)]
pub(super) struct Address {
    post: Postbox<(Seat, Letter)>,
    seat: Seat,
}

impl Address {
    pub(super) fn send(&self, letter: Letter) {
        self.post.post((self.seat, letter));
    }
}

/// A reactor's letters; all clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Hub {
    inner: Rc<RefCell<Inner>>,
}

#[derive(Debug)]
struct Inner {
    post: Postbox<(Seat, Letter)>,
    mailbox: Mailbox<(Seat, Letter)>,
    seats: Seats<VecDeque<Letter>>,
}

impl Hub {
    /// The hub of a reactor, made when it is first asked for.
    pub(super) fn of(reactor: &mut Reactor) -> Self {
        if let Some(hub) = reactor.attachment::<Self>() {
            return Self::clone(&hub);
        }
        let (post, mailbox) = reactor.mailbox();
        let inner = Inner { post, mailbox, seats: Seats::new() };
        let hub = Self { inner: Rc::new(RefCell::new(inner)) };
        reactor.attach(Rc::new(hub.clone()));
        reactor.add_source(Box::new(hub.clone()));
        hub
    }

    /// A place for letters, of which news comes under the token.
    pub(super) fn take_seat(&self, token: Token) -> io::Result<(Seat, Address)> {
        let mut inner = self.inner.borrow_mut();
        let seat = inner.seats.take(token)?;
        Ok((seat, Address { post: inner.post.clone(), seat }))
    }

    pub(super) fn leave(&self, seat: Seat) {
        let left = self.inner.borrow_mut().seats.leave(seat);
        // Requests among them are refused, for which the hub may be needed.
        drop(left);
    }

    pub(super) fn take(&self, seat: Seat) -> Option<Letter> {
        self.inner.borrow_mut().seats.open(seat)?.pop_front()
    }
}

impl Source for Hub {
    fn look(&mut self, ready: &mut Vec<weft_reactor::Completion>) {
        // What was posted before the owner's last turn ended is here; what comes later calls.
        loop {
            let mut inner = self.inner.borrow_mut();
            let Some((seat, letter)) = inner.mailbox.take() else { return };
            let undelivered = match inner.seats.deliver(seat, ready) {
                Some(letters) => {
                    letters.push_back(letter);
                    None
                }
                None => Some(letter),
            };
            drop(inner);
            drop(undelivered);
        }
    }

    /// A letter wakes the reactor that it is for: nothing is to be done for that.
    fn arm(&mut self, ready: &mut Vec<weft_reactor::Completion>) {
        self.look(ready);
    }
}

/// What a side gathers in a turn, and memory that has come back for it.
#[derive(Debug, Default)]
pub(super) struct Batch {
    words: Vec<Word>,
    spare: Vec<Vec<Word>>,
}

impl Batch {
    pub(super) fn push(&mut self, word: Word) {
        self.words.push(word);
    }

    /// Sends what was gathered, if there is any.
    pub(super) fn send(&mut self, to: &Address) {
        if !self.words.is_empty() {
            let next = self.spare.pop().unwrap_or_default();
            to.send(Letter::Words(std::mem::replace(&mut self.words, next)));
        }
    }

    /// Keeps the memory of the other side's batch.
    pub(super) fn keep(&mut self, mut emptied: Vec<Word>) {
        if self.spare.len() < SPARE_BATCHES {
            emptied.clear();
            self.spare.push(emptied);
        }
    }
}
