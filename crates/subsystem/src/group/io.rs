//! An I/O queue: commands between the transport and a block device.
//!
//! A read takes a buffer and goes to its device. A write comes with its data or fetches it first. A
//! fused pair goes to the device when both commands have their data. A flush of all namespaces
//! waits for all its devices. A command without a buffer waits for its turn
//! ([`SlotState::Starved`]).

mod copy;
mod ending;
mod flows;
mod fused;
mod reserve;
mod share;
mod waiting;

use std::collections::VecDeque;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use weft_backend::{Operation, RequestCompletion};
use weft_nvme::{Command, Completion, Nqn, Status};
use weft_nvmf::connect::ConnectRequest;
use weft_nvmf::queue::{DeviceCommand, DeviceOperation, IoAction, IoQueue, QueueGrant, Transfer};
use weft_nvmf::subsystem::SubsystemView;
use weft_reactor::Buffer;
use weft_statistics::trace::TracedQueue;
use weft_transport::target::{CapsuleData, Event};
use weft_transport::{CloseReason, DataDigestError, Slot};

use self::copy::CopyState;
pub(super) use self::ending::Hold;
use self::flows::Flows;
use super::core::{Context, Core};
use super::devices::{NO_DEVICE, status_of};
use super::meter::Meter;
use super::schedule::{MemoryTry, QueueClass, TenantId};
use super::tracer::{QueueTrace, Tracer};
use crate::shared::classes::ClassSource;
use crate::shared::ids::{ConnectionId, HostKey};
use crate::shared::io_metrics::Wait;
use crate::shared::limits::COMMAND_BYTES;
use crate::shared::message::{Endpoints, Message};

/// An I/O queue.
#[derive(Debug)]
pub(crate) struct Io {
    id: ConnectionId,
    queue: IoQueue,
    subsystem: Nqn,
    endpoints: Endpoints,
    /// The priority that its host has given it, if the host has chosen weighted round robin.
    priority: Option<u8>,
    owner: ConnectionId,
    host: HostKey,
    /// Its name, by which it has its view.
    host_name: Nqn,
    /// A hash of it, by which hosts are told apart where they wait for memory.
    host_hash: u64,
    /// Commands in flight, by slot.
    work: Vec<SlotState>,
    /// Commands that wait for a buffer, oldest first. One that was aborted may still be here.
    starved: VecDeque<Slot>,
    /// What waits for a rate limit, if any applies.
    flows: Option<Box<Flows>>,
    /// How long its commands take, if that is measured.
    meter: Option<Box<Meter>>,
    /// Copy commands whose next piece may begin, in their order. One that was aborted may still be
    /// here.
    copies: VecDeque<Slot>,
    /// What its commands go through, while that is recorded.
    trace: Option<Box<QueueTrace>>,
    /// Whether it is served between the commands of others.
    pub(super) class: QueueClass,
    /// Whose share its commands are part of, once it had any.
    tenant: Option<TenantId>,
    /// Requests that devices have.
    at_devices: usize,
    /// Changes of reservations that its commands have asked for.
    reserving: usize,
    /// Slots that hold work, whether or not a device has it.
    busy: usize,
    /// What changes wait for: commands that devices have and that were forbidden since.
    holds: Vec<(Slot, Hold)>,
    /// Its host may not use the subsystem any more, or not through this port.
    is_refused: bool,
    /// Nothing begins any more: the connection ends, or has.
    stopped: bool,
    closed: bool,
}

/// The state of the command in a slot. It changes with every command, and is kept small.
#[derive(Debug, Default)]
enum SlotState {
    /// No command, or a completed one.
    #[default]
    Idle,
    /// It waits for a rate limit, perhaps with the data of its capsule.
    Throttled(DeviceCommand, Option<Buffer>),
    /// There was no buffer for its data yet.
    Starved(DeviceCommand),
    /// Its data is being transferred from the host.
    Fetching(DeviceCommand),
    /// A device has it.
    AtDevice(DeviceCommand),
    /// It copies, piece by piece.
    Copying(Box<CopyState>),
    /// It has asked for a change of reservations.
    Reserving(DeviceCommand),
    /// Flushes of several devices; `status` is the first that was not a success.
    Flushing { command_id: u16, missing: usize, status: Status },
    /// The first half of a fused pair, perhaps with its data.
    Held { command_id: u16, data: Option<Buffer> },
    /// The first half, which waits for its data or the second's.
    First { compare: DeviceCommand, second: Slot, data: Option<Buffer> },
    /// The second half, which waits for its data or the first's.
    Second { write: DeviceCommand, first: Slot, data: Option<Buffer> },
    /// The first half, which a device has with the second.
    Compared(DeviceCommand),
    /// The second half, which a device has for both.
    Paired { write: DeviceCommand, first: Slot },
}

