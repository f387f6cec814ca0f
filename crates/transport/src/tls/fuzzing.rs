//! A harness that reads arbitrary bytes as a ClientHello. The fuzz target and a test share it.

/// Takes the identities out of `input`. Panics if an invariant is broken.
pub fn client_hello(input: &[u8]) {
    let all = input.as_ptr_range();
    let mut bytes = 0;
    for identity in super::hello::identities(input) {
        bytes += identity.len() + 6;
        let own = identity.as_ptr_range();
        assert!(own.start >= all.start && own.end <= all.end, "it is part of the input");
    }
    assert!(bytes <= input.len(), "identities do not overlap");
}
