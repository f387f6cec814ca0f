//! The Identify command.

use crate::command::Command;
use crate::opcode::AdminOpcode;

code_space! {
    /// Controller or Namespace Structure (CNS): what is asked for.
    pub struct Cns(pub u8);
    NAMESPACE = 0x00, "Identify Namespace data structure";
    CONTROLLER = 0x01, "Identify Controller data structure";
    ACTIVE_NAMESPACE_LIST = 0x02, "Active Namespace ID list";
    NAMESPACE_DESCRIPTOR_LIST = 0x03, "Namespace Identification Descriptor list";
    NVM_SET_LIST = 0x04, "NVM Set List";
    COMMAND_SET_NAMESPACE = 0x05,
        "I/O Command Set specific Identify Namespace data structure";
    COMMAND_SET_CONTROLLER = 0x06,
        "I/O Command Set specific Identify Controller data structure";
    COMMAND_SET_ACTIVE_NAMESPACE_LIST = 0x07,
        "I/O Command Set specific Active Namespace ID list";
    INDEPENDENT_NAMESPACE = 0x08,
        "I/O Command Set Independent Identify Namespace data structure";
    NAMESPACE_USER_DATA_FORMAT = 0x09,
        "Identify Namespace data structure by User Data Format";
    COMMAND_SET_NAMESPACE_USER_DATA_FORMAT = 0x0a,
        "I/O Command Set specific Identify Namespace data structure by User Data Format";
    ALLOCATED_NAMESPACE_LIST = 0x10, "Allocated Namespace ID list";
    ALLOCATED_NAMESPACE = 0x11, "Identify Namespace data structure of an allocated namespace";
    NAMESPACE_CONTROLLER_LIST = 0x12, "Controller list of a namespace";
    CONTROLLER_LIST = 0x13, "Controller list of the NVM subsystem";
    PRIMARY_CONTROLLER_CAPABILITIES = 0x14, "Primary Controller Capabilities data structure";
    SECONDARY_CONTROLLER_LIST = 0x15, "Secondary Controller list";
    NAMESPACE_GRANULARITY_LIST = 0x16, "Namespace Granularity List";
    UUID_LIST = 0x17, "UUID List";
    DOMAIN_LIST = 0x18, "Domain List";
    ENDURANCE_GROUP_LIST = 0x19, "Endurance Group List";
    COMMAND_SET_ALLOCATED_NAMESPACE_LIST = 0x1a,
        "I/O Command Set specific Allocated Namespace ID list";
    COMMAND_SET_ALLOCATED_NAMESPACE = 0x1b,
        "I/O Command Set specific Identify Namespace data structure of an allocated namespace";
    COMMAND_SET_DATA = 0x1c, "Identify I/O Command Set data structure";
    UNDERLYING_NAMESPACE_LIST = 0x1d, "Underlying Namespace List";
    PORTS_LIST = 0x1e, "Ports List";
    INDEPENDENT_ALLOCATED_NAMESPACE = 0x1f,
        "I/O Command Set Independent Identify Namespace data structure of an allocated namespace";
    SUPPORTED_CONTROLLER_STATE_FORMATS = 0x20, "Supported Controller State Formats";
}

code_space! {
    /// Command Set Identifier (CSI).
    pub struct CommandSetId(pub u8);
    NVM = 0x00, "NVM Command Set";
    KEY_VALUE = 0x01, "Key Value Command Set";
    ZONED_NAMESPACE = 0x02, "Zoned Namespace Command Set";
    SUBSYSTEM_LOCAL_MEMORY = 0x03, "Subsystem Local Memory Command Set";
    COMPUTATIONAL_PROGRAMS = 0x04, "Computational Programs Command Set";
}

bit_struct! {
    /// Command Dword 10 of Identify.
    pub struct IdentifyDword10(pub u32) {
        /// Controller or Namespace Structure (CNS).
        [7:0] cns, with_cns -> u8;
        /// Controller Identifier (CNTID).
        [31:16] controller_id, with_controller_id -> u16;
    }
}

bit_struct! {
    /// Command Dword 11 of Identify.
    pub struct IdentifyDword11(pub u32) {
        /// CNS Specific Identifier.
        [15:0] specific_id, with_specific_id -> u16;
        /// Command Set Identifier (CSI).
        [31:24] command_set, with_command_set -> u8;
    }
}

bit_struct! {
    /// Command Dword 14 of Identify.
    pub struct IdentifyDword14(pub u32) {
        /// UUID Index.
        [6:0] uuid_index, with_uuid_index -> u8;
    }
}

/// The dwords of an Identify command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Identify {
    /// Controller or Namespace Structure (CNS).
    pub cns: Cns,
    /// Namespace Identifier (NSID); in lists, those above it are asked for.
    pub namespace_id: u32,
    /// Controller Identifier (CNTID); in lists, those from it on are asked for.
    pub controller_id: u16,
    /// CNS Specific Identifier, such as an NVM Set.
    pub specific_id: u16,
    /// Command Set Identifier (CSI).
    pub command_set: CommandSetId,
    /// UUID Index.
    pub uuid_index: u8,
}

impl Identify {
    /// Asks for this structure of this namespace (0 where the structure has none).
    #[must_use]
    pub const fn new(cns: Cns, namespace_id: u32) -> Self {
        Self {
            cns,
            namespace_id,
            controller_id: 0,
            specific_id: 0,
            command_set: CommandSetId::NVM,
            uuid_index: 0,
        }
    }

    /// Reads the dwords of an Identify command.
    #[must_use]
    pub const fn from_command(command: &Command) -> Self {
        let dword10 = IdentifyDword10(command.cdw10.get());
        let dword11 = IdentifyDword11(command.cdw11.get());
        Self {
            cns: Cns(dword10.cns()),
            namespace_id: command.namespace_id.get(),
            controller_id: dword10.controller_id(),
            specific_id: dword11.specific_id(),
            command_set: CommandSetId(dword11.command_set()),
            uuid_index: IdentifyDword14(command.cdw14.get()).uuid_index(),
        }
    }

    /// An Identify command without command identifier and data pointer.
    #[must_use]
    pub fn to_command(self) -> Command {
        let dword10 =
            IdentifyDword10(0).with_cns(self.cns.0).with_controller_id(self.controller_id);
        let dword11 = IdentifyDword11(0)
            .with_specific_id(self.specific_id)
            .with_command_set(self.command_set.0);
        Command::new(AdminOpcode::IDENTIFY)
            .with_namespace_id(self.namespace_id)
            .with_cdw10(dword10.0)
            .with_cdw11(dword11.0)
            .with_cdw14(IdentifyDword14(0).with_uuid_index(self.uuid_index).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;
    use crate::wire::test_support::hex;

    /// `struct nvme_identify` of Linux: cns at 40, ctrlid at 42, csi at 47.
    #[test]
    fn identify() {
        IdentifyDword10::check_bit_fields();
        IdentifyDword11::check_bit_fields();
        IdentifyDword14::check_bit_fields();
        let identify = Identify {
            controller_id: 0x0403,
            specific_id: 0x0605,
            command_set: CommandSetId::ZONED_NAMESPACE,
            uuid_index: 0x7f,
            ..Identify::new(Cns::COMMAND_SET_NAMESPACE, 0x0807_0605)
        };
        let command = identify.to_command();
        assert_eq!(command.bytes()[..8], hex("06 40 0000 05060708"));
        assert_eq!(
            command.bytes()[40..],
            hex("05000304 05060002 0000000000000000 7f000000 00000000")
        );
        assert_eq!(Identify::from_command(&command), identify);
    }
}
