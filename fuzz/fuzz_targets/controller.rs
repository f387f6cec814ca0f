//! Actions upon one controller.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| weft_nvmf::controller::fuzzing::actions(input));
