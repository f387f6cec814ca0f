//! An admin queue: executes the actions of its controller.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use weft_backend::{Failure, Operation};
use weft_nvme::{Command, Completion, Nqn, Status};
use weft_nvmf::connect::{ConnectError, ConnectRequest};
use weft_nvmf::controller::{
    AdminReply, Controller, ControllerEvent, Effect, EndReason, NamespaceChange,
};
use weft_nvmf::registration;
use weft_nvmf::reservation::{Operation as ReservationOperation, Request};
use weft_reactor::Buffer;
use weft_transport::target::{CapsuleData, Event};
use weft_transport::{CloseReason, DataDigestError, Slot};

use super::core::{Context, Core};
use super::devices::status_of;
use super::owners::{CONTROLLERS, REGISTRATION_TIMERS, timer};
use crate::shared::ids::{ConnectionId, HostKey};
use crate::shared::limits::TURN_BYTES;
use crate::shared::message::{Endpoints, Message, NamespaceRequest, Requester, ReservationResult};
use crate::shared::reservations::Change;
use crate::shared::round::Waiter;

/// An admin queue and its controller.
#[derive(Debug)]
pub(crate) struct Admin {
    id: ConnectionId,
    controller: Controller,
    subsystem: Nqn,
    endpoints: Endpoints,
    host: HostKey,
    queues: BTreeMap<u16, Queue>,
    /// Commands that are completed later, by their identifier.
    pending: BTreeMap<u16, Slot>,
    /// Namespaces that are being protected, by the identifier of the command.
    protecting: BTreeMap<u16, PendingProtection>,
    /// Their flushes, by the command's slot.
    flushing: BTreeMap<Slot, u16>,
    /// There is a snapshot of which it has not learned.
    is_outdated: bool,
    /// What the timer is set to.
    deadline: Option<Duration>,
    /// Why the connection has ended, if it has; I/O queues may still exist.
    closed: Option<CloseReason>,
}

/// A namespace that is being protected.
#[derive(Debug, Clone, Copy)]
struct PendingProtection {
    nsid: u32,
    /// The version of its snapshot.
    version: u64,
}

/// An I/O queue of the controller.
#[derive(Debug)]
struct Queue {
    connection: ConnectionId,
    /// It was asked to end and counts as draining for this controller.
    ending: bool,
}

impl Admin {
    pub(super) fn new(
        id: ConnectionId,
        controller: Controller,
        subsystem: Nqn,
        endpoints: Endpoints,
        host: HostKey,
    ) -> Self {
        Self {
            id,
            controller,
            subsystem,
            endpoints,
            host,
            queues: BTreeMap::new(),
            pending: BTreeMap::new(),
            protecting: BTreeMap::new(),
            flushing: BTreeMap::new(),
            is_outdated: false,
            deadline: None,
            closed: None,
        }
    }

    /// Handles an event of the connection.
    pub(super) fn handle(&mut self, event: Event, context: &mut Context<'_>) {
        match event {
            Event::Command { slot, data } => {
                if let Some(command) = context.transport.command(slot).copied() {
                    self.handle_command(slot, command, data, context);
                }
            }
            Event::Data { slot, buffer, result } => {
                self.handle_data(slot, &buffer, result, context);
            }
            Event::Closed { .. } => {}
        }
        self.run_effects(context);
    }

    /// The connection has ended: the controller ends after its queues.
    pub(super) fn handle_closed(&mut self, reason: CloseReason, context: &mut Context<'_>) {
        self.closed = Some(reason);
        self.controller.handle_event(ControllerEvent::AdminQueueLost);
        self.run_effects(context);
    }

    /// Whether the controller and its queues have ended.
    pub(super) fn is_finished(&self) -> bool {
        self.is_closed() && self.queues.is_empty() && self.flushing.is_empty()
    }

    /// Whether the connection is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// The host whose controller it is.
    pub(super) fn host(&self) -> &HostKey {
        &self.host
    }

    /// A command has come that is completed with [`Self::completion`].
    pub(super) fn arrived(&mut self) {
        self.controller.arrived();
    }

