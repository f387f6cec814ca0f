//! Any operation at any time: each ends once, and nothing is lost on the way.

use crate::harness::{Driver, any_address, token};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use weft_reactor::simulation::Random;
use weft_reactor::{FileId, Marking, Message, Operation, Outcome, Reactor, SocketId, WaitLimit};

struct Chaos {
    reactor: Reactor,
    random: Random,
    sockets: BTreeSet<SocketId>,
    file: FileId,
    pending: BTreeSet<u32>,
    accept: u32,
    next: u32,
    outcomes: BTreeMap<&'static str, u32>,
}

impl Chaos {
    fn below(&mut self, end: u64) -> usize {
        usize::try_from(self.random.below(end)).unwrap()
    }

    fn some_socket(&mut self) -> Option<SocketId> {
        let position = self.below(self.sockets.len() as u64);
        self.sockets.iter().nth(position).copied()
    }

    fn submit(&mut self, operation: Operation) {
        self.next += 1;
        assert!(self.pending.insert(self.next));
        if self.random.chance(0.3) {
            self.reactor.begin_express();
        }
        self.reactor.submit(token(self.next), operation);
        self.reactor.end_express();
    }

    fn message(&mut self) -> Message {
        let mut message = Message::new();
        for _ in 0..self.below(5) {
            let len = self.below(200_000);
            if self.random.chance(0.5) {
                message.extend(len.min(300));
            } else if let Some(buffer) = self.reactor.pool().take(len) {
                message.buffer(buffer, 0..len);
            }
        }
        message
    }

    fn act(&mut self, address: std::net::SocketAddr) {
        let file = self.file;
        let offset = self.random.below(1 << 20);
        match (self.below(16), self.some_socket()) {
            (0, _) if self.sockets.len() < 40 => {
                let timeout = self.random.chance(0.5).then_some(Duration::from_millis(5));
                self.submit(Operation::Connect {
                    address,
                    local: None,
                    timeout,
                    marking: Marking::default(),
                });
            }
            (1..=3, Some(socket)) => self.submit(Operation::Receive { socket }),
            (4, Some(socket)) => {
                let Some(buffer) = self.reactor.pool().take(5000) else { return };
                self.submit(Operation::ReceiveInto { socket, buffer, range: 10..4000 });
            }
            (5..=6, Some(socket)) => {
                let message = self.message();
                self.submit(Operation::Send { socket, message });
            }
            (7, Some(socket)) => {
                self.reactor.close(socket);
                self.sockets.remove(&socket);
            }
            (8..=9, _) => {
                let position = self.below(self.pending.len() as u64);
                let Some(tag) = self.pending.iter().nth(position).copied() else { return };
                if tag != self.accept {
                    self.reactor.cancel(token(tag));
                }
            }
            (10, _) => {
                let Some(buffer) = self.reactor.pool().take(4096) else { return };
                let durable = self.random.chance(0.1);
                let range = 0..4096;
                self.submit(Operation::Write { file, offset, buffer, range, durable });
            }
            (11, _) => {
                let Some(buffer) = self.reactor.pool().take(4096) else { return };
                self.submit(Operation::Read { file, offset, buffer, range: 0..4096 });
            }
            (13, Some(socket)) => {
                let is_express = self.random.chance(0.7);
                self.reactor.set_express(socket, is_express).unwrap();
            }
            (14, _) => drop(self.reactor.continue_sends()),
            (12, _) => self.submit(Operation::Discard { file, offset, length: 10_000 }),
            _ => self.submit(Operation::Sync { file }),
        }
    }

    fn poll(&mut self, patience: WaitLimit) {
        let mut completions = Vec::new();
        self.reactor.poll(patience, &mut completions);
        if self.reactor.has_express() {
            self.reactor.poll_express(&mut completions);
        }
        for completion in completions {
            let tag = completion.token.tag;
            if completion.outcome.is_final() {
                assert!(self.pending.remove(&tag), "{completion:?} comes twice or from nowhere");
            }
            let name = match completion.outcome {
                Outcome::Accepted { socket, .. } => {
                    assert!(self.sockets.insert(socket));
                    "accepted"
                }
                Outcome::Connected { socket } => {
                    assert!(self.sockets.insert(socket));
                    "connected"
                }
                Outcome::Received { .. } => "received",
                Outcome::ReceivedInto { .. } => "received into",
                Outcome::Sent { .. } => "sent",
                Outcome::Transferred { .. } => "transferred",
                Outcome::Done => "done",
                Outcome::Cancelled { .. } => "cancelled",
                Outcome::Failed { .. } => "failed",
                Outcome::Timer | Outcome::SourceEvents => {
                    unreachable!("no timer was set, no source added")
                }
            };
            *self.outcomes.entry(name).or_default() += 1;
        }
    }
}

pub(crate) fn each_operation_ends_once(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let listener = reactor.listen(any_address()).unwrap();
    let address = reactor.local_address(listener).unwrap();
    let (file, _) = driver.file(&mut reactor);
    let mut chaos = Chaos {
        reactor,
        random: Random::new(7),
        sockets: BTreeSet::new(),
        file,
        pending: BTreeSet::new(),
        accept: 1,
        next: 0,
        outcomes: BTreeMap::new(),
    };
    chaos.submit(Operation::Accept { listener });
    for _ in 0..1500 {
        for _ in 0..chaos.below(6) {
            chaos.act(address);
        }
        let patience = match chaos.below(3) {
            0 => WaitLimit::NoWait,
            1 => WaitLimit::Until(chaos.reactor.now()),
            _ => WaitLimit::Until(chaos.reactor.now() + Duration::from_micros(500)),
        };
        chaos.poll(patience);
    }
    // The end: everything is closed, and everything comes back.
    chaos.reactor.close_listener(listener);
    for round in 0.. {
        for socket in std::mem::take(&mut chaos.sockets) {
            chaos.reactor.close(socket);
        }
        if chaos.pending.is_empty() {
            break;
        }
        assert!(round < 2000, "{:?} never end", chaos.pending);
        chaos.poll(WaitLimit::Until(chaos.reactor.now() + Duration::from_millis(10)));
    }
    let pool = chaos.reactor.pool();
    assert_eq!(pool.available(), pool.capacity());
    for name in [
        "accepted",
        "connected",
        "received",
        "received into",
        "sent",
        "transferred",
        "done",
        "cancelled",
        "failed",
    ] {
        assert!(chaos.outcomes.contains_key(name), "no {name} in {:?}", chaos.outcomes);
    }
}
