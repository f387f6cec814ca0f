use weft_nvme::identify::{Cns, CommandSetId, Identify};
use weft_nvme::log_page::{
    CommandEffects, CommandsSupportedAndEffects, ErrorInformation, GetLogPage, Health, LogPageId,
    PersistentEventAction, SupportedLogPages,
};
use weft_nvme::{AdminOpcode, NvmOpcode, Wire};

use super::*;
use crate::queue::{IoAction, IoQueue};

fn read(controller: &mut Controller, log_page: LogPageId, length: u32) -> Vec<u8> {
    data(controller, GetLogPage::new(log_page, 0, length).to_command(), length)
}

fn refusal(controller: &mut Controller, get: GetLogPage) -> Status {
    let length = u32::try_from(get.length()).unwrap_or(0);
    let command = get.to_command().with_data_pointer(Descriptor::transport(length));
    refused(controller, &command)
}

/// Each log page: its length, or that there is none. The Persistent Event Log is read within a
/// context, telemetry in blocks.
#[test]
fn every_log_page() {
    let known = [
        (0x00, 1024),
        (0x01, 4096),
        (0x02, 512),
        (0x03, 512),
        (0x04, 4096),
        (0x05, 4096),
        (0x07, 512),
        (0x08, 512),
        (0x0d, 512),
        (0x80, 64),
    ];
    let mut controller = enabled();
    let establish = GetLogPage {
        specific_parameter: PersistentEventAction::ESTABLISH_AND_READ.0,
        ..GetLogPage::new(LogPageId::PERSISTENT_EVENT_LOG, 0, 512)
    };
    data(&mut controller, establish.to_command(), 512);
    for id in 0..=u8::MAX {
        let log_page = LogPageId(id);
        let Some((_, length)) = known.iter().find(|known| known.0 == id) else {
            let status = refusal(&mut controller, GetLogPage::new(log_page, 0, 4));
            assert_eq!(status, Status::INVALID_LOG_PAGE.with_dnr(), "{log_page}");
            continue;
        };
        read(&mut controller, log_page, *length);
        let unit = if [0x07, 0x08].contains(&id) { 512 } else { 4 };
        let last = GetLogPage::new(log_page, u64::from(length - unit), unit);
        data(&mut controller, last.to_command(), unit);
        let beyond = GetLogPage::new(log_page, u64::from(length + unit), unit);
        assert_eq!(refusal(&mut controller, beyond), Status::INVALID_FIELD.with_dnr());
    }
    let bytes = read(&mut controller, LogPageId::SUPPORTED_LOG_PAGES, 1024);
    let supported = SupportedLogPages::read(&bytes).expect("1024 bytes");
    for id in 0..=u8::MAX {
        let expected = known.iter().any(|known| known.0 == id);
        assert_eq!(supported.get(LogPageId(id)).supported(), expected);
    }
}

#[test]
fn any_part_of_a_log_page_can_be_read() {
    let mut controller = enabled();
    let log_page = LogPageId::COMMANDS_SUPPORTED_AND_EFFECTS;
    let whole = read(&mut controller, log_page, 4096);
    for (offset, length) in [(0u32, 4u32), (24, 16), (1024, 512), (4092, 4)] {
        let get = GetLogPage::new(log_page, offset.into(), length);
        let from = usize::try_from(offset).expect("small");
        let to = from + usize::try_from(length).expect("small");
        assert_eq!(data(&mut controller, get.to_command(), length), whole[from..to]);
    }
    let over = data(&mut controller, GetLogPage::new(log_page, 4092, 12).to_command(), 12);
    assert_eq!(over[4..], [0; 8], "zeros behind the end");
}

