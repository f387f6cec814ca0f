//! Supported log pages, errors, firmware slots, command effects, reservation notifications.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::command::LogPageId;
use crate::completion::StatusField;
use crate::wire::{Reserved, Text, U16, U32, U64};

bit_struct! {
    /// LID Supported and Effects Data Structure.
    pub struct LogPageSupport(pub u32) {
        /// LID Supported (LSUPP).
        [0] supported, with_supported;
        /// Index Offset Supported (IOS).
        [1] index_offset, with_index_offset;
        /// LID Specific Parameter (LIDSP).
        [31:16] specific, with_specific -> u16;
    }
}

/// Supported Log Pages (00h, 1024 bytes).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct SupportedLogPages {
    /// LID Supported and Effects 0 to 255.
    pub pages: [U32; 256],
}

assert_layout!(SupportedLogPages, size 1024, pages at 0);

impl SupportedLogPages {
    /// These log pages and no other.
    #[must_use]
    pub fn new(supported: &[LogPageId]) -> Self {
        let mut pages = [U32::ZERO; 256];
        for log_page in supported {
            if let Some(page) = pages.get_mut(usize::from(log_page.0)) {
                *page = LogPageSupport(0).with_supported(true).into();
            }
        }
        Self { pages }
    }

    /// Sets the LID Specific Parameter of a log page.
    pub fn set_specific(&mut self, log_page: LogPageId, specific: u16) {
        let support = self.get(log_page).with_specific(specific);
        if let Some(page) = self.pages.get_mut(usize::from(log_page.0)) {
            *page = support.into();
        }
    }

    /// The attributes of the log page.
    #[must_use]
    pub fn get(&self, log_page: LogPageId) -> LogPageSupport {
        self.pages.get(usize::from(log_page.0)).copied().map(Into::into).unwrap_or_default()
    }
}

bit_struct! {
    /// Parameter Error Location of an error entry.
    pub struct ParameterLocation(pub u16) {
        /// Byte in the command.
        [7:0] byte, with_byte -> u8;
        /// Bit in that byte.
        [10:8] bit, with_bit -> u8;
    }
}

impl ParameterLocation {
    /// The error is not about a parameter.
    pub const NONE: Self = Self(0xffff);
}

/// Error Information Log Entry (01h, 64 bytes).
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
pub struct ErrorInformation {
    /// Error Count, from 1 on; 0 for an entry that is not there.
    pub error_count: U64,
    /// Submission Queue ID; FFFFh for an error that is not about a command.
    pub submission_queue_id: U16,
    /// Command ID; FFFFh for an error that is not about a command.
    pub command_id: U16,
    /// Status Info: the status field of the completion.
    pub status_field: StatusField,
    /// Parameter Error Location, see [`ParameterLocation`].
    pub parameter_location: U16,
    /// LBA of the first block with the error.
    pub lba: U64,
    /// Namespace; FFFFFFFFh for an error that is not about one.
    pub namespace_id: U32,
    /// Vendor Specific Information Available.
    pub vendor_information: u8,
    /// Transport Type (TRTYPE).
    pub transport_type: super::TransportType,
    /// Command Set Indicator (CSI).
    pub command_set: u8,
    /// Opcode (OPC) of the command.
    pub opcode: u8,
    /// Command Specific Information.
    pub command_specific: U64,
    /// Transport Type Specific Information.
    pub transport_specific: U16,
    /// Reserved.
    pub reserved: Reserved<21>,
    /// Log Page Version; 1 if the command set and opcode are given.
    pub log_page_version: u8,
}

assert_layout!(ErrorInformation, size 64, error_count at 0, submission_queue_id at 8,
    command_id at 10, status_field at 12, parameter_location at 14, lba at 16,
    namespace_id at 24, vendor_information at 28, transport_type at 29, command_set at 30,
    opcode at 31, command_specific at 32, transport_specific at 40, reserved at 42,
    log_page_version at 63);

/// Firmware Slot Information (03h, 512 bytes).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct FirmwareSlots {
    /// Active Firmware Info (AFI): bits 2:0 the active slot, bits 6:4 the one of after a reset.
    pub active: u8,
    /// Reserved.
    pub reserved1: Reserved<7>,
    /// Firmware Revision for Slot 1 to 7 (FRS1 to FRS7); zeros for an empty slot.
    pub revisions: [Text<8>; 7],
    /// Reserved.
    pub reserved64: Reserved<448>,
}

