//! The values of features.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::wire::{Reserved, U16};

bit_struct! {
    /// What Get Features answers for Select 011b: the capabilities of a feature.
    pub struct FeatureCapabilities(pub u32) {
        /// Saveable.
        [0] saveable, with_saveable;
        /// Namespace specific.
        [1] namespace_specific, with_namespace_specific;
        /// Changeable.
        [2] changeable, with_changeable;
    }
}

bit_struct! {
    /// Arbitration (01h).
    pub struct Arbitration(pub u32) {
        /// Arbitration Burst (AB), as a power of two; 7 for no limit.
        [2:0] burst, with_burst -> u8;
        /// Low Priority Weight (LPW), 0's based.
        [15:8] low_priority_weight, with_low_priority_weight -> u8;
        /// Medium Priority Weight (MPW), 0's based.
        [23:16] medium_priority_weight, with_medium_priority_weight -> u8;
        /// High Priority Weight (HPW), 0's based.
        [31:24] high_priority_weight, with_high_priority_weight -> u8;
    }
}

bit_struct! {
    /// Power Management (02h).
    pub struct PowerManagement(pub u32) {
        /// Power State (PS).
        [4:0] power_state, with_power_state -> u8;
        /// Workload Hint (WH).
        [7:5] workload_hint, with_workload_hint -> u8;
    }
}

code_space! {
    /// Threshold Type Select (THSEL).
    pub struct TemperatureThresholdType(pub u8);
    OVER = 0b00, "over temperature threshold";
    UNDER = 0b01, "under temperature threshold";
}

bit_struct! {
    /// Temperature Threshold (04h).
    pub struct TemperatureThreshold(pub u32) {
        /// Temperature Threshold (TMPTH) in kelvins.
        [15:0] threshold_k, with_threshold_k -> u16;
        /// Threshold Temperature Select (TMPSEL): 0 the composite temperature, 1 to 8 a sensor,
        /// 15 all (Set Features).
        [19:16] sensor, with_sensor -> u8;
        /// Threshold Type Select (THSEL), as a number.
        [21:20] raw_threshold_type, with_raw_threshold_type -> u8;
        /// Temperature Threshold Hysteresis (TMPTHH).
        [24:22] hysteresis, with_hysteresis -> u8;
    }
}

impl TemperatureThreshold {
    /// Sensor that stands for the composite temperature.
    pub const COMPOSITE: u8 = 0x0;
    /// Sensor that stands for all of them, in Set Features.
    pub const ALL_SENSORS: u8 = 0xf;

    /// Threshold Type Select (THSEL).
    #[must_use]
    pub const fn threshold_type(self) -> TemperatureThresholdType {
        TemperatureThresholdType(self.raw_threshold_type())
    }
}

bit_struct! {
    /// Error Recovery (05h).
    pub struct ErrorRecovery(pub u32) {
        /// Time Limited Error Recovery (TLER) in units of 100 ms; 0 for no limit.
        [15:0] time_limit_100ms, with_time_limit_100ms -> u16;
        /// Deallocated or Unwritten Logical Block Error Enable (DULBE).
        [16] deallocated_error, with_deallocated_error;
    }
}

bit_struct! {
    /// Volatile Write Cache (06h).
    pub struct VolatileWriteCache(pub u32) {
        /// Volatile Write Cache Enable (WCE).
        [0] enable, with_enable;
    }
}

bit_struct! {
    /// Number of Queues (07h), in the command what is requested, in the completion what is
    /// allocated.
    pub struct NumberOfQueues(pub u32) {
        /// Number of I/O Submission Queues (NSQR, NSQA), 0's based.
        [15:0] submission_queues_0s_based, with_submission_queues_0s_based -> u16;
        /// Number of I/O Completion Queues (NCQR, NCQA), 0's based.
        [31:16] completion_queues_0s_based, with_completion_queues_0s_based -> u16;
    }
}

