//! Cases about having too little of something.

use crate::harness::{Driver, any_address, assert_quiet, connection, outcome_of, token, wait_for};
use std::fs::File;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;
use weft_reactor::{
    Config, Message, Operation, Outcome, WaitLimit, descriptors_in_use, set_descriptor_limit,
};

/// Says to the child that it is the child.
const CHILD: &str = "WEFT_TEST_FEW_DESCRIPTORS";

/// The limit is the whole process's, so it is lowered in a process of this test's own.
pub(crate) fn running_out_of_descriptors(driver: &impl Driver) {
    if std::env::var_os(CHILD).is_some() {
        return with_few_descriptors(driver);
    }
    let name = std::thread::current().name().unwrap().to_owned();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

fn with_few_descriptors(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let listener = reactor.listen(any_address()).unwrap();
    let address = reactor.local_address(listener).unwrap();
    reactor.submit(token(1), Operation::Accept { listener });
    assert_quiet(&mut reactor, Duration::from_millis(5));
    // Just enough for three: that there is no room for a fourth is no failure, nobody waits.
    set_descriptor_limit(64).unwrap();
    let mut others: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    others.truncate(others.len() - 6);
    let few: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    for completion in wait_for(&mut reactor, 3) {
        assert!(matches!(completion.outcome, Outcome::Accepted { .. }), "{completion:?}");
    }
    assert!(File::open("/dev/null").is_err(), "there was room for more");
    assert_quiet(&mut reactor, Duration::from_millis(20));
    drop(others);
    drop(few);
    // Room for the clients, but for their other ends only in part.
    set_descriptor_limit(256).unwrap();
    let room = 256 - descriptors_in_use().unwrap();
    let clients: Vec<_> = (0..room - 20).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut servers = Vec::new();
    let error = loop {
        let mut failed = None;
        for completion in wait_for(&mut reactor, 1) {
            match completion.outcome {
                Outcome::Accepted { socket, .. } => servers.push(socket),
                Outcome::Failed { error, .. } => failed = Some(error),
                other => panic!("{other:?}"),
            }
        }
        if let Some(error) = failed {
            break error;
        }
    };
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
    assert!(servers.len() >= 15, "{}", servers.len());
    // It failed once and is quiet until it is asked again.
    assert_quiet(&mut reactor, Duration::from_millis(20));
    reactor.submit(token(1), Operation::Accept { listener });
    assert!(matches!(outcome_of(&mut reactor, 1), Outcome::Failed { .. }));
    // With room again, those who waited in the backlog come in without knocking once more.
    while servers.len() > 5 {
        reactor.close(servers.pop().unwrap());
    }
    reactor.submit(token(1), Operation::Accept { listener });
    let accepted = wait_for(&mut reactor, 10);
    let accepted = accepted.iter().filter(|it| matches!(it.outcome, Outcome::Accepted { .. }));
    assert!(accepted.count() >= 9);
    assert!(clients.len() > 100);
}

/// One pair keeps the reactor busy with small messages; another's bytes must get through.
pub(crate) fn spinning_does_not_starve_cold_sockets(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (_, client, server) = connection(&mut reactor);
    let (_, cold_client, cold_server) = connection(&mut reactor);
    reactor.submit(token(100), Operation::Receive { socket: cold_server });
    assert_quiet(&mut reactor, Duration::from_millis(5));
    let send = |reactor: &mut weft_reactor::Reactor, tag, socket, mut message: Message| {
        message.clear();
        message.bytes(&[7; 64]);
        reactor.submit(token(tag), Operation::Send { socket, message });
    };
    reactor.submit(token(1), Operation::Receive { socket: server });
    reactor.submit(token(2), Operation::Receive { socket: client });
    send(&mut reactor, 3, client, Message::new());
    let mut completions = Vec::new();
    let mut rounds = 0u32;
    let mut cold_at = None;
    while cold_at.is_none() {
        if rounds == 1000 {
            send(&mut reactor, 101, cold_client, Message::new());
        }
        assert!(rounds < 10_000_000, "the cold socket starves");
        reactor.poll(WaitLimit::NoWait, &mut completions);
        for completion in completions.drain(..) {
            match (completion.token.tag, completion.outcome) {
                (1, Outcome::Received { .. }) => {
                    rounds += 1;
                    reactor.submit(token(1), Operation::Receive { socket: server });
                    send(&mut reactor, 4, server, Message::new());
                }
                (2, Outcome::Received { .. }) => {
                    reactor.submit(token(2), Operation::Receive { socket: client });
                    send(&mut reactor, 3, client, Message::new());
                }
                (100, Outcome::Received { .. }) => cold_at = Some(rounds),
                (3 | 4 | 101, Outcome::Sent { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Far more small requests at once than the pool has receive buffers for.
pub(crate) fn a_crowd_of_small_requests_fits_in_the_pool(driver: &impl Driver) {
    let config = Config { pool_bytes: 4 << 20, receive_bytes: 256 << 10, ..Config::default() };
    let mut reactor = driver.with(config);
    let pairs: Vec<_> = (0..200)
        .map(|_| {
            let (listener, client, server) = connection(&mut reactor);
            reactor.close_listener(listener);
            (client, server)
        })
        .collect();
    for (n, (client, _)) in (0..).zip(&pairs) {
        let mut message = Message::new();
        message.bytes(&[7; 72]);
        reactor.submit(token(n), Operation::Send { socket: *client, message });
    }
    wait_for(&mut reactor, pairs.len());
    for (n, (_, server)) in (1000..).zip(&pairs) {
        reactor.submit(token(n), Operation::Receive { socket: *server });
    }
    // All at the same time, held by whoever gets them.
    let received = wait_for(&mut reactor, pairs.len());
    assert!(received.iter().all(|it| matches!(it.outcome, Outcome::Received { .. })));
    drop(received);
    assert_eq!(reactor.pool().available(), reactor.pool().capacity());
}
