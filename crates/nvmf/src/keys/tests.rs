//! The vectors of the formats, and what is refused.

use proptest::prelude::*;
use weft_nvme::authentication::HashId;

use super::*;
use crate::auth::{GeneratedPsk, HashFunction, SecretBytes};

const HOST: &str = "nqn.psk-test-host";
const SUBSYSTEM: &str = "nqn.psk-test-subsys";
const TLS: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
const DHCHAP: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

fn secret(bytes: &[u8]) -> SecretBytes {
    bytes.to_vec().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn psk(key: &TlsKey, version: IdentityVersion) -> TlsPsk {
    key.psk(version, Derivation::Standard, HOST, SUBSYSTEM).expect("short names")
}

#[test]
fn a_tls_psk_is_derived_as_libnvme_and_the_kernel_derive_it() {
    let key: TlsKey = TLS.parse().expect("a key");
    assert_eq!(key.hash(), Some(HashFunction::Sha256));
    assert_eq!(
        hex(&key.retained(Derivation::Standard, HOST)),
        "073311dec37e219ff3acd43f130130c5bdd443c066e1cc3424e49030234ff7d5"
    );
    let first = psk(&key, IdentityVersion::V0);
    assert_eq!(first.identity, format!("NVMe0R01 {HOST} {SUBSYSTEM}"));
    assert_eq!(
        hex(&first.secret),
        "05c6503551ad136e6ee32e6eeb3f6d500b69701d84ec71e328f65c7f51566f68"
    );
    let second = psk(&key, IdentityVersion::V1);
    let digest = "iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU=";
    assert_eq!(second.identity, format!("NVMe1R01 {HOST} {SUBSYSTEM} {digest}"));
    assert_eq!(
        hex(&second.secret),
        "8fc3c0badfd4c0c66fa3ca33aadd0314f85536cc9bc47338b60f3e6e563786ca"
    );
}

/// The values that the kernel's own test of secure concatenation has: the session key is `A`, `B`,
/// …, the challenges are 0, 1, … and 255, 254, ….
#[test]
fn a_generated_psk_is_derived_as_the_kernel_derives_it() {
    let ascending = |first: u8| -> Vec<u8> { (0..64).map(|n| first + n).collect() };
    let (session, one) = (ascending(b'A'), ascending(0));
    let two: Vec<u8> = (0..64).map(|n| 255 - n).collect();
    let vectors = [
        (
            HashFunction::Sha256,
            "1733c59fa7f48fcf37f5f26fc4ff0268ad4f78e030f4f3b0bfd1d47e7bb1447a",
            "OldoKuTfKddMuyCznAZojkWD7P4D9/AtzDzLimtOxqI=",
            "3c17da628474a04d2247c4cab47968c915388193f7c071bd9489cc3666cd7cc8",
        ),
        (
            HashFunction::Sha384,
            "f14b2dd3234c459694d3bc63f8968bd6b37c2c6de849e22e11874900\
             1ce4bbe8640b9e3a748cb11ce4b1d71d359cce39",
            "cffMWk8TSS7HOQebjgYEIkrPrjWPV4JE5cdPB8WhEvY4JBW5YynKyv66XscN4A9n",
            "2774753233537b3fa50eb7d16a8e43457d85f4906c005b2236616c5d\
             80939d0898fff15bb8b77119d2be0aac423e7590",
        ),
    ];
    for (hash, generated, digest, tls) in vectors {
        let len = hash.length();
        let psk = hash.hmac(&session[..len], &[&one[..len], &two[..len]]);
        assert_eq!(hex(&psk), generated);
        let psk = TlsPsk::generated(&GeneratedPsk { hash, psk }, "hostnqn", "subsysnqn");
        let psk = psk.expect("a hash of TLS");
        let expected = format!("NVMe1G0{} hostnqn subsysnqn {digest}", hash.id().0);
        assert_eq!((psk.identity, hex(&psk.secret)), (expected, tls.to_owned()));
    }
}

#[test]
fn a_psk_is_found_by_its_identity_alone() {
    let key: TlsKey = TLS.parse().expect("a key");
    for version in [IdentityVersion::V0, IdentityVersion::V1] {
        let own = psk(&key, version);
        let read = TlsIdentity { version, host: HOST, subsystem: SUBSYSTEM };
        assert_eq!(TlsIdentity::parse(&own.identity), Some(read));
        assert_eq!(key.psk_named(&own.identity, Derivation::Standard), Some(own.clone()));
        for other in [own.identity.replace("R01", "R02"), own.identity.replace("R01", "G01")] {
            assert_eq!(key.psk_named(&other, Derivation::Standard), None, "{other}");
        }
        assert_eq!(key.psk_named(&format!("{} x", own.identity), Derivation::Standard), None);
    }
    for other in ["", "NVMe0R01", "NVMe0R01 host", "NVMe2R01 host subsystem", "Client_identity"] {
        assert_eq!(TlsIdentity::parse(other), None, "{other}");
    }
}

#[test]
fn a_key_without_a_hash_is_retained_as_it_is() {
    for (len, hash) in [(32, HashFunction::Sha256), (48, HashFunction::Sha384)] {
        let key = TlsKey::new(None, secret(&vec![7; len])).expect("a key");
        assert_eq!(key.retained(Derivation::Standard, HOST).to_vec(), vec![7; len]);
        let psk = psk(&key, IdentityVersion::V0);
        assert_eq!((psk.hash, psk.secret.len()), (hash, len));
        assert!(key.text().starts_with("NVMeTLSkey-1:00:"));
    }
}

#[test]
fn the_old_derivation_is_another_one() {
    let key: TlsKey = TLS.parse().expect("a key");
    for version in [IdentityVersion::V0, IdentityVersion::V1] {
        let old = key.psk(version, Derivation::OldLibnvme, HOST, SUBSYSTEM);
        let old = old.expect("short names");
        assert_ne!(hex(&old.secret), hex(&psk(&key, version).secret));
    }
}

#[test]
fn an_identity_of_version_0_that_no_label_can_hold_does_not_exist() {
    let key: TlsKey = TLS.parse().expect("a key");
    let long = "n".repeat(223);
    let psk = |version| key.psk(version, Derivation::Standard, &long, &long);
    assert!(psk(IdentityVersion::V0).is_none());
    assert!(psk(IdentityVersion::V1).is_some());
}

#[test]
fn texts_that_are_no_keys_are_refused_with_the_reason() {
    use ParseKeyError::{Base64, Crc, Hash, Length, OfDhchap, Parts, Prefix, Version};
    let value = "VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ";
    let cases = [
        ("", Prefix),
        ("hello", Prefix),
        ("NVMeTLSkey-2:01:AAAA:", Version),
        ("NVMeTLSkey-10:01:AAAA:", Version),
        ("NVMeTLSkey-1:01", Parts),
        ("NVMeTLSkey-1:01:AAAA", Parts),
        ("NVMeTLSkey-1:1:AAAA:", Hash),
        ("NVMeTLSkey-1:03:AAAA:", Hash),
        ("NVMeTLSkey-1:+1:AAAA:", Hash),
        ("DHHC-1:04:AAAA:", Hash),
        ("DHHC-1:00:A*AA:", Base64),
        ("DHHC-1:00:AA:", Base64),
        ("DHHC-1:00:AAAA:", Length(0)),
        ("DHHC-1:00:AAAAAAAAAAA=:", Crc),
        (&TLS.replace("VRL", "VRM"), Crc),
        (&TLS.replace(":01:", ":02:"), Length(32)),
        (&format!("NVMeTLSkey-1:01:{}:", "A".repeat(400)), Length(300)),
        (&format!("DHHC-1:01:{value}{value}:"), Length(72)),
    ];
    for (text, expected) in cases {
        assert_eq!(text.parse::<Key>().expect_err(text), expected, "{text}");
    }
    assert_eq!(DHCHAP.parse::<TlsKey>().expect_err("the other form"), OfDhchap);
    assert!(format!("\n {TLS} \n").parse::<Key>().is_ok(), "a file ends with a newline");
}

#[test]
fn nothing_shows_a_secret() {
    let key: TlsKey = TLS.parse().expect("a key");
    let shown = format!("{key:?} {:?}", psk(&key, IdentityVersion::V0));
    let of_psk = format!("TlsPsk {{ identity: \"NVMe0R01 {HOST} {SUBSYSTEM}\", .. }}");
    let expected = format!("TlsKey {{ hash: Some(Sha256), .. }} {of_psk}");
    assert_eq!(shown, expected);
}

proptest! {
    #[test]
    fn every_key_is_read_as_it_was_written(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 32),
            prop::collection::vec(any::<u8>(), 48),
            prop::collection::vec(any::<u8>(), 64),
        ],
        number in 0u8..4,
    ) {
        let hash = HashFunction::of(HashId(number));
        let key = Secret::new(&bytes, hash).expect("a key");
        prop_assert_eq!(key.text().parse(), Ok(key));
        if let Ok(key) = TlsKey::new(hash, secret(&bytes)) {
            fuzzing::key(key.text().as_bytes());
        }
    }

    /// A byte that is changed, lost or added is noticed.
    #[test]
    fn no_damaged_key_is_accepted(at in 0..TLS.len(), byte in 0x20u8..0x7f) {
        let mut changed = TLS.as_bytes().to_vec();
        changed[at] = byte;
        fuzzing::key(&changed);
        if changed != TLS.as_bytes() {
            let text = String::from_utf8(changed).expect("ASCII");
            let is_other_hash = text.contains(":00:");
            prop_assert!(text.parse::<Key>().is_err() || is_other_hash || at == 0, "{}", text);
        }
        let mut shorter = TLS.to_owned();
        shorter.remove(at);
        prop_assert!(shorter.parse::<Key>().is_err());
    }

    #[test]
    fn any_text_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        fuzzing::key(&bytes);
        let mut text = b"NVMeTLSkey-1:01:".to_vec();
        text.extend(bytes);
        fuzzing::key(&text);
    }
}

#[test]
fn keys_of_a_direction_are_those_of_rfc_8448() {
    let of = |text: &str| {
        let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
        TrafficSecret::new(secret(&(0..text.len()).step_by(2).map(byte).collect::<Vec<_>>()))
    };
    for (traffic, key, iv) in [
        (
            "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5",
            "17422dda596ed5d9acd890e3c63f5051",
            "5b78923dee08579033e523d9",
        ),
        (
            "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643",
            "9f02283b6c9c07efc26bb9f2ac92e356",
            "cf782b88dd83549aadf1e984",
        ),
    ] {
        let traffic = of(traffic).expect("32 bytes");
        assert_eq!((hex(&traffic.key(16)), hex(&traffic.iv())), (key.to_owned(), iv.to_owned()));
        let next = traffic.next();
        assert_ne!(next, traffic);
        assert_ne!(hex(&next.key(16)), key);
    }
    assert!(TrafficSecret::new(secret(&[0; 31])).is_none());
    assert_eq!(TrafficSecret::new(secret(&[1; 48])).expect("SHA-384").next().key(32).len(), 32);
}
