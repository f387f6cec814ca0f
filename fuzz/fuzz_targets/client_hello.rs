//! The identities in a ClientHello of TLS.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| weft_transport::tls::fuzzing::client_hello(input));
