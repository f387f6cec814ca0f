//! The fused pairs of an I/O queue.

use weft_backend::Operation;
use weft_nvmf::queue::{DeviceCommand, DeviceFailure, DeviceOperation};
use weft_reactor::Buffer;
use weft_transport::Slot;

use super::{Io, Work, bytes_of};
use crate::group::core::Context;
use crate::io_metrics::Wait;

impl Io {
    /// The second command of a fused pair has arrived: both get their data and are submitted as
    /// one.
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
            Work::Held { data, .. } => data,
            _ => None,
        };
        if let Some(flows) = &mut self.flows {
            [compare, write].iter().for_each(|half| flows.admit_at_once(half, context.core));
        }
        let fetch_first = compare_data.is_none();
        let fetch_second = write_data.is_none();
        self.put(first, Work::First { compare, second, data: compare_data });
        self.put(second, Work::Second { write, first, data: write_data });
        for (slot, device, fetch) in [(first, compare, fetch_first), (second, write, fetch_second)]
        {
            if !fetch {
                continue;
            }
            match context.core.admission.take_reserved(bytes_of(device.transfer)) {
                Some(buffer) => {
                    self.wait(slot, Wait::Data, context.core);
                    context.transport.receive(slot, buffer);
                }
                None => {
                    let failure = DeviceFailure::Internal;
                    return self.fail_pair(first, second, failure, context);
                }
            }
        }
        self.submit_pair(first, second, context);
    }

    pub(super) fn submit_pair(&mut self, first: Slot, second: Slot, context: &mut Context<'_>) {
        let (one, two) = (self.take(first), self.take(second));
        match (one, two) {
            (
                Work::First { compare, second, data: Some(compare_data) },
                Work::Second { write, first, data: Some(write_data) },
            ) => {
                let halves = [compare, write];
                if let Err(status) = self.queue.recheck(&write) {
                    let failure = DeviceFailure::Remote(status);
                    return self.fail_halves([first, second], halves, failure, context);
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
                    self.trace_submitted(slot, bytes_of(half.transfer), context.core);
                }
                if context.core.submit(write.device, self.id, second, operation) {
                    self.at_devices += 1;
                    self.put(first, Work::Compared(compare));
                    self.put(second, Work::Paired { write, first });
                } else {
                    self.fail_halves([first, second], halves, DeviceFailure::Gone, context);
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
        failure: DeviceFailure,
        context: &mut Context<'_>,
    ) {
        if let (Work::First { compare, .. }, Work::Second { write, .. }) =
            (self.take(first), self.take(second))
        {
            self.fail_halves([first, second], [compare, write], failure, context);
        }
    }

    fn fail_halves(
        &mut self,
        [first, second]: [Slot; 2],
        [compare, write]: [DeviceCommand; 2],
        failure: DeviceFailure,
        context: &mut Context<'_>,
    ) {
        let [one, two] = self.queue.complete_fused(&compare, &write, Err(failure));
        self.complete(first, one, context);
        self.complete(second, two, context);
    }
}
