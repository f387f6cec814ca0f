//! Status of a completed command.

use core::fmt;

code_space! {
    /// Status code type and status code together (SCT in bits 10:8, SC in bits 7:0): what
    /// happened, without how to go on.
    ///
    /// A few command specific values mean one thing for I/O commands and another for Connect and
    /// Disconnect; their words name both.
    pub struct StatusCode(pub u16);
    SUCCESS = 0x000, "Successful Completion";
    INVALID_OPCODE = 0x001, "Invalid Command Opcode";
    INVALID_FIELD = 0x002, "Invalid Field in Command";
    COMMAND_ID_CONFLICT = 0x003, "Command ID Conflict";
    DATA_TRANSFER_ERROR = 0x004, "Data Transfer Error";
    ABORTED_POWER_LOSS = 0x005, "Commands Aborted due to Power Loss Notification";
    INTERNAL_ERROR = 0x006, "Internal Error";
    ABORT_REQUESTED = 0x007, "Command Abort Requested";
    ABORTED_QUEUE_DELETED = 0x008, "Command Aborted due to SQ Deletion";
    ABORTED_FAILED_FUSED = 0x009, "Command Aborted due to Failed Fused Command";
    ABORTED_MISSING_FUSED = 0x00a, "Command Aborted due to Missing Fused Command";
    INVALID_NAMESPACE = 0x00b, "Invalid Namespace or Format";
    COMMAND_SEQUENCE_ERROR = 0x00c, "Command Sequence Error";
    INVALID_SGL_SEGMENT_DESCRIPTOR = 0x00d, "Invalid SGL Segment Descriptor";
    INVALID_SGL_DESCRIPTOR_COUNT = 0x00e, "Invalid Number of SGL Descriptors";
    DATA_SGL_LENGTH_INVALID = 0x00f, "Data SGL Length Invalid";
    METADATA_SGL_LENGTH_INVALID = 0x010, "Metadata SGL Length Invalid";
    SGL_DESCRIPTOR_TYPE_INVALID = 0x011, "SGL Descriptor Type Invalid";
    INVALID_CONTROLLER_MEMORY_BUFFER_USE = 0x012, "Invalid Use of Controller Memory Buffer";
    PRP_OFFSET_INVALID = 0x013, "PRP Offset Invalid";
    ATOMIC_WRITE_UNIT_EXCEEDED = 0x014, "Atomic Write Unit Exceeded";
    OPERATION_DENIED = 0x015, "Operation Denied";
    SGL_OFFSET_INVALID = 0x016, "SGL Offset Invalid";
    HOST_ID_INCONSISTENT_FORMAT = 0x018, "Host Identifier Inconsistent Format";
    KEEP_ALIVE_TIMER_EXPIRED = 0x019, "Keep Alive Timer Expired";
    KEEP_ALIVE_TIMEOUT_INVALID = 0x01a, "Keep Alive Timeout Invalid";
    ABORTED_PREEMPT_AND_ABORT = 0x01b, "Command Aborted due to Preempt and Abort";
    SANITIZE_FAILED = 0x01c, "Sanitize Failed";
    SANITIZE_IN_PROGRESS = 0x01d, "Sanitize In Progress";
    SGL_DATA_BLOCK_GRANULARITY_INVALID = 0x01e, "SGL Data Block Granularity Invalid";
    NOT_SUPPORTED_IN_CONTROLLER_MEMORY_BUFFER = 0x01f, "Command Not Supported for Queue in CMB";
    NAMESPACE_WRITE_PROTECTED = 0x020, "Namespace is Write Protected";
    COMMAND_INTERRUPTED = 0x021, "Command Interrupted";
    TRANSIENT_TRANSPORT_ERROR = 0x022, "Transient Transport Error";
    PROHIBITED_BY_LOCKDOWN = 0x023, "Command Prohibited by Command and Feature Lockdown";
    ADMIN_COMMAND_MEDIA_NOT_READY = 0x024, "Admin Command Media Not Ready";
    INVALID_KEY_TAG = 0x025, "Invalid Key Tag";
    HOST_DISPERSED_NAMESPACE_NOT_ENABLED = 0x026, "Host Dispersed Namespace Support Not Enabled";
    HOST_ID_NOT_INITIALIZED = 0x027, "Host Identifier Not Initialized";
    INCORRECT_KEY = 0x028, "Incorrect Key";
    FLEXIBLE_DATA_PLACEMENT_DISABLED = 0x029, "FDP Disabled";
    INVALID_PLACEMENT_HANDLE_LIST = 0x02a, "Invalid Placement Handle List";
    LBA_OUT_OF_RANGE = 0x080, "LBA Out of Range";
    CAPACITY_EXCEEDED = 0x081, "Capacity Exceeded";
    NAMESPACE_NOT_READY = 0x082, "Namespace Not Ready";
    RESERVATION_CONFLICT = 0x083, "Reservation Conflict";
    FORMAT_IN_PROGRESS = 0x084, "Format In Progress";
    INVALID_VALUE_SIZE = 0x085, "Invalid Value Size";
    INVALID_KEY_SIZE = 0x086, "Invalid Key Size";
    KEY_DOES_NOT_EXIST = 0x087, "KV Key Does Not Exist";
    UNRECOVERED_ERROR = 0x088, "Unrecovered Error";
    KEY_EXISTS = 0x089, "Key Exists";
    COMPLETION_QUEUE_INVALID = 0x100, "Completion Queue Invalid";
    INVALID_QUEUE_ID = 0x101, "Invalid Queue Identifier";
    INVALID_QUEUE_SIZE = 0x102, "Invalid Queue Size";
    ABORT_COMMAND_LIMIT_EXCEEDED = 0x103, "Abort Command Limit Exceeded";
    ASYNCHRONOUS_EVENT_LIMIT_EXCEEDED = 0x105, "Asynchronous Event Request Limit Exceeded";
    INVALID_FIRMWARE_SLOT = 0x106, "Invalid Firmware Slot";
    INVALID_FIRMWARE_IMAGE = 0x107, "Invalid Firmware Image";
    INVALID_INTERRUPT_VECTOR = 0x108, "Invalid Interrupt Vector";
    INVALID_LOG_PAGE = 0x109, "Invalid Log Page";
    INVALID_FORMAT = 0x10a, "Invalid Format";
    FIRMWARE_NEEDS_CONVENTIONAL_RESET = 0x10b, "Firmware Activation Requires Conventional Reset";
    INVALID_QUEUE_DELETION = 0x10c, "Invalid Queue Deletion";
    FEATURE_NOT_SAVEABLE = 0x10d, "Feature Identifier Not Saveable";
    FEATURE_NOT_CHANGEABLE = 0x10e, "Feature Not Changeable";
    FEATURE_NOT_NAMESPACE_SPECIFIC = 0x10f, "Feature Not Namespace Specific";
    FIRMWARE_NEEDS_SUBSYSTEM_RESET = 0x110, "Firmware Activation Requires NVM Subsystem Reset";
    FIRMWARE_NEEDS_CONTROLLER_RESET = 0x111, "Firmware Activation Requires Controller Level Reset";
    FIRMWARE_NEEDS_MAXIMUM_TIME = 0x112, "Firmware Activation Requires Maximum Time Violation";
    FIRMWARE_ACTIVATION_PROHIBITED = 0x113, "Firmware Activation Prohibited";
    OVERLAPPING_RANGE = 0x114, "Overlapping Range";
    NAMESPACE_INSUFFICIENT_CAPACITY = 0x115, "Namespace Insufficient Capacity";
    NAMESPACE_ID_UNAVAILABLE = 0x116, "Namespace Identifier Unavailable";
    NAMESPACE_ALREADY_ATTACHED = 0x118, "Namespace Already Attached";
    NAMESPACE_IS_PRIVATE = 0x119, "Namespace Is Private";
    NAMESPACE_NOT_ATTACHED = 0x11a, "Namespace Not Attached";
    THIN_PROVISIONING_NOT_SUPPORTED = 0x11b, "Thin Provisioning Not Supported";
    CONTROLLER_LIST_INVALID = 0x11c, "Controller List Invalid";
    SELF_TEST_IN_PROGRESS = 0x11d, "Device Self-test In Progress";
    BOOT_PARTITION_WRITE_PROHIBITED = 0x11e, "Boot Partition Write Prohibited";
    INVALID_CONTROLLER_ID = 0x11f, "Invalid Controller Identifier";
    INVALID_SECONDARY_CONTROLLER_STATE = 0x120, "Invalid Secondary Controller State";
    INVALID_CONTROLLER_RESOURCE_COUNT = 0x121, "Invalid Number of Controller Resources";
    INVALID_RESOURCE_ID = 0x122, "Invalid Resource Identifier";
    SANITIZE_PROHIBITED_BY_PERSISTENT_MEMORY = 0x123,
        "Sanitize Prohibited While Persistent Memory Region is Enabled";
    ANA_GROUP_ID_INVALID = 0x124, "ANA Group Identifier Invalid";
    ANA_ATTACH_FAILED = 0x125, "ANA Attach Failed";
    INSUFFICIENT_CAPACITY = 0x126, "Insufficient Capacity";
    NAMESPACE_ATTACHMENT_LIMIT_EXCEEDED = 0x127, "Namespace Attachment Limit Exceeded";
    LOCKDOWN_NOT_SUPPORTED = 0x128, "Prohibition of Command Execution Not Supported";
    COMMAND_SET_NOT_SUPPORTED = 0x129, "I/O Command Set Not Supported";
    COMMAND_SET_NOT_ENABLED = 0x12a, "I/O Command Set Not Enabled";
    COMMAND_SET_COMBINATION_REJECTED = 0x12b, "I/O Command Set Combination Rejected";
    INVALID_COMMAND_SET = 0x12c, "Invalid I/O Command Set";
    ID_UNAVAILABLE = 0x12d, "Identifier Unavailable";
    INVALID_DISCOVERY_INFORMATION = 0x12f, "Invalid Discovery Information";
    ZONING_DATA_STRUCTURE_LOCKED = 0x130, "Zoning Data Structure Locked";
    ZONING_DATA_STRUCTURE_NOT_FOUND = 0x131, "Zoning Data Structure Not Found";
    INSUFFICIENT_DISCOVERY_RESOURCES = 0x132, "Insufficient Discovery Resources";
    REQUESTED_FUNCTION_DISABLED = 0x133, "Requested Function Disabled";
    ZONE_GROUP_ORIGINATOR_INVALID = 0x134, "ZoneGroup Originator Invalid";
    INVALID_CONTROLLER_DATA_QUEUE = 0x137, "Invalid Controller Data Queue";
    NOT_ENOUGH_RESOURCES = 0x138, "Not Enough Resources";
    CONTROLLER_SUSPENDED = 0x139, "Controller Suspended";
    CONTROLLER_NOT_SUSPENDED = 0x13a, "Controller Not Suspended";
    CONTROLLER_DATA_QUEUE_FULL = 0x13b, "Controller Data Queue Full";
    CONFLICTING_ATTRIBUTES = 0x180, "Conflicting Attributes (I/O) or Connect Incompatible Format";
    INVALID_PROTECTION_INFORMATION = 0x181,
        "Invalid Protection Information (I/O) or Connect Controller Busy";
    READ_ONLY_RANGE = 0x182,
        "Attempted Write to Read Only Range (I/O) or Connect Invalid Parameters";
    COMMAND_SIZE_LIMIT_EXCEEDED = 0x183,
        "Command Size Limit Exceeded (I/O) or Connect Restart Discovery";
    CONNECT_INVALID_HOST = 0x184, "Connect Invalid Host";
    INCOMPATIBLE_NAMESPACE_OR_FORMAT = 0x185,
        "Incompatible Namespace or Format (I/O) or Invalid Queue Type";
    FAST_COPY_NOT_POSSIBLE = 0x186, "Fast Copy Not Possible";
    OVERLAPPING_IO_RANGE = 0x187, "Overlapping I/O Range";
    INSUFFICIENT_RESOURCES = 0x189, "Insufficient Resources";
    DISCOVERY_RESTART = 0x190, "Discovery Restart";
    AUTHENTICATION_REQUIRED = 0x191, "Authentication Required";
    ZONE_INVALID_OPERATION_REQUEST = 0x1b6, "Invalid Zone Operation Request";
    ZONE_RANDOM_WRITE_AREA_UNAVAILABLE = 0x1b7, "ZRWA Resources Unavailable";
    ZONE_BOUNDARY_ERROR = 0x1b8, "Zone Boundary Error";
    ZONE_IS_FULL = 0x1b9, "Zone Is Full";
    ZONE_IS_READ_ONLY = 0x1ba, "Zone Is Read Only";
    ZONE_IS_OFFLINE = 0x1bb, "Zone Is Offline";
    ZONE_INVALID_WRITE = 0x1bc, "Zone Invalid Write";
    ZONE_TOO_MANY_ACTIVE = 0x1bd, "Too Many Active Zones";
    ZONE_TOO_MANY_OPEN = 0x1be, "Too Many Open Zones";
    ZONE_INVALID_STATE_TRANSITION = 0x1bf, "Invalid Zone State Transition";
    WRITE_FAULT = 0x280, "Write Fault";
    UNRECOVERED_READ_ERROR = 0x281, "Unrecovered Read Error";
    GUARD_CHECK_ERROR = 0x282, "End-to-end Guard Check Error";
    APPLICATION_TAG_CHECK_ERROR = 0x283, "End-to-end Application Tag Check Error";
    REFERENCE_TAG_CHECK_ERROR = 0x284, "End-to-end Reference Tag Check Error";
    COMPARE_FAILURE = 0x285, "Compare Failure";
    ACCESS_DENIED = 0x286, "Access Denied";
    UNWRITTEN_BLOCK = 0x287, "Deallocated or Unwritten Logical Block";
    STORAGE_TAG_CHECK_ERROR = 0x288, "End-to-end Storage Tag Check Error";
    INTERNAL_PATH_ERROR = 0x300, "Internal Path Error";
    ANA_PERSISTENT_LOSS = 0x301, "Asymmetric Access Persistent Loss";
    ANA_INACCESSIBLE = 0x302, "Asymmetric Access Inaccessible";
    ANA_TRANSITION = 0x303, "Asymmetric Access Transition";
    CONTROLLER_PATHING_ERROR = 0x360, "Controller Pathing Error";
    HOST_PATHING_ERROR = 0x370, "Host Pathing Error";
    ABORTED_BY_HOST = 0x371, "Command Aborted By Host";
}

