//! The namespaces of a subsystem, and their table.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeFrom;
use std::sync::Arc;

use weft_nvme::Nqn;

/// One namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamespaceView {
    /// Namespace Identifier (NSID), from 1.
    pub nsid: u32,
    /// Bytes of a logical block: 512 or another power of two.
    pub block_bytes: u32,
    /// Logical blocks: size, capacity and utilization are one.
    pub blocks: u64,
    /// UUID; all zero if it has none.
    pub uuid: [u8; 16],
    /// Namespace Globally Unique Identifier; all zero if it has none.
    pub nguid: [u8; 16],
    /// IEEE Extended Unique Identifier; all zero if it has none.
    pub eui64: [u8; 8],
    /// What its device can do.
    pub capabilities: NamespaceCapabilities,
    /// How its device likes to be used.
    pub hints: NamespaceHints,
    /// Whether a host, or the configuration, forbade writing for now.
    pub write_protected: bool,
    /// Whether its device has failed to make writes durable: Flush and writes with FUA fail.
    pub lost_writes: bool,
    /// Whether its device's file was removed, moved away or replaced: its data may go with the
    /// process.
    pub detached: bool,
    /// Identifier of its device in the target's table, the same on every reactor. No two devices
    /// ever have the same one.
    pub device: u32,
    /// ANA Group Identifier (ANAGRPID).
    pub ana_group: u32,
    /// Counts the changes of owner: 0 if no other namespace ever had this identifier, and more than
    /// any namespace's before when another one had it. A controller that is older than the change
    /// has no access until its host has asked for this namespace with Identify.
    pub owner_change: u64,
}

/// What a namespace's device can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NamespaceCapabilities {
    /// Nothing can be written, ever.
    pub read_only: bool,
    /// A completed write may be lost with power until it is flushed.
    pub volatile_cache: bool,
    /// Deallocate reaches the device.
    pub deallocate: bool,
    /// A deallocated block reads as zeros.
    pub reads_zeroes: bool,
    /// Write Zeroes may free the blocks.
    pub write_zeroes_deallocates: bool,
    /// Write Uncorrectable can be done.
    pub write_uncorrectable: bool,
    /// There is a place where its reservations can be kept.
    pub persistent_reservations: bool,
}

/// How a namespace's device likes to be used. Zero says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NamespaceHints {
    /// Blocks that are written as a whole or not at all, seen by other readers (NAWUN).
    pub atomic_blocks: u32,
    /// Blocks that are written as a whole or not at all when power fails (NAWUPF).
    pub atomic_power_fail_blocks: u32,
    /// Blocks that one fused Compare and Write may touch (NACWU).
    pub compare_and_write_blocks: u32,
    /// Preferred granularity and alignment of writes in blocks (NPWG, NPWA).
    pub preferred_write_blocks: u32,
    /// Optimal size of writes in blocks (NOWS).
    pub optimal_write_blocks: u32,
    /// Preferred granularity and alignment of Deallocate in blocks (NPDG, NPDA).
    pub deallocate_blocks: u32,
}

impl NamespaceView {
    /// Whether a write is refused.
    #[must_use]
    pub const fn is_write_protected(&self) -> bool {
        self.write_protected || self.capabilities.read_only
    }

    /// Whether a host that knew `old` must look again.
    #[must_use]
    pub fn differs_for_hosts(&self, old: &Self) -> bool {
        let Self { device, owner_change, lost_writes, detached, .. } = *old;
        Self { device, owner_change, lost_writes, detached, ..*self } != *old
    }

    /// Whether its data may be lost: SMART says that the subsystem's reliability is degraded.
    #[must_use]
    pub const fn is_degraded(&self) -> bool {
        self.lost_writes || self.detached
    }
}

/// The sizes of blocks that a host may choose from: LBA formats 0 and 1.
pub const BLOCK_SIZES: [u32; 2] = [512, 4096];

/// What a host wants of the namespaces of its subsystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamespaceChange {
    /// Make one, which is attached to no controller. Its number is reported.
    Create {
        /// Logical blocks.
        blocks: u64,
        /// Bytes of a block.
        block_bytes: u32,
        /// ANA Group Identifier; none: the one with the number of its NSID.
        ana_group: Option<u32>,
    },
    /// Delete these, and what is in them.
    Delete(Vec<u32>),
    /// Attach one to the controllers of these hosts.
    Attach(u32, BTreeSet<Nqn>),
    /// Detach one from the controllers of these hosts.
    Detach(u32, BTreeSet<Nqn>),
}

