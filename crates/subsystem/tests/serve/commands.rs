//! Every I/O command, over every way that its data can take.

use std::os::unix::fs::MetadataExt;

use weft_nvme::command::{Flags, Fused};
use weft_nvme::nvm::{DatasetAttributes, DatasetManagement, DatasetRange, ReadWrite, WriteZeroes};
use weft_nvme::tcp::{DigestOptions, Fes};
use weft_nvme::{Command, NvmOpcode, Status, Wire};
use weft_reactor::DriverKind;
use weft_target::config::Config;
use weft_transport::host::{HostData, HostOptions};

use crate::support::peer::{ConnectFields, Peer, read_write};
use crate::support::raw::Raw;
use crate::support::{address, config, drivers, on_each_transport, over_rdma, pattern, start};

/// Blocks of these tests' devices, in bytes.
const BLOCK: usize = 4096;

/// A controller and one of its I/O queues.
fn io_queue(target: &weft_target::Target, options: HostOptions) -> (Peer, Peer) {
    let (admin, controller) = Peer::admin(address(target));
    let io = Peer::io_as(address(target), &ConnectFields::io(controller, 1), options);
    (admin, io)
}

#[test]
fn written_data_is_read_back_at_every_size() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let on_file = format!("file:{},size=64MiB", file.path().display());
    on_each_transport(&config(&["memory:64MiB", &on_file, "memory:64MiB,block=512"]), |target| {
        let (_admin, mut io) = io_queue(target, HostOptions::default());
        for (nsid, block_bytes) in [(1, 4096_usize), (2, 4096), (3, 512)] {
            for (round, blocks) in [1_u32, 2, 4, 5, 16, 64, 256].into_iter().enumerate() {
                let bytes = pattern(blocks as usize * block_bytes, u8::try_from(round).unwrap());
                let at = 3 * round as u64;
                io.write(nsid, at, blocks, &bytes).succeeded();
                let read = io.read(nsid, at, blocks, bytes.len());
                assert_eq!(read.received as usize, bytes.len());
                assert!(read.bytes() == bytes, "{blocks} blocks of {nsid} came back changed");
            }
        }
    });
}

/// All terms that a connection can agree to, and both ways in which a read can end.
#[test]
fn data_survives_every_kind_of_connection() {
    on_each_transport(&config(&["memory:16MiB"]), |target| {
        let (_admin, controller) = Peer::admin(address(target));
        let mut queue_id = 0;
        for (header_digest, data_digest) in
            [(false, false), (true, false), (false, true), (true, true)]
        {
            for flow_control in [false, true] {
                for maximum_r2t in [1, 16] {
                    queue_id += 1;
                    let options = HostOptions {
                        header_digest,
                        data_digest,
                        maximum_r2t,
                        ..HostOptions::default()
                    };
                    let fields =
                        ConnectFields { flow_control, ..ConnectFields::io(controller, queue_id) };
                    let mut io = Peer::io_as(address(target), &fields, options);
                    for blocks in [1_u32, 4, 5, 33, 256] {
                        let seed = u8::try_from(u32::from(queue_id) + blocks % 100).unwrap();
                        let bytes = pattern(blocks as usize * BLOCK, seed);
                        io.write(1, 7, blocks, &bytes).succeeded();
                        let read = io.read(1, 7, blocks, bytes.len());
                        assert!(read.bytes() == bytes, "{options:?} {blocks}");
                        let head = read.completion.submission_queue_head.get();
                        assert!(flow_control || matches!(head, 0 | 0xffff), "SQHD {head}");
                    }
                }
            }
        }
    });
}

