//! Asymmetric Namespace Access: the state of each group of namespaces at this controller.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::wire::{Reserved, U16, U32, U64, Wire};

code_space! {
    /// Asymmetric Namespace Access State.
    pub struct AsymmetricNamespaceAccessState(pub u8);
    OPTIMIZED = 0x1, "ANA Optimized";
    NON_OPTIMIZED = 0x2, "ANA Non-Optimized";
    INACCESSIBLE = 0x3, "ANA Inaccessible";
    PERSISTENT_LOSS = 0x4, "ANA Persistent Loss";
    CHANGE = 0xf, "ANA Change";
}

/// Head of the Asymmetric Namespace Access log page (0Ch, 16 bytes); group descriptors follow.
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
pub struct AsymmetricNamespaceAccessHeader {
    /// Change Count.
    pub change_count: U64,
    /// Number of ANA Group Descriptors.
    pub groups: U16,
    /// Reserved.
    pub reserved: Reserved<6>,
}

assert_layout!(AsymmetricNamespaceAccessHeader, size 16, change_count at 0, groups at 8,
    reserved at 10);

/// ANA Group Descriptor (32 bytes); its namespace identifiers follow, unless only groups were
/// asked for.
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
pub struct GroupDescriptor {
    /// ANA Group ID.
    pub group_id: U32,
    /// Number of NSID Values.
    pub namespaces: U32,
    /// Change Count.
    pub change_count: U64,
    /// Asymmetric Namespace Access State, in bits 3:0.
    pub state: AsymmetricNamespaceAccessState,
    /// Reserved.
    pub reserved: Reserved<15>,
}

assert_layout!(GroupDescriptor, size 32, group_id at 0, namespaces at 4, change_count at 8,
    state at 16, reserved at 17);

impl GroupDescriptor {
    /// A group.
    #[must_use]
    pub fn new(
        group_id: u32,
        state: AsymmetricNamespaceAccessState,
        change_count: u64,
        namespaces: u32,
    ) -> Self {
        Self {
            group_id: U32::new(group_id),
            namespaces: U32::new(namespaces),
            change_count: U64::new(change_count),
            state,
            reserved: Reserved::default(),
        }
    }

    /// The state, without the reserved bits beside it.
    #[must_use]
    pub const fn state(&self) -> AsymmetricNamespaceAccessState {
        AsymmetricNamespaceAccessState(self.state.0 & 0x0f)
    }
}

/// The namespace identifiers behind a group descriptor.
#[derive(Debug, Clone)]
pub struct NamespaceIds<'page>(&'page [u8]);

impl Iterator for NamespaceIds<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let (namespace_id, rest) = U32::read_from_prefix(self.0).ok()?;
        self.0 = rest;
        Some(namespace_id.get())
    }
}

/// The log page ends within a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedGroup;

impl fmt::Display for MalformedGroup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the Asymmetric Namespace Access log page ends within a group")
    }
}

impl core::error::Error for MalformedGroup {}

/// The groups of a log page as it was received, with their namespaces.
#[derive(Debug, Clone)]
pub struct Groups<'page> {
    left: u16,
    rest: &'page [u8],
}

impl<'page> Groups<'page> {
    /// Iterates over a whole log page.
    pub fn new(page: &'page [u8]) -> Result<Self, MalformedGroup> {
        let (header, rest) =
            AsymmetricNamespaceAccessHeader::read_from_prefix(page).map_err(|_| MalformedGroup)?;
        Ok(Self { left: header.groups.get(), rest })
    }

    fn take_group(&mut self) -> Option<(GroupDescriptor, NamespaceIds<'page>)> {
        let (group, rest) = GroupDescriptor::read_from_prefix(self.rest).ok()?;
        let length = usize::try_from(group.namespaces.get()).ok()?.checked_mul(U32::SIZE)?;
        let (namespaces, rest) = rest.split_at_checked(length)?;
        self.rest = rest;
        Some((group, NamespaceIds(namespaces)))
    }
}

impl<'page> Iterator for Groups<'page> {
    type Item = Result<(GroupDescriptor, NamespaceIds<'page>), MalformedGroup>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let group = self.take_group();
        if group.is_none() {
            self.left = 0;
        }
        Some(group.ok_or(MalformedGroup))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::test_support::{check_truncations, hex};
    use std::vec::Vec;

    /// Two groups, one of two namespaces and one of none, as the Linux target writes them
    /// (`nvmet_format_ana_group`).
    const PAGE: &str = "0700000000000000 0200 000000000000
        01000000 02000000 0600000000000000 01 000000000000000000000000000000 01000000 05000000
        02000000 00000000 0700000000000000 f3 000000000000000000000000000000";

    #[test]
    fn groups() {
        let page = hex(PAGE);
        check_truncations::<AsymmetricNamespaceAccessHeader>(&page[..16]);
        check_truncations::<GroupDescriptor>(&page[16..48]);
        let groups: Vec<_> = Groups::new(&page).unwrap().map(Result::unwrap).collect();
        assert_eq!(groups.len(), 2);
        let (group, namespaces) = groups[0].clone();
        let optimized = AsymmetricNamespaceAccessState::OPTIMIZED;
        assert_eq!(group, GroupDescriptor::new(1, optimized, 6, 2));
        assert_eq!(namespaces.collect::<Vec<_>>(), [1, 5]);
        let (group, namespaces) = groups[1].clone();
        assert_eq!(group.state(), AsymmetricNamespaceAccessState::INACCESSIBLE);
        assert_eq!(namespaces.count(), 0);
    }

    #[test]
    fn every_truncation_is_malformed() {
        let page = hex(PAGE);
        for length in 0..page.len() {
            match Groups::new(&page[..length]) {
                Err(MalformedGroup) => assert!(length < 16, "{length}"),
                Ok(groups) => {
                    let groups: Vec<_> = groups.collect();
                    assert!(groups.last().unwrap().is_err(), "{length}");
                    assert_eq!(groups.len(), if length < 56 { 1 } else { 2 }, "{length}");
                }
            }
        }
    }

    #[test]
    fn a_wrong_count_is_malformed() {
        let mut page = hex(PAGE);
        page[20..24].copy_from_slice(&[0xff; 4]);
        let groups: Vec<_> = Groups::new(&page).unwrap().collect();
        assert_eq!(groups.len(), 1);
        assert!(groups[0].is_err());
    }
}
