//! Hosts with several paths that reserve a namespace at random while all of them write, and while
//! paths change their access state, are cut and come back: no write is admitted after its host was
//! refused, and what a host has written that alone may write stays.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use weft_backend::{Failure, Operation, Request};
use weft_host::IoPolicy;
use weft_nvme::fabrics::{Connect, ConnectAttributes, ConnectData, PropertySet, PropertySize};
use weft_nvme::property::{ControllerConfiguration, Offset};
use weft_nvme::reservation::{
    AcquireAction, RegisterAction, ReleaseAction, ReservationControl, ReservationType as Type,
};
use weft_nvme::wire::U32;
use weft_nvme::{Command, Completion, NvmOpcode, Status, Wire};
use weft_nvmf::reservation::{
    HostId, Operation as Change, Refusals, Request as ChangeRequest, Reservations,
};
use weft_reactor::simulation::{NetworkConditions, Random, World};
use weft_reactor::{Owner, Reactor, WaitLimit};
use weft_sim::{BLOCK_BYTES, SUBSYSTEM, Size, Testbed, seeds};
use weft_target::config::AnaState;
use weft_transport::Slot;
use weft_transport::host::{HostConnection, HostData, HostEvent, HostOptions};

const HOSTS: usize = 3;
/// Two that are disturbed, and one that is not, for the changes themselves.
const PATHS: usize = 3;
const SIZE: Size = Size { groups: 2, hosts: HOSTS, queues: 2 };
/// Writes of each host at a time.
const DEPTH: usize = 4;
const CHANGES: usize = 12;
const CONFLICT: Status = Status::RESERVATION_CONFLICT.with_dnr();
/// Virtual time in which everything ends once nothing fails any more.
const BOUND: Duration = Duration::from_secs(30);

fn host_id(host: usize) -> HostId {
    let mut id = [0, 0, 0, 0, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 0];
    id[15] = u8::try_from(host).expect("few");
    id
}

/// A queue by which a host changes reservations, at a path that is always there.
struct Queue {
    reactor: Reactor,
    connection: HostConnection,
    is_ready: bool,
    answers: BTreeMap<u16, Completion>,
}

impl Queue {
    fn open(world: &World) -> Self {
        let at: SocketAddr = format!("10.0.0.{PATHS}:4420").parse().expect("an address");
        let mut reactor = Reactor::simulated(world);
        let options = HostOptions::default();
        let connection = HostConnection::connect(&mut reactor, Owner(1), 0, at, options);
        Self { reactor, connection, is_ready: false, answers: BTreeMap::new() }
    }

    fn submit(&mut self, command: Command, bytes: &[u8]) -> u16 {
        let data = match bytes {
            [] => HostData::None,
            bytes => {
                let mut buffer = self.reactor.pool().take(bytes.len()).expect("room");
                buffer.bytes_mut().copy_from_slice(bytes);
                HostData::ToController(buffer)
            }
        };
        let slot = self.connection.submit(command, data).expect("a slot");
        self.connection.flush(&mut self.reactor);
        slot.0
    }

