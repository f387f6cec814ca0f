//! What the Linux host asks, in its order (`drivers/nvme/host`: `nvme_tcp_setup_ctrl`,
//! `nvme_init_ctrl_finish`, `nvme_scan_work`, from 6.1 to the newest), and what it insists on.

use weft_nvme::abort::Abort;
use weft_nvme::feature::{FeatureId, GetFeatures, NumberOfQueues, SetFeatures};
use weft_nvme::identify::{self, Cns, CommandSetId, Descriptors, Identify, NamespaceIdentifier};
use weft_nvme::log_page::{GetLogPage, LogPageId};
use weft_nvme::{AdminOpcode, Wire};

use super::*;

fn identify(controller: &mut Controller, cns: Cns, nsid: u32) -> Vec<u8> {
    data(controller, Identify::new(cns, nsid).to_command(), 4096)
}

fn log(controller: &mut Controller, log_page: LogPageId, nsid: u32, length: u32) -> Vec<u8> {
    let get = GetLogPage { namespace_id: nsid, ..GetLogPage::new(log_page, 0, length) };
    data(controller, get.to_command(), length)
}

/// Enabling: CAP, CRTO if CAP says so, CC twice (without and with EN), CSTS until it is ready.
fn bring_up(controller: &mut Controller) {
    let capabilities =
        weft_nvme::property::Capabilities(property(controller, Offset::CONTROLLER_CAPABILITIES));
    assert_eq!(capabilities.memory_page_size_minimum(), 0, "pages of 4 KiB");
    assert!(capabilities.nvm_command_set() && capabilities.io_command_sets());
    if capabilities.ready_with_media_supported() {
        assert!(property(controller, Offset::CONTROLLER_READY_TIMEOUTS) > 0);
    }
    configure(controller, ENABLE.with_enable(false));
    property(controller, Offset::CONTROLLER_CONFIGURATION);
    configure(controller, ENABLE);
    assert_eq!(status(controller) & 1, 1);
    property(controller, Offset::VERSION);
}

/// `nvme_init_ctrl_finish`: the controller is looked at, and what does not fit is refused.
fn look_at_the_controller(controller: &mut Controller) {
    let bytes = identify(controller, Cns::CONTROLLER, 0);
    let seen = identify::Controller::read(&bytes).expect("4096 bytes");
    assert_eq!(seen.controller_id.get(), CONTROLLER_ID, "Mismatching cntlid");
    assert_ne!(seen.keep_alive_granularity_100ms.get(), 0, "keep-alive support is mandatory");
    assert_eq!(seen.in_capsule_data_offset_16b.get(), 0, "icdoff is not supported");
    assert!(seen.io_command_capsule_16b.get() >= 4, "command capsule must be at least 64 bytes");
    assert!(seen.io_response_capsule_16b.get() >= 1, "response capsule must be 16 bytes");
    assert_ne!(seen.sgl_support().supported(), 0, "mandatory SGLs are not supported");
    assert_ne!(seen.maximum_outstanding_commands.get(), 0, "maxcmd must be nonzero");
    log(controller, LogPageId::COMMANDS_SUPPORTED_AND_EFFECTS, 0, 4096);
    identify(controller, Cns::COMMAND_SET_CONTROLLER, 0);
    log(controller, LogPageId::HEALTH, 0xffff_ffff, 512);
    result(controller, &GetFeatures::new(FeatureId::TEMPERATURE_THRESHOLD).to_command());
    let under =
        GetFeatures { cdw11: 1 << 20, ..GetFeatures::new(FeatureId::TEMPERATURE_THRESHOLD) };
    result(controller, &under.to_command());
}

