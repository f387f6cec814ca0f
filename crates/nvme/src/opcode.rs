//! Opcodes: the first byte of a command, one code space per queue and command set.

use core::fmt;

code_space! {
    /// Opcodes of the admin command set.
    pub struct AdminOpcode(pub u8);
    DELETE_SUBMISSION_QUEUE = 0x00, "Delete I/O Submission Queue";
    CREATE_SUBMISSION_QUEUE = 0x01, "Create I/O Submission Queue";
    GET_LOG_PAGE = 0x02, "Get Log Page";
    DELETE_COMPLETION_QUEUE = 0x04, "Delete I/O Completion Queue";
    CREATE_COMPLETION_QUEUE = 0x05, "Create I/O Completion Queue";
    IDENTIFY = 0x06, "Identify";
    ABORT = 0x08, "Abort";
    SET_FEATURES = 0x09, "Set Features";
    GET_FEATURES = 0x0a, "Get Features";
    ASYNCHRONOUS_EVENT_REQUEST = 0x0c, "Asynchronous Event Request";
    NAMESPACE_MANAGEMENT = 0x0d, "Namespace Management";
    FIRMWARE_COMMIT = 0x10, "Firmware Commit";
    FIRMWARE_IMAGE_DOWNLOAD = 0x11, "Firmware Image Download";
    DEVICE_SELF_TEST = 0x14, "Device Self-test";
    NAMESPACE_ATTACHMENT = 0x15, "Namespace Attachment";
    KEEP_ALIVE = 0x18, "Keep Alive";
    DIRECTIVE_SEND = 0x19, "Directive Send";
    DIRECTIVE_RECEIVE = 0x1a, "Directive Receive";
    VIRTUALIZATION_MANAGEMENT = 0x1c, "Virtualization Management";
    NVME_MI_SEND = 0x1d, "NVMe-MI Send";
    NVME_MI_RECEIVE = 0x1e, "NVMe-MI Receive";
    CAPACITY_MANAGEMENT = 0x20, "Capacity Management";
    DISCOVERY_INFORMATION_MANAGEMENT = 0x21, "Discovery Information Management";
    FABRIC_ZONING_RECEIVE = 0x22, "Fabric Zoning Receive";
    LOCKDOWN = 0x24, "Lockdown";
    FABRIC_ZONING_LOOKUP = 0x25, "Fabric Zoning Lookup";
    CLEAR_EXPORTED_NVM_RESOURCE_CONFIGURATION = 0x28,
        "Clear Exported NVM Resource Configuration";
    FABRIC_ZONING_SEND = 0x29, "Fabric Zoning Send";
    CREATE_EXPORTED_NVM_SUBSYSTEM = 0x2a, "Create Exported NVM Subsystem";
    MANAGE_EXPORTED_NVM_SUBSYSTEM = 0x2d, "Manage Exported NVM Subsystem";
    MANAGE_EXPORTED_NAMESPACE = 0x31, "Manage Exported Namespace";
    MANAGE_EXPORTED_PORT = 0x35, "Manage Exported Port";
    SEND_DISCOVERY_LOG_PAGE = 0x39, "Send Discovery Log Page";
    TRACK_SEND = 0x3d, "Track Send";
    TRACK_RECEIVE = 0x3e, "Track Receive";
    MIGRATION_SEND = 0x41, "Migration Send";
    MIGRATION_RECEIVE = 0x42, "Migration Receive";
    CONTROLLER_DATA_QUEUE = 0x45, "Controller Data Queue";
    DOORBELL_BUFFER_CONFIG = 0x7c, "Doorbell Buffer Config";
    FABRICS = 0x7f, "Fabrics";
    FORMAT_NVM = 0x80, "Format NVM";
    SECURITY_SEND = 0x81, "Security Send";
    SECURITY_RECEIVE = 0x82, "Security Receive";
    SANITIZE = 0x84, "Sanitize";
    LOAD_PROGRAM = 0x85, "Load Program";
    GET_LBA_STATUS = 0x86, "Get LBA Status";
    PROGRAM_ACTIVATION_MANAGEMENT = 0x88, "Program Activation Management";
    MEMORY_RANGE_SET_MANAGEMENT = 0x89, "Memory Range Set Management";
}