impl NumberOfQueues {
    /// The value of 0's based counts that a host may not request.
    pub const NOT_ALLOWED: u16 = 0xffff;

    /// As many of both; the count is taken into 1 to 65535.
    #[must_use]
    pub const fn pairs(count: u16) -> Self {
        let queues = count.saturating_sub(1);
        Self(0).with_submission_queues_0s_based(queues).with_completion_queues_0s_based(queues)
    }

    /// Submission queues, a true count.
    #[must_use]
    pub const fn submission_queues(self) -> u32 {
        self.submission_queues_0s_based() as u32 + 1
    }

    /// Completion queues, a true count.
    #[must_use]
    pub const fn completion_queues(self) -> u32 {
        self.completion_queues_0s_based() as u32 + 1
    }

    /// Queue pairs that can be made of these: the smaller of both counts.
    #[must_use]
    pub const fn queue_pairs(self) -> u32 {
        if self.submission_queues() < self.completion_queues() {
            self.submission_queues()
        } else {
            self.completion_queues()
        }
    }
}

bit_struct! {
    /// Write Atomicity Normal (0Ah).
    pub struct WriteAtomicity(pub u32) {
        /// Disable Normal (DN): only the power fail units have to be kept.
        [0] disable_normal, with_disable_normal;
    }
}

bit_struct! {
    /// Asynchronous Event Configuration (0Bh): which events are enabled.
    pub struct AsynchronousEventConfiguration(pub u32) {
        /// SMART / Health Critical Warnings, one bit for each.
        [7:0] critical_warnings, with_critical_warnings -> u8;
        /// Attached Namespace Attribute Notices.
        [8] namespace_attribute, with_namespace_attribute;
        /// Firmware Activation Notices.
        [9] firmware_activation, with_firmware_activation;
        /// Telemetry Log Notices.
        [10] telemetry_log, with_telemetry_log;
        /// Asymmetric Namespace Access Change Notices.
        [11] asymmetric_namespace_access_change, with_asymmetric_namespace_access_change;
        /// Predictable Latency Event Aggregate Log Change Notices.
        [12] predictable_latency, with_predictable_latency;
        /// LBA Status Information Alert Notices.
        [13] lba_status, with_lba_status;
        /// Endurance Group Event Aggregate Log Page Change Notices.
        [14] endurance_group, with_endurance_group;
        /// Normal NVM Subsystem Shutdown.
        [15] subsystem_shutdown, with_subsystem_shutdown;
        /// Temperature Threshold Hysteresis Recovery.
        [16] temperature_hysteresis, with_temperature_hysteresis;
        /// Reachability Association Change Notices.
        [17] reachability_association, with_reachability_association;
        /// Reachability Group Change Notices.
        [18] reachability_group, with_reachability_group;
        /// Allocated Namespace Attribute Notices.
        [19] allocated_namespace_attribute, with_allocated_namespace_attribute;
        /// Zone Descriptor Changed Notices.
        [27] zone_descriptor_changed, with_zone_descriptor_changed;
        /// Pull Model DDC Request Log Page Change Notices.
        [28] pull_model_ddc_request, with_pull_model_ddc_request;
        /// AVE Discovery Log Page Change Notices.
        [29] ave_discovery_log_change, with_ave_discovery_log_change;
        /// Host Discovery Log Page Change Notices.
        [30] host_discovery_log_change, with_host_discovery_log_change;
        /// Discovery Log Page Change Notices.
        [31] discovery_log_change, with_discovery_log_change;
    }
}

bit_struct! {
    /// Autonomous Power State Transition (0Ch).
    pub struct AutonomousPowerStateTransition(pub u32) {
        /// Autonomous Power State Transition Enable (APSTE).
        [0] enable, with_enable;
    }
}

bit_struct! {
    /// I/O Command Set Profile (19h).
    pub struct CommandSetProfile(pub u32) {
        /// I/O Command Set Combination Index (IOCSCI).
        [8:0] combination_index, with_combination_index -> u16;
    }
}

