//! Commands that wait for a rate limit: what ends them, and what does not wait with them.

use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

use weft_nvme::abort::Abort;
use weft_nvme::command::Fused;
use weft_nvme::nvm::{
    CopyCommand, CopySourceRange, DatasetAttributes, DatasetManagement, DatasetRange,
};
use weft_nvme::tcp::DigestOptions;
use weft_nvme::{Command, NvmOpcode, Status, Wire};
use weft_statistics::ThrottledTenant;
use weft_target::Target;
use weft_target::config::{Config, RateLimit, RateLimitedCommands};
use weft_transport::Slot;
use weft_transport::host::{HostData, HostOptions};

use crate::commands::fused;
use crate::support::peer::{ConnectFields, Peer, read_write};
use crate::support::raw::Raw;
use crate::support::{
    HOST, SUBSYSTEM, address, config, config_of_two_groups, drivers, pattern, start, wait_until,
};

const BLOCK: usize = 4096;

/// Long enough for a command that does not wait, by far; too short for one that does.
const SHORT: Duration = Duration::from_millis(200);

/// After one command of a block nothing more is admitted for an hour.
fn stalling() -> RateLimit {
    RateLimit { rate: Some(1), force: true, ..RateLimit::default() }
}

/// A target with this limit on each driver, which the test may reload.
fn limited(limit: RateLimit, test: impl Fn(&mut Target, &Config)) {
    for driver in drivers() {
        let devices = ["memory:4MiB", "memory:4MiB"];
        let rate_limits = vec![limit.clone()];
        let config = Config { driver: *driver, rate_limits, ..config(&devices) };
        let mut target = start(config.clone());
        test(&mut target, &config);
        target.stop().expect("a clean stop");
    }
}

fn unlimited(target: &mut Target, config: &Config) -> Vec<String> {
    let config = Config { rate_limits: Vec::new(), ..config.clone() };
    target.reload(config).expect("a reload")
}

#[test]
fn a_throttled_command_can_be_aborted() {
    limited(stalling(), |target, config| {
        let (mut admin, controller) = Peer::admin(address(target));
        let mut io = Peer::io(address(target), controller, 1);
        io.read(1, 0, 1, BLOCK).succeeded();
        let first = io.begin_read(1, 0, 1, BLOCK);
        let bytes = pattern(BLOCK, 3);
        let write = io.begin_write(1, 0, 1, &bytes);
        let last = io.begin_read(1, 0, 1, BLOCK);
        for slot in [first, write] {
            let command_id = io.connection.command_id(slot).expect("in flight");
            let abort = Abort { submission_queue_id: 1, command_id };
            wait_until("it is aborted", || {
                let answer = admin.run(abort.to_command(), HostData::None).succeeded();
                answer.completion.dword0() & 1 == 0
            });
            assert_eq!(io.wait_for(slot).status(), Status::ABORT_REQUESTED);
        }
        // Another command may have the slot of an aborted one.
        let again = io.begin_read(1, 1, 1, BLOCK);
        assert!(!io.is_answered(last, SHORT), "it waits");
        let changes = unlimited(target, config);
        assert_eq!(changes, ["commands: no longer limited to 1/s"]);
        assert_eq!(io.wait_for(last).succeeded().bytes(), [0; BLOCK], "nothing was written");
        io.wait_for(again).succeeded();
        io.read(1, 0, 1, BLOCK).succeeded();
    });
}

