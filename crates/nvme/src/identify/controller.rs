//! The Identify Controller data structure.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::attribute::{
    AsymmetricNamespaceAccessCapabilities, ControllerAttributes, EntrySizes, FabricsCommandSupport,
    FabricsControllerAttributes, FirmwareUpdates, FormatAttributes, FusedOperations,
    LogPageAttributes, MultipathCapabilities, OptionalAdminCommands, OptionalAsynchronousEvents,
    OptionalNvmCommands, SglSupport, VolatileWriteCacheAttributes, WriteProtectionCapabilities,
};
use crate::nqn::{InvalidNqn, NQN_FIELD_LENGTH, Nqn};
use crate::property::Version;
use crate::wire::{Reserved, Text, U16, U32, U128};

code_space! {
    /// Controller Type (CNTRLTYPE).
    pub struct ControllerType(pub u8);
    NOT_REPORTED = 0x0, "not reported";
    IO = 0x1, "I/O controller";
    DISCOVERY = 0x2, "Discovery controller";
    ADMINISTRATIVE = 0x3, "Administrative controller";
}

code_space! {
    /// Discovery Controller Type (DCTYPE).
    pub struct DiscoveryControllerType(pub u8);
    NOT_REPORTED = 0x0, "not reported";
    DIRECT = 0x1, "Direct Discovery controller";
    CENTRAL = 0x2, "Central Discovery controller";
}

/// Power State Descriptor (32 bytes).
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
pub struct PowerState {
    /// Maximum Power (MP), in centiwatts unless the scale bit says otherwise.
    pub maximum_power: U16,
    /// Reserved.
    pub reserved1: u8,
    /// Max Power Scale (bit 0) and Non-Operational State (bit 1).
    pub flags: u8,
    /// Entry Latency (ENLAT) in microseconds.
    pub entry_latency_us: U32,
    /// Exit Latency (EXLAT) in microseconds.
    pub exit_latency_us: U32,
    /// Relative Read Throughput (RRT).
    pub relative_read_throughput: u8,
    /// Relative Read Latency (RRL).
    pub relative_read_latency: u8,
    /// Relative Write Throughput (RWT).
    pub relative_write_throughput: u8,
    /// Relative Write Latency (RWL).
    pub relative_write_latency: u8,
    /// Idle Power (IDLP).
    pub idle_power: U16,
    /// Idle Power Scale (IPS).
    pub idle_power_scale: u8,
    /// Reserved.
    pub reserved2: u8,
    /// Active Power (ACTP).
    pub active_power: U16,
    /// Active Power Workload and Active Power Scale.
    pub active_power_scale: u8,
    /// Emergency power fail fields and reserved bytes.
    pub reserved3: Reserved<9>,
}

assert_layout!(PowerState, size 32, maximum_power at 0, reserved1 at 2, flags at 3,
    entry_latency_us at 4, exit_latency_us at 8, relative_read_throughput at 12,
    relative_read_latency at 13, relative_write_throughput at 14, relative_write_latency at 15,
    idle_power at 16, idle_power_scale at 18, reserved2 at 19, active_power at 20,
    active_power_scale at 22, reserved3 at 23);

