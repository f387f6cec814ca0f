//! The Fabrics command set: Connect, Property Get and Set, Disconnect, and the opcodes of
//! in-band authentication.
//!
//! The commands are read from and turned into a [`Command`]: [`Connect::from_command`] and
//! [`Connect::to_command`], and so on. None of these can fail: what a field's value means, and
//! whether it is acceptable, is decided by who handles the command.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::command::Command;
use crate::completion::Completion;
use crate::nqn::{InvalidNqn, NQN_FIELD_LENGTH, Nqn};
use crate::opcode::FabricsType;
use crate::property::Offset;
use crate::status::Status;
use crate::wire::{U16, U32};

/// Controller ID in Connect that asks the subsystem to make a new controller (dynamic model).
pub const CONTROLLER_ID_DYNAMIC: u16 = 0xffff;

/// Controller ID in Connect that asks for any static controller.
pub const CONTROLLER_ID_STATIC: u16 = 0xfffe;

/// Largest identifier that a controller may have; those above are reserved.
pub const CONTROLLER_ID_MAX: u16 = 0xffef;

/// Record format (RECFMT) of Connect and Disconnect.
pub const RECORD_FORMAT: u16 = 0;

/// Smallest size of the Admin Submission Queue over Fabrics, in entries.
pub const ADMIN_QUEUE_ENTRIES_MIN: u16 = 32;

/// Connect Attributes (CATTR).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ConnectAttributes(pub u8);

bit_fields! {
    pub ConnectAttributes(u8) {
        /// Priority class of an I/O queue with weighted round robin arbitration.
        [1:0] priority_class, with_priority_class -> u8;
        /// The host disables SQ flow control.
        [2] disable_flow_control, with_disable_flow_control;
        /// The host can delete this I/O queue on its own, by Disconnect.
        [3] individual_deletion, with_individual_deletion;
    }
}

impl ConnectAttributes {
    /// The highest priority class, Urgent; High, Medium and Low follow.
    pub const URGENT: u8 = 0;
}

/// The dwords of a Connect command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Connect {
    /// Record Format (RECFMT).
    pub record_format: u16,
    /// Queue ID (QID): 0 for the admin queue.
    pub queue_id: u16,
    /// Submission Queue Size (SQSIZE), 0's based as on the wire.
    pub submission_queue_size: u16,
    /// Connect Attributes (CATTR).
    pub attributes: ConnectAttributes,
    /// Keep Alive Timeout (KATO) in milliseconds; 0 for none.
    pub keep_alive_timeout_ms: u32,
}

#[derive(Clone, Copy)]
struct ConnectDword10(u32);

bit_fields! {
    ConnectDword10(u32) {
        /// RECFMT.
        [15:0] record_format, with_record_format -> u16;
        /// QID.
        [31:16] queue_id, with_queue_id -> u16;
    }
}

#[derive(Clone, Copy)]
struct ConnectDword11(u32);

bit_fields! {
    ConnectDword11(u32) {
        /// SQSIZE.
        [15:0] submission_queue_size, with_submission_queue_size -> u16;
        /// CATTR.
        [23:16] attributes, with_attributes -> u8;
    }
}

impl Connect {
    /// Bytes of data that come with the command.
    pub const DATA_LENGTH: u32 = 1024;

    /// Reads the dwords of a Connect command.
    #[must_use]
    pub const fn from_command(command: &Command) -> Self {
        let dword10 = ConnectDword10(command.cdw10.get());
        let dword11 = ConnectDword11(command.cdw11.get());
        Self {
            record_format: dword10.record_format(),
            queue_id: dword10.queue_id(),
            submission_queue_size: dword11.submission_queue_size(),
            attributes: ConnectAttributes(dword11.attributes()),
            keep_alive_timeout_ms: command.cdw12.get(),
        }
    }

    /// A Connect command without command identifier and data pointer.
    #[must_use]
    pub fn to_command(self) -> Command {
        let dword10 =
            ConnectDword10(0).with_record_format(self.record_format).with_queue_id(self.queue_id);
        let dword11 = ConnectDword11(0)
            .with_submission_queue_size(self.submission_queue_size)
            .with_attributes(self.attributes.0);
        Command::fabrics(FabricsType::CONNECT)
            .with_cdw10(dword10.0)
            .with_cdw11(dword11.0)
            .with_cdw12(self.keep_alive_timeout_ms)
    }

