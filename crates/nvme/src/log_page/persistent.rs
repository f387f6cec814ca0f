//! Persistent Event Log: what has happened to the NVM subsystem, across resets and restarts.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::command::LogPageId;
use crate::wire::{Reserved, Text, U16, U32, U64, U128, Wire};

code_space! {
    /// Action of Get Log Page, in bits 1:0 of the Log Specific Parameter.
    pub struct PersistentEventAction(pub u8);
    READ = 0x0, "Read Log Data";
    ESTABLISH_AND_READ = 0x1, "Establish Context and Read Log Data";
    RELEASE = 0x2, "Release Context";
    ESTABLISH_AND_READ_HEADER = 0x3, "Establish Context and Read 512 Bytes of Header";
}

code_space! {
    /// Event Type of a persistent event.
    pub struct PersistentEventType(pub u8);
    HEALTH_SNAPSHOT = 0x01, "SMART / Health Log Snapshot";
    FIRMWARE_COMMIT = 0x02, "Firmware Commit";
    TIMESTAMP_CHANGE = 0x03, "Timestamp Change";
    POWER_ON_OR_RESET = 0x04, "Power-on or Reset";
    HARDWARE_ERROR = 0x05, "NVM Subsystem Hardware Error";
    CHANGE_NAMESPACE = 0x06, "Change Namespace";
    FORMAT_START = 0x07, "Format NVM Start";
    FORMAT_COMPLETION = 0x08, "Format NVM Completion";
    SANITIZE_START = 0x09, "Sanitize Start";
    SANITIZE_COMPLETION = 0x0a, "Sanitize Completion";
    SET_FEATURE = 0x0b, "Set Feature";
    TELEMETRY_LOG_CREATED = 0x0c, "Telemetry Log Created";
    THERMAL_EXCURSION = 0x0d, "Thermal Excursion";
    SANITIZE_MEDIA_VERIFICATION = 0x0e, "Sanitize Media Verification";
    VENDOR_SPECIFIC = 0xde, "Vendor Specific";
    TCG_DEFINED = 0xdf, "TCG Defined";
}

bit_struct! {
    /// Timestamp data structure: when, and how that is known.
    pub struct Timestamp(pub u64) {
        /// Timestamp: milliseconds since 1970 if they were set, else since a reset.
        [47:0] milliseconds, with_milliseconds -> u64;
        /// Synch: there may be gaps in the count.
        [48] has_gaps, with_has_gaps;
        /// Timestamp Origin, one of [`Timestamp::SINCE_RESET`] and [`Timestamp::SINCE_1970`].
        [51:49] origin, with_origin -> u8;
    }
}

impl Timestamp {
    /// Timestamp Origin: the count began with a reset.
    pub const SINCE_RESET: u8 = 0;
    /// Timestamp Origin: the time was set.
    pub const SINCE_1970: u8 = 1;
}

bit_struct! {
    /// Reporting Context Information (RCI): of the context that there was before the command.
    pub struct ReportingContext(pub u32) {
        /// Reporting Context Port Identifier (RCPID).
        [15:0] port_id, with_port_id -> u16;
        /// Reporting Context Port Identifier Type (RCPIT): 0 for none, 1 for a port of the NVM
        /// subsystem, 2 for a Management Endpoint.
        [17:16] port_type, with_port_type -> u8;
        /// Reporting Context Exists (RCE).
        [18] exists, with_exists;
    }
}

