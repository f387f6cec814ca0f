//! The Abort command.

use weft_nvme::abort::{Abort, AbortResult};
use weft_nvme::{Command, Status};

use super::outcome::Outcome;
use super::{Controller, Effect, PendingAbort};
use crate::queue::{CommandError, error};

const LIMIT: CommandError =
    CommandError { status: Status::ABORT_COMMAND_LIMIT_EXCEEDED, parameter: None };
const QUEUE: CommandError = error(Status::INVALID_FIELD, 40);

impl Controller {
    /// Abort. Pending admin commands are aborted here; for a command of an I/O queue the target is
    /// asked.
    pub(super) fn abort(&mut self, command: &Command) -> Result<Outcome, CommandError> {
        let abort = Abort::from_command(command);
        let abort_id = command.command_id.get();
        if abort.submission_queue_id == 0 {
            let found = self.events.withdraw(abort.command_id);
            if found {
                let aborted = self.completion(abort.command_id, Status::ABORT_REQUESTED);
                self.complete_late(aborted);
            }
            return Ok(Outcome::Done(result(found)));
        }
        if abort.submission_queue_id > self.view.limits.max_io_queues {
            return Err(QUEUE);
        }
        if !self.queues.contains_key(&abort.submission_queue_id) {
            return Ok(Outcome::Done(result(false)));
        }
        if self.aborts.len() >= usize::from(self.view.limits.max_aborts) {
            return Err(LIMIT);
        }
        let queue_id = abort.submission_queue_id;
        self.aborts.push(PendingAbort { abort_id, queue_id });
        self.effects.push_back(Effect::Abort { abort_id, queue_id, command_id: abort.command_id });
        Ok(Outcome::Pending)
    }

    /// Answers an Abort, if it still waits.
    pub(super) fn finish_abort(&mut self, abort_id: u16, aborted: bool) {
        let waiting = self.aborts.iter().position(|pending| pending.abort_id == abort_id);
        if let Some(index) = waiting {
            self.aborts.swap_remove(index);
            let completion = self.completion(abort_id, Status::SUCCESS);
            self.complete_late(completion.with_result(result(aborted)));
        }
    }

    /// A queue ended: what was to be aborted there has finished by itself.
    pub(super) fn finish_aborts_of(&mut self, queue_id: u16) {
        let ended = self.aborts.iter().filter(|pending| pending.queue_id == queue_id);
        for abort_id in ended.map(|pending| pending.abort_id).collect::<Vec<_>>() {
            self.finish_abort(abort_id, false);
        }
    }

    /// Answers all Aborts: nothing was aborted.
    pub(super) fn finish_all_aborts(&mut self) {
        while let Some(pending) = self.aborts.first() {
            self.finish_abort(pending.abort_id, false);
        }
    }

    /// Whether an Abort of this identifier waits.
    pub(super) fn is_aborting(&self, abort_id: u16) -> bool {
        self.aborts.iter().any(|pending| pending.abort_id == abort_id)
    }
}

fn result(aborted: bool) -> u64 {
    u64::from(AbortResult(0).with_not_aborted(!aborted).0)
}
