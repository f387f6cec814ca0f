//! The state that all poll groups share, behind one lock.
//!
//! It is used for connecting, ending and reconfiguring, never on the data path. A group that needs
//! another group's state asks by message; the directory says which group to ask.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use weft_nvme::{Nqn, Status};
use weft_nvmf::auth::{Group, HashFunction};
use weft_nvmf::connect::{ConnectError, ConnectRequest, ControllerIds};
use weft_nvmf::keys::TlsRecords;
use weft_nvmf::registration::{Change, Record, Registrations};
use weft_nvmf::subsystem::SubsystemView;

use crate::config::IoMetricsConfig;
use crate::shared::classes::{ClassWord, ServedClass};
use crate::shared::drain::HostDrains;
use crate::shared::ids::{ConnectionId, HostKey};
use crate::shared::io_metrics::IoMetrics;
use crate::shared::limits;
use crate::shared::message::{Manager, NamespaceRequest};
use crate::shared::pending::PendingPeers;
use crate::shared::powers::Powers;
use crate::shared::reservations::Reserver;
use crate::shared::snapshot::{Scope, Snapshot};
use crate::shared::statistics::GroupCounters;
use crate::shared::trace::{Trace, TracedGroup};

/// The exit code of a process whose poll group has failed: that of a panic.
pub const EXIT_CODE_OF_A_FAILED_GROUP: u8 = 101;

/// A queue that a host has connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectedQueue {
    /// The subsystem's name.
    pub subsystem: String,
    /// Its controller.
    pub controller_id: u16,
    /// 0 for the admin queue.
    pub queue_id: u16,
    /// The host's name.
    pub host: String,
    /// The host's identifier.
    pub host_id: [u8; 16],
    /// The poll group that has it.
    pub group: usize,
    /// The port it came to.
    pub port_id: u16,
    /// This end of its connection.
    pub local: SocketAddr,
    /// The host's end.
    pub peer: SocketAddr,
    /// How far its authentication is; `None` if the host need not authenticate itself.
    pub authentication: Option<QueueAuthentication>,
    /// Who has the records of TLS; `None` without TLS.
    pub tls_records: Option<TlsRecords>,
    /// How an I/O queue is served.
    pub class: Option<ServedClass>,
}

/// The authentication of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueAuthentication {
    /// The host has not authenticated itself yet.
    Negotiating,
    /// It has, with these.
    Completed(HashFunction, Group),
}

/// A controller that a host has connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectedController {
    /// The subsystem's name.
    pub subsystem: String,
    /// Its identifier.
    pub controller_id: u16,
    /// The host's name.
    pub host: String,
    /// The host's identifier.
    pub host_id: [u8; 16],
    /// Its I/O queues.
    pub io_queues: usize,
}

/// One directory for all groups of a target.
#[derive(Debug)]
pub(crate) struct Directory {
    state: Mutex<State>,
    /// For each group, whether it has only queues for which a rule of the class latency is.
    express_groups: Vec<bool>,
    /// Connections of all groups.
    connections: AtomicUsize,
    /// What each group counts.
    words: Vec<Arc<GroupCounters>>,
    /// What is measured of hosts' commands, if it is.
    io_metrics: Option<Arc<IoMetrics>>,
    /// Computes what authentication needs.
    powers: Powers,
    /// What makes changes of reservations.
    reserver: Reserver,
    /// Which group has failed, and why.
    failure: OnceLock<String>,
    /// On the machine's monotonic clock.
    started: Duration,
    exits_on_failure: AtomicBool,
}

