//! What a turn of a group begins, turn by turn, in a simulated world.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use weft_nvme::command::{Flags, Fused};
use weft_nvme::discovery_information::{DiscoveryTask, EntityType, EntryKeyType};
use weft_nvme::fabrics::{PropertySet, PropertySize};
use weft_nvme::feature::{Arbitration, FeatureId, SetFeatures};
use weft_nvme::log_page::{AddressFamily, DiscoveryEntry, Endpoint, SubsystemType, TransportType};
use weft_nvme::property::{ControllerConfiguration, Offset};
use weft_nvme::{AdminOpcode, Command, Nqn, NvmOpcode};
use weft_nvmf::registration::{Change, Entity, RegisteredEntry};
use weft_reactor::simulation::{Interception, NetworkConditions, World};
use weft_reactor::{Owner, Reactor, WaitLimit};
use weft_statistics::Group;
use weft_target::config::{Config, IoMetricsConfig, QosClass, QosRule};
use weft_target::{ClassReason, LocalTarget, ServedClass};
use weft_transport::CloseReason;
use weft_transport::host::{HostConnection, HostData, HostEvent, HostOptions};

use crate::support::peer::{ConnectFields, enabled, read_write};
use crate::support::{self, config};

/// A target of one group, and a host on a reactor of its own, all of them turned by hand.
pub(crate) struct Scene {
    world: World,
    target: LocalTarget,
    config: Config,
    host: Reactor,
    address: SocketAddr,
    queues: Vec<HostConnection>,
    /// Answers that have come, by queue.
    answers: Vec<usize>,
}

impl Scene {
    /// A host with an admin queue and so many I/O queues.
    fn new(io_queues: u16) -> Self {
        Self::with(io_queues, |_| ())
    }

    /// The same with another configuration of the target.
    pub(crate) fn with(io_queues: u16, change: impl FnOnce(&mut Config)) -> Self {
        Self::with_priorities(&vec![0; io_queues.into()], enabled(), change)
    }

    /// The same with queues of these priorities, and a controller that is configured so.
    pub(crate) fn with_priorities(
        priorities: &[u8],
        configuration: ControllerConfiguration,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let queues = priorities.iter().map(|priority| (1, *priority)).collect();
        Self::with_queues(queues, configuration, |_| ConnectFields::admin(), change)
    }

    /// An I/O queue at each of these ports, each with a controller of its own.
    pub(crate) fn at_ports(
        ports: &[u16],
        configuration: ControllerConfiguration,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let queues = ports.iter().map(|port| (*port, 0)).collect();
        Self::with_queues(queues, configuration, |_| ConnectFields::admin(), change)
    }

    /// The same; each port is that of another host.
    pub(crate) fn of_hosts(ports: &[u16], change: impl FnOnce(&mut Config)) -> Self {
        let queues = ports.iter().map(|port| (*port, 0)).collect();
        let host = |port: u16| {
            let (admin, mut host_id) = (ConnectFields::admin(), [1; 16]);
            host_id[..2].copy_from_slice(&port.to_le_bytes());
            ConnectFields { host: format!("{}:{port}", admin.host), host_id, ..admin }
        };
        Self::with_queues(queues, enabled(), host, change)
    }

    /// I/O queues by port and priority. Each port has a controller, in the order of its queues, of
    /// its host.
    fn with_queues(
        queues_of: Vec<(u16, u8)>,
        configuration: ControllerConfiguration,
        host_of: impl Fn(u16) -> ConnectFields,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let world = World::new(1, network());
        let ports: BTreeSet<u16> = queues_of.iter().map(|(port, _)| *port).collect();
        let mut config = Config {
            ports: ports.iter().map(|id| crate::support::port(*id, &listens_at(*id))).collect(),
            ..config(&["null:1GiB"])
        };
        change(&mut config);
        let reactors = (0..config.groups()).map(|_| Reactor::simulated(&world)).collect();
        let target = LocalTarget::new(&config, reactors).expect("a target");
        let (host, address) = (Reactor::simulated(&world), address_of(1));
        let (queues, answers) = (Vec::new(), Vec::new());
        let mut scene = Self { world, target, config, host, address, queues, answers };
        let mut controllers = BTreeMap::new();
        for port in ports {
            scene.address = address_of(port);
            let controller = scene.connect(&host_of(port));
            scene.configure(scene.queues.len() - 1, configuration);
            controllers.insert(port, (controller, 0));
        }
        for (port, priority) in queues_of {
            let (controller, queues) = controllers.get_mut(&port).expect("it has one");
            *queues += 1;
            let fields = ConnectFields::io(*controller, *queues);
            let ConnectFields { host, host_id, .. } = host_of(port);
            scene.address = address_of(port);
            scene.connect(&ConnectFields { priority, host, host_id, ..fields });
        }
        scene
    }

