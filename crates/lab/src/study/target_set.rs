//! The targets and devices of a study while it runs.

use std::{sync::Arc, sync::atomic::AtomicBool, time::Duration};

use serde_json::json;
use uuid::Uuid;

use weft_backend::{BLOCK_BYTES_DEFAULT, DeviceFactory, DeviceSpec};
use weft_host::{Controller, Options, Provider, QUEUE_SIZE_MAX, TransportId};
use weft_rpc::{
    Client,
    statistics::{GetStatistics, Statistics},
};

use super::{
    alike::Alike,
    deployment::{DEVICE_BYTES, Load, Place},
    given::protocol_name,
    inside::Inside,
    launch::{GivenTarget, Launcher, StartedTarget, TargetSpec},
    network::{Answering, NetworkEnd},
};
use crate::{
    Job, Pattern, RunObserver, RunResult, results::Connection, run::Windows, run_observed,
};

/// How long a target may take to answer on its control connection.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(5);

/// A target that this study has started.
struct Running {
    spec: TargetSpec,
    target: Box<dyn StartedTarget>,
    client: Client,
    /// The addresses of its subsystems.
    addresses: Vec<TransportId>,
}

/// Started targets, given targets and the local device.
pub(super) struct TargetSet<'a> {
    launcher: Option<&'a dyn Launcher>,
    given: Vec<(GivenTarget, Option<Client>)>,
    rdma: Provider,
    running: Vec<Running>,
    local: Option<(DeviceSpec, Arc<dyn DeviceFactory>)>,
    network: Option<Answering>,
}

/// The device of a load, with the controller that it belongs to.
pub(super) struct LoadDevice {
    driven: Driven,
    pub(super) name: String,
    pub(super) identity: String,
    pub(super) nsid: u32,
    /// The connection to its target, if it has one.
    pub(super) connection: Option<Connection>,
    controllers: Vec<Controller>,
}

/// Where a load's device is driven.
enum Driven {
    /// In this process.
    Here(Arc<dyn DeviceFactory>),
    /// In the target's.
    Inside(Inside),
}

impl LoadDevice {
    /// Runs a job on it.
    pub(super) fn run(
        &self,
        job: &Job,
        stop: &AtomicBool,
        observer: &mut dyn RunObserver,
    ) -> Result<RunResult, String> {
        match &self.driven {
            Driven::Here(factory) => {
                run_observed(job, factory, stop, observer).map_err(|error| error.to_string())
            }
            Driven::Inside(inside) => inside.run(job, stop, observer),
        }
    }

    /// One without a connection.
    fn local(driven: Driven, name: String) -> Self {
        let (connection, controllers) = (None, Vec::new());
        Self { driven, name, identity: String::new(), nsid: 0, connection, controllers }
    }

