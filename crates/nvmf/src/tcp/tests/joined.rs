//! A target's and a host's session joined in memory, the stream cut at every byte.

use super::*;

/// One side's buffers, by slot.
type Buffers = Vec<Vec<u8>>;

/// Two sessions, and the bytes on their way between them.
struct SessionPair {
    host: host::Session,
    target: target::Session,
    to_target: Vec<u8>,
    to_host: Vec<u8>,
    host_buffers: Buffers,
    target_buffers: Buffers,
    /// What was written, whole.
    written: Vec<Vec<u8>>,
    completed: Vec<(u16, Completion, u32, bool)>,
    commands: Vec<u16>,
    faults: Vec<FatalError>,
}

const READ: u8 = 2;
const WRITE: u8 = 1;
const DEPTH: usize = 8;

#[derive(Debug, Clone, Copy)]
struct Shape {
    digests: bool,
    flow_control: bool,
    host_alignment: u8,
    controller_alignment: u8,
    maximum_r2t: u32,
    maximum_h2c_data: u32,
    r2t_bytes: u32,
    c2h_data_bytes: u32,
}

const SHAPE: Shape = Shape {
    digests: false,
    flow_control: true,
    host_alignment: 0,
    controller_alignment: 0,
    maximum_r2t: 1,
    maximum_h2c_data: 4096,
    r2t_bytes: 1 << 20,
    c2h_data_bytes: 1 << 20,
};

fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + index / 251 + seed * 31) as u8).collect()
}

impl SessionPair {
    fn new(shape: Shape) -> Self {
        let mut pair = Self {
            host: host::Session::new(host::Config {
                parameters: HostParameters {
                    header_digest: shape.digests,
                    data_digest: shape.digests,
                    host_data_alignment: shape.host_alignment,
                    maximum_r2t: shape.maximum_r2t,
                },
                depth: DEPTH as u16,
                in_capsule_bytes: 512,
            }),
            target: target::Session::new(target::Config {
                parameters: ControllerParameters {
                    header_digest: true,
                    data_digest: true,
                    controller_data_alignment: shape.controller_alignment,
                    maximum_h2c_data: shape.maximum_h2c_data,
                },
                in_capsule_bytes: 8192,
                r2t_bytes: shape.r2t_bytes,
                c2h_data_bytes: shape.c2h_data_bytes,
            }),
            to_target: Vec::new(),
            to_host: Vec::new(),
            host_buffers: vec![Vec::new(); DEPTH],
            target_buffers: vec![Vec::new(); DEPTH],
            written: Vec::new(),
            completed: Vec::new(),
            commands: vec![0; DEPTH],
            faults: Vec::new(),
        };
        pair.host.start(&mut pair.to_target);
        pair.target.set_queue(1, DEPTH as u16, shape.flow_control);
        pair
    }

    fn read(&mut self, length: usize) -> u16 {
        let data = host::Data::FromController(length as u32);
        let submitted = self.host.submit(Command::new(READ), data, &mut self.to_target).unwrap();
        self.host_buffers[usize::from(submitted.slot)] = vec![0; length];
        submitted.slot
    }

    fn write(&mut self, payload: &[u8]) -> u16 {
        let data = host::Data::ToController(payload.len() as u32);
        let submitted = self.host.submit(Command::new(WRITE), data, &mut self.to_target).unwrap();
        self.host_buffers[usize::from(submitted.slot)] = payload.to_vec();
        if submitted.in_capsule {
            put_payload(&mut self.to_target, payload, self.host.data_digest(payload));
        }
        submitted.slot
    }

    /// Delivers all that is under way, in pieces of `cut` bytes, until nothing moves any more.
    fn run(&mut self, cut: usize) {
        while self.faults.is_empty() && !(self.to_target.is_empty() && self.to_host.is_empty()) {
            for piece in std::mem::take(&mut self.to_target).chunks(cut) {
                self.deliver_to_target(piece);
            }
            for piece in std::mem::take(&mut self.to_host).chunks(cut) {
                self.deliver_to_host(piece);
            }
            self.answer_requests();
        }
    }