assert_layout!(FirmwareSlots, size 512, active at 0, reserved1 at 1, revisions at 8,
    reserved64 at 64);

impl FirmwareSlots {
    /// One slot, which is active.
    #[must_use]
    pub fn single(revision: Text<8>) -> Self {
        let empty = Text([0; 8]);
        Self {
            active: 1,
            reserved1: Reserved([0; 7]),
            revisions: [revision, empty, empty, empty, empty, empty, empty],
            reserved64: Reserved([0; 448]),
        }
    }
}

bit_struct! {
    /// Commands Supported and Effects Data Structure.
    pub struct CommandEffects(pub u32) {
        /// Command Supported (CSUPP).
        [0] supported, with_supported;
        /// Logical Block Content Change (LBCC).
        [1] content_change, with_content_change;
        /// Namespace Capability Change (NCC).
        [2] namespace_capability_change, with_namespace_capability_change;
        /// Namespace Inventory Change (NIC).
        [3] namespace_inventory_change, with_namespace_inventory_change;
        /// Controller Capability Change (CCC).
        [4] controller_capability_change, with_controller_capability_change;
        /// Command Submission and Execution Relaxations (CSER).
        [15:14] relaxations, with_relaxations -> u8;
        /// Command Submission and Execution (CSE).
        [18:16] submission_and_execution, with_submission_and_execution -> u8;
        /// UUID Selection Supported (USS).
        [19] uuid_selection, with_uuid_selection;
        /// Command Scope (CSP).
        [31:20] scope, with_scope -> u16;
    }
}

impl CommandEffects {
    /// The command is supported and has no further effect.
    pub const SUPPORTED: Self = Self(0).with_supported(true);
    /// The command is supported and changes what logical blocks contain.
    pub const WRITES: Self = Self::SUPPORTED.with_content_change(true);
}

/// Commands Supported and Effects (05h, 4096 bytes).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CommandsSupportedAndEffects {
    /// Admin Command Supported 0 to 255 (ACS).
    pub admin: [U32; 256],
    /// I/O Command Supported 0 to 255 (IOCS).
    pub io: [U32; 256],
    /// Reserved.
    pub reserved: Reserved<2048>,
}

assert_layout!(CommandsSupportedAndEffects, size 4096, admin at 0, io at 1024,
    reserved at 2048);

impl CommandsSupportedAndEffects {
    /// No command at all.
    #[must_use]
    pub const fn none() -> Self {
        Self { admin: [U32::ZERO; 256], io: [U32::ZERO; 256], reserved: Reserved([0; 2048]) }
    }

    /// Sets the effects of an admin command.
    pub fn set_admin(&mut self, opcode: u8, effects: CommandEffects) {
        if let Some(place) = self.admin.get_mut(usize::from(opcode)) {
            *place = effects.into();
        }
    }

    /// Sets the effects of an I/O command.
    pub fn set_io(&mut self, opcode: u8, effects: CommandEffects) {
        if let Some(place) = self.io.get_mut(usize::from(opcode)) {
            *place = effects.into();
        }
    }

    /// The effects of an I/O command.
    #[must_use]
    pub fn io_effects(&self, opcode: u8) -> CommandEffects {
        self.io.get(usize::from(opcode)).copied().map(Into::into).unwrap_or_default()
    }

    /// The effects of an admin command.
    #[must_use]
    pub fn admin_effects(&self, opcode: u8) -> CommandEffects {
        self.admin.get(usize::from(opcode)).copied().map(Into::into).unwrap_or_default()
    }
}

code_space! {
    /// Reservation Notification Log Page Type.
    pub struct ReservationNotificationType(pub u8);
    EMPTY = 0x0, "Empty Log Page";
    REGISTRATION_PREEMPTED = 0x1, "Registration Preempted";
    RESERVATION_RELEASED = 0x2, "Reservation Released";
    RESERVATION_PREEMPTED = 0x3, "Reservation Preempted";
}

