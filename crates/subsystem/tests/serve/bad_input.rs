//! Peers that break the protocol: they lose their connection, with a reason on the wire and in
//! one line of the log, and nobody else notices.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use weft_nvme::property::ControllerConfiguration;
use weft_nvme::sgl::Descriptor;
use weft_nvme::tcp::{
    CommonHeader, Data, DigestOptions, Fes, InitializeConnectionRequest, Kind, PduType,
    TerminateRequest,
};
use weft_nvme::wire::{U16, U32};
use weft_nvme::{AdminOpcode, Command, NvmOpcode, Wire};
use weft_target::config::Config;

use crate::support::peer::{ConnectFields, Peer, enabled, read_write};
use crate::support::raw::{Raw, Termination, made_up_transfer};
use crate::support::{address, config_of_two_groups, drivers, pattern, start, wait_until};

const BLOCK: usize = 4096;

/// What SPDK's host does at each reset: it gives its event requests up, and uses their identifiers
/// again. The slots of what is given up are free, so that the queue does not fill.
#[test]
fn event_requests_that_were_given_up_leave_nothing() {
    let target = start(config_of_two_groups(&["memory:1MiB"]));
    let (mut admin, _) = Raw::admin(address(&target));
    let request = Command::new(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST);
    for _ in 0..100 {
        for command_id in [0x4001, 0x4002, 0x4003] {
            admin.command(request.with_command_id(command_id), &[]);
        }
        admin.configure(0x4001, ControllerConfiguration(0x0046_0000));
        admin.configure(1, enabled());
    }
}

/// Where a test's peer stands when it goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing was said.
    Fresh,
    /// The handshake is done.
    Shaken,
    /// An admin queue stands.
    Admin,
    /// An I/O queue stands.
    Io,
}

/// A PDU, or what looks like one, and what it is answered with.
struct Case {
    name: &'static str,
    stages: &'static [Stage],
    bytes: Vec<u8>,
    status: Fes,
    information: u32,
}

const ALL: &[Stage] = &[Stage::Fresh, Stage::Shaken, Stage::Admin, Stage::Io];
const AFTER_HANDSHAKE: &[Stage] = &[Stage::Shaken, Stage::Admin, Stage::Io];
const CONNECTED: &[Stage] = &[Stage::Admin, Stage::Io];

/// A common header with one thing wrong, and something behind it.
fn header(kind: Kind, change: impl FnOnce(&mut CommonHeader)) -> Vec<u8> {
    let mut common = CommonHeader::bare(kind);
    change(&mut common);
    let mut bytes = common.bytes().to_vec();
    bytes.resize(200, 0);
    bytes
}

fn request(change: impl FnOnce(&mut InitializeConnectionRequest)) -> Vec<u8> {
    let mut request = InitializeConnectionRequest::new(0, DigestOptions(0), 0);
    change(&mut request);
    request.bytes().to_vec()
}

/// An H2CData PDU that nobody has asked for.
fn unasked_data() -> Vec<u8> {
    let mut common = CommonHeader::bare(Kind::H2CData);
    common.flags = common.flags.with_last(true);
    common.data_offset = 24;
    common.pdu_length = U32::new(24 + 16);
    let made_up = made_up_transfer(3);
    let data = Data {
        common,
        command_id: made_up.command_id,
        transfer_tag: made_up.transfer_tag,
        offset: U32::ZERO,
        length: U32::new(16),
        reserved: [0; 4],
    };
    [data.bytes(), &[0; 16]].concat()
}

/// A capsule with `length` bytes of in-capsule data.
fn capsule_of(length: u32) -> Vec<u8> {
    let mut bytes = header(Kind::CapsuleCommand, |common| {
        common.data_offset = 72;
        common.pdu_length = U32::new(72 + length);
    });
    bytes.resize(1000, 0);
    bytes
}