    /// Entries of the submission queue: SQSIZE and one.
    #[must_use]
    pub const fn submission_queue_entries(&self) -> u32 {
        self.submission_queue_size as u32 + 1
    }
}

/// Connect Data (1024 bytes).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ConnectData {
    /// Host Identifier (HOSTID).
    pub host_id: [u8; 16],
    /// Controller ID (CNTLID).
    pub controller_id: U16,
    /// Reserved.
    pub reserved1: [u8; 238],
    /// NVM Subsystem NVMe Qualified Name (SUBNQN).
    pub subsystem_nqn: [u8; NQN_FIELD_LENGTH],
    /// Host NVMe Qualified Name (HOSTNQN).
    pub host_nqn: [u8; NQN_FIELD_LENGTH],
    /// Reserved.
    pub reserved2: [u8; 256],
}

assert_layout!(ConnectData, size 1024, host_id at 0, controller_id at 16, reserved1 at 18,
    subsystem_nqn at 256, host_nqn at 512, reserved2 at 768);

impl ConnectData {
    /// Connect Data with these four values.
    #[must_use]
    pub fn new(host_id: [u8; 16], controller_id: u16, subsystem: &Nqn, host: &Nqn) -> Self {
        Self {
            host_id,
            controller_id: U16::new(controller_id),
            reserved1: [0; 238],
            subsystem_nqn: subsystem.to_field(),
            host_nqn: host.to_field(),
            reserved2: [0; 256],
        }
    }

    /// The subsystem's name.
    pub fn subsystem(&self) -> Result<Nqn, InvalidNqn> {
        Nqn::from_field(&self.subsystem_nqn)
    }

    /// The host's name.
    pub fn host(&self) -> Result<Nqn, InvalidNqn> {
        Nqn::from_field(&self.host_nqn)
    }
}

/// Connect Response, status code specific dword 0, when the Connect succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectResult(pub u32);

bit_fields! {
    pub ConnectResult(u32) {
        /// Controller ID (CNTLID).
        [15:0] controller_id, with_controller_id -> u16;
        /// Authentication Transaction is Required (ATR).
        [17] authentication_required, with_authentication_required;
        /// Authentication and Secure Channel are Required (ASCR).
        [18] secure_channel_required, with_secure_channel_required;
    }
}

/// Connect Response, status code specific dword 0, when the status is Connect Invalid
/// Parameters: which parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InvalidParameter(pub u32);

bit_fields! {
    pub InvalidParameter(u32) {
        /// Invalid Parameter Offset (IPO): byte offset of the parameter.
        [15:0] offset, with_offset -> u16;
        /// Invalid Attributes (IATTR), bit 0: the offset is into the data, not the command.
        [16] in_data, with_in_data;
    }
}

impl InvalidParameter {
    /// RECFMT of the command.
    pub const RECORD_FORMAT: Self = Self::in_command(40);
    /// QID of the command.
    pub const QUEUE_ID: Self = Self::in_command(42);
    /// SQSIZE of the command.
    pub const SUBMISSION_QUEUE_SIZE: Self = Self::in_command(44);
    /// CATTR of the command.
    pub const ATTRIBUTES: Self = Self::in_command(46);
    /// KATO of the command.
    pub const KEEP_ALIVE_TIMEOUT: Self = Self::in_command(48);
    /// HOSTID of the data.
    pub const HOST_ID: Self = Self::in_connect_data(0);
    /// CNTLID of the data.
    pub const CONTROLLER_ID: Self = Self::in_connect_data(16);
    /// SUBNQN of the data.
    pub const SUBSYSTEM_NQN: Self = Self::in_connect_data(256);
    /// HOSTNQN of the data.
    pub const HOST_NQN: Self = Self::in_connect_data(512);

    /// The parameter at this byte of the submission queue entry.
    #[must_use]
    pub const fn in_command(offset: u16) -> Self {
        Self(0).with_offset(offset)
    }

    /// The parameter at this byte of the Connect Data.
    #[must_use]
    pub const fn in_connect_data(offset: u16) -> Self {
        Self(0).with_offset(offset).with_in_data(true)
    }

