//! Log lines that peers cause: so many in a second, and then a line that says how many more there
//! were.

use std::fmt::Arguments;
use std::time::Duration;

use log::Level;

use crate::shared::limits::LINES_INTERVAL;

/// Lines of one kind that one group has written.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    since: Option<Duration>,
    said: u64,
    unsaid: u64,
}

impl Lines {
    /// Writes a line, if there were not `most` of them in this second; at level debug otherwise.
    pub(crate) fn say(&mut self, level: Level, what: Arguments<'_>, most: u64, now: Duration) {
        match self.admit(most, now) {
            None => log::debug!("{what}"),
            Some(0) => log::log!(level, "{what}"),
            Some(more) => log::log!(level, "{what}; {more} others before it"),
        }
    }

    /// Whether a line may be written now, and how many were not since the last one.
    fn admit(&mut self, most: u64, now: Duration) -> Option<u64> {
        if self.since.is_none_or(|since| now.saturating_sub(since) >= LINES_INTERVAL) {
            (self.since, self.said) = (Some(now), 0);
        }
        if self.said >= most {
            self.unsaid += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_is_counted_and_not_written() {
        let mut lines = Lines::default();
        let second = Duration::from_secs(1);
        let mut admitted = |now| (0..1000).filter_map(|_| lines.admit(8, now)).collect::<Vec<_>>();
        assert_eq!(admitted(second), [0; 8]);
        assert_eq!(admitted(2 * second), [992, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(admitted(2 * second), Vec::<u64>::new());
    }
}
