//! Harnesses that drive framing and sessions from arbitrary bytes.
//!
//! Each takes one input, must not panic, and holds what it sees against a model of its own. The
//! property tests call them with random bytes, the fuzzers with bytes that grow by coverage.

use std::collections::BTreeMap;

use weft_nvme::command::Flags;
use weft_nvme::sgl::Descriptor;
use weft_nvme::tcp::{Direction, InitializeConnectionRequest, InitializeConnectionResponse, Kind};
use weft_nvme::{Command, Completion, Status, Wire};

use super::encode::{DataPdu, Encoder, Sink};
use super::framing::{Framing, Header, Parameters, Progress};
use super::handshake::{ControllerParameters, HostParameters, Negotiated};
use super::{FatalError, digest, host, target};

/// The input, taken from the front; zeros when it has run out.
#[derive(Debug)]
struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> u8 {
        let [byte, rest @ ..] = self.0 else { return 0 };
        self.0 = rest;
        *byte
    }

    fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(length.min(self.0.len()));
        self.0 = tail;
        head
    }

    /// One of `items`, if there are any.
    fn pick<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        let index = usize::from(self.byte()).checked_rem(items.len())?;
        items.get(index).copied()
    }
}

/// What a stream said, with neighbouring pieces of data put together.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Output {
    Header(Header),
    Data(Vec<u8>),
    End(bool),
    FatalError(FatalError),
}

pub(super) fn outputs_of(framing: &mut Framing, pieces: &[&[u8]]) -> Vec<Output> {
    let mut said = Vec::new();
    for piece in pieces {
        let mut input = *piece;
        loop {
            match framing.next(&mut input) {
                Ok(Progress::Starved) => break,
                Ok(Progress::Header(header)) => said.push(Output::Header(header)),
                Ok(Progress::Data { offset, piece }) => hear(&mut said, offset, piece),
                Ok(Progress::End { intact }) => said.push(Output::End(intact)),
                Err(error) => {
                    said.push(Output::FatalError(error));
                    return said;
                }
            }
        }
        assert!(input.is_empty(), "starved with input left");
    }
    said
}

fn hear(said: &mut Vec<Output>, offset: u32, piece: &[u8]) {
    assert!(!piece.is_empty());
    match said.last_mut() {
        Some(Output::Data(data)) => {
            assert_eq!(data.len(), offset as usize, "a gap in the data");
            data.extend_from_slice(piece);
        }
        _ => {
            assert_eq!(offset, 0);
            said.push(Output::Data(piece.to_vec()));
        }
    }
}

/// What a stream means does not depend on how it is cut.
pub fn framing(input: &[u8]) {
    let mut source = Source(input);
    let direction = [Direction::HostToController, Direction::ControllerToHost];
    let direction = source.pick(&direction).unwrap_or(Direction::HostToController);
    let parameters = Parameters {
        header_digest: source.flag(),
        data_digest: source.flag(),
        alignment: (usize::from(source.byte() % 32) + 1) * 4,
    };
    let cuts: Vec<usize> = (0..8).map(|_| usize::from(source.byte())).collect();
    let stream = source.0;
    let parser = || {
        let mut framing = Framing::new(direction);
        framing.set_parameters(parameters);
        framing
    };
    let whole = outputs_of(&mut parser(), &[stream]);
    let mut pieces = Vec::new();
    let mut rest = stream;
    for cut in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (head, tail) = rest.split_at((cut % 37 + 1).min(rest.len()));
        pieces.push(head);
        rest = tail;
    }
    assert_eq!(outputs_of(&mut parser(), &pieces), whole);
}

/// The framing of the side that reads what a session sends: it must never find a fault.
#[derive(Debug)]
struct Reader {
    framing: Framing,
    sent: Vec<u8>,
    headers: Vec<Header>,
}

impl Sink for Reader {
    fn put(&mut self, bytes: &[u8]) {
        self.sent.put(bytes);
    }
}

