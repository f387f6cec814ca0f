use std::collections::BTreeSet;

use weft_nvme::command::NAMESPACE_ID_BROADCAST;
use weft_nvme::identify::{self, Cns, ControllerList, FormattedLbaSize, Identify, NamespaceList};
use weft_nvme::wire::U64;
use weft_nvme::{AdminOpcode, Wire};

use super::*;
use crate::subsystem::HostNamespaces;
use crate::subsystem::test_support::{HOST, nqn};

/// Namespaces 1 and 3 of half a mebibyte each, of which a host has made 3, and one more, 5, that is
/// attached to nobody; 2 MiB in all.
fn managed() -> SubsystemView {
    let all = view(&[1, 3, 5]).namespaces;
    let made = [3, 5].into();
    let own = HostNamespaces { allocated: all, made, capacity_bytes: 2 << 20 };
    let visibility = [(5, BTreeSet::new())].into_iter().collect();
    SubsystemView { host_namespaces: Some(Arc::new(own)), visibility, ..view(&[1, 3]) }
}

fn command(opcode: AdminOpcode, nsid: u32, select: u32) -> Command {
    Command::new(opcode)
        .with_namespace_id(nsid)
        .with_cdw10(select)
        .with_command_id(CID)
        .with_data_pointer(Descriptor::transport(4096))
}

