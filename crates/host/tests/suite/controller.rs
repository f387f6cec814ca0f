//! A small NVMe/TCP controller for the host to talk to, over a real reactor: namespaces in
//! memory, and knobs to make it misbehave.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use weft_nvme::command::Fused;
use weft_nvme::event::Event as AsynchronousEvent;
use weft_nvme::fabrics::{Connect, ConnectData, ConnectResult, PropertyGet, PropertySet};
use weft_nvme::feature::{FeatureId, HostBehavior, NumberOfQueues, SetFeatures};
use weft_nvme::identify::{
    self, Cns, ControllerAttributes, FusedOperations, Identify, LbaFormat, NamespaceIdentifier,
    NamespaceList, OptionalAsynchronousEvents, OptionalNvmCommands, SglSupport, push_descriptor,
};
use weft_nvme::log_page::{
    AddressFamily, DiscoveryEntry, DiscoveryHeader, Endpoint, GetLogPage, LogPageId, SubsystemType,
    TransportType,
};
use weft_nvme::nvm::{CopyCommand, CopySourceRange, DatasetRange, ReadWrite, WriteZeroes};
use weft_nvme::property::{
    Capabilities, ControllerConfiguration, ControllerStatus, Offset, ShutdownNotification,
    ShutdownStatus, Version,
};
use weft_nvme::wire::{U16, U32, U64};
use weft_nvme::{AdminOpcode, Command, Completion, FabricsType, Nqn, NvmOpcode, Status, Wire};
use weft_reactor::{Buffer, ListenerId, Operation, Outcome, Owner, Reactor, Token};
use weft_transport::target::{CapsuleData, Event, Limits, TargetConnection};
use weft_transport::{CloseReason, Slot, tag_of};

pub(crate) const SUBSYSTEM: &str = "nqn.2024-01.io.example:subsystem";
pub(crate) const BLOCK: usize = 512;
const ACCEPT: u32 = u32::MAX;

/// A namespace in memory.
#[derive(Debug, Clone)]
pub(crate) struct TestNamespace {
    pub(crate) uuid: [u8; 16],
    pub(crate) data: Vec<u8>,
    pub(crate) write_protected: bool,
}

impl TestNamespace {
    pub(crate) fn new(uuid: u8, blocks: usize) -> Self {
        Self { uuid: [uuid; 16], data: vec![0; blocks * BLOCK], write_protected: false }
    }
}

/// How the controller behaves.
#[derive(Debug, Clone)]
pub(crate) struct Behaviour {
    /// MDTS as a power of two of 4 KiB; 0 for none.
    pub(crate) mdts: u8,
    pub(crate) io_queues: u16,
    /// Refuse the Connect of I/O queues with this status.
    pub(crate) refuse_queues: Option<Status>,
    /// Take so many Connects of I/O queues for those of queues that are still there.
    pub(crate) queues_taken: u32,
    /// Do not answer I/O commands; they are executed all the same.
    pub(crate) mute_io: bool,
    /// Neither execute nor answer them.
    pub(crate) hold_io: bool,
    /// Answer so many I/O commands with a transient status instead of executing them.
    pub(crate) transient: u32,
    /// Hang up instead of executing the I/O command after so many.
    pub(crate) hang_up_after: Option<u32>,
    pub(crate) limits: Limits,
    /// Support Copy: of three ranges, four blocks each, ten in all.
    pub(crate) copies: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            mdts: 2,
            io_queues: 8,
            refuse_queues: None,
            queues_taken: 0,
            mute_io: false,
            hold_io: false,
            transient: 0,
            hang_up_after: None,
            limits: Limits::default(),
            copies: false,
        }
    }
}

#[derive(Debug)]
struct TestConnection {
    inner: TargetConnection,
    /// The association, once Connect told.
    controller: Option<u16>,
    queue_id: u16,
    /// Command identifiers, for the completions.
    ids: BTreeMap<Slot, U16>,
    /// Commands whose data is being fetched.
    fetching: BTreeMap<Slot, Command>,
    /// The outcome of a fused compare, for the write that follows.
    fused: Option<Status>,
    event_requests: Vec<Slot>,
    /// Events that nobody asked for yet.
    events: Vec<AsynchronousEvent>,
    closing: bool,
}