bit_struct! {
    /// Spinup Control (1Ah).
    pub struct SpinupControl(pub u32) {
        /// Spinup Control Enable.
        [0] enable, with_enable;
    }
}

bit_struct! {
    /// Host Identifier (81h): Command Dword 11.
    pub struct HostIdentifier(pub u32) {
        /// Enable Extended Host Identifier (EXHID): 16 bytes, and not 8.
        [0] extended, with_extended;
    }
}

impl HostIdentifier {
    /// Bytes of data that go with the command.
    #[must_use]
    pub const fn data_length(self) -> u32 {
        if self.extended() { 16 } else { 8 }
    }
}

bit_struct! {
    /// Reservation Notification Mask (82h): which notifications are masked.
    pub struct ReservationNotificationMask(pub u32) {
        /// Mask Registration Preempted Notification (REGPRE).
        [1] registration_preempted, with_registration_preempted;
        /// Mask Reservation Released Notification (RESREL).
        [2] reservation_released, with_reservation_released;
        /// Mask Reservation Preempted Notification (RESPRE).
        [3] reservation_preempted, with_reservation_preempted;
    }
}

bit_struct! {
    /// Reservation Persistence (83h).
    pub struct ReservationPersistence(pub u32) {
        /// Persist Through Power Loss (PTPL).
        [0] persist_through_power_loss, with_persist_through_power_loss;
    }
}

code_space! {
    /// Write Protection State (WPS).
    pub struct WriteProtectionState(pub u8);
    NO_WRITE_PROTECT = 0b000, "No Write Protect";
    WRITE_PROTECT = 0b001, "Write Protect";
    UNTIL_POWER_CYCLE = 0b010, "Write Protect Until Power Cycle";
    PERMANENT = 0b011, "Permanent Write Protect";
}

bit_struct! {
    /// Namespace Write Protection Config (84h).
    pub struct WriteProtection(pub u32) {
        /// Write Protection State (WPS), as a number.
        [2:0] raw_state, with_raw_state -> u8;
    }
}

impl WriteProtection {
    /// The value that stands for this state.
    #[must_use]
    pub const fn new(state: WriteProtectionState) -> Self {
        Self(0).with_raw_state(state.0)
    }

    /// Write Protection State (WPS).
    #[must_use]
    pub const fn state(self) -> WriteProtectionState {
        WriteProtectionState(self.raw_state())
    }
}

/// Timestamp (0Eh) data structure (8 bytes).
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
pub struct Timestamp {
    /// Milliseconds, 48 bits, little endian.
    pub milliseconds: [u8; 6],
    /// Attributes: bit 0 Synch, bits 3:1 Timestamp Origin.
    pub attributes: u8,
    /// Reserved.
    pub reserved: u8,
}

assert_layout!(Timestamp, size 8, milliseconds at 0, attributes at 6, reserved at 7);

impl Timestamp {
    /// The milliseconds.
    #[must_use]
    pub const fn milliseconds(&self) -> u64 {
        let [b0, b1, b2, b3, b4, b5] = self.milliseconds;
        u64::from_le_bytes([b0, b1, b2, b3, b4, b5, 0, 0])
    }
}

/// Host Behavior Support (16h) data structure (512 bytes). Each behaviour is a byte: 1 if the
/// host has it, 0 if not.
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
pub struct HostBehavior {
    /// Advanced Command Retry Enable (ACRE).
    pub advanced_command_retry: u8,
    /// Extended Telemetry Data Area 4 Supported (ETDAS).
    pub telemetry_data_area4: u8,
    /// LBA Format Extension Enable (LBAFEE).
    pub extended_lba_formats: u8,
    /// Host Dispersed Namespace Support (HDISNS).
    pub dispersed_namespaces: u8,
    /// Copy Descriptor Formats Enable (CDFE), one bit for each of the formats 2h to 4h.
    pub copy_descriptor_formats: U16,
    /// Reserved.
    pub reserved: Reserved<506>,
}

