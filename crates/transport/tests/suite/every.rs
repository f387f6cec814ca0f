//! Tests that every transport has to pass.

use std::sync::mpsc;
use std::time::Duration;

use weft_nvme::{Command, Status};
use weft_reactor::simulation::{NetworkConditions, World};
use weft_reactor::{Config, Reactor, WaitLimit};
use weft_transport::host::{HostData, HostOptions};
use weft_transport::target::Limits;
use weft_transport::{CloseReason, Slot};

use crate::rig::{
    Behaviour, CommandOutcome, HANG, Host, Rig, Target, TestTransport, drivers, pattern,
};

const LENGTHS: [usize; 9] = [1, 512, 4096, 8192, 8193, 20_000, 65_536, 131_072, 1 << 20];

const WRITTEN: CommandOutcome =
    CommandOutcome::Completed { status: Status::SUCCESS, received: 0, data: None };

fn simulated() -> Reactor {
    Reactor::simulated(&World::new(1, NetworkConditions::default()))
}

fn rig(via: &TestTransport) -> Rig {
    Rig::via(via, simulated(), Behaviour::default())
}

fn read(data: Vec<u8>) -> CommandOutcome {
    let received = u32::try_from(data.len()).expect("short");
    CommandOutcome::Completed { status: Status::SUCCESS, received, data: Some(data) }
}

/// Writes and reads all keys once, with all commands in flight.
fn exercise(rig: &mut Rig, host: usize) {
    let slots: Vec<Slot> = (100..)
        .zip(LENGTHS)
        .map(|(key, length)| rig.hosts[host].write(&rig.reactor, key, &pattern(!key, length)))
        .collect();
    let endings = rig.finish(host);
    assert!(slots.iter().all(|slot| endings[slot] == WRITTEN), "{endings:?}");
    let slots: Vec<Slot> = (100..)
        .zip(LENGTHS)
        .map(|(key, length)| rig.hosts[host].read(&rig.reactor, key, length))
        .collect();
    let mut endings = rig.finish(host);
    for ((key, slot), length) in (100..).zip(slots).zip(LENGTHS) {
        assert_eq!(endings.remove(&slot), Some(read(pattern(!key, length))), "{length} bytes");
    }
}

#[test]
fn data_arrives_in_every_length_on_every_driver() {
    for via in TestTransport::all() {
        for reactor in drivers().into_iter().chain([simulated()]) {
            let mut rig = Rig::via(&via, reactor, Behaviour::default());
            let host = rig.connect(via.options());
            exercise(&mut rig, host);
            rig.hosts[host].connection.set_in_capsule_bytes(0);
            exercise(&mut rig, host);
            rig.close();
        }
    }
}

#[test]
fn a_full_queue_is_full_and_empties() {
    for via in TestTransport::all() {
        let mut rig = rig(&via);
        let host = rig.connect(HostOptions { queue_depth: 31, ..via.options() });
        for round in 0..10 {
            let mut ids = Vec::new();
            while rig.hosts[host].connection.free_slots() > 0 {
                let key = u32::try_from(ids.len()).expect("few");
                let slot = rig.hosts[host].write(&rig.reactor, key, &pattern(key + round, 4096));
                ids.push(rig.hosts[host].connection.command_id(slot).expect("it is in flight"));
            }
            assert_eq!(ids.len(), 31, "{via:?}");
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), 31, "identifiers are unique");
            let refused = rig.hosts[host].connection.submit(Command::new(0), HostData::None);
            assert!(refused.is_err());
            let endings = rig.finish(host);
            assert!(endings.len() == 31 && endings.values().all(|ending| *ending == WRITTEN));
            for key in 0..31 {
                assert_eq!(rig.target.stored[&key], pattern(key + round, 4096));
            }
        }
        rig.close();
    }
}

