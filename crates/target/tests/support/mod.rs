//! A plain host for the tests: one thread, one reactor, one command after another.

use std::net::SocketAddr;
use std::time::Duration;

use weft_nvme::fabrics::{
    Connect, ConnectAttributes, ConnectData, PropertyGet, PropertySet, PropertySize,
};
use weft_nvme::nvm::ReadWrite;
use weft_nvme::property::{ControllerConfiguration, ControllerStatus, Offset};
use weft_nvme::{Command, Completion, Nqn, NvmOpcode, Status, Wire};
use weft_reactor::{Buffer, Config, Owner, Patience, Reactor};
use weft_target::Target;
use weft_target::config::{self, Listen, Namespace, Port, Subsystem};
use weft_transport::host::{HostConnection, HostData, HostEvent, HostOptions};

/// The subsystem that the tests serve.
pub const SUBSYSTEM: &str = "nqn.2024-01.io.weft:test";
/// The host that the tests are.
pub const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
/// Its identifier.
pub const HOST_ID: [u8; 16] = [0x11; 16];

/// How long a test waits for what must come.
const LONG: Duration = Duration::from_secs(20);

/// A configuration that serves these devices on a free port of loopback.
pub fn config(devices: &[&str]) -> config::Config {
    let mut subsystem = Subsystem::new(SUBSYSTEM);
    subsystem.namespaces = devices
        .iter()
        .zip(1..)
        .map(|(device, nsid)| Namespace::new(nsid, device.parse().expect("a device")))
        .collect();
    config::Config {
        ports: vec![Port::new(1, Listen::tcp("127.0.0.1:0".parse().expect("an address")))],
        subsystems: vec![subsystem],
        ..config::Config::default()
    }
}

/// Where a target listens.
pub fn address(target: &Target) -> SocketAddr {
    *target.addresses().values().next().expect("a port")
}

/// One queue of a host.
#[derive(Debug)]
pub struct Peer {
    pub reactor: Reactor,
    connection: HostConnection,
}

/// What a command came to.
#[derive(Debug)]
pub struct Answer {
    pub completion: Completion,
    pub data: Option<Buffer>,
}

impl Answer {
    pub fn status(&self) -> Status {
        self.completion.status()
    }
}

impl Peer {
    /// A connection that has gone through its handshake.
    pub fn open(address: SocketAddr, options: HostOptions) -> Self {
        let mut reactor = Reactor::new(Config::default()).expect("a reactor");
        let connection = HostConnection::connect(&mut reactor, Owner(1), 0, address, options);
        let mut peer = Self { reactor, connection };
        match peer.next_event() {
            HostEvent::Ready { .. } => peer,
            other => panic!("no handshake: {other:?}"),
        }
    }

    /// An admin queue whose controller is enabled.
    pub fn admin(address: SocketAddr) -> (Self, u16) {
        let mut peer = Self::open(address, HostOptions::default());
        let answer = peer.connect(0, 32, 0xffff, SUBSYSTEM, HOST);
        assert!(answer.status().is_success(), "{}", answer.status());
        let enable = ControllerConfiguration::default()
            .with_enable(true)
            .with_submission_queue_entry_size(6)
            .with_completion_queue_entry_size(4);
        let set =
            PropertySet::new(Offset::CONTROLLER_CONFIGURATION, PropertySize::Four, enable.0.into());
        assert!(peer.run(set.to_command(), HostData::None).status().is_success());
        let get = PropertyGet::new(Offset::CONTROLLER_STATUS, PropertySize::Four);
        let status = peer.run(get.to_command(), HostData::None);
        assert!(ControllerStatus(status.completion.dword0()).ready());
        let controller = u16::try_from(answer.completion.dword0() & 0xffff).expect("16 bits");
        (peer, controller)
    }

    /// An I/O queue of a controller.
    pub fn io(address: SocketAddr, controller: u16, queue_id: u16, options: HostOptions) -> Self {
        let mut peer = Self::open(address, options);
        let answer = peer.connect(queue_id, 128, controller, SUBSYSTEM, HOST);
        assert!(answer.status().is_success(), "{}", answer.status());
        peer.connection.set_in_capsule_bytes(16 * 1024);
        peer
    }

    pub fn connect(
        &mut self,
        queue_id: u16,
        entries: u16,
        controller: u16,
        subsystem: &str,
        host: &str,
    ) -> Answer {
        let subsystem: Nqn = subsystem.parse().expect("a name");
        let host: Nqn = host.parse().expect("a name");
        let command = Connect {
            record_format: 0,
            queue_id,
            submission_queue_size: entries - 1,
            attributes: ConnectAttributes(0),
            keep_alive_timeout_ms: 0,
        };
        let data = ConnectData::new(HOST_ID, controller, &subsystem, &host);
        let buffer = self.buffer(data.bytes());
        self.run(command.to_command(), HostData::ToController(buffer))
    }

    pub fn buffer(&self, bytes: &[u8]) -> Buffer {
        let mut buffer = self.reactor.pool().take(bytes.len()).expect("room");
        buffer.bytes_mut().copy_from_slice(bytes);
        buffer
    }

    /// Submits a command without waiting for it.
    pub fn submit(&mut self, command: Command, data: HostData) {
        self.connection.submit(command, data).expect("a slot");
        self.connection.flush(&mut self.reactor);
    }

    /// The next completion.
    pub fn wait(&mut self) -> Answer {
        match self.next_event() {
            HostEvent::Completed { completion, buffer, .. } => Answer { completion, data: buffer },
            other => panic!("no completion: {other:?}"),
        }
    }

    /// Runs one command.
    pub fn run(&mut self, command: Command, data: HostData) -> Answer {
        self.submit(command, data);
        self.wait()
    }

    pub fn read(&mut self, nsid: u32, block: u64, blocks: u32, bytes: usize) -> Answer {
        let command = ReadWrite::new(block, blocks).expect("a range");
        let buffer = self.reactor.pool().take(bytes).expect("room");
        self.run(command.to_command(NvmOpcode::READ, nsid), HostData::FromController(buffer))
    }

    pub fn write(&mut self, nsid: u32, block: u64, blocks: u32, bytes: &[u8]) -> Answer {
        let command = ReadWrite::new(block, blocks).expect("a range");
        let buffer = self.buffer(bytes);
        self.run(command.to_command(NvmOpcode::WRITE, nsid), HostData::ToController(buffer))
    }

    /// The next thing that happens on the connection; a test that waits long has failed.
    pub fn next_event(&mut self) -> HostEvent {
        let until = self.reactor.now() + LONG;
        loop {
            if let Some(event) = self.poll(Patience::Until(until)) {
                return event;
            }
            assert!(self.reactor.now() < until, "nothing came in {LONG:?}");
        }
    }

    /// What happens on the connection within this patience.
    pub fn poll(&mut self, patience: Patience) -> Option<HostEvent> {
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

    /// Waits until the connection is gone.
    pub fn until_closed(&mut self) -> weft_transport::CloseReason {
        loop {
            if let HostEvent::Closed { reason, .. } = self.next_event() {
                return reason;
            }
        }
    }
}