/// More data than one R2T asks for, with several of them outstanding.
#[test]
fn a_long_write_comes_in_pieces() {
    let mut config = config(&["memory:64MiB"]);
    config.limits.transfer_bytes = 4 << 20;
    config.limits.h2c_data_bytes = 8192;
    on_each_transport(&config, |target| {
        for maximum_r2t in [1, 2, 4] {
            let options = HostOptions { maximum_r2t, ..HostOptions::default() };
            let (_admin, mut io) = io_queue(target, options);
            let bytes = pattern(4 << 20, u8::try_from(maximum_r2t).unwrap());
            io.write(1, 0, 1024, &bytes).succeeded();
            assert!(io.read(1, 0, 1024, bytes.len()).bytes() == bytes);
        }
    });
}

#[test]
fn many_commands_are_under_way_at_once() {
    on_each_transport(&config(&["memory:64MiB"]), |target| {
        let (_admin, mut io) = io_queue(target, HostOptions::default());
        let pieces: Vec<_> =
            (0..100).map(|n| pattern(if n % 3 == 0 { 5 } else { 1 } * BLOCK, n)).collect();
        let writes: Vec<_> = pieces
            .iter()
            .zip(0_u64..)
            .map(|(bytes, n)| {
                let blocks = u32::try_from(bytes.len() / BLOCK).unwrap();
                let data = HostData::ToController(io.buffer(bytes));
                io.submit_later(read_write(NvmOpcode::WRITE, 1, n * 8, blocks), data)
            })
            .collect();
        for slot in writes {
            io.wait_for(slot).succeeded();
        }
        let reads: Vec<_> = pieces
            .iter()
            .zip(0_u64..)
            .map(|(bytes, n)| {
                let blocks = u32::try_from(bytes.len() / BLOCK).unwrap();
                io.begin_read(1, n * 8, blocks, bytes.len())
            })
            .collect();
        for (slot, bytes) in reads.into_iter().zip(&pieces) {
            assert!(io.wait_for(slot).bytes() == &bytes[..]);
        }
    });
}

#[test]
fn flush_reaches_the_device_and_so_does_every_namespaces() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().display();
    let second = tempfile::NamedTempFile::new().expect("a file");
    let broken = format!(
        "fault:operation=flush,nth=1,times=2,effect=media-write:file:{},size=1MiB",
        second.path().display()
    );
    let sound = format!("file:{path},size=1MiB");
    let config = config(&[&sound, &broken, "memory:1MiB"]);
    for config in [over_rdma(&config), config] {
        let target = start(config);
        let (_admin, mut io) = io_queue(&target, HostOptions::default());
        let mut flush = |nsid| {
            io.run(Command::new(NvmOpcode::FLUSH).with_namespace_id(nsid), HostData::None).status()
        };
        assert_eq!(flush(1), Status::SUCCESS);
        assert_eq!(flush(2), Status::WRITE_FAULT, "the device's own word");
        assert_eq!(flush(3), Status::SUCCESS, "memory has nothing to flush");
        assert_eq!(flush(u32::MAX), Status::WRITE_FAULT, "one of all failed");
        assert_eq!(flush(4), Status::INVALID_NAMESPACE.with_dnr());
        let told = target.stop().expect_err("writes were lost").to_string();
        assert!(told.contains("could not be synced"), "{told}");
    }
}

#[test]
fn forced_unit_access_writes_through() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let device = format!("file:{},size=1MiB", file.path().display());
    on_each_transport(&config(&[&device]), |target| {
        let (_admin, mut io) = io_queue(target, HostOptions::default());
        for blocks in [1_u32, 8] {
            let bytes = pattern(blocks as usize * BLOCK, 77);
            let write = ReadWrite::new(3, blocks).expect("a range").with_force_unit_access(true);
            io.run_with(write.to_command(NvmOpcode::WRITE, 1), &bytes).succeeded();
            let buffer = io.reactor.pool().take(bytes.len()).expect("room");
            let read = write.to_command(NvmOpcode::READ, 1);
            assert!(io.run(read, HostData::FromController(buffer)).bytes() == bytes);
            // It is in the file, for whoever looks.
            let written = std::fs::read(file.path()).expect("the file");
            assert!(written[3 * BLOCK..][..bytes.len()] == bytes);
        }
    });
}

