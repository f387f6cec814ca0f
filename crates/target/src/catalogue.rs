//! From a configuration to a snapshot, and from one snapshot to the next when the configuration
//! changes.
//!
//! The catalogue remembers which namespace stands on which device, so that a namespace which is
//! still configured keeps its device, its contents and its identity.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weft_backend::{DeviceFactory, DeviceSpec, Geometry};
use weft_nvme::Nqn;
use weft_nvme::log_page::TransportType;
use weft_nvmf::discovery::{DiscoveryEntry, DiscoveryView, EntryKind};
use weft_nvmf::subsystem::{
    ControllerModel, NamespaceCapabilities, NamespaceHints, NamespaceView, SubsystemKind,
    SubsystemLimits, SubsystemShared, SubsystemView,
};

use crate::TargetError;
use crate::config::{self, Config, Limits, Subsystem, Transport, identity};
use crate::snapshot::{PortView, Snapshot};

/// Descriptors that are kept for devices, reactors and the like, beside one for each connection.
const DESCRIPTORS_RESERVED: u64 = 64;

/// What is served, by the configuration that asked for it.
#[derive(Debug)]
pub(crate) struct Catalogue {
    entries: Vec<Entry>,
    /// Devices that the target's owner has made: who is configured to have one of these specs has
    /// that device.
    given: Vec<(DeviceSpec, Arc<dyn DeviceFactory>)>,
    /// Device indices that have been given out.
    devices: u32,
    shared: BTreeMap<String, Arc<SubsystemShared>>,
    discovery_shared: Arc<SubsystemShared>,
    /// Generation counter of the discovery log, and what it counted last.
    generation: u64,
    shown: Vec<DiscoveryEntry>,
}

/// A namespace and its device.
#[derive(Debug, Clone)]
struct Entry {
    subsystem: String,
    nsid: u32,
    spec: DeviceSpec,
    index: u32,
    factory: Arc<dyn DeviceFactory>,
    identity: identity::Identity,
}

impl Catalogue {
    pub(crate) fn new() -> Self {
        Self::with_devices(Vec::new())
    }

    pub(crate) fn with_devices(given: Vec<(DeviceSpec, Arc<dyn DeviceFactory>)>) -> Self {
        Self {
            entries: Vec::new(),
            given,
            devices: 0,
            shared: BTreeMap::new(),
            discovery_shared: SubsystemShared::new(),
            generation: 0,
            shown: Vec::new(),
        }
    }

    /// The snapshot that serves this configuration, with nothing protected by hosts. If it fails,
    /// nothing has changed.
    pub(crate) fn snapshot(
        &mut self,
        config: &Config,
        addresses: &BTreeMap<u16, SocketAddr>,
    ) -> Result<Snapshot, TargetError> {
        check_names(config)?;
        let mut entries = Vec::new();
        let mut resizes = Vec::new();
        for subsystem in &config.subsystems {
            self.open_namespaces(subsystem, &mut entries, &mut resizes)?;
        }
        resize(resizes)?;
        let mut devices = vec![None; self.devices as usize];
        for entry in &entries {
            if let Some(place) = devices.get_mut(entry.index as usize) {
                *place = Some(Arc::clone(&entry.factory));
            }
        }
        self.entries = entries;
        let mut subsystems = BTreeMap::new();
        for subsystem in &config.subsystems {
            let view = self.view(subsystem, &config.limits)?;
            subsystems.insert(subsystem.nqn.clone(), Arc::new(view));
        }
        self.shared.retain(|nqn, _| subsystems.contains_key(nqn));
        let ports = config.ports.iter().map(port_view).collect::<Vec<_>>();
        let discovery = self.discovery(&ports, &subsystems, addresses, &config.limits)?;
        Ok(Snapshot {
            version: 1,
            ports,
            subsystems,
            discovery: Arc::new(discovery),
            devices,
            transport: transport_limits(&config.limits),
            limits: config.limits.clone(),
            idle_poll: config.idle_poll,
            connections_max: connections_max(&config.limits),
        })
    }

    /// Lets what has been written reach every device.
    pub(crate) fn sync(&self) -> Vec<String> {
        let outcome = |entry: &Entry| {
            let error = entry.factory.sync().err()?;
            Some(format!("{} could not be synced: {error}", entry.factory.identity()))
        };
        self.entries.iter().filter_map(outcome).collect()
    }

