//! A target with a key-value store, and hosts that check the data they read, over any transport.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weft_nvme::{Command, Completion, FabricsType, Status};
use weft_nvmf::keys::{Derivation, IdentityVersion, TlsKey, TlsPsk};
use weft_reactor::{Buffer, Config, DriverKind, Outcome, Owner, Pool, Reactor, Token, WaitLimit};
use weft_transport::host::{HostConnection, HostData, HostEvent, HostOptions, TransportOptions};
use weft_transport::rdma::software::Fabric;
use weft_transport::rdma::{self};
use weft_transport::target::{CapsuleData, Event, Limits, TargetConnection};
use weft_transport::tls::{TlsAcceptor, TlsConnector, TlsMode, TlsRecords};
use weft_transport::{CloseReason, DataDigestError, Listener, Slot, Transport, tag_of};

pub const WRITE: u8 = 1;
pub const READ: u8 = 2;
/// A command that is never completed.
pub const HANG: u8 = 0x80;

const LISTENER: Owner = Owner(1);
const TARGET: Owner = Owner(2);
pub const HOST: Owner = Owner(3);

/// The initial value of a key: `length` bytes that the key determines.
pub fn pattern(key: u32, length: usize) -> Vec<u8> {
    let seed = key.wrapping_mul(0x9e37_79b9);
    (0..length)
        .map(|index| {
            let word = u32::try_from(index / 4).expect("short").wrapping_mul(0x0101_6b5d) ^ seed;
            word.to_le_bytes()[index % 4] ^ word.to_le_bytes()[3]
        })
        .collect()
}

/// The reactors of this machine's drivers.
pub fn drivers() -> Vec<Reactor> {
    let config = |driver| Config { driver, pool_bytes: 48 << 20, ..Config::default() };
    let mut reactors = vec![Reactor::new(config(DriverKind::Epoll)).expect("epoll")];
    match Reactor::new(config(DriverKind::Uring)) {
        Ok(reactor) => reactors.push(reactor),
        Err(error) => eprintln!("no io_uring here: {error}"),
    }
    reactors
}

/// How the target's owner behaves.
#[derive(Debug, Clone, Copy)]
pub struct Behaviour {
    pub depth: u16,
    pub flow_control: bool,
    pub limits: Limits,
    pub tls: TlsMode,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self { depth: 128, flow_control: true, limits: Limits::default(), tls: TlsMode::Off }
    }
}

/// The owner of a target's connections.
#[derive(Debug)]
pub struct Target {
    pub behaviour: Behaviour,
    pub connections: BTreeMap<u32, TargetConnection>,
    pub closed: Vec<CloseReason>,
    pub stored: BTreeMap<u32, Vec<u8>>,
    /// Commands whose data is being fetched, or that are never completed.
    waiting: BTreeMap<(u32, Slot), Command>,
    pub corrupt: usize,
    pub commands: usize,
    pub address: SocketAddr,
    listener: Option<Listener>,
    next_tag: u32,
}

/// The transport between host and target.
#[derive(Debug, Clone)]
pub enum TestTransport {
    Tcp,
    Tls,
    Rdma(Fabric),
    Loopback,
}

impl TestTransport {
    /// One of each transport.
    pub fn all() -> Vec<Self> {
        let mut all = vec![Self::Tcp, Self::Rdma(Fabric::default()), Self::Loopback];
        if cfg!(feature = "tls") {
            all.push(Self::Tls);
        }
        all
    }

    pub fn transport(&self) -> Transport {
        match self {
            Self::Tcp | Self::Tls => Transport::Tcp,
            Self::Rdma(_) => Transport::Rdma,
            Self::Loopback => Transport::Loopback,
        }
    }

    /// Options of a host's I/O queue.
    pub fn options(&self) -> HostOptions {
        let transport_options = match self {
            Self::Tcp | Self::Tls => TransportOptions::Tcp,
            Self::Rdma(_) => TransportOptions::Rdma { queue_id: 1, controller_id: 1 },
            Self::Loopback => TransportOptions::Loopback,
        };
        HostOptions { transport_options, ..HostOptions::default() }
    }

