//! The promise that nothing is allocated per operation once the tables have their size.

#![allow(clippy::unwrap_used)] // a test may fail

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;
use weft_reactor::{
    Config, DriverKind, FileId, Mailbox, MailboxSender, Message, Operation, Outcome, Owner,
    Reactor, ReactorCompletion, SocketId, Token, WaitLimit,
};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is left to the system's allocator; counting allocates nothing itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn token(tag: u32) -> Token {
    Token::new(Owner(0), tag)
}

const REQUEST_BYTES: usize = 5006;

/// Both ends of a connection, a file and a mailbox on one reactor.
struct Setup {
    reactor: Reactor,
    sockets: [SocketId; 2],
    file: FileId,
    sender: MailboxSender<u32>,
    mailbox: Mailbox<u32>,
    messages: [Option<Message>; 2],
    completions: Vec<ReactorCompletion>,
}

impl Setup {
    fn new(driver: DriverKind) -> Option<Self> {
        let mut reactor = match Reactor::new(Config { driver, ..Config::default() }) {
            Ok(reactor) => reactor,
            Err(error) => {
                eprintln!("{error}");
                return None;
            }
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let sockets = [client, server].map(|end| reactor.add_stream(end.into()).unwrap());
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let file = reactor.add_file(file, false);
        let (sender, mailbox) = reactor.mailbox();
        let messages = [Some(Message::new()), Some(Message::new())];
        let completions = Vec::new();
        Some(Self { reactor, sockets, file, sender, mailbox, messages, completions })
    }

    /// Something of everything, begun and waited for.
    fn round(&mut self, round: u32) {
        for (tag, socket) in (0..).zip(self.sockets) {
            let mut message = self.messages[tag as usize].take().unwrap();
            message.clear();
            message.bytes(b"header");
            let payload = self.reactor.pool().take(5000).unwrap();
            message.buffer(payload, 0..5000);
            self.reactor.submit(token(tag), Operation::Send { socket, message });
            self.reactor.submit(token(tag + 10), Operation::Receive { socket });
        }
        let (file, buffer) = (self.file, self.reactor.pool().take(4096).unwrap());
        self.reactor.submit(token(5), Operation::Read { file, offset: 0, buffer, range: 0..4096 });
        self.reactor.set_timer(token(6), self.reactor.now() + Duration::from_micros(10));
        self.sender.post(round);
        self.wait(match round % 3 {
            0 => WaitLimit::Adaptive { grace: Duration::from_micros(50) },
            1 => WaitLimit::NoWait,
            _ => WaitLimit::Sleep,
        });
    }

    fn wait(&mut self, patience: WaitLimit) {
        let (mut received, mut others, mut is_posted) = ([0; 2], 0, false);
        while (received, others, is_posted) != ([REQUEST_BYTES; 2], 4, true) {
            self.reactor.poll(patience, &mut self.completions);
            is_posted |= self.mailbox.take().is_some();
            for completion in self.completions.drain(..) {
                let tag = completion.token.tag;
                match completion.outcome {
                    Outcome::Received { len, .. } => {
                        let end = tag as usize - 10;
                        received[end] += len;
                        if received[end] < REQUEST_BYTES {
                            let socket = self.sockets[end];
                            self.reactor.submit(token(tag), Operation::Receive { socket });
                        }
                    }
                    Outcome::Sent { message } => {
                        self.messages[tag as usize] = Some(message);
                        others += 1;
                    }
                    Outcome::Transferred { .. } | Outcome::Timer => others += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

/// What a thousand rounds allocate on this thread, after two thousand others.
fn allocations_of(driver: DriverKind) -> Option<u64> {
    let mut setup = Setup::new(driver)?;
    (0..2000).for_each(|round| setup.round(round));
    let before = ALLOCATIONS.get();
    (0..1000).for_each(|round| setup.round(round));
    Some(ALLOCATIONS.get() - before)
}

/// A round is some six operations: if one of them allocated, that would be a thousand. When the
/// machine is busy more comes at a time than ever before, and a table grows once.
const GROWTH_MAX: u64 = 20;

#[test]
fn epoll_allocates_nothing_in_its_stride() {
    let allocations = allocations_of(DriverKind::Epoll);
    assert!(allocations.is_some_and(|count| count <= GROWTH_MAX), "{allocations:?}");
}

#[test]
fn io_uring_allocates_nothing_in_its_stride() {
    if let Some(allocations) = allocations_of(DriverKind::Uring) {
        assert!(allocations <= GROWTH_MAX, "{allocations}");
    }
}