impl Reader {
    fn new(direction: Direction) -> Self {
        Self { framing: Framing::new(direction), sent: Vec::new(), headers: Vec::new() }
    }

    /// Reads all that was sent; the headers are kept.
    fn read(&mut self) {
        let sent = std::mem::take(&mut self.sent);
        for said in outputs_of(&mut self.framing, &[&sent]) {
            match said {
                Output::Header(header) => self.headers.push(header),
                Output::Data(_) => {}
                Output::End(intact) => assert!(intact, "a wrong digest was sent"),
                Output::FatalError(error) => panic!("a malformed PDU was sent: {error}"),
            }
        }
    }
}

/// What the model of a controller knows of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotModel {
    Capsule { left: u32 },
    Owned,
    Receiving { length: u32, abandoned: bool },
}

struct TargetModel {
    session: target::Session,
    reader: Reader,
    encoder: Encoder,
    negotiated: Option<Negotiated>,
    slots: BTreeMap<u16, SlotModel>,
    ended: bool,
}

/// A controller's session under a host that does what it likes.
pub fn target_session(input: &[u8]) {
    let mut source = Source(input);
    let parameters = ControllerParameters {
        header_digest: source.flag(),
        data_digest: source.flag(),
        controller_data_alignment: source.byte() % 32,
        maximum_h2c_data: 4096,
    };
    let config =
        target::Config { parameters, in_capsule_bytes: 8192, r2t_bytes: 3000, c2h_data_bytes: 512 };
    let mut model = TargetModel {
        session: target::Session::new(config),
        reader: Reader::new(Direction::ControllerToHost),
        encoder: Encoder::new(false, false, 4),
        negotiated: None,
        slots: BTreeMap::new(),
        ended: false,
    };
    while !source.is_empty() {
        match source.byte() % 8 {
            0 => model.feed(source.bytes(40)),
            1 | 2 => model.feed_command(&mut source),
            3 | 4 => model.feed_data(&mut source),
            5 => model.act(&mut source),
            6 => model.feed_request(&mut source),
            _ => {
                let queue_id = source.word() % 2;
                model.session.set_queue(queue_id, source.word() % 64, source.flag());
            }
        }
        model.reader.read();
        if !model.ended {
            assert_eq!(model.session.in_flight(), model.slots.len());
        }
    }
}

impl TargetModel {
    fn feed_request(&mut self, source: &mut Source<'_>) {
        let parameters = HostParameters {
            header_digest: source.flag(),
            data_digest: source.flag(),
            host_data_alignment: source.byte() % 32,
            maximum_r2t: u32::from(source.byte() % 6),
        };
        let request: InitializeConnectionRequest = parameters.request();
        self.feed(request.bytes());
    }

    fn feed_command(&mut self, source: &mut Source<'_>) {
        let length = u32::from(source.word() % 300) * u32::from(source.byte() % 2);
        let mut command = Command::new(1).with_command_id(source.word() % 70);
        command.flags = Flags::SGL;
        command.data_pointer = Descriptor::in_capsule(0, length);
        let mut pdu = Vec::new();
        self.encoder.put_command(&command, length, &mut pdu);
        self.append_data(length, source, &mut pdu);
        self.feed(&pdu);
    }

    /// H2CData for an R2T that was sent, sometimes not quite.
    fn feed_data(&mut self, source: &mut Source<'_>) {
        let requests: Vec<(u16, u16, u32, u32)> = self
            .reader
            .headers
            .iter()
            .filter_map(|header| match header {
                Header::ReadyToTransfer(DataPdu {
                    command_id,
                    transfer_tag,
                    offset,
                    length,
                    ..
                }) => Some((*command_id, *transfer_tag, *offset, *length)),
                _ => None,
            })
            .collect();
        let Some((command_id, transfer_tag, offset, length)) = source.pick(&requests) else {
            return;
        };
        let spoil = source.byte();
        let pdu = DataPdu {
            command_id: command_id ^ u16::from(spoil == 1),
            transfer_tag: transfer_tag ^ u16::from(spoil == 2) << 12,
            offset: offset.wrapping_add(u32::from(spoil == 3)),
            length: length - u32::from(spoil == 4),
            last: spoil != 5,
            success: false,
        };
        let mut bytes = Vec::new();
        self.encoder.put_data(Kind::H2CData, &pdu, &mut bytes);
        self.append_data(pdu.length, source, &mut bytes);
        self.feed(&bytes);
    }

