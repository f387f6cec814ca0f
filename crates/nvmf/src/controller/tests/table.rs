use weft_nvme::command::{DataPointer, Flags, Fused as FusedField};
use weft_nvme::{AdminOpcode, FabricsType};

use super::*;
use crate::controller::tests::discovery::enabled_discovery;

/// What becomes of a command that says nothing but its opcode.
fn outcome(controller: &mut Controller, opcode: u8) -> String {
    let command = Command::new(opcode).with_data_pointer(Descriptor::transport(4096));
    match handle(controller, &command) {
        AdminReply::Complete(completion) => format!("{}", completion.status().code()),
        AdminReply::Data { bytes, .. } => format!("{} bytes", bytes.len()),
        AdminReply::NeedData(length) => format!("needs {length} bytes"),
        AdminReply::Pending => "pending".into(),
    }
}

/// All opcodes whose outcome is not Invalid Command Opcode.
fn table(make: fn() -> Controller) -> Vec<(AdminOpcode, String)> {
    (0..=u8::MAX)
        .map(|opcode| (AdminOpcode(opcode), outcome(&mut make(), opcode)))
        .filter(|(_, outcome)| outcome != "Invalid Command Opcode")
        .collect()
}

fn rows(rows: &[(AdminOpcode, &str)]) -> Vec<(AdminOpcode, String)> {
    rows.iter().map(|(opcode, outcome)| (*opcode, (*outcome).to_owned())).collect()
}

#[test]
fn every_opcode_on_an_io_controller() {
    // Identify of namespace 0, log page 0 is of 4 bytes, there is no feature 0, and Fabrics
    // command type 0 is Property Set.
    let expected = rows(&[
        (AdminOpcode::GET_LOG_PAGE, "Data SGL Length Invalid"),
        (AdminOpcode::IDENTIFY, "Invalid Namespace or Format"),
        (AdminOpcode::ABORT, "Successful Completion"),
        (AdminOpcode::SET_FEATURES, "Invalid Field in Command"),
        (AdminOpcode::GET_FEATURES, "Invalid Field in Command"),
        (AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST, "pending"),
        (AdminOpcode::KEEP_ALIVE, "Successful Completion"),
        (AdminOpcode::FABRICS, "Invalid Field in Command"),
    ]);
    assert_eq!(table(enabled), expected);
}

#[test]
fn every_opcode_on_a_discovery_controller() {
    let expected = rows(&[
        (AdminOpcode::GET_LOG_PAGE, "Data SGL Length Invalid"),
        (AdminOpcode::IDENTIFY, "Invalid Field in Command"),
        (AdminOpcode::ABORT, "Successful Completion"),
        (AdminOpcode::SET_FEATURES, "Invalid Field in Command"),
        (AdminOpcode::GET_FEATURES, "Invalid Field in Command"),
        (AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST, "pending"),
        (AdminOpcode::KEEP_ALIVE, "Successful Completion"),
        (AdminOpcode::DISCOVERY_INFORMATION_MANAGEMENT, "needs 4096 bytes"),
        (AdminOpcode::FABRICS, "Invalid Field in Command"),
    ]);
    assert_eq!(table(enabled_discovery), expected);
}

#[test]
fn before_it_is_enabled_a_controller_has_properties_only() {
    for opcode in 0..=u8::MAX {
        let mut controller = controller_of(view(&[1]));
        let outcome = outcome(&mut controller, opcode);
        match AdminOpcode(opcode) {
            AdminOpcode::FABRICS => assert_eq!(outcome, "Invalid Field in Command"),
            other => assert_eq!(outcome, "Command Sequence Error", "{other}"),
        }
    }
}

#[test]
fn every_fabrics_type() {
    for fabrics_type in 0..=u8::MAX {
        let fabrics_type = FabricsType(fabrics_type);
        let status = refused(&mut enabled(), &Command::fabrics(fabrics_type));
        let expected = match fabrics_type {
            // Of 4 bytes at offset 0, where there is a property of 8.
            FabricsType::PROPERTY_GET | FabricsType::PROPERTY_SET => Status::INVALID_FIELD,
            FabricsType::CONNECT => Status::COMMAND_SEQUENCE_ERROR,
            FabricsType::DISCONNECT => Status::DISCONNECT_INVALID_QUEUE_TYPE,
            _ => Status::INVALID_OPCODE,
        };
        assert_eq!(status, expected.with_dnr(), "{fabrics_type}");
    }
}

#[test]
fn admin_commands_use_sgls_and_are_not_fused() {
    for flags in [
        Flags(0),
        Flags(0).with_data_pointer(DataPointer(3)),
        Flags::SGL.with_fused(FusedField::FIRST),
        Flags::SGL.with_fused(FusedField::SECOND),
    ] {
        let command = Command::new(AdminOpcode::KEEP_ALIVE).with_flags(flags);
        assert_eq!(refused(&mut enabled(), &command), Status::INVALID_FIELD.with_dnr());
    }
    let other = Flags(0).with_data_pointer(DataPointer::SGL_METADATA_SGL);
    let command = Command::new(AdminOpcode::KEEP_ALIVE).with_flags(other);
    assert_eq!(refused(&mut enabled(), &command), Status::SUCCESS);
}

#[test]
fn the_head_wraps() {
    let mut controller = controller_of(view(&[1]));
    let connected = controller.connect_completion();
    assert_eq!((connected.status(), connected.dword0()), (Status::SUCCESS, 9));
    assert_eq!(connected.command_id.get(), 0x77);
    assert_eq!(connected.submission_queue_head.get(), 1);
    let command = Command::new(AdminOpcode::KEEP_ALIVE);
    let mut heads = Vec::new();
    for _ in 0..33 {
        match controller.handle_command(&command, &[], NOW) {
            AdminReply::Complete(done) => heads.push(done.submission_queue_head.get()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(heads[..3], [2, 3, 4]);
    assert_eq!(heads[29..], [31, 0, 1, 2]);
}

#[test]
fn without_flow_control_there_is_no_head() {
    let request = ConnectRequest { flow_control: false, ..request(0, 31, 0xffff) };
    let mut controller = Controller::new(Arc::new(view(&[1])), &request, 1, LOCAL, NOW);
    assert_eq!(controller.connect_completion().submission_queue_head.get(), 0xffff);
    let reply = controller.handle_command(&Command::new(AdminOpcode::KEEP_ALIVE), &[], NOW);
    match reply {
        AdminReply::Complete(done) => assert_eq!(done.submission_queue_head.get(), 0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn bad_data_is_completed_with_its_status() {
    let mut controller = enabled();
    let command = Command::new(AdminOpcode::SET_FEATURES).with_command_id(3);
    let done = controller.reject(&command, Status::TRANSIENT_TRANSPORT_ERROR);
    assert_eq!(done.command_id.get(), 3);
    assert_eq!(done.status(), Status::TRANSIENT_TRANSPORT_ERROR);
    assert_eq!(done.submission_queue_head.get(), 3, "connect, enable and this");
}