impl TestConnection {
    fn send_events(&mut self) {
        while !self.events.is_empty() && !self.event_requests.is_empty() {
            let (event, slot) = (self.events.remove(0), self.event_requests.remove(0));
            self.complete(slot, success().with_result(event.0.into()));
        }
    }

    fn complete(&mut self, slot: Slot, mut completion: Completion) {
        completion.command_id = self.ids.remove(&slot).expect("it is in flight");
        self.inner.complete(slot, completion);
    }

    fn send(&mut self, slot: Slot, buffer: Buffer, mut completion: Completion) {
        completion.command_id = self.ids.remove(&slot).expect("it is in flight");
        self.inner.send(slot, buffer, completion);
    }
}

#[derive(Debug, Default)]
struct Controller {
    configuration: u32,
}

/// The controller, as a guest on a reactor.
#[derive(Debug)]
pub(crate) struct TestTarget {
    owner: Owner,
    listener: Option<ListenerId>,
    pub(crate) address: SocketAddr,
    pub(crate) behaviour: Behaviour,
    pub(crate) namespaces: BTreeMap<u32, TestNamespace>,
    /// I/O commands that were executed.
    pub(crate) executed: u64,
    pub(crate) keep_alives: u64,
    /// Commands that are held, in the order in which they came.
    pub(crate) held: VecDeque<(u32, Slot)>,
    pub(crate) connects: u64,
    pub(crate) generation: u64,
    pub(crate) discovery_entries: Vec<DiscoveryEntry>,
    connections: BTreeMap<u32, TestConnection>,
    controllers: BTreeMap<u16, Controller>,
    next_tag: u32,
    next_controller: u16,
}

impl TestTarget {
    pub(crate) fn listen(reactor: &mut Reactor, owner: Owner, address: SocketAddr) -> Self {
        let listener = reactor.listen(address).expect("listen");
        let address = reactor.local_address(listener).expect("address");
        let mut target = Self {
            owner,
            listener: Some(listener),
            address,
            behaviour: Behaviour::default(),
            namespaces: BTreeMap::from([(1, TestNamespace::new(1, 4096))]),
            executed: 0,
            keep_alives: 0,
            held: VecDeque::new(),
            connects: 0,
            generation: 1,
            discovery_entries: Vec::new(),
            connections: BTreeMap::new(),
            controllers: BTreeMap::new(),
            next_tag: 0,
            next_controller: 1,
        };
        target.accept(reactor);
        target
    }

    fn accept(&mut self, reactor: &mut Reactor) {
        if let Some(listener) = self.listener {
            let token = Token::new(self.owner, ACCEPT);
            reactor.submit(token, Operation::Accept { listener });
        }
    }

    /// Stops listening and hangs up on everyone, as a process that is killed.
    pub(crate) fn stop(&mut self, reactor: &mut Reactor) {
        if let Some(listener) = self.listener.take() {
            reactor.close_listener(listener);
        }
        self.hang_up(reactor);
    }

    /// Listens again.
    pub(crate) fn start(&mut self, reactor: &mut Reactor) {
        self.listener = Some(reactor.listen(self.address).expect("listen again"));
        self.accept(reactor);
    }

    /// Closes every connection.
    pub(crate) fn hang_up(&mut self, reactor: &mut Reactor) {
        self.end_where(reactor, |_| true);
        self.controllers.clear();
    }

    /// Closes the connections of I/O queues alone.
    pub(crate) fn hang_up_queues(&mut self, reactor: &mut Reactor) {
        self.end_where(reactor, |connection| connection.queue_id != 0);
    }

    fn end_where(&mut self, reactor: &mut Reactor, is_meant: impl Fn(&TestConnection) -> bool) {
        for connection in self.connections.values_mut().filter(|own| is_meant(own)) {
            connection.closing = true;
            connection.inner.close(reactor, CloseReason::Requested("the test says so"));
        }
    }

    pub(crate) fn connected_queues(&self) -> usize {
        let standing = self.connections.values().filter(|own| own.controller.is_some());
        standing.filter(|own| own.queue_id != 0 && !own.closing).count()
    }

