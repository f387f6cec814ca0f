//! A plain host: one thread, one reactor, one queue.

use std::net::SocketAddr;

use weft_nvme::fabrics::{
    Connect, ConnectAttributes, ConnectData, PropertyGet, PropertySet, PropertySize,
};
use weft_nvme::feature::{FeatureId, SetFeatures};
use weft_nvme::log_page::{GetLogPage, LogPageId};
use weft_nvme::nvm::ReadWrite;
use weft_nvme::property::{ControllerConfiguration, ControllerStatus, Offset};
use weft_nvme::{AdminOpcode, Command, Completion, Nqn, NvmOpcode, Status, Wire};
use weft_nvmf::limits::RDMA_IN_CAPSULE_BYTES_MAX;
use weft_reactor::{Buffer, Config, DriverKind, Owner, Reactor, WaitLimit};
use weft_transport::host::{HostConnection, HostData, HostEvent, HostOptions, TransportOptions};
use weft_transport::rdma::{Provider, ensure_provider};
use weft_transport::{CloseReason, Slot};

use super::{HOST, HOST_ID, LONG, SUBSYSTEM, fabric, is_rdma};

/// What a Connect says.
#[derive(Clone, Debug)]
pub(crate) struct ConnectFields {
    pub(crate) queue_id: u16,
    pub(crate) entries: u32,
    pub(crate) controller: u16,
    pub(crate) subsystem: String,
    pub(crate) host: String,
    pub(crate) host_id: [u8; 16],
    pub(crate) flow_control: bool,
    pub(crate) priority: u8,
    pub(crate) keep_alive_ms: u32,
}

impl ConnectFields {
    /// An admin queue of a controller that the target chooses.
    pub(crate) fn admin() -> Self {
        Self {
            queue_id: 0,
            entries: 32,
            controller: 0xffff,
            subsystem: SUBSYSTEM.to_owned(),
            host: HOST.to_owned(),
            host_id: HOST_ID,
            flow_control: true,
            priority: 0,
            keep_alive_ms: 0,
        }
    }

    /// An I/O queue.
    pub(crate) fn io(controller: u16, queue_id: u16) -> Self {
        Self { queue_id, entries: 128, controller, ..Self::admin() }
    }

    /// The same, of the other host.
    pub(crate) fn of_other_host(self) -> Self {
        Self { host: super::OTHER_HOST.to_owned(), host_id: super::OTHER_HOST_ID, ..self }
    }

    /// What a connection for it needs that goes to this address.
    pub(crate) fn options(&self, address: SocketAddr, options: HostOptions) -> HostOptions {
        if !is_rdma(address) {
            return options;
        }
        let (queue_id, controller_id) = (self.queue_id, self.controller);
        let depth = u16::try_from(self.entries - 1).expect("a depth");
        let transport_options = TransportOptions::Rdma { queue_id, controller_id };
        HostOptions { transport_options, queue_depth: depth.min(options.queue_depth), ..options }
    }

    pub(crate) fn command(&self) -> Command {
        Connect {
            record_format: 0,
            queue_id: self.queue_id,
            submission_queue_size: u16::try_from(self.entries - 1).expect("a size"),
            attributes: ConnectAttributes(0)
                .with_priority_class(self.priority)
                .with_disable_flow_control(!self.flow_control),
            keep_alive_timeout_ms: self.keep_alive_ms,
        }
        .to_command()
    }

    pub(crate) fn data(&self) -> ConnectData {
        let subsystem: Nqn = self.subsystem.parse().expect("a name");
        let host: Nqn = self.host.parse().expect("a name");
        ConnectData::new(self.host_id, self.controller, &subsystem, &host)
    }
}

/// One queue of a host.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) reactor: Reactor,
    pub(crate) connection: HostConnection,
    /// Answers that came while another was waited for.
    answers: Vec<Answer>,
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) slot: Slot,
    pub(crate) completion: Completion,
    pub(crate) data: Option<Buffer>,
    pub(crate) received: u32,
}

impl Answer {
    pub(crate) fn status(&self) -> Status {
        self.completion.status()
    }

    /// The data that came, if all went well.
    pub(crate) fn bytes(&self) -> &[u8] {
        assert!(self.status().is_success(), "{}", self.status());
        self.data.as_deref().expect("data")
    }

    #[track_caller]
    pub(crate) fn succeeded(self) -> Self {
        assert!(self.status().is_success(), "{}", self.status());
        self
    }
}

impl Peer {
    /// A connection that has gone through its handshake.
    pub(crate) fn open(address: SocketAddr, options: HostOptions) -> Self {
        Self::with_pool(address, options, 16 << 20)
    }

