//! The Identify Namespace data structures.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::attribute::{
    CommonNamespaceFeatures, DeallocateFeatures, FormattedLbaSize, LbaFormat, NamespaceAttributes,
    NamespaceFeatures, NamespaceStatus, ReservationCapabilities, SharingCapabilities,
};
use crate::wire::{Reserved, U16, U32, U64, U128};

/// Identify Namespace Data Structure of the NVM command set (CNS 00h, 4096 bytes).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Namespace {
    /// Namespace Size (NSZE) in logical blocks.
    pub size: U64,
    /// Namespace Capacity (NCAP) in logical blocks.
    pub capacity: U64,
    /// Namespace Utilization (NUSE) in logical blocks.
    pub utilization: U64,
    /// NSFEAT.
    pub features: NamespaceFeatures,
    /// Number of LBA Formats (NLBAF), 0's based.
    pub lba_formats_0s_based: u8,
    /// FLBAS.
    pub formatted_lba_size: FormattedLbaSize,
    /// Metadata Capabilities (MC).
    pub metadata_capabilities: u8,
    /// End-to-end Data Protection Capabilities (DPC).
    pub protection_capabilities: u8,
    /// End-to-end Data Protection Type Settings (DPS).
    pub protection_settings: u8,
    /// NMIC.
    pub sharing: SharingCapabilities,
    /// RESCAP.
    pub reservations: ReservationCapabilities,
    /// Format Progress Indicator (FPI).
    pub format_progress: u8,
    /// DLFEAT.
    pub deallocate_features: DeallocateFeatures,
    /// Namespace Atomic Write Unit Normal (NAWUN), 0's based.
    pub atomic_write_unit_normal_0s_based: U16,
    /// Namespace Atomic Write Unit Power Fail (NAWUPF), 0's based.
    pub atomic_write_unit_power_fail_0s_based: U16,
    /// Namespace Atomic Compare & Write Unit (NACWU), 0's based.
    pub atomic_compare_and_write_unit_0s_based: U16,
    /// Namespace Atomic Boundary Size Normal (NABSN), 0's based; 0 for no boundary.
    pub atomic_boundary_size_normal: U16,
    /// Namespace Atomic Boundary Offset (NABO).
    pub atomic_boundary_offset: U16,
    /// Namespace Atomic Boundary Size Power Fail (NABSPF).
    pub atomic_boundary_size_power_fail: U16,
    /// Namespace Optimal I/O Boundary (NOIOB) in logical blocks; 0 for none.
    pub optimal_io_boundary: U16,
    /// NVM Capacity (NVMCAP) in bytes.
    pub nvm_capacity_bytes: U128,
    /// Namespace Preferred Write Granularity (NPWG), 0's based.
    pub preferred_write_granularity_0s_based: U16,
    /// Namespace Preferred Write Alignment (NPWA), 0's based.
    pub preferred_write_alignment_0s_based: U16,
    /// Namespace Preferred Deallocate Granularity (NPDG), 0's based.
    pub preferred_deallocate_granularity_0s_based: U16,
    /// Namespace Preferred Deallocate Alignment (NPDA), 0's based.
    pub preferred_deallocate_alignment_0s_based: U16,
    /// Namespace Optimal Write Size (NOWS), 0's based.
    pub optimal_write_size_0s_based: U16,
    /// Maximum Single Source Range Length (MSSRL) of Copy, in logical blocks.
    pub copy_source_range_length_max: U16,
    /// Maximum Copy Length (MCL) in logical blocks.
    pub copy_length_max: U32,
    /// Maximum Source Range Count (MSRC), 0's based.
    pub copy_source_ranges_0s_based: u8,
    /// Key Per I/O and the number of unique attribute formats, up to 91.
    pub reserved81: Reserved<11>,
    /// ANA Group Identifier (ANAGRPID).
    pub ana_group_id: U32,
    /// Reserved.
    pub reserved96: Reserved<3>,
    /// NSATTR.
    pub attributes: NamespaceAttributes,
    /// NVM Set Identifier (NVMSETID).
    pub nvm_set_id: U16,
    /// Endurance Group Identifier (ENDGID).
    pub endurance_group_id: U16,
    /// Namespace Globally Unique Identifier (NGUID), big endian; zeros for none.
    pub nguid: [u8; 16],
    /// IEEE Extended Unique Identifier (EUI64), big endian; zeros for none.
    pub eui64: [u8; 8],
    /// LBA Format 0 to 63 (LBAF0 to LBAF63).
    pub lba_formats: [LbaFormat; 64],
    /// Vendor Specific.
    pub vendor_specific: Reserved<3712>,
}

