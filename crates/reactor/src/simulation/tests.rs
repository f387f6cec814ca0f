use super::*;
use crate::{
    ListenerId, Marking, Message, Operation, Outcome, Owner, Reactor, ReactorCompletion, SocketId,
    Token, WaitLimit,
};
use std::collections::BTreeMap;
use std::io::ErrorKind;

fn token(tag: u32) -> Token {
    Token::new(Owner(1), tag)
}

fn message(bytes: &[u8]) -> Message {
    let mut message = Message::new();
    message.bytes(bytes);
    message
}

/// Polls all reactors until the world has nothing more to offer; what completed where.
fn run(world: &World, reactors: &mut [Reactor]) -> Vec<(usize, ReactorCompletion)> {
    let mut all = Vec::new();
    let mut completions = Vec::new();
    loop {
        for (n, reactor) in reactors.iter_mut().enumerate() {
            reactor.poll(WaitLimit::NoWait, &mut completions);
            all.extend(completions.drain(..).map(|completion| (n, completion)));
        }
        if !world.advance() {
            return all;
        }
    }
}

/// A server's and a client's reactor with a connection: (client, server).
fn connected(world: &World) -> ([Reactor; 2], SocketId, SocketId, ListenerId) {
    let mut reactors = [Reactor::simulated(world), Reactor::simulated(world)];
    let address = "10.0.0.1:4420".parse().unwrap();
    let listener = reactors[1].listen(address).unwrap();
    reactors[1].submit(token(1), Operation::Accept { listener });
    reactors[0].submit(
        token(2),
        Operation::Connect { address, local: None, timeout: None, marking: Marking::default() },
    );
    let (mut client, mut server) = (None, None);
    for (_, completion) in run(world, &mut reactors) {
        match completion.outcome {
            Outcome::Accepted { socket, .. } => server = Some(socket),
            Outcome::Connected { socket } => client = Some(socket),
            other => panic!("{other:?}"),
        }
    }
    (reactors, client.unwrap(), server.unwrap(), listener)
}

fn rough() -> NetworkConditions {
    NetworkConditions {
        jitter: Duration::from_micros(300),
        split_probability: 0.5,
        reset_probability: 0.01,
        silence_probability: 0.002,
        refusal_probability: 0.1,
        window_bytes: 1000,
        ..NetworkConditions::default()
    }
}

/// Clients that connect, send until something goes wrong, and try again; a server that sends
/// everything back.
struct ConnectLoad {
    server: Reactor,
    client: Reactor,
    /// By number: clients from 1, servers from 1000 in steps of two.
    ends: BTreeMap<u32, SocketId>,
    next: u32,
    /// What happened, in order.
    log: Vec<String>,
}

impl ConnectLoad {
    const ADDRESS: &str = "[::1]:4420";

    fn connect(&mut self, n: u32) {
        let address = Self::ADDRESS.parse().unwrap();
        let timeout = Some(Duration::from_millis(5));
        self.client.submit(
            token(n),
            Operation::Connect { address, local: None, timeout, marking: Marking::default() },
        );
    }

