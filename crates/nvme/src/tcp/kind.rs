//! The table of PDU types: who sends it, how long its header is, what it may carry.

use core::fmt;

use super::header::{CommonHeader, Fes, Flags, PduType};
use super::{COMMON_HEADER_LENGTH, DIGEST_LENGTH, TERMINATE_LENGTH_MAX};

/// A supported PDU type; those of kickstart discovery are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Initialize Connection Request.
    InitializeConnectionRequest,
    /// Initialize Connection Response.
    InitializeConnectionResponse,
    /// Host to Controller Terminate Connection Request.
    H2CTerminateRequest,
    /// Controller to Host Terminate Connection Request.
    C2HTerminateRequest,
    /// Command Capsule.
    CapsuleCommand,
    /// Response Capsule.
    CapsuleResponse,
    /// Host to Controller Data Transfer.
    H2CData,
    /// Controller to Host Data Transfer.
    C2HData,
    /// Ready to Transfer.
    ReadyToTransfer,
}

/// Who sends a PDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The host sends it.
    HostToController,
    /// The controller sends it.
    ControllerToHost,
}

/// Why a common header cannot be that of a PDU; says what a termination request has to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderError {
    /// Fatal Error Status (FES).
    pub status: Fes,
    /// Byte offset of the field that is wrong (the FEI of those FES that have one).
    pub field_offset: u32,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = match self.field_offset {
            0 => "PDU-Type",
            1 => "FLAGS",
            2 => "HLEN",
            3 => "PDO",
            4 => "PLEN",
            _ => "a field behind the common header",
        };
        write!(formatter, "{} in {field}", self.status)
    }
}