fn cases() -> Vec<Case> {
    const FIELD: Fes = Fes::INVALID_HEADER_FIELD;
    let case = |name, stages, bytes, status, information| Case {
        name,
        stages,
        bytes,
        status,
        information,
    };
    let mut cases = vec![
        case("garbage", ALL, vec![0xff; 64], FIELD, 0),
        case("HTTP", ALL, b"GET / HTTP/1.1\r\n\r\n".to_vec(), FIELD, 0),
        case("TLS", ALL, [&[0x16, 3, 1, 2, 0, 1, 0, 1][..], &[0; 64]].concat(), FIELD, 0),
        case(
            "HLEN too short",
            ALL,
            header(Kind::CapsuleCommand, |common| common.header_length = 71),
            FIELD,
            2,
        ),
        case(
            "HLEN too long",
            ALL,
            header(Kind::InitializeConnectionRequest, |common| common.header_length = 255),
            FIELD,
            2,
        ),
        case(
            "PLEN shorter than the header",
            ALL,
            header(Kind::CapsuleCommand, |common| common.pdu_length = U32::new(71)),
            FIELD,
            4,
        ),
        case(
            "PLEN zero",
            ALL,
            header(Kind::H2CData, |common| common.pdu_length = U32::ZERO),
            FIELD,
            4,
        ),
        case(
            "ICReq with data",
            ALL,
            header(Kind::InitializeConnectionRequest, |common| {
                common.pdu_length = U32::new(u32::MAX);
            }),
            FIELD,
            4,
        ),
        case(
            "PFV",
            &[Stage::Fresh],
            request(|r| r.format_version = U16::new(1)),
            Fes::UNSUPPORTED_PARAMETER,
            8,
        ),
        case("HPDA", &[Stage::Fresh], request(|r| r.host_data_alignment = 32), FIELD, 10),
        case("a second ICReq", AFTER_HANDSHAKE, request(|_| ()), Fes::SEQUENCE_ERROR, 0),
        case(
            "a command before ICReq",
            &[Stage::Fresh],
            header(Kind::CapsuleCommand, |_| ()),
            Fes::SEQUENCE_ERROR,
            0,
        ),
        case("data before ICReq", &[Stage::Fresh], unasked_data(), Fes::SEQUENCE_ERROR, 0),
        case("data that nobody asked for", AFTER_HANDSHAKE, unasked_data(), FIELD, 10),
        case(
            "digests that were not agreed",
            AFTER_HANDSHAKE,
            header(Kind::CapsuleCommand, |common| {
                common.flags = common.flags.with_header_digest(true);
                common.pdu_length = U32::new(76);
            }),
            FIELD,
            1,
        ),
        case(
            "PDO inside the header",
            AFTER_HANDSHAKE,
            header(Kind::CapsuleCommand, |common| {
                common.data_offset = 8;
                common.pdu_length = U32::new(80);
            }),
            FIELD,
            3,
        ),
        case(
            "PDO behind the end",
            AFTER_HANDSHAKE,
            header(Kind::CapsuleCommand, |common| {
                common.data_offset = 200;
                common.pdu_length = U32::new(80);
            }),
            FIELD,
            4,
        ),
        case(
            "too much in the capsule",
            &[Stage::Shaken, Stage::Io],
            capsule_of(65536),
            Fes::LIMIT_EXCEEDED,
            0,
        ),
        case("4 GiB in the capsule", CONNECTED, capsule_of(u32::MAX - 72), Fes::LIMIT_EXCEEDED, 0),
    ];
    // Every PDU that only a controller sends.
    for kind in [
        Kind::InitializeConnectionResponse,
        Kind::C2HTerminateRequest,
        Kind::CapsuleResponse,
        Kind::C2HData,
        Kind::ReadyToTransfer,
    ] {
        let bytes = header(kind, |_| ());
        cases.push(case("a PDU of a controller", ALL, bytes, FIELD, 0));
    }
    for pdu_type in [0x08, 0x0a, 0x0b, 0x0c, 0x80] {
        let bytes = header(Kind::CapsuleCommand, |common| common.pdu_type = PduType(pdu_type));
        cases.push(case("a PDU of an unknown type", ALL, bytes, FIELD, 0));
    }
    cases
}

