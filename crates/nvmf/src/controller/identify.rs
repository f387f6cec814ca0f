//! Identify: the data structures of the controller and its namespaces.

use weft_nvme::command::NAMESPACE_ID_BROADCAST;
use weft_nvme::identify::{
    self, AsymmetricNamespaceAccessCapabilities, Cns, CommandSetId, CommandSetVectors, CommandSets,
    CommonNamespaceFeatures, ControllerAttributes, ControllerList, ControllerType,
    DeallocateFeatures, DiscoveryControllerType, EntrySizes, FabricsCommandSupport,
    FabricsControllerAttributes, FirmwareUpdates, FusedOperations, IDENTIFY_LENGTH, Identify,
    IndependentNamespace, LbaFormat, LogPageAttributes, MultipathCapabilities, NamespaceAttributes,
    NamespaceFeatures, NamespaceIdentifier, NamespaceList, NamespaceStatus, NvmController,
    NvmNamespace, OptionalAdminCommands, OptionalAsynchronousEvents, OptionalNvmCommands,
    ReservationCapabilities, SglSupport, SharingCapabilities, VolatileWriteCacheAttributes,
    WriteProtectionCapabilities, push_descriptor,
};
use weft_nvme::log_page::AsymmetricNamespaceAccessState as AnaState;
use weft_nvme::property::Version;
use weft_nvme::wire::{Text, U16, U32, U64, U128};
use weft_nvme::{Command, Nqn, Status, Wire};

use super::Controller;
use super::outcome::{Outcome, check_data_to_host};
use crate::ana::TRANSITION_TIME_S;
use crate::limits::{
    COPY_RANGES_MAX, ERROR_ENTRIES, RDMA_DESCRIPTORS_MAX, RDMA_IN_CAPSULE_BYTES_MAX,
};
use crate::namespaces::BLOCK_SIZES;
use crate::persistent::LOG_64K;
use crate::queue::{COPY_FORMATS, CommandError, error};
use crate::subsystem::{ControllerModel, NamespaceView, Namespaces, page_exponent};

/// Bytes of a command and of a completion, which IOCCSZ and IORCSZ count in units of 16.
const COMMAND_BYTES: u32 = 64;
const COMPLETION_16B: u32 = 1;

/// Controller Identifier (CNTID) in Identify I/O Command Set that means this controller.
const THIS_CONTROLLER: u16 = 0xffff;

/// The structures that are of the command set that is named.
const OF_A_COMMAND_SET: [Cns; 5] = [
    Cns::COMMAND_SET_NAMESPACE,
    Cns::COMMAND_SET_CONTROLLER,
    Cns::COMMAND_SET_ACTIVE_NAMESPACE_LIST,
    Cns::COMMAND_SET_ALLOCATED_NAMESPACE_LIST,
    Cns::COMMAND_SET_ALLOCATED_NAMESPACE,
];

const NAMESPACE: CommandError = error(Status::INVALID_NAMESPACE, 4);
const CNS: CommandError = error(Status::INVALID_FIELD, 40);
const CONTROLLER_ID: CommandError = error(Status::INVALID_FIELD, 42);
const COMMAND_SET: CommandError = error(Status::INVALID_FIELD, 47);

