//! Messages of TLS after the handshake, which the kernel hands out.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| weft_transport::tls::fuzzing::key_update(input));
