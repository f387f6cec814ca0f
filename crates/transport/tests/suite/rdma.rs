//! Hosts and a target over a device in memory: data transfer, the rules of the verbs, and faults,
//! after which nothing is leaked.

use std::collections::BTreeSet;
use std::time::Duration;

use weft_nvme::rdma::RejectStatus;
use weft_nvme::{Command, Status};
use weft_nvmf::rdma::Refusal;
use weft_reactor::simulation::{NetworkConditions, World};
use weft_reactor::{BUFFER_BYTES_MAX, Reactor, WaitLimit};
use weft_transport::host::{HostData, HostOptions, TransportOptions};
use weft_transport::rdma::software::{Conditions, Fabric, ResourceCounts};
use weft_transport::rdma::{DeviceFault, DeviceKind, RemoteAccess, WorkStatus};
use weft_transport::{CloseReason, Slot};

use crate::rig::{Behaviour, CommandOutcome, HANG, READ, Rig, drivers, pattern};

const LENGTHS: [usize; 9] = [1, 512, 4096, 8192, 8193, 16_384, 65_536, 131_072, 1 << 20];

fn options() -> HostOptions {
    HostOptions {
        transport_options: TransportOptions::Rdma { queue_id: 1, controller_id: 1 },
        ..HostOptions::default()
    }
}

fn admin_options() -> HostOptions {
    let transport_options = TransportOptions::Rdma { queue_id: 0, controller_id: 0 };
    HostOptions { transport_options, queue_depth: 31, ..HostOptions::default() }
}

fn simulated() -> Reactor {
    Reactor::simulated(&World::new(1, NetworkConditions::default()))
}

fn rig(conditions: Conditions) -> (Fabric, Rig) {
    let fabric = Fabric::new(conditions);
    let rig = Rig::over(&fabric, simulated(), Behaviour::default());
    (fabric, rig)
}

fn read(received: usize, data: Vec<u8>) -> CommandOutcome {
    let received = u32::try_from(received).expect("short");
    CommandOutcome::Completed { status: Status::SUCCESS, received, data: Some(data) }
}

const WRITTEN: CommandOutcome =
    CommandOutcome::Completed { status: Status::SUCCESS, received: 0, data: None };

/// Writes and reads all keys once, with several commands in flight.
fn exercise(rig: &mut Rig, host: usize) {
    let payloads: Vec<Vec<u8>> = LENGTHS.iter().map(|length| pattern(77, *length)).collect();
    let slots: Vec<Slot> = (100..)
        .zip(&payloads)
        .map(|(key, payload)| rig.hosts[host].write(&rig.reactor, key, payload))
        .collect();
    let endings = rig.finish(host);
    assert!(slots.iter().all(|slot| endings[slot] == WRITTEN), "{endings:?}");
    let slots: Vec<Slot> = (100..)
        .zip(LENGTHS)
        .map(|(key, length)| rig.hosts[host].read(&rig.reactor, key, length))
        .collect();
    let mut endings = rig.finish(host);
    for ((slot, length), payload) in slots.iter().zip(LENGTHS).zip(payloads) {
        assert_eq!(endings.remove(slot), Some(read(length, payload)), "{length} bytes");
    }
}

/// Closes everything: no object may be left on the fabric after the reactor was dropped.
fn close(fabric: &Fabric, rig: Rig) {
    let mut rig = rig;
    rig.close_hosts();
    let resource_counts = fabric.resource_counts();
    let (endpoints, pairs) = (resource_counts.endpoints, resource_counts.queue_pairs);
    assert_eq!((endpoints, pairs, resource_counts.listeners), (0, 0, 0), "{resource_counts:?}");
    assert_eq!(fabric.counts().receiver_not_ready, 0);
    rig.close();
    assert_eq!(fabric.resource_counts(), ResourceCounts::default());
}

#[test]
fn data_arrives_in_every_length_on_every_driver() {
    let mut reactors = drivers();
    reactors.push(simulated());
    for reactor in reactors {
        let fabric = Fabric::default();
        let mut rig = Rig::over(&fabric, reactor, Behaviour::default());
        let host = rig.connect(options());
        exercise(&mut rig, host);
        rig.hosts[host].connection.set_in_capsule_bytes(4096);
        exercise(&mut rig, host);
        let counts = fabric.counts();
        assert!(counts.reads > 0 && counts.writes > 0, "{counts:?}");
        // One window for each command with data outside the capsule, which the target invalidates.
        assert!(counts.bindings > 0 && counts.invalidations == counts.bindings, "{counts:?}");
        close(&fabric, rig);
    }
}

