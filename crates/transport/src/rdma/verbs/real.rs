//! The devices of this machine, through libibverbs and librdmacm.
//!
//! Both libraries are loaded when they are first needed, so that the same binary runs without them.
//! The types here destroy their C objects in the right order: a queue pair before its identifier,
//! completion queue and protection domain; regions and queues before their domain; identifiers
//! before their event channel.

mod abi;
mod device;
mod endpoint;
mod events;
mod identifier;
mod library;

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use super::types::{self, Parameters, PrivateData};
use abi::event;
pub(crate) use device::{CompletionQueue, Device, Domain, Region};
pub use device::{LocalDevice, devices};
pub(crate) use endpoint::Endpoint;
use identifier::{Channel, Identifier};

type ManagerEvent = types::ManagerEvent<Incoming>;
type CmEvent = types::CmEvent<Incoming>;

#[derive(Debug)]
pub(crate) struct Manager {
    channel: Arc<Channel>,
}

impl Manager {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { channel: Channel::open()? })
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.channel.descriptor())
    }

    pub(super) fn listen(&mut self, address: SocketAddr, backlog: u32) -> io::Result<Listener> {
        let identifier = Identifier::new(&self.channel, 0)?;
        identifier.bind(address)?;
        identifier.listen(backlog)?;
        Ok(Listener { identifier })
    }

    pub(super) fn resolve(
        &mut self,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        timeout: Duration,
    ) -> io::Result<Endpoint> {
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // The route is resolved with the same time-out, after the address.
        let user = usize::try_from(timeout_ms).unwrap_or(0);
        let identifier = Identifier::new(&self.channel, user)?;
        identifier.resolve(remote, local, timeout_ms)?;
        Ok(Endpoint::new(identifier))
    }

    pub(super) fn adopt(&mut self, incoming: Incoming) -> io::Result<Endpoint> {
        Ok(Endpoint::new(incoming.adopt(&self.channel)?))
    }

    pub(super) fn poll(&mut self) -> io::Result<Option<ManagerEvent>> {
        loop {
            let mut raw = ptr::null_mut();
            let functions = self.channel.functions;
            // SAFETY: the channel is alive and does not block; `raw` is written to.
            let result = library::done(unsafe {
                (functions.rdma_get_cm_event)(self.channel.raw(), &raw mut raw)
            });
            match result {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
                Ok(()) => {}
            }
            let raw = library::made(raw)?;
            // SAFETY: the event is alive until it is acknowledged below.
            let told = self.read(unsafe { raw.as_ref() });
            // SAFETY: it came from `rdma_get_cm_event`; all that was of use in it was copied.
            library::done(unsafe { (functions.rdma_ack_cm_event)(raw.as_ptr()) })?;
            if let Some(event) = told {
                return Ok(Some(event));
            }
        }
    }

    /// Converts an event, if it is of interest.
    fn read(&self, event: &abi::Event) -> Option<ManagerEvent> {
        let failed =
            |step| CmEvent::Failed { step, error: event.status.checked_abs().unwrap_or(0) };
        let cm_event = match event.kind {
            event::ADDRESS_RESOLVED => self.ask_for_route(event.identifier),
            event::ROUTE_RESOLVED => CmEvent::RouteResolved,
            event::CONNECT_REQUEST => {
                let identifier = NonNull::new(event.identifier)?;
                // SAFETY: a request brings a new identifier on this channel, which nobody has.
                let identifier = unsafe { Identifier::received(identifier, &self.channel) };
                let incoming = Incoming { identifier: Some(identifier) };
                let requested =
                    CmEvent::Requested { incoming, parameters: parameters(&event.connection) };
                let key = identifier::key(event.listener);
                return Some(ManagerEvent { key, event: requested });
            }
            event::ESTABLISHED => {
                CmEvent::Established { parameters: parameters(&event.connection) }
            }
            event::REJECTED => CmEvent::Rejected {
                reason: event.status,
                private_data: parameters(&event.connection).private_data,
            },
            event::ADDRESS_ERROR => failed("the address has no RDMA device"),
            event::ROUTE_ERROR => failed("there is no route to the address"),
            event::CONNECT_ERROR => failed("the connection cannot be made"),
            event::UNREACHABLE => failed("the peer does not answer"),
            event::DISCONNECTED => CmEvent::Disconnected,
            event::DEVICE_REMOVAL => CmEvent::DeviceRemoved,
            event::ADDRESS_CHANGE => CmEvent::AddressChanged,
            // `TIMEWAIT_EXIT` (the connection has ended before), multicast and others.
            _ => return None,
        };
        Some(ManagerEvent { key: identifier::key(event.identifier), event: cm_event })
    }

    fn ask_for_route(&self, identifier: *mut abi::Identifier) -> CmEvent {
        let resolve = self.channel.functions.rdma_resolve_route;
        // SAFETY: the identifier is alive until its events are acknowledged: this thread destroys
        // it, and the destruction waits for that.
        let result = library::done(unsafe {
            let timeout_ms = i32::try_from((*identifier).user.addr()).unwrap_or(i32::MAX);
            resolve(identifier, timeout_ms)
        });
        match result {
            Ok(()) => CmEvent::AddressResolved,
            Err(error) => CmEvent::Failed {
                step: "the route cannot be asked for",
                error: error.raw_os_error().unwrap_or(0),
            },
        }
    }
}

fn parameters(connection: &abi::Connection) -> Parameters {
    let length = usize::from(connection.private_data_length);
    let bytes = if connection.private_data.is_null() {
        &[]
    } else {
        // SAFETY: the event is not acknowledged yet and holds as many bytes as it says.
        unsafe { std::slice::from_raw_parts(connection.private_data.cast::<u8>(), length) }
    };
    Parameters {
        private_data: PrivateData::new(bytes),
        responder_resources: connection.responder_resources,
        initiator_depth: connection.initiator_depth,
    }
}

#[derive(Debug)]
pub(crate) struct Listener {
    identifier: Identifier,
}

impl Listener {
    pub(super) fn key(&self) -> u64 {
        self.identifier.key()
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        self.identifier.local_address()
    }
}

#[derive(Debug)]
pub(crate) struct Incoming {
    /// `None` once adopted or rejected.
    identifier: Option<Identifier>,
}

impl Incoming {
    pub(super) fn reject(mut self, private_data: &[u8]) {
        if let Some(identifier) = self.identifier.take() {
            reject(&identifier, private_data);
        }
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        self.identifier.as_ref().ok_or(io::ErrorKind::NotConnected)?.local_address()
    }

    pub(super) fn peer_address(&self) -> io::Result<SocketAddr> {
        self.identifier.as_ref().ok_or(io::ErrorKind::NotConnected)?.peer_address()
    }

    fn adopt(mut self, channel: &Arc<Channel>) -> io::Result<Identifier> {
        let mut identifier = self.identifier.take().ok_or(io::ErrorKind::NotConnected)?;
        if let Err(error) = identifier.migrate(channel) {
            reject(&identifier, &[]);
            return Err(error);
        }
        Ok(identifier)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(identifier) = self.identifier.take() {
            reject(&identifier, &[]);
        }
    }
}

fn reject(identifier: &Identifier, private_data: &[u8]) {
    if let Err(error) = identifier.reject(private_data) {
        log::debug!("an RDMA connection request cannot be rejected: {error}");
    }
}