    fn deliver_to_target(&mut self, mut input: &[u8]) {
        loop {
            let received = match self.target.handle_input(&mut input, &mut self.to_host) {
                Ok(received) => received,
                Err(error) => return self.faults.push(error),
            };
            match received {
                target::SessionEvent::Starved => return,
                target::SessionEvent::Initialized(_) => {}
                target::SessionEvent::Command { slot, data_length } => {
                    let command = *self.target.command().expect("it has just come");
                    self.commands[usize::from(slot)] = command.command_id.get();
                    self.target_buffers[usize::from(slot)] = vec![0; data_length as usize];
                    if data_length == 0 {
                        self.execute(slot, &command);
                    }
                }
                target::SessionEvent::Data { slot, offset, piece } => {
                    let start = offset as usize;
                    self.target_buffers[usize::from(slot)][start..start + piece.len()]
                        .copy_from_slice(piece);
                }
                target::SessionEvent::CapsuleEnd { slot, intact }
                | target::SessionEvent::TransferEnd { slot, intact } => {
                    self.written.push(self.target_buffers[usize::from(slot)].clone());
                    let status =
                        if intact { Status::SUCCESS } else { Status::TRANSIENT_TRANSPORT_ERROR };
                    self.respond(slot, status);
                }
                target::SessionEvent::Terminated { .. } => panic!("the host terminated"),
            }
        }
    }

    fn execute(&mut self, slot: u16, command: &Command) {
        let length = command.data_pointer.length.get();
        match command.opcode {
            WRITE => {
                self.target_buffers[usize::from(slot)] = vec![0; length as usize];
                self.target.request_data(slot, length, &mut self.to_host);
            }
            _ => self.send(slot, length as usize),
        }
    }

    fn send(&mut self, slot: u16, length: usize) {
        let payload = pattern(length, length);
        let completion = Completion::new(self.commands[usize::from(slot)], Status::SUCCESS);
        let success = self.target.success_suffices(&completion);
        let most = self.target.c2h_data_bytes() as usize;
        for (index, piece) in payload.chunks(most).enumerate() {
            let offset = (index * most) as u32;
            let last = offset as usize + piece.len() == length;
            let size = piece.len() as u32;
            let sink = &mut self.to_host;
            let success = last && success;
            let pdu = DataPdu { offset, length: size, last, success, ..DataPdu::default() };
            self.target.put_data(slot, pdu, sink);
            put_payload(&mut self.to_host, piece, self.target.data_digest(piece));
        }
        if success {
            self.target.release(slot);
        } else {
            self.respond(slot, Status::SUCCESS);
        }
    }

    fn respond(&mut self, slot: u16, status: Status) {
        let completion = Completion::new(self.commands[usize::from(slot)], status);
        self.target.put_response(&completion, &mut self.to_host);
        self.target.release(slot);
    }

    fn deliver_to_host(&mut self, mut input: &[u8]) {
        loop {
            match self.host.handle_input(&mut input) {
                Ok(host::SessionEvent::Starved) => return,
                Ok(host::SessionEvent::Ready(_)) => {}
                Ok(host::SessionEvent::Data { slot, offset, piece }) => {
                    let start = offset as usize;
                    self.host_buffers[usize::from(slot)][start..start + piece.len()]
                        .copy_from_slice(piece);
                }
                Ok(host::SessionEvent::Completed { slot, completion, received, intact }) => {
                    self.completed.push((slot, completion, received, intact));
                }
                Ok(host::SessionEvent::Terminated { .. }) => panic!("the target terminated"),
                Err(error) => return self.faults.push(error),
            }
        }
    }

    fn answer_requests(&mut self) {
        while let Some(transfer) = self.host.poll_transfer() {
            let mut done = 0;
            while done < transfer.length {
                let length = (transfer.length - done).min(self.host.h2c_data_bytes());
                self.host.put_data(&transfer, done, length, &mut self.to_target);
                let start = (transfer.offset + done) as usize;
                let payload =
                    &self.host_buffers[usize::from(transfer.slot)][start..start + length as usize];
                put_payload(&mut self.to_target, payload, self.host.data_digest(payload));
                done += length;
            }
        }
    }

