//! A host's commands in flight, for transports without a session: a slot and a command identifier
//! for each.

use weft_nvmf::tcp::limits::{SLOT_BITS, SLOTS_MAX};

use crate::Slot;

/// The slots of one queue, each with what its command needs until its end.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    places: Vec<Entry<T>>,
    free: Vec<u16>,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u16,
    held: Option<T>,
}

impl<T> Slots<T> {
    pub(crate) fn new(depth: u16) -> Self {
        let depth = depth.clamp(1, SLOTS_MAX);
        let places = (0..depth).map(|_| Entry { generation: 0, held: None });
        Self { places: places.collect(), free: (0..depth).rev().collect() }
    }

    /// The maximum number of commands.
    pub(crate) fn depth(&self) -> u16 {
        u16::try_from(self.places.len()).unwrap_or(u16::MAX)
    }

    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// The slot of the next command.
    pub(crate) fn next(&self) -> Option<u16> {
        self.free.last().copied()
    }

    /// Takes that slot. Its identifier differs from that of the slot's previous command.
    pub(crate) fn begin(&mut self, held: T) -> Option<(u16, u16)> {
        let slot = self.free.pop()?;
        let place = self.places.get_mut(usize::from(slot))?;
        place.generation = place.generation.wrapping_add(1);
        place.held = Some(held);
        Some((slot, command_id(slot, place.generation)))
    }

    pub(crate) fn get_mut(&mut self, slot: u16) -> Option<&mut T> {
        self.places.get_mut(usize::from(slot))?.held.as_mut()
    }

    /// The command identifier of a command in flight.
    pub(crate) fn command_id(&self, slot: u16) -> Option<u16> {
        let place = self.places.get(usize::from(slot)).filter(|place| place.held.is_some())?;
        Some(command_id(slot, place.generation))
    }

    /// The slot of the command in flight with this identifier.
    pub(crate) fn find(&self, id: u16) -> Option<u16> {
        let slot = id & ((1 << SLOT_BITS) - 1);
        (self.command_id(slot) == Some(id)).then_some(slot)
    }

    /// Ends a command and frees its slot.
    pub(crate) fn end(&mut self, slot: u16) -> Option<T> {
        let held = self.places.get_mut(usize::from(slot))?.held.take()?;
        self.free.push(slot);
        Some(held)
    }

    /// Ends all commands.
    pub(crate) fn end_all(&mut self, mut each: impl FnMut(Slot, T)) {
        for slot in 0..self.depth() {
            if let Some(held) = self.end(slot) {
                each(Slot(slot), held);
            }
        }
    }
}

/// A command identifier of slot and generation.
fn command_id(slot: u16, generation: u16) -> u16 {
    slot | generation << SLOT_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_is_of_one_command_only() {
        let mut slots = Slots::new(2);
        let (slot, id) = slots.begin('a').unwrap();
        assert_eq!((slots.find(id), slots.command_id(slot)), (Some(slot), Some(id)));
        assert_eq!(slots.end(slot), Some('a'));
        assert_eq!((slots.find(id), slots.end(slot)), (None, None));
        let (again, other) = slots.begin('b').unwrap();
        assert!(again == slot && other != id && slots.find(id).is_none());
        assert_eq!((slots.free(), slots.in_flight(), slots.next()), (1, 1, Some(1)));
        assert!(slots.begin('c').is_some() && slots.begin('d').is_none());
        let mut left = Vec::new();
        slots.end_all(|slot, held| left.push((slot, held)));
        assert_eq!(left, [(Slot(0), 'b'), (Slot(1), 'c')]);
        assert_eq!(slots.free(), 2);
    }
}
