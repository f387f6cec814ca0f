//! Every way in which a PDU can be wrong, and the FES and FEI that answer it.

use super::*;

const PLAIN: Negotiated = Negotiated {
    header_digest: false,
    data_digest: false,
    host_alignment: 4,
    controller_alignment: 4,
    maximum_r2t: 1,
    maximum_h2c_data: 4096,
};

fn target_config() -> target::Config {
    let parameters = ControllerParameters {
        header_digest: true,
        data_digest: true,
        controller_data_alignment: 0,
        maximum_h2c_data: 4096,
    };
    target::Config { parameters, in_capsule_bytes: 8192, ..target::Config::default() }
}

fn host_terms(digests: bool) -> HostParameters {
    HostParameters {
        header_digest: digests,
        data_digest: digests,
        host_data_alignment: 0,
        maximum_r2t: 1,
    }
}

/// A target session behind its handshake, an I/O queue with room for four commands.
fn target_session(digests: bool) -> target::Session {
    session_of_queue(1, digests)
}

fn session_of_queue(queue_id: u16, digests: bool) -> target::Session {
    let mut session = target::Session::new(target_config());
    let request = host_terms(digests).request();
    assert!(matches!(drive(&mut session, request.bytes()), Ok(Some(_))));
    session.set_queue(queue_id, 4, true);
    session
}

/// Feeds all of `bytes`; the last thing that was said, or the fault.
fn drive(session: &mut target::Session, bytes: &[u8]) -> Result<Option<&'static str>, FatalError> {
    let mut input = bytes;
    let mut said = None;
    loop {
        said = Some(match session.handle_input(&mut input, &mut Vec::new())? {
            target::SessionEvent::Starved => return Ok(said),
            target::SessionEvent::Initialized(_) => "initialized",
            target::SessionEvent::Command { .. } => "command",
            target::SessionEvent::Data { .. } => "data",
            target::SessionEvent::CapsuleEnd { intact: true, .. } => "capsule",
            target::SessionEvent::CapsuleEnd { intact: false, .. } => "corrupt capsule",
            target::SessionEvent::TransferEnd { .. } => "transfer",
            target::SessionEvent::Terminated { .. } => "terminated",
        });
    }
}

fn drive_host(
    session: &mut host::Session,
    bytes: &[u8],
) -> Result<Option<&'static str>, FatalError> {
    let mut input = bytes;
    let mut said = None;
    loop {
        said = Some(match session.handle_input(&mut input)? {
            host::SessionEvent::Starved => return Ok(said),
            host::SessionEvent::Ready(_) => "ready",
            host::SessionEvent::Data { .. } => "data",
            host::SessionEvent::Completed { intact: true, .. } => "completed",
            host::SessionEvent::Completed { intact: false, .. } => "failed",
            host::SessionEvent::Terminated { .. } => "terminated",
        });
    }
}

fn fault_of<T: std::fmt::Debug>(result: Result<T, FatalError>) -> (Fes, u32) {
    let error = result.expect_err("it must be refused");
    (error.status, error.information)
}

fn encoder(negotiated: &Negotiated) -> Encoder {
    Encoder::new(negotiated.header_digest, negotiated.data_digest, negotiated.host_alignment)
}

fn capsule(length: u32) -> Vec<u8> {
    let mut command = Command::new(1).with_command_id(5);
    command.data_pointer = Descriptor::in_capsule(0, length);
    let mut bytes = Vec::new();
    encoder(&PLAIN).put_command(&command, length, &mut bytes);
    bytes.resize(bytes.len() + length as usize, 0);
    bytes
}

fn edited(mut bytes: Vec<u8>, edit: impl FnOnce(&mut CommonHeader)) -> Vec<u8> {
    edit(CommonHeader::view_mut(&mut bytes).expect("a PDU"));
    bytes
}