impl Controller {
    /// Identify on an I/O controller.
    pub(super) fn identify(&self, command: &Command) -> Result<Outcome, CommandError> {
        check_length(command)?;
        let identify = Identify::from_command(command);
        let nsid = identify.namespace_id;
        if OF_A_COMMAND_SET.contains(&identify.cns) {
            check_command_set(&identify)?;
        }
        let bytes = match identify.cns {
            Cns::NAMESPACE if nsid == NAMESPACE_ID_BROADCAST => self.common_namespace()?,
            Cns::NAMESPACE => self.identify_namespace(self.find_namespace(nsid)?),
            Cns::ALLOCATED_NAMESPACE => self.identify_namespace(self.find_allocated(nsid)?),
            Cns::CONTROLLER => self.identify_controller().bytes().to_vec(),
            Cns::ACTIVE_NAMESPACE_LIST | Cns::COMMAND_SET_ACTIVE_NAMESPACE_LIST => {
                namespaces_above(&self.view.namespaces, nsid)?
            }
            Cns::ALLOCATED_NAMESPACE_LIST | Cns::COMMAND_SET_ALLOCATED_NAMESPACE_LIST => {
                namespaces_above(self.allocated(), nsid)?
            }
            Cns::NAMESPACE_DESCRIPTOR_LIST => self.namespace_descriptors(nsid)?,
            Cns::COMMAND_SET_NAMESPACE => identify_nvm_namespace(self.find_namespace(nsid)?),
            Cns::COMMAND_SET_ALLOCATED_NAMESPACE => {
                identify_nvm_namespace(self.find_allocated(nsid)?)
            }
            Cns::COMMAND_SET_CONTROLLER => self.identify_nvm_controller().bytes().to_vec(),
            Cns::INDEPENDENT_NAMESPACE => {
                self.identify_independent_namespace(self.find_namespace(nsid)?)
            }
            Cns::INDEPENDENT_ALLOCATED_NAMESPACE => {
                self.identify_independent_namespace(self.find_allocated(nsid)?)
            }
            Cns::CONTROLLER_LIST => self.controllers(None, identify.controller_id),
            Cns::NAMESPACE_CONTROLLER_LIST => {
                if !(1..=self.view.limits.max_namespaces).contains(&nsid) {
                    return Err(NAMESPACE);
                }
                self.controllers(Some(nsid), identify.controller_id)
            }
            Cns::COMMAND_SET_DATA => {
                let own = [THIS_CONTROLLER, self.controller_id];
                if !own.contains(&identify.controller_id) {
                    return Err(CONTROLLER_ID);
                }
                let nvm_only = CommandSets(0).with_nvm(true);
                CommandSetVectors::single(nvm_only).bytes().to_vec()
            }
            _ => return Err(CNS),
        };
        Ok(Outcome::Data(bytes))
    }

    /// Identify on a discovery controller: Identify Controller only.
    pub(super) fn identify_discovery(&self, command: &Command) -> Result<Outcome, CommandError> {
        check_length(command)?;
        if Identify::from_command(command).cns != Cns::CONTROLLER {
            return Err(CNS);
        }
        let mut controller = self.identify_common();
        controller.controller_type = ControllerType::DISCOVERY;
        let is_centralized = self.view.discovery().is_some_and(|view| view.is_centralized);
        controller.discovery_controller_type = match is_centralized {
            true => DiscoveryControllerType::CENTRAL,
            false => DiscoveryControllerType::DIRECT,
        };
        controller.optional_asynchronous_events =
            U32::new(OptionalAsynchronousEvents(0).with_discovery_log_change(true).0);
        controller.log_page_attributes = LogPageAttributes(0).with_extended_data(true);
        Ok(Outcome::Data(controller.bytes().to_vec()))
    }

