//! Another configuration while hosts are connected.

use std::time::Duration;

use weft_nvme::event::{Event, EventType, HealthInformation};
use weft_nvme::feature::{
    AsynchronousEventConfiguration, FeatureId, SetFeatures, WriteProtection, WriteProtectionState,
};
use weft_nvme::log_page::{LogPageId, PersistentEventType};
use weft_nvme::nvm::ReadWrite;
use weft_nvme::status::StatusCode;
use weft_nvme::{Command, NvmOpcode, Status};
use weft_target::Target;
use weft_target::config::Config;
use weft_transport::CloseReason;
use weft_transport::host::{HostData, HostOptions};

use crate::persistent::{EventRecord, recorded};
use crate::support::peer::{ConnectFields, Peer};
use crate::support::{
    HOST, LONG, OTHER_HOST, SUBSYSTEM, address, config, config_of_two_groups, drivers, pattern,
    port, start, subsystem, wait_until,
};

const BLOCK: usize = 4096;

/// Runs a test with a target that it may reconfigure, on each driver, on two groups.
fn reconfigured(devices: &[&str], test: impl Fn(&mut Target, &Config)) {
    for driver in drivers() {
        let config = Config { driver: *driver, ..config_of_two_groups(devices) };
        let mut target = start(config.clone());
        test(&mut target, &config);
        target.stop().expect("a clean stop");
    }
}

/// The same configuration with other devices.
fn with_devices(config: &Config, devices: &[&str]) -> Config {
    Config { subsystems: vec![subsystem(SUBSYSTEM, devices)], ..config.clone() }
}

/// A controller with an I/O queue on each of two groups.
fn host(target: &Target) -> (Peer, [Peer; 2]) {
    let (admin, controller) = Peer::admin(address(target));
    (admin, [1, 2].map(|queue_id| Peer::io(address(target), controller, queue_id)))
}

/// The Changed Attached Namespace List.
fn changed(admin: &mut Peer) -> Vec<u32> {
    let page = admin.log_page(LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST, 4096);
    let words = page.chunks(4).map(|word| u32::from_le_bytes(word.try_into().expect("4 bytes")));
    words.take_while(|nsid| *nsid != 0).collect()
}

#[track_caller]
fn hears_of_namespaces(admin: &mut Peer, request: weft_transport::Slot) {
    let answer = admin.wait_for(request).succeeded();
    assert_eq!(Event(answer.completion.dword0()), Event::NAMESPACE_ATTRIBUTE_CHANGED);
}

#[test]
fn a_namespace_that_comes_is_there_at_once() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let device = format!("file:{},size=4MiB", file.path().display());
    reconfigured(&["memory:4MiB"], |target, config| {
        let (mut admin, mut queues) = host(target);
        let bytes = pattern(BLOCK, 1);
        queues[0].write(1, 0, 1, &bytes).succeeded();
        let event = admin.begin_event_request();
        for io in &mut queues {
            assert_eq!(io.read(2, 0, 1, BLOCK).status(), Status::INVALID_NAMESPACE.with_dnr());
        }
        let more = with_devices(config, &["memory:4MiB", "memory:1MiB", &device]);
        target.reload(more).expect("a reload");
        hears_of_namespaces(&mut admin, event);
        assert_eq!(changed(&mut admin), [2, 3]);
        assert!(changed(&mut admin).is_empty(), "reading it empties it");
        for (nsid, seed) in [(2, 5), (3, 6)] {
            let bytes = pattern(BLOCK, seed);
            queues[1].write(nsid, 3, 1, &bytes).succeeded();
            assert!(queues[0].read(nsid, 3, 1, BLOCK).bytes() == bytes);
        }
        assert!(queues[1].read(1, 0, 1, BLOCK).bytes() == bytes, "the first is as it was");
    });
}

#[test]
fn commands_in_flight_on_a_removed_namespace_are_completed() {
    let slow = "delay:write=400ms,read=400ms:memory:4MiB";
    reconfigured(&["memory:4MiB", slow], |target, config| {
        let (mut admin, mut queues) = host(target);
        let event = admin.begin_event_request();
        let bytes = pattern(BLOCK, 1);
        let under_way = queues.each_mut().map(|io| {
            let slots = (io.begin_write(2, 0, 1, &bytes), io.begin_read(2, 1, 1, BLOCK));
            assert!(!io.is_answered(slots.1, Duration::from_millis(50)), "they have left");
            slots
        });
        target.reload(with_devices(config, &["memory:4MiB"])).expect("a reload");
        hears_of_namespaces(&mut admin, event);
        assert_eq!(changed(&mut admin), [2]);
        let gone = Status::INVALID_NAMESPACE.with_dnr();
        for (io, (write, read)) in queues.iter_mut().zip(under_way) {
            assert_eq!(io.read(2, 0, 1, BLOCK).status(), gone);
            io.wait_for(write).succeeded();
            io.wait_for(read).succeeded();
            assert_eq!(io.write(2, 0, 1, &bytes).status(), gone);
            io.write(1, 0, 1, &bytes).succeeded();
        }
    });
}