    fn connect(&mut self, fields: &ConnectFields) -> u16 {
        let queue = self.queues.len();
        let tag = u32::try_from(queue).expect("few");
        let options = fields.options(self.address, HostOptions::default());
        let connection =
            HostConnection::connect(&mut self.host, Owner(1), tag, self.address, options);
        self.queues.push(connection);
        self.answers.push(0);
        let event = self.next_event(queue);
        assert!(matches!(event, HostEvent::Ready { .. }), "{event:?}");
        let mut buffer = self.host.pool().take(1024).expect("room");
        buffer.copy_from_slice(weft_nvme::Wire::bytes(&fields.data()));
        self.run(queue, fields.command(), HostData::ToController(buffer))
    }

    /// Configures the controller of an admin queue.
    fn configure(&mut self, admin: usize, configuration: ControllerConfiguration) {
        let offset = Offset::CONTROLLER_CONFIGURATION;
        let set = PropertySet::new(offset, PropertySize::Four, configuration.0.into());
        self.run(admin, set.to_command(), HostData::None);
    }

    /// Runs one command; the low half of its result.
    fn run(&mut self, queue: usize, command: Command, data: HostData) -> u16 {
        self.queues[queue].submit(command, data).expect("a slot");
        match self.next_event(queue) {
            HostEvent::Completed { completion, .. } => {
                assert!(completion.status().is_success(), "{}", completion.status());
                u16::try_from(completion.dword0() & 0xffff).expect("16 bits")
            }
            other => panic!("no completion: {other:?}"),
        }
    }

    fn next_event(&mut self, queue: usize) -> HostEvent {
        for _ in 0..1000 {
            self.host_turn();
            if let Some(event) = self.queues[queue].poll_event() {
                return event;
            }
            self.target.turn();
            self.world.advance();
        }
        panic!("nothing comes");
    }

    fn host_turn(&mut self) {
        let mut completions = Vec::new();
        self.host.poll(WaitLimit::NoWait, &mut completions);
        for completion in completions {
            let queue = weft_transport::tag_of(completion.token) as usize;
            self.queues[queue].handle(&mut self.host, completion);
        }
        for queue in &mut self.queues {
            queue.flush(&mut self.host);
        }
    }

    /// Reads of so many blocks of 4 KiB each, to be sent at once.
    fn submit_reads(&mut self, queue: usize, count: usize, blocks: u32) {
        for _ in 0..count {
            let buffer = self.host.pool().take(blocks as usize * 4096).expect("room");
            let read = read_write(NvmOpcode::READ, 1, 0, blocks);
            let data = HostData::FromController(buffer);
            self.queues[queue].submit(read, data).expect("a slot");
        }
    }

    /// A Compare and Write of the first block, which is zero, to be sent at once.
    fn submit_pair(&mut self, queue: usize) {
        for (opcode, part) in
            [(NvmOpcode::COMPARE, Fused::FIRST), (NvmOpcode::WRITE, Fused::SECOND)]
        {
            let mut buffer = self.host.pool().take(4096).expect("room");
            buffer.fill(0);
            let command = read_write(opcode, 1, 0, 1).with_flags(Flags::SGL.with_fused(part));
            let submitted = self.queues[queue].submit(command, HostData::ToController(buffer));
            submitted.expect("a slot");
        }
    }

    /// Reads that have gone to the device.
    fn begun(&self) -> u64 {
        self.target.watch().read(self.world.now())[0].served[0].reads
    }

    /// Sends what was submitted; all of it is there before the target looks.
    fn deliver(&mut self) {
        self.host_turn();
        let (now, travel) = (self.world.now(), NetworkConditions::default().latency);
        while self.world.now() <= now + travel && self.world.advance() {}
    }