#[test]
fn common_headers() {
    let invalid = Fes::INVALID_HEADER_FIELD;
    let cases: [(&str, Vec<u8>, (Fes, u32)); 12] = [
        ("unknown type", edited(capsule(0), |c| c.pdu_type = PduType(0x7f)), (invalid, 0)),
        ("kickstart", edited(capsule(0), |c| c.pdu_type = PduType(0x0a)), (invalid, 0)),
        (
            "the other side's type",
            edited(capsule(0), |c| {
                *c = CommonHeader::bare(Kind::CapsuleResponse);
            }),
            (invalid, 0),
        ),
        ("HLEN", edited(capsule(0), |c| c.header_length = 71), (invalid, 2)),
        (
            "PLEN short of the header",
            edited(capsule(0), |c| c.pdu_length = U32::new(71)),
            (invalid, 4),
        ),
        (
            "HDGSTF not agreed",
            edited(capsule(0), |c| {
                c.flags = c.flags.with_header_digest(true);
            }),
            (invalid, 1),
        ),
        (
            "DDGSTF not agreed",
            edited(capsule(8), |c| {
                c.flags = c.flags.with_data_digest(true);
            }),
            (invalid, 1),
        ),
        ("PDO in the header", edited(capsule(8), |c| c.data_offset = 68), (invalid, 3)),
        ("PDO not aligned", edited(capsule(8), |c| c.data_offset = 73), (invalid, 3)),
        ("PDO behind the PDU", edited(capsule(8), |c| c.data_offset = 84), (invalid, 4)),
        ("PDO at the end", edited(capsule(8), |c| c.data_offset = 80), (invalid, 4)),
        ("too much in the capsule", capsule(8193), (Fes::LIMIT_EXCEEDED, 0)),
    ];
    for (name, bytes, expected) in cases {
        let mut session = target_session(false);
        assert_eq!(fault_of(drive(&mut session, &bytes)), expected, "{name}");
        // Nothing is taken in after a fault.
        assert_eq!(drive(&mut session, &capsule(0)), Ok(None), "{name}");
    }
    assert_eq!(drive(&mut target_session(false), &capsule(8192)), Ok(Some("capsule")));
}

#[test]
fn a_termination_has_the_common_header_whatever_its_length_says() {
    for length in [0, 2, 7, 8, 24, 71, 73, 128, 255] {
        let bytes = edited(capsule(0), |c| c.header_length = length);
        let mut session = target_session(false);
        let error = drive(&mut session, &bytes).expect_err("HLEN of a capsule is 72");
        let mut sent = Vec::new();
        session.terminate(&error, &mut sent);
        assert_eq!(sent[TerminateRequest::SIZE..], bytes[..8], "HLEN {length}");
    }
}

#[test]
fn digest_flags_and_digests() {
    let agreed = Negotiated { header_digest: true, data_digest: true, ..PLAIN };
    let mut good = Vec::new();
    let mut command = Command::new(1).with_command_id(5);
    command.data_pointer = Descriptor::in_capsule(0, 4);
    encoder(&agreed).put_command(&command, 4, &mut good);
    good.extend_from_slice(b"data");
    good.extend_from_slice(&digest::of(b"data"));
    assert_eq!(drive(&mut target_session(true), &good), Ok(Some("capsule")));

    let no_header_digest = edited(good.clone(), |c| c.flags = c.flags.with_header_digest(false));
    let result = drive(&mut target_session(true), &no_header_digest);
    assert_eq!(fault_of(result), (Fes::INVALID_HEADER_FIELD, 1));
    let no_data_digest = edited(good.clone(), |c| c.flags = c.flags.with_data_digest(false));
    let result = drive(&mut target_session(true), &no_data_digest);
    assert_eq!(fault_of(result), (Fes::INVALID_HEADER_FIELD, 1));
    let no_room = edited(good.clone(), |c| c.pdu_length = U32::new(75));
    let result = drive(&mut target_session(true), &no_room);
    assert_eq!(fault_of(result), (Fes::INVALID_HEADER_FIELD, 4));

    let mut wrong = good.clone();
    wrong[72] ^= 0x10;
    let received = u32::from_le_bytes([wrong[72], wrong[73], wrong[74], wrong[75]]);
    let result = drive(&mut target_session(true), &wrong);
    assert_eq!(fault_of(result), (Fes::HEADER_DIGEST_ERROR, received));

    // A wrong data digest ends the command, not the connection.
    let mut wrong = good.clone();
    wrong[80] ^= 1;
    let mut session = target_session(true);
    assert_eq!(drive(&mut session, &wrong), Ok(Some("corrupt capsule")));
    session.release(0);
    assert_eq!(drive(&mut session, &good), Ok(Some("capsule")));
}