impl Io {
    pub(super) fn new(
        id: ConnectionId,
        endpoints: Endpoints,
        grant: QueueGrant,
        request: &ConnectRequest,
        view: &SubsystemView,
        owner: ConnectionId,
        core: &mut Core,
    ) -> Self {
        let mut work = Vec::new();
        work.resize_with(grant.entries as usize, SlotState::default);
        let (host, priority) = (HostKey::of(request), grant.priority);
        let queue = IoQueue::new(grant, view);
        let now = core.reactor.turn_time();
        let grant = class_source_of(&host, endpoints.port_id, priority, core);
        let group = &core.schedule.express;
        let class = QueueClass::new(grant, id.index, host.names().0, group, now);
        let host_hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(host.names().0);
        Self {
            id,
            queue,
            subsystem: view.nqn,
            endpoints,
            priority,
            owner,
            flows: Flows::new(id, &host, core),
            meter: Meter::new(core),
            copies: VecDeque::new(),
            trace: None,
            tenant: None,
            class,
            host,
            host_name: request.host,
            host_hash,
            work,
            starved: VecDeque::new(),
            at_devices: 0,
            reserving: 0,
            busy: 0,
            holds: Vec::new(),
            is_refused: false,
            stopped: false,
            closed: false,
        }
    }

    /// Requests that devices have.
    pub(super) const fn requests(&self) -> usize {
        self.at_devices
    }

    /// Handles an event that came at this time.
    pub(super) fn handle(&mut self, event: Event, arrived: Duration, context: &mut Context<'_>) {
        match event {
            // Commands that arrive while the target stops are left to the next target.
            Event::Command { .. } if context.core.is_stopping || self.stopped => {}
            Event::Data { .. } if self.stopped => {}
            Event::Command { slot, data } => {
                self.measure_from(slot, arrived, context);
                self.handle_command(slot, data, context);
            }
            Event::Data { slot, buffer, result } => {
                self.handle_data(slot, buffer, result, context);
            }
            Event::Closed { .. } => {}
        }
    }

    /// Has the device prepare for a command that is about to come.
    pub(super) fn prefetch_hint(&self, command: &Command, core: &mut Core) {
        if let Some((device, block, blocks)) = self.queue.device_range(command) {
            core.devices.prefetch_hint(device, block, blocks);
        }
    }

    /// A device has completed a request of this queue.
    pub(super) fn handle_done(
        &mut self,
        slot: Slot,
        done: RequestCompletion,
        now: Duration,
        context: &mut Context<'_>,
    ) {
        self.at_devices = self.at_devices.saturating_sub(1);
        if self.stopped {
            return self.end_stopped(slot);
        }
        let status = status_of(done.result);
        match self.take(slot) {
            SlotState::AtDevice(device) => {
                let completion = self.queue.complete_device(&device, status);
                self.measure(slot, completion.status(), now, context.core);
                match (device.transfer, done.buffer) {
                    (Transfer::ToHost(_), Some(buffer)) if status.is_success() => {
                        context.transport.send(slot, buffer, completion);
                    }
                    _ => context.transport.complete(slot, completion),
                }
            }
            SlotState::Copying(copy) => self.piece_done(slot, copy, done, now, context),
            SlotState::Flushing { command_id, missing, status: first } => {
                let status = if first.is_success() { status } else { first };
                if missing > 1 {
                    let missing = missing - 1;
                    self.put(slot, SlotState::Flushing { command_id, missing, status });
                } else {
                    self.measure(slot, status, now, context.core);
                    context.transport.complete(slot, self.queue.complete(command_id, status));
                }
            }
            SlotState::Paired { write, first } => {
                if let SlotState::Compared(compare) = self.take(first) {
                    let [one, two] = self.queue.complete_fused(&compare, &write, status);
                    for (slot, completion) in [(first, one), (slot, two)] {
                        self.measure(slot, completion.status(), now, context.core);
                        context.transport.complete(slot, completion);
                    }
                }
            }
            other => self.put(slot, other),
        }
        if !self.work.get(slot.index()).is_some_and(SlotState::is_begun) {
            self.let_go(slot);
        }
    }

