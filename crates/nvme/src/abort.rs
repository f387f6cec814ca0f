//! The Abort command.

use crate::command::Command;
use crate::opcode::AdminOpcode;

bit_struct! {
    /// Command Dword 10 of Abort.
    pub struct AbortDword10(pub u32) {
        /// Submission Queue Identifier (SQID).
        [15:0] submission_queue_id, with_submission_queue_id -> u16;
        /// Command Identifier (CID).
        [31:16] command_id, with_command_id -> u16;
    }
}

bit_struct! {
    /// Dword 0 of the completion of Abort.
    pub struct AbortResult(pub u32) {
        /// Immediate Abort Not Performed (IANP): the command was not aborted.
        [0] not_aborted, with_not_aborted;
    }
}

/// The dwords of an Abort command: which command to give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Abort {
    /// Submission Queue Identifier (SQID) that the command was submitted to.
    pub submission_queue_id: u16,
    /// Command Identifier (CID) of the command.
    pub command_id: u16,
}

impl Abort {
    /// Reads the dwords of an Abort command.
    #[must_use]
    pub const fn from_command(command: &Command) -> Self {
        let dword10 = AbortDword10(command.cdw10.get());
        Self {
            submission_queue_id: dword10.submission_queue_id(),
            command_id: dword10.command_id(),
        }
    }

    /// An Abort command without its own command identifier.
    #[must_use]
    pub fn to_command(self) -> Command {
        let dword10 = AbortDword10(0)
            .with_submission_queue_id(self.submission_queue_id)
            .with_command_id(self.command_id);
        Command::new(AdminOpcode::ABORT).with_cdw10(dword10.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;

    /// `struct nvme_abort_cmd` of Linux: sqid at 40, cid at 42.
    #[test]
    fn abort() {
        AbortDword10::check_bit_fields();
        AbortResult::check_bit_fields();
        let abort = Abort { submission_queue_id: 0x0102, command_id: 0x0304 };
        let command = abort.to_command();
        assert_eq!(command.bytes()[..2], [0x08, 0x40]);
        assert_eq!(command.bytes()[40..44], [0x02, 0x01, 0x04, 0x03]);
        assert_eq!(Abort::from_command(&command), abort);
    }
}
