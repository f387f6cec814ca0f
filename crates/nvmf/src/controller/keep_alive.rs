//! The keep-alive timer, with traffic-based support (TBKAS).
//!
//! When the timer expires after one Keep Alive Timeout, it is restarted if any command arrived on
//! any queue meanwhile; otherwise the controller ends. This takes between one and two timeouts
//! without commands, as with the Linux target.

use std::time::Duration;

use crate::subsystem::SubsystemView;

#[derive(Debug)]
pub(super) struct KeepAlive {
    /// Keep Alive Timeout as granted; 0 is off.
    timeout_ms: u32,
    deadline: Duration,
    /// An admin command came since the timer last ran out.
    touched: bool,
}

impl KeepAlive {
    /// The timer of a new controller whose host asked for this timeout. A discovery controller
    /// always has one.
    pub(super) fn new(timeout_ms: u32, view: &SubsystemView, now: Duration) -> Self {
        let granted = view.keep_alive_timeout_ms(timeout_ms).unwrap_or(timeout_ms);
        let mut timer = Self { timeout_ms: 0, deadline: now, touched: false };
        timer.set_timeout(granted, view, now);
        timer
    }

    /// Changes the timeout, rounded up to the granularity, and starts again.
    pub(super) fn set_timeout(&mut self, timeout_ms: u32, view: &SubsystemView, now: Duration) {
        let granularity = u32::from(view.limits.keep_alive_support_100ms()).saturating_mul(100);
        self.timeout_ms = timeout_ms.checked_next_multiple_of(granularity).unwrap_or(u32::MAX);
        self.restart(now);
    }

    pub(super) fn timeout_ms(&self) -> u32 {
        self.timeout_ms
    }

    pub(super) fn restart(&mut self, now: Duration) {
        self.touched = false;
        self.deadline = now.saturating_add(Duration::from_millis(self.timeout_ms.into()));
    }

    pub(super) fn touch(&mut self) {
        self.touched = true;
    }

    pub(super) fn take_touched(&mut self) -> bool {
        std::mem::take(&mut self.touched)
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        (self.timeout_ms > 0).then_some(self.deadline)
    }
}
