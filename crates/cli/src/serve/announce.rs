//! What a target says when it serves: its addresses, its namespaces, and how to connect.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use serde_json::{Value, json};
use uuid::Uuid;
use weft_backend::bytes;
use weft_nvmf::keys::TlsMode;
use weft_target::config::{Config, Listen, Port, Subsystem, traddr};
use weft_target::{CheckedNamespace, Target};

use crate::failure::Failure;
use crate::output::{self, Format};

/// Where it is reached by those that are no hosts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServiceAddresses<'a> {
    pub(super) control: Option<&'a weft_rpc::Address>,
    pub(super) metrics: Option<SocketAddr>,
    /// Whether the flags say alone what is served, and to whom.
    pub(super) is_of_flags: bool,
}

/// Says it on standard output.
pub(super) fn announce(
    target: &Target,
    at: ServiceAddresses<'_>,
    format: Format,
) -> Result<(), Failure> {
    let config = target.config();
    let address_of =
        |port: &Port| target.addresses().get(&port.id).copied().unwrap_or(port.listen.address);
    let facts_of = |nqn: &str, nsid| {
        let served = target.namespace(nqn, nsid)?;
        let bytes = served.blocks * u64::from(served.block_bytes);
        Some(Facts { bytes, is_created: target.is_created(nqn, nsid) })
    };
    let open = at.is_of_flags.then(|| open_to_all(config)).flatten();
    open.iter().for_each(|open| log::warn!("{open}"));
    unused_psks(config).iter().for_each(|unused| log::warn!("{unused}"));
    match format {
        Format::Human => {
            let open = open.map(|open| format!("{open}\n"));
            let control = at.control.map(|address| format!("control on {address}\n"));
            let metrics = at.metrics.map(|at| format!("metrics on http://{at}/metrics\n"));
            let text = human(config, &address_of, &facts_of)
                + &open.unwrap_or_default()
                + &control.unwrap_or_default()
                + &metrics.unwrap_or_default();
            output::print(&text)
        }
        // One line, so that a program that reads it knows where it ends.
        Format::Json => {
            let mut said = as_json(config, &address_of, &facts_of);
            if let Some(metrics) = at.metrics {
                said["metrics"] = format!("http://{metrics}/metrics").into();
            }
            if let Some(control) = at.control {
                said["control"] = control.to_string().into();
            }
            output::print(&format!("{said}\n"))
        }
    }
}

/// That hosts of other machines may use a subsystem whatever their names, if they may.
fn open_to_all(config: &Config) -> Option<String> {
    let subsystem = config.subsystems.iter().find(|one| one.allowed_hosts.is_none())?;
    let mut ports = config.ports.iter();
    let port = ports.find(|port| {
        port.subsystems.contains(&subsystem.nqn) && !port.listen.address.ip().is_loopback()
    })?;
    Some(format!(
        "every host that reaches {} may read and write {}: give --allow-host NQN for each host \
         that is to, or listen on 127.0.0.1 only",
        port.listen, subsystem.nqn
    ))
}

/// Hosts that have a key of TLS alone, and ports at which they need not use it.
fn unused_psks(config: &Config) -> Vec<String> {
    let hosts = config.subsystems.iter().flat_map(|subsystem| {
        let keys = subsystem.host_keys.iter();
        let only = keys.filter(|keys| keys.dhchap_key.is_none() && !keys.psk.is_empty());
        only.map(move |keys| (subsystem, &keys.nqn))
    });
    let ports = |nqn: &str| {
        let clear = |port: &&Port| port.subsystems.contains(nqn) && port.tls != TlsMode::Required;
        config.ports.iter().filter(clear).collect::<Vec<_>>()
    };
    let told = hosts.flat_map(|(subsystem, host)| {
        ports(&subsystem.nqn).into_iter().map(move |port| {
            format!(
                "{host} has a psk and no dhchap-key for {}, and {} does not require TLS: there it \
                 is served without any proof; give the port tls = \"required\"",
                subsystem.nqn, port.listen
            )
        })
    });
    told.collect()
}

/// What is known of a namespace that is served.
struct Facts {
    bytes: u64,
    /// Whether its file or image was made at this start.
    is_created: bool,
}