    /// A round of reads and writes of which each must come out right.
    fn exercise(&mut self, lengths: &[usize], cut: usize) {
        self.run(cut);
        for round in lengths.chunks(DEPTH / 2) {
            self.completed.clear();
            self.written.clear();
            let mut reads = Vec::new();
            for (index, length) in round.iter().enumerate() {
                reads.push((self.read(*length), *length));
                self.write(&pattern(index, *length));
            }
            self.run(cut);
            assert_eq!(self.faults, []);
            assert_eq!(self.completed.len(), round.len() * 2);
            for (_, completion, _, intact) in &self.completed {
                assert!(*intact && completion.status().is_success());
            }
            for (slot, length) in reads {
                assert_eq!(self.host_buffers[usize::from(slot)], pattern(length, length));
                let received = self.completed.iter().find(|entry| entry.0 == slot).unwrap().2;
                assert_eq!(received as usize, length);
            }
            for (index, length) in round.iter().enumerate() {
                assert!(self.written.contains(&pattern(index, *length)), "{length} bytes arrived");
            }
            assert_eq!((self.host.in_flight(), self.target.in_flight()), (0, 0));
        }
    }
}

fn put_payload(sink: &mut Vec<u8>, payload: &[u8], digest: Option<[u8; 4]>) {
    sink.extend_from_slice(payload);
    sink.extend_from_slice(digest.as_ref().map_or(&[][..], |digest| &digest[..]));
}

fn shapes() -> Vec<Shape> {
    vec![
        SHAPE,
        Shape { flow_control: false, ..SHAPE },
        Shape { digests: true, ..SHAPE },
        Shape { digests: true, host_alignment: 17, controller_alignment: 31, ..SHAPE },
        Shape { maximum_r2t: 2, r2t_bytes: 600, c2h_data_bytes: 300, ..SHAPE },
        Shape {
            digests: true,
            flow_control: false,
            maximum_r2t: 9,
            r2t_bytes: 5000,
            c2h_data_bytes: 1000,
            ..SHAPE
        },
    ]
}

#[test]
fn every_cut() {
    for shape in shapes() {
        for cut in (1..140).chain([200, 511, 4096, usize::MAX >> 1]) {
            SessionPair::new(shape).exercise(&[1, 4, 512, 513, 1300], cut);
        }
    }
}

#[test]
fn long_transfers() {
    for shape in shapes() {
        SessionPair::new(shape).exercise(&[4096, 65_536, 1 << 20, 16_384, 4097], 40_000);
    }
}

/// The head of an exchange in one piece and the rest in another, at every byte of it.
#[test]
fn one_cut_anywhere() {
    let shape = Shape { digests: true, flow_control: false, ..SHAPE };
    let mut whole = SessionPair::new(shape);
    whole.run(usize::MAX >> 1);
    whole.write(&pattern(3, 40));
    whole.read(90);
    let bytes = std::mem::take(&mut whole.to_target);
    for cut in 0..=bytes.len() {
        let mut pair = SessionPair::new(shape);
        pair.run(usize::MAX >> 1);
        pair.write(&pattern(3, 40));
        pair.read(90);
        assert_eq!(pair.to_target, bytes);
        pair.to_target.clear();
        pair.deliver_to_target(&bytes[..cut]);
        pair.deliver_to_target(&bytes[cut..]);
        pair.run(usize::MAX >> 1);
        assert_eq!(pair.completed.len(), 2, "cut at {cut}");
    }
}

#[test]
fn a_corrupted_write_fails_alone() {
    let mut pair = SessionPair::new(Shape { digests: true, ..SHAPE });
    pair.run(1000);
    let in_capsule = pair.write(&pattern(1, 100));
    let end = pair.to_target.len();
    pair.to_target[end - 5] ^= 0x40;
    let good = pair.write(&pattern(2, 100));
    pair.run(1000);
    let status = |pair: &SessionPair, slot| {
        pair.completed.iter().find(|entry| entry.0 == slot).unwrap().1.status()
    };
    assert_eq!(status(&pair, in_capsule), Status::TRANSIENT_TRANSPORT_ERROR);
    assert!(status(&pair, good).is_success());

    pair.completed.clear();
    let transferred = pair.write(&pattern(3, 9000));
    for piece in std::mem::take(&mut pair.to_target).chunks(100) {
        pair.deliver_to_target(piece);
    }
    for piece in std::mem::take(&mut pair.to_host).chunks(100) {
        pair.deliver_to_host(piece);
    }
    pair.answer_requests();
    // In the first of three H2CData PDUs.
    pair.to_target[100] ^= 1;
    pair.run(1000);
    assert_eq!(status(&pair, transferred), Status::TRANSIENT_TRANSPORT_ERROR);
    pair.exercise(&[100, 9000], 77);
}