    /// The completion that refuses a Connect because of this parameter.
    #[must_use]
    pub const fn refuse(self, command_id: u16) -> Completion {
        Completion::new(command_id, Status::CONNECT_INVALID_PARAMETERS.with_dnr())
            .with_dword0(self.0)
    }
}

/// Attributes (ATTRIB) of Property Get and Property Set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PropertyAttributes(pub u8);

bit_fields! {
    pub PropertyAttributes(u8) {
        /// Size of the property: 0 for 4 bytes, 1 for 8, others reserved.
        [2:0] size_code, with_size_code -> u8;
    }
}

impl PropertyAttributes {
    /// The attributes of a property of this size.
    #[must_use]
    pub const fn new(size: PropertySize) -> Self {
        Self(0).with_size_code(match size {
            PropertySize::Four => 0,
            PropertySize::Eight => 1,
        })
    }

    /// The size, if the code is not reserved.
    #[must_use]
    pub const fn size(self) -> Option<PropertySize> {
        match self.size_code() {
            0 => Some(PropertySize::Four),
            1 => Some(PropertySize::Eight),
            _ => None,
        }
    }
}

/// How many bytes of a property are read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PropertySize {
    /// 4 bytes.
    Four,
    /// 8 bytes.
    Eight,
}

impl PropertySize {
    /// The number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Four => 4,
            Self::Eight => 8,
        }
    }
}

/// The dwords of a Property Get command. Its completion's result is the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PropertyGet {
    /// Attributes (ATTRIB).
    pub attributes: PropertyAttributes,
    /// Offset (OFST).
    pub offset: Offset,
}

impl PropertyGet {
    /// Asks for a whole property.
    #[must_use]
    pub const fn new(offset: Offset, size: PropertySize) -> Self {
        Self { attributes: PropertyAttributes::new(size), offset }
    }

    /// Reads the dwords of a Property Get command.
    #[must_use]
    pub const fn from_command(command: &Command) -> Self {
        let [attributes, ..] = command.cdw10.to_bytes();
        Self { attributes: PropertyAttributes(attributes), offset: Offset(command.cdw11.get()) }
    }

    /// A Property Get command without command identifier.
    #[must_use]
    pub fn to_command(self) -> Command {
        Command::fabrics(FabricsType::PROPERTY_GET)
            .with_cdw10(u32::from(self.attributes.0))
            .with_cdw11(self.offset.0)
    }
}

/// The dwords of a Property Set command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PropertySet {
    /// Attributes (ATTRIB).
    pub attributes: PropertyAttributes,
    /// Offset (OFST).
    pub offset: Offset,
    /// Value (VALUE); of a property of 4 bytes the low half.
    pub value: u64,
}

#[derive(Clone, Copy)]
struct PropertyValue(u64);

bit_fields! {
    PropertyValue(u64) {
        /// Bytes 48 to 51 of the command.
        [31:0] low, with_low -> u32;
        /// Bytes 52 to 55 of the command.
        [63:32] high, with_high -> u32;
    }
}

impl PropertySet {
    /// Sets a whole property.
    #[must_use]
    pub const fn new(offset: Offset, size: PropertySize, value: u64) -> Self {
        Self { attributes: PropertyAttributes::new(size), offset, value }
    }

    /// Reads the dwords of a Property Set command.
    #[must_use]
    pub const fn from_command(command: &Command) -> Self {
        let get = PropertyGet::from_command(command);
        let value = PropertyValue(0).with_low(command.cdw12.get()).with_high(command.cdw13.get());
        Self { attributes: get.attributes, offset: get.offset, value: value.0 }
    }

    /// A Property Set command without command identifier.
    #[must_use]
    pub fn to_command(self) -> Command {
        let value = PropertyValue(self.value);
        Command::fabrics(FabricsType::PROPERTY_SET)
            .with_cdw10(u32::from(self.attributes.0))
            .with_cdw11(self.offset.0)
            .with_cdw12(value.low())
            .with_cdw13(value.high())
    }
}

/// The dwords of a Disconnect command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Disconnect {
    /// Record Format (RECFMT).
    pub record_format: u16,
}

impl Disconnect {
    /// Reads the dwords of a Disconnect command.
    #[must_use]
    pub const fn from_command(command: &Command) -> Self {
        Self { record_format: ConnectDword10(command.cdw10.get()).record_format() }
    }

