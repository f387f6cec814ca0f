//! What a queue asks of a device, and what becomes of a device's failures.

use crate::reservation;

/// What the target is to do for one I/O command: on which device, and which data goes where.
///
/// Everything in it has been checked against the view that the queue held when the command
/// came. If the command then waits for its data, hold it against the view of that moment:
/// [`crate::queue::IoQueue::recheck`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceCommand {
    /// Command Identifier, for [`crate::queue::IoQueue::complete`].
    pub command_id: u16,
    /// Index of the device in the target's table.
    pub device: u32,
    /// Namespace Identifier.
    pub nsid: u32,
    /// What to do.
    pub operation: DeviceOperation,
    /// Which data the host sends or gets.
    pub transfer: Transfer,
}

/// What a device is to do. Blocks are logical blocks of the namespace, and within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceOperation {
    /// Read into the buffer that goes to the host.
    Read {
        /// Starting LBA.
        slba: u64,
        /// Number of logical blocks, counted from 1.
        nlb: u32,
    },
    /// Write what the host sent.
    Write {
        /// Starting LBA.
        slba: u64,
        /// Number of logical blocks, counted from 1.
        nlb: u32,
        /// Whether it must be durable before the command completes.
        durable: bool,
    },
    /// Make durable what was written.
    Flush,
    /// Write zeros.
    WriteZeroes {
        /// Starting LBA.
        slba: u64,
        /// Number of logical blocks, counted from 1.
        nlb: u32,
        /// Whether the blocks may be freed.
        deallocate: bool,
        /// Whether it must be durable before the command completes.
        durable: bool,
    },
    /// Deallocate; the ranges come as data, see [`crate::queue::IoQueue::handle_ranges`].
    Deallocate {
        /// Number of ranges.
        ranges: u16,
    },
    /// Compare with what the host sent.
    Compare {
        /// Starting LBA.
        slba: u64,
        /// Number of logical blocks, counted from 1.
        nlb: u32,
    },
    /// Read, and tell only whether it went well.
    Verify {
        /// Starting LBA.
        slba: u64,
        /// Number of logical blocks, counted from 1.
        nlb: u32,
    },
    /// Let reads of these blocks fail until they are written.
    WriteUncorrectable {
        /// Starting LBA.
        slba: u64,
        /// Number of logical blocks, counted from 1.
        nlb: u32,
    },
    /// Copy blocks; the source ranges come as data, see [`crate::queue::IoQueue::handle_copy`].
    Copy {
        /// Starting Destination LBA.
        sdlba: u64,
        /// Number of source ranges.
        ranges: u16,
        /// Whether each of them names its namespace.
        names_namespaces: bool,
        /// Whether it must be durable before the command completes.
        durable: bool,
    },
    /// Change the reservations of the namespace; the keys come as data. No device does it.
    Reserve(reservation::Operation),
    /// Report the reservations of the namespace. No device does it.
    ReportReservations,
}

impl DeviceOperation {
    /// First block and number of blocks; `None` for what speaks of no one range.
    #[must_use]
    pub const fn range(&self) -> Option<(u64, u32)> {
        match *self {
            Self::Read { slba, nlb }
            | Self::Write { slba, nlb, .. }
            | Self::WriteZeroes { slba, nlb, .. }
            | Self::Compare { slba, nlb }
            | Self::Verify { slba, nlb }
            | Self::WriteUncorrectable { slba, nlb } => Some((slba, nlb)),
            Self::Flush
            | Self::Deallocate { .. }
            | Self::Copy { .. }
            | Self::Reserve(_)
            | Self::ReportReservations => None,
        }
    }

    /// The first block that it is about; 0 for what speaks of none or of several ranges.
    pub(crate) const fn first_block(&self) -> u64 {
        match (self, self.range()) {
            (Self::Copy { sdlba, .. }, _) => *sdlba,
            (_, Some((slba, _))) => slba,
            _ => 0,
        }
    }

    /// Whether it changes what is stored.
    #[must_use]
    pub const fn modifies(&self) -> bool {
        match self {
            Self::Write { .. }
            | Self::WriteZeroes { .. }
            | Self::Deallocate { .. }
            | Self::Copy { .. }
            | Self::WriteUncorrectable { .. } => true,
            Self::Read { .. }
            | Self::Flush
            | Self::Compare { .. }
            | Self::Verify { .. }
            | Self::Reserve(_)
            | Self::ReportReservations => false,
        }
    }
}

/// Which data a command moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// None.
    None,
    /// This many bytes go to the host.
    ToHost(u32),
    /// This many bytes come from the host, in the capsule or after it.
    FromHost(u32),
}

impl Transfer {
    /// How many bytes they are.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::None => 0,
            Self::ToHost(bytes) | Self::FromHost(bytes) => bytes as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_know_their_range_and_kind() {
        let write = DeviceOperation::Write { slba: 3, nlb: 4, durable: false };
        assert_eq!((write.range(), write.modifies()), (Some((3, 4)), true));
        let compare = DeviceOperation::Compare { slba: 5, nlb: 6 };
        assert_eq!((compare.range(), compare.modifies()), (Some((5, 6)), false));
        let deallocate = DeviceOperation::Deallocate { ranges: 1 };
        assert_eq!((deallocate.range(), deallocate.modifies()), (None, true));
        assert_eq!(
            (DeviceOperation::Flush.range(), DeviceOperation::Flush.modifies()),
            (None, false)
        );
    }
}