/// Identify Controller Data Structure (CNS 01h, 4096 bytes).
///
/// The comment of each field gives the specification's acronym. Fields that only matter on PCI
/// Express or for functions that weft does not have are kept together as reserved bytes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Controller {
    /// PCI Vendor ID (VID).
    pub pci_vendor_id: U16,
    /// PCI Subsystem Vendor ID (SSVID).
    pub pci_subsystem_vendor_id: U16,
    /// Serial Number (SN).
    pub serial_number: Text<20>,
    /// Model Number (MN).
    pub model_number: Text<40>,
    /// Firmware Revision (FR).
    pub firmware_revision: Text<8>,
    /// Recommended Arbitration Burst (RAB), as a power of two.
    pub recommended_arbitration_burst: u8,
    /// IEEE OUI Identifier (IEEE), least significant byte first.
    pub ieee_oui: [u8; 3],
    /// CMIC.
    pub multipath: MultipathCapabilities,
    /// Maximum Data Transfer Size (MDTS), as a power of two of minimum pages; 0 for no limit.
    pub maximum_data_transfer_size: u8,
    /// Controller ID (CNTLID).
    pub controller_id: U16,
    /// Version (VER).
    pub version: U32,
    /// RTD3 Resume Latency (RTD3R) in microseconds.
    pub resume_latency_us: U32,
    /// RTD3 Entry Latency (RTD3E) in microseconds.
    pub entry_latency_us: U32,
    /// OAES.
    pub optional_asynchronous_events: U32,
    /// CTRATT.
    pub attributes: U32,
    /// Read Recovery Levels Supported (RRLS), and reserved bytes up to 111.
    pub reserved100: Reserved<11>,
    /// CNTRLTYPE.
    pub controller_type: ControllerType,
    /// FRU Globally Unique Identifier (FGUID).
    pub fru_guid: [u8; 16],
    /// Command Retry Delay Time 1 to 3 (CRDT1, CRDT2, CRDT3) in units of 100 ms.
    pub command_retry_delay_100ms: [U16; 3],
    /// Controller Reachability Capabilities, reserved bytes and those of NVMe-MI, up to 255.
    pub reserved134: Reserved<122>,
    /// OACS.
    pub optional_admin_commands: U16,
    /// Abort Command Limit (ACL), 0's based.
    pub abort_command_limit_0s_based: u8,
    /// Asynchronous Event Request Limit (AERL), 0's based.
    pub asynchronous_event_request_limit_0s_based: u8,
    /// FRMW.
    pub firmware_updates: FirmwareUpdates,
    /// LPA.
    pub log_page_attributes: LogPageAttributes,
    /// Error Log Page Entries (ELPE), 0's based.
    pub error_log_page_entries_0s_based: u8,
    /// Number of Power States Support (NPSS), 0's based.
    pub power_states_0s_based: u8,
    /// Admin Vendor Specific Command Configuration (AVSCC).
    pub admin_vendor_specific: u8,
    /// Autonomous Power State Transition Attributes (APSTA).
    pub autonomous_power_states: u8,
    /// Warning Composite Temperature Threshold (WCTEMP) in kelvins.
    pub warning_temperature_k: U16,
    /// Critical Composite Temperature Threshold (CCTEMP) in kelvins.
    pub critical_temperature_k: U16,
    /// Maximum Time for Firmware Activation (MTFA) in units of 100 ms.
    pub firmware_activation_100ms: U16,
    /// Host Memory Buffer Preferred and Minimum Size (HMPRE, HMMIN).
    pub host_memory_buffer: [U32; 2],
    /// Total NVM Capacity (TNVMCAP) in bytes.
    pub total_capacity_bytes: U128,
    /// Unallocated NVM Capacity (UNVMCAP) in bytes.
    pub unallocated_capacity_bytes: U128,
    /// RPMB and self-test fields, up to 319.
    pub reserved312: Reserved<8>,
    /// Keep Alive Support (KAS): granularity of the timer in units of 100 ms; 0 for none.
    pub keep_alive_granularity_100ms: U16,
    /// Thermal management, sanitize, host memory buffer limits and NVM sets, up to 341.
    pub reserved322: Reserved<20>,
    /// ANA Transition Time (ANATT) in seconds.
    pub ana_transition_time_s: u8,
    /// ANACAP.
    pub ana_capabilities: AsymmetricNamespaceAccessCapabilities,
    /// ANA Group Identifier Maximum (ANAGRPMAX).
    pub ana_group_id_max: U32,
    /// Number of ANA Group Identifiers (NANAGRPID).
    pub ana_groups: U32,
    /// Persistent Event Log Size (PELS): the largest, in units of 64 KiB.
    pub persistent_event_log_64k: U32,
    /// Domain, per I/O key, endurance group, up to 385.
    pub reserved356: Reserved<30>,
    /// Command Quiesce Time (CQT) in milliseconds.
    pub command_quiesce_time_ms: U16,
    /// Reserved, up to 511.
    pub reserved388: Reserved<124>,
    /// SQES.
    pub submission_queue_entry_sizes: EntrySizes,
    /// CQES.
    pub completion_queue_entry_sizes: EntrySizes,
    /// Maximum Outstanding Commands (MAXCMD).
    pub maximum_outstanding_commands: U16,
    /// Number of Namespaces (NN): the largest namespace identifier.
    pub namespaces: U32,
    /// ONCS.
    pub optional_nvm_commands: U16,
    /// FUSES.
    pub fused_operations: U16,
    /// FNA.
    pub format_attributes: FormatAttributes,
    /// VWC.
    pub volatile_write_cache: VolatileWriteCacheAttributes,
    /// Atomic Write Unit Normal (AWUN) in logical blocks, 0's based.
    pub atomic_write_unit_normal_0s_based: U16,
    /// Atomic Write Unit Power Fail (AWUPF) in logical blocks, 0's based.
    pub atomic_write_unit_power_fail_0s_based: U16,
    /// I/O Command Set Vendor Specific Command Configuration (ICSVSCC).
    pub command_set_vendor_specific: u8,
    /// NWPC.
    pub write_protection: WriteProtectionCapabilities,
    /// Atomic Compare & Write Unit (ACWU) in logical blocks, 0's based.
    pub atomic_compare_and_write_unit_0s_based: U16,
    /// Copy Descriptor Formats Supported (CDFS, formerly OCFS).
    pub copy_descriptor_formats: U16,
    /// SGLS.
    pub sgl_support: U32,
    /// Maximum Number of Allowed Namespaces (MNAN); 0 for NN.
    pub maximum_allowed_namespaces: U32,
    /// Maximum Domain Namespace Attachments (MAXDNA).
    pub maximum_domain_attachments: U128,
    /// Maximum I/O Controller Namespace Attachments (MAXCNA).
    pub maximum_controller_attachments: U32,
    /// Reserved and live migration fields, up to 767.
    pub reserved564: Reserved<204>,
    /// NVM Subsystem NVMe Qualified Name (SUBNQN).
    pub subsystem_nqn: [u8; NQN_FIELD_LENGTH],
    /// Reserved, up to 1791.
    pub reserved1024: Reserved<768>,
    /// I/O Queue Command Capsule Supported Size (IOCCSZ) in units of 16 bytes.
    pub io_command_capsule_16b: U32,
    /// I/O Queue Response Capsule Supported Size (IORCSZ) in units of 16 bytes.
    pub io_response_capsule_16b: U32,
    /// In Capsule Data Offset (ICDOFF) in units of 16 bytes.
    pub in_capsule_data_offset_16b: U16,
    /// FCATT.
    pub fabrics_attributes: FabricsControllerAttributes,
    /// Maximum SGL Data Block Descriptors (MSDBD); 0 for no limit.
    pub maximum_sgl_descriptors: u8,
    /// OFCS.
    pub fabrics_commands: U16,
    /// DCTYPE.
    pub discovery_controller_type: DiscoveryControllerType,
    /// Reserved, up to 2047.
    pub reserved1807: Reserved<241>,
    /// Power State Descriptors (PSD0 to PSD31).
    pub power_states: [PowerState; 32],
    /// Vendor Specific (VS).
    pub vendor_specific: Reserved<1024>,
}