    /// Whether the target takes TLS.
    pub fn tls(&self) -> TlsMode {
        if matches!(self, Self::Tls) { TlsMode::Required } else { TlsMode::Off }
    }

    /// Makes a reactor use it.
    pub fn provide(&self, reactor: &mut Reactor) {
        if let Self::Rdma(fabric) = self {
            rdma::set_provider(reactor, rdma::Provider::Software(fabric.clone()));
        }
    }
}

/// The key of host and target.
const KEY: &str =
    "NVMeTLSkey-1:02:6/UeoPZX1cUsVwIRQX1gKagaJbpizk4DpyoFn1hP/yISbXPFCWTbhfBAHjRcYMCGJ6jrmA==:";

pub fn psk(version: IdentityVersion) -> TlsPsk {
    let key: TlsKey = KEY.parse().expect("a key");
    key.psk(version, Derivation::Standard, "nqn.host", "nqn.subsystem").expect("short names")
}

pub fn acceptor() -> TlsAcceptor {
    let find = |identity: &str| {
        let both = [IdentityVersion::V0, IdentityVersion::V1].map(psk);
        both.into_iter().find(|psk| psk.identity == identity)
    };
    TlsAcceptor::new(Arc::new(find)).expect("TLS")
}

pub fn connector(psks: Vec<TlsPsk>) -> TlsConnector {
    TlsConnector::new(psks, TlsRecords::User).expect("TLS")
}

impl Target {
    pub fn listen(
        reactor: &mut Reactor,
        transport: Transport,
        address: SocketAddr,
        behaviour: Behaviour,
    ) -> Self {
        let token = Token::new(LISTENER, 0);
        let listener = Listener::listen(reactor, token, transport, address).expect("listen");
        let address = listener.local_address(reactor).expect("address");
        Self {
            behaviour,
            connections: BTreeMap::new(),
            closed: Vec::new(),
            stored: BTreeMap::new(),
            waiting: BTreeMap::new(),
            corrupt: 0,
            commands: 0,
            address,
            listener: Some(listener),
            next_tag: 0,
        }
    }

    /// Closes all connections.
    pub fn close_all(&mut self, reactor: &mut Reactor) {
        for (tag, mut connection) in std::mem::take(&mut self.connections) {
            connection.close(reactor, CloseReason::Requested("test is over"));
            self.keep(reactor, tag, connection);
        }
    }

    pub fn stop(&mut self, reactor: &mut Reactor) {
        if let Some(listener) = self.listener.take() {
            listener.close(reactor);
        }
    }

    /// Handles a completion if it is the target's.
    pub fn handle(&mut self, reactor: &mut Reactor, completion: weft_reactor::ReactorCompletion) {
        let token = completion.token;
        if token.owner == LISTENER {
            if let (Outcome::Timer, Some(listener)) = (&completion.outcome, &mut self.listener) {
                listener.retry(reactor, token);
            }
            while let Some(listener) = &mut self.listener
                && let Some(incoming) = listener.next_incoming(reactor)
            {
                let limits = self.behaviour.limits;
                let tag = self.next_tag;
                self.next_tag += 1;
                let connection =
                    TargetConnection::accept_incoming(reactor, TARGET, tag, incoming, limits);
                self.keep(reactor, tag, connection);
            }
            if let Outcome::Accepted { socket, .. } = completion.outcome {
                let limits = self.behaviour.limits;
                let tag = self.next_tag;
                self.next_tag += 1;
                let mut connection = TargetConnection::accept(reactor, TARGET, tag, socket, limits);
                if self.behaviour.tls != TlsMode::Off {
                    connection
                        .secure(&acceptor(), self.behaviour.tls, TlsRecords::User)
                        .expect("TLS");
                }
                self.connections.insert(tag, connection);
            }
            return;
        }
        let tag = tag_of(token);
        if let Some(mut connection) = self.connections.remove(&tag) {
            connection.handle(reactor, completion);
            self.keep(reactor, tag, connection);
        }
    }

