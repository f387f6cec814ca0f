//! What a host is shown by the discovery subsystem, where, and when it hears of changes.

use std::net::SocketAddr;
use std::time::Duration;

use weft_nvme::event::Event;
use weft_nvme::fabrics::CONTROLLER_ID_STATIC;
use weft_nvme::log_page::{
    DiscoveryEntry, DiscoveryHeader, GetLogPage, LogPageId, RdmaSubtype, SubsystemType,
    TransportType,
};
use weft_nvme::{AdminOpcode, Command, Nqn, Status, Wire};
use weft_target::config::{Config, ControllerModel, Listen, PortSubsystems, Referral};
use weft_transport::host::{HostData, HostOptions};

use crate::support::peer::{ConnectFields, Peer};
use crate::support::{
    HOST, SUBSYSTEM, address, config, drivers, on_each_driver, on_each_transport, over_rdma, port,
    start, subsystem, wait_until,
};

const OTHER: &str = "nqn.2024-01.io.weft:other";

fn fields() -> ConnectFields {
    ConnectFields { subsystem: Nqn::DISCOVERY.as_str().to_owned(), ..ConnectFields::admin() }
}

/// A discovery controller that is asked for its log.
fn discovery(at: SocketAddr, fields: &ConnectFields) -> Peer {
    Peer::admin_as(at, fields).0
}

/// The generation counter and the entries.
fn read_log(peer: &mut Peer) -> (u64, Vec<DiscoveryEntry>) {
    let head = peer.log_page(LogPageId::DISCOVERY, 1024);
    let head = DiscoveryHeader::read(&head).expect("a header");
    let records = usize::try_from(head.records.get()).expect("few");
    let length = u32::try_from(1024 * (1 + records)).expect("few");
    let whole = peer.log_page(LogPageId::DISCOVERY, length);
    let entries: Vec<_> = whole[1024..]
        .chunks(1024)
        .map(|entry| DiscoveryEntry::read(entry).expect("an entry"))
        .collect();
    assert_eq!(entries.len(), records);
    (head.generation.get(), entries)
}

/// What is shown to a host, in short.
fn shown(at: SocketAddr, fields: &ConnectFields) -> Vec<(SubsystemType, String, String)> {
    let mut shown: Vec<_> = read_log(&mut discovery(at, fields))
        .1
        .iter()
        .map(|entry| {
            let name = entry.subsystem().expect("a name").as_str().to_owned();
            let way = format!(
                "{} {}",
                entry.address.raw_text().expect("text"),
                entry.service_id.raw_text().expect("text")
            );
            (entry.subsystem_type, name, way)
        })
        .collect();
    shown.sort_by_key(|(kind, name, way)| (kind.0, name.clone(), way.clone()));
    shown
}

fn nvm(name: &str, way: String) -> (SubsystemType, String, String) {
    (SubsystemType::NVM, name.to_owned(), way)
}

fn itself(way: String) -> (SubsystemType, String, String) {
    (SubsystemType::CURRENT_DISCOVERY, Nqn::DISCOVERY.as_str().to_owned(), way)
}

/// Hosts over either transport are shown both, and what RDMA's entries say beside the address.
#[test]
fn both_transports_are_shown_on_both() {
    let mut both = over_rdma(&config(&["memory:1MiB"]));
    both.ports.insert(0, port(2, "127.0.0.1:0"));
    let target = start(both);
    for at in target.addresses().values() {
        let (_, entries) = read_log(&mut discovery(*at, &fields()));
        let of = |transport| {
            let of_transport =
                entries.iter().filter(move |entry| entry.transport_type == transport);
            of_transport.map(|entry| entry.subsystem_type).collect::<Vec<_>>()
        };
        let mut kinds = of(TransportType::TCP);
        kinds.extend(of(TransportType::RDMA));
        kinds.sort_by_key(|kind| kind.0);
        let (nvm, current) = (SubsystemType::NVM, SubsystemType::CURRENT_DISCOVERY);
        assert_eq!(kinds, [nvm, nvm, current, current]);
        for entry in &entries {
            let rdma = entry.transport_type == TransportType::RDMA;
            let expected = if rdma { RdmaSubtype::RELIABLE } else { RdmaSubtype::default() };
            assert_eq!(entry.rdma(), expected);
        }
    }
    target.stop().expect("a clean stop");
}