    /// Closes the device.
    pub(super) fn close(self) -> Result<(), String> {
        drop(self.driven);
        let disconnect = |controller: Controller| controller.disconnect();
        self.controllers.into_iter().try_for_each(disconnect).map_err(|error| error.to_string())
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
                    Client::connect(address, target.token.as_ref(), CONTROL_TIMEOUT)
                        .map_err(|error| format!("control connection {address}: {error}"))?,
                ),
            };
            connected.push((target.clone(), client));
        }
        Ok(Self {
            launcher,
            given: connected,
            rdma,
            running: Vec::new(),
            local: None,
            network: None,
        })
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
        let mut client = Client::connect(target.control(), None, CONTROL_TIMEOUT)
            .map_err(|error| format!("control connection {}: {error}", target.control()))?;
        let mut addresses = vec![target.address().clone()];
        for _ in 1..spec.subsystems {
            addresses.push(add_subsystem(&mut client, target.address(), &spec.devices)?);
        }
        for address in &addresses {
            for (nsid, device) in (1..).zip(&spec.devices) {
                if matches!(device, DeviceSpec::Memory { .. }) {
                    let options = Options::new(address.clone());
                    let device = connect(options, Some(nsid), &Job::default(), &self.rdma)?;
                    fill(&device, stop)?;
                    device.close()?;
                }
            }
        }
        Ok(Running { spec: spec.clone(), target, client, addresses })
    }

    /// The device of a load.
    pub(super) fn load_device(
        &mut self,
        load: &Load,
        stop: &AtomicBool,
    ) -> Result<LoadDevice, String> {
        match &load.place {
            Place::Local(spec) => self.local(spec, stop),
            Place::Network(end) => self.network(end, load),
            Place::Inside { target, nsid } => self.inside(*target, *nsid),
            Place::Own { target, nsid } => {
                let running =
                    self.running.get(*target).ok_or("the target does not run any more")?;
                self.spread(&running.addresses, Some(*nsid), load)
            }
            Place::Given { target, beside } => {
                let (given, _) = self.given.get(*target).ok_or("no target was given")?;
                let other = beside.then_some(2);
                self.spread(
                    std::slice::from_ref(&given.address),
                    other.or(given.address.nsid),
                    load,
                )
            }
        }
    }

    /// The device of a load that several hosts drive together, each at several subsystems.
    fn spread(
        &self,
        addresses: &[TransportId],
        nsid: Option<u32>,
        load: &Load,
    ) -> Result<LoadDevice, String> {
        let connections = load.hosts.max(1) * load.subsystems.max(1);
        let copies = load.job.copies.div_ceil(connections);
        let job = Job { copies, ..load.job.clone() };
        let mut devices = Vec::new();
        for host in 0..load.hosts.max(1) {
            let whose = |address: &TransportId| match host {
                0 => Options::new(address.clone()),
                _ => Options::new(address.clone()).of_another_host(),
            };
            let mut options: Vec<Options> = addresses.iter().map(whose).collect();
            // A host has one name at all subsystems.
            for index in 1..options.len() {
                let (hostnqn, hostid) = (options[0].hostnqn, options[0].hostid);
                (options[index].hostnqn, options[index].hostid) = (hostnqn, hostid);
            }
            for options in options {
                devices.push(connect(options, nsid, &job, &self.rdma)?);
            }
        }
        let factories = devices.iter().filter_map(|device| match &device.driven {
            Driven::Here(factory) => Some(Arc::clone(factory)),
            Driven::Inside(_) => None,
        });
        let factories = factories.collect();
        let mut devices = devices.into_iter();
        let mut first = devices.next().ok_or("the target has no subsystem")?;
        first.controllers.extend(devices.flat_map(|device| device.controllers));
        if connections > 1 {
            first.driven = Driven::Here(Arc::new(Alike::new(factories)));
        }
        Ok(first)
    }

    /// The device of a namespace, driven in the process of its target.
    fn inside(&self, target: usize, nsid: u32) -> Result<LoadDevice, String> {
        let running = self.running.get(target).ok_or("the target does not run any more")?;
        let device = running.spec.devices.first().map(ToString::to_string).unwrap_or_default();
        let nqn = running.target.address().subnqn.as_ref().map(ToString::to_string);
        let control = running.target.control().clone();
        let inside = Inside { control, nqn: nqn.unwrap_or_default(), nsid };
        Ok(LoadDevice::local(Driven::Inside(inside), device))
    }

    fn local(&mut self, spec: &DeviceSpec, stop: &AtomicBool) -> Result<LoadDevice, String> {
        let kept = self.local.as_ref().filter(|(before, _)| before == spec);
        let factory = match kept {
            Some((_, factory)) => Arc::clone(factory),
            None => {
                let factory = spec.build().map_err(|error| error.to_string())?;
                if matches!(spec, DeviceSpec::Memory { .. }) {
                    let driven = Driven::Here(Arc::clone(&factory));
                    fill(&LoadDevice::local(driven, spec.to_string()), stop)?;
                }
                self.local = Some((spec.clone(), Arc::clone(&factory)));
                factory
            }
        };
        Ok(LoadDevice::local(Driven::Here(factory), spec.to_string()))
    }

    fn network(&mut self, end: &NetworkEnd, load: &Load) -> Result<LoadDevice, String> {
        if self.network.as_ref().is_none_or(|answering| answering.end != *end) {
            self.network = None;
            self.network = Some(Answering::start(end)?);
        }
        let answering = self.network.as_ref().ok_or("the network has no end")?;
        let whole = load.job.block_bytes.is_multiple_of(BLOCK_BYTES_DEFAULT);
        let block_bytes = if whole { BLOCK_BYTES_DEFAULT } else { 512 };
        let factory = Arc::new(answering.device(DEVICE_BYTES, block_bytes));
        let name = factory.identity();
        let connection = Some(Connection::over_loopback("tcp"));
        Ok(LoadDevice { connection, ..LoadDevice::local(Driven::Here(factory), name) })
    }

    /// Which target a load uses, in the order of [`TargetSet::statistics`].
    pub(super) fn target_of(&self, place: &Place) -> Option<usize> {
        match place {
            Place::Local(_) | Place::Inside { .. } | Place::Network(_) => None,
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
        self.network = None;
        self.running.drain(..).try_for_each(|running| running.target.stop())
    }
}

/// Connects to a namespace: the one given, else the first.
fn connect(
    options: Options,
    nsid: Option<u32>,
    job: &Job,
    rdma: &Provider,
) -> Result<LoadDevice, String> {
    let address = options.address.clone();
    let mut options = Options { rdma: rdma.clone(), ..options };
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
    let (driven, controllers) = (Driven::Here(factory), vec![controller]);
    Ok(LoadDevice { driven, name, identity, nsid, connection, controllers })
}

/// Has a target that was started serve such devices in another subsystem. Its port serves all
/// subsystems.
fn add_subsystem(
    client: &mut Client,
    first: &TransportId,
    devices: &[DeviceSpec],
) -> Result<TransportId, String> {
    let nqn = format!("nqn.2014-08.org.nvmexpress:uuid:{}", Uuid::new_v4());
    let mut call = |method: &str, params| {
        client.call_named(method, params).map_err(|error| format!("another subsystem: {error}"))
    };
    call("nvmf_create_subsystem", json!({ "nqn": nqn, "allow_any_host": true }))?;
    for device in devices {
        let name = Uuid::new_v4().to_string();
        call("bdev_device_create", json!({ "name": name, "device": device.to_string() }))?;
        let namespace = json!({ "bdev_name": name });
        call("nvmf_subsystem_add_ns", json!({ "nqn": nqn, "namespace": namespace }))?;
    }
    let subnqn = nqn.parse().map_err(|error| format!("{error}"))?;
    Ok(TransportId { subnqn: Some(subnqn), ..first.clone() })
}

/// Writes a device once from end to end: memory that was never written is not allocated, and
/// reads of it have another cost.
fn fill(device: &LoadDevice, stop: &AtomicBool) -> Result<(), String> {
    let job = Job {
        name: "fill".to_owned(),
        pattern: Pattern::Write,
        block_bytes: 128 << 10,
        depth: 16,
        size: Some(crate::Extent::Percent(100)),
        ..Job::default()
    };
    let result = device.run(&job, stop, &mut Windows(&mut |_| {}))?;
    match result.total().error {
        Some(error) => Err(format!("the device cannot be filled: {error}")),
        None => Ok(()),
    }
}
