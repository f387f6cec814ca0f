//! Peers that send malformed PDUs, are silent or slow, or disconnect.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use weft_nvme::sgl::Descriptor;
use weft_nvme::tcp::{
    CommonHeader, DigestOptions, Fes, InitializeConnectionRequest, InitializeConnectionResponse,
    Kind, PduType, ReadyToTransfer, TerminateRequest,
};
use weft_nvme::{Command, Completion, Status, Wire};
use weft_nvmf::tcp::encode::{DataPdu, Encoder, put_termination};
use weft_nvmf::tcp::{FatalError, digest};
use weft_transport::CloseReason;
use weft_transport::host::HostOptions;
use weft_transport::target::Limits;

use crate::raw_peer::RawPeer;
use crate::rig::{Behaviour, CommandOutcome, READ, Rig, WRITE, drivers, pattern};

#[test]
fn a_malformed_pdu_is_answered_and_the_connection_ends() {
    for reactor in drivers() {
        let mut rig = Rig::new(reactor, Behaviour::default());
        let bystander = rig.connect(HostOptions::default());
        let mut peer = RawPeer::shaken_hands(&mut rig, DigestOptions(0));
        let mut header = CommonHeader::bare(Kind::CapsuleCommand);
        header.header_length = 64;
        peer.send(header.bytes());
        // More than the target reads, which must not reset the connection before its termination.
        peer.send(&[0x55; 100_000]);
        let answer = peer.receive(&mut rig, 32);
        let request = TerminateRequest::read(&answer).expect("a termination");
        assert_eq!(request.common.pdu_type, PduType::C2H_TERMINATE_REQUEST);
        assert_eq!(request.status(), Fes::INVALID_HEADER_FIELD);
        assert_eq!(request.fatal_error_information.get(), 2);
        assert_eq!(&answer[24..], header.bytes());
        for _ in 0..5 {
            rig.turn();
        }
        assert!(rig.target.closed.is_empty(), "it waits for the peer to hang up");
        drop(peer);
        rig.run("closed", |rig| !rig.target.closed.is_empty());
        let [CloseReason::Protocol(fault)] = rig.target.closed[..] else {
            panic!("{:?}", rig.target.closed);
        };
        assert_eq!(fault.status, Fes::INVALID_HEADER_FIELD);
        rig.hosts[bystander].read(&rig.reactor, 1, 4096);
        assert_eq!(rig.finish(bystander).len(), 1, "others are not affected");
        rig.close();
    }
}

#[test]
fn a_peer_that_does_not_close_is_disconnected() {
    for reactor in drivers() {
        let limits = Limits { close_timeout: Duration::from_millis(30), ..Limits::default() };
        let mut rig = Rig::new(reactor, Behaviour { limits, ..Behaviour::default() });
        let mut peer = RawPeer::new(&rig);
        peer.send(&[0xff; 8]);
        let all = peer.receive(&mut rig, 1000);
        assert_eq!(all.len(), 32, "a termination, and then the end");
        rig.run("closed", |rig| !rig.target.closed.is_empty());
        rig.close();
    }
}

#[test]
fn peers_without_a_handshake_have_limited_time() {
    for reactor in drivers() {
        let handshake_timeout = Duration::from_millis(50);
        let limits = Limits { handshake_timeout, ..Limits::default() };
        let mut rig = Rig::new(reactor, Behaviour { limits, ..Behaviour::default() });
        let known = rig.connect(HostOptions::default());
        let _silent = RawPeer::new(&rig);
        let mut half = RawPeer::new(&rig);
        half.send(&[0, 0, 128]);
        let _shaken = RawPeer::shaken_hands(&mut rig, DigestOptions(0));
        rig.run("all timed out", |rig| rig.target.closed.len() == 3);
        assert_eq!(rig.target.closed, [CloseReason::HandshakeTimeout; 3]);
        rig.hosts[known].read(&rig.reactor, 1, 4096);
        assert_eq!(rig.finish(known).len(), 1, "established connections stay");
        rig.close();
    }
}

