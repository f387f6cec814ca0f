//! Where a subsystem is reached: a transport id in the notation of SPDK, or a URL.
//!
//! Both notations name the same thing, so both are parsed into one [`TransportId`]:
//!
//! ```text
//! trtype:TCP adrfam:IPv6 traddr:::1 trsvcid:4420 subnqn:nqn.2024-01.io.example:disk nsid:1
//! nvme-tcp://[::1]:4420/nqn.2024-01.io.example:disk?nsid=1
//! ```
//!
//! A URL may name several endpoints of one subsystem, each with a transport of its own if that is
//! another than the one before:
//!
//! ```text
//! nvme-tcp://192.0.2.1:4420,192.0.2.2:4420,nvme-rdma://198.51.100.1/nqn.2024-01.io.example:disk
//! ```
//!
//! A transport address may be a host name; turning names into addresses needs I/O and is done by
//! the crate above.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use weft_nvme::Nqn;

/// The port that IANA assigned to NVMe over Fabrics.
pub const PORT_NVME: u16 = 4420;
/// The port that IANA assigned to discovery over NVMe/TCP.
pub const PORT_DISCOVERY: u16 = 8009;
/// Longest text that is looked at: room for the longest host name and NQN, percent-encoded.
pub const TEXT_BYTES_MAX: usize = 2048;
/// Longest transport address (TRADDR is a field of 256 bytes).
pub const TRADDR_BYTES_MAX: usize = 255;

/// Transport Type (TRTYPE).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// NVMe over TCP.
    Tcp,
    /// NVMe over RDMA.
    Rdma,
    /// Within the process.
    Loopback,
}

impl Transport {
    const ALL: [Self; 3] = [Self::Tcp, Self::Rdma, Self::Loopback];

    /// The name as SPDK and nvme-cli print it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Rdma => "RDMA",
            Self::Loopback => "LOOPBACK",
        }
    }

    const fn scheme(self) -> &'static str {
        match self {
            Self::Tcp => "nvme-tcp",
            Self::Rdma => "nvme-rdma",
            Self::Loopback => "nvme-loopback",
        }
    }

    /// The transport of this name, in any case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|transport| transport.name().eq_ignore_ascii_case(name))
    }

    fn from_scheme(scheme: &str) -> Option<Self> {
        // "nvme+tcp" is what boot firmware tables and nvme-cli write, "tcp" what a target's
        // listener is called.
        let scheme = scheme.replace('+', "-");
        Self::ALL.into_iter().find(|transport| {
            transport.scheme().eq_ignore_ascii_case(&scheme)
                || transport.name().eq_ignore_ascii_case(&scheme)
        })
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Address Family (ADRFAM).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressFamily {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl AddressFamily {
    /// The name as SPDK prints it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        }
    }

    /// The family of a literal address; `None` for a host name.
    #[must_use]
    pub fn of(traddr: &str) -> Option<Self> {
        let without_zone = traddr.split('%').next().unwrap_or(traddr);
        if traddr.parse::<Ipv4Addr>().is_ok() {
            Some(Self::Ipv4)
        } else if without_zone.parse::<Ipv6Addr>().is_ok() {
            Some(Self::Ipv6)
        } else {
            None
        }
    }
}

impl fmt::Display for AddressFamily {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A further place at which a subsystem is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Transport Type.
    pub transport: Transport,
    /// Address Family, if the address is a literal.
    pub family: Option<AddressFamily>,
    /// Transport Address.
    pub traddr: String,
    /// Transport Service Identifier: the port, where one was given.
    pub trsvcid: Option<u16>,
}

/// How a subsystem, and if wanted one of its namespaces, is reached.
///
/// `FromStr` takes both notations; `Display` prints the URL, [`TransportId::spdk`] the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportId {
    /// Transport Type.
    pub transport: Transport,
    /// Address Family, where one was asked for or the address is a literal.
    pub family: Option<AddressFamily>,
    /// Transport Address: an IPv4 or IPv6 address (without brackets) or a host name.
    pub traddr: String,
    /// Transport Service Identifier: the port, where one was given; see [`TransportId::port`].
    pub trsvcid: Option<u16>,
    /// NVM Subsystem NVMe Qualified Name.
    pub subnqn: Option<Nqn>,
    /// Namespace Identifier.
    pub nsid: Option<u32>,
    /// Further endpoints of the subsystem: other paths to it.
    pub more: Vec<Endpoint>,
}