/// Head of the Persistent Event Log (0Dh, 512 bytes); the events follow, newest first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct PersistentEventHeader {
    /// Log Identifier (0Dh).
    pub log_page: LogPageId,
    /// Reserved.
    pub reserved1: Reserved<3>,
    /// Total Number of Events (TNEV).
    pub events: U32,
    /// Total Log Length (TLL) in bytes, with this header.
    pub length: U64,
    /// Log Revision.
    pub revision: u8,
    /// Reserved.
    pub reserved17: Reserved<1>,
    /// Log Header Length (LHL): bytes of this header from byte 20 on.
    pub header_length: U16,
    /// Timestamp of the reporting context, see [`Timestamp`].
    pub timestamp: U64,
    /// Power on Hours (POH).
    pub power_on_hours: U128,
    /// Power Cycle Count.
    pub power_cycles: U64,
    /// PCI Vendor ID (VID).
    pub pci_vendor: U16,
    /// PCI Subsystem Vendor ID (SSVID).
    pub pci_subsystem_vendor: U16,
    /// Serial Number (SN).
    pub serial_number: Text<20>,
    /// Model Number (MN).
    pub model_number: Text<40>,
    /// NVM Subsystem NVMe Qualified Name (SUBNQN).
    pub subsystem_nqn: [u8; 256],
    /// Generation Number (GNUM): another one for each context that has other contents.
    pub generation: U16,
    /// Reporting Context Information (RCI), see [`ReportingContext`].
    pub reporting_context: U32,
    /// Reserved.
    pub reserved378: Reserved<102>,
    /// Supported Events Bitmap: a bit for each [`PersistentEventType`].
    pub supported: [u8; 32],
}

assert_layout!(PersistentEventHeader, size 512, log_page at 0, reserved1 at 1, events at 4,
    length at 8, revision at 16, reserved17 at 17, header_length at 18, timestamp at 20,
    power_on_hours at 28, power_cycles at 44, pci_vendor at 52, pci_subsystem_vendor at 54,
    serial_number at 56, model_number at 76, subsystem_nqn at 116, generation at 372,
    reporting_context at 374, reserved378 at 378, supported at 480);

impl PersistentEventHeader {
    /// The revision of Base 2.0 and 2.1.
    pub const REVISION: u8 = 3;

    /// Log Header Length for this header.
    pub const HEADER_LENGTH: u16 = 492;

    /// Bits for these types of events.
    #[must_use]
    pub fn bitmap(supported: &[PersistentEventType]) -> [u8; 32] {
        let mut bitmap = [0; 32];
        for kind in supported {
            if let Some(byte) = bitmap.get_mut(usize::from(kind.0 / 8)) {
                *byte |= 1 << (kind.0 % 8);
            }
        }
        bitmap
    }
}

bit_struct! {
    /// Event Header Additional Information.
    pub struct PersistentEventInformation(pub u8) {
        /// Port Identifier Type (PIT): 1 for a port of the NVM subsystem, 3 for no port.
        [1:0] port_type, with_port_type -> u8;
    }
}

/// Head of a persistent event (24 bytes); its data follow.
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
pub struct PersistentEvent {
    /// Event Type.
    pub kind: PersistentEventType,
    /// Event Type Revision.
    pub revision: u8,
    /// Event Header Length (EHL): bytes of this header from byte 3 on.
    pub header_length: u8,
    /// Event Header Additional Information.
    pub information: PersistentEventInformation,
    /// Controller Identifier.
    pub controller_id: U16,
    /// Event Timestamp, see [`Timestamp`].
    pub timestamp: U64,
    /// Port Identifier.
    pub port_id: U16,
    /// Reserved.
    pub reserved16: Reserved<4>,
    /// Vendor Specific Information Length (VSIL): bytes at the beginning of the data.
    pub vendor_length: U16,
    /// Event Length (EL): bytes that follow this header.
    pub length: U16,
}

assert_layout!(PersistentEvent, size 24, kind at 0, revision at 1, header_length at 2,
    information at 3, controller_id at 4, timestamp at 6, port_id at 14, reserved16 at 16,
    vendor_length at 20, length at 22);

impl PersistentEvent {
    /// Event Header Length for this header.
    pub const HEADER_LENGTH: u8 = 21;

    /// Port Identifier Type: the event came by a port of the NVM subsystem.
    pub const SUBSYSTEM_PORT: u8 = 1;
    /// Port Identifier Type: the event has to do with no port.
    pub const NO_PORT: u8 = 3;
}

