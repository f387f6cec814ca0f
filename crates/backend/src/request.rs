//! Requests to a device and their completions.

use crate::{Failure, Geometry};
use core::fmt;
use rustix::io::Errno;
use weft_reactor::Buffer;

/// A request to a device.
#[derive(Debug)]
pub struct Request {
    /// The submitter's tag, returned with the completion. It need not be unique. Those of which
    /// the two highest bits are 01 are for wrappers.
    pub tag: u64,
    /// The operation.
    pub operation: Operation,
}

/// An operation. A buffer is exactly as long as its blocks; `Operation<()>` is an operation whose
/// buffers are kept elsewhere.
#[derive(Debug)]
pub enum Operation<B = Buffer> {
    /// Read blocks into a buffer.
    Read {
        /// Starting LBA.
        slba: u64,
        /// Number of logical blocks, counted from 1.
        nlb: u32,
        /// The destination, overwritten as a whole.
        into: B,
    },
    /// Write a buffer to the blocks.
    Write {
        /// Starting LBA.
        slba: u64,
        /// Number of logical blocks, counted from 1.
        nlb: u32,
        /// The source. It must not change until the completion.
        from: B,
        /// Complete only when the data survives a loss of power (FUA).
        durable: bool,
    },
    /// Complete when all completed writes survive a loss of power.
    Flush,
    /// Make the blocks read as zeroes.
    WriteZeroes {
        /// Starting LBA.
        slba: u64,
        /// Number of logical blocks, counted from 1.
        nlb: u32,
        /// The blocks may be deallocated.
        deallocate: bool,
        /// Complete only when the zeroes survive a loss of power.
        durable: bool,
    },
    /// Deallocate blocks, if the device can.
    Discard {
        /// First block and count of each range.
        ranges: Box<[(u64, u32)]>,
    },
    /// Fail with [`Failure::Mismatch`] if the blocks hold other data.
    Compare {
        /// Starting LBA.
        slba: u64,
        /// Number of logical blocks, counted from 1.
        nlb: u32,
        /// The expected data.
        with: B,
    },
    /// Write if the blocks hold the expected data; atomic for every other writer.
    CompareAndWrite {
        /// Starting LBA.
        slba: u64,
        /// Number of logical blocks, counted from 1.
        nlb: u32,
        /// The expected data.
        compare: B,
        /// The data to write.
        write: B,
        /// Complete only when the data survives a loss of power.
        durable: bool,
    },
    /// Check that the blocks are readable.
    Verify {
        /// Starting LBA.
        slba: u64,
        /// Number of logical blocks, counted from 1.
        nlb: u32,
    },
    /// Make reads of these blocks fail until they are written again.
    WriteUncorrectable {
        /// Starting LBA.
        slba: u64,
        /// Number of logical blocks, counted from 1.
        nlb: u32,
    },
}

/// The completion of a request.
#[derive(Debug)]
#[must_use = "every request must be answered"]
pub struct RequestCompletion {
    /// The request's tag.
    pub tag: u64,
    /// The result.
    pub result: Result<(), Failure>,
    /// The request's buffer, also after a failure: the one read into (filled on success), written
    /// from or compared with; for a compare-and-write the one with the data to write.
    pub buffer: Option<Buffer>,
}

/// The kinds of operations, for rules and counters.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum OperationKind {
    /// [`Operation::Read`]
    Read,
    /// [`Operation::Write`]
    Write,
    /// [`Operation::Flush`]
    Flush,
    /// [`Operation::WriteZeroes`]
    WriteZeroes,
    /// [`Operation::Discard`]
    Discard,
    /// [`Operation::Compare`]
    Compare,
    /// [`Operation::CompareAndWrite`]
    CompareAndWrite,
    /// [`Operation::Verify`]
    Verify,
    /// [`Operation::WriteUncorrectable`]
    WriteUncorrectable,
}

