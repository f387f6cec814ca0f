//! The PSK of TLS that an exchange makes.

use std::fmt;

use super::hash::{HashFunction, SecretBytes};

/// The TLS PSK that an exchange has made for a secure channel.
///
/// Its key is the hash value of the secret of the DH exchange. Linux before 7.1 takes that secret
/// itself, which is the same: HMAC hashes a key that is longer than a block of its hash function.
#[derive(Clone)]
pub struct GeneratedPsk {
    /// The hash function of the exchange.
    pub hash: HashFunction,
    /// The PSK.
    pub psk: SecretBytes,
}

impl fmt::Debug for GeneratedPsk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("GeneratedPsk").field("hash", &self.hash).finish_non_exhaustive()
    }
}

impl GeneratedPsk {
    pub(super) fn new(hash: HashFunction, shared_secret: &[u8], challenges: [&[u8]; 2]) -> Self {
        Self { hash, psk: hash.hmac(&hash.hash(shared_secret), &challenges) }
    }
}
