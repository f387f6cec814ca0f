//! Hosts that register, acquire, preempt, release and clear at random while all of them write, in
//! virtual time: everything that is answered is as if each change had happened at one moment.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use weft_nvme::fabrics::{PropertySet, PropertySize};
use weft_nvme::log_page::{
    GetLogPage, LogPageId, ReservationNotification, ReservationNotificationType as Kind,
};
use weft_nvme::property::Offset;
use weft_nvme::reservation::{
    AcquireAction, RegisterAction, ReleaseAction, ReservationType as Type,
};
use weft_nvme::wire::U32;
use weft_nvme::{Command, Completion, NvmOpcode, Status, Wire};
use weft_nvmf::reservation::{HostId, Operation, Refusals, Request, Reservations};
use weft_reactor::simulation::{NetworkConditions, Random, World};
use weft_reactor::{Buffer, Owner, Reactor, WaitLimit};
use weft_target::LocalTarget;
use weft_target::config::{Config, Listen, Port};
use weft_transport::Slot;
use weft_transport::host::{HostConnection, HostData, HostEvent, HostOptions};

use crate::support::peer::{ConnectFields, enabled, read_write};
use crate::support::{SUBSYSTEM, subsystem};

const BLOCK: usize = 4096;
const HOSTS: usize = 3;
const QUEUES: usize = 2;
/// Writes of each queue at a time.
const DEPTH: usize = 3;
const CHANGES: usize = 40;
const SEEDS: u64 = 60;
const CONFLICT: Status = Status::RESERVATION_CONFLICT.with_dnr();

fn host_id(host: usize) -> HostId {
    [u8::try_from(host).expect("few") + 1; 16]
}

/// One queue of a host, with a reactor of its own.
struct Queue {
    reactor: Reactor,
    connection: HostConnection,
    is_ready: bool,
    answers: BTreeMap<u16, (Completion, Option<Buffer>)>,
}

impl Queue {
    fn open(world: &World, address: SocketAddr) -> Self {
        let mut reactor = Reactor::simulated(world);
        let options = HostOptions::default();
        let connection = HostConnection::connect(&mut reactor, Owner(1), 0, address, options);
        Self { reactor, connection, is_ready: false, answers: BTreeMap::new() }
    }

    fn submit(&mut self, command: Command, data: HostData) -> u16 {
        let slot = self.connection.submit(command, data).expect("a slot");
        self.connection.flush(&mut self.reactor);
        slot.0
    }

    fn with(&mut self, command: Command, bytes: &[u8]) -> u16 {
        let mut buffer = self.reactor.pool().take(bytes.len()).expect("room");
        buffer.bytes_mut().copy_from_slice(bytes);
        self.submit(command, HostData::ToController(buffer))
    }

