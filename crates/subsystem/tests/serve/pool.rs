//! Less memory than hosts could use at once: everything is done all the same, one after another.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use weft_nvme::command::{Flags, Fused};
use weft_nvme::sgl::Descriptor;
use weft_nvme::tcp::{DigestOptions, PduType, ReadyToTransfer};
use weft_nvme::{AdminOpcode, Command, NvmOpcode};
use weft_target::config::Config;
use weft_transport::host::{HostData, HostOptions};

use crate::support::peer::{ConnectFields, Peer, read_write};
use crate::support::raw::Raw;
use crate::support::{
    address, config, config_of_two_groups, drivers, on_each_driver, pattern, start,
};

const BLOCK: usize = 4096;
const MEGABYTE: usize = 1 << 20;

/// The smallest pool that a target may have.
fn with_small_pool(config: Config) -> Config {
    let mut config = config;
    config.limits.pool_bytes = 16 << 20;
    config
}

/// Writes and reads 1 MiB at a time, as many at once as the queue takes, and looks at what comes.
fn deep_queue(at: SocketAddr, controller: u16, queue_id: u16, digests: bool) {
    let options =
        HostOptions { data_digest: digests, header_digest: digests, ..HostOptions::default() };
    let mut io = Peer::with_pool(at, options, 64 << 20);
    io.connect(&ConnectFields::io(controller, queue_id)).succeeded();
    io.connection.set_in_capsule_bytes(16 * 1024);
    let base = u64::from(queue_id) * 24 * 256;
    let contents = |piece: u64| pattern(MEGABYTE, u8::try_from(base / 256 + piece).expect("few"));
    let writes: Vec<_> = (0..24)
        .map(|piece| {
            let data = HostData::ToController(io.buffer(&contents(piece)));
            io.submit_later(read_write(NvmOpcode::WRITE, 1, base + piece * 256, 256), data)
        })
        .collect();
    // Small ones among them, whose data comes in the capsule.
    let small = io.begin_write(1, base + 23 * 256, 1, &contents(23)[..BLOCK]);
    for slot in writes {
        io.wait_for(slot).succeeded();
    }
    io.wait_for(small).succeeded();
    let reads: Vec<_> =
        (0..24).map(|piece| io.begin_read(1, base + piece * 256, 256, MEGABYTE)).collect();
    for (slot, piece) in reads.into_iter().zip(0..) {
        assert!(io.wait_for(slot).bytes() == contents(piece), "piece {piece} of {queue_id}");
    }
}

#[test]
fn deep_queues_share_a_small_pool() {
    for config in [config(&["memory:256MiB"]), config_of_two_groups(&["memory:256MiB"])] {
        on_each_driver(&with_small_pool(config), |target| {
            let at = address(target);
            let (mut admin, controller) = Peer::admin(at);
            std::thread::scope(|scope| {
                for queue_id in 1..=4 {
                    scope.spawn(move || deep_queue(at, controller, queue_id, queue_id % 2 == 0));
                }
            });
            assert!(admin.controller_status().ready());
        });
    }
}

/// Writes of 2 MiB for which the target asks for data while it asks for the others' as well:
/// as many as have room in the pool beside the reserve.
fn fills_the_pool(at: SocketAddr) {
    let (_admin, controller) = Peer::admin_as(at, &ConnectFields::admin().of_other_host());
    let fields = ConnectFields::io(controller, 1).of_other_host();
    let mut raw = Raw::io(at, &fields, DigestOptions(0));
    for id in 0..7 {
        let write = read_write(NvmOpcode::WRITE, 1, 0, 512)
            .with_command_id(id)
            .with_data_pointer(Descriptor::transport(2 << 20));
        raw.command(write, &[]);
    }
    for id in 0..7 {
        assert_eq!(raw.receive().ready_to_transfer().command_id.get(), id);
    }
}

