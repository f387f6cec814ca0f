//! Asynchronous events: dword 0 of the completion of an Asynchronous Event Request.

use core::fmt;

use crate::log_page::LogPageId;

code_space! {
    /// Asynchronous Event Type.
    pub struct EventType(pub u8);
    ERROR = 0x0, "Error status";
    HEALTH = 0x1, "SMART / Health status";
    NOTICE = 0x2, "Notice";
    IMMEDIATE = 0x3, "Immediate";
    ONE_SHOT = 0x4, "One-Shot";
    IO_COMMAND_SPECIFIC = 0x6, "I/O Command specific status";
    VENDOR_SPECIFIC = 0x7, "Vendor specific";
}

code_space! {
    /// Asynchronous Event Information of an error event.
    pub struct ErrorInformation(pub u8);
    WRITE_TO_INVALID_DOORBELL = 0x00, "Write to Invalid Doorbell Register";
    INVALID_DOORBELL_VALUE = 0x01, "Invalid Doorbell Write Value";
    DIAGNOSTIC_FAILURE = 0x02, "Diagnostic Failure";
    PERSISTENT_INTERNAL_ERROR = 0x03, "Persistent Internal Error";
    TRANSIENT_INTERNAL_ERROR = 0x04, "Transient Internal Error";
    FIRMWARE_IMAGE_LOAD_ERROR = 0x05, "Firmware Image Load Error";
}

code_space! {
    /// Asynchronous Event Information of a health event.
    pub struct HealthInformation(pub u8);
    SUBSYSTEM_RELIABILITY = 0x00, "NVM subsystem Reliability";
    TEMPERATURE_THRESHOLD = 0x01, "Temperature Threshold";
    SPARE_BELOW_THRESHOLD = 0x02, "Spare Below Threshold";
}

code_space! {
    /// Asynchronous Event Information of a notice.
    pub struct NoticeInformation(pub u8);
    NAMESPACE_ATTRIBUTE_CHANGED = 0x00, "Namespace Attribute Changed";
    FIRMWARE_ACTIVATION_STARTING = 0x01, "Firmware Activation Starting";
    TELEMETRY_LOG_CHANGED = 0x02, "Telemetry Log Changed";
    ASYMMETRIC_NAMESPACE_ACCESS_CHANGE = 0x03, "Asymmetric Namespace Access Change";
    PREDICTABLE_LATENCY_LOG_CHANGED = 0x04, "Predictable Latency Event Aggregate Log Change";
    LBA_STATUS_INFORMATION_ALERT = 0x05, "LBA Status Information Alert";
    ENDURANCE_GROUP_LOG_CHANGED = 0x06, "Endurance Group Event Aggregate Log Page Change";
    REACHABILITY_GROUP_CHANGE = 0x07, "Reachability Group Change";
    REACHABILITY_ASSOCIATION_CHANGE = 0x08, "Reachability Association Change";
    ALLOCATED_NAMESPACE_ATTRIBUTE_CHANGED = 0x09, "Allocated Namespace Attribute Changed";
    ZONE_DESCRIPTOR_CHANGED = 0xef, "Zone Descriptor Changed";
    DISCOVERY_LOG_PAGE_CHANGE = 0xf0, "Discovery Log Page Change";
    HOST_DISCOVERY_LOG_PAGE_CHANGE = 0xf1, "Host Discovery Log Page Change";
    AVE_DISCOVERY_LOG_PAGE_CHANGE = 0xf2, "AVE Discovery Log Page Change";
    PULL_MODEL_DDC_REQUEST_LOG_PAGE_CHANGE = 0xf3, "Pull Model DDC Request Log Page Change";
}

code_space! {
    /// Asynchronous Event Information of an immediate event.
    pub struct ImmediateInformation(pub u8);
    NORMAL_SUBSYSTEM_SHUTDOWN = 0x00, "Normal NVM Subsystem Shutdown";
    TEMPERATURE_THRESHOLD_HYSTERESIS_RECOVERY = 0x01,
        "Temperature Threshold Hysteresis Recovery";
}

code_space! {
    /// Asynchronous Event Information of an event of the NVM command set.
    pub struct IoCommandInformation(pub u8);
    RESERVATION_LOG_PAGE_AVAILABLE = 0x00, "Reservation Log Page Available";
    SANITIZE_OPERATION_COMPLETED = 0x01, "Sanitize Operation Completed";
    SANITIZE_OPERATION_COMPLETED_WITH_DEALLOCATION = 0x02,
        "Sanitize Operation Completed With Unexpected Deallocation";
}

/// Dword 0 of the completion of an Asynchronous Event Request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Event(pub u32);

