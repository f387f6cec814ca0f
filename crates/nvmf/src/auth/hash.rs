//! The hash functions, and the codes made with them.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use hmac::{Hmac, Mac};
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use weft_nvme::authentication::HashId;
use zeroize::Zeroizing;

/// Bytes that nobody else may know: they are wiped when they are dropped, and not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl From<Vec<u8>> for SecretBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

impl Deref for SecretBytes {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SecretBytes").finish_non_exhaustive()
    }
}

/// A hash function of DH-HMAC-CHAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HashFunction {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

/// Runs an expression with the type of the hash function.
macro_rules! with_type {
    ($function:expr, $type:ident => $what:expr) => {
        match $function {
            HashFunction::Sha256 => {
                type $type = Sha256;
                $what
            }
            HashFunction::Sha384 => {
                type $type = Sha384;
                $what
            }
            HashFunction::Sha512 => {
                type $type = Sha512;
                $what
            }
        }
    };
}

impl HashFunction {
    /// All of them, in the order of their identifiers.
    pub const ALL: [Self; 3] = [Self::Sha256, Self::Sha384, Self::Sha512];

    /// The longest hash value.
    pub const LENGTH_MAX: usize = 64;

    /// Its identifier.
    #[must_use]
    pub const fn id(self) -> HashId {
        match self {
            Self::Sha256 => HashId::SHA_256,
            Self::Sha384 => HashId::SHA_384,
            Self::Sha512 => HashId::SHA_512,
        }
    }

    /// The function of an identifier.
    #[must_use]
    pub fn of(id: HashId) -> Option<Self> {
        Self::ALL.into_iter().find(|function| function.id() == id)
    }

    /// Bytes of a hash value.
    #[must_use]
    pub const fn length(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// The hash value of bytes.
    #[must_use]
    pub fn hash(self, bytes: &[u8]) -> SecretBytes {
        with_type!(self, Function => Function::digest(bytes).to_vec().into())
    }

    /// The HMAC with this key of bytes in pieces.
    #[must_use]
    pub fn hmac(self, key: &[u8], pieces: &[&[u8]]) -> SecretBytes {
        with_type!(self, Function => {
            let code = keyed::<Hmac<Function>>(key, pieces).map(|code| code.finalize());
            let bytes = code.map(|code| code.into_bytes().to_vec());
            bytes.unwrap_or_default().into()
        })
    }

    /// Whether `code` is the HMAC with this key of bytes in pieces. It takes the same time wherever
    /// the two differ.
    #[must_use]
    pub fn verify(self, key: &[u8], pieces: &[&[u8]], code: &[u8]) -> bool {
        with_type!(self, Function => {
            keyed::<Hmac<Function>>(key, pieces).is_some_and(|own| own.verify_slice(code).is_ok())
        })
    }
}

/// A code that has taken in all pieces. HMAC takes keys of any length, so there always is one.
fn keyed<C: Mac + hmac::digest::KeyInit>(key: &[u8], pieces: &[&[u8]]) -> Option<C> {
    let mut code = <C as Mac>::new_from_slice(key).ok()?;
    for piece in pieces {
        code.update(piece);
    }
    Some(code)
}

impl fmt::Display for HashFunction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        })
    }
}

impl FromStr for HashFunction {
    type Err = String;

    /// The names of SPDK (`sha256`) and of Linux (`hmac(sha256)`).
    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.strip_prefix("hmac(").and_then(|rest| rest.strip_suffix(')'));
        let name = name.unwrap_or(text);
        let found = Self::ALL.into_iter().find(|function| function.to_string() == name);
        found.ok_or_else(|| format!("{text:?} is not a hash function: sha256, sha384 or sha512"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_identifiers() {
        for function in HashFunction::ALL {
            assert_eq!(function.to_string().parse(), Ok(function));
            assert_eq!(format!("hmac({function})").parse(), Ok(function));
            assert_eq!(HashFunction::of(function.id()), Some(function));
            assert_eq!(function.hash(b"a").len(), function.length());
            assert_eq!(function.hmac(b"k", &[b"a"]).len(), function.length());
        }
        assert_eq!(HashFunction::of(HashId(4)), None);
        "md5".parse::<HashFunction>().expect_err("md5");
    }

    #[test]
    fn nothing_of_a_secret_is_printed() {
        assert_eq!(format!("{:?}", HashFunction::Sha256.hash(b"a")), "SecretBytes { .. }");
    }

    /// Test case 2 of RFC 4231.
    #[test]
    fn a_code_of_rfc_4231() {
        let pieces: [&[u8]; 2] = [b"what do ya want ", b"for nothing?"];
        let expected = crate::auth::tests::hex(
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        );
        let function = HashFunction::Sha256;
        assert_eq!(*function.hmac(b"Jefe", &pieces), expected);
        assert!(function.verify(b"Jefe", &pieces, &expected));
        for position in 0..expected.len() {
            let mut wrong = expected.clone();
            wrong[position] ^= 1;
            assert!(!function.verify(b"Jefe", &pieces, &wrong));
        }
        assert!(!function.verify(b"Jefe", &pieces, &expected[..31]), "too short");
    }
}