#[test]
fn what_a_limit_is_not_for_does_not_wait() {
    let limit = RateLimit {
        host: Some(HOST.into()),
        subsystem: Some(SUBSYSTEM.to_owned()),
        nsid: Some(1),
        rw: RateLimitedCommands::Write,
        ..stalling()
    };
    limited(limit, |target, _| {
        let (mut admin, controller) = Peer::admin(address(target));
        let mut io = Peer::io(address(target), controller, 1);
        let bytes = pattern(BLOCK, 1);
        io.write(1, 0, 1, &bytes).succeeded();
        let waits = io.begin_write(1, 0, 1, &bytes);
        io.read(1, 0, 1, BLOCK).succeeded();
        io.write(2, 0, 1, &bytes).succeeded();
        io.run(Command::new(NvmOpcode::FLUSH).with_namespace_id(1), HostData::None).succeeded();
        assert!(admin.controller_status().ready());
        assert!(!io.is_answered(waits, SHORT), "it waits");
        let counted = target.watch().rate_limits();
        assert_eq!(counted.len(), 1);
        assert_eq!((counted[0].throttled, counted[0].counts_bytes), (1, true));
        // The limit is asked again and again, and each time counts whom it has held up.
        wait_until("its host is counted", || {
            let counted = target.watch().rate_limits().remove(0);
            let waited = |one: &ThrottledTenant| one.host.is_some() && one.nsid == 1;
            counted.throttled_ns > 0
                && counted.tenants.len() == 1
                && waited(&counted.tenants[0])
                && counted.tenants[0].throttled_ns == counted.throttled_ns
        });
    });
}

#[test]
fn a_disconnect_ends_throttled_commands() {
    limited(stalling(), |target, config| {
        let bytes = pattern(BLOCK, 7);
        for round in 0..3 {
            let (_admin, controller) = Peer::admin(address(target));
            let mut io = Peer::io(address(target), controller, 1);
            if round == 0 {
                io.read(1, 0, 1, BLOCK).succeeded();
            }
            let slots = [0; 4].map(|_| io.begin_write(1, 0, 1, &bytes));
            assert!(!io.is_answered(slots[0], SHORT), "it waits");
        }
        // The next Connect of the host does not wait for them, and they are never executed.
        let (_admin, controller) = Peer::admin(address(target));
        let mut io = Peer::io(address(target), controller, 1);
        unlimited(target, config);
        assert_eq!(io.read(1, 0, 1, BLOCK).succeeded().bytes(), [0; BLOCK]);
    });
}

#[test]
fn a_limit_that_comes_holds_for_queues_that_are_there() {
    for driver in drivers() {
        let config = Config { driver: *driver, ..config_of_two_groups(&["memory:4MiB"]) };
        let mut target = start(config.clone());
        let (_admin, controller) = Peer::admin(address(&target));
        let mut queues = [1, 2].map(|id| Peer::io(address(&target), controller, id));
        queues.iter_mut().for_each(|io| drop(io.read(1, 0, 1, BLOCK).succeeded()));
        let limited = Config { rate_limits: vec![stalling()], ..config.clone() };
        let changes = target.reload(limited.clone()).expect("a reload");
        assert_eq!(changes, ["commands: limited to 1/s"]);
        queues[0].read(1, 0, 1, BLOCK).succeeded();
        // The groups share it.
        let waiting = queues.each_mut().map(|io| io.begin_read(1, 0, 1, BLOCK));
        for (io, slot) in queues.iter_mut().zip(waiting) {
            assert!(!io.is_answered(slot, SHORT), "it waits");
        }
        // The same again, or another one that stalls: nothing is admitted anew.
        assert!(target.reload(limited.clone()).expect("a reload").is_empty());
        let slow = RateLimit { rate: Some(2), burst: Duration::from_secs(1), ..stalling() };
        let slow = Config { rate_limits: vec![slow], ..config };
        let changes = target.reload(slow).expect("a reload");
        assert_eq!(changes, ["commands: limited to 2/s, a burst of 1s, not 1/s"]);
        for (io, slot) in queues.iter_mut().zip(waiting) {
            assert!(!io.is_answered(slot, SHORT), "it waits");
        }
        // A target that stops finishes what it has taken.
        target.stop().expect("a clean stop");
        for (io, slot) in queues.iter_mut().zip(waiting) {
            io.wait_for(slot).succeeded();
        }
    }
}