    /// Data and its digest, which is wrong now and then.
    fn append_data(&self, length: u32, source: &mut Source<'_>, pdu: &mut Vec<u8>) {
        let data = vec![source.byte(); length as usize];
        pdu.extend_from_slice(&data);
        if let (1.., Some([a, rest @ ..])) = (length, self.encoder.data_digest(&data)) {
            pdu.push(a ^ u8::from(source.byte() == 7));
            pdu.extend_from_slice(&rest);
        }
    }

    /// The owner of a slot does something with it.
    fn act(&mut self, source: &mut Source<'_>) {
        let slots: Vec<(u16, SlotModel)> =
            self.slots.iter().map(|(slot, state)| (*slot, *state)).collect();
        let Some((slot, state)) = source.pick(&slots).filter(|_| !self.ended) else { return };
        match (state, source.byte() % 3) {
            (SlotModel::Owned, 0) => {
                let length = u32::from(source.word()) + 1;
                self.slots.insert(slot, SlotModel::Receiving { length, abandoned: false });
                self.session.request_data(slot, length, &mut self.reader);
            }
            (SlotModel::Owned, 1) => {
                let pdu = DataPdu { length: 4, last: true, ..DataPdu::default() };
                self.session.put_data(slot, pdu, &mut self.reader);
                self.reader.put(b"data");
                if let Some(digest) = self.session.data_digest(b"data") {
                    self.reader.put(&digest);
                }
                self.respond(slot);
            }
            (SlotModel::Owned, _) => self.respond(slot),
            (SlotModel::Receiving { length, .. }, _) => {
                assert!(self.session.abandon(slot));
                self.slots.insert(slot, SlotModel::Receiving { length, abandoned: true });
            }
            (SlotModel::Capsule { .. }, _) => {}
        }
    }

    fn respond(&mut self, slot: u16) {
        let completion = Completion::new(slot, Status::SUCCESS);
        self.session.put_response(&completion, &mut self.reader);
        self.session.release(slot);
        self.slots.remove(&slot);
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        loop {
            match self.session.handle_input(&mut bytes, &mut self.reader) {
                Ok(target::SessionEvent::Starved) => break,
                Ok(received) => self.check(&received),
                Err(error) => {
                    self.session.terminate(&error, &mut self.reader);
                    self.ended = true;
                }
            }
        }
        assert!(bytes.is_empty());
    }

    fn check(&mut self, received: &target::SessionEvent<'_>) {
        assert!(!self.ended, "something came after the end");
        match *received {
            target::SessionEvent::Starved => {}
            target::SessionEvent::Initialized(negotiated) => self.initialize(&negotiated),
            target::SessionEvent::Command { slot, data_length, .. } => {
                let state = match data_length {
                    0 => SlotModel::Owned,
                    left => SlotModel::Capsule { left },
                };
                assert_eq!(self.slots.insert(slot, state), None, "the slot was taken");
            }
            target::SessionEvent::Data { slot, offset, piece } => {
                let length = u32::try_from(piece.len()).expect("short");
                match self.slots.get_mut(&slot).expect("a slot in flight") {
                    SlotModel::Capsule { left } => *left -= length,
                    SlotModel::Receiving { length: asked, .. } => {
                        assert!(offset + length <= *asked, "data out of range");
                    }
                    SlotModel::Owned => panic!("data for a command that awaits none"),
                }
            }
            target::SessionEvent::CapsuleEnd { slot, .. } => {
                let state = self.slots.insert(slot, SlotModel::Owned);
                assert_eq!(state, Some(SlotModel::Capsule { left: 0 }));
            }
            target::SessionEvent::TransferEnd { slot, .. } => {
                let state = self.slots.insert(slot, SlotModel::Owned);
                assert!(matches!(state, Some(SlotModel::Receiving { .. })));
                if let Some(SlotModel::Receiving { abandoned: true, .. }) = state {
                    self.respond(slot);
                }
            }
            target::SessionEvent::Terminated { .. } => self.ended = true,
        }
    }

