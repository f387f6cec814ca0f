//! Connections of a controller's queues: their options, the data of their commands, and their ends.

use weft_nvmf::host::{AdminData, Side, Transport};
use weft_reactor::Pool;
use weft_transport::CloseReason;
use weft_transport::host::{HostData, HostOptions, TransportOptions};

use crate::limits;
use crate::shared::Shared;

/// The data of a command in a buffer of the pool; `None` if that has none.
pub(crate) fn host_data(data: &AdminData, pool: &Pool) -> Option<HostData> {
    Some(match data {
        AdminData::None => HostData::None,
        AdminData::ToController(bytes) => {
            let mut buffer = pool.take_reserved(bytes.len())?;
            buffer.bytes_mut().copy_from_slice(bytes);
            HostData::ToController(buffer)
        }
        AdminData::FromController(length) => {
            HostData::FromController(pool.take_reserved(*length as usize)?)
        }
    })
}

/// The transport of a queue of this controller.
pub(crate) fn transport_options(
    shared: &Shared,
    queue_id: u16,
    controller_id: u16,
) -> TransportOptions {
    match shared.options.address.transport {
        Transport::Tcp => TransportOptions::Tcp,
        Transport::Rdma => TransportOptions::Rdma { queue_id, controller_id },
        Transport::Loopback => TransportOptions::Loopback,
    }
}

/// The transport's options for both kinds of queues.
pub(crate) fn host_options(shared: &Shared) -> HostOptions {
    let options = &shared.options;
    HostOptions {
        header_digest: options.hdr_digest,
        data_digest: options.data_digest,
        local: options.host_traddr.map(|local| std::net::SocketAddr::new(local, 0)),
        remote_access: options.rdma_access,
        marking: options.marking(),
        timeout: options.connect_timeout,
        close_timeout: limits::CLOSE_TIMEOUT,
        ..HostOptions::default()
    }
}

/// Which side ended a connection.
pub(crate) const fn side_of(reason: &CloseReason) -> Side {
    match reason {
        CloseReason::Requested(_)
        | CloseReason::PeerTerminated { .. }
        | CloseReason::NotRegistered
        | CloseReason::NoMemoryWindows => Side::Local,
        CloseReason::PeerClosed
        | CloseReason::Protocol(_)
        | CloseReason::Violation(_)
        | CloseReason::Tls(_)
        | CloseReason::Refused(_) => Side::Peer,
        CloseReason::HandshakeTimeout
        | CloseReason::Work(_)
        | CloseReason::Device(_)
        | CloseReason::DeviceRemoved
        | CloseReason::AddressChanged
        | CloseReason::Io { .. } => Side::Io,
    }
}
