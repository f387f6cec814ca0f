use weft_nvme::Wire;
use weft_nvme::command::NAMESPACE_ID_BROADCAST;
use weft_nvme::identify::{
    self, Cns, CommandSetId, Descriptors, Identify, IndependentNamespace, NamespaceIdentifier,
    NvmController, NvmNamespace,
};

use super::*;
use crate::subsystem::test_support::{HOST, SUBSYSTEM, namespace, nqn};
use crate::subsystem::{ControllerModel, NamespaceHints};

fn ask(controller: &mut Controller, cns: Cns, nsid: u32) -> Vec<u8> {
    data(controller, Identify::new(cns, nsid).to_command(), 4096)
}

fn refusal(controller: &mut Controller, identify: Identify) -> Status {
    let command = identify.to_command().with_data_pointer(Descriptor::transport(4096));
    refused(controller, &command)
}

fn nsids(list: &[u8]) -> Vec<u32> {
    let ids = list.chunks_exact(4).map(|id| u32::from_le_bytes(id.try_into().expect("four")));
    ids.take_while(|id| *id != 0).collect()
}

/// The bytes that are not zero, as offset and value.
fn nonzero(bytes: &[u8]) -> Vec<(usize, u8)> {
    bytes.iter().copied().enumerate().filter(|(_, byte)| *byte != 0).collect()
}

#[test]
fn the_controller_structure() {
    let mut controller = enabled();
    let bytes = ask(&mut controller, Cns::CONTROLLER, 0);
    let identified = identify::Controller::read(&bytes).expect("4096 bytes");
    assert_eq!(&identified.serial_number.0, b"WEFT0001            ");
    assert_eq!(&identified.model_number.0[..10], b"weft test ");
    assert_eq!(&identified.firmware_revision.0, b"0.1     ");
    assert_eq!(identified.subsystem(), Ok(nqn(SUBSYSTEM)));
    // Offset and value of everything else, by the specification's figure.
    let named = [4..72, 768..1024];
    let rest: Vec<_> = nonzero(&bytes)
        .into_iter()
        .filter(|(offset, _)| !named.iter().any(|field| field.contains(offset)))
        .collect();
    let expected = [
        (72, 6),    // RAB
        (76, 0b11), // CMIC: several ports, several controllers
        (77, 8),    // MDTS: 1 MiB
        (78, 9),    // CNTLID
        (81, 1),    // VER 2.1.0
        (82, 2),
        (93, 1),         // OAES: namespace attributes
        (96, 0x41),      // CTRATT: 128-bit host identifier, TBKAS
        (111, 1),        // CNTRLTYPE: I/O
        (258, 3),        // ACL
        (259, 3),        // AERL
        (260, 0b11),     // FRMW: one slot, read only
        (261, 0b1_1110), // LPA: effects, extended data, telemetry, persistent event log
        (262, 63),       // ELPE
        (320, 1),        // KAS: 100 ms
        (352, 1),        // PELS: 64 KiB
        (512, 0x66),     // SQES
        (513, 0x44),     // CQES
        (515, 4),        // MAXCMD 1024
        (517, 4),        // NN 1024
        (520, 0xbf),     // ONCS: Compare, WU, DSM, WZ, select, reservations, Verify
        (521, 0b101),    // Copy, which is always fast
        (522, 1),        // FUSES: Compare and Write
        (525, 0b111),    // VWC: present, flush of all
        (531, 1),        // NWPC
        (534, 0b101),    // CDFS: formats 0h and 2h
        (536, 1),        // SGLS: no alignment
        (538, 0x30),     // SGLS: offset, transport
        (541, 4),        // MNAN 1024
        (1793, 4),       // IOCCSZ: 64 bytes and 16 KiB
        (1792, 4),
        (1796, 1), // IORCSZ
        (1803, 1), // MSDBD
        (1804, 1), // OFCS: Disconnect
    ];
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(rest, expected);
}