impl TransportId {
    /// A TCP address without subsystem and namespace.
    pub fn tcp(traddr: &str, trsvcid: Option<u16>) -> Result<Self, AddressError> {
        AddressFields {
            traddr: Some(traddr.to_owned()),
            trsvcid,
            ..AddressFields::new(Transport::Tcp)
        }
        .finish()
    }

    /// The port to connect to: the one given, else 8009 where discovery over TCP is meant (no
    /// subsystem NQN, or the discovery NQN), else 4420.
    #[must_use]
    pub fn port(&self) -> u16 {
        let discovery = self.is_discovery() && self.transport == Transport::Tcp;
        let assigned = if discovery { PORT_DISCOVERY } else { PORT_NVME };
        self.trsvcid.unwrap_or(assigned)
    }

    /// Whether no NVM subsystem is named: only discovery can be meant.
    #[must_use]
    pub fn is_discovery(&self) -> bool {
        self.subnqn.as_ref().is_none_or(Nqn::is_discovery)
    }

    /// Whether it names several endpoints.
    #[must_use]
    pub fn is_multipath(&self) -> bool {
        !self.more.is_empty()
    }

    /// The interface of a link-local address, if it has one.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        self.traddr.split_once('%').map(|(_, zone)| zone)
    }

    /// The same at this interface, if it is a link-local address without one: a discovery log does
    /// not know the interfaces of a host, which reaches what it lists by the one of the log.
    #[must_use]
    pub fn in_zone(mut self, zone: Option<&str>) -> Self {
        let ip = self.traddr.parse::<Ipv6Addr>();
        if let Some(zone) = zone.filter(|_| ip.is_ok_and(|ip| ip.is_unicast_link_local())) {
            self.traddr = format!("{}%{zone}", self.traddr);
        }
        self
    }

    /// Each endpoint as an address of its own.
    pub fn endpoints(&self) -> impl Iterator<Item = Self> + use<> {
        let first = Self { more: Vec::new(), ..self.clone() };
        let subsystem = first.clone();
        let others = self.more.clone().into_iter().map(move |endpoint| Self {
            transport: endpoint.transport,
            family: endpoint.family,
            traddr: endpoint.traddr,
            trsvcid: endpoint.trsvcid,
            ..subsystem.clone()
        });
        core::iter::once(first).chain(others)
    }

    /// The notation of SPDK, with the port written out; of the first endpoint if there are several.
    #[must_use]
    pub fn spdk(&self) -> String {
        let mut text = format!("trtype:{}", self.transport);
        if let Some(family) = self.family {
            text += &format!(" adrfam:{family}");
        }
        text += &format!(" traddr:{} trsvcid:{}", self.traddr, self.port());
        if let Some(subnqn) = &self.subnqn {
            text += &format!(" subnqn:{subnqn}");
        }
        if let Some(nsid) = self.nsid {
            text += &format!(" nsid:{nsid}");
        }
        text
    }
}

impl fmt::Display for TransportId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://", self.transport.scheme())?;
        write_authority(formatter, &self.traddr, self.trsvcid)?;
        let mut before = self.transport;
        for endpoint in &self.more {
            formatter.write_str(",")?;
            if endpoint.transport != before {
                write!(formatter, "{}://", endpoint.transport.scheme())?;
                before = endpoint.transport;
            }
            write_authority(formatter, &endpoint.traddr, endpoint.trsvcid)?;
        }
        if let Some(subnqn) = &self.subnqn {
            write!(formatter, "/{}", Encoded(subnqn.as_str()))?;
        }
        let mut mark = '?';
        if let (Some(family), None) = (self.family, AddressFamily::of(&self.traddr)) {
            write!(formatter, "{mark}adrfam={family}")?;
            mark = '&';
        }
        if let Some(nsid) = self.nsid {
            write!(formatter, "{mark}nsid={nsid}")?;
        }
        Ok(())
    }
}

fn write_authority(
    formatter: &mut fmt::Formatter<'_>,
    traddr: &str,
    port: Option<u16>,
) -> fmt::Result {
    if traddr.contains(':') {
        write!(formatter, "[{}]", Encoded(traddr))?;
    } else {
        write!(formatter, "{}", Encoded(traddr))?;
    }
    match port {
        Some(port) => write!(formatter, ":{port}"),
        None => Ok(()),
    }
}

