//! What is served at a time: immutable, replaced as a whole, the same for all groups.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use weft_backend::{DeviceFactory, OwnFile};
use weft_nvme::log_page::CriticalWarning;
use weft_nvme::{Nqn, Status};
use weft_nvmf::connect::ConnectError;
use weft_nvmf::registration::Registrations;
use weft_nvmf::subsystem::{NamespaceView, SubsystemKind, SubsystemShared, SubsystemView};
use weft_reactor::Reactor;
use weft_transport::CloseReason;
use weft_transport::target::TargetConnection;
use weft_transport::tls::{TlsAcceptor, TlsMode, TlsRecords};

use crate::config::{Limits, Listen, Port, PortSubsystems, QosRule, Referral};
use crate::shared::generated::GeneratedKeys;
use crate::shared::ids::{ConnectionId, DeviceId};
use crate::shared::message::Endpoints;
use crate::shared::rate_limits::RateLimits;

/// Descriptors that are kept for devices, reactors and the like, beside one for each connection.
const DESCRIPTORS_RESERVED: u64 = 64;

/// One state of the whole target.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    /// Goes up by one with each snapshot.
    pub(crate) version: u64,
    pub(crate) ports: Vec<PortView>,
    /// By NQN.
    pub(crate) subsystems: BTreeMap<String, Arc<SubsystemView>>,
    pub(crate) discovery: Arc<SubsystemView>,
    /// By subsystem.
    pub(crate) devices: Devices,
    pub(crate) transport: weft_transport::target::Limits,
    pub(crate) limits: Limits,
    pub(crate) rate_limits: Arc<RateLimits>,
    pub(crate) reservation_files: ReservationFiles,
    pub(crate) idle_poll: Duration,
    pub(crate) express: bool,
    pub(crate) qos_rules: Arc<Vec<QosRule>>,
    /// For ports with TLS, if there are any.
    pub(crate) tls: Option<TlsAcceptor>,
    /// Keys of TLS that authentications have made: the same ones in every snapshot.
    pub(crate) generated: Arc<GeneratedKeys>,
    /// Connections of all groups at a time.
    pub(crate) connections_max: usize,
    /// What is other than in the snapshot before, if that is only a part. `None`: perhaps all.
    pub(crate) changes: Option<Changes>,
}

/// What a change of a part concerns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// The version of the snapshot before.
    pub(crate) after: u64,
    /// Subsystems that have other views.
    pub(crate) subsystems: Vec<String>,
    /// Devices that no namespace uses any more.
    pub(crate) removed: Vec<DeviceId>,
}

impl Changes {
    /// Whether no group has to know of it.
    pub(crate) const fn is_empty(&self) -> bool {
        self.subsystems.is_empty() && self.removed.is_empty()
    }
}

/// Where reservations are kept, by NSID, for each subsystem that has such a namespace.
pub(crate) type ReservationFiles = BTreeMap<String, Arc<BTreeMap<u32, Arc<OwnFile>>>>;

/// The devices of each subsystem, which stay the same list until one of them changes.
pub(crate) type Devices = BTreeMap<String, Arc<[Arc<ServedDevice>]>>;

/// A device that namespaces may refer to.
///
/// Its index in the groups' tables is used again once this has been dropped everywhere.
#[derive(Debug)]
pub(crate) struct ServedDevice {
    pub(crate) id: DeviceId,
    pub(crate) factory: Arc<dyn DeviceFactory>,
    /// Its index in the groups' counters.
    pub(crate) subsystem: Arc<SubsystemShared>,
}

/// What a change may concern; the rest stays as it is and is not looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Everything; the sizes of files and devices are read again.
    All,
    /// A part.
    Only(PartialScope),
}

/// A part of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PartialScope {
    /// Subsystems, by NQN.
    pub(crate) subsystems: Vec<String>,
    /// The one namespace of the one subsystem that is concerned.
    pub(crate) namespace: Option<u32>,
    /// A block device with a name.
    pub(crate) bdev: Option<String>,
    /// Whether its size is read again.
    pub(crate) refresh: bool,
}

impl Scope {
    pub(crate) fn contains(&self, nqn: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(part) => part.subsystems.iter().any(|one| one == nqn),
        }
    }
}

/// What a change needs before it can be carried out.
#[derive(Debug)]
pub(crate) struct Requirements {
    /// Devices that are new.
    pub(crate) devices: Vec<Arc<ServedDevice>>,
    /// All ports; `None`: they are as before.
    pub(crate) ports: Option<Vec<PortView>>,
}

