//! The Discovery log page: where subsystems can be reached.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Wire;
use crate::fabrics::CONTROLLER_ID_DYNAMIC;
use crate::nqn::{InvalidNqn, NQN_FIELD_LENGTH, Nqn};
use crate::wire::{Reserved, Text, U16, U32, U64};

code_space! {
    /// Transport Type (TRTYPE).
    pub struct TransportType(pub u8);
    RDMA = 0x01, "RDMA";
    FIBRE_CHANNEL = 0x02, "Fibre Channel";
    TCP = 0x03, "TCP";
    INTRA_HOST = 0xfe, "Intra-host";
}

code_space! {
    /// Address Family (ADRFAM).
    pub struct AddressFamily(pub u8);
    IPV4 = 0x01, "AF_INET";
    IPV6 = 0x02, "AF_INET6";
    INFINIBAND = 0x03, "AF_IB";
    FIBRE_CHANNEL = 0x04, "Fibre Channel";
    INTRA_HOST = 0xfe, "Intra-host";
}

code_space! {
    /// Subsystem Type (SUBTYPE).
    pub struct SubsystemType(pub u8);
    REFERRAL = 0x01, "referral to another Discovery subsystem";
    NVM = 0x02, "NVM subsystem";
    CURRENT_DISCOVERY = 0x03, "current Discovery subsystem";
}

code_space! {
    /// Secure Channel, in bits 1:0 of TREQ.
    pub struct SecureChannel(pub u8);
    NOT_SPECIFIED = 0b00, "not specified";
    REQUIRED = 0b01, "required";
    NOT_REQUIRED = 0b10, "not required";
}

bit_struct! {
    /// Transport Requirements (TREQ).
    pub struct TransportRequirements(pub u8) {
        /// Secure Channel (SECCH), as a number.
        [1:0] raw_secure_channel, with_raw_secure_channel -> u8;
        /// Disabling SQ flow control is supported.
        [2] disable_flow_control, with_disable_flow_control;
    }
}

impl TransportRequirements {
    /// Secure Channel (SECCH).
    #[must_use]
    pub const fn secure_channel(self) -> SecureChannel {
        SecureChannel(self.raw_secure_channel())
    }

    /// Returns the requirements with SECCH changed.
    #[must_use]
    pub const fn with_secure_channel(self, secure_channel: SecureChannel) -> Self {
        self.with_raw_secure_channel(secure_channel.0)
    }
}

bit_struct! {
    /// Entry Flags (EFLAGS).
    pub struct DiscoveryEntryFlags(pub u16) {
        /// Duplicate Returned Information (DUPRETINFO).
        [0] duplicate_information, with_duplicate_information;
        /// Explicit Persistent Connection Support for Discovery (EPCSD).
        [1] persistent_connections, with_persistent_connections;
        /// No CDC Connectivity (NCC).
        [2] no_cdc_connectivity, with_no_cdc_connectivity;
    }
}

bit_struct! {
    /// Log Specific Parameter (LSP) of Get Log Page for this log page, and Discovery Log Page
    /// Flags (DLPF) in its answer.
    pub struct DiscoveryParameter(pub u8) {
        /// Extended Discovery Log Page Entries (EXTDLPE).
        [0] extended_entries, with_extended_entries;
        /// Port Local Entries Only (PLEO).
        [1] port_local_only, with_port_local_only;
        /// All NVM Subsystem Entries (ALLSUBE).
        [2] all_subsystems, with_all_subsystems;
    }
}

/// Head of the Discovery log page (70h, 1024 bytes); entries follow.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DiscoveryHeader {
    /// Generation Counter (GENCTR).
    pub generation: U64,
    /// Number of Records (NUMREC).
    pub records: U64,
    /// Record Format (RECFMT).
    pub record_format: U16,
    /// Discovery Log Page Flags (DLPF): which of the parameters were honoured.
    pub flags: DiscoveryParameter,
    /// Reserved.
    pub reserved19: u8,
    /// Total Discovery Log Page Length (TDLPL) in bytes, if entries are extended.
    pub total_length: U32,
    /// Reserved.
    pub reserved24: Reserved<1000>,
}

assert_layout!(DiscoveryHeader, size 1024, generation at 0, records at 8, record_format at 16,
    flags at 18, reserved19 at 19, total_length at 20, reserved24 at 24);

impl DiscoveryHeader {
    /// The head of so many records.
    #[must_use]
    pub const fn new(generation: u64, records: u64) -> Self {
        Self {
            generation: U64::new(generation),
            records: U64::new(records),
            record_format: U16::ZERO,
            flags: DiscoveryParameter(0),
            reserved19: 0,
            total_length: U32::ZERO,
            reserved24: Reserved([0; 1000]),
        }
    }
}