    /// Handles the events of a connection, and returns it unless it has ended.
    fn keep(&mut self, reactor: &mut Reactor, tag: u32, mut connection: TargetConnection) {
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Command { slot, data } => {
                    self.commands += 1;
                    self.execute(reactor.pool(), tag, &mut connection, slot, data);
                }
                Event::Data { slot, buffer, result } => {
                    let command = self.waiting.remove(&(tag, slot)).expect("it was asked for");
                    let data = result.map(|()| buffer);
                    self.finish_write(&mut connection, slot, &command, data);
                }
                Event::Closed { reason } => {
                    self.closed.push(reason);
                    self.waiting.retain(|(other, _), _| *other != tag);
                    assert!(connection.poll_event().is_none(), "no event follows the end");
                    return;
                }
            }
        }
        connection.flush(reactor);
        self.connections.insert(tag, connection);
    }

    /// Provides memory to the connections that wait for it, if there is any.
    fn provide(&mut self, reactor: &mut Reactor) {
        let waits = |one: (&u32, &TargetConnection)| one.1.wanted().map(|bytes| (*one.0, bytes));
        let waiting: Vec<_> = self.connections.iter().filter_map(waits).collect();
        for (tag, bytes) in waiting {
            if let Some(buffer) = reactor.pool().take(bytes)
                && let Some(mut connection) = self.connections.remove(&tag)
            {
                connection.provide(reactor, buffer);
                self.keep(reactor, tag, connection);
            }
        }
    }

    fn execute(
        &mut self,
        pool: &Pool,
        tag: u32,
        connection: &mut TargetConnection,
        slot: Slot,
        data: CapsuleData,
    ) {
        let command = &connection.command(slot).expect("it came").to_owned();
        let done = Completion::new(command.command_id.get(), Status::SUCCESS);
        if command.is_fabrics() {
            connection.set_queue(1, self.behaviour.depth, self.behaviour.flow_control);
            return connection.complete(slot, done);
        }
        let transfer = match connection.transfer(command) {
            Ok(transfer) => transfer,
            Err(status) => return connection.complete(slot, done.with_status(status)),
        };
        let length = transfer.bytes as usize;
        match (command.opcode, data) {
            (READ, CapsuleData::None) => {
                let Some(mut buffer) = pool.take(length) else {
                    return connection.complete(slot, done.with_status(Status::INTERNAL_ERROR));
                };
                let key = command.cdw10.get();
                let bytes = self.stored.get(&key).cloned();
                buffer.copy_from_slice(&bytes.unwrap_or_else(|| pattern(key, length)));
                connection.send(slot, buffer, done);
            }
            (WRITE, CapsuleData::None) => {
                let Some(buffer) = pool.take(length) else {
                    return connection.complete(slot, done.with_status(Status::INTERNAL_ERROR));
                };
                self.waiting.insert((tag, slot), *command);
                connection.receive(slot, buffer);
            }
            (WRITE, CapsuleData::Inline(buffer)) => {
                self.finish_write(connection, slot, command, Ok(buffer));
            }
            (_, CapsuleData::Corrupt) => {
                self.corrupt += 1;
                connection.complete(slot, done.with_status(Status::TRANSIENT_TRANSPORT_ERROR));
            }
            (_, CapsuleData::Invalid(status)) => {
                connection.complete(slot, done.with_status(status));
            }
            (HANG, _) => {
                self.waiting.insert((tag, slot), *command);
            }
            _ => connection.complete(slot, done.with_dword0(command.cdw10.get())),
        }
    }

    fn finish_write(
        &mut self,
        connection: &mut TargetConnection,
        slot: Slot,
        command: &Command,
        data: Result<Buffer, DataDigestError>,
    ) {
        let done = Completion::new(command.command_id.get(), Status::SUCCESS);
        match data {
            Ok(buffer) => {
                self.stored.insert(command.cdw10.get(), buffer.to_vec());
                connection.complete(slot, done);
            }
            Err(DataDigestError) => {
                self.corrupt += 1;
                connection.complete(slot, done.with_status(Status::TRANSIENT_TRANSPORT_ERROR));
            }
        }
    }
}

