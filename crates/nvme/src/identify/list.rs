//! Lists of namespaces, controllers and command sets.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::attribute::CommandSets;
use crate::wire::{U16, U32, U64};

/// Namespace identifiers that fit in one list.
pub const NAMESPACES_PER_LIST: usize = 1024;

/// Controller identifiers that fit in one list.
pub const PER_CONTROLLER_LIST: usize = 2047;

/// Namespace List (4096 bytes): identifiers in ascending order, then zeros.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct NamespaceList {
    /// Namespace identifiers.
    pub namespace_ids: [U32; NAMESPACES_PER_LIST],
}

assert_layout!(NamespaceList, size 4096, namespace_ids at 0);

impl NamespaceList {
    /// The list of the first 1024 of these identifiers.
    pub fn new(namespace_ids: impl IntoIterator<Item = u32>) -> Self {
        let mut list = Self { namespace_ids: [U32::ZERO; NAMESPACES_PER_LIST] };
        for (place, namespace_id) in list.namespace_ids.iter_mut().zip(namespace_ids) {
            *place = U32::new(namespace_id);
        }
        list
    }

    /// The identifiers up to the first zero.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.namespace_ids.iter().map(|id| id.get()).take_while(|id| *id != 0)
    }
}

/// Controller List (4096 bytes): a count, then identifiers in ascending order.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ControllerList {
    /// Number of Identifiers.
    pub count: U16,
    /// Controller identifiers.
    pub controller_ids: [U16; PER_CONTROLLER_LIST],
}

assert_layout!(ControllerList, size 4096, count at 0, controller_ids at 2);

impl ControllerList {
    /// The list of the first 2047 of these identifiers.
    pub fn new(controller_ids: impl IntoIterator<Item = u16>) -> Self {
        let mut list = Self { count: U16::ZERO, controller_ids: [U16::ZERO; PER_CONTROLLER_LIST] };
        let mut count = 0;
        for (place, controller_id) in list.controller_ids.iter_mut().zip(controller_ids) {
            *place = U16::new(controller_id);
            count += 1;
        }
        list.count = U16::new(count);
        list
    }

    /// The identifiers; a count that is too large is taken as the largest.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.controller_ids.iter().map(|id| id.get()).take(usize::from(self.count.get()))
    }
}

/// Identify I/O Command Set Data Structure (CNS 1Ch, 4096 bytes): the combinations of command
/// sets that the controller can have.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CommandSetVectors {
    /// I/O Command Set Combination 0 to 511.
    pub combinations: [U64; 512],
}

assert_layout!(CommandSetVectors, size 4096, combinations at 0);

impl CommandSetVectors {
    /// One single combination.
    #[must_use]
    pub fn single(combination: CommandSets) -> Self {
        let mut vectors = Self { combinations: [U64::ZERO; 512] };
        if let Some(first) = vectors.combinations.first_mut() {
            *first = U64::new(combination.0);
        }
        vectors
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;
    use crate::wire::test_support::{check_truncations, hex_padded};
    use std::vec::Vec;

    #[test]
    fn namespaces() {
        let vector = hex_padded("01000000 02000000 feffffff", 4096);
        check_truncations::<NamespaceList>(&vector);
        let list = NamespaceList::new([1, 2, 0xffff_fffe]);
        assert_eq!(list.bytes(), vector);
        assert_eq!(list.iter().collect::<Vec<_>>(), [1, 2, 0xffff_fffe]);
        let full = NamespaceList::new(1..);
        assert_eq!(full.iter().count(), NAMESPACES_PER_LIST);
        assert_eq!(full.iter().last(), Some(1024));
        assert_eq!(NamespaceList::new([]).iter().next(), None);
    }

    #[test]
    fn controllers() {
        let vector = hex_padded("0200 0100 0a00", 4096);
        check_truncations::<ControllerList>(&vector);
        let list = ControllerList::new([1, 10]);
        assert_eq!(list.bytes(), vector);
        assert_eq!(list.iter().collect::<Vec<_>>(), [1, 10]);
        let full = ControllerList::new(0..=u16::MAX);
        assert_eq!(full.count.get(), 2047);
        let lying = ControllerList { count: U16::new(u16::MAX), ..full };
        assert_eq!(lying.iter().count(), PER_CONTROLLER_LIST);
    }

    #[test]
    fn command_sets() {
        let vector = hex_padded("01", 4096);
        check_truncations::<CommandSetVectors>(&vector);
        let sets = CommandSetVectors::single(CommandSets(0).with_nvm(true));
        assert_eq!(sets.bytes(), vector);
    }
}