code_space! {
    /// Security Type (SECTYPE) of a TCP entry's TSAS.
    pub struct SecurityType(pub u8);
    NONE = 0x00, "no security";
    TLS_1_2 = 0x01, "TLS 1.2 (withdrawn)";
    TLS_1_3 = 0x02, "TLS 1.3 or later";
}

/// Transport Specific Address Subtype (TSAS) of an RDMA entry (256 bytes).
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
pub struct RdmaSubtype {
    /// RDMA QP Service Type (RDMA_QPTYPE): 1 reliable connected.
    pub queue_pair_type: u8,
    /// RDMA Provider Type (RDMA_PRTYPE): 1 none, 2 InfiniBand, 3 RoCE, 4 RoCEv2, 5 iWARP.
    pub provider_type: u8,
    /// RDMA Connection Management Service (RDMA_CMS): 1 RDMA CM.
    pub connection_management: u8,
    /// Reserved.
    pub reserved3: Reserved<5>,
    /// RDMA_PKEY, for AF_IB.
    pub partition_key: U16,
    /// Reserved.
    pub reserved10: Reserved<246>,
}

assert_layout!(RdmaSubtype, size 256, queue_pair_type at 0, provider_type at 1,
    connection_management at 2, reserved3 at 3, partition_key at 8, reserved10 at 10);

impl RdmaSubtype {
    /// Reliable connected queue pairs of whatever provider, made by the RDMA connection manager.
    pub const RELIABLE: Self = Self {
        queue_pair_type: 1,
        provider_type: 1,
        connection_management: 1,
        reserved3: Reserved([0; 5]),
        partition_key: U16::ZERO,
        reserved10: Reserved([0; 246]),
    };
}

/// Where and how a subsystem can be reached: what tells one entry from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint<'text> {
    /// Transport Type (TRTYPE).
    pub transport_type: TransportType,
    /// Address Family (ADRFAM).
    pub address_family: AddressFamily,
    /// Transport Address (TRADDR).
    pub address: &'text str,
    /// Transport Service Identifier (TRSVCID): a port number in decimal.
    pub service_id: &'text str,
    /// Port ID (PORTID) of the NVM subsystem port.
    pub port_id: u16,
}

/// Discovery Log Page Entry (1024 bytes).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DiscoveryEntry {
    /// TRTYPE.
    pub transport_type: TransportType,
    /// ADRFAM.
    pub address_family: AddressFamily,
    /// SUBTYPE.
    pub subsystem_type: SubsystemType,
    /// TREQ.
    pub requirements: TransportRequirements,
    /// Port ID (PORTID).
    pub port_id: U16,
    /// Controller ID (CNTLID): FFFFh for the dynamic model.
    pub controller_id: U16,
    /// Admin Max SQ Size (ASQSZ), in entries.
    pub admin_queue_entries_max: U16,
    /// EFLAGS.
    pub flags: U16,
    /// Reserved.
    pub reserved12: Reserved<20>,
    /// Transport Service Identifier (TRSVCID).
    pub service_id: Text<32>,
    /// Reserved.
    pub reserved64: Reserved<192>,
    /// NVM Subsystem Qualified Name (SUBNQN).
    pub subsystem_nqn: [u8; NQN_FIELD_LENGTH],
    /// Transport Address (TRADDR).
    pub address: Text<256>,
    /// Transport Specific Address Subtype (TSAS).
    pub address_subtype: Reserved<256>,
}

assert_layout!(DiscoveryEntry, size 1024, transport_type at 0, address_family at 1,
    subsystem_type at 2, requirements at 3, port_id at 4, controller_id at 6,
    admin_queue_entries_max at 8, flags at 10, reserved12 at 12, service_id at 32,
    reserved64 at 64, subsystem_nqn at 256, address at 512, address_subtype at 768);

impl DiscoveryEntry {
    /// A subsystem of the dynamic controller model at this endpoint, without security.
    #[must_use]
    pub fn new(
        subsystem_type: SubsystemType,
        subsystem: &Nqn,
        endpoint: &Endpoint<'_>,
        admin_queue_entries_max: u16,
    ) -> Self {
        Self {
            transport_type: endpoint.transport_type,
            address_family: endpoint.address_family,
            subsystem_type,
            requirements: TransportRequirements(0)
                .with_secure_channel(SecureChannel::NOT_REQUIRED)
                .with_disable_flow_control(true),
            port_id: U16::new(endpoint.port_id),
            controller_id: U16::new(CONTROLLER_ID_DYNAMIC),
            admin_queue_entries_max: U16::new(admin_queue_entries_max),
            flags: U16::ZERO,
            reserved12: Reserved::default(),
            service_id: Text::new(endpoint.service_id),
            reserved64: Reserved::default(),
            subsystem_nqn: subsystem.to_field(),
            address: Text::new(endpoint.address),
            address_subtype: Reserved::default(),
        }
    }

