//! Target and host over sockets, with every driver of this machine.

use std::net::TcpListener;
use std::time::Duration;

use weft_nvme::{Command, Status};
use weft_nvmf::tcp::target::Config;
use weft_reactor::Reactor;
use weft_transport::CloseReason;
use weft_transport::host::{HostData, HostOptions};
use weft_transport::target::Limits;

use crate::rig::{Behaviour, CommandOutcome, HANG, Rig, drivers, pattern};

/// Lengths on both sides of every boundary: in-capsule, copy or gather, direct receive, the
/// receive buffer, MAXH2CDATA.
const LENGTHS: [usize; 12] =
    [1, 512, 4096, 8192, 8193, 16_383, 16_384, 65_536, 262_144, 300_001, 1 << 20, 1_048_580];

fn tcp_limits(edit: impl FnOnce(&mut Config)) -> Limits {
    let mut limits = Limits::default();
    edit(&mut limits.tcp);
    limits
}

fn exercise(reactor: Reactor, behaviour: Behaviour, options: HostOptions) {
    let mut rig = Rig::new(reactor, behaviour);
    let index = rig.connect(options);
    for (key, length) in (0..).zip(LENGTHS) {
        let payload = pattern(key + 1000, length);
        let write = rig.hosts[index].write(&rig.reactor, key, &payload);
        let endings = rig.finish(index);
        assert!(
            matches!(endings[&write], CommandOutcome::Completed { status: Status::SUCCESS, .. }),
            "{length} bytes written: {endings:?}"
        );
        assert!(rig.target.stored[&key] == payload, "{length} bytes arrived");
        let read = rig.hosts[index].read(&rig.reactor, key, length);
        let mut endings = rig.finish(index);
        match endings.remove(&read) {
            Some(CommandOutcome::Completed { status: Status::SUCCESS, received, data }) => {
                assert_eq!(received as usize, length);
                assert!(data.as_ref() == Some(&payload), "{length} bytes read");
            }
            other => panic!("{length} bytes: {other:?}"),
        }
    }
    rig.close();
}

#[test]
fn reads_and_writes_of_every_shape() {
    for flow_control in [true, false] {
        for digests in [false, true] {
            for reactor in drivers() {
                let behaviour = Behaviour { flow_control, ..Behaviour::default() };
                let options = HostOptions {
                    header_digest: digests,
                    data_digest: digests,
                    ..HostOptions::default()
                };
                exercise(reactor, behaviour, options);
            }
        }
    }
}

#[test]
fn small_pieces() {
    for reactor in drivers() {
        let limits = tcp_limits(|tcp| {
            tcp.parameters.maximum_h2c_data = 4096;
            tcp.parameters.controller_data_alignment = 31;
            tcp.r2t_bytes = 20_000;
            tcp.c2h_data_bytes = 30_000;
        });
        let behaviour = Behaviour { limits, flow_control: false, ..Behaviour::default() };
        let options =
            HostOptions { data_digest: true, in_capsule_bytes: 0, ..HostOptions::default() };
        exercise(reactor, behaviour, options);
    }
}

#[test]
fn a_queue_kept_full() {
    for reactor in drivers() {
        let mut rig = Rig::new(reactor, Behaviour::default());
        let options = HostOptions { data_digest: true, ..HostOptions::default() };
        let index = rig.connect(options);
        for round in 0..6u32 {
            let mut slots = Vec::new();
            for key in 0..128u32 {
                let length = [512, 4096, 20_000][(key % 3) as usize];
                let host = &mut rig.hosts[index];
                if (key + round) % 2 == 0 {
                    let payload = pattern(key + round, length);
                    slots.push((host.write(&rig.reactor, key, &payload), key, length));
                } else {
                    slots.push((host.read(&rig.reactor, key + 1000, length), key, length));
                }
            }
            assert_eq!(rig.hosts[index].connection.free_slots(), 0);
            let refused = rig.hosts[index].connection.submit(Command::new(0), HostData::None);
            assert!(refused.is_err(), "the queue is full");
            let endings = rig.finish(index);
            assert_eq!(endings.len(), 128);
            for (slot, key, length) in slots {
                let CommandOutcome::Completed { status, received, data } = &endings[&slot] else {
                    panic!("{endings:?}");
                };
                assert!(status.is_success());
                if (key + round) % 2 == 0 {
                    assert!(rig.target.stored[&key] == pattern(key + round, length));
                } else {
                    assert_eq!(*received as usize, length);
                    assert!(data.as_ref() == Some(&pattern(key + 1000, length)));
                }
            }
        }
        rig.close();
    }
}

