//! The NVM command set: what the dwords of an I/O command mean.
//!
//! A logical block count is a true count here; the 0's based number exists only on the wire.

use core::ops::Range;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::command::Command;
use crate::opcode::NvmOpcode;
use crate::wire::{Reserved, U16, U32, U64};

/// Most logical blocks of one command: Number of Logical Blocks has 16 bits and is 0's based.
pub const BLOCK_COUNT_MAX: u32 = 65536;

/// Most ranges of one Dataset Management command.
pub const DATASET_RANGES_MAX: u16 = 256;

bit_struct! {
    /// Command Dword 12 of Read, Write, Compare, Verify and Write Uncorrectable.
    ///
    /// Not every command defines every field; those that it does not define are reserved in it.
    pub struct ReadWriteControl(pub u32) {
        /// Number of Logical Blocks (NLB), 0's based.
        [15:0] nlb_0s_based, with_nlb_0s_based -> u16;
        /// Directive Type (DTYPE) of a Write.
        [23:20] directive_type, with_directive_type -> u8;
        /// Storage Tag Check (STC).
        [24] storage_tag_check, with_storage_tag_check;
        /// Protection Information Check (PRCHK): bit 2 guard, bit 1 application tag, bit 0
        /// reference tag.
        [28:26] protection_check, with_protection_check -> u8;
        /// Protection Information Action (PRACT).
        [29] protection_action, with_protection_action;
        /// Force Unit Access (FUA).
        [30] force_unit_access, with_force_unit_access;
        /// Limited Retry (LR).
        [31] limited_retry, with_limited_retry;
    }
}

bit_struct! {
    /// Command Dword 12 of Write Zeroes.
    pub struct WriteZeroesControl(pub u32) {
        /// Number of Logical Blocks (NLB), 0's based.
        [15:0] nlb_0s_based, with_nlb_0s_based -> u16;
        /// Namespace Zeroes (NSZ): all of the namespace is to be zeroed.
        [23] namespace_zeroes, with_namespace_zeroes;
        /// Storage Tag Check (STC).
        [24] storage_tag_check, with_storage_tag_check;
        /// Deallocate (DEAC): the blocks may be deallocated if they read as zeros afterwards.
        [25] deallocate, with_deallocate;
        /// Protection Information Check (PRCHK).
        [28:26] protection_check, with_protection_check -> u8;
        /// Protection Information Action (PRACT).
        [29] protection_action, with_protection_action;
        /// Force Unit Access (FUA).
        [30] force_unit_access, with_force_unit_access;
        /// Limited Retry (LR).
        [31] limited_retry, with_limited_retry;
    }
}

bit_struct! {
    /// Command Dword 13 of Read and Write: Dataset Management (DSM) and the directive.
    pub struct ReadWriteHints(pub u32) {
        /// Access Frequency.
        [3:0] access_frequency, with_access_frequency -> u8;
        /// Access Latency.
        [5:4] access_latency, with_access_latency -> u8;
        /// Sequential Request.
        [6] sequential, with_sequential;
        /// Incompressible.
        [7] incompressible, with_incompressible;
        /// Directive Specific (DSPEC).
        [31:16] directive_specific, with_directive_specific -> u16;
    }
}

bit_struct! {
    /// Starting LBA (SLBA) in Command Dwords 10 and 11.
    pub struct StartingBlock(pub u64) {
        /// Command Dword 10.
        [31:0] low, with_low -> u32;
        /// Command Dword 11.
        [63:32] high, with_high -> u32;
    }
}

impl StartingBlock {
    /// The starting LBA of a command that has one.
    #[must_use]
    pub const fn of(command: &Command) -> Self {
        Self(0).with_low(command.cdw10.get()).with_high(command.cdw11.get())
    }
}

/// The blocks from `start`, unless they would run over the end of all numbers.
const fn blocks(start: u64, count: u32) -> Option<Range<u64>> {
    match start.checked_add(count as u64) {
        Some(end) => Some(start..end),
        None => None,
    }
}

/// A true count as it stands on the wire, if it fits (1 to 65536).
const fn to_0s_based(count: u32) -> Option<u16> {
    if count == 0 || count > BLOCK_COUNT_MAX {
        return None;
    }
    let [low, high, ..] = (count - 1).to_le_bytes();
    Some(u16::from_le_bytes([low, high]))
}