    /// The connection is closed. The queue is draining until its requests have completed.
    pub(super) fn handle_closed(&mut self, core: &mut Core) {
        if !std::mem::replace(&mut self.closed, true) {
            self.stop(core);
            self.meter = None;
            self.trace = None;
            self.class.end(&mut core.schedule.express);
            let tenant = self.tenant.take();
            tenant.into_iter().for_each(|tenant| core.schedule.shares.leave(tenant, self.id.index));
        }
    }

    /// Whether the connection has ended and its requests have completed.
    pub(super) fn is_finished(&self) -> bool {
        self.closed && self.at_devices == 0 && self.reserving == 0
    }

    /// A command has come that is completed with [`Self::completion`].
    pub(super) fn arrived(&mut self) {
        self.queue.arrived();
    }

    /// The completion of a command that the queue does not see.
    pub(super) fn completion(&mut self, command_id: u16, status: Status) -> Completion {
        self.queue.complete(command_id, status)
    }

    /// Whether the connection is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// The host whose queue it is.
    pub(super) fn host(&self) -> &HostKey {
        &self.host
    }

    /// A hash of its host's name.
    pub(super) const fn host_hash(&self) -> u64 {
        self.host_hash
    }

    /// Has the controller of the queue end, as after an error of its own.
    pub(super) fn end_controller(&self, core: &Core) {
        core.post(self.owner, Message::Fatal { owner: self.owner });
    }

    /// Whether rate limits apply to it.
    pub(super) fn is_limited(&self, core: &Core) -> bool {
        let (host, subsystem) = self.host.names();
        self.flows.is_some() && core.schedule.throttle.apply_to(host, subsystem)
    }

    /// Whether commands are in flight.
    pub(super) fn is_busy(&self) -> bool {
        self.busy > 0 || self.has_begun()
    }

    /// Whether a device, or the reservations, have commands.
    pub(super) fn has_begun(&self) -> bool {
        self.at_devices > 0 || self.reserving > 0
    }

    /// Releases the queue's resources and notifies its controller.
    pub(super) fn release(self, core: &mut Core) {
        core.end_drain(&self.host);
        let message = Message::QueueEnded { owner: self.owner, queue_id: self.queue.queue_id() };
        core.post(self.owner, message);
    }

    /// A new snapshot is served. Returns whether the queue may go on; what is refused from now on
    /// and has not begun ends.
    pub(super) fn replace_view(&mut self, context: &mut Context<'_>) -> bool {
        self.refresh_view(context.core);
        if !self.is_refused && !self.stopped {
            self.end_refused(context);
        }
        !self.is_refused
    }

    fn refresh_view(&mut self, core: &mut Core) {
        let view = core.snapshot.view(&self.subsystem, &self.endpoints, &self.host_name);
        self.is_refused = !view.as_ref().is_some_and(|view| view.allows(&self.host_name));
        if let Some(view) = view {
            self.queue.replace_view(&view);
        }
        if self.stopped {
            return;
        }
        let flows = self.flows.take().or_else(|| Flows::new(self.id, &self.host, core));
        self.flows = flows.map(|mut flows| {
            flows.refresh(core);
            flows
        });
    }

    /// Other rules of classes are in force.
    pub(super) fn regrant(&mut self, core: &mut Core) {
        let grant = class_source_of(&self.host, self.endpoints.port_id, self.priority, core);
        self.class.regrant(grant, &mut core.schedule.express);
    }