impl FromStr for TransportId {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(AddressError::TooLong(text.len()));
        }
        let text = text.trim();
        match text.split_once("://") {
            Some((scheme, rest)) if !scheme.contains(char::is_whitespace) => {
                parse_url(scheme, rest)
            }
            _ => parse_spdk(text),
        }
    }
}

/// Why a text is no [`TransportId`]; each prints as one sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressError {
    /// The text is longer than [`TEXT_BYTES_MAX`].
    TooLong(usize),
    /// Neither notation was recognised.
    Unrecognised(String),
    /// A URL with another scheme.
    Scheme(String),
    /// A transport that is not known.
    Transport(String),
    /// A part that must be there is missing.
    Missing(&'static str),
    /// A part was given twice.
    Duplicate(&'static str),
    /// A key that means nothing here.
    Key(String),
    /// A word without `key:value` shape.
    Word(String),
    /// A value that its key cannot have.
    Value {
        /// What the value was for.
        what: &'static str,
        /// What was written.
        value: String,
        /// What is wrong with it.
        why: String,
    },
}

impl fmt::Display for AddressError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(bytes) => {
                write!(formatter, "an address of {bytes} bytes is longer than {TEXT_BYTES_MAX}")
            }
            Self::Unrecognised(text) => write!(
                formatter,
                "'{text}' is neither a transport id (trtype:TCP traddr:… trsvcid:… subnqn:…) \
                 nor a URL (nvme-tcp://host:port/nqn?nsid=1)"
            ),
            Self::Scheme(scheme) => {
                write!(formatter, "the URL scheme '{scheme}' is not nvme-tcp or nvme-rdma")
            }
            Self::Transport(name) => write!(formatter, "the transport '{name}' is not known"),
            Self::Missing(what) => write!(formatter, "the address lacks its {what}"),
            Self::Duplicate(what) => write!(formatter, "the address has more than one {what}"),
            Self::Key(key) => write!(formatter, "'{key}' is no part of an address"),
            Self::Word(word) => write!(formatter, "'{word}' has not the form key:value"),
            Self::Value { what, value, why } => {
                write!(formatter, "the {what} '{value}' {why}")
            }
        }
    }
}

impl core::error::Error for AddressError {}

/// The parts of an address as they are found.
#[derive(Debug)]
struct AddressFields {
    transport: Option<Transport>,
    family: Option<AddressFamily>,
    traddr: Option<String>,
    trsvcid: Option<u16>,
    subnqn: Option<Nqn>,
    nsid: Option<u32>,
}

impl AddressFields {
    fn new(transport: Transport) -> Self {
        Self { transport: Some(transport), ..Self::empty() }
    }

    const fn empty() -> Self {
        Self {
            transport: None,
            family: None,
            traddr: None,
            trsvcid: None,
            subnqn: None,
            nsid: None,
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), AddressError> {
        match key.to_ascii_lowercase().as_str() {
            "trtype" => {
                let transport = Transport::from_name(value)
                    .ok_or_else(|| AddressError::Transport(value.to_owned()))?;
                put(&mut self.transport, "trtype", transport)
            }
            "adrfam" => put(&mut self.family, "adrfam", parse_family(value)?),
            "traddr" => {
                let literal = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
                put(&mut self.traddr, "traddr", literal.unwrap_or(value).to_owned())
            }
            "trsvcid" => put(&mut self.trsvcid, "trsvcid", parse_port(value)?),
            "subnqn" | "nqn" => put(&mut self.subnqn, "subnqn", parse_nqn(value)?),
            "nsid" | "ns" => put(&mut self.nsid, "nsid", parse_nsid(value)?),
            _ => Err(AddressError::Key(key.to_owned())),
        }
    }

    fn finish(self) -> Result<TransportId, AddressError> {
        let transport = self.transport.ok_or(AddressError::Missing("trtype"))?;
        let traddr = self.traddr.ok_or(AddressError::Missing("traddr"))?;
        check_traddr(&traddr)?;
        let literal = AddressFamily::of(&traddr);
        if let (Some(asked), Some(literal)) = (self.family, literal)
            && asked != literal
        {
            return Err(bad("traddr", &traddr, format!("is not {asked}")));
        }
        Ok(TransportId {
            transport,
            family: self.family.or(literal),
            traddr,
            trsvcid: self.trsvcid,
            subnqn: self.subnqn,
            nsid: self.nsid,
            more: Vec::new(),
        })
    }
}

fn put<T>(place: &mut Option<T>, what: &'static str, value: T) -> Result<(), AddressError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(AddressError::Duplicate(what)),
    }
}