    /// Finds or opens the device of each namespace, and gives the namespaces their identities.
    fn open_namespaces(
        &mut self,
        subsystem: &Subsystem,
        entries: &mut Vec<Entry>,
        resizes: &mut Vec<Resize>,
    ) -> Result<(), TargetError> {
        let mut opened = Vec::new();
        for namespace in &subsystem.namespaces {
            let known = self.entries.iter().find(|entry| {
                entry.subsystem == subsystem.nqn
                    && entry.nsid == namespace.nsid
                    && same_device(&entry.spec, &namespace.device)
            });
            let device = match known {
                Some(entry) => {
                    resizes.extend(Resize::wanted(entry, &namespace.device)?);
                    (entry.index, Arc::clone(&entry.factory), Some(entry.identity))
                }
                None => {
                    let given = self.given.iter().find(|(spec, _)| *spec == namespace.device);
                    let factory = match given {
                        Some((_, factory)) => Arc::clone(factory),
                        None => namespace.device.build().map_err(|error| {
                            TargetError::device(&subsystem.nqn, namespace.nsid, &error)
                        })?,
                    };
                    self.devices += 1;
                    (self.devices - 1, factory, None)
                }
            };
            opened.push(device);
        }
        check_aliases(subsystem, opened.iter().map(|(_, factory, _)| factory))?;
        let named: Vec<_> = opened
            .iter()
            .map(|(_, factory, _)| identity::Device {
                identity: factory.identity(),
                survives_restart: factory.survives_restart(),
            })
            .collect();
        let fresh = identity::namespaces(subsystem, &named);
        for ((namespace, (index, factory, known)), fresh) in
            subsystem.namespaces.iter().zip(opened).zip(fresh)
        {
            // A memory device's identity was drawn by lot: as long as it lives it keeps it.
            let keeps = known.filter(|_| namespace.uuid.is_none() && namespace.nguid.is_none());
            entries.push(Entry {
                subsystem: subsystem.nqn.clone(),
                nsid: namespace.nsid,
                spec: namespace.device.clone(),
                index,
                factory,
                identity: keeps.unwrap_or(fresh),
            });
        }
        Ok(())
    }

    fn view(
        &mut self,
        subsystem: &Subsystem,
        limits: &Limits,
    ) -> Result<SubsystemView, TargetError> {
        let mut namespaces = BTreeMap::new();
        for namespace in &subsystem.namespaces {
            let mine =
                |entry: &&Entry| entry.subsystem == subsystem.nqn && entry.nsid == namespace.nsid;
            let Some(entry) = self.entries.iter().find(mine) else { continue };
            let mut view = namespace_view(entry);
            view.capabilities.read_only |= namespace.read_only;
            namespaces.insert(namespace.nsid, view);
        }
        let shared = self.shared.entry(subsystem.nqn.clone()).or_default();
        Ok(SubsystemView {
            nqn: nqn(&subsystem.nqn)?,
            kind: SubsystemKind::Nvm,
            serial: subsystem.serial(),
            model: subsystem.model.clone(),
            firmware: subsystem.firmware.clone(),
            namespaces,
            allowed_hosts: subsystem
                .allowed_hosts
                .as_ref()
                .map(|hosts| hosts.iter().map(|host| nqn(host)).collect())
                .transpose()?
                .map(Arc::new),
            controller_model: match subsystem.controller_ids.model {
                config::ControllerModel::Dynamic => ControllerModel::Dynamic,
                config::ControllerModel::Static => ControllerModel::Static,
            },
            limits: SubsystemLimits {
                controller_ids: (subsystem.controller_ids.first, subsystem.controller_ids.last),
                ..subsystem_limits(limits)
            },
            shared: Arc::clone(shared),
        })
    }

    fn discovery(
        &mut self,
        ports: &[PortView],
        subsystems: &BTreeMap<String, Arc<SubsystemView>>,
        addresses: &BTreeMap<u16, SocketAddr>,
        limits: &Limits,
    ) -> Result<SubsystemView, TargetError> {
        let name = Nqn::DISCOVERY;
        let mut entries = Vec::new();
        // Whoever can reach a loopback is in this process, and knows.
        let shown = |port: &&PortView| port.listen.transport != Transport::Loopback;
        for port in ports.iter().filter(shown) {
            let address =
                port.advertise.or(addresses.get(&port.id).copied()).unwrap_or(port.listen.address);
            let entry = |kind, subsystem| DiscoveryEntry {
                port_id: port.id,
                transport: transport_type(port.listen.transport),
                ..DiscoveryEntry::tcp(kind, subsystem, address.ip(), address.port())
            };
            if port.discovery {
                entries.push(entry(EntryKind::Current, name));
            }
            for view in subsystems.values() {
                if port.served.contains(view.nqn.as_str()) {
                    let mut entry = entry(EntryKind::Nvm, view.nqn);
                    entry.allowed_hosts.clone_from(&view.allowed_hosts);
                    if view.controller_model == ControllerModel::Static {
                        entry.controller_id = weft_nvme::fabrics::CONTROLLER_ID_STATIC;
                    }
                    entries.push(entry);
                }
            }
            for referral in &port.referrals {
                let at = referral.address.address;
                entries.push(DiscoveryEntry {
                    port_id: referral.port_id,
                    transport: transport_type(referral.address.transport),
                    ..DiscoveryEntry::tcp(EntryKind::Referral, name, at.ip(), at.port())
                });
            }
        }
        if self.generation == 0 || entries != self.shown {
            self.generation += 1;
            self.shown.clone_from(&entries);
        }
        let view = DiscoveryView { generation: self.generation, entries };
        Ok(SubsystemView {
            nqn: name,
            kind: SubsystemKind::Discovery(Arc::new(view)),
            serial: identity::serial(name.as_str()),
            model: "weft".to_owned(),
            firmware: env!("CARGO_PKG_VERSION").to_owned(),
            namespaces: BTreeMap::new(),
            allowed_hosts: None,
            controller_model: ControllerModel::Dynamic,
            limits: subsystem_limits(limits),
            shared: Arc::clone(&self.discovery_shared),
        })
    }
}