    /// The fields that every controller has.
    fn identify_common(&self) -> identify::Controller {
        let view = &self.view;
        let limits = &view.limits;
        let mut controller = identify::Controller::zeroed();
        controller.serial_number = Text::new(&view.serial);
        controller.model_number = Text::new(&view.model);
        controller.firmware_revision = Text::new(&view.firmware);
        controller.maximum_data_transfer_size = limits.mdts();
        controller.controller_id = U16::new(self.controller_id);
        controller.version = U32::new(Version::V2_1.0);
        let attributes =
            ControllerAttributes(0).with_host_id_128_bits(true).with_traffic_based_keep_alive(true);
        controller.attributes = U32::new(attributes.0);
        controller.abort_command_limit_0s_based = limits.max_aborts.saturating_sub(1);
        controller.asynchronous_event_request_limit_0s_based =
            limits.max_event_requests.saturating_sub(1);
        controller.error_log_page_entries_0s_based =
            u8::try_from(ERROR_ENTRIES - 1).unwrap_or(u8::MAX);
        controller.keep_alive_granularity_100ms = U16::new(limits.keep_alive_support_100ms());
        controller.maximum_outstanding_commands = U16::new(self.queue_entries_max());
        let sgls = SglSupport(0).with_supported(1).with_offset(true);
        let sgls = if self.rdma { sgls.with_keyed(true) } else { sgls.with_transport(true) };
        controller.sgl_support = U32::new(sgls.0);
        controller.subsystem_nqn = view.nqn.to_field();
        let most = if self.rdma { RDMA_IN_CAPSULE_BYTES_MAX } else { u32::MAX };
        let in_capsule = limits.in_capsule_bytes.min(most);
        controller.io_command_capsule_16b = U32::new(COMMAND_BYTES.saturating_add(in_capsule) / 16);
        controller.io_response_capsule_16b = U32::new(COMPLETION_16B);
        controller.fabrics_attributes = FabricsControllerAttributes(0)
            .with_static_controllers(view.controller_model == ControllerModel::Static);
        let descriptors = if self.rdma { RDMA_DESCRIPTORS_MAX } else { 1 };
        controller.maximum_sgl_descriptors = u8::try_from(descriptors).unwrap_or(u8::MAX);
        controller
    }

    fn identify_controller(&self) -> identify::Controller {
        let view = &self.view;
        let mut controller = self.identify_common();
        controller.controller_type = ControllerType::IO;
        // As the Linux target; it has no effect here.
        controller.recommended_arbitration_burst = 6;
        let ana = view.ana.is_some();
        controller.multipath = MultipathCapabilities(0)
            .with_multiple_ports(true)
            .with_multiple_controllers(true)
            .with_asymmetric_namespace_access(ana);
        let events = OptionalAsynchronousEvents(0)
            .with_namespace_attribute(true)
            .with_asymmetric_namespace_access_change(ana);
        controller.optional_asynchronous_events = U32::new(events.0);
        if ana {
            controller.ana_transition_time_s = TRANSITION_TIME_S;
            controller.ana_capabilities = AsymmetricNamespaceAccessCapabilities(0)
                .with_optimized(true)
                .with_non_optimized(true)
                .with_inaccessible(true)
                .with_persistent_loss(true)
                .with_change(true);
            // A group for each namespace, as with SPDK.
            controller.ana_group_id_max = U32::new(view.limits.max_namespaces);
            controller.ana_groups = U32::new(view.limits.max_namespaces);
        }
        if let Some(own) = &view.host_namespaces {
            let commands = OptionalAdminCommands(0).with_namespace_management(true);
            controller.optional_admin_commands = U16::new(commands.0);
            controller.total_capacity_bytes = U128::new(own.capacity_bytes.into());
            controller.unallocated_capacity_bytes = U128::new(own.free_bytes().into());
        }
        controller.firmware_updates =
            FirmwareUpdates(0).with_first_slot_read_only(true).with_slots(1);
        controller.log_page_attributes = LogPageAttributes(0)
            .with_command_effects(true)
            .with_extended_data(true)
            .with_telemetry(true)
            .with_persistent_event(true);
        controller.persistent_event_log_64k = U32::new(LOG_64K);
        controller.submission_queue_entry_sizes = EntrySizes::SUBMISSION;
        controller.completion_queue_entry_sizes = EntrySizes::COMPLETION;
        controller.namespaces = U32::new(view.limits.max_namespaces);
        controller.maximum_allowed_namespaces = U32::new(view.limits.max_namespaces);
        controller.optional_nvm_commands = U16::new(self.optional_nvm_commands().0);
        controller.copy_descriptor_formats = U16::new(COPY_FORMATS);
        controller.fused_operations = U16::new(FusedOperations(0).with_compare_and_write(true).0);
        controller.volatile_write_cache = VolatileWriteCacheAttributes(0)
            .with_present(true)
            .with_flush_broadcast(VolatileWriteCacheAttributes::FLUSH_BROADCAST_SUPPORTED);
        // AWUN, AWUPF and ACWU stay at one block, which holds for every namespace that may ever
        // come: since Linux 6.16 a host takes no second controller whose AWUPF is not that of the
        // first. Larger units of a namespace are in its own structure.
        controller.write_protection = WriteProtectionCapabilities(0).with_write_protect(true);
        controller.fabrics_commands = U16::new(FabricsCommandSupport(0).with_disconnect(true).0);
        controller
    }

