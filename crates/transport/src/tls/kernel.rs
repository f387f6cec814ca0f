//! Records that the kernel makes and reads once the handshake is over.
//!
//! The library hands over its secrets between two records, with nothing under way in either
//! direction, and is not used any more. From then on the connection is sent and receives plaintext.
//! What is left to be done here are the records that are no data: each end renews its sending key,
//! follows the other's renewal, and says when it ends.

use std::io;
use std::sync::OnceLock;

use weft_nvmf::auth::SecretBytes;
use weft_nvmf::keys::TrafficSecret;
use weft_reactor::{
    RecordDirection, RecordType, Records, check_kernel_cipher, kernel_replaces_keys,
};

use super::{TlsFault, key_bytes};
use crate::CloseReason;

/// A connection whose sending key the kernel cannot replace ends after so many times the bytes
/// after which it would be: a third of what AES-GCM allows.
const LAST_KEY: u64 = 8;

/// The longest record.
const RECORD_BYTES: usize = 16 * 1024;

/// The version of TLS and the numbers of ciphers, as `linux/tls.h` has them.
const TLS_1_3: u16 = 0x0304;
const AES_GCM_128: u16 = 51;
const AES_GCM_256: u16 = 52;
const CHACHA20_POLY1305: u16 = 54;

/// Messages of the handshake that may come after it.
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// `close_notify`, as a warning.
const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// A direction's secret, and the number of its next record.
pub(crate) type Direction = (TrafficSecret, [u8; 8]);

/// What the library has handed over.
#[derive(Debug)]
pub(crate) struct TlsSecrets {
    /// The number of the cipher suite.
    pub(crate) suite: [u8; 2],
    pub(crate) sending: Direction,
    pub(crate) receiving: Direction,
    /// The identity of the PSK.
    pub(crate) identity: Option<String>,
}

/// A connection whose records are the kernel's.
#[derive(Debug)]
pub(crate) struct KernelRecords {
    cipher: Cipher,
    sending: TrafficSecret,
    receiving: TrafficSecret,
    identity: Option<String>,
    /// Bytes sent with this key.
    sealed: u64,
    /// After how many it is renewed.
    key_bytes: u64,
    /// The peer has asked for another sending key.
    owes_renewal: bool,
    /// The kernel can be given another key.
    replaces_keys: bool,
    ended: bool,
}

/// How the kernel is told a key.
#[derive(Clone, Copy, Debug)]
struct Cipher {
    number: u16,
    key_length: usize,
    /// The nonce's bytes that the kernel has apart from the others, as a salt.
    salt_length: usize,
}

impl Cipher {
    fn of(suite: [u8; 2]) -> Option<Self> {
        let (number, key_length, salt_length) = match suite {
            [0x13, 1] => (AES_GCM_128, 16, 4),
            [0x13, 2] => (AES_GCM_256, 32, 4),
            [0x13, 3] => (CHACHA20_POLY1305, 32, 0),
            _ => return None,
        };
        Some(Self { number, key_length, salt_length })
    }

    /// The kernel's `tls12_crypto_info_…`.
    fn information(self, secret: &TrafficSecret, next: [u8; 8]) -> SecretBytes {
        let (key, iv) = (secret.key(self.key_length), secret.iv());
        let (salt, iv) = iv.split_at(self.salt_length);
        let (version, number) = (TLS_1_3.to_ne_bytes(), self.number.to_ne_bytes());
        let parts = [&version, &number, iv, &key[..], salt, &next];
        // At once as long as it gets: nothing is left behind that is not wiped.
        let mut information = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| information.extend_from_slice(part));
        information.into()
    }
}

/// Whether the kernel has a cipher suite: it is tried once for each.
pub(crate) fn kernel_has(suite: [u8; 2]) -> bool {
    static HAS: [OnceLock<bool>; 3] = [const { OnceLock::new() }; 3];
    let Some(cipher) = Cipher::of(suite) else { return false };
    let known = HAS.get(usize::from(suite[1]).wrapping_sub(1));
    known.is_some_and(|known| {
        *known.get_or_init(|| {
            let Some(secret) = TrafficSecret::new(vec![0; 32].into()) else { return false };
            let checked = check_kernel_cipher(&cipher.information(&secret, [0; 8]));
            checked.inspect_err(|error| log::debug!("TLS: suite {suite:x?}: {error}")).is_ok()
        })
    })
}