fn bad(what: &'static str, value: &str, why: impl Into<String>) -> AddressError {
    AddressError::Value { what, value: value.to_owned(), why: why.into() }
}

fn check_traddr(traddr: &str) -> Result<(), AddressError> {
    if traddr.is_empty() {
        return Err(AddressError::Missing("traddr"));
    }
    if traddr.len() > TRADDR_BYTES_MAX {
        return Err(bad("traddr", traddr, format!("is longer than {TRADDR_BYTES_MAX} bytes")));
    }
    let strange = |c: char| c.is_whitespace() || c.is_control() || "/?#[]@,".contains(c);
    if traddr.contains(strange) {
        return Err(bad("traddr", traddr, "has characters that no host name has"));
    }
    if traddr.contains(':') && AddressFamily::of(traddr).is_none() {
        return Err(bad("traddr", traddr, "is no IPv6 address"));
    }
    Ok(())
}

fn parse_family(value: &str) -> Result<AddressFamily, AddressError> {
    [AddressFamily::Ipv4, AddressFamily::Ipv6]
        .into_iter()
        .find(|family| family.name().eq_ignore_ascii_case(value))
        .ok_or_else(|| bad("adrfam", value, "is not IPv4 or IPv6"))
}

fn parse_port(value: &str) -> Result<u16, AddressError> {
    let decimal = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    match value.parse::<u16>() {
        Ok(port) if decimal && port != 0 => Ok(port),
        _ => Err(bad("port", value, "is not a number from 1 to 65535")),
    }
}

fn parse_nsid(value: &str) -> Result<u32, AddressError> {
    let decimal = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    match value.parse::<u32>() {
        Ok(nsid) if decimal && nsid != 0 && nsid != u32::MAX => Ok(nsid),
        _ => Err(bad("nsid", value, "is not a number from 1 to 4294967294")),
    }
}

fn parse_nqn(value: &str) -> Result<Nqn, AddressError> {
    value.parse().map_err(|error| bad("subnqn", value, format!("is not valid: {error}")))
}

fn parse_spdk(text: &str) -> Result<TransportId, AddressError> {
    let mut fields = AddressFields::empty();
    let mut words = text.split_whitespace().peekable();
    let Some(first) = words.peek() else {
        return Err(AddressError::Missing("trtype"));
    };
    if !first.contains([':', '=']) {
        return Err(AddressError::Unrecognised(text.to_owned()));
    }
    for word in words {
        let (key, value) =
            word.split_once([':', '=']).ok_or_else(|| AddressError::Word(word.to_owned()))?;
        fields.set(key, value)?;
    }
    fields.finish()
}

fn parse_url(scheme: &str, rest: &str) -> Result<TransportId, AddressError> {
    let transport =
        Transport::from_scheme(scheme).ok_or_else(|| AddressError::Scheme(scheme.to_owned()))?;
    let (first, others, rest) = split_endpoints(transport, rest)?;
    let mut fields = AddressFields::new(transport);
    if rest.contains('#') {
        return Err(bad("URL", rest, "has a fragment, which means nothing here"));
    }
    let (place, query) = match rest.split_once('?') {
        Some((place, query)) => (place, Some(query)),
        None => (rest, None),
    };
    parse_authority(&mut fields, first)?;
    let path = decode(place.strip_prefix('/').unwrap_or(place))?;
    if !path.is_empty() {
        fields.subnqn = Some(parse_nqn(&path)?);
    }
    for pair in query.unwrap_or("").split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some((key @ ("nsid" | "adrfam"), value)) => fields.set(key, &decode(value)?)?,
            Some((key, _)) => return Err(AddressError::Key(key.to_owned())),
            None => return Err(AddressError::Word(pair.to_owned())),
        }
    }
    let mut id = fields.finish()?;
    id.more = others;
    let is_repeated = |(at, one)| id.endpoints().take(at).any(|other| other == one);
    if id.endpoints().enumerate().any(is_repeated) {
        return Err(AddressError::Duplicate("endpoint of this place"));
    }
    Ok(id)
}