#[test]
fn data_arrives_on_every_kind_of_device() {
    let mut kinds = Vec::new();
    for kind in [DeviceKind::InfiniBand, DeviceKind::Roce, DeviceKind::Iwarp] {
        for (inline_bytes, hold_reads) in [(0, false), (64, true), (256, true)] {
            let mut conditions = Conditions { inline_bytes, hold_reads, ..Conditions::default() };
            conditions.attributes.kind = kind;
            conditions.attributes.initiator_depth_max = 1;
            kinds.push(conditions);
        }
    }
    for hold_reads in [false, true] {
        kinds.push(soft_iwarp(hold_reads));
    }
    for (conditions, invalidates) in kinds.iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let mut conditions = conditions.clone();
        conditions.attributes.send_with_invalidate = invalidates;
        for access in [RemoteAccess::Window, RemoteAccess::Lease, RemoteAccess::Wide] {
            let remote_access = Some(access);
            let (fabric, mut rig) = rig(conditions.clone());
            let admin = rig.connect(HostOptions { remote_access, ..admin_options() });
            let host = rig.connect(HostOptions { remote_access, ..options() });
            exercise(&mut rig, host);
            exercise(&mut rig, admin);
            assert_eq!(fabric.counts().bindings > 0, access == RemoteAccess::Window);
            close(&fabric, rig);
        }
    }
}

/// The sink of a target's RDMA READs is accessible to hosts only on iWARP adapters, and then each
/// host has memory of its own, as large as its commands.
#[test]
fn hosts_have_access_to_a_targets_memory_only_on_iwarp() {
    for (kind, soft_iwarp) in [
        (DeviceKind::InfiniBand, false),
        (DeviceKind::Roce, false),
        (DeviceKind::Iwarp, true),
        (DeviceKind::Iwarp, false),
    ] {
        let mut conditions = Conditions::default();
        conditions.attributes.kind = kind;
        conditions.attributes.soft_iwarp = soft_iwarp;
        let (fabric, mut rig) = rig(conditions);
        let hosts = [rig.connect(options()), rig.connect(options())];
        let mut domains = BTreeSet::new();
        for host in hosts {
            for key in 0..4 {
                rig.hosts[host].write(&rig.reactor, key, &pattern(key, 16_384));
                rig.hosts[host].read(&rig.reactor, key, 16_384);
            }
            rig.finish(host);
            let reachable = fabric.reachable();
            assert!(reachable.iter().all(|region| region.bytes == 16_384), "{reachable:?}");
            domains.extend(reachable.iter().map(|region| region.domain));
        }
        let leased = kind == DeviceKind::Iwarp && !soft_iwarp;
        assert_eq!(domains.len(), if leased { 2 } else { 0 }, "{kind}");
        close(&fabric, rig);
    }
}

fn soft_iwarp(hold_reads: bool) -> Conditions {
    let mut conditions = Conditions { hold_reads, ..Conditions::default() };
    conditions.attributes.kind = DeviceKind::Iwarp;
    conditions.attributes.soft_iwarp = true;
    conditions
}

#[test]
fn a_first_command_arrives_after_a_wake_up_read() {
    let (fabric, mut by_target) = rig(soft_iwarp(false));
    by_target.connect(options());
    let counts = fabric.counts();
    assert_eq!((counts.reads, counts.writes), (1, 0), "the target asks first");
    close(&fabric, by_target);
    let mut conditions = soft_iwarp(false);
    conditions.attributes.responder_resources_max = 0;
    let (fabric, mut by_host) = rig(conditions);
    by_host.connect(options());
    let counts = fabric.counts();
    assert_eq!((counts.reads, counts.writes), (0, 1), "a target without READs gets a WRITE");
    close(&fabric, by_host);
}

#[test]
fn a_read_that_is_overtaken_has_not_ended() {
    let (fabric, mut rig) = rig(soft_iwarp(true));
    let host = rig.connect(options());
    for round in 1..20 {
        for key in 0..32 {
            // A response follows each READ.
            rig.hosts[host].write(&rig.reactor, key, &pattern(key + 100 * round, 16_384));
            rig.flush(host);
            rig.turn();
            rig.hosts[host].read(&rig.reactor, 1000 + key, 4096);
            rig.flush(host);
            rig.turn();
            rig.hosts[host].endings.clear();
        }
        rig.finish(host);
        for key in 0..32 {
            assert_eq!(rig.target.stored[&key], pattern(key + 100 * round, 16_384));
        }
    }
    close(&fabric, rig);
}