    /// The completion of a command that the controller does not see.
    pub(super) fn completion(&self, command_id: u16, status: Status) -> Completion {
        self.controller.completion(command_id, status)
    }

    /// Releases the resources of the controller.
    pub(super) fn release(self, address: IpAddr, core: &mut Core) {
        core.reactor.clear_timer(timer(CONTROLLERS, self.id));
        for PendingProtection { nsid, version } in self.protecting.values() {
            core.directory.end_write_protect(&self.subsystem, *nsid, *version, true);
        }
        let controller_id = self.controller.controller_id();
        core.directory.release_controller(&self.subsystem, controller_id, address);
        let (host, now) = (self.controller.host(), core.reactor.turn_time());
        if let Some(ends) = core.directory.registrant_left(host, self.id, now) {
            core.reactor.set_timer(timer(REGISTRATION_TIMERS, self.id), ends);
        }
    }

    /// Time has passed.
    pub(super) fn handle_timer(&mut self, context: &mut Context<'_>) {
        self.deadline = None;
        self.controller.handle_deadline(context.core.reactor.turn_time());
        self.run_effects(context);
    }

    /// An I/O queue asks to be attached.
    pub(super) fn attach(
        &mut self,
        queue: ConnectionId,
        request: &ConnectRequest,
        core: &mut Core,
    ) {
        let result = match self.is_closed() {
            true => Err(ConnectError::unknown_controller()),
            false => self.controller.attach_queue(request),
        };
        if result.is_ok() {
            self.queues.insert(request.queue_id, Queue { connection: queue, ending: false });
        }
        let result = result.map(Box::new);
        core.post(queue, Message::Attached { queue, owner: self.id, result });
    }

    /// The last command of an I/O queue is done.
    pub(super) fn queue_ended(&mut self, queue_id: u16, context: &mut Context<'_>) {
        if let Some(queue) = self.queues.remove(&queue_id) {
            if queue.ending {
                context.core.end_drain(&self.host);
            }
            self.controller.detach_queue(queue_id);
        }
        self.run_effects(context);
    }

    /// Passes an event to the controller that it waited for.
    pub(super) fn handle_event(&mut self, event: ControllerEvent, context: &mut Context<'_>) {
        self.controller.handle_event(event);
        self.run_effects(context);
    }

    /// Every group has applied a change of write protection. A protected namespace is flushed
    /// before the command is answered, as the Linux target does: its contents would not be sure
    /// otherwise.
    pub(super) fn handle_protected(
        &mut self,
        command_id: u16,
        status: Status,
        context: &mut Context<'_>,
    ) {
        let nsid = self.protecting.get(&command_id).map(|protecting| protecting.nsid);
        let slot = self.pending.get(&command_id).copied().filter(|_| !self.is_closed());
        if let (Some(nsid), Some(slot)) = (nsid, slot)
            && let Some(view) =
                context.core.snapshot.view(&self.subsystem, &self.endpoints, self.controller.host())
            && let Some(namespace) = view.namespaces.get(nsid)
            && context.core.submit(namespace.device, self.id, slot, Operation::Flush)
        {
            self.flushing.insert(slot, command_id);
            return;
        }
        if let Some(PendingProtection { nsid, version }) = self.protecting.remove(&command_id) {
            context.core.directory.end_write_protect(&self.subsystem, nsid, version, true);
        }
        let event = ControllerEvent::FeatureDone { command_id, status };
        self.handle_event(event, context);
    }

    /// The flush of a protected namespace has ended. If it failed, the protection is undone.
    pub(super) fn handle_flushed(
        &mut self,
        slot: Slot,
        result: Result<(), Failure>,
        context: &mut Context<'_>,
    ) {
        let Some(command_id) = self.flushing.remove(&slot) else { return };
        let protecting = self.protecting.remove(&command_id);
        let Some(PendingProtection { nsid, version }) = protecting else { return };
        let status = status_of(result);
        let directory = &context.core.directory;
        let snapshot =
            directory.end_write_protect(&self.subsystem, nsid, version, status.is_success());
        if status.is_success() {
            self.handle_event(ControllerEvent::FeatureDone { command_id, status }, context);
        } else {
            let waiter = Waiter::Feature { owner: self.id, command_id, status };
            context.core.publish(&snapshot, waiter);
        }
    }

