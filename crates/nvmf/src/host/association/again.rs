//! The authentication of a controller that is in use: at an interval, or when that is asked for.
//!
//! The admin queue goes first. If its exchange succeeds, the I/O queues follow
//! ([`Action::Authenticate`]); a queue whose exchange fails ends the association, and with it the
//! use of all others. Where an exchange has made the keys of TLS, another one on the admin queue
//! makes the next, and I/O queues have none.

use core::time::Duration;

use weft_nvme::Completion;

use super::super::admin_queue::Purpose;
use super::super::authenticate::{AuthenticationProgress, Credentials, QueueAuthentication};
use super::super::event::Event;
use super::super::problem::{HostStep, Problem};
use super::{Action, Association};

/// What is known of exchanges after the first one.
#[derive(Debug)]
pub(super) struct Reauthentication {
    /// The controller takes one: its admin queue had to be authenticated.
    is_possible: bool,
    /// The one under way.
    exchange: Option<Box<QueueAuthentication>>,
    /// Another one is wanted after it.
    is_wanted: bool,
    /// When the next one begins by itself.
    due: Option<Duration>,
}

impl Reauthentication {
    pub(super) const fn new() -> Self {
        Self { is_possible: false, exchange: None, is_wanted: false, due: None }
    }

    pub(super) const fn due(&self) -> Option<Duration> {
        self.due
    }
}

impl Association {
    /// Authenticates the queues of the controller again, if it has asked for that when they were
    /// connected. It goes on meanwhile; [`Event::Authenticated`] comes for each queue.
    pub fn authenticate_again(&mut self, now: Duration) {
        if !self.is_live() || !self.reauthentication.is_possible {
            return;
        }
        if self.reauthentication.exchange.is_some() {
            self.reauthentication.is_wanted = true;
            return;
        }
        let Some(credentials) = &self.config.credentials else { return };
        let made = match self.has_channel {
            true => QueueAuthentication::replacing(&self.config, credentials),
            false => QueueAuthentication::again(&self.config, credentials),
        };
        match made {
            Ok(exchange) => {
                self.reauthentication.due = None;
                let first = exchange.first();
                self.reauthentication.exchange = Some(Box::new(exchange));
                self.submit(Purpose::Authenticate, HostStep::Authenticate, first, now);
            }
            Err(problem) => self.handle_loss(problem, now),
        }
    }

    /// Uses these credentials from now on, and authenticates the queues again with them.
    pub fn set_credentials(&mut self, credentials: Credentials, now: Duration) {
        let policy = &credentials.policy;
        let has_to_prove = policy.controller_secret.is_some() && !policy.requires_channel;
        self.config.credentials = Some(credentials);
        if self.is_live() && has_to_prove && !self.reauthentication.is_possible {
            return self.handle_loss(Problem::ControllerNotAuthenticated, now);
        }
        self.authenticate_again(now);
    }

    /// The exchange on an I/O queue of this generation has succeeded, or has failed for this
    /// reason, which ends the association.
    pub fn handle_queue_authenticated(
        &mut self,
        generation: u32,
        queue: u16,
        result: Result<(), Problem>,
        now: Duration,
    ) {
        if generation != self.generation || !self.is_live() {
            return;
        }
        match result {
            Ok(()) => self.actions.push_back(Action::Event(Event::Authenticated { queue })),
            Err(problem) => {
                self.handle_loss(Problem::QueueLost { queue, problem: Box::new(problem) }, now);
            }
        }
    }

    /// The controller is live from now on.
    pub(super) fn begin_reauthentication(&mut self, is_authenticated: bool, now: Duration) {
        self.reauthentication.is_possible = is_authenticated || self.has_channel;
        self.await_next(now);
    }

    fn await_next(&mut self, now: Duration) {
        let every = self.config.authenticate_every;
        let every = every.filter(|_| self.reauthentication.is_possible);
        self.reauthentication.due = every.map(|every| now.saturating_add(every));
    }

    pub(super) fn handle_authentication_deadline(&mut self, now: Duration) {
        if self.reauthentication.due.take_if(|due| *due <= now).is_some() {
            self.authenticate_again(now);
        }
    }

    pub(super) fn handle_exchange_completion(
        &mut self,
        completion: &Completion,
        data: &[u8],
        now: Duration,
    ) {
        let Some(exchange) = &mut self.reauthentication.exchange else { return };
        match exchange.handle_completion_in_use(completion, data) {
            AuthenticationProgress::Submit(next) => {
                self.submit(Purpose::Authenticate, HostStep::Authenticate, next, now);
            }
            AuthenticationProgress::Failed(problem) => self.handle_loss(problem, now),
            AuthenticationProgress::Done => self.end_exchange(now),
        }
    }

    fn end_exchange(&mut self, now: Duration) {
        let Some(exchange) = self.reauthentication.exchange.take() else { return };
        let generated = match exchange.finish() {
            Ok(generated) => generated,
            Err(problem) => return self.handle_loss(problem, now),
        };
        self.actions.push_back(Action::Event(Event::Authenticated { queue: 0 }));
        self.actions.push_back(match generated {
            Some(generated) => Action::Renew(Box::new(generated)),
            None => Action::Authenticate(self.config.credentials.clone()),
        });
        self.await_next(now);
        if core::mem::take(&mut self.reauthentication.is_wanted) {
            self.authenticate_again(now);
        }
    }
}
