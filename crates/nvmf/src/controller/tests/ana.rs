use weft_nvme::event::Event;
use weft_nvme::feature::{AsynchronousEventConfiguration, FeatureId, GetFeatures, SetFeatures};
use weft_nvme::identify::{self, Cns, Identify, IndependentNamespace};
use weft_nvme::log_page::{
    AsymmetricNamespaceAccessHeader, AsymmetricNamespaceAccessState as State, GetLogPage,
    GroupDescriptor, Groups, LogPageId, SupportedLogPages,
};
use weft_nvme::{AdminOpcode, Status, Wire};

use super::*;
use crate::ana::AnaView;

const PORT: u16 = 2;
const PAGE: u32 = 1024;

/// Namespaces 1 and 2 in group 1, and 3 in group 3, with these states at the port; another port
/// has others.
fn view_of(first: State, third: State) -> SubsystemView {
    let mut view = view(&[1, 2, 3]);
    view.namespaces.get_mut(3).expect("there").ana_group = 3;
    let there = [(1, first), (3, third)].into_iter().collect();
    let elsewhere = [(1, State::CHANGE), (3, State::CHANGE)].into_iter().collect();
    view.ana = Some(Arc::new(AnaView::from_iter([(PORT, there), (1, elsewhere)])));
    view
}

fn enabled_at_port(view: SubsystemView) -> Controller {
    let mut controller = controller_of(view).at_port(PORT);
    configure(&mut controller, ENABLE);
    controller
}

fn page(controller: &mut Controller, groups_only: bool) -> Vec<u8> {
    let mut get = GetLogPage::new(LogPageId::ASYMMETRIC_NAMESPACE_ACCESS, 0, PAGE);
    get.specific_parameter = u8::from(groups_only);
    data(controller, get.to_command(), PAGE)
}

/// Change Count, and each group with its namespaces.
fn groups(page: &[u8]) -> (u64, Vec<(GroupDescriptor, Vec<u32>)>) {
    let header = AsymmetricNamespaceAccessHeader::view(page).expect("a header");
    let groups = Groups::new(page).expect("a log page").map(|group| {
        let (group, nsids) = group.expect("a group");
        (group, nsids.collect())
    });
    (header.change_count.get(), groups.collect())
}

fn identified(controller: &mut Controller, cns: Cns, nsid: u32) -> Vec<u8> {
    let identify = Identify { cns, namespace_id: nsid, ..Identify::default() };
    data(controller, identify.to_command(), 4096)
}

fn wait_for_event(controller: &mut Controller, command_id: u16) {
    let request = Command::new(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST);
    let reply = controller.handle_command(&request.with_command_id(command_id), &[], NOW);
    assert_eq!(reply, AdminReply::Pending);
}

#[test]
fn a_host_is_told_what_there_is() {
    let mut controller = enabled_at_port(view_of(State::OPTIMIZED, State::INACCESSIBLE));
    let bytes = identified(&mut controller, Cns::CONTROLLER, 0);
    let told = identify::Controller::read(&bytes).expect("4096 bytes");
    assert!(told.multipath.asymmetric_namespace_access());
    assert_eq!(told.optional_asynchronous_events.get() & 1 << 11, 1 << 11);
    assert_eq!((told.ana_transition_time_s, told.ana_capabilities.0), (10, 0x1f));
    let numbers = (told.ana_group_id_max.get(), told.ana_groups.get());
    assert_eq!(numbers, (1024, 1024));
    assert_eq!(told.maximum_allowed_namespaces.get(), 1024);
    for (nsid, group, used) in [(1, 1, 1024), (2, 1, 1024), (3, 3, 0)] {
        let bytes = identified(&mut controller, Cns::NAMESPACE, nsid);
        let told = identify::Namespace::read(&bytes).expect("4096 bytes");
        assert_eq!((told.ana_group_id.get(), told.size.get()), (group, 1024));
        assert_eq!(told.utilization.get(), used, "namespace {nsid}");
        let bytes = identified(&mut controller, Cns::INDEPENDENT_NAMESPACE, nsid);
        let told = IndependentNamespace::read(&bytes).expect("4096 bytes");
        assert_eq!(told.ana_group_id.get(), group);
    }
    let get = GetLogPage::new(LogPageId::SUPPORTED_LOG_PAGES, 0, 1024);
    let bytes = data(&mut controller, get.to_command(), 1024);
    let supported = SupportedLogPages::read(&bytes).expect("1024 bytes");
    assert!(supported.get(LogPageId::ASYMMETRIC_NAMESPACE_ACCESS).supported());
}

