//! What is shown of readings, and what keys change of that.

use std::time::Instant;

use weft_statistics::Statistics;

use super::keys::{Keyboard, WaitEnd};
use super::{COLUMNS, Options, Queue, Sort, screen};
use crate::failure::Failure;
use crate::output;

/// Cursor to the first place, and the screen cleared.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// What the keys do; the first ones say what comes first.
const KEYS: &str = "\ni IOPS  b bandwidth  p p99  e errors  |  s since the start, or not\n\
                    u queues  |  ? hides the keys  |  q ends\n";

pub(super) fn no_keyboard(error: std::io::Error) -> Failure {
    Failure::io("read", &"the keyboard", &error)
}

/// What was read at one time.
pub(super) struct Reading {
    /// The last interval.
    pub(super) between: Statistics,
    /// Since the target's start.
    pub(super) whole: Statistics,
    pub(super) queues: Vec<Queue>,
}

/// What is shown, as options said at first and keys say since.
pub(super) struct View {
    pub(super) options: Options,
    pub(super) has_keys: bool,
    pub(super) shows_keys: bool,
}

/// Waits until it is time to read again; meanwhile keys change what is shown of the last reading.
/// False: it is to end.
pub(super) fn pause(
    keyboard: Option<&Keyboard>,
    view: &mut View,
    last: Option<&Reading>,
) -> Result<bool, Failure> {
    let Some(keyboard) = keyboard else {
        std::thread::sleep(view.options.interval);
        return Ok(true);
    };
    let until = Instant::now() + view.options.interval;
    loop {
        match keyboard.wait(until).map_err(no_keyboard)? {
            WaitEnd::Time => return Ok(true),
            WaitEnd::End | WaitEnd::Key('q') => return Ok(false),
            WaitEnd::Key(key) => {
                if view.obey(key)
                    && let Some(last) = last
                {
                    view.show(last, true)?;
                }
            }
        }
    }
}

impl View {
    /// Changes what is shown; false: the key has no meaning.
    fn obey(&mut self, key: char) -> bool {
        match key {
            '?' | 'h' => self.shows_keys = !self.shows_keys,
            's' => self.options.since_start = !self.options.since_start,
            'u' => self.options.queues = !self.options.queues,
            'i' => self.options.sort = Sort::Iops,
            'b' => self.options.sort = Sort::Bandwidth,
            'p' => self.options.sort = Sort::P99,
            'e' => self.options.sort = Sort::Errors,
            _ => return false,
        }
        true
    }

    fn keys(&self) -> &'static str {
        match (self.has_keys, self.shows_keys) {
            (false, _) => "",
            (true, false) => "\nq ends, ? shows the keys\n",
            (true, true) => KEYS,
        }
    }

    /// `clears`: in place of what was shown before.
    pub(super) fn show(&self, reading: &Reading, clears: bool) -> Result<(), Failure> {
        let columns = output::columns().unwrap_or(COLUMNS);
        let period = if self.options.since_start { &reading.whole } else { &reading.between };
        let screen = screen(period, &reading.queues, &self.options, columns) + self.keys();
        if clears {
            output::print_bytes(CLEAR.as_bytes())?;
        }
        output::print(&screen)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::options;
    use super::*;

    #[test]
    fn keys_change_what_is_shown() {
        let mut view =
            View { options: options(Sort::Iops, None), has_keys: true, shows_keys: false };
        let sorts =
            [('b', Sort::Bandwidth), ('p', Sort::P99), ('e', Sort::Errors), ('i', Sort::Iops)];
        for (key, sort) in sorts {
            assert!(view.obey(key));
            assert_eq!(view.options.sort, sort, "{key}");
        }
        assert!(!view.obey('x') && !view.obey('\n'));
        assert!(view.keys().contains("? shows"));
        assert!(view.obey('?') && view.obey('s') && view.obey('u'));
        assert!(view.options.since_start && !view.options.queues);
        let keys = view.keys();
        for key in ["i", "b", "p", "e", "s", "u", "?", "q"] {
            assert!(keys.split_whitespace().any(|word| word == key), "{key}");
        }
        assert!(keys.lines().all(|line| line.len() <= 80), "{keys}");
    }
}
