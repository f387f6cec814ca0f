//! Harnesses that read arbitrary bytes as a key or as an identity. Fuzz targets and a test share
//! them.

use super::{Derivation, IdentityVersion, Key, TlsIdentity, TlsKey};
use crate::auth::HashFunction;

/// Reads `input` as a key of either form. Panics if an invariant is broken.
pub fn key(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match text.parse::<Key>() {
        Ok(Key::Tls(key)) => {
            assert_eq!(key.text().as_str(), text.trim());
            for version in [IdentityVersion::V0, IdentityVersion::V1] {
                let psk = key.psk(version, Derivation::Standard, "nqn.h", "nqn.s");
                let psk = psk.expect("short names");
                assert_eq!(psk.secret.len(), psk.hash.length());
            }
        }
        Ok(Key::Dhchap(key)) => {
            assert_eq!(key.text().as_str(), text.trim());
        }
        Err(error) => {
            let said = error.to_string();
            let words = text.split(|c: char| !c.is_ascii_alphanumeric());
            for secret in words.filter(|word| word.len() > 10) {
                assert!(!said.contains(secret), "{said}");
            }
        }
    }
}

/// Reads `input` as the identity that a host has sent, for a target with keys of each kind. Panics
/// if a key is found that has another identity.
pub fn identity(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let parsed = TlsIdentity::parse(text);
    let hashes = [Some(HashFunction::Sha256), Some(HashFunction::Sha384), None];
    for hash in hashes {
        let length = hash.map_or(32, HashFunction::length);
        let key = TlsKey::new(hash, vec![7; length].into()).expect("its length fits");
        for derivation in [Derivation::Standard, Derivation::OldLibnvme] {
            if let Some(psk) = key.psk_named(text, derivation) {
                assert_eq!(psk.identity, text);
                assert!(!TlsIdentity::is_generated(text), "its keys are made, not configured");
            }
            let Some(TlsIdentity { version, host, subsystem }) = parsed else { continue };
            // What such a key is called is read as what it is.
            let Some(psk) = key.psk(version, derivation, host, subsystem) else { continue };
            assert_eq!(TlsIdentity::parse(&psk.identity), parsed, "{text}");
        }
    }
}