#[test]
fn several_hosts_at_once() {
    for reactor in drivers() {
        let mut rig = Rig::new(reactor, Behaviour::default());
        let hosts: Vec<usize> = (0..10).map(|_| rig.start(HostOptions::default())).collect();
        rig.run("all connected", |rig| rig.hosts.iter().all(|host| host.ready));
        for index in hosts {
            let key = u32::try_from(index).unwrap();
            for _ in 0..16 {
                rig.hosts[index].read(&rig.reactor, key, 4096);
            }
            rig.flush(index);
        }
        rig.run("all read", |rig| rig.hosts.iter().all(|host| host.endings.len() == 16));
        for (key, host) in (0..).zip(&rig.hosts) {
            let expected = CommandOutcome::Completed {
                status: Status::SUCCESS,
                received: 4096,
                data: Some(pattern(key, 4096)),
            };
            assert!(host.endings.values().all(|ending| *ending == expected));
        }
        rig.close();
    }
}

/// A connection stops receiving when the pool is empty, and continues when it is not.
#[test]
fn an_empty_pool_only_delays() {
    for reactor in drivers() {
        let mut rig = Rig::new(reactor, Behaviour::default());
        let index = rig.connect(HostOptions { in_capsule_bytes: 8192, ..HostOptions::default() });
        for key in 0..64 {
            rig.hosts[index].write(&rig.reactor, key, &pattern(key, 8192));
        }
        let mut stalled_bytes = Vec::new();
        for length in [4 << 20, 1 << 20, 256 << 10, 4096] {
            while let Some(buffer) = rig.reactor.pool().take(length) {
                stalled_bytes.push(buffer);
            }
        }
        rig.flush(index);
        for _ in 0..20 {
            rig.turn();
        }
        let stored = rig.target.stored.len();
        assert!(stored < 64, "there was no memory for it");
        stalled_bytes.clear();
        let endings = rig.finish(index);
        assert_eq!((endings.len(), rig.target.stored.len()), (64, 64));
        rig.close();
    }
}

#[test]
fn peers_vanish() {
    for reactor in drivers() {
        let mut rig = Rig::new(reactor, Behaviour::default());
        let index = rig.connect(HostOptions::default());
        for key in 0..20 {
            let command = Command::new(HANG).with_cdw10(key);
            rig.hosts[index].connection.submit(command, HostData::None).unwrap();
            rig.hosts[index].write(&rig.reactor, key, &pattern(key, 100_000));
            rig.hosts[index].read(&rig.reactor, key, 100_000);
        }
        rig.flush(index);
        rig.turn();
        let Rig { reactor, hosts, .. } = &mut rig;
        hosts[index].connection.close(reactor, CloseReason::Requested("vanish"));
        hosts[index].take_events();
        rig.run("both know", |rig| {
            rig.hosts[index].closed.is_some() && rig.target.closed.len() == 1
        });
        let (reason, in_flight) = rig.hosts[index].closed.as_ref().unwrap();
        assert_eq!(*reason, CloseReason::Requested("vanish"));
        assert_eq!(in_flight.len() + rig.hosts[index].endings.len(), 60);
        rig.close();
    }
}

#[test]
fn a_target_that_ends_a_connection_lets_what_is_queued_go_out() {
    for reactor in drivers() {
        let mut rig = Rig::new(reactor, Behaviour::default());
        let index = rig.connect(HostOptions::default());
        let slot = rig.hosts[index].read(&rig.reactor, 5, 1 << 20);
        rig.flush(index);
        // The response is queued, and the socket cannot hold all of it.
        rig.run("the command has come", |rig| rig.target.commands == 2);
        rig.target.close_all(&mut rig.reactor);
        rig.run("the host's connection is closed", |rig| rig.hosts[index].closed.is_some());
        let data = Some(pattern(5, 1 << 20));
        let whole = CommandOutcome::Completed { status: Status::SUCCESS, received: 1 << 20, data };
        assert!(rig.hosts[index].endings[&slot] == whole);
        assert_eq!(rig.hosts[index].closed, Some((CloseReason::PeerClosed, Vec::new())));
        rig.close();
    }
}

#[test]
fn nobody_listens() {
    for reactor in drivers() {
        // A port that was free a moment ago.
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        drop(listener);
        let mut rig = Rig::new(reactor, Behaviour::default());
        rig.target.address = address;
        let index = rig.start(HostOptions::default());
        rig.run("refused", |rig| rig.hosts[index].closed.is_some());
        let (reason, _) = rig.hosts[index].closed.as_ref().unwrap();
        assert!(
            matches!(reason, CloseReason::Io { kind: std::io::ErrorKind::ConnectionRefused, .. }),
            "{reason}"
        );
        assert!(reason.to_string().contains("refused"), "{reason}");
        rig.close();
    }
}

#[test]
fn a_controller_that_says_nothing() {
    for reactor in drivers() {
        let mut rig = Rig::new(reactor, Behaviour::default());
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        rig.target.address = listener.local_addr().expect("address");
        let timeout = Duration::from_millis(50);
        let index = rig.start(HostOptions { timeout, ..HostOptions::default() });
        rig.run("given up", |rig| rig.hosts[index].closed.is_some());
        let (reason, _) = rig.hosts[index].closed.as_ref().unwrap();
        assert_eq!(*reason, CloseReason::HandshakeTimeout);
        drop(listener);
        rig.close();
    }
}
