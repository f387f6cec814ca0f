//! The targets and devices of a study while it runs.

use std::{sync::Arc, sync::atomic::AtomicBool, time::Duration};

use weft_backend::{DeviceFactory, DeviceSpec};
use weft_host::{Controller, Options, Provider, QUEUE_SIZE_MAX, TransportId};
use weft_rpc::{
    Client,
    statistics::{GetStatistics, Statistics},
};

use super::{
    deployment::{Load, Place},
    given::protocol_name,
    launch::{GivenTarget, Launcher, StartedTarget, TargetSpec},
};
use crate::{Job, Pattern, results::Connection};

/// How long a target may take to answer on its control connection.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(5);

/// A target that this study has started.
struct Running {
    spec: TargetSpec,
    target: Box<dyn StartedTarget>,
    client: Client,
}

/// Started targets, given targets and the local device.
pub(super) struct TargetSet<'a> {
    launcher: Option<&'a dyn Launcher>,
    given: Vec<(GivenTarget, Option<Client>)>,
    rdma: Provider,
    running: Vec<Running>,
    local: Option<(DeviceSpec, Arc<dyn DeviceFactory>)>,
}

/// The device of a load, with the controller that it belongs to.
pub(super) struct LoadDevice {
    pub(super) factory: Arc<dyn DeviceFactory>,
    pub(super) name: String,
    pub(super) identity: String,
    pub(super) nsid: u32,
    /// The connection to its target, if it has one.
    pub(super) connection: Option<Connection>,
    controller: Option<Controller>,
}

impl LoadDevice {
    /// Closes the device.
    pub(super) fn close(self) -> Result<(), String> {
        drop(self.factory);
        match self.controller {
            Some(controller) => controller.disconnect().map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }
}

impl<'a> TargetSet<'a> {
    /// Starts nothing yet; opens the control connections of given targets.
    pub(super) fn new(
        launcher: Option<&'a dyn Launcher>,
        given: &[GivenTarget],
        rdma: Provider,
    ) -> Result<Self, String> {
        let mut connected = Vec::new();
        for target in given {
            let client = match &target.control {
                None => None,
                Some(address) => Some(
                    Client::connect(address, CONTROL_TIMEOUT)
                        .map_err(|error| format!("control connection {address}: {error}"))?,
                ),
            };
            connected.push((target.clone(), client));
        }
        Ok(Self { launcher, given: connected, rdma, running: Vec::new(), local: None })
    }

    /// Makes exactly these targets run.
    pub(super) fn arrange(
        &mut self,
        specs: &[TargetSpec],
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let mut before = std::mem::take(&mut self.running);
        let mut wanted: Vec<Option<Running>> = Vec::new();
        for spec in specs {
            let same =
                |running: &mut Running| running.spec == *spec && running.target.ended().is_none();
            let kept = before.iter_mut().position(same).map(|index| before.swap_remove(index));
            wanted.push(kept);
        }
        for running in before {
            // If one has ended, the step that noticed it has reported that.
            let _ = running.target.stop();
        }
        for (spec, kept) in specs.iter().zip(wanted) {
            let running = match kept {
                Some(running) => running,
                None => self.launch(spec, stop)?,
            };
            self.running.push(running);
        }
        Ok(())
    }

    fn launch(&self, spec: &TargetSpec, stop: &AtomicBool) -> Result<Running, String> {
        let launcher = self.launcher.ok_or("this run cannot start targets")?;
        let target = launcher.launch(spec)?;
        let client = Client::connect(target.control(), CONTROL_TIMEOUT)
            .map_err(|error| format!("control connection {}: {error}", target.control()))?;
        for (nsid, device) in (1..).zip(&spec.devices) {
            if matches!(device, DeviceSpec::Memory { .. }) {
                let address = target.address();
                let device = connect(address, Some(nsid), &Job::default(), &self.rdma)?;
                fill(&device.factory, stop)?;
                device.close()?;
            }
        }
        Ok(Running { spec: spec.clone(), target, client })
    }

    /// The device of a load.
    pub(super) fn load_device(
        &mut self,
        load: &Load,
        stop: &AtomicBool,
    ) -> Result<LoadDevice, String> {
        match &load.place {
            Place::Local(spec) => self.local(spec, stop),
            Place::Own { target, nsid } => {
                let running =
                    self.running.get(*target).ok_or("the target does not run any more")?;
                connect(running.target.address(), Some(*nsid), &load.job, &self.rdma)
            }
            Place::Given { target, beside } => {
                let (given, _) = self.given.get(*target).ok_or("no target was given")?;
                let other = beside.then_some(2);
                connect(&given.address, other.or(given.address.nsid), &load.job, &self.rdma)
            }
        }
    }