/// The dwords of Read, Write, Compare, Verify and Write Uncorrectable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadWrite {
    /// Starting LBA (SLBA).
    pub slba: u64,
    /// Command Dword 12.
    pub control: ReadWriteControl,
    /// Command Dword 13.
    pub hints: ReadWriteHints,
}

impl ReadWrite {
    /// Blocks from `slba` on, if there are 1 to 65536 of them.
    #[must_use]
    pub const fn new(slba: u64, nlb: u32) -> Option<Self> {
        match to_0s_based(nlb) {
            Some(count) => Some(Self {
                slba,
                control: ReadWriteControl(0).with_nlb_0s_based(count),
                hints: ReadWriteHints(0),
            }),
            None => None,
        }
    }

    /// Returns the value with Force Unit Access changed.
    #[must_use]
    pub const fn with_force_unit_access(mut self, value: bool) -> Self {
        self.control = self.control.with_force_unit_access(value);
        self
    }

    /// Reads the dwords of one of these commands.
    #[must_use]
    pub const fn from_command(command: &Command) -> Self {
        Self {
            slba: StartingBlock::of(command).0,
            control: ReadWriteControl(command.cdw12.get()),
            hints: ReadWriteHints(command.cdw13.get()),
        }
    }

    /// A command of this opcode on this namespace, without command identifier and data pointer.
    #[must_use]
    pub fn to_command(self, opcode: NvmOpcode, namespace_id: u32) -> Command {
        let start = StartingBlock(self.slba);
        Command::new(opcode)
            .with_namespace_id(namespace_id)
            .with_cdw10(start.low())
            .with_cdw11(start.high())
            .with_cdw12(self.control.0)
            .with_cdw13(self.hints.0)
    }

    /// Logical blocks that the command is about, 1 to 65536.
    #[must_use]
    pub const fn nlb(&self) -> u32 {
        self.control.nlb_0s_based() as u32 + 1
    }

    /// The logical blocks, unless they run over the end of all numbers.
    #[must_use]
    pub const fn blocks(&self) -> Option<Range<u64>> {
        blocks(self.slba, self.nlb())
    }
}

/// The dwords of Write Zeroes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteZeroes {
    /// Starting LBA (SLBA).
    pub slba: u64,
    /// Command Dword 12.
    pub control: WriteZeroesControl,
}

impl WriteZeroes {
    /// Blocks from `slba` on, if there are 1 to 65536 of them.
    #[must_use]
    pub const fn new(slba: u64, nlb: u32) -> Option<Self> {
        match to_0s_based(nlb) {
            Some(count) => {
                Some(Self { slba, control: WriteZeroesControl(0).with_nlb_0s_based(count) })
            }
            None => None,
        }
    }

    /// Reads the dwords of a Write Zeroes command.
    #[must_use]
    pub const fn from_command(command: &Command) -> Self {
        Self {
            slba: StartingBlock::of(command).0,
            control: WriteZeroesControl(command.cdw12.get()),
        }
    }

    /// A Write Zeroes command on this namespace, without command identifier.
    #[must_use]
    pub fn to_command(self, namespace_id: u32) -> Command {
        let start = StartingBlock(self.slba);
        Command::new(NvmOpcode::WRITE_ZEROES)
            .with_namespace_id(namespace_id)
            .with_cdw10(start.low())
            .with_cdw11(start.high())
            .with_cdw12(self.control.0)
    }

    /// Logical blocks that the command is about, 1 to 65536.
    #[must_use]
    pub const fn nlb(&self) -> u32 {
        self.control.nlb_0s_based() as u32 + 1
    }

    /// The logical blocks, unless they run over the end of all numbers.
    #[must_use]
    pub const fn blocks(&self) -> Option<Range<u64>> {
        blocks(self.slba, self.nlb())
    }
}

bit_struct! {
    /// Command Dword 10 of Dataset Management.
    pub struct DatasetDword10(pub u32) {
        /// Number of Ranges (NR), 0's based.
        [7:0] range_count_0s_based, with_range_count_0s_based -> u8;
    }
}

bit_struct! {
    /// Command Dword 11 of Dataset Management.
    pub struct DatasetAttributes(pub u32) {
        /// Attribute – Integral Dataset for Read (IDR).
        [0] integral_for_read, with_integral_for_read;
        /// Attribute – Integral Dataset for Write (IDW).
        [1] integral_for_write, with_integral_for_write;
        /// Attribute – Deallocate (AD).
        [2] deallocate, with_deallocate;
    }
}