impl KernelRecords {
    /// Gives the kernel what was handed over.
    pub(crate) fn begin(handed: TlsSecrets, records: &Records<'_>) -> Result<Self, TlsFault> {
        let TlsSecrets { suite, sending, receiving, identity } = handed;
        let unknown = TlsFault::Library("the cipher suite is unknown");
        let cipher = Cipher::of(suite).ok_or(unknown)?;
        for (direction, (secret, next)) in
            [(RecordDirection::Send, &sending), (RecordDirection::Receive, &receiving)]
        {
            records.set_key(direction, &cipher.information(secret, *next))?;
        }
        Ok(Self {
            cipher,
            sending: sending.0,
            receiving: receiving.0,
            identity,
            sealed: 0,
            key_bytes: key_bytes(),
            owes_renewal: false,
            replaces_keys: kernel_replaces_keys(),
            ended: false,
        })
    }

    /// The identity of the PSK in use.
    pub(crate) fn identity(&self) -> Option<String> {
        self.identity.clone()
    }

    /// Before so many bytes are sent, with nothing in flight: renews the key if it is time.
    pub(crate) fn prepare<'a>(
        &mut self,
        bytes: usize,
        records: impl FnOnce() -> io::Result<Records<'a>>,
    ) -> Result<(), TlsFault> {
        if bytes == 0 {
            return Ok(());
        }
        self.sealed += bytes as u64;
        if (self.owes_renewal || self.sealed > self.key_bytes) && self.replaces_keys {
            self.renew(bytes as u64, &records()?)?;
        }
        if self.sealed > self.key_bytes.saturating_mul(LAST_KEY) {
            return Err(TlsFault::KeyUsedUp);
        }
        Ok(())
    }

    fn renew(&mut self, bytes: u64, records: &Records<'_>) -> Result<(), TlsFault> {
        let update = [KEY_UPDATE, 0, 0, 1, 0];
        match records.send(RecordType::HANDSHAKE, &update) {
            Ok(()) => {}
            // Before the next send, then.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        self.sending = self.sending.next();
        let information = self.cipher.information(&self.sending, [0; 8]);
        records.set_key(RecordDirection::Send, &information)?;
        (self.sealed, self.owes_renewal) = (bytes, false);
        log::debug!("TLS: the kernel has another sending key");
        Ok(())
    }

    /// Takes the record that has stopped the receives.
    pub(crate) fn receive(&mut self, records: &Records<'_>) -> Result<(), CloseReason> {
        let mut place = vec![0; RECORD_BYTES];
        let received = records.receive(&mut place);
        let (kind, length) = received.map_err(|error| CloseReason::Tls(error.into()))?;
        let content = place.get(..length).unwrap_or_default();
        match (kind, content) {
            (RecordType::HANDSHAKE, messages) => {
                if let Some(asked) = key_update(messages).map_err(CloseReason::Tls)? {
                    self.follow(records).map_err(CloseReason::Tls)?;
                    self.owes_renewal |= asked;
                }
                Ok(())
            }
            (RecordType::ALERT, &[_, 0]) => Err(CloseReason::PeerClosed),
            (RecordType::ALERT, &[_, alert]) => Err(CloseReason::Tls(TlsFault::Alert(alert))),
            _ => Err(CloseReason::Tls(TlsFault::Library("a record of a wrong type"))),
        }
    }

    /// The peer sends with another key from now on.
    fn follow(&mut self, records: &Records<'_>) -> Result<(), TlsFault> {
        if !self.replaces_keys {
            return Err(TlsFault::CannotFollow);
        }
        self.receiving = self.receiving.next();
        let information = self.cipher.information(&self.receiving, [0; 8]);
        records.set_key(RecordDirection::Receive, &information)?;
        log::debug!("TLS: the kernel has another receiving key");
        Ok(())
    }

    /// Tells the peer that nothing more comes.
    pub(crate) fn end(&mut self, records: &Records<'_>) {
        if !std::mem::replace(&mut self.ended, true) {
            // The peer finds out without it as well.
            let _ = records.send(RecordType::ALERT, &CLOSE_NOTIFY);
        }
    }
}

