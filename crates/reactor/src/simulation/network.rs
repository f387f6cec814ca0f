//! Connections in memory.
//!
//! A connection has two ends. Sent data is in transit for a while and then in the other end's
//! inbox; the window bounds both together. An end belongs to a reactor's socket, or to none while
//! it waits to be accepted or is being moved.

use super::random::Random;
use super::state::{Event, Notice, State};
use crate::slab::Key;
use crate::socket::Life;
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Connections that wait to be accepted, at most.
const BACKLOG: usize = 4096;
/// After which time an attempt to connect is repeated if the network is out, as by Linux.
const ATTEMPT_RETRY: Duration = Duration::from_secs(1);

/// A connection that is being moved between simulated reactors. Closes when dropped.
#[derive(Debug)]
pub struct Detached {
    pub(super) end: Key,
    pub(super) _alive: Arc<()>,
}

/// What somebody between the ends of a connection makes of bytes that one of them has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interception {
    /// These arrive at the other end.
    Forward(Vec<u8>),
    /// These arrive at the end that has sent.
    Back(Vec<u8>),
    /// The connection is reset.
    Cut,
}

/// Somebody between all ends; see [`World::intercept`](super::World::intercept).
#[derive(Default)]
pub(super) struct Interceptor(pub(super) Option<Intercept>);

pub(super) type Intercept = Box<dyn FnMut(Duration, [SocketAddr; 2], Vec<u8>) -> Vec<Interception>>;

impl std::fmt::Debug for Interceptor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Interceptor").finish_non_exhaustive()
    }
}

/// A reactor's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketEntry {
    pub(super) reactor: usize,
    pub(super) socket: Key,
}

#[derive(Debug)]
pub(super) struct Listener {
    pub(super) place: SocketEntry,
    pub(super) address: SocketAddr,
    backlog: VecDeque<Key>,
}

#[derive(Debug)]
pub(super) struct End {
    place: Option<SocketEntry>,
    peer: Option<Key>,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    inbox: VecDeque<u8>,
    /// Bytes in transit to this end.
    coming: usize,
    /// When the last bytes in transit arrive; nothing overtakes them.
    last_arrival: Duration,
    /// Nothing follows what is in the inbox.
    ended: bool,
    broken: bool,
    /// Nothing arrives any more.
    silent: bool,
    closed: bool,
    /// Its closing is a reset, whatever it has read.
    discards: bool,
    /// Its closing is a reset if it comes from the end of its process.
    resets_at_death: bool,
    /// A send waits for the peer to read.
    wants_room: bool,
    /// What an outage has kept from this end and its peer's kernel will send again, in order.
    stuck: VecDeque<Event>,
    /// Its peer's kernel has forgotten what this end has not received.
    is_forgotten: bool,
}

impl End {
    fn new(place: Option<SocketEntry>, local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            place,
            peer: None,
            local,
            remote,
            inbox: VecDeque::new(),
            coming: 0,
            last_arrival: Duration::ZERO,
            ended: false,
            broken: false,
            silent: false,
            closed: false,
            discards: false,
            resets_at_death: false,
            wants_room: false,
            stuck: VecDeque::new(),
            is_forgotten: false,
        }
    }

    /// Whether nothing follows what is in the inbox.
    pub(super) fn has_hung_up(&self) -> bool {
        self.ended || self.broken
    }

    /// Whether this address is that of one of the two ends.
    fn is_at(&self, address: IpAddr) -> bool {
        [self.local.ip(), self.remote.ip()].contains(&address)
    }

    /// Whether a receive would not have to wait.
    pub(super) fn has_input(&self) -> bool {
        !self.inbox.is_empty() || self.ended || self.broken
    }
}

// Calls of reactors.
impl State {
    pub(super) fn listen(
        &mut self,
        place: SocketEntry,
        mut address: SocketAddr,
    ) -> Result<Key, Errno> {
        if address.port() == 0 {
            address.set_port(self.free_port(address.ip()));
        }
        if self.addresses.contains_key(&address) {
            return Err(Errno::ADDRINUSE);
        }
        let key = self.listeners.insert(Listener { place, address, backlog: VecDeque::new() });
        self.addresses.insert(address, key);
        Ok(key)
    }

