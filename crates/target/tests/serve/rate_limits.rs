//! Commands that wait for a rate limit: what ends them, and what does not wait with them.

use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

use weft_nvme::abort::Abort;
use weft_nvme::tcp::DigestOptions;
use weft_nvme::{Command, NvmOpcode, Status};
use weft_target::config::{Config, RateLimit, RateLimitedCommands};
use weft_target::{Target, ThrottledTenant};
use weft_transport::host::{HostData, HostOptions};

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
            counted.throttled_time > Duration::ZERO
                && counted.tenants.len() == 1
                && waited(&counted.tenants[0])
                && counted.tenants[0].throttled_time == counted.throttled_time
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
struct Filled {
    raw: Raw,
    /// What is not sent yet.
    rest: Vec<u8>,
}

const WRITES: u16 = 120;

impl Filled {
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
        let mut filled: Vec<_> = (1..=4).map(|id| Filled::new(&target, controller, id)).collect();
        filled.iter_mut().for_each(Filled::fill);
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
        filled.into_iter().for_each(Filled::finish);
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
