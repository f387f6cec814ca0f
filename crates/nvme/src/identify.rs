//! Identify: the data structures of controllers, namespaces, and lists of both.
//!
//! Every Identify data structure has 4096 bytes, which is why one buffer fits all.

mod attribute;
mod command;
mod controller;
mod descriptor;
mod list;
mod namespace;

pub use attribute::{
    AsymmetricNamespaceAccessCapabilities, CommandSets, CommonNamespaceFeatures,
    ControllerAttributes, DeallocateFeatures, EntrySizes, FabricsCommandSupport,
    FabricsControllerAttributes, FirmwareUpdates, FormatAttributes, FormattedLbaSize,
    FusedOperations, LbaFormat, LogPageAttributes, MultipathCapabilities, NamespaceAttributes,
    NamespaceFeatures, NamespaceStatus, OptionalAdminCommands, OptionalAsynchronousEvents,
    OptionalNvmCommands, ReservationCapabilities, SglSupport, SharingCapabilities,
    VolatileWriteCacheAttributes, WriteProtectionCapabilities,
};
pub use command::{Cns, CommandSetId, Identify};
pub use controller::{Controller, ControllerType, DiscoveryControllerType, PowerState};
pub use descriptor::{
    DescriptorHeader, DescriptorListFull, Descriptors, IdentifierType, MalformedDescriptor,
    NamespaceIdentifier, push_descriptor,
};
pub use list::{
    CommandSetVectors, ControllerList, NAMESPACES_PER_LIST, NamespaceList, PER_CONTROLLER_LIST,
};
pub use namespace::{IndependentNamespace, Namespace, NvmController, NvmNamespace};

/// Length of every Identify data structure, in bytes.
pub const IDENTIFY_LENGTH: usize = 4096;
