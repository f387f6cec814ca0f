//! The bit fields inside the Identify data structures.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::wire::U16;

bit_struct! {
    /// Controller Multi-Path I/O and Namespace Sharing Capabilities (CMIC).
    pub struct MultipathCapabilities(pub u8) {
        /// The NVM subsystem may have more than one port.
        [0] multiple_ports, with_multiple_ports;
        /// The NVM subsystem may have two or more controllers.
        [1] multiple_controllers, with_multiple_controllers;
        /// The controller is associated with an SR-IOV virtual function.
        [2] virtual_function, with_virtual_function;
        /// Asymmetric Namespace Access Reporting is supported.
        [3] asymmetric_namespace_access, with_asymmetric_namespace_access;
    }
}

bit_struct! {
    /// Optional Asynchronous Events Supported (OAES).
    pub struct OptionalAsynchronousEvents(pub u32) {
        /// Attached Namespace Attribute Notices.
        [8] namespace_attribute, with_namespace_attribute;
        /// Firmware Activation Notices.
        [9] firmware_activation, with_firmware_activation;
        /// Asymmetric Namespace Access Change Notices.
        [11] asymmetric_namespace_access_change, with_asymmetric_namespace_access_change;
        /// Predictable Latency Event Aggregate Log Change Notices.
        [12] predictable_latency, with_predictable_latency;
        /// LBA Status Information Alert Notices.
        [13] lba_status, with_lba_status;
        /// Endurance Group Event Aggregate Log Page Change Notices.
        [14] endurance_group, with_endurance_group;
        /// Normal NVM Subsystem Shutdown event.
        [15] subsystem_shutdown, with_subsystem_shutdown;
        /// Temperature Threshold Hysteresis Recovery event.
        [16] temperature_hysteresis, with_temperature_hysteresis;
        /// Reachability Groups Change Notices.
        [17] reachability_groups, with_reachability_groups;
        /// Allocated Namespace Attribute Notices.
        [19] allocated_namespace_attribute, with_allocated_namespace_attribute;
        /// Zone Descriptor Changed Notices.
        [27] zone_descriptor_changed, with_zone_descriptor_changed;
        /// Discovery Log Page Change Notices.
        [31] discovery_log_change, with_discovery_log_change;
    }
}

bit_struct! {
    /// Controller Attributes (CTRATT).
    pub struct ControllerAttributes(pub u32) {
        /// Host Identifier Support: a host identifier may have 128 bits.
        [0] host_id_128_bits, with_host_id_128_bits;
        /// Non-Operational Power State Permissive Mode.
        [1] non_operational_permissive, with_non_operational_permissive;
        /// NVM Sets.
        [2] nvm_sets, with_nvm_sets;
        /// Read Recovery Levels.
        [3] read_recovery_levels, with_read_recovery_levels;
        /// Endurance Groups.
        [4] endurance_groups, with_endurance_groups;
        /// Predictable Latency Mode.
        [5] predictable_latency, with_predictable_latency;
        /// Traffic Based Keep Alive Support.
        [6] traffic_based_keep_alive, with_traffic_based_keep_alive;
        /// Namespace Granularity.
        [7] namespace_granularity, with_namespace_granularity;
        /// SQ Associations.
        [8] submission_queue_associations, with_submission_queue_associations;
        /// UUID List.
        [9] uuid_list, with_uuid_list;
        /// Multi-Domain Subsystem.
        [10] multiple_domains, with_multiple_domains;
        /// Fixed Capacity Management.
        [11] fixed_capacity_management, with_fixed_capacity_management;
        /// Variable Capacity Management.
        [12] variable_capacity_management, with_variable_capacity_management;
        /// Delete Endurance Group.
        [13] delete_endurance_group, with_delete_endurance_group;
        /// Delete NVM Set.
        [14] delete_nvm_set, with_delete_nvm_set;
        /// Extended LBA Formats Supported.
        [15] extended_lba_formats, with_extended_lba_formats;
        /// MDTS and Size Limits Exclude Metadata.
        [16] limits_exclude_metadata, with_limits_exclude_metadata;
        /// Host Memory Buffer Restrict Non-Operational Power State Access.
        [17] host_memory_buffer_restricted, with_host_memory_buffer_restricted;
        /// Reservations and Host Identifier Interaction.
        [18] reservations_and_host_id, with_reservations_and_host_id;
        /// Flexible Data Placement Support.
        [19] flexible_data_placement, with_flexible_data_placement;
    }
}

