//! The device that a load drives, wherever it is driven.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use weft_backend::{DeviceFactory, DeviceSpec};
use weft_host::{Controller, Options, Provider, QUEUE_SIZE_MAX, TransportId};
use weft_load::{Job, RunObserver, RunResult, run_observed};

use super::agent::{Elsewhere, Part};
use super::alike::Alike;
use super::given::protocol_name;
use super::inside::Inside;
use super::linux::{self, Linux};
use super::software::{HostSettings, Software};
use super::spdk::perf::{self, Perf};
use crate::results::Connection;

/// The device of a load, with the controller that it belongs to.
pub(super) struct LoadDevice {
    driven: Driven,
    pub(super) name: String,
    pub(super) identity: String,
    pub(super) nsid: u32,
    /// The connection to its target, if it has one.
    pub(super) connection: Option<Connection>,
    controllers: Vec<Controller>,
    /// The kernel's connections, if it is the host.
    kernels: Vec<linux::KernelConnection>,
}

/// Where a load's device is driven.
pub(super) enum Driven {
    /// In this process.
    Here(Arc<dyn DeviceFactory>),
    /// In the target's.
    Inside(Inside),
    /// In those of agents.
    Elsewhere(Elsewhere),
    /// By a program of others.
    Perf(Perf),
}

/// How hosts are spread over a target's subsystems.
pub(super) struct Spread<'a> {
    pub(super) hosts: u32,
    pub(super) subsystems: u32,
    pub(super) job: &'a Job,
    /// Whether all of them have names of their own.
    pub(super) renamed: bool,
    /// The address that they connect from, if the kernel does not choose it.
    pub(super) from: Option<IpAddr>,
    pub(super) host: &'a HostSettings,
    /// The kernel of this machine.
    pub(super) linux: Option<&'a Arc<Linux>>,
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
            Driven::Elsewhere(elsewhere) => elsewhere.run(job, stop, observer),
            Driven::Perf(perf) => perf.run(job, stop, observer),
        }
    }

    /// What each machine did in the last run, if agents drive it.
    pub(super) fn parts(&self) -> Vec<Part> {
        match &self.driven {
            Driven::Here(_) | Driven::Inside(_) | Driven::Perf(_) => Vec::new(),
            Driven::Elsewhere(elsewhere) => elsewhere.parts(),
        }
    }

    /// The agents that drive it, if some do.
    pub(super) const fn driven_elsewhere(&self) -> Option<&Elsewhere> {
        match &self.driven {
            Driven::Elsewhere(elsewhere) => Some(elsewhere),
            Driven::Here(_) | Driven::Inside(_) | Driven::Perf(_) => None,
        }
    }

    /// One without a connection.
    pub(super) fn local(driven: Driven, name: String) -> Self {
        Self {
            driven,
            name,
            identity: String::new(),
            nsid: 0,
            connection: None,
            controllers: Vec::new(),
            kernels: Vec::new(),
        }
    }

    /// One that agents drive.
    pub(super) fn elsewhere(
        elsewhere: Elsewhere,
        name: String,
        identity: String,
        nsid: u32,
        connection: Option<Connection>,
    ) -> Self {
        let driven = Driven::Elsewhere(elsewhere);
        Self { name, identity, nsid, connection, ..Self::local(driven, String::new()) }
    }

    /// Closes the device.
    pub(super) fn close(self) -> Result<(), String> {
        if let Driven::Elsewhere(elsewhere) = self.driven {
            return elsewhere.close();
        }
        drop(self.driven);
        self.kernels.into_iter().try_for_each(linux::KernelConnection::close)?;
        let disconnect = |controller: Controller| controller.disconnect();
        self.controllers.into_iter().try_for_each(disconnect).map_err(|error| error.to_string())
    }
}

