//! The memory that a connection's in-capsule data may hold.

use weft_reactor::Pool;

/// Commands with in-capsule data that are in flight, and whether there may be more.
#[derive(Debug, Default)]
pub(crate) struct Capsules {
    /// How many bytes of the pool they leave free, if there is such a bound.
    pub(crate) leave: Option<usize>,
    in_flight: usize,
}

impl Capsules {
    /// A command has in-capsule data.
    pub(crate) const fn add(&mut self) {
        self.in_flight += 1;
    }

    /// Such a command was completed.
    pub(crate) const fn remove(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Whether another one waits until memory is free or those in flight are completed, rather than
    /// for its turn among the connections that wait for memory.
    pub(crate) const fn are_bound(&self) -> bool {
        self.leave.is_some() && self.in_flight > 0
    }

    /// Whether there may be another one now.
    pub(crate) fn may_add(&self, pool: &Pool) -> bool {
        !self.are_bound() || self.leave.is_none_or(|leave| pool.available() > leave)
    }
}