type FactsOf<'a> = &'a dyn Fn(&str, u32) -> Option<Facts>;

fn human(
    config: &Config,
    address_of: &dyn Fn(&Port) -> SocketAddr,
    facts_of: FactsOf<'_>,
) -> String {
    let mut text = String::new();
    for port in &config.ports {
        let only = if serves(config, port).next().is_none() { " (discovery)" } else { "" };
        let listen = Listen { address: address_of(port), ..port.listen };
        text += &format!("listening on {listen}{only}\n");
    }
    for subsystem in &config.subsystems {
        text += &format!("{}\n", subsystem.nqn);
        for namespace in &subsystem.namespaces {
            let read_only = if namespace.read_only { ", read-only" } else { "" };
            let (nsid, device) = (namespace.nsid, &namespace.device);
            // What is stored has a size of its own, whatever its option says.
            let stored = device.stored_name().and_then(|_| facts_of(&subsystem.nqn, nsid));
            let size = stored.map_or(String::new(), |Facts { bytes, is_created }| {
                let created = if is_created { ", created, empty" } else { "" };
                format!(", {}{created}", bytes::exact(bytes))
            });
            text += &format!("  namespace {nsid}: {device}{size}{read_only}\n");
        }
        for port in config.ports.iter().filter(|port| port.subsystems.contains(&subsystem.nqn)) {
            text += &format!("  {}\n", connect_line(port, address_of(port), subsystem));
        }
    }
    text
}

fn as_json(
    config: &Config,
    address_of: &dyn Fn(&Port) -> SocketAddr,
    facts_of: FactsOf<'_>,
) -> Value {
    let ports = config.ports.iter().map(|port| {
        let nqns: Vec<&str> = serves(config, port).map(|subsystem| &*subsystem.nqn).collect();
        json!({
            "id": port.id,
            "transport": port.listen.transport.to_string(),
            "address": address_of(port).to_string(),
            "discovery": port.discovery,
            "subsystems": nqns,
        })
    });
    let subsystems = config.subsystems.iter().map(|subsystem| {
        let namespaces = subsystem.namespaces.iter().map(|namespace| {
            let facts = facts_of(&subsystem.nqn, namespace.nsid);
            json!({
                "nsid": namespace.nsid,
                "device": namespace.device.to_string(),
                "bytes": facts.as_ref().map(|facts| facts.bytes),
                "created": facts.is_some_and(|facts| facts.is_created),
                "read_only": namespace.read_only,
            })
        });
        let reached = config.ports.iter().filter(|port| port.subsystems.contains(&subsystem.nqn));
        let connect = reached.map(|port| connect_line(port, address_of(port), subsystem));
        json!({
            "nqn": subsystem.nqn,
            "serial": subsystem.serial(),
            "namespaces": namespaces.collect::<Vec<Value>>(),
            "connect": connect.collect::<Vec<String>>(),
        })
    });
    json!({
        "ports": ports.collect::<Vec<Value>>(),
        "subsystems": subsystems.collect::<Vec<Value>>(),
    })
}

/// Says what would be served, by a file or by flags alone.
pub(super) fn check(
    config: &Config,
    checked: &[CheckedNamespace],
    has_file: bool,
    format: Format,
) -> Result<(), Failure> {
    for namespace in checked.iter().filter(|namespace| has_file && namespace.by_position) {
        let CheckedNamespace { nsid, subsystem, .. } = namespace;
        output::print_error(&format!(
            "weft target: namespace {nsid} of {subsystem} has this number only by its position in \
             the file: write `nsid = {nsid}`, or after a restart hosts may find another namespace \
             there"
        ));
    }
    match format {
        Format::Human => output::print(&checked_text(config, checked)),
        Format::Json => output::print_json(&checked_json(config, checked)),
    }
}

