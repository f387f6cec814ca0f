//! Commands that a change waits for, and changes of reservations that are made, or are not.

use std::sync::Arc;

use weft_nvmf::controller::ControllerEvent;
use weft_nvmf::reservation::HostId;
use weft_transport::Slot;

use super::connection::Role;
use super::core::Context;
use super::io::Hold;
use super::{Group, Message};
use crate::shared::message::{Requester, ReservationResult};
use crate::shared::round::Round;

impl Group {
    /// Acknowledges a round once no command of these hosts that was begun before writes to a
    /// device.
    pub(super) fn settle(&mut self, device: u32, hosts: &[HostId], round: Arc<Round>) {
        let hold = Hold::default();
        for index in self.connections.indices() {
            self.with_if_changed(index, |connection, core| {
                let Role::Io(io) = &mut connection.role else { return false };
                let is_loser = hosts.contains(io.host_id());
                if is_loser {
                    let transport = &mut connection.transport;
                    io.settle(device, &hold, &mut Context { transport, core });
                }
                is_loser
            });
        }
        self.settle_round(round, hold);
    }

    /// Acknowledges a round once no device has a command of these connections that is refused now.
    pub(super) fn settle_refused(&mut self, connections: Vec<usize>, round: Arc<Round>) {
        let hold = Hold::default();
        for index in connections {
            self.with_if_changed(index, |connection, _| {
                if let Role::Io(io) = &mut connection.role {
                    io.hold_refused(&hold, None);
                }
                false
            });
        }
        self.settle_round(round, hold);
    }

    /// Acknowledges a round once no command holds this.
    fn settle_round(&mut self, round: Arc<Round>, hold: Hold) {
        match Arc::strong_count(&hold) {
            1 => self.core.acknowledge(&round),
            _ => self.settling.push((round, hold)),
        }
    }

    /// A change of reservations that a host here has asked for is made, or is not: it is told, and
    /// so are the hosts that it concerns.
    pub(super) fn reserved(&mut self, changed: &Arc<ReservationResult>) {
        let Requester { connection, tag } = changed.asker;
        self.with_id(connection, |connection, core| {
            let context = &mut Context { transport: &mut connection.transport, core };
            match &mut connection.role {
                Role::Io(io) => io.reserved(Slot(tag), changed.status, context),
                Role::Admin(admin) => {
                    let (command_id, status) = (tag, changed.status);
                    let event = ControllerEvent::FeatureDone { command_id, status };
                    admin.handle_event(event, context);
                }
                _ => {}
            }
            connection.reap(core);
        });
        if changed.has_notices() {
            for post in &self.core.posts {
                post.post(Message::NotifyReserved(Arc::clone(changed)));
            }
        }
    }

    /// Tells the hosts here what has changed for them.
    pub(super) fn notify_reserved(&mut self, changed: &ReservationResult) {
        for index in self.connections.indices() {
            self.with_if_changed(index, |connection, core| {
                let told = connection
                    .with_admin(core, |admin, context| admin.notify_reserved(changed, context));
                told.unwrap_or(false)
            });
        }
    }
}