#[test]
fn a_part_must_be_one() {
    let mut controller = enabled();
    let log_page = LogPageId::ERROR_INFORMATION;
    let good = GetLogPage::new(log_page, 0, 64);
    for bad in [
        GetLogPage { offset: 2, ..good },
        GetLogPage { offset: u64::MAX - 3, ..good },
        GetLogPage { offset_is_index: true, ..good },
        GetLogPage { dwords_0s_based: (1 << 18), ..good },
        GetLogPage { dwords_0s_based: u32::MAX, ..good },
    ] {
        assert_eq!(refusal(&mut controller, bad), Status::INVALID_FIELD.with_dnr(), "{bad:?}");
    }
    let command = good.to_command().with_data_pointer(Descriptor::transport(60));
    assert_eq!(refused(&mut controller, &command), Status::DATA_SGL_LENGTH_INVALID.with_dnr());
    data(&mut controller, GetLogPage::new(log_page, 0, 1 << 20).to_command(), 1 << 20);
}

#[test]
fn errors_are_logged_with_what_is_known() {
    let mut controller = enabled();
    let command = Identify::new(Cns(0x77), 3).to_command();
    refused(&mut controller, &command.with_data_pointer(Descriptor::transport(4096)));
    let grant = attach(&mut controller, 4);
    let mut queue = IoQueue::new(grant, &controller.view);
    let read_command = weft_nvme::nvm::ReadWrite::new(16, 8)
        .expect("a count")
        .to_command(NvmOpcode::READ, 1)
        .with_command_id(0x99)
        .with_data_pointer(Descriptor::transport(4096));
    let IoAction::Device(device) = queue.handle_command(&read_command) else {
        panic!("a device command")
    };
    queue.complete_device(&device, Status::UNRECOVERED_READ_ERROR);
    let bytes = read(&mut controller, LogPageId::ERROR_INFORMATION, 4096);
    let entry = |index: usize| ErrorInformation::read(&bytes[index * 64..]).expect("64 bytes");
    let newest = entry(0);
    assert_eq!(newest.error_count.get(), 2);
    assert_eq!((newest.submission_queue_id.get(), newest.command_id.get()), (4, 0x99));
    assert_eq!(newest.status_field.status(), Status::UNRECOVERED_READ_ERROR);
    assert_eq!((newest.lba.get(), newest.namespace_id.get()), (16, 1));
    assert_eq!(newest.parameter_location.get(), 0xffff);
    assert_eq!(newest.opcode, NvmOpcode::READ.0);
    let oldest = entry(1);
    assert_eq!(oldest.error_count.get(), 1);
    assert_eq!((oldest.submission_queue_id.get(), oldest.command_id.get()), (0, CID));
    assert_eq!(oldest.status_field.status(), Status::INVALID_FIELD.with_dnr());
    assert_eq!((oldest.parameter_location.get(), oldest.namespace_id.get()), (40, 3));
    assert_eq!(entry(2), ErrorInformation::default());
    let health = health(&mut controller, NOW);
    assert_eq!((health.error_log_entries.get(), health.media_errors.get()), (2, 1));
}