    pub(super) fn close_listener(&mut self, key: Key) {
        let Some(listener) = self.listeners.remove(key) else { return };
        self.addresses.remove(&listener.address);
        for end in listener.backlog {
            self.close_end(end);
        }
    }

    /// Takes a connection out of a listener's backlog for the socket that `place` makes.
    pub(super) fn accept(
        &mut self,
        key: Key,
        place: impl FnOnce(Key) -> SocketEntry,
    ) -> Option<Key> {
        let listener = self.listeners.get_mut(key)?;
        let end = listener.backlog.pop_front()?;
        let place = place(end);
        self.place_end(end, place);
        Some(end)
    }

    pub(super) fn has_backlog(&self, key: Key) -> bool {
        self.listeners.get(key).is_some_and(|listener| !listener.backlog.is_empty())
    }

    /// Begins to connect. A notice has the result.
    pub(super) fn connect(
        &mut self,
        place: SocketEntry,
        address: SocketAddr,
        local: Option<SocketAddr>,
        timeout: Option<Duration>,
    ) -> Key {
        let mut local = local.unwrap_or_else(|| match address {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::LOCALHOST, 0)),
        });
        if local.port() == 0 {
            local.set_port(self.free_port(local.ip()));
        }
        let mut end = End::new(Some(place), local, address);
        end.resets_at_death = self.resets_at_death;
        let end = self.ends.insert(end);
        let at = self.now() + self.network_delay();
        self.schedule(at, Event::Attempt { end });
        if let Some(timeout) = timeout {
            let error = Errno::TIMEDOUT;
            self.schedule(self.now() + timeout, Event::Refused { end, error });
        }
        end
    }

    /// Takes bytes out of an end's inbox.
    pub(super) fn receive(&mut self, key: Key, into: &mut [u8]) -> Result<usize, Errno> {
        let split = self.network.split_probability;
        let Some(end) = self.ends.get_mut(key) else { return Err(Errno::BADF) };
        if end.inbox.is_empty() {
            return match (end.broken, end.ended) {
                (true, _) => Err(Errno::CONNRESET),
                (false, true) => Ok(0),
                (false, false) => Err(Errno::AGAIN),
            };
        }
        let mut count = into.len().min(end.inbox.len());
        if count > 1 && self.random.chance(split) {
            count = 1 + below(&mut self.random, count);
        }
        end.inbox.read_exact(&mut into[..count]).map_err(|_| Errno::IO)?;
        let peer = end.peer;
        if let Some(peer) = peer
            && self.ends.get(peer).is_some_and(|peer| peer.wants_room)
        {
            let at = self.now() + self.network_delay();
            self.schedule(at, Event::Credit { end: peer });
        }
        Ok(count)
    }

    /// How many bytes an end can send now. `AGAIN`: none, and a notice follows when it can.
    pub(super) fn room(&mut self, key: Key) -> Result<usize, Errno> {
        let Some(end) = self.ends.get_mut(key) else { return Err(Errno::BADF) };
        if end.broken {
            return Err(Errno::PIPE);
        }
        let peer = end.peer.ok_or(Errno::NOTCONN)?;
        let held = self.ends.get(peer).map_or(0, |peer| peer.coming + peer.inbox.len());
        let room = self.network.window_bytes.max(1).saturating_sub(held);
        if room == 0 {
            if let Some(end) = self.ends.get_mut(key) {
                end.wants_room = true;
            }
            return Err(Errno::AGAIN);
        }
        Ok(room)
    }

    /// Sends bytes for which there is room.
    pub(super) fn send(&mut self, key: Key, bytes: Vec<u8>) {
        let Some(end) = self.ends.get(key) else { return };
        let Some(peer) = end.peer else { return };
        let now = self.now();
        let Some(intercept) = &mut self.interceptor.0 else {
            return self.send_to(peer, key, bytes);
        };
        for arrival in intercept(now, [end.local, end.remote], bytes) {
            match arrival {
                Interception::Forward(bytes) => self.send_to(peer, key, bytes),
                Interception::Back(bytes) => self.transmit(key, bytes),
                Interception::Cut => self.break_connection(key),
            }
        }
    }

    fn send_to(&mut self, peer: Key, key: Key, mut bytes: Vec<u8>) {
        if self.random.chance(self.network.silence_probability) {
            self.lose_peer(key);
        }
        if self.random.chance(self.network.reset_probability) {
            self.break_connection(key);
        }
        let mut rest = Vec::new();
        if bytes.len() > 1 && self.random.chance(self.network.split_probability) {
            rest = bytes.split_off(1 + below(&mut self.random, bytes.len() - 1));
        }
        self.transmit(peer, bytes);
        self.transmit(peer, rest);
    }

    fn transmit(&mut self, to: Key, bytes: Vec<u8>) {
        if !bytes.is_empty()
            && let Some(end) = self.ends.get_mut(to)
        {
            end.coming += bytes.len();
            self.schedule_arrival(to, |end| Event::Deliver { end, bytes });
        }
    }

    /// Closing this end discards what has not reached the peer. (Here sent data is in transit
    /// already, but a peer that has not read it by then sees a reset.)
    pub(super) fn discard_unsent(&mut self, key: Key) {
        if let Some(end) = self.ends.get_mut(key) {
            end.discards = true;
        }
    }

    /// The process that has this end is over.
    pub(super) fn process_ended(&mut self, key: Key) {
        if let Some(end) = self.ends.get_mut(key) {
            end.discards |= end.resets_at_death;
        }
    }

    /// Closes an end. Its peer is notified later, with a reset if something was left unread. Its
    /// kernel goes on sending what has not reached the peer, unless it is a reset.
    pub(super) fn close_end(&mut self, key: Key) {
        let Some(end) = self.ends.get_mut(key) else { return };
        end.closed = true;
        end.place = None;
        let is_out = is_out(&self.outages, end);
        let is_reset = end.discards || !end.inbox.is_empty() || (end.coming > 0 && !is_out);
        let Some(peer) = end.peer else {
            self.ends.remove(key);
            return;
        };
        match self.ends.get_mut(peer) {
            Some(other) if other.closed => {
                self.ends.remove(peer);
                self.ends.remove(key);
            }
            Some(other) if is_reset => {
                other.is_forgotten = true;
                other.stuck.clear();
                self.schedule_arrival(peer, |end| Event::Reset { end });
            }
            _ => self.schedule_arrival(peer, |end| Event::Finish { end }),
        }
    }

    pub(super) fn detach(&mut self, key: Key) -> Detached {
        if let Some(end) = self.ends.get_mut(key) {
            end.place = None;
        }
        let alive = Arc::new(());
        self.detached.push((key, Arc::downgrade(&alive)));
        Detached { end: key, _alive: alive }
    }

    pub(super) fn attach(&mut self, detached: &Detached, place: SocketEntry) {
        self.detached.retain(|(key, _)| *key != detached.end);
        self.place_end(detached.end, place);
    }

    pub(super) fn close_dropped_streams(&mut self) {
        let is_dropped = |alive: &Weak<()>| alive.strong_count() == 0;
        while let Some(position) = self.detached.iter().position(|(_, alive)| is_dropped(alive)) {
            let (end, _) = self.detached.remove(position);
            self.close_end(end);
        }
    }

    /// What asking the peer of an end would show.
    pub(super) fn life(&self, key: Key) -> Life {
        let Some(end) = self.ends.get(key) else { return Life::Doubtful };
        match end.peer.and_then(|peer| self.ends.get(peer)) {
            Some(peer) if end.broken || !peer.stuck.is_empty() => Life::Doubtful,
            Some(_) if end.silent || is_out(&self.outages, end) => Life::Asked,
            // Its kernel answers: with a reset if it has forgotten the connection.
            Some(_) if end.is_forgotten => Life::Doubtful,
            Some(_) => Life::Shown,
            None => Life::Doubtful,
        }
    }

    /// Begins or ends the outage of an address: until then nothing reaches its connections. What
    /// TCP sends again arrives a while afterwards, as long as the outage was at most, because the
    /// time between two attempts doubles.
    pub(super) fn set_outage(&mut self, address: IpAddr, is_out: bool) {
        let now = self.now();
        if is_out {
            self.outages.entry(address).or_insert(now);
            return;
        }
        let Some(began) = self.outages.remove(&address) else { return };
        let waiting: Vec<Key> = self
            .ends
            .iter()
            .filter(|(_, end)| !end.stuck.is_empty() && end.is_at(address))
            .map(|(key, _)| key)
            .collect();
        for end in waiting {
            let at = now + self.delay(Duration::ZERO, now.saturating_sub(began));
            self.schedule(at, Event::Again { end });
        }
    }

    pub(super) fn reset_by_address(&mut self, address: SocketAddr) -> bool {
        let found = self.end_at(address);
        found.inspect(|key| self.break_connection(*key)).is_some()
    }

    pub(super) fn silence_by_address(&mut self, address: SocketAddr) -> bool {
        let found = self.end_at(address);
        found.inspect(|key| self.lose_peer(*key)).is_some()
    }
}

