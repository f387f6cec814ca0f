//! A harness that reads arbitrary bytes as a ClientHello. The fuzz target and a test share it.

/// Takes the identities out of `input`. Panics if an invariant is broken.
pub fn client_hello(input: &[u8]) {
    let all = input.as_ptr_range();
    let mut bytes = 0;
    for (identity, binder) in super::hello::offers(input) {
        bytes += identity.len() + 6 + binder.map_or(0, |binder| binder.len() + 1);
        for part in [Some(identity), binder].into_iter().flatten() {
            let own = part.as_ptr_range();
            assert!(own.start >= all.start && own.end <= all.end, "it is part of the input");
        }
    }
    assert!(bytes <= input.len(), "identities do not overlap");
}
