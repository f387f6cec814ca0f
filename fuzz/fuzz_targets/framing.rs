//! A stream of bytes, cut into PDUs.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| weft_nvmf::tcp::fuzzing::framing(input));