/// Vanishes with commands in every state.
fn vanish(at: SocketAddr, round: u64) {
    let (mut admin, controller) = Peer::admin(at);
    admin.begin_event_request();
    let data = pattern(2 << 20, 1);
    // Data that is on its way, whole PDUs and part of one, and a command that waits for memory.
    let mut raw = Raw::io(at, &ConnectFields::io(controller, 1), DigestOptions(0));
    let write = |id, bytes: u32| {
        read_write(NvmOpcode::WRITE, 1, 0, bytes / 4096)
            .with_command_id(id)
            .with_data_pointer(Descriptor::transport(bytes))
    };
    for id in 0..8 {
        raw.command(write(id, 2 << 20), &[]);
    }
    let request = raw.receive().ready_to_transfer();
    let pdu = raw.data(&request, 0, &data[..MEGABYTE], true);
    raw.send(&pdu[..MEGABYTE / 2 + usize::try_from(round).expect("few") * 1000]);
    // Answers that nobody takes.
    let mut not_reading = Raw::io(at, &ConnectFields::io(controller, 2), DigestOptions(0));
    for id in 0..4 {
        let read = read_write(NvmOpcode::READ, 1, 0, 256)
            .with_command_id(id)
            .with_data_pointer(Descriptor::transport(1 << 20));
        not_reading.command(read, &[]);
    }
    // Half a pair, a part of a capsule, and what a device works on.
    let mut half = Raw::io(at, &ConnectFields::io(controller, 3), DigestOptions(0));
    let compare = read_write(NvmOpcode::COMPARE, 1, 0, 2)
        .with_command_id(1)
        .with_flags(Flags::SGL.with_fused(Fused::FIRST));
    half.command(compare, &data[..8192]);
    let mut slow = Raw::io(at, &ConnectFields::io(controller, 4), DigestOptions(0));
    slow.command(read_write(NvmOpcode::WRITE, 2, 0, 4).with_command_id(1), &data[..16384]);
    let capsule = slow.capsule(write(2, 16384), &data[..16384]);
    slow.send(&capsule[..9000]);
    std::thread::sleep(Duration::from_millis(2));
}

#[test]
fn hosts_that_vanish_leave_nothing_of_the_pool_behind() {
    let mut config =
        with_small_pool(config(&["memory:16MiB", "delay:write=20ms,read=20ms:memory:16MiB"]));
    config.limits.transfer_bytes = 4 << 20;
    for driver in drivers() {
        let target = start(Config { driver: *driver, ..config.clone() });
        let at = address(&target);
        fills_the_pool(at);
        for round in 0..30 {
            vanish(at, round);
        }
        fills_the_pool(at);
        target.stop().expect("a clean stop");
    }
}

/// Admin queues work when everything else waits for memory.
#[test]
fn the_protocols_own_data_has_a_reserve() {
    let mut config = with_small_pool(config(&["memory:16MiB"]));
    config.limits.transfer_bytes = 4 << 20;
    on_each_driver(&config, |target| {
        let at = address(target);
        let (_admin, controller) = Peer::admin(at);
        let mut holder = Raw::io(at, &ConnectFields::io(controller, 1), DigestOptions(0));
        for (id, blocks) in
            [1024, 1024, 1024, 512, 256, 128].into_iter().zip(0_u16..).map(|(b, i)| (i, b))
        {
            let write = read_write(NvmOpcode::WRITE, 1, 0, blocks)
                .with_command_id(id)
                .with_data_pointer(Descriptor::transport(blocks * 4096));
            holder.command(write, &[]);
        }
        for _ in 0..3 {
            holder.receive().ready_to_transfer();
        }
        // Connect, Identify and log pages, and a shallow queue's small writes.
        let (mut admin, controller) = Peer::admin_as(at, &ConnectFields::admin().of_other_host());
        let identify = Command::new(AdminOpcode::IDENTIFY).with_cdw10(1);
        assert_eq!(admin.run_for(identify, 4096).bytes().len(), 4096);
        let fields =
            ConnectFields { entries: 32, ..ConnectFields::io(controller, 1).of_other_host() };
        let mut io = Peer::io_as(at, &fields, HostOptions::default());
        io.write(1, 0, 1, &pattern(BLOCK, 1)).succeeded();
    });
}