    fn initialize(&mut self, negotiated: &Negotiated) {
        assert_eq!(self.negotiated.replace(*negotiated), None);
        self.reader.read();
        self.reader.framing.set_parameters(Parameters {
            header_digest: negotiated.header_digest,
            data_digest: negotiated.data_digest,
            alignment: negotiated.host_alignment,
        });
        self.encoder = Encoder::new(
            negotiated.header_digest,
            negotiated.data_digest,
            negotiated.controller_alignment,
        );
    }
}

struct HostModel {
    session: host::Session,
    reader: Reader,
    encoder: Encoder,
    /// By slot: the command identifier, and the data that it reads and has got.
    commands: BTreeMap<u16, (u16, host::Data, u32)>,
    ended: bool,
}

/// A host's session under a controller that does what it likes.
pub fn host_session(input: &[u8]) {
    let mut source = Source(input);
    let parameters = HostParameters {
        header_digest: source.flag(),
        data_digest: source.flag(),
        host_data_alignment: source.byte() % 32,
        maximum_r2t: u32::from(source.byte() % 3),
    };
    let config = host::Config { parameters, depth: 8, in_capsule_bytes: 512 };
    let mut model = HostModel {
        session: host::Session::new(config),
        reader: Reader::new(Direction::HostToController),
        encoder: Encoder::new(false, false, 4),
        commands: BTreeMap::new(),
        ended: false,
    };
    model.session.start(&mut model.reader);
    model.reader.read();
    let alignment = source.byte() % 33;
    let digests = parameters.request().digests;
    let response: InitializeConnectionResponse =
        InitializeConnectionResponse::new(alignment, digests, 4096 + u32::from(source.byte()) * 4);
    model.feed(response.bytes());
    while !source.is_empty() {
        match source.byte() % 8 {
            0 => model.feed(source.bytes(40)),
            1 | 2 => model.submit(&mut source),
            3 | 4 => model.feed_data(&mut source),
            5 => model.feed_completion(&mut source),
            6 => model.feed_ready_to_transfer(&mut source),
            _ => model.transfer(),
        }
        model.reader.read();
        if !model.ended {
            assert_eq!(model.session.in_flight(), model.commands.len());
        }
    }
}

impl HostModel {
    fn submit(&mut self, source: &mut Source<'_>) {
        let length = u32::from(source.word()) + 1;
        let data = match source.byte() % 3 {
            0 => host::Data::None,
            1 => host::Data::ToController(length),
            _ => host::Data::FromController(length),
        };
        let Some(submitted) = self.session.submit(Command::new(1), data, &mut self.reader) else {
            return;
        };
        if submitted.in_capsule {
            self.put_payload(length);
        }
        let id = self.session.command_id(submitted.slot).expect("just submitted");
        assert!(self.commands.insert(submitted.slot, (id, data, 0)).is_none());
    }

    fn put_payload(&mut self, length: u32) {
        let payload = vec![0x5a; length as usize];
        self.reader.put(&payload);
        if let Some(digest) = self.session.data_digest(&payload) {
            self.reader.put(&digest);
        }
    }

    fn transfer(&mut self) {
        while let Some(transfer) = self.session.poll_transfer() {
            let mut done = 0;
            while done < transfer.length {
                let length = (transfer.length - done).min(self.session.h2c_data_bytes());
                self.session.put_data(&transfer, done, length, &mut self.reader);
                self.put_payload(length);
                done += length;
            }
        }
    }