code_space! {
    /// Status Code Type (SCT).
    pub struct StatusCodeType(pub u8);
    GENERIC = 0x0, "Generic Command Status";
    COMMAND_SPECIFIC = 0x1, "Command Specific Status";
    MEDIA_AND_DATA_INTEGRITY = 0x2, "Media and Data Integrity Errors";
    PATH_RELATED = 0x3, "Path Related Status";
    VENDOR_SPECIFIC = 0x7, "Vendor Specific";
}

/// The status of a completion: 15 bits, without the phase tag.
///
/// Two statuses with the same code but different retry hints are different values; compare
/// [`Status::code`] for the reason.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Status(pub u16);

bit_fields! {
    pub Status(u16) {
        /// Status Code (SC), within its type.
        [7:0] status_code, with_status_code -> u8;
        /// Status Code Type (SCT), as a number.
        [10:8] raw_status_code_type, with_raw_status_code_type -> u8;
        /// Command Retry Delay (CRD): 0 for none, else which of CRDT1 to CRDT3.
        [12:11] command_retry_delay, with_command_retry_delay -> u8;
        /// More (M): the Error Information log page has more.
        [13] more, with_more;
        /// Do Not Retry (DNR).
        [14] do_not_retry, with_do_not_retry;
    }
}

/// Each status code as a status without hints, so that `Status::INVALID_FIELD` can be written.
macro_rules! statuses {
    ($($constant:ident)*) => {
        impl Status {
            $(#[doc = concat!("[`StatusCode::", stringify!($constant), "`] without hints.")]
            pub const $constant: Self = Self::new(StatusCode::$constant);)*
        }
    };
}

