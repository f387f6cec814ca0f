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
mod fault;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(any(test, feature = "tls", feature = "fuzzing"))]
mod hello;
mod kernel;

use std::fmt;
use std::sync::{Arc, OnceLock};

use weft_nvmf::keys::TlsPsk;
pub use weft_nvmf::keys::{TlsMode, TlsRecords};
use weft_reactor::Message;

pub(crate) use engine::Engine;
pub use fault::TlsFault;
pub(crate) use kernel::{KernelRecords, TlsSecrets, kernel_has};

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

/// Initializes the library, which takes a tenth of the time while the process has no other thread.
pub fn initialize() {
    engine::initialize();
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
