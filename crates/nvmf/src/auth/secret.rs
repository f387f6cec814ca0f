//! A secret of DH-HMAC-CHAP, and the key that is made from it.
//!
//! People keep it in the interchange form `DHHC-1:TT:BASE64:`: TT is the transformation, and the
//! bytes are the secret and its CRC-32.

use std::fmt;
use std::str::FromStr;

use weft_nvme::Nqn;

use super::hash::{HashFunction, SecretBytes};
use crate::keys::interchange::{self, ParseKeyError, SecretText};

/// What the key of a name is made with besides the name.
const TRANSFORM: &[u8] = b"NVMe-over-Fabrics";

/// A secret that a host and a subsystem share. It authenticates the host, or the controller.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    bytes: SecretBytes,
    transform: Option<HashFunction>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Secret").finish_non_exhaustive()
    }
}

impl Secret {
    /// A secret of 32, 48 or 64 bytes; with a hash function it is used only after a transformation
    /// that binds it to the name of its owner.
    #[must_use]
    pub fn new(bytes: &[u8], transform: Option<HashFunction>) -> Option<Self> {
        let bytes = SecretBytes::from(bytes.to_vec());
        matches!(bytes.len(), 32 | 48 | 64).then_some(Self { bytes, transform })
    }

    /// The hash function of its transformation.
    #[must_use]
    pub const fn hash(&self) -> Option<HashFunction> {
        self.transform
    }

    /// Its length in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    /// The interchange form.
    #[must_use]
    pub fn text(&self) -> SecretText {
        interchange::write(interchange::DHCHAP, self.transform, &self.bytes)
    }

    /// The key of the secret's owner: the host, or for the controller's secret the subsystem.
    pub(super) fn key_of(&self, owner: &Nqn) -> SecretBytes {
        match self.transform {
            None => self.bytes.clone(),
            Some(hash) => hash.hmac(&self.bytes, &[owner.as_str().as_bytes(), TRANSFORM]),
        }
    }
}

impl FromStr for Secret {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        let (transform, bytes) = interchange::parse(interchange::DHCHAP, text)?;
        Self::new(&bytes, transform).ok_or(ParseKeyError::Length(bytes.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As nvme-cli accepts it.
    const TEXT: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

    #[test]
    fn the_interchange_form() {
        let bytes: Vec<u8> = (0..32).collect();
        let secret = Secret::new(&bytes, Some(HashFunction::Sha256));
        assert_eq!(format!("{TEXT}\n").parse::<Secret>().ok(), secret);
        assert_eq!(secret.as_ref().map(|secret| secret.text().to_string()).as_deref(), Some(TEXT));
        for (wrong, why) in [
            ("NVMeTLSkey-1:01:AAECAwQF:", "begins with"),
            (&TEXT.replace(":01:", ":04:"), "two digits"),
            ("DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=:", "checksum"),
        ] {
            let error = wrong.parse::<Secret>().expect_err(why).to_string();
            assert!(error.contains(why), "{wrong}: {error}");
            assert!(!error.contains("AA"), "nothing of the secret: {error}");
        }
    }
}
