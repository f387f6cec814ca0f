//! What a host sees of a controller, rule by rule.

mod ana;
mod discovery;
mod event;
mod feature;
mod identify;
mod lifecycle;
mod linux;
mod log_page;
mod management;
mod persistent;
mod queue;
mod table;
mod telemetry;

use std::net::Ipv4Addr;

use weft_nvme::fabrics::{PropertyGet, PropertySet, PropertySize};
use weft_nvme::property::{ControllerConfiguration, Offset, ShutdownNotification};
use weft_nvme::sgl::Descriptor;

use super::*;
use crate::connect::test_support::request;
use crate::subsystem::test_support::view;

const CID: u16 = 0x55;
const CONTROLLER_ID: u16 = 9;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// The time at which most things happen.
const NOW: Duration = Duration::from_secs(1000);

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

fn controller_of(view: SubsystemView) -> Controller {
    let request = request(0, 31, 0xffff);
    Controller::new(Arc::new(view), &request, CONTROLLER_ID, LOCAL, NOW)
}

/// An I/O controller over namespaces 1 and 3, enabled.
fn enabled() -> Controller {
    enabled_of(view(&[1, 3]))
}

fn enabled_of(view: SubsystemView) -> Controller {
    let mut controller = controller_of(view);
    configure(&mut controller, ENABLE);
    assert!(controller.is_ready());
    controller
}

/// Controller Configuration as the Linux host writes it to enable.
const ENABLE: ControllerConfiguration = ControllerConfiguration(0x0046_0061);

fn with_shutdown(notification: ShutdownNotification) -> ControllerConfiguration {
    ENABLE.with_shutdown_notification(notification)
}

fn configure(controller: &mut Controller, value: ControllerConfiguration) {
    configure_at(controller, value, NOW);
}

fn configure_at(controller: &mut Controller, value: ControllerConfiguration, now: Duration) {
    let offset = Offset::CONTROLLER_CONFIGURATION;
    let set = PropertySet::new(offset, PropertySize::Four, value.0.into());
    let reply = controller.handle_command(&set.to_command(), &[], now);
    assert_eq!(status_of(&reply), Status::SUCCESS);
}

fn property(controller: &mut Controller, offset: Offset) -> u64 {
    let get = PropertyGet::new(offset, offset.size().expect("known"));
    match controller.handle_command(&get.to_command(), &[], NOW) {
        AdminReply::Complete(completion) => {
            assert_eq!(completion.status(), Status::SUCCESS);
            completion.result.get()
        }
        other => panic!("{other:?}"),
    }
}

/// Controller Status, as a number.
fn status(controller: &mut Controller) -> u64 {
    property(controller, Offset::CONTROLLER_STATUS)
}

fn status_of(reply: &AdminReply) -> Status {
    match reply {
        AdminReply::Complete(completion) | AdminReply::Data { completion, .. } => {
            completion.status()
        }
        other => panic!("{other:?}"),
    }
}

fn handle(controller: &mut Controller, command: &Command) -> AdminReply {
    let reply = controller.handle_command(&command.with_command_id(CID), &[], NOW);
    if let AdminReply::Complete(completion) | AdminReply::Data { completion, .. } = &reply {
        assert_eq!(completion.command_id.get(), CID);
    }
    reply
}

/// The status that a command is answered with at once, and no data.
#[track_caller]
fn refused(controller: &mut Controller, command: &Command) -> Status {
    match handle(controller, command) {
        AdminReply::Complete(completion) => completion.status(),
        other => panic!("{other:?}"),
    }
}

/// Dword 0 of a command that succeeds at once.
#[track_caller]
fn result(controller: &mut Controller, command: &Command) -> u32 {
    match handle(controller, command) {
        AdminReply::Complete(completion) => {
            assert_eq!(completion.status(), Status::SUCCESS);
            completion.dword0()
        }
        other => panic!("{other:?}"),
    }
}

/// The data of a command that succeeds with `length` bytes of it.
#[track_caller]
fn data(controller: &mut Controller, command: Command, length: u32) -> Vec<u8> {
    match handle(controller, &command.with_data_pointer(Descriptor::transport(length))) {
        AdminReply::Data { bytes, completion } => {
            assert_eq!(completion.status(), Status::SUCCESS);
            assert_eq!(bytes.len(), usize::try_from(length).expect("small"));
            bytes
        }
        other => panic!("{other:?}"),
    }
}

fn effects(controller: &mut Controller) -> Vec<Effect> {
    std::iter::from_fn(|| controller.poll_effect()).collect()
}

/// The identifiers of the commands that the host has given up, of which the effects are nothing
/// else.
#[track_caller]
fn given_up(controller: &mut Controller) -> Vec<u16> {
    let identifier = |effect| match effect {
        Effect::Discard { command_id } => command_id,
        other => panic!("{other:?}"),
    };
    effects(controller).into_iter().map(identifier).collect()
}

/// Command identifier, status and dword 0 of the completions among the effects; there may be
/// nothing else.
#[track_caller]
fn late(controller: &mut Controller) -> Vec<(u16, Status, u32)> {
    effects(controller)
        .into_iter()
        .map(|effect| match effect {
            Effect::Complete(completion) => {
                (completion.command_id.get(), completion.status(), completion.dword0())
            }
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Attaches an I/O queue of 128 entries.
fn attach(controller: &mut Controller, queue_id: u16) -> QueueGrant {
    controller.attach_queue(&request(queue_id, 127, CONTROLLER_ID)).expect("a queue")
}

proptest::proptest! {
    #[test]
    fn any_actions_keep_the_invariants(
        data in proptest::collection::vec(proptest::num::u8::ANY, 0..1500),
    ) {
        fuzzing::actions(&data);
    }
}
