//! Get Features and Set Features. No feature can be saved: a reset restores the defaults.

pub(super) mod values;

use std::time::Duration;

use weft_nvme::command::NAMESPACE_ID_BROADCAST;
use weft_nvme::event::{Event, EventType, HealthInformation};
use weft_nvme::feature::{
    Arbitration, AsynchronousEventConfiguration, CommandSetProfile, ErrorRecovery,
    FeatureCapabilities, FeatureId, GetFeatures, HostBehavior, HostIdentifier, NumberOfQueues,
    PowerManagement, ReservationNotificationMask, ReservationPersistence, Select, SetFeatures,
    TemperatureThreshold, TemperatureThresholdType, VolatileWriteCache, WriteProtection,
    WriteProtectionState,
};
use weft_nvme::log_page::LogPageId;
use weft_nvme::{Command, Status, Wire};

use super::outcome::{Outcome, check_data_from_host, check_data_to_host};
use super::persistent::setting::{Change, Setting};
use super::{Controller, Effect};
use crate::queue::{CommandError, error};
use crate::subsystem::NamespaceView;
use values::{FEATURE, Features, VALUE};

/// Bytes of the Host Behavior Support data structure.
const HOST_BEHAVIOR_BYTES: u32 = 512;

const NAMESPACE: CommandError = error(Status::INVALID_NAMESPACE, 4);
const NOT_OF_A_NAMESPACE: CommandError = error(Status::FEATURE_NOT_NAMESPACE_SPECIFIC, 4);
const SELECT: CommandError = error(Status::INVALID_FIELD, 41);
const SAVE: CommandError = error(Status::FEATURE_NOT_SAVEABLE, 43);
const DATA: CommandError = error(Status::INVALID_FIELD, 24);
const TOO_LONG: CommandError = error(Status::KEEP_ALIVE_TIMEOUT_INVALID, 44);
const NOT_CHANGEABLE: CommandError = error(Status::FEATURE_NOT_CHANGEABLE, 44);
const TOO_LATE: CommandError = error(Status::COMMAND_SEQUENCE_ERROR, 40);
const COMBINATION: CommandError = error(Status::COMMAND_SET_COMBINATION_REJECTED, 44);

/// What can be done with a feature of an I/O controller; `None` if it has no such feature.
fn capabilities(feature: FeatureId) -> Option<FeatureCapabilities> {
    let changeable = FeatureCapabilities(0).with_changeable(true);
    match feature {
        FeatureId::ARBITRATION
        | FeatureId::POWER_MANAGEMENT
        | FeatureId::TEMPERATURE_THRESHOLD
        | FeatureId::VOLATILE_WRITE_CACHE
        | FeatureId::NUMBER_OF_QUEUES
        | FeatureId::WRITE_ATOMICITY
        | FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION
        | FeatureId::KEEP_ALIVE_TIMER
        | FeatureId::HOST_BEHAVIOR_SUPPORT
        | FeatureId::COMMAND_SET_PROFILE => Some(changeable),
        FeatureId::ERROR_RECOVERY
        | FeatureId::NAMESPACE_WRITE_PROTECTION
        | FeatureId::RESERVATION_NOTIFICATION_MASK
        | FeatureId::RESERVATION_PERSISTENCE => Some(changeable.with_namespace_specific(true)),
        FeatureId::HOST_IDENTIFIER => Some(FeatureCapabilities(0)),
        _ => None,
    }
}

/// The same for a discovery controller.
fn discovery_capabilities(feature: FeatureId) -> Option<FeatureCapabilities> {
    match feature {
        FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION | FeatureId::KEEP_ALIVE_TIMER => {
            Some(FeatureCapabilities(0).with_changeable(true))
        }
        _ => None,
    }
}

impl Controller {
    /// Get Features on an I/O controller.
    pub(super) fn get_features(&self, command: &Command) -> Result<Outcome, CommandError> {
        let get = GetFeatures::from_command(command);
        let capabilities = capabilities(get.feature).ok_or(FEATURE)?;
        self.check_access(get.namespace_id, capabilities)?;
        self.get_feature(command, &get, capabilities)
    }

