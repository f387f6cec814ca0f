//! Several controllers of one subsystem as paths to its namespaces.
//!
//! ```text
//!   Multipath ──▶ Controller, Controller, …           MultipathDevice, on each reactor
//!                 (a thread, an admin queue each) ◀──▶  QueuePair, QueuePair, …
//! ```
//!
//! Each path is a controller of its own, which is lost and connected again by itself, at any time.
//! Which controllers there are is given, or listed by discovery controllers: see `search`.
//! What is done with requests meanwhile is decided by each device: see `device`.

mod device;
mod paths;
mod policy;
mod search;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weft_backend::{BlockDevice, DeviceFactory, Geometry, OpenError, ResizeError};
use weft_nvme::log_page::AsymmetricNamespaceAccessState;
use weft_nvmf::host::{ControllerKind, NamespaceInfo, TransportId};
use weft_reactor::{Owner, Reactor};

use crate::controller::Controller;
use crate::device::{check_usable, geometry, identity};
use crate::driver::ControllerDriver;
use crate::error::Error;
use crate::limits;
use crate::options::Options;
use crate::queue::QueuePair;
use crate::shared::{ControllerState, Shared};
use device::{MultipathDevice, Path};
use paths::Paths;
pub use policy::IoPolicy;
use search::Search;

/// Several connected controllers of one subsystem.
#[derive(Debug)]
pub struct Multipath {
    /// If discovery controllers list the paths. It ends first.
    search: Option<Search>,
    group: Arc<Group>,
}

/// The controllers, and their devices.
#[derive(Debug)]
struct Group {
    /// Of every path, but for the address.
    options: Options,
    controllers: Mutex<Vec<Arc<Controller>>>,
    paths: Arc<Paths>,
}

/// A path as it is now.
#[derive(Debug, Clone)]
pub struct PathInfo {
    /// Where it leads.
    pub address: TransportId,
    /// The state of its controller.
    pub state: ControllerState,
    /// The controller's identifier, if it was ever connected.
    pub controller_id: Option<u16>,
    /// How well it reaches the namespace, as far as it is known.
    pub access: Option<AsymmetricNamespaceAccessState>,
}

impl Multipath {
    /// Connects to every endpoint of the address, or with [`Options::discovery`] to every port that
    /// the discovery controller there lists, or one that it refers to. Waits until one can be used,
    /// and a moment for the others. Those that cannot be connected are tried again, as a lost
    /// controller is.
    pub fn connect(options: &Options) -> Result<Self, Error> {
        let group = Arc::new(Group {
            options: Options { multipath: true, discovery: false, ..options.clone() },
            controllers: Mutex::default(),
            paths: Arc::new(Paths::new(Vec::new())),
        });
        let search = match options.discovery {
            true => Some(Search::start(options, &group)?),
            false => {
                let endpoints: Vec<TransportId> = options.address.endpoints().collect();
                let most = limits::PATHS_MAX as usize;
                if endpoints.len() > most {
                    return Err(Error::Invalid(format!(
                        "{} endpoints are more than a device has paths, which is {most}",
                        endpoints.len()
                    )));
                }
                group.add(&endpoints)?;
                None
            }
        };
        let multipath = Self { search, group };
        multipath.wait_for_first()?;
        Ok(multipath)
    }

    /// Waits until it is known of every path whether it can be used, or of one that it can for a
    /// while.
    fn wait_for_first(&self) -> Result<(), Error> {
        let mut waited = Duration::ZERO;
        loop {
            let states: Vec<_> = self.controllers().iter().map(|one| one.state()).collect();
            let is_live = |state: &ControllerState| *state == ControllerState::Live;
            let is_unknown = |state: &ControllerState| *state == ControllerState::Connecting;
            let is_there = states.iter().any(is_live);
            if is_there {
                waited += limits::STATE_POLL;
                if waited >= limits::FURTHER_PATHS || !states.iter().any(is_unknown) {
                    return Ok(());
                }
            } else if !states.iter().any(is_unknown) {
                return Err(self.first_error());
            }
            std::thread::sleep(limits::STATE_POLL);
        }
    }

