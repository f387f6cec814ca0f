//! An immutable view of one subsystem of a target, replaced as a whole.
//!
//! A controller and each of its I/O queues hold an `Arc<SubsystemView>`. A view never changes; the
//! owner of the configuration makes a new one and passes it to every controller
//! ([`crate::controller::Controller::replace_view`]) and every queue
//! ([`crate::queue::IoQueue::replace_view`]). Only [`SubsystemShared`], counters that outlast
//! controllers, is carried over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_nvme::fabrics::CONTROLLER_ID_MAX;
use weft_nvme::log_page::AsymmetricNamespaceAccessState;
use weft_nvme::{Nqn, Status};

use crate::ana::{AnaView, refusal};
use crate::auth::Policy;
pub use crate::counters::{DeviceTimes, IoCounters, TimedKind, Totals};
use crate::discovery::DiscoveryView;
pub use crate::namespaces::{NamespaceCapabilities, NamespaceHints, NamespaceView, Namespaces};
use crate::persistent::EventLog;
use crate::reservation::ReservationTable;
use crate::visibility::Visibility;

/// Memory Page Size Minimum in bytes: the unit of MDTS and its relatives. CAP.MPSMIN is 0.
pub const PAGE_BYTES: u32 = 4096;

/// The Keep Alive Timeout of a discovery controller whose host asked for none, as the
/// specification has it: two minutes.
const DISCOVERY_KEEP_ALIVE_TIMEOUT_MS: u32 = 120_000;

/// One subsystem, as its controllers and queues see it.
#[derive(Debug, Clone)]
pub struct SubsystemView {
    /// NVM Subsystem NVMe Qualified Name.
    pub nqn: Nqn,
    /// What kind of controllers it has.
    pub kind: SubsystemKind,
    /// Serial Number: the first 20 bytes are shown.
    pub serial: String,
    /// Model Number: the first 40 bytes are shown.
    pub model: String,
    /// Firmware Revision: the first 8 bytes are shown.
    pub firmware: String,
    /// The active namespaces.
    pub namespaces: Namespaces,
    /// How often an identifier has got another owner so far: no namespace has a newer one.
    pub owner_changes: u64,
    /// Which hosts see those that not every host sees.
    pub visibility: Visibility,
    /// What hosts may make of namespaces; `None`: nothing.
    pub host_namespaces: Option<Arc<HostNamespaces>>,
    /// The hosts that may connect; `None` allows every host.
    pub allowed_hosts: Option<Arc<BTreeSet<Nqn>>>,
    /// The access states of its groups; `None`: hosts are told of none.
    pub ana: Option<Arc<AnaView>>,
    /// What hosts have to prove before they may use a queue, by name; the others prove nothing.
    pub policies: Arc<BTreeMap<Nqn, Arc<Policy>>>,
    /// Who chooses a controller's identifier.
    pub controller_model: ControllerModel,
    /// The limits.
    pub limits: SubsystemLimits,
    /// What outlasts the view.
    pub shared: Arc<SubsystemShared>,
}

/// What hosts may make of the namespaces of a subsystem, by Namespace Management.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostNamespaces {
    /// Every namespace of the subsystem, whoever sees it.
    pub allocated: Namespaces,
    /// Those that hosts have made.
    pub made: BTreeSet<u32>,
    /// Bytes that these may have together.
    pub capacity_bytes: u64,
}

impl HostNamespaces {
    /// Bytes that are left for others.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        let made = self.made.iter().filter_map(|nsid| self.allocated.get(*nsid));
        let bytes = made.map(|one| one.blocks.saturating_mul(u64::from(one.block_bytes)));
        self.capacity_bytes.saturating_sub(bytes.fold(0, u64::saturating_add))
    }
}

/// What kind of controllers a subsystem has.
#[derive(Debug, Clone)]
pub enum SubsystemKind {
    /// I/O controllers.
    Nvm,
    /// Discovery controllers, with what they show.
    Discovery(Arc<DiscoveryView>),
}

