//! What all poll groups must agree on, behind one lock.
//!
//! Only connecting, ending and reconfiguring come here; the data path never does. A group that
//! needs another group's state asks by message; the directory only says whom to ask.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_nvme::Nqn;
use weft_nvmf::connect::{ConnectError, ConnectRequest, ControllerIds};
use weft_nvmf::subsystem::SubsystemView;

use crate::gate::Gates;
use crate::group::ConnectionId;
use crate::snapshot::Snapshot;
use crate::statistics::GroupWords;

/// A host as one subsystem knows it: by its name, since some hosts make a new Host Identifier for
/// each Connect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostKey {
    subsystem: String,
    host: String,
}

impl HostKey {
    pub(crate) fn of(request: &ConnectRequest) -> Self {
        Self {
            subsystem: request.subsystem.as_str().to_owned(),
            host: request.host.as_str().to_owned(),
        }
    }
}

/// One directory for all groups of a target.
#[derive(Debug)]
pub(crate) struct Directory {
    state: Mutex<State>,
    /// Connections of all groups.
    connections: AtomicUsize,
    /// What each group counts.
    words: Vec<Arc<GroupWords>>,
}

#[derive(Debug)]
struct State {
    snapshot: Arc<Snapshot>,
    listening: BTreeMap<u16, SocketAddr>,
    controller_ids: BTreeMap<String, ControllerIds>,
    /// The admin connection of each controller.
    controllers: BTreeMap<(String, u16), ConnectionId>,
    gates: Gates<HostKey, ConnectionId>,
    /// Queues of each group: the next one goes where there are fewest.
    queues: Vec<usize>,
}

impl Directory {
    pub(crate) fn new(snapshot: Arc<Snapshot>, groups: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                snapshot,
                listening: BTreeMap::new(),
                controller_ids: BTreeMap::new(),
                controllers: BTreeMap::new(),
                gates: Gates::new(),
                queues: vec![0; groups.max(1)],
            }),
            connections: AtomicUsize::new(0),
            words: (0..groups.max(1)).map(|_| Arc::default()).collect(),
        })
    }

    /// Connections that there are, over all groups.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn connection_came(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_gone(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// What each group counts.
    pub(crate) fn words(&self) -> &[Arc<GroupWords>] {
        &self.words
    }

    /// What one group counts.
    pub(crate) fn words_of(&self, group: usize) -> Arc<GroupWords> {
        self.words.get(group).map(Arc::clone).unwrap_or_default()
    }

    /// How many queues each group was given.
    pub(crate) fn queues(&self) -> Vec<usize> {
        self.lock().queues.clone()
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.lock().snapshot)
    }

    /// Makes this the current snapshot, as a later one than any other. What hosts have protected,
    /// up to this very moment, stays protected.
    pub(crate) fn replace_snapshot(&self, mut snapshot: Snapshot) -> Arc<Snapshot> {
        let mut state = self.lock();
        snapshot.version = state.snapshot.version + 1;
        snapshot.keep_write_protect(&state.snapshot);
        state.snapshot = Arc::new(snapshot);
        Arc::clone(&state.snapshot)
    }

    /// Where the target listens, by port.
    pub(crate) fn listening(&self) -> BTreeMap<u16, SocketAddr> {
        self.lock().listening.clone()
    }

    pub(crate) fn set_listening(&self, listening: BTreeMap<u16, SocketAddr>) {
        self.lock().listening = listening;
    }

    /// Makes the next snapshot from the current one, as one step. What `change` gives back beside
    /// it is handed on.
    pub(crate) fn update(&self, change: impl FnOnce(&Snapshot) -> Snapshot) -> Arc<Snapshot> {
        let mut state = self.lock();
        let next = Arc::new(change(&state.snapshot));
        state.snapshot = Arc::clone(&next);
        next
    }

    /// The group that is to hold the next queue; it counts as one of that group's from now on.
    pub(crate) fn place_queue(&self) -> usize {
        let mut state = self.lock();
        let fewest = state.queues.iter().enumerate().min_by_key(|(_, held)| **held);
        let group = fewest.map_or(0, |(group, _)| group);
        if let Some(held) = state.queues.get_mut(group) {
            *held += 1;
        }
        group
    }

    /// A queue that [`Self::place_queue`] counted is gone.
    pub(crate) fn unplace_queue(&self, group: usize) {
        if let Some(held) = self.lock().queues.get_mut(group) {
            *held = held.saturating_sub(1);
        }
    }

    /// Takes a controller identifier for the admin queue on `connection`.
    pub(crate) fn register_controller(
        &self,
        request: &ConnectRequest,
        view: &SubsystemView,
        connection: ConnectionId,
    ) -> Result<u16, ConnectError> {
        let mut state = self.lock();
        let name = view.nqn.as_str().to_owned();
        let ids = state.controller_ids.entry(name.clone()).or_default();
        let controller_id = ids.allocate(request, view)?;
        state.controllers.insert((name, controller_id), connection);
        Ok(controller_id)
    }

    /// Gives a controller's identifier up.
    pub(crate) fn release_controller(&self, subsystem: &Nqn, controller_id: u16) {
        let mut state = self.lock();
        let name = subsystem.as_str().to_owned();
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

    /// Work of this host is outstanding on a queue that has ended.
    pub(crate) fn hold_gate(&self, host: &HostKey) {
        self.lock().gates.hold(host);
    }

    /// That work is done. Returns the connections that waited for it.
    pub(crate) fn release_gate(&self, host: &HostKey) -> Vec<ConnectionId> {
        self.lock().gates.release(host)
    }

    /// Whether the host may connect now; if not, `connection` is kept until it may.
    pub(crate) fn pass_gate(&self, host: &HostKey, connection: ConnectionId) -> bool {
        self.lock().gates.pass(host, connection).is_some()
    }

    /// The connection waits no longer: its host has been answered, or has gone.
    pub(crate) fn leave_gate(&self, host: &HostKey, connection: ConnectionId) {
        self.lock().gates.leave(host, &connection);
    }

    /// Every change under the lock is whole when it is let go, so a panic of another thread that
    /// poisoned it changes nothing.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Catalogue;
    use crate::config::{Config, Namespace, Subsystem};

    /// A host protects a namespace while a reload that knows nothing of it is under way.
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
        let mut catalogue = Catalogue::new();
        let mut next = || catalogue.snapshot(&config, &BTreeMap::new()).expect("a snapshot");
        let directory = Directory::new(Arc::new(next()), 1);
        let reload = next();
        let name: Nqn = NAME.parse().expect("a name");
        directory.update(|current| current.with_write_protect(&name, 1, true));
        let served = directory.replace_snapshot(reload);
        assert!(served.subsystems[NAME].namespaces[&1].write_protected);
        assert_eq!(served.version, 3);
    }
}
