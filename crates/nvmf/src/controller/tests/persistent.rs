use weft_nvme::feature::{FeatureId, SetFeatures};
use weft_nvme::identify::{self, Cns, FormattedLbaSize, Identify};
use weft_nvme::log_page::{
    ChangeNamespace, ControllerReset, GetLogPage, LogPageId, PersistentEvent,
    PersistentEventAction, PersistentEventHeader, PersistentEventType, PersistentEvents,
    ReportingContext, SupportedLogPages,
};
use weft_nvme::property::magic;
use weft_nvme::wire::U64;
use weft_nvme::{AdminOpcode, Wire};

use super::*;
use crate::subsystem::HostNamespaces;

const READ: PersistentEventAction = PersistentEventAction::READ;
const ESTABLISH: PersistentEventAction = PersistentEventAction::ESTABLISH_AND_READ;
const HEADER: PersistentEventAction = PersistentEventAction::ESTABLISH_AND_READ_HEADER;
const SEQUENCE: Status = Status::COMMAND_SEQUENCE_ERROR.with_dnr();

fn get(action: PersistentEventAction, offset: u64, length: u32) -> Command {
    let get = GetLogPage::new(LogPageId::PERSISTENT_EVENT_LOG, offset, length);
    let command = GetLogPage { specific_parameter: action.0, ..get }.to_command();
    command.with_data_pointer(Descriptor::transport(length))
}

fn header(controller: &mut Controller, action: PersistentEventAction) -> PersistentEventHeader {
    let bytes = data(controller, get(action, 0, 512), 512);
    PersistentEventHeader::read(&bytes).expect("512 bytes")
}

fn release(controller: &mut Controller) {
    let mut command = get(PersistentEventAction::RELEASE, 0, 512);
    assert_eq!(result(controller, &command), 0);
    command.data_pointer = Command::new(AdminOpcode::GET_LOG_PAGE).data_pointer;
    assert_eq!(result(controller, &command), 0, "no data is asked for, and none needs to be");
}

/// The events in a new context, newest first: type, controller, and data.
fn events(controller: &mut Controller) -> Vec<(PersistentEventType, u16, Vec<u8>)> {
    let header = header(controller, ESTABLISH);
    let length = u32::try_from(header.length.get()).expect("small");
    let page = data(controller, get(READ, 0, length), length);
    release(controller);
    let events = PersistentEvents::new(&page[512..]).map(|event| {
        let (event, data) = event.expect("whole");
        assert_eq!(event.information.port_type(), PersistentEvent::SUBSYSTEM_PORT);
        (event.kind, event.controller_id.get(), data.to_vec())
    });
    let events: Vec<_> = events.collect();
    assert_eq!(events.len(), header.events.get() as usize);
    events
}

#[test]
fn the_log_is_read_in_a_context_of_the_controller() {
    let view = view(&[1]);
    let mut other = enabled_of(view.clone());
    let mut controller = enabled_of(view).at_port(5);
    assert_eq!(refused(&mut controller, &get(READ, 0, 512)), SEQUENCE);
    let beyond = refused(&mut controller, &get(ESTABLISH, 1 << 20, 4));
    assert_eq!(beyond, Status::INVALID_FIELD.with_dnr());
    let first = header(&mut controller, ESTABLISH);
    assert_eq!(first.log_page, LogPageId::PERSISTENT_EVENT_LOG);
    assert_eq!((first.events.get(), first.length.get()), (0, 512));
    assert_eq!((first.generation.get(), first.power_cycles.get()), (1, 1));
    assert_eq!(first.serial_number.raw_text(), Some("WEFT0001"));
    assert_eq!(first.subsystem_nqn[..3], *b"nqn");
    assert_eq!(first.supported[..3], [0x70, 0x08, 0], "types 4, 5, 6 and 11");
    assert_eq!(first.reporting_context.get(), 0, "there was none before");
    assert_eq!(refused(&mut controller, &get(ESTABLISH, 0, 512)), SEQUENCE);

    // Another controller's reset is in no context that was there before it.
    configure(&mut other, ENABLE.with_enable(false));
    for action in [READ, HEADER] {
        let same = header(&mut controller, action);
        let context = ReportingContext(same.reporting_context.get());
        assert_eq!((context.exists(), context.port_type(), context.port_id()), (true, 1, 5));
        assert_eq!(PersistentEventHeader { reporting_context: 0.into(), ..same }, first);
    }
    release(&mut controller);
    release(&mut controller);
    assert_eq!(refused(&mut controller, &get(READ, 0, 512)), SEQUENCE);
    let next = header(&mut controller, HEADER);
    assert_eq!((next.events.get(), next.generation.get()), (1, 2));
    assert_eq!(next.reporting_context.get(), 0);
    let whole = data(&mut controller, get(HEADER, 0, 516), 516);
    assert_eq!(whole[512..], [0; 4], "no more than the header");
    let event = data(&mut controller, get(READ, 512, 24), 24);
    assert_eq!(event[0], PersistentEventType::POWER_ON_OR_RESET.0);

    // A reset of the controller ends its context.
    configure(&mut controller, ENABLE.with_enable(false));
    configure(&mut controller, ENABLE);
    assert_eq!(refused(&mut controller, &get(READ, 0, 512)), SEQUENCE);
}