    /// A new snapshot is served, of which the controller learns before its next command or a few
    /// turns later; but at once if its host may not stay. Says whether it has.
    pub(super) fn outdate(&mut self, context: &mut Context<'_>) -> bool {
        let host = self.controller.host();
        if context.core.snapshot.allows(&self.subsystem, &self.endpoints, host) {
            self.is_outdated = true;
            return false;
        }
        self.replace_view(context);
        true
    }

    /// Whether it has to learn of a new snapshot.
    pub(super) const fn is_outdated(&self) -> bool {
        self.is_outdated
    }

    /// Learns of the present snapshot. Returns how many namespaces it had to look at.
    pub(super) fn update(&mut self, context: &mut Context<'_>) -> usize {
        if self.is_outdated {
            self.replace_view(context);
        }
        self.controller.namespaces()
    }

    fn replace_view(&mut self, context: &mut Context<'_>) {
        self.is_outdated = false;
        match context.core.snapshot.view(&self.subsystem, &self.endpoints, self.controller.host()) {
            Some(view) => self.controller.replace_view(view),
            None => self.controller.handle_event(ControllerEvent::Fatal),
        }
        self.run_effects(context);
    }

    /// Executes the controller's actions, and sets its timer.
    pub(super) fn run_effects(&mut self, context: &mut Context<'_>) {
        while let Some(effect) = self.controller.poll_effect() {
            self.execute_effect(effect, context);
        }
        let deadline = self.controller.deadline();
        if deadline != self.deadline {
            self.deadline = deadline;
            match deadline {
                Some(at) => context.core.reactor.set_timer(timer(CONTROLLERS, self.id), at),
                None => context.core.reactor.clear_timer(timer(CONTROLLERS, self.id)),
            }
        }
    }

    fn execute_effect(&mut self, effect: Effect, context: &mut Context<'_>) {
        let Context { transport, core } = context;
        match effect {
            Effect::Complete(completion) => {
                if let Some(slot) = self.pending.remove(&completion.command_id.get()) {
                    transport.complete(slot, completion);
                }
            }
            Effect::Discard { command_id } => {
                if let Some(slot) = self.pending.remove(&command_id) {
                    transport.discard(slot);
                }
            }
            Effect::EndQueues(reason) => self.end_queues(reason, core),
            Effect::Abort { abort_id, queue_id, command_id } => match self.queues.get(&queue_id) {
                Some(queue) => core.post(
                    queue.connection,
                    Message::Abort {
                        queue: queue.connection,
                        owner: self.id,
                        abort_id,
                        command_id,
                    },
                ),
                None => self
                    .controller
                    .handle_event(ControllerEvent::AbortDone { abort_id, aborted: false }),
            },
            Effect::SetWriteProtect { command_id, nsid, protect } => {
                self.set_write_protect(command_id, nsid, protect, core);
            }
            Effect::SetPersistence { command_id, nsid, persist } => {
                self.set_persistence(command_id, nsid, persist, core);
            }
            Effect::ChangeNamespaces { command_id, change } => {
                self.change_namespaces(command_id, change, core);
            }
            Effect::ResetSubsystem => {
                let (host, subsystem) = (self.controller.host(), &self.subsystem);
                core.say_host(log::Level::Warn, format_args!("{host} resets {subsystem}"));
                let owners = core.directory.controllers_of(&self.subsystem).into_iter();
                for owner in owners.filter(|owner| *owner != self.id) {
                    core.post(owner, Message::SubsystemReset { owner });
                }
            }
            Effect::Register { command_id, change } => self.register(command_id, *change, core),
            Effect::Close(reason) => {
                self.report(reason, core);
                let reason = CloseReason::Requested(end_reason(reason));
                transport.close(&mut core.reactor, reason);
            }
        }
    }

