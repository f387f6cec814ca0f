//! A target that stands by: what ends at once, what is waited for, and what was lost.

use std::process::Command as Process;
use std::time::Duration;

use weft_nvme::command::{Flags, Fused};
use weft_nvme::feature::{FeatureId, SetFeatures};
use weft_nvme::log_page::{LogPageId, PersistentEventType};
use weft_nvme::sgl::Descriptor;
use weft_nvme::tcp::{DigestOptions, PduType, ReadyToTransfer};
use weft_nvme::{Command, NvmOpcode, Status};
use weft_reactor::monotonic_time;
use weft_target::config::{Config, RateLimit};
use weft_transport::host::{HostData, HostOptions};

use crate::support::peer::{ConnectFields, Peer, read_write};
use crate::support::raw::Raw;
use crate::support::{HOST, address, config, drivers, pattern, start};

const BLOCK: usize = 4096;
const SHORT: Duration = Duration::from_millis(100);

/// A target whose hosts see access states.
fn with_states(devices: &[&str]) -> Config {
    let mut config = config(devices);
    config.subsystems[0].ana_reporting = true;
    config
}

/// Commands whose data a host owes: a write, both halves of a pair, and a first half alone.
fn owing(raw: &mut Raw) -> Vec<ReadyToTransfer> {
    let fused = |opcode, part, id| {
        let command = read_write(opcode, 1, 8, 1).with_flags(Flags::SGL.with_fused(part));
        command.with_command_id(id).with_data_pointer(Descriptor::transport(4096))
    };
    let write = read_write(NvmOpcode::WRITE, 1, 8, 1)
        .with_command_id(1)
        .with_data_pointer(Descriptor::transport(4096));
    raw.command(write, &[]);
    raw.command(fused(NvmOpcode::COMPARE, Fused::FIRST, 2), &[]);
    raw.command(fused(NvmOpcode::WRITE, Fused::SECOND, 3), &[]);
    raw.command(fused(NvmOpcode::COMPARE, Fused::FIRST, 4), &[]);
    (0..3).map(|_| raw.receive().ready_to_transfer()).collect()
}

/// Nothing that waits (for a limit, for data of the host, for the other half) delays a hand-over:
/// it ends with the access state, and is not executed later.
#[test]
fn commands_that_wait_get_the_access_state_at_once() {
    for driver in drivers() {
        let limit = RateLimit {
            host: Some(HOST.into()),
            rate: Some(1),
            force: true,
            ..RateLimit::default()
        };
        let rate_limits = vec![limit];
        let config = Config { driver: *driver, rate_limits, ..with_states(&["memory:1MiB"]) };
        let mut target = start(config);
        let (_admin, controller) = Peer::admin(address(&target));
        let mut limited = Peer::io(address(&target), controller, 1);
        limited.write(1, 0, 1, &pattern(BLOCK, 1)).succeeded();
        let writes: Vec<_> =
            (1..4).map(|at| limited.begin_write(1, at, 1, &pattern(BLOCK, 2))).collect();
        assert!(!limited.is_answered(writes[0], SHORT), "it waits for the limit");
        let (_other, controller) =
            Peer::admin_as(address(&target), &ConnectFields::admin().of_other_host());
        let fields = ConnectFields::io(controller, 1).of_other_host();
        let mut raw = Raw::io(address(&target), &fields, DigestOptions(0));
        let owed = owing(&mut raw);

        let begin = monotonic_time();
        target.stand_by(true).expect("it stands by");
        target.wait_until_idle(Duration::from_secs(5)).expect("nothing is in flight");
        assert!(monotonic_time() - begin < Duration::from_secs(2), "at once");
        for write in writes {
            assert_eq!(limited.wait_for(write).status(), Status::ANA_INACCESSIBLE);
        }
        for to in &owed {
            let data = raw.data(to, 0, &pattern(BLOCK, 3), true);
            raw.send(&data);
        }
        let mut statuses = std::collections::BTreeMap::new();
        while statuses.len() < 4 {
            let pdu = raw.receive();
            assert_eq!(pdu.common.pdu_type, PduType::CAPSULE_RESPONSE);
            let completion = pdu.completion();
            statuses.insert(completion.command_id.get(), completion.status());
        }
        for id in [1, 2, 4] {
            assert_eq!(statuses[&id], Status::ANA_INACCESSIBLE, "command {id}");
        }
        assert_eq!(statuses[&3], Status::ABORTED_FAILED_FUSED);

        target.stand_by(false).expect("it serves");
        let fields = ConnectFields::io(controller, 2).of_other_host();
        let mut io = Peer::io_as(address(&target), &fields, HostOptions::default());
        for at in [1, 2, 3, 8] {
            let read = io.read(1, at, 1, BLOCK).succeeded();
            assert!(read.bytes().iter().all(|byte| *byte == 0), "block {at} was not written");
        }
        target.stop().expect("a clean stop");
    }
}

/// The target's own flush is the only one that is told: hosts hear of it, and the second try is no
/// more successful than the first.
#[test]
fn writes_that_its_own_flush_has_lost_are_lost_for_hosts_as_well() {
    for driver in drivers() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path().display();
        let broken =
            format!("fault:operation=flush,nth=1,effect=media-write:file:{path},size=1MiB");
        let target = start(Config { driver: *driver, ..with_states(&[&broken]) });
        let (mut admin, controller) = Peer::admin(address(&target));
        let mut io = Peer::io(address(&target), controller, 1);
        io.write(1, 0, 1, &pattern(BLOCK, 1)).succeeded();
        target.wait_until_idle(Duration::from_secs(5)).expect("nothing is in flight");
        assert!(target.sync().is_err());
        let flush = Command::new(NvmOpcode::FLUSH).with_namespace_id(1);
        assert_eq!(io.run(flush, HostData::None).status(), Status::WRITE_FAULT);
        assert_eq!(admin.log_page(LogPageId::HEALTH, 512)[0], 4, "Critical Warning");
        let events = crate::persistent::recorded(&mut admin);
        let errors = events.iter().filter(|one| one.0 == PersistentEventType::HARDWARE_ERROR);
        assert_eq!(errors.count(), 1);
        assert!(target.sync().is_err(), "what was lost stays lost");
        assert!(target.stop().is_err(), "also at the end");
    }
}

/// A change of reservations that persists is written by a thread: the next owner of the file must
/// not read it before.
#[test]
fn reservations_are_written_before_a_target_is_idle() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ptpl");
    // The new file is written aside; whoever opens a pipe waits until it is read.
    let aside = weft_backend::files::aside(&path);
    assert!(Process::new("mkfifo").arg(&aside).status().expect("mkfifo").success());
    let mut config = with_states(&["memory:1MiB"]);
    config.subsystems[0].namespaces[0].ptpl_file = Some(path);
    let target = start(config);
    let (mut admin, _) = Peer::admin(address(&target));
    let feature = FeatureId::RESERVATION_PERSISTENCE;
    let set = SetFeatures { namespace_id: 1, ..SetFeatures::new(feature, 1) };
    let change = admin.submit(set.to_command(), HostData::None);
    assert!(!admin.is_answered(change, SHORT));
    let told = target.wait_until_idle(SHORT).expect_err("it is being written").to_string();
    assert!(told.contains("reservations"), "{told}");
    let reader = std::fs::File::open(&aside).expect("a reader");
    target.wait_until_idle(Duration::from_secs(5)).expect("it is written, or was refused");
    assert!(admin.is_answered(change, Duration::from_secs(5)));
    drop(reader);
    target.stop().expect("a clean stop");
}