bit_fields! {
    pub Event(u32) {
        /// Asynchronous Event Type, as a number.
        [2:0] raw_event_type, with_raw_event_type -> u8;
        /// Asynchronous Event Information, as a number; its code space depends on the type.
        [15:8] information, with_information -> u8;
        /// Log Page Identifier to read, as a number.
        [23:16] raw_log_page, with_raw_log_page -> u8;
    }
}

impl Event {
    /// A namespace's attributes changed, or it came or went.
    pub const NAMESPACE_ATTRIBUTE_CHANGED: Self = Self::notice(
        NoticeInformation::NAMESPACE_ATTRIBUTE_CHANGED,
        LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST,
    );

    /// The access state of a group of namespaces changed.
    pub const ASYMMETRIC_NAMESPACE_ACCESS_CHANGE: Self = Self::notice(
        NoticeInformation::ASYMMETRIC_NAMESPACE_ACCESS_CHANGE,
        LogPageId::ASYMMETRIC_NAMESPACE_ACCESS,
    );

    /// The discovery log page changed.
    pub const DISCOVERY_LOG_PAGE_CHANGE: Self =
        Self::notice(NoticeInformation::DISCOVERY_LOG_PAGE_CHANGE, LogPageId::DISCOVERY);

    /// A reservation notification can be read.
    pub const RESERVATION_LOG_PAGE_AVAILABLE: Self = Self::new(
        EventType::IO_COMMAND_SPECIFIC,
        IoCommandInformation::RESERVATION_LOG_PAGE_AVAILABLE.0,
        LogPageId::RESERVATION_NOTIFICATION,
    );

    /// An event of this type.
    #[must_use]
    pub const fn new(event_type: EventType, information: u8, log_page: LogPageId) -> Self {
        Self(0)
            .with_raw_event_type(event_type.0)
            .with_information(information)
            .with_raw_log_page(log_page.0)
    }

    /// A notice.
    #[must_use]
    pub const fn notice(information: NoticeInformation, log_page: LogPageId) -> Self {
        Self::new(EventType::NOTICE, information.0, log_page)
    }

    /// Asynchronous Event Type.
    #[must_use]
    pub const fn event_type(self) -> EventType {
        EventType(self.raw_event_type())
    }

    /// Log Page Identifier to read, which clears the event.
    #[must_use]
    pub const fn log_page(self) -> LogPageId {
        LogPageId(self.raw_log_page())
    }

    /// The information, if the event is a notice.
    #[must_use]
    pub const fn as_notice(self) -> Option<NoticeInformation> {
        match self.event_type() {
            EventType::NOTICE => Some(NoticeInformation(self.information())),
            _ => None,
        }
    }

    /// The words for the information, if the specification names it.
    #[must_use]
    pub const fn words(self) -> Option<&'static str> {
        let information = self.information();
        match self.event_type() {
            EventType::ERROR => ErrorInformation(information).words(),
            EventType::HEALTH => HealthInformation(information).words(),
            EventType::NOTICE => NoticeInformation(information).words(),
            EventType::IMMEDIATE => ImmediateInformation(information).words(),
            EventType::IO_COMMAND_SPECIFIC => IoCommandInformation(information).words(),
            _ => None,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.words() {
            Some(words) => formatter.write_str(words),
            None => write!(formatter, "{} {:02X}h", self.event_type(), self.information()),
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Event({:#010x}: {self})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    /// `nvmet_add_async_event` of the Linux target packs type, information and log page so.
    #[test]
    fn events() {
        Event::check_bit_fields();
        assert_eq!(Event::NAMESPACE_ATTRIBUTE_CHANGED.0, 0x0004_0002);
        assert_eq!(Event::ASYMMETRIC_NAMESPACE_ACCESS_CHANGE.0, 0x000c_0302);
        assert_eq!(Event::DISCOVERY_LOG_PAGE_CHANGE.0, 0x0070_f002);
        assert_eq!(Event::RESERVATION_LOG_PAGE_AVAILABLE.0, 0x0080_0006);
        let event = Event(0xff70_f0fa);
        assert_eq!(event.log_page(), LogPageId::DISCOVERY);
        assert_eq!(event.as_notice(), Some(NoticeInformation::DISCOVERY_LOG_PAGE_CHANGE));
        assert_eq!(Event(0x0002_0001).as_notice(), None);
    }

    #[test]
    fn words() {
        assert_eq!(format!("{}", Event(0x0002_0101)), "Temperature Threshold");
        assert_eq!(format!("{}", Event(0x0001_0500)), "Firmware Image Load Error");
        assert_eq!(format!("{}", Event(0x0081_0106)), "Sanitize Operation Completed");
        assert_eq!(format!("{}", Event(0x0000_0003)), "Normal NVM Subsystem Shutdown");
        assert_eq!(format!("{}", Event(0x0000_7f02)), "Notice 7Fh");
        assert_eq!(format!("{:?}", Event(0xf00_0007)), "Event(0x0f000007: Vendor specific 00h)");
    }
}
