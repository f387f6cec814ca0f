//! The Diffie-Hellman groups: the finite field groups of RFC 7919, or none.
//!
//! Powers are computed by `crypto-bigint` in a time that depends on the length of the exponent
//! alone. They take 0.4 ms (ffdhe2048) to 10 ms (ffdhe8192) of a processor: the target's poll
//! groups leave them to another thread.

use std::fmt;
use std::str::FromStr;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use weft_nvme::authentication::GroupId;
use zeroize::Zeroize as _;

use super::hash::SecretBytes;
use super::primes;

/// Random bytes that a key pair is made from: the longest exponent.
pub const EXPONENT_BYTES: usize = 50;

/// A DH group of DH-HMAC-CHAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// No exchange.
    Null,
    /// ffdhe2048.
    Ffdhe2048,
    /// ffdhe3072.
    Ffdhe3072,
    /// ffdhe4096.
    Ffdhe4096,
    /// ffdhe6144.
    Ffdhe6144,
    /// ffdhe8192.
    Ffdhe8192,
}

impl Group {
    /// All of them, in the order of their identifiers.
    pub const ALL: [Self; 6] = [
        Self::Null,
        Self::Ffdhe2048,
        Self::Ffdhe3072,
        Self::Ffdhe4096,
        Self::Ffdhe6144,
        Self::Ffdhe8192,
    ];

    /// The longest DH value.
    pub const VALUE_LENGTH_MAX: usize = 1024;

    /// Its identifier.
    #[must_use]
    pub const fn id(self) -> GroupId {
        match self {
            Self::Null => GroupId::NULL,
            Self::Ffdhe2048 => GroupId::FFDHE2048,
            Self::Ffdhe3072 => GroupId::FFDHE3072,
            Self::Ffdhe4096 => GroupId::FFDHE4096,
            Self::Ffdhe6144 => GroupId::FFDHE6144,
            Self::Ffdhe8192 => GroupId::FFDHE8192,
        }
    }

    /// The group of an identifier.
    #[must_use]
    pub fn of(id: GroupId) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.id() == id)
    }

    /// Bytes of a DH value: 0 without an exchange.
    #[must_use]
    pub const fn value_length(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 256,
            Self::Ffdhe3072 => 384,
            Self::Ffdhe4096 => 512,
            Self::Ffdhe6144 => 768,
            Self::Ffdhe8192 => 1024,
        }
    }

    /// Bytes of an exponent: RFC 7919's shortest ones, rounded up.
    const fn exponent_length(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 29,
            Self::Ffdhe3072 => 35,
            Self::Ffdhe4096 => 41,
            Self::Ffdhe6144 => 47,
            Self::Ffdhe8192 => EXPONENT_BYTES,
        }
    }

    /// The prime; none without an exchange.
    fn prime(self) -> Option<Odd<BoxedUint>> {
        let digits = match self {
            Self::Null => return None,
            Self::Ffdhe2048 => primes::FFDHE2048,
            Self::Ffdhe3072 => primes::FFDHE3072,
            Self::Ffdhe4096 => primes::FFDHE4096,
            Self::Ffdhe6144 => primes::FFDHE6144,
            Self::Ffdhe8192 => primes::FFDHE8192,
        };
        let prime = BoxedUint::from_be_hex(digits, self.bits());
        prime.into_option().and_then(|prime| Odd::new(prime).into_option())
    }

    fn bits(self) -> u32 {
        u32::try_from(self.value_length() * 8).unwrap_or(u32::MAX)
    }

    /// `base` to the power of `exponent` in the group.
    fn power(self, prime: Odd<BoxedUint>, base: BoxedUint, exponent: &[u8]) -> SecretBytes {
        let bits = self.bits();
        let mut exponent = BoxedUint::from_be_slice_truncated(exponent, bits);
        let length = u32::try_from(self.exponent_length() * 8).unwrap_or(bits);
        let base = BoxedMontyForm::new(base, &BoxedMontyParams::new(prime));
        let mut power = base.pow_bounded_exp(&exponent, length).retrieve();
        exponent.zeroize();
        let bytes = power.to_be_bytes().into_vec().into();
        power.zeroize();
        bytes
    }
}

impl fmt::Display for Group {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Null => "null",
            Self::Ffdhe2048 => "ffdhe2048",
            Self::Ffdhe3072 => "ffdhe3072",
            Self::Ffdhe4096 => "ffdhe4096",
            Self::Ffdhe6144 => "ffdhe6144",
            Self::Ffdhe8192 => "ffdhe8192",
        })
    }
}

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|group| group.to_string() == text);
        let names = Self::ALL.map(|group| group.to_string()).join(", ");
        found.ok_or_else(|| format!("{text:?} is not a DH group; these are: {names}"))
    }
}

