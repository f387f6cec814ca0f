//! How controllers and queues end, and what is asked of a controller meanwhile.

use std::time::Duration;

use weft_nvme::abort::Abort;
use weft_nvme::command::{Flags, Fused};
use weft_nvme::fabrics::{Disconnect, PropertySet, PropertySize};
use weft_nvme::property::{ControllerStatus, Offset, ShutdownNotification, ShutdownStatus, magic};
use weft_nvme::sgl::Descriptor;
use weft_nvme::tcp::DigestOptions;
use weft_nvme::{AdminOpcode, Command, NvmOpcode, Status};
use weft_target::Target;
use weft_target::config::Config;
use weft_transport::CloseReason;
use weft_transport::host::{HostData, HostOptions};

use crate::support::peer::{ConnectFields, Peer, enabled, read_write};
use crate::support::raw::Raw;
use crate::support::{
    address, config, config_of_two_groups, on_each_driver, on_each_transport, pattern, wait_until,
};

const BLOCK: usize = 4096;

/// A controller with an I/O queue on each of two groups.
fn host(target: &Target, fields: &ConnectFields) -> (Peer, u16, [Peer; 2]) {
    let (admin, controller) = Peer::admin_as(address(target), fields);
    let queues = [1, 2].map(|queue_id| Peer::io(address(target), controller, queue_id));
    (admin, controller, queues)
}

fn two_groups() -> Config {
    let mut config = config_of_two_groups(&["memory:4MiB", "delay:write=300ms:memory:4MiB"]);
    config.limits.keep_alive_min = Duration::from_millis(100);
    config
}

fn all_end(queues: &mut [Peer; 2]) {
    for queue in queues {
        assert_eq!(queue.until_closed(), CloseReason::PeerClosed);
    }
}

#[test]
fn a_reset_of_the_subsystem_ends_the_controllers_of_all_hosts() {
    let mut config = two_groups();
    config.subsystems[0].subsystem_reset = true;
    on_each_transport(&config, |target| {
        let (mut admin, _, mut queues) = host(target, &ConnectFields::admin());
        let (mut other, _) =
            Peer::admin_as(address(target), &ConnectFields::admin().of_other_host());
        let (offset, value) = (Offset::NVM_SUBSYSTEM_RESET, magic::SUBSYSTEM_RESET);
        let set = PropertySet::new(offset, PropertySize::Four, value.into());
        admin.run(set.to_command(), HostData::None).succeeded();
        all_end(&mut queues);
        assert_eq!(other.until_closed(), CloseReason::PeerClosed);
        // The one that has asked keeps its admin queue, as after a reset of its controller.
        while admin.controller_status().ready() {
            std::thread::yield_now();
        }
        let (_admin, _, mut queues) = host(target, &ConnectFields::admin());
        queues[0].read(1, 0, 1, BLOCK).succeeded();
    });
}

#[test]
fn a_silent_host_loses_all_its_queues() {
    on_each_transport(&two_groups(), |target| {
        let fields = ConnectFields { keep_alive_ms: 200, ..ConnectFields::admin() };
        let (mut admin, controller, mut queues) = host(target, &fields);
        let (mut other, _, mut others) = host(target, &ConnectFields::admin());
        all_end(&mut queues);
        assert_eq!(admin.until_closed(), CloseReason::PeerClosed);
        let mut late = Peer::open(address(target), HostOptions::default());
        let refused = late.connect(&ConnectFields::io(controller, 3)).status();
        assert_eq!(refused, Status::CONNECT_INVALID_PARAMETERS.with_dnr());
        // Without a timeout, silence is no matter.
        assert!(other.controller_status().ready());
        assert!(others[1].read(1, 0, 1, BLOCK).status().is_success());
    });
}

