//! In-band authentication: the messages of DH-HMAC-CHAP, which Authentication Send and Receive
//! carry.
//!
//! Each layout is the fixed part of a message. What follows it (hash values, DH values) has the
//! lengths that the fixed part names; whether these fit is checked by who reads the message.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::wire::{Reserved, U16, U32};

code_space! {
    /// Type of a message (AUTH_TYPE in bits 7:0, AUTH_ID in bits 15:8).
    pub struct MessageType(pub u16);
    NEGOTIATE = 0x0000, "AUTH_Negotiate";
    FAILURE2 = 0xf000, "AUTH_Failure2";
    FAILURE1 = 0xf100, "AUTH_Failure1";
    CHALLENGE = 0x0101, "DH-HMAC-CHAP_Challenge";
    REPLY = 0x0201, "DH-HMAC-CHAP_Reply";
    SUCCESS1 = 0x0301, "DH-HMAC-CHAP_Success1";
    SUCCESS2 = 0x0401, "DH-HMAC-CHAP_Success2";
}

code_space! {
    /// Identifier of a hash function.
    pub struct HashId(pub u8);
    SHA_256 = 0x01, "SHA-256";
    SHA_384 = 0x02, "SHA-384";
    SHA_512 = 0x03, "SHA-512";
}

code_space! {
    /// Identifier of a Diffie-Hellman group.
    pub struct GroupId(pub u8);
    NULL = 0x00, "NULL";
    FFDHE2048 = 0x01, "ffdhe2048";
    FFDHE3072 = 0x02, "ffdhe3072";
    FFDHE4096 = 0x03, "ffdhe4096";
    FFDHE6144 = 0x04, "ffdhe6144";
    FFDHE8192 = 0x05, "ffdhe8192";
}

code_space! {
    /// Secure Channel Protocol Identifier (SC_C): what the host wants besides authentication.
    pub struct SecureChannel(pub u8);
    NONE = 0x00, "No secure channel";
    NEW_TLS_PSK = 0x02, "Secure channel concatenation with a new TLS PSK";
    REPLACE_TLS_PSK = 0x03, "Replacement of the TLS PSK of a secure channel";
}

code_space! {
    /// Reason Code Explanation (RCE) of a failure.
    pub struct FailureReason(pub u8);
    FAILED = 0x01, "Authentication failed";
    PROTOCOL_NOT_USABLE = 0x02, "Authentication protocol not usable";
    CONCATENATION_MISMATCH = 0x03, "Secure channel concatenation mismatch";
    HASH_NOT_USABLE = 0x04, "Hash function not usable";
    GROUP_NOT_USABLE = 0x05, "DH group not usable";
    INCORRECT_PAYLOAD = 0x06, "Incorrect payload";
    INCORRECT_MESSAGE = 0x07, "Incorrect protocol message";
}

/// The only Reason Code (RC) of a failure: authentication failure.
pub const FAILURE_REASON_CODE: u8 = 1;

/// Authentication Protocol Identifier (AUTHID) of DH-HMAC-CHAP.
pub const PROTOCOL_DH_HMAC_CHAP: u8 = 1;

/// How every message begins.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// AUTH_TYPE and AUTH_ID, see [`Header::message_type`].
    pub raw_type: U16,
    /// Reserved.
    pub reserved: Reserved<2>,
    /// Transaction Identifier (T_ID).
    pub transaction_id: U16,
}

assert_layout!(Header, size 6, raw_type at 0, reserved at 2, transaction_id at 4);

impl Header {
    /// The header of a message.
    #[must_use]
    pub const fn new(message_type: MessageType, transaction_id: u16) -> Self {
        Self {
            raw_type: U16::new(message_type.0),
            reserved: Reserved([0; 2]),
            transaction_id: U16::new(transaction_id),
        }
    }

    /// Type of the message.
    #[must_use]
    pub const fn message_type(&self) -> MessageType {
        MessageType(self.raw_type.get())
    }
}

/// AUTH_Negotiate without its protocol descriptors.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Negotiate {
    /// How every message begins.
    pub header: Header,
    /// SC_C.
    pub secure_channel: SecureChannel,
    /// Number of Authentication Protocol Descriptors (NAPD).
    pub descriptors: u8,
}

assert_layout!(Negotiate, size 8, header at 0, secure_channel at 6, descriptors at 7);

/// Authentication Protocol Descriptor of DH-HMAC-CHAP.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ProtocolDescriptor {
    /// AUTHID.
    pub protocol: u8,
    /// Reserved.
    pub reserved: Reserved<1>,
    /// Length of the list of hash functions (HALEN).
    pub hash_count: u8,
    /// Length of the list of DH groups (DHLEN).
    pub group_count: u8,
    /// Hash functions, the preferred one first.
    pub hashes: [HashId; Self::LIST_LENGTH],
    /// DH groups, the preferred one first.
    pub groups: [GroupId; Self::LIST_LENGTH],
}

assert_layout!(ProtocolDescriptor, size 64, hashes at 4, groups at 34);

impl ProtocolDescriptor {
    /// Places of each list.
    pub const LIST_LENGTH: usize = 30;

    /// A descriptor with these lists; what does not fit is left out.
    #[must_use]
    pub fn new(hashes: &[HashId], groups: &[GroupId]) -> Self {
        let (hash_list, hash_count) = list(hashes);
        let (group_list, group_count) = list(groups);
        Self {
            protocol: PROTOCOL_DH_HMAC_CHAP,
            reserved: Reserved::default(),
            hash_count,
            group_count,
            hashes: hash_list,
            groups: group_list,
        }
    }

