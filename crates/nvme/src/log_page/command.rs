//! The Get Log Page command.

use crate::command::Command;
use crate::identify::CommandSetId;
use crate::nvm::StartingBlock as Quadword;
use crate::opcode::AdminOpcode;

code_space! {
    /// Log Page Identifier (LID).
    pub struct LogPageId(pub u8);
    SUPPORTED_LOG_PAGES = 0x00, "Supported Log Pages";
    ERROR_INFORMATION = 0x01, "Error Information";
    HEALTH = 0x02, "SMART / Health Information";
    FIRMWARE_SLOT = 0x03, "Firmware Slot Information";
    CHANGED_ATTACHED_NAMESPACE_LIST = 0x04, "Changed Attached Namespace List";
    COMMANDS_SUPPORTED_AND_EFFECTS = 0x05, "Commands Supported and Effects";
    DEVICE_SELF_TEST = 0x06, "Device Self-test";
    TELEMETRY_HOST_INITIATED = 0x07, "Telemetry Host-Initiated";
    TELEMETRY_CONTROLLER_INITIATED = 0x08, "Telemetry Controller-Initiated";
    ENDURANCE_GROUP_INFORMATION = 0x09, "Endurance Group Information";
    PREDICTABLE_LATENCY_PER_NVM_SET = 0x0a, "Predictable Latency Per NVM Set";
    PREDICTABLE_LATENCY_EVENT_AGGREGATE = 0x0b, "Predictable Latency Event Aggregate";
    ASYMMETRIC_NAMESPACE_ACCESS = 0x0c, "Asymmetric Namespace Access";
    PERSISTENT_EVENT_LOG = 0x0d, "Persistent Event Log";
    LBA_STATUS_INFORMATION = 0x0e, "LBA Status Information";
    ENDURANCE_GROUP_EVENT_AGGREGATE = 0x0f, "Endurance Group Event Aggregate";
    MEDIA_UNIT_STATUS = 0x10, "Media Unit Status";
    SUPPORTED_CAPACITY_CONFIGURATION_LIST = 0x11, "Supported Capacity Configuration List";
    FEATURE_IDENTIFIERS_SUPPORTED_AND_EFFECTS = 0x12,
        "Feature Identifiers Supported and Effects";
    MANAGEMENT_COMMANDS_SUPPORTED_AND_EFFECTS = 0x13, "NVMe-MI Commands Supported and Effects";
    COMMAND_AND_FEATURE_LOCKDOWN = 0x14, "Command and Feature Lockdown";
    BOOT_PARTITION = 0x15, "Boot Partition";
    ROTATIONAL_MEDIA_INFORMATION = 0x16, "Rotational Media Information";
    DISPERSED_NAMESPACE_PARTICIPANTS = 0x17,
        "Dispersed Namespace Participating NVM Subsystems";
    MANAGEMENT_ADDRESS_LIST = 0x18, "Management Address List";
    PHYSICAL_INTERFACE_EYE_OPENING = 0x19,
        "Physical Interface Receiver Eye Opening Measurement";
    REACHABILITY_GROUPS = 0x1a, "Reachability Groups";
    REACHABILITY_ASSOCIATIONS = 0x1b, "Reachability Associations";
    CHANGED_ALLOCATED_NAMESPACE_LIST = 0x1c, "Changed Allocated Namespace List";
    FLEXIBLE_DATA_PLACEMENT_CONFIGURATIONS = 0x20, "FDP Configurations";
    RECLAIM_UNIT_HANDLE_USAGE = 0x21, "Reclaim Unit Handle Usage";
    FLEXIBLE_DATA_PLACEMENT_STATISTICS = 0x22, "FDP Statistics";
    FLEXIBLE_DATA_PLACEMENT_EVENTS = 0x23, "FDP Events";
    DISCOVERY = 0x70, "Discovery";
    HOST_DISCOVERY = 0x71, "Host Discovery";
    AVE_DISCOVERY = 0x72, "AVE Discovery";
    PULL_MODEL_DDC_REQUEST = 0x73, "Pull Model DDC Request";
    RESERVATION_NOTIFICATION = 0x80, "Reservation Notification";
    SANITIZE_STATUS = 0x81, "Sanitize Status";
    CHANGED_ZONE_LIST = 0xbf, "Changed Zone List";
}