    fn first_error(&self) -> Error {
        let error = |controller: &Arc<Controller>| {
            let shared = controller.shared();
            let problem = match shared.state() {
                ControllerState::Ended(problem) => problem,
                _ => shared.last_problem(),
            };
            Some(shared.error(problem?))
        };
        self.controllers().iter().find_map(error).unwrap_or(Error::Stopped)
    }

    /// The controllers, in the order in which they were added.
    #[must_use]
    pub fn controllers(&self) -> Vec<Arc<Controller>> {
        self.group.lock().clone()
    }

    /// The active namespaces, by identifier, of the first controller that has some.
    #[must_use]
    pub fn namespaces(&self) -> Vec<Arc<NamespaceInfo>> {
        let controllers = self.controllers();
        let mut each = controllers.iter().map(|one| one.namespaces());
        each.find(|namespaces| !namespaces.is_empty()).unwrap_or_default()
    }

    /// The paths to a namespace.
    #[must_use]
    pub fn paths(&self, nsid: u32) -> Vec<PathInfo> {
        let path = |shared: Arc<Shared>| {
            let snapshot = shared.snapshot();
            let controller_id = snapshot.as_ref().map(|known| known.controller.controller_id);
            PathInfo {
                address: shared.options.address.clone(),
                state: shared.state(),
                controller_id,
                access: snapshot.and_then(|known| known.access.of(nsid)),
            }
        };
        self.group.paths.all().into_iter().map(path).collect()
    }

    /// A namespace as a block device over all paths, to be opened on the reactors of the caller.
    pub fn factory(&self, nsid: u32) -> Result<MultipathFactory, Error> {
        MultipathFactory::new(&self.group.paths, nsid, self.group.options.iopolicy)
    }

    /// Shuts every controller down that is there. Requests in flight, on any reactor, fail.
    pub fn disconnect(self) -> Result<(), Error> {
        drop(self.search);
        // A path that has ended with an error is no error of the whole.
        let controllers = std::mem::take(&mut *self.group.lock());
        let ends = controllers.into_iter().map(|one| match Arc::try_unwrap(one) {
            Ok(controller) => controller.disconnect(),
            Err(used) => {
                used.end();
                Ok(())
            }
        });
        ends.fold(Err(Error::Stopped), Result::or)
    }
}

impl Group {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Controller>>> {
        // A panic leaves it as it was.
        self.controllers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds paths to these ports. One that has ended is begun anew.
    fn add(&self, ports: &[TransportId]) -> Result<(), Error> {
        let mut controllers = self.lock();
        let mut result = Ok(());
        controllers.retain(|one| !matches!(one.state(), ControllerState::Ended(_)));
        for port in ports {
            if controllers.iter().any(|one| one.shared().options.address == *port) {
                continue;
            }
            if controllers.len() == limits::PATHS_MAX as usize {
                log::warn!("{port} is not used: a device has {} paths", limits::PATHS_MAX);
                break;
            }
            let options = Options { address: port.clone(), ..self.options.clone() };
            match Controller::begin(&options, ControllerKind::Nvm) {
                Ok(controller) => controllers.push(Arc::new(controller)),
                Err(error) => result = Err(error),
            }
        }
        self.publish(&controllers);
        result
    }

    /// Ends the paths to other ports than these as soon as one to these can be used. Whether there
    /// is none left.
    fn end_others(&self, ports: &[TransportId]) -> bool {
        let mut controllers = self.lock();
        let is_listed = |one: &Arc<Controller>| ports.contains(&one.shared().options.address);
        let is_live = |one: &Arc<Controller>| one.state() == ControllerState::Live;
        if !controllers.iter().any(|one| is_listed(one) && is_live(one)) {
            return controllers.iter().all(is_listed);
        }
        let gone: Vec<_> = controllers.extract_if(.., |one| !is_listed(one)).collect();
        self.publish(&controllers);
        drop(controllers);
        // To disconnect takes a while, for which nobody waits.
        for one in gone {
            log::info!("{} is listed no longer", one.shared().options.address);
        }
        true
    }