    /// What was begun after each turn, from the first that begins anything to the last.
    fn turns(&mut self) -> Vec<u64> {
        self.deliver();
        let before = self.begun();
        let mut turns = Vec::new();
        for _ in 0..1000 {
            self.target.turn();
            let begun = self.begun() - before;
            if begun != turns.last().copied().unwrap_or(0) {
                turns.push(begun);
            }
        }
        turns
    }

    /// Answers that have come by queue, once nothing more comes.
    fn collect(&mut self) -> Vec<usize> {
        self.collect_after(1000)
    }

    fn take_answers(&mut self) {
        self.host_turn();
        for (queue, answers) in self.queues.iter_mut().zip(&mut self.answers) {
            while let Some(event) = queue.poll_event() {
                match event {
                    HostEvent::Completed { .. } => *answers += 1,
                    HostEvent::Closed { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    pub(crate) fn reload(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.config);
        self.target.reload(&self.config).expect("a valid configuration");
    }

    /// The same after so many turns of the target.
    fn collect_after(&mut self, turns: usize) -> Vec<usize> {
        for turn in 0..1000 {
            self.take_answers();
            if turn < turns {
                self.target.turn();
            }
            self.world.advance();
        }
        self.answers.clone()
    }
}

/// 64 commands, or 512 KiB of data, and the rest in turns of its own, without anything happening.
#[test]
fn a_turn_begins_so_much_of_a_connection_and_no_more() {
    for (count, blocks, expected) in [
        (100, 1, vec![64, 100]),
        (127, 2, vec![64, 127]),
        (64, 1, vec![64]),
        (10, 32, vec![4, 8, 10]),
        // The last that begins may go beyond.
        (7, 50, vec![3, 6, 7]),
        (3, 256, vec![1, 2, 3]),
    ] {
        let mut scene = Scene::new(1);
        scene.submit_reads(1, count, blocks);
        assert_eq!(scene.turns(), expected, "{count} reads of {blocks} blocks");
        assert_eq!(scene.collect(), [0, count], "all are answered");
    }
}

/// 120 reads that came at once begin in two turns, 10 ms apart.
#[test]
fn a_command_is_measured_from_when_it_came_however_many_turns_it_waits() {
    let ms = Duration::from_millis;
    let mut scene = Scene::with(1, |config| config.io_metrics = Some(IoMetricsConfig::default()));
    scene.submit_reads(1, 120, 1);
    scene.deliver();
    for _ in 0..4 {
        scene.target.turn();
        scene.world.pass(ms(10));
    }
    let now = scene.world.now();
    let commands = scene.target.watch().io_metrics(now).expect("it is measured").commands;
    let reads = commands.iter().find(|one| one.command == "read").expect("there are some");
    assert_eq!(reads.count(), 120);
    let waited = Duration::from_nanos(reads.total_ns);
    // 64 in the first turn, and 56 in the one after.
    assert!((ms(560)..ms(570)).contains(&waited), "{waited:?}");
    assert_eq!(Duration::from_nanos(reads.waits.turn_ns), ms(560), "all of it for its turn");
    assert_eq!(scene.collect(), [0, 120]);
}

/// What is left of one connection goes behind what others want, and of all together a turn begins
/// no more than of one.
#[test]
fn a_deep_queue_does_not_use_up_the_turn_of_others() {
    let mut scene = Scene::new(2);
    // The second is the first to be looked at.
    scene.submit_reads(1, 3, 1);
    scene.submit_reads(2, 127, 1);
    scene.deliver();
    assert_eq!(scene.collect_after(1), [0, 0, 64]);
    assert_eq!(scene.collect_after(1), [0, 3, 64 + 61]);
    assert_eq!(scene.collect(), [0, 3, 127]);
}

/// What is told of a change in a turn is as much as it takes to look at some 1,024 namespaces, and
/// the rest in turns of its own, without anything happening.
#[test]
fn a_turn_tells_so_many_hosts_of_a_change_and_no_more() {
    const HOSTS: u16 = 40;
    for namespaces in [10, 200, 1000] {
        let most = 1024_usize.div_ceil(namespaces - 1 + 64);
        let ports: Vec<u16> = (1..=HOSTS).collect();
        let mut scene = Scene::at_ports(&ports, enabled(), |config| {
            config.subsystems = support::config(&vec!["null:1MiB"; namespaces]).subsystems;
        });
        let hosts = 0..usize::from(HOSTS);
        for admin in hosts.clone() {
            let request = Command::new(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST);
            scene.queues[admin].submit(request, HostData::None).expect("a slot");
        }
        scene.pass_turns();
        let before = scene.answers[hosts.clone()].to_vec();
        scene.reload(|config| {
            config.subsystems[0].namespaces.pop();
        });
        let mut told = vec![0];
        while told.last() != Some(&before.len()) {
            let answers = scene.collect_after(1);
            told.push(hosts.clone().filter(|host| answers[*host] > before[*host]).count());
            assert!(told.len() < 1000, "{told:?}");
        }
        let of_turn = told.windows(2).map(|turns| turns[1] - turns[0]).max();
        assert_eq!(of_turn, Some(most), "{namespaces} namespaces: {told:?}");
    }
}

/// Whatever a host registers, and however many commands it sends at once.
#[test]
fn a_turn_makes_one_registration() {
    const COMMANDS: usize = 8;
    let mut scene = Scene::with(1, |config| config.centralized_discovery = true);
    let discovery = scene.queues.len();
    let subsystem = Nqn::DISCOVERY.as_str().to_owned();
    scene.connect(&ConnectFields { subsystem, ..ConnectFields::admin() });
    scene.configure(discovery, enabled());
    for number in 0..COMMANDS {
        let (command, data) = registration(number).to_command();
        let mut buffer = scene.host.pool().take(data.len()).expect("room");
        buffer.copy_from_slice(&data);
        let submitted = scene.queues[discovery].submit(command, HostData::ToController(buffer));
        submitted.expect("a slot");
    }
    scene.deliver();
    let mut answered = vec![0];
    while answered.last() != Some(&COMMANDS) {
        answered.push(scene.collect_after(1)[discovery]);
        assert!(answered.len() < 100, "{answered:?}");
    }
    assert!(answered.windows(2).all(|turns| turns[1] - turns[0] <= 1), "{answered:?}");
}

/// A subsystem that another target registers.
fn registration(number: usize) -> Change {
    let endpoint = Endpoint {
        transport_type: TransportType::TCP,
        address_family: AddressFamily::IPV4,
        address: &format!("192.0.2.{number}"),
        service_id: "4420",
        port_id: 1,
    };
    let nqn = support::SUBSYSTEM.parse().expect("a name");
    let entry = DiscoveryEntry::new(SubsystemType::NVM, &nqn, &endpoint, 32);
    let entity = Entity {
        kind: EntityType::DIRECT,
        id: nqn,
        name: "a target".to_owned(),
        version: "1".to_owned(),
    };
    let entries = vec![RegisteredEntry::basic(entry)];
    Change { task: DiscoveryTask::REGISTER, entity, key: EntryKeyType::ADDRESS, entries }
}

/// Deep queues take turns.
#[test]
fn a_postponed_connection_is_passed_once() {
    let mut scene = Scene::new(3);
    for queue in 1..=3 {
        scene.submit_reads(queue, 120, 1);
    }
    scene.deliver();
    for expected in [[0, 0, 64], [0, 64, 64], [64, 64, 64], [64, 72, 120], [80, 120, 120]] {
        let mut answered = scene.collect_after(1);
        answered.sort_unstable();
        assert_eq!(answered[1..], expected);
    }
    assert_eq!(scene.collect(), [0, 120, 120, 120]);
}

/// How much later than its neighbour's commands a small one is sent, and how long the target works
/// on each of those. Both come while it does.
const LATER: Duration = Duration::from_micros(20);
const WORK: Duration = Duration::from_micros(1);

impl Scene {
    /// A deep queue, and two of a host that waits for each answer; they are express if they may be.
    fn with_neighbour(is_on: bool) -> Self {
        let mut scene = Self::with(3, |config| config.express = is_on);
        scene.submit_reads(1, 64, 1);
        for queue in [2, 3] {
            scene.submit_reads(queue, 1, 1);
        }
        scene.pass_turns();
        scene.world.pass(Duration::from_millis(2));
        for queue in [2, 3] {
            scene.submit_reads(queue, 1, 1);
        }
        scene.submit_reads(1, 10, 1);
        scene.pass_turns();
        let statistics = scene.statistics();
        assert_eq!(statistics.express.queues, if is_on { 2 } else { 0 });
        scene.world.set_work_time(WORK);
        scene
    }

    /// Answers that have come by queue after a millisecond: an idle queue is express no longer.
    fn pass_turns(&mut self) -> Vec<usize> {
        self.pass(100)
    }

    /// The same after so many turns.
    fn pass(&mut self, turns: usize) -> Vec<usize> {
        for _ in 0..turns {
            self.take_answers();
            self.target.turn();
            self.world.pass(Duration::from_micros(10));
        }
        self.answers.clone()
    }

    pub(crate) fn statistics(&self) -> Group {
        self.target.watch().read(self.world.now()).remove(0)
    }

    /// Sends so many reads of the deep queue, and a little later one of another; when the answers
    /// to each queue have come, and how often queues were served as express ones.
    fn race(&mut self, reads: usize, queue: usize) -> ([Duration; 2], u64) {
        let (begun, before) = (self.world.now(), self.answers.clone());
        let served = self.statistics().express.served;
        self.submit_reads(1, reads, 1);
        self.host_turn();
        self.world.pass(LATER);
        self.submit_reads(queue, 1, 1);
        self.host_turn();
        self.world.pass(NetworkConditions::default().latency - LATER);
        let mut at = [Duration::ZERO; 2];
        while at.contains(&Duration::ZERO) {
            self.target.turn();
            self.world.pass(Duration::from_micros(1));
            self.take_answers();
            for (at, (queue, count)) in at.iter_mut().zip([(1, reads), (queue, 1)]) {
                if *at == Duration::ZERO && self.answers[queue] == before[queue] + count {
                    *at = self.world.now() - begun;
                }
            }
        }
        (at, self.statistics().express.served - served)
    }
}

/// A command that comes while the target begins those of a deep queue is answered meanwhile.
#[test]
fn an_express_queue_is_served_between_the_commands_of_others() {
    let way = 2 * NetworkConditions::default().latency;
    let mut scene = Scene::with_neighbour(true);
    for (reads, queue) in [(64, 2), (64, 3), (40, 2), (60, 2), (64, 3)] {
        let ([deep, small], served) = scene.race(reads, queue);
        // It was sent later, and came within the turn of the others.
        assert!(small < deep, "{small:?}, {deep:?}");
        assert!(deep >= way + WORK * u32::try_from(reads).expect("few"), "{deep:?}");
        assert_eq!(served, 1);
    }
}

/// Write Zeroes and Deallocate of others are executed in pieces while there are express queues:
/// otherwise a memory device executes 4 or 16 MiB of them at once.
#[test]
fn an_express_queue_is_served_between_the_pieces_of_others() {
    let deallocate = |scene: &mut Scene| {
        let mut ranges = scene.host.pool().take(16).expect("room");
        // Context attributes, length in blocks, first block.
        ranges[4..8].copy_from_slice(&8192_u32.to_le_bytes());
        let mut command = read_write(NvmOpcode::DATASET_MANAGEMENT, 1, 0, 1);
        (command.cdw10, command.cdw11) = (0.into(), 4.into());
        (command, HostData::ToController(ranges))
    };
    let zero = |_: &mut Scene| (read_write(NvmOpcode::WRITE_ZEROES, 1, 0, 2048), HostData::None);
    for is_zero in [true, false] {
        for class in [QosClass::Latency, QosClass::Throughput] {
            let mut scene = Scene::at_ports(&[1, 2], enabled(), |config| {
                config.subsystems = support::config(&["memory:64MiB"]).subsystems;
                config.express = false;
                config.qos_rules = vec![QosRule { port: Some(2), ..rule(class) }];
            });
            scene.submit_reads(3, 1, 1);
            scene.pass_turns();
            scene.world.set_work_time(WORK);
            let (command, data) = if is_zero { zero(&mut scene) } else { deallocate(&mut scene) };
            scene.queues[2].submit(command, data).expect("a slot");
            scene.host_turn();
            scene.world.pass(LATER);
            scene.submit_reads(3, 1, 1);
            scene.host_turn();
            scene.world.pass(NetworkConditions::default().latency - LATER);
            let before = scene.answers.clone();
            let mut order = Vec::new();
            while order.len() < 2 {
                scene.target.turn();
                scene.world.pass(Duration::from_micros(1));
                scene.take_answers();
                let has_come = |queue: &usize| scene.answers[*queue] > before[*queue];
                let new =
                    [2, 3].into_iter().filter(|queue| has_come(queue) && !order.contains(queue));
                order.extend(new.collect::<Vec<_>>());
            }
            let expected = if class == QosClass::Latency { [3, 2] } else { [2, 3] };
            assert_eq!(order, expected, "{class:?}");
        }
    }
}

/// Where that is off, or in force no longer, it waits for the turn of the others.
#[test]
fn without_express_queues_a_command_waits_for_the_turn_of_others() {
    let mut scene = Scene::with_neighbour(false);
    let ([deep, small], served) = scene.race(64, 2);
    assert!(deep < small && served == 0, "{deep:?}, {small:?}");
    let mut scene = Scene::with_neighbour(true);
    scene.reload(|config| config.express = false);
    // They are looked through some time later.
    scene.world.pass(Duration::from_millis(11));
    scene.target.turn();
    let ([deep, small], served) = scene.race(64, 2);
    assert!(deep < small && served == 0, "{deep:?}, {small:?}");
    assert_eq!(scene.statistics().express.queues, 0);
}

/// A queue that sends much at once is express no longer, and all of it is answered.
#[test]
fn an_express_queue_that_sends_much_goes_back_into_the_turn() {
    let mut scene = Scene::with_neighbour(true);
    scene.submit_reads(1, 64, 1);
    scene.submit_reads(2, 100, 1);
    let before = scene.answers.clone();
    let answers = scene.pass_turns();
    assert_eq!((answers[1] - before[1], answers[2] - before[2]), (64, 100));
    assert_eq!(scene.statistics().express.queues, 1);
}

/// The connection of an express queue ends while its commands are served between others: in good
/// order, or with a command that breaks the protocol.
#[test]
fn an_express_queue_ends_between_the_commands_of_others() {
    let mut scene = Scene::with_neighbour(true);
    scene.submit_reads(1, 64, 1);
    scene.host_turn();
    scene.world.pass(LATER);
    // One closes at once, the other names data that no command has.
    scene.queues[2].close(&mut scene.host, CloseReason::Requested("the test ends it"));
    scene.submit_reads(3, 1, 1);
    scene.host_turn();
    let answers = scene.pass_turns();
    assert_eq!(answers[1], 64 + 10 + 64);
    assert_eq!(scene.statistics().express.queues, 1);
    let ([_, small], served) = scene.race(64, 3);
    assert!(served == 1, "{small:?}");
}

impl Scene {
    /// Keeps so many reads of so many blocks in flight at each I/O queue for this time. How many
    /// were answered meanwhile, by queue.
    pub(crate) fn keep_busy(&mut self, depth: usize, blocks: u32, time: Duration) -> Vec<usize> {
        self.keep_depths(|_| depth, blocks, time)
    }

    /// The same with a depth for each queue.
    pub(crate) fn keep_depths(
        &mut self,
        depth: impl Fn(usize) -> usize,
        blocks: u32,
        time: Duration,
    ) -> Vec<usize> {
        self.keep_loads(depth, |_| blocks, time)
    }

    /// The same with a size for each queue as well.
    pub(crate) fn keep_loads(
        &mut self,
        depth: impl Fn(usize) -> usize,
        blocks: impl Fn(usize) -> u32,
        time: Duration,
    ) -> Vec<usize> {
        let reads =
            |scene: &mut Self, queue, missing| scene.submit_reads(queue, missing, blocks(queue));
        self.keep(depth, reads, time)
    }

    /// The same with Write Zeroes of so many blocks.
    pub(crate) fn keep_zeroes(
        &mut self,
        depth: impl Fn(usize) -> usize,
        blocks: u32,
        time: Duration,
    ) -> Vec<usize> {
        let zeroes = |scene: &mut Self, queue: usize, missing| {
            for _ in 0..missing {
                let command = read_write(NvmOpcode::WRITE_ZEROES, 1, 0, blocks);
                scene.queues[queue].submit(command, HostData::None).expect("a slot");
            }
        };
        self.keep(depth, zeroes, time)
    }

    fn keep(
        &mut self,
        depth: impl Fn(usize) -> usize,
        submit: impl Fn(&mut Self, usize, usize),
        time: Duration,
    ) -> Vec<usize> {
        let (until, before) = (self.world.now() + time, self.answers.clone());
        let of_controllers = self.config.ports.len();
        while self.world.now() < until {
            for queue in of_controllers..self.queues.len() {
                let missing = depth(queue).saturating_sub(self.queues[queue].in_flight());
                submit(self, queue, missing);
            }
            // A receive has a bound: the host takes all that has come, as it is no part of this.
            let mut taken = self.answers.clone();
            loop {
                self.take_answers();
                if std::mem::replace(&mut taken, self.answers.clone()) == self.answers {
                    break;
                }
            }
            let begun = self.world.now();
            self.target.turn();
            // All may have come within a turn that takes long: it is to wait for no timer of much
            // later.
            let is_short = self.world.now() - begun < NetworkConditions::default().latency;
            if is_short || self.world.has_events() {
                self.world.advance();
            }
            // All that has come by now, as the target's work takes time.
            self.world.pass(Duration::from_nanos(1));
        }
        self.answers.iter().zip(before).map(|(now, before)| now - before).collect()
    }

    pub(crate) fn set_work_time(&self, time: Duration) {
        self.world.set_work_time(time);
    }

    /// What is sent from now on takes up to so much longer.
    pub(crate) fn set_jitter(&self, jitter: Duration) {
        self.world.set_network(NetworkConditions { jitter, ..network() });
    }

    pub(crate) fn set_send_time(&self, time: Duration) {
        self.world.set_send_time(time);
    }

    /// How long the target takes from a command that has come to this port until it sends, while
    /// that has one at a time.
    pub(crate) fn answer_times(&self, port: u16) -> Rc<RefCell<Vec<Duration>>> {
        let times = Rc::new(RefCell::new(Vec::new()));
        let (taken, port, mut arrived) = (Rc::clone(&times), address_of(port), Duration::ZERO);
        let travel = NetworkConditions::default().latency;
        self.world.intercept(move |now, [from, to], bytes| {
            if to == port {
                arrived = now + travel;
            } else if from == port {
                taken.borrow_mut().push(now.saturating_sub(arrived));
            }
            vec![Interception::Forward(bytes)]
        });
        times
    }

    /// Sets the feature Arbitration.
    pub(crate) fn set_arbitration(&mut self, value: Arbitration) {
        let set = SetFeatures::new(FeatureId::ARBITRATION, value.0);
        self.run(0, set.to_command(), HostData::None);
    }

    /// The I/O queues of each group.
    pub(crate) fn queues_of_groups(&self) -> Vec<u64> {
        let groups = self.target.watch().read(self.world.now());
        groups.into_iter().map(|group| group.queues).collect()
    }

    /// How the I/O queues are served.
    fn classes(&self) -> Vec<ServedClass> {
        let queues = self.target.watch().queues();
        queues.into_iter().filter_map(|queue| queue.class).collect()
    }
}

/// Wide enough for everything to come at once.
fn network() -> NetworkConditions {
    NetworkConditions { window_bytes: 64 << 20, ..NetworkConditions::default() }
}

/// Where the port with this number listens.
fn listens_at(port: u16) -> String {
    format!("10.0.0.2:{}", 4419 + port)
}

fn address_of(port: u16) -> SocketAddr {
    listens_at(port).parse().expect("an address")
}

/// A rule for all queues.
fn rule(class: QosClass) -> QosRule {
    QosRule { host: None, subsystem: None, port: None, class, weight: None }
}

/// Whatever the queues do, and without another setting.
#[test]
fn rules_of_classes_are_changed_under_load() {
    let mut scene = Scene::with(3, |config| config.express = false);
    let expected = |class, reason, is_express| vec![ServedClass { class, reason, is_express }; 3];
    let load = |scene: &mut Scene| {
        for (queue, reads) in [(1, 64), (2, 1), (3, 100)] {
            scene.submit_reads(queue, reads, 1);
        }
        let before = scene.answers.clone();
        let answers = scene.pass_turns();
        assert_eq!((1..4).map(|queue| answers[queue] - before[queue]).sum::<usize>(), 165);
        (scene.classes(), scene.statistics().express.queues)
    };
    let default = expected(QosClass::Throughput, ClassReason::Default, false);
    assert_eq!(load(&mut scene), (default.clone(), 0));
    scene.reload(|config| config.qos_rules = vec![rule(QosClass::Latency)]);
    load(&mut scene);
    let (classes, queues) = load(&mut scene);
    assert_eq!(classes, expected(QosClass::Latency, ClassReason::Rule, true));
    assert_eq!(queues, 3);
    let served = scene.statistics();
    assert!(served.express.served > 0 && served.express.commands >= 165, "{served:?}");
    scene.reload(|config| {
        config.express = true;
        config.qos_rules = vec![rule(QosClass::Throughput)];
    });
    let (classes, queues) = load(&mut scene);
    assert_eq!(classes, expected(QosClass::Throughput, ClassReason::Rule, false));
    assert_eq!(queues, 0);
    scene.reload(|config| config.qos_rules.clear());
    let (classes, _) = load(&mut scene);
    assert!(classes.iter().all(|of| of.reason == ClassReason::Automatic), "{classes:?}");
}

/// The turn may have flushed the devices when an express queue is served: what it begins then goes
/// to its device at once, and not with whatever comes next.
#[test]
fn a_pair_that_comes_at_the_end_of_a_turn_does_not_wait_for_another_turn() {
    let mut scene = Scene::with(1, |config| {
        *config = Config { ports: config.ports.clone(), ..support::config(&["memory:1MiB"]) };
        config.qos_rules = vec![rule(QosClass::Latency)];
    });
    scene.queues[1].set_in_capsule_bytes(8192);
    let travel = NetworkConditions::default().latency;
    let mut together = 0;
    for later in (0..120).map(|step| Duration::from_nanos(250) * step) {
        scene.world.set_work_time(Duration::ZERO);
        let answers = scene.pass_turns();
        scene.world.set_work_time(WORK);
        let keep_alive = Command::new(AdminOpcode::KEEP_ALIVE);
        scene.queues[0].submit(keep_alive, HostData::None).expect("a slot");
        scene.host_turn();
        scene.world.pass(later);
        scene.submit_pair(1);
        scene.host_turn();
        scene.world.pass(travel - later);
        let before = scene.statistics();
        scene.target.turn();
        if scene.statistics().express.served > before.express.served {
            together += 1;
            scene.world.pass(2 * travel);
            scene.take_answers();
            assert_eq!(scene.answers[1] - answers[1], 2, "{later:?} after a keep-alive");
        }
    }
    assert!(together > 0, "the pair has never come within the turn");
}

/// Express queues that have used up their half of the time are served in their turn, which is
/// counted.
#[test]
fn express_queues_without_credit_are_served_in_their_turn() {
    let mut scene = Scene::with(2, |config| {
        config.qos_rules = vec![rule(QosClass::Latency)];
    });
    let work = Duration::from_micros(50);
    scene.world.set_work_time(work);
    scene.submit_reads(2, 64, 1);
    assert_eq!(scene.pass(10)[2], 64);
    let first = scene.statistics();
    assert_eq!(first.express.commands, 64, "{first:?}");
    assert!(Duration::from_nanos(first.express.time_ns) >= 64 * work, "{first:?}");
    // They are half of 6.4 ms.
    scene.submit_reads(2, 64, 1);
    assert_eq!(scene.pass_turns()[2], 128);
    let second = scene.statistics();
    assert!(second.express.refused > first.express.refused, "{second:?}");
    assert_eq!(second.express.commands, first.express.commands, "{second:?}");
    scene.world.pass(Duration::from_millis(50));
    scene.submit_reads(2, 1, 1);
    assert_eq!(scene.pass_turns()[2], 129);
    assert_eq!(scene.statistics().express.commands, first.express.commands + 1);
}

/// Where the host has chosen weighted round robin, the priority of a queue decides: Urgent is 0.
#[test]
fn the_priority_of_a_queue_decides_where_the_host_has_chosen_that() {
    let chosen = enabled().with_arbitration_mechanism(1);
    let is_on = |config: &mut Config| config.express = true;
    let mut scene = Scene::with_priorities(&[2, 0, 3], chosen, is_on);
    for _ in 0..2 {
        for (queue, reads) in [(1, 1), (2, 64), (3, 1)] {
            scene.submit_reads(queue, reads, 1);
        }
        scene.pass_turns();
    }
    let of = |class, is_express| ServedClass { class, reason: ClassReason::Connect, is_express };
    let (latency, throughput) = (of(QosClass::Latency, true), of(QosClass::Throughput, false));
    assert_eq!(scene.classes(), [throughput, latency, throughput]);
    // A rule comes first.
    scene.reload(|config| config.qos_rules = vec![rule(QosClass::Throughput)]);
    scene.submit_reads(2, 1, 1);
    scene.pass_turns();
    assert!(scene.classes().iter().all(|of| of.reason == ClassReason::Rule && !of.is_express));
}
