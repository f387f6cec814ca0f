//! Transport addresses as URLs: `tcp://127.0.0.1:4420`, `rdma://192.0.2.1:4420`, and within a
//! process `loopback://127.0.0.1:4420`.

use std::borrow::Cow;
use std::fmt;
use std::net::{AddrParseError, IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use weft_nvme::log_page::TransportType;
pub use weft_transport::Transport;

use super::text;

/// The port that IANA gave to NVMe over Fabrics.
const NVME_PORT: u16 = 4420;

/// A transport and an address on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct Listen {
    /// The transport.
    pub transport: Transport,
    /// Its address.
    pub address: SocketAddr,
}

impl Listen {
    /// NVMe/TCP at an address.
    #[must_use]
    pub const fn tcp(address: SocketAddr) -> Self {
        Self { transport: Transport::Tcp, address }
    }

    /// Its transport in a discovery log.
    pub(crate) const fn transport_type(&self) -> TransportType {
        match self.transport {
            Transport::Tcp => TransportType::TCP,
            Transport::Rdma => TransportType::RDMA,
            Transport::Loopback => TransportType::INTRA_HOST,
        }
    }

    /// NVMe over RDMA at an address.
    #[must_use]
    pub const fn rdma(address: SocketAddr) -> Self {
        Self { transport: Transport::Rdma, address }
    }

    /// An address of this process.
    #[must_use]
    pub const fn loopback(address: SocketAddr) -> Self {
        Self { transport: Transport::Loopback, address }
    }

    /// An address as TRADDR has it, in which a link-local one has its interface.
    ///
    /// # Errors
    /// It is no IP address, or its interface is not here.
    pub fn at(transport: Transport, traddr: &str, port: u16) -> Result<Self, ParseListenError> {
        let is_v6 = traddr.contains(':');
        let ip = if is_v6 { format!("[{traddr}]") } else { traddr.to_owned() };
        format!("{transport}://{ip}:{port}").parse()
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.transport, socket_text(self.address))
    }
}

/// Why a text is not a transport address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseListenError {
    text: String,
    why: Cow<'static, str>,
}

impl fmt::Display for ParseListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} {} (try tcp://127.0.0.1:4420 or rdma://192.0.2.1:4420)",
            self.text, self.why
        )
    }
}

impl std::error::Error for ParseListenError {}

impl FromStr for Listen {
    type Err = ParseListenError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fault = |why| ParseListenError { text: text.to_owned(), why };
        let error = |why: &'static str| fault(why.into());
        let (scheme, address) = text
            .trim()
            .split_once("://")
            .ok_or_else(|| error("does not start with a transport and ://"))?;
        let scheme = scheme.to_ascii_lowercase();
        let transport = scheme.parse().map_err(|_| match scheme.as_str() {
            "roce" | "iwarp" => error("is an RDMA address, which begins with rdma://"),
            "loop" | "fc" | "pcie" => error("names a transport that is not served"),
            _ => error("names an unknown transport"),
        })?;
        let address = address.strip_suffix('/').unwrap_or(address);
        if let Ok(address) = address.parse::<SocketAddr>() {
            return Ok(Self { transport, address });
        }
        let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Ok(ip) = bare.unwrap_or(address).parse::<IpAddr>() {
            return Ok(Self { transport, address: SocketAddr::new(ip, NVME_PORT) });
        }
        if let Some(address) = zoned(address) {
            let address = address.map_err(|interface| fault(not_here(interface).into()))?;
            return Ok(Self { transport, address });
        }
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        if host.chars().any(|c| c.is_ascii_alphabetic()) && !host.contains(':') {
            return Err(error("has a host name where a listener needs an IP address"));
        }
        Err(error("has no IP address and port"))
    }
}