/// The dwords of Dataset Management.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatasetManagement {
    /// Ranges in the command's data, 1 to 256.
    pub range_count: u16,
    /// Context Attributes.
    pub attributes: DatasetAttributes,
}

impl DatasetManagement {
    /// Reads the dwords of a Dataset Management command.
    #[must_use]
    pub const fn from_command(command: &Command) -> Self {
        let ranges = DatasetDword10(command.cdw10.get()).range_count_0s_based();
        Self { range_count: ranges as u16 + 1, attributes: DatasetAttributes(command.cdw11.get()) }
    }

    /// A Dataset Management command on this namespace, without command identifier and data
    /// pointer. The range count is taken into 1 to 256.
    #[must_use]
    pub fn to_command(self, namespace_id: u32) -> Command {
        let [ranges, _] =
            self.range_count.clamp(1, DATASET_RANGES_MAX).wrapping_sub(1).to_le_bytes();
        Command::new(NvmOpcode::DATASET_MANAGEMENT)
            .with_namespace_id(namespace_id)
            .with_cdw10(DatasetDword10(0).with_range_count_0s_based(ranges).0)
            .with_cdw11(self.attributes.0)
    }

    /// Bytes of data that come with the command.
    #[must_use]
    pub const fn data_length(&self) -> u32 {
        self.range_count as u32 * 16
    }
}

/// Dataset Management Range Definition (16 bytes).
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct DatasetRange {
    /// Context Attributes (CATTR), hints only.
    pub context_attributes: U32,
    /// Length in logical blocks, a true count; 0 for none.
    pub nlb: U32,
    /// Starting LBA (SLBA).
    pub slba: U64,
}

assert_layout!(DatasetRange, size 16, context_attributes at 0, nlb at 4,
    slba at 8);

impl DatasetRange {
    /// These blocks, without hints.
    #[must_use]
    pub const fn new(slba: u64, nlb: u32) -> Self {
        Self { context_attributes: U32::ZERO, nlb: U32::new(nlb), slba: U64::new(slba) }
    }

    /// The logical blocks, unless they run over the end of all numbers.
    #[must_use]
    pub const fn blocks(&self) -> Option<Range<u64>> {
        blocks(self.slba.get(), self.nlb.get())
    }
}

bit_struct! {
    /// Command Dword 12 of Copy.
    pub struct CopyControl(pub u32) {
        /// Number of Ranges (NR), 0's based.
        [7:0] range_count_0s_based, with_range_count_0s_based -> u8;
        /// Descriptor Format (DESFMT).
        [11:8] descriptor_format, with_descriptor_format -> u8;
        /// Protection Information Field Read (PRINFOR).
        [15:12] protection_read, with_protection_read -> u8;
        /// Directive Type (DTYPE).
        [23:20] directive_type, with_directive_type -> u8;
        /// Storage Tag Check Write (STCW).
        [24] storage_tag_check_write, with_storage_tag_check_write;
        /// Storage Tag Check Read (STCR).
        [25] storage_tag_check_read, with_storage_tag_check_read;
        /// Protection Information Field Write (PRINFOW).
        [29:26] protection_write, with_protection_write -> u8;
        /// Force Unit Access (FUA).
        [30] force_unit_access, with_force_unit_access;
        /// Limited Retry (LR).
        [31] limited_retry, with_limited_retry;
    }
}

/// Copy – Source Range Entries Descriptor Formats 0h and 2h (32 bytes).
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct CopySourceRange {
    /// Source Namespace Identifier (SNSID), format 2h.
    pub source_namespace_id: U32,
    /// Reserved.
    pub reserved1: Reserved<4>,
    /// Starting LBA (SLBA).
    pub slba: U64,
    /// Number of Logical Blocks (NLB), 0's based.
    pub nlb_0s_based: U16,
    /// Reserved.
    pub reserved2: Reserved<4>,
    /// Source Options (SOPT), format 2h.
    pub source_options: U16,
    /// Expected Logical Block Storage Tag and Reference Tag (low 4 bytes).
    pub expected_reference_tag: U32,
    /// Expected Logical Block Application Tag (ELBAT).
    pub expected_application_tag: U16,
    /// Expected Logical Block Application Tag Mask (ELBATM).
    pub expected_application_tag_mask: U16,
}

