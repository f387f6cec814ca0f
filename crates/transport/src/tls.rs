//! TLS 1.3 with pre-shared keys, for the TCP transport.
//!
//! [`TlsAcceptor`] is a target's side, [`TlsConnector`] a host's. Neither has certificates, session
//! tickets or an earlier version of TLS. The layer between a socket and its session
//! (`tcp::layer`) moves bytes; the library beneath it (module `engine`) never sees a socket. After
//! the handshake the records can be the kernel's (module `kernel`).
//!
//! Without the cargo feature `tls` neither of the two can be made, and the rest is not reachable.

#[cfg_attr(not(feature = "tls"), path = "tls/absent.rs")]
mod engine;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(any(test, feature = "tls", feature = "fuzzing"))]
mod hello;
mod kernel;

use std::sync::{Arc, OnceLock};
use std::{fmt, io};

use weft_nvmf::keys::TlsPsk;
pub use weft_nvmf::keys::{TlsMode, TlsRecords};
use weft_reactor::Message;

use crate::reason::write_io;
pub(crate) use engine::Engine;
pub(crate) use kernel::{HandedOver, KernelRecords, kernel_has};

/// After so many bytes the sending key is renewed: far fewer than AES-GCM allows.
const KEY_BYTES: u64 = 1 << 34;

/// The environment variable that has fewer bytes than that, for tests.
pub const KEY_BYTES_VARIABLE: &str = "WEFT_TLS_KEY_BYTES";

/// After how many bytes the sending key is renewed.
pub(crate) fn key_bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let set = std::env::var(KEY_BYTES_VARIABLE).ok().and_then(|bytes| bytes.parse().ok());
        set.map_or(KEY_BYTES, |bytes: u64| bytes.min(KEY_BYTES))
    })
}

/// The received bytes that the library may take, of which it leaves the rest, and where it puts
/// what is to be sent.
pub(crate) type Wire<'w, 'r> = (&'w mut &'r [u8], &'w mut Message);

/// Finds the PSK of an identity that a host offers.
pub type FindPsk = Arc<dyn Fn(&str) -> Option<TlsPsk> + Send + Sync>;

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
                "this weft was built without TLS (build it with the cargo feature `tls`)",
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

/// Initializes the library, which takes a tenth of the time while the process has no other thread.
pub fn initialize() {
    engine::initialize();
}

impl std::error::Error for TlsFault {}

impl From<io::Error> for TlsFault {
    /// Only the kernel's part of TLS does I/O.
    fn from(error: io::Error) -> Self {
        Self::Kernel { kind: error.kind(), code: error.raw_os_error() }
    }
}

/// A target's side of TLS: it has a PSK for each host that may connect.
#[derive(Clone)]
pub struct TlsAcceptor {
    config: engine::Config,
    /// That of connections whose records the kernel gets.
    exporting: engine::Config,
}

impl TlsAcceptor {
    /// One that looks up the PSKs of hosts with this.
    ///
    /// # Errors
    /// This program was built without TLS, or the library fails.
    pub fn new(find: FindPsk) -> Result<Self, TlsFault> {
        let config = engine::acceptor(Arc::clone(&find), TlsRecords::User)?;
        Ok(Self { config, exporting: engine::acceptor(find, TlsRecords::Kernel)? })
    }

    pub(crate) const fn config(&self, records: TlsRecords) -> &engine::Config {
        match records {
            TlsRecords::User => &self.config,
            TlsRecords::Kernel => &self.exporting,
        }
    }
}

/// A host's side of TLS.
#[derive(Clone)]
pub struct TlsConnector {
    pub(crate) config: engine::Config,
    pub(crate) records: TlsRecords,
    pub(crate) psks: Arc<[TlsPsk]>,
}

impl TlsConnector {
    /// One that offers these PSKs, the preferred one first.
    ///
    /// # Errors
    /// This program was built without TLS, or the library fails.
    pub fn new(psks: Vec<TlsPsk>, records: TlsRecords) -> Result<Self, TlsFault> {
        let config = engine::connector(&psks, records)?;
        Ok(Self { config, records, psks: psks.into() })
    }

    /// The same with the last of its PSKs; none if it has no other.
    #[must_use]
    pub fn last_alone(&self) -> Option<Self> {
        match &*self.psks {
            [_, .., last] => Self::new(vec![last.clone()], self.records).ok(),
            _ => None,
        }
    }
}

impl fmt::Debug for TlsAcceptor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TlsAcceptor").finish_non_exhaustive()
    }
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TlsConnector").field("psks", &self.psks).finish_non_exhaustive()
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