    /// The same, with so much room for data.
    pub(crate) fn with_pool(address: SocketAddr, options: HostOptions, pool_bytes: usize) -> Self {
        // Not io_uring: there a socket that is dropped may stay open for a moment longer.
        let config = Config { driver: DriverKind::Epoll, pool_bytes, ..Config::default() };
        let mut reactor = Reactor::new(config).expect("a reactor");
        let options = match options.transport_options {
            TransportOptions::Tcp if is_rdma(address) => HostOptions {
                transport_options: TransportOptions::Rdma { queue_id: 1, controller_id: 0 },
                ..options
            },
            _ => options,
        };
        ensure_provider(&mut reactor, &Provider::Software(fabric().clone()));
        let connection = HostConnection::connect(&mut reactor, Owner(1), 0, address, options);
        let mut peer = Self { reactor, connection, answers: Vec::new() };
        match peer.next_event() {
            HostEvent::Ready { .. } => peer,
            other => panic!("no handshake: {other:?}"),
        }
    }

    /// An admin queue whose controller is enabled, and the controller's identifier.
    pub(crate) fn admin(address: SocketAddr) -> (Self, u16) {
        Self::admin_as(address, &ConnectFields::admin())
    }

    /// The same, with a Connect of one's own.
    pub(crate) fn admin_as(address: SocketAddr, fields: &ConnectFields) -> (Self, u16) {
        let mut peer = Self::open(address, fields.options(address, HostOptions::default()));
        let answer = peer.connect(fields).succeeded();
        peer.enable();
        (peer, u16::try_from(answer.completion.dword0() & 0xffff).expect("16 bits"))
    }

    /// An I/O queue of a controller.
    pub(crate) fn io(address: SocketAddr, controller: u16, queue_id: u16) -> Self {
        Self::io_as(address, &ConnectFields::io(controller, queue_id), HostOptions::default())
    }

    /// The same, with a Connect and options of one's own.
    pub(crate) fn io_as(address: SocketAddr, fields: &ConnectFields, options: HostOptions) -> Self {
        let mut peer = Self::open(address, fields.options(address, options));
        peer.connect(fields).succeeded();
        let in_capsule = if is_rdma(address) { RDMA_IN_CAPSULE_BYTES_MAX } else { 16 * 1024 };
        peer.connection.set_in_capsule_bytes(in_capsule);
        peer
    }

    /// Connects and waits for the answer.
    pub(crate) fn connect(&mut self, fields: &ConnectFields) -> Answer {
        let slot = self.begin_connect(fields);
        self.wait_for(slot)
    }

    /// Connects without waiting for the answer.
    pub(crate) fn begin_connect(&mut self, fields: &ConnectFields) -> Slot {
        let buffer = self.buffer(fields.data().bytes());
        self.submit(fields.command(), HostData::ToController(buffer))
    }

    pub(crate) fn enable(&mut self) {
        self.configure(enabled());
        assert!(self.controller_status().ready());
    }

    /// Sets Controller Configuration.
    pub(crate) fn configure(&mut self, value: ControllerConfiguration) {
        let set =
            PropertySet::new(Offset::CONTROLLER_CONFIGURATION, PropertySize::Four, value.0.into());
        self.run(set.to_command(), HostData::None).succeeded();
    }

    pub(crate) fn controller_status(&mut self) -> ControllerStatus {
        let get = PropertyGet::new(Offset::CONTROLLER_STATUS, PropertySize::Four);
        let answer = self.run(get.to_command(), HostData::None).succeeded();
        ControllerStatus(answer.completion.dword0())
    }

    pub(crate) fn buffer(&self, bytes: &[u8]) -> Buffer {
        let mut buffer = self.reactor.pool().take(bytes.len()).expect("room");
        buffer.bytes_mut().copy_from_slice(bytes);
        buffer
    }

    /// Submits a command without waiting for it.
    pub(crate) fn submit(&mut self, command: Command, data: HostData) -> Slot {
        let slot = self.connection.submit(command, data).expect("a slot");
        self.connection.flush(&mut self.reactor);
        slot
    }

    /// Submits a command, which goes out together with the next.
    pub(crate) fn submit_later(&mut self, command: Command, data: HostData) -> Slot {
        self.connection.submit(command, data).expect("a slot")
    }