#[test]
fn traffic_on_any_queue_keeps_the_controller_alive() {
    on_each_transport(&two_groups(), |target| {
        let fields = ConnectFields { keep_alive_ms: 200, ..ConnectFields::admin() };
        let (mut admin, _, mut queues) = host(target, &fields);
        for round in 0..20 {
            std::thread::sleep(Duration::from_millis(40));
            // One after the other: I/O queues of both groups, then Keep Alive.
            match round / 7 {
                0 => assert!(queues[0].read(1, 0, 1, BLOCK).status().is_success()),
                1 => assert!(queues[1].read(1, 0, 1, BLOCK).status().is_success()),
                _ => {
                    let keep_alive = Command::new(AdminOpcode::KEEP_ALIVE);
                    admin.run(keep_alive, HostData::None).succeeded();
                }
            }
        }
        assert!(admin.controller_status().ready());
        all_end(&mut queues);
    });
}

#[test]
fn shutdown_ends_all_queues_and_completes_when_their_commands_are_done() {
    on_each_transport(&two_groups(), |target| {
        let (mut admin, controller, mut queues) = host(target, &ConnectFields::admin());
        let slow = queues[1].begin_write(2, 0, 1, &pattern(BLOCK, 1));
        assert!(!queues[1].is_answered(slow, Duration::from_millis(50)), "it has left");
        let event = admin.begin_event_request();
        admin.configure(enabled().with_shutdown_notification(ShutdownNotification::NORMAL));
        assert_eq!(admin.controller_status().shutdown_status(), ShutdownStatus::OCCURRING);
        all_end(&mut queues);
        wait_until("the shutdown", || {
            admin.controller_status().shutdown_status() == ShutdownStatus::COMPLETE
        });
        assert!(!admin.is_answered(event, Duration::from_millis(20)), "nobody waits for it");
        let mut late = Peer::open(address(target), HostOptions::default());
        let refused = late.connect(&ConnectFields::io(controller, 3)).status();
        assert_eq!(refused, Status::COMMAND_SEQUENCE_ERROR.with_dnr());
        // What was under way has been done.
        let (_admin, _, mut again) = host(target, &ConnectFields::admin());
        assert!(again[0].read(2, 0, 1, BLOCK).bytes() == pattern(BLOCK, 1));
    });
}

/// What SPDK's host does when it leaves: it gives its Asynchronous Event Requests up by itself, and
/// takes their identifiers for the commands that shut the controller down.
#[test]
fn a_shutdown_may_take_the_identifiers_of_event_requests_that_wait() {
    on_each_driver(&config(&["memory:1MiB"]), |target| {
        let (mut raw, _) = Raw::admin(address(target));
        let request = Command::new(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST);
        for command_id in 0..4 {
            raw.command(request.with_command_id(command_id), &[]);
        }
        // Anything else is told that its identifier is taken.
        raw.command(Command::new(AdminOpcode::KEEP_ALIVE).with_command_id(3), &[]);
        let conflict = raw.receive().completion();
        assert_eq!(conflict.status(), Status::COMMAND_ID_CONFLICT.with_dnr());
        let now = raw.property(3, Offset::CONTROLLER_CONFIGURATION);
        assert_eq!(now, u64::from(enabled().0));
        raw.configure(3, enabled().with_shutdown_notification(ShutdownNotification::NORMAL));
        let status = raw.property(3, Offset::CONTROLLER_STATUS);
        let status = ControllerStatus(u32::try_from(status).expect("32 bits"));
        assert_eq!(status.shutdown_status(), ShutdownStatus::COMPLETE);
    });
}

#[test]
fn a_reset_ends_all_queues_and_the_controller_can_be_enabled_again() {
    on_each_transport(&two_groups(), |target| {
        let (mut admin, controller, mut queues) = host(target, &ConnectFields::admin());
        admin.configure(enabled().with_enable(false));
        all_end(&mut queues);
        wait_until("the reset", || !admin.controller_status().ready());
        let identify = Command::new(AdminOpcode::KEEP_ALIVE);
        let refused = admin.run(identify, HostData::None).status();
        assert_eq!(refused, Status::COMMAND_SEQUENCE_ERROR.with_dnr());
        admin.enable();
        let mut io = Peer::io(address(target), controller, 1);
        io.write(1, 0, 1, &pattern(BLOCK, 2)).succeeded();
    });
}

