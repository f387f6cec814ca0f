//! When to try again after a lost connection, and when to stop.
//!
//! The first attempt follows the loss almost at once, because a connection that was reset is
//! usually there again; each further one follows the end of the last failed one by
//! `reconnect_delay`. (The Linux kernel waits `reconnect_delay` before the first one, too, and so
//! does this host where the controller had not lasted that long: something is wrong with it.)
//! Both ends are bounded: by the time since the loss (`ctrl_loss_tmo`) and by the number of
//! attempts.

use core::time::Duration;

/// Time between a loss and the first attempt, if `reconnect_delay` is not shorter still.
pub const FIRST_ATTEMPT_DELAY: Duration = Duration::from_millis(100);

/// How a lost connection is to be treated; the names and defaults are nvme-cli's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReconnectPolicy {
    /// Time between two attempts.
    pub reconnect_delay: Duration,
    /// Time after the loss at which the controller is given up; `None`: never. Zero: the first
    /// loss is final.
    pub ctrl_loss_tmo: Option<Duration>,
    /// Number of attempts after which the controller is given up; `None`: only time counts.
    pub attempts_max: Option<u32>,
    /// Time after the loss at which waiting I/O begins to fail; `None`: it waits as long as there
    /// is hope. Zero: it never waits.
    pub fast_io_fail_tmo: Option<Duration>,
}

impl Default for ReconnectPolicy {
    fn default() -> Self {
        Self {
            reconnect_delay: Duration::from_secs(10),
            ctrl_loss_tmo: Some(Duration::from_secs(600)),
            attempts_max: None,
            fast_io_fail_tmo: None,
        }
    }
}

/// What comes next after a loss or a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReconnectAction {
    /// Try at this time.
    Attempt(Duration),
    /// Stop trying.
    GiveUp,
}

/// One outage: from the loss to the next success or to the end.
#[derive(Debug, Clone)]
pub struct Outage {
    policy: ReconnectPolicy,
    since: Duration,
    first_delay: Duration,
    attempts: u32,
    failing_fast: bool,
}

impl Outage {
    /// The connection was lost at `now`, after the controller had been there for `live_for`.
    #[must_use]
    pub fn begin(policy: ReconnectPolicy, live_for: Duration, now: Duration) -> Self {
        let first_delay = if live_for < policy.reconnect_delay {
            policy.reconnect_delay
        } else {
            policy.reconnect_delay.min(FIRST_ATTEMPT_DELAY)
        };
        // There is one attempt at least, as in Linux, however short the time is.
        let first_delay = first_delay.min(policy.ctrl_loss_tmo.unwrap_or(Duration::MAX));
        Self { policy, since: now, first_delay, attempts: 0, failing_fast: false }
    }

    /// When the connection was lost.
    #[must_use]
    pub const fn since(&self) -> Duration {
        self.since
    }

    /// When the controller is given up, if time ends the attempts.
    #[must_use]
    pub fn ends_at(&self) -> Option<Duration> {
        let timeout = self.policy.ctrl_loss_tmo.filter(|timeout| !timeout.is_zero());
        timeout.map(|timeout| self.since.saturating_add(timeout))
    }

    /// Attempts that were made.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// What comes after the loss, or after an attempt that failed at `now`.
    #[must_use]
    pub fn next(&self, now: Duration) -> ReconnectAction {
        let delay = if self.attempts == 0 { self.first_delay } else { self.policy.reconnect_delay };
        let at = now.saturating_add(delay);
        let too_many = self.policy.attempts_max.is_some_and(|most| self.attempts >= most);
        let is_final = self.policy.ctrl_loss_tmo.is_some_and(|timeout| timeout.is_zero());
        let too_late = is_final || self.ends_at().is_some_and(|end| at > end);
        if too_many || too_late { ReconnectAction::GiveUp } else { ReconnectAction::Attempt(at) }
    }

    /// An attempt begins.
    pub fn attempt(&mut self) {
        self.attempts = self.attempts.saturating_add(1);
    }