assert_layout!(CopySourceRange, size 32, source_namespace_id at 0, reserved1 at 4, slba at 8,
    nlb_0s_based at 16, reserved2 at 18, source_options at 22,
    expected_reference_tag at 24, expected_application_tag at 28,
    expected_application_tag_mask at 30);

impl CopySourceRange {
    /// These blocks of a namespace, if there are 1 to 65536 of them.
    #[must_use]
    pub const fn new(source_namespace_id: u32, slba: u64, nlb: u32) -> Option<Self> {
        let Some(count) = to_0s_based(nlb) else { return None };
        Some(Self {
            source_namespace_id: U32::new(source_namespace_id),
            reserved1: Reserved([0; 4]),
            slba: U64::new(slba),
            nlb_0s_based: U16::new(count),
            reserved2: Reserved([0; 4]),
            source_options: U16::ZERO,
            expected_reference_tag: U32::ZERO,
            expected_application_tag: U16::ZERO,
            expected_application_tag_mask: U16::ZERO,
        })
    }
}

/// The dwords of Copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopyCommand {
    /// Starting Destination LBA (SDLBA).
    pub sdlba: u64,
    /// Command Dword 12.
    pub control: CopyControl,
}

impl CopyCommand {
    /// To the blocks from `sdlba` on, from so many ranges (1 to 256) of this format.
    #[must_use]
    pub const fn new(sdlba: u64, ranges: u16, format: u8) -> Self {
        let [ranges, _] = ranges.wrapping_sub(1).to_le_bytes();
        let control =
            CopyControl(0).with_range_count_0s_based(ranges).with_descriptor_format(format);
        Self { sdlba, control }
    }

    /// Reads the dwords of a Copy command.
    #[must_use]
    pub const fn from_command(command: &Command) -> Self {
        Self { sdlba: StartingBlock::of(command).0, control: CopyControl(command.cdw12.get()) }
    }

    /// A Copy command to this namespace, without command identifier and data pointer.
    #[must_use]
    pub fn to_command(self, namespace_id: u32) -> Command {
        let start = StartingBlock(self.sdlba);
        Command::new(NvmOpcode::COPY)
            .with_namespace_id(namespace_id)
            .with_cdw10(start.low())
            .with_cdw11(start.high())
            .with_cdw12(self.control.0)
    }

    /// Source ranges in the command's data, 1 to 256.
    #[must_use]
    pub const fn ranges(&self) -> u16 {
        self.control.range_count_0s_based() as u16 + 1
    }