impl core::error::Error for HeaderError {}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::InitializeConnectionRequest,
        Self::InitializeConnectionResponse,
        Self::H2CTerminateRequest,
        Self::C2HTerminateRequest,
        Self::CapsuleCommand,
        Self::CapsuleResponse,
        Self::H2CData,
        Self::C2HData,
        Self::ReadyToTransfer,
    ];

    /// The kind of this PDU type, if it is supported.
    #[must_use]
    pub const fn of(pdu_type: PduType) -> Option<Self> {
        Some(match pdu_type {
            PduType::INITIALIZE_CONNECTION_REQUEST => Self::InitializeConnectionRequest,
            PduType::INITIALIZE_CONNECTION_RESPONSE => Self::InitializeConnectionResponse,
            PduType::H2C_TERMINATE_REQUEST => Self::H2CTerminateRequest,
            PduType::C2H_TERMINATE_REQUEST => Self::C2HTerminateRequest,
            PduType::CAPSULE_COMMAND => Self::CapsuleCommand,
            PduType::CAPSULE_RESPONSE => Self::CapsuleResponse,
            PduType::H2C_DATA => Self::H2CData,
            PduType::C2H_DATA => Self::C2HData,
            PduType::READY_TO_TRANSFER => Self::ReadyToTransfer,
            _ => return None,
        })
    }

    /// The PDU type of this kind.
    #[must_use]
    pub const fn pdu_type(self) -> PduType {
        match self {
            Self::InitializeConnectionRequest => PduType::INITIALIZE_CONNECTION_REQUEST,
            Self::InitializeConnectionResponse => PduType::INITIALIZE_CONNECTION_RESPONSE,
            Self::H2CTerminateRequest => PduType::H2C_TERMINATE_REQUEST,
            Self::C2HTerminateRequest => PduType::C2H_TERMINATE_REQUEST,
            Self::CapsuleCommand => PduType::CAPSULE_COMMAND,
            Self::CapsuleResponse => PduType::CAPSULE_RESPONSE,
            Self::H2CData => PduType::H2C_DATA,
            Self::C2HData => PduType::C2H_DATA,
            Self::ReadyToTransfer => PduType::READY_TO_TRANSFER,
        }
    }

    /// Header Length (HLEN) that the type has, in bytes, without the header digest.
    #[must_use]
    pub const fn header_length(self) -> u8 {
        match self {
            Self::InitializeConnectionRequest | Self::InitializeConnectionResponse => 128,
            Self::CapsuleCommand => 72,
            Self::H2CTerminateRequest
            | Self::C2HTerminateRequest
            | Self::CapsuleResponse
            | Self::H2CData
            | Self::C2HData
            | Self::ReadyToTransfer => 24,
        }
    }

    /// Who sends it.
    #[must_use]
    pub const fn direction(self) -> Direction {
        match self {
            Self::InitializeConnectionRequest
            | Self::H2CTerminateRequest
            | Self::CapsuleCommand
            | Self::H2CData => Direction::HostToController,
            Self::InitializeConnectionResponse
            | Self::C2HTerminateRequest
            | Self::CapsuleResponse
            | Self::C2HData
            | Self::ReadyToTransfer => Direction::ControllerToHost,
        }
    }

    /// The flags that the type may have.
    #[must_use]
    pub const fn permitted_flags(self) -> Flags {
        let none = Flags::NONE;
        match self {
            Self::InitializeConnectionRequest
            | Self::InitializeConnectionResponse
            | Self::H2CTerminateRequest
            | Self::C2HTerminateRequest => none,
            Self::CapsuleResponse | Self::ReadyToTransfer => none.with_header_digest(true),
            Self::CapsuleCommand => none.with_header_digest(true).with_data_digest(true),
            Self::H2CData => none.with_header_digest(true).with_data_digest(true).with_last(true),
            Self::C2HData => none
                .with_header_digest(true)
                .with_data_digest(true)
                .with_last(true)
                .with_success(true),
        }
    }

    /// Whether a header digest follows the header on connections that have agreed to one.
    #[must_use]
    pub const fn has_header_digest(self) -> bool {
        self.permitted_flags().header_digest()
    }

    /// Whether the PDU may carry data that a data digest covers.
    #[must_use]
    pub const fn has_data(self) -> bool {
        self.permitted_flags().data_digest()
    }

    /// Whether the PDU must carry data.
    #[must_use]
    pub const fn requires_data(self) -> bool {
        matches!(self, Self::H2CData | Self::C2HData)
    }

    /// Looks at a common header on its own, without knowing what the connection has agreed to:
    /// the type is known, HLEN is the one of the type, and PLEN leaves room for the header.
    ///
    /// A termination request may not be longer than [`TERMINATE_LENGTH_MAX`]; a PDU without data
    /// has no bytes beyond its header and header digest.
    pub fn check(header: &CommonHeader) -> Result<Self, HeaderError> {
        let wrong = |field_offset| HeaderError { status: Fes::INVALID_HEADER_FIELD, field_offset };
        let kind = Self::of(header.pdu_type).ok_or(wrong(0))?;
        if header.header_length != kind.header_length() {
            return Err(wrong(2));
        }
        let length = usize::try_from(header.pdu_length.get()).map_err(|_| wrong(4))?;
        let shortest = usize::from(kind.header_length());
        let longest = match kind {
            Self::H2CTerminateRequest | Self::C2HTerminateRequest => TERMINATE_LENGTH_MAX,
            _ if kind.has_data() => usize::MAX,
            _ if kind.has_header_digest() && header.flags.header_digest() => {
                shortest + DIGEST_LENGTH
            }
            _ => shortest,
        };
        if length < shortest || length > longest {
            return Err(wrong(4));
        }
        Ok(kind)
    }
}