/// `nvme_scan_work`: which namespaces, and what each is.
fn look_at_the_namespaces(controller: &mut Controller) -> Vec<u32> {
    let list = identify(controller, Cns::ACTIVE_NAMESPACE_LIST, 0);
    let ids = list.chunks_exact(4).map(|id| u32::from_le_bytes(id.try_into().expect("four")));
    let nsids: Vec<u32> = ids.take_while(|nsid| *nsid != 0).collect();
    for nsid in &nsids {
        let list = identify(controller, Cns::NAMESPACE_DESCRIPTOR_LIST, *nsid);
        let command_set = NamespaceIdentifier::CommandSet(CommandSetId::NVM);
        let mut descriptors = Descriptors::new(&list);
        assert!(descriptors.any(|one| one == Ok(command_set)), "command set not reported");
        let independent = identify(controller, Cns::INDEPENDENT_NAMESPACE, *nsid);
        assert_eq!(independent[14] & 1, 1, "namespace not ready");
        let bytes = identify(controller, Cns::NAMESPACE, *nsid);
        let seen = identify::Namespace::read(&bytes).expect("4096 bytes");
        assert_ne!(seen.capacity.get(), 0);
        assert!(seen.lba_format().and_then(|format| format.block_bytes()).is_some());
        identify(controller, Cns::COMMAND_SET_NAMESPACE, *nsid);
        log(controller, LogPageId::COMMANDS_SUPPORTED_AND_EFFECTS, 0, 4096);
    }
    nsids
}

#[test]
fn the_linux_host_connects_does_io_and_disconnects() {
    let mut controller = controller_of(view(&[1, 3]));
    bring_up(&mut controller);
    look_at_the_controller(&mut controller);
    let asked = SetFeatures::new(FeatureId::NUMBER_OF_QUEUES, NumberOfQueues::pairs(4).0);
    assert_eq!(result(&mut controller, &asked.to_command()), NumberOfQueues::pairs(4).0);
    for queue_id in 1..=4 {
        attach(&mut controller, queue_id);
    }
    let events = SetFeatures::new(FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION, 0x100).to_command();
    result(&mut controller, &events);
    let request = Command::new(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST).with_command_id(30);
    assert_eq!(controller.handle_command(&request, &[], NOW), AdminReply::Pending);
    assert_eq!(look_at_the_namespaces(&mut controller), [1, 3]);
    result(&mut controller, &Command::new(AdminOpcode::KEEP_ALIVE));

    // A namespace is added: the event, the list of changes, and another look.
    controller.replace_view(Arc::new(view(&[1, 3, 4])));
    assert_eq!(late(&mut controller), [(30, Status::SUCCESS, 0x0004_0002)]);
    assert_eq!(controller.handle_command(&request, &[], NOW), AdminReply::Pending);
    let changed = log(&mut controller, LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST, 0, 4096);
    assert_eq!(changed[..8], [4, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(look_at_the_namespaces(&mut controller), [1, 3, 4]);

    // It leaves: the connections of the I/O queues first, then the shutdown.
    for queue_id in 1..=4 {
        controller.detach_queue(queue_id);
    }
    configure(&mut controller, with_shutdown(ShutdownNotification::NORMAL));
    assert_eq!(status(&mut controller) & 0b1100, 0b1000, "shutdown complete");
    assert_eq!(late(&mut controller), []);
    controller.handle_event(ControllerEvent::AdminQueueLost);
    assert_eq!(controller.view.shared.associations_lost(), 0);
}

#[test]
fn the_linux_host_resets() {
    let mut controller = enabled();
    attach(&mut controller, 1);
    let stale = Abort { submission_queue_id: 1, command_id: 7 }.to_command();
    assert_eq!(handle(&mut controller, &stale), AdminReply::Pending);
    controller.detach_queue(1);
    configure(&mut controller, ENABLE.with_enable(false));
    assert_eq!(status(&mut controller), 0);
    controller.handle_event(ControllerEvent::AdminQueueLost);
    let gone = EndReason::Disconnected;
    let ending = [Effect::EndQueues(gone), Effect::Close(gone)];
    match &effects(&mut controller)[..] {
        [Effect::Abort { .. }, Effect::Complete(completion), rest @ ..] => {
            assert_eq!(completion.command_id.get(), CID, "the Abort is answered");
            assert_eq!(rest, ending);
        }
        other => panic!("{other:?}"),
    }
}