    /// The subsystem's name.
    pub fn subsystem(&self) -> Result<Nqn, InvalidNqn> {
        Nqn::from_field(&self.subsystem_nqn)
    }

    /// Entry Flags (EFLAGS).
    #[must_use]
    pub const fn flags(&self) -> DiscoveryEntryFlags {
        DiscoveryEntryFlags(self.flags.get())
    }

    /// Fills in the TSAS of an RDMA entry.
    pub fn set_rdma(&mut self, subtype: &RdmaSubtype) {
        self.address_subtype.0.copy_from_slice(subtype.bytes());
    }

    /// The TSAS of an RDMA entry.
    #[must_use]
    pub fn rdma(&self) -> RdmaSubtype {
        RdmaSubtype::read(&self.address_subtype.0).unwrap_or_default()
    }

    /// Sets the Security Type (SECTYPE) of a TCP entry.
    pub fn set_security_type(&mut self, security_type: SecurityType) {
        let [first, ..] = &mut self.address_subtype.0;
        *first = security_type.0;
    }

    /// Security Type (SECTYPE) of a TCP entry: the first byte of its TSAS.
    #[must_use]
    pub const fn security_type(&self) -> SecurityType {
        let [security_type, ..] = self.address_subtype.0;
        SecurityType(security_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::test_support::{check_truncations, hex, hex_padded};

    #[test]
    fn fields_do_not_overlap() {
        TransportRequirements::check_bit_fields();
        DiscoveryEntryFlags::check_bit_fields();
        DiscoveryParameter::check_bit_fields();
    }

    #[test]
    fn header() {
        let vector = hex_padded("0200000000000000 0100000000000000 0000", 1024);
        check_truncations::<DiscoveryHeader>(&vector);
        assert_eq!(DiscoveryHeader::new(2, 1).bytes(), vector);
    }

    /// An NVM subsystem over TCP at 192.0.2.7:4420, port 1, as SPDK lays it out: texts padded
    /// with spaces, the name with zeros.
    #[test]
    fn entry() {
        let mut vector = hex_padded("03 01 02 06 0100 ffff 8000 0000", 1024);
        vector[32..64].fill(b' ');
        vector[32..36].copy_from_slice(b"4420");
        vector[256..282].copy_from_slice(b"nqn.2016-06.io.spdk:cnode1");
        vector[512..768].fill(b' ');
        vector[512..521].copy_from_slice(b"192.0.2.7");
        check_truncations::<DiscoveryEntry>(&vector);
        let endpoint = Endpoint {
            transport_type: TransportType::TCP,
            address_family: AddressFamily::IPV4,
            address: "192.0.2.7",
            service_id: "4420",
            port_id: 1,
        };
        let nqn = "nqn.2016-06.io.spdk:cnode1".parse().unwrap();
        let made = DiscoveryEntry::new(SubsystemType::NVM, &nqn, &endpoint, 128);
        assert_eq!(made.bytes(), vector);
        let entry = DiscoveryEntry::view(&vector).unwrap();
        assert_eq!(entry.subsystem(), Ok(nqn));
        assert_eq!(entry.address.raw_text(), Some("192.0.2.7"));
        assert_eq!(entry.service_id.raw_text(), Some("4420"));
        assert_eq!(entry.requirements.secure_channel(), SecureChannel::NOT_REQUIRED);
        assert_eq!(entry.security_type(), SecurityType::NONE);
        assert_eq!(entry.flags(), DiscoveryEntryFlags(0));
    }

    /// The Linux target pads its texts with zeros.
    #[test]
    fn texts_padded_with_zeros() {
        let mut vector = std::vec![0; 1024];
        vector[32..36].copy_from_slice(b"8009");
        vector[512..515].copy_from_slice(b"::1");
        vector[768] = 2;
        let entry = DiscoveryEntry::view(&vector).unwrap();
        assert_eq!(entry.service_id.raw_text(), Some("8009"));
        assert_eq!(entry.address.raw_text(), Some("::1"));
        assert_eq!(entry.security_type(), SecurityType::TLS_1_3);
        assert_eq!(entry.subsystem(), Err(InvalidNqn::Empty));
    }

    /// `spdk_nvmf_rdma_transport_specific_address_subtype` of SPDK.
    #[test]
    fn rdma_subtype() {
        let mut vector = hex("01 04 01 0000000000 ffff");
        vector.resize(256, 0);
        check_truncations::<RdmaSubtype>(&vector);
        assert_eq!(RdmaSubtype::view(&vector).unwrap().partition_key.get(), 0xffff);
        let entry = DiscoveryEntry::zeroed();
        assert!(RdmaSubtype::view(entry.address_subtype.bytes()).is_ok());
    }
}