/// Features of a namespace that is not to be reached are refused as its I/O commands are.
#[test]
fn features_of_a_group_that_cannot_be_reached_are_refused() {
    let mut controller = enabled_at_port(view_of(State::NON_OPTIMIZED, State::INACCESSIBLE));
    for feature in [FeatureId::ERROR_RECOVERY, FeatureId::NAMESPACE_WRITE_PROTECTION] {
        let set = |nsid| SetFeatures::new(feature, 0).to_command().with_namespace_id(nsid);
        let get = |nsid| GetFeatures::new(feature).to_command().with_namespace_id(nsid);
        assert_eq!(refused(&mut controller, &set(3)), Status::ANA_INACCESSIBLE);
        assert_eq!(refused(&mut controller, &get(3)), Status::ANA_INACCESSIBLE);
        let reply = controller.handle_command(&get(1), &[], NOW);
        assert!(matches!(reply, AdminReply::Complete(done) if done.status().is_success()));
    }
}

#[test]
fn a_host_of_a_subsystem_without_sees_nothing() {
    let mut controller = enabled();
    let bytes = identified(&mut controller, Cns::CONTROLLER, 0);
    let told = identify::Controller::read(&bytes).expect("4096 bytes");
    assert!(!told.multipath.asymmetric_namespace_access());
    assert_eq!(told.optional_asynchronous_events.get() & 1 << 11, 0);
    let ana = (told.ana_capabilities.0, told.ana_group_id_max.get(), told.ana_groups.get());
    assert_eq!(ana, (0, 0, 0));
    let bytes = identified(&mut controller, Cns::NAMESPACE, 1);
    let told = identify::Namespace::read(&bytes).expect("4096 bytes");
    assert_eq!(told.ana_group_id.get(), 0);
    let value = AsynchronousEventConfiguration(0).with_asymmetric_namespace_access_change(true);
    let set = SetFeatures::new(FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION, value.0);
    assert_eq!(refused(&mut controller, &set.to_command()), Status::INVALID_FIELD.with_dnr());
}

#[test]
fn the_log_page_has_the_states_of_the_port() {
    let mut controller = enabled_at_port(view_of(State::NON_OPTIMIZED, State::PERSISTENT_LOSS));
    let group = |id, state, count, changed| GroupDescriptor::new(id, state, changed, count);
    let expected = vec![
        (group(1, State::NON_OPTIMIZED, 2, 0), vec![1, 2]),
        (group(3, State::PERSISTENT_LOSS, 1, 0), vec![3]),
    ];
    assert_eq!(groups(&page(&mut controller, false)), (0, expected));
    let expected = vec![
        (group(1, State::NON_OPTIMIZED, 0, 0), vec![]),
        (group(3, State::PERSISTENT_LOSS, 0, 0), vec![]),
    ];
    assert_eq!(groups(&page(&mut controller, true)), (0, expected));
}

#[test]
fn a_change_is_counted_and_raises_an_event() {
    let mut controller = enabled_at_port(view_of(State::OPTIMIZED, State::OPTIMIZED));
    let event = Event::ASYMMETRIC_NAMESPACE_ACCESS_CHANGE.0;
    wait_for_event(&mut controller, 1);
    wait_for_event(&mut controller, 2);
    controller.replace_view(Arc::new(view_of(State::OPTIMIZED, State::CHANGE)));
    assert_eq!(late(&mut controller), [(1, Status::SUCCESS, event)]);
    controller.replace_view(Arc::new(view_of(State::OPTIMIZED, State::INACCESSIBLE)));
    assert_eq!(late(&mut controller), [], "masked until the log page is read");
    let (count, now) = groups(&page(&mut controller, false));
    let changed: Vec<u64> = now.iter().map(|(group, _)| group.change_count.get()).collect();
    assert_eq!((count, changed), (2, vec![0, 2]));
    // What changes at another port is no news here.
    let mut other = view_of(State::OPTIMIZED, State::INACCESSIBLE);
    let there = [(1, State::OPTIMIZED), (3, State::INACCESSIBLE)].into_iter().collect();
    other.ana = Some(Arc::new(AnaView::from_iter([(PORT, there)])));
    controller.replace_view(Arc::new(other.clone()));
    assert_eq!(late(&mut controller), []);
    // A namespace that goes has an event of its own; one that moves has both.
    other.namespaces = other.namespaces.iter().filter(|one| one.nsid != 2).copied().collect();
    controller.replace_view(Arc::new(other.clone()));
    let attribute = Event::NAMESPACE_ATTRIBUTE_CHANGED.0;
    assert_eq!(late(&mut controller), [(2, Status::SUCCESS, attribute)]);
    wait_for_event(&mut controller, 3);
    other.namespaces.get_mut(1).expect("there").ana_group = 3;
    controller.replace_view(Arc::new(other));
    assert_eq!(late(&mut controller), [(3, Status::SUCCESS, event)]);
    assert_eq!(groups(&page(&mut controller, false)).0, 4);
    // The counts begin anew with a reset.
    configure(&mut controller, ControllerConfiguration(0));
    effects(&mut controller);
    configure(&mut controller, ENABLE);
    assert_eq!(groups(&page(&mut controller, false)).0, 0);
}
