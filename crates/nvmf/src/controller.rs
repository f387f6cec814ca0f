//! One controller of a target: its admin queue, properties, features, events and keep-alive.
//!
//! A [`Controller`] belongs to the reactor of its admin connection. Commands arrive through
//! [`Controller::handle_command`], everything else through [`Controller::handle_event`],
//! [`Controller::replace_view`] and [`Controller::handle_deadline`]. [`Controller::poll_effect`]
//! yields what the target has to do besides answering; the caller polls it after every call.
//!
//! The controller's I/O queues may be on other reactors. It reads their counters ([`QueueShared`])
//! and ends them all by [`Effect::EndQueues`]; the target then drains each and calls
//! [`Controller::detach_queue`]. Shutdown and reset are complete, as Controller Status shows, when
//! the last queue is detached.
//!
//! A controller is created by a checked Connect, and ends with [`Effect::Close`] or with the admin
//! connection, whichever comes first.

mod abort;
mod admin;
mod ana;
mod event;
mod feature;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod identify;
mod keep_alive;
mod log_page;
mod management;
mod outcome;
mod persistent;
mod property;
mod reservation;
mod telemetry;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use weft_nvme::fabrics::InvalidParameter;
use weft_nvme::log_page::ReservationNotificationType;
use weft_nvme::property::{ControllerConfiguration, ControllerStatus, ShutdownStatus};
use weft_nvme::{Command, Completion, Nqn, Status};

use crate::connect::{ConnectError, ConnectRequest, queue_entries_max};
use crate::discovery::DiscoveryLogPage;
use crate::limits;
use crate::queue::{CommandError, ControllerShared, ErrorRecord, Head, QueueGrant, QueueShared};
use crate::registration::Change;
use crate::subsystem::{Listing, SubsystemView};

pub use crate::namespaces::{BLOCK_SIZES, NamespaceChange};
use ana::changes::Changes;
use event::pending::{ChangedNamespaces, Events};
use feature::values::Features;
use outcome::Outcome;
use persistent::setting::{Context, Setting};
use reservation::log::Log;

/// The reply to an admin command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminReply {
    /// Send this completion.
    Complete(Completion),
    /// Send this data to the host, then the completion.
    Data {
        /// As many bytes as the command's data pointer describes.
        bytes: Vec<u8>,
        /// The completion, a success.
        completion: Completion,
    },
    /// Receive this many bytes from the host and pass the same command again, with them. Until then
    /// the command has had no effect.
    NeedData(u32),
    /// Nothing yet: the completion comes as [`Effect::Complete`].
    Pending,
}

/// What the target has to do for a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send this completion on the admin queue, for a command that was pending.
    Complete(Completion),
    /// The host has given up the pending command of this identifier: it gets no completion.
    Discard {
        /// Identifier of the command.
        command_id: u16,
    },
    /// End every I/O queue: let its commands finish, close its connection, and call
    /// [`Controller::detach_queue`].
    EndQueues(EndReason),
    /// Try to abort a command of an I/O queue, and report [`ControllerEvent::AbortDone`].
    Abort {
        /// Identifier of the Abort command, to be given back.
        abort_id: u16,
        /// Queue of the command to abort.
        queue_id: u16,
        /// Identifier of the command to abort.
        command_id: u16,
    },
    /// Forbid or allow writing to a namespace, for all controllers of the subsystem, and report
    /// [`ControllerEvent::FeatureDone`] once no queue writes to it any more.
    SetWriteProtect {
        /// Identifier of the Set Features command, to be given back.
        command_id: u16,
        /// The namespace.
        nsid: u32,
        /// Whether writing is forbidden from now on.
        protect: bool,
    },
    /// Let reservations of a namespace persist through power loss, or not, and report
    /// [`ControllerEvent::FeatureDone`].
    SetPersistence {
        /// Identifier of the Set Features command, to be given back.
        command_id: u16,
        /// The namespace.
        nsid: u32,
        /// Whether they persist from now on.
        persist: bool,
    },
    /// Change the namespaces of the subsystem, and report [`ControllerEvent::NamespacesChanged`].
    ChangeNamespaces {
        /// Identifier of the command, to be given back.
        command_id: u16,
        /// What is to be changed.
        change: NamespaceChange,
    },
    /// Report [`ControllerEvent::SubsystemReset`] to every other controller of the subsystem.
    ResetSubsystem,
    /// Register discovery information of the host, or not any more, and report
    /// [`ControllerEvent::FeatureDone`].
    Register {
        /// Identifier of the Discovery Information Management command, to be given back.
        command_id: u16,
        /// What is to be registered.
        change: Box<Change>,
    },
    /// Close the admin connection: the controller has ended.
    Close(EndReason),
}