bit_struct! {
    /// Command Dword 10 of Get Log Page.
    pub struct GetLogPageDword10(pub u32) {
        /// Log Page Identifier (LID).
        [7:0] log_page, with_log_page -> u8;
        /// Log Specific Parameter (LSP).
        [14:8] specific_parameter, with_specific_parameter -> u8;
        /// Retain Asynchronous Event (RAE).
        [15] retain_event, with_retain_event;
        /// Number of Dwords Lower (NUMDL).
        [31:16] dwords_low, with_dwords_low -> u16;
    }
}

bit_struct! {
    /// Command Dword 11 of Get Log Page.
    pub struct GetLogPageDword11(pub u32) {
        /// Number of Dwords Upper (NUMDU).
        [15:0] dwords_high, with_dwords_high -> u16;
        /// Log Specific Identifier (LSI).
        [31:16] specific_id, with_specific_id -> u16;
    }
}

bit_struct! {
    /// Command Dword 14 of Get Log Page.
    pub struct GetLogPageDword14(pub u32) {
        /// UUID Index.
        [6:0] uuid_index, with_uuid_index -> u8;
        /// Offset Type (OT): the offset is an index of entries, and not of bytes.
        [23] offset_is_index, with_offset_is_index;
        /// Command Set Identifier (CSI).
        [31:24] command_set, with_command_set -> u8;
    }
}

bit_struct! {
    /// Number of Dwords (NUMD), 0's based, of both halves.
    pub struct NumberOfDwords(pub u32) {
        /// NUMDL.
        [15:0] low, with_low -> u16;
        /// NUMDU.
        [31:16] high, with_high -> u16;
    }
}

/// The dwords of a Get Log Page command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GetLogPage {
    /// Log Page Identifier (LID).
    pub log_page: LogPageId,
    /// Namespace Identifier (NSID), for log pages of a namespace.
    pub namespace_id: u32,
    /// Log Specific Parameter (LSP).
    pub specific_parameter: u8,
    /// Retain Asynchronous Event (RAE): reading does not clear the event.
    pub retain_event: bool,
    /// Number of Dwords (NUMD), 0's based as on the wire.
    pub dwords_0s_based: u32,
    /// Log Specific Identifier (LSI).
    pub specific_id: u16,
    /// Log Page Offset (LPO): bytes from the beginning, or an index of entries.
    pub offset: u64,
    /// Offset Type (OT): whether the offset is an index.
    pub offset_is_index: bool,
    /// Command Set Identifier (CSI).
    pub command_set: CommandSetId,
    /// UUID Index.
    pub uuid_index: u8,
}

impl GetLogPage {
    /// Asks for so many bytes from this offset of a log page of the controller. Both are taken
    /// up or down to dwords, and at least one dword is asked for.
    #[must_use]
    pub fn new(log_page: LogPageId, offset: u64, length: u32) -> Self {
        Self {
            log_page,
            dwords_0s_based: length.div_ceil(4).saturating_sub(1),
            offset: offset - offset % 4,
            ..Self::default()
        }
    }

    /// Bytes that are asked for; at least 4, and they need more than 32 bits.
    #[must_use]
    pub const fn length(&self) -> u64 {
        (self.dwords_0s_based as u64 + 1) * 4
    }

    /// Reads the dwords of a Get Log Page command.
    #[must_use]
    pub const fn from_command(command: &Command) -> Self {
        let dword10 = GetLogPageDword10(command.cdw10.get());
        let dword11 = GetLogPageDword11(command.cdw11.get());
        let dword14 = GetLogPageDword14(command.cdw14.get());
        let dwords =
            NumberOfDwords(0).with_low(dword10.dwords_low()).with_high(dword11.dwords_high());
        let offset = Quadword(0).with_low(command.cdw12.get()).with_high(command.cdw13.get());
        Self {
            log_page: LogPageId(dword10.log_page()),
            namespace_id: command.namespace_id.get(),
            specific_parameter: dword10.specific_parameter(),
            retain_event: dword10.retain_event(),
            dwords_0s_based: dwords.0,
            specific_id: dword11.specific_id(),
            offset: offset.0,
            offset_is_index: dword14.offset_is_index(),
            command_set: CommandSetId(dword14.command_set()),
            uuid_index: dword14.uuid_index(),
        }
    }

