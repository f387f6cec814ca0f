//! The responses: the codes by which each side proves that it has its secret.

use weft_nvme::Nqn;
use weft_nvme::authentication::SecureChannel;

use super::hash::{HashFunction, SecretBytes};
use super::secret::Secret;

/// Who proves its identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prover {
    Host,
    Controller,
}

/// The names that a response is bound to.
#[derive(Debug, Clone)]
pub struct Names {
    /// The host's.
    pub host: Nqn,
    /// The subsystem's, as the host has named it in Connect.
    pub subsystem: Nqn,
}

/// What a response answers.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) hash: HashFunction,
    /// The secret of the DH exchange, if there was one.
    pub(super) shared_secret: Option<&'a [u8]>,
    pub(super) challenge: &'a [u8],
    pub(super) sequence: u32,
    pub(super) transaction_id: u16,
    pub(super) secure_channel: SecureChannel,
}

impl Question<'_> {
    /// The response of the owner of this secret.
    pub(super) fn answer(&self, prover: Prover, secret: &Secret, names: &Names) -> SecretBytes {
        self.with(prover, secret, names, |hash, key, pieces| hash.hmac(key, pieces))
    }

    /// Whether this is the response of the owner of this secret.
    pub(super) fn is_answered_by(
        &self,
        response: &[u8],
        prover: Prover,
        secret: &Secret,
        names: &Names,
    ) -> bool {
        self.with(prover, secret, names, |hash, key, pieces| hash.verify(key, pieces, response))
    }

    fn with<T>(
        &self,
        prover: Prover,
        secret: &Secret,
        names: &Names,
        action: impl FnOnce(HashFunction, &[u8], &[&[u8]]) -> T,
    ) -> T {
        let (owner, other, role): (_, _, &[u8]) = match prover {
            Prover::Host => (&names.host, &names.subsystem, b"HostHost"),
            Prover::Controller => (&names.subsystem, &names.host, b"Controller"),
        };
        let augmented = self.shared_secret.map(|shared_secret| {
            let session_key = self.hash.hash(shared_secret);
            self.hash.hmac(&session_key, &[self.challenge])
        });
        let challenge = augmented.as_ref().map_or(self.challenge, |augmented| augmented);
        let pieces: [&[u8]; 8] = [
            challenge,
            &self.sequence.to_le_bytes(),
            &self.transaction_id.to_le_bytes(),
            &[self.secure_channel.0],
            role,
            owner.as_str().as_bytes(),
            &[0],
            other.as_str().as_bytes(),
        ];
        action(self.hash, &secret.key_of(owner), &pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::tests::{hex, names};

    /// The key is the one that `nvme gen-dhchap-key` takes for these names; the response was
    /// computed by an implementation in another language.
    #[test]
    fn a_key_and_a_response() {
        let bytes: Vec<u8> = (0..32).collect();
        let secret = Secret::new(&bytes, Some(HashFunction::Sha256)).expect("a secret");
        let key = hex("75627d6c9666c1f3fb22716d06d8f34dbf712f4681b5aeda14d2936d91bd45a4");
        assert_eq!(*secret.key_of(&names().host), key);
        let challenge: Vec<u8> = (0x40..0x60).collect();
        let question = Question {
            hash: HashFunction::Sha256,
            shared_secret: None,
            challenge: &challenge,
            sequence: 1,
            transaction_id: 2,
            secure_channel: SecureChannel::NONE,
        };
        let response = hex("a15e7024abb6950a5f752dceb9ea8af558ec0b996da968117bd58397a64f5b6a");
        assert_eq!(*question.answer(Prover::Host, &secret, &names()), response);
        assert!(question.is_answered_by(&response, Prover::Host, &secret, &names()));
        assert!(!question.is_answered_by(&response, Prover::Controller, &secret, &names()));
        let later = Question { sequence: 2, ..question };
        assert!(!later.is_answered_by(&response, Prover::Host, &secret, &names()));
    }

    #[test]
    fn a_secret_has_one_of_three_lengths() {
        for length in 0..80 {
            let is_secret = Secret::new(&vec![1; length], None).is_some();
            assert_eq!(is_secret, matches!(length, 32 | 48 | 64), "{length}");
        }
        let secret = Secret::new(&[7; 48], None).expect("a secret");
        assert_eq!(*secret.key_of(&names().host), [7; 48], "not transformed");
        assert_eq!(format!("{secret:?}"), "Secret { .. }");
    }
}