#[test]
fn without_namespaces_write_uncorrectable_is_not_claimed() {
    let mut controller = enabled_of(view(&[]));
    let bytes = ask(&mut controller, Cns::CONTROLLER, 0);
    let identified = identify::Controller::read(&bytes).expect("4096 bytes");
    assert!(!identified.optional_nvm_commands().write_uncorrectable());
}

#[test]
fn the_controller_structure_follows_the_view() {
    let mut subsystem = view(&[1, 3]);
    subsystem.controller_model = ControllerModel::Static;
    let third = subsystem.namespaces.get_mut(3).expect("there");
    third.capabilities.write_uncorrectable = false;
    let mut controller = enabled_of(subsystem);
    let bytes = ask(&mut controller, Cns::CONTROLLER, 0);
    let identified = identify::Controller::read(&bytes).expect("4096 bytes");
    assert!(identified.fabrics_attributes.static_controllers());
    assert!(!identified.optional_nvm_commands().write_uncorrectable());
    assert_eq!(identified.in_capsule_data_bytes(), 16384);
    assert_eq!(identified.maximum_transfer_bytes(0), Some(1 << 20));
}

/// Controllers of one subsystem agree, whichever namespaces there are when a host identifies them.
#[test]
fn the_atomic_units_of_the_subsystem_never_change() {
    for namespaces in [&[][..], &[1], &[1, 3]] {
        let bytes = ask(&mut enabled_of(view(namespaces)), Cns::CONTROLLER, 0);
        let identified = identify::Controller::read(&bytes).expect("4096 bytes");
        assert_eq!(identified.atomic_write_unit_normal_0s_based.get(), 0);
        assert_eq!(identified.atomic_write_unit_power_fail_0s_based.get(), 0);
        assert_eq!(identified.atomic_compare_and_write_unit_0s_based.get(), 0);
    }
}

#[test]
fn the_namespace_structure() {
    let mut controller = enabled();
    let bytes = ask(&mut controller, Cns::NAMESPACE, 3);
    let expected = vec![
        (1, 4),        // NSZE 1024
        (9, 4),        // NCAP
        (17, 4),       // NUSE
        (24, 0b10010), // NSFEAT: atomic units, OPTPERF
        (30, 1),       // NMIC: shared
        (31, 0xff),    // RESCAP: all types, PTPL, IEKEY
        (33, 0b1001),  // DLFEAT: zeros, Deallocate in Write Zeroes
        (34, 7),       // NAWUN
        (38, 7),       // NACWU
        (50, 8),       // NVMCAP 512 KiB
        (64, 7),       // NPWG
        (66, 7),       // NPWA
        (68, 7),       // NPDG
        (70, 7),       // NPDA
        (72, 63),      // NOWS
        (74, 0xff),    // MSSRL 65535
        (75, 0xff),
        (78, 1),   // MCL: 32 MiB
        (80, 127), // MSRC
    ];
    let identifiers = 104..128;
    let rest: Vec<_> =
        nonzero(&bytes).into_iter().filter(|(offset, _)| !identifiers.contains(offset)).collect();
    let format = vec![(130, 9)]; // LBAF0: 512 bytes
    assert_eq!(rest, [expected, format].concat());
    assert_eq!(bytes[104..120], namespace(3).nguid);
    assert_eq!(bytes[120..128], namespace(3).eui64);
}

#[test]
fn a_namespace_without_hints_says_nothing() {
    let mut subsystem = view(&[1]);
    let namespace = subsystem.namespaces.get_mut(1).expect("there");
    namespace.hints = NamespaceHints::default();
    namespace.capabilities = Default::default();
    namespace.block_bytes = 4096;
    namespace.write_protected = true;
    let mut controller = enabled_of(subsystem);
    let bytes = ask(&mut controller, Cns::NAMESPACE, 1);
    let identified = identify::Namespace::read(&bytes).expect("4096 bytes");
    assert_eq!(identified.features.optimal_performance(), 0);
    assert!(!identified.features.atomic_units());
    assert_eq!(identified.deallocate_features, Default::default());
    assert_eq!(bytes[34..46], [0; 12]);
    assert_eq!(bytes[64..74], [0; 10]);
    assert!(identified.attributes.write_protected());
    assert_eq!(identified.lba_format().and_then(|format| format.block_bytes()), Some(4096));
}