/// Why queues end, or the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// The host shut the controller down.
    Shutdown,
    /// The host disabled the controller.
    Reset,
    /// The host was silent for longer than the Keep Alive Timeout.
    KeepAliveExpired,
    /// The host did not enable the controller in time.
    NeverEnabled,
    /// The admin connection was lost while the host used the controller.
    AdminQueueLost,
    /// The host closed the admin connection after it had shut the controller down or disabled
    /// it, or without having enabled it.
    Disconnected,
    /// The host may no longer connect to the subsystem.
    HostNotAllowed,
    /// The NVM subsystem was reset through another controller.
    SubsystemReset,
    /// The controller failed.
    Fatal,
}

/// Events other than commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControllerEvent {
    /// [`Effect::Abort`] was carried out.
    AbortDone {
        /// Identifier of the Abort command.
        abort_id: u16,
        /// Whether the command was aborted.
        aborted: bool,
    },
    /// [`Effect::SetWriteProtect`], [`Effect::SetPersistence`] or [`Effect::Register`] was carried
    /// out.
    FeatureDone {
        /// Identifier of the command.
        command_id: u16,
        /// Success, or the error.
        status: Status,
    },
    /// [`Effect::ChangeNamespaces`] was carried out.
    NamespacesChanged {
        /// Identifier of the command.
        command_id: u16,
        /// The number of a namespace that was made, 0 without one; or the error.
        result: Result<u32, Status>,
    },
    /// Another host has changed the reservations of a namespace where this one is, or was,
    /// registered.
    Reservation {
        /// The namespace.
        nsid: u32,
        /// What has happened.
        kind: ReservationNotificationType,
    },
    /// The NVM subsystem was reset through another controller: the association ends.
    SubsystemReset,
    /// The admin connection was closed.
    AdminQueueLost,
    /// The target cannot serve this controller any more.
    Fatal,
}

/// An attached I/O queue.
#[derive(Debug)]
struct AttachedQueue {
    shared: Arc<QueueShared>,
    entries: u32,
    flow_control: bool,
    /// Its command count when the keep-alive timer last expired.
    seen: u64,
}

/// One controller.
#[derive(Debug)]
pub struct Controller {
    view: Arc<SubsystemView>,
    controller_id: u16,
    host: Nqn,
    host_id: [u8; 16],
    /// The host describes its memory with keyed descriptors.
    rdma: bool,
    local_address: IpAddr,
    /// The port that the host came to.
    port_id: u16,
    connect_id: u16,
    admin: AdminQueue,
    configuration: ControllerConfiguration,
    status: ControllerStatus,
    /// A reset waits for the queues to end.
    resetting: bool,
    /// A shutdown waits for the queues to end.
    shutting_down: bool,
    /// The controller has ended.
    ended: bool,
    /// When the controller ends if it has not been enabled.
    association_deadline: Duration,
    started: Duration,
    keep_alive: keep_alive::KeepAlive,
    features: Features,
    events: Events,
    changed_namespaces: ChangedNamespaces,
    ana_changes: Changes,
    reservation_log: Log,
    /// Of the present view, once the host has asked for it.
    discovery_log_page: Option<DiscoveryLogPage>,
    aborts: Vec<PendingAbort>,
    /// Commands that wait for [`ControllerEvent::FeatureDone`] or its like.
    setting: Vec<Setting>,
    /// What the host reads of the Persistent Event Log.
    event_context: Option<Context>,
    /// Telemetry Host-Initiated as it was captured last, whatever was reset since; empty: never.
    telemetry: Vec<u8>,
    queues: BTreeMap<u16, AttachedQueue>,
    shared: Arc<ControllerShared>,
    /// It is in the lists of controllers.
    _listing: Listing,
    effects: VecDeque<Effect>,
}