#[test]
fn initialize_requests() {
    let good = host_terms(false).request();
    let fresh = || target::Session::new(target_config());
    let mut other_version = good;
    other_version.format_version = U16::new(1);
    let mut alignment = good;
    alignment.host_data_alignment = 32;
    let mut length = good;
    length.common.pdu_length = U32::new(132);
    for (name, bytes, expected) in [
        ("PFV", other_version.bytes(), (Fes::UNSUPPORTED_PARAMETER, 8)),
        ("HPDA", alignment.bytes(), (Fes::INVALID_HEADER_FIELD, 10)),
        ("PLEN", length.bytes(), (Fes::INVALID_HEADER_FIELD, 4)),
        ("no ICReq", &capsule(0), (Fes::SEQUENCE_ERROR, 0)),
    ] {
        assert_eq!(fault_of(drive(&mut fresh(), bytes)), expected, "{name}");
    }
    let mut session = fresh();
    assert_eq!(drive(&mut session, good.bytes()), Ok(Some("initialized")));
    assert_eq!(fault_of(drive(&mut session, good.bytes())), (Fes::SEQUENCE_ERROR, 0));
}

#[test]
fn the_answer_to_initialize_holds_both_sides() {
    let mut request = host_terms(true).request();
    request.host_data_alignment = 31;
    request.maximum_r2t = U32::new(u32::MAX);
    let parameters = ControllerParameters {
        header_digest: true,
        data_digest: false,
        controller_data_alignment: 1,
        maximum_h2c_data: 4097,
    };
    let (response, agreed) = parameters.answer(&request).unwrap();
    assert_eq!(
        agreed,
        Negotiated {
            header_digest: true,
            data_digest: false,
            host_alignment: 128,
            controller_alignment: 8,
            maximum_r2t: u32::MAX,
            maximum_h2c_data: 4096,
        }
    );
    assert_eq!(response.maximum_h2c_data.get(), 4096);
    assert!(response.digests.header() && !response.digests.data());
}

#[test]
fn initialize_responses() {
    let parameters = ControllerParameters {
        header_digest: true,
        data_digest: true,
        controller_data_alignment: 0,
        maximum_h2c_data: 4096,
    };
    let host = |digests| {
        host::Session::new(host::Config {
            parameters: host_terms(digests),
            ..host::Config::default()
        })
    };
    let good = parameters.answer(&host_terms(false).request()).unwrap().0;
    assert_eq!(drive_host(&mut host(false), good.bytes()), Ok(Some("ready")));
    let mut version = good;
    version.format_version = U16::new(7);
    let mut alignment = good;
    alignment.controller_data_alignment = 40;
    let mut small = good;
    small.maximum_h2c_data = U32::new(4092);
    let mut odd = good;
    odd.maximum_h2c_data = U32::new(4098);
    for (name, digests, response, expected) in [
        ("PFV", false, version, (Fes::UNSUPPORTED_PARAMETER, 8)),
        ("CPDA", false, alignment, (Fes::INVALID_HEADER_FIELD, 10)),
        ("digests declined", true, good, (Fes::INVALID_HEADER_FIELD, 11)),
        ("MAXH2CDATA too small", false, small, (Fes::INVALID_HEADER_FIELD, 12)),
        ("MAXH2CDATA odd", false, odd, (Fes::INVALID_HEADER_FIELD, 12)),
    ] {
        let result = drive_host(&mut host(digests), response.bytes());
        assert_eq!(fault_of(result), expected, "{name}");
    }
    let mut early = Vec::new();
    encoder(&PLAIN).put_response(&Completion::new(0, Status::SUCCESS), &mut early);
    assert_eq!(fault_of(drive_host(&mut host(false), &early)), (Fes::SEQUENCE_ERROR, 0));
    let mut session = host(false);
    drive_host(&mut session, good.bytes()).unwrap();
    assert_eq!(fault_of(drive_host(&mut session, good.bytes())), (Fes::SEQUENCE_ERROR, 0));
}

fn data_pdu(kind: Kind, pdu: &DataPdu) -> Vec<u8> {
    let mut bytes = Vec::new();
    encoder(&PLAIN).put_data(kind, pdu, &mut bytes);
    bytes.resize(bytes.len() + pdu.length as usize, 0);
    bytes
}