/// Who waits for much does not keep those from memory who wait for little: they take turns.
#[test]
fn small_commands_do_not_wait_behind_a_large_one() {
    let mut config = with_small_pool(config(&["memory:16MiB"]));
    config.limits.transfer_bytes = 2 << 20;
    // Nobody is sent away.
    config.limits.stall_timeout = Duration::from_secs(600);
    on_each_driver(&config, |target| {
        let at = address(target);
        let (_admin, controller) = Peer::admin(at);
        let mut holder = Raw::io(at, &ConnectFields::io(controller, 1), DigestOptions(0));
        let mut write = |id, megabytes: u32| {
            let write = read_write(NvmOpcode::WRITE, 1, 0, megabytes * 256)
                .with_command_id(id)
                .with_data_pointer(Descriptor::transport(megabytes << 20));
            holder.command(write, &[]);
        };
        // All of the pool but the reserve, and then some.
        (0..7).for_each(|id| write(id, 2));
        write(7, 1);
        (8..16).for_each(|id| write(id, 2));
        let requests: Vec<_> = (0..8).map(|_| holder.receive().ready_to_transfer()).collect();
        let mut other = Raw::io(at, &ConnectFields::io(controller, 2), DigestOptions(0));
        let data_pointer = Descriptor::transport(4096);
        let read = read_write(NvmOpcode::READ, 1, 0, 1).with_data_pointer(data_pointer);
        other.command(read.with_command_id(1), &[]);
        let flush = Command::new(NvmOpcode::FLUSH).with_namespace_id(1).with_command_id(2);
        other.command(flush, &[]);
        assert_eq!(other.receive().completion().command_id.get(), 2, "the read waits");
        // Room for one of 1 MiB, not for one of 2 MiB.
        let data = pattern(MEGABYTE, 1);
        let last = requests.last().expect("eight");
        assert_eq!(last.command_id.get(), 7);
        let pdu = holder.data(last, 0, &data, true);
        holder.send(&pdu);
        assert_eq!(other.receive().data.len(), 4096);
        assert_eq!(other.receive().completion().command_id.get(), 1);
    });
}

/// A connection whose writes hold memory until their data is sent.
struct Holder {
    raw: Raw,
    requests: VecDeque<ReadyToTransfer>,
}

const HELD: usize = 64 << 10;

impl Holder {
    /// Begins `count` writes and takes what they ask for.
    fn new(at: SocketAddr, fields: &ConnectFields, count: u16) -> Self {
        let mut holder =
            Self { raw: Raw::io(at, fields, DigestOptions(0)), requests: VecDeque::new() };
        (0..count).for_each(|id| holder.write(id));
        for _ in 0..count {
            holder.requests.push_back(holder.raw.receive().ready_to_transfer());
        }
        holder
    }

    fn write(&mut self, id: u16) {
        let write = read_write(NvmOpcode::WRITE, 1, 0, 16)
            .with_command_id(id)
            .with_data_pointer(Descriptor::transport(64 << 10));
        self.raw.command(write, &[]);
    }

    /// Ends the oldest write that was asked for its data; its identifier.
    fn finish_one(&mut self) -> Option<u16> {
        let request = self.requests.pop_front()?;
        let data = self.raw.data(&request, 0, &pattern(HELD, 1), true);
        self.raw.send(&data);
        loop {
            let pdu = self.raw.receive();
            if pdu.common.pdu_type == PduType::CAPSULE_RESPONSE {
                return Some(pdu.completion().command_id.get());
            }
            self.requests.push_back(pdu.ready_to_transfer());
        }
    }
}

/// Whether something can be received without waiting.
fn is_readable(raw: &Raw) -> bool {
    raw.stream().set_nonblocking(true).expect("a mode");
    let peeked = raw.stream().peek(&mut [0]);
    raw.stream().set_nonblocking(false).expect("a mode");
    peeked.is_ok()
}

/// All memory but the reserve is held by writes of 64 KiB, and a read of 1 MiB waits.
fn large_read_waits(at: SocketAddr, controller: u16) -> (Vec<Holder>, Raw) {
    let holders =
        (1..=4).map(|id| Holder::new(at, &ConnectFields::io(controller, id), 60)).collect();
    let mut large = Raw::io(at, &ConnectFields::io(controller, 5), DigestOptions(0));
    let read =
        read_write(NvmOpcode::READ, 1, 0, 256).with_data_pointer(Descriptor::transport(1 << 20));
    large.command(read.with_command_id(1), &[]);
    let flush = Command::new(NvmOpcode::FLUSH).with_namespace_id(1).with_command_id(2);
    large.command(flush, &[]);
    assert_eq!(large.receive().completion().command_id.get(), 2, "the read waits");
    (holders, large)
}

fn with_small_pool_and_patience() -> Config {
    let mut config = with_small_pool(config(&["memory:16MiB"]));
    config.limits.stall_timeout = Duration::from_secs(600);
    config
}

