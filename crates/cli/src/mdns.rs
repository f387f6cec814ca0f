//! Discovery controllers that announce themselves on the local network by multicast DNS (TP8009):
//! how they are announced, and how they are found.

#[cfg(not(feature = "mdns"))]
mod absent;
#[cfg(feature = "mdns")]
mod present;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

#[cfg(not(feature = "mdns"))]
pub(crate) use self::absent::{Announcer, browse, check};
#[cfg(feature = "mdns")]
pub(crate) use self::present::{Announcer, browse, check};

/// The wildcards.
pub(crate) const ALL: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
pub(crate) const ALL_OF_IPV4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// What is announced: for each port and word for the transport the addresses; of wildcards 0.0.0.0
/// stands for every IPv4 address of the machine, and :: for every one.
pub(crate) type Services = BTreeMap<(u16, &'static str), BTreeSet<IpAddr>>;

/// A discovery controller that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiscoveredController {
    /// What announces it.
    pub(crate) name: String,
    /// What its addresses begin with.
    scheme: &'static str,
    pub(crate) nqn: String,
    addresses: Vec<SocketAddr>,
}

impl DiscoveredController {
    /// Its addresses, as other commands take them.
    pub(crate) fn urls(&self) -> impl Iterator<Item = String> {
        self.addresses.iter().map(|address| format!("{}://{address}", self.scheme))
    }
}
