//! A message of DH-HMAC-CHAP, read and written.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| weft_nvmf::auth::fuzzing::message(input));
