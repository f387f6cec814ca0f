//! Who may connect, and what is said to those who may not.

use weft_nvme::fabrics::{ConnectData, InvalidParameter};
use weft_nvme::property::Offset;
use weft_nvme::sgl::Descriptor;
use weft_nvme::tcp::DigestOptions;
use weft_nvme::{AdminOpcode, Command, Status, Wire};
use weft_target::config::{ControllerModel, PortSubsystems};
use weft_transport::host::{HostData, HostOptions};

use crate::support::peer::{ConnectFields, Peer, enabled};
use crate::support::raw::Raw;
use crate::support::{
    HOST, OTHER_HOST, SUBSYSTEM, address, config, config_of_two_groups, on_each_driver,
    on_each_transport, pattern, port, start, subsystem,
};

/// A Connect on a connection of its own: status and dword 0.
fn refused(at: std::net::SocketAddr, fields: &ConnectFields) -> (Status, u32) {
    let mut peer = Peer::open(at, HostOptions::default());
    let answer = peer.connect(fields);
    // The connection lives, and so does the target: a good Connect may follow on it.
    if fields.queue_id == 0 && fields.subsystem == SUBSYSTEM && fields.host == HOST {
        peer.connect(&ConnectFields::admin()).succeeded();
    }
    (answer.status(), answer.completion.dword0())
}

const INVALID: Status = Status::CONNECT_INVALID_PARAMETERS.with_dnr();

#[test]
fn an_admin_queue_is_checked() {
    let mut config = config(&["memory:1MiB"]);
    config.subsystems[0].allowed_hosts = Some(vec![HOST.to_owned()]);
    config.limits.queue_entries = 256;
    on_each_transport(&config, |target| {
        let check = |fields| refused(address(target), &fields);
        let fields = ConnectFields::admin;
        assert_eq!(
            check(ConnectFields { subsystem: "nqn.2024-01.io.weft:none".to_owned(), ..fields() }),
            (INVALID, InvalidParameter::SUBSYSTEM_NQN.0)
        );
        assert_eq!(check(fields().of_other_host()), (Status::CONNECT_INVALID_HOST.with_dnr(), 0));
        for controller in [0, 1, 0xfffe] {
            assert_eq!(
                check(ConnectFields { controller, ..fields() }),
                (INVALID, InvalidParameter::CONTROLLER_ID.0)
            );
        }
        for entries in [31, 257, 65536] {
            assert_eq!(
                check(ConnectFields { entries, ..fields() }),
                (INVALID, InvalidParameter::SUBMISSION_QUEUE_SIZE.0)
            );
        }
        let later = ConnectFields { keep_alive_ms: u32::MAX, ..fields() };
        assert_eq!(check(later), (Status::KEEP_ALIVE_TIMEOUT_INVALID.with_dnr(), 0));
    });
}

#[test]
fn an_io_queue_is_checked_on_every_group() {
    let mut config = config_of_two_groups(&["memory:1MiB"]);
    config.limits.queue_entries = 256;
    config.limits.io_queues = 4;
    config.subsystems.push(subsystem("nqn.2024-01.io.weft:other", &["memory:1MiB"]));
    on_each_transport(&config, |target| {
        let at = address(target);
        let (mut admin, controller) = Peer::admin(at);
        let fields = |queue_id| ConnectFields::io(controller, queue_id);
        // Twice each, so that both groups are asked.
        for _ in 0..2 {
            let queue_id = InvalidParameter::QUEUE_ID.0;
            assert_eq!(refused(at, &fields(5)), (INVALID, queue_id));
            assert_eq!(refused(at, &fields(0xffff)), (INVALID, queue_id));
            for entries in [1, 257, 65536] {
                assert_eq!(
                    refused(at, &ConnectFields { entries, ..fields(1) }),
                    (INVALID, InvalidParameter::SUBMISSION_QUEUE_SIZE.0)
                );
            }
            let controller_id = InvalidParameter::CONTROLLER_ID.0;
            let unknown = ConnectFields { controller: controller + 1, ..fields(1) };
            assert_eq!(refused(at, &unknown), (INVALID, controller_id));
            let other = "nqn.2024-01.io.weft:other".to_owned();
            let elsewhere = ConnectFields { subsystem: other, ..fields(1) };
            assert_eq!(refused(at, &elsewhere), (INVALID, controller_id));
            let other_host = ConnectFields { host: OTHER_HOST.to_owned(), ..fields(1) };
            assert_eq!(refused(at, &other_host), (INVALID, InvalidParameter::HOST_NQN.0));
        }
        let mut queues: Vec<_> = (1..=4).map(|id| Peer::io(at, controller, id)).collect();
        let twice = (Status::COMMAND_SEQUENCE_ERROR.with_dnr(), 0);
        assert_eq!(refused(at, &fields(1)), twice);
        assert_eq!(refused(at, &fields(2)), twice);
        for queue in &mut queues {
            let bytes = pattern(4096, 3);
            queue.write(1, 0, 1, &bytes).succeeded();
            assert!(queue.read(1, 0, 1, 4096).bytes() == bytes);
        }
        assert!(admin.controller_status().ready());
    });
}