/// The IP address of a socket as it is shown and kept on this machine: a link-local one has the
/// name of its interface, whose number may be another interface's after the next start of the
/// machine. It has neither in a discovery log.
#[must_use]
pub fn traddr(address: SocketAddr) -> String {
    match address {
        SocketAddr::V6(of) if of.scope_id() != 0 => {
            let number = of.scope_id();
            // One that would not be read as a name is not written as one.
            let is_name =
                |name: &String| name.parse::<u32>().is_err() && !name.contains([']', '%', '/']);
            let name = weft_reactor::interface_name(number).filter(is_name);
            format!("{}%{}", of.ip(), name.unwrap_or_else(|| number.to_string()))
        }
        _ => address.ip().to_string(),
    }
}

/// An address and port, with the name of a link-local address's interface.
pub(super) fn socket_text(address: SocketAddr) -> String {
    let (ip, port) = (traddr(address), address.port());
    if address.is_ipv6() { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

/// An address and port; a link-local address has its interface by name or number.
///
/// # Errors
/// What is wrong with the text.
pub fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().or_else(|error: AddrParseError| match zoned(text) {
        Some(Ok(address)) => Ok(address),
        Some(Err(interface)) => Err(format!("{text:?} {}", not_here(interface))),
        None => Err(error.to_string()),
    })
}

/// Serde form of the address of a socket, which may be missing; a link-local one has its interface.
pub(super) mod optional {
    use super::{SocketAddr, socket_address, socket_text};
    use serde::de::{Deserialize, Deserializer, Error as _};
    use serde::ser::Serializer;

    pub(in crate::config) fn serialize<S: Serializer>(
        address: &Option<SocketAddr>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match address {
            Some(address) => serializer.serialize_str(&socket_text(*address)),
            None => serializer.serialize_none(),
        }
    }

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SocketAddr>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| socket_address(&text).map_err(D::Error::custom)).transpose()
    }
}

fn not_here(interface: &str) -> String {
    format!(
        "names the interface {interface:?}, which is not here: `ip link` lists those of this \
         machine"
    )
}

/// An IPv6 address with a zone, which is the name or the number of an interface. None: it is none;
/// a zone of no interface is the error.
fn zoned(text: &str) -> Option<Result<SocketAddr, &str>> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => (text, ""),
    };
    let (ip, zone) = host.split_once('%')?;
    ip.parse::<Ipv6Addr>().ok()?;
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().ok()?,
        None if port.is_empty() => NVME_PORT,
        None => return None,
    };
    // The system's resolver knows the interfaces; it asks nobody for a literal address.
    Some((host, port).to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or(zone))
}

/// Another discovery service, or a subsystem of another target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Referral {
    /// Where it answers.
    pub address: Listen,
    /// Its port's id, 0 if that is not known.
    #[serde(default, skip_serializing_if = "text::is_default")]
    pub port_id: u16,
    /// The subsystem; none: the discovery service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subsystem: Option<String>,
}

impl Referral {
    /// Whether both lead to the same.
    #[must_use]
    pub fn is_to_that_of(&self, other: &Self) -> bool {
        (self.address, &self.subsystem) == (other.address, &other.subsystem)
    }
}

impl fmt::Display for Referral {
    /// The URL of what it leads to.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, subsystem, .. } = self;
        write!(f, "{address}")?;
        subsystem.as_ref().map_or(Ok(()), |nqn| write!(f, "/{nqn}"))
    }
}

