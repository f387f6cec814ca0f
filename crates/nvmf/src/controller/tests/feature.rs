use weft_nvme::Wire;
use weft_nvme::feature::{
    ErrorRecovery, FeatureId, GetFeatures, HostBehavior, NumberOfQueues, Select, SetFeatures,
    TemperatureThreshold, WriteProtection, WriteProtectionState,
};

use super::*;
use crate::connect::test_support::HOST_ID;

fn get(controller: &mut Controller, feature: FeatureId) -> u32 {
    result(controller, &GetFeatures::new(feature).to_command())
}

fn get_of(controller: &mut Controller, get: GetFeatures) -> u32 {
    result(controller, &get.to_command())
}

fn set(controller: &mut Controller, feature: FeatureId, value: u32) -> u32 {
    result(controller, &SetFeatures::new(feature, value).to_command())
}

fn set_refused(controller: &mut Controller, set: SetFeatures) -> Status {
    refused(controller, &set.to_command())
}

const INVALID: Status = Status::INVALID_FIELD.with_dnr();

/// Each feature: what its capabilities are, and its value by default.
#[test]
fn every_feature_has_its_capabilities_and_default() {
    // Changeable is bit 2, of a namespace bit 1.
    let known = [
        (FeatureId::ARBITRATION, 0b100, 0),
        (FeatureId::POWER_MANAGEMENT, 0b100, 0),
        (FeatureId::TEMPERATURE_THRESHOLD, 0b100, 0xffff),
        (FeatureId::ERROR_RECOVERY, 0b110, 0),
        (FeatureId::VOLATILE_WRITE_CACHE, 0b100, 1),
        (FeatureId::NUMBER_OF_QUEUES, 0b100, 0x007f_007f),
        (FeatureId::WRITE_ATOMICITY, 0b100, 0),
        (FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION, 0b100, 0x100),
        (FeatureId::KEEP_ALIVE_TIMER, 0b100, 0),
        (FeatureId::COMMAND_SET_PROFILE, 0b100, 0),
        (FeatureId::NAMESPACE_WRITE_PROTECTION, 0b110, 0),
        (FeatureId::RESERVATION_NOTIFICATION_MASK, 0b110, 0),
        (FeatureId::RESERVATION_PERSISTENCE, 0b110, 0),
    ];
    let with_data =
        [(FeatureId::HOST_BEHAVIOR_SUPPORT, 0b100), (FeatureId::HOST_IDENTIFIER, 0b000)];
    for feature in (0..=u8::MAX).map(FeatureId) {
        let mut controller = enabled();
        let asked = |select| GetFeatures { select, namespace_id: 1, ..GetFeatures::new(feature) };
        let capabilities = asked(Select::SUPPORTED_CAPABILITIES);
        if let Some((_, expected, default)) = known.iter().find(|known| known.0 == feature) {
            assert_eq!(get_of(&mut controller, capabilities), *expected, "{feature}");
            for select in [Select::CURRENT, Select::DEFAULT, Select::SAVED] {
                let value = get_of(&mut controller, asked(select));
                assert_eq!(value, *default, "{feature} {select}");
            }
        } else if let Some((_, expected)) = with_data.iter().find(|known| known.0 == feature) {
            assert_eq!(get_of(&mut controller, capabilities), *expected, "{feature}");
        } else {
            for select in [Select::CURRENT, Select::DEFAULT, Select::SUPPORTED_CAPABILITIES] {
                let command = asked(select).to_command();
                assert_eq!(refused(&mut controller, &command), INVALID, "{feature}");
            }
            let status = set_refused(&mut controller, SetFeatures::new(feature, 0));
            assert_eq!(status, INVALID, "{feature}");
        }
        let reserved = asked(Select(4)).to_command();
        assert_eq!(refused(&mut controller, &reserved), INVALID);
    }
}

#[test]
fn nothing_can_be_saved() {
    let mut controller = enabled();
    let save = SetFeatures { save: true, ..SetFeatures::new(FeatureId::VOLATILE_WRITE_CACHE, 1) };
    assert_eq!(set_refused(&mut controller, save), Status::FEATURE_NOT_SAVEABLE.with_dnr());
}

#[test]
fn a_feature_of_the_controller_has_no_namespace() {
    let mut controller = enabled();
    for (namespace_id, good) in [(0, true), (0xffff_ffff, true), (1, false), (9, false)] {
        let arbitration =
            SetFeatures { namespace_id, ..SetFeatures::new(FeatureId::ARBITRATION, 3) };
        let status = set_refused(&mut controller, arbitration);
        let expected = match good {
            true => Status::SUCCESS,
            false => Status::FEATURE_NOT_NAMESPACE_SPECIFIC.with_dnr(),
        };
        assert_eq!(status, expected);
    }
}

