//! When a host comes back, nothing that it sent before may be executed after its new Connect.

use std::time::Duration;

use weft_nvme::sgl::Descriptor;
use weft_nvme::tcp::DigestOptions;
use weft_nvme::{NvmOpcode, Status};
use weft_target::Target;
use weft_target::config::Config;
use weft_transport::Slot;
use weft_transport::host::HostOptions;

use crate::support::peer::{ConnectFields, Peer, read_write};
use crate::support::raw::Raw;
use crate::support::{
    address, config, config_of_two_groups, drivers, on_each_transport, pattern, start,
};

const BLOCK: usize = 4096;

/// How long the slow device takes for a write.
const SLOW: Duration = Duration::from_millis(500);

/// A connection that has begun to connect its admin queue.
fn coming_back(target: &Target, fields: &ConnectFields) -> (Peer, Slot) {
    let mut peer = Peer::open(address(target), HostOptions::default());
    let slot = peer.begin_connect(fields);
    (peer, slot)
}

/// The end of a Connect that had to wait: the admin queue is enabled, and has an I/O queue.
fn finish(target: &Target, mut admin: Peer, slot: Slot) -> (Peer, Peer) {
    let answer = admin.wait_for(slot).succeeded();
    admin.enable();
    let controller = u16::try_from(answer.completion.dword0() & 0xffff).expect("16 bits");
    let io = Peer::io(address(target), controller, 1);
    (admin, io)
}

/// Leaves a write behind that the device has: with whom its connection goes.
fn leave_a_write_behind(target: &Target, queues: u16) {
    let (admin, controller) = Peer::admin(address(target));
    let mut io: Vec<_> = (1..=queues).map(|id| Peer::io(address(target), controller, id)).collect();
    for (io, block) in io.iter_mut().zip(0..) {
        let slot = io.begin_write(1, block, 1, &pattern(BLOCK, 1));
        assert!(!io.is_answered(slot, Duration::from_millis(20)), "it has left");
    }
    // The reactors close all sockets.
    drop(io);
    drop(admin);
}

#[test]
fn a_host_that_comes_back_waits_for_its_old_writes() {
    let slow = format!("delay:write={}ms:memory:4MiB", SLOW.as_millis());
    for config in [config(&[&slow]), config_of_two_groups(&[&slow])] {
        on_each_transport(&config, |target| {
            leave_a_write_behind(target, 3);
            let (mut back, slot) = coming_back(target, &ConnectFields::admin());
            assert!(!back.is_answered(slot, Duration::from_millis(50)), "it has to wait");
            // Nobody else does.
            let (mut other, _) =
                Peer::admin_as(address(target), &ConnectFields::admin().of_other_host());
            assert!(other.controller_status().ready());
            assert!(!back.is_answered(slot, Duration::ZERO), "the other host did not wait");
            let (_admin, mut io) = finish(target, back, slot);
            let writes = [0, 1, 2].map(|block| {
                assert!(io.read(1, block, 1, BLOCK).bytes() == pattern(BLOCK, 1), "it is done");
                io.begin_write(1, block, 1, &pattern(BLOCK, 2))
            });
            for slot in writes {
                io.wait_for(slot).succeeded();
            }
            std::thread::sleep(SLOW / 2);
            for block in 0..3 {
                assert!(io.read(1, block, 1, BLOCK).bytes() == pattern(BLOCK, 2), "new wins");
            }
        });
    }
}

/// The idle queues of a path are asked whether their host is there, and it answers at once.
#[test]
fn another_path_of_an_idle_host_waits_for_nobody_and_ends_nothing() {
    on_each_transport(&config_of_two_groups(&["memory:4MiB"]), |target| {
        let (mut admin, controller) = Peer::admin(address(target));
        let mut io = Peer::io(address(target), controller, 1);
        io.write(1, 0, 1, &pattern(BLOCK, 1)).succeeded();
        std::thread::sleep(Duration::from_millis(1200));
        let (mut other, slot) = coming_back(target, &ConnectFields::admin());
        assert!(other.is_answered(slot, Duration::from_millis(800)), "sooner than the kernel asks");
        let (_other, mut its) = finish(target, other, slot);
        assert!(its.read(1, 0, 1, BLOCK).bytes() == pattern(BLOCK, 1));
        assert!(io.read(1, 0, 1, BLOCK).bytes() == pattern(BLOCK, 1), "it goes on");
        assert!(admin.controller_status().ready());
    });
}

