//! The connections of a group, each at an index that is its own until nothing is left of it.

use std::collections::{BTreeMap, BTreeSet};

use super::connection::Connection;
use super::core::Core;
use crate::shared::ids::ConnectionId;

/// A table of connections. A connection that is being handled is taken out of the table meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    places: Vec<ConnectionSlot>,
    free: Vec<usize>,
    serial: u64,
    /// The queues of each subsystem.
    of_subsystem: BTreeMap<String, BTreeSet<usize>>,
}

#[derive(Debug, Default)]
struct ConnectionSlot {
    serial: u64,
    connection: Option<Box<Connection>>,
    /// The subsystem whose queue it is.
    subsystem: Option<String>,
}

impl Connections {
    /// A place for a new connection of this group.
    pub(crate) fn reserve(&mut self, group: usize) -> ConnectionId {
        self.serial += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(ConnectionSlot::default());
            self.places.len() - 1
        });
        if let Some(place) = self.places.get_mut(index) {
            place.serial = self.serial;
        }
        ConnectionId { group, index, serial: self.serial }
    }

    /// Puts a connection into its place.
    pub(crate) fn put(&mut self, connection: Box<Connection>) {
        let index = connection.id.index;
        let Some(place) = self.places.get_mut(index) else { return };
        if place.subsystem.is_none()
            && let Some(subsystem) = connection.subsystem()
        {
            place.subsystem = Some(subsystem.to_owned());
            self.of_subsystem.entry(subsystem.to_owned()).or_default().insert(index);
        }
        place.connection = Some(connection);
    }

    /// Takes a connection out to handle it; `put` or `free` must follow.
    pub(crate) fn take(&mut self, index: usize) -> Option<Box<Connection>> {
        self.places.get_mut(index)?.connection.take()
    }

    /// Runs an action on a connection, whose events are polled in this turn if it returns `true`.
    pub(crate) fn with_if_changed(
        &mut self,
        index: usize,
        core: &mut Core,
        action: impl FnOnce(&mut Connection, &mut Core) -> bool,
    ) {
        let Some(mut connection) = self.take(index) else { return };
        if action(&mut connection, core) {
            connection.mark_active(core);
        }
        self.put(connection);
    }

    /// The connection of this identifier, if it still exists.
    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        let place = self.places.get(id.index)?;
        if place.serial == id.serial { place.connection.as_deref() } else { None }
    }

    /// The connection at this index, if there is one.
    pub(crate) fn at(&self, index: usize) -> Option<&Connection> {
        self.places.get(index)?.connection.as_deref()
    }

    /// Gives up the place of a connection that has been taken out.
    pub(crate) fn free(&mut self, id: ConnectionId) {
        self.free.push(id.index);
        let place = self.places.get_mut(id.index);
        let Some(subsystem) = place.and_then(|place| place.subsystem.take()) else { return };
        if let Some(queues) = self.of_subsystem.get_mut(&subsystem) {
            queues.remove(&id.index);
            if queues.is_empty() {
                self.of_subsystem.remove(&subsystem);
            }
        }
    }

    /// The indices of the queues of these subsystems.
    pub(crate) fn indices_of(&self, subsystems: &[String]) -> Vec<usize> {
        let queues = subsystems.iter().filter_map(|nqn| self.of_subsystem.get(nqn));
        queues.flatten().copied().collect()
    }

    /// The indices of all connections.
    pub(crate) fn indices(&self) -> Vec<usize> {
        let taken =
            |(index, place): (usize, &ConnectionSlot)| place.connection.is_some().then_some(index);
        self.places.iter().enumerate().filter_map(taken).collect()
    }

    /// How many connections there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// The connection that has most of something, if any has some of it.
    pub(crate) fn largest(&mut self, amount: impl Fn(&mut Connection) -> usize) -> Option<usize> {
        let each = self.places.iter_mut().enumerate().filter_map(|(index, place)| {
            let amount = amount(place.connection.as_deref_mut()?);
            (amount > 0).then_some((amount, index))
        });
        each.max().map(|(_, index)| index)
    }

    /// Whether some connection satisfies a condition.
    pub(crate) fn any(&self, condition: impl Fn(&Connection) -> bool) -> bool {
        self.places.iter().filter_map(|place| place.connection.as_deref()).any(condition)
    }
}