#[test]
fn a_write_whose_data_comes_after_the_namespace_went_is_refused() {
    use crate::support::raw::Raw;
    use weft_nvme::sgl::Descriptor;
    use weft_nvme::tcp::DigestOptions;
    reconfigured(&["memory:4MiB", "memory:4MiB"], |target, config| {
        let (_admin, controller) = Peer::admin(address(target));
        let fields = ConnectFields::io(controller, 1);
        let mut raw = Raw::io(address(target), &fields, DigestOptions(0));
        let command = crate::support::peer::read_write(NvmOpcode::WRITE, 2, 0, 1)
            .with_command_id(5)
            .with_data_pointer(Descriptor::transport(4096));
        raw.command(command, &[]);
        let request = raw.receive().ready_to_transfer();
        target.reload(with_devices(config, &["memory:4MiB"])).expect("a reload");
        let data = raw.data(&request, 0, &pattern(BLOCK, 1), true);
        raw.send(&data);
        let completion = raw.receive().completion();
        assert_eq!(completion.status(), Status::INVALID_NAMESPACE.with_dnr());
    });
}

/// The same of a namespace that must no longer be written, or is no longer as long.
#[test]
fn a_write_whose_data_comes_too_late_is_refused() {
    use crate::support::raw::Raw;
    use weft_nvme::sgl::Descriptor;
    use weft_nvme::tcp::DigestOptions;
    reconfigured(&["memory:4MiB", "memory:4MiB"], |target, config| {
        let (mut admin, controller) = Peer::admin(address(target));
        let fields = ConnectFields::io(controller, 1);
        let mut raw = Raw::io(address(target), &fields, DigestOptions(0));
        let begin = |nsid, block, raw: &mut Raw| {
            let command = crate::support::peer::read_write(NvmOpcode::WRITE, nsid, block, 1)
                .with_command_id(u16::try_from(nsid).expect("small"))
                .with_data_pointer(Descriptor::transport(4096));
            raw.command(command, &[]);
            raw.receive().ready_to_transfer()
        };
        let requests = [begin(1, 0, &mut raw), begin(2, 1023, &mut raw)];
        let state = WriteProtection::new(WriteProtectionState::WRITE_PROTECT);
        admin.set_feature(FeatureId::NAMESPACE_WRITE_PROTECTION, 1, state.0).succeeded();
        target.reload(with_devices(config, &["memory:4MiB", "memory:2MiB"])).expect("a reload");
        let late =
            [Status::NAMESPACE_WRITE_PROTECTED.with_dnr(), Status::LBA_OUT_OF_RANGE.with_dnr()];
        for (request, status) in requests.into_iter().zip(late) {
            let data = raw.data(&request, 0, &pattern(BLOCK, 1), true);
            raw.send(&data);
            assert_eq!(raw.receive().completion().status(), status);
        }
        let mut io = Peer::io(address(target), controller, 2);
        assert_eq!(io.read(1, 0, 1, BLOCK).bytes(), [0; BLOCK], "nothing was written");
    });
}

#[test]
fn a_namespace_grows_and_shrinks_with_its_contents() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let sized = |size: &str| format!("file:{},size={size}", file.path().display());
    reconfigured(&["memory:1MiB", &sized("1MiB")], |target, config| {
        file.as_file().set_len(1 << 20).expect("a size");
        target.reload(config.clone()).expect("a reload");
        let (mut admin, mut queues) = host(target);
        let bytes = pattern(BLOCK, 1);
        let beyond = Status::LBA_OUT_OF_RANGE.with_dnr();
        for nsid in [1, 2] {
            queues[0].write(nsid, 255, 1, &bytes).succeeded();
            assert_eq!(queues[1].write(nsid, 256, 1, &bytes).status(), beyond);
        }
        let event = admin.begin_event_request();
        target.reload(with_devices(config, &["memory:2MiB", &sized("2MiB")])).expect("a reload");
        hears_of_namespaces(&mut admin, event);
        assert_eq!(changed(&mut admin), [1, 2]);
        for nsid in [1, 2] {
            assert!(
                queues[1].read(nsid, 255, 1, BLOCK).bytes() == bytes,
                "what was there is there"
            );
            queues[1].write(nsid, 511, 1, &bytes).succeeded();
            assert!(queues[0].read(nsid, 511, 1, BLOCK).bytes() == bytes);
            assert_eq!(queues[0].read(nsid, 512, 1, BLOCK).status(), beyond);
        }
        let event = admin.begin_event_request();
        target.reload(with_devices(config, &["memory:1MiB", &sized("2MiB")])).expect("a reload");
        hears_of_namespaces(&mut admin, event);
        assert_eq!(changed(&mut admin), [1]);
        assert_eq!(queues[0].read(1, 511, 1, BLOCK).status(), beyond);
        // A file that somebody else has made longer.
        let event = admin.begin_event_request();
        file.as_file().set_len(4 << 20).expect("a size");
        target.reload(with_devices(config, &["memory:1MiB", &sized("2MiB")])).expect("a reload");
        hears_of_namespaces(&mut admin, event);
        queues[0].write(2, 1023, 1, &bytes).succeeded();
    });
}

