//! A target that was made of other software's parts.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::time::Duration;

use weft_host::{Transport, TransportId};
use weft_reactor::monotonic_time;
use weft_rpc::Client;
use weft_rpc::machine::Machine;

use super::changes::Changes;
use crate::environment;
use crate::study::given::protocol_name;
use crate::study::launch::{StartedTarget, TargetSpec};

/// Where a target that is to be made listens.
#[derive(Clone, Copy, Debug)]
pub(in crate::study) struct Port {
    transport: Transport,
    /// Its address.
    pub(in crate::study) at: IpAddr,
    /// Its number.
    pub(in crate::study) service: u16,
}

impl Port {
    /// A free one: at the given address, or else at one that hosts of this machine reach.
    pub(in crate::study) fn free(
        spec: &TargetSpec,
        listen: Option<IpAddr>,
    ) -> Result<Self, String> {
        let at = match spec.transport {
            Transport::Rdma => {
                let address = listen.or_else(environment::rdma_address);
                address.ok_or("no RDMA device has an IP address")?
            }
            _ => listen.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        };
        // A number that is free for TCP. RDMA's are apart, and have no better way to be found.
        let free = TcpListener::bind((at, 0)).and_then(|listener| listener.local_addr());
        let free = free.map_err(|error| format!("cannot listen at {at}: {error}"))?;
        Ok(Self { transport: spec.transport, at, service: free.port() })
    }

    /// `ipv4` or `ipv6`.
    pub(in crate::study) const fn family(&self) -> &'static str {
        if self.at.is_ipv4() { "ipv4" } else { "ipv6" }
    }

    /// The address of a subsystem there.
    pub(in crate::study) fn address(&self, nqn: &str) -> Result<TransportId, String> {
        let id = TransportId::tcp(&self.at.to_string(), Some(self.service));
        let id = id.map_err(|error| error.to_string())?;
        let subnqn = Some(nqn.parse().map_err(|error| format!("{error}"))?);
        Ok(TransportId { transport: self.transport, subnqn, ..id })
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", protocol_name(self.transport), self.at, self.service)
    }
}

/// A target that ends with this value.
pub(in crate::study) struct ForeignTarget {
    /// Of whom it is: `the kernel's`.
    pub(in crate::study) whose: &'static str,
    pub(in crate::study) changes: Changes,
    /// There is at least one subsystem.
    pub(in crate::study) addresses: Vec<TransportId>,
    /// Why it has ended, if it has.
    pub(in crate::study) ended: Box<dyn Fn() -> Option<String> + Send>,
}

impl fmt::Debug for ForeignTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignTarget").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl StartedTarget for ForeignTarget {
    fn address(&self) -> &TransportId {
        &self.addresses[0]
    }

    fn addresses(&self) -> Vec<TransportId> {
        self.addresses.clone()
    }

    fn has_control(&self) -> bool {
        false
    }

    fn control(&self) -> Result<Client, String> {
        Err(format!("{} target has no control connection of weft", self.whose))
    }

    fn machine(&self) -> Result<Option<(Duration, Machine)>, String> {
        Ok(Some((monotonic_time(), Machine::read())))
    }

    fn ended(&mut self) -> Option<String> {
        (self.ended)()
    }

    fn stop(mut self: Box<Self>) -> Result<(), String> {
        self.changes.undo()
    }
}
