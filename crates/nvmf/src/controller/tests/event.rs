use weft_nvme::AdminOpcode;
use weft_nvme::event::Event;
use weft_nvme::feature::{
    AsynchronousEventConfiguration, FeatureId, SetFeatures, TemperatureThreshold,
};
use weft_nvme::log_page::{GetLogPage, LogPageId};

use super::*;

fn event_request(controller: &mut Controller, command_id: u16) -> AdminReply {
    let command = Command::new(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST).with_command_id(command_id);
    controller.handle_command(&command, &[], NOW)
}

fn read_log(controller: &mut Controller, log_page: LogPageId, length: u32, retain_event: bool) {
    let get = GetLogPage { retain_event, ..GetLogPage::new(log_page, 0, length) };
    data(controller, get.to_command(), length);
}

const CHANGED: LogPageId = LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST;

fn changed_list(controller: &mut Controller, retain_event: bool) -> Vec<u32> {
    let get = GetLogPage { retain_event, ..GetLogPage::new(CHANGED, 0, 4096) };
    let bytes = data(controller, get.to_command(), 4096);
    let ids = bytes.chunks_exact(4).map(|id| u32::from_le_bytes(id.try_into().expect("four")));
    ids.take_while(|id| *id != 0).collect()
}

const NAMESPACES_CHANGED: u32 = Event::NAMESPACE_ATTRIBUTE_CHANGED.0;

#[test]
fn a_changed_namespace_is_told_once_until_the_list_is_read() {
    let mut controller = enabled();
    assert_eq!(event_request(&mut controller, 1), AdminReply::Pending);
    assert_eq!(event_request(&mut controller, 2), AdminReply::Pending);
    controller.replace_view(Arc::new(view(&[1, 3, 4])));
    assert_eq!(late(&mut controller), [(1, Status::SUCCESS, NAMESPACES_CHANGED)]);
    assert_eq!(NAMESPACES_CHANGED, 0x0004_0002);
    controller.replace_view(Arc::new(view(&[1, 4])));
    assert_eq!(late(&mut controller), [], "masked");
    assert_eq!(changed_list(&mut controller, true), [3, 4], "retained");
    controller.replace_view(Arc::new(view(&[1])));
    assert_eq!(late(&mut controller), [], "still masked");
    assert_eq!(changed_list(&mut controller, false), [3, 4]);
    assert_eq!(changed_list(&mut controller, false), [], "the read cleared it");
    controller.replace_view(Arc::new(view(&[1, 2])));
    assert_eq!(late(&mut controller), [(2, Status::SUCCESS, NAMESPACES_CHANGED)]);
    assert_eq!(changed_list(&mut controller, false), [2]);
}

#[test]
fn a_resize_and_protection_are_changes_and_a_new_device_is_not() {
    for (change, told) in [
        ((|n| n.blocks *= 2) as fn(&mut crate::subsystem::NamespaceView), true),
        (|n| n.write_protected = true, true),
        (|n| n.device = 77, false),
        (|_| (), false),
    ] {
        let mut controller = enabled();
        event_request(&mut controller, 1);
        let mut new = view(&[1, 3]);
        change(new.namespaces.get_mut(3).expect("there"));
        controller.replace_view(Arc::new(new));
        assert_eq!(!late(&mut controller).is_empty(), told);
        assert_eq!(changed_list(&mut controller, false), if told { vec![3] } else { vec![] });
    }
}

#[test]
fn an_event_waits_for_its_request() {
    let mut controller = enabled();
    controller.replace_view(Arc::new(view(&[1])));
    assert_eq!(late(&mut controller), []);
    assert_eq!(event_request(&mut controller, 5), AdminReply::Pending);
    assert_eq!(late(&mut controller), [(5, Status::SUCCESS, NAMESPACES_CHANGED)]);
    controller.replace_view(Arc::new(view(&[1, 2])));
    assert_eq!(changed_list(&mut controller, false), [2, 3]);
    event_request(&mut controller, 6);
    assert_eq!(late(&mut controller), [], "what was read is not told");
}

#[test]
fn events_are_told_to_those_who_want_them() {
    let mut controller = enabled();
    event_request(&mut controller, 1);
    let feature = FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION;
    result(&mut controller, &SetFeatures::new(feature, 0).to_command());
    controller.replace_view(Arc::new(view(&[1])));
    assert_eq!(late(&mut controller), []);
    assert_eq!(changed_list(&mut controller, false), [3], "the list is kept all the same");
    result(&mut controller, &SetFeatures::new(feature, 0x100).to_command());
    controller.replace_view(Arc::new(view(&[1, 9])));
    assert_eq!(late(&mut controller), [(1, Status::SUCCESS, NAMESPACES_CHANGED)]);
}