/// A peer at this stage.
fn at(address: SocketAddr, stage: Stage, controller: u16, queue_id: u16) -> Raw {
    match stage {
        Stage::Fresh => Raw::open(address),
        Stage::Shaken => Raw::shaken_hands(address, DigestOptions(0), 1),
        Stage::Admin => Raw::admin(address).0,
        Stage::Io => Raw::io(address, &ConnectFields::io(controller, queue_id), DigestOptions(0)),
    }
}

/// Does verified I/O on a queue of its own until told to stop; counts.
fn bystander(at: SocketAddr, stop: &AtomicBool, done: &AtomicU64) {
    let fields = ConnectFields::admin().of_other_host();
    let (mut admin, controller) = Peer::admin_as(at, &fields);
    let mut queues = [1, 2].map(|queue_id| {
        let fields = ConnectFields::io(controller, queue_id).of_other_host();
        Peer::io_as(at, &fields, weft_transport::host::HostOptions::default())
    });
    let mut round = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let bytes = pattern(8 * BLOCK, u8::try_from(round % 251).expect("a byte"));
        let block = round * 8 % 1024;
        let [writer, reader] = &mut queues;
        writer.write(1, block, 8, &bytes).succeeded();
        assert!(reader.read(1, block, 8, bytes.len()).bytes() == bytes);
        assert!(admin.controller_status().ready());
        round += 1;
        done.store(round, Ordering::Relaxed);
    }
}

/// Tells the bystander to stop, also when the test fails.
struct StopAtTheEnd<'a>(&'a AtomicBool);

impl Drop for StopAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One case: what is on the wire, and what is in the log.
fn check(case: &Case, mut raw: Raw, what: &str) {
    raw.try_send(&case.bytes);
    let Termination { status, information, header } = raw.termination();
    assert_eq!((status, information), (case.status, case.information), "{what}");
    assert!(!header.is_empty() && case.bytes.starts_with(&header), "{what}: {header:02x?}");
    let lines = raw.warnings();
    assert_eq!(lines.len(), 1, "{what}: {lines:#?}");
    assert!(lines[0].contains("protocol error of the peer"), "{what}: {}", lines[0]);
}

#[test]
fn a_protocol_error_is_answered_and_affects_no_other_host() {
    for driver in drivers() {
        let config = Config { driver: *driver, ..config_of_two_groups(&["memory:8MiB"]) };
        let target = start(config);
        let at_address = address(&target);
        let (mut admin, controller) = Peer::admin(at_address);
        let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let good = scope.spawn(|| bystander(at_address, &stop, &done));
            let enough = StopAtTheEnd(&stop);
            let mut queue_id = 0;
            for case in cases() {
                for stage in case.stages {
                    // Each with a queue identifier of its own.
                    queue_id = queue_id % 128 + 1;
                    let what = format!("{} when {stage:?}", case.name);
                    check(&case, at(at_address, *stage, controller, queue_id), &what);
                    // Within the lines of a second that are written about such peers.
                    std::thread::sleep(std::time::Duration::from_millis(17));
                }
            }
            let so_far = done.load(Ordering::Relaxed);
            wait_until("the good host goes on", || {
                done.load(Ordering::Relaxed) > so_far + 10 || good.is_finished()
            });
            drop(enough);
            good.join().expect("the good host has noticed nothing");
        });
        assert!(admin.controller_status().ready());
        target.stop().expect("a clean stop");
    }
}

/// A write for which the target has asked for data.
fn asked_for_data(
    at: SocketAddr,
    controller: u16,
    queue_id: u16,
) -> (Raw, weft_nvme::tcp::ReadyToTransfer) {
    let mut raw = Raw::io(at, &ConnectFields::io(controller, queue_id), DigestOptions(0));
    let write = read_write(NvmOpcode::WRITE, 1, 0, 2)
        .with_command_id(7)
        .with_data_pointer(Descriptor::transport(8192));
    raw.command(write, &[]);
    let request = raw.receive().ready_to_transfer();
    assert_eq!((request.offset.get(), request.length.get()), (0, 8192));
    (raw, request)
}

