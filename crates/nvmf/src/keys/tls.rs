//! PSKs of TLS: configured, retained, and those that a handshake uses.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hkdf::{Hkdf, InvalidLength};
use sha2::{Sha256, Sha384};

use super::interchange::{self, ParseKeyError, SecretText};
use crate::auth::{GeneratedPsk, HashFunction, SecretBytes};

/// How keys are derived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Derivation {
    /// By HKDF-Expand-Label of RFC 8446.
    #[default]
    Standard,
    /// As libnvme before 1.16 did: its label has a little-endian length, and labels and contexts
    /// have no length of their own.
    OldLibnvme,
}

/// The version of a PSK identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum IdentityVersion {
    /// The names of host and subsystem.
    V0 = 0,
    /// The same with a digest of the PSK.
    V1 = 1,
}

/// A configured PSK.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsKey {
    /// The hash that makes the retained PSK; none: this is the retained PSK.
    hash: Option<HashFunction>,
    secret: SecretBytes,
}

/// Whether a port takes connections with TLS, and without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Only without.
    #[default]
    Off,
    /// Both. Somebody on the way to the host can make it the same as [`TlsMode::Off`].
    Allowed,
    /// Only with.
    Required,
}

impl TlsMode {
    /// Its name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Allowed => "allowed",
            Self::Required => "required",
        }
    }
}

impl fmt::Display for TlsMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TlsMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Off, Self::Allowed, Self::Required];
        let found = all.into_iter().find(|mode| mode.name() == text);
        found.ok_or_else(|| format!("{text:?} is not required, allowed or off"))
    }
}

/// Who makes and reads the records of connections with TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsRecords {
    /// This program.
    #[default]
    User,
    /// The kernel, once the handshake is over.
    Kernel,
}

impl TlsRecords {
    /// Its name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Kernel => "kernel",
        }
    }

    /// Where they are made, for a log.
    #[must_use]
    pub const fn place(self) -> &'static str {
        match self {
            Self::User => "user space",
            Self::Kernel => "the kernel",
        }
    }
}

impl fmt::Display for TlsRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TlsRecords {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = [Self::User, Self::Kernel].into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| format!("{text:?} is not user or kernel"))
    }
}

/// What the identity of a PSK says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsIdentity<'a> {
    /// Its version.
    pub version: IdentityVersion,
    /// The NQN of the host.
    pub host: &'a str,
    /// The NQN of the subsystem.
    pub subsystem: &'a str,
}

impl<'a> TlsIdentity<'a> {
    /// Reads an identity; none if it is not one of NVMe. Whether a key has it is another question.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut words = text.split(' ');
        let version = match words.next()?.strip_prefix("NVMe")?.as_bytes() {
            [b'0', ..] => IdentityVersion::V0,
            [b'1', ..] => IdentityVersion::V1,
            _ => return None,
        };
        Some(Self { version, host: words.next()?, subsystem: words.next()? })
    }

    /// Whether an identity is of a key that an authentication has made.
    #[must_use]
    pub fn is_generated(text: &str) -> bool {
        text.starts_with("NVMe1G")
    }
}

/// A PSK for the handshakes of one host with one subsystem.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsPsk {
    /// Its identity, which the host sends.
    pub identity: String,
    /// The hash of the cipher suite that it is for.
    pub hash: HashFunction,
    /// The PSK.
    pub secret: SecretBytes,
}

impl TlsKey {
    /// A PSK, and the hash that makes the retained PSK of it; none: it is the retained PSK.
    ///
    /// # Errors
    /// It has another length than the hash, or no hash of TLS has its length.
    pub fn new(hash: Option<HashFunction>, secret: SecretBytes) -> Result<Self, ParseKeyError> {
        let len = secret.len();
        let fits = match hash {
            Some(HashFunction::Sha512) => return Err(ParseKeyError::Hash),
            Some(hash) => len == hash.length(),
            None => suite_hash(len).is_some(),
        };
        if fits { Ok(Self { hash, secret }) } else { Err(ParseKeyError::Length(len)) }
    }

    /// The hash that makes the retained PSK.
    #[must_use]
    pub const fn hash(&self) -> Option<HashFunction> {
        self.hash
    }

    /// Its length in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.secret.len()
    }

    /// The interchange form.
    #[must_use]
    pub fn text(&self) -> SecretText {
        interchange::write(interchange::TLS, self.hash, &self.secret)
    }

    /// The retained PSK of a host.
    #[must_use]
    pub fn retained(&self, derivation: Derivation, host: &str) -> SecretBytes {
        match self.hash {
            Some(hash) => derivation.expand(hash, &self.secret, b"HostNQN", host.as_bytes()),
            None => self.secret.clone(),
        }
    }

    /// The PSK that has this identity; none: it is not one of this key's.
    #[must_use]
    pub fn psk_named(&self, identity: &str, derivation: Derivation) -> Option<TlsPsk> {
        let TlsIdentity { version, host, subsystem } = TlsIdentity::parse(identity)?;
        let psk = self.psk(version, derivation, host, subsystem);
        psk.filter(|psk| psk.identity == identity)
    }

    /// The PSK with which a host and a subsystem make a handshake; none for an identity of
    /// version 0 that is longer than a label's context can be (255 bytes).
    #[must_use]
    pub fn psk(
        &self,
        version: IdentityVersion,
        derivation: Derivation,
        host: &str,
        subsystem: &str,
    ) -> Option<TlsPsk> {
        // A key without a hash is for the suite whose hash has its length.
        let hash = self.hash.or_else(|| suite_hash(self.secret.len()))?;
        let retained = self.retained(derivation, host);
        match version {
            IdentityVersion::V0 => {
                let identity = format!("NVMe0R{:02} {host} {subsystem}", hash.id().0);
                u8::try_from(identity.len()).ok()?;
                let secret = derivation.expand(hash, &retained, LABEL, identity.as_bytes());
                Some(TlsPsk { identity, hash, secret })
            }
            IdentityVersion::V1 => {
                Some(TlsPsk::of_retained('R', hash, derivation, &retained, host, subsystem))
            }
        }
    }
}