/// A random exponent and the DH value that is made with it.
#[derive(Clone)]
pub(super) struct KeyPair {
    group: Group,
    exponent: SecretBytes,
    value: Vec<u8>,
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeyPair").field("group", &self.group).finish_non_exhaustive()
    }
}

impl KeyPair {
    /// A key pair from random bytes.
    #[must_use]
    pub(super) fn new(group: Group, random: &[u8]) -> Self {
        let exponent = random.get(..group.exponent_length()).unwrap_or(random);
        let exponent = SecretBytes::from(exponent.to_vec());
        let two = || BoxedUint::from_be_slice_truncated(&[2], group.bits());
        let value = group.prime().map(|prime| group.power(prime, two(), &exponent).to_vec());
        Self { group, exponent, value: value.unwrap_or_default() }
    }

    /// The DH value for the other side; empty without an exchange.
    #[must_use]
    pub(super) fn value(&self) -> &[u8] {
        &self.value
    }

    /// The secret that is shared with the other side, which sent this DH value; `None` if the value
    /// is not from 2 to p - 2, or too short or long.
    #[must_use]
    pub(super) fn shared_secret(&self, value: &[u8]) -> Option<SecretBytes> {
        if value.len() != self.group.value_length() {
            return None;
        }
        let prime = self.group.prime()?;
        let value = BoxedUint::from_be_slice_truncated(value, self.group.bits());
        let one = BoxedUint::from_be_slice_truncated(&[1], self.group.bits());
        let last = prime.as_ref().wrapping_sub(&one);
        if value <= one || value >= last {
            return None;
        }
        Some(self.group.power(prime, value, &self.exponent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(group: Group, seed: u8) -> KeyPair {
        let mut byte = seed.wrapping_mul(31);
        let random: [u8; EXPONENT_BYTES] = std::array::from_fn(|_| {
            byte = byte.wrapping_add(7);
            byte
        });
        KeyPair::new(group, &random)
    }

    #[test]
    fn names_and_identifiers() {
        for group in Group::ALL {
            assert_eq!(group.to_string().parse(), Ok(group));
            assert_eq!(Group::of(group.id()), Some(group));
        }
        assert_eq!(Group::of(GroupId(6)), None);
        "modp2048".parse::<Group>().expect_err("another group");
    }

    #[test]
    fn both_sides_share_a_secret() {
        for group in Group::ALL.into_iter().filter(|group| *group != Group::Null) {
            let (one, other) = (pair(group, 1), pair(group, 2));
            assert_eq!(one.value().len(), group.value_length());
            let secret = one.shared_secret(other.value()).expect("a secret");
            assert_eq!(Some(&secret), other.shared_secret(one.value()).as_ref());
            assert_eq!(secret.len(), group.value_length());
            let third = pair(group, 3);
            assert_ne!(Some(&secret), third.shared_secret(one.value()).as_ref());
        }
    }

    #[test]
    fn values_outside_of_the_group_are_refused() {
        for group in Group::ALL.into_iter().filter(|group| *group != Group::Null) {
            let own = pair(group, 1);
            let length = group.value_length();
            let prime = group.prime().expect("a prime").to_be_bytes();
            let small = |value: u8| {
                let mut bytes = vec![0; length];
                bytes[length - 1] = value;
                bytes
            };
            let below_prime = |difference: u8| {
                let mut bytes = prime.to_vec();
                bytes[length - 1] -= difference;
                bytes
            };
            for value in [small(0), small(1), below_prime(1), below_prime(0), vec![0xff; length]] {
                assert!(own.shared_secret(&value).is_none(), "{group}");
            }
            for value in [small(2), below_prime(2)] {
                assert!(own.shared_secret(&value).is_some(), "{group}");
            }
            assert!(own.shared_secret(&small(2)[1..]).is_none(), "too short");
            assert!(own.shared_secret(&[&[0], &small(2)[..]].concat()).is_none(), "too long");
        }
    }

    /// 2 is a square modulo each of these safe primes, so that it generates the group of prime
    /// order: 2 to the power of (p - 1) / 2 is 1. A wrong digit of a prime would break that.
    #[test]
    fn two_generates_the_group() {
        for group in Group::ALL.into_iter().filter(|group| *group != Group::Null) {
            let prime = group.prime().expect("a prime");
            let half = prime.as_ref().shr(1);
            let two = BoxedUint::from_be_slice_truncated(&[2], group.bits());
            let base = BoxedMontyForm::new(two, &BoxedMontyParams::new(prime));
            let one = base.pow(&half).retrieve();
            assert_eq!(*one.to_be_bytes().last().expect("a byte"), 1, "{group}");
            assert!(one.to_be_bytes().iter().rev().skip(1).all(|byte| *byte == 0), "{group}");
        }
    }

    #[test]
    fn nothing_of_a_pair_is_printed() {
        assert_eq!(format!("{:?}", pair(Group::Ffdhe2048, 1)), "KeyPair { group: Ffdhe2048, .. }");
    }
}