/// An Abort that waits for the queue of the command that it is about.
#[derive(Debug, Clone, Copy)]
struct PendingAbort {
    abort_id: u16,
    queue_id: u16,
}

#[derive(Debug)]
struct AdminQueue {
    head: Head,
    entries: u32,
    flow_control: bool,
}

impl Controller {
    /// The controller that a checked Connect of an admin queue asks for.
    ///
    /// `local_address` is the address that the host came to: a discovery controller shows it
    /// in place of a wildcard.
    #[must_use]
    pub fn new(
        view: Arc<SubsystemView>,
        request: &ConnectRequest,
        controller_id: u16,
        local_address: IpAddr,
        now: Duration,
    ) -> Self {
        let keep_alive = keep_alive::KeepAlive::new(request.keep_alive_timeout_ms, &view, now);
        let features = Features::new(&view);
        let shared = ControllerShared::new(&view, request.host_id);
        let listing = view.shared.list_controller(controller_id, request.host);
        let mut controller = Self {
            view,
            controller_id,
            host: request.host,
            host_id: request.host_id,
            rdma: false,
            local_address,
            port_id: 0,
            connect_id: request.command_id,
            admin: AdminQueue {
                head: Head::after_connect(request.entries, request.flow_control),
                entries: request.entries,
                flow_control: request.flow_control,
            },
            configuration: ControllerConfiguration::default(),
            status: ControllerStatus::default(),
            resetting: false,
            shutting_down: false,
            ended: false,
            association_deadline: Duration::ZERO,
            started: now,
            keep_alive,
            features,
            events: Events::default(),
            changed_namespaces: ChangedNamespaces::default(),
            ana_changes: Changes::default(),
            reservation_log: Log::default(),
            discovery_log_page: None,
            aborts: Vec::new(),
            setting: Vec::new(),
            event_context: None,
            telemetry: Vec::new(),
            queues: BTreeMap::new(),
            shared,
            _listing: listing,
            effects: VecDeque::new(),
        };
        controller.expect_enable(now);
        controller
    }

    /// The same for an admin queue over RDMA: it identifies itself as such.
    #[must_use]
    pub fn over_rdma(mut self) -> Self {
        self.rdma = true;
        self
    }

    /// The same for a host that came to this port.
    #[must_use]
    pub fn at_port(mut self, port_id: u16) -> Self {
        self.port_id = port_id;
        self
    }

    /// Entries of the longest I/O queue.
    fn queue_entries_max(&self) -> u16 {
        let most = if self.rdma { limits::RDMA_QUEUE_ENTRIES_MAX } else { u16::MAX };
        queue_entries_max(&self.view).min(most)
    }

    /// The answer to the Connect.
    #[must_use]
    pub fn connect_completion(&self) -> Completion {
        let head = Head::after_connect(self.admin.entries, self.admin.flow_control);
        Completion::new(self.connect_id, Status::SUCCESS)
            .with_dword0(u32::from(self.controller_id))
            .with_submission_queue_head(match self.admin.flow_control {
                true => head.value(),
                false => u16::MAX,
            })
    }

    /// Controller Identifier.
    #[must_use]
    pub fn controller_id(&self) -> u16 {
        self.controller_id
    }

    /// The host that the controller belongs to.
    #[must_use]
    pub fn host(&self) -> &Nqn {
        &self.host
    }

    /// How many namespaces its host sees.
    #[must_use]
    pub fn namespaces(&self) -> usize {
        self.view.namespaces.len()
    }