    fn returning(&mut self, command: Command, bytes: usize) -> u16 {
        let buffer = self.reactor.pool().take(bytes).expect("room");
        self.submit(command, HostData::FromController(buffer))
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
                HostEvent::Completed { slot: Slot(slot), completion, buffer, .. } => {
                    self.answers.insert(slot, (completion, buffer));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A write that is under way.
struct Write {
    host: usize,
    queue: usize,
    slot: u16,
    /// The oldest state that it may have met.
    first: usize,
}

/// A host that alone may write: what it writes stays.
struct Guard {
    host: usize,
    stamp: [u8; BLOCK],
    step: GuardStep,
}

enum GuardStep {
    /// Its earlier writes are awaited.
    Waiting,
    Writing(u16),
    /// What comes late would come now.
    Watching(u32),
    Reading(u16),
}

struct Run {
    world: World,
    target: LocalTarget,
    random: Random,
    /// Admin queue and I/O queues of each host.
    hosts: Vec<[Queue; 1 + QUEUES]>,
    /// The states in their order; the last one is under way while `done` is less.
    states: Vec<Reservations>,
    done: usize,
    /// The newest state that each host knows to be there.
    known: [usize; HOSTS],
    /// Host, slot, and the status that is expected.
    change: Option<(usize, u16, Result<(), Status>)>,
    writes: Vec<Write>,
    guard: Option<Guard>,
    stamps: u64,
    told: [Vec<Kind>; HOSTS],
    refused: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let network = NetworkConditions {
            jitter: Duration::from_micros(200),
            split_probability: 0.1,
            ..NetworkConditions::default()
        };
        let world = World::new(seed, network);
        let at: SocketAddr = "10.0.0.1:4420".parse().expect("an address");
        let mut served = subsystem(SUBSYSTEM, &["delay:write=300us:memory:1MiB"]);
        served.namespaces[0].uuid = Some([0x5e; 16]);
        let config = Config {
            ports: vec![Port::new(1, Listen::tcp(at))],
            subsystems: vec![served],
            ..Config::default()
        };
        let reactors = (0..3).map(|_| Reactor::simulated(&world)).collect();
        let target = LocalTarget::new(&config, reactors).expect("a target");
        let mut run = Self {
            world,
            target,
            random: Random::new(seed ^ 0x5e5e),
            hosts: Vec::new(),
            states: vec![Reservations::default()],
            done: 0,
            known: [0; HOSTS],
            change: None,
            writes: Vec::new(),
            guard: None,
            stamps: 0,
            told: Default::default(),
            refused: 0,
        };
        run.settle();
        for host in 0..HOSTS {
            run.connect(host, at);
        }
        run
    }

    fn connect(&mut self, host: usize, at: SocketAddr) {
        let queues = [0; 1 + QUEUES].map(|_| Queue::open(&self.world, at));
        self.hosts.push(queues);
        self.until(|run| run.hosts[host].iter().all(|queue| queue.is_ready));
        let name = format!("nqn.2014-08.org.nvmexpress:uuid:{host}");
        let mut fields =
            ConnectFields { host: name, host_id: host_id(host), ..ConnectFields::admin() };
        for queue in 0..=QUEUES {
            fields.queue_id = u16::try_from(queue).expect("few");
            let data = fields.data();
            let slot = self.hosts[host][queue].with(fields.command(), data.bytes());
            let (completion, _) = self.answer(host, queue, slot);
            assert!(completion.status().is_success(), "{}", completion.status());
            if queue == 0 {
                fields.controller = u16::try_from(completion.dword0() & 0xffff).expect("16 bits");
                let (offset, size) = (Offset::CONTROLLER_CONFIGURATION, PropertySize::Four);
                let set = PropertySet::new(offset, size, enabled().0.into());
                let slot = self.hosts[host][0].submit(set.to_command(), HostData::None);
                self.answer(host, 0, slot);
            }
        }
    }

    /// Runs what is possible at this time.
    fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < 12 {
            let before = self.world.fingerprint();
            self.target.turn();
            self.hosts.iter_mut().flatten().for_each(Queue::turn);
            quiet = if self.world.fingerprint() == before { quiet + 1 } else { 0 };
        }
    }

    fn until(&mut self, is_it: impl Fn(&Self) -> bool) {
        self.settle();
        while !is_it(self) {
            assert!(self.world.advance(), "no event is left");
            self.settle();
        }
    }

    fn answer(&mut self, host: usize, queue: usize, slot: u16) -> (Completion, Option<Buffer>) {
        self.until(|run| run.hosts[host][queue].answers.contains_key(&slot));
        self.hosts[host][queue].answers.remove(&slot).expect("it is there")
    }

    /// A random change of a random host, which is likely to be a valid one.
    fn ask(&mut self) {
        let host = usize::try_from(self.random.below(HOSTS as u64)).expect("few");
        let kind = Type(u8::try_from(self.random.below(6)).expect("few") + 1);
        let state = self.states.last().expect("one");
        let kind = match state.held() {
            Some(held) if self.random.chance(0.5) => held.kind,
            _ => kind,
        };
        let own = state.registrants().get(&host_id(host)).copied();
        let mut keys = state.registrants().values().copied();
        let other = keys.nth(usize::try_from(self.random.below(3)).expect("few")).unwrap_or(0);
        let register =
            |action| Operation::Register { action, ignore_existing_key: false, persist: None };
        let acquire = |action| Operation::Acquire { action, kind };
        let release = |action| Operation::Release { action, kind };
        let operation = match self.random.below(16) {
            _ if own.is_none() => register(RegisterAction::REGISTER),
            0 => register(RegisterAction::UNREGISTER),
            1 => register(RegisterAction::REPLACE),
            2..=6 => acquire(AcquireAction::ACQUIRE),
            7..=9 => acquire(AcquireAction::PREEMPT),
            10..=12 => acquire(AcquireAction::PREEMPT_AND_ABORT),
            13 | 14 => release(ReleaseAction::RELEASE),
            _ => release(ReleaseAction::CLEAR),
        };
        let is_register = matches!(operation, Operation::Register { .. });
        let other = if is_register { self.random.below(5) } else { other };
        let request = Request { operation, current: own.unwrap_or(0), other };
        let mut after = state.clone();
        let expected = after.apply(host_id(host), &request, false);
        if let Ok(notices) = &expected {
            self.states.push(after);
            for notice in notices {
                self.told[usize::from(notice.host[0] - 1)].push(notice.kind);
            }
        }
        let bytes: Vec<u8> =
            [request.current, other].iter().flat_map(|key| key.to_le_bytes()).collect();
        let (command, bytes) = match operation {
            Operation::Release { .. } => (command_of(operation), &bytes[..8]),
            _ => (command_of(operation), &bytes[..]),
        };
        let slot = self.hosts[host][1].with(command, bytes);
        self.change = Some((host, slot, expected.map(drop)));
    }

    /// A write of a host through one of its queues, to the block that all of them write.
    fn write(&mut self, host: usize, queue: usize) {
        let is_mine = |write: &&Write| (write.host, write.queue) == (host, queue);
        if self.writes.iter().filter(is_mine).count() == DEPTH {
            return;
        }
        if self.guard.as_ref().is_some_and(|guard| guard.host == host) {
            return;
        }
        let stamp = self.stamp();
        let command = read_write(NvmOpcode::WRITE, 1, 0, 1);
        let slot = self.hosts[host][queue].with(command, &stamp);
        let first = self.done.max(self.known[host]);
        self.writes.push(Write { host, queue, slot, first });
    }

    fn stamp(&mut self) -> [u8; BLOCK] {
        self.stamps += 1;
        let mut stamp = [0; BLOCK];
        stamp[..8].copy_from_slice(&self.stamps.to_le_bytes());
        stamp
    }

    fn may_write(&self, state: usize, host: usize) -> bool {
        self.states[state].refused_to(&host_id(host)) == Refusals::NONE
            || self.states[state].refused_to(&host_id(host)) == Refusals::READS
    }

    /// What is answered must be what one of the states says that were there meanwhile. Having
    /// learned of a state, a host never meets an older one.
    fn check_writes(&mut self) {
        let latest = self.states.len() - 1;
        for write in std::mem::take(&mut self.writes) {
            let Write { host, queue, slot, first } = write;
            let Some((completion, _)) = self.hosts[host][queue].answers.remove(&slot) else {
                self.writes.push(write);
                continue;
            };
            let status = completion.status();
            assert!(status.is_success() || status == CONFLICT, "{status}");
            self.refused += u64::from(!status.is_success());
            let met = (first..=latest).find(|at| self.may_write(*at, host) == status.is_success());
            let met = met.unwrap_or_else(|| {
                panic!("host {host} was answered {status} in states {first} to {latest}")
            });
            self.known[host] = self.known[host].max(met);
        }
    }

    fn check_change(&mut self) {
        let Some((host, slot, expected)) = self.change else { return };
        let Some((completion, _)) = self.hosts[host][1].answers.remove(&slot) else { return };
        let status = completion.status();
        assert_eq!(status, expected.err().unwrap_or(Status::SUCCESS));
        self.change = None;
        self.done = self.states.len() - 1;
        let writers: Vec<usize> =
            (0..HOSTS).filter(|host| self.may_write(self.done, *host)).collect();
        if let [host] = writers[..] {
            let stamp = self.stamp();
            self.guard = Some(Guard { host, stamp, step: GuardStep::Waiting });
        }
    }

    /// Nobody's write comes after that of a host that alone may write, once it was told so.
    fn watch(&mut self) {
        let Some(Guard { host, stamp, step }) = self.guard.take() else { return };
        let queue = &mut self.hosts[host][QUEUES];
        let step = match step {
            GuardStep::Waiting if self.writes.iter().any(|write| write.host == host) => step,
            GuardStep::Waiting => {
                GuardStep::Writing(queue.with(read_write(NvmOpcode::WRITE, 1, 0, 1), &stamp))
            }
            GuardStep::Writing(slot) => match queue.answers.remove(&slot) {
                None => step,
                Some((completion, _)) => {
                    assert!(completion.status().is_success(), "{}", completion.status());
                    GuardStep::Watching(60)
                }
            },
            GuardStep::Watching(0) => {
                GuardStep::Reading(queue.returning(read_write(NvmOpcode::READ, 1, 0, 1), BLOCK))
            }
            GuardStep::Watching(left) => GuardStep::Watching(left - 1),
            GuardStep::Reading(slot) => match queue.answers.remove(&slot) {
                None => step,
                Some((_, data)) => {
                    assert!(data.as_deref() == Some(&stamp[..]), "a write came late");
                    return;
                }
            },
        };
        self.guard = Some(Guard { host, stamp, step });
    }

    /// Every host has been notified of what concerns it, in order.
    fn check_notices(&mut self) {
        for host in 0..HOSTS {
            let mut found = Vec::new();
            loop {
                let get = GetLogPage::new(LogPageId::RESERVATION_NOTIFICATION, 0, 64);
                let slot = self.hosts[host][0].returning(get.to_command(), 64);
                let (_, page) = self.answer(host, 0, slot);
                let page = page.expect("data");
                let notice = ReservationNotification::read(&page).expect("64 bytes");
                if notice.notification_type == Kind::EMPTY {
                    break;
                }
                found.push(notice.notification_type);
            }
            assert_eq!(found, self.told[host], "host {host}");
        }
    }

    fn run(mut self) -> u64 {
        let mut asked = 0;
        while asked < CHANGES || self.change.is_some() || self.guard.is_some() {
            let is_free = self.change.is_none() && self.guard.is_none();
            if is_free && asked < CHANGES && self.random.chance(0.2) {
                self.ask();
                asked += 1;
            }
            for _ in 0..2 {
                let host = usize::try_from(self.random.below(HOSTS as u64)).expect("few");
                let queue = usize::try_from(self.random.below(QUEUES as u64)).expect("few");
                self.write(host, queue + 1);
            }
            self.world.advance();
            self.settle();
            self.check_writes();
            self.check_change();
            self.watch();
        }
        self.until(|run| {
            let is_there = |write: &Write| {
                run.hosts[write.host][write.queue].answers.contains_key(&write.slot)
            };
            run.writes.iter().all(is_there)
        });
        self.check_writes();
        self.check_notices();
        self.refused
    }
}

fn command_of(operation: Operation) -> Command {
    let (opcode, action, kind) = match operation {
        Operation::Register { action, .. } => (NvmOpcode::RESERVATION_REGISTER, action.0, 0),
        Operation::Acquire { action, kind } => (NvmOpcode::RESERVATION_ACQUIRE, action.0, kind.0),
        Operation::Release { action, kind } => (NvmOpcode::RESERVATION_RELEASE, action.0, kind.0),
        Operation::Persist(_) => panic!("it has no command"),
    };
    let mut command = Command::new(opcode).with_namespace_id(1);
    command.cdw10 = U32::new(u32::from(action) | u32::from(kind) << 8);
    command
}

#[test]
fn no_write_is_admitted_after_its_host_has_lost() {
    let refused: u64 = (0..SEEDS).map(|seed| Run::new(seed).run()).sum();
    assert!(refused > SEEDS, "something was refused: {refused}");
}