#[test]
fn a_wrong_header_digest_ends_the_connection() {
    for reactor in drivers() {
        let mut rig = Rig::new(reactor, Behaviour::default());
        let digests = DigestOptions(0).with_header(true);
        let mut peer = RawPeer::shaken_hands(&mut rig, digests);
        let mut header = CommonHeader::bare(Kind::CapsuleCommand);
        header.flags = header.flags.with_header_digest(true);
        header.pdu_length.set(76);
        let mut capsule = header.bytes().to_vec();
        capsule.resize(72, 0);
        capsule.extend_from_slice(&[1, 2, 3, 4]);
        peer.send(&capsule);
        let answer = peer.receive(&mut rig, 96);
        let request = TerminateRequest::read(&answer).expect("a termination");
        assert_eq!(request.status(), Fes::HEADER_DIGEST_ERROR);
        assert_eq!(request.fatal_error_information.get(), 0x0403_0201);
        assert_eq!(answer[24..], capsule[..72]);
        drop(peer);
        rig.close();
    }
}

fn write_command(command_id: u16, descriptor: Descriptor) -> Command {
    Command::new(WRITE)
        .with_command_id(command_id)
        .with_cdw10(u32::from(command_id))
        .with_data_pointer(descriptor)
}

/// `payload` and its digest, with `spoil` added to the last byte of the digest.
fn put_digested(bytes: &mut Vec<u8>, payload: &[u8], spoil: u8) {
    bytes.extend_from_slice(payload);
    let [head @ .., last] = digest::of(payload);
    bytes.extend_from_slice(&head);
    bytes.push(last.wrapping_add(spoil));
}

/// A wrong data digest ends its command, but not the connection.
#[test]
fn a_wrong_data_digest_ends_one_command() {
    for reactor in drivers() {
        let mut rig = Rig::new(reactor, Behaviour::default());
        let digests = DigestOptions(0).with_data(true);
        let (mut peer, encoder) = RawPeer::connected(&mut rig, digests);
        for (command_id, spoil) in [(1, 1), (2, 0)] {
            let mut bytes = Vec::new();
            let command = write_command(command_id, Descriptor::in_capsule(0, 4096));
            encoder.put_command(&command, 4096, &mut bytes);
            put_digested(&mut bytes, &pattern(7, 4096), spoil);
            peer.send(&bytes);
            let completion = peer.completion(&mut rig, digests);
            let status =
                if spoil > 0 { Status::TRANSIENT_TRANSPORT_ERROR } else { Status::SUCCESS };
            assert_eq!((completion.command_id.get(), completion.status()), (command_id, status));
        }
        // The same for data after an R2T, long enough to be received directly.
        for (command_id, spoil) in [(3, 1), (4, 0)] {
            let mut bytes = Vec::new();
            let command = write_command(command_id, Descriptor::transport(100_000));
            encoder.put_command(&command, 0, &mut bytes);
            peer.send(&bytes);
            let request = ReadyToTransfer::read(&peer.receive(&mut rig, 24)).expect("R2T");
            assert_eq!((request.command_id.get(), request.length.get()), (command_id, 100_000));
            let transfer_tag = request.transfer_tag.get();
            for (offset, length, last) in [(0, 60_000, false), (60_000, 40_000, true)] {
                let mut bytes = Vec::new();
                let pdu =
                    DataPdu { command_id, transfer_tag, offset, length, last, success: false };
                encoder.put_data(Kind::H2CData, &pdu, &mut bytes);
                put_digested(&mut bytes, &pattern(offset, length as usize), spoil);
                peer.send(&bytes);
            }
            let completion = peer.completion(&mut rig, digests);
            let status =
                if spoil > 0 { Status::TRANSIENT_TRANSPORT_ERROR } else { Status::SUCCESS };
            assert_eq!((completion.command_id.get(), completion.status()), (command_id, status));
        }
        assert_eq!(rig.target.corrupt, 2);
        assert_eq!(rig.target.stored.keys().copied().collect::<Vec<_>>(), [2, 4]);
        drop(peer);
        rig.run("gone", |rig| rig.target.closed == [CloseReason::PeerClosed]);
        rig.close();
    }
}

#[test]
fn in_capsule_data_that_is_not_what_the_sgl_says() {
    for reactor in drivers() {
        let mut rig = Rig::new(reactor, Behaviour::default());
        let none = DigestOptions(0);
        let (mut peer, encoder) = RawPeer::connected(&mut rig, none);
        let length_invalid = Status::DATA_SGL_LENGTH_INVALID.with_dnr();
        let type_invalid = Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr();
        let offset_invalid = Status::SGL_OFFSET_INVALID.with_dnr();
        let keyed = Descriptor::keyed(0, 512, 1, false);
        for (name, descriptor, length, expected) in [
            ("less than it says", Descriptor::in_capsule(0, 512), 100, length_invalid),
            ("none at all", Descriptor::in_capsule(0, 512), 0, length_invalid),
            ("not said", Descriptor::transport(512), 100, type_invalid),
            ("an offset", Descriptor::in_capsule(8, 92), 100, offset_invalid),
            ("another transport's", keyed, 0, type_invalid),
            ("more than it says", Descriptor::in_capsule(0, 50), 100, Status::SUCCESS),
        ] {
            let mut bytes = Vec::new();
            encoder.put_command(&write_command(1, descriptor), length, &mut bytes);
            bytes.resize(bytes.len() + length as usize, 0x77);
            peer.send(&bytes);
            let status = peer.completion(&mut rig, none).status();
            assert_eq!(status, expected, "{name}");
        }
        assert_eq!(rig.target.stored[&1], [0x77; 50]);
        drop(peer);
        rig.close();
    }
}

