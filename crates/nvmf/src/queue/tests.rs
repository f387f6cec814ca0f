use weft_nvme::command::{DataPointer, Flags, NAMESPACE_ID_BROADCAST};
use weft_nvme::fabrics::Disconnect;
use weft_nvme::nvm::{
    CopyCommand, CopySourceRange, DatasetAttributes, DatasetManagement, ReadWrite, WriteZeroes,
};
use weft_nvme::sgl::Descriptor;
use weft_nvme::status::StatusCode;

use super::*;
use crate::reservation::Refusals;
use crate::subsystem::NamespaceView;
use crate::subsystem::test_support::view;

/// A queue of 4 entries over namespaces 1, 2 and 7 of 1024 blocks of 512 bytes each; the second
/// is write protected.
fn test_view() -> SubsystemView {
    let mut view = view(&[1, 2, 7]);
    view.limits.mdts_bytes = 16 * 1024;
    view.limits.in_capsule_bytes = 8 * 1024;
    view.limits.verify_bytes = 64 * 1024;
    view.limits.write_zeroes_bytes = 128 * 1024;
    view.namespaces.get_mut(2).expect("there").write_protected = true;
    view
}

fn grant(flow_control: bool) -> QueueGrant {
    QueueGrant {
        queue_id: 3,
        entries: 4,
        flow_control,
        priority: None,
        port_id: 1,
        controller_id: 9,
        command_id: 0x77,
        shared: Arc::new(QueueShared::default()),
        controller: ControllerShared::new(&test_view(), [1; 16]),
        limits: test_view().limits,
    }
}

fn queue() -> IoQueue {
    IoQueue::new(grant(true), &test_view())
}

const CID: u16 = 0x1234;

fn read_write(opcode: NvmOpcode, nsid: u32, block: u64, blocks: u32) -> Command {
    ReadWrite::new(block, blocks)
        .expect("a count")
        .to_command(opcode, nsid)
        .with_command_id(CID)
        .with_data_pointer(Descriptor::transport(blocks * 512))
}

fn deallocate(nsid: u32, ranges: u16) -> Command {
    let attributes = DatasetAttributes(0).with_deallocate(true);
    DatasetManagement { range_count: ranges, attributes }
        .to_command(nsid)
        .with_command_id(CID)
        .with_data_pointer(Descriptor::in_capsule(0, u32::from(ranges) * 16))
}

fn fused(command: Command, half: FusedField) -> Command {
    command.with_flags(Flags::SGL.with_fused(half))
}

fn device(operation: DeviceOperation, transfer: Transfer) -> DeviceCommand {
    DeviceCommand { command_id: CID, device: 101, nsid: 1, operation, transfer }
}

