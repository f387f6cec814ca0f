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

use std::sync::Arc;
use std::time::Duration;

use weft_reactor::{Life, Token};

use super::Group;
use super::connection::Connection;
use super::core::DOUBT_TIMER;
use crate::shared::ids::HostKey;
use crate::shared::round::Round;

/// The kernel asks within a second, and once more after another one.
const PATIENCE: Duration = Duration::from_millis(2500);
/// How often it is looked whether a host has answered.
const INTERVAL: Duration = Duration::from_millis(10);

/// A host that connects anew, whose connections here are in doubt.
#[derive(Debug)]
pub(super) struct Doubt {
    host: Arc<HostKey>,
    since: Duration,
    round: Arc<Round>,
}

impl Group {
    /// A host connects anew.
    pub(super) fn stale_check(&mut self, host: Arc<HostKey>, round: Arc<Round>) {
        let doubt = Doubt { host, since: self.core.reactor.now(), round };
        if self.is_in_doubt(&doubt) {
            self.doubts.push(doubt);
            self.set_doubt_timer();
        } else {
            self.core.acknowledge(&doubt.round);
        }
    }

    /// Looks again at the hosts that are in doubt.
    pub(super) fn check_doubts(&mut self) {
        for doubt in std::mem::take(&mut self.doubts) {
            if self.is_in_doubt(&doubt) {
                self.doubts.push(doubt);
            } else {
                self.core.acknowledge(&doubt.round);
            }
        }
        self.set_doubt_timer();
    }

    fn set_doubt_timer(&mut self) {
        if !self.doubts.is_empty() {
            let at = self.core.reactor.now().saturating_add(INTERVAL);
            self.core.reactor.set_timer(Token { owner: DOUBT_TIMER, tag: 0 }, at);
        }
    }

    /// Ends the host's connections that are over or do not answer. Returns whether one may still
    /// show that it is alive.
    fn is_in_doubt(&mut self, doubt: &Doubt) -> bool {
        let Doubt { host, since, .. } = doubt;
        let is_late = self.core.reactor.now() >= since.saturating_add(PATIENCE);
        let mut is_in_doubt = false;
        for index in self.connections.indices() {
            self.with_if_changed(index, |connection: &mut Connection, core| {
                if connection.end_if_stale(host, core) {
                    return true;
                }
                match connection.life_of(host, *since, core) {
                    None | Some(Life::Shown) => false,
                    Some(Life::Asked) if !is_late => {
                        is_in_doubt = true;
                        false
                    }
                    Some(Life::Asked | Life::Doubtful) => {
                        connection.end_doubted(host, core);
                        true
                    }
                }
            });
        }
        is_in_doubt
    }
}
