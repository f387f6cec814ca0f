//! Express sockets: what comes on them is handed out apart, nothing is lost when a socket becomes
//! one or ceases to be, and the others' sends go out in slices.

use crate::harness::{Driver, connection, pattern, token, wait_for};
use std::time::Duration;
use weft_reactor::{Message, Operation, Outcome, Reactor, ReactorCompletion, SocketId, WaitLimit};

/// Enough for several slices, and little enough for the buffers of a connection.
const LONG: usize = 600 << 10;

fn send(reactor: &mut Reactor, tag: u32, socket: SocketId, bytes: &[u8]) {
    let mut message = Message::new();
    message.bytes(bytes);
    reactor.submit(token(tag), Operation::Send { socket, message });
}

/// Polls until something has come; says of each whether it was handed out as express.
fn next(reactor: &mut Reactor) -> Vec<(ReactorCompletion, bool)> {
    let limit = reactor.now() + Duration::from_secs(20);
    let (mut completions, mut express) = (Vec::new(), Vec::new());
    while completions.is_empty() && express.is_empty() {
        assert!(reactor.now() < limit, "nothing came");
        reactor.poll(WaitLimit::Until(limit), &mut completions);
        if reactor.has_express() {
            reactor.poll_express(&mut express);
        }
    }
    let ordinary = completions.into_iter().map(|completion| (completion, false));
    ordinary.chain(express.into_iter().map(|completion| (completion, true))).collect()
}