#[derive(Debug)]
struct State {
    snapshot: Arc<Snapshot>,
    listening: BTreeMap<u16, SocketAddr>,
    controller_ids: BTreeMap<String, ControllerIds>,
    /// The admin connection of each controller.
    controllers: BTreeMap<(String, u16), ConnectionId>,
    drains: HostDrains<HostKey, ConnectionId>,
    /// Changes of write protection that may fail, by subsystem and NSID: what each has set, by the
    /// version of its snapshot. The first one cannot fail any more, or is what was set before.
    protected: BTreeMap<(String, u32), BTreeMap<u64, bool>>,
    /// What makes the changes that hosts ask for by Namespace Management.
    manager: Option<Manager>,
    /// The queues that hosts have connected, and the classes of I/O queues.
    connected: BTreeMap<ConnectionId, (ConnectedQueue, Option<Arc<ClassWord>>)>,
    /// Admin and I/O queues that were connected since the start, by group.
    connected_total: Vec<(u64, u64)>,
    pending: PendingPeers,
    handshakes: PendingPeers,
    /// Discovery controllers of each address, to which anybody may connect.
    discoverers: BTreeMap<IpAddr, usize>,
    /// Queues of each group: the next one goes to the group with the fewest.
    queues: Vec<usize>,
    /// What was asked to be recorded last, until it is read.
    trace: Option<Arc<Trace>>,
    /// What hosts and discovery controllers have registered.
    registrations: Registrations<ConnectionId>,
    /// The discovery subsystem without that.
    own_discovery: Arc<SubsystemView>,
}

impl State {
    /// Shows what is registered, in the next snapshot.
    fn show_registered(&mut self) -> Arc<Snapshot> {
        let next = self.snapshot.with_registered(&self.registrations);
        self.snapshot = Arc::new(next);
        Arc::clone(&self.snapshot)
    }
}

impl Directory {
    pub(crate) fn new(
        snapshot: Arc<Snapshot>,
        express_groups: Vec<bool>,
        io_metrics: Option<IoMetricsConfig>,
        powers: Powers,
    ) -> Arc<Self> {
        let groups = express_groups.len();
        Arc::new(Self {
            state: Mutex::new(State {
                own_discovery: Arc::clone(&snapshot.discovery),
                registrations: Registrations::default(),
                snapshot,
                listening: BTreeMap::new(),
                controller_ids: BTreeMap::new(),
                controllers: BTreeMap::new(),
                drains: HostDrains::new(),
                protected: BTreeMap::new(),
                manager: None,
                connected: BTreeMap::new(),
                connected_total: vec![(0, 0); groups],
                pending: PendingPeers::default(),
                handshakes: PendingPeers::default(),
                discoverers: BTreeMap::new(),
                queues: vec![0; groups],
                trace: None,
            }),
            express_groups,
            connections: AtomicUsize::new(0),
            words: (0..groups).map(|_| Arc::default()).collect(),
            io_metrics: io_metrics.map(|config| Arc::new(IoMetrics::new(config, groups))),
            powers,
            reserver: Reserver::default(),
            failure: OnceLock::new(),
            started: weft_reactor::monotonic_time(),
            exits_on_failure: AtomicBool::new(false),
        })
    }

    /// The admin connections of the controllers of a subsystem.
    pub(crate) fn controllers_of(&self, subsystem: &Nqn) -> Vec<ConnectionId> {
        let state = self.lock();
        let own = |((nqn, _), id): (&(String, u16), &ConnectionId)| {
            (nqn == subsystem.as_str()).then_some(*id)
        };
        state.controllers.iter().filter_map(own).collect()
    }

    /// Who makes the changes that hosts ask for by Namespace Management from now on.
    pub(crate) fn set_manager(&self, manager: Manager) {
        self.lock().manager = Some(manager);
    }

    /// Has a change made that a host asks for.
    pub(crate) fn manage(&self, request: NamespaceRequest) {
        let manager = self.lock().manager.clone();
        let left = match manager {
            Some(manager) => manager.send(request).err().map(|error| error.0),
            None => Some(request),
        };
        left.into_iter().for_each(|request| request.answer(Err(Status::INTERNAL_ERROR)));
    }

    /// A group has failed: the process ends, or else the first failure is kept.
    pub(crate) fn fail(&self, why: String) {
        log::error!("{why}");
        if self.exits_on_failure.load(Ordering::Relaxed) {
            std::process::exit(EXIT_CODE_OF_A_FAILED_GROUP.into());
        }
        // The first one is the cause of the others.
        drop(self.failure.set(why));
    }