#[test]
fn a_full_queue_never_finds_the_receiver_not_ready() {
    let (fabric, mut rig) = rig(Conditions::default());
    let host = rig.connect(options());
    rig.hosts[host].connection.set_in_capsule_bytes(4096);
    for round in 0..20 {
        let free = rig.hosts[host].connection.free_slots();
        assert_eq!(free, 128);
        for command in 0..free {
            let key = u32::try_from(command % 7).expect("small");
            if (command + round) % 3 == 0 {
                rig.hosts[host].write(&rig.reactor, key + 50, &pattern(key, 512));
            } else {
                rig.hosts[host].read(&rig.reactor, key, 4096);
            }
        }
        assert_eq!(rig.finish(host).len(), 128);
    }
    // Full queues go out in chains: far fewer doorbells than messages, and completions than work.
    let counts = fabric.counts();
    assert!(counts.doorbells * 8 < counts.sends, "{counts:?}");
    assert!(counts.send_completions * 4 < counts.sends + counts.writes, "{counts:?}");
    close(&fabric, rig);
}

#[test]
fn a_short_send_queue_delays_and_loses_nothing() {
    let mut conditions = Conditions { hold_reads: true, ..Conditions::default() };
    conditions.attributes.queue_depth_max = 130;
    let (fabric, mut rig) = rig(conditions);
    let host = rig.connect(options());
    for _ in 0..3 {
        for command in 0..128 {
            rig.hosts[host].write(&rig.reactor, command, &pattern(command, 4096));
        }
        let endings = rig.finish(host);
        assert!(endings.len() == 128 && endings.values().all(|ending| *ending == WRITTEN));
    }
    for command in 0..128 {
        assert_eq!(rig.target.stored[&command], pattern(command, 4096));
    }
    close(&fabric, rig);
}

#[test]
fn in_capsule_data_waits_for_memory() {
    let (fabric, mut rig) = rig(Conditions::default());
    let host = rig.connect(options());
    rig.hosts[host].connection.set_in_capsule_bytes(4096);
    let slot = rig.hosts[host].write(&rig.reactor, 5, &pattern(5, 4096));
    let rest: Vec<_> = std::iter::from_fn(|| rig.reactor.pool().take(4096)).collect();
    rig.flush(host);
    for _ in 0..20 {
        rig.turn();
    }
    assert_eq!(rig.hosts[host].connection.in_flight(), 1, "there is no memory for it");
    drop(rest);
    assert_eq!(rig.finish(host)[&slot], WRITTEN);
    close(&fabric, rig);
}

#[test]
fn a_queue_that_the_device_cannot_have_is_rejected() {
    let mut conditions = Conditions::default();
    conditions.attributes.queue_depth_max = 64;
    let (fabric, mut rig) = rig(conditions);
    let host = rig.start(HostOptions { queue_depth: 63, ..options() });
    rig.run("connected", |rig| rig.hosts[host].ready);
    let deep = rig.start(options());
    rig.run("refused", |rig| rig.hosts[deep].closed.is_some());
    close(&fabric, rig);
}

#[test]
fn a_queue_without_memory_is_rejected_with_the_reason() {
    let fabric = Fabric::default();
    let world = World::new(1, NetworkConditions::default());
    world.set_memory(4 << 20, 65_536);
    let mut rig = Rig::over(&fabric, Reactor::simulated(&world), Behaviour::default());
    let hosts: Vec<_> = (0..8).map(|_| rig.start(options())).collect();
    rig.run("answered", |rig| {
        hosts.iter().all(|host| rig.hosts[*host].ready || rig.hosts[*host].closed.is_some())
    });
    let refused = CloseReason::Refused(Refusal::Rejected(RejectStatus::NO_RESOURCES));
    let closed = |host: &usize| rig.hosts[*host].closed.as_ref().map(|(reason, _)| *reason);
    assert!(hosts.iter().any(|host| closed(host) == Some(refused)));
    close(&fabric, rig);
}

