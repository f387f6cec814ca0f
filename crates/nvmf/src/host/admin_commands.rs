//! The admin commands that the host core itself sends.

use weft_nvme::feature::{AsynchronousEventConfiguration, FeatureId, NumberOfQueues, SetFeatures};
use weft_nvme::identify::{Cns, IDENTIFY_LENGTH, Identify, OptionalAsynchronousEvents};
use weft_nvme::log_page::{ChangedNamespaceList, GetLogPage, LogPageId};
use weft_nvme::{Command, Wire};

use super::admin_queue::AdminData;

type Request = (Command, AdminData);

fn identify(cns: Cns, nsid: u32) -> Request {
    let length = u32::try_from(IDENTIFY_LENGTH).unwrap_or(u32::MAX);
    (Identify::new(cns, nsid).to_command(), AdminData::FromController(length))
}

pub(super) fn identify_controller() -> Request {
    identify(Cns::CONTROLLER, 0)
}

/// Identify Controller of the NVM command set (CSI 00h).
pub(super) fn identify_nvm_controller() -> Request {
    identify(Cns::COMMAND_SET_CONTROLLER, 0)
}

/// The active namespaces above this one.
pub(super) fn list_namespaces(after: u32) -> Request {
    identify(Cns::ACTIVE_NAMESPACE_LIST, after)
}

pub(super) fn identify_namespace(nsid: u32) -> Request {
    identify(Cns::NAMESPACE, nsid)
}

pub(super) fn describe_namespace(nsid: u32) -> Request {
    identify(Cns::NAMESPACE_DESCRIPTOR_LIST, nsid)
}

pub(super) fn changed_namespaces() -> Request {
    let length = u32::try_from(ChangedNamespaceList::SIZE).unwrap_or(u32::MAX);
    let get = GetLogPage::new(LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST, 0, length);
    // For the whole controller, as Linux asks for it.
    let get = GetLogPage { namespace_id: weft_nvme::command::NAMESPACE_ID_BROADCAST, ..get };
    (get.to_command(), AdminData::FromController(length))
}

/// The Asymmetric Namespace Access log page, which has so many bytes at most.
pub(super) fn access_log(length: u32) -> Request {
    let get =
        GetLogPage::new(LogPageId::ASYMMETRIC_NAMESPACE_ACCESS, 0, length.next_multiple_of(4));
    (get.to_command(), AdminData::FromController(length.next_multiple_of(4)))
}

pub(super) fn set_queue_count(count: u16) -> Request {
    // 65535 as a 0's based count is not allowed to be asked for.
    let count = NumberOfQueues::pairs(count.clamp(1, u16::MAX - 1));
    (SetFeatures::new(FeatureId::NUMBER_OF_QUEUES, count.0).to_command(), AdminData::None)
}

/// Queue pairs that the controller granted, by dword 0 of its completion.
pub(super) fn granted_queues(dword0: u32) -> u16 {
    u16::try_from(NumberOfQueues(dword0).queue_pairs()).unwrap_or(u16::MAX)
}

/// Asks for those of the events that are offered which the host acts upon or hands on; `None`
/// where there are none.
pub(super) fn set_event_configuration(offered: OptionalAsynchronousEvents) -> Option<Request> {
    let wanted = AsynchronousEventConfiguration(0)
        .with_namespace_attribute(offered.namespace_attribute())
        .with_firmware_activation(offered.firmware_activation())
        .with_asymmetric_namespace_access_change(offered.asymmetric_namespace_access_change())
        .with_subsystem_shutdown(offered.subsystem_shutdown())
        .with_discovery_log_change(offered.discovery_log_change());
    if wanted == AsynchronousEventConfiguration(0) {
        return None;
    }
    let set = SetFeatures::new(FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION, wanted.0);
    Some((set.to_command(), AdminData::None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_counts_are_0s_based_on_the_wire() {
        let (command, data) = set_queue_count(4);
        assert_eq!((command.cdw10.get(), command.cdw11.get()), (7, 0x0003_0003));
        assert_eq!(data, AdminData::None);
        assert_eq!(set_queue_count(0).0.cdw11.get(), 0);
        assert_eq!(set_queue_count(u16::MAX).0.cdw11.get(), 0xfffd_fffd);
        assert_eq!(granted_queues(0x0001_0003), 2);
        assert_eq!(granted_queues(u32::MAX), u16::MAX);
    }

    #[test]
    fn only_events_that_are_offered_are_asked_for() {
        assert_eq!(set_event_configuration(OptionalAsynchronousEvents(0)), None);
        let offered = OptionalAsynchronousEvents(u32::MAX);
        let (command, _) = set_event_configuration(offered).unwrap();
        assert_eq!((command.cdw10.get(), command.cdw11.get()), (0x0b, 0x8000_8b00));
        let linux = OptionalAsynchronousEvents(0x900);
        assert_eq!(set_event_configuration(linux).unwrap().0.cdw11.get(), 0x900);
    }
}