    /// Answers the command that has been held longest; it moves no data.
    pub(crate) fn answer_held(&mut self) {
        let held = self.held.pop_front();
        if let Some((connection, slot)) =
            held.and_then(|(tag, slot)| Some((self.connections.get_mut(&tag)?, slot)))
        {
            connection.complete(slot, success());
        }
    }

    /// Sends an asynchronous event to everyone, once they ask for one.
    pub(crate) fn notify(&mut self, event: AsynchronousEvent) {
        for connection in self.connections.values_mut().filter(|own| own.queue_id == 0) {
            connection.events.push(event);
            connection.send_events();
        }
    }

    pub(crate) fn handle(
        &mut self,
        reactor: &mut Reactor,
        completion: weft_reactor::ReactorCompletion,
    ) {
        if completion.token.tag == ACCEPT {
            if let Outcome::Accepted { socket, .. } = completion.outcome {
                self.next_tag += 1;
                let limits = self.behaviour.limits;
                let inner =
                    TargetConnection::accept(reactor, self.owner, self.next_tag, socket, limits);
                let connection = TestConnection {
                    inner,
                    controller: None,
                    queue_id: 0,
                    ids: BTreeMap::new(),
                    fetching: BTreeMap::new(),
                    fused: None,
                    event_requests: Vec::new(),
                    events: Vec::new(),
                    closing: false,
                };
                self.connections.insert(self.next_tag, connection);
            }
            return;
        }
        let tag = tag_of(completion.token);
        let Some(connection) = self.connections.get_mut(&tag) else { return };
        connection.inner.handle(reactor, completion);
        self.take_events(reactor, tag);
    }

    pub(crate) fn flush(&mut self, reactor: &mut Reactor) {
        let tags: Vec<u32> = self.connections.keys().copied().collect();
        for tag in tags {
            if let Some(connection) = self.connections.get_mut(&tag) {
                connection.inner.flush(reactor);
            }
            self.take_events(reactor, tag);
        }
    }

    fn take_events(&mut self, reactor: &mut Reactor, tag: u32) {
        while let Some(event) =
            self.connections.get_mut(&tag).and_then(|own| own.inner.poll_event())
        {
            match event {
                Event::Command { slot, data } => {
                    let Some(connection) = self.connections.get(&tag) else { continue };
                    let command = *connection.inner.command(slot).expect("it came");
                    self.command(reactor, tag, slot, command, data);
                }
                Event::Data { slot, buffer, result } => {
                    let Some(connection) = self.connections.get_mut(&tag) else { continue };
                    let command = connection.fetching.remove(&slot).expect("it was asked for");
                    match result {
                        Ok(()) => self.execute(reactor, tag, slot, &command, Some(buffer)),
                        Err(_) => {
                            let status = Status::TRANSIENT_TRANSPORT_ERROR;
                            connection.complete(slot, Completion::new(0, status));
                        }
                    }
                }
                Event::Closed { .. } => {
                    let gone = self.connections.remove(&tag);
                    let admin = gone.filter(|own| own.queue_id == 0);
                    if let Some(controller) = admin.and_then(|own| own.controller) {
                        self.controllers.remove(&controller);
                        self.end_where(reactor, |own| own.controller == Some(controller));
                    }
                }
            }
        }
    }

    fn command(
        &mut self,
        reactor: &mut Reactor,
        tag: u32,
        slot: Slot,
        command: Command,
        data: CapsuleData,
    ) {
        let Some(connection) = self.connections.get_mut(&tag) else { return };
        if connection.closing {
            return;
        }
        connection.ids.insert(slot, command.command_id);
        match data {
            CapsuleData::Inline(buffer) => {
                self.execute(reactor, tag, slot, &command, Some(buffer));
            }
            CapsuleData::Corrupt => {
                let status = Status::TRANSIENT_TRANSPORT_ERROR;
                connection.complete(slot, Completion::new(0, status));
            }
            CapsuleData::Invalid(status) => {
                connection.complete(slot, Completion::new(0, status));
            }
            CapsuleData::None if command.data_transfer().to_controller() => {
                let transfer = connection.inner.transfer(&command).expect("a good SGL");
                if transfer.bytes == 0 {
                    self.execute(reactor, tag, slot, &command, None);
                    return;
                }
                let buffer = reactor.pool().take(transfer.bytes as usize).expect("a large pool");
                connection.fetching.insert(slot, command);
                connection.inner.receive(slot, buffer);
            }
            CapsuleData::None => self.execute(reactor, tag, slot, &command, None),
        }
    }