#[test]
fn a_corrupted_read_fails_alone() {
    for flow_control in [true, false] {
        let mut pair = SessionPair::new(Shape { digests: true, flow_control, ..SHAPE });
        pair.run(1000);
        let bad = pair.read(700);
        let good = pair.read(600);
        let to_target = std::mem::take(&mut pair.to_target);
        pair.deliver_to_target(&to_target);
        pair.to_host[50] ^= 8;
        pair.run(1000);
        assert_eq!(pair.faults, []);
        let intact = |slot| pair.completed.iter().find(|entry| entry.0 == slot).unwrap().3;
        assert!(!intact(bad) && intact(good));
    }
}

#[test]
fn success_stands_for_a_completion_only_without_flow_control() {
    for (flow_control, result, status, expected) in [
        (true, 0, Status::SUCCESS, false),
        (false, 0, Status::SUCCESS, true),
        (false, 1, Status::SUCCESS, false),
        (false, 0, Status::INVALID_FIELD, false),
    ] {
        let mut session = target::Session::new(target::Config::default());
        session.set_queue(1, 2, flow_control);
        let completion = Completion::new(1, status).with_result(result);
        assert_eq!(session.success_suffices(&completion), expected);
    }
}

#[test]
fn an_abandoned_transfer_ends_with_what_was_asked_for() {
    let shape = Shape { r2t_bytes: 1000, maximum_r2t: 2, ..SHAPE };
    let mut pair = SessionPair::new(shape);
    pair.run(1000);
    pair.write(&pattern(1, 5000));
    let to_target = std::mem::take(&mut pair.to_target);
    pair.deliver_to_target(&to_target);
    assert!(pair.target.abandon(0), "data is on its way");
    // Two R2Ts were out; the host answers both, and then the command can be completed.
    pair.run(333);
    assert_eq!(pair.completed.len(), 1);
    assert!(pair.target_buffers[0][2000..].iter().all(|byte| *byte == 0));
    assert_eq!(pair.target_buffers[0][..2000], pattern(1, 5000)[..2000]);
    assert_eq!(pair.target.in_flight(), 0);
}

/// A command that is completed without its data having been fetched: its transfers are void.
#[test]
fn a_transfer_ends_with_its_command() {
    let mut pair = SessionPair::new(SHAPE);
    pair.run(1000);
    pair.write(&pattern(1, 5000));
    let to_target = std::mem::take(&mut pair.to_target);
    pair.deliver_to_target(&to_target);
    let completion = Completion::new(pair.commands[0], Status::ABORT_REQUESTED);
    pair.target.put_response(&completion, &mut pair.to_host);
    let to_host = std::mem::take(&mut pair.to_host);
    pair.deliver_to_host(&to_host);
    assert_eq!(pair.completed.len(), 1);
    assert_eq!(pair.host.poll_transfer(), None);
    assert!(pair.host.submit(Command::new(READ), host::Data::None, &mut Vec::new()).is_some());
    assert_eq!(pair.host.poll_transfer(), None);
}

#[test]
fn generations_wrap_and_identifiers_stay_distinct() {
    let mut pair = SessionPair::new(SHAPE);
    pair.run(1000);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..40 {
        let slot = pair.read(8);
        seen.insert(pair.host.command_id(slot).unwrap());
        pair.run(1000);
    }
    assert_eq!(seen.len(), 16, "four bits of generation, one slot");
    assert!(!seen.contains(&0xffff));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_lengths_any_cut(
        shape in proptest::sample::select(shapes()),
        lengths in proptest::collection::vec(1usize..20_000, 1..12),
        cut in 1usize..5000,
    ) {
        SessionPair::new(shape).exercise(&lengths, cut);
    }
}