/// Sends this to a socket that receives, or is about to, and returns how often it came as express.
fn pass(reactor: &mut Reactor, [from, to]: [SocketId; 2], bytes: &[u8]) -> usize {
    send(reactor, 2, from, bytes);
    let (mut received, mut sent, mut express) = (Vec::new(), false, 0);
    while received.len() < bytes.len() || !sent {
        for (completion, is_express) in next(reactor) {
            match completion.outcome {
                Outcome::Sent { .. } => sent = true,
                Outcome::Received { buffer, len } => {
                    received.extend_from_slice(&buffer[..len]);
                    express += usize::from(is_express);
                    if received.len() < bytes.len() {
                        reactor.submit(token(1), Operation::Receive { socket: to });
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(received, bytes);
    express
}

/// The same between two polls, to an express socket that receives.
fn pass_as_express(reactor: &mut Reactor, from: SocketId, bytes: &[u8]) -> usize {
    send(reactor, 2, from, bytes);
    let (mut sent, mut express) = (Vec::new(), Vec::new());
    reactor.poll(WaitLimit::NoWait, &mut sent);
    assert!(matches!(sent[..], [ReactorCompletion { outcome: Outcome::Sent { .. }, .. }]));
    let limit = reactor.now() + Duration::from_secs(20);
    while !reactor.has_express() {
        assert!(reactor.now() < limit, "nothing came");
    }
    reactor.poll_express(&mut express);
    let [ReactorCompletion { outcome: Outcome::Received { buffer, len }, .. }] = &express[..]
    else {
        panic!("{express:?}");
    };
    assert_eq!(&buffer[..*len], bytes);
    1
}

pub(crate) fn what_comes_on_an_express_socket_is_handed_out_apart(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (_, client, server) = connection(&mut reactor);
    assert!(!reactor.has_express());
    reactor.set_express(server, true).unwrap();
    // In simulated time what comes is split, and may come with the next poll.
    let is_real = reactor.driver_name() != "simulated";
    let mut express = 0;
    for round in 0..100_u8 {
        reactor.submit(token(1), Operation::Receive { socket: server });
        // The first attempt finds nothing, and the socket is watched.
        reactor.poll(WaitLimit::NoWait, &mut Vec::new());
        express += match is_real {
            true => pass_as_express(&mut reactor, client, &[round; 100]),
            false => pass(&mut reactor, [client, server], &[round; 100]),
        };
    }
    assert!(if is_real { express == 100 } else { express > 0 }, "{express}");
    reactor.submit(token(1), Operation::Receive { socket: server });
    reactor.poll(WaitLimit::NoWait, &mut Vec::new());
    reactor.close(server);
    let mut completions = Vec::new();
    reactor.poll(WaitLimit::NoWait, &mut completions);
    let [ReactorCompletion { outcome: Outcome::Cancelled { .. }, .. }] = completions[..] else {
        panic!("{completions:?}");
    };
    assert!(!reactor.has_express());
    assert!(reactor.set_express(server, true).is_err(), "there is no such socket");
}

pub(crate) fn nothing_is_lost_when_a_socket_changes_sides(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (_, client, server) = connection(&mut reactor);
    for round in 0..200_u8 {
        if round % 2 == 0 {
            reactor.set_express(server, round % 4 == 0).unwrap();
        }
        reactor.submit(token(1), Operation::Receive { socket: server });
        if round % 3 == 0 {
            reactor.poll(WaitLimit::NoWait, &mut Vec::new());
        }
        if round % 5 == 0 {
            reactor.set_express(server, round % 10 == 0).unwrap();
        }
        pass(&mut reactor, [client, server], &[round; 64]);
    }
}

/// Reads and writes, while others are under way, also where the reactor sleeps until they end.
pub(crate) fn what_files_and_timers_have_for_express_sockets_is_handed_out_apart(
    driver: &impl Driver,
) {
    let mut reactor = driver.reactor();
    let (file, _outside) = driver.file(&mut reactor);
    let has_files = reactor.driver_name() != "epoll";
    let write = |reactor: &mut Reactor, tag: u32, is_express: bool| {
        let mut buffer = reactor.pool().take(4096).unwrap();
        buffer.copy_from_slice(&pattern(u64::from(tag), 4096));
        if is_express {
            reactor.begin_express();
        }
        assert_eq!(reactor.is_express(), is_express);
        let (offset, range) = (u64::from(tag) * 4096, 0..4096);
        reactor.submit(token(tag), Operation::Write { file, offset, buffer, range, durable: true });
        reactor.end_express();
        assert!(!reactor.is_express());
    };
    for round in 0..50 {
        write(&mut reactor, 2, false);
        write(&mut reactor, 1, true);
        if round % 2 == 0 {
            reactor.set_express_timer(token(3), reactor.now() + Duration::from_micros(200));
        }
        // It does not come.
        reactor.set_express_timer(token(4), reactor.now());
        reactor.clear_timer(token(4));
        let mut left = if round % 2 == 0 { vec![1, 2, 3] } else { vec![1, 2] };
        while !left.is_empty() {
            for (completion, is_express) in next(&mut reactor) {
                let tag = completion.token.tag;
                assert!(left.contains(&tag), "{tag} comes twice or from nowhere");
                left.retain(|one| *one != tag);
                let expected = if tag == 1 { has_files } else { tag == 3 };
                assert_eq!(is_express, expected, "{tag}");
                match completion.outcome {
                    Outcome::Transferred { buffer } => assert!(tag < 3 && buffer.len() == 4096),
                    Outcome::Timer => assert_eq!(tag, 3),
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(!reactor.has_express());
    }
}

/// Bytes that came before a socket became express, or before it ceased to be, are received.
pub(crate) fn what_has_come_before_is_received(driver: &impl Driver) {
    for is_express in [true, false] {
        let mut reactor = driver.reactor();
        let (_, client, server) = connection(&mut reactor);
        reactor.set_express(server, !is_express).unwrap();
        reactor.submit(token(1), Operation::Receive { socket: server });
        reactor.poll(WaitLimit::NoWait, &mut Vec::new());
        send(&mut reactor, 2, client, b"bytes");
        let mut completions = Vec::new();
        reactor.poll(WaitLimit::NoWait, &mut completions);
        reactor.set_express(server, is_express).unwrap();
        while completions.len() < 2 {
            completions.extend(next(&mut reactor).into_iter().map(|(completion, _)| completion));
        }
        let is_received = |it: &ReactorCompletion| matches!(it.outcome, Outcome::Received { .. });
        assert_eq!(completions.iter().filter(|it| is_received(it)).count(), 1, "{completions:?}");
    }
}

pub(crate) fn others_send_in_slices_beside_an_express_socket(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (_, _, express) = connection(&mut reactor);
    let (_, client, server) = connection(&mut reactor);
    let bytes = pattern(5, LONG);
    for (round, is_express) in [false, true, true].into_iter().enumerate() {
        reactor.set_express(express, is_express).unwrap();
        let mut buffer = reactor.pool().take(LONG).unwrap();
        buffer.copy_from_slice(&bytes);
        let mut message = Message::new();
        message.bytes(b"head");
        message.buffer(buffer, 0..LONG);
        reactor.submit(token(1), Operation::Send { socket: server, message });
        // It goes on by itself, too.
        if round == 2 {
            while reactor.continue_sends() {}
        }
        let (mut received, mut sent) = (Vec::new(), 0);
        reactor.submit(token(2), Operation::Receive { socket: client });
        while received.len() < LONG + 4 || sent == 0 {
            for completion in wait_for(&mut reactor, 1) {
                match completion.outcome {
                    Outcome::Sent { message } => {
                        assert_eq!(message.sent(), LONG + 4);
                        sent += 1;
                    }
                    Outcome::Received { buffer, len } => {
                        received.extend_from_slice(&buffer[..len]);
                        if received.len() < LONG + 4 {
                            reactor.submit(token(2), Operation::Receive { socket: client });
                        }
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!((&received[..4], sent), (&b"head"[..], 1));
        assert!(received[4..] == bytes[..], "the bytes, in their order");
    }
}