#[test]
fn io_queues_end_with_their_admin_queue() {
    on_each_transport(&two_groups(), |target| {
        let (admin, _, mut queues) = host(target, &ConnectFields::admin());
        drop(admin);
        all_end(&mut queues);
    });
}

#[test]
fn a_queue_is_disconnected_and_connected_again() {
    on_each_transport(&two_groups(), |target| {
        let (mut admin, controller, [mut first, mut second]) =
            host(target, &ConnectFields::admin());
        let disconnect = Disconnect::default().to_command();
        let refused = admin.run(disconnect, HostData::None).status();
        assert_eq!(refused, Status::DISCONNECT_INVALID_QUEUE_TYPE.with_dnr());
        first.run(disconnect, HostData::None).succeeded();
        assert_eq!(first.until_closed(), CloseReason::PeerClosed);
        wait_until("the queue identifier is free", || {
            let mut io = Peer::open(address(target), HostOptions::default());
            let answer = io.connect(&ConnectFields::io(controller, 1)).status();
            answer.is_success() && io.read(1, 0, 1, BLOCK).status().is_success()
        });
        assert!(second.read(1, 0, 1, BLOCK).status().is_success());
        assert!(admin.controller_status().ready());
    });
}

/// However the end of a connection falls together with its last events.
#[test]
fn a_queue_that_ends_is_closed() {
    on_each_transport(&two_groups(), |target| {
        let (_admin, controller) = Peer::admin(address(target));
        for queue_id in 1..=100 {
            let mut io = Peer::io(address(target), controller, queue_id);
            io.write(1, 0, 1, &[0; BLOCK]).succeeded();
            io.run(Disconnect::default().to_command(), HostData::None).succeeded();
            assert_eq!(io.until_closed(), CloseReason::PeerClosed);
        }
    });
}

/// Runs Abort; whether the command was aborted.
fn abort(admin: &mut Peer, queue_id: u16, command_id: u16) -> bool {
    let abort = Abort { submission_queue_id: queue_id, command_id };
    admin.run(abort.to_command(), HostData::None).succeeded().completion.dword0() & 1 == 0
}

#[test]
fn a_command_that_no_device_has_can_be_aborted() {
    on_each_driver(&two_groups(), |target| {
        let (mut admin, controller) = Peer::admin(address(target));
        // On each group.
        for queue_id in [1, 2] {
            let fields = ConnectFields::io(controller, queue_id);
            let mut raw = Raw::io(address(target), &fields, DigestOptions(0));
            let write = read_write(NvmOpcode::WRITE, 1, 0, 1)
                .with_command_id(77)
                .with_data_pointer(Descriptor::transport(4096));
            raw.command(write, &[]);
            let request = raw.receive().ready_to_transfer();
            assert!(!abort(&mut admin, queue_id, 78), "there is no such command");
            assert!(abort(&mut admin, queue_id, 77));
            // The target has asked for data, so it is to come, and is dropped.
            let data = raw.data(&request, 0, &pattern(BLOCK, 9), true);
            raw.send(&data);
            let completion = raw.receive().completion();
            assert_eq!(completion.command_id.get(), 77);
            assert_eq!(completion.status(), Status::ABORT_REQUESTED);
            // The first half of a pair.
            let half = read_write(NvmOpcode::COMPARE, 1, 0, 1)
                .with_command_id(79)
                .with_flags(Flags::SGL.with_fused(Fused::FIRST));
            raw.command(half, &[0; BLOCK]);
            wait_until("the compare is aborted", || abort(&mut admin, queue_id, 79));
            assert_eq!(raw.receive().completion().status(), Status::ABORT_REQUESTED);
            // The queue goes on.
            let read = read_write(NvmOpcode::READ, 1, 0, 1)
                .with_command_id(80)
                .with_data_pointer(Descriptor::transport(4096));
            raw.command(read, &[]);
            assert!(raw.receive().data == [0; BLOCK], "nothing was written");
            assert!(raw.receive().completion().status().is_success());
        }
    });
}