/// A queue under a limit that nobody serves, filled with writes whose data comes in their capsules,
/// as far as the target takes them.
struct FullQueue {
    raw: Raw,
    /// What is not sent yet.
    rest: Vec<u8>,
}

const WRITES: u16 = 120;

impl FullQueue {
    fn new(target: &Target, controller: u16, queue_id: u16) -> Self {
        let fields = ConnectFields::io(controller, queue_id);
        let raw = Raw::io(address(target), &fields, DigestOptions(0));
        let data = pattern(64 << 10, 1);
        let write = |id| read_write(NvmOpcode::WRITE, 1, 0, 16).with_command_id(id);
        let rest = (0..WRITES).flat_map(|id| raw.capsule(write(id), &data)).collect();
        Self { raw, rest }
    }

    /// Sends until the target has taken nothing for a while.
    fn fill(&mut self) {
        let mut stream = self.raw.stream();
        stream.set_nonblocking(true).expect("a mode");
        let mut last = Instant::now();
        while !self.rest.is_empty() && last.elapsed() < SHORT {
            match stream.write(&self.rest) {
                Ok(sent) => {
                    self.rest.drain(..sent);
                    last = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => panic!("{error}"),
            }
        }
        stream.set_nonblocking(false).expect("a mode");
    }

    /// Every write ends in success.
    fn finish(mut self) {
        let rest = std::mem::take(&mut self.rest);
        self.raw.send(&rest);
        for _ in 0..WRITES {
            assert!(self.raw.receive().completion().status().is_success());
        }
    }
}

/// The data in the capsules of commands that wait for a limit does not take the memory of others.
#[test]
fn writes_that_wait_leave_memory_to_others() {
    for driver in drivers() {
        let limit = RateLimit { host: Some(HOST.into()), ..stalling() };
        let rate_limits = vec![limit];
        let mut config = Config { driver: *driver, rate_limits, ..config(&["memory:4MiB"]) };
        config.limits.pool_bytes = 16 << 20;
        config.limits.in_capsule_bytes = 64 << 10;
        // Nobody is sent away.
        config.limits.stall_timeout = Duration::from_secs(600);
        let mut target = start(config.clone());
        let (_admin, controller) = Peer::admin(address(&target));
        let mut filled: Vec<_> =
            (1..=4).map(|id| FullQueue::new(&target, controller, id)).collect();
        filled.iter_mut().for_each(FullQueue::fill);
        let fields = ConnectFields::admin().of_other_host();
        let (_other_admin, other) = Peer::admin_as(address(&target), &fields);
        let fields = ConnectFields::io(other, 1).of_other_host();
        let mut io = Peer::io_as(address(&target), &fields, HostOptions::default());
        let data = pattern(1 << 20, 2);
        for _ in 0..4 {
            io.write(1, 256, 256, &data).succeeded();
            assert!(io.read(1, 256, 256, data.len()).succeeded().bytes() == data);
        }
        assert!(filled.iter().any(|queue| !queue.rest.is_empty()), "the target takes a part");
        unlimited(&mut target, &config);
        filled.into_iter().for_each(FullQueue::finish);
        target.stop().expect("a clean stop");
    }
}

#[test]
fn a_change_of_what_is_limited_is_in_force_at_once() {
    let only = |rw| RateLimit { rw, ..stalling() };
    limited(only(RateLimitedCommands::Write), |target, config| {
        let (_admin, controller) = Peer::admin(address(target));
        let mut io = Peer::io(address(target), controller, 1);
        let bytes = pattern(BLOCK, 5);
        io.write(1, 0, 1, &bytes).succeeded();
        let write = io.begin_write(1, 0, 1, &bytes);
        (0..3).for_each(|_| drop(io.read(1, 0, 1, BLOCK).succeeded()));
        assert!(!io.is_answered(write, SHORT), "it waits");
        let rate_limits = vec![only(RateLimitedCommands::Read)];
        target.reload(Config { rate_limits, ..config.clone() }).expect("a reload");
        io.wait_for(write).succeeded();
        io.write(1, 0, 1, &bytes).succeeded();
        io.read(1, 0, 1, BLOCK).succeeded();
        let read = io.begin_read(1, 0, 1, BLOCK);
        assert!(!io.is_answered(read, SHORT), "it waits");
    });
}

/// A kind of command, for one block of a device of zeros.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Read,
    Compare,
    Verify,
    Write,
    WriteZeroes,
    Deallocate,
    CompareAndWrite,
    Copy,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Read,
        Self::Compare,
        Self::Verify,
        Self::Write,
        Self::WriteZeroes,
        Self::Deallocate,
        Self::CompareAndWrite,
        Self::Copy,
    ];

    /// The bytes of what it reads and of what it writes, if it does.
    const fn costs(self) -> [Option<u64>; 2] {
        let block = BLOCK as u64;
        match self {
            Self::Read | Self::Compare => [Some(block), None],
            Self::Verify => [Some(0), None],
            Self::Write => [None, Some(block)],
            Self::WriteZeroes => [None, Some(0)],
            Self::Deallocate => [None, Some(size_of::<DatasetRange>() as u64)],
            Self::CompareAndWrite | Self::Copy => [Some(block), Some(block)],
        }
    }

    /// What it costs of a limit.
    fn cost(self, limit: &RateLimit) -> u64 {
        let [reads, writes] = self.costs();
        let of_limit = match limit.rw {
            RateLimitedCommands::Read => [reads, None],
            RateLimitedCommands::Write => [None, writes],
            RateLimitedCommands::Rw => [reads, writes],
        };
        let bytes = of_limit.into_iter().flatten();
        // What is read and written together is one command.
        if limit.rate.is_some() { bytes.sum() } else { bytes.count().min(1) as u64 }
    }

    /// Begins one. The last of its slots is answered when it is done.
    fn begin(self, io: &mut Peer) -> Vec<Slot> {
        let zeros = [0; BLOCK];
        let sent = |io: &Peer, bytes: &[u8]| HostData::ToController(io.buffer(bytes));
        let block = |opcode| read_write(opcode, 1, 1, 1);
        vec![match self {
            Self::Read => io.begin_read(1, 1, 1, BLOCK),
            Self::Write => io.begin_write(1, 1, 1, &zeros),
            Self::Compare => io.submit(block(NvmOpcode::COMPARE), sent(io, &zeros)),
            Self::Verify => io.submit(block(NvmOpcode::VERIFY), HostData::None),
            Self::WriteZeroes => io.submit(block(NvmOpcode::WRITE_ZEROES), HostData::None),
            Self::Deallocate => {
                let attributes = DatasetAttributes(0).with_deallocate(true);
                let command = DatasetManagement { range_count: 1, attributes }.to_command(1);
                io.submit(command, sent(io, DatasetRange::new(1, 1).bytes()))
            }
            Self::CompareAndWrite => {
                let (command, data) = fused(io, NvmOpcode::COMPARE, Fused::FIRST, 1, &zeros);
                let first = io.submit_later(command, data);
                let (command, data) = fused(io, NvmOpcode::WRITE, Fused::SECOND, 1, &zeros);
                return vec![first, io.submit(command, data)];
            }
            Self::Copy => {
                let command = CopyCommand::new(2, 1, 0).to_command(1);
                let range = CopySourceRange::new(1, 1, 1).expect("a block");
                io.submit(command, sent(io, range.bytes()))
            }
        }]
    }
}

