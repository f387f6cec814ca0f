//! A controller and its namespaces as an immutable snapshot that is replaced as a whole, so that it
//! does not change under I/O queues on other threads.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use weft_nvme::identify::{
    self, Descriptors, NamespaceIdentifier, NvmController, OptionalAsynchronousEvents,
};
use weft_nvme::property::{Capabilities, ControllerConfiguration, Version};
use weft_nvme::{Wire, nvm};

use super::access::{self, AccessStates};
use super::config::{ControllerKind, HostConfig};
use super::limits;
use super::request_table::BlockLimits;

/// The namespaces of a controller by identifier.
pub type Namespaces = BTreeMap<u32, Arc<NamespaceInfo>>;

/// Namespaces that this host cannot use, each with the reason.
pub type UnusableNamespaces = BTreeMap<u32, &'static str>;

/// A controller and its namespaces.
#[derive(Debug, Clone)]
pub struct ControllerSnapshot {
    /// The generation of the controller.
    pub generation: u32,
    /// The controller.
    pub controller: Arc<ControllerInfo>,
    /// Its active namespaces.
    pub namespaces: Namespaces,
    /// Namespaces that are left out.
    pub unusable: UnusableNamespaces,
    /// How well the controller reaches its namespaces, if the host follows that.
    pub access: AccessStates,
}

/// A controller.
#[derive(Debug, Clone)]
pub struct ControllerInfo {
    /// Discovery or not.
    pub kind: ControllerKind,
    /// Controller ID (CNTLID).
    pub controller_id: u16,
    /// Controller Capabilities (CAP).
    pub capabilities: Capabilities,
    /// Version (VS).
    pub version: Version,
    /// Controller Configuration (CC) as it was enabled with.
    pub configuration: ControllerConfiguration,
    /// Identify Controller data structure, as received.
    pub identify: Box<identify::Controller>,
    /// Whether SQ flow control is disabled.
    pub flow_control_disabled: bool,
    /// I/O queues that may be connected.
    pub io_queues: u16,
    /// Entries of each I/O queue.
    pub queue_entries: u16,
    /// Bytes that an I/O command capsule may carry.
    pub in_capsule_bytes: u32,
    /// Most bytes of one command (MDTS).
    pub transfer_bytes_max: Option<u32>,
    /// Whether any traffic counts as Keep Alive (TBKAS).
    pub traffic_keeps_alive: bool,
    /// Bytes of the log page of access states, if the host follows them and it can be read.
    pub(super) access_log_bytes: Option<u32>,
    limits: NvmLimits,
}

/// Limits of the NVM command set, in bytes or ranges; zero for none.
#[derive(Debug, Clone, Copy, Default)]
struct NvmLimits {
    write_zeroes_bytes: u64,
    verify_bytes: u64,
    write_uncorrectable_bytes: u64,
    dataset_ranges: u32,
}

impl ControllerInfo {
    pub(super) fn unknown(config: &HostConfig) -> Self {
        Self {
            kind: config.kind,
            flow_control_disabled: config.disable_flow_control,
            controller_id: 0,
            capabilities: Capabilities(0),
            version: Version(0),
            configuration: ControllerConfiguration(0),
            identify: Box::new(identify::Controller::zeroed()),
            io_queues: 0,
            queue_entries: 0,
            in_capsule_bytes: 0,
            transfer_bytes_max: None,
            traffic_keeps_alive: false,
            access_log_bytes: None,
            limits: NvmLimits::default(),
        }
    }