/// Two namespaces of a subsystem must not stand on one file or device, whatever paths lead there.
fn check_aliases<'a>(
    subsystem: &Subsystem,
    factories: impl Iterator<Item = &'a Arc<dyn DeviceFactory>>,
) -> Result<(), TargetError> {
    let mut seen = BTreeMap::new();
    for (namespace, factory) in subsystem.namespaces.iter().zip(factories) {
        if namespace.device.path().is_none() {
            continue;
        }
        if let Some(first) = seen.insert(factory.identity(), namespace.nsid) {
            let what = format!("{} is what namespace {first} stands on", factory.identity());
            return Err(TargetError::namespace(&subsystem.nqn, namespace.nsid, &what));
        }
    }
    Ok(())
}

fn transport_type(transport: Transport) -> TransportType {
    match transport {
        Transport::Tcp => TransportType::TCP,
        Transport::Rdma => TransportType::RDMA,
        Transport::Loopback => TransportType::INTRA_HOST,
    }
}

/// Whether a namespace that was configured as `old` still stands on the same device when it is
/// configured as `new`: all but the size is the same.
fn same_device(old: &DeviceSpec, new: &DeviceSpec) -> bool {
    use DeviceSpec::{Delay, Fault, File, Memory, Null};
    match (old, new) {
        (Memory { block_bytes: a, .. }, Memory { block_bytes: b, .. })
        | (Null { block_bytes: a, .. }, Null { block_bytes: b, .. }) => a == b,
        (
            File { path: a, block_bytes: ab, direct: ad, read_only: ar, shared: ash, .. },
            File { path: b, block_bytes: bb, direct: bd, read_only: br, shared: bsh, .. },
        ) => (a, ab, ad, ar, ash) == (b, bb, bd, br, bsh),
        (Delay { read: a, write: aw, inner: ai }, Delay { read: b, write: bw, inner: bi }) => {
            (a, aw) == (b, bw) && same_device(ai, bi)
        }
        (Fault { rules: a, inner: ai }, Fault { rules: b, inner: bi }) => {
            a == b && same_device(ai, bi)
        }
        (old, new) => old == new,
    }
}

/// Names that are none are found before anything is done.
fn check_names(config: &Config) -> Result<(), TargetError> {
    for subsystem in &config.subsystems {
        nqn(&subsystem.nqn)?;
        for host in subsystem.allowed_hosts.iter().flatten() {
            nqn(host)?;
        }
    }
    Ok(())
}

/// A device that stays and is to have another size.
#[derive(Debug)]
struct Resize {
    entry: Entry,
    before: u64,
    bytes: u64,
}

impl Resize {
    /// Whether a device is configured to have another size; or else it finds out its size. A file
    /// grows, but is never cut: what is in it would be lost to a slip of the pen.
    fn wanted(entry: &Entry, new: &DeviceSpec) -> Result<Option<Self>, TargetError> {
        let told = |error: &dyn std::fmt::Display| {
            TargetError::namespace(&entry.subsystem, entry.nsid, &error.to_string())
        };
        let found = entry.factory.refresh().map_err(|error| told(&error))?;
        let changed = configured_bytes(new) != configured_bytes(&entry.spec);
        let Some(bytes) = configured_bytes(new).filter(|_| changed) else { return Ok(None) };
        if new.path().is_some() && bytes < found.bytes() {
            log::warn!(
                "{} is longer than its size says, and stays as it is",
                entry.factory.identity()
            );
            return Ok(None);
        }
        if bytes == 0 || !bytes.is_multiple_of(found.block_bytes.into()) {
            let (block_bytes, error) = (found.block_bytes, "no whole number of blocks of");
            return Err(told(&format_args!("{bytes} bytes are {error} {block_bytes} bytes")));
        }
        Ok(Some(Self { entry: entry.clone(), before: found.bytes(), bytes }))
    }

