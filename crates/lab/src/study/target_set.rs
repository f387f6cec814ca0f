//! The targets and devices of a study while it runs.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use serde_json::json;
use uuid::Uuid;

use weft_backend::{BLOCK_BYTES_DEFAULT, DeviceFactory, DeviceSpec};
use weft_host::{Options, Provider, TransportId};
use weft_load::network::{NetworkEnd, Responder};
use weft_load::{Job, Pattern, Windows};
use weft_reactor::DriverKind;
use weft_rpc::Client;
use weft_statistics::{GetStatistics, Statistics};

use super::agent::Fleet;
use super::deployment::{DEVICE_BYTES, Load, Place};
use super::inside::Inside;
use super::launch::{CONTROL_TIMEOUT, GivenTarget, Launcher, StartedTarget, TargetSpec};
use super::linux::Linux;
use super::load_device::{Driven, LoadDevice, Spread, connect, spread};
use super::software::Software;
use crate::results::Connection;

/// A target that this study has started.
struct RunningTarget {
    spec: TargetSpec,
    target: Box<dyn StartedTarget>,
    /// None without a control interface.
    client: Option<Client>,
    /// How hosts connect to its subsystems.
    options: Vec<Options>,
}

/// Started targets, given targets and the local device.
pub(super) struct TargetSet<'a> {
    launcher: Option<&'a dyn Launcher>,
    /// The agents that drive the loads, if this process does not.
    fleet: Option<&'a Fleet>,
    given: Vec<(GivenTarget, Option<Client>)>,
    rdma: Provider,
    /// The kernel of this machine.
    linux: Option<Arc<Linux>>,
    running: Vec<RunningTarget>,
    local: Option<(DeviceSpec, Arc<dyn DeviceFactory>)>,
    network: Option<Responder>,
}

impl<'a> TargetSet<'a> {
    /// Starts nothing yet; opens the control connections of given targets.
    pub(super) fn new(
        launcher: Option<&'a dyn Launcher>,
        fleet: Option<&'a Fleet>,
        given: &[GivenTarget],
        rdma: Provider,
        linux: Option<Arc<Linux>>,
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
            fleet,
            given: connected,
            rdma,
            linux,
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
        let mut wanted: Vec<Option<RunningTarget>> = Vec::new();
        for spec in specs {
            let same = |running: &mut RunningTarget| {
                running.spec == *spec && running.target.ended().is_none()
            };
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

    fn launch(&self, spec: &TargetSpec, stop: &AtomicBool) -> Result<RunningTarget, String> {
        let launcher = self.launcher.ok_or("this run cannot start targets")?;
        let target = launcher.launch(spec, None)?;
        let mut client = target.has_control().then(|| target.control()).transpose()?;
        let others = target.addresses().into_iter().skip(1).map(Options::new);
        let mut options: Vec<Options> = std::iter::once(target.options()).chain(others).collect();
        if let Some(client) = &mut client {
            for _ in 1..spec.subsystems {
                let address = add_subsystem(client, target.address(), &spec.devices)?;
                options.push(Options::new(address));
            }
        }
        // Others fill their memory themselves.
        let is_filled = spec.software != Software::Weft;
        for options in &options {
            for (nsid, device) in (1..).zip(&spec.devices) {
                if matches!(device, DeviceSpec::Memory { .. }) && !is_filled {
                    let device = match target.is_elsewhere() {
                        true => inside(&*target, &options.address, nsid, device)?,
                        false => connect(options.clone(), Some(nsid), &Job::default(), &self.rdma)?,
                    };
                    fill(&device, stop)?;
                    device.close()?;
                }
            }
        }
        Ok(RunningTarget { spec: spec.clone(), target, client, options })
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
                match self.fleet {
                    Some(fleet) => {
                        let addresses = running.options.iter().map(|one| one.address.clone());
                        let addresses: Vec<_> = addresses.collect();
                        fleet.open(&addresses, &running.spec.link, *nsid, load)
                    }
                    None => {
                        let mut device = self.spread(&running.options, Some(*nsid), load)?;
                        if let Some(connection) = &mut device.connection {
                            connection.link.clone_from(&running.spec.link);
                        }
                        Ok(device)
                    }
                }
            }
            Place::Given { target, beside } => {
                let (given, _) = self.given.get(*target).ok_or("no target was given")?;
                let other = beside.then_some(2);
                let options = &given.options;
                let nsid = other.or(options.address.nsid);
                self.spread(std::slice::from_ref(options), nsid, load)
            }
        }
    }

