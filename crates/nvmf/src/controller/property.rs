//! Properties, and the effects of writing Controller Configuration.
//!
//! ```text
//!            EN 0->1                       SHN 0->1
//! disabled ----------> ready (RDY=1) -------------------> shutting down (SHST=01b)
//!    ^  ^                |                                       | last queue detached
//!    |  |                | EN 1->0                               v
//!    |  '-- resetting <--'---------- EN 1->0 ------------ shut down (SHST=10b)
//!    |          | last queue detached: RDY=0
//!    '----------'
//! ```

use std::time::Duration;

use weft_nvme::fabrics::{PropertyGet, PropertySet, PropertySize};
use weft_nvme::feature::Arbitration;
use weft_nvme::property::{
    Capabilities, CommandSetSelected, ControllerConfiguration, ControllerReadyTimeouts, Offset,
    ShutdownNotification, ShutdownStatus, Version, magic,
};
use weft_nvme::{Command, Status};

use super::outcome::Outcome;
use super::{Controller, Effect, EndReason};
use crate::queue::{CommandError, error};

/// Timeout (CAP.TO): enabling is immediate, but ending queues waits for their commands. Linux
/// grants as much.
const TIMEOUT_500MS: u8 = 15;

/// Arbitration Mechanism Selected (CC.AMS): with the priority class Urgent. 0 is round robin.
const WEIGHTED_ROUND_ROBIN: u8 = 1;

const ATTRIBUTES: CommandError = error(Status::INVALID_FIELD, 40);
const OFFSET: CommandError = error(Status::INVALID_FIELD, 44);

impl Controller {
    /// Property Get.
    pub(super) fn property_get(&self, command: &Command) -> Result<Outcome, CommandError> {
        let get = PropertyGet::from_command(command);
        let size = get.attributes.size().ok_or(ATTRIBUTES)?;
        let value = match get.offset {
            Offset::CONTROLLER_CAPABILITIES => self.capabilities().0,
            Offset::VERSION => u64::from(Version::V2_1.0),
            Offset::CONTROLLER_CONFIGURATION => u64::from(self.configuration.0),
            Offset::CONTROLLER_STATUS => u64::from(self.status.0),
            Offset::CONTROLLER_READY_TIMEOUTS => u64::from(ready_timeouts().0),
            Offset::NVM_SUBSYSTEM_RESET if self.view.limits.subsystem_reset => 0,
            _ => return Err(OFFSET),
        };
        if get.offset.size() != Some(size) {
            return Err(ATTRIBUTES);
        }
        Ok(Outcome::Done(value))
    }

    /// Property Set of Controller Configuration, or of NVM Subsystem Reset where that is allowed.
    pub(super) fn property_set(
        &mut self,
        command: &Command,
        now: Duration,
    ) -> Result<Outcome, CommandError> {
        let set = PropertySet::from_command(command);
        let is_reset =
            set.offset == Offset::NVM_SUBSYSTEM_RESET && self.view.limits.subsystem_reset;
        if set.offset != Offset::CONTROLLER_CONFIGURATION && !is_reset {
            return Err(OFFSET);
        }
        if set.attributes.size() != Some(PropertySize::Four) {
            return Err(ATTRIBUTES);
        }
        let [b0, b1, b2, b3, ..] = set.value.to_le_bytes();
        let value = u32::from_le_bytes([b0, b1, b2, b3]);
        match is_reset {
            true if value == magic::SUBSYSTEM_RESET => {
                self.effects.push_back(Effect::ResetSubsystem);
                self.record_reset(&self.view.shared.controllers(|_| true), now);
                // Linux, too, disables the controller before it gives its admin queue up.
                self.configure(self.configuration.with_enable(false), now);
            }
            true => {}
            false => {
                let new = ControllerConfiguration(value);
                if self.configuration.enable() && !new.enable() {
                    self.record_reset(&[self.controller_id], now);
                }
                self.configure(new, now);
            }
        }
        Ok(Outcome::Done(0))
    }

    /// Whether CC.IOSQES and CC.IOCQES are set.
    pub(super) fn has_entry_sizes(&self) -> bool {
        self.configuration.submission_queue_entry_size()
            == ControllerConfiguration::SUBMISSION_QUEUE_ENTRY_SIZE
            && self.configuration.completion_queue_entry_size()
                == ControllerConfiguration::COMPLETION_QUEUE_ENTRY_SIZE
    }

    /// If a reset or a shutdown waits for queues to end and all have, it is complete.
    pub(super) fn finish_ending(&mut self) {
        if !self.queues.is_empty() {
            return;
        }
        if std::mem::take(&mut self.resetting) {
            // A host that enabled again without waiting has a controller that failed.
            let fatal = self.configuration.enable() && self.status.fatal();
            self.status = self.status.with_ready(false).with_fatal(fatal);
        }
        if std::mem::take(&mut self.shutting_down) {
            self.status = self.status.with_shutdown_status(ShutdownStatus::COMPLETE);
        }
    }

