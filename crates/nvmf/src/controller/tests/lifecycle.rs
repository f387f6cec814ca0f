use weft_nvme::AdminOpcode;

use super::*;

#[test]
fn properties_are_what_a_host_reads_first() {
    let mut view = view(&[1]);
    view.limits.max_queue_entries = 128;
    let mut controller = controller_of(view);
    // CRMS.CRWMS, CSS NVM and I/O command sets, TO 7.5 s, CQR, MQES 127.
    assert_eq!(property(&mut controller, Offset::CONTROLLER_CAPABILITIES), 0x0800_0820_0f01_007f);
    assert_eq!(property(&mut controller, Offset::VERSION), 0x0002_0100);
    assert_eq!(property(&mut controller, Offset::CONTROLLER_CONFIGURATION), 0);
    assert_eq!(property(&mut controller, Offset::CONTROLLER_READY_TIMEOUTS), 15);
    assert_eq!(status(&mut controller), 0);
    configure(&mut controller, ENABLE);
    assert_eq!(property(&mut controller, Offset::CONTROLLER_CONFIGURATION), 0x0046_0061);
    assert_eq!(status(&mut controller), 1);
}

#[test]
fn a_host_resets_the_subsystem_where_it_may() {
    let offset = Offset::NVM_SUBSYSTEM_RESET;
    let set = |value| PropertySet::new(offset, PropertySize::Four, value).to_command();
    let reset = set(u64::from(weft_nvme::property::magic::SUBSYSTEM_RESET));
    assert_eq!(refused(&mut enabled(), &reset), Status::INVALID_FIELD.with_dnr());
    let mut view = view(&[1]);
    view.limits.subsystem_reset = true;
    let mut controller = enabled_of(view);
    let capabilities = property(&mut controller, Offset::CONTROLLER_CAPABILITIES);
    assert_eq!(capabilities >> 36 & 1, 1, "NSSRS");
    assert_eq!(property(&mut controller, offset), 0);
    assert_eq!(refused(&mut controller, &set(1)), Status::SUCCESS);
    assert_eq!(effects(&mut controller), [], "that is not the word for it");
    assert_eq!(refused(&mut controller, &reset), Status::SUCCESS);
    assert_eq!(effects(&mut controller), [Effect::ResetSubsystem]);
    let enabled = property(&mut controller, Offset::CONTROLLER_CONFIGURATION) & 1;
    assert_eq!(enabled, 0, "it can be enabled again");
    controller.handle_event(ControllerEvent::SubsystemReset);
    let reason = EndReason::SubsystemReset;
    assert_eq!(effects(&mut controller), [Effect::EndQueues(reason), Effect::Close(reason)]);
}

#[test]
fn queues_over_rdma_are_as_long_as_linux_has_them() {
    for (configured, mqes) in [(1024, 255), (128, 127)] {
        let mut view = view(&[1]);
        view.limits.max_queue_entries = configured;
        let mut controller = controller_of(view).over_rdma();
        let capabilities = property(&mut controller, Offset::CONTROLLER_CAPABILITIES);
        assert_eq!(capabilities & 0xffff, mqes);
    }
}

#[test]
fn properties_have_their_size_and_one_can_be_set() {
    let mut controller = enabled();
    for (offset, size) in [
        (Offset::CONTROLLER_CAPABILITIES, PropertySize::Four),
        (Offset::VERSION, PropertySize::Eight),
        (Offset::CONTROLLER_STATUS, PropertySize::Eight),
        (Offset::NVM_SUBSYSTEM_RESET, PropertySize::Four),
        (Offset(0x18), PropertySize::Four),
        (Offset(u32::MAX), PropertySize::Eight),
    ] {
        let get = PropertyGet::new(offset, size).to_command();
        assert_eq!(refused(&mut controller, &get), Status::INVALID_FIELD.with_dnr(), "{offset}");
    }
    for (offset, size) in [
        (Offset::CONTROLLER_CONFIGURATION, PropertySize::Eight),
        (Offset::CONTROLLER_STATUS, PropertySize::Four),
        (Offset::NVM_SUBSYSTEM_RESET, PropertySize::Four),
        (Offset::NVM_SUBSYSTEM_SHUTDOWN, PropertySize::Four),
        (Offset::CONTROLLER_CAPABILITIES, PropertySize::Eight),
    ] {
        let set = PropertySet::new(offset, size, 0).to_command();
        assert_eq!(refused(&mut controller, &set), Status::INVALID_FIELD.with_dnr(), "{offset}");
    }
    let reserved = PropertyGet::new(Offset::VERSION, PropertySize::Four).to_command();
    let reserved = reserved.with_cdw10(2);
    assert_eq!(refused(&mut controller, &reserved), Status::INVALID_FIELD.with_dnr());
    assert!(controller.is_ready());
}

