//! The keys of `weft top`, each obeyed without Enter.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{self, LocalModes, OptionalActions, Termios};

use crate::signals;

/// A terminal that gives each key at once and does not show it, as long as this value lives.
#[derive(Debug)]
pub(super) struct Keyboard {
    before: Termios,
    stop: Arc<AtomicBool>,
}

/// What has ended a wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WaitEnd {
    /// The time is over.
    Time,
    Key(char),
    /// Standard input has ended, or a signal has come.
    End,
}

impl Keyboard {
    /// The keyboard of a terminal that is this program's now. A program in the background would be
    /// stopped.
    pub(super) fn open() -> io::Result<Option<Self>> {
        let stdin = io::stdin();
        if !stdin.is_terminal()
            || termios::tcgetpgrp(&stdin).ok() != Some(rustix::process::getpgrp())
        {
            return Ok(None);
        }
        let before = termios::tcgetattr(&stdin)?;
        // A signal would otherwise end the program with the terminal as it is.
        let stop = signals::stop_flag()?;
        let mut now = before.clone();
        now.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        termios::tcsetattr(&stdin, OptionalActions::Now, &now)?;
        Ok(Some(Self { before, stop }))
    }

    /// Waits until a time for a key.
    pub(super) fn wait(&self, until: Instant) -> io::Result<WaitEnd> {
        let stdin = io::stdin();
        while !self.stop.load(Ordering::Relaxed) {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
            let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
            match poll(&mut ready, Some(&timeout)) {
                Ok(0) => return Ok(WaitEnd::Time),
                Err(Errno::INTR) => continue,
                outcome => outcome?,
            };
            let mut key = [0; 1];
            return match rustix::io::read(&stdin, &mut key)? {
                0 => Ok(WaitEnd::End),
                _ => Ok(WaitEnd::Key(char::from(key[0]))),
            };
        }
        Ok(WaitEnd::End)
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