    pub(super) fn optional_nvm_commands(&self) -> OptionalNvmCommands {
        let mut namespaces = self.view.namespaces.iter().peekable();
        let write_uncorrectable = namespaces.peek().is_some()
            && namespaces.all(|namespace| namespace.capabilities.write_uncorrectable);
        OptionalNvmCommands(0)
            .with_compare(true)
            .with_write_uncorrectable(write_uncorrectable)
            .with_dataset_management(true)
            .with_write_zeroes(true)
            .with_save_and_select(true)
            .with_reservations(true)
            .with_verify(true)
            .with_copy(true)
            // No data goes over the network.
            .with_all_fast_copy(true)
    }

    fn identify_nvm_controller(&self) -> NvmController {
        let limits = &self.view.limits;
        let mut controller = NvmController::zeroed();
        controller.verify_size_limit = page_exponent(limits.verify_bytes);
        controller.write_zeroes_size_limit = page_exponent(limits.write_zeroes_bytes);
        controller.version = U32::new(Version::new(1, 1, 0).0);
        controller
    }

    /// The namespaces that there are for the host, whether or not they are attached: without
    /// Namespace Management, those that are.
    pub(super) fn allocated(&self) -> &Namespaces {
        let own = self.view.host_namespaces.as_ref();
        own.map_or(&self.view.namespaces, |own| &own.allocated)
    }

    /// The allocated namespace of this identifier; `None` if it could be one but is not.
    fn find_allocated(&self, nsid: u32) -> Result<Option<&NamespaceView>, CommandError> {
        match self.allocated().get(nsid) {
            None if !(1..=self.view.limits.max_namespaces).contains(&nsid) => Err(NAMESPACE),
            found => Ok(found),
        }
    }

    /// What all namespaces that hosts may make have in common.
    fn common_namespace(&self) -> Result<Vec<u8>, CommandError> {
        if self.view.host_namespaces.is_none() {
            return Err(NAMESPACE);
        }
        let mut common = identify::Namespace::zeroed();
        common.sharing = SharingCapabilities(0).with_shared(true);
        common.lba_formats_0s_based = u8::try_from(BLOCK_SIZES.len() - 1).unwrap_or(0);
        for (format, block_bytes) in common.lba_formats.iter_mut().zip(BLOCK_SIZES) {
            *format = LbaFormat::new(u8::try_from(block_bytes.ilog2()).unwrap_or(0));
        }
        Ok(common.bytes().to_vec())
    }

    /// The controllers from this identifier on, as many as a list holds: of the subsystem, or of a
    /// namespace.
    fn controllers(&self, nsid: Option<u32>, from: u16) -> Vec<u8> {
        let is_wanted = |host: &Nqn| {
            nsid.is_none_or(|nsid| {
                self.allocated().get(nsid).is_some() && self.view.visibility.shows(nsid, host)
            })
        };
        let ids = self.view.shared.controllers(is_wanted).into_iter().filter(|id| *id >= from);
        ControllerList::new(ids).bytes().to_vec()
    }

    /// The active namespace of this identifier; `None` if it could be one but is not. The host has
    /// asked for it by name, and may use it from now on.
    fn find_namespace(&self, nsid: u32) -> Result<Option<&NamespaceView>, CommandError> {
        let found = self.view.namespaces.get(nsid);
        found.iter().for_each(|namespace| self.shared.note_identify(namespace));
        if found.is_none() && !(1..=self.view.limits.max_namespaces).contains(&nsid) {
            return Err(NAMESPACE);
        }
        Ok(found)
    }