assert_layout!(Namespace, size 4096, size at 0, capacity at 8, utilization at 16,
    features at 24, lba_formats_0s_based at 25, formatted_lba_size at 26,
    metadata_capabilities at 27, protection_capabilities at 28, protection_settings at 29,
    sharing at 30, reservations at 31, format_progress at 32, deallocate_features at 33,
    atomic_write_unit_normal_0s_based at 34, atomic_write_unit_power_fail_0s_based at 36,
    atomic_compare_and_write_unit_0s_based at 38, atomic_boundary_size_normal at 40,
    atomic_boundary_offset at 42, atomic_boundary_size_power_fail at 44,
    optimal_io_boundary at 46, nvm_capacity_bytes at 48, preferred_write_granularity_0s_based at 64,
    preferred_write_alignment_0s_based at 66, preferred_deallocate_granularity_0s_based at 68,
    preferred_deallocate_alignment_0s_based at 70, optimal_write_size_0s_based at 72,
    copy_source_range_length_max at 74, copy_length_max at 76, copy_source_ranges_0s_based at 80,
    reserved81 at 81, ana_group_id at 92, reserved96 at 96, attributes at 99, nvm_set_id at 100,
    endurance_group_id at 102, nguid at 104, eui64 at 120, lba_formats at 128,
    vendor_specific at 384);

impl Namespace {
    /// The LBA format that the namespace has; `None` if FLBAS names one beyond NLBAF.
    #[must_use]
    pub fn lba_format(&self) -> Option<LbaFormat> {
        let index = self.formatted_lba_size.format_index();
        if index > usize::from(self.lba_formats_0s_based) {
            return None;
        }
        self.lba_formats.get(index).copied()
    }
}

/// Identify I/O Command Set Independent Namespace Data Structure (CNS 08h, 4096 bytes).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct IndependentNamespace {
    /// NSFEAT.
    pub features: CommonNamespaceFeatures,
    /// NMIC.
    pub sharing: SharingCapabilities,
    /// RESCAP.
    pub reservations: ReservationCapabilities,
    /// Format Progress Indicator (FPI).
    pub format_progress: u8,
    /// ANA Group Identifier (ANAGRPID).
    pub ana_group_id: U32,
    /// NSATTR.
    pub attributes: NamespaceAttributes,
    /// Reserved.
    pub reserved9: u8,
    /// NVM Set Identifier (NVMSETID).
    pub nvm_set_id: U16,
    /// Endurance Group Identifier (ENDGID).
    pub endurance_group_id: U16,
    /// NSTAT.
    pub status: NamespaceStatus,
    /// Key Per I/O, reachability group, reserved.
    pub reserved15: Reserved<4081>,
}

assert_layout!(IndependentNamespace, size 4096, features at 0, sharing at 1, reservations at 2,
    format_progress at 3, ana_group_id at 4, attributes at 8, reserved9 at 9, nvm_set_id at 10,
    endurance_group_id at 12, status at 14, reserved15 at 15);