statuses! {
    SUCCESS
    INVALID_OPCODE
    INVALID_FIELD
    COMMAND_ID_CONFLICT
    DATA_TRANSFER_ERROR
    ABORTED_POWER_LOSS
    INTERNAL_ERROR
    ABORT_REQUESTED
    ABORTED_QUEUE_DELETED
    ABORTED_FAILED_FUSED
    ABORTED_MISSING_FUSED
    INVALID_NAMESPACE
    COMMAND_SEQUENCE_ERROR
    INVALID_SGL_SEGMENT_DESCRIPTOR
    INVALID_SGL_DESCRIPTOR_COUNT
    DATA_SGL_LENGTH_INVALID
    METADATA_SGL_LENGTH_INVALID
    SGL_DESCRIPTOR_TYPE_INVALID
    INVALID_CONTROLLER_MEMORY_BUFFER_USE
    PRP_OFFSET_INVALID
    ATOMIC_WRITE_UNIT_EXCEEDED
    OPERATION_DENIED
    SGL_OFFSET_INVALID
    HOST_ID_INCONSISTENT_FORMAT
    KEEP_ALIVE_TIMER_EXPIRED
    KEEP_ALIVE_TIMEOUT_INVALID
    ABORTED_PREEMPT_AND_ABORT
    SANITIZE_FAILED
    SANITIZE_IN_PROGRESS
    SGL_DATA_BLOCK_GRANULARITY_INVALID
    NOT_SUPPORTED_IN_CONTROLLER_MEMORY_BUFFER
    NAMESPACE_WRITE_PROTECTED
    COMMAND_INTERRUPTED
    TRANSIENT_TRANSPORT_ERROR
    PROHIBITED_BY_LOCKDOWN
    ADMIN_COMMAND_MEDIA_NOT_READY
    INVALID_KEY_TAG
    HOST_DISPERSED_NAMESPACE_NOT_ENABLED
    HOST_ID_NOT_INITIALIZED
    INCORRECT_KEY
    FLEXIBLE_DATA_PLACEMENT_DISABLED
    INVALID_PLACEMENT_HANDLE_LIST
    LBA_OUT_OF_RANGE
    CAPACITY_EXCEEDED
    NAMESPACE_NOT_READY
    RESERVATION_CONFLICT
    FORMAT_IN_PROGRESS
    INVALID_VALUE_SIZE
    INVALID_KEY_SIZE
    KEY_DOES_NOT_EXIST
    UNRECOVERED_ERROR
    KEY_EXISTS
    COMPLETION_QUEUE_INVALID
    INVALID_QUEUE_ID
    INVALID_QUEUE_SIZE
    ABORT_COMMAND_LIMIT_EXCEEDED
    ASYNCHRONOUS_EVENT_LIMIT_EXCEEDED
    INVALID_FIRMWARE_SLOT
    INVALID_FIRMWARE_IMAGE
    INVALID_INTERRUPT_VECTOR
    INVALID_LOG_PAGE
    INVALID_FORMAT
    FIRMWARE_NEEDS_CONVENTIONAL_RESET
    INVALID_QUEUE_DELETION
    FEATURE_NOT_SAVEABLE
    FEATURE_NOT_CHANGEABLE
    FEATURE_NOT_NAMESPACE_SPECIFIC
    FIRMWARE_NEEDS_SUBSYSTEM_RESET
    FIRMWARE_NEEDS_CONTROLLER_RESET
    FIRMWARE_NEEDS_MAXIMUM_TIME
    FIRMWARE_ACTIVATION_PROHIBITED
    OVERLAPPING_RANGE
    NAMESPACE_INSUFFICIENT_CAPACITY
    NAMESPACE_ID_UNAVAILABLE
    NAMESPACE_ALREADY_ATTACHED
    NAMESPACE_IS_PRIVATE
    NAMESPACE_NOT_ATTACHED
    THIN_PROVISIONING_NOT_SUPPORTED
    CONTROLLER_LIST_INVALID
    SELF_TEST_IN_PROGRESS
    BOOT_PARTITION_WRITE_PROHIBITED
    INVALID_CONTROLLER_ID
    INVALID_SECONDARY_CONTROLLER_STATE
    INVALID_CONTROLLER_RESOURCE_COUNT
    INVALID_RESOURCE_ID
    SANITIZE_PROHIBITED_BY_PERSISTENT_MEMORY
    ANA_GROUP_ID_INVALID
    ANA_ATTACH_FAILED
    INSUFFICIENT_CAPACITY
    NAMESPACE_ATTACHMENT_LIMIT_EXCEEDED
    LOCKDOWN_NOT_SUPPORTED
    COMMAND_SET_NOT_SUPPORTED
    COMMAND_SET_NOT_ENABLED
    COMMAND_SET_COMBINATION_REJECTED
    INVALID_COMMAND_SET
    ID_UNAVAILABLE
    INVALID_DISCOVERY_INFORMATION
    ZONING_DATA_STRUCTURE_LOCKED
    ZONING_DATA_STRUCTURE_NOT_FOUND
    INSUFFICIENT_DISCOVERY_RESOURCES
    REQUESTED_FUNCTION_DISABLED
    ZONE_GROUP_ORIGINATOR_INVALID
    INVALID_CONTROLLER_DATA_QUEUE
    NOT_ENOUGH_RESOURCES
    CONTROLLER_SUSPENDED
    CONTROLLER_NOT_SUSPENDED
    CONTROLLER_DATA_QUEUE_FULL
    CONFLICTING_ATTRIBUTES
    INVALID_PROTECTION_INFORMATION
    READ_ONLY_RANGE
    COMMAND_SIZE_LIMIT_EXCEEDED
    CONNECT_INVALID_HOST
    INCOMPATIBLE_NAMESPACE_OR_FORMAT
    FAST_COPY_NOT_POSSIBLE
    OVERLAPPING_IO_RANGE
    INSUFFICIENT_RESOURCES
    DISCOVERY_RESTART
    AUTHENTICATION_REQUIRED
    ZONE_INVALID_OPERATION_REQUEST
    ZONE_RANDOM_WRITE_AREA_UNAVAILABLE
    ZONE_BOUNDARY_ERROR
    ZONE_IS_FULL
    ZONE_IS_READ_ONLY
    ZONE_IS_OFFLINE
    ZONE_INVALID_WRITE
    ZONE_TOO_MANY_ACTIVE
    ZONE_TOO_MANY_OPEN
    ZONE_INVALID_STATE_TRANSITION
    WRITE_FAULT
    UNRECOVERED_READ_ERROR
    GUARD_CHECK_ERROR
    APPLICATION_TAG_CHECK_ERROR
    REFERENCE_TAG_CHECK_ERROR
    COMPARE_FAILURE
    ACCESS_DENIED
    UNWRITTEN_BLOCK
    STORAGE_TAG_CHECK_ERROR
    INTERNAL_PATH_ERROR
    ANA_PERSISTENT_LOSS
    ANA_INACCESSIBLE
    ANA_TRANSITION
    CONTROLLER_PATHING_ERROR
    HOST_PATHING_ERROR
    ABORTED_BY_HOST
}