/// Descriptor of a controller in a Power-on or Reset event (36 bytes), behind the firmware
/// revision.
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
pub struct ControllerReset {
    /// Controller Identifier.
    pub controller_id: U16,
    /// Firmware Activation: 0 for none.
    pub firmware_activation: u8,
    /// Operation in Progress: bit 0 for Format NVM.
    pub in_progress: u8,
    /// Reserved.
    pub reserved4: Reserved<12>,
    /// Controller Power Cycle.
    pub power_cycles: U32,
    /// Power on milliseconds.
    pub power_on_ms: U64,
    /// Controller Timestamp, see [`Timestamp`].
    pub timestamp: U64,
}

assert_layout!(ControllerReset, size 36, controller_id at 0, firmware_activation at 2,
    in_progress at 3, reserved4 at 4, power_cycles at 16, power_on_ms at 20, timestamp at 28);

/// Data of a Change Namespace event (48 bytes): a Namespace Management command that succeeded.
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
pub struct ChangeNamespace {
    /// Command Dword 10 of the command.
    pub cdw10: U32,
    /// Reserved.
    pub reserved4: Reserved<4>,
    /// Namespace Size (NSZE).
    pub size: U64,
    /// Reserved.
    pub reserved16: Reserved<8>,
    /// Namespace Capacity (NCAP).
    pub capacity: U64,
    /// Formatted LBA Size (FLBAS).
    pub formatted_lba_size: u8,
    /// End-to-end Data Protection Type Settings (DPS).
    pub protection: u8,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities (NMIC).
    pub sharing: u8,
    /// Reserved.
    pub reserved35: Reserved<1>,
    /// ANA Group Identifier (ANAGRPID).
    pub ana_group_id: U32,
    /// NVM Set Identifier (NVMSETID).
    pub nvm_set_id: U16,
    /// Endurance Group Identifier (ENDGID).
    pub endurance_group_id: U16,
    /// Namespace ID (NSID); FFFFFFFFh if all were deleted.
    pub namespace_id: U32,
}

assert_layout!(ChangeNamespace, size 48, cdw10 at 0, reserved4 at 4, size at 8,
    reserved16 at 16, capacity at 24, formatted_lba_size at 32, protection at 33, sharing at 34,
    reserved35 at 35, ana_group_id at 36, nvm_set_id at 40, endurance_group_id at 42,
    namespace_id at 44);

bit_struct! {
    /// Set Feature Event Layout: what follows of the Set Features command.
    pub struct SetFeatureLayout(pub u32) {
        /// Dword Count: command dwords from 10 on.
        [2:0] dwords, with_dwords -> u8;
        /// Logged Command Completion Dword 0: it is the last one.
        [3] has_completion, with_has_completion;
        /// Memory Buffer Count: bytes of the command's data.
        [31:16] data_length, with_data_length -> u16;
    }
}

/// A log page ends within an event, or an event within its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedEvent;

impl fmt::Display for MalformedEvent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the Persistent Event Log ends within an event")
    }
}

impl core::error::Error for MalformedEvent {}

/// The events of a log page as it was received, without the header of the page: each with its
/// data, which begin with the vendor's.
#[derive(Debug, Clone)]
pub struct PersistentEvents<'page>(&'page [u8]);

impl<'page> PersistentEvents<'page> {
    /// Iterates over what follows the header of a page.
    #[must_use]
    pub const fn new(events: &'page [u8]) -> Self {
        Self(events)
    }

    fn split(&self) -> Option<(PersistentEvent, &'page [u8], &'page [u8])> {
        let event = PersistentEvent::read(self.0).ok()?;
        let header = usize::from(event.header_length).checked_add(3)?;
        let (_, rest) = self.0.split_at_checked(header.max(PersistentEvent::SIZE))?;
        let (data, rest) = rest.split_at_checked(event.length.get().into())?;
        Some((event, data, rest))
    }
}

