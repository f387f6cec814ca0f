//! Messages of a controller without its secret to a host that makes a key of TLS.
#![no_main]

libfuzzer_sys::fuzz_target!(
    |input: &[u8]| weft_nvmf::auth::fuzzing::strange_concatenation(input)
);
