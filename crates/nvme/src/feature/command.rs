//! The two commands.

use crate::command::Command;
use crate::opcode::AdminOpcode;

code_space! {
    /// Feature Identifier (FID).
    pub struct FeatureId(pub u8);
    ARBITRATION = 0x01, "Arbitration";
    POWER_MANAGEMENT = 0x02, "Power Management";
    LBA_RANGE_TYPE = 0x03, "LBA Range Type";
    TEMPERATURE_THRESHOLD = 0x04, "Temperature Threshold";
    ERROR_RECOVERY = 0x05, "Error Recovery";
    VOLATILE_WRITE_CACHE = 0x06, "Volatile Write Cache";
    NUMBER_OF_QUEUES = 0x07, "Number of Queues";
    INTERRUPT_COALESCING = 0x08, "Interrupt Coalescing";
    INTERRUPT_VECTOR_CONFIGURATION = 0x09, "Interrupt Vector Configuration";
    WRITE_ATOMICITY = 0x0a, "Write Atomicity Normal";
    ASYNCHRONOUS_EVENT_CONFIGURATION = 0x0b, "Asynchronous Event Configuration";
    AUTONOMOUS_POWER_STATE_TRANSITION = 0x0c, "Autonomous Power State Transition";
    HOST_MEMORY_BUFFER = 0x0d, "Host Memory Buffer";
    TIMESTAMP = 0x0e, "Timestamp";
    KEEP_ALIVE_TIMER = 0x0f, "Keep Alive Timer";
    HOST_CONTROLLED_THERMAL_MANAGEMENT = 0x10, "Host Controlled Thermal Management";
    NON_OPERATIONAL_POWER_STATE = 0x11, "Non-Operational Power State Config";
    READ_RECOVERY_LEVEL = 0x12, "Read Recovery Level Config";
    PREDICTABLE_LATENCY_MODE_CONFIG = 0x13, "Predictable Latency Mode Config";
    PREDICTABLE_LATENCY_MODE_WINDOW = 0x14, "Predictable Latency Mode Window";
    LBA_STATUS_INFORMATION = 0x15, "LBA Status Information Report Interval";
    HOST_BEHAVIOR_SUPPORT = 0x16, "Host Behavior Support";
    SANITIZE_CONFIG = 0x17, "Sanitize Config";
    ENDURANCE_GROUP_EVENT_CONFIGURATION = 0x18, "Endurance Group Event Configuration";
    COMMAND_SET_PROFILE = 0x19, "I/O Command Set Profile";
    SPINUP_CONTROL = 0x1a, "Spinup Control";
    POWER_LOSS_SIGNALING = 0x1b, "Power Loss Signaling Config";
    PERFORMANCE_CHARACTERISTICS = 0x1c, "Performance Characteristics";
    FLEXIBLE_DATA_PLACEMENT = 0x1d, "Flexible Data Placement";
    FLEXIBLE_DATA_PLACEMENT_EVENTS = 0x1e, "Flexible Data Placement Events";
    NAMESPACE_ADMIN_LABEL = 0x1f, "Namespace Admin Label";
    KEY_VALUE_CONFIGURATION = 0x20, "Key Value Configuration";
    CONTROLLER_DATA_QUEUE = 0x21, "Controller Data Queue";
    EMBEDDED_MANAGEMENT_CONTROLLER_ADDRESS = 0x78, "Embedded Management Controller Address";
    HOST_MANAGEMENT_AGENT_ADDRESS = 0x79, "Host Management Agent Address";
    ENHANCED_CONTROLLER_METADATA = 0x7d, "Enhanced Controller Metadata";
    CONTROLLER_METADATA = 0x7e, "Controller Metadata";
    NAMESPACE_METADATA = 0x7f, "Namespace Metadata";
    SOFTWARE_PROGRESS_MARKER = 0x80, "Software Progress Marker";
    HOST_IDENTIFIER = 0x81, "Host Identifier";
    RESERVATION_NOTIFICATION_MASK = 0x82, "Reservation Notification Mask";
    RESERVATION_PERSISTENCE = 0x83, "Reservation Persistence";
    NAMESPACE_WRITE_PROTECTION = 0x84, "Namespace Write Protection Config";
    BOOT_PARTITION_WRITE_PROTECTION = 0x85, "Boot Partition Write Protection Config";
}

code_space! {
    /// Select (SEL): which of a feature's values is asked for.
    pub struct Select(pub u8);
    CURRENT = 0b000, "current";
    DEFAULT = 0b001, "default";
    SAVED = 0b010, "saved";
    SUPPORTED_CAPABILITIES = 0b011, "supported capabilities";
}

bit_struct! {
    /// Command Dword 10 of Get Features.
    pub struct GetFeaturesDword10(pub u32) {
        /// Feature Identifier (FID).
        [7:0] feature, with_feature -> u8;
        /// Select (SEL).
        [10:8] select, with_select -> u8;
    }
}

bit_struct! {
    /// Command Dword 10 of Set Features.
    pub struct SetFeaturesDword10(pub u32) {
        /// Feature Identifier (FID).
        [7:0] feature, with_feature -> u8;
        /// Save (SV).
        [31] save, with_save;
    }
}