/// A host that sends everything at once, or byte by byte, and reads nothing meanwhile.
#[test]
fn a_host_that_sends_without_waiting() {
    for reactor in drivers() {
        let mut rig = Rig::new(reactor, Behaviour::default());
        let mut peer = RawPeer::new(&rig);
        let encoder = Encoder::new(false, false, 4);
        let request = InitializeConnectionRequest::new(0, DigestOptions(0), 0);
        let mut bytes = request.bytes().to_vec();
        let connect = Command::fabrics(weft_nvme::FabricsType::CONNECT).with_command_id(1);
        encoder.put_command(&connect, 0, &mut bytes);
        for command_id in 2..20 {
            let command = Command::new(READ)
                .with_command_id(command_id)
                .with_cdw10(u32::from(command_id))
                .with_data_pointer(Descriptor::transport(600));
            encoder.put_command(&command, 0, &mut bytes);
        }
        for piece in bytes.chunks(33) {
            peer.send(piece);
            rig.turn();
        }
        let response = peer.receive(&mut rig, 128 + 24);
        assert!(InitializeConnectionResponse::read(&response).is_ok());
        for command_id in 2..20u16 {
            let answer = peer.receive(&mut rig, 24 + 600 + 24);
            assert_eq!(answer[24..624], pattern(u32::from(command_id), 600));
            let completion = Completion::read(&answer[632..]).expect("a completion");
            assert_eq!(completion.command_id.get(), command_id);
        }
        drop(peer);
        rig.close();
    }
}

/// A host that reads much data but no responses holds no more memory than its queue's commands.
#[test]
fn a_host_that_reads_nothing() {
    for reactor in drivers() {
        let mut rig = Rig::new(reactor, Behaviour::default());
        let bystander = rig.connect(HostOptions::default());
        let (mut peer, encoder) = RawPeer::connected(&mut rig, DigestOptions(0));
        let before = rig.target.commands;
        // In one piece: once unread responses are queued the target takes no further command.
        let mut bytes = Vec::new();
        for command_id in 0..100 {
            let command = Command::new(READ)
                .with_command_id(command_id)
                .with_data_pointer(Descriptor::transport(131_072));
            encoder.put_command(&command, 0, &mut bytes);
        }
        peer.send(&bytes);
        rig.run("all came", |rig| rig.target.commands == before + 100);
        for _ in 0..10 {
            rig.hosts[bystander].read(&rig.reactor, 3, 4096);
            let endings = rig.finish(bystander);
            let expected = CommandOutcome::Completed {
                status: Status::SUCCESS,
                received: 4096,
                data: Some(pattern(3, 4096)),
            };
            assert!(endings.values().all(|ending| *ending == expected));
        }
        let pool = rig.reactor.pool();
        assert!(pool.available() < pool.capacity(), "what it asked for waits");
        drop(peer);
        rig.run("gone", |rig| rig.target.closed.len() == 1);
        rig.close();
    }
}

/// A host that sends commands within its queue depth but reads no responses: the target stops
/// taking commands, so that the responses cannot fill its memory.
#[test]
fn a_host_that_sends_without_end_and_reads_nothing() {
    const BATCHES: usize = 400;
    const BATCH: u16 = 50;
    for reactor in drivers() {
        let mut rig = Rig::new(reactor, Behaviour::default());
        let bystander = rig.connect(HostOptions::default());
        let (mut peer, encoder) = RawPeer::connected(&mut rig, DigestOptions(0));
        let before = rig.target.commands;
        let mut bytes = Vec::new();
        for command_id in 0..BATCH {
            let command = Command::new(READ)
                .with_command_id(command_id)
                .with_data_pointer(Descriptor::transport(4096));
            encoder.put_command(&command, 0, &mut bytes);
        }
        let (mut taken, mut stood_still) = (0, 0);
        for batch in 1..=BATCHES {
            peer.send(&bytes);
            // Enough turns for all events; other connections are served.
            for _ in 0..3 {
                rig.hosts[bystander].read(&rig.reactor, 3, 4096);
                rig.finish(bystander);
            }
            let now = rig.target.commands - before - 3 * batch;
            stood_still = if now == taken { stood_still + 1 } else { 0 };
            if stood_still == 10 {
                break;
            }
            taken = now;
        }
        assert!(taken > 0 && stood_still == 10, "the target took {taken} and continues");
        assert!(taken < BATCHES * usize::from(BATCH), "the target took all");
        assert!(rig.target.closed.is_empty(), "nothing is wrong with it");
        drop(peer);
        rig.run("gone", |rig| rig.target.closed.len() == 1);
        rig.close();
    }
}

