//! The end of a target.

use std::time::Duration;

use weft_nvme::NvmOpcode;
use weft_nvme::sgl::Descriptor;
use weft_nvme::tcp::DigestOptions;
use weft_reactor::monotonic_time;
use weft_target::config::Config;
use weft_transport::CloseReason;

use crate::support::peer::{ConnectFields, Peer, read_write};
use crate::support::raw::Raw;
use crate::support::{address, config, config_of_two_groups, drivers, pattern, start};

const BLOCK: usize = 4096;

#[test]
fn commands_in_flight_are_completed_at_a_stop() {
    for driver in drivers() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let slow = format!("delay:write=300ms:file:{},size=4MiB", file.path().display());
        let target = start(Config { driver: *driver, ..config_of_two_groups(&[&slow]) });
        let (mut admin, controller) = Peer::admin(address(&target));
        let event = admin.begin_event_request();
        let mut queues = [1, 2, 3].map(|id| Peer::io(address(&target), controller, id));
        let bytes = pattern(16 * BLOCK, 3);
        let mut under_way = Vec::new();
        for (io, at) in queues.iter_mut().zip([0, 100, 200]) {
            // In the capsule, and fetched.
            let small = io.begin_write(1, at, 1, &bytes[..BLOCK]);
            assert!(!io.is_answered(small, Duration::from_millis(10)));
            let large = io.begin_write(1, at + 1, 16, &bytes);
            assert!(!io.is_answered(large, Duration::from_millis(30)));
            under_way.push([small, large]);
        }
        target.stop().expect("a clean stop");
        for (io, slots) in queues.iter_mut().zip(under_way) {
            assert_eq!(io.until_closed(), CloseReason::PeerClosed);
            for slot in slots {
                io.answered(slot).expect("an answer").succeeded();
            }
        }
        assert_eq!(admin.until_closed(), CloseReason::PeerClosed);
        assert!(admin.answered(event).is_none());
        let written = std::fs::read(file.path()).expect("the file");
        for at in [0, 100, 200] {
            assert!(written[at * BLOCK..][..BLOCK] == bytes[..BLOCK]);
            assert!(written[(at + 1) * BLOCK..][..16 * BLOCK] == bytes);
        }
    }
}

/// What hosts have written and not flushed is made durable by a clean stop, or it is said that it
/// was not.
#[test]
fn devices_are_synced_at_the_end() {
    for driver in drivers() {
        let broken = "fault:operation=flush,effect=media-write:memory:1MiB";
        let devices = ["memory:1MiB", broken];
        let target = start(Config { driver: *driver, ..config(&devices) });
        let (_admin, controller) = Peer::admin(address(&target));
        let mut io = Peer::io(address(&target), controller, 1);
        io.write(2, 0, 1, &pattern(BLOCK, 1)).succeeded();
        let told = target.stop().expect_err("it could not be synced").to_string();
        assert_eq!(told, "memory:1MiB could not be synced: media-write");
    }
}

/// Peers that owe data, take no answers, or have said nothing yet: the target has not failed.
#[test]
fn peers_that_stall_delay_the_end_only_so_long() {
    for driver in drivers() {
        let mut config = Config { driver: *driver, ..config(&["memory:16MiB"]) };
        config.limits.drain_timeout = Duration::from_secs(1);
        let target = start(config);
        let (_admin, controller) = Peer::admin(address(&target));
        let mut owes =
            Raw::io(address(&target), &ConnectFields::io(controller, 1), DigestOptions(0));
        let write = read_write(NvmOpcode::WRITE, 1, 0, 1)
            .with_command_id(1)
            .with_data_pointer(Descriptor::transport(4096));
        owes.command(write, &[]);
        owes.receive().ready_to_transfer();
        let mut not_reading =
            Raw::io(address(&target), &ConnectFields::io(controller, 2), DigestOptions(0));
        for id in 0..100 {
            let read = read_write(NvmOpcode::READ, 1, 0, 256)
                .with_command_id(id)
                .with_data_pointer(Descriptor::transport(1 << 20));
            not_reading.command(read, &[]);
        }
        let _silent = Raw::open(address(&target));
        let _shaken = Raw::shaken_hands(address(&target), DigestOptions(0), 1);
        let began = monotonic_time();
        target.stop().expect("what peers owe was not begun");
        let took = monotonic_time() - began;
        assert!(took < Duration::from_secs(8), "{took:?}");
        assert!(owes.is_ended());
    }
}

/// A request that its device has lost ends with the device, and so does the target.
#[test]
fn a_device_that_never_answers_delays_the_end_only_so_long() {
    for driver in drivers() {
        let dropping = "fault:operation=write,effect=drop:memory:1MiB";
        let mut config = Config { driver: *driver, ..config(&[dropping]) };
        config.limits.drain_timeout = Duration::from_secs(1);
        let target = start(config);
        let (admin, controller) = Peer::admin(address(&target));
        let mut io = Peer::io(address(&target), controller, 1);
        let lost = io.begin_write(1, 0, 1, &pattern(BLOCK, 1));
        assert!(!io.is_answered(lost, Duration::from_millis(50)));
        let (_other, controller) =
            Peer::admin_as(address(&target), &ConnectFields::admin().of_other_host());
        let mut kept = Peer::io_as(
            address(&target),
            &ConnectFields::io(controller, 1).of_other_host(),
            weft_transport::host::HostOptions::default(),
        );
        kept.begin_write(1, 0, 1, &pattern(BLOCK, 1));
        // One host has gone, the other waits.
        drop((admin, io));
        let began = monotonic_time();
        let error = target.stop().expect_err("not everything could be finished").to_string();
        assert!(error.contains("did not finish"), "{error}");
        let took = monotonic_time() - began;
        assert!(took < Duration::from_secs(8), "{took:?}");
    }
}

#[test]
fn a_target_that_is_dropped_stops() {
    let target = start(config(&["memory:1MiB"]));
    let at = address(&target);
    let (mut admin, _) = Peer::admin(at);
    drop(target);
    assert_eq!(admin.until_closed(), CloseReason::PeerClosed);
    assert!(std::net::TcpStream::connect(at).is_err(), "nobody listens");
}
