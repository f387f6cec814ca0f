//! Why TLS cannot be used, or has ended a connection.

use std::{fmt, io};

use crate::reason::write_io;

/// Why TLS cannot be used, or a connection with it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFault {
    /// This program was built without TLS.
    NotBuilt,
    /// The transport is not TCP.
    NotTcp,
    /// The peer does not speak TLS.
    InTheClear,
    /// The host has offered no PSK that is known here.
    UnknownIdentity,
    /// The host has offered a PSK with a binder of another hash function than the PSK's.
    OtherHash,
    /// The controller has ended the handshake without saying why.
    Ended,
    /// The peer has sent this alert.
    Alert(u8),
    /// The handshake or a record is wrong.
    Library(&'static str),
    /// The kernel, which has the records, has failed.
    Kernel {
        /// The kind of error.
        kind: io::ErrorKind,
        /// The operating system's error number, if it has one.
        code: Option<i32>,
    },
    /// The kernel cannot replace the sending key, of which no more may be used.
    KeyUsedUp,
    /// The peer has renewed its key, and the kernel cannot replace it.
    CannotFollow,
}

impl fmt::Display for TlsFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBuilt => formatter.write_str(
                "this weft was built without TLS (build it with the cargo feature `tls`, or take a \
                 package of docs/install.md)",
            ),
            Self::NotTcp => formatter.write_str("only TCP has TLS"),
            Self::InTheClear => formatter.write_str("the peer does not speak TLS"),
            Self::UnknownIdentity => formatter
                .write_str("TLS: no key is configured for a PSK identity that the host offers"),
            Self::OtherHash => formatter.write_str(
                "TLS: the host uses a PSK with another hash function than its identity says (as \
                 GnuTLS before 3.8.11 does)",
            ),
            Self::Ended => formatter.write_str(
                "the controller has ended the TLS handshake: see that its port has TLS, and that \
                 it has this key for this host and subsystem (its log says more)",
            ),
            Self::Alert(alert) => write!(formatter, "TLS: the peer has sent alert {alert}"),
            Self::Library(what) => write!(formatter, "TLS: {what}"),
            Self::Kernel { kind, code } => {
                formatter.write_str("TLS of the kernel: ")?;
                write_io(formatter, *kind, *code)
            }
            Self::KeyUsedUp => formatter.write_str(
                "TLS: the sending key is used up, and this kernel cannot replace it (Linux 6.14 \
                 can)",
            ),
            Self::CannotFollow => formatter.write_str(
                "TLS: the peer has renewed its key, and this kernel cannot replace it (Linux 6.14 \
                 can)",
            ),
        }
    }
}

impl std::error::Error for TlsFault {}

impl From<io::Error> for TlsFault {
    /// Only the kernel's part of TLS does I/O.
    fn from(error: io::Error) -> Self {
        Self::Kernel { kind: error.kind(), code: error.raw_os_error() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_kernel_without_a_number_is_no_success() {
        let text = |error: io::Error| TlsFault::from(error).to_string();
        let cut = text(io::ErrorKind::WriteZero.into());
        assert_eq!(cut, "TLS of the kernel: write zero");
        let refused = io::Error::from_raw_os_error(rustix::io::Errno::NOPROTOOPT.raw_os_error());
        assert!(text(refused).contains("os error 92"));
    }
}
