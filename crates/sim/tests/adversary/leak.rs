//! Secrets in text, however they are written.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use weft_nvmf::keys::{Derivation, IdentityVersion, TlsKey};

/// So many bytes of a secret in a row are a leak.
const BYTES: usize = 8;

/// Every part of keys in their interchange form, and of the PSKs that are derived from those of TLS
/// for these names of a host and a subsystem, as a log could have it.
pub(crate) fn patterns(keys: &[&str], names: &[(&str, &str)]) -> BTreeSet<Vec<u8>> {
    let mut patterns = BTreeSet::new();
    for key in keys {
        let value = key.split(':').nth(2).expect("three parts");
        // From the middle of a key on as well.
        let parts = (0..value.len() - 10).map(|at| value.as_bytes()[at..at + 10].to_vec());
        patterns.extend(parts);
        add(&mut patterns, &STANDARD.decode(value).expect("base64"));
        let Ok(key) = key.parse::<TlsKey>() else { continue };
        for (host, subsystem) in names {
            for version in [IdentityVersion::V0, IdentityVersion::V1] {
                let psk = key.psk(version, Derivation::Standard, host, subsystem);
                add(&mut patterns, &psk.expect("short names").secret);
            }
        }
    }
    patterns
}

/// Each part of a secret: as it is, in hexadecimal, in decimal as Debug has it, and in base64; from
/// its end as well, as numbers with the lowest byte first are written.
fn add(patterns: &mut BTreeSet<Vec<u8>>, secret: &[u8]) {
    let reversed: Vec<u8> = secret.iter().rev().copied().collect();
    for part in secret.windows(BYTES).chain(reversed.windows(BYTES)) {
        let joined = |format: fn(&u8) -> String, between: &str| {
            part.iter().map(format).collect::<Vec<_>>().join(between).into_bytes()
        };
        patterns.insert(part.to_vec());
        for between in ["", " ", ":", ", "] {
            patterns.insert(joined(|byte| format!("{byte:02x}"), between));
            patterns.insert(joined(|byte| format!("{byte:02X}"), between));
        }
        patterns.insert(joined(|byte| format!("0x{byte:x}"), ", "));
        patterns.insert(joined(|byte| format!("{byte:x}"), ", "));
        patterns.insert(joined(|byte| format!("{byte}"), ", "));
        // The last digit depends on what follows.
        let text = STANDARD.encode(part).into_bytes();
        patterns.insert(text[..10].to_vec());
    }
}

/// The first line that has one of these.
pub(crate) fn leak<'a>(lines: &'a [String], patterns: &BTreeSet<Vec<u8>>) -> Option<&'a str> {
    // All begin with parts of the same few lengths, so that one look suffices for each place.
    let lengths: BTreeSet<usize> = patterns.iter().map(Vec::len).collect();
    let leaks = |line: &&String| {
        lengths
            .iter()
            .any(|length| line.as_bytes().windows(*length).any(|part| patterns.contains(part)))
    };
    lines.iter().find(leaks).map(String::as_str)
}

#[test]
fn a_secret_is_found_however_it_is_written() {
    let tls = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
    let secret = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    let name = "nqn.2024-01.io.example:a-host";
    let patterns = patterns(&[tls, secret], &[(name, "nqn.2024-01.io.example:disk")]);
    let bytes: Vec<u8> = (0..32).collect();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let psk = tls.parse::<TlsKey>().expect("a key");
    let (version, subsystem) = (IdentityVersion::V1, "nqn.2024-01.io.example:disk");
    let psk = psk.psk(version, Derivation::Standard, name, subsystem).expect("a PSK");
    for leaking in [
        tls.to_owned(),
        format!("x {secret}"),
        format!("{bytes:?}"),
        format!("{:x?}", &bytes[8..24]),
        format!("{:02x?}", &bytes[3..19]),
        hex.clone(),
        hex.to_uppercase(),
        format!("{:016x}", u64::from_le_bytes(*bytes.first_chunk().expect("8 bytes"))),
        String::from_utf8(bytes.clone()).expect("ASCII"),
        format!("psk {}", STANDARD.encode(&*psk.secret)),
        format!("psk {:?}", &**psk.secret),
    ] {
        assert!(leak(std::slice::from_ref(&leaking), &patterns).is_some(), "{leaking}");
    }
    let harmless = format!("{} {} 10.0.0.1:4420 {name}", psk.identity, subsystem);
    assert_eq!(leak(&[harmless], &patterns), None);
}
