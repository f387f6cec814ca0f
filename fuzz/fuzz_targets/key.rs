//! A key of TLS or DH-HMAC-CHAP in its interchange form.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| weft_nvmf::keys::fuzzing::key(input));