/// What is in a file is not lost to a smaller number in the configuration.
#[test]
fn a_file_is_never_cut() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let sized = |size: &str| format!("file:{},size={size}", file.path().display());
    let mut target = start(config(&[&sized("2MiB")]));
    let (_admin, mut queues) = host(&target);
    let bytes = pattern(BLOCK, 1);
    queues[0].write(1, 511, 1, &bytes).succeeded();
    let smaller = config(&[&sized("1MiB")]);
    let smaller = Config { ports: target.config().ports.clone(), ..smaller };
    let said = target.reload(smaller).expect("a reload");
    assert!(said.iter().any(|line| line.contains("a file is never cut")), "{said:?}");
    assert!(queues[1].read(1, 511, 1, BLOCK).bytes() == bytes, "it is there");
    assert_eq!(file.as_file().metadata().expect("a file").len(), 2 << 20);
    target.stop().expect("a clean stop");
}

#[test]
fn events_wait_until_the_list_is_read() {
    reconfigured(&["memory:1MiB"], |target, config| {
        let (mut admin, _queues) = host(target);
        let grown = with_devices(config, &["memory:2MiB"]);
        target.reload(grown.clone()).expect("a reload");
        let event = admin.begin_event_request();
        hears_of_namespaces(&mut admin, event);
        let event = admin.begin_event_request();
        target.reload(config.clone()).expect("a reload");
        assert!(!admin.is_answered(event, Duration::from_millis(50)), "not read yet");
        assert_eq!(changed(&mut admin), [1]);
        target.reload(grown).expect("a reload");
        hears_of_namespaces(&mut admin, event);
    });
}

/// One host's Set Features holds for the queues of all, on every group, before it is answered.
#[test]
fn write_protection_reaches_every_queue() {
    reconfigured(&["memory:4MiB", "memory:4MiB"], |target, config| {
        let (mut admin, mut queues) = host(target);
        let fields = ConnectFields::admin().of_other_host();
        let (_other, controller) = Peer::admin_as(address(target), &fields);
        let mut others = [1, 2].map(|queue_id| {
            let fields = ConnectFields::io(controller, queue_id).of_other_host();
            Peer::io_as(address(target), &fields, HostOptions::default())
        });
        let bytes = pattern(BLOCK, 1);
        let protect = |admin: &mut Peer, state| {
            let feature = FeatureId::NAMESPACE_WRITE_PROTECTION;
            admin.set_feature(feature, 1, WriteProtection::new(state).0).succeeded();
        };
        protect(&mut admin, WriteProtectionState::WRITE_PROTECT);
        let protected = Status::NAMESPACE_WRITE_PROTECTED.with_dnr();
        for io in queues.iter_mut().chain(&mut others) {
            assert_eq!(io.write(1, 0, 1, &bytes).status(), protected);
            assert!(io.read(1, 0, 1, BLOCK).status().is_success());
            io.write(2, 0, 1, &bytes).succeeded();
            io.run(Command::new(NvmOpcode::FLUSH).with_namespace_id(1), HostData::None).succeeded();
        }
        // It outlasts a reload.
        target.reload(config.clone()).expect("a reload");
        assert_eq!(others[1].write(1, 0, 1, &bytes).status(), protected);
        protect(&mut admin, WriteProtectionState::NO_WRITE_PROTECT);
        for io in queues.iter_mut().chain(&mut others) {
            io.write(1, 0, 1, &bytes).succeeded();
        }
    });
}