#[test]
fn zeroes_are_written_without_being_sent() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let device = format!("file:{},size=4MiB", file.path().display());
    on_each_transport(&config(&["memory:4MiB", &device]), |target| {
        let (_admin, mut io) = io_queue(target, HostOptions::default());
        for (nsid, deallocate) in [(1, false), (1, true), (2, false), (2, true)] {
            let bytes = pattern(16 * BLOCK, 1);
            io.write(nsid, 0, 16, &bytes).succeeded();
            let mut zeroes = WriteZeroes::new(4, 8).expect("a range");
            zeroes.control =
                zeroes.control.with_deallocate(deallocate).with_force_unit_access(true);
            io.run(zeroes.to_command(nsid), HostData::None).succeeded();
            let read = io.read(nsid, 0, 16, bytes.len());
            assert!(read.bytes()[..4 * BLOCK] == bytes[..4 * BLOCK]);
            assert!(read.bytes()[4 * BLOCK..12 * BLOCK].iter().all(|byte| *byte == 0));
            assert!(read.bytes()[12 * BLOCK..] == bytes[12 * BLOCK..]);
        }
        let beyond = WriteZeroes::new(1020, 8).expect("a range").to_command(1);
        let status = io.run(beyond, HostData::None).status();
        assert_eq!(status, Status::LBA_OUT_OF_RANGE.with_dnr());
    });
}

#[test]
fn deallocated_blocks_are_given_back() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let device = format!("file:{},size=8MiB", file.path().display());
    on_each_transport(&config(&["memory:8MiB", &device]), |target| {
        let (_admin, mut io) = io_queue(target, HostOptions::default());
        let deallocate = |ranges| DatasetManagement {
            range_count: ranges,
            attributes: DatasetAttributes(0).with_deallocate(true),
        };
        for nsid in [1, 2] {
            let bytes = pattern(1 << 20, 9);
            for at in 0..8 {
                io.write(nsid, at * 256, 256, &bytes).succeeded();
            }
            let before = std::fs::metadata(file.path()).expect("the file").blocks();
            let ranges = [DatasetRange::new(0, 256), DatasetRange::new(1024, 512)];
            let data: Vec<u8> = ranges.iter().flat_map(|range| range.bytes().to_vec()).collect();
            io.run_with(deallocate(2).to_command(nsid), &data).succeeded();
            for (at, is_there) in
                [(0, false), (256, true), (1024, false), (1280, false), (1536, true)]
            {
                let read = io.read(nsid, at, 256, bytes.len());
                let expected = if is_there { &bytes[..] } else { &[0; 1 << 20][..] };
                assert!(read.bytes() == expected, "block {at} of {nsid}");
            }
            let after = std::fs::metadata(file.path()).expect("the file").blocks();
            if nsid == 2 {
                assert!(after < before, "the file keeps its space: {before} to {after}");
            }
            // Ranges whose data goes by R2T, and one that is out of range.
            let many: Vec<u8> =
                (0..256).flat_map(|n| DatasetRange::new(n * 2, 1).bytes().to_vec()).collect();
            io.connection.set_in_capsule_bytes(0);
            io.run_with(deallocate(256).to_command(nsid), &many).succeeded();
            // The Linux host sends a whole page, however few ranges are in it.
            for (in_capsule_bytes, at) in [(0, 256_u64), (16 * 1024, 1536)] {
                io.connection.set_in_capsule_bytes(in_capsule_bytes);
                let mut page = DatasetRange::new(at, 256).bytes().to_vec();
                page.resize(BLOCK, 0xff);
                io.run_with(deallocate(1).to_command(nsid), &page).succeeded();
                let read = io.read(nsid, at, 256, bytes.len());
                assert!(read.bytes().iter().all(|byte| *byte == 0), "block {at} of {nsid}");
            }
            let beyond = DatasetRange::new(2047, 2);
            let status = io.run_with(deallocate(1).to_command(nsid), beyond.bytes()).status();
            assert_eq!(status, Status::LBA_OUT_OF_RANGE.with_dnr());
        }
    });
}

