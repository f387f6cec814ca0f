//! Discovery Information Management: what hosts and Direct Discovery controllers register with a
//! discovery controller; and extended entries of the Discovery log page, which are laid out alike.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::nqn::NQN_FIELD_LENGTH;
use crate::wire::{Reserved, Text, U16, U32, U64};

code_space! {
    /// Task (TAS), in bits 3:0 of Command Dword 10.
    pub struct DiscoveryTask(pub u8);
    REGISTER = 0x0, "Register";
    DEREGISTER = 0x1, "De-Register";
    UPDATE = 0x2, "Update";
}

code_space! {
    /// Entry Format (ENTFMT).
    pub struct DiscoveryEntryFormat(pub u16);
    BASIC = 0x1, "basic";
    EXTENDED = 0x2, "extended";
}

code_space! {
    /// Entity Type (ETYPE).
    pub struct EntityType(pub u16);
    HOST = 0x1, "host";
    DIRECT = 0x2, "Direct Discovery controller";
    CENTRALIZED = 0x3, "Centralized Discovery controller";
}

code_space! {
    /// Entry Key Type (EKTYPE): which fields tell one entry from another.
    pub struct EntryKeyType(pub u16);
    PORT_ID = 0x3f, "Port ID based";
    ADDRESS = 0x5f, "TRADDR based";
}

code_space! {
    /// Extended Attribute Type (EXATTYPE).
    pub struct ExtendedAttributeType(pub u16);
    HOST_ID = 0x1, "Host Identifier";
    ADMIN_LABEL_ASCII = 0x2, "admin label, ASCII";
    ADMIN_LABEL_UTF8 = 0x3, "admin label, UTF-8";
}

/// Head of the data of Discovery Information Management (1024 bytes); entries follow.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DiscoveryInformation {
    /// Total Data Length (TDL) in bytes, with this head.
    pub total_length: U32,
    /// Reserved.
    pub reserved4: Reserved<4>,
    /// Number of Entries (NUMENT).
    pub entries: U64,
    /// Entry Format (ENTFMT).
    pub raw_entry_format: U16,
    /// Entity Type (ETYPE).
    pub raw_entity_type: U16,
    /// Port Local (PORTLCL): 1 if the entries are of one port of a Direct Discovery controller.
    pub port_local: u8,
    /// Reserved.
    pub reserved21: u8,
    /// Entry Key Type (EKTYPE).
    pub raw_entry_key_type: U16,
    /// Entity Identifier (EID): an NQN.
    pub entity_id: [u8; NQN_FIELD_LENGTH],
    /// Entity Name (ENAME).
    pub entity_name: Text<256>,
    /// Entity Version (EVER).
    pub entity_version: Text<64>,
    /// Reserved.
    pub reserved600: Reserved<424>,
}

assert_layout!(DiscoveryInformation, size 1024, total_length at 0, reserved4 at 4, entries at 8,
    raw_entry_format at 16, raw_entity_type at 18, port_local at 20, reserved21 at 21,
    raw_entry_key_type at 22, entity_id at 24, entity_name at 280, entity_version at 536,
    reserved600 at 600);

/// What an extended entry has behind the fields of a basic one (8 bytes); attributes follow.
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
pub struct ExtendedEntryTail {
    /// Total Entry Length (TEL) in bytes, with the fields of a basic entry.
    pub total_length: U32,
    /// Number of Extended Attributes (NUMEXAT).
    pub attributes: U16,
    /// Reserved.
    pub reserved6: Reserved<2>,
}

assert_layout!(ExtendedEntryTail, size 8, total_length at 0, attributes at 4, reserved6 at 6);

/// Head of an extended attribute (4 bytes); its value follows.
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
pub struct ExtendedAttribute {
    /// Extended Attribute Type (EXATTYPE).
    pub raw_kind: U16,
    /// Extended Attribute Length (EXATLEN) in bytes: a multiple of four.
    pub length: U16,
}

assert_layout!(ExtendedAttribute, size 4, raw_kind at 0, length at 2);
