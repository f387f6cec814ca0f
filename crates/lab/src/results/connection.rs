//! Both ends of what was measured.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

/// A connection between a host and a target, as it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The protocol that it spoke: `tcp`, `rdma` or `loopback` (within a process).
    pub protocol: String,
    /// The name of the link that it went over, if it has one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub link: String,
    /// The host's address.
    pub host: SocketAddr,
    /// The target's address.
    pub target: SocketAddr,
    /// Whether both ends are on one machine although their addresses differ: in namespaces or
    /// containers.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub one_machine: bool,
    /// I/O queues that the target has granted. weft's host opens one for each job of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_queues: Option<u16>,
    /// The type of service that the host's socket has, where the cell sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tos: Option<u8>,
    /// The priority that it has (`SO_PRIORITY`), where the cell sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub so_priority: Option<u32>,
}

impl Connection {
    /// A connection without a named link.
    #[must_use]
    pub fn new(protocol: &str, host: SocketAddr, target: SocketAddr) -> Self {
        let (protocol, link) = (protocol.to_owned(), String::new());
        let (io_queues, tos, so_priority) = (None, None, None);
        Self { protocol, link, host, target, one_machine: false, io_queues, tos, so_priority }
    }

    /// The same connection, of which is known whether both ends are on one machine.
    #[must_use]
    pub(crate) fn within(self, one_machine: bool) -> Self {
        Self { one_machine, ..self }
    }

    /// A connection over this machine's loopback interface, of which the ports are not known.
    #[must_use]
    pub fn over_loopback(protocol: &str) -> Self {
        let end = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        Self::new(protocol, end, end)
    }

    /// Whether both ends are on one machine.
    #[must_use]
    pub fn is_within_a_machine(&self) -> bool {
        self.one_machine || self.protocol == "loopback" || self.host.ip() == self.target.ip()
    }

    /// Whether another connection speaks the same protocol over the same link between the same
    /// two ends, whatever the ports.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        self.protocol == other.protocol
            && self.link == other.link
            && self.host.ip() == other.host.ip()
            && self.target.ip() == other.target.ip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(protocol: &str, host: &str, target: &str) -> Connection {
        let end = |text: &str| text.parse().expect("an address");
        Connection::new(protocol, end(host), end(target))
    }

    #[test]
    fn connections_are_alike_by_protocol_link_and_ends() {
        let tcp = connection("tcp", "10.0.0.1:40000", "10.0.0.2:4420");
        assert!(tcp.is_like(&connection("tcp", "10.0.0.1:50000", "10.0.0.2:9")));
        for other in [
            connection("rdma", "10.0.0.1:40000", "10.0.0.2:4420"),
            connection("tcp", "10.0.0.9:40000", "10.0.0.2:4420"),
            connection("tcp", "10.0.0.1:40000", "127.0.0.1:4420"),
            Connection { link: "eth1g".to_owned(), ..tcp.clone() },
        ] {
            assert!(!tcp.is_like(&other), "{other:?}");
        }
        assert!(!tcp.is_within_a_machine());
        assert!(connection("rdma", "10.0.0.1:1", "10.0.0.1:2").is_within_a_machine());
        assert!(Connection::over_loopback("tcp").is_within_a_machine());
        assert!(tcp.clone().within(true).is_within_a_machine(), "two namespaces of one machine");
        assert!(!tcp.within(false).is_within_a_machine());
    }

    #[test]
    fn protocol_and_link_are_separate_fields() {
        let plain = connection("tcp", "127.0.0.1:1", "127.0.0.1:2");
        let text = serde_json::to_string(&plain).expect("a text");
        let expected = r#"{"protocol":"tcp","host":"127.0.0.1:1","target":"127.0.0.1:2"}"#;
        assert_eq!(text, expected);
        let named = expected.replace("\"host\"", "\"link\":\"eth1g\",\"host\"");
        let read: Connection = serde_json::from_str(&named).expect("a connection");
        assert_eq!((read.protocol.as_str(), read.link.as_str()), ("tcp", "eth1g"));
    }
}