    fn publish(&self, controllers: &[Arc<Controller>]) {
        self.paths.set(controllers.iter().map(|one| Arc::clone(one.shared())).collect());
    }
}

/// A namespace that several controllers reach: opens a [`BlockDevice`] on any reactor, with an I/O
/// queue at each controller.
///
/// A device sends a request by the best path that can be used; a request waits while there is none,
/// and fails when none is to be waited for (as the options of the paths say).
#[derive(Debug, Clone)]
pub struct MultipathFactory {
    paths: Arc<Paths>,
    namespace: Arc<NamespaceInfo>,
    policy: IoPolicy,
}

impl MultipathFactory {
    fn new(paths: &Arc<Paths>, nsid: u32, policy: IoPolicy) -> Result<Self, Error> {
        let known = |shared: &Arc<Shared>| shared.snapshot()?.namespaces.get(&nsid).cloned();
        let namespace = paths.all().iter().find_map(known).ok_or(Error::NoNamespace(nsid))?;
        check_usable(&namespace)?;
        Ok(Self { paths: Arc::clone(paths), namespace, policy })
    }

    /// Over the controllers of these drivers, which were made with [`Options::multipath`].
    pub fn over<'a>(
        drivers: impl IntoIterator<Item = &'a ControllerDriver>,
        nsid: u32,
        policy: IoPolicy,
    ) -> Result<Self, Error> {
        let paths = drivers.into_iter().map(ControllerDriver::shared).cloned().collect();
        Self::new(&Arc::new(Paths::new(paths)), nsid, policy)
    }

    /// Uses the controllers of these drivers from now on: devices that are open open queues at
    /// those that are new, and let go of a controller when that has ended.
    pub fn set_paths<'a>(&self, drivers: impl IntoIterator<Item = &'a ControllerDriver>) {
        self.paths.set(drivers.into_iter().map(ControllerDriver::shared).cloned().collect());
    }

    /// The namespace when the factory was made.
    #[must_use]
    pub const fn namespace(&self) -> &Arc<NamespaceInfo> {
        &self.namespace
    }
}

impl DeviceFactory for MultipathFactory {
    fn open(&self, reactor: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
        let mut paths = Vec::new();
        let mut refused = None;
        let (known, added) = self.paths.subscribe(reactor);
        for shared in &known {
            let number = u32::try_from(paths.len()).unwrap_or(u32::MAX);
            match QueuePair::open_path(shared, reactor, owner, number) {
                Ok(queue) => paths.push(Path::new(queue)),
                Err(why) => {
                    log::warn!("{}: {why}", shared.options.address);
                    refused = Some(why);
                }
            }
        }
        if let Some(why) = refused.filter(|_| paths.is_empty()) {
            return Err(OpenError::Invalid(why));
        }
        let (namespace, geometry) = (Arc::clone(&self.namespace), self.geometry());
        let device = MultipathDevice::new(owner, paths, added, self.policy, namespace, geometry);
        Ok(Box::new(device))
    }

    fn geometry(&self) -> Geometry {
        let known = |shared: &Arc<Shared>| {
            let snapshot = shared.snapshot()?;
            let namespace = snapshot.namespaces.get(&self.namespace.nsid)?;
            let is_same = namespace.is_same(&self.namespace);
            is_same.then(|| geometry(&snapshot.controller, namespace))
        };
        let unknown = || Geometry::new(self.namespace.bytes(), self.namespace.block_bytes);
        self.paths.all().iter().find_map(known).unwrap_or_else(unknown)
    }

    fn survives_restart(&self) -> bool {
        true
    }

    fn identity(&self) -> String {
        let paths = self.paths.all();
        paths.first().map_or_else(String::new, |shared| identity(&self.namespace, shared))
    }

    fn resize(&self, _bytes: u64) -> Result<(), ResizeError> {
        Err(ResizeError::Unsupported)
    }
}