#[test]
fn blocks_are_compared_and_verified() {
    on_each_transport(
        &config(&["memory:4MiB", "fault:operation=verify,effect=media-read:memory:1MiB"]),
        |target| {
            let (_admin, mut io) = io_queue(target, HostOptions::default());
            for blocks in [2_u32, 16] {
                let mut bytes = pattern(blocks as usize * BLOCK, 4);
                io.write(1, 5, blocks, &bytes).succeeded();
                let compare = read_write(NvmOpcode::COMPARE, 1, 5, blocks);
                io.run_with(compare, &bytes).succeeded();
                bytes[BLOCK + 1] ^= 1;
                let status = io.run_with(compare, &bytes).status();
                assert_eq!(status, Status::COMPARE_FAILURE.with_dnr());
            }
            let verify = |nsid, block| read_write(NvmOpcode::VERIFY, nsid, block, 8);
            io.run(verify(1, 0), HostData::None).succeeded();
            assert_eq!(
                io.run(verify(1, 1020), HostData::None).status(),
                Status::LBA_OUT_OF_RANGE.with_dnr()
            );
            assert_eq!(
                io.run(verify(2, 0), HostData::None).status(),
                Status::UNRECOVERED_READ_ERROR
            );
            // No device of these can mark blocks as unreadable, and Identify does not offer it.
            let mark = read_write(NvmOpcode::WRITE_UNCORRECTABLE, 1, 0, 1);
            assert_eq!(io.run(mark, HostData::None).status(), Status::INVALID_OPCODE.with_dnr());
        },
    );
}

#[test]
fn marked_blocks_fail_until_they_are_written() {
    on_each_transport(&config(&["uncorrectable::memory:4MiB"]), |target| {
        let (_admin, mut io) = io_queue(target, HostOptions::default());
        let bytes = pattern(8 * BLOCK, 4);
        io.write(1, 0, 8, &bytes).succeeded();
        let mark = read_write(NvmOpcode::WRITE_UNCORRECTABLE, 1, 2, 4);
        io.run(mark, HostData::None).succeeded();
        let unreadable = Status::UNRECOVERED_READ_ERROR;
        assert_eq!(io.read(1, 0, 8, 8 * BLOCK).status(), unreadable);
        let verify = read_write(NvmOpcode::VERIFY, 1, 5, 3);
        assert_eq!(io.run(verify, HostData::None).status(), unreadable);
        assert!(io.read(1, 6, 2, 2 * BLOCK).bytes() == &bytes[6 * BLOCK..]);
        io.write(1, 5, 1, &bytes[5 * BLOCK..6 * BLOCK]).succeeded();
        io.run(verify, HostData::None).succeeded();
        assert_eq!(io.read(1, 4, 1, BLOCK).status(), unreadable);
        let beyond = read_write(NvmOpcode::WRITE_UNCORRECTABLE, 1, 1023, 2);
        let status = io.run(beyond, HostData::None).status();
        assert_eq!(status, Status::LBA_OUT_OF_RANGE.with_dnr());
    });
}

pub(crate) fn fused(
    io: &Peer,
    opcode: NvmOpcode,
    part: Fused,
    block: u64,
    bytes: &[u8],
) -> (Command, HostData) {
    let blocks = u32::try_from(bytes.len() / BLOCK).expect("few");
    let command = read_write(opcode, 1, block, blocks).with_flags(Flags::SGL.with_fused(part));
    (command, HostData::ToController(io.buffer(bytes)))
}

/// Runs a pair, whose data comes in the capsules or is fetched.
fn compare_and_write(io: &mut Peer, block: u64, compare: &[u8], write: &[u8]) -> [Status; 2] {
    let (command, data) = fused(io, NvmOpcode::COMPARE, Fused::FIRST, block, compare);
    let first = io.submit_later(command, data);
    let (command, data) = fused(io, NvmOpcode::WRITE, Fused::SECOND, block, write);
    let second = io.submit(command, data);
    [io.wait_for(first).status(), io.wait_for(second).status()]
}

