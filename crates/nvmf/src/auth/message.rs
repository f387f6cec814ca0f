//! The messages as values: what was sent is read once, with every length checked, and what is sent
//! is written once.

use weft_nvme::Wire;
use weft_nvme::authentication::{
    self as wire, FAILURE_REASON_CODE, FailureReason, Header, MessageType, PROTOCOL_DH_HMAC_CHAP,
    ProtocolDescriptor, SecureChannel,
};
use weft_nvme::wire::{Reserved, U16, U32};

use super::group::Group;
use super::hash::HashFunction;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message<'a> {
    Negotiate(Negotiate),
    Challenge(Challenge<'a>),
    Reply(Reply<'a>),
    Success1 { response: Option<&'a [u8]>, hash_length: usize },
    Success2,
    Failure1(FailureReason),
    Failure2(FailureReason),
}

/// What a host offers, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Negotiate {
    pub(super) secure_channel: SecureChannel,
    /// What is unknown here is left out.
    pub(super) hashes: Vec<HashFunction>,
    pub(super) groups: Vec<Group>,
    /// Whether DH-HMAC-CHAP is among the protocols.
    pub(super) is_usable: bool,
}

/// What a controller has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Challenge<'a> {
    pub(super) hash: HashFunction,
    pub(super) group: Group,
    pub(super) sequence: u32,
    pub(super) challenge: &'a [u8],
    pub(super) value: &'a [u8],
}

/// A host's response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reply<'a> {
    pub(super) sequence: u32,
    pub(super) response: &'a [u8],
    /// The host's own challenge, if it has one.
    pub(super) challenge: Option<&'a [u8]>,
    pub(super) value: &'a [u8],
}

/// Type and transaction of a message.
pub(super) fn header(bytes: &[u8]) -> Result<(MessageType, u16), FailureReason> {
    let header = fixed::<Header>(bytes)?;
    Ok((header.message_type(), header.transaction_id.get()))
}

impl<'a> Message<'a> {
    /// Reads a message. What follows its last field is ignored, as Linux does: it fills a
    /// buffer of a fixed length.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, FailureReason> {
        Ok(match header(bytes)?.0 {
            MessageType::NEGOTIATE => Self::Negotiate(Negotiate::read(bytes)?),
            MessageType::CHALLENGE => Self::Challenge(Challenge::read(bytes)?),
            MessageType::REPLY => Self::Reply(Reply::read(bytes)?),
            MessageType::SUCCESS1 => {
                let fixed = fixed::<wire::Success1>(bytes)?;
                let hash_length = usize::from(fixed.hash_length);
                let mut rest = Rest::after(fixed, bytes);
                let response = match fixed.response_valid {
                    0 => None,
                    _ => Some(rest.take(hash_length)?),
                };
                Self::Success1 { response, hash_length }
            }
            MessageType::SUCCESS2 => {
                fixed::<wire::Success2>(bytes)?;
                Self::Success2
            }
            MessageType::FAILURE1 => Self::Failure1(fixed::<wire::Failure>(bytes)?.reason),
            MessageType::FAILURE2 => Self::Failure2(fixed::<wire::Failure>(bytes)?.reason),
            _ => return Err(FailureReason::INCORRECT_MESSAGE),
        })
    }

    /// Writes a message of a transaction.
    pub(super) fn write(&self, transaction_id: u16) -> Vec<u8> {
        let header = |message_type| Header::new(message_type, transaction_id);
        match self {
            Self::Negotiate(negotiate) => negotiate.write(header(MessageType::NEGOTIATE)),
            Self::Challenge(challenge) => challenge.write(header(MessageType::CHALLENGE)),
            Self::Reply(reply) => reply.write(header(MessageType::REPLY)),
            Self::Success1 { response, hash_length } => {
                let fixed = wire::Success1 {
                    header: header(MessageType::SUCCESS1),
                    hash_length: byte(*hash_length),
                    reserved1: Reserved::default(),
                    response_valid: u8::from(response.is_some()),
                    reserved2: Reserved::default(),
                };
                [fixed.bytes(), response.unwrap_or_default()].concat()
            }
            Self::Success2 => {
                let header = header(MessageType::SUCCESS2);
                wire::Success2 { header, reserved: Reserved::default() }.bytes().to_vec()
            }
            Self::Failure1(reason) => failure(header(MessageType::FAILURE1), *reason),
            Self::Failure2(reason) => failure(header(MessageType::FAILURE2), *reason),
        }
    }
}

