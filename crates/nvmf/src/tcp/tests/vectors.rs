//! PDUs as bytes: what is written, and what is read, whole and cut at every byte.
//!
//! Digests were computed with the bitwise definition of CRC32C (reflected polynomial 82F63B78h),
//! which stands here as well.

use super::*;
use crate::tcp::framing::{Framing, Header, Parameters, Progress};
use weft_nvme::tcp::Direction;

/// CRC32C, bit by bit.
fn crc32c(bytes: &[u8]) -> [u8; 4] {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    (!crc).to_le_bytes()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|character| character.to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn command() -> Command {
    let mut command = Command::new(2).with_command_id(0x0102).with_namespace_id(1);
    command.flags = Flags::SGL;
    command.data_pointer = Descriptor::in_capsule(0, 6);
    command
}

const COMMAND: &str = "02400201 01000000 0000000000000000 0000000000000000
    0000000000000000 06000000 00000001 00000000 00000000 00000000 00000000 00000000 00000000";

struct Vector {
    name: &'static str,
    direction: Direction,
    parameters: Parameters,
    bytes: Vec<u8>,
    header: Header,
    /// What of the header stays with the parser.
    layout: Vec<u8>,
    data: &'static [u8],
}

fn vectors() -> Vec<Vector> {
    let plain = Parameters { header_digest: false, data_digest: false, alignment: 4 };
    let digests = Parameters { header_digest: true, data_digest: true, alignment: 4 };
    let padded = Parameters { header_digest: true, data_digest: true, alignment: 64 };
    let h2c = Direction::HostToController;
    let c2h = Direction::ControllerToHost;
    let mut vectors = Vec::new();
    let mut add = |name, direction, parameters, bytes, header: Header, layout: &[u8], data| {
        let layout = layout.to_vec();
        vectors.push(Vector { name, direction, parameters, bytes, header, layout, data });
    };

    let mut bytes = hex("00 00 80 00 80000000 0000 03 01 07000000");
    bytes.resize(128, 0);
    let parameters = HostParameters {
        header_digest: true,
        data_digest: false,
        host_data_alignment: 3,
        maximum_r2t: 8,
    };
    add("ICReq", h2c, plain, bytes, Header::Request, parameters.request().bytes(), b"");

    let mut bytes = hex("01 00 80 00 80000000 0000 1f 02 00100000");
    bytes.resize(128, 0);
    let digests_of = tcp::DigestOptions(0).with_data(true);
    let response = tcp::InitializeConnectionResponse::new(31, digests_of, 4096);
    add("ICResp", c2h, plain, bytes, Header::Response, response.bytes(), b"");

    let bytes = [hex("04 00 48 48 4e000000"), hex(COMMAND), b"abcdef".to_vec()].concat();
    let header = Header::Command { data_length: 6 };
    add("CapsuleCmd with data", h2c, plain, bytes, header, command().bytes(), b"abcdef");

    let header_bytes = [hex("04 01 48 00 4c000000"), hex(COMMAND)].concat();
    let bytes = [&header_bytes[..], &crc32c(&header_bytes)].concat();
    let header = Header::Command { data_length: 0 };
    add(
        "CapsuleCmd with a header digest, without data",
        h2c,
        digests,
        bytes,
        header,
        command().bytes(),
        b"",
    );

    // 72 + 4, padded to 128, 6 of data, 4: 138.
    let header_bytes = [hex("04 03 48 80 8a000000"), hex(COMMAND)].concat();
    let bytes =
        [&header_bytes[..], &crc32c(&header_bytes), &[0; 52], b"abcdef", &crc32c(b"abcdef")]
            .concat();
    let header = Header::Command { data_length: 6 };
    add(
        "CapsuleCmd with digests and padding",
        h2c,
        padded,
        bytes,
        header,
        command().bytes(),
        b"abcdef",
    );

    let bytes = hex("05 00 18 00 18000000 0700000000000000 0300 0000 0201 0c00");
    let completion =
        Completion::new(0x0102, Status(0x006)).with_dword0(7).with_submission_queue_head(3);
    add("CapsuleResp", c2h, plain, bytes, Header::Completion(completion), b"", b"");

    let bytes = hex("09 00 18 00 18000000 0201 0300 00100000 00200000 00000000");
    let header = Header::ReadyToTransfer(DataPdu {
        command_id: 0x0102,
        transfer_tag: 3,
        offset: 0x1000,
        length: 0x2000,
        ..DataPdu::default()
    });
    add("R2T", c2h, plain, bytes, header, b"", b"");

    let header_bytes = hex("06 07 18 1c 24000000 0201 0300 00100000 04000000 00000000");
    let bytes = [&header_bytes[..], &crc32c(&header_bytes), b"wxyz", &crc32c(b"wxyz")].concat();
    let data = DataPdu {
        command_id: 0x0102,
        transfer_tag: 3,
        offset: 0x1000,
        length: 4,
        last: true,
        success: false,
    };
    add("H2CData with digests", h2c, digests, bytes, Header::Data(data), b"", b"wxyz");

    // 24 + 4, padded to 64, 4 of data, 4: 72.
    let header_bytes = hex("07 0f 18 40 48000000 0201 0000 00100000 04000000 00000000");
    let bytes =
        [&header_bytes[..], &crc32c(&header_bytes), &[0; 36], b"wxyz", &crc32c(b"wxyz")].concat();
    let data = DataPdu { transfer_tag: 0, success: true, ..data };
    add("C2HData with digests and padding", c2h, padded, bytes, Header::Data(data), b"", b"wxyz");

    let bytes = [
        hex("03 00 18 00 20000000 0100 04000000 00000000000000000000"),
        hex("04 00 48 00 ffffffff"),
    ]
    .concat();
    let header = Header::Terminate { status: Fes::INVALID_HEADER_FIELD, information: 4 };
    add("C2HTermReq", c2h, digests, bytes, header, b"", &[4, 0, 0x48, 0, 255, 255, 255, 255]);
    vectors
}

/// What the parser has kept of the header that it has just read.
fn layout(framing: &Framing, header: &Header) -> Vec<u8> {
    let bytes = match header {
        Header::Request => framing.layout().map(tcp::InitializeConnectionRequest::bytes),
        Header::Response => framing.layout().map(tcp::InitializeConnectionResponse::bytes),
        Header::Command { .. } => {
            framing.layout().map(|capsule: &tcp::CapsuleCommand| capsule.command.bytes())
        }
        _ => Ok(&[][..]),
    };
    bytes.expect("it is as long as any").to_vec()
}

/// What a parser says of `pieces`: header, data, and the verdict at the end.
fn read(vector: &Vector, pieces: &[&[u8]]) -> (Option<Header>, Vec<u8>, Option<bool>) {
    let mut framing = Framing::new(vector.direction);
    framing.set_parameters(vector.parameters);
    let (mut header, mut data, mut end) = (None, Vec::new(), None);
    for piece in pieces {
        let mut input = *piece;
        loop {
            match framing.next(&mut input).expect(vector.name) {
                Progress::Starved => break,
                Progress::Header(found) => {
                    assert_eq!(header.replace(found), None);
                    assert_eq!(layout(&framing, &found), vector.layout, "{}", vector.name);
                }
                Progress::Data { offset, piece } => {
                    assert_eq!(offset as usize, data.len());
                    data.extend_from_slice(piece);
                }
                Progress::End { intact } => assert_eq!(end.replace(intact), None),
            }
        }
    }
    (header, data, end)
}

#[test]
fn vectors_are_read_however_they_are_cut() {
    for vector in vectors() {
        let end = (!vector.data.is_empty()).then_some(true);
        let expected = (Some(vector.header), vector.data.to_vec(), end);
        assert_eq!(read(&vector, &[&vector.bytes]), expected, "{}", vector.name);
        for cut in 0..vector.bytes.len() {
            let (head, tail) = vector.bytes.split_at(cut);
            assert_eq!(read(&vector, &[head, tail]), expected, "{} cut at {cut}", vector.name);
            let (header, data, end) = read(&vector, &[head]);
            let complete = header.is_some() && end.is_some() != vector.data.is_empty();
            assert!(!complete, "{} cut at {cut} is not whole", vector.name);
            assert!(vector.data.starts_with(&data));
        }
        let bytes: Vec<&[u8]> = vector.bytes.chunks(1).collect();
        assert_eq!(read(&vector, &bytes), expected, "{} byte by byte", vector.name);
    }
}

/// Only a command that is complete at the start of a PDU is seen by peeking, and it is still
/// read as if nobody had looked.
#[test]
fn peeking_sees_whole_commands_and_takes_nothing() {
    for vector in vectors() {
        let is_command = matches!(vector.header, Header::Command { .. });
        for cut in 0..vector.bytes.len() {
            let mut framing = Framing::new(vector.direction);
            framing.set_parameters(vector.parameters);
            let (mut head, tail) = vector.bytes.split_at(cut);
            let whole = is_command && head.len() >= 72;
            let expected = whole.then(|| command().bytes().to_vec());
            let seen = framing.peek_command(head).map(|command| command.bytes().to_vec());
            assert_eq!(seen, expected, "{} cut at {cut}", vector.name);
            while framing.next(&mut head).expect(vector.name) != Progress::Starved {}
            let (next, command) = (&vector.bytes, command());
            if is_command && cut > 0 {
                assert_eq!(framing.peek_command(next), None, "{} from {cut} on", vector.name);
                assert_eq!(framing.peek_command(tail), None, "{} from {cut} on", vector.name);
            } else if is_command {
                assert_eq!(framing.peek_command(tail), Some(&command), "{}", vector.name);
            }
        }
    }
}

#[test]
fn vectors_are_written() {
    for vector in vectors() {
        let Parameters { header_digest, data_digest, alignment } = vector.parameters;
        let encoder = Encoder::new(header_digest, data_digest, alignment);
        let mut bytes = Vec::new();
        match vector.header {
            Header::Command { data_length } => {
                encoder.put_command(&command(), data_length, &mut bytes);
            }
            Header::Completion(completion) => encoder.put_response(&completion, &mut bytes),
            Header::ReadyToTransfer(pdu) => encoder.put_ready_to_transfer(&pdu, &mut bytes),
            Header::Data(pdu) => {
                let kind = match vector.direction {
                    Direction::HostToController => Kind::H2CData,
                    Direction::ControllerToHost => Kind::C2HData,
                };
                encoder.put_data(kind, &pdu, &mut bytes);
            }
            Header::Terminate { status, information } => {
                let error = FatalError { status, information, detail: "" };
                let kind = Kind::C2HTerminateRequest;
                crate::tcp::encode::put_termination(kind, &error, vector.data, &mut bytes);
                assert_eq!(bytes, vector.bytes, "{}", vector.name);
                continue;
            }
            Header::Request | Header::Response => bytes.extend_from_slice(&vector.layout),
        }
        bytes.extend_from_slice(vector.data);
        if !vector.data.is_empty() {
            bytes.extend_from_slice(&encoder.data_digest(vector.data).unwrap_or_default());
            bytes.truncate(vector.bytes.len());
        }
        assert_eq!(bytes, vector.bytes, "{}", vector.name);
    }
}

#[test]
fn a_flipped_bit_is_found() {
    for vector in vectors() {
        let Parameters { header_digest: true, .. } = vector.parameters else { continue };
        if matches!(vector.header, Header::Terminate { .. }) {
            continue;
        }
        for bit in 0..vector.bytes.len() * 8 {
            let mut bytes = vector.bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let mut framing = Framing::new(vector.direction);
            framing.set_parameters(vector.parameters);
            let (mut input, mut header, mut intact) = (&bytes[..], None, None);
            let error = loop {
                match framing.next(&mut input) {
                    Ok(Progress::Starved) => break None,
                    Ok(Progress::Header(found)) => header = Some(found),
                    Ok(Progress::Data { .. }) => {}
                    Ok(Progress::End { intact: verdict }) => intact = Some(verdict),
                    Err(error) => break Some(error),
                }
            };
            let header_length = usize::from(bytes[2].max(24));
            let in_padding = header == Some(vector.header) && intact == Some(true);
            let starved = header.is_none() && error.is_none();
            // A type of one bit's difference that has no digest; it ends the connection.
            let terminated = matches!(header, Some(Header::Terminate { .. }));
            assert!(
                error.is_some() || intact == Some(false) || in_padding || starved || terminated,
                "{}: bit {bit} went unnoticed",
                vector.name
            );
            if bit / 8 < header_length.min(24) && bit / 8 >= 8 {
                let error = error.expect("a header digest covers it");
                assert_eq!(error.status, Fes::HEADER_DIGEST_ERROR);
            }
        }
    }
}

/// Common headers that were good are remembered: that must not show.
#[test]
fn a_reused_parser_reads_as_a_new_one() {
    let all = vectors();
    for (before, vector) in all.iter().flat_map(|one| all.iter().map(move |other| (one, other))) {
        if before.direction != vector.direction {
            continue;
        }
        let flipped = (0..64).map(|bit: usize| {
            let mut bytes = vector.bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        });
        // What was good before may not be with other parameters.
        for bytes in flipped.chain([vector.bytes.clone(), before.bytes.clone()]) {
            let mut new = Framing::new(vector.direction);
            new.set_parameters(vector.parameters);
            let mut old = Framing::new(vector.direction);
            old.set_parameters(before.parameters);
            let past = fuzzing::outputs_of(&mut old, &[&before.bytes]);
            assert!(!past.iter().any(|said| matches!(said, fuzzing::Output::FatalError(_))));
            if before.parameters != vector.parameters {
                old.set_parameters(vector.parameters);
            }
            let expected = fuzzing::outputs_of(&mut new, &[&bytes]);
            let found = fuzzing::outputs_of(&mut old, &[&bytes]);
            assert_eq!(found, expected, "{bytes:02x?} after {}", before.name);
        }
    }
}

#[test]
fn direct_data_is_digested_like_any_other() {
    let all = vectors();
    let vector = all.iter().find(|vector| vector.name == "H2CData with digests").unwrap();
    for (spoil, expected) in [(0, true), (1, false)] {
        let mut framing = Framing::new(vector.direction);
        framing.set_parameters(vector.parameters);
        // Header and digest, and the first byte of data.
        let mut input = &vector.bytes[..29];
        assert!(matches!(framing.next(&mut input), Ok(Progress::Header(_))));
        assert_eq!(framing.direct(), Some((0, 4)));
        assert!(matches!(framing.next(&mut input), Ok(Progress::Data { offset: 0, .. })));
        assert_eq!(framing.direct(), Some((1, 3)));
        framing.handle_direct(b"x");
        assert_eq!(framing.direct(), Some((2, 2)));
        // What is beyond the PDU's data is ignored.
        framing.handle_direct(&[b'y' + spoil, b'z', b'!']);
        assert_eq!(framing.direct(), None);
        let mut input = &vector.bytes[32..];
        assert_eq!(framing.next(&mut input), Ok(Progress::End { intact: expected }));
        assert_eq!(framing.next(&mut input), Ok(Progress::Starved));
    }
}