#[test]
fn nobody_listens() {
    let (fabric, mut rig) = rig(Conditions::default());
    rig.target.stop(&mut rig.reactor);
    let host = rig.start(options());
    rig.run("refused", |rig| rig.hosts[host].closed.is_some());
    let (reason, _) = rig.hosts[host].closed.clone().expect("closed");
    assert_eq!(reason.to_string(), "connection refused");
    fabric.set_unreachable(true);
    let host = rig.start(options());
    rig.run("timed out", |rig| rig.hosts[host].closed.is_some());
    close(&fabric, rig);
}

/// Connects, with retries.
fn reconnect(rig: &mut Rig) -> usize {
    loop {
        let host = rig.start(options());
        rig.run("connected or not", |rig| {
            rig.hosts[host].ready || rig.hosts[host].closed.is_some()
        });
        if rig.hosts[host].ready {
            return host;
        }
        let later = rig.reactor.now() + Duration::from_millis(500);
        while rig.reactor.now() < later {
            rig.turn();
        }
    }
}

/// Applies a fault to a connection with commands in flight in every state.
fn accident(conditions: Conditions, what: impl FnOnce(&Fabric)) -> (CloseReason, Vec<CloseReason>) {
    let (fabric, mut rig) = rig(conditions);
    let host = rig.connect(options());
    rig.hosts[host].connection.set_in_capsule_bytes(4096);
    for key in 0..10 {
        rig.hosts[host].write(&rig.reactor, key, &pattern(key, 4096));
        rig.hosts[host].write(&rig.reactor, key, &pattern(key, 65_536));
        rig.hosts[host].read(&rig.reactor, key + 100, 20_000);
        let hang = Command::new(HANG);
        let _ = rig.hosts[host].connection.submit(hang, HostData::None).expect("a slot");
    }
    rig.flush(host);
    rig.turn();
    what(&fabric);
    for key in 0..4 {
        if rig.hosts[host].connection.free_slots() > 0 {
            rig.hosts[host].read(&rig.reactor, key + 200, 512);
        }
    }
    rig.flush(host);
    rig.run("both sides closed", |rig| {
        rig.hosts[host].take_events();
        rig.hosts[host].closed.is_some() && rig.target.connections.is_empty()
    });
    let (reason, in_flight) = rig.hosts[host].closed.clone().expect("closed");
    assert!(in_flight.len() >= 10, "{in_flight:?}");
    // The ten pending commands have no buffer; all others got theirs back.
    let without = in_flight.iter().filter(|(_, buffer)| !buffer).count();
    assert_eq!(without, 10, "{in_flight:?}");
    let target = std::mem::take(&mut rig.target.closed);
    // The target accepts the next connection, at once or when its device is back.
    let again = reconnect(&mut rig);
    exercise(&mut rig, again);
    close(&fabric, rig);
    (reason, target)
}

#[test]
fn a_peer_that_vanishes_ends_the_connection() {
    let (host, _) = accident(Conditions::default(), |fabric| assert_eq!(fabric.sever(), 1));
    assert_eq!(host, CloseReason::Work(WorkStatus::RETRIES_EXCEEDED));
}

#[test]
fn a_device_that_goes_away_ends_the_connection() {
    let (host, target) = accident(Conditions::default(), Fabric::remove_device);
    assert_eq!((host, target), (CloseReason::DeviceRemoved, vec![CloseReason::DeviceRemoved]));
}

#[test]
fn asynchronous_faults_end_the_connections() {
    for fault in [
        DeviceFault::QueuePair,
        DeviceFault::Request,
        DeviceFault::Access,
        DeviceFault::CompletionQueue,
        DeviceFault::Device,
    ] {
        for hold_reads in [false, true] {
            let conditions = Conditions { hold_reads, ..Conditions::default() };
            let (host, target) = accident(conditions, |fabric| fabric.fail(fault));
            let reason = CloseReason::Device(fault);
            assert!(host == reason && target == [reason], "{fault}: {host}, {target:?}");
        }
    }
}

#[test]
fn a_port_going_down_and_up_ends_no_connection() {
    let (fabric, mut rig) = rig(Conditions::default());
    let host = rig.connect(options());
    fabric.set_port(false);
    exercise(&mut rig, host);
    fabric.set_port(true);
    exercise(&mut rig, host);
    close(&fabric, rig);
}

