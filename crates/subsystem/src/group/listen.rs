//! The listeners, and which connections are evicted when there is no room for another.
//!
//! Every connection costs a descriptor. At the limit each new connection evicts one that has not
//! completed Connect: the oldest one of the address that has most of them, so that whoever opens
//! many evicts its own. Running out of descriptors neither stops accepting nor makes it spin.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use weft_reactor::{Outcome, SocketId, Token};
use weft_transport::{Incoming, Listener};

use super::core::Core;
use super::owners::LISTENERS;
use super::unconnected::ConnectBacklog;
use crate::config::Listen;
use crate::shared::snapshot::PortView;

/// How long accepting pauses when there is no descriptor left and no connection to evict.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// The shortest time between two log lines about refused connections.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The listening sockets of a target; one group has them.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    entries: Vec<Option<Listening>>,
    /// Number of listeners so far, so that a late completion is not taken for another listener's.
    begun: u32,
    /// Connections without Connect.
    pub(super) unconnected: ConnectBacklog,
    /// When a lack of room was last logged.
    refused_logged_at: Option<Duration>,
}

#[derive(Debug)]
struct Listening {
    listener: Listener,
    token: Token,
    configured: Listen,
    /// Its port; none until the reload is executed.
    port_id: Option<u16>,
    /// Its port once the reload is executed.
    next: Option<u16>,
}

/// The meaning of a listener's completion.
#[derive(Debug)]
pub(crate) enum ListenerEvent {
    /// A new connection.
    Accepted { socket: SocketId, peer: SocketAddr, port_id: u16 },
    /// Hosts that ask for a queue: [`Listeners::next_incoming`].
    Incoming { index: usize },
    /// There is no descriptor for the next one; this listener accepts none until it is resumed.
    NoDescriptor { index: usize, error: std::io::Error },
    /// Nothing.
    Nothing,
}

impl Listeners {
    /// Opens the listeners of these ports that do not exist yet, and finds their addresses with the
    /// port numbers that the kernel chose. No host is served there before [`Self::serve`].
    pub(crate) fn prepare(
        &mut self,
        ports: &[PortView],
        core: &mut Core,
    ) -> Result<BTreeMap<u16, SocketAddr>, (Listen, std::io::Error)> {
        let mut new = Vec::new();
        for port in ports {
            // The port has the same address as before, or the address was another port's.
            let same =
                |open: &&mut Listening| open.configured == port.listen && open.next.is_none();
            let mut open: Vec<_> = self.entries.iter_mut().flatten().filter(same).collect();
            let known = open.iter().position(|open| open.port_id == Some(port.id));
            let any = (port.listen.address.port() > 0 && !open.is_empty()).then_some(0);
            match known.or(any).and_then(|index| open.get_mut(index)) {
                Some(open) => open.next = Some(port.id),
                None => new.push(port),
            }
        }
        for port in new {
            if let Err(error) = self.begin(port, core) {
                self.rollback(core);
                return Err((port.listen, error));
            }
        }
        let open = self.entries.iter().flatten();
        let address = |open: &Listening| open.listener.local_address(&core.reactor).ok();
        Ok(open.filter_map(|open| Some((open.next?, address(open)?))).collect())
    }

    /// Serves the prepared ports and no others.
    pub(crate) fn serve(&mut self, core: &mut Core) {
        for open in self.entries.iter_mut().flatten() {
            open.port_id = open.next.take();
        }
        self.close_unserved(core);
    }

    /// Undoes the preparation.
    pub(crate) fn rollback(&mut self, core: &mut Core) {
        self.entries.iter_mut().flatten().for_each(|open| open.next = None);
        self.close_unserved(core);
    }

    fn close_unserved(&mut self, core: &mut Core) {
        for entry in &mut self.entries {
            if let Some(open) = entry.take_if(|open| open.port_id.is_none()) {
                core.reactor.clear_timer(open.token);
                open.listener.close(&mut core.reactor);
            }
        }
    }

