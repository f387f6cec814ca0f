//! Controller properties: what would be registers on PCI Express, and is read and written with
//! Property Get and Property Set over Fabrics.

use core::fmt;

use crate::fabrics::PropertySize;

code_space! {
    /// Offset of a property.
    pub struct Offset(pub u32);
    CONTROLLER_CAPABILITIES = 0x00, "Controller Capabilities (CAP)";
    VERSION = 0x08, "Version (VS)";
    CONTROLLER_CONFIGURATION = 0x14, "Controller Configuration (CC)";
    CONTROLLER_STATUS = 0x1c, "Controller Status (CSTS)";
    NVM_SUBSYSTEM_RESET = 0x20, "NVM Subsystem Reset (NSSR)";
    NVM_SUBSYSTEM_SHUTDOWN = 0x64, "NVM Subsystem Shutdown (NSSD)";
    CONTROLLER_READY_TIMEOUTS = 0x68, "Controller Ready Timeouts (CRTO)";
}

impl Offset {
    /// The size of the property, if there is one over Fabrics at this offset.
    #[must_use]
    pub const fn size(self) -> Option<PropertySize> {
        match self {
            Self::CONTROLLER_CAPABILITIES => Some(PropertySize::Eight),
            known if known.is_known() => Some(PropertySize::Four),
            _ => None,
        }
    }
}

/// Controller Capabilities (CAP).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities(pub u64);

bit_fields! {
    pub Capabilities(u64) {
        /// Maximum Queue Entries Supported (MQES), 0's based as on the wire.
        [15:0] maximum_queue_entries_supported, with_maximum_queue_entries_supported -> u16;
        /// Contiguous Queues Required (CQR).
        [16] contiguous_queues_required, with_contiguous_queues_required;
        /// Arbitration Mechanism Supported (AMS): bit 0 weighted round robin, bit 1 vendor
        /// specific.
        [18:17] arbitration_mechanisms, with_arbitration_mechanisms -> u8;
        /// Timeout (TO) in units of 500 ms.
        [31:24] timeout_500ms, with_timeout_500ms -> u8;
        /// Doorbell Stride (DSTRD).
        [35:32] doorbell_stride, with_doorbell_stride -> u8;
        /// NVM Subsystem Reset Supported (NSSRS).
        [36] subsystem_reset_supported, with_subsystem_reset_supported;
        /// Command Sets Supported (CSS), bit 0: the NVM command set.
        [37] nvm_command_set, with_nvm_command_set;
        /// Command Sets Supported (CSS), bit 6: one or more I/O command sets, by the Identify
        /// I/O Command Set data structure.
        [43] io_command_sets, with_io_command_sets;
        /// Command Sets Supported (CSS), bit 7: no I/O command set.
        [44] no_io_command_set, with_no_io_command_set;
        /// Boot Partition Support (BPS).
        [45] boot_partitions, with_boot_partitions;
        /// Controller Power Scope (CPS).
        [47:46] power_scope, with_power_scope -> u8;
        /// Memory Page Size Minimum (MPSMIN): 2 to the power of (12 + this).
        [51:48] memory_page_size_minimum, with_memory_page_size_minimum -> u8;
        /// Memory Page Size Maximum (MPSMAX): 2 to the power of (12 + this).
        [55:52] memory_page_size_maximum, with_memory_page_size_maximum -> u8;
        /// Persistent Memory Region Supported (PMRS).
        [56] persistent_memory_region, with_persistent_memory_region;
        /// Controller Memory Buffer Supported (CMBS).
        [57] controller_memory_buffer, with_controller_memory_buffer;
        /// NVM Subsystem Shutdown Supported (NSSS).
        [58] subsystem_shutdown_supported, with_subsystem_shutdown_supported;
        /// Controller Ready With Media Support (CRMS.CRWMS).
        [59] ready_with_media_supported, with_ready_with_media_supported;
        /// Controller Ready Independent of Media Support (CRMS.CRIMS).
        [60] ready_independent_of_media_supported, with_ready_independent_of_media_supported;
    }
}

impl Capabilities {
    /// Entries of the longest I/O queue: MQES and one.
    #[must_use]
    pub const fn queue_entries_max(self) -> u32 {
        self.maximum_queue_entries_supported() as u32 + 1
    }

    /// Timeout (TO) in milliseconds.
    #[must_use]
    pub const fn timeout_ms(self) -> u32 {
        self.timeout_500ms() as u32 * 500
    }
}

/// Version (VS): which NVM Express Base specification the controller follows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(pub u32);

bit_fields! {
    pub Version(u32) {
        /// Tertiary Version Number (TER).
        [7:0] tertiary, with_tertiary -> u8;
        /// Minor Version Number (MNR).
        [15:8] minor, with_minor -> u8;
        /// Major Version Number (MJR).
        [31:16] major, with_major -> u16;
    }
}

