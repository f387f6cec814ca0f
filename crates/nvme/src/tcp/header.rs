//! The headers of the PDUs.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::kind::Kind;
use crate::command::Command;
use crate::completion::Completion;
use crate::wire::{U16, U32};

code_space! {
    /// PDU-Type.
    pub struct PduType(pub u8);
    INITIALIZE_CONNECTION_REQUEST = 0x00, "ICReq";
    INITIALIZE_CONNECTION_RESPONSE = 0x01, "ICResp";
    H2C_TERMINATE_REQUEST = 0x02, "H2CTermReq";
    C2H_TERMINATE_REQUEST = 0x03, "C2HTermReq";
    CAPSULE_COMMAND = 0x04, "CapsuleCmd";
    CAPSULE_RESPONSE = 0x05, "CapsuleResp";
    H2C_DATA = 0x06, "H2CData";
    C2H_DATA = 0x07, "C2HData";
    READY_TO_TRANSFER = 0x09, "R2T";
    KICKSTART_DISCOVERY_REQUEST = 0x0a, "KDReq";
    KICKSTART_DISCOVERY_RESPONSE = 0x0b, "KDResp";
}

code_space! {
    /// Fatal Error Status (FES): why a connection is terminated.
    pub struct Fes(pub u16);
    INVALID_HEADER_FIELD = 0x01, "Invalid PDU Header Field";
    SEQUENCE_ERROR = 0x02, "PDU Sequence Error";
    HEADER_DIGEST_ERROR = 0x03, "Header Digest Error";
    DATA_TRANSFER_OUT_OF_RANGE = 0x04, "Data Transfer Out of Range";
    LIMIT_EXCEEDED = 0x05, "Data Transfer Limit Exceeded or R2T Limit Exceeded";
    UNSUPPORTED_PARAMETER = 0x06, "Unsupported Parameter";
}

/// FLAGS of the common header; which of them a PDU may have depends on its type.
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
        /// HDGSTF: a header digest follows the header.
        [0] header_digest, with_header_digest;
        /// DDGSTF: a data digest follows the data.
        [1] data_digest, with_data_digest;
        /// LAST_PDU: this is the last data PDU of the transfer.
        [2] last, with_last;
        /// SUCCESS: the command completed successfully, and no CapsuleResp will follow.
        [3] success, with_success;
    }
}

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
}

/// PDU Common Header (CH, 8 bytes).
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
pub struct CommonHeader {
    /// PDU-Type.
    pub pdu_type: PduType,
    /// FLAGS.
    pub flags: Flags,
    /// Header Length (HLEN), without the header digest, in bytes.
    pub header_length: u8,
    /// PDU Data Offset (PDO): from the first byte of the PDU to its data, in bytes.
    pub data_offset: u8,
    /// PDU Length (PLEN): header, digests, padding and data, in bytes.
    pub pdu_length: U32,
}

assert_layout!(CommonHeader, size 8, pdu_type at 0, flags at 1, header_length at 2,
    data_offset at 3, pdu_length at 4);

impl CommonHeader {
    /// The common header of a PDU that is nothing but its header.
    #[must_use]
    pub const fn bare(kind: Kind) -> Self {
        Self {
            pdu_type: kind.pdu_type(),
            flags: Flags::NONE,
            header_length: kind.header_length(),
            data_offset: 0,
            pdu_length: U32::from_bytes([kind.header_length(), 0, 0, 0]),
        }
    }
}

/// Digest options (DGST) of ICReq and ICResp.
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
pub struct DigestOptions(pub u8);

bit_fields! {
    pub DigestOptions(u8) {
        /// HDGST_ENABLE.
        [0] header, with_header;
        /// DDGST_ENABLE.
        [1] data, with_data;
    }
}

