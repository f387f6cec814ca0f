//! A small controller for the host core to talk to: well behaved, and told to misbehave by who
//! drives it.

use std::collections::BTreeMap;

use weft_nvme::command::Command;
use weft_nvme::fabrics::{ConnectResult, PropertyGet, PropertySet};
use weft_nvme::feature::{FeatureId, NumberOfQueues, SetFeatures};
use weft_nvme::identify::{
    self, Cns, ControllerAttributes, Identify, LbaFormat, NamespaceIdentifier, NamespaceList,
    OptionalAsynchronousEvents, SglSupport, push_descriptor,
};
use weft_nvme::property::{
    Capabilities, ControllerConfiguration, ControllerStatus, Offset, ShutdownNotification,
    ShutdownStatus, Version,
};
use weft_nvme::wire::{U16, U32, U64};
use weft_nvme::{AdminOpcode, Completion, FabricsType, Status, Wire};

/// A namespace of the peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerNamespace {
    pub(crate) blocks: u64,
    pub(crate) uuid: u8,
}

/// The controller.
#[derive(Debug)]
pub(crate) struct Peer {
    configuration: ControllerConfiguration,
    pub(crate) namespaces: BTreeMap<u32, PeerNamespace>,
    pub(crate) io_queues: u16,
    pub(crate) traffic_keeps_alive: bool,
    /// Reads of CSTS until the controller says that it is ready.
    pub(crate) ready_after: u32,
    status_reads: u32,
}

impl Peer {
    pub(crate) fn new() -> Self {
        let one = PeerNamespace { blocks: 1000, uuid: 1 };
        Self {
            configuration: ControllerConfiguration(0),
            namespaces: BTreeMap::from([(1, one), (7, PeerNamespace { blocks: 8, uuid: 7 })]),
            io_queues: 4,
            traffic_keeps_alive: false,
            ready_after: 1,
            status_reads: 0,
        }
    }

    /// Whether the controller answers this command only when something happens.
    pub(crate) fn is_held(command: &Command) -> bool {
        command.admin_opcode() == AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST
    }

    /// The answer to a command, and its data.
    pub(crate) fn answer(&mut self, command: &Command) -> (Completion, Vec<u8>) {
        let done = |result: u64| (Completion::new(0, Status::SUCCESS).with_result(result), vec![]);
        if let Some(fabrics_type) = command.fabrics_type() {
            return match fabrics_type {
                FabricsType::CONNECT => {
                    self.configuration = ControllerConfiguration(0);
                    done(ConnectResult(0).with_controller_id(5).0.into())
                }
                FabricsType::PROPERTY_GET => {
                    done(self.property(PropertyGet::from_command(command)))
                }
                FabricsType::PROPERTY_SET => {
                    self.set_property(PropertySet::from_command(command));
                    done(0)
                }
                _ => (Completion::new(0, Status::INVALID_OPCODE), vec![]),
            };
        }
        match command.admin_opcode() {
            AdminOpcode::IDENTIFY => self.identify(Identify::from_command(command)),
            AdminOpcode::SET_FEATURES => {
                let set = SetFeatures::from_command(command);
                match set.feature {
                    FeatureId::NUMBER_OF_QUEUES => {
                        done(NumberOfQueues::pairs(self.io_queues).0.into())
                    }
                    _ => done(0),
                }
            }
            AdminOpcode::GET_LOG_PAGE => {
                let (completion, _) = done(0);
                (completion, vec![0; 4096])
            }
            AdminOpcode::KEEP_ALIVE => done(0),
            _ => (Completion::new(0, Status::INVALID_OPCODE.with_dnr()), vec![]),
        }
    }

    fn property(&mut self, get: PropertyGet) -> u64 {
        match get.offset {
            Offset::CONTROLLER_CAPABILITIES => {
                Capabilities(0)
                    .with_nvm_command_set(true)
                    .with_timeout_500ms(4)
                    .with_maximum_queue_entries_supported(127)
                    .0
            }
            Offset::VERSION => Version::V2_1.0.into(),
            Offset::CONTROLLER_STATUS => {
                self.status_reads += 1;
                let ready = self.configuration.enable() && self.status_reads > self.ready_after;
                let shutdown = match self.configuration.shutdown_notification() {
                    ShutdownNotification::NONE => ShutdownStatus::NORMAL_OPERATION,
                    _ => ShutdownStatus::COMPLETE,
                };
                ControllerStatus(0).with_ready(ready).with_shutdown_status(shutdown).0.into()
            }
            _ => 0,
        }
    }

    fn set_property(&mut self, set: PropertySet) {
        if set.offset == Offset::CONTROLLER_CONFIGURATION {
            let [a, b, c, d, ..] = set.value.to_le_bytes();
            self.configuration = ControllerConfiguration(u32::from_le_bytes([a, b, c, d]));
            self.status_reads = 0;
        }
    }

    fn identify(&self, identify: Identify) -> (Completion, Vec<u8>) {
        let data = match identify.cns {
            Cns::CONTROLLER => Some(self.controller()),
            Cns::ACTIVE_NAMESPACE_LIST => {
                let above = self.namespaces.keys().filter(|nsid| **nsid > identify.namespace_id);
                Some(NamespaceList::new(above.copied()).bytes().to_vec())
            }
            Cns::NAMESPACE => self.namespaces.get(&identify.namespace_id).map(namespace),
            Cns::NAMESPACE_DESCRIPTOR_LIST => {
                self.namespaces.get(&identify.namespace_id).map(|namespace| {
                    let mut list = vec![0; identify::IDENTIFY_LENGTH];
                    let uuid = NamespaceIdentifier::Uuid([namespace.uuid; 16]);
                    push_descriptor(&mut list, uuid).expect("an empty list has room");
                    list
                })
            }
            _ => return (Completion::new(0, Status::INVALID_FIELD.with_dnr()), vec![]),
        };
        match data {
            Some(data) => (Completion::new(0, Status::SUCCESS), data),
            None => (Completion::new(0, Status::INVALID_NAMESPACE.with_dnr()), vec![]),
        }
    }

    fn controller(&self) -> Vec<u8> {
        let mut controller = identify::Controller::zeroed();
        controller.controller_id = U16::new(5);
        controller.maximum_data_transfer_size = 1;
        controller.io_command_capsule_16b = U32::new(4 + 512);
        controller.io_response_capsule_16b = U32::new(1);
        controller.keep_alive_granularity_100ms = U16::new(1);
        controller.sgl_support = U32::new(SglSupport(0).with_supported(1).0);
        let attributes =
            ControllerAttributes(0).with_traffic_based_keep_alive(self.traffic_keeps_alive);
        controller.attributes = U32::new(attributes.0);
        let events = OptionalAsynchronousEvents(0).with_namespace_attribute(true);
        controller.optional_asynchronous_events = U32::new(events.0);
        controller.bytes().to_vec()
    }
}

fn namespace(namespace: &PeerNamespace) -> Vec<u8> {
    let mut data = identify::Namespace::zeroed();
    data.size = U64::new(namespace.blocks);
    data.capacity = U64::new(namespace.blocks);
    data.lba_formats[0] = LbaFormat::new(9);
    data.bytes().to_vec()
}