// Events.
impl State {
    /// What an outage lets through of an event. A reset is sent once; the rest is sent again.
    pub(super) fn cross(&mut self, event: Event) -> Option<Event> {
        let (Event::Deliver { end: key, .. }
        | Event::Finish { end: key }
        | Event::Reset { end: key }
        | Event::Credit { end: key }
        | Event::Attempt { end: key }
        | Event::Established { end: key }) = &event
        else {
            return Some(event);
        };
        let (key, is_reset) = (*key, matches!(event, Event::Reset { .. }));
        let Some(end) = self.ends.get_mut(key) else { return Some(event) };
        let is_out = is_out(&self.outages, end);
        // Nothing but a reset overtakes what is to be sent again.
        if !is_out && (is_reset || end.stuck.is_empty()) {
            return Some(event);
        }
        if matches!(event, Event::Attempt { .. }) {
            let at = self.now() + ATTEMPT_RETRY;
            self.schedule(at, event);
        } else if !is_reset && !end.is_forgotten {
            end.stuck.push_back(event);
        }
        None
    }

    /// What an outage has kept from an end arrives, unless there is another one.
    pub(super) fn send_again(&mut self, key: Key) {
        let Some(end) = self.ends.get_mut(key) else { return };
        if !is_out(&self.outages, end) {
            for event in std::mem::take(&mut end.stuck) {
                self.happen(event);
            }
        }
    }

