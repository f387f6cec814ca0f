//! The commands of an I/O queue that wait: for a rate limit, for memory, or for data of the host.

use weft_nvme::Status;
use weft_nvmf::queue::{DeviceCommand, DeviceFailure};
use weft_transport::Slot;

use super::{Io, Work};
use crate::group::core::{Context, Core};
use crate::group::throttle::{FlowKey, Turn};

impl Io {
    /// The first command of a flow that has waited for a rate limit asks again.
    pub(in crate::group) fn retry_throttled(
        &mut self,
        flow: FlowKey,
        context: &mut Context<'_>,
    ) -> Turn {
        let Some(flows) = &self.flows else { return Turn::Empty };
        let work = |slot: Slot| self.work.get(slot.index());
        let (device, with) = match flows.first(flow).and_then(work) {
            Some(Work::Throttled(device, _)) => (Some(*device), None),
            Some(Work::Second { write, first, .. }) => match work(*first) {
                Some(Work::First { compare, .. }) => (Some(*write), Some(*compare)),
                _ => (Some(*write), None),
            },
            Some(Work::Copying(copy)) => {
                copy.step.limited().map_or((None, None), |[read, write]| (Some(write), Some(read)))
            }
            _ => (None, None),
        };
        let Some(flows) = &mut self.flows else { return Turn::Empty };
        let turn = flows.retry((device.as_ref(), with.as_ref()), flow, context.core);
        let Turn::Begin(slot) = turn else { return turn };
        match self.take(slot) {
            // The namespace may have changed meanwhile.
            Work::Throttled(device, data) => match self.queue.recheck(&device) {
                Ok(()) => self.begin(slot, device, data, context),
                Err(status) => self.fail(slot, &device, status, context),
            },
            Work::Copying(copy) => self.begin_piece(slot, copy, context),
            pair @ Work::Second { first, .. } => {
                self.put(slot, pair);
                self.begin_pair(first, slot, context);
            }
            _ => {}
        }
        turn
    }

    /// Ends the commands that no device has and that may not be executed any more: what they wait
    /// for (a limit, memory, data of the host) may be far away.
    pub(super) fn end_refused(&mut self, context: &mut Context<'_>) {
        if let Some(completion) = self.queue.refuse_held() {
            self.complete_held(completion, context);
        }
        for index in 0..self.work.len() {
            let Ok(slot) = u16::try_from(index).map(Slot) else { return };
            let waiting = match &self.work[index] {
                Work::Throttled(device, _) | Work::Starved(device) | Work::Fetching(device) => {
                    device
                }
                Work::Copying(copy) => &copy.command,
                Work::Second { write, is_at_device: false, .. } => write,
                _ => continue,
            };
            let Err(status) = self.queue.recheck(waiting) else { continue };
            match self.work[index] {
                Work::Second { first, write, .. } => {
                    self.leave_flow(slot, &write, context.core);
                    self.fail_pair(first, slot, DeviceFailure::Remote(status), context);
                }
                _ => _ = self.end_waiting(slot, status, context),
            }
        }
    }

    /// Ends a command that no device has with this status, unless it is half of a pair. Says
    /// whether it is one.
    pub(super) fn end_waiting(
        &mut self,
        slot: Slot,
        status: Status,
        context: &mut Context<'_>,
    ) -> bool {
        let device = match self.work.get(slot.index()) {
            Some(Work::Starved(device) | Work::Fetching(device)) => *device,
            Some(Work::Throttled(device, _)) => {
                let device = *device;
                self.leave_flow(slot, &device, context.core);
                device
            }
            Some(Work::Copying(_)) => return self.end_waiting_copy(slot, status, context),
            _ => return false,
        };
        self.take(slot);
        self.fail(slot, &device, status, context);
        true
    }

    /// Takes a command out of its flow; false if it does not wait for a rate limit.
    pub(super) fn leave_flow(&mut self, slot: Slot, of: &DeviceCommand, core: &mut Core) -> bool {
        self.flows.as_mut().is_some_and(|flows| flows.remove(slot, of, core))
    }
}