/// What a configuration makes of a disabled controller.
#[test]
fn a_controller_that_cannot_work_as_configured_fails() {
    let table = [
        (0x0046_0061, 1, "as Linux"),
        (0x0046_0001, 1, "the NVM command set alone"),
        (0x0000_0001, 1, "entry sizes not yet given"),
        (0x0046_0071, 2, "no I/O command set"),
        (0x0046_0011, 2, "a reserved command set"),
        (0x0046_00e1, 2, "pages of 8 KiB"),
        (0x0046_0861, 2, "weighted round robin"),
        (0x0045_0061, 2, "submission queue entries of 32 bytes"),
        (0x0036_0061, 2, "completion queue entries of 8 bytes"),
        (0x0146_0061, 2, "ready independent of media"),
    ];
    for (value, expected, what) in table {
        let mut controller = controller_of(view(&[1]));
        configure(&mut controller, ControllerConfiguration(value));
        assert_eq!(status(&mut controller), expected, "{what}");
        assert_eq!(controller.is_ready(), expected == 1);
        configure(&mut controller, ControllerConfiguration(0));
        assert_eq!(status(&mut controller), 0, "a reset clears it");
        configure(&mut controller, ENABLE);
        assert_eq!(status(&mut controller), 1);
    }
}

/// Only where the subsystem lets hosts choose; the priority of a queue means something only then.
#[test]
fn a_host_may_choose_weighted_round_robin_where_it_is_offered() {
    const CHOSEN: ControllerConfiguration = ControllerConfiguration(0x0046_0861);
    let mut offering = view(&[1]);
    offering.limits.weighted_round_robin = true;
    for (configuration, expected) in [(CHOSEN, Some(2)), (ENABLE, None)] {
        let mut controller = controller_of(offering.clone());
        assert_eq!(controller.capabilities().arbitration_mechanisms(), 1);
        configure(&mut controller, configuration);
        assert_eq!(status(&mut controller), 1);
        let medium = ConnectRequest { priority: 2, ..request(1, 127, CONTROLLER_ID) };
        assert_eq!(controller.attach_queue(&medium).expect("a queue").priority, expected);
    }
    let mut controller = controller_of(offering);
    configure(&mut controller, ControllerConfiguration(0x0046_1061));
    assert_eq!(status(&mut controller), 2, "a reserved mechanism");
    assert_eq!(controller_of(view(&[1])).capabilities().arbitration_mechanisms(), 0);
}

#[test]
fn shutdown_is_complete_when_the_last_queue_has_ended() {
    for notification in [ShutdownNotification::NORMAL, ShutdownNotification::ABRUPT] {
        let mut controller = enabled();
        attach(&mut controller, 1);
        attach(&mut controller, 2);
        configure(&mut controller, with_shutdown(notification));
        assert_eq!(effects(&mut controller), [Effect::EndQueues(EndReason::Shutdown)]);
        assert_eq!(status(&mut controller), 0b0101, "occurring");
        let keep_alive = Command::new(AdminOpcode::KEEP_ALIVE);
        let refusal = refused(&mut controller, &keep_alive);
        assert_eq!(refusal, Status::COMMAND_SEQUENCE_ERROR.with_dnr());
        controller.detach_queue(1);
        assert_eq!(status(&mut controller), 0b0101);
        controller.detach_queue(2);
        assert_eq!(status(&mut controller), 0b1001, "complete");
        assert_eq!(effects(&mut controller), []);
    }
    let mut controller = enabled();
    configure(&mut controller, with_shutdown(ShutdownNotification::NORMAL));
    assert_eq!(status(&mut controller), 0b1001, "without queues at once");
    assert_eq!(effects(&mut controller), []);
}

#[test]
fn after_a_shutdown_a_reset_makes_it_ready_again() {
    let mut controller = enabled();
    configure(&mut controller, with_shutdown(ShutdownNotification::NORMAL));
    configure(&mut controller, ControllerConfiguration(0));
    assert_eq!(status(&mut controller), 0);
    configure(&mut controller, ENABLE);
    assert_eq!(status(&mut controller), 1);
    attach(&mut controller, 1);
}