    /// Aborts a command if no device has it. Says whether that was so.
    pub(super) fn abort(&mut self, command_id: u16, context: &mut Context<'_>) -> bool {
        let slot = self.work.iter().position(|work| work.command_id() == Some(command_id));
        let Some(slot) = slot.and_then(|slot| u16::try_from(slot).ok()).map(Slot) else {
            return false;
        };
        match self.work.get(slot.index()) {
            Some(SlotState::Held { .. }) => {
                let Some(completion) = self.queue.abort_held(command_id) else { return false };
                self.take(slot);
                self.complete(slot, completion, context);
                true
            }
            // Fused commands are aborted only while they wait for a rate limit.
            Some(&SlotState::First { second, .. }) => self.abort_pair(slot, second, context),
            Some(&SlotState::Second { first, .. }) => self.abort_pair(first, slot, context),
            _ => self.end_parked(slot, Status::ABORT_REQUESTED, context),
        }
    }

    /// The command that has waited longest for a buffer tries again.
    pub(super) fn retry(&mut self, context: &mut Context<'_>) -> MemoryTry {
        while let Some(slot) = self.starved.front().copied() {
            let bytes = match self.work.get(slot.index()) {
                Some(SlotState::Starved(device)) => Some(device.transfer.bytes()),
                Some(SlotState::Copying(copy)) => copy.step.wanted(),
                _ => None,
            };
            let Some(bytes) = bytes else {
                self.starved.pop_front();
                continue;
            };
            let Some(buffer) = context.core.schedule.memory.grant(bytes) else {
                return MemoryTry::Refused;
            };
            self.starved.pop_front();
            match self.take(slot) {
                // The namespace, or who may use it, may have changed meanwhile.
                SlotState::Starved(device) => match self.queue.recheck(&device) {
                    Ok(()) => self.begin_with(slot, device, buffer, context),
                    Err(status) => self.end(slot, &device, status, context),
                },
                SlotState::Copying(copy) => self.read_piece(slot, copy, buffer, context),
                other => self.put(slot, other),
            }
            return MemoryTry::Served { has_more: !self.starved.is_empty() };
        }
        MemoryTry::NotWaiting
    }

    /// A command waits until there is a buffer for it.
    fn starve(&mut self, slot: Slot, device: DeviceCommand, core: &mut Core) {
        self.wait(slot, Wait::Memory, core);
        self.put(slot, SlotState::Starved(device));
        self.starved.push_back(slot);
        core.schedule.memory.wait(self.id.index, self.host_hash, core.reactor.turn_time());
    }

    /// A command is measured from when it came.
    fn measure_from(&mut self, slot: Slot, arrived: Duration, context: &Context<'_>) {
        let Some(command) = context.transport.command(slot) else { return };
        if let Some(meter) = &mut self.meter {
            let namespaces = self.queue.namespaces();
            meter.begin(slot, command, arrived, &self.host, namespaces, context.core);
        }
        if let Some(trace) = &mut self.trace {
            trace.received(slot, command, arrived, context.core.time());
        }
    }

    fn handle_command(&mut self, slot: Slot, data: CapsuleData, context: &mut Context<'_>) {
        let Some(command) = context.transport.command(slot) else { return };
        let data = match data.into_result() {
            Ok(data) => data,
            Err(status) => {
                let completion = self.queue.reject(command, status);
                self.answer_late(context);
                return self.complete(slot, completion, context);
            }
        };
        let action = self.queue.handle_command(command);
        self.answer_late(context);
        match action {
            IoAction::Complete(completion) => self.complete(slot, completion, context),
            IoAction::Device(device) => {
                self.count(effective_bytes(&device), context);
                if let Some(flows) = &mut self.flows
                    && !flows.admit(slot, &device, None, context.core)
                {
                    self.wait(slot, Wait::Limit, context.core);
                    return self.put(slot, SlotState::Throttled(device, data));
                }
                self.begin(slot, device, data, context);
            }
            IoAction::FlushAll { command_id } => {
                self.count(COMMAND_BYTES, context);
                self.flush_all(slot, command_id, context);
            }
            IoAction::Held { command_id } => self.put(slot, SlotState::Held { command_id, data }),
            IoAction::Fused { compare, write } => {
                let bytes = effective_bytes(&compare).saturating_add(effective_bytes(&write));
                self.count(bytes, context);
                self.pair(slot, [compare, write], data, context);
            }
            IoAction::Disconnect(completion) => {
                self.complete(slot, completion, context);
                let reason = CloseReason::Requested("the host disconnected the queue");
                context.transport.close(&mut context.core.reactor, reason);
                self.stop(context.core);
            }
        }
    }