/// Who chooses a controller's identifier when a host connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ControllerModel {
    /// The subsystem makes a controller for each association (CNTLID FFFFh).
    #[default]
    Dynamic,
    /// The host names a controller, or takes any (CNTLID FFFEh).
    Static,
}

/// The limits of a subsystem, each with a default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubsystemLimits {
    /// I/O queues of one controller.
    pub max_io_queues: u16,
    /// Entries of one queue (MQES and one); Linux asks for 128 unless told.
    pub max_queue_entries: u16,
    /// Most bytes that one command may move (MDTS), rounded down to a power of two of pages.
    pub mdts_bytes: u32,
    /// Most bytes that a command capsule of an I/O queue may carry.
    pub in_capsule_bytes: u32,
    /// Keep Alive Support (KAS): the timeout is rounded up to a multiple of this; a multiple of
    /// 100 ms itself.
    pub keep_alive_granularity_ms: u32,
    /// The shortest keep-alive timeout that is honoured; shorter ones are rounded up to it.
    pub keep_alive_ms_min: u32,
    /// The longest keep-alive timeout; longer ones are refused.
    pub keep_alive_ms_max: u32,
    /// Namespace identifiers: the largest one is this (NN).
    pub max_namespaces: u32,
    /// Controllers of the subsystem at one time.
    pub max_controllers: u16,
    /// First and last identifier that a controller may have.
    pub controller_ids: (u16, u16),
    /// Asynchronous Event Requests that may wait at one time (AERL and one).
    pub max_event_requests: u8,
    /// Abort commands that may be under way at one time (ACL and one).
    pub max_aborts: u8,
    /// Most bytes that one Write Zeroes may touch (WZSL), rounded as `mdts_bytes` is.
    pub write_zeroes_bytes: u32,
    /// Most bytes that one Verify may touch (VSL), rounded as `mdts_bytes` is.
    pub verify_bytes: u32,
    /// Most bytes that one Copy may move (MCL).
    pub copy_bytes: u32,
    /// How long a controller may exist without being enabled, after Connect or after a reset,
    /// before it is taken down. SPDK waits as long.
    pub association_timeout_ms: u32,
    /// Whether hosts may choose weighted round robin with the priority class Urgent (CAP.AMS).
    pub weighted_round_robin: bool,
    /// Whether hosts may reset the NVM subsystem (CAP.NSSRS).
    pub subsystem_reset: bool,
}

impl Default for SubsystemLimits {
    fn default() -> Self {
        Self {
            max_io_queues: 128,
            max_queue_entries: 1024,
            mdts_bytes: 1024 * 1024,
            in_capsule_bytes: 16 * 1024,
            keep_alive_granularity_ms: 100,
            keep_alive_ms_min: 0,
            keep_alive_ms_max: u32::MAX,
            max_namespaces: 1024,
            max_controllers: 4096,
            controller_ids: (1, CONTROLLER_ID_MAX),
            max_event_requests: 4,
            max_aborts: 4,
            // What Write Zeroes of 65536 blocks of 512 bytes, its longest, touches.
            write_zeroes_bytes: 32 * 1024 * 1024,
            verify_bytes: 32 * 1024 * 1024,
            copy_bytes: 32 * 1024 * 1024,
            association_timeout_ms: 120_000,
            weighted_round_robin: false,
            subsystem_reset: false,
        }
    }
}

impl SubsystemLimits {
    /// MDTS: the exponent of the largest power of two of pages within `mdts_bytes`. At least 1,
    /// since 0 means no limit.
    #[must_use]
    pub fn mdts(&self) -> u8 {
        page_exponent(self.mdts_bytes).max(1)
    }

    /// The bytes that [`Self::mdts`] stands for.
    #[must_use]
    pub fn transfer_bytes_max(&self) -> u32 {
        exponent_bytes(self.mdts())
    }

    /// The limits of Copy.
    pub(crate) const fn copy(&self) -> CopyLimits {
        CopyLimits { bytes: self.copy_bytes }
    }