    fn server_turn(&mut self) {
        let mut completions = Vec::new();
        self.server.poll(WaitLimit::NoWait, &mut completions);
        for completion in completions {
            self.log.push(format!("server {completion:?}"));
            let tag = completion.token.tag;
            match completion.outcome {
                Outcome::Accepted { socket, .. } => {
                    self.ends.insert(self.next, socket);
                    self.server.submit(token(self.next), Operation::Receive { socket });
                    self.next += 2;
                }
                Outcome::Received { buffer, len } if len > 0 => {
                    let socket = self.ends[&tag];
                    let mut message = Message::new();
                    message.buffer(buffer, 0..len);
                    self.server.submit(token(tag + 1), Operation::Send { socket, message });
                }
                Outcome::Sent { .. } => {
                    let socket = self.ends[&(tag - 1)];
                    self.server.submit(token(tag - 1), Operation::Receive { socket });
                }
                Outcome::Received { .. } | Outcome::Failed { .. } => {
                    if let Some(socket) = self.ends.remove(&(tag & !1)) {
                        self.server.close(socket);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn client_turn(&mut self) {
        let mut completions = Vec::new();
        self.client.poll(WaitLimit::NoWait, &mut completions);
        for completion in completions {
            self.log.push(format!("client {completion:?}"));
            let n = completion.token.tag % 10;
            match completion.outcome {
                Outcome::Connected { socket } => {
                    self.ends.insert(n, socket);
                    self.client.submit(token(10 + n), Operation::Receive { socket });
                    let message = message(&[7; 2500]);
                    self.client.submit(token(20 + n), Operation::Send { socket, message });
                }
                Outcome::Received { len, .. } if len > 0 => {
                    let socket = self.ends[&n];
                    self.client.submit(token(10 + n), Operation::Receive { socket });
                }
                Outcome::Sent { message } => {
                    // Unless it was closed in the same turn.
                    if let Some(&socket) = self.ends.get(&n) {
                        self.client.submit(token(20 + n), Operation::Send { socket, message });
                    }
                }
                Outcome::Cancelled { .. } => {}
                Outcome::Received { .. } | Outcome::Failed { .. } => {
                    if let Some(socket) = self.ends.remove(&n) {
                        self.client.close(socket);
                    }
                    if completion.token.tag < 20 {
                        self.connect(n);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn end(mut self) -> Vec<String> {
        let mut completions = Vec::new();
        for (n, socket) in self.ends {
            let reactor = if n < 1000 { &mut self.client } else { &mut self.server };
            reactor.close(socket);
            reactor.poll(WaitLimit::NoWait, &mut completions);
        }
        drop(completions);
        for reactor in [&self.server, &self.client] {
            let pool = reactor.pool();
            assert_eq!(pool.available(), pool.capacity(), "buffers are held by nobody");
        }
        self.log
    }
}

fn load(seed: u64) -> (u64, Vec<String>) {
    let world = World::new(seed, rough());
    let mut load = ConnectLoad {
        server: Reactor::simulated(&world),
        client: Reactor::simulated(&world),
        ends: BTreeMap::new(),
        next: 1000,
        log: Vec::new(),
    };
    let listener = load.server.listen(ConnectLoad::ADDRESS.parse().unwrap()).unwrap();
    load.server.submit(token(0), Operation::Accept { listener });
    (1..=5).for_each(|n| load.connect(n));
    for _ in 0..3000 {
        load.server_turn();
        load.client_turn();
        world.advance();
    }
    (world.fingerprint(), load.end())
}

#[test]
fn the_same_seed_is_the_same_run() {
    let (fingerprint, log) = load(0);
    assert!(log.len() > 100, "{}", log.len());
    for kind in ["Accepted", "Connected", "Received", "Sent", "ConnectionReset", "Refused"] {
        assert!(log.iter().any(|line| line.contains(kind)), "no {kind} in it");
    }
    assert_eq!(load(0), (fingerprint, log));
    assert_ne!(load(1).0, fingerprint);
}

#[test]
fn bytes_stay_in_order_however_they_are_cut() {
    for seed in 0..20 {
        let conditions = NetworkConditions {
            reset_probability: 0.0,
            silence_probability: 0.0,
            refusal_probability: 0.0,
            ..rough()
        };
        let world = World::new(seed, conditions);
        let (mut reactors, client, server, _) = connected(&world);
        let bytes: Vec<u8> = (0..20_000u32).map(|n| n.to_le_bytes()[n as usize % 2]).collect();
        let operation = Operation::Send { socket: client, message: message(&bytes) };
        reactors[0].submit(token(3), operation);
        let mut received = Vec::new();
        let mut pieces = 0;
        while received.len() < bytes.len() {
            reactors[1].submit(token(4), Operation::Receive { socket: server });
            for (_, completion) in run(&world, &mut reactors) {
                if let Outcome::Received { buffer, .. } = completion.outcome {
                    received.extend_from_slice(&buffer);
                    pieces += 1;
                }
            }
        }
        assert!(received == bytes);
        assert!(pieces > 20, "{pieces}");
    }
}

#[test]
fn a_silent_connection_looks_alive_to_both() {
    let world = World::new(1, NetworkConditions::default());
    let (mut reactors, client, server, _) = connected(&world);
    let address = reactors[0].local_address(client).unwrap();
    assert!(world.drop_silently(address));
    assert!(!world.drop_silently("9.9.9.9:9".parse().unwrap()));
    reactors[1].submit(token(1), Operation::Receive { socket: server });
    reactors[0].submit(token(2), Operation::Send { socket: client, message: message(b"?") });
    reactors[0].submit(token(3), Operation::Receive { socket: client });
    let happened = run(&world, &mut reactors);
    assert!(matches!(happened[..], [(0, ReactorCompletion { outcome: Outcome::Sent { .. }, .. })]));
    reactors[0].close(client);
    let happened = run(&world, &mut reactors);
    assert!(matches!(
        happened[..],
        [(0, ReactorCompletion { outcome: Outcome::Cancelled { .. }, .. })]
    ));
}

/// What a server has received, after the client's process has ended in an outage, and whether the
/// server has noticed the end.
fn received_after_death(resets_at_death: bool) -> (usize, bool) {
    let world = World::new(1, NetworkConditions::default());
    world.set_resets_at_death(resets_at_death);
    let ([mut client, mut server], socket, accepted, _) = connected(&world);
    world.set_outage("10.0.0.1".parse().unwrap(), true);
    client.submit(token(1), Operation::Send { socket, message: message(b"late") });
    world.pass(Duration::from_millis(100));
    drop(client);
    world.pass(Duration::from_millis(100));
    world.set_outage("10.0.0.1".parse().unwrap(), false);
    let mut received = 0;
    loop {
        server.submit(token(2), Operation::Receive { socket: accepted });
        match run(&world, std::slice::from_mut(&mut server)).pop().map(|it| it.1.outcome) {
            Some(Outcome::Received { len, .. }) if len > 0 => received += len,
            Some(Outcome::Received { .. }) => break,
            None => return (received, false),
            other => panic!("{other:?}"),
        }
    }
    assert!(world.now() > Duration::from_millis(200) && world.now() < Duration::from_millis(401));
    (received, true)
}

#[test]
fn what_a_process_has_sent_arrives_after_an_outage_and_a_reset_does_not() {
    assert_eq!(received_after_death(false), (4, true));
    assert_eq!(received_after_death(true), (0, false));
}

#[test]
fn a_connection_is_made_after_an_outage() {
    let world = World::new(1, NetworkConditions::default());
    let (mut reactors, _, _, listener) = connected(&world);
    let address = reactors[1].local_address(listener).unwrap();
    world.set_outage(address.ip(), true);
    let marking = Marking::default();
    let connect = Operation::Connect { address, local: None, timeout: None, marking };
    reactors[0].submit(token(2), connect);
    world.pass(Duration::from_millis(1500));
    world.set_outage(address.ip(), false);
    let happened = run(&world, &mut reactors);
    assert_eq!(happened.len(), 2, "{happened:?}");
    assert!(world.now() > Duration::from_secs(2), "{:?}", world.now());
}

#[test]
fn a_reset_is_seen_at_both_ends() {
    let world = World::new(1, NetworkConditions::default());
    let (mut reactors, client, server, _) = connected(&world);
    reactors[0].submit(token(1), Operation::Receive { socket: client });
    reactors[1].submit(token(1), Operation::Receive { socket: server });
    assert!(world.reset_connection(reactors[0].local_address(client).unwrap()));
    let happened = run(&world, &mut reactors);
    assert_eq!(happened.len(), 2);
    for (_, completion) in happened {
        match completion.outcome {
            Outcome::Failed { error, .. } => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn sockets_run_out_and_come_back() {
    let world = World::new(1, NetworkConditions::default());
    let (mut reactors, _, server, listener) = connected(&world);
    world.set_socket_limit(Some(2));
    let address = reactors[1].local_address(listener).unwrap();
    reactors[0].submit(
        token(5),
        Operation::Connect { address, local: None, timeout: None, marking: Marking::default() },
    );
    let failed = |happened: Vec<(usize, ReactorCompletion)>| {
        happened
            .iter()
            .any(|(n, completion)| *n == 1 && matches!(completion.outcome, Outcome::Failed { .. }))
    };
    assert!(failed(run(&world, &mut reactors)), "accepting fails once");
    assert!(run(&world, &mut reactors).is_empty());
    reactors[1].close(server);
    reactors[1].submit(token(6), Operation::Accept { listener });
    let happened = run(&world, &mut reactors);
    assert!(happened.iter().any(|it| matches!(it.1.outcome, Outcome::Accepted { .. })));
    reactors[0].submit(
        token(7),
        Operation::Connect { address, local: None, timeout: None, marking: Marking::default() },
    );
    let happened = run(&world, &mut reactors);
    assert!(matches!(
        happened[..],
        [(0, ReactorCompletion { outcome: Outcome::Failed { .. }, .. })]
    ));
}

#[test]
fn a_connect_has_a_limit() {
    let conditions =
        NetworkConditions { latency: Duration::from_secs(9), ..NetworkConditions::default() };
    let world = World::new(1, conditions);
    let mut reactor = Reactor::simulated(&world);
    let address = "10.0.0.1:4420".parse().unwrap();
    let timeout = Some(Duration::from_secs(1));
    reactor.submit(
        token(1),
        Operation::Connect { address, local: None, timeout, marking: Marking::default() },
    );
    let mut completions = Vec::new();
    reactor.poll(WaitLimit::Sleep, &mut completions);
    match completions.remove(0).outcome {
        Outcome::Failed { error, .. } => assert_eq!(error.kind(), ErrorKind::TimedOut),
        other => panic!("{other:?}"),
    }
    assert_eq!(world.now(), Duration::from_secs(1));
    // The late answer is nobody's any more.
    assert!(run(&world, &mut [reactor]).is_empty());
}

#[test]
fn a_reactor_that_ends_closes_its_connections() {
    let world = World::new(1, NetworkConditions::default());
    let ([mut client, server], socket, _, listener) = connected(&world);
    let address = server.local_address(listener).unwrap();
    client.submit(token(1), Operation::Receive { socket });
    drop(server);
    let mut completions = Vec::new();
    client.poll(WaitLimit::Sleep, &mut completions);
    assert!(matches!(completions[0].outcome, Outcome::Received { len: 0, .. }));
    client.submit(
        token(2),
        Operation::Connect { address, local: None, timeout: None, marking: Marking::default() },
    );
    completions.clear();
    client.poll(WaitLimit::Sleep, &mut completions);
    assert!(matches!(completions[0].outcome, Outcome::Failed { .. }));
}

#[test]
fn a_crash_fails_what_is_in_flight_and_loses_what_is_volatile() {
    let world = World::new(1, NetworkConditions::default());
    let mut reactor = Reactor::simulated(&world);
    let under = world.add_file(1 << 20);
    let file = reactor.add_file(under, false);
    let write = |reactor: &mut Reactor, tag, offset, durable| {
        let mut buffer = reactor.pool().take(512).unwrap();
        buffer.fill(7);
        let operation = Operation::Write { file, offset, buffer, range: 0..512, durable };
        reactor.submit(token(tag), operation);
    };
    write(&mut reactor, 1, 0, false);
    write(&mut reactor, 2, 4096, true);
    assert_eq!(run(&world, std::slice::from_mut(&mut reactor)).len(), 2);
    reactor.submit(token(3), Operation::Sync { file });
    assert_eq!(run(&world, std::slice::from_mut(&mut reactor)).len(), 1);
    write(&mut reactor, 4, 8192, false);
    assert_eq!(run(&world, std::slice::from_mut(&mut reactor)).len(), 1);
    write(&mut reactor, 5, 512, true);
    world.crash_files();
    let happened = run(&world, std::slice::from_mut(&mut reactor));
    assert!(matches!(
        happened[..],
        [(0, ReactorCompletion { outcome: Outcome::Failed { buffer: Some(_), .. }, .. })]
    ));
    let mut bytes = vec![0; 1 << 20];
    world.peek(under, 0, &mut bytes);
    let written: Vec<_> = (0..bytes.len()).step_by(512).filter(|at| bytes[*at] == 7).collect();
    assert_eq!(written, [0, 4096]);
}

#[test]
fn files_fail_now_and_then() {
    let world = World::new(1, NetworkConditions::default());
    let conditions = StorageConditions { error_probability: 0.3, ..StorageConditions::default() };
    world.set_storage(conditions);
    let mut reactor = Reactor::simulated(&world);
    let file = reactor.add_file(world.add_file(0), false);
    (0..100).for_each(|n| reactor.submit(token(n), Operation::Sync { file }));
    let happened = run(&world, std::slice::from_mut(&mut reactor));
    let failed = happened
        .iter()
        .filter(|(_, completion)| matches!(completion.outcome, Outcome::Failed { .. }))
        .count();
    assert_eq!(happened.len(), 100);
    assert!((15..45).contains(&failed), "{failed}");
}

#[test]
fn timers_of_several_reactors_take_turns() {
    let world = World::new(1, NetworkConditions::default());
    let mut reactors = [Reactor::simulated(&world), Reactor::simulated(&world)];
    for (n, reactor) in reactors.iter_mut().enumerate() {
        for at in 0..3u64 {
            let at = Duration::from_millis(1 + 2 * at + n as u64);
            reactor.set_timer(token(u32::try_from(at.as_millis()).unwrap()), at);
        }
    }
    let happened = run(&world, &mut reactors);
    let order: Vec<_> = happened.iter().map(|(n, it)| (*n, it.token.tag)).collect();
    assert_eq!(order, [(0, 1), (1, 2), (0, 3), (1, 4), (0, 5), (1, 6)]);
    assert_eq!(world.now(), Duration::from_millis(6));
}

#[test]
#[should_panic(expected = "waits for ever")]
fn a_wait_without_end_is_loud() {
    let world = World::new(1, NetworkConditions::default());
    let mut reactor = Reactor::simulated(&world);
    reactor.poll(WaitLimit::Sleep, &mut Vec::new());
}
