//! The identity of a PSK of TLS.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| weft_nvmf::keys::fuzzing::identity(input));