/// For the operator's log.
impl fmt::Display for NamespaceChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { blocks, block_bytes, .. } => {
                write!(f, "a namespace of {blocks} blocks of {block_bytes} bytes is made")
            }
            Self::Delete(nsids) => write!(f, "namespaces {nsids:?} are deleted"),
            Self::Attach(nsid, hosts) | Self::Detach(nsid, hosts) => {
                let is_attached = matches!(self, Self::Attach(..));
                let done = if is_attached { "attached to" } else { "detached from" };
                write!(f, "namespace {nsid} is {done}")?;
                hosts.iter().try_for_each(|host| write!(f, " {host}"))
            }
        }
    }
}

/// The active namespaces of a subsystem in the order of their identifiers, which are mostly 1, 2, 3
/// and so on. The view and the queues share one table, and hosts that do not see all namespaces the
/// table of those that every host sees.
#[derive(Debug, Clone, Default)]
pub struct Namespaces {
    all: Arc<[NamespaceView]>,
    /// Those that only some hosts see, of which the table is for one.
    own: Arc<[NamespaceView]>,
}

impl FromIterator<NamespaceView> for Namespaces {
    fn from_iter<T: IntoIterator<Item = NamespaceView>>(namespaces: T) -> Self {
        let mut sorted: Vec<_> = namespaces.into_iter().collect();
        sorted.sort_by_key(|namespace| namespace.nsid);
        Self { all: sorted.into(), own: Arc::default() }
    }
}

impl PartialEq for Namespaces {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Namespaces {}

impl Namespaces {
    /// These, and others in the order of their identifiers, which are not among them.
    pub(crate) fn with_own(&self, own: impl Iterator<Item = NamespaceView>) -> Self {
        Self { all: Arc::clone(&self.all), own: own.collect() }
    }

    /// The namespace of this identifier.
    #[must_use]
    pub fn get(&self, nsid: u32) -> Option<&NamespaceView> {
        let guess = usize::try_from(nsid.wrapping_sub(1)).unwrap_or(usize::MAX);
        if let Some(namespace) = self.all.get(guess)
            && namespace.nsid == nsid
        {
            return Some(namespace);
        }
        [&self.all, &self.own].into_iter().find_map(|part| part.get(find(part, nsid)?))
    }

    /// The same to be changed, in this table alone.
    pub fn get_mut(&mut self, nsid: u32) -> Option<&mut NamespaceView> {
        let part = if find(&self.all, nsid).is_some() { &mut self.all } else { &mut self.own };
        let index = find(part, nsid)?;
        Arc::make_mut(part).get_mut(index)
    }

    /// The same with this namespace in the place of the one of this identifier, or without one.
    #[must_use]
    pub fn with(&self, nsid: u32, namespace: Option<NamespaceView>) -> Self {
        self.iter().filter(|one| one.nsid != nsid).copied().chain(namespace).collect()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len() + self.own.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &NamespaceView> {
        self.range(0..)
    }

    /// All of them to be changed, in this table alone.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut NamespaceView> {
        Arc::make_mut(&mut self.all).iter_mut().chain(Arc::make_mut(&mut self.own))
    }

    /// Those from this identifier on.
    pub(crate) fn range(&self, from: RangeFrom<u32>) -> impl Iterator<Item = &NamespaceView> {
        let part = |part: &'_ Arc<[NamespaceView]>| {
            part.partition_point(|namespace| namespace.nsid < from.start)
        };
        let (all, own) = (part(&self.all), part(&self.own));
        let mut all = self.all.iter().skip(all).peekable();
        let mut own = self.own.iter().skip(own).peekable();
        std::iter::from_fn(move || match (all.peek(), own.peek()) {
            (Some(one), Some(other)) if other.nsid < one.nsid => own.next(),
            (None, _) => own.next(),
            _ => all.next(),
        })
    }
}

fn find(part: &[NamespaceView], nsid: u32) -> Option<usize> {
    part.binary_search_by_key(&nsid, |namespace| namespace.nsid).ok()
}