#[test]
fn h2c_data() {
    let good = DataPdu {
        command_id: 5,
        transfer_tag: 0,
        offset: 0,
        length: 100,
        last: false,
        success: false,
    };
    let waiting = || {
        let mut session = target_session(false);
        drive(&mut session, &capsule(0)).unwrap();
        session.request_data(0, 6000, &mut Vec::new());
        session
    };
    let invalid = Fes::INVALID_HEADER_FIELD;
    let range = Fes::DATA_TRANSFER_OUT_OF_RANGE;
    for (name, pdu, expected) in [
        ("no such slot", DataPdu { transfer_tag: 77, ..good }, (invalid, 10)),
        ("slot without a command", DataPdu { transfer_tag: 1, ..good }, (invalid, 10)),
        ("no such R2T", DataPdu { transfer_tag: 1 << 12, ..good }, (invalid, 10)),
        ("R2T that cannot be", DataPdu { transfer_tag: 15 << 12, ..good }, (invalid, 10)),
        ("CCCID", DataPdu { command_id: 6, ..good }, (invalid, 8)),
        ("MAXH2CDATA", DataPdu { length: 4097, ..good }, (Fes::LIMIT_EXCEEDED, 0)),
        ("a gap", DataPdu { offset: 4, ..good }, (range, 0)),
        ("beyond", DataPdu { offset: 6000, ..good }, (range, 0)),
        ("overflow", DataPdu { offset: u32::MAX, ..good }, (range, 0)),
        ("early LAST_PDU", DataPdu { last: true, ..good }, (invalid, 1)),
    ] {
        let result = drive(&mut waiting(), &data_pdu(Kind::H2CData, &pdu));
        assert_eq!(fault_of(result), expected, "{name}");
    }
    let mut session = waiting();
    let first = DataPdu { length: 4096, ..good };
    assert_eq!(drive(&mut session, &data_pdu(Kind::H2CData, &first)), Ok(Some("data")));
    let rest = DataPdu { offset: 4096, length: 1904, last: true, ..good };
    for (name, pdu, expected) in [
        ("twice", first, (range, 0)),
        ("too long", DataPdu { length: 1905, ..rest }, (range, 0)),
        ("no LAST_PDU", DataPdu { last: false, ..rest }, (invalid, 1)),
    ] {
        let mut session = waiting();
        drive(&mut session, &data_pdu(Kind::H2CData, &first)).unwrap();
        let result = drive(&mut session, &data_pdu(Kind::H2CData, &pdu));
        assert_eq!(fault_of(result), expected, "{name}");
    }
    assert_eq!(drive(&mut session, &data_pdu(Kind::H2CData, &rest)), Ok(Some("transfer")));
    let result = drive(&mut session, &data_pdu(Kind::H2CData, &first));
    assert_eq!(fault_of(result), (invalid, 10), "after the end");

    let mut wrong = data_pdu(Kind::H2CData, &first);
    tcp::Data::view_mut(&mut wrong).unwrap().length = U32::new(4095);
    assert_eq!(fault_of(drive(&mut waiting(), &wrong)), (invalid, 16), "DATAL");
    let empty = edited(data_pdu(Kind::H2CData, &first), |c| c.pdu_length = U32::new(24));
    assert_eq!(fault_of(drive(&mut waiting(), &empty)), (invalid, 4), "no data");
}

#[test]
fn commands_beyond_what_is_allowed() {
    let mut session = target_session(false);
    drive(&mut session, &capsule(0)).unwrap();
    let result = drive(&mut session, &capsule(0));
    assert_eq!(fault_of(result), (Fes::INVALID_HEADER_FIELD, 10), "identifier in flight");

    // On the admin queue the controller decides.
    let mut session = session_of_queue(0, false);
    drive(&mut session, &capsule(0)).unwrap();
    assert_eq!(drive(&mut session, &capsule(0)), Ok(Some("command")));
    assert_eq!(session.in_flight(), 2);

    let mut session = target_session(false);
    for command_id in 0..4 {
        let mut bytes = Vec::new();
        let command = Command::new(1).with_command_id(command_id);
        encoder(&PLAIN).put_command(&command, 0, &mut bytes);
        assert_eq!(drive(&mut session, &bytes), Ok(Some("command")));
    }
    assert_eq!(session.in_flight(), 4);
    assert_eq!(fault_of(drive(&mut session, &capsule(0))), (Fes::SEQUENCE_ERROR, 0), "depth");
}

