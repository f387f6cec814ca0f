//! The values of features.

use std::collections::BTreeMap;

use weft_nvme::Status;
use weft_nvme::event::{Event, EventType, HealthInformation, NoticeInformation};
use weft_nvme::feature::{
    AsynchronousEventConfiguration, FeatureId, HostBehavior, NumberOfQueues,
    ReservationNotificationMask, TemperatureThreshold, TemperatureThresholdType,
};
use weft_nvme::log_page::{CriticalWarning, ReservationNotificationType as NoticeKind};

use crate::queue::{CommandError, error};
use crate::subsystem::{NamespaceView, SubsystemView};

/// Composite Temperature. There is no sensor, so it is a steady 25 °C.
pub(in crate::controller) const COMPOSITE_TEMPERATURE_K: u16 = 298;

pub(super) const FEATURE: CommandError = error(Status::INVALID_FIELD, 40);
pub(super) const VALUE: CommandError = error(Status::INVALID_FIELD, 44);

/// The values of a controller's features, but for those that other parts of it keep: the Keep
/// Alive Timer, the write cache, the host identifier and write protection.
#[derive(Debug)]
pub(in crate::controller) struct Features {
    /// I/O queues that the host may connect: Number of Queues.
    pub(in crate::controller) io_queues: u16,
    pub(super) arbitration: u32,
    pub(super) power_management: u32,
    pub(super) over_temperature_k: u16,
    pub(super) under_temperature_k: u16,
    /// Error Recovery of the namespaces whose value is not the default.
    pub(super) error_recovery: BTreeMap<u32, u32>,
    /// Reservation Notification Mask of the namespaces where something is masked.
    pub(super) reservation_masks: BTreeMap<u32, u32>,
    pub(super) write_atomicity: u32,
    pub(super) events: AsynchronousEventConfiguration,
    pub(in crate::controller) host_behavior: HostBehavior,
}

impl Features {
    /// The defaults.
    pub(in crate::controller) fn new(view: &SubsystemView) -> Self {
        Self {
            io_queues: view.limits.max_io_queues,
            arbitration: 0,
            power_management: 0,
            // Never reached: no event unless the host sets a threshold.
            over_temperature_k: u16::MAX,
            under_temperature_k: 0,
            error_recovery: BTreeMap::new(),
            reservation_masks: BTreeMap::new(),
            write_atomicity: 0,
            events: default_events(view),
            host_behavior: HostBehavior::default(),
        }
    }

    /// Restores the defaults.
    pub(in crate::controller) fn reset(&mut self, view: &SubsystemView) {
        *self = Self::new(view);
    }

    /// Removes the values of namespaces that were removed.
    pub(in crate::controller) fn forget_namespaces(&mut self, view: &SubsystemView) {
        let is_there = |nsid: &u32, _: &mut u32| view.namespaces.get(*nsid).is_some();
        self.error_recovery.retain(is_there);
        self.reservation_masks.retain(is_there);
    }

    /// Whether the host has enabled this event.
    pub(in crate::controller) fn is_event_enabled(&self, event: Event) -> bool {
        match (event.event_type(), event.as_notice()) {
            (_, Some(NoticeInformation::NAMESPACE_ATTRIBUTE_CHANGED)) => {
                self.events.namespace_attribute()
            }
            (_, Some(NoticeInformation::ASYMMETRIC_NAMESPACE_ACCESS_CHANGE)) => {
                self.events.asymmetric_namespace_access_change()
            }
            (_, Some(NoticeInformation::DISCOVERY_LOG_PAGE_CHANGE)) => {
                self.events.discovery_log_change()
            }
            (EventType::HEALTH, _) => {
                let warnings = CriticalWarning(self.events.critical_warnings());
                match HealthInformation(event.information()) {
                    HealthInformation::SUBSYSTEM_RELIABILITY => warnings.degraded_reliability(),
                    _ => warnings.temperature(),
                }
            }
            // What is not to be told is masked by namespace, with a feature of its own.
            (EventType::IO_COMMAND_SPECIFIC, _) => true,
            _ => false,
        }
    }

    /// Whether a host is told of this change of the reservations of a namespace.
    pub(in crate::controller) fn is_reservation_notified(
        &self,
        nsid: u32,
        kind: NoticeKind,
    ) -> bool {
        let mask = self.reservation_masks.get(&nsid).copied().unwrap_or(0);
        let mask = ReservationNotificationMask(mask);
        match kind {
            NoticeKind::REGISTRATION_PREEMPTED => !mask.registration_preempted(),
            NoticeKind::RESERVATION_RELEASED => !mask.reservation_released(),
            _ => !mask.reservation_preempted(),
        }
    }

    /// Critical Warning of the health log page.
    pub(in crate::controller) fn critical_warning(&self, view: &SubsystemView) -> CriticalWarning {
        let alarming = COMPOSITE_TEMPERATURE_K >= self.over_temperature_k
            || COMPOSITE_TEMPERATURE_K <= self.under_temperature_k;
        let degraded = view.namespaces.iter().any(NamespaceView::is_degraded);
        CriticalWarning(0).with_temperature(alarming).with_degraded_reliability(degraded)
    }

    /// The value of a feature that has no data and is kept here. `value` is Command Dword 11.
    pub(super) fn plain(
        &self,
        feature: FeatureId,
        nsid: u32,
        value: u32,
    ) -> Result<u32, CommandError> {
        Ok(match feature {
            FeatureId::ARBITRATION => self.arbitration,
            FeatureId::POWER_MANAGEMENT => self.power_management,
            FeatureId::TEMPERATURE_THRESHOLD => {
                let asked = TemperatureThreshold(value);
                let threshold = match (asked.sensor(), asked.threshold_type()) {
                    (TemperatureThreshold::COMPOSITE, TemperatureThresholdType::OVER) => {
                        self.over_temperature_k
                    }
                    (TemperatureThreshold::COMPOSITE, TemperatureThresholdType::UNDER) => {
                        self.under_temperature_k
                    }
                    _ => return Err(VALUE),
                };
                TemperatureThreshold(0).with_threshold_k(threshold).0
            }
            FeatureId::ERROR_RECOVERY => self.error_recovery.get(&nsid).copied().unwrap_or(0),
            FeatureId::RESERVATION_NOTIFICATION_MASK => {
                self.reservation_masks.get(&nsid).copied().unwrap_or(0)
            }
            FeatureId::NUMBER_OF_QUEUES => NumberOfQueues::pairs(self.io_queues).0,
            FeatureId::WRITE_ATOMICITY => self.write_atomicity,
            FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION => self.events.0,
            FeatureId::COMMAND_SET_PROFILE => 0,
            _ => return Err(FEATURE),
        })
    }
}

/// The events enabled by default: all notices, as with the Linux target.
fn default_events(view: &SubsystemView) -> AsynchronousEventConfiguration {
    let discovery = view.discovery().is_some();
    AsynchronousEventConfiguration(0)
        .with_namespace_attribute(!discovery)
        .with_asymmetric_namespace_access_change(view.ana.is_some())
        .with_discovery_log_change(discovery)
}
