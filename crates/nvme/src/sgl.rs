//! Scatter Gather List descriptors: where the data of a command lies.
//!
//! Over Fabrics a command carries exactly one descriptor, SGL1. Over TCP it is either "in this
//! capsule, at this offset" or "the transport will move it"; over RDMA it is keyed.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::wire::{U32, U64};

code_space! {
    /// SGL Descriptor Type.
    pub struct DescriptorType(pub u8);
    DATA_BLOCK = 0x0, "SGL Data Block";
    BIT_BUCKET = 0x1, "SGL Bit Bucket";
    SEGMENT = 0x2, "SGL Segment";
    LAST_SEGMENT = 0x3, "SGL Last Segment";
    KEYED_DATA_BLOCK = 0x4, "Keyed SGL Data Block";
    TRANSPORT_DATA_BLOCK = 0x5, "Transport SGL Data Block";
    VENDOR_SPECIFIC = 0xf, "Vendor Specific";
}

code_space! {
    /// SGL Descriptor Sub Type. Ah to Fh belong to the transport.
    pub struct DescriptorSubType(pub u8);
    ADDRESS = 0x0, "Address";
    OFFSET = 0x1, "Offset";
    TRANSPORT_A = 0xa, "NVMe Transport Specific Ah";
    INVALIDATE_KEY = 0xf, "Invalidate Key (RDMA)";
}

/// SGL Identifier: the last byte of a descriptor.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(transparent)]
pub struct Identifier(pub u8);

bit_fields! {
    pub Identifier(u8) {
        /// SGL Descriptor Sub Type, as a number.
        [3:0] raw_sub_type, with_raw_sub_type -> u8;
        /// SGL Descriptor Type, as a number.
        [7:4] raw_type, with_raw_type -> u8;
    }
}

impl Identifier {
    /// An identifier of this type and sub type.
    #[must_use]
    pub const fn new(descriptor_type: DescriptorType, sub_type: DescriptorSubType) -> Self {
        Self(0).with_raw_type(descriptor_type.0).with_raw_sub_type(sub_type.0)
    }

    /// SGL Descriptor Type.
    #[must_use]
    pub const fn descriptor_type(self) -> DescriptorType {
        DescriptorType(self.raw_type())
    }

    /// SGL Descriptor Sub Type.
    #[must_use]
    pub const fn sub_type(self) -> DescriptorSubType {
        DescriptorSubType(self.raw_sub_type())
    }
}

impl fmt::Debug for Identifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}/{:?}", self.descriptor_type(), self.sub_type())
    }
}

/// SGL Descriptor Format (16 bytes), in the shape of the unkeyed descriptors.
///
/// A keyed descriptor has the same address and identifier; what lies between them is read by
/// [`Descriptor::location`].
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
pub struct Descriptor {
    /// Address, or an offset from the beginning of the capsule's data.
    pub address: U64,
    /// Length in bytes; in a keyed descriptor its low 24 bits, then the low byte of the key.
    pub length: U32,
    /// Reserved; in a keyed descriptor the high three bytes of the key.
    pub reserved: [u8; 3],
    /// SGL Identifier.
    pub identifier: Identifier,
}

assert_layout!(Descriptor, size 16, address at 0, length at 8, reserved at 12, identifier at 15);

/// Longest data block of a keyed descriptor: its length has 24 bits.
pub const KEYED_LENGTH_MAX: u32 = 0x00ff_ffff;

/// A parsed descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// Data Block, Address: memory of the host (PCI Express; not used over Fabrics).
    Memory {
        /// Address in the host's memory.
        address: u64,
        /// Length in bytes.
        length: u32,
    },
    /// Data Block, Offset: inside the command capsule.
    InCapsule {
        /// Bytes from the start of the in-capsule data (after ICDOFF).
        offset: u64,
        /// Length in bytes.
        length: u32,
    },
    /// Bit Bucket: data that is to be thrown away.
    BitBucket {
        /// Length in bytes.
        length: u32,
    },
    /// Segment or Last Segment: an array of further descriptors.
    Segment {
        /// Address, or the offset in the capsule if `in_capsule` is set.
        address: u64,
        /// Length of the segment in bytes.
        length: u32,
        /// Whether the address is an offset in the capsule.
        in_capsule: bool,
        /// Whether no further segment follows.
        last: bool,
    },
    /// Keyed Data Block: memory that the host registered for remote access (RDMA).
    Keyed {
        /// Remote address.
        address: u64,
        /// Length in bytes, at most [`KEYED_LENGTH_MAX`].
        length: u32,
        /// Remote key.
        key: u32,
        /// Whether the key is to be invalidated with the completion.
        invalidate: bool,
    },
    /// Transport Data Block, sub type Ah: the transport moves the data (TCP).
    Transport {
        /// Length in bytes.
        length: u32,
    },
}