#[test]
fn the_log_is_shown_as_supported() {
    let mut controller = enabled();
    let bytes = data(&mut controller, Identify::new(Cns::CONTROLLER, 0).to_command(), 4096);
    let identified = identify::Controller::read(&bytes).expect("4096 bytes");
    assert!(identified.log_page_attributes.persistent_event());
    assert_eq!(identified.persistent_event_log_64k.get(), 1);
    let command = GetLogPage::new(LogPageId::SUPPORTED_LOG_PAGES, 0, 1024).to_command();
    let bytes = data(&mut controller, command, 1024);
    let supported = SupportedLogPages::read(&bytes).expect("1024 bytes");
    let own = supported.get(LogPageId::PERSISTENT_EVENT_LOG);
    assert_eq!((own.supported(), own.specific()), (true, 1));
}

#[test]
fn resets_are_recorded_with_their_controllers() {
    let mut view = view(&[1]);
    view.limits.subsystem_reset = true;
    let mut controller = enabled_of(view.clone());
    let mut second = Controller::new(Arc::new(view), &request(0, 31, 0xffff), 10, LOCAL, NOW);
    configure(&mut second, ENABLE);
    configure(&mut second, ENABLE.with_enable(false));
    let (offset, value) = (Offset::NVM_SUBSYSTEM_RESET, magic::SUBSYSTEM_RESET);
    let reset = PropertySet::new(offset, PropertySize::Four, value.into()).to_command();
    assert_eq!(refused(&mut controller, &reset), Status::SUCCESS);
    configure(&mut controller, ENABLE);
    let events = events(&mut controller);
    let named = |data: &[u8]| -> Vec<u16> {
        assert_eq!(data[..8], *b"0.1     ");
        let resets = data[8..].chunks(ControllerReset::SIZE);
        let id = |bytes| ControllerReset::read(bytes).expect("36 bytes").controller_id.get();
        resets.map(id).collect()
    };
    assert_eq!(events.len(), 2, "the subsystem's reset is one event");
    let kind = PersistentEventType::POWER_ON_OR_RESET;
    assert_eq!((events[0].0, events[0].1, named(&events[0].2)), (kind, 9, vec![9, 10]));
    assert_eq!((events[1].0, events[1].1, named(&events[1].2)), (kind, 10, vec![10]));
}

#[test]
fn features_of_all_controllers_are_recorded_once_they_are_set() {
    let mut controller = enabled();
    let set = |feature| SetFeatures { namespace_id: 1, ..SetFeatures::new(feature, 1) };
    for (feature, status) in [
        (FeatureId::NAMESPACE_WRITE_PROTECTION, Status::SUCCESS),
        (FeatureId::NAMESPACE_WRITE_PROTECTION, Status::WRITE_FAULT),
        (FeatureId::RESERVATION_PERSISTENCE, Status::SUCCESS),
        // Only of this controller.
        (FeatureId::ERROR_RECOVERY, Status::SUCCESS),
    ] {
        handle(&mut controller, &set(feature).to_command());
        controller.handle_event(ControllerEvent::FeatureDone { command_id: CID, status });
    }
    let data = |feature: FeatureId| vec![2, 0, 0, 0, feature.0, 0, 0, 0, 1, 0, 0, 0];
    let event = |feature| (PersistentEventType::SET_FEATURE, CONTROLLER_ID, data(feature));
    let persistence = event(FeatureId::RESERVATION_PERSISTENCE);
    let protection = event(FeatureId::NAMESPACE_WRITE_PROTECTION);
    assert_eq!(events(&mut controller), [persistence, protection]);
}

#[test]
fn namespaces_that_hosts_make_and_delete_are_recorded() {
    let all = view(&[1, 3, 5]).namespaces;
    let own = HostNamespaces { allocated: all, made: [3, 5].into(), capacity_bytes: 2 << 20 };
    let own = SubsystemView { host_namespaces: Some(Arc::new(own)), ..view(&[1, 3]) };
    let mut controller = enabled_of(own);
    let mut run = |nsid: u32, select: u32, data: &[u8], result| {
        let command = Command::new(AdminOpcode::NAMESPACE_MANAGEMENT)
            .with_namespace_id(nsid)
            .with_cdw10(select)
            .with_command_id(CID)
            .with_data_pointer(Descriptor::transport(4096));
        controller.handle_command(&command, data, NOW);
        controller.handle_event(ControllerEvent::NamespacesChanged { command_id: CID, result });
    };
    let mut wanted = identify::Namespace::zeroed();
    (wanted.size, wanted.capacity) = (U64::new(16), U64::new(16));
    wanted.formatted_lba_size = FormattedLbaSize(1);
    run(0, 0, wanted.bytes(), Ok(5));
    run(0, 0, wanted.bytes(), Err(Status::INTERNAL_ERROR));
    run(3, 1, &[], Ok(0));
    run(u32::MAX, 1, &[], Ok(0));
    let events: Vec<_> = events(&mut controller)
        .iter()
        .map(|(kind, _, data)| {
            assert_eq!((*kind, data.len()), (PersistentEventType::CHANGE_NAMESPACE, 48));
            ChangeNamespace::read(data).expect("48 bytes")
        })
        .collect();
    let seen = |event: &ChangeNamespace| {
        let (select, nsid) = (event.cdw10.get(), event.namespace_id.get());
        (select, nsid, event.size.get(), event.formatted_lba_size)
    };
    let seen: Vec<_> = events.iter().map(seen).collect();
    assert_eq!(seen, [(1, u32::MAX, 0, 0), (1, 3, 1024, 0), (0, 5, 16, 1)]);
}
