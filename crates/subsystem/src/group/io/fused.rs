//! The fused pairs of an I/O queue.

use weft_backend::Operation;
use weft_nvme::Status;
use weft_nvmf::queue::{DeviceCommand, DeviceOperation};
use weft_reactor::Buffer;
use weft_transport::Slot;

use super::{Io, SlotState};
use crate::group::core::Context;
use crate::group::devices::NO_DEVICE;
use crate::shared::io_metrics::Wait;

impl Io {
    /// The second command of a fused pair has arrived: both ask the rate limits as one.
    pub(super) fn pair(
        &mut self,
        second: Slot,
        [compare, write]: [DeviceCommand; 2],
        write_data: Option<Buffer>,
        context: &mut Context<'_>,
    ) {
        let held = self.work.iter().position(|work| work.command_id() == Some(compare.command_id));
        let first = held.and_then(|slot| u16::try_from(slot).ok()).map(Slot);
        let Some(first) = first else { return };
        let compare_data = match self.take(first) {
            SlotState::Held { data, .. } => data,
            _ => None,
        };
        self.put(first, SlotState::First { compare, second, data: compare_data });
        self.put(second, SlotState::Second { write, first, data: write_data });
        if let Some(flows) = &mut self.flows
            && !flows.admit(second, &write, Some(&compare), context.core)
        {
            return [first, second].iter().for_each(|slot| {
                self.wait(*slot, Wait::Limit, context.core);
            });
        }
        self.begin_pair(first, second, context);
    }

    /// Both commands of a pair get their data and are submitted as one.
    pub(super) fn begin_pair(&mut self, first: Slot, second: Slot, context: &mut Context<'_>) {
        for slot in [first, second] {
            let device = match self.work.get(slot.index()) {
                Some(SlotState::First { compare, data: None, .. }) => *compare,
                Some(SlotState::Second { write, data: None, .. }) => *write,
                _ => continue,
            };
            match context.core.schedule.memory.take_reserved(device.transfer.bytes()) {
                Some(buffer) => {
                    self.wait(slot, Wait::Data, context.core);
                    context.transport.receive(slot, buffer);
                }
                None => {
                    return self.fail_pair(first, second, Status::INTERNAL_ERROR, context);
                }
            }
        }
        self.submit_pair(first, second, context);
    }

    /// Aborts a pair that waits for a rate limit. Says whether it does.
    pub(super) fn abort_pair(
        &mut self,
        first: Slot,
        second: Slot,
        context: &mut Context<'_>,
    ) -> bool {
        let Some(&SlotState::Second { write, .. }) = self.work.get(second.index()) else {
            return false;
        };
        let waited = self.leave_flow(second, &write, context.core);
        if waited {
            self.fail_pair(first, second, Status::ABORT_REQUESTED, context);
        }
        waited
    }

    pub(super) fn submit_pair(&mut self, first: Slot, second: Slot, context: &mut Context<'_>) {
        let (one, two) = (self.take(first), self.take(second));
        match (one, two) {
            (
                SlotState::First { compare, second, data: Some(compare_data) },
                SlotState::Second { write, first, data: Some(write_data) },
            ) => {
                let halves = [compare, write];
                if let Err(status) = self.queue.recheck(&write) {
                    return self.fail_halves([first, second], halves, status, context);
                }
                let DeviceOperation::Write { slba, nlb, durable } = write.operation else {
                    return;
                };
                let operation = Operation::CompareAndWrite {
                    slba,
                    nlb,
                    compare: compare_data,
                    write: write_data,
                    durable,
                };
                for (slot, half) in [(first, &compare), (second, &write)] {
                    self.wait(slot, Wait::Device, context.core);
                    self.trace_submitted(slot, half.transfer.bytes(), context.core);
                }
                if context.core.submit(write.device, self.id, second, operation) {
                    self.at_devices += 1;
                    self.put(first, SlotState::Compared(compare));
                    self.put(second, SlotState::Paired { write, first });
                } else {
                    self.fail_halves([first, second], halves, NO_DEVICE, context);
                }
            }
            (one, two) => {
                self.put(first, one);
                self.put(second, two);
            }
        }
    }

    pub(super) fn fail_pair(
        &mut self,
        first: Slot,
        second: Slot,
        status: Status,
        context: &mut Context<'_>,
    ) {
        if let (SlotState::First { compare, .. }, SlotState::Second { write, .. }) =
            (self.take(first), self.take(second))
        {
            self.fail_halves([first, second], [compare, write], status, context);
        }
    }

    fn fail_halves(
        &mut self,
        [first, second]: [Slot; 2],
        [compare, write]: [DeviceCommand; 2],
        status: Status,
        context: &mut Context<'_>,
    ) {
        let [one, two] = self.queue.complete_fused(&compare, &write, status);
        self.complete(first, one, context);
        self.complete(second, two, context);
    }
}
