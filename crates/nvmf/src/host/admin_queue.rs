//! The outstanding commands of the admin queue, each with its purpose and timeout.

use core::time::Duration;

use weft_nvme::Command;

use super::limits;
use super::problem::{HostStep, Problem};

/// The data of an admin command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminData {
    /// None.
    None,
    /// Bytes for the controller.
    ToController(Vec<u8>),
    /// Room for so many bytes from the controller.
    FromController(u32),
}

/// An admin command that is to be sent.
#[derive(Debug, Clone)]
pub struct AdminCommand {
    /// Returned with the completion.
    pub tag: u16,
    /// The command; the transport fills in its identifier and SGL.
    pub command: Command,
    /// Its data.
    pub data: AdminData,
}

/// Who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Initialise,
    Authenticate,
    Scan,
    KeepAlive,
    Event,
    Stop,
    User(u64),
}

/// One command on the wire.
#[derive(Debug, Clone)]
pub(super) struct Outstanding {
    pub(super) purpose: Purpose,
    pub(super) step: HostStep,
    pub(super) sent_at: Duration,
    pub(super) timeout: Option<Duration>,
}

/// Commands that may be outstanding: one less than the queue has entries.
const TAGS: usize = limits::ADMIN_QUEUE_ENTRIES as usize - 1;

/// Tags that user commands do not get, so that the association's own commands always have one.
const RESERVED: usize = 5;

/// The table of outstanding commands.
#[derive(Debug)]
pub(super) struct AdminQueue {
    table: [Option<Outstanding>; TAGS],
}

impl AdminQueue {
    pub(super) const fn new() -> Self {
        Self { table: [const { None }; TAGS] }
    }

    /// Allocates a tag for a command; `None` if there is none for this purpose.
    pub(super) fn submit(
        &mut self,
        outstanding: Outstanding,
        command: (Command, AdminData),
    ) -> Option<AdminCommand> {
        let (command, data) = command;
        let is_user = matches!(outstanding.purpose, Purpose::User(_));
        if is_user && !self.has_room_for_user() {
            return None;
        }
        let free = self.table.iter().position(Option::is_none)?;
        *self.table.get_mut(free)? = Some(outstanding);
        Some(AdminCommand { tag: u16::try_from(free).ok()?, command, data })
    }

    pub(super) fn has_room_for_user(&self) -> bool {
        self.table.iter().filter(|entry| entry.is_none()).count() > RESERVED
    }

    /// The command of this tag was answered.
    pub(super) fn take(&mut self, tag: u16) -> Option<Outstanding> {
        self.table.get_mut(usize::from(tag))?.take()
    }

    /// The step that the command of this tag belongs to.
    #[cfg(test)]
    pub(super) fn step_of(&self, tag: u16) -> Option<HostStep> {
        self.table.get(usize::from(tag))?.as_ref().map(|entry| entry.step)
    }

    /// Removes and returns all outstanding commands, after the connection was lost.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Outstanding> + use<> {
        core::mem::replace(&mut self.table, [const { None }; TAGS]).into_iter().flatten()
    }

    /// When the first command times out.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let ends = self.table.iter().flatten();
        ends.filter_map(|entry| Some(entry.sent_at.saturating_add(entry.timeout?))).min()
    }

    /// A command that has timed out.
    pub(super) fn overdue(&self, now: Duration) -> Option<Problem> {
        let mut entries = self.table.iter().flatten();
        entries.find_map(|entry| {
            let timeout = entry.timeout?;
            let late = entry.sent_at.saturating_add(timeout) <= now;
            late.then_some(Problem::TimedOut { step: entry.step, waited: timeout })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_nvme::AdminOpcode;

    const SECOND: Duration = Duration::from_secs(1);

    fn submit(queue: &mut AdminQueue, purpose: Purpose) -> Option<u16> {
        let command = (Command::new(AdminOpcode::KEEP_ALIVE), AdminData::None);
        let (step, timeout) = (HostStep::UserCommand, Some(SECOND));
        let outstanding = Outstanding { purpose, step, sent_at: SECOND, timeout };
        queue.submit(outstanding, command).map(|command| command.tag)
    }

    #[test]
    fn users_leave_room_for_the_machine() {
        let mut queue = AdminQueue::new();
        let mut users = 0;
        while submit(&mut queue, Purpose::User(users)).is_some() {
            users += 1;
        }
        assert_eq!(users, 26);
        for _ in 0..RESERVED {
            assert!(submit(&mut queue, Purpose::KeepAlive).is_some());
        }
        assert_eq!(submit(&mut queue, Purpose::KeepAlive), None);
        assert_eq!(queue.take(3).map(|entry| entry.purpose), Some(Purpose::User(3)));
        assert!(queue.take(3).is_none() && queue.take(999).is_none());
        assert_eq!(submit(&mut queue, Purpose::Event), Some(3));
        assert_eq!(queue.drain().count(), TAGS);
        assert_eq!(queue.drain().count(), 0);
    }

    #[test]
    fn the_oldest_command_gives_the_deadline() {
        let mut queue = AdminQueue::new();
        assert_eq!((queue.deadline(), queue.overdue(Duration::MAX)), (None, None));
        submit(&mut queue, Purpose::Scan).unwrap();
        assert_eq!(queue.deadline(), Some(2 * SECOND));
        assert_eq!(queue.overdue(SECOND), None);
        let silent = Problem::TimedOut { step: HostStep::UserCommand, waited: SECOND };
        assert_eq!(queue.overdue(2 * SECOND), Some(silent));
    }
}
