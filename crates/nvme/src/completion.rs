//! Completion queue entries.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::status::Status;
use crate::wire::{U16, U64};

/// Completion Queue Entry (16 bytes), in the shape that Fabrics gives it.
#[derive(
    Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Completion {
    /// Dwords 0 and 1: what the command returns.
    pub result: U64,
    /// SQ Head Pointer (SQHD).
    pub submission_queue_head: U16,
    /// SQ Identifier (SQID); reserved over Fabrics.
    pub submission_queue_id: U16,
    /// Command Identifier (CID).
    pub command_id: U16,
    /// Phase Tag (reserved over Fabrics) and status.
    pub status_field: StatusField,
}

assert_layout!(Completion, size 16, result at 0, submission_queue_head at 8,
    submission_queue_id at 10, command_id at 12, status_field at 14);

/// The last two bytes of a completion: the status lies above the phase tag.
#[derive(
    Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(transparent)]
pub struct StatusField(pub U16);

impl StatusField {
    /// A status with the phase tag clear.
    #[must_use]
    pub const fn new(status: Status) -> Self {
        Self(U16::new(StatusBits(0).with_status(status.0).0))
    }

    /// The status.
    #[must_use]
    pub const fn status(self) -> Status {
        Status(StatusBits(self.0.get()).status())
    }

    /// Phase Tag (P); meaningless over Fabrics.
    #[must_use]
    pub const fn phase(self) -> bool {
        StatusBits(self.0.get()).phase()
    }

    /// Returns the field with the phase tag changed.
    #[must_use]
    pub const fn with_phase(self, phase: bool) -> Self {
        Self(U16::new(StatusBits(self.0.get()).with_phase(phase).0))
    }
}

impl fmt::Debug for StatusField {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.status(), formatter)
    }
}

#[derive(Clone, Copy)]
struct StatusBits(u16);

bit_fields! {
    StatusBits(u16) {
        /// Phase Tag.
        [0] phase, with_phase;
        /// Status.
        [15:1] status, with_status -> u16;
    }
}

impl Completion {
    /// The completion of a command with this status, all else zero.
    #[must_use]
    pub const fn new(command_id: u16, status: Status) -> Self {
        Self {
            result: U64::ZERO,
            submission_queue_head: U16::ZERO,
            submission_queue_id: U16::ZERO,
            command_id: U16::new(command_id),
            status_field: StatusField::new(status),
        }
    }

    /// The status.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.status_field.status()
    }

    /// Dword 0 of the result.
    #[must_use]
    pub const fn dword0(&self) -> u32 {
        ResultBits(self.result.get()).dword0()
    }

    /// Dword 1 of the result.
    #[must_use]
    pub const fn dword1(&self) -> u32 {
        ResultBits(self.result.get()).dword1()
    }

    /// Returns the completion with both result dwords changed.
    #[must_use]
    pub const fn with_result(mut self, result: u64) -> Self {
        self.result = U64::new(result);
        self
    }

    /// Returns the completion with dword 0 of the result changed.
    #[must_use]
    pub const fn with_dword0(mut self, dword0: u32) -> Self {
        self.result = U64::new(ResultBits(self.result.get()).with_dword0(dword0).0);
        self
    }

    /// Returns the completion with dword 1 of the result changed.
    #[must_use]
    pub const fn with_dword1(mut self, dword1: u32) -> Self {
        self.result = U64::new(ResultBits(self.result.get()).with_dword1(dword1).0);
        self
    }

    /// Returns the completion with its status changed.
    #[must_use]
    pub const fn with_status(mut self, status: Status) -> Self {
        self.status_field = StatusField::new(status);
        self
    }

    /// Returns the completion with the SQ Head Pointer changed.
    #[must_use]
    pub const fn with_submission_queue_head(mut self, head: u16) -> Self {
        self.submission_queue_head = U16::new(head);
        self
    }

    /// Returns the completion with the SQ Identifier changed.
    #[must_use]
    pub const fn with_submission_queue_id(mut self, queue_id: u16) -> Self {
        self.submission_queue_id = U16::new(queue_id);
        self
    }
}

#[derive(Clone, Copy)]
struct ResultBits(u64);

bit_fields! {
    ResultBits(u64) {
        /// Dword 0.
        [31:0] dword0, with_dword0 -> u32;
        /// Dword 1.
        [63:32] dword1, with_dword1 -> u32;
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Completion")
            .field("command_id", &self.command_id.get())
            .field("status", &self.status())
            .field("result", &format_args!("{:#x}", self.result.get()))
            .field("submission_queue_head", &self.submission_queue_head.get())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;
    use crate::wire::test_support::{check_truncations, hex};

    /// Invalid Field in Command with Do Not Retry, as the Linux target answers: status
    /// 4002h, shifted over the phase tag.
    #[test]
    fn failed_command() {
        let vector = hex("0000000000000000 0500 0000 3412 0480");
        check_truncations::<Completion>(&vector);
        let completion =
            Completion::new(0x1234, Status::INVALID_FIELD.with_dnr()).with_submission_queue_head(5);
        assert_eq!(completion.bytes(), vector);
        assert_eq!(completion.status().0, 0x4002);
    }

    #[test]
    fn result_dwords_do_not_overlap() {
        StatusBits::check_bit_fields();
        ResultBits::check_bit_fields();
        let completion = Completion::new(0, Status::SUCCESS)
            .with_result(u64::MAX)
            .with_dword0(0x0403_0201)
            .with_dword1(0x0807_0605);
        assert_eq!(completion.bytes()[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!((completion.dword0(), completion.dword1()), (0x0403_0201, 0x0807_0605));
    }

    #[test]
    fn the_phase_tag_is_no_part_of_the_status() {
        let field = StatusField::new(Status(0x7fff)).with_phase(true);
        assert_eq!(field.0.get(), 0xffff);
        assert_eq!(field.with_phase(false).status(), Status(0x7fff));
        assert!(StatusField::new(Status::SUCCESS).with_phase(true).status().is_success());
    }
}