bit_struct! {
    /// Optional Admin Command Support (OACS).
    pub struct OptionalAdminCommands(pub u16) {
        /// Security Send and Security Receive.
        [0] security, with_security;
        /// Format NVM.
        [1] format, with_format;
        /// Firmware Commit and Firmware Image Download.
        [2] firmware, with_firmware;
        /// Namespace Management and Namespace Attachment.
        [3] namespace_management, with_namespace_management;
        /// Device Self-test.
        [4] self_test, with_self_test;
        /// Directive Send and Directive Receive.
        [5] directives, with_directives;
        /// NVMe-MI Send and NVMe-MI Receive.
        [6] management_interface, with_management_interface;
        /// Virtualization Management.
        [7] virtualization_management, with_virtualization_management;
        /// Doorbell Buffer Config.
        [8] doorbell_buffer_config, with_doorbell_buffer_config;
        /// Get LBA Status.
        [9] get_lba_status, with_get_lba_status;
        /// Command and Feature Lockdown.
        [10] lockdown, with_lockdown;
        /// Host Managed Live Migration.
        [11] live_migration, with_live_migration;
    }
}

bit_struct! {
    /// Firmware Updates (FRMW).
    pub struct FirmwareUpdates(pub u8) {
        /// First Firmware Slot Read Only.
        [0] first_slot_read_only, with_first_slot_read_only;
        /// Number Of Firmware Slots.
        [3:1] slots, with_slots -> u8;
        /// Firmware Activation Without Reset.
        [4] activation_without_reset, with_activation_without_reset;
        /// Support Multiple Update Detection.
        [5] multiple_update_detection, with_multiple_update_detection;
    }
}

bit_struct! {
    /// Log Page Attributes (LPA).
    pub struct LogPageAttributes(pub u8) {
        /// SMART Support: the health log page per namespace.
        [0] health_per_namespace, with_health_per_namespace;
        /// Commands Supported and Effects log page.
        [1] command_effects, with_command_effects;
        /// Log Page Extended Data Support: NUMDU, LPOL and LPOU of Get Log Page.
        [2] extended_data, with_extended_data;
        /// Telemetry Support.
        [3] telemetry, with_telemetry;
        /// Persistent Event log page.
        [4] persistent_event, with_persistent_event;
        /// Miscellaneous Log Page Support: 00h, the effects of features and NVMe-MI commands.
        [5] miscellaneous, with_miscellaneous;
        /// Telemetry Data Area 4.
        [6] telemetry_data_area4, with_telemetry_data_area4;
    }
}

bit_struct! {
    /// Asymmetric Namespace Access Capabilities (ANACAP).
    pub struct AsymmetricNamespaceAccessCapabilities(pub u8) {
        /// The ANA Optimized state can be reported.
        [0] optimized, with_optimized;
        /// The ANA Non-Optimized state can be reported.
        [1] non_optimized, with_non_optimized;
        /// The ANA Inaccessible state can be reported.
        [2] inaccessible, with_inaccessible;
        /// The ANA Persistent Loss state can be reported.
        [3] persistent_loss, with_persistent_loss;
        /// The ANA Change state can be reported.
        [4] change, with_change;
        /// ANAGRPID does not change while the namespace is attached to a controller.
        [6] group_does_not_change, with_group_does_not_change;
        /// A non-zero ANAGRPID is supported in Namespace Management.
        [7] group_management, with_group_management;
    }
}

bit_struct! {
    /// Submission or Completion Queue Entry Size (SQES, CQES), as powers of two.
    pub struct EntrySizes(pub u8) {
        /// Required entry size.
        [3:0] required, with_required -> u8;
        /// Maximum entry size.
        [7:4] maximum, with_maximum -> u8;
    }
}

impl EntrySizes {
    /// SQES of the NVM command set: 64 bytes, no other.
    pub const SUBMISSION: Self = Self(0x66);
    /// CQES of the NVM command set: 16 bytes, no other.
    pub const COMPLETION: Self = Self(0x44);
}

bit_struct! {
    /// Optional NVM Command Support (ONCS).
    pub struct OptionalNvmCommands(pub u16) {
        /// Compare.
        [0] compare, with_compare;
        /// Write Uncorrectable.
        [1] write_uncorrectable, with_write_uncorrectable;
        /// Dataset Management.
        [2] dataset_management, with_dataset_management;
        /// Write Zeroes.
        [3] write_zeroes, with_write_zeroes;
        /// Save and Select Feature Support.
        [4] save_and_select, with_save_and_select;
        /// Reservations.
        [5] reservations, with_reservations;
        /// Timestamp feature.
        [6] timestamp, with_timestamp;
        /// Verify.
        [7] verify, with_verify;
        /// Copy.
        [8] copy, with_copy;
        /// Copy Single Atomicity.
        [9] copy_single_atomicity, with_copy_single_atomicity;
        /// All Fast Copy.
        [10] all_fast_copy, with_all_fast_copy;
        /// Maximum Write Zeroes with Deallocate.
        [11] write_zeroes_deallocate_limit, with_write_zeroes_deallocate_limit;
        /// Namespace Zeroes.
        [12] namespace_zeroes, with_namespace_zeroes;
    }
}