/// Reservation Notification (80h, 64 bytes).
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
pub struct ReservationNotification {
    /// Log Page Count, from 1 on; 0 for an empty page.
    pub count: U64,
    /// Reservation Notification Log Page Type.
    pub notification_type: ReservationNotificationType,
    /// Number of Available Log Pages.
    pub available: u8,
    /// Reserved.
    pub reserved10: Reserved<2>,
    /// Namespace ID.
    pub namespace_id: U32,
    /// Reserved.
    pub reserved16: Reserved<48>,
}

assert_layout!(ReservationNotification, size 64, count at 0, notification_type at 8,
    available at 9, reserved10 at 10, namespace_id at 12, reserved16 at 16);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;
    use crate::log_page::TransportType;
    use crate::opcode::{AdminOpcode, NvmOpcode};
    use crate::status::Status;
    use crate::wire::test_support::{check_truncations, hex_padded};

    #[test]
    fn fields_do_not_overlap() {
        LogPageSupport::check_bit_fields();
        ParameterLocation::check_bit_fields();
        CommandEffects::check_bit_fields();
    }

    #[test]
    fn supported_log_pages() {
        let vector = hex_padded("00000000 01000000 01000000", 1024);
        check_truncations::<SupportedLogPages>(&vector);
        let pages = SupportedLogPages::new(&[LogPageId::HEALTH, LogPageId::ERROR_INFORMATION]);
        assert_eq!(pages.bytes(), vector);
        assert!(pages.get(LogPageId::HEALTH).supported());
        assert!(!pages.get(LogPageId(0xff)).supported());
    }

    /// `struct nvme_error_slot` of Linux: status at 12, parameter location at 14, lba at 16.
    #[test]
    fn error_information() {
        let vector = hex_padded(
            "0100000000000000 0200 3412 0480 2c00 0000000000000000 ffffffff 00 03 00 7f",
            64,
        );
        check_truncations::<ErrorInformation>(&vector);
        let entry = ErrorInformation {
            error_count: U64::new(1),
            submission_queue_id: U16::new(2),
            command_id: U16::new(0x1234),
            status_field: StatusField::new(Status::INVALID_FIELD.with_dnr()),
            parameter_location: ParameterLocation(0).with_byte(44).into(),
            namespace_id: U32::new(u32::MAX),
            transport_type: TransportType::TCP,
            opcode: AdminOpcode::FABRICS.0,
            ..ErrorInformation::default()
        };
        assert_eq!(entry.bytes(), vector);
    }

    #[test]
    fn firmware_slots() {
        let mut vector = hex_padded("01", 512);
        vector[8..16].copy_from_slice(b"0.1.0   ");
        check_truncations::<FirmwareSlots>(&vector);
        assert_eq!(FirmwareSlots::single(Text::new("0.1.0")).bytes(), vector);
    }

    /// `NVME_CMD_EFFECTS_CSUPP` and `NVME_CMD_EFFECTS_LBCC` of Linux, at Write and Keep Alive.
    #[test]
    fn command_effects() {
        let mut vector = std::vec![0; 4096];
        vector[0x18 * 4] = 1;
        vector[1024 + 4] = 3;
        check_truncations::<CommandsSupportedAndEffects>(&vector);
        let mut effects = CommandsSupportedAndEffects::none();
        effects.set_admin(AdminOpcode::KEEP_ALIVE.0, CommandEffects::SUPPORTED);
        effects.set_io(NvmOpcode::WRITE.0, CommandEffects::WRITES);
        assert_eq!(effects.bytes(), vector);
        assert!(effects.io_effects(1).content_change() && !effects.io_effects(2).supported());
        assert!(effects.admin_effects(0x18).supported() && !effects.admin_effects(255).supported());
    }

    /// `struct nvme_resv_notification_log` of libnvme.
    #[test]
    fn reservation_notification() {
        let vector = hex_padded("0500000000000000 03 02 0000 07000000", 64);
        check_truncations::<ReservationNotification>(&vector);
        let notification = ReservationNotification::view(&vector).unwrap();
        assert_eq!(
            notification.notification_type,
            ReservationNotificationType::RESERVATION_PREEMPTED
        );
        assert_eq!(notification.namespace_id.get(), 7);
    }
}