    fn execute(
        &mut self,
        reactor: &mut Reactor,
        tag: u32,
        slot: Slot,
        command: &Command,
        data: Option<Buffer>,
    ) {
        if command.is_fabrics() {
            return self.fabrics(reactor, tag, slot, command, data);
        }
        let Some(connection) = self.connections.get_mut(&tag) else { return };
        if connection.queue_id != 0 {
            return self.input_output(reactor, tag, slot, command, data);
        }
        if command.admin_opcode() == AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST {
            connection.event_requests.push(slot);
            connection.send_events();
            return;
        }
        let (completion, bytes) = self.admin(command);
        self.answer(reactor, tag, slot, completion, &bytes);
    }

    fn answer(
        &mut self,
        reactor: &mut Reactor,
        tag: u32,
        slot: Slot,
        completion: Completion,
        bytes: &[u8],
    ) {
        let Some(connection) = self.connections.get_mut(&tag) else { return };
        if bytes.is_empty() || !completion.status().is_success() {
            connection.complete(slot, completion);
            return;
        }
        let mut buffer = reactor.pool().take(bytes.len()).expect("a large pool");
        buffer.bytes_mut().copy_from_slice(bytes);
        connection.send(slot, buffer, completion);
    }

    fn fabrics(
        &mut self,
        reactor: &mut Reactor,
        tag: u32,
        slot: Slot,
        command: &Command,
        data: Option<Buffer>,
    ) {
        let completion = match command.fabrics_type() {
            Some(FabricsType::CONNECT) => self.connect(reactor, tag, command, data),
            Some(FabricsType::PROPERTY_GET) => {
                success().with_result(self.property(tag, PropertyGet::from_command(command)))
            }
            Some(FabricsType::PROPERTY_SET) => {
                let set = PropertySet::from_command(command);
                if set.offset == Offset::CONTROLLER_CONFIGURATION
                    && let Some(controller) = self.controller_of(tag)
                {
                    controller.configuration = u32::try_from(set.value).expect("four bytes");
                }
                success()
            }
            _ => Completion::new(0, Status::INVALID_OPCODE),
        };
        self.answer(reactor, tag, slot, completion, &[]);
    }

    fn controller_of(&mut self, tag: u32) -> Option<&mut Controller> {
        let controller = self.connections.get(&tag)?.controller?;
        self.controllers.get_mut(&controller)
    }

    fn connect(
        &mut self,
        reactor: &mut Reactor,
        tag: u32,
        command: &Command,
        data: Option<Buffer>,
    ) -> Completion {
        self.connects += 1;
        let connect = Connect::from_command(command);
        let buffer = data.expect("Connect has data");
        let data = ConnectData::view(&buffer).expect("of 1024 bytes");
        let subsystem = data.subsystem().expect("a name");
        if subsystem != *SUBSYSTEM && !subsystem.is_discovery() {
            return weft_nvme::fabrics::InvalidParameter::SUBSYSTEM_NQN.refuse(0);
        }
        let id = if connect.queue_id == 0 {
            // The same host again: what it had before ends first.
            self.controllers.clear();
            self.end_where(reactor, |own| own.controller.is_some());
            let id = self.next_controller;
            self.next_controller += 1;
            self.controllers.insert(id, Controller::default());
            id
        } else {
            if let Some(status) = self.behaviour.refuse_queues {
                return Completion::new(0, status);
            }
            let id = data.controller_id.get();
            let taken = self.connections.values().any(|own| {
                own.controller == Some(id) && own.queue_id == connect.queue_id && !own.closing
            });
            if !self.controllers.contains_key(&id) {
                return Completion::new(0, Status::CONNECT_CONTROLLER_BUSY);
            }
            if taken || self.behaviour.queues_taken > 0 {
                self.behaviour.queues_taken = self.behaviour.queues_taken.saturating_sub(1);
                return Completion::new(0, Status::COMMAND_SEQUENCE_ERROR.with_dnr());
            }
            id
        };
        let connection = self.connections.get_mut(&tag).expect("it is its command");
        connection.controller = Some(id);
        connection.queue_id = connect.queue_id;
        let depth = u16::try_from(connect.submission_queue_entries() - 1).expect("a short queue");
        let flow_control = !connect.attributes.disable_flow_control();
        connection.inner.set_queue(connect.queue_id, depth, flow_control);
        success().with_result(ConnectResult(0).with_controller_id(id).0.into())
    }

