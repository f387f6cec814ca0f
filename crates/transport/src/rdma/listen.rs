//! Listeners and connection requests.

use std::io;
use std::net::SocketAddr;

use weft_nvme::Wire;
use weft_nvme::rdma::{RejectPrivateData, RejectStatus};
use weft_nvmf::limits::RDMA_QUEUE_ENTRIES_MAX;
use weft_nvmf::rdma::Request;
use weft_reactor::{Reactor, Token};

use super::engine::{Engine, Role};
use super::verbs::{self, CmEvent};
use crate::limits::RDMA_LISTEN_RETRY;
use crate::subscriptions::Subscription;

/// The maximum number of pending connection requests.
const BACKLOG: u32 = 128;

/// An address to which hosts connect. Its events ([`weft_reactor::Outcome::SourceEvents`]) have its
/// token.
#[derive(Debug)]
pub struct Listener {
    /// `None` while there is no device.
    inner: Option<verbs::Listener>,
    address: SocketAddr,
    token: Token,
    subscription: Subscription,
    engine: Engine,
}

/// A connection request of a host, on the way to the reactor that accepts it. It is rejected if it
/// is dropped.
#[derive(Debug)]
pub struct Incoming {
    pub(super) inner: verbs::Incoming,
    pub(super) request: Request,
    /// The number of outstanding RDMA READs that the host accepts.
    pub(super) initiator_depth: u8,
    local: SocketAddr,
    peer: SocketAddr,
}

impl Listener {
    /// Listens. Port 0 takes a free one, which is kept when the device is removed.
    pub fn listen(reactor: &mut Reactor, token: Token, address: SocketAddr) -> io::Result<Self> {
        let engine = Engine::of(reactor, Role::Target)?;
        let inner = engine.with_manager(|manager| manager.listen(address, BACKLOG))?;
        let subscription = engine.subscribe(inner.key(), token)?;
        let address = inner.local_address()?;
        Ok(Self { inner: Some(inner), address, token, subscription, engine })
    }

    /// The address with the actual port.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Listens again if the device was removed; if there is none, sets a timer
    /// ([`weft_reactor::Outcome::Timer`], under its token) for the next attempt.
    pub fn retry(&mut self, reactor: &mut Reactor) {
        if self.inner.is_some() {
            return;
        }
        match self.engine.with_manager(|manager| manager.listen(self.address, BACKLOG)) {
            Ok(inner) => {
                log::info!("rdma://{}: listening again", self.address);
                self.engine.set_key(self.subscription, inner.key());
                self.inner = Some(inner);
            }
            Err(error) => {
                log::debug!("rdma://{}: {error}", self.address);
                let at = reactor.now().saturating_add(RDMA_LISTEN_RETRY);
                reactor.set_timer(self.token, at);
            }
        }
    }

    /// The device is being removed, which waits until everything created on it is freed.
    fn handle_device_removal(&mut self, reactor: &mut Reactor) {
        if self.inner.take().is_some() {
            let address = self.address;
            log::warn!(
                "rdma://{address}: the device was removed; no host can connect until there is one"
            );
            let at = reactor.now().saturating_add(RDMA_LISTEN_RETRY);
            reactor.set_timer(self.token, at);
        }
    }

    /// The next connection request. Invalid ones are rejected here.
    pub fn accept(&mut self, reactor: &mut Reactor) -> Option<Incoming> {
        loop {
            let event = self.engine.take_event(self.subscription)?;
            if matches!(event, CmEvent::DeviceRemoved) {
                self.handle_device_removal(reactor);
            }
            let CmEvent::Requested { incoming, parameters } = event else { continue };
            let (Ok(local), Ok(peer)) = (incoming.local_address(), incoming.peer_address()) else {
                continue;
            };
            match Request::parse(parameters.private_data.bytes(), RDMA_QUEUE_ENTRIES_MAX) {
                Ok(request) => {
                    let initiator_depth = parameters.initiator_depth;
                    return Some(Incoming {
                        inner: incoming,
                        request,
                        initiator_depth,
                        local,
                        peer,
                    });
                }
                Err(reason) => {
                    log::info!("{peer}: RDMA connection request rejected: {reason}");
                    incoming.reject(RejectPrivateData::new(reason).bytes());
                }
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.engine.unsubscribe(self.subscription);
    }
}

impl Incoming {
    /// The address that the host connected to.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// The address of the host.
    #[must_use]
    pub fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    /// Rejects the request for lack of resources.
    pub fn reject(self) {
        self.inner.reject(RejectPrivateData::new(RejectStatus::NO_RESOURCES).bytes());
    }
}
