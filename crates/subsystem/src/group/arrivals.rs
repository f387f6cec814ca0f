//! When the events of a connection have come that wait to be handled.

use std::collections::VecDeque;
use std::time::Duration;

/// The times of events, in order. Several that came at once have one.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    times: VecDeque<(Duration, usize)>,
    /// Events in all.
    events: usize,
}

impl Arrivals {
    /// So many events are waiting now.
    pub(super) fn note(&mut self, waiting: usize, now: Duration) {
        if waiting < self.events {
            // The transport has dropped them.
            *self = Self::default();
        }
        if waiting > self.events {
            self.times.push_back((now, waiting - self.events));
            self.events = waiting;
        }
    }

    /// The first event is handled: when it came, if that was noted.
    pub(super) fn take(&mut self) -> Option<Duration> {
        let (at, left) = self.times.front_mut()?;
        let at = *at;
        *left -= 1;
        self.events -= 1;
        if *left == 0 {
            self.times.pop_front();
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_has_the_time_at_which_it_came() {
        let ms = Duration::from_millis;
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.take(), None);
        arrivals.note(2, ms(1));
        arrivals.note(2, ms(2));
        assert_eq!(arrivals.take(), Some(ms(1)));
        arrivals.note(2, ms(3));
        let taken = [arrivals.take(), arrivals.take(), arrivals.take()];
        assert_eq!(taken, [Some(ms(1)), Some(ms(3)), None]);
    }
}
