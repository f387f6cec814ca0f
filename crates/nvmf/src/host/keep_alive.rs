//! When to send Keep Alive, and when a missing answer means that the controller is lost.
//!
//! The command is sent every half Keep Alive Timeout, so that one late command does not end the
//! association. If the controller supports traffic-based keep alive (TBKAS), no Keep Alive is sent
//! in an interval in which a command completed; since that may have been at its very beginning,
//! intervals are half as long then, as in Linux. A Keep Alive that is not answered within the
//! timeout means that the controller is lost.

use core::time::Duration;

/// What is to be done at a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepAliveAction {
    /// Nothing: there was traffic, or the deadline has not come.
    Wait,
    /// Send a Keep Alive command.
    Send,
    /// The last one was not answered in time: the connection is lost.
    Expired,
}

/// The schedule of one association.
#[derive(Debug, Clone)]
pub struct KeepAlive {
    timeout: Duration,
    interval: Duration,
    traffic_counts: bool,
    traffic: bool,
    due: Duration,
    sent_at: Option<Duration>,
}

impl KeepAlive {
    /// A schedule for this Keep Alive Timeout (KATO); `None` where it is zero (disabled).
    /// `traffic_counts` is the controller's TBKAS.
    #[must_use]
    pub fn new(timeout: Duration, traffic_counts: bool, now: Duration) -> Option<Self> {
        if timeout.is_zero() {
            return None;
        }
        let interval = timeout / if traffic_counts { 4 } else { 2 };
        let due = now.saturating_add(interval);
        Some(Self { timeout, interval, traffic_counts, traffic: false, due, sent_at: None })
    }

    /// A command of this association was completed, on whichever queue.
    pub fn handle_traffic(&mut self) {
        self.traffic = true;
    }

    /// The Keep Alive command was answered.
    pub fn handle_answer(&mut self, now: Duration) {
        self.sent_at = None;
        self.due = now.saturating_add(self.interval).min(self.due.max(now));
    }

    /// When [`KeepAlive::handle_deadline`] has to be called.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        match self.sent_at {
            Some(sent_at) => sent_at.saturating_add(self.timeout),
            None => self.due,
        }
    }

    /// What is to be done at `now`. After [`KeepAliveAction::Send`] the command counts as sent.
    pub fn handle_deadline(&mut self, now: Duration) -> KeepAliveAction {
        if now < self.deadline() {
            return KeepAliveAction::Wait;
        }
        if self.sent_at.is_some() {
            return KeepAliveAction::Expired;
        }
        self.due = now.saturating_add(self.interval);
        let traffic = core::mem::take(&mut self.traffic);
        if traffic && self.traffic_counts {
            return KeepAliveAction::Wait;
        }
        self.sent_at = Some(now);
        KeepAliveAction::Send
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KATO: Duration = Duration::from_secs(5);

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn it_goes_out_every_half_timeout_after_an_answer() {
        let mut keep_alive = KeepAlive::new(KATO, false, ms(1000)).unwrap();
        assert_eq!(keep_alive.deadline(), ms(3500));
        assert_eq!(keep_alive.handle_deadline(ms(3499)), KeepAliveAction::Wait);
        assert_eq!(keep_alive.handle_deadline(ms(3500)), KeepAliveAction::Send);
        assert_eq!(keep_alive.deadline(), ms(8500));
        assert_eq!(keep_alive.handle_deadline(ms(3501)), KeepAliveAction::Wait);
        keep_alive.handle_answer(ms(3600));
        assert_eq!(keep_alive.deadline(), ms(6000));
        keep_alive.handle_traffic();
        assert_eq!(
            keep_alive.handle_deadline(ms(6000)),
            KeepAliveAction::Send,
            "traffic counts for nothing"
        );
    }

    #[test]
    fn traffic_stands_in_where_the_controller_counts_it() {
        let mut keep_alive = KeepAlive::new(KATO, true, ms(0)).unwrap();
        keep_alive.handle_traffic();
        assert_eq!(keep_alive.handle_deadline(ms(1250)), KeepAliveAction::Wait);
        assert_eq!(keep_alive.deadline(), ms(2500));
        assert_eq!(
            keep_alive.handle_deadline(ms(2500)),
            KeepAliveAction::Send,
            "an interval of silence"
        );
    }

    #[test]
    fn a_keep_alive_timeout_is_a_loss() {
        let mut keep_alive = KeepAlive::new(KATO, true, ms(0)).unwrap();
        assert_eq!(keep_alive.handle_deadline(ms(1250)), KeepAliveAction::Send);
        keep_alive.handle_traffic();
        assert_eq!(keep_alive.handle_deadline(ms(6249)), KeepAliveAction::Wait);
        assert_eq!(keep_alive.handle_deadline(ms(6250)), KeepAliveAction::Expired);
    }

    #[test]
    fn a_late_answer_makes_the_next_one_due_at_once() {
        let mut keep_alive = KeepAlive::new(KATO, false, ms(0)).unwrap();
        assert_eq!(keep_alive.handle_deadline(ms(2500)), KeepAliveAction::Send);
        keep_alive.handle_answer(ms(7000));
        assert_eq!(keep_alive.deadline(), ms(7000));
        assert!(KeepAlive::new(Duration::ZERO, true, ms(0)).is_none());
    }
}
