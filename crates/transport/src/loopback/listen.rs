//! Listeners, and the table of this process's loopback addresses.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_reactor::{Borrower, Reactor, Token};

use super::hub::{Address, Hub, Message};
use crate::subscriptions::Subscription;

/// The first port chosen when none is given.
const EPHEMERAL: u16 = 49_152;

static TABLE: Mutex<Table> = Mutex::new(Table { listeners: BTreeMap::new(), next_port: EPHEMERAL });

/// The listeners. Only listening and connecting lock the table.
#[derive(Debug)]
struct Table {
    listeners: BTreeMap<SocketAddr, Address>,
    next_port: u16,
}

impl Table {
    fn lock() -> MutexGuard<'static, Self> {
        // The table is consistent even if a thread has panicked with the lock.
        TABLE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = port.checked_add(1).unwrap_or(EPHEMERAL);
        port
    }

    /// An unused address with a port of its own.
    fn free(&mut self, ip: IpAddr) -> io::Result<SocketAddr> {
        for _ in EPHEMERAL..=u16::MAX {
            let address = SocketAddr::new(ip, self.take_port());
            if !self.listeners.contains_key(&address) {
                return Ok(address);
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }
}

/// The listener at an address, and a local address for the host that connects.
pub(super) fn find(
    remote: SocketAddr,
    local: Option<SocketAddr>,
) -> io::Result<(Address, SocketAddr)> {
    let mut table = Table::lock();
    let listener = table.listeners.get(&remote).cloned();
    let listener = listener.ok_or(io::ErrorKind::ConnectionRefused)?;
    let ip = local.map_or(remote.ip(), |local| local.ip());
    Ok((listener, SocketAddr::new(ip, table.take_port())))
}

/// An address in this process to which hosts connect. Its owner is notified under its token
/// ([`weft_reactor::Outcome::SourceEvents`]).
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    subscription: Subscription,
    hub: Hub,
}

impl Listener {
    /// Listens. Port 0 takes a free one.
    pub fn listen(reactor: &mut Reactor, token: Token, address: SocketAddr) -> io::Result<Self> {
        let hub = Hub::of(reactor);
        let mut table = Table::lock();
        let address = match address.port() {
            0 => table.free(address.ip())?,
            _ if table.listeners.contains_key(&address) => {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            _ => address,
        };
        let (subscription, to) = hub.subscribe(token)?;
        table.listeners.insert(address, to);
        Ok(Self { address, subscription, hub })
    }

    /// The address with the actual port.
    #[must_use]
    pub const fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// The next request of a host.
    pub fn accept(&mut self) -> Option<Incoming> {
        loop {
            match self.hub.take(self.subscription)? {
                Message::Request(incoming) if !incoming.is_closed_by_host() => {
                    return Some(incoming);
                }
                // A listener gets no other messages.
                _ => {}
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        Table::lock().listeners.remove(&self.address);
        self.hub.unsubscribe(self.subscription);
    }
}

/// A host's request for a queue, on the way to the reactor that accepts it. It is refused if it is
/// dropped.
#[derive(Debug)]
pub struct Incoming {
    pub(super) request: Option<Request>,
    local: SocketAddr,
    peer: SocketAddr,
}

/// What the target needs for a connection.
#[derive(Debug)]
pub(super) struct Request {
    /// Where to send responses.
    pub(super) host: Address,
    /// Access to the data of each slot's command.
    pub(super) data: Vec<Borrower>,
    /// Set when the host closes the connection: its earlier commands must not be executed.
    pub(super) host_closed: Arc<AtomicBool>,
}

impl Incoming {
    pub(super) const fn new(request: Request, local: SocketAddr, peer: SocketAddr) -> Self {
        Self { request: Some(request), local, peer }
    }

    /// The address that the host connected to.
    #[must_use]
    pub const fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// The address of the host.
    #[must_use]
    pub const fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    fn is_closed_by_host(&self) -> bool {
        self.request.as_ref().is_none_or(|request| request.host_closed.load(Ordering::Acquire))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            request.host.send(Message::Refused);
        }
    }
}
