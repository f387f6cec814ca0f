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

/// With what an HTTP request or answer begins. No PDU begins so: its type would be unknown.
const HTTP: [&[u8]; 6] = [b"HTTP/", b"GET ", b"HEAD ", b"POST ", b"PUT ", b"OPTIONS "];

impl FatalError {
    /// A common header, of these bytes, that no PDU has. A port is easily taken for another one,
    /// so what speaks HTTP is named.
    #[must_use]
    pub fn common_header(error: HeaderError, bytes: &[u8]) -> Self {
        match HTTP.iter().any(|begin| bytes.starts_with(begin)) {
            true => Self { detail: "it speaks HTTP, not NVMe/TCP", ..error.into() },
            false => error.into(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use weft_nvme::Wire;
    use weft_nvme::tcp::{CommonHeader, Kind};

    #[test]
    fn who_speaks_http_is_named() {
        let told = |bytes: &[u8; 8]| {
            let error = Kind::check(CommonHeader::view(bytes).expect("a header"));
            FatalError::common_header(error.expect_err("no PDU"), bytes).to_string()
        };
        for bytes in [b"HTTP/1.1", b"GET /met", b"HEAD / H", b"POST /a ", b"OPTIONS "] {
            assert!(told(bytes).contains("it speaks HTTP, not NVMe/TCP"), "{}", told(bytes));
        }
        assert!(told(b"SSH-2.0-").contains("PDU type is unknown"), "{}", told(b"SSH-2.0-"));
    }
}
