//! Where hosts come in, whatever the transport.

use std::fmt;
use std::io;
use std::net::SocketAddr;

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

/// An address that hosts may come to.
///
/// Over TCP each arrives as a socket ([`weft_reactor::Outcome::Accepted`]) under the listener's
/// token; otherwise there is news ([`weft_reactor::Outcome::News`]) of hosts that ask for a queue
/// ([`Listener::next_incoming`]).
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
    /// Listens, and takes in who comes. Port 0 takes a free one.
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
        listener.go_on(reactor, token);
        Ok(listener)
    }

    /// Takes in who comes again: after accepting has failed for want of a descriptor, and when a
    /// timer of the listener's token says so, because its device has gone.
    pub fn go_on(&mut self, reactor: &mut Reactor, token: Token) {
        match &mut self.inner {
            Inner::Tcp(listener) => {
                reactor.submit(token, Operation::Accept { listener: *listener });
            }
            Inner::Rdma(listener) => listener.go_on(reactor),
            Inner::Loopback(_) => {}
        }
    }

    /// The next host that asks for a queue.
    pub fn next_incoming(&mut self, reactor: &mut Reactor) -> Option<Incoming> {
        let inner = match &mut self.inner {
            Inner::Tcp(_) => return None,
            Inner::Rdma(listener) => Asking::Rdma(listener.accept(reactor)?),
            Inner::Loopback(listener) => Asking::Loopback(listener.accept()?),
        };
        Some(Incoming { inner })
    }

    /// The address, with the port that was chosen.
    pub fn local_address(&self, reactor: &Reactor) -> io::Result<SocketAddr> {
        match &self.inner {
            Inner::Tcp(listener) => reactor.local_address(*listener),
            Inner::Rdma(listener) => Ok(listener.local_address()),
            Inner::Loopback(listener) => Ok(listener.local_address()),
        }
    }

    /// Listens no longer.
    pub fn close(self, reactor: &mut Reactor) {
        if let Inner::Tcp(listener) = self.inner {
            reactor.close_listener(listener);
        }
    }
}

/// A host that asks for a queue, on its way to the reactor that is to hold it: once it is
/// accepted it stays there. Dropped, it is refused.
#[derive(Debug)]
pub struct Incoming {
    pub(crate) inner: Asking,
}

#[derive(Debug)]
pub(crate) enum Asking {
    Rdma(rdma::Incoming),
    Loopback(loopback::Incoming),
}

impl Incoming {
    /// The address that the host came to.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        match &self.inner {
            Asking::Rdma(incoming) => incoming.local_address(),
            Asking::Loopback(incoming) => incoming.local_address(),
        }
    }

    /// The address that the host came from.
    #[must_use]
    pub fn peer_address(&self) -> SocketAddr {
        match &self.inner {
            Asking::Rdma(incoming) => incoming.peer_address(),
            Asking::Loopback(incoming) => incoming.peer_address(),
        }
    }

    /// Tells the host that there is no room.
    pub fn refuse(self) {
        match self.inner {
            Asking::Rdma(incoming) => incoming.reject(),
            Asking::Loopback(incoming) => drop(incoming),
        }
    }
}