    /// Keep Alive Support (KAS), in units of 100 ms.
    #[must_use]
    pub fn keep_alive_support_100ms(&self) -> u16 {
        u16::try_from(self.keep_alive_granularity_ms / 100).unwrap_or(u16::MAX).max(1)
    }
}

/// The limits of Copy, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyLimits {
    bytes: u32,
}

/// The same in blocks of a namespace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyBlocks {
    /// Maximum Single Source Range Length (MSSRL).
    pub(crate) range_blocks: u16,
    /// Maximum Copy Length (MCL).
    pub(crate) blocks: u32,
}

impl CopyLimits {
    pub(crate) fn of(self, block_bytes: u32) -> CopyBlocks {
        let blocks = (self.bytes / block_bytes.max(1)).max(1);
        CopyBlocks { range_blocks: u16::try_from(blocks).unwrap_or(u16::MAX), blocks }
    }
}

/// The exponent of the largest power of two of pages within `bytes`; 0 below two pages.
pub(crate) fn page_exponent(bytes: u32) -> u8 {
    let pages = (bytes / PAGE_BYTES).max(1);
    u8::try_from(pages.ilog2()).unwrap_or(0)
}

/// The bytes that an exponent of pages stands for.
pub(crate) fn exponent_bytes(exponent: u8) -> u32 {
    PAGE_BYTES.checked_shl(u32::from(exponent)).unwrap_or(u32::MAX)
}

impl SubsystemView {
    /// Whether `host` may connect.
    #[must_use]
    pub fn allows(&self, host: &Nqn) -> bool {
        self.allowed_hosts.as_ref().is_none_or(|allowed| allowed.contains(host))
    }

    /// The keep-alive timeout that a host gets which asks for this one; `None` if it is too long.
    /// Zero is none, which a discovery controller does not have: anybody may connect to it.
    #[must_use]
    pub fn keep_alive_timeout_ms(&self, asked_ms: u32) -> Option<u32> {
        if asked_ms == 0 {
            let most = DISCOVERY_KEEP_ALIVE_TIMEOUT_MS.min(self.limits.keep_alive_ms_max);
            return Some(self.discovery().map_or(0, |_| most));
        }
        let within = asked_ms <= self.limits.keep_alive_ms_max;
        within.then(|| asked_ms.max(self.limits.keep_alive_ms_min))
    }

    /// The access state of a group at a port.
    #[must_use]
    pub fn ana_state(&self, port_id: u16, group: u32) -> AsymmetricNamespaceAccessState {
        let optimized = AsymmetricNamespaceAccessState::OPTIMIZED;
        self.ana.as_ref().map_or(optimized, |ana| ana.state(port_id, group))
    }

    /// The status of commands to a namespace at a port, if its access state refuses them.
    #[must_use]
    pub fn ana_refusal(&self, port_id: u16, nsid: u32) -> Option<Status> {
        let group = self.namespaces.get(nsid)?.ana_group;
        refusal(self.ana_state(port_id, group))
    }

    /// What a discovery subsystem shows; `None` for one of I/O controllers.
    #[must_use]
    pub fn discovery(&self) -> Option<&Arc<DiscoveryView>> {
        match &self.kind {
            SubsystemKind::Nvm => None,
            SubsystemKind::Discovery(view) => Some(view),
        }
    }
}

/// What outlasts the views, controllers and queues of a subsystem: the counters of its SMART log,
/// and its reservations.
///
/// The lock of the counters is taken when a namespace comes and when a log page is read, never by a
/// command.
#[derive(Debug, Default)]
pub struct SubsystemShared {
    counted: Mutex<CounterList>,
    associations_lost: AtomicU64,
    reservations: ReservationTable,
    controllers: Mutex<Vec<Arc<ListedController>>>,
    events: Arc<EventLog>,
}

/// A controller of a subsystem, for the lists of controllers.
#[derive(Debug)]
struct ListedController {
    controller_id: u16,
    host: Nqn,
}

/// Keeps a controller listed as long as it exists.
#[derive(Debug)]
pub(crate) struct Listing {
    shared: Arc<SubsystemShared>,
    controller: Arc<ListedController>,
}