bit_struct! {
    /// Fused Operation Support (FUSES).
    pub struct FusedOperations(pub u16) {
        /// Fused Compare and Write.
        [0] compare_and_write, with_compare_and_write;
    }
}

bit_struct! {
    /// Format NVM Attributes (FNA).
    pub struct FormatAttributes(pub u8) {
        /// A format is of all namespaces.
        [0] format_all, with_format_all;
        /// A secure erase is of all namespaces.
        [1] erase_all, with_erase_all;
        /// Cryptographic erase is supported.
        [2] cryptographic_erase, with_cryptographic_erase;
        /// The broadcast namespace identifier is not supported.
        [3] no_broadcast, with_no_broadcast;
    }
}

bit_struct! {
    /// Volatile Write Cache (VWC).
    pub struct VolatileWriteCacheAttributes(pub u8) {
        /// A volatile write cache is present.
        [0] present, with_present;
        /// Flush Behavior with the broadcast namespace identifier: 10b not supported, 11b
        /// supported.
        [2:1] flush_broadcast, with_flush_broadcast -> u8;
    }
}

impl VolatileWriteCacheAttributes {
    /// Flush with the broadcast namespace identifier is not supported.
    pub const FLUSH_BROADCAST_NOT_SUPPORTED: u8 = 0b10;
    /// Flush with the broadcast namespace identifier is supported.
    pub const FLUSH_BROADCAST_SUPPORTED: u8 = 0b11;
}

bit_struct! {
    /// Namespace Write Protection Capabilities (NWPC).
    pub struct WriteProtectionCapabilities(pub u8) {
        /// No Write Protect and Write Protect.
        [0] write_protect, with_write_protect;
        /// Write Protect Until Power Cycle.
        [1] until_power_cycle, with_until_power_cycle;
        /// Permanent Write Protect.
        [2] permanent, with_permanent;
    }
}

bit_struct! {
    /// SGL Support (SGLS).
    pub struct SglSupport(pub u32) {
        /// SGLs: 00b not supported, 01b without alignment, 10b with dword alignment.
        [1:0] supported, with_supported -> u8;
        /// Keyed SGL Data Block descriptor.
        [2] keyed, with_keyed;
        /// SGL Bit Bucket descriptor.
        [16] bit_bucket, with_bit_bucket;
        /// Byte aligned contiguous metadata.
        [17] metadata_byte_aligned, with_metadata_byte_aligned;
        /// An SGL may be longer than the data.
        [18] oversized, with_oversized;
        /// Metadata pointer with an SGL.
        [19] metadata_sgl, with_metadata_sgl;
        /// Address field as an offset (in-capsule data).
        [20] offset, with_offset;
        /// Transport SGL Data Block descriptor.
        [21] transport, with_transport;
    }
}

bit_struct! {
    /// Fabrics Controller Attributes (FCATT).
    pub struct FabricsControllerAttributes(pub u8) {
        /// Controller Model: the NVM subsystem uses the static controller model.
        [0] static_controllers, with_static_controllers;
    }
}

bit_struct! {
    /// Optional Fabrics Commands Support (OFCS).
    pub struct FabricsCommandSupport(pub u16) {
        /// Disconnect, and with it the deletion of single I/O queues.
        [0] disconnect, with_disconnect;
    }
}

bit_struct! {
    /// Namespace Features (NSFEAT).
    pub struct NamespaceFeatures(pub u8) {
        /// Thin Provisioning: NSZE may be larger than NCAP, and NUSE is tracked.
        [0] thin_provisioning, with_thin_provisioning;
        /// NAWUN, NAWUPF and NACWU are defined for this namespace.
        [1] atomic_units, with_atomic_units;
        /// Deallocated or Unwritten Logical Block Error.
        [2] deallocated_error, with_deallocated_error;
        /// NGUID and EUI64 are never reused.
        [3] identifiers_not_reused, with_identifiers_not_reused;
        /// Optional Write Performance (OPTPERF): 00b no hints; 01b NPWG, NPWA, NPDG, NPDA and
        /// NOWS are defined; 10b and 11b are about the large deallocate hints.
        [5:4] optimal_performance, with_optimal_performance -> u8;
        /// Multiple Atomicity Mode (MAM).
        [6] multiple_atomicity, with_multiple_atomicity;
        /// Optional Read Performance (OPTRPERF): NPRG, NPRA and NORS are defined.
        [7] optimal_read_performance, with_optimal_read_performance;
    }
}