#[test]
fn values_are_kept_until_a_reset() {
    let mut controller = enabled();
    for (feature, value) in [
        (FeatureId::ARBITRATION, 0x0102_0307),
        (FeatureId::POWER_MANAGEMENT, 0x20),
        (FeatureId::TEMPERATURE_THRESHOLD, 350),
        (FeatureId::VOLATILE_WRITE_CACHE, 0),
        (FeatureId::WRITE_ATOMICITY, 1),
        (FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION, 0x5ff),
        (FeatureId::NUMBER_OF_QUEUES, 0x0003_0003),
    ] {
        let default = get(&mut controller, feature);
        assert_ne!(default, value);
        set(&mut controller, feature, value);
        if feature == FeatureId::ARBITRATION {
            assert_eq!(controller.shared.arbitration().0, value, "its queues know it");
        }
        assert_eq!(get(&mut controller, feature), value, "{feature}");
        configure(&mut controller, ControllerConfiguration(0));
        configure(&mut controller, ENABLE);
        assert_eq!(get(&mut controller, feature), default, "{feature}");
    }
}

#[test]
fn bad_values_are_refused() {
    let mut controller = enabled();
    let combination = Status::COMMAND_SET_COMBINATION_REJECTED.with_dnr();
    for (feature, value, status) in [
        (FeatureId::POWER_MANAGEMENT, 1, INVALID),
        (FeatureId::TEMPERATURE_THRESHOLD, 0x0001_0000, INVALID),
        (FeatureId::TEMPERATURE_THRESHOLD, 0x0020_0000, INVALID),
        (FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION, 0x200, INVALID),
        (FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION, 0x8000_0000, INVALID),
        (FeatureId::NUMBER_OF_QUEUES, 0x0000_ffff, INVALID),
        (FeatureId::NUMBER_OF_QUEUES, 0xffff_0000, INVALID),
        (FeatureId::COMMAND_SET_PROFILE, 1, combination),
    ] {
        let got = set_refused(&mut controller, SetFeatures::new(feature, value));
        assert_eq!(got, status, "{feature} {value:#x}");
    }
    assert_eq!(set(&mut controller, FeatureId::COMMAND_SET_PROFILE, 0), 0);
}

#[test]
fn as_many_queues_are_allocated_as_both_kinds_allow() {
    let mut subsystem = view(&[1]);
    subsystem.limits.max_io_queues = 8;
    let mut controller = enabled_of(subsystem);
    let feature = FeatureId::NUMBER_OF_QUEUES;
    assert_eq!(get(&mut controller, feature), 0x0007_0007);
    for (asked, allocated) in
        [(0x0003_0001, 0x0001_0001), (0x0000_0005, 0), (0xfffe_fffe, 0x0007_0007)]
    {
        assert_eq!(set(&mut controller, feature, asked), allocated);
        assert_eq!(get(&mut controller, feature), allocated);
    }
    attach(&mut controller, 1);
    let late = SetFeatures::new(feature, NumberOfQueues::pairs(4).0);
    let status = set_refused(&mut controller, late);
    assert_eq!(status, Status::COMMAND_SEQUENCE_ERROR.with_dnr());
    assert_eq!(get(&mut controller, feature), 0x0007_0007);
}

#[test]
fn the_keep_alive_timer_can_be_set() {
    let mut controller = enabled();
    let feature = FeatureId::KEEP_ALIVE_TIMER;
    assert_eq!(controller.deadline(), None);
    assert_eq!(set(&mut controller, feature, 2050), 2100);
    assert_eq!(get(&mut controller, feature), 2100);
    assert_eq!(controller.deadline(), Some(NOW + Duration::from_millis(2100)));
    set(&mut controller, feature, 0);
    assert_eq!(controller.deadline(), None);
}

#[test]
fn the_keep_alive_timer_stays_within_its_bounds() {
    let mut view = view(&[1]);
    view.limits.keep_alive_ms_min = 1000;
    view.limits.keep_alive_ms_max = 60_000;
    let mut controller = enabled_of(view);
    let feature = FeatureId::KEEP_ALIVE_TIMER;
    assert_eq!(set(&mut controller, feature, 1), 1000);
    assert_eq!(set(&mut controller, feature, 60_000), 60_000);
    let status = set_refused(&mut controller, SetFeatures::new(feature, 60_001));
    assert_eq!(status, Status::KEEP_ALIVE_TIMEOUT_INVALID.with_dnr());
    assert_eq!(get(&mut controller, feature), 60_000, "what was before stays");
    assert_eq!(set(&mut controller, feature, 0), 0, "off is off");
}