#[test]
fn data_that_is_not_what_was_asked_for_ends_the_connection() {
    for driver in drivers() {
        let target = start(Config { driver: *driver, ..config_of_two_groups(&["memory:8MiB"]) });
        let at = address(&target);
        let (_admin, controller) = Peer::admin(at);
        let data = pattern(8192, 1);
        let field = Fes::INVALID_HEADER_FIELD;
        let outside = Fes::DATA_TRANSFER_OUT_OF_RANGE;
        type Change = fn(&Raw, weft_nvme::tcp::ReadyToTransfer, &[u8]) -> Vec<u8>;
        let cases: [(&str, Change, Fes, u32); 7] = [
            ("a gap", |raw, to, data| raw.data(&to, 4096, &data[..4096], true), outside, 0),
            (
                "too much",
                |raw, to, data| raw.data(&to, 0, &[data, data].concat(), true),
                outside,
                0,
            ),
            ("LAST_PDU too early", |raw, to, data| raw.data(&to, 0, &data[..4096], true), field, 1),
            ("no LAST_PDU", |raw, to, data| raw.data(&to, 0, data, false), field, 1),
            (
                "another command",
                |raw, mut to, data| {
                    to.command_id = U16::new(8);
                    raw.data(&to, 0, data, true)
                },
                field,
                8,
            ),
            (
                "another tag",
                |raw, mut to, data| {
                    to.transfer_tag = U16::new(to.transfer_tag.get() ^ 0x1000);
                    raw.data(&to, 0, data, true)
                },
                field,
                10,
            ),
            (
                "far away",
                |raw, to, data| raw.data(&to, u32::MAX - 4095, &data[..4096], true),
                outside,
                0,
            ),
        ];
        for ((name, change, status, information), queue_id) in cases.into_iter().zip(1..) {
            let (mut raw, request) = asked_for_data(at, controller, queue_id);
            let pdu = change(&raw, request, &data);
            raw.try_send(&pdu);
            let termination = raw.termination();
            assert_eq!(
                (termination.status, termination.information),
                (status, information),
                "{name}"
            );
        }
        // Not one byte of it was written.
        let mut io = Peer::io(at, controller, 100);
        assert!(io.read(1, 0, 2, 8192).bytes() == [0; 8192]);
        target.stop().expect("a clean stop");
    }
}

#[test]
fn commands_beyond_the_queue_and_twice_the_same_identifier_end_the_connection() {
    for driver in drivers() {
        let target = start(Config {
            driver: *driver,
            ..config_of_two_groups(&["delay:read=300ms:memory:8MiB"])
        });
        let at = address(&target);
        let (_admin, controller) = Peer::admin(at);
        let read = |id| {
            read_write(NvmOpcode::READ, 1, 0, 1)
                .with_command_id(id)
                .with_data_pointer(Descriptor::transport(4096))
        };
        let fields = ConnectFields { entries: 4, ..ConnectFields::io(controller, 1) };
        let mut raw = Raw::io(at, &fields, DigestOptions(0));
        for id in 0..5 {
            raw.command(read(id), &[]);
        }
        assert_eq!(raw.termination().status, Fes::SEQUENCE_ERROR);
        let mut raw = Raw::io(at, &ConnectFields::io(controller, 2), DigestOptions(0));
        raw.command(read(7), &[]);
        raw.command(read(7), &[]);
        let termination = raw.termination();
        assert_eq!((termination.status, termination.information), (Fes::INVALID_HEADER_FIELD, 10));
        // Commands before Connect is answered are more than its queue takes, too.
        let mut raw = Raw::shaken_hands(at, DigestOptions(0), 1);
        let identify = Command::new(AdminOpcode::KEEP_ALIVE);
        let two = [
            raw.capsule(identify.with_command_id(1), &[]),
            raw.capsule(identify.with_command_id(2), &[]),
        ];
        raw.send(&two.concat());
        // The first is refused, and so is the second, one after the other.
        for id in [1, 2] {
            assert_eq!(raw.receive().completion().command_id.get(), id);
        }
        target.stop().expect("a clean stop");
    }
}

