//! Listeners of all transports.

use std::net::SocketAddr;
use std::str::FromStr;
use std::{fmt, io};

use weft_reactor::{ListenerId, Operation, Reactor, Token};

use crate::{loopback, rdma};

/// A transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// NVMe/TCP.
    Tcp,
    /// NVMe over RDMA.
    Rdma,
    /// Within the process.
    Loopback,
}

impl fmt::Display for Transport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
            Self::Loopback => "loopback",
        })
    }
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = [Self::Tcp, Self::Rdma, Self::Loopback].into_iter();
        let found = all.find(|one| one.to_string().eq_ignore_ascii_case(text));
        found.ok_or_else(|| format!("{text:?} is no transport; give tcp or rdma"))
    }
}

/// An address to which hosts connect.
///
/// Over TCP each connection arrives as a socket ([`weft_reactor::Outcome::Accepted`]) under the
/// listener's token; over the other transports events ([`weft_reactor::Outcome::SourceEvents`])
/// announce a host's request for a queue ([`Listener::next_incoming`]).
#[derive(Debug)]
pub struct Listener {
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Tcp(ListenerId),
    Rdma(rdma::Listener),
    Loopback(loopback::Listener),
}

impl Listener {
    /// Listens and accepts. Port 0 takes a free one.
    pub fn listen(
        reactor: &mut Reactor,
        token: Token,
        transport: Transport,
        address: SocketAddr,
    ) -> io::Result<Self> {
        let inner = match transport {
            Transport::Tcp => Inner::Tcp(reactor.listen(address)?),
            Transport::Rdma => Inner::Rdma(rdma::Listener::listen(reactor, token, address)?),
            Transport::Loopback => {
                Inner::Loopback(loopback::Listener::listen(reactor, token, address)?)
            }
        };
        let mut listener = Self { inner };
        listener.retry(reactor, token);
        Ok(listener)
    }

    /// Accepts again after it has failed for want of a descriptor, and after a timer with the
    /// listener's token, which is set while its device is missing.
    pub fn retry(&mut self, reactor: &mut Reactor, token: Token) {
        match &mut self.inner {
            Inner::Tcp(listener) => {
                reactor.submit(token, Operation::Accept { listener: *listener });
            }
            Inner::Rdma(listener) => listener.retry(reactor),
            Inner::Loopback(_) => {}
        }
    }

    /// The next request of a host for a queue.
    pub fn next_incoming(&mut self, reactor: &mut Reactor) -> Option<Incoming> {
        let inner = match &mut self.inner {
            Inner::Tcp(_) => return None,
            Inner::Rdma(listener) => RequestState::Rdma(listener.accept(reactor)?),
            Inner::Loopback(listener) => RequestState::Loopback(listener.accept()?),
        };
        Some(Incoming { inner })
    }

    /// The address with the actual port.
    pub fn local_address(&self, reactor: &Reactor) -> io::Result<SocketAddr> {
        match &self.inner {
            Inner::Tcp(listener) => reactor.local_address(*listener),
            Inner::Rdma(listener) => Ok(listener.local_address()),
            Inner::Loopback(listener) => Ok(listener.local_address()),
        }
    }

    /// Stops listening.
    pub fn close(self, reactor: &mut Reactor) {
        if let Inner::Tcp(listener) = self.inner {
            reactor.close_listener(listener);
        }
    }
}

/// A host's request for a queue, on the way to the reactor that accepts it and keeps the
/// connection. It is refused if it is dropped.
#[derive(Debug)]
pub struct Incoming {
    pub(crate) inner: RequestState,
}

#[derive(Debug)]
pub(crate) enum RequestState {
    Rdma(rdma::Incoming),
    Loopback(loopback::Incoming),
}

impl Incoming {
    /// The address that the host connected to.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        match &self.inner {
            RequestState::Rdma(incoming) => incoming.local_address(),
            RequestState::Loopback(incoming) => incoming.local_address(),
        }
    }

    /// The address of the host.
    #[must_use]
    pub fn peer_address(&self) -> SocketAddr {
        match &self.inner {
            RequestState::Rdma(incoming) => incoming.peer_address(),
            RequestState::Loopback(incoming) => incoming.peer_address(),
        }
    }

    /// Refuses the request for lack of resources.
    pub fn refuse(self) {
        match self.inner {
            RequestState::Rdma(incoming) => incoming.reject(),
            RequestState::Loopback(incoming) => drop(incoming),
        }
    }
}
