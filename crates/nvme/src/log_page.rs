//! Get Log Page: what the controller remembers.

mod asymmetric;
mod command;
mod discovery;
mod general;
mod health;
mod persistent;
mod telemetry;

pub use crate::identify::NamespaceList as ChangedNamespaceList;
pub use asymmetric::{
    AsymmetricNamespaceAccessHeader, AsymmetricNamespaceAccessState, GroupDescriptor, Groups,
    MalformedGroup, NamespaceIds,
};
pub use command::{GetLogPage, LogPageId};
pub use discovery::{
    AddressFamily, DiscoveryEntry, DiscoveryEntryFlags, DiscoveryHeader, DiscoveryParameter,
    Endpoint, RdmaSubtype, SecureChannel, SecurityType, SubsystemType, TransportRequirements,
    TransportType,
};
pub use general::{
    CommandEffects, CommandsSupportedAndEffects, ErrorInformation, FirmwareSlots, LogPageSupport,
    ParameterLocation, ReservationNotification, ReservationNotificationType, SupportedLogPages,
};
pub use health::{CriticalWarning, Health, KELVIN_AT_0_CELSIUS};
pub use persistent::{
    ChangeNamespace, ControllerReset, MalformedEvent, PersistentEvent, PersistentEventAction,
    PersistentEventHeader, PersistentEventInformation, PersistentEventType, PersistentEvents,
    ReportingContext, SetFeatureLayout, Timestamp,
};
pub use telemetry::{MalformedTelemetry, TelemetryHeader, TelemetryParameter, TelemetryScope};

/// First entry of the Changed Attached Namespace List when more than 1024 namespaces changed.
pub const CHANGED_NAMESPACES_TOO_MANY: u32 = 0xffff_ffff;