    /// When waiting I/O begins to fail; `None` when it already does, or never will.
    #[must_use]
    pub fn fail_io_at(&self) -> Option<Duration> {
        if self.failing_fast {
            return None;
        }
        self.policy.fast_io_fail_tmo.map(|timeout| self.since.saturating_add(timeout))
    }

    /// Whether waiting I/O begins to fail now; true once in an outage.
    pub fn starts_failing_io(&mut self, now: Duration) -> bool {
        let due = self.fail_io_at().is_some_and(|at| at <= now);
        self.failing_fast |= due;
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_first_attempt_is_quick_and_the_others_keep_their_distance() {
        let mut outage = Outage::begin(ReconnectPolicy::default(), LONG, s(100));
        assert_eq!(outage.next(s(100)), ReconnectAction::Attempt(s(100) + FIRST_ATTEMPT_DELAY));
        outage.attempt();
        assert_eq!(outage.next(s(103)), ReconnectAction::Attempt(s(113)));
        outage.attempt();
        assert_eq!((outage.attempts(), outage.since()), (2, s(100)));
        let outage = Outage::begin(ReconnectPolicy::default(), s(9), s(100));
        assert_eq!(outage.next(s(100)), ReconnectAction::Attempt(s(110)), "it had not lasted");
        let policy =
            ReconnectPolicy { reconnect_delay: Duration::from_millis(5), ..Default::default() };
        let outage = Outage::begin(policy, LONG, s(1));
        assert_eq!(outage.next(s(1)), ReconnectAction::Attempt(Duration::from_millis(1005)));
    }

    #[test]
    fn an_outage_ends_by_time_or_by_attempts() {
        let policy = ReconnectPolicy {
            ctrl_loss_tmo: Some(s(30)),
            attempts_max: Some(3),
            ..Default::default()
        };
        let mut outage = Outage::begin(policy, LONG, s(0));
        outage.attempt();
        assert_eq!(outage.next(s(20)), ReconnectAction::Attempt(s(30)));
        assert_eq!(outage.next(s(21)), ReconnectAction::GiveUp);
        outage.attempt();
        outage.attempt();
        assert_eq!(outage.next(s(5)), ReconnectAction::GiveUp);
        let forever = ReconnectPolicy { ctrl_loss_tmo: None, ..policy };
        let forever = Outage::begin(ReconnectPolicy { attempts_max: None, ..forever }, LONG, s(0));
        assert!(matches!(forever.next(Duration::MAX), ReconnectAction::Attempt(_)));
        let never = ReconnectPolicy { ctrl_loss_tmo: Some(s(0)), ..Default::default() };
        assert_eq!(Outage::begin(never, LONG, s(9)).next(s(9)), ReconnectAction::GiveUp);
    }

    #[test]
    fn a_time_shorter_than_the_delay_has_one_attempt() {
        let policy = ReconnectPolicy { ctrl_loss_tmo: Some(s(3)), ..Default::default() };
        let mut outage = Outage::begin(policy, s(1), s(100));
        assert_eq!(
            (outage.next(s(100)), outage.ends_at()),
            (ReconnectAction::Attempt(s(103)), Some(s(103)))
        );
        outage.attempt();
        assert_eq!(outage.next(s(104)), ReconnectAction::GiveUp);
    }

    #[test]
    fn waiting_io_begins_to_fail_once() {
        let policy = ReconnectPolicy { fast_io_fail_tmo: Some(s(5)), ..Default::default() };
        let mut outage = Outage::begin(policy, LONG, s(10));
        assert_eq!(outage.fail_io_at(), Some(s(15)));
        assert!(!outage.starts_failing_io(s(14)));
        assert!(outage.starts_failing_io(s(15)));
        assert!(!outage.starts_failing_io(s(16)));
        assert_eq!(outage.fail_io_at(), None);
        let mut patient = Outage::begin(ReconnectPolicy::default(), LONG, s(10));
        assert!(!patient.starts_failing_io(Duration::MAX));
    }
}