/// What these kinds in turn had of a limit, eight in flight, and for how long.
fn had(io: &mut Peer, kinds: &[Kind], limit: &RateLimit) -> (u64, Duration) {
    let began = Instant::now();
    let mut next = kinds.iter().copied().cycle();
    let mut in_flight = VecDeque::new();
    let mut had = 0;
    while let Some(rest) = Duration::from_millis(60).checked_sub(began.elapsed()) {
        while in_flight.len() < 8 {
            let kind = next.next().expect("there is one");
            in_flight.push_back((kind, kind.begin(io)));
        }
        let (kind, slots) = in_flight.front().expect("eight");
        if !slots.iter().all(|slot| io.is_answered(*slot, rest)) {
            break;
        }
        had += kind.cost(limit);
        let (_, slots) = in_flight.pop_front().expect("the same");
        slots.into_iter().for_each(|slot| drop(io.wait_for(slot).succeeded()));
    }
    (had, began.elapsed())
}

/// Whatever kind of command comes, alone or between others, of reads and of writes.
#[test]
fn no_kind_of_command_passes_a_limit() {
    let mixed = [Kind::ALL.as_slice(), Kind::ALL.as_slice()].concat();
    let alone = Kind::ALL.map(|kind| vec![kind]);
    for rw in [RateLimitedCommands::Read, RateLimitedCommands::Write, RateLimitedCommands::Rw] {
        for (rate_iops, rate) in [(Some(100), None), (None, Some(100 * BLOCK as u64))] {
            let limit = RateLimit { rw, rate_iops, rate, force: true, ..RateLimit::default() };
            limited(limit.clone(), |target, _| {
                for kinds in alone.iter().chain([&mixed]) {
                    let largest = kinds.iter().map(|kind| kind.cost(&limit)).max();
                    let Some(largest) = largest.filter(|cost| *cost > 0) else { continue };
                    let (_admin, controller) = Peer::admin(address(target));
                    let mut io = Peer::io(address(target), controller, 1);
                    let (had, time) = had(&mut io, kinds, &limit);
                    // The rate, and of one group 1 ms of it and one command.
                    let rate = rate.or(rate_iops).expect("one");
                    let time = time + Duration::from_millis(1);
                    let most = u128::from(rate) * time.as_micros() / 1_000_000 + 1;
                    let most = most + u128::from(largest);
                    assert!(u128::from(had) <= most, "{kinds:?}, {limit:?}: {had}, not {most}");
                }
            });
        }
    }
}