    /// Stores the Identify Controller data, if it meets the requirements of Fabrics.
    pub(super) fn set_identity(
        &mut self,
        data: &[u8],
        config: &HostConfig,
    ) -> Result<(), &'static str> {
        let identify = identify::Controller::view(data).map_err(|_| "it is too short")?;
        if identify.controller_id.get() != self.controller_id {
            return Err("its controller identifier is not that of Connect");
        }
        if self.kind == ControllerKind::Nvm {
            check_nvm_controller(identify, config)?;
        }
        self.traffic_keeps_alive = identify.attributes().traffic_based_keep_alive();
        let mpsmin = self.capabilities.memory_page_size_minimum();
        self.transfer_bytes_max = identify.maximum_transfer_bytes(mpsmin);
        if config.multipath {
            self.access_log_bytes = access::log_bytes(identify, self.transfer_bytes_max);
        }
        let in_capsule = identify.in_capsule_data_bytes();
        self.in_capsule_bytes = match identify.in_capsule_data_offset_16b.get() {
            0 => u32::try_from(in_capsule).unwrap_or(u32::MAX),
            _ => 0,
        };
        let outstanding = u32::from(identify.maximum_outstanding_commands.get());
        let most = if outstanding == 0 { u32::MAX } else { outstanding.max(2) };
        let entries = u32::from(config.queue_entries)
            .min(self.capabilities.queue_entries_max())
            .min(most)
            .max(2);
        self.queue_entries = u16::try_from(entries).unwrap_or(u16::MAX);
        *self.identify = *identify;
        Ok(())
    }

    /// Stores the limits of the NVM command set (Identify, CNS 06h).
    pub(super) fn set_nvm_limits(&mut self, data: &[u8]) {
        let Ok(limits) = NvmController::view(data) else { return };
        let page_power = u32::from(self.capabilities.memory_page_size_minimum()) + 12;
        let bytes = |power: u8| match power {
            0 => 0,
            _ => 1u64.checked_shl(u32::from(power) + page_power).unwrap_or(0),
        };
        self.limits = NvmLimits {
            write_zeroes_bytes: bytes(limits.write_zeroes_size_limit),
            verify_bytes: bytes(limits.verify_size_limit),
            write_uncorrectable_bytes: bytes(limits.write_uncorrectable_size_limit),
            dataset_ranges: u32::from(limits.dataset_ranges_limit),
        };
    }

    /// Asynchronous events that the controller can send (OAES).
    #[must_use]
    pub fn events_offered(&self) -> OptionalAsynchronousEvents {
        self.identify.optional_asynchronous_events()
    }

    /// Command Quiesce Time (CQT): commands of an association end in this time after the controller
    /// has noticed its end.
    #[must_use]
    pub fn quiesce_time(&self) -> Duration {
        match self.identify.command_quiesce_time_ms.get() {
            0 => limits::QUIESCE_TIME,
            reported => Duration::from_millis(reported.into()),
        }
    }

    /// The time after its last command within which the controller notices the end of an
    /// association of this Keep Alive Timeout by itself. With traffic-based keep alive the timer
    /// starts once more if it runs out after a command.
    #[must_use]
    pub fn notices_within(&self, keep_alive_timeout: Duration) -> Duration {
        let granularity = u32::from(self.identify.keep_alive_granularity_100ms.get()).max(1) * 100;
        let asked = u32::try_from(keep_alive_timeout.as_millis()).unwrap_or(u32::MAX);
        let granted = asked.checked_next_multiple_of(granularity).unwrap_or(u32::MAX);
        let granted = Duration::from_millis(granted.into());
        if self.traffic_keeps_alive { granted.saturating_mul(2) } else { granted }
    }

    /// The limits of one command, for blocks of this size.
    #[must_use]
    pub fn block_limits(&self, block_bytes: u32) -> BlockLimits {
        // A limit below one block leaves one block: nothing can be split further.
        let blocks = |bytes: u64| match bytes / u64::from(block_bytes.max(1)) {
            0 if bytes == 0 => 0,
            blocks => u32::try_from(blocks.max(1)).unwrap_or(u32::MAX),
        };
        let ranges_max = u32::from(nvm::DATASET_RANGES_MAX);
        BlockLimits {
            transfer: blocks(self.transfer_bytes_max.map_or(0, u64::from)),
            write_zeroes: blocks(self.limits.write_zeroes_bytes),
            verify: blocks(self.limits.verify_bytes),
            write_uncorrectable: blocks(self.limits.write_uncorrectable_bytes),
            deallocate_ranges: match self.limits.dataset_ranges {
                0 => ranges_max,
                ranges => ranges.min(ranges_max),
            },
        }
    }
}

fn check_nvm_controller(
    identify: &identify::Controller,
    config: &HostConfig,
) -> Result<(), &'static str> {
    if identify.sgl_support().supported() == 0 {
        return Err("it does not support SGLs, which Fabrics requires");
    }
    if identify.io_command_capsule_16b.get() < 4 || identify.io_response_capsule_16b.get() < 1 {
        return Err("its capsules are too small for a command or a completion");
    }
    let wants_keep_alive = !config.keep_alive_timeout.is_zero();
    if wants_keep_alive && identify.keep_alive_granularity_100ms.get() == 0 {
        return Err("it does not support Keep Alive, which Fabrics requires");
    }
    Ok(())
}

/// The unique identifiers of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct NamespaceIdentity {
    /// Namespace UUID.
    pub uuid: Option<[u8; 16]>,
    /// Namespace Globally Unique Identifier.
    pub nguid: Option<[u8; 16]>,
    /// IEEE Extended Unique Identifier.
    pub eui64: Option<[u8; 8]>,
}