/// A namespace as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceState {
    /// The subsystem's name.
    pub subsystem: String,
    /// The namespace.
    pub nsid: u32,
    /// Its size.
    pub bytes: u64,
    /// Whether its data may be lost: writes were, or its file is not where it was opened.
    pub is_degraded: bool,
}

/// One port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PortView {
    pub(crate) id: u16,
    pub(crate) listen: Listen,
    pub(crate) advertise: Option<SocketAddr>,
    pub(crate) tls: TlsMode,
    pub(crate) tls_records: TlsRecords,
    pub(crate) discovery: bool,
    pub(crate) served: PortSubsystems,
    pub(crate) referrals: Vec<Referral>,
}

impl From<&Port> for PortView {
    fn from(port: &Port) -> Self {
        Self {
            id: port.id,
            listen: port.listen,
            advertise: port.advertise,
            tls: port.tls,
            tls_records: port.tls_records,
            discovery: port.discovery,
            served: port.subsystems.clone(),
            referrals: port.referrals.clone(),
        }
    }
}

impl PortView {
    /// Whether a connection may be one of this port: its number may be that of another address by
    /// now, and it may have to have TLS.
    fn has(&self, at: &Endpoints) -> bool {
        let (own, local) = (self.listen.address, at.local);
        let ip = own.ip().to_canonical();
        let is_there = (ip.is_unspecified() || ip == local.ip().to_canonical())
            && (own.port() == 0 || own.port() == local.port());
        self.id == at.port_id && is_there && (at.has_tls || self.tls != TlsMode::Required)
    }
}

impl Snapshot {
    /// What a host sees of the subsystem of this name, if that is served at a port.
    pub(crate) fn view(&self, nqn: &Nqn, at: &Endpoints, host: &Nqn) -> Option<Arc<SubsystemView>> {
        self.view_by_name(nqn.as_str(), at).map(|view| view.of_host(host))
    }

    /// The subsystem of a host's Connect at a port. A port that has been taken away may come back,
    /// so a host that was on its way to it may try again: hosts take Do Not Retry for the end.
    pub(crate) fn connected(
        &self,
        nqn: &Nqn,
        at: &Endpoints,
        host: &Nqn,
    ) -> Result<Arc<SubsystemView>, ConnectError> {
        let is_there = self.ports.iter().any(|port| port.id == at.port_id);
        self.view(nqn, at, host).ok_or(match is_there {
            true => ConnectError::unknown_subsystem(),
            false => ConnectError::status(Status::CONNECT_CONTROLLER_BUSY),
        })
    }

    /// Whether a host may use the subsystem of this name at a port.
    pub(crate) fn allows(&self, nqn: &Nqn, at: &Endpoints, host: &Nqn) -> bool {
        self.view_by_name(nqn.as_str(), at).is_some_and(|view| view.allows(host))
    }

    fn view_by_name(&self, nqn: &str, at: &Endpoints) -> Option<&Arc<SubsystemView>> {
        let port = self.ports.iter().find(|port| port.has(at))?;
        if nqn == self.discovery.nqn.as_str() {
            return port.discovery.then_some(&self.discovery);
        }
        let view = self.subsystems.get(nqn)?;
        port.served.contains(nqn).then_some(view)
    }

    /// Where the reservations of a namespace are kept, if they may persist.
    pub(crate) fn reservation_file(&self, subsystem: &Nqn, nsid: u32) -> Option<Arc<OwnFile>> {
        self.reservation_files.get(subsystem.as_str())?.get(&nsid).cloned()
    }

    /// Whether hosts come to this port with TLS.
    pub(crate) fn tls_mode(&self, port_id: u16) -> TlsMode {
        let port = self.ports.iter().find(|port| port.id == port_id);
        port.map_or(TlsMode::Off, |port| port.tls)
    }

    /// Uses TLS for a new connection of this port, if the port has it.
    pub(crate) fn secure(
        &self,
        reactor: &mut Reactor,
        connection: &mut TargetConnection,
        port_id: u16,
    ) {
        let port = self.ports.iter().find(|port| port.id == port_id);
        if let (Some(acceptor), Some(port)) = (&self.tls, port)
            && let Err(fault) = connection.secure(acceptor, port.tls, port.tls_records)
        {
            connection.abort(reactor, CloseReason::Tls(fault));
        }
    }

    /// Whether a queue of this subsystem that came to this port has another view than in `old`.
    pub(crate) fn differs(&self, old: &Self, nqn: &str, at: &Endpoints) -> bool {
        match (old.view_by_name(nqn, at), self.view_by_name(nqn, at)) {
            (Some(old), Some(new)) => !Arc::ptr_eq(old, new),
            _ => true,
        }
    }