fn checked_text(config: &Config, checked: &[CheckedNamespace]) -> String {
    let mut text = String::new();
    for port in &config.ports {
        text += &format!("port {}: {}\n", port.id, port.listen);
    }
    for subsystem in &config.subsystems {
        text += &format!("{}\n", subsystem.nqn);
        for namespace in checked.iter().filter(|one| one.subsystem == subsystem.nqn) {
            let uuid = uuid(namespace).unwrap_or_else(|| "new at each start".to_owned());
            let size =
                namespace.bytes.map_or(String::new(), |size| format!(", {}", bytes::exact(size)));
            let created = if namespace.is_created { ", to be created, empty" } else { "" };
            text += &format!(
                "  namespace {}: {}{size}{created}, UUID {uuid}\n",
                namespace.nsid, namespace.device
            );
        }
    }
    text
}

fn checked_json(config: &Config, checked: &[CheckedNamespace]) -> Value {
    let ports = config.ports.iter();
    let ports = ports.map(|port| json!({ "id": port.id, "listen": port.listen.to_string() }));
    let namespaces = checked.iter().map(|namespace| {
        json!({
            "subsystem": namespace.subsystem,
            "nsid": namespace.nsid,
            "by_position": namespace.by_position,
            "device": namespace.device.to_string(),
            "bytes": namespace.bytes,
            "created": namespace.is_created,
            "uuid": uuid(namespace),
        })
    });
    json!({
        "ports": ports.collect::<Vec<Value>>(),
        "namespaces": namespaces.collect::<Vec<Value>>(),
    })
}

fn uuid(namespace: &CheckedNamespace) -> Option<String> {
    namespace.uuid.map(|uuid| Uuid::from_bytes(uuid).to_string())
}

fn serves<'a>(config: &'a Config, port: &'a Port) -> impl Iterator<Item = &'a Subsystem> {
    config.subsystems.iter().filter(|subsystem| port.subsystems.contains(&subsystem.nqn))
}

/// The command that a Linux host types.
fn connect_line(port: &Port, address: SocketAddr, subsystem: &Subsystem) -> String {
    let reached = port.advertise.unwrap_or_else(|| reachable(address));
    let tls = if port.tls == TlsMode::Required { " --tls" } else { "" };
    format!(
        "nvme connect -t {} -a {} -s {} -n {}{tls}",
        port.listen.transport,
        traddr(reached),
        reached.port(),
        subsystem.nqn
    )
}

