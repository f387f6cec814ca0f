//! Keys of the type `user` of the kernel's keyring, in the session's keyring and in the user's.

use std::io::{Error, ErrorKind};

use linux_keyutils::{Key, KeyError, KeyRing, KeyRingIdentifier, KeySerialId};
use weft_nvmf::auth::SecretBytes;

/// More than the longest interchange form.
const BYTES_MAX: usize = 4096;

/// Reads `%user:NAME` or `%SERIAL`.
pub(super) fn read(name: &str) -> std::io::Result<SecretBytes> {
    // The session of a service need not have a link to the user's keyring, and what is in no
    // keyring of the thread is not readable.
    let thread = KeyRing::from_special_id(KeyRingIdentifier::Thread, true).map_err(fault)?;
    thread.link_keyring_id(KeyRingIdentifier::User).map_err(fault)?;
    let bytes = find(&thread, name).and_then(contents);
    thread.unlink_keyring_id(KeyRingIdentifier::User).map_err(fault)?;
    bytes
}

fn find(thread: &KeyRing, name: &str) -> std::io::Result<Key> {
    if let Some(description) = name.strip_prefix("%user:") {
        let session = KeyRing::from_special_id(KeyRingIdentifier::Session, false);
        let of_session = session.and_then(|ring| ring.search(description));
        return match of_session {
            Err(KeyError::KeyDoesNotExist) => thread.search(description).map_err(fault),
            found => found.map_err(fault),
        };
    }
    let serial = name.strip_prefix('%').and_then(|serial| serial.parse().ok());
    match serial {
        Some(serial @ 1..) => Ok(Key::from_id(KeySerialId::new(serial))),
        _ => Err(Error::new(
            ErrorKind::InvalidInput,
            "a key of the kernel is %user:NAME or %SERIAL (a file of that name is ./%…)",
        )),
    }
}

fn contents(key: Key) -> std::io::Result<SecretBytes> {
    let mut bytes = vec![0; BYTES_MAX];
    let length = key.read(&mut bytes);
    let bytes = SecretBytes::from(bytes);
    match bytes.get(..length.map_err(fault)?) {
        Some(bytes) => Ok(SecretBytes::from(bytes.to_vec())),
        None => Err(Error::new(ErrorKind::InvalidData, "it is too long for a key")),
    }
}

/// Why the kernel gives no key, in words.
fn fault(error: KeyError) -> Error {
    let (kind, what) = match error {
        KeyError::KeyDoesNotExist | KeyError::KeyringDoesNotExist => {
            (ErrorKind::NotFound, "no such key is in the keyring of the session or of the user")
        }
        KeyError::KeyExpired => (ErrorKind::NotFound, "it has expired"),
        KeyError::KeyRevoked => (ErrorKind::NotFound, "it was revoked"),
        KeyError::AccessDenied | KeyError::PermissionDenied => (
            ErrorKind::PermissionDenied,
            "this process may not read it, or its container may not use the kernel's keyring",
        ),
        KeyError::OperationNotSupported => {
            (ErrorKind::Unsupported, "keys of its type cannot be read")
        }
        KeyError::Unknown(error) => return Error::from_raw_os_error(error),
        other => return Error::other(other.to_string()),
    };
    Error::new(kind, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keyrings of the session and of the user, if there are any.
    fn rings() -> Option<[KeyRing; 2]> {
        let ring = |which| KeyRing::from_special_id(which, true);
        let rings = ring(KeyRingIdentifier::Session)
            .and_then(|session| Ok([session, ring(KeyRingIdentifier::User)?]));
        rings.inspect_err(|error| eprintln!("SKIPPED: keys of the kernel: {error}")).ok()
    }

    /// A key that is not left there.
    struct TemporaryKey(KeyRing, Key);

    impl TemporaryKey {
        fn new(ring: KeyRing, name: &str, contents: &[u8]) -> Self {
            Self(ring, ring.add_key(name, contents).expect("a key"))
        }

        fn serial(&self) -> String {
            format!("%{}", self.1.get_id().as_raw_id())
        }
    }

    impl Drop for TemporaryKey {
        fn drop(&mut self) {
            self.0.unlink_key(self.1).expect("it was there");
        }
    }

    #[test]
    fn a_key_is_found_by_its_name_and_by_its_number_in_either_keyring() {
        let Some(rings) = rings() else { return };
        for (place, ring) in rings.into_iter().enumerate() {
            let name = format!("weft-test:{}:{place}", std::process::id());
            let made = TemporaryKey::new(ring, &name, b"a secret");
            for name in [format!("%user:{name}"), made.serial()] {
                assert_eq!(&**read(&name).expect("the key"), b"a secret", "{name}");
            }
            drop(made);
            let another = TemporaryKey::new(ring, &name, b"another");
            assert_eq!(&**read(&format!("%user:{name}")).expect("the key"), b"another");
            drop(another);
            read(&format!("%user:{name}")).expect_err("it is gone");
        }
    }

    #[test]
    fn what_is_no_key_is_refused_in_words() {
        let Some([session, _]) = rings() else { return };
        let name = format!("weft-test:{}:refused", std::process::id());
        let said = |name: &str| read(name).expect_err("no key").to_string();
        assert!(said(&format!("%user:{name}")).contains("no such key"));
        for wrong in ["%", "%x", "%-3", "%0", "%:session", "%logon:x"] {
            assert!(said(wrong).contains("%user:NAME or %SERIAL"), "{wrong}");
        }
        let made = TemporaryKey::new(session, &name, &[b'x'; BYTES_MAX + 1]);
        assert!(said(&format!("%user:{name}")).contains("too long"));
        made.1.revoke().expect("it is revoked");
        assert!(said(&made.serial()).contains("revoked"), "{}", said(&made.serial()));
    }
}
