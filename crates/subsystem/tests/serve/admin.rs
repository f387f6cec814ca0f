//! What an admin queue says of the whole: configuration, counters and errors of all queues.

use weft_nvme::feature::{FeatureId, NumberOfQueues};
use weft_nvme::identify::{Cns, Controller, Identify, Namespace, SglSupport};
use weft_nvme::log_page::{ErrorInformation, Health, LogPageId};
use weft_nvme::{NvmOpcode, Status, Wire};
use weft_nvmf::limits::RDMA_IN_CAPSULE_BYTES_MAX;
use weft_reactor::DriverKind;
use weft_target::config::Config;
use weft_transport::host::HostOptions;

use crate::support::peer::{ConnectFields, Peer};
use crate::support::{
    address, config, config_of_two_groups, is_rdma, on_each_transport, pattern, start,
};

const BLOCK: usize = 4096;

fn identify<T: Wire>(admin: &mut Peer, cns: Cns, nsid: u32) -> T {
    let command = Identify::new(cns, nsid).to_command();
    T::read(admin.run_for(command, 4096).bytes()).expect("4096 bytes")
}

#[test]
fn limits_are_as_configured() {
    let mut config = config(&["memory:1MiB", "null:1TiB,block=512"]);
    config.limits.transfer_bytes = 256 << 10;
    config.limits.in_capsule_bytes = 8192;
    (config.limits.io_queues, config.subsystems[0].qid_max) = (4, std::num::NonZeroU16::new(3));
    config.subsystems[0].serial = Some("W1234".to_owned());
    on_each_transport(&config, |target| {
        let (mut admin, id) = Peer::admin(address(target));
        let controller: Controller = identify(&mut admin, Cns::CONTROLLER, 0);
        assert_eq!(controller.serial_number.raw_text(), Some("W1234"));
        assert_eq!(controller.controller_id.get(), id);
        assert_eq!(4096 << controller.maximum_data_transfer_size, 256 << 10);
        let capsule = if is_rdma(address(target)) { RDMA_IN_CAPSULE_BYTES_MAX } else { 8192 };
        assert_eq!(controller.io_command_capsule_16b.get() * 16, 64 + capsule);
        let sgls = SglSupport(controller.sgl_support.get());
        assert_eq!((sgls.keyed(), sgls.transport()), (capsule < 8192, capsule == 8192));
        let wanted = NumberOfQueues::pairs(100).0;
        let granted = admin.set_feature(FeatureId::NUMBER_OF_QUEUES, 0, wanted).succeeded();
        assert_eq!(NumberOfQueues(granted.completion.dword0()).submission_queues(), 3);
        for (nsid, blocks, shift) in [(1, 256, 12), (2, 1 << 31, 9)] {
            let namespace: Namespace = identify(&mut admin, Cns::NAMESPACE, nsid);
            assert_eq!(namespace.size.get(), blocks);
            let format = namespace.lba_format().expect("a format");
            assert_eq!(format.data_size, shift);
        }
        let mut io = Peer::io(address(target), id, 3);
        assert!(io.read(1, 0, 64, 256 << 10).status().is_success());
        let longer = io.read(1, 0, 65, (256 << 10) + BLOCK).status();
        assert_eq!(longer, Status::INVALID_FIELD.with_dnr());
    });
}

/// The counters of the health log add up over queues, groups, controllers and hosts.
#[test]
fn the_health_log_counts_what_all_queues_did() {
    on_each_transport(&config_of_two_groups(&["memory:16MiB"]), |target| {
        let at = address(target);
        let (mut admin, controller) = Peer::admin(at);
        let fields = ConnectFields::admin().of_other_host();
        let (_other, other) = Peer::admin_as(at, &fields);
        let block = pattern(BLOCK, 1);
        for queue_id in [1, 2] {
            let mut io = Peer::io(at, controller, queue_id);
            for _ in 0..10 {
                io.write(1, 0, 1, &block).succeeded();
            }
            let fields = ConnectFields::io(other, queue_id).of_other_host();
            let mut io = Peer::io_as(at, &fields, HostOptions::default());
            for _ in 0..25 {
                io.read(1, 0, 250, 250 * BLOCK).succeeded();
            }
        }
        let health = Health::read(&admin.log_page(LogPageId::HEALTH, 512)).expect("512 bytes");
        assert_eq!(health.host_write_commands.get(), 20);
        assert_eq!(health.host_read_commands.get(), 50);
        // 20 times 8 and 50 times 2000 units of 512 bytes, in thousands, rounded up.
        assert_eq!(health.data_units_written.get(), 1);
        assert_eq!(health.data_units_read.get(), 100);
    });
}

#[test]
fn the_error_log_holds_the_errors_of_all_queues_newest_first() {
    on_each_transport(&config_of_two_groups(&["memory:1MiB"]), |target| {
        let at = address(target);
        let (mut admin, controller) = Peer::admin(at);
        let mut queues = [1, 2].map(|queue_id| Peer::io(at, controller, queue_id));
        let out_of_range = Status::LBA_OUT_OF_RANGE.with_dnr();
        for (io, block) in queues.iter_mut().zip([300, 400]) {
            assert_eq!(io.read(1, block, 1, BLOCK).status(), out_of_range);
        }
        let page = admin.log_page(LogPageId::ERROR_INFORMATION, 128);
        let entries: Vec<_> =
            page.chunks(64).map(|entry| ErrorInformation::read(entry).expect("64 bytes")).collect();
        for (entry, (queue_id, block)) in entries.iter().zip([(2, 400), (1, 300)]) {
            assert_eq!(entry.submission_queue_id.get(), queue_id);
            assert_eq!(entry.lba.get(), block);
            assert_eq!(entry.status_field.status(), out_of_range);
            assert_eq!(entry.namespace_id.get(), 1);
            assert_eq!(entry.opcode, NvmOpcode::READ.0);
        }
        assert_eq!(entries[0].error_count.get(), entries[1].error_count.get() + 1);
    });
}

/// What keeps its contents over a restart keeps its identity, and nothing else does.
#[test]
fn identity_follows_the_contents() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let on_file = format!("file:{},size=1MiB", file.path().display());
    let identities = || {
        let config = config(&[&on_file, "null:1GiB", "memory:1MiB"]);
        let target = start(Config { driver: DriverKind::Auto, ..config });
        let (mut admin, controller) = Peer::admin(address(&target));
        let mut io = Peer::io(address(&target), controller, 1);
        let found = io.read(1, 7, 1, BLOCK).bytes().to_vec();
        io.write(1, 7, 1, &pattern(BLOCK, 9)).succeeded();
        let serial: Controller = identify(&mut admin, Cns::CONTROLLER, 0);
        let namespaces = [1, 2, 3].map(|nsid| {
            let namespace: Namespace = identify(&mut admin, Cns::NAMESPACE, nsid);
            let list: [u8; 4096] = identify(&mut admin, Cns::NAMESPACE_DESCRIPTOR_LIST, nsid);
            assert_ne!(namespace.nguid, [0; 16]);
            (namespace.nguid, list.to_vec())
        });
        target.stop().expect("a clean stop");
        (serial.serial_number, namespaces, found)
    };
    let (serial, [file, null, memory], _) = identities();
    let (serial_again, [file_again, null_again, memory_again], found) = identities();
    assert_eq!(serial, serial_again);
    assert!(file == file_again && null == null_again);
    assert!(found == pattern(BLOCK, 9));
    assert!(memory.0 != memory_again.0 && memory.1 != memory_again.1);
}