/// The status that a command is refused with.
#[track_caller]
fn refused(queue: &mut IoQueue, command: &Command) -> Status {
    match queue.handle_command(command) {
        IoAction::Complete(completion) => {
            assert_eq!(completion.command_id, command.command_id);
            completion.status()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn connect_is_answered_with_the_controller() {
    let completion = grant(true).completion();
    assert_eq!((completion.status(), completion.dword0()), (Status::SUCCESS, 9));
    assert_eq!(completion.command_id.get(), 0x77);
    assert_eq!(completion.submission_queue_head.get(), 1);
    assert_eq!(grant(false).completion().submission_queue_head.get(), 0xffff);
}

#[test]
fn the_blocks_of_a_command_are_known_before_it_is_taken() {
    let queue = queue();
    for opcode in [NvmOpcode::READ, NvmOpcode::WRITE] {
        let there = queue.namespace(7).unwrap().device;
        let command = read_write(opcode, 7, 1 << 40, 3);
        assert_eq!(queue.device_range(&command), Some((there, 1 << 40, 3)), "beyond the end, too");
        assert_eq!(queue.device_range(&read_write(opcode, 3, 0, 1)), None, "no such namespace");
    }
    assert_eq!(queue.device_range(&read_write(NvmOpcode::COMPARE, 1, 0, 1)), None);
    assert_eq!(queue.head.value(), 1);
}

/// Linux' calls for block devices send 16 bytes with a Release, nvme-cli the 8 that it has.
#[test]
fn a_release_has_one_key_or_two() {
    let release = |bytes| {
        Command::new(NvmOpcode::RESERVATION_RELEASE)
            .with_namespace_id(1)
            .with_command_id(CID)
            .with_cdw10(1 << 8)
            .with_data_pointer(Descriptor::transport(bytes))
    };
    for bytes in [8, 16] {
        match queue().handle_command(&release(bytes)) {
            IoAction::Device(command) => assert_eq!(command.transfer, Transfer::FromHost(bytes)),
            other => panic!("{bytes}: {other:?}"),
        }
    }
    for bytes in [0, 4, 12, 24] {
        let status = refused(&mut queue(), &release(bytes));
        assert_eq!(status, Status::DATA_SGL_LENGTH_INVALID.with_dnr(), "{bytes}");
    }
}

#[test]
fn the_head_wraps() {
    let mut queue = queue();
    let unknown = Command::new(0x77u8);
    let mut heads = Vec::new();
    for _ in 0..6 {
        match queue.handle_command(&unknown) {
            IoAction::Complete(done) => heads.push(done.submission_queue_head.get()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(heads, [2, 3, 0, 1, 2, 3]);
    let mut queue = IoQueue::new(grant(false), &test_view());
    for _ in 0..6 {
        queue.handle_command(&unknown);
    }
    assert_eq!(queue.complete(1, Status::SUCCESS).submission_queue_head.get(), 0, "reserved");
}

#[test]
fn the_longest_queue_wraps_too() {
    let mut head = Head::after_connect(65536, true);
    for _ in 0..65534 {
        head.advance();
    }
    assert_eq!(head.value(), 65535);
    head.advance();
    assert_eq!(head.value(), 0);
}

/// Every opcode, good in all else: what becomes of it.
#[test]
fn every_opcode_has_its_outcome() {
    let mut refused_opcodes = 0;
    for opcode in 0..=u8::MAX {
        let mut queue = queue();
        let opcode = NvmOpcode(opcode);
        let block_command = read_write(opcode, 1, 8, 4);
        let range = (8, 4);
        let (block, blocks) = range;
        let expected = match opcode {
            NvmOpcode::FLUSH => device(DeviceOperation::Flush, Transfer::None),
            NvmOpcode::WRITE => device(
                DeviceOperation::Write { slba: block, nlb: blocks, durable: false },
                Transfer::FromHost(2048),
            ),
            NvmOpcode::READ => {
                device(DeviceOperation::Read { slba: block, nlb: blocks }, Transfer::ToHost(2048))
            }
            NvmOpcode::WRITE_UNCORRECTABLE => device(
                DeviceOperation::WriteUncorrectable { slba: block, nlb: blocks },
                Transfer::None,
            ),
            NvmOpcode::COMPARE => device(
                DeviceOperation::Compare { slba: block, nlb: blocks },
                Transfer::FromHost(2048),
            ),
            NvmOpcode::WRITE_ZEROES => device(
                DeviceOperation::WriteZeroes {
                    slba: block,
                    nlb: blocks,
                    deallocate: false,
                    durable: false,
                },
                Transfer::None,
            ),
            NvmOpcode::VERIFY => {
                device(DeviceOperation::Verify { slba: block, nlb: blocks }, Transfer::None)
            }
            // The blocks' count is one of ranges.
            NvmOpcode::COPY => device(copy(8, 4, false), Transfer::FromHost(4 * 32)),
            NvmOpcode::DATASET_MANAGEMENT => {
                let expected =
                    device(DeviceOperation::Deallocate { ranges: 2 }, Transfer::FromHost(32));
                assert_eq!(queue.handle_command(&deallocate(1, 2)), IoAction::Device(expected));
                continue;
            }
            _ => {
                // Of namespace 1 the Fabrics command type is 1: another Connect.
                let status = match opcode {
                    NvmOpcode::FABRICS => Status::COMMAND_SEQUENCE_ERROR,
                    // This is no command of theirs: the data is too long, IEKEY is set, EDS is not.
                    NvmOpcode::RESERVATION_REGISTER => Status::DATA_SGL_LENGTH_INVALID,
                    NvmOpcode::RESERVATION_ACQUIRE | NvmOpcode::RESERVATION_RELEASE => {
                        Status::INVALID_FIELD
                    }
                    NvmOpcode::RESERVATION_REPORT => Status::HOST_ID_INCONSISTENT_FORMAT,
                    _ => Status::INVALID_OPCODE,
                };
                assert_eq!(refused(&mut queue, &block_command), status.with_dnr(), "{opcode}");
                refused_opcodes += 1;
                continue;
            }
        };
        assert_eq!(queue.handle_command(&block_command), IoAction::Device(expected), "{opcode}");
        let done = queue.complete_device(&expected, Status::SUCCESS);
        assert_eq!((done.command_id.get(), done.status()), (CID, Status::SUCCESS));
    }
    assert_eq!(refused_opcodes, 256 - 9);
}

#[test]
fn fabrics_commands_on_an_io_queue() {
    let mut queue = queue();
    let disconnect = Disconnect { record_format: 0 }.to_command().with_command_id(CID);
    match queue.handle_command(&disconnect) {
        IoAction::Disconnect(completion) => {
            assert_eq!(completion.status(), Status::SUCCESS);
            assert_eq!(completion.command_id.get(), CID);
        }
        other => panic!("{other:?}"),
    }
    let table = [
        (Disconnect { record_format: 1 }.to_command(), Status::CONNECT_INCOMPATIBLE_FORMAT),
        (Command::fabrics(FabricsType::CONNECT), Status::COMMAND_SEQUENCE_ERROR),
        (Command::fabrics(FabricsType::PROPERTY_GET), Status::INVALID_OPCODE),
        (Command::fabrics(FabricsType::PROPERTY_SET), Status::INVALID_OPCODE),
        (Command::fabrics(FabricsType::AUTHENTICATION_SEND), Status::INVALID_OPCODE),
        (Command::fabrics(FabricsType(0x77)), Status::INVALID_OPCODE),
    ];
    for (command, status) in table {
        assert_eq!(refused(&mut queue, &command), status.with_dnr(), "{command:?}");
    }
}

/// Those whose dwords are of one range of blocks.
const IO_OPCODES: [NvmOpcode; 8] = [
    NvmOpcode::FLUSH,
    NvmOpcode::WRITE,
    NvmOpcode::READ,
    NvmOpcode::WRITE_UNCORRECTABLE,
    NvmOpcode::COMPARE,
    NvmOpcode::WRITE_ZEROES,
    NvmOpcode::DATASET_MANAGEMENT,
    NvmOpcode::VERIFY,
];

#[test]
fn a_namespace_must_be_active() {
    for opcode in IO_OPCODES {
        for nsid in [0, 3, 6, 8, NAMESPACE_ID_BROADCAST - 1, NAMESPACE_ID_BROADCAST] {
            if opcode == NvmOpcode::FLUSH && nsid == NAMESPACE_ID_BROADCAST {
                continue;
            }
            let status = refused(&mut queue(), &read_write(opcode, nsid, 0, 1));
            assert_eq!(status, Status::INVALID_NAMESPACE.with_dnr(), "{opcode} {nsid}");
        }
    }
    // One whose identifier is not its place in the list.
    match queue().handle_command(&read_write(NvmOpcode::READ, 7, 0, 1)) {
        IoAction::Device(command) => assert_eq!((command.nsid, command.device), (7, 107)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn data_is_described_by_sgls() {
    for opcode in IO_OPCODES {
        for pointer in [DataPointer::PRP, DataPointer(3)] {
            let command =
                read_write(opcode, 1, 0, 1).with_flags(Flags(0).with_data_pointer(pointer));
            let status = refused(&mut queue(), &command);
            assert_eq!(status, Status::INVALID_FIELD.with_dnr(), "{opcode} {pointer}");
        }
    }
    let command = read_write(NvmOpcode::READ, 1, 0, 1)
        .with_flags(Flags(0).with_data_pointer(DataPointer::SGL_METADATA_SGL));
    assert!(matches!(queue().handle_command(&command), IoAction::Device(_)));
}

#[test]
fn blocks_are_within_the_namespace() {
    for opcode in IO_OPCODES {
        if [NvmOpcode::FLUSH, NvmOpcode::DATASET_MANAGEMENT].contains(&opcode) {
            continue;
        }
        for (block, blocks, good) in [
            (1020, 4, true),
            (1021, 4, false),
            (1023, 1, true),
            (1024, 1, false),
            (u64::MAX, 1, false),
            (u64::MAX - 3, 4, false),
            (0, 65536, false),
        ] {
            let mut queue = queue();
            match queue.handle_command(&read_write(opcode, 1, block, blocks)) {
                IoAction::Device(command) if good => {
                    assert_eq!(command.operation.range(), Some((block, blocks)));
                }
                IoAction::Complete(done) if !good => {
                    assert_eq!(done.status(), Status::LBA_OUT_OF_RANGE.with_dnr());
                }
                other => panic!("{opcode} {block} {blocks}: {other:?}"),
            }
        }
    }
}

#[test]
fn sizes_are_limited() {
    // MDTS 16 KiB, VSL 64 KiB, WZSL 128 KiB.
    for (opcode, most) in [
        (NvmOpcode::READ, 32),
        (NvmOpcode::WRITE, 32),
        (NvmOpcode::COMPARE, 32),
        (NvmOpcode::VERIFY, 128),
        (NvmOpcode::WRITE_ZEROES, 256),
    ] {
        let good = queue().handle_command(&read_write(opcode, 1, 0, most));
        assert!(matches!(good, IoAction::Device(_)), "{opcode}: {good:?}");
        let status = refused(&mut queue(), &read_write(opcode, 1, 0, most + 1));
        assert_eq!(status, Status::INVALID_FIELD.with_dnr(), "{opcode}");
    }
}

#[test]
fn the_data_pointer_fits_the_command() {
    let read = |pointer| read_write(NvmOpcode::READ, 1, 0, 2).with_data_pointer(pointer);
    let write = |pointer| read_write(NvmOpcode::WRITE, 1, 0, 2).with_data_pointer(pointer);
    let wide =
        read_write(NvmOpcode::WRITE, 1, 0, 32).with_data_pointer(Descriptor::in_capsule(0, 16384));
    let unknown = Descriptor { identifier: weft_nvme::sgl::Identifier(0x70), ..Default::default() };
    let table = [
        (read(Descriptor::transport(1023)), Status::DATA_SGL_LENGTH_INVALID),
        (read(Descriptor::transport(1025)), Status::DATA_SGL_LENGTH_INVALID),
        (write(Descriptor::transport(0)), Status::DATA_SGL_LENGTH_INVALID),
        (write(Descriptor::in_capsule(0, 512)), Status::DATA_SGL_LENGTH_INVALID),
        (write(Descriptor::in_capsule(4, 1024)), Status::SGL_OFFSET_INVALID),
        (wide, Status::SGL_OFFSET_INVALID),
        (read(Descriptor::in_capsule(0, 1024)), Status::INVALID_FIELD),
        (read(Descriptor::default()), Status::SGL_DESCRIPTOR_TYPE_INVALID),
        (write(unknown), Status::SGL_DESCRIPTOR_TYPE_INVALID),
    ];
    for (command, status) in table {
        assert_eq!(refused(&mut queue(), &command), status.with_dnr(), "{command:?}");
    }
    for command in [
        read(Descriptor::keyed(0, 1024, 1, false)),
        write(Descriptor::in_capsule(0, 1024)),
        write(Descriptor::transport(1024)),
    ] {
        assert!(matches!(queue().handle_command(&command), IoAction::Device(_)), "{command:?}");
    }
}

#[test]
fn a_protected_namespace_is_not_modified() {
    for opcode in IO_OPCODES {
        let command = match opcode {
            NvmOpcode::DATASET_MANAGEMENT => deallocate(2, 1),
            _ => read_write(opcode, 2, 0, 1),
        };
        let modifies = [
            NvmOpcode::WRITE,
            NvmOpcode::WRITE_UNCORRECTABLE,
            NvmOpcode::WRITE_ZEROES,
            NvmOpcode::DATASET_MANAGEMENT,
        ]
        .contains(&opcode);
        match queue().handle_command(&command) {
            IoAction::Complete(done) if modifies => {
                assert_eq!(done.status(), Status::NAMESPACE_WRITE_PROTECTED.with_dnr());
            }
            IoAction::Device(device) if !modifies => assert!(!device.operation.modifies()),
            other => panic!("{opcode}: {other:?}"),
        }
    }
    let mut view = test_view();
    if let Some(namespace) = view.namespaces.get_mut(1) {
        namespace.capabilities.read_only = true;
    }
    let mut queue = IoQueue::new(grant(true), &view);
    let status = refused(&mut queue, &read_write(NvmOpcode::WRITE, 1, 0, 1));
    assert_eq!(status, Status::NAMESPACE_WRITE_PROTECTED.with_dnr());
}

fn write_of(action: IoAction) -> bool {
    let IoAction::Device(command) = action else { panic!("{action:?}") };
    match command.operation {
        DeviceOperation::Write { durable, .. } => durable,
        DeviceOperation::WriteZeroes { durable, .. } => durable,
        other => panic!("{other:?}"),
    }
}

#[test]
fn writes_are_durable_when_asked_or_when_the_cache_is_off() {
    let mut queue = queue();
    let plain = read_write(NvmOpcode::WRITE, 1, 0, 1);
    let forced = ReadWrite::new(0, 1)
        .expect("a count")
        .with_force_unit_access(true)
        .to_command(NvmOpcode::WRITE, 1)
        .with_data_pointer(Descriptor::transport(512));
    let mut zeroes = WriteZeroes::new(0, 1).expect("a count");
    zeroes.control = zeroes.control.with_force_unit_access(true);
    assert!(!write_of(queue.handle_command(&plain)));
    assert!(write_of(queue.handle_command(&forced)));
    assert!(write_of(queue.handle_command(&zeroes.to_command(1))));
    queue.controller.set_write_cache(false);
    assert!(write_of(queue.handle_command(&plain)));
    assert!(write_of(queue.handle_command(&read_write(NvmOpcode::WRITE_ZEROES, 1, 0, 1))));
}

#[test]
fn write_zeroes_frees_only_where_zeros_come_back() {
    let mut zeroes = WriteZeroes::new(4, 2).expect("a count");
    zeroes.control = zeroes.control.with_deallocate(true);
    let command = zeroes.to_command(1).with_command_id(CID);
    let expected = |deallocate| {
        let operation =
            DeviceOperation::WriteZeroes { slba: 4, nlb: 2, deallocate, durable: false };
        IoAction::Device(device(operation, Transfer::None))
    };
    assert_eq!(queue().handle_command(&command), expected(true));
    let mut view = test_view();
    if let Some(namespace) = view.namespaces.get_mut(1) {
        namespace.capabilities.write_zeroes_deallocates = false;
    }
    assert_eq!(IoQueue::new(grant(true), &view).handle_command(&command), expected(false));
    zeroes.control = zeroes.control.with_namespace_zeroes(true);
    let status = refused(&mut queue(), &zeroes.to_command(1));
    assert_eq!(status, Status::INVALID_FIELD.with_dnr());
}

#[test]
fn flush_reaches_what_has_a_cache() {
    let mut view = test_view();
    let broadcast = Command::new(NvmOpcode::FLUSH)
        .with_namespace_id(NAMESPACE_ID_BROADCAST)
        .with_command_id(CID);
    let mut queue = IoQueue::new(grant(true), &view);
    assert_eq!(queue.handle_command(&broadcast), IoAction::FlushAll { command_id: CID });
    assert_eq!(queue.namespaces().iter().count(), 3);
    for namespace in view.namespaces.iter_mut() {
        namespace.capabilities.volatile_cache = false;
    }
    queue.replace_view(&view);
    assert_eq!(refused(&mut queue, &broadcast), Status::SUCCESS);
    let one = Command::new(NvmOpcode::FLUSH).with_namespace_id(1);
    assert_eq!(refused(&mut queue, &one), Status::SUCCESS);
}

#[test]
fn directives_are_not_known() {
    let mut write = ReadWrite::new(0, 1).expect("a count");
    write.control = write.control.with_directive_type(1);
    let command =
        write.to_command(NvmOpcode::WRITE, 1).with_data_pointer(Descriptor::transport(512));
    assert_eq!(refused(&mut queue(), &command), Status::INVALID_FIELD.with_dnr());
}

fn copy(sdlba: u64, ranges: u16, names_namespaces: bool) -> DeviceOperation {
    DeviceOperation::Copy { sdlba, ranges, names_namespaces, durable: false }
}

/// Namespace, first block and number of blocks of each source range.
type Ranges = Vec<(u32, u64, u32)>;

/// A Copy to blocks of namespace 1 from these ranges, which name their namespaces.
fn copied(
    queue: &IoQueue,
    sdlba: u64,
    ranges: &[(u32, u64, u32)],
) -> Result<Ranges, (Status, u32)> {
    let data: Vec<u8> = ranges
        .iter()
        .flat_map(|(nsid, slba, nlb)| {
            CopySourceRange::new(*nsid, *slba, *nlb).expect("a count").bytes().to_vec()
        })
        .collect();
    let count = u16::try_from(ranges.len()).expect("few");
    let command = device(copy(sdlba, count, true), Transfer::FromHost(u32::from(count) * 32));
    let ranges = queue.handle_copy(&command, &data).map_err(|error| {
        assert!(error.status.do_not_retry());
        (error.status, error.range)
    })?;
    Ok(ranges.iter().map(|range| (range.nsid, range.slba, range.nlb)).collect())
}

#[test]
fn source_ranges_are_checked_before_any_is_copied() {
    let queue = queue();
    let good = [(1, 100, 1), (7, 0, 1024), (1, 0, 8)];
    assert_eq!(
        copied(&queue, 8, &[(1, 0, 8), (7, 0, 84), (1, 100, 924)]),
        Err((Status::OVERLAPPING_IO_RANGE.with_dnr(), 2))
    );
    let error = |result: Result<_, (Status, u32)>| {
        result.map_err(|(status, range)| (status.code(), range)).err()
    };
    assert_eq!(
        error(copied(&queue, 200, &good)),
        Some((StatusCode::LBA_OUT_OF_RANGE, 0)),
        "too long"
    );
    assert_eq!(copied(&queue, 200, &good[2..]), Ok(vec![(1, 0, 8)]));
    assert_eq!(copied(&queue, 0, &[(7, 0, 1024)]), Ok(vec![(7, 0, 1024)]));
    for (ranges, code, at) in [
        (&[(1, 0, 1), (1, 1023, 2)][..], StatusCode::LBA_OUT_OF_RANGE, 1),
        (&[(1, u64::MAX, 1)], StatusCode::LBA_OUT_OF_RANGE, 0),
        (&[(1, 0, 1), (6, 0, 1)], StatusCode::INVALID_NAMESPACE, 1),
        (&[(1, 0, 1), (1, 1, 1), (7, 0, 65536)], StatusCode::COMMAND_SIZE_LIMIT_EXCEEDED, 2),
        (&[(1, 0, 1), (1, 200, 1)], StatusCode::OVERLAPPING_IO_RANGE, 1),
        (&[(1, 201, 2)], StatusCode::OVERLAPPING_IO_RANGE, 0),
    ] {
        assert_eq!(error(copied(&queue, 200, ranges)), Some((code, at)), "{ranges:?}");
    }
    assert_eq!(
        copied(&queue, 200, &[(7, 200, 1), (1, 199, 1), (1, 203, 1)]).map(|all| all.len()),
        Ok(3)
    );
    // 32 MiB altogether.
    let many = vec![(7, 0, 1024); 64];
    assert_eq!(error(copied(&queue, 0, &many)), Some((StatusCode::LBA_OUT_OF_RANGE, 0)));
    let more = vec![(7, 0, 1024); 65];
    assert_eq!(
        error(copied(&queue, 0, &more)),
        Some((StatusCode::COMMAND_SIZE_LIMIT_EXCEEDED, 64))
    );
    let short = device(copy(0, 2, false), Transfer::FromHost(64));
    let short = queue.handle_copy(&short, &[0; 63]).map_err(|error| error.status.code());
    assert_eq!(short.err(), Some(StatusCode::DATA_SGL_LENGTH_INVALID));
}

#[test]
fn blocks_are_copied_to_blocks_of_their_size() {
    let mut view = test_view();
    view.namespaces.get_mut(7).expect("there").block_bytes = 4096;
    let queue = IoQueue::new(grant(true), &view);
    let refused = copied(&queue, 0, &[(7, 0, 1)]).map_err(|(status, _)| status.code());
    assert_eq!(refused.err(), Some(StatusCode::INCOMPATIBLE_NAMESPACE_OR_FORMAT));
}

/// Format 0h always, format 2h once the host has said that it knows it, no other.
#[test]
fn copy_has_two_formats() {
    let mut queue = queue();
    let command = |format, ranges: u16| {
        CopyCommand::new(9, ranges, format)
            .to_command(1)
            .with_command_id(CID)
            .with_data_pointer(Descriptor::transport(u32::from(ranges) * 32))
    };
    let expected = |names| device(copy(9, 2, names), Transfer::FromHost(64));
    assert_eq!(queue.handle_command(&command(0, 2)), IoAction::Device(expected(false)));
    let invalid = Status::INVALID_FIELD.with_dnr();
    for format in 1..=15 {
        assert_eq!(refused(&mut queue, &command(format, 2)), invalid, "{format}");
    }
    queue.controller.set_copy_formats(u16::MAX);
    assert_eq!(queue.handle_command(&command(2, 2)), IoAction::Device(expected(true)));
    for format in [1, 3, 4] {
        assert_eq!(refused(&mut queue, &command(format, 2)), invalid, "{format}");
    }
    let limit = Status::COMMAND_SIZE_LIMIT_EXCEEDED.with_dnr();
    assert_eq!(refused(&mut queue, &command(0, 129)), limit);
    for (nsid, status) in [(3, Status::INVALID_NAMESPACE), (2, Status::NAMESPACE_WRITE_PROTECTED)] {
        let elsewhere = command(0, 2).with_namespace_id(nsid);
        assert_eq!(refused(&mut queue, &elsewhere), status.with_dnr());
    }
    let few = command(0, 128).with_data_pointer(Descriptor::transport(127 * 32));
    assert_eq!(refused(&mut queue, &few), Status::DATA_SGL_LENGTH_INVALID.with_dnr());
}

/// What is refused meanwhile is not copied: each piece asks again.
#[test]
fn a_copy_is_checked_again_with_each_piece() {
    let mut queue = queue();
    let command = device(copy(9, 1, true), Transfer::FromHost(32));
    let range = |nsid: u32| CopyRange { nsid, device: nsid + 100, slba: 0, nlb: 8 };
    assert_eq!(queue.recheck_copy(&command, &range(7)), Ok(()));
    assert_eq!(
        queue.recheck_copy(&command, &CopyRange { device: 9, ..range(7) }),
        Err(Status::INVALID_NAMESPACE.with_dnr()),
        "another namespace in its place"
    );
    let conflict = Err(Status::RESERVATION_CONFLICT.with_dnr());
    for (nsid, what) in [(7, Refusals::READS), (1, Refusals::WRITES)] {
        queue.access.set(nsid, what);
        assert_eq!(queue.recheck_copy(&command, &range(7)), conflict, "{nsid}");
        queue.access.set(nsid, Refusals::NONE);
    }
    let mut view = test_view();
    view.namespaces.get_mut(1).expect("there").write_protected = true;
    queue.replace_view(&view);
    let protected = Err(Status::NAMESPACE_WRITE_PROTECTED.with_dnr());
    assert_eq!(queue.recheck_copy(&command, &range(7)), protected);
}

#[test]
fn write_uncorrectable_needs_a_device_that_can() {
    let mut view = test_view();
    if let Some(namespace) = view.namespaces.get_mut(1) {
        namespace.capabilities.write_uncorrectable = false;
    }
    let mut queue = IoQueue::new(grant(true), &view);
    let status = refused(&mut queue, &read_write(NvmOpcode::WRITE_UNCORRECTABLE, 1, 0, 1));
    assert_eq!(status, Status::INVALID_OPCODE.with_dnr());
}

#[test]
fn dataset_management_without_deallocate_is_a_hint() {
    let hint = DatasetManagement {
        range_count: 1,
        attributes: DatasetAttributes(0).with_integral_for_read(true),
    };
    assert_eq!(refused(&mut queue(), &hint.to_command(1)), Status::SUCCESS);
    let mut view = test_view();
    if let Some(namespace) = view.namespaces.get_mut(1) {
        namespace.capabilities.deallocate = false;
    }
    let mut queue = IoQueue::new(grant(true), &view);
    assert_eq!(refused(&mut queue, &deallocate(1, 1)), Status::SUCCESS);
}

#[test]
fn room_for_more_ranges_is_no_fault_and_for_fewer_is() {
    let room = |bytes| deallocate(1, 3).with_data_pointer(Descriptor::in_capsule(0, bytes));
    for bytes in [48, 49, 4096] {
        let IoAction::Device(command) = queue().handle_command(&room(bytes)) else {
            panic!("{bytes} bytes hold three ranges")
        };
        assert_eq!(command.transfer, Transfer::FromHost(48), "what is read of {bytes}");
    }
    let status = refused(&mut queue(), &room(47));
    assert_eq!(status, Status::DATA_SGL_LENGTH_INVALID.with_dnr());
}

fn ranges(list: &[(u64, u32)]) -> Vec<u8> {
    let ranges = list.iter().map(|(block, blocks)| DatasetRange::new(*block, *blocks));
    ranges.flat_map(|range| range.bytes().to_vec()).collect()
}

#[test]
fn ranges_are_read_and_checked() {
    let mut queue = queue();
    let IoAction::Device(command) = queue.handle_command(&deallocate(1, 3)) else {
        panic!("a device command")
    };
    let data = ranges(&[(0, 8), (512, 0), (1016, 8)]);
    let expected: Box<[(u64, u32)]> = Box::new([(0, 8), (1016, 8)]);
    assert_eq!(queue.handle_ranges(&command, &data), Ok(expected));
    for length in 0..data.len() {
        assert_eq!(
            queue.handle_ranges(&command, &data[..length]),
            Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr())
        );
    }
    let longer = ranges(&[(0, 1), (1, 1), (2, 1), (5000, 1)]);
    assert_eq!(queue.handle_ranges(&command, &longer).expect("three").len(), 3);
    for bad in [(1017, 8), (u64::MAX, 1), (1025, 0), (0, u32::MAX)] {
        let data = ranges(&[(0, 1), (1, 1), bad]);
        assert_eq!(
            queue.handle_ranges(&command, &data),
            Err(Status::LBA_OUT_OF_RANGE.with_dnr()),
            "{bad:?}"
        );
    }
    let read = device(DeviceOperation::Read { slba: 0, nlb: 1 }, Transfer::ToHost(512));
    assert!(queue.handle_ranges(&read, &data).is_err());
}

#[test]
fn a_command_that_waited_is_held_against_the_view_of_now() {
    let mut queue = queue();
    let IoAction::Device(write) = queue.handle_command(&read_write(NvmOpcode::WRITE, 1, 1000, 8))
    else {
        panic!("a device command")
    };
    let IoAction::Device(read) = queue.handle_command(&read_write(NvmOpcode::READ, 1, 1000, 8))
    else {
        panic!("a device command")
    };
    assert_eq!(queue.recheck(&write), Ok(()));
    let changed = |change: fn(&mut NamespaceView)| {
        let mut view = test_view();
        if let Some(namespace) = view.namespaces.get_mut(1) {
            change(namespace);
        }
        view
    };
    queue.replace_view(&changed(|namespace| namespace.write_protected = true));
    assert_eq!(queue.recheck(&write), Err(Status::NAMESPACE_WRITE_PROTECTED.with_dnr()));
    assert_eq!(queue.recheck(&read), Ok(()));
    queue.replace_view(&changed(|namespace| namespace.blocks = 1007));
    assert_eq!(queue.recheck(&write), Err(Status::LBA_OUT_OF_RANGE.with_dnr()));
    assert_eq!(queue.recheck(&read), Err(Status::LBA_OUT_OF_RANGE.with_dnr()));
    queue.replace_view(&changed(|namespace| namespace.device = 5));
    assert_eq!(queue.recheck(&read), Err(Status::INVALID_NAMESPACE.with_dnr()));
    queue.replace_view(&view(&[2]));
    assert_eq!(queue.recheck(&read), Err(Status::INVALID_NAMESPACE.with_dnr()));
    assert!(queue.handle_ranges(&read, &[]).is_err());
}

/// A number that has another owner than when the controller was made.
#[test]
fn a_number_with_a_new_owner_is_refused_until_the_host_has_asked() {
    let before = test_view();
    let grant = QueueGrant { controller: ControllerShared::new(&before, [1; 16]), ..grant(true) };
    let controller = Arc::clone(&grant.controller);
    let mut queue = IoQueue::new(grant, &before);
    let owned = |owner_change| {
        let mut view = test_view();
        view.namespaces.get_mut(1).expect("there").owner_change = owner_change;
        view.owner_changes = owner_change;
        view
    };
    let read = read_write(NvmOpcode::READ, 1, 0, 8);
    let invalid = Status::INVALID_NAMESPACE.with_dnr();
    for owner_change in [1, 5] {
        let view = owned(owner_change);
        queue.replace_view(&view);
        assert_eq!(refused(&mut queue, &read), invalid);
        assert!(queue.device_range(&read).is_none());
        let other = read_write(NvmOpcode::READ, 7, 0, 8);
        assert!(matches!(queue.handle_command(&other), IoAction::Device(_)));
        controller.note_identify(view.namespaces.get(7).expect("there"));
        assert_eq!(refused(&mut queue, &read), invalid, "it asked for another one");
        controller.note_identify(view.namespaces.get(1).expect("there"));
        assert!(matches!(queue.handle_command(&read), IoAction::Device(_)));
    }
    // A controller that is created later knows no other owner.
    let view = owned(5);
    let later =
        QueueGrant { controller: ControllerShared::new(&view, [1; 16]), ..self::grant(true) };
    assert!(matches!(IoQueue::new(later, &view).handle_command(&read), IoAction::Device(_)));
}

/// Commands are refused in three of the states, at the port of the queue alone; one that waited for
/// its data is refused as well.
#[test]
fn a_group_that_cannot_be_reached_takes_no_command() {
    use weft_nvme::log_page::AsymmetricNamespaceAccessState as State;
    let of = |port_id: u16, state| {
        let mut view = test_view();
        let states = [(1, state)].into_iter().collect();
        view.namespaces.get_mut(7).expect("there").ana_group = 2;
        view.ana = Some(Arc::new([(port_id, states)].into_iter().collect()));
        view
    };
    let mut queue = queue();
    let (read, other) =
        (read_write(NvmOpcode::READ, 1, 0, 8), read_write(NvmOpcode::READ, 7, 0, 8));
    let IoAction::Device(write) = queue.handle_command(&read_write(NvmOpcode::WRITE, 1, 0, 8))
    else {
        panic!("a write")
    };
    for (state, status) in [
        (State::OPTIMIZED, None),
        (State::NON_OPTIMIZED, None),
        (State::INACCESSIBLE, Some(Status::ANA_INACCESSIBLE)),
        (State::PERSISTENT_LOSS, Some(Status::ANA_PERSISTENT_LOSS)),
        (State::CHANGE, Some(Status::ANA_TRANSITION)),
    ] {
        queue.replace_view(&of(1, state));
        match status {
            None => assert!(matches!(queue.handle_command(&read), IoAction::Device(_))),
            Some(status) => {
                assert_eq!(refused(&mut queue, &read), status);
                assert_eq!(refused(&mut queue, &deallocate(1, 1)), status);
                assert_eq!(refused(&mut queue, &compare_first(0, 1)), status);
            }
        }
        assert_eq!(queue.recheck(&write).err(), status);
        assert!(matches!(queue.handle_command(&other), IoAction::Device(_)), "another group");
        queue.replace_view(&of(2, state));
        assert!(matches!(queue.handle_command(&read), IoAction::Device(_)), "another port");
    }
}

/// A host splits its transfers by what it was told: a smaller limit is for those who come later.
#[test]
fn limits_hold_for_the_life_of_the_queue() {
    let mut queue = queue();
    let mut smaller = test_view();
    smaller.limits.mdts_bytes = 4096;
    smaller.limits.in_capsule_bytes = 0;
    queue.replace_view(&smaller);
    let read = read_write(NvmOpcode::READ, 1, 0, 32);
    assert!(matches!(queue.handle_command(&read), IoAction::Device(_)));
}

fn compare_first(block: u64, blocks: u32) -> Command {
    fused(read_write(NvmOpcode::COMPARE, 1, block, blocks), FusedField::FIRST).with_command_id(1)
}

fn write_second(block: u64, blocks: u32) -> Command {
    fused(read_write(NvmOpcode::WRITE, 1, block, blocks), FusedField::SECOND).with_command_id(2)
}

/// What `poll_completion` has left: identifiers and statuses.
fn late(queue: &mut IoQueue) -> Vec<(u16, Status)> {
    std::iter::from_fn(|| queue.poll_completion())
        .map(|completion| (completion.command_id.get(), completion.status()))
        .collect()
}

#[test]
fn compare_and_write_is_one() {
    let mut queue = queue();
    assert_eq!(queue.handle_command(&compare_first(4, 2)), IoAction::Held { command_id: 1 });
    let IoAction::Fused { compare, write } = queue.handle_command(&write_second(4, 2)) else {
        panic!("fused")
    };
    assert_eq!(compare.operation, DeviceOperation::Compare { slba: 4, nlb: 2 });
    assert_eq!(write.operation, DeviceOperation::Write { slba: 4, nlb: 2, durable: false });
    assert_eq!(late(&mut queue), vec![]);
    let statuses = |status, queue: &mut IoQueue| {
        queue
            .complete_fused(&compare, &write, status)
            .map(|completion| (completion.command_id.get(), completion.status()))
    };
    assert_eq!(statuses(Status::SUCCESS, &mut queue), [(1, Status::SUCCESS), (2, Status::SUCCESS)]);
    assert_eq!(
        statuses(Status::COMPARE_FAILURE.with_dnr(), &mut queue),
        [(1, Status::COMPARE_FAILURE.with_dnr()), (2, Status::ABORTED_FAILED_FUSED)]
    );
    assert_eq!(
        statuses(Status::UNRECOVERED_READ_ERROR, &mut queue),
        [(1, Status::UNRECOVERED_READ_ERROR), (2, Status::ABORTED_FAILED_FUSED)]
    );
}

#[test]
fn a_first_half_without_a_second_is_aborted() {
    let missing = vec![(1, Status::ABORTED_MISSING_FUSED)];
    let mut queue = queue();
    queue.handle_command(&compare_first(4, 2));
    let read = read_write(NvmOpcode::READ, 1, 0, 1);
    assert!(matches!(queue.handle_command(&read), IoAction::Device(_)));
    assert_eq!(late(&mut queue), missing);
    queue.handle_command(&compare_first(4, 2));
    let again = compare_first(8, 2).with_command_id(5);
    assert_eq!(queue.handle_command(&again), IoAction::Held { command_id: 5 });
    assert_eq!(late(&mut queue), missing);
    let reserved = fused(read, FusedField(3));
    assert_eq!(refused(&mut queue, &reserved), Status::INVALID_FIELD.with_dnr());
    assert_eq!(late(&mut queue), vec![(5, Status::ABORTED_MISSING_FUSED)]);
}

#[test]
fn a_second_half_without_a_first_is_aborted() {
    let mut queue = queue();
    let status = refused(&mut queue, &write_second(4, 2));
    assert_eq!(status, Status::ABORTED_MISSING_FUSED);
    assert_eq!(late(&mut queue), vec![]);
}

#[test]
fn if_one_half_is_bad_both_fail() {
    let mut queue = queue();
    let failed = Status::ABORTED_FAILED_FUSED;
    let bad_first = compare_first(1024, 2);
    assert_eq!(refused(&mut queue, &bad_first), Status::LBA_OUT_OF_RANGE.with_dnr());
    assert_eq!(refused(&mut queue, &write_second(1024, 2)), failed);
    for (second, status) in [
        (write_second(4, 3), Status::INVALID_FIELD),
        (write_second(5, 2), Status::INVALID_FIELD),
        (write_second(1024, 2), Status::LBA_OUT_OF_RANGE),
        (write_second(4, 2).with_namespace_id(7), Status::INVALID_FIELD),
        (write_second(4, 2).with_namespace_id(2), Status::NAMESPACE_WRITE_PROTECTED),
        (fused(read_write(NvmOpcode::READ, 1, 4, 2), FusedField::SECOND), Status::INVALID_FIELD),
    ] {
        assert_eq!(queue.handle_command(&compare_first(4, 2)), IoAction::Held { command_id: 1 });
        assert_eq!(refused(&mut queue, &second), status.with_dnr());
        assert_eq!(late(&mut queue), vec![(1, failed)]);
        assert_eq!(refused(&mut queue, &write_second(4, 2)), Status::ABORTED_MISSING_FUSED);
    }
}

#[test]
fn only_compare_and_write_is_fused_and_only_so_far() {
    let mut queue = queue();
    let write = fused(read_write(NvmOpcode::WRITE, 1, 0, 1), FusedField::FIRST);
    assert_eq!(refused(&mut queue, &write), Status::INVALID_FIELD.with_dnr());
    assert!(matches!(queue.handle_command(&compare_first(0, 8)), IoAction::Held { .. }));
    let status = refused(&mut queue, &compare_first(0, 9));
    assert_eq!(status, Status::ATOMIC_WRITE_UNIT_EXCEEDED.with_dnr());
}

#[test]
fn a_rejected_half_fails_the_other() {
    let transport = Status::TRANSIENT_TRANSPORT_ERROR;
    let mut queue = queue();
    assert_eq!(queue.reject(&compare_first(4, 2), transport).status(), transport);
    assert_eq!(refused(&mut queue, &write_second(4, 2)), Status::ABORTED_FAILED_FUSED);
    queue.handle_command(&compare_first(4, 2));
    assert_eq!(queue.reject(&write_second(4, 2), transport).status(), transport);
    assert_eq!(late(&mut queue), vec![(1, Status::ABORTED_FAILED_FUSED)]);
    queue.handle_command(&compare_first(4, 2));
    queue.reject(&read_write(NvmOpcode::WRITE, 1, 0, 1), transport);
    assert_eq!(late(&mut queue), vec![(1, Status::ABORTED_MISSING_FUSED)]);
}

#[test]
fn a_held_command_can_be_aborted() {
    let mut queue = queue();
    queue.handle_command(&compare_first(4, 2));
    assert_eq!(queue.abort_held(2), None);
    let done = queue.abort_held(1).expect("held");
    assert_eq!((done.command_id.get(), done.status()), (1, Status::ABORT_REQUESTED));
    assert_eq!(queue.abort_held(1), None);
    assert_eq!(refused(&mut queue, &write_second(4, 2)), Status::ABORTED_FAILED_FUSED);
    assert_eq!(late(&mut queue), vec![]);
}

#[test]
fn errors_say_what_happened() {
    let mut queue = queue();
    queue.handle_command(&read_write(NvmOpcode::READ, 1, 0, 8));
    queue.handle_command(&read_write(NvmOpcode::COMPARE, 1, 0, 1));
    queue.handle_command(&read_write(NvmOpcode::WRITE, 1, 0, 2));
    queue.handle_command(&read_write(NvmOpcode::VERIFY, 1, 0, 4));
    queue.handle_command(&read_write(NvmOpcode::WRITE, 1, 5000, 2));
    let shared = Arc::clone(&queue.shared);
    assert_eq!((shared.commands(), shared.in_flight()), (5, 4), "one was refused at once");
    for _ in 0..4 {
        queue.complete(CID, Status::SUCCESS);
    }
    assert_eq!(shared.in_flight(), 0);
}

#[test]
fn failures_come_into_the_error_log() {
    let mut queue = queue();
    refused(&mut queue, &read_write(NvmOpcode::WRITE, 1, 5000, 2));
    let IoAction::Device(read) = queue.handle_command(&read_write(NvmOpcode::READ, 1, 7, 1)) else {
        panic!("a device command")
    };
    let done = queue.complete_device(&read, Status::UNRECOVERED_READ_ERROR);
    assert_eq!(done.status(), Status::UNRECOVERED_READ_ERROR);
    let base = ErrorRecord {
        count: 2,
        queue_id: 3,
        command_id: CID,
        status: Status::UNRECOVERED_READ_ERROR,
        parameter: None,
        lba: 7,
        nsid: 1,
        opcode: 2,
    };
    let refusal = ErrorRecord {
        count: 1,
        status: Status::LBA_OUT_OF_RANGE.with_dnr(),
        parameter: Some(40),
        lba: 5000,
        opcode: 1,
        ..base
    };
    assert_eq!(queue.controller.errors().newest_first(), vec![base, refusal]);
}

proptest::proptest! {
    #[test]
    fn any_actions_keep_the_invariants(
        data in proptest::collection::vec(proptest::num::u8::ANY, 0..2000),
    ) {
        fuzzing::actions(&data);
    }
}