impl Location {
    /// Length in bytes of the data.
    #[must_use]
    pub const fn length(&self) -> u32 {
        match *self {
            Self::Memory { length, .. }
            | Self::InCapsule { length, .. }
            | Self::BitBucket { length }
            | Self::Segment { length, .. }
            | Self::Keyed { length, .. }
            | Self::Transport { length } => length,
        }
    }
}

/// A type and sub type that this descriptor format does not define together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownDescriptor(pub Identifier);

impl fmt::Display for UnknownDescriptor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "SGL descriptor of type {:X}h, sub type {:X}h",
            self.0.raw_type(),
            self.0.raw_sub_type()
        )
    }
}

impl core::error::Error for UnknownDescriptor {}

impl Descriptor {
    /// Data of `length` bytes at `offset` of the capsule's in-capsule data.
    #[must_use]
    pub const fn in_capsule(offset: u64, length: u32) -> Self {
        Self::unkeyed(offset, length, DescriptorType::DATA_BLOCK, DescriptorSubType::OFFSET)
    }

    /// Data of `length` bytes that the transport moves.
    #[must_use]
    pub const fn transport(length: u32) -> Self {
        Self::unkeyed(
            0,
            length,
            DescriptorType::TRANSPORT_DATA_BLOCK,
            DescriptorSubType::TRANSPORT_A,
        )
    }

    /// Data of `length` bytes (low 24 bits) in remote memory.
    #[must_use]
    pub const fn keyed(address: u64, length: u32, key: u32, invalidate: bool) -> Self {
        let middle = KeyedFields(0).with_length(length).with_key(key);
        let [l0, l1, l2, k0, k1, k2, k3, _] = middle.0.to_le_bytes();
        let sub_type =
            if invalidate { DescriptorSubType::INVALIDATE_KEY } else { DescriptorSubType::ADDRESS };
        Self {
            address: U64::new(address),
            length: U32::from_bytes([l0, l1, l2, k0]),
            reserved: [k1, k2, k3],
            identifier: Identifier::new(DescriptorType::KEYED_DATA_BLOCK, sub_type),
        }
    }

    /// A descriptor in the shape without a key.
    #[must_use]
    pub const fn unkeyed(
        address: u64,
        length: u32,
        descriptor_type: DescriptorType,
        sub_type: DescriptorSubType,
    ) -> Self {
        Self {
            address: U64::new(address),
            length: U32::new(length),
            reserved: [0; 3],
            identifier: Identifier::new(descriptor_type, sub_type),
        }
    }

    /// Parses the descriptor.
    pub const fn location(&self) -> Result<Location, UnknownDescriptor> {
        let address = self.address.get();
        let length = self.length.get();
        let last = matches!(self.identifier.descriptor_type(), DescriptorType::LAST_SEGMENT);
        match (self.identifier.descriptor_type(), self.identifier.sub_type()) {
            (DescriptorType::DATA_BLOCK, DescriptorSubType::ADDRESS) => {
                Ok(Location::Memory { address, length })
            }
            (DescriptorType::DATA_BLOCK, DescriptorSubType::OFFSET) => {
                Ok(Location::InCapsule { offset: address, length })
            }
            (DescriptorType::BIT_BUCKET, DescriptorSubType::ADDRESS) => {
                Ok(Location::BitBucket { length })
            }
            (
                DescriptorType::SEGMENT | DescriptorType::LAST_SEGMENT,
                sub_type @ (DescriptorSubType::ADDRESS | DescriptorSubType::OFFSET),
            ) => {
                let in_capsule = matches!(sub_type, DescriptorSubType::OFFSET);
                Ok(Location::Segment { address, length, in_capsule, last })
            }
            (DescriptorType::KEYED_DATA_BLOCK, DescriptorSubType::ADDRESS) => {
                Ok(self.keyed_location(false))
            }
            (DescriptorType::KEYED_DATA_BLOCK, DescriptorSubType::INVALIDATE_KEY) => {
                Ok(self.keyed_location(true))
            }
            (DescriptorType::TRANSPORT_DATA_BLOCK, DescriptorSubType::TRANSPORT_A) => {
                Ok(Location::Transport { length })
            }
            _ => Err(UnknownDescriptor(self.identifier)),
        }
    }