/// Initialize Connection Request (ICReq, 128 bytes).
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct InitializeConnectionRequest {
    /// Common header.
    pub common: CommonHeader,
    /// PDU Format Version (PFV).
    pub format_version: U16,
    /// Host PDU Data Alignment (HPDA): 0's based dwords.
    pub host_data_alignment: u8,
    /// Digest options (DGST) that the host asks for.
    pub digests: DigestOptions,
    /// Maximum Number of Outstanding R2T (MAXR2T) per command, 0's based as on the wire.
    pub maximum_r2t: U32,
    /// Reserved.
    pub reserved: [u8; 112],
}

assert_layout!(InitializeConnectionRequest, size 128, common at 0, format_version at 8,
    host_data_alignment at 10, digests at 11, maximum_r2t at 12, reserved at 16);

impl InitializeConnectionRequest {
    /// A request of version 1.0.
    #[must_use]
    pub const fn new(host_data_alignment: u8, digests: DigestOptions, maximum_r2t: u32) -> Self {
        Self {
            common: CommonHeader::bare(Kind::InitializeConnectionRequest),
            format_version: U16::new(super::FORMAT_VERSION),
            host_data_alignment,
            digests,
            maximum_r2t: U32::new(maximum_r2t),
            reserved: [0; 112],
        }
    }
}

impl fmt::Debug for InitializeConnectionRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("InitializeConnectionRequest")
            .field("common", &self.common)
            .field("format_version", &self.format_version.get())
            .field("host_data_alignment", &self.host_data_alignment)
            .field("digests", &self.digests)
            .field("maximum_r2t", &self.maximum_r2t.get())
            .finish_non_exhaustive()
    }
}

/// Initialize Connection Response (ICResp, 128 bytes).
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct InitializeConnectionResponse {
    /// Common header.
    pub common: CommonHeader,
    /// PDU Format Version (PFV).
    pub format_version: U16,
    /// Controller PDU Data Alignment (CPDA): 0's based dwords.
    pub controller_data_alignment: u8,
    /// Digest options (DGST) that the connection uses.
    pub digests: DigestOptions,
    /// Maximum Host to Controller Data length (MAXH2CDATA) of one H2CData PDU, in bytes.
    pub maximum_h2c_data: U32,
    /// Reserved.
    pub reserved: [u8; 112],
}

assert_layout!(InitializeConnectionResponse, size 128, common at 0, format_version at 8,
    controller_data_alignment at 10, digests at 11, maximum_h2c_data at 12, reserved at 16);

impl InitializeConnectionResponse {
    /// A response of version 1.0.
    #[must_use]
    pub const fn new(
        controller_data_alignment: u8,
        digests: DigestOptions,
        maximum_h2c_data: u32,
    ) -> Self {
        Self {
            common: CommonHeader::bare(Kind::InitializeConnectionResponse),
            format_version: U16::new(super::FORMAT_VERSION),
            controller_data_alignment,
            digests,
            maximum_h2c_data: U32::new(maximum_h2c_data),
            reserved: [0; 112],
        }
    }
}

impl fmt::Debug for InitializeConnectionResponse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("InitializeConnectionResponse")
            .field("common", &self.common)
            .field("format_version", &self.format_version.get())
            .field("controller_data_alignment", &self.controller_data_alignment)
            .field("digests", &self.digests)
            .field("maximum_h2c_data", &self.maximum_h2c_data.get())
            .finish_non_exhaustive()
    }
}

/// Host or Controller Terminate Connection Request (H2CTermReq, C2HTermReq; 24 bytes), followed
/// by up to [`super::TERMINATE_DATA_LENGTH_MAX`] bytes of the faulty PDU's header.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TerminateRequest {
    /// Common header.
    pub common: CommonHeader,
    /// Fatal Error Status (FES).
    pub fatal_error_status: U16,
    /// Fatal Error Information (FEI).
    pub fatal_error_information: U32,
    /// Reserved.
    pub reserved: [u8; 10],
}

assert_layout!(TerminateRequest, size 24, common at 0, fatal_error_status at 8,
    fatal_error_information at 10, reserved at 14);

