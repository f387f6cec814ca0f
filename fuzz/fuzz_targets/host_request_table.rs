//! The books of a host's I/O queue under any order of events.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| weft_nvmf::host::fuzzing::run_request_table(input));