/// A connection that waits for the pool holds none of its memory: it returns its receive buffer,
/// far larger than what it needs.
#[test]
fn a_starved_connection_gives_its_receive_buffer_back() {
    for reactor in drivers() {
        let mut rig = Rig::new(reactor, Behaviour::default());
        let none = DigestOptions(0);
        let (mut peer, encoder) = RawPeer::connected(&mut rig, none);
        let mut stalled_bytes = Vec::new();
        while let Some(buffer) = rig.reactor.pool().take(256 << 10) {
            stalled_bytes.push(buffer);
        }
        // Memory for one receive and nothing else.
        stalled_bytes.pop();
        assert_eq!(rig.reactor.pool().available(), 256 << 10);
        let mut bytes = Vec::new();
        for command_id in 0..10 {
            let command = write_command(command_id, Descriptor::in_capsule(0, 4096));
            encoder.put_command(&command, 4096, &mut bytes);
            bytes.extend_from_slice(&pattern(u32::from(command_id), 4096));
        }
        peer.send(&bytes);
        for command_id in 0..10 {
            let completion = peer.completion(&mut rig, none);
            assert_eq!(completion.command_id.get(), command_id);
            let stored = &rig.target.stored[&u32::from(command_id)];
            assert!(*stored == pattern(u32::from(command_id), 4096));
        }
        drop((stalled_bytes, peer));
        rig.close();
    }
}

