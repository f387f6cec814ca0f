//! Hosts that reserve a namespace, over several poll groups.

use std::path::PathBuf;
use std::time::Duration;

use weft_nvme::event::Event;
use weft_nvme::fabrics::InvalidParameter;
use weft_nvme::feature::{FeatureId, GetFeatures, ReservationNotificationMask};
use weft_nvme::log_page::{
    LogPageId, ReservationNotification, ReservationNotificationType as Kind,
};
use weft_nvme::reservation::{
    AcquireAction, RegisterAction, Registrant, ReleaseAction, ReservationControl,
    ReservationStatus, ReservationType as Type,
};
use weft_nvme::wire::U32;
use weft_nvme::{Command, NvmOpcode, Status, Wire};
use weft_target::Target;
use weft_target::config::Config;
use weft_transport::host::{HostData, HostOptions};

use crate::support::peer::{Answer, ConnectFields, Peer};
use crate::support::{
    HOST_ID, OTHER_HOST_ID, address, config, config_of_two_groups, on_each_transport, pattern,
    start, wait_until,
};

const BLOCK: usize = 4096;
const CONFLICT: Status = Status::RESERVATION_CONFLICT.with_dnr();
const SLOW: Duration = Duration::from_millis(400);

/// A host with its admin queue and two I/O queues, which are in different groups.
struct Host {
    admin: Peer,
    io: [Peer; 2],
    key: u64,
}

impl Host {
    fn connect(target: &Target, fields: &ConnectFields, key: u64) -> Self {
        let (admin, controller) = Peer::admin_as(address(target), fields);
        let io = [1, 2].map(|queue_id| {
            let entries = ConnectFields::io(controller, queue_id).entries;
            let fields = ConnectFields { queue_id, entries, controller, ..fields.clone() };
            Peer::io_as(address(target), &fields, HostOptions::default())
        });
        Self { admin, io, key }
    }

    /// Two hosts.
    fn two(target: &Target) -> (Self, Self) {
        let other = ConnectFields::admin().of_other_host();
        let first = Self::connect(target, &ConnectFields::admin(), 0xa);
        (first, Self::connect(target, &other, 0xb))
    }

    fn reserve(&mut self, opcode: NvmOpcode, control: ReservationControl, keys: &[u64]) -> Status {
        let command = reserving(opcode, control);
        let bytes: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
        self.io[0].run_with(command, &bytes).status()
    }

    fn register(&mut self, action: RegisterAction, current: u64, new: u64) -> Status {
        let control = ReservationControl(0).with_raw_action(action.0);
        self.reserve(NvmOpcode::RESERVATION_REGISTER, control, &[current, new])
    }

    fn acquire(&mut self, action: AcquireAction, kind: Type, preempted: u64) -> Status {
        let control =
            ReservationControl(0).with_raw_action(action.0).with_raw_reservation_type(kind.0);
        self.reserve(NvmOpcode::RESERVATION_ACQUIRE, control, &[self.key, preempted])
    }

    fn release(&mut self, action: ReleaseAction, kind: Type) -> Status {
        let control =
            ReservationControl(0).with_raw_action(action.0).with_raw_reservation_type(kind.0);
        self.reserve(NvmOpcode::RESERVATION_RELEASE, control, &[self.key])
    }

    /// Type, and the registrants with their status and key.
    fn report(&mut self) -> (Type, Vec<([u8; 16], u8, u64)>) {
        let mut command = Command::new(NvmOpcode::RESERVATION_REPORT).with_namespace_id(1);
        command.cdw10 = U32::new(1024 / 4 - 1);
        command.cdw11 = U32::new(1);
        let bytes = self.io[1].run_for(command, 1024).bytes().to_vec();
        let status = ReservationStatus::read(&bytes).expect("a report");
        let registrants = bytes[64..].chunks(64).take(status.registrants.get().into());
        let registrant = |bytes: &[u8]| {
            let one = Registrant::read(bytes).expect("a registrant");
            (one.host_id, one.status, one.key.get())
        };
        (status.reservation_type, registrants.map(registrant).collect())
    }

    fn register_first(&mut self) {
        assert_eq!(self.register(RegisterAction::REGISTER, 0, self.key), Status::SUCCESS);
    }

    /// The statuses of a write through each queue.
    fn writes(&mut self) -> [Status; 2] {
        [0, 1].map(|queue| self.io[queue].write(1, 8, 1, &pattern(BLOCK, 1)).status())
    }

    fn reads(&mut self) -> [Status; 2] {
        [0, 1].map(|queue| self.io[queue].read(1, 8, 1, BLOCK).status())
    }