    /// Get Features on a discovery controller.
    pub(super) fn get_discovery_features(
        &self,
        command: &Command,
    ) -> Result<Outcome, CommandError> {
        let get = GetFeatures::from_command(command);
        let capabilities = discovery_capabilities(get.feature).ok_or(FEATURE)?;
        self.get_feature(command, &get, capabilities)
    }

    /// Set Features on an I/O controller.
    pub(super) fn set_features(
        &mut self,
        command: &Command,
        data: &[u8],
        now: Duration,
    ) -> Result<Outcome, CommandError> {
        let set = SetFeatures::from_command(command);
        let capabilities = capabilities(set.feature).ok_or(FEATURE)?;
        check_set(&set, capabilities)?;
        self.check_access(set.namespace_id, capabilities)?;
        match set.feature {
            FeatureId::HOST_IDENTIFIER => Err(TOO_LATE),
            FeatureId::NUMBER_OF_QUEUES => self.set_number_of_queues(set.value),
            FeatureId::HOST_BEHAVIOR_SUPPORT => self.set_host_behavior(command, data),
            FeatureId::NAMESPACE_WRITE_PROTECTION => self.set_write_protection(command, &set, now),
            FeatureId::ERROR_RECOVERY => self.set_error_recovery(&set),
            FeatureId::RESERVATION_NOTIFICATION_MASK => self.set_reservation_mask(&set),
            FeatureId::RESERVATION_PERSISTENCE => {
                self.set_reservation_persistence(command, &set, now)
            }
            FeatureId::KEEP_ALIVE_TIMER => self.set_keep_alive_timer(set.value, now),
            FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION => {
                let known = AsynchronousEventConfiguration(0)
                    .with_critical_warnings(u8::MAX)
                    .with_namespace_attribute(true)
                    // Part of Telemetry Support; there is none to be sent.
                    .with_telemetry_log(true)
                    .with_asymmetric_namespace_access_change(self.view.ana.is_some());
                self.set_events(set.value, known)
            }
            _ => self.set_plain(set.feature, set.value),
        }
    }

    /// Set Features on a discovery controller.
    pub(super) fn set_discovery_features(
        &mut self,
        command: &Command,
        now: Duration,
    ) -> Result<Outcome, CommandError> {
        let set = SetFeatures::from_command(command);
        check_set(&set, discovery_capabilities(set.feature).ok_or(FEATURE)?)?;
        if set.feature == FeatureId::KEEP_ALIVE_TIMER {
            return self.set_keep_alive_timer(set.value, now);
        }
        let known = AsynchronousEventConfiguration(0).with_discovery_log_change(true);
        self.set_events(set.value, known)
    }

    fn get_feature(
        &self,
        command: &Command,
        get: &GetFeatures,
        capabilities: FeatureCapabilities,
    ) -> Result<Outcome, CommandError> {
        match get.select {
            Select::CURRENT => self.current_value(command, get),
            // What cannot be saved has its default for a saved value.
            Select::DEFAULT | Select::SAVED => self.default_value(command, get),
            Select::SUPPORTED_CAPABILITIES => Ok(Outcome::Done(capabilities.0.into())),
            _ => Err(SELECT),
        }
    }

    fn current_value(&self, command: &Command, get: &GetFeatures) -> Result<Outcome, CommandError> {
        match get.feature {
            FeatureId::HOST_IDENTIFIER if !HostIdentifier(get.cdw11).extended() => Err(VALUE),
            FeatureId::HOST_IDENTIFIER => with_data(command, &self.host_id),
            FeatureId::HOST_BEHAVIOR_SUPPORT => {
                with_data(command, self.features.host_behavior.bytes())
            }
            feature => {
                let value = self.feature_value(feature, get.namespace_id, get.cdw11)?;
                Ok(Outcome::Done(value.into()))
            }
        }
    }