    fn begin(&mut self, port: &PortView, core: &mut Core) -> std::io::Result<()> {
        let free = self.entries.iter().position(Option::is_none);
        let index = free.unwrap_or(self.entries.len());
        if free.is_none() {
            self.entries.push(None);
        }
        self.begun = self.begun.wrapping_add(1);
        let token = token(index, self.begun);
        let Listen { transport, address } = port.listen;
        let listener = Listener::listen(&mut core.reactor, token, transport, address)?;
        if let Some(entry) = self.entries.get_mut(index) {
            let (configured, next) = (port.listen, Some(port.id));
            *entry = Some(Listening { listener, token, configured, port_id: None, next });
        }
        Ok(())
    }

    /// The next host that asks for a queue, and the port that it came to, if that is served.
    pub(crate) fn next_incoming(
        &mut self,
        index: usize,
        core: &mut Core,
    ) -> Option<(Incoming, Option<u16>)> {
        let open = self.entries.get_mut(index)?.as_mut()?;
        Some((open.listener.next_incoming(&mut core.reactor)?, open.port_id))
    }

    /// Takes a completion of a listener or of its timer.
    pub(crate) fn handle(
        &mut self,
        completion: weft_reactor::ReactorCompletion,
        core: &mut Core,
    ) -> ListenerEvent {
        let index = (completion.token.tag & INDEX_MASK) as usize;
        let open = self.entries.get(index).and_then(Option::as_ref);
        let open = open.filter(|open| open.token == completion.token);
        let port_id = open.and_then(|open| open.port_id);
        match completion.outcome {
            Outcome::Accepted { socket, peer } => match port_id {
                Some(port_id) => ListenerEvent::Accepted { socket, peer, port_id },
                None => {
                    core.reactor.close(socket);
                    ListenerEvent::Nothing
                }
            },
            _ if open.is_none() => ListenerEvent::Nothing,
            Outcome::SourceEvents => ListenerEvent::Incoming { index },
            Outcome::Failed { error, .. } => ListenerEvent::NoDescriptor { index, error },
            Outcome::Timer => {
                self.retry(index, core);
                ListenerEvent::Nothing
            }
            _ => ListenerEvent::Nothing,
        }
    }

    /// Resumes accepting: there is room again.
    pub(crate) fn retry(&mut self, index: usize, core: &mut Core) {
        if let Some(Some(open)) = self.entries.get_mut(index) {
            open.listener.retry(&mut core.reactor, open.token);
        }
    }

    /// Resumes accepting after a pause: there is no room.
    pub(crate) fn pause(&mut self, index: usize, core: &mut Core) {
        if let Some(Some(open)) = self.entries.get(index) {
            let at = core.reactor.now().saturating_add(ACCEPT_PAUSE);
            core.reactor.set_timer(open.token, at);
        }
    }

    /// Logs that a connection is refused, at most once in a while.
    pub(crate) fn log_refused(&mut self, what: &dyn std::fmt::Display, core: &Core) {
        let now = core.reactor.turn_time();
        if self.refused_logged_at.is_none_or(|last| now.saturating_sub(last) >= LOG_INTERVAL) {
            self.refused_logged_at = Some(now);
            log::warn!("no room for another connection: {what}");
        }
    }

    /// Closes the listeners.
    pub(crate) fn close(&mut self, core: &mut Core) {
        for open in self.entries.drain(..).flatten() {
            open.listener.close(&mut core.reactor);
        }
    }
}

/// The part of a token's tag that is the place of the listener; the rest counts listeners.
const INDEX_MASK: u32 = 0xffff;

fn token(index: usize, begun: u32) -> Token {
    let index = u32::try_from(index).unwrap_or(INDEX_MASK) & INDEX_MASK;
    Token { owner: LISTENERS, tag: begun << 16 | index }
}
