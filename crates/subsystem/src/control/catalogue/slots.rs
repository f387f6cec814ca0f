//! The places of devices in the groups' tables.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use crate::shared::ids::DeviceId;
use crate::shared::snapshot::ServedDevice;

/// How many places that are to be free soon are looked at for a device.
const LOOKED_AT_MAX: usize = 8;

/// All places, of which one is found without a look at those that are in use.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    /// Places whose devices no namespace has any more. A group may have one for a while.
    released: VecDeque<usize>,
    /// Places of the plan that was not executed yet.
    opened: Vec<usize>,
}

/// A place for a device.
#[derive(Debug, Default)]
struct Slot {
    generations: u32,
    device: Weak<ServedDevice>,
}

impl Slots {
    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Gives a device a place; none: all are in use.
    pub(super) fn open(
        &mut self,
        device: impl FnOnce(DeviceId) -> ServedDevice,
    ) -> Option<Arc<ServedDevice>> {
        let place = self.free()?;
        let slot = self.slots.get_mut(place)?;
        let device = Arc::new(device(DeviceId::new(place, slot.generations)));
        slot.generations += 1;
        slot.device = Arc::downgrade(&device);
        self.opened.push(place);
        Some(device)
    }

    fn free(&mut self) -> Option<usize> {
        for _ in 0..self.released.len().min(LOOKED_AT_MAX) {
            let place = self.released.pop_front()?;
            let Some(slot) = self.slots.get(place) else { continue };
            if slot.generations == DeviceId::GENERATIONS_MAX {
                continue;
            }
            if slot.device.strong_count() == 0 {
                return Some(place);
            }
            self.released.push_back(place);
        }
        if self.slots.len() == DeviceId::SLOTS_MAX {
            return None;
        }
        self.slots.push(Slot::default());
        Some(self.slots.len() - 1)
    }

    /// The plan for which devices were opened is executed.
    pub(super) fn keep_opened(&mut self) {
        self.opened.clear();
    }

    /// It is not: its places are free.
    pub(super) fn forget_opened(&mut self) {
        self.released.extend(self.opened.drain(..));
    }

    /// No namespace has this device any more.
    pub(super) fn release(&mut self, id: DeviceId) {
        self.released.push_back(id.slot());
    }
}
