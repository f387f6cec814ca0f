//! Tests of the target side with a host of raw work requests, which does what no host here does.

use weft_nvme::sgl::Descriptor;
use weft_nvme::wire::U16;
use weft_nvme::{Command, Completion, FabricsType, Status, Wire};
use weft_nvmf::rdma::Request;
use weft_reactor::simulation::World;
use weft_reactor::{Owner, Reactor, Token, WaitLimit};

use super::listen::Listener;
use super::software::{Conditions, Fabric};
use super::target::RdmaTargetConnection;
use super::verbs::software::tests::Side;
use super::verbs::{Parameters, PrivateData, SendOperation};
use crate::target::{Event, Limits};

const LISTENER: Owner = Owner(1);
const TARGET: Owner = Owner(2);
const WRITE: u8 = 1;
const READ: u8 = 2;
/// A command that is completed with an error before its data is transferred.
const REFUSE: u8 = 3;

/// Offsets in the host's memory: the capsule, the response and the data.
const CAPSULE: usize = 0;
const RESPONSE: usize = 1;
const DATA: usize = 2;

struct Raw {
    fabric: Fabric,
    reactor: Reactor,
    listener: Listener,
    target: RdmaTargetConnection,
    host: Side,
    next_id: u16,
}

impl Raw {
    /// A connection up to an accepted Connect.
    fn connect(conditions: Conditions) -> Self {
        let mut raw = Self::connect_queue(conditions, 4).expect("accepted");
        let connect = Command::fabrics(FabricsType::CONNECT);
        assert_eq!(raw.execute(connect), (Status::SUCCESS, None));
        raw
    }

    /// A queue pair of `entries` without Connect; `None` if the listener refuses that many.
    fn connect_queue(conditions: Conditions, entries: u16) -> Option<Self> {
        let fabric = Fabric::new(conditions);
        let mut reactor = Reactor::simulated(&World::new(1, Default::default()));
        super::set_provider(&mut reactor, super::Provider::Software(fabric.clone()));
        let address = "10.0.0.1:4420".parse().unwrap();
        let token = Token::new(LISTENER, 0);
        let mut listener = Listener::listen(&mut reactor, token, address).unwrap();
        let mut host = Side::resolve(&fabric, address);
        let request = Request { queue_id: 1, entries, host_receives: entries, controller_id: 1 };
        let private_data = PrivateData::new(request.to_wire().bytes());
        let parameters = Parameters { private_data, responder_resources: 4, initiator_depth: 0 };
        host.connect(&parameters);
        reactor.poll(WaitLimit::NoWait, &mut Vec::new());
        let incoming = listener.accept(&mut reactor)?;
        let target =
            RdmaTargetConnection::accept(&mut reactor, TARGET, 0, incoming, Limits::default());
        let mut raw = Self { fabric, reactor, listener, target, host, next_id: 0 };
        assert_eq!(raw.host.events(), ["established"]);
        Some(raw)
    }

    /// Sends a command and lets the target complete it. Returns the status and the invalidated key.
    fn execute(&mut self, mut command: Command) -> (Status, Option<u32>) {
        self.next_id += 1;
        command.command_id = U16::new(self.next_id);
        let response = self.host.piece(RESPONSE, 16);
        self.host.receive(77, response);
        let capsule = self.host.piece(CAPSULE, 64);
        self.host.write(CAPSULE, command.bytes());
        self.host.send(1, SendOperation::Send, capsule).unwrap();
        for _ in 0..10 {
            self.serve();
        }
        let done = self.host.completions().into_iter();
        let done: Vec<_> = done.filter(|completion| completion.work == 77).collect();
        let [response] = done[..] else { panic!("one response to each command: {done:?}") };
        let completion = Completion::read(&self.host.read(RESPONSE, 16)).unwrap();
        assert_eq!(completion.command_id.get(), self.next_id);
        (completion.status(), response.invalidated)
    }

    /// Sends a command that is refused.
    fn send_refused(&mut self) {
        self.host.receive(77, self.host.piece(RESPONSE, 16));
        let mut command = Command::fabrics(FabricsType::CONNECT);
        command.opcode = REFUSE;
        self.host.write(CAPSULE, command.bytes());
        let capsule = self.host.piece(CAPSULE, 64);
        self.host.send(1, SendOperation::Send, capsule).unwrap();
    }

    /// Hands the target what a turn brings. Whether there was something.
    fn take_turn(&mut self) -> bool {
        let mut completions = Vec::new();
        self.reactor.poll(WaitLimit::NoWait, &mut completions);
        self.hand_over(completions)
    }

    /// The same of what has come for express connections.
    fn take_express(&mut self) -> bool {
        let mut completions = Vec::new();
        if self.reactor.has_express() {
            self.reactor.poll_express(&mut completions);
        }
        self.hand_over(completions)
    }

    fn hand_over(&mut self, completions: Vec<weft_reactor::ReactorCompletion>) -> bool {
        let own = completions.into_iter().filter(|one| one.token.owner == TARGET);
        own.map(|one| self.target.handle(&mut self.reactor, one)).count() > 0
    }