/// The objects of a removed device are freed while the reactor is running, and listeners listen
/// again when the device is back.
#[test]
fn objects_of_a_removed_device_are_freed() {
    let (fabric, mut rig) = rig(Conditions::default());
    let host = rig.connect(options());
    exercise(&mut rig, host);
    let before = fabric.resource_counts();
    assert!(before.regions > 0 && before.domains == 2 && before.listeners == 1, "{before:?}");
    fabric.set_absent(true);
    fabric.remove_device();
    assert_eq!(fabric.counts().receiver_not_ready, 0);
    rig.run("all objects are freed", |_| fabric.resource_counts() == ResourceCounts::default());
    assert_eq!(rig.target.closed, [CloseReason::DeviceRemoved]);
    let lost = rig.start(options());
    rig.run("the address cannot be resolved", |rig| {
        rig.hosts[lost].take_events();
        rig.hosts[lost].closed.is_some()
    });
    let away = rig.reactor.now();
    while rig.reactor.now() < away + Duration::from_secs(60) {
        rig.turn();
    }
    assert_eq!(fabric.resource_counts(), ResourceCounts::default(), "attempts leak nothing");
    fabric.set_absent(false);
    rig.run("listening again", |_| fabric.resource_counts().listeners == 1);
    let again = rig.connect(options());
    exercise(&mut rig, again);
    close(&fabric, rig);
}

#[test]
fn a_device_that_fails_is_given_back_and_opened_anew() {
    let (fabric, mut rig) = rig(Conditions::default());
    for _ in 0..3 {
        let host = rig.connect(options());
        exercise(&mut rig, host);
        fabric.fail(DeviceFault::Device);
        // Also where the reactor never finds the time to sleep.
        for _ in 0..10 {
            rig.turn_with(WaitLimit::NoWait);
        }
        let resource_counts = fabric.resource_counts();
        assert_eq!(
            (resource_counts.domains, resource_counts.regions, resource_counts.completion_queues),
            (0, 0, 0)
        );
        assert!(rig.hosts[host].closed.is_some());
    }
    close(&fabric, rig);
}

/// A host that receives nothing holds memory of the target, which an abort frees.
#[test]
fn stalled_bytes_are_counted() {
    const BYTES: usize = 65_536;
    let (fabric, mut rig) = rig(Conditions::default());
    let host = rig.connect(options());
    let other = rig.connect(options());
    exercise(&mut rig, host);
    exercise(&mut rig, other);
    let patience = Duration::from_secs(3);
    let hoards = |rig: &mut Rig, now| -> Vec<usize> {
        rig.target.connections.values_mut().map(|one| one.stalled_bytes(now, patience)).collect()
    };
    let idle = rig.reactor.now() + Duration::from_secs(3600);
    assert_eq!(hoards(&mut rig, idle), [0, 0], "an idle host holds no memory");
    for key in 0..4 {
        rig.hosts[host].read(&rig.reactor, key, BYTES);
    }
    for key in 10..12 {
        rig.hosts[host].write(&rig.reactor, key, &pattern(key, BYTES));
    }
    rig.flush(host);
    fabric.lose_connections();
    for _ in 0..3 {
        rig.turn();
    }
    let now = rig.reactor.now();
    assert_eq!(hoards(&mut rig, now), [0, 0], "its time-out has not passed");
    assert_eq!(hoards(&mut rig, now + patience), [6 * BYTES, 0]);
    let free = rig.reactor.pool().available();
    let (_, stuck) = rig.target.connections.iter_mut().next().expect("it is there");
    stuck.abort(&mut rig.reactor, CloseReason::Requested("it held memory"));
    assert!(rig.reactor.pool().available() >= free + 6 * BYTES);
    // The host gets no event; its own time-out ends the connection.
    for index in [host, other] {
        let own = &mut rig.hosts[index];
        own.connection.close(&mut rig.reactor, CloseReason::Requested("silence"));
        own.take_events();
    }
    rig.target.close_all(&mut rig.reactor);
    close(&fabric, rig);
}

/// The pool is registered in pieces, each when a buffer in it is first used, and never again.
#[test]
fn nothing_is_registered_on_the_data_path() {
    let (fabric, mut rig) = rig(Conditions::default());
    let host = rig.connect(options());
    let pieces = (rig.reactor.pool().capacity() / BUFFER_BYTES_MAX) as u64;
    exercise(&mut rig, host);
    exercise(&mut rig, host);
    let warm = fabric.counts().registrations;
    assert!(warm > 0 && warm <= 2 * pieces, "each side has its own: {warm}");
    for _ in 0..20 {
        exercise(&mut rig, host);
    }
    assert_eq!(fabric.counts().registrations, warm);
    // A second connection finds the memory registered.
    let other = rig.connect(options());
    exercise(&mut rig, other);
    let counts = fabric.counts();
    assert!(counts.registrations <= 2 * pieces, "{counts:?} with {pieces} pieces");
    assert_eq!(
        fabric.resource_counts().regions as u64,
        counts.registrations,
        "and none was given back"
    );
    close(&fabric, rig);
}

