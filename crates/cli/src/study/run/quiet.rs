//! Waiting for a quiet machine before a study.

use std::sync::atomic::AtomicBool;

use weft_lab::study::agent::Fleet;
use weft_lab::study::quiet::{self, WaitEnd};

use super::{NOT_QUIET, RunOptions};
use crate::failure::Failure;
use crate::{output, signals};

impl RunOptions {
    /// Waits until the machines are quiet, if that is wanted.
    pub(in crate::study) fn await_quiet(
        &self,
        fleet: Option<&Fleet>,
        stop: &AtomicBool,
    ) -> Result<(), Failure> {
        let who = if self.told_elsewhere { "weft advise" } else { "weft study" };
        let mut tell = |what: &str| {
            if !self.quiet {
                output::print_error(&format!("{who}: {what}"));
            }
        };
        let waited = match self.wait_for_quiet {
            Some(limit) => quiet::wait(limit, fleet, stop, &mut tell),
            // A study marks its cells, and nothing is advised of those.
            None if self.told_elsewhere && !self.accept_disturbed => quiet::now(fleet, stop),
            None => return Ok(()),
        };
        match waited {
            WaitEnd::Quiet => Ok(()),
            WaitEnd::Stopped => Err(Failure::Exit(signals::INTERRUPTED)),
            WaitEnd::GaveUp(why) => {
                output::print_error(&format!("{who}: {why}"));
                Err(Failure::Exit(NOT_QUIET))
            }
        }
    }
}