/// The first authority of a URL, the further endpoints, and what follows them.
fn split_endpoints(
    mut transport: Transport,
    mut rest: &str,
) -> Result<(&str, Vec<Endpoint>, &str), AddressError> {
    let end_of = |text: &str| text.find(['/', '?', '#', ',']).unwrap_or(text.len());
    let (first, mut after) = rest.split_at(end_of(rest));
    let mut others = Vec::new();
    while let Some(next) = after.strip_prefix(',') {
        rest = next;
        if let Some((scheme, behind)) = next.split_once("://")
            && !scheme.contains(['/', '?', '#', ','])
        {
            transport = Transport::from_scheme(scheme)
                .ok_or_else(|| AddressError::Scheme(scheme.to_owned()))?;
            rest = behind;
        }
        let (authority, behind) = rest.split_at(end_of(rest));
        let mut fields = AddressFields::new(transport);
        parse_authority(&mut fields, authority)?;
        let TransportId { family, traddr, trsvcid, .. } = fields.finish()?;
        others.push(Endpoint { transport, family, traddr, trsvcid });
        after = behind;
    }
    Ok((first, others, after))
}

fn parse_authority(fields: &mut AddressFields, authority: &str) -> Result<(), AddressError> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest
            .split_once(']')
            .ok_or_else(|| bad("traddr", authority, "has no closing bracket"))?;
        // RFC 6874 writes the `%` of a zone as `%25`; listeners print it as it is.
        let host = match host.split_once('%') {
            Some((ip, zone)) if zone.strip_prefix("25").is_none_or(str::is_empty) => {
                format!("{ip}%{}", decode(zone)?)
            }
            _ => decode(host)?,
        };
        if AddressFamily::of(&host) != Some(AddressFamily::Ipv6) {
            return Err(bad("traddr", &host, "stands in brackets but is no IPv6 address"));
        }
        match after.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if after.is_empty() => (host, None),
            None => return Err(bad("port", after, "does not begin with a colon")),
        }
    } else {
        match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(bad("traddr", authority, "is an IPv6 address without brackets"));
            }
            Some((host, port)) => (decode(host)?, Some(port)),
            None => (decode(authority)?, None),
        }
    };
    fields.traddr = Some(host);
    // "host:" is a URL with an empty port: the default one.
    fields.trsvcid = port.filter(|port| !port.is_empty()).map(parse_port).transpose()?;
    Ok(())
}

fn decode(text: &str) -> Result<String, AddressError> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let pair = digit(bytes.next()).zip(digit(bytes.next()));
        let value = pair.and_then(|(high, low)| u8::try_from(high << 4 | low).ok());
        decoded.push(value.ok_or_else(|| bad("URL part", text, "has a broken percent code"))?);
    }
    String::from_utf8(decoded).map_err(|_| bad("URL part", text, "is not UTF-8 when decoded"))
}

