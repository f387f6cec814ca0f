//! From a transport address to socket addresses: literals, and host names by the system's
//! resolver (which blocks).

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use weft_nvmf::host::{AddressFamily, TransportId};

use crate::error::Error;

/// The addresses of a transport id, in the resolver's order, of the family that it asks for and
/// that can be reached from the local address, if one is asked for.
pub(crate) fn resolve(
    address: &TransportId,
    local: Option<IpAddr>,
) -> Result<Vec<SocketAddr>, Error> {
    let host = address.traddr.as_str();
    let port = address.port();
    let failed = |reason: String| Error::Resolve { name: host.to_owned(), reason };
    let found: Vec<SocketAddr> = match host.parse::<IpAddr>() {
        Ok(literal) => vec![SocketAddr::new(literal, port)],
        // The resolver knows zones ("fe80::1%eth0"), too.
        Err(_) => (host, port).to_socket_addrs().map_err(|e| failed(e.to_string()))?.collect(),
    };
    let wanted: Vec<SocketAddr> = found
        .into_iter()
        .filter(|found| match address.family {
            None => true,
            Some(AddressFamily::Ipv4) => found.is_ipv4(),
            Some(AddressFamily::Ipv6) => found.is_ipv6(),
        })
        .collect();
    if wanted.is_empty() {
        let family = address.family.map_or("", AddressFamily::name);
        return Err(failed(format!("it has no {family} address")));
    }
    let Some(local) = local else { return Ok(wanted) };
    let reached: Vec<SocketAddr> =
        wanted.into_iter().filter(|wanted| wanted.is_ipv4() == local.is_ipv4()).collect();
    if reached.is_empty() {
        let what = "is of another address family than the local address";
        return Err(Error::Invalid(format!("{host} {what} {local}")));
    }
    Ok(reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(text: &str) -> Result<Vec<SocketAddr>, Error> {
        resolve(&text.parse().expect(text), None)
    }

    #[test]
    fn a_local_address_chooses_the_family() {
        let local = |text: &str| Some(text.parse().expect("an address"));
        let address = "nvme-tcp://127.0.0.1:4420".parse().expect("an address");
        assert_eq!(resolve(&address, local("127.0.0.9")).map(|found| found.len()).ok(), Some(1));
        let error = resolve(&address, local("::1")).expect_err("another family").to_string();
        assert!(error.contains("127.0.0.1") && error.contains("::1"), "{error}");
    }

    #[test]
    fn literals_and_names() {
        let literal = addresses("nvme-tcp://[2001:db8::1]:4421/nqn.2024-01.io.example:x").unwrap();
        assert_eq!(literal, ["[2001:db8::1]:4421".parse().unwrap()]);
        let local = addresses("trtype:TCP adrfam:IPv4 traddr:localhost trsvcid:4420").unwrap();
        assert!(local.iter().all(|address| address.is_ipv4() && address.port() == 4420));
        let error = addresses("nvme-tcp://no-such-host.invalid").unwrap_err().to_string();
        assert!(error.contains("no-such-host.invalid"), "{error}");
    }
}
