use weft_nvme::discovery_information::{
    DiscoveryTask, EntityType, EntryKeyType, ExtendedAttribute, ExtendedAttributeType,
};
use weft_nvme::event::Event;
use weft_nvme::feature::{FeatureId, GetFeatures, SetFeatures};
use weft_nvme::identify::{self, Cns, ControllerType, DiscoveryControllerType, Identify};
use weft_nvme::log_page::{DiscoveryEntry as Wired, GetLogPage, LogPageId};
use weft_nvme::wire::U16;
use weft_nvme::{AdminOpcode, Wire};

use super::*;
use crate::discovery::tests::counted_entries;
use crate::discovery::{DiscoveryEntry, DiscoveryView, EntryKind};
use crate::registration::{Change, Entity, RegisteredEntry};
use crate::subsystem::SubsystemKind;
use crate::subsystem::test_support::{HOST, SUBSYSTEM, nqn};

fn discovery_view(generation: u64, entries: Vec<DiscoveryEntry>) -> SubsystemView {
    SubsystemView {
        nqn: nqn("nqn.2024-01.io.weft:discovery"),
        kind: SubsystemKind::Discovery(Arc::new(DiscoveryView {
            generation,
            entries: entries.into(),
            ..DiscoveryView::default()
        })),
        ..view(&[])
    }
}

fn entries() -> Vec<DiscoveryEntry> {
    let wildcard = "0.0.0.0".parse().expect("an address");
    let visible = DiscoveryEntry::tcp(EntryKind::Nvm, nqn(SUBSYSTEM), wildcard, 4420);
    let hidden = DiscoveryEntry {
        allowed_hosts: Some(Arc::new([nqn("nqn.other")].into())),
        ..DiscoveryEntry::tcp(EntryKind::Nvm, nqn("nqn.hidden"), wildcard, 4420)
    };
    vec![visible, hidden]
}

fn discovery_of(keep_alive_timeout_ms: u32) -> Controller {
    let request = ConnectRequest {
        subsystem: Nqn::DISCOVERY,
        keep_alive_timeout_ms,
        ..request(0, 31, 0xffff)
    };
    let subsystem = discovery_view(7, entries());
    assert_eq!(request.check_admin(&subsystem), Ok(()), "by the well-known name");
    let mut controller = Controller::new(Arc::new(subsystem), &request, 1, LOCAL, NOW);
    configure(&mut controller, ENABLE);
    controller
}

pub(super) fn enabled_discovery() -> Controller {
    discovery_of(0)
}

const LOG: LogPageId = LogPageId::DISCOVERY;

#[test]
fn it_says_that_it_is_a_discovery_controller() {
    let command = Identify::new(Cns::CONTROLLER, 0).to_command();
    let bytes = data(&mut enabled_discovery(), command, 4096);
    let identified = identify::Controller::read(&bytes).expect("4096 bytes");
    assert_eq!(identified.controller_type, ControllerType::DISCOVERY);
    assert_eq!(identified.discovery_controller_type, DiscoveryControllerType::DIRECT);
    assert_eq!(identified.subsystem(), Ok(nqn("nqn.2024-01.io.weft:discovery")));
    assert_eq!(identified.optional_asynchronous_events.get(), 0x8000_0000);
    assert!(identified.log_page_attributes.extended_data());
    assert_eq!(identified.namespaces.get(), 0);
    assert_eq!(identified.keep_alive_granularity_100ms.get(), 1);
    assert_eq!(identified.maximum_outstanding_commands.get(), 1024);
    assert_eq!(identified.sgl_support().supported(), 1);
}

#[test]
fn it_has_itself_to_identify_and_nothing_else() {
    for cns in (0..=u8::MAX).map(Cns).filter(|cns| *cns != Cns::CONTROLLER) {
        let command = Identify::new(cns, 1).to_command();
        let command = command.with_data_pointer(Descriptor::transport(4096));
        let status = refused(&mut enabled_discovery(), &command);
        assert_eq!(status, Status::INVALID_FIELD.with_dnr(), "{cns}");
    }
}

#[test]
fn it_has_two_log_pages() {
    for log_page in (0..=u8::MAX).map(LogPageId) {
        let mut controller = enabled_discovery();
        let command = GetLogPage::new(log_page, 0, 1024).to_command();
        if [LogPageId::SUPPORTED_LOG_PAGES, LOG].contains(&log_page) {
            data(&mut controller, command, 1024);
        } else {
            let command = command.with_data_pointer(Descriptor::transport(1024));
            let status = refused(&mut controller, &command);
            assert_eq!(status, Status::INVALID_LOG_PAGE.with_dnr(), "{log_page}");
        }
    }
}