impl FromStr for Referral {
    type Err = ParseListenError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // What is behind the third slash.
        let nqn = text.splitn(4, '/').nth(3).filter(|nqn| !nqn.is_empty());
        let address = nqn.and_then(|nqn| text.strip_suffix(nqn)).unwrap_or(text).parse()?;
        Ok(Self { address, port_id: 0, subsystem: nqn.map(str::to_owned) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_every_form_are_read() {
        for (text, address) in [
            ("tcp://127.0.0.1:4420", "127.0.0.1:4420"),
            ("TCP://0.0.0.0:0", "0.0.0.0:0"),
            ("tcp://[::]:4420", "[::]:4420"),
            ("tcp://[::1]", "[::1]:4420"),
            ("tcp://::1", "[::1]:4420"),
            ("tcp://10.0.0.1", "10.0.0.1:4420"),
            ("tcp://10.0.0.1:8009/", "10.0.0.1:8009"),
            ("tcp://[fe80::1%2]:4420", "[fe80::1%2]:4420"),
            ("tcp://[fe80::1%lo]:4420", "[fe80::1%1]:4420"),
            ("tcp://[fe80::1%lo]", "[fe80::1%1]:4420"),
            ("tcp://fe80::1%lo", "[fe80::1%1]:4420"),
        ] {
            let listen: Listen = text.parse().expect(text);
            assert_eq!(listen, Listen::tcp(address.parse().expect("an address")), "{text}");
        }
        let listen: Listen = "rdma://192.0.2.1".parse().expect("an address");
        assert_eq!(listen, Listen::rdma("192.0.2.1:4420".parse().expect("an address")));
        assert_eq!(listen.to_string(), "rdma://192.0.2.1:4420");
        let listen: Listen = "loopback://127.0.0.1:0".parse().expect("an address");
        assert_eq!(listen, Listen::loopback("127.0.0.1:0".parse().expect("an address")));
        assert_eq!(listen.to_string(), "loopback://127.0.0.1:0");
        let listen = Listen::tcp("[::1]:4420".parse().expect("an address"));
        assert_eq!(listen.to_string().parse(), Ok(listen));
    }

    #[test]
    fn an_interface_is_kept_wherever_an_address_is_read_and_shown() {
        for (text, shown) in [
            ("fe80::1%lo", "fe80::1%lo"),
            ("fe80::1%1", "fe80::1%lo"),
            ("fe80::1%4000000", "fe80::1%4000000"),
            ("fe80::1", "fe80::1"),
            ("192.0.2.1", "192.0.2.1"),
        ] {
            let listen = Listen::at(Transport::Tcp, text, 4421).expect(text);
            assert_eq!((traddr(listen.address).as_str(), listen.address.port()), (shown, 4421));
            assert_eq!(Listen::at(Transport::Tcp, shown, 4421).as_ref(), Ok(&listen));
            let url = if text.contains(':') { format!("[{shown}]") } else { shown.to_owned() };
            assert_eq!(listen.to_string(), format!("tcp://{url}:4421"));
            assert_eq!(listen.to_string().parse().as_ref(), Ok(&listen));
        }
        assert_eq!(socket_address("[fe80::1%lo]:1").map(traddr).as_deref(), Ok("fe80::1%lo"));
        assert_eq!(socket_address("192.0.2.1:1").map(traddr).as_deref(), Ok("192.0.2.1"));
        let error = socket_address("[fe80::1%no-such-link]:1").expect_err("no interface");
        assert!(
            error.contains("names the interface \"no-such-link\", which is not here"),
            "{error}"
        );
    }

    #[test]
    fn a_referral_has_the_url_of_what_it_leads_to() {
        for text in ["tcp://192.0.2.7:8009", "rdma://[::1]:4420/nqn.2024-01.org.example:a/b"] {
            let referral: Referral = text.parse().expect(text);
            assert_eq!(referral.to_string(), text);
            assert_eq!(referral.subsystem.is_some(), text.contains("nqn"));
        }
    }

    #[test]
    fn a_bad_address_says_why() {
        for (text, why) in [
            ("127.0.0.1:4420", "does not start"),
            ("roce://10.0.0.1:4420", "rdma://"),
            ("fc://x", "not served"),
            ("udp://10.0.0.1:1", "unknown transport"),
            ("tcp://storage:4420", "host name"),
            ("tcp://storage", "host name"),
            ("tcp://", "no IP address"),
            ("tcp://1.2.3.4:99999", "no IP address"),
            ("tcp://[fe80::1%no-such-link]:4420", "\"no-such-link\", which is not here"),
            ("tcp://1.2.3:1", "no IP address"),
            ("", "does not start"),
        ] {
            let error = text.parse::<Listen>().expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