/// A host session behind its handshake, with a read of 1000 bytes (slot 0), a write of 10,000
/// (slot 1) and a command without data (slot 2) in flight.
fn host_session() -> host::Session {
    let config = host::Config { parameters: host_terms(false), depth: 4, in_capsule_bytes: 512 };
    let mut session = host::Session::new(config);
    let parameters = target_config().parameters;
    let response = parameters.answer(&host_terms(false).request()).unwrap().0;
    drive_host(&mut session, response.bytes()).unwrap();
    let mut sink = Vec::new();
    let command = Command::new(2);
    session.submit(command, host::Data::FromController(1000), &mut sink).unwrap();
    let write = session.submit(command, host::Data::ToController(10_000), &mut sink).unwrap();
    assert!(!write.in_capsule);
    session.submit(command, host::Data::None, &mut sink).unwrap();
    session
}

#[test]
fn c2h_data() {
    let id = |slot| host_session().command_id(slot).unwrap();
    let good = DataPdu {
        command_id: id(0),
        transfer_tag: 0,
        offset: 0,
        length: 400,
        last: false,
        success: false,
    };
    let invalid = Fes::INVALID_HEADER_FIELD;
    let range = Fes::DATA_TRANSFER_OUT_OF_RANGE;
    for (name, pdu, expected) in [
        ("no such slot", DataPdu { command_id: 100, ..good }, (invalid, 8)),
        ("no such command", DataPdu { command_id: 3, ..good }, (invalid, 8)),
        ("another generation", DataPdu { command_id: id(0) + 0x1000, ..good }, (invalid, 8)),
        ("a write", DataPdu { command_id: id(1), ..good }, (range, 0)),
        ("no data", DataPdu { command_id: id(2), ..good }, (range, 0)),
        ("a gap", DataPdu { offset: 4, ..good }, (range, 0)),
        ("too long", DataPdu { length: 1001, ..good }, (range, 0)),
        ("SUCCESS without LAST_PDU", DataPdu { success: true, ..good }, (invalid, 1)),
    ] {
        let result = drive_host(&mut host_session(), &data_pdu(Kind::C2HData, &pdu));
        assert_eq!(fault_of(result), expected, "{name}");
    }
    let mut session = host_session();
    assert_eq!(drive_host(&mut session, &data_pdu(Kind::C2HData, &good)), Ok(Some("data")));
    let result = drive_host(&mut session, &data_pdu(Kind::C2HData, &good));
    assert_eq!(fault_of(result), (range, 0), "twice");

    let mut session = host_session();
    let last = DataPdu { last: true, ..good };
    assert_eq!(drive_host(&mut session, &data_pdu(Kind::C2HData, &last)), Ok(Some("data")));
    let more = DataPdu { offset: 400, ..good };
    let result = drive_host(&mut session, &data_pdu(Kind::C2HData, &more));
    assert_eq!(fault_of(result), (Fes::SEQUENCE_ERROR, 0), "after the last");
}

#[test]
fn completions() {
    let response = |command_id| {
        let mut bytes = Vec::new();
        encoder(&PLAIN).put_response(&Completion::new(command_id, Status::SUCCESS), &mut bytes);
        bytes
    };
    let mut session = host_session();
    let id = session.command_id(2).unwrap();
    assert_eq!(drive_host(&mut session, &response(id)), Ok(Some("completed")));
    let twice = fault_of(drive_host(&mut session, &response(id)));
    assert_eq!(twice, (Fes::INVALID_HEADER_FIELD, 20));
    for unknown in [3, 4, 100, 0xffff] {
        let result = drive_host(&mut host_session(), &response(unknown));
        assert_eq!(fault_of(result), (Fes::INVALID_HEADER_FIELD, 20), "{unknown}");
    }
}