#[test]
fn a_host_finds_what_it_may_connect_to() {
    let mut controller = enabled_discovery();
    assert_eq!(controller.host(), &nqn(HOST));
    let page = data(&mut controller, GetLogPage::new(LOG, 0, 2048).to_command(), 2048);
    assert_eq!(page[..16], [7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    let entry = Wired::read(&page[1024..]).expect("an entry");
    assert_eq!(entry.subsystem(), Ok(nqn(SUBSYSTEM)));
    assert!(entry.address.0.starts_with(b"192.0.2.1 "), "the address that it came to");
    let part = data(&mut controller, GetLogPage::new(LOG, 1024, 1024).to_command(), 1024);
    assert_eq!(part, page[1024..]);
    let beyond = GetLogPage::new(LOG, 2052, 4).to_command();
    let beyond = beyond.with_data_pointer(Descriptor::transport(4));
    assert_eq!(refused(&mut controller, &beyond), Status::INVALID_FIELD.with_dnr());
}

/// What a long log page costs grows with its length, and a part of it costs what is in that part.
#[test]
fn a_long_log_page_is_not_made_anew_for_each_part() {
    const SUBSYSTEMS: usize = 1024;
    const PORTS: u16 = 4;
    const ENTRIES: usize = SUBSYSTEMS * PORTS as usize;
    let address = "192.0.2.1".parse().expect("an address");
    let entries = (0..PORTS).flat_map(|port| {
        (0..SUBSYSTEMS).map(move |index| {
            let name = nqn(&format!("nqn.subsystem{index}"));
            DiscoveryEntry::tcp(EntryKind::Nvm, name, address, 4420 + port)
        })
    });
    let mut controller = enabled_discovery();
    controller.replace_view(Arc::new(discovery_view(8, entries.collect())));
    let before = counted_entries();
    for offset in (0..1024 * (ENTRIES as u64 + 1)).step_by(4096) {
        let part = data(&mut controller, GetLogPage::new(LOG, offset, 4096).to_command(), 4096);
        assert_eq!(part.len(), 4096);
    }
    assert_eq!(counted_entries() - before, 2 * ENTRIES, "each is chosen once and encoded once");
}

#[test]
fn a_new_generation_is_told() {
    let mut controller = enabled_discovery();
    let request = Command::new(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST).with_command_id(1);
    controller.handle_command(&request, &[], NOW);
    controller.replace_view(Arc::new(discovery_view(7, entries())));
    assert_eq!(late(&mut controller), [], "the same");
    controller.replace_view(Arc::new(discovery_view(8, vec![])));
    let change = Event::DISCOVERY_LOG_PAGE_CHANGE.0;
    assert_eq!(change, 0x0070_f002);
    assert_eq!(late(&mut controller), [(1, Status::SUCCESS, change)]);
    controller.handle_command(&request.with_command_id(2), &[], NOW);
    controller.replace_view(Arc::new(discovery_view(9, vec![])));
    assert_eq!(late(&mut controller), [], "masked");
    let retained = GetLogPage { retain_event: true, ..GetLogPage::new(LOG, 0, 1024) };
    data(&mut controller, retained.to_command(), 1024);
    controller.replace_view(Arc::new(discovery_view(10, vec![])));
    assert_eq!(late(&mut controller), [], "still masked");
    data(&mut controller, GetLogPage::new(LOG, 0, 1024).to_command(), 1024);
    controller.replace_view(Arc::new(discovery_view(11, vec![])));
    assert_eq!(late(&mut controller), [(2, Status::SUCCESS, change)]);
}

#[test]
fn it_has_two_features() {
    for feature in (0..=u8::MAX).map(FeatureId) {
        let mut controller = enabled_discovery();
        let get = GetFeatures::new(feature).to_command();
        match feature {
            FeatureId::KEEP_ALIVE_TIMER => {
                assert_eq!(result(&mut controller, &get), 120_000);
                let set = SetFeatures::new(feature, 30_000).to_command();
                assert_eq!(result(&mut controller, &set), 30_000);
                assert_eq!(controller.deadline(), Some(NOW + seconds(30)));
            }
            FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION => {
                assert_eq!(result(&mut controller, &get), 0x8000_0000);
                result(&mut controller, &SetFeatures::new(feature, 0).to_command());
                assert_eq!(result(&mut controller, &get), 0);
                let set = SetFeatures::new(feature, 0x100).to_command();
                assert_eq!(refused(&mut controller, &set), Status::INVALID_FIELD.with_dnr());
            }
            _ => {
                let invalid = Status::INVALID_FIELD.with_dnr();
                assert_eq!(refused(&mut controller, &get), invalid, "{feature}");
                let set = SetFeatures::new(feature, 0).to_command();
                assert_eq!(refused(&mut controller, &set), invalid, "{feature}");
            }
        }
    }
}

#[test]
fn it_ends_after_two_minutes_without_keep_alive() {
    let mut controller = discovery_of(0);
    assert_eq!(controller.deadline(), Some(NOW + seconds(120)));
    controller.handle_deadline(NOW + seconds(120));
    controller.handle_deadline(NOW + seconds(240));
    assert_eq!(effects(&mut controller).len(), 2);
    assert_eq!(discovery_of(30_000).deadline(), Some(NOW + seconds(30)));
}

/// Anybody may connect to it: nobody holds it for longer than an I/O controller without a word.
#[test]
fn its_keep_alive_timeout_is_bounded() {
    let mut view = SubsystemView::clone(&enabled_discovery().view);
    view.limits.keep_alive_ms_max = 3_600_000;
    assert_eq!(view.keep_alive_timeout_ms(u32::MAX), None);
    assert_eq!(view.keep_alive_timeout_ms(3_600_000), Some(3_600_000));
    assert_eq!(view.keep_alive_timeout_ms(0), Some(120_000));
    view.limits.keep_alive_ms_max = 60_000;
    assert_eq!(view.keep_alive_timeout_ms(0), Some(60_000));
    // Nor does Set Features take the timer away.
    let mut controller = enabled_discovery();
    let off = SetFeatures::new(FeatureId::KEEP_ALIVE_TIMER, 0).to_command();
    assert_eq!(result(&mut controller, &off), 120_000);
    assert!(controller.deadline().is_some());
}

#[test]
fn it_has_no_io_queues() {
    let mut controller = enabled_discovery();
    let request = ConnectRequest { subsystem: Nqn::DISCOVERY, ..request(1, 31, 1) };
    let error = controller.attach_queue(&request).expect_err("no I/O queues");
    assert_eq!((error.status, error.result), (Status::CONNECT_INVALID_PARAMETERS.with_dnr(), 42));
}

/// A Centralized Discovery controller that another target has registered a subsystem with.
fn centralized() -> Controller {
    let label = ExtendedAttribute {
        raw_kind: U16::new(ExtendedAttributeType::ADMIN_LABEL_ASCII.0),
        length: U16::new(4),
    };
    let attribute_bytes = [label.bytes(), b"rack"].concat();
    let entry = entries()[0].clone();
    let entry = DiscoveryEntry { subsystem: nqn("nqn.registered"), ..entry };
    let view = DiscoveryView { entries: vec![entry].into(), ..DiscoveryView::default() };
    let entry = view.to_register(LOCAL)[0];
    let other = RegisteredEntry { entry, attributes: 1, attribute_bytes };
    let mut subsystem = discovery_view(7, entries());
    subsystem.kind = SubsystemKind::Discovery(Arc::new(DiscoveryView {
        generation: 7,
        entries: entries().into(),
        is_centralized: true,
        registered: vec![[Arc::new(other)].into_iter().collect()],
        registrations: 1,
    }));
    let request = ConnectRequest { subsystem: Nqn::DISCOVERY, ..request(0, 31, 0xffff) };
    let mut controller = Controller::new(Arc::new(subsystem), &request, 1, LOCAL, NOW);
    configure(&mut controller, ENABLE);
    controller
}

fn registration(kind: EntityType) -> Change {
    let entry = DiscoveryView { entries: entries().into(), ..DiscoveryView::default() };
    let mut entry = RegisteredEntry::basic(entry.to_register(LOCAL)[0]);
    if kind == EntityType::HOST {
        let head = ExtendedAttribute {
            raw_kind: U16::new(ExtendedAttributeType::HOST_ID.0),
            length: U16::new(16),
        };
        entry.attribute_bytes = [head.bytes(), &[1; 16]].concat();
        entry.attributes = 1;
    }
    let entity = Entity { kind, id: nqn(HOST), name: "a name".to_owned(), version: "1".to_owned() };
    let (task, key) = (DiscoveryTask::REGISTER, EntryKeyType::ADDRESS);
    Change { task, entity, key, entries: vec![entry] }
}

/// Has something registered, which the target carries out.
fn register(controller: &mut Controller, change: &Change) -> Result<(), Status> {
    let (command, data) = change.to_command();
    let length = u32::try_from(data.len()).expect("small");
    let command = command.with_data_pointer(Descriptor::transport(length)).with_command_id(9);
    assert_eq!(controller.handle_command(&command, &[], NOW), AdminReply::NeedData(length));
    match controller.handle_command(&command, &data, NOW) {
        AdminReply::Complete(completion) => return Err(completion.status()),
        reply => assert_eq!(reply, AdminReply::Pending),
    }
    let effect = Effect::Register { command_id: 9, change: Box::new(change.clone()) };
    assert_eq!(effects(controller), [effect]);
    let status = Status::SUCCESS;
    controller.handle_event(ControllerEvent::FeatureDone { command_id: 9, status });
    assert_eq!(late(controller), [(9, Status::SUCCESS, 0)]);
    Ok(())
}

#[test]
fn hosts_register_everywhere_and_targets_with_a_centralized_controller() {
    let [host, target] = [EntityType::HOST, EntityType::DIRECT].map(registration);
    let mut direct = enabled_discovery();
    assert_eq!(register(&mut direct, &host), Ok(()));
    assert_eq!(register(&mut direct, &target), Err(Status::INVALID_FIELD.with_dnr()));
    let mut centralized = centralized();
    assert_eq!(register(&mut centralized, &host), Ok(()));
    assert_eq!(register(&mut centralized, &target), Ok(()));
    let command = Identify::new(Cns::CONTROLLER, 0).to_command();
    let bytes = data(&mut centralized, command, 4096);
    let identified = identify::Controller::read(&bytes).expect("4096 bytes");
    assert_eq!(identified.discovery_controller_type, DiscoveryControllerType::CENTRAL);
    // More data than a registration may have.
    let command = target.to_command().0.with_data_pointer(Descriptor::transport(1 << 20));
    let status = refused(&mut centralized, &command);
    assert_eq!(status, Status::DATA_SGL_LENGTH_INVALID.with_dnr());
}

#[test]
fn a_host_that_asks_gets_extended_entries() {
    let mut controller = centralized();
    let supported = GetLogPage::new(LogPageId::SUPPORTED_LOG_PAGES, 0, 1024).to_command();
    let supported = data(&mut controller, supported, 1024);
    assert_eq!(supported[4 * 0x70..][..4], [1, 0, 1, 0]);
    let basic = data(&mut controller, GetLogPage::new(LOG, 0, 3072).to_command(), 3072);
    assert_eq!((basic[8], basic[18]), (2, 0));
    let second = Wired::read(&basic[2048..]).expect("an entry");
    assert_eq!(second.subsystem(), Ok(nqn("nqn.registered")));
    let whole = 1024 + 1032 + 1040;
    let get = |offset, length| {
        GetLogPage { specific_parameter: 1, ..GetLogPage::new(LOG, offset, length) }.to_command()
    };
    let page = data(&mut controller, get(0, whole), whole);
    assert_eq!((page[8], page[18]), (2, 1), "DLPF says that they are extended");
    assert_eq!(page[20..24], whole.to_le_bytes());
    assert_eq!(page[1024..2048], basic[1024..2048]);
    assert_eq!(page[2048..2056], [8, 4, 0, 0, 0, 0, 0, 0], "TEL, no attributes");
    assert_eq!(page[2056..3080], basic[2048..3072]);
    assert_eq!(page[3080..3088], [16, 4, 0, 0, 1, 0, 0, 0], "TEL, an attribute");
    assert_eq!(page[3088..], *b"\x02\x00\x04\x00rack");
    for (offset, length) in [(4, 8), (1020, 8), (2044, 16), (3080, 16), (3092, 4)] {
        let part = data(&mut controller, get(offset, length), length);
        let from = usize::try_from(offset).expect("small");
        assert_eq!(part, page[from..from + length as usize], "{length} bytes from {offset}");
    }
    let beyond = get(3100, 4).with_data_pointer(Descriptor::transport(4));
    assert_eq!(refused(&mut controller, &beyond), Status::INVALID_FIELD.with_dnr());
}