assert_layout!(Controller, size 4096, pci_vendor_id at 0, pci_subsystem_vendor_id at 2,
    serial_number at 4, model_number at 24, firmware_revision at 64,
    recommended_arbitration_burst at 72, ieee_oui at 73, multipath at 76,
    maximum_data_transfer_size at 77, controller_id at 78, version at 80, resume_latency_us at 84,
    entry_latency_us at 88, optional_asynchronous_events at 92, attributes at 96,
    reserved100 at 100, controller_type at 111, fru_guid at 112,
    command_retry_delay_100ms at 128, reserved134 at 134, optional_admin_commands at 256,
    abort_command_limit_0s_based at 258, asynchronous_event_request_limit_0s_based at 259,
    firmware_updates at 260, log_page_attributes at 261, error_log_page_entries_0s_based at 262,
    power_states_0s_based at 263, admin_vendor_specific at 264, autonomous_power_states at 265,
    warning_temperature_k at 266, critical_temperature_k at 268, firmware_activation_100ms at 270,
    host_memory_buffer at 272, total_capacity_bytes at 280, unallocated_capacity_bytes at 296,
    reserved312 at 312, keep_alive_granularity_100ms at 320, reserved322 at 322,
    ana_transition_time_s at 342, ana_capabilities at 343, ana_group_id_max at 344,
    ana_groups at 348, persistent_event_log_64k at 352, reserved356 at 356,
    command_quiesce_time_ms at 386, reserved388 at 388,
    submission_queue_entry_sizes at 512, completion_queue_entry_sizes at 513,
    maximum_outstanding_commands at 514, namespaces at 516, optional_nvm_commands at 520,
    fused_operations at 522, format_attributes at 524, volatile_write_cache at 525,
    atomic_write_unit_normal_0s_based at 526, atomic_write_unit_power_fail_0s_based at 528,
    command_set_vendor_specific at 530, write_protection at 531,
    atomic_compare_and_write_unit_0s_based at 532, copy_descriptor_formats at 534,
    sgl_support at 536, maximum_allowed_namespaces at 540, maximum_domain_attachments at 544,
    maximum_controller_attachments at 560, reserved564 at 564, subsystem_nqn at 768,
    reserved1024 at 1024, io_command_capsule_16b at 1792, io_response_capsule_16b at 1796,
    in_capsule_data_offset_16b at 1800, fabrics_attributes at 1802,
    maximum_sgl_descriptors at 1803, fabrics_commands at 1804, discovery_controller_type at 1806,
    reserved1807 at 1807, power_states at 2048, vendor_specific at 3072);

