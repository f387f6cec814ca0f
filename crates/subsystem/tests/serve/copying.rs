//! Copy: what arrives where, what ends it, and what does not wait for it.

use std::time::Duration;

use weft_nvme::abort::Abort;
use weft_nvme::feature::{FeatureId, HostBehavior, SetFeatures};
use weft_nvme::nvm::{CopyCommand, CopySourceRange};
use weft_nvme::reservation::{AcquireAction, RegisterAction, ReservationControl, ReservationType};
use weft_nvme::wire::{U16, U32};
use weft_nvme::{Command, NvmOpcode, Status, Wire};
use weft_target::Target;
use weft_target::config::{Config, RateLimit, RateLimitedCommands};
use weft_transport::Slot;
use weft_transport::host::{HostData, HostOptions};

use crate::support::peer::{Answer, ConnectFields, Peer};
use crate::support::{
    HOST, SUBSYSTEM, address, config, config_of_two_groups, on_each_transport, pattern, start,
    wait_until,
};

const BLOCK: usize = 4096;

/// A source range: namespace, first block, blocks.
type Range = (u32, u64, u32);

fn copy(nsid: u32, to: u64, format: u8, ranges: &[Range]) -> (Command, Vec<u8>) {
    let count = u16::try_from(ranges.len()).expect("few");
    let range = |(nsid, slba, nlb): &Range| {
        CopySourceRange::new(*nsid, *slba, *nlb).expect("a count").bytes().to_vec()
    };
    let data = ranges.iter().flat_map(range).collect();
    (CopyCommand::new(to, count, format).to_command(nsid), data)
}

fn run(io: &mut Peer, nsid: u32, to: u64, format: u8, ranges: &[Range]) -> Answer {
    let (command, data) = copy(nsid, to, format, ranges);
    io.run_with(command, &data)
}

fn begin(io: &mut Peer, nsid: u32, to: u64, ranges: &[Range]) -> Slot {
    let (command, data) = copy(nsid, to, 0, ranges);
    let data = HostData::ToController(io.buffer(&data));
    io.submit(command, data)
}

/// Lets the host use the descriptor formats that name their namespaces.
fn enable_formats(admin: &mut Peer) {
    let behavior =
        HostBehavior { copy_descriptor_formats: U16::new(1 << 2), ..HostBehavior::default() };
    let set = SetFeatures { feature: FeatureId::HOST_BEHAVIOR_SUPPORT, ..SetFeatures::default() };
    admin.run_with(set.to_command(), behavior.bytes()).succeeded();
}

#[test]
fn blocks_are_copied_within_a_subsystem() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let on_file = format!("file:{},size=64MiB", file.path().display());
    on_each_transport(&config(&["memory:64MiB", &on_file, "memory:64MiB,block=512"]), |target| {
        let (mut admin, controller) = Peer::admin(address(target));
        let mut io = Peer::io(address(target), controller, 1);
        let first = run(&mut io, 1, 100, 2, &[(2, 0, 1)]).status();
        assert_eq!(first, Status::INVALID_FIELD.with_dnr(), "the host has not enabled it");
        enable_formats(&mut admin);
        for nsid in [1, 2] {
            let bytes = pattern(256 * BLOCK, u8::try_from(nsid).expect("small"));
            io.write(nsid, 16, 256, &bytes).succeeded();
            // More than a piece, one block, and a piece with a rest: one after the other.
            for in_capsule_bytes in [16 * 1024, 0] {
                io.connection.set_in_capsule_bytes(in_capsule_bytes);
                let ranges = [(nsid, 16, 200), (nsid, 271, 1), (nsid, 17, 40)];
                let other = 3 - nsid;
                run(&mut io, nsid, 1000, 0, &ranges).succeeded();
                run(&mut io, other, 2000, 2, &ranges).succeeded();
                let block = |number: usize| &bytes[(number - 16) * BLOCK..][..BLOCK];
                let expected: Vec<u8> =
                    (16..216).chain([271]).chain(17..57).flat_map(block).copied().collect();
                for (nsid, at) in [(nsid, 1000), (other, 2000)] {
                    let read = io.read(nsid, at, 241, 241 * BLOCK);
                    assert!(read.bytes() == expected, "namespace {nsid}");
                    assert!(io.read(nsid, at + 241, 1, BLOCK).bytes() == [0; BLOCK]);
                    let zero = pattern_of_zeroes(241 * BLOCK);
                    io.write(nsid, at, 241, &zero).succeeded();
                }
            }
        }
        let other_size = run(&mut io, 1, 0, 2, &[(3, 0, 1)]).status();
        assert_eq!(other_size, Status::INCOMPATIBLE_NAMESPACE_OR_FORMAT.with_dnr());
        let itself = run(&mut io, 1, 8, 0, &[(1, 0, 9)]).status();
        assert_eq!(itself, Status::OVERLAPPING_IO_RANGE.with_dnr());
    });
}