    /// The value of a feature that has no data.
    fn feature_value(
        &self,
        feature: FeatureId,
        nsid: u32,
        cdw11: u32,
    ) -> Result<u32, CommandError> {
        Ok(match feature {
            FeatureId::KEEP_ALIVE_TIMER => self.keep_alive.timeout_ms(),
            FeatureId::VOLATILE_WRITE_CACHE => {
                VolatileWriteCache(0).with_enable(self.shared.write_cache()).0
            }
            FeatureId::NAMESPACE_WRITE_PROTECTION => {
                protection_value(self.active_namespace(nsid)?.is_write_protected())
            }
            FeatureId::RESERVATION_PERSISTENCE => {
                let nsid = self.active_namespace(nsid)?.nsid;
                self.view.shared.reservations().get(nsid).persists().into()
            }
            FeatureId::ERROR_RECOVERY | FeatureId::RESERVATION_NOTIFICATION_MASK => {
                self.active_namespace(nsid)?;
                self.features.plain(feature, nsid, 0)?
            }
            feature => self.features.plain(feature, nsid, cdw11)?,
        })
    }

    /// The features that have no data, with their values: those of a namespace, or of none.
    pub(super) fn feature_values(&self, nsid: Option<u32>) -> Vec<(FeatureId, u32)> {
        let of_these = |feature: &FeatureId| {
            capabilities(*feature).is_some_and(|one| one.namespace_specific() == nsid.is_some())
        };
        let value = |feature| self.feature_value(feature, nsid.unwrap_or(0), 0).ok();
        let features = (0..=u8::MAX).map(FeatureId).filter(of_these);
        features.filter_map(|feature| Some((feature, value(feature)?))).collect()
    }

    fn default_value(&self, command: &Command, get: &GetFeatures) -> Result<Outcome, CommandError> {
        let value = match get.feature {
            FeatureId::HOST_IDENTIFIER => return self.current_value(command, get),
            FeatureId::HOST_BEHAVIOR_SUPPORT => {
                return with_data(command, HostBehavior::default().bytes());
            }
            FeatureId::KEEP_ALIVE_TIMER => 0,
            FeatureId::VOLATILE_WRITE_CACHE => VolatileWriteCache(0).with_enable(true).0,
            FeatureId::NAMESPACE_WRITE_PROTECTION => protection_value(false),
            FeatureId::RESERVATION_PERSISTENCE => 0,
            feature => Features::new(&self.view).plain(feature, 0, get.cdw11)?,
        };
        Ok(Outcome::Done(value.into()))
    }

    /// A namespace that is not to be reached here has no features here.
    fn check_access(
        &self,
        nsid: u32,
        capabilities: FeatureCapabilities,
    ) -> Result<(), CommandError> {
        if !capabilities.namespace_specific() {
            return Ok(());
        }
        match self.view.ana_refusal(self.port_id, nsid) {
            None => Ok(()),
            Some(status) => Err(CommandError { status, parameter: None }),
        }
    }

    fn active_namespace(&self, nsid: u32) -> Result<&NamespaceView, CommandError> {
        self.view.namespaces.get(nsid).ok_or(NAMESPACE)
    }

    /// Features that are one number, which is stored if it is valid.
    fn set_plain(&mut self, feature: FeatureId, value: u32) -> Result<Outcome, CommandError> {
        match feature {
            FeatureId::ARBITRATION => {
                self.features.arbitration = value;
                self.shared.set_arbitration(Arbitration(value));
            }
            FeatureId::POWER_MANAGEMENT => {
                if PowerManagement(value).power_state() != 0 {
                    return Err(VALUE);
                }
                self.features.power_management = value;
            }
            FeatureId::TEMPERATURE_THRESHOLD => self.set_temperature(value)?,
            FeatureId::VOLATILE_WRITE_CACHE => {
                self.shared.set_write_cache(VolatileWriteCache(value).enable());
            }
            FeatureId::WRITE_ATOMICITY => self.features.write_atomicity = value,
            FeatureId::COMMAND_SET_PROFILE => {
                if CommandSetProfile(value).combination_index() != 0 {
                    return Err(COMBINATION);
                }
            }
            _ => return Err(FEATURE),
        }
        Ok(Outcome::Done(0))
    }

