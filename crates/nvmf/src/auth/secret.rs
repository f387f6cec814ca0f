//! A secret of DH-HMAC-CHAP, and the key that is made from it.
//!
//! People keep it in the interchange form `DHHC-1:TT:BASE64:`: TT is the transformation, and the
//! bytes are the secret and its CRC-32.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use weft_nvme::Nqn;
use zeroize::Zeroizing;

use super::hash::{HashFunction, SecretBytes};

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

    /// The key of the secret's owner: the host, or for the controller's secret the subsystem.
    pub(super) fn key_of(&self, owner: &Nqn) -> SecretBytes {
        match self.transform {
            None => self.bytes.clone(),
            Some(hash) => hash.hmac(&self.bytes, &[owner.as_str().as_bytes(), TRANSFORM]),
        }
    }
}

/// A text is not a secret in interchange form. The text is not repeated: it may be nearly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseSecretError(&'static str);

impl fmt::Display for ParseSecretError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "it is not a DH-HMAC-CHAP secret as `nvme gen-dhchap-key` prints it: {}",
            self.0
        )
    }
}

impl std::error::Error for ParseSecretError {}

impl FromStr for Secret {
    type Err = ParseSecretError;

    fn from_str(text: &str) -> Result<Self, ParseSecretError> {
        let rest = text.trim().strip_prefix("DHHC-1:");
        let rest = rest.ok_or(ParseSecretError("it does not begin with DHHC-1:"))?;
        let parts = rest.strip_suffix(':').and_then(|rest| rest.split_once(':'));
        let (transform, encoded) = parts.ok_or(ParseSecretError("a colon is missing"))?;
        let transform = match transform {
            "00" => None,
            "01" => Some(HashFunction::Sha256),
            "02" => Some(HashFunction::Sha384),
            "03" => Some(HashFunction::Sha512),
            _ => return Err(ParseSecretError("its hash function is not one of 00 to 03")),
        };
        let decoded = BASE64_STANDARD.decode(encoded).map(Zeroizing::new);
        let decoded = decoded.map_err(|_| ParseSecretError("it is not valid base64"))?;
        let (bytes, check) =
            decoded.split_last_chunk::<4>().ok_or(ParseSecretError("it is too short"))?;
        let secret =
            Self::new(bytes, transform).ok_or(ParseSecretError("it has not 32, 48 or 64 bytes"))?;
        if crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, bytes)
            != u32::from_le_bytes(*check).into()
        {
            return Err(ParseSecretError("its check sum is wrong"));
        }
        Ok(secret)
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
        for (wrong, why) in [
            ("", "does not begin"),
            ("NVMeTLSkey-1:01:AAECAwQF:", "does not begin"),
            (&TEXT[..TEXT.len() - 1], "colon"),
            (&TEXT.replace(":01:", ":04:"), "hash function"),
            (&TEXT.replace("AAEC", "AA*C"), "base64"),
            (&TEXT.replace("AAEC", "AAED"), "check sum"),
            ("DHHC-1:00:AAEC:", "too short"),
            ("DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=:", "32, 48 or 64"),
        ] {
            let error = wrong.parse::<Secret>().expect_err(why).to_string();
            assert!(error.contains(why), "{wrong}: {error}");
            assert!(!error.contains("AA"), "nothing of the secret: {error}");
        }
    }
}
