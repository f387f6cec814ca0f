//! Messages of a controller without its secret.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| weft_nvmf::auth::fuzzing::strange_controller(input));
