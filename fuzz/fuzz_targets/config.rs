//! A configuration, in TOML or as nvmetcli saves it.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| weft_target::config::fuzzing::config(input));
