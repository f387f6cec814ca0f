//! Submission queue entries.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::opcode::{AdminOpcode, DataTransfer, FabricsType, NvmOpcode};
use crate::sgl::Descriptor;
use crate::wire::{U16, U32, U64};

/// The namespace identifier that means every namespace.
pub const NAMESPACE_ID_BROADCAST: u32 = 0xffff_ffff;

/// Second byte of a command: Fused Operation (FUSE) and PRP or SGL for Data Transfer (PSDT).
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(transparent)]
pub struct Flags(pub u8);

bit_fields! {
    pub Flags(u8) {
        /// FUSE, as a number.
        [1:0] raw_fused, with_raw_fused -> u8;
        /// PSDT, as a number.
        [7:6] raw_data_transfer, with_raw_data_transfer -> u8;
    }
}

impl Flags {
    /// What every command over Fabrics carries: not fused, and SGLs with a metadata buffer
    /// address.
    pub const SGL: Self = Self(0).with_data_pointer(DataPointer::SGL_METADATA_BUFFER);

    /// Fused Operation (FUSE).
    #[must_use]
    pub const fn fused(self) -> Fused {
        Fused(self.raw_fused())
    }

    /// Returns the flags with FUSE changed.
    #[must_use]
    pub const fn with_fused(self, fused: Fused) -> Self {
        self.with_raw_fused(fused.0)
    }

    /// PRP or SGL for Data Transfer (PSDT).
    #[must_use]
    pub const fn data_pointer(self) -> DataPointer {
        DataPointer(self.raw_data_transfer())
    }

    /// Returns the flags with PSDT changed.
    #[must_use]
    pub const fn with_data_pointer(self, data_pointer: DataPointer) -> Self {
        self.with_raw_data_transfer(data_pointer.0)
    }
}

code_space! {
    /// Fused Operation (FUSE).
    pub struct Fused(pub u8);
    NONE = 0b00, "normal operation";
    FIRST = 0b01, "fused operation, first command";
    SECOND = 0b10, "fused operation, second command";
}

code_space! {
    /// PRP or SGL for Data Transfer (PSDT).
    pub struct DataPointer(pub u8);
    PRP = 0b00, "PRPs";
    SGL_METADATA_BUFFER = 0b01, "SGLs, metadata pointer is a buffer";
    SGL_METADATA_SGL = 0b10, "SGLs, metadata pointer is an SGL";
}

/// Submission Queue Entry (64 bytes), common command format.
///
/// A Fabrics command has the same shape: its command type (FCTYPE) is the low byte of
/// `namespace_id`, see [`Command::fabrics_type`].
#[derive(
    Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Command {
    /// Opcode (OPC); its code space depends on the queue.
    pub opcode: u8,
    /// FUSE and PSDT.
    pub flags: Flags,
    /// Command Identifier (CID).
    pub command_id: U16,
    /// Namespace Identifier (NSID).
    pub namespace_id: U32,
    /// Command Dword 2.
    pub cdw2: U32,
    /// Command Dword 3.
    pub cdw3: U32,
    /// Metadata Pointer (MPTR).
    pub metadata_pointer: U64,
    /// Data Pointer (DPTR), as SGL1.
    pub data_pointer: Descriptor,
    /// Command Dword 10.
    pub cdw10: U32,
    /// Command Dword 11.
    pub cdw11: U32,
    /// Command Dword 12.
    pub cdw12: U32,
    /// Command Dword 13.
    pub cdw13: U32,
    /// Command Dword 14.
    pub cdw14: U32,
    /// Command Dword 15.
    pub cdw15: U32,
}

assert_layout!(Command, size 64, opcode at 0, flags at 1, command_id at 2, namespace_id at 4,
    cdw2 at 8, cdw3 at 12, metadata_pointer at 16, data_pointer at 24, cdw10 at 40, cdw11 at 44,
    cdw12 at 48, cdw13 at 52, cdw14 at 56, cdw15 at 60);