/// What was written before a namespace is protected is durable when that is answered; if it cannot
/// be, the namespace is not protected.
#[test]
fn a_protected_namespace_is_flushed_first() {
    let device = "fault:operation=flush,nth=1,effect=media-write:memory:1MiB";
    reconfigured(&[device], |target, config| {
        let (mut admin, mut queues) = host(target);
        let bytes = pattern(BLOCK, 1);
        let mut set = |state| {
            let feature = FeatureId::NAMESPACE_WRITE_PROTECTION;
            admin.set_feature(feature, 1, WriteProtection::new(state).0).status()
        };
        let failed = set(WriteProtectionState::WRITE_PROTECT);
        assert_eq!(failed.code(), StatusCode::WRITE_FAULT);
        for io in &mut queues {
            io.write(1, 0, 1, &bytes).succeeded();
        }
        let again = set(WriteProtectionState::WRITE_PROTECT);
        assert_eq!(again.code(), StatusCode::WRITE_FAULT, "a flush that failed stays failed");
        queues[1].write(1, 0, 1, &bytes).succeeded();
        target.reload(with_devices(config, &[])).expect("it is removed");
    });
}

/// The operating system tells of lost writes once, so the target remembers it for every host.
#[test]
fn a_flush_that_failed_stays_failed_for_every_host() {
    let sound = "memory:1MiB";
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().display();
    let broken = format!("fault:operation=flush,nth=2,effect=media-write:file:{path},size=1MiB");
    reconfigured(&[sound, &broken], |target, config| {
        let (mut admin, mut queues) = host(target);
        let (mut other, controller) =
            Peer::admin_as(address(target), &ConnectFields::admin().of_other_host());
        let mut others = [1, 2].map(|queue_id| {
            let fields = ConnectFields::io(controller, queue_id).of_other_host();
            Peer::io_as(address(target), &fields, HostOptions::default())
        });
        let flush = |io: &mut Peer, nsid| {
            io.run(Command::new(NvmOpcode::FLUSH).with_namespace_id(nsid), HostData::None).status()
        };
        let warnings = AsynchronousEventConfiguration(0).with_critical_warnings(4);
        other.set_feature(FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION, 0, warnings.0).succeeded();
        let event = other.begin_event_request();
        assert_eq!(flush(&mut queues[0], 2), Status::SUCCESS);
        assert_eq!(flush(&mut queues[0], 2), Status::WRITE_FAULT);
        let bytes = pattern(BLOCK, 1);
        let durable = ReadWrite::new(0, 1).expect("a range").with_force_unit_access(true);
        for io in queues.iter_mut().chain(&mut others) {
            assert_eq!(flush(io, 2), Status::WRITE_FAULT);
            assert_eq!(flush(io, u32::MAX), Status::WRITE_FAULT);
            let write = io.run_with(durable.to_command(NvmOpcode::WRITE, 2), &bytes);
            assert_eq!(write.status(), Status::WRITE_FAULT);
            io.write(2, 1, 1, &bytes).succeeded();
            assert!(io.read(2, 1, 1, BLOCK).bytes() == bytes, "reads and other writes go on");
            assert_eq!(flush(io, 1), Status::SUCCESS, "another device");
        }
        let told = other.wait_for(event).succeeded().completion.dword0();
        let (kind, information) = (EventType::HEALTH, HealthInformation::SUBSYSTEM_RELIABILITY);
        assert_eq!(Event(told), Event::new(kind, information.0, LogPageId::HEALTH));
        until_warning(&mut admin, 4);
        until_warning(&mut other, 4);
        let is_error = |event: &&EventRecord| event.0 == PersistentEventType::HARDWARE_ERROR;
        let recorded = recorded(&mut other);
        let errors: Vec<_> = recorded.iter().filter(is_error).collect();
        assert_eq!(errors.len(), 1, "once for all groups and hosts");
        assert_eq!(errors[0].1, [6, 0, 0, 0, 4], "Critical Warning Condition");
        let errors = other.log_page(LogPageId::ERROR_INFORMATION, 64);
        assert_eq!(errors[24..28], 2u32.to_le_bytes(), "the namespace of the last error");

        target.reload(with_devices(config, &[sound])).expect("it can be had");
        until_warning(&mut other, 0);
        target.reload(with_devices(config, &[sound, &broken])).expect("it can be had");
        assert_eq!(flush(&mut others[1], 2), Status::SUCCESS, "it was added again");
        until_warning(&mut admin, 0);
        target.reload(with_devices(config, &[sound])).expect("it can be had");
    });
}

/// Waits until SMART's Critical Warning is this.
#[track_caller]
fn until_warning(admin: &mut Peer, warning: u8) {
    let until = admin.reactor.now() + LONG;
    while admin.log_page(LogPageId::HEALTH, 512)[0] != warning {
        assert!(admin.reactor.now() < until, "no Critical Warning of {warning}");
    }
}

