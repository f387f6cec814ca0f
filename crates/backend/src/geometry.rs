//! The geometry of a device: its blocks, hints and capabilities.

use crate::OpenError;
use crate::error::check_size;

/// The default block size of a memory or null device.
pub const BLOCK_BYTES_DEFAULT: u32 = 4096;

/// A device's current geometry.
///
/// All counts are in blocks and start at 1; a hint of 0 is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The size of a block: a power of two, 512 or more.
    pub block_bytes: u32,
    /// The number of blocks. Changes when the device is resized.
    pub blocks: u64,
    /// The number of blocks that a reader sees written at once or not at all. At least 1.
    pub atomic_blocks: u32,
    /// The number of blocks that a compare-and-write covers atomically for readers and writers.
    pub compare_and_write_blocks: u32,
    /// Aligned writes of a multiple of this need no read-modify-write.
    pub preferred_blocks: u32,
    /// The best length of a transfer.
    pub optimal_blocks: u32,
    /// Discards that are smaller or unaligned may free nothing.
    pub discard_granularity_blocks: u32,
    /// The optional features.
    pub capabilities: Capabilities,
}

/// The optional features of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Writes are refused.
    pub read_only: bool,
    /// Completed writes may be lost with the power until a flush.
    pub volatile_cache: bool,
    /// Blocks can be discarded.
    pub discard: bool,
    /// Discarded blocks read as zeroes afterwards.
    pub discard_reads_zeroes: bool,
    /// Zeroes can be written without sending them.
    pub write_zeroes: bool,
    /// A single write can be made durable before it completes.
    pub durable_write: bool,
    /// Compare-and-write is supported.
    pub compare_and_write: bool,
    /// Blocks can be marked as unreadable.
    pub write_uncorrectable: bool,
    /// A hard disk.
    pub rotational: bool,
}

impl Geometry {
    /// A geometry of `bytes` in blocks of `block_bytes`, without hints and capabilities. An
    /// incomplete last block is not used.
    pub fn new(bytes: u64, block_bytes: u32) -> Self {
        Self {
            block_bytes,
            blocks: bytes / u64::from(block_bytes.max(1)),
            atomic_blocks: 1,
            compare_and_write_blocks: 1,
            preferred_blocks: 0,
            optimal_blocks: 0,
            discard_granularity_blocks: 0,
            capabilities: Capabilities::default(),
        }
    }

    /// The size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(u64::from(self.block_bytes))
    }

    /// The length of `blocks` blocks in bytes.
    pub fn bytes_of(&self, blocks: u32) -> u64 {
        u64::from(blocks) * u64::from(self.block_bytes)
    }

    /// The byte offset of a block that is in range.
    pub fn offset_of(&self, block: u64) -> u64 {
        block.saturating_mul(u64::from(self.block_bytes))
    }

    /// Whether all these blocks exist.
    pub fn contains(&self, block: u64, blocks: u32) -> bool {
        block.checked_add(u64::from(blocks)).is_some_and(|end| end <= self.blocks)
    }
}

/// Whether a block may have this size: a power of two from 512 to 64 KiB.
pub fn is_block_size(block_bytes: u32) -> bool {
    block_bytes.is_power_of_two() && (512..=65536).contains(&block_bytes)
}

/// The geometry of a device of a given size.
pub(crate) fn sized(bytes: u64, block_bytes: u32) -> Result<Geometry, OpenError> {
    if !is_block_size(block_bytes) {
        let what = format!("{block_bytes} bytes is not a block size (use 512 or 4096)");
        return Err(OpenError::Invalid(what));
    }
    let whole = check_size(bytes, block_bytes);
    whole.map_err(|error| OpenError::Invalid(error.to_string()))?;
    Ok(Geometry::new(bytes, block_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_with_the_device() {
        let geometry = Geometry::new(10 * 512 + 100, 512);
        assert_eq!(geometry.blocks, 10);
        assert_eq!(geometry.bytes(), 5120);
        assert!(geometry.contains(0, 10));
        assert!(geometry.contains(9, 1));
        assert!(geometry.contains(10, 0));
        assert!(!geometry.contains(10, 1));
        assert!(!geometry.contains(9, 2));
        assert!(!geometry.contains(u64::MAX, 1));
        assert!(!geometry.contains(0, u32::MAX));
    }

    #[test]
    fn block_sizes_are_powers_of_two() {
        for good in [512, 1024, 4096, 65536] {
            assert!(is_block_size(good));
        }
        for bad in [0, 1, 256, 513, 520, 131_072] {
            assert!(!is_block_size(bad));
        }
    }
}