    fn grows(&self) -> bool {
        self.bytes > self.before
    }

    fn carry_out(&self, bytes: u64) -> Result<(), TargetError> {
        let entry = &self.entry;
        entry.factory.resize(bytes).map_err(|error| {
            TargetError::namespace(&entry.subsystem, entry.nsid, &error.to_string())
        })
    }
}

/// Carries out what is wanted once nothing else can fail. What grows comes first: it can be cut
/// again if another one cannot have its size, as nobody has been told of it. What was cut off is
/// gone.
fn resize(mut wanted: Vec<Resize>) -> Result<(), TargetError> {
    wanted.sort_by_key(|resize| !resize.grows());
    for (position, resize) in wanted.iter().enumerate() {
        let Err(error) = resize.carry_out(resize.bytes) else { continue };
        for done in wanted.iter().take(position).filter(|done| done.grows()) {
            if let Err(error) = done.carry_out(done.before) {
                log::warn!("{error}");
            }
        }
        return Err(error);
    }
    Ok(())
}

fn configured_bytes(spec: &DeviceSpec) -> Option<u64> {
    match spec {
        DeviceSpec::Memory { bytes, .. } | DeviceSpec::Null { bytes, .. } => Some(*bytes),
        DeviceSpec::File { create_bytes, .. } => *create_bytes,
        DeviceSpec::Block { .. } => None,
        DeviceSpec::Delay { inner, .. } | DeviceSpec::Fault { inner, .. } => {
            configured_bytes(inner)
        }
    }
}

fn namespace_view(entry: &Entry) -> NamespaceView {
    let Geometry {
        block_bytes,
        blocks,
        atomic_blocks,
        compare_and_write_blocks,
        preferred_blocks,
        optimal_blocks,
        discard_granularity_blocks,
        capabilities,
    } = entry.factory.geometry();
    NamespaceView {
        nsid: entry.nsid,
        block_bytes,
        blocks,
        uuid: entry.identity.uuid,
        nguid: entry.identity.nguid,
        eui64: entry.identity.eui64.unwrap_or_default(),
        capabilities: NamespaceCapabilities {
            read_only: capabilities.read_only,
            volatile_cache: capabilities.volatile_cache,
            deallocate: capabilities.discard,
            reads_zeroes: capabilities.discard_reads_zeroes,
            write_zeroes_deallocates: capabilities.write_zeroes && capabilities.discard,
            write_uncorrectable: capabilities.write_uncorrectable,
        },
        hints: NamespaceHints {
            atomic_blocks,
            atomic_power_fail_blocks: atomic_blocks,
            compare_and_write_blocks,
            preferred_write_blocks: preferred_blocks,
            optimal_write_blocks: optimal_blocks,
            deallocate_blocks: discard_granularity_blocks,
        },
        write_protected: false,
        lost_writes: entry.factory.has_lost_writes(),
        device: entry.index,
    }
}

fn port_view(port: &config::Port) -> PortView {
    PortView {
        id: port.id,
        listen: port.listen,
        advertise: port.advertise,
        discovery: port.discovery,
        served: port.subsystems.clone(),
        referrals: port.referrals.clone(),
    }
}

fn subsystem_limits(limits: &Limits) -> SubsystemLimits {
    SubsystemLimits {
        max_io_queues: limits.io_queues,
        max_queue_entries: limits.queue_entries,
        mdts_bytes: limits.transfer_bytes,
        in_capsule_bytes: limits.in_capsule_bytes,
        max_namespaces: limits.namespaces,
        max_controllers: limits.controllers,
        keep_alive_ms_min: whole_ms(limits.keep_alive_min),
        keep_alive_ms_max: whole_ms(limits.keep_alive_max),
        ..SubsystemLimits::default()
    }
}

fn whole_ms(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

fn transport_limits(limits: &Limits) -> weft_transport::target::Limits {
    let mut transport = weft_transport::target::Limits {
        handshake_timeout: limits.connect_timeout,
        ..weft_transport::target::Limits::default()
    };
    transport.tcp.in_capsule_bytes = limits.in_capsule_bytes;
    transport.tcp.parameters.maximum_h2c_data = limits.h2c_data_bytes;
    transport
}

/// As many connections as are configured, or as there are descriptors for.
fn connections_max(limits: &Limits) -> usize {
    let descriptors = weft_reactor::descriptor_limit().saturating_sub(DESCRIPTORS_RESERVED);
    limits.connections.min(usize::try_from(descriptors).unwrap_or(usize::MAX)).max(1)
}

fn nqn(name: &str) -> Result<Nqn, TargetError> {
    name.parse().map_err(|error| TargetError::name(name, &error))
}