impl<'page> Iterator for PersistentEvents<'page> {
    type Item = Result<(PersistentEvent, &'page [u8]), MalformedEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let Some((event, data, rest)) = self.split() else {
            self.0 = &[];
            return Some(Err(MalformedEvent));
        };
        self.0 = rest;
        Some(Ok((event, data)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::test_support::{check_truncations, hex};

    /// `struct nvme_persistent_event_log` of libnvme: tnev 4, tll 8, lhl 18, ts 20, poh 28, pcc 44,
    /// sn 56, mn 76, subnqn 116, gen_number 372, rci 374, seb 480.
    #[test]
    fn header() {
        Timestamp::check_bit_fields();
        ReportingContext::check_bit_fields();
        PersistentEventInformation::check_bit_fields();
        SetFeatureLayout::check_bit_fields();
        let mut vector = std::vec![0; 512];
        vector[..5].copy_from_slice(&hex("0d 000000 02"));
        vector[8] = 0x80;
        vector[18..20].copy_from_slice(&hex("ec01"));
        vector[372..378].copy_from_slice(&hex("0900 0700 0500"));
        vector[480..482].copy_from_slice(&hex("5008"));
        check_truncations::<PersistentEventHeader>(&vector);
        let header = PersistentEventHeader::view(&vector).unwrap();
        assert_eq!(header.log_page, LogPageId::PERSISTENT_EVENT_LOG);
        assert_eq!((header.events.get(), header.length.get()), (2, 128));
        assert_eq!(header.header_length.get(), PersistentEventHeader::HEADER_LENGTH);
        assert_eq!(header.generation.get(), 9);
        let context = ReportingContext(header.reporting_context.get());
        assert_eq!((context.port_id(), context.port_type(), context.exists()), (7, 1, true));
        let supported = [
            PersistentEventType::POWER_ON_OR_RESET,
            PersistentEventType::CHANGE_NAMESPACE,
            PersistentEventType::SET_FEATURE,
        ];
        assert_eq!(PersistentEventHeader::bitmap(&supported), header.supported);
    }

    /// Two events with libnvme's offsets: ehl 2, ehai 3, cntlid 4, ets 6, pelpid 14, vsil 20,
    /// el 22.
    #[test]
    fn events() {
        let first = hex("04 01 15 01 0500 0102030405000200 0700 00000000 0000 0400 aabbccdd");
        let second = hex("0b 01 15 03 ffff 0000000000000000 0000 00000000 0000 0000");
        let page = [first, second].concat();
        let events: std::vec::Vec<_> = PersistentEvents::new(&page).map(Result::unwrap).collect();
        let (event, data) = events[0];
        assert_eq!(event.kind, PersistentEventType::POWER_ON_OR_RESET);
        assert_eq!(event.header_length, PersistentEvent::HEADER_LENGTH);
        assert_eq!((event.controller_id.get(), event.port_id.get()), (5, 7));
        let timestamp = Timestamp(event.timestamp.get());
        assert_eq!(timestamp.milliseconds(), 0x05_0403_0201);
        assert_eq!(timestamp.origin(), Timestamp::SINCE_1970);
        assert_eq!(data, hex("aabbccdd"));
        assert_eq!(events[1].0.kind, PersistentEventType::SET_FEATURE);
        assert_eq!((events[1].1, events.len()), (&[][..], 2));
        for length in 1..page.len() {
            let part = PersistentEvents::new(&page[..length]).last().unwrap();
            assert_eq!(part.is_err(), length != 28, "{length} bytes");
        }
    }

    /// A header that says that it is short is as long as this one, so that reading ends.
    #[test]
    fn headers_have_a_least_length() {
        let mut page = [0; 48];
        page[2] = 0;
        assert_eq!(PersistentEvents::new(&page).count(), 2);
        page[2] = 0xff;
        assert_eq!(PersistentEvents::new(&page).next(), Some(Err(MalformedEvent)));
    }
}
