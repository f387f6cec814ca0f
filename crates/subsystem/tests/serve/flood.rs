//! More peers than there is room for, peers that do nothing, and peers that take nothing: none of
//! them may cost the target what it needs for others. The target is a process of its own here, so
//! that descriptors, memory and processor time are its own.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use weft_nvme::sgl::Descriptor;
use weft_nvme::tcp::{DigestOptions, InitializeConnectionRequest};
use weft_nvme::{NvmOpcode, Wire};
use weft_reactor::monotonic_time;
use weft_transport::CloseReason;

use crate::support::child::{self, ChildTarget, Usage};
use crate::support::peer::{ConnectFields, Peer, read_write};
use crate::support::raw::Raw;
use crate::support::{config, driver_names, pattern, wait_until};

const BLOCK: usize = 4096;

/// A controller and an I/O queue, which has been used.
fn good_host(at: SocketAddr) -> (Peer, Peer) {
    let (admin, controller) = Peer::admin(at);
    let mut io = Peer::io(at, controller, 1);
    use_queue(&mut io);
    (admin, io)
}

fn use_queue(io: &mut Peer) {
    let bytes = pattern(BLOCK, 1);
    io.write(1, 0, 1, &bytes).succeeded();
    assert!(io.read(1, 0, 1, BLOCK).bytes() == bytes);
}

/// Connects and perhaps says something, and stays.
fn idle_peer(at: SocketAddr, number: usize) -> TcpStream {
    let mut stream = TcpStream::connect(at).expect("the kernel's backlog takes it");
    let request = InitializeConnectionRequest::new(0, DigestOptions(0), 0);
    let says: &[u8] = match number % 4 {
        0 => &[],
        1 => &request.bytes()[..100],
        2 => request.bytes(),
        _ => &[0xff; 64],
    };
    // It may be hung up on at any time.
    drop(stream.write_all(says));
    stream
}