#[test]
fn a_wildcard_is_reported_as_the_address_that_the_host_connected_to() {
    let mut config = config(&["memory:1MiB"]);
    config.ports = vec![port(1, "0.0.0.0:0")];
    on_each_driver(&config, |target| {
        let service = address(target).port();
        for ip in ["127.0.0.1", "127.0.0.2"] {
            let at = SocketAddr::new(ip.parse().expect("an address"), service);
            let way = format!("{ip} {service}");
            assert_eq!(shown(at, &fields()), [nvm(SUBSYSTEM, way.clone()), itself(way)]);
        }
    });
}

#[test]
fn each_port_shows_the_entries_of_all_ports() {
    let mut config = config(&["memory:1MiB"]);
    config.subsystems.push(subsystem(OTHER, &["memory:1MiB"]));
    config.subsystems[1].controllers = ControllerModel::Static;
    config.ports[0].subsystems = PortSubsystems::Only(vec![SUBSYSTEM.to_owned()]);
    config.ports[0].discovery = false;
    let mut advertised = port(2, "127.0.0.1:0");
    advertised.advertise = Some("192.0.2.7:4444".parse().expect("an address"));
    advertised.discovery = false;
    let mut discovery_only = port(3, "127.0.0.1:0");
    discovery_only.subsystems = PortSubsystems::Only(Vec::new());
    discovery_only.referrals = vec![Referral {
        address: Listen::tcp("198.51.100.1:8009".parse().expect("an address")),
        port_id: 9,
        subsystem: None,
    }];
    config.ports.extend([advertised, discovery_only]);
    on_each_transport(&config, |target| {
        let [first, second, third] = [1, 2, 3].map(|id| target.addresses()[&id]);
        let way = |at: SocketAddr| format!("{} {}", at.ip(), at.port());
        let referral = (
            SubsystemType::REFERRAL,
            Nqn::DISCOVERY.as_str().to_owned(),
            "198.51.100.1 8009".to_owned(),
        );
        let advertised = "192.0.2.7 4444".to_owned();
        assert_eq!(
            shown(third, &fields()),
            [
                referral,
                nvm(OTHER, advertised.clone()),
                nvm(SUBSYSTEM, way(first)),
                nvm(SUBSYSTEM, advertised),
                itself(way(third)),
            ]
        );
        let (_, entries) = read_log(&mut discovery(third, &fields()));
        for entry in &entries {
            let name = entry.subsystem().expect("a name");
            let is_static = entry.controller_id.get() == CONTROLLER_ID_STATIC;
            assert_eq!(is_static, name.as_str() == OTHER);
            let of = entry.port_id.get();
            assert!(entry.subsystem_type != SubsystemType::REFERRAL || of == 9, "{of}");
        }
        // Elsewhere there is no discovery, and here is nothing else.
        for at in [first, second] {
            let refused = Peer::open(at, HostOptions::default()).connect(&fields());
            assert_eq!(refused.status(), Status::CONNECT_INVALID_PARAMETERS.with_dnr());
        }
        let refused = Peer::open(third, HostOptions::default()).connect(&ConnectFields::admin());
        assert_eq!(refused.status(), Status::CONNECT_INVALID_PARAMETERS.with_dnr());
    });
}

#[test]
fn a_host_sees_what_it_may_connect_to() {
    let mut config = config(&["memory:1MiB"]);
    config.subsystems.push(subsystem(OTHER, &["memory:1MiB"]));
    config.subsystems[1].allowed_hosts = Some(vec![HOST.to_owned()]);
    on_each_transport(&config, |target| {
        let at = address(target);
        let way = format!("{} {}", at.ip(), at.port());
        let all = [nvm(OTHER, way.clone()), nvm(SUBSYSTEM, way.clone()), itself(way.clone())];
        assert_eq!(shown(at, &fields()), all);
        assert_eq!(shown(at, &fields().of_other_host()), all[1..]);
    });
}