/// Text with every byte that a URL's path or host cannot hold as a percent code.
struct Encoded<'a>(&'a str);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => write!(formatter, "{}", byte as char)?,
                b'-' | b'.' | b'_' | b'~' | b':' | b'!' | b'$' | b'\'' | b'(' | b')' | b'*'
                | b'+' | b',' | b';' | b'=' => write!(formatter, "{}", byte as char)?,
                _ => write!(formatter, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:0cd7a2a5-8f5c-4c1f-9f0b-24d7d6a5b3b1";

    fn parse(text: &str) -> TransportId {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn refusal(text: &str) -> String {
        text.parse::<TransportId>().expect_err(text).to_string()
    }

    #[test]
    fn spdk_notation() {
        let id =
            parse(&format!("trtype:TCP adrfam:IPv4 traddr:192.0.2.7 trsvcid:4421 subnqn:{NQN}"));
        assert_eq!(id.transport, Transport::Tcp);
        assert_eq!(id.family, Some(AddressFamily::Ipv4));
        assert_eq!((id.traddr.as_str(), id.port(), id.nsid), ("192.0.2.7", 4421, None));
        assert_eq!(id.subnqn.as_ref().map(Nqn::as_str), Some(NQN));
        assert_eq!(
            id.spdk(),
            format!("trtype:TCP adrfam:IPv4 traddr:192.0.2.7 trsvcid:4421 subnqn:{NQN}")
        );
        let id = parse("  TrType=tcp\ttraddr=::1  ns=7 ");
        assert_eq!((id.traddr.as_str(), id.family), ("::1", Some(AddressFamily::Ipv6)));
        assert_eq!((id.nsid, id.port()), (Some(7), PORT_DISCOVERY));
    }

    #[test]
    fn urls() {
        let id = parse(&format!("nvme-tcp://storage.example:4421/{NQN}?nsid=3"));
        assert_eq!((id.traddr.as_str(), id.port(), id.nsid), ("storage.example", 4421, Some(3)));
        assert_eq!(id.family, None);
        assert_eq!(id.to_string(), format!("nvme-tcp://storage.example:4421/{NQN}?nsid=3"));
        for (text, traddr) in
            [("[fe80::1%lo]:4420", "fe80::1%lo"), ("[fe80::1%1]:4420", "fe80::1%1")]
        {
            assert_eq!(parse(&format!("tcp://{text}")).traddr, traddr);
        }
        let id = parse("NVMe+TCP://[fe80::1%25eth0]/nqn.2024-01.io%2Eexample%3Ax");
        assert_eq!((id.traddr.as_str(), id.port()), ("fe80::1%eth0", PORT_NVME));
        assert_eq!(id.subnqn.as_ref().map(Nqn::as_str), Some("nqn.2024-01.io.example:x"));
        assert_eq!(id.to_string(), "nvme-tcp://[fe80::1%25eth0]/nqn.2024-01.io.example:x");
        assert_eq!(parse("tcp://[::1]:4420").to_string(), "nvme-tcp://[::1]:4420");
        let id = parse("trtype:tcp adrfam:ipv6 traddr:storage.example nsid:2");
        assert_eq!(id.to_string(), "nvme-tcp://storage.example?adrfam=IPv6&nsid=2");
        assert_eq!(parse(&id.to_string()), id);
    }

    #[test]
    fn what_a_link_local_log_lists_is_at_its_interface() {
        let log = parse("nvme-tcp://[fe80::1%eth0]:8009");
        for (listed, reached) in [
            ("nvme-tcp://[fe80::2]:4420", "fe80::2%eth0"),
            ("nvme-tcp://[fe80::2%eth1]:4420", "fe80::2%eth1"),
            ("nvme-tcp://[2001:db8::2]:4420", "2001:db8::2"),
            ("nvme-tcp://192.0.2.1:4420", "192.0.2.1"),
        ] {
            assert_eq!(parse(listed).in_zone(log.zone()).traddr, reached);
            assert_eq!(parse(listed).in_zone(None), parse(listed));
        }
    }

    #[test]
    fn several_endpoints() {
        let text = format!("nvme-tcp://192.0.2.1,[::1]:4421,nvme-rdma://r:7,s/{NQN}?nsid=3");
        let id = parse(&text);
        assert_eq!(id.to_string(), text);
        assert!(id.is_multipath() && !parse("nvme-tcp://host/nqn.a,b").is_multipath());
        let each: Vec<String> = id.endpoints().map(|one| one.to_string()).collect();
        let one = |place: &str| format!("{place}/{NQN}?nsid=3");
        assert_eq!(
            each,
            [
                one("nvme-tcp://192.0.2.1"),
                one("nvme-tcp://[::1]:4421"),
                one("nvme-rdma://r:7"),
                one("nvme-rdma://s")
            ]
        );
        let again = parse("nvme-tcp://a,nvme-tcp://b?nsid=1");
        assert_eq!(again.to_string(), "nvme-tcp://a,b?nsid=1");
    }

    #[test]
    fn the_default_port_depends_on_the_transport_and_the_subsystem() {
        assert_eq!(parse("nvme-tcp://host").port(), PORT_DISCOVERY);
        assert_eq!(parse("nvme-tcp://host:/").port(), PORT_DISCOVERY);
        let discovery = "nvme-tcp://host/nqn.2014-08.org.nvmexpress.discovery";
        assert_eq!(parse(discovery).port(), PORT_DISCOVERY);
        assert_eq!(parse(&format!("nvme-tcp://host/{NQN}")).port(), PORT_NVME);
        assert_eq!(parse("nvme-tcp://host:4420").port(), 4420);
    }

    #[test]
    fn refusals_say_what_is_wrong_in_one_sentence() {
        for (text, words) in [
            ("", "the address lacks its trtype"),
            ("/dev/nvme0n1", "'/dev/nvme0n1' is neither a transport id"),
            ("http://host", "the URL scheme 'http' is not nvme-tcp"),
            ("trtype:FC traddr:1.2.3.4", "the transport 'FC' is not known"),
            ("trtype:TCP", "the address lacks its traddr"),
            ("trtype:TCP traddr:1.2.3.4 traddr:1.2.3.5", "more than one traddr"),
            ("trtype:TCP traddr:1.2.3.4 colour:blue", "'colour' is no part"),
            ("trtype:TCP blue", "'blue' has not the form key:value"),
            ("trtype:TCP adrfam:IPv6 traddr:1.2.3.4", "the traddr '1.2.3.4' is not IPv6"),
            ("trtype:TCP traddr:1:2:3", "is no IPv6 address"),
            ("trtype:TCP traddr:h trsvcid:70000", "the port '70000' is not a number"),
            ("trtype:TCP traddr:h trsvcid:+4420", "the port '+4420' is not a number"),
            ("trtype:TCP traddr:h nsid:0", "the nsid '0' is not a number"),
            ("trtype:TCP traddr:h subnqn:", "the subnqn '' is not valid: an NQN is empty"),
            ("nvme-tcp://::1/x", "is an IPv6 address without brackets"),
            ("nvme-tcp://[::1", "has no closing bracket"),
            ("nvme-tcp://[host]/", "stands in brackets but is no IPv6 address"),
            ("nvme-tcp://[::1]4420/", "does not begin with a colon"),
            ("nvme-tcp://user@host/", "has characters that no host name has"),
            ("nvme-tcp://host/nqn%2", "has a broken percent code"),
            ("nvme-tcp://host/%ff", "is not UTF-8"),
            ("nvme-tcp://host?nsid", "'nsid' has not the form"),
            ("nvme-tcp://host?nsid=1&nsid=2", "more than one nsid"),
            ("nvme-tcp://host?depth=1", "'depth' is no part"),
            ("nvme-tcp://host#1", "has a fragment"),
            ("nvme-tcp://", "the address lacks its traddr"),
            ("nvme-tcp://host,/x", "the address lacks its traddr"),
            ("nvme-tcp://host,http://other/x", "the URL scheme 'http' is not nvme-tcp"),
            ("nvme-tcp://host,host/x", "more than one endpoint of this place"),
            ("trtype:TCP traddr:a,b", "has characters that no host name has"),
        ] {
            let error = refusal(text);
            assert!(error.contains(words), "{text}: {error}");
            assert!(!error.contains('\n') && !error.ends_with('.'), "{error}");
        }
        assert!(refusal(&"x".repeat(TEXT_BYTES_MAX + 1)).contains("2049 bytes"));
    }

    #[test]
    fn every_truncation_of_a_good_address_is_handled() {
        for whole in [
            format!("nvme-tcp://[2001:db8::1%25eth0]:4420/{NQN}?nsid=12"),
            format!("nvme-tcp://[2001:db8::1]:4420,nvme-rdma://h:1,i/{NQN}?nsid=12"),
            format!("trtype:TCP adrfam:IPv6 traddr:2001:db8::1 trsvcid:4420 subnqn:{NQN} nsid:1"),
        ] {
            for length in 0..whole.len() {
                if let Ok(id) = whole[..length].parse::<TransportId>() {
                    assert_eq!(parse(&id.to_string()), id);
                }
            }
        }
    }

    const NAMES: &str = "nqn\\.2024-0[1-9]\\.io\\.example:[a-zA-Z0-9%:/?=&_ü-]{1,20}";

    proptest! {
        #[test]
        fn any_text_parses_or_says_why(text in "\\PC{0,80}") {
            if let Err(error) = text.parse::<TransportId>() {
                prop_assert!(!error.to_string().is_empty());
            }
        }

        #[test]
        fn both_notations_round_trip(
            host in "[a-z][a-z0-9.-]{0,20}|([0-9]{1,2}\\.){3}[0-9]{1,2}|2001:db8::[1-9a-f]",
            port in proptest::option::of(1u16..),
            name in proptest::option::of(NAMES),
            nsid in proptest::option::of(1u32..u32::MAX),
        ) {
            let id = TransportId {
                transport: Transport::Tcp,
                family: AddressFamily::of(&host),
                traddr: host,
                trsvcid: port,
                subnqn: name.map(|name| name.parse().expect("a good name")),
                nsid,
                more: Vec::new(),
            };
            prop_assert_eq!(&id.to_string().parse::<TransportId>().expect("URL"), &id);
            let spdk = id.spdk().parse::<TransportId>().expect("SPDK");
            prop_assert_eq!(spdk.port(), id.port());
            prop_assert_eq!(TransportId { trsvcid: id.trsvcid, ..spdk }, id);
        }
    }
}