    /// Number of Queues: once an I/O queue is connected it stays as it is.
    fn set_number_of_queues(&mut self, value: u32) -> Result<Outcome, CommandError> {
        if !self.queues.is_empty() {
            return Err(TOO_LATE);
        }
        let asked = NumberOfQueues(value);
        let not_allowed = NumberOfQueues::NOT_ALLOWED;
        if asked.submission_queues_0s_based() == not_allowed
            || asked.completion_queues_0s_based() == not_allowed
        {
            return Err(VALUE);
        }
        let pairs = u16::try_from(asked.queue_pairs()).unwrap_or(u16::MAX);
        self.features.io_queues = pairs.min(self.view.limits.max_io_queues);
        Ok(Outcome::Done(NumberOfQueues::pairs(self.features.io_queues).0.into()))
    }

    fn set_temperature(&mut self, value: u32) -> Result<(), CommandError> {
        let threshold = TemperatureThreshold(value);
        let composite = [TemperatureThreshold::COMPOSITE, TemperatureThreshold::ALL_SENSORS];
        if !composite.contains(&threshold.sensor()) {
            return Err(VALUE);
        }
        match threshold.threshold_type() {
            TemperatureThresholdType::OVER => {
                self.features.over_temperature_k = threshold.threshold_k();
            }
            TemperatureThresholdType::UNDER => {
                self.features.under_temperature_k = threshold.threshold_k();
            }
            _ => return Err(VALUE),
        }
        self.raise_health_events();
        Ok(())
    }

    /// Raises the events of the critical warnings that there are.
    pub(super) fn raise_health_events(&mut self) {
        let warning = self.features.critical_warning(&self.view);
        for (given, information) in [
            (warning.temperature(), HealthInformation::TEMPERATURE_THRESHOLD),
            (warning.degraded_reliability(), HealthInformation::SUBSYSTEM_RELIABILITY),
        ] {
            if given {
                self.raise(Event::new(EventType::HEALTH, information.0, LogPageId::HEALTH));
            }
        }
        self.deliver_events();
    }

    fn set_events(
        &mut self,
        value: u32,
        known: AsynchronousEventConfiguration,
    ) -> Result<Outcome, CommandError> {
        if value & !known.0 != 0 {
            return Err(VALUE);
        }
        self.features.events = AsynchronousEventConfiguration(value);
        self.raise_health_events();
        Ok(Outcome::Done(0))
    }

    /// Within the bounds that Connect has kept to.
    fn set_keep_alive_timer(
        &mut self,
        asked_ms: u32,
        now: Duration,
    ) -> Result<Outcome, CommandError> {
        let timeout_ms = self.view.keep_alive_timeout_ms(asked_ms).ok_or(TOO_LONG)?;
        self.keep_alive.set_timeout(timeout_ms, &self.view, now);
        Ok(Outcome::Done(self.keep_alive.timeout_ms().into()))
    }

    fn set_error_recovery(&mut self, set: &SetFeatures) -> Result<Outcome, CommandError> {
        if ErrorRecovery(set.value).deallocated_error() {
            return Err(VALUE);
        }
        let nsids = self.namespaces_of(set)?;
        self.features.error_recovery.extend(nsids.into_iter().map(|nsid| (nsid, set.value)));
        Ok(Outcome::Done(0))
    }

    fn set_reservation_mask(&mut self, set: &SetFeatures) -> Result<Outcome, CommandError> {
        let known = ReservationNotificationMask(0)
            .with_registration_preempted(true)
            .with_reservation_released(true)
            .with_reservation_preempted(true);
        if set.value & !known.0 != 0 {
            return Err(VALUE);
        }
        let nsids = self.namespaces_of(set)?;
        self.features.reservation_masks.extend(nsids.into_iter().map(|nsid| (nsid, set.value)));
        Ok(Outcome::Done(0))
    }