    /// One line for each controller that ends; a warning only if its host did not intend it.
    fn report(&self, reason: EndReason, core: &mut Core) {
        use EndReason::{AdminQueueLost, Fatal, KeepAliveExpired, NeverEnabled};
        let (level, why) = match (reason, &self.closed) {
            // The target closed the connection itself.
            (AdminQueueLost, Some(CloseReason::Requested(why))) => {
                (log::Level::Info, (*why).to_owned())
            }
            (AdminQueueLost, Some(why)) => {
                (log::Level::Warn, format!("{}: {why}", end_reason(reason)))
            }
            (AdminQueueLost | KeepAliveExpired | NeverEnabled | Fatal, _) => {
                (log::Level::Warn, end_reason(reason).to_owned())
            }
            _ => (log::Level::Info, end_reason(reason).to_owned()),
        };
        let (host, id) = (self.controller.host(), self.controller.controller_id());
        let subsystem = &self.subsystem;
        core.say_host(level, format_args!("{host} left controller {id} of {subsystem}: {why}"));
    }

    /// Ends every I/O queue. Until each says that its commands are done, the host's next Connect
    /// has to wait.
    fn end_queues(&mut self, reason: EndReason, core: &mut Core) {
        for queue in self.queues.values_mut().filter(|queue| !queue.ending) {
            queue.ending = true;
            core.directory.begin_drain(&self.host);
            let message = Message::EndQueue { queue: queue.connection, reason };
            core.post(queue.connection, message);
        }
    }

    /// Has every group refuse writes, or take them again; a write that has begun is waited for.
    fn set_write_protect(&mut self, command_id: u16, nsid: u32, protect: bool, core: &mut Core) {
        let snapshot = core.directory.set_write_protect(&self.subsystem, nsid, protect);
        let version = snapshot.version;
        if protect {
            self.protecting.insert(command_id, PendingProtection { nsid, version });
        } else {
            core.directory.end_write_protect(&self.subsystem, nsid, version, true);
        }
        let status = Status::SUCCESS;
        core.publish(&snapshot, Waiter::Feature { owner: self.id, command_id, status });
    }

    /// Has the reservations of a namespace persist, or not any more.
    fn set_persistence(&mut self, command_id: u16, nsid: u32, persist: bool, core: &mut Core) {
        let Some(view) =
            core.snapshot.view(&self.subsystem, &self.endpoints, self.controller.host())
        else {
            return;
        };
        let change = Change {
            asker: Requester { connection: self.id, tag: command_id },
            file: core.snapshot.reservation_file(&view.nqn, nsid),
            view,
            nsid,
            host: *self.controller.host_id(),
            request: Request {
                operation: ReservationOperation::Persist(persist),
                current: 0,
                other: 0,
            },
        };
        core.directory.reserver().change(change, &core.posts);
    }

    /// Asks whoever operates the target to change the namespaces of the subsystem.
    fn change_namespaces(&mut self, command_id: u16, change: NamespaceChange, core: &Core) {
        let Some(post) = core.posts.get(self.id.group).cloned() else { return };
        let (subsystem, host) = (self.subsystem, *self.controller.host());
        let owner = self.id;
        core.directory.manage(NamespaceRequest {
            subsystem,
            host,
            change,
            owner,
            command_id,
            post,
        });
    }

    /// Registers discovery information of the host. If others see other subsystems then, the
    /// command ends when every group shows them. It is a turn's work: anybody may register.
    fn register(&mut self, command_id: u16, change: registration::Change, core: &mut Core) {
        let (host, task, count) = (*self.controller.host(), change.task, change.entries.len());
        log::debug!("{host}: {task}: {count} of a {}, {}", change.entity.kind, change.entity.name);
        core.schedule.allowance.spend(TURN_BYTES);
        let status = match core.directory.register(host, self.id, change) {
            Ok(Some(snapshot)) => {
                let waiter =
                    Waiter::Feature { owner: self.id, command_id, status: Status::SUCCESS };
                return core.publish(&snapshot, waiter);
            }
            Ok(None) => Status::SUCCESS,
            Err(status) => status,
        };
        self.controller.handle_event(ControllerEvent::FeatureDone { command_id, status });
    }