fn pattern_of_zeroes(bytes: usize) -> Vec<u8> {
    vec![0; bytes]
}

/// Dword 0 has the first range that was not copied; those before it were.
#[test]
fn the_range_that_failed_is_named() {
    let unreadable =
        "fault:operation=read,first-block=500,last-block=500,effect=media-read:memory:4MiB";
    on_each_transport(&config(&[unreadable]), |target| {
        let (_admin, controller) = Peer::admin(address(target));
        let mut io = Peer::io(address(target), controller, 1);
        let bytes = pattern(40 * BLOCK, 3);
        io.write(1, 0, 40, &bytes).succeeded();
        let answer = run(&mut io, 1, 100, 0, &[(1, 0, 1), (1, 1, 39), (1, 490, 11), (1, 1, 1)]);
        assert_eq!(answer.status(), Status::UNRECOVERED_READ_ERROR);
        assert_eq!(answer.completion.dword0(), 2);
        assert!(io.read(1, 100, 40, 40 * BLOCK).bytes() == bytes);
        assert!(io.read(1, 140, 60, 60 * BLOCK).bytes().iter().all(|byte| *byte == 0));
        let answer = run(&mut io, 1, 100, 0, &[(1, 0, 1), (1, 1024, 1)]);
        assert_eq!(answer.status(), Status::LBA_OUT_OF_RANGE.with_dnr());
        assert_eq!(answer.completion.dword0(), 1);
    });
}

/// 32 MiB are copied in many turns: what another queue of the group has asked for comes first.
#[test]
fn others_are_served_while_a_copy_is_under_way() {
    let config = Config { threads: 1, ..config(&["memory:128MiB"]) };
    on_each_transport(&config, |target| {
        let (_admin, controller) = Peer::admin(address(target));
        let mut copying = Peer::io(address(target), controller, 1);
        let mut reading = Peer::io(address(target), controller, 2);
        // Whoever looks too late sees both: a busy machine may need another try.
        let is_first = (0..50).any(|_| {
            let copy = begin(&mut copying, 1, 8192, &[(1, 0, 8192)]);
            reading.read(1, 0, 1, BLOCK).succeeded();
            let is_first = !copying.is_answered(copy, Duration::ZERO);
            copying.wait_for(copy).succeeded();
            is_first
        });
        assert!(is_first, "the read has waited for the copy each time");
    });
}

/// Its pieces wait for a limit as writes of their size do, and can be aborted meanwhile.
#[test]
fn a_copy_waits_for_rate_limits() {
    let limit = RateLimit {
        host: Some(HOST.into()),
        subsystem: Some(SUBSYSTEM.to_owned()),
        nsid: Some(1),
        rw: RateLimitedCommands::Write,
        rate: Some(1),
        force: true,
        ..RateLimit::default()
    };
    let config = Config { rate_limits: vec![limit], ..config(&["memory:4MiB", "memory:4MiB"]) };
    let mut target = start(config.clone());
    let (mut admin, controller) = Peer::admin(address(&target));
    enable_formats(&mut admin);
    let mut io = Peer::io(address(&target), controller, 1);
    io.write(1, 0, 1, &pattern(BLOCK, 1)).succeeded();
    run(&mut io, 2, 0, 2, &[(1, 0, 1)]).succeeded();
    let short = Duration::from_millis(100);
    let (first, second) = (begin(&mut io, 1, 8, &[(1, 0, 1)]), begin(&mut io, 1, 9, &[(1, 0, 1)]));
    assert!(!io.is_answered(first, short) && !io.is_answered(second, short));
    let command_id = io.connection.command_id(first).expect("in flight");
    let abort = Abort { submission_queue_id: 1, command_id };
    wait_until("it is aborted", || {
        let answer = admin.run(abort.to_command(), HostData::None).succeeded();
        answer.completion.dword0() & 1 == 0
    });
    assert_eq!(io.wait_for(first).status(), Status::ABORT_REQUESTED);
    target.reload(Config { rate_limits: Vec::new(), ..config }).expect("a reload");
    io.wait_for(second).succeeded();
    assert!(io.read(1, 8, 1, BLOCK).bytes() == [0; BLOCK], "it was not copied");
    assert!(io.read(1, 9, 1, BLOCK).bytes() == pattern(BLOCK, 1));
    target.stop().expect("a clean stop");
}