impl Controller {
    /// The name of the NVM subsystem.
    pub fn subsystem(&self) -> Result<Nqn, InvalidNqn> {
        Nqn::from_field(&self.subsystem_nqn)
    }

    /// Version (VER).
    #[must_use]
    pub const fn version(&self) -> Version {
        Version(self.version.get())
    }

    /// Optional Asynchronous Events Supported (OAES).
    #[must_use]
    pub const fn optional_asynchronous_events(&self) -> OptionalAsynchronousEvents {
        OptionalAsynchronousEvents(self.optional_asynchronous_events.get())
    }

    /// Controller Attributes (CTRATT).
    #[must_use]
    pub const fn attributes(&self) -> ControllerAttributes {
        ControllerAttributes(self.attributes.get())
    }

    /// Optional Admin Command Support (OACS).
    #[must_use]
    pub const fn optional_admin_commands(&self) -> OptionalAdminCommands {
        OptionalAdminCommands(self.optional_admin_commands.get())
    }

    /// Optional NVM Command Support (ONCS).
    #[must_use]
    pub const fn optional_nvm_commands(&self) -> OptionalNvmCommands {
        OptionalNvmCommands(self.optional_nvm_commands.get())
    }

    /// Fused Operation Support (FUSES).
    #[must_use]
    pub const fn fused_operations(&self) -> FusedOperations {
        FusedOperations(self.fused_operations.get())
    }

    /// SGL Support (SGLS).
    #[must_use]
    pub const fn sgl_support(&self) -> SglSupport {
        SglSupport(self.sgl_support.get())
    }

    /// Optional Fabrics Commands Support (OFCS).
    #[must_use]
    pub const fn fabrics_commands(&self) -> FabricsCommandSupport {
        FabricsCommandSupport(self.fabrics_commands.get())
    }

    /// Bytes of data that an I/O command capsule may carry: IOCCSZ without the command and
    /// without what ICDOFF leaves out.
    #[must_use]
    pub const fn in_capsule_data_bytes(&self) -> u64 {
        let capsule = self.io_command_capsule_16b.get() as u64 * 16;
        let before = 64 + self.in_capsule_data_offset_16b.get() as u64 * 16;
        capsule.saturating_sub(before)
    }

