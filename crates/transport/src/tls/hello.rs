//! The identities that a ClientHello of TLS 1.3 offers, and their binders.
//!
//! The library parses the message as well and decides; this only says which PSKs it is given.

/// The type of the extension `pre_shared_key`.
const PRE_SHARED_KEY: u16 = 41;

/// Bytes before the session identifier: version and random.
const FIXED_BYTES: usize = 2 + 32;

/// Bytes after each identity: its ticket age.
const AGE_BYTES: usize = 4;

/// The identities in the body of a ClientHello, each with its binder if it has one, in order; none
/// of one that is not well formed.
pub(super) fn offers(body: &[u8]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    let (mut identities, mut binders) = offered(body).unwrap_or_default();
    std::iter::from_fn(move || {
        let identity = take_vector::<2>(&mut identities)?;
        identities.split_off(..AGE_BYTES)?;
        Some((identity, take_vector::<1>(&mut binders)))
    })
}

/// The list of identities and that of binders.
fn offered(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = body.get(FIXED_BYTES..)?;
    let _session = take_vector::<1>(&mut rest)?;
    let _suites = take_vector::<2>(&mut rest)?;
    let _compressions = take_vector::<1>(&mut rest)?;
    let mut extensions = take_vector::<2>(&mut rest)?;
    while let Some(kind) = extensions.split_off(..2) {
        let mut contents = take_vector::<2>(&mut extensions)?;
        if number(kind) == usize::from(PRE_SHARED_KEY) {
            let identities = take_vector::<2>(&mut contents)?;
            return Some((identities, take_vector::<2>(&mut contents).unwrap_or_default()));
        }
    }
    None
}

/// Takes a vector whose length is in the `N` bytes before it.
fn take_vector<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let mut after = *rest;
    let length = number(after.split_off(..N)?);
    let vector = after.split_off(..length)?;
    *rest = after;
    Some(vector)
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vector(length_bytes: usize, contents: &[u8]) -> Vec<u8> {
        let length = contents.len().to_be_bytes();
        [&length[length.len() - length_bytes..], contents].concat()
    }

    fn identities(body: &[u8]) -> impl Iterator<Item = &[u8]> {
        offers(body).map(|(identity, _)| identity)
    }

    fn hello(identities: &[&[u8]]) -> Vec<u8> {
        let offered: Vec<u8> =
            identities.iter().flat_map(|one| [vector(2, one), vec![0; 4]].concat()).collect();
        let psk = [vector(2, &offered), vector(2, &[33; 34])].concat();
        let extensions = [
            [vec![0, 43], vector(2, &[2, 3, 4])].concat(),
            [vec![0, 41], vector(2, &psk)].concat(),
        ];
        [
            vec![3; FIXED_BYTES],
            vector(1, &[7; 32]),
            vector(2, &[0x13, 1]),
            vector(1, &[0]),
            vector(2, &extensions.concat()),
        ]
        .concat()
    }

    #[test]
    fn identities_are_found_in_their_order() {
        let offered: [&[u8]; 3] = [b"NVMe1R01 a b c", b"", b"NVMe0R01 a b"];
        let message = hello(&offered);
        assert_eq!(identities(&message).collect::<Vec<_>>(), offered);
        let binders: Vec<_> = offers(&message).map(|(_, binder)| binder).collect();
        assert_eq!(binders, [Some(&[33; 33][..]), None, None]);
        assert_eq!(identities(&hello(&[])).count(), 0);
        assert_eq!(identities(&[]).count(), 0);
    }

    proptest! {
        /// A message that is cut or changed offers something else or nothing, and breaks nothing.
        #[test]
        fn any_message_is_read(
            at in 0..120usize,
            byte in any::<u8>(),
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut message = hello(&[b"NVMe1R01 host subsystem digest"]);
            let place = at % message.len();
            crate::tls::fuzzing::client_hello(&message[..place]);
            prop_assert!(identities(&message[..place]).count() <= 1);
            message[place] = byte;
            crate::tls::fuzzing::client_hello(&message);
            crate::tls::fuzzing::client_hello(&bytes);
        }
    }
}