impl OperationKind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Read,
        Self::Write,
        Self::Flush,
        Self::WriteZeroes,
        Self::Discard,
        Self::Compare,
        Self::CompareAndWrite,
        Self::Verify,
        Self::WriteUncorrectable,
    ];

    /// The name used in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::WriteZeroes => "write-zeroes",
            Self::Discard => "discard",
            Self::Compare => "compare",
            Self::CompareAndWrite => "compare-and-write",
            Self::Verify => "verify",
            Self::WriteUncorrectable => "write-uncorrectable",
        }
    }

    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether it only reads.
    pub fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::Compare | Self::Verify)
    }

    /// Whether it changes the device's content.
    pub fn is_write(self) -> bool {
        !self.is_read() && self != Self::Flush
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl<B> Operation<B> {
    /// The operation's kind.
    pub fn kind(&self) -> OperationKind {
        match self {
            Self::Read { .. } => OperationKind::Read,
            Self::Write { .. } => OperationKind::Write,
            Self::Flush => OperationKind::Flush,
            Self::WriteZeroes { .. } => OperationKind::WriteZeroes,
            Self::Discard { .. } => OperationKind::Discard,
            Self::Compare { .. } => OperationKind::Compare,
            Self::CompareAndWrite { .. } => OperationKind::CompareAndWrite,
            Self::Verify { .. } => OperationKind::Verify,
            Self::WriteUncorrectable { .. } => OperationKind::WriteUncorrectable,
        }
    }

    /// Whether it completes only when data survives a loss of power.
    pub fn is_durable(&self) -> bool {
        match self {
            Self::Flush => true,
            Self::Write { durable, .. }
            | Self::WriteZeroes { durable, .. }
            | Self::CompareAndWrite { durable, .. } => *durable,
            _ => false,
        }
    }

    /// The blocks it covers: one range for most, none for a flush, several for a discard.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let none: &[(u64, u32)] = &[];
        let (one, many) = match self {
            Self::Flush => (None, none),
            Self::Discard { ranges } => (None, ranges.as_ref()),
            Self::Read { slba, nlb, .. }
            | Self::Write { slba, nlb, .. }
            | Self::WriteZeroes { slba, nlb, .. }
            | Self::Compare { slba, nlb, .. }
            | Self::CompareAndWrite { slba, nlb, .. }
            | Self::Verify { slba, nlb }
            | Self::WriteUncorrectable { slba, nlb } => (Some((*slba, *nlb)), none),
        };
        one.into_iter().chain(many.iter().copied())
    }

    /// Whether it covers no blocks, so that nothing is to be done.
    pub(crate) fn is_empty(&self) -> bool {
        !matches!(self, Self::Flush) && self.ranges().all(|(_, nlb)| nlb == 0)
    }
}

impl Operation {
    /// Checks a request before it is executed: blocks in range, an operation that the device
    /// supports, and buffers as long as their blocks, not shared if they are to be filled.
    pub fn check(&self, geometry: &Geometry) -> Result<(), Failure> {
        let can = &geometry.capabilities;
        if can.read_only && self.kind().is_write() {
            return Err(Failure::ReadOnly);
        }
        let supported = match self {
            Self::Discard { .. } => can.discard,
            Self::CompareAndWrite { .. } => can.compare_and_write,
            Self::WriteUncorrectable { .. } => can.write_uncorrectable,
            _ => true,
        };
        if !supported {
            return Err(Failure::Unsupported);
        }
        if !self.ranges().all(|(block, blocks)| geometry.contains(block, blocks)) {
            return Err(Failure::OutOfRange);
        }
        let fits = |buffer: &Buffer, blocks: u32| {
            u64::try_from(buffer.len()).is_ok_and(|len| len == geometry.bytes_of(blocks))
        };
        let whole = match self {
            Self::Read { nlb, into, .. } => fits(into, *nlb) && !into.is_shared(),
            Self::Write { nlb, from: buffer, .. } | Self::Compare { nlb, with: buffer, .. } => {
                fits(buffer, *nlb)
            }
            Self::CompareAndWrite { nlb, compare, write, .. } => {
                fits(compare, *nlb) && fits(write, *nlb)
            }
            _ => true,
        };
        // An error of the submitter; the kernel returns the same number.
        whole.then_some(()).ok_or(Failure::Device(Errno::INVAL.raw_os_error()))
    }

    /// The buffer to return with the completion.
    pub fn into_buffer(self) -> Option<Buffer> {
        self.split().1
    }

    /// Splits it into the operation, the buffer to return with the completion, and the buffer that
    /// a compare-and-write compares with.
    pub(crate) fn split(self) -> (Operation<()>, Option<Buffer>, Option<Buffer>) {
        let (operation, buffer) = match self {
            Self::Read { slba, nlb, into } => (Operation::Read { slba, nlb, into: () }, Some(into)),
            Self::Write { slba, nlb, from, durable } => {
                (Operation::Write { slba, nlb, from: (), durable }, Some(from))
            }
            Self::Flush => (Operation::Flush, None),
            Self::WriteZeroes { slba, nlb, deallocate, durable } => {
                (Operation::WriteZeroes { slba, nlb, deallocate, durable }, None)
            }
            Self::Discard { ranges } => (Operation::Discard { ranges }, None),
            Self::Compare { slba, nlb, with } => {
                (Operation::Compare { slba, nlb, with: () }, Some(with))
            }
            Self::CompareAndWrite { slba, nlb, compare, write, durable } => {
                let operation =
                    Operation::CompareAndWrite { slba, nlb, compare: (), write: (), durable };
                return (operation, Some(write), Some(compare));
            }
            Self::Verify { slba, nlb } => (Operation::Verify { slba, nlb }, None),
            Self::WriteUncorrectable { slba, nlb } => {
                (Operation::WriteUncorrectable { slba, nlb }, None)
            }
        };
        (operation, buffer, None)
    }
}

impl Request {
    /// Completes the request with a failure, without executing it.
    pub fn refuse(self, failure: Failure) -> RequestCompletion {
        RequestCompletion {
            tag: self.tag,
            result: Err(failure),
            buffer: self.operation.into_buffer(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for kind in OperationKind::ALL {
            assert_eq!(OperationKind::from_name(kind.name()), Some(kind));
            assert!(!(kind.is_read() && kind.is_write()));
        }
        assert_eq!(OperationKind::from_name("trim"), None);
    }
}