/// Whether the target has hung up.
fn is_ended(stream: &TcpStream) -> bool {
    let mut stream = stream;
    stream.set_nonblocking(true).expect("a mode");
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

/// The processor time that the target uses in a while in which nothing is asked of it.
fn idle_share(target: &mut ChildTarget, time: Duration) -> (f64, Usage) {
    let (began, before) = (monotonic_time(), target.usage());
    std::thread::sleep(time);
    let after = target.usage();
    let share = (after.cpu - before.cpu).as_secs_f64() / (monotonic_time() - began).as_secs_f64();
    (share, after)
}

#[test]
fn ten_thousand_unconnected_peers_cost_little_and_delay_no_host() {
    const NAME: &str = "flood::ten_thousand_unconnected_peers_cost_little_and_delay_no_host";
    if child::is_child_of(NAME) {
        let mut config = config(&["memory:8MiB"]);
        // They are to stay as long as the test lasts.
        config.limits.connect_timeout = Duration::from_secs(300);
        return child::serve(config);
    }
    let limit = weft_reactor::raise_descriptor_limit().expect("a limit");
    // The other tests need some, too.
    let count = usize::try_from(limit.saturating_sub(1500)).expect("a count").min(10_000);
    if count < 10_000 {
        eprintln!("REDUCED: {count} idle peers, this process may open {limit} descriptors");
    }
    for driver in driver_names() {
        let mut target = ChildTarget::of(NAME, driver, None);
        let at = target.address;
        let (mut admin, mut io) = good_host(at);
        let before = target.usage();
        let mut idle_peers = Vec::new();
        for number in 0..count {
            idle_peers.push(idle_peer(at, number));
            if number % 1000 == 0 {
                use_queue(&mut io);
            }
        }
        let began = monotonic_time();
        let late = good_host(at);
        let took = monotonic_time() - began;
        assert!(took < Duration::from_secs(5), "the next good host waited {took:?}");
        use_queue(&mut io);
        assert!(admin.controller_status().ready());
        let (share, after) = idle_share(&mut target, Duration::from_secs(1));
        assert!(share < 0.2, "{share:.2} of a processor for peers that send nothing");
        let each = after.resident_kib.saturating_sub(before.resident_kib) * 1024 / count;
        eprintln!(
            "{driver}: {count} peers: {each} bytes each, {} descriptors, {:.3} of a processor, \
             the next host waited {took:?}",
            after.descriptors, share
        );
        assert!(each < 32 * 1024, "{each} bytes for each peer");
        drop(late);
        target.stop();
    }
}

#[test]
fn a_few_descriptors_are_enough() {
    const NAME: &str = "flood::a_few_descriptors_are_enough";
    const LIMIT: usize = 256;
    if child::is_child_of(NAME) {
        let mut config = config(&["memory:8MiB"]);
        config.limits.connect_timeout = Duration::from_secs(300);
        return child::serve(config);
    }
    for driver in driver_names() {
        let mut target = ChildTarget::of(NAME, driver, Some(LIMIT as u64));
        let at = target.address;
        let (mut admin, mut io) = good_host(at);
        // One after the other, so that it is known who came first.
        let mut idle_peers: Vec<_> =
            (0..100).map(|_| Raw::shaken_hands(at, DigestOptions(0), 1)).collect();
        assert!(idle_peers.iter().all(|one| !is_ended(one.stream())), "there is room for these");
        // All at once.
        let later_peers: Vec<_> = (0..600).map(|number| idle_peer(at, number)).collect();
        let began = monotonic_time();
        let late = good_host(at);
        let took = monotonic_time() - began;
        assert!(took < Duration::from_secs(5), "the next good host waited {took:?}");
        // The oldest were shed: all of the first, and of the later_peers some.
        assert!(idle_peers.iter_mut().all(Raw::is_ended), "the oldest go first");
        let left = later_peers.iter().filter(|one| !is_ended(one)).count();
        let most = 3 * LIMIT / 4;
        assert!((1..=most).contains(&left), "{left} of the later_peers are left");
        let newest = Raw::shaken_hands(at, DigestOptions(0), 1);
        assert!(!is_ended(newest.stream()), "the newest stays");
        // Who is connected is not shed, and may go on.
        use_queue(&mut io);
        assert!(admin.controller_status().ready());
        let (share, usage) = idle_share(&mut target, Duration::from_secs(1));
        assert!(share < 0.2, "{share:.2} of a processor, with all descriptors in use");
        assert!(usage.descriptors < LIMIT, "{} descriptors", usage.descriptors);
        eprintln!(
            "{driver}: {LIMIT} descriptors: {} in use, {left} peers of 600 left, {share:.3} of \
             a processor, the next host waited {took:?}",
            usage.descriptors
        );
        drop((later_peers, late));
        target.stop();
    }
}

/// Descriptors may run out before the target expects it, because others in its process use them.
#[test]
fn running_out_of_descriptors_neither_stops_nor_spins() {
    const NAME: &str = "flood::running_out_of_descriptors_neither_stops_nor_spins";
    const LIMIT: usize = 256;
    if child::is_child_of(NAME) {
        let others = [(); LIMIT / 2].map(|()| std::fs::File::open("/dev/null").expect("a file"));
        let mut config = config(&["memory:8MiB"]);
        config.limits.connect_timeout = Duration::from_secs(300);
        child::serve(config);
        return drop(others);
    }
    for driver in driver_names() {
        let mut target = ChildTarget::of(NAME, driver, Some(LIMIT as u64));
        let at = target.address;
        let (mut admin, mut io) = good_host(at);
        let later_peers: Vec<_> = (0..600).map(|number| idle_peer(at, number)).collect();
        let began = monotonic_time();
        let (late, late_io) = good_host(at);
        let took = monotonic_time() - began;
        assert!(took < Duration::from_secs(5), "the next good host waited {took:?}");
        // Hosts until there is nobody left to be shed, and no descriptor: then those wait who come.
        let (_second, controller) = Peer::admin(at);
        let mut queues = Vec::new();
        let room = LIMIT - target.usage().descriptors
            + later_peers.iter().filter(|one| !is_ended(one)).count();
        for id in 1..=u16::try_from(room).expect("few") {
            let mut raw = Raw::open(at);
            raw.stream().set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
            raw.send(InitializeConnectionRequest::new(0, DigestOptions(0), 0).bytes());
            if !raw.is_answered() {
                break;
            }
            raw.connect(&ConnectFields::io(controller, id));
            queues.push(raw);
        }
        let (share, usage) = idle_share(&mut target, Duration::from_secs(1));
        assert!(share < 0.2, "{share:.2} of a processor, without a descriptor left");
        use_queue(&mut io);
        assert!(admin.controller_status().ready());
        eprintln!(
            "{driver}: {} descriptors in use with {} queues: {share:.3} of a processor",
            usage.descriptors,
            queues.len()
        );
        drop((queues, late, late_io, later_peers));
        let (mut again, _) = Peer::admin(at);
        assert!(again.controller_status().ready());
        target.stop();
    }
}

#[test]
fn a_full_target_refuses_connections_until_one_ends() {
    const NAME: &str = "flood::a_full_target_refuses_connections_until_one_ends";
    if child::is_child_of(NAME) {
        let mut config = config(&["memory:8MiB"]);
        config.limits.connections = 50;
        return child::serve(config);
    }
    for driver in driver_names() {
        let mut target = ChildTarget::of(NAME, driver, None);
        let at = target.address;
        let (mut admin, controller) = Peer::admin(at);
        let mut queues: Vec<_> = (1..50)
            .map(|id| Raw::io(at, &ConnectFields::io(controller, id), DigestOptions(0)))
            .collect();
        for _ in 0..3 {
            assert!(Raw::open(at).is_ended(), "there is no room");
        }
        assert!(admin.controller_status().ready());
        let (share, _) = idle_share(&mut target, Duration::from_millis(500));
        assert!(share < 0.2, "{share:.2} of a processor");
        queues.pop();
        let there_is_room = || {
            let mut raw = Raw::open(at);
            raw.try_send(InitializeConnectionRequest::new(0, DigestOptions(0), 0).bytes());
            raw.try_receive().is_some()
        };
        wait_until("there is room", there_is_room);
        drop((queues, admin));
        wait_until("there is room", there_is_room);
        let (mut again, _) = Peer::admin(at);
        assert!(again.controller_status().ready());
        target.stop();
    }
}

#[test]
fn idle_hosts_cost_next_to_nothing() {
    const NAME: &str = "flood::idle_hosts_cost_next_to_nothing";
    const QUEUES: u16 = 100;
    if child::is_child_of(NAME) {
        return child::serve(config(&["memory:64MiB"]));
    }
    for driver in driver_names() {
        let mut target = ChildTarget::of(NAME, driver, None);
        let at = target.address;
        let (_admin, controller) = Peer::admin(at);
        let before = target.usage();
        let mut queues: Vec<_> = (1..=QUEUES)
            .map(|id| Raw::io(at, &ConnectFields::io(controller, id), DigestOptions(0)))
            .collect();
        let (share, idle) = idle_share(&mut target, Duration::from_secs(2));
        let each = |usage: Usage| {
            usage.resident_kib.saturating_sub(before.resident_kib) * 1024 / usize::from(QUEUES)
        };
        // What a queue leaves behind that has been busy. One after the other: what they share,
        // the pool, is not counted.
        let read =
            read_write(NvmOpcode::READ, 1, 0, 16).with_data_pointer(Descriptor::transport(65536));
        for io in &mut queues {
            for id in 0..32 {
                io.command(read.with_command_id(id), &[]);
            }
            for _ in 0..64 {
                io.receive();
            }
        }
        let (later_share, later) = idle_share(&mut target, Duration::from_secs(2));
        eprintln!(
            "{driver}: {QUEUES} idle queues: {share:.4} of a processor and {} bytes each; after \
             some work {later_share:.4} and {} bytes",
            each(idle),
            each(later)
        );
        assert!(share < 0.05, "{share:.4} of a processor for doing nothing");
        assert!(later_share < 0.05, "{later_share:.4} of a processor for doing nothing");
        assert!(each(idle) < 300 * 1024, "{} bytes for each idle queue", each(idle));
        assert!(each(later) < 300 * 1024, "{} bytes for each idle queue", each(later));
        drop(queues);
        target.stop();
    }
}

/// A host that asks and asks, and never takes an answer.
#[test]
fn a_host_that_reads_no_responses_is_not_read_from() {
    const NAME: &str = "flood::a_host_that_reads_no_responses_is_not_read_from";
    if child::is_child_of(NAME) {
        return child::serve(config(&["memory:64MiB"]));
    }
    for driver in driver_names() {
        let mut target = ChildTarget::of(NAME, driver, None);
        let at = target.address;
        let (mut admin, mut io) = good_host(at);
        let (_second, controller) = Peer::admin(at);
        let before = target.usage();
        for (queue_id, blocks) in [(1, 1), (2, 256)] {
            let not_reading =
                Raw::io(at, &ConnectFields::io(controller, queue_id), DigestOptions(0));
            not_reading
                .stream()
                .set_write_timeout(Some(Duration::from_secs(1)))
                .expect("a timeout");
            let mut asked = 0_u32;
            for round in 0..2000_u32 {
                let mut capsules = Vec::new();
                for id in 0..64 {
                    let id = u16::try_from((round * 64 + id) % 60_000).expect("an identifier");
                    let read = read_write(NvmOpcode::READ, 1, 0, blocks)
                        .with_command_id(id)
                        .with_data_pointer(Descriptor::transport(blocks * 4096));
                    capsules.extend(not_reading.capsule(read, &[]));
                }
                if not_reading.stream().write_all(&capsules).is_err() {
                    break;
                }
                asked += 64;
            }
            let after = target.usage();
            let grown = after.resident_kib.saturating_sub(before.resident_kib) / 1024;
            eprintln!(
                "{driver}: {asked} reads of {blocks} blocks, not one taken: {grown} MiB more"
            );
            assert!(
                grown < if blocks == 1 { 16 } else { 300 },
                "{grown} MiB for one not_reading host"
            );
            // What its answers hold of the pool is not missed by others.
            use_queue(&mut io);
            assert!(admin.controller_status().ready());
            drop(not_reading);
        }
        // It has gone, and others have the whole pool again.
        let (_admin, mut late) = good_host(at);
        assert!(late.read(1, 0, 256, 1 << 20).status().is_success());
        target.stop();
    }
}

/// Answers that are copied behind their headers count, too: queues as deep as may be, whose host
/// never reads.
#[test]
fn unread_small_responses_are_bounded() {
    const NAME: &str = "flood::unread_small_responses_are_bounded";
    const QUEUES: u16 = 4;
    if child::is_child_of(NAME) {
        return child::serve(config(&["memory:16MiB", "memory:16MiB,block=512"]));
    }
    for driver in driver_names() {
        let mut target = ChildTarget::of(NAME, driver, None);
        let at = target.address;
        let (mut admin, mut io) = good_host(at);
        let (_second, controller) = Peer::admin(at);
        let before = target.usage();
        let not_reading: Vec<_> = (1..=QUEUES)
            .map(|id| {
                let fields = ConnectFields { entries: 1024, ..ConnectFields::io(controller, id) };
                Raw::io(at, &fields, DigestOptions(0))
            })
            .collect();
        for raw in &not_reading {
            raw.stream().set_write_timeout(Some(Duration::from_millis(300))).expect("a timeout");
            for round in 0..500_u16 {
                let mut capsules = Vec::new();
                for id in 0..64 {
                    let read = read_write(NvmOpcode::READ, 2, 0, 7)
                        .with_command_id(round * 64 + id)
                        .with_data_pointer(Descriptor::transport(7 * 512));
                    capsules.extend(raw.capsule(read, &[]));
                }
                if raw.stream().write_all(&capsules).is_err() {
                    break;
                }
                // No more than the queue has entries are on their way at a time.
                assert!(admin.controller_status().ready());
            }
        }
        use_queue(&mut io);
        let grown = target.usage().resident_kib.saturating_sub(before.resident_kib) / 1024;
        eprintln!("{driver}: {QUEUES} not_reading queues of 1023: {grown} MiB more");
        assert!(2 * grown < 5 * usize::from(QUEUES), "{grown} MiB for {QUEUES} not_reading queues");
        drop(not_reading);
        target.stop();
    }
}

/// The children say so when they cannot go on, and whoever waits for them hears it.
#[test]
fn a_child_that_stops_closes_its_connections() {
    const NAME: &str = "flood::a_child_that_stops_closes_its_connections";
    if child::is_child_of(NAME) {
        return child::serve(config(&["memory:1MiB"]));
    }
    let target = ChildTarget::of(NAME, "epoll", None);
    let (mut admin, _io) = good_host(target.address);
    target.stop();
    assert_eq!(admin.until_closed(), CloseReason::PeerClosed);
}