    fn turn(&mut self) {
        let mut completions = Vec::new();
        self.reactor.poll(WaitLimit::NoWait, &mut completions);
        for completion in completions {
            self.connection.handle(&mut self.reactor, completion);
        }
        self.connection.flush(&mut self.reactor);
        while let Some(event) = self.connection.poll_event() {
            match event {
                HostEvent::Ready { .. } => self.is_ready = true,
                HostEvent::Completed { slot: Slot(slot), completion, .. } => {
                    self.answers.insert(slot, completion);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A write that is under way.
struct Write {
    host: usize,
    /// The oldest state that it may have met.
    first: usize,
}

/// A host that alone may write: what it writes stays.
struct Guard {
    host: usize,
    stamp: u64,
    step: GuardStep,
}

#[derive(Clone, Copy)]
enum GuardStep {
    /// Its earlier writes are awaited.
    Waiting,
    Writing,
    /// What comes late would come until then.
    Watching(Duration),
    Reading,
}

struct Run {
    testbed: Testbed,
    random: Random,
    /// Admin queue and I/O queue of each host.
    controls: Vec<[Queue; 2]>,
    states: Vec<Reservations>,
    done: usize,
    known: [usize; HOSTS],
    change: Option<(usize, u16, Result<(), Status>)>,
    writes: BTreeMap<u64, Write>,
    /// The request of the guard.
    guarding: Option<u64>,
    guard: Option<Guard>,
    next: u64,
    away: [bool; PATHS],
    /// Writes that were refused, paths that were cut, and guards that were held.
    counts: [u64; 3],
}

impl Run {
    fn new(seed: u64) -> Self {
        let policy = IoPolicy::ALL[usize::try_from(seed % 4).expect("small")];
        let device = match seed % 2 {
            0 => "delay:write=300us:memory:1MiB",
            _ => "delay:write=150ms:memory:1MiB",
        };
        let mut testbed = Testbed::multipath(seed, device, SIZE, PATHS, policy);
        testbed.set_access(PATHS - 1, AnaState::NonOptimized);
        testbed.world.set_network(NetworkConditions {
            latency: Duration::from_micros(100),
            jitter: Duration::from_micros(300),
            split_probability: 0.1,
            ..NetworkConditions::default()
        });
        let mut run = Self {
            testbed,
            random: Random::new(seed ^ 0x5e5e),
            controls: Vec::new(),
            states: vec![Reservations::default()],
            done: 0,
            known: [0; HOSTS],
            change: None,
            writes: BTreeMap::new(),
            guarding: None,
            guard: None,
            next: 1,
            away: [false; PATHS],
            counts: [0; 3],
        };
        (0..HOSTS).for_each(|host| run.connect(host));
        run
    }

    fn connect(&mut self, host: usize) {
        self.controls.push([0; 2].map(|_| Queue::open(&self.testbed.world)));
        self.until(|run| run.controls[host].iter().all(|queue| queue.is_ready));
        let subsystem = SUBSYSTEM.parse().expect("a name");
        let name = Testbed::host_name(host).parse().expect("a name");
        let mut controller = 0xffff;
        for queue_id in 0..2 {
            let connect = Connect {
                record_format: 0,
                queue_id,
                submission_queue_size: 31,
                attributes: ConnectAttributes(0),
                keep_alive_timeout_ms: 0,
            };
            let data = ConnectData::new(host_id(host), controller, &subsystem, &name);
            let answer = self.ask(host, queue_id, connect.to_command(), data.bytes());
            assert!(answer.status().is_success(), "{}", answer.status());
            if queue_id == 0 {
                controller = u16::try_from(answer.dword0() & 0xffff).expect("16 bits");
                let enabled = ControllerConfiguration::default()
                    .with_enable(true)
                    .with_submission_queue_entry_size(6)
                    .with_completion_queue_entry_size(4);
                let (offset, size) = (Offset::CONTROLLER_CONFIGURATION, PropertySize::Four);
                let set = PropertySet::new(offset, size, enabled.0.into());
                assert!(self.ask(host, 0, set.to_command(), &[]).status().is_success());
            }
        }
    }

    fn ask(&mut self, host: usize, queue: u16, command: Command, bytes: &[u8]) -> Completion {
        let queue = usize::from(queue);
        let slot = self.controls[host][queue].submit(command, bytes);
        self.until(|run| run.controls[host][queue].answers.contains_key(&slot));
        self.controls[host][queue].answers.remove(&slot).expect("it is there")
    }

    fn step(&mut self) {
        self.controls.iter_mut().flatten().for_each(Queue::turn);
        self.testbed.step();
        self.controls.iter_mut().flatten().for_each(Queue::turn);
    }

    fn until(&mut self, is_it: impl Fn(&Self) -> bool) {
        let end = self.testbed.world.now() + BOUND;
        while !is_it(self) {
            self.step();
            assert!(self.testbed.world.now() < end, "not in time");
        }
    }

    /// A random change of a random host, which is likely to be a valid one.
    fn change(&mut self) {
        let host = usize::try_from(self.random.below(HOSTS as u64)).expect("few");
        let state = self.states.last().expect("one");
        let kind = Type(u8::try_from(self.random.below(6)).expect("few") + 1);
        let kind = match state.held() {
            Some(held) if self.random.chance(0.5) => held.kind,
            _ => kind,
        };
        let own = state.registrants().get(&host_id(host)).copied();
        let mut keys = state.registrants().values().copied();
        let other = keys.nth(usize::try_from(self.random.below(3)).expect("few")).unwrap_or(0);
        let register = |action, ignore_existing_key| {
            let operation = Change::Register { action, ignore_existing_key, persist: None };
            (operation, NvmOpcode::RESERVATION_REGISTER, action.0, 0)
        };
        let acquire = |action: AcquireAction| {
            let operation = Change::Acquire { action, kind };
            (operation, NvmOpcode::RESERVATION_ACQUIRE, action.0, kind.0)
        };
        let release = |action: ReleaseAction| {
            let operation = Change::Release { action, kind };
            (operation, NvmOpcode::RESERVATION_RELEASE, action.0, kind.0)
        };
        let (operation, opcode, action, kind) = match self.random.below(16) {
            _ if own.is_none() => register(RegisterAction::REGISTER, false),
            0 => register(RegisterAction::UNREGISTER, false),
            1 => register(RegisterAction::REPLACE, true),
            2..=7 => acquire(AcquireAction::ACQUIRE),
            8..=10 => acquire(AcquireAction::PREEMPT),
            11..=13 => acquire(AcquireAction::PREEMPT_AND_ABORT),
            14 => release(ReleaseAction::RELEASE),
            _ => release(ReleaseAction::CLEAR),
        };
        let is_register = opcode == NvmOpcode::RESERVATION_REGISTER;
        let other = if is_register { 1 + self.random.below(5) } else { other };
        let request = ChangeRequest { operation, current: own.unwrap_or(0), other };
        let mut after = state.clone();
        let expected = after.apply(host_id(host), &request, false).map(drop);
        if expected.is_ok() {
            self.states.push(after);
        }
        let is_ignored = matches!(operation, Change::Register { ignore_existing_key: true, .. });
        let control = ReservationControl(0)
            .with_raw_action(action)
            .with_raw_reservation_type(kind)
            .with_ignore_existing_key(is_ignored);
        let mut command = Command::new(opcode).with_namespace_id(1);
        command.cdw10 = U32::new(control.0);
        let bytes: Vec<u8> =
            [request.current, other].into_iter().flat_map(u64::to_le_bytes).collect();
        let length = if opcode == NvmOpcode::RESERVATION_RELEASE { 8 } else { 16 };
        let slot = self.controls[host][1].submit(command, &bytes[..length]);
        self.change = Some((host, slot, expected));
    }

    /// One change of the paths, at random; none most of the time.
    fn disturb(&mut self) {
        let path = usize::from(self.random.chance(0.5));
        match self.random.below(300) {
            0..3 => {
                let state = AnaState::ALL[usize::try_from(self.random.below(5)).expect("small")];
                self.testbed.set_access(path, state);
            }
            3 | 4 => {
                self.away[path] = !self.away[path];
                self.testbed.set_port(path, !self.away[path]);
                self.counts[1] += 1;
            }
            5 => self.testbed.reset(usize::try_from(self.random.below(HOSTS as u64)).expect("few")),
            _ => {}
        }
    }

    fn submit(&mut self, host: usize, make: impl FnOnce(&Reactor) -> Operation) -> u64 {
        let tag = self.next;
        self.next += 1;
        let queue = usize::try_from(self.random.below(2)).expect("small");
        let (reactor, device) = self.testbed.device(host, queue);
        let operation = make(reactor);
        device.submit(reactor, Request { tag, operation });
        tag
    }

    /// A write of a host, to the block that all of them write.
    fn write(&mut self, host: usize) {
        let pending = self.writes.values().filter(|write| write.host == host).count();
        let is_guard = self.guard.as_ref().is_some_and(|guard| guard.host == host);
        if pending < DEPTH && !is_guard {
            let tag = self.next;
            let first = self.done.max(self.known[host]);
            self.submit(host, |reactor| stamped(reactor, tag));
            self.writes.insert(tag, Write { host, first });
        }
    }

    fn may_write(&self, state: usize, host: usize) -> bool {
        let refused = self.states[state].refused_to(&host_id(host));
        refused == Refusals::NONE || refused == Refusals::READS
    }

    /// What is answered must be what one of the states says that were there meanwhile.
    fn check_answers(&mut self) {
        for host in 0..HOSTS {
            for done in self.testbed.finished(host) {
                if self.guarding == Some(done.tag) {
                    self.guarding = None;
                    assert_eq!(done.result, Ok(()), "the one that may write and read");
                    let read = done.buffer.filter(|_| self.is_reading());
                    if let (Some(read), Some(guard)) = (read, &self.guard) {
                        let found = u64::from_le_bytes(read[..8].try_into().expect("8 bytes"));
                        assert_eq!(found, guard.stamp, "a write came late");
                    }
                    continue;
                }
                let Write { first, .. } = self.writes.remove(&done.tag).expect("one of them");
                let is_success = match done.result {
                    Ok(()) => true,
                    Err(Failure::Remote(status)) if Status(status) == CONFLICT => false,
                    Err(failure) => panic!("a write of host {host} failed: {failure}"),
                };
                self.counts[0] += u64::from(!is_success);
                let latest = self.states.len() - 1;
                let met = (first..=latest).find(|at| self.may_write(*at, host) == is_success);
                let met = met.unwrap_or_else(|| {
                    panic!("host {host} was answered {is_success} in states {first} to {latest}")
                });
                self.known[host] = self.known[host].max(met);
            }
        }
    }

    fn is_reading(&self) -> bool {
        self.guard.as_ref().is_some_and(|guard| matches!(guard.step, GuardStep::Reading))
    }

    fn check_change(&mut self) {
        let Some((host, slot, expected)) = self.change else { return };
        let Some(completion) = self.controls[host][1].answers.remove(&slot) else { return };
        assert_eq!(completion.status(), expected.err().unwrap_or(Status::SUCCESS));
        self.change = None;
        self.done = self.states.len() - 1;
        let writers: Vec<_> = (0..HOSTS).filter(|host| self.may_write(self.done, *host)).collect();
        if let [host] = writers[..] {
            self.guard = Some(Guard { host, stamp: 0, step: GuardStep::Waiting });
        }
    }

    /// Nobody's write comes after that of a host that alone may write, once it was told so.
    fn watch(&mut self) {
        let Some(Guard { host, stamp, step }) = self.guard.take() else { return };
        let (now, is_free) = (self.testbed.world.now(), self.guarding.is_none());
        let (stamp, step) = match step {
            GuardStep::Waiting if self.writes.values().all(|write| write.host != host) => {
                let stamp = self.next;
                self.guarding = Some(self.submit(host, |reactor| stamped(reactor, stamp)));
                (stamp, GuardStep::Writing)
            }
            GuardStep::Writing if is_free => {
                // Longer than it takes to send a write by another path.
                let most = if self.random.chance(0.1) { 8000 } else { 800 };
                let late = Duration::from_millis(self.random.below(most));
                (stamp, GuardStep::Watching(now + late))
            }
            GuardStep::Watching(until) if now >= until => {
                self.guarding = Some(self.submit(host, |reactor| {
                    let into = reactor.pool().take(BLOCK_BYTES).expect("a large pool");
                    Operation::Read { slba: 0, nlb: 1, into }
                }));
                (stamp, GuardStep::Reading)
            }
            GuardStep::Reading if is_free => {
                self.counts[2] += 1;
                return;
            }
            step => (stamp, step),
        };
        self.guard = Some(Guard { host, stamp, step });
    }

    fn turn(&mut self) {
        self.step();
        self.check_answers();
        self.check_change();
        self.watch();
    }

    fn run(mut self) -> [u64; 3] {
        let mut asked = 0;
        while asked < CHANGES || self.change.is_some() || self.guard.is_some() {
            let is_free = self.change.is_none() && self.guard.is_none();
            if is_free && asked < CHANGES && self.random.chance(0.1) {
                self.change();
                asked += 1;
            }
            // Refused writes are answered at once: without a pause there would be nothing else.
            let chance = if self.guard.is_some() { 0.02 } else { 0.5 };
            if self.random.chance(chance) {
                let host = usize::try_from(self.random.below(HOSTS as u64)).expect("few");
                self.write(host);
            }
            self.disturb();
            self.turn();
        }
        for path in 0..PATHS - 1 {
            if self.away[path] {
                self.testbed.set_port(path, true);
            }
            self.testbed.set_access(path, AnaState::Optimized);
        }
        let end = self.testbed.world.now() + BOUND;
        while !self.writes.is_empty() {
            self.turn();
            assert!(self.testbed.world.now() < end, "a write hangs");
        }
        self.controls.clear();
        self.testbed.finish();
        self.counts
    }
}

fn stamped(reactor: &Reactor, stamp: u64) -> Operation {
    let mut from = reactor.pool().take(BLOCK_BYTES).expect("a large pool");
    from.bytes_mut().fill(0);
    from.bytes_mut()[..8].copy_from_slice(&stamp.to_le_bytes());
    Operation::Write { slba: 0, nlb: 1, from, durable: false }
}

/// A half of the seeds, so that the halves run at the same time.
fn half(number: u64) {
    let seeds = seeds(number, 2);
    let (mut counts, most) = ([0; 3], seeds.end - seeds.start);
    for seed in seeds {
        let of_one = Run::new(seed).run();
        counts = std::array::from_fn(|at| counts[at] + of_one[at]);
    }
    assert!(counts.iter().all(|count| *count >= most), "too little: {counts:?} of {most} seeds");
}

#[test]
fn no_write_is_admitted_after_its_host_has_lost_whatever_happens_to_the_paths_first_half() {
    half(0);
}

#[test]
fn no_write_is_admitted_after_its_host_has_lost_whatever_happens_to_the_paths_second_half() {
    half(1);
}