    /// Keeps the write protection and the warnings of each namespace that is the same one as in
    /// `old`, and the views of `old` that are not in a scope.
    pub(crate) fn keep_write_protect(&mut self, old: &Self, scope: &Scope) {
        for (nqn, view) in &mut self.subsystems {
            let Some(old) = old.subsystems.get(nqn) else { continue };
            if !scope.contains(nqn) {
                *view = Arc::clone(old);
                continue;
            }
            for namespace in Arc::make_mut(view).namespaces.iter_mut() {
                let before = old.namespaces.get(namespace.nsid);
                namespace.write_protected =
                    before.is_some_and(|old| old.uuid == namespace.uuid && old.write_protected);
                let same = before.filter(|old| old.device == namespace.device);
                namespace.lost_writes |= same.is_some_and(|old| old.lost_writes);
                namespace.detached = same.is_some_and(|old| old.detached);
            }
        }
    }

    /// Whether a device has lost writes since this was made.
    pub(crate) fn misses_lost_writes(&self) -> bool {
        let mut all = self.subsystems.values().flat_map(|view| view.namespaces.iter());
        all.any(|namespace| !namespace.lost_writes && self.has_lost_writes(namespace.device))
    }

    /// A copy that is to be changed.
    fn next(&self) -> Self {
        Self { version: self.version + 1, changes: None, ..self.clone() }
    }

    /// The same, with the namespaces marked whose devices have lost writes.
    pub(crate) fn with_lost_writes(&self, now: Duration) -> Self {
        self.with_warnings(now, |namespace| {
            namespace.lost_writes = self.has_lost_writes(namespace.device);
        })
    }

    /// What is said of the devices whose files are not where they were opened.
    fn detached(&self) -> BTreeMap<u32, String> {
        let devices = self.devices();
        devices.filter_map(|served| Some((served.id.0, served.factory.detached()?))).collect()
    }

    /// Each namespace, by subsystem and NSID.
    pub(crate) fn namespace_states(&self) -> Vec<NamespaceState> {
        let detached = self.detached();
        let state = |subsystem: &str, namespace: &NamespaceView| NamespaceState {
            subsystem: subsystem.to_owned(),
            nsid: namespace.nsid,
            bytes: namespace.blocks.saturating_mul(namespace.block_bytes.into()),
            is_degraded: namespace.lost_writes || detached.contains_key(&namespace.device),
        };
        let of = |(nqn, view): (&String, &Arc<SubsystemView>)| -> Vec<_> {
            view.namespaces.iter().map(|namespace| state(nqn, namespace)).collect()
        };
        self.subsystems.iter().flat_map(of).collect()
    }

    /// The same as [`Self::detached`], with a line in the log for each file that has gone or is
    /// back. None: it is what was said before.
    pub(crate) fn newly_detached(&self) -> Option<BTreeMap<u32, String>> {
        let (found, mut is_news) = (self.detached(), false);
        for namespace in self.subsystems.values().flat_map(|view| view.namespaces.iter()) {
            match (namespace.detached, found.get(&namespace.device)) {
                (false, Some(text)) => log::error!("{text}"),
                (true, None) => {
                    let file = self.factory(namespace.device).map(|one| one.identity());
                    log::info!("{}, which was moved away, is back", file.unwrap_or_default());
                }
                _ => continue,
            }
            is_news = true;
        }
        is_news.then_some(found)
    }

    /// The same, with the namespaces marked that have these devices, and no others.
    pub(crate) fn with_detached(&self, now: Duration, found: &BTreeMap<u32, String>) -> Self {
        self.with_warnings(now, |namespace| {
            namespace.detached = found.contains_key(&namespace.device);
        })
    }

    /// The same with other warnings. The first one of a subsystem is recorded: then there is a
    /// Critical Warning.
    fn with_warnings(&self, now: Duration, mark: impl Fn(&mut NamespaceView)) -> Self {
        let mut next = self.next();
        for view in next.subsystems.values_mut() {
            let is_degraded =
                |view: &SubsystemView| view.namespaces.iter().any(NamespaceView::is_degraded);
            let was_degraded = is_degraded(view);
            Arc::make_mut(view).namespaces.iter_mut().for_each(&mark);
            if is_degraded(view) && !was_degraded {
                let warning = CriticalWarning(0).with_degraded_reliability(true);
                view.shared.events().record_critical_warning(warning, now);
            }
        }
        next
    }

