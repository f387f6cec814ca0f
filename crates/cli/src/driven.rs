//! What a command drives: a device of this machine, or a namespace across the network.

use std::sync::Arc;

use weft_backend::DeviceFactory;
use weft_host::{Controller, ControllerState, Multipath};

use crate::connection::{one_nsid, pick};
use crate::failure::Failure;
use crate::place;
use crate::within::TargetWithin;

/// The controllers of a namespace across the network.
enum Remote {
    One(Controller),
    Several(Multipath),
}

impl Remote {
    fn connect(options: &weft_host::Options) -> Result<Self, weft_host::Error> {
        match options.has_several_paths() {
            false => weft_host::connect(options).map(Self::One),
            true => Multipath::connect(options).map(Self::Several),
        }
    }

    fn namespaces(&self) -> Vec<Arc<weft_host::NamespaceInfo>> {
        match self {
            Self::One(controller) => controller.namespaces(),
            Self::Several(paths) => paths.namespaces(),
        }
    }

    fn factory(&self, nsid: u32) -> Result<Arc<dyn DeviceFactory>, weft_host::Error> {
        Ok(match self {
            Self::One(controller) => Arc::new(controller.factory(nsid)?),
            Self::Several(paths) => Arc::new(paths.factory(nsid)?),
        })
    }

    fn io_queues(&self) -> Option<u16> {
        let granted = |one: &Controller| one.info().ok().map(|info| info.io_queues);
        match self {
            Self::One(controller) => granted(controller),
            Self::Several(paths) => paths.controllers().iter().filter_map(|one| granted(one)).min(),
        }
    }

    fn states(&self) -> Vec<ControllerState> {
        match self {
            Self::One(controller) => vec![controller.state()],
            Self::Several(paths) => paths.controllers().iter().map(|one| one.state()).collect(),
        }
    }

    fn disconnect(self) -> Result<(), weft_host::Error> {
        match self {
            Self::One(controller) => controller.disconnect(),
            Self::Several(paths) => paths.disconnect(),
        }
    }
}

/// A device to drive, and what keeps it there.
pub(crate) struct Driven {
    pub(crate) name: String,
    /// The path of a local file or device, or else the name.
    pub(crate) path: String,
    pub(crate) factory: Arc<dyn DeviceFactory>,
    remote: Option<Remote>,
    /// The target that serves it, if that is within this process.
    within: Option<TargetWithin>,
}

impl Driven {
    /// A device of this machine, for requests that begin and end at multiples of so many bytes.
    pub(crate) fn local(spec: &weft_backend::DeviceSpec, unit: u32) -> Result<Self, Failure> {
        let factory = place::build(spec, unit).map_err(Failure::Because)?;
        let name = spec.to_string();
        let path = spec.path().map_or(name.clone(), |path| path.display().to_string());
        Ok(Self { name, path, factory, remote: None, within: None })
    }

    /// A namespace across the network.
    pub(crate) fn remote(options: &weft_host::Options, nsid: Option<u32>) -> Result<Self, Failure> {
        if options.address.is_discovery() {
            return Err(Failure::because(
                "no subsystem is named: give --nqn, or ask `weft discover` which there are",
            ));
        }
        let remote = Remote::connect(options)?;
        let nsid = pick(&remote.namespaces(), one_nsid(nsid, options.address.nsid)?)?;
        let factory = remote.factory(nsid)?;
        let address = weft_host::TransportId { nsid: Some(nsid), ..options.address.clone() };
        let name = address.to_string();
        Ok(Self { path: name.clone(), name, factory, remote: Some(remote), within: None })
    }

    /// The same under this name, served by a target within this process.
    pub(crate) fn served_by(self, name: String, target: TargetWithin) -> Self {
        Self { name, within: Some(target), ..self }
    }

    /// The fewest I/O queues that a controller has granted, if it is across the network.
    pub(crate) fn io_queues(&self) -> Option<u16> {
        self.remote.as_ref()?.io_queues()
    }

    /// Why requests to it would find nothing, if it is across the network.
    pub(crate) fn trouble(&self) -> Option<String> {
        let gone = || "the namespace is not there any more for this host".to_owned();
        self.remote.as_ref().map(|_| self.lost().unwrap_or_else(gone))
    }

    /// Why no controller of it is there, if it is across the network and that is so.
    pub(crate) fn lost(&self) -> Option<String> {
        let states = self.remote.as_ref()?.states();
        if states.contains(&ControllerState::Live) {
            return None;
        }
        let given_up = states.into_iter().find_map(|state| match state {
            ControllerState::Ended(Some(problem)) => Some(problem.to_string()),
            _ => None,
        });
        let lost = || "the connection to its controller is lost".to_owned();
        Some(given_up.map_or_else(lost, |why| format!("its controller is given up: {why}")))
    }

    /// Lets go of it.
    pub(crate) fn close(self) -> Result<(), Failure> {
        drop(self.factory);
        if let Some(remote) = self.remote {
            remote.disconnect()?;
        }
        self.within.map_or(Ok(()), TargetWithin::stop).map_err(Failure::Because)
    }
}
