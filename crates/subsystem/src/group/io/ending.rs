//! The end of commands: of those that a change forbids, and of all when the queue ends.
//!
//! What no device has (it waits for a rate limit, for memory or for its data) ends at once. What a
//! device has cannot be taken back: a change that forbids it is over when it has come back, which
//! is known by its [`Hold`].

use std::sync::Arc;

use weft_nvme::Status;
use weft_transport::Slot;

use super::copy::CopyStep;
use super::{Io, SlotState};
use crate::group::core::{Context, Core};

/// Held by each command that a change waits for, until its device is done with it.
pub(in crate::group) type Hold = Arc<()>;

impl Io {
    /// The queue ends: nothing begins any more, what no device has is given up, and its host's next
    /// Connect waits for the rest.
    pub(in crate::group) fn stop(&mut self, core: &mut Core) {
        if std::mem::replace(&mut self.stopped, true) {
            return;
        }
        core.directory.begin_drain(&self.host);
        for work in &mut self.work {
            if !work.is_begun() {
                *work = SlotState::Idle;
            }
        }
        self.busy = self.work.iter().filter(|work| work.is_begun()).count();
        self.starved.clear();
        self.flows.take().into_iter().for_each(|mut flows| flows.end(core));
        core.devices.give_up_pieces(self.id.index);
    }

    /// A device is done with a command of a queue that has stopped.
    pub(super) fn end_stopped(&mut self, slot: Slot) {
        match self.take(slot) {
            SlotState::Flushing { command_id, missing, status } if missing > 1 => {
                let missing = missing - 1;
                return self.put(slot, SlotState::Flushing { command_id, missing, status });
            }
            SlotState::Paired { first, .. } => drop(self.take(first)),
            _ => {}
        }
        self.let_go(slot);
    }

    /// Ends a command that no device has with this status. Says whether it is one.
    pub(super) fn end_parked(
        &mut self,
        slot: Slot,
        status: Status,
        context: &mut Context<'_>,
    ) -> bool {
        match self.take(slot) {
            SlotState::Starved(device) | SlotState::Fetching(device) => {
                self.end(slot, &device, status, context);
            }
            SlotState::Throttled(device, _) => {
                self.leave_flow(slot, &device, context.core);
                self.end(slot, &device, status, context);
            }
            SlotState::Copying(copy) if !copy.step.is_at_device() => {
                if let (Some(flows), CopyStep::Limit([_, write])) = (&mut self.flows, &copy.step) {
                    flows.remove(slot, write, context.core);
                }
                self.fail_piece(slot, &copy, status, context);
            }
            work @ SlotState::Second { first, write, .. } => {
                self.put(slot, work);
                self.leave_flow(slot, &write, context.core);
                self.fail_pair(first, slot, status, context);
            }
            other => {
                self.put(slot, other);
                return false;
            }
        }
        true
    }

    /// Ends the commands that no device has and that the queue would refuse now.
    pub(in crate::group) fn end_refused(&mut self, context: &mut Context<'_>) {
        if let Some(completion) = self.queue.refuse_held() {
            self.complete_held(completion, context);
        }
        for slot in 0..self.work.len() {
            let work = &self.work[slot];
            let (false, Ok(place)) = (work.is_begun(), u16::try_from(slot)) else { continue };
            if let Some(status) = self.refusal(work) {
                self.end_parked(Slot(place), status, context);
            }
        }
    }

    /// The commands that a device has and that the queue would refuse now hold this until they come
    /// back; `device`: only those of this one.
    pub(in crate::group) fn hold_refused(&mut self, hold: &Hold, device: Option<u32>) {
        if self.at_devices == 0 && self.reserving == 0 {
            return;
        }
        for (slot, work) in self.work.iter().enumerate().filter(|(_, work)| work.is_begun()) {
            let is_meant = device.is_none() || work.device() == device;
            if let (true, Ok(slot)) = (is_meant, u16::try_from(slot))
                && (self.is_refused || self.refusal(work).is_some())
            {
                self.holds.push((Slot(slot), Arc::clone(hold)));
            }
        }
    }

    /// A command has ended: no change waits for it any more.
    pub(super) fn let_go(&mut self, slot: Slot) {
        if !self.holds.is_empty() {
            self.holds.retain(|(held, _)| *held != slot);
        }
    }

    /// The status with which the queue would refuse a command now.
    fn refusal(&self, work: &SlotState) -> Option<Status> {
        match work {
            SlotState::Throttled(command, _)
            | SlotState::Starved(command)
            | SlotState::Fetching(command)
            | SlotState::AtDevice(command)
            | SlotState::Reserving(command)
            | SlotState::Second { write: command, .. }
            | SlotState::Paired { write: command, .. } => self.queue.recheck(command).err(),
            SlotState::Copying(copy) => self.refusal_of_copy(copy),
            // A first half goes with its second.
            SlotState::Idle
            | SlotState::Flushing { .. }
            | SlotState::Held { .. }
            | SlotState::First { .. }
            | SlotState::Compared(_) => None,
        }
    }
}

impl SlotState {
    /// Whether a device has it, or it changes reservations: it cannot be taken back.
    pub(super) fn is_begun(&self) -> bool {
        match self {
            Self::AtDevice(_)
            | Self::Reserving(_)
            | Self::Flushing { .. }
            | Self::Compared(_)
            | Self::Paired { .. } => true,
            Self::Copying(copy) => copy.step.is_at_device(),
            Self::Idle
            | Self::Throttled(..)
            | Self::Starved(_)
            | Self::Fetching(_)
            | Self::Held { .. }
            | Self::First { .. }
            | Self::Second { .. } => false,
        }
    }

    /// The device that it is for, if it is one.
    fn device(&self) -> Option<u32> {
        match self {
            Self::AtDevice(command) | Self::Paired { write: command, .. } => Some(command.device),
            Self::Copying(copy) => Some(copy.command.device),
            _ => None,
        }
    }
}