impl Version {
    /// NVM Express 1.3.
    pub const V1_3: Self = Self::new(1, 3, 0);
    /// NVM Express 1.4.
    pub const V1_4: Self = Self::new(1, 4, 0);
    /// NVM Express 2.0.
    pub const V2_0: Self = Self::new(2, 0, 0);
    /// NVM Express 2.1.
    pub const V2_1: Self = Self::new(2, 1, 0);

    /// The version of these three numbers.
    #[must_use]
    pub const fn new(major: u16, minor: u8, tertiary: u8) -> Self {
        Self(0).with_major(major).with_minor(minor).with_tertiary(tertiary)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major(), self.minor(), self.tertiary())
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Version({self})")
    }
}

code_space! {
    /// I/O Command Set Selected (CC.CSS).
    pub struct CommandSetSelected(pub u8);
    NVM = 0b000, "NVM Command Set";
    ALL_SUPPORTED = 0b110, "All Supported I/O Command Sets";
    ADMIN_ONLY = 0b111, "Admin Command Set only";
}

code_space! {
    /// Shutdown Notification (CC.SHN).
    pub struct ShutdownNotification(pub u8);
    NONE = 0b00, "no notification";
    NORMAL = 0b01, "normal shutdown";
    ABRUPT = 0b10, "abrupt shutdown";
}

code_space! {
    /// Shutdown Status (CSTS.SHST).
    pub struct ShutdownStatus(pub u8);
    NORMAL_OPERATION = 0b00, "normal operation";
    OCCURRING = 0b01, "shutdown processing occurring";
    COMPLETE = 0b10, "shutdown processing complete";
}

/// Controller Configuration (CC).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ControllerConfiguration(pub u32);

bit_fields! {
    pub ControllerConfiguration(u32) {
        /// Enable (EN).
        [0] enable, with_enable;
        /// I/O Command Set Selected (CSS), as a number.
        [6:4] raw_command_set_selected, with_raw_command_set_selected -> u8;
        /// Memory Page Size (MPS): 2 to the power of (12 + this).
        [10:7] memory_page_size, with_memory_page_size -> u8;
        /// Arbitration Mechanism Selected (AMS): 0 round robin, 1 weighted round robin with
        /// urgent priority class, 7 vendor specific.
        [13:11] arbitration_mechanism, with_arbitration_mechanism -> u8;
        /// Shutdown Notification (SHN), as a number.
        [15:14] raw_shutdown_notification, with_raw_shutdown_notification -> u8;
        /// I/O Submission Queue Entry Size (IOSQES): 2 to this power.
        [19:16] submission_queue_entry_size, with_submission_queue_entry_size -> u8;
        /// I/O Completion Queue Entry Size (IOCQES): 2 to this power.
        [23:20] completion_queue_entry_size, with_completion_queue_entry_size -> u8;
        /// Controller Ready Independent of Media Enable (CRIME).
        [24] ready_independent_of_media, with_ready_independent_of_media;
    }
}

impl ControllerConfiguration {
    /// IOSQES that means 64 bytes, the only size that the NVM command set has.
    pub const SUBMISSION_QUEUE_ENTRY_SIZE: u8 = 6;
    /// IOCQES that means 16 bytes, the only size that the NVM command set has.
    pub const COMPLETION_QUEUE_ENTRY_SIZE: u8 = 4;

    /// I/O Command Set Selected (CSS).
    #[must_use]
    pub const fn command_set_selected(self) -> CommandSetSelected {
        CommandSetSelected(self.raw_command_set_selected())
    }

    /// Returns the configuration with CSS changed.
    #[must_use]
    pub const fn with_command_set_selected(self, selected: CommandSetSelected) -> Self {
        self.with_raw_command_set_selected(selected.0)
    }

    /// Shutdown Notification (SHN).
    #[must_use]
    pub const fn shutdown_notification(self) -> ShutdownNotification {
        ShutdownNotification(self.raw_shutdown_notification())
    }

    /// Returns the configuration with SHN changed.
    #[must_use]
    pub const fn with_shutdown_notification(self, notification: ShutdownNotification) -> Self {
        self.with_raw_shutdown_notification(notification.0)
    }
}

/// Controller Status (CSTS).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ControllerStatus(pub u32);

bit_fields! {
    pub ControllerStatus(u32) {
        /// Ready (RDY).
        [0] ready, with_ready;
        /// Controller Fatal Status (CFS).
        [1] fatal, with_fatal;
        /// Shutdown Status (SHST), as a number.
        [3:2] raw_shutdown_status, with_raw_shutdown_status -> u8;
        /// NVM Subsystem Reset Occurred (NSSRO).
        [4] subsystem_reset_occurred, with_subsystem_reset_occurred;
        /// Processing Paused (PP).
        [5] processing_paused, with_processing_paused;
        /// Shutdown Type (ST): whether the shutdown is one of the NVM subsystem.
        [6] subsystem_shutdown, with_subsystem_shutdown;
    }
}

impl ControllerStatus {
    /// Shutdown Status (SHST).
    #[must_use]
    pub const fn shutdown_status(self) -> ShutdownStatus {
        ShutdownStatus(self.raw_shutdown_status())
    }