#[test]
fn the_write_cache_setting_reaches_the_queues() {
    let mut controller = enabled();
    let grant = attach(&mut controller, 1);
    set(&mut controller, FeatureId::VOLATILE_WRITE_CACHE, 0);
    assert!(!grant.controller.write_cache());
    set(&mut controller, FeatureId::VOLATILE_WRITE_CACHE, 1);
    assert!(grant.controller.write_cache());
}

#[test]
fn temperature_thresholds_are_two() {
    let mut controller = enabled();
    let feature = FeatureId::TEMPERATURE_THRESHOLD;
    let under = TemperatureThreshold(0).with_raw_threshold_type(1);
    set(&mut controller, feature, under.with_threshold_k(260).0);
    let all = TemperatureThreshold(0).with_sensor(TemperatureThreshold::ALL_SENSORS);
    set(&mut controller, feature, all.with_threshold_k(340).0);
    assert_eq!(get(&mut controller, feature), 340);
    let asked = GetFeatures { cdw11: under.0, ..GetFeatures::new(feature) };
    assert_eq!(get_of(&mut controller, asked), 260);
    let sensor = GetFeatures {
        cdw11: TemperatureThreshold(0).with_sensor(1).0,
        ..GetFeatures::new(feature)
    };
    assert_eq!(refused(&mut controller, &sensor.to_command()), INVALID);
}

#[test]
fn error_recovery_is_of_each_namespace() {
    let mut controller = enabled();
    let feature = FeatureId::ERROR_RECOVERY;
    let asked = |namespace_id| GetFeatures { namespace_id, ..GetFeatures::new(feature) };
    let told =
        |namespace_id, value| SetFeatures { namespace_id, ..SetFeatures::new(feature, value) };
    result(&mut controller, &told(3, 7).to_command());
    assert_eq!((get_of(&mut controller, asked(1)), get_of(&mut controller, asked(3))), (0, 7));
    result(&mut controller, &told(0xffff_ffff, 9).to_command());
    assert_eq!((get_of(&mut controller, asked(1)), get_of(&mut controller, asked(3))), (9, 9));
    let invalid = Status::INVALID_NAMESPACE.with_dnr();
    for namespace_id in [0, 2] {
        assert_eq!(set_refused(&mut controller, told(namespace_id, 1)), invalid);
        assert_eq!(refused(&mut controller, &asked(namespace_id).to_command()), invalid);
    }
    let unwritten = ErrorRecovery(0).with_deallocated_error(true);
    assert_eq!(set_refused(&mut controller, told(1, unwritten.0)), INVALID);
    controller.replace_view(Arc::new(view(&[1])));
    controller.replace_view(Arc::new(view(&[1, 3])));
    assert_eq!(get_of(&mut controller, asked(3)), 0, "another namespace of the same identifier");
}

#[test]
fn the_host_identifier_has_128_bits_and_comes_with_connect() {
    let mut controller = enabled();
    let asked = GetFeatures { cdw11: 1, ..GetFeatures::new(FeatureId::HOST_IDENTIFIER) };
    for select in [Select::CURRENT, Select::DEFAULT] {
        let command = GetFeatures { select, ..asked }.to_command();
        assert_eq!(data(&mut controller, command, 16), HOST_ID);
    }
    let short = GetFeatures { cdw11: 0, ..asked }.to_command();
    assert_eq!(refused(&mut controller, &short), INVALID);
    let command = asked.to_command().with_data_pointer(Descriptor::transport(8));
    assert_eq!(refused(&mut controller, &command), Status::DATA_SGL_LENGTH_INVALID.with_dnr());
    let set = SetFeatures::new(FeatureId::HOST_IDENTIFIER, 1);
    assert_eq!(set_refused(&mut controller, set), Status::COMMAND_SEQUENCE_ERROR.with_dnr());
}