    /// The hash functions; none if their number is more than there are places.
    #[must_use]
    pub fn hashes(&self) -> &[HashId] {
        self.hashes.get(..usize::from(self.hash_count)).unwrap_or_default()
    }

    /// The DH groups; none if their number is more than there are places.
    #[must_use]
    pub fn groups(&self) -> &[GroupId] {
        self.groups.get(..usize::from(self.group_count)).unwrap_or_default()
    }
}

fn list<T: Copy + Default>(items: &[T]) -> ([T; ProtocolDescriptor::LIST_LENGTH], u8) {
    let mut places = [T::default(); ProtocolDescriptor::LIST_LENGTH];
    let mut count = 0;
    for (place, item) in places.iter_mut().zip(items) {
        *place = *item;
        count += 1;
    }
    (places, count)
}

/// DH-HMAC-CHAP_Challenge without the challenge value and the DH value.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Challenge {
    /// How every message begins.
    pub header: Header,
    /// Hash Length (HL), of the challenge value as well.
    pub hash_length: u8,
    /// Reserved.
    pub reserved: Reserved<1>,
    /// Selected hash function (HashID).
    pub hash: HashId,
    /// Selected DH group (DHgID).
    pub group: GroupId,
    /// DH Value Length (DHVLEN).
    pub dh_value_length: U16,
    /// Sequence Number (SEQNUM).
    pub sequence: U32,
}

assert_layout!(Challenge, size 16, header at 0, hash_length at 6, hash at 8, group at 9,
    dh_value_length at 10, sequence at 12);

/// DH-HMAC-CHAP_Reply without the response value, the challenge value and the DH value.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Reply {
    /// How every message begins.
    pub header: Header,
    /// Hash Length (HL), of the challenge value as well.
    pub hash_length: u8,
    /// Reserved.
    pub reserved1: Reserved<1>,
    /// Challenge Valid (CVALID): 1 if the host wants the controller to authenticate itself.
    pub challenge_valid: u8,
    /// Reserved.
    pub reserved2: Reserved<1>,
    /// DH Value Length (DHVLEN).
    pub dh_value_length: U16,
    /// Sequence Number (SEQNUM).
    pub sequence: U32,
}

assert_layout!(Reply, size 16, header at 0, hash_length at 6, challenge_valid at 8,
    dh_value_length at 10, sequence at 12);

/// DH-HMAC-CHAP_Success1 without the response value.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Success1 {
    /// How every message begins.
    pub header: Header,
    /// Hash Length (HL).
    pub hash_length: u8,
    /// Reserved.
    pub reserved1: Reserved<1>,
    /// Response Valid (RVALID): 1 if a response value follows.
    pub response_valid: u8,
    /// Reserved.
    pub reserved2: Reserved<7>,
}

assert_layout!(Success1, size 16, header at 0, hash_length at 6, response_valid at 8);

/// DH-HMAC-CHAP_Success2.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Success2 {
    /// How every message begins.
    pub header: Header,
    /// Reserved.
    pub reserved: Reserved<10>,
}

assert_layout!(Success2, size 16, header at 0, reserved at 6);

/// AUTH_Failure1 and AUTH_Failure2.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Failure {
    /// How every message begins.
    pub header: Header,
    /// Reason Code (RC).
    pub reason_code: u8,
    /// Reason Code Explanation (RCE).
    pub reason: FailureReason,
}

assert_layout!(Failure, size 8, header at 0, reason_code at 6, reason at 7);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;
    use crate::wire::test_support::{check_truncations, hex};

    #[test]
    fn negotiate_with_a_descriptor() {
        let mut message = hex("00 00 0000 0700 00 01");
        let mut descriptor = hex("01 00 02 03 02 01");
        descriptor.resize(34, 0);
        descriptor.extend_from_slice(&[0, 1, 5]);
        descriptor.resize(64, 0);
        message.extend_from_slice(&descriptor);
        let negotiate = Negotiate::view(&message).expect("a negotiate");
        assert_eq!(negotiate.header.message_type(), MessageType::NEGOTIATE);
        assert_eq!(negotiate.header.transaction_id.get(), 7);
        assert_eq!((negotiate.secure_channel, negotiate.descriptors), (SecureChannel::NONE, 1));
        let read = ProtocolDescriptor::view(&message[8..]).expect("a descriptor");
        assert_eq!(read.hashes(), [HashId::SHA_384, HashId::SHA_256]);
        assert_eq!(read.groups(), [GroupId::NULL, GroupId::FFDHE2048, GroupId::FFDHE8192]);
        let made = ProtocolDescriptor::new(read.hashes(), read.groups());
        assert_eq!(made.bytes(), descriptor);
        check_truncations::<ProtocolDescriptor>(&descriptor);
    }

    #[test]
    fn a_list_that_is_too_long_is_none() {
        let mut descriptor = ProtocolDescriptor::new(&[HashId::SHA_256; 40], &[]);
        assert_eq!(descriptor.hashes().len(), 30);
        descriptor.hash_count = 31;
        assert!(descriptor.hashes().is_empty());
    }

    #[test]
    fn message_types() {
        for (bytes, message_type) in [
            ([0x01, 0x01], MessageType::CHALLENGE),
            ([0x01, 0x02], MessageType::REPLY),
            ([0x01, 0x03], MessageType::SUCCESS1),
            ([0x01, 0x04], MessageType::SUCCESS2),
            ([0x00, 0xf1], MessageType::FAILURE1),
            ([0x00, 0xf0], MessageType::FAILURE2),
        ] {
            let header = Header::new(message_type, 0x0102);
            assert_eq!(header.bytes(), [bytes[0], bytes[1], 0, 0, 2, 1]);
        }
    }
}