    fn has_lost_writes(&self, device: u32) -> bool {
        self.factory(device).is_some_and(|factory| factory.has_lost_writes())
    }

    /// All devices.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &Arc<ServedDevice>> {
        self.devices.values().flat_map(|own| own.iter())
    }

    /// The devices of namespaces that another snapshot does not have.
    pub(crate) fn devices_without(&self, other: &Self) -> Vec<Weak<ServedDevice>> {
        let mut left = Vec::new();
        for (nqn, own) in &self.devices {
            let after = other.devices.get(nqn);
            if after.is_some_and(|after| Arc::ptr_eq(own, after)) {
                continue;
            }
            let kept: BTreeSet<u32> =
                after.iter().flat_map(|after| after.iter()).map(|one| one.id.0).collect();
            let gone = own.iter().filter(|device| !kept.contains(&device.id.0));
            left.extend(gone.map(Arc::downgrade));
        }
        left
    }

    /// The device that namespaces have by this number.
    pub(crate) fn factory(&self, device: u32) -> Option<&Arc<dyn DeviceFactory>> {
        let device = self.devices().find(|served| served.id.0 == device);
        device.map(|served| &served.factory)
    }

    /// The same with what is registered with the discovery subsystem.
    pub(crate) fn with_registered(&self, registrations: &Registrations<ConnectionId>) -> Self {
        let mut next = self.next();
        let subsystems = vec![next.discovery.nqn.as_str().to_owned()];
        next.changes = Some(Changes { after: self.version, subsystems, removed: Vec::new() });
        next.show_registered(registrations);
        next
    }

    /// Shows what is registered.
    pub(crate) fn show_registered(&mut self, registrations: &Registrations<ConnectionId>) {
        let view = Arc::make_mut(&mut self.discovery);
        if let SubsystemKind::Discovery(shown) = &mut view.kind {
            *shown = Arc::new(shown.with_registered(registrations));
        }
    }

    /// The same, but for one namespace that may or may not be written.
    pub(crate) fn with_write_protect(&self, subsystem: &Nqn, nsid: u32, protect: bool) -> Self {
        let mut next = self.next();
        if let Some(view) = next.subsystems.get_mut(subsystem.as_str())
            && let Some(namespace) = Arc::make_mut(view).namespaces.get_mut(nsid)
        {
            namespace.write_protected = protect;
        }
        next
    }
}

/// The limits of new connections. Data in a capsule may be as large as the largest limit that any
/// controller was given: its own limit is enforced where the command is checked.
pub(crate) fn transport_limits(
    limits: &Limits,
    in_capsule_bytes: u32,
) -> weft_transport::target::Limits {
    let mut transport = weft_transport::target::Limits {
        handshake_timeout: limits.connect_timeout,
        ..weft_transport::target::Limits::default()
    };
    transport.tcp.in_capsule_bytes = in_capsule_bytes;
    transport.tcp.parameters.maximum_h2c_data = limits.h2c_data_bytes;
    transport
}

/// As many connections as are configured, or as there are descriptors for.
pub(crate) fn connections_max(limits: &Limits) -> usize {
    let descriptors = weft_reactor::descriptor_limit().saturating_sub(DESCRIPTORS_RESERVED);
    limits.connections.min(usize::try_from(descriptors).unwrap_or(usize::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_of_a_port_at_its_address_and_with_its_tls_only() {
        let port = |id, listen: &str, tls| {
            let port = Port::new(id, listen.parse().expect("an address"));
            PortView { tls, ..PortView::from(&port) }
        };
        let came = |local: &str, has_tls| {
            let local = local.parse().expect("an address");
            Endpoints { peer: local, local, port_id: 1, has_tls }
        };
        let clear = &came("192.0.2.1:4420", false);
        for (listen, expected) in [
            ("tcp://192.0.2.1:4420", true),
            ("tcp://0.0.0.0:4420", true),
            ("tcp://[::]:4420", true),
            ("tcp://192.0.2.1:0", true),
            ("tcp://192.0.2.1:4421", false),
            ("tcp://192.0.2.2:4420", false),
        ] {
            assert_eq!(port(1, listen, TlsMode::Off).has(clear), expected, "{listen}");
            assert!(!port(2, listen, TlsMode::Off).has(clear), "{listen}");
        }
        let secure = |tls| port(1, "tcp://192.0.2.1:4420", tls);
        assert!(secure(TlsMode::Allowed).has(clear) && !secure(TlsMode::Required).has(clear));
        assert!(secure(TlsMode::Required).has(&came("[::ffff:192.0.2.1]:4420", true)));
    }
}