    /// One turn of the target.
    fn serve(&mut self) {
        self.take_turn();
        while let Some(event) = self.target.poll_event() {
            let done = |id| Completion::new(id, Status::SUCCESS);
            match event {
                Event::Command { slot, .. } => {
                    let command = self.target.command(slot).unwrap();
                    let id = command.command_id.get();
                    match command.opcode {
                        WRITE => {
                            let buffer = self.reactor.pool().take(4096).unwrap();
                            self.target.receive(slot, buffer);
                        }
                        READ => {
                            let mut buffer = self.reactor.pool().take(4096).unwrap();
                            buffer.fill(0xa5);
                            self.target.send(slot, buffer, done(id));
                        }
                        REFUSE => {
                            let refused = done(id).with_status(Status::INVALID_FIELD);
                            self.target.complete(slot, refused);
                        }
                        _ => {
                            self.target.set_queue(1, 4, true);
                            self.target.complete(slot, done(id));
                        }
                    }
                }
                Event::Data { slot, buffer, .. } => {
                    assert!(buffer.iter().all(|byte| *byte == 0x5a));
                    self.target.complete(slot, done(self.next_id));
                }
                Event::Closed { reason } => panic!("{reason}"),
            }
        }
        self.target.flush(&mut self.reactor);
    }

    /// A command whose data is a page of the host's, with a key that is to be invalidated or not.
    fn keyed(&self, opcode: u8, invalidate: bool) -> Command {
        let (address, key) = (self.host.piece(DATA, 1).address, self.host.remote_key());
        let mut command = Command::fabrics(FabricsType::CONNECT);
        command.opcode = opcode;
        command.with_data_pointer(Descriptor::keyed(address, 4096, key, invalidate))
    }
}

#[test]
fn an_idle_queue_keeps_little_more_than_a_mebibyte() {
    let held = |raw: &Raw| raw.reactor.pool().capacity() - raw.reactor.pool().available();
    let raw = Raw::connect_queue(Conditions::default(), 256).expect("accepted");
    let commands = 256 * (Command::SIZE + Completion::SIZE);
    assert!(held(&raw) <= (1 << 20) + 2 * commands, "{} bytes", held(&raw));
    for entries in [257, 1024] {
        assert!(Raw::connect_queue(Conditions::default(), entries).is_none(), "{entries}");
    }
}

#[test]
fn a_key_is_invalidated_with_the_response_if_the_host_asks_for_it() {
    for opcode in [WRITE, READ, REFUSE] {
        for hold_reads in [false, true] {
            let mut raw = Raw::connect(Conditions { hold_reads, ..Conditions::default() });
            raw.host.write(DATA, &[0x5a; 4096]);
            let status = if opcode == REFUSE { Status::INVALID_FIELD } else { Status::SUCCESS };
            let command = raw.keyed(opcode, false);
            assert_eq!(raw.execute(command), (status, None), "nobody asked");
            raw.host.write(DATA, &[0x5a; 4096]);
            let command = raw.keyed(opcode, true);
            let key = raw.host.remote_key();
            assert_eq!(raw.execute(command), (status, Some(key)));
            assert_eq!(raw.fabric.counts().invalidations, 1, "once");
            // The data was transferred before.
            let moved = if opcode == READ { 0xa5 } else { 0x5a };
            assert!(raw.host.read(DATA, 4096).iter().all(|byte| *byte == moved));
            // A command without data has no key, and the one before is not invalidated again.
            let mut flush = Command::fabrics(FabricsType::CONNECT);
            flush.opcode = REFUSE;
            assert_eq!(raw.execute(flush), (Status::INVALID_FIELD, None));
            assert_eq!(raw.fabric.counts().invalidations, 1);
        }
    }
}

#[test]
fn a_device_that_cannot_invalidate_answers_all_the_same() {
    let mut conditions = Conditions::default();
    conditions.attributes.send_with_invalidate = false;
    let mut raw = Raw::connect(conditions);
    raw.host.write(DATA, &[0x5a; 4096]);
    for opcode in [WRITE, READ, WRITE] {
        raw.host.write(DATA, &[0x5a; 4096]);
        let command = raw.keyed(opcode, true);
        assert_eq!(raw.execute(command), (Status::SUCCESS, None), "the key is good for more");
    }
    assert_eq!(raw.fabric.counts().invalidations, 0);
    assert_eq!(raw.listener.local_address(), "10.0.0.1:4420".parse().unwrap());
}

/// What comes for an express connection is found at any time, and is not handed out with the rest.
#[test]
fn what_comes_for_an_express_connection_is_handed_out_apart() {
    let mut raw = Raw::connect(Conditions::default());
    raw.execute(raw.keyed(REFUSE, false));
    for _ in 0..2 {
        raw.send_refused();
        assert!(!raw.reactor.has_express(), "it is not express");
        assert!(raw.take_turn() && raw.target.has_events());
        raw.serve();
        raw.target.set_express(true).unwrap();
        // The response has been sent.
        while raw.take_turn() | raw.take_express() {}
        raw.send_refused();
        assert!(raw.reactor.has_express() && raw.reactor.has_express());
        assert!(!raw.take_turn() && raw.take_express() && raw.target.has_events());
        raw.serve();
        while raw.take_turn() | raw.take_express() {}
        // What has come is not lost if it is express no longer.
        raw.send_refused();
        assert!(raw.reactor.has_express());
        raw.target.set_express(false).unwrap();
        assert!(raw.take_turn() && raw.target.has_events());
        raw.serve();
        while raw.take_turn() {}
        raw.host.completions();
    }
    raw.target.set_express(true).unwrap();
    raw.target.abort(&mut raw.reactor, crate::CloseReason::PeerClosed);
    while raw.take_turn() {}
    assert!(raw.target.set_express(true).is_err() && !raw.reactor.has_express(), "it is gone");
}