    /// What the log of notifications has, and takes it from there.
    fn notification(&mut self) -> (Kind, u32, u8) {
        let page = self.admin.log_page(LogPageId::RESERVATION_NOTIFICATION, 64);
        let read = ReservationNotification::read(&page).expect("64 bytes");
        (read.notification_type, read.namespace_id.get(), read.available)
    }
}

fn reserving(opcode: NvmOpcode, control: ReservationControl) -> Command {
    let mut command = Command::new(opcode).with_namespace_id(1);
    command.cdw10 = U32::new(control.0);
    command
}

fn devices() -> Config {
    config_of_two_groups(&["memory:1MiB", "memory:1MiB"])
}

#[test]
fn a_reservation_is_there_for_every_queue_of_every_host() {
    on_each_transport(&devices(), |target| {
        let (mut one, mut two) = Host::two(target);
        one.register_first();
        let (fine, refused) = ([Status::SUCCESS; 2], [CONFLICT; 2]);
        for (kind, registered, reads) in [
            (Type::WRITE_EXCLUSIVE, refused, fine),
            (Type::EXCLUSIVE_ACCESS, refused, refused),
            (Type::WRITE_EXCLUSIVE_REGISTRANTS_ONLY, fine, fine),
            (Type::EXCLUSIVE_ACCESS_REGISTRANTS_ONLY, fine, refused),
            (Type::WRITE_EXCLUSIVE_ALL_REGISTRANTS, fine, fine),
            (Type::EXCLUSIVE_ACCESS_ALL_REGISTRANTS, fine, refused),
        ] {
            assert_eq!(one.acquire(AcquireAction::ACQUIRE, kind, 0), Status::SUCCESS, "{kind}");
            assert_eq!((one.writes(), one.reads()), (fine, fine), "{kind}: its holder");
            assert_eq!((two.writes(), two.reads()), (refused, reads), "{kind}: another host");
            assert_eq!(two.io[0].write(2, 0, 1, &pattern(BLOCK, 1)).status(), Status::SUCCESS);
            two.register_first();
            assert_eq!(two.writes(), registered, "{kind}: another registrant");
            assert_eq!(two.register(RegisterAction::UNREGISTER, 0xb, 0), Status::SUCCESS);
            let (found, registrants) = two.report();
            assert_eq!((found, registrants), (kind, vec![(HOST_ID, 1, 0xa)]));
            assert_eq!(one.release(ReleaseAction::RELEASE, kind), Status::SUCCESS);
            assert_eq!(two.writes(), fine, "{kind}: released");
        }
    });
}

#[test]
fn a_new_host_finds_what_is_reserved() {
    let target = start(devices());
    let mut one = Host::connect(&target, &ConnectFields::admin(), 0xa);
    one.register_first();
    assert_eq!(one.acquire(AcquireAction::ACQUIRE, Type::EXCLUSIVE_ACCESS, 0), Status::SUCCESS);
    let other = ConnectFields::admin().of_other_host();
    let mut two = Host::connect(&target, &other, 0xb);
    assert_eq!((two.writes(), two.reads()), ([CONFLICT; 2], [CONFLICT; 2]));
    // A holder that goes and comes back has it still.
    drop(one);
    assert_eq!(two.writes(), [CONFLICT; 2]);
    let mut one = Host::connect(&target, &ConnectFields::admin(), 0xa);
    assert_eq!(one.writes(), [Status::SUCCESS; 2]);
    target.stop().expect("a clean stop");
}

/// The host that preempts is answered once no write of the other one is under way any more.
#[test]
fn a_preempted_write_is_waited_for() {
    let slow = format!("delay:write={}ms:memory:1MiB", SLOW.as_millis());
    on_each_transport(&config_of_two_groups(&[&slow]), |target| {
        let (mut one, mut two) = Host::two(target);
        one.register_first();
        two.register_first();
        let kind = Type::WRITE_EXCLUSIVE;
        assert_eq!(one.acquire(AcquireAction::ACQUIRE, kind, 0), Status::SUCCESS);
        let began = one.io.each_mut().map(|io| {
            let slot = io.begin_write(1, 3, 1, &pattern(BLOCK, 7));
            assert!(!io.is_answered(slot, Duration::from_millis(30)), "it is at the device");
            slot
        });
        assert_eq!(two.acquire(AcquireAction::PREEMPT_AND_ABORT, kind, 0xa), Status::SUCCESS);
        // Both are done, although nobody has looked for their answers yet.
        assert!(two.io[1].read(1, 3, 1, BLOCK).bytes() == pattern(BLOCK, 7));
        two.io[1].write(1, 3, 1, &pattern(BLOCK, 8)).succeeded();
        for (io, slot) in one.io.iter_mut().zip(began) {
            io.wait_for(slot).succeeded();
        }
        assert!(two.io[0].read(1, 3, 1, BLOCK).bytes() == pattern(BLOCK, 8));
        assert_eq!(one.writes(), [CONFLICT; 2]);
    });
}