    /// Whether the host has chosen weighted round robin, so that its queues have priorities.
    pub(super) fn has_priorities(&self) -> bool {
        self.configuration.arbitration_mechanism() == WEIGHTED_ROUND_ROBIN
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        Capabilities(0)
            .with_maximum_queue_entries_supported(self.queue_entries_max().saturating_sub(1))
            .with_contiguous_queues_required(true)
            .with_arbitration_mechanisms(u8::from(self.view.limits.weighted_round_robin))
            .with_timeout_500ms(TIMEOUT_500MS)
            .with_nvm_command_set(true)
            .with_io_command_sets(true)
            .with_ready_with_media_supported(true)
            .with_subsystem_reset_supported(self.view.limits.subsystem_reset)
    }

    fn configure(&mut self, new: ControllerConfiguration, now: Duration) {
        let old = std::mem::replace(&mut self.configuration, new);
        match (old.enable(), new.enable()) {
            (false, true) => self.enable(now),
            (true, false) => self.reset(now),
            _ => {}
        }
        let none = ShutdownNotification::NONE;
        match (old.shutdown_notification() == none, new.shutdown_notification() == none) {
            (true, false) => self.shut_down(now),
            (false, true) if !self.shutting_down => {
                self.status = self.status.with_shutdown_status(ShutdownStatus::NORMAL_OPERATION);
            }
            _ => {}
        }
    }

    /// EN 0 to 1. What the controller cannot do makes it fail, as the Linux target does.
    fn enable(&mut self, now: Duration) {
        let mechanism = self.configuration.arbitration_mechanism();
        let good = is_acceptable(self.configuration)
            && mechanism <= u8::from(self.view.limits.weighted_round_robin)
            && !self.resetting
            && !self.shutting_down;
        self.status = self
            .status
            .with_ready(good)
            .with_fatal(!good)
            .with_shutdown_status(ShutdownStatus::NORMAL_OPERATION);
        self.keep_alive.restart(now);
    }

    /// EN 1 to 0: a Controller Level Reset. What waits is answered, features fall back.
    fn reset(&mut self, now: Duration) {
        self.resetting = true;
        self.shutting_down = false;
        self.status = self.status.with_shutdown_status(ShutdownStatus::NORMAL_OPERATION);
        for command_id in self.events.take_requests() {
            self.complete_late(self.completion(command_id, Status::ABORT_REQUESTED));
        }
        self.finish_all_aborts();
        self.features.reset(&self.view);
        self.shared.set_write_cache(true);
        self.shared.set_copy_formats(0);
        self.shared.set_arbitration(Arbitration(0));
        self.events.reset();
        self.changed_namespaces.clear();
        self.reset_ana_changes();
        self.reservation_log = super::reservation::log::Log::default();
        self.event_context = None;
        self.end_queues(EndReason::Reset, now);
    }

    /// SHN 0 to 1: a shutdown, normal or abrupt. Asynchronous Event Requests go on waiting, as with
    /// the Linux target: a host may have given them up.
    fn shut_down(&mut self, now: Duration) {
        self.shutting_down = true;
        self.status = self.status.with_shutdown_status(ShutdownStatus::OCCURRING);
        self.finish_all_aborts();
        self.end_queues(EndReason::Shutdown, now);
    }

    fn end_queues(&mut self, reason: EndReason, now: Duration) {
        self.expect_enable(now);
        if !self.queues.is_empty() {
            self.effects.push_back(Effect::EndQueues(reason));
        }
        self.finish_ending();
    }
}

/// Whether the controller can work as configured. The entry sizes may be set later, until the
/// first I/O queue.
fn is_acceptable(configuration: ControllerConfiguration) -> bool {
    let selected = configuration.command_set_selected();
    let command_set =
        selected == CommandSetSelected::NVM || selected == CommandSetSelected::ALL_SUPPORTED;
    let submission = configuration.submission_queue_entry_size();
    let completion = configuration.completion_queue_entry_size();
    command_set
        && configuration.memory_page_size() == 0
        && !configuration.ready_independent_of_media()
        && (submission == 0 || submission == ControllerConfiguration::SUBMISSION_QUEUE_ENTRY_SIZE)
        && (completion == 0 || completion == ControllerConfiguration::COMPLETION_QUEUE_ENTRY_SIZE)
}

fn ready_timeouts() -> ControllerReadyTimeouts {
    ControllerReadyTimeouts(0).with_with_media_500ms(TIMEOUT_500MS.into())
}