#[test]
fn a_command_that_waits_for_memory_can_be_aborted() {
    let mut config = config(&["memory:16MiB"]);
    config.limits.pool_bytes = 16 << 20;
    config.limits.transfer_bytes = 4 << 20;
    on_each_driver(&config, |target| {
        let (mut admin, controller) = Peer::admin(address(target));
        let mut raw = Raw::io(address(target), &ConnectFields::io(controller, 1), DigestOptions(0));
        // Of 16 MiB, three times four are held by writes whose data does not come, and some is
        // kept in reserve. So the fourth has to wait.
        let write = |id| {
            read_write(NvmOpcode::WRITE, 1, 0, 1024)
                .with_command_id(id)
                .with_data_pointer(Descriptor::transport(4 << 20))
        };
        let mut requests = Vec::new();
        for id in 1..=3 {
            raw.command(write(id), &[]);
            // 4 MiB in R2Ts of 1 MiB, one at a time.
            requests.push(raw.receive().ready_to_transfer());
        }
        raw.command(write(4), &[]);
        wait_until("the fourth is aborted", || abort(&mut admin, 1, 4));
        let completion = raw.receive().completion();
        assert_eq!(completion.command_id.get(), 4);
        assert_eq!(completion.status(), Status::ABORT_REQUESTED);
        // The others get their data in spite of all that.
        let megabyte = pattern(1 << 20, 5);
        for mut request in requests {
            for round in 0..4 {
                let data = raw.data(&request, round << 20, &megabyte, true);
                raw.send(&data);
                if round < 3 {
                    request = raw.receive().ready_to_transfer();
                    assert_eq!(request.offset.get(), (round + 1) << 20);
                }
            }
            assert!(raw.receive().completion().status().is_success());
        }
    });
}

#[test]
fn a_command_at_a_device_is_not_aborted() {
    on_each_transport(&two_groups(), |target| {
        let (mut admin, _, mut queues) = host(target, &ConnectFields::admin());
        let slow = queues[0].begin_write(2, 0, 1, &pattern(BLOCK, 1));
        assert!(!queues[0].is_answered(slow, Duration::from_millis(50)), "it has left");
        let command_id = queues[0].connection.command_id(slow).expect("in flight");
        assert!(!abort(&mut admin, 1, command_id));
        queues[0].wait_for(slow).succeeded();
        assert!(!abort(&mut admin, 1, command_id), "it is done");
    });
}

#[test]
fn event_requests_are_counted_and_can_be_aborted() {
    on_each_transport(&config(&["memory:1MiB"]), |target| {
        let (mut admin, _) = Peer::admin(address(target));
        let mut requests: Vec<_> = (0..4).map(|_| admin.begin_event_request()).collect();
        let fifth = admin.begin_event_request();
        let limit = Status::ASYNCHRONOUS_EVENT_LIMIT_EXCEEDED;
        assert_eq!(admin.wait_for(fifth).status(), limit);
        let second = requests.remove(1);
        let command_id = admin.connection.command_id(second).expect("in flight");
        assert!(abort(&mut admin, 0, command_id));
        assert_eq!(admin.wait_for(second).status(), Status::ABORT_REQUESTED);
        requests.push(admin.begin_event_request());
        assert!(!admin.is_answered(requests[3], Duration::from_millis(20)), "there is room again");
        let too_many = admin.begin_event_request();
        assert_eq!(admin.wait_for(too_many).status(), limit);
    });
}