/// A protection that fails changes nothing of the one that is there.
#[test]
fn a_failed_protection_leaves_the_one_before() {
    let device = "fault:operation=flush,nth=2,effect=media-write:memory:1MiB";
    reconfigured(&[device], |target, config| {
        let (mut admin, mut queues) = host(target);
        let state = WriteProtection::new(WriteProtectionState::WRITE_PROTECT);
        let mut protect =
            || admin.set_feature(FeatureId::NAMESPACE_WRITE_PROTECTION, 1, state.0).status();
        assert!(protect().is_success());
        assert_eq!(protect().code(), StatusCode::WRITE_FAULT);
        let protected = Status::NAMESPACE_WRITE_PROTECTED.with_dnr();
        for io in &mut queues {
            assert_eq!(io.write(1, 0, 1, &pattern(BLOCK, 1)).status(), protected);
        }
        target.reload(with_devices(config, &[])).expect("it is removed");
    });
}

/// A write that a device has is done before its namespace is said to be protected.
#[test]
fn a_write_in_flight_is_waited_for_before_protection() {
    let device = "fault:operation=write,effect=drop:memory:1MiB";
    let mut config = config_of_two_groups(&[device]);
    config.limits.drain_timeout = Duration::from_secs(1);
    let target = start(config);
    let (mut admin, mut queues) = host(&target);
    queues[1].begin_write(1, 0, 1, &pattern(BLOCK, 1));
    assert!(queues[1].read(1, 0, 1, BLOCK).status().is_success(), "the write has left");
    let state = WriteProtection::new(WriteProtectionState::WRITE_PROTECT);
    let set = SetFeatures {
        namespace_id: 1,
        ..SetFeatures::new(FeatureId::NAMESPACE_WRITE_PROTECTION, state.0)
    };
    let protect = admin.submit(set.to_command(), HostData::None);
    assert!(!admin.is_answered(protect, Duration::from_millis(100)), "the write is in flight");
    let protected = Status::NAMESPACE_WRITE_PROTECTED.with_dnr();
    assert_eq!(queues[0].write(1, 0, 1, &pattern(BLOCK, 1)).status(), protected);
    target.stop().expect_err("the write does not end");
}

/// What a host was told when it connected holds as long as its controller.
#[test]
fn a_smaller_limit_applies_from_the_next_connect() {
    reconfigured(&["memory:4MiB"], |target, config| {
        let (mut admin, controller) = Peer::admin(address(target));
        let mut io = Peer::io(address(target), controller, 1);
        let mut smaller = config.clone();
        smaller.limits.transfer_bytes = 8192;
        smaller.limits.in_capsule_bytes = 0;
        smaller.limits.queue_entries = 32;
        let told = target.reload(smaller).expect("a reload");
        let bytes = pattern(1 << 20, 1);
        io.write(1, 0, 256, &bytes).succeeded();
        assert!(io.read(1, 0, 256, 1 << 20).bytes() == bytes);
        Peer::io(address(target), controller, 2);
        assert!(admin.controller_status().ready());
        let (_later, controller) = Peer::admin(address(target));
        let fields = ConnectFields { entries: 32, ..ConnectFields::io(controller, 1) };
        let mut io = Peer::io_as(address(target), &fields, HostOptions::default());
        let refused = io.write(1, 0, 256, &bytes).status();
        assert_eq!(refused, Status::INVALID_FIELD.with_dnr());
        let line = told.iter().find(|line| line.contains("limits.transfer-size")).expect("a line");
        assert!(line.contains("1MiB") && line.contains("8KiB"), "{line}");
        assert!(line.contains("connect from now on"), "{line}");
        assert_eq!(told.len(), 3, "{told:?}");
    });
}

/// One line for each change.
#[test]
fn a_reload_says_what_it_did() {
    reconfigured(&["memory:1MiB", "null:1MiB"], |target, config| {
        assert!(target.reload(config.clone()).expect("a reload").is_empty());
        let mut other = with_devices(config, &["memory:2MiB"]);
        let mut third = weft_target::config::Namespace::new(3, "memory:1MiB".parse().unwrap());
        third.uuid = Some([3; 16]);
        other.subsystems[0].namespaces.push(third);
        other.subsystems[0].allowed_hosts = Some(vec![HOST.to_owned()]);
        other.ports.push(port(7, "127.0.0.1:0"));
        other.limits.pool_bytes = 64 << 20;
        let lines = target.reload(other).expect("a reload");
        let about = format!("of {SUBSYSTEM}");
        let expected = [
            "listening on tcp://127.0.0.1:0 (port 7)".to_owned(),
            format!("subsystem {SUBSYSTEM}: only listed hosts are allowed"),
            format!("subsystem {SUBSYSTEM}: host {HOST} is allowed"),
            format!("namespace 2 {about} removed: null:1MiB"),
            format!("namespace 1 {about} resized from 1MiB to 2MiB"),
            format!(
                "namespace 3 {about} added: memory:1MiB, 1MiB, UUID \
                 03030303-0303-0303-0303-030303030303"
            ),
            "limits.pool-size changed from 256MiB to 64MiB, only after a restart".to_owned(),
        ];
        assert_eq!(lines, expected);
    });
}