#[test]
fn host_behavior_comes_as_data() {
    let mut controller = enabled();
    let feature = FeatureId::HOST_BEHAVIOR_SUPPORT;
    let command = SetFeatures::new(feature, 0).to_command().with_command_id(CID);
    let told = command.with_data_pointer(Descriptor::transport(512));
    let heads = controller.admin.head.value();
    assert_eq!(handle(&mut controller, &told), AdminReply::NeedData(512));
    assert_eq!(controller.admin.head.value(), heads, "it has not happened");
    let behavior = HostBehavior { advanced_command_retry: 1, ..HostBehavior::default() };
    let reply = controller.handle_command(&told, behavior.bytes(), NOW);
    assert_eq!(status_of(&reply), Status::SUCCESS);
    let asked = GetFeatures::new(feature);
    assert_eq!(data(&mut controller, asked.to_command(), 512), behavior.bytes());
    let default = GetFeatures { select: Select::DEFAULT, ..asked };
    assert_eq!(data(&mut controller, default.to_command(), 512), [0; 512]);
    let wrong = HostBehavior { extended_lba_formats: 2, ..behavior };
    let reply = controller.handle_command(&told, wrong.bytes(), NOW);
    assert_eq!(status_of(&reply), INVALID);
    let reply = controller.handle_command(&told, &behavior.bytes()[..511], NOW);
    assert_eq!(status_of(&reply), INVALID);
    let inline = command.with_data_pointer(Descriptor::in_capsule(0, 512));
    let reply = controller.handle_command(&inline, behavior.bytes(), NOW);
    assert_eq!(status_of(&reply), Status::SUCCESS);
    for (pointer, status) in [
        (Descriptor::in_capsule(8, 512), Status::SGL_OFFSET_INVALID),
        (Descriptor::transport(511), Status::DATA_SGL_LENGTH_INVALID),
        (Descriptor::default(), Status::SGL_DESCRIPTOR_TYPE_INVALID),
    ] {
        let command = command.with_data_pointer(pointer);
        assert_eq!(refused(&mut controller, &command), status.with_dnr());
    }
}

#[test]
fn write_protection_is_answered_once_it_holds_everywhere() {
    let mut controller = enabled();
    let feature = FeatureId::NAMESPACE_WRITE_PROTECTION;
    let told = |namespace_id, state| {
        let value = WriteProtection::new(state).0;
        SetFeatures { namespace_id, ..SetFeatures::new(feature, value) }
    };
    let asked = |namespace_id| GetFeatures { namespace_id, ..GetFeatures::new(feature) };
    let protect = WriteProtectionState::WRITE_PROTECT;
    let command = told(3, protect).to_command();
    assert_eq!(handle(&mut controller, &command), AdminReply::Pending);
    let effect = Effect::SetWriteProtect { command_id: CID, nsid: 3, protect: true };
    assert_eq!(effects(&mut controller), [effect]);
    let mut new = view(&[1, 3]);
    new.namespaces.get_mut(3).expect("there").write_protected = true;
    controller.replace_view(Arc::new(new));
    let done = ControllerEvent::FeatureDone { command_id: CID, status: Status::SUCCESS };
    controller.handle_event(done);
    assert_eq!(late(&mut controller), [(CID, Status::SUCCESS, 0)]);
    controller.handle_event(done);
    assert_eq!(late(&mut controller), [], "answered once");
    assert_eq!((get_of(&mut controller, asked(1)), get_of(&mut controller, asked(3))), (0, 1));
    let invalid = Status::INVALID_NAMESPACE.with_dnr();
    for namespace_id in [0, 2, 0xffff_ffff] {
        assert_eq!(set_refused(&mut controller, told(namespace_id, protect)), invalid);
        assert_eq!(refused(&mut controller, &asked(namespace_id).to_command()), invalid);
    }
    let fixed = Status::FEATURE_NOT_CHANGEABLE.with_dnr();
    for state in [WriteProtectionState::UNTIL_POWER_CYCLE, WriteProtectionState::PERMANENT] {
        assert_eq!(set_refused(&mut controller, told(1, state)), fixed);
    }
}

#[test]
fn a_read_only_device_stays_so() {
    let mut subsystem = view(&[1]);
    subsystem.namespaces.get_mut(1).expect("there").capabilities.read_only = true;
    let mut controller = enabled_of(subsystem);
    let feature = FeatureId::NAMESPACE_WRITE_PROTECTION;
    let asked = GetFeatures { namespace_id: 1, ..GetFeatures::new(feature) };
    assert_eq!(get_of(&mut controller, asked), 1);
    let told = SetFeatures { namespace_id: 1, ..SetFeatures::new(feature, 0) };
    assert_eq!(set_refused(&mut controller, told), Status::FEATURE_NOT_CHANGEABLE.with_dnr());
}
