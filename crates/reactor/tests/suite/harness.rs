//! Reactors for the cases, and waiting for their completions.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::time::Duration;
use weft_reactor::simulation::{NetworkConditions, SimulatedFile, StorageConditions, World};
use weft_reactor::{
    Config, DriverKind, FileId, ListenerId, Marking, Operation, Outcome, Owner, Reactor,
    ReactorCompletion, RingMode, SocketId, Token, WaitLimit,
};

/// Long enough for a crowded machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Makes reactors of one kind.
pub(crate) trait Driver {
    fn with(&self, config: Config) -> Reactor;

    fn reactor(&self) -> Reactor {
        self.with(Config::default())
    }

    /// An empty file, and the same file seen from outside.
    fn file(&self, reactor: &mut Reactor) -> (FileId, Box<dyn ExternalFile>) {
        let file = Arc::new(tempfile::tempfile().unwrap());
        (reactor.add_file(Arc::clone(&file), false), Box::new(file))
    }
}

/// A file as somebody else sees it.
pub(crate) trait ExternalFile {
    fn read(&self, offset: u64, into: &mut [u8]);
    fn write(&self, offset: u64, from: &[u8]);
    fn len(&self) -> u64;
    /// In whatever unit; it falls when space is given back.
    fn allocated(&self) -> u64;
}

impl ExternalFile for Arc<File> {
    fn read(&self, offset: u64, into: &mut [u8]) {
        self.read_exact_at(into, offset).unwrap();
    }

    fn write(&self, offset: u64, from: &[u8]) {
        self.write_all_at(from, offset).unwrap();
        self.sync_all().unwrap();
    }

    fn len(&self) -> u64 {
        self.metadata().unwrap().len()
    }

    fn allocated(&self) -> u64 {
        self.metadata().unwrap().blocks()
    }
}

/// A world that cuts and delays whatever it can, without losing anything.
pub(crate) struct SimulatedWorld(World);

impl SimulatedWorld {
    pub(crate) fn new() -> Self {
        let network = NetworkConditions {
            jitter: Duration::from_micros(200),
            split_probability: 0.3,
            ..NetworkConditions::default()
        };
        let world = World::new(0x5eed, network);
        world.set_storage(StorageConditions {
            jitter: Duration::from_millis(1),
            ..StorageConditions::default()
        });
        Self(world)
    }
}

impl Driver for SimulatedWorld {
    fn with(&self, config: Config) -> Reactor {
        self.0.set_memory(config.pool_bytes, config.receive_bytes);
        let reactor = Reactor::simulated(&self.0);
        assert_eq!(reactor.driver_name(), "simulated");
        reactor
    }

    fn file(&self, reactor: &mut Reactor) -> (FileId, Box<dyn ExternalFile>) {
        let file = self.0.add_file(0);
        (reactor.add_file(file, false), Box::new((self.0.clone(), file)))
    }
}

impl ExternalFile for (World, SimulatedFile) {
    fn read(&self, offset: u64, into: &mut [u8]) {
        assert!(offset + into.len() as u64 <= self.0.file_len(self.1));
        self.0.peek(self.1, offset, into);
    }

    fn write(&self, offset: u64, from: &[u8]) {
        self.0.corrupt(self.1, offset, from);
    }

    fn len(&self) -> u64 {
        self.0.file_len(self.1)
    }

    fn allocated(&self) -> u64 {
        self.0.allocated_bytes(self.1)
    }
}

pub(crate) struct Epoll;

impl Driver for Epoll {
    fn with(&self, config: Config) -> Reactor {
        let reactor = Reactor::new(Config { driver: DriverKind::Epoll, ..config }).unwrap();
        assert_eq!(reactor.driver_name(), "epoll");
        reactor
    }
}

/// io_uring in a mode at most. Where the kernel forbids it, the cases run on epoll once more.
pub(crate) struct Uring(pub(crate) RingMode);

impl Driver for Uring {
    fn with(&self, config: Config) -> Reactor {
        let config = Config { ring: self.0, ..config };
        match Reactor::new(Config { driver: DriverKind::Uring, ..config.clone() }) {
            Ok(reactor) => {
                assert_eq!(reactor.driver_name(), "io_uring");
                reactor
            }
            Err(error) => {
                eprintln!("{error}");
                Epoll.with(config)
            }
        }
    }
}

pub(crate) fn token(tag: u32) -> Token {
    Token::new(Owner(7), tag)
}

pub(crate) fn any_address() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Waits until `count` completions have come.
pub(crate) fn wait_for(reactor: &mut Reactor, count: usize) -> Vec<ReactorCompletion> {
    let mut completions = Vec::new();
    let limit = reactor.now() + LIMIT;
    while completions.len() < count {
        reactor.poll(WaitLimit::Until(limit), &mut completions);
        assert!(reactor.now() < limit, "only {completions:?} of {count} came");
    }
    completions
}

/// Waits for the one completion with this tag; others must not come.
pub(crate) fn outcome_of(reactor: &mut Reactor, tag: u32) -> Outcome {
    let mut completions = wait_for(reactor, 1);
    assert_eq!(completions.len(), 1, "{completions:?}");
    let completion = completions.remove(0);
    assert_eq!(completion.token, token(tag), "{completion:?}");
    completion.outcome
}

/// Nothing comes in this time.
pub(crate) fn assert_quiet(reactor: &mut Reactor, time: Duration) {
    let mut completions = Vec::new();
    let until = reactor.now() + time;
    while reactor.now() < until {
        reactor.poll(WaitLimit::Until(until), &mut completions);
        assert!(completions.is_empty(), "{completions:?}");
    }
}

/// A listener and a connection to it, both ends on `reactor`: (listener, client, server).
pub(crate) fn connection(reactor: &mut Reactor) -> (ListenerId, SocketId, SocketId) {
    let listener = reactor.listen(any_address()).unwrap();
    let address = reactor.local_address(listener).unwrap();
    reactor.submit(token(1000), Operation::Accept { listener });
    reactor.submit(
        token(1001),
        Operation::Connect { address, local: None, timeout: None, marking: Marking::default() },
    );
    let (mut client, mut server) = (None, None);
    for completion in wait_for(reactor, 2) {
        match completion.outcome {
            Outcome::Accepted { socket, .. } => server = Some(socket),
            Outcome::Connected { socket } => client = Some(socket),
            other => panic!("{other:?}"),
        }
    }
    reactor.cancel(token(1000));
    assert!(matches!(outcome_of(reactor, 1000), Outcome::Cancelled { .. }));
    (listener, client.unwrap(), server.unwrap())
}

/// Bytes that differ from place to place and from seed to seed.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}