    /// Returns the status with SHST changed.
    #[must_use]
    pub const fn with_shutdown_status(self, status: ShutdownStatus) -> Self {
        self.with_raw_shutdown_status(status.0)
    }
}

/// Controller Ready Timeouts (CRTO).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ControllerReadyTimeouts(pub u32);

bit_fields! {
    pub ControllerReadyTimeouts(u32) {
        /// Controller Ready With Media Timeout (CRWMT) in units of 500 ms.
        [15:0] with_media_500ms, with_with_media_500ms -> u16;
        /// Controller Ready Independent of Media Timeout (CRIMT) in units of 500 ms.
        [31:16] independent_of_media_500ms, with_independent_of_media_500ms -> u16;
    }
}

/// The value that NVM Subsystem Reset (NSSR) or NVM Subsystem Shutdown (NSSD) acts upon.
pub mod magic {
    /// "NVMe" written to NSSR resets the subsystem.
    pub const SUBSYSTEM_RESET: u32 = 0x4e56_4d65;
    /// "Nrml" written to NSSD shuts the subsystem down.
    pub const SUBSYSTEM_SHUTDOWN_NORMAL: u32 = 0x4e72_6d6c;
    /// "Abpt" written to NSSD shuts the subsystem down abruptly.
    pub const SUBSYSTEM_SHUTDOWN_ABRUPT: u32 = 0x4162_7074;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn fields_do_not_overlap() {
        Capabilities::check_bit_fields();
        Version::check_bit_fields();
        ControllerConfiguration::check_bit_fields();
        ControllerStatus::check_bit_fields();
        ControllerReadyTimeouts::check_bit_fields();
    }

    /// CAP of the Linux target (`nvmet_init_cap`): CSS NVM and I/O command sets, TO 15, MQES
    /// 1023.
    #[test]
    fn capabilities() {
        let capabilities = Capabilities(0x0000_0820_0f00_03ff);
        assert_eq!(capabilities.queue_entries_max(), 1024);
        assert_eq!(capabilities.timeout_ms(), 7500);
        assert!(capabilities.nvm_command_set() && capabilities.io_command_sets());
        assert!(!capabilities.no_io_command_set());
        let made = Capabilities(0)
            .with_nvm_command_set(true)
            .with_io_command_sets(true)
            .with_timeout_500ms(15)
            .with_maximum_queue_entries_supported(1023);
        assert_eq!(made, capabilities);
        let all = Capabilities(u64::MAX);
        assert_eq!(all.queue_entries_max(), 65536);
        assert_eq!(all.timeout_ms(), 127_500);
    }

    /// CC as the Linux host writes it: EN, MPS 0, IOSQES 6, IOCQES 4, all command sets.
    #[test]
    fn configuration() {
        let configuration = ControllerConfiguration(0x0046_0061);
        assert!(configuration.enable());
        assert_eq!(configuration.command_set_selected(), CommandSetSelected::ALL_SUPPORTED);
        assert_eq!(configuration.submission_queue_entry_size(), 6);
        assert_eq!(configuration.completion_queue_entry_size(), 4);
        let shutdown = configuration.with_shutdown_notification(ShutdownNotification::NORMAL);
        assert_eq!(shutdown.0, 0x0046_4061);
        assert_eq!(shutdown.shutdown_notification(), ShutdownNotification::NORMAL);
        let nvm = shutdown.with_command_set_selected(CommandSetSelected::NVM);
        assert_eq!(nvm.0, 0x0046_4001);
    }

    #[test]
    fn status() {
        let status =
            ControllerStatus(0).with_ready(true).with_shutdown_status(ShutdownStatus::COMPLETE);
        assert_eq!(status.0, 0b1001);
        assert_eq!(ControllerStatus(0xffff_fff7).shutdown_status(), ShutdownStatus::OCCURRING);
    }

    #[test]
    fn version() {
        assert_eq!(Version::V2_1.0, 0x0002_0100);
        assert_eq!(format!("{} {:?}", Version(0x0001_0302), Version::V2_0), "1.3.2 Version(2.0.0)");
        assert!(Version::V1_4 < Version::V2_0);
    }

    #[test]
    fn sizes() {
        assert_eq!(Offset::CONTROLLER_CAPABILITIES.size(), Some(PropertySize::Eight));
        assert_eq!(Offset::CONTROLLER_STATUS.size(), Some(PropertySize::Four));
        assert_eq!(Offset(0x04).size(), None);
        assert_eq!(Offset(u32::MAX).size(), None);
        assert_eq!(magic::SUBSYSTEM_RESET.to_be_bytes(), *b"NVMe");
        assert_eq!(magic::SUBSYSTEM_SHUTDOWN_NORMAL.to_be_bytes(), *b"Nrml");
        assert_eq!(magic::SUBSYSTEM_SHUTDOWN_ABRUPT.to_be_bytes(), *b"Abpt");
    }
}
