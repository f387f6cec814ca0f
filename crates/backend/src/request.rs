//! Requests to a device and their completions.

use crate::{Failure, Geometry};
use core::fmt;
use rustix::io::Errno;
use weft_reactor::Buffer;

/// One thing that a device is asked to do.
#[derive(Debug)]
pub struct Request {
    /// The submitter's own; comes back with the completion. It need not be unique.
    pub tag: u64,
    /// What to do.
    pub operation: Operation,
}

/// What a device can be asked. A buffer is exactly as long as its blocks.
#[derive(Debug)]
pub enum Operation {
    /// Fill a buffer from the blocks.
    Read {
        /// The first block.
        block: u64,
        /// How many.
        blocks: u32,
        /// Where to; whatever it held is gone.
        into: Buffer,
    },
    /// Write a buffer to the blocks.
    Write {
        /// The first block.
        block: u64,
        /// How many.
        blocks: u32,
        /// Where from. It must not change until the completion.
        from: Buffer,
        /// Complete only when this write survives a loss of power.
        durable: bool,
    },
    /// Complete when all that completed before survives a loss of power.
    Flush,
    /// Make the blocks read as zeroes.
    WriteZeroes {
        /// The first block.
        block: u64,
        /// How many.
        blocks: u32,
        /// The space may be given back.
        deallocate: bool,
        /// Complete only when this survives a loss of power.
        durable: bool,
    },
    /// Give the space of these blocks back, where the device can.
    Discard {
        /// First block and count of each range.
        ranges: Box<[(u64, u32)]>,
    },
    /// Fail with [`Failure::Mismatch`] if the blocks hold anything else.
    Compare {
        /// The first block.
        block: u64,
        /// How many.
        blocks: u32,
        /// What they should hold.
        with: Buffer,
    },
    /// Write if the blocks hold what is given, as one step in the eyes of every other writer.
    CompareAndWrite {
        /// The first block.
        block: u64,
        /// How many.
        blocks: u32,
        /// What they should hold.
        compare: Buffer,
        /// What they shall hold then.
        write: Buffer,
        /// Complete only when the write survives a loss of power.
        durable: bool,
    },
    /// Check that the blocks can be read.
    Verify {
        /// The first block.
        block: u64,
        /// How many.
        blocks: u32,
    },
    /// Let reads of these blocks fail until they are written again.
    WriteUncorrectable {
        /// The first block.
        block: u64,
        /// How many.
        blocks: u32,
    },
}

/// The end of a request: every request has exactly one.
#[derive(Debug)]
#[must_use = "a completion that nobody looks at is a request that nobody answers"]
pub struct Completion {
    /// The request's.
    pub tag: u64,
    /// Whether it did what it asked.
    pub result: Result<(), Failure>,
    /// The request's buffer, whatever the result: what was read into (filled if all went well),
    /// written from or compared with. Of a compare-and-write, the one that was to be written.
    pub buffer: Option<Buffer>,
}

/// The operations by name, for rules and counters.
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
    /// Every operation.
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

    /// The name that configuration uses.
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

    /// The operation of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether it only looks at the device.
    pub fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::Compare | Self::Verify)
    }

    /// Whether it changes what the device holds.
    pub fn is_write(self) -> bool {
        !self.is_read() && self != Self::Flush
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Operation {
    /// Its name.
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

    /// Whether it completes only when something survives a loss of power.
    pub fn is_durable(&self) -> bool {
        match self {
            Self::Flush => true,
            Self::Write { durable, .. }
            | Self::WriteZeroes { durable, .. }
            | Self::CompareAndWrite { durable, .. } => *durable,
            _ => false,
        }
    }

    /// The blocks it names: one range of most, none of a flush, several of a discard.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let none: &[(u64, u32)] = &[];
        let (one, many) = match self {
            Self::Flush => (None, none),
            Self::Discard { ranges } => (None, ranges.as_ref()),
            Self::Read { block, blocks, .. }
            | Self::Write { block, blocks, .. }
            | Self::WriteZeroes { block, blocks, .. }
            | Self::Compare { block, blocks, .. }
            | Self::CompareAndWrite { block, blocks, .. }
            | Self::Verify { block, blocks }
            | Self::WriteUncorrectable { block, blocks } => (Some((*block, *blocks)), none),
        };
        one.into_iter().chain(many.iter().copied())
    }

    /// Checks a request before anything is done: blocks that exist, a device that may be written
    /// and can do it, buffers as long as their blocks, and nobody else's if they are to be filled.
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
            Self::Read { blocks, into, .. } => fits(into, *blocks) && !into.is_shared(),
            Self::Write { blocks, from: buffer, .. }
            | Self::Compare { blocks, with: buffer, .. } => fits(buffer, *blocks),
            Self::CompareAndWrite { blocks, compare, write, .. } => {
                fits(compare, *blocks) && fits(write, *blocks)
            }
            _ => true,
        };
        // Not the device's failure but the submitter's; the kernel would use the same number.
        whole.then_some(()).ok_or(Failure::Device(Errno::INVAL.raw_os_error()))
    }

    /// The buffer that goes back with the completion.
    pub fn into_buffer(self) -> Option<Buffer> {
        match self {
            Self::Read { into: buffer, .. }
            | Self::Write { from: buffer, .. }
            | Self::Compare { with: buffer, .. }
            | Self::CompareAndWrite { write: buffer, .. } => Some(buffer),
            Self::Flush
            | Self::WriteZeroes { .. }
            | Self::Discard { .. }
            | Self::Verify { .. }
            | Self::WriteUncorrectable { .. } => None,
        }
    }
}

impl Request {
    /// Ends the request without having done anything.
    pub fn refuse(self, failure: Failure) -> Completion {
        Completion { tag: self.tag, result: Err(failure), buffer: self.operation.into_buffer() }
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