#[test]
fn a_reset_ends_the_queues_and_brings_defaults_back() {
    let mut controller = enabled();
    attach(&mut controller, 1);
    let request = Command::new(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST).with_command_id(7);
    assert_eq!(controller.handle_command(&request, &[], NOW), AdminReply::Pending);
    controller.shared.set_write_cache(false);
    configure(&mut controller, ControllerConfiguration(0));
    let pending = effects(&mut controller);
    match &pending[..] {
        [Effect::Complete(completion), Effect::EndQueues(EndReason::Reset)] => {
            assert_eq!(completion.command_id.get(), 7);
            assert_eq!(completion.status(), Status::ABORT_REQUESTED);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(status(&mut controller), 1, "ready until the queue has ended");
    assert!(!controller.is_ready());
    controller.detach_queue(1);
    assert_eq!(status(&mut controller), 0);
    assert!(controller.shared.write_cache());
}

#[test]
fn enabling_before_a_reset_is_done_fails() {
    let mut controller = enabled();
    attach(&mut controller, 1);
    configure(&mut controller, ControllerConfiguration(0));
    configure(&mut controller, ENABLE);
    assert_eq!(status(&mut controller), 2);
    controller.detach_queue(1);
    assert_eq!(status(&mut controller), 2);
    configure(&mut controller, ControllerConfiguration(0));
    configure(&mut controller, ENABLE);
    assert_eq!(status(&mut controller), 1);
}

fn gone(reason: EndReason) -> [Effect; 2] {
    [Effect::EndQueues(reason), Effect::Close(reason)]
}

fn with_keep_alive(timeout_ms: u32) -> Controller {
    let request = ConnectRequest { keep_alive_timeout_ms: timeout_ms, ..request(0, 31, 0xffff) };
    let mut controller = Controller::new(Arc::new(view(&[1])), &request, CONTROLLER_ID, LOCAL, NOW);
    configure(&mut controller, ENABLE);
    controller
}

#[test]
fn a_silent_host_is_given_up() {
    let mut controller = with_keep_alive(5000);
    assert_eq!(controller.deadline(), Some(NOW + seconds(5)));
    // The host enabled in the first period: that it did is a sign of life.
    controller.handle_deadline(NOW + seconds(5));
    assert_eq!(controller.deadline(), Some(NOW + seconds(10)));
    attach(&mut controller, 1);
    controller.handle_deadline(NOW + seconds(10));
    assert_eq!(effects(&mut controller), [], "it attached a queue");
    controller.handle_deadline(NOW + seconds(14));
    assert_eq!(effects(&mut controller), [], "too early");
    controller.handle_deadline(NOW + seconds(15));
    assert_eq!(effects(&mut controller), gone(EndReason::KeepAliveExpired));
    assert_eq!(controller.deadline(), None);
    controller.handle_deadline(NOW + seconds(99));
    assert_eq!(effects(&mut controller), []);
    let command = Command::new(AdminOpcode::KEEP_ALIVE);
    assert_eq!(refused(&mut controller, &command), Status::COMMAND_SEQUENCE_ERROR.with_dnr());
    assert_eq!(controller.view.shared.associations_lost(), 1);
}

#[test]
fn the_timer_starts_anew_when_the_controller_is_enabled() {
    let request = ConnectRequest { keep_alive_timeout_ms: 5000, ..request(0, 31, 0xffff) };
    let view = Arc::new(view(&[1]));
    let mut controller = Controller::new(view, &request, CONTROLLER_ID, LOCAL, NOW);
    assert_eq!(controller.deadline(), Some(NOW + seconds(5)), "it runs from the Connect on");
    configure_at(&mut controller, ENABLE, NOW + seconds(3));
    assert_eq!(controller.deadline(), Some(NOW + seconds(8)));
}

#[test]
fn traffic_on_any_queue_keeps_alive() {
    let mut controller = with_keep_alive(5000);
    let first = attach(&mut controller, 1);
    let second = attach(&mut controller, 2);
    controller.handle_deadline(NOW + seconds(5));
    first.shared.count_command();
    controller.handle_deadline(NOW + seconds(10));
    second.shared.count_command();
    controller.handle_deadline(NOW + seconds(15));
    let command = Command::new(AdminOpcode::KEEP_ALIVE);
    controller.handle_command(&command, &[], NOW + seconds(16));
    controller.handle_deadline(NOW + seconds(20));
    assert_eq!(effects(&mut controller), []);
    controller.handle_deadline(NOW + seconds(25));
    assert_eq!(effects(&mut controller), gone(EndReason::KeepAliveExpired));
}

#[test]
fn without_a_timeout_silence_is_fine() {
    let controller = with_keep_alive(0);
    assert_eq!(controller.deadline(), None);
}

#[test]
fn timeouts_are_rounded_up_to_the_granularity() {
    let mut view = view(&[1]);
    view.limits.keep_alive_granularity_ms = 1000;
    for (asked, granted) in [(0, 0), (1, 1000), (1000, 1000), (1001, 2000), (u32::MAX, u32::MAX)] {
        let timer = keep_alive::KeepAlive::new(asked, &view, NOW);
        assert_eq!(timer.timeout_ms(), granted);
    }
}

#[test]
fn a_controller_must_be_enabled_in_time() {
    let mut controller = controller_of(view(&[1]));
    assert_eq!(controller.deadline(), Some(NOW + seconds(120)));
    controller.handle_deadline(NOW + seconds(119));
    assert_eq!(effects(&mut controller), []);
    controller.handle_deadline(NOW + seconds(120));
    assert_eq!(effects(&mut controller), gone(EndReason::NeverEnabled));
    assert_eq!(controller.view.shared.associations_lost(), 0, "there was nothing to lose");

    let mut controller = enabled();
    let later = NOW + seconds(500);
    configure_at(&mut controller, with_shutdown(ShutdownNotification::NORMAL), later);
    assert_eq!(controller.deadline(), Some(later + seconds(120)), "after a shutdown too");
    controller.handle_deadline(later + seconds(120));
    assert_eq!(effects(&mut controller), gone(EndReason::NeverEnabled));
}

#[test]
fn a_lost_admin_connection_ends_everything() {
    let mut controller = enabled();
    attach(&mut controller, 1);
    controller.handle_event(ControllerEvent::AdminQueueLost);
    assert_eq!(effects(&mut controller), gone(EndReason::AdminQueueLost));
    controller.handle_event(ControllerEvent::AdminQueueLost);
    assert_eq!(effects(&mut controller), []);
    assert_eq!(controller.view.shared.associations_lost(), 1);

    let mut controller = enabled();
    configure(&mut controller, with_shutdown(ShutdownNotification::NORMAL));
    controller.handle_event(ControllerEvent::AdminQueueLost);
    assert_eq!(effects(&mut controller), gone(EndReason::Disconnected));
    assert_eq!(controller.view.shared.associations_lost(), 0, "an orderly shutdown");

    let mut controller = controller_of(view(&[1]));
    controller.handle_event(ControllerEvent::AdminQueueLost);
    assert_eq!(effects(&mut controller), gone(EndReason::Disconnected), "it was never in use");
}

#[test]
fn a_failed_controller_says_so_and_ends() {
    let mut controller = enabled();
    controller.handle_event(ControllerEvent::Fatal);
    assert!(controller.status.fatal());
    assert_eq!(effects(&mut controller), gone(EndReason::Fatal));
}

#[test]
fn a_host_that_is_no_longer_allowed_is_disconnected() {
    let mut controller = enabled();
    let mut new = view(&[1, 3]);
    new.allowed_hosts = Some(Arc::new([*controller.host()].into()));
    controller.replace_view(Arc::new(new.clone()));
    assert_eq!(effects(&mut controller), []);
    new.allowed_hosts = Some(Arc::default());
    controller.replace_view(Arc::new(new));
    assert_eq!(effects(&mut controller), gone(EndReason::HostNotAllowed));
}

/// What a host was told when it connected holds as long as its controller.
#[test]
fn limits_hold_for_the_life_of_the_controller() {
    let mut controller = enabled();
    let limits = controller.view.limits;
    let mut smaller = view(&[1, 3, 4]);
    smaller.limits.mdts_bytes = 8192;
    smaller.limits.max_queue_entries = 16;
    smaller.limits.max_io_queues = 1;
    controller.replace_view(Arc::new(smaller));
    assert_eq!(controller.view.limits, limits);
    assert!(controller.view.namespaces.get(4).is_some());
    let grant = controller.attach_queue(&request(2, 31, CONTROLLER_ID)).expect("a second queue");
    assert_eq!(grant.limits, limits);
}