#[test]
fn compare_and_write_is_one() {
    on_each_transport(&config(&["memory:4MiB"]), |target| {
        let (_admin, mut io) = io_queue(target, HostOptions::default());
        for in_capsule_bytes in [16 * 1024, 0] {
            io.connection.set_in_capsule_bytes(in_capsule_bytes);
            let (one, two) = (pattern(BLOCK, 1), pattern(BLOCK, 2));
            io.write(1, 9, 1, &one).succeeded();
            assert_eq!(compare_and_write(&mut io, 9, &one, &two), [Status::SUCCESS; 2]);
            assert!(io.read(1, 9, 1, BLOCK).bytes() == two);
            let failed = [Status::COMPARE_FAILURE.with_dnr(), Status::ABORTED_FAILED_FUSED];
            assert_eq!(compare_and_write(&mut io, 9, &one, &one), failed);
            assert!(io.read(1, 9, 1, BLOCK).bytes() == two, "nothing was written");
        }
    });
}

#[test]
fn half_a_pair_is_nothing() {
    on_each_transport(&config(&["memory:4MiB"]), |target| {
        let (_admin, mut io) = io_queue(target, HostOptions::default());
        let one = pattern(BLOCK, 1);
        io.write(1, 9, 1, &one).succeeded();
        // A first half, and then something else.
        let (command, data) = fused(&io, NvmOpcode::COMPARE, Fused::FIRST, 9, &one);
        let first = io.submit(command, data);
        assert!(io.read(1, 9, 1, BLOCK).bytes() == one, "the other command is carried out");
        assert_eq!(io.wait_for(first).status(), Status::ABORTED_MISSING_FUSED);
        // A second half on its own.
        let (command, data) = fused(&io, NvmOpcode::WRITE, Fused::SECOND, 9, &pattern(BLOCK, 2));
        assert_eq!(io.run(command, data).status(), Status::ABORTED_MISSING_FUSED);
        assert!(io.read(1, 9, 1, BLOCK).bytes() == one, "nothing was written");
        // Halves that speak of different blocks.
        let (command, data) = fused(&io, NvmOpcode::COMPARE, Fused::FIRST, 9, &one);
        let first = io.submit_later(command, data);
        let (command, data) = fused(&io, NvmOpcode::WRITE, Fused::SECOND, 10, &one);
        let second = io.submit(command, data);
        assert_eq!(io.wait_for(first).status(), Status::ABORTED_FAILED_FUSED);
        assert_eq!(io.wait_for(second).status(), Status::INVALID_FIELD.with_dnr());
    });
}

#[test]
fn values_out_of_bounds_are_refused() {
    on_each_transport(
        &config(&["memory:4MiB", "fault:operation=write,effect=no-space:memory:4MiB"]),
        |target| {
            let (_admin, mut io) = io_queue(target, HostOptions::default());
            let block = pattern(BLOCK, 1);
            let out_of_range = Status::LBA_OUT_OF_RANGE.with_dnr();
            assert_eq!(io.read(1, 1024, 1, BLOCK).status(), out_of_range);
            assert_eq!(io.write(1, 1024, 1, &block).status(), out_of_range);
            assert_eq!(io.write(1, u64::MAX, 1, &block).status(), out_of_range);
            assert_eq!(io.read(3, 0, 1, BLOCK).status(), Status::INVALID_NAMESPACE.with_dnr());
            assert_eq!(io.read(0, 0, 1, BLOCK).status(), Status::INVALID_NAMESPACE.with_dnr());
            let longest = 1 << 20;
            let longer = io.read(1, 0, 257, longest + BLOCK).status();
            assert_eq!(longer, Status::INVALID_FIELD.with_dnr(), "beyond MDTS");
            let short = io.read(1, 0, 2, BLOCK).status();
            assert_eq!(short, Status::DATA_SGL_LENGTH_INVALID.with_dnr());
            let short = io.write(1, 0, 2, &block).status();
            assert_eq!(short, Status::DATA_SGL_LENGTH_INVALID.with_dnr());
            let unknown = Command::new(NvmOpcode(0x7e)).with_namespace_id(1);
            assert_eq!(io.run(unknown, HostData::None).status(), Status::INVALID_OPCODE.with_dnr());
            assert_eq!(io.write(2, 0, 1, &block).status(), Status::CAPACITY_EXCEEDED.with_dnr());
            io.write(1, 1023, 1, &block).succeeded();
        },
    );
}