/// The result of a command.
#[derive(Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    Completed { status: Status, received: u32, data: Option<Vec<u8>> },
    Failed,
}

/// The owner of a host's connection.
#[derive(Debug)]
pub struct Host {
    pub tag: u32,
    pub connection: HostConnection,
    pub ready: bool,
    /// It connects and sends nothing.
    pub mute: bool,
    pub endings: BTreeMap<Slot, CommandOutcome>,
    /// Why it ended, and which commands were in flight, with a buffer or without.
    pub closed: Option<(CloseReason, Vec<(Slot, bool)>)>,
    reading: Vec<Slot>,
    connect: Option<Slot>,
}

impl Host {
    pub fn connect(
        reactor: &mut Reactor,
        tag: u32,
        address: SocketAddr,
        options: HostOptions,
    ) -> Self {
        Self {
            tag,
            connection: HostConnection::connect(reactor, HOST, tag, address, options),
            ready: false,
            mute: false,
            endings: BTreeMap::new(),
            closed: None,
            reading: Vec::new(),
            connect: None,
        }
    }

    /// Has it use TLS, if the target does.
    pub fn secured(mut self, mode: TlsMode) -> Self {
        if mode != TlsMode::Off {
            let psks = vec![psk(IdentityVersion::V1)];
            self.connection.secure(&connector(psks)).expect("TLS");
        }
        self
    }

    pub fn handle(&mut self, reactor: &mut Reactor, completion: weft_reactor::ReactorCompletion) {
        self.connection.handle(reactor, completion);
        self.take_events();
        self.connection.flush(reactor);
    }

    pub fn take_events(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            assert!(self.closed.is_none(), "no event follows the end");
            match event {
                HostEvent::Ready { .. } if self.mute => {}
                HostEvent::Ready { .. } => {
                    let command = Command::fabrics(FabricsType::CONNECT);
                    self.connect = self.connection.submit(command, HostData::None).ok();
                    assert!(self.connect.is_some());
                }
                HostEvent::Completed { slot, completion, buffer, received } => {
                    if self.connect == Some(slot) {
                        assert!(completion.status().is_success());
                        self.connect = None;
                        self.ready = true;
                        continue;
                    }
                    let reading = self.reading.contains(&slot);
                    self.reading.retain(|other| *other != slot);
                    let data = buffer.filter(|_| reading).map(|buffer| buffer.to_vec());
                    let status = completion.status();
                    let ending = CommandOutcome::Completed { status, received, data };
                    assert!(self.endings.insert(slot, ending).is_none(), "completed once");
                }
                HostEvent::Failed { slot, .. } => {
                    assert!(self.endings.insert(slot, CommandOutcome::Failed).is_none());
                }
                HostEvent::Closed { reason, in_flight } => {
                    let slots = in_flight.iter().map(|(slot, buffer)| (*slot, buffer.is_some()));
                    self.closed = Some((reason, slots.collect()));
                }
            }
        }
    }

    pub fn read(&mut self, reactor: &Reactor, key: u32, length: usize) -> Slot {
        let buffer = reactor.pool().take(length).expect("a buffer");
        let command = Command::new(READ).with_cdw10(key);
        let slot =
            self.connection.submit(command, HostData::FromController(buffer)).expect("a slot");
        self.reading.push(slot);
        slot
    }

    pub fn write(&mut self, reactor: &Reactor, key: u32, payload: &[u8]) -> Slot {
        let mut buffer = reactor.pool().take(payload.len()).expect("a buffer");
        buffer.copy_from_slice(payload);
        let command = Command::new(WRITE).with_cdw10(key);
        self.connection.submit(command, HostData::ToController(buffer)).expect("a slot")
    }
}

/// A target and its hosts on one reactor.
#[derive(Debug)]
pub struct Rig {
    pub reactor: Reactor,
    pub target: Target,
    pub hosts: Vec<Host>,
    completions: Vec<weft_reactor::ReactorCompletion>,
}