/// Commands that were not posted when the host closes are returned to their owner.
#[test]
fn commands_that_were_given_up_are_not_posted() {
    let (fabric, mut rig) = rig(Conditions::default());
    let host = rig.connect(options());
    rig.hosts[host].connection.set_in_capsule_bytes(4096);
    let before = rig.target.commands;
    rig.hosts[host].write(&rig.reactor, 1, &pattern(1, 512));
    rig.hosts[host].write(&rig.reactor, 2, &pattern(2, 16_384));
    close(&fabric, rig_that_closed(rig, before));
}

fn rig_that_closed(mut rig: Rig, commands: usize) -> Rig {
    rig.close_hosts();
    let (_, in_flight) = rig.hosts[0].closed.clone().expect("closed");
    assert!(in_flight.len() == 2 && in_flight.iter().all(|(_, buffer)| *buffer));
    assert_eq!((rig.target.commands, rig.target.stored.len()), (commands, 0));
    rig
}

#[test]
fn memory_that_cannot_be_registered_is_named() {
    let (fabric, mut rig) = rig(Conditions::default());
    let host = rig.connect(options());
    // A buffer in memory that is not registered yet.
    let first = rig.reactor.pool().take(BUFFER_BYTES_MAX).expect("a buffer");
    let buffer = rig.reactor.pool().take(BUFFER_BYTES_MAX).expect("a buffer");
    drop(first);
    fabric.set_memory_limit(0);
    let connection = &mut rig.hosts[host].connection;
    let refused = connection.submit(Command::new(READ), HostData::FromController(buffer));
    let refused = refused.expect_err("no more memory can be registered");
    assert_eq!(refused.why, Some(CloseReason::NotRegistered));
    assert!(CloseReason::NotRegistered.to_string().contains("RLIMIT_MEMLOCK"));
    let HostData::FromController(buffer) = refused.data else { panic!("{:?}", refused.data) };
    fabric.set_memory_limit(u64::MAX);
    let slot = connection.submit(Command::new(READ), HostData::FromController(buffer));
    let slot = slot.expect("there is memory again");
    assert!(rig.finish(host).contains_key(&slot));
    close(&fabric, rig);
}

#[test]
fn an_address_that_moves_ends_the_connection() {
    let (host, _) = accident(Conditions::default(), Fabric::move_address);
    assert!(matches!(host, CloseReason::AddressChanged | CloseReason::PeerClosed), "{host}");
}

#[test]
fn work_that_fails_ends_the_connection_wherever_it_fails() {
    for skip in [0, 1, 2, 3, 5, 8, 13] {
        for hold_reads in [false, true] {
            let status = WorkStatus::REMOTE_OPERATION;
            let conditions = Conditions { hold_reads, ..Conditions::default() };
            let (host, target) = accident(conditions, |fabric| {
                fabric.fail_send(skip, status);
                if skip > 3 {
                    // What is left to post may be fewer than that.
                    fabric.fail_send(0, status);
                }
            });
            let reasons = [target, vec![host]].concat();
            assert!(reasons.contains(&CloseReason::Work(status)), "{reasons:?}");
        }
    }
}

#[test]
fn a_hundred_connections_come_and_go() {
    let (fabric, mut rig) = rig(Conditions::default());
    let mut first = None;
    for _ in 0..100 {
        let host = rig.connect(options());
        rig.hosts[host].read(&rig.reactor, 1, 4096);
        rig.finish(host);
        let host = &mut rig.hosts[host];
        host.connection.close(&mut rig.reactor, CloseReason::Requested("one of many"));
        host.take_events();
        rig.run("gone", |rig| {
            rig.target.connections.is_empty()
                && rig.hosts.iter_mut().all(|host| {
                    host.take_events();
                    host.closed.is_some()
                })
        });
        let resource_counts = fabric.resource_counts();
        assert_eq!(*first.get_or_insert(resource_counts), resource_counts, "no object is added");
    }
    close(&fabric, rig);
}
