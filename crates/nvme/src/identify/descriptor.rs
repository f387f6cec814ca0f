//! The Namespace Identification Descriptor list.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::command::CommandSetId;
use crate::wire::{Reserved, Wire};

code_space! {
    /// Namespace Identifier Type (NIDT).
    pub struct IdentifierType(pub u8);
    EUI64 = 0x1, "IEEE Extended Unique Identifier";
    NGUID = 0x2, "Namespace Globally Unique Identifier";
    UUID = 0x3, "Namespace UUID";
    COMMAND_SET = 0x4, "Command Set Identifier";
}

/// Head of a Namespace Identification Descriptor (4 bytes); the identifier follows.
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
pub struct DescriptorHeader {
    /// NIDT; zero ends the list.
    pub identifier_type: IdentifierType,
    /// Namespace Identifier Length (NIDL) in bytes.
    pub length: u8,
    /// Reserved.
    pub reserved: Reserved<2>,
}

assert_layout!(DescriptorHeader, size 4, identifier_type at 0, length at 1, reserved at 2);

/// One identifier of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceIdentifier {
    /// EUI64, big endian.
    Eui64([u8; 8]),
    /// NGUID, big endian.
    Nguid([u8; 16]),
    /// UUID, in the byte order of its text.
    Uuid([u8; 16]),
    /// The command set of the namespace.
    CommandSet(CommandSetId),
    /// One of an unknown type.
    Unknown(IdentifierType),
}

/// A descriptor whose length is not that of its type, or runs over the end of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedDescriptor(pub DescriptorHeader);

impl fmt::Display for MalformedDescriptor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DescriptorHeader { identifier_type, length, .. } = self.0;
        write!(formatter, "namespace identification descriptor {identifier_type} of {length} bytes")
    }
}

impl core::error::Error for MalformedDescriptor {}

/// The descriptors of a list, one after the other; the first malformed one is the last.
#[derive(Debug, Clone)]
pub struct Descriptors<'list> {
    rest: &'list [u8],
}

impl<'list> Descriptors<'list> {
    /// Iterates over a list as it was received.
    #[must_use]
    pub const fn new(list: &'list [u8]) -> Self {
        Self { rest: list }
    }
}

impl Iterator for Descriptors<'_> {
    type Item = Result<NamespaceIdentifier, MalformedDescriptor>;

    fn next(&mut self) -> Option<Self::Item> {
        let (header, rest) = DescriptorHeader::read_from_prefix(self.rest).ok()?;
        if header.length == 0 {
            return None;
        }
        let Some((value, rest)) = rest.split_at_checked(usize::from(header.length)) else {
            self.rest = &[];
            return Some(Err(MalformedDescriptor(header)));
        };
        self.rest = rest;
        let parsed = parse(header, value);
        if parsed.is_err() {
            self.rest = &[];
        }
        Some(parsed)
    }
}

fn parse(
    header: DescriptorHeader,
    value: &[u8],
) -> Result<NamespaceIdentifier, MalformedDescriptor> {
    let malformed = |_| MalformedDescriptor(header);
    match header.identifier_type {
        IdentifierType::EUI64 => {
            value.try_into().map(NamespaceIdentifier::Eui64).map_err(malformed)
        }
        IdentifierType::NGUID => {
            value.try_into().map(NamespaceIdentifier::Nguid).map_err(malformed)
        }
        IdentifierType::UUID => value.try_into().map(NamespaceIdentifier::Uuid).map_err(malformed),
        IdentifierType::COMMAND_SET => match value {
            [command_set] => Ok(NamespaceIdentifier::CommandSet(CommandSetId(*command_set))),
            _ => Err(MalformedDescriptor(header)),
        },
        unknown => Ok(NamespaceIdentifier::Unknown(unknown)),
    }
}

/// There is no room for a further descriptor, or it is one that cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorListFull;

impl fmt::Display for DescriptorListFull {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("no room for a further namespace identification descriptor")
    }
}

impl core::error::Error for DescriptorListFull {}