/// The effect of a command with this data, or its status.
fn asked(
    controller: &mut Controller,
    command: &Command,
    data: &[u8],
) -> Result<NamespaceChange, Status> {
    let reply = controller.handle_command(command, &[], NOW);
    let reply = match reply {
        AdminReply::NeedData(length) => {
            assert_eq!(length, 4096);
            controller.handle_command(command, data, NOW)
        }
        reply => reply,
    };
    match reply {
        AdminReply::Complete(completion) => Err(completion.status()),
        AdminReply::Pending => match effects(controller).as_slice() {
            [Effect::ChangeNamespaces { command_id: CID, change }] => Ok(change.clone()),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn template(blocks: u64, format: u8) -> identify::Namespace {
    let mut wanted = identify::Namespace::zeroed();
    wanted.size = U64::new(blocks);
    wanted.capacity = U64::new(blocks);
    wanted.formatted_lba_size = FormattedLbaSize(format);
    wanted
}

fn create(
    controller: &mut Controller,
    wanted: &identify::Namespace,
) -> Result<NamespaceChange, Status> {
    let command = command(AdminOpcode::NAMESPACE_MANAGEMENT, 0, 0);
    asked(controller, &command, wanted.bytes())
}

#[test]
fn a_namespace_is_made_within_the_limits() {
    let mut controller = enabled_of(managed());
    let made =
        |blocks, block_bytes| Ok(NamespaceChange::Create { blocks, block_bytes, ana_group: None });
    assert_eq!(create(&mut controller, &template(2048, 0)), made(2048, 512));
    // The command waits for the target; its identifier is taken until then.
    assert_eq!(
        create(&mut controller, &template(1, 0)),
        Err(Status::COMMAND_ID_CONFLICT.with_dnr())
    );
    let done = ControllerEvent::NamespacesChanged { command_id: CID, result: Ok(6) };
    controller.handle_event(done);
    assert_eq!(late(&mut controller), [(CID, Status::SUCCESS, 6)]);
    for (blocks, format, status) in [
        (2049, 0, Status::NAMESPACE_INSUFFICIENT_CAPACITY),
        (u64::MAX, 1, Status::NAMESPACE_INSUFFICIENT_CAPACITY),
        (0, 0, Status::INVALID_FIELD),
        (1, 2, Status::INVALID_FORMAT),
    ] {
        let refused = create(&mut controller, &template(blocks, format));
        assert_eq!(refused, Err(status.with_dnr()), "{blocks} {format}");
    }
    let mut thin = template(8, 1);
    thin.capacity = U64::new(4);
    let refused = create(&mut controller, &thin);
    assert_eq!(refused, Err(Status::THIN_PROVISIONING_NOT_SUPPORTED.with_dnr()));
    assert_eq!(create(&mut controller, &template(256, 1)), made(256, 4096));
    let failed = Err(Status::INTERNAL_ERROR);
    controller.handle_event(ControllerEvent::NamespacesChanged { command_id: CID, result: failed });
    assert_eq!(late(&mut controller), [(CID, Status::INTERNAL_ERROR, 0)]);
    let mut full = managed();
    full.limits.max_namespaces = 3;
    let refused = create(&mut enabled_of(full), &template(1, 0));
    assert_eq!(refused, Err(Status::NAMESPACE_ID_UNAVAILABLE.with_dnr()));
}

#[test]
fn hosts_delete_and_attach_only_what_hosts_have_made() {
    let manage = |nsid| command(AdminOpcode::NAMESPACE_MANAGEMENT, nsid, 1);
    let ask = |command: Command, data: &[u8]| asked(&mut enabled_of(managed()), &command, data);
    assert_eq!(ask(manage(5), &[]), Ok(NamespaceChange::Delete(vec![5])));
    assert_eq!(ask(manage(NAMESPACE_ID_BROADCAST), &[]), Ok(NamespaceChange::Delete(vec![3, 5])));
    assert_eq!(ask(manage(1), &[]), Err(Status::OPERATION_DENIED.with_dnr()));
    for nsid in [0, 2, 4, 2000] {
        assert_eq!(ask(manage(nsid), &[]), Err(Status::INVALID_NAMESPACE.with_dnr()), "{nsid}");
    }
    let unknown = command(AdminOpcode::NAMESPACE_MANAGEMENT, 5, 2);
    assert_eq!(ask(unknown, &[]), Err(Status::INVALID_FIELD.with_dnr()));

    let attach = |nsid, select| command(AdminOpcode::NAMESPACE_ATTACHMENT, nsid, select);
    let list = |ids: &[u16]| ControllerList::new(ids.iter().copied());
    let hosts = || [nqn(HOST)].into();
    assert_eq!(ask(attach(5, 0), list(&[9]).bytes()), Ok(NamespaceChange::Attach(5, hosts())));
    assert_eq!(ask(attach(3, 1), list(&[9]).bytes()), Ok(NamespaceChange::Detach(3, hosts())));
    for (nsid, select, ids, status) in [
        (3, 0, &[9][..], Status::NAMESPACE_ALREADY_ATTACHED),
        (5, 1, &[9], Status::NAMESPACE_NOT_ATTACHED),
        (5, 0, &[9, 10], Status::CONTROLLER_LIST_INVALID),
        (5, 0, &[], Status::CONTROLLER_LIST_INVALID),
        (1, 1, &[9], Status::OPERATION_DENIED),
        (2, 0, &[9], Status::INVALID_NAMESPACE),
        (5, 2, &[9], Status::INVALID_FIELD),
    ] {
        let refused = ask(attach(nsid, select), list(ids).bytes());
        assert_eq!(refused, Err(status.with_dnr()), "{nsid} {select} {ids:?}");
    }
}

/// What is not attached is in the lists of what is allocated, and in no other.
#[test]
fn allocated_namespaces_are_told_from_attached_ones() {
    let mut controller = enabled_of(managed());
    let list = |controller: &mut Controller, cns| -> Vec<u32> {
        let bytes = data(controller, Identify::new(cns, 0).to_command(), 4096);
        NamespaceList::read(&bytes).expect("4096 bytes").iter().collect()
    };
    assert_eq!(list(&mut controller, Cns::ACTIVE_NAMESPACE_LIST), [1, 3]);
    assert_eq!(list(&mut controller, Cns::ALLOCATED_NAMESPACE_LIST), [1, 3, 5]);
    for (cns, blocks) in [(Cns::NAMESPACE, 0), (Cns::ALLOCATED_NAMESPACE, 1024)] {
        let bytes = data(&mut controller, Identify::new(cns, 5).to_command(), 4096);
        let namespace = identify::Namespace::read(&bytes).expect("4096 bytes");
        assert_eq!(namespace.size.get(), blocks, "{cns}");
    }
    let all = Identify::new(Cns::NAMESPACE, NAMESPACE_ID_BROADCAST).to_command();
    let bytes = data(&mut controller, all, 4096);
    let common = identify::Namespace::read(&bytes).expect("4096 bytes");
    let sizes = common.lba_formats.iter().take(2).map(|format| format.block_bytes());
    assert_eq!(sizes.collect::<Vec<_>>(), [Some(512), Some(4096)]);
    let bytes = data(&mut controller, Identify::new(Cns::CONTROLLER, 0).to_command(), 4096);
    let identified = identify::Controller::read(&bytes).expect("4096 bytes");
    assert!(identified.optional_admin_commands().namespace_management());
    assert_eq!(identified.total_capacity_bytes.get(), 2 << 20);
    assert_eq!(identified.unallocated_capacity_bytes.get(), 1 << 20);
}

#[test]
fn without_leave_there_is_no_namespace_management() {
    for opcode in [AdminOpcode::NAMESPACE_MANAGEMENT, AdminOpcode::NAMESPACE_ATTACHMENT] {
        for select in [0, 1] {
            let status = asked(&mut enabled(), &command(opcode, 1, select), &[]);
            assert_eq!(status, Err(Status::INVALID_OPCODE.with_dnr()));
        }
    }
}
