use weft_nvme::AdminOpcode;
use weft_nvme::abort::Abort;
use weft_nvme::feature::{FeatureId, NumberOfQueues, SetFeatures};

use super::*;
use crate::subsystem::test_support::nqn;

const INVALID: Status = Status::CONNECT_INVALID_PARAMETERS.with_dnr();

#[track_caller]
fn turned_away(controller: &mut Controller, request: &ConnectRequest) -> (Status, u32) {
    let error = controller.attach_queue(request).expect_err("turned away");
    (error.status, error.result)
}

fn good(queue_id: u16) -> ConnectRequest {
    request(queue_id, 127, CONTROLLER_ID)
}

#[test]
fn a_queue_is_granted_what_it_asks_for() {
    let mut controller = enabled();
    let request = ConnectRequest { flow_control: false, ..good(5) };
    let grant = controller.attach_queue(&request).expect("a queue");
    assert_eq!((grant.queue_id, grant.entries, grant.flow_control), (5, 128, false));
    assert_eq!(grant.controller_id, CONTROLLER_ID);
    assert_eq!(controller.queues.keys().collect::<Vec<_>>(), [&5]);
    let completion = grant.completion();
    assert_eq!((completion.status(), completion.dword0()), (Status::SUCCESS, 9));
}

#[test]
fn a_queue_must_belong_to_the_association() {
    let mut controller = enabled();
    let table = [
        (ConnectRequest { subsystem: nqn("nqn.other"), ..good(1) }, 0x1_0100),
        (ConnectRequest { controller_id: 8, ..good(1) }, 0x1_0010),
        (ConnectRequest { controller_id: 0xffff, ..good(1) }, 0x1_0010),
        (ConnectRequest { host: nqn("nqn.other"), ..good(1) }, 0x1_0200),
    ];
    for (request, parameter) in table {
        assert_eq!(turned_away(&mut controller, &request), (INVALID, parameter));
    }
    assert_eq!(controller.queues.len(), 0);
}

/// As with the Linux target: some hosts make a new identifier for each Connect.
#[test]
fn the_host_identifier_of_an_io_queue_does_not_count() {
    let mut controller = enabled();
    let request = ConnectRequest { host_id: [1; 16], ..good(1) };
    assert!(controller.attach_queue(&request).is_ok());
}

#[test]
fn a_queue_identifier_is_in_range_and_free() {
    let mut controller = enabled();
    for queue_id in [0, 129, u16::MAX] {
        let request = ConnectRequest { queue_id, ..good(1) };
        assert_eq!(turned_away(&mut controller, &request), (INVALID, 42), "{queue_id}");
    }
    attach(&mut controller, 128);
    let again = (Status::COMMAND_SEQUENCE_ERROR.with_dnr(), 0);
    assert_eq!(turned_away(&mut controller, &good(128)), again);
    controller.detach_queue(128);
    attach(&mut controller, 128);
}

#[test]
fn a_host_connects_no_more_queues_than_it_was_allocated() {
    let mut controller = enabled();
    let ask = SetFeatures::new(FeatureId::NUMBER_OF_QUEUES, NumberOfQueues::pairs(2).0);
    assert_eq!(result(&mut controller, &ask.to_command()), 0x0001_0001);
    attach(&mut controller, 2);
    assert_eq!(turned_away(&mut controller, &good(3)), (INVALID, 42));
}

#[test]
fn a_queue_is_no_longer_than_the_controller_says() {
    let mut controller = enabled();
    assert_eq!(turned_away(&mut controller, &request(1, 1024, CONTROLLER_ID)), (INVALID, 44));
    assert!(controller.attach_queue(&request(1, 1023, CONTROLLER_ID)).is_ok());
}

#[test]
fn queues_come_while_the_controller_is_ready() {
    let sequence = (Status::COMMAND_SEQUENCE_ERROR.with_dnr(), 0);
    let mut controller = controller_of(view(&[1]));
    assert_eq!(turned_away(&mut controller, &good(1)), sequence, "not enabled");
    configure(&mut controller, ControllerConfiguration(1));
    assert_eq!(turned_away(&mut controller, &good(1)), (INVALID, 42), "without entry sizes");
    configure(&mut controller, ENABLE);
    attach(&mut controller, 1);
    configure(&mut controller, with_shutdown(ShutdownNotification::NORMAL));
    assert_eq!(turned_away(&mut controller, &good(2)), sequence, "shutting down");
    controller.detach_queue(1);
    assert_eq!(turned_away(&mut controller, &good(2)), sequence, "shut down");
    controller.handle_event(ControllerEvent::AdminQueueLost);
    assert_eq!(turned_away(&mut controller, &good(2)), (INVALID, 0x1_0010), "gone");
}

