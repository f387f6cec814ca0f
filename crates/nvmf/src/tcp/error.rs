//! What a peer did wrong, in the words that a termination request has for it.

use std::fmt;

use weft_nvme::tcp::{Fes, HeaderError};

/// A PDU that the protocol does not allow. The peer is to blame, and the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FatalError {
    /// Fatal Error Status (FES).
    pub status: Fes,
    /// Fatal Error Information (FEI): the byte offset of the wrong field, or the header digest
    /// that was received.
    pub information: u32,
    /// What it was, for the log.
    pub detail: &'static str,
}

impl FatalError {
    /// A header field, by its byte offset, has a value that it must not have.
    #[must_use]
    pub const fn field(offset: u32, detail: &'static str) -> Self {
        Self { status: Fes::INVALID_HEADER_FIELD, information: offset, detail }
    }

    /// A parameter, by its byte offset, has a value that is not supported.
    #[must_use]
    pub const fn unsupported(offset: u32, detail: &'static str) -> Self {
        Self { status: Fes::UNSUPPORTED_PARAMETER, information: offset, detail }
    }

    /// A PDU came when it must not.
    #[must_use]
    pub const fn sequence(detail: &'static str) -> Self {
        Self { status: Fes::SEQUENCE_ERROR, information: 0, detail }
    }

    /// Data for a range that was not asked for.
    #[must_use]
    pub const fn out_of_range(detail: &'static str) -> Self {
        Self { status: Fes::DATA_TRANSFER_OUT_OF_RANGE, information: 0, detail }
    }

    /// More data, or more R2Ts, than were agreed.
    #[must_use]
    pub const fn limit(detail: &'static str) -> Self {
        Self { status: Fes::LIMIT_EXCEEDED, information: 0, detail }
    }

    /// The header digest does not fit the header.
    #[must_use]
    pub const fn header_digest(received: [u8; 4]) -> Self {
        Self {
            status: Fes::HEADER_DIGEST_ERROR,
            information: u32::from_le_bytes(received),
            detail: "header digest does not match",
        }
    }
}

impl From<HeaderError> for FatalError {
    fn from(error: HeaderError) -> Self {
        let detail = match error.field_offset {
            0 => "PDU type is unknown",
            2 => "HLEN is not that of the PDU type",
            4 => "PLEN is not possible for the PDU type",
            _ => "common header is invalid",
        };
        Self { status: error.status, information: error.field_offset, detail }
    }
}

impl fmt::Display for FatalError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({}, {:#x})", self.detail, self.status, self.information)
    }
}

impl std::error::Error for FatalError {}
