//! `register`: Centralized Discovery controllers are told which subsystems there are.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weft_host::{AdminData, Controller, Error, Event, Options, TransportId};
use weft_nvme::discovery_information::{DiscoveryTask, EntityType, EntryKeyType};
use weft_nvme::log_page::DiscoveryEntry;
use weft_nvmf::registration::{Change, Entity, RegisteredEntry as Entry};
use weft_target::config::Listen;

use super::operate::operator::Operator;
use crate::failure::Failure;

/// How often it is seen whether the controller has come back.
const INTERVAL: Duration = Duration::from_secs(2);

/// How long a target that stops waits for its registrations to be taken back. A controller that
/// does not answer forgets them some time after the connection has ended.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
const STOP_POLL: Duration = Duration::from_millis(5);

/// Entries in one command: less than any controller takes.
const ENTRIES: usize = 16;

/// What keeps a target registered until it is stopped: a thread for each controller.
#[derive(Debug)]
pub(super) struct RegistrationThreads {
    threads: Vec<(Sender<Order>, JoinHandle<()>)>,
}

#[derive(Clone, Copy, Debug)]
enum Order {
    /// Subsystems or ports may have come or gone.
    Look,
    Stop,
}

impl RegistrationThreads {
    pub(super) fn start(with: &[Listen], operator: &Arc<Operator>) -> Result<Self, Failure> {
        let mut threads = Vec::new();
        for controller in with {
            let (order, orders) = channel();
            let registrar = Registrar {
                controller: *controller,
                operator: Arc::clone(operator),
                connection: None,
                registered: Vec::new(),
            };
            let thread = thread::Builder::new().name("weft-register".to_owned());
            let thread = thread.spawn(move || registrar.run(&orders));
            let thread = thread.map_err(|error| Failure::io("start", &"a thread", &error))?;
            let changed = order.clone();
            operator.when_changed(move || {
                let _ = changed.send(Order::Look);
            });
            let _ = order.send(Order::Look);
            threads.push((order, thread));
        }
        Ok(Self { threads })
    }

    /// Takes the registrations back, as far as the controllers answer.
    pub(super) fn stop(self) {
        for (order, _) in &self.threads {
            let _ = order.send(Order::Stop);
        }
        let until = Instant::now() + STOP_PATIENCE;
        let is_over = |thread: &JoinHandle<()>| thread.is_finished() || Instant::now() >= until;
        while !self.threads.iter().all(|(_, thread)| is_over(thread)) {
            thread::sleep(STOP_POLL);
        }
        // What went wrong in the others has been logged. These end with the process.
        let hung = self.threads.iter().filter(|(_, thread)| !thread.is_finished()).count();
        if hung > 0 {
            log::warn!("{hung} controllers do not answer: what is registered there stays for now");
        }
    }
}

struct Registrar {
    controller: Listen,
    operator: Arc<Operator>,
    connection: Option<Controller>,
    /// What the controller has of this target.
    registered: Vec<DiscoveryEntry>,
}

impl Registrar {
    fn run(mut self, orders: &Receiver<Order>) {
        let mut told = None;
        loop {
            match orders.recv_timeout(INTERVAL) {
                Ok(Order::Look) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return self.end(),
            }
            let failed = self.register().err().map(|error| error.to_string());
            // It may be away for long: once is enough.
            if let Some(error) = failed.as_ref().filter(|_| failed != told) {
                let controller = self.controller;
                log::warn!("this target is not registered with {controller}: {error}");
            }
            told = failed;
        }
    }

    /// Sees to it that the controller has what this target serves.
    fn register(&mut self) -> Result<(), Error> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => weft_host::connect_discovery(&self.options()?)?,
        };
        let connection = self.connection.insert(connection);
        while let Some(event) = connection.next_event(Duration::ZERO) {
            // It may have forgotten everything.
            if matches!(event, Event::Connected { .. }) {
                self.registered.clear();
            }
        }
        let Some(local) = connection.ends().map(|ends| ends.local.ip()) else { return Ok(()) };
        let Ok(mut now) = self.operator.with(|target| target.to_register(local)) else {
            return Ok(());
        };
        // What only this machine reaches is nothing for others.
        now.retain(|entry| local.is_loopback() || !is_loopback(entry));
        let gone: Vec<_> = self.registered.iter().filter(|one| !now.contains(one)).collect();
        send(connection, DiscoveryTask::DEREGISTER, gone.into_iter().copied())?;
        let new: Vec<_> = now.iter().filter(|one| !self.registered.contains(one)).collect();
        let count = new.len();
        send(connection, DiscoveryTask::REGISTER, new.into_iter().copied())?;
        if count > 0 {
            log::info!("{count} entries are registered with {}", self.controller);
        }
        self.registered = now;
        Ok(())
    }

    fn end(mut self) {
        let Some(connection) = self.connection.take() else { return };
        let all = self.registered.drain(..);
        if let Err(error) = send(&connection, DiscoveryTask::DEREGISTER, all) {
            log::warn!(
                "{}: what is registered there cannot be taken back: {error}",
                self.controller
            );
        }
        // The connection ends in any case.
        let _ = connection.disconnect();
    }

    fn options(&self) -> Result<Options, Error> {
        let address: Result<TransportId, _> = self.controller.to_string().parse();
        let address = address.map_err(|error| Error::Invalid(error.to_string()))?;
        Ok(Options { ctrl_loss_tmo: None, reconnect_delay: INTERVAL, ..Options::new(address) })
    }
}

fn is_loopback(entry: &DiscoveryEntry) -> bool {
    let address = entry.address.raw_text().and_then(|text| text.parse::<IpAddr>().ok());
    address.is_some_and(|address| address.is_loopback())
}

fn send(
    connection: &Controller,
    task: DiscoveryTask,
    entries: impl Iterator<Item = DiscoveryEntry>,
) -> Result<(), Error> {
    let entries: Vec<Entry> = entries.map(Entry::basic).collect();
    let uname = rustix::system::uname();
    for some in entries.chunks(ENTRIES) {
        let entity = Entity {
            kind: EntityType::DIRECT,
            id: Options::default_host_nqn(),
            name: uname.nodename().to_string_lossy().into_owned(),
            version: concat!("weft ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        let key = EntryKeyType::ADDRESS;
        let (command, data) = Change { task, entity, key, entries: some.to_vec() }.to_command();
        connection.admin_command_checked(command, AdminData::ToController(data))?;
    }
    Ok(())
}
