//! The listeners, and who has to leave when there is no room.
//!
//! Every connection costs a descriptor. A stranger, who has not completed Connect, may cost one
//! only as long as nobody else needs it: near the limit the oldest stranger is shed for each new
//! connection. Running out of descriptors neither stops accepting nor makes it spin.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use weft_reactor::{Outcome, SocketId, Token};
use weft_transport::{Incoming, Listener};

use super::core::{Core, LISTENERS};
use super::message::ConnectionId;
use crate::config::Listen;
use crate::snapshot::PortView;

/// How long accepting rests after the kernel had no descriptor left and no stranger has one.
const REST: Duration = Duration::from_millis(20);

/// How long nothing more is said of a lack of room, however many do not get in.
const SILENCE: Duration = Duration::from_secs(10);

/// So many names of those who were strangers once may be kept.
const STRANGERS_MIN: usize = 64;

/// The listening sockets of a target; one group has them.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    entries: Vec<Option<Listening>>,
    /// Strangers in the order in which they came; some may have gone on.
    strangers: VecDeque<ConnectionId>,
    /// When it was last said that there is no room.
    complained: Option<Duration>,
}

#[derive(Debug)]
struct Listening {
    listener: Listener,
    port_id: u16,
    configured: Listen,
}

/// What a completion of a listener comes to.
#[derive(Debug)]
pub(crate) enum Arriving {
    /// A new connection.
    Accepted { socket: SocketId, peer: SocketAddr, port_id: u16 },
    /// Hosts that ask for a queue: [`Listeners::next_incoming`].
    Incoming { index: usize },
    /// There is no descriptor for the next one; this listener accepts none until it is told to.
    NoRoom { index: usize, error: std::io::Error },
    /// Nothing.
    Nothing,
}

impl Listeners {
    /// Listens where the ports say and no longer where they do not, and tells the directory the
    /// addresses, with the port numbers that the kernel chose. An address that cannot be had is
    /// left out; the first one is the error.
    pub(crate) fn replace(
        &mut self,
        ports: &[PortView],
        core: &mut Core,
    ) -> Result<(), (Listen, std::io::Error)> {
        for entry in &mut self.entries {
            let kept = |open: &Listening| {
                ports.iter().any(|port| port.id == open.port_id && port.listen == open.configured)
            };
            if !entry.as_ref().is_none_or(kept)
                && let Some(open) = entry.take()
            {
                open.listener.close(&mut core.reactor);
            }
        }
        let mut outcome = Ok(());
        for port in ports {
            if self.entries.iter().flatten().any(|entry| entry.port_id == port.id) {
                continue;
            }
            if let Err(error) = self.begin(port, core) {
                outcome = outcome.and(Err((port.listen, error)));
            }
        }
        core.directory.set_listening(self.addresses(core));
        outcome
    }

    fn begin(&mut self, port: &PortView, core: &mut Core) -> std::io::Result<()> {
        let index = self.entries.len();
        let Listen { transport, address } = port.listen;
        let listener = Listener::listen(&mut core.reactor, token(index), transport, address)?;
        let configured = port.listen;
        self.entries.push(Some(Listening { listener, port_id: port.id, configured }));
        Ok(())
    }

    /// The next host that asks for a queue, and the port that it came to.
    pub(crate) fn next_incoming(
        &mut self,
        index: usize,
        core: &mut Core,
    ) -> Option<(Incoming, u16)> {
        let open = self.entries.get_mut(index)?.as_mut()?;
        Some((open.listener.next_incoming(&mut core.reactor)?, open.port_id))
    }

    fn addresses(&self, core: &Core) -> BTreeMap<u16, SocketAddr> {
        let open = self.entries.iter().flatten();
        let address = |open: &Listening| open.listener.local_address(&core.reactor).ok();
        open.filter_map(|open| Some((open.port_id, address(open)?))).collect()
    }

    /// Takes a completion of a listener or of its timer.
    pub(crate) fn handle(
        &mut self,
        completion: weft_reactor::Completion,
        core: &mut Core,
    ) -> Arriving {
        let index = completion.token.tag as usize;
        let Some(Some(open)) = self.entries.get(index) else {
            if let Outcome::Accepted { socket, .. } = completion.outcome {
                core.reactor.close(socket);
            }
            return Arriving::Nothing;
        };
        match completion.outcome {
            Outcome::Accepted { socket, peer } => {
                Arriving::Accepted { socket, peer, port_id: open.port_id }
            }
            Outcome::News => Arriving::Incoming { index },
            Outcome::Failed { error, .. } => Arriving::NoRoom { index, error },
            Outcome::Timer => {
                self.go_on(index, core);
                Arriving::Nothing
            }
            _ => Arriving::Nothing,
        }
    }

    /// Accepts on: there is room again.
    pub(crate) fn go_on(&mut self, index: usize, core: &mut Core) {
        if let Some(Some(open)) = self.entries.get_mut(index) {
            open.listener.go_on(&mut core.reactor, token(index));
        }
    }

    /// Accepts on after a while: there is no room.
    pub(crate) fn rest(&mut self, index: usize, core: &mut Core) {
        let at = core.reactor.now().saturating_add(REST);
        core.reactor.set_timer(token(index), at);
    }

    /// Says that somebody does not get in, unless that has been said lately.
    pub(crate) fn complain(&mut self, what: &dyn std::fmt::Display, core: &Core) {
        let now = core.reactor.turn_time();
        if self.complained.is_none_or(|last| now.saturating_sub(last) >= SILENCE) {
            self.complained = Some(now);
            log::warn!("no room for another connection: {what}");
        }
    }

    /// Takes note of a stranger.
    pub(crate) fn remember(&mut self, stranger: ConnectionId) {
        self.strangers.push_back(stranger);
    }

    /// The strangers from the oldest on; who is no stranger any more may be among them.
    pub(crate) fn oldest(&mut self) -> Option<ConnectionId> {
        self.strangers.pop_front()
    }

    /// Forgets those who are none any more, when they may be many: more than `most`.
    pub(crate) fn tidy(&mut self, most: usize, may_be: impl Fn(ConnectionId) -> bool) {
        if self.strangers.len() > most.max(STRANGERS_MIN) {
            self.strangers.retain(|id| may_be(*id));
        }
    }

    /// Listens no longer.
    pub(crate) fn close(&mut self, core: &mut Core) {
        for open in self.entries.drain(..).flatten() {
            open.listener.close(&mut core.reactor);
        }
    }
}

fn token(index: usize) -> Token {
    Token { owner: LISTENERS, tag: u32::try_from(index).unwrap_or(u32::MAX) }
}