assert_layout!(HostBehavior, size 512, advanced_command_retry at 0, telemetry_data_area4 at 1,
    extended_lba_formats at 2, dispersed_namespaces at 3, copy_descriptor_formats at 4,
    reserved at 6);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;
    use crate::wire::test_support::{check_truncations, hex, hex_padded};

    #[test]
    fn fields_do_not_overlap() {
        FeatureCapabilities::check_bit_fields();
        Arbitration::check_bit_fields();
        PowerManagement::check_bit_fields();
        TemperatureThreshold::check_bit_fields();
        ErrorRecovery::check_bit_fields();
        VolatileWriteCache::check_bit_fields();
        NumberOfQueues::check_bit_fields();
        WriteAtomicity::check_bit_fields();
        AsynchronousEventConfiguration::check_bit_fields();
        AutonomousPowerStateTransition::check_bit_fields();
        CommandSetProfile::check_bit_fields();
        SpinupControl::check_bit_fields();
        HostIdentifier::check_bit_fields();
        ReservationNotificationMask::check_bit_fields();
        ReservationPersistence::check_bit_fields();
        WriteProtection::check_bit_fields();
    }

    #[test]
    fn queues() {
        assert_eq!(NumberOfQueues::pairs(8).0, 0x0007_0007);
        assert_eq!(NumberOfQueues::pairs(0).0, 0);
        assert_eq!(NumberOfQueues::pairs(8).queue_pairs(), 8);
        assert_eq!(NumberOfQueues(0xffff_0003).queue_pairs(), 4);
        assert_eq!(NumberOfQueues(0x0001_ffff).queue_pairs(), 2);
        assert_eq!(NumberOfQueues(u32::MAX).submission_queues(), 65536);
        assert_eq!(NumberOfQueues(u32::MAX).completion_queues(), 65536);
    }

    /// `NVME_AEN_CFG_*` of Linux: namespace 0100h, ANA 0800h, discovery 8000_0000h.
    #[test]
    fn events() {
        let wanted = AsynchronousEventConfiguration(0)
            .with_namespace_attribute(true)
            .with_asymmetric_namespace_access_change(true)
            .with_discovery_log_change(true);
        assert_eq!(wanted.0, 0x8000_0900);
    }

    #[test]
    fn small_values() {
        assert_eq!(HostIdentifier(0xffff_fffe).data_length(), 8);
        assert_eq!(HostIdentifier(1).data_length(), 16);
        let protection = WriteProtection(0xffff_fff9);
        assert_eq!(protection.state(), WriteProtectionState::WRITE_PROTECT);
        assert_eq!(WriteProtection::new(WriteProtectionState::PERMANENT).0, 3);
        let threshold = TemperatureThreshold(0x0010_0157);
        assert_eq!(threshold.threshold_type(), TemperatureThresholdType::UNDER);
        assert_eq!((threshold.threshold_k(), threshold.sensor()), (343, 0));
    }

    #[test]
    fn timestamp() {
        let vector = hex("060504030201 02 00");
        check_truncations::<Timestamp>(&vector);
        let timestamp = Timestamp::read(&vector).unwrap();
        assert_eq!(timestamp.attributes, 0b0010);
        assert_eq!(timestamp.milliseconds(), 0x0102_0304_0506);
    }

    /// What the Linux host sends (`nvme_configure_host_options`): ACRE and LBAFEE.
    #[test]
    fn host_behavior() {
        let vector = hex_padded("01 00 01", 512);
        check_truncations::<HostBehavior>(&vector);
        let behavior = HostBehavior {
            advanced_command_retry: 1,
            extended_lba_formats: 1,
            ..HostBehavior::default()
        };
        assert_eq!(behavior.bytes(), vector);
    }
}
