//! The listeners, and who has to leave when there is no room.
//!
//! Every connection costs a descriptor. A stranger, who has not completed Connect, may cost one
//! only as long as nobody else needs it: near the limit the oldest stranger is shed for each new
//! connection. Running out of descriptors neither stops accepting nor makes it spin.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use weft_reactor::{ListenerId, Operation, Outcome, SocketId, Token};
use weft_transport::rdma;

use super::core::{Core, LISTENERS};
use super::message::ConnectionId;
use crate::config::{Listen, Transport};
use crate::snapshot::PortView;

/// How long accepting rests after the kernel had no descriptor left and no stranger has one.
const REST: Duration = Duration::from_millis(20);

/// How long nothing more is said of a lack of room, however many do not get in.
const SILENCE: Duration = Duration::from_secs(10);

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
    door: Door,
    port_id: u16,
    configured: Listen,
}

/// Where connections of one transport come in.
#[derive(Debug)]
enum Door {
    Tcp(ListenerId),
    Rdma(rdma::Listener),
}

impl Door {
    fn close(self, core: &mut Core) {
        match self {
            Self::Tcp(listener) => core.reactor.close_listener(listener),
            Self::Rdma(listener) => drop(listener),
        }
    }

    fn address(&self, core: &Core) -> std::io::Result<SocketAddr> {
        match self {
            Self::Tcp(listener) => core.reactor.local_address(*listener),
            Self::Rdma(listener) => listener.local_address(),
        }
    }
}

/// What a completion of a listener comes to.
#[derive(Debug)]
pub(crate) enum Arriving {
    /// A new connection.
    Accepted { socket: SocketId, peer: SocketAddr, port_id: u16 },
    /// Hosts that want a queue over RDMA: [`Listeners::take_incoming`].
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
                open.door.close(core);
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
        let door = match transport {
            Transport::Tcp => {
                let listener = core.reactor.listen(address)?;
                core.reactor.submit(token(index), Operation::Accept { listener });
                Door::Tcp(listener)
            }
            Transport::Rdma => {
                Door::Rdma(rdma::Listener::listen(&mut core.reactor, token(index), address)?)
            }
        };
        let configured = port.listen;
        self.entries.push(Some(Listening { door, port_id: port.id, configured }));
        Ok(())
    }

    /// The next host that wants a queue over RDMA, and the port that it came to.
    pub(crate) fn take_incoming(&mut self, index: usize) -> Option<(rdma::Incoming, u16)> {
        let open = self.entries.get_mut(index)?.as_mut()?;
        match &mut open.door {
            Door::Rdma(listener) => Some((listener.accept()?, open.port_id)),
            Door::Tcp(_) => None,
        }
    }

    fn addresses(&self, core: &Core) -> BTreeMap<u16, SocketAddr> {
        let open = self.entries.iter().flatten();
        open.filter_map(|open| Some((open.port_id, open.door.address(core).ok()?))).collect()
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
        if let Some(Some(Listening { door: Door::Tcp(listener), .. })) = self.entries.get(index) {
            let listener = *listener;
            core.reactor.submit(token(index), Operation::Accept { listener });
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

    /// Forgets those who are no strangers any more, when they may be many.
    pub(crate) fn tidy(&mut self, most: usize, is_stranger: impl Fn(ConnectionId) -> bool) {
        if self.strangers.len() > most {
            self.strangers.retain(|id| is_stranger(*id));
        }
    }

    /// Listens no longer.
    pub(crate) fn close(&mut self, core: &mut Core) {
        for open in self.entries.drain(..).flatten() {
            open.door.close(core);
        }
    }
}

fn token(index: usize) -> Token {
    Token { owner: LISTENERS, tag: u32::try_from(index).unwrap_or(u32::MAX) }
}