#[test]
fn a_deallocate_granularity_may_be_large() {
    let mut subsystem = view(&[1]);
    let namespace = subsystem.namespaces.get_mut(1).expect("there");
    namespace.hints = NamespaceHints { deallocate_blocks: 1 << 20, ..Default::default() };
    let mut controller = enabled_of(subsystem);
    let bytes = ask(&mut controller, Cns::NAMESPACE, 1);
    let identified = identify::Namespace::read(&bytes).expect("4096 bytes");
    assert_eq!(identified.features.optimal_performance(), 0b11);
    assert_eq!(identified.preferred_deallocate_granularity_0s_based.get(), 0xffff);
    let bytes = ask(&mut controller, Cns::COMMAND_SET_NAMESPACE, 1);
    let specific = NvmNamespace::read(&bytes).expect("4096 bytes");
    assert_eq!(specific.preferred_deallocate_granularity.get(), 1 << 20);
    assert_eq!(specific.preferred_deallocate_alignment.get(), 1 << 20);
}

#[test]
fn structures_of_the_command_set() {
    let mut controller = enabled();
    let bytes = ask(&mut controller, Cns::COMMAND_SET_NAMESPACE, 1);
    assert_eq!(nonzero(&bytes), [(268, 8), (284, 8)]);
    let bytes = ask(&mut controller, Cns::COMMAND_SET_CONTROLLER, 0);
    let specific = NvmController::read(&bytes).expect("4096 bytes");
    // 32 MiB both.
    assert_eq!((specific.verify_size_limit, specific.write_zeroes_size_limit), (13, 13));
    assert_eq!(nonzero(&bytes), [(0, 13), (1, 13), (21, 1), (22, 1)]);
    let bytes = ask(&mut controller, Cns::INDEPENDENT_NAMESPACE, 1);
    let independent = IndependentNamespace::read(&bytes).expect("4096 bytes");
    assert!(independent.status.ready() && independent.sharing.shared());
    assert!(!independent.attributes.write_protected());
    assert!(!independent.features.no_volatile_write_cache());
    let mut uncached = view(&[1]);
    uncached.namespaces.get_mut(1).expect("there").capabilities.volatile_cache = false;
    controller.replace_view(Arc::new(uncached));
    assert_eq!(ask(&mut controller, Cns::INDEPENDENT_NAMESPACE, 1)[0], 0b10_0000);
    for cns in [
        Cns::COMMAND_SET_NAMESPACE,
        Cns::COMMAND_SET_CONTROLLER,
        Cns::COMMAND_SET_ACTIVE_NAMESPACE_LIST,
    ] {
        let zoned =
            Identify { command_set: CommandSetId::ZONED_NAMESPACE, ..Identify::new(cns, 1) };
        assert_eq!(refusal(&mut controller, zoned), Status::INVALID_FIELD.with_dnr(), "{cns}");
    }
}

#[test]
fn the_one_combination_of_command_sets() {
    let mut controller = enabled();
    for (controller_id, good) in [(0xffff, true), (CONTROLLER_ID, true), (1, false)] {
        let identify = Identify { controller_id, ..Identify::new(Cns::COMMAND_SET_DATA, 0) };
        if good {
            let bytes = data(&mut controller, identify.to_command(), 4096);
            assert_eq!(nonzero(&bytes), [(0, 1)]);
        } else {
            assert_eq!(refusal(&mut controller, identify), Status::INVALID_FIELD.with_dnr());
        }
    }
}

