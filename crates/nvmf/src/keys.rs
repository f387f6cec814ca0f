//! Keys of hosts and subsystems in their interchange forms, and the PSKs of TLS.
//!
//! * [`TlsKey`], `NVMeTLSkey-1:HH:…:`: a configured PSK, from which a [`TlsPsk`] is derived for
//!   each pair of a host and a subsystem.
//! * [`crate::auth::Secret`], `DHHC-1:TT:…:`: a secret of DH-HMAC-CHAP.
//!
//! Both forms are one code: the key and its CRC-32 in base64 (module `interchange`).
//!
//! Invariants: a secret is wiped when it is dropped; `Debug` does not show it, and no error repeats
//! its text.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub(crate) mod interchange;
#[cfg(test)]
mod tests;
mod tls;

use std::str::FromStr;

pub use interchange::{ParseKeyError, SecretText};
pub use tls::{
    Derivation, IdentityVersion, TlsIdentity, TlsKey, TlsMode, TlsPsk, TlsRecords, TrafficSecret,
};

use crate::auth::Secret;

/// A key of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// A configured PSK of TLS.
    Tls(TlsKey),
    /// A secret of DH-HMAC-CHAP.
    Dhchap(Secret),
}

impl FromStr for Key {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        let text = text.trim();
        if text.starts_with(interchange::TLS.family) {
            text.parse().map(Self::Tls)
        } else if text.starts_with(interchange::DHCHAP.family) {
            text.parse().map(Self::Dhchap)
        } else {
            Err(ParseKeyError::Prefix)
        }
    }
}
