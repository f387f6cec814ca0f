//! What connections, hosts and devices are known by.

use weft_nvmf::connect::ConnectRequest;

/// A connection of one group. The serial number distinguishes it from earlier ones at its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId {
    pub(crate) group: usize,
    pub(crate) index: usize,
    pub(crate) serial: u64,
}

/// A host at a subsystem: by its NQN, since some hosts make a new Host Identifier for each
/// Connect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostKey {
    subsystem: String,
    host: String,
}

impl HostKey {
    /// The subsystem's name.
    pub(crate) fn subsystem(&self) -> &str {
        &self.subsystem
    }

    /// The host's and the subsystem's NQN.
    pub(crate) fn names(&self) -> (&str, &str) {
        (&self.host, &self.subsystem)
    }

    pub(crate) fn of(request: &ConnectRequest) -> Self {
        Self::new(request.subsystem.as_str(), request.host.as_str())
    }

    pub(crate) fn new(subsystem: &str, host: &str) -> Self {
        Self { subsystem: subsystem.to_owned(), host: host.to_owned() }
    }
}

/// An index in the groups' tables and the generation of its device: a request for an earlier device
/// never reaches the one that has its index now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceId(pub(crate) u32);

impl DeviceId {
    const SLOT_BITS: u32 = 20;
    const SLOT_MASK: u32 = (1 << Self::SLOT_BITS) - 1;
    /// How many devices there may be at a time.
    pub(crate) const SLOTS_MAX: usize = 1 << Self::SLOT_BITS;
    /// An index is not used again after this many generations, which fit into a reactor's owner.
    pub(crate) const GENERATIONS_MAX: u32 = (1 << (32 - Self::SLOT_BITS)) - 1;

    /// The device of this generation at a place.
    pub(crate) fn new(slot: usize, generation: u32) -> Self {
        let slot = u32::try_from(slot).unwrap_or(u32::MAX) & Self::SLOT_MASK;
        Self(generation << Self::SLOT_BITS | slot)
    }

    /// Its place.
    pub(crate) const fn slot(self) -> usize {
        (self.0 & Self::SLOT_MASK) as usize
    }
}