    pub(super) fn deliver(&mut self, key: Key, bytes: &[u8]) {
        let Some(end) = self.ends.get_mut(key) else { return };
        if end.silent || end.broken {
            return; // what is swallowed still fills the window
        }
        end.coming = end.coming.saturating_sub(bytes.len());
        if end.closed {
            // The receiver is gone: the sender gets a reset.
            if let Some(peer) = end.peer {
                self.schedule_arrival(peer, |end| Event::Reset { end });
            }
            return;
        }
        end.inbox.extend(bytes);
        self.notify_end(key);
    }

    pub(super) fn finish(&mut self, key: Key) {
        let Some(end) = self.ends.get_mut(key) else { return };
        if !end.silent {
            end.ended = true;
            self.notify_end(key);
        }
    }

    pub(super) fn reset(&mut self, key: Key) {
        let Some(end) = self.ends.get_mut(key) else { return };
        if !end.silent {
            // What it has received can still be read.
            end.broken = true;
            self.notify_end(key);
        }
    }

    pub(super) fn credit(&mut self, key: Key) {
        let Some(end) = self.ends.get_mut(key) else { return };
        if !end.silent && end.wants_room {
            end.wants_room = false;
            self.notify_end(key);
        }
    }

    pub(super) fn connect_now(&mut self, key: Key) {
        let Some(end) = self.ends.get(key) else { return };
        let (local, remote) = (end.local, end.remote);
        let is_refused = self.random.chance(self.network.refusal_probability);
        let answer = self.now() + self.network_delay();
        let listener = self.listener_for(remote).filter(|_| !is_refused);
        let Some(listener) = listener else {
            return self.schedule(answer, Event::Refused { end: key, error: Errno::CONNREFUSED });
        };
        let mut peer = End::new(None, remote, local);
        peer.peer = Some(key);
        let peer = self.ends.insert(peer);
        if let Some(end) = self.ends.get_mut(key) {
            end.peer = Some(peer);
        }
        if let Some(listener) = self.listeners.get_mut(listener) {
            listener.backlog.push_back(peer);
            let place = listener.place;
            self.notify(place.reactor, Notice::Changed(place.socket));
        }
        self.schedule_arrival(key, |end| Event::Established { end });
    }