    /// Waits for the answer to a command.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, slot: Slot) -> Answer {
        loop {
            if let Some(at) = self.answers.iter().position(|answer| answer.slot == slot) {
                return self.answers.remove(at);
            }
            let event = self.next_event();
            self.note(event);
        }
    }

    /// Whether the answer to a command comes within this time.
    pub(crate) fn is_answered(&mut self, slot: Slot, within: std::time::Duration) -> bool {
        let until = self.reactor.now() + within;
        loop {
            if self.answers.iter().any(|answer| answer.slot == slot) {
                return true;
            }
            if self.reactor.now() >= until {
                return false;
            }
            if let Some(event) = self.poll(WaitLimit::Until(until)) {
                self.note(event);
            }
        }
    }

    #[track_caller]
    fn note(&mut self, event: HostEvent) {
        match event {
            HostEvent::Completed { slot, completion, buffer, received } => {
                self.answers.push(Answer { slot, completion, data: buffer, received });
            }
            other => panic!("no completion: {other:?}"),
        }
    }

    /// Runs one command.
    #[track_caller]
    pub(crate) fn run(&mut self, command: Command, data: HostData) -> Answer {
        let slot = self.submit(command, data);
        self.wait_for(slot)
    }

    pub(crate) fn read(&mut self, nsid: u32, block: u64, blocks: u32, bytes: usize) -> Answer {
        let slot = self.begin_read(nsid, block, blocks, bytes);
        self.wait_for(slot)
    }

    pub(crate) fn begin_read(&mut self, nsid: u32, block: u64, blocks: u32, bytes: usize) -> Slot {
        let command = read_write(NvmOpcode::READ, nsid, block, blocks);
        let buffer = self.reactor.pool().take(bytes).expect("room");
        self.submit(command, HostData::FromController(buffer))
    }

    pub(crate) fn write(&mut self, nsid: u32, block: u64, blocks: u32, bytes: &[u8]) -> Answer {
        let slot = self.begin_write(nsid, block, blocks, bytes);
        self.wait_for(slot)
    }

    pub(crate) fn begin_write(&mut self, nsid: u32, block: u64, blocks: u32, bytes: &[u8]) -> Slot {
        let command = read_write(NvmOpcode::WRITE, nsid, block, blocks);
        let buffer = self.buffer(bytes);
        self.submit(command, HostData::ToController(buffer))
    }

    /// A command with data for the controller.
    pub(crate) fn run_with(&mut self, command: Command, bytes: &[u8]) -> Answer {
        let buffer = self.buffer(bytes);
        self.run(command, HostData::ToController(buffer))
    }

    /// A command that yields data.
    pub(crate) fn run_for(&mut self, command: Command, bytes: usize) -> Answer {
        let buffer = self.reactor.pool().take(bytes).expect("room");
        self.run(command, HostData::FromController(buffer))
    }

    pub(crate) fn log_page(&mut self, page: LogPageId, bytes: u32) -> Vec<u8> {
        let command = GetLogPage::new(page, 0, bytes).to_command();
        self.run_for(command, bytes as usize).bytes().to_vec()
    }

    pub(crate) fn set_feature(&mut self, feature: FeatureId, nsid: u32, value: u32) -> Answer {
        let set = SetFeatures { namespace_id: nsid, ..SetFeatures::new(feature, value) };
        self.run(set.to_command(), HostData::None)
    }

    pub(crate) fn begin_event_request(&mut self) -> Slot {
        self.submit(Command::new(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST), HostData::None)
    }

    /// The next thing that happens on the connection; a test that waits long has failed.
    #[track_caller]
    pub(crate) fn next_event(&mut self) -> HostEvent {
        let until = self.reactor.now() + LONG;
        loop {
            if let Some(event) = self.poll(WaitLimit::Until(until)) {
                return event;
            }
            assert!(self.reactor.now() < until, "nothing came in {LONG:?}");
        }
    }

    /// What happens on the connection within this patience.
    pub(crate) fn poll(&mut self, patience: WaitLimit) -> Option<HostEvent> {
        if let Some(event) = self.connection.poll_event() {
            return Some(event);
        }
        let mut completions = Vec::new();
        self.connection.flush(&mut self.reactor);
        self.reactor.poll(patience, &mut completions);
        for completion in completions {
            self.connection.handle(&mut self.reactor, completion);
        }
        self.connection.flush(&mut self.reactor);
        self.connection.poll_event()
    }

    /// Waits until the connection is gone; answers to commands may come before.
    pub(crate) fn until_closed(&mut self) -> CloseReason {
        loop {
            match self.next_event() {
                HostEvent::Closed { reason, .. } => return reason,
                event => self.note(event),
            }
        }
    }

    /// The answer to a command that came before the connection went.
    pub(crate) fn answered(&mut self, slot: Slot) -> Option<Answer> {
        let at = self.answers.iter().position(|answer| answer.slot == slot)?;
        Some(self.answers.remove(at))
    }
}

/// Controller Configuration as every host sets it.
pub(crate) fn enabled() -> ControllerConfiguration {
    ControllerConfiguration::default()
        .with_enable(true)
        .with_submission_queue_entry_size(6)
        .with_completion_queue_entry_size(4)
}

/// A command that speaks of a range of blocks.
pub(crate) fn read_write(opcode: NvmOpcode, nsid: u32, block: u64, blocks: u32) -> Command {
    ReadWrite::new(block, blocks).expect("a range").to_command(opcode, nsid)
}