/// Reads messages after the handshake. If the last one renews the peer's key, whether it asks for
/// another one of this end.
pub(super) fn key_update(mut messages: &[u8]) -> Result<Option<bool>, TlsFault> {
    let mut asked = None;
    while !messages.is_empty() {
        let cut = TlsFault::Library("a message after the handshake is cut");
        let (kind, content, rest) = message(messages).ok_or(cut)?;
        match (kind, content) {
            // Nothing of a session is resumed.
            (NEW_SESSION_TICKET, _) => {}
            // What follows it has another key, and is in another record.
            (KEY_UPDATE, &[request @ (0 | 1)]) if rest.is_empty() => asked = Some(request == 1),
            _ => return Err(TlsFault::Library("a message after the handshake is wrong")),
        }
        messages = rest;
    }
    Ok(asked)
}

/// The first message of the handshake, and what follows it.
fn message(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[kind, high, middle, low], rest) = bytes.split_first_chunk()?;
    let length = usize::try_from(u32::from_be_bytes([0, high, middle, low])).ok()?;
    let (content, rest) = rest.split_at_checked(length)?;
    Some((kind, content, rest))
}

#[cfg(test)]
impl KernelRecords {
    /// Those of a connection that may not send more than so many bytes by a key.
    pub(crate) fn of_test(key_bytes: u64, replaces_keys: bool) -> Self {
        let secret = || TrafficSecret::new(vec![7; 32].into()).expect("SHA-256");
        Self {
            cipher: Cipher::of([0x13, 1]).expect("a suite"),
            sending: secret(),
            receiving: secret(),
            identity: None,
            sealed: 0,
            key_bytes,
            owes_renewal: false,
            replaces_keys,
            ended: false,
        }
    }

    /// Bytes sent with the key.
    pub(crate) const fn sealed(&self) -> u64 {
        self.sealed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_looked_up_only_for_another_key() {
        let mut records = KernelRecords::of_test(100, true);
        for _ in 0..10 {
            records.prepare(10, || panic!("nothing is to be done")).expect("a key");
        }
        let gone = || Err(io::ErrorKind::NotConnected.into());
        assert!(records.prepare(10, gone).is_err(), "the key is used up");
    }

    #[test]
    fn a_suite_that_nobody_has_is_none_of_the_kernels() {
        assert!(!kernel_has([0x13, 4]) && !kernel_has([0xc0, 1]));
    }

    #[test]
    fn information_has_the_places_of_the_kernels_structures() {
        let secret = TrafficSecret::new(vec![7; 32].into()).expect("SHA-256");
        for (suite, number, length) in [(1, 51, 40), (2, 52, 56), (3, 54, 56)] {
            let cipher = Cipher::of([0x13, suite]).expect("a suite");
            let information = cipher.information(&secret, [0, 0, 0, 0, 0, 0, 0, 3]);
            assert_eq!(information.len(), length);
            assert_eq!(information[..4], [[4, 3], [number, 0]].concat());
            assert_eq!(information[length - 8..], [0, 0, 0, 0, 0, 0, 0, 3]);
            let (iv, key) = (secret.iv(), secret.key(if suite == 1 { 16 } else { 32 }));
            let expected = match suite {
                3 => [&iv[..], &key[..]].concat(),
                _ => [&iv[4..], &key[..], &iv[..4]].concat(),
            };
            assert_eq!(information[4..length - 8], expected);
        }
        assert!(Cipher::of([0x13, 4]).is_none());
    }

    #[test]
    fn messages_after_the_handshake_are_tickets_and_renewals() {
        assert_eq!(key_update(&[24, 0, 0, 1, 0]), Ok(Some(false)));
        assert_eq!(key_update(&[4, 0, 0, 1, 9, 24, 0, 0, 1, 1]), Ok(Some(true)));
        assert_eq!(key_update(&[4, 0, 0, 0, 4, 0, 0, 2, 1, 2]), Ok(None));
        for wrong in [
            &[24, 0, 0, 1, 2][..],
            &[24, 0, 0, 1, 0, 4, 0, 0, 0],
            &[24, 0, 0, 2, 0, 0],
            &[24, 0, 0, 1],
            &[4, 0],
            &[1, 0, 0, 0],
        ] {
            assert!(key_update(wrong).is_err(), "{wrong:?}");
        }
    }
}