impl Status {
    /// Connect Incompatible Format: the same number as [`Status::CONFLICTING_ATTRIBUTES`].
    pub const CONNECT_INCOMPATIBLE_FORMAT: Self = Self::CONFLICTING_ATTRIBUTES;
    /// Connect Controller Busy: the same number as [`Status::INVALID_PROTECTION_INFORMATION`].
    pub const CONNECT_CONTROLLER_BUSY: Self = Self::INVALID_PROTECTION_INFORMATION;
    /// Connect Invalid Parameters: the same number as [`Status::READ_ONLY_RANGE`].
    pub const CONNECT_INVALID_PARAMETERS: Self = Self::READ_ONLY_RANGE;
    /// Connect Restart Discovery: the same number as [`Status::COMMAND_SIZE_LIMIT_EXCEEDED`].
    pub const CONNECT_RESTART_DISCOVERY: Self = Self::COMMAND_SIZE_LIMIT_EXCEEDED;
    /// Invalid Queue Type (Disconnect): the same number as
    /// [`Status::INCOMPATIBLE_NAMESPACE_OR_FORMAT`].
    pub const DISCONNECT_INVALID_QUEUE_TYPE: Self = Self::INCOMPATIBLE_NAMESPACE_OR_FORMAT;

    /// A status of this code without hints.
    #[must_use]
    pub const fn new(code: StatusCode) -> Self {
        Self(code.0)
    }