/// The device of a load that several hosts drive together, each at several subsystems.
pub(super) fn spread(
    targets: &[Options],
    nsid: Option<u32>,
    how: &Spread<'_>,
    rdma: &Provider,
) -> Result<LoadDevice, String> {
    match how.host.software {
        Software::Weft => {}
        Software::Linux => return by_kernel(targets, nsid, how),
        Software::Spdk => return by_perf(targets, nsid, how),
    }
    let connections = how.hosts.max(1) * how.subsystems.max(1);
    let copies = how.job.copies.div_ceil(connections);
    let job = Job { copies, ..how.job.clone() };
    let mut devices = Vec::new();
    for host in 0..how.hosts.max(1) {
        let whose = |options: &Options| match host {
            0 if !how.renamed => options.clone(),
            _ => options.clone().of_another_host(),
        };
        let mut options: Vec<Options> = targets.iter().map(whose).collect();
        options.iter_mut().for_each(|options| options.host_traddr = how.from);
        // A host has one name at all subsystems.
        for index in 1..options.len() {
            let (hostnqn, hostid) = (options[0].hostnqn, options[0].hostid);
            (options[index].hostnqn, options[index].hostid) = (hostnqn, hostid);
        }
        for options in options {
            devices.push(connect(applied(options, how.host), nsid, &job, rdma)?);
        }
    }
    let factories = devices.iter().filter_map(|device| match &device.driven {
        Driven::Here(factory) => Some(Arc::clone(factory)),
        Driven::Inside(_) | Driven::Elsewhere(_) | Driven::Perf(_) => None,
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

/// Connects to a namespace: the one given, else the first.
pub(super) fn connect(
    options: Options,
    nsid: Option<u32>,
    job: &Job,
    rdma: &Provider,
) -> Result<LoadDevice, String> {
    let address = options.address.clone();
    let mut options = Options { rdma: rdma.clone(), ..options };
    let copies = u16::try_from(job.copies).unwrap_or(u16::MAX);
    // A number that a cell asks for is enough, or it would not be measured.
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
    let connection = controller.ends().map(|ends| Connection {
        io_queues: controller.info().ok().map(|info| info.io_queues),
        tos: ends.marking.and_then(|has| has.tos).filter(|_| options.tos.is_some()),
        so_priority: options.so_priority.and_then(|_| ends.marking?.priority),
        ..Connection::new(protocol_name(ends.transport), ends.local, ends.remote)
    });
    let (driven, controllers) = (Driven::Here(factory), vec![controller]);
    let kernels = Vec::new();
    Ok(LoadDevice { driven, name, identity, nsid, connection, controllers, kernels })
}

/// The options of a host of this program with a cell's settings.
fn applied(mut options: Options, settings: &HostSettings) -> Options {
    options.nr_io_queues = settings.nr_io_queues.unwrap_or(options.nr_io_queues);
    options.queue_size = settings.queue_size.unwrap_or(options.queue_size);
    options.tos = settings.tos;
    options.so_priority = settings.so_priority;
    options.hdr_digest = settings.hdr_digest;
    options.data_digest = settings.data_digest;
    options
}

/// The namespaces that SPDK's perf tool drives. It connects when it runs.
fn by_perf(targets: &[Options], nsid: Option<u32>, how: &Spread<'_>) -> Result<LoadDevice, String> {
    let tools = how.linux.map(|linux| linux.spdk()).unwrap_or_default();
    let program = perf::find(&tools.perf)?;
    let address = &targets.first().ok_or("the target has no subsystem")?.address;
    let nsid = nsid.unwrap_or(1);
    let connection = linux::ends(address, "").map(|ends| match how.from {
        Some(from) => Connection { host: (from, 0).into(), ..ends },
        None => ends,
    });
    let name = TransportId { nsid: Some(nsid), ..address.clone() }.to_string();
    let driven = Perf {
        program,
        targets: targets.iter().map(|options| options.address.clone()).collect(),
        nsid,
        from: how.from,
        hdr_digest: how.host.hdr_digest,
        data_digest: how.host.data_digest,
    };
    let local = LoadDevice::local(Driven::Perf(driven), name);
    Ok(LoadDevice { nsid, connection, ..local })
}

/// The device of a load that the kernel's host drives: its block device, or those of several
/// subsystems.
fn by_kernel(
    targets: &[Options],
    nsid: Option<u32>,
    how: &Spread<'_>,
) -> Result<LoadDevice, String> {
    let linux = how.linux.ok_or("this process does not use the kernel's host")?;
    let mut kernels = Vec::new();
    let mut factories = Vec::new();
    for options in targets {
        let kernel = linux::connect(linux, &options.address, nsid, how)?;
        let read_only = !how.job.pattern.writes();
        let path = kernel.device.clone();
        let polled = how.host.hipri;
        let spec = DeviceSpec::Block { path, read_only, shared: false, polled };
        factories.push(spec.build().map_err(|error| error.to_string())?);
        kernels.push(kernel);
    }
    let first = kernels.first().ok_or("the target has no subsystem")?;
    let address = &targets.first().ok_or("the target has no subsystem")?.address;
    let name = TransportId { nsid: Some(first.nsid), ..address.clone() }.to_string();
    let (identity, nsid) = (first.identity.clone(), first.nsid);
    let connection = first.connection.clone();
    let factory: Arc<dyn DeviceFactory> = match &factories[..] {
        [one] => Arc::clone(one),
        _ => Arc::new(Alike::new(factories)),
    };
    let local = LoadDevice::local(Driven::Here(factory), name);
    Ok(LoadDevice { identity, nsid, connection, kernels, ..local })
}