/// As with the Linux target, the Host Identifier of an I/O queue may be any.
#[test]
fn a_host_with_a_new_identifier_for_each_connect_is_served_and_waits_for_its_old_writes() {
    let slow = format!("delay:write={}ms:memory:4MiB", SLOW.as_millis());
    on_each_transport(&config_of_two_groups(&[&slow]), |target| {
        let (admin, controller) = Peer::admin(address(target));
        let fields = ConnectFields { host_id: [2; 16], ..ConnectFields::io(controller, 1) };
        let mut io = Peer::io_as(address(target), &fields, HostOptions::default());
        let write = io.begin_write(1, 0, 1, &pattern(BLOCK, 1));
        assert!(!io.is_answered(write, Duration::from_millis(20)), "it has left");
        drop(io);
        drop(admin);
        let fields = ConnectFields { host_id: [3; 16], ..ConnectFields::admin() };
        let (mut back, slot) = coming_back(target, &fields);
        assert!(!back.is_answered(slot, Duration::from_millis(50)), "it has to wait");
        let (_admin, mut io) = finish(target, back, slot);
        assert!(io.read(1, 0, 1, BLOCK).bytes() == pattern(BLOCK, 1), "it is done");
    });
}

#[test]
fn a_shutdown_controller_drains_before_the_next_connect() {
    use weft_nvme::property::ShutdownNotification;
    let slow = format!("delay:write={}ms:memory:4MiB", SLOW.as_millis());
    on_each_transport(&config_of_two_groups(&[&slow]), |target| {
        let (mut admin, controller) = Peer::admin(address(target));
        let mut queues = [1, 2].map(|id| Peer::io(address(target), controller, id));
        for (io, block) in queues.iter_mut().zip(0..) {
            let slot = io.begin_write(1, block, 1, &pattern(BLOCK, 1));
            assert!(!io.is_answered(slot, Duration::from_millis(20)), "it has left");
        }
        let enabled = crate::support::peer::enabled();
        admin.configure(enabled.with_shutdown_notification(ShutdownNotification::ABRUPT));
        let (mut back, slot) = coming_back(target, &ConnectFields::admin());
        assert!(!back.is_answered(slot, Duration::from_millis(50)), "it has to wait");
        let (_back, mut io) = finish(target, back, slot);
        for block in 0..2 {
            assert!(io.read(1, block, 1, BLOCK).bytes() == pattern(BLOCK, 1), "it is done");
        }
    });
}

#[test]
fn a_host_waits_only_so_long_and_then_may_try_again() {
    let mut config = config(&["delay:write=1500ms:memory:4MiB"]);
    config.limits.drain_timeout = Duration::from_secs(1);
    on_each_transport(&config, |target| {
        leave_a_write_behind(target, 1);
        let (mut back, slot) = coming_back(target, &ConnectFields::admin());
        let busy = back.wait_for(slot);
        assert_eq!(busy.status(), Status::CONNECT_CONTROLLER_BUSY);
        // The same connection again; this time the old write is done soon enough.
        let slot = back.begin_connect(&ConnectFields::admin());
        let (_admin, mut io) = finish(target, back, slot);
        assert!(io.read(1, 0, 1, BLOCK).bytes() == pattern(BLOCK, 1), "it is done");
    });
}

/// Keeps the group of a queue busy for a while, in one turn: it reads and hears nothing else.
fn keep_busy(io: &mut Raw) {
    let mut capsules = Vec::new();
    for id in 100..227 {
        let read = read_write(NvmOpcode::READ, 2, 0, 256)
            .with_command_id(id)
            .with_data_pointer(Descriptor::transport(1 << 20));
        capsules.extend(io.capsule(read, &[]));
    }
    io.send(&capsules);
}

/// The group that holds a queue does not get to reading what has come for it, neither the host's
/// write nor that the host is gone, while another group is free to answer the host's next Connect.
#[test]
fn an_unread_write_is_not_executed_after_the_hosts_next_connect() {
    for driver in drivers() {
        let devices = ["memory:4MiB", "memory:32MiB"];
        let target = start(Config { driver: *driver, ..config_of_two_groups(&devices) });
        let at = address(&target);
        let fields_of_other = ConnectFields::admin().of_other_host();
        // Each queue goes where there are fewest. On group 0:
        let (_other_admin, other) = Peer::admin_as(at, &fields_of_other);
        // On group 1: the host's admin queue.
        let (admin, controller) = Peer::admin(at);
        // On group 0, and on group 1, the queue that the write is sent on.
        let first = Peer::io(at, controller, 1);
        let mut second = Peer::io(at, controller, 2);
        // On group 0, and on group 1, the queue that keeps it busy.
        let of_other = |id| ConnectFields::io(other, id).of_other_host();
        let _idle = Peer::io_as(at, &of_other(1), HostOptions::default());
        let mut busy = Raw::io(at, &of_other(2), DigestOptions(0).with_data(true));
        keep_busy(&mut busy);
        std::thread::sleep(Duration::from_millis(1));
        second.begin_write(1, 0, 1, &pattern(BLOCK, 1));
        drop((first, second, admin));
        let (back, slot) = coming_back(&target, &ConnectFields::admin());
        let (_admin, mut io) = finish(&target, back, slot);
        io.write(1, 0, 1, &pattern(BLOCK, 2)).succeeded();
        // Whatever was left is read by then.
        std::thread::sleep(Duration::from_millis(300));
        assert!(io.read(1, 0, 1, BLOCK).bytes() == pattern(BLOCK, 2), "the old write came late");
        target.stop().expect("a clean stop");
    }
}