#[test]
fn a_read_only_namespace_takes_no_write() {
    let mut config = config(&["memory:1MiB"]);
    config.subsystems[0].namespaces[0].read_only = true;
    let mut target = start(config.clone());
    let (_admin, mut queues) = host(&target);
    let bytes = pattern(BLOCK, 1);
    let protected = Status::NAMESPACE_WRITE_PROTECTED.with_dnr();
    assert_eq!(queues[0].write(1, 0, 1, &bytes).status(), protected);
    config.subsystems[0].namespaces[0].read_only = false;
    target.reload(config).expect("a reload");
    queues[0].write(1, 0, 1, &bytes).succeeded();
    target.stop().expect("a clean stop");
}

#[test]
fn a_host_that_is_no_longer_allowed_is_disconnected() {
    reconfigured(&["memory:1MiB"], |target, config| {
        let (mut admin, mut queues) = host(target);
        let fields = ConnectFields::admin().of_other_host();
        let (mut other, controller) = Peer::admin_as(address(target), &fields);
        let fields = ConnectFields::io(controller, 1).of_other_host();
        let mut others_io = Peer::io_as(address(target), &fields, HostOptions::default());
        let mut only_other = config.clone();
        only_other.subsystems[0].allowed_hosts = Some(vec![OTHER_HOST.to_owned()]);
        target.reload(only_other).expect("a reload");
        for peer in queues.iter_mut().chain([&mut admin]) {
            assert_eq!(peer.until_closed(), CloseReason::PeerClosed);
        }
        let mut again = Peer::open(address(target), HostOptions::default());
        let refused = again.connect(&ConnectFields::admin());
        assert_eq!(refused.status(), Status::CONNECT_INVALID_HOST.with_dnr());
        assert!(other.controller_status().ready());
        others_io.write(1, 0, 1, &pattern(BLOCK, 1)).succeeded();
        let mut both = config.clone();
        both.subsystems[0].allowed_hosts = Some(vec![OTHER_HOST.to_owned(), HOST.to_owned()]);
        target.reload(both).expect("a reload");
        again.connect(&ConnectFields::admin()).succeeded();
        assert!(other.controller_status().ready());
    });
}

#[test]
fn a_removed_subsystem_disconnects_its_hosts() {
    reconfigured(&["memory:1MiB"], |target, config| {
        let mut two = config.clone();
        two.subsystems.push(subsystem("nqn.2024-01.io.weft:other", &["memory:1MiB"]));
        target.reload(two.clone()).expect("a reload");
        let (mut admin, mut queues) = host(target);
        two.subsystems.remove(0);
        target.reload(two).expect("a reload");
        for peer in queues.iter_mut().chain([&mut admin]) {
            assert_eq!(peer.until_closed(), CloseReason::PeerClosed);
        }
        let mut again = Peer::open(address(target), HostOptions::default());
        let refused = again.connect(&ConnectFields::admin());
        assert_eq!(refused.status(), Status::CONNECT_INVALID_PARAMETERS.with_dnr());
    });
}

#[test]
fn ports_come_and_go() {
    reconfigured(&["memory:1MiB"], |target, config| {
        let (mut admin, mut queues) = host(target);
        let mut two = config.clone();
        two.ports.push(port(7, "127.0.0.1:0"));
        target.reload(two).expect("a reload");
        let second = target.addresses()[&7];
        let (mut through_second, _) = Peer::admin(second);
        target.reload(config.clone()).expect("a reload");
        assert!(!target.addresses().contains_key(&7));
        assert_eq!(through_second.until_closed(), CloseReason::PeerClosed);
        let refused = std::net::TcpStream::connect(second).expect_err("nobody listens");
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        assert!(admin.controller_status().ready());
        queues[1].write(1, 0, 1, &pattern(BLOCK, 1)).succeeded();
    });
}