/// A controller of raw PDUs, with a connected host, up to an accepted Connect.
fn controller(rig: &mut Rig) -> (RawPeer, usize) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    rig.target.address = listener.local_addr().expect("address");
    let index = rig.start(HostOptions::default());
    listener.set_nonblocking(true).expect("non-blocking");
    let mut accepted = None;
    rig.run("accepted", |_| {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    let (stream, _) = accepted.expect("a connection");
    stream.set_nonblocking(true).expect("non-blocking");
    let mut controller = RawPeer(stream);
    assert_eq!(controller.receive(rig, 128)[0], 0, "ICReq");
    let response = InitializeConnectionResponse::new(0, DigestOptions(0), 4096);
    controller.send(response.bytes());
    let connect = controller.command(rig);
    controller.respond(&Completion::new(connect.command_id.get(), Status::SUCCESS));
    rig.run("connected", |rig| rig.hosts[index].ready);
    (controller, index)
}

/// Commands that a host gives up must not reach the controller later.
#[test]
fn commands_given_up_are_not_sent_later() {
    for (commands, end) in [(0, Ok(0)), (64, Err(ErrorKind::ConnectionReset))] {
        for reactor in drivers() {
            let mut rig = Rig::new(reactor, Behaviour::default());
            let (mut controller, index) = controller(&mut rig);
            for key in 0..commands {
                rig.hosts[index].write(&rig.reactor, key, &[7; 8192]);
            }
            rig.flush(index);
            let host = &mut rig.hosts[index];
            host.connection.close(&mut rig.reactor, CloseReason::Requested("it takes long"));
            rig.run("closed", |rig| {
                rig.hosts[index].take_events();
                rig.hosts[index].closed.is_some()
            });
            let (_, in_flight) = rig.hosts[index].closed.as_ref().expect("an end");
            assert_eq!(in_flight.len(), commands as usize);
            assert!(in_flight.iter().all(|(_, buffer)| *buffer), "their data comes back");
            let mut bytes = vec![0; 1 << 20];
            controller.0.set_nonblocking(false).expect("blocking");
            let last = loop {
                match controller.0.read(&mut bytes) {
                    Ok(count) if count > 0 => {}
                    last => break last.map_err(|error| error.kind()),
                }
            };
            assert_eq!(last, end, "after {commands} commands");
            rig.close();
        }
    }
}

/// A controller with an invalid response gets a termination, and its host disconnects.
#[test]
fn a_controller_that_breaks_the_protocol() {
    for reactor in drivers() {
        let mut rig = Rig::new(reactor, Behaviour::default());
        let (mut controller, index) = controller(&mut rig);
        rig.hosts[index].read(&rig.reactor, 1, 4096);
        rig.flush(index);
        controller.command(&mut rig);
        controller.respond(&Completion::new(0x77, Status::SUCCESS));
        let answer = controller.receive(&mut rig, 48);
        let request = TerminateRequest::read(&answer).expect("a termination");
        assert_eq!(request.common.pdu_type, PduType::H2C_TERMINATE_REQUEST);
        assert_eq!(request.status(), Fes::INVALID_HEADER_FIELD);
        assert_eq!(request.fatal_error_information.get(), 20);
        for _ in 0..5 {
            rig.turn();
        }
        assert!(rig.hosts[index].closed.is_none(), "it waits for the peer to hang up");
        drop(controller);
        rig.run("closed", |rig| rig.hosts[index].closed.is_some());
        let (reason, in_flight) = rig.hosts[index].closed.as_ref().unwrap();
        assert!(matches!(reason, CloseReason::Protocol(fault) if fault.information == 20));
        assert_eq!(in_flight.len(), 1);
        rig.close();
    }
}

/// A command that is received directly into its buffer is returned with it, whichever side ends the
/// connection.
#[test]
fn a_connection_ends_in_the_middle_of_data() {
    for by_host in [false, true] {
        for reactor in drivers() {
            let mut rig = Rig::new(reactor, Behaviour::default());
            let (mut controller, index) = controller(&mut rig);
            let slot = rig.hosts[index].read(&rig.reactor, 1, 200_000);
            rig.flush(index);
            let command_id = controller.command(&mut rig).command_id.get();
            let mut bytes = Vec::new();
            let pdu = DataPdu {
                command_id,
                transfer_tag: 0,
                offset: 0,
                length: 200_000,
                last: true,
                success: false,
            };
            Encoder::new(false, false, 4).put_data(Kind::C2HData, &pdu, &mut bytes);
            bytes.extend_from_slice(&pattern(1, 50_000));
            controller.send(&bytes);
            for _ in 0..5 {
                rig.turn();
            }
            let expected = if by_host {
                let Rig { reactor, hosts, .. } = &mut rig;
                let reason = CloseReason::Requested("enough");
                hosts[index].connection.close(reactor, reason);
                hosts[index].take_events();
                reason
            } else {
                controller.send(&pattern(1, 100));
                drop(controller);
                CloseReason::PeerClosed
            };
            rig.run("closed", |rig| rig.hosts[index].closed.is_some());
            assert_eq!(rig.hosts[index].closed, Some((expected, vec![(slot, true)])));
            rig.close();
        }
    }
}

#[test]
fn a_controller_that_terminates() {
    for reactor in drivers() {
        let mut rig = Rig::new(reactor, Behaviour::default());
        let (mut controller, index) = controller(&mut rig);
        let fault = FatalError { status: Fes::SEQUENCE_ERROR, information: 0, detail: "" };
        let mut bytes = Vec::new();
        put_termination(Kind::C2HTerminateRequest, &fault, &[0; 72], &mut bytes);
        controller.send(&bytes);
        rig.run("closed", |rig| rig.hosts[index].closed.is_some());
        let reason = CloseReason::PeerTerminated { status: Fes::SEQUENCE_ERROR, information: 0 };
        assert_eq!(rig.hosts[index].closed, Some((reason, Vec::new())));
        rig.close();
    }
}

#[test]
fn a_host_that_terminates() {
    for reactor in drivers() {
        let mut rig = Rig::new(reactor, Behaviour::default());
        let (mut peer, _) = RawPeer::connected(&mut rig, DigestOptions(0));
        let fault = FatalError { status: Fes::LIMIT_EXCEEDED, information: 3, detail: "" };
        let mut bytes = Vec::new();
        put_termination(Kind::H2CTerminateRequest, &fault, &[0; 24], &mut bytes);
        peer.0.write_all(&bytes).expect("room");
        rig.run("closed", |rig| !rig.target.closed.is_empty());
        let expected = CloseReason::PeerTerminated { status: Fes::LIMIT_EXCEEDED, information: 3 };
        assert_eq!(rig.target.closed, [expected]);
        rig.close();
    }
}