impl Negotiate {
    fn read(bytes: &[u8]) -> Result<Self, FailureReason> {
        let fixed = fixed::<wire::Negotiate>(bytes)?;
        let mut rest = Rest::after(fixed, bytes);
        let mut read = Self {
            secure_channel: fixed.secure_channel,
            hashes: Vec::new(),
            groups: Vec::new(),
            is_usable: false,
        };
        for _ in 0..fixed.descriptors {
            let descriptor = rest.take(ProtocolDescriptor::SIZE)?;
            let descriptor = self::fixed::<ProtocolDescriptor>(descriptor)?;
            if descriptor.protocol == PROTOCOL_DH_HMAC_CHAP && !read.is_usable {
                let (hashes, groups) = (descriptor.hashes(), descriptor.groups());
                read.hashes = hashes.iter().filter_map(|id| HashFunction::of(*id)).collect();
                read.groups = groups.iter().filter_map(|id| Group::of(*id)).collect();
                read.is_usable = true;
            }
        }
        Ok(read)
    }

    fn write(&self, header: Header) -> Vec<u8> {
        let hashes: Vec<_> = self.hashes.iter().map(|hash| hash.id()).collect();
        let groups: Vec<_> = self.groups.iter().map(|group| group.id()).collect();
        let fixed = wire::Negotiate { header, secure_channel: self.secure_channel, descriptors: 1 };
        [fixed.bytes(), ProtocolDescriptor::new(&hashes, &groups).bytes()].concat()
    }
}

impl<'a> Challenge<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, FailureReason> {
        let fixed = fixed::<wire::Challenge>(bytes)?;
        let hash = HashFunction::of(fixed.hash).ok_or(FailureReason::HASH_NOT_USABLE)?;
        let group = Group::of(fixed.group).ok_or(FailureReason::GROUP_NOT_USABLE)?;
        let mut rest = Rest::after(fixed, bytes);
        rest.expect(fixed.hash_length.into(), hash.length())?;
        rest.expect(fixed.dh_value_length.get().into(), group.value_length())?;
        Ok(Self {
            hash,
            group,
            sequence: fixed.sequence.get(),
            challenge: rest.take(hash.length())?,
            value: rest.take(group.value_length())?,
        })
    }

    fn write(&self, header: Header) -> Vec<u8> {
        let fixed = wire::Challenge {
            header,
            hash_length: byte(self.challenge.len()),
            reserved: Reserved::default(),
            hash: self.hash.id(),
            group: self.group.id(),
            dh_value_length: word(self.value.len()),
            sequence: U32::new(self.sequence),
        };
        [fixed.bytes(), self.challenge, self.value].concat()
    }
}

impl<'a> Reply<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, FailureReason> {
        let fixed = fixed::<wire::Reply>(bytes)?;
        let hash_length = usize::from(fixed.hash_length);
        let mut rest = Rest::after(fixed, bytes);
        let response = rest.take(hash_length)?;
        // Without a challenge its place is there nevertheless.
        let challenge = rest.take(hash_length)?;
        Ok(Self {
            sequence: fixed.sequence.get(),
            response,
            challenge: (fixed.challenge_valid != 0).then_some(challenge),
            value: rest.take(fixed.dh_value_length.get().into())?,
        })
    }

    fn write(&self, header: Header) -> Vec<u8> {
        let fixed = wire::Reply {
            header,
            hash_length: byte(self.response.len()),
            reserved1: Reserved::default(),
            challenge_valid: u8::from(self.challenge.is_some()),
            reserved2: Reserved::default(),
            dh_value_length: word(self.value.len()),
            sequence: U32::new(self.sequence),
        };
        let none = [0; HashFunction::LENGTH_MAX];
        let none = none.get(..self.response.len()).unwrap_or(&none);
        let challenge = self.challenge.unwrap_or(none);
        [fixed.bytes(), self.response, challenge, self.value].concat()
    }
}

fn failure(header: Header, reason: FailureReason) -> Vec<u8> {
    wire::Failure { header, reason_code: FAILURE_REASON_CODE, reason }.bytes().to_vec()
}

/// The fixed part at the beginning of a message.
fn fixed<T: Wire>(bytes: &[u8]) -> Result<&T, FailureReason> {
    T::view(bytes).map_err(|_| FailureReason::INCORRECT_PAYLOAD)
}

/// What follows the fixed part.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn after<T: Wire>(_fixed: &T, bytes: &'a [u8]) -> Self {
        Self(bytes.get(T::SIZE..).unwrap_or_default())
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], FailureReason> {
        let taken = self.0.split_at_checked(length);
        let (taken, rest) = taken.ok_or(FailureReason::INCORRECT_PAYLOAD)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A length must be the one that follows from the choice of the hash function or group.
    fn expect(&self, length: usize, expected: usize) -> Result<(), FailureReason> {
        if length == expected { Ok(()) } else { Err(FailureReason::INCORRECT_PAYLOAD) }
    }
}

fn byte(length: usize) -> u8 {
    u8::try_from(length).unwrap_or(u8::MAX)
}

fn word(length: usize) -> U16 {
    U16::new(u16::try_from(length).unwrap_or(u16::MAX))
}