/// Ports without an `id` are numbered by their position, so that a number may be that of another
/// address after a reload.
#[test]
fn hosts_of_an_address_that_goes_are_disconnected_whatever_the_port_is_called() {
    reconfigured(&["memory:1MiB"], |target, config| {
        let free = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").expect("a port"));
        let [one, other] = free.map(|free| free.local_addr().expect("an address").to_string());
        let with_port = |address: &str| {
            let mut two = config.clone();
            two.ports.push(port(7, address));
            two
        };
        target.reload(with_port(&one)).expect("a reload");
        let (mut stays, _) = Peer::admin(address(target));
        let (mut admin, controller) = Peer::admin(target.addresses()[&7]);
        let mut io = Peer::io(target.addresses()[&7], controller, 1);
        io.write(1, 0, 1, &pattern(BLOCK, 1)).succeeded();
        target.reload(with_port(&other)).expect("a reload");
        assert_eq!(io.until_closed(), CloseReason::PeerClosed);
        assert_eq!(admin.until_closed(), CloseReason::PeerClosed);
        assert!(stays.controller_status().ready());
    });
}

#[test]
fn a_configuration_that_cannot_be_had_changes_nothing() {
    reconfigured(&["memory:1MiB"], |target, config| {
        let (mut admin, mut queues) = host(target);
        let event = admin.begin_event_request();
        let missing = with_devices(config, &["memory:2MiB", "file:/nonexistent/weft"]);
        let error = target.reload(missing).expect_err("no such file").to_string();
        assert!(error.contains("/nonexistent/weft"), "{error}");
        assert!(error.contains("namespace 2"), "{error}");
        assert!(!admin.is_answered(event, Duration::from_millis(30)));
        assert_eq!(target.config(), config);
        let beyond = queues[0].read(1, 256, 1, BLOCK).status();
        assert_eq!(beyond, Status::LBA_OUT_OF_RANGE.with_dnr());
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let taken = taken.local_addr().map(|at| (at, taken)).expect("its address");
        let mut second_port = config.clone();
        second_port.ports.push(port(9, &taken.0.to_string()));
        let error = target.reload(second_port).expect_err("the port is taken").to_string();
        assert!(error.contains(&taken.0.to_string()), "{error}");
        queues[1].write(1, 0, 1, &pattern(BLOCK, 1)).succeeded();
        target.reload(config.clone()).expect("a reload");
    });
}

/// A device later in the list that cannot be had: those before it keep size and contents.
#[test]
fn a_reload_that_fails_halfway_has_resized_nothing() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let sized = |size: &str| format!("file:{},size={size}", file.path().display());
    let before = [sized("1MiB"), "memory:2MiB".to_owned(), "memory:1MiB".to_owned()];
    let mut target = start(config(&before.each_ref().map(String::as_str)));
    let config = target.config().clone();
    let (_admin, mut queues) = host(&target);
    let bytes = pattern(BLOCK, 3);
    queues[0].write(2, 511, 1, &bytes).succeeded();
    for last in ["file:/nonexistent/weft", "memory:1EiB", "memory:1000"] {
        // The third is known already; where it cannot grow, that is found out last.
        let third = if last.starts_with("file") { "memory:1MiB" } else { last };
        let more = if last.starts_with("file") { vec![last] } else { Vec::new() };
        let file_grows = sized("2MiB");
        let mut devices = vec![file_grows.as_str(), "memory:1MiB", third];
        devices.extend(more);
        target.reload(with_devices(&config, &devices)).expect_err(last);
        assert_eq!(file.as_file().metadata().expect("a file").len(), 1 << 20, "{last}");
        assert!(queues[1].read(2, 511, 1, BLOCK).bytes() == bytes, "{last}: it is there");
        assert_eq!(target.config(), &config);
    }
    target.stop().expect("a clean stop");
}

/// Whatever is not possible beside it: a file that does not exist, an address that is in use, a
/// size that memory cannot have.
#[test]
fn what_is_not_possible_leaves_no_new_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("new");
    let new = format!("file:{},size=1MiB", path.display());
    let mut target = start(config(&["memory:1MiB"]));
    let before = target.config().clone();
    let used = std::net::TcpListener::bind("127.0.0.1:0").expect("an address");
    let mut at_used = with_devices(&before, &["memory:1MiB", &new]);
    let used = weft_target::config::Listen::tcp(used.local_addr().expect("an address"));
    at_used.ports[0].listen = used;
    let missing = with_devices(&before, &["memory:1MiB", &new, "file:/nonexistent/weft"]);
    let too_large = with_devices(&before, &["memory:1EiB", &new]);
    for wanted in [missing, at_used, too_large] {
        target.reload(wanted).expect_err("it is not possible");
        // A poll group that had opened it closes it afterwards.
        wait_until("the new file is gone", || !path.exists());
    }
    target.reload(with_devices(&before, &["memory:1MiB", &new])).expect("it is possible");
    let twice = with_devices(&before, &["memory:1MiB", &new, &new]);
    target.reload(twice).expect_err("it is served once");
    target.reload(before).expect("it is possible");
    assert!(path.exists(), "what was served stays, whatever was not possible meanwhile");
    target.stop().expect("a clean stop");
}