    /// Most bytes of one data transfer, for this Memory Page Size Minimum (CAP.MPSMIN); `None`
    /// where the controller sets no limit, or none that a command can reach.
    #[must_use]
    pub const fn maximum_transfer_bytes(&self, memory_page_size_minimum: u8) -> Option<u32> {
        if self.maximum_data_transfer_size == 0 {
            return None;
        }
        let power = self.maximum_data_transfer_size as u32 + memory_page_size_minimum as u32 + 12;
        1u32.checked_shl(power)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;
    use crate::wire::test_support::check_truncations;
    use std::format;

    /// The head of what the Linux target answers (`nvmet_execute_identify_ctrl`): model
    /// "Linux", MDTS 0, CMIC 0Bh, and its fabrics part.
    fn linux() -> std::vec::Vec<u8> {
        let mut vector = std::vec![0; 4096];
        vector[4..24].copy_from_slice(b"d1a5c6b7e8f90a1b2c3d");
        vector[24..64].copy_from_slice(format!("{:<40}", "Linux").as_bytes());
        vector[64..72].copy_from_slice(b"6.12.0  ");
        vector[72] = 6;
        vector[76] = 0x0b;
        vector[78..80].copy_from_slice(&[0x02, 0x01]);
        vector[80..84].copy_from_slice(&[0x00, 0x03, 0x01, 0x00]);
        vector[92..96].copy_from_slice(&[0x00, 0x09, 0x00, 0x00]);
        vector[96..100].copy_from_slice(&[0x41, 0x00, 0x00, 0x00]);
        vector[111] = 1;
        vector[320..322].copy_from_slice(&[100, 0]);
        vector[512..514].copy_from_slice(&[0x66, 0x44]);
        vector[516..520].copy_from_slice(&[0, 4, 0, 0]);
        vector[520..522].copy_from_slice(&[0x2c, 0]);
        vector[525] = 7;
        vector[536..540].copy_from_slice(&[0x01, 0x00, 0x10, 0x00]);
        vector[768..774].copy_from_slice(b"testnq");
        vector[1792..1796].copy_from_slice(&[0x04, 0x04, 0, 0]);
        vector[1796..1800].copy_from_slice(&[1, 0, 0, 0]);
        vector[1803] = 1;
        vector[1804] = 1;
        vector
    }

    #[test]
    fn controller() {
        let vector = linux();
        check_truncations::<Controller>(&vector);
        let controller = Controller::view(&vector).unwrap();
        assert_eq!(controller.model_number.raw_text(), Some("Linux"));
        assert_eq!(format!("{}", controller.firmware_revision), "6.12.0");
        assert_eq!(controller.controller_id.get(), 0x0102);
        assert_eq!(controller.version(), Version::V1_3);
        assert!(controller.multipath.asymmetric_namespace_access());
        assert!(controller.attributes().traffic_based_keep_alive());
        assert!(controller.attributes().host_id_128_bits());
        assert_eq!(controller.controller_type, ControllerType::IO);
        assert_eq!(controller.keep_alive_granularity_100ms.get(), 100);
        assert_eq!(controller.namespaces.get(), 1024);
        assert!(controller.optional_nvm_commands().write_zeroes());
        assert!(controller.optional_nvm_commands().reservations());
        assert!(!controller.optional_nvm_commands().compare());
        assert_eq!(controller.subsystem().unwrap().as_str(), "testnq");
        assert_eq!(controller.in_capsule_data_bytes(), 16384);
        assert!(controller.fabrics_commands().disconnect());
        assert!(!controller.fused_operations().compare_and_write());
        assert!(controller.optional_asynchronous_events().namespace_attribute());
        assert_eq!(controller.optional_admin_commands(), OptionalAdminCommands(0));
        assert_eq!(controller.sgl_support().supported(), 1);
    }

    #[test]
    fn transfer_limit() {
        let mut controller = Controller::zeroed();
        assert_eq!(controller.maximum_transfer_bytes(0), None);
        controller.maximum_data_transfer_size = 5;
        assert_eq!(controller.maximum_transfer_bytes(0), Some(128 * 1024));
        assert_eq!(controller.maximum_transfer_bytes(1), Some(256 * 1024));
        controller.maximum_data_transfer_size = 255;
        assert_eq!(controller.maximum_transfer_bytes(255), None);
    }

    #[test]
    fn capsules_smaller_than_a_command_carry_nothing() {
        let mut controller = Controller::zeroed();
        assert_eq!(controller.in_capsule_data_bytes(), 0);
        controller.io_command_capsule_16b = U32::new(u32::MAX);
        assert_eq!(controller.in_capsule_data_bytes(), u64::from(u32::MAX) * 16 - 64);
        controller.in_capsule_data_offset_16b = U16::new(u16::MAX);
        controller.io_command_capsule_16b = U32::new(5);
        assert_eq!(controller.in_capsule_data_bytes(), 0);
    }
}
