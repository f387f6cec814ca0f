//! A host's session over TCP.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| weft_nvmf::tcp::fuzzing::host_session(input));