#[test]
fn a_discovery_controller_has_no_io_queues_and_few_commands() {
    on_each_transport(&config(&["memory:1MiB"]), |target| {
        let at = address(target);
        let (mut admin, controller) = Peer::admin_as(at, &fields());
        let mut io = Peer::open(at, HostOptions::default());
        let refused = io.connect(&ConnectFields { queue_id: 1, controller, ..fields() });
        assert_eq!(refused.status(), Status::CONNECT_INVALID_PARAMETERS.with_dnr());
        let page = GetLogPage::new(LogPageId::HEALTH, 0, 512).to_command();
        assert_eq!(admin.run_for(page, 512).status(), Status::INVALID_LOG_PAGE.with_dnr());
        let abort = weft_nvme::abort::Abort { submission_queue_id: 0, command_id: 999 };
        let aborted = admin.run(abort.to_command(), HostData::None).succeeded();
        assert_eq!(aborted.completion.dword0(), 1, "there is no such command");
        let keep_alive = Command::new(AdminOpcode::KEEP_ALIVE);
        admin.run(keep_alive, HostData::None).succeeded();
    });
}

/// The log can be read in pieces, and a piece says when the pieces do not fit each other.
#[test]
fn the_log_is_read_from_any_offset() {
    on_each_transport(&config(&["memory:1MiB"]), |target| {
        let mut peer = discovery(address(target), &fields());
        let whole = peer.log_page(LogPageId::DISCOVERY, 3072);
        for (offset, length) in [(0_u32, 16_u32), (8, 1020), (1024, 2048), (2048, 1024), (3068, 4)]
        {
            let command = GetLogPage::new(LogPageId::DISCOVERY, offset.into(), length).to_command();
            let part = peer.run_for(command, length as usize);
            assert!(part.bytes() == &whole[offset as usize..][..length as usize], "{offset}");
        }
    });
}

#[test]
fn a_persistent_discovery_controller_hears_of_every_change_once() {
    for driver in drivers() {
        let first = Config { driver: *driver, ..config(&["memory:1MiB"]) };
        let mut target = start(first.clone());
        let persistent = ConnectFields { keep_alive_ms: 60_000, ..fields() };
        let mut peer = discovery(address(&target), &persistent);
        let (generation, entries) = read_log(&mut peer);
        assert_eq!(entries.len(), 2);
        let event = peer.begin_event_request();
        // Serving the same again is no change.
        target.reload(first.clone()).expect("a reload");
        assert!(!peer.is_answered(event, Duration::from_millis(50)));
        assert_eq!(read_log(&mut peer).0, generation);
        let mut second = first.clone();
        second.subsystems.push(subsystem(OTHER, &["memory:1MiB"]));
        target.reload(second.clone()).expect("a reload");
        let answer = peer.wait_for(event).succeeded();
        assert_eq!(Event(answer.completion.dword0()), Event::DISCOVERY_LOG_PAGE_CHANGE);
        // Until it has read the log, it does not hear of it again.
        let event = peer.begin_event_request();
        target.reload(first.clone()).expect("a reload");
        assert!(!peer.is_answered(event, Duration::from_millis(50)));
        let (later, entries) = read_log(&mut peer);
        assert!(later > generation);
        assert_eq!(entries.len(), 2);
        target.reload(second).expect("a reload");
        peer.wait_for(event).succeeded();
        let (latest, entries) = read_log(&mut peer);
        assert!(latest > later);
        assert_eq!(entries.len(), 3);
        target.stop().expect("a clean stop");
    }
}

/// Anybody may connect to the discovery subsystem: for as long as it likes, and as often.
#[test]
fn nobody_keeps_others_from_discovery() {
    let mut config = config(&["memory:1MiB"]);
    config.limits.controllers = 72;
    let target = start(config);
    let at = address(&target);
    let forever = ConnectFields { keep_alive_ms: u32::MAX, ..fields() };
    let mut peer = Peer::open(at, forever.options(at, HostOptions::default()));
    let refused = peer.connect(&forever).status();
    assert_eq!(refused, Status::KEEP_ALIVE_TIMEOUT_INVALID.with_dnr());
    let mut held: Vec<_> = (0..18).map(|_| discovery(at, &fields())).collect();
    let refused = |at| {
        let mut peer = Peer::open(at, fields().options(at, HostOptions::default()));
        peer.connect(&fields()).status()
    };
    assert_eq!(refused(at), Status::CONNECT_CONTROLLER_BUSY, "a quarter of them");
    drop(held.pop());
    wait_until("there is room again", || refused(at).is_success());
}
