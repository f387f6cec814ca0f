//! Actions upon one I/O queue of a controller.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| weft_nvmf::queue::fuzzing::actions(input));
