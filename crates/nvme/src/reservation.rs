//! Reservations: the commands of registrants, and the report of who has what.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::wire::{Reserved, U16, U32, U64};

code_space! {
    /// Reservation Type (RTYPE): who may write, and who may read.
    pub struct ReservationType(pub u8);
    NONE = 0x0, "none";
    WRITE_EXCLUSIVE = 0x1, "Write Exclusive";
    EXCLUSIVE_ACCESS = 0x2, "Exclusive Access";
    WRITE_EXCLUSIVE_REGISTRANTS_ONLY = 0x3, "Write Exclusive - Registrants Only";
    EXCLUSIVE_ACCESS_REGISTRANTS_ONLY = 0x4, "Exclusive Access - Registrants Only";
    WRITE_EXCLUSIVE_ALL_REGISTRANTS = 0x5, "Write Exclusive - All Registrants";
    EXCLUSIVE_ACCESS_ALL_REGISTRANTS = 0x6, "Exclusive Access - All Registrants";
}

impl ReservationType {
    /// Whether it is one that can be held.
    #[must_use]
    pub const fn is_held(self) -> bool {
        matches!(self.0, 1..=6)
    }

    /// Whether every registrant holds it.
    #[must_use]
    pub const fn is_of_all_registrants(self) -> bool {
        matches!(
            self,
            Self::WRITE_EXCLUSIVE_ALL_REGISTRANTS | Self::EXCLUSIVE_ACCESS_ALL_REGISTRANTS
        )
    }

    /// Whether only its holder has what it reserves, and no other registrant.
    #[must_use]
    pub const fn is_of_holder(self) -> bool {
        matches!(self, Self::WRITE_EXCLUSIVE | Self::EXCLUSIVE_ACCESS)
    }

    /// Whether reading is reserved, too.
    #[must_use]
    pub const fn reserves_reading(self) -> bool {
        matches!(
            self,
            Self::EXCLUSIVE_ACCESS
                | Self::EXCLUSIVE_ACCESS_REGISTRANTS_ONLY
                | Self::EXCLUSIVE_ACCESS_ALL_REGISTRANTS
        )
    }
}

code_space! {
    /// Reservation Register Action (RREGA).
    pub struct RegisterAction(pub u8);
    REGISTER = 0x0, "Register Reservation Key";
    UNREGISTER = 0x1, "Unregister Reservation Key";
    REPLACE = 0x2, "Replace Reservation Key";
}

code_space! {
    /// Reservation Acquire Action (RACQA).
    pub struct AcquireAction(pub u8);
    ACQUIRE = 0x0, "Acquire";
    PREEMPT = 0x1, "Preempt";
    PREEMPT_AND_ABORT = 0x2, "Preempt and Abort";
}

code_space! {
    /// Reservation Release Action (RRELA).
    pub struct ReleaseAction(pub u8);
    RELEASE = 0x0, "Release";
    CLEAR = 0x1, "Clear";
}

code_space! {
    /// Change Persist Through Power Loss State (CPTPL).
    pub struct PersistenceChange(pub u8);
    NONE = 0b00, "No change to PTPL state";
    OFF = 0b10, "Set PTPL state to 0";
    ON = 0b11, "Set PTPL state to 1";
}

bit_struct! {
    /// Command Dword 10 of Reservation Register, Acquire and Release.
    pub struct ReservationControl(pub u32) {
        /// RREGA, RACQA or RRELA, as a number.
        [2:0] raw_action, with_raw_action -> u8;
        /// Ignore Existing Key (IEKEY).
        [3] ignore_existing_key, with_ignore_existing_key;
        /// Reservation Type (RTYPE), as a number; not of Register.
        [15:8] raw_reservation_type, with_raw_reservation_type -> u8;
        /// Change Persist Through Power Loss State (CPTPL), as a number; of Register alone.
        [31:30] raw_persistence, with_raw_persistence -> u8;
    }
}

impl ReservationControl {
    /// Reservation Type (RTYPE).
    #[must_use]
    pub const fn reservation_type(self) -> ReservationType {
        ReservationType(self.raw_reservation_type())
    }
}

/// Data of Reservation Register and Reservation Acquire.
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
pub struct ReservationKeys {
    /// Current Reservation Key (CRKEY).
    pub current: U64,
    /// New Reservation Key (NRKEY) of Register, Preempt Reservation Key (PRKEY) of Acquire.
    pub other: U64,
}