    /// Whether the controller is enabled and ready, and not shutting down.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.configuration.enable()
            && self.status.ready()
            && !self.resetting
            && self.status.shutdown_status() == ShutdownStatus::NORMAL_OPERATION
    }

    /// Takes an admin command, with the data that the host sent along or after
    /// [`AdminReply::NeedData`]; otherwise `data` is empty.
    pub fn handle_command(&mut self, command: &Command, data: &[u8], now: Duration) -> AdminReply {
        let outcome = self.execute(command, data, now);
        if let Ok(Outcome::NeedData(length)) = outcome {
            return AdminReply::NeedData(length);
        }
        self.arrived();
        let command_id = command.command_id.get();
        match outcome {
            Ok(Outcome::Done(result)) => AdminReply::Complete(
                self.completion(command_id, Status::SUCCESS).with_result(result),
            ),
            Ok(Outcome::Data(bytes)) => {
                let completion = self.completion(command_id, Status::SUCCESS);
                AdminReply::Data { bytes, completion }
            }
            Ok(Outcome::Pending | Outcome::NeedData(_)) => AdminReply::Pending,
            Err(error) => AdminReply::Complete(self.refuse(command, error)),
        }
    }

    /// A command has come that the queue's owner completes itself, with [`Self::completion`]: one
    /// of authentication, or one that came before it. Other commands count themselves.
    pub fn arrived(&mut self) {
        self.admin.head.advance();
        self.keep_alive.touch();
    }

    /// Completes an admin command whose data was not received correctly with `status`.
    pub fn reject(&mut self, command: &Command, status: Status) -> Completion {
        self.arrived();
        self.refuse(command, CommandError { status, parameter: None })
    }

    /// Handles an event.
    pub fn handle_event(&mut self, event: ControllerEvent) {
        match event {
            ControllerEvent::AbortDone { abort_id, aborted } => {
                self.finish_abort(abort_id, aborted);
            }
            ControllerEvent::FeatureDone { command_id, status } => {
                self.finish_setting(command_id, status, 0);
            }
            ControllerEvent::NamespacesChanged { command_id, result } => {
                let (status, dword0) = match result {
                    Ok(nsid) => (Status::SUCCESS, nsid),
                    Err(status) => (status, 0),
                };
                self.finish_setting(command_id, status, dword0);
            }
            ControllerEvent::SubsystemReset => self.end(EndReason::SubsystemReset),
            ControllerEvent::Reservation { nsid, kind } => self.note_reservation(nsid, kind),
            ControllerEvent::AdminQueueLost if self.is_in_use() => {
                self.end(EndReason::AdminQueueLost);
            }
            ControllerEvent::AdminQueueLost => self.end(EndReason::Disconnected),
            ControllerEvent::Fatal => {
                self.status = self.status.with_fatal(true);
                self.end(EndReason::Fatal);
            }
        }
    }

    /// The next effect.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When [`Controller::handle_deadline`] has to be called, if at all; any call may change it.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        if self.ended {
            return None;
        }
        let association = (!self.is_ready()).then_some(self.association_deadline);
        [association, self.keep_alive.deadline()].into_iter().flatten().min()
    }

    /// Checks the keep-alive timer and the time until the controller must be enabled.
    pub fn handle_deadline(&mut self, now: Duration) {
        if self.ended {
            return;
        }
        if !self.is_ready() && self.association_deadline <= now {
            return self.end(EndReason::NeverEnabled);
        }
        if self.keep_alive.deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        let mut alive = self.keep_alive.take_touched();
        for queue in self.queues.values_mut() {
            let commands = queue.shared.commands();
            alive |= commands != queue.seen;
            queue.seen = commands;
        }
        if alive {
            self.keep_alive.restart(now);
        } else {
            self.status = self.status.with_fatal(true);
            self.end(EndReason::KeepAliveExpired);
        }
    }

    /// Attaches an I/O queue, as a Connect that names this controller asks for.
    pub fn attach_queue(&mut self, request: &ConnectRequest) -> Result<QueueGrant, ConnectError> {
        self.check_queue(request)?;
        let shared = Arc::new(QueueShared::default());
        let ConnectRequest { entries, flow_control, .. } = *request;
        let queue = AttachedQueue { shared: Arc::clone(&shared), entries, flow_control, seen: 0 };
        self.queues.insert(request.queue_id, queue);
        self.keep_alive.touch();
        Ok(QueueGrant {
            queue_id: request.queue_id,
            entries,
            flow_control,
            priority: self.has_priorities().then_some(request.priority),
            controller_id: self.controller_id,
            port_id: self.port_id,
            command_id: request.command_id,
            shared,
            controller: Arc::clone(&self.shared),
            limits: self.view.limits,
        })
    }

    /// Removes an I/O queue whose commands are finished and whose connection is closed.
    pub fn detach_queue(&mut self, queue_id: u16) {
        self.queues.remove(&queue_id);
        self.finish_aborts_of(queue_id);
        self.finish_ending();
    }

    /// Takes a newer view: raises the events that tell the host what changed, and ends the
    /// controller if its host is no longer allowed. The limits stay those that the host was told.
    pub fn replace_view(&mut self, mut view: Arc<SubsystemView>) {
        if view.limits != self.view.limits {
            Arc::make_mut(&mut view).limits = self.view.limits;
        }
        let old = std::mem::replace(&mut self.view, view);
        let page = self.discovery_log_page.take();
        self.discovery_log_page =
            self.view.discovery().and_then(|view| page.and_then(|page| page.with(view)));
        if !self.view.allows(&self.host) {
            return self.end(EndReason::HostNotAllowed);
        }
        self.features.forget_namespaces(&self.view);
        self.note_changes(&old);
        self.deliver_events();
    }

    /// Ends a command that has waited for what the target does for it.
    fn finish_setting(&mut self, command_id: u16, status: Status, dword0: u32) {
        if let Some(index) = self.setting.iter().position(|one| one.command_id == command_id) {
            let change = self.setting.swap_remove(index).change;
            if let Some((change, began)) = change.filter(|_| status.is_success()) {
                self.record_change(change, dword0, began);
            }
            self.complete_late(self.completion(command_id, status).with_dword0(dword0));
        }
    }

    fn check_queue(&self, request: &ConnectRequest) -> Result<(), ConnectError> {
        request.check_host(&self.view)?;
        if self.ended || request.controller_id != self.controller_id {
            return Err(ConnectError::unknown_controller());
        }
        if request.host != self.host {
            return Err(ConnectError::invalid(InvalidParameter::HOST_NQN));
        }
        let in_range = (1..=self.features.io_queues).contains(&request.queue_id);
        if self.view.discovery().is_some() || !in_range {
            return Err(ConnectError::invalid(InvalidParameter::QUEUE_ID));
        }
        request.check_size(&self.view)?;
        if !self.is_ready() || self.queues.contains_key(&request.queue_id) {
            return Err(ConnectError::status(Status::COMMAND_SEQUENCE_ERROR.with_dnr()));
        }
        if !self.has_entry_sizes() {
            return Err(ConnectError::invalid(InvalidParameter::QUEUE_ID));
        }
        Ok(())
    }

    /// Ends the controller: all queues end, and the admin connection closes.
    fn end(&mut self, reason: EndReason) {
        if self.ended {
            return;
        }
        self.ended = true;
        if self.is_in_use() {
            self.view.shared.count_lost_association();
        }
        self.effects.push_back(Effect::EndQueues(reason));
        self.effects.push_back(Effect::Close(reason));
    }

    /// Whether the host has enabled the controller and not asked for its shutdown since.
    fn is_in_use(&self) -> bool {
        self.configuration.enable()
            && self.status.shutdown_status() == ShutdownStatus::NORMAL_OPERATION
    }

    /// From now on the host has the association timeout to enable the controller.
    fn expect_enable(&mut self, now: Duration) {
        let timeout = Duration::from_millis(self.view.limits.association_timeout_ms.into());
        self.association_deadline = now.saturating_add(timeout);
    }

    fn complete_late(&mut self, completion: Completion) {
        if !self.ended {
            self.effects.push_back(Effect::Complete(completion));
        }
    }

    /// The completion of an admin command with this status.
    #[must_use]
    pub fn completion(&self, command_id: u16, status: Status) -> Completion {
        Completion::new(command_id, status).with_submission_queue_head(self.admin.head.value())
    }

    fn refuse(&mut self, command: &Command, error: CommandError) -> Completion {
        self.shared.errors().push(ErrorRecord {
            count: 0,
            queue_id: 0,
            command_id: command.command_id.get(),
            status: error.status,
            parameter: error.parameter,
            lba: 0,
            nsid: if command.is_fabrics() { 0 } else { command.namespace_id.get() },
            opcode: command.opcode,
        });
        self.completion(command.command_id.get(), error.status)
    }
}

#[cfg(test)]
mod tests;