impl Command {
    /// A command with this opcode as it goes over Fabrics (PSDT is SGL), all else zero.
    #[must_use]
    pub fn new(opcode: impl Into<u8>) -> Self {
        Self { opcode: opcode.into(), flags: Flags::SGL, ..Self::default() }
    }

    /// A Fabrics command of this type, all else zero.
    #[must_use]
    pub fn fabrics(fabrics_type: FabricsType) -> Self {
        Self::new(AdminOpcode::FABRICS).with_namespace_id(u32::from(fabrics_type.0))
    }

    /// Returns the command with its Command Identifier changed.
    #[must_use]
    pub const fn with_command_id(mut self, command_id: u16) -> Self {
        self.command_id = U16::new(command_id);
        self
    }

    /// Returns the command with its Namespace Identifier changed.
    #[must_use]
    pub const fn with_namespace_id(mut self, namespace_id: u32) -> Self {
        self.namespace_id = U32::new(namespace_id);
        self
    }

    /// Returns the command with its flags changed.
    #[must_use]
    pub const fn with_flags(mut self, flags: Flags) -> Self {
        self.flags = flags;
        self
    }

    /// Returns the command with its data pointer (SGL1) changed.
    #[must_use]
    pub const fn with_data_pointer(mut self, data_pointer: Descriptor) -> Self {
        self.data_pointer = data_pointer;
        self
    }

    /// Returns the command with Command Dword 10 changed.
    #[must_use]
    pub const fn with_cdw10(mut self, value: u32) -> Self {
        self.cdw10 = U32::new(value);
        self
    }

    /// Returns the command with Command Dword 11 changed.
    #[must_use]
    pub const fn with_cdw11(mut self, value: u32) -> Self {
        self.cdw11 = U32::new(value);
        self
    }

    /// Returns the command with Command Dword 12 changed.
    #[must_use]
    pub const fn with_cdw12(mut self, value: u32) -> Self {
        self.cdw12 = U32::new(value);
        self
    }

    /// Returns the command with Command Dword 13 changed.
    #[must_use]
    pub const fn with_cdw13(mut self, value: u32) -> Self {
        self.cdw13 = U32::new(value);
        self
    }

    /// Returns the command with Command Dword 14 changed.
    #[must_use]
    pub const fn with_cdw14(mut self, value: u32) -> Self {
        self.cdw14 = U32::new(value);
        self
    }

    /// Returns the command with Command Dword 15 changed.
    #[must_use]
    pub const fn with_cdw15(mut self, value: u32) -> Self {
        self.cdw15 = U32::new(value);
        self
    }

    /// The opcode, read as one of the admin command set.
    #[must_use]
    pub const fn admin_opcode(&self) -> AdminOpcode {
        AdminOpcode(self.opcode)
    }

    /// The opcode, read as one of the NVM command set.
    #[must_use]
    pub const fn nvm_opcode(&self) -> NvmOpcode {
        NvmOpcode(self.opcode)
    }

    /// Whether this is a Fabrics command; its opcode is the same on every queue.
    #[must_use]
    pub const fn is_fabrics(&self) -> bool {
        self.opcode == AdminOpcode::FABRICS.0
    }

    /// Fabrics Command Type (FCTYPE), if this is a Fabrics command.
    #[must_use]
    pub const fn fabrics_type(&self) -> Option<FabricsType> {
        if !self.is_fabrics() {
            return None;
        }
        let [fabrics_type, ..] = self.namespace_id.to_bytes();
        Some(FabricsType(fabrics_type))
    }