    fn property(&mut self, tag: u32, get: PropertyGet) -> u64 {
        let configuration = self.controller_of(tag).map_or(0, |own| own.configuration);
        let configuration = ControllerConfiguration(configuration);
        match get.offset {
            Offset::CONTROLLER_CAPABILITIES => {
                Capabilities(0)
                    .with_nvm_command_set(true)
                    .with_timeout_500ms(4)
                    .with_maximum_queue_entries_supported(127)
                    .0
            }
            Offset::VERSION => Version::V2_1.0.into(),
            Offset::CONTROLLER_STATUS => {
                let shutdown = match configuration.shutdown_notification() {
                    ShutdownNotification::NONE => ShutdownStatus::NORMAL_OPERATION,
                    _ => ShutdownStatus::COMPLETE,
                };
                let ready = configuration.enable();
                ControllerStatus(0).with_ready(ready).with_shutdown_status(shutdown).0.into()
            }
            _ => 0,
        }
    }

    fn admin(&mut self, command: &Command) -> (Completion, Vec<u8>) {
        match command.admin_opcode() {
            AdminOpcode::IDENTIFY => {
                let identify = Identify::from_command(command);
                match self.identify(identify) {
                    Some(data) => (success(), data),
                    None => (Completion::new(0, Status::INVALID_NAMESPACE.with_dnr()), vec![]),
                }
            }
            AdminOpcode::SET_FEATURES => {
                let set = SetFeatures::from_command(command);
                let granted = NumberOfQueues::pairs(self.behaviour.io_queues).0;
                let is_count = set.feature == FeatureId::NUMBER_OF_QUEUES;
                (success().with_result(if is_count { granted.into() } else { 0 }), vec![])
            }
            AdminOpcode::GET_FEATURES => (success(), HostBehavior::default().bytes().to_vec()),
            AdminOpcode::GET_LOG_PAGE => {
                (success(), self.log_page(GetLogPage::from_command(command)))
            }
            AdminOpcode::KEEP_ALIVE => {
                self.keep_alives += 1;
                (success(), vec![])
            }
            _ => (Completion::new(0, Status::INVALID_OPCODE.with_dnr()), vec![]),
        }
    }

    fn log_page(&self, get: GetLogPage) -> Vec<u8> {
        let mut bytes = Vec::new();
        if get.log_page == LogPageId::DISCOVERY {
            let records = self.discovery_entries.len() as u64;
            bytes.extend(DiscoveryHeader::new(self.generation, records).bytes());
            for entry in &self.discovery_entries {
                bytes.extend(entry.bytes());
            }
        } else {
            // Something to tell offsets by.
            bytes.extend((0..4096u32).flat_map(u32::to_le_bytes));
        }
        let offset = usize::try_from(get.offset).expect("small").min(bytes.len());
        let mut piece = bytes.split_off(offset);
        piece.resize(usize::try_from(get.length()).expect("small"), 0);
        piece
    }