#[test]
fn a_host_that_gives_up_gets_its_buffers_back() {
    for via in TestTransport::all() {
        let mut rig = rig(&via);
        let host = rig.connect(via.options());
        let mut slots = Vec::new();
        for key in 0..4 {
            slots.push(rig.hosts[host].write(&rig.reactor, key, &pattern(key, 65_536)));
            slots.push(rig.hosts[host].read(&rig.reactor, key, 4096));
        }
        let hang = rig.hosts[host].connection.submit(Command::new(HANG), HostData::None);
        slots.push(hang.expect("a slot"));
        rig.flush(host);
        let own = &mut rig.hosts[host];
        own.connection.close(&mut rig.reactor, CloseReason::Requested("no patience"));
        rig.run("closed", |rig| {
            rig.hosts[host].take_events();
            rig.hosts[host].closed.is_some() && rig.target.connections.is_empty()
        });
        let (reason, mut in_flight) = rig.hosts[host].closed.clone().expect("closed");
        assert_eq!(reason, CloseReason::Requested("no patience"), "{via:?}");
        in_flight.sort();
        slots.sort();
        assert_eq!(in_flight.iter().map(|(slot, _)| *slot).collect::<Vec<_>>(), slots);
        rig.close();
    }
}

/// Commands of a host that closes the connection are not executed, unless they have arrived.
#[test]
fn commands_that_a_host_gives_up_do_not_reach_the_controller() {
    for via in TestTransport::all() {
        let mut rig = rig(&via);
        let host = rig.connect(via.options());
        let before = rig.target.commands;
        rig.hosts[host].write(&rig.reactor, 7, &pattern(7, 4096));
        rig.flush(host);
        let own = &mut rig.hosts[host];
        own.connection.close(&mut rig.reactor, CloseReason::Requested("given up"));
        rig.run("closed", |rig| {
            rig.hosts[host].take_events();
            rig.hosts[host].closed.is_some() && rig.target.connections.is_empty()
        });
        // Over the other transports the command may have arrived.
        if matches!(via, TestTransport::Loopback) {
            assert_eq!(rig.target.commands, before);
            assert!(rig.target.stored.is_empty());
        }
        rig.close();
    }
}

#[test]
fn a_target_that_closes_sends_what_it_has_answered() {
    for via in TestTransport::all() {
        let mut rig = rig(&via);
        let host = rig.connect(via.options());
        let write = rig.hosts[host].write(&rig.reactor, 3, &pattern(3, 512));
        let hang = rig.hosts[host].connection.submit(Command::new(HANG), HostData::None);
        let hang = hang.expect("a slot");
        rig.flush(host);
        rig.run("stored", |rig| rig.target.stored.contains_key(&3));
        rig.target.close_all(&mut rig.reactor);
        rig.run("closed", |rig| rig.hosts[host].closed.is_some());
        let own = &mut rig.hosts[host];
        assert_eq!(own.endings.remove(&write), Some(WRITTEN), "{via:?}");
        let (reason, in_flight) = own.closed.clone().expect("closed");
        assert_eq!((reason, in_flight), (CloseReason::PeerClosed, vec![(hang, false)]), "{via:?}");
        rig.close();
    }
}

#[test]
fn nobody_listens() {
    for via in TestTransport::all() {
        let mut rig = rig(&via);
        rig.target.stop(&mut rig.reactor);
        let host = rig.start(via.options());
        rig.run("refused", |rig| rig.hosts[host].closed.is_some());
        let (reason, _) = rig.hosts[host].closed.clone().expect("closed");
        assert!(reason.to_string().to_lowercase().contains("connection refused"), "{reason}");
        rig.close();
    }
}

#[test]
fn a_silent_host_times_out() {
    for via in TestTransport::all() {
        let handshake_timeout = Duration::from_secs(3);
        let limits = Limits { handshake_timeout, ..Limits::default() };
        let behaviour = Behaviour { limits, ..Behaviour::default() };
        let world = World::new(1, NetworkConditions::default());
        let mut rig = Rig::via(&via, Reactor::simulated(&world), behaviour);
        let host = rig.start(via.options());
        rig.hosts[host].mute = true;
        rig.run("sent away", |rig| rig.hosts[host].closed.is_some());
        assert_eq!(rig.target.closed, [CloseReason::HandshakeTimeout], "{via:?}");
        assert!(world.now() >= handshake_timeout);
        rig.close();
    }
}