#[test]
fn a_host_that_is_no_longer_allowed_gets_no_queue() {
    let mut view = view(&[1]);
    let mut controller = enabled_of(view.clone());
    view.allowed_hosts = Some(Arc::default());
    controller.view = Arc::new(view);
    let refused = (Status::CONNECT_INVALID_HOST.with_dnr(), 0);
    assert_eq!(turned_away(&mut controller, &good(1)), refused);
}

fn abort(submission_queue_id: u16, command_id: u16, abort_id: u16) -> Command {
    Abort { submission_queue_id, command_id }.to_command().with_command_id(abort_id)
}

fn send(controller: &mut Controller, command: &Command) -> AdminReply {
    controller.handle_command(command, &[], NOW)
}

#[test]
fn an_abort_of_an_io_command_is_the_targets_to_try() {
    for (aborted, result) in [(true, 0), (false, 1)] {
        let mut controller = enabled();
        attach(&mut controller, 4);
        assert_eq!(send(&mut controller, &abort(4, 0x99, 7)), AdminReply::Pending);
        let effect = Effect::Abort { abort_id: 7, queue_id: 4, command_id: 0x99 };
        assert_eq!(effects(&mut controller), [effect]);
        controller.handle_event(ControllerEvent::AbortDone { abort_id: 7, aborted });
        assert_eq!(late(&mut controller), [(7, Status::SUCCESS, result)]);
        controller.handle_event(ControllerEvent::AbortDone { abort_id: 7, aborted });
        assert_eq!(late(&mut controller), [], "answered once");
    }
}

#[test]
fn an_abort_of_what_is_not_there_aborts_nothing() {
    let mut controller = enabled();
    assert_eq!(result(&mut controller, &abort(4, 0x99, 7)), 1, "no such queue");
    assert_eq!(result(&mut controller, &abort(0, 0x99, 7)), 1, "nothing waits");
    let beyond = abort(129, 0, 7);
    assert_eq!(refused(&mut controller, &beyond), Status::INVALID_FIELD.with_dnr());
    assert_eq!(effects(&mut controller), []);
}

#[test]
fn an_event_request_can_be_aborted() {
    let mut controller = enabled();
    let request = Command::new(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST).with_command_id(3);
    assert_eq!(send(&mut controller, &request), AdminReply::Pending);
    assert_eq!(result(&mut controller, &abort(0, 3, 7)), 0);
    assert_eq!(late(&mut controller), [(3, Status::ABORT_REQUESTED, 0)]);
}

#[test]
fn aborts_are_limited() {
    let mut controller = enabled();
    attach(&mut controller, 1);
    for abort_id in 0..4 {
        assert_eq!(send(&mut controller, &abort(1, 9, abort_id)), AdminReply::Pending);
    }
    let limit = Status::ABORT_COMMAND_LIMIT_EXCEEDED;
    assert_eq!(refused(&mut controller, &abort(1, 9, 4)), limit);
    effects(&mut controller);
    controller.handle_event(ControllerEvent::AbortDone { abort_id: 2, aborted: true });
    effects(&mut controller);
    assert_eq!(send(&mut controller, &abort(1, 9, 5)), AdminReply::Pending);
}

#[test]
fn an_identifier_that_waits_is_not_taken_again() {
    let mut controller = enabled();
    attach(&mut controller, 1);
    send(&mut controller, &abort(1, 9, 4));
    let request = Command::new(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST).with_command_id(5);
    send(&mut controller, &request);
    let keep_alive = Command::new(AdminOpcode::KEEP_ALIVE);
    for (command_id, status) in [
        (4, Status::COMMAND_ID_CONFLICT.with_dnr()),
        (5, Status::COMMAND_ID_CONFLICT.with_dnr()),
        (6, Status::SUCCESS),
    ] {
        let reply = send(&mut controller, &keep_alive.with_command_id(command_id));
        assert_eq!(status_of(&reply), status);
    }
}

#[test]
fn aborts_are_answered_when_their_queue_ends() {
    let mut controller = enabled();
    attach(&mut controller, 1);
    attach(&mut controller, 2);
    send(&mut controller, &abort(1, 9, 21));
    send(&mut controller, &abort(2, 9, 22));
    send(&mut controller, &abort(1, 8, 23));
    effects(&mut controller);
    controller.detach_queue(1);
    assert_eq!(
        late(&mut controller),
        [(21, Status::SUCCESS, 1), (23, Status::SUCCESS, 1)],
        "those of the other queue still wait"
    );
    configure(&mut controller, ControllerConfiguration(0));
    let answered = effects(&mut controller);
    assert!(matches!(answered[..], [Effect::Complete(_), Effect::EndQueues(EndReason::Reset)]));
}