    /// The namespaces whose feature is set: one, or all of them.
    fn namespaces_of(&self, set: &SetFeatures) -> Result<Vec<u32>, CommandError> {
        match set.namespace_id {
            NAMESPACE_ID_BROADCAST => {
                Ok(self.view.namespaces.iter().map(|namespace| namespace.nsid).collect())
            }
            nsid => Ok(vec![self.active_namespace(nsid)?.nsid]),
        }
    }

    /// What persists concerns all controllers, and is written before the command completes.
    fn set_reservation_persistence(
        &mut self,
        command: &Command,
        set: &SetFeatures,
        now: Duration,
    ) -> Result<Outcome, CommandError> {
        let nsid = self.active_namespace(set.namespace_id)?.nsid;
        if set.value > 1 {
            return Err(VALUE);
        }
        let persist = ReservationPersistence(set.value).persist_through_power_loss();
        let command_id = command.command_id.get();
        let change = Some((Change::of_feature(command), now));
        self.setting.push(Setting { command_id, change });
        self.effects.push_back(Effect::SetPersistence { command_id, nsid, persist });
        Ok(Outcome::Pending)
    }

    fn set_host_behavior(
        &mut self,
        command: &Command,
        data: &[u8],
    ) -> Result<Outcome, CommandError> {
        check_data_from_host(command, HOST_BEHAVIOR_BYTES)?;
        if data.is_empty() {
            return Ok(Outcome::NeedData(HOST_BEHAVIOR_BYTES));
        }
        let behavior = HostBehavior::read(data).map_err(|_| DATA)?;
        let flags = [
            behavior.advanced_command_retry,
            behavior.telemetry_data_area4,
            behavior.extended_lba_formats,
            behavior.dispersed_namespaces,
        ];
        if flags.iter().any(|flag| *flag > 1) {
            return Err(DATA);
        }
        self.shared.set_copy_formats(behavior.copy_descriptor_formats.get());
        self.features.host_behavior = behavior;
        Ok(Outcome::Done(0))
    }

    /// Write protection concerns all controllers: the command completes when the target has set it.
    fn set_write_protection(
        &mut self,
        command: &Command,
        set: &SetFeatures,
        now: Duration,
    ) -> Result<Outcome, CommandError> {
        let namespace = self.active_namespace(set.namespace_id)?;
        let protect = match WriteProtection(set.value).state() {
            WriteProtectionState::NO_WRITE_PROTECT if !namespace.capabilities.read_only => false,
            WriteProtectionState::WRITE_PROTECT => true,
            _ => return Err(NOT_CHANGEABLE),
        };
        let command_id = command.command_id.get();
        let change = Some((Change::of_feature(command), now));
        self.setting.push(Setting { command_id, change });
        let nsid = set.namespace_id;
        self.effects.push_back(Effect::SetWriteProtect { command_id, nsid, protect });
        Ok(Outcome::Pending)
    }
}

/// What is true of every Set Features.
fn check_set(set: &SetFeatures, capabilities: FeatureCapabilities) -> Result<(), CommandError> {
    if set.save {
        return Err(SAVE);
    }
    let of_a_namespace = set.namespace_id != 0 && set.namespace_id != NAMESPACE_ID_BROADCAST;
    if of_a_namespace && !capabilities.namespace_specific() {
        return Err(NOT_OF_A_NAMESPACE);
    }
    Ok(())
}

fn with_data(command: &Command, bytes: &[u8]) -> Result<Outcome, CommandError> {
    check_data_to_host(command, u32::try_from(bytes.len()).unwrap_or(u32::MAX))?;
    Ok(Outcome::Data(bytes.to_vec()))
}

fn protection_value(protected: bool) -> u32 {
    let state = match protected {
        true => WriteProtectionState::WRITE_PROTECT,
        false => WriteProtectionState::NO_WRITE_PROTECT,
    };
    WriteProtection::new(state).0
}
