//! The deadline of a connection's current step.

use std::time::Duration;

use weft_reactor::{Reactor, Token};

#[derive(Debug)]
pub(crate) struct Deadline {
    token: Token,
    at: Option<Duration>,
}

impl Deadline {
    pub(crate) fn new(token: Token) -> Self {
        Self { token, at: None }
    }

    /// Sets the deadline to `timeout` from now.
    pub(crate) fn set(&mut self, reactor: &mut Reactor, timeout: Duration) {
        let at = reactor.now().saturating_add(timeout);
        self.at = Some(at);
        reactor.set_timer(self.token, at);
    }

    pub(crate) fn clear(&mut self, reactor: &mut Reactor) {
        self.at = None;
        reactor.clear_timer(self.token);
    }

    /// Whether an expired timer is the deadline's, which is then over. A timer that was cleared may
    /// still arrive, even after its tag has passed to another connection, so its time is checked.
    pub(crate) fn take_due(&mut self, reactor: &Reactor) -> bool {
        self.at.take_if(|at| reactor.now() >= *at).is_some()
    }
}
