//! The one time by which something must have happened on a connection.

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

    /// From now on so long.
    pub(crate) fn set(&mut self, reactor: &mut Reactor, timeout: Duration) {
        let at = reactor.now().saturating_add(timeout);
        self.at = Some(at);
        reactor.set_timer(self.token, at);
    }

    pub(crate) fn clear(&mut self, reactor: &mut Reactor) {
        self.at = None;
        reactor.clear_timer(self.token);
    }

    /// Whether a timer that arrived is that of the deadline, which then is over. One that was
    /// cleared may still arrive, even after the tag has passed to another connection: it means
    /// something only if its time has come.
    pub(crate) fn take_due(&mut self, reactor: &Reactor) -> bool {
        self.at.take_if(|at| reactor.now() >= *at).is_some()
    }
}