/// I/O Command Set specific Identify Namespace Data Structure of the NVM command set (CNS 05h,
/// CSI 00h, 4096 bytes).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct NvmNamespace {
    /// Logical Block Storage Tag Mask (LBSTM).
    pub storage_tag_mask: U64,
    /// Protection Information Capabilities (PIC).
    pub protection_capabilities: u8,
    /// Protection Information Format Attribute (PIFA).
    pub protection_format: u8,
    /// Reserved.
    pub reserved10: Reserved<2>,
    /// Extended LBA Format 0 to 63 (ELBAF0 to ELBAF63).
    pub extended_lba_formats: [U32; 64],
    /// Namespace Preferred Deallocate Granularity Large (NPDGL).
    pub preferred_deallocate_granularity: U32,
    /// Namespace Preferred Read Granularity (NPRG).
    pub preferred_read_granularity: U32,
    /// Namespace Preferred Read Alignment (NPRA).
    pub preferred_read_alignment: U32,
    /// Namespace Optimal Read Size (NORS).
    pub optimal_read_size: U32,
    /// Namespace Preferred Deallocate Alignment Large (NPDAL).
    pub preferred_deallocate_alignment: U32,
    /// LBA Format Placement Shard Size (LBAPSS).
    pub placement_shard_size: U32,
    /// Tracked LBA Allocation Granularity (TLBAAG).
    pub tracked_allocation_granularity: U32,
    /// Reserved.
    pub reserved296: Reserved<3800>,
}

assert_layout!(NvmNamespace, size 4096, storage_tag_mask at 0, protection_capabilities at 8,
    protection_format at 9, reserved10 at 10, extended_lba_formats at 12,
    preferred_deallocate_granularity at 268, preferred_read_granularity at 272,
    preferred_read_alignment at 276, optimal_read_size at 280,
    preferred_deallocate_alignment at 284, placement_shard_size at 288,
    tracked_allocation_granularity at 292, reserved296 at 296);

/// I/O Command Set specific Identify Controller Data Structure of the NVM command set (CNS 06h,
/// CSI 00h, 4096 bytes).
///
/// Size limits are powers of two of minimum memory pages; 0 for no limit.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct NvmController {
    /// Verify Size Limit (VSL).
    pub verify_size_limit: u8,
    /// Write Zeroes Size Limit (WZSL).
    pub write_zeroes_size_limit: u8,
    /// Write Uncorrectable Size Limit (WUSL).
    pub write_uncorrectable_size_limit: u8,
    /// Dataset Management Ranges Limit (DMRL); 0 for no limit.
    pub dataset_ranges_limit: u8,
    /// Dataset Management Range Size Limit (DMRSL) in logical blocks; 0 for no limit.
    pub dataset_range_size_limit: U32,
    /// Dataset Management Size Limit (DMSL) in logical blocks; 0 for no limit.
    pub dataset_size_limit: U64,
    /// Key Per I/O Capabilities (KPIOCAP).
    pub key_per_io: u8,
    /// Write Zeroes With Deallocate Size Limit (WZDSL).
    pub write_zeroes_deallocate_size_limit: u8,
    /// Admin Optional Command Support (AOCS).
    pub admin_optional_commands: U16,
    /// Version (VER) of the NVM command set that is followed.
    pub version: U32,
    /// LBA Migration Queue Format (LBAMQF).
    pub lba_migration_queue_format: u8,
    /// Reserved.
    pub reserved25: Reserved<4071>,
}