/// As soon as a small command ends another takes its place: the large one is served all the same.
#[test]
fn small_commands_do_not_keep_a_large_one_waiting_for_ever() {
    on_each_driver(&with_small_pool_and_patience(), |target| {
        let at = address(target);
        let (_admin, controller) = Peer::admin(at);
        let (mut holders, mut large) = large_read_waits(at, controller);
        let mut ended = 0;
        while !is_readable(&large) {
            assert!(ended < 1000, "{ended} small writes were served, the large read was not");
            let mut any = false;
            for holder in &mut holders {
                if let Some(id) = holder.finish_one() {
                    holder.write(id);
                    (ended, any) = (ended + 1, true);
                }
            }
            if !any {
                break;
            }
        }
        assert_eq!(large.receive().data.len(), MEGABYTE);
        assert_eq!(large.receive().completion().command_id.get(), 1);
        // Those that had to wait meanwhile are served, too.
        for holder in &mut holders {
            for _ in 0..60 {
                if holder.requests.is_empty() {
                    holder.requests.push_back(holder.raw.receive().ready_to_transfer());
                }
                holder.finish_one().expect("a write");
            }
        }
    });
}

/// Data in capsules takes its turn with the data of other commands.
#[test]
fn data_in_capsules_does_not_keep_a_large_command_waiting_for_ever() {
    on_each_driver(&with_small_pool_and_patience(), |target| {
        let at = address(target);
        let (_admin, controller) = Peer::admin(at);
        let (mut holders, mut large) = large_read_waits(at, controller);
        // Room for small ones, and not for the large one.
        holders[0].finish_one().expect("a write");
        let mut small = Raw::io(at, &ConnectFields::io(controller, 6), DigestOptions(0));
        let mut probe = Raw::io(at, &ConnectFields::io(controller, 7), DigestOptions(0));
        let flush = Command::new(NvmOpcode::FLUSH).with_namespace_id(1);
        let mut is_served = || {
            small.command(read_write(NvmOpcode::WRITE, 1, 0, 1), &pattern(BLOCK, 1));
            for _ in 0..100 {
                if is_readable(&small) {
                    small.receive().completion();
                    return true;
                }
                probe.command(flush, &[]);
                probe.receive().completion();
            }
            false
        };
        let served = (0..300).take_while(|_| is_served()).count();
        assert!(served < 300, "{served} small writes were served, the large read was not");
        for holder in &mut holders {
            while holder.finish_one().is_some() {}
        }
        assert_eq!(large.receive().data.len(), MEGABYTE);
        assert_eq!(small.receive().completion().command_id.get(), 0);
    });
}

/// What a device needs for commands that have begun is not kept for commands that wait: these wait
/// for what the others hold.
#[test]
fn compares_that_hold_all_memory_are_done() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let on_file = format!("file:{},size=16MiB", file.path().display());
    on_each_driver(&with_small_pool(config(&[&on_file])), |target| {
        let at = address(target);
        let (_admin, controller) = Peer::admin(at);
        let mut raw = Raw::io(at, &ConnectFields::io(controller, 1), DigestOptions(0));
        for id in 0..127 {
            let compare = read_write(NvmOpcode::COMPARE, 1, 0, 32)
                .with_command_id(id)
                .with_data_pointer(Descriptor::transport(128 << 10));
            raw.command(compare, &[]);
        }
        let mut done = 0;
        while done < 127 {
            let pdu = raw.receive();
            if pdu.common.pdu_type == PduType::CAPSULE_RESPONSE {
                assert!(pdu.completion().status().is_success());
                done += 1;
            } else {
                let data = raw.data(&pdu.ready_to_transfer(), 0, &[0; 128 << 10], true);
                raw.send(&data);
            }
        }
    });
}

/// Asks for memory and then does not move: its data does not come.
fn sends_nothing(at: SocketAddr) -> Vec<Raw> {
    let (admin, controller) = Raw::admin(at);
    let mut raw = Raw::io(at, &ConnectFields::io(controller, 1), DigestOptions(0));
    for id in 0..32 {
        let write = read_write(NvmOpcode::WRITE, 1, 0, 256)
            .with_command_id(id)
            .with_data_pointer(Descriptor::transport(1 << 20));
        raw.command(write, &[]);
    }
    raw.receive().ready_to_transfer();
    vec![admin, raw]
}