/// Two paths to one file are one file.
#[test]
fn two_namespaces_never_share_a_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    std::os::unix::fs::symlink(path("disk"), path("link")).expect("a link");
    let first = format!("file:{},size=1MiB", path("disk").display());
    let mut target = start(config(&[&first]));
    for again in ["link", "./disk"] {
        let both = [first.clone(), format!("delay:read=1us:file:{}", path(again).display())];
        let twice = config(&[&both[0], &both[1]]);
        let error = target.reload(twice.clone()).expect_err("one file").to_string();
        assert!(error.starts_with("namespace 2 of "), "{error}");
        assert!(error.contains("disk is what namespace 1 stands on"), "{error}");
        assert!(Target::start(twice).is_err());
    }
    target.stop().expect("a clean stop");
}

/// It is served with it, and would not be after a restart.
#[test]
fn a_uuid_that_is_no_longer_given_is_told() {
    let given = |uuid| {
        let mut config = config(&["memory:1MiB"]);
        config.subsystems[0].namespaces[0].uuid = uuid;
        config
    };
    let mut target = start(given(Some([0x5a; 16])));
    let lines = target.reload(given(None)).expect("a reload");
    let uuid = "5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a";
    assert!(lines.iter().any(|line| line.contains(uuid)), "{lines:?}");
    assert_eq!(target.namespace(SUBSYSTEM, 1).expect("served").uuid, [0x5a; 16]);
    assert_eq!(target.reload(given(None)).expect("the same"), Vec::<String>::new());
    target.reload(given(Some([0x5b; 16]))).expect_err("another one");
    target.stop().expect("a clean stop");
}

/// Whatever a file says otherwise of what stays is in the lines of the reload.
#[test]
fn each_key_that_a_reload_changes_has_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let text = |port: &str, subsystem: &str, namespace: &str| {
        let written = format!(
            "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n{port}\n\
             [[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n{subsystem}\n\
             [[subsystem.namespace]]\nmemory = \"1MiB\"\n{namespace}\n"
        );
        weft_target::config::toml::parse(&written).expect("a configuration")
    };
    let changes: [(&str, &str, String); 17] = [
        ("port", "discovery", "discovery = false".to_owned()),
        ("port", "advertise", "advertise = \"192.0.2.1:4420\"".to_owned()),
        ("subsystem", "admin-label", "admin-label = \"shelf\"".to_owned()),
        ("subsystem", "namespaces-max", "namespaces-max = 7".to_owned()),
        ("subsystem", "qid-max", "qid-max = 2".to_owned()),
        ("subsystem", "ana-reporting", "ana-reporting = true".to_owned()),
        ("subsystem", "subsystem-reset", "subsystem-reset = true".to_owned()),
        ("subsystem", "host-namespaces", "host-namespaces = { capacity = \"1MiB\" }".to_owned()),
        ("subsystem", "serial", "serial = \"one\"".to_owned()),
        ("subsystem", "model", "model = \"two\"".to_owned()),
        ("subsystem", "firmware", "firmware = \"3\"".to_owned()),
        ("subsystem", "controller", "controllers = \"static\"".to_owned()),
        ("subsystem", "allowed", format!("allowed-hosts = [\"{HOST}\"]")),
        ("namespace", "read-only", "read-only = true".to_owned()),
        ("namespace", "seen by", format!("visible-to = [\"{HOST}\"]")),
        ("namespace", "NGUID", "nguid = \"00112233445566778899aabbccddeeff\"".to_owned()),
        ("namespace", "ptpl-file", format!("ptpl-file = \"{}\"", file("ptpl"))),
    ];
    let mut target = start(text("", "", ""));
    for (of, word, line) in changes {
        let with = |name: &str| if of == name { line.as_str() } else { "" };
        let changed = text(with("port"), with("subsystem"), with("namespace"));
        let lines = target.reload(changed).expect("a reload");
        assert!(lines.iter().any(|line| line.contains(word)), "{word}: {lines:?}");
        let back = target.reload(text("", "", "")).expect("a reload back");
        assert!(!back.is_empty(), "{word}");
        assert_eq!(target.reload(text("", "", "")).expect("the same"), Vec::<String>::new());
    }
    target.stop().expect("a clean stop");
}