    pub(super) fn established(&mut self, key: Key) {
        if let Some(place) = self.ends.get(key).and_then(|end| end.place) {
            self.notify(place.reactor, Notice::Connected(place.socket));
        }
    }

    /// Its reactor ignores it if the connection is established by now or was given up.
    pub(super) fn refused(&mut self, key: Key, error: Errno) {
        if let Some(place) = self.ends.get(key).and_then(|end| end.place) {
            self.notify(place.reactor, Notice::NotConnected(place.socket, error));
        }
    }

    fn place_end(&mut self, key: Key, place: SocketEntry) {
        if let Some(end) = self.ends.get_mut(key) {
            end.place = Some(place);
        }
    }

    fn notify_end(&mut self, key: Key) {
        if let Some(place) = self.ends.get(key).and_then(|end| end.place) {
            self.notify(place.reactor, Notice::Changed(place.socket));
        }
    }

    /// Schedules an arrival at an end, after all that is in transit to it already.
    fn schedule_arrival(&mut self, key: Key, event: impl FnOnce(Key) -> Event) {
        let at = self.now() + self.network_delay();
        let Some(end) = self.ends.get_mut(key) else { return };
        end.last_arrival = end.last_arrival.max(at);
        let at = end.last_arrival;
        self.schedule(at, event(key));
    }

    fn break_connection(&mut self, key: Key) {
        let peer = self.ends.get(key).and_then(|end| end.peer);
        for end in [Some(key), peer].into_iter().flatten() {
            self.schedule_arrival(end, |end| Event::Reset { end });
        }
    }

    fn lose_peer(&mut self, key: Key) {
        let peer = self.ends.get(key).and_then(|end| end.peer);
        for key in [Some(key), peer].into_iter().flatten() {
            if let Some(end) = self.ends.get_mut(key) {
                end.silent = true;
            }
        }
    }

    fn network_delay(&mut self) -> Duration {
        self.delay(self.network.latency, self.network.jitter)
    }

    fn end_at(&self, address: SocketAddr) -> Option<Key> {
        self.ends.iter().find(|(_, end)| end.local == address).map(|(key, _)| key)
    }

    /// The listener that a connection to `address` reaches: of this address or of any.
    fn listener_for(&self, address: SocketAddr) -> Option<Key> {
        let port = address.port();
        let anywhere = [
            Some(address),
            address.is_ipv4().then_some(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))),
            Some(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))),
        ];
        let key = anywhere.into_iter().flatten().find_map(|it| self.addresses.get(&it)).copied();
        key.filter(|key| self.listeners.get(*key).is_some_and(|it| it.backlog.len() < BACKLOG))
    }

    fn free_port(&mut self, ip: IpAddr) -> u16 {
        loop {
            let port = self.next_port;
            self.next_port = self.next_port.checked_add(1).unwrap_or(32_768);
            let address = SocketAddr::new(ip, port);
            if !self.addresses.contains_key(&address) && self.end_at(address).is_none() {
                return port;
            }
        }
    }
}

fn is_out(outages: &BTreeMap<IpAddr, Duration>, end: &End) -> bool {
    outages.keys().any(|address| end.is_at(*address))
}

/// A number below `end`.
fn below(random: &mut Random, end: usize) -> usize {
    usize::try_from(random.below(end as u64)).unwrap_or(0)
}
