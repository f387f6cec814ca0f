//! Several controllers of one subsystem as paths to its namespaces.
//!
//! ```text
//!   Multipath ──▶ Controller, Controller, …           MultipathDevice, on each reactor
//!                 (a thread, an admin queue each) ◀──▶  QueuePair, QueuePair, …
//! ```
//!
//! Each path is a controller of its own, which is lost and connected again by itself, at any time.
//! What is done with requests meanwhile is decided by each device: see `device`.

mod device;
mod policy;

use std::sync::Arc;
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
pub use policy::IoPolicy;

/// Several connected controllers of one subsystem.
#[derive(Debug)]
pub struct Multipath {
    controllers: Vec<Controller>,
    policy: IoPolicy,
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
    /// Connects to every endpoint of the address, and waits until one can be used, and a moment for
    /// the others. Those that cannot be connected are tried again, as a lost controller is.
    pub fn connect(options: &Options) -> Result<Self, Error> {
        let endpoints: Vec<TransportId> = options.address.endpoints().collect();
        let most = limits::PATHS_MAX;
        if endpoints.len() > most as usize {
            return Err(Error::Invalid(format!(
                "{} endpoints are more than a device has paths, which is {most}",
                endpoints.len()
            )));
        }
        let begin = |address| {
            let options = Options { address, multipath: true, ..options.clone() };
            Controller::begin(&options, ControllerKind::Nvm)
        };
        let controllers = endpoints.into_iter().map(begin).collect::<Result<Vec<_>, _>>()?;
        let multipath = Self { controllers, policy: options.iopolicy };
        multipath.wait_for_first()?;
        Ok(multipath)
    }

    /// Waits until it is known of every path whether it can be used, or of one that it can for a
    /// while.
    fn wait_for_first(&self) -> Result<(), Error> {
        let mut waited = Duration::ZERO;
        loop {
            let states: Vec<_> = self.controllers.iter().map(Controller::state).collect();
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
        let error = |controller: &Controller| {
            let shared = controller.shared();
            let problem = match shared.state() {
                ControllerState::Ended(problem) => problem,
                _ => shared.last_problem(),
            };
            Some(shared.error(problem?))
        };
        self.controllers.iter().find_map(error).unwrap_or(Error::Stopped)
    }

    /// The controllers, in the order of the endpoints.
    #[must_use]
    pub fn controllers(&self) -> &[Controller] {
        &self.controllers
    }

    /// The active namespaces, by identifier, of the first controller that has some.
    #[must_use]
    pub fn namespaces(&self) -> Vec<Arc<NamespaceInfo>> {
        let mut each = self.controllers.iter().map(Controller::namespaces);
        each.find(|namespaces| !namespaces.is_empty()).unwrap_or_default()
    }

    /// The paths to a namespace.
    #[must_use]
    pub fn paths(&self, nsid: u32) -> Vec<PathInfo> {
        let path = |controller: &Controller| {
            let shared = controller.shared();
            let snapshot = shared.snapshot();
            let controller_id = snapshot.as_ref().map(|known| known.controller.controller_id);
            PathInfo {
                address: shared.options.address.clone(),
                state: shared.state(),
                controller_id,
                access: snapshot.and_then(|known| known.access.of(nsid)),
            }
        };
        self.controllers.iter().map(path).collect()
    }

    /// A namespace as a block device over all paths, to be opened on the reactors of the caller.
    pub fn factory(&self, nsid: u32) -> Result<MultipathFactory, Error> {
        let shared = self.controllers.iter().map(Controller::shared).cloned().collect();
        MultipathFactory::new(shared, nsid, self.policy)
    }

    /// Shuts every controller down that is there. Requests in flight, on any reactor, fail.
    pub fn disconnect(self) -> Result<(), Error> {
        // A path that has ended with an error is no error of the whole.
        let ends = self.controllers.into_iter().map(Controller::disconnect);
        ends.fold(Err(Error::Stopped), Result::or)
    }
}

/// A namespace that several controllers reach: opens a [`BlockDevice`] on any reactor, with an I/O
/// queue at each controller.
///
/// A device sends a request by the best path that can be used; a request waits while there is none,
/// and fails when none is to be waited for (as the options of the paths say).
#[derive(Debug, Clone)]
pub struct MultipathFactory {
    paths: Vec<Arc<Shared>>,
    namespace: Arc<NamespaceInfo>,
    policy: IoPolicy,
}

impl MultipathFactory {
    fn new(paths: Vec<Arc<Shared>>, nsid: u32, policy: IoPolicy) -> Result<Self, Error> {
        let known = |shared: &Arc<Shared>| shared.snapshot()?.namespaces.get(&nsid).cloned();
        let namespace = paths.iter().find_map(known).ok_or(Error::NoNamespace(nsid))?;
        check_usable(&namespace)?;
        Ok(Self { paths, namespace, policy })
    }

    /// Over the controllers of these drivers, which were made with [`Options::multipath`].
    pub fn over<'a>(
        drivers: impl IntoIterator<Item = &'a ControllerDriver>,
        nsid: u32,
        policy: IoPolicy,
    ) -> Result<Self, Error> {
        let paths = drivers.into_iter().map(ControllerDriver::shared).cloned().collect();
        Self::new(paths, nsid, policy)
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
        for shared in &self.paths {
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
        let namespace = (Arc::clone(&self.namespace), self.geometry());
        Ok(Box::new(MultipathDevice::new(owner, paths, self.policy, namespace)))
    }

    fn geometry(&self) -> Geometry {
        let known = |shared: &Arc<Shared>| {
            let snapshot = shared.snapshot()?;
            let namespace = snapshot.namespaces.get(&self.namespace.nsid)?;
            let is_same = namespace.is_same(&self.namespace);
            is_same.then(|| geometry(&snapshot.controller, namespace))
        };
        let unknown = || Geometry::new(self.namespace.bytes(), self.namespace.block_bytes);
        self.paths.iter().find_map(known).unwrap_or_else(unknown)
    }

    fn survives_restart(&self) -> bool {
        true
    }

    fn identity(&self) -> String {
        self.paths.first().map_or_else(String::new, |shared| identity(&self.namespace, shared))
    }

    fn resize(&self, _bytes: u64) -> Result<(), ResizeError> {
        Err(ResizeError::Unsupported)
    }
}