const _: () = assert!(COMMON_HEADER_LENGTH == size_of::<CommonHeader>());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::header::{
        CapsuleCommand, CapsuleResponse, Data, InitializeConnectionRequest,
        InitializeConnectionResponse, ReadyToTransfer, TerminateRequest,
    };
    use crate::wire::{U32, Wire};
    use std::format;

    #[test]
    fn kinds_and_types_are_one_to_one() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of(kind.pdu_type()), Some(kind));
            assert_eq!(Kind::check(&CommonHeader::bare(kind)), Ok(kind));
        }
        let known = (0..=u8::MAX).filter(|raw| Kind::of(PduType(*raw)).is_some()).count();
        assert_eq!(known, Kind::ALL.len());
        assert_eq!(Kind::of(PduType::KICKSTART_DISCOVERY_REQUEST), None);
    }

    #[test]
    fn header_lengths_are_those_of_the_structs() {
        for (kind, size) in [
            (Kind::InitializeConnectionRequest, InitializeConnectionRequest::SIZE),
            (Kind::InitializeConnectionResponse, InitializeConnectionResponse::SIZE),
            (Kind::H2CTerminateRequest, TerminateRequest::SIZE),
            (Kind::C2HTerminateRequest, TerminateRequest::SIZE),
            (Kind::CapsuleCommand, CapsuleCommand::SIZE),
            (Kind::CapsuleResponse, CapsuleResponse::SIZE),
            (Kind::H2CData, Data::SIZE),
            (Kind::C2HData, Data::SIZE),
            (Kind::ReadyToTransfer, ReadyToTransfer::SIZE),
        ] {
            assert_eq!(usize::from(kind.header_length()), size, "{kind:?}");
        }
    }

    #[test]
    fn the_host_sends_even_types() {
        for kind in Kind::ALL {
            let host = kind.direction() == Direction::HostToController;
            assert_eq!(host, kind.pdu_type().0 % 2 == 0, "{kind:?}");
        }
    }

    #[test]
    fn wrong_headers_name_the_field() {
        let good = CommonHeader::bare(Kind::CapsuleCommand);
        let unknown = CommonHeader { pdu_type: PduType(0x08), ..good };
        assert_eq!(Kind::check(&unknown).unwrap_err().field_offset, 0);
        let short = CommonHeader { header_length: 71, ..good };
        assert_eq!(Kind::check(&short).unwrap_err().field_offset, 2);
        let short = CommonHeader { pdu_length: U32::new(71), ..good };
        assert_eq!(Kind::check(&short).unwrap_err().field_offset, 4);
        let long = CommonHeader { pdu_length: U32::new(u32::MAX), ..good };
        assert_eq!(Kind::check(&long), Ok(Kind::CapsuleCommand));
        assert_eq!(
            format!("{}", Kind::check(&unknown).unwrap_err()),
            "Invalid PDU Header Field in PDU-Type"
        );
    }

    #[test]
    fn pdus_without_data_have_a_fixed_length() {
        let good = CommonHeader::bare(Kind::ReadyToTransfer);
        let with_digest = CommonHeader { pdu_length: U32::new(28), ..good };
        assert!(Kind::check(&with_digest).is_err());
        let with_digest = CommonHeader { flags: Flags(1), ..with_digest };
        assert_eq!(Kind::check(&with_digest), Ok(Kind::ReadyToTransfer));
        let longer = CommonHeader { pdu_length: U32::new(29), ..with_digest };
        assert_eq!(Kind::check(&longer).unwrap_err().field_offset, 4);
        for (length, good) in [(24, true), (152, true), (153, false), (23, false)] {
            let header = CommonHeader {
                pdu_length: U32::new(length),
                ..CommonHeader::bare(Kind::H2CTerminateRequest)
            };
            assert_eq!(Kind::check(&header).is_ok(), good, "{length}");
        }
    }

    #[test]
    fn flags_by_kind() {
        let no_success = Flags(0b0111);
        assert_eq!(Kind::H2CData.permitted_flags(), no_success);
        assert_eq!(Kind::C2HData.permitted_flags(), Flags(0b1111));
        assert_eq!(Kind::ReadyToTransfer.permitted_flags(), Flags(0b0001));
        assert_eq!(Kind::CapsuleCommand.permitted_flags(), Flags(0b0011));
        assert_eq!(Kind::C2HTerminateRequest.permitted_flags(), Flags::NONE);
        assert!(Kind::C2HData.requires_data() && !Kind::CapsuleCommand.requires_data());
    }
}