#[test]
fn lists_of_active_namespaces() {
    let mut controller = enabled_of(view(&[1, 3, 700]));
    for cns in [
        Cns::ACTIVE_NAMESPACE_LIST,
        Cns::COMMAND_SET_ACTIVE_NAMESPACE_LIST,
        Cns::ALLOCATED_NAMESPACE_LIST,
        Cns::COMMAND_SET_ALLOCATED_NAMESPACE_LIST,
    ] {
        for (above, expected) in
            [(0, vec![1, 3, 700]), (1, vec![3, 700]), (2, vec![3, 700]), (700, vec![])]
        {
            assert_eq!(nsids(&ask(&mut controller, cns, above)), expected, "above {above}");
        }
        for nsid in [0xffff_fffe, 0xffff_ffff] {
            let status = refusal(&mut controller, Identify::new(cns, nsid));
            assert_eq!(status, Status::INVALID_NAMESPACE.with_dnr());
        }
    }
    let many: Vec<u32> = (1..=1024).chain([2000]).collect();
    let mut controller = enabled_of(view(&many));
    let first = nsids(&ask(&mut controller, Cns::ACTIVE_NAMESPACE_LIST, 0));
    assert_eq!((first.len(), first[1023]), (1024, 1024));
    assert_eq!(nsids(&ask(&mut controller, Cns::ACTIVE_NAMESPACE_LIST, 1024)), [2000]);
}

/// Those of a subsystem, and those that a namespace is attached to, as controllers and namespaces
/// come and go.
#[test]
fn lists_of_controllers() {
    let list = |controller: &mut Controller, cns, nsid, from| -> Vec<u16> {
        let identify = Identify { controller_id: from, ..Identify::new(cns, nsid) };
        let bytes = data(controller, identify.to_command(), 4096);
        identify::ControllerList::read(&bytes).expect("4096 bytes").iter().collect()
    };
    let (own, another) = (nqn(HOST), nqn("nqn.2024-01.io.example:another"));
    let seeing = |hosts: &[Nqn]| {
        let visibility = [(1, hosts.iter().copied().collect())].into_iter().collect();
        SubsystemView { visibility, ..view(&[1, 3]) }
    };
    let subsystem = seeing(&[own]);
    let mut controller = enabled_of(subsystem.clone());
    let second = subsystem.shared.list_controller(2, another);
    let third = subsystem.shared.list_controller(700, own);
    let (all, of_one) = (Cns::CONTROLLER_LIST, Cns::NAMESPACE_CONTROLLER_LIST);
    assert_eq!(list(&mut controller, all, 0, 0), [2, 9, 700]);
    assert_eq!(list(&mut controller, all, 0, 9), [9, 700]);
    assert_eq!(list(&mut controller, all, 0, 10), [700]);
    assert_eq!(list(&mut controller, all, 0, 701), []);
    assert_eq!(list(&mut controller, of_one, 1, 0), [9, 700]);
    assert_eq!(list(&mut controller, of_one, 3, 3), [9, 700]);
    assert_eq!(list(&mut controller, of_one, 4, 0), [], "no such namespace");
    for nsid in [0, 1025, NAMESPACE_ID_BROADCAST] {
        let status = refusal(&mut controller, Identify::new(of_one, nsid));
        assert_eq!(status, Status::INVALID_NAMESPACE.with_dnr());
    }
    drop(third);
    // Nobody waits until other controllers know of a change.
    let shared = Arc::clone(&subsystem.shared);
    let both = SubsystemView { shared, ..seeing(&[own, another]) };
    controller.replace_view(Arc::new(both.clone()));
    assert_eq!(list(&mut controller, of_one, 1, 0), [2, 9]);
    let mut smaller = both;
    smaller.namespaces = [namespace(3)].into_iter().collect();
    controller.replace_view(Arc::new(smaller));
    assert_eq!(list(&mut controller, of_one, 1, 0), [], "it is no longer seen");
    drop(controller);
    let again = enabled_of(subsystem.clone());
    assert_eq!(subsystem.shared.controllers(|_| true), [2, 9]);
    drop((second, again));
    assert!(subsystem.shared.controllers(|_| true).is_empty());
}