    /// Tells the host what another one has changed. Says whether there was something to tell.
    pub(super) fn notify_reserved(
        &mut self,
        changed: &ReservationResult,
        context: &mut Context<'_>,
    ) -> bool {
        let nsid = changed.nsid;
        let kinds: Vec<_> =
            changed.notices(self.host.subsystem(), self.controller.host_id()).collect();
        for kind in &kinds {
            self.controller.handle_event(ControllerEvent::Reservation { nsid, kind: *kind });
        }
        self.run_effects(context);
        !kinds.is_empty()
    }

    fn handle_command(
        &mut self,
        slot: Slot,
        command: Command,
        data: CapsuleData,
        context: &mut Context<'_>,
    ) {
        match data.into_result() {
            Ok(data) => self.execute(slot, command, data.as_deref(), context),
            Err(status) => {
                context.transport.complete(slot, self.controller.reject(&command, status));
            }
        }
    }

    fn handle_data(
        &mut self,
        slot: Slot,
        data: &[u8],
        result: Result<(), DataDigestError>,
        context: &mut Context<'_>,
    ) {
        let Some(command) = context.transport.command(slot).copied() else { return };
        match result {
            Ok(()) => self.execute(slot, command, Some(data), context),
            Err(DataDigestError) => {
                let status = Status::TRANSIENT_TRANSPORT_ERROR;
                context.transport.complete(slot, self.controller.reject(&command, status));
            }
        }
    }

    fn execute(
        &mut self,
        slot: Slot,
        command: Command,
        data: Option<&[u8]>,
        context: &mut Context<'_>,
    ) {
        let Context { transport, core } = context;
        let now = core.reactor.turn_time();
        match self.controller.handle_command(&command, data.unwrap_or_default(), now) {
            AdminReply::Complete(completion) => transport.complete(slot, completion),
            AdminReply::Pending => {
                self.pending.insert(command.command_id.get(), slot);
            }
            AdminReply::Data { bytes, completion } => {
                match (transport.transfer(&command), buffer_of(&bytes, core)) {
                    (Ok(_), Some(buffer)) => transport.send(slot, buffer, completion),
                    (Ok(_), None) => {
                        transport.complete(slot, completion.with_status(Status::INTERNAL_ERROR));
                    }
                    (Err(status), _) => transport.complete(slot, completion.with_status(status)),
                }
            }
            AdminReply::NeedData(bytes) => {
                let wanted = match transport.transfer(&command) {
                    // The data of the capsule does not fit the command.
                    Ok(_) if data.is_some() => Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr()),
                    Ok(transfer) if transfer.bytes < bytes => {
                        Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr())
                    }
                    Ok(_) => core
                        .schedule
                        .memory
                        .take_admin(bytes as usize)
                        .ok_or(Status::INTERNAL_ERROR),
                    Err(status) => Err(status),
                };
                match wanted {
                    Ok(buffer) => transport.receive(slot, buffer),
                    Err(status) => {
                        transport.complete(slot, self.controller.reject(&command, status));
                    }
                }
            }
        }
    }
}

fn buffer_of(bytes: &[u8], core: &Core) -> Option<Buffer> {
    let mut buffer = core.schedule.memory.take_admin(bytes.len())?;
    buffer.bytes_mut().copy_from_slice(bytes);
    Some(buffer)
}

/// A queue's end in words.
pub(super) fn end_reason(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Shutdown => "the host shut its controller down",
        EndReason::Reset => "the host reset its controller",
        EndReason::KeepAliveExpired => "the keep-alive timeout expired",
        EndReason::NeverEnabled => "the host did not enable its controller in time",
        EndReason::AdminQueueLost => "the admin connection was lost",
        EndReason::Disconnected => "the host disconnected",
        EndReason::SubsystemReset => "the NVM subsystem was reset through another controller",
        EndReason::HostNotAllowed => "the host is no longer allowed",
        EndReason::Fatal => "the controller failed",
    }
}