impl NamespaceFeatures {
    /// OPTPERF: NPWG, NPWA, NPDG, NPDA and NOWS are defined.
    pub const WRITE_HINTS: u8 = 0b01;
}

bit_struct! {
    /// Common Namespace Features (NSFEAT) of the structure that is independent of the command
    /// set.
    pub struct CommonNamespaceFeatures(pub u8) {
        /// UID Reuse (UIDREUSE): NGUID and EUI64 are never reused.
        [3] identifiers_not_reused, with_identifiers_not_reused;
        /// Rotational Media (RMEDIA).
        [4] rotational, with_rotational;
        /// Volatile Write Cache Not Present (VWCNP) for this namespace.
        [5] no_volatile_write_cache, with_no_volatile_write_cache;
    }
}

bit_struct! {
    /// Formatted LBA Size (FLBAS).
    pub struct FormattedLbaSize(pub u8) {
        /// Format Index Lower.
        [3:0] format_index_low, with_format_index_low -> u8;
        /// Metadata is transferred at the end of the data.
        [4] extended_metadata, with_extended_metadata;
        /// Format Index Upper.
        [6:5] format_index_high, with_format_index_high -> u8;
    }
}

impl FormattedLbaSize {
    /// Index of the LBA format that the namespace has.
    #[must_use]
    pub const fn format_index(self) -> usize {
        self.format_index_high() as usize * 16 + self.format_index_low() as usize
    }
}

bit_struct! {
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities (NMIC).
    pub struct SharingCapabilities(pub u8) {
        /// The namespace may be attached to two or more controllers at a time.
        [0] shared, with_shared;
        /// The namespace is dispersed over several subsystems.
        [1] dispersed, with_dispersed;
    }
}

bit_struct! {
    /// Reservation Capabilities (RESCAP).
    pub struct ReservationCapabilities(pub u8) {
        /// Persist Through Power Loss.
        [0] persist_through_power_loss, with_persist_through_power_loss;
        /// Write Exclusive.
        [1] write_exclusive, with_write_exclusive;
        /// Exclusive Access.
        [2] exclusive_access, with_exclusive_access;
        /// Write Exclusive – Registrants Only.
        [3] write_exclusive_registrants_only, with_write_exclusive_registrants_only;
        /// Exclusive Access – Registrants Only.
        [4] exclusive_access_registrants_only, with_exclusive_access_registrants_only;
        /// Write Exclusive – All Registrants.
        [5] write_exclusive_all_registrants, with_write_exclusive_all_registrants;
        /// Exclusive Access – All Registrants.
        [6] exclusive_access_all_registrants, with_exclusive_access_all_registrants;
        /// Ignore Existing Key follows version 1.3 or later.
        [7] ignore_existing_key_1_3, with_ignore_existing_key_1_3;
    }
}

bit_struct! {
    /// Deallocate Logical Block Features (DLFEAT).
    pub struct DeallocateFeatures(pub u8) {
        /// What a deallocated block reads as: 0 not reported, 1 all zeros, 2 all ones.
        [2:0] read_behavior, with_read_behavior -> u8;
        /// Deallocate bit in Write Zeroes.
        [3] write_zeroes_deallocate, with_write_zeroes_deallocate;
        /// Guard of a deallocated block is the CRC of what it reads as.
        [4] guard_is_crc, with_guard_is_crc;
    }
}

impl DeallocateFeatures {
    /// Read behavior: a deallocated block reads as zeros.
    pub const READS_ZEROS: u8 = 1;
}

bit_struct! {
    /// Namespace Attributes (NSATTR).
    pub struct NamespaceAttributes(pub u8) {
        /// Currently write protected.
        [0] write_protected, with_write_protected;
    }
}

bit_struct! {
    /// Namespace Status (NSTAT).
    pub struct NamespaceStatus(pub u8) {
        /// Namespace Ready (NRDY).
        [0] ready, with_ready;
    }
}

bit_struct! {
    /// I/O Command Set Vector: one combination of command sets.
    pub struct CommandSets(pub u64) {
        /// NVM Command Set.
        [0] nvm, with_nvm;
        /// Key Value Command Set.
        [1] key_value, with_key_value;
        /// Zoned Namespace Command Set.
        [2] zoned_namespace, with_zoned_namespace;
        /// Subsystem Local Memory Command Set.
        [3] subsystem_local_memory, with_subsystem_local_memory;
        /// Computational Programs Command Set.
        [4] computational_programs, with_computational_programs;
    }
}