const LABEL: &[u8] = b"nvme-tls-psk";

/// The hash of the cipher suite for keys of this length.
fn suite_hash(len: usize) -> Option<HashFunction> {
    [HashFunction::Sha256, HashFunction::Sha384].into_iter().find(|hash| hash.length() == len)
}

impl TlsPsk {
    /// The PSK for the connection after an authentication, from what that has generated; none if
    /// its hash function has no cipher suite.
    #[must_use]
    pub fn generated(generated: &GeneratedPsk, host: &str, subsystem: &str) -> Option<Self> {
        let GeneratedPsk { hash, psk } = generated;
        let hash = suite_hash(hash.length())?;
        Some(Self::of_retained('G', hash, Derivation::Standard, psk, host, subsystem))
    }

    /// With an identity of version 1.
    fn of_retained(
        kind: char,
        hash: HashFunction,
        derivation: Derivation,
        retained: &[u8],
        host: &str,
        subsystem: &str,
    ) -> Self {
        let message = format!("{host} {subsystem} NVMe-over-Fabrics");
        let digest = STANDARD.encode(&*hash.hmac(retained, &[message.as_bytes()]));
        let id = hash.id().0;
        let context = format!("{id:02} {digest}");
        Self {
            identity: format!("NVMe1{kind}{id:02} {host} {subsystem} {digest}"),
            hash,
            secret: derivation.expand(hash, retained, LABEL, context.as_bytes()),
        }
    }
}

/// Before each label of TLS 1.3.
const PREFIX: &[u8] = b"tls13 ";

impl Derivation {
    /// HKDF-Extract with a salt of zeros, then HKDF-Expand-Label, to the length of the hash.
    /// Contexts are at most 255 bytes long.
    fn expand(self, hash: HashFunction, key: &[u8], label: &[u8], context: &[u8]) -> SecretBytes {
        self.labelled(hash.length(), label, context, |info, out| match hash {
            HashFunction::Sha256 => Hkdf::<Sha256>::new(None, key).expand_multi_info(info, out),
            // No key of TLS has SHA-512.
            HashFunction::Sha384 | HashFunction::Sha512 => {
                Hkdf::<Sha384>::new(None, key).expand_multi_info(info, out)
            }
        })
    }

    /// What this expands to with the information of HKDF-Expand-Label.
    fn labelled(
        self,
        length: usize,
        label: &[u8],
        context: &[u8],
        expand: impl FnOnce(&[&[u8]], &mut [u8]) -> Result<(), InvalidLength>,
    ) -> SecretBytes {
        let short = |len: usize| u8::try_from(len).unwrap_or(u8::MAX);
        let len = u16::from(short(length));
        let label_len = [short(PREFIX.len() + label.len())];
        let context_len = [short(context.len())];
        let (big, little) = (len.to_be_bytes(), len.to_le_bytes());
        let standard = [&big, &label_len[..], PREFIX, label, &context_len, context];
        let old = [&little[..], PREFIX, label, context];
        let info: &[&[u8]] = match self {
            Self::Standard => &standard,
            Self::OldLibnvme => &old,
        };
        let mut out = vec![0; length];
        let expanded = expand(info, &mut out);
        // It fails for more than 255 times the length of the hash.
        debug_assert!(expanded.is_ok());
        out.into()
    }
}

/// The secret of one direction of a connection with TLS, from which its key follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficSecret {
    hash: HashFunction,
    secret: SecretBytes,
}

impl TrafficSecret {
    /// One of a cipher suite with SHA-256 or SHA-384; none if it has not that hash's length.
    #[must_use]
    pub fn new(secret: SecretBytes) -> Option<Self> {
        suite_hash(secret.len()).map(|hash| Self { hash, secret })
    }

    /// The key, of this length.
    #[must_use]
    pub fn key(&self, length: usize) -> SecretBytes {
        self.expand(b"key", length)
    }

    /// What nonces are made from.
    #[must_use]
    pub fn iv(&self) -> SecretBytes {
        self.expand(b"iv", 12)
    }

    /// The secret after KeyUpdate.
    #[must_use]
    pub fn next(&self) -> Self {
        Self { hash: self.hash, secret: self.expand(b"traffic upd", self.hash.length()) }
    }

    /// HKDF-Expand-Label without a context; the secret is that of an HKDF-Extract already.
    fn expand(&self, label: &[u8], length: usize) -> SecretBytes {
        let invalid = |_| InvalidLength;
        Derivation::Standard.labelled(length, label, &[], |info, out| match self.hash {
            HashFunction::Sha256 => Hkdf::<Sha256>::from_prk(&self.secret)
                .map_err(invalid)?
                .expand_multi_info(info, out),
            HashFunction::Sha384 | HashFunction::Sha512 => Hkdf::<Sha384>::from_prk(&self.secret)
                .map_err(invalid)?
                .expand_multi_info(info, out),
        })
    }
}

impl fmt::Debug for TlsKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TlsKey").field("hash", &self.hash).finish_non_exhaustive()
    }
}

impl fmt::Debug for TlsPsk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TlsPsk").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl FromStr for TlsKey {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        let (hash, secret) = interchange::parse(interchange::TLS, text)?;
        Self::new(hash, secret)
    }
}
