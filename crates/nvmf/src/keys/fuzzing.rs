//! A harness that reads arbitrary bytes as a key. The fuzz target and a test share it.

use super::{Derivation, IdentityVersion, Key};

/// Reads `input` as a key of either form. Panics if an invariant is broken.
pub fn key(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match text.parse::<Key>() {
        Ok(Key::Tls(key)) => {
            assert_eq!(key.text().as_str(), text.trim());
            for version in [IdentityVersion::V0, IdentityVersion::V1] {
                let psk = key.psk((version, Derivation::Standard), ("nqn.h", "nqn.s"));
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
