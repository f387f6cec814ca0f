//! Sources of completions that are neither sockets nor files: an adapter with a completion queue
//! in shared memory, for example.

use crate::operation::ReactorCompletion;
use std::cell::Cell;
use std::fmt::Debug;
use std::rc::Rc;

/// Something that the reactor polls in every turn. It stays for the reactor's life.
pub trait Source: Debug {
    /// Takes the events that are there, without waiting and at best without a system call, and
    /// appends a completion ([`Outcome::SourceEvents`](crate::Outcome::SourceEvents)) for each
    /// owner concerned.
    fn poll(&mut self, ready: &mut Vec<ReactorCompletion>);

    /// The reactor is about to sleep: events from now on have to end its sleep, by a
    /// descriptor that is watched ([`Reactor::watch`](crate::Reactor::watch)) or by its
    /// [`Waker`](crate::Waker). If events came before that, they are appended to `ready` and
    /// the reactor does not sleep.
    fn arm(&mut self, ready: &mut Vec<ReactorCompletion>);

    /// How many owners are express: what comes for them is not handed out by the other methods,
    /// but by [`poll_express`](Self::poll_express), between the work for others.
    fn express(&self) -> usize {
        0
    }

    /// Whether something has come for an express owner. Asked between any two pieces of work.
    fn has_express(&mut self) -> bool {
        false
    }

    /// Appends a completion for each express owner for which something has come.
    fn poll_express(&mut self, _ready: &mut Vec<ReactorCompletion>) {}
}

/// Set when a watched descriptor may have become readable. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct ReadyFlag {
    set: Rc<Cell<bool>>,
}

impl ReadyFlag {
    /// A flag that is not set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it was set; clears it.
    pub fn take(&self) -> bool {
        self.set.take()
    }

    /// Whether it is set.
    pub fn peek(&self) -> bool {
        self.set.get()
    }

    pub(crate) fn set(&self) {
        self.set.set(true);
    }

    /// Whether there is no other handle of this flag.
    pub(crate) fn is_unshared(&self) -> bool {
        Rc::strong_count(&self.set) == 1
    }
}
