//! What a connection takes and what it reports.

use weft_nvme::Completion;
use weft_nvmf::tcp::Negotiated;
use weft_reactor::Buffer;

use crate::{CloseReason, DataDigestError, Slot};

/// Events of a connection.
#[derive(Debug)]
pub enum HostEvent {
    /// The connection is established: commands, first of all Connect, may be submitted.
    Ready {
        /// The result of the handshake; over TCP there is nothing to negotiate.
        negotiated: Option<Negotiated>,
    },
    /// A command has completed; its slot is free.
    Completed {
        /// The command's slot.
        slot: Slot,
        /// The completion queue entry.
        completion: Completion,
        /// The command's buffer, unless part of it is still being sent.
        buffer: Option<Buffer>,
        /// Bytes that the controller has transferred into the buffer, from its start. The caller
        /// checks whether they are complete.
        received: u32,
    },
    /// A command has completed, but its data is corrupt; its slot is free.
    Failed {
        /// The command's slot.
        slot: Slot,
        /// The command's buffer.
        buffer: Option<Buffer>,
        /// The error.
        why: DataDigestError,
    },
    /// The connection is closed; the last event.
    Closed {
        /// The reason.
        reason: CloseReason,
        /// Commands that were in flight, which may or may not have been executed, and their buffers
        /// as far as they were returned.
        in_flight: Vec<(Slot, Option<Buffer>)>,
    },
}

/// A command's data.
#[derive(Debug)]
pub enum HostData {
    /// No data.
    None,
    /// Data for the controller: the whole buffer. It must not change until it is returned.
    ToController(Buffer),
    /// A buffer for the controller to fill, which must not be shared.
    FromController(Buffer),
}

/// A command that could not be submitted.
#[derive(Debug)]
pub struct NotSubmitted {
    /// The command's data.
    pub data: HostData,
    /// The error of this side, if any; `None`: no slot is free or the connection is not ready, and
    /// the command may be submitted later.
    pub why: Option<CloseReason>,
}

impl From<HostData> for NotSubmitted {
    fn from(data: HostData) -> Self {
        Self { data, why: None }
    }
}