#[test]
fn descriptors_name_a_namespace() {
    let mut controller = enabled();
    let list = ask(&mut controller, Cns::NAMESPACE_DESCRIPTOR_LIST, 3);
    let known = namespace(3);
    let expected = [
        NamespaceIdentifier::Eui64(known.eui64),
        NamespaceIdentifier::Nguid(known.nguid),
        NamespaceIdentifier::Uuid(known.uuid),
        NamespaceIdentifier::CommandSet(CommandSetId::NVM),
    ];
    assert!(Descriptors::new(&list).eq(expected.map(Ok)));
    let mut subsystem = view(&[1]);
    let namespace = subsystem.namespaces.get_mut(1).expect("there");
    (namespace.eui64, namespace.nguid) = ([0; 8], [0; 16]);
    let uuid = namespace.uuid;
    let mut controller = enabled_of(subsystem);
    let list = ask(&mut controller, Cns::NAMESPACE_DESCRIPTOR_LIST, 1);
    let expected =
        [NamespaceIdentifier::Uuid(uuid), NamespaceIdentifier::CommandSet(CommandSetId::NVM)];
    assert!(Descriptors::new(&list).eq(expected.map(Ok)));
}

#[test]
fn inactive_namespaces_are_empty_and_invalid_ones_refused() {
    let mut controller = enabled();
    let invalid = Status::INVALID_NAMESPACE.with_dnr();
    for cns in [Cns::NAMESPACE, Cns::COMMAND_SET_NAMESPACE, Cns::INDEPENDENT_NAMESPACE] {
        for nsid in [2, 4, 1024] {
            assert_eq!(nonzero(&ask(&mut controller, cns, nsid)), [], "{cns} {nsid}");
        }
        for nsid in [0, 1025, 0xffff_fffe, 0xffff_ffff] {
            assert_eq!(refusal(&mut controller, Identify::new(cns, nsid)), invalid);
        }
    }
    for nsid in [0, 2, 1025, 0xffff_ffff] {
        let identify = Identify::new(Cns::NAMESPACE_DESCRIPTOR_LIST, nsid);
        assert_eq!(refusal(&mut controller, identify), invalid);
    }
}

/// Which structures there are, and that no other is.
#[test]
fn every_structure() {
    let known = [
        0x00, 0x01, 0x02, 0x03, 0x05, 0x06, 0x07, 0x08, 0x10, 0x11, 0x12, 0x13, 0x1a, 0x1b, 0x1c,
        0x1f,
    ];
    for cns in 0..=u8::MAX {
        let mut controller = enabled();
        let identify = Identify { controller_id: 0xffff, ..Identify::new(Cns(cns), 1) };
        if known.contains(&cns) {
            data(&mut controller, identify.to_command(), 4096);
        } else {
            let status = refusal(&mut controller, identify);
            assert_eq!(status, Status::INVALID_FIELD.with_dnr(), "{}", Cns(cns));
        }
    }
}

#[test]
fn every_structure_has_4096_bytes() {
    let mut controller = enabled();
    let identify = Identify::new(Cns::CONTROLLER, 0).to_command();
    for (pointer, status) in [
        (Descriptor::transport(4095), Status::DATA_SGL_LENGTH_INVALID),
        (Descriptor::transport(4097), Status::DATA_SGL_LENGTH_INVALID),
        (Descriptor::in_capsule(0, 4096), Status::INVALID_FIELD),
        (Descriptor::default(), Status::SGL_DESCRIPTOR_TYPE_INVALID),
    ] {
        let command = identify.with_data_pointer(pointer);
        assert_eq!(refused(&mut controller, &command), status.with_dnr());
    }
    let keyed = identify.with_data_pointer(Descriptor::keyed(0, 4096, 1, false));
    assert!(matches!(handle(&mut controller, &keyed), AdminReply::Data { .. }));
}
