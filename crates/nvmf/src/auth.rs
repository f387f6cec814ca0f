//! DH-HMAC-CHAP, in-band authentication: both ends of an exchange as state machines.
//!
//! ```text
//!   host                                  controller
//!   Negotiate: hash functions, groups ──▶
//!                                     ◀── Challenge: C1, the controller's DH value
//!   Reply: R1, C2, the host's DH value ─▶ checks R1
//!                                     ◀── Success1: R2, if the host has sent a challenge C2
//!   checks R2: Success2 ────────────────▶
//! ```
//!
//! The host sends each message with Authentication Send and fetches the controller's with
//! Authentication Receive. In place of a message each side may send a failure, which ends the
//! exchange and the connection. A response is the HMAC, with the key made from the secret, of the
//! challenge and the names; with a DH group the challenge is first combined with the secret of
//! the exchange.
//!
//! [`target::Authenticator`] is a queue's end at the controller, [`host::Authenticator`] at the
//! host. Neither reads random bytes ([`Random`] is an argument) nor computes powers in the
//! target's poll group ([`target::Work`]).

#[cfg(test)]
mod attack;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod generated;
mod group;
mod hash;
pub mod host;
mod message;
mod primes;
mod response;
mod secret;
pub mod target;

pub use generated::GeneratedPsk;
pub use group::{EXPONENT_BYTES, Group};
pub use hash::{HashFunction, SecretBytes};
pub use response::Names;
pub use secret::Secret;

use std::sync::Arc;

use zeroize::Zeroize as _;

/// What a host has to prove at a subsystem, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The host's secret.
    pub secret: Secret,
    /// The controller's, by which it authenticates itself to hosts that ask for it.
    pub controller_secret: Option<Secret>,
    /// Hash functions, the preferred one first.
    pub hashes: Arc<[HashFunction]>,
    /// DH groups, the preferred one first.
    pub groups: Arc<[Group]>,
    /// Secure concatenation is required: the exchange makes a key of TLS, or TLS is there already.
    pub requires_channel: bool,
    /// The host expects the controller's response as Linux before 7.1 does: without SC_C.
    pub old_channel: bool,
}

impl Policy {
    /// Every hash function and group is allowed, in the default order.
    #[must_use]
    pub fn new(secret: Secret, controller_secret: Option<Secret>) -> Self {
        let (hashes, groups) = (default_hashes().into(), default_groups().into());
        let (requires_channel, old_channel) = (false, false);
        Self { secret, controller_secret, hashes, groups, requires_channel, old_channel }
    }
}

/// The order of hash functions unless another one is given.
#[must_use]
pub const fn default_hashes() -> [HashFunction; 3] {
    [HashFunction::Sha256, HashFunction::Sha384, HashFunction::Sha512]
}

/// The order of groups unless another one is given.
#[must_use]
pub const fn default_groups() -> [Group; 6] {
    [
        Group::Ffdhe2048,
        Group::Ffdhe3072,
        Group::Ffdhe4096,
        Group::Ffdhe6144,
        Group::Ffdhe8192,
        Group::Null,
    ]
}

/// The random bytes of one side of an exchange.
#[derive(Clone)]
pub struct Random([u8; Self::LENGTH]);

impl Drop for Random {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl std::fmt::Debug for Random {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Random").finish_non_exhaustive()
    }
}

impl Random {
    /// How many there are: a challenge, an exponent, a sequence number.
    pub const LENGTH: usize = HashFunction::LENGTH_MAX + EXPONENT_BYTES + 4;

    /// Random bytes, which must come from a source fit for keys, and are used only here.
    #[must_use]
    pub const fn new(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }

    fn challenge(&self, hash: HashFunction) -> Vec<u8> {
        self.0.get(..hash.length()).unwrap_or_default().to_vec()
    }

    fn exponent(&self) -> SecretBytes {
        let bytes = self.0.get(HashFunction::LENGTH_MAX..).unwrap_or_default();
        bytes.get(..EXPONENT_BYTES).unwrap_or_default().to_vec().into()
    }

    /// A transaction identifier from bytes that are used for nothing else.
    pub(crate) fn transaction_id(&self) -> u16 {
        let [a, b, ..] = self.0;
        u16::from_le_bytes([a, b])
    }

    /// Not zero, which has a meaning of its own.
    fn sequence(&self) -> u32 {
        let [.., a, b, c, d] = self.0;
        u32::from_le_bytes([a, b, c, d]).max(1)
    }
}

#[cfg(test)]
mod tests;
