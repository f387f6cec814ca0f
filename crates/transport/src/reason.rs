//! Why a connection ended.

use std::{fmt, io};

use weft_nvme::tcp::Fes;
use weft_nvmf::tcp::FatalError;

use crate::rdma::verbs::NotRegistered;
use crate::rdma::{DeviceFault, WorkStatus};
use crate::tls::TlsFault;

/// A data digest was wrong: the command failed in transport and may be retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataDigestError;

impl fmt::Display for DataDigestError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("data digest does not match")
    }
}

impl std::error::Error for DataDigestError {}

/// Why a connection ended, and on which side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// This side closed it, for this reason.
    Requested(&'static str),
    /// The peer closed the connection.
    PeerClosed,
    /// The peer terminated the connection because of a protocol error of this side.
    PeerTerminated {
        /// Fatal Error Status (FES).
        status: Fes,
        /// Fatal Error Information (FEI).
        information: u32,
    },
    /// A protocol error of the peer, which was sent a termination.
    Protocol(FatalError),
    /// A protocol error of the peer; over RDMA there is no termination.
    Violation(&'static str),
    /// The controller refused the queue, or its reply is invalid.
    Refused(weft_nvmf::rdma::Refusal),
    /// A work request of the connection failed.
    Work(WorkStatus),
    /// The device, or part of it, has failed.
    Device(DeviceFault),
    /// The RDMA device was removed.
    DeviceRemoved,
    /// The address has moved to another RDMA device.
    AddressChanged,
    /// Memory could not be registered with the RDMA device.
    NotRegistered,
    /// Memory windows were requested, and the RDMA device has none of type 2B.
    NoMemoryWindows,
    /// TLS could not be set up, or the peer has broken it.
    Tls(TlsFault),
    /// Connect (on the host: ICResp) was not completed in time.
    HandshakeTimeout,
    /// Sending, receiving or connecting failed.
    Io {
        /// The kind of error.
        kind: io::ErrorKind,
        /// The operating system's error number, if it has one.
        code: Option<i32>,
    },
}

impl From<&io::Error> for CloseReason {
    fn from(error: &io::Error) -> Self {
        match error.get_ref() {
            Some(inner) if inner.is::<NotRegistered>() => Self::NotRegistered,
            _ => Self::Io { kind: error.kind(), code: error.raw_os_error() },
        }
    }
}

impl CloseReason {
    /// Whether the peer has ended the connection by itself: from then on it takes nothing more of
    /// it.
    #[must_use]
    pub const fn is_by_peer(&self) -> bool {
        match self {
            Self::PeerClosed | Self::PeerTerminated { .. } => true,
            Self::Io { kind, .. } => {
                matches!(kind, io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
            }
            _ => false,
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested(why) => formatter.write_str(why),
            Self::PeerClosed => formatter.write_str("the peer closed the connection"),
            Self::PeerTerminated { status, information } => {
                write!(formatter, "the peer terminated the connection: {status} ({information:#x})")
            }
            Self::Protocol(fault) => write!(formatter, "protocol error of the peer: {fault}"),
            Self::Violation(what) => write!(formatter, "protocol error of the peer: {what}"),
            Self::Refused(problem) => write!(formatter, "{problem}"),
            Self::Work(status) => write!(formatter, "RDMA: {status}"),
            Self::Device(fault) => write!(formatter, "RDMA: {fault}"),
            Self::DeviceRemoved => formatter.write_str("the RDMA device is going away"),
            Self::AddressChanged => {
                formatter.write_str("the address has moved to another RDMA device")
            }
            Self::NotRegistered => formatter.write_str(
                "memory cannot be registered with the RDMA device: is RLIMIT_MEMLOCK \
                 (`ulimit -l`) large enough?",
            ),
            Self::NoMemoryWindows => {
                formatter.write_str("the RDMA device has no memory windows of type 2B")
            }
            Self::Tls(fault) => write!(formatter, "{fault}"),
            Self::HandshakeTimeout => formatter.write_str("the peer did not connect in time"),
            Self::Io { kind, code } => write_io(formatter, *kind, *code),
        }
    }
}

/// Writes an error of which these are known: not every one has a number of the system's.
pub(crate) fn write_io(
    formatter: &mut fmt::Formatter<'_>,
    kind: io::ErrorKind,
    code: Option<i32>,
) -> fmt::Result {
    match code {
        Some(code) => write!(formatter, "{}", io::Error::from_raw_os_error(code)),
        None => write!(formatter, "{kind}"),
    }
}
