//! NVMe/TCP: the protocol data units.
//!
//! A PDU is a header of fixed length per type, then, as the flags and PDO say: a header digest,
//! padding, data, a data digest. This module has the headers; [`Kind`] has the table of which
//! type may carry what, so that framing is a matter of looking up.

mod header;
mod kind;

pub use header::{
    CapsuleCommand, CapsuleResponse, CommonHeader, Data, DigestOptions, Fes, Flags,
    InitializeConnectionRequest, InitializeConnectionResponse, PduType, ReadyToTransfer,
    TerminateRequest,
};
pub use kind::{Direction, HeaderError, Kind};

/// Length of a header digest and of a data digest (CRC32C), in bytes.
pub const DIGEST_LENGTH: usize = 4;

/// Length of the common header (CH), in bytes.
pub const COMMON_HEADER_LENGTH: usize = 8;

/// Length of the longest header (ICReq and ICResp), in bytes.
pub const HEADER_LENGTH_MAX: usize = 128;

/// PDU Format Version (PFV): 1.0.
pub const FORMAT_VERSION: u16 = 0;

/// Largest HPDA or CPDA: data alignment of 128 bytes (0's based dwords).
pub const DATA_ALIGNMENT_MAX: u8 = 31;

/// Most bytes of a faulty PDU's header that a termination request carries as data.
pub const TERMINATE_DATA_LENGTH_MAX: usize = 128;

/// Longest termination request: its header and data, without any digest.
pub const TERMINATE_LENGTH_MAX: usize = 152;

/// Smallest MAXH2CDATA that a controller may announce, in bytes.
pub const MAXIMUM_H2C_DATA_MIN: u32 = 4096;

/// Well-known port of the discovery service.
pub const DISCOVERY_PORT: u16 = 8009;

/// Well-known port of I/O controllers.
pub const IO_PORT: u16 = 4420;

/// The alignment in bytes that an HPDA or CPDA value stands for (0's based dwords).
#[must_use]
pub const fn data_alignment(value: u8) -> usize {
    (value as usize + 1) * 4
}
