//! The authentication of a queue that is in use. Requests go on between the commands of the
//! exchange.

use std::time::Duration;

use weft_nvme::Completion;
use weft_nvmf::host::{
    AuthenticationProgress, Credentials, Problem, QueueAuthentication, check_queue_connected,
};
use weft_reactor::Reactor;
use weft_transport::Slot;
use weft_transport::host::NotSubmitted;

use super::connection::host_data;
use super::{QueuePair, State};
use crate::shared::DriverMessage;

/// What is known of exchanges after that of Connect.
#[derive(Debug, Default)]
pub(super) struct Reauthentication {
    /// Connect has led to one, so that the controller takes another.
    is_possible: bool,
    /// Its command in flight, and since when.
    in_flight: Option<(Slot, Duration)>,
    /// Its next command waits for a buffer.
    pub(super) lacks_buffer: bool,
    /// Another one is wanted after it.
    is_wanted: bool,
}

impl Reauthentication {
    pub(super) fn is_in(&self, slot: Slot) -> bool {
        self.in_flight.is_some_and(|(own, _)| own == slot)
    }

    pub(super) const fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    pub(super) fn is_overdue(&self, now: Duration, timeout: Duration) -> bool {
        self.in_flight.is_some_and(|(_, since)| now.saturating_sub(since) >= timeout)
    }
}

impl QueuePair {
    /// What the answer to Connect leads to.
    pub(super) fn connect_answered(
        &self,
        completion: &Completion,
    ) -> Result<Option<QueueAuthentication>, Problem> {
        let credentials = self.live.as_ref().and_then(|live| live.credentials.as_ref());
        check_queue_connected(&self.shared.config, credentials, self.queue_id, completion)
    }

    /// The handshake is over.
    pub(super) fn end_handshake(&mut self, reactor: &mut Reactor) {
        self.again.is_possible = self.authentication.take().is_some();
        if std::mem::take(&mut self.again.is_wanted) {
            self.begin_exchange(reactor);
        }
    }

    /// Authenticates the queue again, with these credentials from now on.
    pub(super) fn authenticate_again(
        &mut self,
        reactor: &mut Reactor,
        credentials: Option<Credentials>,
    ) {
        let Some(live) = &mut self.live else { return };
        live.credentials = credentials;
        match self.state {
            State::Up if self.authentication.is_none() => self.begin_exchange(reactor),
            State::Up | State::Handshake(_) => self.again.is_wanted = true,
            // Connect comes with these credentials, or not at all.
            State::Idle | State::Connecting | State::Closing => {}
        }
    }

    fn begin_exchange(&mut self, reactor: &mut Reactor) {
        let credentials = self.live.as_ref().and_then(|live| live.credentials.as_ref());
        let Some(credentials) = credentials.filter(|_| self.again.is_possible) else { return };
        match QueueAuthentication::again(&self.shared.config, credentials) {
            Ok(exchange) => {
                self.next_command = Some(exchange.first());
                self.authentication = Some(Box::new(exchange));
            }
            Err(problem) => self.exchange_failed(reactor, problem),
        }
    }

    /// Sends the next command of the exchange, if there is one.
    pub(super) fn send_exchange(&mut self, reactor: &mut Reactor) {
        let (Some((command, data)), Some(connection)) = (&self.next_command, &mut self.connection)
        else {
            return;
        };
        if self.again.is_in_flight() || connection.free_slots() == 0 {
            return;
        }
        let data = host_data(data, reactor.pool());
        self.again.lacks_buffer = data.is_none();
        let Some(data) = data else { return };
        match connection.submit(*command, data) {
            Ok(slot) => {
                self.next_command = None;
                self.again.in_flight = Some((slot, reactor.turn_time()));
            }
            Err(NotSubmitted { why: None, .. }) => self.again.lacks_buffer = true,
            Err(NotSubmitted { why: Some(why), .. }) => {
                self.exchange_failed(reactor, Problem::Impossible(why.to_string()));
            }
        }
    }

    /// A command of the exchange was completed.
    pub(super) fn exchange_completed(
        &mut self,
        reactor: &mut Reactor,
        completion: &Completion,
        data: &[u8],
    ) {
        self.again.in_flight = None;
        let Some(exchange) = &mut self.authentication else { return };
        match exchange.handle_completion_in_use(completion, data) {
            AuthenticationProgress::Submit(next) => self.next_command = Some(next),
            AuthenticationProgress::Failed(problem) => self.exchange_failed(reactor, problem),
            AuthenticationProgress::Done => {
                self.authentication = None;
                if let Some(live) = &self.live {
                    self.report_exchange(live.snapshot.generation, Ok(()));
                }
                if std::mem::take(&mut self.again.is_wanted) {
                    self.begin_exchange(reactor);
                }
            }
        }
    }

    /// The exchange has failed: nothing more is sent to the controller.
    pub(super) fn exchange_failed(&mut self, reactor: &mut Reactor, problem: Problem) {
        let Some(live) = self.live.take() else { return };
        if let Some(path) = &mut self.path {
            path.suspended_by_peer = false;
        }
        self.report_exchange(live.snapshot.generation, Err(problem));
        self.disconnect(reactor, "the queue was not authenticated again");
    }

    fn report_exchange(&self, generation: u32, result: Result<(), Problem>) {
        let queue_id = self.queue_id;
        self.shared.postbox.post(DriverMessage::Authenticated { queue_id, generation, result });
    }
}