impl TerminateRequest {
    /// A request that carries `data_length` bytes of the faulty PDU's header (at most 128 are
    /// counted).
    #[must_use]
    pub fn new(kind: Kind, status: Fes, information: u32, data_length: usize) -> Self {
        let data_length = data_length.min(super::TERMINATE_DATA_LENGTH_MAX);
        let mut common = CommonHeader::bare(kind);
        // At most 24 and 128: the sum fits in a byte.
        let data_length = u32::try_from(data_length).unwrap_or_default();
        common.pdu_length = U32::new(u32::from(kind.header_length()) + data_length);
        Self {
            common,
            fatal_error_status: U16::new(status.0),
            fatal_error_information: U32::new(information),
            reserved: [0; 10],
        }
    }

    /// Fatal Error Status (FES).
    #[must_use]
    pub const fn status(&self) -> Fes {
        Fes(self.fatal_error_status.get())
    }
}

impl fmt::Debug for TerminateRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TerminateRequest")
            .field("common", &self.common)
            .field("fatal_error_status", &self.status())
            .field("fatal_error_information", &self.fatal_error_information.get())
            .finish_non_exhaustive()
    }
}

/// Command Capsule (CapsuleCmd, 72 bytes), followed by in-capsule data.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CapsuleCommand {
    /// Common header.
    pub common: CommonHeader,
    /// Submission queue entry (CCSQE).
    pub command: Command,
}

assert_layout!(CapsuleCommand, size 72, common at 0, command at 8);

/// Response Capsule (CapsuleResp, 24 bytes).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CapsuleResponse {
    /// Common header.
    pub common: CommonHeader,
    /// Completion queue entry (RCCQE).
    pub completion: Completion,
}

assert_layout!(CapsuleResponse, size 24, common at 0, completion at 8);

/// Host to Controller Data Transfer or Controller to Host Data Transfer (H2CData, C2HData; 24
/// bytes), followed by data.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Data {
    /// Common header.
    pub common: CommonHeader,
    /// Command Capsule CID (CCCID).
    pub command_id: U16,
    /// Transfer Tag (TTAG) of the R2T that is answered; reserved in C2HData.
    pub transfer_tag: U16,
    /// Data Offset (DATAO): from the first byte of the command's data, in bytes.
    pub offset: U32,
    /// Data Length (DATAL) of this PDU, in bytes.
    pub length: U32,
    /// Reserved.
    pub reserved: [u8; 4],
}

assert_layout!(Data, size 24, common at 0, command_id at 8, transfer_tag at 10, offset at 12,
    length at 16, reserved at 20);

/// Ready to Transfer (R2T, 24 bytes).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ReadyToTransfer {
    /// Common header.
    pub common: CommonHeader,
    /// Command Capsule CID (CCCID).
    pub command_id: U16,
    /// Transfer Tag (TTAG) that the H2CData PDUs are to repeat.
    pub transfer_tag: U16,
    /// Requested Data Offset (R2TO), in bytes.
    pub offset: U32,
    /// Requested Data Length (R2TL), in bytes.
    pub length: U32,
    /// Reserved.
    pub reserved: [u8; 4],
}

