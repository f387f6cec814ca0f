//! The Persistent Event Log.

use weft_nvme::feature::FeatureId;
use weft_nvme::log_page::{
    GetLogPage, LogPageId, PersistentEventAction, PersistentEventHeader, PersistentEventType,
    PersistentEvents, Timestamp,
};
use weft_nvme::{Command, NvmOpcode, Status, Wire};
use weft_target::config::Config;
use weft_transport::host::HostData;

use crate::support::peer::{ConnectFields, Peer};
use crate::support::{address, config_of_two_groups, start, subsystem, wait_until};

const OTHER: &str = "nqn.2024-01.io.weft:other";

/// An event: its type and its data.
pub(crate) type EventRecord = (PersistentEventType, Vec<u8>);

/// The header of the log and its events, newest first.
fn read(admin: &mut Peer) -> (PersistentEventHeader, Vec<EventRecord>) {
    let mut get = |action: PersistentEventAction, bytes: u32| {
        let get = GetLogPage::new(LogPageId::PERSISTENT_EVENT_LOG, 0, bytes);
        let command = GetLogPage { specific_parameter: action.0, ..get }.to_command();
        admin.run_for(command, bytes as usize)
    };
    let header = get(PersistentEventAction::ESTABLISH_AND_READ, 512).succeeded();
    let header = PersistentEventHeader::read(header.bytes()).expect("512 bytes");
    let length = u32::try_from(header.length.get()).expect("small");
    let page = get(PersistentEventAction::READ, length.next_multiple_of(4)).succeeded();
    get(PersistentEventAction::RELEASE, 4).succeeded();
    let events = PersistentEvents::new(&page.bytes()[512..length as usize]);
    let events = events.map(|event| event.map(|(event, data)| (event.kind, data.to_vec())));
    (header, events.collect::<Result<_, _>>().expect("whole"))
}

/// The events that are recorded, newest first.
pub(crate) fn recorded(admin: &mut Peer) -> Vec<EventRecord> {
    read(admin).1
}

/// Each start is an event, and what happened before it is still there.
#[test]
fn the_log_outlasts_the_target() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.events");
    let config =
        Config { events_file: Some(path.clone()), ..config_of_two_groups(&["memory:1MiB"]) };
    let (power_on, set) =
        (PersistentEventType::POWER_ON_OR_RESET, PersistentEventType::SET_FEATURE);
    for starts in 1..=3usize {
        let mut target = start(config.clone());
        let (mut admin, _) = Peer::admin(address(&target));
        let before = recorded(&mut admin).len();
        admin.set_feature(FeatureId::NAMESPACE_WRITE_PROTECTION, 1, 1).succeeded();
        let (header, events) = read(&mut admin);
        assert_eq!((header.power_cycles.get(), before), (starts as u64, 2 * starts - 1));
        let kinds: Vec<_> = events.iter().map(|event| event.0).collect();
        assert_eq!(kinds, [set, power_on].repeat(starts));
        let time = Timestamp(header.timestamp.get());
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_millis();
        let off = u128::from(time.milliseconds()).abs_diff(since);
        assert!(off < 60_000 && time.origin() == Timestamp::SINCE_1970, "{time:?}, now {since}");
        // A reload is no start.
        target.reload(config.clone()).expect("the same");
        assert_eq!(recorded(&mut admin).len(), events.len());
        // It is written by then, however the process ends.
        let text = || std::fs::read_to_string(&path).unwrap_or_default();
        let events = 2 * starts;
        wait_until("the file is written", || text().matches('"').count() == 2 * events + 10);
        match starts {
            1 => target.stop().expect("a clean stop"),
            _ => drop(target),
        }
    }
    std::fs::write(&path, "{").expect("written");
    let error = weft_target::Target::start(config).expect_err("damaged").to_string();
    assert!(error.contains("state.events") && error.contains("move the file away"), "{error}");
}

/// Without a file there is a log all the same, and a protection that fails is not in it.
#[test]
fn what_fails_is_not_recorded() {
    let target =
        start(config_of_two_groups(&["fault:operation=flush,effect=media-write:memory:1MiB"]));
    let (mut admin, _) = Peer::admin(address(&target));
    let failed = admin.set_feature(FeatureId::NAMESPACE_WRITE_PROTECTION, 1, 1).status();
    assert_ne!(failed, Status::SUCCESS);
    let kinds: Vec<_> = recorded(&mut admin).iter().map(|event| event.0).collect();
    assert!(!kinds.contains(&PersistentEventType::SET_FEATURE), "{kinds:?}");
}

/// The Critical Warning is the subsystem's: its second namespace changes nothing of it, and other
/// subsystems have none.
#[test]
fn lost_writes_are_recorded_once_where_they_were_lost() {
    let files = [(); 2].map(|()| tempfile::NamedTempFile::new().expect("a file"));
    let broken = files.each_ref().map(|file| {
        let path = file.path().display();
        format!("fault:operation=flush,effect=media-write:file:{path},size=1MiB")
    });
    let mut config = config_of_two_groups(&broken.each_ref().map(|device| &**device));
    config.subsystems.push(subsystem(OTHER, &["memory:1MiB"]));
    let target = start(config);
    let (mut admin, controller) = Peer::admin(address(&target));
    let mut io = Peer::io(address(&target), controller, 1);
    for nsid in [1, 2] {
        let flush = Command::new(NvmOpcode::FLUSH).with_namespace_id(nsid);
        assert_eq!(io.run(flush, HostData::None).status(), Status::WRITE_FAULT);
    }
    let fields = ConnectFields { subsystem: OTHER.to_owned(), ..ConnectFields::admin() };
    let (mut other, _) = Peer::admin_as(address(&target), &fields);
    let errors = |admin: &mut Peer| {
        let events = recorded(admin).into_iter();
        events.filter(|event| event.0 == PersistentEventType::HARDWARE_ERROR).count()
    };
    assert_eq!((errors(&mut admin), errors(&mut other)), (1, 0));
}