    /// Counts a command of so many bytes for the class of the queue.
    fn count(&mut self, bytes: usize, context: &mut Context<'_>) {
        let (in_flight, now) = (context.transport.in_flight(), context.core.time());
        self.class.count(&mut context.core.schedule.express, in_flight, bytes, now);
    }

    /// Completes a first fused command that the queue has given up.
    fn answer_late(&mut self, context: &mut Context<'_>) {
        while let Some(completion) = self.queue.poll_completion() {
            self.complete_held(completion, context);
        }
    }

    fn complete_held(&mut self, completion: Completion, context: &mut Context<'_>) {
        let command_id = completion.command_id.get();
        let slot = self.work.iter().position(|work| work.command_id() == Some(command_id));
        if let Some(slot) = slot.and_then(|slot| u16::try_from(slot).ok()).map(Slot) {
            self.take(slot);
            self.complete(slot, completion, context);
        }
    }

    /// Completes a command that no device had.
    fn complete(&mut self, slot: Slot, completion: Completion, context: &mut Context<'_>) {
        if self.meter.is_some() || self.trace.is_some() {
            let now = context.core.reactor.now();
            self.measure(slot, completion.status(), now, context.core);
        }
        context.transport.complete(slot, completion);
    }

    /// Completes a command that no device had, with a status.
    fn end(
        &mut self,
        slot: Slot,
        device: &DeviceCommand,
        status: Status,
        context: &mut Context<'_>,
    ) {
        let completion = self.queue.complete_device(device, status);
        self.complete(slot, completion, context);
    }

    /// A command waits from now on.
    fn wait(&mut self, slot: Slot, wait: Wait, core: &Core) {
        if let Some(meter) = &mut self.meter {
            meter.wait(slot, wait, core.reactor.turn_time());
        }
    }

    /// A command completes now.
    fn measure(&mut self, slot: Slot, status: Status, now: Duration, core: &mut Core) {
        if let Some(meter) = &mut self.meter {
            meter.end(slot, status, now);
        }
        if let (Some(trace), Some(tracer)) = (&mut self.trace, &mut core.tracer) {
            trace.completed(slot, status, now, tracer);
        }
    }

    /// Records what commands go through if the group does so, or no longer.
    pub(super) fn trace(&mut self, core: &mut Core) {
        let entries = self.work.len();
        self.trace = core.tracer.as_mut().map(|tracer| {
            let (host, subsystem) = self.host.names();
            let (host, subsystem) = (host.to_owned(), subsystem.to_owned());
            let queue_id = self.queue.queue_id();
            QueueTrace::new(tracer, TracedQueue { host, subsystem, queue_id }, entries)
        });
    }

    /// The responses of this turn have been given to the socket or the adapter.
    pub(super) fn trace_sent(&mut self, now: Duration, tracer: &mut Tracer) {
        if let Some(trace) = &mut self.trace {
            trace.sent(now, tracer);
        }
    }

    /// A device gets a command now.
    fn trace_submitted(&mut self, slot: Slot, bytes: usize, core: &Core) {
        if let Some(trace) = &mut self.trace {
            trace.submitted(slot, bytes, core.reactor.now());
        }
    }

    /// Begins a command: takes a buffer, fetches its data, or submits it at once.
    fn begin(
        &mut self,
        slot: Slot,
        device: DeviceCommand,
        data: Option<Buffer>,
        context: &mut Context<'_>,
    ) {
        match (device.transfer, data) {
            (Transfer::None, _) => self.submit(slot, device, None, context),
            (Transfer::FromHost(_), Some(data)) => {
                self.submit(slot, device, Some(data), context);
            }
            (Transfer::ToHost(_), Some(_)) => {
                self.end(slot, &device, Status::INVALID_FIELD.with_dnr(), context);
            }
            (Transfer::ToHost(_) | Transfer::FromHost(_), None) => {
                match context.core.schedule.memory.take(device.transfer.bytes()) {
                    Some(buffer) => self.begin_with(slot, device, buffer, context),
                    None => self.starve(slot, device, context.core),
                }
            }
        }
    }

