//! Harnesses that read arbitrary bytes of a peer. The fuzz targets and a test share them.

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

/// Reads `input` as messages after the handshake. Panics if an invariant is broken.
pub fn key_update(input: &[u8]) {
    if let Ok(asked) = super::kernel::key_update(input) {
        let end: &[u8] = match asked {
            None => return,
            Some(false) => &[24, 0, 0, 1, 0],
            Some(true) => &[24, 0, 0, 1, 1],
        };
        assert!(input.ends_with(end), "it is the last message");
    }
}