impl Drop for Listing {
    fn drop(&mut self) {
        let own = |listed: &Arc<ListedController>| Arc::ptr_eq(listed, &self.controller);
        self.shared.listed().retain(|listed| !own(listed));
    }
}

#[derive(Debug, Default)]
struct CounterList {
    counters: Vec<Arc<IoCounters>>,
    /// The sum of those that are gone.
    totals: Totals,
}

impl SubsystemShared {
    /// Nothing done yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The same with a log of its own, which may have events of earlier times.
    #[must_use]
    pub fn with_events(events: Arc<EventLog>) -> Arc<Self> {
        Arc::new(Self { events, ..Self::default() })
    }

    /// The Persistent Event Log.
    #[must_use]
    pub const fn events(&self) -> &Arc<EventLog> {
        &self.events
    }

    /// What was done on all namespaces, those that are gone included.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let counted = self.lock();
        counted.counters.iter().fold(counted.totals, |sum, one| sum.plus(one.totals()))
    }

    /// Counters of a namespace of this subsystem. When their user drops them, their sum stays.
    #[must_use]
    pub fn counters(&self) -> Arc<IoCounters> {
        let mut counted = self.lock();
        let CounterList { counters, totals } = &mut *counted;
        counters.retain_mut(|one| {
            let unused = Arc::get_mut(one).map(|one| one.totals());
            *totals = totals.plus(unused.unwrap_or_default());
            unused.is_none()
        });
        let fresh = Arc::default();
        counters.push(Arc::clone(&fresh));
        fresh
    }

    /// Lists a controller.
    pub(crate) fn list_controller(self: &Arc<Self>, controller_id: u16, host: Nqn) -> Listing {
        let controller = Arc::new(ListedController { controller_id, host });
        self.listed().push(Arc::clone(&controller));
        Listing { shared: Arc::clone(self), controller }
    }

    /// The identifiers of its controllers of these hosts, in ascending order.
    pub(crate) fn controllers(&self, is_wanted: impl Fn(&Nqn) -> bool) -> Vec<u16> {
        let listed = self.listed();
        let wanted = listed.iter().filter(|listed| is_wanted(&listed.host));
        let mut ids: Vec<u16> = wanted.map(|listed| listed.controller_id).collect();
        ids.sort_unstable();
        ids
    }

    /// The host of a controller.
    pub(crate) fn host(&self, controller_id: u16) -> Option<Nqn> {
        let listed = self.listed();
        let found = listed.iter().find(|listed| listed.controller_id == controller_id)?;
        Some(found.host)
    }

    fn listed(&self) -> MutexGuard<'_, Vec<Arc<ListedController>>> {
        self.controllers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reservations of its namespaces.
    #[must_use]
    pub const fn reservations(&self) -> &ReservationTable {
        &self.reservations
    }

    /// Associations that ended without a shutdown: what SMART calls unsafe shutdowns.
    #[must_use]
    pub fn associations_lost(&self) -> u64 {
        self.associations_lost.load(Ordering::Relaxed)
    }

    pub(crate) fn count_lost_association(&self) {
        self.associations_lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Nothing that is done under the lock can panic halfway.
    fn lock(&self) -> MutexGuard<'_, CounterList> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(crate) mod test_support {
    use super::*;

    pub(crate) const SUBSYSTEM: &str = "nqn.2024-01.io.weft:test";
    pub(crate) const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:host";

    pub(crate) fn nqn(text: &str) -> Nqn {
        text.parse().expect("a name")
    }

    /// 1024 blocks of 512 bytes with everything a device can have.
    pub(crate) fn namespace(nsid: u32) -> NamespaceView {
        let tag = u8::try_from(nsid & 0xff).unwrap_or(0);
        NamespaceView {
            nsid,
            block_bytes: 512,
            blocks: 1024,
            uuid: [tag; 16],
            nguid: [tag | 0x80; 16],
            eui64: [tag | 0x40; 8],
            capabilities: NamespaceCapabilities {
                read_only: false,
                volatile_cache: true,
                deallocate: true,
                reads_zeroes: true,
                write_zeroes_deallocates: true,
                write_uncorrectable: true,
                persistent_reservations: true,
            },
            hints: NamespaceHints {
                atomic_blocks: 8,
                atomic_power_fail_blocks: 1,
                compare_and_write_blocks: 8,
                preferred_write_blocks: 8,
                optimal_write_blocks: 64,
                deallocate_blocks: 8,
            },
            write_protected: false,
            lost_writes: false,
            detached: false,
            device: nsid + 100,
            ana_group: 1,
            owner_change: 0,
        }
    }

    pub(crate) fn view(nsids: &[u32]) -> SubsystemView {
        SubsystemView {
            nqn: nqn(SUBSYSTEM),
            kind: SubsystemKind::Nvm,
            serial: "WEFT0001".into(),
            model: "weft test".into(),
            firmware: "0.1".into(),
            namespaces: nsids.iter().map(|nsid| namespace(*nsid)).collect(),
            owner_changes: 0,
            visibility: Visibility::default(),
            host_namespaces: None,
            allowed_hosts: None,
            ana: None,
            policies: Arc::default(),
            controller_model: ControllerModel::Dynamic,
            limits: SubsystemLimits::default(),
            shared: SubsystemShared::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::test_support::{HOST, namespace, nqn, view};
    use super::*;

    #[test]
    fn hosts_are_allowed_by_name() {
        let mut view = view(&[1]);
        assert!(view.allows(&nqn(HOST)));
        view.allowed_hosts = Some(Arc::default());
        assert!(!view.allows(&nqn(HOST)));
        view.allowed_hosts = Some(Arc::new([nqn("other"), nqn(HOST)].into()));
        assert!(view.allows(&nqn(HOST)));
        assert!(!view.allows(&nqn("nqn.2014-08.org.nvmexpress:uuid:hos")));
    }

    #[test]
    fn transfer_limits_are_powers_of_two() {
        let limits = |mdts_bytes| SubsystemLimits { mdts_bytes, ..Default::default() };
        assert_eq!((limits(0).mdts(), limits(0).transfer_bytes_max()), (1, 8192));
        assert_eq!(limits(4096 * 3).transfer_bytes_max(), 8192);
        assert_eq!((limits(1 << 20).mdts(), limits(1 << 20).transfer_bytes_max()), (8, 1 << 20));
        assert_eq!(limits(u32::MAX).transfer_bytes_max(), 1 << 31);
        assert_eq!(exponent_bytes(255), u32::MAX);
    }

    #[test]
    fn keep_alive_is_in_tenths_of_a_second() {
        let kas = |keep_alive_granularity_ms| {
            SubsystemLimits { keep_alive_granularity_ms, ..Default::default() }
                .keep_alive_support_100ms()
        };
        assert_eq!((kas(0), kas(100), kas(1000), kas(u32::MAX)), (1, 1, 10, u16::MAX));
    }

    #[test]
    fn a_moved_device_is_no_news_to_hosts() {
        let old = namespace(1);
        assert!(!NamespaceView { device: 7, ..old }.differs_for_hosts(&old));
        assert!(NamespaceView { blocks: 7, ..old }.differs_for_hosts(&old));
        assert!(NamespaceView { write_protected: true, ..old }.differs_for_hosts(&old));
    }

    #[test]
    fn counters_of_a_removed_namespace_are_kept() {
        let shared = SubsystemShared::new();
        let counters = shared.counters();
        counters.count_read(4096);
        counters.count_write(512);
        counters.count_other();
        let expected = Totals {
            reads: 1,
            writes: 1,
            others: 1,
            read_bytes: 4096,
            written_bytes: 512,
            ..Totals::default()
        };
        assert_eq!((counters.totals(), shared.totals()), (expected, expected));
        drop(counters);
        assert_eq!(shared.totals(), expected);
        let next = shared.counters();
        next.count_read(1);
        assert_eq!(shared.totals(), Totals { reads: 2, read_bytes: 4097, ..expected });
        assert_eq!(shared.lock().counters.len(), 1, "those that are gone are one sum");
    }
}