    /// Why the target has failed, if it has.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// From now on the process ends when a group fails, or now if one has.
    pub(crate) fn exit_on_failure(&self) {
        self.exits_on_failure.store(true, Ordering::Relaxed);
        if self.failure().is_some() {
            std::process::exit(EXIT_CODE_OF_A_FAILED_GROUP.into());
        }
    }

    /// The number of connections of all groups.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn connection_came(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_gone(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// What is measured of hosts' commands.
    pub(crate) const fn io_metrics(&self) -> Option<&Arc<IoMetrics>> {
        self.io_metrics.as_ref()
    }

    /// Computes what authentication needs.
    pub(crate) const fn powers(&self) -> &Powers {
        &self.powers
    }

    /// What makes changes of reservations.
    pub(crate) const fn reserver(&self) -> &Reserver {
        &self.reserver
    }

    /// What each group counts.
    pub(crate) fn words(&self) -> &[Arc<GroupCounters>] {
        &self.words
    }

    /// The counters of one group.
    pub(crate) fn counters_of(&self, group: usize) -> Arc<GroupCounters> {
        self.words.get(group).map(Arc::clone).unwrap_or_default()
    }

    /// Replaces a trace that is complete, or else says that there is one.
    pub(crate) fn begin_trace(&self, trace: Arc<Trace>) -> bool {
        let mut state = self.lock();
        let is_free = state.trace.as_ref().is_none_or(|trace| trace.is_complete());
        if is_free {
            state.trace = Some(trace);
        }
        is_free
    }

    /// The trace, which is given away once it is complete; none if none was asked for.
    pub(crate) fn take_trace(&self) -> Option<Option<Vec<TracedGroup>>> {
        let mut state = self.lock();
        let taken = state.trace.as_ref()?.take();
        if taken.is_some() {
            state.trace = None;
        }
        Some(taken)
    }