    fn identify(&self, identify: Identify) -> Option<Vec<u8>> {
        let namespace = || self.namespaces.get(&identify.namespace_id);
        match identify.cns {
            Cns::CONTROLLER => {
                let newest = self.next_controller - 1;
                Some(identify_controller(newest, &self.behaviour))
            }
            Cns::ACTIVE_NAMESPACE_LIST => {
                let above = self.namespaces.keys().filter(|nsid| **nsid > identify.namespace_id);
                Some(NamespaceList::new(above.copied()).bytes().to_vec())
            }
            Cns::NAMESPACE => {
                let namespace = namespace()?;
                let blocks = U64::new((namespace.data.len() / BLOCK) as u64);
                let mut data = identify::Namespace::zeroed();
                data.size = blocks;
                data.capacity = blocks;
                data.lba_formats[0] = LbaFormat::new(9);
                data.copy_source_ranges_0s_based = 2;
                data.copy_source_range_length_max = U16::new(4);
                data.copy_length_max = U32::new(10);
                data.attributes = data.attributes.with_write_protected(namespace.write_protected);
                Some(data.bytes().to_vec())
            }
            Cns::NAMESPACE_DESCRIPTOR_LIST => {
                let mut list = vec![0; identify::IDENTIFY_LENGTH];
                push_descriptor(&mut list, NamespaceIdentifier::Uuid(namespace()?.uuid)).ok()?;
                Some(list)
            }
            _ => None,
        }
    }

    fn input_output(
        &mut self,
        reactor: &mut Reactor,
        tag: u32,
        slot: Slot,
        command: &Command,
        data: Option<Buffer>,
    ) {
        if self.behaviour.hold_io {
            self.held.push_back((tag, slot));
            return;
        }
        if self.behaviour.transient > 0 {
            self.behaviour.transient -= 1;
            let completion = Completion::new(0, Status::TRANSIENT_TRANSPORT_ERROR);
            return self.answer(reactor, tag, slot, completion, &[]);
        }
        if let Some(left) = &mut self.behaviour.hang_up_after {
            if *left == 0 {
                self.behaviour.hang_up_after = None;
                return self.hang_up(reactor);
            }
            *left -= 1;
        }
        self.executed += 1;
        let fused = self.connections.get_mut(&tag).and_then(|own| own.fused.take());
        let (status, bytes) = match (command.flags.fused(), fused) {
            (Fused::SECOND, None) => (Status::ABORTED_MISSING_FUSED, vec![]),
            (Fused::SECOND, Some(compared)) if !compared.is_success() => {
                (Status::ABORTED_FAILED_FUSED, vec![])
            }
            _ => self.carry_out(command, data.as_deref()),
        };
        if command.flags.fused() == Fused::FIRST
            && let Some(connection) = self.connections.get_mut(&tag)
        {
            connection.fused = Some(status);
        }
        if !self.behaviour.mute_io {
            self.answer(reactor, tag, slot, Completion::new(0, status), &bytes);
        }
    }

    fn copy(&mut self, command: &Command, ranges: &[u8]) -> Status {
        let copy = CopyCommand::from_command(command);
        let own = command.namespace_id.get();
        let (mut copied, mut blocks) = (Vec::new(), 0);
        for range in ranges.chunks_exact(CopySourceRange::SIZE) {
            let range = CopySourceRange::read(range).expect("32 bytes");
            let named = range.source_namespace_id.get();
            let from = if copy.control.descriptor_format() == 2 { named } else { own };
            let Some(source) = self.namespaces.get(&from) else { return Status::INVALID_NAMESPACE };
            let start = usize::try_from(range.slba.get()).expect("small") * BLOCK;
            let nlb = usize::from(range.nlb_0s_based.get()) + 1;
            if nlb > 4 {
                return Status::COMMAND_SIZE_LIMIT_EXCEEDED;
            }
            copied.extend_from_slice(&source.data[start..start + nlb * BLOCK]);
            blocks += nlb;
        }
        let start = usize::try_from(copy.sdlba).expect("small") * BLOCK;
        let own = self.namespaces.get_mut(&own).expect("it was found");
        own.data[start..start + copied.len()].copy_from_slice(&copied);
        let is_allowed = blocks <= 10 && ranges.len() <= 3 * CopySourceRange::SIZE;
        if is_allowed { Status::SUCCESS } else { Status::COMMAND_SIZE_LIMIT_EXCEEDED }
    }

