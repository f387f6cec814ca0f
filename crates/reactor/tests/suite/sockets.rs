//! Cases about sockets.

use crate::harness::{
    Driver, any_address, assert_quiet, connection, outcome_of, pattern, token, wait_for,
};
use std::io::ErrorKind;
use std::time::Duration;
use weft_reactor::{
    Config, Life, Marking, Message, Operation, Outcome, Reactor, SocketId, WaitLimit,
};

fn message(bytes: &[u8]) -> Message {
    let mut message = Message::new();
    message.bytes(bytes);
    message
}

/// Sends `bytes` from one end and receives them on the other, whatever the pieces.
fn transfer(reactor: &mut Reactor, from: SocketId, to: SocketId, message: Message) -> Vec<u8> {
    let expected = message.len();
    let mut received = Vec::new();
    let mut is_sent = false;
    reactor.submit(token(1), Operation::Receive { socket: to });
    reactor.submit(token(2), Operation::Send { socket: from, message });
    while received.len() < expected || !is_sent {
        for completion in wait_for(reactor, 1) {
            match completion.outcome {
                Outcome::Received { buffer, len } => {
                    assert_eq!(buffer.len(), len);
                    assert_ne!(len, 0);
                    received.extend_from_slice(&buffer);
                    if received.len() < expected {
                        reactor.submit(token(1), Operation::Receive { socket: to });
                    }
                }
                Outcome::Sent { message } => {
                    assert_eq!(message.len(), expected);
                    is_sent = true;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    received
}

pub(crate) fn echo_of_many_sizes(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (_, client, server) = connection(&mut reactor);
    for len in [1, 2, 72, 4096, 4097, 65_536, 300_000] {
        let bytes = pattern(len as u64, len);
        let there = transfer(&mut reactor, client, server, message(&bytes));
        assert!(there == bytes, "{len} bytes there");
        let back = transfer(&mut reactor, server, client, message(&there));
        assert!(back == bytes, "{len} bytes back");
    }
    assert_eq!(reactor.pool().available(), reactor.pool().capacity());
}

pub(crate) fn peers_know_each_other(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (listener, client, server) = connection(&mut reactor);
    let address = reactor.local_address(listener).unwrap();
    assert_ne!(address.port(), 0);
    assert_eq!(reactor.peer_address(client).unwrap(), address);
    assert_eq!(reactor.local_address(server).unwrap(), address);
    let from = reactor.local_address(client).unwrap();
    assert_eq!(reactor.peer_address(server).unwrap(), from);
    reactor.close(client);
    assert!(reactor.peer_address(client).is_err());
}

pub(crate) fn a_large_message_goes_out_in_pieces(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (_, client, server) = connection(&mut reactor);
    // More pieces than one system call takes, and more bytes than the kernel holds.
    let mut message = Message::new();
    let mut expected = Vec::new();
    for piece in 0..1500u64 {
        let bytes = pattern(piece, 5000);
        expected.extend_from_slice(&bytes);
        if piece % 2 == 0 {
            message.bytes(&bytes);
        } else {
            let mut buffer = reactor.pool().take(5000).unwrap();
            buffer.copy_from_slice(&bytes);
            message.buffer(buffer, 0..5000);
        }
    }
    assert!(transfer(&mut reactor, client, server, message) == expected);
    assert_eq!(reactor.pool().available(), reactor.pool().capacity());
}

pub(crate) fn receive_into_a_given_range(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (_, client, server) = connection(&mut reactor);
    let bytes = pattern(5, 10_000);
    let mut buffer = reactor.pool().take(20_000).unwrap();
    buffer.fill(0xee);
    reactor.submit(token(3), Operation::Send { socket: client, message: message(&bytes) });
    let mut at = 500;
    let mut is_sent = false;
    reactor.submit(token(4), Operation::ReceiveInto { socket: server, buffer, range: at..10_500 });
    let buffer = loop {
        let mut whole = None;
        for completion in wait_for(&mut reactor, 1) {
            match completion.outcome {
                Outcome::Sent { .. } => is_sent = true,
                Outcome::ReceivedInto { buffer, len } => {
                    assert!(len > 0 && at + len <= 10_500);
                    at += len;
                    if at == 10_500 {
                        whole = Some(buffer);
                    } else {
                        let range = at..10_500;
                        let socket = server;
                        let operation = Operation::ReceiveInto { socket, buffer, range };
                        reactor.submit(token(4), operation);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        if let Some(buffer) = whole {
            break buffer;
        }
    };
    assert!(is_sent || matches!(outcome_of(&mut reactor, 3), Outcome::Sent { .. }));
    assert!(buffer[500..10_500] == bytes);
    assert!(buffer[..500].iter().chain(&buffer[10_500..]).all(|byte| *byte == 0xee));
}

pub(crate) fn end_of_stream_is_an_empty_receive(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (_, client, server) = connection(&mut reactor);
    reactor.submit(token(5), Operation::Send { socket: client, message: message(b"last") });
    assert!(matches!(outcome_of(&mut reactor, 5), Outcome::Sent { .. }));
    reactor.close(client);
    let mut received = Vec::new();
    loop {
        reactor.submit(token(6), Operation::Receive { socket: server });
        match outcome_of(&mut reactor, 6) {
            Outcome::Received { len: 0, .. } => break,
            Outcome::Received { buffer, .. } => received.extend_from_slice(&buffer),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(received, b"last");
    // And again: the end stays the end.
    reactor.submit(token(6), Operation::Receive { socket: server });
    assert!(matches!(outcome_of(&mut reactor, 6), Outcome::Received { len: 0, .. }));
}

pub(crate) fn cancelled_operations_give_back_what_they_hold(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (_, client, server) = connection(&mut reactor);
    reactor.submit(token(1), Operation::Receive { socket: server });
    let buffer = reactor.pool().take(100).unwrap();
    reactor.submit(token(2), Operation::ReceiveInto { socket: client, buffer, range: 0..100 });
    assert_quiet(&mut reactor, Duration::from_millis(20));
    reactor.cancel(token(1));
    assert!(matches!(outcome_of(&mut reactor, 1), Outcome::Cancelled { buffer: None, .. }));
    reactor.cancel(token(2));
    assert!(matches!(outcome_of(&mut reactor, 2), Outcome::Cancelled { buffer: Some(_), .. }));
    reactor.cancel(token(2));
    assert_quiet(&mut reactor, Duration::from_millis(20));
    // A send that cannot go on.
    let large = vec![1; 32 << 20];
    reactor.submit(token(3), Operation::Send { socket: client, message: message(&large) });
    assert_quiet(&mut reactor, Duration::from_millis(20));
    reactor.cancel(token(3));
    let Outcome::Cancelled { message: Some(message), .. } = outcome_of(&mut reactor, 3) else {
        panic!("a cancelled send returns its message");
    };
    assert!(message.sent() > 0 && message.sent() < message.len());
    assert_eq!(reactor.pool().available(), reactor.pool().capacity());
}

pub(crate) fn closing_cancels_what_is_pending(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (_, client, _server) = connection(&mut reactor);
    let buffer = reactor.pool().take(100).unwrap();
    reactor.submit(token(1), Operation::ReceiveInto { socket: client, buffer, range: 0..10 });
    let large = vec![1; 32 << 20];
    reactor.submit(token(2), Operation::Send { socket: client, message: message(&large) });
    assert_quiet(&mut reactor, Duration::from_millis(20));
    reactor.close(client);
    let mut completions = wait_for(&mut reactor, 2);
    completions.sort_by_key(|completion| completion.token);
    assert!(matches!(completions[0].outcome, Outcome::Cancelled { buffer: Some(_), .. }));
    assert!(matches!(completions[1].outcome, Outcome::Cancelled { message: Some(_), .. }));
    drop(completions);
    assert_eq!(reactor.pool().available(), reactor.pool().capacity());
    // What comes too late fails.
    reactor.submit(token(3), Operation::Receive { socket: client });
    assert!(matches!(outcome_of(&mut reactor, 3), Outcome::Failed { .. }));
    reactor.close(client);
    assert_quiet(&mut reactor, Duration::from_millis(10));
}

pub(crate) fn connecting_to_nobody_is_refused(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let listener = reactor.listen(any_address()).unwrap();
    let address = reactor.local_address(listener).unwrap();
    reactor.close_listener(listener);
    reactor.submit(
        token(1),
        Operation::Connect { address, local: None, timeout: None, marking: Marking::default() },
    );
    match outcome_of(&mut reactor, 1) {
        Outcome::Failed { error, .. } => assert_eq!(error.kind(), ErrorKind::ConnectionRefused),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn a_stream_moves_between_reactors(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (_, client, server) = connection(&mut reactor);
    reactor.submit(token(1), Operation::Receive { socket: server });
    assert_quiet(&mut reactor, Duration::from_millis(5));
    reactor.cancel(token(1));
    assert!(matches!(outcome_of(&mut reactor, 1), Outcome::Cancelled { .. }));
    // What is under way when it moves must not be lost.
    reactor.submit(token(2), Operation::Send { socket: client, message: message(b"moving") });
    assert!(matches!(outcome_of(&mut reactor, 2), Outcome::Sent { .. }));
    let stream = reactor.take_stream(server);
    assert!(reactor.local_address(server).is_err());
    let mut other = driver.reactor();
    let server = other.add_stream(stream).unwrap();
    let mut received = Vec::new();
    while received.len() < 6 {
        other.submit(token(3), Operation::Receive { socket: server });
        match outcome_of(&mut other, 3) {
            Outcome::Received { buffer, .. } => received.extend_from_slice(&buffer),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(received, b"moving");
    other.submit(token(4), Operation::Send { socket: server, message: message(b"answer") });
    assert!(matches!(outcome_of(&mut other, 4), Outcome::Sent { .. }));
    reactor.submit(token(5), Operation::Receive { socket: client });
    assert!(matches!(outcome_of(&mut reactor, 5), Outcome::Received { .. }));
}

pub(crate) fn an_empty_pool_delays_receives(driver: &impl Driver) {
    let mut reactor = driver.with(Config { pool_bytes: 4 << 20, ..Config::default() });
    let (_, client, server) = connection(&mut reactor);
    let all = reactor.pool().take(4 << 20).unwrap();
    assert_eq!(reactor.pool().available(), 0);
    reactor.submit(token(1), Operation::Receive { socket: server });
    reactor.submit(token(2), Operation::Send { socket: client, message: message(b"bytes") });
    assert!(matches!(outcome_of(&mut reactor, 2), Outcome::Sent { .. }));
    assert_quiet(&mut reactor, Duration::from_millis(20));
    drop(all);
    assert!(matches!(outcome_of(&mut reactor, 1), Outcome::Received { .. }));
}

pub(crate) fn a_thousand_idle_connections_hold_no_buffer(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let listener = reactor.listen(any_address()).unwrap();
    let address = reactor.local_address(listener).unwrap();
    reactor.submit(token(1), Operation::Accept { listener });
    let mut clients = Vec::new();
    let mut servers = Vec::new();
    for _ in 0..1000 {
        reactor.submit(
            token(2),
            Operation::Connect { address, local: None, timeout: None, marking: Marking::default() },
        );
        for completion in wait_for(&mut reactor, 2) {
            match completion.outcome {
                Outcome::Accepted { socket, .. } => servers.push(socket),
                Outcome::Connected { socket } => clients.push(socket),
                other => panic!("{other:?}"),
            }
        }
    }
    for (n, socket) in (10_000..).zip(&servers) {
        reactor.submit(token(n), Operation::Receive { socket: *socket });
    }
    let mut completions = Vec::new();
    for _ in 0..20 {
        reactor.poll(WaitLimit::NoWait, &mut completions);
    }
    assert!(completions.is_empty());
    assert_eq!(reactor.pool().available(), reactor.pool().capacity());
    // One of them speaks.
    reactor.submit(token(3), Operation::Send { socket: clients[777], message: message(b"x") });
    let tokens: Vec<_> = wait_for(&mut reactor, 2).iter().map(|it| it.token).collect();
    let peer = reactor.local_address(clients[777]).unwrap();
    let position =
        servers.iter().position(|server| reactor.peer_address(*server).unwrap() == peer).unwrap();
    assert!(tokens.contains(&token(10_000 + u32::try_from(position).unwrap())), "{tokens:?}");
}

pub(crate) fn misuse_is_refused_with_everything_given_back(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (_, client, server) = connection(&mut reactor);
    let buffer = reactor.pool().take(100).unwrap();
    let shared = buffer.share();
    reactor.submit(token(1), Operation::ReceiveInto { socket: server, buffer, range: 0..10 });
    assert!(matches!(outcome_of(&mut reactor, 1), Outcome::Failed { buffer: Some(_), .. }));
    reactor.submit(
        token(1),
        Operation::ReceiveInto { socket: server, buffer: shared, range: 90..101 },
    );
    assert!(matches!(outcome_of(&mut reactor, 1), Outcome::Failed { buffer: Some(_), .. }));
    reactor.submit(token(1), Operation::Receive { socket: server });
    reactor.submit(token(2), Operation::Receive { socket: server });
    assert!(matches!(outcome_of(&mut reactor, 2), Outcome::Failed { .. }));
    let large = vec![1; 32 << 20];
    reactor.submit(token(3), Operation::Send { socket: client, message: message(&large) });
    reactor.submit(token(4), Operation::Send { socket: client, message: message(b"second") });
    let refused = wait_for(&mut reactor, 1)
        .into_iter()
        .find(|completion| completion.token == token(4))
        .expect("the second send is refused at once");
    assert!(matches!(refused.outcome, Outcome::Failed { message: Some(_), .. }));
}

pub(crate) fn a_closed_listener_refuses(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let listener = reactor.listen(any_address()).unwrap();
    let address = reactor.local_address(listener).unwrap();
    reactor.submit(token(1), Operation::Accept { listener });
    assert_quiet(&mut reactor, Duration::from_millis(5));
    reactor.close_listener(listener);
    assert!(matches!(outcome_of(&mut reactor, 1), Outcome::Cancelled { .. }));
    // Its address is free again at once.
    let again = reactor.listen(address).unwrap();
    assert_eq!(reactor.local_address(again).unwrap(), address);
}

pub(crate) fn a_dropped_stream_is_closed(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (_, client, server) = connection(&mut reactor);
    drop(reactor.take_stream(server));
    reactor.submit(token(1), Operation::Receive { socket: client });
    // As by the end of a process: the kernel resets it.
    assert!(matches!(
        outcome_of(&mut reactor, 1),
        Outcome::Received { len: 0, .. } | Outcome::Failed { .. }
    ));
}

pub(crate) fn connections_over_ipv6(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let listener = match reactor.listen("[::1]:0".parse().unwrap()) {
        Ok(listener) => listener,
        Err(error) => {
            // A machine without IPv6.
            eprintln!("{error}");
            return;
        }
    };
    let address = reactor.local_address(listener).unwrap();
    assert!(address.is_ipv6());
    reactor.submit(token(1), Operation::Accept { listener });
    reactor.submit(
        token(2),
        Operation::Connect { address, local: None, timeout: None, marking: Marking::default() },
    );
    for completion in wait_for(&mut reactor, 2) {
        match completion.outcome {
            Outcome::Accepted { peer, .. } => assert!(peer.is_ipv6()),
            Outcome::Connected { socket } => {
                assert_eq!(reactor.peer_address(socket).unwrap(), address);
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn a_local_address_can_be_chosen(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let listener = reactor.listen(any_address()).unwrap();
    let address = reactor.local_address(listener).unwrap();
    reactor.submit(token(1), Operation::Accept { listener });
    let local = Some("127.0.0.5:0".parse().unwrap());
    reactor.submit(
        token(2),
        Operation::Connect { address, local, timeout: None, marking: Marking::default() },
    );
    for completion in wait_for(&mut reactor, 2) {
        if let Outcome::Accepted { peer, .. } = completion.outcome {
            assert_eq!(peer.ip().to_string(), "127.0.0.5");
        }
    }
}

pub(crate) fn what_a_connection_sends_can_be_marked(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let listener = reactor.listen(any_address()).unwrap();
    let address = reactor.local_address(listener).unwrap();
    let marking = Marking { tos: Some(0x20), priority: Some(4) };
    reactor.submit(token(1), Operation::Connect { address, local: None, timeout: None, marking });
    let Outcome::Connected { socket } = outcome_of(&mut reactor, 1) else {
        panic!("no connection")
    };
    assert_eq!(reactor.marking(socket).unwrap(), marking);
    let unmarked = Marking::default();
    let connect = Operation::Connect { address, local: None, timeout: None, marking: unmarked };
    reactor.submit(token(2), connect);
    let Outcome::Connected { socket } = outcome_of(&mut reactor, 2) else {
        panic!("no connection")
    };
    assert_eq!(reactor.marking(socket).unwrap().tos, Some(0));
}

pub(crate) fn a_cancelled_connect_leaves_nothing(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let listener = reactor.listen(any_address()).unwrap();
    let address = reactor.local_address(listener).unwrap();
    for _ in 0..20 {
        let timeout = Some(Duration::from_millis(2));
        reactor.submit(
            token(1),
            Operation::Connect { address, local: None, timeout, marking: Marking::default() },
        );
        reactor.cancel(token(1));
        match outcome_of(&mut reactor, 1) {
            // On the loopback interface it may have come about already.
            Outcome::Connected { socket } => reactor.close(socket),
            Outcome::Cancelled { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_quiet(&mut reactor, Duration::from_millis(10));
}

pub(crate) fn a_broken_connection_fails_both_ways(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (_, client, server) = connection(&mut reactor);
    // Something unread makes closing a reset.
    reactor.submit(token(1), Operation::Send { socket: client, message: message(b"unread") });
    assert!(matches!(outcome_of(&mut reactor, 1), Outcome::Sent { .. }));
    assert_quiet(&mut reactor, Duration::from_millis(20));
    reactor.submit(token(2), Operation::Receive { socket: client });
    assert_quiet(&mut reactor, Duration::from_millis(5));
    reactor.close(server);
    match outcome_of(&mut reactor, 2) {
        Outcome::Failed { error, .. } => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        other => panic!("{other:?}"),
    }
    reactor.submit(token(3), Operation::Send { socket: client, message: message(b"late") });
    match outcome_of(&mut reactor, 3) {
        Outcome::Failed { error, message: Some(_), .. } => {
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) fn a_wildcard_takes_both_families(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let Ok(listener) = reactor.listen("[::]:0".parse().unwrap()) else { return };
    let port = reactor.local_address(listener).unwrap().port();
    reactor.submit(token(1), Operation::Accept { listener });
    for host in ["127.0.0.1", "[::1]"] {
        let address = format!("{host}:{port}").parse().unwrap();
        reactor.submit(
            token(2),
            Operation::Connect { address, local: None, timeout: None, marking: Marking::default() },
        );
        let outcomes = wait_for(&mut reactor, 2);
        assert!(outcomes.iter().any(|it| matches!(it.outcome, Outcome::Accepted { .. })));
        assert!(outcomes.iter().any(|it| matches!(it.outcome, Outcome::Connected { .. })));
    }
}

/// With buffers this small every message is cut many times on both sides.
pub(crate) fn tiny_socket_buffers(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let listener = std::net::TcpListener::bind(any_address()).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 2304).unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&client, 4608).unwrap();
    let (server, _) = listener.accept().unwrap();
    let client = reactor.add_stream(client.into()).unwrap();
    let server = reactor.add_stream(server.into()).unwrap();
    let bytes = pattern(9, 400_000);
    assert!(transfer(&mut reactor, client, server, message(&bytes)) == bytes);
    let there = transfer(&mut reactor, server, client, message(&bytes));
    assert!(there == bytes);
}

/// A listener whose backlog is full lets further attempts wait.
pub(crate) fn a_connect_without_answer_times_out(driver: &impl Driver) {
    use rustix::net::{AddressFamily, SocketType};
    let full = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&full, &any_address()).unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let address = rustix::net::getsockname(&full).unwrap().try_into().unwrap();
    let _first = std::net::TcpStream::connect(address).unwrap();
    let mut reactor = driver.reactor();
    let start = reactor.now();
    let timeout = Some(Duration::from_millis(50));
    reactor.submit(
        token(1),
        Operation::Connect { address, local: None, timeout, marking: Marking::default() },
    );
    match outcome_of(&mut reactor, 1) {
        Outcome::Failed { error, .. } => assert_eq!(error.kind(), ErrorKind::TimedOut),
        other => panic!("{other:?}"),
    }
    assert!(reactor.now() >= start + Duration::from_millis(50));
}

/// The readiness that nobody has looked at yet must not keep the socket alive.
pub(crate) fn closing_right_after_bytes_came_is_heard(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    for _ in 0..20 {
        let (listener, client, server) = connection(&mut reactor);
        reactor.close_listener(listener);
        reactor.submit(token(1), Operation::Receive { socket: server });
        reactor.submit(token(2), Operation::Receive { socket: client });
        assert_quiet(&mut reactor, Duration::from_millis(1));
        assert!(!reactor.has_hung_up(client));
        let operation = Operation::Send { socket: client, message: message(b"unheard") };
        reactor.submit(token(3), operation);
        reactor.close(server);
        let mut completions = wait_for(&mut reactor, 3);
        completions.sort_by_key(|completion| completion.token);
        assert!(matches!(completions[0].outcome, Outcome::Cancelled { .. }));
        // The end or a reset, whichever the driver makes of unread bytes.
        assert!(matches!(
            completions[1].outcome,
            Outcome::Received { len: 0, .. } | Outcome::Failed { .. }
        ));
        assert!(matches!(completions[2].outcome, Outcome::Sent { .. }));
        assert!(reactor.has_hung_up(client));
        reactor.close(client);
    }
}

/// What the peer of a reactor's connection receives if the reactor has this end while the kernel
/// still has bytes: how many, and whether they are followed by a reset.
fn received_after(
    driver: &impl Driver,
    accepts: bool,
    end: impl FnOnce(Reactor, SocketId),
) -> (usize, bool) {
    use std::io::Read;
    let mut reactor = driver.reactor();
    let mut peer;
    let socket = if accepts {
        let listener = reactor.listen(any_address()).unwrap();
        let address = reactor.local_address(listener).unwrap();
        reactor.submit(token(1), Operation::Accept { listener });
        peer = std::net::TcpStream::connect(address).unwrap();
        match outcome_of(&mut reactor, 1) {
            Outcome::Accepted { socket, .. } => socket,
            other => panic!("{other:?}"),
        }
    } else {
        let listener = std::net::TcpListener::bind(any_address()).unwrap();
        let address = listener.local_addr().unwrap();
        let marking = Marking::default();
        let connect = Operation::Connect { address, local: None, timeout: None, marking };
        reactor.submit(token(1), connect);
        peer = listener.accept().unwrap().0;
        match outcome_of(&mut reactor, 1) {
            Outcome::Connected { socket } => socket,
            other => panic!("{other:?}"),
        }
    };
    reactor.submit(token(2), Operation::Send { socket, message: message(&[7; UNREAD]) });
    assert!(matches!(outcome_of(&mut reactor, 2), Outcome::Sent { .. }));
    end(reactor, socket);
    let (mut bytes, mut received) = (vec![0; 1 << 16], 0);
    loop {
        match peer.read(&mut bytes) {
            Ok(0) => return (received, false),
            Ok(len) => received += len,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                return (received, true);
            }
        }
    }
}

/// Less than what a socket takes without its peer reading.
const UNREAD: usize = 100_000;

/// Who has ended does not want what it has sent to arrive later: the kernel does not go on sending.
pub(crate) fn the_end_of_a_process_resets_its_connections(driver: &impl Driver) {
    for accepts in [false, true] {
        let (_, is_reset) = received_after(driver, accepts, |reactor, _| drop(reactor));
        assert!(is_reset, "accepts: {accepts}");
        let abort = |mut reactor: Reactor, socket| reactor.abort(socket);
        assert!(received_after(driver, accepts, abort).1, "accepts: {accepts}");
    }
}

/// What was sent before an orderly close arrives, also if the process ends then.
pub(crate) fn an_orderly_close_loses_nothing(driver: &impl Driver) {
    for accepts in [false, true] {
        let close = |mut reactor: Reactor, socket| reactor.close(socket);
        let received = received_after(driver, accepts, close);
        assert_eq!(received, (UNREAD, false), "accepts: {accepts}");
    }
}

/// A peer that sends nothing is asked, and its kernel answers; a peer that sends has shown it.
pub(crate) fn an_idle_peer_shows_that_it_is_alive(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (_, client, server) = connection(&mut reactor);
    let since = reactor.now();
    assert_eq!(reactor.life_since(server, since), Life::Asked);
    while reactor.life_since(server, since) == Life::Asked {
        assert_quiet(&mut reactor, Duration::from_millis(20));
        assert!(reactor.now() < since + Duration::from_secs(5), "nobody asks, or answers");
    }
    assert_eq!(reactor.life_since(server, since), Life::Shown);
    let since = reactor.now();
    assert_quiet(&mut reactor, Duration::from_millis(30));
    assert_eq!(transfer(&mut reactor, client, server, message(b"alive")), b"alive");
    assert_eq!(reactor.life_since(server, since), Life::Shown);
    reactor.close(server);
    assert_eq!(reactor.life_since(server, since), Life::Doubtful);
}