/// A namespace.
#[derive(Debug, Clone)]
pub struct NamespaceInfo {
    /// Namespace Identifier.
    pub nsid: u32,
    /// Its unique identifiers.
    pub identity: NamespaceIdentity,
    /// Bytes of a logical block, without metadata.
    pub block_bytes: u32,
    /// Bytes of metadata of each block; such a namespace cannot be read and written here.
    pub metadata_bytes: u16,
    /// Namespace Size (NSZE) in logical blocks.
    pub blocks: u64,
    /// Whether it is write protected.
    pub write_protected: bool,
    /// The limits of one command.
    pub limits: BlockLimits,
    /// Identify Namespace data structure, as received.
    pub identify: Box<identify::Namespace>,
}

impl NamespaceInfo {
    /// A namespace from its Identify data and its descriptors; `Ok(None)` if it is inactive.
    pub(super) fn new(
        controller: &ControllerInfo,
        nsid: u32,
        identify: &[u8],
        descriptors: &[u8],
    ) -> Result<Option<Self>, &'static str> {
        let identify = identify::Namespace::view(identify).map_err(|_| "it is too short")?;
        if identify.capacity.get() == 0 {
            return Ok(None);
        }
        let format = identify.lba_format().ok_or("FLBAS names a format that does not exist")?;
        let block_bytes = format
            .block_bytes()
            .filter(|bytes| (512..=1 << 16).contains(bytes))
            .ok_or("its logical blocks are not of 512 to 65536 bytes")?;
        Ok(Some(Self {
            nsid,
            identity: identity_of(identify, descriptors),
            block_bytes,
            metadata_bytes: format.metadata_size.get(),
            blocks: identify.size.get(),
            write_protected: identify.attributes.write_protected(),
            limits: controller.block_limits(block_bytes),
            identify: Box::new(*identify),
        }))
    }

    /// Size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_bytes as u64)
    }

    /// Whether both are the same namespace: the same identifiers and block size. Without unique
    /// identifiers only the namespace identifier is compared.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.nsid == other.nsid
            && self.identity == other.identity
            && self.block_bytes == other.block_bytes
            && self.metadata_bytes == other.metadata_bytes
    }
}

fn identity_of(identify: &identify::Namespace, descriptors: &[u8]) -> NamespaceIdentity {
    let mut identity = NamespaceIdentity {
        uuid: None,
        nguid: Some(identify.nguid).filter(|nguid| *nguid != [0; 16]),
        eui64: Some(identify.eui64).filter(|eui64| *eui64 != [0; 8]),
    };
    for descriptor in Descriptors::new(descriptors).flatten() {
        match descriptor {
            NamespaceIdentifier::Uuid(uuid) if uuid != [0; 16] => identity.uuid = Some(uuid),
            NamespaceIdentifier::Nguid(nguid) if nguid != [0; 16] => identity.nguid = Some(nguid),
            NamespaceIdentifier::Eui64(eui64) if eui64 != [0; 8] => identity.eui64 = Some(eui64),
            _ => {}
        }
    }
    identity
}

/// The difference of a namespace between two snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// It was added.
    Added,
    /// It was removed.
    Removed,
    /// It has another size, or another attribute changed.
    Changed,
    /// Another namespace has its identifier now.
    Replaced,
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Added => "was added",
            Self::Removed => "was removed",
            Self::Changed => "changed",
            Self::Replaced => "was replaced by another",
        })
    }
}

impl ControllerSnapshot {
    /// The differences from an older snapshot.
    #[must_use]
    pub fn changes_since(&self, before: &Self) -> Vec<(u32, Change)> {
        let mut changes = Vec::new();
        for (nsid, old) in &before.namespaces {
            match self.namespaces.get(nsid) {
                None => changes.push((*nsid, Change::Removed)),
                Some(new) if !new.is_same(old) => changes.push((*nsid, Change::Replaced)),
                Some(new) if new.differs_in_use(old) => changes.push((*nsid, Change::Changed)),
                Some(_) => {}
            }
        }
        let added = self.namespaces.keys().filter(|nsid| !before.namespaces.contains_key(nsid));
        changes.extend(added.map(|nsid| (*nsid, Change::Added)));
        changes
    }
}

impl NamespaceInfo {
    fn differs_in_use(&self, old: &Self) -> bool {
        let (mut new, mut old) = (*self.identify, *old.identify);
        // NUSE changes with every write.
        new.utilization = weft_nvme::wire::U64::ZERO;
        old.utilization = weft_nvme::wire::U64::ZERO;
        new != old
    }
}