    fn carry_out(&mut self, command: &Command, data: Option<&[u8]>) -> (Status, Vec<u8>) {
        if command.nvm_opcode() == NvmOpcode::COPY {
            return (self.copy(command, data.expect("ranges")), vec![]);
        }
        let Some(namespace) = self.namespaces.get_mut(&command.namespace_id.get()) else {
            return (Status::INVALID_NAMESPACE.with_dnr(), vec![]);
        };
        let read_write = ReadWrite::from_command(command);
        let start = usize::try_from(read_write.slba).expect("small") * BLOCK;
        let opcode = command.nvm_opcode();
        if opcode == NvmOpcode::FLUSH {
            return (Status::SUCCESS, vec![]);
        }
        if opcode == NvmOpcode::DATASET_MANAGEMENT {
            for range in data.expect("ranges").chunks_exact(DatasetRange::SIZE) {
                let range = DatasetRange::read(range).expect("16 bytes");
                let start = usize::try_from(range.slba.get()).expect("small") * BLOCK;
                let end = start + range.nlb.get() as usize * BLOCK;
                namespace.data[start..end].fill(0);
            }
            return (Status::SUCCESS, vec![]);
        }
        let count = match opcode {
            NvmOpcode::WRITE_ZEROES => WriteZeroes::from_command(command).nlb(),
            _ => read_write.nlb(),
        };
        let bytes = count as usize * BLOCK;
        let most = 4096usize << self.behaviour.mdts;
        let moves_data = matches!(opcode, NvmOpcode::READ | NvmOpcode::WRITE | NvmOpcode::COMPARE);
        if moves_data && self.behaviour.mdts != 0 && bytes > most {
            return (Status::INVALID_FIELD.with_dnr(), vec![]);
        }
        let Some(place) = namespace.data.get_mut(start..start + bytes) else {
            return (Status::LBA_OUT_OF_RANGE.with_dnr(), vec![]);
        };
        match opcode {
            NvmOpcode::READ => return (Status::SUCCESS, place.to_vec()),
            NvmOpcode::WRITE => place.copy_from_slice(data.expect("data")),
            NvmOpcode::COMPARE if *place != *data.expect("data") => {
                return (Status::COMPARE_FAILURE, vec![]);
            }
            NvmOpcode::COMPARE | NvmOpcode::VERIFY => {}
            NvmOpcode::WRITE_ZEROES => place.fill(0),
            _ => return (Status::INVALID_OPCODE.with_dnr(), vec![]),
        }
        (Status::SUCCESS, vec![])
    }
}

fn success() -> Completion {
    Completion::new(0, Status::SUCCESS)
}

fn identify_controller(id: u16, behaviour: &Behaviour) -> Vec<u8> {
    let mut controller = identify::Controller::zeroed();
    controller.controller_id = U16::new(id);
    controller.maximum_data_transfer_size = behaviour.mdts;
    controller.io_command_capsule_16b = U32::new(4 + 8192 / 16);
    controller.io_response_capsule_16b = U32::new(1);
    controller.keep_alive_granularity_100ms = U16::new(1);
    controller.sgl_support = U32::new(SglSupport(0).with_supported(1).0);
    let attributes = ControllerAttributes(0).with_traffic_based_keep_alive(true);
    controller.attributes = U32::new(attributes.0);
    let events = OptionalAsynchronousEvents(0)
        .with_namespace_attribute(true)
        .with_discovery_log_change(true);
    controller.optional_asynchronous_events = U32::new(events.0);
    let commands = OptionalNvmCommands(0)
        .with_compare(true)
        .with_dataset_management(true)
        .with_write_zeroes(true)
        .with_verify(true)
        .with_copy(behaviour.copies);
    controller.copy_descriptor_formats = U16::new(0b101);
    controller.optional_nvm_commands = U16::new(commands.0);
    let fused = FusedOperations(0).with_compare_and_write(true);
    controller.fused_operations = U16::new(fused.0);
    controller.atomic_compare_and_write_unit_0s_based = U16::new(7);
    controller.bytes().to_vec()
}

/// A discovery entry for an NVM subsystem.
pub(crate) fn discovery_entry(name: &str, address: &str, port: u16) -> DiscoveryEntry {
    let endpoint = Endpoint {
        transport_type: TransportType::TCP,
        address_family: AddressFamily::IPV4,
        address,
        service_id: &port.to_string(),
        port_id: 1,
    };
    let nqn: Nqn = name.parse().expect("a good name");
    DiscoveryEntry::new(SubsystemType::NVM, &nqn, &endpoint, 32)
}