    /// A Disconnect command without command identifier.
    #[must_use]
    pub fn to_command(self) -> Command {
        Command::fabrics(FabricsType::DISCONNECT).with_cdw10(u32::from(self.record_format))
    }
}

/// The dwords of Authentication Send and Authentication Receive: which protocol, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Authentication {
    /// SP Specific 0 (SPSP0).
    pub protocol_specific0: u8,
    /// SP Specific 1 (SPSP1).
    pub protocol_specific1: u8,
    /// Security Protocol (SECP).
    pub protocol: u8,
    /// Transfer Length (TL) or Allocation Length (AL) in bytes.
    pub length: u32,
}

impl Authentication {
    /// Security Protocol (SECP) that is assigned to NVMe.
    pub const PROTOCOL_NVME: u8 = 0xe9;

    /// Reads the dwords of an Authentication Send or Receive command.
    #[must_use]
    pub const fn from_command(command: &Command) -> Self {
        let [_, protocol_specific0, protocol_specific1, protocol] = command.cdw10.to_bytes();
        Self { protocol_specific0, protocol_specific1, protocol, length: command.cdw11.get() }
    }

    /// A command of this type (Authentication Send or Receive) without command identifier and
    /// data pointer.
    #[must_use]
    pub fn to_command(self, fabrics_type: FabricsType) -> Command {
        let protocol = [0, self.protocol_specific0, self.protocol_specific1, self.protocol];
        Command::fabrics(fabrics_type)
            .with_cdw10(U32::from_bytes(protocol).get())
            .with_cdw11(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;
    use crate::sgl::Descriptor;
    use crate::wire::test_support::{check_truncations, hex};

    #[test]
    fn fields_do_not_overlap() {
        ConnectAttributes::check_bit_fields();
        ConnectDword10::check_bit_fields();
        ConnectDword11::check_bit_fields();
        ConnectResult::check_bit_fields();
        InvalidParameter::check_bit_fields();
        PropertyAttributes::check_bit_fields();
        PropertyValue::check_bit_fields();
    }

    /// Connect of I/O queue 3 with 128 entries, no SQ flow control, KATO 0, as the Linux host
    /// lays it out (`struct nvmf_connect_command`).
    #[test]
    fn connect_command() {
        let vector = hex("7f 40 0000 01 00000000000000000000000000000000000000
            0000000000000000 00040000 000000 01
            0000 0300 7f00 04 00 00000000 000000000000000000000000");
        let connect = Connect {
            record_format: 0,
            queue_id: 3,
            submission_queue_size: 127,
            attributes: ConnectAttributes(0).with_disable_flow_control(true),
            keep_alive_timeout_ms: 0,
        };
        let command = connect.to_command().with_data_pointer(Descriptor::in_capsule(0, 1024));
        assert_eq!(command.bytes(), vector);
        assert_eq!(Connect::from_command(&command), connect);
        assert_eq!(connect.submission_queue_entries(), 128);
        let largest = Connect { submission_queue_size: u16::MAX, ..connect };
        assert_eq!(largest.submission_queue_entries(), 65536);
    }

    #[test]
    fn connect_fields_have_the_offsets_of_invalid_parameter() {
        let connect = Connect {
            record_format: 0x0101,
            queue_id: 0x0202,
            submission_queue_size: 0x0303,
            attributes: ConnectAttributes(4),
            keep_alive_timeout_ms: 0x0505_0505,
        };
        let command = connect.to_command();
        let bytes = command.bytes();
        for (parameter, value) in [
            (InvalidParameter::RECORD_FORMAT, 1),
            (InvalidParameter::QUEUE_ID, 2),
            (InvalidParameter::SUBMISSION_QUEUE_SIZE, 3),
            (InvalidParameter::ATTRIBUTES, 4),
            (InvalidParameter::KEEP_ALIVE_TIMEOUT, 5),
        ] {
            assert!(!parameter.in_data());
            assert_eq!(bytes[usize::from(parameter.offset())], value);
        }
    }

    #[test]
    fn connect_data() {
        let mut vector = std::vec![0; 1024];
        vector[..16].copy_from_slice(&hex("0f01fb429f7f4856b0b351e60b8de349"));
        vector[16..18].copy_from_slice(&[0xff, 0xff]);
        vector[256..256 + 26].copy_from_slice(b"nqn.2016-06.io.spdk:cnode1");
        vector[512..512 + 7].copy_from_slice(b"hostnqn");
        check_truncations::<ConnectData>(&vector);
        let data = ConnectData::view(&vector).unwrap();
        assert_eq!(data.controller_id.get(), CONTROLLER_ID_DYNAMIC);
        assert_eq!(data.subsystem().unwrap().as_str(), "nqn.2016-06.io.spdk:cnode1");
        assert_eq!(data.host().unwrap().as_str(), "hostnqn");
        let made = ConnectData::new(
            data.host_id,
            CONTROLLER_ID_DYNAMIC,
            &data.subsystem().unwrap(),
            &data.host().unwrap(),
        );
        assert_eq!(made.bytes(), vector);
        assert_eq!(ConnectData::zeroed().host(), Err(InvalidNqn::Empty));
    }

    /// `IPO_IATTR_CONNECT_DATA(subsysnqn)` of the Linux target: 0x00010100.
    #[test]
    fn invalid_parameter() {
        assert_eq!(InvalidParameter::SUBSYSTEM_NQN.0, 0x0001_0100);
        assert_eq!(InvalidParameter::HOST_NQN.0, 0x0001_0200);
        assert_eq!(InvalidParameter::QUEUE_ID.0, 42);
        let refusal = InvalidParameter::CONTROLLER_ID.refuse(7);
        assert_eq!(refusal.bytes(), hex("10000100 00000000 0000 0000 0700 0483"));
    }

    #[test]
    fn connect_result() {
        let result = ConnectResult(0).with_controller_id(1).with_authentication_required(true);
        assert_eq!(result.0, 0x0002_0001);
        assert_eq!(result.with_secure_channel_required(true).0, 0x0006_0001);
    }

    /// Property Get of CAP and Property Set of CC as the Linux host sends them.
    #[test]
    fn properties() {
        let get = PropertyGet::new(Offset::CONTROLLER_CAPABILITIES, PropertySize::Eight);
        let command = get.to_command();
        assert_eq!(command.bytes()[..5], [0x7f, 0x40, 0, 0, 4]);
        assert_eq!(
            command.bytes()[40..],
            hex("01000000 00000000 00000000000000000000000000000000")
        );
        assert_eq!(PropertyGet::from_command(&command), get);

        let offset = Offset::CONTROLLER_CONFIGURATION;
        let set = PropertySet::new(offset, PropertySize::Four, 0x0046_0001);
        let command = set.to_command();
        assert_eq!(command.bytes()[..5], [0x7f, 0x40, 0, 0, 0]);
        assert_eq!(
            command.bytes()[40..],
            hex("00000000 14000000 0100460000000000 0000000000000000")
        );
        assert_eq!(PropertySet::from_command(&command), set);
        let wide = PropertySet::new(offset, PropertySize::Eight, u64::MAX - 1);
        assert_eq!(PropertySet::from_command(&wide.to_command()), wide);
    }

    #[test]
    fn property_size_is_three_bits() {
        assert_eq!(PropertyAttributes(0xf9).size(), Some(PropertySize::Eight));
        assert_eq!(PropertyAttributes(0xf8).size(), Some(PropertySize::Four));
        assert_eq!(PropertyAttributes(0x02).size(), None);
        assert_eq!(PropertySize::Four.bytes() + PropertySize::Eight.bytes(), 12);
    }

    #[test]
    fn disconnect_and_authentication() {
        let disconnect = Disconnect { record_format: 0x1234 };
        assert_eq!(disconnect.to_command().bytes()[40..42], [0x34, 0x12]);
        assert_eq!(Disconnect::from_command(&disconnect.to_command()), disconnect);
        let authentication = Authentication {
            protocol_specific0: 1,
            protocol_specific1: 2,
            protocol: Authentication::PROTOCOL_NVME,
            length: 0x100,
        };
        let command = authentication.to_command(FabricsType::AUTHENTICATION_SEND);
        assert_eq!(command.bytes()[40..48], [0, 1, 2, 0xe9, 0, 1, 0, 0]);
        assert_eq!(Authentication::from_command(&command), authentication);
    }
}