#[test]
fn an_io_queue_needs_a_controller_that_is_ready() {
    on_each_transport(&config(&["memory:1MiB"]), |target| {
        let at = address(target);
        let mut admin = Peer::open(at, HostOptions::default());
        let answer = admin.connect(&ConnectFields::admin()).succeeded();
        let controller = u16::try_from(answer.completion.dword0() & 0xffff).expect("16 bits");
        let mut io = Peer::open(at, HostOptions::default());
        let early = io.connect(&ConnectFields::io(controller, 1));
        assert_eq!(early.status(), Status::COMMAND_SEQUENCE_ERROR.with_dnr());
        admin.enable();
        // The same connection may try again.
        io.connect(&ConnectFields::io(controller, 1)).succeeded();
        assert!(io.read(1, 0, 1, 4096).status().is_success());
    });
}

#[test]
fn only_connect_is_accepted_first() {
    on_each_transport(&config(&["memory:1MiB"]), |target| {
        let mut peer = Peer::open(address(target), HostOptions::default());
        let sequence = Status::COMMAND_SEQUENCE_ERROR.with_dnr();
        let identify = Command::new(AdminOpcode::IDENTIFY).with_cdw10(1);
        let buffer = peer.reactor.pool().take(4096).expect("room");
        assert_eq!(peer.run(identify, HostData::FromController(buffer)).status(), sequence);
        let keep_alive = Command::new(AdminOpcode::KEEP_ALIVE);
        assert_eq!(peer.run(keep_alive, HostData::None).status(), sequence);
        peer.connect(&ConnectFields::admin()).succeeded();
        assert_eq!(peer.connect(&ConnectFields::admin()).status(), sequence, "once is enough");
        peer.configure(enabled());
        assert!(peer.controller_status().ready());
    });
}

#[test]
fn the_head_wraps_only_with_flow_control() {
    on_each_transport(&config(&["memory:1MiB"]), |target| {
        let (_admin, controller) = Peer::admin(address(target));
        for (queue_id, flow_control) in [(1, true), (2, false)] {
            let fields = ConnectFields {
                entries: 4,
                flow_control,
                ..ConnectFields::io(controller, queue_id)
            };
            let mut io = Peer::open(address(target), HostOptions::default());
            let connected = io.connect(&fields).succeeded();
            let head = |answer: crate::support::peer::Answer| {
                answer.completion.submission_queue_head.get()
            };
            assert_eq!(head(connected), if flow_control { 1 } else { 0xffff });
            let block = pattern(4096, 1);
            let heads: Vec<_> = (0..6).map(|_| head(io.write(1, 0, 1, &block))).collect();
            assert_eq!(heads, if flow_control { [2, 3, 0, 1, 2, 3] } else { [0; 6] });
        }
    });
}

#[test]
fn static_controllers_are_chosen_by_the_host() {
    let mut config = config(&["memory:1MiB"]);
    config.subsystems[0].controllers = ControllerModel::Static;
    on_each_transport(&config, |target| {
        let at = address(target);
        let fields = |controller| ConnectFields { controller, ..ConnectFields::admin() };
        let (first, id) = Peer::admin_as(at, &fields(7));
        assert_eq!(id, 7);
        let (_second, id) = Peer::admin_as(at, &fields(0xfffe));
        assert_ne!(id, 7);
        let mut third = Peer::open(at, HostOptions::default());
        let busy = third.connect(&fields(7).of_other_host());
        assert_eq!(busy.status(), Status::CONNECT_CONTROLLER_BUSY);
        let wrong = third.connect(&fields(0xffff));
        assert_eq!(
            (wrong.status(), wrong.completion.dword0()),
            (INVALID, InvalidParameter::CONTROLLER_ID.0)
        );
        // When its owner is gone, another may have it.
        drop(first);
        crate::support::wait_until("the controller is free", || {
            third.connect(&fields(7).of_other_host()).status().is_success()
        });
    });
}

/// Identifiers within the configured range, none twice, and no more controllers than allowed.
#[test]
fn controllers_are_numbered_and_counted() {
    let mut config = config(&["memory:1MiB"]);
    config.limits.controllers = 3;
    (config.subsystems[0].cntlid_min, config.subsystems[0].cntlid_max) = (Some(10), Some(20));
    on_each_transport(&config, |target| {
        let at = address(target);
        let controllers: Vec<_> = (0..3).map(|_| Peer::admin(at)).collect();
        let mut ids: Vec<_> = controllers.iter().map(|(_, id)| *id).collect();
        assert!(ids.iter().all(|id| (10..=20).contains(id)), "{ids:?}");
        ids.dedup();
        assert_eq!(ids.len(), 3);
        let mut fourth = Peer::open(at, HostOptions::default());
        assert_eq!(
            fourth.connect(&ConnectFields::admin()).status(),
            Status::CONNECT_CONTROLLER_BUSY
        );
        drop(controllers);
        crate::support::wait_until("a place is free", || {
            fourth.connect(&ConnectFields::admin()).status().is_success()
        });
    });
}