    /// Continues a command that has a buffer: submits it, or fetches its data from the host.
    fn begin_with(
        &mut self,
        slot: Slot,
        device: DeviceCommand,
        buffer: Buffer,
        context: &mut Context<'_>,
    ) {
        if let Transfer::FromHost(_) = device.transfer {
            self.wait(slot, Wait::Data, context.core);
            if let Some(trace) = &mut self.trace {
                trace.begun(slot, context.core.reactor.now());
            }
            self.put(slot, SlotState::Fetching(device));
            context.transport.receive(slot, buffer);
        } else {
            self.submit(slot, device, Some(buffer), context);
        }
    }

    fn handle_data(
        &mut self,
        slot: Slot,
        buffer: Buffer,
        result: Result<(), DataDigestError>,
        context: &mut Context<'_>,
    ) {
        match (self.take(slot), result) {
            (SlotState::Fetching(device), Ok(())) => match self.queue.recheck(&device) {
                Ok(()) => self.submit(slot, device, Some(buffer), context),
                Err(status) => self.end(slot, &device, status, context),
            },
            (SlotState::Fetching(device), Err(DataDigestError)) => {
                self.end(slot, &device, TRANSIENT, context);
            }
            (SlotState::First { compare, second, .. }, Ok(())) => {
                self.put(slot, SlotState::First { compare, second, data: Some(buffer) });
                self.submit_pair(slot, second, context);
            }
            (SlotState::Second { write, first, .. }, Ok(())) => {
                self.put(slot, SlotState::Second { write, first, data: Some(buffer) });
                self.submit_pair(first, slot, context);
            }
            (work @ SlotState::First { second, .. }, Err(DataDigestError)) => {
                self.put(slot, work);
                self.fail_pair(slot, second, TRANSIENT, context);
            }
            (work @ SlotState::Second { first, .. }, Err(DataDigestError)) => {
                self.put(slot, work);
                self.fail_pair(first, slot, TRANSIENT, context);
            }
            (other, _) => self.put(slot, other),
        }
    }

    /// Submits a command with all its data to the device.
    fn submit(
        &mut self,
        slot: Slot,
        device: DeviceCommand,
        data: Option<Buffer>,
        context: &mut Context<'_>,
    ) {
        match device.operation {
            DeviceOperation::Reserve(operation) => {
                return self.reserve(slot, device, operation, data.as_deref(), context);
            }
            DeviceOperation::ReportReservations => {
                return self.report_reservations(slot, device, data, context);
            }
            DeviceOperation::Copy { .. } => {
                return self.begin_copy(slot, device, data.as_deref(), context);
            }
            _ => {}
        }
        let operation = match self.operation(&device, data) {
            Ok(operation) => operation,
            Err(status) => return self.end(slot, &device, status, context),
        };
        let bytes = device.transfer.bytes();
        let turn_bytes = context.core.devices.turn_bytes(device.device, &operation);
        context.core.schedule.allowance.spend(bytes.max(turn_bytes));
        self.trace_submitted(slot, bytes, context.core);
        if let Some(meter) = &mut self.meter {
            meter.submit(slot, &device.operation, context.core.time());
        }
        if context.core.submit(device.device, self.id, slot, operation) {
            self.at_devices += 1;
            self.put(slot, SlotState::AtDevice(device));
        } else {
            self.end(slot, &device, NO_DEVICE, context);
        }
    }