/// Whatever it waits for. The limit would let its second piece begin in more than a day.
#[test]
fn a_copy_ends_when_its_namespace_goes() {
    let limit = |nsid| RateLimit {
        host: Some(HOST.into()),
        subsystem: Some(SUBSYSTEM.to_owned()),
        nsid: Some(nsid),
        rw: RateLimitedCommands::Write,
        rate: Some(1),
        force: true,
        ..RateLimit::default()
    };
    let rate_limits = vec![limit(1), limit(2)];
    let config = Config { rate_limits, ..config(&["memory:4MiB", "memory:4MiB"]) };
    let mut target = start(config.clone());
    let (mut admin, controller) = Peer::admin(address(&target));
    let mut io = Peer::io(address(&target), controller, 1);
    let copies = [2, 1].map(|nsid| begin(&mut io, nsid, 100, &[(nsid, 0, 1), (nsid, 1, 1)]));
    let short = Duration::from_millis(100);
    assert!(copies.iter().all(|copy| !io.is_answered(*copy, short)));
    let mut without = config;
    without.subsystems[0].namespaces.pop();
    target.reload(without).expect("a reload");
    let answer = io.wait_for(copies[0]);
    assert_eq!(answer.status(), Status::INVALID_NAMESPACE.with_dnr());
    assert_eq!(answer.completion.dword0(), 1, "the first range was copied");
    assert!(!io.is_answered(copies[1], short), "its namespace is there");
    let command_id = io.connection.command_id(copies[1]).expect("in flight");
    let abort = Abort { submission_queue_id: 1, command_id };
    admin.run(abort.to_command(), HostData::None).succeeded();
    let answer = io.wait_for(copies[1]);
    assert_eq!((answer.status(), answer.completion.dword0()), (Status::ABORT_REQUESTED, 1));
    target.stop().expect("a clean stop");
}

fn reserve(io: &mut Peer, opcode: NvmOpcode, action: u8, kind: u8, keys: [u64; 2]) {
    let control = ReservationControl(0).with_raw_action(action).with_raw_reservation_type(kind);
    let mut command = Command::new(opcode).with_namespace_id(1);
    command.cdw10 = U32::new(control.0);
    let bytes: Vec<u8> = keys.into_iter().flat_map(u64::to_le_bytes).collect();
    io.run_with(command, &bytes).succeeded();
}

/// Once another host is told that it has the reservation, nothing more is copied.
#[test]
fn a_copy_ends_when_its_host_may_no_longer_write() {
    let slow = "delay:write=20ms:memory:64MiB";
    let target: Target = start(config_of_two_groups(&[slow]));
    let other = ConnectFields::admin().of_other_host();
    let (_admin, controller) = Peer::admin(address(&target));
    let mut one = Peer::io(address(&target), controller, 1);
    let (_other_admin, controller) = Peer::admin_as(address(&target), &other);
    let fields = ConnectFields::io(controller, 2);
    let fields =
        ConnectFields { queue_id: 2, entries: fields.entries, controller, ..other.clone() };
    let mut two = Peer::io_as(address(&target), &fields, HostOptions::default());
    one.write(1, 0, 256, &pattern(256 * BLOCK, 7)).succeeded();
    // 64 pieces of 20 ms.
    let copy = begin(&mut one, 1, 4096, &[(1, 0, 256); 8]);
    assert!(!one.is_answered(copy, Duration::from_millis(100)));
    let register = RegisterAction::REGISTER.0;
    reserve(&mut two, NvmOpcode::RESERVATION_REGISTER, register, 0, [0, 0xb]);
    let (acquire, kind) = (AcquireAction::ACQUIRE.0, ReservationType::WRITE_EXCLUSIVE.0);
    reserve(&mut two, NvmOpcode::RESERVATION_ACQUIRE, acquire, kind, [0xb, 0]);
    let zeroes = pattern_of_zeroes(256 * BLOCK);
    for at in 0..8 {
        two.write(1, 4096 + 256 * at, 256, &zeroes).succeeded();
    }
    let answer = one.wait_for(copy);
    assert_eq!(answer.status(), Status::RESERVATION_CONFLICT.with_dnr());
    assert!(answer.completion.dword0() < 8);
    for at in 0..8 {
        let read = two.read(1, 4096 + 256 * at, 256, zeroes.len());
        assert!(read.bytes() == zeroes, "nothing was written after the reservation");
    }
    target.stop().expect("a clean stop");
}