bit_struct! {
    /// Command Dword 14 of both.
    pub struct FeaturesDword14(pub u32) {
        /// UUID Index.
        [6:0] uuid_index, with_uuid_index -> u8;
    }
}

/// The dwords of a Get Features command. Its completion's dword 0 is the value, for features
/// that have no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GetFeatures {
    /// Feature Identifier (FID).
    pub feature: FeatureId,
    /// Namespace Identifier (NSID), for features of a namespace.
    pub namespace_id: u32,
    /// Select (SEL).
    pub select: Select,
    /// Command Dword 11, which some features define.
    pub cdw11: u32,
    /// UUID Index.
    pub uuid_index: u8,
}

impl GetFeatures {
    /// Asks for the current value of a feature of the controller.
    #[must_use]
    pub const fn new(feature: FeatureId) -> Self {
        Self { feature, namespace_id: 0, select: Select::CURRENT, cdw11: 0, uuid_index: 0 }
    }

    /// Reads the dwords of a Get Features command.
    #[must_use]
    pub const fn from_command(command: &Command) -> Self {
        let dword10 = GetFeaturesDword10(command.cdw10.get());
        Self {
            feature: FeatureId(dword10.feature()),
            namespace_id: command.namespace_id.get(),
            select: Select(dword10.select()),
            cdw11: command.cdw11.get(),
            uuid_index: FeaturesDword14(command.cdw14.get()).uuid_index(),
        }
    }

    /// A Get Features command without command identifier and data pointer.
    #[must_use]
    pub fn to_command(self) -> Command {
        let dword10 = GetFeaturesDword10(0).with_feature(self.feature.0).with_select(self.select.0);
        Command::new(AdminOpcode::GET_FEATURES)
            .with_namespace_id(self.namespace_id)
            .with_cdw10(dword10.0)
            .with_cdw11(self.cdw11)
            .with_cdw14(FeaturesDword14(0).with_uuid_index(self.uuid_index).0)
    }
}

/// The dwords of a Set Features command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetFeatures {
    /// Feature Identifier (FID).
    pub feature: FeatureId,
    /// Namespace Identifier (NSID), for features of a namespace.
    pub namespace_id: u32,
    /// Save (SV): the value is to survive a reset.
    pub save: bool,
    /// Command Dword 11: the value of features that have no data.
    pub value: u32,
    /// UUID Index.
    pub uuid_index: u8,
}

impl SetFeatures {
    /// Sets a feature of the controller to this value.
    #[must_use]
    pub const fn new(feature: FeatureId, value: u32) -> Self {
        Self { feature, namespace_id: 0, save: false, value, uuid_index: 0 }
    }

    /// Reads the dwords of a Set Features command.
    #[must_use]
    pub const fn from_command(command: &Command) -> Self {
        let dword10 = SetFeaturesDword10(command.cdw10.get());
        Self {
            feature: FeatureId(dword10.feature()),
            namespace_id: command.namespace_id.get(),
            save: dword10.save(),
            value: command.cdw11.get(),
            uuid_index: FeaturesDword14(command.cdw14.get()).uuid_index(),
        }
    }

    /// A Set Features command without command identifier and data pointer.
    #[must_use]
    pub fn to_command(self) -> Command {
        let dword10 = SetFeaturesDword10(0).with_feature(self.feature.0).with_save(self.save);
        Command::new(AdminOpcode::SET_FEATURES)
            .with_namespace_id(self.namespace_id)
            .with_cdw10(dword10.0)
            .with_cdw11(self.value)
            .with_cdw14(FeaturesDword14(0).with_uuid_index(self.uuid_index).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;
    use crate::wire::test_support::hex;

    #[test]
    fn fields_do_not_overlap() {
        GetFeaturesDword10::check_bit_fields();
        SetFeaturesDword10::check_bit_fields();
        FeaturesDword14::check_bit_fields();
    }

    /// `struct nvme_features` of Linux: fid at 40, dword 11 at 44.
    #[test]
    fn get_features() {
        let get = GetFeatures {
            select: Select::SUPPORTED_CAPABILITIES,
            namespace_id: 2,
            cdw11: 9,
            ..GetFeatures::new(FeatureId::NAMESPACE_WRITE_PROTECTION)
        };
        let command = get.to_command();
        assert_eq!(command.bytes()[..8], hex("0a 40 0000 02000000"));
        assert_eq!(command.bytes()[40..52], hex("84030000 09000000 00000000"));
        assert_eq!(GetFeatures::from_command(&command), get);
    }

    #[test]
    fn set_features() {
        let set = SetFeatures {
            save: true,
            uuid_index: 0x7f,
            ..SetFeatures::new(FeatureId::NUMBER_OF_QUEUES, 0x0007_0007)
        };
        let command = set.to_command();
        assert_eq!(command.bytes()[..8], hex("09 40 0000 00000000"));
        assert_eq!(
            command.bytes()[40..],
            hex("07000080 07000700 00000000 00000000 7f000000 00000000")
        );
        assert_eq!(SetFeatures::from_command(&command), set);
    }
}