    /// The device's operation; `Err` is the status of a command that completes without it.
    fn operation(&self, device: &DeviceCommand, data: Option<Buffer>) -> Result<Operation, Status> {
        Ok(match (device.operation, data) {
            (DeviceOperation::Read { slba, nlb }, Some(into)) => {
                Operation::Read { slba, nlb, into }
            }
            (DeviceOperation::Write { slba, nlb, durable }, Some(from)) => {
                Operation::Write { slba, nlb, from, durable }
            }
            (DeviceOperation::Compare { slba, nlb }, Some(with)) => {
                Operation::Compare { slba, nlb, with }
            }
            (DeviceOperation::Deallocate { .. }, Some(data)) => {
                let ranges = self.queue.handle_ranges(device, &data)?;
                if ranges.is_empty() {
                    return Err(Status::SUCCESS);
                }
                Operation::Discard { ranges }
            }
            (DeviceOperation::Flush, _) => Operation::Flush,
            (DeviceOperation::WriteZeroes { slba, nlb, deallocate, durable }, _) => {
                Operation::WriteZeroes { slba, nlb, deallocate, durable }
            }
            (DeviceOperation::Verify { slba, nlb }, _) => Operation::Verify { slba, nlb },
            (DeviceOperation::WriteUncorrectable { slba, nlb }, _) => {
                Operation::WriteUncorrectable { slba, nlb }
            }
            // A command with data always has its buffer, and no other comes here.
            (
                DeviceOperation::Read { .. }
                | DeviceOperation::Write { .. }
                | DeviceOperation::Compare { .. }
                | DeviceOperation::Deallocate { .. }
                | DeviceOperation::Copy { .. }
                | DeviceOperation::Reserve(_)
                | DeviceOperation::ReportReservations,
                _,
            ) => return Err(Status::INTERNAL_ERROR),
        })
    }

    fn flush_all(&mut self, slot: Slot, command_id: u16, context: &mut Context<'_>) {
        self.trace_submitted(slot, 0, context.core);
        let (mut missing, mut status) = (0, Status::SUCCESS);
        for namespace in self.queue.namespaces().iter() {
            context.core.schedule.allowance.spend(COMMAND_BYTES);
            match context.core.submit(namespace.device, self.id, slot, Operation::Flush) {
                true => missing += 1,
                false => status = NO_DEVICE,
            }
        }
        self.at_devices += missing;
        self.wait(slot, Wait::Device, context.core);
        if missing == 0 {
            let completion = self.queue.complete(command_id, status);
            self.complete(slot, completion, context);
        } else {
            self.put(slot, SlotState::Flushing { command_id, missing, status });
        }
    }

    fn put(&mut self, slot: Slot, work: SlotState) {
        if self.work.len() <= slot.index() {
            self.work.resize_with(slot.index() + 1, SlotState::default);
        }
        if let Some(place) = self.work.get_mut(slot.index()) {
            self.busy += usize::from(!matches!(work, SlotState::Idle));
            *place = work;
        }
    }

    fn take(&mut self, slot: Slot) -> SlotState {
        let work = self.work.get_mut(slot.index()).map(std::mem::take).unwrap_or_default();
        self.busy = self.busy.saturating_sub(usize::from(!matches!(work, SlotState::Idle)));
        work
    }
}

const _: () = assert!(size_of::<SlotState>() <= 64);
const TRANSIENT: Status = Status::TRANSIENT_TRANSPORT_ERROR;

impl SlotState {
    /// The command in this slot.
    fn command_id(&self) -> Option<u16> {
        match self {
            Self::Idle => None,
            Self::Throttled(device, _)
            | Self::Starved(device)
            | Self::Fetching(device)
            | Self::AtDevice(device)
            | Self::Reserving(device) => Some(device.command_id),
            Self::Copying(copy) => Some(copy.command.command_id),
            Self::Flushing { command_id, .. } | Self::Held { command_id, .. } => Some(*command_id),
            Self::First { compare, .. } | Self::Compared(compare) => Some(compare.command_id),
            Self::Second { write, .. } | Self::Paired { write, .. } => Some(write.command_id),
        }
    }
}

/// Who decides the class of a host's queue that came to a port.
fn class_source_of(host: &HostKey, port_id: u16, priority: Option<u8>, core: &Core) -> ClassSource {
    ClassSource::of(&core.snapshot.qos_rules, host.names(), port_id, priority)
}

/// How many bytes a command is as large as: it may be small and have the device do much.
fn effective_bytes(device: &DeviceCommand) -> usize {
    match device.operation {
        DeviceOperation::WriteZeroes { .. }
        | DeviceOperation::Deallocate { .. }
        | DeviceOperation::Copy { .. }
        | DeviceOperation::Verify { .. } => usize::MAX,
        DeviceOperation::Read { .. }
        | DeviceOperation::Write { .. }
        | DeviceOperation::Flush
        | DeviceOperation::Compare { .. }
        | DeviceOperation::WriteUncorrectable { .. }
        | DeviceOperation::Reserve(_)
        | DeviceOperation::ReportReservations => device.transfer.bytes(),
    }
}
