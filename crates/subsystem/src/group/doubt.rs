//! The check for a host's connections that may be dead, before its next Connect is answered.
//!
//! A connection that the host has closed ends ([`Connection::end_if_stale`]). In an outage the
//! close may be lost, and commands of the connection may wait here for a rate limit, for memory or
//! for a device, or at the host: the kernel of a process that has ended may go on sending what that
//! has written. So each I/O queue of the host with commands has to show that its peer is alive: by
//! a segment that comes after the check began. The kernel asks for one. A queue without commands
//! has to if nothing has come for a second. One that does not acknowledge what is sent again, or
//! shows nothing within [`PATIENCE`], ends, an admin queue with its controller; one that is alive
//! goes on: it is another association on purpose.
//!
//! [`Connection::end_if_stale`]: super::connection::Connection::end_if_stale

use std::sync::Arc;
use std::time::Duration;

use weft_reactor::{Life, Token};

use super::connections::Connections;
use super::core::Core;
use super::owners::DOUBT_TIMER;
use crate::shared::ids::HostKey;
use crate::shared::round::Round;

/// The kernel asks within a second, and once more after another one.
const PATIENCE: Duration = Duration::from_millis(2500);
/// How often it is looked whether a host has answered.
const INTERVAL: Duration = Duration::from_millis(10);

/// Hosts that connect anew, whose connections here have to show that they are alive.
#[derive(Debug, Default)]
pub(super) struct Doubts(Vec<Doubt>);

/// A host that connects anew, whose connections here are in doubt.
#[derive(Debug)]
struct Doubt {
    host: Arc<HostKey>,
    since: Duration,
    round: Arc<Round>,
}

impl Doubts {
    /// A host connects anew.
    pub(super) fn begin(
        &mut self,
        host: Arc<HostKey>,
        round: Arc<Round>,
        connections: &mut Connections,
        core: &mut Core,
    ) {
        let doubt = Doubt { host, since: core.reactor.now(), round };
        if doubt.holds(connections, core) {
            self.0.push(doubt);
            self.set_timer(core);
        } else {
            core.acknowledge(&doubt.round);
        }
    }

    /// Looks again at the hosts that are in doubt.
    pub(super) fn check(&mut self, connections: &mut Connections, core: &mut Core) {
        self.0.retain(|doubt| {
            let stays = doubt.holds(connections, core);
            if !stays {
                core.acknowledge(&doubt.round);
            }
            stays
        });
        self.set_timer(core);
    }

    fn set_timer(&self, core: &mut Core) {
        if !self.0.is_empty() {
            let at = core.reactor.now().saturating_add(INTERVAL);
            core.reactor.set_timer(Token { owner: DOUBT_TIMER, tag: 0 }, at);
        }
    }
}

impl Doubt {
    /// Ends the host's connections that are over or do not answer. Returns whether one may still
    /// show that it is alive.
    fn holds(&self, connections: &mut Connections, core: &mut Core) -> bool {
        let is_late = core.reactor.now() >= self.since.saturating_add(PATIENCE);
        let mut holds = false;
        for index in connections.indices() {
            connections.with_if_changed(index, core, |connection, core| {
                if connection.end_if_stale(&self.host, core) {
                    return true;
                }
                match connection.life_of(&self.host, self.since, core) {
                    None | Some(Life::Shown) => false,
                    Some(Life::Asked) if !is_late => {
                        holds = true;
                        false
                    }
                    Some(Life::Asked | Life::Doubtful) => {
                        connection.end_doubted(&self.host, core);
                        true
                    }
                }
            });
        }
        holds
    }
}
