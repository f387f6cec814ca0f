//! What a connection reports.

use weft_nvme::Status;
use weft_reactor::Buffer;

use crate::{CloseReason, DataDigestError, Slot};

/// Events of a connection.
#[derive(Debug)]
pub enum Event {
    /// A command with all of its in-capsule data.
    /// [`command`](crate::target::TargetConnection::command) returns it. Its slot is in flight
    /// until [`send`](crate::target::TargetConnection::send) or
    /// [`complete`](crate::target::TargetConnection::complete).
    Command {
        /// The command's slot.
        slot: Slot,
        /// Its in-capsule data.
        data: CapsuleData,
    },
    /// All data requested by [`receive`](crate::target::TargetConnection::receive).
    Data {
        /// The command's slot.
        slot: Slot,
        /// The buffer, filled.
        buffer: Buffer,
        /// An error if the data is corrupt; then the command is to be completed with Transient
        /// Transport Error.
        result: Result<(), DataDigestError>,
    },
    /// The connection is closed; the last event. Completions of commands in flight are accepted and
    /// ignored.
    Closed {
        /// The reason.
        reason: CloseReason,
    },
}

/// The in-capsule data of a command.
#[derive(Debug)]
pub enum CapsuleData {
    /// No data.
    None,
    /// All data, as long as the command's SGL says.
    Inline(Buffer),
    /// The data's digest is wrong: the command is to be completed with Transient Transport Error.
    Corrupt,
    /// The data does not fit the command's SGL: the command is to be completed with this status.
    Invalid(Status),
}

impl CapsuleData {
    /// The data, if any, or the status to complete the command with.
    pub fn into_result(self) -> Result<Option<Buffer>, Status> {
        match self {
            Self::None => Ok(None),
            Self::Inline(buffer) => Ok(Some(buffer)),
            Self::Corrupt => Err(Status::TRANSIENT_TRANSPORT_ERROR),
            Self::Invalid(status) => Err(status),
        }
    }
}
