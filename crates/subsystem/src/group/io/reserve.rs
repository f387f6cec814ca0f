//! The reservation commands of an I/O queue.

use std::sync::Arc;

use weft_nvme::Status;
use weft_nvmf::queue::DeviceCommand;
use weft_nvmf::reservation::{HostId, Operation};
use weft_reactor::Buffer;
use weft_transport::Slot;

use super::{Hold, Io, SlotState};
use crate::group::core::Context;
use crate::shared::message::Requester;
use crate::shared::reservations::Change;

impl Io {
    /// Has the reservations of a namespace changed. The answer comes as `Message::Reserved`.
    pub(super) fn reserve(
        &mut self,
        slot: Slot,
        device: DeviceCommand,
        operation: Operation,
        data: Option<&[u8]>,
        context: &mut Context<'_>,
    ) {
        let core = &context.core;
        let view = core.snapshot.view(&self.subsystem, &self.endpoints, &self.host_name);
        let request = operation.request(data.unwrap_or_default());
        let (Some(view), Ok(request)) = (view, request) else {
            let status = request.err().unwrap_or(Status::INVALID_NAMESPACE.with_dnr());
            return self.end(slot, &device, status, context);
        };
        let change = Change {
            asker: Requester { connection: self.id, tag: slot.0 },
            file: core.snapshot.reservation_file(&view.nqn, device.nsid),
            view,
            nsid: device.nsid,
            host: *self.queue.host_id(),
            request,
        };
        self.reserving += 1;
        self.put(slot, SlotState::Reserving(device));
        core.directory.reserver().change(change, &core.posts);
    }

    /// Such a change is made, or is not.
    pub(crate) fn reserved(&mut self, slot: Slot, status: Status, context: &mut Context<'_>) {
        self.reserving = self.reserving.saturating_sub(1);
        self.let_go(slot);
        match self.take(slot) {
            SlotState::Reserving(_) if self.stopped => {}
            SlotState::Reserving(device) => self.end(slot, &device, status, context),
            other => self.put(slot, other),
        }
    }

    /// Sends the reservations of a namespace, as many bytes as the host has asked for.
    pub(super) fn report_reservations(
        &mut self,
        slot: Slot,
        device: DeviceCommand,
        into: Option<Buffer>,
        context: &mut Context<'_>,
    ) {
        let view = context.core.snapshot.view(&self.subsystem, &self.endpoints, &self.host_name);
        let (Some(view), Some(mut buffer)) = (view, into) else {
            return self.end(slot, &device, Status::INTERNAL_ERROR, context);
        };
        let report = Arc::clone(&view.shared).reservations().get(device.nsid).report();
        let bytes = buffer.bytes_mut();
        let length = bytes.len().min(report.len());
        let (head, rest) = bytes.split_at_mut(length);
        head.copy_from_slice(&report[..length]);
        rest.fill(0);
        let completion = self.queue.complete(device.command_id, Status::SUCCESS);
        let now = context.core.reactor.now();
        self.measure(slot, completion.status(), now, context.core);
        context.transport.send(slot, buffer, completion);
    }

    /// Its host has lost access to a device: what has not begun ends, what a device has holds this.
    pub(crate) fn settle(&mut self, device: u32, hold: &Hold, context: &mut Context<'_>) {
        if !self.stopped {
            self.end_refused(context);
        }
        self.hold_refused(hold, Some(device));
    }

    /// The Host Identifier of its host.
    pub(crate) fn host_id(&self) -> &HostId {
        self.queue.host_id()
    }
}