/// The same, but now and then a byte comes, and a small write is done: not silent, but no faster.
fn dribbles(at: SocketAddr) -> Vec<Raw> {
    let (admin, controller) = Raw::admin(at);
    let mut raw = Raw::io(at, &ConnectFields::io(controller, 1), DigestOptions(0));
    for id in 0..32 {
        let write = read_write(NvmOpcode::WRITE, 1, 0, 256)
            .with_command_id(id)
            .with_data_pointer(Descriptor::transport(1 << 20));
        raw.command(write, &[]);
    }
    let request = raw.receive().ready_to_transfer();
    let pdu = raw.data(&request, 0, &pattern(MEGABYTE, 1), true);
    let mut stream = raw.stream().try_clone().expect("another handle");
    std::thread::spawn(move || {
        for byte in pdu.chunks(1) {
            if std::io::Write::write_all(&mut stream, byte).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    vec![admin, raw]
}

/// The same, on many queues: each has begun to send the data of one write.
fn begins_to_send(at: SocketAddr) -> Vec<Raw> {
    let (admin, controller) = Raw::admin(at);
    let begin = |queue_id| {
        let mut raw = Raw::io(at, &ConnectFields::io(controller, queue_id), DigestOptions(0));
        let write = read_write(NvmOpcode::WRITE, 1, 0, 256)
            .with_data_pointer(Descriptor::transport(1 << 20));
        raw.command(write, &[]);
        raw
    };
    let mut queues: Vec<Raw> = (1..=15).map(begin).collect();
    for raw in &mut queues {
        let request = raw.receive().ready_to_transfer();
        let pdu = raw.data(&request, 0, &pattern(MEGABYTE, 1), true);
        raw.send(&pdu[..1000]);
    }
    queues.push(admin);
    queues
}

/// The same, of one that does not take what it has asked for.
fn takes_nothing(at: SocketAddr) -> Vec<Raw> {
    let (admin, controller) = Raw::admin(at);
    let mut raw = Raw::io(at, &ConnectFields::io(controller, 1), DigestOptions(0));
    for id in 0..100 {
        let read = read_write(NvmOpcode::READ, 1, 0, 256)
            .with_command_id(id)
            .with_data_pointer(Descriptor::transport(1 << 20));
        raw.command(read, &[]);
    }
    vec![admin, raw]
}

/// The same, with log pages, for which nobody has to be allowed anything.
fn takes_no_log_page(at: SocketAddr) -> Vec<Raw> {
    let (mut admin, controller) = Raw::admin(at);
    let raw = Raw::io(at, &ConnectFields::io(controller, 1), DigestOptions(0));
    for id in 0..30 {
        let page = Command::new(AdminOpcode::GET_LOG_PAGE)
            .with_cdw10(0xffff << 16)
            .with_cdw11(3)
            .with_command_id(id)
            .with_data_pointer(Descriptor::transport(1 << 20));
        admin.command(page, &[]);
    }
    vec![admin, raw]
}

/// Its other queues would take the memory one after the other.
#[test]
fn a_controller_that_holds_memory_ends_with_all_its_queues() {
    let mut config = with_small_pool(config(&["memory:16MiB"]));
    config.limits.stall_timeout = Duration::from_secs(2);
    on_each_driver(&config, |target| {
        let at = address(target);
        let stalled = begins_to_send(at);
        let (_admin, controller) = Peer::admin_as(at, &ConnectFields::admin().of_other_host());
        let fields = ConnectFields::io(controller, 1).of_other_host();
        let mut io = Peer::io_as(at, &fields, HostOptions::default());
        io.write(1, 0, 256, &pattern(MEGABYTE, 1)).succeeded();
        let (ended, ends) = std::sync::mpsc::channel();
        for mut queue in stalled {
            let ended = ended.clone();
            std::thread::spawn(move || ended.send(queue.is_ended()));
        }
        drop(ended);
        // One by one they would take two seconds each.
        let first = Instant::now();
        assert!(ends.iter().all(|is_ended| is_ended));
        assert!(first.elapsed() < Duration::from_secs(2), "{:?}", first.elapsed());
    });
}

/// A host that holds memory and does not move does not keep others from theirs for long.
#[test]
fn a_stalled_host_that_holds_memory_is_disconnected() {
    let mut config = with_small_pool(config(&["memory:16MiB"]));
    config.limits.stall_timeout = Duration::from_millis(300);
    on_each_driver(&config, |target| {
        let at = address(target);
        let stalls = [sends_nothing, begins_to_send, dribbles, takes_nothing, takes_no_log_page];
        for stall in stalls {
            let stalled = stall(at);
            let (_admin, controller) = Peer::admin_as(at, &ConnectFields::admin().of_other_host());
            let fields = ConnectFields::io(controller, 1).of_other_host();
            let mut io = Peer::io_as(at, &fields, HostOptions::default());
            let data = pattern(MEGABYTE, 1);
            io.write(1, 0, 256, &data).succeeded();
            assert!(io.read(1, 0, 256, MEGABYTE).bytes() == data);
            drop(stalled);
        }
    });
}
