//! The promise that nothing is allocated per operation once the tables have their size.

#![allow(clippy::unwrap_used)] // a test may fail

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;
use weft_reactor::{
    Config, DriverKind, Message, Operation, Outcome, Owner, Patience, Reactor, Token,
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

/// Requests and answers over a socket, each with a read and a timer; allocations of the last
/// rounds.
fn allocations_of(driver: DriverKind) -> Option<u64> {
    let mut reactor = match Reactor::new(Config { driver, ..Config::default() }) {
        Ok(reactor) => reactor,
        Err(error) => {
            eprintln!("{error}");
            return None;
        }
    };
    let listener = reactor.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let client = std::net::TcpStream::connect(reactor.local_address(listener).unwrap()).unwrap();
    let client = reactor.add_stream(client.into()).unwrap();
    reactor.submit(token(0), Operation::Accept { listener });
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 20).unwrap();
    let file = reactor.add_file(file, false);
    let (postbox, mailbox) = reactor.mailbox();
    let mut completions = Vec::new();
    let mut server = None;
    while server.is_none() {
        reactor.poll(Patience::Sleep, &mut completions);
        for completion in completions.drain(..) {
            if let Outcome::Accepted { socket, .. } = completion.outcome {
                server = Some(socket);
            }
        }
    }
    let server = server.unwrap();
    let mut before = 0;
    let mut messages = [Some(Message::new()), Some(Message::new())];
    for round in 0..3000u32 {
        if round == 2000 {
            before = ALLOCATIONS.get();
        }
        for (tag, socket) in [(1, client), (2, server)] {
            let mut message = messages[tag as usize - 1].take().unwrap();
            message.clear();
            message.bytes(b"header");
            message.buffer(reactor.pool().take(5000).unwrap(), 0..5000);
            reactor.submit(token(tag), Operation::Send { socket, message });
            reactor.submit(token(tag + 10), Operation::Receive { socket });
        }
        let buffer = reactor.pool().take(4096).unwrap();
        reactor.submit(token(5), Operation::Read { file, offset: 0, buffer, range: 0..4096 });
        reactor.set_timer(token(6), reactor.now() + Duration::from_micros(10));
        postbox.post(round);
        let (mut received, mut others, mut is_posted) = (0, 0, false);
        while (received, others, is_posted) != (2 * 5006, 4, true) {
            let patience = match round % 3 {
                0 => Patience::Adaptive { grace: Duration::from_micros(50) },
                1 => Patience::NoWait,
                _ => Patience::Sleep,
            };
            reactor.poll(patience, &mut completions);
            is_posted |= mailbox.take().is_some();
            for completion in completions.drain(..) {
                match completion.outcome {
                    Outcome::Received { len, .. } => {
                        received += len;
                        if len < 5006 {
                            let tag = completion.token.tag;
                            let socket = if tag == 11 { client } else { server };
                            reactor.submit(token(tag), Operation::Receive { socket });
                        }
                    }
                    Outcome::Sent { message } => {
                        messages[completion.token.tag as usize - 1] = Some(message);
                        others += 1;
                    }
                    Outcome::Transferred { .. } | Outcome::Timer => others += 1,
                    Outcome::Cancelled { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        for tag in [11, 12] {
            reactor.cancel(token(tag));
        }
        reactor.poll(Patience::NoWait, &mut completions);
        completions.clear();
    }
    Some(ALLOCATIONS.get() - before)
}

#[test]
fn epoll_allocates_nothing_in_its_stride() {
    assert_eq!(allocations_of(DriverKind::Epoll), Some(0));
}

#[test]
fn io_uring_allocates_nothing_in_its_stride() {
    if let Some(allocations) = allocations_of(DriverKind::Uring) {
        assert_eq!(allocations, 0);
    }
}