/// A pair waits as one, later commands behind it, and an Abort of either half ends both.
#[test]
fn a_fused_pair_waits_as_one() {
    limited(stalling(), |target, config| {
        let (mut admin, controller) = Peer::admin(address(target));
        let mut io = Peer::io(address(target), controller, 1);
        io.read(2, 0, 1, BLOCK).succeeded();
        for in_capsule_bytes in [16 * 1024, 0] {
            io.connection.set_in_capsule_bytes(in_capsule_bytes);
            for half in [0, 1] {
                let pair = Kind::CompareAndWrite.begin(&mut io);
                assert!(!io.is_answered(pair[1], SHORT / 4), "it waits");
                let command_id = io.connection.command_id(pair[half]).expect("in flight");
                let abort = Abort { submission_queue_id: 1, command_id };
                let answer = admin.run(abort.to_command(), HostData::None).succeeded();
                assert_eq!(answer.completion.dword0() & 1, 0);
                let statuses = [0, 1].map(|half| io.wait_for(pair[half]).status());
                assert_eq!(statuses, [Status::ABORT_REQUESTED, Status::ABORTED_FAILED_FUSED]);
            }
            let pair = Kind::CompareAndWrite.begin(&mut io);
            let later = io.begin_write(1, 1, 1, &pattern(BLOCK, 2));
            assert!(!io.is_answered(later, SHORT / 4) && !io.is_answered(pair[0], SHORT / 4));
            unlimited(target, config);
            pair.into_iter().for_each(|slot| drop(io.wait_for(slot).succeeded()));
            io.wait_for(later).succeeded();
            io.write(1, 1, 1, &[0; BLOCK]).succeeded();
            target.reload(config.clone()).expect("a reload");
            io.read(2, 0, 1, BLOCK).succeeded();
        }
    });
}