assert_layout!(NvmController, size 4096, verify_size_limit at 0, write_zeroes_size_limit at 1,
    write_uncorrectable_size_limit at 2, dataset_ranges_limit at 3, dataset_range_size_limit at 4,
    dataset_size_limit at 8, key_per_io at 16, write_zeroes_deallocate_size_limit at 17,
    admin_optional_commands at 18, version at 20, lba_migration_queue_format at 24,
    reserved25 at 25);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;
    use crate::wire::test_support::{check_truncations, hex, hex_padded};

    /// A namespace of 2 GiB in blocks of 4096, shared, group 1, as the Linux target lays it out
    /// (`nvmet_execute_identify_ns`).
    #[test]
    fn namespace() {
        let mut vector = hex_padded(
            "0000080000000000 0000080000000000 0000080000000000 12 00 00 00 00 00 01 ff 00 09
             0000 0000 0000 0000 0000 0000 0000",
            4096,
        );
        vector[92] = 1;
        vector[99] = 1;
        vector[104..120].copy_from_slice(&hex("0f01fb429f7f4856b0b351e60b8de349"));
        vector[130] = 12;
        check_truncations::<Namespace>(&vector);
        let namespace = Namespace::view(&vector).unwrap();
        assert_eq!(namespace.size.get(), 524_288);
        assert!(namespace.sharing.shared());
        assert!(namespace.features.atomic_units());
        assert_eq!(namespace.features.optimal_performance(), 1);
        assert_eq!(namespace.deallocate_features.read_behavior(), DeallocateFeatures::READS_ZEROS);
        assert!(namespace.deallocate_features.write_zeroes_deallocate());
        assert_eq!(namespace.ana_group_id.get(), 1);
        assert!(namespace.attributes.write_protected());
        assert_eq!(namespace.nguid[0], 0x0f);
        assert_eq!(namespace.lba_format().unwrap().block_bytes(), Some(4096));
    }

    #[test]
    fn a_format_beyond_the_last_is_none() {
        let mut namespace = Namespace::zeroed();
        namespace.lba_formats[1] = LbaFormat::new(9);
        namespace.formatted_lba_size = FormattedLbaSize(1);
        assert_eq!(namespace.lba_format(), None);
        namespace.lba_formats_0s_based = 1;
        assert_eq!(namespace.lba_format(), Some(LbaFormat::new(9)));
        namespace.lba_formats_0s_based = 255;
        namespace.formatted_lba_size = FormattedLbaSize(0xff);
        assert_eq!(namespace.lba_format(), Some(LbaFormat::default()));
    }

    /// `struct nvme_id_ns_cs_indep` of Linux: nstat at 14.
    #[test]
    fn independent_namespace() {
        let vector = hex_padded("20 01 00 00 07000000 01 00 0000 0000 01", 4096);
        check_truncations::<IndependentNamespace>(&vector);
        let namespace = IndependentNamespace::view(&vector).unwrap();
        assert!(namespace.status.ready() && namespace.sharing.shared());
        // NVME_NS_VWC_NOT_PRESENT of Linux is bit 5.
        assert!(namespace.features.no_volatile_write_cache());
        assert!(!namespace.features.rotational());
        assert_eq!(namespace.ana_group_id.get(), 7);
    }

    /// `struct nvme_id_ctrl_nvm` of Linux: dmrl at 3, dmrsl at 4, dmsl at 8.
    #[test]
    fn nvm_controller() {
        let vector = hex_padded("01 02 03 ff 00000100 ffffffffffffffff", 4096);
        check_truncations::<NvmController>(&vector);
        let controller = NvmController::view(&vector).unwrap();
        assert_eq!(controller.dataset_ranges_limit, 255);
        assert_eq!(controller.dataset_range_size_limit.get(), 0x1_0000);
        assert_eq!(controller.dataset_size_limit.get(), u64::MAX);
        assert_eq!(controller.write_zeroes_size_limit, 2);
    }

    /// `struct nvme_nvm_id_ns` of libnvme: elbaf at 12, npdgl at 268.
    #[test]
    fn nvm_namespace() {
        let mut vector = hex_padded("ff00000000000000 01 02 0000 80000000", 4096);
        vector[268] = 9;
        check_truncations::<NvmNamespace>(&vector);
        let namespace = NvmNamespace::view(&vector).unwrap();
        assert_eq!(namespace.extended_lba_formats[0].get(), 0x80);
        assert_eq!(namespace.preferred_deallocate_granularity.get(), 9);
    }
}