#[test]
fn subsystems_ports_and_hosts_keep_to_themselves() {
    let mut config = config(&["memory:1MiB"]);
    let other = "nqn.2024-01.io.weft:other";
    config.subsystems.push(subsystem(other, &["memory:1MiB", "memory:2MiB"]));
    let mut second = port(2, "127.0.0.1:0");
    second.subsystems = PortSubsystems::Only(vec![other.to_owned()]);
    config.ports.push(second);
    on_each_transport(&config, |target| {
        let both = target.addresses()[&1];
        let only = target.addresses()[&2];
        let mut other_host = Peer::open(only, HostOptions::default());
        let answer = other_host.connect(&ConnectFields::admin());
        assert_eq!((answer.status(), answer.completion.dword0()), (INVALID, 0x1_0100));
        let mut queues = Vec::new();
        let mut admins = Vec::new();
        for (at, subsystem, seed) in [(both, SUBSYSTEM, 1), (both, other, 2), (only, other, 3)] {
            for host in [false, true] {
                let fields =
                    ConnectFields { subsystem: subsystem.to_owned(), ..ConnectFields::admin() };
                let fields = if host { fields.of_other_host() } else { fields };
                let (admin, controller) = Peer::admin_as(at, &fields);
                let fields = ConnectFields { queue_id: 1, entries: 128, controller, ..fields };
                let mut io = Peer::io_as(at, &fields, HostOptions::default());
                let block = seed * 4 + u64::from(host);
                let bytes = pattern(4096, u8::try_from(block).expect("few"));
                io.write(1, block, 1, &bytes).succeeded();
                queues.push((io, subsystem));
                admins.push(admin);
            }
        }
        for (io, subsystem) in &mut queues {
            let mine: &[u64] = if *subsystem == SUBSYSTEM { &[4, 5] } else { &[8, 9, 12, 13] };
            for block in 4..14 {
                let is_mine = mine.contains(&block);
                let expected = pattern(4096, u8::try_from(block).expect("few"));
                let read = io.read(1, block, 1, 4096);
                assert_eq!(read.bytes() == expected, is_mine, "block {block} of {subsystem}");
            }
            let second = io.read(2, 0, 1, 4096).status();
            assert_eq!(second.is_success(), *subsystem == other);
        }
    });
}

#[test]
fn ipv6_is_served_and_a_wildcard_takes_both() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("SKIPPED: this machine has no ::1");
        return;
    }
    let mut config = config(&["memory:1MiB"]);
    config.ports = vec![port(1, "[::1]:0"), port(2, "[::]:0")];
    let target = start(config);
    let wildcard = target.addresses()[&2].port();
    let ways = [
        target.addresses()[&1],
        ([0, 0, 0, 0, 0, 0, 0, 1], wildcard).into(),
        ([127, 0, 0, 1], wildcard).into(),
    ];
    for (at, seed) in ways.into_iter().zip(1_u8..) {
        let (_admin, controller) = Peer::admin(at);
        let mut io = Peer::io(at, controller, 1);
        let bytes = pattern(32768, seed);
        io.write(1, 0, 8, &bytes).succeeded();
        assert!(io.read(1, 0, 8, 32768).bytes() == bytes);
    }
    target.stop().expect("a clean stop");
}

/// SPDK's load generator gives none unless it is told to.
#[test]
fn a_host_needs_no_name() {
    on_each_driver(&config(&["memory:1MiB"]), |target| {
        let mut raw = Raw::shaken_hands(address(target), DigestOptions(0), 1);
        let fields = ConnectFields::admin();
        let nameless = ConnectData { host_nqn: [0; 256], ..fields.data() };
        raw.command(fields.command().with_command_id(9), nameless.bytes());
        let completion = raw.receive().completion();
        assert!(completion.status().is_success(), "{}", completion.status());
        assert_eq!(raw.property(9, Offset::CONTROLLER_STATUS), 0, "not enabled yet");
    });
}

#[test]
fn the_data_of_a_connect_may_come_after_it() {
    for config in [config(&["memory:1MiB"]), config_of_two_groups(&["memory:1MiB"])] {
        on_each_driver(&config, |target| {
            let mut raw = Raw::shaken_hands(address(target), DigestOptions(0), 1);
            let fields = ConnectFields::admin();
            let data = fields.data();
            let outside = Descriptor::transport(1024);
            // One that is refused, and then one that is not.
            let good: [u8; 1024] = data.bytes().try_into().expect("1 KiB");
            for (sent, accepted) in [([0xff; 1024], false), (good, true)] {
                let connect = fields.command().with_command_id(3).with_data_pointer(outside);
                raw.command(connect, &[]);
                let request = raw.receive().ready_to_transfer();
                assert_eq!((request.offset.get(), request.length.get()), (0, 1024));
                let (head, tail) = sent.split_at(100);
                let first = raw.data(&request, 0, head, false);
                raw.send(&first);
                let last = raw.data(&request, 100, tail, true);
                raw.send(&last);
                let completion = raw.receive().completion();
                assert_eq!(completion.command_id.get(), 3);
                assert_eq!(completion.status().is_success(), accepted, "{}", completion.status());
            }
        });
    }
}