    /// Bytes of data that come with the command.
    #[must_use]
    pub const fn data_length(&self) -> u32 {
        self.ranges() as u32 * 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;
    use crate::wire::test_support::{check_truncations, hex};

    #[test]
    fn fields_do_not_overlap() {
        ReadWriteControl::check_bit_fields();
        WriteZeroesControl::check_bit_fields();
        ReadWriteHints::check_bit_fields();
        StartingBlock::check_bit_fields();
        DatasetDword10::check_bit_fields();
        DatasetAttributes::check_bit_fields();
        CopyControl::check_bit_fields();
    }

    /// `struct nvme_rw_command` of Linux: slba at 40, length at 48, control at 50 (FUA bit 14,
    /// LR bit 15), dsmgmt at 52.
    #[test]
    fn write() {
        let mut write =
            ReadWrite::new(0x0102_0304_0506_0708, 256).unwrap().with_force_unit_access(true);
        write.hints = write.hints.with_access_frequency(7);
        let command = write.to_command(NvmOpcode::WRITE, 9);
        assert_eq!(command.bytes()[..8], [1, 0x40, 0, 0, 9, 0, 0, 0]);
        assert_eq!(
            command.bytes()[40..],
            hex("0807060504030201 ff00 0040 07000000 00000000 00000000")
        );
        assert_eq!(ReadWrite::from_command(&command), write);
        assert_eq!(write.nlb(), 256);
    }

    #[test]
    fn counts_are_true_counts() {
        assert_eq!(ReadWrite::new(0, 0), None);
        assert_eq!(ReadWrite::new(0, 65537), None);
        assert_eq!(WriteZeroes::new(0, 0), None);
        let whole = ReadWrite::new(10, 65536).unwrap();
        assert_eq!(whole.control.nlb_0s_based(), 0xffff);
        assert_eq!(whole.blocks(), Some(10..65546));
        assert_eq!(ReadWrite::new(0, 1).unwrap().control.0, 0);
        // Neighbouring bits do not count as blocks.
        assert_eq!(ReadWrite { control: ReadWriteControl(0xffff_0000), ..whole }.nlb(), 1);
    }

    #[test]
    fn ranges_do_not_wrap() {
        assert_eq!(ReadWrite::new(u64::MAX, 1).unwrap().blocks(), None);
        assert_eq!(ReadWrite::new(u64::MAX - 1, 1).unwrap().blocks(), Some(u64::MAX - 1..u64::MAX));
        assert_eq!(WriteZeroes::new(u64::MAX - 1, 2).unwrap().blocks(), None);
        assert_eq!(DatasetRange::new(u64::MAX, u32::MAX).blocks(), None);
        assert_eq!(DatasetRange::new(5, 0).blocks(), Some(5..5));
    }

    /// `struct nvme_write_zeroes_cmd` of Linux with `NVME_WZ_DEAC` (bit 9 of control).
    #[test]
    fn write_zeroes() {
        let mut zeroes = WriteZeroes::new(1 << 32, 8).unwrap();
        zeroes.control = zeroes.control.with_deallocate(true);
        let command = zeroes.to_command(1);
        assert_eq!(command.opcode, 8);
        assert_eq!(command.bytes()[40..56], hex("0000000001000000 0700 0002 00000000"));
        assert_eq!(WriteZeroes::from_command(&command), zeroes);
        assert_eq!(zeroes.nlb(), 8);
    }

    /// `struct nvme_dsm_cmd` and `struct nvme_dsm_range` of Linux.
    #[test]
    fn dataset_management() {
        let deallocate = DatasetManagement {
            range_count: 256,
            attributes: DatasetAttributes(0).with_deallocate(true),
        };
        let command = deallocate.to_command(1);
        assert_eq!(command.bytes()[40..48], hex("ff000000 04000000"));
        assert_eq!(DatasetManagement::from_command(&command), deallocate);
        assert_eq!(deallocate.data_length(), 4096);
        let none = DatasetManagement { range_count: 0, ..deallocate };
        assert_eq!(DatasetManagement::from_command(&none.to_command(1)).range_count, 1);

        let vector = hex("00000000 00010000 0000000002000000");
        check_truncations::<DatasetRange>(&vector);
        assert_eq!(DatasetRange::new(0x2_0000_0000, 256).bytes(), vector);
    }

    /// `struct nvme_copy_cmd`: SDLBA at 40, number of ranges and format at 48, FUA is bit 30.
    #[test]
    fn copy() {
        let mut copy = CopyCommand::new(0x0102_0304_0506_0708, 128, 2);
        copy.control = copy.control.with_force_unit_access(true);
        let command = copy.to_command(9);
        assert_eq!(command.opcode, 0x19);
        assert_eq!(command.bytes()[40..52], hex("0807060504030201 7f020040"));
        assert_eq!(CopyCommand::from_command(&command), copy);
        assert_eq!((copy.ranges(), copy.data_length()), (128, 4096));
        let range = CopySourceRange::new(7, 9, 65536).unwrap();
        assert_eq!(
            range.bytes()[..24],
            hex("07000000 00000000 0900000000000000 ffff 00000000 0000")
        );
        assert_eq!(CopySourceRange::new(7, 9, 65537), None);
    }

    /// `struct nvme_copy_range` of libnvme: slba at 8, nlb at 16, tags from 24.
    #[test]
    fn copy_source_range() {
        let vector = hex("0000000000000000 0807060504030201 0700 00000000 0000 44332211 6655 8877");
        check_truncations::<CopySourceRange>(&vector);
        let range = CopySourceRange::view(&vector).unwrap();
        assert_eq!(range.slba.get(), 0x0102_0304_0506_0708);
        assert_eq!(range.nlb_0s_based.get(), 7);
        assert_eq!(range.expected_reference_tag.get(), 0x1122_3344);
        assert_eq!(range.expected_application_tag_mask.get(), 0x7788);
    }
}
