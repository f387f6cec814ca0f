//! The commands of an I/O queue that wait for a rate limit.

use weft_nvmf::queue::DeviceCommand;
use weft_transport::Slot;

use super::{Io, SlotState};
use crate::group::core::{Context, Core};
use crate::group::schedule::{FlowKey, LimitAnswer};

impl Io {
    /// The first command of a flow that has waited for a rate limit asks again.
    pub(in crate::group) fn retry_throttled(
        &mut self,
        flow: FlowKey,
        context: &mut Context<'_>,
    ) -> LimitAnswer {
        let Some(flows) = &self.flows else { return LimitAnswer::Empty };
        let work = |slot: Slot| self.work.get(slot.index());
        let (device, with) = match flows.first(flow).and_then(work) {
            Some(SlotState::Throttled(device, _)) => (Some(*device), None),
            Some(SlotState::Second { write, first, .. }) => match work(*first) {
                Some(SlotState::First { compare, .. }) => (Some(*write), Some(*compare)),
                _ => (Some(*write), None),
            },
            Some(SlotState::Copying(copy)) => {
                copy.step.limited().map_or((None, None), |[read, write]| (Some(write), Some(read)))
            }
            _ => (None, None),
        };
        let Some(flows) = &mut self.flows else { return LimitAnswer::Empty };
        let turn = flows.retry(device.as_ref(), with.as_ref(), flow, context.core);
        let LimitAnswer::Begin(slot) = turn else { return turn };
        match self.take(slot) {
            // The namespace may have changed meanwhile.
            SlotState::Throttled(device, data) => match self.queue.recheck(&device) {
                Ok(()) => self.begin(slot, device, data, context),
                Err(status) => self.end(slot, &device, status, context),
            },
            SlotState::Copying(copy) => self.begin_piece(slot, copy, context),
            pair @ SlotState::Second { first, .. } => {
                self.put(slot, pair);
                self.begin_pair(first, slot, context);
            }
            _ => {}
        }
        turn
    }

    /// Takes a command out of its flow; false if it does not wait for a rate limit.
    pub(super) fn leave_flow(&mut self, slot: Slot, of: &DeviceCommand, core: &mut Core) -> bool {
        self.flows.as_mut().is_some_and(|flows| flows.remove(slot, of, core))
    }
}