fn health(controller: &mut Controller, now: Duration) -> Health {
    let get =
        GetLogPage { namespace_id: 0xffff_ffff, ..GetLogPage::new(LogPageId::HEALTH, 0, 512) };
    let command = get.to_command().with_data_pointer(Descriptor::transport(512));
    match controller.handle_command(&command, &[], now) {
        AdminReply::Data { bytes, .. } => Health::read(&bytes).expect("512 bytes"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn health_counts_what_was_done_on_all_namespaces() {
    let mut controller = enabled();
    let fresh = health(&mut controller, NOW);
    assert_eq!(fresh.composite_temperature_k.get(), 298);
    assert_eq!(fresh.available_spare_percent, 100);
    assert_eq!(fresh.critical_warning.0, 0);
    assert_eq!((fresh.data_units_read.get(), fresh.data_units_written.get()), (0, 0));
    let counters = controller.view.shared.counters();
    // One sector is a data unit begun; 1000 are one, 1001 are two.
    counters.count_read(512);
    counters.count_write(1000 * 512);
    let health_now = health(&mut controller, NOW + seconds(2 * 3600));
    assert_eq!((health_now.data_units_read.get(), health_now.data_units_written.get()), (1, 1));
    assert_eq!(health_now.power_on_hours.get(), 2);
    counters.count_write(512);
    drop(counters);
    let ended = health(&mut controller, NOW);
    assert_eq!((ended.data_units_read.get(), ended.data_units_written.get()), (1, 2));
    assert_eq!((ended.host_read_commands.get(), ended.host_write_commands.get()), (1, 2));
    let mut other = Controller::new(
        Arc::clone(&controller.view),
        &request(0, 31, 0xffff),
        CONTROLLER_ID + 1,
        LOCAL,
        NOW,
    );
    configure(&mut other, ENABLE);
    controller.handle_event(ControllerEvent::AdminQueueLost);
    let seen = health(&mut other, NOW);
    assert_eq!(seen.host_write_commands.get(), 2, "the subsystem's, whoever asks");
    assert_eq!(seen.unexpected_power_losses.get(), 1);
}

#[test]
fn health_is_of_the_controller() {
    let mut controller = enabled();
    for (namespace_id, good) in [(0, true), (0xffff_ffff, true), (1, false)] {
        let get = GetLogPage { namespace_id, ..GetLogPage::new(LogPageId::HEALTH, 0, 512) };
        if good {
            data(&mut controller, get.to_command(), 512);
        } else {
            assert_eq!(refusal(&mut controller, get), Status::INVALID_FIELD.with_dnr());
        }
    }
}

#[test]
fn there_is_one_firmware_slot() {
    let bytes = read(&mut enabled(), LogPageId::FIRMWARE_SLOT, 512);
    assert_eq!(bytes[0], 1);
    assert_eq!(&bytes[8..16], b"0.1     ");
    assert_eq!(bytes[16..], [0; 496]);
}

#[test]
fn more_changes_than_the_list_holds_are_one() {
    let mut controller = enabled_of(view(&[]));
    let many: Vec<u32> = (1..=1025).collect();
    controller.replace_view(Arc::new(view(&many)));
    let bytes = read(&mut controller, LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST, 4096);
    assert_eq!(bytes[..8], [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    let bytes = read(&mut controller, LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST, 4096);
    assert_eq!(bytes, [0; 4096]);
}

#[test]
fn effects_are_those_of_the_commands_that_there_are() {
    let mut controller = enabled();
    let log_page = LogPageId::COMMANDS_SUPPORTED_AND_EFFECTS;
    let bytes = read(&mut controller, log_page, 4096);
    let effects = CommandsSupportedAndEffects::read(&bytes).expect("4096 bytes");
    let admin = [0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18];
    let writes = [0x01, 0x04, 0x08, 0x09, 0x19];
    let reads = [0x00, 0x02, 0x05, 0x0c, 0x0d, 0x0e, 0x11, 0x15];
    for opcode in 0..=u8::MAX {
        let expected = match admin.contains(&opcode) {
            true => CommandEffects::SUPPORTED,
            false => CommandEffects(0),
        };
        assert_eq!(effects.admin_effects(opcode), expected, "{}", AdminOpcode(opcode));
        let expected = match (reads.contains(&opcode), writes.contains(&opcode)) {
            (true, _) => CommandEffects::SUPPORTED,
            (_, true) => CommandEffects::WRITES,
            _ => CommandEffects(0),
        };
        assert_eq!(effects.io_effects(opcode), expected, "{}", NvmOpcode(opcode));
    }
}

/// nvme-cli asks for the zoned command set, too, where CAP.CSS says that there may be several.
#[test]
fn the_zoned_command_set_has_an_effects_log_page_without_io_commands() {
    let get = |command_set| GetLogPage {
        command_set,
        ..GetLogPage::new(LogPageId::COMMANDS_SUPPORTED_AND_EFFECTS, 0, 4096)
    };
    let mut controller = enabled();
    let nvm = data(&mut controller, get(CommandSetId::NVM).to_command(), 4096);
    let zoned = data(&mut controller, get(CommandSetId::ZONED_NAMESPACE).to_command(), 4096);
    assert_eq!(zoned[..1024], nvm[..1024], "the admin commands");
    assert_eq!(zoned[1024..], [0; 3072]);
    let key_value = refusal(&mut controller, get(CommandSetId::KEY_VALUE));
    assert_eq!(key_value, Status::INVALID_FIELD.with_dnr());
}