    /// How many queues each group has.
    pub(crate) fn queues(&self) -> Vec<usize> {
        self.lock().queues.clone()
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.lock().snapshot)
    }

    /// Makes this the current snapshot, as a later one than any other. Namespaces that
    /// hosts have protected until now stay protected, and the views that are not in the scope of
    /// the change stay the same ones.
    pub(crate) fn replace_snapshot(&self, mut snapshot: Snapshot, scope: &Scope) -> Arc<Snapshot> {
        let mut state = self.lock();
        snapshot.version = state.snapshot.version + 1;
        if let Some(changes) = &mut snapshot.changes {
            changes.after = state.snapshot.version;
        }
        snapshot.keep_write_protect(&state.snapshot, scope);
        let own = Arc::clone(&snapshot.discovery);
        if Arc::ptr_eq(&own, &state.own_discovery) {
            snapshot.discovery = Arc::clone(&state.snapshot.discovery);
        } else {
            snapshot.show_registered(&state.registrations);
        }
        state.own_discovery = own;
        state.snapshot = Arc::new(snapshot);
        Arc::clone(&state.snapshot)
    }

    /// When it was made, on the machine's monotonic clock.
    pub(crate) const fn started(&self) -> Duration {
        self.started
    }

    /// Where the target listens, by port.
    pub(crate) fn listening(&self) -> BTreeMap<u16, SocketAddr> {
        self.lock().listening.clone()
    }

    pub(crate) fn set_listening(&self, listening: BTreeMap<u16, SocketAddr>) {
        self.lock().listening = listening;
    }

    /// Makes the next snapshot, in which a namespace may or may not be written, as one step. Its
    /// version names the change for [`Self::end_write_protect`].
    pub(crate) fn set_write_protect(
        &self,
        subsystem: &Nqn,
        nsid: u32,
        protect: bool,
    ) -> Arc<Snapshot> {
        let mut state = self.lock();
        let view = state.snapshot.subsystems.get(subsystem.as_str());
        let namespace = view.and_then(|view| view.namespaces.get(nsid));
        let before = namespace.is_some_and(|namespace| namespace.write_protected);
        let snapshot = Arc::new(state.snapshot.with_write_protect(subsystem, nsid, protect));
        state.snapshot = Arc::clone(&snapshot);
        let key = (subsystem.as_str().to_owned(), nsid);
        let changes = state.protected.entry(key).or_insert_with(|| BTreeMap::from([(0, before)]));
        changes.insert(snapshot.version, protect);
        snapshot
    }

    /// A change of write protection has succeeded or failed. If it failed, makes the next snapshot
    /// with what the last one of the others has set.
    pub(crate) fn end_write_protect(
        &self,
        subsystem: &Nqn,
        nsid: u32,
        version: u64,
        succeeded: bool,
    ) -> Arc<Snapshot> {
        let mut state = self.lock();
        let State { snapshot, protected, .. } = &mut *state;
        let key = (subsystem.as_str().to_owned(), nsid);
        if let Some(changes) = protected.get_mut(&key) {
            if succeeded {
                changes.retain(|other, _| *other >= version);
            } else {
                changes.remove(&version);
                let protect = changes.last_key_value().is_some_and(|(_, protect)| *protect);
                *snapshot = Arc::new(snapshot.with_write_protect(subsystem, nsid, protect));
            }
            if changes.len() <= 1 {
                protected.remove(&key);
            }
        }
        Arc::clone(snapshot)
    }

    /// Makes the next snapshot from the current one, as one step.
    pub(crate) fn update(&self, change: impl FnOnce(&Snapshot) -> Snapshot) -> Arc<Snapshot> {
        let mut state = self.lock();
        let next = Arc::new(change(&state.snapshot));
        state.snapshot = Arc::clone(&next);
        next
    }

    /// The group for the next queue, which counts as one of that group's from now on. Groups of
    /// `express-cpus` have queues for which a rule of the class latency is, and no others.
    pub(crate) fn place_queue(&self, is_ruled_express: bool) -> usize {
        let is_express = is_ruled_express && self.express_groups.contains(&true);
        let mut state = self.lock();
        let groups = state.queues.iter().enumerate();
        let fitting = groups.filter(|(group, _)| self.express_groups[*group] == is_express);
        let fewest = fitting.min_by_key(|(_, held)| **held);
        let group = fewest.map_or(0, |(group, _)| group);
        if let Some(held) = state.queues.get_mut(group) {
            *held += 1;
        }
        group
    }

    /// A queue that [`Self::place_queue`] counted has ended.
    pub(crate) fn unplace_queue(&self, group: usize) {
        if let Some(held) = self.lock().queues.get_mut(group) {
            *held = held.saturating_sub(1);
        }
    }

    /// A host's queue is connected from now on.
    pub(crate) fn queue_connected(
        &self,
        id: ConnectionId,
        queue: ConnectedQueue,
        class: Option<Arc<ClassWord>>,
    ) {
        let mut state = self.lock();
        if let Some((admin, io)) = state.connected_total.get_mut(queue.group) {
            *(if queue.queue_id == 0 { admin } else { io }) += 1;
        }
        state.connected.insert(id, (queue, class));
    }

    /// Admin and I/O queues that were connected since the start, by group.
    pub(crate) fn queues_that_came(&self) -> Vec<(u64, u64)> {
        self.lock().connected_total.clone()
    }

    /// Connections whose handshake with TLS is not over.
    pub(crate) fn handshakes<T>(&self, action: impl FnOnce(&mut PendingPeers) -> T) -> T {
        action(&mut self.lock().handshakes)
    }

    /// What has become of queues whose hosts have to authenticate themselves.
    pub(crate) fn pending<T>(&self, action: impl FnOnce(&mut PendingPeers) -> T) -> T {
        action(&mut self.lock().pending)
    }

    /// The host of a queue has authenticated itself.
    pub(crate) fn queue_authenticated(&self, id: ConnectionId, hash: HashFunction, group: Group) {
        if let Some((queue, _)) = self.lock().connected.get_mut(&id) {
            queue.authentication = Some(QueueAuthentication::Completed(hash, group));
        }
    }

    /// A connection has ended, perhaps without a queue.
    pub(crate) fn queue_gone(&self, id: ConnectionId) {
        self.lock().connected.remove(&id);
    }

    /// The queues that hosts have connected, of all subsystems or of one.
    pub(crate) fn connected_queues(&self, nqn: Option<&str>) -> Vec<ConnectedQueue> {
        let state = self.lock();
        let all = state.connected.values();
        let of = all.filter(|(queue, _)| nqn.is_none_or(|nqn| queue.subsystem == nqn));
        let mut queues: Vec<_> = of
            .map(|(queue, class)| {
                let class = class.as_ref().map(|class| class.get());
                ConnectedQueue { class, ..queue.clone() }
            })
            .collect();
        queues.sort_by_key(|queue| (queue.subsystem.clone(), queue.controller_id, queue.queue_id));
        queues
    }

    /// The controllers of all subsystems, or of one.
    pub(crate) fn connected_controllers(&self, nqn: Option<&str>) -> Vec<ConnectedController> {
        let queues = self.connected_queues(nqn);
        let admin = queues.iter().filter(|queue| queue.queue_id == 0);
        let controller = |admin: &ConnectedQueue| {
            let same = |queue: &&ConnectedQueue| {
                (&queue.subsystem, queue.controller_id) == (&admin.subsystem, admin.controller_id)
            };
            ConnectedController {
                subsystem: admin.subsystem.clone(),
                controller_id: admin.controller_id,
                host: admin.host.clone(),
                host_id: admin.host_id,
                io_queues: queues.iter().filter(same).count() - 1,
            }
        };
        admin.map(controller).collect()
    }

    /// Takes a controller identifier for the admin queue on `connection`, which is from `address`.
    /// One address has a part of the discovery controllers only.
    pub(crate) fn register_controller(
        &self,
        request: &ConnectRequest,
        view: &SubsystemView,
        connection: ConnectionId,
        address: IpAddr,
    ) -> Result<u16, ConnectError> {
        let mut state = self.lock();
        let is_discovery = view.discovery().is_some();
        let most = limits::discovery_controllers_of_an_address(view.limits.max_controllers);
        if is_discovery && state.discoverers.get(&address).is_some_and(|of_it| *of_it >= most) {
            return Err(ConnectError::status(Status::CONNECT_CONTROLLER_BUSY));
        }
        let name = view.nqn.as_str().to_owned();
        let ids = state.controller_ids.entry(name.clone()).or_default();
        let controller_id = ids.allocate(request, view)?;
        state.controllers.insert((name, controller_id), connection);
        if is_discovery {
            *state.discoverers.entry(address).or_default() += 1;
        }
        Ok(controller_id)
    }

    /// Releases the identifier of a controller, whose host is at `address`.
    pub(crate) fn release_controller(&self, subsystem: &Nqn, controller_id: u16, address: IpAddr) {
        let mut state = self.lock();
        let name = subsystem.as_str().to_owned();
        if *subsystem == state.snapshot.discovery.nqn
            && let Entry::Occupied(mut of_it) = state.discoverers.entry(address)
        {
            *of_it.get_mut() -= 1;
            if *of_it.get() == 0 {
                of_it.remove();
            }
        }
        if let Some(ids) = state.controller_ids.get_mut(&name) {
            ids.release(controller_id);
        }
        state.controllers.remove(&(name, controller_id));
    }

    /// The admin connection of a controller.
    pub(crate) fn owner(&self, subsystem: &Nqn, controller_id: u16) -> Option<ConnectionId> {
        let key = (subsystem.as_str().to_owned(), controller_id);
        self.lock().controllers.get(&key).copied()
    }

    /// Carries out what a host registers over an admin connection. Returns the next snapshot if
    /// others see other subsystems in it.
    pub(crate) fn register(
        &self,
        host: Nqn,
        connection: ConnectionId,
        change: Change,
    ) -> Result<Option<Arc<Snapshot>>, Status> {
        let mut state = self.lock();
        let is_other = state.registrations.change(host, connection, change)?;
        Ok(is_other.then(|| state.show_registered()))
    }

    /// An admin connection has ended. Returns when what was registered over it ends.
    pub(crate) fn registrant_left(
        &self,
        host: &Nqn,
        connection: ConnectionId,
        now: Duration,
    ) -> Option<Duration> {
        self.lock().registrations.left(host, connection, now)
    }

    /// Removes what was registered by hosts that are gone for long. Returns the next snapshot if
    /// others see other subsystems in it.
    pub(crate) fn expire_registrations(&self, now: Duration) -> Option<Arc<Snapshot>> {
        let mut state = self.lock();
        state.registrations.expire(now).then(|| state.show_registered())
    }

    /// What is registered, by host.
    pub(crate) fn registrations(&self) -> Vec<(Nqn, Record)> {
        let state = self.lock();
        state.registrations.records().map(|(host, record)| (*host, record.clone())).collect()
    }

    /// A queue of this host has ended with commands outstanding.
    pub(crate) fn begin_drain(&self, host: &HostKey) {
        self.lock().drains.begin(host);
    }

    /// These commands have completed. Returns the connections that waited for it.
    pub(crate) fn end_drain(&self, host: &HostKey) -> Vec<ConnectionId> {
        self.lock().drains.end(host)
    }

    /// Whether the host may connect now; if not, `connection` is kept until it may.
    pub(crate) fn has_drained(&self, host: &HostKey, connection: ConnectionId) -> bool {
        self.lock().drains.wait(host, connection).is_some()
    }

    /// The connection waits no longer: its host was answered, or has disconnected.
    pub(crate) fn cancel_drain_wait(&self, host: &HostKey, connection: ConnectionId) {
        self.lock().drains.cancel(host, &connection);
    }

    /// Every change is complete when the lock is released, so its state is valid even if a panic of
    /// another thread poisoned it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Namespace, Subsystem};
    use crate::control::catalogue::Catalogue;

    /// A host protects a namespace during a reload.
    #[test]
    fn protection_is_not_lost_to_a_reload_at_the_same_time() {
        const NAME: &str = "nqn.2024-01.io.weft:test";
        let device = "memory:1MiB".parse().expect("a device");
        let config = Config {
            subsystems: vec![Subsystem {
                namespaces: vec![Namespace::new(1, device)],
                ..Subsystem::new(NAME)
            }],
            ..Config::default()
        };
        let mut catalogue = Catalogue::new(Vec::new());
        let mut next = || {
            let plan = catalogue.plan(&mut config.clone(), Scope::All).expect("a plan");
            catalogue.apply(&config, plan, &BTreeMap::new()).expect("a snapshot")
        };
        let directory = Directory::new(Arc::new(next()), vec![false], None, Powers::AtOnce);
        let reload = next();
        let name: Nqn = NAME.parse().expect("a name");
        let version = directory.set_write_protect(&name, 1, true).version;
        directory.end_write_protect(&name, 1, version, true);
        let served = directory.replace_snapshot(reload, &Scope::All);
        let is_protected = |snapshot: &Snapshot| {
            snapshot.subsystems[NAME].namespaces.get(1).expect("there").write_protected
        };
        assert!(is_protected(&served));
        assert_eq!(served.version, 3);
        // Two hosts at the same time, of which the first fails.
        let version = directory.set_write_protect(&name, 1, false).version;
        directory.end_write_protect(&name, 1, version, true);
        let end = |version, succeeded| {
            is_protected(&directory.end_write_protect(&name, 1, version, succeeded))
        };
        let set = |protect| directory.set_write_protect(&name, 1, protect).version;
        let (first, second) = (set(true), set(true));
        assert!(end(first, false), "the second has not failed");
        assert!(!end(second, false), "as it was before both");
        let (first, second) = (set(true), set(true));
        assert!(end(second, false), "the first has not failed");
        assert!(!end(first, false), "as it was before both");
        let (first, second) = (set(true), set(true));
        assert!(end(first, true));
        assert!(end(second, false), "the first has succeeded");
        assert!(directory.lock().protected.is_empty());
    }
}