/// A peer may send a TermReq PDU; it is not answered.
#[test]
fn a_host_may_terminate_the_connection() {
    for driver in drivers() {
        let target = start(Config { driver: *driver, ..config_of_two_groups(&["memory:8MiB"]) });
        let at_address = address(&target);
        let (mut admin, controller) = Peer::admin(at_address);
        for (stage, queue_id) in AFTER_HANDSHAKE.iter().zip(1..) {
            let mut raw = at(at_address, *stage, controller, queue_id);
            let kind = Kind::H2CTerminateRequest;
            let termination = TerminateRequest::new(kind, Fes::LIMIT_EXCEEDED, 0, 0);
            raw.send(termination.bytes());
            assert!(raw.is_ended(), "{stage:?}");
            let lines = raw.warnings();
            assert!(lines.iter().all(|line| line.contains("the peer terminated")), "{lines:?}");
        }
        assert!(admin.controller_status().ready());
        target.stop().expect("a clean stop");
    }
}

/// Every beginning of an ordinary conversation, and then the end.
#[test]
fn a_connection_may_end_after_any_byte() {
    for driver in drivers() {
        let mut config = Config { driver: *driver, ..config_of_two_groups(&["memory:8MiB"]) };
        config.limits.connect_timeout = Duration::from_secs(2);
        let target = start(config);
        let at = address(&target);
        let mut whole = request(|_| ());
        let mut plain = Raw::open(at);
        let fields = ConnectFields::admin();
        whole.extend(plain.capsule(fields.command().with_command_id(0), fields.data().bytes()));
        plain.send(&whole);
        assert_eq!(plain.receive().common.pdu_type, PduType::INITIALIZE_CONNECTION_RESPONSE);
        assert!(plain.receive().completion().status().is_success());
        for cut in (0..whole.len()).step_by(13) {
            let mut raw = Raw::open(at);
            raw.send(&whole[..cut]);
            // The one hangs up, the other only stops to talk, and is hung up on.
            if cut % 2 == 0 {
                raw.stream().shutdown(std::net::Shutdown::Write).expect("half an end");
            } else {
                drop(raw);
                continue;
            }
            while raw.try_receive().is_some() {}
        }
        let (mut admin, _) = Peer::admin(at);
        assert!(admin.controller_status().ready());
        target.stop().expect("a clean stop");
    }
}

#[test]
fn unconnected_peers_are_closed_after_the_connect_timeout() {
    for driver in drivers() {
        let mut config = Config { driver: *driver, ..config_of_two_groups(&["memory:8MiB"]) };
        config.limits.connect_timeout = Duration::from_millis(300);
        let target = start(config);
        let at_address = address(&target);
        let (mut admin, controller) = Peer::admin(at_address);
        let mut idle_peers = [
            at(at_address, Stage::Fresh, 0, 0),
            at(at_address, Stage::Fresh, 0, 0),
            at(at_address, Stage::Shaken, 0, 0),
            at(at_address, Stage::Shaken, 0, 0),
        ];
        idle_peers[1].send(&[0, 0, 128, 0]);
        idle_peers[3].send(&CommonHeader::bare(Kind::CapsuleCommand).bytes()[..7]);
        let mut known = at(at_address, Stage::Io, controller, 1);
        for idle_peer in &mut idle_peers {
            assert!(idle_peer.is_ended());
        }
        // Whoever is connected may be silent.
        let command = read_write(NvmOpcode::FLUSH, 1, 0, 1).with_command_id(9);
        known.command(command, &[]);
        assert!(known.receive().completion().status().is_success());
        assert!(admin.controller_status().ready());
        target.stop().expect("a clean stop");
    }
}