/// In place of the wildcard address one of this machine's.
fn reachable(address: SocketAddr) -> SocketAddr {
    if !address.ip().is_unspecified() {
        return address;
    }
    // Connecting a UDP socket sends nothing; it only asks for the route (to an address that
    // documentation uses) and so for the address we have there.
    let (any, elsewhere, loopback): (IpAddr, IpAddr, IpAddr) = if address.is_ipv4() {
        (
            Ipv4Addr::UNSPECIFIED.into(),
            Ipv4Addr::new(192, 0, 2, 1).into(),
            Ipv4Addr::LOCALHOST.into(),
        )
    } else {
        let elsewhere = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
        (Ipv6Addr::UNSPECIFIED.into(), elsewhere.into(), Ipv6Addr::LOCALHOST.into())
    };
    let found = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((elsewhere, 9))?;
        socket.local_addr()
    });
    let ip = found.map_or(loopback, |found| found.ip());
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_target::config::{HostKeys, Namespace, PortSubsystems};

    fn config() -> Config {
        let listen = "tcp://127.0.0.1:0".parse().expect("an address");
        let mut subsystem = Subsystem::new("nqn.a");
        subsystem.namespaces.push(Namespace::new(1, "memory:1GiB".parse().expect("a device")));
        let mut advertised = Port::new(2, listen);
        advertised.advertise = Some("192.0.2.9:4420".parse().expect("an address"));
        let rdma = "rdma://127.0.0.1:0".parse().expect("an address");
        let discovery = Port { subsystems: PortSubsystems::Only(Vec::new()), ..Port::new(3, rdma) };
        Config {
            ports: vec![Port::new(1, listen), advertised, discovery],
            subsystems: vec![subsystem],
            ..Config::default()
        }
    }

    fn address_of(port: &Port) -> SocketAddr {
        SocketAddr::new(port.listen.address.ip(), 5000 + port.id)
    }

    #[test]
    fn the_text_says_how_to_connect() {
        assert_eq!(
            human(&config(), &address_of, &|_, _| Some(Facts {
                bytes: 1 << 30,
                is_created: false
            })),
            "listening on tcp://127.0.0.1:5001\n\
             listening on tcp://127.0.0.1:5002\n\
             listening on rdma://127.0.0.1:5003 (discovery)\n\
             nqn.a\n  namespace 1: memory:1GiB\n  \
             nvme connect -t tcp -a 127.0.0.1 -s 5001 -n nqn.a\n  \
             nvme connect -t tcp -a 192.0.2.9 -s 4420 -n nqn.a\n"
        );
    }

    /// Without a name that is allowed, whoever reaches an address that other machines have.
    #[test]
    fn a_subsystem_that_is_open_to_all_is_told() {
        assert_eq!(open_to_all(&config()), None, "only this machine reaches it");
        for listen in ["tcp://0.0.0.0:4420", "tcp://[::]:4420", "tcp://192.0.2.1:4420"] {
            let mut open = config();
            open.ports[0].listen = listen.parse().expect("an address");
            let told = open_to_all(&open).expect("a warning");
            assert!(told.contains(listen) && told.contains("give --allow-host NQN"), "{told}");
            open.ports[0].subsystems = PortSubsystems::Only(Vec::new());
            assert_eq!(open_to_all(&open), None, "it is for discovery");
            open.ports[0].subsystems = PortSubsystems::All;
            open.subsystems[0].allowed_hosts = Some(vec!["nqn.h".to_owned()]);
            assert_eq!(open_to_all(&open), None, "it names who may");
        }
    }

    /// A key of TLS protects nothing at a port without TLS.
    #[test]
    fn a_psk_that_need_not_be_used_is_told() {
        let mut config = config();
        config.ports.truncate(1);
        let nqn = config.subsystems[0].nqn.clone();
        let keys = HostKeys { psk: vec!["/key".to_owned()], ..HostKeys::new("nqn.h") };
        config.subsystems[0].host_keys = vec![keys];
        for (tls, is_told) in
            [(TlsMode::Off, true), (TlsMode::Allowed, true), (TlsMode::Required, false)]
        {
            config.ports[0].tls = tls;
            let told = unused_psks(&config);
            assert_eq!(told.len(), usize::from(is_told), "{told:?}");
            assert!(told.iter().all(|told| told.contains("nqn.h") && told.contains(&nqn)));
        }
        config.ports[0].tls = TlsMode::Off;
        config.subsystems[0].host_keys[0].dhchap_key = Some("/key".to_owned());
        assert_eq!(unused_psks(&config), Vec::<String>::new(), "it authenticates");
    }

    #[test]
    fn the_json_says_the_same() {
        let json = as_json(&config(), &address_of, &|_, _| {
            Some(Facts { bytes: 1 << 30, is_created: false })
        });
        assert_eq!(json["ports"][0]["address"], "127.0.0.1:5001");
        assert_eq!(json["ports"][2]["subsystems"], json!([]));
        let namespace = &json["subsystems"][0]["namespaces"][0];
        assert_eq!(namespace["device"], "memory:1GiB");
        assert_eq!(namespace["bytes"], 1 << 30);
        let connect = "nvme connect -t tcp -a 127.0.0.1 -s 5001 -n nqn.a";
        assert_eq!(json["subsystems"][0]["connect"][0], connect);
    }

    #[test]
    fn the_line_has_the_interface_of_a_link_local_address() {
        let config = config();
        let address = "[fe80::1%1]:4420".parse().expect("an address");
        let line = connect_line(&config.ports[0], address, &config.subsystems[0]);
        assert_eq!(line, "nvme connect -t tcp -a fe80::1%lo -s 4420 -n nqn.a");
    }

    #[test]
    fn nobody_connects_to_the_wildcard() {
        for text in ["0.0.0.0:4420", "[::]:4420"] {
            let address: SocketAddr = text.parse().expect("an address");
            let found = reachable(address);
            assert!(!found.ip().is_unspecified(), "{found}");
            assert_eq!((found.port(), found.is_ipv4()), (4420, address.is_ipv4()));
        }
    }
}
