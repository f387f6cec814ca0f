//! The medium of a namespace in the kernel's words.

use weft_backend::Geometry;
use weft_reactor::ublk::Parameters;

/// The kernel's unit, whatever the block size.
pub(super) const SECTOR_BYTES: u64 = 512;

/// The largest block of the block layer.
const BLOCK_BYTES_MAX: u32 = 4096;

/// Most sectors that are discarded or zeroed at once: those of 4 GiB, whole blocks of every size.
const WIDE_SECTORS_MAX: u32 = 1 << 23;

/// The size in sectors.
pub(super) fn sectors(geometry: &Geometry) -> u64 {
    geometry.bytes() / SECTOR_BYTES
}

/// What the kernel is told, where a request has at most so many bytes.
pub(super) fn parameters(geometry: &Geometry, bytes_max: u32) -> Result<Parameters, String> {
    let block = geometry.block_bytes;
    if block > BLOCK_BYTES_MAX {
        return Err(format!("blocks of {block} bytes are too large for a block device (4096)"));
    }
    if geometry.blocks == 0 {
        return Err("the namespace has no blocks".to_owned());
    }
    let can = &geometry.capabilities;
    let granularity = geometry.discard_granularity_blocks.max(1).saturating_mul(block);
    let sector = u32::try_from(SECTOR_BYTES).unwrap_or(block);
    let physical = shift(geometry.preferred_blocks, block);
    Ok(Parameters {
        read_only: can.read_only,
        rotational: can.rotational,
        volatile_cache: can.volatile_cache,
        durable_write: can.volatile_cache && can.durable_write,
        logical_block_shift: shift(1, block),
        physical_block_shift: physical,
        optimal_shift: shift(geometry.optimal_blocks, block).max(physical),
        sectors_max: bytes_max / sector,
        sectors: sectors(geometry),
        discard_granularity: granularity,
        discard_sectors_max: if can.discard { WIDE_SECTORS_MAX } else { 0 },
        zero_sectors_max: if can.write_zeroes { WIDE_SECTORS_MAX } else { 0 },
    })
}

/// The length of so many blocks as a power of two, of one block if it is none or unknown.
fn shift(blocks: u32, block_bytes: u32) -> u8 {
    let known = blocks.checked_mul(block_bytes).filter(|bytes| bytes.is_power_of_two());
    let bytes = known.unwrap_or(block_bytes);
    u8::try_from(bytes.trailing_zeros()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use weft_backend::Capabilities;

    use super::*;

    #[test]
    fn the_kernel_is_told_what_the_namespace_can() {
        let capabilities = Capabilities {
            volatile_cache: true,
            durable_write: true,
            discard: true,
            ..Capabilities::default()
        };
        let geometry = Geometry {
            preferred_blocks: 8,
            optimal_blocks: 3,
            discard_granularity_blocks: 16,
            capabilities,
            ..Geometry::new(1 << 20, 512)
        };
        let told = parameters(&geometry, 1 << 19).expect("parameters");
        let expected = Parameters {
            volatile_cache: true,
            durable_write: true,
            logical_block_shift: 9,
            physical_block_shift: 12,
            optimal_shift: 12,
            sectors_max: 1024,
            sectors: 2048,
            discard_granularity: 8192,
            discard_sectors_max: 1 << 23,
            ..Parameters::default()
        };
        assert_eq!(told, expected);
        // Without a cache every write is durable, and the kernel need not ask for it.
        let sure = Capabilities { durable_write: true, ..Capabilities::default() };
        let geometry = Geometry { capabilities: sure, ..Geometry::new(1 << 20, 4096) };
        let told = parameters(&geometry, 1 << 19).expect("parameters");
        assert!(!told.durable_write && !told.volatile_cache);
        assert_eq!((told.discard_sectors_max, told.physical_block_shift), (0, 12));
    }

    #[test]
    fn what_cannot_be_a_block_device_is_said() {
        let large = parameters(&Geometry::new(1 << 20, 8192), 1 << 19).expect_err("too large");
        assert!(large.contains("8192"), "{large}");
        assert!(parameters(&Geometry::new(0, 512), 1 << 19).is_err());
    }
}