    const fn keyed_location(&self, invalidate: bool) -> Location {
        let [l0, l1, l2, k0] = self.length.to_bytes();
        let [k1, k2, k3] = self.reserved;
        let middle = KeyedFields(u64::from_le_bytes([l0, l1, l2, k0, k1, k2, k3, 0]));
        Location::Keyed {
            address: self.address.get(),
            length: middle.length(),
            key: middle.key(),
            invalidate,
        }
    }
}

/// Bytes 8 to 14 of a keyed descriptor.
#[derive(Clone, Copy)]
struct KeyedFields(u64);

bit_fields! {
    KeyedFields(u64) {
        /// Length.
        [23:0] length, with_length -> u32;
        /// Key.
        [55:24] key, with_key -> u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;
    use crate::wire::test_support::{check_truncations, hex};
    use std::format;

    #[test]
    fn fields_do_not_overlap() {
        Identifier::check_bit_fields();
        KeyedFields::check_bit_fields();
    }

    /// What the Linux host puts into SGL1 for 1024 bytes of Connect data over TCP.
    #[test]
    fn in_capsule_data() {
        let vector = hex("0000000000000000 00040000 000000 01");
        check_truncations::<Descriptor>(&vector);
        let descriptor = Descriptor::read(&vector).unwrap();
        assert_eq!(descriptor, Descriptor::in_capsule(0, 1024));
        assert_eq!(descriptor.location(), Ok(Location::InCapsule { offset: 0, length: 1024 }));
    }

    /// What the Linux host puts into SGL1 for a read of 4096 bytes over TCP.
    #[test]
    fn transport_data() {
        let vector = hex("0000000000000000 00100000 000000 5a");
        let descriptor = Descriptor::read(&vector).unwrap();
        assert_eq!(descriptor, Descriptor::transport(4096));
        assert_eq!(descriptor.location(), Ok(Location::Transport { length: 4096 }));
    }

    /// `nvme_keyed_sgl_desc` of Linux: address, 24 bits of length, 32 of key, type.
    #[test]
    fn keyed_data() {
        let vector = hex("8877665544332211 563412 efbeadde 4f");
        let descriptor = Descriptor::read(&vector).unwrap();
        let keyed = Location::Keyed {
            address: 0x1122_3344_5566_7788,
            length: 0x12_3456,
            key: 0xdead_beef,
            invalidate: true,
        };
        assert_eq!(descriptor.location(), Ok(keyed));
        assert_eq!(
            Descriptor::keyed(0x1122_3344_5566_7788, 0x12_3456, 0xdead_beef, true),
            descriptor
        );
        assert_eq!(Descriptor::keyed(0, u32::MAX, 0, false).bytes()[8..12], [0xff, 0xff, 0xff, 0]);
    }

    #[test]
    fn every_identifier_is_parsed_or_named() {
        for raw in 0..=u8::MAX {
            let descriptor = Descriptor { identifier: Identifier(raw), ..Default::default() };
            let known = [0x00, 0x01, 0x10, 0x20, 0x21, 0x30, 0x31, 0x40, 0x4f, 0x5a];
            assert_eq!(descriptor.location().is_ok(), known.contains(&raw), "{raw:#x}");
        }
        let text = format!("{}", UnknownDescriptor(Identifier(0x5b)));
        assert_eq!(text, "SGL descriptor of type 5h, sub type Bh");
    }

    #[test]
    fn segments_say_whether_they_are_last() {
        let descriptor =
            Descriptor::unkeyed(7, 32, DescriptorType::LAST_SEGMENT, DescriptorSubType::OFFSET);
        let expected = Location::Segment { address: 7, length: 32, in_capsule: true, last: true };
        assert_eq!(descriptor.location(), Ok(expected));
        assert_eq!(expected.length(), 32);
    }
}
