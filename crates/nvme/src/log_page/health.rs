//! SMART / Health Information.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::wire::{Reserved, U16, U32, U128};

/// 0 °C in whole kelvins, as the log page counts.
pub const KELVIN_AT_0_CELSIUS: u16 = 273;

bit_struct! {
    /// Critical Warning (CW).
    pub struct CriticalWarning(pub u8) {
        /// Available Spare Capacity Below Threshold.
        [0] spare_below_threshold, with_spare_below_threshold;
        /// Temperature Threshold Condition.
        [1] temperature, with_temperature;
        /// NVM Subsystem Degraded Reliability.
        [2] degraded_reliability, with_degraded_reliability;
        /// All Media Read-Only.
        [3] read_only, with_read_only;
        /// Volatile Memory Backup Failed.
        [4] volatile_memory_backup_failed, with_volatile_memory_backup_failed;
        /// Persistent Memory Region Read-Only.
        [5] persistent_memory_read_only, with_persistent_memory_read_only;
    }
}

/// SMART / Health Information (02h, 512 bytes).
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
pub struct Health {
    /// Critical Warning.
    pub critical_warning: CriticalWarning,
    /// Composite Temperature (CTEMP) in kelvins.
    pub composite_temperature_k: U16,
    /// Available Spare (AVSP), in per cent.
    pub available_spare_percent: u8,
    /// Available Spare Threshold (AVSPT), in per cent.
    pub available_spare_threshold_percent: u8,
    /// Percentage Used (PUSED); may pass 100.
    pub percentage_used: u8,
    /// Endurance Group Critical Warning Summary (EGCWS).
    pub endurance_group_warnings: u8,
    /// Reserved.
    pub reserved7: Reserved<25>,
    /// Data Units Read (DUR): thousands of 512 bytes, rounded up.
    pub data_units_read: U128,
    /// Data Units Written (DUW): thousands of 512 bytes, rounded up.
    pub data_units_written: U128,
    /// Host Read Commands (HRC).
    pub host_read_commands: U128,
    /// Host Write Commands (HWC).
    pub host_write_commands: U128,
    /// Controller Busy Time (CBT) in minutes.
    pub controller_busy_time_minutes: U128,
    /// Power Cycles (PWRC).
    pub power_cycles: U128,
    /// Power On Hours (POH).
    pub power_on_hours: U128,
    /// Unexpected Power Losses (UPL).
    pub unexpected_power_losses: U128,
    /// Media and Data Integrity Errors (MDIE).
    pub media_errors: U128,
    /// Number of Error Information Log Entries (NEILE).
    pub error_log_entries: U128,
    /// Warning Composite Temperature Time (WCTT) in minutes.
    pub warning_temperature_minutes: U32,
    /// Critical Composite Temperature Time (CCTT) in minutes.
    pub critical_temperature_minutes: U32,
    /// Temperature Sensor 1 to 8 (TSEN1 to TSEN8) in kelvins; 0 for none.
    pub temperature_sensors_k: [U16; 8],
    /// Thermal Management Temperature 1 and 2 Transition Count (TMT1TC, TMT2TC).
    pub thermal_transitions: [U32; 2],
    /// Total Time For Thermal Management Temperature 1 and 2 (TTTMT1, TTTMT2) in seconds.
    pub thermal_seconds: [U32; 2],
    /// Reserved.
    pub reserved232: Reserved<280>,
}

assert_layout!(Health, size 512, critical_warning at 0, composite_temperature_k at 1,
    available_spare_percent at 3, available_spare_threshold_percent at 4, percentage_used at 5,
    endurance_group_warnings at 6, reserved7 at 7, data_units_read at 32,
    data_units_written at 48, host_read_commands at 64, host_write_commands at 80,
    controller_busy_time_minutes at 96, power_cycles at 112, power_on_hours at 128,
    unexpected_power_losses at 144, media_errors at 160, error_log_entries at 176,
    warning_temperature_minutes at 192, critical_temperature_minutes at 196,
    temperature_sensors_k at 200, thermal_transitions at 216, thermal_seconds at 224,
    reserved232 at 232);

impl Health {
    /// The data units that so many bytes are: thousands of 512 bytes, rounded up.
    #[must_use]
    pub const fn data_units(bytes: u128) -> u128 {
        bytes.div_ceil(512_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;
    use crate::wire::test_support::check_truncations;

    /// `struct nvme_smart_log` of Linux: an unaligned temperature, counters of 16 bytes.
    #[test]
    fn health() {
        CriticalWarning::check_bit_fields();
        let mut vector = std::vec![0; 512];
        vector[0] = 2;
        vector[1..3].copy_from_slice(&[0x2c, 0x01]);
        vector[3] = 100;
        vector[32] = 1;
        vector[47] = 0x80;
        vector[64] = 9;
        vector[176] = 3;
        vector[200] = 0x2d;
        vector[201] = 0x01;
        check_truncations::<Health>(&vector);
        let health = Health::view(&vector).unwrap();
        assert!(health.critical_warning.temperature());
        assert_eq!(health.composite_temperature_k.get() - KELVIN_AT_0_CELSIUS, 27);
        assert_eq!(health.data_units_read.get(), (1 << 127) + 1);
        assert_eq!(health.host_read_commands.get(), 9);
        assert_eq!(health.error_log_entries.get(), 3);
        assert_eq!(health.temperature_sensors_k[0].get(), 301);
    }

    #[test]
    fn data_units_round_up() {
        assert_eq!(Health::data_units(0), 0);
        assert_eq!(Health::data_units(1), 1);
        assert_eq!(Health::data_units(512_000), 1);
        assert_eq!(Health::data_units(512_001), 2);
        assert_eq!(Health::data_units(u128::MAX), u128::MAX / 512_000 + 1);
    }
}