    pub(super) fn identify_namespace(&self, found: Option<&NamespaceView>) -> Vec<u8> {
        found.map_or_else(empty, |namespace| {
            let mut nvm = nvm_namespace(namespace);
            let copy = self.view.limits.copy().of(namespace.block_bytes);
            nvm.copy_source_range_length_max = U16::new(copy.range_blocks);
            nvm.copy_length_max = U32::new(copy.blocks);
            nvm.copy_source_ranges_0s_based = u8::try_from(COPY_RANGES_MAX - 1).unwrap_or(u8::MAX);
            if self.view.ana.is_some() {
                nvm.ana_group_id = U32::new(namespace.ana_group);
                // As the Linux target: nothing is known of what cannot be reached.
                let state = self.view.ana_state(self.port_id, namespace.ana_group);
                if [AnaState::INACCESSIBLE, AnaState::PERSISTENT_LOSS].contains(&state) {
                    nvm.utilization = U64::new(0);
                }
            }
            nvm.bytes().to_vec()
        })
    }

    fn identify_independent_namespace(&self, found: Option<&NamespaceView>) -> Vec<u8> {
        found.map_or_else(empty, |namespace| {
            let mut independent = IndependentNamespace::zeroed();
            independent.features = CommonNamespaceFeatures(0)
                .with_no_volatile_write_cache(!namespace.capabilities.volatile_cache);
            independent.sharing = SharingCapabilities(0).with_shared(true);
            independent.reservations = reservations(namespace);
            if self.view.ana.is_some() {
                independent.ana_group_id = U32::new(namespace.ana_group);
            }
            independent.attributes = attributes(namespace);
            independent.status = NamespaceStatus(0).with_ready(true);
            independent.bytes().to_vec()
        })
    }

    fn namespace_descriptors(&self, nsid: u32) -> Result<Vec<u8>, CommandError> {
        let namespace = self.find_namespace(nsid)?.ok_or(NAMESPACE)?;
        let mut list = empty();
        let mut room = list.as_mut_slice();
        let identifiers = [
            (namespace.eui64 != [0; 8]).then_some(NamespaceIdentifier::Eui64(namespace.eui64)),
            (namespace.nguid != [0; 16]).then_some(NamespaceIdentifier::Nguid(namespace.nguid)),
            (namespace.uuid != [0; 16]).then_some(NamespaceIdentifier::Uuid(namespace.uuid)),
            Some(NamespaceIdentifier::CommandSet(CommandSetId::NVM)),
        ];
        for identifier in identifiers.into_iter().flatten() {
            // Four descriptors take 61 of the 4096 bytes.
            room = match push_descriptor(room, identifier) {
                Ok(room) => room,
                Err(_) => break,
            };
        }
        Ok(list)
    }
}

/// The namespaces above `nsid`, as many as a list holds.
fn namespaces_above(namespaces: &Namespaces, nsid: u32) -> Result<Vec<u8>, CommandError> {
    if nsid >= NAMESPACE_ID_BROADCAST - 1 {
        return Err(NAMESPACE);
    }
    let above = namespaces.range(nsid.saturating_add(1)..);
    Ok(NamespaceList::new(above.map(|namespace| namespace.nsid)).bytes().to_vec())
}

fn identify_nvm_namespace(found: Option<&NamespaceView>) -> Vec<u8> {
    found.map_or_else(empty, |namespace| {
        let mut specific = NvmNamespace::zeroed();
        let granularity = namespace.hints.deallocate_blocks;
        specific.preferred_deallocate_granularity = U32::new(granularity);
        specific.preferred_deallocate_alignment = U32::new(granularity);
        specific.bytes().to_vec()
    })
}

