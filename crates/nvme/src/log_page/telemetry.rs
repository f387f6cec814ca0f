//! Telemetry: what a controller says of its state to those who develop it or its host.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::command::LogPageId;
use crate::wire::{Reserved, Text, U16, U32};

bit_struct! {
    /// Log Specific Parameter (LSP) of Telemetry Host-Initiated.
    pub struct TelemetryParameter(pub u8) {
        /// Create Telemetry Host-Initiated Data (CTHID): the controller captures its state, which
        /// this command and later ones read.
        [0] create, with_create;
        /// Maximum Created Data Area (MCDA), where the controller supports it; 0 leaves the areas
        /// to the controller.
        [3:1] maximum_area, with_maximum_area -> u8;
    }
}

code_space! {
    /// Scope of a telemetry log page (THS, TCS).
    pub struct TelemetryScope(pub u8);
    NOT_REPORTED = 0x0, "Not reported";
    CONTROLLER = 0x1, "Controller";
    SUBSYSTEM = 0x2, "NVM subsystem";
}

/// Head of Telemetry Host-Initiated (07h) and Telemetry Controller-Initiated (08h), 512 bytes; the
/// data blocks follow, which are as long.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct TelemetryHeader {
    /// Log Page Identifier: 07h or 08h.
    pub log_page: LogPageId,
    /// Reserved.
    pub reserved1: Reserved<4>,
    /// IEEE OUI Identifier (IEEE) of the vendor; zeros for none.
    pub ieee_oui: [u8; 3],
    /// Data Area 1 to 3 Last Block; 0 for an area without data. All areas begin with block 1.
    pub last_blocks: [U16; 3],
    /// Reserved.
    pub reserved14: Reserved<2>,
    /// Data Area 4 Last Block.
    pub last_block4: U32,
    /// Reserved.
    pub reserved20: Reserved<360>,
    /// Telemetry Host-Initiated Scope (THS); reserved in 08h.
    pub host_scope: TelemetryScope,
    /// In 07h Telemetry Host-Initiated Data Generation Number (THDGN), in 08h Telemetry
    /// Controller-Initiated Scope (TCS).
    pub host_generation_or_scope: u8,
    /// Telemetry Controller-Initiated Data Available (TCDA).
    pub available: u8,
    /// Telemetry Controller-Initiated Data Generation Number (TCDGN).
    pub controller_generation: u8,
    /// Reason Identifier (RID): the conditions at the time of the capture, as the vendor writes
    /// them.
    pub reason: Text<128>,
}

assert_layout!(TelemetryHeader, size 512, log_page at 0, reserved1 at 1, ieee_oui at 5,
    last_blocks at 8, reserved14 at 14, last_block4 at 16, reserved20 at 20, host_scope at 380,
    host_generation_or_scope at 381, available at 382, controller_generation at 383,
    reason at 384);

impl TelemetryHeader {
    /// Bytes of a data block, and the unit of offsets and lengths.
    pub const BLOCK: usize = 512;

    /// The scope of the log page.
    #[must_use]
    pub fn scope(&self) -> TelemetryScope {
        match self.log_page == LogPageId::TELEMETRY_CONTROLLER_INITIATED {
            true => TelemetryScope(self.host_generation_or_scope),
            false => self.host_scope,
        }
    }

    /// The generation number of the log page's data.
    #[must_use]
    pub fn generation(&self) -> u8 {
        match self.log_page == LogPageId::TELEMETRY_CONTROLLER_INITIATED {
            true => self.controller_generation,
            false => self.host_generation_or_scope,
        }
    }

    /// Data blocks of an area, 1 to 4. An area contains those before it.
    pub fn blocks(&self, area: u8) -> Result<u32, MalformedTelemetry> {
        let [first, second, third] = self.last_blocks.map(|block| block.get().into());
        let ends = [first, second, third, self.last_block4.get()];
        let ends = ends.get(..usize::from(area)).filter(|ends| ends.is_sorted());
        ends.and_then(|ends| ends.last().copied()).ok_or(MalformedTelemetry)
    }
}

/// There is no such data area, or it ends before one that it contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedTelemetry;

impl fmt::Display for MalformedTelemetry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the data area of the telemetry ends before one that it contains")
    }
}

impl core::error::Error for MalformedTelemetry {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;
    use crate::wire::test_support::{check_truncations, hex};

    /// `struct nvme_telemetry_log` of libnvme: ieee 5, dalb1 8, dalb2 10, dalb3 12, dalb4 16,
    /// ths 380, hostdgn and tcs 381, ctrlavail 382, ctrldgn 383, rsnident 384.
    #[test]
    fn telemetry_header() {
        TelemetryParameter::check_bit_fields();
        let mut vector = std::vec![0; 512];
        vector[..20].copy_from_slice(&hex("07 00000000 0a0b0c 0100 0200 0003 0000 00000100"));
        vector[380..387].copy_from_slice(&hex("01 02 01 04 776674"));
        check_truncations::<TelemetryHeader>(&vector);
        let header = TelemetryHeader::view(&vector).unwrap();
        assert_eq!(header.log_page, LogPageId::TELEMETRY_HOST_INITIATED);
        assert_eq!(header.ieee_oui, [10, 11, 12]);
        let blocks = [1, 2, 3, 4].map(|area| header.blocks(area));
        assert_eq!(blocks, [Ok(1), Ok(2), Ok(0x300), Ok(0x1_0000)]);
        assert_eq!((header.scope(), header.generation()), (TelemetryScope::CONTROLLER, 2));
        assert_eq!((header.available, header.reason.raw_text()), (1, Some("wft")));
        vector[0] = 8;
        let header = TelemetryHeader::view(&vector).unwrap();
        assert_eq!((header.scope(), header.generation()), (TelemetryScope::SUBSYSTEM, 4));
    }

    #[test]
    fn data_areas_contain_those_before_them() {
        let mut header = TelemetryHeader::zeroed();
        assert_eq!([1, 2, 3, 4].map(|area| header.blocks(area)), [Ok(0); 4]);
        header.last_blocks = [5, 4, 6].map(U16::new);
        let malformed = Err(MalformedTelemetry);
        let blocks = [0, 1, 2, 3, 4, 5].map(|area| header.blocks(area));
        assert_eq!(blocks, [malformed, Ok(5), malformed, malformed, malformed, malformed]);
        header.last_blocks = [0, 0, 7].map(U16::new);
        assert_eq!([2, 3, 4].map(|area| header.blocks(area)), [Ok(0), Ok(7), malformed]);
    }
}