assert_layout!(ReadyToTransfer, size 24, common at 0, command_id at 8, transfer_tag at 10,
    offset at 12, length at 16, reserved at 20);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;
    use crate::opcode::NvmOpcode;
    use crate::status::Status;
    use crate::wire::test_support::{check_truncations, hex, hex_padded};
    use std::format;

    #[test]
    fn fields_do_not_overlap() {
        Flags::check_bit_fields();
        DigestOptions::check_bit_fields();
    }

    /// ICReq as the Linux host sends it (`nvme_tcp_init_connection`): PFV 1.0, HPDA 0, both
    /// digests, MAXR2T 0 (one).
    #[test]
    fn initialize_connection() {
        let vector = hex_padded("00 00 80 00 80000000 0000 00 03 00000000", 128);
        check_truncations::<InitializeConnectionRequest>(&vector);
        let digests = DigestOptions(0).with_header(true).with_data(true);
        assert_eq!(InitializeConnectionRequest::new(0, digests, 0).bytes(), vector);
        assert!(format!("{:?}", InitializeConnectionRequest::zeroed()).contains("maximum_r2t: 0"));

        // ICResp as the Linux target answers: CPDA 0, MAXH2CDATA 400000h.
        let vector = hex_padded("01 00 80 00 80000000 0000 00 01 00004000", 128);
        check_truncations::<InitializeConnectionResponse>(&vector);
        let digests = DigestOptions(0).with_header(true);
        let response = InitializeConnectionResponse::new(0, digests, 0x40_0000);
        assert_eq!(response.bytes(), vector);
        assert!(format!("{response:?}").contains("maximum_h2c_data: 4194304"));
    }

    /// A termination as the Linux target sends it is 24 bytes and the faulty header.
    #[test]
    fn terminate() {
        let vector = hex("03 00 18 00 60000000 0100 10000000 00000000000000000000");
        check_truncations::<TerminateRequest>(&vector);
        let kind = Kind::C2HTerminateRequest;
        let request = TerminateRequest::new(kind, Fes::INVALID_HEADER_FIELD, 16, 72);
        assert_eq!(request.bytes(), vector);
        assert_eq!(request.status(), Fes::INVALID_HEADER_FIELD);
        let longest = TerminateRequest::new(kind, Fes::SEQUENCE_ERROR, 0, usize::MAX);
        assert_eq!(longest.common.pdu_length.get(), 152);
        assert!(format!("{request:?}").contains("Fes::INVALID_HEADER_FIELD"));
    }

    #[test]
    fn capsules() {
        let mut vector = hex("04 01 48 4c 4c100000");
        let command = Command::new(NvmOpcode::WRITE).with_command_id(0x2a);
        vector.extend_from_slice(command.bytes());
        check_truncations::<CapsuleCommand>(&vector);
        let capsule = CapsuleCommand::view(&vector).unwrap();
        assert_eq!(capsule.command, command);
        assert!(capsule.common.flags.header_digest() && !capsule.common.flags.data_digest());
        assert_eq!(capsule.common.pdu_length.get(), 0x104c);

        let vector = hex("05 00 18 00 18000000 0000000000000000 0100 0000 2a00 0000");
        check_truncations::<CapsuleResponse>(&vector);
        let completion = Completion::new(0x2a, Status::SUCCESS).with_submission_queue_head(1);
        let response =
            CapsuleResponse { common: CommonHeader::bare(Kind::CapsuleResponse), completion };
        assert_eq!(response.bytes(), vector);
    }

    /// One 4096-byte read in a single PDU with SUCCESS, and the R2T of a write's second half.
    #[test]
    fn data_and_ready_to_transfer() {
        let vector = hex("07 0c 18 18 18100000 2a00 0000 00000000 00100000 00000000");
        check_truncations::<Data>(&vector);
        let data = Data::view(&vector).unwrap();
        assert_eq!(data.common.pdu_type, PduType::C2H_DATA);
        assert_eq!(data.common.flags, Flags::NONE.with_last(true).with_success(true));
        assert_eq!((data.offset.get(), data.length.get()), (0, 4096));

        let vector = hex("09 00 18 00 18000000 2a00 0700 00200000 00400000 00000000");
        check_truncations::<ReadyToTransfer>(&vector);
        let request = ReadyToTransfer {
            common: CommonHeader::bare(Kind::ReadyToTransfer),
            command_id: U16::new(0x2a),
            transfer_tag: U16::new(7),
            offset: U32::new(0x2000),
            length: U32::new(0x4000),
            reserved: [0; 4],
        };
        assert_eq!(request.bytes(), vector);
    }
}