assert_layout!(ReservationKeys, size 16, current at 0, other at 8);

/// Bytes of the data of Reservation Release: Current Reservation Key (CRKEY).
pub const RELEASE_BYTES: u32 = 8;

/// What a Reservation Report begins with, in its short form.
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
pub struct ReservationStatus {
    /// Generation (GEN).
    pub generation: U32,
    /// Reservation Type (RTYPE).
    pub reservation_type: ReservationType,
    /// Number of Registrants (REGSTRNT).
    pub registrants: U16,
    /// Reserved.
    pub reserved7: Reserved<2>,
    /// Persist Through Power Loss State (PTPLS).
    pub persistence: u8,
    /// Reserved.
    pub reserved10: Reserved<14>,
}

assert_layout!(ReservationStatus, size 24, generation at 0, reservation_type at 4,
    registrants at 5, reserved7 at 7, persistence at 9, reserved10 at 10);

/// Bytes of the reserved area that follows it in the extended form.
pub const EXTENDED_STATUS_REST: usize = 40;

/// A registrant in the extended form of a Reservation Report.
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
pub struct Registrant {
    /// Controller ID (CNTLID); FFFFh where it is not one controller.
    pub controller_id: U16,
    /// Reservation Status (RCSTS): bit 0, the host holds the reservation.
    pub status: u8,
    /// Reserved.
    pub reserved3: Reserved<5>,
    /// Reservation Key (RKEY).
    pub key: U64,
    /// Host Identifier (HOSTID).
    pub host_id: [u8; 16],
    /// Reserved.
    pub reserved32: Reserved<32>,
}

assert_layout!(Registrant, size 64, controller_id at 0, status at 2, reserved3 at 3, key at 8,
    host_id at 16, reserved32 at 32);

/// Controller ID of a registrant that is not one controller.
pub const CONTROLLER_ID_DYNAMIC: u16 = 0xffff;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;
    use crate::wire::test_support::{check_truncations, hex_padded};

    #[test]
    fn fields_do_not_overlap() {
        ReservationControl::check_bit_fields();
    }

    #[test]
    fn a_report() {
        let vector = hex_padded("07000000 03 0200 0000 01", 24);
        check_truncations::<ReservationStatus>(&vector);
        let status = ReservationStatus {
            generation: U32::new(7),
            reservation_type: ReservationType::WRITE_EXCLUSIVE_REGISTRANTS_ONLY,
            registrants: U16::new(2),
            persistence: 1,
            ..ReservationStatus::default()
        };
        assert_eq!(status.bytes(), vector);
        let vector =
            hex_padded("ffff 01 0000000000 0102030405060708 101112131415161718191a1b1c1d1e1f", 64);
        check_truncations::<Registrant>(&vector);
        let host_id = std::array::from_fn(|at| 0x10 + u8::try_from(at).unwrap());
        let registrant = Registrant {
            controller_id: U16::new(CONTROLLER_ID_DYNAMIC),
            status: 1,
            key: U64::new(0x0807_0605_0403_0201),
            host_id,
            ..Registrant::default()
        };
        assert_eq!(registrant.bytes(), vector);
    }

    #[test]
    fn commands() {
        let control = ReservationControl(0xc000_0308);
        assert!(control.ignore_existing_key());
        assert_eq!(control.raw_action(), RegisterAction::REGISTER.0);
        assert_eq!(control.raw_persistence(), PersistenceChange::ON.0);
        let kind = control.reservation_type();
        assert_eq!(kind, ReservationType::WRITE_EXCLUSIVE_REGISTRANTS_ONLY);
        assert!(!kind.reserves_reading() && !kind.is_of_holder() && !kind.is_of_all_registrants());
        let keys = hex_padded("0100000000000000 0200000000000000", 16);
        check_truncations::<ReservationKeys>(&keys);
        let read = ReservationKeys::read(&keys).unwrap();
        assert_eq!((read.current.get(), read.other.get()), (1, 2));
    }

    #[test]
    fn types_are_what_their_names_say() {
        let all = (0..=7).map(ReservationType);
        assert_eq!(all.clone().filter(|kind| kind.is_held()).count(), 6);
        let reading: std::vec::Vec<u8> =
            all.filter(|kind| kind.reserves_reading()).map(|kind| kind.0).collect();
        assert_eq!(reading, [2, 4, 6]);
    }
}
