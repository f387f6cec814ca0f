//! A host's association with a controller that does anything at all.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| weft_nvmf::host::fuzzing::run_association(input));