    /// The command identifier and data of a command in flight, sometimes not quite.
    fn pick(&mut self, source: &mut Source<'_>) -> Option<(u16, host::Data, u32)> {
        let commands: Vec<_> = self.commands.values().copied().collect();
        let (id, data, done) = source.pick(&commands)?;
        Some((id ^ u16::from(source.byte() == 1) << 13, data, done))
    }

    fn feed_data(&mut self, source: &mut Source<'_>) {
        let Some((command_id, data, done)) = self.pick(source) else { return };
        let left = match data {
            host::Data::FromController(length) => length - done,
            _ => 10,
        };
        let most = u32::from(source.word()) + 1;
        let spoil = source.byte();
        let length = left.min(most) + u32::from(spoil == 1);
        let pdu = DataPdu {
            command_id,
            transfer_tag: 0,
            offset: done + u32::from(spoil == 2),
            length,
            last: source.flag(),
            success: source.byte().is_multiple_of(4),
        };
        let mut bytes = Vec::new();
        self.encoder.put_data(Kind::C2HData, &pdu, &mut bytes);
        if length > 0 {
            let payload = vec![source.byte(); length as usize];
            bytes.extend_from_slice(&payload);
            if self.encoder.data_digest(&[]).is_some() {
                bytes.extend_from_slice(&digest::of(&payload));
            }
        }
        self.feed(&bytes);
    }

    fn feed_completion(&mut self, source: &mut Source<'_>) {
        let Some((command_id, ..)) = self.pick(source) else { return };
        let mut bytes = Vec::new();
        self.encoder.put_response(&Completion::new(command_id, Status::SUCCESS), &mut bytes);
        self.feed(&bytes);
    }

    fn feed_ready_to_transfer(&mut self, source: &mut Source<'_>) {
        let Some((command_id, ..)) = self.pick(source) else { return };
        let (offset, length) = (u32::from(source.word()), u32::from(source.word()));
        let offset = offset * u32::from(source.flag());
        let mut bytes = Vec::new();
        let pdu = DataPdu { command_id, transfer_tag: 9, offset, length, ..DataPdu::default() };
        self.encoder.put_ready_to_transfer(&pdu, &mut bytes);
        self.feed(&bytes);
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        loop {
            match self.session.handle_input(&mut bytes) {
                Ok(host::SessionEvent::Starved) => break,
                Ok(received) => self.check(&received),
                Err(error) => {
                    self.session.terminate(&error, &mut self.reader);
                    self.ended = true;
                }
            }
        }
        assert!(bytes.is_empty());
    }

    fn check(&mut self, received: &host::SessionEvent<'_>) {
        assert!(!self.ended, "something came after the end");
        match *received {
            host::SessionEvent::Starved => {}
            host::SessionEvent::Ready(negotiated) => {
                self.reader.framing.set_parameters(Parameters {
                    header_digest: negotiated.header_digest,
                    data_digest: negotiated.data_digest,
                    alignment: negotiated.controller_alignment,
                });
                self.encoder = Encoder::new(
                    negotiated.header_digest,
                    negotiated.data_digest,
                    negotiated.host_alignment,
                );
            }
            host::SessionEvent::Data { slot, offset, piece } => {
                let (_, data, done) = self.commands.get_mut(&slot).expect("a slot in flight");
                assert_eq!(offset, *done, "data twice or with a gap");
                *done += u32::try_from(piece.len()).expect("short");
                assert!(matches!(data, host::Data::FromController(length) if *done <= *length));
            }
            host::SessionEvent::Completed { slot, completion, received, .. } => {
                let (id, _, done) = self.commands.remove(&slot).expect("a slot in flight");
                assert_eq!((completion.command_id.get(), received), (id, done));
            }
            host::SessionEvent::Terminated { .. } => self.ended = true,
        }
    }
}