    /// Which way data goes, by the opcode, or by the command type of a Fabrics command.
    #[must_use]
    pub const fn data_transfer(&self) -> DataTransfer {
        match self.fabrics_type() {
            Some(fabrics_type) => DataTransfer::of(fabrics_type.0),
            None => DataTransfer::of(self.opcode),
        }
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Command")
            .field("opcode", &format_args!("{:#04x}", self.opcode))
            .field("flags", &self.flags)
            .field("command_id", &self.command_id.get())
            .field("namespace_id", &format_args!("{:#x}", self.namespace_id.get()))
            .field("data_pointer", &self.data_pointer)
            .field("cdw10", &format_args!("{:#x}", self.cdw10.get()))
            .field("cdw11", &format_args!("{:#x}", self.cdw11.get()))
            .field("cdw12", &format_args!("{:#x}", self.cdw12.get()))
            .field("cdw13", &format_args!("{:#x}", self.cdw13.get()))
            .field("cdw14", &format_args!("{:#x}", self.cdw14.get()))
            .field("cdw15", &format_args!("{:#x}", self.cdw15.get()))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;
    use crate::wire::test_support::{check_truncations, hex};
    use std::format;

    /// Read of 8 blocks at LBA 0x100000002 of namespace 1, command 0x1234, as the Linux host
    /// sends it over TCP: PSDT 01b, SGL1 a Transport Data Block.
    const READ: &str = "02 40 3412 01000000 00000000 00000000 0000000000000000
        0000000000000000 00100000 000000 5a
        02000000 01000000 07000000 00000000 00000000 00000000";

    #[test]
    fn read_command() {
        let vector = hex(READ);
        check_truncations::<Command>(&vector);
        let command = Command::new(NvmOpcode::READ)
            .with_command_id(0x1234)
            .with_namespace_id(1)
            .with_data_pointer(Descriptor::transport(4096))
            .with_cdw10(2)
            .with_cdw11(1)
            .with_cdw12(7);
        assert_eq!(command.bytes(), vector);
        assert_eq!(command.nvm_opcode(), NvmOpcode::READ);
        assert_eq!(command.data_transfer(), DataTransfer::ControllerToHost);
        assert_eq!(command.fabrics_type(), None);
    }

    #[test]
    fn setters_change_only_their_dword() {
        let command = Command::new(0xffu8)
            .with_cdw10(10)
            .with_cdw11(11)
            .with_cdw12(12)
            .with_cdw13(13)
            .with_cdw14(14)
            .with_cdw15(15);
        let expected = hex("0a000000 0b000000 0c000000 0d000000 0e000000 0f000000");
        assert_eq!(command.bytes()[40..], expected);
        assert_eq!(command.bytes()[2..40], [0; 38]);
    }

    #[test]
    fn flags_do_not_overlap() {
        Flags::check_bit_fields();
        assert_eq!(Flags::SGL.0, 0x40);
        let flags = Flags(0x3c).with_fused(Fused::SECOND);
        assert_eq!(flags.0, 0x3e);
        assert_eq!(flags.with_data_pointer(DataPointer::SGL_METADATA_SGL).0, 0xbe);
        assert_eq!(Flags(0xff).fused(), Fused(3));
        assert_eq!(Flags(0xbf).data_pointer(), DataPointer::SGL_METADATA_SGL);
    }

    #[test]
    fn a_fabrics_command_has_a_type() {
        let connect = Command::fabrics(FabricsType::CONNECT);
        assert_eq!(connect.bytes()[..8], [0x7f, 0x40, 0, 0, 1, 0, 0, 0]);
        assert_eq!(connect.fabrics_type(), Some(FabricsType::CONNECT));
        assert_eq!(connect.data_transfer(), DataTransfer::HostToController);
        // Bytes 5 to 7 are reserved: they do not change the type.
        let connect = connect.with_namespace_id(0xffff_ff01);
        assert_eq!(connect.fabrics_type(), Some(FabricsType::CONNECT));
        assert_eq!(Command::new(AdminOpcode::IDENTIFY).fabrics_type(), None);
    }

    #[test]
    fn debug_prints_native_numbers() {
        let text = format!("{:?}", Command::new(AdminOpcode::ABORT).with_command_id(258));
        assert!(text.contains("opcode: 0x08"), "{text}");
        assert!(text.contains("command_id: 258"), "{text}");
    }
}