    /// A Get Log Page command without command identifier and data pointer.
    #[must_use]
    pub fn to_command(self) -> Command {
        let dwords = NumberOfDwords(self.dwords_0s_based);
        let offset = Quadword(self.offset);
        let dword10 = GetLogPageDword10(0)
            .with_log_page(self.log_page.0)
            .with_specific_parameter(self.specific_parameter)
            .with_retain_event(self.retain_event)
            .with_dwords_low(dwords.low());
        let dword11 =
            GetLogPageDword11(0).with_dwords_high(dwords.high()).with_specific_id(self.specific_id);
        let dword14 = GetLogPageDword14(0)
            .with_uuid_index(self.uuid_index)
            .with_offset_is_index(self.offset_is_index)
            .with_command_set(self.command_set.0);
        Command::new(AdminOpcode::GET_LOG_PAGE)
            .with_namespace_id(self.namespace_id)
            .with_cdw10(dword10.0)
            .with_cdw11(dword11.0)
            .with_cdw12(offset.low())
            .with_cdw13(offset.high())
            .with_cdw14(dword14.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;
    use crate::wire::test_support::hex;

    #[test]
    fn fields_do_not_overlap() {
        GetLogPageDword10::check_bit_fields();
        GetLogPageDword11::check_bit_fields();
        GetLogPageDword14::check_bit_fields();
        NumberOfDwords::check_bit_fields();
    }

    /// `struct nvme_get_log_page_command` of Linux: lid 40, lsp 41, numdl 42, numdu 44, lpol 48,
    /// lpou 52, csi 59.
    #[test]
    fn get_log_page() {
        let get = GetLogPage {
            namespace_id: 0xffff_ffff,
            specific_parameter: 0x7f,
            retain_event: false,
            dwords_0s_based: 0x0102_0304,
            specific_id: 0x0506,
            offset: 0x0708_090a_0b0c_0d0c,
            command_set: CommandSetId::ZONED_NAMESPACE,
            ..GetLogPage::new(LogPageId::DISCOVERY, 0, 4)
        };
        let command = get.to_command();
        assert_eq!(command.bytes()[..8], hex("02 40 0000 ffffffff"));
        assert_eq!(
            command.bytes()[40..],
            hex("707f0403 02010605 0c0d0c0b 0a090807 00000002 00000000")
        );
        assert_eq!(GetLogPage::from_command(&command), get);
        let retained = GetLogPage { retain_event: true, specific_parameter: 0, ..get };
        assert_eq!(retained.to_command().bytes()[41], 0x80);
        assert_eq!(GetLogPage::from_command(&retained.to_command()), retained);
        let indexed = GetLogPage { offset_is_index: true, uuid_index: 0x7f, ..get };
        assert_eq!(GetLogPage::from_command(&indexed.to_command()), indexed);
    }

    #[test]
    fn lengths() {
        assert_eq!(GetLogPage::new(LogPageId::HEALTH, 0, 512).dwords_0s_based, 127);
        assert_eq!(GetLogPage::new(LogPageId::HEALTH, 0, 512).length(), 512);
        assert_eq!(GetLogPage::new(LogPageId::HEALTH, 7, 0).length(), 4);
        assert_eq!(GetLogPage::new(LogPageId::HEALTH, 7, 5).length(), 8);
        assert_eq!(GetLogPage::new(LogPageId::HEALTH, 7, 5).offset, 4);
        let longest = GetLogPage { dwords_0s_based: u32::MAX, ..GetLogPage::default() };
        assert_eq!(longest.length(), 1 << 34);
    }
}