#[test]
fn a_hundred_connections_come_and_go() {
    for via in TestTransport::all() {
        let mut rig = rig(&via);
        for round in 0..100 {
            let host = rig.connect(via.options());
            let slot = rig.hosts[host].write(&rig.reactor, round, &pattern(round, 4096));
            assert_eq!(rig.finish(host)[&slot], WRITTEN);
            let own = &mut rig.hosts[host];
            own.connection.close(&mut rig.reactor, CloseReason::Requested("enough"));
            own.take_events();
        }
        rig.close();
    }
}

/// Host and target on a thread each, under load; the host closes at the end.
#[test]
fn two_threads() {
    for via in TestTransport::all() {
        let reactor = || {
            let mut reactor = Reactor::new(Config { pool_bytes: 48 << 20, ..Config::default() });
            via.provide(reactor.as_mut().expect("a reactor"));
            reactor.expect("a reactor")
        };
        let (tell, address) = mpsc::channel();
        std::thread::scope(|scope| {
            let target = scope.spawn(|| {
                let mut reactor = reactor();
                let any = ([127, 0, 0, 1], 0).into();
                let transport = via.transport();
                let behaviour = Behaviour { tls: via.tls(), ..Behaviour::default() };
                let mut target = Target::listen(&mut reactor, transport, any, behaviour);
                tell.send(target.address).expect("somebody waits");
                serve(&mut reactor, &mut target);
                target.stop(&mut reactor);
                let pool = reactor.pool();
                (target.stored.len(), pool.capacity() - pool.available())
            });
            let mut reactor = reactor();
            let address = address.recv().expect("an address");
            let host = Host::connect(&mut reactor, 0, address, via.options());
            let mut host = host.secured(via.tls());
            run(&mut reactor, &mut host, |host| host.ready);
            for round in 0..20 {
                for key in 0..64 {
                    let length = LENGTHS[key as usize % 7];
                    host.write(&reactor, key, &pattern(key + round, length));
                }
                host.connection.flush(&mut reactor);
                run(&mut reactor, &mut host, |host| host.connection.in_flight() == 0);
                assert!(host.endings.values().all(|ending| *ending == WRITTEN));
                host.endings.clear();
                for key in 0..64 {
                    host.read(&reactor, key, LENGTHS[key as usize % 7]);
                }
                host.connection.flush(&mut reactor);
                run(&mut reactor, &mut host, |host| host.connection.in_flight() == 0);
                let keys = std::mem::take(&mut host.endings).into_values();
                let mut read = keys.map(|ending| match ending {
                    CommandOutcome::Completed { data: Some(data), .. } => data,
                    other => panic!("{other:?}"),
                });
                let mut expected: Vec<_> =
                    (0..64).map(|k| pattern(k + round, LENGTHS[k as usize % 7])).collect();
                assert!(read.all(|data| {
                    let found = expected.iter().position(|other| *other == data);
                    found.map(|index| expected.swap_remove(index)).is_some()
                }));
            }
            drop((host, reactor));
            assert_eq!(target.join().expect("no panic"), (64, 0), "{via:?}");
        });
    }
}

/// Serves one host until its connection is closed.
fn serve(reactor: &mut Reactor, target: &mut Target) {
    let mut completions = Vec::new();
    while target.closed.is_empty() {
        reactor.poll(WaitLimit::Sleep, &mut completions);
        for completion in completions.drain(..) {
            target.handle(reactor, completion);
        }
    }
}

fn run(reactor: &mut Reactor, host: &mut Host, done: impl Fn(&Host) -> bool) {
    let mut completions = Vec::new();
    while !done(host) {
        reactor.poll(WaitLimit::Sleep, &mut completions);
        for completion in completions.drain(..) {
            host.handle(reactor, completion);
        }
        assert!(host.closed.is_none(), "{:?}", host.closed);
    }
}