/// A host that leaves while its own change waits for its own writes does not wait for ever.
#[test]
fn a_host_that_leaves_with_a_change_under_way_comes_back() {
    let slow = format!("delay:write={}ms:memory:1MiB", SLOW.as_millis());
    let target = start(config_of_two_groups(&[&slow]));
    let (mut one, mut two) = Host::two(&target);
    one.register_first();
    two.register_first();
    let kind = Type::WRITE_EXCLUSIVE_REGISTRANTS_ONLY;
    assert_eq!(two.acquire(AcquireAction::ACQUIRE, kind, 0), Status::SUCCESS);
    one.io[1].begin_write(1, 3, 1, &pattern(BLOCK, 7));
    let control = ReservationControl(0).with_raw_action(RegisterAction::UNREGISTER.0);
    let command = reserving(NvmOpcode::RESERVATION_REGISTER, control);
    let keys = one.io[0].buffer(&[0xa, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    one.io[0].submit(command, HostData::ToController(keys));
    std::thread::sleep(Duration::from_millis(50));
    drop(one);
    let mut one = Host::connect(&target, &ConnectFields::admin(), 0xa);
    assert_eq!(one.writes(), [CONFLICT; 2], "it has unregistered");
    assert_eq!(two.report().1.len(), 1);
    target.stop().expect("a clean stop");
}

#[test]
fn hosts_are_notified_unless_they_have_masked_it() {
    on_each_transport(&devices(), |target| {
        let (mut one, mut two) = Host::two(target);
        one.register_first();
        two.register_first();
        let kind = Type::WRITE_EXCLUSIVE_REGISTRANTS_ONLY;
        assert_eq!(one.notification(), (Kind::EMPTY, 0, 0));
        assert_eq!(one.acquire(AcquireAction::ACQUIRE, kind, 0), Status::SUCCESS);
        let event = two.admin.begin_event_request();
        assert_eq!(one.release(ReleaseAction::RELEASE, kind), Status::SUCCESS);
        let told = two.admin.wait_for(event).succeeded().completion.dword0();
        assert_eq!(told, Event::RESERVATION_LOG_PAGE_AVAILABLE.0);
        assert_eq!(two.notification(), (Kind::RESERVATION_RELEASED, 1, 0));
        assert_eq!(two.notification(), (Kind::EMPTY, 0, 0), "it has been read");
        // One is masked, for the one namespace.
        let mask = ReservationNotificationMask(0).with_reservation_released(true);
        let feature = FeatureId::RESERVATION_NOTIFICATION_MASK;
        two.admin.set_feature(feature, 1, mask.0).succeeded();
        let get = GetFeatures { namespace_id: 1, ..GetFeatures::new(feature) };
        let got = two.admin.run(get.to_command(), HostData::None).succeeded();
        assert_eq!(got.completion.dword0(), mask.0);
        assert_eq!(one.acquire(AcquireAction::ACQUIRE, kind, 0), Status::SUCCESS);
        assert_eq!(one.release(ReleaseAction::RELEASE, kind), Status::SUCCESS);
        let event = two.admin.begin_event_request();
        assert_eq!(one.acquire(AcquireAction::PREEMPT, kind, 0xb), Status::SUCCESS);
        two.admin.wait_for(event).succeeded();
        assert_eq!(two.notification(), (Kind::REGISTRATION_PREEMPTED, 1, 0));
        two.register_first();
        two.admin.begin_event_request();
        assert_eq!(one.release(ReleaseAction::CLEAR, Type::NONE), Status::SUCCESS);
        let until = std::time::Instant::now() + Duration::from_secs(10);
        let expected = (Kind::RESERVATION_PREEMPTED, 1, 0);
        while two.notification() != expected {
            assert!(std::time::Instant::now() < until, "cleared");
        }
        assert_eq!(one.notification(), (Kind::EMPTY, 0, 0), "who did it knows");
    });
}

#[test]
fn bad_reservation_commands_are_refused() {
    let target = start(config(&["memory:1MiB"]));
    let mut host = Host::connect(&target, &ConnectFields::admin(), 0xa);
    host.register_first();
    let field = Status::INVALID_FIELD.with_dnr();
    let control = |action, kind| {
        ReservationControl(0).with_raw_action(action).with_raw_reservation_type(kind)
    };
    for (opcode, control) in [
        (NvmOpcode::RESERVATION_REGISTER, control(3, 0)),
        (NvmOpcode::RESERVATION_REGISTER, control(0, 0).with_raw_persistence(1)),
        (NvmOpcode::RESERVATION_REGISTER, control(0, 0).with_raw_persistence(3)),
        (NvmOpcode::RESERVATION_ACQUIRE, control(3, 1)),
        (NvmOpcode::RESERVATION_ACQUIRE, control(0, 0)),
        (NvmOpcode::RESERVATION_ACQUIRE, control(0, 7)),
        (NvmOpcode::RESERVATION_ACQUIRE, control(0, 1).with_ignore_existing_key(true)),
    ] {
        assert_eq!(host.reserve(opcode, control, &[0xa, 0xa]), field, "{opcode} {control:?}");
    }
    let release = NvmOpcode::RESERVATION_RELEASE;
    for control in [control(2, 1), control(0, 1).with_ignore_existing_key(true)] {
        assert_eq!(host.reserve(release, control, &[0xa]), field);
    }
    let length = Status::DATA_SGL_LENGTH_INVALID.with_dnr();
    // Linux sends two keys, of which the second says nothing.
    assert_eq!(host.reserve(release, control(0, 1), &[0xa, 0, 0]), length);
    let short = |command: Command, io: &mut Peer| -> Answer { io.run_for(command, 64) };
    let mut report = Command::new(NvmOpcode::RESERVATION_REPORT).with_namespace_id(1);
    report.cdw10 = U32::new(64 / 4 - 1);
    let format = Status::HOST_ID_INCONSISTENT_FORMAT.with_dnr();
    assert_eq!(short(report, &mut host.io[0]).status(), format, "128 bits need EDS");
    report.cdw11 = U32::new(1);
    assert_eq!(short(report, &mut host.io[0]).bytes()[5], 1, "as much as is asked for");
    report.cdw10 = U32::new(u32::MAX);
    assert_eq!(short(report, &mut host.io[0]).status(), field);
    report.namespace_id = U32::new(9);
    assert_eq!(short(report, &mut host.io[0]).status(), Status::INVALID_NAMESPACE.with_dnr());
    // There is no file: nothing can persist.
    assert_eq!(host.admin.set_feature(FeatureId::RESERVATION_PERSISTENCE, 1, 1).status(), field);
    target.stop().expect("a clean stop");
}

struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

#[test]
fn what_persists_outlasts_the_target() {
    let name = format!("weft-reservations-{}.json", std::process::id());
    let file = File(std::env::temp_dir().join(name));
    let mut config = devices();
    let namespace = &mut config.subsystems[0].namespaces[0];
    namespace.ptpl_file = Some(file.0.clone());
    namespace.uuid = Some([7; 16]);
    let target = start(config.clone());
    let (mut one, mut two) = Host::two(&target);
    one.register_first();
    assert!(!file.0.exists(), "nothing persists yet");
    one.admin.set_feature(FeatureId::RESERVATION_PERSISTENCE, 1, 1).succeeded();
    let kind = Type::WRITE_EXCLUSIVE;
    assert_eq!(one.acquire(AcquireAction::ACQUIRE, kind, 0), Status::SUCCESS);
    assert_eq!(two.writes(), [CONFLICT; 2]);
    let expected = (kind, vec![(HOST_ID, 1, 0xa)]);
    assert_eq!(two.report(), expected);
    drop((one, two));
    target.stop().expect("a clean stop");
    // Another process.
    let target = start(config.clone());
    let (mut one, mut two) = Host::two(&target);
    assert_eq!(two.report(), expected);
    assert_eq!((one.writes(), two.writes()), ([Status::SUCCESS; 2], [CONFLICT; 2]));
    let get =
        GetFeatures { namespace_id: 1, ..GetFeatures::new(FeatureId::RESERVATION_PERSISTENCE) };
    let got = two.admin.run(get.to_command(), HostData::None).succeeded();
    assert_eq!(got.completion.dword0(), 1);
    two.register_first();
    assert_eq!(two.acquire(AcquireAction::PREEMPT, kind, 0xa), Status::SUCCESS);
    one.admin.set_feature(FeatureId::RESERVATION_PERSISTENCE, 1, 0).succeeded();
    drop((one, two));
    target.stop().expect("a clean stop");
    let target = start(config.clone());
    let (mut one, _) = Host::two(&target);
    assert_eq!(one.report(), (Type::NONE, vec![]), "it did not persist any more");
    target.stop().expect("a clean stop");
    // The file of another namespace.
    config.subsystems[0].namespaces[0].uuid = Some([8; 16]);
    let told = Target::start(config).expect_err("another namespace").to_string();
    assert!(told.contains("07070707-0707") && told.contains("move the file away"), "{told}");
}

/// The answer to a Connect with the first host's identifier and the second one's name.
fn borrow(target: &Target) -> (Status, u32) {
    let fields = ConnectFields { host_id: HOST_ID, ..ConnectFields::admin().of_other_host() };
    let mut peer =
        Peer::open(address(target), fields.options(address(target), HostOptions::default()));
    let answer = peer.connect(&fields);
    (answer.status(), answer.completion.dword0())
}

/// A Host Identifier is a host's while it is connected or registered, in another process as well.
#[test]
fn a_host_identifier_belongs_to_the_host_that_showed_it_first() {
    let name = format!("weft-owners-{}.json", std::process::id());
    let file = File(std::env::temp_dir().join(name));
    let owners = File(file.0.with_extension("json.hosts"));
    let mut config = devices();
    let namespace = &mut config.subsystems[0].namespaces[0];
    (namespace.ptpl_file, namespace.uuid) = (Some(file.0.clone()), Some([7; 16]));
    let invalid = (Status::CONNECT_INVALID_PARAMETERS.with_dnr(), InvalidParameter::HOST_ID.0);
    let is_free = |target: &Target| {
        wait_until("the identifier is free", || borrow(target).0 == Status::SUCCESS);
    };
    let target = start(config.clone());
    let (mut one, two) = Host::two(&target);
    assert_eq!(borrow(&target), invalid, "it is connected");
    // As many controllers of one host as it likes, and hosts without an identifier.
    let again = Peer::admin(address(&target));
    for fields in [ConnectFields::admin(), ConnectFields::admin().of_other_host()] {
        Peer::admin_as(address(&target), &ConnectFields { host_id: [0; 16], ..fields });
    }
    drop((again, two));
    assert_eq!(borrow(&target), invalid, "one of its controllers is there");
    one.register_first();
    drop(one);
    std::thread::sleep(SLOW);
    assert_eq!(borrow(&target), invalid, "it is registered");
    let (mut one, mut two) = Host::two(&target);
    one.admin.set_feature(FeatureId::RESERVATION_PERSISTENCE, 1, 1).succeeded();
    let kind = Type::WRITE_EXCLUSIVE;
    assert_eq!(one.acquire(AcquireAction::ACQUIRE, kind, 0), Status::SUCCESS);
    two.register_first();
    drop((one, two));
    target.stop().expect("a clean stop");

    let target = start(config);
    assert_eq!(borrow(&target), invalid, "its registration persists");
    let (one, mut two) = Host::two(&target);
    drop(one);
    assert_eq!(two.acquire(AcquireAction::PREEMPT, kind, 0xa), Status::SUCCESS);
    is_free(&target);
    assert_eq!(two.release(ReleaseAction::CLEAR, kind), Status::SUCCESS);
    two.admin.set_feature(FeatureId::RESERVATION_PERSISTENCE, 1, 0).succeeded();
    assert!(!owners.0.exists(), "nothing persists");
    target.stop().expect("a clean stop");
}

#[test]
fn a_file_that_cannot_be_written_leaves_all_as_it_was() {
    let name = format!("weft-no-folder-{}/one.json", std::process::id());
    let mut config = devices();
    let path = std::env::temp_dir().join(name);
    let folder = path.parent().expect("a folder");
    std::fs::create_dir(folder).expect("a folder");
    config.subsystems[0].namespaces[0].ptpl_file = Some(path.clone());
    let target = start(config);
    std::fs::remove_dir(folder).expect("it goes while the target serves");
    let (mut one, mut two) = Host::two(&target);
    one.register_first();
    let answer = one.admin.set_feature(FeatureId::RESERVATION_PERSISTENCE, 1, 1);
    assert_eq!(answer.status(), Status::INTERNAL_ERROR);
    let on = ReservationControl(0).with_raw_persistence(3);
    let register = NvmOpcode::RESERVATION_REGISTER;
    assert_eq!(two.reserve(register, on, &[0, 0xb]), Status::INTERNAL_ERROR);
    assert_eq!(two.report(), (Type::NONE, vec![(HOST_ID, 0, 0xa)]));
    two.register_first();
    assert_eq!(two.report().1[1], (OTHER_HOST_ID, 0, 0xb));
    target.stop().expect("a clean stop");
}