/// Connects an I/O queue by hand, with digests.
fn raw_queue(driver: DriverKind, digests: DigestOptions) -> (weft_target::Target, Peer, Raw) {
    let target = start(Config { driver, ..config(&["memory:4MiB"]) });
    let (admin, controller) = Peer::admin(address(&target));
    let raw = Raw::io(address(&target), &ConnectFields::io(controller, 1), digests);
    (target, admin, raw)
}

#[test]
fn wrong_data_digests_cost_one_command_each() {
    for driver in drivers() {
        let digests = DigestOptions(0).with_header(true).with_data(true);
        let (target, _admin, mut raw) = raw_queue(*driver, digests);
        let block = pattern(BLOCK, 3);
        // In the capsule.
        let command = read_write(NvmOpcode::WRITE, 1, 0, 1).with_command_id(5);
        let mut capsule = raw.capsule(command, &block);
        let last = capsule.len() - 1;
        capsule[last] ^= 1;
        raw.send(&capsule);
        let completion = raw.receive().completion();
        assert_eq!(completion.command_id.get(), 5);
        assert_eq!(completion.status(), Status::TRANSIENT_TRANSPORT_ERROR, "and no DNR");
        // In H2CData.
        let fetched = command
            .with_command_id(6)
            .with_data_pointer(weft_nvme::sgl::Descriptor::transport(4096));
        raw.command(fetched, &[]);
        let request = raw.receive().ready_to_transfer();
        let mut data = raw.data(&request, 0, &block, true);
        let last = data.len() - 1;
        data[last] ^= 0x80;
        raw.send(&data);
        let completion = raw.receive().completion();
        assert_eq!(completion.command_id.get(), 6);
        assert_eq!(completion.status(), Status::TRANSIENT_TRANSPORT_ERROR);
        // The connection goes on, and neither was written.
        let read = read_write(NvmOpcode::READ, 1, 0, 1)
            .with_command_id(7)
            .with_data_pointer(weft_nvme::sgl::Descriptor::transport(4096));
        raw.command(read, &[]);
        assert!(raw.receive().data == [0; BLOCK]);
        assert!(raw.receive().completion().status().is_success());
        raw.command(command.with_command_id(8), &block);
        assert!(raw.receive().completion().status().is_success());
        target.stop().expect("a clean stop");
    }
}

#[test]
fn a_wrong_header_digest_ends_the_connection_with_the_digest_that_came() {
    for driver in drivers() {
        let (target, mut admin, mut raw) = raw_queue(*driver, DigestOptions(0).with_header(true));
        let command = read_write(NvmOpcode::READ, 1, 0, 1).with_command_id(5);
        let mut capsule = raw.capsule(command, &[]);
        capsule[72] ^= 1;
        raw.send(&capsule);
        let termination = raw.termination();
        assert_eq!(termination.status, Fes::HEADER_DIGEST_ERROR);
        let came = [capsule[72], capsule[73], capsule[74], capsule[75]];
        assert_eq!(termination.information, u32::from_le_bytes(came));
        assert_eq!(termination.header, capsule[..72]);
        assert!(admin.controller_status().ready(), "the controller lives");
        target.stop().expect("a clean stop");
    }
}