    /// What happened, without the hints on how to go on.
    #[must_use]
    pub const fn code(self) -> StatusCode {
        StatusCode(self.with_command_retry_delay(0).with_more(false).with_dnr_bit(false).0)
    }

    /// Status Code Type (SCT).
    #[must_use]
    pub const fn status_code_type(self) -> StatusCodeType {
        StatusCodeType(self.raw_status_code_type())
    }

    /// Returns the status with Do Not Retry set.
    #[must_use]
    pub const fn with_dnr(self) -> Self {
        self.with_dnr_bit(true)
    }

    /// Whether the command did what it was asked; hints do not matter.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.code().0 == StatusCode::SUCCESS.0
    }

    /// Whether the failure is one of the path, so that another path may do better.
    #[must_use]
    pub const fn is_path_related(self) -> bool {
        self.raw_status_code_type() == StatusCodeType::PATH_RELATED.0
    }

    /// Sets or clears DNR, and the bit above the status, which is none of it.
    const fn with_dnr_bit(self, value: bool) -> Self {
        Self(self.with_do_not_retry(value).0 & Self::MASK)
    }

    /// The 15 bits of a status.
    const MASK: u16 = 0x7fff;
}

impl From<StatusCode> for Status {
    fn from(code: StatusCode) -> Self {
        Self::new(code)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Status({:#06x}: {self})", self.0)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code().words() {
            Some(words) => formatter.write_str(words)?,
            None => {
                let code_type = self.status_code_type();
                write!(formatter, "{code_type} {:02X}h", self.status_code())?;
            }
        }
        match self.command_retry_delay() {
            0 => {}
            delay => write!(formatter, ", retry after delay {delay}")?,
        }
        if self.more() {
            formatter.write_str(", more in the error log")?;
        }
        if self.do_not_retry() {
            formatter.write_str(", do not retry")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn fields_do_not_overlap() {
        Status::check_bit_fields();
    }

    /// Values from Linux's `NVME_SC_*`, which count the type into the code as we do.
    #[test]
    fn known_numbers() {
        assert_eq!(Status::INVALID_FIELD.with_dnr().0, 0x4002);
        assert_eq!(Status::CONNECT_INVALID_PARAMETERS.0, 0x182);
        assert_eq!(Status::CONNECT_INVALID_HOST.0, 0x184);
        assert_eq!(Status::AUTHENTICATION_REQUIRED.0, 0x191);
        assert_eq!(Status::COMPARE_FAILURE.0, 0x285);
        assert_eq!(Status::ANA_TRANSITION.0, 0x303);
        assert_eq!(Status::HOST_PATHING_ERROR.0, 0x370);
        assert_eq!(Status::HOST_PATHING_ERROR.status_code_type(), StatusCodeType::PATH_RELATED);
        assert!(Status::HOST_PATHING_ERROR.is_path_related());
        assert!(!Status::COMPARE_FAILURE.is_path_related());
    }

    #[test]
    fn hints_do_not_change_the_code() {
        let status =
            Status::LBA_OUT_OF_RANGE.with_dnr().with_more(true).with_command_retry_delay(3);
        assert_eq!(status.0, 0x7880);
        assert_eq!(status.code(), StatusCode::LBA_OUT_OF_RANGE);
        assert!(Status::SUCCESS.with_more(true).is_success());
        assert!(!Status::INVALID_OPCODE.is_success());
        assert_eq!(Status(0xffff).code(), StatusCode(0x7ff));
    }

    #[test]
    fn words() {
        assert_eq!(
            format!("{}", Status::INVALID_OPCODE.with_dnr()),
            "Invalid Command Opcode, do not retry"
        );
        assert_eq!(
            format!("{}", Status(0x7ff).with_command_retry_delay(2)),
            "Vendor Specific FFh, retry after delay 2"
        );
        assert_eq!(format!("{:?}", Status::SUCCESS), "Status(0x0000: Successful Completion)");
    }
}