impl Rig {
    pub fn new(reactor: Reactor, behaviour: Behaviour) -> Self {
        Self::via(&TestTransport::Tcp, reactor, behaviour)
    }

    /// The same over a fabric.
    pub fn over(fabric: &Fabric, reactor: Reactor, behaviour: Behaviour) -> Self {
        Self::via(&TestTransport::Rdma(fabric.clone()), reactor, behaviour)
    }

    /// The same over any transport.
    pub fn via(via: &TestTransport, mut reactor: Reactor, behaviour: Behaviour) -> Self {
        via.provide(&mut reactor);
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let behaviour = Behaviour { tls: via.tls(), ..behaviour };
        let target = Target::listen(&mut reactor, via.transport(), address, behaviour);
        Self { reactor, target, hosts: Vec::new(), completions: Vec::new() }
    }

    /// Connects a host, up to an accepted Connect.
    pub fn connect(&mut self, options: HostOptions) -> usize {
        let index = self.start(options);
        self.run("connected", |rig| rig.hosts[index].ready);
        index
    }

    /// Starts to connect a host.
    pub fn start(&mut self, options: HostOptions) -> usize {
        let index = self.hosts.len();
        let tag = u32::try_from(index).expect("few hosts");
        let host = Host::connect(&mut self.reactor, tag, self.target.address, options);
        self.hosts.push(host.secured(self.target.behaviour.tls));
        index
    }

    /// One turn.
    pub fn turn(&mut self) {
        let until = self.reactor.now() + Duration::from_millis(20);
        self.turn_with(WaitLimit::Until(until));
    }

    /// The same, with this time-out.
    pub fn turn_with(&mut self, patience: WaitLimit) {
        self.reactor.poll(patience, &mut self.completions);
        for completion in std::mem::take(&mut self.completions) {
            if completion.token.owner == HOST {
                let index = tag_of(completion.token) as usize;
                self.hosts[index].handle(&mut self.reactor, completion);
            } else {
                self.target.handle(&mut self.reactor, completion);
            }
        }
        self.target.provide(&mut self.reactor);
    }

    /// Runs turns until `done`.
    pub fn run(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let deadline = self.reactor.now() + Duration::from_secs(60);
        while !done(self) {
            assert!(self.reactor.now() < deadline, "never: {what}: {}", self.summary());
            self.turn();
        }
    }

    fn summary(&self) -> String {
        let hosts: Vec<_> = self
            .hosts
            .iter()
            .map(|host| (host.ready, host.connection.in_flight(), host.closed.is_some()))
            .collect();
        let target: Vec<_> =
            self.target.connections.values().map(TargetConnection::in_flight).collect();
        let driver = self.reactor.driver_name();
        format!("{driver}, hosts {hosts:?}, target {target:?}, closed {:?}", self.target.closed)
    }

    pub fn flush(&mut self, index: usize) {
        self.hosts[index].connection.flush(&mut self.reactor);
    }

    /// Waits for all of a host's commands, and returns their results.
    pub fn finish(&mut self, index: usize) -> BTreeMap<Slot, CommandOutcome> {
        self.flush(index);
        self.run("all commands done", |rig| rig.hosts[index].connection.in_flight() == 0);
        let closed = &self.hosts[index].closed;
        assert!(closed.is_none(), "{closed:?}: {}", self.summary());
        std::mem::take(&mut self.hosts[index].endings)
    }

    /// Closes all connections and checks that all memory is freed.
    pub fn close(mut self) {
        self.close_hosts();
        let pool = self.reactor.pool();
        assert_eq!(pool.available(), pool.capacity(), "every buffer was returned");
    }

    /// Closes all connections and the listener.
    pub fn close_hosts(&mut self) {
        for index in 0..self.hosts.len() {
            let host = &mut self.hosts[index];
            host.connection.close(&mut self.reactor, CloseReason::Requested("test is over"));
            host.take_events();
        }
        self.run("everything closed", |rig| {
            rig.target.connections.is_empty() && rig.hosts.iter().all(|host| host.closed.is_some())
        });
        self.target.stop(&mut self.reactor);
    }
}