#[test]
fn ready_to_transfer() {
    let request = |command_id, offset, length| {
        let mut bytes = Vec::new();
        let pdu = DataPdu { command_id, transfer_tag: 9, offset, length, ..DataPdu::default() };
        encoder(&PLAIN).put_ready_to_transfer(&pdu, &mut bytes);
        bytes
    };
    let id = |slot| host_session().command_id(slot).unwrap();
    let range = Fes::DATA_TRANSFER_OUT_OF_RANGE;
    for (name, bytes, expected) in [
        ("no such command", request(77, 0, 10), (Fes::INVALID_HEADER_FIELD, 8)),
        ("a read", request(id(0), 0, 10), (range, 0)),
        ("no data", request(id(2), 0, 10), (range, 0)),
        ("nothing", request(id(1), 0, 0), (Fes::INVALID_HEADER_FIELD, 16)),
        ("a gap", request(id(1), 4, 10), (range, 0)),
        ("too long", request(id(1), 0, 10_001), (range, 0)),
        ("overflow", request(id(1), 0, u32::MAX), (range, 0)),
    ] {
        assert_eq!(fault_of(drive_host(&mut host_session(), &bytes)), expected, "{name}");
    }
    let mut session = host_session();
    drive_host(&mut session, &request(id(1), 0, 4000)).unwrap();
    let second = fault_of(drive_host(&mut session, &request(id(1), 4000, 6000)));
    assert_eq!(second, (Fes::LIMIT_EXCEEDED, 0), "MAXR2T is one");

    let mut session = host_session();
    drive_host(&mut session, &request(id(1), 0, 4000)).unwrap();
    assert_eq!(session.poll_transfer().map(|transfer| transfer.length), Some(4000));
    drive_host(&mut session, &request(id(1), 4000, 6000)).unwrap();
    let twice = fault_of(drive_host(&mut session, &request(id(1), 4000, 6000)));
    assert_eq!(twice.0, Fes::LIMIT_EXCEEDED);
}

#[test]
fn an_in_capsule_write_is_not_asked_for() {
    let mut session = host_session();
    let command = Command::new(1);
    let submitted = session.submit(command, host::Data::ToController(512), &mut Vec::new());
    let slot = submitted.filter(|submitted| submitted.in_capsule).unwrap().slot;
    let id = session.command_id(slot).unwrap();
    let mut bytes = Vec::new();
    let pdu = DataPdu { command_id: id, transfer_tag: 9, length: 512, ..DataPdu::default() };
    encoder(&PLAIN).put_ready_to_transfer(&pdu, &mut bytes);
    let result = fault_of(drive_host(&mut session, &bytes));
    assert_eq!(result, (Fes::DATA_TRANSFER_OUT_OF_RANGE, 0));
}

#[test]
fn terminations_carry_the_header_that_was_wrong() {
    let bad = edited(capsule(0), |c| c.pdu_length = U32::new(71));
    let mut session = target_session(false);
    let error = drive(&mut session, &bad).unwrap_err();
    let mut sent = Vec::new();
    session.terminate(&error, &mut sent);
    let request = TerminateRequest::read(&sent).unwrap();
    assert_eq!(request.common.pdu_type, PduType::C2H_TERMINATE_REQUEST);
    assert_eq!(request.common.pdu_length.get() as usize, sent.len());
    assert_eq!(
        (request.status(), request.fatal_error_information.get()),
        (Fes::INVALID_HEADER_FIELD, 4)
    );
    // All that had come of it was the common header.
    assert_eq!(sent[24..], bad[..8]);

    let mut session = target_session(false);
    drive(&mut session, &capsule(0)).unwrap();
    let error = drive(&mut session, &capsule(0)).unwrap_err();
    let mut sent = Vec::new();
    session.terminate(&error, &mut sent);
    assert_eq!(sent[24..], capsule(0), "the whole header");

    // The other side understands it, and both are silent from then on.
    let mut host = host_session();
    assert_eq!(drive_host(&mut host, &sent), Ok(Some("terminated")));
    assert_eq!(drive_host(&mut host, &sent), Ok(None));
    assert!(host.submit(Command::new(1), host::Data::None, &mut Vec::new()).is_none());
    let mut sent = Vec::new();
    host.terminate(&error, &mut sent);
    assert_eq!(drive(&mut target_session(false), &sent), Ok(Some("terminated")));
}