code_space! {
    /// Opcodes of the NVM command set, with those that all I/O command sets share.
    pub struct NvmOpcode(pub u8);
    FLUSH = 0x00, "Flush";
    WRITE = 0x01, "Write";
    READ = 0x02, "Read";
    WRITE_UNCORRECTABLE = 0x04, "Write Uncorrectable";
    COMPARE = 0x05, "Compare";
    WRITE_ZEROES = 0x08, "Write Zeroes";
    DATASET_MANAGEMENT = 0x09, "Dataset Management";
    VERIFY = 0x0c, "Verify";
    RESERVATION_REGISTER = 0x0d, "Reservation Register";
    RESERVATION_REPORT = 0x0e, "Reservation Report";
    RESERVATION_ACQUIRE = 0x11, "Reservation Acquire";
    IO_MANAGEMENT_RECEIVE = 0x12, "I/O Management Receive";
    RESERVATION_RELEASE = 0x15, "Reservation Release";
    CANCEL = 0x18, "Cancel";
    COPY = 0x19, "Copy";
    IO_MANAGEMENT_SEND = 0x1d, "I/O Management Send";
    FABRICS = 0x7f, "Fabrics";
}

code_space! {
    /// Fabrics Command Type (FCTYPE): which Fabrics command opcode 7Fh is.
    pub struct FabricsType(pub u8);
    PROPERTY_SET = 0x00, "Property Set";
    CONNECT = 0x01, "Connect";
    PROPERTY_GET = 0x04, "Property Get";
    AUTHENTICATION_SEND = 0x05, "Authentication Send";
    AUTHENTICATION_RECEIVE = 0x06, "Authentication Receive";
    DISCONNECT = 0x08, "Disconnect";
}

/// Data Transfer: the low two bits of every opcode (and of FCTYPE) are the direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DataTransfer {
    /// 00b: the command moves no data.
    None,
    /// 01b: data goes from the host to the controller.
    HostToController,
    /// 10b: data goes from the controller to the host.
    ControllerToHost,
    /// 11b: data goes both ways.
    Bidirectional,
}

impl DataTransfer {
    /// The direction that an opcode or a Fabrics command type announces.
    #[must_use]
    pub const fn of(opcode: u8) -> Self {
        match opcode & 0b11 {
            0b00 => Self::None,
            0b01 => Self::HostToController,
            0b10 => Self::ControllerToHost,
            _ => Self::Bidirectional,
        }
    }

    /// Whether the host sends data with this command.
    #[must_use]
    pub const fn to_controller(self) -> bool {
        matches!(self, Self::HostToController | Self::Bidirectional)
    }

    /// Whether the controller sends data for this command.
    #[must_use]
    pub const fn to_host(self) -> bool {
        matches!(self, Self::ControllerToHost | Self::Bidirectional)
    }
}

impl fmt::Display for DataTransfer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::None => "no data transfer",
            Self::HostToController => "host to controller",
            Self::ControllerToHost => "controller to host",
            Self::Bidirectional => "bidirectional",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn the_low_bits_give_the_direction() {
        assert_eq!(DataTransfer::of(NvmOpcode::READ.0), DataTransfer::ControllerToHost);
        assert_eq!(DataTransfer::of(NvmOpcode::WRITE.0), DataTransfer::HostToController);
        assert_eq!(DataTransfer::of(NvmOpcode::FLUSH.0), DataTransfer::None);
        assert_eq!(DataTransfer::of(NvmOpcode::COMPARE.0), DataTransfer::HostToController);
        assert_eq!(DataTransfer::of(AdminOpcode::IDENTIFY.0), DataTransfer::ControllerToHost);
        assert_eq!(DataTransfer::of(FabricsType::CONNECT.0), DataTransfer::HostToController);
        assert_eq!(DataTransfer::of(FabricsType::PROPERTY_GET.0), DataTransfer::None);
        assert!(DataTransfer::of(0xff).to_host() && DataTransfer::of(0xff).to_controller());
        assert!(!DataTransfer::of(0xfc).to_host() && !DataTransfer::of(0xfc).to_controller());
    }

    #[test]
    fn unknown_opcodes_print_as_numbers() {
        assert_eq!(format!("{:?}", AdminOpcode(0xc1)), "AdminOpcode(0xc1)");
        assert_eq!(format!("{}", NvmOpcode::DATASET_MANAGEMENT), "Dataset Management");
        assert_eq!(format!("{}", FabricsType(0x44)), "unknown (44h)");
    }
}
