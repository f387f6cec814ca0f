//! A new snapshot of what is served reaches the connections of a group.

use std::collections::VecDeque;
use std::sync::Arc;

use weft_nvmf::controller::EndReason;

use super::Group;
use super::connection::Role;
use super::core::Context;
use crate::shared::ids::HostKey;
use crate::shared::limits::{UPDATE_COST, UPDATES_OF_A_TURN};
use crate::shared::round::Round;
use crate::shared::snapshot::Snapshot;

impl Group {
    /// Serves a new snapshot from now on.
    pub(super) fn publish(&mut self, snapshot: Arc<Snapshot>, settled: Arc<Round>) {
        // Snapshots are made under a lock but posted after it: an older one may come later, when
        // its change has been made with the newer one.
        let concerned = match snapshot.version > self.core.snapshot.version {
            true => self.adopt(snapshot),
            false => self.connections.indices(),
        };
        self.settle_refused(concerned, settled);
    }

    /// Serves a newer snapshot. Returns the connections that it may concern.
    fn adopt(&mut self, snapshot: Arc<Snapshot>) -> Vec<usize> {
        let old = std::mem::replace(&mut self.core.snapshot, snapshot);
        let snapshot = Arc::clone(&self.core.snapshot);
        let changes = snapshot.changes.as_ref().filter(|changes| changes.after == old.version);
        match changes {
            Some(changes) => {
                self.core.devices.change(&changes.removed, &mut self.core.reactor);
            }
            None => self.core.devices.serve(snapshot.devices(), &mut self.core.reactor),
        }
        self.core.schedule.throttle.replace(&snapshot.rate_limits);
        let other_classes =
            (old.express, &old.qos_rules) != (snapshot.express, &snapshot.qos_rules);
        if other_classes {
            self.core.schedule.express.replace(snapshot.express);
            let left = self.core.schedule.shares.reset();
            self.requeue(left);
        }
        let other_limits = !Arc::ptr_eq(&old.rate_limits, &snapshot.rate_limits);
        let concerned = match changes {
            Some(changes) if !other_limits && !other_classes => {
                self.connections.indices_of(&changes.subsystems)
            }
            _ => self.connections.indices(),
        };
        let mut outdated = VecDeque::new();
        for index in concerned.iter().copied() {
            self.with_if_changed(index, |connection, core| {
                let at = connection.endpoints;
                let differs = |host: &HostKey| core.snapshot.differs(&old, host.subsystem(), &at);
                match &mut connection.role {
                    Role::Admin(admin) if differs(admin.host()) => {
                        let transport = &mut connection.transport;
                        let had_to_be = admin.outdate(&mut Context { transport, core });
                        if !had_to_be {
                            outdated.push_back(connection.id);
                        }
                        had_to_be
                    }
                    Role::Io(io) if other_limits || other_classes || differs(io.host()) => {
                        let transport = &mut connection.transport;
                        if !io.replace_view(&mut Context { transport, core }) {
                            connection.end(EndReason::HostNotAllowed, core);
                        }
                        connection.bound_capsules(core);
                        if other_classes {
                            connection.regrant(core);
                        }
                        true
                    }
                    _ => false,
                }
            });
        }
        self.outdated.append(&mut outdated);
        concerned
    }

    /// Has controllers learn of the present snapshot, as many as a turn may: a change of a
    /// subsystem of many hosts and namespaces must not hold others up.
    pub(super) fn update_controllers(&mut self) {
        let mut left = UPDATES_OF_A_TURN;
        while left > 0
            && let Some(id) = self.outdated.pop_front()
        {
            self.with_admin(id, |admin, context| {
                if admin.is_outdated() {
                    let namespaces = admin.update(context);
                    left = left.saturating_sub(namespaces + UPDATE_COST);
                }
            });
        }
    }
}
