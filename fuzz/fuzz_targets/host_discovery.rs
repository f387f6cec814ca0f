//! A host that reads a discovery log which may change meanwhile.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| weft_nvmf::host::fuzzing::run_discovery(input));