    fn local(&mut self, spec: &DeviceSpec, stop: &AtomicBool) -> Result<LoadDevice, String> {
        let kept = self.local.as_ref().filter(|(before, _)| before == spec);
        let factory = match kept {
            Some((_, factory)) => Arc::clone(factory),
            None => {
                let factory = spec.build().map_err(|error| error.to_string())?;
                if matches!(spec, DeviceSpec::Memory { .. }) {
                    fill(&factory, stop)?;
                }
                self.local = Some((spec.clone(), Arc::clone(&factory)));
                factory
            }
        };
        let (name, identity) = (spec.to_string(), String::new());
        let (connection, controller) = (None, None);
        Ok(LoadDevice { factory, name, identity, nsid: 0, connection, controller })
    }

    /// Which target a load uses, in the order of [`TargetSet::statistics`].
    pub(super) fn target_of(&self, place: &Place) -> Option<usize> {
        match place {
            Place::Local(_) => None,
            Place::Own { target, .. } | Place::Given { target, .. } => Some(*target),
        }
    }

    /// The statistics of every target of a step; none for a target without a control connection.
    pub(super) fn statistics(&mut self, own: bool) -> Result<Vec<Option<Statistics>>, String> {
        let clients: Vec<Option<&mut Client>> = if own {
            self.running.iter_mut().map(|running| Some(&mut running.client)).collect()
        } else {
            self.given.iter_mut().map(|(_, client)| client.as_mut()).collect()
        };
        clients
            .into_iter()
            .map(|client| match client {
                None => Ok(None),
                Some(client) => client
                    .call::<GetStatistics>(&())
                    .map(Some)
                    .map_err(|error| format!("the target's statistics: {error}")),
            })
            .collect()
    }

    /// Stops everything that was started.
    pub(super) fn end(&mut self) -> Result<(), String> {
        self.running.drain(..).try_for_each(|running| running.target.stop())
    }
}

/// Connects to a namespace: the one given, else the first.
fn connect(
    address: &TransportId,
    nsid: Option<u32>,
    job: &Job,
    rdma: &Provider,
) -> Result<LoadDevice, String> {
    let mut options = Options { rdma: rdma.clone(), ..Options::new(address.clone()) };
    let copies = u16::try_from(job.copies).unwrap_or(u16::MAX);
    options.nr_io_queues = options.nr_io_queues.max(copies);
    let entries = u16::try_from(job.depth.saturating_add(1)).unwrap_or(u16::MAX);
    options.queue_size = options.queue_size.max(entries.min(QUEUE_SIZE_MAX));
    // A lost target makes the cell fail at once instead of waiting for a reconnect.
    options.ctrl_loss_tmo = Some(Duration::ZERO);
    let controller = weft_host::connect(&options).map_err(|error| error.to_string())?;
    let first = controller.namespaces().first().map(|namespace| namespace.nsid);
    let nsid = nsid.or(first).ok_or_else(|| format!("{address} has no namespace"))?;
    let factory: Arc<dyn DeviceFactory> =
        Arc::new(controller.factory(nsid).map_err(|error| error.to_string())?);
    let identity = controller.info().map_or_else(
        |_| String::new(),
        |info| format!("{} {}", info.identify.model_number, info.identify.firmware_revision),
    );
    let name = TransportId { nsid: Some(nsid), ..address.clone() }.to_string();
    let connection = controller
        .ends()
        .map(|ends| Connection::new(protocol_name(ends.transport), ends.local, ends.remote));
    Ok(LoadDevice { factory, name, identity, nsid, connection, controller: Some(controller) })
}

/// Writes a device once from end to end: memory that was never written is not allocated, and
/// reads of it have another cost.
fn fill(factory: &Arc<dyn DeviceFactory>, stop: &AtomicBool) -> Result<(), String> {
    let job = Job {
        name: "fill".to_owned(),
        pattern: Pattern::Write,
        block_bytes: 128 << 10,
        depth: 16,
        size: Some(crate::Extent::Percent(100)),
        ..Job::default()
    };
    let result = crate::run(&job, factory, stop, &mut |_| {}).map_err(|error| error.to_string())?;
    match result.total().error {
        Some(error) => Err(format!("the device cannot be filled: {error}")),
        None => Ok(()),
    }
}