#[test]
fn requests_are_limited_and_have_their_own_identifiers() {
    let mut controller = enabled();
    for command_id in 0..4 {
        assert_eq!(event_request(&mut controller, command_id), AdminReply::Pending);
    }
    let conflict = event_request(&mut controller, 3);
    assert_eq!(status_of(&conflict), Status::COMMAND_ID_CONFLICT.with_dnr());
    let beyond = event_request(&mut controller, 4);
    assert_eq!(status_of(&beyond), Status::ASYNCHRONOUS_EVENT_LIMIT_EXCEEDED);
    controller.replace_view(Arc::new(view(&[1])));
    assert_eq!(late(&mut controller), [(0, Status::SUCCESS, NAMESPACES_CHANGED)]);
    assert_eq!(event_request(&mut controller, 4), AdminReply::Pending);
}

#[test]
fn requests_get_no_answer_after_a_shutdown_but_at_a_reset() {
    let mut controller = enabled();
    event_request(&mut controller, 1);
    event_request(&mut controller, 2);
    configure(&mut controller, with_shutdown(ShutdownNotification::NORMAL));
    assert_eq!(late(&mut controller), [], "the host may have given them up");
    configure(&mut controller, ControllerConfiguration(0));
    let aborted = Status::ABORT_REQUESTED;
    assert_eq!(late(&mut controller), [(1, aborted, 0), (2, aborted, 0)]);
}

/// What SPDK's host does before it shuts a controller down or disables it.
#[test]
fn requests_are_given_up_by_a_fabrics_command_with_the_identifier_of_one() {
    for end in [with_shutdown(ShutdownNotification::NORMAL), ControllerConfiguration(0)] {
        let mut controller = enabled();
        event_request(&mut controller, CID - 1);
        event_request(&mut controller, 0);
        status(&mut controller);
        assert_eq!(given_up(&mut controller).len(), 2, "their slots are free");
        controller.replace_view(Arc::new(view(&[1])));
        configure(&mut controller, end);
        assert_eq!(late(&mut controller), []);
        configure(&mut controller, ControllerConfiguration(0));
        assert_eq!(late(&mut controller), []);
        configure(&mut controller, ENABLE);
        assert_eq!(event_request(&mut controller, 0), AdminReply::Pending);
        controller.replace_view(Arc::new(view(&[1, 3])));
        assert_eq!(late(&mut controller), [(0, Status::SUCCESS, NAMESPACES_CHANGED)]);
    }
}

#[test]
fn lost_writes_are_reported_until_their_namespace_is_removed() {
    let mut controller = enabled();
    let sound = Arc::clone(&controller.view);
    let nsids: Vec<u32> = sound.namespaces.iter().map(|namespace| namespace.nsid).collect();
    let lost = |nsid| {
        let mut view = SubsystemView::clone(&sound);
        view.namespaces.get_mut(nsid).expect("a namespace").lost_writes = true;
        Arc::new(view)
    };
    let warning = |controller: &mut Controller, retain| {
        let get = GetLogPage { retain_event: retain, ..GetLogPage::new(LogPageId::HEALTH, 0, 512) };
        data(controller, get.to_command(), 512)[0]
    };
    event_request(&mut controller, 1);
    event_request(&mut controller, 2);
    event_request(&mut controller, 3);
    controller.replace_view(lost(nsids[0]));
    assert_eq!(late(&mut controller), [], "the host has not enabled the warning");
    assert_eq!(warning(&mut controller, true), 0x04);
    let warnings = AsynchronousEventConfiguration(0).with_critical_warnings(4);
    let feature = FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION;
    result(&mut controller, &SetFeatures::new(feature, warnings.0).to_command());
    assert_eq!(late(&mut controller), [(1, Status::SUCCESS, 0x0002_0001)]);
    warning(&mut controller, false);
    controller.replace_view(lost(nsids[0]));
    assert_eq!(late(&mut controller), [], "nothing new");
    controller.replace_view(lost(nsids[1]));
    assert_eq!(late(&mut controller), [(2, Status::SUCCESS, 0x0002_0001)], "another namespace");
    controller.replace_view(sound);
    assert_eq!(warning(&mut controller, false), 0);
}

#[test]
fn a_temperature_beyond_its_threshold_is_told() {
    let mut controller = enabled();
    event_request(&mut controller, 1);
    event_request(&mut controller, 2);
    let over = |kelvins| TemperatureThreshold(0).with_threshold_k(kelvins).0;
    let set = |value| SetFeatures::new(FeatureId::TEMPERATURE_THRESHOLD, value).to_command();
    let under = TemperatureThreshold(over(298)).with_raw_threshold_type(1).0;
    result(&mut controller, &set(over(298)));
    assert_eq!(late(&mut controller), [], "the host has not enabled the warning");
    let warnings = AsynchronousEventConfiguration(0).with_critical_warnings(2);
    let feature = FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION;
    result(&mut controller, &SetFeatures::new(feature, warnings.0).to_command());
    assert_eq!(late(&mut controller), [(1, Status::SUCCESS, 0x0002_0101)]);
    result(&mut controller, &set(over(299)));
    read_log(&mut controller, LogPageId::HEALTH, 512, false);
    assert_eq!(late(&mut controller), [], "not too hot");
    result(&mut controller, &set(under));
    assert_eq!(late(&mut controller), [(2, Status::SUCCESS, 0x0002_0101)], "too cold");
}