/// The Identify Namespace data structure.
fn nvm_namespace(view: &NamespaceView) -> identify::Namespace {
    let hints = &view.hints;
    let mut namespace = identify::Namespace::zeroed();
    namespace.size = U64::new(view.blocks);
    namespace.capacity = U64::new(view.blocks);
    namespace.utilization = U64::new(view.blocks);
    let atomic = hints.atomic_blocks > 0
        || hints.atomic_power_fail_blocks > 0
        || hints.compare_and_write_blocks > 0;
    namespace.features = NamespaceFeatures(0)
        .with_atomic_units(atomic)
        .with_optimal_performance(optimal_performance(view));
    namespace.sharing = SharingCapabilities(0).with_shared(true);
    namespace.reservations = reservations(view);
    let reads = if view.capabilities.reads_zeroes { DeallocateFeatures::READS_ZEROS } else { 0 };
    namespace.deallocate_features = DeallocateFeatures(0)
        .with_read_behavior(reads)
        .with_write_zeroes_deallocate(view.capabilities.write_zeroes_deallocates);
    namespace.atomic_write_unit_normal_0s_based = zero_based(hints.atomic_blocks);
    namespace.atomic_write_unit_power_fail_0s_based = zero_based(hints.atomic_power_fail_blocks);
    namespace.atomic_compare_and_write_unit_0s_based = zero_based(hints.compare_and_write_blocks);
    let bytes = u128::from(view.blocks).saturating_mul(u128::from(view.block_bytes));
    namespace.nvm_capacity_bytes = U128::new(bytes);
    namespace.preferred_write_granularity_0s_based = zero_based(hints.preferred_write_blocks);
    namespace.preferred_write_alignment_0s_based = zero_based(hints.preferred_write_blocks);
    namespace.preferred_deallocate_granularity_0s_based = zero_based(hints.deallocate_blocks);
    namespace.preferred_deallocate_alignment_0s_based = zero_based(hints.deallocate_blocks);
    namespace.optimal_write_size_0s_based = zero_based(hints.optimal_write_blocks);
    namespace.attributes = attributes(view);
    namespace.nguid = view.nguid;
    namespace.eui64 = view.eui64;
    if let Some(format) = namespace.lba_formats.first_mut() {
        let exponent = view.block_bytes.checked_ilog2().unwrap_or(0);
        *format = LbaFormat::new(u8::try_from(exponent).unwrap_or(0));
    }
    namespace
}

/// OPTPERF: which of the performance fields are defined. Once one of them is, all are, so a
/// field without a hint is one block.
fn optimal_performance(view: &NamespaceView) -> u8 {
    let hints = &view.hints;
    let any = hints.preferred_write_blocks > 0
        || hints.optimal_write_blocks > 0
        || hints.deallocate_blocks > 0;
    // A granularity of more than 16 bits is in the structure of the command set.
    let large = hints.deallocate_blocks > u32::from(u16::MAX);
    u8::from(any) | (u8::from(large) * 2)
}

fn reservations(view: &NamespaceView) -> ReservationCapabilities {
    ReservationCapabilities(0)
        .with_persist_through_power_loss(view.capabilities.persistent_reservations)
        .with_write_exclusive(true)
        .with_exclusive_access(true)
        .with_write_exclusive_registrants_only(true)
        .with_exclusive_access_registrants_only(true)
        .with_write_exclusive_all_registrants(true)
        .with_exclusive_access_all_registrants(true)
        .with_ignore_existing_key_1_3(true)
}

fn attributes(view: &NamespaceView) -> NamespaceAttributes {
    NamespaceAttributes(0).with_write_protected(view.is_write_protected())
}

/// A count as a 0's based field of 16 bits; 0 becomes 1, what does not fit the largest.
fn zero_based(count: u32) -> U16 {
    U16::new(u16::try_from(count.saturating_sub(1)).unwrap_or(u16::MAX))
}

fn check_length(command: &Command) -> Result<(), CommandError> {
    let length = u32::try_from(IDENTIFY_LENGTH).unwrap_or(u32::MAX);
    check_data_to_host(command, length)
}

fn check_command_set(identify: &Identify) -> Result<(), CommandError> {
    if identify.command_set == CommandSetId::NVM { Ok(()) } else { Err(COMMAND_SET) }
}

fn empty() -> Vec<u8> {
    vec![0; IDENTIFY_LENGTH]
}