/// Writes a descriptor at the beginning of `room` and returns the room behind it.
///
/// The list itself starts as zeros, so that whatever is not written ends it.
pub fn push_descriptor(
    room: &mut [u8],
    identifier: NamespaceIdentifier,
) -> Result<&mut [u8], DescriptorListFull> {
    let command_set;
    let (identifier_type, value): (_, &[u8]) = match &identifier {
        NamespaceIdentifier::Eui64(value) => (IdentifierType::EUI64, value),
        NamespaceIdentifier::Nguid(value) => (IdentifierType::NGUID, value),
        NamespaceIdentifier::Uuid(value) => (IdentifierType::UUID, value),
        NamespaceIdentifier::CommandSet(value) => {
            command_set = [value.0];
            (IdentifierType::COMMAND_SET, &command_set)
        }
        NamespaceIdentifier::Unknown(_) => return Err(DescriptorListFull),
    };
    let length = u8::try_from(value.len()).map_err(|_| DescriptorListFull)?;
    let header = DescriptorHeader { identifier_type, length, reserved: Reserved([0; 2]) };
    let (place, room) = room
        .split_at_mut_checked(DescriptorHeader::SIZE + value.len())
        .ok_or(DescriptorListFull)?;
    let (head, tail) = place.split_at_mut(DescriptorHeader::SIZE);
    head.copy_from_slice(header.bytes());
    tail.copy_from_slice(value);
    Ok(room)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::test_support::{check_truncations, hex, hex_padded};
    use std::vec::Vec;

    const UUID: [u8; 16] = *b"0123456789abcdef";

    /// The list of the Linux target (`nvmet_execute_identify_desclist`): UUID, NGUID, CSI.
    #[test]
    fn list() {
        let vector = hex_padded(
            "03 10 0000 30313233343536373839616263646566
             02 10 0000 0f01fb429f7f4856b0b351e60b8de349 04 01 0000 00",
            4096,
        );
        let nguid = hex("0f01fb429f7f4856b0b351e60b8de349").try_into().unwrap();
        let identifiers = [
            NamespaceIdentifier::Uuid(UUID),
            NamespaceIdentifier::Nguid(nguid),
            NamespaceIdentifier::CommandSet(CommandSetId::NVM),
        ];
        let parsed: Result<Vec<_>, _> = Descriptors::new(&vector).collect();
        assert_eq!(parsed.unwrap(), identifiers);

        let mut made = std::vec![0; 4096];
        let mut room = made.as_mut_slice();
        for identifier in identifiers {
            room = push_descriptor(room, identifier).unwrap();
        }
        assert_eq!(made, vector);
        check_truncations::<DescriptorHeader>(&vector[..4]);
    }

    #[test]
    fn every_truncation_ends_or_is_malformed() {
        let vector = hex("03 10 0000 30313233343536373839616263646566 01 08 0000 0102030405060708");
        let whole = Descriptors::new(&vector).filter_map(Result::ok).count();
        assert_eq!(whole, 2);
        for length in 0..vector.len() {
            let parsed: Vec<_> = Descriptors::new(&vector[..length]).collect();
            let good = parsed.iter().filter(|item| item.is_ok()).count();
            assert_eq!(good, usize::from(length >= 20), "{length}");
            let ends_in_header = length < 4 || (20..24).contains(&length);
            assert_eq!(parsed.len() - good, usize::from(!ends_in_header), "{length}");
        }
    }

    #[test]
    fn wrong_lengths_are_malformed_and_unknown_types_are_skipped() {
        for text in ["01 07 0000 01020304050607", "02 01 0000 00", "03 11 0000", "04 02 0000 0000"]
        {
            let parsed: Vec<_> = Descriptors::new(&hex_padded(text, 64)).collect();
            assert_eq!(parsed.len(), 1, "{text}");
            assert!(parsed[0].is_err(), "{text}");
        }
        let vector = hex_padded("7f 03 0000 010203 04 01 0000 02", 64);
        let parsed: Vec<_> = Descriptors::new(&vector).map(Result::unwrap).collect();
        let expected = [
            NamespaceIdentifier::Unknown(IdentifierType(0x7f)),
            NamespaceIdentifier::CommandSet(CommandSetId::ZONED_NAMESPACE),
        ];
        assert_eq!(parsed, expected);
    }

    #[test]
    fn a_full_list_says_so() {
        let mut room = [0; 19];
        let uuid = NamespaceIdentifier::Uuid(UUID);
        assert_eq!(push_descriptor(&mut room, uuid), Err(DescriptorListFull));
        assert_eq!(room, [0; 19]);
        let unknown = NamespaceIdentifier::Unknown(IdentifierType(9));
        assert_eq!(push_descriptor(&mut room, unknown), Err(DescriptorListFull));
        let room = push_descriptor(&mut room, NamespaceIdentifier::Eui64([1; 8])).unwrap();
        assert_eq!(room.len(), 7);
    }
}
