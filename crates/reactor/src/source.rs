//! What is neither a socket nor a file but brings completions all the same: an adapter whose
//! completion queue lies in shared memory, for example.

use crate::operation::Completion;
use std::cell::Cell;
use std::fmt::Debug;
use std::rc::Rc;

/// Something that the reactor looks at in every turn. It stays for the reactor's life.
pub trait Source: Debug {
    /// Takes what is there, without waiting and at best without a system call, and appends a
    /// completion ([`Outcome::News`](crate::Outcome::News)) for everybody who has to know.
    fn look(&mut self, ready: &mut Vec<Completion>);

    /// The reactor is about to sleep: whatever comes from now on has to end its sleep, by a
    /// descriptor that is watched ([`Reactor::watch`](crate::Reactor::watch)) or by its
    /// [`Waker`](crate::Waker). What came before that is appended to `ready`, and the reactor
    /// does not sleep.
    fn arm(&mut self, ready: &mut Vec<Completion>);
}

/// Rung when a watched descriptor may have become readable. Clones are the same bell.
#[derive(Clone, Debug, Default)]
pub struct Bell {
    rung: Rc<Cell<bool>>,
}

impl Bell {
    /// A bell that has not been rung.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it has been rung since this was last asked.
    pub fn take(&self) -> bool {
        self.rung.take()
    }

    /// Whether it has been rung, which stays to be asked.
    pub fn peek(&self) -> bool {
        self.rung.get()
    }

    pub(crate) fn ring(&self) {
        self.rung.set(true);
    }

    /// Whether nobody else has this bell.
    pub(crate) fn is_deaf(&self) -> bool {
        Rc::strong_count(&self.rung) == 1
    }
}