    fn spread(
        &self,
        options: &[Options],
        nsid: Option<u32>,
        load: &Load,
    ) -> Result<LoadDevice, String> {
        let (hosts, subsystems, job) = (load.hosts, load.subsystems, &load.job);
        let (host, linux) = (&load.host, self.linux.as_ref());
        let how = Spread { hosts, subsystems, job, renamed: false, from: None, host, linux };
        spread(options, nsid, &how, &self.rdma)
    }

    /// A device by itself: of this machine, or of the target's inside a target that holds it.
    pub(super) fn device(
        &mut self,
        spec: &DeviceSpec,
        driver: DriverKind,
        stop: &AtomicBool,
    ) -> Result<LoadDevice, String> {
        if self.fleet.is_none() {
            let factory = spec.build().map_err(|error| error.to_string())?;
            return Ok(LoadDevice::local(Driven::Here(factory), spec.to_string()));
        }
        self.arrange(&[TargetSpec::holding(spec.clone(), driver)], stop)?;
        self.inside(0, 1)
    }

    fn inside(&self, target: usize, nsid: u32) -> Result<LoadDevice, String> {
        let running = self.running.get(target).ok_or("the target does not run any more")?;
        let device = running.spec.devices.first().ok_or("the target has no device")?;
        inside(&*running.target, running.target.address(), nsid, device)
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
            self.network = Some(Responder::start(end)?);
        }
        let answering = self.network.as_ref().ok_or("the network has no end")?;
        let whole = load.job.block_bytes.is_multiple_of(BLOCK_BYTES_DEFAULT);
        let block_bytes = if whole { BLOCK_BYTES_DEFAULT } else { 512 };
        let factory = Arc::new(answering.device(DEVICE_BYTES, block_bytes));
        let name = factory.identity();
        let connection = Some(Connection::over_loopback("tcp"));
        let mut device = LoadDevice::local(Driven::Here(factory), name);
        device.connection = connection;
        Ok(device)
    }

    /// Which target a load uses, in the order of [`TargetSet::statistics`].
    pub(super) fn target_of(&self, place: &Place) -> Option<usize> {
        match place {
            Place::Local(_) | Place::Inside { .. } | Place::Network(_) => None,
            Place::Own { target, .. } | Place::Given { target, .. } => Some(*target),
        }
    }

    /// The statistics of every target of a step: of one that is not weft those of its machine, and
    /// none for a given target without a control connection.
    pub(super) fn statistics(&mut self, own: bool) -> Result<Vec<Option<Statistics>>, String> {
        let read = |client: &mut Client| {
            let statistics = client.call::<GetStatistics>(&());
            statistics.map(Some).map_err(|error| format!("the target's statistics: {error}"))
        };
        if !own {
            let clients = self.given.iter_mut().map(|(_, client)| client.as_mut());
            return clients.map(|client| client.map_or(Ok(None), read)).collect();
        }
        let of = |running: &mut RunningTarget| match &mut running.client {
            Some(client) => read(client),
            None => Ok(running.target.machine()?.map(|(time, machine)| Statistics {
                time_ns: weft_load::units::ns(time),
                machine,
                ..Statistics::default()
            })),
        };
        self.running.iter_mut().map(of).collect()
    }

    /// Stops everything that was started.
    pub(super) fn end(&mut self) -> Result<(), String> {
        self.network = None;
        self.running.drain(..).try_for_each(|running| running.target.stop())
    }
}

/// The device of a namespace, driven in the process of its target.
fn inside(
    target: &dyn StartedTarget,
    address: &TransportId,
    nsid: u32,
    device: &DeviceSpec,
) -> Result<LoadDevice, String> {
    let nqn = address.subnqn.as_ref().map(ToString::to_string).unwrap_or_default();
    let client = Arc::new(Mutex::new(target.control()?));
    Ok(LoadDevice::local(Driven::Inside(Inside { client, nqn, nsid }), device.to_string()))
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
        size: Some(weft_load::Extent::Percent(100)),
        ..Job::default()
    };
    let result = device.run(&job, stop, &mut Windows(&mut |_| {}))?;
    match result.total().error {
        Some(error) => Err(format!("the device cannot be filled: {error}")),
        None => Ok(()),
    }
}