/// LBA Format Data Structure (4 bytes).
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
pub struct LbaFormat {
    /// Metadata Size (MS) per logical block, in bytes.
    pub metadata_size: U16,
    /// LBA Data Size (LBADS), as a power of two; at least 9, or 0 for a format that is not there.
    pub data_size: u8,
    /// Relative Performance (RP) in bits 1:0: 0 best to 3 degraded.
    pub relative_performance: u8,
}

assert_layout!(LbaFormat, size 4, metadata_size at 0, data_size at 2, relative_performance at 3);

impl LbaFormat {
    /// The format of blocks of this power of two, without metadata.
    #[must_use]
    pub const fn new(data_size: u8) -> Self {
        Self { metadata_size: U16::ZERO, data_size, relative_performance: 0 }
    }

    /// Bytes of a logical block, without metadata, if the format is there and sensible.
    #[must_use]
    pub const fn block_bytes(&self) -> Option<u32> {
        match self.data_size {
            9..=31 => 1u32.checked_shl(self.data_size as u32),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::U32;
    use crate::wire::test_support::{check_truncations, hex};

    #[test]
    fn fields_do_not_overlap() {
        MultipathCapabilities::check_bit_fields();
        OptionalAsynchronousEvents::check_bit_fields();
        ControllerAttributes::check_bit_fields();
        OptionalAdminCommands::check_bit_fields();
        FirmwareUpdates::check_bit_fields();
        LogPageAttributes::check_bit_fields();
        AsymmetricNamespaceAccessCapabilities::check_bit_fields();
        EntrySizes::check_bit_fields();
        OptionalNvmCommands::check_bit_fields();
        FusedOperations::check_bit_fields();
        FormatAttributes::check_bit_fields();
        VolatileWriteCacheAttributes::check_bit_fields();
        WriteProtectionCapabilities::check_bit_fields();
        SglSupport::check_bit_fields();
        FabricsControllerAttributes::check_bit_fields();
        FabricsCommandSupport::check_bit_fields();
        NamespaceFeatures::check_bit_fields();
        CommonNamespaceFeatures::check_bit_fields();
        FormattedLbaSize::check_bit_fields();
        SharingCapabilities::check_bit_fields();
        ReservationCapabilities::check_bit_fields();
        DeallocateFeatures::check_bit_fields();
        NamespaceAttributes::check_bit_fields();
        NamespaceStatus::check_bit_fields();
        CommandSets::check_bit_fields();
    }

    /// Values that Linux writes as `NVME_AEN_CFG_*`, `NVME_CTRL_ONCS_*`, `nvmet_execute_identify`.
    #[test]
    fn known_values() {
        let events = OptionalAsynchronousEvents(0)
            .with_namespace_attribute(true)
            .with_asymmetric_namespace_access_change(true);
        assert_eq!(events.0, 0x900);
        assert_eq!(U32::from(events), U32::new(0x900));
        let commands = OptionalNvmCommands(0).with_dataset_management(true).with_write_zeroes(true);
        assert_eq!(commands.0, 0x0c);
        // SGLS of the Linux target over TCP: dword alignment not needed, offsets.
        let sgl = SglSupport::from(U32::new(0x0010_0001));
        assert!(sgl.offset() && sgl.supported() == 1 && !sgl.keyed());
        assert_eq!((EntrySizes::SUBMISSION.required(), EntrySizes::SUBMISSION.maximum()), (6, 6));
        assert_eq!((EntrySizes::COMPLETION.required(), EntrySizes::COMPLETION.maximum()), (4, 4));
    }

    #[test]
    fn lba_formats() {
        check_truncations::<LbaFormat>(&hex("0800 0c 01"));
        assert_eq!(LbaFormat::new(9).block_bytes(), Some(512));
        assert_eq!(LbaFormat::new(12).block_bytes(), Some(4096));
        assert_eq!(LbaFormat::new(31).block_bytes(), Some(1 << 31));
        for nonsense in [0, 8, 32, 255] {
            assert_eq!(LbaFormat::new(nonsense).block_bytes(), None);
        }
        assert_eq!(FormattedLbaSize(0xff).format_index(), 63);
        assert_eq!(FormattedLbaSize(0x92).format_index(), 2);
        assert_eq!(FormattedLbaSize(0x21).format_index(), 17);
    }
}
